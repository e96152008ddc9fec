/* quant.h - products with quantized weights on the tile registers. Inside this folder only. */
#ifndef QR_KERNELS_CPU_AMX_QUANT_H
#define QR_KERNELS_CPU_AMX_QUANT_H

#include "kernels/kernels.h"

void qr_amx_linear_quant(struct qr_queue *q, const struct qr_linear_args *a);

#endif
