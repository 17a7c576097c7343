/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_choose.c - the versions of the fast kernels, the choice by what was measured (tuned.h), and
 * for the rest a model of their time. Its constants are fitted to measurements on an H200, launches
 * that depend on each other and cold weights (dev/cuda/README.md, run 19), where its choice takes
 * 1.02 times the best version's time in the mean, for layers that it was not fitted to 1.03.
 */
#include "backend/cuda/reckon.h"
#include "backend/cuda/sm90.h"

#include <string.h>

/* clang-format off */
#define LARGE(kind, is_block, is_fast, r, c, st, dn, ac, sp, ah, lt)                           \
    {.name = "gemm_large_" #kind "_" #r "x" #c "_" #dn "x" #ac,                                \
     .kernel = FP8_CUDA_gemm_large_##kind##_##r##x##c##_##dn##x##ac, .block = (is_block),      \
     .fast = (is_fast), .rows = (r), .cols = (c), .stages = (st), .down = (dn),                \
     .across = (ac), .slices = 1, .split = (sp), .ahead = (ah), .late = (lt), .per_sm = 1},
#define JOINED(kind, is_block, r, c, st, sl, sp)                                               \
    {.name = "gemm_large_" #kind "_" #r "x" #c "_k" #sl,                                       \
     .kernel = FP8_CUDA_gemm_large_##kind##_##r##x##c##_k##sl, .block = (is_block),            \
     .rows = (r), .cols = (c), .stages = (st), .down = 1, .across = 1, .slices = (sl),         \
     .split = (sp), .ahead = true, .per_sm = 1},
#define SMALL(kind, is_block, r, c, sp, per)                                                   \
    {.name = "gemm_small_" #kind "_" #r "x" #c "_" #sp "_" #per,                               \
     .kernel = FP8_CUDA_gemm_small_##kind##_##r##x##c##_##sp, .small = true,                   \
     .block = (is_block), .rows = (r), .cols = (c), .split = (sp), .per_sm = (per)},
#define RESIDENT(kind, is_block, r, c, sp, per)                                                \
    SMALL(kind, is_block, r, c, sp, per)                                                       \
    {.name = "gemm_small_quantize_" #kind "_" #r "x" #c "_" #sp "_" #per,                      \
     .kernel = FP8_CUDA_gemm_small_quantize_##kind##_##r##x##c##_##sp##_bf16, .small = true,   \
     .block = (is_block), .rows = (r), .cols = (c), .split = (sp), .per_sm = (per),            \
     .quantizes = true},
/* clang-format on */
#define LARGE_CHANNEL(r, c, st, dn, ac, sp, ah, lt) \
    LARGE(channel, false, false, r, c, st, dn, ac, sp, ah, lt)
#define LARGE_BLOCK(r, c, st, dn, ac, sp, ah, lt) \
    LARGE(block, true, false, r, c, st, dn, ac, sp, ah, lt)
#define LARGE_FAST(r, c, st, dn, ac, sp, ah, lt) \
    LARGE(fast, false, true, r, c, st, dn, ac, sp, ah, lt)
#define JOINED_CHANNEL(r, c, st, sl, sp) JOINED(channel, false, r, c, st, sl, sp)
#define JOINED_BLOCK(r, c, st, sl, sp)   JOINED(block, true, r, c, st, sl, sp)
#define SMALL_ONE(r, c, sp)              SMALL(channel, false, r, c, sp, 1) SMALL(block, true, r, c, sp, 1)
#define SMALL_TWO(r, c, sp)              SMALL(channel, false, r, c, sp, 2) SMALL(block, true, r, c, sp, 2)
#define RESIDENT_ONE(r, c, sp) \
    RESIDENT(channel, false, r, c, sp, 1) RESIDENT(block, true, r, c, sp, 1)
#define RESIDENT_TWO(r, c, sp) \
    RESIDENT(channel, false, r, c, sp, 2) RESIDENT(block, true, r, c, sp, 2)
static const fp8_sm90_version versions[] = {
    FP8_LARGE_CHANNEL(LARGE_CHANNEL) FP8_LARGE_BLOCK(LARGE_BLOCK) FP8_LARGE_FAST(LARGE_FAST)
        FP8_JOINED_CHANNEL(JOINED_CHANNEL) FP8_JOINED_BLOCK(JOINED_BLOCK)
            FP8_SMALL_RESIDENT(RESIDENT_ONE) FP8_SMALL_STREAMED(SMALL_ONE)
                FP8_SMALL_RESIDENT(RESIDENT_TWO) FP8_SMALL_STREAMED(SMALL_TWO)};
enum { VERSIONS = sizeof versions / sizeof *versions };

