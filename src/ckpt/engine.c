/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c - the table of what engines refuse or misread. A rule looks at one weight [rows, cols]
 * on one rank; what tensor parallelism adds is for verify. */
#define _GNU_SOURCE /* memmem */
#include "ckpt/engine.h"

#include "base/size.h"

#include <string.h>

static const char *const engines[] = {"vllm", "transformers", "sglang", "tensorrt-llm"};

const char *fp8_engine_name(int64_t i)
{
    return i >= 0 && i < (int64_t)(sizeof engines / sizeof *engines) ? engines[i] : NULL;
}

const char *fp8_engine_find(const char *name)
{
    if (!name)
        return engines[0];
    for (size_t i = 0; i < sizeof engines / sizeof *engines; i++)
        if (strcmp(engines[i], name) == 0)
            return engines[i];
    return NULL;
}

/* `word` is one of the words of `list`. */
static bool has_word(const char *list, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = list; (at = strstr(at, word)) != NULL; at += n)
        if ((at == list || at[-1] == ' ') && (at[n] == ' ' || at[n] == 0))
            return true;
    return false;
}

fp8_verdict fp8_engine_dialect(const char *engine, const fp8_dialect *dialect, const char **reason)
{
    *reason = NULL;
    if (has_word(dialect->loaders, engine))
        return FP8_LOADS;
    *reason = "the engine does not load this dialect";
    return FP8_REFUSED;
}

/* What a rule sees of one weight. */
typedef struct weight {
    const fp8_dialect *dialect;
    int64_t rows, cols; /* [out, in] */
    bool conv1d;
    fp8_fused fused;
} weight;

static bool is_block(const weight *w)
{
    return w->dialect->grid.rows > 1 && w->dialect->grid.cols > 1;
}

static bool is_mx(const weight *w)
{
    return w->dialect->scale == FP8_E8M0FNU && w->dialect->grid.cols == 32;
}

/* The number of blocks divides the size without being the size over 128. */
static bool blocks_move(int64_t size)
{
    int64_t n = fp8_ceil_div(size, 128);
    return n > 1 && size % 128 != 0 && size % n == 0;
}

static bool blocks_break(int64_t size)
{
    int64_t n = fp8_ceil_div(size, 128);
    return n > 1 && size % n != 0;
}

static bool hf_blocks_move(const weight *w)
{
    return w->dialect->config == FP8_CONFIG_HF_FP8 && is_block(w) &&
           (blocks_move(w->rows) || blocks_move(w->cols));
}

static bool hf_blocks_break(const weight *w)
{
    return w->dialect->config == FP8_CONFIG_HF_FP8 && is_block(w) &&
           (blocks_break(w->rows) || blocks_break(w->cols));
}

static bool ct_conv1d(const weight *w)
{
    return w->conv1d && w->dialect->config == FP8_CONFIG_CT;
}

static bool ct_ragged_groups(const weight *w)
{
    return w->dialect->activations == FP8_ACTIVATIONS_GROUP &&
           w->dialect->config == FP8_CONFIG_CT && w->cols % 128 != 0;
}

/* More than one scale, so that their order matters. */
static bool conv1d_scales(const weight *w)
{
    return w->conv1d && (w->dialect->grid.rows > 0 || w->dialect->grid.cols > 0);
}

/* Experts' parts are stacked, each with its own blocks, and not checked as dense ones are. */
static bool fused_blocks(const weight *w)
{
    return is_block(w) && w->fused.count > 1 && !w->fused.expert;
}

static bool fused_partial_but_last(const weight *w)
{
    return fused_blocks(w) && w->fused.index < w->fused.count - 1 && w->rows % 128 != 0;
}

static bool fused_partial(const weight *w)
{
    return fused_blocks(w) && w->rows % 128 != 0;
}

static bool small_mx(const weight *w)
{
    return is_mx(w) && (w->rows < 128 || w->cols < 128 || w->rows % 32 != 0);
}

static bool not_multiple_of_16(const weight *w)
{
    return w->rows % 16 != 0 || w->cols % 16 != 0;
}

