# SPDX-License-Identifier: Apache-2.0
"""Y[M,N] = X[M,K] W[N,K]^T + bias[N] on numpy arrays and torch tensors, by a prepared weight or in one call; on CUDA in
PyTorch's current stream.

For PyTorch modules see nn.py, which holds a Linear and calls it through an operator.
"""
from __future__ import annotations

import ctypes
import weakref
from typing import Any

from . import _c, arrays, context as contexts
from ._c import Activation, Dtype, NanPolicy, QuantizeDesc
from .context import Place
from .errors import call, exception
from .numbers import GridLike, grid_of
from .schemes import linear_desc


def matmul(x: Any, w: Any, w_scales: Any = None, bias: Any = None, *, x_scales: Any = None, w_grid: GridLike = (0, 0),
           x_grid: GridLike = (1, 0), desc: _c.LinearDesc | None = None, code: Any = "float8_e4m3fn", out: Any = None,
           context: contexts.Context | None = None) -> Any:
    """y[M,N] = x[M,K] w[N,K]^T + bias[N] in one call that prepares nothing.

    w: codes with w_scales, a scale for each block of w_grid. x: codes with x_scales for blocks of x_grid, or high precision,
    which stays so. desc: says all that instead, for what else the library can do. uint8 arrays are taken for `code`.
    out: dtype of y; None = x's, bfloat16 for codes. Errors: TypeError, ValueError, NotImplementedError, MemoryError."""
    code = arrays.dtype_of(code)
    if desc is None:
        desc = _c.LinearDesc(activation=Activation.NONE if x_scales is None else Activation.CODES,
                             x=QuantizeDesc(grid=grid_of(x_grid), nan=NanPolicy.PROPAGATE),
                             w=QuantizeDesc(grid=grid_of(w_grid)))
    at = Place(x, context)
    xv, wv = at.view(x, code), at.view(w, code)
    if xv.ndim != 2 or wv.ndim != 2:
        raise ValueError(f"x and w have {xv.ndim} and {wv.ndim} dimensions, must be matrices")
    dtype = arrays.dtype_of(out) if out is not None else Dtype.BF16 if xv.dtype in arrays.ONE_BYTE else Dtype(xv.dtype)
    y = arrays.empty_like(x, (xv.shape[0], wv.shape[0]), dtype)
    at.wait()
    call("fp8_matmul", at.handle, ctypes.byref(desc), ctypes.byref(xv), at.optional(x_scales, Dtype.E8M0FNU), ctypes.byref(wv),
         at.optional(w_scales, Dtype.E8M0FNU), at.optional(bias), ctypes.byref(at.view(y)), at.stream)
    return y


class Linear:
    """A weight prepared for the processor, with its scales and bias. Immutable; threads may share it.

    w[N,K]: high precision, quantized on the way by `scheme` and `rule`; or codes with w_scales as `scheme` has them.
    bias[N]: fp32, bf16, fp16 or None. Both are copied. desc: instead of scheme and rule.
    Errors: TypeError, ValueError, NotImplementedError, MemoryError."""

    def __init__(self, w: Any, w_scales: Any = None, bias: Any = None, *, scheme: str = "channel", rule: str = "vllm",
                 desc: _c.LinearDesc | None = None, code: Any = "float8_e4m3fn",
                 context: contexts.Context | None = None) -> None:
        at = Place(w, context)
        self.context = at.context
        self.desc = desc or linear_desc(scheme, rule)
        handle = ctypes.c_void_p()
        at.wait()
        call("fp8_linear_create", at.handle, ctypes.byref(self.desc), ctypes.byref(at.view(w, arrays.dtype_of(code))),
             at.optional(w_scales, Dtype.E8M0FNU), at.optional(bias), ctypes.byref(handle))
        self._own(handle)

    def _own(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        self.info = _c.LinearInfo()
        _c.lib.fp8_linear_get_info(handle, ctypes.byref(self.info))
        self.finalizer = weakref.finalize(self, _free, handle, self.context)
        self.finalizer.atexit = False

    def clone(self) -> Linear:
        """A deep copy. Errors: MemoryError."""
        handle, made = ctypes.c_void_p(), object.__new__(Linear)
        made.context, made.desc = self.context, self.desc
        call("fp8_linear_clone", self.handle, ctypes.byref(handle))
        made._own(handle)
        return made

    def __reduce__(self) -> Any:
        raise TypeError("a Linear is of its process and cannot be pickled: export its codes and scales, or clone it")

    def export(self, like: Any) -> tuple[Any, Any]:
        """codes[N,K] and scales, bit for bit, as new arrays of the package that `like` is of, and where it is."""
        info, at = self.info, Place(like, self.context)
        at.wait()
        codes = arrays.empty_like(like, (info.n, info.k), Dtype(info.code))
        scales = arrays.empty_like(like, (info.scale_rows, info.scale_cols), Dtype(info.scale))
        call("fp8_linear_export", self.handle, ctypes.byref(at.view(codes, Dtype(info.code))),
             ctypes.byref(at.view(scales, Dtype(info.scale))))
        return codes, scales

    @property
    def nbytes(self) -> int:
        """Bytes held for codes, scales, bias and the rest."""
        return self.info.code_bytes + self.info.scale_bytes + self.info.other_bytes

    def __call__(self, x: Any, x_scales: Any = None, *, out: Any = None) -> Any:
        """y[M,N] for x[M,K]: high precision, or codes with x_scales where the description says so. out: dtype of y; None =
        x's, bfloat16 for codes. Errors: TypeError, ValueError, MemoryError."""
        at = Place(x, self.context)
        xv = at.view(x, Dtype.E4M3FN)
        if xv.ndim != 2:
            raise ValueError(f"x has {xv.ndim} dimensions, must be a matrix")
        dtype = arrays.dtype_of(out) if out is not None else Dtype.BF16 if xv.dtype in arrays.ONE_BYTE else Dtype(xv.dtype)
        y = arrays.empty_like(x, (xv.shape[0], self.info.n), dtype)
        self._run("fp8_linear_run", at, xv, at.view(y), at.optional(x_scales, Dtype.E8M0FNU))
        return y

    def gradient(self, dy: Any) -> Any:
        """dx[M,K] = dy[M,N] W: the gradient for the input. Errors: as a call."""
        at = Place(dy, self.context)
        dyv = at.view(dy)
        if dyv.ndim != 2:
            raise ValueError(f"dy has {dyv.ndim} dimensions, must be a matrix")
        dx = arrays.empty_like(dy, (dyv.shape[0], self.info.k), Dtype(dyv.dtype))
        self._run("fp8_linear_run_dx", at, dyv, at.view(dx))
        return dx

    def _run(self, function: str, at: Place, source: _c.Tensor, result: _c.Tensor, *scales: Any) -> None:
        size, error = ctypes.c_uint64(), _c.Error()
        call("fp8_linear_workspace", self.handle, source.shape[0], ctypes.byref(size))
        _owner, workspace = at.memory(size.value)
        if getattr(_c.lib, function)(self.handle, ctypes.byref(source), *scales, ctypes.byref(result), workspace, size,
                                     at.stream, ctypes.byref(error)):
            raise exception(error)


def _free(handle: ctypes.c_void_p, context: contexts.Context) -> None:
    """The context is an argument so that it is freed after the linear."""
    _c.lib.fp8_linear_free(handle)
