/* SPDX-License-Identifier: Apache-2.0
 *
 * layer.c - the life of a layer: declared, given a weight, made into a linear at once or when it is
 * asked for, forgotten, made again; docs/layers.md has the drawing. Pieces are the load's. */
#include "layer/layer.h"
#include "base/size.h"
#include "op/cuda_calls.h"
#include "op/tensor_check.h"

#include <string.h>

enum { NAME_SHOWN = 256 }; /* of a long name: there must be room for what is wrong */

fp8_status fp8_layer_words(const fp8_layer *layer, fp8_status status, fp8_error *err)
{
    if (status != FP8_OK)
        (void)fp8_error_prefix(err, "layer %.*s", NAME_SHOWN, layer->desc.name);
    return status;
}

#define HOLDS_ITSELF "this thread holds its linear, and must release it before it changes the layer"

fp8_status fp8_layer_check_changeable(const fp8_layer *layer, fp8_error *err)
{
    FP8_FAIL_IF(fp8_lock_is_mine(layer->lock), err, FP8_E_STATE, "%s", HOLDS_ITSELF);
    FP8_FAIL_IF(fp8_lock_reads_any(), err, FP8_E_STATE,
                "this thread holds the linear of another layer, and must release it before it "
                "changes one: two such threads might wait for each other");
    return FP8_OK;
}

/* ---- create, free ---------------------------------------------------------------------------- */

static uint64_t text_bytes(const char *text)
{
    return text ? strlen(text) + 1 : 0;
}

/* A copy of text at *room, which moves on; NULL for NULL. */
static const char *put_text(char **room, const char *text)
{
    if (!text)
        return NULL;
    char *copy = *room;
    memcpy(copy, text, text_bytes(text));
    *room += text_bytes(text);
    return copy;
}

/* The description's name and parts in one piece of memory, which begins with the shares. */
static fp8_status copy_desc(fp8_layer *layer, const fp8_layer_desc *d, fp8_error *err)
{
    const uint64_t parts = d->parts ? d->part_count : 0, shares = parts ? parts : 1;
    uint64_t bytes, texts = text_bytes(d->name ? d->name : "");
    for (uint64_t p = 0; p < parts; p++)
        texts += text_bytes(d->parts[p].name);
    FP8_FAIL_IF(!fp8_size_mul(shares, sizeof(fp8_share) + sizeof(fp8_layer_part), &bytes) ||
                    !fp8_size_add(bytes, texts, &bytes),
                err, FP8_E_SHAPE, "%llu parts are too many", (unsigned long long)parts);
    layer->cut.share = fp8_alloc_zeroed(layer->ctx, bytes, 1);
    FP8_FAIL_IF(!layer->cut.share, err, FP8_E_NO_MEMORY, "no memory for %llu bytes",
                (unsigned long long)bytes);
    fp8_layer_part *part = (fp8_layer_part *)(void *)(layer->cut.share + shares);
    char *room = (char *)(part + shares);
    layer->desc = *d;
    layer->desc.name = put_text(&room, d->name ? d->name : "");
    for (uint64_t p = 0; p < parts; p++) {
        part[p] = d->parts[p];
        part[p].name = put_text(&room, d->parts[p].name);
    }
    layer->desc.parts = parts ? part : NULL;
    return FP8_OK;
}

static fp8_status check_policy(const fp8_layer_desc *d, fp8_error *err)
{
    FP8_FAIL_IF(!d->parts != !d->part_count, err, FP8_E_ARGUMENT,
                "parts is %s and part_count is %zu", d->parts ? "given" : "NULL", d->part_count);
    FP8_FAIL_IF((unsigned)d->source > FP8_SOURCE_DISCARD, err, FP8_E_ARGUMENT,
                "source %d is not 0..2", (int)d->source);
    FP8_FAIL_IF(d->linear.widths || d->linear.width_count || d->linear.w_origin.rows ||
                    d->linear.w_origin.cols,
                err, FP8_E_ARGUMENT, "linear.widths and linear.w_origin follow from the parts");
    FP8_FAIL_IF(d->linear.w.static_scales && d->merge_scales, err, FP8_E_UNSUPPORTED,
                "merge_scales is for codes, not for a weight that is quantized by given scales");
    FP8_FAIL_IF(d->linear.w.static_scales && (d->linear.w.grid.rows || d->linear.w.grid.cols), err,
                FP8_E_UNSUPPORTED,
                "scales are given for a weight in high precision with one scale a part only, not "
                "for a grid %lld x %lld",
                (long long)d->linear.w.grid.rows, (long long)d->linear.w.grid.cols);
    return FP8_OK;
}

