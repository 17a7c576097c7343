/* SPDX-License-Identifier: Apache-2.0
 *
 * test_block_quant.c - the quantizers around block matmuls, byte for byte.
 *
 *     per_block_cast          rule vllm, blocks; weights are also quantized by fp8_linear_create.
 *                             Left out: *_recip, the scale that a compiler makes of a division
 *     per_token_group_quant   rule vllm, groups; *_triton by rule vllm-triton, *_compiled as rows
 *                             of each group. Left out: *_ue1_triton, which no rule describes
 *     requant_weight_ue8m0    fp8_requantize to power-of-two blocks, per expert
 *     upcast_e8m0             fp8_cast. Left out: bytes 0 and 255, of which the original makes 0
 *                             and infinity */
#include "base/context.h"
#include "golden/golden_quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const char family[] = "block";

static bool ends_with(const char *name, const char *tail)
{
    const size_t n = strlen(name), m = strlen(tail);
    return n >= m && !strcmp(name + n - m, tail);
}

/* What stands before `tail` in name. */
static const char *stem_of(const char *name, const char *tail)
{
    return golden_text("%.*s", (int)(strlen(name) - strlen(tail)), name);
}

/* ---- per_block_cast -------------------------------------------------------------------------- */

/* The block of a case, "64x32" in its name. */
static fp8_grid block_of(const char *stem)
{
    long long rows = 128, cols = 128;
    const char *digits = strpbrk(stem, "0123456789");
    if (!strncmp(stem, "ns", 2) && digits)
        sscanf(digits, "%lldx%lld", &rows, &cols);
    return (fp8_grid){rows, cols};
}

static void check_block(const golden_file *f, const char *stem, const char *tail)
{
    const fp8_grid block = block_of(stem);
    golden_quant q = {.family = family, .name = golden_text("%s%s", stem, tail)};
    q.codes = golden_findf(f, "%s_q%s", stem, tail);
    q.scales = golden_findf(f, "%s_s%s", stem, tail);
    if (!q.codes)
        return;
    q.x = golden_matrix(golden_findf(f, "%s_w", stem));
    q.desc = golden_quantize_desc(FP8_RULE_VLLM, block.rows, block.cols);
    q.desc.pow2_scales = !strcmp(tail, "_ue1");
    q.is_weight = true;
    if (ends_with(tail, "_recip"))
        golden_leave_out(family, "block cast _recip");
    else
        golden_quant_check(&q, golden_text("block cast %s", *tail ? tail : "_ue0"));
}

static void check_per_block_cast(const golden_file *f)
{
    static const char *const tails[] = {"", "_ue0", "_ue1", "_ue0_recip", "_ue1_recip"};
    for (int64_t i = 0; i < golden_count(f); i++)
        for (size_t k = 0; k < sizeof tails / sizeof *tails; k++)
            if (ends_with(golden_at(f, i)->name, "_w"))
                check_block(f, stem_of(golden_at(f, i)->name, "_w"), tails[k]);
}

/* ---- per_token_group_quant ------------------------------------------------------------------- */

/* Variants of a case by what its tensors end in. */
static const struct variant {
    const char *tail, *scale_tail;
    fp8_rule rule;
    int32_t pow2;
    bool by_column, is_left_out;
} variants[] = {
    {"_ue0", "_ue0", FP8_RULE_VLLM, 0, false, false},
    {"_ue1", "_ue1", FP8_RULE_VLLM, 1, false, false},
    {"_ue0_triton", "_ue0_triton", FP8_RULE_VLLM_TRITON, 0, false, false},
    {"_ue0_triton", "_ue0_colmajor_storage", FP8_RULE_VLLM_TRITON, 0, true, false},
    {"_ue1_triton", "_ue1_triton", FP8_RULE_VLLM_TRITON, 1, false, true},
};

