/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8.h - the whole public interface of libfp8: FP8 numbers, quantizers and checkpoints.
 *
 * Read it from the top and stop when you have what you need:
 *   1 conventions   2 version   3 status and errors   4 dtypes   5 tensors   6 context
 *   7 quantize      8 checkpoints   9 conversion   10 verify and diff   11 introspection
 *
 * In short, a bf16 matrix with one fp32 scale per 128 x 128 block (README.md has it as a program):
 *
 *     fp8_context *ctx;
 *     fp8_error err;
 *     if (fp8_context_create(NULL, &ctx, &err) != FP8_OK)
 *         return fprintf(stderr, "%s\n", err.msg), 1;
 *     fp8_tensor x = fp8_matrix(weights, FP8_BF16, 4096, 4096);
 *     fp8_tensor codes = fp8_matrix(bytes, FP8_E4M3FN, 4096, 4096);
 *     fp8_tensor scales = fp8_matrix(floats, FP8_F32, 32, 32);
 *     fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
 *     desc.grid = (fp8_grid){128, 128};
 *     if (fp8_quantize(ctx, &desc, &x, &codes, &scales, &err) != FP8_OK)
 *         return fprintf(stderr, "%s\n", err.msg), 1;
 *     fp8_context_free(ctx);
 */
#ifndef FP8_H
#define FP8_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(FP8_STATIC) || !defined(__GNUC__)
#define FP8_API
#else
#define FP8_API __attribute__((visibility("default")))
#endif

/* ---- 1. Conventions ----
 * Matrices are row-major views with strides in elements; sizes in bytes end in `_bytes`.
 * A linear layer is Y[M,N] = X[M,K] W[N,K]^T + bias[N]; a weight is [N,K] = [out,in].
 * A scale multiplies: real = code * scale. Checkpoints call the same multiplier `weight_scale`,
 *   `weight_scale_inv` or `scale_weight`; the number never changes its meaning.
 * Every descriptor starts with `struct_bytes`, set by its *_INIT macro; a field that is zero means
 *   its default; new fields are added only at the end.
 * Text is UTF-8. Returned `const char *` belongs to the object that returned it, or is static.
 * The library never prints, exits or aborts, and keeps no mutable global state.
 * Outputs are undefined after an error, unless a function says otherwise.
 */

/* ---- 2. Version ---- */
#define FP8_VERSION_MAJOR 0
#define FP8_VERSION_MINOR 1
#define FP8_VERSION_PATCH 0

/* The version of the loaded library as "0.1.0". Any thread; static storage. */
FP8_API const char *fp8_version(void);

/* ---- 3. Status and errors ---- */

/* What went wrong, in decades; the values are part of the ABI and never change. */
typedef enum fp8_status {
    FP8_OK = 0,
    FP8_E_ARGUMENT = 1, /* a NULL, a size or a flag that makes no sense */
    FP8_E_STATE = 2,    /* right call, wrong moment */
    FP8_E_STOPPED = 3,  /* the caller asked to stop */
    FP8_E_SHAPE = 10,
    FP8_E_STRIDE = 11,
    FP8_E_DTYPE = 12,
    FP8_E_SCALE = 13,
    FP8_E_NAN = 14,         /* NaN or infinity where the policy refuses it */
    FP8_E_UNSUPPORTED = 20, /* meaningful, but not defined or not built */
    FP8_E_NO_DEVICE = 21,
    FP8_E_NO_KERNEL = 22,
    FP8_E_FORMAT = 30, /* a file breaks a rule of its format */
    FP8_E_TRUNCATED = 31,
    FP8_E_NOT_FOUND = 32,
    FP8_E_EXISTS = 33,
    FP8_E_MISMATCH = 34, /* two things that must agree do not */
    FP8_E_IO = 40,
    FP8_E_NO_SPACE = 41,
    FP8_E_NO_MEMORY = 50,
} fp8_status;

/* The name of a status, such as "FP8_E_SHAPE"; "FP8_E_?" for a value that is none. Any thread. */
FP8_API const char *fp8_status_name(fp8_status status);