const fp8_sm90_version *fp8_sm90_at(size_t i)
{
    return i < VERSIONS ? &versions[i] : NULL;
}

const fp8_sm90_version *fp8_sm90_find(const char *name)
{
    for (size_t i = 0; i < VERSIONS; i++)
        if (!strcmp(versions[i].name, name))
            return &versions[i];
    return NULL;
}

static float lesser(float a, float b)
{
    return a < b ? a : b;
}

/* Clusters of 4 and 8 do not fill all groups of SMs: measured on 132 SMs. */
int32_t fp8_sm90_clusters(const fp8_cuda_device *device, int32_t cluster, int32_t per_sm)
{
    static const float filled[9] = {0, 1, 1, 0.89F, 0.91F, 0, 0, 0, 0.91F};
    const float blocks = (float)(device->facts.processors * per_sm) * filled[cluster];
    const int32_t clusters = (int32_t)(blocks / (float)cluster);
    return clusters > 0 ? clusters : 1;
}

/* ---- small versions ---- */

static int32_t round_up(int32_t n, int32_t to)
{
    return up(n, to) * to;
}

/* With scales of blocks and 64 tokens or more a warp reads the scales of X while its products run.
 * Where two blocks shared an SM, reads waited behind the operands of all their products until the
 * stage was refilled, one run in some thousand (dev/cuda/README.md, run 19): freeing a stage does
 * not wait for reads that are under way. Alone on an SM only one other group's products are before
 * them, and a refill takes longer. */
static bool must_be_alone(const fp8_sm90_version *v)
{
    return v->block && fp8_small_wide(v->cols);
}

bool fp8_sm90_plan_small(const fp8_cuda_device *device, const fp8_sm90_version *v,
                         const fp8_sm90_problem *p, fp8_sm90_plan *out)
{
    enum { ALL_SHARED = 233472, RESERVED = 1024, PART = 1024 };
    const int32_t per_block = fp8_small_resident_bytes(v->cols, v->block);
    const int32_t stage = fp8_small_stage(v->rows, v->cols, v->block);
    const int32_t exchange = fp8_small_exchange(v->rows, v->cols, v->split);
    const int32_t tiles = up(p->n, v->rows) * up(p->m, v->cols);
    const int32_t room =
        (v->per_sm == 2 ? ALL_SHARED / 2 - RESERVED : FP8_SHARED_MOST) - FP8_SMALL_STATIC;
    out->blocks = up(up(p->k, 128), v->split);
    if (v->per_sm > (must_be_alone(v) ? 1 : fp8_small_per_sm(v->rows, v->cols)))
        return false;
    if (per_block && out->blocks > room / per_block)
        return false;
    const int32_t fixed = fp8_small_fixed(v->rows, v->cols, v->split, v->block) +
                          round_up(per_block * out->blocks, PART);
    const int32_t stages = least((room - fixed) / stage, FP8_SMALL_STAGES);
    if (fixed > room || stages < 2)
        return false;
    out->clusters = least(tiles, fp8_sm90_clusters(device, v->split, v->per_sm));
    out->waves = up(tiles, out->clusters);
    if (exchange && (out->waves > 1 || stages * stage < exchange))
        return false; /* the ring holds the exchange of one tile */
    const int32_t need = out->waves * up(out->blocks, fp8_small_blocks(v->rows, v->cols));
    out->stages = need < stages && need * stage >= exchange ? (need < 2 ? 2 : need) : stages;
    out->shared_bytes = out->stages * stage + fixed;
    if (must_be_alone(v) && out->shared_bytes < ALL_SHARED / 2)
        out->shared_bytes = ALL_SHARED / 2;
    return true;
}

/* us to read and write everything once, at a bandwidth in bytes / us on an H100, whose memory has
 * 3.35e6; those that have more or less are as much faster or slower. */
static float memory_time(const fp8_cuda_device *device, const fp8_sm90_problem *p, float h100)
{
    const float rate = device->facts.memory_rate;
    const float bandwidth = rate > 0 ? h100 * rate / 3.35e6F : h100;
    const float m = (float)p->m, n = (float)p->n, k = (float)p->k;
    return (n * k + m * (k + 2 * n)) / bandwidth;
}

/* Whether the tile's tokens suit m. */
static bool suits(const fp8_sm90_version *v, int32_t m)
{
    enum { LARGE_FROM = 1024, WIDE = 64 };
    const bool served_by_less = m <= v->cols / 2 && v->cols > 8;
    return m <= LARGE_FROM && !served_by_less && (m <= v->cols || v->cols >= WIDE);
}