static void check_variant(const golden_file *f, const char *stem, const struct variant *v)
{
    const char *mode = golden_text("group%s", v->scale_tail);
    golden_quant q = {.family = family, .name = golden_text("%s%s", stem, v->scale_tail)};
    q.codes = golden_findf(f, "%s_q%s", stem, v->tail);
    q.scales = golden_findf(f, "%s_s%s", stem, v->scale_tail);
    if (!q.scales)
        return;
    if (v->is_left_out) {
        golden_leave_out(family, mode);
        return;
    }
    const fp8_tensor stored = golden_matrix(q.scales);
    q.x = golden_matrix(golden_findf(f, "%s_x", stem));
    q.by_column = v->by_column;
    q.desc = golden_quantize_desc(v->rule, 1, q.x.shape[1] / stored.shape[v->by_column ? 0 : 1]);
    q.desc.pow2_scales = v->pow2;
    golden_quant_check(&q, mode);
}

/* The compiled path floors a group's scale as the kernels do a row's: each group of columns is
 * quantized as a matrix of rows. */
static void check_compiled(const golden_file *f, const char *stem)
{
    const fp8_tensor x = golden_matrix(golden_findf(f, "%s_x", stem));
    const fp8_tensor codes = golden_matrix(golden_findf(f, "%s_q_compiled", stem));
    const fp8_tensor scales = golden_matrix(golden_findf(f, "%s_s_compiled", stem));
    if (!scales.data)
        return;
    const int64_t rows = x.shape[0], cols = x.shape[1];
    const int64_t group = !strcmp(stem, "ragged") ? 128 : cols / scales.shape[1];
    const fp8_quantize_desc desc = golden_quantize_desc(FP8_RULE_VLLM, 1, 0);
    fp8_tensor q = fp8_matrix(malloc((size_t)(rows * cols + 1)), FP8_E4M3FN, rows, cols);
    fp8_tensor s = fp8_matrix(malloc((size_t)scales.shape[1] * (size_t)rows * 4 + 1), FP8_F32, rows,
                              scales.shape[1]);
    fp8_error err = {.msg = ""};
    bool ok = codes.data != NULL;
    for (int64_t g = 0; ok && g < scales.shape[1]; g++) {
        const int64_t width = g * group + group > cols ? cols - g * group : group;
        const fp8_tensor part = golden_slice(x, 0, rows, g * group, width);
        fp8_tensor part_q = golden_slice(q, 0, rows, g * group, width);
        fp8_tensor part_s = golden_slice(s, 0, rows, g, 1);
        ok = fp8_quantize(golden_context(0), &desc, &part, &part_q, &part_s, NULL, &err) == FP8_OK;
    }
    ok = ok && !memcmp(q.data, codes.data, (size_t)(rows * cols)) &&
         !memcmp(s.data, scales.data, (size_t)(rows * scales.shape[1]) * 4);
    golden_check(family, "group_compiled", ok, "%s: %s", stem, *err.msg ? err.msg : "differs");
    free(q.data);
    free(s.data);
}

static void check_group(const golden_file *f)
{
    for (int64_t i = 0; i < golden_count(f); i++) {
        const char *name = golden_at(f, i)->name;
        if (!ends_with(name, "_x"))
            continue;
        const char *stem = stem_of(name, "_x");
        for (size_t v = 0; v < sizeof variants / sizeof *variants; v++)
            check_variant(f, stem, &variants[v]);
        check_compiled(f, stem);
    }
}

/* ---- requant_weight_ue8m0 -------------------------------------------------------------------- */

/* Expert e of a stack t[experts, rows, cols], or the matrix itself. */
static fp8_tensor expert_of(fp8_tensor t, int64_t e)
{
    if (t.ndim < 3)
        return t;
    return fp8_matrix((char *)t.data + e * t.stride[0] * fp8_dtype_bits(t.dtype) / 8, t.dtype,
                      t.shape[1], t.shape[2]);
}

