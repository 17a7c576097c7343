/* SPDX-License-Identifier: Apache-2.0
 *
 * fake_driver.c - the fake libcuda.so.1. FAKE_LOOKUP is the name under which
 * functions are asked for: that of CUDA 11 makes a driver that lacks what is needed. */
#include "cuda/fake_driver.h"

#include "backend/cuda/driver.h"
#include "backend/cuda/wide_args.h"
#include "cli/gpu_launch.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT    __attribute__((visibility("default")))
#define MAX_DEPTH 8

enum { INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_DEVICE = 101, INVALID_CONTEXT = 201 };
enum { FAKE_BLOCKS = 256, INVALID_HANDLE = 400, NOT_FOUND = 500, FOREIGN = FAKE_DEVICES };
enum { FATBIN_MAGIC = 0xBA55ED50, FAKE_LIBRARIES = 64, FAKE_STREAMS = 64 };

static fake_driver fake;
static _Thread_local void *stack[MAX_DEPTH];
static _Thread_local int depth;
/* Their addresses are the handles; the last is the foreign context. */
static char contexts[FAKE_DEVICES + 1], streams[FAKE_DEVICES + 1];
static atomic_int holds[FAKE_DEVICES];
/* What a stream of cuStreamCreate, an event and a graph are. */
typedef struct object {
    int device;      /* of a stream */
    long long clock; /* when an event passed; the work in a graph, or captured so far */
} object;
static _Atomic(object *) capturing; /* one stream at a time */

/* What was captured since the last capture began, in turn: its last nodes. */
enum { FAKE_NODES = 16, FAKE_ARGUMENT_BYTES = 1024 };
typedef struct node {
    fp8_cu_function function; /* NULL: empty */
    fp8_cu_launch_config config;
    unsigned int cluster, policy, dependent;
    int number;
} node;
static node nodes[FAKE_NODES];
static int node_count;
static unsigned char node_argument[FAKE_ARGUMENT_BYTES];
static void *node_arguments[] = {node_argument};

/* Those of cuStreamCreate. */
static object made_streams[FAKE_STREAMS];
static atomic_int stream_taken[FAKE_STREAMS];

/* Pinned memory. */
enum { FAKE_HOST_BLOCKS = 64 };
static _Atomic(void *) host_blocks[FAKE_HOST_BLOCKS];
static int host_devices[FAKE_HOST_BLOCKS];

/* Block i begins at address (i + 1) << 40: nobody can read there by mistake. Those of device d that
 * are never allocated begin at (FAKE_BLOCKS + 1 + d) << 40. */
static struct {
    atomic_int taken;
    int device;
    size_t bytes;
} blocks[FAKE_BLOCKS];

static fp8_cu_pointer address_of(int block)
{
    return (fp8_cu_pointer)(block + 1) << 40;
}

/* Libraries are these addresses; kernels and functions are those of the names below. */
static char libraries[FAKE_LIBRARIES];
static atomic_int library_taken[FAKE_LIBRARIES];
static const char *const kernels[] = {
#define FP8_CUDA_KERNEL(family, function, least, most, shared, what) #function,
#include "backend/cuda/kernels.inc"
#undef FP8_CUDA_KERNEL
};
enum { KERNELS = sizeof kernels / sizeof *kernels };

/* Also when the library is loaded: the program may know nothing of it. */
__attribute__((constructor)) static void reset(void)
{
    memset(&fake, 0, sizeof fake);
    fake.version = 12040;
    fake.count = 2;
    fake.devices[0] = (fake_device){"NVIDIA H100 80GB HBM3", 9, 0, 132, (size_t)85 << 30};
    fake.devices[1] = (fake_device){"NVIDIA A100-SXM4-40GB", 8, 0, 108, (size_t)40 << 30};
    fake.devices[2] = (fake_device){"Tesla T4", 7, 5, 40, (size_t)16 << 30};
    fake.devices[3] = (fake_device){"NVIDIA B200", 10, 0, 148, (size_t)180 << 30};
    fake.fail_with = 999;
    for (int i = 0; i < FAKE_DEVICES; i++)
        holds[i] = 0;
    for (int i = 0; i < FAKE_BLOCKS; i++)
        blocks[i].taken = 0;
    for (int i = 0; i < FAKE_LIBRARIES; i++)
        library_taken[i] = 0;
    for (int i = 0; i < FAKE_STREAMS; i++)
        stream_taken[i] = 0;
    capturing = NULL;
    depth = 0;
}

