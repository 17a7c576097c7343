/* SPDX-License-Identifier: Apache-2.0
 *
 * dialect.c - the table of dialects, and the names and shapes of scale tensors that follow from a
 * row. A new dialect is a new row here, its announcement a row in announce.c and quantconfig.c. */
#include "ckpt/dialect.h"

#include "base/size.h"

#include <string.h>

#define BLOCK    \
    {            \
        128, 128 \
    }
#define CHANNEL \
    {           \
        1, 0    \
    }
#define TENSOR \
    {          \
        0, 0   \
    }
#define MX    \
    {         \
        1, 32 \
    }

#define ALL_ENGINES "vllm sglang transformers tensorrt-llm"

static const fp8_dialect dialects[] = {
    {.name = "hf-block",
     .config = FP8_CONFIG_HF_FP8,
     .grid = BLOCK,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale_inv",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_GROUP,
     .algorithm = "float",
     .writable = true,
     .loaders = ALL_ENGINES,
     .summary = "one scale per 128 x 128 block, as DeepSeek-V3 and Qwen3-FP8"},
    {.name = "hf-tensor",
     .config = FP8_CONFIG_HF_FP8,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_SCALAR,
     .activations = FP8_ACTIVATIONS_TOKEN,
     .writable = true,
     .loaders = "vllm sglang transformers",
     .summary = "one scale per matrix; spelled weight_scale_inv [1,1] for transformers"},
    {.name = "hf-tensor",
     .engine = "transformers",
     .config = FP8_CONFIG_HF_FP8,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale_inv",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_TOKEN,
     .writable = true,
     .loaders = "transformers",
     .summary = "one scale per matrix, as transformers names it"},
    {.name = "ct-channel",
     .config = FP8_CONFIG_CT,
     .grid = CHANNEL,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_TOKEN,
     .algorithm = "channel",
     .writable = true,
     .loaders = ALL_ENGINES,
     .summary = "one scale per output channel (compressed-tensors FP8_DYNAMIC)"},
    {.name = "ct-tensor",
     .config = FP8_CONFIG_CT,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_ONE,
     .activations = FP8_ACTIVATIONS_TOKEN,
     .algorithm = "tensor",
     .writable = true,
     .loaders = "vllm sglang transformers",
     .summary = "one scale per matrix, dynamic activations (compressed-tensors)"},
    {.name = "ct-tensor-static",
     .config = FP8_CONFIG_CT,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_ONE,
     .activations = FP8_ACTIVATIONS_STATIC,
     .input_suffix = "input_scale",
     .algorithm = "tensor",
     .writable = true,
     .needs_activation_scales = true,
     .loaders = "vllm sglang transformers",
     .summary = "one scale per matrix and one for its input (compressed-tensors FP8)"},
    {.name = "ct-block",
     .config = FP8_CONFIG_CT,
     .grid = BLOCK,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_GROUP,
     .algorithm = "block",
     .writable = true,
     .loaders = ALL_ENGINES,
     .summary = "one scale per 128 x 128 block (compressed-tensors FP8_BLOCK)"},
    {.name = "ct-w8a16",
     .config = FP8_CONFIG_CT,
     .grid = CHANNEL,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_NONE,
     .algorithm = "channel",
     .writable = true,
     .loaders = "vllm sglang transformers",
     .summary = "one scale per output channel, activations stay as they are"},
    {.name = "ct-mxfp8",
     .config = FP8_CONFIG_CT,
     .grid = MX,
     .code = FP8_E4M3FN,
     .scale = FP8_E8M0FNU,
     .scale_on_disk = FP8_U8,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_MX,
     .algorithm = "group",
     .writable = true,
     .whole_blocks = true,
     .loaders = "vllm transformers",
     .summary = "one power of two per 32 of a row (compressed-tensors MXFP8)"},
    {.name = "modelopt",
     .config = FP8_CONFIG_MODELOPT,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_SCALAR,
     .activations = FP8_ACTIVATIONS_STATIC,
     .input_suffix = "input_scale",
     .algorithm = "FP8",
     .writable = true,
     .needs_activation_scales = true,
     .loaders = "vllm sglang tensorrt-llm",
     .summary = "one scale per matrix and one for its input (ModelOpt FP8)"},
    {.name = "modelopt-pcpt",
     .config = FP8_CONFIG_MODELOPT,
     .grid = CHANNEL,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_VECTOR,
     .activations = FP8_ACTIVATIONS_TOKEN,
     .algorithm = "FP8_PER_CHANNEL_PER_TOKEN",
     .writable = true,
     .loaders = "vllm tensorrt-llm",
     .summary = "one scale per output channel (ModelOpt FP8_PER_CHANNEL_PER_TOKEN)"},
    {.name = "modelopt-pb-wo",
     .config = FP8_CONFIG_MODELOPT,
     .grid = BLOCK,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_GRID4,
     .activations = FP8_ACTIVATIONS_NONE,
     .algorithm = "FP8_PB_WO",
     .writable = true,
     .whole_blocks = true,
     .loaders = "vllm",
     .summary = "one scale per 128 x 128 block, whole blocks only (ModelOpt FP8_PB_WO)"},
    {.name = "modelopt-mxfp8",
     .config = FP8_CONFIG_MODELOPT,
     .grid = MX,
     .code = FP8_E4M3FN,
     .scale = FP8_E8M0FNU,
     .scale_on_disk = FP8_U8,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_MX,
     .algorithm = "MXFP8",
     .writable = true,
     .whole_blocks = true,
     .loaders = "vllm sglang tensorrt-llm",
     .summary = "one power of two per 32 of a row (ModelOpt MXFP8)"},
    {.name = "mxfp8",
     .config = FP8_CONFIG_HF_MXFP8,
     .grid = MX,
     .code = FP8_E4M3FN,
     .scale = FP8_E8M0FNU,
     .scale_on_disk = FP8_U8,
     .scale_suffix = "weight_scale_inv",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_MX,
     .writable = true,
     .whole_blocks = true,
     .loaders = "sglang tensorrt-llm vllm",
     .summary = "one power of two per 32 of a row (quant_method mxfp8)"},
    {.name = "comfy",
     .config = FP8_CONFIG_COMFY,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_SCALAR,
     .activations = FP8_ACTIVATIONS_TENSOR,
     .marker_suffix = "comfy_quant",
     .marker_text = "{\"format\": \"float8_e4m3fn\"}",
     .algorithm = "float8_e4m3fn",
     .writable = true,
     .loaders = "comfyui",
     .summary = "one scale per matrix and a marker tensor beside it (ComfyUI)"},
    {.name = "hf-block-ue8m0",
     .config = FP8_CONFIG_HF_FP8,
     .grid = BLOCK,
     .code = FP8_E4M3FN,
     .scale = FP8_E8M0FNU,
     .scale_on_disk = FP8_E8M0FNU,
     .scale_suffix = "weight_scale_inv",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_GROUP,
     .algorithm = "ue8m0",
     .loaders = ALL_ENGINES,
     .summary = "hf-block whose scales are powers of two, stored as F8_E8M0 or F32"},
    {.name = "hf-tensor-static",
     .config = FP8_CONFIG_HF_FP8,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_SCALAR,
     .activations = FP8_ACTIVATIONS_STATIC,
     .input_suffix = "input_scale",
     .loaders = "vllm sglang tensorrt-llm",
     .summary = "one scale per matrix and one for its input (AutoFP8)"},
    {.name = "mistral-static",
     .config = FP8_CONFIG_HF_FP8,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_BF16,
     .scale_on_disk = FP8_BF16,
     .scale_suffix = "weight_scale_inv",
     .scale_shape = FP8_SCALES_SCALAR,
     .activations = FP8_ACTIVATIONS_STATIC,
     .input_suffix = "activation_scale",
     .loaders = "transformers vllm",
     .summary = "one scale per matrix and one for its input (Ministral 3)"},
    {.name = "fbgemm",
     .config = FP8_CONFIG_FBGEMM,
     .grid = CHANNEL,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_GRID,
     .activations = FP8_ACTIVATIONS_TOKEN,
     .loaders = "vllm sglang transformers",
     .summary = "one scale per output channel (fbgemm_fp8)"},
    {.name = "quark-tensor",
     .config = FP8_CONFIG_QUARK,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_SCALAR,
     .activations = FP8_ACTIVATIONS_STATIC,
     .input_suffix = "input_scale",
     .algorithm = "per_tensor",
     .loaders = "vllm sglang transformers",
     .summary = "one scale per matrix (AMD Quark)"},
    {.name = "quark-channel",
     .config = FP8_CONFIG_QUARK,
     .grid = CHANNEL,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "weight_scale",
     .scale_shape = FP8_SCALES_VECTOR,
     .activations = FP8_ACTIVATIONS_TOKEN,
     .algorithm = "per_channel",
     .loaders = "vllm sglang transformers",
     .summary = "one scale per output channel (AMD Quark)"},
    {.name = "comfy-scaled",
     .config = FP8_CONFIG_COMFY_OLD,
     .grid = TENSOR,
     .code = FP8_E4M3FN,
     .scale = FP8_F32,
     .scale_on_disk = FP8_F32,
     .scale_suffix = "scale_weight",
     .scale_shape = FP8_SCALES_SCALAR,
     .activations = FP8_ACTIVATIONS_TENSOR,
     .marker_suffix = "scaled_fp8",
     .loaders = "comfyui",
     .summary = "one scale per matrix and one scaled_fp8 marker (ComfyUI, 2024)"},
};

