/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_main.h - what main of a test on a GPU does. Include it after cmocka.h. */
#ifndef FP8_TESTS_GPU_MAIN_H
#define FP8_TESTS_GPU_MAIN_H

#include "support/gpu.h"

/* Runs the tests with *gpu a context of GPU 0, between two functions for all of them (NULL: none),
 * and returns what main returns: how many failed, or GPU_SKIPPED where there is no GPU. */
static inline int gpu_main_with(const struct CMUnitTest *tests, size_t count, fp8_context **gpu,
                                CMFixtureFunction before, CMFixtureFunction after)
{
    *gpu = gpu_context();
    if (!*gpu)
        return GPU_SKIPPED;
    const int failed = _cmocka_run_group_tests("tests", tests, count, before, after);
    fp8_context_free(*gpu);
    return failed;
}

static inline int gpu_main(const struct CMUnitTest *tests, size_t count, fp8_context **gpu)
{
    return gpu_main_with(tests, count, gpu, NULL, NULL);
}

#endif
