/* SPDX-License-Identifier: Apache-2.0
 *
 * linear_run.c - Y[M,N] = X[M,K] W[N,K]^T + bias. A task is some rows of X by a group of panels of
 * W: the rows are prepared, unless another task has done so, they are multiplied, and each row of
 * the result is scaled, gets the bias and is rounded. Everything lives in the caller's workspace:
 *
 *     | X as the kernel reads it, and what preparing it needs | one bench a worker | */
#include "base/size.h"
#include "number/dtype.h"
#include "op/crew.h"
#include "op/cuda_calls.h"
#include "op/linear_input.h"
#include "op/tensor_check.h"

#include <string.h>

enum {
    SMALL_WORK = 1 << 19, /* multiplications that are not worth waking a second thread for */
};

typedef struct run_job {
    const fp8_linear *linear;
    const fp8_panel_kernel *kernel;
    fp8_kernel_finish *finish;
    fp8_caster scale_caster; /* of W's scales to fp32 */
    const fp8_cuts *cuts;    /* where the kernel needs them */
    fp8_input *input;
    fp8_prepared_x x; /* of input */
    fp8_tensor *y;
    fp8_dtype rounded;    /* of FP8_WEIGHT_ROUNDED */
    int64_t rows, panels; /* of X and W in a task */
    int64_t groups;       /* of panels */
    uint8_t *benches;     /* [workers, bench_bytes] */
    uint64_t bench_bytes;
} run_job;

/* A worker's part of the workspace, 64-byte aligned. */
typedef struct bench {
    float *c;       /* [rows, 64] */
    float *w_scale; /* [cuts, 64], or [1, 64] of scales that do not vary along K, or folds */
    int64_t *cut;   /* [cuts + 1] relative to the columns at hand */
    void *scratch;  /* the kernel's */
} bench;

/* Bytes of the parts of a bench for `rows` of X, in the order of its fields. */
typedef struct bench_size {
    uint64_t c, w_scale, cut, scratch;
} bench_size;

static bench_size size_bench(const fp8_linear *l, const fp8_panel_kernel *kernel, int64_t rows)
{
    const uint64_t cuts = (uint64_t)l->cuts.count;
    return (bench_size){fp8_align((uint64_t)rows * FP8_TILE_COLS * sizeof(float)),
                        cuts * FP8_TILE_COLS * sizeof(float),
                        fp8_align((cuts + 1) * sizeof(int64_t)),
                        fp8_align((uint64_t)kernel->scratch_bytes)};
}

static uint64_t bench_bytes(const fp8_linear *l, const fp8_panel_kernel *kernel, int64_t rows)
{
    const bench_size size = size_bench(l, kernel, rows);
    return size.c + size.w_scale + size.cut + size.scratch;
}

static bench bench_of(const run_job *job, int64_t worker)
{
    const bench_size size = size_bench(job->linear, job->kernel, job->rows);
    uint8_t *c = job->benches + (uint64_t)worker * job->bench_bytes;
    uint8_t *w_scale = c + size.c, *cut = w_scale + size.w_scale;
    return (bench){(float *)(void *)c, (float *)(void *)w_scale, (int64_t *)(void *)cut,
                   cut + size.cut};
}

/* ---- one task ---- */

/* to[n] = to[n], rounded to the job's 16-bit dtype. */
static void round_scales(const run_job *job, float *to, int64_t n)
{
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(job->rounded);
    for (int64_t j = 0; j < n; j++) {
        uint16_t rounded;
        facts->store(&rounded, 0, to[j], false);
        to[j] = facts->load(&rounded, 0);
    }
}

/* to[count, 64] = scales of columns [col, col + count) for rows n.. of W, where rows have scales of
 * their own: of those up to the end of n's tile, which the panels at n do not leave. */
static void load_row_scales(const run_job *job, int64_t col, int64_t count, int64_t n, float *to)
{
    const fp8_linear_plan *p = &job->linear->plan;
    const int64_t at = fp8_linear_scale_index(p, n, col), before = n % FP8_TILE_COLS;
    fp8_caster_run(&job->scale_caster, to,
                   job->linear->scales + at * (fp8_dtype_bits(p->scale) / 8),
                   count * FP8_TILE_COLS - before, false);
}

