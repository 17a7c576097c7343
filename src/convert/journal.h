/* SPDX-License-Identifier: Apache-2.0
 *
 * journal.h - what is durably done, so that a run can go on after a crash. One append-only file a
 * part, DST.partial/journal.I, of records of 64 bytes in the machine's byte order:
 *
 *     BEGIN    fingerprint of options and source, part I of N
 *     NAN      item, element: the scan found NaN or infinity     SCANNED  the scan is complete
 *     ITEMS    the bytes of items a to a + b are on disk
 *     PART     every item of this part is
 *     PUBLISH  device and inode of files/, which is about to become DST
 *
 * Each ends with an xxHash3 of the rest; reading stops at the first record that does not fit, and
 * what follows is cut off. A record is written only after the data that it speaks of was synced.
 * Beside it stats.I holds the statistics of item i at i * sizeof(fp8_tensor_stats). */
#ifndef FP8_CONVERT_JOURNAL_H
#define FP8_CONVERT_JOURNAL_H

#include "convert/convert.h"
#include "convert/stats.h"

typedef enum fp8_record_kind {
    FP8_RECORD_BEGIN = 1,
    FP8_RECORD_NAN = 2,
    FP8_RECORD_SCANNED = 3,
    FP8_RECORD_ITEMS = 4,
    FP8_RECORD_PART = 5,
    FP8_RECORD_PUBLISH = 6,
} fp8_record_kind;

typedef struct fp8_record {
    uint32_t kind;
    uint32_t reserved;
    uint64_t a, b, c, d;
    uint64_t unused[2];
    uint64_t check; /* XXH3_64bits of the bytes before */
} fp8_record;

typedef struct fp8_journal {
    int fd, stats_fd; /* -1 = not open */
    uint64_t bytes;   /* of whole records */
    bool scanned, part_done, publishing;
    uint64_t device, inode; /* of PUBLISH */
    char *path;
} fp8_journal;

/* Called for each NAN and ITEMS record of a journal that is opened. */
typedef fp8_status (*fp8_record_fn)(void *user, const fp8_record *record, fp8_error *err);

/* Opens part `part`'s (0-based) journal of conv->partial for appending, makes it if `create`, and
 * locks it. Errors: NOT_FOUND (without create), MISMATCH (another fingerprint), STATE (another
 * process has it), IO, NO_MEMORY. */
fp8_status fp8_journal_open(fp8_convert *conv, int32_t part, bool create, fp8_journal *out,
                            fp8_record_fn fn, void *user, fp8_error *err);
/* The same for reading only, without the lock. */
fp8_status fp8_journal_read(fp8_convert *conv, int32_t part, fp8_journal *out, fp8_error *err);
/* Whether a folder is the DST.partial of a conversion: a journal in it begins as all do. */
bool fp8_journal_is_in(const char *directory);
/* STATE if a process is at work in a DST.partial: it holds the lock of a journal there. */
fp8_status fp8_journal_check_free(const char *directory, fp8_error *err);
void fp8_journal_close(const fp8_context *ctx, fp8_journal *journal);

/* Appends n records and syncs them. */
fp8_status fp8_journal_append(fp8_journal *journal, fp8_record *records, int64_t n, fp8_error *err);

/* Statistics of an item, written before its ITEMS record. */
fp8_status fp8_journal_put_stats(fp8_journal *journal, int64_t item, const fp8_tensor_stats *stats,
                                 fp8_error *err);
fp8_status fp8_journal_sync_stats(fp8_journal *journal, fp8_error *err);
fp8_status fp8_journal_get_stats(const fp8_journal *journal, int64_t item, fp8_tensor_stats *out,
                                 fp8_error *err);

/* XXH3-128 of everything that decides the output's bytes, into conv->fingerprint. */
fp8_status fp8_fingerprint(fp8_convert *conv, fp8_error *err);

#endif
