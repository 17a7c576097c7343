/* SPDX-License-Identifier: Apache-2.0
 *
 * tensor_map.c - asks the driver for a descriptor. */
#include "backend/cuda/tensor_map.h"

fp8_status fp8_cuda_make_map(const fp8_cuda_device *device, const fp8_cuda_map_of *of,
                             fp8_tensor_map *out, fp8_error *err)
{
    const int64_t row = of->rows == 1 ? (of->cols + 15) / 16 * 16 : of->stride;
    const uint64_t extent[2] = {(uint64_t)of->cols, (uint64_t)of->rows};
    const uint64_t stride[1] = {(uint64_t)row * of->element_bytes};
    const uint32_t box[2] = {(uint32_t)of->box_cols, (uint32_t)of->box_rows}, step[2] = {1, 1};
    FP8_DRIVER_TRY(&device->driver, err, device->label, cuTensorMapEncodeTiled,
                   (struct CUtensorMap_st *)(void *)out, of->type, 2, (void *)(uintptr_t)of->data,
                   extent, stride, box, step, 0, of->swizzle, of->promotion, 0);
    return FP8_OK;
}
