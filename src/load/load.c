/* SPDX-License-Identifier: Apache-2.0
 *
 * load.c - a load and its layers: what is expected, where a piece goes, when a layer is whole, and
 * the names of what never came. */
#include "load/load.h"

#include <stdio.h>
#include <string.h>

/* ---- create, free ---------------------------------------------------------------------------- */

static fp8_status check_desc(const fp8_load_desc *d, fp8_error *err)
{
    FP8_FAIL_IF(d->struct_bytes != sizeof *d, err, FP8_E_ARGUMENT,
                "load: struct_bytes is %u, this library knows %zu", d->struct_bytes, sizeof *d);
    FP8_FAIL_IF((unsigned)d->duplicates > FP8_DUPLICATE_IGNORE, err, FP8_E_ARGUMENT,
                "load: duplicates %d is not 0..1", (int)d->duplicates);
    FP8_FAIL_IF(d->spill && !d->max_waiting_bytes, err, FP8_E_ARGUMENT,
                "load: a spill directory, but max_waiting_bytes has no bound");
    return FP8_OK;
}

fp8_status fp8_load_create(const fp8_context *ctx, const fp8_load_desc *desc, fp8_load **out,
                           fp8_error *err)
{
    static const fp8_load_desc defaults = FP8_LOAD_DESC_INIT;
    const fp8_load_desc *d = desc ? desc : &defaults;
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "load: out is NULL");
    *out = NULL;
    FP8_FAIL_IF(!ctx, err, FP8_E_ARGUMENT, "load: the context is NULL");
    FP8_TRY(check_desc(d, err));
    fp8_load *load = fp8_alloc_zeroed(ctx, 1, sizeof *load);
    char *spill = d->spill ? fp8_copy_text(ctx, d->spill, strlen(d->spill)) : NULL;
    if (!load || (d->spill && !spill)) {
        fp8_release(ctx, spill);
        fp8_release(ctx, load);
        return fp8_fail(err, FP8_E_NO_MEMORY, "load: no memory for %zu bytes", sizeof *load);
    }
    load->ctx = ctx;
    load->spill = spill;
    fp8_wait_open(&load->room, ctx, d);
    load->room.spill = spill;
    load->rules = (fp8_stage_rules){d->duplicates, d->comm, &load->room};
    *out = load;
    return FP8_OK;
}

static void end_slot(fp8_load_slot *slot)
{
    if (!slot->whole)
        slot->layer->slot = NULL;
    fp8_stage_close(slot->stage);
}

