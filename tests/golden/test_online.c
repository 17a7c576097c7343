/* SPDX-License-Identifier: Apache-2.0
 *
 * test_online.c - linear layers whose weights are quantized when a checkpoint is loaded.
 *
 *     linear            rule vllm per tensor, channel and block, and mx: fp8_quantize and
 *                       fp8_linear_create. A weight with NaN is refused. Left out: the per-tensor
 *                       scale 0 of a zero weight, and scales in swizzled order
 *     fused             the same for a fused weight, and its parts with a scale each (widths)
 *     tp                shards quantized by a scale that the ranks agreed on; their codes are the
 *                       whole weight's
 *     batch_invariant   FP8_WEIGHT_ROUNDED: the weight's bits, outputs within the bound, and each
 *                       row's bits for itself; "normal": the quantized path
 * In all of them, weights of 16 bits. */
#include "base/context.h"
#include "golden/golden_quant.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const char family[] = "online";

static bool ends_with(const char *name, const char *tail)
{
    const size_t n = strlen(name), m = strlen(tail);
    return n >= m && !strcmp(name + n - m, tail);
}

/* How a weight is quantized, by the end of its tensors' names. */
static const struct scheme {
    const char *name;
    fp8_grid grid;
} schemes[] = {
    {"tensor", {0, 0}},
    {"channel", {1, 0}},
    {"block", {128, 128}},
};

/* ---- linear and fused ------------------------------------------------------------------------ */

static bool has_nan(const fp8_tensor *x, int64_t *first)
{
    for (int64_t i = 0; i < x->shape[0] * x->shape[1]; i++)
        if (!isfinite(element_of(x, i / x->shape[1], i % x->shape[1]))) {
            *first = i;
            return true;
        }
    return false;
}

/* Refused with the position of the first NaN, where the original spreads it. */
static void check_nan(const golden_quant *q, const char *mode, int64_t first)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_linear *linear;
    fp8_error err = {.pos = -1};
    desc.w = q->desc;
    const fp8_status status =
        fp8_linear_create(golden_context(0), &desc, &q->x, NULL, NULL, &linear, &err);
    golden_check(family, golden_text("%s nan", mode), status == FP8_E_NAN && err.pos == first,
                 "%s: %s at %lld, want FP8_E_NAN at %lld", q->name, fp8_status_name(status),
                 (long long)err.pos, (long long)first);
    if (status == FP8_OK)
        fp8_linear_free(linear);
}

static void check_scheme(const golden_file *f, const char *kind, const char *stem,
                         const struct scheme *s)
{
    const char *mode = golden_text("%s %s", kind, s->name);
    golden_quant q = {.family = family, .name = golden_text("%s_%s", stem, s->name)};
    int64_t first;
    q.x = golden_matrix(golden_findf(f, "%s_w", stem));
    q.codes = golden_findf(f, "%s_%s_q", stem, s->name);
    q.scales = golden_findf(f, "%s_%s_s", stem, s->name);
    q.desc = golden_quantize_desc(FP8_RULE_VLLM, s->grid.rows, s->grid.cols);
    q.is_weight = true;
    if (!q.scales)
        return;
    if (has_nan(&q.x, &first))
        check_nan(&q, mode, first);
    else if (!q.codes)
        golden_leave_out(family, mode);
    else
        golden_quant_check(&q, mode);
}

static void check_mx(const golden_file *f)
{
    golden_quant q = {.family = family, .name = "mx"};
    q.x = golden_matrix(golden_find(f, "mx_w"));
    q.codes = golden_find(f, "mx_q");
    q.scales = golden_find(f, "mx_s");
    q.desc = golden_quantize_desc(FP8_RULE_VLLM, 1, 32);
    q.is_weight = true;
    if (q.x.data)
        golden_quant_check(&q, "linear mx");
    if (golden_find(f, "mx_s_swizzled"))
        golden_leave_out(family, "linear mx swizzled");
}

