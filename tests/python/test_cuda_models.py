# SPDX-License-Identifier: Apache-2.0
"""Models on CUDA: a Llama of SmolLM2-135M's shape, with random weights, generates under a CUDA graph what it generates without;
transformers loads a checkpoint straight to the device, in FP8.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python python3 tests/python/test_cuda_models.py
"""
import gc
import pathlib
import tempfile
import time
import unittest

from cuda_or_skip import CUDA

import torch
from torch import nn

import fp8
from fp8 import FP8GemmOptions, FP8Linear, enable_fp8_gemm

try:
    import transformers
    import fp8.hf  # noqa: F401
except ImportError as missing:
    transformers, WHY = None, str(missing)

HIDDEN, LAYERS, HEADS, KV, INNER, VOCAB, LONGEST = 576, 30, 9, 3, 1536, 49152, 128


class Block(nn.Module):
    """One layer of a Llama, for one token at a time, with the keys and values of those before it in place."""

    def __init__(self):
        super().__init__()
        size = HIDDEN // HEADS
        self.norm, self.norm2 = nn.RMSNorm(HIDDEN), nn.RMSNorm(HIDDEN)
        self.q, self.o = nn.Linear(HIDDEN, HIDDEN, bias=False), nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.k, self.v = nn.Linear(HIDDEN, KV * size, bias=False), nn.Linear(HIDDEN, KV * size, bias=False)
        self.gate, self.up = nn.Linear(HIDDEN, INNER, bias=False), nn.Linear(HIDDEN, INNER, bias=False)
        self.down = nn.Linear(INNER, HIDDEN, bias=False)
        for name in ("keys", "values"):
            self.register_buffer(name, torch.zeros(KV, LONGEST, size), persistent=False)

    def forward(self, x, at, turn, mask):
        h, size = self.norm(x), HIDDEN // HEADS
        q, k, v = (linear(h).view(-1, size) for linear in (self.q, self.k, self.v))
        q, k = turn(q), turn(k)
        self.keys.index_copy_(1, at, k[:, None])
        self.values.index_copy_(1, at, v[:, None])
        y = nn.functional.scaled_dot_product_attention(
            q[None, :, None], self.keys.repeat_interleave(HEADS // KV, 0)[None],
            self.values.repeat_interleave(HEADS // KV, 0)[None], attn_mask=mask)
        x = x + self.o(y.reshape(1, HIDDEN))
        h = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(h)) * self.up(h))


class Llama(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.norm = nn.Embedding(VOCAB, HIDDEN), nn.RMSNorm(HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        half = HIDDEN // HEADS // 2
        self.register_buffer("speeds", 10000.0 ** (-torch.arange(half) / half), persistent=False)

    def forward(self, token, at):
        """Logits [1, VOCAB] after token [1] at place [1]."""
        angle = at.float()[:, None] * self.speeds.float()
        x = self.embed(token)
        cos, sin = (torch.cat((f(angle), f(angle)), -1).to(x.dtype) for f in (torch.cos, torch.sin))

        def turn(t):
            a, b = t.chunk(2, -1)
            return t * cos + torch.cat((-b, a), -1) * sin

        mask = (torch.arange(LONGEST, device=at.device) <= at)[None, None, None]
        for block in self.blocks:
            x = block(x, at, turn, mask)
        return nn.functional.linear(self.norm(x), self.embed.weight)


class Decoder:
    """Greedy: a step reads its token and place, and leaves the next ones."""

    def __init__(self, model):
        self.model = model
        self.token = torch.zeros(1, dtype=torch.long, device=CUDA)
        self.at = torch.zeros(1, dtype=torch.long, device=CUDA)
        self.graph = None

    @torch.no_grad()
    def step(self):
        self.token.copy_(self.model(self.token, self.at).argmax(-1))
        self.at.add_(1)

    def start(self):
        self.token.fill_(7)
        self.at.zero_()

    def capture(self):
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.step()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            self.step()

    def generate(self, count):
        """Tokens, and seconds a token."""
        self.start()
        tokens = []
        run = self.graph.replay if self.graph else self.step
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            run()
            tokens.append(self.token.clone())
        torch.cuda.synchronize()
        return torch.cat(tokens).tolist(), (time.perf_counter() - begin) / count


def made_llama():
    torch.manual_seed(5)
    model = Llama().bfloat16().to(CUDA)
    for parameter in model.parameters():
        if parameter.ndim == 2:
            nn.init.normal_(parameter, std=0.05)
    return model.requires_grad_(False)


class Generation(unittest.TestCase):
    def test_a_llama_under_a_graph(self):
        times = {}
        for scheme in (None, "tensor", "channel", "block", "mxfp8"):
            model = made_llama()
            if scheme:
                enable_fp8_gemm(model, options=FP8GemmOptions(scheme=scheme))
                self.assertEqual(sum(isinstance(m, FP8Linear) for m in model.modules()), 7 * LAYERS)
            decoder = Decoder(model)
            decoder.generate(8)
            plain, eager = decoder.generate(64)
            decoder.capture()
            decoder.generate(8)
            replayed, graph = decoder.generate(64)
            times[scheme or "bf16"] = f"{1 / eager:.0f} and {1 / graph:.0f}"
            self.assertEqual(plain, replayed, scheme)
            self.assertGreater(len(set(plain)), 4)
        print("tokens a second, eager and under a CUDA graph:", times)

    def test_blocks_compile_without_a_break(self):
        model = enable_fp8_gemm(made_llama(), options=FP8GemmOptions(scheme="channel"))
        decoder = Decoder(model)
        decoder.start()
        for _ in range(4):
            decoder.step()
        with torch.no_grad():
            want = model(decoder.token, decoder.at).float()
            for block in model.blocks[:3]:
                block.compile(fullgraph=True, backend="aot_eager")
            got = model(decoder.token, decoder.at).float()
        self.assertLess((got - want).norm() / want.norm(), 2.0**-6)


@unittest.skipUnless(transformers, "no transformers")
class Transformers(unittest.TestCase):
    def saved(self, folder):
        config = transformers.LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4,
                                          num_key_value_heads=2, vocab_size=512, tie_word_embeddings=False)
        torch.manual_seed(3)
        transformers.LlamaForCausalLM(config).bfloat16().save_pretrained(folder)

    def test_device_map(self):
        tokens = torch.arange(3, 24)[None]
        for scheme in ("block", "channel", "mxfp8"):
            with self.subTest(scheme), tempfile.TemporaryDirectory() as folder:
                self.saved(folder)
                load = transformers.AutoModelForCausalLM.from_pretrained
                here = load(folder, dtype=torch.bfloat16, quantization_config=fp8.Fp8Config(scheme))
                there = load(folder, dtype=torch.bfloat16, quantization_config=fp8.Fp8Config(scheme), device_map="cuda")
                layers = [m for m in there.modules() if isinstance(m, FP8Linear)]
                self.assertEqual(len(layers), 14)
                for layer in layers:
                    self.assertEqual((layer.is_materialized, layer._layer.device.type, layer._source), (True, "cuda", None))
                for a, b in zip((m for m in here.modules() if isinstance(m, FP8Linear)), layers):
                    for x, y in zip(a.fp8_weight(), b.fp8_weight()):
                        self.assertTrue(torch.equal(x.view(torch.uint8), y.cpu().view(torch.uint8)))
                with torch.no_grad():
                    want, got = here(tokens).logits.float(), there(tokens.to(CUDA)).logits.float().cpu()
                self.assertLess((got - want).norm() / want.norm(), 2.0**-4)
                words = there.generate(tokens.to(CUDA), max_new_tokens=8, do_sample=False)
                self.assertEqual(words.shape, (1, tokens.shape[1] + 8))
                again = pathlib.Path(folder, "again")
                there.save_pretrained(again)
                back = load(again, dtype=torch.bfloat16, quantization_config=fp8.Fp8Config(), device_map="cuda")
                with torch.no_grad():
                    self.assertTrue(torch.equal(back(tokens.to(CUDA)).logits, there(tokens.to(CUDA)).logits))
                del here, there, back
                gc.collect()


if __name__ == "__main__":
    if not transformers:
        print(f"without transformers: {WHY}")
    unittest.main()
