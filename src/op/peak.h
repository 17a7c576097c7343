/* SPDX-License-Identifier: Apache-2.0
 *
 * peak.h - reading memory as fast as a thread can, for fp8_machine_peak and the benchmarks. */
#ifndef FP8_OP_PEAK_H
#define FP8_OP_PEAK_H

#include <stdint.h>

/* Fetches every line of 64 bytes of memory[bytes], a multiple of 256, in four streams; returns
 * something of it, so that nothing is left out. */
uint64_t fp8_read_lines(const void *memory, int64_t bytes);

#endif
