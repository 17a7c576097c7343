/* SPDX-License-Identifier: Apache-2.0
 *
 * wide_choose.c - the versions of gemm_wide.cuh, what they can do, and a model of their time. */
#include "backend/cuda/reckon.h"
#include "backend/cuda/sm90.h"
#include "backend/cuda/wide.h"

#include <string.h>

#define VERSION(x, is_f16, name, which, t, s, turned) \
    {"gemm_wide_" #x "_" #name "_" #t "_" #s,         \
     FP8_CUDA_gemm_wide_##x##_##name##_##t,           \
     is_f16,                                          \
     which,                                           \
     t,                                               \
     s,                                               \
     turned},
#define SPLITS(x, is_f16, name, which, t, turned) \
    VERSION(x, is_f16, name, which, t, 1, turned) \
    VERSION(x, is_f16, name, which, t, 2, turned) \
    VERSION(x, is_f16, name, which, t, 3, turned) \
    VERSION(x, is_f16, name, which, t, 4, turned) VERSION(x, is_f16, name, which, t, 8, turned)
#define BF16_CHANNEL(t) SPLITS(bf16, false, channel, FP8_WIDE_CHANNEL, t, false)
#define BF16_MX(t)      SPLITS(bf16, false, mx, FP8_WIDE_MX, t, false)
#define BF16_BLOCK(t)   SPLITS(bf16, false, block, FP8_WIDE_BLOCK, t, false)
#define F16_CHANNEL(t)  SPLITS(f16, true, channel, FP8_WIDE_CHANNEL, t, false)
#define F16_BLOCK(t)    SPLITS(f16, true, block, FP8_WIDE_BLOCK, t, false)
#define DX(t)                                          \
    SPLITS(bf16, false, dx, FP8_WIDE_CHANNEL, t, true) \
    SPLITS(f16, true, dx, FP8_WIDE_CHANNEL, t, true)
#define DX_TERMS(t) SPLITS(bf16, false, dx_terms, FP8_WIDE_TERMS, t, true)
#define DX_BLOCK(t)                                        \
    SPLITS(bf16, false, dx_block, FP8_WIDE_BLOCK, t, true) \
    SPLITS(f16, true, dx_block, FP8_WIDE_BLOCK, t, true)
static const fp8_wide_version versions[] = {
    FP8_WIDE_TOKENS(BF16_CHANNEL) FP8_WIDE_TOKENS(BF16_MX) FP8_WIDE_BLOCK_TOKENS(BF16_BLOCK)
        FP8_WIDE_TOKENS(F16_CHANNEL) FP8_WIDE_BLOCK_TOKENS(F16_BLOCK) FP8_WIDE_DX_TOKENS(DX)
            FP8_WIDE_DX_TOKENS(DX_TERMS) FP8_WIDE_DX_BLOCK_TOKENS(DX_BLOCK)};
enum { VERSIONS = sizeof versions / sizeof *versions };

const fp8_wide_version *fp8_wide_at(size_t i)
{
    return i < VERSIONS ? &versions[i] : NULL;
}

const fp8_wide_version *fp8_wide_find(const char *name)
{
    size_t i = 0;
    while (i < VERSIONS && strcmp(versions[i].name, name) != 0)
        i++;
    return fp8_wide_at(i);
}

/* ---- what they can do ---- */

/* FP8_WIDE_* for W's scales, negative if there is none. */
static int kind_of(const fp8_linear_plan *p)
{
    const bool at_origin = !p->desc.w_origin.rows && !p->desc.w_origin.cols;
    if (p->scale_cols <= 1)
        return FP8_WIDE_CHANNEL;
    if (at_origin && p->unit_rows == 128 && p->unit_cols == 128 && p->scale == FP8_F32)
        return FP8_WIDE_BLOCK;
    if (at_origin && p->unit_rows == 1 && p->unit_cols == 32 && p->scale == FP8_E8M0FNU)
        return FP8_WIDE_MX;
    return -1;
}

bool fp8_wide_rounds_x(const fp8_linear_plan *p)
{
    return p->desc.activation == FP8_ACTIVATION_DYNAMIC
               ? p->desc.x_scale == FP8_E8M0FNU
               : p->desc.activation == FP8_ACTIVATION_CODES && p->x_along_k && p->x_unit_cols == 32;
}

