/* SPDX-License-Identifier: Apache-2.0
 *
 * options.h - the one table of options. The parser, --help, the completions and the OPTIONS of the
 * man pages all read it, so that none of them can know an option that another does not. */
#ifndef FP8_CLI_OPTIONS_H
#define FP8_CLI_OPTIONS_H

#include "cli/shapes.h"
#include "fp8.h"

#include <stdbool.h>

/* The verbs as bits of cli_option.verbs. */
enum {
    CLI_QUANTIZE = 1 << 0,
    CLI_DEQUANTIZE = 1 << 1,
    CLI_CONVERT = 1 << 2,
    CLI_INSPECT = 1 << 3,
    CLI_VERIFY = 1 << 4,
    CLI_DIFF = 1 << 5,
    CLI_SCHEMES = 1 << 6,
    CLI_DOCTOR = 1 << 7,
    CLI_EXPLAIN = 1 << 8,
    CLI_BENCH = 1 << 9,
    CLI_TUNE = 1 << 10,
    CLI_MAKES = CLI_QUANTIZE | CLI_DEQUANTIZE | CLI_CONVERT,
    CLI_TO_FP8 = CLI_QUANTIZE | CLI_CONVERT,
    CLI_READS = CLI_MAKES | CLI_INSPECT | CLI_VERIFY | CLI_DIFF,
    CLI_ALL = CLI_READS | CLI_SCHEMES | CLI_DOCTOR | CLI_EXPLAIN | CLI_BENCH | CLI_TUNE,
};

/* A command line, parsed. Texts point into argv; what was not given is NULL or 0. */
typedef struct cli_args {
    const char *paths[2]; /* SRC; DIR; PATH; A and B; the subject of bench */
    int path_count;
    const char *output, *scheme, *engine, *numerics, *nan, *dtype, *progress, *report, *against,
        *activation_scales, *activation, *shape_file, *m_list, *tuned;
    cli_shapes shapes;     /* --shape in the order given */
    fp8_pattern *patterns; /* --keep, --only and --set in the order given */
    size_t pattern_count;
    uint64_t max_memory, max_shard_size;
    int32_t threads, tp, part_index, part_count;
    int32_t device, device_index; /* fp8_device; which of them */
    double seconds;
    bool dry_run, json, resume, force, quiet, verbose, help, version, peaks;
} cli_args;

typedef enum cli_kind {
    CLI_FLAG,    /* bool */
    CLI_TEXT,    /* const char *, one of choice() where there is one */
    CLI_SIZE,    /* uint64_t */
    CLI_COUNT,   /* int32_t from 1 */
    CLI_PART,    /* int32_t [2], I/N */
    CLI_PATTERN, /* appended to patterns */
    CLI_SHAPE,   /* appended to shapes, MxNxK */
    CLI_SECONDS, /* double, above 0 */
    CLI_DEVICE,  /* int32_t [2]: fp8_device and its index */
} cli_kind;

/* What completes an argument that has no choices. */
typedef enum cli_complete { CLI_NOTHING, CLI_FILE, CLI_DIRECTORY, CLI_CHECKPOINT } cli_complete;

typedef struct cli_option {
    const char *name; /* without "--"; another option may have it for other verbs */
    char letter;      /* 0 = none */
    int verbs;
    cli_kind kind;
    size_t field;         /* offset in cli_args */
    const char *argument; /* "SIZE"; NULL for a flag */
    const char *(*choice)(int64_t i);
    cli_complete complete;
    fp8_pattern_kind pattern;
    const char *help; /* a few words */
    const char *more; /* further sentences for the man page, NULL = none */
} cli_option;

/* Option i of the table, NULL past the last. */
const cli_option *cli_option_at(int64_t i);

/* The dtype of an argument of --dtype; BF16 for NULL. */
fp8_dtype cli_dtype_of(const char *name);

/* The name of scheme i, NULL past the last. */
const char *cli_scheme_name(int64_t i);

/* Parses argv[1..argc) for a verb (one CLI_* bit, called `name`) that takes between `least` and
 * `most` paths; where there is subject(), its names are the only ones. Prints what is wrong;
 * returns CLI_DONE, CLI_USAGE or CLI_MEMORY. --help and
 * --version stop the parsing. Free with cli_args_free in any case. Changes the argument of --set in
 * place. */
int cli_parse(int argc, char **argv, int verb, const char *name, int least, int most,
              const char *(*subject)(int64_t i), cli_args *args);
void cli_args_free(cli_args *args);

#endif
