/* isa.h - what the instruction-set levels have in common. Each file of this folder is compiled once per level with QR_ISA=<level>;
 * a name shared between its files goes through QR_ISA_NAME, everything else is static.
 */
#ifndef QR_KERNELS_CPU_ISA_H
#define QR_KERNELS_CPU_ISA_H

#include "kernels/kernels.h"

extern const struct qr_kernels qr_avx2_kernels;
extern const struct qr_kernels qr_avx512_kernels;

#define QR_ISA_PASTE(isa, name) qr_##isa##_##name
#define QR_ISA_EXPAND(isa, name) QR_ISA_PASTE(isa, name)
#define QR_ISA_NAME(name) QR_ISA_EXPAND(QR_ISA, name)

/* Scratch of one worker: a piece of keys and of values as f32, queries, scores and sums of a query tile (see attention.c). */
#define QR_WORKER_SCRATCH_BYTES ((size_t)1 << 20)

#endif
