# SPDX-License-Identifier: Apache-2.0
"""enable_fp8_gemm: a model's nn.Linear modules become FP8Linear, but for those that cannot, which are named."""
from __future__ import annotations

import copy
import functools
import warnings
from collections.abc import Callable, Iterator

from torch import nn
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
_HOOKS = ("_forward_hooks", "_forward_hooks_with_kwargs", "_forward_hooks_always_called", "_forward_pre_hooks",
          "_forward_pre_hooks_with_kwargs", "_backward_hooks", "_backward_pre_hooks")


def enable_fp8_gemm(model: nn.Module, *, options: FP8GemmOptions = FP8GemmOptions(), module_filter: Filter | None = None,
                    inplace: bool = True) -> nn.Module:
    """Replaces the nn.Linear modules of a model by FP8Linear; returns the model, or a copy if not inplace.

    module_filter(full dotted name, module): whether to replace it; None = all. A nn.Linear given as the model is returned
    wrapped. One module in two places stays one. Left as they are, with a UserWarning that names them: modules whose weight
    another module reads or shares, and subclasses of nn.Linear with a forward of their own.
    Errors: TypeError, ValueError (an option, or a shape that the scheme does not take); the model is then unchanged."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected nn.Module, got {type(model)}")
    options.check()
    if not inplace:
        model = copy.deepcopy(model)
    wanted = {name: module for name, module in _linears(model) if module_filter is None or module_filter(name, module)}
    owners = _owners(model)
    left = {name: why for name, module in wanted.items() if (why := _obstacle(model, name, module, options, owners))}
    for name, module in wanted.items():
        if name not in left:
            _check(name, module, options)
    if left:
        listed = "; ".join(f"{name or 'the model'} ({why})" for name, why in left.items())
        warnings.warn(f"enable_fp8_gemm left as they are: {listed}", stacklevel=2)
    places: dict[nn.Linear, list[str]] = {}
    for name, module in wanted.items():
        if name not in left:
            places.setdefault(module, []).append(name)
    wanted.clear()
    while places:  # a layer at a time, so that no other is held in both precisions
        module, names = places.popitem()
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
    if parametrize.is_parametrized(module) or "weight" not in module._parameters:
        return "its weight is computed by a parametrization"
    parent_name, _, child = name.rpartition(".")
    parent = model.get_submodule(parent_name)
    for reader, children in _READERS:
        if name and isinstance(parent, reader) and (children is None or child in children):
            return f"{type(parent).__name__} reads its weight"
    if options.fp16_weight_storage != "keep":
        for other in owners[id(module.weight)]:
            if model.get_submodule(other) is not module:
                return f"its weight is tied to {other}"
    return None


def _check(name: str, module: nn.Linear, options: FP8GemmOptions) -> None:
    try:
        _declared(module.out_features, module.in_features, options.scheme, options.rule)
    except (ValueError, NotImplementedError) as error:
        raise type(error)(f"{name or 'the model'}: {error}") from error


@functools.cache
def _declared(n: int, k: int, scheme: str, rule: str) -> None:
    """ValueError or NotImplementedError if there can be no such layer."""
    ops.Layer(n, k, scheme=scheme, rule=rule)


def _wrapped(module: nn.Linear, options: FP8GemmOptions) -> FP8Linear:
    made = FP8Linear(module, options=options)
    made.__dict__.update({hooks: module.__dict__[hooks] for hooks in _HOOKS})
    if options.materialize_fp8_on_wrap and options.cpu == "fp8" and can_materialize(made):
        made.materialize_fp8_weight()
    return made


def _put(model: nn.Module, name: str, made: FP8Linear) -> nn.Module:
    if not name:
        return made
    parent, _, child = name.rpartition(".")
    setattr(model.get_submodule(parent), child, made)
    return model