/* The same up to the last row, where rows share scales. */
static void load_shared_scales(const run_job *job, int64_t col, int64_t count, int64_t n, float *to)
{
    const fp8_linear_plan *p = &job->linear->plan;
    const fp8_dtype_facts *facts = fp8_dtype_facts_of(p->scale);
    const int64_t rows = fp8_min_i64(FP8_TILE_COLS, p->n - n);
    for (int64_t j = 0, same; j < rows; j += same) {
        const int64_t row = fp8_linear_scale_row(p, n + j);
        same = fp8_linear_rows_alike(p, n + j, row, rows - j);
        for (int64_t s = 0; s < count; s++) {
            const int64_t at = fp8_linear_scale_index(p, row, col + s);
            const float scale = facts->load(job->linear->scales, at);
            for (int64_t i = j; i < j + same; i++)
                to[s * FP8_TILE_COLS + i] = scale;
        }
    }
}

static void load_w_scales(const run_job *job, int64_t col, int64_t count, int64_t n, float *to)
{
    if (job->linear->plan.scale_tile == FP8_TILE_COLS)
        load_row_scales(job, col, count, n, to);
    else
        load_shared_scales(job, col, count, n, to);
    if (job->rounded != FP8_DTYPE_NONE)
        round_scales(job, to, count * FP8_TILE_COLS);
}

/* Whether the kernel is given scales of W: those that vary along K, or that round a weight. */
static bool kernel_scales_w(const run_job *job)
{
    return job->linear->plan.w_along_k || job->rounded != FP8_DTYPE_NONE;
}

static bool kernel_scales_x(const run_job *job)
{
    return job->linear->plan.x_along_k && job->x.dtype == FP8_BF16 && !job->x.folds;
}

/* The last cut, or the end, that lies at most `cols` behind `from`; from + cols in the middle of a
 * segment that is longer. */
static int64_t chunk_end(const run_job *job, int64_t from)
{
    const fp8_cuts *cuts = job->cuts;
    const int64_t cols = job->kernel->cols;
    if (cols >= cuts->columns - from)
        return cuts->columns;
    int64_t end = from;
    for (int64_t s = 0; s < cuts->count && cuts->place[s] <= from + cols; s++)
        end = cuts->place[s] > end ? cuts->place[s] : end;
    return end > from ? end : from + cols;
}

/* The same as folds, in `to` too. */
static void load_w_folds(const run_job *job, int64_t col, int64_t count, int64_t n, float *to)
{
    const fp8_linear_plan *p = &job->linear->plan;
    uint8_t *fold = (uint8_t *)to;
    if (p->scale == FP8_E8M0FNU && p->scale_tile == FP8_TILE_COLS) {
        const int64_t before = n % FP8_TILE_COLS;
        const uint8_t *from = job->linear->scales + fp8_linear_scale_index(p, n, col);
        fp8_folds_of_exponents(fold, from, count * FP8_TILE_COLS - before);
    } else {
        load_w_scales(job, col, count, n, to);
        fp8_folds_of_scales(fold, to, count * FP8_TILE_COLS);
    }
}

/* w_scale[cuts, 64], or folds, of the segments of a run, from segment `first` on. */
static void scale_cuts(const run_job *job, const fp8_panel_run *run, int64_t first, int64_t n,
                       float *w_scale)
{
    const fp8_linear_plan *p = &job->linear->plan;
    const int64_t origin = p->desc.w_origin.cols;
    const int64_t bytes = FP8_TILE_COLS * (job->x.folds ? 1 : (int64_t)sizeof *w_scale);
    int64_t count;
    for (int64_t s = 0; s < run->cuts; s += count) {
        const int64_t col = (job->cuts->at[first + s] + origin) / p->unit_cols;
        /* Cuts that are all W's own have columns of scales that follow each other. */
        count = job->cuts->count == p->scale_cols ? run->cuts : 1;
        void *to = (uint8_t *)w_scale + s * bytes;
        (job->x.folds ? load_w_folds : load_w_scales)(job, col, count, n, to);
    }
}

