#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What bounds a product: hardware counters by Nsight Compute, a line for each shape and kind.

    profile.py LIBRARY > counters.tsv        LIBRARY: library.cu, built

A line is of a graph of launches over cold weights. Under the profiler each waits for the one before, so
few rows take twice what they do in a chain; shares are of all cycles, so of such launches. Stalls are the
reasons for which a warp does not issue, shares of all warps' cycles, those of 4 % and more.
"""
import csv
import os
import subprocess
import sys
import tempfile

ROWS = {1: ["1280 8192", "4096 4096", "8192 8192"], 16: ["1280 8192", "4096 4096", "8192 8192"], 64: ["4096 4096"],
        256: ["4096 4096"], 1024: ["4096 4096"], 4096: ["4096 4096"]}
SHARE = ".avg.pct_of_peak_sustained_elapsed"
SHARES = {"tensor": "sm__pipe_tensor_cycles_active", "fp32": "sm__inst_executed_pipe_fma",
          "shared": "l1tex__data_pipe_lsu_wavefronts_mem_shared", "L2": "lts__throughput", "memory": "dram__throughput",
          "issue": "smsp__issue_active"}
TIME, CLOCK, READ = "gpu__time_duration.sum", "sm__cycles_elapsed.avg.per_second", "dram__bytes_read.sum.per_second"
ARRIVED = "l1tex__m_xbar2l1tex_read_bytes.avg.per_second"  # of one multiprocessor, from L2
STALL = "smsp__average_warps_issue_stalled_{}_per_issue_active.ratio"
STALLS = ["barrier", "branch_resolving", "dispatch_stall", "gmma", "lg_throttle", "long_scoreboard", "math_pipe_throttle",
          "membar", "mio_throttle", "no_instruction", "not_selected", "selected", "short_scoreboard", "sleeping", "wait"]


def profile(library, shapes):
    """[(the program's line of a range, {metric: value})]"""
    metrics = [TIME, CLOCK, READ, ARRIVED, *(name + SHARE for name in SHARES.values()), *map(STALL.format, STALLS)]
    done = subprocess.run(["ncu", "--graph-profiling", "graph", "--profile-from-start", "off", "--cache-control", "none",
                           "--clock-control", "none", "--csv", "--print-units", "base", "--metrics", ",".join(metrics),
                           library, "once", shapes], stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        sys.exit(done.stdout)
    lines = done.stdout.splitlines()
    found = {}
    for row in csv.DictReader(line for line in lines if line.startswith('"')):
        found.setdefault(int(row["ID"]), {})[row["Metric Name"]] = float(row["Metric Value"].replace(",", ""))
    return list(zip((line.split("\t")[1:] for line in lines if line.startswith("ONCE")), found.values(), strict=True))


def report(cell, value):
    rows, n, k, kind, launches = cell
    stalls = {name: value[STALL.format(name)] for name in STALLS}
    total = sum(stalls.values())
    worst = sorted((name for name in STALLS if stalls[name] >= 0.04 * total), key=stalls.get, reverse=True)
    print(f"{rows}x{n}x{k}", kind, f"{value[TIME] / 1e3 / int(launches):.2f}", f"{value[CLOCK] / 1e9:.2f}",
          *(f"{value[name + SHARE]:.0f}" for name in SHARES.values()), f"{value[READ] / 1e12:.2f}",
          f"{value[ARRIVED] / value[CLOCK]:.0f}", " ".join(f"{name} {100 * stalls[name] / total:.0f}" for name in worst),
          sep="\t")


def main():
    with tempfile.TemporaryDirectory() as folder:
        shapes = os.path.join(folder, "shapes")
        with open(shapes, "w", encoding="utf-8") as out:
            out.writelines(f"{rows} {layer} channel block\n" for rows, layers in ROWS.items() for layer in layers)
        cells = profile(os.path.realpath(sys.argv[1]), shapes)
    print("shape", "kind", "us", "GHz", *(f"{name} %" for name in SHARES), "TB/s", "bytes a clock and SM", "stalls %", sep="\t")
    for cell, value in cells:
        report(cell, value)


main()
