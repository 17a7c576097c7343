/* SPDX-License-Identifier: Apache-2.0
 *
 * test_numeric.c - conversions against those of other packages: every code decoded, every 16-bit
 * pattern and the hard fp32 ones encoded, by the scalar code of number.h and by fp8_cast at every
 * level of this machine. A case is one element of a tensor; it passes if all of these agree with
 * it. Two NaNs agree. A tensor's name says what it is: "<format>.decode" (index = code),
 * "<format>.<mode>" (codes of "f32.input", or of the 16-bit patterns in order), "<a>_to_<b>". */
#include "golden/golden.h"
#include "number/dtype.h"
#include "number/number.h"
#include "support/levels.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const struct {
    const char *name;
    fp8_dtype dtype;
} formats[] = {
    {"e4m3fn", FP8_E4M3FN},     {"e4m3fnuz", FP8_E4M3FNUZ}, {"e5m2", FP8_E5M2},
    {"e5m2fnuz", FP8_E5M2FNUZ}, {"e8m0fnu", FP8_E8M0FNU},   {"bf16", FP8_BF16},
    {"f16", FP8_F16},           {"f32", FP8_F32},
};

/* What follows the format's name. */
static const struct {
    const char *name;
    bool decode, saturate;
    bool positive_only; /* the package ignores the sign and has its own idea of zero */
} modes[] = {
    {"decode", true, false, false},   {"ieee", false, false, false},
    {"saturate", false, true, false}, {"ml_dtypes", false, false, false},
    {"roundup", false, true, false},  {"torch", false, false, true},
};

/* One tensor of expected results and how to get them. */
typedef struct job {
    const golden_tensor *want;
    const void *input; /* of `from` */
    fp8_dtype from, to;
    bool saturate, positive_only;
} job;

static fp8_context *levels[LEVEL_COUNT];

static fp8_dtype format_named(const char *name, size_t length)
{
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        if (strlen(formats[i].name) == length && !memcmp(formats[i].name, name, length))
            return formats[i].dtype;
    return FP8_DTYPE_NONE;
}

/* 0, 1, 2 .. as elements of `bytes` bytes: every code in order. */
static void *counting(int64_t n, int bytes)
{
    unsigned char *all = malloc((size_t)(n * bytes) + 1);
    assert_non_null(all);
    for (int64_t i = 0; i < n; i++) {
        const uint16_t code = (uint16_t)i;
        memcpy(all + i * bytes, &code, (size_t)bytes);
    }
    return all;
}

static uint32_t bits_at(const void *data, fp8_dtype dtype, int64_t i)
{
    const size_t bytes = (size_t)fp8_dtype_bits(dtype) / 8;
    uint32_t bits = 0;
    memcpy(&bits, (const char *)data + (size_t)i * bytes, bytes); /* little-endian */
    return bits;
}

static bool agree(uint32_t got, uint32_t want, fp8_dtype dtype)
{
    return got == want || (fp8_dtype_is_nan(dtype, got) && fp8_dtype_is_nan(dtype, want));
}

/* results[p] = the whole tensor by path p: the scalar code, then each level that there is. */
static int compute(const job *j, void *results[LEVEL_COUNT + 1])
{
    const int64_t n = j->want->elements;
    const size_t bytes = (size_t)(n * fp8_dtype_bits(j->to) / 8) + 1;
    int paths = 0;
    results[paths] = malloc(bytes);
    assert_non_null(results[paths]);
    for (int64_t i = 0; i < n; i++)
        fp8_dtype_facts_of(j->to)->store(
            results[paths], i, fp8_dtype_facts_of(j->from)->load(j->input, i), j->saturate);
    paths++;
    for (int k = 0; k < LEVEL_COUNT; k++) {
        if (!levels[k])
            continue;
        results[paths] = malloc(bytes);
        assert_non_null(results[paths]);
        fp8_error err;
        if (fp8_cast(levels[k], j->input, j->from, results[paths], j->to, n, j->saturate, NULL,
                     &err))
            fail_msg("%s", err.msg);
        paths++;
    }
    return paths;
}

static void check_job(const job *j)
{
    void *results[LEVEL_COUNT + 1];
    const int paths = compute(j, results);
    const char *mode = j->want->name;
    for (int64_t i = 0; i < j->want->elements; i++) {
        const float x = fp8_dtype_facts_of(j->from)->load(j->input, i);
        if (j->positive_only && !(x > 0)) {
            golden_leave_out("numeric", mode);
            continue;
        }
        const uint32_t want = bits_at(j->want->view.data, j->to, i);
        int bad = -1;
        for (int p = 0; p < paths; p++)
            if (!agree(bits_at(results[p], j->to, i), want, j->to))
                bad = p;
        golden_check("numeric", mode, bad < 0, "element %lld (%a): path %d gives 0x%x, not 0x%x",
                     (long long)i, (double)x, bad, bits_at(results[bad < 0 ? 0 : bad], j->to, i),
                     want);
    }
    for (int p = 0; p < paths; p++)
        free(results[p]);
}

