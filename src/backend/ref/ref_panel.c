/* SPDX-License-Identifier: Apache-2.0
 *
 * ref_panel.c - the product of a group of panels, plainly, in double:
 *
 *     c[i,j] (+)= sum over segments s of w_scale[s,j] * sum over k in s of x[i,k] w[j,k]
 *
 * For x in F32, every dtype of w, any cuts and any number of rows and columns. */
#include "number/dtype.h"
#include "op/backend.h"

#define FP8_PANEL(isa, x, min_m, max_m, cut, rows, cols, scratch, function) \
    fp8_kernel_panel function;
#include "backend/ref/ref_panels.inc"

/* The weight of row j of the group and column k: its code, times its scale and rounded where that
 * is asked for. */
static double weight_at(const fp8_panel_run *run, int64_t j, int64_t k, float scale)
{
    const int64_t panel = j / FP8_PANEL_ROWS, row = j % FP8_PANEL_ROWS;
    const fp8_load_fn load = fp8_dtype_facts_of(run->code)->load;
    const float code = load(run->w + panel * run->w_stride, fp8_panel_offset(row, k, run->k));
    if (run->rounded == FP8_DTYPE_NONE)
        return code;
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(run->rounded);
    uint16_t rounded;
    facts->store(&rounded, 0, code * scale, false);
    return facts->load(&rounded, 0);
}

static double dot(const fp8_panel_run *run, int64_t i, int64_t j)
{
    const float *x = (const float *)run->x + i * run->x_stride;
    const int64_t whole[] = {0, run->k};
    const int64_t *cut = run->cuts ? run->cut : whole;
    double sum = 0;
    for (int64_t s = 0; s == 0 || s < run->cuts; s++) {
        const float w_scale = run->w_scale ? run->w_scale[s * FP8_TILE_COLS + j] : 1;
        double part = 0;
        for (int64_t k = cut[s]; k < cut[s + 1]; k++)
            part += (double)x[k] * weight_at(run, j, k, w_scale);
        sum += run->rounded == FP8_DTYPE_NONE ? part * (double)w_scale : part;
    }
    return sum;
}

void fp8_ref_panel(const fp8_panel_run *run)
{
    for (int64_t i = 0; i < run->m; i++)
        for (int64_t j = 0; j < run->panels * FP8_PANEL_ROWS; j++) {
            float *c = &run->c[i * FP8_TILE_COLS + j];
            *c = (float)(dot(run, i, j) + (run->accumulate ? (double)*c : 0));
        }
}
