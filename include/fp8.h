/* SPDX-License-Identifier: Apache-2.0
 *
 * fp8.h - the whole public interface of libfp8: FP8 numbers, quantizers,
 * linear layers and checkpoints.
 *
 * Read it from the top and stop when you have what you need:
 *   1 conventions   2 version   3 status and errors   4 dtypes   5 tensors   6 context
 *   7 quantize      8 matmul and linear layers     9 fused weights, shards, GPUs
 *   10 layers and loading    11 checkpoints    12 conversion   13 verify and diff
 *   14 introspection
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
 *     if (fp8_quantize(ctx, &desc, &x, &codes, &scales, NULL, &err) != FP8_OK)
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
 * `stream`: on CUDA a CUstream of the context's device (a cudaStream_t, PyTorch's
 *   cuda_stream), NULL its legacy default stream; the call enqueues and returns, and what it was
 *   given must stay as it is until the stream has passed there. NULL on the CPU, where a call has
 *   done its work when it returns; another is ARGUMENT.
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
    FP8_E_DEVICE = 23, /* a device failed, in this call or in earlier work on it */
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

/* A contiguous vector [n] over `data`. Any thread; nothing is checked or copied. */
static inline fp8_tensor fp8_vector(void *data, fp8_dtype dtype, int64_t n)
{
    fp8_tensor t = {data, dtype, 1, {n, 0, 0, 0}, {1, 0, 0, 0}};
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
 * returns when all are done. One that has begun must be able to end: others may wait for it. */
typedef void (*fp8_parallel_for)(void *user, int64_t n, void (*body)(void *arg, int64_t i),
                                 void *arg);

/* Flags of a context. A row of Y has the same bits whatever other rows are multiplied with it, but
 * with FP8_ACTIVATION_DYNAMIC and one scale for all of X, which all rows make; costs speed at few
 * rows. Without it that holds only among calls for which the same kernel is chosen. */
enum { FP8_BATCH_INVARIANT = 1 };

/* Where a context works. */
typedef enum fp8_device {
    FP8_DEVICE_CPU = 0,
    FP8_DEVICE_CUDA = 1, /* what it can do: see fp8_context_create */
} fp8_device;

typedef struct fp8_context_desc {
    uint32_t struct_bytes;
    int32_t threads; /* 0 = as many as the process may use; with parallel_for: how many it has */
    fp8_parallel_for parallel_for; /* NULL = OpenMP */
    void *parallel_user;
    fp8_allocator allocator; /* alloc NULL = malloc and free; both functions or none */
    uint32_t flags;          /* FP8_BATCH_INVARIANT or 0 */
    fp8_device device;
    int32_t device_index; /* CUDA: which of those that its driver shows; else 0 */
    const char *tuned;    /* CUDA: a file that `fp8 tune` wrote, or NULL; read by create alone */
} fp8_context_desc;
#define FP8_CONTEXT_DESC_INIT                                                 \
    {                                                                         \
        sizeof(fp8_context_desc), 0, 0, 0, {0, 0, 0}, 0, FP8_DEVICE_CPU, 0, 0 \
    }

/* What the calls below run on and with. Immutable after create: any number of threads may share it.
 * After fork() a child uses a context of its own with one thread, or with a parallel_for: OpenMP of
 * gcc waits for ever for the threads that it had in the parent. */
typedef struct fp8_context fp8_context;

/* Makes a context. desc NULL = all defaults. The environment variable FP8_CPU_ISA (scalar, avx2,
 * avx512, avx512_bf16, amx), read here once, caps the instruction set. Free with fp8_context_free
 * after everything that was made with it.
 * For a CUDA device the driver is loaded (libcuda.so.1; no toolkit is needed) and the device's
 * primary context held, the one of PyTorch and CuPy; which context is current in a thread does not
 * change. All kernels are loaded here: the calls that use them only enqueue, allocate nothing, wait
 * for nothing (FP8_NAN_REFUSE does), and may be captured into a CUDA graph. What fails on the
 * device later is told by a later call, as DEVICE. fp8_convert_plan, fp8_verify and fp8_diff work
 * on the CPU only, and refuse such a context with UNSUPPORTED.
 * `tuned` says which kernels were the fastest on this kind of device for linears of some sizes, as
 * fp8-tune(1) has it; a line counts for all rows up to its M and above the step before (8, 16, 24,
 * 32, 48, 64, 96 ..), others are chosen as without the file. A line of a kernel that this library
 * has not is passed over (fp8_doctor counts them).
 * Errors: ARGUMENT, NO_MEMORY; for CUDA NO_DEVICE (no driver, or no device of that index),
 * UNSUPPORTED (a driver before CUDA 12.0, a compute capability below 8.0, a later format of the
 * file), NO_KERNEL (the driver cannot load the kernels), STATE, DEVICE; of the file NOT_FOUND, IO,
 * FORMAT and TRUNCATED (with the line and the rule), MISMATCH (measured on another device). */
FP8_API fp8_status fp8_context_create(const fp8_context_desc *desc, fp8_context **out,
                                      fp8_error *err);
/* NULL is a no-op. */
FP8_API void fp8_context_free(fp8_context *ctx);

/* Memory of the context's device, for who has no other way to it (a CUDA toolkit, a framework); on
 * the CPU that of its allocator, so that a program can be the same for both. Operations on CUDA
 * take any memory that the device can read, whoever allocated it; memory that it cannot read is
 * ARGUMENT, and so is that of another device, whatever the two may read of each other.
 * *out = `bytes` of it, aligned to 256 bytes on CUDA; NULL for 0 bytes there. Not while a stream of
 * this thread is captured. Errors: ARGUMENT, NO_MEMORY, STATE, DEVICE. Any thread. */
FP8_API fp8_status fp8_device_alloc(const fp8_context *ctx, uint64_t bytes, void **out,
                                    fp8_error *err);
/* Waits for what still uses the memory. NULL of either is a no-op. Any thread. */
FP8_API void fp8_device_free(const fp8_context *ctx, void *memory);
/* to[bytes] = from[bytes], between host and device in any direction, in stream order; host memory
 * that CUDA has not pinned makes the call wait, and is refused in a captured stream. Errors:
 * ARGUMENT, STATE, DEVICE. Any thread. */
FP8_API fp8_status fp8_device_copy(const fp8_context *ctx, void *to, const void *from,
                                   uint64_t bytes, void *stream, fp8_error *err);
/* Waits until the stream has done all its work; DEVICE if some of it failed. A no-op on the CPU.
 * Other errors: ARGUMENT, STATE. Any thread. */
FP8_API fp8_status fp8_device_wait(const fp8_context *ctx, void *stream, fp8_error *err);

/* ---- 7. Quantize ---- */

/* The extent of one scale's block on a matrix [R,C]; 0 = the whole extent. Edge blocks may be
 * partial. tensor {0,0} . row (token of X, channel of W) {1,0} . column {0,1} . group {1,128} block
 * {128,128} . MX {1,32} with e8m0 scales. The scales are a matrix [ceil(R/rows), ceil(C/cols)];
 * where R or C is 0, so is its number of scales. */
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
    FP8_NAN_REFUSE = 0,    /* FP8_E_NAN; err->pos = row * cols + column of the first one. A call on
                              CUDA that may not wait (fp8_linear_run, and all in a captured stream)
                              makes NaN of both instead, and NaN of what comes of it */
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
 * The same bytes for any number of threads, any instruction set, and on CUDA. There FP8_NAN_REFUSE
 * has the call wait for the stream, and needs a few bytes of the device's memory; but for it, the
 * call returns before x and the scales are read, and nothing in them is an error: a dynamic scale
 * too large for its dtype becomes infinity, a static one that is not finite and positive gives
 * codes that mean nothing. Errors: ARGUMENT, SHAPE, STRIDE, DTYPE, SCALE (a static scale that is
 * not finite and positive, or a dynamic one too large for its dtype), NAN, UNSUPPORTED, NO_MEMORY;
 * on CUDA also STATE, DEVICE. Any thread. */
FP8_API fp8_status fp8_quantize(const fp8_context *ctx, const fp8_quantize_desc *desc,
                                const fp8_tensor *x, fp8_tensor *codes, fp8_tensor *scales,
                                void *stream, fp8_error *err);

/* y[R,C] = codes[R,C] * scales[ceil(R/gr), ceil(C/gc)], computed in fp32 and rounded once to y's
 * dtype (F32, F16, BF16; nearest even, overflow to infinity). Errors: as fp8_quantize. Any thread.
 */
FP8_API fp8_status fp8_dequantize(const fp8_context *ctx, fp8_grid grid, const fp8_tensor *codes,
                                  const fp8_tensor *scales, fp8_tensor *y, void *stream,
                                  fp8_error *err);

/* codes_out, scales_out = quantize(codes * scales) with another grid, code or scale dtype, without
 * a full high-precision copy between. `from` is the grid of `scales`. The same grid, rule BEST and
 * equal dtypes copy. Errors: as fp8_quantize. Any thread. */
FP8_API fp8_status fp8_requantize(const fp8_context *ctx, fp8_grid from, const fp8_tensor *codes,
                                  const fp8_tensor *scales, const fp8_quantize_desc *to,
                                  fp8_tensor *codes_out, fp8_tensor *scales_out, void *stream,
                                  fp8_error *err);

/* dst[n] = convert(src[n]), element by element, between F32, F16, BF16 and the 8-bit floats, to
 * nearest even. saturate nonzero: finite overflow and infinity become the largest finite value;
 * zero: they become infinity, or NaN where the format has none. NaN stays NaN. For E8M0FNU: the
 * nearest power of two, 1.5 * 2^k up, zero and negative values become NaN; with saturate: the least
 * power of two that is not smaller, zero and negative values 2^-127. The same bytes on CUDA, where
 * src and dst are the device's. Errors: ARGUMENT (a NULL with n > 0, n < 0, src and dst overlap),
 * DTYPE; on CUDA also STATE, DEVICE. Any thread. */
FP8_API fp8_status fp8_cast(const fp8_context *ctx, const void *src, fp8_dtype src_dtype, void *dst,
                            fp8_dtype dst_dtype, int64_t n, int saturate, void *stream,
                            fp8_error *err);

/* ---- 8. Matmul and linear layers ----
 * Y[M,N] = X[M,K] W[N,K]^T + bias[N]. One description serves the one-shot fp8_matmul and the
 * prepared fp8_linear. Sums are fp32; their order depends on K, the scheme and the kernel, never on
 * the number of threads; docs/numerics.md has the formulas and the error bound.
 * The tensor cores of compute capability 9.0 sum 128 columns in 13 bits before that: Y in bf16 or
 * fp16 from codes of both is within 1e-3 of the sum of |x| |w| there, Y in fp32 within the bound.
 */

/* What happens to X before it is multiplied. */
typedef enum fp8_activation {
    FP8_ACTIVATION_NONE = 0,    /* X is BF16, F16 or F32 and stays so (weight-only, W8A16) */
    FP8_ACTIVATION_DYNAMIC = 1, /* the same, quantized inside with scales computed from it */
    FP8_ACTIVATION_STATIC = 2,  /* the same, quantized inside with the one scale `x_static` */
    FP8_ACTIVATION_CODES = 3,   /* X comes as codes, with x_scales */
} fp8_activation;

/* How sums become Y: acc is the fp32 sum, sx and sw the scales that are constant along K (a scale
 * that is not is applied to its part of the sum), round() the one to Y's dtype. */
typedef enum fp8_epilogue {
    FP8_EPILOGUE_FUSED = 0,     /* round(fma(sx, sw * acc, bias)), CUTLASS's order */
    FP8_EPILOGUE_UNFUSED = 1,   /* round((acc * sx) * sw + bias), vLLM's channelwise path */
    FP8_EPILOGUE_BIAS_LAST = 2, /* round(round((acc * sx) * sw) + bias), Triton and block kernels */
} fp8_epilogue;

/* What a weight is to the multiplication. */
typedef enum fp8_weight_math {
    FP8_WEIGHT_EXACT = 0,   /* code * scale */
    FP8_WEIGHT_ROUNDED = 1, /* round16(code * round16(scale)), round16() to X's dtype, which is BF16
                               or F16: vLLM's batch-invariant mode. With FP8_ACTIVATION_NONE. */
} fp8_weight_math;

/* How sums over K are made. */
typedef enum fp8_accumulation {
    FP8_ACCUMULATION_FP32 = 0, /* in fp32; see above for the tensor cores of 9.0 */
    FP8_ACCUMULATION_FAST = 1, /* those may sum all of K in 13 bits, truncating: up to 7 % too small
                                  at K = 4096 and 29 % at 16384 where all products have one sign,
                                  0.1 to 0.3 % of the norm with both. Elsewhere the same as FP32. */
} fp8_accumulation;

typedef struct fp8_linear_desc {
    uint32_t struct_bytes;
    fp8_activation activation;
    fp8_quantize_desc x; /* rule, grid, NaN policy .. of X; with CODES only the grid counts. The
                            grid is tensor {0,0} or has rows = 1. static_scales is ignored. */
    fp8_dtype x_code;    /* of X quantized inside: E4M3FN (0), E4M3FNUZ, E5M2 */
    fp8_dtype x_scale;   /* of the scales made inside: F32 (0), BF16, F16, E8M0FNU */
    float x_static;      /* for STATIC: the scale, finite and positive */
    fp8_quantize_desc w; /* grid of W's scales; for W in high precision also how it is quantized */
    fp8_dtype w_code;    /* for W in high precision: E4M3FN (0), E4M3FNUZ, E5M2 */
    fp8_dtype w_scale;   /* for W in high precision: F32 (0), BF16, F16, E8M0FNU */
    fp8_grid w_origin;   /* where W[0,0] lies in its first block, for a tensor-parallel shard whose
                            offset is no multiple of the block; {0,0} otherwise */
    const int64_t *widths; /* rows of each part of a fused weight, which then has w_scales[parts,1]
                              ([parts,0] if K is 0) and w.grid {0,0}; NULL = not fused. Copied. */
    size_t width_count;
    fp8_epilogue epilogue;
    fp8_weight_math weight_math;
    fp8_accumulation accumulation;
} fp8_linear_desc;
/* Weight-only, one scale for W; NaN in X goes through to Y. */
#define FP8_LINEAR_DESC_INIT                                                                   \
    {                                                                                          \
        sizeof(fp8_linear_desc), FP8_ACTIVATION_NONE,                                          \
            {sizeof(fp8_quantize_desc), FP8_RULE_BEST, {1, 0}, FP8_NAN_PROPAGATE, 0, 0, 0.0f}, \
            FP8_DTYPE_NONE, FP8_DTYPE_NONE, 0.0f, FP8_QUANTIZE_DESC_INIT, FP8_DTYPE_NONE,      \
            FP8_DTYPE_NONE, {0, 0}, NULL, 0, FP8_EPILOGUE_FUSED, FP8_WEIGHT_EXACT,             \
            FP8_ACCUMULATION_FP32                                                              \
    }

/* y[M,N] = x[M,K] w[N,K]^T + bias[N], in one call that prepares nothing; for more than one use of w
 * make a fp8_linear.
 * x: BF16, F16, F32, or codes E4M3FN, E4M3FNUZ, E5M2 with x_scales[ceil(M/gr), ceil(K/gc)].
 * w: the same codes with w_scales[ceil((N+origin)/gr), ceil((K+origin)/gc)], or high precision with
 * w_scales NULL, quantized on the way. Scales are F32, BF16, F16 or E8M0FNU, finite and positive.
 * bias: NULL, or a vector [N] of F32, BF16 or F16. y: BF16, F16 or F32.
 * Any strides for inputs; y must not overlap them, nor itself. M, N and K may be 0 (K = 0: y is the
 * bias). A NaN code makes NaN what it takes part in.
 * On CUDA w, w_scales and bias may lie on the host or on the device, the rest on the device; the
 * call waits for the stream.
 * Errors: ARGUMENT, SHAPE, STRIDE, DTYPE, SCALE (err->pos = the scale), NAN (the policy of x or w
 * refuses it), UNSUPPORTED, NO_MEMORY; on CUDA also STATE, DEVICE. Any thread. */
FP8_API fp8_status fp8_matmul(const fp8_context *ctx, const fp8_linear_desc *desc,
                              const fp8_tensor *x, const fp8_tensor *x_scales, const fp8_tensor *w,
                              const fp8_tensor *w_scales, const fp8_tensor *bias, fp8_tensor *y,
                              void *stream, fp8_error *err);

/* A weight prepared for its context's processor, with its scales and bias. Immutable: any number of
 * threads may run it at once. */
typedef struct fp8_linear fp8_linear;

/* Checks what create would, in its words, without touching data. Errors: as fp8_linear_create. */
FP8_API fp8_status fp8_linear_check(const fp8_context *ctx, const fp8_linear_desc *desc,
                                    const fp8_tensor *w, const fp8_tensor *w_scales,
                                    const fp8_tensor *bias, fp8_error *err);
/* Copies w[N,K], w_scales and bias (as in fp8_matmul) into the form that run reads, once, in a byte
 * a code (more if scales change along K at columns that are no multiple of 4: 8/7 of it with 1x7);
 * the caller may free them. Free with fp8_linear_free, before ctx.
 * On CUDA they lie on the host or on the device, and what the caller has enqueued that writes them
 * is done or in a stream that the default stream waits for. A weight in high precision is quantized
 * where it lies: what the host has by the CPU, some rows at a time into pinned memory (8 MiB for
 * the context, from the first use on), so that the device holds the linear and no more. Rows are
 * padded to 16 bytes, nothing else. A run only enqueues: x_scales that are not finite and positive
 * are not told, and are used. Errors: as fp8_matmul. */
FP8_API fp8_status fp8_linear_create(const fp8_context *ctx, const fp8_linear_desc *desc,
                                     const fp8_tensor *w, const fp8_tensor *w_scales,
                                     const fp8_tensor *bias, fp8_linear **out, fp8_error *err);
/* A deep copy. Errors: ARGUMENT, NO_MEMORY; on CUDA also STATE, DEVICE. Any thread. */
FP8_API fp8_status fp8_linear_clone(const fp8_linear *linear, fp8_linear **out, fp8_error *err);
/* NULL is a no-op. */
FP8_API void fp8_linear_free(fp8_linear *linear);

typedef struct fp8_linear_info {
    int64_t n, k;                     /* rows (outputs) and columns (inputs) of W */
    fp8_dtype code, scale;            /* dtypes of codes and scales, as exported */
    int64_t scale_rows, scale_cols;   /* shape of the scales, as exported */
    uint64_t code_bytes, scale_bytes; /* held for codes and for scales */
    uint64_t other_bytes;             /* bias and the rest */
} fp8_linear_info;
/* Any thread; NULL of either is ARGUMENT. */
FP8_API fp8_status fp8_linear_get_info(const fp8_linear *linear, fp8_linear_info *out);
/* codes[N,K] and scales[scale_rows, scale_cols] (either may be NULL) = what create was given or
 * made, bit for bit, into contiguous or strided views of the dtypes of fp8_linear_get_info, on CUDA
 * on the host or on the device. Errors: ARGUMENT, SHAPE, STRIDE, DTYPE; on CUDA also NO_MEMORY,
 * STATE, DEVICE. Any thread. */
FP8_API fp8_status fp8_linear_export(const fp8_linear *linear, fp8_tensor *codes,
                                     fp8_tensor *scales, fp8_error *err);

/* Bytes of workspace that fp8_linear_run and fp8_linear_run_dx need for up to m rows of any dtype;
 * grows with m. Errors: ARGUMENT (m < 0), SHAPE (too large to address). Any thread. */
FP8_API fp8_status fp8_linear_workspace(const fp8_linear *linear, int64_t m, uint64_t *bytes,
                                        fp8_error *err);
/* y[M,N] = x[M,K] W^T + bias, as fp8_matmul; x_scales NULL unless the activation is CODES.
 * workspace: memory for this call alone, no alignment needed. Allocates nothing. On CUDA x, y and
 * the workspace are the device's. Errors: those of fp8_matmul except NO_MEMORY; ARGUMENT also if
 * the workspace is too small. Any thread. */
FP8_API fp8_status fp8_linear_run(const fp8_linear *linear, const fp8_tensor *x,
                                  const fp8_tensor *x_scales, fp8_tensor *y, void *workspace,
                                  uint64_t workspace_bytes, void *stream, fp8_error *err);
/* fp8_linear_run by the kernel of that name, one of fp8_explain's, instead of the one that it would
 * choose: to measure kernels, and to search for faults. For CUDA. Errors also: UNSUPPORTED (the
 * CPU), NO_KERNEL (there is no such kernel, or it cannot do this). */
FP8_API fp8_status fp8_linear_run_kernel(const fp8_linear *linear, const char *kernel,
                                         const fp8_tensor *x, const fp8_tensor *x_scales,
                                         fp8_tensor *y, void *workspace, uint64_t workspace_bytes,
                                         void *stream, fp8_error *err);
/* dx[M,K] = dy[M,N] W with W = code * scale and fp32 sums: the gradient of a layer for its input,
 * its activations' quantization counted as none. dy and dx: BF16, F16, F32. Workspace, stream,
 * errors and threads as fp8_linear_run; UNSUPPORTED for rounded weights. */
FP8_API fp8_status fp8_linear_run_dx(const fp8_linear *linear, const fp8_tensor *dy, fp8_tensor *dx,
                                     void *workspace, uint64_t workspace_bytes, void *stream,
                                     fp8_error *err);

/* One way to compute a linear, and what became of it. Static texts, but for reason. */
typedef struct fp8_candidate {
    const char *kernel; /* "panel_bf16_avx512" */
    const char *isa;    /* the level it needs */
    int32_t chosen;     /* exactly one candidate is */
    char reason[160];   /* why it was chosen, or what it lacks */
} fp8_candidate;
/* Candidate i for a linear of this description with M rows of x_dtype (a code's with CODES), all as
 * kernels like it: contiguous, aligned, Y in BF16; and a weight [n, k] of w_code whose scales are
 * of desc->w_scale, even if it comes as codes. NOT_FOUND past the last. Other errors: as
 * fp8_linear_check. Any thread. */
FP8_API fp8_status fp8_explain(const fp8_context *ctx, const fp8_linear_desc *desc, int64_t m,
                               int64_t n, int64_t k, fp8_dtype x_dtype, fp8_dtype w_code, int64_t i,
                               fp8_candidate *out, fp8_error *err);

/* ---- 9. Fused weights, shards and what GPUs support ----
 * What a loader does with the scales of a checkpoint before a linear is made of it, by the formulas
 * of vLLM at 017e9f44 (w8a8_utils, fp8_utils, marlin_utils, scaled_mm_entry.cu). No function here
 * allocates. per_tensor_dequantize is fp8_dequantize with grid {0,0}: to F16 with an F32 scale (a
 * scalar on the CPU) or an F16 one (on a GPU), to F32 for a vector of one scale.
 */

/* *close = 1 if every x[j] is close to x[0], |x[0] - x[j]| <= 1e-8 + |1e-5 x[j]| in fp32, else 0:
 * whether a fused weight's scales may be taken for one. Equal infinities are close, NaN is to
 * nothing, not even a single one to itself; of no elements all are close.
 * x: vector [n] of F32, F16 or BF16, any stride. Errors: ARGUMENT, SHAPE (no vector), DTYPE. Any
 * thread. Source: all_close_1d. */
FP8_API fp8_status fp8_all_close_1d(const fp8_tensor *x, int32_t *close, fp8_error *err);

/* The parts of a fused weight W[N,K], one above the other: q, k and v, or gate and up. */
typedef struct fp8_fused_desc {
    uint32_t struct_bytes;
    const int64_t *widths; /* rows of each part, >= 0; they add up to N */
    size_t width_count;
    fp8_dtype scale_math; /* what a part's scale is rounded to before it multiplies: F32 (0), as
                             PyTorch does with a scalar on the CPU, or F16, as on a GPU */
} fp8_fused_desc;
#define FP8_FUSED_DESC_INIT                          \
    {                                                \
        sizeof(fp8_fused_desc), 0, 0, FP8_DTYPE_NONE \
    }

/* channelwise[N,1]: every row gets the scale of its part.
 * scales: vector [parts] of F32, F16 or BF16; channelwise: a matrix of the same dtype, any strides.
 * Errors: ARGUMENT, SHAPE, STRIDE, DTYPE. Any thread. Source: convert_to_channelwise. */
FP8_API fp8_status fp8_channelwise_scales(const fp8_fused_desc *desc, const fp8_tensor *scales,
                                          fp8_tensor *channelwise, fp8_error *err);

/* One scale for a fused weight: *max_scale = max(scales), codes_out[N,K] = the codes to it.
 *     w = f16(f16(code) * scale_of_its_part)         overflow to infinity
 *     code_out = encode(clamp(w * (1 / max_scale), -448, 448))        in fp32
 * Codes are kept as they are where the checkpoint holds one scale: `scales` has no dimension, or
 * the last of them is not above -448, which is what a slot that nothing was loaded to looks like.
 * Scales may be any numbers; a NaN among them is the maximum. Equal scales are requantized too.
 * codes, codes_out: E4M3FN [N,K], any strides; they may be the same memory in the same layout.
 * scales: F32, vector [parts] or a scalar. Errors: ARGUMENT, SHAPE, STRIDE, DTYPE. Any thread.
 * Source: requantize_with_max_scale; best accuracy is a linear with `widths` instead. */
FP8_API fp8_status fp8_requantize_with_max_scale(const fp8_fused_desc *desc,
                                                 const fp8_tensor *codes, const fp8_tensor *scales,
                                                 fp8_tensor *codes_out, float *max_scale,
                                                 fp8_error *err);

/* Makes an OCP weight one of e4m3fnuz, in place: the code 0x80, -0, becomes 0; all others stay,
 * worth half; the scales are doubled (E8M0FNU: at most 2^127). The NaN codes become +-240.
 * codes: E4M3FN, matrix, any distinct strides; its dtype is E4M3FNUZ after success. Scales (either
 * may be NULL): F32, F16, BF16 or E8M0FNU, matrix. Errors: ARGUMENT, SHAPE, STRIDE, DTYPE, and then
 * nothing is changed. Source: normalize_e4m3fn_to_e4m3fnuz. */
FP8_API fp8_status fp8_normalize_e4m3fn_to_e4m3fnuz(fp8_tensor *codes, fp8_tensor *weight_scales,
                                                    fp8_tensor *input_scales, fp8_error *err);

/* The blocks that elements [offset, offset + size) of a dimension touch. */
typedef struct fp8_block_shard {
    int64_t first, count; /* of blocks, which are those of the scales that the shard needs */
    int64_t origin;       /* of the shard in its first block: fp8_linear_desc.w_origin */
} fp8_block_shard;
/* first = offset / block, first + count = ceil((offset + size) / block), origin = offset % block;
 * size 0: count 0. Errors: ARGUMENT (a negative number, block 0, out NULL), SHAPE (the end is above
 * INT64_MAX). Any thread. */
FP8_API fp8_status fp8_block_shard_of(int64_t offset, int64_t size, int64_t block,
                                      fp8_block_shard *out, fp8_error *err);

/* A weight [N,K] with a scale a block, cut for tensor parallelism. */
typedef struct fp8_block_shape_desc {
    uint32_t struct_bytes;
    int64_t n, k;          /* of the whole weight */
    int64_t k_shard;       /* columns of a rank */
    const int64_t *widths; /* rows of a rank, one for each part of a merged weight */
    size_t width_count;
    int64_t tp; /* ranks, >= 1 */
    fp8_grid block;
    int32_t allow_mismatch; /* nonzero: anything goes */
} fp8_block_shape_desc;
#define FP8_BLOCK_SHAPE_DESC_INIT                                     \
    {                                                                 \
        sizeof(fp8_block_shape_desc), 0, 0, 0, 0, 0, 1, {128, 128}, 0 \
    }
/* Whether vLLM loads such a shard: columns cut among ranks must be whole blocks, rows cut among
 * ranks too, and those of a merged weight, but for the last part of one that is not cut. This
 * library takes what it refuses, by w_origin. Errors: SHAPE, the reason in vLLM's words; ARGUMENT.
 * Any thread. Source: validate_fp8_block_shape. */
FP8_API fp8_status fp8_validate_block_shape(const fp8_block_shape_desc *desc, fp8_error *err);

/* What vLLM asks of a GPU before it uses a kernel. */
typedef enum fp8_gpu_feature {
    FP8_GPU_FP8 = 0,                 /* cutlass_scaled_mm_supports_fp8 */
    FP8_GPU_BLOCK_FP8 = 1,           /* cutlass_scaled_mm_supports_block_fp8 */
    FP8_GPU_GROUPED_GEMM = 2,        /* cutlass_group_gemm_supported, as Python gates it */
    FP8_GPU_GROUPED_GEMM_KERNEL = 3, /* the same without the gate */
    FP8_GPU_SPARSE_24 = 4,           /* cutlass_sparse_scaled_mm_supported, since removed */
} fp8_gpu_feature;
/* 1 if a CUDA GPU of the compute capability (90 for sm_90; -1: none) has the feature in a build by
 * the CUDA version (12030 for 12.3), else 0; 0 for another feature. Any thread. */
FP8_API int fp8_gpu_supports(fp8_gpu_feature feature, int32_t capability, int32_t cuda_version);

/* What computes a linear in vLLM. */
typedef enum fp8_kernel_class {
    FP8_CLASS_CUTLASS = 0,
    FP8_CLASS_ROCM_PER_TENSOR = 1,
    FP8_CLASS_TORCH_PER_TENSOR = 2,
    FP8_CLASS_TORCH_PER_TOKEN = 3,
    FP8_CLASS_TORCH_CHANNELWISE = 4,
    FP8_CLASS_MARLIN = 5, /* weight-only */
    FP8_CLASS_CUTLASS_BLOCK = 6,
    FP8_CLASS_TRITON_BLOCK = 7,
} fp8_kernel_class;

/* The facts that dispatch_w8a8_scaled_mm asks for; each is 0 or 1. */
typedef struct fp8_dispatch_desc {
    uint32_t struct_bytes;
    int32_t cutlass_supported;
    int32_t per_tensor_weights, per_tensor_activations;
    int32_t per_token_if_dynamic;
    int32_t is_rocm;
    int32_t has_rowwise; /* torch._scaled_mm takes a scale a row */
} fp8_dispatch_desc;
#define FP8_DISPATCH_DESC_INIT                      \
    {                                               \
        sizeof(fp8_dispatch_desc), 0, 0, 0, 0, 0, 0 \
    }
/* The path of dispatch_w8a8_scaled_mm. Errors: ARGUMENT. Any thread. */
FP8_API fp8_status fp8_dispatch_scaled_mm(const fp8_dispatch_desc *desc, fp8_kernel_class *out,
                                          fp8_error *err);
/* What vLLM's registry chooses on a CUDA GPU of the compute capability with no optional package and
 * CUDA 12.8 or later, is_block zero: scales per tensor, token and channel, nonzero: 1x128 and
 * 128x128 blocks. Neither dtype nor shape decide. Any thread. */
FP8_API fp8_kernel_class fp8_kernel_class_of(int32_t capability, int is_block);

/* 1 if DeepGEMM takes a linear of a weight [n,k] with outputs y: BF16, n in 64s, k in 128s; else 0.
 * Any thread. Source: should_use_deepgemm_for_fp8_linear. */
FP8_API int fp8_deepgemm_supports_shape(int64_t n, int64_t k, fp8_dtype y);
/* 1 if Marlin takes a rank's weight [n,k] of k_whole columns in all without padding: n in 64s, k in
 * 128s and in groups; group -1: a scale a channel. Any thread. Source: check_marlin_supports_shape.
 */
FP8_API int fp8_marlin_supports_shape(int64_t n, int64_t k, int64_t k_whole, int64_t group);

/* ---- 10. Layers and loading ----
 * An fp8_linear never changes; an fp8_layer is the place in a model where one stands: it knows the
 * shape, where the weight comes from, and when to make a linear of it, anew or for the first time.
 * It gets its weight in one of two ways: from a matrix in memory (fp8_layer_set_source), or by
 * pieces through an fp8_load, which quantizes them as they arrive and cuts out a rank's share.
 * docs/layers.md draws the states of a layer.
 * On CUDA sources and pieces lie on the host or on the device, under the same condition as those of
 * fp8_linear_create; pieces from the device come to the host to be cut. Who changes a layer waits
 * until the device has done all that was enqueued for it, and so must launch no graph that holds
 * the layer's linear meanwhile, nor capture one in this thread.
 */

/* What becomes of a weight given by fp8_layer_set_source once its codes exist. */
typedef enum fp8_source_policy {
    FP8_SOURCE_KEEP = 0,    /* the caller keeps it where it is, and says when it changes */
    FP8_SOURCE_OFFLOAD = 1, /* the layer holds a copy in host memory */
    FP8_SOURCE_DISCARD = 2, /* nothing is held: a lost linear is lost */
} fp8_source_policy;

/* How a weight is shared out among tensor-parallel ranks. */
typedef enum fp8_cut {
    FP8_CUT_NONE = 0,
    FP8_CUT_ROWS = 1, /* outputs ("column parallel"): each part's rows, and the bias with them */
    FP8_CUT_COLS = 2, /* inputs ("row parallel"): columns; only rank 0 has the bias */
} fp8_cut;

/* A part of a fused weight: q, k, v, or gate, up. */
typedef struct fp8_layer_part {
    const char *name; /* its module in a checkpoint, "model.layers.0.self_attn.k_proj", or NULL */
    int64_t rows;     /* of all ranks together */
    int64_t replicas; /* how many ranks share the same rows; 0 = 1. Key and value heads that are
                         fewer than the ranks have ranks / heads. */
} fp8_layer_part;

typedef struct fp8_layer_desc {
    uint32_t struct_bytes;
    const char
        *name;    /* for messages, and the module in a checkpoint that holds all parts; copied */
    int64_t n, k; /* of the whole weight, all ranks and parts together */
    const fp8_layer_part *parts; /* their rows add up to n; NULL = one part. Copied. */
    size_t part_count;
    fp8_cut cut;
    int32_t rank, ranks;    /* 0 <= rank < ranks; 0 ranks = 1 */
    int32_t has_bias;       /* a load is to bring one */
    fp8_linear_desc linear; /* of the rank's share. A weight in high precision is quantized by
                               linear.w, or, with static_scales, by scales that are loaded. Codes
                               are taken as they are: linear.w.grid, w_code and w_scale say which.
                               widths and w_origin are the layer's own business. */
    int32_t merge_scales;   /* nonzero: codes with one scale a part are brought to the largest, as
                               by fp8_requantize_with_max_scale; zero: each part keeps its own */
    fp8_source_policy source;
    int32_t lazy; /* nonzero: fp8_layer_set_source leaves the codes to the first acquire */
} fp8_layer_desc;
#define FP8_LAYER_DESC_INIT                                                                       \
    {                                                                                             \
        sizeof(fp8_layer_desc), NULL, 0, 0, NULL, 0, FP8_CUT_NONE, 0, 1, 0, FP8_LINEAR_DESC_INIT, \
            0, FP8_SOURCE_KEEP, 0                                                                 \
    }

/* *linear = how vLLM runs a weight that it quantizes at load: scheme "tensor", "channel" (PTPC),
 * "block" (128 x 128) or "mxfp8", with the activations that go with it; or "weight-only": a scale a
 * channel, and X as it is. batch_invariant nonzero: its mode of that name, which multiplies a
 * tensor's or a channel's weight in 16 bits and leaves X alone. NOT_FOUND for another scheme. Any
 * thread. Source: vLLM's quantization/online/fp8.py. */
FP8_API fp8_status fp8_online_linear(const char *scheme, int batch_invariant,
                                     fp8_linear_desc *linear, fp8_error *err);

/* One thread at a time, fp8_layer_acquire and fp8_layer_release excepted: those any thread, while
 * another changes the layer, too. */
typedef struct fp8_layer fp8_layer;

/* A declared layer: no memory for its weight yet. Errors: ARGUMENT, SHAPE (rows or columns that the
 * ranks cannot share), and those of fp8_linear_check. Free with fp8_layer_free, before ctx. */
FP8_API fp8_status fp8_layer_create(const fp8_context *ctx, const fp8_layer_desc *desc,
                                    fp8_layer **out, fp8_error *err);
/* NULL is a no-op. No load may be at work on it, nobody hold its linear. */
FP8_API void fp8_layer_free(fp8_layer *layer);
/* A deep copy in ctx (NULL: the layer's own; another: how a layer moves to another device,
 * allocator or pool of threads): codes, scales, version, policy, and the source where the layer
 * holds it; a source that the caller keeps is kept for both, but for one on a device that the copy
 * is not on, which is copied to the host. From one device to another codes go by way of the host.
 * Errors: ARGUMENT, STATE (a load is at work on it), NO_MEMORY; on CUDA also DEVICE. */
FP8_API fp8_status fp8_layer_clone(const fp8_layer *layer, const fp8_context *ctx, fp8_layer **out,
                                   fp8_error *err);
/* The rank's weight[n,k] in high precision and bias (NULL: none; vector [n]), quantized now unless
 * the layer is lazy. KEEP: both must stay where they are until replaced or the layer is freed.
 * OFFLOAD: copied. DISCARD: copied only by a lazy layer, and until its codes exist. `version` is
 * any number that the caller changes with the contents. Errors: those of fp8_linear_create, and
 * then the layer is as it was; STATE. */
FP8_API fp8_status fp8_layer_set_source(fp8_layer *layer, const fp8_tensor *weight,
                                        const fp8_tensor *bias, uint64_t version, fp8_error *err);
/* The rank's bias (NULL: none; vector [n], copied) beside the codes that are there, in place, for a
 * layer that holds no source: otherwise it comes with that. Errors: ARGUMENT, STATE (no codes, a
 * source, a load is at work on it, this thread holds a layer), SHAPE, DTYPE, and then nothing has
 * changed. */
FP8_API fp8_status fp8_layer_set_bias(fp8_layer *layer, const fp8_tensor *bias, fp8_error *err);
/* Forgets codes and scales (a source stays). Errors: ARGUMENT, STATE (this thread holds a layer).
 */
FP8_API fp8_status fp8_layer_invalidate(fp8_layer *layer, fp8_error *err);

/* *linear = what to run, export or ask now: the layer's linear, made from its source first if there
 * is none or if KEEP's version is no longer `version` (ignored by the others). It does not change
 * until fp8_layer_release, once per acquire and by the same thread, which may hold it more than
 * once, and others. Who changes the layer waits until nobody holds it; a thread that changes a
 * layer (by a source, a load ..) while it holds this one or another might wait for ever, and gets
 * STATE, with nothing changed; so does an acquire of another version of a layer that it holds, or
 * that others hold while it holds any. Its address, and those of its codes and scales, stay the
 * same until the layer is invalidated, as long as shape and formats do. Errors: STATE (that;
 * nothing was loaded; or invalidated and the source discarded), those of fp8_linear_create. Any
 * thread. */
FP8_API fp8_status fp8_layer_acquire(fp8_layer *layer, uint64_t version, const fp8_linear **linear,
                                     fp8_error *err);
/* NULL, and a layer that this thread does not hold, are no-ops. */
FP8_API void fp8_layer_release(fp8_layer *layer);

typedef enum fp8_layer_state {
    FP8_LAYER_DECLARED = 0, /* has no weight yet */
    FP8_LAYER_PENDING = 1,  /* has a source, not yet codes */
    FP8_LAYER_READY = 2,    /* has codes */
    FP8_LAYER_LOST = 3,     /* had codes; invalidated, and there is no source */
} fp8_layer_state;
typedef struct fp8_layer_info {
    const char *name;
    fp8_layer_state state;
    int32_t loading; /* 1 while a load has begun it and not finished it */
    int64_t n, k;    /* of the rank */
    int64_t reloads; /* how often codes replaced codes */
    uint64_t version;
    uint64_t code_bytes, scale_bytes, other_bytes; /* of the linear; 0 without one */
    uint64_t source_bytes;                         /* held by the layer itself */
} fp8_layer_info;
/* Errors: ARGUMENT, NO_MEMORY. */
FP8_API fp8_status fp8_layer_get_info(const fp8_layer *layer, fp8_layer_info *out);

/* Agreement among ranks: values[n] = the element-wise maximum over all ranks, on each of them.
 * `name` is the layer's; ranks ask for the same layers, though perhaps not in the same order if
 * they are given pieces in different orders. Called from the thread that writes. A result that is
 * less than what the rank had is refused (MISMATCH). */
typedef struct fp8_comm {
    fp8_status (*max)(void *user, const char *name, float *values, int64_t n, fp8_error *err);
    void *user;
} fp8_comm;

typedef enum fp8_duplicate {
    FP8_DUPLICATE_REFUSE = 0, /* FP8_E_EXISTS, and the piece is not taken */
    FP8_DUPLICATE_IGNORE = 1, /* what was written stays; the rest of the piece is taken */
} fp8_duplicate;

typedef struct fp8_load_desc {
    uint32_t struct_bytes;
    uint64_t max_waiting_bytes; /* for high precision that waits for the rest of its scale's block;
                                   0 = no bound */
    const char *spill;          /* a directory for what exceeds it, or NULL: refused */
    fp8_duplicate duplicates;
    fp8_comm comm; /* max NULL: every rank for itself */
} fp8_load_desc;
#define FP8_LOAD_DESC_INIT                                    \
    {                                                         \
        sizeof(fp8_load_desc), 0, NULL, FP8_DUPLICATE_REFUSE, \
        {                                                     \
            0, 0                                              \
        }                                                     \
    }

/* Fills layers, for the first time or anew: a layer keeps its old weight until the new one is
 * whole, then takes codes, scales and bias at once, and forgets a source that was set. One thread
 * at a time. */
typedef struct fp8_load fp8_load;

/* A load without layers. desc NULL = all defaults. Errors: ARGUMENT, NO_MEMORY. Free with
 * fp8_load_free, before ctx. */
FP8_API fp8_status fp8_load_create(const fp8_context *ctx, const fp8_load_desc *desc,
                                   fp8_load **out, fp8_error *err);
/* Ends it: layers that are not whole stay as they were. NULL is a no-op. Before its layers. */
FP8_API void fp8_load_free(fp8_load *load);
/* Expects all of this layer; nothing is allocated for its weight yet. Errors: ARGUMENT, STATE (it
 * is in a load already), NO_MEMORY. */
FP8_API fp8_status fp8_load_add(fp8_load *load, fp8_layer *layer, fp8_error *err);

typedef enum fp8_load_param {
    FP8_PARAM_WEIGHT = 0,      /* [rows,K], high precision or codes */
    FP8_PARAM_SCALE = 1,       /* of the codes: [ceil(rows/gr), ceil(K/gc)]; a vector is a column */
    FP8_PARAM_BIAS = 2,        /* [rows] */
    FP8_PARAM_INPUT_SCALE = 3, /* one element: of static activations; the largest of the parts' */
} fp8_load_param;

/* Some elements of one tensor of the whole model. Every rank may be given all of them: it takes its
 * own. */
typedef struct fp8_load_piece {
    uint32_t struct_bytes;
    fp8_load_param param;
    int32_t part;     /* of the layer; -1: the tensor holds all parts, one above the other */
    int64_t row, col; /* where data[0,0] lies in that tensor, before any cut */
    fp8_tensor data;  /* matrix, vector or scalar; any strides. Read during the call only. */
} fp8_load_piece;
#define FP8_LOAD_PIECE_INIT                                \
    {                                                      \
        sizeof(fp8_load_piece), FP8_PARAM_WEIGHT, 0, 0, 0, \
        {                                                  \
            0                                              \
        }                                                  \
    }

/* Takes a piece. What covers whole scale blocks becomes codes at once; the rest waits in high
 * precision for its block, and a scale for a whole tensor (or agreed on by the ranks) for all of
 * it. The layer is whole when every element of each parameter has been written; this call then
 * finishes it, waiting for those who hold its linear.
 * Errors, all of which leave the layer and the load as they were: ARGUMENT (no such layer, part or
 * parameter), SHAPE (outside the tensor), DTYPE, EXISTS (duplicates), NO_SPACE (max_waiting_bytes:
 * write what finishes other layers first, then this again), NAN, SCALE, STATE, NO_MEMORY, and
 * those of comm. On CUDA finishing a layer may fail, too (NO_MEMORY, STATE, DEVICE): the layer is
 * as it was, its pieces count as written, and fp8_load_finish tries again. The message names layer,
 * parameter, part and range. */
FP8_API fp8_status fp8_load_write(fp8_load *load, fp8_layer *layer, const fp8_load_piece *piece,
                                  fp8_error *err);
/* Writes what has not come yet of one layer with made-up numbers, which depend on the seed, the
 * layer's name and the element alone. Errors: as fp8_load_write. */
FP8_API fp8_status fp8_load_dummy(fp8_load *load, fp8_layer *layer, uint64_t seed, fp8_error *err);
/* All layers of the load that are not whole, from a checkpoint (what fp8_checkpoint_open takes), in
 * the order of its files and one layer at a time: high precision is quantized on the way, in slabs;
 * FP8 of any dialect is taken as it is, and the layer's grid is then the checkpoint's. Modules are
 * found by the names of the parts, else of the layer. Errors: those of fp8_checkpoint_open and
 * fp8_load_write, NOT_FOUND (a tensor that a layer needs), MISMATCH (parts of different dtypes or
 * grids; a bias that the layer does not have), UNSUPPORTED. Layers that were finished before the
 * error stay so; the one that it befell has nothing written, of what was before neither, and can be
 * loaded again. */
FP8_API fp8_status fp8_load_checkpoint(fp8_load *load, const char *path, fp8_error *err);
/* Line i of what never came, "model.layers.0.mlp.down_proj: weight: rows [0,64) of 128, columns
 * [0,256) of 256"; NULL past the last, and if there is no memory to tell. The texts belong to load
 * until its next call. */
FP8_API const char *fp8_load_missing(fp8_load *load, int64_t i);
/* Says that nothing more comes: FP8_OK if every layer is whole, else NOT_FOUND with the first thing
 * missing and how many more; the load can go on. */
FP8_API fp8_status fp8_load_finish(fp8_load *load, fp8_error *err);

typedef struct fp8_load_info {
    int64_t layers, whole;                      /* added, and finished by this load */
    uint64_t waiting_bytes, peak_waiting_bytes; /* in memory, in high precision */
    uint64_t spilled_bytes;                     /* in the spill file now */
    uint64_t source_bytes;                      /* of pieces taken so far, this rank's share */
} fp8_load_info;
/* NULL of either is ARGUMENT. */
FP8_API fp8_status fp8_load_get_info(const fp8_load *load, fp8_load_info *out);

/* ---- 11. Checkpoints ---- */

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
 * model.safetensors, else all its *.safetensors. Errors: ARGUMENT (a NULL), FORMAT, TRUNCATED,
 * NOT_FOUND, MISMATCH (the index was changed meanwhile), UNSUPPORTED (shapes or metadata too many
 * to hold in bounded memory), IO, NO_MEMORY; the message names the rule that is broken. Close with
 * fp8_checkpoint_close. */
FP8_API fp8_status fp8_checkpoint_open(const fp8_context *ctx, const char *path,
                                       fp8_checkpoint **out, fp8_error *err);
/* NULL is a no-op. */
FP8_API void fp8_checkpoint_close(fp8_checkpoint *ckpt);
/* How many tensors it has; 0 for NULL. */
FP8_API int64_t fp8_checkpoint_count(const fp8_checkpoint *ckpt);
/* Tensor i of the checkpoint, ordered by shard and data offset; ARGUMENT if there is none, or for a
 * NULL. The texts belong to ckpt. */
FP8_API fp8_status fp8_checkpoint_tensor(const fp8_checkpoint *ckpt, int64_t i,
                                         fp8_tensor_info *out);
/* The tensor called `name`; NOT_FOUND if there is none, ARGUMENT for a NULL. */
FP8_API fp8_status fp8_checkpoint_find(const fp8_checkpoint *ckpt, const char *name,
                                       size_t name_bytes, fp8_tensor_info *out);
/* dst = bytes [begin, begin + bytes) of a tensor's data; info is this checkpoint's. Errors:
 * ARGUMENT (a NULL, no tensor of ckpt, bytes outside it), IO, TRUNCATED and MISMATCH (the file was
 * changed after open), NOT_FOUND (it is gone), FORMAT (it is no regular file now), NO_MEMORY. */
FP8_API fp8_status fp8_checkpoint_read(const fp8_checkpoint *ckpt, const fp8_tensor_info *info,
                                       uint64_t begin, uint64_t bytes, void *dst, fp8_error *err);
/* The dialect that config.json and the tensors speak, such as "hf-block"; "none" if nothing is
 * quantized, "unknown" if it is and no dialect matches, NULL if there is no memory to tell. */
FP8_API const char *fp8_checkpoint_dialect(const fp8_checkpoint *ckpt);
/* A weight that is stored as codes with a scale that fits. */
typedef struct fp8_weight_info {
    int64_t weight, scale; /* tensors of the checkpoint */
    fp8_grid grid;
    const char *layer; /* the scheme of fp8_online_linear that computes with it; NULL: none does */
} fp8_weight_info;
typedef void (*fp8_weight_fn)(void *user, const fp8_weight_info *weight);
/* Tells fn of each, in the order of tensors, by config.json and the tensors. Errors: ARGUMENT (a
 * NULL, or a pattern of config.json that takes too much work to match), FORMAT (config.json is
 * broken), NO_MEMORY. */
FP8_API fp8_status fp8_checkpoint_weights(const fp8_checkpoint *ckpt, fp8_weight_fn fn, void *user,
                                          fp8_error *err);
/* Things that are odd but legal (an index total that is wrong, a tensor that it does not list ..):
 * line i, NULL past the last. */
FP8_API const char *fp8_checkpoint_warning(const fp8_checkpoint *ckpt, int64_t i);

/* ---- 12. Conversion ---- */

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
 * activations), UNSUPPORTED, EXISTS, STATE (another process is at work on DST.partial), MISMATCH,
 * NOT_FOUND (a pattern without a match), NO_MEMORY (also if max_memory_bytes is too little; the
 * message names what would do). */
