/* SPDX-License-Identifier: Apache-2.0
 *
 * safetensors.c - reading a header and holding it against every rule of the format.
 * The JSON is scanned twice: once to check each tensor and to count, once more to fill arrays of
 * exactly the right size. Memory is at most about twice the JSON, which is freed at the end. */
#define _GNU_SOURCE
#include "ckpt/safetensors.h"
#include "base/size.h"
#include "base/sort.h"
#include "ckpt/file.h"
#include "ckpt/foreign.h"
#include "ckpt/json.h"
#include "ckpt/name_table.h"

#include <errno.h>
#include <inttypes.h>
#include <string.h>

enum {
    MAX_DIMS = 65535,    /* fp8_st_entry.ndim */
    MAX_SIZES = 1 << 23, /* of all shapes together: bounds memory at 64 MiB */
    MAX_METADATA_KEYS = 1 << 20,
};

static const char metadata_name[] = "__metadata__"; /* the only key that is no tensor */

/* A scan over the header's JSON. While it counts, out's arrays are NULL. */
typedef struct scan {
    fp8_json json;
    fp8_st_header *out;
    int64_t count;       /* tensors so far */
    int64_t sizes;       /* of their shapes */
    uint64_t name_bytes; /* of their names, each with a NUL; an upper bound while counting */
    fp8_span metadata;   /* text of the __metadata__ object */
} scan;

/* ---- one tensor ---- */

static fp8_status read_dtype(scan *s, fp8_st_entry *e, fp8_error *err)
{
    char name[32];
    fp8_span text;
    FP8_TRY(fp8_json_string(&s->json, &text, err));
    uint64_t bytes = text.bytes < sizeof name ? fp8_json_unescape(text, name) : 0;
    name[bytes] = 0;
    e->dtype = (uint8_t)(strlen(name) == bytes ? fp8_dtype_parse(name) : FP8_DTYPE_NONE);
    FP8_FAIL_IF(e->dtype == FP8_DTYPE_NONE, err, FP8_E_FORMAT, "'%.*s' is no dtype of the format",
                fp8_span_shown(text), text.text);
    return FP8_OK;
}

/* *e gets the shape; *s the sizes. */
static fp8_status read_shape(scan *s, fp8_st_entry *e, fp8_error *err)
{
    FP8_TRY(fp8_json_enter_array(&s->json, err));
    e->shape = (uint32_t)s->sizes;
    for (;;) {
        bool more;
        int64_t size;
        FP8_TRY(fp8_json_next_item(&s->json, &more, err));
        if (!more)
            return FP8_OK;
        FP8_FAIL_IF(e->ndim == MAX_DIMS, err, FP8_E_UNSUPPORTED, "more than %d sizes", MAX_DIMS);
        FP8_TRY(fp8_json_u63(&s->json, &size, err));
        if (s->out->shapes)
            s->out->shapes[s->sizes] = size;
        s->sizes++;
        e->ndim++;
    }
}

static fp8_status read_offsets(scan *s, fp8_st_entry *e, fp8_error *err)
{
    int64_t offsets[2];
    int n = 0;
    bool more;
    FP8_TRY(fp8_json_enter_array(&s->json, err));
    for (;;) {
        FP8_TRY(fp8_json_next_item(&s->json, &more, err));
        if (!more)
            break;
        FP8_FAIL_IF(n == 2, err, FP8_E_FORMAT, "more than two offsets, must be [begin, end]");
        FP8_TRY(fp8_json_u63(&s->json, &offsets[n++], err));
    }
    FP8_FAIL_IF(n < 2, err, FP8_E_FORMAT, "%d of two offsets, must be [begin, end]", n);
    FP8_FAIL_IF(offsets[0] > offsets[1], err, FP8_E_FORMAT,
                "begin %" PRId64 " lies after end %" PRId64, offsets[0], offsets[1]);
    e->begin = (uint64_t)offsets[0];
    e->end = (uint64_t)offsets[1];
    return FP8_OK;
}

enum { FIELDS = 3 };
static const struct {
    const char *key;
    fp8_status (*read)(scan *s, fp8_st_entry *e, fp8_error *err);
} fields[FIELDS] = {{"dtype", read_dtype}, {"shape", read_shape}, {"data_offsets", read_offsets}};