EXPORT fake_driver *fake_driver_reset(void)
{
    reset();
    return &fake;
}

EXPORT int fake_driver_depth(void)
{
    return depth;
}

EXPORT void *fake_driver_current(void)
{
    return depth ? stack[depth - 1] : NULL;
}

EXPORT void fake_driver_push_foreign(void)
{
    stack[depth++] = &contexts[FOREIGN];
}

EXPORT void fake_driver_pop_foreign(void)
{
    if (!depth || stack[--depth] != &contexts[FOREIGN])
        fake.confused++;
}

EXPORT void *fake_driver_primary(int device)
{
    return &contexts[device];
}

EXPORT void *fake_driver_stream(int device)
{
    return &streams[device < 0 ? FOREIGN : device];
}

EXPORT void *fake_driver_memory(int device)
{
    return (void *)(uintptr_t)address_of(FAKE_BLOCKS + device);
}

/* Counts a call; what it must fail with, or 0. */
static fp8_cu_result called(const char *name)
{
    int at = ++fake.calls;
    if (at != fake.fail_at && !(fake.fail_name && !strcmp(fake.fail_name, name)))
        return FP8_CU_SUCCESS;
    fake.failed = name;
    return fake.fail_with;
}

#define CALLED(name)                          \
    do {                                      \
        fp8_cu_result failure = called(name); \
        if (failure != FP8_CU_SUCCESS)        \
            return failure;                   \
    } while (0)

/* A call that should not be; `result` comes back. */
static fp8_cu_result confused(fp8_cu_result result)
{
    fake.confused++;
    return result;
}

static int is_device(fp8_cu_device device)
{
    return device >= 0 && device < fake.count;
}

static fp8_cu_result fake_cuInit(unsigned int flags)
{
    CALLED("cuInit");
    if (flags)
        return confused(INVALID_VALUE);
    return fake.count ? FP8_CU_SUCCESS : FP8_CU_ERROR_NO_DEVICE;
}

