/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_graph.c - runs of a linear captured into a CUDA graph: the capture enqueues nothing and
 * breaks nothing, and every launch of the graph gives the bits of a plain run, for each family of
 * kernels, with X as it is and quantized by the run. */
#include "support/gpu.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

#include "support/gpu_main.h"

static fp8_context *gpu;

enum { N = 264, K = 512 };

/* A problem of m rows: a linear, and what a run of it needs on the device. */
typedef struct problem {
    fp8_linear *linear;
    fp8_tensor y; /* on the host */
    gpu_tensor x, out, space;
    uint64_t bytes;
} problem;

static problem problem_new(int64_t m, fp8_activation activation, fp8_dtype y)
{
    static uint8_t codes[N * K];
    static float scales[N];
    problem p;
    fp8_error err;
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    uint16_t *x = malloc((size_t)(m * K) * sizeof *x);
    desc.activation = activation;
    desc.w.grid.rows = 1;
    for (int i = 0; i < N * K; i++)
        codes[i] = (uint8_t)(i * 37 % 120);
    for (int i = 0; i < N; i++)
        scales[i] = 0.01F + (float)i * 0.0001F;
    for (int64_t i = 0; i < m * K; i++)
        x[i] = (uint16_t)(0x3F00 + i * 91 % 256); /* 0.5 .. 2 in bf16 */
    const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, N, K), s = fp8_matrix(scales, FP8_F32, N, 1);
    const fp8_tensor host = fp8_matrix(x, FP8_BF16, m, K);
    gpu_need(fp8_linear_create(gpu, &desc, &w, &s, NULL, &p.linear, &err), &err);
    gpu_need(fp8_linear_workspace(p.linear, m, &p.bytes, &err), &err);
    const fp8_tensor room = fp8_matrix(NULL, FP8_U8, 1, (int64_t)p.bytes);
    p.y = fp8_matrix(malloc((size_t)(m * N * 4)), y, m, N);
    p.x = gpu_tensor_new(gpu, &host, 0);
    p.out = gpu_tensor_new(gpu, &p.y, 1);
    p.space = gpu_tensor_new(gpu, &room, 1);
    free(x);
    return p;
}

static void problem_free(problem *p)
{
    free(p->y.data);
    fp8_linear_free(p->linear);
    gpu_tensor_free(&p->x);
    gpu_tensor_free(&p->out);
    gpu_tensor_free(&p->space);
}

static void run(problem *p, void *stream)
{
    fp8_error err;
    gpu_need(fp8_linear_run(p->linear, &p->x.t, NULL, &p->out.t, p->space.t.data, p->bytes, stream,
                            &err),
             &err);
}

/* y's bytes on the host. */
static void *read_y(const problem *p, size_t bytes)
{
    void *copy = malloc(bytes);
    gpu_tensor_read(&p->out, &p->y);
    memcpy(copy, p->y.data, bytes);
    return copy;
}

static void poison(problem *p)
{
    gpu_tensor_free(&p->space);
    const fp8_tensor room = fp8_matrix(NULL, FP8_U8, 1, (int64_t)p->bytes);
    p->space = gpu_tensor_new(gpu, &room, 1);
}

static void a_graph_gives_the_bits_of_a_run(void **state)
{
    (void)state;
    static const int64_t rows[] = {1, 16, 60, 128, 300};
    const gpu_driver driver = gpu_driver_find();
    void *stream;
    assert_int_equal(driver.stream_create(&stream, 1), 0);
    for (int i = 0; i < 20; i++) {
        const int64_t m = rows[i / 4];
        const fp8_dtype y = i & 1 ? FP8_F32 : FP8_BF16;
        problem p = problem_new(m, i & 2 ? FP8_ACTIVATION_DYNAMIC : FP8_ACTIVATION_NONE, y);
        const size_t bytes = (size_t)(m * N * fp8_dtype_bits(y) / 8);
        void *graph, *launchable;
        fp8_error err;
        run(&p, stream);
        gpu_need(fp8_device_wait(gpu, stream, &err), &err);
        void *want = read_y(&p, bytes);
        poison(&p);
        const fp8_tensor host = p.y;
        gpu_tensor_free(&p.out);
        p.out = gpu_tensor_new(gpu, &host, 1);
        assert_int_equal(driver.begin(stream, 1), 0);
        run(&p, stream);
        assert_int_equal(driver.end(stream, &graph), 0);
        assert_int_equal(driver.instantiate(&launchable, graph, 0), 0);
        for (int launch = 0; launch < 3; launch++) {
            assert_int_equal(driver.launch(launchable, stream), 0);
            gpu_need(fp8_device_wait(gpu, stream, &err), &err);
            void *got = read_y(&p, bytes);
            assert_memory_equal(got, want, bytes);
            free(got);
        }
        free(want);
        problem_free(&p);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_graph_gives_the_bits_of_a_run)};
    return gpu_main(tests, sizeof tests / sizeof *tests, &gpu);
}
