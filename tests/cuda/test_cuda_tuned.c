/* SPDX-License-Identifier: Apache-2.0
 *
 * test_cuda_tuned.c - files of measured kernels over the fake driver: what a good one changes, each
 * rule that a bad one can break, reads and allocations that fail; classes of rows, kernels by name,
 * and the rows that are built in. */
#include "backend/cuda/sm90.h"
#include "base/context.h"

#include "cuda/fake_driver.h"
#include "support/sandbox.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

#include "cuda/fake_fixture.h"

#define HEAD "fp8-tuned 1\ndevice NVIDIA H100 80GB HBM3\ndriver 13000\n"

enum { N = 256, K = 512, M = 20, SPACE = 1 << 20 };

/* read(2) as the library meets it: the call number fail_read (from 1) fails, or ends the file. */
static int reads, fail_read;
static bool ends;

ssize_t read(int fd, void *to, size_t bytes)
{
    if (++reads == fail_read) {
        errno = EIO;
        return ends ? 0 : -1;
    }
    return syscall(SYS_read, fd, to, bytes);
}

static fp8_status create(const char *path, fp8_context **ctx, fp8_error *err)
{
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.device = FP8_DEVICE_CUDA;
    desc.tuned = path;
    return fp8_context_create(&desc, ctx, err);
}

/* A context with the file `text`. */
static fp8_context *with(const char *text)
{
    fp8_context *ctx;
    fp8_error err = {.msg = ""};
    sandbox_text("tuned", text);
    if (create(sandbox_path("tuned"), &ctx, &err) != FP8_OK)
        fail_msg("%s", err.msg);
    return ctx;
}

static const char *choices(const fp8_context *ctx)
{
    const char *line = NULL;
    for (int64_t i = 0; (line = fp8_doctor(ctx, i)) && strncmp(line, "choices: ", 9); i++) {
    }
    assert_non_null(line);
    return line;
}

static fp8_linear_desc desc_of(bool block)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    desc.activation = FP8_ACTIVATION_CODES;
    desc.x.grid = (fp8_grid){1, block ? 128 : 0};
    desc.w.grid = block ? (fp8_grid){128, 128} : (fp8_grid){1, 0};
    return desc;
}

/* The candidate that is chosen for m rows. */
static fp8_candidate chosen(const fp8_context *ctx, bool block, int64_t m)
{
    const fp8_linear_desc desc = desc_of(block);
    fp8_candidate candidate = {0};
    for (int64_t i = 0; !candidate.chosen; i++)
        assert_int_equal(
            fp8_explain(ctx, &desc, m, N, K, FP8_E4M3FN, FP8_E4M3FN, i, &candidate, NULL), FP8_OK);
    return candidate;
}

static void a_file_settles_its_classes(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_context *ctx = with(HEAD "# a comment\n#\n"
                                 "channel 256 512 20 gemm_small_channel_64x32_2_1 4510\n"
                                 "channel 256 512 24 gemm_small_channel_64x32_4_1 4400\n"
                                 "block 256 512 128 gemm_large_block_64x64_1x1 7000\n");
    assert_non_null(strstr(choices(ctx), "; 2 by the file"));
    for (int64_t m = 15; m <= 26; m++) { /* the larger M of a class counts */
        const fp8_candidate c = chosen(ctx, false, m);
        assert_int_equal(strstr(c.reason, "measured 4.4 us (by the file)") != NULL,
                         m > 16 && m <= 24);
        if (m > 16 && m <= 24)
            assert_string_equal(c.kernel, "gemm_small_channel_64x32_4_1");
    }
    assert_string_equal(chosen(ctx, true, 97).kernel, "gemm_large_block_64x64_1x1");
    assert_null(strstr(chosen(ctx, true, 96).reason, "measured"));
    fp8_context_free(ctx);
    nothing_is_left(fake);
}