static fp8_status check_linear(const fp8_layer *layer, fp8_error *err)
{
    fp8_linear_plan plan;
    fp8_linear_desc linear = layer->desc.linear;
    if (linear.activation == FP8_ACTIVATION_STATIC && linear.x_static == 0)
        linear.x_static = 1; /* it will be loaded */
    const fp8_dtype code = linear.w_code ? linear.w_code : FP8_E4M3FN;
    return fp8_linear_plan_shape(&plan, &linear, layer->cut.n, layer->cut.k, code, err);
}

static fp8_status fill(fp8_layer *layer, const fp8_layer_desc *desc, fp8_error *err)
{
    FP8_TRY(copy_desc(layer, desc, err));
    FP8_TRY(check_policy(desc, err));
    FP8_TRY(fp8_cut_make(&layer->desc, &layer->cut, err));
    FP8_TRY(check_linear(layer, err));
    return fp8_lock_create(layer->ctx, &layer->lock, err);
}

static void drop(fp8_layer *layer)
{
    fp8_release(layer->ctx, layer->cut.share);
    fp8_release(layer->ctx, layer);
}

fp8_status fp8_layer_create(const fp8_context *ctx, const fp8_layer_desc *desc, fp8_layer **out,
                            fp8_error *err)
{
    FP8_FAIL_IF(!desc || !out, err, FP8_E_ARGUMENT, "layer: %s is NULL",
                desc ? "out" : "the descriptor");
    *out = NULL;
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "layer: the context is NULL");
    FP8_FAIL_IF(desc->struct_bytes != sizeof *desc, err, FP8_E_ARGUMENT,
                "layer: struct_bytes is %u, this library knows %zu", desc->struct_bytes,
                sizeof *desc);
    fp8_layer *layer = fp8_alloc_zeroed(ctx, 1, sizeof *layer);
    FP8_FAIL_IF(!layer, err, FP8_E_NO_MEMORY, "layer: no memory for %zu bytes", sizeof *layer);
    layer->ctx = ctx;
    const fp8_status status = fill(layer, desc, err);
    if (status != FP8_OK) {
        (void)fp8_error_prefix(err, "layer %.*s", NAME_SHOWN, desc->name ? desc->name : "");
        drop(layer);
        return status;
    }
    *out = layer;
    return FP8_OK;
}

static void forget_source(fp8_layer *layer)
{
    fp8_release(layer->ctx, layer->source.memory);
    layer->source = (fp8_layer_source){0};
}

void fp8_layer_free(fp8_layer *layer)
{
    if (!layer)
        return;
    forget_source(layer);
    fp8_linear_free(layer->linear);
    fp8_lock_free(layer->lock);
    drop(layer);
}

/* ---- taking a weight ------------------------------------------------------------------------- */

/* The lock is held to write. *stays: `fresh` is the layer's linear now, and not only its contents;
 * else, and after an error, it is the caller's. */
static fp8_status replace(fp8_layer *layer, fp8_linear *fresh, bool *stays, fp8_error *err)
{
    bool assigned = false;
    *stays = false;
    if (layer->linear)
        FP8_TRY(fp8_linear_assign(layer->linear, fresh, &assigned, err));
    layer->reloads += layer->linear != NULL;
    layer->had_codes = true;
    if (assigned)
        return FP8_OK;
    fp8_linear_free(layer->linear);
    layer->linear = fresh;
    *stays = true;
    return FP8_OK;
}

