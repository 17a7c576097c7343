/* SPDX-License-Identifier: Apache-2.0
 *
 * test_quant.c - the quantizers' own output, byte for byte: every case of cases.tsv whose mode has
 * a row in the table below, at every instruction set and with one and two threads. Counted are
 * units (scale blocks), per mode:
 *
 *     MODE           codes and scale compared; left out where the original is defective
 *     MODE (scales)  only the scale compared: a large case that keeps a digest and holds such units
 *     MODE (digest)  a large case whose codes agree with the digest
 *     MODE (refused) a case that the original refused: refused here too, or done and sound
 *
 * An original is defective in a unit of numbers whose scale is 0, NaN or infinite, whose codes are
 * NaN, or that compressed-tensors loses to its MX exponent (is_lost_mx); of those it is checked
 * that ours are sound. Units with NaN or infinity are compared under the policy ORIGINAL, any NaN
 * being the same, but for powers of two, where docs/numerics.md says how ours differ
 * (is_other_pow2).
 *
 *     test_quant gpu     the same on GPU 0, beside the reference; exit code 77 without one */
#include "golden/golden.h"
#include "number/dtype.h"
#include "op/quantize.h"
#include "support/device_copy.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

enum { UPPER_BOUND = 1, STORES_MULTIPLIER = 2, POW2 = 4, STATIC = 8 };
#define INPUT FP8_DTYPE_NONE /* scales of the input's dtype */

