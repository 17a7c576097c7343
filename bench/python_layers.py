#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""FP8Linear and torch.ops.fp8.linear beside PyTorch: one process, one set of cores, a call of each in turn.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python bench/python_layers.py [--threads N] [--seconds S]

overhead: microseconds of an operator's call over the C function's on the same operands (less what ctypes takes).
model:    all linears of SmolLM2-135M, one after the other, at M rows; ratios are the peer's time over ours.
wrap:     FP8Linear with its codes, beside the same formula in eager PyTorch."""
import argparse
import ctypes
import functools
import os
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--seconds", type=float, default=3.0, help="for each case")
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


def model():
    weights = [torch.randn(n, k).bfloat16() / k**0.5 for _ in range(LAYERS) for n, k in LAYER]
    sides = {"bf16": [linear_of(w) for w in weights], "f32": [linear_of(w.float()) for w in weights]}
    for scheme in ("tensor", "channel", "weight-only"):
        sides[scheme] = [fp8.enable_fp8_gemm(linear_of(w), options=fp8.FP8GemmOptions(scheme=scheme)) for w in weights]
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
    linears, o = [linear_of(w) for w in weights], fp8.FP8GemmOptions()
    with torch.inference_mode():
        ours, peer = interleave([lambda: [fp8.enable_fp8_gemm(layer, options=o) for layer in linears],
                                 lambda: [eager(w) for w in weights]])
    print(f"bench python_layers wrap={name} threads={options.threads} ours_ms={ours * 1e3:.3g} eager_ms={peer * 1e3:.3g} "
          f"ours_vs_eager={peer / ours:.3g}", flush=True)


print(f"bench python_layers torch={torch.__version__} threads={options.threads} statistic=least")
overhead(64, 64)
overhead(576, 576)
model()
wrap("smollm2-135m", LAYER * 6)
wrap("llama-1b", [(2048, 2048), (8192, 2048)])
