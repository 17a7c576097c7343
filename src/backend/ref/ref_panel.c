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

/* The number that each code stands for. */
static void list_codes(fp8_dtype dtype, float number[256])
{
    const fp8_load_fn load = fp8_dtype_facts_of(dtype)->load;
    for (int code = 0; code < 256; code++) {
        const uint8_t byte = (uint8_t)code;
        number[code] = load(&byte, 0);
    }
}

static float rounded_to(fp8_dtype dtype, float value)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    uint16_t rounded;
    facts->store(&rounded, 0, value, false);
    return facts->load(&rounded, 0);
}

/* Of row i of X and row j of the group. */
static double dot(const fp8_panel_run *run, const float number[256], int64_t i, int64_t j)
{
    const float *x = (const float *)run->x + i * run->x_stride;
    const uint8_t *w = run->w + j / FP8_PANEL_ROWS * run->w_stride;
    const int64_t whole[] = {0, run->k};
    const int64_t *cut = run->cuts ? run->cut : whole;
    double sum = 0;
    for (int64_t s = 0; s == 0 || s < run->cuts; s++) {
        const float w_scale = run->w_scale ? run->w_scale[s * FP8_TILE_COLS + j] : 1;
        double part = 0;
        for (int64_t k = cut[s]; k < cut[s + 1]; k++) {
            const float code = number[w[fp8_panel_offset(j % FP8_PANEL_ROWS, k, run->k)]];
            part += (double)x[k] *
                    (double)(run->rounded ? rounded_to(run->rounded, code * w_scale) : code);
        }
        sum += run->rounded ? part : part * (double)w_scale;
    }
    return sum;
}

void fp8_ref_panel(const fp8_panel_run *run)
{
    float number[256];
    list_codes(run->code, number);
    for (int64_t i = 0; i < run->m; i++)
        for (int64_t j = 0; j < run->panels * FP8_PANEL_ROWS; j++) {
            float *c = &run->c[i * FP8_TILE_COLS + j];
            *c = (float)(dot(run, number, i, j) + (run->accumulate ? (double)*c : 0));
        }
}
