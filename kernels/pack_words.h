/* pack_words.h - coded weights from words of a file in parts (kernels.h, struct qr_coded_words), for a loader whose threads each read a stretch of inputs of
 * all outputs, and put inputs in another order when all of them are there. Of a level, beside its kernels.
 */
#ifndef QR_KERNELS_PACK_WORDS_H
#define QR_KERNELS_PACK_WORDS_H

#include "kernels/kernels.h"

/* What linear_pack_coded makes of a source that has words, in parts that threads pack on their own and in any order: n > 0, codes of inputs
 * [first, first + n), words of which alone are read, and others asked for where the source says so; n 0, all that is no code, for which no words are read.
 * Requires  4 bits; first and n multiples of 32, row0 and n_rows of QR_LINEAR_PACKED_TOGETHER; the rest as for words and for linear_pack_coded. */
typedef void qr_pack_words_fn(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_source *rows,
                              int64_t n_rows, int64_t first, int64_t n);

/* Codes alone of rows [row0, row0 + n_rows), in place: input i gets those that input inputs[i] had. What is no code stays.
 * Requires  4 bits; n_in a multiple of 64 and of a group; row0 and n_rows of QR_LINEAR_PACKED_TOGETHER; inputs [n_in] each of 0 to n_in - 1. */
typedef void qr_pack_sorted_fn(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const int32_t *inputs,
                               int64_t n_rows);

#define QR_PACK_TAKEN_INPUTS 16384 /* at most */
#define QR_PACK_TAKEN_ROWS 128     /* at a time: fewer take as long */

/* Codes alone of rows [row0, row0 + n_rows), of which words->codes is the first one's: input i gets those that words have for input inputs[i]. Words are
 * asked for ahead: they are in no cache yet.
 * Requires  words of eight inputs; n_in of QR_PACK_TAKEN_INPUTS at most; the rest as above. */
typedef void qr_pack_taken_fn(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_words *words,
                              const int32_t *inputs, int64_t n_rows);

/* NULL: the level takes rows whole. */
qr_pack_words_fn *qr_pack_words_of(const struct qr_kernels *k);
qr_pack_sorted_fn *qr_pack_sorted_of(const struct qr_kernels *k);
qr_pack_taken_fn *qr_pack_taken_of(const struct qr_kernels *k);

/* Whether rows need not be in a cache before the level's packers take them: these ask for rows that come next while they pack others (of plain rows that become
 * half bytes, or stay bf16; of blocks where a source says so, linear_pack_coded), or go through them one after the other, as the processor follows (int8). */
bool qr_packs_ahead(const struct qr_kernels *k);

#endif
