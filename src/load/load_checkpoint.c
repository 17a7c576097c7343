/* SPDX-License-Identifier: Apache-2.0
 *
 * load_checkpoint.c - the layers of a load from a checkpoint. A layer's parts are modules of the
 * checkpoint, or the layer is one that holds them all; a module is NAME.weight with the scales that
 * its dialect gives it, and NAME.bias. One layer after the other, in the order of the files, in
 * slabs of whole rows of which only those of the rank are read; scales come first, and a weight
 * that needs its maximum before any code is read twice, rather than held. */
#include "base/size.h"
#include "ckpt/roles.h"
#include "load/load.h"
#include "number/dtype.h"

#include <stdlib.h>
#include <string.h>

enum { SLAB_BYTES = 4 << 20, SLAB_ROWS = 128, NAME_BYTES = 1024 };

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

static fp8_status read_whole(const reading *r, int64_t index, void **data, fp8_tensor_info *info,
                             fp8_error *err)
{
    (void)fp8_checkpoint_tensor(r->ckpt, index, info);
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
static fp8_status view_scales(const module *m, const fp8_tensor_info *info, void *data,
                              fp8_tensor *view, fp8_error *err)
{
    const int64_t n = m->info.shape[0], k = m->info.shape[1];
    const int64_t rows = fp8_ceil_div(n, fp8_grid_extent(m->role->grid.rows, n));
    const int64_t cols = fp8_ceil_div(k, fp8_grid_extent(m->role->grid.cols, k));
    *view = fp8_matrix(data, m->role->scale, rows, cols);
    FP8_FAIL_IF((uint64_t)(rows * cols * (fp8_dtype_bits(view->dtype) / 8)) != info->bytes, err,
                FP8_E_SCALE, "%s has %llu bytes, a grid [%lld,%lld] of %s more or fewer",
                info->name, (unsigned long long)info->bytes, (long long)rows, (long long)cols,
                fp8_dtype_name(view->dtype));
    return FP8_OK;
}

/* Codes that were merely cast have no scale: it is 1. */
static fp8_status write_scales(const reading *r, const source *s, const module *m, fp8_error *err)
{
    float one = 1;
    fp8_tensor view = fp8_matrix(&one, FP8_F32, 1, 1);
    fp8_tensor_info info;
    void *data;
    if (m->role->role != FP8_ROLE_WEIGHT)
        return write_part(s, m, FP8_PARAM_SCALE, &view, err);
    FP8_TRY(read_whole(r, m->role->partner, &data, &info, err));
    fp8_status status = view_scales(m, &info, data, &view, err);
    if (status == FP8_OK)
        status = write_part(s, m, FP8_PARAM_SCALE, &view, err);
    fp8_release(r->ctx, data);
    return status;
}

/* A tensor of few elements as a vector. */
static fp8_status write_vector(const reading *r, const source *s, const module *m,
                               fp8_load_param param, int64_t index, fp8_error *err)
{
    fp8_tensor_info info;
    void *data;
    FP8_FAIL_IF(index < 0, err, FP8_E_NOT_FOUND, "the checkpoint has no %s for %s",
                fp8_param_name(param), m->name);
    FP8_TRY(read_whole(r, index, &data, &info, err));
    const int bits = fp8_dtype_bits(info.dtype);
    const fp8_tensor view =
        fp8_vector(data, info.dtype, bits ? (int64_t)(info.bytes * 8) / bits : 0);
    const fp8_status status = write_part(s, m, param, &view, err);
    fp8_release(r->ctx, data);
    return status;
}

/* ---- the weight, in slabs -------------------------------------------------------------------- */

typedef fp8_status (*piece_fn)(fp8_stage *stage, const fp8_load_piece *piece, fp8_error *err);

/* Rows [begin, end) of a module's weight, which are one share's, through fn. */
static fp8_status stream_rows(const reading *r, const source *s, const module *m, int64_t begin,
                              int64_t end, piece_fn fn, fp8_error *err)
{
    const int64_t k = m->info.shape[1], row_bytes = k * (fp8_dtype_bits(m->info.dtype) / 8);
    const int64_t fit = SLAB_BYTES / (row_bytes > 0 ? row_bytes : 1) / SLAB_ROWS * SLAB_ROWS;
    const int64_t step = fp8_min_i64(fit > 0 ? fit : SLAB_ROWS, end - begin);
    fp8_load_piece piece = FP8_LOAD_PIECE_INIT;
    void *slab = fp8_alloc(r->ctx, (uint64_t)(step * row_bytes));
    FP8_FAIL_IF(!slab, err, FP8_E_NO_MEMORY, "no memory for a slab of %lld rows", (long long)step);
    fp8_status status = FP8_OK;
    piece.part = m->part;
    for (int64_t i = begin; i < end && status == FP8_OK; i += step) {
        const int64_t rows = fp8_min_i64(step, end - i);
        piece.row = i;
        piece.data = fp8_matrix(slab, m->info.dtype, rows, k);
        status = fp8_checkpoint_read(r->ckpt, &m->info, (uint64_t)(i * row_bytes),
                                     (uint64_t)(rows * row_bytes), slab, err);
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

/* Settles what the layer's weight is by its first module. */
static fp8_status settle(const source *s, const module *m, fp8_error *err)
{
    fp8_stage *stage = s->slot->stage;
    const fp8_grid tensor = {0, 0};
    const bool scaled = m->role->role == FP8_ROLE_WEIGHT;
    if (stage->kind != FP8_STAGE_UNKNOWN)
        return fp8_stage_settle(stage, m->info.dtype, err);
    if (fp8_dtype_is_high(m->info.dtype))
        return fp8_stage_settle(stage, m->info.dtype, err);
    FP8_FAIL_IF(!fp8_dtype_is_fp8(m->info.dtype), err, FP8_E_DTYPE, "%s.weight is %s", m->name,
                fp8_dtype_name(m->info.dtype));
    return fp8_stage_expect_codes(stage, scaled ? m->role->grid : tensor, m->info.dtype,
                                  scaled ? m->role->scale : FP8_F32, err);
}

/* Everything of a module but the weight. */
static fp8_status load_small(const reading *r, const source *s, const module *m, fp8_error *err)
{
    const fp8_stage *stage = s->slot->stage;
    if (stage->kind == FP8_STAGE_CODES)
        FP8_TRY(write_scales(r, s, m, err));
    if (fp8_stage_expected(stage, FP8_PARAM_BIAS).rows > 0)
        FP8_TRY(write_vector(r, s, m, FP8_PARAM_BIAS, find(r, m->name, "bias"), err));
    if (fp8_stage_expected(stage, FP8_PARAM_INPUT_SCALE).rows > 0)
        FP8_TRY(write_vector(r, s, m, FP8_PARAM_INPUT_SCALE, m->role->input, err));
    return FP8_OK;
}

typedef fp8_status (*module_fn)(const reading *r, const source *s, const module *m, fp8_error *err);

static fp8_status settle_module(const reading *r, const source *s, const module *m, fp8_error *err)
{
    (void)r;
    return settle(s, m, err);
}

static fp8_status measure_module(const reading *r, const source *s, const module *m, fp8_error *err)
{
    return stream_module(r, s, m, fp8_stage_measure, err);
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

static fp8_status load_layer(const reading *r, const source *s, fp8_error *err)
{
    FP8_TRY(each_module(r, s, settle_module, err));
    FP8_TRY(each_module(r, s, load_small, err));
    if (fp8_stage_wants_measure(s->slot->stage)) {
        FP8_TRY(each_module(r, s, measure_module, err));
        FP8_TRY(fp8_stage_measured(s->slot->stage, err));
    }
    FP8_TRY(each_module(r, s, load_weight, err));
    return fp8_load_end_if_whole(s->slot, err);
}

static fp8_status load_all(reading *r, fp8_error *err)
{
    FP8_TRY(fp8_roles_assign(r->ctx, r->ckpt, &r->roles, err));
    FP8_TRY(find_sources(r, err));
    for (int64_t i = 0; i < r->count; i++)
        FP8_TRY(
            fp8_layer_words(r->sources[i].slot->layer, load_layer(r, &r->sources[i], err), err));
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
