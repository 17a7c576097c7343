/* SPDX-License-Identifier: Apache-2.0
 *
 * bench_report.c - the same fields as text, "name=value" between spaces, and as JSON. A share is
 * what was reached of a peak of this run; a ratio is the peer's time over ours. */
#include "cli/bench_report.h"

#include "cli/fields.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

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
    cli_fields_begin(r->json, "machine", "bench machine");
    cli_field_text(r->json, "fp8", fp8_version());
    cli_field_int(r->json, "threads", r->threads);
    for (int i = 0; i < r->peaks.count; i++) {
        const fp8_peak *peak = &r->peaks.items[i];
        snprintf(key, sizeof key, "%s_%s", peak->name, peak->unit);
        cli_field_real(r->json, key, peak->value);
    }
    cli_fields_end(r->json);
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
    cli_field_int(r->json, "threads", r->threads);
    cli_field_int(r->json, "rounds", rounds);
    cli_field_real(r->json, "ms", time->median * 1e3);
    cli_field_real(r->json, "best_ms", time->best * 1e3);
}

static void report_peers(const cli_bench_report *r, const cli_timed *times)
{
    char key[64];
    for (int i = 0; i < r->peer_count; i++) {
        const cli_timed *peer = &times[1 + i];
        if (peer->median == 0)
            continue;
        snprintf(key, sizeof key, "%s_ms", r->peers[i].name);
        cli_field_real(r->json, key, peer->median * 1e3);
        snprintf(key, sizeof key, "%s_ratio", r->peers[i].name);
        cli_field_real(r->json, key, peer->median / times->median);
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
    cli_fields_begin(r->json, NULL, "bench linear");
    cli_field_text(r->json, "shape", cli_shape_name(shape, s));
    cli_field_text(r->json, "scheme", c->scheme->name);
    cli_field_text(r->json, "kernel", c->chosen.kernel);
    cli_field_text(r->json, "isa", c->chosen.isa);
    cli_field_text(r->json, "weights", c->cold ? "cold" : "warm");
    report_times(r, times, rounds);
    cli_field_real(r->json, "GFLOP/s", gflops);
    cli_field_real(r->json, "GB/s", gbytes);
    cli_field_real(r->json, "of_peak", share(gflops, fma));
    cli_field_real(r->json, "of_read", share(gbytes, read));
    cli_field_real(r->json, "of_roof", share(gflops, roof));
    report_peers(r, times);
    cli_fields_end(r->json);
}

void cli_report_quantize(const cli_bench_report *r, const cli_quantize_case *c,
                         const cli_linear_scheme *scheme, const cli_shape *s, const char *what,
                         const cli_timed *time, int rounds)
{
    char shape[CLI_SHAPE_NAME], rows[64];
    const double gbytes = c->bytes / time->median * 1e-9;
    snprintf(rows, sizeof rows, "%lldx%lld", (long long)c->x.shape[0], (long long)c->x.shape[1]);
    cli_fields_begin(r->json, NULL, "bench quantize");
    cli_field_text(r->json, "shape", cli_shape_name(shape, s));
    cli_field_text(r->json, "scheme", scheme->name);
    cli_field_text(r->json, "what", what);
    cli_field_text(r->json, "matrix", rows);
    cli_field_text(r->json, "in", fp8_dtype_name(c->x.dtype));
    report_times(r, time, rounds);
    cli_field_real(r->json, "GB/s", gbytes);
    cli_field_real(r->json, "of_read", share(gbytes, cli_peak_of(&r->peaks, "read")));
    cli_fields_end(r->json);
}
