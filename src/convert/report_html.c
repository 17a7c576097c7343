/* SPDX-License-Identifier: Apache-2.0
 *
 * report_html.c - the report for people: one page without outside resources, readable in light and
 * dark. Two histograms as inline SVG: tensors over SQNR, and codes over their magnitude. */
#include "convert/report.h"

#include <inttypes.h>
#include <math.h>

static const char head[] =
    "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>FP8 conversion report</title>\n<style>\n"
    ":root { color-scheme: light dark; --line: #8888; --bar: #2a78d6; --warn: #b3261e; }\n"
    "@media (prefers-color-scheme: dark) { :root { --bar: #6fb1ff; --warn: #ff8a80; } }\n"
    "body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem;\n"
    "  padding: 0 1rem; background: Canvas; color: CanvasText; }\n"
    "table { border-collapse: collapse; width: 100%; font-size: 13px; }\n"
    "th, td { border-bottom: 1px solid var(--line); padding: .25rem .5rem; text-align: left; }\n"
    "th, td:nth-child(2), td:nth-child(5) { white-space: nowrap; }\n"
    "th:nth-child(n+6):nth-child(-n+9), td:nth-child(n+6):nth-child(-n+9) { text-align: right;\n"
    "  font-variant-numeric: tabular-nums; white-space: nowrap; }\n"
    "thead th { position: sticky; top: 0; background: Canvas; }\n"
    "td:first-child { overflow-wrap: anywhere; min-width: 16rem; }\n"
    "td:last-child { min-width: 14rem; }\n"
    "dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; }\n"
    "dd { margin: 0; }\n.warn { color: var(--warn); }\n"
    ".wide { overflow-x: auto; }\nsvg { max-width: 100%; height: auto; }\n"
    "svg rect { fill: var(--bar); }\nsvg text { fill: CanvasText; font-size: 11px; }\n"
    "svg line { stroke: var(--line); }\n</style>\n</head>\n<body>\n"
    "<h1>FP8 conversion report</h1>\n";

