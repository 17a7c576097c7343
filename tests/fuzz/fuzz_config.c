/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_config.c - any bytes as config.json. What is accepted takes a quantization_config and gives
 * it back: the text without it is the same before and after, byte for byte. */
#include "ckpt/config.h"
#include "ckpt/quantconfig.h"
#include "fuzz/fuzz.h"

#include <stdlib.h>
#include <string.h>

static fp8_context *ctx;

/* A text with our value, or without any. */
static char *splice(const char *text, uint64_t bytes, const char *value, uint64_t *out_bytes)
{
    char *out;
    fp8_config config;
    FUZZ_CHECK(fp8_config_splice(ctx, text, bytes, value, &out, out_bytes, NULL) == FP8_OK);
    FUZZ_CHECK(fp8_config_read(out, *out_bytes, &config, NULL) == FP8_OK);
    FUZZ_CHECK((config.quantization.text != NULL) == (value != NULL));
    return out;
}

/* The object has no member: what is put in and taken out again leaves other white space. */
static int is_empty(const char *text)
{
    while (*text && *text != '{')
        text++;
    text += *text == '{';
    return text[strspn(text, " \t\r\n")] == '}';
}

static void check_round_trip(const char *text, uint64_t bytes)
{
    uint64_t bare_bytes, with_bytes, again_bytes;
    char *bare = splice(text, bytes, NULL, &bare_bytes);
    char *with = splice(bare, bare_bytes, "{\n  \"quant_method\": \"fp8\"\n}", &with_bytes);
    char *again = splice(with, with_bytes, NULL, &again_bytes);
    FUZZ_CHECK(is_empty(bare) ||
               (again_bytes == bare_bytes && memcmp(again, bare, bare_bytes) == 0));
    fp8_release(ctx, bare);
    fp8_release(ctx, with);
    fp8_release(ctx, again);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t bytes)
{
    fp8_config config;
    fp8_quant_config quant;
    const fp8_quant_group *group;
    fp8_error err;
    if (!ctx)
        FUZZ_CHECK(fp8_context_create(NULL, &ctx, NULL) == FP8_OK);
    char *text = malloc(bytes + 1); /* exactly so long: reading past it is found */
    FUZZ_CHECK(text);
    memcpy(text, data, bytes);
    if (fp8_config_read(text, bytes, &config, &err) != FP8_OK) {
        FUZZ_CHECK(err.msg[0] && err.pos <= (int64_t)bytes);
        free(text);
        return 0;
    }
    const fp8_span none = {NULL, 0}, whole = {text, bytes};
    if (fp8_quant_config_read(ctx, config.quantization, none, &quant, &err) == FP8_OK) {
        (void)fp8_quant_config_group(&quant, "model.layers.0.mlp", 18, &group, &err);
        fp8_quant_config_free(ctx, &quant);
    }
    if (fp8_quant_config_read(ctx, none, whole, &quant, &err) == FP8_OK)
        fp8_quant_config_free(ctx, &quant);
    check_round_trip(text, bytes);
    free(text);
    return 0;
}
