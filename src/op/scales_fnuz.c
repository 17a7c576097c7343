/* SPDX-License-Identifier: Apache-2.0
 *
 * scales_fnuz.c - an e4m3fn weight made one of e4m3fnuz in place. The same bits are worth half in
 * e4m3fnuz, whose exponent bias is one more, so scales are doubled; but 0x80 is -0 in the one and
 * NaN in the other. */
#include "number/dtype.h"
#include "op/tensor_check.h"

static fp8_status check_scales(const fp8_tensor *codes, const fp8_tensor *t, const char *name,
                               fp8_error *err)
{
    if (!t)
        return FP8_OK;
    FP8_TRY(fp8_check_matrix(t, name, -1, -1, err));
    FP8_FAIL_IF(!fp8_dtype_is_scale(t->dtype), err, FP8_E_DTYPE,
                "%s must be F32, F16, BF16 or F8_E8M0", name);
    FP8_TRY(fp8_check_distinct(t, name, err));
    return fp8_check_apart(codes, "codes", t, name, err);
}

static void double_all(const fp8_tensor *t)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(t->dtype);
    for (int64_t i = 0; i < t->shape[0]; i++)
        for (int64_t j = 0; j < t->shape[1]; j++) {
            const int64_t at = i * t->stride[0] + j * t->stride[1];
            facts->store(t->data, at, facts->load(t->data, at) * 2, t->dtype == FP8_E8M0FNU);
        }
}

fp8_status fp8_normalize_e4m3fn_to_e4m3fnuz(fp8_tensor *codes, fp8_tensor *weight_scales,
                                            fp8_tensor *input_scales, fp8_error *err)
{
    FP8_TRY(fp8_check_matrix(codes, "codes", -1, -1, err));
    FP8_FAIL_IF(codes->dtype != FP8_E4M3FN, err, FP8_E_DTYPE, "codes must be F8_E4M3");
    FP8_TRY(fp8_check_distinct(codes, "codes", err));
    FP8_TRY(check_scales(codes, weight_scales, "weight_scales", err));
    FP8_TRY(check_scales(codes, input_scales, "input_scales", err));
    if (weight_scales && input_scales)
        FP8_TRY(fp8_check_apart(weight_scales, "weight_scales", input_scales, "input_scales", err));
    for (int64_t i = 0; i < codes->shape[0]; i++)
        for (int64_t j = 0; j < codes->shape[1]; j++) {
            uint8_t *code = (uint8_t *)codes->data + i * codes->stride[0] + j * codes->stride[1];
            *code = *code == 0x80 ? 0 : *code;
        }
    codes->dtype = FP8_E4M3FNUZ;
    if (weight_scales)
        double_all(weight_scales);
    if (input_scales)
        double_all(input_scales);
    return FP8_OK;
}
