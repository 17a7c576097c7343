/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checkpoints.c - checkpoints as transformers and compressed-tensors wrote them. The folder's
 * name ends in what it is; dequantized.tsv has, of each FP8 weight, the FNV-1a-64 of the bf16 bytes
 * that the package which owns the format gets back. Two kinds of folders are broken as their
 * writers left them, and must be found out. */
#include "base/size.h"
#include "ckpt/roles.h"
#include "golden/golden.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const char family[] = "checkpoints";

/* What the end of a folder's name promises. */
static const struct form {
    const char *tail, *dialect;
} forms[] = {
    {"_bf16", "none"},
    {"_ct_tensor_static", "ct-tensor-static"},
    {"_ct_channel_token", "ct-channel"},
    {"_ct_block", "ct-block"},
    {"_ct_w8a16", "ct-w8a16"},
    {"_ct_mxfp8", "ct-mxfp8"},
    {"_hf_block_ue8m0", "hf-block-ue8m0"},
    {"_hf_block", "hf-block"},
    {"_hf_tensor", "hf-tensor"},
    {"_hf_block_garbage_scales", "hf-block"},
    {"_hf_block_fused_scales", "hf-block"},
};

static bool ends_with(const char *text, const char *tail)
{
    size_t n = strlen(text), m = strlen(tail);
    return n >= m && strcmp(text + n - m, tail) == 0;
}

static const char *wanted_dialect(const char *folder)
{
    for (size_t i = 0; i < sizeof forms / sizeof *forms; i++)
        if (ends_with(folder, forms[i].tail))
            return forms[i].dialect;
    return "a folder of this form";
}

/* An open folder and its roles. */
typedef struct opened {
    const char *folder;
    fp8_checkpoint *ckpt;
    fp8_roles roles;
} opened;

static bool is_code(const fp8_tensor_info *t)
{
    return t->dtype == FP8_E4M3FN;
}

/* The tensor whose name is that of `scale` without `tail`, plus ".weight". */
static bool weight_is_code(const opened *o, const char *scale, const char *tail)
{
    char name[512];
    fp8_tensor_info info;
    int stem = (int)(strlen(scale) - strlen(tail));
    int n = snprintf(name, sizeof name, "%.*s.weight", stem, scale);
    return fp8_checkpoint_find(o->ckpt, name, (size_t)n, &info) == FP8_OK && is_code(&info);
}

/* What is to be said of one tensor: its role and the problem's rule ("" = none). */
static fp8_role wanted_role(const opened *o, const fp8_tensor_info *t, const char **rule)
{
    static const char *const tails[] = {".weight_scale", ".weight_scale_inv", ".input_scale"};
    bool fused = ends_with(o->folder, "_fused_scales") && strstr(t->name, ".experts.");
    *rule = "";
    if (is_code(t)) {
        *rule = fused ? "scale-missing" : "";
        return fused ? FP8_ROLE_BARE_CODES : FP8_ROLE_WEIGHT;
    }
    for (size_t i = 0; i < sizeof tails / sizeof *tails; i++) {
        if (!ends_with(t->name, tails[i]))
            continue;
        if (weight_is_code(o, t->name, tails[i]))
            return i == 2 ? FP8_ROLE_INPUT_SCALE : FP8_ROLE_SCALE;
        *rule = "scale-unquantized";
        return FP8_ROLE_STRAY_SCALE;
    }
    if (fused && ends_with(t->name, "_scale_inv")) {
        *rule = "scale-fused";
        return FP8_ROLE_STRAY_SCALE;
    }
    return FP8_ROLE_PLAIN;
}

static void check_roles(const opened *o)
{
    for (int64_t i = 0; i < fp8_checkpoint_count(o->ckpt); i++) {
        fp8_tensor_info t;
        const char *rule;
        assert_int_equal(fp8_checkpoint_tensor(o->ckpt, i, &t), FP8_OK);
        const fp8_role_info *r = &o->roles.tensors[i];
        fp8_role role = wanted_role(o, &t, &rule);
        bool ok = r->role == role && strcmp(r->problem ? r->problem->rule : "", rule) == 0;
        golden_check(family, *rule ? "defects" : "roles", ok, "%s: %s: role %d, wanted %d; %s",
                     o->folder, t.name, (int)r->role, (int)role,
                     r->problem ? r->problem->rule : "no problem");
    }
}

/* ---- values ---- */

static uint64_t fnv1a64(const unsigned char *data, size_t bytes)
{
    uint64_t hash = 0xcbf29ce484222325u;
    for (size_t i = 0; i < bytes; i++)
        hash = (hash ^ data[i]) * 0x100000001b3u;
    return hash;
}

static void *read_all(const fp8_checkpoint *ckpt, const fp8_tensor_info *t)
{
    void *data = malloc(t->bytes + 1);
    assert_non_null(data);
    assert_int_equal(fp8_checkpoint_read(ckpt, t, 0, t->bytes, data, NULL), FP8_OK);
    return data;
}

