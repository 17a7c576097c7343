# SPDX-License-Identifier: Apache-2.0
"""FP8Linear, a drop-in for nn.Linear, and the options that say how it behaves. enable.py puts it into models.

One layer holds its weight in at most two forms: in high precision, as the Parameter `weight` (storage "keep") or as a bf16
copy on the host ("cpu_offload"; "discard" until the codes exist), and as codes and scales in a layer of the library.
"""
from __future__ import annotations

import dataclasses
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad

from . import layer_state, ops
from ._c import LayerState
from .schemes import linear_desc, weight_grid

_STORAGES = ("keep", "cpu_offload", "discard")
_CPUS = ("fp8", "linear")
# What inputs of other dtypes than these may be cast to, and what is computed without a cast then.
_CASTS = {"bfloat16": (torch.bfloat16, torch.float16), "float32": (torch.float32, torch.bfloat16, torch.float16)}
_LOST = ("FP8Linear's weight was discarded, and computed from its codes to be read: a change would be lost; use "
         "fp16_weight_storage='keep' or 'cpu_offload'")
_CHANGING = {"__setitem__", *(f"__i{name}__" for name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or",
                                                          "xor", "lshift", "rshift"))}


@dataclasses.dataclass(frozen=True)
class FP8GemmOptions:
    """How layers are quantized and what they keep. Checked when a layer is made.

    cast_inputs: inputs that are not fp16 or bf16 are computed in bf16; if False they take the high-precision weight.
    cast_output_back: what was computed so comes back in the input's dtype.
    fp16_weight_storage: "keep" the weight, "cpu_offload" a bf16 copy, or "discard" it as soon as codes exist.
    materialize_fp8_on_wrap: make the codes when a model is wrapped; if False at the first forward.
    scheme: "tensor" (one scale for the weight, one a token), "channel", "block" (128x128, 1x128), "mxfp8", "weight-only".
    cpu: on the CPU compute in "fp8", or by the high-precision "linear".
    rule: whose arithmetic makes the codes; docs/numerics.md lists them.
    cast_to: what inputs and weights that are neither fp16 nor bf16 are cast to before they are quantized: "bfloat16", as vLLM's
        utility does, or "float32", which leaves fp32 as it is, results too.
    """

    cast_inputs: bool = True
    cast_output_back: bool = True
    fp16_weight_storage: Literal["keep", "cpu_offload", "discard"] = "discard"
    materialize_fp8_on_wrap: bool = True
    scheme: str = "tensor"
    cpu: Literal["fp8", "linear"] = "fp8"
    rule: str = "vllm"
    cast_to: Literal["bfloat16", "float32"] = "bfloat16"

    def check(self) -> None:
        """ValueError, which names the value and the choices, if an option is none."""
        if self.fp16_weight_storage not in _STORAGES:
            raise ValueError(f"invalid fp16_weight_storage={self.fp16_weight_storage!r}; expected one of {set(_STORAGES)}")
        if self.fp16_weight_storage == "discard" and not self.cast_inputs:
            raise ValueError("fp16_weight_storage='discard' requires cast_inputs=True (otherwise inputs that are neither fp16 "
                             "nor bf16 would need the high-precision weight)")
        if self.cpu not in _CPUS:
            raise ValueError(f"invalid cpu={self.cpu!r}; expected one of {set(_CPUS)}")
        if self.cast_to not in _CASTS:
            raise ValueError(f"invalid cast_to={self.cast_to!r}; expected one of {set(_CASTS)}")
        linear_desc(self.scheme, self.rule)


class ComputedWeight(Tensor):
    """W as its codes and scales have it. A tensor of its own: what is put into it does not reach the layer, so that functions
    that would change it in place, and `weight.data += ..`, by which adapters are merged, are RuntimeError."""

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, kwargs = getattr(func, "__name__", ""), kwargs or {}
        changes = name.endswith("_") and not name.endswith("__") or name in _CHANGING
        if changes and name != "requires_grad_" and isinstance(next(iter((*args, *kwargs.values()))), ComputedWeight):
            raise RuntimeError(_LOST)
        with torch._C.DisableTorchFunctionSubclass():  # what is computed from it is a plain tensor
            return func(*args, **kwargs)

    @property
    def data(self) -> Tensor:
        return super().data.as_subclass(ComputedWeight)

    @data.setter
    def data(self, value: Tensor) -> None:
        raise RuntimeError(_LOST)


