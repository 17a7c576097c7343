/* SPDX-License-Identifier: Apache-2.0
 *
 * seal.c - writes and compares the attribute. */
#define _GNU_SOURCE
#include "convert/seal.h"

#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>

static const char attribute[] = "user.fp8.run";

typedef struct fp8_seal {
    uint64_t fingerprint[2];
    uint64_t seconds, nanoseconds; /* of the folder's mtime, which a rename of it does not change */
} fp8_seal;

static bool seal_of(const fp8_convert *conv, const char *folder, fp8_seal *out)
{
    struct stat info;
    if (lstat(folder, &info) || !S_ISDIR(info.st_mode))
        return false;
    *out = (fp8_seal){.fingerprint = {conv->fingerprint[0], conv->fingerprint[1]},
                      .seconds = (uint64_t)info.st_mtim.tv_sec,
                      .nanoseconds = (uint64_t)info.st_mtim.tv_nsec};
    return true;
}

void fp8_seal_put(const fp8_convert *conv)
{
    fp8_seal seal;
    if (seal_of(conv, conv->files, &seal)) /* without a seal the output is no less whole */
        (void)setxattr(conv->files, attribute, &seal, sizeof seal, 0);
}

bool fp8_seal_fits(const fp8_convert *conv)
{
    fp8_seal seal, found;
    return seal_of(conv, conv->dst, &seal) &&
           lgetxattr(conv->dst, attribute, &found, sizeof found) == (ssize_t)sizeof found &&
           !memcmp(&seal, &found, sizeof seal);
}
