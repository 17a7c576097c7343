/* SPDX-License-Identifier: Apache-2.0
 *
 * capability.c - what vLLM asks of a GPU, a build and a shape before it takes a kernel, as tables
 * and predicates. Numbers come in as arguments; nothing here looks at a device. */
#include "base/status.h"

#include <limits.h>
#include <stdbool.h>

/* A feature from one compute capability up to another, not included, from a CUDA version on. */
static const struct support {
    fp8_gpu_feature feature;
    int32_t from, below, cuda;
} supports[] = {
    {FP8_GPU_FP8, 89, 90, 12040},
    {FP8_GPU_FP8, 90, INT_MAX, 12000},
    {FP8_GPU_BLOCK_FP8, 90, 100, 12000},
    {FP8_GPU_BLOCK_FP8, 100, INT_MAX, 12080},
    {FP8_GPU_GROUPED_GEMM, 90, 100, 12030},
    {FP8_GPU_GROUPED_GEMM, 100, 110, 12080},
    {FP8_GPU_GROUPED_GEMM_KERNEL, 90, 100, 12030},
    {FP8_GPU_GROUPED_GEMM_KERNEL, 100, 120, 12080},
    {FP8_GPU_SPARSE_24, 90, INT_MAX, 12020},
};

int fp8_gpu_supports(fp8_gpu_feature feature, int32_t capability, int32_t cuda_version)
{
    for (size_t i = 0; i < sizeof supports / sizeof *supports; i++) {
        const struct support *s = &supports[i];
        if (s->feature == feature && capability >= s->from && capability < s->below)
            return cuda_version >= s->cuda;
    }
    return 0;
}

fp8_status fp8_dispatch_scaled_mm(const fp8_dispatch_desc *desc, fp8_kernel_class *out,
                                  fp8_error *err)
{
    FP8_FAIL_IF(!desc || !out, err, FP8_E_ARGUMENT, "dispatch: %s is NULL", desc ? "out" : "desc");
    FP8_FAIL_IF(desc->struct_bytes != sizeof *desc, err, FP8_E_ARGUMENT,
                "dispatch: struct_bytes is %u, this library knows %zu", desc->struct_bytes,
                sizeof *desc);
    const bool w = desc->per_tensor_weights, x = desc->per_tensor_activations;
    if (desc->cutlass_supported)
        *out = FP8_CLASS_CUTLASS;
    else if (w && x)
        *out = desc->is_rocm ? FP8_CLASS_ROCM_PER_TENSOR : FP8_CLASS_TORCH_PER_TENSOR;
    else if (!w && !x && desc->per_token_if_dynamic && desc->has_rowwise)
        *out = FP8_CLASS_TORCH_PER_TOKEN;
    else
        *out = FP8_CLASS_TORCH_CHANNELWISE;
    return FP8_OK;
}

fp8_kernel_class fp8_kernel_class_of(int32_t capability, int is_block)
{
    if (capability < 89)
        return FP8_CLASS_MARLIN;
    if (!is_block)
        return FP8_CLASS_CUTLASS;
    return capability < 90 ? FP8_CLASS_TRITON_BLOCK : FP8_CLASS_CUTLASS_BLOCK;
}

int fp8_deepgemm_supports_shape(int64_t n, int64_t k, fp8_dtype y)
{
    return y == FP8_BF16 && n % 64 == 0 && k % 128 == 0;
}

int fp8_marlin_supports_shape(int64_t n, int64_t k, int64_t k_whole, int64_t group)
{
    if (n % 64 != 0 || k % 128 != 0)
        return 0;
    return group <= 0 || group >= k_whole || k % group == 0;
}
