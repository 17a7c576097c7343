/* SPDX-License-Identifier: Apache-2.0
 *
 * meter.c - every allocation fails once. */
#include "support/meter.h"

#include "support/counted_alloc.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
/* cmocka.h needs the three above. */
#include <cmocka.h>

long meter_try(meter_work work, void *arg)
{
    for (long n = 1;; n++) {
        counted_alloc a = {.fail_at = n};
        fp8_context *ctx = counted_context(&a);
        assert_non_null(ctx);
        fp8_status status = work(ctx, arg);
        fp8_context_free(ctx);
        assert_int_equal(a.live, 0);
        assert_int_equal(status, a.calls < n ? FP8_OK : FP8_E_NO_MEMORY);
        if (a.calls < n)
            return n;
    }
}
