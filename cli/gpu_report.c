/* SPDX-License-Identifier: Apache-2.0
 *
 * gpu_report.c - the fields of a GPU and of its cases. Times are in us a call; a share is what was
 * reached of a peak of this run, a ratio the peer's time over ours. */
#include "cli/gpu_report.h"

#include "cli/fields.h"

#include <math.h>
#include <stdio.h>

/* No number for what was not measured. */
static double known(double value)
{
    return value > 0 ? value : (double)NAN;
}

static void field_us(cli_json *json, const char *key, double seconds)
{
    cli_field_real(json, key, known(seconds) * 1e6);
}

/* Text without spaces, which part the fields of a line. */
static void field_name(cli_json *json, const char *key, const char *text)
{
    char name[128];
    snprintf(name, sizeof name, "%s", text);
    for (char *at = name; json == NULL && *at != 0; at++)
        *at = *at == ' ' ? '_' : *at;
    cli_field_text(json, key, name);
}

const cli_series *cli_gpu_faster(const cli_series *series, cli_peer_way way)
{
    const cli_series *of_way = &series[CLI_PEERS + (int)way * CLI_LT_FINALISTS], *best = NULL;
    for (int i = 0; i < CLI_LT_FINALISTS; i++)
        if (of_way[i].median > 0 && (best == NULL || of_way[i].median < best->median))
            best = &of_way[i];
    return best;
}

/* ---- the GPU ---- */

static void report_other(const cli_gpu_report *r, const char *name, const char *missing)
{
    const char *state = missing[0] ? missing : "timed";
    if (r->json != NULL)
        cli_json_text(r->json, name, state);
    else
        printf("bench peer name=%s: %s\n", name, state);
}

void cli_report_gpu(const cli_gpu_report *r, bool linear)
{
    cli_json *json = r->json;
    const cli_nvml *nvml = r->nvml;
    cli_fields_begin(json, "machine", "bench machine");
    cli_field_text(json, "fp8", fp8_version());
    cli_field_text(json, "device", r->device);
    field_name(json, "name", r->gpu.name);
    cli_field_int(json, "capability", r->gpu.capability);
    cli_field_int(json, "multiprocessors", r->gpu.processors);
    cli_field_int(json, "cuda", r->gpu.driver_version);
    field_name(json, "driver", nvml->driver[0] ? nvml->driver : "unknown");
    cli_field_int(json, "L2_MiB", r->driver->l2_bytes >> 20);
    cli_field_int(json, "most_MHz", r->driver->clock_mhz);
    cli_field_real(json, "limit_W", known(nvml->power_limit_w));
    cli_field_real(json, "read_GB/s", r->peaks.read * 1e-9);
    cli_field_real(json, "copy_GB/s", r->peaks.copy * 1e-9);
    cli_field_real(json, "known_TFLOP/s", known(r->peaks.known) * 1e-12);
    if (linear) {
        cli_field_real(json, "product_TFLOP/s", known(r->peaks.product) * 1e-12);
        cli_field_text(json, "product_by", r->peaks.by != NULL ? r->peaks.by : "none");
        cli_field_int(json, "cublaslt", (int64_t)r->lt->version);
    }
    cli_fields_end(json);
    if (json != NULL)
        cli_json_begin(json, "peers", '{');
    if (linear)
        report_other(r, "cublaslt", r->lt->missing);
    report_other(r, "nvml", nvml->missing);
    if (json != NULL)
        cli_json_end(json, '}');
}

/* ---- linear ---- */

static void report_peer(const cli_gpu_report *r, const cli_series *series, cli_peer_way way)
{
    char key[64];
    const cli_series *peer = cli_gpu_faster(series, way);
    const char *name = cli_peer_way_names[way];
    if (peer == NULL)
        return;
    snprintf(key, sizeof key, "%s_us", name);
    field_us(r->json, key, peer->median);
    snprintf(key, sizeof key, "%s_ratio", name);
    cli_field_real(r->json, key, peer->median / series[CLI_COLD].median);
}

static void report_sustained(const cli_gpu_report *r, const cli_gpu_times *t)
{
    cli_json *json = r->json;
    field_us(json, "sustained_us", t->ours.seconds);
    cli_field_real(json, "sustained_MHz", known(t->ours.state.clock_mhz));
    cli_field_real(json, "sustained_W", known(t->ours.state.power_w));
    if (t->peer.seconds == 0)
        return;
    field_us(json, "cublaslt_sustained_us", t->peer.seconds);
    cli_field_real(json, "cublaslt_sustained_ratio", t->peer.seconds / t->ours.seconds);
}

