#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of whole runs, as the kernel saw it (the largest resident set of the process): the default cap and a smaller
one hold for tensors that are larger than either, and for a header of 100 MB. The inputs are holes of sparse files.
With FP8_TEST_LONG=1 the header's tests run, without it the others."""

import json
import os
import re
import struct
import subprocess
import unittest

import command

MIB = 1 << 20
LONG = os.environ.get("FP8_TEST_LONG") == "1"
DEFAULT_CAP = 256
SMALL, SMALL_CAP = "64MiB", 64

# Two of them larger than either cap: one weight of 256 MiB, experts of 128 MiB.
MODEL = {
    "model.embed_tokens.weight": [16384, 1024],
    "model.layers.0.self_attn.q_proj.weight": [2048, 1024],
    "model.layers.0.mlp.down_proj.weight": [1024, 131072],
    "model.layers.0.mlp.experts.gate_up_proj": [16, 4096, 1024],
    "model.layers.0.input_layernorm.weight": [1024],
    "lm_head.weight": [16384, 1024],
}


def product(shape):
    n = 1
    for size in shape:
        n *= size
    return n


class Peak(command.Case):
    def sparse(self, tensors):
        """A checkpoint of bf16 zeros that occupy no disk; tensors: pairs of name and shape, never held as a whole, because
        the peak of a child begins with that of its parent."""
        path = self.folder / "model"
        path.mkdir()
        (path / "config.json").write_text(json.dumps(command.CONFIG))
        with open(path / "model.safetensors", "wb") as file:
            file.write(bytes(8) + b'{"__metadata__":{"format":"pt"}')
            end = 0
            for name, shape in tensors:
                begin, end = end, end + 2 * product(shape)
                entry = json.dumps({"dtype": "BF16", "shape": shape, "data_offsets": [begin, end]}, separators=(",", ":"))
                file.write(f',"{name}":{entry}'.encode())
            file.write(b"}")
            file.write(b" " * (-file.tell() % 8))
            head = file.tell()
            file.seek(0)
            file.write(struct.pack("<Q", head - 8))
            file.truncate(head + end)
        return head

    def peak(self, *arguments):
        """Runs fp8 to its end and returns its peak in MiB."""
        with open(self.folder / "stderr", "w+") as errors:
            process = subprocess.Popen([command.FP8, *arguments], cwd=self.folder, stdout=subprocess.DEVNULL, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            errors.seek(0)
            self.assertEqual(process.returncode, 0, f"{arguments}: {errors.read()}")
        mib = usage.ru_maxrss * 1024 / MIB
        print(f"{mib:7.1f} MiB  fp8 {' '.join(arguments)}")
        self.assertGreater(mib, 2)
        return mib

    def within(self, cap, *arguments):
        self.assertLessEqual(self.peak(*arguments), cap, arguments)

    @unittest.skipIf(LONG, "done by the other half")
    def test_default_cap(self):
        self.sparse(MODEL.items())
        self.within(DEFAULT_CAP, "quantize", "model", "-o", "out")
        self.within(DEFAULT_CAP, "verify", "out", "--against", "model")
        self.within(DEFAULT_CAP, "inspect", "out")
        self.within(DEFAULT_CAP, "convert", "out", "-o", "other", "--scheme", "ct-channel", "-j", "32")

    @unittest.skipIf(LONG, "done by the other half")
    def test_small_cap(self):
        self.sparse(MODEL.items())
        for scheme in ("hf-block", "hf-tensor"): # one pass and two
            self.within(SMALL_CAP, "quantize", "model", "-o", "out", "--force", "--scheme", scheme, "--max-memory", SMALL)
        self.within(SMALL_CAP, "dequantize", "out", "-o", "back", "--max-memory", SMALL)

    @unittest.skipUnless(LONG, "FP8_TEST_LONG is not 1")
    def test_header_of_100_megabytes(self):
        names = (f"model.layers.{i // 256}.mlp.experts.{i % 256}.norm.weight" for i in range(900000))
        head = self.sparse((name, [2, 2]) for name in names)
        self.assertTrue(99e6 < head - 8 <= 100e6, head)
        self.within(DEFAULT_CAP, "inspect", "model")
        self.within(DEFAULT_CAP, "quantize", "model", "-o", "out", "--dry-run")
        self.within(DEFAULT_CAP, "quantize", "model", "-o", "out")
        self.within(DEFAULT_CAP, "verify", "out")
        plan = self.run_fp8("quantize", "model", "-o", "x", "--dry-run").stdout
        promise = int(re.search(r"memory: at most (\d+) MiB", plan)[1])
        peak = self.peak("quantize", "model", "-o", "out", "--force")
        self.assertTrue(peak <= promise < 1.25 * peak, promise)


if __name__ == "__main__":
    command.main()
