/* SPDX-License-Identifier: Apache-2.0
 *
 * options.c - the table of options and the parser that getopt_long drives by it. */
#include "cli/options.h"

#include "cli/escape.h"
#include "cli/exit_code.h"
#include "cli/linear_scheme.h"
#include "cli/units.h"
#include "cli/verbs.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_OPTIONS 64
#define LONG_ONLY   256 /* getopt's value of option i without a letter is LONG_ONLY + i */

const char *cli_scheme_name(int64_t i)
{
    fp8_scheme_info info;
    return fp8_scheme(i, &info) == FP8_OK ? info.name : NULL;
}

static const char *nan_choice(int64_t i)
{
    static const char *const names[] = {"refuse", "keep"};
    return i < 2 ? names[i] : NULL;
}

static const char *progress_choice(int64_t i)
{
    static const char *const names[] = {"auto", "plain", "none", "json"};
    return i < 4 ? names[i] : NULL;
}

static const char *dtype_choice(int64_t i)
{
    static const char *const names[] = {"bf16", "f16", "f32"};
    return i < 3 ? names[i] : NULL;
}

fp8_dtype cli_dtype_of(const char *name)
{
    if (name != NULL && strcmp(name, "f32") == 0)
        return FP8_F32;
    if (name != NULL && strcmp(name, "f16") == 0)
        return FP8_F16;
    return FP8_BF16;
}

#define FIELD(name) offsetof(cli_args, name)