static void check_expert(const char *stem, const fp8_tensor *w, const fp8_tensor *s,
                         const fp8_tensor *w_out, const fp8_tensor *s_out)
{
    const size_t n = (size_t)(w->shape[0] * w->shape[1]);
    const size_t bytes = (size_t)(s->shape[0] * s->shape[1]) * 4;
    fp8_quantize_desc to = golden_quantize_desc(FP8_RULE_VLLM, 128, 128);
    to.pow2_scales = 1;
    fp8_tensor codes = fp8_matrix(malloc(n + 1), FP8_E4M3FN, w->shape[0], w->shape[1]);
    fp8_tensor scales = fp8_matrix(malloc(bytes + 1), FP8_F32, s->shape[0], s->shape[1]);
    fp8_error err = {.msg = "differs"};
    bool ok = true;
    for (int isa = 0; ok && isa <= FP8_ISA_LAST; isa++) {
        const fp8_context *ctx = golden_context(isa);
        ok = !ctx ||
             (fp8_requantize(ctx, to.grid, w, s, &to, &codes, &scales, NULL, &err) == FP8_OK &&
              !memcmp(codes.data, w_out->data, n) && !memcmp(scales.data, s_out->data, bytes));
    }
    golden_check(family, "requant ue8m0", ok, "%s: %s", stem, err.msg);
    free(codes.data);
    free(scales.data);
}

static void check_requant(const golden_file *f)
{
    for (int64_t i = 0; i < golden_count(f); i++) {
        const golden_tensor *w = golden_at(f, i);
        if (!ends_with(w->name, "_w"))
            continue;
        const char *stem = stem_of(w->name, "_w");
        const golden_tensor *s = golden_findf(f, "%s_s", stem);
        const golden_tensor *w_out = golden_findf(f, "%s_w_out", stem);
        const golden_tensor *s_out = golden_findf(f, "%s_s_out", stem);
        if (!s || !w_out || !s_out) {
            golden_fail(family, "requant ue8m0", "%s: a tensor is missing", stem);
            continue;
        }
        for (int64_t e = 0; e < (w->view.ndim == 3 ? w->view.shape[0] : 1); e++) {
            const fp8_tensor in = expert_of(w->view, e), in_s = expert_of(s->view, e);
            const fp8_tensor out = expert_of(w_out->view, e), out_s = expert_of(s_out->view, e);
            check_expert(stem, &in, &in_s, &out, &out_s);
        }
    }
}

/* ---- upcast_e8m0 ----------------------------------------------------------------------------- */

static void check_upcast(const golden_file *f)
{
    const golden_tensor *bytes = golden_find(f, "e8m0"), *want = golden_find(f, "f32");
    for (int64_t i = 0; bytes && want && i < bytes->elements; i++) {
        const uint8_t *byte = (const uint8_t *)bytes->view.data + i;
        float value;
        if (*byte == 0 || *byte == 255) {
            golden_leave_out(family, "upcast e8m0");
            continue;
        }
        const bool ok = fp8_cast(golden_context(0), byte, FP8_E8M0FNU, &value, FP8_F32, 1, 0, NULL,
                                 NULL) == FP8_OK &&
                        !memcmp(&value, (const float *)want->view.data + i, sizeof value);
        golden_check(family, "upcast e8m0", ok, "byte %d: %a", *byte, (double)value);
    }
}

/* ---- all files ------------------------------------------------------------------------------- */

static const struct {
    const char *file;
    void (*check)(const golden_file *f);
} checks[] = {
    {"per_block_cast.safetensors", check_per_block_cast},
    {"per_token_group_quant.safetensors", check_group},
    {"requant_weight_ue8m0.safetensors", check_requant},
    {"upcast_e8m0.safetensors", check_upcast},
};

static void block_quantizers_agree(void **state)
{
    (void)state;
    if (!golden_has(family))
        skip();
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        golden_file *f = golden_load(family, checks[i].file);
        checks[i].check(f);
        golden_free(f);
    }
    golden_linear_end();
    assert_true(golden_report_by(family, "expected_quant.tsv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(block_quantizers_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
