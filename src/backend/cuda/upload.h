/* SPDX-License-Identifier: Apache-2.0
 *
 * upload.h - what the host makes, on its way to a device: two pieces of pinned memory, each with a
 * stream of its own, one of which is filled while the other is copied. They are made when something
 * is first sent and kept with the device; without pinned memory they are the context's own. */
#ifndef FP8_BACKEND_CUDA_UPLOAD_H
#define FP8_BACKEND_CUDA_UPLOAD_H

#include "base/context.h"

#include <stdbool.h>

typedef struct fp8_cuda_upload fp8_cuda_upload;

/* NULL if there is no memory. */
fp8_cuda_upload *fp8_cuda_upload_new(const fp8_context *ctx);
/* Waits for what is on its way. NULL is a no-op. */
void fp8_cuda_upload_free(const fp8_context *ctx, const fp8_cuda_device *device,
                          fp8_cuda_upload *upload);

/* Writes rows [first, first + rows) of what is sent, contiguous, to `to`. */
typedef fp8_status (*fp8_cuda_fill)(const void *arg, int64_t first, int64_t rows, uint8_t *to,
                                    fp8_error *err);

/* Rows of `bytes` each for to[rows, ld] on the device, ld in bytes. Returns when the last row has
 * been filled; fp8_cuda_upload_wait when all are there. Nothing else on the device waits for them.
 * Errors: NO_MEMORY, DEVICE, STATE and those of fill. Any thread. */
fp8_status fp8_cuda_upload_rows(const fp8_context *ctx, void *to, int64_t ld, int64_t rows,
                                int64_t bytes, fp8_cuda_fill fill, const void *arg, fp8_error *err);
fp8_status fp8_cuda_upload_wait(const fp8_context *ctx, fp8_error *err);

#endif
