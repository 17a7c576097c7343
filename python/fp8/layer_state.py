# SPDX-License-Identifier: Apache-2.0
"""What an FP8Linear holds: when its codes are stale, what they are made of, and how they are copied, saved and loaded."""
from __future__ import annotations

import ctypes
import math
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from . import _c, ops
from .errors import call
from .linear import Linear
from .numbers import scale_shape
from .schemes import linear_desc, scheme_of

if TYPE_CHECKING:
    from .nn import FP8Linear

_CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2)
# Where a checkpoint may have the scales of `weight`; the first is what we write.
SCALE_KEYS = ("weight_scale", "weight_scale_inv")
# The first version of this interface, vLLM's utility, wrapped the Linear in a child of that name.
_OLD_PREFIX = "linear."


def check_shape(n: int, k: int, scheme: str, rule: str) -> None:
    """ValueError or NotImplementedError if the scheme and the rule do not take a weight [n, k]."""
    w = _c.Tensor(dtype=_c.Dtype.BF16, ndim=2)
    w.data = ctypes.addressof(w)  # a check touches no data, but wants to see some
    w.shape[:2], w.stride[:2] = (n, k), (k, 1)
    call("fp8_linear_check", ops.context.handle, ctypes.byref(linear_desc(scheme, rule)), ctypes.byref(w), None, None)


def take_weight(layer: FP8Linear, weight: Tensor) -> None:
    """The layer's high-precision weight is `weight` from now on: itself, or a bf16 copy on the host."""
    if layer.options.fp16_weight_storage == "keep" or weight.is_meta:
        layer._parameters["weight"] = weight  # type: ignore[assignment]
        layer._source = None
    else:
        layer._parameters["weight"] = None
        offload = layer.options.fp16_weight_storage == "cpu_offload"
        layer._source = weight.detach().to(device="cpu", dtype=torch.bfloat16, copy=offload)
    layer._handle = None


def _stamp(tensor: Tensor | None) -> Any:
    """Differs after the tensor was replaced, moved, or changed in place."""
    if tensor is None:
        return None
    return id(tensor), tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _stamps(layer: FP8Linear) -> tuple[Any, Any]:
    parameters = layer._parameters
    return _stamp(parameters["weight"]), _stamp(parameters["bias"])


def refresh(layer: FP8Linear) -> None:
    """Makes the codes if there are none or they are stale. Errors: RuntimeError if there is nothing to make them of."""
    parameters = layer._parameters
    weight, bias = parameters["weight"], parameters["bias"]
    if weight is not None and layer.options.fp16_weight_storage != "keep" and not weight.is_meta:
        take_weight(layer, weight)  # it was filled after the layer was made without storage
        weight = None
    stamps = _stamp(weight), _stamp(bias)
    if layer._handle is None or stamps != layer._stamps:
        layer._handle = ops.Handle(_made(layer, stamps))
        layer._stamps = stamps
        if layer.options.fp16_weight_storage == "discard":
            layer._source = None


def _made(layer: FP8Linear, stamps: tuple[Any, Any]) -> Linear:
    """A linear of the high-precision weight, or of the codes there are if only the bias changed."""
    old, source = layer._handle, layer._parameters["weight"] if layer._source is None else layer._source
    bias = layer._parameters["bias"]
    for name, tensor in (("weight", source), ("bias", bias)):
        if tensor is not None and tensor.is_meta:
            raise RuntimeError(f"FP8Linear's {name} is on the meta device; load it before the layer is used")
    if old is not None and (source is None or stamps[0] == layer._stamps[0]):
        return _linear(layer, *old.linear.export(old.tensor), bias)
    if source is None:
        raise RuntimeError("FP8Linear has no high-precision weight to quantize: with fp16_weight_storage='discard' it is gone "
                           "once codes exist, and they were invalidated")
    return _linear(layer, source.detach().to(device="cpu", dtype=torch.bfloat16), None, bias)


def _linear(layer: FP8Linear, weight: Tensor, scales: Tensor | None, bias: Tensor | None) -> Linear:
    bias = None if bias is None else bias.detach().to("cpu")
    if bias is not None and bias.dtype == torch.float64:
        bias = bias.float()
    return Linear(weight, scales, bias, scheme=layer.options.scheme, rule=layer.options.rule, context=ops.context)


def _export(layer: FP8Linear) -> tuple[Tensor, Tensor]:
    return layer._handle.linear.export(layer._handle.tensor)  # type: ignore[union-attr]


# ---- copy, deepcopy, pickle ----
def state_of(layer: FP8Linear) -> dict[str, Any]:
    """The module's state with codes and scales as tensors; as bytes, for pickle knows no FP8."""
    state = layer.__dict__.copy()
    del state["_handle"]
    state["_stamps"] = _stamps(layer) == layer._stamps  # whether the codes are those of the weight and the bias
    state["_codes"] = None if layer._handle is None else [t.view(torch.uint8) if t.itemsize == 1 else t for t in _export(layer)]
    return state


def set_state(layer: FP8Linear, state: dict[str, Any]) -> None:
    codes: Any = state.pop("_codes")
    fresh = state.pop("_stamps")
    nn.Module.__setstate__(layer, state)
    layer._handle, layer._stamps = None, (None, None)
    if codes is not None:
        layer._handle = ops.Handle(_linear(layer, codes[0], codes[1], layer._parameters["bias"]))
        if fresh:
            layer._stamps = _stamps(layer)