/* The same for one that is nobody's afterwards. */
static fp8_status replace_by(fp8_layer *layer, fp8_linear *fresh, fp8_error *err)
{
    bool stays;
    const fp8_status status = replace(layer, fresh, &stays, err);
    if (!stays)
        fp8_linear_free(fresh);
    return status;
}

fp8_status fp8_layer_take_loaded(fp8_layer *layer, fp8_build *build, fp8_error *err)
{
    bool stays;
    fp8_lock_write(layer->lock);
    const fp8_status status = replace(layer, build->linear, &stays, err);
    if (status == FP8_OK) {
        forget_source(layer);
        fp8_linear *fresh = fp8_build_end(build);
        if (!stays)
            fp8_linear_free(fresh);
    }
    fp8_lock_end_write(layer->lock);
    return status;
}

static bool needs_codes(const fp8_layer *layer, uint64_t version)
{
    const fp8_layer_source *s = &layer->source;
    if (!layer->linear)
        return true;
    return s->given && layer->desc.source == FP8_SOURCE_KEEP && layer->version != version;
}

static fp8_status quantize(const fp8_layer *layer, const fp8_layer_source *s, fp8_linear **out,
                           fp8_error *err)
{
    return fp8_linear_create(layer->ctx, &layer->desc.linear, &s->weight, NULL,
                             s->bias.data ? &s->bias : NULL, out, err);
}

/* Makes codes of the source. The lock is held to write. */
static fp8_status materialize(fp8_layer *layer, uint64_t version, fp8_error *err)
{
    fp8_linear *fresh;
    if (!layer->source.given)
        return fp8_fail(err, FP8_E_STATE,
                        layer->had_codes
                            ? "its codes were invalidated and its source was not kept: set a "
                              "source or load it again"
                            : "no weight was set or loaded");
    FP8_TRY(quantize(layer, &layer->source, &fresh, err));
    FP8_TRY(replace_by(layer, fresh, err));
    layer->version = layer->desc.source == FP8_SOURCE_KEEP ? version : layer->source.version;
    if (layer->desc.source == FP8_SOURCE_DISCARD)
        forget_source(layer);
    return FP8_OK;
}

/* ---- the source ------------------------------------------------------------------------------ */

/* to[rows, cols], contiguous, = from, which the host has. */
static void copy_elements(char *to, const fp8_tensor *from)
{
    const size_t bytes = (size_t)fp8_dtype_bits(from->dtype) / 8;
    const int64_t rows = from->shape[0], cols = from->shape[1];
    const fp8_tensor view = fp8_matrix(to, from->dtype, rows, cols);
    for (int64_t i = 0; i < rows; i++) {
        if (from->stride[1] == 1 && cols > 0)
            memcpy(fp8_element_at(&view, i, 0), fp8_element_at(from, i, 0), (size_t)cols * bytes);
        else
            for (int64_t j = 0; j < cols; j++)
                memcpy(fp8_element_at(&view, i, j), fp8_element_at(from, i, j), bytes);
    }
}

/* *to moves on past the contiguous copy, and *view is of that. */
static fp8_status copy_matrix(const fp8_context *ctx, char **to, const fp8_tensor *from,
                              fp8_tensor *view, fp8_error *err)
{
    const int64_t rows = from->shape[0], cols = from->shape[1];
    *view = fp8_matrix(*to, from->dtype, rows, cols);
    *to += rows * cols * (fp8_dtype_bits(from->dtype) / 8);
    if (ctx->cuda)
        return fp8_cuda_fetch(ctx, from, view->data, err);
    copy_elements(view->data, from);
    return FP8_OK;
}

static fp8_status copy_source(const fp8_context *ctx, fp8_layer_source *s, const fp8_tensor *weight,
                              const fp8_tensor *bias, fp8_error *err)
{
    char *room = s->memory;
    FP8_TRY(copy_matrix(ctx, &room, weight, &s->weight, err));
    if (!bias->data)
        return FP8_OK;
    fp8_tensor column = fp8_matrix(bias->data, bias->dtype, bias->shape[0], 1), copy;
    column.stride[0] = bias->stride[0];
    FP8_TRY(copy_matrix(ctx, &room, &column, &copy, err));
    s->bias = fp8_vector(copy.data, bias->dtype, bias->shape[0]);
    return FP8_OK;
}