/* Few rows: `file` brings what was measured of one row or of 8; expects the kernel of each. */
static void few_rows_take(const char *file, const char *of_one, const char *of_more)
{
    fake_driver *fake = fake_driver_reset();
    fp8_context *ctx = with(file);
    for (int64_t m = 1; m <= 9; m++) {
        const fp8_candidate c = chosen(ctx, false, m);
        assert_int_equal(strstr(c.reason, "(by the file)") != NULL, m <= 8);
        if (m <= 8)
            assert_string_equal(c.kernel, m == 1 ? of_one : of_more);
    }
    fp8_context_free(ctx);
    nothing_is_left(fake);
}

static void one_row_is_a_class_of_its_own(void **state)
{
    (void)state;
    if (!fp8_cuda_has_kernels())
        skip();
    static const char one[] = "gemm_small_channel_64x8_1_1", more[] = "gemm_small_channel_64x8_2_2";
    few_rows_take(HEAD "channel 256 512 1 gemm_small_channel_64x8_1_1 2000\n"
                       "channel 256 512 8 gemm_small_channel_64x8_2_2 2100\n",
                  one, more);
    few_rows_take(HEAD "channel 256 512 1 gemm_small_channel_64x8_1_1 2000\n", one, one);
    few_rows_take(HEAD "channel 256 512 4 gemm_small_channel_64x8_2_2 2100\n", more, more);
}

/* 4096x4096, of which a row of X is in measured.inc: what the file has of 8 rows goes before it. */
static void the_file_goes_before_what_is_built_in(void **state)
{
    (void)state;
    if (!fp8_cuda_has_kernels())
        skip();
    static const char *const files[] = {HEAD, HEAD
                                        "channel 4096 4096 8 gemm_small_channel_64x8_2_2 2100\n"};
    const fp8_linear_desc desc = desc_of(false);
    for (int i = 0; i < 2; i++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx = with(files[i]);
        fp8_candidate c = {0};
        assert_int_equal(
            fp8_explain(ctx, &desc, 1, 4096, 4096, FP8_E4M3FN, FP8_E4M3FN, 0, &c, NULL), FP8_OK);
        assert_true(c.chosen);
        assert_non_null(strstr(c.reason, "measured"));
        assert_int_equal(strstr(c.reason, "by the file") != NULL, i);
        fp8_context_free(ctx);
        nothing_is_left(fake);
    }
}

/* The kernel chosen for m rows of X in 16 bits, by a weight with a scale a channel. */
static fp8_candidate chosen_wide(const fp8_context *ctx, fp8_dtype x, int64_t m)
{
    fp8_linear_desc desc = FP8_LINEAR_DESC_INIT;
    fp8_candidate candidate;
    desc.activation = FP8_ACTIVATION_NONE;
    desc.w.grid = (fp8_grid){1, 0};
    assert_int_equal(fp8_explain(ctx, &desc, m, N, K, x, FP8_E4M3FN, 0, &candidate, NULL), FP8_OK);
    assert_true(candidate.chosen);
    return candidate;
}

/* What is chosen for m rows of X in that dtype, which the call quantizes if it is no code. */
static fp8_candidate chosen_for(const fp8_context *ctx, fp8_dtype x, bool block, int64_t m)
{
    fp8_linear_desc desc = desc_of(block);
    fp8_candidate candidate;
    desc.activation = x == FP8_E4M3FN ? FP8_ACTIVATION_CODES : FP8_ACTIVATION_DYNAMIC;
    assert_int_equal(fp8_explain(ctx, &desc, m, N, K, x, FP8_E4M3FN, 0, &candidate, NULL), FP8_OK);
    assert_true(candidate.chosen);
    return candidate;
}

