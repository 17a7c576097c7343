/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h - a lock that many may read under or one may write under. A writer that waits goes before
 * readers that come after it, so that a thread must not take it twice. */
#ifndef FP8_LAYER_LOCK_H
#define FP8_LAYER_LOCK_H

#include "base/context.h"

typedef struct fp8_lock fp8_lock;

/* Error: NO_MEMORY. */
fp8_status fp8_lock_create(const fp8_context *ctx, fp8_lock **out, fp8_error *err);
/* NULL is a no-op. */
void fp8_lock_free(const fp8_context *ctx, fp8_lock *lock);
void fp8_lock_read(fp8_lock *lock);
void fp8_lock_write(fp8_lock *lock);
void fp8_lock_end(fp8_lock *lock);

#endif
