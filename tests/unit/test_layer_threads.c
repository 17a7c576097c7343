/* SPDX-License-Identifier: Apache-2.0
 *
 * test_layer_threads.c - threads that hold a layer while others change, copy and ask it: one weight
 * or the other is seen, and nobody waits for himself. */
#include "support/layer_fixture.h"

#include <pthread.h>
#include <unistd.h>

/* A reader sees one weight or the other, never codes of one with scales of the other. */
typedef struct reader {
    fp8_layer *layer;
    float *want[2];
    int done, bad;
} reader;

static void *read_often(void *arg)
{
    reader *r = arg;
    while (!__atomic_load_n(&r->done, __ATOMIC_RELAXED)) {
        const fp8_linear *linear;
        if (fp8_layer_acquire(r->layer, 0, &linear, NULL) != FP8_OK) {
            __atomic_fetch_add(&r->bad, 1, __ATOMIC_RELAXED);
            continue;
        }
        float *y = output_of(linear, 2);
        fp8_layer_release(r->layer);
        if (memcmp(y, r->want[0], sizeof(float[2 * N])) &&
            memcmp(y, r->want[1], sizeof(float[2 * N])))
            __atomic_fetch_add(&r->bad, 1, __ATOMIC_RELAXED);
        free(y);
    }
    return NULL;
}

static void test_readers_see_one_weight_or_the_other(void **state)
{
    (void)state;
    fp8_layer *layer = layer_of(FP8_SOURCE_DISCARD, 0);
    reader r = {.layer = layer};
    pthread_t threads[2];
    for (int i = 1; i >= 0; i--) {
        const fp8_linear *linear;
        assert_done(fp8_layer_set_source(layer, i ? &w2 : &w1, &bias1, 0, &err));
        assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
        r.want[i] = output_of(linear, 2);
        fp8_layer_release(layer);
    }
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, read_often, &r), 0);
    for (int i = 0; i < 40; i++)
        assert_done(fp8_layer_set_source(layer, i % 2 ? &w2 : &w1, &bias1, 0, &err));
    __atomic_store_n(&r.done, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < 2; i++)
        pthread_join(threads[i], NULL);
    assert_int_equal(r.bad, 0);
    free(r.want[0]);
    free(r.want[1]);
    fp8_layer_free(layer);
}

/* Who holds a layer and changes it would wait for itself. */
static void test_a_thread_cannot_change_what_it_holds(void **state)
{
    (void)state;
    fp8_layer *layer = layer_of(FP8_SOURCE_KEEP, 0);
    fp8_load *load;
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    const fp8_linear *once, *twice;
    piece.data = view_of(w2, 0, 1, 0, 1);
    assert_done(fp8_layer_set_source(layer, &w1, &bias1, 1, &err));
    assert_done(fp8_layer_acquire(layer, 1, &once, &err));
    assert_done(fp8_layer_acquire(layer, 1, &twice, &err));
    assert_ptr_equal(once, twice);
    assert_done(fp8_load_create(ctx, NULL, &load, &err));
    const char *words = "up_proj: this thread holds its linear, and must release it";
    assert_refused(fp8_layer_set_source(layer, &w2, NULL, 2, &err), FP8_E_STATE, words);
    assert_refused(fp8_layer_set_bias(layer, NULL, &err), FP8_E_STATE, words);
    assert_done(fp8_load_add(load, layer, &err));
    for (int holds = 2; holds > 0; holds--) {
        assert_refused(fp8_layer_invalidate(layer, &err), FP8_E_STATE, words);
        assert_refused(fp8_layer_acquire(layer, 2, &twice, &err), FP8_E_STATE, words);
        assert_refused(fp8_load_write(load, layer, &piece, &err), FP8_E_STATE, words);
        assert_refused(fp8_load_dummy(load, layer, 0, &err), FP8_E_STATE, words);
        assert_refused(
            fp8_load_checkpoint(load, "tests/golden/checkpoints/llama_untied_bf16", &err),
            FP8_E_STATE, words);
        assert_int_equal(info_of(layer).version, 1);
        fp8_layer_release(layer);
    }
    fp8_layer_release(layer); /* it is held no longer */
    assert_done(fp8_load_dummy(load, layer, 0, &err));
    fp8_load_free(load);
    assert_int_equal(info_of(layer).reloads, 1);
    fp8_layer_free(layer);
}

