/* many_plain.c - blocks of many rows of coded weights, a product and an addition at a time. */
#include "kernels/cpu/isa/coded/many.h"

#define MANY_TARGET

VF_FN void many_add(const bool first, vi *sum, vi w, vi x)
{
    if (first)
        *sum = VI(madd_epi16)(w, x);
    else
        add_onto_32(sum, VI(madd_epi16)(w, x));
}

#include "kernels/cpu/isa/coded/many_blocks.h"

const struct many_ways qr_avx2_many_plain = MANY_TABLE;
