/* gemm_plain.c - blocks of many rows of coded weights, a product and an addition at a time. */
#include "kernels/cpu/isa/coded/gemm.h"

#define GEMM_TARGET

VF_FN void gemm_add(const bool first, vi *sum, vi w, vi x)
{
    if (first)
        *sum = VI(madd_epi16)(w, x);
    else
        add_onto_32(sum, VI(madd_epi16)(w, x));
}

#include "kernels/cpu/isa/coded/gemm_blocks.h"

const struct gemm_ways qr_avx2_gemm_plain = GEMM_TABLE;
