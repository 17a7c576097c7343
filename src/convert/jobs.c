/* SPDX-License-Identifier: Apache-2.0
 *
 * jobs.c - three loops turned inside out: over the items of a part, over the regions of an item,
 * over the slabs of a region. A fused set with one scale first walks all its members for the amax.
 */
#include "convert/jobs.h"
#include "base/size.h"

#include <string.h>

enum { COPY_BYTES = 8 << 20 }; /* of one copy */

/* ---- one item ---- */

static int64_t scale_elements(const fp8_walk *w)
{
    return w->g.m.experts * w->g.from_rows * w->g.from_cols;
}

static void walk_begin(fp8_walk *w, const fp8_convert *conv, int64_t item, bool amax, bool encode)
{
    const fp8_item *it = &conv->items[item];
    *w = (fp8_walk){.item = item};
    w->copies = it->action == FP8_ACTION_KEEP || it->action == FP8_ACTION_RENAME;
    w->scales = it->action == FP8_ACTION_RENAME;
    if (it->action != FP8_ACTION_KEEP)
        w->g = fp8_geometry_of(conv, item, conv->limits.slab_bytes);
    w->amax = amax && w->g.two_pass;
    w->encodes = encode && !w->copies;
    w->second = !w->amax;
}

/* Elements of a flat run, such as the bytes of a copy: the next piece of at most `most`. */
static bool flat_step(fp8_walk *w, fp8_job *job, fp8_job_kind kind, int64_t total, int64_t most)
{
    job->kind = kind;
    job->row = w->row;
    job->rows = fp8_min_i64(total - w->row, most);
    w->row += job->rows;
    return w->row < total; /* more of it */
}

static void copy_step(fp8_walk *w, const fp8_convert *conv, fp8_job *job)
{
    int64_t bytes = (int64_t)fp8_item_info(conv, w->item).bytes;
    if (w->copies) {
        w->copies = flat_step(w, job, FP8_JOB_COPY, bytes, COPY_BYTES);
        w->row = w->copies ? w->row : 0;
    } else {
        int64_t most =
            (int64_t)(conv->limits.slab_bytes / 16); /* in and out, 4 bytes each at most */
        w->scales = flat_step(w, job, FP8_JOB_SCALES, scale_elements(w), most);
    }
    job->last = !w->copies && !w->scales;
}

static int64_t region_end(const fp8_walk *w)
{
    int64_t rows = w->g.two_pass ? w->g.region_rows : w->g.m.rows;
    return fp8_min_i64(w->region_row + rows, w->g.m.rows);
}

/* After a slab: the next row, pass, region or expert. */
static void advance(fp8_walk *w)
{
    if (w->row < region_end(w))
        return;
    w->row = w->region_row;
    if (!w->second && w->encodes) {
        w->second = true;
        return;
    }
    w->second = !w->amax;
    w->row = w->region_row = region_end(w);
    w->region = NULL;
    if (w->row == w->g.m.rows) {
        w->row = w->region_row = 0;
        w->expert++;
    }
}

static bool slab_step(fp8_walk *w, fp8_job *job)
{
    if (w->expert == w->g.m.experts)
        return false;
    job->geometry = w->g;
    job->g = &job->geometry;
    job->expert = w->expert;
    job->row = w->row;
    job->rows = fp8_min_i64(w->g.slab_rows, region_end(w) - w->row);
    job->region_row = w->region_row;
    job->region = w->region;
    job->map = fp8_slot_map_of(&w->g, job->rows);
    if (w->g.reads_codes && !w->g.bare) {
        int64_t unit = fp8_grid_extent(w->g.from.rows, w->g.m.rows);
        job->scale_row = job->row / unit;
        job->scale_rows = fp8_ceil_div(job->row + job->rows, unit) - job->scale_row;
    }
    job->kind = FP8_JOB_DECODE;
    if (w->g.encodes)
        job->kind = w->second ? FP8_JOB_ENCODE : FP8_JOB_AMAX;
    if (w->scan)
        job->kind = FP8_JOB_SCAN;
    w->row += job->rows;
    advance(w);
    job->last = w->expert == w->g.m.experts && (w->encodes || w->scan);
    return true;
}

/* ---- regions ---- */

/* A region for the slabs that follow. At most as many are in flight as the ring has slots, so one
 * that is taken in turn has long been left by its former slabs. */
static void take_region(fp8_cursor *c)
{
    fp8_walk *w = &c->walk;
    int32_t group = c->conv->items[w->item].group;
    if (!w->g.two_pass || w->region || c->scan)
        return;
    if (group >= 0) {
        w->region = &c->groups[group];
        return;
    }
    w->region = &c->regions[c->region_next++ % c->region_count];
    memset(w->region->amax, 0, (size_t)w->g.region_units * sizeof *w->region->amax);
}

