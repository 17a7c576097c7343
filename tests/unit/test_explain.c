/* SPDX-License-Identifier: Apache-2.0
 *
 * test_explain.c - fp8_explain: one candidate is chosen, it is the one that a prepared linear would
 * run with, the others say why not; and no shape of bench/shapes, nor any grid of scales, falls to
 * the reference at a level that has kernels. */
#include "op/linear.h"
#include "support/levels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

typedef struct scheme {
    const char *name;
    fp8_activation activation;
    fp8_grid x, w;
    fp8_weight_math math;
    fp8_dtype x_dtype;
} scheme;

static const scheme schemes[] = {
    {"w8a16", FP8_ACTIVATION_NONE, {1, 0}, {1, 0}, FP8_WEIGHT_EXACT, FP8_BF16},
    {"w8a16 block", FP8_ACTIVATION_NONE, {1, 0}, {128, 128}, FP8_WEIGHT_EXACT, FP8_BF16},
    {"w8a16 of f16", FP8_ACTIVATION_NONE, {1, 0}, {0, 0}, FP8_WEIGHT_EXACT, FP8_F16},
    {"w8a16 of f32", FP8_ACTIVATION_NONE, {1, 0}, {128, 128}, FP8_WEIGHT_EXACT, FP8_F32},
    {"rounded", FP8_ACTIVATION_NONE, {1, 0}, {128, 128}, FP8_WEIGHT_ROUNDED, FP8_BF16},
    {"tensor", FP8_ACTIVATION_DYNAMIC, {0, 0}, {0, 0}, FP8_WEIGHT_EXACT, FP8_BF16},
    {"channel", FP8_ACTIVATION_DYNAMIC, {1, 0}, {1, 0}, FP8_WEIGHT_EXACT, FP8_BF16},
    {"block", FP8_ACTIVATION_DYNAMIC, {1, 128}, {128, 128}, FP8_WEIGHT_EXACT, FP8_BF16},
    {"mxfp8", FP8_ACTIVATION_DYNAMIC, {1, 32}, {1, 32}, FP8_WEIGHT_EXACT, FP8_BF16},
    {"codes", FP8_ACTIVATION_CODES, {1, 0}, {1, 0}, FP8_WEIGHT_EXACT, FP8_E4M3FN},
    {"codes block", FP8_ACTIVATION_CODES, {1, 128}, {128, 128}, FP8_WEIGHT_EXACT, FP8_E4M3FN},
};
enum { SCHEMES = sizeof schemes / sizeof *schemes };

static fp8_linear_desc desc_of(const scheme *s)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = s->activation;
    desc.x.grid = s->x;
    desc.w.grid = s->w;
    desc.weight_math = s->math;
    if (s->w.cols == 32)
        desc.x_scale = desc.w_scale = FP8_E8M0FNU;
    return desc;
}

/* The chosen kernel; checks all candidates on the way. */
static fp8_candidate chosen_of(const fp8_context *ctx, const fp8_linear_desc *desc, int64_t m,
                               int64_t n, int64_t k, fp8_dtype x)
{
    fp8_candidate chosen = {0}, c;
    fp8_error err = {0};
    int64_t i = 0;
    for (; fp8_explain(ctx, desc, m, n, k, x, FP8_E4M3FN, i, &c, &err) == FP8_OK; i++) {
        assert_true(c.kernel && c.isa && c.reason[0]);
        if (c.chosen) {
            assert_null(chosen.kernel);
            chosen = c;
        }
    }
    if (err.code != FP8_E_NOT_FOUND)
        fail_msg("%lldx%lldx%lld: %s", (long long)m, (long long)n, (long long)k, err.msg);
    assert_non_null(chosen.kernel);
    assert_int_equal(chosen.chosen, 1);
    assert_null(fp8_panel_kernel_at((size_t)i)); /* all of the list were explained */
    return chosen;
}

/* Every shape of a file at one level; returns how many cases there were. */
static int check_file(const fp8_context *ctx, const char *path)
{
    FILE *file = fopen(path, "r");
    char line[256];
    int count = 0;
    assert_non_null(file);
    while (fgets(line, sizeof line, file)) {
        long long m, n, k;
        if (line[0] == '#' || sscanf(line, "%lld %lld %lld", &m, &n, &k) != 3)
            continue;
        for (int s = 0; s < SCHEMES; s++, count++) {
            const fp8_linear_desc desc = desc_of(&schemes[s]);
            const fp8_candidate c = chosen_of(ctx, &desc, m, n, k, schemes[s].x_dtype);
            if (!strcmp(c.isa, "scalar"))
                fail_msg("%s %lldx%lldx%lld at %s: the reference", schemes[s].name, m, n, k,
                         fp8_isa_name(ctx->isa));
        }
    }
    fclose(file);
    return count;
}

