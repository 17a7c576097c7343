/* SPDX-License-Identifier: Apache-2.0
 *
 * test_checkpoint.c - which files a path stands for, what an index may say, and reading tensors:
 * each rule with its message, each warning; no descriptor and no memory leaks on any way out. */
#include "ckpt/checkpoint.h"
#include "ckpt/index.h"
#include "support/counted_alloc.h"
#include "support/sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>
/* cmocka.h needs some of the above. */
#include <cmocka.h>

static fp8_context *ctx;
static fp8_error err;
static int descriptors_before;

static int count_descriptors(void)
{
    int n = 0;
    DIR *dir = opendir("/proc/self/fd");
    while (dir && readdir(dir))
        n++;
    if (dir)
        closedir(dir);
    return n;
}

static int begin(void **state)
{
    (void)state;
    sandbox_make();
    descriptors_before = count_descriptors();
    return fp8_context_create(NULL, &ctx, NULL) != FP8_OK;
}

static int end(void **state)
{
    (void)state;
    fp8_context_free(ctx);
    sandbox_remove();
    return count_descriptors() != descriptors_before;
}

static fp8_checkpoint *open_good(const char *name)
{
    fp8_checkpoint *ckpt;
    if (fp8_checkpoint_open(ctx, sandbox_path(name), &ckpt, &err) != FP8_OK)
        fail_msg("%s: %s", name, err.msg);
    return ckpt;
}

/* Opening it fails with the status and the words. */
static void open_bad(const char *name, fp8_status status, const char *words)
{
    fp8_checkpoint *ckpt = (fp8_checkpoint *)(void *)&err;
    fp8_status found = fp8_checkpoint_open(ctx, sandbox_path(name), &ckpt, &err);
    if (found != status || !strstr(err.msg, words))
        fail_msg("%s: %s: %s; must be %s: %s", name, fp8_status_name(found), err.msg,
                 fp8_status_name(status), words);
    assert_null(ckpt);
}

/* Opens it, wants these tensors (comma-separated) and a first warning with these words (NULL = no
 * warning), closes it. */
static void expect(const char *name, const char *tensors, const char *warning)
{
    fp8_checkpoint *ckpt = open_good(name);
    char found[1024] = "";
    for (int64_t i = 0; i < fp8_checkpoint_count(ckpt); i++) {
        fp8_tensor_info info;
        assert_int_equal(fp8_checkpoint_tensor(ckpt, i, &info), FP8_OK);
        strcat(strcat(found, i ? "," : ""), info.name);
    }
    assert_string_equal(found, tensors);
    const char *first = fp8_checkpoint_warning(ckpt, 0);
    if (!warning && first)
        fail_msg("unexpected warning: %s", first);
    if (warning && (!first || !strstr(first, warning)))
        fail_msg("warning: %s; must be %s", first ? first : "none", warning);
    fp8_checkpoint_close(ckpt);
}

static void make_directory(const char *name)
{
    assert_int_equal(mkdir(sandbox_path(name), 0777), 0);
}

/* A directory `name` with shards a (t0, t1) and b (t2) and the index text. */
static void make_model(const char *name, const char *index)
{
    char path[256];
    make_directory(name);
    snprintf(path, sizeof path, "%s/a.safetensors", name);
    sandbox_shard(path, "t0,t1");
    snprintf(path, sizeof path, "%s/b.safetensors", name);
    sandbox_shard(path, "t2");
    snprintf(path, sizeof path, "%s/model.safetensors.index.json", name);
    sandbox_text(path, index);
}

#define MAP(text)  "{\"weight_map\":{" text "}}"
#define GOOD_MAP   "\"t0\":\"a.safetensors\",\"t1\":\"a.safetensors\",\"t2\":\"b.safetensors\""
#define GOOD_INDEX "{\"metadata\":{\"total_size\":48},\"weight_map\":{" GOOD_MAP "}}"