/* *s with its views in memory of its own, ctx's on the host; `from` is the context of the device
 * that it may lie on. */
static fp8_status own_source(const fp8_context *ctx, const fp8_context *from, fp8_layer_source *s,
                             fp8_error *err)
{
    const fp8_tensor weight = s->weight, bias = s->bias;
    const int64_t n = bias.data ? bias.shape[0] : 0;
    s->bytes = (uint64_t)(weight.shape[0] * weight.shape[1] * (fp8_dtype_bits(weight.dtype) / 8) +
                          n * (bias.data ? fp8_dtype_bits(bias.dtype) / 8 : 0));
    s->memory = fp8_alloc(ctx, s->bytes);
    FP8_FAIL_IF(!s->memory, err, FP8_E_NO_MEMORY, "no memory to copy the source, %llu bytes",
                (unsigned long long)s->bytes);
    const fp8_status status = copy_source(from, s, &weight, &bias, err);
    if (status != FP8_OK) {
        fp8_release(ctx, s->memory);
        s->memory = NULL;
    }
    return status;
}

static fp8_status check_source(const fp8_layer *layer, const fp8_tensor *weight,
                               const fp8_tensor *bias, fp8_error *err)
{
    FP8_FAIL_IF(layer->slot, err, FP8_E_STATE, "a load is at work on it");
    FP8_TRY(fp8_layer_check_changeable(layer, err));
    FP8_FAIL_IF(layer->desc.linear.w.static_scales, err, FP8_E_STATE,
                "its scales are given, and come through a load");
    FP8_TRY(fp8_check_matrix(weight, "weight", layer->cut.n, layer->cut.k, err));
    return fp8_linear_check(layer->ctx, &layer->desc.linear, weight, NULL, bias, err);
}

/* The lock is held to write. made: codes stand there already. */
static void take_source(fp8_layer *layer, const fp8_layer_source *s, bool made)
{
    forget_source(layer);
    if (!made)
        fp8_linear_free(layer->linear), layer->linear = NULL;
    if (!(made && layer->desc.source == FP8_SOURCE_DISCARD))
        layer->source = *s;
    layer->version = s->version;
}

/* The source, and the linear if it is to be made now, replace what was there. */
static fp8_status set_source(fp8_layer *layer, fp8_layer_source *s, fp8_error *err)
{
    const bool lazy = layer->desc.lazy != 0, discard = layer->desc.source == FP8_SOURCE_DISCARD;
    fp8_linear *fresh = NULL;
    if (layer->desc.source == FP8_SOURCE_OFFLOAD || (discard && lazy))
        FP8_TRY(own_source(layer->ctx, layer->ctx, s, err));
    const fp8_status status = lazy ? FP8_OK : quantize(layer, s, &fresh, err);
    if (status != FP8_OK) {
        fp8_release(layer->ctx, s->memory);
        return status;
    }
    fp8_lock_write(layer->lock);
    const fp8_status replaced = fresh ? replace_by(layer, fresh, err) : FP8_OK;
    if (replaced == FP8_OK)
        take_source(layer, s, fresh != NULL);
    fp8_lock_end_write(layer->lock);
    if (replaced != FP8_OK)
        fp8_release(layer->ctx, s->memory);
    return replaced;
}

fp8_status fp8_layer_set_source(fp8_layer *layer, const fp8_tensor *weight, const fp8_tensor *bias,
                                uint64_t version, fp8_error *err)
{
    FP8_FAIL_IF(!layer || !weight, err, FP8_E_ARGUMENT, "layer: %s is NULL",
                layer ? "the weight" : "the layer");
    fp8_layer_source s = {.given = true, .weight = *weight, .version = version};
    if (bias)
        s.bias = *bias;
    fp8_status status = check_source(layer, weight, bias, err);
    if (status == FP8_OK)
        status = set_source(layer, &s, err);
    return fp8_layer_words(layer, status, err);
}