static const struct rule {
    const char *engine;
    bool (*applies)(const weight *w);
    fp8_verdict verdict;
    const char *reason;
} rules[] = {
    {"transformers", ct_conv1d, FP8_MISREAD,
     "Conv1D is no Linear to compressed-tensors: the scales are ignored without an error"},
    {"transformers", hf_blocks_break, FP8_REFUSED,
     "transformers refuses a partial block of 128: the size does not divide by the scale grid"},
    {"transformers", hf_blocks_move, FP8_MISREAD,
     "transformers takes the block from size / scales, so partial blocks of 128 are read with "
     "wrong edges"},
    {"transformers", ct_ragged_groups, FP8_REFUSED,
     "activation groups of 128 do not divide the columns: the first forward fails"},
    {"vllm", conv1d_scales, FP8_REFUSED,
     "vllm transposes Conv1D weights when it loads them, but not their scales"},
    {"vllm", fused_partial_but_last, FP8_REFUSED,
     "vllm fuses this matrix with its neighbours, and all but the last must be whole blocks of "
     "128 rows"},
    {"vllm", small_mx, FP8_REFUSED,
     "vllm's MXFP8 needs at least 128 rows and columns, rows in multiples of 32"},
    {"vllm", not_multiple_of_16, FP8_SLOW,
     "rows or columns are no multiple of 16, which most FP8 kernels need"},
    {"sglang", conv1d_scales, FP8_REFUSED,
     "sglang does not transpose the scales of Conv1D weights"},
    {"sglang", fused_partial, FP8_REFUSED,
     "sglang fuses this matrix with its neighbours, and each must be whole blocks of 128 rows"},
    {"sglang", not_multiple_of_16, FP8_SLOW,
     "rows or columns are no multiple of 16, which most FP8 kernels need"},
    {"tensorrt-llm", conv1d_scales, FP8_REFUSED,
     "tensorrt-llm does not transpose the scales of Conv1D weights"},
};

fp8_verdict fp8_engine_weight(const char *engine, const fp8_dialect *dialect, const char *name,
                              uint64_t name_bytes, fp8_matrices shape, bool conv1d,
                              const char **reason)
{
    weight w = {dialect, conv1d ? shape.cols : shape.rows, conv1d ? shape.rows : shape.cols, conv1d,
                fp8_fused_part(name, name_bytes)};
    *reason = NULL;
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        if (strcmp(rules[i].engine, engine) != 0 || !rules[i].applies(&w))
            continue;
        *reason = rules[i].reason;
        return rules[i].verdict;
    }
    return FP8_LOADS;
}

/* Matrices that engines fuse into one, in the order of their rows. */
static const struct {
    const char *fused;
    const char *parts[4]; /* NULL after the last */
    bool expert;          /* the row is for the weights of one expert, the others for the rest */
} fusions[] = {
    {"qkv_proj", {"q_proj", "k_proj", "v_proj"}, false},
    {"gate_up_proj", {"gate_proj", "up_proj"}, false},
    {"fused_qkv_a_proj", {"q_a_proj", "kv_a_proj_with_mqa"}, false},
    {"w13", {"w1", "w3"}, false},
    {"w13", {"w1", "w3"}, true},
    {"w13", {"gate_proj", "up_proj"}, true},
    {"qkv", {"query", "key", "value"}, false},
};

/* The last part of the module's name, without ".weight". */
static const char *leaf_of(const char *name, uint64_t bytes, uint64_t *leaf_bytes)
{
    static const char tail[] = ".weight";
    enum { TAIL = sizeof tail - 1 };
    if (bytes > TAIL && memcmp(name + bytes - TAIL, tail, TAIL) == 0)
        bytes -= TAIL;
    uint64_t begin = bytes;
    while (begin > 0 && name[begin - 1] != '.')
        begin--;
    *leaf_bytes = bytes - begin;
    return name + begin;
}

static bool in_experts(const char *name, uint64_t bytes)
{
    static const char part[] = ".experts.";
    return memmem(name, bytes, part, sizeof part - 1) != NULL;
}

/* The row of the table whose part is the last part of the name, -1 if there is none; *index = which
 * of its parts. */
static int find_fusion(const char *name, uint64_t bytes, int32_t *index)
{
    uint64_t n;
    const char *leaf = leaf_of(name, bytes, &n);
    bool expert = in_experts(name, bytes);
    for (size_t f = 0; f < sizeof fusions / sizeof *fusions; f++)
        for (int32_t k = 0; k < 4 && fusions[f].parts[k] && fusions[f].expert == expert; k++)
            if (strlen(fusions[f].parts[k]) == n && memcmp(fusions[f].parts[k], leaf, n) == 0) {
                *index = k;
                return (int)f;
            }
    return -1;
}

fp8_fused fp8_fused_part(const char *name, uint64_t bytes)
{
    fp8_fused out = {NULL, 0, 1, false};
    int f = find_fusion(name, bytes, &out.index);
    if (f < 0)
        return out;
    out.name = fusions[f].fused;
    out.expert = fusions[f].expert;
    for (out.count = 0; out.count < 4 && fusions[f].parts[out.count];)
        out.count++;
    return out;
}

uint64_t fp8_fused_sibling(const char *name, uint64_t bytes, int32_t index, char *dst)
{
    int32_t self = 0;
    uint64_t n;
    const char *leaf = leaf_of(name, bytes, &n);
    const char *part = fusions[find_fusion(name, bytes, &self)].parts[index];
    uint64_t head = (uint64_t)(leaf - name), part_bytes = strlen(part), tail = bytes - head - n;
    memcpy(dst, name, head);
    memcpy(dst + head, part, part_bytes);
    memcpy(dst + head + part_bytes, leaf + n, tail);
    dst[head + part_bytes + tail] = 0;
    return head + part_bytes + tail;
}
