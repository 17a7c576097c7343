/* SPDX-License-Identifier: Apache-2.0
 *
 * torch_shim.c - finds PyTorch's stable C interface in the process. */
#define _GNU_SOURCE
#include "torch_shim.h"

#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

torch_shim fp8_torch;

fp8_status fp8_torch_fail(fp8_error *err, fp8_status code, const char *format, ...)
{
    if (!err)
        return code;
    va_list words;
    va_start(words, format);
    vsnprintf(err->msg, sizeof err->msg, format, words);
    va_end(words);
    err->code = code;
    err->os_errno = 0;
    err->pos = -1;
    return code;
}

/* POSIX has a function's address in a void *, C has no cast for it. */
static bool look_up(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    memcpy(function, &found, sizeof found);
    return found != NULL;
}

fp8_status fp8_torch_load(const char *path, const char *cuda, fp8_error *err)
{
    void *library = dlopen(path, RTLD_NOLOAD | RTLD_LAZY);
    void *for_cuda = dlopen(cuda, RTLD_NOLOAD | RTLD_LAZY);
    if (!library)
        return fp8_torch_fail(err, FP8_E_NOT_FOUND, "torch: %s is not loaded", path);
#define FP8_FIND(name, result, arguments)           \
    if (!look_up(library, #name, &fp8_torch.name))  \
        return fp8_torch_fail(err, FP8_E_NOT_FOUND, \
                              "torch: %s has no %s, PyTorch 2.9 or newer is needed", path, #name);
    FP8_TORCH_REQUIRED(FP8_FIND)
#undef FP8_FIND
#define FP8_FIND(name, result, arguments) look_up(library, #name, &fp8_torch.name);
    FP8_TORCH_OPTIONAL(FP8_FIND)
#undef FP8_FIND
#define FP8_FIND(name, result, arguments) \
    if (for_cuda)                         \
        look_up(for_cuda, #name, &fp8_torch.name);
    FP8_TORCH_CUDA(FP8_FIND)
#undef FP8_FIND
    return FP8_OK;
}
