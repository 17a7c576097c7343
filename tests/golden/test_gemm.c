/* SPDX-License-Identifier: Apache-2.0
 *
 * test_gemm.c - the scaled matmul of vLLM's paths, Y[M,N] = A[M,K] B[N,K]^T scaled per tensor or
 * token and per tensor or channel: files scaled_mm_*, cases PATH_A_B_bias|nobias_DTYPE.
 *
 *     epi       CUTLASS's epilogue, exact data: bits of FP8_EPILOGUE_FUSED
 *     unfused   torch's channelwise path: bits of FP8_EPILOGUE_UNFUSED where the data are exact,
 *               else both within the bound
 *     triton    the same for FP8_EPILOGUE_BIAS_LAST
 *     out       the correctly rounded result: within the bound */
#include "golden/golden_linear.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const char family[] = "gemm";

static const struct path {
    const char *name;
    fp8_epilogue epilogue;
    bool is_exact; /* bits, where the data are exact */
} paths[] = {
    {"epi", FP8_EPILOGUE_FUSED, true},
    {"out", FP8_EPILOGUE_FUSED, false},
    {"triton", FP8_EPILOGUE_BIAS_LAST, true},
    {"unfused", FP8_EPILOGUE_UNFUSED, true},
};

/* A case's name taken apart: "epi_token_channel_bias_bf16". */
typedef struct scaled_mm {
    const struct path *path;
    char a[16], b[16], bias[16], dtype[16];
} scaled_mm;

static bool parse_name(const char *name, scaled_mm *out)
{
    char path[16];
    if (sscanf(name, "%15[a-z]_%15[a-z]_%15[a-z]_%15[a-z]_%15[a-z0-9]", path, out->a, out->b,
               out->bias, out->dtype) != 5)
        return false;
    out->path = NULL;
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++)
        if (!strcmp(paths[i].name, path))
            out->path = &paths[i];
    return out->path != NULL;
}

static bool set_case(const golden_file *f, const scaled_mm *s, golden_linear *c)
{
    c->x = golden_matrix(golden_find(f, "a"));
    c->w = golden_matrix(golden_find(f, "b"));
    c->x_scales = golden_matrix(golden_findf(f, "scale_a_%s", s->a));
    c->w_scales = golden_matrix(golden_findf(f, "scale_b_%s", s->b));
    if (!strcmp(s->bias, "bias"))
        c->bias = golden_matrix(golden_findf(f, "bias_%s", s->dtype));
    c->desc = (fp8_linear_desc)FP8_LINEAR_DESC_INIT;
    c->desc.activation = FP8_ACTIVATION_CODES;
    c->desc.epilogue = s->path->epilogue;
    c->desc.x.grid.rows = !strcmp(s->a, "token");
    c->desc.w.grid.rows = !strcmp(s->b, "channel");
    return c->x.data && c->w.data && c->x_scales.data && c->w_scales.data &&
           (c->bias.data || !strcmp(s->bias, "nobias"));
}

/* exact[m,n] = sa * sb * acc + bias; malloc'ed. */
static fp8_tensor exact_of(const golden_file *f, const golden_linear *c)
{
    const int64_t m = c->x.shape[0], n = c->w.shape[0];
    const fp8_tensor acc = golden_matrix(golden_find(f, "acc_f64"));
    double *exact = calloc((size_t)(m * n + 1), sizeof *exact);
    for (int64_t i = 0; acc.data && i < m * n; i++) {
        const double sa = element_of(&c->x_scales, c->desc.x.grid.rows ? i / n : 0, 0);
        const double sb = element_of(&c->w_scales, c->desc.w.grid.rows ? i % n : 0, 0);
        const double bias = c->bias.dtype ? element_of(&c->bias, i % n, 0) : 0;
        exact[i] = golden_real(&acc, i / n, i % n) * sa * sb + bias;
    }
    return fp8_matrix(exact, FP8_F64, m, n);
}

static void check_case(const golden_file *f, const char *file, const golden_tensor *want,
                       const scaled_mm *s)
{
    const char *name = golden_text("%s %s", file, want->name);
    const bool bits = s->path->is_exact && strstr(file, "_exact");
    const char *mode = golden_text("%s %s", s->path->name, bits ? "bits" : "bound");
    const fp8_tensor theirs = golden_matrix(want);
    golden_linear c = {.family = family, .name = name};
    if (!set_case(f, s, &c)) {
        golden_fail(family, mode, "%s: a tensor is missing", name);
        return;
    }
    if (bits) {
        golden_linear_bits(&c, mode, &theirs);
        return;
    }
    const fp8_tensor exact = exact_of(f, &c);
    golden_linear_bound(&c, mode, theirs.dtype, &exact, &theirs);
    free(exact.data);
}

static void scaled_matmuls_agree(void **state)
{
    (void)state;
    if (!golden_has(family))
        skip();
    char **files = golden_names(family, ".safetensors");
    for (char **file = files; *file; file++) {
        if (strncmp(*file, "scaled_mm_", 10))
            continue;
        golden_file *f = golden_load(family, *file);
        scaled_mm s;
        for (int64_t i = 0; i < golden_count(f); i++)
            if (parse_name(golden_at(f, i)->name, &s))
                check_case(f, *file, golden_at(f, i), &s);
        golden_free(f);
    }
    golden_free_names(files);
    golden_linear_end();
    assert_true(golden_report(family));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(scaled_matmuls_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
