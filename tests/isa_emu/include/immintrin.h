/* immintrin.h - stands in front of the compiler's own in files of the levels avx512 and amx where QUIRE_EMULATE_LEVELS
 * is on: 512-bit vectors on a processor that has AVX2 and nothing more. Tests only. tests/isa_emu/names.h says what is
 * emulated, docs/testing.md how it is used.
 *
 * An intrinsic that is used and not emulated is a compiler's error ("target specific option mismatch"): it needs a line in names.h and a function in
 * halves.h (the same operation on both halves) or lanes.h (what crosses them, what is new), and a row in test_isa_emu.c. */
#ifndef QR_TESTS_ISA_EMU_IMMINTRIN_H
#define QR_TESTS_ISA_EMU_IMMINTRIN_H

#include_next <immintrin.h>

#include "tests/isa_emu/names.h"

#include "tests/isa_emu/halves.h"
#include "tests/isa_emu/lanes.h"

/* What sources ask for before they use such instructions. */
#define __AVX512F__ 1
#define __AVX512BW__ 1
#define __AVX512VL__ 1
#define __AVX512DQ__ 1
#define __AVX512VNNI__ 1
#define __AVX512VBMI__ 1
#define __AVX512BF16__ 1
#define __builtin_cpu_supports(feature) 1

#endif
