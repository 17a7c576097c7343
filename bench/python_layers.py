#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FP8Linear and torch.ops.fp8.linear beside PyTorch: one process, one set of cores, a call of each in turn.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python bench/python_layers.py [--threads N] [--seconds S]
        [--only overhead,shapes,model,wrap,tokens] [--m 16,64,128,512] [--schemes tensor,channel,weight-only]
        [--checkpoint DIR]

overhead: microseconds of an operator's call over the C function's on the same operands (less what ctypes takes).
shapes:   each shape of a linear of SmolLM2-135M by itself, at M rows, as many copies in turn as the model has; wall and
          processor time (cpu). Ratios are the peer's time over ours; "least" of the two peers' wall times.
model:    all linears of SmolLM2-135M, one after the other, at M rows.
wrap:     a model whose linears become FP8Linear with codes, beside the same formula for its weights in eager PyTorch.
tokens:   a causal language model of transformers, its linears in FP8: tokens a second one by one, and milliseconds of
          a prompt of 512 tokens. "free" has these linears do nothing, which is what none can be faster than."""
import argparse
import ctypes
import functools
import itertools
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--seconds", type=float, default=3.0, help="for each case")
parser.add_argument("--only", default="overhead,shapes,model,wrap", help="parts")
parser.add_argument("--m", default="16,64,128,512", help="rows of shapes")
parser.add_argument("--checkpoint", help="directory of the model of tokens")
parser.add_argument("--schemes", default="tensor,channel,weight-only")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads of one side must not slow the other

import torch  # noqa: E402 (after the environment is set)
from torch import nn  # noqa: E402

import fp8  # noqa: E402
from fp8 import _c, arrays, errors, ops  # noqa: E402

# Linears of SmolLM2-135M: q, k, v, o, gate, up, down.
LAYER = [(576, 576), (192, 576), (192, 576), (576, 576), (1536, 576), (1536, 576), (576, 1536)]
LAYERS = 30
HEAD = (49152, 576)


def seconds_of(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def interleave(calls, batch=1):
    """The least seconds of each, a batch of one after a batch of another."""
    best = [float("inf")] * len(calls)
    end = time.perf_counter() + options.seconds
    for call in calls:
        call()
    while time.perf_counter() < end or best[-1] == float("inf"):
        for i, call in enumerate(calls):
            best[i] = min(best[i], seconds_of(call, batch))
    return best


def interleave_cpu(calls, before=lambda: None):
    """The least wall and processor seconds of each, without those of `before`, which comes before each call."""
    best = [[float("inf"), float("inf")] for _ in calls]
    end = time.perf_counter() + options.seconds
    for call in calls:
        before()
        call()
    while time.perf_counter() < end or best[-1][0] == float("inf"):
        for i, call in enumerate(calls):
            before()
            wall, cpu = time.perf_counter(), time.process_time()
            call()
            cpu, wall = time.process_time() - cpu, time.perf_counter() - wall
            best[i] = [min(best[i][0], wall), min(best[i][1], cpu)]
    return best


def overhead(n, k):
    w, x, y = torch.randn(n, k).bfloat16(), torch.randn(1, k).bfloat16(), torch.empty(1, n).bfloat16()
    layer = fp8.enable_fp8_gemm(linear_of(w))
    linear, number, size, error = fp8.Linear(w, scheme="tensor"), layer._layer.number, ctypes.c_uint64(), _c.Error()
    errors.call("fp8_linear_workspace", linear.handle, 1, ctypes.byref(size))
    space = ctypes.create_string_buffer(size.value)
    arguments = (linear.handle, ctypes.byref(arrays.view(x)), None, ctypes.byref(arrays.view(y)), space, size, None,
                 ctypes.byref(error))
    run, nothing = _c.lib.fp8_linear_run, (linear.handle, None, None, None, None, size, None, None)
    with torch.inference_mode():
        c, refused, op, module, peer = interleave([lambda: run(*arguments), lambda: run(*nothing),
                                                   lambda: ops.linear(x, number, n), lambda: layer(x),
                                                   lambda: nn.functional.linear(x, w)], 200)
    c -= refused  # what ctypes itself takes: a call that is refused at once
    print(f"bench python_layers overhead shape=1x{n}x{k} threads={options.threads} c_us={c * 1e6:.2f} op_us={op * 1e6:.2f} "
          f"layer_us={module * 1e6:.2f} torch_us={peer * 1e6:.2f} op_overhead_us={(op - c) * 1e6:.2f} "
          f"layer_overhead_us={(module - c) * 1e6:.2f}", flush=True)


def linear_of(weight):
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=False)
    made.weight = nn.Parameter(weight, requires_grad=False)
    return made


def sides_of(shapes):
    """The linears of each side."""
    weights = [torch.randn(n, k).bfloat16() / k**0.5 for n, k in shapes]
    sides = {"bf16": [linear_of(w) for w in weights], "f32": [linear_of(w.float()) for w in weights]}
    for scheme in options.schemes.split(","):
        sides[scheme] = [fp8.enable_fp8_gemm(linear_of(w), options=fp8.FP8GemmOptions(scheme=scheme)) for w in weights]
    return sides


def in_turn(layers, x):
    turn = itertools.cycle(layers)
    return lambda: next(turn)(x)


def shape(n, k, copies):
    sides = sides_of([(n, k)] * copies)
    for m in map(int, options.m.split(",")):
        x = torch.randn(m, k).bfloat16()
        with torch.inference_mode():
            times = interleave_cpu([in_turn(layers, x.float() if name == "f32" else x) for name, layers in sides.items()])
        walls, cpus = ({name: t[i] * 1e6 for name, t in zip(sides, times)} for i in (0, 1))
        least = min(walls["bf16"], walls["f32"])
        print(f"bench python_layers shape={m}x{n}x{k} threads={options.threads} "
              + " ".join(f"{name}_us={walls[name]:.4g} {name}_cpu_us={cpus[name]:.4g}" for name in sides) + " "
              + " ".join(f"{name}_vs_least={least / walls[name]:.3g} {name}_cpu_vs_bf16={cpus['bf16'] / cpus[name]:.3g}"
                         for name in options.schemes.split(",")), flush=True)


def model():
    sides = sides_of(LAYER * LAYERS)
    for m in (1, 512):
        inputs = {k: torch.randn(m, k).bfloat16() for _, k in LAYER}
        high = {k: x.float() for k, x in inputs.items()}

        def run(layers, inputs):
            for layer in layers:
                layer(inputs[layer.in_features])

        with torch.inference_mode():
            times = dict(zip(sides, interleave([functools.partial(run, layers, high if name == "f32" else inputs)
                                                for name, layers in sides.items()])))
        print(f"bench python_layers model=smollm2-135m m={m} threads={options.threads} "
              + " ".join(f"{name}_ms={t * 1e3:.3g}" for name, t in times.items()) + " "
              + " ".join(f"{name}_vs_{peer}={times[peer] / times[name]:.3g}" for name in times if name not in ("bf16", "f32")
                         for peer in ("bf16", "f32")), flush=True)


def eager(w):
    """The codes of scheme "tensor" in PyTorch."""
    scale = w.abs().max().float() / 448
    return (w.float() * (1 / scale)).clamp(-448, 448).to(torch.float8_e4m3fn), scale


def wrap(name, shapes):
    weights = [torch.randn(n, k).bfloat16() for n, k in shapes]
    models = []

    def make():
        models[:] = [nn.Sequential(*map(linear_of, weights))]

    with torch.inference_mode():
        ours, peer = interleave_cpu([lambda: fp8.enable_fp8_gemm(models.pop()), lambda: [eager(w) for w in weights]], make)
    print(f"bench python_layers wrap={name} threads={options.threads} ours_ms={ours[0] * 1e3:.3g} eager_ms={peer[0] * 1e3:.3g} "
          f"ours_vs_eager={peer[0] / ours[0]:.3g} ours_cpu_ms={ours[1] * 1e3:.3g} eager_cpu_ms={peer[1] * 1e3:.3g} "
          f"ours_cpu_vs_eager={peer[1] / ours[1]:.3g}", flush=True)


class Free(nn.Module):
    """A linear whose result is there already."""

    def __init__(self, linear):
        super().__init__()
        self.out_features, self.dtype, self.results = linear.out_features, linear.weight.dtype, {}

    def forward(self, x):
        shape = (*x.shape[:-1], self.out_features)
        if shape not in self.results:
            self.results[shape] = torch.zeros(shape, dtype=self.dtype)
        return self.results[shape]


def freed(model, names):
    for name in names:
        model.set_submodule(name, Free(model.get_submodule(name)))
    return model


def tokens(directory):
    from transformers import AutoModelForCausalLM, DynamicCache, logging

    logging.disable_progress_bar()

    def load(dtype=torch.bfloat16):
        return AutoModelForCausalLM.from_pretrained(directory, dtype=dtype).eval()

    sides = {"bf16": load(), "f32": load(torch.float32)}
    for scheme in options.schemes.split(","):
        sides[scheme] = fp8.enable_fp8_gemm(load(), options=fp8.FP8GemmOptions(scheme=scheme))
    last = sides[scheme]
    wrapped = [name for name, module in last.named_modules() if isinstance(module, fp8.FP8Linear)]
    sides["free"] = freed(load(), wrapped)
    prompt = torch.randint(0, 1000, (1, 512))
    caches = {name: DynamicCache() for name in sides}

    def step(name):
        cache = caches[name]
        sides[name](prompt[:, :1], past_key_values=cache, use_cache=True)
        cache.crop(-1)  # the context is the same for all

    with torch.inference_mode():
        for name, side in sides.items():
            side(prompt[:, :64], past_key_values=caches[name], use_cache=True, logits_to_keep=1)
        for what, call in (("decode", step), ("prefill", lambda name: sides[name](prompt, use_cache=False, logits_to_keep=1))):
            times = dict(zip(sides, interleave([functools.partial(call, name) for name in sides])))
            print(f"bench python_layers {what} threads={options.threads} fp8_linears={len(wrapped)} "
                  + " ".join(f"{name}_{'tokens_s' if what == 'decode' else 'ms'}="
                             f"{1 / t if what == 'decode' else t * 1e3:.4g}" for name, t in times.items()) + " "
                  + " ".join(f"{name}_vs_{peer}={times[peer] / times[name]:.3g}" for name in options.schemes.split(",")
                             for peer in ("bf16", "f32", "free")), flush=True)


print(f"bench python_layers torch={torch.__version__} threads={options.threads} statistic=least")
parts = options.only.split(",")
if "overhead" in parts:
    overhead(64, 64)
    overhead(576, 576)
if "shapes" in parts:
    for each in dict.fromkeys(LAYER):
        shape(*each, LAYER.count(each) * LAYERS)
    shape(*HEAD, 1)
if "model" in parts:
    model()
if "wrap" in parts:
    wrap("smollm2-135m", LAYER * LAYERS)
    wrap("llama-1b", [(2048, 2048), (8192, 2048)])
if "tokens" in parts:
    if not options.checkpoint:
        raise SystemExit("python_layers: tokens needs --checkpoint")
    tokens(options.checkpoint)
