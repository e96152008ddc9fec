/* step_arrays.h - inside model/ only: a batch's arrays one after the other in one piece of memory, to be sent somewhere in one go. */
#ifndef QR_MODEL_STEP_ARRAYS_H
#define QR_MODEL_STEP_ARRAYS_H

#include "kernels/batch.h"

/* Of a batch; ROWS and CHANGES are those of its draws, and last: what a step is repeated with (repeat.h) has a place of its own whatever they are. */
enum { QR_STEP_IDS, QR_STEP_POS, QR_STEP_SLOT, QR_STEP_ROW_START, QR_STEP_CTX_LEN, QR_STEP_LOGIT_ROW, QR_STEP_HIDDEN_ROW, QR_STEP_TABLE,
       QR_STEP_ADAPTERS, QR_STEP_ROWS, QR_STEP_CHANGES, QR_STEP_ARRAYS };
#define QR_STEP_ALIGN 64 /* bytes between arrays: kernels load them in vectors */

struct qr_step_layout {
    size_t at[QR_STEP_ARRAYS], n[QR_STEP_ARRAYS], total; /* bytes; total is a multiple of QR_STEP_ALIGN */
    int32_t width;                                       /* of the block table: rows are shorter there */
};

/* Entries of each row of the block table that a sequence uses. */
int32_t qr_step_table_width(const struct qr_batch *b);

/* From the batch's numbers, not its arrays. */
struct qr_step_layout qr_step_lay_out(const struct qr_batch *b, int32_t width);
void qr_step_fill(uint8_t *to, const struct qr_step_layout *l, const struct qr_batch *b);

/* The batch's arrays are those at `from`. */
void qr_step_place(struct qr_batch *b, const struct qr_step_layout *l, void *from);

#endif
