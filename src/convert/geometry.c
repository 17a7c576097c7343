/* SPDX-License-Identifier: Apache-2.0
 *
 * geometry.c - sizes of slabs, slots and the ring. */
#include "convert/geometry.h"
#include "base/size.h"
#include "convert/choose.h"
#include "convert/jobs.h"

#include <stdio.h>

enum {
    CHUNK_ELEMENTS = 4096,   /* of a chunk, unless one row is longer */
    TILE_ELEMENTS = 1 << 16, /* of a tile, likewise: 128 KiB of bf16 */
    CACHE_LINE = 64,
    LEAST_SLOTS = 3, /* one read, one worked on, one written */
    MOST_SLOTS = 64,
    MOST_ATTEMPTS = 8, /* at sizes that fit */
};

#define MIB ((uint64_t)1 << 20)

static const uint64_t default_memory = 256 * MIB;
static const uint64_t process_bytes = 12 * MIB; /* code, libraries, stacks, buffers: 4 seen */
static const uint64_t most_arena = 128 * MIB;   /* more gains nothing */
static const uint64_t least_slab = MIB / 4;     /* less is all calls and no work */
static const uint64_t best_slab = 12 * MIB;

static uint64_t dtype_bytes(fp8_dtype dtype)
{
    return (uint64_t)fp8_dtype_bits(dtype) / 8;
}

/* Rows of a chunk: a power of two, so that it divides a block of 128 rows or is a multiple of it.
 */
static int64_t chunk_rows_of(int64_t cols)
{
    int64_t rows = 1;
    while (rows < CHUNK_ELEMENTS && rows * cols < CHUNK_ELEMENTS)
        rows *= 2;
    return rows;
}

/* Least common multiple of two extents, one of which is a power of two. */
static int64_t common_rows(int64_t a, int64_t b)
{
    int64_t n = a;
    while (n % b)
        n += a;
    return n;
}

static uint64_t aligned(uint64_t bytes)
{
    return (bytes + CACHE_LINE - 1) / CACHE_LINE * CACHE_LINE;
}

/* Rows of scales that `rows` rows of a grid may touch, wherever they begin. */
static int64_t scale_rows(fp8_grid grid, int64_t rows, int64_t most)
{
    if (grid.rows == 0)
        return 1;
    return fp8_min_i64(rows / grid.rows + 2, most);
}

fp8_slot_map fp8_slot_map_of(const fp8_geometry *g, int64_t rows)
{
    uint64_t elements = (uint64_t)rows * (uint64_t)g->m.cols;
    uint64_t from = (uint64_t)(scale_rows(g->from, rows, g->from_rows) * g->from_cols);
    uint64_t to = (uint64_t)(scale_rows(g->to, rows, g->to_rows) * g->to_cols);
    uint64_t chunks = (uint64_t)(rows / g->chunk_rows + 1);
    fp8_slot_map map = {0};
    map.scales_in = aligned(elements * dtype_bytes(g->in));
    map.real = map.scales_in + (g->reads_codes && !g->bare ? aligned(from * 4) : 0);
    map.out = map.real + (g->reads_codes && g->encodes ? aligned(elements * 4) : 0);
    map.scales_out = map.out + aligned(elements * dtype_bytes(g->out));
    map.sums = map.scales_out + (g->encodes ? aligned(to * 4) : 0);
    map.bytes = map.sums + (g->encodes ? aligned(chunks * 2 * sizeof(double)) : 0);
    return map;
}

/* Most rows, a multiple of `step`, whose slab fits; 0 if not even one step does. */
static int64_t rows_that_fit(const fp8_geometry *g, int64_t step, uint64_t slab_bytes)
{
    int64_t low = 0, high = (g->m.rows + step - 1) / step;
    while (low < high) {
        int64_t mid = low + (high - low + 1) / 2;
        if (fp8_slot_map_of(g, fp8_min_i64(mid * step, g->m.rows)).bytes <= slab_bytes)
            low = mid;
        else
            high = mid - 1;
    }
    return low * step;
}

static void describe(const fp8_convert *conv, int64_t item, fp8_geometry *g)
{
    const fp8_item *it = &conv->items[item];
    const fp8_role_info *role = &conv->roles.tensors[item];
    g->m = fp8_item_matrices(conv, item);
    g->in = fp8_item_info(conv, item).dtype;
    g->reads_codes = fp8_item_reads_codes(conv, item);
    g->bare = role->role == FP8_ROLE_BARE_CODES;
    g->encodes = fp8_item_encodes(it);
    g->out = g->encodes ? fp8_item_dialect(conv, item)->code : conv->desc.dtype;
    if (g->reads_codes && !g->bare) {
        g->from = role->grid;
        g->scale_in = role->scale;
        g->from_rows = fp8_ceil_div(g->m.rows, fp8_grid_extent(g->from.rows, g->m.rows));
        g->from_cols = fp8_ceil_div(g->m.cols, fp8_grid_extent(g->from.cols, g->m.cols));
    }
    if (g->encodes) {
        g->to = fp8_item_grid(conv, item);
        g->scale_out = (fp8_dtype)it->scale;
        g->to_rows = fp8_ceil_div(g->m.rows, fp8_grid_extent(g->to.rows, g->m.rows));
        g->to_cols = fp8_ceil_div(g->m.cols, fp8_grid_extent(g->to.cols, g->m.cols));
    }
}