/* Details of a failure. Owned by the caller; every `fp8_error *` argument may be NULL. */
typedef struct fp8_error {
    fp8_status code;
    int os_errno;   /* errno of the failed system call, 0 if none */
    int64_t pos;    /* byte in the file, or element in the matrix; -1 if none */
    char msg[1024]; /* one line: the file, the tensor, the rule and the numbers */
} fp8_error;

/* ---- 4. Dtypes ---- */

/* Element types; the names are those of the safetensors format without the underscore games of
 * frameworks. Arithmetic is defined for F32, F16, BF16 and the 8-bit floats; the rest is carried.
 */
typedef enum fp8_dtype {
    FP8_DTYPE_NONE = 0,
    FP8_F32 = 1,
    FP8_F16 = 2,
    FP8_BF16 = 3,
    FP8_E4M3FN = 4,   /* OCP e4m3: max 448, no infinity, NaN 0x7F and 0xFF */
    FP8_E4M3FNUZ = 5, /* max 240, no infinity, no -0, NaN 0x80 */
    FP8_E5M2 = 6,     /* max 57344, infinities, NaN 0x7D..0x7F with either sign */
    FP8_E5M2FNUZ = 7, /* max 57344, no infinity, no -0, NaN 0x80 */
    FP8_E8M0FNU = 8,  /* scales only: 2^(code-127), NaN 0xFF, no zero, no sign */
    FP8_F64 = 16,
    FP8_C64 = 17,
    FP8_BOOL = 18,
    FP8_U8 = 19,
    FP8_I8 = 20,
    FP8_U16 = 21,
    FP8_I16 = 22,
    FP8_U32 = 23,
    FP8_I32 = 24,
    FP8_U64 = 25,
    FP8_I64 = 26,
    FP8_F4 = 27,      /* 4 bits an element */
    FP8_F6_E2M3 = 28, /* 6 bits an element */
    FP8_F6_E3M2 = 29,
} fp8_dtype;

/* The safetensors name, such as "F8_E4M3"; NULL if `dtype` is none of the list. Any thread. */
FP8_API const char *fp8_dtype_name(fp8_dtype dtype);
/* The dtype of a safetensors name (exact), FP8_DTYPE_NONE if there is none. Any thread. */
FP8_API fp8_dtype fp8_dtype_parse(const char *name);
/* Bits an element, 0 if `dtype` is none of the list. Any thread. */
FP8_API int fp8_dtype_bits(fp8_dtype dtype);

/* ---- 5. Tensors ---- */
#define FP8_MAX_DIMS 4

/* A view of memory that the caller owns. Element (i,j,..) is at data[i*stride[0]+j*stride[1]+..];
 * strides are in elements and may be 0 or negative for inputs. Data needs no alignment. */
typedef struct fp8_tensor {
    void *data; /* may be NULL if there are no elements */
    fp8_dtype dtype;
    int32_t ndim;                 /* 0..FP8_MAX_DIMS */
    int64_t shape[FP8_MAX_DIMS];  /* >= 0 */
    int64_t stride[FP8_MAX_DIMS]; /* in elements */
} fp8_tensor;

/* A contiguous row-major matrix [rows, cols] over `data`. Any thread; nothing is checked or copied.
 */
static inline fp8_tensor fp8_matrix(void *data, fp8_dtype dtype, int64_t rows, int64_t cols)
{
    fp8_tensor t = {data, dtype, 2, {rows, cols, 0, 0}, {cols, 1, 0, 0}};
    return t;
}

/* ---- 6. Context ---- */

/* Memory hook for all host memory of a context. `alloc` returns NULL on failure and memory aligned
 * for any type; both may be called from several threads at once. */
typedef struct fp8_allocator {
    void *(*alloc)(void *user, size_t bytes);
    void (*free)(void *user, void *ptr); /* ptr may be NULL */
    void *user;
} fp8_allocator;

/* Runs body(arg, i) for every i in [0,n), each exactly once, in any order and on any threads, and
 * returns when all are done. */
typedef void (*fp8_parallel_for)(void *user, int64_t n, void (*body)(void *arg, int64_t i),
                                 void *arg);

