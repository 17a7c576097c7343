/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_driver.h - a libcuda.so.1 for machines without a GPU. It answers what driver.h lists, keeps
 * devices, contexts and memory as counts, fails when told to, and misses what it is told to miss.
 * A test program is linked with it, so that the library's dlopen("libcuda.so.1") finds it: it bears
 * that name.
 *
 *     for (int n = 1;; n++) {
 *         fake_driver *fake = fake_driver_reset();
 *         fake->fail_at = n;
 *         status = the function under test; undo what it did
 *         assert_int_equal(fake->retained, 0);      // and the other counts: nothing leaked
 *         if (fake->calls < n) break;               // every call has failed once
 *         assert_int_not_equal(status, FP8_OK);
 *     }
 *
 * Calls that give back (release, pop, free) do so even when they fail, as the driver does: it tells
 * errors of earlier work that way. Counts are atomic; the rest is set while no other thread calls.
 */
#ifndef FAKE_DRIVER_H
#define FAKE_DRIVER_H

#include <stdatomic.h>
#include <stddef.h>

enum { FAKE_DEVICES = 4 };
enum { FAKE_LAUNCH_US = 10, FAKE_COPY_US = 4, FAKE_EMPTY_US = 1 }; /* of work on its clock */

typedef struct fake_device {
    const char *name;
    int major, minor, processors;
    size_t memory_bytes;
} fake_device;

/* A descriptor of a matrix, as the fake's cuTensorMapEncodeTiled makes it: of 128 bytes. */
typedef struct fake_map {
    void *data;
    unsigned long long extent[2], stride; /* columns, rows; bytes from row to row */
    unsigned int box[2], type, swizzle;
} fake_map;

typedef struct fake_driver {
    int version;                       /* 12040 */
    int count;                         /* of devices: 2 */
    fake_device devices[FAKE_DEVICES]; /* an H100 and an A100 */
    int fail_at;                       /* this call fails, from 1; 0 = none */
    unsigned int fail_with;            /* 999, CUDA_ERROR_UNKNOWN */
    const char *fail_name;             /* not NULL: every call of that function fails */
    const char *missing;               /* a function that cuGetProcAddress does not find */
    const char *missing_kernel;        /* a kernel that no library has */
    int peers;                         /* nonzero: devices read each other's memory */
    unsigned int capturing;            /* nonzero: every stream is being captured */
    int wordless; /* nonzero: cuGetErrorName and cuGetErrorString do not know the result */

    const char *_Atomic failed; /* the last function that was made to fail; NULL: none */
    atomic_int calls;           /* of all functions but cuGetProcAddress and the two for words */
    atomic_int lookups;         /* functions asked for */
    atomic_int retained;        /* primary contexts held, all devices */
    atomic_int memories;        /* blocks held */
    atomic_llong bytes;         /* in them */
    atomic_int pinned;          /* blocks of pinned host memory held */
    atomic_int streams;         /* made and not destroyed */
    atomic_int libraries;       /* fatbins loaded */
    atomic_int launches;        /* kernels launched; the last one: */
    char kernel[64];            /* its name */
    unsigned int grid, threads, shared, cluster, policy, dependent;
    void *stream;
    const char *keeps;            /* not NULL: only of kernels whose names begin so, it keeps */
    unsigned char arguments[640]; /* what they were given, as far as `argument_bytes` */
    unsigned int argument_bytes;
    atomic_llong copied; /* bytes by cuMemcpyAsync and cuMemcpy2DAsync */
    atomic_llong most;   /* the most that `bytes` ever was */
    atomic_int waits;    /* cuStreamSynchronize */
    atomic_int objects;  /* streams, events and graphs held */
    atomic_llong clock;  /* us that the device has worked: FAKE_* each, captured or not */
    atomic_int confused; /* calls that make no sense: a context or memory that is none, an empty
                            stack, memory of another context, no current context .. */
} fake_driver;

/* Back to the values above, all counts 0; returns the one that there is. */
fake_driver *fake_driver_reset(void);

/* How many contexts are on the calling thread's stack, and the uppermost (NULL: none). */
int fake_driver_depth(void);
void *fake_driver_current(void);
/* Puts a context on it that is no device's primary one, as an application may; and takes it off. */
void fake_driver_push_foreign(void);
void fake_driver_pop_foreign(void);
/* The primary context of a device, and a stream that belongs to it (-1: to the foreign one). */
void *fake_driver_primary(int device);
void *fake_driver_stream(int device);
/* Work in a stream that is not the fake's own: of another library's fake. */
void fake_driver_work(int us);
/* Memory of a device that nobody needs to free, at an address that only the fake knows. */
void *fake_driver_memory(int device);

#endif
