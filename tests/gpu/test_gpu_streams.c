/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gpu_streams.c - where work goes on GPU 0: all that quantizes is captured into a CUDA graph
 * and replayed on other data; two threads work in two streams at once; who has another context
 * current keeps it; memory of nobody is refused while a graph is captured, too. */
#include "backend/cuda/cuda_device.h"
#include "base/context.h"
#include "support/device_copy.h"

#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the above. */
#include <cmocka.h>

/* What the library itself needs not, by the driver's exported names. */
static struct {
    fp8_cu_result (*cuStreamCreate)(void **stream, unsigned int flags);
    fp8_cu_result (*cuStreamDestroy_v2)(void *stream);
    fp8_cu_result (*cuStreamBeginCapture_v2)(void *stream, unsigned int mode);
    fp8_cu_result (*cuStreamEndCapture)(void *stream, void **graph);
    fp8_cu_result (*cuGraphInstantiateWithFlags)(void **exec, void *graph, unsigned long long);
    fp8_cu_result (*cuGraphLaunch)(void *exec, void *stream);
    fp8_cu_result (*cuGraphExecDestroy)(void *exec);
    fp8_cu_result (*cuGraphDestroy)(void *graph);
    fp8_cu_result (*cuCtxGetCurrent)(void **ctx);
} cu;