/* The fp32 inputs of a file, or the 16-bit patterns if it is about those. */
static void check_encode(const golden_file *f, const char *file, job *j)
{
    const golden_tensor *input = golden_find(f, "f32.input");
    void *patterns = NULL;
    if (input) {
        assert_int_equal(input->elements, j->want->elements);
        j->from = FP8_F32;
        j->input = input->view.data;
    } else {
        j->from = strstr(file, "bf16") ? FP8_BF16 : FP8_F16;
        j->input = patterns = counting(j->want->elements, 2);
    }
    check_job(j);
    free(patterns);
}

static void check_decode(job *j)
{
    void *codes = counting(j->want->elements, fp8_dtype_bits(j->from) / 8);
    j->input = codes;
    check_job(j);
    free(codes);
}

/* vLLM's change of a checkpoint from fn to fnuz: codes by this table, scales times 2. */
static void check_fnuz_table(const golden_tensor *t)
{
    const uint8_t *fnuz = t->view.data;
    for (int64_t c = 0; c < t->elements; c++) {
        if (fp8_dtype_is_nan(FP8_E4M3FN, (uint32_t)c)) {
            golden_leave_out("numeric", t->name);
            continue;
        }
        const float a = fp8_e4m3fn_to_f32((uint8_t)c), b = 2 * fp8_e4m3fnuz_to_f32(fnuz[c]);
        golden_check("numeric", t->name, a == b, "code 0x%02x: %g and %g", (int)c, (double)a,
                     (double)b);
    }
}

/* "<format>.<mode>"; false if it is none of these. */
static bool check_dotted(const golden_file *f, const char *file, const golden_tensor *t)
{
    const char *dot = strchr(t->name, '.');
    const fp8_dtype format = dot ? format_named(t->name, (size_t)(dot - t->name)) : FP8_DTYPE_NONE;
    for (size_t m = 0; format && m < sizeof modes / sizeof *modes; m++) {
        if (strcmp(dot + 1, modes[m].name))
            continue;
        job j = {t, NULL, format, format, modes[m].saturate, modes[m].positive_only};
        if (modes[m].decode) {
            j.to = FP8_F32;
            check_decode(&j);
        } else {
            check_encode(f, file, &j);
        }
        return true;
    }
    return false;
}

/* "<a>_to_<b>"; false if it is none of these. */
static bool check_pair(const golden_file *f, const char *file, const golden_tensor *t)
{
    const char *to = strstr(t->name, "_to_");
    if (!to)
        return false;
    job j = {.want = t,
             .from = format_named(t->name, (size_t)(to - t->name)),
             .to = format_named(to + 4, strlen(to + 4))};
    if (j.from == FP8_E4M3FN && j.to == FP8_E4M3FNUZ)
        check_fnuz_table(t);
    else if (j.from == FP8_F32 && j.to)
        check_encode(f, file, &j);
    else if (j.from && j.to == FP8_F32)
        check_decode(&j);
    else
        return false;
    return true;
}

static void check_file(const char *file)
{
    golden_file *f = golden_load("numeric", file);
    assert_non_null(f);
    for (int64_t i = 0; i < golden_count(f); i++) {
        const golden_tensor *t = golden_at(f, i);
        if (!strcmp(t->name, "f32.input"))
            continue;
        if (!strncmp(t->name, "e2m1.", 5)) /* a format that the library does not compute with */
            golden_leave_out("numeric", t->name);
        else if (!check_dotted(f, file, t) && !check_pair(f, file, t))
            golden_fail("numeric", t->name, "%s: no rule for a tensor of this name", file);
    }
    golden_free(f);
}

static void conversions_agree_with_other_packages(void **state)
{
    (void)state;
    for (int isa = 0; isa < LEVEL_COUNT; isa++)
        levels[isa] = context_at_level((fp8_isa)isa, 1);
    char **names = golden_names("numeric", ".safetensors");
    for (char **name = names; *name; name++)
        check_file(*name);
    golden_free_names(names);
    for (int isa = 0; isa < LEVEL_COUNT; isa++)
        fp8_context_free(levels[isa]);
    assert_true(golden_report("numeric"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(conversions_agree_with_other_packages)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
