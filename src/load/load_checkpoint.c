/* SPDX-License-Identifier: Apache-2.0
 *
 * load_checkpoint.c - the layers of a load from a checkpoint. A layer's parts are modules of the
 * checkpoint, or the layer is one that holds them all; a module is NAME.weight with the scales that
 * its dialect gives it, and NAME.bias. One layer after the other, in the order of the files, in
 * slabs of the rank's rows, and of its columns where that spares much; scales come first, and a
 * weight that needs its maximum before any code is read twice, rather than held. */
#include "base/size.h"
#include "ckpt/roles.h"
#include "load/load.h"
#include "number/dtype.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A read for each row is worth it if it spares that many bytes: a page, which takes longer to copy
 * than a call to the system takes. */
enum {
    SLAB_BYTES = 4 << 20,
    SLAB_ROWS = 128,
    NAME_BYTES = 1024,
    KIND_BYTES = 96,
    SPARED_BYTES = 4096
};

/* An open checkpoint, and what each tensor of it is. */
typedef struct reading {
    fp8_load *load;
    const fp8_context *ctx;
    fp8_checkpoint *ckpt;
    fp8_roles roles;
    struct source *sources; /* [count], in the order of the files */
    int64_t count;
} reading;

/* A layer and where its weight is. */
typedef struct source {
    fp8_load_slot *slot;
    int64_t first; /* lowest index of its tensors */
    bool fused;    /* one module holds all parts */
} source;

/* A module of the checkpoint for a part (or, -1, for all). */
typedef struct module {
    const char *name;
    int32_t part;
    int64_t weight; /* index of the tensor */
    const fp8_role_info *role;
    fp8_tensor_info info;
} module;

/* ---- finding --------------------------------------------------------------------------------- */

/* Index of NAME.SUFFIX, -1 if there is none. */
static int64_t find(const reading *r, const char *name, const char *suffix)
{
    char full[NAME_BYTES];
    const size_t n = strlen(name), m = strlen(suffix);
    if (n + m + 2 > sizeof full)
        return -1;
    memcpy(full, name, n);
    full[n] = '.';
    memcpy(full + n + 1, suffix, m + 1);
    return fp8_checkpoint_index(r->ckpt, full, n + 1 + m);
}

/* The module that part p of a layer is loaded from. */
static const char *module_name(const source *s, int64_t p)
{
    const fp8_layer *layer = s->slot->layer;
    return s->fused ? layer->desc.name : layer->cut.share[p].name;
}

static int64_t module_count(const source *s)
{
    return s->fused ? 1 : s->slot->layer->cut.parts;
}

/* Whether every part has a module of its own, and which tensor comes first. */
static bool find_parts(const reading *r, source *s)
{
    s->first = INT64_MAX;
    for (int64_t p = 0; p < s->slot->layer->cut.parts; p++) {
        const char *name = s->slot->layer->cut.share[p].name;
        const int64_t i = name ? find(r, name, "weight") : -1;
        if (i < 0)
            return false;
        s->first = fp8_min_i64(s->first, i);
    }
    return s->slot->layer->cut.parts > 0;
}

static fp8_status find_source(const reading *r, source *s, fp8_error *err)
{
    FP8_TRY(fp8_layer_check_changeable(s->slot->layer, err));
    s->fused = false;
    if (find_parts(r, s))
        return FP8_OK;
    const fp8_layer *layer = s->slot->layer;
    s->fused = true;
    s->first = find(r, layer->desc.name, "weight");
    FP8_FAIL_IF(s->first < 0, err, FP8_E_NOT_FOUND,
                "the checkpoint has neither %s.weight nor a weight for each part",
                layer->desc.name);
    return FP8_OK;
}

static int by_place(const void *a, const void *b)
{
    const int64_t x = ((const source *)a)->first, y = ((const source *)b)->first;
    return (x > y) - (x < y);
}