/* From X that the call quantizes, not from codes; of fp32 no version does so by itself. */
static void a_file_settles_what_quantizes(void **state)
{
    static const char *const names[] = {"gemm_small_quantize_channel_64x8_4_2",
                                        "gemm_small_channel_64x8_4_2"};
    (void)state;
    fake_driver *fake = fake_driver_reset();
    if (!fp8_cuda_has_kernels())
        skip();
    for (int i = 0; i < 2; i++) {
        char text[256];
        snprintf(text, sizeof text, HEAD "whole_channel 256 512 8 %s 6100\n", names[i]);
        fp8_context *ctx = with(text);
        static const fp8_dtype dtypes[] = {FP8_BF16, FP8_F16, FP8_E4M3FN, FP8_F32};
        for (int d = 0; d < 4; d++) {
            const fp8_candidate c = chosen_for(ctx, dtypes[d], false, 7);
            const bool counts = d < 2 || (i == 1 && dtypes[d] == FP8_F32);
            assert_int_equal(strstr(c.reason, "measured 6.1 us (by the file)") != NULL, counts);
            assert_int_equal(counts && strcmp(c.kernel, names[i]), 0);
            assert_int_equal(d >= 2 && strstr(c.reason, "quantizes x"), 0);
        }
        fp8_context_free(ctx);
    }
    nothing_is_left(fake);
}

/* Of more rows than a version quantizes: the line of whole linears, else that of codes; sums in 13
 * bits have lines from codes alone. */
static void whole_linears_go_before_codes(void **state)
{
    static const struct {
        const char *line, *kernel;
    } of[] = {
        {"whole_block 256 512 64 gemm_small_block_64x64_2_1 8300\n", "gemm_small_block_64x64_2_1"},
        {"whole_block 256 512 64 gemm_small_quantize_block_64x8_1_1 8300\n",
         "gemm_large_block_64x64_k2"}, /* which cannot */
        {"whole_block 256 512 96 gemm_small_block_64x64_2_1 8300\n", "gemm_large_block_64x64_k2"},
        {"whole_channel 256 512 64 gemm_small_channel_64x64_2_1 8300\n",
         "gemm_large_block_64x64_k2"}};
    (void)state;
    fake_driver *fake = fake_driver_reset();
    if (!fp8_cuda_has_kernels())
        skip();
    for (size_t i = 0; i < sizeof of / sizeof *of; i++) {
        char text[512];
        snprintf(text, sizeof text, HEAD "block 256 512 64 gemm_large_block_64x64_k2 6000\n%s",
                 of[i].line);
        fp8_context *ctx = with(text);
        const fp8_candidate c = chosen_for(ctx, FP8_BF16, true, 64);
        assert_string_equal(c.kernel, of[i].kernel);
        assert_non_null(strstr(c.reason, i ? "measured 6.0 us (from codes, by the file)"
                                           : "measured 8.3 us (by the file)"));
        assert_string_equal(chosen_for(ctx, FP8_F32, true, 49).kernel, of[i].kernel);
        assert_string_equal(chosen_for(ctx, FP8_E4M3FN, true, 64).kernel,
                            "gemm_large_block_64x64_k2");
        fp8_context_free(ctx);
    }
    nothing_is_left(fake);
}

static void sums_in_13_bits_have_lines_of_codes(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_context *ctx = with(HEAD "fast 256 512 256 gemm_large_fast_128x64_1x1 7000\n"
                                 "whole_channel 256 512 256 gemm_small_channel_64x64_2_1 8300\n");
    fp8_linear_desc desc = desc_of(false);
    desc.activation = FP8_ACTIVATION_DYNAMIC;
    for (int fast = 0; fast < 2; fast++) {
        fp8_candidate c;
        desc.accumulation = fast ? FP8_ACCUMULATION_FAST : FP8_ACCUMULATION_FP32;
        assert_int_equal(fp8_explain(ctx, &desc, 256, N, K, FP8_BF16, FP8_E4M3FN, 0, &c, NULL),
                         FP8_OK);
        assert_string_equal(c.kernel,
                            fast ? "gemm_large_fast_128x64_1x1" : "gemm_small_channel_64x64_2_1");
    }
    fp8_context_free(ctx);
    nothing_is_left(fake);
}

