# SPDX-License-Identifier: Apache-2.0
"""What the tests of the command line share: the program, scratch folders, and small checkpoints written with the standard
library alone. The program is named by the environment variable FP8 (default build/release/cli/fp8)."""

import json
import os
import pathlib
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
FP8 = os.path.abspath(os.environ.get("FP8", ROOT / "build/release/cli/fp8"))
BYTES = {"F32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I64": 8}


def safetensors(tensors, metadata=None):
    """The bytes of a file with tensors {name: (dtype, shape, data)}."""
    header, data = {}, b""
    if metadata is not None:
        header["__metadata__"] = metadata
    for name, (dtype, shape, payload) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(payload)]}
        data += payload
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + data


def bf16(rows, columns, seed=1):
    """A bf16 matrix of varied finite values in about +-1."""
    words = bytearray()
    state = seed
    for _ in range(rows * columns):
        state = (state * 1103515245 + 12345) & 0x7FFFFFFF
        words += struct.pack("<H", (state >> 16 & 0x8000) | 0x3C00 + (state >> 8 & 0x3FF))
    return ("BF16", [rows, columns], bytes(words))


def norm(size):
    return ("BF16", [size], struct.pack("<H", 0x3F80) * size)


def llama(layers=2, hidden=128):
    """The tensors of a small Llama."""
    tensors = {"model.embed_tokens.weight": bf16(64, hidden)}
    for i in range(layers):
        prefix = f"model.layers.{i}."
        tensors[prefix + "self_attn.q_proj.weight"] = bf16(hidden, hidden, 10 * i + 2)
        tensors[prefix + "mlp.up_proj.weight"] = bf16(2 * hidden, hidden, 10 * i + 3)
        tensors[prefix + "mlp.down_proj.weight"] = bf16(hidden, 2 * hidden, 10 * i + 4)
        tensors[prefix + "input_layernorm.weight"] = norm(hidden)
    tensors["model.norm.weight"] = norm(hidden)
    tensors["lm_head.weight"] = bf16(64, hidden, 5)
    return tensors


CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16",
          "tie_word_embeddings": False}


class Case(unittest.TestCase):
    """A test with a scratch folder and the means to run the program in it."""

    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fp8-cli-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def checkpoint(self, name="model", tensors=None, config=CONFIG):
        """A directory with one safetensors file and a config.json."""
        path = self.folder / name
        path.mkdir()
        data = safetensors(llama() if tensors is None else tensors, {"format": "pt"})
        (path / "model.safetensors").write_bytes(data)
        (path / "config.json").write_text(json.dumps(config))
        return path

    def sharded(self, name, shards, weight_map=None):
        """A directory of several files and an index; weight_map {tensor: number of its file} replaces the true one."""
        path = self.folder / name
        path.mkdir()
        file = lambda i: f"model-{i + 1:05}-of-{len(shards):05}.safetensors"
        index = {}
        for i, tensors in enumerate(shards):
            (path / file(i)).write_bytes(safetensors(tensors, {"format": "pt"}))
            index.update({tensor: file(i) for tensor in tensors})
        if weight_map is not None:
            index = {tensor: file(i) for tensor, i in weight_map.items()}
        total = sum(len(t[2]) for tensors in shards for t in tensors.values())
        (path / "model.safetensors.index.json").write_text(
            json.dumps({"metadata": {"total_size": total}, "weight_map": index}))
        (path / "config.json").write_text(json.dumps(CONFIG))
        return path

    def run_fp8(self, *arguments, code=0, env=None, **options):
        """Runs fp8 and checks its exit code; returns the finished process, its output as text."""
        done = subprocess.run([FP8, *map(str, arguments)], cwd=self.folder, text=True, errors="surrogateescape",
                              stdout=options.pop("stdout", subprocess.PIPE),
                              stderr=options.pop("stderr", subprocess.PIPE),
                              env={**os.environ, **(env or {})}, timeout=300, **options)
        self.assertEqual(done.returncode, code,
                         f"fp8 {' '.join(map(str, arguments))}\nstdout: {done.stdout}\nstderr: {done.stderr}")
        return done

    def fails(self, *arguments, code, says):
        """Runs fp8, which must fail with this code and one line that holds each of the words `says`."""
        done = self.run_fp8(*arguments, code=code)
        errors = [line for line in done.stderr.splitlines() if not line.startswith("fp8: warning: ")]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertTrue(errors[0].startswith("fp8: "), errors[0])
        for word in says:
            self.assertIn(word, errors[0])
        return errors[0]

    def assert_no_output(self, name="out"):
        self.assertFalse((self.folder / name).exists())
        self.assertFalse((self.folder / (name + ".partial")).exists())


def main():
    if not os.access(FP8, os.X_OK):
        sys.exit(f"{FP8}: no program; set FP8")
    unittest.main(verbosity=1)
