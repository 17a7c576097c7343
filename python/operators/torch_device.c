/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_device.c - contexts, streams and new tensors of PyTorch's devices. */
#include "torch_device.h"

#include <pthread.h>
#include <stdio.h>

enum { MOST_DEVICES = 64 };

static const fp8_context *cpu;
static fp8_parallel_for loops;
static int32_t threads;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static fp8_context *cuda[MOST_DEVICES];

void fp8_torch_set_contexts(const fp8_context *of_cpu, fp8_parallel_for given, int32_t count)
{
    cpu = of_cpu;
    loops = given;
    threads = count;
}

/* With `lock` held; tuned NULL: no file. */
static fp8_status make_context(int32_t index, const char *tuned, fp8_error *err)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.device = FP8_DEVICE_CUDA;
    desc.device_index = index;
    desc.tuned = tuned;
    desc.parallel_for = loops;
    desc.threads = threads;
    return fp8_context_create(&desc, &cuda[index], err);
}

static fp8_status must_be_cuda(int32_t device, fp8_error *err)
{
    if (device < 0 || device >= MOST_DEVICES)
        return fp8_torch_fail(err, FP8_E_NO_DEVICE, "there is no device cuda:%d", (int)device);
    return FP8_OK;
}

fp8_status fp8_torch_context(int32_t device, const fp8_context **out, fp8_error *err)
{
    *out = cpu;
    if (device == FP8_TORCH_CPU)
        return FP8_OK;
    fp8_status status = must_be_cuda(device, err);
    if (status != FP8_OK)
        return status;
    pthread_mutex_lock(&lock);
    if (!cuda[device])
        status = make_context(device, NULL, err);
    *out = cuda[device];
    pthread_mutex_unlock(&lock);
    return status;
}

fp8_status fp8_torch_use_tuned(int32_t device, const char *tuned, fp8_error *err)
{
    fp8_status status = must_be_cuda(device, err);
    if (status != FP8_OK)
        return status;
    pthread_mutex_lock(&lock);
    if (cuda[device])
        status = fp8_torch_fail(err, FP8_E_STATE,
                                "use_tuned: fp8 has run on cuda:%d already, its kernels are chosen",
                                (int)device);
    else
        status = make_context(device, tuned, err);
    pthread_mutex_unlock(&lock);
    return status;
}

fp8_status fp8_torch_device_of(const char *name, torch_tensor *tensor, int32_t *device,
                               fp8_error *err)
{
    int32_t type = 0, index = 0;
    if (fp8_torch.aoti_torch_get_device_type(tensor, &type) ||
        fp8_torch.aoti_torch_get_device_index(tensor, &index))
        return fp8_torch_fail(err, FP8_E_ARGUMENT, "%s: PyTorch does not say where it is", name);
    *device = type == fp8_torch.aoti_torch_device_type_cpu() ? FP8_TORCH_CPU : index;
    if (*device != FP8_TORCH_CPU && type != fp8_torch.aoti_torch_device_type_cuda())
        return fp8_torch_fail(err, FP8_E_UNSUPPORTED, "%s is neither on the CPU nor on CUDA", name);
    return FP8_OK;
}

static void write_label(int32_t device, char label[16])
{
    if (device == FP8_TORCH_CPU)
        (void)snprintf(label, 16, "cpu");
    else
        (void)snprintf(label, 16, "cuda:%d", (int)device);
}

fp8_status fp8_torch_must_be_on(const char *name, torch_tensor *tensor, int32_t device,
                                fp8_error *err)
{
    int32_t found = FP8_TORCH_CPU;
    char is[16], wanted[16];
    const fp8_status status = fp8_torch_device_of(name, tensor, &found, err);
    if (status != FP8_OK || found == device)
        return status;
    write_label(found, is);
    write_label(device, wanted);
    return fp8_torch_fail(err, FP8_E_ARGUMENT, "%s is on %s, must be on %s", name, is, wanted);
}

fp8_status fp8_torch_stream(int32_t device, void **stream, fp8_error *err)
{
    *stream = NULL;
    if (device == FP8_TORCH_CPU)
        return FP8_OK;
    if (!fp8_torch.aoti_torch_get_current_cuda_stream ||
        fp8_torch.aoti_torch_get_current_cuda_stream(device, stream))
        return fp8_torch_fail(err, FP8_E_UNSUPPORTED, "torch: cuda:%d has no current stream",
                              (int)device);
    return FP8_OK;
}

fp8_status fp8_torch_new(int32_t device, int64_t dims, const int64_t *shape, const int64_t *stride,
                         int32_t number, torch_tensor **tensor, void **data, fp8_error *err)
{
    const bool on_cpu = device == FP8_TORCH_CPU;
    const int32_t type =
        on_cpu ? fp8_torch.aoti_torch_device_type_cpu() : fp8_torch.aoti_torch_device_type_cuda();
    *tensor = NULL;
    if (fp8_torch.aoti_torch_empty_strided(dims, shape, stride, number, type, on_cpu ? 0 : device,
                                           tensor) ||
        fp8_torch.aoti_torch_get_data_ptr(*tensor, data))
        return fp8_torch_fail(err, FP8_E_NO_MEMORY, "torch: no memory for a new tensor");
    return FP8_OK;
}
