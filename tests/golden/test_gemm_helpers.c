/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gemm_helpers.c - what a loader does with scales before a matmul, and what vLLM asks before
 * it takes a kernel: each file of the family that is no scaled_mm_*, with the same name as the
 * mode. Numbers are compared by their bits but for NaN, whose sign and payload mean nothing. */
#include "golden/golden_linear.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const char family[] = "gemm";

static bool ends_with(const char *name, const char *tail)
{
    const size_t n = strlen(name), m = strlen(tail);
    return n >= m && !strcmp(name + n - m, tail);
}

/* Elements i of a and b, of one dtype, are the same number. */
static bool same_number(const fp8_tensor *a, const fp8_tensor *b, int64_t i)
{
    const size_t bytes = (size_t)fp8_dtype_bits(a->dtype) / 8;
    const fp8_load_fn load = fp8_dtype_facts_of(a->dtype)->load;
    if (isnan(load(a->data, i)) && isnan(load(b->data, i)))
        return true;
    return !memcmp((char *)a->data + (size_t)i * bytes, (char *)b->data + (size_t)i * bytes, bytes);
}

/* Both contiguous. */
static bool same_numbers(const fp8_tensor *a, const fp8_tensor *b)
{
    const int64_t n = b->ndim == 1 ? b->shape[0] : b->shape[0] * b->shape[1];
    bool same = a->dtype == b->dtype;
    for (int64_t i = 0; same && i < n; i++)
        same = same_number(a, b, i);
    return same;
}

static const int32_t *integers(const golden_file *f, const char *name, int64_t *count)
{
    const golden_tensor *t = golden_find(f, name);
    *count = t && t->view.dtype == FP8_I32 ? t->elements : 0;
    return t ? t->view.data : NULL;
}

/* ---- scales ---------------------------------------------------------------------------------- */

static void check_all_close(const golden_file *f, const char *mode)
{
    int64_t count;
    const int32_t *offset = integers(f, "offsets", &count);
    const golden_tensor *x = golden_find(f, "x"), *result = golden_find(f, "result");
    for (int64_t i = 0; i + 1 < count; i++) {
        const fp8_tensor part =
            fp8_vector((float *)x->view.data + offset[i], FP8_F32, offset[i + 1] - offset[i]);
        const uint8_t want = ((const uint8_t *)result->view.data)[i];
        int32_t close = -1;
        golden_check(family, mode, fp8_all_close_1d(&part, &close, NULL) == FP8_OK && close == want,
                     "case %lld: %d, want %d", (long long)i, close, want);
    }
}

/* The widths of a case as int64_t; the last call's are overwritten. */
static fp8_fused_desc fused_of(const golden_tensor *widths)
{
    static int64_t rows[64];
    fp8_fused_desc desc = FP8_FUSED_DESC_INIT;
    desc.widths = rows;
    desc.width_count = (size_t)widths->elements;
    assert_true(desc.width_count <= 64);
    for (size_t i = 0; i < desc.width_count; i++)
        rows[i] = ((const int32_t *)widths->view.data)[i];
    return desc;
}

static void check_channelwise(const golden_file *f, const char *mode)
{
    for (int64_t i = 0; i < golden_count(f); i++) {
        const golden_tensor *widths = golden_at(f, i);
        if (!ends_with(widths->name, "_widths"))
            continue;
        const int stem = (int)strlen(widths->name) - 7;
        const golden_tensor *scale = golden_findf(f, "%.*s_scale", stem, widths->name);
        const golden_tensor *want = golden_findf(f, "%.*s_out", stem, widths->name);
        const fp8_fused_desc desc = fused_of(widths);
        fp8_error err = {.msg = "differs"};
        fp8_tensor out =
            fp8_matrix(calloc((size_t)want->bytes + 1, 1), FP8_F32, want->view.shape[0], 1);
        const bool ok = fp8_channelwise_scales(&desc, &scale->view, &out, &err) == FP8_OK &&
                        same_numbers(&out, &want->view);
        golden_check(family, mode, ok, "%s: %s", widths->name, err.msg);
        free(out.data);
    }
}

/* One scale for all codes: a scalar of fp32, one of fp16, or a vector of one, which makes fp32. */
static const struct {
    const char *out;
    fp8_dtype scale;
} dequantized[] = {
    {"out_f16", FP8_F32},
    {"out_f16_scale_rounded", FP8_F16},
    {"out_f32_scale_1d", FP8_F32},
};

