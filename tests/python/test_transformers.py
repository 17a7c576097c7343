# SPDX-License-Identifier: Apache-2.0
"""from_pretrained with an Fp8Config: a bf16 checkpoint is quantized to the bytes that `fp8 quantize` writes, an FP8 one of any
dialect is taken as it is, and save_pretrained writes what verify and the next from_pretrained accept.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python tests/python/test_transformers.py
"""
import gc
import pathlib
import shutil
import sys
import tempfile
import unittest
import warnings

try:
    import torch
    from safetensors import safe_open
    from transformers import AutoModelForCausalLM
except ImportError as missing:
    print(f"skipped: {missing} (script/bootstrap python)")
    sys.exit(77)

import fp8
from fp8 import Fp8Config, FP8Linear

SOURCES = pathlib.Path(__file__).resolve().parents[1] / "golden" / "checkpoints"
TOKENS = torch.arange(48).reshape(2, 24) % 90
DIALECTS = {"hf-block": "block", "ct-block": "block", "hf-tensor": "tensor", "ct-tensor": "tensor", "ct-channel": "channel",
            "ct-w8a16": "weight-only", "ct-mxfp8": "mxfp8", "modelopt-pcpt": "channel", "modelopt-mxfp8": "mxfp8",
            "mxfp8": "mxfp8"}
# Codes of e4m3 for weights and activations, over a few layers of random weights: see check_readers.py.
NOISE = 4 * 2.0**-4


def tensors(directory):
    found = {}
    for file in sorted(pathlib.Path(directory).glob("*.safetensors")):
        with safe_open(file, "pt") as f:
            found.update({name: f.get_tensor(name) for name in f.keys()})
    return found


def load(directory, **options):
    return AutoModelForCausalLM.from_pretrained(directory, dtype=torch.bfloat16, **options)


def logits(model, tokens=TOKENS):
    with torch.inference_mode():
        return model(tokens).logits.float()


def layers(model):
    return {name: module for name, module in model.named_modules() if isinstance(module, FP8Linear)}