/* us that a quantizer takes before the product, which starts before its end; measured on an H200
 * (dev/cuda/README.md, run 17), as the next. That is in a chain of linears; in a model, where other
 * kernels stand between, a launch more costs more (a token of SmolLM2 with blocks, 210 linears: 3.5
 * ms in one launch each, 4.5 in two), which decides where few rows could do without. */
static float estimate_quantizer(const fp8_sm90_problem *p)
{
    const float launch = p->m <= 8 ? 2.3F : 1.3F;
    return launch + 3.4e-6F * (float)p->m * (float)p->k;
}

/* us more than the product of codes takes where every cluster reads X in 16 bits and quantizes it:
 * a start, the bytes, and what the threads of an SM have to do for their slices of K. */
static float estimate_inside(const fp8_sm90_problem *p, const fp8_sm90_plan *o, float share)
{
    const int32_t groups = p->m <= 1 ? 1 : p->m <= 2 ? 2 : p->m <= 4 ? 4 : 8;  /* of threads */
    const float read = (float)o->clusters * (float)p->m * (float)p->k * 2e-6F; /* MB */
    const float work = share * (float)(o->blocks * groups) / 128;
    return (p->block ? 1.7F : 0.3F) + 0.15F * read + 1.5F * work;
}

/* MB of W. */
static float weight_size(const fp8_sm90_problem *p)
{
    return (float)p->n * (float)p->k * 1e-6F;
}

/* Rows of the last tile down that X has not; a small version fills them with zeros, more slowly
 * than they would be copied. */
static int32_t rows_past(int32_t m, int32_t tile)
{
    return up(m, tile) * tile - m;
}

/* Start and the bytes, at more than the memory's rate since most of the first ring comes while the
 * kernel before ends. Turns of the ring, each about as long as a copy is under way; more tiles of a
 * cluster than one; an exchange; a block that has an SM alone, beside which the next kernel's can't
 * start; products; W out of the L2 again; bytes of the SM that has two blocks, beyond the mean; and
 * rows past X. us. */
static float estimate_small(const fp8_cuda_device *device, const fp8_sm90_version *v,
                            const fp8_sm90_problem *p)
{
    fp8_sm90_plan o;
    if (!suits(v, p->m) || v->split > up(p->k, 128) || !fp8_sm90_plan_small(device, v, p, &o))
        return -1;
    const float share = (float)up(o.clusters, fp8_sm90_clusters(device, v->split, 1));
    const float blocks = (float)(o.waves * o.blocks), w = weight_size(p); /* k blocks of a block */
    const float clocks = share * blocks * (float)(v->rows * v->cols) / 32.0F;
    const float fullest =
        share * blocks * (float)(v->rows * 128 * device->facts.processors) * 1e-6F;
    const float past =
        p->m > v->cols ? (float)rows_past(p->m, v->cols) : 0; /* else it is clipped */
    return 1.24F + memory_time(device, p, 5.29e6F) + 0.397F * blocks / (float)o.stages +
           0.324F * (float)(o.waves - 1) + (v->split > 1 ? 0.018F * (float)v->cols : 0) +
           (v->per_sm == 1 ? 0.4F : 0) + (v->block ? 0.71e-3F : 0.35e-3F) * clocks +
           0.106F * (float)(up(p->m, v->cols) - 1) * w + 1.14e-3F * past * blocks +
           (v->per_sm == 2 && share > 1 ? 0.016F * most(fullest - w, 0) : 0) +
           (v->quantizes ? estimate_inside(p, &o, share) : 0);
}

/* ---- large versions ---- */

/* So many times as long takes a k block of a tile that may lie in two blocks of W; an H200. */
#define TWO_BLOCKS 1.09F

/* Memory, with W out of the L2 again for each further tile down, and whole waves of (products, or
 * rows of 128 bytes that are copied into an SM, and the rest of a tile): the longer of both and a
 * part of the shorter, which overlap so far; and what a cluster costs, by slices of K or sharing.
 * Constants: clocks of a k block over those of its products, and clocks a tile. us. */