static void check_weights(const golden_file *f, const char *kind)
{
    for (int64_t i = 0; i < golden_count(f); i++) {
        const char *name = golden_at(f, i)->name;
        if (!ends_with(name, "_w"))
            continue;
        const char *stem = golden_text("%.*s", (int)(strlen(name) - 2), name);
        for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
            check_scheme(f, kind, stem, &schemes[s]);
    }
}

/* A weight of zeros, which the file leaves out: its own tensor's scale would be 0. */
static void check_zero(const golden_file *f, const struct scheme *s)
{
    golden_quant q = {.family = family, .name = golden_text("zero_%s", s->name)};
    q.codes = golden_findf(f, "zero_%s_q", s->name);
    q.scales = golden_findf(f, "zero_%s_s", s->name);
    if (q.scales && !q.codes)
        golden_leave_out(family, golden_text("linear %s zero", s->name));
    if (!q.codes)
        return;
    const int64_t n = q.codes->view.shape[0], k = q.codes->view.shape[1];
    q.x = fp8_matrix(calloc((size_t)(n * k + 1), 2), FP8_BF16, n, k);
    q.desc = golden_quantize_desc(FP8_RULE_VLLM, s->grid.rows, s->grid.cols);
    q.is_weight = true;
    golden_quant_check(&q, golden_text("linear %s zero", s->name));
    free(q.x.data);
}

static void check_linear(const golden_file *f)
{
    check_weights(f, "linear");
    check_mx(f);
    for (size_t s = 0; s < sizeof schemes / sizeof *schemes; s++)
        check_zero(f, &schemes[s]);
}

/* Codes of the parts, one above the other, and each part's row in it; free what comes back. */
static uint8_t *join_parts(const golden_file *f, const char *stem, const golden_tensor *widths,
                           int64_t cols, int64_t *rows_of)
{
    const int32_t *width = widths->view.data;
    int64_t rows = 0;
    for (int64_t i = 0; i < widths->elements; i++)
        rows += rows_of[i] = width[i];
    uint8_t *codes = calloc((size_t)(rows * cols + 1), 1);
    for (int64_t i = 0, at = 0; i < widths->elements; at += rows_of[i++] * cols) {
        const golden_tensor *part = golden_findf(f, "%s_shard%lld_q", stem, (long long)i);
        if (!part || (int64_t)part->bytes != rows_of[i] * cols) {
            golden_fail(family, "fused parts", "%s: part %lld is missing", stem, (long long)i);
            break;
        }
        memcpy(codes + at, part->view.data, (size_t)part->bytes);
    }
    return codes;
}

static float *identity_new(int64_t n)
{
    float *one = calloc((size_t)(n * n + 1), sizeof *one);
    for (int64_t i = 0; i < n; i++)
        one[i * n + i] = 1;
    return one;
}

/* A fused weight with a scale for each part: what it multiplies by is code * scale of the part. */
static void check_parts(const golden_file *f, const char *stem)
{
    const golden_tensor *widths = golden_findf(f, "%s_widths", stem);
    const fp8_tensor w = golden_matrix(golden_findf(f, "%s_w", stem));
    const fp8_tensor scales = golden_matrix(golden_findf(f, "%s_shard_s", stem));
    int64_t rows_of[64];
    if (!widths || widths->elements > 64 || !scales.data)
        return;
    const int64_t n = w.shape[0], k = w.shape[1];
    uint8_t *codes = join_parts(f, stem, widths, k, rows_of);
    float *one = identity_new(k), *want = calloc((size_t)(n * k + 1), sizeof *want);
    golden_linear c = {.family = family, .name = stem};
    c.desc = (fp8_linear_desc)FP8_LINEAR_DESC_INIT;
    c.desc.widths = rows_of;
    c.desc.width_count = (size_t)widths->elements;
    c.x = fp8_matrix(one, FP8_F32, k, k);
    c.w = fp8_matrix(codes, FP8_E4M3FN, n, k);
    c.w_scales = scales;
    const operand real = {&c.w, &c.w_scales, {0, 0}, {0, 0}, rows_of};
    for (int64_t i = 0; i < k * n; i++)
        want[i] = (float)real_of(&real, i % n, i / n);
    const fp8_tensor y = fp8_matrix(want, FP8_F32, k, n);
    golden_linear_bits(&c, "fused parts", &y);
    free(codes);
    free(one);
    free(want);
}

