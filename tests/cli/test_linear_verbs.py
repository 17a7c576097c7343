#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""explain, bench and the peaks of doctor: tables, JSON, the fields of each line, and shapes that are none."""

import json
import re
import subprocess

import command

SCHEMES = ["w8a16", "tensor", "channel", "block", "mxfp8", "gemm", "fast"]
LINEAR = ["shape", "scheme", "kernel", "isa", "weights", "threads", "rounds", "ms", "best_ms", "GFLOP/s", "GB/s", "of_peak",
          "of_read", "of_roof"]
QUANTIZE = ["shape", "scheme", "what", "matrix", "in", "threads", "rounds", "ms", "best_ms", "GB/s", "of_read"]
QUICK = ["--seconds", "0.001", "-j", "1"]


def fields(line):
    """{name: value} of a line of bench, without its first two words."""
    return dict(word.split("=", 1) for word in line.split()[2:])


class LinearVerbs(command.Case):
    def lines(self, *arguments, kind, **options):
        """The lines of a bench that are about cases."""
        text = self.run_fp8("bench", *arguments, *QUICK, **options).stdout
        return [line for line in text.splitlines() if line.startswith(f"bench {kind} ")]

    def test_explain_marks_one_kernel(self):
        text = self.run_fp8("explain", "--shape", "1x256x256").stdout
        tables = text.strip().split("\n\n")
        self.assertEqual([table.split()[1].rstrip(",") for table in tables], SCHEMES)
        for table in tables:
            self.assertEqual(len(re.findall(r"(?m)^\*", table)), 1, table)

    def test_explain_json(self):
        done = self.run_fp8("explain", "--shape", "1x256x256", "--shape", "64x100x36", "--scheme", "block", "--json")
        cases = json.loads(done.stdout)["cases"]
        self.assertEqual([case["shape"] for case in cases], ["1x256x256", "64x100x36"])
        for case in cases:
            self.assertEqual((case["scheme"], case["activation"]), ("block", "dynamic"))
            self.assertEqual(sum(c["chosen"] for c in case["candidates"]), 1)
            for candidate in case["candidates"]:
                self.assertTrue(candidate["kernel"] and candidate["isa"] and candidate["reason"])

    def test_explain_follows_the_cap(self):
        done = self.run_fp8("explain", "--shape", "1x256x256", "--json", env={"FP8_CPU_ISA": "scalar"})
        for case in json.loads(done.stdout)["cases"]:
            chosen = [c for c in case["candidates"] if c["chosen"]]
            self.assertEqual([c["isa"] for c in chosen], ["scalar"])

    def test_explain_activations(self):
        for name in ["none", "dynamic", "static", "codes"]:
            done = self.run_fp8("explain", "--shape", "4x64x64", "--activation", name, "--json")
            self.assertEqual([case["activation"] for case in json.loads(done.stdout)["cases"]], [name] * len(SCHEMES))

    def test_bench_linear_lines(self):
        lines = self.lines("linear", "--shape", "2x64x96", kind="linear")
        self.assertEqual([fields(line)["scheme"] for line in lines], SCHEMES)
        for line in lines:
            found = fields(line)
            self.assertEqual([key for key in found if not re.search(r"^(openblas|onednn)-", key)], LINEAR)
            self.assertEqual(found["shape"], "2x64x96")
            self.assertGreaterEqual(float(found["ms"]), float(found["best_ms"]))
            self.assertGreater(float(found["best_ms"]), 0)
            self.assertGreaterEqual(int(found["rounds"]), 5)
            flops = 2 * 2 * 64 * 96 / (float(found["ms"]) * 1e-3) * 1e-9
            self.assertAlmostEqual(float(found["GFLOP/s"]) / flops, 1, delta=0.01)

    def test_bench_ends_quietly_when_nobody_reads(self):
        program = [command.FP8, "bench", "linear", "--shape", "2x64x96", *QUICK]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as bench:
            self.assertTrue(bench.stdout.readline().startswith(b"bench machine "))
            bench.stdout.close()
            self.assertEqual(bench.stderr.read(), b"")

    def test_bench_names_the_kernel_of_explain(self):
        line = fields(self.lines("linear", "--shape", "16x64x128", "--scheme", "block", kind="linear")[0])
        done = self.run_fp8("explain", "--shape", "16x64x128", "--scheme", "block", "--json")
        chosen = [c for c in json.loads(done.stdout)["cases"][0]["candidates"] if c["chosen"]][0]
        self.assertEqual((line["kernel"], line["isa"]), (chosen["kernel"], chosen["isa"]))

    def test_bench_says_which_peers_are_absent(self):
        text = self.run_fp8("bench", "linear", "--shape", "1x16x16", "--scheme", "gemm", *QUICK).stdout
        peers = re.findall(r"(?m)^bench peer name=(\S+): (.+)$", text)
        self.assertEqual([name for name, _ in peers], ["openblas-f32", "openblas-bf16", "onednn-f32", "onednn-bf16"])
        for name, state in peers:
            self.assertTrue(state == "timed" or "lib" in state, state)
            self.assertEqual(state == "timed", f"{name}_ratio=" in text)

    def test_bench_of_nothing(self):
        for shape in ["0x0x0", "0x16x32", "1x0x32", "1x16x0"]:
            self.assertEqual(len(self.lines("linear", "--shape", shape, kind="linear")), len(SCHEMES))
            self.assertEqual({fields(line)["shape"] for line in self.lines("quantize", "--shape", shape, kind="quantize")}, {shape})

    def test_bench_quantize_lines(self):
        lines = self.lines("quantize", "--shape", "3x64x256", kind="quantize")
        self.assertEqual([(fields(line)["scheme"], fields(line)["what"]) for line in lines],
                         [("w8a16", "w")] + [(s, what) for s in ("tensor", "channel", "block", "mxfp8") for what in "xw"])
        for line in lines:
            self.assertEqual(list(fields(line)), QUANTIZE)
        self.assertEqual(fields(lines[1])["matrix"], "3x256")
        self.assertEqual(fields(lines[2])["matrix"], "64x256")

    def test_bench_json(self):
        for subject, keys in [("linear", LINEAR), ("quantize", QUANTIZE)]:
            done = self.run_fp8("bench", subject, "--shape", "5x32x64", "--json", *QUICK)
            document = json.loads(done.stdout)
            self.assertEqual(list(document), ["machine", "peers", "cases"])
            self.assertGreater(document["machine"]["read_GB/s"], 0)
            for case in document["cases"]:
                self.assertLessEqual(set(keys), set(case))

    def test_shape_files(self):
        (self.folder / "good.txt").write_text("# M N K\n\n1 16 32 # a comment\n\t2  16\t32\r\n8 48 64")
        shapes = lambda *more: [fields(line)["shape"] for line in self.lines(
            "linear", "--scheme", "gemm", "--shapes", "good.txt", *more, kind="linear")]
        self.assertEqual(shapes(), ["1x16x32", "2x16x32", "8x48x64"])
        self.assertEqual(shapes("--m", "4,7"), ["4x16x32", "4x48x64", "7x16x32", "7x48x64"])
        self.assertEqual(shapes("--shape", "1x2x3")[0], "1x2x3")

    def test_bad_shape_files(self):
        for text, says in [("1 2 3\n1 2\n", ["line 2", "'1 2'"]), ("1 2 3 4\n", ["line 1"]), ("a b c\n", ["line 1"]),
                           ("1 2 99999999999999999999\n", ["line 1"]), ("1 -2 3\n", ["line 1"]), ("1 2 3" + " " * 300, ["line 1"]),
                           ("# nothing\n", ["no shape"]), ("1x2x3\n", ["line 1"])]:
            (self.folder / "bad.txt").write_text(text)
            self.fails("bench", "linear", "--shapes", "bad.txt", code=3, says=["bad.txt", *says])
        self.fails("bench", "linear", "--shapes", "none.txt", code=3, says=["none.txt", "open"])
        self.fails("bench", "linear", "--shapes", ".", code=4, says=[".", "read"])

    def test_bad_command_lines(self):
        for arguments, says in [
            (["explain"], ["--shape"]),
            (["explain", "--shape", "12x34"], ["12x34", "MxNxK"]),
            (["explain", "--shape", "1x2x3", "--scheme", "blok"], ["blok", "block"]),
            (["explain", "--shape", "1x2x3", "--activation", "x"], ["'x'", "dynamic"]),
            (["bench"], ["linear", "quantize"]),
            (["bench", "convert"], ["linear", "quantize"]),
            (["bench", "linear", "--scheme", "hf-block"], ["hf-block"]),
            (["bench", "linear", "--m", "1,,2"], ["--m", "1,,2"]),
            (["bench", "linear", "--m", "1,x"], ["--m", "1,x"]),
            (["bench", "linear", "--m", "-1"], ["--m", "-1"]),
            (["bench", "linear", "--seconds", "0"], ["--seconds", "0"]),
            (["bench", "linear", "--numerics", "vllm"], ["bench linear", "--numerics", "bench quantize"]),
            (["bench", "linear", "--dtype", "f16"], ["bench linear", "--dtype", "bench quantize"]),
        ]:
            self.fails(*arguments, code=2, says=says)

    def test_doctor_levels_and_peaks(self):
        levels = re.search(r"(?m)^levels: (.+)$", self.run_fp8("doctor").stdout).group(1).split(", ")
        self.assertEqual([level.split()[0] for level in levels], ["scalar", "avx2", "avx512", "avx512_bf16", "amx"])
        self.assertEqual([level.split()[1] for level in levels].count("used"), 1)
        usable = [level.split()[0] for level in levels if level.split()[1] in ("yes", "used")]
        document = json.loads(self.run_fp8("doctor", "--peaks", "--json").stdout)
        self.assertEqual([peak["name"] for peak in document["peaks"]], ["read", *usable[1:]])
        for peak in document["peaks"]:
            self.assertGreater(peak["value"], 0)
        text = self.run_fp8("doctor", "--peaks", env={"FP8_CPU_ISA": "scalar"}).stdout
        self.assertEqual(re.findall(r"(?m)^peak (\w+): ", text), ["read"])
        self.assertIn("scalar used", text)


if __name__ == "__main__":
    command.main()