/* Describes columns [from, end) of a run: its cuts and scales. */
static void cut_run(const run_job *job, fp8_panel_run *run, int64_t from, int64_t end, int64_t row,
                    int64_t n, const bench *b)
{
    const fp8_cuts *cuts = job->cuts;
    int64_t first = 0;
    while (cuts->place[first + 1] <= from)
        first++;
    if (kernel_scales_x(job))
        run->x_scale = job->x.scale + row * job->x.scale_count + first;
    run->x_scale_stride = job->x.scale_count;
    for (int64_t s = first; s < cuts->count && cuts->place[s] < end; s++)
        b->cut[run->cuts++] = cuts->place[s] > from ? cuts->place[s] - from : 0;
    b->cut[run->cuts] = run->k;
    run->cut = b->cut;
    if (kernel_scales_w(job)) {
        scale_cuts(job, run, first, n, b->w_scale);
        if (job->x.folds)
            run->w_fold = (const uint8_t *)b->w_scale;
        else
            run->w_scale = b->w_scale;
    }
}

/* k, and the zeros that X and W have behind it up to the next block. */
static int64_t whole_blocks(int64_t k)
{
    return fp8_ceil_div(k, FP8_PANEL_COLS) * FP8_PANEL_COLS;
}

/* c[rows, 64] of rows [row, row + rows) of X and the panels from row n of W. */
static void multiply(const run_job *job, int64_t row, int64_t rows, int64_t n, int64_t panels,
                     const bench *b)
{
    const fp8_linear *l = job->linear;
    const int64_t k = l->cuts.columns, x_bytes = fp8_dtype_bits(job->x.dtype) / 8;
    const bool scaled = kernel_scales_w(job) || kernel_scales_x(job);
    const uint8_t *w = l->codes + n / FP8_PANEL_ROWS * fp8_panel_stride(k);
    const char *x = (const char *)job->x.rows + row * job->x.stride * x_bytes;
    for (int64_t from = 0, end; from < k; from = end) {
        end = chunk_end(job, from);
        fp8_panel_run run = {.x = x + from * x_bytes,
                             .x_stride = job->x.stride,
                             .w = w + from / FP8_PANEL_COLS * FP8_PANEL_BYTES,
                             .w_stride = fp8_panel_stride(k),
                             .c = b->c,
                             .m = rows,
                             .k = whole_blocks(end - from),
                             .panels = panels,
                             .accumulate = from > 0,
                             .code = l->plan.code,
                             .rounded = job->rounded,
                             .scratch = b->scratch};
        if (scaled)
            cut_run(job, &run, from, end, row, n, b);
        job->kernel->fn(&run);
    }
}

static void finish_rows(const run_job *job, int64_t row, int64_t rows, int64_t n, int64_t cols,
                        const bench *b)
{
    const fp8_linear *l = job->linear;
    const int64_t y_bytes = fp8_dtype_bits(job->y->dtype) / 8;
    const bool any = l->plan.k > 0 && !l->plan.w_into_x; /* no columns, no scales */
    const bool w_scaled = any && !kernel_scales_w(job);
    if (w_scaled)
        load_w_scales(job, 0, 1, n, b->w_scale);
    for (int64_t i = 0; i < rows; i++) {
        const bool x_scaled = job->x.scale && !kernel_scales_x(job);
        job->finish(&(fp8_finish_run){.c = b->c + i * FP8_TILE_COLS,
                                      .x_scale = x_scaled ? job->x.scale[row + i] : 1,
                                      .w_scale = w_scaled ? b->w_scale : NULL,
                                      .bias = l->has_bias ? l->bias + n : NULL,
                                      .y = (char *)job->y->data +
                                           ((row + i) * job->y->stride[0] + n * job->y->stride[1]) *
                                               y_bytes,
                                      .n = cols,
                                      .y_stride = job->y->stride[1],
                                      .y_dtype = job->y->dtype,
                                      .epilogue = l->plan.desc.epilogue});
    }
}

