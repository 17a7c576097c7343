# SPDX-License-Identifier: Apache-2.0
"""Every linear layer of a PyTorch model in FP8, by one call."""
import torch

import fp8

model = torch.nn.Sequential(torch.nn.Linear(512, 2048), torch.nn.GELU(), torch.nn.Linear(2048, 512)).bfloat16().eval()
x = torch.randn(4, 512, dtype=torch.bfloat16)
with torch.inference_mode():
    before = model(x)
    fp8.enable_fp8_gemm(model, options=fp8.FP8GemmOptions(scheme="channel"))
    print(f"relative difference: {(model(x) - before).norm() / before.norm():.3f}")
