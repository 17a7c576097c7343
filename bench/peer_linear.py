#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""fp8_linear_run beside PyTorch's F.linear in fp32 and bf16: one process, one set of cores, a call of each in turn.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python bench/peer_linear.py [--threads N]
        [--m 1,4,16,32,64] [--layers NxK,..] [--seconds S]

X is bf16 and not quantized, W is E4M3FN with a scale a channel (w8a16); "gemm" gets X as codes. Up to 64 rows the weights
are copies taken in turn, together twice the last cache. One line a case; a ratio is PyTorch's median time over ours, above 1
we are faster. Then the geometric means over each range of M: against each dtype, and against the faster of the two.
The first 64 columns of Y are checked against fp64, so that nobody is fast at something else."""

import argparse
import ctypes
import math
import os
import pathlib
import statistics
import time

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)))
parser.add_argument("--m", default="1,4,16,32,64")
parser.add_argument("--layers", default="4096x4096,14336x4096,4096x14336")
parser.add_argument("--seconds", type=float, default=2.0, help="for each case")
options = parser.parse_args()
os.environ["OMP_NUM_THREADS"] = str(options.threads)
os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # idle threads of one side must not slow the other

import torch  # noqa: E402 (after the environment is set)

from fp8 import _c, arrays, context as contexts, errors  # noqa: E402

NONE, CODES = _c.Activation.NONE, _c.Activation.CODES
COLD_ROWS = 64
REGIMES = [("M=1", 1, 1), ("M<=4", 1, 4), ("M=16", 16, 16), ("M=32", 32, 32), ("M>=64", 64, 1 << 30)]


def channel_desc(activation):
    """W with a scale a row; X with a scale a row, or as it is."""
    return _c.LinearDesc(activation=activation, x=_c.QuantizeDesc(grid=_c.Grid(1, 0), nan=_c.NanPolicy.PROPAGATE),
                         w=_c.QuantizeDesc(grid=_c.Grid(1, 0)))


class Ours:
    """Copies of one prepared weight, run in turn."""

    def __init__(self, context, activation, x, x_scales, w, w_scales, copies):
        self.error, self.turn, self.linears = _c.Error(), 0, []
        desc, wt, st = channel_desc(activation), arrays.view(w), arrays.view(w_scales)
        for _ in range(copies):
            linear = ctypes.c_void_p()
            errors.call("fp8_linear_create", context.handle, ctypes.byref(desc), ctypes.byref(wt), ctypes.byref(st), None,
                        ctypes.byref(linear))
            self.linears.append(linear)
        size = ctypes.c_uint64()
        errors.call("fp8_linear_workspace", self.linears[0], x.shape[0], ctypes.byref(size))
        self.size, self.space = size, ctypes.create_string_buffer(size.value)
        self.out = torch.empty(x.shape[0], w.shape[0], dtype=torch.bfloat16)
        self.keep = (x, x_scales)
        self.x, self.y = arrays.view(x), arrays.view(self.out)
        self.x_scales = None if x_scales is None else ctypes.byref(arrays.view(x_scales))

    def __call__(self):
        linear = self.linears[self.turn % len(self.linears)]
        self.turn += 1
        if _c.lib.fp8_linear_run(linear, ctypes.byref(self.x), self.x_scales, ctypes.byref(self.y), self.space, self.size, None,
                                 ctypes.byref(self.error)):
            raise errors.exception(self.error)

    def close(self):
        for linear in self.linears:
            _c.lib.fp8_linear_free(linear)


class Torch:
    def __init__(self, x, w, copies):
        self.x, self.turn, self.weights = x, 0, [w.clone() for _ in range(copies)]

    def __call__(self):
        self.out = torch.nn.functional.linear(self.x, self.weights[self.turn % len(self.weights)])
        self.turn += 1


def last_cache():
    size = pathlib.Path("/sys/devices/system/cpu/cpu0/cache/index3/size")
    return int(size.read_text().rstrip("K\n")) << 10 if size.exists() else 32 << 20


def copies_for(m, weight_bytes):
    return 1 if m > COLD_ROWS else max(1, math.ceil(2 * last_cache() / weight_bytes))


def seconds_of(call, count):
    start = time.perf_counter()
    for _ in range(count):
        call()
    return (time.perf_counter() - start) / count


def interleave(calls):
    """Median seconds of each, a batch of one after a batch of another."""
    counts, samples = [], [[] for _ in calls]
    for call in calls:
        call()
        counts.append(1 + int(3e-4 / seconds_of(call, 1)))
    end = time.perf_counter() + options.seconds
    while len(samples[0]) < 5 or time.perf_counter() < end:
        for call, count, taken in zip(calls, counts, samples):
            taken.append(seconds_of(call, count))
    return [statistics.median(taken) for taken in samples], len(samples[0])


def worst_error(out, x, w):
    want = x.double() @ w[:64].double().T
    return float((out[:, :64].double() - want).abs().max() / want.abs().max())


def run_case(context, m, n, k):
    w8 = (torch.randn(n, k) / 4).clamp(-400, 400).to(torch.float8_e4m3fn)
    w_scales = torch.rand(n, 1) + 0.5
    x8, x_scales = torch.randn(m, k).to(torch.float8_e4m3fn), torch.ones(m, 1)
    x16, w32 = x8.to(torch.bfloat16), w8.float() * w_scales
    variants = {
        "w8a16": Ours(context, NONE, x16, None, w8, w_scales, copies_for(m, n * k)),
        "gemm": Ours(context, CODES, x8, x_scales, w8, w_scales, copies_for(m, n * k)),
        "f32": Torch(x16.float(), w32, copies_for(m, 4 * n * k)),
        "bf16": Torch(x16, w32.bfloat16(), copies_for(m, 2 * n * k)),
    }
    times, rounds = interleave(list(variants.values()))
    times = dict(zip(variants, times))
    for name, variant in variants.items():
        error = worst_error(variant.out, x16, w32)
        if not error < 0.02:
            raise SystemExit(f"peer_linear: {name} {m}x{n}x{k} is wrong by {error:.3g}")
    for name in ("w8a16", "gemm"):
        variants[name].close()
    ratios = {f"{ours}_vs_{peer}": times[peer] / times[ours] for ours in ("w8a16", "gemm") for peer in ("f32", "bf16")}
    ratios |= {f"{ours}_vs_best": min(times["f32"], times["bf16"]) / times[ours] for ours in ("w8a16", "gemm")}
    print(f"bench peer_linear shape={m}x{n}x{k} threads={options.threads} rounds={rounds} "
          + " ".join(f"{name}_ms={seconds * 1e3:.4g}" for name, seconds in times.items()) + " "
          + " ".join(f"{name}={ratio:.3g}" for name, ratio in ratios.items()), flush=True)
    return ratios


def main():
    context = contexts.Context(options.threads)
    torch.set_num_threads(options.threads)
    print(f"bench peer_linear torch={torch.__version__} threads={options.threads}", flush=True)
    results = []
    with torch.inference_mode():
        for layer in options.layers.split(","):
            n, k = map(int, layer.split("x"))
            for m in map(int, options.m.split(",")):
                results.append((m, run_case(context, m, n, k)))
    for regime, least, most in REGIMES:
        cases = [ratios for m, ratios in results if least <= m <= most]
        if cases:
            print(f"bench peer_linear regime={regime} cases={len(cases)} "
                  + " ".join(f"{key}={statistics.geometric_mean(c[key] for c in cases):.3g}" for key in cases[0]))


main()
