# SPDX-License-Identifier: Apache-2.0
"""The packages that own the formats read our quantization_config and mean by it what we do.

    check_config.py PRINT_CONFIG

Exit: 0 all right, 1 something is wrong, 77 the packages are not there.
"""
import json
import subprocess
import sys

try:
    from compressed_tensors.quantization import QuantizationConfig
    from compressed_tensors.quantization.quant_args import QuantizationStrategy as Strategy
    from transformers import FineGrainedFP8Config
except ImportError as missing:
    sys.exit(print(f"check_config: skipped, {missing}") or 77)

KEPT = ["lm_head", "model.layers.0.mlp.gate"]
checks = 0


def printed(*words):
    return json.loads(subprocess.run([sys.argv[1], *words], check=True, capture_output=True, text=True).stdout)


def equal(what, found, wanted):
    global checks
    checks += 1
    if found != wanted:
        sys.exit(print(f"check_config: {what}: {found!r}, wanted {wanted!r}") or 1)


def compressed_tensors():
    """scheme: format, weights' strategy, their group or block, activations' strategy (None: none), static."""
    rows = {
        "ct-channel": ("float-quantized", Strategy.CHANNEL, None, Strategy.TOKEN, False),
        "ct-tensor": ("float-quantized", Strategy.TENSOR, None, Strategy.TOKEN, False),
        "ct-tensor-static": ("float-quantized", Strategy.TENSOR, None, Strategy.TENSOR, True),
        "ct-block": ("float-quantized", Strategy.BLOCK, [128, 128], Strategy.GROUP, False),
        "ct-w8a16": ("naive-quantized", Strategy.CHANNEL, None, None, False),
        "ct-mxfp8": ("mxfp8-quantized", Strategy.GROUP, 32, Strategy.GROUP, False),
    }
    for scheme, (form, strategy, extent, activation, static) in rows.items():
        config = QuantizationConfig.model_validate(printed(scheme, "vllm", *KEPT))
        group = config.config_groups["group_0"]
        equal(scheme + " format", config.format, form)
        equal(scheme + " status", config.quantization_status.value, "compressed")
        equal(scheme + " ignore", config.ignore, KEPT)
        equal(scheme + " targets", group.targets, ["Linear"])
        equal(scheme + " strategy", group.weights.strategy, strategy)
        kind = str(getattr(group.weights.type, "value", group.weights.type))
        equal(scheme + " bits", (group.weights.num_bits, kind), (8, "float"))
        equal(scheme + " symmetric", (group.weights.symmetric, group.weights.dynamic), (True, False))
        found = group.weights.block_structure if strategy == Strategy.BLOCK else group.weights.group_size
        equal(scheme + " extent", found, extent)
        equal(scheme + " activations", getattr(group.input_activations, "strategy", None), activation)
        if activation:
            equal(scheme + " dynamic", group.input_activations.dynamic, not static)
    mixed = QuantizationConfig.model_validate(printed("mixed"))
    equal("mixed format", mixed.format, "mixed-precision")
    equal("mixed targets", [g.targets for g in mixed.config_groups.values()],
          [["model.layers.0.mlp.up_proj"], ["model.layers.0.mlp.down_proj"]])
    equal("mixed formats", [str(g.format) for g in mixed.config_groups.values()],
          ["float-quantized", "naive-quantized"])


def transformers():
    for scheme, block in (("hf-block", [128, 128]), ("hf-tensor", None)):
        config = FineGrainedFP8Config.from_dict(printed(scheme, "transformers", *KEPT))
        equal(scheme + " block", config.weight_block_size and list(config.weight_block_size), block)
        equal(scheme + " kept", config.modules_to_not_convert, KEPT)
        equal(scheme + " activations", config.activation_scheme, "dynamic")
        equal(scheme + " scales", config.scale_fmt, "float")


compressed_tensors()
transformers()
print(f"check_config: {checks} facts agree")
