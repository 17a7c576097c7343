/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_choose.c - the versions of the fast kernels and a model of their time. Its constants are
 * fitted to measurements on an H100 (dev/cuda/README.md, run 9), where its choice takes 1.01
 * to 1.02 times the best version's time. */
#include "backend/cuda/sm90.h"
#include "base/size.h"

/* clang-format off */
#define LARGE(kind, is_block, is_fast, r, c, st, dn, ac, sp, ah, lt)                           \
    {.kernel = FP8_CUDA_gemm_large_##kind##_##r##x##c##_##dn##x##ac, .block = (is_block),      \
     .fast = (is_fast), .rows = (r), .cols = (c), .stages = (st), .down = (dn),                \
     .across = (ac), .split = (sp), .ahead = (ah), .late = (lt), .per_sm = 1},
#define SMALL(kind, is_block, r, c, sp, per)                                                   \
    {.kernel = FP8_CUDA_gemm_small_##kind##_##r##x##c##_##sp, .small = true,                   \
     .block = (is_block), .rows = (r), .cols = (c), .split = (sp), .per_sm = (per)},
/* clang-format on */
#define LARGE_CHANNEL(r, c, st, dn, ac, sp, ah, lt) \
    LARGE(channel, false, false, r, c, st, dn, ac, sp, ah, lt)
#define LARGE_BLOCK(r, c, st, dn, ac, sp, ah, lt) \
    LARGE(block, true, false, r, c, st, dn, ac, sp, ah, lt)
#define LARGE_FAST(r, c, st, dn, ac, sp, ah, lt) \
    LARGE(fast, false, true, r, c, st, dn, ac, sp, ah, lt)
#define SMALL_ONE(r, c, sp) SMALL(channel, false, r, c, sp, 1) SMALL(block, true, r, c, sp, 1)
#define SMALL_TWO(r, c, sp) SMALL(channel, false, r, c, sp, 2) SMALL(block, true, r, c, sp, 2)
static const fp8_sm90_version versions[] = {
    FP8_LARGE_CHANNEL(LARGE_CHANNEL) FP8_LARGE_BLOCK(LARGE_BLOCK) FP8_LARGE_FAST(LARGE_FAST)
        FP8_SMALL_INSTANCES(SMALL_ONE) FP8_SMALL_INSTANCES(SMALL_TWO)};
enum { VERSIONS = sizeof versions / sizeof *versions };

const fp8_sm90_version *fp8_sm90_at(size_t i)
{
    return i < VERSIONS ? &versions[i] : NULL;
}

static int32_t up(int32_t n, int32_t by)
{
    return (n + by - 1) / by;
}

