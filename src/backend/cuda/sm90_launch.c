/* SPDX-License-Identifier: Apache-2.0
 *
 * sm90_launch.c - arguments of the fast kernels: descriptors for bulk copies (100 ns each to make,
 * so they are made for each run), the walk over tiles, the ring. */
#include "backend/cuda/matrix.h"
#include "backend/cuda/reckon.h"
#include "backend/cuda/sm90.h"
#include "backend/cuda/tensor_map.h"

enum { BYTES = FP8_CU_MAP_U8, HALVES = FP8_CU_MAP_BF16, FLOATS = FP8_CU_MAP_F32 };
enum { ONCE = FP8_CU_MAP_L2_NONE, NEXT_TOO = FP8_CU_MAP_L2_256B };

/* A box of rows by 128 columns of codes. */
static fp8_status map_codes(const fp8_cuda_device *device, const uint8_t *data, int32_t rows,
                            int32_t cols, int64_t stride, int32_t box_rows, uint32_t promotion,
                            fp8_tensor_map *out, fp8_error *err)
{
    const fp8_cuda_map_of of = {
        data, rows, cols, stride, box_rows, 128, BYTES, FP8_CU_MAP_SWIZZLE_128, 1, promotion};
    return fp8_cuda_make_map(device, &of, out, err);
}

/* A box of `box` scales of one k block; scales are [k blocks, stride], of which m are there. */
static fp8_status map_scales(const fp8_cuda_device *device, const fp8_sm90_problem *p,
                             const fp8_sm90_scales *scales, int32_t box, fp8_tensor_map *out,
                             fp8_error *err)
{
    const fp8_cuda_map_of of = {scales->x, up(p->k, 128), p->m, scales->x_stride, 1, box, FLOATS, 0,
                                4,         ONCE};
    return fp8_cuda_make_map(device, &of, out, err);
}

static fp8_status map_y(const fp8_cuda_device *device, const fp8_sm90_problem *p,
                        const fp8_sm90_matrices *m, int32_t box_rows, int32_t box_cols,
                        fp8_tensor_map *out, fp8_error *err)
{
    const uint32_t swizzle = box_cols == 64   ? FP8_CU_MAP_SWIZZLE_128
                             : box_cols == 32 ? FP8_CU_MAP_SWIZZLE_64
                             : box_cols == 16 ? FP8_CU_MAP_SWIZZLE_32
                                              : 0;
    const fp8_cuda_map_of of = {m->y,     p->m,   p->n,    m->y_stride, box_rows,
                                box_cols, HALVES, swizzle, 2,           ONCE};
    return fp8_cuda_make_map(device, &of, out, err);
}

/* Whether bulk copies can store Y: 16 bits an element, whatever they mean. They write whole 16
 * bytes, so a row must end with some. */
static bool stores_by_bulk(const fp8_sm90_problem *p, const fp8_sm90_matrices *m)
{
    return m->y_dtype != FP8_F32 && p->n % 8 == 0 && fp8_cuda_has_map(m->y, p->m, m->y_stride, 2);
}

/* Tiles down that are walked before the next ones across: all where X stays in the L2 meanwhile. */
static int32_t group_of(const fp8_sm90_version *v, const fp8_sm90_problem *p, int32_t down)
{
    enum { L2_PART = 24 << 20, ROWS = 2048 };
    const int32_t some = ROWS / (v->rows * v->down);
    return (int64_t)p->m * p->k <= L2_PART || down < some ? down : some;
}

/* Blocks of a cluster, of `blocks` in all. Tiles that share nothing by copies go in twos, where the
 * tile below reads the same W: the two blocks then lie side by side, and less comes from the L2
 * (dev/cuda/README.md, run 19). */
static int32_t cluster_of(int32_t sharing, int32_t down, int32_t blocks)
{
    return sharing == 1 && down > 1 && blocks % 2 == 0 ? 2 : sharing;
}

static fp8_status launch_large(const fp8_cuda_device *device, const fp8_sm90_version *v,
                               const fp8_sm90_problem *p, const fp8_sm90_matrices *m, void *stream,
                               fp8_error *err)
{
    const int32_t down = up(p->m, v->rows * v->down), across = up(p->n, v->cols * v->across);
    const int32_t sharing = v->down * v->across * v->slices, group = group_of(v, p, down);
    const int32_t most = fp8_sm90_clusters(device, sharing, 1), tiles = down * across;
    const int32_t blocks = (v->slices > 1 || tiles < most ? tiles : most) * sharing;
    const int32_t box = v->across == 1 && p->m < v->rows ? p->m : v->rows / v->across;
    const int32_t scale_box = p->m < v->rows ? up(p->m, 4) * 4 : v->rows;
    const int32_t step = v->block ? 4 : 1; /* copies of scales begin at multiples of 16 bytes */
    /* Across only where tiles need not begin at parts of blocks of W, and Y's columns, which are
     * stored by fours and eights, stay aligned. */
    const bool may_shift = !v->block && p->n >= v->cols && p->n % 8 == 0;
    const bool by_bulk = !fp8_large_direct(v->rows, v->cols, v->slices) && stores_by_bulk(p, m);
    fp8_large_args a = {
        .scales = m->scales,
        .y_plain = by_bulk ? NULL : m->y,
        .y_stride = m->y_stride,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .group = group,
        .late = v->late,
        .last_m = p->m > v->rows ? up(p->m - v->rows, step) * step : 0,
        .last_n = may_shift ? p->n - v->cols : INT32_MAX,
        .x_bytes = box * v->across * 128 + (v->block ? 4 * scale_box : 0),
        .down = down,
        .across = across,
        .per = fp8_divider_of(group * across),
        .full = fp8_divider_of(group),
        .last = fp8_divider_of(down % group ? down % group : group),
        .y_dtype = (int32_t)m->y_dtype,
    };
    const fp8_cuda_shape shape = {
        .grid = {(uint32_t)blocks},
        .threads = FP8_LARGE_THREADS,
        .shared_bytes =
            (uint32_t)fp8_large_shared(v->rows, v->cols, v->stages, v->slices, v->split, v->block),
        .cluster = (uint32_t)cluster_of(sharing, down, blocks),
        .dependent = true,
    };
    FP8_TRY(map_codes(device, m->x, p->m, p->k, m->x_stride, box, NEXT_TOO, &a.x, err));
    FP8_TRY(map_codes(device, m->w, p->n, p->k, m->w_stride, v->cols / v->down,
                      p->m <= v->rows ? ONCE : NEXT_TOO, &a.w, err)); /* read once, or again */
    if (by_bulk)
        FP8_TRY(map_y(device, p, m, 64, fp8_large_slab(v->cols, v->split, v->block), &a.y, err));
    if (v->block)
        FP8_TRY(map_scales(device, p, &m->scales, scale_box, &a.x_scales, err));
    return fp8_cuda_launch(device, v->kernel, &shape, &a, stream, err);
}

