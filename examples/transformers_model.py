# SPDX-License-Identifier: Apache-2.0
"""transformers_model.py CHECKPOINT [OUTPUT]: loads a bf16 checkpoint in FP8, never whole in bf16; writes it back if told to."""
import sys

import torch
from transformers import AutoModelForCausalLM

import fp8

model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype="bfloat16", quantization_config=fp8.Fp8Config("block"))
print(model.generate(torch.tensor([[1, 2, 3]]), max_new_tokens=8, do_sample=False).tolist())
if len(sys.argv) > 2:
    model.save_pretrained(sys.argv[2])