/* The lock is held to write: an acquire elsewhere may be about to use up a source. */
static fp8_status set_bias(const fp8_layer *layer, const fp8_tensor *bias, fp8_error *err)
{
    FP8_FAIL_IF(layer->source.given, err, FP8_E_STATE, "its bias comes with its source");
    FP8_FAIL_IF(!layer->linear, err, FP8_E_STATE, "a bias for a weight that was not set or loaded");
    FP8_TRY(fp8_linear_check_bias(bias, layer->cut.n, err));
    return fp8_linear_set_bias(layer->linear, bias, err);
}

static fp8_status set_bias_alone(fp8_layer *layer, const fp8_tensor *bias, fp8_error *err)
{
    FP8_FAIL_IF(layer->slot, err, FP8_E_STATE, "a load is at work on it");
    FP8_TRY(fp8_layer_check_changeable(layer, err));
    fp8_lock_write(layer->lock);
    const fp8_status status = set_bias(layer, bias, err);
    fp8_lock_end_write(layer->lock);
    return status;
}

fp8_status fp8_layer_set_bias(fp8_layer *layer, const fp8_tensor *bias, fp8_error *err)
{
    FP8_FAIL_IF(!layer, err, FP8_E_ARGUMENT, "layer: the layer is NULL");
    return fp8_layer_words(layer, set_bias_alone(layer, bias, err), err);
}

fp8_status fp8_layer_invalidate(fp8_layer *layer, fp8_error *err)
{
    FP8_FAIL_IF(!layer, err, FP8_E_ARGUMENT, "layer: the layer is NULL");
    const fp8_status status = fp8_layer_check_changeable(layer, err);
    if (status != FP8_OK)
        return fp8_layer_words(layer, status, err);
    fp8_lock_write(layer->lock);
    fp8_linear_free(layer->linear);
    layer->linear = NULL;
    fp8_lock_end_write(layer->lock);
    return FP8_OK;
}

/* ---- use ------------------------------------------------------------------------------------- */

/* A layer as somebody wants it. */
typedef struct wanted {
    const fp8_layer *layer;
    uint64_t version;
} wanted;

static bool is_as_wanted(const void *arg)
{
    const wanted *w = arg;
    return !needs_codes(w->layer, w->version);
}

/* Whether the lock is held to write: a thread that holds other layers does not wait for those who
 * hold this one. */
static bool write_alone(fp8_layer *layer)
{
    if (fp8_lock_reads_any())
        return fp8_lock_try_write(layer->lock);
    fp8_lock_write(layer->lock);
    return true;
}

static fp8_status materialize_alone(fp8_layer *layer, uint64_t version, fp8_error *err)
{
    const fp8_status status =
        needs_codes(layer, version) ? materialize(layer, version, err) : FP8_OK;
    fp8_lock_end_write(layer->lock);
    return status;
}

/* Holds the layer with codes of `version`. */
static fp8_status acquire(fp8_layer *layer, uint64_t version, fp8_error *err)
{
    const wanted want = {layer, version};
    bool reads;
    for (int refusals = 0;;) {
        FP8_TRY(fp8_lock_read_if(layer->lock, is_as_wanted, &want, &reads, err));
        if (reads)
            return FP8_OK;
        FP8_FAIL_IF(fp8_lock_is_mine(layer->lock), err, FP8_E_STATE, "%s", HOLDS_ITSELF);
        /* Those who held it may have what is wanted, made in between: that is looked at once. */
        FP8_FAIL_IF(refusals > 1, err, FP8_E_STATE,
                    "other threads hold it with another version, and this thread holds another "
                    "layer, which it must release: they might wait for each other");
        if (write_alone(layer))
            FP8_TRY(materialize_alone(layer, version, err));
        else
            refusals++;
    }
}

fp8_status fp8_layer_acquire(fp8_layer *layer, uint64_t version, const fp8_linear **linear,
                             fp8_error *err)
{
    FP8_FAIL_IF(!layer || !linear, err, FP8_E_ARGUMENT, "layer: %s is NULL",
                layer ? "linear" : "the layer");
    const fp8_status status = acquire(layer, version, err);
    if (status != FP8_OK)
        return fp8_layer_words(layer, status, err);
    *linear = layer->linear;
    return FP8_OK;
}

