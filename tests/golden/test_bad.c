/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bad.c - broken and odd files: verdicts.tsv says of each what a strict reader must do
 * (reject, accept, warn, either). Nothing may be accepted that must be rejected, nor the other way
 * round; a refusal is one line that names the file. */
#include "golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

/* What our reader does with a file, in the table's words. */
static const char *verdict_on(const fp8_context *ctx, const char *path, fp8_error *err)
{
    fp8_checkpoint *ckpt;
    if (fp8_checkpoint_open(ctx, path, &ckpt, err) != FP8_OK) {
        assert_non_null(strstr(err->msg, path));
        assert_true(err->code == FP8_E_FORMAT || err->code == FP8_E_TRUNCATED);
        return "reject";
    }
    bool warned = fp8_checkpoint_warning(ckpt, 0) != NULL;
    if (warned)
        snprintf(err->msg, sizeof err->msg, "%s", fp8_checkpoint_warning(ckpt, 0));
    fp8_checkpoint_close(ckpt);
    return warned ? "warn" : "accept";
}

static void verdicts_hold(void **state)
{
    (void)state;
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    golden_table *table = golden_read_tsv("bad", "verdicts.tsv");
    for (int64_t i = 0; i < golden_rows(table); i++) {
        const char *file = golden_cell(table, i, "file");
        const char *wanted = golden_cell(table, i, "strict_reader");
        char path[4096];
        fp8_error err = {0};
        snprintf(path, sizeof path, "%s", golden_path("bad", file));
        if (path[strlen(path) - 1] == '/')
            path[strlen(path) - 1] = 0;
        const char *found = verdict_on(ctx, path, &err);
        bool ok = !strcmp(wanted, found) || !strcmp(wanted, "either");
        golden_check("bad", wanted, ok, "%s: %s: %s", file, found, err.msg);
    }
    golden_free_tsv(table);
    fp8_context_free(ctx);
    assert_true(golden_report("bad"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(verdicts_hold)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
