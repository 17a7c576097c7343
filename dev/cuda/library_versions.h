/* SPDX-License-Identifier: Apache-2.0
 *
 * library_versions.h - the library's fast kernels one by one, for library.cu, which is C++ and sees
 * no header of the library's inside. Links with libfp8.a. */
#pragma once
#include "../../include/fp8.h"
#ifdef __cplusplus
extern "C" {
#endif

/* Where a product lies on the device: as fp8_sm90_matrices, rows without gaps. */
typedef struct version_product {
    int m, n, k, block, scale_stride; /* of a k block of x_scales */
    const uint8_t *x, *w;
    const void *high; /* X in bf16, which is quantized by the version or before it, or NULL */
    const float *x_scales, *w_scales;
    void *y;
} version_product;

int version_count(void);
/* "large_channel_128x96_2x2"; a small one with _1 or _2, its blocks on an SM. */
void version_name(int i, char name[48]);
int version_is_fast(int i);
/* Whether the version quantizes X itself. */
int version_quantizes(int i);
/* The model's us; negative: not for this product. */
float version_estimate(const fp8_context *ctx, int i, const version_product *p);
/* The version alone: what quantizes x before it is the caller's. */
fp8_status version_launch(const fp8_context *ctx, int i, const version_product *p, void *stream,
                          fp8_error *err);

/* Where the context keeps the driver's cuLaunchKernelEx, for who wants to stand between. */
void **version_launcher(const fp8_context *ctx);

#ifdef __cplusplus
}
#endif
