/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_linear.h - one linear of `fp8 bench linear --device cuda`: Y[M,N] in bf16 = X[M,K] W[N,K]^T,
 * from codes (the product), and from bf16 where the scheme quantizes X (the whole). */
#ifndef FP8_CLI_GPU_LINEAR_H
#define FP8_CLI_GPU_LINEAR_H

#include "cli/cublaslt.h"
#include "cli/gpu_data.h"
#include "cli/linear_scheme.h"

typedef struct cli_gpu_linear {
    const fp8_context *ctx;
    const cli_linear_scheme *scheme;
    cli_shape shape;
    int copies; /* of the weight, taken in turn */
    bool cold;  /* they are too many for the L2 cache */
    bool has_whole;
    fp8_linear *product[CLI_GPU_MOST_COPIES], *whole[CLI_GPU_MOST_COPIES];
    fp8_tensor x, x_scales, x_high, y; /* X as it is multiplied; in bf16 */
    void *workspace;
    uint64_t workspace_bytes;
    double bytes;                 /* of all matrices, once each */
    fp8_candidate chosen;         /* the kernel of the product */
    void *w[CLI_GPU_MOST_COPIES]; /* rows as they are, for peers; bf16 where X is; else the first */
    void *scales;                 /* for peers, of X and of W */
} cli_gpu_linear;

/* Errors: those of fp8_linear_create. Free with cli_gpu_linear_free in any case. */
fp8_status cli_gpu_linear_make(cli_gpu_linear *c, const fp8_context *ctx, const cli_gpu *gpu,
                               const cli_linear_scheme *scheme, cli_shape shape, bool peers,
                               fp8_error *err);
void cli_gpu_linear_free(cli_gpu_linear *c);

/* The scales of X of the product; NULL if X is not codes. */
const fp8_tensor *cli_gpu_linear_x_scales(const cli_gpu_linear *c);

/* For cli_recipe.enqueue; `arg` is the case. Copies of the weight in turn, or always the first. */
fp8_status cli_gpu_linear_product(void *arg, int64_t i, void *stream, fp8_error *err);
fp8_status cli_gpu_linear_warm(void *arg, int64_t i, void *stream, fp8_error *err);
fp8_status cli_gpu_linear_whole(void *arg, int64_t i, void *stream, fp8_error *err);

/* The ways in which cuBLASLt is asked for the product: with the same scales; with one scale each
 * for X and W, which is less work, where ours has more; and both with sums that stay in the tensor
 * cores. */
typedef enum cli_peer_way {
    CLI_PEER_SAME,
    CLI_PEER_SAME_FAST,
    CLI_PEER_TENSOR,
    CLI_PEER_TENSOR_FAST,
    CLI_PEER_WAYS,
} cli_peer_way;
extern const char *const cli_peer_way_names[CLI_PEER_WAYS];
/* false: it does not apply, or cuBLASLt has no such scales. */
bool cli_gpu_linear_peer(const cli_gpu_linear *c, cli_peer_way way, int64_t launches,
                         cli_lt_problem *out);

#endif