/* A writer that waits keeps those out who come later, but not who holds the layer already. */
static void *write_once(void *arg)
{
    return fp8_layer_set_source(arg, &w2, &bias1, 2, NULL) == FP8_OK ? arg : NULL;
}

/* Two threads that hold what the other changes would wait for each other. */
static void test_a_thread_that_holds_a_layer_changes_no_other(void **state)
{
    (void)state;
    fp8_layer *held = layer_of(FP8_SOURCE_DISCARD, 0), *other = layer_of(FP8_SOURCE_KEEP, 1);
    fp8_load *load;
    const fp8_linear *linear, *made;
    const char *words = "holds the linear of another layer";
    assert_done(fp8_layer_set_source(held, &w1, &bias1, 0, &err));
    assert_done(fp8_layer_set_source(other, &w1, &bias1, 1, &err));
    assert_done(fp8_load_create(ctx, NULL, &load, &err));
    assert_done(fp8_layer_acquire(held, 0, &linear, &err));
    assert_refused(fp8_layer_set_source(other, &w2, NULL, 2, &err), FP8_E_STATE, words);
    assert_refused(fp8_layer_set_bias(other, NULL, &err), FP8_E_STATE, words);
    assert_refused(fp8_layer_invalidate(other, &err), FP8_E_STATE, words);
    assert_done(fp8_load_add(load, other, &err));
    assert_refused(fp8_load_dummy(load, other, 0, &err), FP8_E_STATE, words);
    for (uint64_t version = 1; version < 3; version++) { /* made, and made anew: nobody holds it */
        assert_done(fp8_layer_acquire(other, version, &made, &err));
        assert_int_equal(info_of(other).version, version);
        fp8_layer_release(other);
    }
    fp8_layer_release(held);
    assert_done(fp8_load_dummy(load, other, 0, &err));
    fp8_load_free(load);
    fp8_layer_free(other);
    assert_done(fp8_layer_acquire(held, 0, &linear, &err));
    fp8_layer_free(held); /* a mistake that must not outlive the layer */
    fp8_layer *last = layer_of(FP8_SOURCE_DISCARD, 0);
    assert_done(fp8_layer_set_source(last, &w1, &bias1, 0, &err));
    fp8_layer_free(last);
}

/* A thread that holds a layer of version 1 until it is told otherwise. */
typedef struct holder {
    fp8_layer *layer;
    int holds, done;
} holder;

static void *hold(void *arg)
{
    holder *h = arg;
    const fp8_linear *linear;
    if (fp8_layer_acquire(h->layer, 1, &linear, NULL) != FP8_OK)
        return NULL;
    __atomic_store_n(&h->holds, 1, __ATOMIC_RELEASE);
    while (!__atomic_load_n(&h->done, __ATOMIC_ACQUIRE))
        usleep(1000);
    fp8_layer_release(h->layer);
    return arg;
}

static void test_holders_do_not_wait_for_holders(void **state)
{
    (void)state;
    fp8_layer *mine = layer_of(FP8_SOURCE_DISCARD, 0), *other = layer_of(FP8_SOURCE_KEEP, 0);
    holder h = {.layer = other};
    pthread_t thread, writer;
    const fp8_linear *linear;
    void *written;
    assert_done(fp8_layer_set_source(mine, &w1, &bias1, 0, &err));
    assert_done(fp8_layer_set_source(other, &w1, &bias1, 1, &err));
    assert_done(fp8_layer_acquire(mine, 0, &linear, &err));
    assert_int_equal(pthread_create(&thread, NULL, hold, &h), 0);
    while (!__atomic_load_n(&h.holds, __ATOMIC_ACQUIRE))
        usleep(1000);
    assert_refused(fp8_layer_acquire(other, 2, &linear, &err), FP8_E_STATE,
                   "other threads hold it with another version");
    assert_int_equal(pthread_create(&writer, NULL, write_once, other), 0);
    usleep(20000); /* most often it waits by now */
    assert_done(fp8_layer_acquire(other, 1, &linear, &err));
    fp8_layer_release(other);
    __atomic_store_n(&h.done, 1, __ATOMIC_RELEASE);
    pthread_join(thread, NULL);
    pthread_join(writer, &written);
    assert_ptr_equal(written, other);
    assert_done(fp8_layer_acquire(other, 2, &linear, &err));
    fp8_layer_release(other);
    fp8_layer_release(mine);
    fp8_layer_free(other);
    fp8_layer_free(mine);
}

