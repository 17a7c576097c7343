/* SPDX-License-Identifier: Apache-2.0
 *
 * status.c - names of statuses and the writing of fp8_error. */
#define _POSIX_C_SOURCE 200809L
#include "base/status.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const struct {
    fp8_status code;
    const char *name;
} status_names[] = {
    {FP8_OK, "FP8_OK"},
    {FP8_E_ARGUMENT, "FP8_E_ARGUMENT"},
    {FP8_E_STATE, "FP8_E_STATE"},
    {FP8_E_STOPPED, "FP8_E_STOPPED"},
    {FP8_E_SHAPE, "FP8_E_SHAPE"},
    {FP8_E_STRIDE, "FP8_E_STRIDE"},
    {FP8_E_DTYPE, "FP8_E_DTYPE"},
    {FP8_E_SCALE, "FP8_E_SCALE"},
    {FP8_E_NAN, "FP8_E_NAN"},
    {FP8_E_UNSUPPORTED, "FP8_E_UNSUPPORTED"},
    {FP8_E_NO_DEVICE, "FP8_E_NO_DEVICE"},
    {FP8_E_NO_KERNEL, "FP8_E_NO_KERNEL"},
    {FP8_E_DEVICE, "FP8_E_DEVICE"},
    {FP8_E_FORMAT, "FP8_E_FORMAT"},
    {FP8_E_TRUNCATED, "FP8_E_TRUNCATED"},
    {FP8_E_NOT_FOUND, "FP8_E_NOT_FOUND"},
    {FP8_E_EXISTS, "FP8_E_EXISTS"},
    {FP8_E_MISMATCH, "FP8_E_MISMATCH"},
    {FP8_E_IO, "FP8_E_IO"},
    {FP8_E_NO_SPACE, "FP8_E_NO_SPACE"},
    {FP8_E_NO_MEMORY, "FP8_E_NO_MEMORY"},
};

const char *fp8_status_name(fp8_status status)
{
    for (size_t i = 0; i < sizeof status_names / sizeof *status_names; i++)
        if (status_names[i].code == status)
            return status_names[i].name;
    return "FP8_E_?";
}

/* Keeps a message on one line whatever names it quotes. */
static void replace_control_characters(char *text)
{
    for (; *text; text++)
        if ((unsigned char)*text < 0x20 || *text == 0x7f)
            *text = '?';
}

static void fill(fp8_error *err, fp8_status code, int os_errno, int64_t pos, const char *format,
                 va_list args)
{
    err->code = code;
    err->os_errno = os_errno;
    err->pos = pos;
    int n = vsnprintf(err->msg, sizeof err->msg, format, args);
    size_t used = n < 0 ? 0 : (size_t)n;
    if (os_errno && used + 3 < sizeof err->msg) {
        char text[128];
        if (strerror_r(os_errno, text, sizeof text))
            snprintf(text, sizeof text, "errno %d", os_errno);
        snprintf(err->msg + used, sizeof err->msg - used, ": %s", text);
    }
    replace_control_characters(err->msg);
}

void fp8_error_set(fp8_error *err, fp8_status code, int64_t pos, const char *format, ...)
{
    if (!err)
        return;
    va_list args;
    va_start(args, format);
    fill(err, code, 0, pos, format, args);
    va_end(args);
}

static fp8_status status_of_errno(int os_errno)
{
    switch (os_errno) {
    case ENOSPC:
    case EDQUOT:
        return FP8_E_NO_SPACE;
    case ENOMEM:
        return FP8_E_NO_MEMORY;
    case ENOENT:
        return FP8_E_NOT_FOUND;
    default:
        return FP8_E_IO;
    }
}

fp8_status fp8_error_set_os(fp8_error *err, int os_errno, const char *format, ...)
{
    fp8_status code = status_of_errno(os_errno);
    if (err) {
        va_list args;
        va_start(args, format);
        fill(err, code, os_errno, -1, format, args);
        va_end(args);
    }
    return code;
}

fp8_status fp8_error_prefix(fp8_error *err, const char *format, ...)
{
    if (!err)
        return FP8_OK;
    char old[sizeof err->msg], prefix[sizeof err->msg];
    memcpy(old, err->msg, sizeof old);
    va_list args;
    va_start(args, format);
    vsnprintf(prefix, sizeof prefix, format, args);
    va_end(args);
    int n = snprintf(err->msg, sizeof err->msg, "%s: ", prefix);
    if (n > 0 && (size_t)n < sizeof err->msg) {
        size_t kept = strnlen(old, sizeof err->msg - (size_t)n - 1);
        memcpy(err->msg + n, old, kept);
        err->msg[(size_t)n + kept] = 0;
    }
    replace_control_characters(err->msg);
    return err->code;
}
