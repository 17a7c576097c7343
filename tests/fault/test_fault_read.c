/* SPDX-License-Identifier: Apache-2.0
 *
 * test_fault_read.c - every open and every read of a checkpoint fails, is cut short or interrupted,
 * one after the other: the status says what happened, or the bytes are right. */
#include "fault/fault.h"
#include "support/sandbox.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

enum { WRONG_BYTES = 99 };

/* Adds up the bytes of all tensors. */
static fp8_status sum_bytes(const fp8_checkpoint *ckpt, long *sum)
{
    for (int64_t i = 0; i < fp8_checkpoint_count(ckpt); i++) {
        unsigned char data[64];
        fp8_tensor_info info;
        fp8_checkpoint_tensor(ckpt, i, &info);
        fp8_status status = fp8_checkpoint_read(ckpt, &info, 0, info.bytes, data, NULL);
        if (status != FP8_OK)
            return status;
        for (uint64_t b = 0; b < info.bytes; b++)
            *sum += data[b];
    }
    return FP8_OK;
}

/* The program that is run under the shim: opens path, reads all, exits with the status. */
static int reader(const char *path, const char *expected_sum)
{
    fp8_context *ctx;
    fp8_checkpoint *ckpt;
    long sum = 0;
    if (fp8_context_create(NULL, &ctx, NULL))
        return 98;
    fp8_status status = fp8_checkpoint_open(ctx, path, &ckpt, NULL);
    if (status == FP8_OK) {
        status = sum_bytes(ckpt, &sum);
        fp8_checkpoint_close(ckpt);
    }
    fp8_context_free(ctx);
    if (status == FP8_OK && sum != atol(expected_sum))
        return WRONG_BYTES;
    return (int)status;
}

static void each_failure_has_its_status(void **state)
{
    (void)state;
    static const fault_case cases[] = {
        {"pread", "EIO", FP8_E_IO, 0},   {"pread", "EINTR", FP8_OK, 0},
        {"pread", "short", FP8_OK, 0},   {"pread", "eof", FP8_E_TRUNCATED, 0},
        {"open", "EMFILE", FP8_E_IO, 0}, {"open", "EACCES", FP8_E_IO, 0},
        {"open", "EIO", FP8_E_IO, 0},    {"stat", "EIO", FP8_E_IO, 0},
    };
    static const fault_table table = {
        .cases = cases,
        .count = sizeof cases / sizeof *cases,
        .path = "/model/",
        .least = 7, /* index, 2 shards, config, 4 tensors */
    };
    char *argv[] = {"/proc/self/exe", "--read", (char *)sandbox_path("model"), "616", NULL};
    fault_table_run(&table, argv);
}

static int make_model(void **state)
{
    (void)state;
    sandbox_make();
    assert_int_equal(mkdir(sandbox_path("model"), 0777), 0);
    sandbox_shard("model/a.safetensors", "t0,t1");
    sandbox_shard("model/b.safetensors", "t2");
    sandbox_text("model/config.json", "{}");
    sandbox_text("model/model.safetensors.index.json",
                 "{\"metadata\":{\"total_size\":48},\"weight_map\":{\"t0\":\"a.safetensors\","
                 "\"t1\":\"a.safetensors\",\"t2\":\"b.safetensors\"}}");
    return 0;
}

int main(int argc, char **argv)
{
    if (argc == 4 && !strcmp(argv[1], "--read"))
        return reader(argv[2], argv[3]);
    const struct CMUnitTest tests[] = {cmocka_unit_test(each_failure_has_its_status)};
    return cmocka_run_group_tests(tests, make_model, fault_tear_down);
}
