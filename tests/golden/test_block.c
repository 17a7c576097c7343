/* SPDX-License-Identifier: Apache-2.0
 *
 * test_block.c - matmuls with a scale a block of W and a group of X's row.
 *
 *     mm_*      out, triton, out_bias (rounded twice: FP8_EPILOGUE_BIAS_LAST): bits where the data
 *               are exact, else within the bound
 *     tp_col_*, tp_merged_*, tp_row_*   tensor-parallel shards whose first row or column is no
 *               multiple of the block: within the bound of the whole weight's answer; with X as
 *               codes and, "dynamic", quantized inside by the rule vllm
 *     tp_validate, tp_adjust_shard      which shards vLLM refuses and why, and the blocks of one */
#include "golden/golden_linear.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
/* cmocka.h needs the four above. */
#include <cmocka.h>

static const char family[] = "block";

static golden_linear block_case(const char *name, fp8_grid grid, fp8_epilogue epilogue)
{
    golden_linear c = {.family = family, .name = name};
    c.desc = (fp8_linear_desc)FP8_LINEAR_DESC_INIT;
    c.desc.activation = FP8_ACTIVATION_CODES;
    c.desc.epilogue = epilogue;
    c.desc.x.grid = (fp8_grid){1, grid.cols};
    c.desc.w.grid = grid;
    return c;
}

/* ---- mm_* ------------------------------------------------------------------------------------ */

/* The outputs of a file. */
static const struct output {
    const char *name, *mode;
    bool has_bias;
} outputs[] = {
    {"out_bf16", "mm out", false},       {"out_f16", "mm out", false},
    {"triton_bf16", "mm triton", false}, {"triton_f16", "mm triton", false},
    {"out_bias_bf16", "mm bias", true},
};

/* exact[m,n] = out_f64 + bias; malloc'ed. */
static fp8_tensor with_bias(const fp8_tensor *out, const fp8_tensor *bias)
{
    const int64_t m = out->shape[0], n = out->shape[1];
    double *exact = malloc((size_t)(m * n + 1) * sizeof *exact);
    for (int64_t i = 0; i < m * n; i++)
        exact[i] = golden_real(out, i / n, i % n) + (bias->dtype ? element_of(bias, i % n, 0) : 0);
    return fp8_matrix(exact, FP8_F64, m, n);
}

static void check_output(const golden_file *f, const char *file, const struct output *o)
{
    const golden_tensor *want = golden_find(f, o->name);
    if (!want)
        return;
    const bool bits = strstr(file, "_exact") != NULL;
    const char *mode = golden_text("%s %s", o->mode, bits ? "bits" : "bound");
    golden_linear c = block_case(golden_text("%s %s", file, o->name), golden_grid(f, "block"),
                                 o->has_bias ? FP8_EPILOGUE_BIAS_LAST : FP8_EPILOGUE_FUSED);
    const fp8_tensor theirs = golden_matrix(want), out = golden_matrix(golden_find(f, "out_f64"));
    c.x = golden_matrix(golden_find(f, "a"));
    c.w = golden_matrix(golden_find(f, "b"));
    c.x_scales = golden_matrix(golden_find(f, "a_scale"));
    c.w_scales = golden_matrix(golden_find(f, "b_scale"));
    if (o->has_bias)
        c.bias = golden_matrix(golden_find(f, "bias_bf16"));
    if (!c.x.data || !c.w.data || !c.x_scales.data || !c.w_scales.data || !out.data) {
        golden_fail(family, mode, "%s: a tensor is missing", file);
        return;
    }
    const fp8_tensor exact = with_bias(&out, &c.bias);
    if (bits)
        golden_linear_bits(&c, mode, &theirs);
    else
        golden_linear_bound(&c, mode, theirs.dtype, &exact, &theirs);
    free(exact.data);
}

static void check_mm(const golden_file *f, const char *file)
{
    for (size_t i = 0; i < sizeof outputs / sizeof *outputs; i++)
        check_output(f, file, &outputs[i]);
}

/* ---- tp_* ------------------------------------------------------------------------------------ */

/* A whole weight and its inputs, and one rank of tp that has a piece of it. */
typedef struct shard {
    const char *file, *kind;
    fp8_tensor x, a, a_scale, b, b_scale;
    int tp, rank;
} shard;

/* W[first.rows .. + extent.rows, first.cols .. + extent.cols] with the scales that it touches. */
static void take_piece(golden_linear *c, const fp8_tensor *b, const fp8_tensor *b_scale,
                       fp8_grid first, fp8_grid extent)
{
    const fp8_grid g = c->desc.w.grid;
    fp8_block_shard rows, cols;
    assert_int_equal(fp8_block_shard_of(first.rows, extent.rows, g.rows, &rows, NULL), FP8_OK);
    assert_int_equal(fp8_block_shard_of(first.cols, extent.cols, g.cols, &cols, NULL), FP8_OK);
    c->w = golden_slice(*b, first.rows, extent.rows, first.cols, extent.cols);
    c->w_scales = golden_slice(*b_scale, rows.first, rows.count, cols.first, cols.count);
    c->desc.w_origin = (fp8_grid){rows.origin, cols.origin};
}

