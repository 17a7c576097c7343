#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model of transformers on a GPU, loaded straight to it: memory while it loads, what it loses, tokens a second.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python bench/python_cuda.py MODEL --text FILE
        [--scheme S] [--tokens N] [--max-kl X] [--device cuda]

MODEL: a directory in high precision with its tokenizer. bf16 first, then each scheme by Fp8Config:

before, peak, after  MiB of the device in use by its driver: before the load, the most during it (read every millisecond), and
                     after it, PyTorch's free memory given back
held                 MiB of parameters, buffers, codes and scales; share: (peak - before) / held
timeline             MiB in use above `before` at tenths of the load's time
kl, top1, ppl_ratio  next tokens of the text, to the model in float32 on the same device (divergence.py)
cpu_*                the same to the model of that scheme on the CPU, and how many of the tokens below are the CPU's
tokens               greedy, from the first 16 tokens of the text: one at a time eagerly and as replays of one CUDA graph, that
                     must make the same ones; tokens a second of either (best of three)

Exit: 1 if the graph's tokens differ, there are FP8 layers outside the device, or a KL is above its limit."""
import argparse
import gc
import pathlib
import sys
import threading
import time
import warnings

import torch
import transformers

import fp8
from divergence import divergence
from fp8 import ops

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("--text", type=pathlib.Path, required=True)
parser.add_argument("--scheme", action="append", help="default: channel, block, mxfp8")
parser.add_argument("--tokens", type=int, default=64)
parser.add_argument("--max-kl", type=float)
parser.add_argument("--device", default="cuda", help="cpu: what can be run without a GPU, for a look at this script")
options = parser.parse_args()
DEVICE, MIB, PROMPT = torch.device(options.device), 1 << 20, 16
GPU = DEVICE.type == "cuda"


def load(scheme, device=DEVICE, dtype=torch.bfloat16):
    config = fp8.Fp8Config(scheme) if scheme else None
    return transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=dtype, quantization_config=config,
                                                             device_map=device).eval()


# ---- memory ----

def used():
    if not GPU:
        return 0
    free, total = torch.cuda.mem_get_info(DEVICE)
    return total - free


def give_back():
    gc.collect()
    if GPU:
        torch.cuda.synchronize()
        torch.cuda.empty_cache()


class Watch:
    """Memory in use every millisecond, from the beginning of a with block to its end."""

    def __enter__(self):
        self.before, self.start = used(), time.perf_counter()
        self.samples, self.over = [(0.0, self.before)], threading.Event()
        self.thread = threading.Thread(target=self._run)
        self.thread.start()
        return self

    def _run(self):
        while not self.over.wait(0.001):
            self.samples.append((time.perf_counter() - self.start, used()))

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.samples.append((time.perf_counter() - self.start, used()))

    def words(self, held):
        seconds, peak = self.samples[-1][0], max(size for _, size in self.samples)
        tenths = [max(size for at, size in self.samples if at <= seconds * i / 10) - self.before for i in range(11)]
        give_back()
        return (f"seconds={seconds:.2f} before_mib={self.before / MIB:.0f} peak_mib={peak / MIB:.0f} "
                f"after_mib={used() / MIB:.0f} held_mib={held / MIB:.0f} share={(peak - self.before) / held:.3f} timeline_mib="
                + ",".join(f"{size / MIB:.0f}" for size in tenths))


def held_by(model):
    tensors = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers())}
    infos = [layer._layer.info for layer in layers_of(model)]
    return sum(tensors.values()) + sum(i.code_bytes + i.scale_bytes + i.other_bytes + i.source_bytes for i in infos)


def layers_of(model):
    return [m for m in model.modules() if isinstance(m, fp8.FP8Linear)]


# ---- tokens ----

