# SPDX-License-Identifier: Apache-2.0
"""transformers: a quantizer that puts FP8Linear into a model while its checkpoint is read, and back.

    model = AutoModelForCausalLM.from_pretrained(path, quantization_config=fp8.Fp8Config(scheme="block"))

A checkpoint in high precision is quantized tensor by tensor, so that the model never exists in it. One that is FP8 already, of
a dialect that `fp8 quantize` writes for transformers' model files, is taken as it is; the checkpoint then says the scheme.
"""
from __future__ import annotations

import ctypes
import dataclasses
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
from .checkpoints import StoredWeight, inspect, scheme_config, scheme_info, stored_weights
from .enable import enable_fp8_gemm
from .nn import FP8GemmOptions, FP8Linear

_METHOD = "libfp8"
_libc, _MADV_PAGEOUT = ctypes.CDLL(None), 21
_CODES = {"F8_E4M3": torch.float8_e4m3fn}
_ALL_CODES = ("F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")
_SCALES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "U8": torch.uint8,
           "F8_E8M0": torch.float8_e8m0fnu}

# The dialect that a scheme is written as; of the dialects themselves the library has the table.
_DIALECTS = {"block": "hf-block", "tensor": "ct-tensor", "channel": "ct-channel", "weight-only": "ct-w8a16",
             "mxfp8": "ct-mxfp8"}


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
        dialect, experts = _DIALECTS[self.scheme], self.experts
        if dialect.startswith("ct-"):  # names of linear modules alone, or patterns
            experts = [rf"re:{re.escape(name)}\..*" for name in experts]
        return scheme_config(dialect, self.kept + experts)


class _Quantize(ConversionOps):
    """A weight that was read becomes its layer's codes; nothing is left to be set as a parameter."""

    def convert(self, input_dict: dict[str, Any], source_patterns: list[str], target_patterns: list[str], *,
                model: nn.Module, missing_keys: set[str] | None = None, **kwargs: Any) -> dict[str, Any]:
        for name, value in input_dict.items():
            layer, _ = get_module_from_name(model, name)
            layer_state.take_weight(layer, value[0] if isinstance(value, list) else value, follow=True)
            layer._is_hf_initialized = True
            if layer_state.can_materialize(layer):
                layer_state.refresh(layer)
                _page_out(value[0] if isinstance(value, list) else value)
            if missing_keys is not None:
                missing_keys.discard(name)
        return {}