/* clang-format off */
static const struct mode {
    const char *name;
    fp8_rule rule;
    fp8_grid grid;
    fp8_dtype code, scale;
    int flags;
} modes[] = {
    {"static_tensor",         FP8_RULE_VLLM, {0, 0},     FP8_E4M3FN,   FP8_F32, STATIC},
    {"static_token",          FP8_RULE_VLLM, {1, 0},     FP8_E4M3FN,   FP8_F32, STATIC},
    {"static_channel",        FP8_RULE_VLLM, {0, 1},     FP8_E4M3FN,   FP8_F32, STATIC},
    {"dynamic_tensor",        FP8_RULE_VLLM, {0, 0},     FP8_E4M3FN,   FP8_F32, 0},
    {"dynamic_tensor_fnuz",   FP8_RULE_VLLM, {0, 0},     FP8_E4M3FNUZ, FP8_F32, 0},
    {"dynamic_token",         FP8_RULE_VLLM, {1, 0},     FP8_E4M3FN,   FP8_F32, 0},
    {"dynamic_token_ub",      FP8_RULE_VLLM, {1, 0},     FP8_E4M3FN,   FP8_F32, UPPER_BOUND},
    {"dynamic_token_fnuz",    FP8_RULE_VLLM, {1, 0},     FP8_E4M3FNUZ, FP8_F32, 0},
    {"group128",              FP8_RULE_VLLM, {1, 128},   FP8_E4M3FN,   FP8_F32, 0},
    {"group128_ue8m0",        FP8_RULE_VLLM, {1, 128},   FP8_E4M3FN,   FP8_F32, POW2},
    {"block128",              FP8_RULE_VLLM, {128, 128}, FP8_E4M3FN,   FP8_F32, 0},
    {"block128_ue8m0",        FP8_RULE_VLLM, {128, 128}, FP8_E4M3FN,   FP8_F32, POW2},
    {"mxfp8_ceil",            FP8_RULE_VLLM, {1, 32},    FP8_E4M3FN,   FP8_E8M0FNU, 0},
    {"mxfp8_floor",           FP8_RULE_MX_OCP, {1, 32},  FP8_E4M3FN,   FP8_E8M0FNU, 0},
    {"dynamic_tensor_native", FP8_RULE_VLLM_NATIVE, {0, 0},   FP8_E4M3FN, FP8_F32, 0},
    {"dynamic_token_native",  FP8_RULE_VLLM_NATIVE, {1, 0},   FP8_E4M3FN, FP8_F32, 0},
    {"group128_triton",       FP8_RULE_VLLM_TRITON, {1, 128}, FP8_E4M3FN, FP8_F32, 0},
    {"input_to_float8",       FP8_RULE_VLLM_INPUT_TO_FLOAT8, {0, 0}, FP8_E4M3FN, FP8_F32, 0},
    {"weight_tensor",         FP8_RULE_COMPRESSED_TENSORS, {0, 0},     FP8_E4M3FN, INPUT, 0},
    {"weight_channel",        FP8_RULE_COMPRESSED_TENSORS, {1, 0},     FP8_E4M3FN, INPUT, 0},
    {"weight_group128",       FP8_RULE_COMPRESSED_TENSORS, {1, 128},   FP8_E4M3FN, INPUT, 0},
    {"weight_block128",       FP8_RULE_COMPRESSED_TENSORS, {128, 128}, FP8_E4M3FN, INPUT, 0},
    {"weight_mxfp8",          FP8_RULE_COMPRESSED_TENSORS, {1, 32},    FP8_E4M3FN, FP8_E8M0FNU, 0},
    {"act_token",             FP8_RULE_COMPRESSED_TENSORS_ACTIVATION, {1, 0},   FP8_E4M3FN, INPUT, 0},
    {"act_group128",          FP8_RULE_COMPRESSED_TENSORS_ACTIVATION, {1, 128}, FP8_E4M3FN, INPUT, 0},
    {"act_mxfp8",             FP8_RULE_COMPRESSED_TENSORS_ACTIVATION, {1, 32},  FP8_E4M3FN, INPUT, POW2},
    {"hf_block128",           FP8_RULE_TRANSFORMERS, {128, 128}, FP8_E4M3FN, FP8_F32, 0},
    {"hf_block128_ue8m0",     FP8_RULE_TRANSFORMERS, {128, 128}, FP8_E4M3FN, FP8_E8M0FNU, 0},
    {"hf_tensor",             FP8_RULE_TRANSFORMERS, {0, 0},     FP8_E4M3FN, FP8_F32, 0},
    {"ao_tensor",             FP8_RULE_TORCHAO, {0, 0},     FP8_E4M3FN, FP8_F32, 0},
    {"ao_row",                FP8_RULE_TORCHAO, {1, 0},     FP8_E4M3FN, FP8_F32, 0},
    {"ao_group128",           FP8_RULE_TORCHAO, {1, 128},   FP8_E4M3FN, FP8_F32, 0},
    {"ao_block128",           FP8_RULE_TORCHAO, {128, 128}, FP8_E4M3FN, FP8_F32, 0},
    {"ao_train_tensor",       FP8_RULE_TORCHAO_TRAIN, {0, 0}, FP8_E4M3FN, FP8_F32, STORES_MULTIPLIER},
    {"ao_mx_floor",           FP8_RULE_MX_FLOOR, {1, 32}, FP8_E4M3FN, FP8_E8M0FNU, 0},
    {"ao_mx_ceil",            FP8_RULE_MX_CEIL, {1, 32},  FP8_E4M3FN, FP8_E8M0FNU, 0},
    {"ao_mx_even",            FP8_RULE_MX_EVEN, {1, 32},  FP8_E4M3FN, FP8_E8M0FNU, 0},
    {"ao_mx_rceil",           FP8_RULE_MX_RCEIL, {1, 32}, FP8_E4M3FN, FP8_E8M0FNU, 0},
    {"mo_tensor",             FP8_RULE_MODELOPT, {0, 0},     FP8_E4M3FN, FP8_F32, 0},
    {"mo_channel",            FP8_RULE_MODELOPT, {1, 0},     FP8_E4M3FN, FP8_F32, 0},
    {"mo_block128",           FP8_RULE_MODELOPT, {128, 128}, FP8_E4M3FN, FP8_F32, 0},
    {"mo_mxfp8",              FP8_RULE_MODELOPT, {1, 32},    FP8_E4M3FN, FP8_E8M0FNU, 0},
    {"ds_block128",           FP8_RULE_DEEPSEEK, {128, 128}, FP8_E4M3FN, FP8_F32, 0},
    {"ds_block128_ue8m0",     FP8_RULE_DEEPSEEK, {128, 128}, FP8_E4M3FN, FP8_F32, POW2},
    {"ds_group128",           FP8_RULE_DEEPSEEK, {1, 128},   FP8_E4M3FN, FP8_F32, 0},
    {"ds_group128_ue8m0",     FP8_RULE_DEEPSEEK, {1, 128},   FP8_E4M3FN, FP8_F32, POW2},
    {"slime_block128",        FP8_RULE_SLIME, {128, 128}, FP8_E4M3FN, FP8_F32, 0},
    {"slime_channel",         FP8_RULE_SLIME, {1, 0},     FP8_E4M3FN, FP8_F32, 0},
    {"slime_tensor",          FP8_RULE_SLIME, {0, 0},     FP8_E4M3FN, FP8_F32, 0},
};
/* clang-format on */

