/* SPDX-License-Identifier: Apache-2.0
 *
 * meter.h - runs something with memory that runs out at the 1st, 2nd, 3rd .. allocation, until it
 * gets through. */
#ifndef METER_H
#define METER_H

#include "fp8.h"

/* Something that allocates from ctx and frees all of it, whether it succeeds or not. One thread. */
typedef fp8_status (*meter_work)(const fp8_context *ctx, void *arg);

/* Each run must end with NO_MEMORY, the last with OK, and leave nothing allocated. Returns the
 * number of runs. */
long meter_try(meter_work work, void *arg);

#endif
