/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda_quantize.c - quantizing on a CUDA device: which kernels do a request. Those of packets where
 * the rows lie as they want them, else those that take anything; nothing is allocated, so where an
 * amax has to wait between two kernels, it does so in the place of its scale. */
#include "backend/cuda/cuda_quantize.h"
#include "backend/cuda/matrix.h"
#include "backend/cuda/not_finite.h"
#include "base/size.h"
#include "number/dtype.h"
#include "op/cuda_calls.h"
#include "op/rules.h"

enum {
    PACKET = 8, /* elements; as in quantize_packets.cu, and so are the next five */
    HELD_PACKETS = 8,
    HELD_THREADS = 512,
    GROUP_PACKETS = 4, /* of a thread */
    GROUP_THREADS = 256,
    ALL_PACKETS = 4 * 256,
    LARGE = 1 << 14, /* elements that are worth more than one block */
    SMALL = 1 << 10, /* elements that are not worth more than a warp */
};

/* A call: args of the kernels, and where they go. */
typedef struct call {
    const fp8_cuda_device *device;
    fp8_cuda_quantize_args args;
    void *stream;
} call;

/* Whether a unit's scale and codes are what most requests want: a / max or the power of two for it,
 * in fp32 or E8M0, and nothing but E4M3 of a quotient. */
static bool has_short_units(const fp8_quant *q, const fp8_tensor *scales)
{
    const fp8_rule_row *row = q->row;
    const bool fits = q->scale == FP8_F32 ? fp8_cuda_divides(4, (uintptr_t)scales->data)
                                          : q->scale == FP8_E8M0FNU && row->exponent;
    return fits && row->form == FP8_SCALE_DIVIDE && !row->scale_in_input &&
           !row->quotient_in_input && !row->plus_zero && q->code == FP8_E4M3FN;
}

fp8_cuda_quantize_args fp8_cuda_describe_quantize(const fp8_quant *q, const fp8_tensor *x,
                                                  const fp8_tensor *codes, const fp8_tensor *scales)
{
    const bool refuse = q->desc.nan == FP8_NAN_REFUSE;
    return (fp8_cuda_quantize_args){
        .x = fp8_cuda_matrix_of(x),
        .codes = fp8_cuda_matrix_of(codes),
        .scales = fp8_cuda_matrix_of(scales),
        .from_rows = 1,
        .from_cols = 1,
        .rows = q->rows,
        .cols = q->cols,
        .code_rows = codes->shape[0],
        .unit_rows = q->unit_rows,
        .unit_cols = q->unit_cols,
        .grid_rows = q->grid_rows,
        .grid_cols = q->grid_cols,
        .maker = fp8_unit_maker_of(q),
        .max = fp8_rule_code_max(q->row, q->code),
        .is_static = q->desc.static_scales != 0,
        .multiply = q->multiply,
        .round_quotient = q->row->quotient_in_input,
        .plus_zero = q->row->plus_zero,
        .nan_code = q->row->nan_code,
        .original = q->desc.nan == FP8_NAN_ORIGINAL,
        .keep = (uint8_t)(refuse ? FP8_KEEP_NUMBERS : fp8_quant_keep(q)),
        .refuse = refuse,
        .short_units = has_short_units(q, scales),
    };
}

static fp8_status launch(const call *c, fp8_cuda_kernel kernel, const fp8_cuda_shape *shape,
                         fp8_error *err)
{
    return fp8_cuda_launch(c->device, kernel, shape, &c->args, c->stream, err);
}

/* A kernel of packets, which waits by itself for the kernel before it. */
static fp8_status launch_packets(const call *c, fp8_cuda_kernel kernel, fp8_cuda_shape shape,
                                 fp8_error *err)
{
    shape.dependent = c->device->facts.capability >= FP8_CUDA_DEPENDENT_CAPABILITY;
    return launch(c, kernel, &shape, err);
}

/* As many blocks as n pieces of work want. */
static fp8_status launch_for(const call *c, fp8_cuda_kernel kernel, int64_t n, fp8_error *err)
{
    const fp8_cuda_shape shape = fp8_cuda_shape_for(c->device, n, 1);
    return launch(c, kernel, &shape, err);
}

