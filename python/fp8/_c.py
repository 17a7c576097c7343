# SPDX-License-Identifier: Apache-2.0
"""include/fp8.h for ctypes: enumerations, structures and prototypes, in the header's order, and the library itself.

A field or an enumerator is added here when it is added there; tests/python/test_header.py compares the two by asking a
C compiler. Nothing is decided here: words and checks are the library's, exceptions are made in errors.py.
"""
from __future__ import annotations

import ctypes
import enum
import os
import pathlib
from ctypes import POINTER, c_char, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any

MAX_DIMS = 4
BATCH_INVARIANT = 1


# ---- 3. Status and errors ----
class Status(enum.IntEnum):
    OK = 0
    E_ARGUMENT = 1
    E_STATE = 2
    E_STOPPED = 3
    E_SHAPE = 10
    E_STRIDE = 11
    E_DTYPE = 12
    E_SCALE = 13
    E_NAN = 14
    E_UNSUPPORTED = 20
    E_NO_DEVICE = 21
    E_NO_KERNEL = 22
    E_DEVICE = 23
    E_FORMAT = 30
    E_TRUNCATED = 31
    E_NOT_FOUND = 32
    E_EXISTS = 33
    E_MISMATCH = 34
    E_IO = 40
    E_NO_SPACE = 41
    E_NO_MEMORY = 50


class Error(ctypes.Structure):
    _fields_ = [("code", c_int), ("os_errno", c_int), ("pos", c_int64), ("msg", c_char * 1024)]


# ---- 4. Dtypes ----
class Dtype(enum.IntEnum):
    DTYPE_NONE = 0
    F32 = 1
    F16 = 2
    BF16 = 3
    E4M3FN = 4
    E4M3FNUZ = 5
    E5M2 = 6
    E5M2FNUZ = 7
    E8M0FNU = 8
    F64 = 16
    C64 = 17
    BOOL = 18
    U8 = 19
    I8 = 20
    U16 = 21
    I16 = 22
    U32 = 23
    I32 = 24
    U64 = 25
    I64 = 26
    F4 = 27
    F6_E2M3 = 28
    F6_E3M2 = 29


# ---- 5. Tensors ----
class Tensor(ctypes.Structure):
    _fields_ = [("data", c_void_p), ("dtype", c_int), ("ndim", c_int32),
                ("shape", c_int64 * MAX_DIMS), ("stride", c_int64 * MAX_DIMS)]


# ---- 6. Context ----
class Allocator(ctypes.Structure):
    _fields_ = [("alloc", c_void_p), ("free", c_void_p), ("user", c_void_p)]


