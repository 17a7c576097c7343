/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_layer.c - layers and loads on a GPU beside those of the CPU: codes and scales bit for
 * bit for every scheme, from sources on either side, in pieces and from checkpoints; what is run is
 * what fp8_linear_create makes; reloads under a CUDA graph; the memory that loading takes. */
#include "support/gpu.h"

#include "support/load_fixture.h"

#include "support/gpu_main.h"
#include "support/gpu_run.h"

#include <stdio.h>

static fp8_context *gpu;
static gpu_driver driver;

/* The layer's linear is, on the GPU, what fp8_linear_create makes of w and bias there, and to the
 * bit what it makes on the CPU. */
static void assert_gpu_layer_is(fp8_layer *layer, const fp8_linear_desc *desc, uint64_t version,
                                const fp8_tensor *w, const fp8_tensor *bias)
{
    const fp8_linear *mine;
    fp8_linear *want, *here;
    assert_done(fp8_linear_create(ctx, desc, w, NULL, bias, &here, &err));
    assert_done(fp8_linear_create(gpu, desc, w, NULL, bias, &want, &err));
    assert_done(fp8_layer_acquire(layer, version, &mine, &err));
    assert_same_weight(mine, here);
    assert_same_weight(want, here);
    assert_same_output(gpu, mine, want);
    fp8_layer_release(layer);
    fp8_linear_free(want);
    fp8_linear_free(here);
}

/* ---- sources ---- */

static const char *const schemes[] = {"tensor", "channel", "block", "mxfp8", "weight-only"};
enum { SCHEMES = sizeof schemes / sizeof *schemes, ROWS = 150, COLS = 288 };

static fp8_layer_desc scheme_desc(int scheme, int64_t n, int64_t k)
{
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    d.name = "blk";
    d.n = n;
    d.k = k;
    assert_done(fp8_online_linear(schemes[scheme], 0, &d.linear, &err));
    return d;
}

static void source_case(int scheme, fp8_source_policy policy, int lazy, int on_device,
                        fp8_dtype dtype)
{
    fp8_layer_desc d = scheme_desc(scheme, ROWS, COLS);
    fp8_layer *layer;
    fp8_tensor w = made_matrix(dtype, ROWS, COLS, 5), bias = made_vector(FP8_BF16, ROWS, 6);
    gpu_tensor w_there = gpu_tensor_new(gpu, &w, 0), bias_there = gpu_tensor_new(gpu, &bias, 0);
    const uint64_t bytes = (uint64_t)(ROWS * (COLS * (dtype == FP8_F32 ? 4 : 2) + 2));
    d.source = policy;
    d.lazy = lazy;
    assert_done(fp8_layer_create(gpu, &d, &layer, &err));
    assert_done(fp8_layer_set_source(layer, on_device ? &w_there.t : &w,
                                     on_device ? &bias_there.t : &bias, 1, &err));
    assert_int_equal(layer_info(layer).state, lazy ? FP8_LAYER_PENDING : FP8_LAYER_READY);
    assert_gpu_layer_is(layer, &d.linear, 1, &w, &bias);
    const fp8_layer_info info = layer_info(layer);
    assert_int_equal(info.source_bytes, policy == FP8_SOURCE_OFFLOAD ? bytes : 0);
    assert_int_equal(info.code_bytes, ROWS * COLS);
    assert_done(fp8_layer_invalidate(layer, &err));
    assert_int_equal(layer_info(layer).code_bytes, 0);
    if (policy != FP8_SOURCE_DISCARD)
        assert_gpu_layer_is(layer, &d.linear, 1, &w, &bias);
    else
        assert_int_equal(layer_info(layer).state, FP8_LAYER_LOST);
    fp8_layer_free(layer);
    gpu_tensor_free(&w_there);
    gpu_tensor_free(&bias_there);
    free(w.data);
    free(bias.data);
}

static void sources_of_every_policy_give_the_cpus_codes(void **state)
{
    (void)state;
    int cases = 0;
    for (int i = 0; i < SCHEMES * 12; i++, cases++)
        source_case(i / 12, (fp8_source_policy)(i % 3), i / 3 % 2, i / 6 % 2,
                    i % 2 ? FP8_F32 : FP8_BF16);
    printf("sources on the GPU: %d cases\n", cases);
}