static void check_dequantize(const golden_file *f, const char *mode)
{
    const golden_tensor *codes = golden_find(f, "codes"), *scale = golden_find(f, "scale");
    for (size_t v = 0; scale && v < sizeof dequantized / sizeof *dequantized; v++) {
        const golden_tensor *want = golden_find(f, dequantized[v].out);
        for (int64_t i = 0; want && i < scale->elements; i++) {
            const int64_t n = codes->elements;
            uint32_t one;
            fp8_dtype_facts_of(dequantized[v].scale)
                ->store(&one, 0, ((const float *)scale->view.data)[i], false);
            const fp8_tensor x = fp8_matrix(codes->view.data, codes->view.dtype, 1, n);
            const fp8_tensor s = fp8_matrix(&one, dequantized[v].scale, 1, 1);
            fp8_tensor row = golden_slice(want->view, i, 1, 0, n);
            fp8_tensor y = fp8_matrix(calloc((size_t)n + 1, 4), row.dtype, 1, n);
            fp8_error err = {.msg = "differs"};
            const bool ok = fp8_dequantize(golden_context(0), (fp8_grid){0, 0}, &x, &s, &y, NULL,
                                           &err) == FP8_OK &&
                            same_numbers(&y, &row);
            golden_check(family, mode, ok, "%s, scale %lld: %s", dequantized[v].out, (long long)i,
                         err.msg);
            free(y.data);
        }
    }
}

/* A case NAME_*, with its scales as they are or rounded to fp16, into other memory or in place. */
static void check_max_scale(const golden_file *f, const char *name, fp8_dtype math,
                            const golden_tensor *want, bool in_place, const char *mode)
{
    const golden_tensor *weight = golden_findf(f, "%s_weight", name);
    const golden_tensor *scale = golden_findf(f, "%s_scale", name);
    const golden_tensor *max = golden_findf(f, "%s_max_scale", name);
    fp8_fused_desc desc = fused_of(golden_findf(f, "%s_widths", name));
    desc.scale_math = math;
    fp8_tensor scales = scale->view, codes = weight->view, out = codes;
    if (strstr(name, "scalar0d"))
        scales.ndim = 0;
    fp8_error err = {.msg = "differs"};
    float got = 0;
    out.data = malloc((size_t)weight->bytes + 1);
    if (in_place) {
        memcpy(out.data, codes.data, (size_t)weight->bytes);
        codes.data = out.data;
    }
    const bool ok =
        fp8_requantize_with_max_scale(&desc, &codes, &scales, &out, &got, &err) == FP8_OK &&
        !memcmp(&got, max->view.data, sizeof got) && same_numbers(&out, &want->view);
    golden_check(family, mode, ok, "%s: %s", want->name, err.msg);
    free(out.data);
}

static void check_requantize(const golden_file *f, const char *mode)
{
    for (int64_t i = 0; i < golden_count(f); i++) {
        const char *tensor = golden_at(f, i)->name;
        if (!ends_with(tensor, "_weight"))
            continue;
        const char *name = golden_text("%.*s", (int)strlen(tensor) - 7, tensor);
        const golden_tensor *out = golden_findf(f, "%s_out", name);
        const golden_tensor *half = golden_findf(f, "%s_out_scale_f16", name);
        for (int in_place = 0; in_place < 2; in_place++) {
            check_max_scale(f, name, FP8_F32, out, in_place, mode);
            if (half)
                check_max_scale(f, name, FP8_F16, half, in_place,
                                golden_text("%s scale_f16", mode));
        }
    }
}

/* Doubled scales: x, and what they are wanted to be. */
static bool doubled(const golden_file *f, const char *name, const fp8_tensor *got)
{
    const fp8_tensor want = golden_matrix(golden_findf(f, "%s_out", name));
    return want.data && same_numbers(got, &want);
}

static void check_normalize(const golden_file *f, const char *mode)
{
    const fp8_tensor fn = golden_matrix(golden_find(f, "codes_fn"));
    const golden_tensor *fnuz = golden_find(f, "codes_fnuz");
    fp8_tensor codes = fn, weight = golden_matrix(golden_find(f, "weight_scale"));
    fp8_tensor input = golden_matrix(golden_find(f, "input_scale"));
    const fp8_load_fn load = fp8_dtype_facts_of(FP8_E4M3FNUZ)->load;
    if (!fnuz || !fn.data)
        return;
    codes.data = malloc((size_t)fnuz->bytes);
    memcpy(codes.data, fn.data, (size_t)fnuz->bytes);
    const bool ok = fp8_normalize_e4m3fn_to_e4m3fnuz(&codes, &weight, &input, NULL) == FP8_OK &&
                    codes.dtype == FP8_E4M3FNUZ &&
                    !memcmp(codes.data, fnuz->view.data, (size_t)fnuz->bytes);
    golden_check(family, mode, ok, "codes differ");
    golden_check(family, mode, doubled(f, "weight_scale", &weight), "weight_scale differs");
    golden_check(family, mode, doubled(f, "input_scale", &input), "input_scale differs");
    const golden_tensor *value = golden_find(f, "value_fnuz");
    for (int64_t i = 0; value && i < value->elements; i++)
        golden_check(family, golden_text("%s values", mode),
                     load(codes.data, i) == ((const float *)value->view.data)[i], "code %lld",
                     (long long)i);
    free(codes.data);
}

/* ---- predicates ------------------------------------------------------------------------------ */

