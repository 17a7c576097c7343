/* SPDX-License-Identifier: Apache-2.0
 *
 * choice.c - see choice.h. */
#include "backend/cuda/choice.h"

static float time_of(const fp8_choice *c, size_t i)
{
    return c->row && i == c->measured ? 0 : c->estimate(c->device, i, c->problem);
}

size_t fp8_choice_best(const fp8_choice *c)
{
    if (c->row)
        return c->measured;
    size_t best = c->versions;
    float least_time = 0;
    for (size_t i = 0; i < c->versions; i++) {
        const float time = time_of(c, i);
        if (time >= 0 && (best == c->versions || time < least_time)) {
            best = i;
            least_time = time;
        }
    }
    return best;
}

/* How many versions can do the problem and go before version i; i past the last: all that can. */
static int64_t count_before(const fp8_choice *c, size_t i)
{
    const bool all = i >= c->versions;
    const float limit = all ? 0 : time_of(c, i);
    int64_t count = 0;
    for (size_t j = 0; j < c->versions; j++) {
        const float time = time_of(c, j);
        count += time >= 0 && (all || time < limit || (time == limit && j < i));
    }
    return count;
}

int64_t fp8_choice_count(const fp8_choice *c)
{
    return count_before(c, c->versions);
}

size_t fp8_choice_at(const fp8_choice *c, int64_t i)
{
    size_t at = 0;
    while (time_of(c, at) < 0 || count_before(c, at) != i)
        at++;
    return at;
}
