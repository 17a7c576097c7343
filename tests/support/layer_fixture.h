/* SPDX-License-Identifier: Apache-2.0
 *
 * layer_fixture.h - for tests of one layer: two weights and a bias that fit it. */
#ifndef LAYER_FIXTURE_H
#define LAYER_FIXTURE_H

#include "support/layer_maker.h"

enum { N = 150, K = 260 };

static fp8_context *ctx;
static fp8_tensor w1, w2, bias1;

static inline int set_up(void **state)
{
    (void)state;
    w1 = made_matrix(FP8_BF16, N, K, 1);
    w2 = made_matrix(FP8_BF16, N, K, 2);
    bias1 = made_vector(FP8_F32, N, 3);
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static inline int tear_down(void **state)
{
    (void)state;
    free(w1.data);
    free(w2.data);
    free(bias1.data);
    fp8_context_free(ctx);
    return 0;
}

static inline fp8_layer_desc desc_of(fp8_source_policy source, int lazy)
{
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = "model.layers.0.mlp.up_proj";
    d.n = N;
    d.k = K;
    d.has_bias = 1;
    d.source = source;
    d.lazy = lazy;
    d.linear.activation = FP8_ACTIVATION_DYNAMIC;
    d.linear.w.grid = (fp8_grid){128, 128};
    d.linear.x.grid = (fp8_grid){1, 128};
    return d;
}

static inline fp8_layer *layer_of(fp8_source_policy source, int lazy)
{
    const fp8_layer_desc d = desc_of(source, lazy);
    fp8_layer *layer = NULL;
    assert_done(fp8_layer_create(ctx, &d, &layer, &err));
    return layer;
}

static inline void assert_is(fp8_layer *layer, const fp8_tensor *w)
{
    const fp8_layer_desc d = desc_of(FP8_SOURCE_KEEP, 0);
    assert_layer_is(layer, ctx, &d.linear, w, &bias1);
}

static inline fp8_layer_info info_of(const fp8_layer *layer)
{
    fp8_layer_info info;
    assert_int_equal(fp8_layer_get_info(layer, &info), FP8_OK);
    return info;
}

static inline void assert_state(const fp8_layer *layer, fp8_layer_state state)
{
    assert_int_equal(info_of(layer).state, state);
}

#endif
