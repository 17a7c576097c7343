/* SPDX-License-Identifier: Apache-2.0
 *
 * lock.c - a list of who reads, and who writes or would like to, under a mutex that is never held
 * for long. The mutex and the condition cannot fail when used as lock.h says. */
#include "layer/lock.h"

#include <pthread.h>
#include <string.h>

struct fp8_lock {
    const fp8_context *ctx;
    pthread_mutex_t mutex;  /* of all that follows */
    pthread_cond_t changed; /* somebody ended */
    pthread_t *readers;     /* a thread as often as it reads */
    int64_t count, room;
    int64_t waiting; /* writers */
    bool writing;
};

enum { FIRST_READERS = 4 };

static _Thread_local int64_t held; /* how often this thread reads, under any lock */

/* Room for so many readers. The mutex is held, or nobody else knows the lock. */
static fp8_status reserve(fp8_lock *lock, int64_t room, fp8_error *err)
{
    if (room <= lock->room)
        return FP8_OK;
    pthread_t *readers = fp8_alloc_zeroed(lock->ctx, (uint64_t)room, sizeof *readers);
    FP8_FAIL_IF(!readers, err, FP8_E_NO_MEMORY, "no memory for a lock of %lld readers",
                (long long)room);
    if (lock->count)
        memcpy(readers, lock->readers, (size_t)lock->count * sizeof *readers);
    fp8_release(lock->ctx, lock->readers);
    lock->readers = readers;
    lock->room = room;
    return FP8_OK;
}

fp8_status fp8_lock_create(const fp8_context *ctx, fp8_lock **out, fp8_error *err)
{
    fp8_lock *lock = fp8_alloc_zeroed(ctx, 1, sizeof *lock);
    FP8_FAIL_IF(!lock, err, FP8_E_NO_MEMORY, "no memory for a lock");
    lock->ctx = ctx;
    (void)pthread_mutex_init(&lock->mutex, NULL);
    (void)pthread_cond_init(&lock->changed, NULL);
    const fp8_status status = reserve(lock, FIRST_READERS, err);
    if (status == FP8_OK)
        *out = lock;
    else
        fp8_lock_free(lock);
    return status;
}

void fp8_lock_free(fp8_lock *lock)
{
    if (!lock)
        return;
    for (int64_t i = 0; i < lock->count; i++)
        held -= pthread_equal(lock->readers[i], pthread_self()) != 0;
    (void)pthread_cond_destroy(&lock->changed);
    (void)pthread_mutex_destroy(&lock->mutex);
    fp8_release(lock->ctx, lock->readers);
    fp8_release(lock->ctx, lock);
}

/* The place of this thread among the readers, -1 if it has none. The mutex is held. */
static int64_t find_me(const fp8_lock *lock)
{
    int64_t i = lock->count - 1;
    while (i >= 0 && !pthread_equal(lock->readers[i], pthread_self()))
        i--;
    return i;
}

/* The mutex is held. */
static fp8_status add_me(fp8_lock *lock, fp8_error *err)
{
    if (lock->count == lock->room)
        FP8_TRY(reserve(lock, 2 * lock->room, err));
    lock->readers[lock->count++] = pthread_self();
    held++;
    return FP8_OK;
}

fp8_status fp8_lock_read_if(fp8_lock *lock, bool (*fits)(const void *arg), const void *arg,
                            bool *reads, fp8_error *err)
{
    (void)pthread_mutex_lock(&lock->mutex);
    /* A writer that waits may wait for this thread, if only by way of others. */
    while (lock->writing || (lock->waiting > 0 && !held))
        (void)pthread_cond_wait(&lock->changed, &lock->mutex);
    *reads = fits(arg);
    const fp8_status status = *reads ? add_me(lock, err) : FP8_OK;
    (void)pthread_mutex_unlock(&lock->mutex);
    return status;
}

static bool always(const void *arg)
{
    (void)arg;
    return true;
}

fp8_status fp8_lock_read(fp8_lock *lock, fp8_error *err)
{
    bool reads;
    return fp8_lock_read_if(lock, always, NULL, &reads, err);
}

void fp8_lock_end_read(fp8_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    const int64_t i = find_me(lock);
    if (i >= 0) {
        lock->readers[i] = lock->readers[--lock->count];
        held--;
    }
    if (i >= 0 && lock->count == 0)
        (void)pthread_cond_broadcast(&lock->changed);
    (void)pthread_mutex_unlock(&lock->mutex);
}

bool fp8_lock_is_mine(fp8_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    const bool mine = find_me(lock) >= 0;
    (void)pthread_mutex_unlock(&lock->mutex);
    return mine;
}

bool fp8_lock_reads_any(void)
{
    return held > 0;
}

void fp8_lock_write(fp8_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    lock->waiting++;
    while (lock->writing || lock->count > 0)
        (void)pthread_cond_wait(&lock->changed, &lock->mutex);
    lock->waiting--;
    lock->writing = true;
    (void)pthread_mutex_unlock(&lock->mutex);
}

bool fp8_lock_try_write(fp8_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    while (lock->writing)
        (void)pthread_cond_wait(&lock->changed, &lock->mutex);
    const bool alone = lock->count == 0;
    lock->writing = alone;
    (void)pthread_mutex_unlock(&lock->mutex);
    return alone;
}

void fp8_lock_end_write(fp8_lock *lock)
{
    (void)pthread_mutex_lock(&lock->mutex);
    lock->writing = false;
    (void)pthread_cond_broadcast(&lock->changed);
    (void)pthread_mutex_unlock(&lock->mutex);
}
