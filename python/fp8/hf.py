# SPDX-License-Identifier: Apache-2.0
"""transformers: a quantizer that puts FP8Linear into a model while its checkpoint is read, and back.

    model = AutoModelForCausalLM.from_pretrained(path, quantization_config=fp8.Fp8Config(scheme="block"))

A checkpoint in high precision is quantized tensor by tensor, so that the model never exists in it. One that is FP8 already, of
a dialect that `fp8 quantize` writes for transformers' model files, is taken as it is; the checkpoint then says the scheme.
"""
from __future__ import annotations

import ctypes
import json
import mmap
import pathlib
import re
import warnings
from typing import Any, Literal

import torch
from torch import Tensor, nn
from transformers.core_model_loading import ConversionOps
from transformers.quantizers import HfQuantizer, register_quantization_config, register_quantizer
from transformers.quantizers.auto import AutoHfQuantizer
from transformers.quantizers.quantizers_utils import get_module_from_name, should_convert_module
from transformers.utils.quantization_config import QuantizationConfigMixin

from . import layer_state
from ._c import Dtype
from .checkpoints import StoredTensor, inspect
from .enable import enable_fp8_gemm
from .nn import FP8GemmOptions, FP8Linear
from .schemes import linear_desc

_METHOD = "libfp8"
_libc, _MADV_PAGEOUT = ctypes.CDLL(None), 21
_CODES = {"F8_E4M3": torch.float8_e4m3fn}
_ALL_CODES = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_SCALES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "U8": torch.uint8,
           "F8_E8M0": torch.float8_e8m0fnu}

# How the dialects' weights are quantized. Activations of modelopt and ct-tensor-static are static there; here each token
# gets a scale of its own, which is never worse.
_SCHEMES = {
    "hf-block": "block", "ct-block": "block", "modelopt-pb-wo": "block", "hf-tensor": "tensor", "ct-tensor": "tensor",
    "ct-tensor-static": "tensor", "modelopt": "tensor", "ct-channel": "channel", "modelopt-pcpt": "channel",
    "ct-w8a16": "weight-only", "ct-mxfp8": "mxfp8", "modelopt-mxfp8": "mxfp8", "mxfp8": "mxfp8",
}


def _compressed(strategy: str, activations: dict[str, Any] | None, form: str = "float-quantized",
                **weights: Any) -> dict[str, Any]:
    """compressed-tensors' json."""
    common = {"num_bits": 8, "type": "float", "symmetric": True}
    group = {"format": form, "targets": ["Linear"], "output_activations": None,
             "weights": common | {"strategy": strategy, "dynamic": False} | weights,
             "input_activations": activations and common | {"dynamic": True} | activations}
    return {"quant_method": "compressed-tensors", "format": form, "quantization_status": "compressed",
            "global_compression_ratio": None, "kv_cache_scheme": None, "config_groups": {"group_0": group}}


