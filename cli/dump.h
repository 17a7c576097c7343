/* SPDX-License-Identifier: Apache-2.0
 *
 * dump.h - the hidden `fp8 --dump-options FORMAT`, by which the build makes the shell completions
 * and the OPTIONS of the man pages, and by which the tests read the table of options. */
#ifndef FP8_CLI_DUMP_H
#define FP8_CLI_DUMP_H

/* argv: "bash", "zsh", "tsv", "scdoc-schemes", or "scdoc" and a verb. Returns the exit code. */
int cli_dump(int argc, char **argv);

#endif
