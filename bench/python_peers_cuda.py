#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Whole linears on a GPU as users of PyTorch call them: bf16 in, bf16 out, y[M,N] = x[M,K] W[N,K]^T.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python bench/python_peers_cuda.py
        [--layers NxK,.. | all] [--m 1,16,64,256,1024,4096] [--rounds R] [--seconds S] [--device cuda]

ours        FP8Linear, scheme "channel": torch.ops.fp8.linear
pair        x quantized by rows in PyTorch (amax over K, division, clamp, cast; torch.compile, a graph for each M and K), then
            torch._scaled_mm with a scale for each row and column, use_fast_accum=False; the same codes of W
pair_fast   with use_fast_accum=True
bf16        torch.nn.functional.linear

us: device time of a call in a CUDA graph that goes through copies of the weight of more than two times the L2 on every side,
so that all are cold. A round replays the graph of each side in turn, in an order that moves on; medians of rounds.
host_us, for M = 1 only: wall time of a call outside of graphs; `module` is FP8Linear's own, `pair` compiled as one function.
Layers: some of bench/shapes, `all` of them but awkward.txt. After --seconds no further case is begun, and that is said.
Exit: 1 if a result is wrong: more than 2^-8 off the product of its own codes and scales (norms; twice what rounding to bf16 may
be off; with fast accumulation 0.01), or more than 0.06 off bf16's.
Ours are those of exact divisions. PyTorch's are not: on a GPU it multiplies by 1/448, and its compiler divides approximately,
so that scales are a bit off and numbers midway between two codes become the other one; then Y of both can differ by 0.02."""
import argparse
import functools
import itertools
import math
import pathlib
import statistics
import sys
import time

import torch

import fp8
from fp8 import ops

SHAPES = pathlib.Path(__file__).with_name("shapes")
SOME = "6144x4096,4096x4096,28672x4096,4096x14336,8192x8192,1280x8192,2112x7168,24576x1536"
parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("--layers", default=SOME)
parser.add_argument("--m", default="1,16,64,256,1024,4096")
parser.add_argument("--rounds", type=int, default=9)
parser.add_argument("--seconds", type=float, default=90.0)
parser.add_argument("--device", default="cuda", help="cpu: what can be run without a GPU, for a look at this script")
options = parser.parse_args()
DEVICE = torch.device(options.device)
GPU = DEVICE.type == "cuda"
E4M3, LIMIT = torch.float8_e4m3fn, 448.0
SIDES = ("ours", "pair", "pair_fast", "bf16")
REPLAYS_S = 1.5e-3  # at least, of each side in a round
CALLS = 300  # host_us: of one measurement


def layers():
    """(N, K) that are asked for, each once."""
    if options.layers != "all":
        return [tuple(map(int, layer.split("x"))) for layer in options.layers.split(",")]
    files = (path for path in sorted(SHAPES.glob("*.txt")) if path.stem != "awkward")
    lines = (line.split() for path in files for line in path.read_text().splitlines() if not line.startswith("#"))
    return list(dict.fromkeys((int(n), int(k)) for _, n, k in lines))


# ---- the sides ----

def per_token(x):
    """codes[M,K], scales[M,1] of x[M,K]."""
    scale = (x.abs().amax(dim=-1, keepdim=True).float() / LIMIT).clamp(min=1e-12)
    return (x.float() / scale).clamp(-LIMIT, LIMIT).to(E4M3), scale


def exact_per_token(x):
    """The same, divisions rounded once."""
    scale = x.abs().amax(dim=-1, keepdim=True).float() / torch.full((), LIMIT, device=x.device)
    return (x.float() / scale).clamp(-LIMIT, LIMIT).to(E4M3), scale


def product(codes, scale, w, w_scales):
    """In fp32, but for Y's own rounding what a linear has to compute."""
    return (codes.float() * scale) @ (w.float() * w_scales).t()


def scaled_mm(codes, scale, w, w_scales, fast):
    return torch._scaled_mm(codes, w.t(), scale_a=scale, scale_b=w_scales.t(), out_dtype=torch.bfloat16, use_fast_accum=fast)


def pair_in_one(x, w, w_scales):
    return scaled_mm(*per_token(x), w, w_scales, False)


compiled_per_token = torch.compile(per_token, dynamic=False)
compiled_pair = torch.compile(pair_in_one, dynamic=False)


def pair(x, w, fast):
    return scaled_mm(*compiled_per_token(x), *w, fast)


class Weights:
    """W[N,K] as each side has it, in copies that are together more than two times the L2."""

    def __init__(self, n, k):
        l2 = torch.cuda.get_device_properties(DEVICE).L2_cache_size if GPU else 1
        self.n, self.copies = n, 1 + math.ceil(2 * l2 / (n * k))
        made = torch.nn.Linear(k, n, bias=False, device=DEVICE, dtype=torch.bfloat16)
        self.bf16 = [made.weight.detach().clone() for _ in range(self.copies)]
        config = fp8.FP8GemmOptions(scheme="channel")
        self.modules = [fp8.FP8Linear(made, options=config) for _ in range(self.copies)]
        for module in self.modules:
            module.materialize_fp8_weight()
        self.fp8 = [self.modules[0].fp8_weight() for _ in range(self.copies)]

    def calls(self, x):
        """For each side what it calls for each copy."""
        numbers = [module._layer.number for module in self.modules]
        made = {"ours": [functools.partial(ops.linear, x, number, self.n) for number in numbers]}
        for name, fast in (("pair", False), ("pair_fast", True)):
            made[name] = [functools.partial(pair, x, w, fast) for w in self.fp8]
        made["bf16"] = [functools.partial(torch.nn.functional.linear, x, w) for w in self.bf16]
        return made

    def host_calls(self, x):
        made = self.calls(x)
        return {"ours": made["ours"], "module": [functools.partial(module, x) for module in self.modules],
                "pair": [functools.partial(compiled_pair, x, *w) for w in self.fp8], "bf16": made["bf16"]}


