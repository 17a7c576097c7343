/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_report.c - the same fields as text, "name=value" between spaces, and as JSON. A share is
 * what was reached of a peak of this run; a ratio is the peer's time over ours. */
#include "cli/bench_report.h"

#include "cli/exit_code.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* ---- fields, in both forms ---- */

static void field_text(const cli_bench_report *r, const char *key, const char *value)
{
    if (r->json != NULL)
        cli_json_text(r->json, key, value);
    else
        printf(" %s=%s", key, value);
}

static void field_int(const cli_bench_report *r, const char *key, int64_t value)
{
    if (r->json != NULL)
        cli_json_int(r->json, key, value);
    else
        printf(" %s=%lld", key, (long long)value);
}

/* "-" or null if there is no such number. */
static void field_real(const cli_bench_report *r, const char *key, double value)
{
    if (r->json != NULL)
        cli_json_real(r->json, key, value);
    else if (isfinite(value))
        printf(" %s=%.4g", key, value);
    else
        printf(" %s=-", key);
}

static void begin(const cli_bench_report *r, const char *key, const char *words)
{
    if (r->json != NULL)
        cli_json_begin(r->json, key, '{');
    else
        fputs(words, stdout);
}

static void end(const cli_bench_report *r)
{
    if (r->json != NULL)
        cli_json_end(r->json, '}');
    else
        putchar('\n');
    cli_flush();
}

/* value / peak, no number if there is no peak. */
static double share(double value, double peak)
{
    return peak > 0 ? value / peak : (double)NAN;
}

/* ---- the machine ---- */

fp8_status cli_peaks_measure(cli_peaks *peaks, const fp8_context *ctx, double seconds,
                             fp8_error *err)
{
    fp8_status status = FP8_OK;
    peaks->count = 0;
    while (peaks->count < CLI_MOST_PEAKS &&
           (status = fp8_machine_peak(ctx, peaks->count, seconds, &peaks->items[peaks->count],
                                      err)) == FP8_OK)
        peaks->count++;
    return status == FP8_E_NOT_FOUND ? FP8_OK : status;
}

fp8_status cli_peaks_again(cli_peaks *peaks, const fp8_context *ctx, const char *name,
                           double seconds, fp8_error *err)
{
    for (int i = 0; i < peaks->count; i++)
        if (strcmp(peaks->items[i].name, name) == 0)
            return fp8_machine_peak(ctx, i, seconds, &peaks->items[i], err);
    return FP8_OK;
}

double cli_peak_of(const cli_peaks *peaks, const char *name)
{
    for (int i = 0; i < peaks->count; i++)
        if (strcmp(peaks->items[i].name, name) == 0)
            return peaks->items[i].value;
    return 0;
}

void cli_report_machine(const cli_bench_report *r)
{
    char key[64];
    begin(r, "machine", "bench machine");
    field_text(r, "fp8", fp8_version());
    field_int(r, "threads", r->threads);
    for (int i = 0; i < r->peaks.count; i++) {
        const fp8_peak *peak = &r->peaks.items[i];
        snprintf(key, sizeof key, "%s_%s", peak->name, peak->unit);
        field_real(r, key, peak->value);
    }
    end(r);
    if (r->json != NULL)
        cli_json_begin(r->json, "peers", '{');
    for (int i = 0; i < r->peer_count; i++) {
        const cli_peer *peer = &r->peers[i];
        const char *state = peer->missing[0] ? peer->missing : "timed";
        if (r->json != NULL)
            cli_json_text(r->json, peer->name, state);
        else
            printf("bench peer name=%s: %s\n", peer->name, state);
    }
    if (r->json != NULL)
        cli_json_end(r->json, '}');
}

/* ---- cases ---- */

static void report_times(const cli_bench_report *r, const cli_timed *time, int rounds)
{
    field_int(r, "threads", r->threads);
    field_int(r, "rounds", rounds);
    field_real(r, "ms", time->median * 1e3);
    field_real(r, "best_ms", time->best * 1e3);
}

static void report_peers(const cli_bench_report *r, const cli_timed *times)
{
    char key[64];
    for (int i = 0; i < r->peer_count; i++) {
        const cli_timed *peer = &times[1 + i];
        if (peer->median == 0)
            continue;
        snprintf(key, sizeof key, "%s_ms", r->peers[i].name);
        field_real(r, key, peer->median * 1e3);
        snprintf(key, sizeof key, "%s_ratio", r->peers[i].name);
        field_real(r, key, peer->median / times->median);
    }
}

void cli_report_linear(const cli_bench_report *r, const cli_linear_case *c, const cli_timed *times,
                       int rounds)
{
    char shape[CLI_SHAPE_NAME];
    const cli_shape *s = &c->shape;
    const double operations = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    const double gflops = operations / times->median * 1e-9;
    const double gbytes = c->weight_bytes / times->median * 1e-9;
    const double fma = cli_peak_of(&r->peaks, c->chosen.isa), read = cli_peak_of(&r->peaks, "read");
    const double roof = fmin(fma, read * operations / fmax(c->weight_bytes, 1));
    begin(r, NULL, "bench linear");
    field_text(r, "shape", cli_shape_name(shape, s));
    field_text(r, "scheme", c->scheme->name);
    field_text(r, "kernel", c->chosen.kernel);
    field_text(r, "isa", c->chosen.isa);
    field_text(r, "weights", c->cold ? "cold" : "warm");
    report_times(r, times, rounds);
    field_real(r, "GFLOP/s", gflops);
    field_real(r, "GB/s", gbytes);
    field_real(r, "of_peak", share(gflops, fma));
    field_real(r, "of_read", share(gbytes, read));
    field_real(r, "of_roof", share(gflops, roof));
    report_peers(r, times);
    end(r);
}

void cli_report_quantize(const cli_bench_report *r, const cli_quantize_case *c,
                         const cli_linear_scheme *scheme, const cli_shape *s, const char *what,
                         const cli_timed *time, int rounds)
{
    char shape[CLI_SHAPE_NAME], rows[64];
    const double gbytes = c->bytes / time->median * 1e-9;
    snprintf(rows, sizeof rows, "%lldx%lld", (long long)c->x.shape[0], (long long)c->x.shape[1]);
    begin(r, NULL, "bench quantize");
    field_text(r, "shape", cli_shape_name(shape, s));
    field_text(r, "scheme", scheme->name);
    field_text(r, "what", what);
    field_text(r, "matrix", rows);
    report_times(r, time, rounds);
    field_real(r, "GB/s", gbytes);
    field_real(r, "of_read", share(gbytes, cli_peak_of(&r->peaks, "read")));
    end(r);
}