/* One line for X in bf16 and in fp16. */
static void a_file_settles_the_wide_kernels(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_context *ctx = with(HEAD "wide_channel 256 512 20 gemm_wide_bf16_channel_32_3 9000\n");
    for (int64_t m = 15; m <= 26; m++) {
        const bool counts = m > 16 && m <= 24;
        const fp8_candidate bf16 = chosen_wide(ctx, FP8_BF16, m),
                            f16 = chosen_wide(ctx, FP8_F16, m);
        assert_int_equal(!strcmp(bf16.kernel, "gemm_wide_bf16_channel_32_3"), counts);
        assert_int_equal(!strcmp(f16.kernel, "gemm_wide_f16_channel_32_3"), counts);
        assert_int_equal(strstr(f16.reason, "measured 9.0 us (by the file)") != NULL, counts);
    }
    fp8_context_free(ctx);
    nothing_is_left(fake);
}

static void unknown_kernels_are_passed_over(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_context *ctx = with(HEAD "channel 256 512 24 gemm_of_tomorrow 4510\n");
    assert_non_null(strstr(choices(ctx), "; 0 by the file; 1 lines of it are of kernels that"));
    fp8_context_free(ctx);
    ctx = with(HEAD);
    assert_null(strstr(choices(ctx), "file"));
    fp8_context_free(ctx);
    nothing_is_left(fake);
}

/* A version that has no room for the problem is not forced upon it. */
static void an_unable_kernel_is_left_to_the_model(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_context *ctx = with(HEAD "channel 256 512 4096 gemm_small_channel_64x8_1_1 10\n");
    assert_null(strstr(chosen(ctx, false, 4096).reason, "measured"));
    fp8_context_free(ctx);
    nothing_is_left(fake);
}