/* Columns: capability, CUDA version, grouped kernels compiled in, then four features. */
static void check_predicates(const golden_file *f, const char *mode)
{
    static const fp8_gpu_feature features[] = {FP8_GPU_FP8, FP8_GPU_BLOCK_FP8,
                                               FP8_GPU_GROUPED_GEMM_KERNEL, FP8_GPU_GROUPED_GEMM};
    int64_t count;
    const int32_t *row = integers(f, "rows", &count);
    for (int64_t i = 0; i + 6 < count; i += 7, row += 7)
        for (int k = 0; k < 4; k++) {
            const int is_built = k < 2 || row[2];
            const int got = is_built && fp8_gpu_supports(features[k], row[0], row[1]);
            golden_check(family, mode, got == row[3 + k], "feature %d, sm_%d, CUDA %d: %d", k,
                         row[0], row[1], got);
        }
}

/* Columns: is_rocm, has_rowwise, cutlass, per-tensor weights, activations, per token (-1: not
 * said), the class. */
static void check_dispatch_seed(const golden_file *f, const char *mode)
{
    int64_t count;
    const int32_t *row = integers(f, "rows", &count);
    for (int64_t i = 0; i + 6 < count; i += 7, row += 7) {
        fp8_dispatch_desc desc = FP8_DISPATCH_DESC_INIT;
        fp8_kernel_class got = FP8_CLASS_MARLIN;
        desc.is_rocm = row[0];
        desc.has_rowwise = row[1];
        desc.cutlass_supported = row[2];
        desc.per_tensor_weights = row[3];
        desc.per_tensor_activations = row[4];
        desc.per_token_if_dynamic = row[5] > 0;
        const bool ok =
            fp8_dispatch_scaled_mm(&desc, &got, NULL) == FP8_OK && (int32_t)got == row[6];
        golden_check(family, mode, ok, "row %lld: %d, want %d", (long long)i / 7, (int)got, row[6]);
    }
}

static const struct {
    const char *name;
    fp8_kernel_class class;
} classes[] = {
    {"MarlinFP8ScaledMMLinearKernel", FP8_CLASS_MARLIN},
    {"CutlassFP8ScaledMMLinearKernel", FP8_CLASS_CUTLASS},
    {"CutlassFp8BlockScaledMMKernel", FP8_CLASS_CUTLASS_BLOCK},
    {"TritonFp8BlockScaledMMKernel", FP8_CLASS_TRITON_BLOCK},
};

/* Lines "capability;activation;weight;dtype;NxK;class" of the metadata, newlines as \n. */
static void check_dispatch_kernels(const golden_file *f, const char *mode)
{
    const char *line = golden_metadata(f) ? strstr(golden_metadata(f), "\"table\"") : NULL;
    int capability, end;
    char weight[32], name[64];
    for (line = line ? strpbrk(line + 7, "0123456789") : NULL;
         line && sscanf(line, "%d;%*[^;];%31[^;];%*[^;];%*[^;];%63[A-Za-z0-9]%n", &capability,
                        weight, name, &end) == 3;
         line += end + 2) {
        const fp8_kernel_class got = fp8_kernel_class_of(capability, !strncmp(weight, "block", 5));
        const char *want = "none";
        for (size_t i = 0; i < sizeof classes / sizeof *classes; i++)
            want = classes[i].class == got ? classes[i].name : want;
        golden_check(family, mode, !strcmp(want, name), "sm_%d %s: %s, want %s", capability, weight,
                     want, name);
        if (line[end] != '\\')
            break;
    }
}

static void check_shapes(const golden_file *f, const char *mode)
{
    int64_t count;
    const int32_t *row = integers(f, "deepgemm_linear", &count);
    for (int64_t i = 0; i + 3 < count; i += 4, row += 4)
        golden_check(family, mode,
                     fp8_deepgemm_supports_shape(row[0], row[1], row[2] ? FP8_BF16 : FP8_F16) ==
                         row[3],
                     "DeepGEMM [%d,%d]", row[0], row[1]);
    row = integers(f, "marlin_shape", &count);
    for (int64_t i = 0; i + 4 < count; i += 5, row += 5)
        golden_check(
            family, mode, fp8_marlin_supports_shape(row[0], row[1], row[2], row[3]) == row[4],
            "Marlin [%d,%d] of %d columns in groups of %d", row[0], row[1], row[2], row[3]);
}

/* ---- all files ------------------------------------------------------------------------------- */

static const struct {
    const char *name;
    void (*check)(const golden_file *f, const char *mode);
} checks[] = {
    {"all_close_1d", check_all_close},
    {"convert_to_channelwise", check_channelwise},
    {"dispatch_kernels", check_dispatch_kernels},
    {"dispatch_seed", check_dispatch_seed},
    {"normalize_e4m3fn_to_e4m3fnuz", check_normalize},
    {"per_tensor_dequantize", check_dequantize},
    {"predicates", check_predicates},
    {"requantize_with_max_scale", check_requantize},
    {"shape_predicates", check_shapes},
};

static void helpers_agree(void **state)
{
    (void)state;
    if (!golden_has(family))
        skip();
    for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
        golden_file *f = golden_load(family, golden_text("%s.safetensors", checks[i].name));
        if (f)
            checks[i].check(f, checks[i].name);
        golden_free(f);
    }
    golden_linear_end();
    assert_true(golden_report_by(family, "expected_helpers.tsv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(helpers_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
