/* SPDX-License-Identifier: Apache-2.0
 *
 * context.c - creating a context: allocator, threads, instruction set, device. */
#define _GNU_SOURCE
#include "base/context.h"
#include "base/size.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

static void *malloc_hook(void *user, size_t bytes)
{
    (void)user;
    return malloc(bytes);
}

static void free_hook(void *user, void *ptr)
{
    (void)user;
    free(ptr);
}

void *fp8_alloc(const fp8_context *ctx, uint64_t bytes)
{
    if (bytes > SIZE_MAX)
        return NULL;
    return ctx->allocator.alloc(ctx->allocator.user, bytes ? (size_t)bytes : 1);
}

/* Whole huge pages alone are asked for, so that no more becomes resident than is used. */
void *fp8_alloc_streamed(const fp8_context *ctx, uint64_t bytes)
{
    enum { HUGE_PAGE = 2 << 20, LEAST = 2 * HUGE_PAGE };
    if (ctx->allocator.alloc != malloc_hook || bytes < LEAST || bytes > SIZE_MAX - HUGE_PAGE)
        return fp8_alloc(ctx, bytes);
    const size_t whole = (size_t)bytes / HUGE_PAGE * HUGE_PAGE;
    void *ptr = aligned_alloc(HUGE_PAGE, whole + HUGE_PAGE);
    if (ptr)
        (void)madvise(ptr, whole, MADV_HUGEPAGE); /* refused: the usual pages */
    return ptr;
}

void *fp8_alloc_zeroed(const fp8_context *ctx, uint64_t n, uint64_t size)
{
    uint64_t bytes;
    if (!fp8_size_mul(n, size, &bytes))
        return NULL;
    void *ptr = fp8_alloc(ctx, bytes);
    if (ptr)
        memset(ptr, 0, (size_t)bytes);
    return ptr;
}

void fp8_release(const fp8_context *ctx, void *ptr)
{
    if (ptr)
        ctx->allocator.free(ctx->allocator.user, ptr);
}

char *fp8_copy_text(const fp8_context *ctx, const char *text, uint64_t bytes)
{
    char *copy = bytes < UINT64_MAX ? fp8_alloc(ctx, bytes + 1) : NULL;
    if (copy) {
        memcpy(copy, text, (size_t)bytes);
        copy[bytes] = 0;
    }
    return copy;
}

static void openmp_parallel_for(void *user, int64_t n, void (*body)(void *arg, int64_t i),
                                void *arg)
{
    const fp8_context *ctx = user;
    const int threads = ctx->threads; /* whatever n is: libgomp ends threads that a smaller team
                                         leaves out, and the next loop would start them anew */
    (void)threads;                    /* unused where OpenMP is off */
    if (n <= threads) { /* i is the same thread's in every loop, and what it left in its cache */
#pragma omp parallel for schedule(static, 1) num_threads(threads)
        for (int64_t i = 0; i < n; i++)
            body(arg, i);
        return;
    }
#pragma omp parallel for schedule(dynamic, 1) num_threads(threads)
    for (int64_t i = 0; i < n; i++)
        body(arg, i);
}

void fp8_run_parallel(const fp8_context *ctx, int64_t n, void (*body)(void *arg, int64_t i),
                      void *arg)
{
    if (n > 1) {
        ctx->parallel_for(ctx->parallel_user, n, body, arg);
        return;
    }
    if (n == 1)
        body(arg, 0);
}

/* Processors that this process may run on, at least 1. */
static int32_t usable_processors(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set))
        return 1;
    int n = CPU_COUNT(&set);
    return n > 0 ? n : 1;
}

/* The value of FP8_CPU_ISA as a cap on `found`; -1 if it names no level. */
static int capped_isa(fp8_isa found)
{
    const char *text = getenv("FP8_CPU_ISA");
    if (!text || !*text)
        return (int)found;
    for (int isa = FP8_ISA_SCALAR; isa <= FP8_ISA_LAST; isa++)
        if (!strcmp(text, fp8_isa_name((fp8_isa)isa)))
            return isa < (int)found ? isa : (int)found;
    return -1;
}

/* "levels: scalar yes, avx2 used, avx512 capped, .., amx no": what each level is here. */
static void write_levels(const fp8_context *ctx, char line[FP8_DOCTOR_BYTES])
{
    int end = snprintf(line, FP8_DOCTOR_BYTES, "levels:");
    for (int isa = FP8_ISA_SCALAR; isa <= FP8_ISA_LAST; isa++) {
        const char *state = isa > (int)ctx->isa_found ? "no"
                            : isa > (int)ctx->isa     ? "capped"
                            : isa < (int)ctx->isa     ? "yes"
                                                      : "used";
        end += snprintf(line + end, FP8_DOCTOR_BYTES - (size_t)end, "%s %s %s",
                        isa > FP8_ISA_SCALAR ? "," : "", fp8_isa_name((fp8_isa)isa), state);
    }
}

static void write_doctor_lines(fp8_context *ctx)
{
    char(*line)[FP8_DOCTOR_BYTES] = ctx->doctor;
    snprintf(line[0], sizeof *line, "version: %s", fp8_version());
    snprintf(line[1], sizeof *line, "compiler: %s", __VERSION__);
    snprintf(line[2], sizeof *line, "isa: %s (processor has %s)", fp8_isa_name(ctx->isa),
             fp8_isa_name(ctx->isa_found));
    write_levels(ctx, line[3]);
    snprintf(line[4], sizeof *line, "threads: %d%s", ctx->threads,
             ctx->parallel_for == openmp_parallel_for ? "" : " (caller's parallel-for)");
    snprintf(line[5], sizeof *line, "cuda kernels: %s", fp8_cuda_build());
}

