/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_linear.c - operands, copies of the weight and workspace of such a linear, on the device. */
#include "cli/gpu_linear.h"

#include "cli/bench_data.h"

#include <stdlib.h>

enum { X_SCALE_STEP = 4 }; /* scales of 128 columns are padded to whole 16 bytes */

static int64_t units(int64_t extent, int64_t unit)
{
    return unit > 0 ? (extent + unit - 1) / unit : extent > 0;
}

/* ---- weights ---- */

/* The first of linears[] from codes and scales; the others are clones. */
static fp8_status make_linears(const cli_gpu_linear *c, fp8_activation activation,
                               const fp8_tensor *w, const fp8_tensor *w_scales,
                               fp8_linear **linears, fp8_error *err)
{
    const fp8_linear_desc desc = cli_linear_desc(c->scheme, activation);
    CLI_TRY(fp8_linear_create(c->ctx, &desc, w, w_scales, NULL, &linears[0], err));
    for (int i = 1; i < c->copies; i++)
        CLI_TRY(fp8_linear_clone(linears[0], &linears[i], err));
    return FP8_OK;
}

static fp8_status make_both(cli_gpu_linear *c, const fp8_tensor *w, const fp8_tensor *w_scales,
                            fp8_error *err)
{
    fp8_linear_info info;
    CLI_TRY(make_linears(c, cli_linear_product(c->scheme), w, w_scales, c->product, err));
    fp8_linear_get_info(c->product[0], &info);
    c->bytes = (double)c->shape.n * (double)c->shape.k + (double)info.scale_bytes;
    c->has_whole = c->scheme->activation == FP8_ACTIVATION_DYNAMIC;
    return c->has_whole ? make_linears(c, FP8_ACTIVATION_DYNAMIC, w, w_scales, c->whole, err)
                        : FP8_OK;
}

/* w[0] = the codes that the linears are made of. */
static fp8_status make_weights(cli_gpu_linear *c, fp8_error *err)
{
    const cli_shape *s = &c->shape;
    const fp8_grid grid = c->scheme->w;
    const int64_t rows = units(s->n, grid.rows), cols = units(s->k, grid.cols);
    fp8_tensor w, scales;
    fp8_status status = cli_gpu_matrix(c->ctx, FP8_E4M3FN, s->n, s->k, &w, err);
    c->w[0] = w.data;
    CLI_TRY(status);
    scales = cli_bench_matrix(c->scheme->scale, rows, cols);
    for (int64_t i = 0; c->scheme->scale == FP8_F32 && scales.data && i < rows * cols; i++)
        ((float *)scales.data)[i] = 1.0f / 64;
    status = scales.data != NULL
                 ? make_both(c, &w, &scales, err)
                 : cli_bench_fail(err, FP8_E_NO_MEMORY, "bench: no memory for the matrices");
    free(scales.data);
    return status;
}

/* ---- the rest ---- */

/* Scales of X in the scheme's dtype, those of a group of columns side by side. */
static fp8_status make_x_scales(cli_gpu_linear *c, fp8_error *err)
{
    const fp8_grid grid = c->scheme->x;
    const int64_t rows = units(c->shape.m, grid.rows), cols = units(c->shape.k, grid.cols);
    const int64_t step = (rows + X_SCALE_STEP - 1) / X_SCALE_STEP * X_SCALE_STEP;
    void *data;
    CLI_TRY(cli_gpu_scales(c->ctx, c->scheme->scale, step * cols, &data, err));
    c->x_scales = fp8_matrix(data, c->scheme->scale, rows, cols);
    c->x_scales.stride[0] = 1;
    c->x_scales.stride[1] = step;
    return FP8_OK;
}

static fp8_status make_matrices(cli_gpu_linear *c, fp8_error *err)
{
    const cli_shape *s = &c->shape;
    const fp8_dtype x = cli_linear_x_dtype(cli_linear_product(c->scheme));
    CLI_TRY(cli_gpu_matrix(c->ctx, x, s->m, s->k, &c->x, err));
    c->y = fp8_matrix(NULL, FP8_BF16, s->m, s->n);
    CLI_TRY(fp8_device_alloc(c->ctx, 2 * (uint64_t)(s->m * s->n), &c->y.data, err));
    CLI_TRY(make_x_scales(c, err));
    if (c->has_whole)
        CLI_TRY(cli_gpu_matrix(c->ctx, FP8_BF16, s->m, s->k, &c->x_high, err));
    c->bytes +=
        (double)s->m * (double)s->k * fp8_dtype_bits(x) / 8 + 2.0 * (double)s->m * (double)s->n;
    const fp8_linear *largest = c->has_whole ? c->whole[0] : c->product[0];
    CLI_TRY(fp8_linear_workspace(largest, s->m, &c->workspace_bytes, err));
    return fp8_device_alloc(c->ctx, c->workspace_bytes, &c->workspace, err);
}

