/* SPDX-License-Identifier: Apache-2.0
 *
 * scale_fit.c - the shapes that scales [gr, gc] of a weight are stored in, and the view over them.
 * A shape must say the grid's two sizes in order: 3 scales in [1,3] are no [3,1]. */
#include "ckpt/scale_fit.h"

#include "base/size.h"
#include "number/dtype.h"

#include <string.h>

static const fp8_problem bad_shape = {
    "scale-shape", "the scale's shape is not that of the granularity that the config says", true};
static const fp8_problem bad_dtype = {
    "scale-dtype", "the scale's dtype is none that its granularity can have", true};
static const fp8_problem no_grid = {
    "granularity-unknown", "nothing says which elements of the weight share a scale", true};
static const fp8_problem swizzled = {
    "scale-layout", "ComfyUI's mxfp8 scales are in the order of cuBLAS, which is not read", true};
static const fp8_problem not_fp8 = {
    "scheme-unknown", "the config announces another scheme than FP8 for this weight", true};

static const fp8_problem bad_name = {
    "scale-name", "readers of this config look for the scale under another name", false};
static const fp8_problem bad_form = {
    "scale-form", "readers of this config expect the scales of channels in another shape", false};

/* Sizes of a weight's scales. */
typedef struct extent {
    int64_t experts; /* 0 = not stacked */
    int64_t rows, cols;
} extent;

static bool extent_of(const fp8_tensor_info *weight, fp8_grid grid, extent *out)
{
    fp8_matrices m;
    if (!fp8_weight_matrices(weight->ndim, weight->shape, &m))
        return false;
    *out = (extent){weight->ndim == 3 ? m.experts : 0,
                    fp8_ceil_div(m.rows, fp8_grid_extent(grid.rows, m.rows)),
                    fp8_ceil_div(m.cols, fp8_grid_extent(grid.cols, m.cols))};
    return true;
}

static bool all_ones(int32_t n, const int64_t *shape)
{
    for (int32_t i = 0; i < n; i++)
        if (shape[i] != 1)
            return false;
    return true;
}

/* shape[n] stores [rows, cols]: as such, as a vector, or with ones between (ModelOpt). */
static bool stores(int32_t n, const int64_t *shape, int64_t rows, int64_t cols)
{
    if (rows == 1 && cols == 1 && all_ones(n, shape))
        return true;
    if (n == 1)
        return (cols == 1 && shape[0] == rows) || (rows == 1 && shape[0] == cols);
    if (n == 2)
        return shape[0] == rows && shape[1] == cols;
    return n == 4 && shape[0] == rows && shape[1] == 1 && shape[2] == cols && shape[3] == 1;
}

static bool fits(const fp8_tensor_info *weight, const fp8_tensor_info *scale, fp8_grid grid)
{
    extent e;
    if (!extent_of(weight, grid, &e))
        return false;
    if (weight->ndim != 3)
        return stores(scale->ndim, scale->shape, e.rows, e.cols);
    return scale->ndim >= 1 && scale->shape[0] == e.experts &&
           stores(scale->ndim - 1, scale->shape + 1, e.rows, e.cols);
}

/* Whether a channel's scale runs along the columns: a weight stored [in, out] has [1, out]. A
 * vector of a square weight means rows. */
static bool along_columns(const fp8_tensor_info *weight, const fp8_tensor_info *scale)
{
    return !fits(weight, scale, (fp8_grid){1, 0}) && fits(weight, scale, (fp8_grid){0, 1});
}

static const fp8_problem *read_as(fp8_role_info *role, const fp8_tensor_info *scale, bool mx)
{
    role->scale = scale->dtype;
    if (mx && scale->dtype == FP8_U8)
        role->scale = FP8_E8M0FNU;
    bool fine = mx ? role->scale == FP8_E8M0FNU : fp8_dtype_is_scale(role->scale);
    return fine ? NULL : &bad_dtype;
}

static const fp8_problem *fit_announced(const fp8_quant_group *group, const fp8_tensor_info *weight,
                                        const fp8_tensor_info *scale, fp8_role_info *role)
{
    role->grid = group->grid;
    if (group->grid.rows == 1 && group->grid.cols == 0 && along_columns(weight, scale))
        role->grid = (fp8_grid){0, 1};
    if (!fits(weight, scale, role->grid))
        return &bad_shape;
    return read_as(role, scale, group->mx);
}

