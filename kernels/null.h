/* null.h - the kernel table "null": everything is called, nothing is computed. With it a run shows what remains beside the kernels: the engine's own
 * work per step, the HTTP side. Named by isa "null" only; never the best level, never among those that tests cover.
 */
#ifndef QR_KERNELS_NULL_H
#define QR_KERNELS_NULL_H

#include "kernels/kernels.h"

extern const struct qr_kernels qr_null_kernels;

#endif