/* clang-format off */
static const cli_option options[] = {
    {.name = "output", .letter = 'o', .verbs = CLI_MAKES, .kind = CLI_TEXT, .field = FIELD(output),
     .argument = "DST", .complete = CLI_DIRECTORY, .help = "the directory to make",
     .more = "It must not exist (but see --force) nor lie inside SRC. It is built as DST.partial "
             "and renamed when it is whole."},
    {.name = "output", .letter = 'o', .verbs = CLI_TUNE, .kind = CLI_TEXT, .field = FIELD(output),
     .argument = "FILE", .complete = CLI_FILE, .help = "the file to write",
     .more = "It must not exist (but see --force). It is built as FILE.partial and renamed when it is whole."},
    {.name = "scheme", .letter = 's', .verbs = CLI_TO_FP8, .kind = CLI_TEXT, .field = FIELD(scheme),
     .argument = "S", .choice = cli_scheme_name, .help = "format of the output (quantize: hf-block)",
     .more = "What scales there are and how they are named; fp8 schemes lists the names."},
    {.name = "shape", .verbs = CLI_EXPLAIN | CLI_BENCH | CLI_TUNE, .kind = CLI_SHAPE, .field = FIELD(shapes),
     .argument = "MxNxK", .help = "Y[M,N] = X[M,K] W[N,K]^T; may be repeated",
     .more = "M rows (tokens) through a layer with N outputs and K inputs."},
    {.name = "shapes", .verbs = CLI_BENCH | CLI_TUNE, .kind = CLI_TEXT, .field = FIELD(shape_file),
     .argument = "FILE", .complete = CLI_FILE, .help = "a file with a shape a line: M N K",
     .more = "# begins a comment."},
    {.name = "m", .verbs = CLI_BENCH | CLI_TUNE, .kind = CLI_TEXT, .field = FIELD(m_list),
     .argument = "LIST", .help = "every N and K with these M: 1,16,64"},
    {.name = "scheme", .verbs = CLI_EXPLAIN | CLI_BENCH, .kind = CLI_TEXT, .field = FIELD(scheme),
     .argument = "S", .choice = cli_linear_scheme_name, .help = "one scheme (default: all)",
     .more = "w8a16 (X in bf16), tensor, channel, block, mxfp8, fast (X quantized on the way), or gemm (X given as codes)."},
    {.name = "scheme", .verbs = CLI_TUNE, .kind = CLI_TEXT, .field = FIELD(scheme),
     .argument = "S", .choice = cli_tune_scheme, .help = "one scheme (default: gemm, block, w8a16 and mxfp8)",
     .more = "gemm, channel and tensor take the same kernels, and what was measured for one counts for all."},
    {.name = "activation", .verbs = CLI_EXPLAIN, .kind = CLI_TEXT, .field = FIELD(activation),
     .argument = "A", .choice = cli_activation_name, .help = "what is done to X (default: the scheme's)",
     .more = "none (it stays in bf16), dynamic or static (quantized on the way), or codes (it comes in FP8)."},
    {.name = "seconds", .verbs = CLI_BENCH, .kind = CLI_SECONDS, .field = FIELD(seconds),
     .argument = "S", .help = "for each thing timed (default: 0.5, on a GPU 0.1)"},
    {.name = "seconds", .verbs = CLI_TUNE, .kind = CLI_SECONDS, .field = FIELD(seconds),
     .argument = "S", .help = "for each kernel near the fastest (default: 0.02)"},
    {.name = "tuned", .verbs = CLI_EXPLAIN | CLI_BENCH, .kind = CLI_TEXT, .field = FIELD(tuned),
     .argument = "FILE", .complete = CLI_FILE, .help = "choose by what fp8 tune measured on this GPU",
     .more = "With --device cuda."},
    {.name = "device", .verbs = CLI_TUNE, .kind = CLI_DEVICE, .field = FIELD(device),
     .argument = "D", .help = "which GPU: cuda or cuda:N; must be given",
     .more = "cuda is the first GPU that the driver shows."},
    {.name = "device", .verbs = CLI_EXPLAIN | CLI_BENCH, .kind = CLI_DEVICE, .field = FIELD(device),
     .argument = "D", .help = "where to run: cpu (default), cuda or cuda:N",
     .more = "cuda is the first GPU that the driver shows."},
    {.name = "peaks", .verbs = CLI_DOCTOR, .kind = CLI_FLAG, .field = FIELD(peaks),
     .help = "measure memory and arithmetic",
     .more = "The speed of reading memory and of multiply-adds at each level, on all threads, and of reading and copying the memory of each GPU; about a second."},
    {.name = "for", .verbs = CLI_TO_FP8 | CLI_VERIFY, .kind = CLI_TEXT, .field = FIELD(engine),
     .argument = "ENGINE", .choice = fp8_engine_name, .help = "the engine that will load it",
     .more = "Settles what engines disagree on: the spelling of scales, partial blocks, fused names. "
             "Conversions take vllm if nothing is said; verify then checks no engine's rules."},
    {.name = "numerics", .verbs = CLI_TO_FP8, .kind = CLI_TEXT, .field = FIELD(numerics),
     .argument = "RULE", .choice = fp8_rule_name, .help = "whose arithmetic (default: best)",
     .more = "best computes in fp32 with a true division and one rounding; every other rule gives "
             "the very bytes of the quantizer that it is named after."},
    {.name = "numerics", .verbs = CLI_BENCH, .kind = CLI_TEXT, .field = FIELD(numerics),
     .argument = "RULE", .choice = fp8_rule_name, .help = "whose arithmetic, of quantize (default: best)",
     .more = "Matrices with scales that the rule does not define are left out with a warning."},
    {.name = "dtype", .verbs = CLI_BENCH, .kind = CLI_TEXT, .field = FIELD(dtype),
     .argument = "TYPE", .choice = dtype_choice, .help = "what quantize takes: bf16 (default), f16, f32"},
    {.name = "dtype", .verbs = CLI_DEQUANTIZE, .kind = CLI_TEXT, .field = FIELD(dtype),
     .argument = "TYPE", .choice = dtype_choice, .help = "of the weights made: bf16 (default), f16, f32"},
    {.name = "keep", .verbs = CLI_TO_FP8, .kind = CLI_PATTERN, .field = FIELD(patterns),
     .argument = "P", .pattern = FP8_PATTERN_KEEP, .help = "copy tensors that match P as they are",
     .more = "May be repeated. See PATTERNS in fp8(1)."},
    {.name = "only", .verbs = CLI_TO_FP8, .kind = CLI_PATTERN, .field = FIELD(patterns),
     .argument = "P", .pattern = FP8_PATTERN_ONLY, .help = "change no tensors but those that match P",
     .more = "May be repeated: tensors that match any of them are changed."},
    {.name = "set", .verbs = CLI_TO_FP8, .kind = CLI_PATTERN, .field = FIELD(patterns),
     .argument = "P=S", .pattern = FP8_PATTERN_SET, .help = "use scheme S for tensors that match P",
     .more = "May be repeated; the last pattern that matches wins."},
    {.name = "nan", .verbs = CLI_TO_FP8, .kind = CLI_TEXT, .field = FIELD(nan),
     .argument = "POLICY", .choice = nan_choice, .help = "refuse a weight with NaN (default) or keep it",
     .more = "refuse ends with an error that names the tensor and the position. keep leaves the whole "
             "tensor in high precision and warns."},
    {.name = "activation-scales", .verbs = CLI_TO_FP8, .kind = CLI_TEXT, .field = FIELD(activation_scales),
     .argument = "FILE", .complete = CLI_FILE, .help = "static activation scales, for schemes with them",
     .more = "One positive number for each layer, from a calibration run: JSON such as {\"model.layers.0.mlp.up_proj\": 0.01}, "
             "or a safetensors file; names with or without .input_scale."},
    {.name = "against", .verbs = CLI_VERIFY, .kind = CLI_TEXT, .field = FIELD(against),
     .argument = "SRC", .complete = CLI_CHECKPOINT, .help = "compare with the checkpoint it was made from",
     .more = "Measures the error of every tensor, and finds swapped and missing ones, which the result "
             "alone cannot show."},
    {.name = "tp", .verbs = CLI_VERIFY, .kind = CLI_COUNT, .field = FIELD(tp),
     .argument = "N", .help = "check for N-way tensor parallelism",
     .more = "Finds the layers that N ranks cannot split between whole scale blocks."},
    {.name = "dry-run", .letter = 'n', .verbs = CLI_MAKES, .kind = CLI_FLAG, .field = FIELD(dry_run),
     .help = "print the plan and write nothing",
     .more = "What happens to each tensor and why, sizes before and after, peak memory and disk space. "
             "Layers that are treated alike share a line; -v gives each tensor its own."},
    {.name = "threads", .letter = 'j', .verbs = CLI_READS | CLI_BENCH, .kind = CLI_COUNT, .field = FIELD(threads),
     .argument = "N", .help = "threads (default: all that the process may use)",
     .more = "Results are the same for any number."},
    {.name = "max-memory", .verbs = CLI_MAKES, .kind = CLI_SIZE, .field = FIELD(max_memory),
     .argument = "SIZE", .help = "memory to stay within (default: 256MiB)",
     .more = "If it is too little for SRC, the error names what would do; --dry-run prints what will be needed."},
    {.name = "max-shard-size", .verbs = CLI_MAKES, .kind = CLI_SIZE, .field = FIELD(max_shard_size),
     .argument = "SIZE", .help = "largest output file (default: as in SRC)",
     .more = "Tensors are never split: one that is larger gets a file of its own."},
    {.name = "shard", .verbs = CLI_MAKES, .kind = CLI_PART, .field = FIELD(part_index),
     .argument = "I/N", .help = "do part I of N; other processes do the others",
     .more = "All parts must see the same file system. Whoever finds all N parts done publishes DST."},
    {.name = "resume", .verbs = CLI_MAKES, .kind = CLI_FLAG, .field = FIELD(resume),
     .help = "go on with an interrupted run",
     .more = "Options and source must be those of the interrupted run. If that run ended after all, nothing is done."},
    {.name = "force", .letter = 'f', .verbs = CLI_MAKES, .kind = CLI_FLAG, .field = FIELD(force),
     .help = "replace DST if it exists",
     .more = "The old DST stays until the new one is whole. What an interrupted run has left is "
             "begun anew."},
    {.name = "force", .letter = 'f', .verbs = CLI_TUNE, .kind = CLI_FLAG, .field = FIELD(force),
     .help = "replace FILE if it exists"},
    {.name = "report", .verbs = CLI_MAKES, .kind = CLI_TEXT, .field = FIELD(report),
     .argument = "FILE", .complete = CLI_FILE, .help = "write a report: FILE.html or FILE.json",
     .more = "Error, saturated and zero codes of every tensor; as a page with pictures, or as data."},
    {.name = "progress", .verbs = CLI_MAKES, .kind = CLI_TEXT, .field = FIELD(progress),
     .argument = "HOW", .choice = progress_choice, .help = "on stderr: auto (default), plain, none or json",
     .more = "auto redraws one line on a terminal and is plain elsewhere: a line every five seconds. "
             "json prints one object a line."},
    {.name = "json", .verbs = CLI_ALL, .kind = CLI_FLAG, .field = FIELD(json),
     .help = "print the result as JSON",
     .more = "One document on stdout. JSON OUTPUT in fp8(1) says what is in it."},
    {.name = "quiet", .letter = 'q', .verbs = CLI_READS, .kind = CLI_FLAG, .field = FIELD(quiet),
     .help = "print nothing but errors",
     .more = "The exit code tells the rest. JSON asked for is printed all the same."},
    {.name = "verbose", .letter = 'v', .verbs = CLI_READS, .kind = CLI_FLAG, .field = FIELD(verbose),
     .help = "print every tensor, or every finding",
     .more = "Without it layers that are alike share a line, verify prints the first findings of each "
             "rule, and a conversion prints its result alone."},
    {.name = "help", .letter = 'h', .verbs = CLI_ALL, .kind = CLI_FLAG, .field = FIELD(help),
     .help = "print this help"},
    {.name = "version", .letter = 'V', .verbs = CLI_ALL, .kind = CLI_FLAG, .field = FIELD(version),
     .help = "print the version"},
};
/* clang-format on */
_Static_assert(sizeof options / sizeof options[0] < MAX_OPTIONS, "enlarge MAX_OPTIONS");