/* Contexts of every level with one and two threads; the first is the reference. */
enum { MAX_CONTEXTS = 2 * (FP8_ISA_LAST + 1), ARENA_BYTES = 1 << 28 };
static fp8_context *contexts[MAX_CONTEXTS];
static int context_count;
static device_arena gpu; /* ctx NULL: the test is of the CPU */

static void make_contexts(void)
{
    const fp8_isa last = gpu.ctx ? FP8_ISA_SCALAR : fp8_isa_detect();
    for (fp8_isa isa = FP8_ISA_SCALAR; isa <= last; isa++)
        for (int threads = 1; threads <= 2; threads++) {
            fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
            desc.threads = threads;
            setenv("FP8_CPU_ISA", fp8_isa_name(isa), 1);
            assert_int_equal(fp8_context_create(&desc, &contexts[context_count++], NULL), FP8_OK);
        }
    unsetenv("FP8_CPU_ISA");
}

/* One line of cases.tsv and what belongs to it. */
typedef struct golden_case {
    const struct mode *mode;
    const char *name;
    fp8_tensor x;
    int64_t rows, cols, unit_rows, unit_cols, grid_rows, grid_cols;
    fp8_dtype scale_dtype;
    const uint8_t *codes; /* NULL: only a digest */
    const void *scales;
    uint64_t digest;
    uint8_t *our_codes;
    unsigned char *our_scales;
} golden_case;

static int64_t units(const golden_case *c)
{
    return c->grid_rows * c->grid_cols;
}

static int64_t scale_bytes(const golden_case *c)
{
    return units(c) * (fp8_dtype_bits(c->scale_dtype) / 8);
}

static float load(fp8_dtype dtype, const void *data, int64_t i)
{
    return fp8_dtype_facts_of(dtype)->load(data, i);
}

static fp8_status run(const fp8_context *ctx, golden_case *c, fp8_nan_policy nan, float ub,
                      fp8_error *err)
{
    fp8_quantize_desc desc = FP8_QUANTIZE_DESC_INIT;
    desc.rule = c->mode->rule;
    desc.grid = c->mode->grid;
    desc.nan = nan;
    desc.static_scales = c->mode->flags & STATIC;
    desc.pow2_scales = c->mode->flags & POW2;
    desc.scale_ub = ub;
    if (desc.static_scales)
        memcpy(c->our_scales, c->scales, (size_t)scale_bytes(c));
    fp8_tensor codes = fp8_matrix(c->our_codes, c->mode->code, c->rows, c->cols);
    fp8_tensor scales = fp8_matrix(c->our_scales, c->scale_dtype, c->grid_rows, c->grid_cols);
    return ctx->cuda ? device_quantize(&gpu, &desc, &c->x, &codes, &scales, err)
                     : fp8_quantize(ctx, &desc, &c->x, &codes, &scales, NULL, err);
}

/* ---- one unit ---- */

typedef struct unit {
    int64_t i, j, row, col, row_end, col_end;
} unit;

static unit unit_at(const golden_case *c, int64_t at)
{
    unit u = {at / c->grid_cols, at % c->grid_cols, 0, 0, 0, 0};
    u.row = u.i * c->unit_rows;
    u.col = u.j * c->unit_cols;
    u.row_end = u.row + c->unit_rows < c->rows ? u.row + c->unit_rows : c->rows;
    u.col_end = u.col + c->unit_cols < c->cols ? u.col + c->unit_cols : c->cols;
    return u;
}

#define EACH_ELEMENT(u, e, c)                          \
    for (int64_t r_ = (u).row; r_ < (u).row_end; r_++) \
        for (int64_t e = r_ * (c)->cols + (u).col; e < r_ * (c)->cols + (u).col_end; e++)

