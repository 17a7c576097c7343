# SPDX-License-Identifier: Apache-2.0
"""How a layer is quantized: its weight's and its activations' grids, by the names that options and docs use."""
from __future__ import annotations

import dataclasses
import functools

from . import _c
from ._c import Activation, Dtype, Grid, NanPolicy, QuantizeDesc, Rule
from .numbers import GridLike, rule_of


@dataclasses.dataclass(frozen=True)
class Scheme:
    """The blocks of a scale of W[N,K], those of X[M,K] (None: X stays in high precision), the dtype of all scales."""

    w_grid: GridLike
    x_grid: GridLike | None
    scale: Dtype = Dtype.F32


SCHEMES = {
    "tensor": Scheme((0, 0), (1, 0)),
    "channel": Scheme((1, 0), (1, 0)),
    "block": Scheme((128, 128), (1, 128)),
    "mxfp8": Scheme((1, 32), (1, 32), Dtype.E8M0FNU),
    "weight-only": Scheme((1, 0), None),
}


def scheme_of(name: str) -> Scheme:
    """ValueError with the choices if there is none called so."""
    if name not in SCHEMES:
        raise ValueError(f"invalid scheme={name!r}; expected one of {set(SCHEMES)}")
    return SCHEMES[name]


@functools.cache
def linear_desc(scheme: str, rule: str | Rule = Rule.VLLM) -> _c.LinearDesc:
    """The description, not to be changed, of a linear of a scheme, quantized by a rule: X at each call, W once."""
    facts, rule = scheme_of(scheme), rule_of(rule)
    desc = _c.LinearDesc(activation=Activation.NONE if facts.x_grid is None else Activation.DYNAMIC, w_scale=facts.scale,
                         x_scale=facts.scale)
    desc.w = QuantizeDesc(rule=rule, grid=Grid(*facts.w_grid))
    if facts.x_grid is not None:
        desc.x = QuantizeDesc(rule=rule, grid=Grid(*facts.x_grid), nan=NanPolicy.PROPAGATE)
    return desc
