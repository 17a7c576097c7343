/* SPDX-License-Identifier: Apache-2.0
 *
 * test_tiny.c - many tiny tensors that are kept: they are copied and recorded in runs, and yet each
 * of them arrives whole, whatever stands between them. */
#include "ckpt/checkpoint.h"
#include "support/model_maker.h"
#include "support/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

enum { N = 240 };

static fp8_context *ctx;

/* Names ascend in the source with each digit group (t.9 < t.10), not so in the output; some are
 * empty, some wider elements, some weights that are quantized; two files. */
static int make_model(void **state)
{
    static made_tensor tensors[N];
    static char names[N][48];
    (void)state;
    sandbox_make();
    for (int i = 0; i < N; i++) {
        bool weight = i % 50 == 17;
        snprintf(names[i], sizeof names[i],
                 weight ? "model.layers.%d.mlp.up_proj.weight" : "model.t.%d", i);
        tensors[i] = (made_tensor){
            names[i], i % 7 ? FP8_BF16 : FP8_F32, 1, {i % 11 ? i % 5 + 1 : 0}, i >= 150};
        if (weight)
            tensors[i] = (made_tensor){names[i], FP8_BF16, 2, {128, 128}, i >= 150};
    }
    model_make("model", tensors, N, "{\"architectures\": [\"LlamaForCausalLM\"]}");
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static int drop_model(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    sandbox_remove();
    return 0;
}

static fp8_convert_desc request(const char *dst)
{
    static char paths[2][1024]; /* of the latest request */
    fp8_convert_desc d = FP8_CONVERT_DESC_INIT;
    snprintf(paths[0], sizeof paths[0], "%s", sandbox_path("model"));
    snprintf(paths[1], sizeof paths[1], "%s", sandbox_path(dst));
    d.verb = FP8_QUANTIZE;
    d.src = paths[0];
    d.dst = paths[1];
    return d;
}

static int same_kept_tensors(const fp8_checkpoint *source, const fp8_checkpoint *made)
{
    int kept = 0;
    for (int64_t i = 0; i < fp8_checkpoint_count(source); i++) {
        fp8_tensor_info a, b;
        assert_int_equal(fp8_checkpoint_tensor(source, i, &a), FP8_OK);
        if (a.ndim == 2)
            continue;
        unsigned char *x = model_read(source, a.name, &a), *y = model_read(made, a.name, &b);
        assert_int_equal(a.bytes, b.bytes);
        assert_memory_equal(x, y, a.bytes);
        free(x);
        free(y);
        kept++;
    }
    return kept;
}

static void each_tensor_arrives_whole(void **state)
{
    (void)state;
    static const uint64_t shard_bytes[] = {0, 400, 40000};
    for (size_t s = 0; s < sizeof shard_bytes / sizeof *shard_bytes; s++) {
        char dst[16];
        snprintf(dst, sizeof dst, "made%zu", s);
        fp8_convert_desc d = request(dst);
        fp8_error err = {.msg = ""};
        fp8_checkpoint *source, *made;
        d.max_shard_bytes = shard_bytes[s];
        assert_int_equal(model_convert(ctx, &d, &err), FP8_OK);
        assert_int_equal(fp8_checkpoint_open(ctx, d.src, &source, &err), FP8_OK);
        assert_int_equal(fp8_checkpoint_open(ctx, d.dst, &made, &err), FP8_OK);
        assert_int_equal(same_kept_tensors(source, made), N - 5);
        fp8_checkpoint_close(source);
        fp8_checkpoint_close(made);
    }
}

typedef struct stopper {
    fp8_convert *conv;
    int64_t done; /* tensors, when a run was stopped last */
} stopper;

/* Stops a run whenever something was done since the last stop, and lets it go on otherwise: so
 * there are no more stops than tensors, however slow the machine is. */
static void stop_after(void *user, const fp8_progress *progress)
{
    stopper *s = user;
    if (progress->tensors_done <= s->done)
        return;
    s->done = progress->tensors_done;
    fp8_convert_stop(s->conv);
}

/* How many runs it took to make dst, each of which is stopped as soon as it has done something. */
static int run_in_parts(const char *dst)
{
    fp8_convert_desc d = request(dst);
    fp8_error err = {.msg = ""};
    stopper s = {0};
    fp8_status status = FP8_E_STOPPED;
    int runs = 0;
    for (; status == FP8_E_STOPPED && runs <= N; runs++) {
        d.resume = runs > 0;
        assert_int_equal(fp8_convert_plan(ctx, &d, &s.conv, &err), FP8_OK);
        status = fp8_convert_run(s.conv, stop_after, &s, &err);
        fp8_convert_free(s.conv);
    }
    assert_int_equal(status, FP8_OK);
    assert_true(folders_equal(sandbox_path("made0"), sandbox_path(dst)));
    return runs;
}

/* Tensors that came in runs are counted and, in the next run, known to be there. A run that is done
 * before anybody could stop it shows nothing, so there are a few tries. */
static void runs_of_tensors_are_resumed(void **state)
{
    int runs = 1;
    (void)state;
    for (int try = 0; runs == 1 && try < 20; try++) {
        char dst[16];
        snprintf(dst, sizeof dst, "parted%d", try);
        runs = run_in_parts(dst);
    }
    assert_true(runs > 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_tensor_arrives_whole),
        cmocka_unit_test(runs_of_tensors_are_resumed),
    };
    return cmocka_run_group_tests(tests, make_model, drop_model);
}
