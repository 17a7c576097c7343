/* SPDX-License-Identifier: Apache-2.0
 *
 * test_damage.c - fp8_verify against damage: a good checkpoint is spoilt in one way after another,
 * and each must be found by the rule made for it, with the tensor named. */
#include "support/context_fixture.h"
#include "support/damage.h"
#include "support/sandbox.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

typedef struct watch {
    const damage *row;
    int found;
    char all[16384]; /* every finding, for the message of a failure */
} watch;

static void on_finding(void *user, const fp8_finding *f)
{
    watch *w = user;
    size_t used = strlen(w->all);
    snprintf(w->all + used, sizeof w->all - used, "\n  %s %s [%s] %s",
             f->is_error ? "error" : "warning", f->rule, f->tensor, f->message);
    if (w->row->rule && !strcmp(f->rule, w->row->rule) && !strcmp(f->tensor, w->row->place) &&
        f->is_error == !w->row->is_warning && (!w->row->words || strstr(f->message, w->row->words)))
        w->found++;
}

static bool run_row(const fp8_context *ctx, const damage *row)
{
    watch w = {.row = row};
    fp8_error err;
    fp8_verify_summary sum;
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    const char *folder = sandbox_make();
    edit_model *model = edit_load(ctx, row->good->folder, row->good->shards);
    row->model(model);
    edit_save(ctx, model, folder);
    if (row->files)
        row->files(folder);
    desc.path = folder;
    desc.against = row->with_source ? row->good->source : NULL;
    fp8_status status = fp8_verify(ctx, &desc, on_finding, &w, &sum, &err);
    if (!row->rule) /* the source's generation_config.json does not come along */
        w.found = sum.errors == 0 && sum.warnings <= 1 && sum.compared > 10;
    bool fine =
        status == FP8_OK && w.found && (row->rule == NULL) == (sum.errors == 0 && !row->is_warning);
    if (row->is_warning)
        fine = status == FP8_OK && w.found == 1;
    if (!fine)
        print_error("%s: status %d, wanted %s [%s], found:%s\n", row->name, status,
                    row->rule ? row->rule : "nothing", row->place, w.all);
    edit_free(model);
    sandbox_remove();
    return fine;
}

static void every_damage_is_found(void **state)
{
    fp8_context *ctx = *state;
    int failed = 0;
    for (size_t i = 0; i < damage_count; i++)
        failed += !run_row(ctx, &damages[i]);
    print_message("%zu kinds of damage\n", damage_count);
    assert_int_equal(failed, 0);
}

/* Every bit of one code: a change of any of them is found, -0 for +0 excepted. */
static void every_bit_of_a_code_counts(void **state)
{
    fp8_context *ctx = *state;
    static const good block = {"tests/golden/checkpoints/llama_tied_hf_block",
                               "tests/golden/checkpoints/llama_tied_bf16", 1};
    static const char gate[] = "model.layers.0.mlp.gate_proj.weight";
    const damage row = {.rule = "code-changed", .place = gate, .words = "1 of 98304"};
    edit_model *model = edit_load(ctx, block.folder, 1);
    unsigned char *data = edit_find(model, gate)->data;
    for (int i = 0; i < 64; i++) {
        uint64_t at = (uint64_t)i * 1531;
        unsigned char old = data[at], bit = (unsigned char)(1 << (i & 7));
        if (!((old | (old ^ bit)) & 0x7f) || ((old ^ bit) & 0x7f) == 0x7f)
            continue;
        watch w = {.row = &row};
        fp8_verify_summary sum;
        fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
        const char *folder = sandbox_make();
        data[at] ^= bit;
        edit_save(ctx, model, folder);
        data[at] = old;
        desc.path = folder;
        desc.against = block.source;
        assert_int_equal(fp8_verify(ctx, &desc, on_finding, &w, &sum, NULL), FP8_OK);
        if (w.found != 1)
            fail_msg("code %llu, 0x%02x with bit 0x%02x: %s", (unsigned long long)at, old, bit,
                     w.all);
        sandbox_remove();
    }
    edit_free(model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_damage_is_found),
        cmocka_unit_test(every_bit_of_a_code_counts),
    };
    return cmocka_run_group_tests(tests, context_set_up, context_tear_down);
}
