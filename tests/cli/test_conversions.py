#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The verbs on small checkpoints: results, JSON, quiet and verbose, dry runs."""

import json
import os
import pty
import re
import shutil
import subprocess

import command


def parse_json(text):
    """As python3 -m json.tool: one document, nothing after it; NaN and Infinity are errors."""
    def refuse(constant):
        raise ValueError(constant)
    return json.loads(text, parse_constant=refuse)


class Conversions(command.Case):
    def test_the_main_job(self):
        self.checkpoint()
        done = self.run_fp8("quantize", "model", "-o", "out")
        self.assertRegex(done.stdout, r"^out: 11 tensors, 6 changed, 5 kept; .* -> .*\n$")
        self.assertTrue((self.folder / "out/model.safetensors").is_file())
        self.assertFalse((self.folder / "out.partial").exists())
        self.assertIn("good", self.run_fp8("verify", "out", "--against", "model").stdout)
        self.run_fp8("diff", "out", "out")
        self.assertIn("mlp.up_proj", self.run_fp8("diff", "model", "out", code=1).stdout)

    def test_resume_of_a_finished_run(self):
        """What the same options and source made is complete; anything else that stands there is not ours to judge."""
        source = self.checkpoint()
        try:
            os.setxattr(source, "user.fp8.test", b"1")
        except OSError:
            self.skipTest("no extended attributes here")
        self.run_fp8("quantize", "model", "-o", "out")
        before = self.bytes_in("out")
        self.assertIn("complete already", self.run_fp8("quantize", "model", "-o", "out", "--resume").stderr)
        self.assertIn("complete already", self.run_fp8("quantize", "model", "-o", "out", "--resume", "-f").stderr)
        self.assertEqual(self.bytes_in("out"), before)
        self.fails("quantize", "model", "-o", "out", code=2, says=["exists"])
        self.fails("quantize", "model", "-o", "out", "--resume", "--scheme", "ct-channel", code=2, says=["exists"])
        (self.folder / "out/config.json").unlink()
        self.fails("quantize", "model", "-o", "out", "--resume", code=2, says=["exists"])
        self.run_fp8("quantize", "model", "-o", "out", "--resume", "-f", "-q")
        self.assertEqual(self.bytes_in("out"), before)

    def test_resume_with_other_options(self):
        """The remedy is the one that helps: the same command again would fail again."""
        self.checkpoint()
        self.run_fp8("quantize", "model", "-o", "out", "--shard", "1/2", "-q")
        line = self.fails("quantize", "model", "-o", "out", "--shard", "1/2", "--resume", "--scheme", "ct-channel", code=3,
                          says=["other options", "remove"])
        self.assertNotIn("same command", line)

    def test_there_and_back(self):
        self.checkpoint()
        self.run_fp8("quantize", "model", "-o", "a", "-q")
        self.run_fp8("dequantize", "a", "-o", "b", "--dtype", "f32", "-q")
        self.run_fp8("quantize", "b", "-o", "c", "-q")
        self.run_fp8("convert", "a", "-o", "d", "--scheme", "ct-block", "-q")
        self.assertIn("ct-block", self.run_fp8("inspect", "d").stdout)
        self.run_fp8("verify", "d", "--against", "model", "-q")
        changed = parse_json(self.run_fp8("diff", "a", "d", "--json").stdout)
        self.assertEqual(changed["differing"], 0)

    def test_quiet_prints_nothing(self):
        self.checkpoint()
        for arguments in (["quantize", "model", "-o", "out"], ["quantize", "model", "-o", "x", "--dry-run"],
                          ["inspect", "out"], ["verify", "out"], ["diff", "out", "out"]):
            done = self.run_fp8(*arguments, "-q")
            self.assertEqual(done.stdout + done.stderr, "", arguments)

    def test_dry_run_writes_nothing_and_folds_layers(self):
        self.checkpoint(tensors=command.llama(layers=12))
        done = self.run_fp8("quantize", "model", "-o", "out", "--dry-run")
        self.assert_no_output()
        self.assertIn("model.layers.{0..11}.mlp.up_proj.weight", done.stdout)
        self.assertIn("memory: at most", done.stdout)
        self.assertIn("disk: needs", done.stdout)
        for name in command.llama(layers=12):
            self.assertIn(name, self.run_fp8("quantize", "model", "-o", "out", "--dry-run", "-v").stdout)

    def test_choices_by_name(self):
        self.checkpoint()
        plan = lambda *arguments: {row["name"]: row for row in parse_json(
            self.run_fp8("quantize", "model", "-o", "out", "--dry-run", "--json", *arguments).stdout)["tensors"]}
        up, down, q = (f"model.layers.1.{x}_proj.weight" for x in ("mlp.up", "mlp.down", "self_attn.q"))
        kept = plan("--keep", "*.down_proj")
        self.assertEqual((kept[down]["action"], kept[up]["action"]), ("keep", "quantize"))
        only = plan("--only", "re:.*layers[.]1[.]mlp", "--keep", down)
        self.assertEqual([only[x]["action"] for x in (up, down, q)], ["quantize", "keep", "keep"])
        chosen = plan("--scheme", "ct-block", "--set", "*.q_proj=ct-channel")
        self.assertEqual((chosen[q]["scheme"], chosen[up]["scheme"]), ("ct-channel", "ct-block"))

    def test_set_that_changes_nothing(self):
        """A norm cannot be quantized: --set on norms alone is a mistake, which is said."""
        self.checkpoint()
        done = self.run_fp8("quantize", "model", "-o", "out", "--dry-run", "--set", "*norm*=hf-block")
        self.assertIn("'*norm*=hf-block' changes no tensor", done.stderr)
        done = self.run_fp8("quantize", "model", "-o", "out", "--dry-run", "--set", "*proj*=hf-block")
        self.assertEqual(done.stderr, "")

    def bytes_in(self, name):
        return sum(path.stat().st_size for path in (self.folder / name).rglob("*") if path.is_file())

    def test_disk(self):
        """What a plan says that the output needs is what its files have: shards, index, config, carried files."""
        source = self.sharded("model", [command.llama(1), {"x.weight": command.norm(5)}])
        (source / "tokenizer.json").write_text("{}" * 1000)
        for n, scheme in enumerate(("hf-block", "modelopt-pcpt", "ct-channel")):
            plan = parse_json(self.run_fp8("quantize", "model", "-o", f"out{n}", "--scheme", scheme, "--dry-run",
                                           "--json").stdout)
            self.run_fp8("quantize", "model", "-o", f"out{n}", "--scheme", scheme, "-q")
            self.assertEqual(plan["summary"]["disk_bytes"], self.bytes_in(f"out{n}"))

    def test_least_memory(self):
        """The error names a limit that is kept to and works, and one byte less does not; long rows ask for more."""
        self.checkpoint()
        self.checkpoint("wide", {"model.layers.0.mlp.down_proj.weight": ("BF16", [2, 1 << 20], bytes(4 << 20))})
        least = {}
        for model in ("model", "wide"):
            job = ("quantize", model, "-o", "out", "--scheme", "ct-channel", "-j", "2", "--max-memory")
            line = self.fails(*job, 1, code=5, says=["--max-memory 1 is too little"])
            least[model] = int(re.search(r"(\d+) would do", line)[1])
            self.fails(*job, least[model] - 1, code=5, says=[f"{least[model]} would do"])
            for memory in (least[model], least[model] + 100000, 2 * least[model]):
                plan = parse_json(self.run_fp8(*job, memory, "--dry-run", "--json").stdout)
                self.assertLessEqual(plan["summary"]["peak_memory_bytes"], memory)
            self.assert_no_output()
            self.run_fp8(*job, least[model], "-q")
            self.run_fp8("verify", "out", "--against", model, "-q")
            shutil.rmtree(self.folder / "out")
        self.assertIn("rows of 2097152 bytes in model.layers.0.mlp.down_proj.weight", line)
        self.assertGreater(least["wide"], least["model"] + (3 << 20))

    def test_report_is_checked_before_the_work(self):
        self.checkpoint()
        self.fails("quantize", "model", "-o", "out", "--report", "nodir/x.html", code=4, says=["nodir/x.html", "folder"])
        (self.folder / "r.json").mkdir()
        self.fails("quantize", "model", "-o", "out", "--report", "r.json", code=4, says=["r.json"])
        self.assert_no_output()
        done = self.run_fp8("quantize", "model", "-o", "out", "--report", "x.html", "--dry-run")
        self.assertIn("no report", done.stderr)
        self.assertFalse((self.folder / "x.html").exists())
        self.run_fp8("quantize", "model", "-o", "out", "--report", self.folder / "x.html", "-q")
        self.assertTrue((self.folder / "x.html").exists())

    def test_what_is_no_file_is_left_out_with_a_warning(self):
        os.mkfifo(self.checkpoint() / "pipe")
        self.assertIn("pipe: no regular file; left out", self.run_fp8("quantize", "model", "-o", "out").stderr)
        self.assertFalse((self.folder / "out/pipe").exists())

    def test_diff_of_input_scales_of_two_dialects(self):
        """[] and [1] are the same number."""
        self.checkpoint()
        modules = [name[:-7] for name in command.llama() if "_proj" in name]
        (self.folder / "scales.json").write_text(json.dumps({name: 0.5 for name in modules}))
        for scheme in ("ct-tensor-static", "modelopt"):
            self.run_fp8("quantize", "model", "-o", scheme, "--scheme", scheme, "--activation-scales", "scales.json", "-q")
        rows = parse_json(self.run_fp8("diff", "ct-tensor-static", "modelopt", "--json").stdout)["tensors"]
        self.assertEqual({row["kind"] for row in rows}, {"same"})
        self.assertEqual(sum(row["name"].endswith("input_scale") for row in rows), len(modules))

    def test_json(self):
        self.checkpoint()
        made = parse_json(self.run_fp8("quantize", "model", "-o", "out", "--json").stdout)
        self.assertEqual((made["output"], made["complete"], made["tensors"]), ("out", True, 11))
        plan = parse_json(self.run_fp8("quantize", "model", "-o", "x", "--dry-run", "--json").stdout)
        self.assertEqual(len(plan["tensors"]), plan["summary"]["tensors"])
        self.assertEqual(sum(row["bytes_in"] for row in plan["tensors"]), plan["summary"]["bytes_in"])
        self.assertEqual(plan["summary"]["bytes_out"], made["bytes_out"])
        self.assertTrue(all(row["reason"] for row in plan["tensors"]))
        self.assertEqual(plan["summary"]["disk_bytes"], self.bytes_in("out"))
        seen = parse_json(self.run_fp8("inspect", "out", "--json").stdout)
        self.assertEqual(seen["scheme"], "hf-block")
        self.assertEqual(sum(t["tensors"] for t in seen["dtypes"].values()), len(seen["tensors"]))
        checked = parse_json(self.run_fp8("verify", "out", "--against", "model", "--json").stdout)
        self.assertTrue(checked["summary"]["good"])
        self.assertEqual(checked["summary"]["quantized"], 6)
        self.assertEqual(parse_json(self.run_fp8("diff", "out", "out", "--json").stdout)["differing"], 0)
        parse_json(self.run_fp8("doctor", "--json").stdout)
        failed = parse_json(self.run_fp8("inspect", "nowhere", "--json", code=3).stdout)
        self.assertEqual(failed["error"]["exit"], 3)

    def test_names_that_attack(self):
        self.checkpoint(tensors={"a\x1b[31mred\n\"\\\0\u202e.weight": command.bf16(4, 4), "\u4e2d": command.norm(3)})
        for extra in ([], ["-v"]):
            text = self.run_fp8("inspect", "model", *extra).stdout
            self.assertNotIn("\x1b", text)
            self.assertNotIn("\u202e", text)
            self.assertIn("\\x1B[31mred\\x0A", text)
            self.assertIn("\u4e2d", text)
        names = [t["name"] for t in parse_json(self.run_fp8("inspect", "model", "--json").stdout)["tensors"]]
        self.assertEqual(sorted(names), sorted(["a\x1b[31mred\n\"\\\0\u202e.weight", "\u4e2d"]))

    def test_names_of_scales_mean_nothing_without_fp8(self):
        """A weight called weight_scale, a marker of another type: plain tensors of a plain model."""
        names = ["x.weight_scale", "y.weight_scale_inv", "z.input_scale", "scaled_fp8", "z.comfy_quant"]
        self.checkpoint(tensors={**command.llama(), **{name: command.bf16(8, 8) for name in names}})
        self.assertNotIn("left out", self.run_fp8("quantize", "model", "-o", "out").stderr)
        out = [t["name"] for t in parse_json(self.run_fp8("inspect", "out", "--json").stdout)["tensors"]]
        for name in names:
            self.assertIn(name, out)

    def test_nested_null_announcement(self):
        """What a conversion takes out of config.json is no damage to it."""
        text = {"model_type": "llama", "quantization_config": None}
        self.checkpoint(config={"model_type": "llava", "compression_config": None, "text_config": text})
        self.run_fp8("quantize", "model", "-o", "out", "-q")
        self.run_fp8("verify", "out", "--against", "model", "-q")

    def test_progress(self):
        self.checkpoint()
        plain = self.run_fp8("quantize", "model", "-o", "a", "--progress", "plain").stderr
        self.assertRegex(plain, r"(?m)^fp8: 100%  .* of .*/s")
        self.assertNotIn("\x1b", plain)
        self.assertEqual(self.run_fp8("quantize", "model", "-o", "b", "--progress", "none").stderr, "")
        lines = self.run_fp8("quantize", "model", "-o", "c", "--progress", "json").stderr.splitlines()
        events = [parse_json(line) for line in lines if line.startswith("{")]
        self.assertEqual(events[-1]["event"], "progress")
        self.assertEqual(events[-1]["bytes_done"], events[-1]["bytes_total"])

    def read_to_end(self, master):
        """What a terminal got; it comes in pieces, and the end is an error."""
        seen = b""
        while True:
            try:
                piece = os.read(master, 65536)
            except OSError:
                return seen
            if not piece:
                return seen
            seen += piece

    def test_progress_on_a_terminal(self):
        self.checkpoint()
        for no_color, dims in (("", True), ("1", False)):
            try:
                master, slave = pty.openpty()
            except OSError as error:  # a chroot without /dev/pts
                self.skipTest(f"no terminal to be had: {error}")
            self.run_fp8("quantize", "model", "-o", "t" + no_color, stderr=slave,
                         env={"TERM": "xterm", "NO_COLOR": no_color})
            os.close(slave)
            seen = self.read_to_end(master).decode()
            os.close(master)
            self.assertIn("\r", seen)
            self.assertEqual("\x1b[2m" in seen, dims)
            self.assertTrue(seen.endswith("\r\x1b[K"), repr(seen))

    def test_many_findings_are_counted(self):
        tensors = command.llama(layers=30)
        self.checkpoint(tensors=tensors)
        self.run_fp8("quantize", "model", "-o", "out", "-q")
        text = (self.folder / "out/config.json").read_text()
        (self.folder / "out/config.json").write_text(text.replace('"lm_head"', '"no_head"'))
        data = (self.folder / "out/model.safetensors").read_bytes()
        (self.folder / "out/model.safetensors").write_bytes(data.replace(b"_scale_inv\"", b"_scale_xxx\""))
        short = self.run_fp8("verify", "out", code=1).stdout
        long = self.run_fp8("verify", "out", "-v", code=1).stdout
        listed = parse_json(self.run_fp8("verify", "out", "--json", code=1).stdout)
        missing = [f for f in listed["findings"] if f["rule"] == "scale-missing"]
        self.assertEqual(len(missing), 90)
        self.assertEqual(short.count("error    scale-missing  "), 21)
        self.assertIn("error    scale-missing  70 more (-v prints all)", short)
        self.assertEqual(long.count("error    scale-missing  "), 90)
        self.assertIn("BAD", short)
        self.assertEqual(listed["summary"]["good"], False)

    def test_existing_output(self):
        self.checkpoint()
        self.run_fp8("quantize", "model", "-o", "out", "-q")
        before = (self.folder / "out/model.safetensors").read_bytes()
        self.fails("quantize", "model", "-o", "out", "--scheme", "ct-channel", code=2, says=["out", "--force"])
        self.assertEqual(before, (self.folder / "out/model.safetensors").read_bytes())
        self.run_fp8("quantize", "model", "-o", "out/", "--scheme", "ct-channel", "--force", "-q")
        self.assertNotEqual(before, (self.folder / "out/model.safetensors").read_bytes())
        self.fails("quantize", "model", "-o", "model/inside", code=2, says=["model/inside"])

    def test_parts(self):
        self.checkpoint()
        self.run_fp8("quantize", "model", "-o", "whole", "--max-shard-size", "100kB", "-q")
        first = self.run_fp8("quantize", "model", "-o", "out", "--max-shard-size", "100kB", "--shard", "1/2", "--json")
        self.assertFalse(parse_json(first.stdout)["complete"])
        second = self.run_fp8("quantize", "model", "-o", "out", "--max-shard-size", "100kB", "--shard", "2/2", "--json")
        self.assertTrue(parse_json(second.stdout)["complete"])
        files = lambda name: {p.name: p.read_bytes() for p in (self.folder / name).iterdir()}
        self.assertEqual(files("whole"), files("out"))

    def test_report(self):
        self.checkpoint()
        self.run_fp8("quantize", "model", "-o", "a", "--report", "r.html", "-q")
        self.assertIn("<svg", (self.folder / "r.html").read_text())
        self.run_fp8("quantize", "model", "-o", "b", "--report", "r.json", "-q")
        parse_json((self.folder / "r.json").read_text())

    def test_tool_agrees_that_it_is_json(self):
        self.checkpoint()
        for arguments in (["quantize", "model", "-o", "x", "--dry-run"], ["inspect", "model"], ["schemes"], ["doctor"]):
            text = self.run_fp8(*arguments, "--json").stdout
            subprocess.run(["python3", "-m", "json.tool"], input=text, text=True, check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    command.main()
