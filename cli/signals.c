/* SPDX-License-Identifier: Apache-2.0
 *
 * signals.c - one handler. It calls nothing but fp8_convert_stop and signal, which are safe there.
 */
#define _GNU_SOURCE
#include "cli/signals.h"

#include <signal.h>
#include <stddef.h>

static const int stopping[] = {SIGINT, SIGTERM, SIGHUP};
#define STOPPING (sizeof stopping / sizeof stopping[0])

/* Set before the handlers are installed, and not changed while they are. */
static fp8_convert *target;
static struct sigaction before[STOPPING];
static volatile sig_atomic_t caught;

static void on_signal(int number)
{
    caught = number;
    fp8_convert_stop(target);
    for (size_t i = 0; i < STOPPING; i++)
        signal(stopping[i], SIG_DFL);
}

void cli_signals_stop(fp8_convert *conv)
{
    struct sigaction action = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    target = conv;
    for (size_t i = 0; i < STOPPING; i++)
        sigaddset(&action.sa_mask, stopping[i]);
    for (size_t i = 0; i < STOPPING; i++) {
        sigaction(stopping[i], NULL, &before[i]);
        if (before[i].sa_handler != SIG_IGN)
            sigaction(stopping[i], &action, NULL);
    }
}

void cli_signals_release(void)
{
    for (size_t i = 0; i < STOPPING; i++)
        sigaction(stopping[i], &before[i], NULL);
}

int cli_signals_caught(void)
{
    return caught;
}