void fp8_load_free(fp8_load *load)
{
    if (!load)
        return;
    for (int64_t i = 0; i < load->count; i++) {
        end_slot(load->slots[i]);
        fp8_release(load->ctx, load->slots[i]);
    }
    fp8_wait_close(&load->room);
    fp8_name_table_free(load->ctx, &load->places);
    fp8_release(load->ctx, load->slots);
    fp8_release(load->ctx, load->spill);
    fp8_release(load->ctx, load);
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* The slot of a layer in this load, NULL if it has none. */
static fp8_load_slot *slot_of(const fp8_load *load, const fp8_layer *layer)
{
    if (layer->slot)
        return layer->slot->load == load ? layer->slot : NULL;
    if (!load->count)
        return NULL;
    const uintptr_t address = (uintptr_t)layer;
    const int64_t i = fp8_name_table_find(&load->places, (const char *)&address, sizeof address);
    return i < 0 ? NULL : load->slots[i];
}

/* The "name" of slot i is the address of its layer. */
static fp8_span address_at(const void *owner, int64_t i)
{
    const fp8_load *load = owner;
    return (fp8_span){(const char *)&load->slots[i]->layer, sizeof(fp8_layer *)};
}

static fp8_status more_slots(fp8_load *load, fp8_error *err)
{
    const int64_t room = 2 * load->slot_room + 16;
    fp8_name_table places;
    fp8_load_slot **slots = fp8_alloc_zeroed(load->ctx, (uint64_t)room, sizeof(void *));
    FP8_FAIL_IF(!slots, err, FP8_E_NO_MEMORY, "no memory for %lld layers", (long long)room);
    const fp8_status status =
        fp8_name_table_create(load->ctx, room, address_at, load, &places, err);
    if (status != FP8_OK) {
        fp8_release(load->ctx, slots);
        return status;
    }
    for (int64_t i = 0; i < load->count; i++)
        slots[i] = load->slots[i];
    fp8_release(load->ctx, load->slots);
    fp8_name_table_free(load->ctx, &load->places);
    load->slots = slots;
    load->slot_room = room;
    load->places = places;
    for (int64_t i = 0; i < load->count; i++)
        (void)fp8_name_table_add(&load->places, i);
    return FP8_OK;
}

static fp8_status new_slot(fp8_load *load, fp8_layer *layer, fp8_load_slot **out, fp8_error *err)
{
    if (load->count == load->slot_room)
        FP8_TRY(more_slots(load, err));
    fp8_load_slot *slot = fp8_alloc_zeroed(load->ctx, 1, sizeof *slot);
    FP8_FAIL_IF(!slot, err, FP8_E_NO_MEMORY, "no memory for a layer");
    *slot = (fp8_load_slot){load, layer, NULL, true};
    load->slots[load->count++] = slot;
    (void)fp8_name_table_add(&load->places, load->count - 1);
    *out = slot;
    return FP8_OK;
}

static fp8_status add(fp8_load *load, fp8_layer *layer, fp8_error *err)
{
    fp8_stage *stage;
    FP8_FAIL_IF(layer->slot, err, FP8_E_STATE, "it is in a load already");
    FP8_TRY(fp8_stage_open(layer, &load->rules, &stage, err));
    fp8_load_slot *slot = slot_of(load, layer);
    const fp8_status status = slot ? FP8_OK : new_slot(load, layer, &slot, err);
    if (status != FP8_OK) {
        fp8_stage_close(stage);
        return status;
    }
    fp8_stage_close(slot->stage);
    slot->stage = stage;
    slot->whole = false;
    layer->slot = slot;
    return FP8_OK;
}

fp8_status fp8_load_add(fp8_load *load, fp8_layer *layer, fp8_error *err)
{
    FP8_FAIL_IF(!load || !layer, err, FP8_E_ARGUMENT, "load: %s is NULL",
                load ? "the layer" : "load");
    return fp8_layer_words(layer, add(load, layer, err), err);
}

/* ---- pieces ---------------------------------------------------------------------------------- */

fp8_status fp8_load_end_if_whole(fp8_load_slot *slot, fp8_error *err)
{
    if (slot->whole || !fp8_stage_is_whole(slot->stage))
        return FP8_OK;
    FP8_TRY(fp8_layer_check_changeable(slot->layer, err));
    FP8_TRY(fp8_stage_finish(slot->stage, err));
    slot->whole = true;
    slot->layer->slot = NULL;
    return FP8_OK;
}

fp8_status fp8_load_write_slot(fp8_load_slot *slot, const fp8_load_piece *piece, fp8_error *err)
{
    FP8_TRY(fp8_stage_write(slot->stage, piece, err));
    return fp8_load_end_if_whole(slot, err);
}

fp8_status fp8_load_write(fp8_load *load, fp8_layer *layer, const fp8_load_piece *piece,
                          fp8_error *err)
{
    FP8_FAIL_IF(!load || !layer || !piece, err, FP8_E_ARGUMENT, "load: %s is NULL",
                !load    ? "load"
                : !layer ? "the layer"
                         : "the piece");
    fp8_load_slot *slot = slot_of(load, layer);
    fp8_status status = fp8_layer_check_changeable(layer, err);
    if (status == FP8_OK && !slot)
        status = fp8_fail(err, FP8_E_ARGUMENT, "it was not added to this load");
    if (status == FP8_OK)
        status = fp8_load_write_slot(slot, piece, err);
    return fp8_layer_words(layer, status, err);
}

/* ---- what is missing ------------------------------------------------------------------------- */

/* A walk over the gaps of all layers up to gap `want`. */
typedef struct gap_walk {
    int64_t want, seen;
    char *line; /* of gap `want`, if it was found */
} gap_walk;

static void say_gap(gap_walk *w, const fp8_stage *s, fp8_load_param param, fp8_rect gap)
{
    const fp8_rect all = fp8_stage_expected(s, param);
    const int64_t bottom = gap.row + gap.rows, right = gap.col + gap.cols;
    if (w->seen++ != w->want)
        return;
    (void)snprintf(w->line, FP8_LOAD_LINE_BYTES,
                   "%.512s: %s: rows [%lld,%lld) of %lld, columns [%lld,%lld) of %lld",
                   s->layer->desc.name, fp8_param_name(param), (long long)gap.row,
                   (long long)bottom, (long long)all.rows, (long long)gap.col, (long long)right,
                   (long long)all.cols);
}

static fp8_status walk_stage(const fp8_load *load, gap_walk *w, const fp8_stage *s, fp8_error *err)
{
    fp8_rects gaps = {0};
    fp8_status status = FP8_OK;
    for (int p = 0; p < FP8_PARAMS && status == FP8_OK; p++) {
        const fp8_rect all = fp8_stage_expected(s, (fp8_load_param)p);
        status = fp8_cover_fresh(load->ctx, &s->written[p], all, &gaps, err);
        for (int64_t i = 0; i < gaps.count && status == FP8_OK; i++)
            say_gap(w, s, (fp8_load_param)p, gaps.at[i]);
    }
    fp8_rects_free(load->ctx, &gaps);
    return status;
}

/* Counts all gaps and writes the line of gap `want`. */
static fp8_status walk_gaps(fp8_load *load, int64_t want, int64_t *count, fp8_error *err)
{
    gap_walk w = {want, 0, load->line};
    for (int64_t i = 0; i < load->count; i++)
        if (!load->slots[i]->whole)
            FP8_TRY(walk_stage(load, &w, load->slots[i]->stage, err));
    *count = w.seen;
    return FP8_OK;
}

const char *fp8_load_missing(fp8_load *load, int64_t i)
{
    int64_t count;
    if (!load || i < 0 || walk_gaps(load, i, &count, NULL) != FP8_OK)
        return NULL;
    return i < count ? load->line : NULL;
}

fp8_status fp8_load_finish(fp8_load *load, fp8_error *err)
{
    int64_t count;
    FP8_FAIL_IF(!load, err, FP8_E_ARGUMENT, "load: load is NULL");
    for (int64_t i = 0; i < load->count; i++) {
        fp8_load_slot *slot = load->slots[i];
        /* A layer without elements is whole. */
        FP8_TRY(fp8_layer_words(slot->layer, fp8_load_end_if_whole(slot, err), err));
    }
    FP8_TRY(walk_gaps(load, 0, &count, err));
    FP8_FAIL_IF(count > 0, err, FP8_E_NOT_FOUND, "never came: %s%s%.0lld", load->line,
                count > 1 ? "; and more ranges: " : "", (long long)(count - 1));
    return FP8_OK;
}

fp8_status fp8_load_get_info(const fp8_load *load, fp8_load_info *out)
{
    if (!load || !out)
        return FP8_E_ARGUMENT;
    *out = (fp8_load_info){.layers = load->count,
                           .waiting_bytes = load->room.used,
                           .peak_waiting_bytes = load->room.peak,
                           .spilled_bytes = load->room.spilled};
    for (int64_t i = 0; i < load->count; i++) {
        out->whole += load->slots[i]->whole;
        out->source_bytes += load->slots[i]->stage->source_bytes;
    }
    return FP8_OK;
}
