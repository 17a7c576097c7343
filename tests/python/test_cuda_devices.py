# SPDX-License-Identifier: Apache-2.0
"""Two GPUs in one process: FP8Linear moves between them and is copied there, streams of both at once, transformers spreads a
model over them. Skipped where there is one.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python python3 tests/python/test_cuda_devices.py
"""
import copy
import sys
import tempfile
import threading
import unittest

from cuda_or_skip import CUDA

import torch
from torch import nn

import fp8
from fp8 import FP8GemmOptions, FP8Linear, enable_fp8_gemm

if torch.cuda.device_count() < 2:
    print("skipped: one GPU")
    sys.exit(77)

FIRST, SECOND = torch.device("cuda", 0), torch.device("cuda", 1)
SCHEMES = ("tensor", "channel", "block", "mxfp8", "weight-only")
N, K = 96, 160


def layer(device, scheme="channel", seed=1):
    torch.manual_seed(seed)
    return enable_fp8_gemm(nn.Linear(K, N).bfloat16().to(device), options=FP8GemmOptions(scheme=scheme)).requires_grad_(False)


def rows(device, count=5):
    torch.manual_seed(2)
    return torch.randn(count, K).bfloat16().to(device)


def codes_of(module):
    return [t.view(torch.uint8).cpu() for t in module.fp8_weight()]


class Devices(unittest.TestCase):
    def same(self, a, b):
        self.assertTrue(all(torch.equal(x, y) for x, y in zip(a, b, strict=True)))

    def test_moves_and_copies(self):
        for scheme in SCHEMES:
            module = layer(FIRST, scheme)
            y, codes = module(rows(FIRST)), codes_of(module)
            there = copy.deepcopy(module).to(SECOND)
            self.assertEqual((module._layer.device, there._layer.device, there(rows(SECOND)).device), (FIRST, SECOND, SECOND))
            self.same(codes, codes_of(there))
            twin = copy.deepcopy(there)
            self.assertEqual(twin._layer.device, SECOND)
            self.same([there(rows(SECOND))], [twin(rows(SECOND))])
            back = twin.to(FIRST)
            self.same([y], [back(rows(FIRST))])
            self.same(codes, codes_of(back.cpu()))

    def test_made_on_the_second_while_the_first_is_current(self):
        self.assertEqual(CUDA, FIRST)
        for scheme in SCHEMES:
            module = layer(SECOND, scheme)
            self.assertEqual(module(rows(SECOND)).device, SECOND)
            self.same(codes_of(layer(FIRST, scheme)), codes_of(module))
        self.assertEqual(torch.cuda.current_device(), 0)

    def test_matrices(self):
        for device in (FIRST, SECOND):
            x = torch.randn(7, 256, device=device).bfloat16()
            codes, scales = fp8.quantize(x, grid=(1, 128), nan="propagate")
            self.assertEqual((codes.device, scales.device), (device, device))
            there = SECOND if device == FIRST else FIRST
            with self.assertRaisesRegex(ValueError, "must be on"):
                fp8.dequantize(codes, scales.to(there), grid=(1, 128))

    def test_threads_and_streams_of_both(self):
        modules = [layer(device, seed=s) for s, device in enumerate((FIRST, SECOND, FIRST, SECOND))]
        wants = [m(rows(m._layer.device, 33)) for m in modules]
        wrong = []

        def run(module, want):
            device = module._layer.device
            with torch.cuda.device(device), torch.cuda.stream(torch.cuda.Stream(device)), torch.no_grad():
                x = rows(device, 33)
                for _ in range(100):
                    y = module(x)
                    torch.cuda.current_stream(device).synchronize()
                    if not torch.equal(y, want):
                        wrong.append(device)

        threads = [threading.Thread(target=run, args=pair) for pair in zip(modules, wants)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])

    def test_data_parallel_is_refused(self):
        with self.assertRaisesRegex(NotImplementedError, "a process for each GPU"):
            nn.DataParallel(nn.Sequential(layer(FIRST)))(rows(FIRST, 8))

    def test_a_graph_on_the_second(self):
        module, x = layer(SECOND), rows(SECOND)
        with torch.cuda.device(SECOND), torch.no_grad():
            want = module(x)
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph):
                y = module(x)
            graph.replay()
            torch.cuda.synchronize()
            self.same([want], [y])

    def test_a_model_over_both(self):
        try:
            import accelerate  # noqa: F401
            import transformers
            import fp8.hf  # noqa: F401
        except ImportError as missing:
            self.skipTest(str(missing))
        config = transformers.LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                                          num_key_value_heads=2, vocab_size=512, tie_word_embeddings=False)
        places = {"model.embed_tokens": 0, "model.rotary_emb": 0, "model.layers.0": 0, "model.layers.1": 1, "model.norm": 1,
                  "lm_head": 1}
        tokens = torch.arange(3, 24, device=FIRST)[None]
        load = transformers.AutoModelForCausalLM.from_pretrained
        with tempfile.TemporaryDirectory() as folder:
            torch.manual_seed(3)
            transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(folder)
            for scheme in ("block", "channel"):
                one, both = (load(folder, dtype=torch.bfloat16, quantization_config=fp8.Fp8Config(scheme), device_map=m)
                             for m in (FIRST, places))
                for name, module in both.named_modules():
                    if isinstance(module, FP8Linear):
                        self.assertEqual(module._layer.device.index, 1 if "layers.1" in name else 0)
                with torch.no_grad():
                    want, got = one(tokens).logits.float().cpu(), both(tokens).logits.float().cpu()
                self.assertLess((got - want).norm() / want.norm(), 2.0**-6)
                self.assertEqual(one.generate(tokens, max_new_tokens=8, do_sample=False).tolist(),
                                 both.generate(tokens, max_new_tokens=8, do_sample=False).tolist())


if __name__ == "__main__":
    unittest.main()