#define ROW "channel 256 512 16 gemm_small_channel_64x16_2_1 "
static const struct {
    const char *text;
    fp8_status status;
    const char *says;
} bad[] = {
    {"", FP8_E_FORMAT, "line 0: is empty, must begin with fp8-tuned 1"},
    {"fp8-tuned\n", FP8_E_FORMAT, "line 1: must be fp8-tuned 1"},
    {"fp8-tuned x\n", FP8_E_FORMAT, "line 1: must be fp8-tuned 1"},
    {"fp8-tuned 1 \n", FP8_E_FORMAT, "line 1: must be fp8-tuned 1"},
    {"fp8-tuned 1\r\n", FP8_E_FORMAT, "line 1: must be fp8-tuned 1"},
    {"fp8-tuned 2\n", FP8_E_UNSUPPORTED, "format 2, this library reads 1"},
    {"fp8-tuned 1", FP8_E_TRUNCATED, "line 1: the file ends within the line"},
    {"fp8-tuned 1\n", FP8_E_FORMAT, "line 1: must be followed by the device"},
    {"fp8-tuned 1\ndriver 1\n", FP8_E_FORMAT, "line 2: must be device and its name"},
    {"fp8-tuned 1\ndevice \n", FP8_E_FORMAT, "line 2: must be device and its name"},
    {"fp8-tuned 1\ndevice NVIDIA H200\n", FP8_E_MISMATCH,
     "line 2: measured on NVIDIA H200, the context's device is NVIDIA H100 80GB HBM3"},
    {"fp8-tuned 1\ndevice NVIDIA H100 80GB HBM3\n", FP8_E_FORMAT,
     "line 2: must be followed by the driver"},
    {"fp8-tuned 1\ndevice NVIDIA H100 80GB HBM3\ndriver 580.1\n", FP8_E_FORMAT,
     "line 3: must be driver and its version"},
    {HEAD "\n", FP8_E_FORMAT,
     "line 4: must begin with channel, block, fast, whole_ and channel or block, or wide_ and "
     "channel, mx or block"},
    {HEAD "tensor 1 1 1 a 1\n", FP8_E_FORMAT, "line 4: must begin with"},
    {HEAD "channel\n", FP8_E_FORMAT, "line 4: must begin with"},
    {HEAD "channel  256 512 16 a 1\n", FP8_E_FORMAT, "line 4: N must be a number from 1 to"},
    {HEAD "channel 0 512 16 a 1\n", FP8_E_FORMAT, "line 4: N must be"},
    {HEAD "channel -1 512 16 a 1\n", FP8_E_FORMAT, "line 4: N must be"},
    {HEAD "channel 134217729 512 16 a 1\n", FP8_E_FORMAT, "line 4: N must be"},
    {HEAD "channel 99999999999999999999 512 16 a 1\n", FP8_E_FORMAT, "line 4: N must be"},
    {HEAD "channel 256\n", FP8_E_FORMAT, "line 4: N must be"},
    {HEAD "channel 256 x 16 a 1\n", FP8_E_FORMAT, "line 4: K must be"},
    {HEAD "channel 256 512 16.5 a 1\n", FP8_E_FORMAT, "line 4: M must be"},
    {HEAD "channel 256 512 16\n", FP8_E_FORMAT, "line 4: M must be"},
    {HEAD "channel 256 512 16 a\n", FP8_E_FORMAT, "line 4: needs a kernel and its time"},
    {HEAD "channel 256 512 16  1\n", FP8_E_FORMAT, "line 4: needs a kernel and its time"},
    {HEAD "block 256 512 16 gemm_small_channel_64x16_2_1 1\n", FP8_E_FORMAT,
     "line 4: gemm_small_channel_64x16_2_1 is no kernel for kind block"},
    {HEAD "channel 256 512 16 gemm_large_fast_128x64_1x1 1\n", FP8_E_FORMAT,
     "is no kernel for kind channel"},
    {HEAD "channel 256 512 16 gemm_wide_bf16_channel_16_1 1\n", FP8_E_FORMAT,
     "is no kernel for kind channel"},
    {HEAD "wide_mx 256 512 16 gemm_wide_bf16_channel_16_1 1\n", FP8_E_FORMAT,
     "is no kernel for kind wide_mx"},
    {HEAD "wide_channel 256 512 16 gemm_wide_f16_channel_16_1 1\n", FP8_E_FORMAT,
     "is no kernel for kind wide_channel"},
    {HEAD "wide_channel 256 512 16 gemm_small_channel_64x16_2_1 1\n", FP8_E_FORMAT,
     "is no kernel for kind wide_channel"},
    {HEAD ROW "0\n", FP8_E_FORMAT, "line 4: the time must be"},
    {HEAD ROW "4.5\n", FP8_E_FORMAT, "line 4: the time must be"},
    {HEAD ROW "\n", FP8_E_FORMAT, "line 4: the time must be"},
    {HEAD ROW "4510 us\n", FP8_E_FORMAT, "line 4: the time must be"},
    {HEAD ROW "4510", FP8_E_TRUNCATED, "line 4: the file ends within the line"},
    {HEAD ROW "1\n#\n" ROW "2\n", FP8_E_FORMAT, "line 6: the same kind, N, K and M as in line 4"},
};

static void each_rule_that_is_broken_is_named(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_error err;
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
        fp8_context *ctx;
        sandbox_text("tuned", bad[i].text);
        const fp8_status status = create(sandbox_path("tuned"), &ctx, &err);
        if (status != bad[i].status || !strstr(err.msg, bad[i].says) || ctx ||
            !strstr(err.msg, sandbox_path("tuned")))
            fail_msg("%s: %s, expected %s: %s", bad[i].text, err.msg,
                     fp8_status_name(bad[i].status), bad[i].says);
    }
    nothing_is_left(fake);
}

static void lines_and_files_have_limits(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_context *ctx;
    fp8_error err;
    char text[512] = HEAD;
    const size_t head = strlen(text);
    memset(text + head, '#', 255);
    strcpy(text + head + 255, "\n");
    fp8_context_free(with(text));
    strcpy(text + head + 255, "#\n");
    sandbox_text("tuned", text);
    assert_int_equal(create(sandbox_path("tuned"), &ctx, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "line 4: has 256 bytes, at most 255"));
    sandbox_write("tuned", HEAD "#\0#\n", head + 4);
    assert_int_equal(create(sandbox_path("tuned"), &ctx, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "line 4: has a NUL in it"));
    assert_int_equal(truncate(sandbox_path("tuned"), (4 << 20) + 1), 0);
    assert_int_equal(create(sandbox_path("tuned"), &ctx, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "has 4194305 bytes, at most 4194304"));
    assert_int_equal(create(sandbox_path("."), &ctx, &err), FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "must be a regular file"));
    assert_int_equal(mkfifo(sandbox_path("fifo"), 0600), 0);
    assert_int_equal(create(sandbox_path("fifo"), &ctx, &err), FP8_E_FORMAT);
    assert_int_equal(create(sandbox_path("none"), &ctx, &err), FP8_E_NOT_FOUND);
    nothing_is_left(fake);
}