typedef struct fp8_context_desc {
    uint32_t struct_bytes;
    int32_t threads; /* 0 = as many as the process may use; ignored with parallel_for */
    fp8_parallel_for parallel_for; /* NULL = OpenMP */
    void *parallel_user;
    fp8_allocator allocator; /* alloc NULL = malloc and free; both functions or none */
} fp8_context_desc;
#define FP8_CONTEXT_DESC_INIT              \
    {                                      \
        sizeof(fp8_context_desc), 0, 0, 0, \
        {                                  \
            0, 0, 0                        \
        }                                  \
    }

/* What the calls below run on and with. Immutable after create: any number of threads may share it.
 */
typedef struct fp8_context fp8_context;

/* Makes a context. desc NULL = all defaults. The environment variable FP8_CPU_ISA (scalar, avx2,
 * avx512), read here once, caps the instruction set. Free with fp8_context_free after everything
 * that was made with it. Errors: ARGUMENT, NO_MEMORY. */
FP8_API fp8_status fp8_context_create(const fp8_context_desc *desc, fp8_context **out,
                                      fp8_error *err);
/* NULL is a no-op. */
FP8_API void fp8_context_free(fp8_context *ctx);

/* ---- 7. Quantize ---- */

/* The extent of one scale's block on a matrix [R,C]; 0 = the whole extent. Edge blocks may be
 * partial. tensor {0,0} . row (token of X, channel of W) {1,0} . column {0,1} . group {1,128} block
 * {128,128} . MX {1,32} with e8m0 scales The scales are a matrix [ceil(R/rows), ceil(C/cols)]. */
typedef struct fp8_grid {
    int64_t rows, cols;
} fp8_grid;

/* Whose arithmetic to follow; docs/numerics.md has each rule's formula. A pair of rule and grid
 * that the original does not define is refused with FP8_E_UNSUPPORTED. */
typedef enum fp8_rule {
    FP8_RULE_BEST =
        0, /* fp32 throughout, true division, one rounding, safe for zero and tiny blocks */
    FP8_RULE_VLLM = 1,        /* the CUDA kernels, and per_block_cast_to_fp8 for blocks */
    FP8_RULE_VLLM_NATIVE = 2, /* the torch-compiled path */
    FP8_RULE_VLLM_TRITON = 3,
    FP8_RULE_VLLM_INPUT_TO_FLOAT8 = 4,
    FP8_RULE_COMPRESSED_TENSORS = 5,            /* weights */
    FP8_RULE_COMPRESSED_TENSORS_ACTIVATION = 6, /* -0 becomes +0 */
    FP8_RULE_TRANSFORMERS = 7,
    FP8_RULE_TORCHAO = 8,
    FP8_RULE_TORCHAO_TRAIN = 9,
    FP8_RULE_MX_FLOOR = 10, /* torchao's four exponent rules for MX */
    FP8_RULE_MX_CEIL = 11,
    FP8_RULE_MX_EVEN = 12,
    FP8_RULE_MX_RCEIL = 13,
    FP8_RULE_MODELOPT = 14,
    FP8_RULE_DEEPSEEK = 15, /* DeepGEMM's per_block_cast and per_token_cast */
    FP8_RULE_SLIME = 16,
    FP8_RULE_MX_OCP = 17, /* the floor rule of the OCP MX specification, exact at 2^-127 */
} fp8_rule;

/* What to do about NaN and infinity in the input. */
typedef enum fp8_nan_policy {
    FP8_NAN_REFUSE = 0,    /* FP8_E_NAN; err->pos = row * cols + column of the first one */
    FP8_NAN_PROPAGATE = 1, /* NaN stays NaN, infinity saturates; neither takes part in the amax */
    FP8_NAN_ORIGINAL = 2,  /* as the rule's original does */
} fp8_nan_policy;

typedef struct fp8_quantize_desc {
    uint32_t struct_bytes;
    fp8_rule rule;
    fp8_grid grid;
    fp8_nan_policy nan;
    int32_t static_scales; /* nonzero: `scales` is an input */
    int32_t pow2_scales;   /* nonzero: round dynamic scales up to powers of two ("ue8m0") */
    float scale_ub;        /* upper bound on the amax before it is divided by the format's maximum;
                              0 = none. As vLLM's scale_ub. */
} fp8_quantize_desc;
#define FP8_QUANTIZE_DESC_INIT                                                       \
    {                                                                                \
        sizeof(fp8_quantize_desc), FP8_RULE_BEST, {0, 0}, FP8_NAN_REFUSE, 0, 0, 0.0f \
    }