static fp8_status find_sources(reading *r, fp8_error *err)
{
    r->sources = fp8_alloc_zeroed(r->ctx, (uint64_t)r->load->count, sizeof *r->sources);
    FP8_FAIL_IF(!r->sources, err, FP8_E_NO_MEMORY, "no memory for %lld layers",
                (long long)r->load->count);
    for (int64_t i = 0; i < r->load->count; i++) {
        if (r->load->slots[i]->whole)
            continue;
        source *s = &r->sources[r->count++];
        s->slot = r->load->slots[i];
        FP8_TRY(fp8_layer_words(s->slot->layer, find_source(r, s, err), err));
    }
    qsort(r->sources, (size_t)r->count, sizeof *r->sources, by_place);
    return FP8_OK;
}

static fp8_status open_module(const reading *r, const source *s, int64_t p, module *m,
                              fp8_error *err)
{
    m->name = module_name(s, p);
    m->part = s->fused ? -1 : (int32_t)p;
    m->weight = find(r, m->name, "weight");
    m->role = &r->roles.tensors[m->weight];
    (void)fp8_checkpoint_tensor(r->ckpt, m->weight, &m->info);
    const fp8_cut_plan *cut = &s->slot->layer->cut;
    const int64_t rows = s->fused ? cut->n_whole : cut->share[p].whole;
    FP8_FAIL_IF(m->info.ndim != 2 || m->info.shape[0] != rows || m->info.shape[1] != cut->k_whole,
                err, FP8_E_SHAPE, "%s.weight has %d dimensions [%lld,%lld], must be [%lld,%lld]",
                m->name, m->info.ndim, (long long)(m->info.ndim > 0 ? m->info.shape[0] : 0),
                (long long)(m->info.ndim > 1 ? m->info.shape[1] : 0), (long long)rows,
                (long long)cut->k_whole);
    FP8_FAIL_IF(m->role->problem && m->role->problem->unreadable, err, FP8_E_SCALE, "%s.weight: %s",
                m->name, m->role->problem->text);
    return FP8_OK;
}

/* ---- small tensors: scales, bias ------------------------------------------------------------- */

/* A tensor whose size was found right. */
static fp8_status read_whole(const reading *r, const fp8_tensor_info *info, void **data,
                             fp8_error *err)
{
    *data = fp8_alloc(r->ctx, info->bytes);
    FP8_FAIL_IF(!*data, err, FP8_E_NO_MEMORY, "no memory for %llu bytes of %s",
                (unsigned long long)info->bytes, info->name);
    const fp8_status status = fp8_checkpoint_read(r->ckpt, info, 0, info->bytes, *data, err);
    if (status != FP8_OK)
        fp8_release(r->ctx, *data);
    return status;
}

static fp8_status write_part(const source *s, const module *m, fp8_load_param param,
                             const fp8_tensor *data, fp8_error *err)
{
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    piece.param = param;
    piece.part = m->part;
    piece.data = *data;
    return fp8_stage_write(s->slot->stage, &piece, err);
}

/* The scales of a module's weight, which stand in the order of their grid whatever their shape. */
static fp8_status view_scales(const module *m, const fp8_tensor_info *info, fp8_tensor *view,
                              fp8_error *err)
{
    const int64_t n = m->info.shape[0], k = m->info.shape[1];
    const int64_t rows = fp8_ceil_div(n, fp8_grid_extent(m->role->grid.rows, n));
    const int64_t cols = fp8_ceil_div(k, fp8_grid_extent(m->role->grid.cols, k));
    *view = fp8_matrix(NULL, m->role->scale, rows, cols);
    FP8_FAIL_IF((uint64_t)(rows * cols * (fp8_dtype_bits(view->dtype) / 8)) != info->bytes, err,
                FP8_E_SCALE, "%s has %llu bytes, a grid [%lld,%lld] of %s more or fewer",
                info->name, (unsigned long long)info->bytes, (long long)rows, (long long)cols,
                fp8_dtype_name(view->dtype));
    return FP8_OK;
}

/* A tensor that was found to look like *view, which has no data yet. */
static fp8_status write_tensor(const reading *r, const source *s, const module *m,
                               fp8_load_param param, const fp8_tensor_info *info, fp8_tensor *view,
                               fp8_error *err)
{
    FP8_TRY(read_whole(r, info, &view->data, err));
    const fp8_status status = write_part(s, m, param, view, err);
    fp8_release(r->ctx, view->data);
    return status;
}

