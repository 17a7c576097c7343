/* SPDX-License-Identifier: Apache-2.0
 *
 * progress_line.h - shows the progress of a conversion on stderr: one line that is redrawn on a
 * terminal, plain lines elsewhere, or JSON lines. */
#ifndef FP8_CLI_PROGRESS_LINE_H
#define FP8_CLI_PROGRESS_LINE_H

#include "fp8.h"

#include <stdbool.h>
#include <stddef.h>

typedef enum cli_meter_mode {
    CLI_METER_NONE,
    CLI_METER_REDRAW,
    CLI_METER_PLAIN,
    CLI_METER_JSON
} cli_meter_mode;

typedef struct cli_meter {
    cli_meter_mode mode;
    bool color;        /* of the redrawn line */
    bool drawn;        /* a redrawn line stands on the terminal */
    double next_plain; /* seconds of the run at which a plain line is due */
    bool all_done;     /* the plain line that says so was printed */
    bool started;      /* `base` is set: */
    fp8_progress base; /* the first step, so that speed leaves out what an earlier run did */
} cli_meter;

/* `how` is the argument of --progress, NULL for auto. */
cli_meter cli_meter_create(const char *how, bool quiet);
/* An fp8_progress_fn; user is the cli_meter. */
void cli_meter_step(void *user, const fp8_progress *progress);
/* Clears a redrawn line, so that other output can follow. */
void cli_meter_clear(cli_meter *meter);

/* out = " 34%  1.2/3.6 GB ..", at most `width` columns; the tensor's name is what gives way.
 * *name_at = the offset of the name. */
void cli_meter_line(char *out, size_t size, size_t width, const fp8_progress *base,
                    const fp8_progress *now, size_t *name_at);

#endif