/* codes[R',C], scales[ceil(R/gr), ceil(C/gc)] = quantize(x[R,C]): codes[i,j] ~ x[i,j] / scale.
 * x is F32, F16 or BF16 with any strides; codes E4M3FN, E4M3FNUZ or E5M2; scales F32, BF16, F16 or
 * E8M0FNU. R' >= R: the rows from R on are set to zero codes (vLLM's num_token_padding).
 * Outputs must not overlap the input or each other, nor themselves through their strides.
 * The same bytes for any number of threads and any instruction set.
 * Errors: ARGUMENT, SHAPE, STRIDE, DTYPE, SCALE (a static scale that is not finite and positive, or
 * a dynamic one too large for its dtype), NAN, UNSUPPORTED, NO_MEMORY. Any thread. */
FP8_API fp8_status fp8_quantize(const fp8_context *ctx, const fp8_quantize_desc *desc,
                                const fp8_tensor *x, fp8_tensor *codes, fp8_tensor *scales,
                                fp8_error *err);

/* y[R,C] = codes[R,C] * scales[ceil(R/gr), ceil(C/gc)], computed in fp32 and rounded once to y's
 * dtype (F32, F16, BF16; nearest even, overflow to infinity). Errors: as fp8_quantize. Any thread.
 */
FP8_API fp8_status fp8_dequantize(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                                  const fp8_tensor *scales, fp8_tensor *y, fp8_error *err);

/* codes_out, scales_out = quantize(codes * scales) with another grid, code or scale dtype, without
 * a full high-precision copy between. `from` is the grid of `scales`. The same grid, rule BEST and
 * equal dtypes copy. Errors: as fp8_quantize. Any thread. */
FP8_API fp8_status fp8_requantize(const fp8_context *ctx, fp8_grid from, const fp8_tensor *codes,
                                  const fp8_tensor *scales, const fp8_quantize_desc *to,
                                  fp8_tensor *codes_out, fp8_tensor *scales_out, fp8_error *err);

/* dst[n] = convert(src[n]), element by element, between F32, F16, BF16 and the 8-bit floats, to
 * nearest even. saturate nonzero: finite overflow and infinity become the largest finite value;
 * zero: they become infinity, or NaN where the format has none. NaN stays NaN. For E8M0FNU: the
 * nearest power of two, 1.5 * 2^k up, zero and negative values become NaN; with saturate: the least
 * power of two that is not smaller, zero and negative values 2^-127. Errors: ARGUMENT (a NULL with
 * n > 0, n < 0, src and dst overlap), DTYPE. Any thread. */
FP8_API fp8_status fp8_cast(const fp8_context *ctx, const void *src, fp8_dtype src_dtype, void *dst,
                            fp8_dtype dst_dtype, int64_t n, int saturate, fp8_error *err);

/* ---- 8. Checkpoints ---- */

/* An open checkpoint: one safetensors file, or all shards of an index or a directory. The headers
 * are read and checked at open; tensor data only when asked for. Const calls may be made by any
 * number of threads at once. */
typedef struct fp8_checkpoint fp8_checkpoint;

typedef struct fp8_tensor_info {
    const char *name;  /* NUL-terminated, but may hold NUL itself: */
    size_t name_bytes; /* its length */
    fp8_dtype dtype;
    int32_t ndim;
    const int64_t *shape; /* [ndim]; ndim may exceed FP8_MAX_DIMS */
    uint64_t bytes;
    const char *file; /* path of the shard */
    uint64_t offset;  /* of the data in that file, in bytes */
} fp8_tensor_info;

/* Opens `path`: a .safetensors file, an index (.json), or a directory, read by its
 * model.safetensors.index.json, else its only other *.safetensors.index.json, else its
 * model.safetensors, else all its *.safetensors. Errors: FORMAT, TRUNCATED, NOT_FOUND, UNSUPPORTED
 * (shapes or metadata too many to hold in bounded memory), IO, NO_MEMORY; the message names the
 * rule that is broken. Close with fp8_checkpoint_close. */
FP8_API fp8_status fp8_checkpoint_open(const fp8_context *ctx, const char *path,
                                       fp8_checkpoint **out, fp8_error *err);