static void a_kept_source_is_quantized_again_in_place(void **state)
{
    (void)state;
    const fp8_layer_desc d = scheme_desc(2, ROWS, COLS);
    fp8_layer *layer;
    const fp8_linear *before, *after;
    fp8_tensor w = made_matrix(FP8_BF16, ROWS, COLS, 5),
               other = made_matrix(FP8_BF16, ROWS, COLS, 8);
    gpu_tensor there = gpu_tensor_new(gpu, &w, 0);
    assert_done(fp8_layer_create(gpu, &d, &layer, &err));
    assert_done(fp8_layer_set_source(layer, &there.t, NULL, 1, &err));
    assert_done(fp8_layer_acquire(layer, 1, &before, &err));
    fp8_layer_release(layer);
    assert_done(fp8_device_copy(gpu, there.t.data, other.data, ROWS * COLS * 2, NULL, &err));
    assert_done(fp8_device_wait(gpu, NULL, &err));
    assert_gpu_layer_is(layer, &d.linear, 2, &other, NULL);
    assert_done(fp8_layer_acquire(layer, 2, &after, &err));
    assert_ptr_equal(before, after);
    fp8_layer_release(layer);
    fp8_layer_free(layer);
    gpu_tensor_free(&there);
    free(w.data);
    free(other.data);
}

/* ---- pieces ---- */

/* A weight in random pieces, every other one on the device. */
static void pieces_case(fp8_grid grid, fp8_dtype dtype, int64_t k)
{
    enum { PIECES = 24 };
    fp8_layer_desc d = desc_of(ROWS, k, grid);
    rect pieces[PIECES];
    d.has_bias = 1;
    d.linear.w_scale = grid.cols == 32 ? FP8_E8M0FNU : FP8_F32;
    fp8_tensor w = made_matrix(dtype, ROWS, k, 5), bias = made_vector(FP8_BF16, ROWS, 6);
    gpu_tensor there = gpu_tensor_new(gpu, &w, 0);
    loading l = begin_loading(gpu, &d, NULL);
    cut_up(pieces, PIECES, ROWS, k);
    assert_done(write_at(&l, FP8_PARAM_BIAS, 0, bias, 0, 0, &err));
    for (int i = 0; i < PIECES; i++) {
        const rect *p = &pieces[i];
        assert_done(write_rect(&l, i % 2 ? &there.t : &w, p->row, p->rows, p->col, p->cols, &err));
    }
    assert_done(fp8_load_finish(l.load, &err));
    assert_gpu_layer_is(l.layer, &d.linear, 0, &w, &bias);
    end_loading(&l);
    gpu_tensor_free(&there);
    free(w.data);
    free(bias.data);
}

static void pieces_in_any_order_give_the_cpus_codes(void **state)
{
    (void)state;
    static const fp8_dtype dtypes[] = {FP8_BF16, FP8_F32, FP8_F16};
    int cases = 0;
    for (size_t g = 0; g < sizeof grids / sizeof *grids; g++)
        for (int i = 0; i < 6; i++, cases++)
            pieces_case(grids[g], dtypes[i % 3], grids[g].cols == 32 || i < 3 ? 288 : 265);
    printf("loads in pieces on the GPU: %d cases\n", cases);
}

/* Codes with a scale a part, which are brought to the largest, on both. */
static fp8_layer *load_parts(const fp8_context *on, const fp8_tensor *codes)
{
    fp8_layer_part parts[] = {{"q", 64, 0}, {"k", 32, 0}, {"v", 54, 0}};
    float scales[] = {0.5F, 0.125F, 0.75F};
    fp8_layer_desc d = desc_of(ROWS, COLS, (fp8_grid){0, 0});
    d.parts = parts;
    d.part_count = 3;
    d.merge_scales = 1;
    loading l = begin_loading(on, &d, NULL);
    for (int p = 0; p < 3; p++)
        assert_done(
            write_at(&l, FP8_PARAM_SCALE, p, fp8_matrix(&scales[p], FP8_F32, 1, 1), 0, 0, &err));
    assert_done(write_at(&l, FP8_PARAM_WEIGHT, -1, *codes, 0, 0, &err));
    assert_done(fp8_load_finish(l.load, &err));
    fp8_load_free(l.load);
    return l.layer;
}

static void parts_are_merged_as_on_the_cpu(void **state)
{
    (void)state;
    fp8_tensor codes = made_matrix(FP8_E4M3FN, ROWS, COLS, 9);
    fp8_layer *here = load_parts(ctx, &codes), *there = load_parts(gpu, &codes);
    const fp8_linear *a, *b;
    assert_done(fp8_layer_acquire(here, 0, &a, &err));
    assert_done(fp8_layer_acquire(there, 0, &b, &err));
    assert_same_weight(a, b);
    fp8_layer_release(here);
    fp8_layer_release(there);
    fp8_layer_free(here);
    fp8_layer_free(there);
    free(codes.data);
}

/* ---- moves ---- */