enum { DIALECTS = sizeof dialects / sizeof *dialects };

const fp8_dialect *fp8_dialect_at(int64_t i)
{
    return i >= 0 && i < DIALECTS ? &dialects[i] : NULL;
}

const fp8_dialect *fp8_dialect_find(const char *name, const char *engine)
{
    const fp8_dialect *common = NULL;
    for (int i = 0; name && i < DIALECTS; i++) {
        const fp8_dialect *d = &dialects[i];
        if (!d->writable || strcmp(d->name, name) != 0)
            continue;
        if (!d->engine)
            common = d;
        else if (engine && strcmp(d->engine, engine) == 0)
            return d;
    }
    return common;
}

fp8_status fp8_dialect_need(const char *name, const char *engine, const fp8_dialect **out,
                            fp8_error *err)
{
    *out = fp8_dialect_find(name, engine);
    FP8_FAIL_IF(!*out, err, FP8_E_UNSUPPORTED,
                "there is no scheme '%s' to write (fp8 schemes lists those that are)", name);
    return FP8_OK;
}

uint64_t fp8_companion_name(const char *name, uint64_t name_bytes, const char *suffix, char *dst)
{
    static const char last[] = "weight";
    enum { LAST = sizeof last - 1 };
    bool replaces = name_bytes >= LAST && memcmp(name + name_bytes - LAST, last, LAST) == 0 &&
                    (name_bytes == LAST || name[name_bytes - LAST - 1] == '.');
    uint64_t stem = replaces ? name_bytes - LAST : name_bytes;
    bool joined = !replaces && strncmp(suffix, "weight_", LAST + 1) == 0;
    const char *tail = joined ? suffix + LAST : suffix;
    bool underscore = !replaces && !joined;
    uint64_t tail_bytes = strlen(tail);
    if (dst) {
        memcpy(dst, name, stem);
        if (underscore)
            dst[stem] = '_';
        memcpy(dst + stem + underscore, tail, tail_bytes + 1);
    }
    return stem + underscore + tail_bytes;
}

