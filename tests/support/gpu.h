/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu.h - what tests on a GPU share: a context of one, and host tensors there and back. */
#ifndef FP8_TESTS_GPU_H
#define FP8_TESTS_GPU_H

#include "fp8.h"

enum { GPU_SKIPPED = 77 }; /* what a program returns to ctest where there is no GPU */

/* A context of CUDA device 0; NULL, and a line that says so, if there is none. Another error ends
 * the program: it is no reason to skip. */
fp8_context *gpu_context(void);
/* Of device `index`; NULL, and a line, if there is no such one. */
fp8_context *gpu_context_of(int32_t index);

/* Functions of the driver that tests use beside the library, by their exported names. */
typedef struct gpu_driver {
    int (*retain)(void **context, int device);
    int (*set_current)(void *context);
    int (*mem_info)(size_t *available, size_t *total);
    int (*stream_create)(void **stream, unsigned int flags);
    int (*begin)(void *stream, int mode);
    int (*end)(void *stream, void **graph);
    int (*instantiate)(void **launchable, void *graph, unsigned long long flags);
    int (*launch)(void *launchable, void *stream);
} gpu_driver;
/* With the primary context of device 0 current. Ends the program if one is missing. */
gpu_driver gpu_driver_find(void);
/* A stream of a device, whose primary context becomes current. Ends the program on errors. */
void *gpu_stream_new(const gpu_driver *driver, int device);

/* Memory of the device that holds a tensor, ended by a guard of bytes that must not change. */
typedef struct gpu_tensor {
    const fp8_context *ctx;
    fp8_tensor t; /* on the device, as the host's */
    void *memory;
    uint64_t bytes; /* of the elements and what lies between them */
} gpu_tensor;

/* t with its elements, its strides and its alignment (of up to 16 bytes); poison: 0xFF instead. */
gpu_tensor gpu_tensor_new(const fp8_context *ctx, const fp8_tensor *t, int poison);
/* Brings the elements back to t, and fails the program if the guard was touched. Waits. */
void gpu_tensor_read(const gpu_tensor *g, const fp8_tensor *t);
void gpu_tensor_free(gpu_tensor *g);

/* Ends the program, with words, unless the status is FP8_OK. */
void gpu_need(fp8_status status, const fp8_error *err);

#endif