/* ---- which files ---- */

static void a_path_may_be_a_file_an_index_or_a_directory(void **state)
{
    (void)state;
    make_model("m", GOOD_INDEX);
    expect("m", "t0,t1,t2", NULL);
    expect("m///", "t0,t1,t2", NULL);
    expect("m/model.safetensors.index.json", "t0,t1,t2", NULL);
    expect("m/b.safetensors", "t2", NULL);
    fp8_checkpoint *ckpt = open_good("m/b.safetensors");
    assert_true(ckpt->single_file);
    assert_string_equal(ckpt->directory, sandbox_path("m"));
    assert_null(ckpt->config);
    fp8_checkpoint_close(ckpt);
}

static void paths_may_be_relative(void **state)
{
    (void)state;
    char old[4096];
    make_model("m", GOOD_INDEX);
    sandbox_text("m/config.json", "{\"x\": 1}\n");
    assert_non_null(getcwd(old, sizeof old));
    assert_int_equal(chdir(sandbox_path("m")), 0);
    static const char *const paths[] = {".", "./", "model.safetensors.index.json"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        fp8_checkpoint *ckpt;
        assert_int_equal(fp8_checkpoint_open(ctx, paths[i], &ckpt, &err), FP8_OK);
        assert_int_equal(fp8_checkpoint_count(ckpt), 3);
        assert_string_equal(ckpt->config, "{\"x\": 1}\n");
        assert_int_equal(ckpt->config_bytes, 9);
        fp8_checkpoint_close(ckpt);
    }
    assert_int_equal(chdir(old), 0);
}

static void a_directory_is_read_by_its_index_first(void **state)
{
    (void)state;
    make_model("m", GOOD_INDEX);
    sandbox_shard("m/model.safetensors", "other");
    sandbox_shard("m/consolidated.safetensors", "other");
    expect("m", "t0,t1,t2",
           "does not name 2 of the .safetensors files beside it, such as "
           "consolidated.safetensors");
}

static void another_index_is_taken_if_it_is_the_only_one(void **state)
{
    (void)state;
    make_model("m", GOOD_INDEX);
    assert_int_equal(rename(sandbox_path("m/model.safetensors.index.json"),
                            sandbox_path("m/diffusion.safetensors.index.json")),
                     0);
    expect("m", "t0,t1,t2", NULL);
    sandbox_text("m/second.safetensors.index.json", GOOD_INDEX);
    open_bad("m", FP8_E_FORMAT,
             "diffusion.safetensors.index.json and second.safetensors.index.json: give the index");
}

static void without_an_index_all_files_are_read(void **state)
{
    (void)state;
    make_directory("m");
    sandbox_shard("m/x-2.safetensors", "b");
    expect("m", "b", NULL);
    sandbox_shard("m/x-1.safetensors", "a");
    sandbox_shard("m/.hidden.safetensors", "h");
    expect("m", "a,b", "no index; all 2 .safetensors files are read");
    sandbox_shard("m/x-3.safetensors", "a");
    open_bad("m", FP8_E_FORMAT, "tensor 'a' is in x-1.safetensors and in x-3.safetensors");
    sandbox_shard("m/model.safetensors", "c");
    expect("m", "c", "model.safetensors is read; 3 other safetensors files beside it are not");
}

static void a_directory_without_weights_is_refused(void **state)
{
    (void)state;
    make_directory("m");
    open_bad("m", FP8_E_NOT_FOUND, "m: no .safetensors file in this directory");
    sandbox_text("m/pytorch_model.bin", "PK");
    open_bad("m", FP8_E_NOT_FOUND, "pytorch_model.bin is of a format that is not read");
    open_bad("nothing", FP8_E_NOT_FOUND, "nothing: No such file or directory");
}

