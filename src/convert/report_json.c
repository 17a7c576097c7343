/* SPDX-License-Identifier: Apache-2.0
 *
 * report_json.c - the report for programs: {"summary": {..}, "warnings": [..], "codes": [256
 * counts], "tensors": [{..}, ..]}. Exact tensors have "sqnr_db": null and "max_error": 0. */
#include "convert/report.h"

#include <inttypes.h>

static void put_member(fp8_page *page, const char *name, uint64_t value)
{
    fp8_page_print(page, "\"%s\": %" PRIu64 ", ", name, value);
}

static void put_summary(const fp8_report *r, fp8_page *page)
{
    fp8_page_put(page, "{\"summary\": {");
    put_member(page, "tensors", (uint64_t)r->plan.tensors);
    put_member(page, "changed", (uint64_t)r->plan.changed);
    put_member(page, "kept", (uint64_t)r->plan.kept);
    put_member(page, "bytes_in", r->plan.bytes_in);
    put_member(page, "bytes_out", r->plan.bytes_out);
    put_member(page, "shards_out", (uint64_t)r->plan.shards_out);
    put_member(page, "encoded_tensors", (uint64_t)r->measured);
    put_member(page, "encoded_elements", r->elements);
    put_member(page, "zero_codes", r->zeros);
    put_member(page, "saturated_codes", r->saturated);
    fp8_page_put(page, "\"sqnr_db_min\": ");
    fp8_page_json_number(page, r->least_db);
    fp8_page_put(page, ", \"sqnr_db_median\": ");
    fp8_page_json_number(page, r->median_db);
    fp8_page_put(page, "},\n");
}

static void put_warnings(const fp8_report *r, fp8_page *page)
{
    const char *text;
    fp8_page_put(page, "\"warnings\": [");
    for (int64_t i = 0; (text = fp8_convert_warning(r->conv, i)); i++) {
        fp8_page_put(page, i ? ", " : "");
        fp8_page_json(page, text);
    }
    fp8_page_put(page, "],\n");
}

static void put_text(fp8_page *page, const char *name, const char *text)
{
    fp8_page_print(page, ", \"%s\": ", name);
    fp8_page_json(page, text);
}

static void put_row(fp8_page *page, const fp8_plan_row *row)
{
    fp8_page_put(page, "{\"name\": ");
    fp8_page_json(page, row->name);
    fp8_page_put(page, ", \"shape\": [");
    for (int32_t d = 0; d < row->ndim; d++)
        fp8_page_print(page, d ? ", %" PRId64 : "%" PRId64, row->shape[d]);
    fp8_page_put(page, "]");
    put_text(page, "action", row->action);
    put_text(page, "scheme", row->scheme);
    put_text(page, "reason", row->reason);
    const char *in = fp8_dtype_name(row->dtype_in), *out = fp8_dtype_name(row->dtype_out);
    put_text(page, "dtype_in", in ? in : "");
    put_text(page, "dtype_out", out ? out : "");
    fp8_page_print(page, ", \"bytes_in\": %" PRIu64 ", \"bytes_out\": %" PRIu64, row->bytes_in,
                   row->bytes_out);
}

static void put_stats(fp8_page *page, const fp8_tensor_stats *stats)
{
    fp8_page_put(page, ", \"sqnr_db\": ");
    fp8_page_json_number(page, fp8_report_sqnr(stats));
    fp8_page_put(page, ", \"max_error\": ");
    fp8_page_json_number(page, stats->max_err);
    fp8_page_print(page,
                   ", \"elements\": %" PRIu64 ", \"zero_codes\": %" PRIu64
                   ", \"saturated_codes\": %" PRIu64,
                   stats->elements, stats->zeros, stats->saturated);
}

fp8_status fp8_report_json(const fp8_report *report, fp8_page *page, fp8_error *err)
{
    put_summary(report, page);
    put_warnings(report, page);
    fp8_page_put(page, "\"codes\": [");
    for (int i = 0; i < 256; i++)
        fp8_page_print(page, i ? ", %" PRIu64 : "%" PRIu64, report->codes[i]);
    fp8_page_put(page, "],\n\"tensors\": [\n");
    for (int64_t i = 0; i < report->plan.tensors; i++) {
        fp8_plan_row row;
        fp8_tensor_stats stats;
        bool measured;
        FP8_TRY(fp8_convert_row(report->conv, i, &row));
        FP8_TRY(fp8_convert_stats(report->conv, i, &stats, &measured, err));
        fp8_page_put(page, i ? ",\n" : "");
        put_row(page, &row);
        if (measured)
            put_stats(page, &stats);
        fp8_page_put(page, "}");
    }
    fp8_page_put(page, "\n]}\n");
    return FP8_OK;
}
