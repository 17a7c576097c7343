/* SPDX-License-Identifier: Apache-2.0
 *
 * golden_quant.c - quantizes and compares the vectors' weights and inputs. */
#include "golden/golden_quant.h"
#include "base/context.h"

#include <string.h>

fp8_quantize_desc golden_quantize_desc(fp8_rule rule, int64_t rows, int64_t cols)
{
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.rule = rule;
    desc.grid = (fp8_grid){rows, cols};
    return desc;
}

/* The dtype of scales: e8m0 lies in the files as U8. */
static fp8_dtype scale_dtype(const golden_quant *q)
{
    return q->scales->view.dtype == FP8_U8 ? FP8_E8M0FNU : q->scales->view.dtype;
}

/* The scales' matrix over memory laid out as the file has it. */
static fp8_tensor scales_over(const golden_quant *q, void *memory)
{
    const fp8_tensor stored = golden_matrix(q->scales);
    fp8_tensor t = fp8_matrix(memory, scale_dtype(q), stored.shape[0], stored.shape[1]);
    if (q->by_column) {
        t.shape[0] = stored.shape[1];
        t.shape[1] = stored.shape[0];
        t.stride[0] = 1;
        t.stride[1] = stored.shape[1];
    }
    return t;
}

static fp8_status by_linear(const fp8_context *ctx, const golden_quant *q, fp8_tensor *codes,
                            fp8_tensor *scales, fp8_error *err)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_linear *linear;
    desc.w = q->desc;
    desc.w_scale = scale_dtype(q);
    const fp8_status status = fp8_linear_create(ctx, &desc, &q->x, NULL, NULL, &linear, err);
    if (status != FP8_OK)
        return status;
    const fp8_status exported = fp8_linear_export(linear, codes, scales, err);
    fp8_linear_free(linear);
    return exported;
}

static bool same_at(const fp8_context *ctx, const golden_quant *q, bool linear, fp8_error *err)
{
    const int64_t rows = q->x.shape[0], cols = q->x.shape[1];
    const size_t bytes = (size_t)q->scales->bytes;
    fp8_tensor codes = fp8_matrix(calloc((size_t)(rows * cols + 1), 1), FP8_E4M3FN, rows, cols);
    fp8_tensor scales = scales_over(q, malloc(bytes + 1));
    if (q->desc.static_scales)
        memcpy(scales.data, q->scales->view.data, bytes);
    else
        memset(scales.data, 0xFF, bytes);
    fp8_status status = linear ? by_linear(ctx, q, &codes, &scales, err)
                               : fp8_quantize(ctx, &q->desc, &q->x, &codes, &scales, NULL, err);
    bool ok = status == FP8_OK;
    if (ok && memcmp(scales.data, q->scales->view.data, bytes)) {
        ok = false;
        snprintf(err->msg, sizeof err->msg, "scales differ");
    }
    if (ok && q->codes && memcmp(codes.data, q->codes->view.data, (size_t)(rows * cols))) {
        ok = false;
        snprintf(err->msg, sizeof err->msg, "codes differ");
    }
    free(codes.data);
    free(scales.data);
    return ok;
}

void golden_quant_check(const golden_quant *q, const char *mode)
{
    fp8_error err = {.msg = "a tensor is missing or of another size"};
    const char *level = "none";
    bool ok = q->x.data && q->scales &&
              (!q->codes || (int64_t)q->codes->bytes == q->x.shape[0] * q->x.shape[1]);
    for (int isa = 0; ok && isa <= FP8_ISA_LAST; isa++) {
        const fp8_context *ctx = golden_context(isa);
        level = fp8_isa_name((fp8_isa)isa);
        ok = !ctx ||
             (same_at(ctx, q, false, &err) && (!q->is_weight || same_at(ctx, q, true, &err)));
    }
    golden_check(q->family, mode, ok, "%s, level %s: %s", q->name, level, err.msg);
}