/* W as peers read it, in codes or in X's dtype, and enough scales for any of their layouts. */
static fp8_status make_for_peers(cli_gpu_linear *c, fp8_error *err)
{
    const cli_shape *s = &c->shape;
    const int64_t longer = s->m > s->n ? s->m : s->n;
    if (c->x.dtype == FP8_E4M3FN) {
        CLI_TRY(cli_gpu_repeat(c->ctx, (uint64_t)(s->n * s->k), c->copies, c->w, err));
    } else {
        fp8_device_free(c->ctx, c->w[0]);
        CLI_TRY(cli_gpu_matrices(c->ctx, c->x.dtype, s->n, s->k, c->copies, c->w, err));
    }
    return cli_gpu_scales(c->ctx, FP8_F32, (longer + 8) * (units(s->k, 128) + 4), &c->scales, err);
}

/* The kernel that a run of the product takes. */
static void find_kernel(cli_gpu_linear *c)
{
    const cli_shape *s = &c->shape;
    const fp8_linear_desc desc = cli_linear_desc(c->scheme, cli_linear_product(c->scheme));
    for (int64_t i = 0;
         !c->chosen.chosen && fp8_explain(c->ctx, &desc, s->m, s->n, s->k, c->x.dtype, FP8_E4M3FN,
                                          i, &c->chosen, NULL) == FP8_OK;
         i++) {
    }
}

fp8_status cli_gpu_linear_make(cli_gpu_linear *c, const fp8_context *ctx, const cli_gpu *gpu,
                               const cli_linear_scheme *scheme, cli_shape shape, bool peers,
                               fp8_error *err)
{
    *c = (cli_gpu_linear){.ctx = ctx, .scheme = scheme, .shape = shape};
    c->copies = cli_gpu_copies(gpu, (double)shape.n * (double)shape.k, &c->cold);
    CLI_TRY(make_weights(c, err));
    CLI_TRY(make_matrices(c, err));
    find_kernel(c);
    return peers ? make_for_peers(c, err) : FP8_OK;
}

void cli_gpu_linear_free(cli_gpu_linear *c)
{
    void *const all[] = {c->x.data, c->x_scales.data, c->x_high.data,
                         c->y.data, c->workspace,     c->scales};
    for (int i = 0; i < c->copies; i++) {
        fp8_linear_free(c->product[i]);
        fp8_linear_free(c->whole[i]);
        fp8_device_free(c->ctx, c->w[i]);
    }
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        fp8_device_free(c->ctx, all[i]);
    *c = (cli_gpu_linear){0};
}

/* ---- runs ---- */

const fp8_tensor *cli_gpu_linear_x_scales(const cli_gpu_linear *c)
{
    return cli_linear_product(c->scheme) == FP8_ACTIVATION_CODES ? &c->x_scales : NULL;
}

fp8_status cli_gpu_linear_product(void *arg, int64_t i, void *stream, fp8_error *err)
{
    cli_gpu_linear *c = arg;
    return fp8_linear_run(c->product[i % c->copies], &c->x, cli_gpu_linear_x_scales(c), &c->y,
                          c->workspace, c->workspace_bytes, stream, err);
}

fp8_status cli_gpu_linear_warm(void *arg, int64_t i, void *stream, fp8_error *err)
{
    (void)i;
    return cli_gpu_linear_product(arg, 0, stream, err);
}

fp8_status cli_gpu_linear_whole(void *arg, int64_t i, void *stream, fp8_error *err)
{
    cli_gpu_linear *c = arg;
    return fp8_linear_run(c->whole[i % c->copies], &c->x_high, NULL, &c->y, c->workspace,
                          c->workspace_bytes, stream, err);
}

const char *const cli_peer_way_names[CLI_PEER_WAYS] = {
    [CLI_PEER_SAME] = "cublaslt",
    [CLI_PEER_SAME_FAST] = "cublaslt_fast",
    [CLI_PEER_TENSOR] = "cublaslt_tensor",
    [CLI_PEER_TENSOR_FAST] = "cublaslt_tensor_fast",
};

/* Its words for the scales of the case. */
static cli_lt_scales same_scales(const cli_gpu_linear *c)
{
    const fp8_grid w = c->scheme->w;
    if (c->x.dtype == FP8_BF16)
        return CLI_LT_BF16;
    if (w.cols > 0)
        return CLI_LT_BLOCK;
    return w.rows > 0 ? CLI_LT_VECTOR : CLI_LT_TENSOR;
}

bool cli_gpu_linear_peer(const cli_gpu_linear *c, cli_peer_way way, int64_t launches,
                         cli_lt_problem *out)
{
    const bool tensor = way >= CLI_PEER_TENSOR;
    const bool fast = way == CLI_PEER_SAME_FAST || way == CLI_PEER_TENSOR_FAST;
    const cli_lt_scales same = same_scales(c);
    *out = (cli_lt_problem){.name = cli_peer_way_names[way],
                            .shape = c->shape,
                            .scales = tensor ? CLI_LT_TENSOR : same,
                            .fast = fast,
                            .x = c->x.data,
                            .w = c->w,
                            .copies = c->copies,
                            .y = c->y.data,
                            .x_scales = c->scales,
                            .w_scales = c->scales,
                            .launches = launches};
    if (c->scheme->scale != FP8_F32 || (tensor && same != CLI_LT_VECTOR))
        return false;
    return !(fast && (same == CLI_LT_BF16 || same == CLI_LT_BLOCK));
}
