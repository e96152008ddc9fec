/* gguf_blocks.h - what the blocks of GGUF's quantized types stand for.
 *
 * Every such type stores a row in groups of 16 or 32 neighbours, each with a scale and an offset: x[i] = scale[g] code[i] + offset[g] with a code of at most 8
 * bits. Unpacking gives these three without loss, so that kernels can keep a row at its size; decoding gives the numbers themselves.
 * Source: the block layouts of ggml (ggml-common.h) as facts; tested against stored blocks and the values that its own conversion gives them.
 */
#ifndef QR_LOADER_PACK_GGUF_BLOCKS_H
#define QR_LOADER_PACK_GGUF_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/files/gguf.h"
#include "kernels/kernels.h"

#define QR_GGUF_BLOCK_MAX 256

/* What the numbers of a block are made of: x[i] = code[i] * scale + offset, and where the type has steps, group g's scale is scale * step[g] and its offset
 * offset * offset_step[g]. */
struct qr_gguf_scales {
    float scale, offset;
    int8_t step[QR_GGUF_BLOCK_MAX / 16], offset_step[QR_GGUF_BLOCK_MAX / 16];
};

/* The type that keeps all of it (kernels/dtype.h); QR_CODED for types that are not unpacked here (plain ones, and those of fewer than 2 bits or with
 * codebooks). */
enum qr_dtype qr_gguf_coded(enum qr_gguf_type type);

/* The 16 numbers that 4-bit codes of this type are taken from in the order of their index: -8 .. 7 or 0 .. 15 for even steps, IQ4's for uneven ones;
 * NULL for a type whose codes are not 4 bits wide. */
const int8_t *qr_gguf_levels(enum qr_gguf_type type);

/* MXFP4 (OCP Microscaling Formats v1.0) in whatever file: a number is the level of its E2M1 code, twice what it means, times
 * the scale of its E8M0 byte, half of 2^(e - 127); 255 is no number. */
int8_t qr_mxfp4_level(uint8_t code);
float qr_mxfp4_scale(uint8_t e);

/* One block. Requires that the type is coded; code has as many numbers as the block. */
void qr_gguf_unpack(enum qr_gguf_type type, int8_t *code, struct qr_gguf_scales *scales, const void *block);

/* n blocks one after the other, as the coded row that keeps them; of other types that keep them with groups as large, what these have. */
void qr_gguf_unpack_row(enum qr_gguf_type type, const struct qr_coded_rows *row, const void *blocks, int64_t n);

/* out [n], of any type that is unpacked here and of F32, F16, BF16.
 * Numerics: scale and offset are single products of what is stored, x one product and one sum, in f32. False: a type that cannot be decoded. */
bool qr_gguf_decode(enum qr_gguf_type type, float *out, const void *blocks, int64_t n);

#endif
