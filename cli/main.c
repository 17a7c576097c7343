/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - the program fp8: finds the verb, parses its options, runs it, and makes sure that what
 * it printed has been written. */
#define _GNU_SOURCE
#include "cli/dump.h"
#include "cli/escape.h"
#include "cli/exit_code.h"
#include "cli/usage.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* A standard stream that was closed must not become the number of a checkpoint's file. Opened for
 * reading only, so that writing to it still fails. */
static void occupy_standard_streams(void)
{
    int fd;
    do
        fd = open("/dev/null", O_RDONLY);
    while (fd >= 0 && fd <= STDERR_FILENO);
    if (fd > STDERR_FILENO)
        close(fd);
}

/* The exit code, CLI_IO instead of CLI_DONE and CLI_BAD if stdout did not take what was printed. A
 * reader that left early (`| head`) is not worth a message. */
static int finish(int code)
{
    const int failed = cli_flush();
    if (failed == 0)
        return code;
    if (failed != EPIPE)
        cli_error("cannot write to standard output: %s", strerror(failed));
    return code == CLI_DONE || code == CLI_BAD ? CLI_IO : code;
}

static int run_verb(const cli_verb *verb, int argc, char **argv)
{
    cli_args args;
    int code =
        cli_parse(argc, argv, verb->bit, verb->name, verb->least, verb->most, verb->subject, &args);
    if (code == CLI_DONE && args.help)
        cli_usage_verb(stdout, verb);
    else if (code == CLI_DONE && args.version)
        printf("fp8 %s\n", fp8_version());
    else if (code == CLI_DONE)
        code = verb->run(&args);
    cli_args_free(&args);
    return code;
}

/* fp8 help [VERB] */
static int run_help(int argc, char **argv)
{
    const cli_verb *verb = argc > 1 ? cli_verb_find(argv[1]) : NULL;
    if (argc > 2 || (argc > 1 && verb == NULL))
        return cli_usage_error("there is no help on '%s' (fp8 --help lists the verbs)",
                               argv[argc - 1]);
    if (verb != NULL)
        cli_usage_verb(stdout, verb);
    else
        cli_usage(stdout);
    return CLI_DONE;
}

static int unknown_verb(const char *name)
{
    const char *near = cli_text_nearest(name, cli_verb_name);
    if (near != NULL)
        return cli_usage_error("there is no verb '%s'; did you mean %s?", name, near);
    return cli_usage_error("there is no verb '%s' (fp8 --help lists them)", name);
}

static int run(int argc, char **argv)
{
    if (argc < 2) {
        cli_usage(stderr);
        return CLI_USAGE;
    }
    const char *name = argv[1];
    const cli_verb *verb = cli_verb_find(name);
    if (verb != NULL)
        return run_verb(verb, argc - 1, argv + 1);
    if (strcmp(name, "--help") == 0 || strcmp(name, "-h") == 0 || strcmp(name, "help") == 0)
        return run_help(argc - 1, argv + 1);
    if (strcmp(name, "--version") == 0 || strcmp(name, "-V") == 0) {
        printf("fp8 %s\n", fp8_version());
        return CLI_DONE;
    }
    if (strcmp(name, "--dump-options") == 0)
        return cli_dump(argc - 2, argv + 2);
    return unknown_verb(name);
}

int main(int argc, char **argv)
{
    occupy_standard_streams();
    signal(SIGPIPE, SIG_IGN); /* and let the write fail: */
    signal(SIGXFSZ, SIG_IGN);
    setvbuf(stderr, NULL, _IOLBF, BUFSIZ); /* a message is one write */
    return finish(run(argc, argv));
}
