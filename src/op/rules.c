/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.c - the table of rounding rules, and how a row is found. Sources of the formulas: the code
 * of each original, named with its version in docs/numerics.md. */
#include "op/rules.h"
#include "number/dtype.h"

#include <stdio.h>
#include <string.h>

static const char *const names[] = {
    [FP8_RULE_BEST] = "best",
    [FP8_RULE_VLLM] = "vllm",
    [FP8_RULE_VLLM_NATIVE] = "vllm-native",
    [FP8_RULE_VLLM_TRITON] = "vllm-triton",
    [FP8_RULE_VLLM_INPUT_TO_FLOAT8] = "vllm-input-to-float8",
    [FP8_RULE_COMPRESSED_TENSORS] = "compressed-tensors",
    [FP8_RULE_COMPRESSED_TENSORS_ACTIVATION] = "compressed-tensors-activation",
    [FP8_RULE_TRANSFORMERS] = "transformers",
    [FP8_RULE_TORCHAO] = "torchao",
    [FP8_RULE_TORCHAO_TRAIN] = "torchao-train",
    [FP8_RULE_MX_FLOOR] = "mx-floor",
    [FP8_RULE_MX_CEIL] = "mx-ceil",
    [FP8_RULE_MX_EVEN] = "mx-even",
    [FP8_RULE_MX_RCEIL] = "mx-rceil",
    [FP8_RULE_MODELOPT] = "modelopt",
    [FP8_RULE_DEEPSEEK] = "deepseek",
    [FP8_RULE_SLIME] = "slime",
    [FP8_RULE_MX_OCP] = "mx-ocp",
};
enum { RULES = sizeof names / sizeof *names };

/* Abbreviations of the columns below. */
enum {
    TENSOR = FP8_ON_TENSOR,
    ROW = FP8_ON_ROW,
    COLUMN = FP8_ON_COLUMN,
    GROUP = FP8_ON_GROUP,
    BLOCK = FP8_ON_BLOCK,
    MX = FP8_ON_MX,
    DYNAMIC = FP8_WHEN_DYNAMIC,
    POW2 = FP8_WHEN_POW2,
    STATIC = FP8_WHEN_STATIC,
    FN = FP8_TAKES_E4M3FN,
    FNUZ = FP8_TAKES_E4M3FNUZ,
    E5M2 = FP8_TAKES_E5M2,
    F32 = FP8_TAKES_F32,
    F16 = FP8_TAKES_F16,
    BF16 = FP8_TAKES_BF16,
    E8M0 = FP8_TAKES_E8M0,
    INPUT = FP8_TAKES_INPUT,
    REALS = F32 | F16 | BF16,
};
#define TINY (-1.0f) /* scale_floor: 1 / (512 * max) */

/* One row: FOR(rule, grids, when, codes, scales) and what differs from a plain fp32 division of the
 * amax by the maximum and of x by the scale. A later row never shadows an earlier one. */
#define FOR(RULE, GRIDS, WHEN, CODES, SCALES) \
    .rule = FP8_RULE_##RULE, .grids = (GRIDS), .when = (WHEN), .codes = (CODES), .scales = (SCALES)
#define FLOOR(VALUE)   .floor = FP8_FLOOR_F32, .floor_value = (VALUE)
#define DROPS_NAN      .amax_drops_nan = true, .nan_code = FP8_NAN_TO_MAX, .fnuz_max = 224
#define DROPS_NAN_MIN  .amax_drops_nan = true, .nan_code = FP8_NAN_TO_MIN, .fnuz_max = 224
#define EXPONENT(KIND) .exponent = FP8_EXPONENT_##KIND
/* compressed-tensors computes in the input's dtype throughout. */
#define IN_INPUT .scale_in_input = true, .zero_scale_eps = true, .quotient_in_input = true