static void what_is_no_regular_file_is_refused(void **state)
{
    (void)state;
    make_directory("d");
    make_directory("d/model.safetensors");
    open_bad("d", FP8_E_FORMAT, "model.safetensors: is a directory, must be a regular file");
    assert_int_equal(mkfifo(sandbox_path("fifo.safetensors"), 0666), 0);
    open_bad("fifo.safetensors", FP8_E_FORMAT, "is a FIFO, must be a regular file");
    assert_int_equal(symlink("/dev/zero", sandbox_path("zero.safetensors")), 0);
    open_bad("zero.safetensors", FP8_E_FORMAT, "is a device, must be a regular file");
    make_model("m", GOOD_INDEX);
    assert_int_equal(mkfifo(sandbox_path("m/config.json"), 0666), 0);
    open_bad("m", FP8_E_FORMAT, "config.json: is a FIFO");
}

static void symbolic_links_are_followed_but_not_in_circles(void **state)
{
    (void)state;
    make_model("blobs", GOOD_INDEX);
    make_directory("m");
    static const char *const files[] = {"a.safetensors", "b.safetensors",
                                        "model.safetensors.index.json"};
    for (size_t i = 0; i < 3; i++) {
        char from[256], to[256];
        snprintf(from, sizeof from, "../blobs/%s", files[i]);
        snprintf(to, sizeof to, "m/%s", files[i]);
        assert_int_equal(symlink(from, sandbox_path(to)), 0);
    }
    expect("m", "t0,t1,t2", NULL);
    assert_int_equal(symlink("loop.safetensors", sandbox_path("loop.safetensors")), 0);
    open_bad("loop.safetensors", FP8_E_IO, "Too many levels of symbolic links");
    assert_int_equal(symlink("m", sandbox_path("link")), 0);
    expect("link", "t0,t1,t2", NULL);
}

/* ---- what an index says ---- */

static void index_rules_have_messages(void **state)
{
    (void)state;
    static const struct {
        const char *index, *words;
    } rules[] = {
        {"", "JSON byte 0: the text ends where a value must stand"},
        {"[]", "JSON byte 0: an array, must be an object"},
        {"{}", "weight_map is missing"},
        {"{} x", "weight_map is missing"},
        {MAP(GOOD_MAP) "x", "text after the end"},
        {"{\"weight_map\":[]}", "weight_map: JSON byte 14: an array, must be an object"},
        {"{\"weight_map\":null}", "weight_map: JSON byte 14: null, must be an object"},
        {MAP(""), "weight_map lists no tensor"},
        {MAP("\"t0\":1"), "tensor 't0': JSON byte 20: a number, must be a string"},
        {MAP("\"t0\":\"a.safetensors\",\"\\u00740\":\"a.safetensors\""),
         "weight_map: tensor 't0' is listed twice"},
        {"{\"weight_map\":{\"t0\":\"a.safetensors\"},\"weight_map\":{}}",
         "weight_map: it is given twice"},
        {"{\"metadata\":{},\"metadata\":{},\"weight_map\":{}}", "metadata: it is given twice"},
        {"{\"metadata\":7}", "metadata: JSON byte 12: a number, must be an object"},
        {"{\"metadata\":{\"total_size\":\"48\"}}", "metadata: JSON byte 26: a string, must be"},
        {MAP("\"t0\":\"\""), "'' is no plain name"},
        {MAP("\"t0\":\".\""), "'.' is no plain name"},
        {MAP("\"t0\":\"..\""), "'..' is no plain name"},
        {MAP("\"t0\":\"../a.safetensors\""), "'../a.safetensors' is no plain name"},
        {MAP("\"t0\":\"\\u002e./a.safetensors\""), "'../a.safetensors' is no plain name"},
        {MAP("\"t0\":\"sub/a.safetensors\""), "is no plain name"},
        {MAP("\"t0\":\"/etc/passwd\""), "'/etc/passwd' is no plain name"},
        {MAP("\"t0\":\"a.safetensors\\u0000x\""), "is no plain name"},
        {MAP(GOOD_MAP ",\"t3\":\"c.safetensors\""),
         "index.json names the shard c.safetensors, which is not there"},
        {MAP(GOOD_MAP ",\"t9\":\"b.safetensors\""),
         "tensor 't9' is not in b.safetensors nor in any other shard"},
        {MAP("\"t0\":\"b.safetensors\",\"t1\":\"a.safetensors\",\"t2\":\"b.safetensors\""),
         "tensor 't0' is not in b.safetensors, but in a.safetensors"},
        {"version https://git-lfs.github.com/spec/v1\n", "not an index, but a Git LFS pointer"},
        {"PK\3\4", "not an index, but a zip archive"},
    };
    make_model("m", GOOD_INDEX);
    for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
        sandbox_text("m/model.safetensors.index.json", rules[i].index);
        open_bad("m", FP8_E_FORMAT, rules[i].words);
        assert_non_null(strstr(err.msg, sandbox_path("m")));
    }
    char longest[400] = "{\"weight_map\":{\"t0\":\"";
    memset(longest + strlen(longest), 'x', 256);
    strcat(longest, "\"}}");
    sandbox_text("m/model.safetensors.index.json", longest);
    open_bad("m", FP8_E_FORMAT, "is no plain name");
}