void fp8_layer_release(fp8_layer *layer)
{
    if (layer)
        fp8_lock_end_read(layer->lock);
}

/* ---- copies ---------------------------------------------------------------------------------- */

/* *own: the copy needs a source of its own, since the layer holds it, or since it lies on a device
 * that the copy is not on. */
static fp8_status must_own(const fp8_layer *from, const fp8_layer *to, bool *own, fp8_error *err)
{
    const fp8_layer_source *s = &from->source;
    *own = s->memory != NULL;
    if (*own || !s->given || !from->ctx->cuda ||
        (to->ctx->cuda && fp8_cuda_is_same(from->ctx, to->ctx)))
        return FP8_OK;
    FP8_TRY(fp8_cuda_find(from->ctx, s->weight.data, own, err));
    return *own ? FP8_OK : fp8_cuda_find(from->ctx, s->bias.data, own, err);
}

static fp8_status copy_contents(const fp8_layer *from, fp8_layer *to, fp8_error *err)
{
    bool own;
    FP8_TRY(must_own(from, to, &own, err));
    to->source = from->source;
    to->source.memory = NULL;
    to->version = from->version;
    to->had_codes = from->had_codes;
    to->reloads = from->reloads;
    if (own)
        FP8_TRY(own_source(to->ctx, from->ctx, &to->source, err));
    return from->linear ? fp8_linear_copy(to->ctx, from->linear, &to->linear, err) : FP8_OK;
}

fp8_status fp8_layer_clone(const fp8_layer *layer, const fp8_context *ctx, fp8_layer **out,
                           fp8_error *err)
{
    FP8_FAIL_IF(!layer || !out, err, FP8_E_ARGUMENT, "layer: %s is NULL",
                layer ? "out" : "the layer");
    *out = NULL;
    FP8_FAIL_IF(layer->slot, err, FP8_E_STATE, "layer %s: a load is at work on it",
                layer->desc.name);
    fp8_layer *copy;
    FP8_TRY(fp8_layer_create(ctx ? ctx : layer->ctx, &layer->desc, &copy, err));
    fp8_status status = fp8_lock_read(layer->lock, err);
    if (status == FP8_OK) {
        status = copy_contents(layer, copy, err);
        fp8_lock_end_read(layer->lock);
    }
    if (status == FP8_OK)
        *out = copy;
    else
        fp8_layer_free(copy);
    return fp8_layer_words(layer, status, err);
}

/* ---- introspection --------------------------------------------------------------------------- */

static fp8_layer_state state_of(const fp8_layer *layer)
{
    if (layer->linear)
        return FP8_LAYER_READY;
    if (layer->source.given)
        return FP8_LAYER_PENDING;
    return layer->had_codes ? FP8_LAYER_LOST : FP8_LAYER_DECLARED;
}

/* The lock is held to read. */
static fp8_layer_info info_of(const fp8_layer *layer)
{
    fp8_linear_info linear;
    fp8_layer_info info = {.name = layer->desc.name,
                           .state = state_of(layer),
                           .loading = layer->slot != NULL,
                           .n = layer->cut.n,
                           .k = layer->cut.k,
                           .reloads = layer->reloads,
                           .version = layer->version,
                           .source_bytes = layer->source.bytes};
    if (fp8_linear_get_info(layer->linear, &linear) == FP8_OK) {
        info.code_bytes = linear.code_bytes;
        info.scale_bytes = linear.scale_bytes;
        info.other_bytes = linear.other_bytes;
    }
    return info;
}

fp8_status fp8_layer_get_info(const fp8_layer *layer, fp8_layer_info *out)
{
    if (!layer || !out)
        return FP8_E_ARGUMENT;
    FP8_TRY(fp8_lock_read(layer->lock, NULL));
    *out = info_of(layer);
    fp8_lock_end_read(layer->lock);
    return FP8_OK;
}
