/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_main.h - what main of a test on a GPU does. Include it after cmocka.h. */
#ifndef FP8_TESTS_GPU_MAIN_H
#define FP8_TESTS_GPU_MAIN_H

#include "support/gpu.h"

/* Runs the tests with *gpu a context of GPU 0, and returns what main returns: how many failed, or
 * GPU_SKIPPED where there is no GPU. */
static inline int gpu_main(const struct CMUnitTest *tests, size_t count, fp8_context **gpu)
{
    *gpu = gpu_context();
    if (!*gpu)
        return GPU_SKIPPED;
    const int failed = _cmocka_run_group_tests("tests", tests, count, NULL, NULL);
    fp8_context_free(*gpu);
    return failed;
}

#endif
