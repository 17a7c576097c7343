/* SPDX-License-Identifier: Apache-2.0
 *
 * test_names.c - tensors of real and made-up models with the kind that each is: MODEL.tsv (tensor,
 * dtype, shape, kind) beside MODEL.json, the facts of its config. The kinds come from the classes
 * of the modules that own the tensors in transformers, where it has the model. */
#include "convert/names.h"
#include "golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const char family[] = "names";

static char *read_file(const char *file, size_t *bytes)
{
    FILE *f = fopen(golden_path(family, file), "rb");
    char *text = malloc(1 << 16);
    assert_non_null(f);
    assert_non_null(text);
    *bytes = fread(text, 1, 1 << 16, f);
    fclose(f);
    return text;
}

/* "2x64x160" -> the number of sizes; "" is a scalar. */
static int32_t parse_shape(const char *text, int64_t *shape)
{
    int32_t n = 0;
    while (*text && n < 8) {
        char *end;
        shape[n++] = strtoll(text, &end, 10);
        text = *end == 'x' ? end + 1 : end;
    }
    return n;
}

/* As the vectors spell them. */
static const char *const kind_names[] = {
    [FP8_KIND_LINEAR] = "linear",       [FP8_KIND_CONV1D] = "conv1d",
    [FP8_KIND_EXPERTS] = "experts",     [FP8_KIND_EXPERTS_IN_OUT] = "experts-in-out",
    [FP8_KIND_EMBEDDING] = "embedding", [FP8_KIND_HEAD] = "head",
    [FP8_KIND_NORM] = "norm",           [FP8_KIND_ROUTER] = "router",
    [FP8_KIND_CONV] = "convolution",    [FP8_KIND_POSITION] = "position",
    [FP8_KIND_OTHER] = "other",
};

static void check_model(const char *file)
{
    char model[256];
    size_t bytes;
    fp8_config config;
    snprintf(model, sizeof model, "%.*s", (int)(strlen(file) - 4), file);
    char json[300];
    snprintf(json, sizeof json, "%s.json", model);
    char *text = read_file(json, &bytes);
    assert_int_equal(fp8_config_read(text, bytes, &config, NULL), FP8_OK);
    golden_table *t = golden_read_tsv(family, file);
    for (int64_t i = 0; i < golden_rows(t); i++) {
        int64_t shape[8];
        const char *name = golden_cell(t, i, "tensor"), *reason;
        const char *wanted = golden_cell(t, i, "kind");
        int32_t ndim = parse_shape(golden_cell(t, i, "shape"), shape);
        fp8_kind kind =
            fp8_name_kind(&config, name, strlen(name), fp8_dtype_parse(golden_cell(t, i, "dtype")),
                          ndim, shape, &reason);
        golden_check(family, wanted, strcmp(kind_names[kind], wanted) == 0,
                     "%s: %s is %s (%s), wanted %s", model, name, kind_names[kind], reason, wanted);
    }
    golden_free_tsv(t);
    free(text);
}

static void names_are_told_apart(void **state)
{
    (void)state;
    char **files = golden_names(family, ".tsv");
    for (char **file = files; *file; file++)
        if (strcmp(*file, "expected.tsv") != 0)
            check_model(*file);
    golden_free_names(files);
    assert_true(golden_report(family));
}

int main(void)
{
    unsetenv("FP8_GOLDEN_DIR"); /* these lists are ours alone: no other folder has them */
    const struct CMUnitTest tests[] = {cmocka_unit_test(names_are_told_apart)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