/* Shares of the peaks, and of what both allow together. */
static void report_shares(const cli_gpu_report *r, const cli_gpu_linear *c, double seconds)
{
    const cli_shape *s = &c->shape;
    const double operations = 2.0 * (double)s->m * (double)s->n * (double)s->k;
    const double roof = fmax(c->bytes / known(r->peaks.read), operations / known(r->peaks.product));
    cli_field_real(r->json, "TFLOP/s", operations / seconds * 1e-12);
    cli_field_real(r->json, "GB/s", c->bytes / seconds * 1e-9);
    cli_field_real(r->json, "of_known", operations / seconds / known(r->peaks.known));
    cli_field_real(r->json, "of_product", operations / seconds / known(r->peaks.product));
    cli_field_real(r->json, "of_read", c->bytes / seconds / known(r->peaks.read));
    field_us(r->json, "roof_us", roof);
    cli_field_real(r->json, "of_roof", roof / seconds);
}

void cli_report_gpu_linear(const cli_gpu_report *r, const cli_gpu_linear *c, const cli_gpu_times *t)
{
    char shape[CLI_SHAPE_NAME];
    cli_json *json = r->json;
    const cli_series *cold = &t->series[CLI_COLD];
    cli_fields_begin(json, NULL, "bench linear");
    cli_field_text(json, "shape", cli_shape_name(shape, &c->shape));
    cli_field_text(json, "scheme", c->scheme->name);
    cli_field_text(json, "kernel", c->chosen.kernel);
    cli_field_text(json, "weights", c->cold ? "cold" : "warm");
    cli_field_int(json, "copies", c->copies);
    cli_field_int(json, "launches", cold->launches);
    cli_field_int(json, "rounds", t->rounds);
    field_us(json, "us", cold->median);
    field_us(json, "best_us", cold->best);
    field_us(json, "warm_us", t->series[CLI_WARM].median);
    field_us(json, "alone_us", t->series[CLI_APART].median);
    field_us(json, "host_us", t->host);
    field_us(json, "launch_us", t->launch);
    field_us(json, "whole_us", t->series[CLI_WHOLE].median);
    field_us(json, "whole_alone_us", t->series[CLI_WHOLE_APART].median);
    field_us(json, "whole_host_us", t->whole_host);
    field_us(json, "whole_launch_us", t->whole_launch);
    report_shares(r, c, cold->median);
    for (int way = 0; way < CLI_PEER_WAYS; way++)
        report_peer(r, t->series, (cli_peer_way)way);
    report_sustained(r, t);
    cli_fields_end(json);
}

/* ---- quantize ---- */

void cli_report_gpu_quantize(const cli_gpu_report *r, const cli_gpu_quantize *c,
                             const cli_linear_scheme *scheme, const cli_shape *shape,
                             const char *what, const cli_gpu_times *t)
{
    char text[CLI_SHAPE_NAME], matrix[64];
    cli_json *json = r->json;
    const cli_series *s = t->series;
    const double copy = s[CLI_COPY].median;
    snprintf(matrix, sizeof matrix, "%lldx%lld", (long long)c->rows, (long long)c->cols);
    cli_fields_begin(json, NULL, "bench quantize");
    cli_field_text(json, "shape", cli_shape_name(text, shape));
    cli_field_text(json, "scheme", scheme->name);
    cli_field_text(json, "what", what);
    cli_field_text(json, "matrix", matrix);
    cli_field_text(json, "in", fp8_dtype_name(c->x.dtype));
    cli_field_text(json, "memory", c->cold ? "cold" : "warm");
    cli_field_int(json, "copies", c->copies);
    cli_field_int(json, "launches", s[CLI_FORTH].launches);
    cli_field_int(json, "rounds", t->rounds);
    field_us(json, "us", s[CLI_FORTH].median);
    field_us(json, "best_us", s[CLI_FORTH].best);
    field_us(json, "host_us", t->host);
    field_us(json, "launch_us", t->launch);
    cli_field_real(json, "GB/s", (double)c->bytes / known(s[CLI_FORTH].median) * 1e-9);
    field_us(json, "copy_us", copy);
    cli_field_real(json, "of_copy", copy / known(s[CLI_FORTH].median));
    field_us(json, "static_us", s[CLI_STATIC].median);
    cli_field_real(json, "static_of_copy", copy / known(s[CLI_STATIC].median));
    field_us(json, "dequantize_us", s[CLI_BACK].median);
    cli_field_real(json, "dequantize_of_copy", copy / known(s[CLI_BACK].median));
    cli_fields_end(json);
}