static void run_task(void *arg, int64_t task, int64_t worker)
{
    const run_job *job = arg;
    const fp8_linear_plan *p = &job->linear->plan;
    const int64_t row = task / job->groups * job->rows;
    const int64_t n = task % job->groups * job->panels * FP8_PANEL_ROWS;
    const int64_t rows = fp8_min_i64(job->rows, job->y->shape[0] - row);
    const int64_t cols = fp8_min_i64(job->panels * FP8_PANEL_ROWS, p->n - n);
    const bench b = bench_of(job, worker);
    if (!fp8_input_need(job->input, task / job->groups, worker))
        return;
    if (p->k == 0)
        memset(b.c, 0, (size_t)rows * FP8_TILE_COLS * sizeof *b.c);
    else
        multiply(job, row, rows, n, fp8_ceil_div(cols, FP8_PANEL_ROWS), &b);
    finish_rows(job, row, rows, n, cols, &b);
}

/* ---- the whole ---- */

/* Rows of X in each of so many blocks: whole tiles of any kernel. */
static int64_t block_rows(int64_t m, int64_t blocks)
{
    enum { TILE = 16 };
    const int64_t rows = fp8_ceil_div(m, blocks);
    return fp8_min_i64(rows < TILE ? rows : fp8_ceil_div(rows, TILE) * TILE, m);
}

/* What the longest of `threads` workers has to do when X is cut into blocks of `rows` and W into
 * groups of `panels`: rows times panels. Decoding a panel counts as some rows, and a narrow group
 * is slower than its share. */
static int64_t longest_work(const fp8_linear *l, int64_t m, int64_t threads, int64_t rows,
                            int64_t panels)
{
    enum { DECODE_ROWS = 6, NARROW_PERCENT = 4 };
    const int64_t groups = fp8_ceil_div(fp8_ceil_div(l->plan.n, FP8_PANEL_ROWS), panels);
    const int64_t tasks = fp8_ceil_div(m, rows) * groups;
    const int64_t percent = 100 + NARROW_PERCENT * (FP8_PANEL_GROUP / panels - 1);
    return fp8_ceil_div(tasks, threads) * panels * (rows + DECODE_ROWS) * percent;
}

/* Rows of X and panels of W in a task: as many as the kernel takes, fewer where that shares the
 * work better. */
static void cut_tasks(run_job *job, int64_t m, int64_t threads)
{
    const fp8_linear *l = job->linear;
    const int64_t fewest = m > 0 ? fp8_ceil_div(m, job->kernel->rows) : 1;
    int64_t least = INT64_MAX;
    job->rows = 1; /* of m = 0 */
    job->panels = FP8_PANEL_GROUP;
    for (int64_t panels = FP8_PANEL_GROUP; panels > 0; panels /= 2)
        for (int64_t blocks = fewest; blocks < fewest + threads && blocks <= m; blocks++) {
            const int64_t rows = block_rows(m, blocks);
            const int64_t work = longest_work(l, m, threads, rows, panels);
            if (work < least) {
                least = work;
                job->rows = rows;
                job->panels = panels;
            }
        }
    job->groups = fp8_ceil_div(fp8_ceil_div(l->plan.n, FP8_PANEL_ROWS), job->panels);
}

static int64_t worker_count(const fp8_linear *l, int64_t m)
{
    int64_t work;
    if (!__builtin_mul_overflow(l->plan.n * l->plan.k, m > 0 ? m : 1, &work) && work < SMALL_WORK)
        return 1;
    return l->ctx->threads;
}

/* Bytes for one kernel: *input for X, *benches for what follows it. */
static bool bytes_for(const fp8_linear *l, const fp8_panel_kernel *kernel, int64_t m,
                      uint64_t *input, uint64_t *benches)
{
    const int64_t rows = fp8_min_i64(kernel->rows, m > 0 ? m : 1);
    *benches = (uint64_t)worker_count(l, m) * bench_bytes(l, kernel, rows);
    return fp8_input_bytes(l, kernel->x, m, input);
}

