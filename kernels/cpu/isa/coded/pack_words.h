/* pack_words.h - the levels that have kernels/pack_words.h. Inside kernels/cpu only. */
#ifndef QR_KERNELS_CPU_ISA_CODED_PACK_WORDS_H
#define QR_KERNELS_CPU_ISA_CODED_PACK_WORDS_H

#include "kernels/pack_words.h"

qr_pack_words_fn qr_avx2_pack_words, qr_avx512_pack_words, qr_amx_pack_words;
qr_pack_sorted_fn qr_avx2_pack_sorted, qr_avx512_pack_sorted, qr_amx_pack_sorted;
qr_pack_taken_fn qr_avx2_pack_taken, qr_avx512_pack_taken, qr_amx_pack_taken;

#endif
