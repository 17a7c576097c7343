/* SPDX-License-Identifier: Apache-2.0
 *
 * golden.h - what every test over golden vectors uses. Vectors are files made by other
 * implementations: safetensors and tsv files in <folder>/<family>. The folder is FP8_GOLDEN_DIR
 * (default tests/golden); a test runs whatever cases stand in the files, so that other vectors of
 * the same form can be run unchanged:
 *
 *     golden_file *f = golden_load("numeric", "decode.safetensors");
 *     const golden_tensor *t = golden_find(f, "e4m3fn.decode");
 *     golden_check("numeric", "e4m3fn decode", same(t), "code 0x%02x", bad);
 *     golden_free(f);
 *     ...
 *     assert_true(golden_report("numeric"));
 *
 * One thread. A file that is there but broken ends the program: the vectors are ours. */
#ifndef GOLDEN_H
#define GOLDEN_H

#include "fp8.h"

#include <stdbool.h>
#include <stdio.h>

/* "<folder>/<family>/<file>" in static storage that the next four calls leave alone. */
const char *golden_path(const char *family, const char *file);
/* Whether the family's folder is there; a line says so if it is not, for its test to be skipped. An
 * empty one is there, and its test fails. */
bool golden_has(const char *family);
/* The files of the family's folder whose names end in `suffix`, sorted; NULL-terminated. Free with
 * golden_free_names. */
char **golden_names(const char *family, const char *suffix);
void golden_free_names(char **names);

/* ---- safetensors files, whole in memory ---- */

typedef struct golden_tensor {
    const char *name;
    fp8_tensor view; /* contiguous; ndim is that of the file, at most FP8_MAX_DIMS */
    int64_t elements;
    uint64_t bytes;
} golden_tensor;

typedef struct golden_file golden_file;

/* NULL if the file is not there. */
golden_file *golden_load(const char *family, const char *file);
int64_t golden_count(const golden_file *f);
/* Tensor i, in the order of the data. */
const golden_tensor *golden_at(const golden_file *f, int64_t i);
/* NULL if there is no tensor of that name, or no file. */
const golden_tensor *golden_find(const golden_file *f, const char *name);
/* The same with the name printed; convenient for "%s/%s/codes". */
const golden_tensor *golden_findf(const golden_file *f, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Text of the file's __metadata__ object, NULL if it has none. */
const char *golden_metadata(const golden_file *f);
/* NULL is a no-op. */
void golden_free(golden_file *f);

/* ---- tables: a line of column names, then lines of cells, one tab between ---- */

typedef struct golden_table golden_table;

/* NULL if the file is not there. */
golden_table *golden_read_tsv(const char *family, const char *file);
int64_t golden_rows(const golden_table *t);
/* The cell of row i (0-based, the header line not counted); "" if the line ends before it. A column
 * that does not exist ends the program. */
const char *golden_cell(const golden_table *t, int64_t i, const char *column);
/* NULL is a no-op. */
void golden_free_tsv(golden_table *t);

/* ---- counting ---- */

/* A case of (family, mode) that passed, or was left out because its original is defective there. */
void golden_pass(const char *family, const char *mode);
void golden_leave_out(const char *family, const char *mode);
/* A case that failed, with words; the first ten of a mode are printed. */
void golden_fail(const char *family, const char *mode, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/* passes or fails. */
#define golden_check(family, mode, ok, ...) \
    ((ok) ? golden_pass(family, mode) : golden_fail(family, mode, __VA_ARGS__))

/* Prints "golden <family> <mode>: passed N, left out N, failed N" for each mode. False if a case
 * failed, if nothing ran, or, in the default folder, if a mode of <family>/expected.tsv (mode,
 * passed) has passed fewer cases than it says. */
bool golden_report(const char *family);
/* The same with another table of expected counts: a second test over one family. */
bool golden_report_by(const char *family, const char *table);

#endif