FP8_API fp8_status fp8_convert_plan(const fp8_context *ctx, const fp8_convert_desc *desc,
                                    fp8_convert **out, fp8_error *err);
/* How many tensors the source has; 0 for NULL. */
FP8_API int64_t fp8_convert_count(const fp8_convert *conv);
/* What becomes of tensor i; ARGUMENT if there is none, or for a NULL. */
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

/* ---- 13. Verify and diff ---- */

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
 * that all is well. Any thread. Errors: ARGUMENT, UNSUPPORTED (a context of CUDA), NOT_FOUND (path
 * itself), TRUNCATED and MISMATCH (a file was changed after it was opened), IO, NO_MEMORY; of
 * `against` those of fp8_checkpoint_open. */
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
 * Errors: ARGUMENT, UNSUPPORTED (a context of CUDA), those of fp8_checkpoint_open and
 * fp8_checkpoint_read. */
FP8_API fp8_status fp8_diff(const fp8_context *ctx, const char *a, const char *b, fp8_diff_fn fn,
                            void *user, fp8_error *err);

/* ---- 14. Introspection ---- */

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
/* The json of config.json's quantization_config for weights of a scheme, of which the modules
 * kept[kept_count] stay in high precision: *bytes = its length, and if that is less than `room`,
 * dst = the text and a NUL; dst NULL: only measured. Any thread. Errors: ARGUMENT (a NULL),
 * UNSUPPORTED (no such scheme, or config.json does not announce it), NO_MEMORY. */