static void the_cpu_takes_no_file(void **state)
{
    (void)state;
    fp8_context *ctx;
    fp8_error err;
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.tuned = "tuned";
    assert_int_equal(fp8_context_create(&desc, &ctx, &err), FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "tuned is tuned, but only a GPU has kernels"));
}

static void reads_that_fail_are_told(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_context *ctx;
    fp8_error err;
    sandbox_text("tuned", HEAD);
    for (int end = 0; end < 2; end++) {
        reads = 0;
        fail_read = 1;
        ends = end;
        assert_int_equal(create(sandbox_path("tuned"), &ctx, &err),
                         end ? FP8_E_TRUNCATED : FP8_E_IO);
        assert_non_null(strstr(err.msg, sandbox_path("tuned")));
        assert_int_equal(reads, 1);
    }
    fail_read = 0;
    nothing_is_left(fake);
}

static int64_t allocations, fail_allocation, live;

static void *allocate(void *user, size_t bytes)
{
    (void)user;
    if (++allocations == fail_allocation)
        return NULL;
    live++;
    return malloc(bytes);
}

static void release(void *user, void *memory)
{
    (void)user;
    live -= memory != NULL;
    free(memory);
}

static void every_allocation_fails_once(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    fp8_status status = FP8_E_NO_MEMORY;
    fp8_error err;
    sandbox_text("tuned", HEAD "fast 256 512 16 gemm_small_channel_64x16_2_1 9\n" ROW "4510\n");
    desc.device = FP8_DEVICE_CUDA;
    desc.tuned = sandbox_path("tuned");
    desc.allocator = (fp8_allocator){allocate, release, NULL};
    for (fail_allocation = 1; status != FP8_OK; fail_allocation++) {
        fp8_context *ctx;
        allocations = 0;
        status = fp8_context_create(&desc, &ctx, &err);
        if (status != FP8_OK)
            assert_int_equal(status, FP8_E_NO_MEMORY);
        fp8_context_free(ctx);
        assert_int_equal(live, 0);
    }
    assert_true(fail_allocation > 5);
    nothing_is_left(fake);
}

static void classes_are_half_octaves(void **state)
{
    (void)state;
    static const int32_t tops[] = {1, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768};
    int32_t below = 0;
    for (size_t i = 0; i < sizeof tops / sizeof *tops; below = tops[i++])
        for (int32_t m = below + 1; m <= tops[i]; m++)
            assert_int_equal(fp8_tuned_class(m), tops[i]);
    assert_int_equal(fp8_tuned_class(FP8_SM90_MOST), FP8_SM90_MOST);
}

static void names_are_unique(void **state)
{
    (void)state;
    const fp8_sm90_version *v;
    for (size_t i = 0; (v = fp8_sm90_at(i)); i++) {
        const char *function = fp8_cuda_kernel_at(v->kernel)->function;
        const size_t dtype = v->quantizes ? strlen("_bf16") : 0; /* at its end */
        assert_ptr_equal(fp8_sm90_find(v->name), v);
        assert_int_equal(strncmp(v->name, function, strlen(function) - dtype), 0);
    }
    assert_null(fp8_sm90_find("gemm_plain"));
}

