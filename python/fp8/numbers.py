# SPDX-License-Identifier: Apache-2.0
"""Quantizing and dequantizing matrices, on numpy arrays and torch tensors; those on CUDA are computed there, in PyTorch's
current stream. docs/numerics.md has every formula."""
from __future__ import annotations

import ctypes
from typing import Any

from . import _c, arrays, context as contexts
from ._c import Dtype, Grid, NanPolicy, Rule
from .context import Place
from .errors import call

GridLike = tuple[int, int]


_RULES = {rule.name.lower().replace("_", "-"): rule for rule in Rule}


def rule_of(name: str | Rule) -> Rule:
    """The rule called "best", "vllm", "compressed-tensors" ..; ValueError with the choices if there is none."""
    if isinstance(name, Rule):
        return name
    if name not in _RULES:
        raise ValueError(f"invalid rule={name!r}; expected one of {', '.join(_RULES)}")
    return _RULES[name]


def _policy_of(name: str) -> NanPolicy:
    try:
        return NanPolicy[name.upper()]
    except KeyError:
        raise ValueError(f"invalid nan={name!r}; expected one of {', '.join(p.name.lower() for p in NanPolicy)}") from None


def grid_of(grid: GridLike) -> Grid:
    """The library's grid for a pair (rows, columns). TypeError if it is none."""
    try:
        rows, cols = grid
        return Grid(rows, cols)
    except (TypeError, ValueError):
        raise TypeError(f"grid is {grid!r}, must be two integers: rows and columns of a block, 0 = all") from None


def scale_shape(rows: int, cols: int, grid: GridLike) -> tuple[int, int]:
    """The shape of the scales of a matrix [rows, cols]; an extent of 0 is the whole one."""
    return tuple(-(-extent // (block or extent or 1)) for extent, block in zip((rows, cols), grid))  # type: ignore[return-value]


def _matrix_shape(array: Any, what: str) -> tuple[int, int]:
    if not hasattr(array, "shape"):
        raise arrays.no_array(array)
    shape = tuple(array.shape)
    if len(shape) != 2:
        raise ValueError(f"{what} has shape {list(shape)}, must be a matrix")
    return shape  # type: ignore[return-value]


def quantize(x: Any, grid: GridLike = (0, 0), *, rule: str | Rule = "best", code: Any = "float8_e4m3fn",
             scale: Any = "float32", scales: Any = None, nan: str = "refuse", pow2: bool = False, scale_ub: float = 0.0,
             rows: int | None = None, context: contexts.Context | None = None) -> tuple[Any, Any]:
    """codes[rows, C], scales[ceil(R/g), ceil(C/h)] = quantize(x[R, C]) with a scale for each block [g, h] = grid, 0 = all.

    scales given: they are used as they are. nan: "refuse", "propagate" or "original". pow2: scales rounded up to powers
    of two. scale_ub: bound on the amax, 0 = none. rows: rows of the result, R or more, zeros below x.
    Returns arrays of x's package. Errors: TypeError (dtypes), ValueError (shapes, scales, NaN in x),
    NotImplementedError (rule and grid do not go together), MemoryError."""
    shape = _matrix_shape(x, "x")
    desc = _c.QuantizeDesc(rule=rule_of(rule), grid=grid_of(grid), nan=_policy_of(nan), static_scales=scales is not None,
                           pow2_scales=pow2, scale_ub=scale_ub)
    code = arrays.dtype_of(code)
    if scales is None:
        scale = arrays.dtype_of(scale)
        scales = arrays.empty_like(x, scale_shape(*shape, grid), scale)
    codes = arrays.empty_like(x, (shape[0] if rows is None else rows, shape[1]), code)
    scale, at = arrays.dtype_of(scale), Place(x, context)
    call("fp8_quantize", at.handle, ctypes.byref(desc), ctypes.byref(at.view(x)), ctypes.byref(at.view(codes, code)),
         ctypes.byref(at.view(scales, scale)), at.stream)
    return codes, scales


def dequantize(codes: Any, scales: Any, grid: GridLike = (0, 0), *, dtype: Any = "float32", code: Any = "float8_e4m3fn",
               scale: Any = "float8_e8m0fnu", context: contexts.Context | None = None) -> Any:
    """y[R, C] = codes[R, C] * scales[ceil(R/g), ceil(C/h)], in fp32, rounded once to dtype. uint8 arrays are taken for
    `code` and `scale`. Errors: as quantize."""
    y = arrays.empty_like(codes, _matrix_shape(codes, "codes"), arrays.dtype_of(dtype))
    at = Place(codes, context)
    call("fp8_dequantize", at.handle, grid_of(grid), ctypes.byref(at.view(codes, arrays.dtype_of(code))),
         ctypes.byref(at.view(scales, arrays.dtype_of(scale))), ctypes.byref(at.view(y)), at.stream)
    return y


def requantize(codes: Any, scales: Any, grid: GridLike, to: GridLike, *, rule: str | Rule = "best",
               code: Any = "float8_e4m3fn", new_code: Any = "float8_e4m3fn", new_scale: Any = "float32",
               pow2: bool = False, context: contexts.Context | None = None) -> tuple[Any, Any]:
    """codes, scales = quantize(codes * scales) with the grid `to`, without a high-precision copy. Errors: as quantize."""
    shape = _matrix_shape(codes, "codes")
    desc = _c.QuantizeDesc(rule=rule_of(rule), grid=grid_of(to), pow2_scales=pow2)
    code, new_code, new_scale = (arrays.dtype_of(d) for d in (code, new_code, new_scale))
    out = arrays.empty_like(codes, shape, new_code)
    out_scales = arrays.empty_like(codes, scale_shape(*shape, to), new_scale)
    at = Place(codes, context)
    call("fp8_requantize", at.handle, grid_of(grid), ctypes.byref(at.view(codes, code)),
         ctypes.byref(at.view(scales, Dtype.E8M0FNU)), ctypes.byref(desc), ctypes.byref(at.view(out, new_code)),
         ctypes.byref(at.view(out_scales, new_scale)), at.stream)
    return out, out_scales
