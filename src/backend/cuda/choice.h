/* SPDX-License-Identifier: Apache-2.0
 *
 * choice.h - the choice among the versions of sm90.h or of wide.h, by their numbers: the one that
 * was measured to be the fastest for a problem, else the one with the least estimate; of equals the
 * first. */
#ifndef FP8_BACKEND_CUDA_CHOICE_H
#define FP8_BACKEND_CUDA_CHOICE_H

#include "backend/cuda/cuda_device.h"

typedef struct fp8_choice {
    const fp8_cuda_device *device;
    const void *problem; /* of either */
    /* us; negative: version i cannot do the problem, or is not there. */
    float (*estimate)(const fp8_cuda_device *device, size_t i, const void *problem);
    size_t versions;          /* so many */
    const fp8_tuned_row *row; /* what was measured .. */
    size_t measured;          /* .. of this version, which can; row NULL: nothing */
} fp8_choice;

/* The version to take; `versions` if none can. */
size_t fp8_choice_best(const fp8_choice *choice);
/* How many can; number i < that of them, the fastest first, which is the best. */
int64_t fp8_choice_count(const fp8_choice *choice);
size_t fp8_choice_at(const fp8_choice *choice, int64_t i);

#endif