const char *fp8_wide_lacks(const fp8_cuda_device *device, const fp8_linear_plan *p)
{
    if (device->facts.capability != 90)
        return "for compute capability 9.0";
    if (p->code != FP8_E4M3FN || (p->x_is_scaled && !fp8_wide_rounds_x(p)))
        return "for w in e4m3fn and x in 16 bits, or in codes with powers of two";
    if (p->desc.weight_math == FP8_WEIGHT_ROUNDED)
        return "for weights that are not rounded";
    if (p->k % 16 || p->k == 0 || p->n == 0 || p->n > FP8_WIDE_MOST || p->k > FP8_WIDE_MOST)
        return "for k in 16s";
    return kind_of(p) < 0 ? "for scales a row, 128x128, or 1x32 in e8m0" : NULL;
}

fp8_wide_problem fp8_wide_problem_of(const fp8_linear_plan *p, int64_t m, bool f16, bool invariant)
{
    return (fp8_wide_problem){.m = (int32_t)m,
                              .n = (int32_t)p->n,
                              .k = (int32_t)p->k,
                              .kind = kind_of(p),
                              .f16 = f16,
                              .invariant = invariant};
}

bool fp8_wide_dx_problem(const fp8_cuda_device *device, const fp8_linear_plan *p, int64_t m,
                         bool f16, bool invariant, fp8_wide_problem *out)
{
    const bool rows = kind_of(p) == FP8_WIDE_CHANNEL && p->scale_rows > 1;
    const int kind = rows ? FP8_WIDE_TERMS : kind_of(p);
    const bool able = rows ? !f16 : kind == FP8_WIDE_BLOCK || kind == FP8_WIDE_CHANNEL;
    if (device->facts.capability != 90 || p->code != FP8_E4M3FN || !able || p->n % 16 ||
        p->n == 0 || p->k == 0 || m > FP8_WIDE_MOST || p->n > FP8_WIDE_MOST || p->k > FP8_WIDE_MOST)
        return false;
    *out = (fp8_wide_problem){.m = (int32_t)m,
                              .n = (int32_t)p->k,
                              .k = (int32_t)p->n,
                              .kind = kind,
                              .f16 = f16,
                              .invariant = invariant,
                              .turned = true};
    return true;
}

/* ---- how fast they are ---- */

bool fp8_wide_plan_make(const fp8_cuda_device *device, const fp8_wide_version *v,
                        const fp8_wide_problem *p, fp8_wide_plan *out)
{
    enum { ALL_SHARED = 233472, RESERVED = 1024 };
    const int32_t stage = fp8_wide_stage(v->tokens);
    const int32_t tiles = up(p->n, FP8_WIDE_ROWS) * up(p->m, v->tokens);
    const bool alone = fp8_wide_per_sm(v->tokens, v->kind) == 1 || /* or there are not more */
                       tiles <= fp8_sm90_clusters(device, v->split, 1);
    const int32_t room = alone ? FP8_WIDE_SHARED : ALL_SHARED / 2 - RESERVED - FP8_WIDE_STATIC;
    const int32_t at_once = fp8_sm90_clusters(device, v->split, alone ? 1 : 2);
    const int32_t need = up(up(p->k, v->split), fp8_wide_depth(v->tokens)) + 1;
    if (v->split > 1 && fp8_wide_depth(v->tokens) != 128) /* blocks of 128 are split */
        return false;
    out->blocks = up(up(p->k, 128), v->split);
    out->waves = up(tiles, at_once);
    out->clusters = v->split > 1 ? tiles : least(tiles, at_once); /* a cluster has one tile */
    out->stages = least(room / stage, FP8_WIDE_STAGES);
    if (v->split > 1 && out->stages * stage < fp8_wide_exchange(v->tokens))
        return false;
    if (v->split == 1 && need < out->stages)
        out->stages = need < 2 ? 2 : need;
    return out->stages >= 2;
}

/* Bytes that are read and written once. */
static float bytes_of(const fp8_wide_problem *p)
{
    const float m = (float)p->m, n = (float)p->n, k = (float)p->k;
    return n * k + 2 * m * (k + n);
}

