# SPDX-License-Identifier: Apache-2.0
"""vLLM's FP8 helpers under their own names, for those who port code that calls them: on the CPU, by libfp8.

Names, arguments and results are those of vLLM's w8a8_utils, fp8_utils, deep_gemm utilities and _custom_ops, Fp8LinearOp those
of its older releases; so are the numbers, but where docs/numerics.md calls the original's defective. Weights of the *_scaled_mm
functions and of Fp8LinearOp are [K,N] views of [N,K] storage, scales multiply. Errors: TypeError, ValueError,
NotImplementedError for what the original asserts.
"""
from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _c, arrays, numbers, ops
from ._c import Activation, Dtype, Epilogue, Grid, KernelClass, NanPolicy, QuantizeDesc
from .errors import call
from .linear import matmul
from .numbers import dequantize

FP8 = torch.float8_e4m3fn
# Rows that inputs of torch._scaled_mm are padded to: it is faster from 17 on.
_PADDED_ROWS = 17


class GroupShape(NamedTuple):
    """The extent of a scale's block; -1 = the whole."""

    row: int
    col: int


GroupShape.PER_TENSOR = GroupShape(-1, -1)  # type: ignore[attr-defined]
GroupShape.PER_TOKEN = GroupShape(1, -1)  # type: ignore[attr-defined]
GroupShape.PER_CHANNEL = GroupShape(-1, 1)  # type: ignore[attr-defined]


# ---- quantizers ----
def _quantize(x: Tensor, grid: tuple[int, int], rule: str = "vllm", **options: Any) -> tuple[Tensor, Tensor]:
    return numbers.quantize(x, grid, rule=rule, nan="original", context=ops.context, **options)


def _of(scale: Tensor, rows: int, cols: int) -> Tensor:
    """A column of scales of a matrix [rows, cols]; of one without elements there are none."""
    return scale.reshape(-1, 1)[:rows, :cols]