/* Codes that were merely cast have no scale: it is 1. */
static fp8_status write_scales(const reading *r, const source *s, const module *m, fp8_error *err)
{
    float one = 1;
    fp8_tensor view = fp8_matrix(&one, FP8_F32, 1, 1);
    fp8_tensor_info info;
    if (m->role->role != FP8_ROLE_WEIGHT)
        return write_part(s, m, FP8_PARAM_SCALE, &view, err);
    (void)fp8_checkpoint_tensor(r->ckpt, m->role->partner, &info);
    FP8_TRY(view_scales(m, &info, &view, err));
    return write_tensor(r, s, m, FP8_PARAM_SCALE, &info, &view, err);
}

/* A vector of so many elements; a scale of all parts may be one. */
static fp8_status write_vector(const reading *r, const source *s, const module *m,
                               fp8_load_param param, int64_t index, int64_t n, fp8_error *err)
{
    fp8_tensor_info info;
    FP8_FAIL_IF(index < 0, err, FP8_E_NOT_FOUND, "the checkpoint has no %s for %s",
                fp8_param_name(param), m->name);
    (void)fp8_checkpoint_tensor(r->ckpt, index, &info);
    const int64_t bytes = fp8_dtype_bits(info.dtype) / 8;
    const uint64_t count = bytes ? info.bytes / (uint64_t)bytes : 0;
    FP8_FAIL_IF(count != (uint64_t)n && (param == FP8_PARAM_BIAS || count != 1), err, FP8_E_SHAPE,
                "%s has %llu elements, must have %lld", info.name, (unsigned long long)count,
                (long long)n);
    fp8_tensor view = fp8_vector(NULL, info.dtype, (int64_t)count);
    return write_tensor(r, s, m, param, &info, &view, err);
}

/* ---- the weight, in slabs -------------------------------------------------------------------- */

typedef fp8_status (*piece_fn)(fp8_stage *stage, const fp8_load_piece *piece, fp8_error *err);

/* What is read of each row of a module's weight. */
typedef struct columns {
    int64_t first, count;
    int64_t begin, bytes; /* of the row */
    int64_t row_bytes;
} columns;

/* The rank's columns, or all if leaving the others out spares nothing. */
static columns columns_to_read(const source *s, const module *m)
{
    const fp8_cut_plan *cut = &s->slot->layer->cut;
    const int64_t element = fp8_dtype_bits(m->info.dtype) / 8, k = m->info.shape[1];
    const columns all = {0, k, 0, k * element, k * element};
    if ((k - cut->k) * element < SPARED_BYTES)
        return all;
    return (columns){cut->col, cut->k, cut->col * element, cut->k * element, k * element};
}

/* slab = those columns of rows [row, row + rows). */
static fp8_status read_slab(const reading *r, const module *m, const columns *c, int64_t row,
                            int64_t rows, void *slab, fp8_error *err)
{
    fp8_read_ranges ranges = {(uint64_t)(row * c->row_bytes + c->begin), (uint64_t)c->bytes,
                              (uint64_t)c->row_bytes, (uint64_t)rows};
    if (c->bytes == c->row_bytes) {
        ranges.bytes *= ranges.count;
        ranges.count = 1;
    }
    return fp8_checkpoint_read_ranges(r->ckpt, &m->info, &ranges, slab, err);
}

