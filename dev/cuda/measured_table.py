#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes src/backend/cuda/measured.inc: of each layer and number of rows in results/library_sweep_CARD.tsv the fastest version
of the library's fast kernels; where results/tune_CARD.txt, what fp8 tune printed, has the layer, that counts instead, since it
times all versions that can do it; results/library_later_CARD.tsv counts before both, and alone for 9 to 16 rows, whose kernels
are others since. Run it after a sweep (README.md)."""

import collections
import pathlib
import re

HERE = pathlib.Path(__file__).resolve().parent
OUT = HERE / "../../src/backend/cuda/measured.inc"
FAST, CHANNEL, BLOCK = 0, 1, 2  # the column "kind" of a CASE line
WHOLE_CHANNEL, WHOLE_BLOCK = 3, 4  # these two from bf16
KINDS = {"fast": FAST, "channel": CHANNEL, "block": BLOCK, "whole_channel": WHOLE_CHANNEL, "whole_block": WHOLE_BLOCK}
ALLOWED = {"CHANNEL": (CHANNEL,), "BLOCK": (BLOCK,), "FAST": (FAST, CHANNEL),  # sums in fp32 do where those in 13 bits do
           "WHOLE_CHANNEL": (WHOLE_CHANNEL,), "WHOLE_BLOCK": (WHOLE_BLOCK,)}


def is_there(version):
    """Whether the library has it: of cuBLASLt's names none, of two blocks an SM only what registers leave room for, with scales
    of blocks up to 32 tokens."""
    small = re.fullmatch(r"small_([a-z_0-9]+)_(\d+)x(\d+)_\d+_2", version)
    most = 32 if small and "block" in small[1] else 64
    return not version.startswith("lt_") and (small is None or (int(small[2]) == 64 and int(small[3]) <= most))


def read(path):
    """The device, and {(n, k, m): [(kind, us, version)]} of our versions."""
    cells = collections.defaultdict(list)
    lines = path.read_text().splitlines()
    for line in lines:
        if not line.startswith("CASE\t"):
            continue
        m, n, k, version, kind, us = line.split("\t")[1:7]
        whole = version.startswith("2_") or "quantize" in version  # after a quantizer, or in one launch
        if is_there(version.removeprefix("2_")):
            cells[int(n), int(k), int(m)].append((int(kind) + 2 * whole, float(us), version.removeprefix("2_")))
    return lines[0].removeprefix("# ").split(",")[0], cells


def take_tuned(path, cells):
    """Replaces what `cells` has of the shapes and kinds in a file of fp8 tune's lines."""
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        if not line.startswith("tune "):
            continue
        fields = dict(word.split("=") for word in line.split()[1:])
        m, n, k = map(int, fields["shape"].split("x"))
        kind = KINDS.get(fields.get("kind") or {"gemm": "channel"}.get(fields["scheme"], fields["scheme"]))
        version = fields["kernel"].removeprefix("gemm_")
        if kind is None or not is_there(version):
            continue  # what the sweep does not time, or the library has no more: the model's choice
        others = [case for case in cells[n, k, m] if case[0] != kind]
        cells[n, k, m] = [*others, (kind, float(fields["us"]), version)]


def take_later(path, cells):
    """Replaces what `cells` has of the shapes and kinds of a later sweep that timed the former best, too."""
    later = read(path)[1] if path.exists() else {}
    for cell, cases in later.items():
        kinds = {case[0] for case in cases}
        cells[cell] = [*(case for case in cells[cell] if case[0] not in kinds), *cases]
    for cell in [cell for cell in cells if later and 8 < cell[2] <= 16 and cell not in later]:
        del cells[cell]


def rows(path):
    device, cells = read(path)
    take_tuned(path.with_name(path.name.replace("library_sweep_", "tune_")).with_suffix(".txt"), cells)
    take_later(path.with_name(path.name.replace("library_sweep_", "library_later_")), cells)
    for word, kinds in ALLOWED.items():
        for (n, k, m), times in sorted(cells.items()):
            able = [(us, version) for kind, us, version in times if kind in kinds]
            if able:
                us, version = min(able)
                yield f'MEASURED("{device}", {word}, {n}, {k}, {m}, {version}, {round(us * 1000)})\n'


HEAD = """/* SPDX-License-Identifier: Apache-2.0
 *
 * measured.inc - the fastest version of each layer that was measured, one line a device, kind of scales, N, K and M, and its
 * time in ns. Written by dev/cuda/measured_table.py; see tuned.h. */
"""

if __name__ == "__main__":
    files = sorted((HERE / "results").glob("library_sweep_*.tsv"))
    OUT.write_text(HEAD + "".join(row for path in files for row in rows(path)))
