/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cli_options.c - the parser of command lines, the table of options and the exit codes. */
#include "cli/exit_code.h"
#include "cli/options.h"
#include "cli/verbs.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

/* Parses the words of `line` for its first word, a verb. */
static int parse(const char *line, cli_args *args)
{
    static char words[1024];
    static char *argv[64];
    int argc = 0;
    snprintf(words, sizeof words, "%s", line);
    for (char *word = strtok(words, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    const cli_verb *verb = cli_verb_find(argv[0]);
    return cli_parse(argc, argv, verb->bit, verb->name, verb->least, verb->most, verb->subject,
                     args);
}

static void test_everything(void **state)
{
    cli_args args;
    (void)state;
    assert_int_equal(parse("quantize src --output=dst --scheme hf-block --for vllm --numerics best "
                           "--keep a --set b=hf-block --only c=d --nan keep --dry-run --json -j 3 "
                           "--max-memory 64MiB --max-shard-size=5GB --resume --force -v "
                           "--report r.html --shard 2/8 --progress json --activation-scales f",
                           &args),
                     CLI_DONE);
    assert_string_equal(args.paths[0], "src");
    assert_int_equal(args.path_count, 1);
    assert_string_equal(args.output, "dst");
    assert_string_equal(args.scheme, "hf-block");
    assert_string_equal(args.engine, "vllm");
    assert_string_equal(args.numerics, "best");
    assert_string_equal(args.nan, "keep");
    assert_true(args.dry_run && args.json && args.resume && args.force && args.verbose);
    assert_false(args.quiet || args.help || args.version);
    assert_int_equal(args.threads, 3);
    assert_int_equal(args.max_memory, 64 << 20);
    assert_int_equal(args.max_shard_size, 5000000000);
    assert_int_equal(args.part_index, 2);
    assert_int_equal(args.part_count, 8);
    assert_string_equal(args.report, "r.html");
    assert_string_equal(args.progress, "json");
    assert_string_equal(args.activation_scales, "f");
    assert_int_equal(args.pattern_count, 3);
    assert_int_equal(args.patterns[0].kind, FP8_PATTERN_KEEP);
    assert_string_equal(args.patterns[0].text, "a");
    assert_int_equal(args.patterns[1].kind, FP8_PATTERN_SET);
    assert_string_equal(args.patterns[1].text, "b");
    assert_string_equal(args.patterns[1].scheme, "hf-block");
    assert_int_equal(args.patterns[2].kind, FP8_PATTERN_ONLY);
    assert_string_equal(args.patterns[2].text, "c=d");
    cli_args_free(&args);
}

static void test_good(void **state)
{
    static const char *const lines[] = {
        "quantize -o dst src",
        "quantize -odst src",
        "quantize --out dst src",
        "quantize src -o dst -- ",
        "quantize -o dst -- -src",
        "quantize --help",
        "quantize --version --bad",
        "diff a b -q",
        "verify d --tp 8 --against s",
        "dequantize s -o d --dtype f16",
        "inspect p --json -v",
        "schemes --json",
        "quantize s -o d --set re:x=y=hf-block",
        "doctor -h",
        "doctor --peaks",
        "explain --shape 1x2x3 --shape 4x5x6 --scheme block --activation none",
        "bench linear --shape 1x2x3 --m 1,2 --seconds 0.25 -j 1 --scheme gemm --json",
        "bench --shapes f quantize",
        "quantize s -o d --max-memory 1 --max-memory 2",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        cli_args args;
        if (parse(lines[i], &args) != CLI_DONE)
            fail_msg("refused: %s", lines[i]);
        cli_args_free(&args);
    }
}

static void test_bad(void **state)
{
    static const char *const lines[] = {
        "quantize",
        "quantize a b -o c",
        "quantize a -o",
        "quantize a --bad",
        "quantize a -z",
        "quantize a --json=1",
        "quantize a --m 1MB", /* ambiguous */
        "quantize a --scheme none-such",
        "quantize a --for none-such",
        "quantize a --numerics none-such",
        "quantize a --nan maybe",
        "quantize a --progress fancy",
        "quantize a --max-memory 1e99",
        "quantize a --max-memory=",
        "quantize a --max-shard-size -1",
        "quantize a --shard 9/8",
        "quantize a -j 0",
        "quantize a -j 99999999999",
        "quantize a --set x",
        "quantize a --set x=none-such",
        "quantize a --set =hf-block",
        "quantize a --keep=",
        "quantize a --report x.pdf",
        "quantize a --report html",
        "quantize a -q -v",
        "quantize a --dtype f32", /* dequantize's */
        "dequantize a --scheme hf-block",
        "inspect a --force",
        "verify a --tp 0",
        "diff a",
        "diff a b c",
        "doctor x",
        "doctor --scheme block",
        "explain --shape 1x2",
        "explain --shape 1x2x3x4",
        "explain --shape 1x2x",
        "explain --shape -1x2x3",
        "explain --shape 1x2x3 linear",
        "explain --shape 1x2x99999999999999999999",
        "explain --scheme hf-block",
        "explain --activation fast",
        "quantize s -o d --scheme block",
        "bench",
        "bench convert",
        "bench linear quantize",
        "bench linear --seconds 0",
        "bench linear --seconds -1",
        "bench linear --seconds nan",
        "bench linear --seconds 1s",
        "bench linear --scheme hf-block",
        "bench linear -s block",
        "bench linear --activation none",
        "tune linear",
        "tune -o",
        "tune --scheme mx",
        "tune --device gpu",
        "tune --tuned f",
        "doctor --tuned f",
    };
    (void)state;
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++) {
        cli_args args;
        if (parse(lines[i], &args) != CLI_USAGE)
            fail_msg("not refused: %s", lines[i]);
        cli_args_free(&args);
    }
}

static void test_table(void **state)
{
    const cli_option *a, *b;
    (void)state;
    for (int64_t i = 0; (a = cli_option_at(i)) != NULL; i++) {
        assert_true(a->verbs != 0 && a->help[0] != 0);
        assert_true((a->kind == CLI_FLAG) == (a->argument == NULL));
        for (int64_t j = i + 1; (b = cli_option_at(j)) != NULL; j++) {
            if (a->verbs & b->verbs) {
                assert_string_not_equal(a->name, b->name);
                assert_true(a->letter == 0 || a->letter != b->letter);
            }
        }
    }
    assert_null(cli_option_at(-1));
    assert_null(cli_verb_find(""));
}

/* Every status has an exit code, and only OK has 0. */
static void test_exit_codes(void **state)
{
    (void)state;
    for (int status = 0; status < 60; status++) {
        if (strcmp(fp8_status_name((fp8_status)status), "FP8_E_?") == 0)
            continue;
        int code = cli_exit_code((fp8_status)status);
        assert_true((code == CLI_DONE) == (status == FP8_OK));
        assert_int_not_equal(code, CLI_BAD);
    }
    assert_int_equal(cli_exit_code(FP8_E_FORMAT), 3);
    assert_int_equal(cli_exit_code(FP8_E_NAN), 3);
    assert_int_equal(cli_exit_code(FP8_E_NO_SPACE), 4);
    assert_int_equal(cli_exit_code(FP8_E_NO_MEMORY), 5);
    assert_int_equal(cli_exit_code(FP8_E_UNSUPPORTED), 6);
    assert_int_equal(cli_exit_code(FP8_E_STOPPED), 130);
    assert_int_equal(cli_exit_code(FP8_E_EXISTS), 2);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_everything), cmocka_unit_test(test_good),
        cmocka_unit_test(test_bad),        cmocka_unit_test(test_table),
        cmocka_unit_test(test_exit_codes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
