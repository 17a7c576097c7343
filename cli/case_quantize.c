/* SPDX-License-Identifier: Apache-2.0
 *
 * case_quantize.c - the matrices of one case of `fp8 bench quantize`. */
#include "cli/case_quantize.h"

#include "cli/bench_data.h"
#include "cli/exit_code.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

fp8_quantize_desc cli_quantize_desc(const cli_args *args, fp8_grid grid)
{
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    const char *name;
    for (int64_t i = 0; args->numerics != NULL && (name = fp8_rule_name(i)) != NULL; i++)
        if (strcmp(name, args->numerics) == 0)
            desc.rule = (fp8_rule)i;
    desc.grid = grid;
    return desc;
}

fp8_status cli_quantize_defined(const cli_args *args, fp8_status status, const fp8_error *err)
{
    if (status != FP8_E_UNSUPPORTED || args->numerics == NULL)
        return status;
    cli_warning(err->msg);
    return FP8_OK;
}

fp8_status cli_quantize_case_make(cli_quantize_case *c, const fp8_context *ctx, fp8_dtype dtype,
                                  fp8_dtype scale, const fp8_quantize_desc *desc, int64_t rows,
                                  int64_t cols, fp8_error *err)
{
    const int64_t gr = desc->grid.rows > 0 ? desc->grid.rows : rows + !rows;
    const int64_t gc = desc->grid.cols > 0 ? desc->grid.cols : cols + !cols;
    *c = (cli_quantize_case){.ctx = ctx, .desc = *desc};
    c->bytes = (double)rows * (double)cols * fp8_dtype_bits(dtype) / 8;
    c->x = cli_bench_matrix(dtype, rows, cols);
    c->codes = cli_bench_matrix(FP8_E4M3FN, rows, cols);
    c->scales = cli_bench_matrix(scale, (rows + gr - 1) / gr, (cols + gc - 1) / gc);
    if (c->x.data == NULL || c->codes.data == NULL || c->scales.data == NULL) {
        *err = (fp8_error){.code = FP8_E_NO_MEMORY, .pos = -1};
        snprintf(err->msg, sizeof err->msg, "bench: no memory for the matrices");
        return FP8_E_NO_MEMORY;
    }
    cli_quantize_case_call(c);
    *err = c->err;
    return c->status;
}

void cli_quantize_case_call(void *arg)
{
    cli_quantize_case *c = arg;
    const fp8_status status =
        fp8_quantize(c->ctx, &c->desc, &c->x, &c->codes, &c->scales, NULL, &c->err);
    if (c->status == FP8_OK)
        c->status = status;
}

void cli_quantize_case_free(cli_quantize_case *c)
{
    free(c->x.data);
    free(c->codes.data);
    free(c->scales.data);
    *c = (cli_quantize_case){0};
}