/* Whether the kernels of packets can read x and write codes: rows without gaps, aligned. */
static bool has_packets(const fp8_cuda_quantize_args *a)
{
    const int64_t bytes = fp8_dtype_bits((fp8_dtype)a->x.dtype) / 8;
    const bool one_row = a->rows == 1;
    return !a->from.data && a->x.col == 1 && a->codes.col == 1 &&
           fp8_cuda_divides(PACKET, (uint64_t)a->cols) &&
           fp8_cuda_divides(16, (uintptr_t)a->x.data) &&
           fp8_cuda_divides(PACKET, (uintptr_t)a->codes.data) &&
           (one_row || (fp8_cuda_divides(16, (uint64_t)(a->x.row * bytes)) &&
                        fp8_cuda_divides(PACKET, (uint64_t)a->codes.row)));
}

/* The rows of x and codes as one long row; the caller knows what becomes of the units. */
static bool make_one_row(fp8_cuda_quantize_args *a)
{
    if (a->x.col != 1 || a->codes.col != 1 || a->x.row != a->cols || a->codes.row != a->cols)
        return false;
    a->cols *= a->rows;
    a->rows = 1;
    return true;
}

/* A kernel of packets for the dtype of x. */
static fp8_cuda_kernel of_input(const fp8_cuda_quantize_args *a, fp8_cuda_kernel bf16)
{
    return fp8_cuda_kernel_for((fp8_dtype)a->x.dtype, bf16);
}
_Static_assert(FP8_CUDA_quantize_held4_f32 == FP8_CUDA_quantize_held4_bf16 + 2, "order");
_Static_assert(FP8_CUDA_quantize_held8_f32 == FP8_CUDA_quantize_held8_bf16 + 2, "order");
_Static_assert(FP8_CUDA_quantize_groups_f32 == FP8_CUDA_quantize_groups_bf16 + 2, "order");
_Static_assert(FP8_CUDA_quantize_real_groups_f32 == FP8_CUDA_quantize_real_groups_bf16 + 2,
               "order");
_Static_assert(FP8_CUDA_quantize_given_f32 == FP8_CUDA_quantize_given_bf16 + 2, "order");
_Static_assert(FP8_CUDA_quantize_amax_f32 == FP8_CUDA_quantize_amax_bf16 + 2, "order");
_Static_assert(FP8_CUDA_quantize_encode_f32 == FP8_CUDA_quantize_encode_bf16 + 2, "order");

/* ---- groups ---- */

/* Of so many threads, how many a block has: at most `most`, fewer if all processors can share. */
static int64_t few_threads(const call *c, int64_t threads, int64_t most)
{
    const int64_t share = fp8_ceil_div(threads, c->device->facts.processors);
    return fp8_min_i64(fp8_ceil_div(share, 32) * 32, most);
}

static bool is_group(const fp8_cuda_quantize_args *a)
{
    const int64_t n = a->unit_cols;
    return a->unit_rows == 1 && (n == 32 || n == 64 || n == 128 || n == 256) &&
           fp8_cuda_divides(n, (uint64_t)a->cols) && a->rows * a->cols / PACKET <= INT32_MAX;
}

/* bf16: the kernel for x in bf16. */
static fp8_status quantize_groups(const call *c, fp8_cuda_kernel bf16, fp8_error *err)
{
    call flat = *c;
    fp8_cuda_quantize_args *a = &flat.args;
    const bool scales_flat = a->scales.col == 1 && a->scales.row == a->grid_cols;
    if (scales_flat && make_one_row(a)) {
        a->grid_cols *= a->grid_rows;
        a->grid_rows = 1;
    }
    const int64_t threads = fp8_ceil_div(a->rows * a->cols / PACKET, GROUP_PACKETS);
    const int64_t each = few_threads(c, threads, GROUP_THREADS);
    const fp8_cuda_shape shape = {.grid = {(uint32_t)fp8_ceil_div(threads, each)},
                                  .threads = (uint32_t)each};
    return launch_packets(&flat, of_input(a, bf16), shape, err);
}

