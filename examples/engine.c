/* SPDX-License-Identifier: Apache-2.0
 *
 * engine.c - how an inference engine uses layers: declare those of its rank, load a checkpoint of
 * any format into them, run one with the rank's memory, and load anew without moving anything.
 *
 *     cc engine.c $(pkg-config --cflags --libs fp8) -lm -o engine
 *     ./engine CHECKPOINT [RANK RANKS]
 *
 * The MLP of a Llama's first layer, Y = down(silu(gate(X)) * up(X)); with several ranks Y is this
 * rank's part of a sum. Prints the sum of Y's magnitudes. */
#include <fp8.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROWS = 4 }; /* tokens */
static fp8_error err;

/* The two layers of an MLP: gate and up are one weight, cut by rows; down is cut by columns, so
 * that a rank's columns meet its rows. */
typedef struct mlp {
    int64_t hidden, inner; /* of the model */
    fp8_layer *gate_up, *down;
} mlp;

static fp8_status find_sizes(const fp8_context *ctx, const char *path, mlp *m)
{
    static const char name[] = "model.layers.0.mlp.up_proj.weight";
    fp8_checkpoint *ckpt;
    fp8_tensor_info info;
    fp8_status status = fp8_checkpoint_open(ctx, path, &ckpt, &err);
    if (status != FP8_OK)
        return status;
    status = fp8_checkpoint_find(ckpt, name, strlen(name), &info);
    if (status == FP8_OK) {
        m->inner = info.shape[0];
        m->hidden = info.shape[1];
    } else {
        snprintf(err.msg, sizeof err.msg, "%s has no %s", path, name);
    }
    fp8_checkpoint_close(ckpt);
    return status;
}

static fp8_status declare(const fp8_context *ctx, mlp *m, int rank, int ranks)
{
    const fp8_layer_part parts[2] = {{"model.layers.0.mlp.gate_proj", m->inner, 1},
                                     {"model.layers.0.mlp.up_proj", m->inner, 1}};
    fp8_layer_desc gate_up, down = FP8_LAYER_DESC_INIT;
    fp8_status status = fp8_online_linear("channel", 0, &down.linear, &err);
    down.name = "model.layers.0.mlp.down_proj";
    down.n = m->hidden;
    down.k = m->inner;
    down.cut = FP8_CUT_COLS;
    down.rank = rank;
    down.ranks = ranks;
    gate_up = down;
    gate_up.name = "model.layers.0.mlp.gate_up_proj";
    gate_up.n = 2 * m->inner;
    gate_up.k = m->hidden;
    gate_up.parts = parts;
    gate_up.part_count = 2;
    gate_up.cut = FP8_CUT_ROWS;
    if (status == FP8_OK)
        status = fp8_layer_create(ctx, &gate_up, &m->gate_up, &err);
    if (status == FP8_OK)
        status = fp8_layer_create(ctx, &down, &m->down, &err);
    return status;
}

/* For the first time, or anew: the layers keep their addresses, and their weights until the new
 * ones are whole. */
static fp8_status load(const fp8_context *ctx, const mlp *m, const char *path)
{
    fp8_load *loading;
    fp8_status status = fp8_load_create(ctx, NULL, &loading, &err);
    if (status != FP8_OK)
        return status;
    status = fp8_load_add(loading, m->gate_up, &err);
    if (status == FP8_OK)
        status = fp8_load_add(loading, m->down, &err);
    if (status == FP8_OK)
        status = fp8_load_checkpoint(loading, path, &err);
    if (status == FP8_OK)
        status = fp8_load_finish(loading, &err);
    fp8_load_free(loading);
    return status;
}

/* y = layer(x). An engine keeps the workspace of its largest layer. */
static fp8_status run(fp8_layer *layer, fp8_tensor *x, fp8_tensor *y)
{
    const fp8_linear *linear;
    uint64_t bytes = 0;
    fp8_status status = fp8_layer_acquire(layer, 0, &linear, &err);
    if (status != FP8_OK)
        return status;
    status = fp8_linear_workspace(linear, x->shape[0], &bytes, &err);
    void *workspace = malloc(bytes + 1);
    if (status == FP8_OK)
        status = fp8_linear_run(linear, x, NULL, y, workspace, bytes, NULL, &err);
    free(workspace);
    fp8_layer_release(layer);
    return status;
}

static fp8_status forward(const mlp *m, int ranks, float *x, float *h, float *y)
{
    const int64_t inner = m->inner / ranks;
    fp8_tensor tx = fp8_matrix(x, FP8_F32, ROWS, m->hidden);
    fp8_tensor th = fp8_matrix(h, FP8_F32, ROWS, 2 * inner), gated = th;
    fp8_tensor ty = fp8_matrix(y, FP8_F32, ROWS, m->hidden);
    fp8_status status = run(m->gate_up, &tx, &th);
    for (int64_t i = 0; i < ROWS; i++)
        for (int64_t j = 0; j < inner; j++) {
            float *gate = &h[i * 2 * inner + j];
            *gate = *gate / (1 + expf(-*gate)) * gate[inner];
        }
    gated.shape[1] = inner; /* the left half, in place */
    return status == FP8_OK ? run(m->down, &gated, &ty) : status;
}

int main(int argc, char **argv)
{
    const int rank = argc > 3 ? atoi(argv[2]) : 0, ranks = argc > 3 ? atoi(argv[3]) : 1;
    fp8_context *ctx;
    mlp m = {0};
    if ((argc != 2 && argc != 4) || ranks < 1)
        return fprintf(stderr, "usage: engine CHECKPOINT [RANK RANKS]\n"), 2;
    if (fp8_context_create(NULL, &ctx, &err) || find_sizes(ctx, argv[1], &m) ||
        declare(ctx, &m, rank, ranks) || load(ctx, &m, argv[1]) || load(ctx, &m, argv[1]))
        return fprintf(stderr, "engine: %s\n", err.msg), 1;
    float *x = malloc((size_t)(ROWS * m.hidden) * sizeof *x), sum = 0;
    float *y = malloc((size_t)(ROWS * m.hidden) * sizeof *y);
    float *h = malloc((size_t)(ROWS * 2 * m.inner) * sizeof *h);
    for (int64_t i = 0; i < ROWS * m.hidden; i++)
        x[i] = sinf((float)i);
    if (forward(&m, ranks, x, h, y))
        return fprintf(stderr, "engine: %s\n", err.msg), 1;
    for (int64_t i = 0; i < ROWS * m.hidden; i++)
        sum += fabsf(y[i]);
    printf("%g\n", (double)sum);
    free(x), free(y), free(h);
    fp8_layer_free(m.gate_up);
    fp8_layer_free(m.down);
    fp8_context_free(ctx);
    return !(sum > 0 && isfinite(sum));
}
