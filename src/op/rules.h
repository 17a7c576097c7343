/* SPDX-License-Identifier: Apache-2.0
 *
 * rules.h - the rounding rules as data. A row says, for one rule and the grids it covers, how an
 * amax becomes a scale and how an element becomes a code; scale.c and the kernels interpret rows
 * and know no rule by name. docs/numerics.md has the same table in prose.
 *
 *     a     = max(min(amax, scale_ub), floor);   the value of zero_amax in place of 0
 *     scale = a / max | a * (1 / max) | 1 / m with m = max / a, at least scale_floor; or a power of
 * two code  = encode(clamp(x / scale | x * (1 / scale), -max, max))
 *
 * A row may only say what its original does; what we do better lives in `best` and in the rescue
 * of units that the original would lose (scale.c). */
#ifndef FP8_OP_RULES_H
#define FP8_OP_RULES_H

#include "base/status.h"

#include <stdbool.h>

/* What a grid is to a rule, as bits so that a row can serve several. */
enum {
    FP8_ON_TENSOR = 1, /* {0,0} */
    FP8_ON_ROW = 2,    /* {1,0} */
    FP8_ON_COLUMN = 4, /* {0,1} */
    FP8_ON_GROUP = 8,  /* {1,n} */
    FP8_ON_BLOCK = 16, /* {m,n} */
    FP8_ON_BAND = 32,  /* {0,n} and {m,0}, n and m above 1 */
    FP8_ON_MX = 64,    /* {1,32} with e8m0 scales */
    FP8_ON_ANY = 127,
};

/* When a row applies: static or dynamic scales, powers of two or not. */
enum {
    FP8_WHEN_DYNAMIC = 1,
    FP8_WHEN_POW2 = 2, /* dynamic, rounded to powers of two or stored as e8m0 */
    FP8_WHEN_STATIC = 4,
};

/* Which dtypes a row takes, as bits. */
enum {
    FP8_TAKES_E4M3FN = 1,
    FP8_TAKES_E4M3FNUZ = 2,
    FP8_TAKES_E5M2 = 4,
    FP8_TAKES_F32 = 8,
    FP8_TAKES_F16 = 16,
    FP8_TAKES_BF16 = 32,
    FP8_TAKES_E8M0 = 64,
    FP8_TAKES_INPUT = 128, /* a scale of the input's dtype */
};

/* The least amax that a rule reckons with. */
typedef enum fp8_amax_floor {
    FP8_FLOOR_NONE = 0,
    FP8_FLOOR_F32,        /* floor_value rounded to fp32 */
    FP8_FLOOR_IN_INPUT,   /* floor_value rounded to the input's dtype */
    FP8_FLOOR_MIN_NORMAL, /* smallest normal number of the input's dtype */
} fp8_amax_floor;

/* How an amax becomes a scale, before any power of two. */
typedef enum fp8_scale_form {
    FP8_SCALE_DIVIDE = 0,     /* a / max */
    FP8_SCALE_TIMES,          /* a * (1 / max) */
    FP8_SCALE_INVERSE,        /* m = max / a; the codes take m, the scale stored is 1 / m */
    FP8_SCALE_RECIPROCAL,     /* the same with m = (1 / a) * max, PyTorch's scalar / tensor */
    FP8_SCALE_RECIPROCAL_F64, /* the same in fp64, m rounded to fp32 */
} fp8_scale_form;

/* The exponent e of a power-of-two scale 2^e. `s` is the scale before, `a` the amax, and `top` the
 * exponent of the largest power of two in the code format (8 for e4m3fn). */