/* 1234567 as "1.23 MB". */
static void put_bytes(fp8_page *page, uint64_t bytes)
{
    static const char *const units[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    double x = (double)bytes;
    size_t unit = 0;
    for (; x >= 1000 && unit + 1 < sizeof units / sizeof *units; unit++)
        x /= 1000;
    fp8_page_print(page, unit ? "%.2f %s" : "%.0f %s", x, units[unit]);
}

/* "31.55" and the unit; "exact" and "-" have none. */
static void put_decibels(fp8_page *page, double db, const char *unit)
{
    if (isnan(db))
        fp8_page_put(page, "-");
    else if (isinf(db))
        fp8_page_put(page, "exact");
    else
        fp8_page_print(page, "%.2f%s", db, unit);
}

/* part of whole in percent; "0" only if there is none. */
static void put_share(fp8_page *page, uint64_t part, uint64_t whole)
{
    double percent = whole ? 100.0 * (double)part / (double)whole : 0;
    if (part && percent < 0.001)
        fp8_page_put(page, "&lt; 0.001");
    else
        fp8_page_print(page, part ? "%.3f" : "%.0f", percent);
}

static void put_totals(const fp8_report *r, fp8_page *page)
{
    fp8_page_print(page,
                   "<dl>\n<dt>Tensors</dt><dd>%" PRId64 ": %" PRId64 " changed, %" PRId64
                   " kept</dd>\n<dt>Size</dt><dd>",
                   r->plan.tensors, r->plan.changed, r->plan.kept);
    put_bytes(page, r->plan.bytes_in);
    fp8_page_put(page, " before, ");
    put_bytes(page, r->plan.bytes_out);
    double ratio = r->plan.bytes_in ? (double)r->plan.bytes_out / (double)r->plan.bytes_in : 0;
    fp8_page_print(page,
                   " after (%.1f %%), in %" PRId64 " file%s</dd>\n<dt>Encoded</dt><dd>%" PRId64
                   " tensors, %" PRIu64 " elements: ",
                   100 * ratio, r->plan.shards_out, r->plan.shards_out == 1 ? "" : "s", r->measured,
                   r->elements);
    put_share(page, r->zeros, r->elements);
    fp8_page_put(page, " % zero codes, ");
    put_share(page, r->saturated, r->elements);
    fp8_page_put(page, " % at the largest magnitude</dd>\n<dt>SQNR</dt><dd>");
    put_decibels(page, r->least_db, " dB");
    fp8_page_put(page, " least, ");
    put_decibels(page, r->median_db, " dB");
    fp8_page_put(page, " median</dd>\n</dl>\n");
}

static void put_warnings(const fp8_report *r, fp8_page *page)
{
    const char *text = fp8_convert_warning(r->conv, 0);
    if (!text)
        return;
    fp8_page_put(page, "<h2>Warnings</h2>\n<ul class=\"warn\">\n");
    for (int64_t i = 0; (text = fp8_convert_warning(r->conv, i)); i++) {
        fp8_page_put(page, "<li>");
        fp8_page_html(page, text);
        fp8_page_put(page, "</li>\n");
    }
    fp8_page_put(page, "</ul>\n");
}

/* One picture: counts as bars, their heights on a linear or a logarithmic scale. */
enum { WIDTH = 640, HEIGHT = 150, LEFT = 10, TOP = 16, MAX_BARS = 128 };

struct histogram {
    const char *title, *first, *last; /* and what stands under both ends */
    uint64_t counts[MAX_BARS];
    int bars;
    bool logarithmic;
};

static double height_of(const struct histogram *h, uint64_t count, uint64_t most)
{
    if (count == 0 || most == 0)
        return 0;
    double share = h->logarithmic ? log2((double)count + 1) / log2((double)most + 1)
                                  : (double)count / (double)most;
    return share * HEIGHT > 1 ? share * HEIGHT : 1;
}

static void put_histogram(fp8_page *page, const struct histogram *h)
{
    uint64_t most = 0;
    for (int i = 0; i < h->bars; i++)
        most = h->counts[i] > most ? h->counts[i] : most;
    double step = (double)WIDTH / h->bars;
    fp8_page_print(page, "<svg viewBox=\"0 0 %d %d\" width=\"%d\" role=\"img\"><title>%s</title>\n",
                   WIDTH + 2 * LEFT, HEIGHT + TOP + 20, WIDTH + 2 * LEFT, h->title);
    for (int i = 0; i < h->bars; i++) {
        double height = height_of(h, h->counts[i], most);
        if (height > 0)
            fp8_page_print(
                page,
                "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\"><title>%" PRIu64
                "</title></rect>\n",
                LEFT + i * step, TOP + HEIGHT - height, step > 3 ? step - 1 : step, height,
                h->counts[i]);
    }
    fp8_page_print(page, "<line x1=\"%d\" y1=\"%d\" x2=\"%d\" y2=\"%d\"/>\n", LEFT, TOP + HEIGHT,
                   LEFT + WIDTH, TOP + HEIGHT);
    fp8_page_print(page, "<text x=\"%d\" y=\"%d\">%s</text>\n", LEFT, TOP + HEIGHT + 14, h->first);
    fp8_page_print(page, "<text x=\"%d\" y=\"%d\" text-anchor=\"end\">%s</text>\n", LEFT + WIDTH,
                   TOP + HEIGHT + 14, h->last);
    fp8_page_print(page, "<text x=\"%d\" y=\"11\">%" PRIu64 "</text>\n</svg>\n", LEFT, most);
}

/* Width of a bar in decibels: the least of these that needs at most 40 bars. */
static double bar_width(double range)
{
    static const double widths[] = {0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5};
    size_t last = sizeof widths / sizeof *widths - 1;
    for (size_t i = 0; i < last; i++)
        if (range <= 39 * widths[i])
            return widths[i];
    return widths[last];
}

/* Tensors over SQNR; exact ones are left out, those past the last bar are in it. */
static void put_sqnr_histogram(const fp8_report *r, fp8_page *page)
{
    int64_t n = r->measured;
    while (n && isinf(r->sqnr_db[n - 1]))
        n--;
    if (n == 0)
        return;
    double width = bar_width(r->sqnr_db[n - 1] - r->sqnr_db[0]);
    double low = floor(r->sqnr_db[0] / width) * width;
    struct histogram h = {.title = "Tensors over SQNR"};
    fp8_error first, last; /* for their texts */
    for (int64_t i = 0; i < n; i++) {
        double bar = floor((r->sqnr_db[i] - low) / width);
        int index = bar < MAX_BARS - 1 ? (int)bar : MAX_BARS - 1;
        h.counts[index]++;
        h.bars = index + 1;
    }
    fp8_error_set(&first, FP8_OK, -1, "%.2f dB", low);
    fp8_error_set(&last, FP8_OK, -1, "%.2f dB", low + h.bars * width);
    h.first = first.msg;
    h.last = last.msg;
    fp8_page_print(page, "<h2>Tensors over SQNR, %.2f dB a bar</h2>\n", width);
    put_histogram(page, &h);
}

/* How often each magnitude of code occurs, both signs together, on a logarithmic scale. */
static void put_code_histogram(const fp8_report *r, fp8_page *page)
{
    struct histogram h = {.title = "Codes over their magnitude",
                          .first = "0x00 (zero)",
                          .last = "0x7f",
                          .bars = 128,
                          .logarithmic = true};
    if (r->measured == 0)
        return;
    for (int i = 0; i < 256; i++)
        h.counts[i & 127] += r->codes[i];
    fp8_page_put(page, "<h2>Codes over their magnitude (logarithmic)</h2>\n");
    put_histogram(page, &h);
}

static void put_cell(fp8_page *page, const char *text)
{
    fp8_page_put(page, "<td>");
    fp8_page_html(page, text);
    fp8_page_put(page, "</td>");
}

static void put_row(fp8_page *page, const fp8_plan_row *row)
{
    const char *in = fp8_dtype_name(row->dtype_in), *out = fp8_dtype_name(row->dtype_out);
    fp8_page_put(page, "<tr>");
    put_cell(page, row->name);
    fp8_page_put(page, "<td>");
    for (int32_t d = 0; d < row->ndim; d++)
        fp8_page_print(page, d ? " × %" PRId64 : "%" PRId64, row->shape[d]);
    fp8_page_put(page, "</td>");
    put_cell(page, row->action);
    put_cell(page, row->scheme);
    fp8_page_print(page, "<td>%s%s%s</td>", in ? in : "", out && in != out ? " → " : "",
                   out && in != out ? out : "");
}

static void put_stats(fp8_page *page, const fp8_tensor_stats *stats)
{
    fp8_page_put(page, "<td>");
    put_decibels(page, fp8_report_sqnr(stats), "");
    fp8_page_print(page, "</td><td>%.3g</td><td>", stats->max_err);
    put_share(page, stats->saturated, stats->elements);
    fp8_page_put(page, "</td><td>");
    put_share(page, stats->zeros, stats->elements);
    fp8_page_put(page, "</td>");
}

static fp8_status put_table(const fp8_report *r, fp8_page *page, fp8_error *err)
{
    fp8_page_put(page, "<h2>Tensors</h2>\n<div class=\"wide\"><table>\n<thead><tr><th>Tensor</th>"
                       "<th>Shape</th><th>Action</th><th>Scheme</th><th>Dtype</th>"
                       "<th>SQNR (dB)</th><th>Largest error</th>"
                       "<th>Saturated (%)</th><th>Zero (%)</th>"
                       "<th>Reason</th></tr></thead>\n<tbody>\n");
    for (int64_t i = 0; i < r->plan.tensors; i++) {
        fp8_plan_row row;
        fp8_tensor_stats stats;
        bool measured;
        FP8_TRY(fp8_convert_row(r->conv, i, &row));
        FP8_TRY(fp8_convert_stats(r->conv, i, &stats, &measured, err));
        put_row(page, &row);
        if (measured)
            put_stats(page, &stats);
        else
            fp8_page_put(page, "<td></td><td></td><td></td><td></td>");
        put_cell(page, row.reason);
        fp8_page_put(page, "</tr>\n");
    }
    fp8_page_put(page, "</tbody>\n</table></div>\n");
    return FP8_OK;
}

fp8_status fp8_report_html(const fp8_report *report, fp8_page *page, fp8_error *err)
{
    fp8_page_put(page, head);
    put_totals(report, page);
    put_warnings(report, page);
    put_sqnr_histogram(report, page);
    put_code_histogram(report, page);
    FP8_TRY(put_table(report, page, err));
    fp8_page_print(page,
                   "<p>Made by libfp8 %s. SQNR = 10 log10(sum x² / sum (x - code · scale)²)."
                   "</p>\n</body>\n</html>\n",
                   fp8_version());
    return FP8_OK;
}