/* Each part alone gives its codes and scale. */
static void check_part(const golden_file *f, const char *stem, const golden_tensor *widths,
                       int64_t part)
{
    const int32_t *width = widths->view.data;
    const fp8_tensor w = golden_matrix(golden_findf(f, "%s_w", stem));
    golden_tensor scale = *golden_findf(f, "%s_shard_s", stem);
    int64_t first = 0;
    for (int64_t i = 0; i < part; i++)
        first += width[i];
    scale.view = fp8_vector((float *)scale.view.data + part, FP8_F32, 1);
    scale.elements = 1;
    scale.bytes = sizeof(float);
    golden_quant q = {.family = family, .name = golden_text("%s %lld", stem, (long long)part)};
    q.x = golden_slice(w, first, width[part], 0, w.shape[1]);
    q.codes = golden_findf(f, "%s_shard%lld_q", stem, (long long)part);
    q.scales = &scale;
    q.desc = golden_quantize_desc(FP8_RULE_VLLM, 0, 0);
    q.is_weight = true;
    golden_quant_check(&q, "fused part alone");
}

static void check_fused(const golden_file *f)
{
    check_weights(f, "fused");
    for (int64_t i = 0; i < golden_count(f); i++) {
        const golden_tensor *widths = golden_at(f, i);
        if (!ends_with(widths->name, "_widths"))
            continue;
        const char *stem = golden_text("%.*s", (int)(strlen(widths->name) - 7), widths->name);
        check_parts(f, stem);
        for (int64_t part = 0; part < widths->elements; part++)
            check_part(f, stem, widths, part);
    }
}

/* ---- tp -------------------------------------------------------------------------------------- */

/* A rank's piece of the weight: rows (col) or columns (row). */
static fp8_tensor piece_of(const fp8_tensor *w, bool by_rows, int tp, int rank)
{
    const int64_t rows = by_rows ? w->shape[0] / tp : w->shape[0];
    const int64_t cols = by_rows ? w->shape[1] : w->shape[1] / tp;
    return golden_slice(*w, by_rows ? rank * rows : 0, rows, by_rows ? 0 : rank * cols, cols);
}

/* The whole weight's codes hold the rank's. */
static void check_concatenation(const golden_file *f, const fp8_tensor *codes, bool by_rows, int tp,
                                int rank)
{
    const fp8_tensor whole = golden_matrix(golden_find(f, "tp1_q"));
    const fp8_tensor part = piece_of(&whole, by_rows, tp, rank);
    bool same = whole.data && part.shape[0] == codes->shape[0] && part.shape[1] == codes->shape[1];
    for (int64_t i = 0; same && i < part.shape[0] * part.shape[1]; i++)
        same = element_of(&part, i / part.shape[1], i % part.shape[1]) ==
               element_of(codes, i / part.shape[1], i % part.shape[1]);
    golden_check(family, "tp concatenation", same, "tp %d rank %d", tp, rank);
}

/* "col_tp2_rank0_q" and "row_tp2_rank0_channel_q", by the scale agreed on. vLLM's per-tensor
 * static kernel multiplies by a reciprocal; channels are divided. */
static void check_rank(const golden_file *f, const golden_tensor *t)
{
    int tp, rank, end = 0;
    char kind[4];
    if (sscanf(t->name, "%3[a-z]_tp%d_rank%d_%n", kind, &tp, &rank, &end) != 3)
        return;
    const bool by_rows = !strcmp(kind, "col"), channel = !strcmp(t->name + end, "channel_q");
    const fp8_tensor w = golden_matrix(golden_find(f, "w")), codes = golden_matrix(t);
    golden_quant q = {.family = family, .name = t->name, .codes = t};
    q.x = piece_of(&w, by_rows, tp, rank);
    if (!strcmp(t->name + end, "q") || channel) {
        q.scales = golden_findf(f, "%s_tp%d_%ss", kind, tp, channel ? "channel_" : "");
        if (!q.scales && !channel)
            q.scales = golden_find(f, "tp1_s");
        q.desc = golden_quantize_desc(channel ? FP8_RULE_BEST : FP8_RULE_VLLM, channel, 0);
        q.desc.static_scales = 1;
        golden_quant_check(&q, golden_text("tp %s %s", kind, channel ? "channel" : "tensor"));
        if (!channel)
            check_concatenation(f, &codes, by_rows, tp, rank);
    } else if (!strcmp(t->name + end, "channel_s")) {
        q.codes = NULL;
        q.scales = t;
        q.desc = golden_quantize_desc(FP8_RULE_VLLM, 1, 0);
        golden_quant_check(&q, "tp col channel");
    }
}