const cli_option *cli_option_at(int64_t i)
{
    return i >= 0 && i < (int64_t)(sizeof options / sizeof options[0]) ? &options[i] : NULL;
}

/* getopt's two views of the options of one verb. */
typedef struct getopt_view {
    struct option longs[MAX_OPTIONS];
    char shorts[2 * MAX_OPTIONS + 2];
} getopt_view;

static void view_for(int verb, getopt_view *view)
{
    size_t count = 0, end = 0;
    const cli_option *option;
    view->shorts[end++] = ':'; /* a missing argument is told apart */
    for (int i = 0; (option = cli_option_at(i)) != NULL; i++) {
        if (!(option->verbs & verb))
            continue;
        int has = option->argument != NULL ? required_argument : no_argument;
        int value = option->letter ? option->letter : LONG_ONLY + i;
        view->longs[count++] = (struct option){option->name, has, NULL, value};
        if (option->letter) {
            view->shorts[end++] = option->letter;
            if (has == required_argument)
                view->shorts[end++] = ':';
        }
    }
    view->longs[count] = (struct option){0};
    view->shorts[end] = 0;
}

/* The option of a verb for which getopt answers with value. */
static const cli_option *find(int value, int verb)
{
    if (value >= LONG_ONLY)
        return cli_option_at(value - LONG_ONLY);
    const cli_option *option;
    for (int64_t i = 0; (option = cli_option_at(i)) != NULL; i++) {
        if (option->letter == value && (option->verbs & verb))
            return option;
    }
    return NULL;
}

