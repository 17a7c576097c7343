#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Weights that are not stored as [out, in] matrices of their own, and runs in parts, from end to end: quantize, verify
against the source, dequantize."""

import contextlib
import json
import os
import signal
import struct
import subprocess
import time

import command

GPT2 = {"architectures": ["GPT2LMHeadModel"], "model_type": "gpt2", "n_embd": 128, "n_head": 2, "n_layer": 1,
        "torch_dtype": "bfloat16"}

QWEN3_MOE = {**command.CONFIG, "architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe"}


def values(payload):
    """Real values of bf16 bytes."""
    return [struct.unpack("<f", b"\0\0" + payload[i:i + 2])[0] for i in range(0, len(payload), 2)]


def read(path):
    """The tensors {name: (dtype, shape, data)} of a file."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8:8 + size])
    header.pop("__metadata__", None)
    data = data[8 + size:]
    return {name: (t["dtype"], t["shape"], data[slice(*t["data_offsets"])]) for name, t in header.items()}


class Layouts(command.Case):
    def there_and_back(self, tensors, config, *options):
        """Returns the quantized tensors and those dequantized again."""
        self.checkpoint(tensors=tensors, config=config)
        self.run_fp8("quantize", "model", "-o", "out", *options, "-q")
        self.run_fp8("verify", "out", "--against", "model", "-q")
        self.run_fp8("dequantize", "out", "-o", "back", "-q")
        return read(self.folder / "out/model.safetensors"), read(self.folder / "back/model.safetensors")

    def assert_close(self, before, after, name):
        """e4m3 keeps 4 bits: half of the last one, 2^-4 of the value, and the rounding of bf16."""
        self.assertEqual(before[:2], after[:2], name)
        for a, b in zip(values(before[2]), values(after[2])):
            self.assertLessEqual(abs(a - b), abs(a) / 15, name)

    def test_conv1d(self):
        """GPT-2 stores [in, out]. Each block of columns has its own magnitude, so that mixing up the axes loses values."""
        columns, weight = 384, "transformer.h.0.attn.c_attn.weight"
        data = bytearray()
        for i, value in enumerate(values(command.bf16(128, columns)[2])):
            data += struct.pack("<f", value * 2.0 ** (i % columns // 128 * 12 - 12))[2:]
        other = "transformer.h.0.mlp.c_fc.weight"
        tensors = {"transformer.wte.weight": command.bf16(64, 128), weight: ("BF16", [128, columns], bytes(data)),
                   "transformer.h.0.attn.c_attn.bias": command.norm(columns), other: command.bf16(128, 512, 7)}
        out, back = self.there_and_back(tensors, GPT2, "--for", "transformers")
        self.assertEqual(out[weight][:2], ("F8_E4M3", [128, columns]))
        self.assertEqual(out[weight + "_scale_inv"][:2], ("F32", [1, columns // 128]))
        for name in (weight, other):
            self.assert_close(tensors[name], back[name], name)
        for name in ("transformer.wte.weight", "transformer.h.0.attn.c_attn.bias"):
            self.assertEqual(tensors[name], back[name])

    def test_experts(self):
        """A 3-D tensor is one matrix an expert, each with scales of its own."""
        experts, rows, columns = 4, 256, 128
        one = values(command.bf16(rows, columns)[2])
        data = b"".join(struct.pack("<f", value * 2.0 ** (6 * e - 9))[2:] for e in range(experts) for value in one)
        name = "model.layers.0.mlp.experts.down_proj"
        tensors = {**command.llama(1), name: ("BF16", [experts, rows, columns], data)}
        out, back = self.there_and_back(tensors, QWEN3_MOE)
        self.assertEqual(out[name][:2], ("F8_E4M3", [experts, rows, columns]))
        dtype, shape, scales = out[name + "_scale_inv"]
        self.assertEqual((dtype, shape), ("F32", [experts, rows // 128, columns // 128]))
        scales = struct.unpack(f"<{len(scales) // 4}f", scales)
        codes, size = out[name][2], rows * columns
        for e in range(1, experts): # the same values but for a power of two
            self.assertEqual([s * 2.0 ** (6 * e) for s in scales[:2]], list(scales[2 * e:2 * e + 2]))
            self.assertEqual(codes[:size], codes[e * size:(e + 1) * size])
        self.assert_close(tensors[name], back[name], name)

    def test_tied_weights_stay_tied(self):
        """The head that is the embedding is in no file, and the config goes on saying so."""
        tensors = command.llama()
        del tensors["lm_head.weight"]
        out, back = self.there_and_back(tensors, {**command.CONFIG, "tie_word_embeddings": True})
        for result, folder in ((out, "out"), (back, "back")):
            self.assertNotIn("lm_head.weight", result)
            self.assertEqual(result["model.embed_tokens.weight"], tensors["model.embed_tokens.weight"])
            self.assertIs(json.loads((self.folder / folder / "config.json").read_text())["tie_word_embeddings"], True)

    def kill_while_running(self, *arguments, sign):
        """Kills fp8 once the file `sign` is there; until then it waits to write progress to a pipe that is full."""
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        with contextlib.suppress(BlockingIOError):
            while True:
                os.write(writer, b"x")
        os.set_blocking(writer, True)
        process = subprocess.Popen([command.FP8, *arguments, "--progress", "json"], cwd=self.folder, stderr=writer)
        os.close(writer)
        deadline = time.monotonic() + 60
        while not sign.exists() and time.monotonic() < deadline:
            time.sleep(0.001)
        process.kill()
        self.assertEqual(process.wait(), -signal.SIGKILL, "it ended before it could be killed")
        os.close(reader)
        self.assertTrue(sign.exists())

    def test_part_that_is_killed(self):
        """Nobody publishes while a part is missing; who ends last does, with the bytes of the undivided run."""
        shards = [{name: t for name, t in command.llama(4).items() if part in name}
                  for part in ("embed", "_proj", "norm", "lm_head")]
        self.sharded("model", shards)
        job = ("quantize", "model", "-q", "-o")
        self.run_fp8(*job, "whole")
        for part in (1, 3, 4):
            self.run_fp8(*job, "out", "--shard", f"{part}/4")
        self.kill_while_running(*job, "out", "--shard", "2/4", sign=self.folder / "out.partial/journal.2")
        self.assertFalse((self.folder / "out").exists())
        self.fails("quantize", "model", "-o", "out", "--shard", "2/4", code=2, says=["--resume"])
        for part in (1, 3, 4): # done long ago, and still not enough
            self.run_fp8(*job, "out", "--shard", f"{part}/4", "--resume")
            self.assertFalse((self.folder / "out").exists())
        self.run_fp8(*job, "out", "--shard", "2/4", "--resume")
        self.assertFalse((self.folder / "out.partial").exists())
        files = lambda name: {p.name: p.read_bytes() for p in (self.folder / name).iterdir()}
        self.assertEqual(files("whole"), files("out"))


if __name__ == "__main__":
    command.main()