/* Reads the value of a key of the entry; keys that the format does not know are passed over. */
static fp8_status read_field(scan *s, fp8_span key, fp8_st_entry *e, bool *seen, fp8_error *err)
{
    for (int i = 0; i < FIELDS; i++) {
        if (!fp8_json_equals(key, fields[i].key))
            continue;
        FP8_FAIL_IF(seen[i], err, FP8_E_FORMAT, "%s is given twice", fields[i].key);
        seen[i] = true;
        fp8_status status = fields[i].read(s, e, err);
        if (status != FP8_OK)
            fp8_error_prefix(err, "%s", fields[i].key);
        return status;
    }
    return fp8_json_skip(&s->json, NULL, err);
}

/* product(shape) * bits / 8 == end - begin, in checked arithmetic. */
static fp8_status check_bytes(const fp8_st_entry *e, const int64_t *shape, fp8_error *err)
{
    uint64_t bits = (uint64_t)fp8_dtype_bits((fp8_dtype)e->dtype);
    for (int i = 0; i < e->ndim; i++)
        FP8_FAIL_IF(!fp8_size_mul(bits, (uint64_t)shape[i], &bits), err, FP8_E_FORMAT,
                    "the size in bits overflows 64 bits at size %" PRId64 " of the shape",
                    shape[i]);
    FP8_FAIL_IF(bits % 8, err, FP8_E_FORMAT, "%" PRIu64 " bits of %s do not end on a byte", bits,
                fp8_dtype_name((fp8_dtype)e->dtype));
    FP8_FAIL_IF(bits / 8 != e->end - e->begin, err, FP8_E_FORMAT,
                "shape and %s make %" PRIu64 " bytes, data_offsets hold %" PRIu64,
                fp8_dtype_name((fp8_dtype)e->dtype), bits / 8, e->end - e->begin);
    return FP8_OK;
}

static fp8_status read_entry(scan *s, fp8_st_entry *e, fp8_error *err)
{
    bool seen[FIELDS] = {false};
    FP8_TRY(fp8_json_enter_object(&s->json, err));
    for (;;) {
        fp8_span key;
        bool more;
        FP8_TRY(fp8_json_next_key(&s->json, &key, &more, err));
        if (!more)
            break;
        FP8_TRY(read_field(s, key, e, seen, err));
    }
    for (int i = 0; i < FIELDS; i++)
        FP8_FAIL_IF(!seen[i], err, FP8_E_FORMAT, "%s is missing", fields[i].key);
    return s->out->shapes ? check_bytes(e, s->out->shapes + e->shape, err) : FP8_OK;
}

/* ---- the header ---- */

static void store_entry(scan *s, fp8_span key, fp8_st_entry *e)
{
    fp8_st_header *out = s->out;
    if (out->entries) {
        e->name = (uint32_t)s->name_bytes;
        e->name_bytes = (uint32_t)fp8_json_unescape(key, out->names + e->name);
        out->names[e->name + e->name_bytes] = 0;
        out->entries[s->count] = *e;
        s->name_bytes += (uint64_t)e->name_bytes + 1;
    } else {
        s->name_bytes += key.bytes + 1;
    }
    s->count++;
}

static fp8_status read_member(scan *s, fp8_span key, fp8_error *err)
{
    fp8_st_entry e = {0};
    if (!fp8_json_equals(key, metadata_name)) {
        FP8_TRY(read_entry(s, &e, err));
        store_entry(s, key, &e);
        return FP8_OK;
    }
    FP8_FAIL_IF(s->metadata.text, err, FP8_E_FORMAT, "it is given twice");
    return fp8_json_skip(&s->json, &s->metadata, err);
}

/* Scans all of the JSON. */
static fp8_status scan_header(scan *s, const char *json, uint64_t bytes, fp8_st_header *out,
                              fp8_error *err)
{
    *s = (scan){.out = out};
    fp8_json_open(&s->json, json, bytes);
    FP8_TRY(fp8_json_enter_object(&s->json, err));
    for (;;) {
        fp8_span key;
        bool more;
        FP8_TRY(fp8_json_next_key(&s->json, &key, &more, err));
        if (!more)
            return fp8_json_end(&s->json, err);
        fp8_status status = read_member(s, key, err);
        if (status != FP8_OK) {
            if (err && err->pos < 0)
                err->pos = key.text - json;
            const char *format = fp8_json_equals(key, metadata_name) ? "%.*s" : "tensor '%.*s'";
            fp8_error_prefix(err, format, fp8_span_shown(key), key.text);
            return status;
        }
    }
}

