/* detect.h - which instruction sets this processor and this kernel let us use. Inside kernels/ only; no state: asked anew each time. */
#ifndef QR_KERNELS_CPU_DETECT_H
#define QR_KERNELS_CPU_DETECT_H

#include <stdbool.h>

/* Each needs the instructions (cpuid) and the operating system's saving of their registers (xgetbv). A supervisor that hides one of
 * the two (valgrind knows no AVX-512) thereby selects a lower level. */
bool qr_detect_avx2(void);   /* AVX2, FMA, F16C */
bool qr_detect_avx_vnni(void); /* AVX-VNNI on top of it: integer products on 256 bits, of processors without AVX-512 as well */
bool qr_detect_avx512(void); /* F, BW, VL, DQ on top of AVX2 */

/* Tile registers with bf16 and int8 products, and AVX512-BF16, on top of the former. It asks Linux for the tile registers too: a process has
 * them only after it asked (again is fine), and Linux refuses while a thread has a signal stack too small for them. */
bool qr_detect_amx(void);

#endif