const char *fp8_doctor(const fp8_context *ctx, int64_t i)
{
    if (!ctx || i < 0 || i >= FP8_DOCTOR_LINES || !ctx->doctor[i][0])
        return NULL;
    return ctx->doctor[i];
}

const char *fp8_version(void)
{
#define TEXT(x)  #x
#define XTEXT(x) TEXT(x)
    return XTEXT(FP8_VERSION_MAJOR) "." XTEXT(FP8_VERSION_MINOR) "." XTEXT(FP8_VERSION_PATCH);
#undef XTEXT
#undef TEXT
}

fp8_status fp8_need_cpu(const fp8_context *ctx, const char *what, fp8_error *err)
{
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "%s: the context is NULL", what);
    FP8_FAIL_IF(ctx->cuda, err, FP8_E_UNSUPPORTED, "%s: not built for %s, use a context of the CPU",
                what, fp8_cuda_label(ctx->cuda));
    return FP8_OK;
}

fp8_status fp8_need_no_stream(const void *stream, const char *what, fp8_error *err)
{
    FP8_FAIL_IF(stream, err, FP8_E_ARGUMENT, "%s: stream must be NULL on the CPU", what);
    return FP8_OK;
}

static fp8_status check_desc(const fp8_context_desc *desc, fp8_error *err)
{
    FP8_FAIL_IF(desc->struct_bytes != sizeof *desc, err, FP8_E_ARGUMENT,
                "context: struct_bytes is %u, this library knows %zu", desc->struct_bytes,
                sizeof *desc);
    FP8_FAIL_IF(desc->threads < 0, err, FP8_E_ARGUMENT, "context: threads is %d, must be >= 0",
                desc->threads);
    FP8_FAIL_IF(desc->flags & ~(uint32_t)FP8_BATCH_INVARIANT, err, FP8_E_ARGUMENT,
                "context: flags are 0x%x, this library knows 0x%x", desc->flags,
                FP8_BATCH_INVARIANT);
    FP8_FAIL_IF(!desc->allocator.alloc != !desc->allocator.free, err, FP8_E_ARGUMENT,
                "context: the allocator needs both alloc and free, or neither");
    FP8_FAIL_IF(desc->device != FP8_DEVICE_CPU && desc->device != FP8_DEVICE_CUDA, err,
                FP8_E_ARGUMENT, "context: device is %d, must be FP8_DEVICE_CPU or FP8_DEVICE_CUDA",
                (int)desc->device);
    FP8_FAIL_IF(desc->device == FP8_DEVICE_CPU && desc->device_index, err, FP8_E_ARGUMENT,
                "context: device_index is %d, must be 0 for the CPU", desc->device_index);
    FP8_FAIL_IF(desc->device == FP8_DEVICE_CPU && desc->tuned, err, FP8_E_ARGUMENT,
                "context: tuned is %s, but only a GPU has kernels to choose", desc->tuned);
    return FP8_OK;
}

fp8_status fp8_context_create(const fp8_context_desc *desc, fp8_context **out, fp8_error *err)
{
    static const fp8_context_desc defaults = FP8_CONTEXT_DESC_INIT;
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "context: out is NULL");
    *out = NULL;
    if (!desc)
        desc = &defaults;
    FP8_TRY(check_desc(desc, err));
    fp8_allocator allocator = desc->allocator;
    if (!allocator.alloc)
        allocator = (fp8_allocator){malloc_hook, free_hook, NULL};
    fp8_isa found = fp8_isa_detect();
    int isa = capped_isa(found);
    FP8_FAIL_IF(isa < 0, err, FP8_E_ARGUMENT,
                "FP8_CPU_ISA is '%s', must be scalar, avx2, avx512, avx512_bf16 or amx",
                getenv("FP8_CPU_ISA"));

    fp8_context *ctx = allocator.alloc(allocator.user, sizeof *ctx);
    FP8_FAIL_IF(!ctx, err, FP8_E_NO_MEMORY, "context: no memory for %zu bytes", sizeof *ctx);
    memset(ctx, 0, sizeof *ctx);
    ctx->allocator = allocator;
    ctx->threads = desc->threads ? desc->threads : usable_processors();
    ctx->parallel_for = desc->parallel_for ? desc->parallel_for : openmp_parallel_for;
    ctx->parallel_user = desc->parallel_for ? desc->parallel_user : ctx;
    ctx->isa = (fp8_isa)isa;
    ctx->isa_found = found;
    ctx->flags = desc->flags;
    write_doctor_lines(ctx);
    fp8_status status = desc->device == FP8_DEVICE_CUDA
                            ? fp8_cuda_attach(ctx, desc->device_index, desc->tuned, &ctx->cuda, err)
                            : FP8_OK;
    if (status == FP8_OK && ctx->cuda)
        fp8_cuda_write_choices(ctx->cuda, ctx->doctor[6], sizeof ctx->doctor[6]);
    if (status == FP8_OK)
        *out = ctx;
    else
        fp8_context_free(ctx);
    return status;
}

void fp8_context_free(fp8_context *ctx)
{
    if (!ctx)
        return;
    fp8_cuda_detach(ctx, ctx->cuda);
    fp8_release(ctx, ctx);
}
