#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Peak memory of transformers' from_pretrained with an Fp8Config, each load in a process of its own.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python bench/python_memory.py MODEL [--scheme S]

interpreter: VmHWM with torch, transformers and the quantizer imported. final: bytes of the
loaded model's parameters, buffers, codes and scales. share: (peak - interpreter) / final, at most 1.2. MODEL: a directory in
high precision, or one that is FP8 already, which is loaded as it is. Exit: 1 if a share is above."""
import argparse
import os
import subprocess
import sys

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("--scheme", action="append", help="block, tensor, channel, weight-only, mxfp8; default: all")
parser.add_argument("--child", help=argparse.SUPPRESS)
options = parser.parse_args()
LIMIT, MIB = 1.2, 1 << 20


def status(key):
    """VmRSS or VmHWM in bytes."""
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) * 1024 for line in file if line.startswith(key))


def held(model):
    import fp8

    tensors = {t.data_ptr(): t.nbytes for t in (*model.parameters(), *model.buffers())}
    infos = [m._layer.info for m in model.modules() if isinstance(m, fp8.FP8Linear)]
    return sum(tensors.values()) + sum(i.code_bytes + i.scale_bytes + i.other_bytes + i.source_bytes for i in infos)


def child():
    import torch
    import transformers

    import fp8

    import fp8.hf  # noqa: F401 (imported by the load otherwise)
    quantization = None if options.child == "none" else fp8.Fp8Config(options.child)
    before = status("VmHWM")
    model = transformers.AutoModelForCausalLM.from_pretrained(options.model, dtype=torch.bfloat16,
                                                              quantization_config=quantization)
    peak = status("VmHWM")
    with torch.inference_mode():
        model(torch.arange(16)[None])
    print(before, peak, status("VmHWM"), held(model))


def main():
    failed = False
    for scheme in ("none", *(options.scheme or ("block", "tensor", "channel", "weight-only", "mxfp8"))):
        command = [sys.executable, __file__, options.model, "--child", scheme]
        quiet = os.environ | {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_VERBOSITY": "error"}
        words = subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                               env=quiet).stdout.split()
        before, peak, used, final = map(int, words[-4:])
        share = (peak - before) / final
        failed |= scheme != "none" and share > LIMIT
        print(f"bench python_memory scheme={scheme} interpreter_mib={before / MIB:.0f} peak_mib={peak / MIB:.0f} "
              f"peak_after_16_tokens_mib={used / MIB:.0f} final_mib={final / MIB:.0f} share={share:.2f} "
              f"share_after_16_tokens={(used - before) / final:.2f}", flush=True)
    return int(failed)


if options.child is None:
    sys.exit(main())
child()
