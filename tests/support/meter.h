/* SPDX-License-Identifier: Apache-2.0
 *
 * meter.h - a context whose memory runs out at the Nth allocation, and which counts what is live:
 *
 *     meter_try(work, arg);     // work runs with failure at allocation 0, 1, 2 .. until it
 * succeeds
 */
#ifndef METER_H
#define METER_H

#include "base/context.h"

/* Something that allocates from ctx and frees all of it, whether it succeeds or not. */
typedef fp8_status (*meter_work)(const fp8_context *ctx, void *arg);

/* Runs work again and again, each time letting one allocation more succeed. Each run must end with
 * OK or NO_MEMORY and leave nothing allocated. Returns the number of runs. */
long meter_try(meter_work work, void *arg);

#endif