static const char *option_name(int64_t i)
{
    const cli_option *option = cli_option_at(i);
    return option != NULL ? option->name : NULL;
}

/* Says which option of a verb getopt could not take. `value` is its answer, ':' or '?'; `text` the
 * argument that it read last, which is the option if that is a long one. */
static int bad_option(int value, const char *text, int verb, const char *name)
{
    const cli_option *option = optopt != 0 ? find(optopt, verb) : NULL;
    if (value == ':' && option != NULL)
        return cli_usage_error("--%s needs an argument: %s", option->name, option->argument);
    if (option != NULL && (option->verbs & verb))
        return cli_usage_error("--%s takes no argument", option->name);
    if (optopt != 0)
        return cli_usage_error("%s has no option -%c (fp8 %s --help lists them)", name, optopt,
                               name);
    const char *near = cli_text_nearest(text + 2, option_name);
    if (near != NULL && strcmp(near, text + 2) == 0)
        return cli_usage_error("%s does not take %s, which is another verb's", name, text);
    if (near != NULL)
        return cli_usage_error("%s has no option %s; did you mean --%s?", name, text, near);
    return cli_usage_error("%s has no option %s, or it is ambiguous (fp8 %s --help lists them)",
                           name, text, name);
}

/* Checks `text` against the choices of an option; prints them all if it is none. */
static int check_choice(const char *what, const char *text, const char *(*choice)(int64_t i))
{
    char all[512] = "";
    const char *name;
    for (int64_t i = 0; (name = choice(i)) != NULL; i++) {
        if (strcmp(name, text) == 0)
            return CLI_DONE;
        size_t end = strlen(all);
        snprintf(all + end, sizeof all - end, "%s%s", i > 0 ? " " : "", name);
    }
    const char *near = cli_text_nearest(text, choice);
    if (near != NULL)
        return cli_usage_error("--%s: there is no '%s'; did you mean %s?", what, text, near);
    return cli_usage_error("--%s: there is no '%s'; choose one of: %s", what, text, all);
}

