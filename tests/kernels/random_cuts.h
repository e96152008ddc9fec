/* random_cuts.h - a table of tunables filled at random: each kind of launch left to the kernel, at an end of the range, or anywhere between. For tests. */
#ifndef QR_TESTS_KERNELS_RANDOM_CUTS_H
#define QR_TESTS_KERNELS_RANDOM_CUTS_H

#include <string.h>

#include "base/rng.h"
#include "kernels/tune.h"

static inline bool random_cuts_of(struct qr_tune_kind k)
{
    static const enum qr_dtype caches[] = {QR_F32, QR_BF16, QR_I8};
    if (k.op == QR_TUNE_LINEAR)
        return qr_dtype_multiplies((enum qr_dtype)k.type);
    return k.size == 0 && (k.type == caches[0] || k.type == caches[1] || k.type == caches[2]);
}

/* Of everything that can be launched. r NULL: all is left to the kernels. */
static inline void random_cuts(struct qr_tune *t, struct qr_rng *r)
{
    struct qr_tune_kind k = {0};
    for (k.op = 0; k.op < QR_TUNE_OPS; k.op++)
        for (k.type = 0; k.type < QR_DTYPE_COUNT; k.type++)
            for (k.bucket = 0; k.bucket < QR_TUNE_BUCKETS; k.bucket++)
                for (k.size = 0; k.size < QR_TUNE_SIZES; k.size++) {
                    if (!random_cuts_of(k))
                        continue;
                    const uint32_t how = r ? qr_rng_below(r, 4) : 0;
                    qr_tune_set(t, k, how == 0 ? 0 : how == 1 ? QR_TUNE_ITEMS_MAX : 1 + (int32_t)qr_rng_below(r, how == 2 ? 6 : QR_TUNE_ITEMS_MAX));
                }
}

#endif