# ---- state_dict ----
def save(layer: FP8Linear, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """`weight`, `bias`: in high precision where that is kept, unless save_codes asks for codes; then with `weight_scale`."""
    tensors = dict(layer._parameters)
    if layer._source is not None:
        tensors["weight"] = layer._source
    if layer.save_codes or tensors["weight"] is None:
        tensors["weight"], scales = layer.fp8_weight()
        name, shape, dtype = layer.stored_scale
        tensors[name] = scales.reshape(shape or (scales.shape if scales.numel() > 1 else 1)).view(dtype or scales.dtype)
    for name, tensor in tensors.items():
        if tensor is not None:
            destination[prefix + name] = tensor if keep_vars else tensor.detach()


def take_keys(layer: FP8Linear, state_dict: dict[str, Any], prefix: str, strict: bool, missing: list[str],
              errors: list[str]) -> dict[str, Any]:
    """Takes the weight out of a state_dict, in high precision or as codes; returns what is left under the prefix."""
    own = {key.removeprefix(prefix): value for key, value in state_dict.items() if key.startswith(prefix)}
    own = {key.removeprefix(_OLD_PREFIX): value for key, value in own.items()}
    weight, shape = own.get("weight"), (layer.out_features, layer.in_features)
    scales = next((own.pop(key) for key in SCALE_KEYS if key in own), None)
    layer.__dict__.pop("_loaded_codes", None)
    if weight is not None and tuple(weight.shape) != shape:
        errors.append(f"size mismatch for {prefix}weight: copying a param with shape {tuple(weight.shape)} from checkpoint, "
                      f"the shape in current model is {shape}.")
        own.pop("weight")
    elif weight is not None and weight.dtype in _CODES:
        _take_codes(layer, own.pop("weight"), scales, own.get("bias", layer._parameters["bias"]), prefix, errors)
    elif weight is not None and layer.options.fp16_weight_storage != "keep":
        take_weight(layer, own.pop("weight").clone())
    elif weight is None and strict:
        missing.append(prefix + "weight")
    if "weight" not in own and layer._parameters["weight"] is not None:
        own["weight"] = layer._parameters["weight"]  # super's check is satisfied, nothing is copied
    return {prefix + key: value for key, value in own.items()}


def _take_codes(layer: FP8Linear, codes: Tensor, scales: Tensor | None, bias: Tensor | None, prefix: str,
                errors: list[str]) -> None:
    shape = scale_shape(layer.out_features, layer.in_features, scheme_of(layer.options.scheme).w_grid)
    if scales is None or scales.numel() != math.prod(shape):
        found = "missing" if scales is None else f"of shape {tuple(scales.shape)}"
        errors.append(f"{prefix}weight holds codes, whose scales {prefix}{SCALE_KEYS[0]} are {found}; "
                      f"scheme={layer.options.scheme!r} has {shape}.")
        return
    _adopt(layer, codes, scales.reshape(shape), bias)
    layer._loaded_codes = True  # type: ignore[assignment]


def _adopt(layer: FP8Linear, codes: Tensor, scales: Tensor, bias: Tensor | None) -> None:
    """The layer's weight is codes[N,K] and scales as its scheme has them; the high-precision one, if it is held, follows."""
    layer._handle, layer._source = ops.Handle(_linear(layer, codes.detach().cpu(), scales.detach().cpu(), bias)), None
    storage, kept = layer.options.fp16_weight_storage, layer._parameters["weight"]
    if storage == "discard":
        layer._parameters["weight"] = None
        return
    real = torch.ops.fp8.dequantize(*_export(layer), *scheme_of(layer.options.scheme).w_grid, torch.bfloat16)
    if storage == "cpu_offload":
        layer._parameters["weight"], layer._source = None, real
    elif kept is None or kept.is_meta:
        layer._parameters["weight"] = nn.Parameter(real, requires_grad=False)
    else:
        with torch.no_grad():
            kept.copy_(real)


def take_parameters(layer: FP8Linear) -> None:
    """After a loader has set the parameters `weight` and, if that is codes, its scales: makes the layer of them. Parameters
    that are still without storage stay."""
    weight, bias, name = layer._parameters["weight"], layer._parameters["bias"], layer.stored_scale[0]
    scales = layer._parameters.get(name)
    if scales is not None and weight is not None and not (scales.is_meta or weight.is_meta):
        del layer._parameters[name]
        layer._parameters["weight"] = None
        _adopt(layer, weight, scales.reshape(scale_shape(*weight.shape, scheme_of(layer.options.scheme).w_grid)), bias)
        layer._stamps = _stamps(layer)
    elif scales is None and can_materialize(layer):
        refresh(layer)


def after_load(layer: FP8Linear) -> None:
    """Codes that were loaded are those of the bias that was loaded with them; others are made, if that is what is asked for."""
    if layer.__dict__.pop("_loaded_codes", False):
        layer._stamps = _stamps(layer)
    elif layer.options.materialize_fp8_on_wrap and layer.options.cpu == "fp8" and can_materialize(layer):
        refresh(layer)


def can_materialize(layer: FP8Linear) -> bool:
    """Whether there is a weight with data, and a bias if the layer has one."""
    weight = layer._parameters["weight"] if layer._source is None else layer._source
    bias = layer._parameters["bias"]
    return weight is not None and not weight.is_meta and not (bias is not None and bias.is_meta)


@torch.compiler.assume_constant_result
def _made_ready(layer: FP8Linear) -> bool:
    refresh(layer)
    return True


def compiled_handle(layer: FP8Linear) -> Tensor:
    """For a graph: makes the codes when it is traced, if need be; it does not notice later what becomes stale."""
    _made_ready(layer)
    return layer._handle.tensor  # type: ignore[union-attr]
