/* SPDX-License-Identifier: Apache-2.0
 *
 * groups.h - folds the rows of layers that are alike into one: names that differ only in the
 * numbers between their dots, with equal cells, become `layers.{0..60}.mlp.up_proj.weight`. Memory
 * grows with the number of different rows, not with the number of tensors. */
#ifndef FP8_CLI_GROUPS_H
#define FP8_CLI_GROUPS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define CLI_GROUP_CELLS 4 /* texts that must be equal to be folded */
#define CLI_GROUP_SLOTS 6 /* numbers in a name that may differ; further ones must be equal */

typedef struct cli_group {
    char *key; /* name with \1 for each number, then the cells, each ended by NUL */
    size_t key_bytes;
    const char *cells[CLI_GROUP_CELLS]; /* in key */
    char *name; /* for people: numbers as {least..most}, "(7 of 61)" if some of them are not in the
                   group; set by cli_groups_finish */
    int slots;
    int64_t least[CLI_GROUP_SLOTS], most[CLI_GROUP_SLOTS];
    int64_t count;
    uint64_t bytes_in, bytes_out; /* sums */
} cli_group;

typedef struct cli_groups {
    cli_group *items; /* in the order of their first rows, or sorted */
    size_t count, capacity;
    size_t *buckets; /* index + 1 by hash of the key, 0 = free */
    size_t bucket_count;
} cli_groups;

/* Adds a row; the texts are copied. false if there is no memory. Not
 * after cli_groups_finish. */
bool cli_groups_add(cli_groups *groups, const char *name, size_t name_bytes,
                    const char *const cells[CLI_GROUP_CELLS], uint64_t bytes_in,
                    uint64_t bytes_out);
/* Ends the adding: sorts the groups by name and first number, and writes their names. false if
 * there is no memory. */
bool cli_groups_finish(cli_groups *groups);
void cli_groups_free(cli_groups *groups);

#endif