/* Infinity if there is NaN or infinity. */
static float unit_amax(const golden_case *c, unit u)
{
    float amax = 0;
    EACH_ELEMENT(u, e, c)
    {
        const float x = fabsf(load(c->x.dtype, c->x.data, e));
        amax = !isfinite(x) ? INFINITY : x > amax ? x : amax;
    }
    return amax;
}

static bool has_nan_code(const golden_case *c, unit u, const uint8_t *codes)
{
    bool found = false;
    EACH_ELEMENT(u, e, c)
    found = found || fp8_dtype_is_nan(c->mode->code, codes[e]);
    return found;
}

/* The groups that compressed-tensors loses: the exponent is computed in the input's dtype, where it
 * overflows from 1.75 times the top power of two on and, in fp16, underflows below 0.75 * 2^-14. */
static bool is_lost_mx(const golden_case *c, float amax)
{
    const bool ct = c->mode->rule == FP8_RULE_COMPRESSED_TENSORS ||
                    c->mode->rule == FP8_RULE_COMPRESSED_TENSORS_ACTIVATION;
    if (!ct || c->mode->grid.cols != 32)
        return false;
    const bool half = c->x.dtype == FP8_F16;
    return amax >= (half ? 57344.0f : 1.75f * 0x1p127f) ||
           (half && amax > 0 && amax < 0.75f * 0x1p-14f);
}

static float wanted_scale(const golden_case *c, int64_t at)
{
    const float s = load(c->scale_dtype, c->scales, at);
    return c->mode->flags & STORES_MULTIPLIER ? 1.0f / s : s;
}

/* Powers of two for NaN and infinity that are not the original's; those of transformers and
 * mx-rceil are. */
static bool is_other_pow2(const golden_case *c)
{
    const fp8_rule rule = c->mode->rule;
    return (c->mode->flags & POW2 || c->mode->grid.cols == 32) && rule != FP8_RULE_TRANSFORMERS &&
           rule != FP8_RULE_MX_RCEIL;
}

static bool is_defective(const golden_case *c, int64_t at, float amax)
{
    const float s = load(c->scale_dtype, c->scales, at);
    if (!isfinite(amax))
        return is_other_pow2(c);
    return s == 0 || !isfinite(s) || is_lost_mx(c, amax) ||
           (c->codes && has_nan_code(c, unit_at(c, at), c->codes));
}

/* A usable scale, no NaN, and the largest element within an eighth of itself. */
static bool is_sound(const golden_case *c, int64_t at, float amax)
{
    const unit u = unit_at(c, at);
    const float s = load(c->scale_dtype, c->our_scales, at);
    if (!(s > 0 && isfinite(s)) || has_nan_code(c, u, c->our_codes))
        return false;
    float top = 0;
    EACH_ELEMENT(u, e, c)
    {
        const float y = fabsf(load(c->mode->code, c->our_codes, e)) * s;
        top = y > top ? y : top;
    }
    return fabsf(top - amax) <= amax / 8 + 0x1p-136f;
}

static bool same_code(fp8_dtype dtype, uint8_t a, uint8_t b)
{
    return a == b || (fp8_dtype_is_nan(dtype, a) && fp8_dtype_is_nan(dtype, b));
}

static bool same_unit(const golden_case *c, int64_t at)
{
    const float ours = load(c->scale_dtype, c->our_scales, at), theirs = wanted_scale(c, at);
    bool same = ours == theirs || (isnan(ours) && isnan(theirs));
    EACH_ELEMENT(unit_at(c, at), e, c)
    same = same && (!c->codes || same_code(c->mode->code, c->codes[e], c->our_codes[e]));
    return same;
}

/* ---- one case ---- */

static uint64_t fnv1a64(const uint8_t *bytes, int64_t n)
{
    uint64_t hash = 0xCBF29CE484222325;
    for (int64_t i = 0; i < n; i++)
        hash = (hash ^ bytes[i]) * 0x100000001B3;
    return hash;
}

static const char *mode_and(const golden_case *c, const char *what)
{
    static char text[128];
    snprintf(text, sizeof text, "%s%s", c->mode->name, what);
    return text;
}

