/* SPDX-License-Identifier: Apache-2.0
 *
 * convert.h - a planned conversion: what becomes of each source tensor, and where its bytes go.
 *
 *     plan.c    opens the source, checks paths, owns everything     choose.c   decides each tensor
 *     fused.c   what engines fuse into one matrix                   layout.c   output shards
 *     slabs.c   cuts tensors into slabs    work.c  one slab         pipe.c     reader, workers,
 * writer journal.c, parts.c, publish.c, carry.c, run.c: see there
 *
 * On disk, beside DST:   DST.partial/files/ (becomes DST)   DST.partial/journal.I   .../stats.I */
#ifndef FP8_CONVERT_CONVERT_H
#define FP8_CONVERT_CONVERT_H

#include "ckpt/config.h"
#include "ckpt/engine.h"
#include "ckpt/pattern.h"
#include "ckpt/roles.h"
#include "convert/names.h"

#include <stdatomic.h>

typedef enum fp8_action {
    FP8_ACTION_KEEP,       /* the bytes are copied */
    FP8_ACTION_QUANTIZE,   /* high precision -> codes and scales */
    FP8_ACTION_DEQUANTIZE, /* codes and scales -> high precision */
    FP8_ACTION_REQUANTIZE, /* codes and scales -> codes and scales of another grid or dtype */
    FP8_ACTION_RENAME,     /* codes copied, scales renamed, reshaped or cast without loss */
    FP8_ACTION_DROP,       /* taken up by its weight, or meaningless without it */
} fp8_action;

/* What becomes of one source tensor. 90,000 of them are usual, two million possible. */
typedef struct fp8_item {
    const char *reason;   /* static, or owned by a pattern of the plan */
    uint64_t data_begin;  /* of the tensor's bytes, from the start of its shard's data */
    uint64_t scale_begin; /* of its scales, likewise */
    int32_t group;        /* fused weights that share one scale; -1 = none */
    int32_t shard;        /* output shard; -1 = dropped */
    uint8_t action;       /* fp8_action */
    uint8_t kind;         /* fp8_kind */
    uint8_t scale;        /* fp8_dtype of the output's scales */
    uint8_t dialect;      /* 1 + row of the dialect table; 0 = none */
    uint8_t transposed;   /* stored [in, out]: rows of the dialect's grid are columns here */
    uint8_t by_user;      /* a pattern decided */
} fp8_item;

/* The pieces of the output that one item may give. */
typedef enum fp8_part {
    FP8_PART_DATA,
    FP8_PART_SCALE,
    FP8_PART_INPUT_SCALE, /* one F32: a static activation scale */
    FP8_PART_MARKER,      /* ComfyUI's json beside the weight */
    FP8_PART_KINDS,
} fp8_part;

typedef struct fp8_entry {
    uint64_t begin, bytes; /* in the shard's data */
    uint32_t item;
    uint8_t part;  /* fp8_part */
    uint8_t dtype; /* fp8_dtype */
} fp8_entry;

/* One output file. */
typedef struct fp8_out_shard {
    char *file;
    int64_t first_entry, entries; /* in layout.entries, ordered as in the file */
    int64_t first_item, items;    /* in layout.order, ordered as in the source */
    uint64_t head_bytes, data_bytes;
    int32_t part; /* 0-based: which of the N runs writes it */
} fp8_out_shard;

typedef struct fp8_layout {
    fp8_out_shard *shards;
    int64_t shard_count;
    fp8_entry *entries;
    int64_t entry_count;
    uint32_t *order; /* items that are written, shard by shard */
    int64_t order_count;
    char *index_file; /* NULL: one file needs no index */
    uint64_t index_bytes;
    uint64_t bytes; /* of shards and index */
} fp8_layout;

typedef struct fp8_pattern_state {
    fp8_pattern_kind kind;
    fp8_matcher *matcher;
    char *text;
    char *reason;               /* "--keep '*.o_proj'" */
    const fp8_dialect *dialect; /* of SET */
    int64_t hits;               /* tensors that it matches */
    int64_t obeyed;             /* of SET and ONLY: weights that it had quantized */
} fp8_pattern_state;

/* Sizes that bound the memory of a run; tests lower them. */
typedef struct fp8_limits {
    uint64_t slab_bytes; /* of one slot of the ring: input, output and scales of a slab */
    int32_t slots;
    uint64_t scratch_bytes; /* of one worker */
    int64_t region_units;   /* of the widest region that needs two passes, at least 1 */
    uint64_t sync_bytes;    /* written between two points from which a run can resume */
} fp8_limits;

/* The static activation scale of each module, from --activation-scales. */
typedef struct fp8_activation_scales fp8_activation_scales;

struct fp8_convert {
    const fp8_context *ctx;
    fp8_convert_desc desc; /* texts point into the members below */
    char *src, *dst, *partial, *files, *report;
    fp8_checkpoint *ckpt;
    fp8_config config;
    fp8_roles roles;
    const fp8_dialect *dialect; /* of --scheme; NULL for DEQUANTIZE */
    const char *engine;         /* a name of ckpt/engine.h */
    fp8_rule rule;
    fp8_activation_scales *activation;
    fp8_pattern_state *patterns;
    int64_t pattern_count;
    fp8_item *items; /* one for each tensor of ckpt */
    int64_t count;
    int64_t group_count;
    fp8_layout layout;
    fp8_limits limits;
    uint64_t config_bytes;    /* of the output's config.json and hf_quant_config.json */
    uint64_t carried_bytes;   /* of the other files of the source */
    uint64_t disk_free_bytes; /* when it was planned */
    uint64_t fingerprint[2];
    char **warnings;
    int64_t warning_count, warning_room;
    const struct fp8_journal *journals; /* [part_count], while the report is written */
    bool done;
    atomic_int stop;
};

/* Adds a warning; errors NO_MEMORY. */
fp8_status fp8_convert_warn(fp8_convert *conv, fp8_error *err, const char *format, ...)
    __attribute__((format(printf, 3, 4)));

/* The tensor as matrices; 0- and 1-D tensors are one row. */
fp8_matrices fp8_item_matrices(const fp8_convert *conv, int64_t item);

fp8_tensor_info fp8_item_info(const fp8_convert *conv, int64_t item);
const fp8_dialect *fp8_item_dialect(const fp8_convert *conv, int64_t item);
/* The item reads FP8 codes, so scales too (unless they are bare). */
bool fp8_item_reads_codes(const fp8_convert *conv, int64_t item);
/* The item writes codes that it made itself. */
static inline bool fp8_item_encodes(const fp8_item *it)
{
    return it->action == FP8_ACTION_QUANTIZE || it->action == FP8_ACTION_REQUANTIZE;
}

/* actscale.c */
fp8_status fp8_activation_open(const fp8_context *ctx, const char *path,
                               fp8_activation_scales **out, fp8_error *err);
void fp8_activation_free(const fp8_context *ctx, fp8_activation_scales *scales);
/* A hash of all of it; 0 for NULL. */
uint64_t fp8_activation_hash(const fp8_activation_scales *scales);
/* The scale of the module that owns the weight `name`; NOT_FOUND if the file has none. */
fp8_status fp8_activation_find(const fp8_activation_scales *scales, const char *name,
                               uint64_t name_bytes, float *out, fp8_error *err);

#endif