/* Clocks from one stage of W to the next, while a block asks for its first ring: all blocks
 * together ask somewhat faster than the memory gives. What is asked for at once stands in the way
 * of X, and of what the kernel before still reads. Slower where the next kernel reads beside this
 * one all the time: it has two tiles a cluster, or half of the processors. (dev/cuda/README.md, run
 * 18) */
static int32_t pace_of(const fp8_cuda_device *device, const fp8_sm90_version *v,
                       const fp8_sm90_plan *plan)
{
    const float clocks = 1.75e3F; /* a us */
    const int32_t blocks = plan->clusters * v->split;
    const bool beside = v->quantizes || (v->per_sm == 2 && plan->waves > 1) ||
                        (v->per_sm == 1 && 2 * blocks <= device->facts.processors);
    const float rate = device->facts.memory_rate * (beside ? 1.3F : 1.9F);
    const float bytes = (float)(fp8_small_w_bytes(v->rows, v->cols) * blocks);
    return rate > 0 ? (int32_t)(bytes / rate * clocks) : 0;
}

static fp8_status launch_small(const fp8_cuda_device *device, const fp8_sm90_version *v,
                               const fp8_sm90_problem *p, const fp8_sm90_matrices *m, void *stream,
                               fp8_error *err)
{
    enum { PREFETCHED = 4 };
    fp8_sm90_plan plan;
    const bool wide = fp8_small_wide(v->cols), resident = fp8_small_resident(v->cols);
    FP8_FAIL_IF(!fp8_sm90_plan_small(device, v, p, &plan), err, FP8_E_NO_KERNEL,
                "%s: no room for k = %d", device->label, p->k);
    const int32_t tiles = up(p->n, v->rows) * up(p->m, v->cols);
    fp8_small_quantize_args both; /* .x and what follows: only where the kernel quantizes */
    fp8_small_args *const a = &both.small;
    *a = (fp8_small_args){
        .scales = m->scales,
        .x_codes = m->x,
        .y_plain = m->y,
        .x_codes_stride = m->x_stride,
        .y_stride = m->y_stride,
        .m = p->m,
        .n = p->n,
        .k = p->k,
        .stages = plan.stages,
        .prefetch = PREFETCHED,
        .x_rows = p->m < v->cols ? p->m : v->cols,
        .by_bulk = stores_by_bulk(p, m),
        .y_dtype = (int32_t)m->y_dtype,
        .rounds = tiles / plan.clusters,
        .rest = tiles % plan.clusters,
        .pace = pace_of(device, v, &plan),
    };
    const fp8_cuda_shape shape = {
        .grid = {(uint32_t)(plan.clusters * v->split)},
        .threads = (uint32_t)fp8_small_threads(v->rows, v->cols),
        .shared_bytes = (uint32_t)plan.shared_bytes,
        .cluster = (uint32_t)v->split,
        .balanced = v->split > 1,
        .dependent = true,
    };
    FP8_TRY(map_codes(device, m->w, p->n, p->k, m->w_stride, v->rows, ONCE, &a->w, err));
    if (!resident)
        FP8_TRY(map_codes(device, m->x, p->m, p->k, m->x_stride, a->x_rows, ONCE, &a->x, err));
    if (!resident && v->block)
        FP8_TRY(map_scales(device, p, &m->scales, v->cols, &a->x_scales, err));
    if (wide && a->by_bulk)
        FP8_TRY(
            map_y(device, p, m, fp8_small_store_rows(v->rows, v->cols, v->split), 64, &a->y, err));
    if (v->quantizes)
        both.x = *m->quantize;
    const fp8_cuda_kernel kernel =
        v->quantizes ? fp8_cuda_kernel_for((fp8_dtype)both.x.x.dtype, v->kernel) : v->kernel;
    return fp8_cuda_launch(device, kernel, &shape, &both, stream, err);
}

fp8_status fp8_sm90_launch(const fp8_cuda_device *device, const fp8_sm90_version *version,
                           const fp8_sm90_problem *problem, const fp8_sm90_matrices *matrices,
                           void *stream, fp8_error *err)
{
    return (version->small ? launch_small : launch_large)(device, version, problem, matrices,
                                                          stream, err);
}
