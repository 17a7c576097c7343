# SPDX-License-Identifier: Apache-2.0
"""enable_fp8_gemm: a model's nn.Linear modules become FP8Linear, but for those that cannot, which are named."""
from __future__ import annotations

import contextlib
import copy
import functools
import warnings
from collections.abc import Callable, Iterator

from torch import nn
from torch.nn.modules.module import _WrappedHook
from torch.nn.parameter import UninitializedTensorMixin
from torch.nn.utils import parametrize

from . import ops
from .layer_state import can_materialize
from .nn import FP8GemmOptions, FP8Linear

Filter = Callable[[str, nn.Module], bool]

# They read the weight of a child, and never call it.
_READERS: tuple[tuple[type[nn.Module], tuple[str, ...] | None], ...] = (
    (nn.MultiheadAttention, None),
    (nn.TransformerEncoderLayer, ("linear1", "linear2")),
)
# What an FP8Linear has of its own; hooks and whatever else was put on the nn.Linear goes with it.
_OWN = ("_parameters", "_buffers", "_modules", "options", "save_codes", "stored_scale", "_source", "_layer")


def enable_fp8_gemm(model: nn.Module, *, options: FP8GemmOptions = FP8GemmOptions(), module_filter: Filter | None = None,
                    inplace: bool = True) -> nn.Module:
    """Replaces the nn.Linear modules of a model by FP8Linear; returns the model, or a copy if not inplace.

    module_filter(full dotted name, module): whether to replace it; None = all. A nn.Linear given as the model is returned
    wrapped. One module in two places stays one; hooks, biases and attributes stay themselves. Left as they are, with a
    UserWarning that names them: modules whose weight another module reads or shares, and a nn.Linear that is more than a
    weight and a bias, or computes otherwise.
    Errors: TypeError, ValueError (an option, or a shape that the scheme does not take); the model is then unchanged. ValueError
    for a weight that holds NaN or infinity, which is named and stays, with those that come before it in the model."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected nn.Module, got {type(model)}")
    if not isinstance(options, FP8GemmOptions):
        raise TypeError(f"expected FP8GemmOptions, got {options!r}")
    options.check()
    if not inplace:
        model = copy.deepcopy(model)
    wanted = {name: module for name, module in _linears(model) if module_filter is None or module_filter(name, module)}
    owners = _owners(model)
    obstacles = {module: why for name, module in wanted.items() if (why := _obstacle(model, name, module, options, owners))}
    left = {name: obstacles[module] for name, module in wanted.items() if module in obstacles}
    for name, module in wanted.items():
        if name not in left:
            with _named(name):
                _declared(module.out_features, module.in_features, options.scheme, options.rule)
    if left:
        listed = "; ".join(f"{name or 'the model'} ({why})" for name, why in left.items())
        warnings.warn(f"enable_fp8_gemm left as they are: {listed}", stacklevel=2)
    places: dict[nn.Linear, list[str]] = {}
    for name, module in wanted.items():
        if name not in left:
            places.setdefault(module, []).append(name)
    wanted.clear()
    obstacles.clear()
    while places:  # a layer at a time, so that no other is held in both precisions
        module, names = places.popitem()
        with _named(names[0]):
            made = _wrapped(module, options)
        for name in names:
            model = _put(model, name, made)
    return model


def _linears(model: nn.Module) -> Iterator[tuple[str, nn.Linear]]:
    """Each place of each one, FP8Linear excepted."""
    for name, module in model.named_modules(remove_duplicate=False):
        if isinstance(module, nn.Linear) and not isinstance(module, FP8Linear):
            yield name, module


def _owners(model: nn.Module) -> dict[int, list[str]]:
    """{id of a parameter: names of the modules that have it}."""
    found: dict[int, list[str]] = {}
    for name, module in model.named_modules(remove_duplicate=False):
        for parameter in module._parameters.values():
            found.setdefault(id(parameter), []).append(name)
    return found


def _obstacle(model: nn.Module, name: str, module: nn.Linear, options: FP8GemmOptions,
              owners: dict[int, list[str]]) -> str | None:
    """Why a module cannot be replaced, or None."""
    if type(module).forward is not nn.Linear.forward or "forward" in module.__dict__:
        return f"{type(module).__name__} has a forward of its own"
    if parametrize.is_parametrized(module) or not {"weight", "bias"} <= module._parameters.keys():
        return "its weight or bias is computed by a parametrization"
    if len(module._parameters) > 2 or module._buffers or module._modules:
        return "it holds more than a weight and a bias"
    if isinstance(module.weight, UninitializedTensorMixin):
        return "its weight has no shape yet"
    if not module.weight.is_floating_point():
        return f"its weight is {module.weight.dtype}"
    parent_name, _, child = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    for reader, children in _READERS:
        if name and isinstance(parent, reader) and (children is None or child in children):
            return f"{type(parent).__name__} reads its weight"
    if options.fp16_weight_storage != "keep":
        for other in owners[id(module.weight)]:
            if model.get_submodule(other) is not module:
                return f"its weight is tied to {other or 'the model itself'}"
    return None


@contextlib.contextmanager
def _named(name: str) -> Iterator[None]:
    """Puts the module's name before the words of an error."""
    try:
        yield
    except (ValueError, NotImplementedError) as error:
        error.args = (f"{name or 'the model'}: {error}",)
        raise


@functools.cache
def _declared(n: int, k: int, scheme: str, rule: str) -> None:
    """ValueError or NotImplementedError if there can be no such layer."""
    ops.Layer(n, k, scheme=scheme, rule=rule)


def _wrapped(module: nn.Linear, options: FP8GemmOptions) -> FP8Linear:
    made = FP8Linear(module, options=options)
    made.__dict__.update({name: value for name, value in module.__dict__.items() if name not in _OWN})
    made._parameters["bias"] = module.bias  # itself: an optimizer may hold it, or another module
    for key, hook in made._load_state_dict_pre_hooks.items():
        if hook.with_module:  # the hook knows the module that it was put on
            made._load_state_dict_pre_hooks[key] = _WrappedHook(hook.hook, made)
    if options.materialize_fp8_on_wrap and options.cpu == "fp8" and can_materialize(made):
        made.materialize_fp8_weight()
    return made


def _put(model: nn.Module, name: str, made: FP8Linear) -> nn.Module:
    if not name:
        return made
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, made)
    return model