static fp8_status allocate(const fp8_context *ctx, const scan *s, fp8_st_header *out,
                           fp8_error *err)
{
    FP8_FAIL_IF(s->sizes > MAX_SIZES, err, FP8_E_UNSUPPORTED,
                "the shapes have %" PRId64 " sizes together, at most %d are supported", s->sizes,
                MAX_SIZES);
    out->count = s->count;
    out->entries = fp8_alloc_zeroed(ctx, (uint64_t)s->count, sizeof *out->entries);
    out->shapes = fp8_alloc_zeroed(ctx, (uint64_t)s->sizes, sizeof *out->shapes);
    out->names = fp8_alloc(ctx, s->name_bytes);
    FP8_FAIL_IF(!out->entries || !out->shapes || !out->names, err, FP8_E_NO_MEMORY,
                "no memory for a header of %" PRId64 " tensors", s->count);
    return FP8_OK;
}

/* ---- __metadata__ ---- */

/* The keys of the metadata, decoded, to find one that is given twice. */
typedef struct metadata_keys {
    fp8_span *keys; /* NULL while counting */
    char *text;     /* of all keys */
    int64_t count;
    uint64_t bytes;
} metadata_keys;

static fp8_status read_metadata_pair(fp8_json *json, fp8_span key, metadata_keys *m, fp8_error *err)
{
    fp8_span value;
    FP8_TRY(fp8_json_string(json, &value, err));
    if (m->keys) {
        char *text = m->text + m->bytes;
        m->keys[m->count] = (fp8_span){text, fp8_json_unescape(key, text)};
    }
    m->bytes += key.bytes;
    m->count++;
    return FP8_OK;
}

/* Scans the object `text` inside the header's JSON, so that positions count from its start. */
static fp8_status scan_metadata(const char *start, fp8_span text, metadata_keys *m, fp8_error *err)
{
    fp8_json json;
    m->count = 0;
    m->bytes = 0;
    fp8_json_open(&json, start, (uint64_t)(text.text - start) + text.bytes);
    json.pos = (uint64_t)(text.text - start);
    FP8_TRY(fp8_json_enter_object(&json, err));
    for (;;) {
        fp8_span key;
        bool more;
        FP8_TRY(fp8_json_next_key(&json, &key, &more, err));
        if (!more)
            return FP8_OK;
        fp8_status status = read_metadata_pair(&json, key, m, err);
        if (status != FP8_OK) {
            fp8_error_prefix(err, "key '%.*s'", fp8_span_shown(key), key.text);
            return status;
        }
    }
}

static fp8_span metadata_key(const void *owner, int64_t i)
{
    return ((const metadata_keys *)owner)->keys[i];
}

static fp8_status check_metadata_twins(const fp8_context *ctx, const metadata_keys *m,
                                       fp8_error *err)
{
    fp8_name_table table;
    FP8_TRY(fp8_name_table_create(ctx, m->count, metadata_key, m, &table, err));
    fp8_status status = FP8_OK;
    for (int64_t i = 0; i < m->count && status == FP8_OK; i++)
        if (fp8_name_table_add(&table, i) >= 0)
            status = fp8_fail(err, FP8_E_FORMAT, "key '%.*s' is given twice",
                              fp8_span_shown(m->keys[i]), m->keys[i].text);
    fp8_name_table_free(ctx, &table);
    return status;
}

/* An object of strings without a key given twice; keeps its text. */
static fp8_status keep_metadata(const fp8_context *ctx, const char *start, fp8_span text,
                                fp8_st_header *out, fp8_error *err)
{
    metadata_keys m = {0};
    FP8_TRY(scan_metadata(start, text, &m, err));
    FP8_FAIL_IF(m.count > MAX_METADATA_KEYS, err, FP8_E_UNSUPPORTED,
                "%" PRId64 " keys, at most %d are supported", m.count, MAX_METADATA_KEYS);
    m.keys = fp8_alloc_zeroed(ctx, (uint64_t)m.count, sizeof *m.keys);
    m.text = fp8_alloc(ctx, m.bytes);
    fp8_status status = FP8_OK;
    if (!m.keys || !m.text)
        status = fp8_fail(err, FP8_E_NO_MEMORY, "no memory for %" PRId64 " keys", m.count);
    if (status == FP8_OK)
        status = scan_metadata(start, text, &m, err);
    if (status == FP8_OK)
        status = check_metadata_twins(ctx, &m, err);
    fp8_release(ctx, m.keys);
    fp8_release(ctx, m.text);
    FP8_TRY(status);
    out->metadata = fp8_copy_text(ctx, text.text, text.bytes);
    FP8_FAIL_IF(!out->metadata, err, FP8_E_NO_MEMORY, "no memory for %" PRIu64 " bytes",
                text.bytes);
    return FP8_OK;
}