static int add_pattern(const cli_option *option, char *text, cli_args *args)
{
    fp8_pattern pattern = {option->pattern, text, NULL};
    if (option->pattern == FP8_PATTERN_SET) {
        char *equals = strrchr(text, '=');
        if (equals == NULL)
            return cli_usage_error("--set %s: a pattern, '=' and a scheme are needed", text);
        *equals = 0;
        pattern.scheme = equals + 1;
        int status = check_choice("set", pattern.scheme, cli_scheme_name);
        if (status != CLI_DONE)
            return status;
    }
    if (*text == 0)
        return cli_usage_error("--%s: the pattern is empty", option->name);
    args->patterns[args->pattern_count++] = pattern;
    return CLI_DONE;
}

static int add_shape(const char *text, cli_args *args)
{
    cli_shape shape;
    if (!cli_parse_shape(text, &shape))
        return cli_usage_error("--shape %s: not MxNxK, three numbers up to %d, such as 1x4096x4096",
                               text, CLI_MOST_EXTENT);
    return cli_shapes_add(&args->shapes, shape);
}

static int set_text(const cli_option *option, const char *text, const char **field)
{
    if (*text == 0)
        return cli_usage_error("--%s: the argument is empty", option->name);
    *field = text;
    return option->choice != NULL ? check_choice(option->name, text, option->choice) : CLI_DONE;
}

/* Stores what was given for one option. */
static int set(const cli_option *option, char *text, cli_args *args)
{
    void *field = (char *)args + option->field;
    int32_t *numbers = field;
    switch (option->kind) {
    case CLI_FLAG:
        *(bool *)field = true;
        return CLI_DONE;
    case CLI_TEXT:
        return set_text(option, text, field);
    case CLI_PATTERN:
        return add_pattern(option, text, args);
    case CLI_SHAPE:
        return add_shape(text, args);
    case CLI_SECONDS:
        if (!cli_parse_seconds(text, field))
            return cli_usage_error("--%s %s: not a number of seconds above 0 and up to 3600",
                                   option->name, text);
        return CLI_DONE;
    case CLI_DEVICE:
        if (!cli_parse_device(text, numbers, numbers + 1))
            return cli_usage_error("--%s %s: not cpu, cuda or cuda:N, N from 0 to 4096",
                                   option->name, text);
        return CLI_DONE;
    case CLI_SIZE:
        if (!cli_parse_size(text, field))
            return cli_usage_error("--%s %s: not a size such as 64MiB or 5GB", option->name, text);
        return CLI_DONE;
    case CLI_COUNT:
        if (!cli_parse_int(text, 1, 4096, numbers))
            return cli_usage_error("--%s %s: not a number from 1 to 4096", option->name, text);
        return CLI_DONE;
    case CLI_PART:
        if (!cli_parse_part(text, numbers, numbers + 1))
            return cli_usage_error("--%s %s: not I/N with 1 <= I <= N, such as 2/8", option->name,
                                   text);
        return CLI_DONE;
    }
    return CLI_USAGE;
}

