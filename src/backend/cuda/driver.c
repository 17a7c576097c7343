/* SPDX-License-Identifier: Apache-2.0
 *
 * driver.c - filling the table of the driver's functions, and its results as statuses.
 * There is no state: every context has a table of its own, and dlopen and cuInit count for
 * themselves. Tests: tests/cuda, with a driver that fails when told to. */
#define _GNU_SOURCE
#include "backend/cuda/driver.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

typedef fp8_cu_result get_version_fn FP8_DRIVER_GET_VERSION;
typedef fp8_cu_result get_proc_fn FP8_DRIVER_GET_PROC;

enum { REQUIRED = 1, OPTIONAL = 0 };
static const fp8_driver_function functions[] = {
#define ROW(name, since, need, arguments) {#name, since, need, offsetof(fp8_driver, name)},
    FP8_DRIVER_FUNCTIONS(ROW)
#undef ROW
};

const fp8_driver_function *fp8_driver_function_at(size_t i)
{
    return i < sizeof functions / sizeof *functions ? &functions[i] : NULL;
}

/* What a result means to a caller; all others are FP8_E_DEVICE. */
static const struct {
    fp8_cu_result first, last;
    fp8_status status;
} statuses[] = {
    {1, 1, FP8_E_ARGUMENT},        /* INVALID_VALUE */
    {2, 2, FP8_E_NO_MEMORY},       /* OUT_OF_MEMORY */
    {3, 4, FP8_E_STATE},           /* NOT_INITIALIZED (after a fork), DEINITIALIZED */
    {34, 34, FP8_E_NO_DEVICE},     /* STUB_LIBRARY */
    {36, 36, FP8_E_UNSUPPORTED},   /* CALL_REQUIRES_NEWER_DRIVER */
    {46, 46, FP8_E_NO_DEVICE},     /* DEVICE_UNAVAILABLE */
    {100, 102, FP8_E_NO_DEVICE},   /* NO_DEVICE, INVALID_DEVICE, DEVICE_NOT_LICENSED */
    {200, 200, FP8_E_NO_KERNEL},   /* INVALID_IMAGE */
    {201, 201, FP8_E_STATE},       /* INVALID_CONTEXT */
    {209, 209, FP8_E_NO_KERNEL},   /* NO_BINARY_FOR_GPU */
    {218, 218, FP8_E_NO_KERNEL},   /* INVALID_PTX */
    {221, 223, FP8_E_NO_KERNEL},   /* JIT_COMPILER_NOT_FOUND .. JIT_COMPILATION_DISABLED */
    {400, 400, FP8_E_ARGUMENT},    /* INVALID_HANDLE */
    {500, 500, FP8_E_NO_KERNEL},   /* NOT_FOUND */
    {709, 709, FP8_E_STATE},       /* CONTEXT_IS_DESTROYED */
    {800, 801, FP8_E_UNSUPPORTED}, /* NOT_PERMITTED, NOT_SUPPORTED */
    {802, 804, FP8_E_NO_DEVICE},   /* SYSTEM_NOT_READY, SYSTEM_DRIVER_MISMATCH, COMPAT_.. */
    {900, 908, FP8_E_STATE},       /* STREAM_CAPTURE_.. */
};

static fp8_status status_of(fp8_cu_result result)
{
    for (size_t i = 0; i < sizeof statuses / sizeof *statuses; i++)
        if (result >= statuses[i].first && result <= statuses[i].last)
            return statuses[i].status;
    return FP8_E_DEVICE;
}

/* The text that a driver has for a result, or "?". */
static const char *words(fp8_cu_result (*get)(fp8_cu_result, const char **), fp8_cu_result result)
{
    const char *text = NULL;
    return get && get(result, &text) == FP8_CU_SUCCESS && text ? text : "?";
}

fp8_status fp8_driver_error(const fp8_driver *driver, fp8_cu_result result, fp8_error *err,
                            const char *format, ...)
{
    char text[256];
    va_list args;
    va_start(args, format);
    vsnprintf(text, sizeof text, format, args);
    va_end(args);
    fp8_status status = status_of(result);
    fp8_error_set(err, status, -1, "%s: %s (%u): %s", text, words(driver->cuGetErrorName, result),
                  result, words(driver->cuGetErrorString, result));
    return status;
}

/* out->version, which must be enough for everything that follows. */
static fp8_status check_version(void *handle, const char *file, fp8_driver *out, fp8_error *err)
{
    get_version_fn *get = NULL;
    *(void **)&get = dlsym(handle, "cuDriverGetVersion");
    FP8_FAIL_IF(!get, err, FP8_E_NO_DEVICE, "%s is no CUDA driver: it has no cuDriverGetVersion",
                file);
    int version = 0;
    fp8_cu_result result = get(&version);
    if (result != FP8_CU_SUCCESS)
        return fp8_driver_fail(out, result, err, "%s: cuDriverGetVersion", file);
    FP8_FAIL_IF(version < FP8_DRIVER_LEAST, err, FP8_E_UNSUPPORTED,
                "the CUDA driver (%s) supports CUDA %d.%d, must be %d.%d or later", file,
                version / 1000, version % 1000 / 10, FP8_DRIVER_LEAST / 1000,
                FP8_DRIVER_LEAST % 1000 / 10);
    out->version = version;
    return FP8_OK;
}

static fp8_status fill(void *handle, const char *file, fp8_driver *out, fp8_error *err)
{
    get_proc_fn *get = NULL;
    *(void **)&get = dlsym(handle, "cuGetProcAddress_v2");
    FP8_FAIL_IF(!get, err, FP8_E_UNSUPPORTED,
                "the CUDA driver (%s, CUDA %d.%d) has no cuGetProcAddress_v2", file,
                out->version / 1000, out->version % 1000 / 10);
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
        void *function = NULL;
        unsigned int found = 0;
        fp8_cu_result result = get(functions[i].name, &function, functions[i].since, 0, &found);
        if (result != FP8_CU_SUCCESS)
            function = NULL;
        FP8_FAIL_IF(!function && functions[i].required, err, FP8_E_UNSUPPORTED,
                    "the CUDA driver (%s, CUDA %d.%d) has no %s of CUDA %d.%d (result %u, %u)",
                    file, out->version / 1000, out->version % 1000 / 10, functions[i].name,
                    functions[i].since / 1000, functions[i].since % 1000 / 10, result, found);
        memcpy((char *)out + functions[i].offset, &function, sizeof function);
    }
    return FP8_OK;
}

fp8_status fp8_driver_load(const char *file, fp8_driver *out, fp8_error *err)
{
    *out = (fp8_driver){0};
    void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!handle) {
        const char *why = dlerror();
        return fp8_fail(err, FP8_E_NO_DEVICE, "no CUDA driver: %s", why ? why : file);
    }
    fp8_status status = check_version(handle, file, out, err);
    if (status == FP8_OK)
        status = fill(handle, file, out, err);
    dlclose(handle); /* which unloads nothing */
    FP8_TRY(status);
    FP8_DRIVER_TRY(out, err, file, cuInit, 0);
    return FP8_OK;
}
