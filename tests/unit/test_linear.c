/* SPDX-License-Identifier: Apache-2.0
 *
 * test_linear.c - fp8_matmul and fp8_linear_run against the definition in double, within the bound
 * of oracle.h: every kind of X with every kind of W, every dtype of Y, edge shapes, odd strides,
 * page ends, levels, threads and pools; that the bound would catch what it must; and exports,
 * clones and workspaces. */
#include "support/levels.h"
#include "support/linear_problem.h"

#include <setjmp.h>
#include <stdarg.h>
#include <string.h>
/* cmocka.h needs the two above. */
#include <cmocka.h>

static void run(const fp8_linear *linear, const problem *p, fp8_tensor *y)
{
    uint64_t bytes;
    fp8_error err;
    assert_int_equal(fp8_linear_workspace(linear, p->m, &bytes, NULL), FP8_OK);
    guard workspace = guard_new(bytes);
    memset(guard_at_end(&workspace, bytes), 0xFF, bytes); /* NaN, where nobody writes */
    const bool codes = p->desc.activation == FP8_ACTIVATION_CODES;
    if (fp8_linear_run(linear, &p->x, codes ? &p->x_scales : NULL, y,
                       guard_at_end(&workspace, bytes), bytes, NULL, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    guard_free(&workspace);
}

static const fp8_dtype y_dtypes[] = {FP8_F32, FP8_BF16, FP8_F16};

static long check_problem(const fp8_context *ctx, problem *p, const char *where)
{
    long checked = 0;
    for (int with_bias = 0; with_bias < 2; with_bias++) {
        p->desc.epilogue = (fp8_epilogue)(random_word() >> 8) % 3;
        fp8_linear *linear = linear_of(ctx, p, with_bias);
        for (size_t d = 0; d < COUNT(y_dtypes); d++) {
            char words[160];
            const size_t bytes = (size_t)(p->m * p->n * fp8_dtype_bits(y_dtypes[d]) / 8);
            guard memory = guard_new(bytes);
            fp8_tensor y = fp8_matrix(guard_at_end(&memory, bytes), y_dtypes[d], p->m, p->n);
            memset(y.data, 0xFF, bytes);
            run(linear, p, &y);
            if (find_wrong(p, &y, with_bias, words, sizeof words))
                fail_msg("%s, %s, bias %d: %s", where, fp8_dtype_name(y_dtypes[d]), with_bias,
                         words);
            guard_free(&memory);
            checked++;
        }
        fp8_linear_free(linear);
    }
    return checked;
}

static void every_pair_of_kinds_is_within_the_bound(void **state)
{
    (void)state;
    const bool all = getenv("FP8_TEST_EXHAUSTIVE") != NULL; /* else a fifth of the shapes each */
    fp8_context *contexts[LEVEL_COUNT];
    long checked[LEVEL_COUNT] = {0};
    for (int isa = 0; isa < LEVEL_COUNT; isa++)
        contexts[isa] = context_at_level((fp8_isa)isa, 2);
    for (size_t a = 0; a < COUNT(x_kinds); a++)
        for (size_t b = 0; b < COUNT(w_kinds); b++)
            for (size_t s = 0; s < LINEAR_SHAPES; s++) {
                if (!all && (a + 2 * b + s) % 5 != 0)
                    continue;
                problem p = problem_new(contexts[0], &x_kinds[a], &w_kinds[b], linear_shapes[s]);
                for (int isa = 0; isa < LEVEL_COUNT; isa++) {
                    char where[160];
                    snprintf(where, sizeof where, "x %s, w %s, [%lld,%lld,%lld], %s",
                             x_kinds[a].name, w_kinds[b].name, (long long)p.m, (long long)p.n,
                             (long long)p.k, fp8_isa_name((fp8_isa)isa));
                    if (contexts[isa])
                        checked[isa] += check_problem(contexts[isa], &p, where);
                }
                problem_free(&p);
            }
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        if (contexts[isa])
            printf("linear: %ld cases at level %s\n", checked[isa], fp8_isa_name((fp8_isa)isa));
        fp8_context_free(contexts[isa]);
    }
}

/* y of a problem in F32, allocated. */
static fp8_tensor result_of(const fp8_context *ctx, const problem *p, bool with_bias)
{
    fp8_tensor y = fp8_matrix(malloc((size_t)(p->m * p->n) * sizeof(float)), FP8_F32, p->m, p->n);
    fp8_linear *linear = linear_of(ctx, p, with_bias);
    run(linear, p, &y);
    fp8_linear_free(linear);
    return y;
}

static void expect_wrong(const problem *p, fp8_tensor y, bool with_bias, bool wrong)
{
    char words[160];
    assert_int_equal(find_wrong(p, &y, with_bias, words, sizeof words), wrong);
    free(y.data);
}

/* x . w with each sum rounded to 14 bits, as tensor cores without promotion keep it. */
static fp8_tensor unpromoted(const problem *p)
{
    fp8_tensor y = fp8_matrix(malloc((size_t)(p->m * p->n) * sizeof(float)), FP8_F32, p->m, p->n);
    const operand x = {&p->x, &p->x_scales, p->desc.x.grid, {0, 0}, NULL};
    const operand w = {&p->w, &p->w_scales, p->desc.w.grid, {0, 0}, NULL};
    double *xr = reals_of(&x), *wr = reals_of(&w);
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t j = 0; j < p->n; j++) {
            double sum = 0;
            for (int64_t k = 0; k < p->k; k++) {
                int exponent;
                sum = frexp(sum + xr[i * p->k + k] * wr[j * p->k + k], &exponent);
                sum = ldexp(trunc(ldexp(sum, 14)), exponent - 14);
            }
            ((float *)y.data)[i * p->n + j] = (float)sum;
        }
    free(xr);
    free(wr);
    return y;
}