class FP8Linear(nn.Linear):
    """y[.., N] = x[.., K] W^T + bias with W in FP8; of `linear`, a nn.Linear, which is left as it is.

    x: fp16 or bf16 (fp32, if it is not cast), y of the same dtype; others as the options say. The gradient goes to x and
    to the bias; W gets none.
    Errors: TypeError (not a nn.Linear), ValueError (options; a shape that the scheme does not take). A forward raises
    RuntimeError where shapes do not match, or where the high-precision weight is needed and was discarded."""

    options: FP8GemmOptions
    save_codes: bool
    stored_scale: tuple[str, tuple[int, ...] | None, torch.dtype | None]
    _source: Tensor | None
    _layer: ops.Layer

    def __init__(self, linear: nn.Linear, *, options: FP8GemmOptions = FP8GemmOptions()) -> None:
        if not isinstance(linear, nn.Linear):
            raise TypeError(f"expected nn.Linear, got {type(linear)}")
        options.check()
        if not linear.weight.is_floating_point():
            raise TypeError(f"expected a weight of a floating-point dtype, got {linear.weight.dtype}")
        nn.Module.__init__(self)
        n, k = linear.out_features, linear.in_features
        # Past nn.Module.__setattr__, whose search for parameters and buffers costs as much as quantizing a small weight.
        self.__dict__.update(
            in_features=k, out_features=n, options=options, training=linear.training, save_codes=False,
            # Of a state_dict with codes: name, shape (None: [1] or a matrix) and dtype (None: as made) of the scales.
            stored_scale=(layer_state.SCALE_KEYS[0], None, None),
            _source=None,  # [N,K] on the host, in what is quantized
            _layer=layer_state.empty_layer(n, k, options, linear.weight.device))
        self._parameters.update(weight=None, bias=linear.bias)
        if linear.bias is not None and options.fp16_weight_storage != "keep":
            self.bias = nn.Parameter(linear.bias.detach().clone(), linear.bias.requires_grad)
        layer_state.take_weight(self, linear.weight)

    @classmethod
    def from_linear(cls, linear: nn.Linear, *, options: FP8GemmOptions = FP8GemmOptions()) -> FP8Linear:
        """FP8Linear(linear, options=options)."""
        return cls(linear, options=options)

    @property
    def weight(self) -> Tensor:  # type: ignore[override]
        """The Parameter, if it is kept; else W[N,K] in bf16: the host's copy, or computed anew from codes and scales."""
        kept = layer_state.parameter(self, "weight")
        if kept is not None:
            return kept
        if self._source is not None:
            return self._source
        codes, scales = self.fp8_weight()
        real = torch.ops.fp8.dequantize(codes, scales, *weight_grid(self.options.scheme), torch.bfloat16)
        return real.as_subclass(ComputedWeight)

    def fp8_weight(self) -> tuple[Tensor, Tensor]:
        """codes[N,K] and their scales, as new tensors. Errors: RuntimeError (no weight to make them of)."""
        layer_state.refresh(self)
        return self._layer.codes_and_scales()

    @property
    def is_materialized(self) -> bool:
        """Whether codes exist."""
        return self._layer.state == LayerState.READY

    def materialize_fp8_weight(self, device: torch.device | str | None = None) -> None:
        """Makes the codes now, if there are none or they are stale; on `device`, to which they move if they are elsewhere
        (None: where they are, or the weight was). Errors: RuntimeError, NotImplementedError (device)."""
        layer_state.refresh(self, None if device is None else ops.place(device))

    def invalidate_weight_cache(self) -> None:
        """Forgets the codes; the next forward makes them again, or raises RuntimeError if the weight was discarded."""
        layer_state.forget_codes(self)

    def forward(self, x: Tensor) -> Tensor:
        if not isinstance(x, Tensor):
            raise TypeError(f"x must be a Tensor, not {type(x).__name__}")
        if x.is_cpu or x.is_cuda:
            kind = x.device.type
            if torch.is_autocast_enabled(kind) and x.is_floating_point() and x.dtype != torch.float64:
                x = x.to(torch.get_autocast_dtype(kind))
            if x.is_cpu and self.options.cpu == "linear":
                return self._in_high_precision(x, "cpu='linear'")
        elif not x.is_meta:
            raise NotImplementedError(f"FP8Linear: x is on {x.device}, only the CPU and CUDA are supported")
        computed = _CASTS[self.options.cast_to]
        if x.dtype in computed:
            return self._in_fp8(x)
        if not x.is_floating_point() or x.itemsize == 1:
            raise TypeError(f"x is {x.dtype}, must be of a floating-point dtype of 16 bits or more")
        if not self.options.cast_inputs:
            return self._in_high_precision(x, "cast_inputs=False")
        y = self._in_fp8(x.to(computed[0]))
        return y.to(x.dtype) if self.options.cast_output_back else y

    def _in_fp8(self, x: Tensor) -> Tensor:
        if x.is_meta:
            return x.new_empty((*x.shape[:-1], self.out_features))
        if torch.compiler.is_compiling():
            if torch.compiler._is_exporting_flag:  # is_exporting() is true of compiling, too, before PyTorch 2.12
                raise NotImplementedError("FP8Linear cannot be exported: its codes are a layer of this process")
            y = torch.ops.fp8.linear(x, self._compiled_number(x.device), self.out_features)
        else:
            y = self._run(x)
        bias = self._parameters["bias"]
        if bias is not None and bias.requires_grad and torch.is_grad_enabled():
            # Zero, infinite elements too, with the bias's gradient.
            y = y + (bias - bias.detach()).nan_to_num().to(y.device, y.dtype)
        return y

    @torch.compiler.assume_constant_result
    def _make_ready(self, device: torch.device) -> bool:
        layer_state.refresh(self, device)
        return True

    def _compiled_number(self, device: torch.device) -> Tensor:
        """For a graph on a device: makes the codes when it is traced, if need be; it does not notice later what is stale."""
        self._make_ready(device)
        return self._layer.number

    def _run(self, x: Tensor) -> Tensor:
        if forward_ad._current_level >= 0 and forward_ad.unpack_dual(x).tangent is not None:
            raise NotImplementedError("fp8::linear has no forward-mode derivative")  # PyTorch would drop the tangent
        while True:
            layer_state.refresh(self, x.device)
            layer = self._layer
            made_of = layer.made_of
            try:
                if torch.is_inference_mode_enabled() or (x.requires_grad and torch.is_grad_enabled()):
                    return ops.linear(x, layer.number, self.out_features)
                with torch._C._AutoDispatchBelowAutograd():  # its Python would cost as much as the product
                    return ops.linear(x, layer.number, self.out_features)
            except RuntimeError:
                if made_of is not None and layer.made_of is made_of and layer.device == x.device:
                    raise  # else another thread invalidated the codes in between, or moved them

    def _in_high_precision(self, x: Tensor, why: str) -> Tensor:
        weight = self._parameters["weight"] if self._source is None else self._source
        if weight is None:
            raise RuntimeError(f"{why} needs the high-precision weight, which was discarded; use "
                               "fp16_weight_storage='cpu_offload' or 'keep'")
        bias = None if self.bias is None else self.bias.to(x.device, x.dtype)
        return nn.functional.linear(x, weight.to(x.device, x.dtype), bias)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, scheme={self.options.scheme!r}, storage={self.options.fp16_weight_storage!r}"

    # ---- moves, copies and files: layer_state.py ----
    def _apply(self, fn: Any, recurse: bool = True) -> FP8Linear:
        before = layer_state.before_move(self)
        super()._apply(fn, recurse)
        layer_state.follow(self, fn, before)
        return self

    def _replicate_for_data_parallel(self) -> Any:
        raise NotImplementedError("FP8Linear is not for nn.DataParallel, whose replicas last for one forward: codes would be "
                                  "copied to each GPU every time; run a process for each GPU")

    def __getstate__(self) -> dict[str, Any]:
        return layer_state.state_of(self)

    def __setstate__(self, state: dict[str, Any]) -> None:
        layer_state.set_state(self, state)

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        layer_state.save(self, destination, prefix, keep_vars)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, local_metadata: dict[str, Any], strict: bool,
                              missing_keys: list[str], unexpected_keys: list[str], error_msgs: list[str]) -> None:
        own = layer_state.take_keys(self, state_dict, prefix, strict, missing_keys, error_msgs)
        super()._load_from_state_dict(own, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)
        layer_state.after_load(self)
