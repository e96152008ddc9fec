/* tile.h - stands in front of kernels/cpu/amx/tile.h where QUIRE_EMULATE_LEVELS is on: its instructions become calls of tests/isa_emu/tiles.c. */
#ifndef QR_TESTS_ISA_EMU_TILE_H
#define QR_TESTS_ISA_EMU_TILE_H

#include_next "kernels/cpu/amx/tile.h"

#include "tests/isa_emu/tiles.h"

#undef qr_tile_configure
#undef qr_tile_release
#undef qr_tile_zero
#undef qr_tile_load
#undef qr_tile_load_past
#undef qr_tile_store
#undef qr_tile_dp
#undef qr_tile_dp_signed
#undef qr_tile_dp_unsigned
#undef qr_tile_dp_bytes

#define qr_tile_configure(config) emu_tile_configure(config)
#define qr_tile_release() emu_tile_release()
#define qr_tile_zero(t) emu_tile_zero(t)
#define qr_tile_load(t, p, stride) emu_tile_load(t, p, stride)
#define qr_tile_load_past(t, p, stride) emu_tile_load(t, p, stride)
#define qr_tile_store(t, p, stride) emu_tile_store(t, (void *)(uintptr_t)(p), stride)
#define qr_tile_dp(c, a, b) emu_tile_dp_bf16(c, a, b)
#define qr_tile_dp_signed(c, a, b) emu_tile_dp_bytes(c, a, b, true, true)
#define qr_tile_dp_unsigned(c, a, b) emu_tile_dp_bytes(c, a, b, false, true)
#define qr_tile_dp_bytes(c, a, b) emu_tile_dp_bytes(c, a, b, true, false)

#endif