/* ---- units that a block holds ---- */

/* How a block holds a unit: each thread `packets` of 8 elements, 4 or 8. */
typedef struct holding {
    int64_t threads, packets;
} holding;

/* A unit of one row: threads along it. Few packets a thread, so that many blocks hide the memory's
 * delay, but no larger blocks than needed; where there are few rows, most threads. */
static holding hold_row(const call *c, int64_t across)
{
    enum { FEW = 2 }; /* blocks of an SM */
    const bool few = c->args.rows <= (int64_t)FEW * c->device->facts.processors;
    const int64_t packets = across <= (few ? 2048 : 1024) ? 4 : 8;
    const int64_t each = few ? fp8_ceil_div(across, HELD_THREADS) : packets;
    return (holding){fp8_ceil_div(fp8_ceil_div(across, each), 32) * 32, packets};
}

/* Of several rows: `across` threads side by side, and as many of such rows as it takes. */
static holding hold_rows(int64_t across, int64_t down)
{
    const int64_t packets = across * fp8_ceil_div(down, 4) <= 128 ? 4 : 8;
    return (holding){fp8_ceil_div(across * fp8_ceil_div(down, packets), 32) * 32, packets};
}

/* threads 0: a block cannot hold a unit, or it is not worth one. */
static holding hold(const call *c)
{
    const fp8_cuda_quantize_args *a = &c->args;
    const holding none = {0, 0};
    const int64_t across = fp8_ceil_div(fp8_min_i64(a->unit_cols, a->cols), PACKET);
    const int64_t down = fp8_min_i64(a->unit_rows, a->rows);
    const bool whole = a->unit_cols >= a->cols || a->unit_cols % PACKET == 0;
    const int64_t most = (int64_t)HELD_PACKETS * HELD_THREADS;
    if (!whole || across > most || down > most || across * down < 32 ||
        a->grid_cols > INT32_MAX / a->grid_rows)
        return none;
    const holding h = a->unit_rows == 1 ? hold_row(c, across) : hold_rows(across, down);
    return h.threads <= HELD_THREADS ? h : none;
}

static fp8_status quantize_held(const call *c, holding h, fp8_error *err)
{
    const fp8_cuda_quantize_args *a = &c->args;
    const fp8_cuda_kernel kernel =
        h.packets == 4 ? FP8_CUDA_quantize_held4_bf16 : FP8_CUDA_quantize_held8_bf16;
    const fp8_cuda_shape shape = {.grid = {(uint32_t)(a->grid_rows * a->grid_cols)},
                                  .threads = (uint32_t)h.threads};
    return launch_packets(c, of_input(a, kernel), shape, err);
}

/* ---- step by step, amaxes in the place of their scales ---- */

static bool scales_can_hold_amaxes(const fp8_cuda_quantize_args *a)
{
    return a->scales.dtype == FP8_F32 && fp8_cuda_divides(4, (uintptr_t)a->scales.data);
}

static bool is_for_steps(const call *c)
{
    const fp8_cuda_quantize_args *a = &c->args;
    const int64_t units = a->grid_rows * a->grid_cols;
    return scales_can_hold_amaxes(a) && units / 2 < c->device->facts.processors &&
           a->rows * a->cols / units >= LARGE;
}

/* Blocks for one scale for all, or for a row of it. */
static fp8_cuda_shape shape_of_all(const call *c)
{
    const int64_t blocks = fp8_ceil_div(c->args.cols / PACKET, ALL_PACKETS);
    const int64_t most = (int64_t)c->device->facts.processors * 8;
    return (fp8_cuda_shape){
        .grid = {(uint32_t)fp8_min_i64(blocks, most), (uint32_t)fp8_min_i64(c->args.rows, 65535)},
        .threads = 256};
}

/* If it is one scale for all, and packets can be made. */
static bool as_packets_of_all(const call *c, call *all)
{
    *all = *c;
    if (c->args.grid_rows != 1 || c->args.grid_cols != 1)
        return false;
    make_one_row(&all->args);
    return has_packets(&all->args);
}