/* The most that any kernel needs that may be chosen for at most m rows; X is not read for no
 * columns of Y. */
fp8_status fp8_linear_workspace(const fp8_linear *linear, int64_t m, uint64_t *bytes,
                                fp8_error *err)
{
    FP8_FAIL_IF(!linear || !bytes, err, FP8_E_ARGUMENT, "linear: %s is NULL",
                linear ? "bytes" : "linear");
    FP8_FAIL_IF(m < 0, err, FP8_E_ARGUMENT, "linear: m is %lld, must be >= 0", (long long)m);
    if (linear->cuda)
        return fp8_cuda_linear_workspace(linear, m, bytes, err);
    *bytes = fp8_linear_dx_bytes(linear, m);
    const fp8_panel_kernel *kernel;
    for (size_t i = 0; linear->plan.n > 0 && (kernel = fp8_panel_kernel_at(i)); i++) {
        uint64_t input, benches;
        if (kernel->isa > linear->ctx->isa)
            continue;
        FP8_FAIL_IF(!bytes_for(linear, kernel, m, &input, &benches), err, FP8_E_SHAPE,
                    "linear: a workspace for %lld rows does not fit in memory", (long long)m);
        if (input + benches + FP8_ALIGN > *bytes)
            *bytes = input + benches + FP8_ALIGN;
    }
    return FP8_OK;
}

static fp8_status check_run(const fp8_linear *l, const fp8_tensor *x, fp8_extent *x_extent,
                            const fp8_tensor *y, fp8_extent *y_extent, fp8_error *err)
{
    const fp8_linear_plan *p = &l->plan;
    FP8_TRY(fp8_check_extent(x, "x", -1, p->k, x_extent, err));
    FP8_TRY(fp8_check_extent(y, "y", x->shape[0], p->n, y_extent, err));
    FP8_TRY(fp8_linear_plan_takes(p, x->dtype, err));
    FP8_FAIL_IF(!fp8_dtype_is_high(y->dtype), err, FP8_E_DTYPE,
                "linear: y is %s, must be F32, F16 or BF16", fp8_dtype_name(y->dtype));
    return fp8_check_distinct(y, "y", err);
}

fp8_status fp8_linear_check_memory(const fp8_linear *linear, int64_t m, const fp8_extent *in,
                                   const fp8_extent *in_scales, const fp8_extent *out,
                                   void *workspace, uint64_t bytes, fp8_error *err)
{
    uint64_t needed;
    FP8_TRY(fp8_check_extents(in, out, err));
    FP8_TRY(fp8_check_extents(in_scales, out, err));
    FP8_TRY(fp8_linear_workspace(linear, m, &needed, err));
    FP8_FAIL_IF(!workspace || bytes < needed, err, FP8_E_ARGUMENT,
                "linear: a workspace of %llu bytes%s, %lld rows need %llu",
                (unsigned long long)bytes, workspace ? "" : " that is NULL", (long long)m,
                (unsigned long long)needed);
    const fp8_tensor matrix = fp8_matrix(workspace, FP8_U8, 1, (int64_t)needed);
    const fp8_extent space = fp8_extent_of(&matrix, "the workspace");
    FP8_TRY(fp8_check_extents(in, &space, err));
    FP8_TRY(fp8_check_extents(in_scales, &space, err));
    return fp8_check_extents(out, &space, err);
}

