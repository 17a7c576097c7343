/* SPDX-License-Identifier: Apache-2.0
 *
 * verbs.h - the one table of verbs: what each is called, takes, says and runs. */
#ifndef FP8_CLI_VERBS_H
#define FP8_CLI_VERBS_H

#include "cli/options.h"

typedef struct cli_verb {
    const char *name;
    int bit;                           /* CLI_QUANTIZE, .. */
    const char *paths;                 /* "SRC -o DST" */
    int least, most;                   /* number of paths */
    int (*run)(const cli_args *args);  /* returns the exit code */
    const char *summary;               /* a few words */
    const char *text;                  /* what --help says, lines of at most 80 columns */
    const char *examples;              /* commands, a line each, indented by two */
    const char *(*subject)(int64_t i); /* what it takes instead of paths; NULL = paths */
} cli_verb;

/* Verb i, NULL past the last. */
const cli_verb *cli_verb_at(int64_t i);
/* The verb called `name`, NULL if there is none. */
const cli_verb *cli_verb_find(const char *name);
/* The name of verb i, NULL past the last. */
const char *cli_verb_name(int64_t i);

int cli_run_quantize(const cli_args *args);
int cli_run_dequantize(const cli_args *args);
int cli_run_convert(const cli_args *args);
int cli_run_inspect(const cli_args *args);
int cli_run_verify(const cli_args *args);
int cli_run_diff(const cli_args *args);
int cli_run_schemes(const cli_args *args);
int cli_run_doctor(const cli_args *args);
int cli_run_explain(const cli_args *args);
int cli_run_bench(const cli_args *args);
int cli_run_tune(const cli_args *args);

/* Subject i of bench, NULL past the last. */
const char *cli_bench_subject(int64_t i);
/* Scheme i that tune takes, NULL past the last. */
const char *cli_tune_scheme(int64_t i);

#endif
