/* SPDX-License-Identifier: Apache-2.0 */
/* f8_kinds.h - how products are accumulated and scaled, and what X is. */
#pragma once
enum {
    FAST,
    PROMOTED,
    BLOCK
}; /* all of K in the tensor core; added in fp32 every 128 of K; the same times 1x128 and 128x128
      scales */
enum { CODES, BF16 }; /* e4m3 with its scales; bf16, quantized by the kernel */