/* Digest of weight w [rows, cols] in bf16: fp8_dequantize of its codes and scales. */
static uint64_t digest(const fp8_context *ctx, const opened *o, int64_t i, const fp8_tensor_info *w)
{
    const fp8_role_info *role = &o->roles.tensors[i];
    fp8_tensor_info s;
    fp8_tensor scales;
    fp8_error err = {0};
    assert_int_equal(fp8_checkpoint_tensor(o->ckpt, role->partner, &s), FP8_OK);
    void *codes = read_all(o->ckpt, w), *scale_data = read_all(o->ckpt, &s);
    size_t bytes = 2 * (size_t)w->bytes;
    void *real = malloc(bytes + 1);
    assert_non_null(real);
    fp8_tensor x = fp8_matrix(codes, w->dtype, w->shape[0], w->shape[1]);
    fp8_tensor y = fp8_matrix(real, FP8_BF16, w->shape[0], w->shape[1]);
    assert_null(role->problem);
    scales = fp8_matrix(scale_data, role->scale,
                        fp8_ceil_div(w->shape[0], fp8_grid_extent(role->grid.rows, w->shape[0])),
                        fp8_ceil_div(w->shape[1], fp8_grid_extent(role->grid.cols, w->shape[1])));
    assert_int_equal(fp8_dequantize(ctx, role->grid, &x, &scales, &y, NULL, &err), FP8_OK);
    uint64_t hash = fnv1a64(real, bytes);
    free(real);
    free(scale_data);
    free(codes);
    return hash;
}

/* One line of dequantized.tsv. A weight whose scale the owner of the format did not find either has
 * no digest. */
static void check_value(const fp8_context *ctx, const opened *o, const char *name,
                        const char *wanted)
{
    fp8_tensor_info w;
    int64_t i = fp8_checkpoint_index(o->ckpt, name, strlen(name));
    if (i < 0 || fp8_checkpoint_tensor(o->ckpt, i, &w) != FP8_OK) {
        golden_fail(family, "values", "%s: no tensor %s", o->folder, name);
        return;
    }
    const fp8_role_info *role = &o->roles.tensors[i];
    if (strlen(wanted) != 16) {
        golden_check(family, "no value", role->problem && role->problem->unreadable,
                     "%s: %s: read, but %s", o->folder, name, wanted);
        return;
    }
    if (role->role != FP8_ROLE_WEIGHT || (role->problem && role->problem->unreadable)) {
        golden_fail(family, "values", "%s: %s cannot be read", o->folder, name);
        return;
    }
    char found[17];
    snprintf(found, sizeof found, "%016llx", (unsigned long long)digest(ctx, o, i, &w));
    golden_check(family, "values", strcmp(found, wanted) == 0, "%s: %s: %s, wanted %s", o->folder,
                 name, found, wanted);
}

/* Every FP8 weight must be in the table. */
static void check_values(const fp8_context *ctx, const opened *o)
{
    char file[512];
    snprintf(file, sizeof file, "%s/dequantized.tsv", o->folder);
    golden_table *t = golden_read_tsv(family, file);
    int64_t codes = 0, rows = t ? golden_rows(t) : 0;
    for (int64_t i = 0; i < rows; i++)
        check_value(ctx, o, golden_cell(t, i, "tensor"), golden_cell(t, i, "fnv1a64"));
    for (int64_t i = 0; i < fp8_checkpoint_count(o->ckpt); i++) {
        fp8_tensor_info w;
        assert_int_equal(fp8_checkpoint_tensor(o->ckpt, i, &w), FP8_OK);
        codes += is_code(&w);
    }
    golden_check(family, "tables", codes == rows, "%s: %lld FP8 weights, %lld in the table",
                 o->folder, (long long)codes, (long long)rows);
    golden_free_tsv(t);
}

static void check_folder(const fp8_context *ctx, const char *folder)
{
    opened o = {folder, NULL, {.quantized = false}};
    fp8_error err = {0};
    char path[4096];
    snprintf(path, sizeof path, "%s", golden_path(family, folder));
    fp8_status status = fp8_checkpoint_open(ctx, path, &o.ckpt, &err);
    if (status == FP8_OK)
        status = fp8_roles_assign(ctx, o.ckpt, &o.roles, &err);
    golden_check(family, "open", status == FP8_OK, "%s: %s", folder, err.msg);
    if (status == FP8_OK) {
        const char *found = fp8_checkpoint_dialect(o.ckpt);
        golden_check(family, "dialect", strcmp(found, wanted_dialect(folder)) == 0,
                     "%s: %s, wanted %s", folder, found, wanted_dialect(folder));
        check_roles(&o);
        check_values(ctx, &o);
    }
    fp8_roles_free(ctx, &o.roles);
    fp8_checkpoint_close(o.ckpt);
}

static void checkpoints_are_understood(void **state)
{
    (void)state;
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    char **folders = golden_names(family, "");
    for (char **folder = folders; *folder; folder++)
        if (!ends_with(*folder, ".tsv"))
            check_folder(ctx, *folder);
    golden_free_names(folders);
    fp8_context_free(ctx);
    assert_true(golden_report(family));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(checkpoints_are_understood)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
