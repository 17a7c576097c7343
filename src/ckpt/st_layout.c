/* SPDX-License-Identifier: Apache-2.0
 *
 * st_layout.c - the first bytes of a safetensors file to be written: offsets of the tensors, then
 * the JSON that tells them, padded so that the data starts at a multiple of 8. */
#include "base/size.h"
#include "ckpt/json.h"
#include "ckpt/name_table.h"
#include "ckpt/safetensors.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

static fp8_span tensor_name(const void *owner, int64_t i)
{
    const fp8_st_tensor *t = &((const fp8_st_tensor *)owner)[i];
    return (fp8_span){t->name, t->name_bytes};
}

/* t->bytes = product(shape) * bits / 8. */
static fp8_status size_tensor(fp8_st_tensor *t, fp8_error *err)
{
    uint64_t bits = (uint64_t)fp8_dtype_bits(t->dtype);
    FP8_FAIL_IF(bits == 0, err, FP8_E_ARGUMENT, "dtype %d is none", (int)t->dtype);
    for (int32_t i = 0; i < t->ndim; i++)
        FP8_FAIL_IF(t->shape[i] < 0 || !fp8_size_mul(bits, (uint64_t)t->shape[i], &bits), err,
                    FP8_E_ARGUMENT, "size %" PRId64 " of the shape is negative or overflows",
                    t->shape[i]);
    FP8_FAIL_IF(bits % 8, err, FP8_E_ARGUMENT, "%" PRIu64 " bits of %s do not end on a byte", bits,
                fp8_dtype_name(t->dtype));
    t->bytes = bits / 8;
    return FP8_OK;
}

/* Gives each tensor its place behind the one before. */
static fp8_status place(fp8_st_tensor *tensors, int64_t n, uint64_t *data_bytes, fp8_error *err)
{
    uint64_t end = 0;
    for (int64_t i = 0; i < n; i++) {
        fp8_st_tensor *t = &tensors[i];
        fp8_span name = {t->name, t->name_bytes};
        fp8_status status = size_tensor(t, err);
        t->begin = end;
        if (status == FP8_OK && (!fp8_size_add(end, t->bytes, &end) || end > INT64_MAX))
            status = fp8_fail(err, FP8_E_ARGUMENT, "the data would end past byte 2^63");
        if (status != FP8_OK) {
            fp8_error_prefix(err, "tensor '%.*s'", fp8_span_shown(name), name.text);
            return status;
        }
    }
    *data_bytes = end;
    return FP8_OK;
}

/* Every name once, and none that the format reserves. */
static fp8_status check_names(const fp8_context *ctx, const fp8_st_tensor *tensors, int64_t n,
                              fp8_error *err)
{
    fp8_name_table table;
    FP8_TRY(fp8_name_table_create(ctx, n, tensor_name, tensors, &table, err));
    fp8_status status = FP8_OK;
    for (int64_t i = 0; i < n && status == FP8_OK; i++)
        if (fp8_name_table_add(&table, i) >= 0)
            status = fp8_fail(err, FP8_E_ARGUMENT, "tensor '%.*s' would be there twice",
                              fp8_span_shown(tensor_name(tensors, i)), tensors[i].name);
    static const char reserved[] = "__metadata__";
    if (status == FP8_OK && fp8_name_table_find(&table, reserved, sizeof reserved - 1) >= 0)
        status = fp8_fail(err, FP8_E_ARGUMENT, "a tensor must not be called %s", reserved);
    fp8_name_table_free(ctx, &table);
    return status;
}

/* Text that is measured (dst NULL) or written. */
typedef struct writer {
    char *dst;
    uint64_t bytes;
} writer;

static void put(writer *w, const char *text)
{
    uint64_t n = strlen(text);
    if (w->dst)
        memcpy(w->dst + w->bytes, text, n);
    w->bytes += n;
}

static void put_number(writer *w, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%" PRIu64, value);
    put(w, text);
}

static void put_tensor(writer *w, const fp8_st_tensor *t)
{
    w->bytes += fp8_json_quote(t->name, t->name_bytes, w->dst ? w->dst + w->bytes : NULL);
    put(w, ":{\"dtype\":\"");
    put(w, fp8_dtype_name(t->dtype));
    put(w, "\",\"shape\":[");
    for (int32_t i = 0; i < t->ndim; i++) {
        if (i > 0)
            put(w, ",");
        put_number(w, (uint64_t)t->shape[i]);
    }
    put(w, "],\"data_offsets\":[");
    put_number(w, t->begin);
    put(w, ",");
    put_number(w, t->begin + t->bytes);
    put(w, "]}");
}

static void put_header(writer *w, const fp8_st_tensor *tensors, int64_t n, const char *metadata)
{
    put(w, "{\"__metadata__\":");
    put(w, metadata ? metadata : "{\"format\":\"pt\"}");
    for (int64_t i = 0; i < n; i++) {
        put(w, ",");
        put_tensor(w, &tensors[i]);
    }
    put(w, "}");
    while (w->bytes % 8)
        put(w, " ");
}

fp8_status fp8_st_layout(const fp8_context *ctx, fp8_st_tensor *tensors, int64_t n,
                         const char *metadata, char **head, uint64_t *head_bytes,
                         uint64_t *data_bytes, fp8_error *err)
{
    writer w = {0};
    FP8_TRY(place(tensors, n, data_bytes, err));
    FP8_TRY(check_names(ctx, tensors, n, err));
    put_header(&w, tensors, n, metadata);
    uint64_t length = w.bytes;
    FP8_FAIL_IF(length > FP8_ST_MAX_HEADER, err, FP8_E_FORMAT,
                "a header of %" PRIu64 " bytes, must be at most %d: use more shards", length,
                FP8_ST_MAX_HEADER);
    char *text = fp8_alloc(ctx, 8 + length);
    FP8_FAIL_IF(!text, err, FP8_E_NO_MEMORY, "no memory for a header of %" PRIu64 " bytes", length);
    for (int i = 0; i < 8; i++)
        text[i] = (char)(length >> 8 * i);
    w = (writer){text + 8, 0};
    put_header(&w, tensors, n, metadata);
    *head = text;
    *head_bytes = 8 + length;
    return FP8_OK;
}
