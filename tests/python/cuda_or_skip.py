# SPDX-License-Identifier: Apache-2.0
"""Imported first by tests that need a GPU: ends the program with 77, a skip, where PyTorch or a GPU is missing."""
import sys

try:
    import torch
except ImportError as missing:
    print(f"skipped: {missing} (script/bootstrap python)")
    sys.exit(77)
if not torch.cuda.is_available():
    print("skipped: no GPU that PyTorch can use")
    sys.exit(77)

CUDA = torch.device("cuda", torch.cuda.current_device())