static void no_shape_falls_to_the_reference(void **state)
{
    static const char *const files[] = {
        "bench/shapes/awkward.txt",        "bench/shapes/deepseek-v3.txt",
        "bench/shapes/llama3-70b-tp8.txt", "bench/shapes/llama3-70b.txt",
        "bench/shapes/llama3-8b.txt",
    };
    (void)state;
    for (int isa = FP8_ISA_AVX2; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 1);
        int count = 0;
        if (!ctx)
            continue;
        for (size_t i = 0; i < sizeof files / sizeof *files; i++)
            count += check_file(ctx, files[i]);
        printf("%s: %d cases, none of them the reference\n", fp8_isa_name((fp8_isa)isa), count);
        assert_true(count > 1000);
        fp8_context_free(ctx);
    }
}

/* A real linear of the scheme; its plan is what a run chooses by. */
static fp8_linear *make(const fp8_context *ctx, const scheme *s, int64_t n, int64_t k)
{
    const fp8_linear_desc desc = desc_of(s);
    const int64_t gr = s->w.rows ? s->w.rows : n, gc = s->w.cols ? s->w.cols : k;
    const int64_t rows = (n + gr - 1) / gr, cols = (k + gc - 1) / gc;
    const bool mx = s->w.cols == 32;
    uint8_t *codes = calloc((size_t)n, (size_t)k);
    float *scales = malloc((size_t)(rows * cols) * sizeof *scales);
    assert_true(codes && scales);
    for (int64_t i = 0; i < rows * cols; i++)
        scales[i] = 1;
    if (mx)
        memset(scales, 127, (size_t)(rows * cols));
    const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, n, k);
    const fp8_tensor w_scales = fp8_matrix(scales, mx ? FP8_E8M0FNU : FP8_F32, rows, cols);
    fp8_linear *linear = NULL;
    fp8_error err = {0};
    if (fp8_linear_create(ctx, &desc, &w, &w_scales, NULL, &linear, &err) != FP8_OK)
        fail_msg("%s: %s", s->name, err.msg);
    free(codes);
    free(scales);
    return linear;
}

static void what_is_chosen_is_what_runs(void **state)
{
    static const int64_t rows[] = {0, 1, 4, 5, 15, 16, 64, 1000};
    (void)state;
    for (int isa = FP8_ISA_SCALAR; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 1);
        for (int s = 0; ctx && s < SCHEMES; s++) {
            for (int64_t k = 100; k <= 256; k += 156) {
                fp8_linear *linear = make(ctx, &schemes[s], 48, k);
                for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                    const fp8_panel_problem problem =
                        fp8_panel_problem_of(ctx, &linear->plan, rows[i], schemes[s].x_dtype);
                    const fp8_linear_desc desc = desc_of(&schemes[s]);
                    const fp8_candidate c =
                        chosen_of(ctx, &desc, rows[i], 48, k, schemes[s].x_dtype);
                    assert_string_equal(c.kernel, fp8_panel_pick(&problem)->name);
                }
                fp8_linear_free(linear);
            }
        }
        fp8_context_free(ctx);
    }
}

static const int64_t units[] = {1, 3, 4, 7, 24, 32, 64, 96, 100, 128, 160, 1000};
enum { UNITS = sizeof units / sizeof *units };

/* A weight under 1 x units[a], of which the first lacks `origin`, and codes under 1 x units[b]. */
static fp8_linear_desc grids(int a, int64_t origin, int b)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = FP8_ACTIVATION_CODES;
    desc.x.grid = (fp8_grid){1, units[b]};
    desc.w.grid = (fp8_grid){1, units[a]};
    desc.w_origin.cols = origin;
    return desc;
}

static void check_cuts(const fp8_cuts *cuts, const fp8_linear_plan *plan, int64_t multiple)
{
    assert_int_equal(cuts->at[0] | cuts->place[0], 0);
    assert_int_equal(cuts->at[cuts->count], plan->k);
    assert_int_equal(cuts->place[cuts->count], cuts->columns);
    for (int64_t s = 0; s < cuts->count; s++) {
        const int64_t place = cuts->place[s], next = cuts->place[s + 1];
        assert_int_equal(place % multiple, 0);
        assert_true(next - place >= cuts->at[s + 1] - cuts->at[s]);
        if (plan->pad == 1)
            assert_int_equal(place, cuts->at[s]);
    }
}