/* Rows [begin, end) of a module's weight, which are one share's, through fn. */
static fp8_status stream_rows(const reading *r, const source *s, const module *m, int64_t begin,
                              int64_t end, piece_fn fn, fp8_error *err)
{
    const columns c = columns_to_read(s, m);
    const int64_t fit = SLAB_BYTES / (c.bytes > 0 ? c.bytes : 1) / SLAB_ROWS * SLAB_ROWS;
    const int64_t step = fp8_min_i64(fit > 0 ? fit : SLAB_ROWS, end - begin);
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    void *slab = fp8_alloc(r->ctx, (uint64_t)(step * c.bytes));
    FP8_FAIL_IF(!slab, err, FP8_E_NO_MEMORY, "no memory for a slab of %lld rows", (long long)step);
    fp8_status status = FP8_OK;
    piece.part = m->part;
    piece.col = c.first;
    for (int64_t i = begin; i < end && status == FP8_OK; i += step) {
        const int64_t rows = fp8_min_i64(step, end - i);
        piece.row = i;
        piece.data = fp8_matrix(slab, m->info.dtype, rows, c.count);
        status = read_slab(r, m, &c, i, rows, slab, err);
        if (status == FP8_OK)
            status = fn(s->slot->stage, &piece, err);
    }
    fp8_release(r->ctx, slab);
    return status;
}

static fp8_status stream_module(const reading *r, const source *s, const module *m, piece_fn fn,
                                fp8_error *err)
{
    const fp8_cut_plan *cut = &s->slot->layer->cut;
    for (int64_t p = 0; p < cut->parts; p++) {
        const fp8_share *share = &cut->share[p];
        const int64_t begin = share->source + (s->fused ? share->base : 0);
        if ((s->fused || m->part == p) && share->rows > 0)
            FP8_TRY(stream_rows(r, s, m, begin, begin + share->rows, fn, err));
    }
    return FP8_OK;
}

/* ---- layers ---------------------------------------------------------------------------------- */

/* What a module's scales belong to; codes that were merely cast have one, which is 1. */
static fp8_grid grid_of(const module *m)
{
    return m->role->role == FP8_ROLE_WEIGHT ? m->role->grid : (fp8_grid){0, 0};
}

/* The dtype that its scales are kept in; those of whole parts are all kept alike. */
static fp8_dtype scale_of(const module *m)
{
    const fp8_grid g = grid_of(m);
    return g.rows || g.cols ? m->role->scale : FP8_F32;
}

static bool are_alike(const module *a, const module *b)
{
    const fp8_grid g = grid_of(a), h = grid_of(b);
    if (a->info.dtype != b->info.dtype)
        return false;
    return fp8_dtype_is_high(a->info.dtype) ||
           (g.rows == h.rows && g.cols == h.cols && scale_of(a) == scale_of(b));
}

/* "F8_E4M3 with F32 scales of blocks [128,128]", 0 = the whole extent; or "BF16". */
static const char *kind_of(const module *m, char text[KIND_BYTES])
{
    const fp8_grid g = grid_of(m);
    if (!fp8_dtype_is_fp8(m->info.dtype))
        return fp8_dtype_name(m->info.dtype);
    (void)snprintf(text, KIND_BYTES, "%s with %s scales of blocks [%lld,%lld]",
                   fp8_dtype_name(m->info.dtype), fp8_dtype_name(scale_of(m)), (long long)g.rows,
                   (long long)g.cols);
    return text;
}

/* Settles what the layer's weight is by its first module. */
static fp8_status settle(const source *s, const module *m, fp8_error *err)
{
    fp8_stage *stage = s->slot->stage;
    FP8_FAIL_IF(!fp8_dtype_is_high(m->info.dtype) && !fp8_dtype_is_fp8(m->info.dtype), err,
                FP8_E_DTYPE, "%s.weight is %s", m->name, fp8_dtype_name(m->info.dtype));
    if (stage->kind != FP8_STAGE_UNKNOWN || fp8_dtype_is_high(m->info.dtype))
        return fp8_stage_settle(stage, m->info.dtype, err);
    return fp8_stage_expect_codes(stage, grid_of(m), m->info.dtype, scale_of(m), err);
}

/* One linear has one kind of codes and scales: parts that differ are refused, as engines do. */
static fp8_status settle_module(const reading *r, const source *s, const module *m, fp8_error *err)
{
    char kinds[2][KIND_BYTES];
    module first;
    FP8_TRY(open_module(r, s, 0, &first, err));
    FP8_FAIL_IF(!are_alike(&first, m), err, FP8_E_MISMATCH,
                "%s.weight is %s, %s.weight is %s: parts of one layer must be alike", first.name,
                kind_of(&first, kinds[0]), m->name, kind_of(m, kinds[1]));
    return settle(s, m, err);
}