static fp8_status quantize_steps(const call *c, fp8_error *err)
{
    const fp8_cuda_quantize_args *a = &c->args;
    const int64_t units = a->grid_rows * a->grid_cols, n = a->rows * a->cols;
    call all;
    FP8_TRY(launch_for(c, FP8_CUDA_quantize_clear_amax, units, err));
    if (as_packets_of_all(c, &all)) {
        const fp8_cuda_shape shape = shape_of_all(&all);
        FP8_TRY(launch_packets(&all, of_input(a, FP8_CUDA_quantize_amax_bf16), shape, err));
        FP8_TRY(launch_packets(&all, of_input(a, FP8_CUDA_quantize_encode_bf16), shape, err));
    } else {
        FP8_TRY(launch_for(c, FP8_CUDA_quantize_amax, n, err));
        FP8_TRY(launch_for(c, FP8_CUDA_quantize_encode, n, err));
    }
    return launch_for(c, FP8_CUDA_quantize_scales, units, err);
}

/* ---- scales that are an input ---- */

/* Whether a packet has one scale, and columns.cuh can count what there is. */
static bool has_given_packets(const fp8_cuda_quantize_args *a)
{
    return has_packets(a) && a->rows <= INT32_MAX && a->cols <= INT32_MAX &&
           (a->unit_cols >= a->cols || fp8_cuda_divides(PACKET, (uint64_t)a->unit_cols));
}

static fp8_status quantize_static(const call *c, fp8_error *err)
{
    const fp8_cuda_quantize_args *a = &c->args;
    call all;
    if (as_packets_of_all(c, &all))
        return launch_packets(&all, of_input(a, FP8_CUDA_quantize_encode_bf16), shape_of_all(&all),
                              err);
    if (has_given_packets(a))
        return launch_packets(c, of_input(a, FP8_CUDA_quantize_given_bf16),
                              fp8_cuda_columns_shape(a->rows, a->cols), err);
    return launch_for(c, FP8_CUDA_quantize_encode, a->rows * a->cols, err);
}

/* ---- the choice ---- */

/* A block a unit, or a warp if it is small. */
static fp8_status quantize_units(const call *c, fp8_error *err)
{
    const fp8_cuda_quantize_args *a = &c->args;
    const int64_t elements =
        fp8_min_i64(a->unit_rows, a->rows) * fp8_min_i64(a->unit_cols, a->cols);
    const int64_t units = a->grid_rows * a->grid_cols;
    return elements <= SMALL ? launch_for(c, FP8_CUDA_quantize_small_units, units * 32, err)
                             : launch_for(c, FP8_CUDA_quantize_units, units * 256, err);
}

static fp8_status quantize_all(const call *c, fp8_error *err)
{
    const fp8_cuda_quantize_args *a = &c->args;
    if (a->rows * a->cols == 0)
        return FP8_OK;
    if (a->is_static)
        return quantize_static(c, err);
    if (has_packets(a) && is_group(a))
        return quantize_groups(c, FP8_CUDA_quantize_groups_bf16, err);
    const holding h = has_packets(a) ? hold(c) : (holding){0, 0};
    if (h.threads)
        return quantize_held(c, h, err);
    return is_for_steps(c) ? quantize_steps(c, err) : quantize_units(c, err);
}

static fp8_status clear_rows(const call *c, fp8_error *err)
{
    const int64_t n = (c->args.code_rows - c->args.rows) * c->args.cols;
    return n ? launch_for(c, FP8_CUDA_quantize_clear_rows, n, err) : FP8_OK;
}

static fp8_status check_places(const call *c, fp8_error *err)
{
    const struct {
        const void *data;
        const char *name;
    } places[] = {{c->args.x.data, "x"},
                  {c->args.from.data, "scales of x"},
                  {c->args.codes.data, "codes"},
                  {c->args.scales.data, "scales"}};
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        FP8_TRY(fp8_cuda_check_memory(c->device, places[i].data, places[i].name, err));
    return FP8_OK;
}

static fp8_status enqueue(const call *c, fp8_error *err)
{
    FP8_TRY(clear_rows(c, err));
    return quantize_all(c, err);
}