/* clang-format off */
static const fp8_rule_row table[] = {
    {FOR(BEST, FP8_ON_ANY, DYNAMIC | STATIC, FN | FNUZ | E5M2, REALS | E8M0), .zero_amax_max = true, .scale_ub = true, .safe = true},
    {FOR(BEST, FP8_ON_ANY, POW2, FN | FNUZ | E5M2, REALS | E8M0), .zero_amax_max = true, .scale_ub = true, .safe = true, EXPONENT(EXACT)},

    {FOR(VLLM, TENSOR | ROW | COLUMN | GROUP | BLOCK, STATIC, FN | FNUZ, F32), DROPS_NAN, .multiply = true},
    {FOR(VLLM, TENSOR, DYNAMIC, FN | FNUZ, F32), DROPS_NAN, .multiply = true},
    {FOR(VLLM, ROW, DYNAMIC, FN | FNUZ, F32), DROPS_NAN, .scale_floor = TINY, .scale_ub = true},
    {FOR(VLLM, GROUP, DYNAMIC, FN | FNUZ, F32), DROPS_NAN_MIN, FLOOR(1e-10)},
    {FOR(VLLM, GROUP, POW2, FN | FNUZ, F32 | E8M0), DROPS_NAN_MIN, FLOOR(1e-10), .scale_floor = 1e-10f, EXPONENT(CEIL)},
    {FOR(VLLM, BLOCK, DYNAMIC, FN, F32), FLOOR(1e-4), .multiply = true},
    {FOR(VLLM, BLOCK, POW2, FN, F32), FLOOR(1e-4), .multiply = true, EXPONENT(CEIL)},
    {FOR(VLLM, MX, POW2, FN, E8M0), FLOOR(0x1p-126), EXPONENT(CEIL), .divides = true},

    {FOR(VLLM_NATIVE, TENSOR, DYNAMIC, FN, F32), .scale_floor = TINY, .multiply = true},
    {FOR(VLLM_NATIVE, ROW, DYNAMIC, FN, F32), .scale_floor = TINY, .multiply = true, .scale_ub = true},
    {FOR(VLLM_TRITON, GROUP, DYNAMIC, FN, F32), DROPS_NAN_MIN, FLOOR(1e-10), .form = FP8_SCALE_TIMES},
    {FOR(VLLM_INPUT_TO_FLOAT8, TENSOR, DYNAMIC, FN, F32), FLOOR(1e-12), .form = FP8_SCALE_INVERSE, .multiply = true},

    {FOR(COMPRESSED_TENSORS, TENSOR | ROW | BLOCK, DYNAMIC | STATIC, FN, INPUT), IN_INPUT},
    {FOR(COMPRESSED_TENSORS, GROUP, DYNAMIC | STATIC, FN, INPUT), IN_INPUT, .divides = true},
    {FOR(COMPRESSED_TENSORS, MX, POW2, FN, E8M0), IN_INPUT, EXPONENT(QUARTER_A), .divides = true},
    {FOR(COMPRESSED_TENSORS_ACTIVATION, TENSOR | ROW, DYNAMIC | STATIC, FN, INPUT), IN_INPUT, .plus_zero = true},
    {FOR(COMPRESSED_TENSORS_ACTIVATION, GROUP, DYNAMIC | STATIC, FN, INPUT), IN_INPUT, .plus_zero = true, .divides = true},
    {FOR(COMPRESSED_TENSORS_ACTIVATION, MX, POW2, FN, INPUT), IN_INPUT, .plus_zero = true, EXPONENT(QUARTER_A), .divides = true},

    {FOR(TRANSFORMERS, TENSOR | BLOCK, DYNAMIC, FN, F32), .zero_amax_max = true, .form = FP8_SCALE_RECIPROCAL, .multiply = true, .divides = true},
    {FOR(TRANSFORMERS, TENSOR | BLOCK, POW2, FN, E8M0), .zero_amax_max = true, .form = FP8_SCALE_RECIPROCAL, .multiply = true, .divides = true,
     .scale_floor = 0x1p-126f, EXPONENT(CEIL_LOG2)},

    {FOR(TORCHAO, TENSOR | ROW | GROUP | BLOCK, DYNAMIC | STATIC, FN | E5M2, F32), .scale_in_input = true, .divides = true},
    {FOR(TORCHAO_TRAIN, TENSOR | ROW, DYNAMIC, FN | E5M2, F32), FLOOR(1e-12), .form = FP8_SCALE_RECIPROCAL_F64, .multiply = true},
    {FOR(MX_OCP, MX, POW2, FN | E5M2, E8M0), EXPONENT(FLOOR_A), .divides = true},
    {FOR(MX_FLOOR, MX, POW2, FN | E5M2, E8M0), .inputs = F32 | BF16, EXPONENT(FLOOR_A), .divisor_of_min = 0x1p-126f, .divides = true},
    {FOR(MX_CEIL, MX, POW2, FN | E5M2, E8M0), .inputs = F32 | BF16, EXPONENT(CEIL_A), .divisor_of_min = 0x1p-126f, .divides = true},
    {FOR(MX_EVEN, MX, POW2, FN | E5M2, E8M0), .inputs = F32 | BF16, EXPONENT(EVEN_A), .divisor_of_min = 0x1p-126f, .divides = true},
    {FOR(MX_RCEIL, MX, POW2, FN | E5M2, E8M0), .inputs = F32 | BF16, EXPONENT(CEIL_LOG2), .divisor_of_min = 1.0f, .divides = true},

    {FOR(MODELOPT, TENSOR, DYNAMIC, FN, F32), .refuses_nan = true, .quotient_in_input = true},
    {FOR(MODELOPT, ROW | BLOCK, DYNAMIC, FN, F32), .refuses_nan = true, .zero_amax_max = true, .floor = FP8_FLOOR_MIN_NORMAL},
    {FOR(MODELOPT, MX, POW2, FN, E8M0), EXPONENT(CEIL_LOG2), .divides = true},

    {FOR(DEEPSEEK, GROUP | BLOCK, DYNAMIC, FN, F32), FLOOR(1e-4), .multiply = true},
    {FOR(DEEPSEEK, GROUP | BLOCK | MX, POW2, FN, F32 | E8M0), FLOOR(1e-4), .multiply = true, EXPONENT(CEIL), .normal_scale = true},

    {FOR(SLIME, TENSOR, DYNAMIC, FN, F32), .floor = FP8_FLOOR_IN_INPUT, .floor_value = 1e-12, .quotient_in_input = true},
    {FOR(SLIME, ROW | BLOCK, DYNAMIC, FN, F32), .floor = FP8_FLOOR_IN_INPUT, .floor_value = 1e-12},
};
/* clang-format on */
enum { ROWS = sizeof table / sizeof *table };

