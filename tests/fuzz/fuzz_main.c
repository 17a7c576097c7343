/* SPDX-License-Identifier: Apache-2.0
 *
 * fuzz_main.c - runs a fuzz target over files, for builds without libFuzzer: every file of the
 * directories (recursive) and every file named on the command line is one input. Nothing to run is
 * a failure. */
#include "fuzz/fuzz.h"

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>

static long runs;

static void run_file(const char *path, size_t bytes)
{
    FILE *file = fopen(path, "rb");
    uint8_t *data = malloc(bytes ? bytes : 1); /* its own block: reading past it is noticed */
    if (!file || !data || fread(data, 1, bytes, file) != bytes) {
        perror(path);
        exit(2);
    }
    fclose(file);
    LLVMFuzzerTestOneInput(data, bytes);
    free(data);
    runs++;
}

static int visit(const char *path, const struct stat *info, int type, struct FTW *where)
{
    (void)where;
    if (type == FTW_F)
        run_file(path, (size_t)info->st_size);
    return 0;
}

int main(int argc, char **argv)
{
    for (int i = 1; i < argc; i++) {
        if (nftw(argv[i], visit, 8, FTW_PHYS)) {
            perror(argv[i]);
            return 2;
        }
    }
    printf("%ld inputs\n", runs);
    return runs == 0;
}
