# SPDX-License-Identifier: Apache-2.0
"""Between an FP8Linear's tensors and its layer: when codes and bias are stale, and what state_dicts, pickles and loaders bring.

PyTorch holds the weight in high precision, where it is held; codes, scales and the bias that is added are the library's.
"""
from __future__ import annotations

import math
import threading
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.optim.optimizer import register_optimizer_step_post_hook

from . import ops
from .numbers import scale_shape
from .schemes import weight_grid

if TYPE_CHECKING:
    from collections.abc import Callable

    from .nn import FP8GemmOptions, FP8Linear

_CODES = (torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2)
# Where a checkpoint may have the scales of `weight`; the first is what we write.
SCALE_KEYS = ("weight_scale", "weight_scale_inv")
# The first version of this interface, vLLM's utility, wrapped the Linear in a child of that name.
_OLD_PREFIX = "linear."
_STALE = object()  # a stamp that no tensor has
_changing = threading.Lock()  # held while a layer gets codes: who comes second finds them made


def empty_layer(n: int, k: int, options: FP8GemmOptions, device: torch.device) -> ops.Layer:
    """One without codes, on the device, or on the CPU if layers cannot be there."""
    place = ops.place(device if device.type == "cuda" else "cpu")
    return ops.Layer(n, k, scheme=options.scheme, rule=options.rule, device=place)


def take_weight(layer: FP8Linear, weight: Tensor, *, follow: bool = False) -> None:
    """The layer's high-precision weight is `weight` from now on: itself, or, for "cpu_offload", a copy on the host. follow: the
    codes will be where it is."""
    storage = layer.options.fp16_weight_storage
    if storage == "keep" or weight.is_meta:
        layer._parameters["weight"], source = weight, None  # type: ignore[assignment]
    else:
        cast = _quantized(layer, weight.dtype)
        layer._parameters["weight"] = None
        source = _host(weight, cast) if storage == "cpu_offload" else weight.detach().to(cast)
        if storage == "cpu_offload" and source.data_ptr() == weight.data_ptr():
            source = source.clone()
    layer.__dict__["_source"] = source
    if follow and not weight.is_meta and weight.device != layer._layer.device:
        _replace_layer(layer, weight.device)
    layer._layer.made_of = None


def _replace_layer(layer: FP8Linear, device: torch.device) -> None:
    """An empty one there takes the place of the layer's."""
    layer.__dict__["_layer"] = empty_layer(layer.out_features, layer.in_features, layer.options, device)


def _quantized(layer: FP8Linear, dtype: torch.dtype) -> torch.dtype:
    """What a weight of a dtype is cast to before it is quantized."""
    if layer.options.cast_to == "bfloat16":
        return torch.bfloat16
    return dtype if dtype in (torch.bfloat16, torch.float16) else torch.float32


