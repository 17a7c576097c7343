/* SPDX-License-Identifier: Apache-2.0
 *
 * status.h - how every function of the library reports failure: a status returned, words in a
 * caller-owned fp8_error. Only these macros write one. */
#ifndef FP8_BASE_STATUS_H
#define FP8_BASE_STATUS_H

#include "fp8.h"

/* Fills *err (NULL: nothing) with code and a one-line message. Control characters in the text,
 * which can come from names in files, are replaced by '?'. pos: see fp8_error. */
void fp8_error_set(fp8_error *err, fp8_status code, int64_t pos, const char *format, ...)
    __attribute__((format(printf, 4, 5)));

/* fp8_error_set, then the value `code`: return fp8_fail(err, FP8_E_SHAPE, "k=%d", k). Macros, so
 * that compilers and analysers see which status comes back. */
#define fp8_fail(err, code, ...)         (fp8_error_set(err, code, -1, __VA_ARGS__), (code))
#define fp8_fail_at(err, code, pos, ...) (fp8_error_set(err, code, pos, __VA_ARGS__), (code))

/* The same for a failed system call: appends the text of os_errno, and makes ENOSPC and EDQUOT
 * NO_SPACE, ENOMEM NO_MEMORY, ENOENT NOT_FOUND and the rest IO. */
fp8_status fp8_error_set_os(fp8_error *err, int os_errno, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
#define fp8_fail_os(err, os_errno, ...) fp8_never_ok(fp8_error_set_os(err, os_errno, __VA_ARGS__))

/* `status`, in a form from which analysers see that it is no FP8_OK. */
static inline fp8_status fp8_never_ok(fp8_status status)
{
    return status != FP8_OK ? status : FP8_E_IO;
}

/* Puts a formatted text (a file's name, say) and ": " in front of the message that *err holds.
 * Returns err's code; FP8_OK if err is NULL. */
fp8_status fp8_error_prefix(fp8_error *err, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/* Returns from the calling function with a status and words if the condition holds. */
#define FP8_FAIL_IF(cond, err, code, ...)            \
    do {                                             \
        if (cond)                                    \
            return fp8_fail(err, code, __VA_ARGS__); \
    } while (0)

/* Returns from the calling function if the expression is not FP8_OK. */
#define FP8_TRY(expr)                 \
    do {                              \
        fp8_status fp8_try_ = (expr); \
        if (fp8_try_ != FP8_OK)       \
            return fp8_try_;          \
    } while (0)

#endif