fp8_geometry fp8_geometry_of(const fp8_convert *conv, int64_t item, uint64_t slab_bytes)
{
    fp8_geometry g = {0};
    describe(conv, item, &g);
    int64_t unit = g.encodes ? g.to.rows : 1; /* 0 = the whole matrix */
    g.chunk_rows = chunk_rows_of(g.m.cols);
    int64_t step = common_rows(g.chunk_rows, unit ? unit : 1);
    g.slab_rows = unit ? rows_that_fit(&g, step, slab_bytes) : 0;
    g.region_rows = unit ? unit : g.m.rows;
    g.two_pass = conv->items[item].group >= 0;
    if (!g.slab_rows) {
        g.two_pass = true;
        step = g.chunk_rows;
        g.slab_rows = rows_that_fit(&g, step, slab_bytes);
    }
    g.two_pass = g.two_pass && g.encodes;
    g.region_units = g.to_cols;
    int64_t tiles = TILE_ELEMENTS / (step * (g.m.cols ? g.m.cols : 1));
    g.tile_rows = step * (tiles > 1 ? tiles : 1);
    return g;
}

/* Bytes that a slot needs for the item in one pass. */
static uint64_t wanted_bytes(const fp8_convert *conv, int64_t item)
{
    fp8_geometry g = fp8_geometry_of(conv, item, UINT64_MAX);
    int64_t rows = g.to.rows > 0 ? common_rows(g.chunk_rows, g.to.rows) : g.chunk_rows;
    return fp8_slot_map_of(&g, fp8_min_i64(rows, g.m.rows)).bytes;
}

/* Bytes that a slot needs for the item at the very least. */
static uint64_t least_bytes(const fp8_convert *conv, int64_t item)
{
    fp8_geometry g = fp8_geometry_of(conv, item, UINT64_MAX);
    return fp8_slot_map_of(&g, fp8_min_i64(g.chunk_rows, g.m.rows)).bytes;
}

/* Bytes of a worker's own memory. */
static uint64_t worker_bytes(const fp8_geometry *g)
{
    int64_t unit_rows = fp8_grid_extent(g->to.rows, g->tile_rows);
    int64_t units = g->two_pass ? g->region_units
                                : (g->tile_rows / unit_rows + 1) * (g->to_cols ? g->to_cols : 1);
    uint64_t floats = (uint64_t)units * 3;                      /* amax, operand, scales */
    uint64_t chunk = 2 * (uint64_t)(g->chunk_rows * g->m.cols); /* values before and after */
    return aligned(floats * 4) + aligned(chunk * 4) + (uint64_t)4 * CACHE_LINE;
}

/* Bytes that the plan itself holds, at its largest: tensors, roles, items, what is done of them,
 * the layout; and what laying out a single shard takes for a while, which is half its entries and a
 * table of names. */
static uint64_t plan_bytes(const fp8_convert *conv)
{
    const fp8_layout *lay = &conv->layout;
    uint64_t each = sizeof(fp8_st_entry) + sizeof(fp8_role_info) + sizeof(fp8_item) + 1;
    if (conv->desc.keep_nan)
        each += 2 * sizeof(int64_t);
    uint64_t bytes = (uint64_t)conv->count * each;
    bytes += 2 * sizeof(uint64_t) * (conv->ckpt->names.mask + 1);
    bytes += (uint64_t)lay->entry_count * sizeof(fp8_entry) * 3 / 2;
    bytes += (uint64_t)lay->order_count * sizeof *lay->order;
    for (int64_t i = 0; i < conv->count; i++) {
        fp8_tensor_info info = fp8_item_info(conv, i);
        bytes += info.name_bytes + 1 + (uint64_t)info.ndim * sizeof *info.shape;
    }
    return bytes;
}

static uint64_t larger(uint64_t a, uint64_t b)
{
    return a > b ? a : b;
}

/* What the tensors ask of a slab. */
struct demand {
    uint64_t least, wanted; /* bytes: for the run to be possible, and to save second passes */
    int64_t widest; /* item that asks for `least`; -1 = none asks for more than any slab has */
};

static struct demand demand_of(const fp8_convert *conv)
{
    struct demand d = {least_slab, 0, -1};
    for (int64_t i = 0; i < conv->count; i++) {
        const fp8_item *it = &conv->items[i];
        if (!fp8_item_encodes(it) && it->action != FP8_ACTION_DEQUANTIZE)
            continue;
        uint64_t bytes = least_bytes(conv, i);
        d.widest = bytes > d.least ? i : d.widest;
        d.least = larger(d.least, bytes);
        d.wanted = larger(d.wanted, wanted_bytes(conv, i));
    }
    return d;
}

