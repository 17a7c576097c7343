#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Input that is broken, targets that cannot be written: one line that says what, the right exit code, nothing left behind."""

import json
import os
import resource
import struct
import unittest

import command


class BadInput(command.Case):
    def quantize_fails(self, source, *extra, code=3, says=()):
        line = self.fails("quantize", source, "-o", "out", *extra, code=code, says=says)
        self.assert_no_output()
        return line

    def file(self, name, data):
        (self.folder / name).write_bytes(data)
        return name

    def test_missing(self):
        self.quantize_fails("nowhere", says=["nowhere"])
        (self.folder / "empty").mkdir()
        self.quantize_fails("empty", says=["empty"])

    def test_config_that_is_no_json(self):
        (self.checkpoint() / "config.json").write_text('{"a": ')
        self.quantize_fails("model", says=["model: config.json", "byte 6"])

    def test_no_tensors(self):
        self.checkpoint(tensors={})
        self.quantize_fails("model", says=["model", "no tensor"])

    def test_scaled_integers_in_an_fp8_model(self):
        """Codes whose dtype was lost must not be carried over without their scales."""
        tensors = {"a.weight": ("U8", [8, 8], bytes(64)), "a.weight_scale_inv": ("F32", [1, 1], b"\0\0\x80?"),
                   "b.weight": ("F8_E4M3", [8, 8], bytes(64)), "b.weight_scale_inv": ("F32", [1, 1], b"\0\0\x80?")}
        quant = {"quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [128, 128]}
        self.checkpoint(tensors=tensors, config={"model_type": "llama", "quantization_config": quant})
        self.fails("dequantize", "model", "-o", "out", code=3, says=["a.weight_scale_inv"])
        self.assert_no_output()

    def test_bad_headers(self):
        good = command.safetensors(command.llama())
        for name, data in {
            "short": b"abc",
            "long": struct.pack("<Q", 1 << 62) + good[8:],
            "notjson": struct.pack("<Q", 8) + b"not json",
            "lfs": b"version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n",
            "cut": good[:-1],
            "trailing": good + b"x",
        }.items():
            for verb in (["inspect"], ["quantize", "-o", "out"], ["dequantize", "-o", "out"]):
                self.fails(*verb, self.file(name + ".safetensors", data), code=3, says=[name + ".safetensors"])
        self.assert_no_output()

    def test_the_index(self):
        a, b = {"a.weight": command.bf16(8, 8)}, {"b.weight": command.bf16(8, 8)}
        phantom = self.sharded("phantom", [a, b], {"a.weight": 0, "b.weight": 1, "c.weight": 1})
        self.quantize_fails(phantom, says=["c.weight"])
        twice = self.sharded("twice", [a, {**a, **b}])
        index = twice / "model.safetensors.index.json"
        index.write_text(index.read_text().replace('"a.weight"', '"b.weight"'))
        self.quantize_fails(twice, says=["b.weight"])
        index.unlink()
        self.quantize_fails(twice, says=["a.weight"])
        missing = self.sharded("missing", [a, b])
        (missing / "model-00002-of-00002.safetensors").unlink()
        self.quantize_fails(missing, says=["model-00002-of-00002.safetensors"])
        broken = self.sharded("broken", [a, b])
        (broken / "model.safetensors.index.json").write_text("{")
        self.quantize_fails(broken, says=["index.json"])

    def test_unknown_dtype(self):
        data = command.safetensors({"a.weight": command.bf16(4, 4)}).replace(b"BF16", b"BF17")
        self.quantize_fails(self.file("x.safetensors", data), says=["a.weight", "BF17"])

    def test_absurd_sizes(self):
        data = command.safetensors({"a.weight": command.bf16(4, 4)})
        huge = data.replace(b"[4, 4]", b"[9223372036854775807, 4]")
        huge = struct.pack("<Q", len(huge) - 8 - 32) + huge[8:]
        self.quantize_fails(self.file("x.safetensors", huge), says=["a.weight"])

    def test_quantized_already(self):
        self.checkpoint()
        self.run_fp8("quantize", "model", "-o", "fp8", "-q")
        line = self.quantize_fails("fp8", says=["fp8"])
        self.assertIn("convert", line)

    def test_nan(self):
        tensors = command.llama()
        name = "model.layers.1.mlp.up_proj.weight"
        dtype, shape, data = tensors[name]
        data = data[: 2 * (3 * 128 + 5)] + struct.pack("<H", 0x7FC0) + data[2 * (3 * 128 + 6):]
        tensors[name] = (dtype, shape, data)
        self.checkpoint(tensors=tensors)
        self.quantize_fails("model", says=[name, "3", "5"])
        done = self.run_fp8("quantize", "model", "-o", "out", "--nan", "keep")
        self.assertRegex(done.stderr, "(?m)^fp8: warning: .*" + name)
        tensors = {t["name"]: t for t in json.loads(self.run_fp8("inspect", "out", "--json").stdout)["tensors"]}
        self.assertEqual(tensors[name]["dtype"], "BF16")

    def test_pattern_that_matches_nothing(self):
        self.checkpoint()
        for option in (["--keep", "*.no_such"], ["--only", "re:no_such"], ["--set", "no_such=hf-block"]):
            self.fails("quantize", "model", "-o", "out", *option, code=self.NO_MATCH, says=["no_such"])
        self.fails("quantize", "model", "-o", "out", "--keep", "re:(", code=2, says=["("])
        self.assert_no_output()

    NO_MATCH = 3

    def test_symlink_loop(self):
        os.symlink("loop", self.folder / "loop")
        self.quantize_fails("loop", code=4, says=["loop"])

    @unittest.skipIf(os.geteuid() == 0, "root may write anywhere")
    def test_unwritable_target(self):
        self.checkpoint()
        (self.folder / "locked").mkdir(mode=0o555)
        self.fails("quantize", "model", "-o", "locked/out", code=4, says=["locked"])

    def test_target_in_no_folder(self):
        self.checkpoint()
        self.fails("quantize", "model", "-o", "no/such/out", code=self.NO_FOLDER, says=["no/such"])
        (self.folder / "file").write_text("")
        self.fails("quantize", "model", "-o", "file/out", code=4, says=["file"])

    NO_FOLDER = 4

    def test_not_enough_disk(self):
        """A file system that is full is hard to have; a limit on file sizes is what any user can set."""
        self.checkpoint(tensors=command.llama(layers=8))
        limit = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (65536, 65536))
        done = self.run_fp8("quantize", "model", "-o", "out", code=4, preexec_fn=limit)
        self.assertFalse((self.folder / "out").exists())
        if (self.folder / "out.partial").exists():
            self.assertIn("--resume", done.stderr)
            self.run_fp8("quantize", "model", "-o", "out", "--resume", "-q")
            self.run_fp8("verify", "out", "--against", "model", "-q")

    def test_not_enough_memory(self):
        """A row that is larger than the memory allowed; the file is sparse."""
        columns = 1 << 24
        header = command.safetensors({"model.layers.0.mlp.up_proj.weight": ("F32", [1, columns], b"")})
        header = header[8:].rstrip().replace(b"[0, 0]", b"[0, %d]" % (4 * columns))
        (self.folder / "model").mkdir()
        with open(self.folder / "model/model.safetensors", "wb") as file:
            file.write(struct.pack("<Q", len(header)) + header)
            file.truncate(8 + len(header) + 4 * columns)
        (self.folder / "model/config.json").write_text(json.dumps(command.CONFIG))
        self.quantize_fails("model", "--scheme", "ct-channel", "--max-memory", "1MiB", code=5,
                            says=["model.layers.0.mlp.up_proj.weight", "memory"])


if __name__ == "__main__":
    command.main()