static void the_place_of_a_bad_file_name_is_told(void **state)
{
    (void)state;
    make_model("m", MAP("\"t0\":\"../x\""));
    open_bad("m", FP8_E_FORMAT, "no plain name");
    assert_int_equal(err.pos, strlen("{\"weight_map\":{\"t0\":\""));
}

/* Refused by its size alone; the file is a hole. */
static void an_index_over_the_limit_is_not_read(void **state)
{
    (void)state;
    make_model("vast", GOOD_INDEX);
    assert_int_equal(truncate(sandbox_path("vast/model.safetensors.index.json"), 1000000001), 0);
    open_bad("vast", FP8_E_FORMAT,
             "index.json: has 1000000001 bytes, must have at most 1000000000");
}

static void oddities_of_an_index_are_warned_of(void **state)
{
    (void)state;
    make_model("m", MAP("\"t0\":\"a.safetensors\",\"t2\":\"b.safetensors\""));
    expect("m", "t0,t1,t2", "does not list tensor 't1' of a.safetensors");
    sandbox_text("m/model.safetensors.index.json", MAP("\"t0\":\"a.safetensors\""));
    expect("m", "t0,t1", "does not list tensor 't1' of a.safetensors");
    sandbox_shard("m/a.safetensors", "t0,t1,t3,t4");
    expect("m", "t0,t1,t3,t4", "does not list tensor 't1' of a.safetensors (and 2 more)");
    sandbox_text("m/model.safetensors.index.json",
                 "{\"metadata\":{\"total_size\":1,\"x\":[]},\"z\":0,\"weight_map\":{" GOOD_MAP
                 "}}");
    sandbox_shard("m/a.safetensors", "t0,t1");
    expect("m", "t0,t1,t2", "total_size is 1, the tensors have 48 bytes");
    sandbox_text("m/model.safetensors.index.json",
                 "{\"metadata\":{\"total_size\":48.0},\"weight_map\":{" GOOD_MAP "}}");
    expect("m", "t0,t1,t2", NULL);
}

