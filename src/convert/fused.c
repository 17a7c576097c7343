/* SPDX-License-Identifier: Apache-2.0
 *
 * fused.c - the search for the modules of a fused set in a checkpoint. */
#include "convert/fused.h"

#include <string.h>

enum { NAME_ROOM = 1024 }; /* a longer name is not one of these models' */

bool fp8_engine_fuses(const char *engine)
{
    return strcmp(engine, "transformers") != 0;
}

int fp8_fused_members(const fp8_convert *conv, int64_t item, int64_t members[FP8_FUSED_PARTS])
{
    fp8_tensor_info info = fp8_item_info(conv, item);
    if (info.name_bytes > NAME_ROOM - 64)
        return 0;
    fp8_fused part = fp8_fused_part(info.name, info.name_bytes);
    int n = 0;
    for (int32_t k = 0; part.name && k < part.count && n < FP8_FUSED_PARTS; k++) {
        char name[NAME_ROOM];
        uint64_t bytes = fp8_fused_sibling(info.name, info.name_bytes, k, name);
        int64_t found = fp8_checkpoint_index(conv->ckpt, name, bytes);
        if (found >= 0)
            members[n++] = found;
    }
    return n;
}