static void layers_move_between_devices(void **state)
{
    (void)state;
    for (int scheme = 0; scheme < SCHEMES; scheme++) {
        fp8_layer_desc d = scheme_desc(scheme, ROWS, COLS);
        fp8_layer *first, *there, *again, *back;
        const fp8_linear *a, *b;
        fp8_tensor w = made_matrix(FP8_BF16, ROWS, COLS, 5), bias = made_vector(FP8_F32, ROWS, 6);
        d.source = FP8_SOURCE_DISCARD;
        assert_done(fp8_layer_create(ctx, &d, &first, &err));
        assert_done(fp8_layer_set_source(first, &w, &bias, 0, &err));
        assert_done(fp8_layer_clone(first, gpu, &there, &err));
        assert_done(fp8_layer_clone(there, NULL, &again, &err));
        assert_done(fp8_layer_clone(again, ctx, &back, &err));
        assert_gpu_layer_is(there, &d.linear, 0, &w, &bias);
        assert_gpu_layer_is(again, &d.linear, 0, &w, &bias);
        assert_done(fp8_layer_acquire(first, 0, &a, &err));
        assert_done(fp8_layer_acquire(back, 0, &b, &err));
        assert_same_linear(a, b);
        fp8_layer_release(first);
        fp8_layer_release(back);
        fp8_layer_free(first);
        fp8_layer_free(there);
        fp8_layer_free(again);
        fp8_layer_free(back);
        free(w.data);
        free(bias.data);
    }
}

/* ---- reloads ---- */

static void load_whole(const loading *l, const fp8_tensor *w, const fp8_tensor *bias)
{
    assert_done(write_at(l, FP8_PARAM_BIAS, 0, *bias, 0, 0, &err));
    assert_done(write_at(l, FP8_PARAM_WEIGHT, 0, *w, 0, 0, &err));
}

/* A graph that was captured before a reload computes with the new weight after it. */
static void a_graph_stays_right_over_a_reload(void **state)
{
    (void)state;
    enum { SIDE = 512 };
    void *stream, *graph, *launchable;
    const fp8_linear *linear;
    assert_int_equal(driver.stream_create(&stream, 1), 0);
    for (int scheme = 0; scheme < SCHEMES; scheme++) {
        fp8_layer_desc d = scheme_desc(scheme, SIDE, SIDE);
        fp8_tensor w[2], bias[2];
        d.has_bias = 1;
        loading l = begin_loading(gpu, &d, NULL);
        for (int i = 0; i < 2; i++) {
            w[i] = made_matrix(FP8_BF16, SIDE, SIDE, 20 + (uint64_t)i);
            bias[i] = made_vector(FP8_F32, SIDE, 30 + (uint64_t)i);
        }
        load_whole(&l, &w[0], &bias[0]);
        assert_done(fp8_layer_acquire(l.layer, 0, &linear, &err));
        gpu_running r = gpu_running_new(gpu, linear);
        assert_int_equal(driver.begin(stream, 1), 0);
        gpu_run(&r, linear, stream);
        assert_int_equal(driver.end(stream, &graph), 0);
        assert_int_equal(driver.instantiate(&launchable, graph, 0), 0);
        fp8_layer_release(l.layer);
        for (int i = 0; i < 2; i++) {
            if (i == 1) {
                assert_done(fp8_load_add(l.load, l.layer, &err));
                load_whole(&l, &w[1], &bias[1]);
            }
            fp8_linear *want;
            assert_done(fp8_linear_create(gpu, &d.linear, &w[i], NULL, &bias[i], &want, &err));
            float *y = gpu_output(gpu, want);
            assert_int_equal(driver.launch(launchable, stream), 0);
            assert_done(fp8_device_wait(gpu, stream, &err));
            gpu_tensor_read(&r.y, &r.host);
            assert_memory_equal(r.host.data, y, GPU_ROWS * SIDE * sizeof(float));
            free(y);
            fp8_linear_free(want);
        }
        assert_int_equal(layer_info(l.layer).reloads, 1);
        gpu_running_free(&r);
        end_loading(&l);
        for (int i = 0; i < 2; i++) {
            free(w[i].data);
            free(bias[i].data);
        }
    }
}

/* ---- checkpoints ---- */

static fp8_layer *load_from(const fp8_context *on, const char *folder, const char *name, int64_t n,
                            int64_t k)
{
    char path[256];
    fp8_layer_desc d = desc_of(n, k, (fp8_grid){128, 128});
    fp8_layer_part part = {name, n, 0};
    d.name = name;
    d.parts = &part;
    d.part_count = 1;
    (void)snprintf(path, sizeof path, "tests/golden/checkpoints/%s", folder);
    loading l = begin_loading(on, &d, NULL);
    assert_done(fp8_load_checkpoint(l.load, path, &err));
    fp8_load_free(l.load);
    return l.layer;
}

