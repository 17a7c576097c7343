# SPDX-License-Identifier: Apache-2.0
"""Other programs read what we write: safetensors, compressed-tensors and transformers.

Each scheme's output of a small model is loaded by the package that owns the format; the weights it decodes must be
those of `fp8 dequantize`, bit for bit, and the logits those of the dequantized model (activations in high precision)
or near those of the source (activations quantized too).

    .venv/bin/python tests/python/check_readers.py build/release/cli/fp8
"""
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

try:
    import torch
    import compressed_tensors  # noqa: F401 (transformers needs it)
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"skipped: {missing} (script/bootstrap python)")
    sys.exit(77)

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "golden" / "checkpoints"
LINEAR = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
TOKENS = torch.arange(48).reshape(2, 24) % 90

# Relative error of the logits that FP8 activations may add to FP8 weights: e4m3 keeps 3 mantissa bits, so
# one rounding is at most 2^-4 of an element; over a few layers of random weights the norm stays below twice that.
ACTIVATION_ERROR = 2 * 2.0**-4


def fp8(*arguments):
    done = subprocess.run([FP8, *map(str, arguments)], capture_output=True, text=True, check=False)
    if done.returncode:
        raise AssertionError(f"fp8 {arguments}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def tensors(directory):
    out = {}
    for file in sorted(pathlib.Path(directory).glob("*.safetensors")):
        with safe_open(file, "pt") as f:
            out.update({name: f.get_tensor(name) for name in f.keys()})
    return out


def load(directory, dtype=torch.bfloat16):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()


def logits(model):
    with torch.inference_mode():
        return model(TOKENS).logits.float()


def relative(a, b):
    return ((a - b).norm() / b.norm()).item()


class Readers(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.path = pathlib.Path(self.folder.name)

    def quantized(self, source, scheme, engine="transformers", back="bf16"):
        out = self.path / scheme
        fp8("quantize", SOURCES / source, "-o", out, "--scheme", scheme, "--for", engine)
        fp8("dequantize", out, "-o", self.path / "back", "--dtype", back)
        return out, self.path / "back"

    def test_safetensors_sees_every_tensor_with_its_dtype(self):
        out, _ = self.quantized("llama_untied_bf16", "hf-block", "vllm")
        source, got = tensors(SOURCES / "llama_untied_bf16"), tensors(out)
        self.assertEqual(set(source), {n for n in got if not n.endswith("weight_scale_inv")})
        codes = {n for n, t in got.items() if t.dtype == torch.float8_e4m3fn}
        self.assertIn("model.layers.0.self_attn.o_proj.weight", codes)
        self.assertTrue(all(name.split(".")[-2] in LINEAR for name in codes), codes)
        self.assertEqual({n for n in got if n.endswith("_scale_inv")}, {n + "_scale_inv" for n in codes})
        for name, tensor in got.items():
            if name in codes:
                rows, cols = tensor.shape
                scale = got[name + "_scale_inv"]
                self.assertEqual(tuple(scale.shape), (-(-rows // 128), -(-cols // 128)), name)
                self.assertEqual(scale.dtype, torch.float32, name)

    def test_index_and_config_agree_with_the_files(self):
        out, _ = self.quantized("llama_untied_bf16", "ct-channel")
        index = json.loads((out / "model.safetensors.index.json").read_text())
        got = tensors(out)
        self.assertEqual(set(index["weight_map"]), set(got))
        total = sum(t.numel() * t.element_size() for t in got.values())
        self.assertEqual(index["metadata"]["total_size"], total)
        config = json.loads((out / "config.json").read_text())["quantization_config"]
        kept = {n[: -len(".weight")] for n, t in got.items() if n == "lm_head.weight"}
        self.assertEqual(set(config["ignore"]) & {"lm_head"}, kept)

    def check_compressed_tensors(self, source, scheme, activations, dtype="f32"):
        """In float32: a bfloat16 model would have its fp32 scales rounded to bfloat16 by the loader."""
        kind = {"f32": torch.float32, "bf16": torch.bfloat16}[dtype]
        out, back = self.quantized(source, scheme, back=dtype)
        model, reference = load(out, kind), load(back, kind)
        got = logits(model)  # the first forward decompresses
        decoded = model.state_dict()
        for name, weight in reference.state_dict().items():
            self.assertTrue(torch.equal(weight, decoded[name]), name)
        if activations:
            self.assertLess(relative(got, logits(reference)), ACTIVATION_ERROR)
        else:
            self.assertTrue(torch.equal(got, logits(reference)))

    def test_compressed_tensors_reads_ct_channel(self):
        self.check_compressed_tensors("llama_untied_bf16", "ct-channel", activations=True)

    def test_compressed_tensors_reads_ct_tensor(self):
        self.check_compressed_tensors("llama_untied_bf16", "ct-tensor", activations=True)

    def test_compressed_tensors_reads_ct_block(self):
        self.check_compressed_tensors("llama_tied_bf16", "ct-block", activations=True)

    def test_compressed_tensors_reads_ct_w8a16(self):
        self.check_compressed_tensors("llama_untied_bf16", "ct-w8a16", activations=False)

    def test_compressed_tensors_reads_ct_mxfp8(self):
        self.check_compressed_tensors("llama_untied_bf16", "ct-mxfp8", activations=True, dtype="bf16")

    def test_transformers_reads_hf_block(self):
        out, back = self.quantized("llama_tied_bf16", "hf-block")
        self.assertTrue(torch.equal(logits(load(out)), logits(load(back))))

    def test_transformers_reads_hf_block_of_experts(self):
        out, back = self.quantized("qwen3_moe_bf16", "hf-block")
        self.assertTrue(torch.equal(logits(load(out)), logits(load(back))))

    def test_transformers_reads_a_dequantized_directory(self):
        _, back = self.quantized("llama_untied_bf16", "hf-block", "vllm")
        source = load(SOURCES / "llama_untied_bf16")
        self.assertLess(relative(logits(load(back)), logits(source)), ACTIVATION_ERROR)


if __name__ == "__main__":
    FP8 = sys.argv.pop(1)
    unittest.main()