/* to = from, bit by bit. */
static fp8_status copy(const call *c, const fp8_cuda_matrix *from, const fp8_cuda_matrix *to,
                       int64_t rows, int64_t cols, fp8_error *err)
{
    const fp8_copy_args args = {*from, *to, rows, cols, cols, 0, 0};
    const fp8_cuda_shape shape = fp8_cuda_shape_for(c->device, rows * cols, 1);
    if (rows * cols == 0)
        return FP8_OK;
    return fp8_cuda_launch(c->device, FP8_CUDA_copy_elements, &shape, &args, c->stream, err);
}

/* For a requantization that changes nothing. */
static fp8_status enqueue_copy(const call *c, fp8_error *err)
{
    const fp8_cuda_quantize_args *a = &c->args;
    FP8_TRY(clear_rows(c, err));
    FP8_TRY(copy(c, &a->x, &a->codes, a->rows, a->cols, err));
    return copy(c, &a->from, &a->scales, a->grid_rows, a->grid_cols, err);
}

static fp8_status refuse(const fp8_context *ctx, const call *c, fp8_error *err)
{
    const fp8_cuda_quantize_args *a = &c->args;
    const fp8_find_args args = {a->x, a->from, a->from_rows, a->from_cols, a->rows, a->cols, NULL};
    return a->refuse ? fp8_cuda_refuse_not_finite(ctx, &args, c->stream, err) : FP8_OK;
}

static fp8_status run(const fp8_context *ctx, const call *c, bool is_copy, fp8_error *err)
{
    FP8_TRY(fp8_cuda_begin(c->device, c->stream, err));
    fp8_status status = check_places(c, err);
    if (status == FP8_OK && !is_copy)
        status = refuse(ctx, c, err);
    if (status == FP8_OK)
        status = (is_copy ? enqueue_copy : enqueue)(c, err);
    fp8_cuda_leave(c->device);
    return status;
}

fp8_status fp8_cuda_quantize(const fp8_context *ctx, const fp8_quant *q, const fp8_tensor *x,
                             const fp8_tensor *codes, const fp8_tensor *scales, void *stream,
                             fp8_error *err)
{
    const call c = {ctx->cuda, fp8_cuda_describe_quantize(q, x, codes, scales), stream};
    return run(ctx, &c, false, err);
}

fp8_status fp8_cuda_enqueue_quantize(const fp8_cuda_device *device, const fp8_quant *q,
                                     const fp8_tensor *x, const fp8_tensor *codes,
                                     const fp8_tensor *scales, void *stream, fp8_error *err)
{
    const call c = {device, fp8_cuda_describe_quantize(q, x, codes, scales), stream};
    return enqueue(&c, err);
}

fp8_status fp8_cuda_enqueue_rounded(const fp8_cuda_device *device, const fp8_quant *q,
                                    const fp8_tensor *x, const fp8_tensor *scales,
                                    const fp8_tensor *y, void *stream, bool *done, fp8_error *err)
{
    fp8_tensor codes = *y;
    codes.dtype = q->code;
    const call c = {device, fp8_cuda_describe_quantize(q, x, &codes, scales), stream};
    *done = has_packets(&c.args) && is_group(&c.args) && !c.args.is_static &&
            fp8_cuda_divides(16, (uintptr_t)y->data);
    return *done ? quantize_groups(&c, FP8_CUDA_quantize_real_groups_bf16, err) : FP8_OK;
}

fp8_status fp8_cuda_requantize(const fp8_context *ctx, const fp8_quant *q, bool is_copy,
                               fp8_grid from, const fp8_tensor *codes, const fp8_tensor *scales,
                               const fp8_tensor *codes_out, const fp8_tensor *scales_out,
                               void *stream, fp8_error *err)
{
    call c = {ctx->cuda, fp8_cuda_describe_quantize(q, codes, codes_out, scales_out), stream};
    c.args.from = fp8_cuda_matrix_of(scales);
    c.args.from_rows = fp8_grid_extent(from.rows, q->rows);
    c.args.from_cols = fp8_grid_extent(from.cols, q->cols);
    return run(ctx, &c, is_copy, err);
}
