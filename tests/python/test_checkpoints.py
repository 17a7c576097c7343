# SPDX-License-Identifier: Apache-2.0
"""Checkpoints from Python, with nothing but the standard library: the results are the command line's, byte for byte.

    FP8=build/release/cli/fp8 FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python:tests/cli \\
        python3 tests/python/test_checkpoints.py
"""
import json
import os
import signal
import struct
import subprocess
import sys
import unittest

import command

import fp8


class Checkpoints(command.Case):
    def bytes_in(self, name):
        return {str(file.relative_to(self.folder / name)): file.read_bytes() for file in (self.folder / name).rglob("*")}

    def test_no_other_package_was_needed(self):
        self.assertFalse({"numpy", "torch"} & set(sys.modules))

    def test_quantize_is_the_command_lines(self):
        source = self.checkpoint()
        self.run_fp8("quantize", "model", "-o", "by-command", "--scheme", "ct-channel", "--keep", "*.down_proj", "-q")
        done = fp8.quantize_checkpoint(source, self.folder / "by-library", "ct-channel", keep=["*.down_proj"])
        self.assertEqual(self.bytes_in("by-command"), self.bytes_in("by-library"))
        actions = {tensor.name: tensor.action for tensor in done.tensors}
        self.assertEqual(actions["model.layers.0.mlp.up_proj.weight"], "quantize")
        self.assertEqual(actions["model.layers.0.mlp.down_proj.weight"], "keep")
        self.assertLess(done.bytes_out, done.bytes_in)

    def test_there_and_back_and_across(self):
        source = self.checkpoint()
        fp8.quantize_checkpoint(source, self.folder / "a")
        fp8.dequantize_checkpoint(self.folder / "a", self.folder / "b", "float32")
        fp8.convert_checkpoint(self.folder / "a", self.folder / "c", "ct-block")
        self.assertEqual([fp8.inspect(self.folder / name).dialect for name in "abc"], ["hf-block", "none", "ct-block"])
        self.assertEqual({t.dtype for t in fp8.inspect(self.folder / "b").tensors if "proj" in t.name}, {"F32"})

    def test_dry_run_writes_nothing(self):
        plan = fp8.quantize_checkpoint(self.checkpoint(), self.folder / "out", dry_run=True)
        self.assertFalse((self.folder / "out").exists())
        self.assertEqual(len(plan.tensors), 11)
        self.assertGreater(plan.peak_memory_bytes, 0)

    def test_verify(self):
        source = self.checkpoint()
        fp8.quantize_checkpoint(source, self.folder / "out")
        good = fp8.verify(self.folder / "out", against=source, engine="vllm")
        self.assertTrue(good.ok)
        self.assertEqual((good.tensors, good.quantized), (17, 6))
        self.assertGreater(good.worst_sqnr_db, 25)
        file = self.folder / "out/model.safetensors"
        data = bytearray(file.read_bytes())
        file.write_bytes(data.replace(b"up_proj.weight_scale_inv", b"up_proj.weight_scale_inw"))
        bad = fp8.verify(self.folder / "out")
        self.assertFalse(bad.ok)
        self.assertIn("up_proj", "".join(f.tensor + f.message for f in bad.findings if f.is_error))

    def test_inspect(self):
        found = fp8.inspect(self.checkpoint())
        tensor = next(t for t in found.tensors if t.name == "model.layers.1.mlp.up_proj.weight")
        self.assertEqual((tensor.dtype, tensor.shape, tensor.bytes), ("BF16", (256, 128), 65536))
        self.assertEqual(os.path.basename(tensor.file), "model.safetensors")
        self.assertEqual((found.dialect, found.warnings), ("none", ()))

    def test_progress(self):
        steps = []
        fp8.quantize_checkpoint(self.checkpoint(), self.folder / "out", progress=steps.append)
        self.assertEqual((steps[-1].bytes_done, steps[-1].tensors_done), (steps[-1].bytes_total, 11))

    def test_an_exception_in_progress_stops_and_can_be_resumed(self):
        source = self.checkpoint()

        def stop(_step):
            raise KeyboardInterrupt

        with self.assertRaises(KeyboardInterrupt):
            fp8.quantize_checkpoint(source, self.folder / "out", progress=stop)
        if not (self.folder / "out").exists():  # it was the last step otherwise
            self.assertTrue((self.folder / "out.partial").exists())
            fp8.quantize_checkpoint(source, self.folder / "out", resume=True)
        self.assertTrue(fp8.verify(self.folder / "out", against=source).ok)

    def long_checkpoint(self):
        """A matrix that takes a while."""
        (self.folder / "long").mkdir()
        with open(self.folder / "long/model.safetensors", "wb") as file:
            header = json.dumps({"layer.weight": {"dtype": "BF16", "shape": [4096, 8192], "data_offsets": [0, 2**26]}}).encode()
            file.write(struct.pack("<Q", len(header)) + header + bytes(2**26))
        return self.folder / "long"

    def test_a_signal_is_raised_at_once(self):
        def late(*_):
            raise TimeoutError("late")

        source = self.long_checkpoint()
        fp8.quantize_checkpoint(source, self.folder / "whole", "ct-tensor")
        self.addCleanup(signal.signal, signal.SIGALRM, signal.signal(signal.SIGALRM, late))
        calls = (lambda: fp8.quantize_checkpoint(source, self.folder / "out", "ct-tensor"),
                 lambda: fp8.quantize_checkpoint(source, self.folder / "out", "ct-tensor", progress=lambda step: None,
                                                 resume=True),
                 lambda: fp8.verify(self.folder / "whole", against=source))
        for call in calls:
            with self.assertRaisesRegex(TimeoutError, "late"):
                signal.setitimer(signal.ITIMER_REAL, 0.01)
                call()
        fp8.quantize_checkpoint(source, self.folder / "out", "ct-tensor", resume=True)
        self.assertEqual(self.bytes_in("out"), self.bytes_in("whole"))

    def test_arguments_that_c_would_take_for_others(self):
        source, out = self.checkpoint(), self.folder / "out"
        cases = [
            (ValueError, "NUL", lambda: fp8.quantize_checkpoint(source, str(out) + "\0more")),
            (ValueError, "NUL", lambda: fp8.inspect(str(source) + "\0more")),
            (ValueError, "max_memory=-1", lambda: fp8.quantize_checkpoint(source, out, max_memory=-1)),
            (ValueError, "max_memory=1180", lambda: fp8.quantize_checkpoint(source, out, max_memory=2**70)),
            (ValueError, "shard=4294967297", lambda: fp8.quantize_checkpoint(source, out, shard=(2**32 + 1, 2))),
            (ValueError, "tp=-1", lambda: fp8.verify(source, tp=-1)),
            (TypeError, "keep must be a list", lambda: fp8.quantize_checkpoint(source, out, keep="*")),
            (TypeError, "expected text, got 5", lambda: fp8.quantize_checkpoint(source, out, only=[5])),
        ]
        for kind, words, call in cases:
            with self.subTest(words), self.assertRaisesRegex(kind, words):
                call()
        self.assertEqual([file.name for file in self.folder.iterdir()], [source.name])

    def test_bad_input(self):
        source = self.checkpoint()
        cases = [
            (FileNotFoundError, "nowhere", lambda: fp8.quantize_checkpoint(self.folder / "nowhere", self.folder / "x")),
            (NotImplementedError, "no-such", lambda: fp8.quantize_checkpoint(source, self.folder / "x", "no-such")),
            (ValueError, "nothing-so", lambda: fp8.quantize_checkpoint(source, self.folder / "x", keep=["nothing-so"])),
            (FileExistsError, "taken", lambda: fp8.quantize_checkpoint(source, self.folder / "taken")),
            (TypeError, "float3", lambda: fp8.dequantize_checkpoint(source, self.folder / "x", "float3")),
            (TypeError, "colour", lambda: fp8.quantize_checkpoint(source, self.folder / "x", colour="red")),
            (MemoryError, "memory", lambda: fp8.quantize_checkpoint(source, self.folder / "x", max_memory=1)),
        ]
        (self.folder / "taken").mkdir()
        (self.folder / "broken").mkdir()
        (self.folder / "broken/model.safetensors").write_bytes(b"\x10\0\0\0\0\0\0\0{")
        cases.append((ValueError, "broken", lambda: fp8.inspect(self.folder / "broken")))
        for kind, word, call in cases:
            with self.subTest(word), self.assertRaisesRegex(kind, word):
                call()
        self.assertFalse((self.folder / "x").exists())

    def test_the_module_is_the_command_line(self):
        environment = os.environ | {"FP8_PROGRAM": command.FP8}
        done = subprocess.run([sys.executable, "-m", "fp8", "--version"], capture_output=True, text=True, env=environment,
                              check=True)
        self.assertIn(fp8.__version__, done.stdout)
        bad = subprocess.run([sys.executable, "-m", "fp8", "quantise"], capture_output=True, text=True, env=environment)
        self.assertEqual(bad.returncode, 2)


if __name__ == "__main__":
    unittest.main()
