/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_quantize.c - such a matrix, its codes and scales, and room for a copy of as many bytes. */
#include "cli/gpu_quantize.h"

static int64_t units(int64_t extent, int64_t unit)
{
    return unit > 0 ? (extent + unit - 1) / unit : extent > 0;
}

static uint64_t bytes_of(const fp8_tensor *t)
{
    return (uint64_t)(t->shape[0] * t->shape[1]) * (uint64_t)fp8_dtype_bits(t->dtype) / 8;
}

/* Half of what a call moves; whole packets, as a copy of others is slow. */
static uint64_t copied_bytes(const cli_gpu_quantize *c)
{
    enum { PACKET = 16 };
    return c->bytes / 2 > PACKET ? c->bytes / 2 / PACKET * PACKET : PACKET;
}

static fp8_status make_copies(cli_gpu_quantize *c, fp8_error *err)
{
    CLI_TRY(cli_gpu_matrices(c->ctx, c->x.dtype, c->rows, c->cols, c->copies, c->x_at, err));
    CLI_TRY(
        cli_gpu_matrices(c->ctx, c->codes.dtype, c->rows, c->cols, c->copies, c->codes_at, err));
    for (int i = 0; i < c->copies; i++)
        CLI_TRY(fp8_device_alloc(c->ctx, copied_bytes(c), &c->to_at[i], err));
    return FP8_OK;
}

fp8_status cli_gpu_quantize_make(cli_gpu_quantize *c, const fp8_context *ctx, const cli_gpu *gpu,
                                 fp8_dtype dtype, fp8_dtype scale, const fp8_quantize_desc *desc,
                                 int64_t rows, int64_t cols, fp8_error *err)
{
    *c = (cli_gpu_quantize){.ctx = ctx, .desc = *desc, .rows = rows, .cols = cols};
    const int64_t scale_rows = units(rows, desc->grid.rows);
    const int64_t scale_cols = units(cols, desc->grid.cols);
    c->desc.nan = FP8_NAN_PROPAGATE; /* a call that must tell of NaN would wait */
    c->x = fp8_matrix(NULL, dtype, rows, cols);
    c->codes = fp8_matrix(NULL, FP8_E4M3FN, rows, cols);
    CLI_TRY(cli_gpu_matrix(ctx, scale, scale_rows, scale_cols, &c->scales, err));
    c->bytes = bytes_of(&c->x) + bytes_of(&c->codes) + bytes_of(&c->scales);
    c->copies = cli_gpu_copies(gpu, (double)c->bytes, &c->cold);
    return make_copies(c, err);
}

void cli_gpu_quantize_free(cli_gpu_quantize *c)
{
    for (int i = 0; i < c->copies; i++) {
        fp8_device_free(c->ctx, c->x_at[i]);
        fp8_device_free(c->ctx, c->codes_at[i]);
        fp8_device_free(c->ctx, c->to_at[i]);
    }
    fp8_device_free(c->ctx, c->scales.data);
    *c = (cli_gpu_quantize){0};
}

static void turn_to(cli_gpu_quantize *c, int64_t i)
{
    c->x.data = c->x_at[i % c->copies];
    c->codes.data = c->codes_at[i % c->copies];
}

fp8_status cli_gpu_quantize_forth(void *arg, int64_t i, void *stream, fp8_error *err)
{
    cli_gpu_quantize *c = arg;
    turn_to(c, i);
    return fp8_quantize(c->ctx, &c->desc, &c->x, &c->codes, &c->scales, stream, err);
}

fp8_status cli_gpu_quantize_static(void *arg, int64_t i, void *stream, fp8_error *err)
{
    cli_gpu_quantize *c = arg;
    fp8_quantize_desc desc = c->desc;
    desc.static_scales = 1;
    turn_to(c, i);
    return fp8_quantize(c->ctx, &desc, &c->x, &c->codes, &c->scales, stream, err);
}

fp8_status cli_gpu_quantize_back(void *arg, int64_t i, void *stream, fp8_error *err)
{
    cli_gpu_quantize *c = arg;
    turn_to(c, i);
    return fp8_dequantize(c->ctx, c->desc.grid, &c->codes, &c->scales, &c->x, stream, err);
}

fp8_status cli_gpu_quantize_copy(void *arg, int64_t i, void *stream, fp8_error *err)
{
    cli_gpu_quantize *c = arg;
    const int copy = (int)(i % c->copies);
    return fp8_device_copy(c->ctx, c->to_at[copy], c->x_at[copy], copied_bytes(c), stream, err);
}