/* A layer of no elements is finished by fp8_load_finish, which waits for readers as well. */
static void test_an_empty_layer_that_is_held_is_not_finished(void **state)
{
    (void)state;
    fp8_layer_desc d = FP8_LAYER_DESC_INIT;
    fp8_layer *layer;
    fp8_load *load;
    const fp8_linear *linear;
    d.name = "none";
    assert_done(fp8_layer_create(ctx, &d, &layer, &err));
    for (int again = 0; again < 2; again++) {
        assert_done(fp8_load_create(ctx, NULL, &load, &err));
        assert_done(fp8_load_add(load, layer, &err));
        if (again) {
            assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
            assert_refused(fp8_load_finish(load, &err), FP8_E_STATE, "layer none: this thread");
            fp8_layer_release(layer);
        }
        assert_done(fp8_load_finish(load, &err));
        fp8_load_free(load);
    }
    fp8_layer_free(layer);
}

static void test_a_thread_may_hold_again_while_a_writer_waits(void **state)
{
    (void)state;
    fp8_layer *layer = layer_of(FP8_SOURCE_DISCARD, 0);
    pthread_t writer;
    const fp8_linear *linear, *again;
    void *written;
    assert_done(fp8_layer_set_source(layer, &w1, &bias1, 1, &err));
    assert_done(fp8_layer_acquire(layer, 0, &linear, &err));
    assert_int_equal(pthread_create(&writer, NULL, write_once, layer), 0);
    for (int i = 0; i < 20; i++) { /* most of these find the writer waiting */
        assert_done(fp8_layer_acquire(layer, 0, &again, &err));
        assert_int_equal(info_of(layer).version, 1);
        usleep(2000);
        fp8_layer_release(layer);
    }
    fp8_layer_release(layer);
    pthread_join(writer, &written);
    assert_ptr_equal(written, layer);
    assert_int_equal(info_of(layer).version, 2);
    fp8_layer_free(layer);
}

/* Copies and questions while others make the codes, of one version or the other. */
static void *acquire_versions(void *arg)
{
    for (uint64_t i = 0; i < 30; i++) {
        const fp8_linear *linear;
        if (fp8_layer_acquire(arg, i / 10, &linear, NULL) != FP8_OK)
            return NULL;
        fp8_layer_release(arg);
    }
    return arg;
}

static void test_copies_and_questions_while_codes_are_made(void **state)
{
    (void)state;
    fp8_layer *layer = layer_of(FP8_SOURCE_KEEP, 1), *copy;
    pthread_t threads[6]; /* more than a lock has room for at first */
    void *done;
    assert_done(fp8_layer_set_source(layer, &w1, &bias1, 0, &err));
    for (int i = 0; i < 6; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, acquire_versions, layer), 0);
    for (int i = 0; i < 20; i++) {
        const fp8_layer_info info = info_of(layer);
        assert_int_equal(info.code_bytes > 0, info.state == FP8_LAYER_READY);
        assert_done(fp8_layer_clone(layer, NULL, &copy, &err));
        assert_is(copy, &w1);
        fp8_layer_free(copy);
    }
    for (int i = 0; i < 6; i++) {
        pthread_join(threads[i], &done);
        assert_ptr_equal(done, layer);
    }
    fp8_layer_free(layer);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_readers_see_one_weight_or_the_other),
        cmocka_unit_test(test_a_thread_cannot_change_what_it_holds),
        cmocka_unit_test(test_a_thread_that_holds_a_layer_changes_no_other),
        cmocka_unit_test(test_holders_do_not_wait_for_holders),
        cmocka_unit_test(test_an_empty_layer_that_is_held_is_not_finished),
        cmocka_unit_test(test_a_thread_may_hold_again_while_a_writer_waits),
        cmocka_unit_test(test_copies_and_questions_while_codes_are_made),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