bool fp8_weight_matrices(int32_t ndim, const int64_t *shape, fp8_matrices *out)
{
    *out = (fp8_matrices){1, 1, 1};
    if (ndim == 3) {
        *out = (fp8_matrices){shape[0], shape[1], shape[2]};
        return true;
    }
    if (ndim == 1)
        out->cols = shape[0];
    if (ndim < 2)
        return true;
    out->rows = shape[0];
    for (int32_t d = 1; d < ndim; d++)
        if (__builtin_mul_overflow(out->cols, shape[d], &out->cols))
            return false;
    return true;
}

int32_t fp8_scale_tensor_shape(const fp8_dialect *dialect, fp8_grid grid, int32_t weight_ndim,
                               fp8_matrices weight, int64_t shape[5])
{
    int64_t gr = fp8_ceil_div(weight.rows, fp8_grid_extent(grid.rows, weight.rows));
    int64_t gc = fp8_ceil_div(weight.cols, fp8_grid_extent(grid.cols, weight.cols));
    int32_t n = 0;
    if (weight_ndim == 3)
        shape[n++] = weight.experts;
    switch (dialect->scale_shape) {
    case FP8_SCALES_SCALAR:
        break;
    case FP8_SCALES_ONE:
        if (n == 0)
            shape[n++] = 1;
        break;
    case FP8_SCALES_VECTOR:
        shape[n++] = gr * gc;
        break;
    case FP8_SCALES_GRID:
        shape[n++] = gr;
        shape[n++] = gc;
        break;
    case FP8_SCALES_GRID4:
        shape[n++] = gr;
        shape[n++] = 1;
        shape[n++] = gc;
        shape[n++] = 1;
        break;
    }
    return n;
}

