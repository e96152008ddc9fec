/* gemm_vnni.c - blocks of many rows of coded weights where the processor has AVX-VNNI: vpdpwssd multiplies a pair and adds it, which are two of three
 * instructions otherwise. Sums are exact, so the bits are those of gemm_plain.c. */
#include <stdatomic.h>

#include "kernels/cpu/detect.h"
#include "kernels/cpu/isa/coded/gemm.h"

#ifdef QUIRE_EMULATE_LEVELS
#define GEMM_TARGET
#else
#define GEMM_TARGET __attribute__((target("avxvnni")))
#endif

GEMM_TARGET VF_FN void gemm_add(const bool first, vi *sum, vi w, vi x)
{
#ifdef QUIRE_EMULATE_LEVELS
    *sum = first ? VI(madd_epi16)(w, x) : VI(add_epi32)(*sum, VI(madd_epi16)(w, x));
#else
    *sum = first ? VI(madd_epi16)(w, x) : _mm256_dpwssd_avx_epi32(*sum, w, x);
#endif
}

#include "kernels/cpu/isa/coded/gemm_blocks.h"

const struct gemm_ways qr_avx2_gemm_vnni = GEMM_TABLE;

bool qr_avx2_has_vnni(void)
{
    static atomic_int known; /* 1: no, 2: yes; the question is a trap under some supervisors */
    int has = atomic_load_explicit(&known, memory_order_relaxed);
    if (!has) {
        has = qr_detect_avx_vnni() ? 2 : 1;
        atomic_store_explicit(&known, has, memory_order_relaxed);
    }
    return has == 2;
}

const struct gemm_ways *qr_avx2_gemm_ways(void)
{
    return qr_avx2_has_vnni() ? &qr_avx2_gemm_vnni : &qr_avx2_gemm_plain;
}