class Decoder:
    """Greedy, one token a step, keys and values in place: a step reads its token and place and leaves the next ones."""

    def __init__(self, model, length):
        self.model, self.device = model, next(model.parameters()).device
        self.cache = transformers.StaticCache(config=model.config, max_cache_len=length)
        self.token = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.at = torch.zeros(1, 1, dtype=torch.long, device=self.device)
        self.places = torch.arange(length, device=self.device)[None, None, None]
        self.replay = None

    @torch.no_grad()
    def step(self):
        seen = self.places <= self.at  # a mask of four dimensions is taken as it is
        logits = self.model(input_ids=self.token, attention_mask=seen, position_ids=self.at, past_key_values=self.cache,
                            use_cache=True).logits
        self.token.copy_(logits[:, -1:].argmax(-1))
        self.at.add_(1)

    def capture(self):
        side = torch.cuda.Stream(self.device)
        side.wait_stream(torch.cuda.current_stream(self.device))
        with torch.cuda.stream(side):
            self.step()
        torch.cuda.current_stream(self.device).wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self.step()
        self.replay = graph.replay

    def generate(self, prompt, count):
        """Tokens, and tokens a second after the prompt."""
        step, tokens = self.replay or self.step, []
        self.cache.reset()
        self.at.zero_()
        for token in prompt:
            self.token.fill_(token)
            step()
        self._wait()
        begin = time.perf_counter()
        for _ in range(count):
            tokens.append(self.token.clone())
            step()
        self._wait()
        return torch.cat(tokens).flatten().tolist(), count / (time.perf_counter() - begin)

    def best(self, prompt, count):
        runs = [self.generate(prompt, count) for _ in range(3)]
        return runs[0][0], max(rate for _, rate in runs), all(tokens == runs[0][0] for tokens, _ in runs)

    def _wait(self):
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)


def decode(model, ids):
    """The tokens, whether every run made them, and words about it."""
    decoder, prompt = Decoder(model, PROMPT + options.tokens + 2), ids[0, :PROMPT].tolist()
    decoder.generate(prompt, 4)
    tokens, eager, same = decoder.best(prompt, options.tokens)
    if not GPU:
        return tokens, same, f"eager_tokens_s={eager:.1f}"
    decoder.capture()
    replayed, graph, same_again = decoder.best(prompt, options.tokens)
    same = same and same_again and replayed == tokens
    return tokens, same, f"eager_tokens_s={eager:.1f} graph_tokens_s={graph:.1f} graph_tokens_same={same}"


@torch.inference_mode()
def logits_of(model, ids):
    return model(ids.to(next(model.parameters()).device)).logits[0].float()


def beside_the_cpu(scheme, ids, logits, tokens):
    there = load(scheme, torch.device("cpu"))
    found = divergence(logits_of(there, ids).to(logits.device), logits, ids[0, 1:].to(logits.device))
    decoder = Decoder(there, PROMPT + options.tokens + 2)
    theirs, _ = decoder.generate(ids[0, :PROMPT].tolist(), options.tokens)
    agree = next((i for i, (a, b) in enumerate(zip(tokens, theirs)) if a != b), len(tokens))
    return found.kl, f"cpu_kl={found.kl:.5f} cpu_top1={found.top1:.3f} cpu_tokens={agree}/{len(tokens)}"


def bench(scheme, ids, want):
    """Whether all was well."""
    give_back()
    with Watch() as watch:
        model = load(scheme)
        if GPU:
            torch.cuda.synchronize()
    layers, name = layers_of(model), scheme or "bf16"
    print(f"bench python_cuda_load scheme={name} layers={len(layers)} {watch.words(held_by(model))}", flush=True)
    logits = logits_of(model, ids)
    found = divergence(want, logits, ids[0, 1:].to(DEVICE))
    tokens, same, speed = decode(model, ids)
    line = f"bench python_cuda scheme={name} {found} {speed}"
    good = same and all(layer._layer.device.type == DEVICE.type for layer in layers)
    if scheme:
        cpu_kl, words = beside_the_cpu(scheme, ids, logits, tokens)
        line += " " + words
        good = good and (options.max_kl is None or max(found.kl, cpu_kl) <= options.max_kl)
    print(line, flush=True)
    return good


def main():
    warnings.simplefilter("ignore", FutureWarning)
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    ids = tokenizer(options.text.read_text(encoding="utf-8"), return_tensors="pt")["input_ids"]
    name = torch.cuda.get_device_name(DEVICE) if GPU else "the CPU"
    print(f"bench python_cuda_machine device={name.replace(' ', '_')} torch={torch.__version__} "
          f"transformers={transformers.__version__} text_tokens={ids.shape[1]}")
    torch.backends.cuda.matmul.allow_tf32 = False
    want = logits_of(load(None, dtype=torch.float32), ids)
    if GPU:
        ops.context_of(ops.place(DEVICE))  # its kernels are no memory of a model
    return int(not all([bench(scheme, ids, want) for scheme in (None, *(options.scheme or ("channel", "block", "mxfp8")))]))


if __name__ == "__main__":
    sys.exit(main())
