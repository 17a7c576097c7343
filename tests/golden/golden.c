/* SPDX-License-Identifier: Apache-2.0
 *
 * golden.c - folders, files, tables and counts of the golden tests. */
#include "golden/golden.h"
#include "ckpt/file.h"
#include "ckpt/safetensors.h"

#include <dirent.h>
#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char default_dir[] = "tests/golden";

static void die(const char *what, const char *why)
{
    fprintf(stderr, "golden: %s: %s\n", what, why);
    exit(2);
}

static void *must(void *memory)
{
    if (!memory)
        die("malloc", "no memory");
    return memory;
}

/* ---- folders ---- */

/* The folder of all families, without a trailing slash. */
static const char *folder_of_all(void)
{
    const char *dir = getenv("FP8_GOLDEN_DIR");
    return dir && *dir ? dir : default_dir;
}

static bool is_default_dir(void)
{
    return !strcmp(folder_of_all(), default_dir);
}

const char *golden_path(const char *family, const char *file)
{
    static char paths[5][4096];
    static int turn;
    char *path = paths[turn = (turn + 1) % 5];
    snprintf(path, sizeof paths[0], "%s/%s/%s", folder_of_all(), family, file);
    return path;
}

bool golden_has(const char *family)
{
    if (access(golden_path(family, ""), F_OK) == 0)
        return true;
    printf("golden %s: skipped, %s has none\n", family, folder_of_all());
    return false;
}