/* Everything of a module but the weight. */
static fp8_status load_small(const reading *r, const source *s, const module *m, fp8_error *err)
{
    const fp8_stage *stage = s->slot->stage;
    const int64_t parts = s->fused ? s->slot->layer->cut.parts : 1;
    const int64_t bias = find(r, m->name, "bias");
    FP8_FAIL_IF(bias >= 0 && !s->slot->layer->desc.has_bias, err, FP8_E_MISMATCH,
                "the checkpoint has %s.bias, the layer no bias", m->name);
    if (stage->kind == FP8_STAGE_CODES)
        FP8_TRY(write_scales(r, s, m, err));
    if (fp8_stage_expected(stage, FP8_PARAM_BIAS).rows > 0)
        FP8_TRY(write_vector(r, s, m, FP8_PARAM_BIAS, bias, m->info.shape[0], err));
    if (fp8_stage_expected(stage, FP8_PARAM_INPUT_SCALE).rows > 0)
        FP8_TRY(write_vector(r, s, m, FP8_PARAM_INPUT_SCALE, m->role->input, parts, err));
    return FP8_OK;
}

typedef fp8_status (*module_fn)(const reading *r, const source *s, const module *m, fp8_error *err);

static fp8_status measure_module(const reading *r, const source *s, const module *m, fp8_error *err)
{
    const fp8_status status = stream_module(r, s, m, fp8_stage_measure, err);
    if (status != FP8_OK)
        (void)fp8_error_prefix(err, "%s.weight", m->name);
    return status;
}

static fp8_status load_weight(const reading *r, const source *s, const module *m, fp8_error *err)
{
    return stream_module(r, s, m, fp8_stage_write, err);
}

static fp8_status each_module(const reading *r, const source *s, module_fn fn, fp8_error *err)
{
    for (int64_t p = 0; p < module_count(s); p++) {
        module m;
        FP8_TRY(open_module(r, s, p, &m, err));
        FP8_TRY(fn(r, s, &m, err));
    }
    return FP8_OK;
}

static fp8_status load_modules(const reading *r, const source *s, fp8_error *err)
{
    FP8_TRY(each_module(r, s, settle_module, err));
    FP8_TRY(each_module(r, s, load_small, err));
    if (fp8_stage_wants_measure(s->slot->stage)) {
        FP8_TRY(each_module(r, s, measure_module, err));
        FP8_TRY(fp8_stage_measured(s->slot->stage, err));
    }
    return each_module(r, s, load_weight, err);
}

/* All of a layer, or nothing of it: what it has by then is half of this checkpoint. */
static fp8_status load_layer(const reading *r, const source *s, fp8_error *err)
{
    fp8_status status = load_modules(r, s, err);
    if (status == FP8_OK)
        status = fp8_load_end_if_whole(s->slot, err);
    if (status != FP8_OK)
        fp8_stage_restart(s->slot->stage);
    return fp8_layer_words(s->slot->layer, status, err);
}

static fp8_status load_all(reading *r, fp8_error *err)
{
    FP8_TRY(fp8_roles_assign(r->ctx, r->ckpt, &r->roles, err));
    FP8_TRY(find_sources(r, err));
    for (int64_t i = 0; i < r->count; i++)
        FP8_TRY(load_layer(r, &r->sources[i], err));
    return FP8_OK;
}

fp8_status fp8_load_checkpoint(fp8_load *load, const char *path, fp8_error *err)
{
    FP8_FAIL_IF(!load || !path, err, FP8_E_ARGUMENT, "load: %s is NULL", load ? "path" : "load");
    reading r = {.load = load, .ctx = load->ctx};
    FP8_TRY(fp8_checkpoint_open(load->ctx, path, &r.ckpt, err));
    const fp8_status status = load_all(&r, err);
    fp8_release(load->ctx, r.sources);
    fp8_roles_free(load->ctx, &r.roles);
    fp8_checkpoint_close(r.ckpt);
    return status;
}