/* NULL is a no-op. */
FP8_API void fp8_checkpoint_close(fp8_checkpoint *ckpt);
FP8_API int64_t fp8_checkpoint_count(const fp8_checkpoint *ckpt);
/* Tensor i of the checkpoint, ordered by shard and data offset; ARGUMENT past the last. The texts
 * belong to ckpt. */
FP8_API fp8_status fp8_checkpoint_tensor(const fp8_checkpoint *ckpt, int64_t i,
                                         fp8_tensor_info *out);
/* The tensor called `name`; NOT_FOUND if there is none. */
FP8_API fp8_status fp8_checkpoint_find(const fp8_checkpoint *ckpt, const char *name,
                                       size_t name_bytes, fp8_tensor_info *out);
/* dst = bytes [begin, begin + bytes) of a tensor's data; info is this checkpoint's. Errors:
 * ARGUMENT (outside the tensor), IO, TRUNCATED, MISMATCH (the file was changed after open),
 * NOT_FOUND (it is gone). */
FP8_API fp8_status fp8_checkpoint_read(const fp8_checkpoint *ckpt, const fp8_tensor_info *info,
                                       uint64_t begin, uint64_t bytes, void *dst, fp8_error *err);
/* The dialect that config.json and the tensors speak, such as "hf-block"; "none" if nothing is
 * quantized, "unknown" if it is and no dialect matches, NULL if there is no memory to tell. */
FP8_API const char *fp8_checkpoint_dialect(const fp8_checkpoint *ckpt);
/* Things that are odd but legal (an index total that is wrong, a tensor that it does not list ..):
 * line i, NULL past the last. */
FP8_API const char *fp8_checkpoint_warning(const fp8_checkpoint *ckpt, int64_t i);

/* ---- 9. Conversion ---- */

typedef enum fp8_verb {
    FP8_QUANTIZE = 0,   /* high precision -> FP8 */
    FP8_DEQUANTIZE = 1, /* FP8 of any dialect -> high precision */
    FP8_CONVERT = 2,    /* FP8 of any dialect -> FP8 of another */
} fp8_verb;

typedef enum fp8_pattern_kind {
    FP8_PATTERN_KEEP = 0, /* matching tensors are copied as they are */
    FP8_PATTERN_ONLY = 1, /* only matching tensors are quantized */
    FP8_PATTERN_SET = 2,  /* matching tensors are quantized with `scheme` */
} fp8_pattern_kind;

/* A choice by tensor name: a shell glob over the whole name (with or without ".weight"), or "re:"
 * and a Perl-compatible expression that must match at the start. Later patterns win; a pattern that
 * matches nothing is an error. */
typedef struct fp8_pattern {
    fp8_pattern_kind kind;
    const char *text;
    const char *scheme; /* for SET */
} fp8_pattern;

typedef struct fp8_convert_desc {
    uint32_t struct_bytes;
    fp8_verb verb;
    const char *src;      /* directory, index or .safetensors file */
    const char *dst;      /* directory to make; must not exist, nor lie inside src */
    const char *scheme;   /* NULL = "hf-block"; fp8_scheme() lists them */
    const char *engine;   /* "vllm" (NULL), "transformers", "sglang", "tensorrt-llm" */
    const char *numerics; /* NULL = "best"; fp8_rule_name() lists them */
    fp8_dtype dtype;      /* of what is dequantized: BF16, F16, F32; 0 = BF16, for CONVERT what
                             config.json names */
    int32_t keep_nan;     /* nonzero: a tensor with NaN or infinity is kept in high precision with a
                             warning; zero: it is an error */
    const fp8_pattern *patterns; /* copied */
    size_t pattern_count;
    uint64_t max_memory_bytes;      /* 0 = 256 MiB; the resident size to stay within */
    uint64_t max_shard_bytes;       /* 0 = as the source is sharded */
    int32_t resume;                 /* nonzero: go on with DST.partial */
    int32_t force;                  /* nonzero: replace an existing dst */
    int32_t part_index, part_count; /* 1-based "--shard I/N"; 0,0 = all */
    const char *report;             /* FILE.html or FILE.json, NULL = none */
    const char
        *activation_scales; /* safetensors or JSON file of static activation scales, or NULL */
} fp8_convert_desc;
#define FP8_CONVERT_DESC_INIT                                                                    \
    {                                                                                            \
        sizeof(fp8_convert_desc), FP8_QUANTIZE, 0, 0, 0, 0, 0, FP8_DTYPE_NONE, 0, 0, 0, 0, 0, 0, \
            0, 0, 0, 0, 0                                                                        \
    }