/* null stands for no metadata: the reference reader takes it so, and files have it. */
static bool is_null(fp8_span text)
{
    return text.bytes == 4 && !memcmp(text.text, "null", 4);
}

/* ---- order, names and ranges ---- */

/* By begin, end, place in the header: names are stored in its order. */
static int compare_entries(const void *one, const void *other, void *owner)
{
    const fp8_st_entry *a = one, *b = other;
    (void)owner;
    if (a->begin != b->begin)
        return a->begin > b->begin ? 1 : -1;
    if (a->end != b->end)
        return a->end > b->end ? 1 : -1;
    return (a->name > b->name) - (a->name < b->name);
}

static fp8_span entry_name(const void *owner, int64_t i)
{
    const fp8_st_header *h = owner;
    return (fp8_span){h->names + h->entries[i].name, h->entries[i].name_bytes};
}

static fp8_status check_names(const fp8_context *ctx, const fp8_st_header *h, fp8_error *err)
{
    fp8_name_table table;
    FP8_TRY(fp8_name_table_create(ctx, h->count, entry_name, h, &table, err));
    fp8_status status = FP8_OK;
    for (int64_t i = 0; i < h->count && status == FP8_OK; i++) {
        fp8_span name = entry_name(h, i);
        if (fp8_name_table_add(&table, i) >= 0)
            status = fp8_fail(err, FP8_E_FORMAT, "tensor '%.*s' is there twice",
                              fp8_span_shown(name), name.text);
    }
    fp8_name_table_free(ctx, &table);
    return status;
}

/* The sorted ranges cover the data without hole or overlap. */
static fp8_status check_ranges(const fp8_st_header *h, fp8_error *err)
{
    uint64_t end = 0;
    for (int64_t i = 0; i < h->count; i++) {
        const fp8_st_entry *e = &h->entries[i];
        fp8_span name = entry_name(h, i);
        if (e->begin < end)
            return fp8_fail_at(err, FP8_E_FORMAT, (int64_t)(h->data_offset + e->begin),
                               "tensor '%.*s' begins at byte %" PRIu64
                               " of the data, overlapping the one that ends at %" PRIu64,
                               fp8_span_shown(name), name.text, e->begin, end);
        if (e->begin > end)
            return fp8_fail_at(err, FP8_E_FORMAT, (int64_t)(h->data_offset + end),
                               "tensor '%.*s' begins at byte %" PRIu64
                               " of the data, leaving a hole from %" PRIu64,
                               fp8_span_shown(name), name.text, e->begin, end);
        end = e->end;
    }
    if (end > h->data_bytes)
        return fp8_fail_at(err, FP8_E_TRUNCATED, (int64_t)(h->data_offset + h->data_bytes),
                           "truncated: the tensors need %" PRIu64 " bytes of data, the file has "
                           "%" PRIu64,
                           end, h->data_bytes);
    if (end < h->data_bytes)
        return fp8_fail_at(err, FP8_E_FORMAT, (int64_t)(h->data_offset + end),
                           "%" PRIu64 " bytes after the last tensor, which ends at byte %" PRIu64
                           " of the data",
                           h->data_bytes - end, end);
    return FP8_OK;
}

/* ---- entry points ---- */

/* All that the JSON says, into *out. */
static fp8_status fill_header(const fp8_context *ctx, const char *json, uint64_t bytes,
                              fp8_st_header *out, fp8_error *err)
{
    scan s;
    FP8_FAIL_IF(bytes == 0, err, FP8_E_FORMAT, "the header is empty, must be a JSON object");
    if (json[0] != '{')
        return fp8_fail_at(err, FP8_E_FORMAT, 0, "the header's first byte is 0x%02x, must be '{'",
                           (unsigned char)json[0]);
    FP8_TRY(scan_header(&s, json, bytes, out, err));
    FP8_TRY(allocate(ctx, &s, out, err));
    FP8_TRY(scan_header(&s, json, bytes, out, err));
    if (!s.metadata.text || is_null(s.metadata))
        return FP8_OK;
    fp8_status status = keep_metadata(ctx, json, s.metadata, out, err);
    if (status != FP8_OK)
        fp8_error_prefix(err, "%s", metadata_name);
    return status;
}

