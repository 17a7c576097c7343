/* SPDX-License-Identifier: Apache-2.0
 *
 * verb_verify.c - fp8 verify: findings as they are met, then one line that sums them up. */
#include "cli/escape.h"
#include "cli/exit_code.h"
#include "cli/json_out.h"
#include "cli/start.h"
#include "cli/verbs.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

#define MAX_RULES 64
#define FIRST     20 /* findings of a rule that are printed without -v */

/* How often a rule was broken. */
typedef struct tally {
    char rule[48];
    bool is_error;
    int64_t count;
} tally;

/* What the callback needs. */
typedef struct listener {
    const cli_args *args;
    cli_json json;
    tally rules[MAX_RULES];
    int rule_count;
} listener;

/* The tally of a finding's rule; NULL if there are too many rules to count. */
static tally *tally_of(listener *to, const fp8_finding *finding)
{
    for (int i = 0; i < to->rule_count; i++) {
        tally *known = &to->rules[i];
        if (known->is_error == (finding->is_error != 0) &&
            strncmp(known->rule, finding->rule, sizeof known->rule - 1) == 0)
            return known;
    }
    if (to->rule_count == MAX_RULES)
        return NULL;
    tally *fresh = &to->rules[to->rule_count++];
    snprintf(fresh->rule, sizeof fresh->rule, "%s", finding->rule);
    fresh->is_error = finding->is_error != 0;
    return fresh;
}

/* A model has thousands of layers that can break a rule in the same way: a rule is printed FIRST
 * times, the rest is counted. */
static bool is_printed(listener *to, const fp8_finding *finding)
{
    tally *of = tally_of(to, finding);
    return of == NULL || of->count++ < FIRST || to->args->verbose;
}

static void print_unprinted(const listener *to)
{
    for (int i = 0; i < to->rule_count && !to->args->verbose; i++) {
        const tally *of = &to->rules[i];
        if (of->count > FIRST)
            printf("%-7s  %s  %" PRId64 " more (-v prints all)\n",
                   of->is_error ? "error" : "warning", of->rule, of->count - FIRST);
    }
}

static void print_finding(const fp8_finding *finding)
{
    printf("%-7s  %s", finding->is_error ? "error" : "warning", finding->rule);
    /* A message that names its tensor need not do it twice. */
    if (*finding->tensor && strstr(finding->message, finding->tensor) == NULL) {
        fputs("  ", stdout);
        cli_text_print(stdout, finding->tensor, strlen(finding->tensor));
    }
    fputs("  ", stdout);
    cli_text_print(stdout, finding->message, strlen(finding->message));
    putchar('\n');
}

static void json_finding(cli_json *json, const fp8_finding *finding)
{
    cli_json_begin(json, NULL, '{');
    cli_json_text(json, "severity", finding->is_error ? "error" : "warning");
    cli_json_text(json, "rule", finding->rule);
    cli_json_text(json, "tensor", finding->tensor);
    cli_json_text(json, "message", finding->message);
    cli_json_end(json, '}');
}

static void on_finding(void *user, const fp8_finding *finding)
{
    listener *to = user;
    if (to->args->json)
        json_finding(&to->json, finding);
    else if (!to->args->quiet && is_printed(to, finding))
        print_finding(finding);
}

static void print_summary(const cli_args *args, const fp8_verify_summary *sum)
{
    cli_text_print(stdout, args->paths[0], strlen(args->paths[0]));
    printf(": %s: %" PRId64 " tensors, ", sum->errors > 0 ? "BAD" : "good", sum->tensors);
    if (sum->quantized > 0)
        printf("%" PRId64 " quantized; ", sum->quantized);
    else
        printf("none quantized; ");
    printf("%" PRId64 " error%s, %" PRId64 " warning%s\n", sum->errors, sum->errors == 1 ? "" : "s",
           sum->warnings, sum->warnings == 1 ? "" : "s");
    if (args->against == NULL)
        return;
    printf("compared %" PRId64 " tensors with ", sum->compared);
    cli_text_print(stdout, args->against, strlen(args->against));
    if (isfinite(sum->worst_sqnr_db))
        printf(": SQNR worst %.2f dB, median %.2f dB", sum->worst_sqnr_db, sum->median_sqnr_db);
    putchar('\n');
}

static void json_summary(cli_json *json, const fp8_verify_summary *sum)
{
    cli_json_begin(json, "summary", '{');
    cli_json_bool(json, "good", sum->errors == 0);
    cli_json_int(json, "tensors", sum->tensors);
    cli_json_int(json, "quantized", sum->quantized);
    cli_json_int(json, "errors", sum->errors);
    cli_json_int(json, "warnings", sum->warnings);
    cli_json_int(json, "compared", sum->compared);
    cli_json_real(json, "worst_sqnr_db", sum->worst_sqnr_db);
    cli_json_real(json, "median_sqnr_db", sum->median_sqnr_db);
    cli_json_end(json, '}');
}

static int verify(const cli_args *args, const fp8_context *ctx)
{
    fp8_error err = {0};
    fp8_verify_summary sum = {0};
    fp8_verify_desc desc = FP8_VERIFY_DESC_INIT;
    listener to = {.args = args, .json = {.out = stdout}};
    desc.path = args->paths[0];
    desc.against = args->against;
    desc.engine = args->engine;
    desc.tp = args->tp;
    if (args->json) {
        cli_json_begin(&to.json, NULL, '{');
        cli_json_begin(&to.json, "findings", '[');
    }
    fp8_status status = fp8_verify(ctx, &desc, on_finding, &to, &sum, &err);
    if (args->json) {
        cli_json_end(&to.json, ']');
        if (status == FP8_OK)
            json_summary(&to.json, &sum);
        else
            cli_json_error(&to.json, &err);
        cli_json_end(&to.json, '}');
    }
    if (status != FP8_OK)
        return cli_fail(&err, 0, "");
    if (!args->json && !args->quiet) {
        print_unprinted(&to);
        print_summary(args, &sum);
    }
    return sum.errors > 0 ? CLI_BAD : CLI_DONE;
}

int cli_run_verify(const cli_args *args)
{
    fp8_context *ctx;
    int code = cli_context(args, &ctx);
    if (code == CLI_DONE)
        code = verify(args, ctx);
    fp8_context_free(ctx);
    return code;
}