static float estimate_large(const fp8_cuda_device *device, const fp8_sm90_version *v,
                            const fp8_sm90_problem *p)
{
    static const struct {
        float products, tile;
    } cost[3][3] = {
        /* one after the other; ahead, or a tile each; every second k block */
        {{1.1F, 1720}, {0.93F, 1560}, {1.2F, 720}},    /* a scale a row and channel */
        {{1.16F, 2320}, {0.88F, 2580}, {1.25F, 1320}}, /* blocks */
        {{0.91F, 1160}, {0.91F, 40}, {0.24F, 0}},      /* all by the tensor cores */
    };
    const int form = v->split == FP8_LARGE_DEPTH ? 2 : v->ahead || v->split == FP8_LARGE_TILES;
    const int sums = v->fast ? FP8_SUMS_FAST : v->block ? FP8_SUMS_BLOCK : FP8_SUMS_CHANNEL;
    const int32_t rows = v->rows * v->down, cols = v->cols * v->across;
    if ((v->down > 1 && p->m <= rows - v->rows) || (v->across > 1 && p->n <= cols - v->cols))
        return -1; /* a block of the cluster would have nothing to do */
    const int32_t tiles = up(p->m, rows) * up(p->n, cols);
    const int32_t cluster = v->down * v->across * v->slices;
    if (v->slices > up(p->k, 128) || (v->slices > 1 && tiles > INT32_MAX / v->slices))
        return -1; /* each slice has a block of its own */
    const float two = v->block && 128 % v->cols ? TWO_BLOCKS : 1;
    const float products = (float)(v->rows * v->cols) / 32.0F * cost[sums][form].products * two;
    const float copies = 1.37F * (float)(least(p->m, v->rows) + v->cols);
    const float tile =
        (float)up(up(p->k, 128), v->slices) * most(products, copies) + cost[sums][form].tile;
    const float waves = (float)up(tiles, fp8_sm90_clusters(device, cluster, 1));
    const float work = waves * tile / 1.43e3F;
    const float memory =
        memory_time(device, p, 3.98e6F) + 0.041F * (float)(up(p->m, v->rows) - 1) * weight_size(p);
    return most(memory, work) + 0.54F * lesser(memory, work) +
           (v->slices > 1 ? 1.6F
            : cluster > 1 ? 1.32F
                          : 0);
}

float fp8_sm90_estimate(const fp8_cuda_device *device, const fp8_sm90_version *v,
                        const fp8_sm90_problem *p)
{
    if (!device->module.functions[v->kernel] || v->block != p->block || (v->fast && !p->fast) ||
        (v->quantizes && !p->inside) || has_too_many_tiles(p->m, p->n))
        return -1;
    if (p->invariant) /* one that takes any m, and any k */
        return !v->small && !v->fast && v->rows == 128 && v->cols == 128 &&
                       v->down * v->across * v->slices == 1
                   ? 1
                   : -1;
    const float time = (v->small ? estimate_small : estimate_large)(device, v, p);
    if (time < 0)
        return -1;
    const int32_t from = v->small ? 0 : 33;
    const float quantizer = p->whole && !v->quantizes ? estimate_quantizer(p) : 0;
    return (p->m < from ? FP8_SM90_LAST_RESORT : 0) + time + quantizer; /* where none has room */
}

static float estimate_at(const fp8_cuda_device *device, size_t i, const void *problem)
{
    return fp8_sm90_estimate(device, &versions[i], problem);
}

/* The row of that kind, if its version can do the problem. */
static const fp8_tuned_row *able_row(const fp8_cuda_device *device, fp8_tuned_kind kind,
                                     const fp8_sm90_problem *p)
{
    const fp8_tuned_row *row = fp8_tuned_find(&device->tuned, kind, p->m, p->n, p->k);
    return row && estimate_at(device, (size_t)row->version, p) >= 0 ? row : NULL;
}

/* What was measured with the quantizer goes before what was measured from codes, which does not
 * count where a version may quantize: it knows of no such versions. Whole kinds know of no sums in
 * 13 bits, which few rows, that a version may quantize, don't gain by. */
static const fp8_tuned_row *measured_row(const fp8_cuda_device *device, const fp8_sm90_problem *p)
{
    const fp8_tuned_kind codes = p->block  ? FP8_TUNED_BLOCK
                                 : p->fast ? FP8_TUNED_FAST
                                           : FP8_TUNED_CHANNEL;
    const fp8_tuned_row *row = NULL;
    if (p->whole && (p->inside || codes != FP8_TUNED_FAST))
        row = able_row(device, p->block ? FP8_TUNED_WHOLE_BLOCK : FP8_TUNED_WHOLE_CHANNEL, p);
    return row || p->inside ? row : able_row(device, codes, p);
}

fp8_choice fp8_sm90_choice(const fp8_cuda_device *device, const fp8_sm90_problem *p)
{
    const fp8_tuned_row *row = p->invariant ? NULL : measured_row(device, p);
    return (fp8_choice){device, p, estimate_at, VERSIONS, row, row ? (size_t)row->version : 0};
}

const fp8_sm90_version *fp8_sm90_choose(const fp8_cuda_device *device, const fp8_sm90_problem *p)
{
    const fp8_choice c = fp8_sm90_choice(device, p);
    return fp8_sm90_at(fp8_choice_best(&c));
}