static void choose(run_job *job, const fp8_tensor *x, const fp8_tensor *x_scales)
{
    const fp8_linear *l = job->linear;
    const int64_t m = x->shape[0];
    const fp8_panel_problem problem = fp8_panel_problem_of(l->ctx, &l->plan, m, x->dtype);
    const bool contiguous = job->y->stride[1] == 1;
    job->kernel = fp8_panel_pick(&problem);
    job->x.dtype = job->kernel->x;
    job->x.folds = job->x.dtype == FP8_BF16 && fp8_linear_folds(l, x_scales);
    job->cuts = job->x.dtype == FP8_BF16 && !job->x.folds ? &l->cuts : &l->w_cuts;
    job->finish = fp8_kernel_pick(contiguous ? l->ctx->isa : FP8_ISA_SCALAR, FP8_OP_FINISH, FP8_F32,
                                  job->y->dtype)
                      ->fn.finish;
    job->scale_caster = fp8_caster_of(l->ctx->isa, l->plan.scale, FP8_F32, false);
    if (l->plan.desc.weight_math == FP8_WEIGHT_ROUNDED)
        job->rounded = x->dtype;
}

/* What a run on a device refuses before it asks the device; and one of no outputs anywhere. */
static fp8_status check_all(const fp8_linear *linear, const fp8_tensor *x,
                            const fp8_tensor *x_scales, const fp8_tensor *y, void *workspace,
                            uint64_t workspace_bytes, fp8_error *err)
{
    fp8_extent in, out;
    const fp8_extent scales = fp8_extent_of(x_scales, "x_scales"); /* which nobody has checked */
    FP8_TRY(check_run(linear, x, &in, y, &out, err));
    FP8_TRY(fp8_linear_check_memory(linear, x->shape[0], &in, &scales, &out, workspace,
                                    workspace_bytes, err));
    if (linear->cuda || linear->plan.n == 0)
        FP8_TRY(fp8_linear_check_x_scales(&linear->plan, x->shape[0], x_scales, err));
    return FP8_OK;
}

fp8_status fp8_linear_run_kernel(const fp8_linear *linear, const char *kernel, const fp8_tensor *x,
                                 const fp8_tensor *x_scales, fp8_tensor *y, void *workspace,
                                 uint64_t workspace_bytes, void *stream, fp8_error *err)
{
    FP8_FAIL_IF(!linear, err, FP8_E_ARGUMENT, "linear: linear is NULL");
    FP8_FAIL_IF(!kernel, err, FP8_E_ARGUMENT, "linear: kernel is NULL");
    FP8_FAIL_IF(!linear->cuda, err, FP8_E_UNSUPPORTED,
                "linear: one kernel by name (%s) is for CUDA, not for the CPU", kernel);
    FP8_TRY(check_all(linear, x, x_scales, y, workspace, workspace_bytes, err));
    return fp8_cuda_linear_run(linear, kernel, x, x_scales, y, workspace, stream, err);
}

fp8_status fp8_linear_run(const fp8_linear *linear, const fp8_tensor *x, const fp8_tensor *x_scales,
                          fp8_tensor *y, void *workspace, uint64_t workspace_bytes, void *stream,
                          fp8_error *err)
{
    FP8_FAIL_IF(!linear, err, FP8_E_ARGUMENT, "linear: linear is NULL");
    if (!linear->cuda)
        FP8_TRY(fp8_need_no_stream(stream, "linear", err));
    FP8_TRY(check_all(linear, x, x_scales, y, workspace, workspace_bytes, err));
    if (linear->cuda)
        return fp8_cuda_linear_run(linear, NULL, x, x_scales, y, workspace, stream, err);
    if (linear->plan.n == 0)
        return FP8_OK;
    fp8_input input;
    run_job job = {.linear = linear, .y = y, .input = &input};
    const int64_t m = x->shape[0], workers = worker_count(linear, m);
    uint8_t *base = (uint8_t *)fp8_align((uintptr_t)workspace);
    uint64_t input_bytes, benches;
    choose(&job, x, x_scales);
    bytes_for(linear, job.kernel, m, &input_bytes, &benches);
    cut_tasks(&job, m, workers);
    FP8_TRY(fp8_input_begin(&input, linear, x, x_scales, job.x, job.rows, base, err));
    job.x = input.out;
    job.benches = base + input_bytes;
    job.bench_bytes = bench_bytes(linear, job.kernel, job.rows);
    const int64_t tasks = fp8_ceil_div(m, job.rows) * job.groups;
    fp8_run_crew(linear->ctx, workers, tasks, run_task, &job);
    return input.status;
}
