/* SPDX-License-Identifier: Apache-2.0
 *
 * dtype.c - the table of element types. */
#include "number/dtype.h"
#include "number/number.h"

static float load_f32(const void *data, int64_t i)
{
    float x;
    memcpy(&x, (const char *)data + 4 * i, sizeof x);
    return x;
}

static void store_f32(void *data, int64_t i, float value, bool saturate)
{
    uint32_t bits = fp8_bits_of_f32(value);
    if (saturate && (bits & 0x7FFFFFFF) == 0x7F800000)
        bits--; /* infinity becomes the largest finite value */
    memcpy((char *)data + 4 * i, &bits, sizeof bits);
}

#define DEFINE_LOAD_STORE(NAME, CODE)                                              \
    static float load_##NAME(const void *data, int64_t i)                          \
    {                                                                              \
        CODE code;                                                                 \
        memcpy(&code, (const char *)data + (int64_t)sizeof code * i, sizeof code); \
        return fp8_##NAME##_to_f32(code);                                          \
    }                                                                              \
    static void store_##NAME(void *data, int64_t i, float value, bool saturate)    \
    {                                                                              \
        CODE code = fp8_##NAME##_from_f32(value, saturate);                        \
        memcpy((char *)data + (int64_t)sizeof code * i, &code, sizeof code);       \
    }
DEFINE_LOAD_STORE(f16, uint16_t)
DEFINE_LOAD_STORE(bf16, uint16_t)
DEFINE_LOAD_STORE(e4m3fn, uint8_t)
DEFINE_LOAD_STORE(e4m3fnuz, uint8_t)
DEFINE_LOAD_STORE(e5m2, uint8_t)
DEFINE_LOAD_STORE(e5m2fnuz, uint8_t)

static float load_e8m0fnu(const void *data, int64_t i)
{
    return fp8_e8m0fnu_to_f32(((const uint8_t *)data)[i]);
}

static void store_e8m0fnu(void *data, int64_t i, float value, bool saturate)
{
    ((uint8_t *)data)[i] = saturate ? fp8_e8m0fnu_from_f32_up(value) : fp8_e8m0fnu_from_f32(value);
}

/* clang-format off */
#define FUNCTIONS(NAME) load_##NAME, store_##NAME
#define CARRIED 0, false, 0, 0, 0, NULL, NULL
static const fp8_dtype_facts table[] = {
    /* dtype         name           bits max            inf    NaN mask, from, to                   */
    [FP8_F32] = {FP8_F32,      "F32",          32, 0x1.fffffep127f, true,  0x7FFFFFFF, 0x7F800001, 0x7FFFFFFF, FUNCTIONS(f32)},
    [FP8_F16] = {FP8_F16,      "F16",          16, 65504.0f,        true,  0x7FFF,     0x7C01,     0x7FFF,     FUNCTIONS(f16)},
    [FP8_BF16] = {FP8_BF16,     "BF16",         16, 0x1.fep127f,     true,  0x7FFF,     0x7F81,     0x7FFF,     FUNCTIONS(bf16)},
    [FP8_E4M3FN] = {FP8_E4M3FN,   "F8_E4M3",      8,  448.0f,          false, 0x7F,       0x7F,       0x7F,       FUNCTIONS(e4m3fn)},
    [FP8_E4M3FNUZ] = {FP8_E4M3FNUZ, "F8_E4M3FNUZ",  8,  240.0f,          false, 0xFF,       0x80,       0x80,       FUNCTIONS(e4m3fnuz)},
    [FP8_E5M2] = {FP8_E5M2,     "F8_E5M2",      8,  57344.0f,        true,  0x7F,       0x7D,       0x7F,       FUNCTIONS(e5m2)},
    [FP8_E5M2FNUZ] = {FP8_E5M2FNUZ, "F8_E5M2FNUZ",  8,  57344.0f,        false, 0xFF,       0x80,       0x80,       FUNCTIONS(e5m2fnuz)},
    [FP8_E8M0FNU] = {FP8_E8M0FNU,  "F8_E8M0",      8,  0x1p127f,        false, 0xFF,       0xFF,       0xFF,       FUNCTIONS(e8m0fnu)},
    [FP8_F64] = {FP8_F64,      "F64",          64, CARRIED},
    [FP8_C64] = {FP8_C64,      "C64",          64, CARRIED},
    [FP8_BOOL] = {FP8_BOOL,     "BOOL",         8,  CARRIED},
    [FP8_U8] = {FP8_U8,       "U8",           8,  CARRIED},
    [FP8_I8] = {FP8_I8,       "I8",           8,  CARRIED},
    [FP8_U16] = {FP8_U16,      "U16",          16, CARRIED},
    [FP8_I16] = {FP8_I16,      "I16",          16, CARRIED},
    [FP8_U32] = {FP8_U32,      "U32",          32, CARRIED},
    [FP8_I32] = {FP8_I32,      "I32",          32, CARRIED},
    [FP8_U64] = {FP8_U64,      "U64",          64, CARRIED},
    [FP8_I64] = {FP8_I64,      "I64",          64, CARRIED},
    [FP8_F4] = {FP8_F4,       "F4",           4,  CARRIED},
    [FP8_F6_E2M3] = {FP8_F6_E2M3,  "F6_E2M3",      6,  CARRIED},
    [FP8_F6_E3M2] = {FP8_F6_E3M2,  "F6_E3M2",      6,  CARRIED},
};
/* clang-format on */

const fp8_dtype_facts *fp8_dtype_facts_of(fp8_dtype dtype)
{
    const size_t i = (size_t)dtype;
    return i < sizeof table / sizeof *table && table[i].name ? &table[i] : NULL;
}

const char *fp8_dtype_name(fp8_dtype dtype)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    return facts ? facts->name : NULL;
}

const char *fp8_dtype_word(fp8_dtype dtype)
{
    const char *name = fp8_dtype_name(dtype);
    return name ? name : "no dtype";
}

int fp8_dtype_bits(fp8_dtype dtype)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    return facts ? facts->bits : 0;
}

fp8_dtype fp8_dtype_parse(const char *name)
{
    for (size_t i = 0; name && i < sizeof table / sizeof *table; i++)
        if (table[i].name && !strcmp(table[i].name, name))
            return table[i].dtype;
    return FP8_DTYPE_NONE;
}

bool fp8_dtype_is_nan(fp8_dtype dtype, uint32_t code)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    if (!facts || !facts->nan_mask)
        return false;
    code &= facts->nan_mask;
    return code >= facts->nan_first && code <= facts->nan_last;
}

bool fp8_dtype_is_real(fp8_dtype dtype)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(dtype);
    return facts && facts->load && dtype != FP8_E8M0FNU;
}

bool fp8_dtype_is_high(fp8_dtype dtype)
{
    return dtype == FP8_F32 || dtype == FP8_F16 || dtype == FP8_BF16;
}

bool fp8_dtype_is_scale(fp8_dtype dtype)
{
    return fp8_dtype_is_high(dtype) || dtype == FP8_E8M0FNU;
}

bool fp8_dtype_is_fp8(fp8_dtype dtype)
{
    return fp8_dtype_is_real(dtype) && fp8_dtype_bits(dtype) == 8;
}