/* The copy that the index does not list is left out; the listed one is read. */
static void a_tensor_in_two_shards_is_read_once(void **state)
{
    (void)state;
    make_model("m", GOOD_INDEX);
    sandbox_shard("m/b.safetensors", "t1,t2");
    expect("m", "t0,t1,t2",
           "tensor 't1' is in a.safetensors and in b.safetensors, which is not "
           "read");
    fp8_checkpoint *ckpt = open_good("m");
    fp8_tensor_info info;
    unsigned char data[16];
    assert_int_equal(fp8_checkpoint_find(ckpt, "t2", 2, &info), FP8_OK);
    assert_int_equal(fp8_checkpoint_read(ckpt, &info, 0, 16, data, &err), FP8_OK);
    assert_int_equal(data[0], 16);
    assert_int_equal(fp8_checkpoint_find(ckpt, "t1", 2, &info), FP8_OK);
    assert_string_equal(info.file, sandbox_path("m/a.safetensors"));
    fp8_checkpoint_close(ckpt);
    sandbox_shard("m/a.safetensors", "t0,t1,u");
    sandbox_shard("m/b.safetensors", "t2,u");
    open_bad("m", FP8_E_FORMAT, "tensor 'u' is in a.safetensors and in b.safetensors");
}

/* ---- tensors ---- */

static void tensors_are_found_and_read(void **state)
{
    (void)state;
    make_model("m", GOOD_INDEX);
    fp8_checkpoint *ckpt = open_good("m");
    fp8_tensor_info info;
    unsigned char data[16];
    assert_int_equal(fp8_checkpoint_find(ckpt, "t1", 2, &info), FP8_OK);
    assert_string_equal(info.name, "t1");
    assert_int_equal(info.dtype, FP8_F32);
    assert_int_equal(info.ndim, 1);
    assert_int_equal(info.shape[0], 4);
    assert_int_equal(info.bytes, 16);
    assert_string_equal(info.file, sandbox_path("m/a.safetensors"));
    assert_int_equal(fp8_checkpoint_read(ckpt, &info, 4, 12, data, &err), FP8_OK);
    for (int i = 0; i < 12; i++)
        assert_int_equal(data[i], 20 + i);
    assert_int_equal(fp8_checkpoint_read(ckpt, &info, 16, 0, NULL, &err), FP8_OK);
    assert_int_equal(fp8_checkpoint_find(ckpt, "t", 1, &info), FP8_E_NOT_FOUND);
    assert_int_equal(fp8_checkpoint_index(ckpt, "t2", 2), 2);
    assert_int_equal(fp8_checkpoint_shard(ckpt, 1), 0);
    assert_int_equal(fp8_checkpoint_shard(ckpt, 2), 1);
    fp8_checkpoint_close(ckpt);
}

