# SPDX-License-Identifier: Apache-2.0
"""Contexts: on which device, by which file of measured kernels, over the fake driver of tests/cuda; and what is refused.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python tests/python/test_context.py
"""
import copy
import importlib.util
import os
import pathlib
import pickle
import subprocess
import sys
import tempfile
import unittest

import fp8

LIBRARY = pathlib.Path(fp8._c.path).resolve()
FAKE = LIBRARY.parent / "tests/cuda/fake_cuda"
GOOD = "fp8-tuned 1\ndevice NVIDIA H100 80GB HBM3\ndriver 13000\nchannel 256 512 24 gemm_of_tomorrow 4510\n"
COUNTED = "; 0 by the file; 1 lines"  # of GOOD: no version has that kernel


class Refusals(unittest.TestCase):
    def test_devices(self):
        for name in ("gpu", "cuda:", "cuda:-1", "cuda:x", "cuda:12345", "CPU", ""):
            with self.assertRaisesRegex(ValueError, f"invalid device='{name}'; expected cpu, cuda or cuda:N"):
                fp8.Context(device=name)
        self.assertEqual(fp8.Context(device="cpu").device, "cpu")

    def test_a_file_for_the_cpu(self):
        with self.assertRaisesRegex(ValueError, "tuned is some.tuned, but only a GPU has kernels to choose"):
            fp8.Context(tuned="some.tuned")

    def test_copies(self):
        for refused in (pickle.dumps, copy.copy, copy.deepcopy):
            with self.assertRaisesRegex(TypeError, "make another one"):
                refused(fp8.Context())


@unittest.skipUnless(FAKE.exists(), "no fake driver")
class OverTheFakeDriver(unittest.TestCase):
    """It has an H100 and an A100. Each test is a process of its own, which finds that driver by its name."""

    def run_python(self, script):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in (("good", GOOD), ("bad", GOOD + "channel 256 512 0 a 1\n")):
                pathlib.Path(folder, name).write_text(text)
            environment = {"LD_LIBRARY_PATH": str(FAKE), "FP8_LIBRARY": str(LIBRARY),
                           "PYTHONPATH": str(pathlib.Path(fp8.__file__).resolve().parents[1])}
            done = subprocess.run([sys.executable, "-c", HEAD + script], capture_output=True, text=True, cwd=folder,
                                  env=os.environ | environment)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_contexts(self):
        self.run_python("""
for device in ("cuda", "cuda:0", "cuda:1"):
    made = fp8.Context(device=device)
    assert made.device == ("cuda:1" if device == "cuda:1" else "cuda:0") and "file" not in choices(made)
assert counted in choices(fp8.Context(device="cuda", tuned=pathlib.Path("good")))
assert counted in choices(fp8.Context(device="cuda", tuned="good"))
refused(FileNotFoundError, "nowhere", lambda: fp8.Context(device="cuda", tuned="nowhere"))
refused(ValueError, "line 5: M must be", lambda: fp8.Context(device="cuda", tuned="bad"))
refused(ValueError, "line 2: measured on NVIDIA H100", lambda: fp8.Context(device="cuda:1", tuned="good"))
refused(RuntimeError, "7", lambda: fp8.Context(device="cuda:7"))
try:
    import numpy
except ImportError:
    sys.exit()
x = numpy.ones((2, 2), "f4")
refused(ValueError, "on the CPU, the context on cuda:0", lambda: fp8.quantize(x, context=fp8.Context(device="cuda")))
""")

    @unittest.skipUnless(importlib.util.find_spec("torch"), "no torch")
    def test_operators(self):
        self.run_python("""
import torch
from fp8 import ops
first, second = torch.device("cuda", 0), torch.device("cuda", 1)
refused(NotImplementedError, "only a GPU has kernels to choose", lambda: fp8.use_tuned("good", "cpu"))
refused(FileNotFoundError, "nowhere", lambda: fp8.use_tuned("nowhere", first))
refused(ValueError, "line 5: M must be", lambda: fp8.use_tuned("bad", first))
fp8.use_tuned("good", "cuda:0")  # after those that were refused
assert counted in choices(ops.context_of(first))
refused(RuntimeError, "has run on cuda:0 already", lambda: fp8.use_tuned("good", first))
refused(ValueError, "line 2: measured on NVIDIA H100", lambda: fp8.use_tuned(pathlib.Path("good"), second))
assert "file" not in choices(ops.context_of(second)) and ops.context_of(second).device == "cuda:1"
refused(RuntimeError, "has run on cuda:1 already", lambda: fp8.use_tuned("good", second))
refused(RuntimeError, "no device cuda:64", lambda: fp8.use_tuned("good", "cuda:64"))
""")


HEAD = f"""
import pathlib, sys
import fp8
counted = {COUNTED!r}

def choices(context):
    return next(line for line in context.doctor() if line.startswith("choices: "))

def refused(kind, words, call):
    try:
        call()
    except kind as error:
        assert words in str(error), error
    else:
        raise AssertionError(f"{{words}}: nothing was refused")
"""

if __name__ == "__main__":
    unittest.main()