def _host(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    """The tensor's numbers on the host, itself if they are there."""
    tensor = tensor.detach()
    return tensor if tensor.dtype == dtype and tensor.is_cpu else tensor.to(device="cpu", dtype=dtype)


def _stamp(tensor: Tensor | None) -> Any:
    """Differs after the tensor was replaced, moved, or changed in place."""
    if tensor is None:
        return None
    return id(tensor), tensor.data_ptr(), 0 if tensor.is_inference() else tensor._version


def _count_fused_step(optimizer: torch.optim.Optimizer, *_: Any) -> None:
    """Fused optimizers write past PyTorch's version counter, as others do not: counts for what layers were made of."""
    fused = [p for group in optimizer.param_groups if group.get("fused") for p in group["params"] if p.grad is not None]
    stamps = [stamp for layer in tuple(ops.layers) for stamp in layer.made_of or ()] if fused else ()
    used = {stamp[0] for stamp in stamps if isinstance(stamp, tuple)}
    for parameter in fused:
        if id(parameter) in used:
            torch.autograd.graph.increment_version(parameter)


register_optimizer_step_post_hook(_count_fused_step)


def _is_of_the_weight(layer: FP8Linear) -> bool:
    """Whether there are codes, and those of the weight as it is now."""
    made_of = layer._layer.made_of
    return made_of is not None and made_of[0] == _stamp(layer._parameters["weight"])


def _codes_are_of_the_weight(layer: FP8Linear) -> None:
    """They came with it, or instead of it; the bias has still to be set."""
    layer._layer.made_of = _stamp(layer._parameters["weight"]), _STALE


def parameter(layer: FP8Linear, name: str) -> Tensor | None:
    """RuntimeError if something removed it, as pruning and parametrizations of an FP8Linear do."""
    try:
        return layer._parameters[name]
    except KeyError:
        raise RuntimeError(f"FP8Linear's parameter {name} was removed or renamed; prune or parametrize the nn.Linear, which "
                           "enable_fp8_gemm then leaves as it is") from None


def refresh(layer: FP8Linear, device: torch.device | None = None) -> None:
    """Makes the codes if there are none or they are stale, and brings them to the device, None of which is theirs. Errors:
    RuntimeError if there is nothing to make them of."""
    if (layer._layer.made_of != (_stamp(parameter(layer, "weight")), _stamp(parameter(layer, "bias")))
            or device is not None and layer._layer.device != device):
        with _changing:
            _bring_up_to_date(layer, device)


def forget_codes(layer: FP8Linear) -> None:
    with _changing:
        layer._layer.made_of = None  # first: whoever finds no codes then sees why
        layer._layer.invalidate()


def _move(layer: FP8Linear, device: torch.device) -> None:
    """Codes, scales and bias to another device."""
    moved = layer._layer.to(device)
    moved.made_of = layer._layer.made_of
    layer.__dict__["_layer"] = moved


def before_move(layer: FP8Linear) -> tuple[bool, torch.dtype | None]:
    """What follow must know: whether the codes are those of the weight, and the dtype of that."""
    weight = layer._parameters["weight"]
    return _is_of_the_weight(layer), None if weight is None else weight.dtype


def follow(layer: FP8Linear, fn: Callable[[Tensor], Tensor], before: tuple[bool, torch.dtype | None]) -> None:
    """After fn was applied to the parameters: if it moves tensors to another device, the codes go there, too. They are never
    cast; a weight that was cast makes new ones at the next forward."""
    device = fn(torch.empty(0, device=layer._layer.device)).device
    if device.type not in ("cpu", "cuda") or device == layer._layer.device:
        return
    fresh, dtype = before
    weight = layer._parameters["weight"]
    with _changing:
        if fresh:
            _move(layer, ops.place(device))
            if weight is None or weight.dtype == dtype:
                _codes_are_of_the_weight(layer)
            return
        _replace_layer(layer, device)
        if layer._source is not None and layer.options.fp16_weight_storage == "discard":
            layer.__dict__["_source"] = layer._source.to(device)


def _bring_up_to_date(layer: FP8Linear, device: torch.device | None) -> None:
    kept = layer._parameters["weight"]
    if kept is not None and layer.options.fp16_weight_storage != "keep" and not kept.is_meta:
        take_weight(layer, kept, follow=True)  # it was filled after the layer was made without storage
    weight, bias = layer._parameters["weight"], layer._parameters["bias"]
    source = weight if layer._source is None else layer._source
    for name, tensor in (("weight", source), ("bias", bias)):
        if tensor is not None and tensor.is_meta:
            raise RuntimeError(f"FP8Linear's {name} is on the meta device; load it before the layer is used")
    moves = device is not None and layer._layer.device != device
    if _is_of_the_weight(layer):
        if moves:
            _move(layer, device)  # type: ignore[arg-type]
        layer._layer.set_bias(_added(bias))
    elif source is not None:
        if moves:
            _replace_layer(layer, device)  # type: ignore[arg-type]
        layer._layer.set_source(_within_reach(layer, source), _added(bias))
    else:
        why = ("with fp16_weight_storage='discard' it is gone once codes exist, and they were invalidated"
               if layer.options.fp16_weight_storage == "discard" else "its parameter weight is None")
        raise RuntimeError(f"FP8Linear has no high-precision weight to quantize: {why}")
    layer._layer.made_of = _stamp(weight), _stamp(bias)
    if layer.options.fp16_weight_storage == "discard":
        layer.__dict__["_source"] = None


def _within_reach(layer: FP8Linear, source: Tensor) -> Tensor:
    """The source as it is quantized, on the layer's device or the host."""
    place = source.device if source.is_cpu or source.device == layer._layer.device else layer._layer.device
    return source.detach().to(place, _quantized(layer, source.dtype))


def _added(bias: Tensor | None) -> Tensor | None:
    return None if bias is None else _host(bias, torch.float32 if bias.dtype == torch.float64 else bias.dtype)


# ---- copy, deepcopy, pickle ----
def state_of(layer: FP8Linear) -> dict[str, Any]:
    """The module's state, and whether the codes are those of the weight."""
    return layer.__dict__ | {"_fresh": _is_of_the_weight(layer)}


def set_state(layer: FP8Linear, state: dict[str, Any]) -> None:
    fresh = state.pop("_fresh")
    nn.Module.__setstate__(layer, state)
    layer._layer.made_of = None
    if fresh:
        _codes_are_of_the_weight(layer)


# ---- state_dict ----
def save(layer: FP8Linear, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
    """`weight`, `bias`: in high precision where that is kept, unless save_codes asks for codes; then with `weight_scale`."""
    tensors = dict(layer._parameters)
    if layer._source is not None:
        tensors["weight"] = layer._source
    if layer.save_codes or tensors["weight"] is None:
        tensors["weight"], scales = layer.fp8_weight()
        name, shape, dtype = layer.stored_scale
        scales = scales.reshape(shape or (scales.shape if scales.numel() != 1 else 1))
        tensors[name] = scales.view(torch.uint8) if dtype == torch.uint8 else scales.to(dtype or scales.dtype)
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
        _take_codes(layer, own.pop("weight"), scales, prefix, errors)
    elif weight is not None and layer.options.fp16_weight_storage != "keep":
        take_weight(layer, own.pop("weight").clone())
    elif weight is None and strict:
        missing.append(prefix + "weight")
    if "weight" not in own and layer._parameters["weight"] is not None:
        own["weight"] = layer._parameters["weight"]  # super's check is satisfied, nothing is copied
    return {prefix + key: value for key, value in own.items()}


def _take_codes(layer: FP8Linear, codes: Tensor, scales: Tensor | None, prefix: str, errors: list[str]) -> None:
    shape = scale_shape(layer.out_features, layer.in_features, weight_grid(layer.options.scheme))
    if scales is None or scales.numel() != math.prod(shape):
        found = "missing" if scales is None else f"of shape {tuple(scales.shape)}"
        errors.append(f"{prefix}weight holds codes, whose scales {prefix}{SCALE_KEYS[0]} are {found}; "
                      f"scheme={layer.options.scheme!r} has {shape}.")
        return
    _adopt(layer, codes, scales)
    layer._loaded_codes = True  # type: ignore[assignment]


def _adopt(layer: FP8Linear, codes: Tensor, scales: Tensor) -> None:
    """The layer's weight is codes[N,K] and scales as its scheme has them; the high-precision one, if it is held, follows."""
    grid = weight_grid(layer.options.scheme)
    with _changing:
        layer._layer.load(codes.detach().cpu(), scales.detach().cpu().reshape(scale_shape(*codes.shape, grid)))
    storage, kept, layer._source = layer.options.fp16_weight_storage, layer._parameters["weight"], None
    if storage == "discard":
        layer._parameters["weight"] = None
    else:
        real = torch.ops.fp8.dequantize(*layer._layer.export(layer._layer.number), *grid, torch.bfloat16)
        if storage == "cpu_offload":
            layer._parameters["weight"], layer._source = None, real
        elif kept is None or kept.is_meta:
            layer._parameters["weight"] = nn.Parameter(real, requires_grad=False)
        else:
            with torch.no_grad():
                kept.copy_(real)
    _codes_are_of_the_weight(layer)


def take_parameters(layer: FP8Linear) -> None:
    """After a loader has set the parameters `weight` and, if that is codes, its scales: makes the layer of them. Parameters
    that are still without storage stay."""
    weight, name = layer._parameters["weight"], layer.stored_scale[0]
    scales = layer._parameters.get(name)
    if scales is not None and weight is not None and not (scales.is_meta or weight.is_meta):
        del layer._parameters[name]
        layer._parameters["weight"] = None
        if weight.device != layer._layer.device:
            _replace_layer(layer, weight.device)
        _adopt(layer, weight, scales)
    elif scales is None and can_materialize(layer):
        refresh(layer)


def after_load(layer: FP8Linear) -> None:
    """Codes that were loaded are those of the weight that was loaded with them; others are made, if that is what is asked."""
    if layer.__dict__.pop("_loaded_codes", False):
        _codes_are_of_the_weight(layer)
    elif layer.options.materialize_fp8_on_wrap and layer.options.cpu == "fp8" and can_materialize(layer):
        refresh(layer)


def can_materialize(layer: FP8Linear) -> bool:
    """Whether there is a weight with data, and a bias if the layer has one."""
    weight = layer._parameters["weight"] if layer._source is None else layer._source
    bias = layer._parameters["bias"]
    return weight is not None and not weight.is_meta and not (bias is not None and bias.is_meta)