def _static_grid(x: Tensor, scale: Tensor, group_shape: Sequence[int] | None) -> tuple[tuple[int, int], Tensor]:
    """The grid that a given scale has on x[M,K], and the scale as a matrix."""
    if scale.numel() == 1 and scale.dim() < 2:
        return (0, 0), _of(scale, *x.shape)
    if scale.dim() == 1:
        if group_shape is None or tuple(group_shape) not in ((-1, 1), (1, -1)):
            raise ValueError(f"scale has shape {list(scale.shape)}: group_shape must say whether (-1, 1) or (1, -1)")
        channel = tuple(group_shape) == (-1, 1)
        return ((0, 1), scale.reshape(1, -1)) if channel else ((1, 0), scale.reshape(-1, 1))
    if scale.dim() != 2 or any(s == 0 or n % s for n, s in zip(x.shape, scale.shape)):
        raise ValueError(f"scale has shape {list(scale.shape)}, which does not divide x {list(x.shape)}")
    return (x.shape[0] // scale.shape[0], x.shape[1] // scale.shape[1]), scale


def scaled_fp8_quant(input: Tensor, scale: Tensor | None = None, num_token_padding: int | None = None,
                     scale_ub: Tensor | None = None, use_per_token_if_dynamic: bool = False, output: Tensor | None = None,
                     group_shape: Sequence[int] | None = None) -> tuple[Tensor, Tensor]:
    """codes[max(M, num_token_padding), K] and their scale, of input[M,K]: by `scale` if given; else a scale for a token
    ([M,1], its amax at most scale_ub) or for all ([1])."""
    rows = max(num_token_padding or 0, input.shape[0])
    if output is not None and (num_token_padding is not None or output.shape != input.shape or output.dtype != FP8):
        raise ValueError("output must have input's shape and dtype float8_e4m3fn, and goes with no padding")
    if scale is not None:
        grid, matrix = _static_grid(input, scale, group_shape)
        codes, _ = _quantize(input, grid, scales=matrix, rows=rows)
    elif use_per_token_if_dynamic:
        codes, scale = _quantize(input, (1, 0), scale_ub=0.0 if scale_ub is None else float(scale_ub), rows=rows)
    else:
        codes, matrix = _quantize(input, (0, 0), rows=rows)
        scale = matrix.reshape(1) if matrix.numel() else torch.ones(1, dtype=torch.float32)
    return (codes if output is None else output.copy_(codes)), scale


def per_block_cast_to_fp8(x: Tensor, block_size: Sequence[int] = (128, 128), use_ue8m0: bool = False) -> tuple[Tensor, Tensor]:
    """codes and scales[ceil(M/b), ceil(K/c)] of x[M,K], amax at least 1e-4."""
    return _quantize(x, (block_size[0], block_size[1]), pow2=use_ue8m0)


def per_token_group_quant_fp8(x: Tensor, group_size: int, eps: float = 1e-10, dtype: torch.dtype | None = None,
                              column_major_scales: bool = False, tma_aligned_scales: bool = False, out_q: Tensor | None = None,
                              use_ue8m0: bool | None = None) -> tuple[Tensor, Tensor]:
    """codes of x[..,K] and scales[.., K/group_size]. column_major_scales: a column's scales are adjacent, with
    tma_aligned_scales from one multiple of 4 to the next. Errors: ValueError if K is not in groups or out_q is of another
    shape or dtype, NotImplementedError for another eps than 1e-10."""
    if eps != 1e-10:
        raise NotImplementedError(f"eps={eps}, only 1e-10 is supported")
    if x.shape[-1] % group_size:
        raise ValueError(f"the last dimension of x {list(x.shape)} must be a multiple of group_size={group_size}")
    dtype = dtype or FP8
    if out_q is not None and (out_q.shape != x.shape or out_q.dtype != dtype):
        raise ValueError(f"out_q is {out_q.dtype} {list(out_q.shape)}, must be {dtype} {list(x.shape)}")
    codes, scales = _quantize(x.reshape(-1, x.shape[-1]), (1, group_size), code=dtype, pow2=bool(use_ue8m0))
    codes, scales = codes.reshape(x.shape), scales.reshape(*x.shape[:-1], x.shape[-1] // group_size)
    if column_major_scales and x.dim() > 1:
        *batch, rows, groups = scales.shape
        stored = scales.new_zeros((*batch, groups, -(-rows // 4) * 4 if tma_aligned_scales else rows))
        scales = stored[..., :rows].transpose(-1, -2).copy_(scales)
    return (codes if out_q is None else out_q.copy_(codes)), scales


def input_to_float8(x: Tensor, dtype: torch.dtype | None = None) -> tuple[Tensor, Tensor]:
    """codes of x, of any shape, and one scale, 0-D."""
    codes, scale = _quantize(x.reshape(1, -1), (0, 0), rule="vllm-input-to-float8", code=dtype or FP8)
    return codes.reshape(x.shape), scale.reshape(())


# ---- scales of weights ----
def all_close_1d(x: Tensor) -> bool:
    """Whether every element of a vector is close to the first."""
    close = ctypes.c_int32()
    call("fp8_all_close_1d", ctypes.byref(arrays.view(x)), ctypes.byref(close))
    return bool(close.value)


def _fused(logical_widths: Sequence[int], half_scales: bool = False) -> _c.FusedDesc:
    widths = (ctypes.c_int64 * len(logical_widths))(*logical_widths)
    return _c.FusedDesc(widths=widths, width_count=len(logical_widths), scale_math=Dtype.F16 if half_scales else Dtype.F32)


def convert_to_channelwise(weight_scale: Tensor, logical_widths: Sequence[int]) -> Tensor:
    """scales[sum(logical_widths), 1] in fp32: each row gets the scale of its part, of weight_scale[parts] or [parts, 1]."""
    made = torch.empty((sum(logical_widths), 1), dtype=torch.float32)
    scales = (weight_scale.squeeze(1) if weight_scale.dim() == 2 else weight_scale).float()
    call("fp8_channelwise_scales", ctypes.byref(_fused(logical_widths)), ctypes.byref(arrays.view(scales)),
         ctypes.byref(arrays.view(made)))
    return made


def per_tensor_dequantize(tensor: Tensor, inv_scale: float | Tensor) -> Tensor:
    """codes * scale in fp16; in fp32 if the scale is a vector of one. inv_scale: the multiplier, whatever its name says."""
    scale = torch.as_tensor(inv_scale, dtype=None if isinstance(inv_scale, Tensor) else torch.float32)
    if scale.dim() == 0 and scale.dtype == torch.float64:
        scale = scale.float()  # as PyTorch takes a scalar
    if scale.numel() != 1:
        raise ValueError(f"inv_scale has shape {list(scale.shape)}, must be one number")
    dtype = torch.float16 if scale.dim() == 0 else torch.promote_types(torch.float16, scale.dtype)
    y = dequantize(tensor.reshape(1, -1), _of(scale, 1, tensor.numel()), dtype=dtype, context=ops.context)
    return y.reshape(tensor.shape)


def requantize_with_max_scale(weight: Tensor, weight_scale: Tensor, logical_widths: Sequence[int]) -> tuple[Tensor, Tensor]:
    """The largest scale, 0-D, and weight[N,K], whose codes are brought to it in place; a weight that is fused on disk, of which
    only the first scale came, stays as it is."""
    most, codes = ctypes.c_float(), arrays.view(weight)
    call("fp8_requantize_with_max_scale", ctypes.byref(_fused(logical_widths)), ctypes.byref(codes),
         ctypes.byref(arrays.view(weight_scale)), ctypes.byref(codes), ctypes.byref(most))
    return torch.tensor(most.value, dtype=torch.float32), weight


def normalize_e4m3fn_to_e4m3fnuz(weight: Tensor, weight_scale: Tensor,
                                 input_scale: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """weight, changed in place, as float8_e4m3fnuz; and new scales, doubled."""
    # Contiguous, for a matrix that were a copy of them would be gone before it is written to.
    scales = [None if s is None else s.clone(memory_format=torch.contiguous_format) for s in (weight_scale, input_scale)]
    views = [None if s is None else arrays.view(s.reshape(1, -1)) for s in scales]
    matrix = weight.reshape(1, -1) if weight.is_contiguous() else weight
    call("fp8_normalize_e4m3fn_to_e4m3fnuz", ctypes.byref(arrays.view(matrix)),
         *(None if v is None else ctypes.byref(v) for v in views))
    return weight.view(torch.float8_e4m3fnuz), scales[0], scales[1]  # type: ignore[return-value]


def requant_weight_ue8m0_inplace(weight: Tensor, weight_scale: Tensor, block_size: Sequence[int] = (128, 128)) -> None:
    """weight[..,N,K] and its scales, in place, to scales that are powers of two; of experts each for itself."""
    if weight.dim() > 2:
        if weight.shape[:-2] != weight_scale.shape[:-2]:
            raise ValueError(f"weight {list(weight.shape)} and weight_scale {list(weight_scale.shape)} differ in experts")
        for one, scale in zip(weight, weight_scale):
            requant_weight_ue8m0_inplace(one, scale, block_size)
        return
    grid = (block_size[0], block_size[1])
    codes, scales = numbers.requantize(weight, weight_scale, grid, grid, rule="vllm", pow2=True, context=ops.context)
    weight.copy_(codes)
    weight_scale.copy_(scales)


def validate_fp8_block_shape(layer: Any, input_size: int, output_size: int, input_size_per_partition: int,
                             output_partition_sizes: Sequence[int], block_size: Sequence[int]) -> None:
    """ValueError if vLLM does not load such a shard. layer: has tp_size, and perhaps allow_fp8_block_shape_mismatch."""
    widths = (ctypes.c_int64 * len(output_partition_sizes))(*output_partition_sizes)
    desc = _c.BlockShapeDesc(n=output_size, k=input_size, k_shard=input_size_per_partition, widths=widths,
                             width_count=len(widths), tp=getattr(layer, "tp_size", 1), block=Grid(*block_size),
                             allow_mismatch=getattr(layer, "allow_fp8_block_shape_mismatch", False))
    call("fp8_validate_block_shape", ctypes.byref(desc))


# ---- what the GPU at hand supports in vLLM ----
def _supports(feature: _c.GpuFeature) -> bool:
    if torch.version.cuda is None or not torch.cuda.is_available():
        return False
    major, minor = torch.cuda.get_device_capability()
    cuda_major, cuda_minor = (int(part) for part in torch.version.cuda.split(".")[:2])
    return bool(_c.lib.fp8_gpu_supports(feature, 10 * major + minor, 1000 * cuda_major + 10 * cuda_minor))


def cutlass_fp8_supported() -> bool:
    """Whether CUTLASS has FP8 kernels with scales per tensor, token and channel for the GPU."""
    return _supports(_c.GpuFeature.FP8)


def cutlass_block_fp8_supported() -> bool:
    """Whether it has them with scales for blocks."""
    return _supports(_c.GpuFeature.BLOCK_FP8)


def cutlass_group_gemm_supported() -> bool:
    """Whether it has grouped ones."""
    return _supports(_c.GpuFeature.GROUPED_GEMM)


def sparse_cutlass_supported() -> bool:
    """Whether it has 2:4-sparse ones."""
    return _supports(_c.GpuFeature.SPARSE_24)


def should_use_deepgemm_for_fp8_linear(output_dtype: torch.dtype, n: int, k: int) -> bool:
    """Whether DeepGEMM takes a weight [n,k] with outputs of the dtype."""
    return bool(_c.lib.fp8_deepgemm_supports_shape(n, k, arrays.dtype_of(output_dtype)))


# ---- products ----
TORCH_DEVICE_IDENTITY: Tensor | None = None


def maybe_create_device_identity() -> None:
    """There for its callers: no product here needs scales of one."""
    global TORCH_DEVICE_IDENTITY
    if TORCH_DEVICE_IDENTITY is None:
        TORCH_DEVICE_IDENTITY = torch.ones(1, dtype=torch.float32)


def _scaled_mm(epilogue: Epilogue, qinput: Tensor, weight: Tensor, out_dtype: torch.dtype, scale_a: Tensor, scale_b: Tensor,
               bias: Tensor | None, output_shape: Sequence[int]) -> Tensor:
    """y[output_shape] = (scale_a qinput[M,K]) (weight[K,N] scale_b) + bias. Rows that only pad qinput are cut off first."""
    rows, (cols, n) = math.prod(output_shape[:-1]), weight.shape
    a, b = (int(scale.numel() != 1) for scale in (scale_a, scale_b))
    desc = _c.LinearDesc(activation=Activation.CODES, x=QuantizeDesc(grid=Grid(a, 0), nan=NanPolicy.PROPAGATE),
                         w=QuantizeDesc(grid=Grid(b, 0)), epilogue=epilogue)
    y = matmul(qinput[:rows], weight.t(), _of(scale_b, n, cols), bias, x_scales=_of(scale_a, rows, cols), desc=desc,
               out=out_dtype, context=ops.context)
    return y.view(*output_shape)


def _product(name: str, epilogue: Epilogue, formula: str) -> Callable[..., Tensor]:
    def product(*, qinput: Tensor, weight: Tensor, out_dtype: torch.dtype, scale_a: Tensor, scale_b: Tensor,
                bias: Tensor | None, output_shape: Sequence[int], **kwargs: Any) -> Tensor:
        return _scaled_mm(epilogue, qinput, weight, out_dtype, scale_a, scale_b, bias, output_shape)

    product.__name__ = product.__qualname__ = name
    product.__doc__ = f"y[output_shape] = {formula}; scales for all or for a token, for all or for a channel."
    return product


_FUSED = "round(fma(scale_a, scale_b * sum, bias))"
cutlass_w8a8_scaled_mm = _product("cutlass_w8a8_scaled_mm", Epilogue.FUSED, _FUSED)
rocm_per_tensor_w8a8_scaled_mm = _product("rocm_per_tensor_w8a8_scaled_mm", Epilogue.FUSED, _FUSED)
torch_per_tensor_w8a8_scaled_mm = _product("torch_per_tensor_w8a8_scaled_mm", Epilogue.FUSED, _FUSED)
torch_per_token_w8a8_scaled_mm = _product("torch_per_token_w8a8_scaled_mm", Epilogue.FUSED, _FUSED)
torch_channelwise_w8a8_scaled_mm = _product("torch_channelwise_w8a8_scaled_mm", Epilogue.UNFUSED,
                                            "round((sum * scale_a) * scale_b + bias)")

_FUNCTIONS: dict[int, Callable[..., Tensor]] = {
    KernelClass.CUTLASS: cutlass_w8a8_scaled_mm,
    KernelClass.ROCM_PER_TENSOR: rocm_per_tensor_w8a8_scaled_mm,
    KernelClass.TORCH_PER_TENSOR: torch_per_tensor_w8a8_scaled_mm,
    KernelClass.TORCH_PER_TOKEN: torch_per_token_w8a8_scaled_mm,
    KernelClass.TORCH_CHANNELWISE: torch_channelwise_w8a8_scaled_mm,
}
# torch._scaled_mm takes a scale a row: PyTorch for ROCm 2.7 and later on gfx94x; vLLM asks that, we have no such device.
USE_ROWWISE_TORCH_SCALED_MM = False


def dispatch_w8a8_scaled_mm(cutlass_fp8_supported: bool, per_tensor_weights: bool, per_tensor_activations: bool,
                            use_per_token_if_dynamic: bool | None) -> Callable[..., Tensor]:
    """Which of the functions above vLLM calls."""
    desc = _c.DispatchDesc(cutlass_supported=cutlass_fp8_supported, per_tensor_weights=per_tensor_weights,
                           per_tensor_activations=per_tensor_activations, per_token_if_dynamic=bool(use_per_token_if_dynamic),
                           is_rocm=torch.version.hip is not None, has_rowwise=USE_ROWWISE_TORCH_SCALED_MM)
    chosen = ctypes.c_int()
    call("fp8_dispatch_scaled_mm", ctypes.byref(desc), ctypes.byref(chosen))
    return _FUNCTIONS[chosen.value]


def w8a8_block_fp8_matmul(A: Tensor, B: Tensor, As: Tensor, Bs: Tensor, block_size: Sequence[int],
                          output_dtype: torch.dtype = torch.float16) -> Tensor:
    """y[..,N] = A[..,K] B[N,K]^T of codes, As a scale for 1 x block_size[1], Bs one for a block."""
    x = A.reshape(-1, A.shape[-1])
    y = matmul(x, B, Bs, x_scales=As.reshape(x.shape[0], As.shape[-1]), x_grid=(1, block_size[1]),
               w_grid=(block_size[0], block_size[1]), out=output_dtype, context=ops.context)
    return y.reshape(*A.shape[:-1], B.shape[0])


class Fp8LinearOp:
    """apply(input, weight[K,N], weight_scale): quantizes the input and multiplies.

    Made as older vLLM (use_per_token_if_dynamic) or as its successor (act_quant_static, act_quant_group_shape) makes it.
    pad_output: inputs are padded to 17 rows, where CUTLASS is not used; None = True; results do not depend on it."""

    def __init__(self, cutlass_fp8_supported: bool | None = None, use_per_token_if_dynamic: bool = False,
                 pad_output: bool | None = None, *, act_quant_static: bool = False,
                 act_quant_group_shape: Sequence[int] | None = None) -> None:
        self.cutlass_fp8_supported = _supports(_c.GpuFeature.FP8) if cutlass_fp8_supported is None else cutlass_fp8_supported
        if act_quant_group_shape is not None:
            use_per_token_if_dynamic = not act_quant_static and tuple(act_quant_group_shape) == (1, -1)
        self.use_per_token_if_dynamic = use_per_token_if_dynamic
        self.output_padding = None if pad_output is False or torch.version.hip else _PADDED_ROWS

    def apply(self, input: Tensor, weight: Tensor, weight_scale: Tensor, out_dtype: torch.dtype | None = None,
              input_scale: Tensor | None = None, input_scale_ub: Tensor | None = None, bias: Tensor | None = None,
              use_per_token_if_dynamic: bool | None = None) -> Tensor:
        """y[..,N] = input[..,K] weight[K,N] + bias, in out_dtype, None = input's. input_scale: its static scale; without one
        a scale for a token, bounded by input_scale_ub, or for all. input may be codes with input_scale."""
        rows = input.reshape(-1, input.shape[-1])
        shape = [*input.shape[:-1], weight.shape[1]]
        per_token = self.use_per_token_if_dynamic if use_per_token_if_dynamic is None else use_per_token_if_dynamic
        if input.dtype == FP8:
            if self.cutlass_fp8_supported:
                raise TypeError("FP8 input to CUTLASS is not supported")
            if input_scale is None or out_dtype is None:
                raise ValueError("FP8 input needs input_scale and out_dtype")
            codes, scale = rows, input_scale
        else:
            codes, scale = scaled_fp8_quant(rows, input_scale, None if self.cutlass_fp8_supported else self.output_padding,
                                            input_scale_ub, per_token)
        multiply = dispatch_w8a8_scaled_mm(self.cutlass_fp8_supported, weight_scale.numel() == 1, scale.numel() == 1, per_token)
        return multiply(qinput=codes, weight=weight, out_dtype=out_dtype or input.dtype, scale_a=scale, scale_b=weight_scale,
                        bias=bias, input_2d=rows, output_shape=shape)