static void set_slabs(fp8_convert *conv, uint64_t slab_bytes, int64_t slots)
{
    conv->limits.slab_bytes = slab_bytes;
    conv->limits.slots = (int32_t)slots;
    fp8_limits_scratch(conv);
}

/* The best use of an arena that has room for the least slabs. */
static void divide_arena(fp8_convert *conv, uint64_t arena, const struct demand *d)
{
    int64_t slots = fp8_min_i64(conv->ctx->threads + 4, MOST_SLOTS);
    uint64_t slab = arena / (uint64_t)slots, most = arena / LEAST_SLOTS;
    slab = slab < best_slab ? slab : best_slab;
    if (slab < d->wanted) /* fewer and larger slots, if that saves a second pass */
        slab = d->wanted < most ? d->wanted : most;
    slab -= slab % CACHE_LINE; /* slabs lie side by side, and hold fp32 numbers */
    slab = larger(slab, d->least);
    set_slabs(conv, slab, fp8_min_i64(slots, (int64_t)(arena / slab)));
}

static fp8_status refuse_memory(const fp8_convert *conv, uint64_t memory, const struct demand *d,
                                fp8_error *err)
{
    char row[128] = "";
    if (d->widest >= 0) {
        fp8_tensor_info info = fp8_item_info(conv, d->widest);
        uint64_t cols = (uint64_t)fp8_item_matrices(conv, d->widest).cols;
        uint64_t bytes = cols * dtype_bytes(info.dtype);
        snprintf(row, sizeof row, " for rows of %llu bytes in %.60s", (unsigned long long)bytes,
                 info.name);
    }
    uint64_t least = fp8_limits_peak(conv), plan = plan_bytes(conv);
    return fp8_fail(err, FP8_E_NO_MEMORY,
                    "--max-memory %llu is too little, %llu would do: %llu for the program, %llu "
                    "for the plan of %lld tensors, %llu for %d slabs and %d threads%s",
                    (unsigned long long)memory, (unsigned long long)least,
                    (unsigned long long)process_bytes, (unsigned long long)plan,
                    (long long)conv->count, (unsigned long long)(least - process_bytes - plan),
                    (int)conv->limits.slots, (int)conv->ctx->threads, row);
}

/* Begins with the least slabs, which decide whether it can be done at all, and then looks for
 * larger ones: these ask for more beside the arena, which is taken from it until all of it fits. */
fp8_status fp8_limits_set(fp8_convert *conv, fp8_error *err)
{
    uint64_t memory = conv->desc.max_memory_bytes ? conv->desc.max_memory_bytes : default_memory;
    struct demand d = demand_of(conv);
    conv->limits.sync_bytes = 256 * MIB;
    set_slabs(conv, d.least, LEAST_SLOTS);
    uint64_t peak = fp8_limits_peak(conv), least_arena = LEAST_SLOTS * d.least;
    if (peak > memory)
        return refuse_memory(conv, memory, &d, err);
    uint64_t arena = least_arena + (memory - peak);
    arena = arena < most_arena ? arena : larger(most_arena, least_arena);
    for (int attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
        divide_arena(conv, arena, &d);
        peak = fp8_limits_peak(conv);
        if (peak <= memory)
            return FP8_OK;
        if (arena < least_arena + (peak - memory))
            break;
        arena -= peak - memory;
    }
    set_slabs(conv, d.least, LEAST_SLOTS);
    return FP8_OK;
}

void fp8_limits_scratch(fp8_convert *conv)
{
    fp8_limits *lim = &conv->limits;
    lim->scratch_bytes = CACHE_LINE;
    lim->region_units = 1;
    for (int64_t i = 0; i < conv->count; i++) {
        const fp8_item *it = &conv->items[i];
        if (!fp8_item_encodes(it))
            continue;
        fp8_geometry g = fp8_geometry_of(conv, i, lim->slab_bytes);
        lim->scratch_bytes = larger(lim->scratch_bytes, worker_bytes(&g));
        if (g.two_pass && g.region_units > lim->region_units)
            lim->region_units = g.region_units;
    }
}

uint64_t fp8_limits_peak(const fp8_convert *conv)
{
    const fp8_limits *lim = &conv->limits;
    uint64_t regions = (uint64_t)(lim->slots + 1) * (uint64_t)lim->region_units * sizeof(float);
    regions += (uint64_t)conv->group_count * (sizeof(fp8_region) + sizeof(float) + 1);
    return process_bytes + plan_bytes(conv) + regions + (uint64_t)lim->slots * lim->slab_bytes +
           (uint64_t)conv->ctx->threads * lim->scratch_bytes;
}