/* Start, then the longer of memory and whole waves of products, then the exchange of a cluster. The
 * times are measured on an H200 (dev/cuda/README.md). */
float fp8_wide_estimate(const fp8_cuda_device *device, const fp8_wide_version *v,
                        const fp8_wide_problem *p)
{
    enum { INVARIANT_TOKENS = 128, SPLIT_UP_TO = 1024 };
    static const float block_us[FP8_WIDE_KINDS][5] = {/* of 128 columns: 16 .. 256 tokens */
                                                      {0.356F, 0.40F, 0.515F, 0.75F, 1.30F},
                                                      {0.42F, 0.46F, 0.57F, 0.85F, 1.40F},
                                                      {0.52F, 0.57F, 0.66F, 1.03F, 0},
                                                      {0, 0, 1.0F, 1.8F, 3.5F}};
    const float tokens = (float)v->tokens;
    const int size = v->tokens <= 16    ? 0
                     : v->tokens <= 32  ? 1
                     : v->tokens <= 64  ? 2
                     : v->tokens <= 128 ? 3
                                        : 4;
    fp8_wide_plan o;
    if (!device->module.functions[v->kernel] || v->kind != p->kind || v->f16 != p->f16 ||
        v->turned != p->turned || has_too_many_tiles(p->m, p->n))
        return -1;
    if (p->invariant)
        return v->tokens == INVARIANT_TOKENS && v->split == 1 ? 1 : -1;
    const int least_tokens = p->turned ? 64 : 16;
    if (v->split > up(p->k, 128) || (v->tokens > least_tokens && p->m <= v->tokens / 2) ||
        (v->tokens < 128 && p->m > v->tokens) || (v->split > 1 && p->m > SPLIT_UP_TO) ||
        !fp8_wide_plan_make(device, v, p, &o))
        return -1;
    const float all = (float)(o.clusters * v->split), sms = (float)device->facts.processors;
    const float beside = all <= sms || fp8_wide_per_sm(v->tokens, v->kind) == 1 ? 1 : 1.4F;
    const float tile = (float)o.blocks * block_us[v->kind][size] * beside + 0.012F * tokens;
    /* The blocks of the next kernel begin beside these if they leave SMs to them. */
    const float crowded = all * 2 <= sms ? 0 : all < sms ? 3 * all / sms : 3;
    if (v->split == 1)
        return 2.5F + most(bytes_of(p) / 4.1e6F, (float)o.waves * tile);
    return 2.9F + 0.02F * tokens + 3 * (float)(o.waves - 1) +
           most(bytes_of(p) / 4.1e6F, (float)o.waves * tile + crowded);
}

static float estimate_at(const fp8_cuda_device *device, size_t i, const void *problem)
{
    return fp8_wide_estimate(device, &versions[i], problem);
}

/* The version of the same kind, tile and split for X in fp16; VERSIONS if there is none. */
static size_t twin_of(const fp8_wide_version *of)
{
    for (size_t i = 0; i < VERSIONS; i++) {
        const fp8_wide_version *v = &versions[i];
        if (v->f16 && v->kind == of->kind && v->tokens == of->tokens && v->split == of->split &&
            !v->turned)
            return i;
    }
    return VERSIONS;
}

fp8_choice fp8_wide_choice(const fp8_cuda_device *device, const fp8_wide_problem *p)
{
    const fp8_tuned_kind kind = (fp8_tuned_kind)(FP8_TUNED_WIDE_CHANNEL + p->kind);
    const fp8_tuned_row *row =
        p->invariant || p->turned ? NULL : fp8_tuned_find(&device->tuned, kind, p->m, p->n, p->k);
    size_t measured = row ? (size_t)row->version : 0;
    if (row && p->f16)
        measured = twin_of(&versions[measured]);
    if (row && (measured == VERSIONS || estimate_at(device, measured, p) < 0))
        row = NULL;
    return (fp8_choice){device, p, estimate_at, VERSIONS, row, measured};
}

const fp8_wide_version *fp8_wide_choose(const fp8_cuda_device *device, const fp8_wide_problem *p)
{
    const fp8_choice c = fp8_wide_choice(device, p);
    return fp8_wide_at(fp8_choice_best(&c));
}
