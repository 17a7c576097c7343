# SPDX-License-Identifier: Apache-2.0
"""How a layer is quantized, by the names that options and docs use. The table of schemes is the library's."""
from __future__ import annotations

import ctypes
import functools

from . import _c
from ._c import Rule
from .errors import call
from .numbers import GridLike, rule_of


@functools.cache
def linear_desc(scheme: str, rule: str | Rule = Rule.VLLM) -> _c.LinearDesc:
    """The description, not to be changed, of a linear of a scheme, quantized by a rule: X at each call, W once.
    ValueError with the choices if there is no such scheme or rule."""
    desc = _c.LinearDesc()
    call("fp8_online_linear", str(scheme).encode(), 0, ctypes.byref(desc))
    desc.w.rule = desc.x.rule = rule_of(rule)
    return desc


def weight_grid(scheme: str) -> GridLike:
    """The block of a scale of W[N,K], an extent of 0 is the whole one."""
    grid = linear_desc(scheme).w.grid
    return grid.rows, grid.cols