static void check_tp(const golden_file *f)
{
    for (int64_t i = 0; i < golden_count(f); i++)
        check_rank(f, golden_at(f, i));
}

/* ---- batch_invariant ------------------------------------------------------------------------- */

static golden_linear rounded_case(const golden_file *f, const struct scheme *s, const char *name)
{
    golden_linear c = {.family = family, .name = name};
    c.desc = (fp8_linear_desc)FP8_LINEAR_DESC_INIT;
    c.desc.weight_math = FP8_WEIGHT_ROUNDED;
    c.desc.w.grid = s->grid;
    c.w = golden_matrix(golden_findf(f, "%s_q", s->name));
    c.w_scales = golden_matrix(golden_findf(f, "%s_s", s->name));
    return c;
}

/* The weight itself, by way of an identity matrix. */
static void check_weight(const golden_file *f, const struct scheme *s, const char *dtype)
{
    const fp8_tensor weight = golden_matrix(golden_findf(f, "%s_weight_%s", s->name, dtype));
    golden_linear c = rounded_case(f, s, golden_text("%s %s", s->name, dtype));
    if (!weight.data)
        return;
    const int64_t k = weight.shape[1];
    float *one = identity_new(k);
    uint16_t *narrow = calloc((size_t)(k * k + 1), sizeof *narrow);
    for (int64_t i = 0; i < k * k; i++)
        fp8_dtype_facts_of(weight.dtype)->store(narrow, i, one[i], false);
    const fp8_tensor want = {.data = weight.data,
                             .dtype = weight.dtype,
                             .ndim = 2,
                             .shape = {k, weight.shape[0]},
                             .stride = {1, k}};
    c.x = fp8_matrix(narrow, weight.dtype, k, k);
    golden_linear_bits(&c, "batch invariant weight", &want);
    free(one);
    free(narrow);
}

/* Y's rows one by one have the bits that they have together. */
static void check_rows_alone(const golden_linear *c, fp8_dtype dtype)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_context *ctx;
    desc.flags = FP8_BATCH_INVARIANT;
    if (fp8_context_create(&desc, &ctx, NULL) != FP8_OK)
        return;
    const int64_t m = c->x.shape[0], n = c->w.shape[0];
    const fp8_tensor bias = fp8_vector(c->bias.data, c->bias.dtype, n);
    uint16_t *all = calloc((size_t)(2 * m * n + 1), sizeof *all), *alone = all + m * n;
    fp8_tensor y = fp8_matrix(all, dtype, m, n);
    bool ok = fp8_matmul(ctx, &c->desc, &c->x, NULL, &c->w, &c->w_scales, c->bias.data ? &bias : 0,
                         &y, NULL, NULL) == FP8_OK;
    for (int64_t i = 0; i < m; i++) {
        const fp8_tensor row = golden_slice(c->x, i, 1, 0, c->x.shape[1]);
        fp8_tensor out = fp8_matrix(alone + i * n, dtype, 1, n);
        ok = ok && fp8_matmul(ctx, &c->desc, &row, NULL, &c->w, &c->w_scales,
                              c->bias.data ? &bias : 0, &out, NULL, NULL) == FP8_OK;
    }
    golden_check(family, "batch invariant rows", ok && !memcmp(all, alone, (size_t)(2 * m * n)),
                 "%s: a row differs when it is alone", c->name);
    free(all);
    fp8_context_free(ctx);
}

