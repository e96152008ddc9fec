/* coded_gemm.c - level avx512 multiplies coded weights as avx2 does (isa/coded/q16.h), and these are its blocks of
 * many rows where the processor has AVX512-VNNI: a pair of inputs of a panel's 16 outputs is one vector, and vpdpwssd
 * multiplies and adds it. Sums are exact, so the bits are avx2's. */
#include "kernels/cpu/isa/coded/gemm_parts.h"
#include "kernels/cpu/isa/quant/vectors.h"

#ifdef __AVX512VNNI__
#define GEMM_TARGET
#else
#define GEMM_TARGET __attribute__((target("avx512vnni")))
#endif

GEMM_TARGET VF_FN void gemm_add(const bool first, vi *sum, vi w, vi x)
{
    *sum = first ? _mm512_madd_epi16(w, x) : _mm512_dpwssd_epi32(*sum, w, x);
}

#include "kernels/cpu/isa/coded/gemm_blocks.h"

const struct gemm_ways *qr_avx512_gemm_ways(void)
{
    static const struct gemm_ways ways = GEMM_TABLE;
    return __builtin_cpu_supports("avx512vnni") ? &ways : NULL;
}
