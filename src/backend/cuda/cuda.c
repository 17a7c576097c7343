/* SPDX-License-Identifier: Apache-2.0
 *
 * cuda.c - CUDA devices as contexts and callers see them: a context of a device finds out whether
 * driver and device will do, holds the device, and loads the kernels. */
#include "backend/cuda/cuda_device.h"
#include "backend/cuda/upload.h"
#include "base/context.h"

#include <stdio.h>
#include <string.h>

static fp8_status load(const fp8_context *ctx, const char *tuned, fp8_cuda_device *device,
                       fp8_error *err)
{
    FP8_TRY(fp8_tuned_load(ctx, device->facts.name, tuned, &device->tuned, err));
    device->upload = fp8_cuda_upload_new(ctx);
    FP8_FAIL_IF(!device->upload, err, FP8_E_NO_MEMORY, "context: no memory for what goes to %s",
                device->label);
    FP8_TRY(fp8_cuda_enter(device, err));
    const fp8_status status = fp8_cuda_module_load(device, err);
    fp8_cuda_leave(device);
    return status;
}

static fp8_status open_and_load(const fp8_context *ctx, const fp8_driver *driver, int32_t index,
                                const char *tuned, fp8_cuda_device *device, fp8_error *err)
{
    FP8_TRY(fp8_cuda_open(driver, index, device, err));
    const fp8_status status = load(ctx, tuned, device, err);
    if (status != FP8_OK) {
        fp8_cuda_upload_free(ctx, device, device->upload);
        fp8_tuned_free(ctx, &device->tuned);
        fp8_cuda_close(device);
    }
    return status;
}

fp8_status fp8_cuda_attach(const fp8_context *ctx, int32_t index, const char *tuned,
                           fp8_cuda_device **out, fp8_error *err)
{
    fp8_driver driver;
    *out = NULL;
    FP8_TRY(fp8_driver_load(FP8_DRIVER_NAME, &driver, err));
    fp8_cuda_device *device = fp8_alloc(ctx, sizeof *device);
    FP8_FAIL_IF(!device, err, FP8_E_NO_MEMORY, "context: no memory for %zu bytes", sizeof *device);
    fp8_status status = open_and_load(ctx, &driver, index, tuned, device, err);
    if (status == FP8_OK)
        *out = device;
    else
        fp8_release(ctx, device);
    return status;
}

void fp8_cuda_detach(const fp8_context *ctx, fp8_cuda_device *device)
{
    if (!device)
        return;
    fp8_cuda_upload_free(ctx, device, device->upload);
    fp8_tuned_free(ctx, &device->tuned);
    fp8_cuda_module_unload(device);
    fp8_cuda_close(device);
    fp8_release(ctx, device);
}

const char *fp8_cuda_label(const fp8_cuda_device *device)
{
    return device->label;
}

void fp8_cuda_write_choices(const fp8_cuda_device *device, char *line, size_t bytes)
{
    const fp8_tuned *t = &device->tuned;
    int end = snprintf(line, bytes, "choices: %lld measured, built in",
                       (long long)t->count - (long long)t->of_file);
    if (t->of_file || t->unknown)
        end +=
            snprintf(line + end, bytes - (size_t)end, "; %lld by the file", (long long)t->of_file);
    if (t->unknown)
        snprintf(line + end, bytes - (size_t)end,
                 "; %lld lines of it are of kernels that this library has not",
                 (long long)t->unknown);
}

/* What would run on such a device. */
static const char *what_runs(int32_t capability)
{
    _Static_assert(FP8_CUDA_LEAST_CAPABILITY == 80, "the text says 8.0");
    if (capability < FP8_CUDA_LEAST_CAPABILITY)
        return "nothing: its compute capability is below 8.0";
    return fp8_cuda_has_kernels() ? "quantizers, linears and layers"
                                  : "nothing: this build has no CUDA kernels";
}

const char *fp8_cuda_build(void)
{
    return fp8_cuda_has_kernels() ? "for compute capabilities 8.0, 8.9 and 9.0, PTX for later ones"
                                  : "none in this build";
}

fp8_status fp8_gpu(int64_t i, fp8_gpu_info *out, fp8_error *err)
{
    fp8_driver driver;
    fp8_cuda_facts facts;
    int32_t count;
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "gpu: out is NULL");
    FP8_TRY(fp8_driver_load(FP8_DRIVER_NAME, &driver, err));
    FP8_TRY(fp8_cuda_count(&driver, &count, err));
    FP8_FAIL_IF(i < 0 || i >= count, err, FP8_E_NOT_FOUND, "gpu: there is no GPU %lld of %d",
                (long long)i, count);
    FP8_TRY(fp8_cuda_describe(&driver, (int32_t)i, &facts, err));
    *out = (fp8_gpu_info){.capability = facts.capability,
                          .processors = facts.processors,
                          .memory_bytes = facts.memory_bytes,
                          .driver_version = driver.version,
                          .runs = what_runs(facts.capability)};
    _Static_assert(sizeof out->name == sizeof facts.name, "copied whole");
    memcpy(out->name, facts.name, sizeof out->name);
    return FP8_OK;
}
