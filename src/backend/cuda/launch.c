/* SPDX-License-Identifier: Apache-2.0
 *
 * launch.c - launching kernels, and the checks before. */
#include "backend/cuda/launch.h"

enum { LAST_DEFAULT_STREAM = 2 }; /* CU_STREAM_LEGACY is 1, CU_STREAM_PER_THREAD is 2 */

/* Whether work for the device, whose context is current, may go into the stream. */
static fp8_status check_stream(const fp8_cuda_device *device, fp8_cu_stream stream, fp8_error *err)
{
    if ((uintptr_t)stream <= LAST_DEFAULT_STREAM)
        return FP8_OK;
    fp8_cu_context owner = NULL;
    const fp8_cu_result result = device->driver.cuStreamGetCtx(stream, &owner);
    if (result != FP8_CU_SUCCESS)
        return fp8_driver_fail(&device->driver, result, err, "%s: cuStreamGetCtx", device->label);
    FP8_FAIL_IF(owner != device->primary, err, FP8_E_ARGUMENT,
                "%s: the stream belongs to another device or to a context of its own",
                device->label);
    return FP8_OK;
}

fp8_status fp8_cuda_begin(const fp8_cuda_device *device, void *stream, fp8_error *err)
{
    FP8_TRY(fp8_cuda_enter(device, err));
    const fp8_status status = check_stream(device, stream, err);
    if (status != FP8_OK)
        fp8_cuda_leave(device);
    return status;
}

static uint32_t at_least_one(uint32_t n)
{
    return n ? n : 1;
}

fp8_status fp8_cuda_launch(const fp8_cuda_device *device, fp8_cuda_kernel kernel,
                           const fp8_cuda_shape *shape, const void *arguments, void *stream,
                           fp8_error *err)
{
    const fp8_cuda_kernel_row *row = fp8_cuda_kernel_at(kernel);
    const fp8_cu_function function = device->module.functions[kernel];
    fp8_cu_launch_attribute attributes[3];
    fp8_cu_launch_config config = {
        .grid = {at_least_one(shape->grid[0]), at_least_one(shape->grid[1]),
                 at_least_one(shape->grid[2])},
        .block = {shape->threads, 1, 1},
        .shared_bytes = shape->shared_bytes,
        .stream = stream,
        .attributes = attributes,
    };
    FP8_FAIL_IF(!function, err, FP8_E_NO_KERNEL, "%s: %s", device->label,
                fp8_cuda_has_kernels() ? row->function : "this build has no CUDA kernels");
    if (shape->cluster)
        attributes[config.attribute_count++] = (fp8_cu_launch_attribute){
            .id = FP8_CU_LAUNCH_CLUSTER, .value.cluster = {shape->cluster, 1, 1}};
    if (shape->balanced)
        attributes[config.attribute_count++] = (fp8_cu_launch_attribute){
            .id = FP8_CU_LAUNCH_POLICY, .value.policy = FP8_CU_POLICY_BALANCE};
    if (shape->dependent)
        attributes[config.attribute_count++] =
            (fp8_cu_launch_attribute){.id = FP8_CU_LAUNCH_DEPENDENT, .value.dependent = 1};
    void *parameters[] = {(void *)(uintptr_t)arguments};
    const fp8_cu_result result = device->driver.cuLaunchKernelEx(
        (const struct CUlaunchConfig_st *)&config, function, parameters, NULL);
    if (result != FP8_CU_SUCCESS)
        return fp8_driver_fail(&device->driver, result, err, "%s: launching %s", device->label,
                               row->function);
    return FP8_OK;
}

/* Pointers that the driver does not know leave *value as it is. */
static fp8_status ask(const fp8_cuda_device *device, const void *data, unsigned int which,
                      void *value, fp8_error *err)
{
    const fp8_cu_result result =
        device->driver.cuPointerGetAttribute(value, which, (fp8_cu_pointer)(uintptr_t)data);
    if (result == FP8_CU_SUCCESS || result == FP8_CU_ERROR_INVALID_VALUE)
        return FP8_OK;
    return fp8_driver_fail(&device->driver, result, err, "%s: cuPointerGetAttribute",
                           device->label);
}

/* Memory that may move belongs to no device. */
static fp8_status check_owner(const fp8_cuda_device *device, const void *data, const char *name,
                              fp8_error *err)
{
    int owner = device->index;
    unsigned int type = 0, managed = 0;
    if (!device->has_others)
        return FP8_OK;
    FP8_TRY(ask(device, data, FP8_CU_POINTER_ORDINAL, &owner, err));
    if (owner == device->index)
        return FP8_OK;
    FP8_TRY(ask(device, data, FP8_CU_POINTER_MEMORY_TYPE, &type, err));
    FP8_TRY(ask(device, data, FP8_CU_POINTER_IS_MANAGED, &managed, err));
    FP8_FAIL_IF(type == FP8_CU_MEMORY_DEVICE && !managed, err, FP8_E_ARGUMENT,
                "%s is memory of cuda:%d, must be memory that %s can read", name, owner,
                device->label);
    return FP8_OK;
}

fp8_status fp8_cuda_check_memory(const fp8_cuda_device *device, const void *data, const char *name,
                                 fp8_error *err)
{
    const fp8_cu_pointer given = (fp8_cu_pointer)(uintptr_t)data;
    fp8_cu_pointer on_device = 0;
    if (!data)
        return FP8_OK;
    const fp8_cu_result result =
        device->driver.cuPointerGetAttribute(&on_device, FP8_CU_POINTER_ON_DEVICE, given);
    FP8_FAIL_IF(result == FP8_CU_SUCCESS && on_device != given, err, FP8_E_ARGUMENT,
                "%s is memory of the host, which %s knows by another address", name, device->label);
    if (result != FP8_CU_SUCCESS)
        return fp8_driver_fail(&device->driver, result, err, "%s is no memory that %s can read",
                               name, device->label);
    return check_owner(device, data, name, err);
}

fp8_status fp8_cuda_look_for(const fp8_cuda_device *device, const void *data, bool *on_device,
                             fp8_error *err)
{
    const fp8_cu_pointer given = (fp8_cu_pointer)(uintptr_t)data;
    fp8_cu_pointer there = 0;
    FP8_TRY(ask(device, data, FP8_CU_POINTER_ON_DEVICE, &there, err));
    *on_device = there && there == given;
    return check_owner(device, data, "the memory", err);
}
