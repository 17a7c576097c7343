# SPDX-License-Identifier: Apache-2.0
"""The place of a weight W[N,K] in a model, on numpy arrays and torch tensors: the library's layer (docs/layers.md).

It owns codes, scales and bias; the high-precision weight stays with whoever gave it. nn.py puts it into PyTorch modules.
"""
from __future__ import annotations

import contextlib
import ctypes
import functools
import weakref
from collections.abc import Iterator
from typing import Any

from . import _c, arrays, context as contexts
from ._c import Dtype, LayerState, LoadParam, SourcePolicy
from .errors import call
from .schemes import linear_desc


@functools.cache
def _desc(n: int, k: int, scheme: str, rule: str) -> _c.LayerDesc:
    """The description, not to be changed, of a layer that keeps no source."""
    return _c.LayerDesc(name=f"[{n},{k}]".encode(), n=n, k=k, linear=linear_desc(scheme, rule), source=SourcePolicy.DISCARD)


class Layer:
    """A layer of a scheme and a rule, without a weight at first. Threads may run it while one changes it.

    Errors: ValueError, NotImplementedError (a shape that the scheme does not take), MemoryError."""

    def __init__(self, n: int, k: int, *, scheme: str = "channel", rule: str = "vllm",
                 context: contexts.Context | None = None) -> None:
        self.n, self.k, self.scheme, self.rule = n, k, scheme, rule
        self.context = context or contexts.default()
        handle = ctypes.c_void_p()
        call("fp8_layer_create", self.context.handle, ctypes.byref(_desc(n, k, scheme, rule)), ctypes.byref(handle))
        self._own(handle)

    def _own(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        weakref.finalize(self, _free, handle, self.context).atexit = False

    @property
    def state(self) -> LayerState:
        return LayerState(self.info.state)

    @property
    def info(self) -> _c.LayerInfo:
        info = _c.LayerInfo()
        if _c.lib.fp8_layer_get_info(self.handle, ctypes.byref(info)):
            raise MemoryError("no memory to look at a layer")
        return info

    def _view(self, array: Any, uint8: Dtype | None = None) -> _c.Tensor:
        return arrays.view(array, uint8)

    def _optional(self, array: Any) -> Any:
        return None if array is None else ctypes.byref(self._view(array))

    def set_source(self, weight: Any, bias: Any = None) -> None:
        """Codes of weight[N,K] take the place of those that are there; so does the bias[N], or none.
        Errors: TypeError, ValueError, MemoryError; the layer is then as it was."""
        call("fp8_layer_set_source", self.handle, ctypes.byref(self._view(weight)), self._optional(bias), 0)

    def set_bias(self, bias: Any) -> None:
        """Another bias[N], or none, beside the codes. Errors: RuntimeError (no codes), TypeError, ValueError."""
        call("fp8_layer_set_bias", self.handle, self._optional(bias))

    def load(self, codes: Any, scales: Any) -> None:
        """Takes codes[N,K] and scales[rows, cols], as the scheme has them, and no bias. uint8 arrays are taken for E4M3 and
        E8M0. Errors: TypeError, ValueError, MemoryError; the layer is then as it was."""
        pieces = ((LoadParam.WEIGHT, codes, Dtype.E4M3FN), (LoadParam.SCALE, scales, Dtype.E8M0FNU))
        load, options = ctypes.c_void_p(), _c.LoadDesc()
        call("fp8_load_create", self.context.handle, ctypes.byref(options), ctypes.byref(load))
        try:
            call("fp8_load_add", load, self.handle)
            for param, array, uint8 in pieces:
                piece = _c.LoadPiece(param=param, data=self._view(array, uint8))
                call("fp8_load_write", load, self.handle, ctypes.byref(piece))
            call("fp8_load_finish", load)
        finally:
            _c.lib.fp8_load_free(load)

    def invalidate(self) -> None:
        """Forgets codes, scales and bias."""
        call("fp8_layer_invalidate", self.handle)

    @contextlib.contextmanager
    def _linear(self) -> Iterator[ctypes.c_void_p]:
        """What stands there, which does not change meanwhile. Errors: RuntimeError (nothing)."""
        linear = ctypes.c_void_p()
        call("fp8_layer_acquire", self.handle, 0, ctypes.byref(linear))
        try:
            yield linear
        finally:
            _c.lib.fp8_layer_release(self.handle)

    def export(self, like: Any) -> tuple[Any, Any]:
        """codes[N,K] and scales, bit for bit, as new arrays of the package that `like` is of. Errors: RuntimeError."""
        with self._linear() as linear:
            info = _c.LinearInfo()
            _c.lib.fp8_linear_get_info(linear, ctypes.byref(info))
            codes = arrays.empty_like(like, (info.n, info.k), Dtype(info.code))
            scales = arrays.empty_like(like, (info.scale_rows, info.scale_cols), Dtype(info.scale))
            call("fp8_linear_export", linear, ctypes.byref(self._view(codes, Dtype(info.code))),
                 ctypes.byref(self._view(scales, Dtype(info.scale))))
        return codes, scales

    def clone(self) -> Layer:
        """A deep copy. Errors: MemoryError."""
        made, handle = object.__new__(type(self)), ctypes.c_void_p()
        made.n, made.k, made.scheme, made.rule, made.context = self.n, self.k, self.scheme, self.rule, self.context
        call("fp8_layer_clone", self.handle, None, ctypes.byref(handle))
        made._own(handle)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Layer:
        return self.clone()


def _free(handle: ctypes.c_void_p, context: contexts.Context) -> None:
    """The context is an argument so that it is freed after the layer."""
    _c.lib.fp8_layer_free(handle)