fp8_status fp8_cursor_open(fp8_cursor *c, fp8_convert *conv, const uint8_t *done, int32_t part,
                           bool scan, fp8_error *err)
{
    const fp8_context *ctx = conv->ctx;
    uint64_t units = (uint64_t)conv->limits.region_units, groups = (uint64_t)conv->group_count;
    *c = (fp8_cursor){.conv = conv, .done = done, .part = part, .scan = scan, .item = -1};
    c->region_count = conv->limits.slots + 1;
    c->regions = fp8_alloc_zeroed(ctx, (uint64_t)c->region_count, sizeof *c->regions);
    c->groups = fp8_alloc_zeroed(ctx, groups, sizeof *c->groups);
    c->group_begun = fp8_alloc_zeroed(ctx, groups, 1);
    c->amax = fp8_alloc_zeroed(ctx, (uint64_t)c->region_count * units + groups, sizeof *c->amax);
    if (!c->regions || !c->groups || !c->group_begun || !c->amax) {
        fp8_cursor_close(c);
        return fp8_fail(err, FP8_E_NO_MEMORY, "no memory for %lld regions of %llu scales",
                        (long long)c->region_count, (unsigned long long)units);
    }
    for (int64_t i = 0; i < c->region_count; i++)
        c->regions[i].amax = c->amax + (uint64_t)i * units;
    for (uint64_t i = 0; i < groups; i++)
        c->groups[i].amax = c->amax + (uint64_t)c->region_count * units + i;
    return FP8_OK;
}

void fp8_cursor_close(fp8_cursor *c)
{
    fp8_release(c->conv->ctx, c->regions);
    fp8_release(c->conv->ctx, c->groups);
    fp8_release(c->conv->ctx, c->group_begun);
    fp8_release(c->conv->ctx, c->amax);
    c->regions = c->groups = NULL;
    c->group_begun = NULL;
    c->amax = NULL;
}

/* ---- all items ---- */

/* The next item of this part that is not done; -1 when there is none. */
static int64_t next_item(fp8_cursor *c)
{
    const fp8_layout *lay = &c->conv->layout;
    for (; c->shard < lay->shard_count; c->shard++, c->next = 0) {
        const fp8_out_shard *shard = &lay->shards[c->shard];
        if (shard->part != c->part && !c->scan)
            continue;
        while (c->next < shard->items) {
            int64_t item = lay->order[shard->first_item + c->next++];
            if (c->scan ? fp8_item_encodes(&c->conv->items[item]) : !c->done[item])
                return item;
        }
    }
    return -1;
}

static void walk_scan(fp8_cursor *c, int64_t item)
{
    walk_begin(&c->walk, c->conv, item, false, true);
    c->walk.scan = true;
    if (c->walk.g.two_pass) { /* slabs need not begin on a region */
        c->walk.g.two_pass = false;
        c->walk.second = true;
    }
}

/* Begins the walk that comes next; false at the end. */
static bool begin_walk(fp8_cursor *c)
{
    if (c->member < c->member_count) {
        walk_begin(&c->walk, c->conv, c->members[c->member++], true, false);
        return true;
    }
    if (c->item >= 0) {
        walk_begin(&c->walk, c->conv, c->item, false, true);
        c->item = -1;
        return true;
    }
    int64_t item = next_item(c);
    if (item < 0)
        return false;
    int32_t group = c->conv->items[item].group;
    if (c->scan)
        walk_scan(c, item);
    else if (group < 0)
        walk_begin(&c->walk, c->conv, item, true, true);
    else {
        c->item = item;
        c->member = 0;
        c->member_count = c->group_begun[group] ? 0 : fp8_fused_members(c->conv, item, c->members);
        c->group_begun[group] = 1;
        return begin_walk(c);
    }
    return true;
}

/* Whether the copy may go on with an item: copied too, right behind it in the source. */
static bool joins(const fp8_cursor *c, const fp8_job *job, int64_t item)
{
    fp8_tensor_info last = fp8_item_info(c->conv, job->end - 1);
    fp8_tensor_info next = fp8_item_info(c->conv, item);
    return c->conv->items[item].action == FP8_ACTION_KEEP && !c->done[item] &&
           next.file == last.file && next.offset == last.offset + last.bytes &&
           next.bytes <= (uint64_t)(COPY_BYTES - job->rows);
}

/* A copy takes the items behind it along, so that a million tiny tensors are not as many jobs. */
static void join_copies(fp8_cursor *c, fp8_job *job)
{
    const fp8_layout *lay = &c->conv->layout;
    const fp8_out_shard *shard = &lay->shards[c->shard];
    while (c->next < shard->items) {
        int64_t item = lay->order[shard->first_item + c->next];
        if (!joins(c, job, item))
            return;
        job->rows += (int64_t)fp8_item_info(c->conv, item).bytes;
        job->end = item + 1;
        c->next++;
    }
}

bool fp8_cursor_next(fp8_cursor *c, fp8_job *job)
{
    for (;;) {
        if (!c->walking && !begin_walk(c))
            return false;
        c->walking = true;
        fp8_walk *w = &c->walk;
        char *memory = job->memory;
        *job = (fp8_job){.memory = memory, .item = w->item, .end = w->item + 1};
        if (w->copies || w->scales) {
            copy_step(w, c->conv, job);
            if (job->kind == FP8_JOB_COPY && job->last)
                join_copies(c, job);
            return true;
        }
        take_region(c);
        if ((w->encodes || w->amax) && slab_step(w, job)) {
            if (job->kind == FP8_JOB_AMAX)
                job->region->pending++;
            return true;
        }
        c->walking = false;
    }
}

uint64_t fp8_job_source_bytes(const fp8_convert *conv, const fp8_job *job)
{
    if (job->kind == FP8_JOB_COPY)
        return (uint64_t)job->rows;
    if (job->kind == FP8_JOB_AMAX || job->kind == FP8_JOB_SCALES)
        return 0;
    fp8_dtype dtype = fp8_item_info(conv, job->item).dtype;
    return (uint64_t)(job->rows * job->g->m.cols) * (uint64_t)fp8_dtype_bits(dtype) / 8;
}