FP8_API fp8_status fp8_scheme_config(const fp8_context *ctx, const char *scheme,
                                     const char *const *kept, int64_t kept_count, char *dst,
                                     uint64_t room, uint64_t *bytes, fp8_error *err);
/* The name of rule i ("best", "vllm", ..), NULL past the last. Any thread. */
FP8_API const char *fp8_rule_name(int64_t i);
/* The name of engine i that can be converted and verified for ("vllm", "transformers", ..), NULL
 * past the last. Any thread. */
FP8_API const char *fp8_engine_name(int64_t i);
/* What bounds this machine: the speed of memory, and of multiply-adds at one level. */
typedef struct fp8_peak {
    const char *name; /* "read", on CUDA "copy", or the level: "avx2", .. */
    const char *what; /* "F32 multiply-add" */
    const char *unit; /* "GB/s" or "GFLOP/s" */
    double value;     /* in 10^9 bytes, or multiplications and additions, a second */
} fp8_peak;
/* Peak i, measured now on all threads of the context for about `seconds` (0 = 0.1), the best of
 * several tries: 0 is reading a buffer larger than the last cache, the others the levels that ctx
 * may use, lowest first; NOT_FOUND past the last. On CUDA 0 is reading the device's memory, 1
 * copying within it, with a buffer of 1 GiB there. Static texts. Any thread, but other work on the
 * machine slows what is measured. Errors: ARGUMENT, NO_MEMORY; on CUDA also NO_KERNEL, STATE,
 * DEVICE. */
