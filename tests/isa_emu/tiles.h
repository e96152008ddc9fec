/* tiles.h - the tile registers of AMX in memory, one set for each thread, for processors that have none. Tests only.
 *
 * Each function is an instruction (Intel SDM volume 2; kernels/cpu/amx/tile.h states the arithmetic of bf16). Where the processor would raise an exception -
 * tiles that are not configured, a configuration that palette 1 does not allow, a product of tiles that do not fit each other - the process ends with a
 * line that says which. Memory is read and written row by row, as far as the tile reaches, so a sanitizer sees what goes beyond an array. */
#ifndef QR_TESTS_ISA_EMU_TILES_H
#define QR_TESTS_ISA_EMU_TILES_H

#include <stdbool.h>
#include <stdint.h>

void emu_tile_configure(const void *config); /* ldtilecfg: 64 bytes */
void emu_tile_release(void);
void emu_tile_zero(int t);
void emu_tile_load(int t, const void *p, int64_t stride); /* bytes from row to row */
void emu_tile_store(int t, void *p, int64_t stride);
void emu_tile_dp_bf16(int c, int a, int b); /* tdpbf16ps: c += a b; all 16 columns of pairs */

/* tdpbssd, tdpbusd, tdpbsud: quadruples of bytes of a, signed or not, times those of b. */
void emu_tile_dp_bytes(int c, int a, int b, bool a_signed, bool b_signed);

#endif