class Transformers(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="fp8-hf-"))
        self.addCleanup(shutil.rmtree, self.folder, ignore_errors=True)

    def check_codes(self, model, stored):
        """Every FP8 weight of the files is in its layer, code for code, scale for scale."""
        names = {name.removesuffix(".weight") for name, tensor in stored.items()
                 if name.endswith(".weight") and tensor.dtype == torch.float8_e4m3fn}
        self.assertTrue(names)
        self.assertLessEqual(names, set(layers(model)))
        for name in names:
            codes, scales = layers(model)[name].fp8_weight()
            scale = stored.get(name + ".weight_scale", stored.get(name + ".weight_scale_inv"))
            self.assertTrue(torch.equal(codes.view(torch.uint8), stored[name + ".weight"].view(torch.uint8)), name)
            scale = scale.view(torch.float8_e8m0fnu) if scale.dtype == torch.uint8 else scale
            self.assertTrue(torch.equal(scales.flatten().float(), scale.flatten().float()), name)

    def near(self, model, want):
        self.assertLess((logits(model) - want).norm() / want.norm(), NOISE)

    def test_quantized_on_the_way_is_what_the_command_writes(self):
        want = logits(load(SOURCES / "llama_untied_bf16"))
        for dialect in ("hf-block", "ct-tensor", "ct-channel", "ct-w8a16", "ct-mxfp8"):
            fp8.quantize_checkpoint(SOURCES / "llama_untied_bf16", self.folder / dialect, dialect)
            model = load(SOURCES / "llama_untied_bf16", quantization_config=Fp8Config(DIALECTS[dialect]))
            with self.subTest(dialect):
                if dialect != "ct-tensor":  # the command gives q, k and v one scale, for engines that fuse them
                    self.check_codes(model, tensors(self.folder / dialect))
                self.assertEqual(len(layers(model)), 14)
                self.assertIs(type(model.lm_head), torch.nn.Linear)
                self.near(model, want)

    def test_every_dialect_is_loaded_as_it_is(self):
        want = logits(load(SOURCES / "llama_untied_bf16"))
        for dialect, scheme in DIALECTS.items():
            fp8.quantize_checkpoint(SOURCES / "llama_untied_bf16", self.folder / dialect, dialect)
            with self.subTest(dialect), warnings.catch_warnings():
                warnings.simplefilter("error", UserWarning)
                model = load(self.folder / dialect, quantization_config=Fp8Config())
                self.check_codes(model, tensors(self.folder / dialect))
                self.assertEqual({layer.options.scheme for layer in layers(model).values()}, {scheme})
                self.near(model, want)

    def test_mixed_schemes(self):
        want = logits(load(SOURCES / "llama_untied_bf16"))
        mix = {"*.down_proj": "ct-tensor", "*.o_proj": "ct-w8a16"}
        fp8.quantize_checkpoint(SOURCES / "llama_untied_bf16", self.folder / "mix", "ct-channel", set=mix)
        model = load(self.folder / "mix", quantization_config=Fp8Config())
        self.check_codes(model, tensors(self.folder / "mix"))
        of = {name.rpartition(".")[2]: layer.options.scheme for name, layer in layers(model).items()}
        self.assertEqual((of["down_proj"], of["o_proj"], of["q_proj"]), ("tensor", "weight-only", "channel"))
        self.near(model, want)
        model.save_pretrained(self.folder / "again")
        again = load(self.folder / "again", quantization_config=Fp8Config())
        self.assertTrue(torch.equal(logits(again), logits(model)))

    def test_a_config_that_is_used_again(self):
        config = Fp8Config("block")
        load(SOURCES / "llama_untied_ct_channel_token", quantization_config=config)
        second = load(SOURCES / "llama_untied_bf16", quantization_config=config)
        second.save_pretrained(self.folder / "second")
        found = fp8.verify(self.folder / "second", against=SOURCES / "llama_untied_bf16")
        self.assertEqual([f for f in found.findings if f.is_error], [])

    def test_checkpoints_of_other_writers(self):
        for name in ("llama_untied_ct_channel_token", "llama_untied_ct_block", "llama_untied_ct_tensor_static",
                     "llama_untied_ct_mxfp8", "llama_untied_ct_w8a16", "llama_untied_hf_tensor", "llama_tied_hf_block"):
            with self.subTest(name):
                model, stored = load(SOURCES / name, quantization_config=Fp8Config()), tensors(SOURCES / name)
                self.check_codes(model, stored)
                model.save_pretrained(self.folder / name)
                for tensor, value in tensors(self.folder / name).items():  # with the scales in their own dtypes
                    self.assertEqual((value.dtype, value.shape), (stored[tensor].dtype, stored[tensor].shape), tensor)
                    self.assertTrue(torch.equal(value.view(torch.uint8), stored[tensor].view(torch.uint8)), tensor)

    def test_dialects_that_are_only_read(self):
        name = SOURCES / "llama_mini_hf_block_ue8m0"
        model = load(name, quantization_config=Fp8Config())
        self.assertEqual({layer.options.scheme for layer in layers(model).values()}, {"block"})
        self.check_codes(model, tensors(name))
        model.save_pretrained(self.folder / "out")
        stored, saved = tensors(name), tensors(self.folder / "out")
        self.assertEqual({n: (t.dtype, t.shape) for n, t in saved.items()}, {n: (t.dtype, t.shape) for n, t in stored.items()})
        self.assertTrue(all(torch.equal(t.view(torch.uint8), saved[n].view(torch.uint8)) for n, t in stored.items()))

    def test_tied_head(self):
        model = load(SOURCES / "llama_tied_bf16", quantization_config=Fp8Config("channel"))
        self.assertIs(model.lm_head.weight, model.model.embed_tokens.weight)
        self.assertEqual(len(layers(model)), 7)

    def test_save_and_load(self):
        for scheme in ("block", "tensor", "channel", "weight-only", "mxfp8"):
            with self.subTest(scheme):
                model = load(SOURCES / "llama_untied_bf16", quantization_config=Fp8Config(scheme))
                model.save_pretrained(self.folder / scheme)
                found = fp8.verify(self.folder / scheme, against=SOURCES / "llama_untied_bf16")
                self.assertEqual([f for f in found.findings if f.is_error], [])
                self.assertEqual(found.quantized, 14)
                again = load(self.folder / scheme, quantization_config=Fp8Config())
                self.assertTrue(torch.equal(logits(again), logits(model)))
                self.assertEqual(again.config.quantization_config.to_dict(), model.config.quantization_config.to_dict())
                again.save_pretrained(self.folder / (scheme + "-again"))
                first, second = tensors(self.folder / scheme), tensors(self.folder / (scheme + "-again"))
                self.assertEqual({n: (t.dtype, t.shape) for n, t in first.items()},
                                 {n: (t.dtype, t.shape) for n, t in second.items()})
                self.assertTrue(all(torch.equal(first[n].view(torch.uint8), second[n].view(torch.uint8)) for n in first))

    def test_what_transformers_reads_itself(self):
        """The package that owns the format decodes our file to the weights that we compute with."""
        model = load(SOURCES / "llama_untied_bf16", quantization_config=Fp8Config("channel"))
        model.save_pretrained(self.folder / "out")
        theirs = load(self.folder / "out")
        self.assertLess((logits(theirs) - logits(model)).norm() / logits(model).norm(), NOISE)

    def test_modules_to_keep(self):
        config = Fp8Config("channel", modules_to_not_convert=["lm_head", "model.layers.0"])
        self.assertEqual(len(layers(load(SOURCES / "llama_untied_bf16", quantization_config=config))), 7)

    def test_experts_in_one_parameter_stay_and_are_named(self):
        want = logits(load(SOURCES / "qwen3_moe_bf16"), TOKENS % 60)
        for scheme in ("block", "channel", "mxfp8"):
            with self.subTest(scheme):
                with self.assertWarnsRegex(UserWarning, "1 modules, the first model.layers.0.mlp.experts"):
                    model = load(SOURCES / "qwen3_moe_bf16", quantization_config=Fp8Config(scheme))
                self.assertEqual(model.model.layers[0].mlp.experts.gate_up_proj.dtype, torch.bfloat16)
                self.assertTrue(layers(model))
                got = logits(model, TOKENS % 60)
                self.assertLess((got - want).norm() / want.norm(), NOISE)
                model.save_pretrained(self.folder / scheme)
                found = fp8.verify(self.folder / scheme, against=SOURCES / "qwen3_moe_bf16")
                self.assertEqual([f for f in found.findings if f.is_error], [])
                again = load(self.folder / scheme, quantization_config=Fp8Config())
                self.assertTrue(torch.equal(logits(again, TOKENS % 60), got))

    def test_codes_of_experts_are_refused(self):
        for name in ("qwen3_moe_hf_block", "qwen3_moe_ct_channel_token", "qwen3_moe_ct_mxfp8"):
            with self.subTest(name), self.assertRaisesRegex(NotImplementedError, "F8_E4M3 codes for .*experts.*no nn.Linear"):
                load(SOURCES / name, quantization_config=Fp8Config())

    def test_generate_and_train(self):
        model = load(SOURCES / "llama_untied_bf16", quantization_config=Fp8Config("block"))
        out = model.generate(TOKENS[:1, :4], max_new_tokens=5, do_sample=False)
        self.assertEqual(out.shape, (1, 9))
        loss = model(TOKENS, labels=TOKENS).loss
        loss.backward()
        self.assertTrue(torch.isfinite(model.model.embed_tokens.weight.grad).all())

    def test_compiled_whole_by_inductor(self):
        """In one graph: fullgraph=True raises where it would break."""
        model = load(SOURCES / "llama_untied_bf16", quantization_config=Fp8Config("channel")).eval()
        want = logits(model)
        torch.compiler.reset()
        compiled = torch.compile(model, fullgraph=True)
        self.assertLess((logits(compiled) - want).norm() / want.norm(), NOISE / 4)  # it keeps fp32 between fused operations

    def test_linears_run_in_our_operator_and_no_weight_is_held_twice(self):
        for name in ("llama_untied_bf16", "llama_untied_ct_channel_token"):
            model = load(SOURCES / name, quantization_config=Fp8Config("channel"))
            with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
                logits(model)
            count = {event.key: event.count for event in profile.key_averages()}
            self.assertEqual((count["fp8::linear"], count["aten::linear"]), (14, 1))  # the head is left
            shapes = {(layer.out_features, layer.in_features) for layer in layers(model).values()}
            gc.collect()
            kept = {id(parameter) for parameter in model.parameters()}
            held = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor) and not t.is_meta and id(t) not in kept
                    and t.itemsize > 1 and tuple(t.shape) in shapes]
            self.assertEqual(held, [])
            self.assertEqual([layer._layer.info.source_bytes for layer in layers(model).values()], [0] * 14)

    def test_config_as_a_dict(self):
        model = load(SOURCES / "llama_untied_bf16", quantization_config={"quant_method": "libfp8", "scheme": "channel"})
        self.assertEqual({layer.options.scheme for layer in layers(model).values()}, {"channel"})

    def test_bad_input(self):
        with self.assertRaisesRegex(TypeError, "list of names, not 'lm_head'"):
            Fp8Config(modules_to_not_convert="lm_head")
        with self.assertRaisesRegex(ValueError, "'int8'.*block"):
            Fp8Config("int8")
        with self.assertRaisesRegex(ValueError, "'x'.*best"):
            Fp8Config(rule="x")


if __name__ == "__main__":
    unittest.main()
