/* SPDX-License-Identifier: Apache-2.0
 *
 * shard.c - a weight with a scale a block, cut among the ranks of tensor parallelism: which blocks
 * a shard touches, and whether vLLM would load it. */
#include "base/size.h"
#include "base/status.h"

#include <stdbool.h>

fp8_status fp8_block_shard_of(int64_t offset, int64_t size, int64_t block, fp8_block_shard *out,
                              fp8_error *err)
{
    int64_t end;
    FP8_FAIL_IF(!out, err, FP8_E_ARGUMENT, "shard: out is NULL");
    FP8_FAIL_IF(offset < 0 || size < 0 || block <= 0, err, FP8_E_ARGUMENT,
                "shard: offset %lld, size %lld, block %lld: must be >= 0, >= 0, > 0",
                (long long)offset, (long long)size, (long long)block);
    FP8_FAIL_IF(__builtin_add_overflow(offset, size, &end), err, FP8_E_SHAPE,
                "shard: offset %lld + size %lld is above INT64_MAX", (long long)offset,
                (long long)size);
    out->first = offset / block;
    out->count = size ? fp8_ceil_div(end, block) - out->first : 0;
    out->origin = offset % block;
    return FP8_OK;
}

static fp8_status check_desc(const fp8_block_shape_desc *d, int64_t *rows, fp8_error *err)
{
    FP8_FAIL_IF(!d, err, FP8_E_ARGUMENT, "block shape: desc is NULL");
    FP8_FAIL_IF(d->struct_bytes != sizeof *d, err, FP8_E_ARGUMENT,
                "block shape: struct_bytes is %u, this library knows %zu", d->struct_bytes,
                sizeof *d);
    FP8_FAIL_IF(d->n < 0 || d->k < 0 || d->k_shard < 0 || d->tp < 1 || d->block.rows < 1 ||
                    d->block.cols < 1 || (!d->widths && d->width_count),
                err, FP8_E_ARGUMENT,
                "block shape: n %lld, k %lld, k_shard %lld, tp %lld, block %lldx%lld: must be >= "
                "0, tp and block >= 1, widths not NULL",
                (long long)d->n, (long long)d->k, (long long)d->k_shard, (long long)d->tp,
                (long long)d->block.rows, (long long)d->block.cols);
    *rows = 0;
    for (size_t i = 0; i < d->width_count; i++)
        FP8_FAIL_IF(d->widths[i] < 0 || __builtin_add_overflow(*rows, d->widths[i], rows), err,
                    FP8_E_ARGUMENT,
                    "block shape: widths[%zu] is %lld, must be >= 0 and the sum an int64_t", i,
                    (long long)d->widths[i]);
    return FP8_OK;
}

/* Whether a dimension is cut into exactly `tp` shards, as vLLM tells. */
static bool is_cut(int64_t whole, int64_t shard, int64_t tp)
{
    return tp > 1 && shard > 0 && whole / shard == tp;
}

fp8_status fp8_validate_block_shape(const fp8_block_shape_desc *desc, fp8_error *err)
{
    int64_t rows;
    FP8_TRY(check_desc(desc, &rows, err));
    if (desc->allow_mismatch)
        return FP8_OK;
    FP8_FAIL_IF(is_cut(desc->k, desc->k_shard, desc->tp) && desc->k_shard % desc->block.cols != 0,
                err, FP8_E_SHAPE,
                "block shape: input_size_per_partition = %lld is not divisible by weight "
                "quantization block_k = %lld",
                (long long)desc->k_shard, (long long)desc->block.cols);
    const bool rows_are_cut = is_cut(desc->n, rows, desc->tp);
    size_t checked = rows_are_cut ? desc->width_count : 0;
    if (!rows_are_cut && desc->width_count > 1)
        checked = desc->width_count - 1;
    for (size_t i = 0; i < checked; i++)
        FP8_FAIL_IF(desc->widths[i] % desc->block.rows != 0, err, FP8_E_SHAPE,
                    "block shape: output_partition_size = %lld is not divisible by weight "
                    "quantization block_n = %lld",
                    (long long)desc->widths[i], (long long)desc->block.rows);
    return FP8_OK;
}