fp8_status fp8_st_parse(const fp8_context *ctx, char *json, uint64_t json_bytes,
                        uint64_t data_bytes, const char *path, fp8_st_header *out, fp8_error *err)
{
    *out = (fp8_st_header){.data_offset = 8 + json_bytes, .data_bytes = data_bytes};
    fp8_status status = fill_header(ctx, json, json_bytes, out, err);
    fp8_release(ctx, json);
    if (status != FP8_OK && err && err->pos >= 0)
        err->pos += 8; /* from a byte of the JSON to one of the file */
    if (status == FP8_OK)
        status = fp8_sort(ctx, out->entries, out->count, sizeof *out->entries, compare_entries,
                          NULL, err);
    if (status == FP8_OK)
        status = check_names(ctx, out, err);
    if (status == FP8_OK)
        status = check_ranges(out, err);
    if (status != FP8_OK) {
        fp8_error_prefix(err, "%s", path);
        fp8_st_free(ctx, out);
    }
    return status;
}

void fp8_st_free(const fp8_context *ctx, fp8_st_header *header)
{
    fp8_release(ctx, header->entries);
    fp8_release(ctx, header->names);
    fp8_release(ctx, header->shapes);
    fp8_release(ctx, header->metadata);
    *header = (fp8_st_header){0};
}

/* The header's length from the file's first 8 bytes, held against the file's size. */
static fp8_status read_length(const unsigned char *head, uint64_t head_bytes, uint64_t file_bytes,
                              uint64_t *out, fp8_error *err)
{
    FP8_FAIL_IF(file_bytes == 0, err, FP8_E_TRUNCATED, "the file is empty");
    const char *foreign = fp8_foreign_format((const char *)head, head_bytes);
    FP8_FAIL_IF(file_bytes < 8, err, FP8_E_TRUNCATED,
                "the file has %" PRIu64 " bytes, must have at least 8", file_bytes);
    uint64_t n = 0;
    for (int i = 8; i-- > 0;)
        n = n << 8 | head[i];
    *out = n;
    bool fits = n <= FP8_ST_MAX_HEADER && n <= file_bytes - 8;
    FP8_FAIL_IF(foreign && !(fits && head[8] == '{'), err, FP8_E_FORMAT,
                "not a safetensors file, but %s", foreign);
    FP8_FAIL_IF(n > FP8_ST_MAX_HEADER, err, FP8_E_FORMAT,
                "the header's length is %" PRIu64 ", must be at most %d", n, FP8_ST_MAX_HEADER);
    FP8_FAIL_IF(n > file_bytes - 8, err, FP8_E_TRUNCATED,
                "truncated: the header's %" PRIu64 " bytes end past the file's %" PRIu64, n,
                file_bytes);
    return FP8_OK;
}

fp8_status fp8_st_read(const fp8_context *ctx, int fd, const char *path, fp8_st_header *out,
                       fp8_error *err)
{
    unsigned char head[FP8_FOREIGN_BYTES] = {0};
    struct stat info;
    *out = (fp8_st_header){0};
    if (fstat(fd, &info))
        return fp8_fail_os(err, errno, "stat %s", path);
    uint64_t file_bytes = (uint64_t)info.st_size, n = 0;
    uint64_t head_bytes = file_bytes < sizeof head ? file_bytes : sizeof head;
    FP8_TRY(fp8_pread_all(fd, head, head_bytes, 0, path, err));
    fp8_status status = read_length(head, head_bytes, file_bytes, &n, err);
    if (status != FP8_OK) {
        fp8_error_prefix(err, "%s", path);
        return status;
    }
    char *json = fp8_alloc(ctx, n);
    FP8_FAIL_IF(!json, err, FP8_E_NO_MEMORY, "%s: no memory for a header of %" PRIu64 " bytes",
                path, n);
    status = fp8_pread_all(fd, json, n, 8, path, err);
    if (status != FP8_OK) {
        fp8_release(ctx, json);
        return status;
    }
    return fp8_st_parse(ctx, json, n, file_bytes - 8 - n, path, out, err);
}