/* The segments' places are multiples of what the plan says, and all columns are there. */
static void cuts_are_multiples_of_what_the_plan_says(void **state)
{
    int64_t at[704], place[704], w_at[704], w_place[704];
    (void)state;
    for (int64_t k = 0; k <= 700; k += 35)
        for (int a = 0; a < UNITS; a++)
            for (int64_t origin = 0; origin < units[a]; origin += 1 + units[a] / 5)
                for (int b = 0; b < UNITS; b++) {
                    const fp8_linear_desc desc = grids(a, origin, b);
                    fp8_linear_plan plan;
                    fp8_cuts cuts = {.at = at, .place = place}, w = {.at = w_at, .place = w_place};
                    assert_int_equal(fp8_linear_plan_shape(&plan, &desc, 16, k, FP8_E4M3FN, NULL),
                                     FP8_OK);
                    fp8_cuts_find(&cuts, &plan, true);
                    fp8_cuts_find(&w, &plan, false);
                    check_cuts(&cuts, &plan, plan.both_multiple);
                    check_cuts(&w, &plan, plan.w_multiple);
                    assert_int_equal(w.columns, cuts.columns);
                    assert_true(plan.both_multiple >= FP8_PANEL_COLS);
                    assert_int_equal(plan.w_multiple % plan.both_multiple, 0);
                    for (int64_t s = 0, all = 0; s < w.count; s++) {
                        while (cuts.at[all] < w.at[s])
                            all++;
                        assert_int_equal(cuts.at[all], w.at[s]);
                        assert_int_equal(cuts.place[all], w.place[s]);
                    }
                }
}

/* Whatever scales W and X have. */
static void no_grid_falls_to_the_reference(void **state)
{
    static const int64_t rows[] = {1, 5, 8, 9, 64};
    (void)state;
    for (int isa = FP8_ISA_AVX2; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 1);
        for (int a = 0; ctx && a < UNITS * UNITS; a++)
            for (int64_t origin = 0; origin < units[a / UNITS]; origin += 1 + origin)
                for (int what = 0; what < 3; what++) {
                    fp8_linear_desc desc = grids(a / UNITS, origin, a % UNITS);
                    if (what > 0)
                        desc.activation = FP8_ACTIVATION_NONE;
                    if (what > 1)
                        desc.weight_math = FP8_WEIGHT_ROUNDED;
                    const fp8_dtype x = what ? FP8_F16 : FP8_E5M2;
                    const fp8_candidate c = chosen_of(ctx, &desc, rows[a % 5], 16, 1000, x);
                    if (!strcmp(c.isa, "scalar"))
                        fail_msg("1x%lld from %lld, x 1x%lld, %d: the reference",
                                 (long long)units[a / UNITS], (long long)origin,
                                 (long long)units[a % UNITS], what);
                }
        fp8_context_free(ctx);
    }
}

/* Scales of columns that no kernel can cut at are multiplied into X, if all rows have the same: the
 * codes take a byte each, and what bf16 would round is left to fp32. */