FP8_API fp8_status fp8_machine_peak(const fp8_context *ctx, int64_t i, double seconds,
                                    fp8_peak *out, fp8_error *err);
/* A GPU that CUDA's driver shows. */
typedef struct fp8_gpu_info {
    char name[96];          /* "NVIDIA H100 80GB HBM3" */
    int32_t capability;     /* compute capability: 90 for 9.0 */
    int32_t processors;     /* multiprocessors */
    uint64_t memory_bytes;  /* all of it, used or free */
    int32_t driver_version; /* the CUDA version that the driver supports: 12040 for 12.4 */
    const char *runs;       /* what this build would run on it, in words; static */
} fp8_gpu_info;
/* GPU i, FP8_DEVICE_CUDA's device_index; NOT_FOUND past the last. Starts nothing on it. The first
 * call in a process that uses no CUDA starts the driver, a fifth of a second. Any thread. Errors:
 * ARGUMENT (out is NULL), NO_DEVICE (no driver, no GPU), UNSUPPORTED (a driver before CUDA 12.0),
 * STATE, DEVICE. */
FP8_API fp8_status fp8_gpu(int64_t i, fp8_gpu_info *out, fp8_error *err);
/* What this build and this machine are: line i ("isa: avx2 of avx512", "compiler: ..", "threads:
 * .."); NULL past the last. The texts belong to ctx. */
FP8_API const char *fp8_doctor(const fp8_context *ctx, int64_t i);

#ifdef __cplusplus
}
#endif
#endif