static const struct {
    fp8_cu_result result;
    const char *name, *text;
} words[] = {
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {FP8_CU_ERROR_NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {709, "CUDA_ERROR_CONTEXT_IS_DESTROYED", "context is destroyed"},
    {719, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {999, "CUDA_ERROR_UNKNOWN", "unknown error"},
};

static fp8_cu_result fake_cuGetErrorName(fp8_cu_result result, const char **name)
{
    for (size_t i = 0; i < sizeof words / sizeof *words && !fake.wordless; i++)
        if (words[i].result == result)
            return *name = words[i].name, FP8_CU_SUCCESS;
    *name = NULL;
    return INVALID_VALUE;
}

static fp8_cu_result fake_cuGetErrorString(fp8_cu_result result, const char **text)
{
    for (size_t i = 0; i < sizeof words / sizeof *words && !fake.wordless; i++)
        if (words[i].result == result)
            return *text = words[i].text, FP8_CU_SUCCESS;
    *text = NULL;
    return INVALID_VALUE;
}

static fp8_cu_result fake_cuDeviceGetCount(int *count)
{
    CALLED("cuDeviceGetCount");
    *count = fake.count;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuDeviceGet(fp8_cu_device *device, int ordinal)
{
    CALLED("cuDeviceGet");
    if (!is_device(ordinal))
        return confused(INVALID_DEVICE);
    *device = ordinal;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuDeviceGetName(char *name, int bytes, fp8_cu_device device)
{
    CALLED("cuDeviceGetName");
    if (!is_device(device) || bytes < 1)
        return confused(INVALID_VALUE);
    strncpy(name, fake.devices[device].name, (size_t)bytes);
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuDeviceGetAttribute(int *value, unsigned int which, fp8_cu_device device)
{
    CALLED("cuDeviceGetAttribute");
    if (!is_device(device))
        return confused(INVALID_DEVICE);
    const fake_device *d = &fake.devices[device];
    switch (which) {
    case FP8_CU_CAPABILITY_MAJOR:
        return *value = d->major, FP8_CU_SUCCESS;
    case FP8_CU_CAPABILITY_MINOR:
        return *value = d->minor, FP8_CU_SUCCESS;
    case CLI_GPU_CLOCK_KHZ:
        return *value = 1980000, FP8_CU_SUCCESS;
    case CLI_GPU_L2_BYTES:
        return *value = 64 << 10, FP8_CU_SUCCESS;
    case FP8_CU_MULTIPROCESSORS:
        return *value = d->processors, FP8_CU_SUCCESS;
    case FP8_CU_MEMORY_KHZ:
        return *value = 2619000, FP8_CU_SUCCESS;
    case FP8_CU_MEMORY_BUS_BITS:
        return *value = 5120, FP8_CU_SUCCESS;
    default:
        return confused(INVALID_VALUE);
    }
}

static fp8_cu_result fake_cuDeviceTotalMem(size_t *bytes, fp8_cu_device device)
{
    CALLED("cuDeviceTotalMem");
    if (!is_device(device))
        return confused(INVALID_DEVICE);
    *bytes = fake.devices[device].memory_bytes;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuDevicePrimaryCtxRetain(fp8_cu_context *out, fp8_cu_device device)
{
    CALLED("cuDevicePrimaryCtxRetain");
    if (!is_device(device))
        return confused(INVALID_DEVICE);
    holds[device]++;
    fake.retained++;
    *out = (fp8_cu_context)(void *)&contexts[device];
    return FP8_CU_SUCCESS;
}

static void free_host_block(int i)
{
    free(atomic_exchange(&host_blocks[i], NULL));
    fake.pinned--;
}

/* Pinned memory goes with the context. */
static fp8_cu_result fake_cuDevicePrimaryCtxRelease(fp8_cu_device device)
{
    if (!is_device(device) || holds[device] < 1)
        return confused(INVALID_CONTEXT);
    if (--holds[device] == 0)
        for (int i = 0; i < FAKE_HOST_BLOCKS; i++)
            if (host_blocks[i] && host_devices[i] == device)
                free_host_block(i);
    fake.retained--;
    return called("cuDevicePrimaryCtxRelease");
}

/* The device whose primary context it is, if somebody holds it; -1 otherwise. */
static int device_of(const void *context)
{
    for (int i = 0; i < fake.count; i++)
        if (context == &contexts[i] && holds[i] > 0)
            return i;
    return -1;
}

static fp8_cu_result fake_cuCtxPushCurrent(fp8_cu_context context)
{
    CALLED("cuCtxPushCurrent");
    if (device_of(context) < 0 || depth == MAX_DEPTH)
        return confused(INVALID_CONTEXT);
    stack[depth++] = context;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuCtxPopCurrent(fp8_cu_context *out)
{
    if (!depth)
        return confused(INVALID_CONTEXT);
    *out = stack[--depth];
    return called("cuCtxPopCurrent");
}

static int is_current(void)
{
    return device_of(fake_driver_current()) >= 0;
}

static fp8_cu_result fake_cuCtxSynchronize(void)
{
    CALLED("cuCtxSynchronize");
    return is_current() ? FP8_CU_SUCCESS : confused(INVALID_CONTEXT);
}

static fp8_cu_result fake_cuMemHostAlloc(void **out, size_t bytes, unsigned int flags)
{
    CALLED("cuMemHostAlloc");
    if (!is_current() || !bytes || flags)
        return confused(INVALID_VALUE);
    *out = malloc(bytes);
    for (int i = 0; i < FAKE_HOST_BLOCKS && *out; i++) {
        void *none = NULL;
        if (!atomic_compare_exchange_strong(&host_blocks[i], &none, *out))
            continue;
        host_devices[i] = device_of(fake_driver_current());
        fake.pinned++;
        return FP8_CU_SUCCESS;
    }
    free(*out);
    return OUT_OF_MEMORY;
}

static fp8_cu_result fake_cuMemFreeHost(void *memory)
{
    for (int i = 0; i < FAKE_HOST_BLOCKS && is_current() && memory; i++)
        if (host_blocks[i] == memory) {
            free_host_block(i);
            return called("cuMemFreeHost");
        }
    return confused(INVALID_VALUE);
}

static fp8_cu_result fake_cuMemAlloc(fp8_cu_pointer *out, size_t bytes)
{
    CALLED("cuMemAlloc");
    int device = device_of(fake_driver_current());
    if (device < 0)
        return confused(INVALID_CONTEXT);
    if (!bytes)
        return confused(INVALID_VALUE);
    for (int i = 0; i < FAKE_BLOCKS && bytes <= fake.devices[device].memory_bytes; i++) {
        if (atomic_exchange(&blocks[i].taken, 1))
            continue;
        blocks[i].device = device;
        blocks[i].bytes = bytes;
        fake.memories++;
        fake.bytes += (long long)bytes;
        if (fake.most < fake.bytes)
            fake.most = fake.bytes;
        *out = address_of(i);
        return FP8_CU_SUCCESS;
    }
    return OUT_OF_MEMORY;
}

static fp8_cu_result fake_cuMemFree(fp8_cu_pointer pointer)
{
    for (int i = 0; i < FAKE_BLOCKS; i++) {
        if (pointer != address_of(i) || !blocks[i].taken)
            continue;
        if (device_of(fake_driver_current()) != blocks[i].device)
            return confused(INVALID_CONTEXT);
        fake.memories--;
        fake.bytes -= (long long)blocks[i].bytes;
        blocks[i].taken = 0;
        return called("cuMemFree");
    }
    return confused(INVALID_VALUE);
}

static object *object_new(void)
{
    fake.objects++;
    return calloc(1, sizeof(object));
}

static void object_free(void *o)
{
    free(o);
    fake.objects--;
}

EXPORT void fake_driver_work(int us)
{
    object *stream = capturing;
    if (stream)
        stream->clock += us;
    else
        fake.clock += us;
}

static fp8_cu_result fake_cuStreamCreate(fp8_cu_stream *out, unsigned int flags)
{
    CALLED("cuStreamCreate");
    if (!is_current() || flags > 1)
        return confused(INVALID_VALUE);
    for (int i = 0; i < FAKE_STREAMS; i++) {
        if (atomic_exchange(&stream_taken[i], 1))
            continue;
        fake.streams++;
        made_streams[i].device = device_of(fake_driver_current());
        *out = (fp8_cu_stream)(void *)&made_streams[i];
        return FP8_CU_SUCCESS;
    }
    return OUT_OF_MEMORY;
}

static fp8_cu_result fake_cuStreamDestroy(fp8_cu_stream stream)
{
    const ptrdiff_t i = (object *)(void *)stream - made_streams;
    if (!is_current() || i < 0 || i >= FAKE_STREAMS || !stream_taken[i])
        return confused(INVALID_HANDLE);
    stream_taken[i] = 0;
    fake.streams--;
    return called("cuStreamDestroy");
}

static fp8_cu_result fake_cuStreamGetCtx(fp8_cu_stream stream, fp8_cu_context *out)
{
    CALLED("cuStreamGetCtx");
    if (!is_current())
        return confused(INVALID_CONTEXT);
    for (int i = 0; i <= FOREIGN; i++)
        if ((const void *)stream == &streams[i])
            return *out = (fp8_cu_context)(void *)&contexts[i], FP8_CU_SUCCESS;
    for (int i = 0; i < FAKE_STREAMS; i++)
        if ((const void *)stream == &made_streams[i] && stream_taken[i])
            return *out = (fp8_cu_context)(void *)&contexts[made_streams[i].device], FP8_CU_SUCCESS;
    return INVALID_HANDLE;
}

/* The device whose memory holds the address; -1: none. */
static int device_with(fp8_cu_pointer pointer)
{
    const long long block = (long long)(pointer >> 40) - 1;
    if (block >= FAKE_BLOCKS && block < FAKE_BLOCKS + FAKE_DEVICES)
        return (int)block - FAKE_BLOCKS;
    if (block < 0 || block >= FAKE_BLOCKS || !blocks[block].taken ||
        pointer - address_of((int)block) >= blocks[block].bytes)
        return -1;
    return blocks[block].device;
}

static fp8_cu_result fake_cuPointerGetAttribute(void *value, unsigned int which,
                                                fp8_cu_pointer pointer)
{
    const int owner = device_with(pointer);
    const unsigned int type = FP8_CU_MEMORY_DEVICE, managed = 0;
    CALLED("cuPointerGetAttribute");
    if (!is_current())
        return confused(INVALID_VALUE);
    if (owner < 0 || (which == FP8_CU_POINTER_ON_DEVICE && !fake.peers &&
                      owner != device_of(fake_driver_current())))
        return INVALID_VALUE;
    if (which == FP8_CU_POINTER_ON_DEVICE)
        memcpy(value, &pointer, sizeof pointer);
    else if (which == FP8_CU_POINTER_ORDINAL)
        memcpy(value, &owner, sizeof owner);
    else if (which == FP8_CU_POINTER_MEMORY_TYPE)
        memcpy(value, &type, sizeof type);
    else if (which == FP8_CU_POINTER_IS_MANAGED)
        memcpy(value, &managed, sizeof managed);
    else
        return confused(INVALID_VALUE);
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuMemcpy2DAsync(const struct CUDA_MEMCPY2D_st *given,
                                          fp8_cu_stream stream)
{
    const fp8_cu_copy_2d *copy = (const fp8_cu_copy_2d *)given;
    CALLED("cuMemcpy2DAsync");
    if (!is_current() || copy->from_type != FP8_CU_MEMORY_HOST || !copy->from_host ||
        copy->to_type != FP8_CU_MEMORY_DEVICE || !copy->row_bytes || !copy->rows ||
        copy->from_pitch < copy->row_bytes || copy->to_pitch < copy->row_bytes ||
        device_with(copy->to_device) < 0 ||
        device_with(copy->to_device + (copy->rows - 1) * copy->to_pitch + copy->row_bytes - 1) < 0)
        return confused(INVALID_VALUE);
    fake.copied += (long long)(copy->row_bytes * copy->rows);
    fake.stream = stream;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuMemcpyAsync(fp8_cu_pointer to, fp8_cu_pointer from, size_t bytes,
                                        fp8_cu_stream stream)
{
    CALLED("cuMemcpyAsync");
    if (!is_current() || !bytes || !to || !from)
        return confused(INVALID_VALUE);
    fake.copied += (long long)bytes;
    fake_driver_work(FAKE_COPY_US);
    fake.stream = stream;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuStreamIsCapturing(fp8_cu_stream stream, unsigned int *status)
{
    CALLED("cuStreamIsCapturing");
    *status = fake.capturing || (stream && (const void *)stream == capturing);
    return is_current() ? FP8_CU_SUCCESS : confused(INVALID_CONTEXT);
}

static fp8_cu_result fake_cuStreamSynchronize(fp8_cu_stream stream)
{
    CALLED("cuStreamSynchronize");
    fake.stream = stream;
    fake.waits++;
    return is_current() ? FP8_CU_SUCCESS : confused(INVALID_CONTEXT);
}

static fp8_cu_result fake_cuLibraryLoadData(fp8_cu_library *out, const void *image,
                                            unsigned int *jit, void **jit_values, unsigned int jits,
                                            unsigned int *options, void **values,
                                            unsigned int count)
{
    uint32_t magic;
    CALLED("cuLibraryLoadData");
    memcpy(&magic, image, sizeof magic);
    if (magic != FATBIN_MAGIC || jit || jit_values || jits || options || values || count)
        return confused(INVALID_VALUE);
    for (int i = 0; i < FAKE_LIBRARIES; i++) {
        if (atomic_exchange(&library_taken[i], 1))
            continue;
        fake.libraries++;
        *out = (fp8_cu_library)(void *)&libraries[i];
        return FP8_CU_SUCCESS;
    }
    return OUT_OF_MEMORY;
}

static int is_library(const void *library)
{
    for (int i = 0; i < FAKE_LIBRARIES; i++)
        if (library == &libraries[i])
            return library_taken[i];
    return 0;
}

static fp8_cu_result fake_cuLibraryUnload(fp8_cu_library library)
{
    if (!is_library(library))
        return confused(INVALID_HANDLE);
    library_taken[(char *)library - libraries] = 0;
    fake.libraries--;
    return called("cuLibraryUnload");
}

static fp8_cu_result fake_cuLibraryGetKernel(fp8_cu_kernel *out, fp8_cu_library library,
                                             const char *name)
{
    CALLED("cuLibraryGetKernel");
    if (!is_library(library))
        return confused(INVALID_HANDLE);
    if (fake.missing_kernel && !strcmp(fake.missing_kernel, name))
        return NOT_FOUND;
    for (int i = 0; i < KERNELS; i++)
        if (!strcmp(kernels[i], name))
            return *out = (fp8_cu_kernel)(void *)(uintptr_t)&kernels[i], FP8_CU_SUCCESS;
    return confused(NOT_FOUND);
}

static int is_kernel(const void *kernel)
{
    return (const char *)kernel >= (const char *)kernels &&
           (const char *)kernel < (const char *)(kernels + KERNELS);
}

static fp8_cu_result fake_cuKernelSetAttribute(unsigned int which, int value, fp8_cu_kernel kernel,
                                               fp8_cu_device device)
{
    CALLED("cuKernelSetAttribute");
    if (which != FP8_CU_MAX_DYNAMIC_SHARED || value < 1 || !is_kernel(kernel) || !is_device(device))
        return confused(INVALID_VALUE);
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuKernelGetFunction(fp8_cu_function *out, fp8_cu_kernel kernel)
{
    CALLED("cuKernelGetFunction");
    if (!is_current() || !is_kernel(kernel))
        return confused(INVALID_HANDLE);
    *out = (fp8_cu_function)(void *)kernel;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuTensorMapEncodeTiled(struct CUtensorMap_st *out, unsigned int type,
                                                 unsigned int rank, void *data,
                                                 const uint64_t *extent, const uint64_t *stride,
                                                 const unsigned int *box, const unsigned int *step,
                                                 unsigned int interleave, unsigned int swizzle,
                                                 unsigned int l2, unsigned int fill)
{
    enum { LARGEST_BOX = 256, ALIGN = 16, LARGEST_TYPE = 12, BYTES = 128 };
    const uint64_t stride_end = (uint64_t)1 << 40, largest = (uint64_t)1 << 32;
    const unsigned int bytes = type == FP8_CU_MAP_U8 ? 1 : type == FP8_CU_MAP_BF16 ? 2 : 4;
    CALLED("cuTensorMapEncodeTiled");
    if (rank != 2 || type > LARGEST_TYPE || (uintptr_t)data % ALIGN || stride[0] % ALIGN ||
        stride[0] >= stride_end || !extent[0] || !extent[1] || extent[0] > largest ||
        extent[1] > largest || !box[0] || !box[1] || box[0] > LARGEST_BOX || box[1] > LARGEST_BOX ||
        box[0] * bytes % ALIGN || step[0] != 1 || step[1] != 1 || interleave || swizzle > 3 ||
        (swizzle && box[0] * bytes > 16U << swizzle) || l2 > 3 || fill)
        return confused(INVALID_VALUE);
    const fp8_cu_pointer first = (fp8_cu_pointer)(uintptr_t)data;
    if (device_with(first) < 0 ||
        device_with(first + (extent[1] - 1) * stride[0] + extent[0] * bytes - 1) < 0)
        return confused(INVALID_VALUE);
    const fake_map map = {data, {extent[0], extent[1]}, stride[0], {box[0], box[1]}, type, swizzle};
    memset(out, 1, BYTES);
    memcpy(out, &map, sizeof map);
    return FP8_CU_SUCCESS;
}

static void add_node(const node *n)
{
    nodes[node_count++ % FAKE_NODES] = *n;
}

static fp8_cu_result fake_cuLaunchKernelEx(const struct CUlaunchConfig_st *given,
                                           fp8_cu_function function, void **arguments, void **extra)
{
    const fp8_cu_launch_config *config = (const fp8_cu_launch_config *)given;
    CALLED("cuLaunchKernelEx");
    if (!is_current() || !is_kernel(function) || !arguments || extra || !config->grid[0] ||
        !config->grid[1] || !config->grid[2] || !config->block[0])
        return confused(INVALID_VALUE);
    fake.launches++;
    fake_driver_work(FAKE_LAUNCH_US);
    strncpy(fake.kernel, *(const char *const *)(void *)function, sizeof fake.kernel - 1);
    fake.grid = config->grid[0];
    fake.threads = config->block[0];
    fake.shared = config->shared_bytes;
    fake.stream = config->stream;
    fake.cluster = fake.policy = fake.dependent = 0;
    for (unsigned int i = 0; i < config->attribute_count; i++) {
        if (config->attributes[i].id == FP8_CU_LAUNCH_CLUSTER)
            fake.cluster = config->attributes[i].value.cluster.x;
        if (config->attributes[i].id == FP8_CU_LAUNCH_POLICY)
            fake.policy = (unsigned int)config->attributes[i].value.policy;
        if (config->attributes[i].id == FP8_CU_LAUNCH_DEPENDENT)
            fake.dependent = (unsigned int)config->attributes[i].value.dependent;
    }
    if (!fake.keeps || !strncmp(fake.kernel, fake.keeps, strlen(fake.keeps)))
        memcpy(fake.arguments, arguments[0], fake.argument_bytes);
    if (capturing && (const void *)config->stream == capturing)
        add_node(&(node){function, *config, fake.cluster, fake.policy, fake.dependent, node_count});
    return FP8_CU_SUCCESS;
}

/* ---- streams, events and graphs, as the command line uses them ---- */

static fp8_cu_result fake_cuDeviceGetPCIBusId(char *text, int bytes, int device)
{
    CALLED("cuDeviceGetPCIBusId");
    if (!is_device(device) || bytes < 13)
        return confused(INVALID_VALUE);
    snprintf(text, (size_t)bytes, "0000:%02x:00.0", (unsigned)device & 0xFF);
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuStreamBeginCapture(struct CUstream_st *stream, unsigned int mode)
{
    CALLED("cuStreamBeginCapture");
    object *o = (object *)(void *)stream;
    if (capturing || mode > 2)
        return confused(INVALID_VALUE);
    o->clock = 0;
    node_count = 0;
    capturing = o;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuStreamEndCapture(struct CUstream_st *stream, struct CUgraph_st **out)
{
    object *o = (object *)(void *)stream;
    *out = NULL;
    if (capturing != o)
        return confused(INVALID_VALUE);
    capturing = NULL;
    CALLED("cuStreamEndCapture");
    object *graph = object_new();
    graph->clock = o->clock;
    *out = (struct CUgraph_st *)(void *)graph;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuGraphInstantiateWithFlags(struct CUgraphExec_st **out,
                                                      struct CUgraph_st *graph,
                                                      unsigned long long flags)
{
    CALLED("cuGraphInstantiateWithFlags");
    if (flags)
        return confused(INVALID_VALUE);
    object *exec = object_new();
    exec->clock = ((object *)(void *)graph)->clock;
    *out = (struct CUgraphExec_st *)(void *)exec;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuGraphLaunch(struct CUgraphExec_st *exec, struct CUstream_st *stream)
{
    CALLED("cuGraphLaunch");
    if (!is_current() || !stream)
        return confused(INVALID_CONTEXT);
    fake.clock += ((object *)(void *)exec)->clock;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuGraphExecDestroy(struct CUgraphExec_st *exec)
{
    object_free(exec);
    return called("cuGraphExecDestroy");
}

static fp8_cu_result fake_cuGraphDestroy(struct CUgraph_st *graph)
{
    object_free(graph);
    return called("cuGraphDestroy");
}

static fp8_cu_result fake_cuEventCreate(struct CUevent_st **out, unsigned int flags)
{
    CALLED("cuEventCreate");
    if (!is_current() || flags)
        return confused(INVALID_CONTEXT);
    *out = (struct CUevent_st *)(void *)object_new();
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuEventDestroy(struct CUevent_st *event)
{
    object_free(event);
    return called("cuEventDestroy");
}

static fp8_cu_result fake_cuEventRecord(struct CUevent_st *event, struct CUstream_st *stream)
{
    CALLED("cuEventRecord");
    if (!is_current() || !stream)
        return confused(INVALID_CONTEXT);
    ((object *)(void *)event)->clock = fake.clock;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuEventSynchronize(struct CUevent_st *event)
{
    CALLED("cuEventSynchronize");
    return event ? FP8_CU_SUCCESS : confused(INVALID_HANDLE);
}

static fp8_cu_result fake_cuEventElapsedTime(float *ms, struct CUevent_st *from,
                                             struct CUevent_st *to)
{
    CALLED("cuEventElapsedTime");
    const object *a = (object *)(void *)from, *b = (object *)(void *)to;
    *ms = (float)(b->clock - a->clock) * 1e-3F;
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuStreamGetCaptureInfo(struct CUstream_st *stream, unsigned int *status,
                                                 uint64_t *id, struct CUgraph_st **graph,
                                                 struct CUgraphNode_st *const **after,
                                                 size_t *count)
{
    CALLED("cuStreamGetCaptureInfo");
    if ((const void *)stream != capturing)
        return confused(INVALID_VALUE);
    *status = 1;
    *id = 1;
    *graph = (struct CUgraph_st *)(void *)stream;
    static struct CUgraphNode_st *last;
    last = (struct CUgraphNode_st *)(void *)&nodes[(node_count + FAKE_NODES - 1) % FAKE_NODES];
    *after = &last;
    *count = node_count > 0;
    return FP8_CU_SUCCESS;
}

static int is_node(const void *n)
{
    return (const node *)n >= nodes && (const node *)n < nodes + FAKE_NODES;
}

/* Each comes after the one before it. */
static fp8_cu_result fake_cuGraphNodeGetDependencies(struct CUgraphNode_st *given,
                                                     struct CUgraphNode_st **before,
                                                     struct CUgraphEdgeData_st *edge, size_t *count)
{
    CALLED("cuGraphNodeGetDependencies");
    const node *n = (const node *)(void *)given;
    if (!is_node(n) || *count < 1)
        return confused(INVALID_VALUE);
    *count = n->number > 0;
    if (*count)
        *before = (struct CUgraphNode_st *)(void *)&nodes[(n->number - 1) % FAKE_NODES];
    const cli_cu_edge e = {.type = n->dependent ? CLI_CU_EDGE_DEPENDENT : 0};
    memcpy(edge, &e, sizeof e);
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuGraphKernelNodeGetParams(struct CUgraphNode_st *given,
                                                     struct CUDA_KERNEL_NODE_PARAMS_v2_st *out)
{
    CALLED("cuGraphKernelNodeGetParams");
    const node *n = (const node *)(void *)given;
    if (!is_node(n))
        return confused(INVALID_VALUE);
    if (!n->function)
        return INVALID_VALUE;
    const fp8_cu_launch_config *c = &n->config;
    const cli_cu_kernel_node k = {.function = n->function,
                                  .grid = {c->grid[0], c->grid[1], c->grid[2]},
                                  .block = {c->block[0], c->block[1], c->block[2]},
                                  .shared_bytes = c->shared_bytes,
                                  .arguments = node_arguments};
    memcpy(out, &k, sizeof k);
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuGraphKernelNodeGetAttribute(struct CUgraphNode_st *given,
                                                        unsigned int which,
                                                        union CUlaunchAttributeValue_union *out)
{
    CALLED("cuGraphKernelNodeGetAttribute");
    const node *n = (const node *)(void *)given;
    if (!is_node(n) || !n->function ||
        (which != FP8_CU_LAUNCH_CLUSTER && which != FP8_CU_LAUNCH_POLICY))
        return confused(INVALID_VALUE);
    cli_cu_attribute a = {.value.cluster = {n->cluster, n->cluster > 0, n->cluster > 0}};
    if (which == FP8_CU_LAUNCH_POLICY)
        a.value.policy = (int)n->policy;
    memcpy(out, &a.value, sizeof a.value);
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuGraphAddEmptyNode(struct CUgraphNode_st **out, struct CUgraph_st *graph,
                                              struct CUgraphNode_st *const *after, size_t count)
{
    CALLED("cuGraphAddEmptyNode");
    if ((const void *)graph != capturing || !after || count != 1)
        return confused(INVALID_VALUE);
    add_node(&(node){.number = node_count});
    *out = (struct CUgraphNode_st *)(void *)&nodes[(node_count - 1) % FAKE_NODES];
    return FP8_CU_SUCCESS;
}

static fp8_cu_result fake_cuStreamUpdateCaptureDependencies(struct CUstream_st *stream,
                                                            struct CUgraphNode_st **after,
                                                            size_t count, unsigned int flags)
{
    CALLED("cuStreamUpdateCaptureDependencies");
    if ((const void *)stream != capturing || count != 1 || !is_node(after[0]) || flags != 1)
        return confused(INVALID_VALUE);
    fake_driver_work(FAKE_EMPTY_US); /* so that a test sees it */
    return FP8_CU_SUCCESS;
}

EXPORT fp8_cu_result cuDriverGetVersion FP8_DRIVER_GET_VERSION;
EXPORT fp8_cu_result cuDriverGetVersion FP8_DRIVER_GET_VERSION
{
    CALLED("cuDriverGetVersion");
    *version = fake.version;
    return FP8_CU_SUCCESS;
}

EXPORT fp8_cu_result FAKE_LOOKUP FP8_DRIVER_GET_PROC;
EXPORT fp8_cu_result FAKE_LOOKUP FP8_DRIVER_GET_PROC
{
    static const struct {
        const char *name;
        void (*function)(void);
        int since;
    } functions[] = {
#define ROW(name, since, need, arguments) {#name, (void (*)(void))fake_##name, since},
        FP8_DRIVER_FUNCTIONS(ROW)
#undef ROW
#define ROW(name, since, arguments) {#name, (void (*)(void))fake_##name, since},
            CLI_GPU_FUNCTIONS(ROW)
#undef ROW
    };
    fake.lookups++;
    *out = NULL;
    *found = 1; /* SYMBOL_NOT_FOUND */
    if (flags)
        return confused(INVALID_VALUE);
    if (fake.missing && !strcmp(fake.missing, name))
        return NOT_FOUND;
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        if (strcmp(functions[i].name, name) != 0)
            continue;
        *found = functions[i].since > since ? 2 : 0; /* VERSION_NOT_SUFFICIENT */
        if (!*found)
            memcpy(out, &functions[i].function, sizeof *out);
        return FP8_CU_SUCCESS;
    }
    return NOT_FOUND;
}