/* What must not pass does not: the bound is no wider than that. */
static void the_bound_catches_mistakes(void **state)
{
    (void)state;
    const kind *xk = &x_kinds[5], *wk = &w_kinds[3];
    const int64_t shape[] = {33, 260, 384};
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    problem p = problem_new(ctx, xk, wk, shape);
    float *scale = p.w_scale_memory;
    const int64_t last = p.w_scales.shape[0] * p.w_scales.shape[1] - 1;
    expect_wrong(&p, result_of(ctx, &p, true), true, false);
    expect_wrong(&p, result_of(ctx, &p, false), true, true); /* dropped bias */
    scale[last] *= 1.01F;                                    /* wrong scale in the last block */
    expect_wrong(&p, result_of(ctx, &p, true), true, true);
    scale[last] /= 1.01F;
    const float first = scale[0];
    scale[0] = scale[1]; /* swapped scales */
    scale[1] = first;
    expect_wrong(&p, result_of(ctx, &p, true), true, true);
    scale[1] = scale[0];
    scale[0] = first;
    expect_wrong(&p, unpromoted(&p), false, true);
    problem_free(&p);
    fp8_context_free(ctx);
}

/* The codes come back as they were given. */
static void check_export(const fp8_linear *linear, const problem *p)
{
    const size_t bytes = (size_t)(p->n * p->k);
    fp8_tensor codes = fp8_matrix(malloc(bytes + 1), p->w.dtype, p->n, p->k);
    assert_int_equal(fp8_linear_export(linear, &codes, NULL, NULL), FP8_OK);
    assert_memory_equal(codes.data, p->w.data, bytes);
    free(codes.data);
}

/* dX of a problem's weight against the definition, with dY of `dtype` made from X's seed. */
static void check_dx(const fp8_context *ctx, const problem *p, fp8_dtype dtype, const char *where)
{
    guard dy_memory, dx_memory = guard_new((size_t)(p->m * p->k * 4));
    const fp8_tensor dy = elements_new(dtype, p->m, p->n, &dy_memory);
    const size_t dx_bytes = (size_t)(p->m * p->k * fp8_dtype_bits(dtype) / 8);
    fp8_tensor dx = fp8_matrix(guard_at_end(&dx_memory, dx_bytes), dtype, p->m, p->k);
    memset(dx.data, 0xFF, dx_bytes);
    fp8_linear *linear = linear_of(ctx, p, true);
    uint64_t bytes;
    fp8_error err;
    check_export(linear, p);
    assert_int_equal(fp8_linear_workspace(linear, p->m, &bytes, NULL), FP8_OK);
    guard space = guard_new(bytes);
    memset(guard_at_end(&space, bytes), 0xFF, bytes);
    if (fp8_linear_run_dx(linear, &dy, &dx, guard_at_end(&space, bytes), bytes, NULL, &err))
        fail_msg("%s", err.msg);
    const operand g = {&dy, NULL, {0, 0}, {0, 0}, NULL};
    const operand w = {&p->w, &p->w_scales, p->desc.w.grid, p->desc.w_origin,
                       p->desc.width_count ? p->widths : NULL};
    double *gr = reals_of(&g), *wr = reals_of(&w);
    double *turned = malloc((size_t)(p->n * p->k + 1) * sizeof *turned);
    for (int64_t n = 0; n < p->n; n++)
        for (int64_t k = 0; k < p->k; k++)
            turned[k * p->n + n] = wr[n * p->k + k];
    for (int64_t i = 0; i < p->m; i++)
        for (int64_t k = 0; k < p->k; k++) {
            double exact, size;
            dot_of(gr + i * p->n, turned + k * p->n, p->n, &exact, &size);
            const double got = element_of(&dx, i, k);
            const double bound = linear_bound(p->n, exact, size, 0, p->largest_scale, dtype, 1);
            if (!(fabs(got - exact) <= bound))
                fail_msg("%s: dx[%lld,%lld] is %.9g, exactly %.9g, bound %.3g", where, (long long)i,
                         (long long)k, got, exact, bound);
        }
    free(gr);
    free(wr);
    free(turned);
    fp8_linear_free(linear);
    guard_free(&space);
    guard_free(&dy_memory);
    guard_free(&dx_memory);
}

static void dx_of_every_weight_is_within_the_bound(void **state)
{
    (void)state;
    long checked = 0;
    for (int isa = 0; isa < LEVEL_COUNT; isa++) {
        fp8_context *ctx = context_at_level((fp8_isa)isa, 2);
        for (size_t b = 0; ctx && b < COUNT(w_kinds); b++)
            for (size_t s = 0; s < LINEAR_SHAPES; s++) {
                char where[160];
                if (!fp8_dtype_is_fp8(w_kinds[b].dtype) || (b + s) % 2 != 0)
                    continue;
                /* X is not read, but where its scales change the packed weight is cut too. */
                const kind *xk = &x_kinds[s % 3 ? 0 : ODD_X];
                problem p = problem_new(ctx, xk, &w_kinds[b], linear_shapes[s]);
                snprintf(where, sizeof where, "w %s, [%lld,%lld,%lld], %s", w_kinds[b].name,
                         (long long)p.m, (long long)p.n, (long long)p.k,
                         fp8_isa_name((fp8_isa)isa));
                check_dx(ctx, &p, y_dtypes[s % COUNT(y_dtypes)], where);
                problem_free(&p);
                checked++;
            }
        fp8_context_free(ctx);
    }
    printf("dx: %ld cases\n", checked);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_bound_catches_mistakes),
        cmocka_unit_test(dx_of_every_weight_is_within_the_bound),
        cmocka_unit_test(every_pair_of_kinds_is_within_the_bound),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