/* X as codes, then quantized inside; Y in fp32 and in bf16. */
static void check_piece(const shard *s, golden_linear *c, const fp8_tensor *x,
                        const fp8_tensor *want)
{
    const char *mode = golden_text("tp %s", s->kind);
    golden_linear_bound(c, mode, FP8_F32, want, NULL);
    golden_linear_bound(c, mode, FP8_BF16, want, NULL);
    c->x_codes = c->x;
    c->x = *x;
    c->desc.activation = FP8_ACTIVATION_DYNAMIC;
    c->desc.x.rule = FP8_RULE_VLLM;
    golden_linear_bound(c, golden_text("%s dynamic", mode), FP8_F32, want, NULL);
}

static void check_columns(const shard *s, const fp8_tensor *want)
{
    golden_linear c = block_case(golden_text("%s %d/%d", s->file, s->rank, s->tp),
                                 (fp8_grid){128, 128}, FP8_EPILOGUE_FUSED);
    const int64_t rows = s->b.shape[0] / s->tp;
    take_piece(&c, &s->b, &s->b_scale, (fp8_grid){s->rank * rows, 0},
               (fp8_grid){rows, s->b.shape[1]});
    c.x = s->a;
    c.x_scales = s->a_scale;
    check_piece(s, &c, &s->x, want);
}

/* Two weights one above the other, b_scale [2,rows,cols]: a linear for the part of each. */
static void check_merged(const shard *s, const fp8_tensor *want)
{
    const fp8_tensor *scales = &s->b_scale;
    const int64_t part = s->b.shape[0] / 2, rows = part / s->tp, cols = s->b.shape[1];
    for (int half = 0; half < 2; half++) {
        golden_linear c = block_case(golden_text("%s %d/%d of %d", s->file, s->rank, s->tp, half),
                                     (fp8_grid){128, 128}, FP8_EPILOGUE_FUSED);
        const fp8_tensor b = golden_slice(s->b, half * part, part, 0, cols);
        const fp8_tensor own = fp8_matrix((float *)scales->data + half * scales->stride[0],
                                          scales->dtype, scales->shape[1], scales->shape[2]);
        const fp8_tensor out = golden_slice(*want, 0, want->shape[0], half * rows, rows);
        take_piece(&c, &b, &own, (fp8_grid){s->rank * rows, 0}, (fp8_grid){rows, cols});
        c.x = s->a;
        c.x_scales = s->a_scale;
        check_piece(s, &c, &s->x, &out);
    }
}

/* A slice of X's columns, quantized by itself. */
static void check_row(const golden_file *f, const shard *s, const fp8_tensor *want)
{
    golden_linear c = block_case(golden_text("%s %d/%d", s->file, s->rank, s->tp),
                                 (fp8_grid){128, 128}, FP8_EPILOGUE_FUSED);
    const int64_t cols = s->b.shape[1] / s->tp, first = s->rank * cols;
    const fp8_tensor x = golden_slice(s->x, 0, s->x.shape[0], first, cols);
    take_piece(&c, &s->b, &s->b_scale, (fp8_grid){0, first}, (fp8_grid){s->b.shape[0], cols});
    c.x = golden_matrix(golden_findf(f, "tp%d_rank%d_a", s->tp, s->rank));
    c.x_scales = golden_matrix(golden_findf(f, "tp%d_rank%d_a_scale", s->tp, s->rank));
    check_piece(s, &c, &x, want);
}

/* The ranks' answers add up to that of tp, tp_row: the right answers are consistent. */
static void check_sum(const golden_file *f, const shard *s)
{
    const fp8_tensor sum = golden_matrix(golden_findf(f, "tp%d_sum_f64", s->tp));
    double worst = 0;
    for (int64_t i = 0; sum.data && i < sum.shape[0] * sum.shape[1]; i++) {
        double total = 0;
        for (int r = 0; r < s->tp; r++) {
            const fp8_tensor part =
                golden_matrix(golden_findf(f, "tp%d_rank%d_partial_f64", s->tp, r));
            total += golden_real(&part, i / sum.shape[1], i % sum.shape[1]);
        }
        worst = fmax(worst, fabs(total - golden_real(&sum, i / sum.shape[1], i % sum.shape[1])));
    }
    golden_check(family, "tp row sum", sum.data && worst < 1e-9, "%s tp %d: differs by %g", s->file,
                 s->tp, worst);
}

static void check_shard(const golden_file *f, const char *file, const char *name)
{
    shard s = {.file = file, .kind = "col"};
    int end = 0;
    if (sscanf(name, "tp%d_rank%d_%n", &s.tp, &s.rank, &end) != 2 ||
        (strcmp(name + end, "out_f64") && strcmp(name + end, "partial_f64")))
        return;
    const fp8_tensor want = golden_matrix(golden_find(f, name));
    s.x = golden_matrix(golden_find(f, "x"));
    s.a = golden_matrix(golden_find(f, "a"));
    s.a_scale = golden_matrix(golden_find(f, "a_scale"));
    s.b = golden_matrix(golden_find(f, "b"));
    s.b_scale = golden_matrix(golden_find(f, "b_scale"));
    if (!strncmp(file, "tp_row_", 7)) {
        s.kind = "row";
        check_row(f, &s, &want);
        if (s.rank == 0)
            check_sum(f, &s);
    } else if (!strncmp(file, "tp_merged_", 10)) {
        s.kind = "merged";
        check_merged(&s, &want);
    } else {
        check_columns(&s, &want);
    }
}

