# SPDX-License-Identifier: Apache-2.0
"""The operators torch.ops.fp8.*: registered from C (python/operators), their shapes without data and their gradients here.

    quantize(x, rows, cols, rule, code, scale, pow2) -> (codes, scales)     a scale for each block [rows, cols], 0 = all
    dequantize(codes, scales, rows, cols, dtype) -> y
    scaled_mm(x, x_scales, x_rows, x_cols, w, w_scales, w_rows, w_cols, bias, dtype) -> y
    linear(x, handle, n) -> y[.., n]                                        handle: Layer(..).number
    linear_dx(dy, handle, k) -> dx[.., k]

They raise RuntimeError, as PyTorch's own do. Loops run on PyTorch's threads. On CUDA they go into PyTorch's current stream, and
may be captured into a graph, scaled_mm excepted, which waits; quantize does not look for NaN there.
"""
from __future__ import annotations

import ctypes
import functools
import io
import multiprocessing.context
import os
import pathlib
import weakref
from typing import Any

import torch

from . import _c, arrays, layer
from ._c import LayerState
from .context import Context
from .errors import call, exception


def _load() -> tuple[ctypes.CDLL, Context]:
    lib = ctypes.CDLL(str(pathlib.Path(_c.path).with_name("libfp8_torch.so")))
    lib.fp8_torch_handle_add.restype = ctypes.c_int64
    lib.fp8_torch_handle_add.argtypes = [ctypes.c_void_p, ctypes.c_int32]
    lib.fp8_torch_handle_remove.restype, lib.fp8_torch_handle_remove.argtypes = None, [ctypes.c_int64]
    folder = pathlib.Path(torch.__file__).parent / "lib"
    libraries = (str(folder / f"libtorch_{name}.so").encode() for name in ("cpu", "cuda"))
    loops, error = ctypes.c_void_p(), _c.Error()
    if lib.fp8_torch_find(*libraries, ctypes.byref(loops), ctypes.byref(error)):
        raise ImportError(error.msg.decode())
    threads = torch.get_num_threads()
    made = Context(threads, parallel_for=loops.value or 0)
    if lib.fp8_torch_register(made.handle, threads, ctypes.byref(error)):
        raise exception(error)
    return lib, made


_lib, context = _load()
_CPU = torch.device("cpu")


@functools.cache
def context_of(device: torch.device) -> Context:
    """The context of the operators on the CPU or on a CUDA device with an index. Errors: RuntimeError (no such device),
    NotImplementedError."""
    if device.type == "cpu":
        return context
    made, error = object.__new__(Context), _c.Error()
    made.handle, made.device = ctypes.c_void_p(), str(device)
    if _lib.fp8_torch_context(device.index, ctypes.byref(made.handle), ctypes.byref(error)):
        raise exception(error)
    return made


def use_tuned(path: str | os.PathLike[str], device: torch.device | str | int | None = None) -> None:
    """From now on all that runs on a CUDA device (None: PyTorch's current one) without a context of its own takes the kernels
    that a file of `fp8 tune` names. Before anything of fp8 has run there. Errors: RuntimeError (it has; no such device),
    NotImplementedError (the CPU), OSError, ValueError (a bad line of the file, or it was measured on another device)."""
    at, error = place("cuda" if device is None else device), _c.Error()
    if at.type == "cpu":
        raise NotImplementedError("use_tuned: only a GPU has kernels to choose, the device is cpu")
    if _lib.fp8_torch_use_tuned(at.index, os.fsencode(path), ctypes.byref(error)):
        raise exception(error)


def place(device: torch.device | str | int) -> torch.device:
    """The device with its index, None of which is the current one. NotImplementedError for other kinds than CPU and CUDA."""
    device = torch.device(device)
    if device.type == "cpu":
        return _CPU
    if device.type != "cuda":
        raise NotImplementedError(f"{device}: only the CPU and CUDA are supported")
    return device if device.index is not None else torch.device("cuda", torch.cuda.current_device())


layers: weakref.WeakSet[Layer] = weakref.WeakSet()  # all there are
linear = torch.ops.fp8.linear.default  # without the search for an overload