static void compare_units(golden_case *c)
{
    const int64_t n = c->rows * c->cols;
    bool complete = true;
    for (int64_t at = 0; at < units(c); at++) {
        const float amax = unit_amax(c, unit_at(c, at));
        complete = complete && isfinite(amax) && !is_defective(c, at, amax);
    }
    const bool checked = c->codes || complete;
    for (int64_t at = 0; at < units(c); at++) {
        const float amax = unit_amax(c, unit_at(c, at));
        const char *family = mode_and(c, checked ? "" : " (scales)");
        if (!is_defective(c, at, amax))
            golden_check("quant", family, same_unit(c, at), "%s unit %lld: scale %a, want %a",
                         c->name, (long long)at, (double)load(c->scale_dtype, c->our_scales, at),
                         (double)wanted_scale(c, at));
        else if (isfinite(amax) && !is_sound(c, at, amax))
            golden_fail("quant", family,
                        "%s unit %lld, which the original loses: unsound, scale %a", c->name,
                        (long long)at, (double)load(c->scale_dtype, c->our_scales, at));
        else
            golden_leave_out("quant", family);
    }
    if (complete)
        golden_check("quant", mode_and(c, " (digest)"), fnv1a64(c->our_codes, n) == c->digest,
                     "%s: digest differs", c->name);
}

/* The index of the first NaN or infinity, -1 if there is none. */
static int64_t first_nonfinite(const golden_case *c)
{
    for (int64_t e = 0; e < c->rows * c->cols; e++)
        if (!isfinite(load(c->x.dtype, c->x.data, e)))
            return e;
    return -1;
}

/* Under REFUSE a case with NaN or infinity is refused with its position, at every level. */
static void check_refusal(golden_case *c, float ub)
{
    const int64_t position = first_nonfinite(c);
    for (int k = 0; k <= context_count && position >= 0; k++) {
        const fp8_context *ctx = k < context_count ? contexts[k] : gpu.ctx;
        fp8_error err = {0};
        if (!ctx)
            continue;
        const fp8_status status = run(ctx, c, FP8_NAN_REFUSE, ub, &err);
        if (status != FP8_E_NAN || err.pos != position)
            golden_fail("quant", c->mode->name, "%s: %s at %lld, want FP8_E_NAN at %lld", c->name,
                        fp8_status_name(status), (long long)err.pos, (long long)position);
    }
}

static void same_at_every_level(golden_case *c, fp8_nan_policy nan, float ub)
{
    const size_t n = (size_t)(c->rows * c->cols), m = (size_t)scale_bytes(c);
    unsigned char *first = malloc(n + m);
    memcpy(first, c->our_codes, n);
    memcpy(first + n, c->our_scales, m);
    for (int k = 1; k <= context_count; k++) {
        const fp8_context *ctx = k < context_count ? contexts[k] : gpu.ctx;
        if (!ctx)
            continue;
        memset(c->our_codes, 0x55, n);
        memset(c->our_scales, 0x55, m);
        if (run(ctx, c, nan, ub, NULL) != FP8_OK || memcmp(first, c->our_codes, n) ||
            memcmp(first + n, c->our_scales, m))
            golden_fail("quant", c->mode->name, "%s: other bytes at %s, %d threads", c->name,
                        ctx->cuda ? "cuda:0" : fp8_isa_name(ctx->isa), ctx->threads);
    }
    free(first);
}

static void run_ok_case(golden_case *c, float ub)
{
    fp8_error err;
    const fp8_nan_policy nan = first_nonfinite(c) < 0 ? FP8_NAN_REFUSE : FP8_NAN_ORIGINAL;
    check_refusal(c, ub);
    if (run(contexts[0], c, nan, ub, &err) != FP8_OK) {
        golden_fail("quant", c->mode->name, "%s: %s", c->name, err.msg);
        return;
    }
    same_at_every_level(c, nan, ub);
    compare_units(c);
}

/* What the original refused we refuse too, or do soundly. */
static void run_refused_case(golden_case *c)
{
    fp8_error err = {0};
    const char *mode = mode_and(c, " (refused)");
    const fp8_status status = run(contexts[0], c, FP8_NAN_REFUSE, 0, &err);
    bool ok = status == FP8_E_SHAPE || (status == FP8_E_NAN && err.pos == first_nonfinite(c));
    if (status == FP8_OK) {
        ok = true;
        for (int64_t at = 0; at < units(c); at++)
            ok = ok && is_sound(c, at, unit_amax(c, unit_at(c, at)));
    }
    golden_check("quant", mode, ok, "%s: %s", c->name, err.msg);
}