const char *fp8_rule_name(int64_t i)
{
    return i >= 0 && i < RULES ? names[i] : NULL;
}

fp8_status fp8_rule_parse(const char *name, fp8_rule *out, fp8_error *err)
{
    char list[512];
    size_t used = 0;
    for (int i = 0; i < RULES; i++) {
        if (name && !strcmp(name, names[i])) {
            *out = (fp8_rule)i;
            return FP8_OK;
        }
        used += (size_t)snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", names[i]);
    }
    return fp8_fail(err, FP8_E_NOT_FOUND, "no rounding rule '%s'; there are %s",
                    name ? name : "(null)", list);
}

float fp8_rule_code_max(const fp8_rule_row *row, fp8_dtype code)
{
    return code == FP8_E4M3FNUZ && row->fnuz_max > 0 ? row->fnuz_max
                                                     : fp8_dtype_facts_of(code)->max;
}

/* What kind of grid this is. 1 x 32 with powers of two is MX, and a plain group as well unless
 * they are stored as e8m0. */
static unsigned grid_kind(const fp8_rule_key *key)
{
    const fp8_grid g = key->grid;
    if (g.rows == 1 && g.cols == 32 && key->pow2)
        return key->scale == FP8_E8M0FNU ? FP8_ON_MX : FP8_ON_MX | FP8_ON_GROUP;
    if (g.rows == 0 && g.cols == 0)
        return FP8_ON_TENSOR;
    if (g.rows == 1)
        return g.cols == 0 ? FP8_ON_ROW : FP8_ON_GROUP;
    if (g.cols == 1 && g.rows == 0)
        return FP8_ON_COLUMN;
    return g.rows == 0 || g.cols == 0 ? FP8_ON_BAND : FP8_ON_BLOCK;
}