# ---- time ----

def wait():
    if GPU:
        torch.cuda.synchronize()


class Series:
    """A call for each copy, in one CUDA graph."""

    def __init__(self, calls):
        self.calls = calls
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            self.y = calls[0]()
        torch.cuda.current_stream().wait_stream(side)
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for call in calls:
                self.y = call()
        self.seconds(2)
        self.replays = max(1, math.ceil(REPLAYS_S / (len(calls) * self.seconds(2))))

    def seconds(self, replays=None):
        """Of a call, on the device."""
        replays = replays or self.replays
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        for _ in range(replays):
            self.graph.replay()
        end.record()
        end.synchronize()
        return begin.elapsed_time(end) * 1e-3 / (replays * len(self.calls))


class Loop:
    """Without a GPU: the same calls, one after the other."""

    def __init__(self, calls):
        self.calls, self.y = calls, calls[-1]()

    def seconds(self):
        return wall(self.calls, len(self.calls))


def wall(calls, count):
    """Seconds of a call, from the first to the device's end of the last."""
    wait()
    begin = time.perf_counter()
    for call in itertools.islice(itertools.cycle(calls), count):
        call()
    wait()
    return (time.perf_counter() - begin) / count


def medians(measures):
    """Of each in turn, round by round, whoever is first moving on."""
    samples, names = {name: [] for name in measures}, list(measures)
    for r in range(options.rounds):
        for name in names[r % len(names):] + names[:r % len(names)]:
            samples[name].append(measures[name]())
    return {name: statistics.median(taken) for name, taken in samples.items()}


# ---- cases ----

def off(y, want):
    return float((y.float() - want.float()).norm() / want.float().norm())


def check(shape, sides, x, w):
    """Exits if a side has computed something else. w: codes and scales."""
    codes = {"ours": exact_per_token(x), "pair": compiled_per_token(x)}
    codes["pair_fast"] = codes["pair"]
    for name, of in codes.items():
        own = 0.01 if name == "pair_fast" else 2**-8
        for want, y, most in (("its own product", product(*of, *w), own), ("bf16", sides["bf16"].y, 0.06)):
            found = off(sides[name].y, y)
            if not found < most:
                sys.exit(f"python_peers_cuda: {shape}: {name} is {found:.3g} off {want}, at most {most} is right")


def words(times, unit="us"):
    return " ".join(f"{name}_{unit}={seconds * 1e6:.4g}" for name, seconds in times.items())


def case(weights, m, n, k):
    """Times of the peers over ours."""
    x = torch.randn(m, k, device=DEVICE, dtype=torch.bfloat16)
    sides = {name: (Series if GPU else Loop)(calls) for name, calls in weights.calls(x).items()}
    check(f"{m}x{n}x{k}", sides, x, weights.fp8[0])
    times = medians({name: side.seconds for name, side in sides.items()})
    ratios = {name: times[name] / times["ours"] for name in SIDES[1:]}
    line = f"bench python_peers_cuda shape={m}x{n}x{k} copies={weights.copies} {words(times)} "
    line += " ".join(f"{name}_vs_ours={ratio:.3g}" for name, ratio in ratios.items())
    if m == 1:
        host = weights.host_calls(x)
        for calls in host.values():
            wall(calls, len(calls))
        line += " " + words(medians({name: functools.partial(wall, calls, CALLS) for name, calls in host.items()}), "host_us")
    print(line, flush=True)
    return ratios


def means(what, cases):
    if cases:
        print(f"bench python_peers_cuda {what} cases={len(cases)} "
              + " ".join(f"{name}_vs_ours={statistics.geometric_mean(c[name] for c in cases):.3g} "
                         f"least={min(c[name] for c in cases):.3g}" for name in SIDES[1:]), flush=True)


@torch.inference_mode()
def main():
    begin, rows = time.perf_counter(), list(map(int, options.m.split(",")))
    asked, results = [(n, k, m) for n, k in layers() for m in rows], []
    torch._dynamo.config.recompile_limit = len(asked) + 1  # a graph for each shape
    name = torch.cuda.get_device_name(DEVICE).replace(" ", "_") if GPU else "cpu"
    print(f"bench python_peers_cuda device={name} torch={torch.__version__} fp8={fp8.__version__} rounds={options.rounds} "
          f"cases={len(asked)}", flush=True)
    for (n, k), group in itertools.groupby(asked, key=lambda a: a[:2]):
        weights = None  # the last ones go before these come
        weights = Weights(n, k)
        for _, _, m in group:
            if time.perf_counter() - begin < options.seconds:
                results.append((m, case(weights, m, n, k)))
    if len(results) < len(asked):
        print(f"bench python_peers_cuda left_out={len(asked) - len(results)} of {len(asked)}: {options.seconds:g} s were over")
    for m in rows:
        means(f"m={m}", [ratios for at, ratios in results if at == m])
    means("all", [ratios for _, ratios in results])


main()
