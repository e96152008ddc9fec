/* tile.h - the tile registers of AMX as macros; tile numbers are literals. Inside this folder only.
 *
 * Written out instead of the compiler's intrinsics, because those of gcc 12 do not say that memory is read: a store before them could
 * move behind them.
 *
 * Arithmetic of tdpbf16ps (Intel SDM volume 2; 20 million random elements with normal, denormal and overflowing values agree to the bit):
 * per row and column, over the 16 pairs of k in order, one chain of fused multiply-adds for the first and one for the second number of each
 * pair, then c + (first + second). Rounding is to nearest even; denormal operands count as 0 and denormal results become 0.
 * Nothing depends on the number of rows. (vdpbf16ps adds in another order: the two cannot be mixed.) Products of bytes are sums of integers, exact.
 */
#ifndef QR_KERNELS_CPU_AMX_TILE_H
#define QR_KERNELS_CPU_AMX_TILE_H

#include <stdint.h>

#define QR_TILE_ROWS 16
#define QR_TILE_K 32 /* bf16 numbers of a row */
#define QR_TILE_ROW_BYTES 64
#define QR_TILE_BYTES 1024

struct qr_tile_config {
    uint8_t palette, start_row, reserved[14];
    uint16_t row_bytes[16];
    uint8_t rows[16];
};

#define qr_tile_configure(config) __asm__ volatile("ldtilecfg %0" ::"m"(*(config)) : "memory")
#define qr_tile_release() __asm__ volatile("tilerelease" ::: "memory")
#define qr_tile_zero(t) __asm__ volatile("tilezero %%tmm" #t ::: "memory")
#define qr_tile_load(t, p, stride) __asm__ volatile("tileloadd (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(stride)) : "memory")
/* From L2, and not to L1. */
#define qr_tile_load_past(t, p, stride) __asm__ volatile("tileloaddt1 (%0,%1,1), %%tmm" #t ::"r"(p), "r"((int64_t)(stride)) : "memory")
#define qr_tile_store(t, p, stride) __asm__ volatile("tilestored %%tmm" #t ", (%0,%1,1)" ::"r"(p), "r"((int64_t)(stride)) : "memory")
#define qr_tile_dp_signed(c, a, b) __asm__ volatile("tdpbssd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")
#define qr_tile_dp_unsigned(c, a, b) __asm__ volatile("tdpbusd %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory") /* a unsigned, b signed */
#define qr_tile_dp_bytes(c, a, b) __asm__ volatile("tdpbsud %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")    /* a signed, b unsigned */
#define qr_tile_dp(c, a, b) __asm__ volatile("tdpbf16ps %%tmm" #b ", %%tmm" #a ", %%tmm" #c ::: "memory")

#endif
