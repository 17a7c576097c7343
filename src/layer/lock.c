/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c - a pthread_rwlock_t that prefers writers; these calls cannot fail when used as lock.h
 * says. */
#define _GNU_SOURCE /* pthread_rwlockattr_setkind_np */
#include "layer/lock.h"

#include <pthread.h>

struct fp8_lock {
    pthread_rwlock_t rw;
};

static int init(pthread_rwlock_t *rw)
{
    pthread_rwlockattr_t attr;
    int failed = pthread_rwlockattr_init(&attr);
    if (failed)
        return failed;
    (void)pthread_rwlockattr_setkind_np(&attr, PTHREAD_RWLOCK_PREFER_WRITER_NONRECURSIVE_NP);
    failed = pthread_rwlock_init(rw, &attr);
    (void)pthread_rwlockattr_destroy(&attr);
    return failed;
}

fp8_status fp8_lock_create(const fp8_context *ctx, fp8_lock **out, fp8_error *err)
{
    fp8_lock *lock = fp8_alloc(ctx, sizeof *lock);
    if (!lock || init(&lock->rw)) {
        fp8_release(ctx, lock);
        return fp8_fail(err, FP8_E_NO_MEMORY, "no memory for a lock");
    }
    *out = lock;
    return FP8_OK;
}

void fp8_lock_free(const fp8_context *ctx, fp8_lock *lock)
{
    if (lock)
        (void)pthread_rwlock_destroy(&lock->rw);
    fp8_release(ctx, lock);
}

void fp8_lock_read(fp8_lock *lock)
{
    (void)pthread_rwlock_rdlock(&lock->rw);
}

void fp8_lock_write(fp8_lock *lock)
{
    (void)pthread_rwlock_wrlock(&lock->rw);
}

void fp8_lock_end(fp8_lock *lock)
{
    (void)pthread_rwlock_unlock(&lock->rw);
}