class Layer(layer.Layer):
    """A layer that operators may use: `number`, an int64 scalar, is what they take, the same for the layer's life."""

    made_of: Any = None  # what its user made the codes and the bias of; None: no codes
    device: torch.device  # where its codes are

    def __init__(self, n: int, k: int, *, scheme: str, rule: str = "vllm", device: torch.device = _CPU) -> None:
        self.device = device
        super().__init__(n, k, scheme=scheme, rule=rule, context=context_of(device))

    def _own(self, handle: ctypes.c_void_p) -> None:
        self.handle = handle
        number = _lib.fp8_torch_handle_add(handle, -1 if self.device.type == "cpu" else self.device.index)
        if not number:
            _c.lib.fp8_layer_free(handle)
            raise MemoryError("no memory for a layer's number")
        self.number = torch.tensor(number, device="cpu")
        layers.add(self)
        # From now on the table frees it, when no operator uses it.
        weakref.finalize(self, _lib.fp8_torch_handle_remove, number).atexit = False

    def _view(self, array: Any, uint8: Any = None) -> _c.Tensor:
        """Also of a tensor on the layer's device; what PyTorch has put into its current stream there is done then."""
        if self.device.type == "cpu" or array.device != self.device:
            return super()._view(array, uint8)
        torch.cuda.current_stream(self.device).synchronize()
        return arrays.view(array, uint8, on_cuda=True)

    def codes_and_scales(self) -> tuple[torch.Tensor, torch.Tensor]:
        """New tensors on the layer's device. Errors: RuntimeError (no codes)."""
        return self.export(torch.empty(0, device=self.device))

    def clone(self) -> Layer:
        return self.to(self.device)

    def to(self, device: torch.device) -> Layer:
        """A deep copy there. Errors: MemoryError, RuntimeError."""
        made, handle = object.__new__(type(self)), ctypes.c_void_p()
        made.n, made.k, made.scheme, made.rule = self.n, self.k, self.scheme, self.rule
        made.device, made.context = device, context_of(device)
        call("fp8_layer_clone", self.handle, made.context.handle, ctypes.byref(handle))
        made._own(handle)
        return made

    def __reduce__(self) -> tuple[Any, ...]:
        # As bytes, for pickle knows no FP8.
        made = self.codes_and_scales() if self.state == LayerState.READY else ()
        stored: Any = [(t.view(torch.uint8), t.dtype) for t in made]
        if multiprocessing.context.get_spawning_popen() is not None:
            # For a process that is being started: PyTorch would hand on the tensors' files, which close before it has begun.
            torch.save(stored, file := io.BytesIO())
            stored = file.getvalue()
        return _restored, (self.n, self.k, self.scheme, self.rule, stored)


def _restored(n: int, k: int, scheme: str, rule: str, stored: list[tuple[torch.Tensor, torch.dtype]] | bytes) -> Layer:
    if isinstance(stored, bytes):
        stored = torch.load(io.BytesIO(stored))
    made = Layer(n, k, scheme=scheme, rule=rule, device=stored[0][0].device if stored else _CPU)
    if stored:
        made.load(*(data.view(dtype) for data, dtype in stored))
    return made


@torch.library.register_fake("fp8::linear")
def _(x: torch.Tensor, handle: torch.Tensor, n: int) -> torch.Tensor:
    torch._check(x.dim() >= 1, lambda: "x has 0 dimensions, must have at least 1")
    return x.new_empty((*x.shape[:-1], n))


@torch.library.register_fake("fp8::linear_dx")
def _(dy: torch.Tensor, handle: torch.Tensor, k: int) -> torch.Tensor:
    return dy.new_empty((*dy.shape[:-1], k))


def _blocks(extent: int, block: int) -> int:
    return (extent + block - 1) // block if block else 1


@torch.library.register_fake("fp8::quantize")
def _(x: torch.Tensor, rows: int, cols: int, rule: int, code: torch.dtype, scale: torch.dtype,
      pow2: bool) -> tuple[torch.Tensor, torch.Tensor]:
    scales = x.new_empty((_blocks(x.shape[0], rows), _blocks(x.shape[1], cols)), dtype=scale)
    return x.new_empty(x.shape, dtype=code), scales


@torch.library.register_fake("fp8::dequantize")
def _(codes: torch.Tensor, scales: torch.Tensor, rows: int, cols: int, dtype: torch.dtype) -> torch.Tensor:
    return codes.new_empty(codes.shape, dtype=dtype)


@torch.library.register_fake("fp8::scaled_mm")
def _(x: torch.Tensor, x_scales: torch.Tensor, x_rows: int, x_cols: int, w: torch.Tensor, w_scales: torch.Tensor,
      w_rows: int, w_cols: int, bias: torch.Tensor | None, dtype: torch.dtype) -> torch.Tensor:
    return x.new_empty((x.shape[0], w.shape[0]), dtype=dtype)


def _keep_for_dx(ctx: object, inputs: tuple[torch.Tensor, torch.Tensor, int], output: torch.Tensor) -> None:
    x, ctx.handle, _n = inputs  # type: ignore[attr-defined]
    ctx.k = x.shape[-1]  # type: ignore[attr-defined]


def _dx(ctx: object, dy: torch.Tensor) -> tuple[torch.Tensor, None, None]:
    return torch.ops.fp8.linear_dx(dy, ctx.handle, ctx.k), None, None  # type: ignore[attr-defined]


def _no_second_derivative(ctx: object, ddx: torch.Tensor) -> tuple[None, None, None]:
    raise NotImplementedError("fp8::linear has no second derivatives: its gradient cannot be differentiated")


torch.library.register_autograd("fp8::linear", _dx, setup_context=_keep_for_dx)
torch.library.register_autograd("fp8::linear_dx", _no_second_derivative)
