/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.h - a lock that many may read under or one may write under, and that knows its readers: a
 * thread can be told that it would wait for itself. A writer that waits goes before readers that
 * come after it, but for those that read elsewhere already: who reads never waits for readers, so
 * that no circle of threads can wait for each other. */
#ifndef FP8_LAYER_LOCK_H
#define FP8_LAYER_LOCK_H

#include "base/context.h"

#include <stdbool.h>

typedef struct fp8_lock fp8_lock;

/* Error: NO_MEMORY. */
fp8_status fp8_lock_create(const fp8_context *ctx, fp8_lock **out, fp8_error *err);
/* Nobody holds it. NULL is a no-op. */
void fp8_lock_free(fp8_lock *lock);

/* Waits for a writer. Error: NO_MEMORY, which comes only while more threads hold it than ever did.
 */
fp8_status fp8_lock_read(fp8_lock *lock, fp8_error *err);
/* The same, if `fits` says so, which is asked while nobody writes; *reads is what it said. */
fp8_status fp8_lock_read_if(fp8_lock *lock, bool (*fits)(const void *arg), const void *arg,
                            bool *reads, fp8_error *err);
/* The same thread's; nothing happens if it does not read. */
void fp8_lock_end_read(fp8_lock *lock);
/* Whether this thread reads: it must not write then. */
bool fp8_lock_is_mine(fp8_lock *lock);
/* Whether this thread reads under any lock. */
bool fp8_lock_reads_any(void);

/* Waits for a writer and all readers. This thread reads under no lock. */
void fp8_lock_write(fp8_lock *lock);
/* Waits for a writer; false if somebody reads. This thread may read under other locks. */
bool fp8_lock_try_write(fp8_lock *lock);
void fp8_lock_end_write(fp8_lock *lock);

#endif