/* The file has the exact values for bf16 alone. */
static void check_outputs(const golden_file *f, const struct scheme *s, const char *dtype)
{
    const golden_tensor *out = golden_findf(f, "%s_out_%s", s->name, dtype);
    golden_linear c = rounded_case(f, s, golden_text("%s out %s", s->name, dtype));
    if (!out)
        return;
    const bool is_bf16 = out->view.dtype == FP8_BF16;
    const fp8_tensor theirs = golden_matrix(out);
    const fp8_tensor exact = golden_matrix(golden_findf(f, "%s_out_f64", s->name));
    c.x = golden_matrix(is_bf16 ? golden_find(f, "x") : golden_findf(f, "%s_x_%s", s->name, dtype));
    c.bias = golden_matrix(golden_find(f, "bias"));
    golden_linear_bound(&c, "batch invariant out", theirs.dtype, is_bf16 ? &exact : NULL, &theirs);
    check_rows_alone(&c, theirs.dtype);
}

/* The usual path: X quantized per token inside. */
static void check_normal(const golden_file *f, const struct scheme *s)
{
    const fp8_tensor exact = golden_matrix(golden_findf(f, "normal_%s_out_f64", s->name));
    golden_linear c = {.family = family, .name = golden_text("normal %s", s->name)};
    if (!exact.data)
        return;
    c.desc = (fp8_linear_desc)FP8_LINEAR_DESC_INIT;
    c.desc.activation = FP8_ACTIVATION_DYNAMIC;
    c.desc.x.rule = FP8_RULE_VLLM;
    c.desc.w.grid = s->grid;
    c.bias = golden_matrix(golden_find(f, "bias"));
    c.x = golden_matrix(golden_find(f, "x"));
    c.x_codes = golden_matrix(golden_find(f, "normal_a_q"));
    c.x_scales = golden_matrix(golden_find(f, "normal_a_s"));
    c.w = golden_matrix(golden_findf(f, "%s_q", s->name));
    c.w_scales = golden_matrix(golden_findf(f, "%s_s", s->name));
    golden_linear_bound(&c, "batch invariant normal", FP8_BF16, &exact, NULL);
}

static void check_batch_invariant(const golden_file *f)
{
    static const char *const dtypes[] = {"bf16", "f16"};
    golden_quant a = {.family = family, .name = "normal_a"};
    a.x = golden_matrix(golden_find(f, "x"));
    a.codes = golden_find(f, "normal_a_q");
    a.scales = golden_find(f, "normal_a_s");
    a.desc = golden_quantize_desc(FP8_RULE_VLLM, 1, 0);
    if (a.codes)
        golden_quant_check(&a, "batch invariant quantized");
    for (size_t i = 0; i < sizeof schemes / sizeof *schemes; i++) {
        golden_quant w = {.family = family, .name = schemes[i].name, .is_weight = true};
        w.x = golden_matrix(golden_find(f, "w"));
        w.codes = golden_findf(f, "%s_q", schemes[i].name);
        w.scales = golden_findf(f, "%s_s", schemes[i].name);
        w.desc = golden_quantize_desc(FP8_RULE_VLLM, schemes[i].grid.rows, schemes[i].grid.cols);
        if (w.codes)
            golden_quant_check(&w, "batch invariant quantized");
        for (size_t d = 0; d < sizeof dtypes / sizeof *dtypes; d++) {
            check_weight(f, &schemes[i], dtypes[d]);
            check_outputs(f, &schemes[i], dtypes[d]);
        }
        check_normal(f, &schemes[i]);
    }
}

/* ---- all files ------------------------------------------------------------------------------- */

static const struct {
    const char *file;
    void (*check)(const golden_file *f);
} checks[] = {
    {"batch_invariant.safetensors", check_batch_invariant},
    {"fused.safetensors", check_fused},
    {"linear.safetensors", check_linear},
    {"tp.safetensors", check_tp},
};

static void online_linears_agree(void **state)
{
    (void)state;
    if (!golden_has(family))
        skip();
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        golden_file *f = golden_load(family, checks[i].file);
        if (f)
            checks[i].check(f);
        golden_free(f);
    }
    golden_linear_end();
    assert_true(golden_report(family));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(online_linears_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
