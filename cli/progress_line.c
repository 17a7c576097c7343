/* SPDX-License-Identifier: Apache-2.0
 *
 * progress_line.c - progress lines. A failed write to stderr is ignored: nobody is left to tell. */
#define _GNU_SOURCE
#include "cli/progress_line.h"

#include "cli/escape.h"
#include "cli/json_out.h"
#include "cli/units.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define PLAIN_SECONDS 5.0
#define LINE_BYTES    1024

static bool is_terminal(void)
{
    const char *term = getenv("TERM");
    return isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
}

cli_meter cli_meter_create(const char *how, bool quiet)
{
    static const struct {
        const char *how;
        cli_meter_mode mode;
    } modes[] = {{"plain", CLI_METER_PLAIN}, {"none", CLI_METER_NONE}, {"json", CLI_METER_JSON}};
    cli_meter meter = {.mode = is_terminal() ? CLI_METER_REDRAW : CLI_METER_PLAIN,
                       .next_plain = PLAIN_SECONDS};
    const char *no_color = getenv("NO_COLOR");
    meter.color = no_color == NULL || *no_color == 0;
    for (size_t i = 0; how != NULL && i < sizeof modes / sizeof modes[0]; i++) {
        if (strcmp(how, modes[i].how) == 0)
            meter.mode = modes[i].mode;
    }
    if (quiet && meter.mode != CLI_METER_JSON)
        meter.mode = CLI_METER_NONE;
    return meter;
}

static size_t terminal_width(void)
{
    struct winsize window;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &window) == 0 && window.ws_col > 0)
        return window.ws_col;
    return 80;
}

/* Bytes a second and seconds left; both 0 at first. */
typedef struct pace {
    double speed, left;
} pace;

/* Of a run that was at `base` when it started. */
static pace pace_of(const fp8_progress *base, const fp8_progress *now)
{
    double seconds = now->seconds - base->seconds;
    double done = (double)(now->bytes_done - base->bytes_done);
    if (!(seconds > 0) || !(done > 0) || now->bytes_total < now->bytes_done)
        return (pace){0, 0};
    double speed = done / seconds;
    return (pace){speed, (double)(now->bytes_total - now->bytes_done) / speed};
}

void cli_meter_line(char *out, size_t size, size_t width, const fp8_progress *base,
                    const fp8_progress *now, size_t *name_at)
{
    char done[CLI_UNIT_TEXT], total[CLI_UNIT_TEXT], speed[CLI_UNIT_TEXT], left[CLI_UNIT_TEXT];
    pace rate = pace_of(base, now);
    double share = now->bytes_total > 0 ? (double)now->bytes_done / (double)now->bytes_total : 1;
    const char *tensor = now->tensor != NULL ? now->tensor : "";
    int length =
        snprintf(out, size, "%3d%%  %s of %s  %s/s  %s left  ", (int)(share * 100),
                 cli_format_bytes(done, now->bytes_done), cli_format_bytes(total, now->bytes_total),
                 cli_format_bytes(speed, (uint64_t)rate.speed),
                 cli_format_time(left, rate.speed > 0 ? rate.left : -1));
    size_t used = (size_t)length < size ? (size_t)length : size - 1;
    if (used > width) {
        out[width < size ? width : size - 1] = 0;
        used = strlen(out);
    } else {
        cli_text_fit(out + used, size - used, tensor, now->tensor_bytes, width - used);
    }
    *name_at = used;
}

/* Redraws the one line of the terminal. */
static void redraw(cli_meter *meter, const fp8_progress *now)
{
    char line[LINE_BYTES];
    size_t name;
    cli_meter_line(line, sizeof line, terminal_width() - 1, &meter->base, now, &name);
    if (meter->color)
        fprintf(stderr, "\r%.*s\033[2m%s\033[0m\033[K", (int)name, line, line + name);
    else
        fprintf(stderr, "\r%s\033[K", line);
    fflush(stderr);
    meter->drawn = true;
}

static void plain(cli_meter *meter, const fp8_progress *now)
{
    char line[LINE_BYTES];
    size_t name;
    const bool all_done = now->bytes_done >= now->bytes_total;
    if (meter->all_done || (now->seconds < meter->next_plain && !all_done))
        return;
    meter->all_done = all_done;
    meter->next_plain = now->seconds + PLAIN_SECONDS;
    cli_meter_line(line, sizeof line, sizeof line - 1, &meter->base, now, &name);
    fprintf(stderr, "fp8: %s\n", line);
}

static void json_line(const cli_meter *meter, const fp8_progress *now)
{
    cli_json json = {.out = stderr, .one_line = true};
    pace rate = pace_of(&meter->base, now);
    cli_json_begin(&json, NULL, '{');
    cli_json_text(&json, "event", "progress");
    cli_json_size(&json, "bytes_done", now->bytes_done);
    cli_json_size(&json, "bytes_total", now->bytes_total);
    cli_json_int(&json, "tensors_done", now->tensors_done);
    cli_json_int(&json, "tensors_total", now->tensors_total);
    cli_json_real(&json, "seconds", now->seconds);
    cli_json_real(&json, "bytes_per_second", rate.speed);
    cli_json_real(&json, "seconds_left", rate.left);
    cli_json_text_n(&json, "tensor", now->tensor != NULL ? now->tensor : "", now->tensor_bytes);
    cli_json_end(&json, '}');
}

void cli_meter_step(void *user, const fp8_progress *progress)
{
    cli_meter *meter = user;
    if (!meter->started) {
        meter->base = *progress;
        meter->started = true;
    }
    if (meter->mode == CLI_METER_REDRAW)
        redraw(meter, progress);
    else if (meter->mode == CLI_METER_PLAIN)
        plain(meter, progress);
    else if (meter->mode == CLI_METER_JSON)
        json_line(meter, progress);
}

void cli_meter_clear(cli_meter *meter)
{
    if (meter->drawn)
        fputs("\r\033[K", stderr);
    fflush(stderr);
    meter->drawn = false;
}
