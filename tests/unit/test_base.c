/* SPDX-License-Identifier: Apache-2.0
 *
 * test_base.c - status names and values, error texts, checked sizes, the context and its
 * parallel-for. */
#include "base/context.h"
#include "base/size.h"
#include "base/sort.h"

#include <errno.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static void statuses_keep_their_values(void **state)
{
    (void)state;
    static const struct {
        int value;
        const char *name;
    } pinned[] = {
        {0, "FP8_OK"},           {1, "FP8_E_ARGUMENT"},
        {2, "FP8_E_STATE"},      {3, "FP8_E_STOPPED"},
        {10, "FP8_E_SHAPE"},     {11, "FP8_E_STRIDE"},
        {12, "FP8_E_DTYPE"},     {13, "FP8_E_SCALE"},
        {14, "FP8_E_NAN"},       {20, "FP8_E_UNSUPPORTED"},
        {21, "FP8_E_NO_DEVICE"}, {22, "FP8_E_NO_KERNEL"},
        {23, "FP8_E_DEVICE"},    {30, "FP8_E_FORMAT"},
        {31, "FP8_E_TRUNCATED"}, {32, "FP8_E_NOT_FOUND"},
        {33, "FP8_E_EXISTS"},    {34, "FP8_E_MISMATCH"},
        {40, "FP8_E_IO"},        {41, "FP8_E_NO_SPACE"},
        {50, "FP8_E_NO_MEMORY"},
    };
    for (size_t i = 0; i < sizeof pinned / sizeof *pinned; i++)
        assert_string_equal(fp8_status_name((fp8_status)pinned[i].value), pinned[i].name);
    assert_string_equal(fp8_status_name((fp8_status)999), "FP8_E_?");
}

static void errors_stay_on_one_line(void **state)
{
    (void)state;
    fp8_error err;
    assert_int_equal(fp8_fail(&err, FP8_E_SHAPE, "k=%d\nmust be %d", 3, 4), FP8_E_SHAPE);
    assert_string_equal(err.msg, "k=3?must be 4");
    assert_int_equal(err.pos, -1);
    assert_int_equal(fp8_fail_at(&err, FP8_E_NAN, 7, "x"), FP8_E_NAN);
    assert_int_equal(err.pos, 7);
    assert_int_equal(fp8_fail(NULL, FP8_E_IO, "nobody listens"), FP8_E_IO);
}

static void system_errors_name_their_kind(void **state)
{
    (void)state;
    fp8_error err;
    assert_int_equal(fp8_fail_os(&err, ENOSPC, "write %s", "a"), FP8_E_NO_SPACE);
    assert_int_equal(err.os_errno, ENOSPC);
    assert_non_null(strstr(err.msg, "write a: "));
    assert_int_equal(fp8_fail_os(NULL, ENOENT, "x"), FP8_E_NOT_FOUND);
    assert_int_equal(fp8_fail_os(NULL, EIO, "x"), FP8_E_IO);
    assert_int_equal(fp8_fail_os(NULL, ENOMEM, "x"), FP8_E_NO_MEMORY);
}

static void sizes_are_checked(void **state)
{
    (void)state;
    uint64_t out;
    assert_true(fp8_size_mul(1ull << 32, (1ull << 32) - 1, &out));
    assert_false(fp8_size_mul(1ull << 32, 1ull << 32, &out));
    assert_false(fp8_size_add(UINT64_MAX, 1, &out));
    assert_int_equal(fp8_ceil_div(0, 128), 0);
    assert_int_equal(fp8_ceil_div(129, 128), 2);
    assert_int_equal(fp8_grid_extent(0, 0), 1);
    assert_int_equal(fp8_grid_extent(0, 7), 7);
    assert_int_equal(fp8_grid_extent(128, 7), 128);
}

static void *no_memory(void *user, size_t bytes)
{
    (void)user;
    (void)bytes;
    return NULL;
}

static void no_free(void *user, void *ptr)
{
    (void)user;
    (void)ptr;
}

static void contexts_refuse_nonsense(void **state)
{
    (void)state;
    fp8_context *ctx;
    fp8_error err;
    assert_int_equal(fp8_context_create(NULL, NULL, &err), FP8_E_ARGUMENT);
    fp8_context_desc desc = FP8_CONTEXT_DESC_INIT;
    desc.struct_bytes = 3;
    assert_int_equal(fp8_context_create(&desc, &ctx, &err), FP8_E_ARGUMENT);
    desc = (fp8_context_desc)FP8_CONTEXT_DESC_INIT;
    desc.threads = -1;
    assert_int_equal(fp8_context_create(&desc, &ctx, &err), FP8_E_ARGUMENT);
    desc = (fp8_context_desc)FP8_CONTEXT_DESC_INIT;
    desc.allocator.alloc = no_memory;
    assert_int_equal(fp8_context_create(&desc, &ctx, &err), FP8_E_ARGUMENT);
    desc.allocator.free = no_free;
    assert_int_equal(fp8_context_create(&desc, &ctx, &err), FP8_E_NO_MEMORY);
    assert_null(ctx);
    fp8_context_free(NULL);
}

