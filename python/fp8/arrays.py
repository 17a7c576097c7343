# SPDX-License-Identifier: Apache-2.0
"""Views of numpy arrays and torch tensors, and new ones like them. Neither package is imported until one is handed in.

numpy has no FP8 and no bfloat16: codes are uint8 arrays there (a uint8 array is read as codes of the dtype that the call
names), bfloat16 arrays are those of ml_dtypes.
"""
from __future__ import annotations

from typing import Any

from . import _c
from ._c import Dtype

# The names that numpy, ml_dtypes and torch share.
_BY_NAME = {
    "float32": Dtype.F32, "float16": Dtype.F16, "bfloat16": Dtype.BF16, "float8_e4m3fn": Dtype.E4M3FN,
    "float8_e4m3fnuz": Dtype.E4M3FNUZ, "float8_e5m2": Dtype.E5M2, "float8_e5m2fnuz": Dtype.E5M2FNUZ,
    "float8_e8m0fnu": Dtype.E8M0FNU, "float64": Dtype.F64, "uint8": Dtype.U8,
}
NAMES = {dtype: name for name, dtype in _BY_NAME.items()}
ONE_BYTE = (Dtype.E4M3FN, Dtype.E4M3FNUZ, Dtype.E5M2, Dtype.E5M2FNUZ, Dtype.E8M0FNU)


def dtype_of(dtype: Any) -> Dtype:
    """The library's dtype for a name ("float8_e4m3fn"), a torch.dtype or a numpy dtype. TypeError if there is none."""
    if isinstance(dtype, Dtype):
        return dtype
    name = dtype if isinstance(dtype, str) else getattr(dtype, "name", None) or getattr(dtype, "__name__", str(dtype))
    try:
        return _BY_NAME[name.removeprefix("torch.")]
    except KeyError:
        raise TypeError(f"dtype {dtype} is none of {', '.join(_BY_NAME)}") from None


def is_torch(array: Any) -> bool:
    return type(array).__module__.partition(".")[0] == "torch" or hasattr(array, "data_ptr")


def _struct(pointer: int, dtype: Dtype, shape: Any, stride: Any) -> _c.Tensor:
    if len(shape) > _c.MAX_DIMS:
        raise ValueError(f"array has {len(shape)} dimensions, at most {_c.MAX_DIMS} are taken")
    view = _c.Tensor(data=pointer, dtype=dtype, ndim=len(shape))
    view.shape[:len(shape)] = shape
    view.stride[:len(shape)] = stride
    return view


def _torch_view(tensor: Any, on_cuda: bool) -> _c.Tensor:
    if tensor.device.type != ("cuda" if on_cuda else "cpu"):
        raise NotImplementedError(f"tensor is on {tensor.device}, must be on {'CUDA' if on_cuda else 'the CPU'}")
    if str(tensor.layout) != "torch.strided":
        raise TypeError(f"tensor has layout {tensor.layout}, must be torch.strided")
    return _struct(tensor.data_ptr(), dtype_of(tensor.dtype), tuple(tensor.shape), tensor.stride())


def no_array(thing: Any) -> TypeError:
    """What to raise if `thing` is neither a numpy array nor a torch tensor."""
    kind = f"{type(thing).__module__.partition('.')[0]}.{type(thing).__name__}".removeprefix("builtins.")
    other = "; torch.from_dlpack makes a tensor of it that shares its memory" if hasattr(thing, "__dlpack__") else ""
    return TypeError(f"expected a numpy array or a torch tensor, got {kind}{other}")


def _numpy_view(array: Any) -> _c.Tensor:
    if not hasattr(array, "__array_interface__"):
        raise no_array(array)
    if not array.dtype.isnative:
        raise TypeError(f"array's dtype {array.dtype.str} is of the other byte order")
    size = array.itemsize
    if any(step % size for step in array.strides):
        raise ValueError(f"array's strides {array.strides} are no multiples of its item's {size} bytes")
    return _struct(array.ctypes.data, dtype_of(array.dtype), array.shape, [step // size for step in array.strides])


def view(array: Any, uint8: Dtype | None = None, *, on_cuda: bool = False) -> _c.Tensor:
    """A view of `array`, which must outlive it; uint8 elements are taken to be of the dtype `uint8`, if given. on_cuda: it is a
    tensor there, and not on the CPU.

    Errors: TypeError (no array, unknown dtype), ValueError (strides, dimensions), NotImplementedError (elsewhere)."""
    made = _torch_view(array, on_cuda) if is_torch(array) else _numpy_view(array)
    if made.dtype == Dtype.U8 and uint8 is not None:
        made.dtype = uint8
    return made


def empty_like(array: Any, shape: tuple[int, ...], dtype: Dtype) -> Any:
    """A new array of the package that `array` is of. Codes are uint8 for numpy."""
    if is_torch(array):
        import torch

        return torch.empty(shape, dtype=getattr(torch, NAMES[dtype]), device=array.device)
    import numpy

    if dtype in ONE_BYTE:
        return numpy.empty(shape, numpy.uint8)
    if dtype == Dtype.BF16:
        import ml_dtypes  # the package with numpy's bfloat16

        return numpy.empty(shape, ml_dtypes.bfloat16)
    return numpy.empty(shape, NAMES[dtype])
