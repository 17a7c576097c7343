#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What a model of transformers loses through FP8 layers, weights and activations, and what it computes with.

    FP8_LIBRARY=build/release/libfp8.so.0 PYTHONPATH=python .venv/bin/python bench/python_quality.py MODEL --text FILE
        [--scheme S] [--way enable|config] [--rule R] [--dtype float32|bfloat16] [--cast-to float32|bfloat16]
        [--min-cos X] [--max-kl X]

MODEL: a directory with its tokenizer, an encoder or a causal language model. FILE: sentences, one a line, for an encoder; a
text for a language model. A line for each scheme and way of making the layers (enable_fp8_gemm, or Fp8Config while loading):

cos_mean, cos_min  of an encoder's normalized mean embeddings to the source's in float32
kl, top1, ppl      of a language model's next tokens: mean of KL(source, ours) in nats, share of the same choice, ratio
fp8_calls          of fp8::linear in the profile of one pass, beside FP8Linear modules x batches
other_linears      calls of aten::linear, beside those modules that were left
copies             live tensors in high precision of the shape of a discarded weight

Exit: 1 if a limit is missed, calls do not add up, a copy is alive, or generation is not what its logits choose."""
import argparse
import gc
import pathlib
import sys
import warnings

import torch
import transformers
from torch import nn

import fp8
from divergence import divergence

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("model")
parser.add_argument("--text", type=pathlib.Path, required=True)
parser.add_argument("--scheme", action="append", help="default: tensor, channel, block, mxfp8, weight-only")
parser.add_argument("--way", choices=["enable", "config"], action="append", help="default: both")
parser.add_argument("--rule", default="best")
parser.add_argument("--dtype", choices=["float32", "bfloat16"], default="bfloat16", help="of what is not FP8")
parser.add_argument("--cast-to", choices=["float32", "bfloat16"], default="bfloat16", help="of float32 inputs")
parser.add_argument("--min-cos", type=float)
parser.add_argument("--max-kl", type=float)
options = parser.parse_args()
HIGH = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


def load(dtype, config=None):
    kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
    return kind.from_pretrained(options.model, dtype=dtype, quantization_config=config).eval()


def made(way, scheme):
    dtype = getattr(torch, options.dtype)
    if way == "config":
        return load(dtype, fp8.Fp8Config(scheme, rule=options.rule, cast_to=options.cast_to))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a head that is tied, which the counts show
        how = fp8.FP8GemmOptions(scheme=scheme, rule=options.rule, cast_to=options.cast_to)
        return fp8.enable_fp8_gemm(load(dtype), options=how, module_filter=lambda name, _: name != "lm_head")


def batches():
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    text = options.text.read_text(encoding="utf-8")
    if causal:
        return [dict(tokenizer(text, return_tensors="pt"))]
    lines = text.splitlines()
    return [dict(tokenizer(lines[i:i + 10], padding=True, return_tensors="pt")) for i in range(0, len(lines), 10)]


@torch.inference_mode()
def outputs(model):
    """Logits [T, V] of a language model, embeddings [sentences, H] of an encoder."""
    if causal:
        return model(**inputs[0]).logits[0].float()
    rows = []
    for batch in inputs:
        hidden, mask = model(**batch).last_hidden_state.float(), batch["attention_mask"].unsqueeze(-1)
        rows.append(nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1), dim=1))
    return torch.cat(rows)


def compare_tokens(ours):
    found = divergence(want, ours, inputs[0]["input_ids"][0, 1:])
    return options.max_kl is None or found.kl <= options.max_kl, str(found)


def compare_embeddings(ours):
    cosine = (want * ours).sum(1)
    good = options.min_cos is None or cosine.mean() >= options.min_cos
    return good, f"cos_mean={cosine.mean():.5f} cos_min={cosine.min():.5f}"


def calls_of(model):
    """Whether one pass computed its linears by our operator, and only those that were left by PyTorch's; and the counts."""
    ran = []
    hooks = [m.register_forward_hook(lambda m, *_: ran.append(type(m))) for m in model.modules() if isinstance(m, nn.Linear)]
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        outputs(model)
    for hook in hooks:
        hook.remove()
    count = {event.key: event.count for event in profile.key_averages()}
    ours, theirs = ran.count(fp8.FP8Linear), ran.count(nn.Linear)
    seen = count.get("fp8::linear", 0), count.get("aten::linear", 0)
    return seen == (ours, theirs) and ours > 0, f"fp8_calls={seen[0]}/{ours} other_linears={seen[1]}/{theirs}"


def copies_of(model):
    """Tensors of the shape of a weight that should be gone, and bytes that the layers hold for it."""
    layers = [m for m in model.modules() if isinstance(m, fp8.FP8Linear)]
    shapes = {(m.out_features, m.in_features) for m in layers} | {(m.in_features, m.out_features) for m in layers}
    kept = {id(p) for p in model.parameters()}
    gc.collect()
    found = [t for t in gc.get_objects() if issubclass(type(t), torch.Tensor) and id(t) not in kept and not t.is_meta
             and t.dtype in HIGH and tuple(t.shape) in shapes]
    return len(found) + sum(m._layer.info.source_bytes > 0 for m in layers)


@torch.inference_mode()
def generates(model):
    """Whether greedy generation with its cache takes the tokens that whole passes choose, but for near ties."""
    if not causal:
        return True
    prompt = inputs[0]["input_ids"][:, :16]
    out = model.generate(prompt, max_new_tokens=16, do_sample=False, pad_token_id=0)
    if out.shape[1] <= 16:
        return False
    logits = model(out).logits[0, 15:-1].float()
    lead = logits.max(-1).values - logits.gather(-1, out[0, 16:, None])[:, 0]
    return bool((lead <= 2.0**-4 * logits.abs().max()).all())  # the cache's rows are summed in another order


architectures = transformers.AutoConfig.from_pretrained(options.model).architectures
causal = any("CausalLM" in name or "LMHead" in name for name in architectures)
transformers.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()
inputs = batches()
want = outputs(load(torch.float32))
failed = False
for scheme in options.scheme or ("tensor", "channel", "block", "mxfp8", "weight-only"):
    for way in options.way or ("enable", "config"):
        model = made(way, scheme)
        copies = copies_of(model)
        counted, counts = calls_of(model)
        good, words = (compare_tokens if causal else compare_embeddings)(outputs(model))
        generation = generates(model)
        failed |= not (good and counted and generation) or copies > 0
        print(f"bench python_quality scheme={scheme} way={way} rule={options.rule} dtype={options.dtype} "
              f"cast_to={options.cast_to} {words} {counts} copies={copies}"
              + (f" generation={generation}" if causal else ""), flush=True)
        del model
sys.exit(int(failed))