/* Whether memory at `at` asks for huge pages: "hg" among the flags of its mapping. */
static bool asks_for_huge_pages(const void *at)
{
    char line[512];
    unsigned long begin, end;
    bool here = false, asks = false;
    FILE *maps = fopen("/proc/self/smaps", "r");
    assert_non_null(maps);
    while (fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &begin, &end) == 2)
            here = (uintptr_t)at >= begin && (uintptr_t)at < end;
        else if (here && !strncmp(line, "VmFlags:", 8))
            asks = strstr(line, " hg") != NULL;
    }
    fclose(maps);
    return asks;
}

static void large_memory_asks_for_huge_pages(void **state)
{
    (void)state;
    enum { HUGE_PAGE = 2 << 20, LARGE = 5 * HUGE_PAGE + 1 };
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    char *memory = fp8_alloc_streamed(ctx, LARGE), *small = fp8_alloc_streamed(ctx, 1);
    assert_non_null(memory);
    assert_non_null(small);
    memory[0] = memory[LARGE - 1] = small[0] = 1;
    assert_int_equal((uintptr_t)memory % HUGE_PAGE, 0);
    if (access("/sys/kernel/mm/transparent_hugepage", F_OK) == 0) {
        assert_true(asks_for_huge_pages(memory));
        assert_true(asks_for_huge_pages(memory + 5 * HUGE_PAGE - 1));
        assert_false(asks_for_huge_pages(memory + LARGE - 1)); /* would be half empty */
    }
    fp8_release(ctx, memory);
    fp8_release(ctx, small);
    fp8_context_free(ctx);
}

static void the_instruction_set_can_be_capped(void **state)
{
    (void)state;
    fp8_context *ctx;
    fp8_error err;
    setenv("FP8_CPU_ISA", "sse9", 1);
    assert_int_equal(fp8_context_create(NULL, &ctx, &err), FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "sse9"));
    setenv("FP8_CPU_ISA", "scalar", 1);
    assert_int_equal(fp8_context_create(NULL, &ctx, &err), FP8_OK);
    assert_int_equal(ctx->isa, FP8_ISA_SCALAR);
    fp8_context_free(ctx);
    unsetenv("FP8_CPU_ISA");
}

static void count_one(void *arg, int64_t i)
{
    int *counts = arg;
    __atomic_add_fetch(&counts[i], 1, __ATOMIC_RELAXED);
}

static void parallel_for_visits_each_index_once(void **state)
{
    (void)state;
    enum { N = 1000 };
    int counts[N] = {0};
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    fp8_run_parallel(ctx, N, count_one, counts);
    fp8_run_parallel(ctx, 0, count_one, counts);
    for (int i = 0; i < N; i++)
        assert_int_equal(counts[i], 1);
    assert_non_null(fp8_doctor(ctx, 0));
    char used[64];
    snprintf(used, sizeof used, "%s used", fp8_isa_name(ctx->isa));
    assert_non_null(strstr(fp8_doctor(ctx, 3), "levels: scalar "));
    assert_non_null(strstr(fp8_doctor(ctx, 3), used));
    assert_null(fp8_doctor(ctx, 100));
    fp8_context_free(ctx);
}

typedef struct numbered {
    int key, place;
} numbered;

/* By key; *owner counts the calls. */
static int compare_keys(const void *a, const void *b, void *owner)
{
    ++*(int64_t *)owner;
    int x = ((const numbered *)a)->key, y = ((const numbered *)b)->key;
    return (x > y) - (x < y);
}

/* Every length up to 100, keys that repeat, in disorder, in order and backwards. */
static void sorting_is_stable(void **state)
{
    (void)state;
    enum { N = 100 };
    fp8_context *ctx;
    assert_int_equal(fp8_context_create(NULL, &ctx, NULL), FP8_OK);
    for (int n = 0; n <= N; n++)
        for (int order = 0; order < 3; order++) {
            numbered list[N];
            int64_t calls = 0;
            for (int i = 0; i < n; i++)
                list[i] = (numbered){order == 0 ? i * 37 % 11 : order == 1 ? i / 3 : -i / 3, i};
            assert_int_equal(fp8_sort(ctx, list, n, sizeof *list, compare_keys, &calls, NULL),
                             FP8_OK);
            for (int i = 1; i < n; i++) {
                assert_true(list[i - 1].key <= list[i].key);
                assert_true(list[i - 1].key < list[i].key || list[i - 1].place < list[i].place);
            }
            if (order == 1 && n)
                assert_int_equal(calls, n - 1);
        }
    fp8_context_free(ctx);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(statuses_keep_their_values),
        cmocka_unit_test(errors_stay_on_one_line),
        cmocka_unit_test(system_errors_name_their_kind),
        cmocka_unit_test(sizes_are_checked),
        cmocka_unit_test(contexts_refuse_nonsense),
        cmocka_unit_test(large_memory_asks_for_huge_pages),
        cmocka_unit_test(the_instruction_set_can_be_capped),
        cmocka_unit_test(sorting_is_stable),
        cmocka_unit_test(parallel_for_visits_each_index_once),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