/* A planned conversion. One thread at a time, fp8_convert_stop excepted. */
typedef struct fp8_convert fp8_convert;

/* What will happen to one source tensor, and why. Texts belong to the plan. */
typedef struct fp8_plan_row {
    const char *name;
    const char *action; /* "quantize", "keep", "dequantize", "requantize", "rename", "drop" */
    const char *scheme; /* of the output; "" when kept */
    const char *reason; /* the rule or the pattern that decided */
    fp8_dtype dtype_in, dtype_out;
    int32_t ndim;
    const int64_t *shape;
    uint64_t bytes_in, bytes_out; /* scales included in bytes_out */
} fp8_plan_row;

typedef struct fp8_plan_summary {
    int64_t tensors, changed, kept;
    uint64_t bytes_in, bytes_out; /* of tensors, scales included */
    uint64_t disk_bytes;          /* of all files of the output: tensors, headers, index, config,
                                     and what is carried over */
    uint64_t peak_memory_bytes;   /* what run will need */
    uint64_t disk_free_bytes;     /* on the file system of dst */
    int64_t shards_out;
} fp8_plan_summary;

/* One step of progress; `tensor` is being worked on. */
typedef struct fp8_progress {
    uint64_t bytes_done, bytes_total; /* of input */
    int64_t tensors_done, tensors_total;
    double seconds;
    const char *tensor;  /* the one that was worked on last; "" if there is none yet */
    size_t tensor_bytes; /* its length: a name may hold a NUL */
} fp8_progress;

/* Called from the thread that called run, at most some ten times a second and once at the end. */
typedef void (*fp8_progress_fn)(void *user, const fp8_progress *progress);
/* A message that is no error: one line. */
typedef void (*fp8_message_fn)(void *user, const char *text);

/* Reads the headers of src, decides everything and checks it; writes nothing. Errors: those of
 * fp8_checkpoint_open, ARGUMENT, SHAPE (the rule does not take the weight's), DTYPE, SCALE (of
 * activations), UNSUPPORTED, EXISTS, MISMATCH, NOT_FOUND (a pattern without a match), NO_MEMORY
 * (also if max_memory_bytes is too little; the message names what would do). */
FP8_API fp8_status fp8_convert_plan(const fp8_context *ctx, const fp8_convert_desc *desc,
                                    fp8_convert **out, fp8_error *err);
FP8_API int64_t fp8_convert_count(const fp8_convert *conv);
FP8_API fp8_status fp8_convert_row(const fp8_convert *conv, int64_t i, fp8_plan_row *out);
/* Totals of the plan; zeros if conv is NULL, nothing if out is. */
FP8_API void fp8_convert_summary(const fp8_convert *conv, fp8_plan_summary *out);
/* Warning i of the plan and, later, of the run; NULL past the last. */
FP8_API const char *fp8_convert_warning(const fp8_convert *conv, int64_t i);
/* Does it: builds DST.partial, makes it durable, renames it to DST; once. Errors of the input,
 * after which DST.partial is removed: NAN, SCALE, and the others of fp8_quantize and
 * fp8_dequantize. DST.partial stays, and can be resumed, after STOPPED, IO, NO_SPACE, NO_MEMORY,
 * NOT_FOUND (the source went away) and EXISTS (so did the free name); it stays as it was after
 * MISMATCH (begun with other options) and STATE (another process is at work on it). ARGUMENT if
 * conv is NULL, STATE if it has run to its end. progress may be NULL. */
FP8_API fp8_status fp8_convert_run(fp8_convert *conv, fp8_progress_fn progress, void *user,
                                   fp8_error *err);
/* Asks a run to end with FP8_E_STOPPED soon. Any thread, and safe in a signal handler. */
FP8_API void fp8_convert_stop(fp8_convert *conv);
/* NULL is a no-op. */
FP8_API void fp8_convert_free(fp8_convert *conv);