class _Sized(ctypes.Structure):
    """A descriptor: its first field is its size."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(struct_bytes=ctypes.sizeof(type(self)), **fields)


class Device(enum.IntEnum):
    CPU = 0
    CUDA = 1


class ContextDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("threads", c_int32), ("parallel_for", c_void_p),
                ("parallel_user", c_void_p), ("allocator", Allocator), ("flags", c_uint32), ("device", c_int),
                ("device_index", c_int32), ("tuned", c_char_p)]


# ---- 7. Quantize ----
class Grid(ctypes.Structure):
    _fields_ = [("rows", c_int64), ("cols", c_int64)]


class Rule(enum.IntEnum):
    BEST = 0
    VLLM = 1
    VLLM_NATIVE = 2
    VLLM_TRITON = 3
    VLLM_INPUT_TO_FLOAT8 = 4
    COMPRESSED_TENSORS = 5
    COMPRESSED_TENSORS_ACTIVATION = 6
    TRANSFORMERS = 7
    TORCHAO = 8
    TORCHAO_TRAIN = 9
    MX_FLOOR = 10
    MX_CEIL = 11
    MX_EVEN = 12
    MX_RCEIL = 13
    MODELOPT = 14
    DEEPSEEK = 15
    SLIME = 16
    MX_OCP = 17


class NanPolicy(enum.IntEnum):
    REFUSE = 0
    PROPAGATE = 1
    ORIGINAL = 2


class QuantizeDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("rule", c_int), ("grid", Grid), ("nan", c_int),
                ("static_scales", c_int32), ("pow2_scales", c_int32), ("scale_ub", c_float)]


# ---- 8. Matmul and linear layers ----
class Activation(enum.IntEnum):
    NONE = 0
    DYNAMIC = 1
    STATIC = 2
    CODES = 3


class Epilogue(enum.IntEnum):
    FUSED = 0
    UNFUSED = 1
    BIAS_LAST = 2


class WeightMath(enum.IntEnum):
    EXACT = 0
    ROUNDED = 1


class Accumulation(enum.IntEnum):
    FP32 = 0
    FAST = 1


class LinearDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("activation", c_int), ("x", QuantizeDesc), ("x_code", c_int),
                ("x_scale", c_int), ("x_static", c_float), ("w", QuantizeDesc), ("w_code", c_int), ("w_scale", c_int),
                ("w_origin", Grid), ("widths", POINTER(c_int64)), ("width_count", c_size_t), ("epilogue", c_int),
                ("weight_math", c_int), ("accumulation", c_int)]

    def __init__(self, **fields: Any) -> None:
        fields.setdefault("x", QuantizeDesc(grid=Grid(1, 0), nan=NanPolicy.PROPAGATE))
        fields.setdefault("w", QuantizeDesc())
        super().__init__(**fields)


class LinearInfo(ctypes.Structure):
    _fields_ = [("n", c_int64), ("k", c_int64), ("code", c_int), ("scale", c_int), ("scale_rows", c_int64),
                ("scale_cols", c_int64), ("code_bytes", c_uint64), ("scale_bytes", c_uint64), ("other_bytes", c_uint64)]


class Candidate(ctypes.Structure):
    _fields_ = [("kernel", c_char_p), ("isa", c_char_p), ("chosen", c_int32), ("reason", c_char * 160)]


# ---- 9. Fused weights, shards and what GPUs support ----
class FusedDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("widths", POINTER(c_int64)), ("width_count", c_size_t), ("scale_math", c_int)]


class BlockShard(ctypes.Structure):
    _fields_ = [("first", c_int64), ("count", c_int64), ("origin", c_int64)]


class BlockShapeDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("n", c_int64), ("k", c_int64), ("k_shard", c_int64),
                ("widths", POINTER(c_int64)), ("width_count", c_size_t), ("tp", c_int64), ("block", Grid),
                ("allow_mismatch", c_int32)]


class GpuFeature(enum.IntEnum):
    FP8 = 0
    BLOCK_FP8 = 1
    GROUPED_GEMM = 2
    GROUPED_GEMM_KERNEL = 3
    SPARSE_24 = 4


class KernelClass(enum.IntEnum):
    CUTLASS = 0
    ROCM_PER_TENSOR = 1
    TORCH_PER_TENSOR = 2
    TORCH_PER_TOKEN = 3
    TORCH_CHANNELWISE = 4
    MARLIN = 5
    CUTLASS_BLOCK = 6
    TRITON_BLOCK = 7


class DispatchDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("cutlass_supported", c_int32), ("per_tensor_weights", c_int32),
                ("per_tensor_activations", c_int32), ("per_token_if_dynamic", c_int32), ("is_rocm", c_int32),
                ("has_rowwise", c_int32)]


# ---- 10. Layers and loading ----
class SourcePolicy(enum.IntEnum):
    KEEP = 0
    OFFLOAD = 1
    DISCARD = 2


class Cut(enum.IntEnum):
    NONE = 0
    ROWS = 1
    COLS = 2


class LayerPart(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("rows", c_int64), ("replicas", c_int64)]


class LayerDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("name", c_char_p), ("n", c_int64), ("k", c_int64),
                ("parts", POINTER(LayerPart)), ("part_count", c_size_t), ("cut", c_int), ("rank", c_int32),
                ("ranks", c_int32), ("has_bias", c_int32), ("linear", LinearDesc), ("merge_scales", c_int32),
                ("source", c_int), ("lazy", c_int32)]

    def __init__(self, **fields: Any) -> None:
        fields.setdefault("ranks", 1)
        fields.setdefault("linear", LinearDesc())
        super().__init__(**fields)


class LayerState(enum.IntEnum):
    DECLARED = 0
    PENDING = 1
    READY = 2
    LOST = 3


class LayerInfo(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("state", c_int), ("loading", c_int32), ("n", c_int64), ("k", c_int64),
                ("reloads", c_int64), ("version", c_uint64), ("code_bytes", c_uint64), ("scale_bytes", c_uint64),
                ("other_bytes", c_uint64), ("source_bytes", c_uint64)]


class Comm(ctypes.Structure):
    _fields_ = [("max", c_void_p), ("user", c_void_p)]


class Duplicate(enum.IntEnum):
    REFUSE = 0
    IGNORE = 1


class LoadDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("max_waiting_bytes", c_uint64), ("spill", c_char_p), ("duplicates", c_int),
                ("comm", Comm)]


class LoadParam(enum.IntEnum):
    WEIGHT = 0
    SCALE = 1
    BIAS = 2
    INPUT_SCALE = 3


class LoadPiece(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("param", c_int), ("part", c_int32), ("row", c_int64), ("col", c_int64),
                ("data", Tensor)]


class LoadInfo(ctypes.Structure):
    _fields_ = [("layers", c_int64), ("whole", c_int64), ("waiting_bytes", c_uint64), ("peak_waiting_bytes", c_uint64),
                ("spilled_bytes", c_uint64), ("source_bytes", c_uint64)]


# ---- 11. Checkpoints ----
class TensorInfo(ctypes.Structure):
    _fields_ = [("name", POINTER(c_char)), ("name_bytes", c_size_t), ("dtype", c_int), ("ndim", c_int32),
                ("shape", POINTER(c_int64)), ("bytes", c_uint64), ("file", c_char_p), ("offset", c_uint64)]


class WeightInfo(ctypes.Structure):
    _fields_ = [("weight", c_int64), ("scale", c_int64), ("grid", Grid), ("layer", c_char_p)]


# ---- 12. Conversion ----
class Verb(enum.IntEnum):
    QUANTIZE = 0
    DEQUANTIZE = 1
    CONVERT = 2


class PatternKind(enum.IntEnum):
    PATTERN_KEEP = 0
    PATTERN_ONLY = 1
    PATTERN_SET = 2


class Pattern(ctypes.Structure):
    _fields_ = [("kind", c_int), ("text", c_char_p), ("scheme", c_char_p)]


class ConvertDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("verb", c_int), ("src", c_char_p), ("dst", c_char_p), ("scheme", c_char_p),
                ("engine", c_char_p), ("numerics", c_char_p), ("dtype", c_int), ("keep_nan", c_int32),
                ("patterns", POINTER(Pattern)), ("pattern_count", c_size_t), ("max_memory_bytes", c_uint64),
                ("max_shard_bytes", c_uint64), ("resume", c_int32), ("force", c_int32), ("part_index", c_int32),
                ("part_count", c_int32), ("report", c_char_p), ("activation_scales", c_char_p)]


class PlanRow(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("action", c_char_p), ("scheme", c_char_p), ("reason", c_char_p), ("dtype_in", c_int),
                ("dtype_out", c_int), ("ndim", c_int32), ("shape", POINTER(c_int64)), ("bytes_in", c_uint64),
                ("bytes_out", c_uint64)]


class PlanSummary(ctypes.Structure):
    _fields_ = [("tensors", c_int64), ("changed", c_int64), ("kept", c_int64), ("bytes_in", c_uint64),
                ("bytes_out", c_uint64), ("disk_bytes", c_uint64), ("peak_memory_bytes", c_uint64),
                ("disk_free_bytes", c_uint64), ("shards_out", c_int64)]


class Progress(ctypes.Structure):
    _fields_ = [("bytes_done", c_uint64), ("bytes_total", c_uint64), ("tensors_done", c_int64), ("tensors_total", c_int64),
                ("seconds", c_double), ("tensor", POINTER(c_char)), ("tensor_bytes", c_size_t)]


# ---- 13. Verify and diff ----
class VerifyDesc(_Sized):
    _fields_ = [("struct_bytes", c_uint32), ("path", c_char_p), ("against", c_char_p), ("engine", c_char_p), ("tp", c_int32)]


class Finding(ctypes.Structure):
    _fields_ = [("is_error", c_int32), ("rule", c_char_p), ("tensor", c_char_p), ("message", c_char_p)]


class VerifySummary(ctypes.Structure):
    _fields_ = [("tensors", c_int64), ("quantized", c_int64), ("errors", c_int64), ("warnings", c_int64),
                ("compared", c_int64), ("worst_sqnr_db", c_double), ("median_sqnr_db", c_double)]


class DiffKind(enum.IntEnum):
    DIFF_SAME = 0
    DIFF_VALUES = 1
    DIFF_DTYPE = 2
    DIFF_SHAPE = 3
    DIFF_ONLY_A = 4
    DIFF_ONLY_B = 5


class DiffRow(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("kind", c_int), ("dtype_a", c_int), ("dtype_b", c_int), ("differing", c_int64),
                ("max_abs_error", c_double), ("sqnr_db", c_double)]


# ---- 14. Introspection ----
class SchemeInfo(ctypes.Structure):
    _fields_ = [(name, c_char_p) for name in
                ("name", "grid", "scale_name", "scale_dtype", "activations", "loaders", "summary")]


class Peak(ctypes.Structure):
    _fields_ = [("name", c_char_p), ("what", c_char_p), ("unit", c_char_p), ("value", c_double)]


class GpuInfo(ctypes.Structure):
    _fields_ = [("name", c_char * 96), ("capability", c_int32), ("processors", c_int32), ("memory_bytes", c_uint64),
                ("driver_version", c_int32), ("runs", c_char_p)]


# The C name of each structure and of each enumeration's prefix, for the test against the header.
STRUCTS = {
    "fp8_error": Error, "fp8_tensor": Tensor, "fp8_allocator": Allocator, "fp8_context_desc": ContextDesc, "fp8_grid": Grid,
    "fp8_quantize_desc": QuantizeDesc, "fp8_linear_desc": LinearDesc, "fp8_linear_info": LinearInfo,
    "fp8_candidate": Candidate, "fp8_fused_desc": FusedDesc, "fp8_block_shard": BlockShard,
    "fp8_block_shape_desc": BlockShapeDesc, "fp8_dispatch_desc": DispatchDesc,
    "fp8_layer_part": LayerPart, "fp8_layer_desc": LayerDesc, "fp8_layer_info": LayerInfo, "fp8_comm": Comm,
    "fp8_load_desc": LoadDesc, "fp8_load_piece": LoadPiece, "fp8_load_info": LoadInfo, "fp8_tensor_info": TensorInfo,
    "fp8_weight_info": WeightInfo,
    "fp8_pattern": Pattern, "fp8_convert_desc": ConvertDesc, "fp8_plan_row": PlanRow, "fp8_plan_summary": PlanSummary,
    "fp8_progress": Progress, "fp8_verify_desc": VerifyDesc, "fp8_finding": Finding, "fp8_verify_summary": VerifySummary,
    "fp8_diff_row": DiffRow, "fp8_scheme_info": SchemeInfo, "fp8_peak": Peak,
    "fp8_gpu_info": GpuInfo,
}
ENUMS = {
    "FP8_": (Status, Dtype, Verb, PatternKind, DiffKind), "FP8_RULE_": (Rule,), "FP8_NAN_": (NanPolicy,),
    "FP8_ACTIVATION_": (Activation,), "FP8_EPILOGUE_": (Epilogue,), "FP8_WEIGHT_": (WeightMath,),
    "FP8_ACCUMULATION_": (Accumulation,),
    "FP8_GPU_": (GpuFeature,), "FP8_CLASS_": (KernelClass,), "FP8_SOURCE_": (SourcePolicy,), "FP8_CUT_": (Cut,),
    "FP8_LAYER_": (LayerState,), "FP8_DEVICE_": (Device,), "FP8_DUPLICATE_": (Duplicate,), "FP8_PARAM_": (LoadParam,),
}

PROGRESS_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Progress))
WEIGHT_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(WeightInfo))
FINDING_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(Finding))
DIFF_FN = ctypes.CFUNCTYPE(None, c_void_p, POINTER(DiffRow))

_tensor, _error, _handle, _status = POINTER(Tensor), POINTER(Error), c_void_p, c_int
_out = POINTER(c_void_p)

# name: what it returns, what it takes.
PROTOTYPES = {
    "fp8_version": (c_char_p, []),
    "fp8_status_name": (c_char_p, [c_int]),
    "fp8_dtype_name": (c_char_p, [c_int]),
    "fp8_dtype_parse": (c_int, [c_char_p]),
    "fp8_dtype_bits": (c_int, [c_int]),
    "fp8_context_create": (_status, [POINTER(ContextDesc), _out, _error]),
    "fp8_context_free": (None, [_handle]),
    "fp8_device_alloc": (_status, [_handle, c_uint64, _out, _error]),
    "fp8_device_free": (None, [_handle, c_void_p]),
    "fp8_device_copy": (_status, [_handle, c_void_p, c_void_p, c_uint64, c_void_p, _error]),
    "fp8_device_wait": (_status, [_handle, c_void_p, _error]),
    "fp8_quantize": (_status, [_handle, POINTER(QuantizeDesc), _tensor, _tensor, _tensor, c_void_p, _error]),
    "fp8_dequantize": (_status, [_handle, Grid, _tensor, _tensor, _tensor, c_void_p, _error]),
    "fp8_requantize": (_status, [_handle, Grid, _tensor, _tensor, POINTER(QuantizeDesc), _tensor, _tensor, c_void_p, _error]),
    "fp8_cast": (_status, [_handle, c_void_p, c_int, c_void_p, c_int, c_int64, c_int, c_void_p, _error]),
    "fp8_matmul": (_status, [_handle, POINTER(LinearDesc), _tensor, _tensor, _tensor, _tensor, _tensor, _tensor, c_void_p,
                             _error]),
    "fp8_linear_check": (_status, [_handle, POINTER(LinearDesc), _tensor, _tensor, _tensor, _error]),
    "fp8_linear_create": (_status, [_handle, POINTER(LinearDesc), _tensor, _tensor, _tensor, _out, _error]),
    "fp8_linear_clone": (_status, [_handle, _out, _error]),
    "fp8_linear_free": (None, [_handle]),
    "fp8_linear_get_info": (_status, [_handle, POINTER(LinearInfo)]),
    "fp8_linear_export": (_status, [_handle, _tensor, _tensor, _error]),
    "fp8_linear_workspace": (_status, [_handle, c_int64, POINTER(c_uint64), _error]),
    "fp8_linear_run": (_status, [_handle, _tensor, _tensor, _tensor, c_void_p, c_uint64, c_void_p, _error]),
    "fp8_linear_run_dx": (_status, [_handle, _tensor, _tensor, c_void_p, c_uint64, c_void_p, _error]),
    "fp8_linear_run_kernel": (_status, [_handle, c_char_p, _tensor, _tensor, _tensor, c_void_p, c_uint64, c_void_p, _error]),
    "fp8_explain": (_status, [_handle, POINTER(LinearDesc), c_int64, c_int64, c_int64, c_int, c_int, c_int64,
                              POINTER(Candidate), _error]),
    "fp8_all_close_1d": (_status, [_tensor, POINTER(c_int32), _error]),
    "fp8_channelwise_scales": (_status, [POINTER(FusedDesc), _tensor, _tensor, _error]),
    "fp8_requantize_with_max_scale": (_status, [POINTER(FusedDesc), _tensor, _tensor, _tensor, POINTER(c_float), _error]),
    "fp8_normalize_e4m3fn_to_e4m3fnuz": (_status, [_tensor, _tensor, _tensor, _error]),
    "fp8_block_shard_of": (_status, [c_int64, c_int64, c_int64, POINTER(BlockShard), _error]),
    "fp8_validate_block_shape": (_status, [POINTER(BlockShapeDesc), _error]),
    "fp8_gpu_supports": (c_int, [c_int, c_int32, c_int32]),
    "fp8_dispatch_scaled_mm": (_status, [POINTER(DispatchDesc), POINTER(c_int), _error]),
    "fp8_kernel_class_of": (c_int, [c_int32, c_int]),
    "fp8_deepgemm_supports_shape": (c_int, [c_int64, c_int64, c_int]),
    "fp8_marlin_supports_shape": (c_int, [c_int64, c_int64, c_int64, c_int64]),
    "fp8_online_linear": (_status, [c_char_p, c_int, POINTER(LinearDesc), _error]),
    "fp8_layer_create": (_status, [_handle, POINTER(LayerDesc), _out, _error]),
    "fp8_layer_free": (None, [_handle]),
    "fp8_layer_clone": (_status, [_handle, _handle, _out, _error]),
    "fp8_layer_set_bias": (_status, [_handle, _tensor, _error]),
    "fp8_layer_set_source": (_status, [_handle, _tensor, _tensor, c_uint64, _error]),
    "fp8_layer_invalidate": (_status, [_handle, _error]),
    "fp8_layer_acquire": (_status, [_handle, c_uint64, _out, _error]),
    "fp8_layer_release": (None, [_handle]),
    "fp8_layer_get_info": (_status, [_handle, POINTER(LayerInfo)]),
    "fp8_load_create": (_status, [_handle, POINTER(LoadDesc), _out, _error]),
    "fp8_load_free": (None, [_handle]),
    "fp8_load_add": (_status, [_handle, _handle, _error]),
    "fp8_load_write": (_status, [_handle, _handle, POINTER(LoadPiece), _error]),
    "fp8_load_dummy": (_status, [_handle, _handle, c_uint64, _error]),
    "fp8_load_checkpoint": (_status, [_handle, c_char_p, _error]),
    "fp8_load_missing": (c_char_p, [_handle, c_int64]),
    "fp8_load_finish": (_status, [_handle, _error]),
    "fp8_load_get_info": (_status, [_handle, POINTER(LoadInfo)]),
    "fp8_checkpoint_open": (_status, [_handle, c_char_p, _out, _error]),
    "fp8_checkpoint_close": (None, [_handle]),
    "fp8_checkpoint_count": (c_int64, [_handle]),
    "fp8_checkpoint_tensor": (_status, [_handle, c_int64, POINTER(TensorInfo)]),
    "fp8_checkpoint_find": (_status, [_handle, c_char_p, c_size_t, POINTER(TensorInfo)]),
    "fp8_checkpoint_read": (_status, [_handle, POINTER(TensorInfo), c_uint64, c_uint64, c_void_p, _error]),
    "fp8_checkpoint_dialect": (c_char_p, [_handle]),
    "fp8_checkpoint_weights": (_status, [_handle, WEIGHT_FN, c_void_p, _error]),
    "fp8_checkpoint_warning": (c_char_p, [_handle, c_int64]),
    "fp8_convert_plan": (_status, [_handle, POINTER(ConvertDesc), _out, _error]),
    "fp8_convert_count": (c_int64, [_handle]),
    "fp8_convert_row": (_status, [_handle, c_int64, POINTER(PlanRow)]),
    "fp8_convert_summary": (None, [_handle, POINTER(PlanSummary)]),
    "fp8_convert_warning": (c_char_p, [_handle, c_int64]),
    "fp8_convert_run": (_status, [_handle, PROGRESS_FN, c_void_p, _error]),
    "fp8_convert_stop": (None, [_handle]),
    "fp8_convert_free": (None, [_handle]),
    "fp8_verify": (_status, [_handle, POINTER(VerifyDesc), FINDING_FN, c_void_p, POINTER(VerifySummary), _error]),
    "fp8_diff": (_status, [_handle, c_char_p, c_char_p, DIFF_FN, c_void_p, _error]),
    "fp8_scheme": (_status, [c_int64, POINTER(SchemeInfo)]),
    "fp8_scheme_config": (_status, [_handle, c_char_p, POINTER(c_char_p), c_int64, c_char_p, c_uint64, POINTER(c_uint64),
                                    _error]),
    "fp8_rule_name": (c_char_p, [c_int64]),
    "fp8_engine_name": (c_char_p, [c_int64]),
    "fp8_machine_peak": (_status, [_handle, c_int64, c_double, POINTER(Peak), _error]),
    "fp8_gpu": (_status, [c_int64, POINTER(GpuInfo), _error]),
    "fp8_doctor": (c_char_p, [_handle, c_int64]),
}


def _find() -> str:
    """FP8_LIBRARY if it is set, else the library of this package, else the system's."""
    beside = pathlib.Path(__file__).parent / "lib" / "libfp8.so.0"
    return os.environ.get("FP8_LIBRARY") or (str(beside) if beside.exists() else "libfp8.so.0")


path = _find()
lib = ctypes.CDLL(path)
for _name, (_result, _arguments) in PROTOTYPES.items():
    _function = getattr(lib, _name)
    _function.restype, _function.argtypes = _result, _arguments