/* Without a config: the coarsest grid of those in use whose shape this is. */
static const fp8_problem *fit_by_shape(fp8_config_kind kind, const fp8_tensor_info *weight,
                                       const fp8_tensor_info *scale, fp8_role_info *role)
{
    static const fp8_grid grids[] = {{0, 0}, {1, 0}, {128, 128}, {1, 32}};
    if (kind == FP8_CONFIG_COMFY && (scale->dtype == FP8_U8 || scale->dtype == FP8_E8M0FNU))
        return &swizzled;
    for (size_t i = 0; i < sizeof grids / sizeof *grids; i++) {
        bool mx = grids[i].cols == 32;
        if (!fits(weight, scale, grids[i]) || read_as(role, scale, mx))
            continue;
        role->grid = grids[i];
        return NULL;
    }
    return &no_grid;
}

const fp8_problem *fp8_scale_fit(fp8_config_kind kind, const fp8_quant_group *group,
                                 const fp8_tensor_info *weight, const fp8_tensor_info *scale,
                                 fp8_role_info *role)
{
    if (group)
        return group->known ? fit_announced(group, weight, scale, role) : &not_fp8;
    if (kind == FP8_CONFIG_NONE || kind == FP8_CONFIG_COMFY || kind == FP8_CONFIG_COMFY_OLD)
        return fit_by_shape(kind, weight, scale, role);
    return &no_grid;
}

/* The row announces such scales. */
static bool announces(const fp8_dialect *d, fp8_config_kind kind, const fp8_role_info *weight)
{
    fp8_grid grid = weight->grid;
    if (grid.rows == 0 && grid.cols == 1)
        grid = (fp8_grid){1, 0}; /* channels of a transposed weight */
    return d->config == kind && d->grid.rows == grid.rows && d->grid.cols == grid.cols &&
           (d->scale == FP8_E8M0FNU) == (weight->scale == FP8_E8M0FNU);
}

/* The scale, which is one of the weight's, has the row's name. */
static bool named(const fp8_dialect *d, const fp8_tensor_info *weight, const fp8_tensor_info *scale)
{
    enum { TAIL = 6 }; /* tells the suffixes apart, of stacked experts too, who lack "weight" */
    const char *tail = d->scale_suffix + strlen(d->scale_suffix) - TAIL;
    return scale->name_bytes ==
               fp8_companion_name(weight->name, weight->name_bytes, d->scale_suffix, NULL) &&
           memcmp(scale->name + scale->name_bytes - TAIL, tail, TAIL) == 0;
}

/* Channels are [N,1] or [N]; engines compare the shape. Single scales are read in any. */
static bool formed(const fp8_dialect *d, const fp8_tensor_info *weight,
                   const fp8_tensor_info *scale)
{
    bool channels = d->grid.rows == 1 && d->grid.cols == 0;
    if (!channels || weight->ndim != 2 || all_ones(scale->ndim, scale->shape))
        return true;
    return scale->ndim == (d->scale_shape == FP8_SCALES_VECTOR ? 1 : 2);
}

const fp8_problem *fp8_scale_spelling(fp8_config_kind kind, const fp8_tensor_info *weight,
                                      const fp8_tensor_info *scale, const fp8_role_info *role)
{
    const fp8_dialect *d;
    const fp8_problem *problem = NULL;
    for (int64_t i = 0; (d = fp8_dialect_at(i)) != NULL; i++) {
        if (!announces(d, kind, role))
            continue;
        if (named(d, weight, scale))
            return formed(d, weight, scale) ? NULL : &bad_form;
        problem = &bad_name;
    }
    return problem;
}

bool fp8_input_scale_fits(const fp8_tensor_info *weight, const fp8_tensor_info *input)
{
    if (!fp8_dtype_is_scale(input->dtype))
        return false;
    if (weight->ndim == 3 && input->ndim >= 1 && input->shape[0] == weight->shape[0])
        return all_ones(input->ndim - 1, input->shape + 1);
    return all_ones(input->ndim, input->shape);
}
