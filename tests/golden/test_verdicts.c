/* SPDX-License-Identifier: Apache-2.0
 *
 * test_verdicts.c - fp8_verify over checkpoints that other tools wrote, each against its bf16
 * source: the good ones have no error, of the two kinds that are broken as their writers left them
 * each is found by its rule. The source of "model_ct_block" is "model_bf16". */
#include "golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const char family[] = "checkpoints";

/* What the end of a folder's name says of a broken one. */
static const struct {
    const char *tail, *rule;
} broken[] = {
    {"_garbage_scales", "scale-unquantized"},
    {"_fused_scales", "scale-fused"},
};

typedef struct watch {
    const char *folder, *rule; /* rule NULL: an error is a failure */
    int hits;
} watch;

static void on_finding(void *user, const fp8_finding *f)
{
    watch *w = user;
    if (!w->rule && f->is_error)
        print_error("%s: %s [%s] %s\n", w->folder, f->rule, f->tensor, f->message);
    w->hits += w->rule && !strcmp(w->rule, f->rule) && *f->tensor;
}

static const char *rule_of(const char *folder)
{
    size_t n = strlen(folder);
    for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
        size_t m = strlen(broken[i].tail);
        if (n > m && !strcmp(folder + n - m, broken[i].tail))
            return broken[i].rule;
    }
    return NULL;
}

/* The folder's source, NULL if it is none of a quantized checkpoint. */
static const char *source_of(const char *folder)
{
    char name[256];
    const char *cut = strstr(folder, "_hf_");
    cut = cut ? cut : strstr(folder, "_ct_");
    if (!cut)
        return NULL;
    snprintf(name, sizeof name, "%.*s_bf16", (int)(cut - folder), folder);
    return golden_path(family, name);
}

static void verify_folder(const fp8_context *ctx, const char *folder)
{
    watch w = {folder, rule_of(folder), 0};
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    fp8_verify_summary sum;
    fp8_error err = {.msg = ""};
    desc.against = source_of(folder);
    desc.path = golden_path(family, folder);
    if (!desc.against || access(desc.against, F_OK))
        return;
    fp8_status status = fp8_verify(ctx, &desc, on_finding, &w, &sum, &err);
    bool found = w.rule ? w.hits > 0 && sum.errors > 0 : sum.errors == 0;
    golden_check(family, w.rule ? "verify broken" : "verify good", status == FP8_OK && found,
                 "%s: status %d %s, %lld errors", folder, status, err.msg, (long long)sum.errors);
    golden_check(family, "verify quantized", sum.quantized > 0 && sum.compared >= sum.quantized,
                 "%s: %lld quantized, %lld compared", folder, (long long)sum.quantized,
                 (long long)sum.compared);
}

static void verdicts_are_right(void **state)
{
    (void)state;
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    char **folders = golden_names(family, "");
    for (int i = 0; folders && folders[i]; i++)
        verify_folder(ctx, folders[i]);
    golden_free_names(folders);
    fp8_context_free(ctx);
    assert_true(golden_report_by(family, "expected_verdicts.tsv"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(verdicts_are_right)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