static void checkpoints_load_as_on_the_cpu(void **state)
{
    (void)state;
    static const char *const folders[] = {"llama_untied_bf16", "llama_untied_ct_mxfp8",
                                          "llama_untied_hf_tensor", "llama_untied_ct_w8a16"};
    const char *name = "model.layers.0.mlp.down_proj";
    for (size_t i = 0; i < sizeof folders / sizeof *folders; i++) {
        char path[256];
        fp8_checkpoint *ckpt;
        fp8_tensor_info info;
        (void)snprintf(path, sizeof path, "tests/golden/checkpoints/%s", folders[i]);
        assert_done(fp8_checkpoint_open(ctx, path, &ckpt, &err));
        assert_int_equal(
            fp8_checkpoint_find(ckpt, "model.layers.0.mlp.down_proj.weight", 35, &info), FP8_OK);
        const int64_t n = info.shape[0], k = info.shape[1];
        fp8_checkpoint_close(ckpt);
        fp8_layer *here = load_from(ctx, folders[i], name, n, k);
        fp8_layer *there = load_from(gpu, folders[i], name, n, k);
        const fp8_linear *a, *b;
        assert_done(fp8_layer_acquire(here, 0, &a, &err));
        assert_done(fp8_layer_acquire(there, 0, &b, &err));
        assert_same_weight(a, b);
        fp8_layer_release(here);
        fp8_layer_release(there);
        fp8_layer_free(here);
        fp8_layer_free(there);
    }
}

/* ---- memory ---- */

static int64_t used(void)
{
    size_t available, total;
    assert_int_equal(driver.mem_info(&available, &total), 0);
    return (int64_t)(total - available);
}

/* The loops of a context that looks at the device's memory from inside them. */
static int64_t most_used;

static void run_and_look(void *user, int64_t n, void (*body)(void *arg, int64_t i), void *arg)
{
    (void)user;
    for (int64_t i = 0; i < n; i++)
        body(arg, i);
    const int64_t now = used();
    most_used = now > most_used ? now : most_used;
}

/* While layers are loaded in slabs the device holds their FP8 weights and no more; CUDA gives
 * memory in pieces of 2 MiB. */
static void loading_takes_the_fp8_size_alone(void **state)
{
    (void)state;
    enum { SIDE = 4096, LAYERS = 8, SLAB = 512, PIECE = 2 << 20 };
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *watched;
    fp8_layer *layers[LAYERS];
    fp8_load *load;
    fp8_tensor w = made_matrix(FP8_BF16, SLAB, SIDE, 5);
    uint64_t held = 0;
    desc.device = FP8_DEVICE_CUDA;
    desc.threads = 1;
    desc.parallel_for = run_and_look;
    assert_done(fp8_context_create(&desc, &watched, &err));
    assert_done(fp8_load_create(watched, NULL, &load, &err));
    const fp8_layer_desc d = scheme_desc(2, SIDE, SIDE);
    const int64_t before = used();
    most_used = before;
    for (int i = 0; i < LAYERS; i++) {
        assert_done(fp8_layer_create(watched, &d, &layers[i], &err));
        assert_done(fp8_load_add(load, layers[i], &err));
        for (int64_t row = 0; row < SIDE; row += SLAB) {
            const loading l = {layers[i], load};
            assert_done(write_at(&l, FP8_PARAM_WEIGHT, 0, w, row, 0, &err));
        }
        const fp8_layer_info info = layer_info(layers[i]);
        held += info.code_bytes + info.scale_bytes + info.other_bytes;
        printf("layers %d: device holds %.2f MiB, most so far %.2f, FP8 size %.2f, bf16 size "
               "%.2f\n",
               i + 1, (double)(used() - before) / (1 << 20),
               (double)(most_used - before) / (1 << 20), (double)held / (1 << 20),
               (double)(i + 1) * 2 * SIDE * SIDE / (1 << 20));
    }
    assert_true(most_used - before <= (int64_t)held + (LAYERS + 4) * PIECE);
    for (int i = 0; i < LAYERS; i++)
        fp8_layer_free(layers[i]);
    fp8_load_free(load);
    fp8_context_free(watched);
    free(w.data);
}

static int set_up_driver(void **state)
{
    driver = gpu_driver_find();
    return set_up(state);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sources_of_every_policy_give_the_cpus_codes),
        cmocka_unit_test(a_kept_source_is_quantized_again_in_place),
        cmocka_unit_test(pieces_in_any_order_give_the_cpus_codes),
        cmocka_unit_test(parts_are_merged_as_on_the_cpu),
        cmocka_unit_test(layers_move_between_devices),
        cmocka_unit_test(a_graph_stays_right_over_a_reload),
        cmocka_unit_test(checkpoints_load_as_on_the_cpu),
        cmocka_unit_test(loading_takes_the_fp8_size_alone),
    };
    return gpu_main_with(tests, sizeof tests / sizeof *tests, &gpu, set_up_driver, tear_down);
}