/* All rows of measured.inc are found, and of versions that can do their problem. */
static void what_is_built_in_can_be_done(void **state)
{
    (void)state;
    static const char *const names[] = {"NVIDIA H100 80GB HBM3", "NVIDIA H200"};
    for (int card = 0; card < 2; card++) {
        fake_driver *fake = fake_driver_reset();
        fp8_context *ctx;
        fp8_error err;
        fake->devices[0].name = names[card];
        assert_int_equal(create(NULL, &ctx, &err), FP8_OK);
        const fp8_tuned *t = &ctx->cuda->tuned;
        assert_true(t->count > 200);
        for (size_t i = 0; i < t->count && fp8_cuda_has_kernels(); i++) {
            const fp8_tuned_row *r = &t->rows[i];
            const bool whole =
                r->kind == FP8_TUNED_WHOLE_BLOCK || r->kind == FP8_TUNED_WHOLE_CHANNEL;
            const fp8_sm90_problem p = {.m = r->m,
                                        .n = r->n,
                                        .k = r->k,
                                        .block = r->kind == FP8_TUNED_BLOCK ||
                                                 r->kind == FP8_TUNED_WHOLE_BLOCK,
                                        .fast = r->kind == FP8_TUNED_FAST,
                                        .whole = whole,
                                        .inside = whole && r->m <= 8};
            if (fp8_sm90_choose(ctx->cuda, &p) != fp8_sm90_at((size_t)r->version))
                fail_msg("%s: %s cannot do %d x %d x %d", names[card],
                         fp8_sm90_at((size_t)r->version)->name, r->m, r->n, r->k);
            fp8_sm90_problem invariant = p;
            invariant.invariant = true;
            assert_null(fp8_sm90_choice(ctx->cuda, &invariant).row);
        }
        fp8_context_free(ctx);
        nothing_is_left(fake);
    }
}

/* ---- kernels by name ---- */

static fp8_status run_kernel(const fp8_linear *linear, const char *kernel, fp8_dtype y_dtype,
                             fp8_error *err)
{
    const fp8_tensor x = on_device(0, FP8_E4M3FN, M, K);
    const fp8_tensor scales = on_device(1 << 20, FP8_F32, M, 1);
    fp8_tensor y = on_device(2 << 20, y_dtype, M, N);
    return fp8_linear_run_kernel(linear, kernel, &x, &scales, &y,
                                 (char *)fake_driver_memory(0) + (3 << 20), SPACE,
                                 fake_driver_stream(0), err);
}

static fp8_linear *linear_new(const fp8_context *ctx)
{
    static uint8_t codes[N * K];
    static float values[N];
    const fp8_linear_desc desc = desc_of(false);
    const fp8_tensor w = fp8_matrix(codes, FP8_E4M3FN, N, K), s = fp8_matrix(values, FP8_F32, N, 1);
    fp8_linear *linear;
    for (int i = 0; i < N; i++)
        values[i] = 1;
    assert_int_equal(fp8_linear_create(ctx, &desc, &w, &s, NULL, &linear, NULL), FP8_OK);
    return linear;
}

static void a_run_takes_the_kernel_that_is_asked_for(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_context *ctx;
    fp8_error err;
    const fp8_linear_desc desc = desc_of(false);
    fp8_candidate c;
    if (!fp8_cuda_has_kernels())
        skip();
    assert_int_equal(create(NULL, &ctx, &err), FP8_OK);
    fp8_linear *linear = linear_new(ctx);
    int64_t i = 0;
    for (; fp8_explain(ctx, &desc, M, N, K, FP8_E4M3FN, FP8_E4M3FN, i, &c, NULL) == FP8_OK; i++) {
        if (run_kernel(linear, c.kernel, FP8_BF16, &err) != FP8_OK)
            fail_msg("%s: %s", c.kernel, err.msg);
        assert_int_equal(strncmp(fake->kernel, c.kernel, strlen(fake->kernel)), 0);
    }
    assert_true(i > 10);
    assert_int_equal(run_kernel(linear, "gemm_of_tomorrow", FP8_BF16, &err), FP8_E_NO_KERNEL);
    assert_non_null(strstr(err.msg, "gemm_of_tomorrow is no kernel for this product"));
    assert_int_equal(run_kernel(linear, "gemm_mma_bf16", FP8_BF16, &err), FP8_E_NO_KERNEL);
    assert_int_equal(run_kernel(linear, "gemm_small_block_64x32_1_1", FP8_BF16, &err),
                     FP8_E_NO_KERNEL);
    assert_non_null(strstr(err.msg, "is not for m = 20, n = 256, k = 512 with these scales"));
    assert_int_equal(run_kernel(linear, "gemm_small_channel_64x32_1_1", FP8_F32, &err),
                     FP8_E_NO_KERNEL);
    assert_non_null(strstr(err.msg, "is for y in bf16 and fp16"));
    assert_int_equal(run_kernel(linear, NULL, FP8_BF16, &err), FP8_E_ARGUMENT);
    assert_int_equal(run_kernel(NULL, "gemm_plain", FP8_BF16, &err), FP8_E_ARGUMENT);
    fp8_linear_free(linear);
    fp8_context_free(ctx);
    nothing_is_left(fake);
}