static void nonsense_is_refused(void **state)
{
    (void)state;
    make_model("m", GOOD_INDEX);
    fp8_checkpoint *ckpt = open_good("m");
    fp8_tensor_info info, other;
    unsigned char data[16];
    assert_int_equal(fp8_checkpoint_tensor(ckpt, 0, &info), FP8_OK);
    assert_int_equal(fp8_checkpoint_read(ckpt, &info, 1, 16, data, &err), FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "bytes [1, +16) lie outside tensor 't0' of 16 bytes"));
    assert_int_equal(fp8_checkpoint_read(ckpt, &info, UINT64_MAX, 2, data, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_read(ckpt, &info, 0, 1, NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_read(ckpt, NULL, 0, 1, data, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_read(NULL, &info, 0, 1, data, &err), FP8_E_ARGUMENT);
    other = info;
    other.name = "of another checkpoint";
    other.name_bytes = strlen(other.name);
    assert_int_equal(fp8_checkpoint_read(ckpt, &other, 0, 1, data, &err), FP8_E_ARGUMENT);
    assert_non_null(strstr(err.msg, "no tensor 'of another checkpoint'"));
    assert_int_equal(fp8_checkpoint_tensor(ckpt, -1, &info), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_tensor(ckpt, 3, &info), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_tensor(NULL, 0, &info), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_find(NULL, "a", 1, &info), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_count(NULL), 0);
    assert_null(fp8_checkpoint_warning(ckpt, 0));
    assert_null(fp8_checkpoint_warning(ckpt, -1));
    assert_null(fp8_checkpoint_warning(NULL, 0));
    fp8_checkpoint_close(ckpt);
    fp8_checkpoint_close(NULL);
    assert_int_equal(fp8_checkpoint_open(ctx, "x", NULL, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_open(ctx, NULL, &ckpt, &err), FP8_E_ARGUMENT);
    assert_int_equal(fp8_checkpoint_open(NULL, "x", &ckpt, &err), FP8_E_ARGUMENT);
}

static void a_file_that_changes_is_noticed(void **state)
{
    (void)state;
    make_model("m", GOOD_INDEX);
    fp8_checkpoint *ckpt = open_good("m");
    fp8_tensor_info a, b;
    unsigned char data[16];
    assert_int_equal(fp8_checkpoint_find(ckpt, "t1", 2, &a), FP8_OK);
    assert_int_equal(fp8_checkpoint_find(ckpt, "t2", 2, &b), FP8_OK);
    assert_int_equal(truncate(sandbox_path("m/a.safetensors"), 100), 0);
    assert_int_equal(fp8_checkpoint_read(ckpt, &a, 0, 16, data, &err), FP8_E_TRUNCATED);
    assert_non_null(strstr(err.msg, "a.safetensors: has 100 bytes, had "));
    assert_int_equal(rename(sandbox_path("m/b.safetensors"), sandbox_path("m/old")), 0);
    assert_int_equal(fp8_checkpoint_read(ckpt, &b, 0, 16, data, &err), FP8_E_NOT_FOUND);
    sandbox_shard("m/b.safetensors", "t2");
    assert_int_equal(fp8_checkpoint_read(ckpt, &b, 0, 16, data, &err), FP8_E_MISMATCH);
    assert_non_null(strstr(err.msg, "b.safetensors: was changed after its header was read"));
    assert_int_equal(rename(sandbox_path("m/old"), sandbox_path("m/b.safetensors")), 0);
    assert_int_equal(fp8_checkpoint_read(ckpt, &b, 0, 16, data, &err), FP8_OK);
    fp8_checkpoint_close(ckpt);
}

static void a_file_that_shrinks_while_read_is_truncated(void **state)
{
    (void)state;
    char data[32];
    sandbox_text("short", "0123456789");
    int fd = open(sandbox_path("short"), O_RDONLY);
    assert_int_equal(fp8_pread_all(fd, data, 6, 4, "short", &err), FP8_OK);
    assert_memory_equal(data, "456789", 6);
    assert_int_equal(fp8_pread_all(fd, data, 7, 4, "short", &err), FP8_E_TRUNCATED);
    assert_string_equal(err.msg, "short: ends at byte 10, 1 more were to be read");
    assert_int_equal(err.pos, 10);
    close(fd);
    assert_int_equal(fp8_pread_all(fd, data, 7, 4, "short", &err), FP8_E_IO);
    assert_int_equal(err.os_errno, EBADF);
}

static void texts_have_a_limit(void **state)
{
    (void)state;
    char *text = NULL;
    uint64_t bytes;
    sandbox_text("t", "0123456789");
    assert_int_equal(fp8_read_text(ctx, sandbox_path("."), "t", 10, &text, &bytes, &err), FP8_OK);
    assert_string_equal(text, "0123456789");
    assert_int_equal(bytes, 10);
    fp8_release(ctx, text);
    assert_int_equal(fp8_read_text(ctx, sandbox_path("."), "t", 9, &text, &bytes, &err),
                     FP8_E_FORMAT);
    assert_non_null(strstr(err.msg, "has 10 bytes, must have at most 9"));
    assert_int_equal(fp8_read_text(ctx, sandbox_path("."), "u", 9, &text, &bytes, &err),
                     FP8_E_NOT_FOUND);
}

/* More shards than the process may open files, and than bisection needs to be right by luck. */
static void many_shards_need_few_descriptors(void **state)
{
    (void)state;
    enum { SHARDS = 300 };
    struct rlimit old, low;
    make_directory("m");
    for (int i = 0; i < SHARDS; i++) {
        char file[64], tensor[64];
        snprintf(file, sizeof file, "m/model-%05d-of-%05d.safetensors", i + 1, SHARDS);
        snprintf(tensor, sizeof tensor, "t%d", i);
        sandbox_shard(file, i % 50 == 7 ? "" : tensor);
    }
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &old), 0);
    low = old;
    low.rlim_cur = 32;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
    fp8_checkpoint *ckpt = open_good("m");
    for (int i = 0; i < SHARDS; i++) {
        char tensor[64];
        unsigned char data[16];
        fp8_tensor_info info;
        snprintf(tensor, sizeof tensor, "t%d", i);
        fp8_status found = fp8_checkpoint_find(ckpt, tensor, strlen(tensor), &info);
        assert_int_equal(found, i % 50 == 7 ? FP8_E_NOT_FOUND : FP8_OK);
        if (found == FP8_OK)
            assert_int_equal(fp8_checkpoint_read(ckpt, &info, 0, 16, data, &err), FP8_OK);
    }
    fp8_checkpoint_close(ckpt);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &old), 0);
}

