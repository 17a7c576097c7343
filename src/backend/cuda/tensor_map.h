/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_map.h - descriptors by which bulk copies find boxes of a matrix: 100 ns each to make, so
 * they are made for each run.
 *
 * Promotion to 256 bytes makes the L2 fetch the neighbour of each line of a box. A weight that is
 * read once must go without: an H200 gives boxes of rows at 4.2 TB/s with it, at 4.47 without (4.52
 * are what consecutive bytes reach). Where several blocks read a tile the neighbour, of the next k
 * block, is there when they ask for it: up to 4 % for products of many rows. */
#ifndef FP8_BACKEND_CUDA_TENSOR_MAP_H
#define FP8_BACKEND_CUDA_TENSOR_MAP_H

#include "backend/cuda/launch.h"
#include "backend/cuda/sm90_args.h"

/* Boxes of box_rows x box_cols of a row-major matrix[rows, cols]. */
typedef struct fp8_cuda_map_of {
    const void *data;
    int64_t rows, cols, stride; /* elements */
    int32_t box_rows, box_cols;
    uint32_t type, swizzle, element_bytes; /* FP8_CU_MAP_.. */
    uint32_t promotion;                    /* FP8_CU_MAP_L2_.. */
} fp8_cuda_map_of;

/* Whether there is a descriptor of a matrix of so many rows, `stride` elements of so many bytes
 * from row to row: not if rows go backwards; those that are read may overlap, or be one. */
static inline bool fp8_cuda_has_map(const void *data, int64_t rows, int64_t stride, int64_t bytes)
{
    enum { ALIGN = 16 };
    const int64_t most = ((int64_t)1 << 40) / bytes; /* exclusive */
    return (uintptr_t)data % ALIGN == 0 &&
           (rows == 1 || (stride >= 0 && stride < most && stride * bytes % ALIGN == 0));
}

/* The stride of one row is not looked at. Errors: what the driver says of a matrix that bulk copies
 * cannot take. */
fp8_status fp8_cuda_make_map(const fp8_cuda_device *device, const fp8_cuda_map_of *of,
                             fp8_tensor_map *out, fp8_error *err);

#endif