static const char *grid_text(fp8_grid grid)
{
    static const struct {
        fp8_grid grid;
        const char *text;
    } texts[] = {{BLOCK, "128x128"}, {CHANNEL, "row"}, {TENSOR, "tensor"}, {MX, "1x32"}};
    for (size_t i = 0; i < sizeof texts / sizeof *texts; i++)
        if (texts[i].grid.rows == grid.rows && texts[i].grid.cols == grid.cols)
            return texts[i].text;
    return "other";
}

const char *fp8_layer_scheme(fp8_grid grid, fp8_activations activations)
{
    static const struct {
        fp8_grid grid;
        const char *name, *weight_only;
    } schemes[] = {{BLOCK, "block", "block"},
                   {CHANNEL, "channel", "weight-only"},
                   {TENSOR, "tensor", "tensor"},
                   {MX, "mxfp8", "mxfp8"}};
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++)
        if (schemes[i].grid.rows == grid.rows && schemes[i].grid.cols == grid.cols)
            return activations == FP8_ACTIVATIONS_NONE ? schemes[i].weight_only : schemes[i].name;
    return NULL;
}

static const char *const activation_texts[] = {
    [FP8_ACTIVATIONS_NONE] = "none",
    [FP8_ACTIVATIONS_STATIC] = "static per tensor",
    [FP8_ACTIVATIONS_TENSOR] = "dynamic per tensor",
    [FP8_ACTIVATIONS_TOKEN] = "dynamic per token",
    [FP8_ACTIVATIONS_GROUP] = "dynamic 1x128",
    [FP8_ACTIVATIONS_MX] = "dynamic 1x32",
};

fp8_status fp8_scheme(int64_t i, fp8_scheme_info *out)
{
    if (!out || i < 0)
        return FP8_E_ARGUMENT;
    for (int row = 0; row < DIALECTS; row++) {
        const fp8_dialect *d = &dialects[row];
        if (!d->writable || d->engine || i-- > 0)
            continue;
        *out = (fp8_scheme_info){
            .name = d->name,
            .grid = grid_text(d->grid),
            .scale_name = d->scale_suffix,
            .scale_dtype = fp8_dtype_name(d->scale_on_disk),
            .activations = activation_texts[d->activations],
            .loaders = d->loaders,
            .summary = d->summary,
        };
        return FP8_OK;
    }
    return FP8_E_NOT_FOUND;
}