static unsigned dtype_bit(fp8_dtype dtype)
{
    switch (dtype) {
    case FP8_E4M3FN:
        return FP8_TAKES_E4M3FN;
    case FP8_E4M3FNUZ:
        return FP8_TAKES_E4M3FNUZ;
    case FP8_E5M2:
        return FP8_TAKES_E5M2;
    case FP8_F32:
        return FP8_TAKES_F32;
    case FP8_F16:
        return FP8_TAKES_F16;
    case FP8_BF16:
        return FP8_TAKES_BF16;
    case FP8_E8M0FNU:
        return FP8_TAKES_E8M0;
    default:
        return 0;
    }
}

static bool takes_grid(const fp8_rule_row *row, const fp8_rule_key *key)
{
    return row->rule == key->rule && row->grids & grid_kind(key);
}

static bool takes_when(const fp8_rule_row *row, const fp8_rule_key *key)
{
    const unsigned when = key->is_static ? FP8_WHEN_STATIC
                          : key->pow2    ? FP8_WHEN_POW2
                                         : FP8_WHEN_DYNAMIC;
    return row->when & when;
}

static bool takes_input(const fp8_rule_row *row, const fp8_rule_key *key)
{
    return !row->inputs || row->inputs & dtype_bit(key->in);
}

static bool takes_code(const fp8_rule_row *row, const fp8_rule_key *key)
{
    return row->codes & dtype_bit(key->code);
}

static bool takes_scale(const fp8_rule_row *row, const fp8_rule_key *key)
{
    if (row->scales & FP8_TAKES_INPUT && key->scale == key->in)
        return true;
    return row->scales & dtype_bit(key->scale);
}

/* How far a row goes with a key; STAGES = all the way. */
static bool (*const stages[])(const fp8_rule_row *, const fp8_rule_key *) = {
    takes_grid, takes_when, takes_input, takes_code, takes_scale};
enum { STAGES = sizeof stages / sizeof *stages };

static int stages_passed(const fp8_rule_row *row, const fp8_rule_key *key)
{
    int n = 0;
    while (n < STAGES && stages[n](row, key))
        n++;
    return n;
}

static const char *when_words(const fp8_rule_key *key)
{
    return key->is_static ? "static scales" : key->pow2 ? "power-of-two scales" : "dynamic scales";
}

fp8_status fp8_rule_find(const fp8_rule_key *key, const fp8_rule_row **out, fp8_error *err)
{
    FP8_FAIL_IF((unsigned)key->rule >= RULES, err, FP8_E_ARGUMENT, "rounding rule %d is not 0..%d",
                (int)key->rule, RULES - 1);
    int furthest = 0;
    for (int i = 0; i < ROWS; i++) {
        const int passed = stages_passed(&table[i], key);
        if (passed == STAGES) {
            *out = &table[i];
            return FP8_OK;
        }
        furthest = passed > furthest ? passed : furthest;
    }
    static const char *const what[STAGES] = {"for this grid", "there", "for this input",
                                             "with these codes", "with these scales"};
    return fp8_fail(err, FP8_E_UNSUPPORTED,
                    "rule '%s' is not defined %s: grid %lld x %lld (0 = all), %s, %s to %s, scales "
                    "%s",
                    names[key->rule], what[furthest], (long long)key->grid.rows,
                    (long long)key->grid.cols, when_words(key), fp8_dtype_name(key->in),
                    fp8_dtype_name(key->code), fp8_dtype_name(key->scale));
}
