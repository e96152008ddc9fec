#include "bench/ways.h"

#include <stdio.h>

#include "base/assert.h"

void qr_bench_ways_print(const struct qr_backend *be, bool json)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(be->mem != NULL);
    const struct qr_backend_ways w = qr_backend_ways(be);
    if (be->mem->host)
        return;
    if (json)
        printf("{\"case\":\"ways\",\"by_library\":%lld,\"by_wgmma\":%lld,\"fp8\":%lld,\"fp8_own\":%lld,\"bf16_kinds\":%d,\"bf16_unlike\":%d}\n",
               (long long)w.by_library, (long long)w.by_wgmma, (long long)w.fp8, (long long)w.fp8_own, (int)w.bf16, (int)w.bf16_unlike);
    else if (w.by_wgmma == 0)
        printf("attention: no wgmma kernel has run\n");
    if (!json && w.fp8_own > 0)
        printf("FP8 falls back to own kernels: %lld of %lld products of many rows\n", (long long)w.fp8_own, (long long)w.fp8);
    if (!json && w.bf16_unlike > 0)
        printf("no cuBLASLt algorithm has own's bits: %d of %d kinds of bf16 products; --deterministic takes own there, and is slower\n", (int)w.bf16_unlike,
               (int)w.bf16);
    fflush(stdout);
}