/* What the options mean together. */
static int check_together(const cli_args *args)
{
    if (args->report != NULL) {
        const char *dot = strrchr(args->report, '.');
        if (dot == NULL || (strcmp(dot, ".html") != 0 && strcmp(dot, ".json") != 0))
            return cli_usage_error("--report %s: must end in .html or .json", args->report);
    }
    if (args->quiet && args->verbose)
        return cli_usage_error("--quiet and --verbose exclude each other");
    return CLI_DONE;
}

/* The one subject of a verb that takes no path. */
static int take_subject(int argc, char **argv, const char *name, const char *(*subject)(int64_t i),
                        cli_args *args)
{
    const char *given = argc - optind == 1 ? argv[optind] : NULL;
    const char *choice;
    for (int64_t i = 0; given != NULL && (choice = subject(i)) != NULL; i++) {
        if (strcmp(choice, given) == 0) {
            args->paths[args->path_count++] = choice;
            return CLI_DONE;
        }
    }
    if (argc - optind > 1)
        return cli_usage_error("%s takes one of: %s, %s; what is '%s'? (fp8 %s --help)", name,
                               subject(0), subject(1), argv[optind + 1], name);
    return cli_usage_error("%s what? It takes one of: %s, %s (fp8 %s --help)", name, subject(0),
                           subject(1), name);
}

/* What a path too many was perhaps meant to be. */
static const char *meant(int verb, const cli_args *args)
{
    return verb & CLI_MAKES && args->output == NULL      ? " (-o names the output)"
           : verb == CLI_VERIFY && args->against == NULL ? " (--against names the source)"
                                                         : "";
}

static int take_paths(int argc, char **argv, int verb, const char *name, int least, int most,
                      cli_args *args)
{
    int given = argc - optind;
    if (given > most)
        return cli_usage_error("%s takes %d path%s; what is '%s'?%s", name, most,
                               most == 1 ? "" : "s", argv[optind + most], meant(verb, args));
    if (given < least)
        return cli_usage_error("%s needs %s (fp8 %s --help)", name,
                               least == 2 ? "two paths" : "the path of a checkpoint", name);
    for (int i = 0; i < given; i++) {
        args->paths[i] = argv[optind + i];
        if (*args->paths[i] == 0)
            return cli_usage_error("%s: the path is empty", name);
    }
    args->path_count = given;
    return CLI_DONE;
}

int cli_parse(int argc, char **argv, int verb, const char *name, int least, int most,
              const char *(*subject)(int64_t i), cli_args *args)
{
    getopt_view view;
    int value;
    *args = (cli_args){0};
    args->patterns = calloc((size_t)argc + 1, sizeof *args->patterns);
    if (args->patterns == NULL) {
        cli_error("out of memory");
        return CLI_MEMORY;
    }
    view_for(verb, &view);
    opterr = 0;
    optind = 0; /* glibc: start afresh */
    for (;;) {
        optopt = 0;
        value = getopt_long(argc, argv, view.shorts, view.longs, NULL);
        if (value == -1)
            break;
        if (value == '?' || value == ':')
            return bad_option(value, argv[optind - 1], verb, name);
        int status = set(find(value, verb), optarg, args);
        if (status != CLI_DONE || args->help || args->version)
            return status;
    }
    int status = check_together(args);
    if (status != CLI_DONE)
        return status;
    return subject != NULL ? take_subject(argc, argv, name, subject, args)
                           : take_paths(argc, argv, verb, name, least, most, args);
}

void cli_args_free(cli_args *args)
{
    free(args->patterns);
    args->patterns = NULL;
    cli_shapes_free(&args->shapes);
}
