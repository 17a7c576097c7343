/* SPDX-License-Identifier: Apache-2.0
 *
 * usage.c - --help. */
#include "cli/usage.h"

#include <string.h>

#define HELP_COLUMN 29 /* where the words about an option start */

void cli_usage(FILE *out)
{
    const cli_verb *verb;
    fputs("usage: fp8 VERB [options]\n\nFP8 checkpoints: make, check and convert them.\n\n", out);
    for (int64_t i = 0; (verb = cli_verb_at(i)) != NULL; i++)
        fprintf(out, "  %-11s %s\n", verb->name, verb->summary);
    fputs("\n  fp8 VERB --help   what a verb takes\n"
          "  fp8 --version     the version\n"
          "\nexamples:\n"
          "  fp8 quantize llama -o llama-fp8\n"
          "  fp8 verify llama-fp8 --against llama\n"
          "\nexit codes: 0 done, 1 checked and found bad, 2 usage, 3 input invalid,\n"
          "4 read or write failed, 5 memory, 6 unsupported, 130 interrupted\n",
          out);
}

/* "-o, --output DST", and the help from HELP_COLUMN on, on a line of its own if the head is too
 * long. */
static void usage_option(FILE *out, const cli_option *option)
{
    char head[64], letter[5] = "    ";
    if (option->letter)
        snprintf(letter, sizeof letter, "-%c, ", option->letter);
    snprintf(head, sizeof head, "  %s--%s%s%s", letter, option->name,
             option->argument != NULL ? " " : "", option->argument != NULL ? option->argument : "");
    if (strlen(head) < HELP_COLUMN)
        fprintf(out, "%-*s%s\n", HELP_COLUMN, head, option->help);
    else
        fprintf(out, "%s\n%*s%s\n", head, HELP_COLUMN, "", option->help);
}

void cli_usage_verb(FILE *out, const cli_verb *verb)
{
    const cli_option *option;
    fprintf(out, "usage: fp8 %s%s%s [options]\n\n%s\n", verb->name, *verb->paths ? " " : "",
            verb->paths, verb->text);
    for (int64_t i = 0; (option = cli_option_at(i)) != NULL; i++) {
        if (option->verbs & verb->bit)
            usage_option(out, option);
    }
    fprintf(out, "\nexamples:\n%s", verb->examples);
}