/* ---- the table of cases ---- */

static const struct mode *find_mode(const char *name)
{
    for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
        if (!strcmp(modes[i].name, name))
            return &modes[i];
    return NULL;
}

static int64_t extent(int64_t block, int64_t size)
{
    return block ? block : size ? size : 1;
}

static golden_case case_of(const struct mode *mode, const char *name, const golden_tensor *x)
{
    golden_case c = {.mode = mode, .name = name, .x = x->view};
    c.rows = x->view.shape[0];
    c.cols = x->view.shape[1];
    c.unit_rows = extent(mode->grid.rows, c.rows);
    c.unit_cols = extent(mode->grid.cols, c.cols);
    c.grid_rows = (c.rows + c.unit_rows - 1) / c.unit_rows;
    c.grid_cols = (c.cols + c.unit_cols - 1) / c.unit_cols;
    c.scale_dtype = mode->scale == INPUT ? x->view.dtype : mode->scale;
    c.our_codes = calloc(1, (size_t)(c.rows * c.cols) + 1);
    c.our_scales = calloc(1, (size_t)scale_bytes(&c) + 1);
    return c;
}

static void run_row(const golden_table *table, int64_t i, golden_file *inputs, golden_file *file)
{
    const char *name = golden_cell(table, i, "case"), *mode_name = golden_cell(table, i, "mode");
    const struct mode *mode = find_mode(mode_name);
    const golden_tensor *x = golden_find(inputs, name);
    if (!mode || !x || !file) {
        golden_fail("quant", mode_name, "%s: no row for this mode, no input or no file", name);
        return;
    }
    golden_case c = case_of(mode, name, x);
    const golden_tensor *codes = golden_findf(file, "%s/%s/codes", mode_name, name);
    const golden_tensor *scales = golden_findf(file, "%s/%s/scales", mode_name, name);
    const golden_tensor *ub = golden_findf(file, "%s/%s/ub", mode_name, name);
    c.digest = strtoull(golden_cell(table, i, "fnv1a64_of_codes"), NULL, 16);
    c.codes = codes ? codes->view.data : NULL;
    c.scales = scales ? scales->view.data : NULL;
    if (strcmp(golden_cell(table, i, "status"), "ok"))
        run_refused_case(&c);
    else if (!scales || scales->bytes != (uint64_t)scale_bytes(&c) ||
             (mode->flags & UPPER_BOUND && !ub))
        golden_fail("quant", mode_name, "%s: scales or bound missing or of another size", name);
    else
        run_ok_case(&c, ub ? load(FP8_F32, ub->view.data, 0) : 0);
    free(c.our_codes);
    free(c.our_scales);
}

/* The file called `name`.safetensors, loaded once. */
static golden_file *file_called(const char *name)
{
    static struct {
        char name[64];
        golden_file *file;
    } loaded[16];
    char path[128];
    size_t k = 0;
    while (k < 15 && loaded[k].file && strcmp(loaded[k].name, name))
        k++;
    if (!loaded[k].file) {
        snprintf(path, sizeof path, "%s.safetensors", name);
        snprintf(loaded[k].name, sizeof loaded[k].name, "%s", name);
        loaded[k].file = golden_load("quant", path);
    }
    return loaded[k].file;
}

static void originals_agree(void **state)
{
    (void)state;
    make_contexts();
    golden_table *table = golden_read_tsv("quant", "cases.tsv");
    golden_file *inputs = golden_load("quant", "inputs.safetensors");
    assert_true(!table == !inputs);
    for (int64_t i = 0; table && i < golden_rows(table); i++)
        run_row(table, i, inputs, file_called(golden_cell(table, i, "file")));
    golden_free(inputs);
    golden_free_tsv(table);
    assert_true(golden_report("quant"));
    for (int k = 0; k < context_count; k++)
        fp8_context_free(contexts[k]);
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(originals_agree)};
    fp8_context *device = NULL;
    if (argc > 1 && !strcmp(argv[1], "gpu")) {
        device = device_context_or_skip();
        if (!device)
            return DEVICE_SKIPPED;
        if (!device_arena_open(&gpu, device, ARENA_BYTES))
            return 1;
    }
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    if (device)
        device_arena_close(&gpu);
    fp8_context_free(device);
    return failed;
}
