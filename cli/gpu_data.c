/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_data.c - matrices made on the host and brought to the device. */
#include "cli/gpu_data.h"

#include "cli/bench_data.h"

#include <stdlib.h>

int cli_gpu_copies(const cli_gpu *gpu, double bytes, bool *cold)
{
    const double cache = (double)gpu->l2_bytes;
    int copies = 1;
    while (copies < CLI_GPU_MOST_COPIES && copies * bytes < 8 * cache)
        copies++;
    *cold = copies * bytes > 2 * cache;
    return copies;
}

/* *out = memory of the device with what host[bytes] holds; host NULL: there was no memory. */
static fp8_status bring(const fp8_context *ctx, const void *host, uint64_t bytes, void **out,
                        fp8_error *err)
{
    *out = NULL;
    if (host == NULL)
        return cli_bench_fail(err, FP8_E_NO_MEMORY, "bench: no memory for the matrices");
    CLI_TRY(fp8_device_alloc(ctx, bytes, out, err));
    CLI_TRY(fp8_device_copy(ctx, *out, host, bytes, NULL, err));
    return fp8_device_wait(ctx, NULL, err);
}

static uint64_t bytes_of(const fp8_tensor *t)
{
    return (uint64_t)(t->shape[0] * t->shape[1]) * (uint64_t)fp8_dtype_bits(t->dtype) / 8;
}

fp8_status cli_gpu_matrix(const fp8_context *ctx, fp8_dtype dtype, int64_t rows, int64_t cols,
                          fp8_tensor *out, fp8_error *err)
{
    *out = cli_bench_matrix(dtype, rows, cols);
    void *host = out->data;
    const fp8_status status = bring(ctx, host, bytes_of(out), &out->data, err);
    free(host);
    return status;
}

fp8_status cli_gpu_repeat(const fp8_context *ctx, uint64_t bytes, int count, void **copies,
                          fp8_error *err)
{
    for (int i = 1; i < count; i++) {
        CLI_TRY(fp8_device_alloc(ctx, bytes, &copies[i], err));
        CLI_TRY(fp8_device_copy(ctx, copies[i], copies[0], bytes, NULL, err));
    }
    return fp8_device_wait(ctx, NULL, err);
}

fp8_status cli_gpu_matrices(const fp8_context *ctx, fp8_dtype dtype, int64_t rows, int64_t cols,
                            int count, void **copies, fp8_error *err)
{
    fp8_tensor first;
    const fp8_status status = cli_gpu_matrix(ctx, dtype, rows, cols, &first, err);
    copies[0] = first.data;
    return status == FP8_OK ? cli_gpu_repeat(ctx, bytes_of(&first), count, copies, err) : status;
}

fp8_status cli_gpu_scales(const fp8_context *ctx, fp8_dtype dtype, int64_t count, void **out,
                          fp8_error *err)
{
    const uint64_t bytes = (uint64_t)count * (uint64_t)fp8_dtype_bits(dtype) / 8;
    uint8_t *host = malloc((size_t)bytes + 4);
    for (int64_t i = 0; host != NULL && i < count; i++)
        if (dtype == FP8_F32)
            ((float *)(void *)host)[i] = 1.0f / 64;
        else
            host[i] = 127 - 6;
    const fp8_status status = bring(ctx, host, bytes, out, err);
    free(host);
    return status;
}