static void check_tp(const golden_file *f, const char *file)
{
    for (int64_t i = 0; i < golden_count(f); i++)
        check_shard(f, file, golden_at(f, i)->name);
}

/* ---- tp_validate, tp_adjust_shard -------------------------------------------------------------
 */

/* Columns: input_size, output_size, input_size_per_partition, tp_size, block_n, block_k,
 * allow_mismatch, n_partitions, their sizes. */
static fp8_block_shape_desc shape_desc(const int32_t *row, int64_t *widths)
{
    fp8_block_shape_desc desc = FP8_BLOCK_SHAPE_DESC_INIT;
    for (int i = 0; i < row[7]; i++)
        widths[i] = row[8 + i];
    desc.k = row[0];
    desc.n = row[1];
    desc.k_shard = row[2];
    desc.tp = row[3];
    desc.block = (fp8_grid){row[4], row[5]};
    desc.allow_mismatch = row[6];
    desc.widths = widths;
    desc.width_count = (size_t)row[7];
    return desc;
}

/* The reason of the case in the metadata, whose newlines are written \n: "Weight REASON." */
static const char *next_reason(const char **at)
{
    const char *end = strstr(*at, "\\n"), *quote = strchr(*at, '"');
    end = end && (!quote || end < quote) ? end : quote;
    const char *reason = golden_text("%.*s", (int)(end - *at), *at);
    *at = end == quote ? end : end + 2;
    return reason;
}

/* "Weight REASON." within what was said; an empty reason in an empty message. */
static bool says(const char *message, const char *reason)
{
    const size_t n = strlen(reason);
    if (n == 0)
        return *message == 0;
    return n > 8 && strstr(message, golden_text("%.*s", (int)n - 8, reason + 7)) != NULL;
}

static void check_validate(const golden_file *f, const char *file)
{
    const golden_tensor *cases = golden_find(f, "cases"), *ok = golden_find(f, "ok");
    const char *at = golden_metadata(f) ? strstr(golden_metadata(f), "\"messages\"") : NULL;
    at = at ? strchr(at + 10, '"') : NULL;
    at = at ? at + 1 : NULL;
    for (int64_t i = 0; cases && ok && at && i < cases->view.shape[0]; i++) {
        const int64_t cols = cases->view.shape[1];
        int64_t widths[64];
        const int32_t *row = (const int32_t *)cases->view.data + i * cols;
        const fp8_block_shape_desc desc = shape_desc(row, widths);
        const char *reason = next_reason(&at);
        fp8_error err = {.msg = ""};
        const fp8_status status = fp8_validate_block_shape(&desc, &err);
        const bool want = ((const uint8_t *)ok->view.data)[i];
        golden_check(family, "tp validate",
                     status == (want ? FP8_OK : FP8_E_SHAPE) && says(err.msg, reason),
                     "%s %lld: %s, want %s", file, (long long)i, err.msg, reason);
    }
}

/* Columns: offset, size, vLLM's two, which are wrong off a border, then the true first, count and
 * origin. */
static void check_adjust(const golden_file *f, const char *file)
{
    const golden_tensor *rows = golden_find(f, "rows");
    for (int64_t i = 0; rows && i < rows->view.shape[0]; i++) {
        const int32_t *row = (const int32_t *)rows->view.data + i * rows->view.shape[1];
        fp8_block_shard s;
        const bool ok = fp8_block_shard_of(row[0], row[1], 128, &s, NULL) == FP8_OK &&
                        s.first == row[4] && s.count == row[5] && s.origin == row[6];
        golden_check(family, "tp adjust shard", ok, "%s %lld", file, (long long)i);
    }
}

/* ---- all files ------------------------------------------------------------------------------- */

static const struct {
    const char *prefix;
    void (*check)(const golden_file *f, const char *file);
} checks[] = {
    {"mm_", check_mm},     {"tp_adjust_shard", check_adjust},
    {"tp_col_", check_tp}, {"tp_merged_", check_tp},
    {"tp_row_", check_tp}, {"tp_validate", check_validate},
};

static void block_matmuls_agree(void **state)
{
    (void)state;
    if (!golden_has(family))
        skip();
    char **files = golden_names(family, ".safetensors");
    for (char **file = files; *file; file++)
        for (size_t i = 0; i < sizeof checks / sizeof *checks; i++) {
            if (strncmp(*file, checks[i].prefix, strlen(checks[i].prefix)))
                continue;
            golden_file *f = golden_load(family, *file);
            checks[i].check(f, *file);
            golden_free(f);
        }
    golden_free_names(files);
    golden_linear_end();
    assert_true(golden_report(family));
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(block_matmuls_agree)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
