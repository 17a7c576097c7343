/* SPDX-License-Identifier: Apache-2.0
 *
 * context.h - memory, threads and the instruction set that the rest of the library works with.
 * Immutable after create. All memory of the library comes from fp8_alloc. */
#ifndef FP8_BASE_CONTEXT_H
#define FP8_BASE_CONTEXT_H

#include "base/device.h"
#include "base/status.h"

/* CPU levels, each including those before it. */
typedef enum fp8_isa {
    FP8_ISA_SCALAR = 0,
    FP8_ISA_AVX2 = 1,        /* AVX2, FMA, F16C */
    FP8_ISA_AVX512 = 2,      /* F, BW, VL, DQ */
    FP8_ISA_AVX512_BF16 = 3, /* and VBMI, BF16 */
    FP8_ISA_AMX = 4,         /* and AMX_TILE, AMX_BF16, with the system's leave to use them */
    FP8_ISA_LAST = FP8_ISA_AMX,
} fp8_isa;

enum { FP8_DOCTOR_LINES = 8, FP8_DOCTOR_BYTES = 160 };

struct fp8_context {
    fp8_allocator allocator;
    fp8_parallel_for parallel_for;
    void *parallel_user;
    int32_t threads;       /* >= 1: how many parallel_for may use at once */
    fp8_isa isa;           /* what kernels may use: isa_found, capped by FP8_CPU_ISA */
    fp8_isa isa_found;     /* what the processor has */
    uint32_t flags;        /* FP8_BATCH_INVARIANT */
    fp8_cuda_device *cuda; /* NULL on the CPU */
    char doctor[FP8_DOCTOR_LINES][FP8_DOCTOR_BYTES];
};

/* The check of every function that computes on the CPU: ARGUMENT if ctx is NULL, UNSUPPORTED if its
 * device is another one. `what` begins the sentence. */
fp8_status fp8_need_cpu(const fp8_context *ctx, const char *what, fp8_error *err);
/* The check of every function with a stream that computes on the CPU: ARGUMENT if there is one. */
fp8_status fp8_need_no_stream(const void *stream, const char *what, fp8_error *err);

/* bytes of memory aligned for any type, NULL if there is none; 0 bytes gives a pointer that can be
 * freed. */
void *fp8_alloc(const fp8_context *ctx, uint64_t bytes);
/* The same for what is read whole again and again, as weights are. With the default allocator large
 * memory is aligned to huge pages and asks for them, where the system gives them on request. */
void *fp8_alloc_streamed(const fp8_context *ctx, uint64_t bytes);
/* fp8_alloc for n elements of `size` bytes, zeroed; NULL also if the product overflows. */
void *fp8_alloc_zeroed(const fp8_context *ctx, uint64_t n, uint64_t size);
/* NULL is a no-op. */
void fp8_release(const fp8_context *ctx, void *ptr);
/* A copy of text[0..bytes) with a NUL after it. */
char *fp8_copy_text(const fp8_context *ctx, const char *text, uint64_t bytes);

/* body(arg, i) for i in [0,n), in any order, on the context's threads; n <= 1 runs in place. */
void fp8_run_parallel(const fp8_context *ctx, int64_t n, void (*body)(void *arg, int64_t i),
                      void *arg);

/* What this processor and its operating system support (cpuid and xgetbv). Asks Linux for leave to
 * use tile registers, where there are some. */
fp8_isa fp8_isa_detect(void);
const char *fp8_isa_name(fp8_isa isa);

#endif