static int32_t least(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

static float most(float a, float b)
{
    return a > b ? a : b;
}

/* Clusters of 4 and 8 do not fill all groups of SMs: measured on 132 SMs. */
int32_t fp8_sm90_clusters(const fp8_cuda_device *device, int32_t cluster, int32_t per_sm)
{
    static const float filled[9] = {0, 1, 1, 0.95F, 0.91F, 0, 0, 0, 0.91F};
    const float blocks = (float)(device->facts.processors * per_sm) * filled[cluster];
    const int32_t clusters = (int32_t)(blocks / (float)cluster);
    return clusters > 0 ? clusters : 1;
}

/* ---- small versions ---- */

static int32_t round_up(int32_t n, int32_t to)
{
    return up(n, to) * to;
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
    return true;
}

/* us to read and write everything once, at a bandwidth in bytes / us. */
static float memory_time(const fp8_sm90_problem *p, float bandwidth)
{
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

/* Start, the longest of (memory, bytes into an SM, products), exchange of the partial sums, end. */
static float estimate_small(const fp8_cuda_device *device, const fp8_sm90_version *v,
                            const fp8_sm90_problem *p)
{
    fp8_sm90_plan o;
    if (!suits(v, p->m) || v->split > up(p->k, 128) || !fp8_sm90_plan_small(device, v, p, &o))
        return -1;
    const bool wide = v->cols >= 128;
    const float share = (float)up(o.clusters * v->split, device->facts.processors);
    const float blocks = share * (float)(o.waves * o.blocks);
    const float bytes = (float)((v->rows + least(p->m, v->cols)) * 128);
    const float clocks = (float)(v->rows * v->cols) / 32.0F + 60;
    const float rate = !wide ? 1.6e3F : v->block ? 0.8e3F : 1e3F;
    const float feed = blocks * bytes / 80e3F, products = blocks * clocks / rate;
    const float region = (float)fp8_small_region(v->rows, v->cols, v->split);
    const float exchange = v->split > 1 ? 0.8F + (float)(v->split - 1) * region / 60e3F : 0;
    return (wide ? 3.0F : 2.5F) + most(memory_time(p, 3.08e6F), most(feed, products)) + exchange;
}

/* ---- large versions ---- */

/* Start, then the longer of memory and whole waves of (products, or bytes asked for or received by
 * an SM, and the rest of a tile). Constants: clocks of a k block over those of its products, and
 * clocks a tile. */
static float estimate_large(const fp8_cuda_device *device, const fp8_sm90_version *v,
                            const fp8_sm90_problem *p)
{
    static const struct {
        float products, tile;
    } cost[3][3] = {
        /* one after the other; ahead, or a tile each; every second k block */
        {{1.17F, 1700}, {1.13F, 1050}, {1.15F, 600}},  /* a scale a row and channel */
        {{1.17F, 3150}, {1.31F, 1350}, {1.15F, 1750}}, /* blocks */
        {{1.14F, 1000}, {1.06F, 750}, {1.05F, 600}},   /* all by the tensor cores */
    };
    const int form = v->split == FP8_LARGE_DEPTH ? 2 : v->ahead || v->split == FP8_LARGE_TILES;
    const int sums = v->fast ? FP8_SUMS_FAST : v->block ? FP8_SUMS_BLOCK : FP8_SUMS_CHANNEL;
    const int32_t rows = v->rows * v->down, cols = v->cols * v->across;
    if ((v->down > 1 && p->m <= rows - v->rows) || (v->across > 1 && p->n <= cols - v->cols))
        return -1; /* a block of the cluster would have nothing to do */
    const int32_t tiles = up(p->m, rows) * up(p->n, cols);
    const int32_t at_once = fp8_sm90_clusters(device, v->down * v->across, 1);
    const int32_t asked_rows = v->rows / v->across + v->cols / v->down;
    const float asked = (float)asked_rows * 128;
    const float received = (float)(v->rows + v->cols) * 128;
    const float clocks = (float)(v->rows * v->cols) / 32.0F * cost[sums][form].products;
    const float block = most(most(asked / 54, received / 60), clocks);
    const float tile = (float)up(p->k, 128) * block + cost[sums][form].tile;
    return 2.25F + most(memory_time(p, 3.16e6F), (float)up(tiles, at_once) * tile / 1.43e3F);
}

float fp8_sm90_estimate(const fp8_cuda_device *device, const fp8_sm90_version *v,
                        const fp8_sm90_problem *p)
{
    enum { LARGE_FROM = 128 };
    if (v->block != p->block || (v->fast && !p->fast))
        return -1;
    if (p->invariant) /* one that takes any m, and any k */
        return !v->small && !v->fast && v->rows == 128 && v->cols == 128 && v->down * v->across == 1
                   ? 1
                   : -1;
    if (v->small)
        return estimate_small(device, v, p);
    const float time = estimate_large(device, v, p);
    return p->m < LARGE_FROM && time > 0 ? 1e6F + time : time; /* where no small one has room */
}

const fp8_sm90_version *fp8_sm90_choose(const fp8_cuda_device *device, const fp8_sm90_problem *p)
{
    const fp8_sm90_version *best = NULL;
    float least_time = 0;
    for (size_t i = 0; i < VERSIONS; i++) {
        const fp8_sm90_version *v = &versions[i];
        const float time =
            device->module.functions[v->kernel] ? fp8_sm90_estimate(device, v, p) : -1;
        if (time > 0 && (!best || time < least_time)) {
            best = v;
            least_time = time;
        }
    }
    return best;
}
