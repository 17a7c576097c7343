/* SPDX-License-Identifier: Apache-2.0
 *
 * example_linear.c - the linear layer of README.md, run: Y[2,128] = X[2,256] W[128,256]^T + bias in
 * FP8 with 128x128 blocks. W is 1 everywhere and row i of X is i + 1, so Y[i,j] is 256 (i + 1) + j
 * but for the rounding of scales. */
#include <fp8.h>

#include <stdio.h>
#include <stdlib.h>

enum { M = 2, N = 128, K = 256 };

static float weights[N * K], input[M * K], output[M * N], bias_data[N];

static int fail(const fp8_error *err)
{
    return fprintf(stderr, "%s\n", err->msg), 1;
}

int main(void)
{
    for (int i = 0; i < N * K; i++)
        weights[i] = 1;
    for (int i = 0; i < M * K; i++)
        input[i] = (float)(i / K + 1);
    for (int j = 0; j < N; j++)
        bias_data[j] = (float)j;

    fp8_context *ctx;
    fp8_linear *linear;
    fp8_error err;
    uint64_t bytes;
    if (fp8_context_create(NULL, &ctx, &err) != FP8_OK)
        return fail(&err);
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = FP8_ACTIVATION_DYNAMIC; /* X is quantized on the way, */
    desc.x.grid.rows = 1;                     /* with a scale for 128 columns of a row; */
    desc.x.grid.cols = 128;
    desc.w.grid.rows = desc.w.grid.cols = 128; /* W once, at create */
    fp8_tensor w = fp8_matrix(weights, FP8_F32, N, K), bias = fp8_vector(bias_data, FP8_F32, N);
    fp8_tensor x = fp8_matrix(input, FP8_F32, M, K), y = fp8_matrix(output, FP8_F32, M, N);
    if (fp8_linear_create(ctx, &desc, &w, NULL, &bias, &linear, &err) != FP8_OK)
        return fail(&err);
    if (fp8_linear_workspace(linear, M, &bytes, &err) != FP8_OK)
        return fail(&err);
    void *workspace = malloc(bytes); /* of the caller: run allocates nothing */
    if (fp8_linear_run(linear, &x, NULL, &y, workspace, bytes, NULL, &err) != FP8_OK)
        return fail(&err);
    free(workspace);
    fp8_linear_free(linear);
    fp8_context_free(ctx);

    for (int i = 0; i < M * N; i++) {
        const float want = (float)(K * (i / N + 1) + i % N);
        if (output[i] < want * 0.9999f || output[i] > want * 1.0001f)
            return fprintf(stderr, "y[%d] is %g, not %g\n", i, (double)output[i], (double)want), 1;
    }
    return 0;
}
