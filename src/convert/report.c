/* SPDX-License-Identifier: Apache-2.0
 *
 * report.c - fp8_report_write: sums up a conversion, then writes it as a page for people
 * (report_html.c) or for programs (report_json.c). */
#include "convert/report.h"

#include "convert/values.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

double fp8_report_sqnr(const fp8_tensor_stats *stats)
{
    return fp8_sqnr_db(stats->sum_sq, stats->sum_err_sq);
}

static void add_row(fp8_report *report, const fp8_tensor_stats *stats)
{
    report->sqnr_db[report->measured++] = fp8_report_sqnr(stats);
    report->elements += stats->elements;
    report->zeros += stats->zeros;
    report->saturated += stats->saturated;
    for (int i = 0; i < 256; i++)
        report->codes[i] += stats->codes[i];
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void rank(fp8_report *report)
{
    int64_t n = report->measured;
    report->least_db = report->median_db = NAN;
    if (n == 0)
        return;
    qsort(report->sqnr_db, (size_t)n, sizeof *report->sqnr_db, by_value);
    report->least_db = report->sqnr_db[0];
    double low = report->sqnr_db[(n - 1) / 2], high = report->sqnr_db[n / 2];
    report->median_db = isfinite(high) ? (low + high) / 2 : low;
}

static fp8_status sum_up(fp8_report *report, fp8_error *err)
{
    int64_t n = fp8_convert_count(report->conv);
    fp8_convert_summary(report->conv, &report->plan);
    report->sqnr_db = fp8_alloc_zeroed(report->ctx, (uint64_t)n, sizeof *report->sqnr_db);
    FP8_FAIL_IF(!report->sqnr_db, err, FP8_E_NO_MEMORY, "report: no memory for %lld rows",
                (long long)n);
    for (int64_t i = 0; i < n; i++) {
        fp8_tensor_stats stats;
        bool measured;
        FP8_TRY(fp8_convert_stats(report->conv, i, &stats, &measured, err));
        if (measured)
            add_row(report, &stats);
    }
    rank(report);
    return FP8_OK;
}

typedef fp8_status (*writer)(const fp8_report *report, fp8_page *page, fp8_error *err);

static writer writer_of(const char *path)
{
    static const struct {
        const char *ending;
        writer write;
    } writers[] = {{".html", fp8_report_html}, {".json", fp8_report_json}};
    size_t n = strlen(path);
    for (size_t i = 0; i < sizeof writers / sizeof *writers; i++) {
        size_t m = strlen(writers[i].ending);
        if (n > m && !strcmp(path + n - m, writers[i].ending))
            return writers[i].write;
    }
    return NULL;
}

bool fp8_report_knows(const char *path)
{
    return writer_of(path) != NULL;
}

fp8_status fp8_report_write(const fp8_context *ctx, const fp8_convert *conv, const char *path,
                            fp8_error *err)
{
    writer write = writer_of(path);
    fp8_report report = {.ctx = ctx, .conv = conv};
    fp8_page page;
    FP8_FAIL_IF(!write, err, FP8_E_ARGUMENT, "report: %s must end in .html or .json", path);
    fp8_status status = sum_up(&report, err);
    if (status == FP8_OK) {
        fp8_page_open(&page, ctx, path);
        status = write(&report, &page, err);
        fp8_status closed = fp8_page_close(&page, status == FP8_OK ? err : NULL);
        status = status == FP8_OK ? closed : status;
    }
    fp8_release(ctx, report.sqnr_db);
    return status;
}
