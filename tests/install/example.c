/* SPDX-License-Identifier: Apache-2.0
 *
 * example.c - the program at the top of fp8.h, run: a bf16 matrix [256,256] of ones gets four
 * scales of 1/448 and the code of 448 everywhere. Also proof that the header compiles alone, as C11
 * and as C++17. */
#include <fp8.h>

#include <stdio.h>

enum { N = 256, BLOCK = 128 };

static uint16_t weights[N * N];
static uint8_t bytes[N * N];
static float scales_data[N / BLOCK * N / BLOCK];

int main(void)
{
    for (int i = 0; i < N * N; i++)
        weights[i] = 0x3f80; /* 1.0 */
    fp8_context *ctx;
    fp8_error err;
    if (fp8_context_create(NULL, &ctx, &err) != FP8_OK)
        return fprintf(stderr, "%s\n", err.msg), 1;
    fp8_tensor x = fp8_matrix(weights, FP8_BF16, N, N);
    fp8_tensor codes = fp8_matrix(bytes, FP8_E4M3FN, N, N);
    fp8_tensor scales = fp8_matrix(scales_data, FP8_F32, N / BLOCK, N / BLOCK);
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.grid.rows = desc.grid.cols = BLOCK;
    if (fp8_quantize(ctx, &desc, &x, &codes, &scales, NULL, &err) != FP8_OK)
        return fprintf(stderr, "%s\n", err.msg), 1;
    fp8_context_free(ctx);
    for (int i = 0; i < N * N; i++)
        if (bytes[i] != 0x7e)
            return fprintf(stderr, "code %d is 0x%02x\n", i, bytes[i]), 1;
    for (int i = 0; i < N / BLOCK * N / BLOCK; i++)
        if (scales_data[i] != 1.0f / 448.0f)
            return fprintf(stderr, "scale %d is %g\n", i, (double)scales_data[i]), 1;
    return 0;
}
