/* SPDX-License-Identifier: Apache-2.0
 *
 * st_layout.c - the first bytes of a safetensors file to be written: offsets of the tensors, then
 * the JSON that tells them, padded so that the data starts at a multiple of 8. The tensors are
 * asked for one by one, and the JSON is never held as a whole. */
#include "base/size.h"
#include "ckpt/name_table.h"
#include "ckpt/safetensors.h"

#include <inttypes.h>

static fp8_span tensor_name(const void *owner, int64_t i)
{
    const fp8_st_list *list = owner;
    fp8_st_tensor t = list->tensor(list->owner, i);
    return (fp8_span){t.name, t.name_bytes};
}

/* *bytes = product(shape) * bits / 8. */
static fp8_status size_tensor(const fp8_st_tensor *t, uint64_t *bytes, fp8_error *err)
{
    uint64_t bits = (uint64_t)fp8_dtype_bits(t->dtype);
    FP8_FAIL_IF(bits == 0, err, FP8_E_ARGUMENT, "dtype %d is none", (int)t->dtype);
    for (int32_t i = 0; i < t->ndim; i++)
        FP8_FAIL_IF(t->shape[i] < 0 || !fp8_size_mul(bits, (uint64_t)t->shape[i], &bits), err,
                    FP8_E_ARGUMENT, "size %" PRId64 " of the shape is negative or overflows",
                    t->shape[i]);
    FP8_FAIL_IF(bits % 8, err, FP8_E_ARGUMENT, "%" PRIu64 " bits of %s do not end on a byte", bits,
                fp8_dtype_name(t->dtype));
    *bytes = bits / 8;
    return FP8_OK;
}

/* Gives each tensor its place behind the one before. */
static fp8_status place(const fp8_st_list *list, uint64_t *data_bytes, fp8_error *err)
{
    uint64_t end = 0;
    for (int64_t i = 0; i < list->count; i++) {
        fp8_st_tensor t = list->tensor(list->owner, i);
        uint64_t bytes = 0, begin = end;
        fp8_status status = size_tensor(&t, &bytes, err);
        if (status == FP8_OK && (!fp8_size_add(end, bytes, &end) || end > INT64_MAX))
            status = fp8_fail(err, FP8_E_ARGUMENT, "the data would end past byte 2^63");
        if (status != FP8_OK) {
            fp8_span name = {t.name, t.name_bytes};
            fp8_error_prefix(err, "tensor '%.*s'", fp8_span_shown(name), name.text);
            return status;
        }
        list->place(list->owner, i, begin, bytes);
    }
    *data_bytes = end;
    return FP8_OK;
}

/* Every name once, and none that the format reserves. */
static fp8_status check_names(const fp8_context *ctx, const fp8_st_list *list, fp8_error *err)
{
    fp8_name_table table;
    FP8_TRY(fp8_name_table_create(ctx, list->count, tensor_name, list, &table, err));
    fp8_status status = FP8_OK;
    for (int64_t i = 0; i < list->count && status == FP8_OK; i++) {
        if (fp8_name_table_add(&table, i) < 0)
            continue;
        fp8_span name = tensor_name(list, i);
        status = fp8_fail(err, FP8_E_ARGUMENT, "tensor '%.*s' would be there twice",
                          fp8_span_shown(name), name.text);
    }
    static const char reserved[] = "__metadata__";
    if (status == FP8_OK && fp8_name_table_find(&table, reserved, sizeof reserved - 1) >= 0)
        status = fp8_fail(err, FP8_E_ARGUMENT, "a tensor must not be called %s", reserved);
    fp8_name_table_free(ctx, &table);
    return status;
}

/* The tensor's member of the header; *end = where its bytes begin, then where they end. */
static void put_tensor(fp8_text *out, const fp8_st_tensor *t, uint64_t *end)
{
    uint64_t bytes = 0;
    (void)size_tensor(t, &bytes, NULL); /* it was placed */
    fp8_text_put(out, ",");
    fp8_text_put_quoted(out, t->name, t->name_bytes);
    fp8_text_put(out, ":{\"dtype\":\"");
    fp8_text_put(out, fp8_dtype_name(t->dtype));
    fp8_text_put(out, "\",\"shape\":[");
    for (int32_t i = 0; i < t->ndim; i++) {
        if (i > 0)
            fp8_text_put(out, ",");
        fp8_text_put_number(out, (uint64_t)t->shape[i]);
    }
    fp8_text_put(out, "],\"data_offsets\":[");
    fp8_text_put_number(out, *end);
    fp8_text_put(out, ",");
    fp8_text_put_number(out, *end += bytes);
    fp8_text_put(out, "]}");
}

void fp8_st_put_head(const fp8_st_list *list, uint64_t head_bytes, fp8_text *out)
{
    char length[8];
    uint64_t end = 0;
    for (int i = 0; i < 8; i++)
        length[i] = (char)((head_bytes - 8) >> 8 * i);
    fp8_text_put_bytes(out, length, sizeof length);
    fp8_text_put(out, "{\"__metadata__\":");
    fp8_text_put(out, list->metadata ? list->metadata : "{\"format\":\"pt\"}");
    for (int64_t i = 0; i < list->count; i++) {
        fp8_st_tensor t = list->tensor(list->owner, i);
        put_tensor(out, &t, &end);
    }
    fp8_text_put(out, "}");
    while (out->status == FP8_OK && (out->drained + out->bytes) % 8)
        fp8_text_put(out, " ");
}

fp8_status fp8_st_layout(const fp8_context *ctx, const fp8_st_list *list, uint64_t *head_bytes,
                         uint64_t *data_bytes, fp8_error *err)
{
    FP8_TRY(place(list, data_bytes, err));
    FP8_TRY(check_names(ctx, list, err));
    fp8_text text = {.ctx = ctx, .drain = fp8_text_count};
    fp8_st_put_head(list, 8, &text);
    FP8_TRY(fp8_text_close(&text, err));
    *head_bytes = text.drained;
    FP8_FAIL_IF(*head_bytes - 8 > FP8_ST_MAX_HEADER, err, FP8_E_FORMAT,
                "a header of %" PRIu64 " bytes, must be at most %d: use more shards",
                *head_bytes - 8, FP8_ST_MAX_HEADER);
    return FP8_OK;
}
