# SPDX-License-Identifier: Apache-2.0
"""FP8 numbers, linear layers and checkpoints. Needs nothing but libfp8, which the wheel holds; numpy and PyTorch are used
when their arrays come in, and what needs PyTorch is imported when it is asked for.

    codes, scales = fp8.quantize(w, (128, 128))                 # numpy or torch
    fp8.quantize_checkpoint("Llama-3.1-8B", "Llama-3.1-8B-FP8") # files
    model = fp8.enable_fp8_gemm(model)                          # every nn.Linear of a PyTorch model
"""
from __future__ import annotations

import importlib

from . import _c
from .checkpoints import (Checkpoint, Conversion, Finding, Progress, Verification, convert_checkpoint, dequantize_checkpoint,
                          inspect, quantize_checkpoint, verify)
from .context import Context
from .errors import Stopped
from .linear import Linear, matmul
from .numbers import dequantize, quantize, requantize

__version__ = _c.lib.fp8_version().decode()

# What needs PyTorch or transformers, and where it is.
_LAZY = {"Fp8Config": "hf", "FP8GemmOptions": "nn", "FP8Linear": "nn", "enable_fp8_gemm": "enable",
         "use_tuned": "ops"}

__all__ = ["Checkpoint", "Context", "Conversion", "Finding", "Linear", "Progress", "Stopped", "Verification",
           "convert_checkpoint", "dequantize", "dequantize_checkpoint", "inspect", "matmul", "quantize",
           "quantize_checkpoint", "requantize", "verify", *_LAZY]


def __getattr__(name: str) -> object:
    if name not in _LAZY:
        raise AttributeError(f"module 'fp8' has no attribute {name!r}")
    return globals().setdefault(name, getattr(importlib.import_module("." + _LAZY[name], __name__), name))