/* Returns from main unless the driver has the function. */
#define FIND(name)                                 \
    do {                                           \
        *(void **)&cu.name = dlsym(driver, #name); \
        if (!*(void **)&cu.name)                   \
            return 1;                              \
    } while (0)

static fp8_context *cpu, *gpu;

static void *new_stream(void)
{
    enum { NON_BLOCKING = 1 };
    void *stream;
    assert_int_equal(fp8_cuda_enter(gpu->cuda, NULL), FP8_OK);
    assert_int_equal(cu.cuStreamCreate(&stream, NON_BLOCKING), 0);
    fp8_cuda_leave(gpu->cuda);
    return stream;
}

enum { ROWS = 384, COLS = 512, COUNT = ROWS * COLS };

/* What is quantized how; the last is quantized again, and back. */
static const struct {
    fp8_grid grid;
    fp8_dtype scale;
} kinds[] = {{{0, 0}, FP8_F32},      {{1, 0}, FP8_F32},     {{1, 128}, FP8_F32},
             {{1, 32}, FP8_E8M0FNU}, {{128, 128}, FP8_F32}, {{0, 128}, FP8_BF16},
             {{0, 0}, FP8_BF16},     {{0, 64}, FP8_F32}};
enum { KINDS = sizeof kinds / sizeof *kinds };

/* One set of matrices, of the host or of the device. */
typedef struct set {
    const fp8_context *ctx;
    fp8_tensor x, y[KINDS], codes[KINDS], scales[KINDS], again[KINDS], again_scales[KINDS];
} set;

static fp8_tensor matrix(const fp8_context *ctx, fp8_dtype dtype, int64_t rows, int64_t cols)
{
    void *memory;
    assert_int_equal(
        fp8_device_alloc(ctx, (uint64_t)(rows * cols * fp8_dtype_bits(dtype) / 8), &memory, NULL),
        FP8_OK);
    return fp8_matrix(memory, dtype, rows, cols);
}

static set make_set(const fp8_context *ctx)
{
    set s = {.ctx = ctx, .x = matrix(ctx, FP8_BF16, ROWS, COLS)};
    for (int k = 0; k < KINDS; k++) {
        const fp8_grid g = kinds[k].grid;
        s.codes[k] = matrix(ctx, FP8_E4M3FN, ROWS, COLS);
        s.again[k] = matrix(ctx, FP8_E4M3FN, ROWS, COLS);
        s.scales[k] = matrix(ctx, kinds[k].scale, g.rows ? (ROWS + g.rows - 1) / g.rows : 1,
                             g.cols ? (COLS + g.cols - 1) / g.cols : 1);
        s.again_scales[k] = matrix(ctx, FP8_F32, ROWS, 1);
        s.y[k] = matrix(ctx, FP8_BF16, ROWS, COLS);
    }
    return s;
}

static void free_set(set *s)
{
    fp8_device_free(s->ctx, s->x.data);
    for (int k = 0; k < KINDS; k++) {
        fp8_device_free(s->ctx, s->codes[k].data);
        fp8_device_free(s->ctx, s->scales[k].data);
        fp8_device_free(s->ctx, s->again[k].data);
        fp8_device_free(s->ctx, s->again_scales[k].data);
        fp8_device_free(s->ctx, s->y[k].data);
    }
}

/* Everything into the stream: 0, or how many calls failed. */
static int enqueue(set *s, void *stream)
{
    int failed = 0;
    for (int k = 0; k < KINDS; k++) {
        fp8_quantize_desc d = FP8_QUANTIZE_DESC_INIT;
        fp8_error err;
        d.grid = kinds[k].grid;
        d.nan = FP8_NAN_PROPAGATE;
        failed +=
            fp8_quantize(s->ctx, &d, &s->x, &s->codes[k], &s->scales[k], stream, &err) != FP8_OK;
        d.grid = (fp8_grid){1, 0};
        failed += fp8_requantize(s->ctx, kinds[k].grid, &s->codes[k], &s->scales[k], &d,
                                 &s->again[k], &s->again_scales[k], stream, &err) != FP8_OK;
        failed += fp8_dequantize(s->ctx, d.grid, &s->again[k], &s->again_scales[k], &s->y[k],
                                 stream, &err) != FP8_OK;
        if (failed)
            printf("%s\n", err.msg);
    }
    return failed;
}

static void fill(fp8_tensor *x, unsigned int seed)
{
    uint16_t *values = x->data;
    for (int i = 0; i < COUNT; i++) {
        seed = seed * 1664525u + 1013904223u;
        values[i] = (uint16_t)((seed >> 16 & 0x83FF) | 0x3C00);
    }
}

/* host.x to the device's. */
static void upload(const set *host, const set *device, void *stream)
{
    assert_int_equal(fp8_device_copy(gpu, device->x.data, host->x.data, 2 * COUNT, stream, NULL),
                     FP8_OK);
}

/* How many of the dequantized matrices differ from the host's. */
static int differing(const set *host, const set *device, void *stream)
{
    int n = 0;
    uint16_t *y = malloc(2 * COUNT);
    for (int k = 0; k < KINDS; k++) {
        if (fp8_device_copy(gpu, y, device->y[k].data, 2 * COUNT, stream, NULL) != FP8_OK ||
            fp8_device_wait(gpu, stream, NULL) != FP8_OK ||
            memcmp(y, host->y[k].data, 2 * COUNT) != 0)
            n++;
    }
    free(y);
    return n;
}

static void a_graph_replays_on_other_data(void **state)
{
    (void)state;
    enum { THREAD_LOCAL = 1, GLOBAL = 0 };
    void *stream = new_stream(), *graph, *exec;
    assert_int_equal(fp8_cuda_enter(gpu->cuda, NULL), FP8_OK); /* for what is called as cu. here */
    set host = make_set(cpu), device = make_set(gpu);
    for (unsigned int mode = GLOBAL; mode <= THREAD_LOCAL; mode++) {
        char on_host[16];
        fp8_tensor bad = fp8_matrix(on_host, FP8_BF16, 2, 2);
        fp8_quantize_desc d = FP8_QUANTIZE_DESC_INIT;
        d.nan = FP8_NAN_PROPAGATE;
        assert_int_equal(cu.cuStreamBeginCapture_v2(stream, mode), 0);
        assert_int_equal(enqueue(&device, stream), 0);
        assert_int_equal(
            fp8_quantize(gpu, &d, &bad, &device.codes[0], &device.scales[0], stream, NULL),
            FP8_E_SHAPE);
        device.codes[0].shape[0] = device.codes[0].shape[1] = 2;
        assert_int_equal(
            fp8_quantize(gpu, &d, &bad, &device.codes[0], &device.scales[0], stream, NULL),
            FP8_E_ARGUMENT);
        device.codes[0].shape[0] = ROWS;
        device.codes[0].shape[1] = COLS;
        assert_int_equal(fp8_device_wait(gpu, stream, NULL), FP8_E_STATE);
        /* Which broke the capture; another. */
        cu.cuStreamEndCapture(stream, &graph);
        assert_int_equal(cu.cuStreamBeginCapture_v2(stream, mode), 0);
        assert_int_equal(enqueue(&device, stream), 0);
        assert_int_equal(cu.cuStreamEndCapture(stream, &graph), 0);
        assert_int_equal(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
        for (unsigned int round = 0; round < 3; round++) {
            fill(&host.x, round + 3 * mode);
            assert_int_equal(enqueue(&host, NULL), 0);
            upload(&host, &device, stream);
            assert_int_equal(cu.cuGraphLaunch(exec, stream), 0);
            assert_int_equal(differing(&host, &device, stream), 0);
        }
        cu.cuGraphExecDestroy(exec);
        cu.cuGraphDestroy(graph);
    }
    free_set(&host);
    free_set(&device);
    cu.cuStreamDestroy_v2(stream);
    fp8_cuda_leave(gpu->cuda);
}

/* A captured call cannot wait: what it would refuse becomes NaN, and the rest is as without it. */
static void in_a_captured_stream_nan_is_made(void **state)
{
    (void)state;
    enum { GLOBAL = 0, NAN_CODE = 0x7F };
    void *stream = new_stream(), *graph, *exec;
    set host = make_set(cpu), device = make_set(gpu);
    uint16_t *x = host.x.data;
    uint8_t *codes = host.codes[1].data, *got = malloc(COUNT);
    fp8_quantize_desc d = FP8_QUANTIZE_DESC_INIT;
    d.grid.rows = 1;
    fill(&host.x, 5);
    x[3 * COLS + 7] = 0x7F80; /* infinity */
    x[9 * COLS + 8] = 0x7FC0;
    upload(&host, &device, stream);
    assert_int_equal(fp8_cuda_enter(gpu->cuda, NULL), FP8_OK);
    assert_int_equal(fp8_device_wait(gpu, stream, NULL), FP8_OK);
    assert_int_equal(cu.cuStreamBeginCapture_v2(stream, GLOBAL), 0);
    assert_int_equal(
        fp8_quantize(gpu, &d, &device.x, &device.codes[1], &device.scales[1], stream, NULL),
        FP8_OK);
    assert_int_equal(cu.cuStreamEndCapture(stream, &graph), 0);
    assert_int_equal(cu.cuGraphInstantiateWithFlags(&exec, graph, 0), 0);
    assert_int_equal(cu.cuGraphLaunch(exec, stream), 0);
    assert_int_equal(fp8_device_copy(gpu, got, device.codes[1].data, COUNT, stream, NULL), FP8_OK);
    assert_int_equal(fp8_device_wait(gpu, stream, NULL), FP8_OK);
    d.nan = FP8_NAN_PROPAGATE;
    assert_int_equal(fp8_quantize(cpu, &d, &host.x, &host.codes[1], &host.scales[1], NULL, NULL),
                     FP8_OK);
    codes[3 * COLS + 7] = NAN_CODE;
    assert_int_equal(codes[9 * COLS + 8], NAN_CODE);
    assert_memory_equal(got, codes, COUNT);
    cu.cuGraphExecDestroy(exec);
    cu.cuGraphDestroy(graph);
    free(got);
    free_set(&host);
    free_set(&device);
    cu.cuStreamDestroy_v2(stream);
    fp8_cuda_leave(gpu->cuda);
}

typedef struct worker {
    pthread_t thread;
    unsigned int seed;
    void *stream;
    set host, device;
    int bad;
} worker;

static void *work(void *argument)
{
    worker *w = argument;
    for (unsigned int round = 0; round < 20; round++) {
        fill(&w->host.x, w->seed + round);
        w->bad += enqueue(&w->host, NULL);
        w->bad += fp8_device_copy(gpu, w->device.x.data, w->host.x.data, 2 * COUNT, w->stream,
                                  NULL) != FP8_OK;
        w->bad += enqueue(&w->device, w->stream);
        w->bad += differing(&w->host, &w->device, w->stream);
    }
    return NULL;
}

static void threads_work_in_streams_of_their_own(void **state)
{
    (void)state;
    enum { THREADS = 3 }; /* the last one in the default stream */
    worker w[THREADS];
    for (int t = 0; t < THREADS; t++) {
        w[t] = (worker){.seed = 100u * (unsigned)t, .host = make_set(cpu), .device = make_set(gpu)};
        w[t].stream = t < THREADS - 1 ? new_stream() : NULL;
    }
    for (int t = 0; t < THREADS; t++)
        assert_int_equal(pthread_create(&w[t].thread, NULL, work, &w[t]), 0);
    for (int t = 0; t < THREADS; t++) {
        assert_int_equal(pthread_join(w[t].thread, NULL), 0);
        assert_int_equal(w[t].bad, 0);
        free_set(&w[t].host);
        free_set(&w[t].device);
        if (w[t].stream)
            cu.cuStreamDestroy_v2(w[t].stream);
    }
}

static void what_is_current_stays_so(void **state)
{
    (void)state;
    void *before, *after;
    set device = make_set(gpu);
    assert_int_equal(cu.cuCtxGetCurrent(&before), 0);
    assert_int_equal(enqueue(&device, NULL), 0);
    assert_int_equal(cu.cuCtxGetCurrent(&after), 0);
    assert_ptr_equal(before, after);
    assert_int_equal(fp8_device_wait(gpu, NULL, NULL), FP8_OK);
    free_set(&device);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(what_is_current_stays_so),
        cmocka_unit_test(a_graph_replays_on_other_data),
        cmocka_unit_test(in_a_captured_stream_nan_is_made),
        cmocka_unit_test(threads_work_in_streams_of_their_own),
    };
    gpu = device_context_or_skip();
    if (!gpu)
        return DEVICE_SKIPPED;
    void *driver = dlopen(FP8_DRIVER_NAME, RTLD_NOW);
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.threads = 1;
    if (!driver)
        return 1;
    FIND(cuStreamCreate);
    FIND(cuStreamDestroy_v2);
    FIND(cuStreamBeginCapture_v2);
    FIND(cuStreamEndCapture);
    FIND(cuGraphInstantiateWithFlags);
    FIND(cuGraphLaunch);
    FIND(cuGraphExecDestroy);
    FIND(cuGraphDestroy);
    FIND(cuCtxGetCurrent);
    if (fp8_context_create(&desc, &cpu, NULL) != FP8_OK)
        return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    fp8_context_free(cpu);
    fp8_context_free(gpu);
    return failed;
}
