/* SPDX-License-Identifier: Apache-2.0
 *
 * test_bad.c - broken and odd files: verdicts.tsv says of each what a strict reader must do
 * (reject, accept, warn, either). Nothing may be accepted that must be rejected, and the other way
 * round. */
#include "ckpt/file.h"
#include "ckpt/safetensors.h"
#include "golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static fp8_status read_container(const fp8_context *ctx, const char *path, fp8_error *err)
{
    int fd;
    fp8_st_header header;
    fp8_status status = fp8_open_regular(path, &fd, NULL, err);
    if (status != FP8_OK)
        return status;
    status = fp8_st_read(ctx, fd, path, &header, err);
    close(fd);
    fp8_st_free(ctx, &header);
    return status;
}

static void verdicts_hold(void **state)
{
    (void)state;
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    golden_table *table = golden_read_tsv("bad", "verdicts.tsv");
    for (int64_t i = 0; i < golden_rows(table); i++) {
        const char *file = golden_cell(table, i, "file");
        const char *verdict = golden_cell(table, i, "strict_reader");
        fp8_error err = {0};
        if (file[strlen(file) - 1] == '/')
            continue;
        fp8_status status = read_container(ctx, golden_path("bad", file), &err);
        bool ok = !strcmp(verdict, "either") || (status == FP8_OK) == !strcmp(verdict, "accept");
        golden_check("bad", verdict, ok, "%s: %s %s", file, fp8_status_name(status), err.msg);
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
