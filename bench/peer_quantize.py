#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The other side of bench_quantize: the same formulas in PyTorch eager on the CPU, timed on demand.

    bench_quantize --peer "python3 bench/peer_quantize.py"

Prints its version, then for each line "CASE ROWS COLS THREADS" on stdin the seconds of one call.
A case is written as its authors write it: whole-tensor operations on a bf16 weight.
"""
import sys
import time

import torch

E4M3 = torch.float8_e4m3fn


def block(x):
    rows, cols = x.shape
    b = x.float().reshape(rows // 128, 128, cols // 128, 128)
    scale = b.abs().amax(dim=(1, 3), keepdim=True) / 448
    codes = (b / scale).clamp(-448, 448).to(E4M3)
    return codes.reshape(rows, cols), scale


def channel(x):
    w = x.float()
    scale = w.abs().amax(dim=1, keepdim=True) / 448
    return (w / scale).clamp(-448, 448).to(E4M3), scale


def tensor(x):
    w = x.float()
    scale = w.abs().amax() / 448
    return (w / scale).clamp(-448, 448).to(E4M3), scale


def mx(x):
    rows, cols = x.shape
    b = x.float().reshape(rows, cols // 32, 32)
    exponent = torch.ceil(torch.log2(b.abs().amax(dim=2, keepdim=True) / 448)).clamp(-127, 127)
    codes = (b * torch.exp2(-exponent)).clamp(-448, 448).to(E4M3)
    return codes.reshape(rows, cols), (exponent + 127).to(torch.uint8)


CASES = {"hf-block": block, "ct-channel": channel, "hf-tensor": tensor, "mxfp8": mx}
inputs = {}


def main():
    print(f"torch-{torch.__version__}-eager", flush=True)
    for line in sys.stdin:
        case, rows, cols, threads = line.split()
        shape = int(rows), int(cols)
        if shape not in inputs:
            inputs.clear()
            inputs[shape] = torch.randn(shape).to(torch.bfloat16)
        torch.set_num_threads(int(threads))
        start = time.perf_counter()
        with torch.inference_mode():
            CASES[case](inputs[shape])
        print(time.perf_counter() - start, flush=True)


main()