static int compare_names(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static bool ends_with(const char *name, const char *suffix)
{
    size_t n = strlen(name), m = strlen(suffix);
    return n >= m && !strcmp(name + n - m, suffix);
}

char **golden_names(const char *family, const char *suffix)
{
    size_t count = 0;
    char **names = must(calloc(1, sizeof *names));
    DIR *dir = opendir(golden_path(family, ""));
    for (struct dirent *e; dir && (e = readdir(dir));) {
        if (e->d_name[0] == '.' || !ends_with(e->d_name, suffix))
            continue;
        names = must(realloc(names, (count + 2) * sizeof *names));
        names[count++] = must(strdup(e->d_name));
        names[count] = NULL;
    }
    if (dir)
        closedir(dir);
    qsort(names, count, sizeof *names, compare_names);
    return names;
}

void golden_free_names(char **names)
{
    for (char **name = names; *name; name++)
        free(*name);
    free(names);
}

/* ---- safetensors files ---- */

struct golden_file {
    fp8_context *ctx;
    fp8_st_header header;
    char *data;
    golden_tensor *tensors; /* [header.count] */
};

static golden_tensor view_of(const golden_file *f, int64_t i)
{
    const fp8_st_entry *e = &f->header.entries[i];
    golden_tensor t = {.name = f->header.names + e->name, .bytes = e->end - e->begin};
    if (e->ndim > FP8_MAX_DIMS)
        die(t.name, "too many dimensions");
    t.view.data = f->data + e->begin;
    t.view.dtype = (fp8_dtype)e->dtype;
    t.view.ndim = e->ndim;
    t.elements = 1;
    for (int d = e->ndim; d-- > 0;) {
        t.view.shape[d] = f->header.shapes[e->shape + (uint32_t)d];
        t.view.stride[d] = t.elements;
        t.elements *= t.view.shape[d];
    }
    return t;
}

golden_file *golden_load(const char *family, const char *file)
{
    const char *path = golden_path(family, file);
    fp8_error err;
    int fd;
    fp8_status status = fp8_open_regular(path, &fd, NULL, &err);
    if (status == FP8_E_NOT_FOUND)
        return NULL;
    golden_file *f = must(calloc(1, sizeof *f));
    if (status != FP8_OK || fp8_context_create(NULL, &f->ctx, &err) != FP8_OK ||
        fp8_st_read(f->ctx, fd, path, &f->header, &err) != FP8_OK)
        die(path, err.msg);
    f->data = must(malloc(f->header.data_bytes + 1));
    if (fp8_pread_all(fd, f->data, f->header.data_bytes, f->header.data_offset, path, &err))
        die(path, err.msg);
    close(fd);
    f->tensors = must(calloc((size_t)f->header.count + 1, sizeof *f->tensors));
    for (int64_t i = 0; i < f->header.count; i++)
        f->tensors[i] = view_of(f, i);
    return f;
}

int64_t golden_count(const golden_file *f)
{
    return f ? f->header.count : 0;
}

const golden_tensor *golden_at(const golden_file *f, int64_t i)
{
    return &f->tensors[i];
}

const golden_tensor *golden_find(const golden_file *f, const char *name)
{
    for (int64_t i = 0; i < golden_count(f); i++)
        if (!strcmp(f->tensors[i].name, name))
            return &f->tensors[i];
    return NULL;
}

const golden_tensor *golden_findf(const golden_file *f, const char *format, ...)
{
    char name[1024];
    va_list args;
    va_start(args, format);
    vsnprintf(name, sizeof name, format, args);
    va_end(args);
    return golden_find(f, name);
}

const char *golden_metadata(const golden_file *f)
{
    return f->header.metadata;
}

void golden_free(golden_file *f)
{
    if (!f)
        return;
    fp8_st_free(f->ctx, &f->header);
    fp8_context_free(f->ctx);
    free(f->tensors);
    free(f->data);
    free(f);
}

/* ---- tables ---- */

struct golden_table {
    char *text;   /* the file, each line and cell ended by NUL */
    char **lines; /* [rows + 1]: first cell of each line */
    int *cells;   /* [rows + 1]: cells of each line */
    int64_t rows;
};

static char *read_file(const char *path)
{
    FILE *file = fopen(path, "rb");
    if (!file && errno == ENOENT)
        return NULL;
    if (!file)
        die(path, strerror(errno));
    fseek(file, 0, SEEK_END);
    long size = ftell(file);
    rewind(file);
    char *text = must(malloc((size_t)size + 1));
    if (fread(text, 1, (size_t)size, file) != (size_t)size)
        die(path, "read failed");
    text[size] = 0;
    fclose(file);
    return text;
}

static void add_line(golden_table *t, char *line)
{
    size_t n = (size_t)t->rows + 1;
    t->lines = must(realloc(t->lines, n * sizeof *t->lines));
    t->cells = must(realloc(t->cells, n * sizeof *t->cells));
    t->lines[t->rows] = line;
    t->cells[t->rows] = 1;
    for (char *p = line; *p; p++) {
        if (*p == '\t') {
            *p = 0;
            t->cells[t->rows]++;
        }
    }
    t->rows++;
}

golden_table *golden_read_tsv(const char *family, const char *file)
{
    char *text = read_file(golden_path(family, file));
    if (!text)
        return NULL;
    golden_table *t = must(calloc(1, sizeof *t));
    t->text = text;
    for (char *line = text, *end; *line; line = end) {
        end = line + strcspn(line, "\n");
        if (*end)
            *end++ = 0;
        if (*line)
            add_line(t, line);
    }
    if (t->rows == 0)
        die(file, "the table has no header line");
    t->rows--;
    return t;
}

int64_t golden_rows(const golden_table *t)
{
    return t ? t->rows : 0;
}

static const char *nth_cell(const golden_table *t, int64_t line, int n)
{
    const char *cell = t->lines[line];
    if (n >= t->cells[line])
        return "";
    while (n-- > 0)
        cell += strlen(cell) + 1;
    return cell;
}

const char *golden_cell(const golden_table *t, int64_t i, const char *column)
{
    for (int n = 0; n < t->cells[0]; n++)
        if (!strcmp(nth_cell(t, 0, n), column))
            return nth_cell(t, i + 1, n);
    die(column, "the table has no such column");
    return NULL;
}

void golden_free_tsv(golden_table *t)
{
    if (!t)
        return;
    free(t->text);
    free(t->lines);
    free(t->cells);
    free(t);
}

/* ---- counting ---- */

typedef struct tally {
    char family[64], mode[128];
    int64_t passed, left_out, failed;
} tally;

enum { MAX_TALLIES = 1024 };
static tally tallies[MAX_TALLIES];
static int tally_count;

static tally *tally_of(const char *family, const char *mode)
{
    for (int i = 0; i < tally_count; i++)
        if (!strcmp(tallies[i].family, family) && !strcmp(tallies[i].mode, mode))
            return &tallies[i];
    if (tally_count == MAX_TALLIES)
        die(mode, "too many modes");
    tally *t = &tallies[tally_count++];
    snprintf(t->family, sizeof t->family, "%s", family);
    snprintf(t->mode, sizeof t->mode, "%s", mode);
    return t;
}

void golden_pass(const char *family, const char *mode)
{
    tally_of(family, mode)->passed++;
}

void golden_leave_out(const char *family, const char *mode)
{
    tally_of(family, mode)->left_out++;
}

void golden_fail(const char *family, const char *mode, const char *format, ...)
{
    tally *t = tally_of(family, mode);
    if (t->failed++ >= 10)
        return;
    va_list args;
    va_start(args, format);
    printf("golden %s %s: FAILED: ", family, mode);
    vprintf(format, args);
    printf("\n");
    va_end(args);
}

/* Each mode of the table must have passed as often as it says. */
static bool reaches_expected(const char *family, const char *table)
{
    golden_table *t = golden_read_tsv(family, table);
    bool ok = t != NULL;
    if (!t)
        printf("golden %s: %s is missing\n", family, golden_path(family, table));
    for (int64_t i = 0; i < golden_rows(t); i++) {
        const char *mode = golden_cell(t, i, "mode");
        long long expected = atoll(golden_cell(t, i, "passed"));
        long long passed = (long long)tally_of(family, mode)->passed;
        if (passed < expected) {
            printf("golden %s %s: passed %lld, expected %lld\n", family, mode, passed, expected);
            ok = false;
        }
    }
    golden_free_tsv(t);
    return ok;
}

bool golden_report(const char *family)
{
    return golden_report_by(family, "expected.tsv");
}

bool golden_report_by(const char *family, const char *table)
{
    bool ok = true, ran = false;
    if (is_default_dir())
        ok = reaches_expected(family, table);
    for (int i = 0; i < tally_count; i++) {
        const tally *t = &tallies[i];
        if (strcmp(t->family, family))
            continue;
        printf("golden %s %s: passed %lld, left out %lld, failed %lld\n", family, t->mode,
               (long long)t->passed, (long long)t->left_out, (long long)t->failed);
        ran = ran || t->passed > 0;
        ok = ok && t->failed == 0;
    }
    if (!ran)
        printf("golden %s: no case passed in %s\n", family, folder_of_all());
    fflush(stdout);
    return ok && ran;
}