typedef enum fp8_exponent {
    FP8_EXPONENT_NONE = 0,
    FP8_EXPONENT_EXACT,     /* least e with a <= max * 2^e, by bits */
    FP8_EXPONENT_CEIL,      /* ceil(log2 s), by bits */
    FP8_EXPONENT_CEIL_LOG2, /* ceil of the fp32 number that log2(s) rounds to */
    FP8_EXPONENT_FLOOR_A,   /* floor(log2 a) - top */
    FP8_EXPONENT_CEIL_A,    /* ceil(log2 a) - top */
    FP8_EXPONENT_EVEN_A,    /* floor(log2 a) - top, a rounded to the code's mantissa, half up */
    FP8_EXPONENT_QUARTER_A, /* the same with one bit of mantissa: up from 1.75 */
} fp8_exponent;

/* What a quotient that is NaN becomes: where x is NaN or infinite under the policy ORIGINAL, and
 * where a zero meets an infinite reciprocal. */
typedef enum fp8_nan_code {
    FP8_NAN_STAYS = 0,
    FP8_NAN_TO_MAX, /* max(-Q, min(y, Q)) of a processor that drops NaN */
    FP8_NAN_TO_MIN, /* min(max(y, -Q), Q) of one */
} fp8_nan_code;

/* Which elements take part in an amax. */
typedef enum fp8_amax_keep {
    FP8_KEEP_ALL = 0,
    FP8_KEEP_NUMBERS, /* neither NaN nor infinity */
    FP8_KEEP_NO_NAN,
} fp8_amax_keep;

typedef struct fp8_rule_row {
    uint8_t rule;        /* fp8_rule */
    uint8_t grids;       /* FP8_ON_* */
    uint8_t when;        /* FP8_WHEN_* */
    uint8_t inputs;      /* FP8_TAKES_* of x (0 = F32, F16 and BF16) .. */
    uint8_t codes;       /* .. of the codes .. */
    uint8_t scales;      /* .. and of the scales */
    bool divides;        /* the matrix must be a multiple of the grid's block */
    bool scale_ub;       /* knows an upper bound on the amax */
    bool amax_drops_nan; /* original: NaN takes no part in the amax; else the unit's amax is NaN */
    bool refuses_nan;    /* original: NaN is an error */
    float fnuz_max;      /* the maximum used for e4m3fnuz; 0 = the format's own, 240 */
    uint8_t floor;       /* fp8_amax_floor */
    double floor_value;
    bool zero_amax_max;  /* amax 0 (or NaN) counts as the format's maximum: scale 1 */
    uint8_t form;        /* fp8_scale_form */
    bool scale_in_input; /* the scale is rounded to the input's dtype .. */
    bool zero_scale_eps; /* .. and 0 becomes that dtype's epsilon, for powers of two 1 */
    float scale_floor;   /* least scale; negative: 1 / (512 * max) */
    bool safe;         /* loses no unit: subnormal scales are rounded up, too large ones refused */
    uint8_t exponent;  /* fp8_exponent */
    bool normal_scale; /* powers of two from 2^-126 on; else from 2^-127 */
    float divisor_of_min;   /* what codes are divided by at e8m0 byte 0, 2^-127; 0 = that */
    bool multiply;          /* codes = x * (1 / scale); else x / scale */
    bool quotient_in_input; /* the quotient is rounded to the input's dtype, then to the code */
    bool plus_zero;         /* a quotient of -0 becomes +0 */
    uint8_t nan_code;       /* fp8_nan_code */
} fp8_rule_row;

/* What a row is looked up by. */
typedef struct fp8_rule_key {
    fp8_rule rule;
    fp8_grid grid;
    bool is_static, pow2;
    fp8_dtype in, code, scale;
} fp8_rule_key;

/* The row for a key. UNSUPPORTED or DTYPE, with words, if the rule's original has none. */
fp8_status fp8_rule_find(const fp8_rule_key *key, const fp8_rule_row **out, fp8_error *err);

/* The rule called `name`; NOT_FOUND with the list of names. */
fp8_status fp8_rule_parse(const char *name, fp8_rule *out, fp8_error *err);

/* The maximum of the code format under a row: 448, 224 or 240, 57344. */
float fp8_rule_code_max(const fp8_rule_row *row, fp8_dtype code);

#endif