static void a_run_takes_the_kernel_of_the_file(void **state)
{
    (void)state;
    fake_driver *fake = fake_driver_reset();
    fp8_error err;
    if (!fp8_cuda_has_kernels())
        skip();
    fp8_context *ctx = with(HEAD "channel 256 512 24 gemm_small_channel_64x32_3_1 4400\n");
    fp8_linear *linear = linear_new(ctx);
    const fp8_tensor x = on_device(0, FP8_E4M3FN, M, K);
    const fp8_tensor scales = on_device(1 << 20, FP8_F32, M, 1);
    fp8_tensor y = on_device(2 << 20, FP8_BF16, M, N);
    for (int turn = 0; turn < 2; turn++) {
        assert_int_equal(fp8_linear_run(linear, &x, &scales, &y,
                                        (char *)fake_driver_memory(0) + (3 << 20), SPACE, NULL,
                                        &err),
                         FP8_OK);
        assert_string_equal(fake->kernel, "gemm_small_channel_64x32_3");
    }
    fp8_linear_free(linear);
    fp8_context_free(ctx);
    nothing_is_left(fake);
}

static void the_cpu_has_no_kernels_by_name(void **state)
{
    (void)state;
    fp8_context *ctx;
    fp8_error err;
    assert_int_equal(fp8_context_create(NULL, &ctx, &err), FP8_OK);
    fp8_linear *linear = linear_new(ctx);
    assert_int_equal(run_kernel(linear, "gemm_plain", FP8_BF16, &err), FP8_E_UNSUPPORTED);
    fp8_linear_free(linear);
    fp8_context_free(ctx);
}

static int set_up(void **state)
{
    (void)state;
    return sandbox_make() == NULL;
}

static int tear_down(void **state)
{
    (void)state;
    sandbox_remove();
    return 0;
}

#define TEST(function) cmocka_unit_test_setup_teardown(function, set_up, tear_down)
int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(a_file_settles_its_classes),
        TEST(one_row_is_a_class_of_its_own),
        TEST(the_file_goes_before_what_is_built_in),
        TEST(a_file_settles_what_quantizes),
        TEST(whole_linears_go_before_codes),
        TEST(sums_in_13_bits_have_lines_of_codes),
        TEST(a_file_settles_the_wide_kernels),
        TEST(unknown_kernels_are_passed_over),
        TEST(an_unable_kernel_is_left_to_the_model),
        TEST(each_rule_that_is_broken_is_named),
        TEST(lines_and_files_have_limits),
        TEST(the_cpu_takes_no_file),
        TEST(reads_that_fail_are_told),
        TEST(every_allocation_fails_once),
        TEST(classes_are_half_octaves),
        TEST(names_are_unique),
        TEST(what_is_built_in_can_be_done),
        TEST(a_run_takes_the_kernel_that_is_asked_for),
        TEST(a_run_takes_the_kernel_of_the_file),
        TEST(the_cpu_has_no_kernels_by_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