static void columns_lend_their_scales_to_x(void **state)
{
    static const struct {
        fp8_grid grid, origin;
        fp8_weight_math math;
        bool lent;
    } cases[] = {
        {{0, 1}, {0, 0}, FP8_WEIGHT_EXACT, true},    {{48, 1}, {0, 0}, FP8_WEIGHT_EXACT, true},
        {{0, 7}, {0, 3}, FP8_WEIGHT_EXACT, true},    {{0, 64}, {0, 2}, FP8_WEIGHT_EXACT, false},
        {{128, 1}, {80, 0}, FP8_WEIGHT_EXACT, true}, {{128, 1}, {81, 0}, FP8_WEIGHT_EXACT, false},
        {{16, 1}, {0, 0}, FP8_WEIGHT_EXACT, false},  {{0, 4}, {0, 0}, FP8_WEIGHT_EXACT, false},
        {{0, 1}, {0, 0}, FP8_WEIGHT_ROUNDED, false},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
        fp8_linear_plan plan;
        fp8_cuts cuts = {0};
        desc.activation = FP8_ACTIVATION_NONE;
        desc.w.grid = cases[i].grid;
        desc.w_origin = cases[i].origin;
        desc.weight_math = cases[i].math;
        assert_int_equal(fp8_linear_plan_shape(&plan, &desc, 48, 100, FP8_E4M3FN, NULL), FP8_OK);
        fp8_cuts_find(&cuts, &plan, true);
        assert_int_equal(plan.w_into_x, cases[i].lent);
        assert_int_equal(cases[i].lent ? cuts.count : 1, 1);
        assert_int_equal(cases[i].lent ? cuts.columns : 100, 100);
        for (size_t k = 0; fp8_panel_kernel_at(k); k++) {
            const fp8_panel_kernel *kernel = fp8_panel_kernel_at(k);
            fp8_context ctx = {.isa = FP8_ISA_AMX};
            const fp8_panel_problem problem = fp8_panel_problem_of(&ctx, &plan, 1, FP8_BF16);
            const char *lacks = fp8_panel_lacks(kernel, &problem);
            const bool says = lacks && strstr(lacks, "scales of w's columns");
            assert_int_equal(says, cases[i].lent && kernel->x == FP8_BF16);
        }
    }
}

static void bad_questions_are_refused(void **state)
{
    (void)state;
    fp8_context *ctx = context_at_level(FP8_ISA_SCALAR, 1);
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_candidate c;
    fp8_error err;
#define EXPLAIN(ctx, desc, m, n, k, x, w, i, out) \
    fp8_explain(ctx, desc, m, n, k, x, w, i, out, &err)
    assert_int_equal(EXPLAIN(ctx, &desc, 1, 16, 16, FP8_BF16, FP8_E4M3FN, 0, &c), FP8_OK);
    assert_int_equal(EXPLAIN(NULL, &desc, 1, 16, 16, FP8_BF16, FP8_E4M3FN, 0, &c), FP8_E_ARGUMENT);
    assert_int_equal(EXPLAIN(ctx, NULL, 1, 16, 16, FP8_BF16, FP8_E4M3FN, 0, &c), FP8_E_ARGUMENT);
    assert_int_equal(EXPLAIN(ctx, &desc, 1, 16, 16, FP8_BF16, FP8_E4M3FN, 0, NULL), FP8_E_ARGUMENT);
    assert_int_equal(EXPLAIN(ctx, &desc, -1, 16, 16, FP8_BF16, FP8_E4M3FN, 0, &c), FP8_E_SHAPE);
    assert_int_equal(EXPLAIN(ctx, &desc, 1, -1, 16, FP8_BF16, FP8_E4M3FN, 0, &c), FP8_E_SHAPE);
    assert_int_equal(EXPLAIN(ctx, &desc, 1, INT64_MAX, INT64_MAX, FP8_BF16, FP8_E4M3FN, 0, &c),
                     FP8_E_SHAPE);
    assert_int_equal(EXPLAIN(ctx, &desc, 1, 16, 16, FP8_E4M3FN, FP8_E4M3FN, 0, &c), FP8_E_DTYPE);
    assert_int_equal(EXPLAIN(ctx, &desc, 1, 16, 16, FP8_BF16, FP8_I8, 0, &c), FP8_E_DTYPE);
    assert_int_equal(EXPLAIN(ctx, &desc, 1, 16, 16, FP8_BF16, FP8_E4M3FN, 1000, &c),
                     FP8_E_NOT_FOUND);
    assert_int_equal(EXPLAIN(ctx, &desc, 1, 16, 16, FP8_BF16, FP8_E4M3FN, -1, &c), FP8_E_NOT_FOUND);
    desc.activation = FP8_ACTIVATION_CODES;
    assert_int_equal(EXPLAIN(ctx, &desc, 1, 16, 16, FP8_BF16, FP8_E4M3FN, 0, &c), FP8_E_DTYPE);
    assert_int_equal(EXPLAIN(ctx, &desc, 1, 16, 16, FP8_E5M2, FP8_E4M3FN, 0, &c), FP8_OK);
#undef EXPLAIN
    fp8_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_shape_falls_to_the_reference),
        cmocka_unit_test(no_grid_falls_to_the_reference),
        cmocka_unit_test(what_is_chosen_is_what_runs),
        cmocka_unit_test(cuts_are_multiples_of_what_the_plan_says),
        cmocka_unit_test(columns_lend_their_scales_to_x),
        cmocka_unit_test(bad_questions_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