/* ---- 10. Verify and diff ---- */

typedef struct fp8_verify_desc {
    uint32_t struct_bytes;
    const char *path;
    const char *against; /* the high-precision source to compare with, or NULL */
    const char *engine;  /* NULL = no engine's rules */
    int32_t tp;          /* tensor-parallel ranks to check for, 0 or 1 = none */
} fp8_verify_desc;
#define FP8_VERIFY_DESC_INIT                \
    {                                       \
        sizeof(fp8_verify_desc), 0, 0, 0, 0 \
    }

typedef struct fp8_finding {
    int32_t is_error;    /* zero: a warning */
    const char *rule;    /* short name of the rule, such as "scale-missing" */
    const char *tensor;  /* "" if it is not about one */
    const char *message; /* one line with the numbers */
} fp8_finding;
typedef void (*fp8_finding_fn)(void *user, const fp8_finding *finding);

typedef struct fp8_verify_summary {
    int64_t tensors, quantized, errors, warnings;
    int64_t compared;     /* tensors compared with the source */
    double worst_sqnr_db; /* of those that were quantized; +inf if none */
    double median_sqnr_db;
} fp8_verify_summary;

/* Checks a quantized checkpoint: container, index, scales, config, and against a source or an
 * engine where asked. Findings are reported as they are met; FP8_OK means that the check ran, not
 * that all is well. Any thread. Errors: ARGUMENT, NOT_FOUND (path itself), TRUNCATED
 * and MISMATCH (a file was changed after it was opened), IO, NO_MEMORY. */
FP8_API fp8_status fp8_verify(const fp8_context *ctx, const fp8_verify_desc *desc,
                              fp8_finding_fn fn, void *user, fp8_verify_summary *out,
                              fp8_error *err);

typedef enum fp8_diff_kind {
    FP8_DIFF_SAME = 0,
    FP8_DIFF_VALUES = 1,
    FP8_DIFF_DTYPE = 2, /* and values compared after dequantization */
    FP8_DIFF_SHAPE = 3,
    FP8_DIFF_ONLY_A = 4,
    FP8_DIFF_ONLY_B = 5,
} fp8_diff_kind;

typedef struct fp8_diff_row {
    const char *name;
    fp8_diff_kind kind;
    fp8_dtype dtype_a, dtype_b;
    int64_t differing;    /* elements whose values differ */
    double max_abs_error; /* in real values */
    double sqnr_db;       /* of b against a; +inf if equal */
} fp8_diff_row;
typedef void (*fp8_diff_fn)(void *user, const fp8_diff_row *row);

/* Compares two checkpoints tensor by tensor, quantized weights by their real values. Any thread.
 * Errors: ARGUMENT, those of fp8_checkpoint_open and fp8_checkpoint_read. */
FP8_API fp8_status fp8_diff(const fp8_context *ctx, const char *a, const char *b, fp8_diff_fn fn,
                            void *user, fp8_error *err);

/* ---- 11. Introspection ---- */

/* One output scheme of fp8_convert. Static texts. */
typedef struct fp8_scheme_info {
    const char *name;        /* "hf-block" */
    const char *grid;        /* "128x128" */
    const char *scale_name;  /* "weight_scale_inv" */
    const char *scale_dtype; /* "F32" */
    const char *activations; /* "dynamic 1x128" */
    const char *loaders;     /* "vllm sglang transformers tensorrt-llm" */
    const char *summary;
} fp8_scheme_info;
/* Scheme i; NOT_FOUND past the last. Any thread. */
FP8_API fp8_status fp8_scheme(int64_t i, fp8_scheme_info *out);
/* The name of rule i ("best", "vllm", ..), NULL past the last. Any thread. */
FP8_API const char *fp8_rule_name(int64_t i);
/* The name of engine i that can be converted and verified for ("vllm", "transformers", ..), NULL
 * past the last. Any thread. */
FP8_API const char *fp8_engine_name(int64_t i);
/* What this build and this machine are: line i ("isa: avx2 of avx512", "compiler: ..", "threads:
 * .."); NULL past the last. The texts belong to ctx. */
FP8_API const char *fp8_doctor(const fp8_context *ctx, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