static fp8_status open_and_close(const fp8_context *c, const char *path)
{
    fp8_checkpoint *ckpt;
    fp8_error why;
    fp8_status status = fp8_checkpoint_open(c, path, &ckpt, &why);
    fp8_checkpoint_close(ckpt);
    return status;
}

static void no_memory_is_an_error_everywhere(void **state)
{
    (void)state;
    make_model("m", MAP("\"t0\":\"a.safetensors\",\"t2\":\"b.safetensors\""));
    sandbox_shard("m/b.safetensors", "t0,t2");
    sandbox_shard("m/other.safetensors", "t0");
    sandbox_text("m/config.json", "{}");
    make_directory("n");
    sandbox_shard("n/a.safetensors", "t0");
    sandbox_shard("n/b.safetensors", "t1");
    static const char *const paths[] = {"m", "n", "m/model.safetensors.index.json",
                                        "m/a.safetensors"};
    for (size_t i = 0; i < sizeof paths / sizeof *paths; i++) {
        const char *path = sandbox_path(paths[i]);
        for (int64_t n = 1;; n++) {
            counted_alloc a = {.fail_at = n};
            fp8_context *c = counted_context(&a);
            fp8_status status = open_and_close(c, path);
            fp8_context_free(c);
            assert_int_equal(a.live, 0);
            if (a.calls < n) {
                assert_int_equal(status, FP8_OK);
                assert_true(n > 8);
                break;
            }
            assert_int_equal(status, FP8_E_NO_MEMORY);
        }
    }
}

#define CASE(f) cmocka_unit_test_setup_teardown(f, begin, end)

int main(void)
{
    const struct CMUnitTest tests[] = {
        CASE(a_path_may_be_a_file_an_index_or_a_directory),
        CASE(paths_may_be_relative),
        CASE(a_directory_is_read_by_its_index_first),
        CASE(another_index_is_taken_if_it_is_the_only_one),
        CASE(without_an_index_all_files_are_read),
        CASE(a_directory_without_weights_is_refused),
        CASE(what_is_no_regular_file_is_refused),
        CASE(symbolic_links_are_followed_but_not_in_circles),
        CASE(index_rules_have_messages),
        CASE(the_place_of_a_bad_file_name_is_told),
        CASE(an_index_over_the_limit_is_not_read),
        CASE(oddities_of_an_index_are_warned_of),
        CASE(a_tensor_in_two_shards_is_read_once),
        CASE(tensors_are_found_and_read),
        CASE(nonsense_is_refused),
        CASE(a_file_that_changes_is_noticed),
        CASE(a_file_that_shrinks_while_read_is_truncated),
        CASE(texts_have_a_limit),
        CASE(many_shards_need_few_descriptors),
        CASE(no_memory_is_an_error_everywhere),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