_MX = {"group_size": 32, "scale_dtype": "torch.uint8"}
# What config.json says of a scheme, the name of its list of modules that are not quantized, and that of the scales.
_WRITTEN: dict[str, tuple[dict[str, Any], str, str]] = {
    "block": ({"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128]},
              "modules_to_not_convert", "weight_scale_inv"),
    "tensor": (_compressed("tensor", {"strategy": "token"}), "ignore", "weight_scale"),
    "channel": (_compressed("channel", {"strategy": "token"}), "ignore", "weight_scale"),
    "weight-only": (_compressed("channel", None, "naive-quantized"), "ignore", "weight_scale"),
    "mxfp8": (_compressed("group", {"strategy": "group"} | _MX, "mxfp8-quantized", **_MX), "ignore", "weight_scale"),
}


@register_quantization_config(_METHOD)
class Fp8Config(QuantizationConfigMixin):
    """How from_pretrained makes FP8 layers.

    scheme, rule, cast_to: of FP8GemmOptions, the first two for a checkpoint in high precision. modules_to_not_convert: names of
    modules that stay; None = the head and what is tied. Errors: ValueError (no such scheme or rule)."""

    def __init__(self, scheme: str = "block", *, rule: str = "best", modules_to_not_convert: list[str] | None = None,
                 cast_to: Literal["bfloat16", "float32"] = "bfloat16") -> None:
        if isinstance(modules_to_not_convert, str):
            raise TypeError(f"modules_to_not_convert must be a list of names, not {modules_to_not_convert!r}")
        self.quant_method = _METHOD
        self.scheme, self.rule, self.modules_to_not_convert, self.cast_to = scheme, rule, modules_to_not_convert, cast_to
        self.stored: dict[str, Any] | None = None  # what config.json said of a checkpoint that is FP8 already
        self.kept: list[str] = []  # linear modules that were not quantized ..
        self.experts: list[str] = []  # .. and modules that hold several weights in one parameter
        self.options.check()

    @property
    def options(self) -> FP8GemmOptions:
        return FP8GemmOptions(scheme=self.scheme, rule=self.rule, cast_to=self.cast_to)

    @classmethod
    def from_dict(cls, config_dict: dict[str, Any], return_unused_kwargs: bool = False, **kwargs: Any) -> Any:
        """Of a dict with quant_method "libfp8" and what __init__ takes."""
        own = {key: value for key, value in config_dict.items() if key != "quant_method"}
        return super().from_dict(own, return_unused_kwargs, **kwargs)

    def to_dict(self) -> dict[str, Any]:
        """What config.json says: that of the dialect, which other engines read, too."""
        if self.stored is not None:
            return dict(self.stored)
        written, ignored, _ = _WRITTEN[self.scheme]
        experts = self.experts
        if ignored == "ignore":  # names of linear modules alone, or patterns
            experts = [rf"re:{re.escape(name)}\..*" for name in experts]
        return written | {ignored: self.kept + experts}


class _Quantize(ConversionOps):
    """A weight that was read becomes its layer's codes; nothing is left to be set as a parameter."""

    def convert(self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], *,
                model: nn.Module, missing_keys: set[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        for name, value in input_dict.items():
            layer, _ = get_module_from_name(model, name)
            layer_state.take_weight(layer, value[0] if isinstance(value, list) else value)
            layer._is_hf_initialized = True
            if layer_state.can_materialize(layer):
                layer_state.refresh(layer)
                _page_out(value[0] if isinstance(value, list) else value)
            if missing_keys is not None:
                missing_keys.discard(name)
        return {}


def _page_out(tensor: Tensor) -> None:
    """A weight that was read stays in memory as pages of the mapped file; nobody needs them, the kernel may take them."""
    page = mmap.PAGESIZE
    begin = -(-tensor.data_ptr() // page) * page
    size = (tensor.data_ptr() + tensor.nbytes - begin) // page * page
    if size > 0:
        _libc.madvise(ctypes.c_void_p(begin), ctypes.c_size_t(size), _MADV_PAGEOUT)  # an advice: what comes of it is no error


@register_quantizer(_METHOD)
class Fp8Quantizer(HfQuantizer):
    """What transformers calls while it loads a model with an Fp8Config."""

    requires_calibration = False
    is_trainable = True
    is_compileable = True
    quantized_element_size = 1

    def is_serializable(self) -> bool:
        return True

    def param_needs_quantization(self, model: nn.Module, param_name: str, **kwargs: Any) -> bool:
        module, leaf = get_module_from_name(model, param_name)
        return isinstance(module, FP8Linear) and leaf == "weight" and not self.pre_quantized

    def get_quantize_ops(self) -> ConversionOps:
        return _Quantize()

    def get_new_dtype(self, converter: Any, param: Any, dtype: torch.dtype | None) -> torch.dtype | None:
        stored = param.get_dtype() if hasattr(param, "get_dtype") else str(param.dtype)
        if stored in _ALL_CODES and dtype not in _CODES.values():
            raise NotImplementedError(f"checkpoint has {stored} codes for {', '.join(converter.target_patterns)}, which is no "
                                      "nn.Linear of this model: its scales would be lost (`fp8 dequantize` makes it bf16)")
        return super().get_new_dtype(converter, param, dtype)

    def _process_model_before_weight_loading(self, model: nn.Module, checkpoint_files: list[str] | None = None,
                                             **kwargs: Any) -> nn.Module:
        stored, dialect, announced = _read(checkpoint_files or [])
        self.pre_quantized = dialect != "none"
        if self.pre_quantized:
            if dialect not in _SCHEMES:
                raise NotImplementedError(f"checkpoint's dialect is {dialect!r}; expected one of {', '.join(_SCHEMES)}")
            self.quantization_config.scheme, self.quantization_config.stored = _SCHEMES[dialect], announced
            layers = _places(model, stored)
        else:
            skipped = self.get_modules_to_not_convert(model, self.quantization_config.modules_to_not_convert,
                                                      model._keep_in_fp32_modules)
            layers = {name: None for name, module in model.named_modules()
                      if isinstance(module, nn.Linear) and should_convert_module(name, skipped)}
        enable_fp8_gemm(model, options=self.quantization_config.options, module_filter=lambda name, _: name in layers)
        for name, tensors in layers.items():
            layer = model.get_submodule(name)
            if isinstance(layer, FP8Linear):
                _declare(layer, self.quantization_config.scheme, tensors)
        self.quantization_config.kept = sorted(name for name, module in model.named_modules()
                                               if isinstance(module, nn.Linear) and not isinstance(module, FP8Linear))
        if not self.pre_quantized:
            self.quantization_config.experts = self._experts(model)
        model._keys_to_ignore_on_load_unexpected = {*(model._keys_to_ignore_on_load_unexpected or ()), r"\.input_scale$"}
        return model

    def _experts(self, model: nn.Module) -> list[str]:
        """Modules whose weights are matrices of several experts in one parameter, which are not quantized; says so."""
        found = sorted(name for name, module in model.named_modules() if not type(module).__module__.startswith("torch.nn.")
                       and any(parameter.ndim == 3 for parameter in module._parameters.values() if parameter is not None))
        if found:
            warnings.warn(f"Fp8Config leaves in high precision the weights of {len(found)} modules, the first {found[0]}: "
                          "experts in one parameter are no nn.Linear (`fp8 quantize` writes FP8 checkpoints of them)",
                          stacklevel=2)
        return found

    def _process_model_after_weight_loading(self, model: nn.Module, **kwargs: Any) -> nn.Module:
        for layer in model.modules():
            if isinstance(layer, FP8Linear) and not layer.is_materialized:
                weight = layer._parameters["weight"]
                layer_state.take_parameters(layer)
                if weight is not None and layer.is_materialized:
                    _page_out(weight)
        return model


def _read(files: list[str]) -> tuple[dict[str, StoredTensor], str, dict[str, Any] | None]:
    """The tensors of safetensors files of one directory, by name, the directory's dialect, and what config.json says of it."""
    folders = {pathlib.Path(file).parent for file in files if file.endswith(".safetensors")}
    if not folders:
        return {}, "none", None
    folder = folders.pop()
    checkpoint = inspect(folder)
    announced = json.loads((folder / "config.json").read_text()).get("quantization_config")
    return {tensor.name: tensor for tensor in checkpoint.tensors}, checkpoint.dialect, announced


def _places(model: nn.Module, stored: dict[str, StoredTensor]) -> dict[str, list[StoredTensor]]:
    """{module: [weight, scale]} of the linear modules whose weight is stored as codes; with the model's prefix or without."""
    found = {}
    prefix = model.base_model_prefix + "."
    for name, module in model.named_modules():
        for key in (name, name.removeprefix(prefix), prefix + name):
            weight = stored.get(key + ".weight")
            scale = next((stored[key + "." + s] for s in layer_state.SCALE_KEYS if key + "." + s in stored), None)
            if isinstance(module, nn.Linear) and weight and scale and weight.dtype in _CODES:
                found[name] = [weight, scale]
                break
    return found


def _declare(layer: FP8Linear, scheme: str, tensors: list[StoredTensor] | None) -> None:
    """How the scales are stored; and, if codes are to be read, parameters without storage for them."""
    if tensors is None:
        layer.stored_scale = (_WRITTEN[scheme][2], None, torch.uint8 if linear_desc(scheme).w_scale == Dtype.E8M0FNU else None)
        return
    weight, scale = tensors
    name = scale.name.rpartition(".")[2]
    layer.stored_scale = (name, scale.shape, _SCALES[scale.dtype])
    layer._parameters["weight"] = _empty(weight.shape, _CODES[weight.dtype])
    layer._parameters[name] = _empty(scale.shape, _SCALES[scale.dtype])


def _empty(shape: tuple[int, ...], dtype: torch.dtype) -> nn.Parameter:
    made: Tensor = torch.empty(shape, dtype=dtype, device="meta")
    return nn.Parameter(made, requires_grad=False)


def _accept() -> None:
    """transformers refuses a config of another class than the checkpoint's; ours goes by the files."""
    merge = AutoHfQuantizer.merge_quantization_configs

    def merged(quantization_config: Any, quantization_config_from_args: Any) -> Any:
        if not isinstance(quantization_config_from_args, Fp8Config):
            return merge(quantization_config, quantization_config_from_args)
        return quantization_config_from_args

    AutoHfQuantizer.merge_quantization_configs = staticmethod(merged)


_accept()