def _page_out(tensor: Tensor) -> None:
    """A weight that was read stays in memory as pages of the mapped file; nobody needs them, the kernel may take them."""
    if not tensor.is_cpu:
        return
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

    _placed = False  # whether it is known where every parameter goes

    def is_serializable(self) -> bool:
        return True

    def validate_environment(self, *args: Any, device_map: Any = None, **kwargs: Any) -> None:
        self._placed = isinstance(device_map, dict)

    def param_element_size(self, model: nn.Module, param_name: str, param: Tensor) -> float:
        """Bytes that places are chosen by; after that, those that PyTorch's allocator is asked to have ready, and codes lie
        in memory of the library's own."""
        taken = self._placed and self.param_needs_quantization(model, param_name)
        return 0 if taken else float(super().param_element_size(model, param_name, param))

    def param_needs_quantization(self, model: nn.Module, param_name: str, **kwargs: Any) -> bool:
        module, leaf = get_module_from_name(model, param_name)
        return isinstance(module, FP8Linear) and leaf == "weight" and not self.pre_quantized

    def get_quantize_ops(self) -> ConversionOps:
        return _Quantize()

    def get_new_dtype(self, converter: Any, param: Any, dtype: torch.dtype | None) -> torch.dtype | None:
        stored = param.get_dtype() if hasattr(param, "get_dtype") else str(param.dtype)
        if stored in _ALL_CODES and dtype not in _CODES.values():
            raise NotImplementedError(f"checkpoint has {stored} codes for {', '.join(converter.target_patterns)}, which is no "
                                      "nn.Linear of this model, or has no scale that fits: they would be read without one "
                                      "(`fp8 dequantize` makes it bf16)")
        return super().get_new_dtype(converter, param, dtype)

    def _process_model_before_weight_loading(self, model: nn.Module, checkpoint_files: list[str] | None = None,
                                             **kwargs: Any) -> nn.Module:
        dialect, weights, announced = _read(checkpoint_files or [])
        self.pre_quantized, config = dialect != "none", self.quantization_config
        config.stored = announced if self.pre_quantized else None
        if self.pre_quantized:
            layers = _places(model, weights)
            if not layers:
                raise NotImplementedError(f"checkpoint's dialect is {dialect!r}, of which no weight can be taken as it is")
            config.scheme = next(iter(layers.values())).scheme
        else:
            skipped = self.get_modules_to_not_convert(model, config.modules_to_not_convert, model._keep_in_fp32_modules)
            layers = {name: None for name, module in model.named_modules()
                      if isinstance(module, nn.Linear) and should_convert_module(name, skipped)}
        for scheme in sorted({weight.scheme if weight else config.scheme for weight in layers.values()}):
            _enable(model, dataclasses.replace(config.options, scheme=scheme),
                    {name: weight for name, weight in layers.items() if not weight or weight.scheme == scheme})
        config.kept = sorted(name for name, module in model.named_modules()
                                               if isinstance(module, nn.Linear) and not isinstance(module, FP8Linear))
        if not self.pre_quantized:
            config.experts = self._experts(model)
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


def _read(files: list[str]) -> tuple[str, tuple[StoredWeight, ...], dict[str, Any] | None]:
    """The dialect of safetensors files of one directory, their weights that are codes, and what config.json says of it."""
    folders = {pathlib.Path(file).parent for file in files if file.endswith(".safetensors")}
    if not folders:
        return "none", (), None
    folder = folders.pop()
    dialect = inspect(folder).dialect
    if dialect == "none":
        return dialect, (), None
    announced = json.loads((folder / "config.json").read_text()).get("quantization_config")
    return dialect, stored_weights(folder), announced


def _places(model: nn.Module, weights: tuple[StoredWeight, ...]) -> dict[str, StoredWeight]:
    """The linear modules whose weight is stored as codes that a layer takes; with the model's prefix or without."""
    stored = {w.weight.name: w for w in weights if w.scheme and w.weight.dtype in _CODES}
    prefix = model.base_model_prefix + "."
    found = {}
    for name, module in model.named_modules():
        keys = (key + ".weight" for key in (name, name.removeprefix(prefix), prefix + name))
        weight = next((stored[key] for key in keys if key in stored), None)
        if isinstance(module, nn.Linear) and weight and weight.scale.name.rpartition(".")[2] in layer_state.SCALE_KEYS:
            found[name] = weight
    return found


def _enable(model: nn.Module, options: FP8GemmOptions, layers: dict[str, StoredWeight] | dict[str, None]) -> None:
    """Puts FP8Linear in these places, knowing how scales are stored; if codes are to be read, with parameters without storage
    for them."""
    enable_fp8_gemm(model, options=options, module_filter=lambda name, _: name in layers)
    written = scheme_info(_DIALECTS[options.scheme])
    for name, stored in layers.items():
        layer = model.get_submodule(name)
        if not isinstance(layer, FP8Linear):
            continue
        if stored is None:
            layer.stored_scale = written.scale_name.decode(), None, torch.uint8 if written.scale_dtype == b"U8" else None
            continue
        weight, scale = stored.weight, stored.scale
        leaf = scale.name.rpartition(".")[2]
        layer.stored_scale = leaf, scale.shape, _SCALES[scale.dtype]
        layer._parameters["weight"] = _empty(weight.shape, _CODES[weight.dtype])
        layer._parameters[leaf] = _empty(scale.shape, _SCALES[scale.dtype])


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
