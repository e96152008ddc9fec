/* masks.h - which ids a step's rows may draw, where a grammar or the end of a thinking decides: a bit for each id.
 *
 * Masks are made from what the choices have said, not from logits, so they are filled while a device computes the forward. Rows of one grammar are filled by
 * one worker, as its memo belongs to one thread at a time; those of different grammars by any. A mask says everything: min_tokens (ignore_eos: no end at all),
 * bad_words and allowed_token_ids are taken out of what the grammar allows, as long as anything is left, and do not count where nothing would be.
 * Inside engine/ only. Memory is allocated at opening.
 */
#ifndef QR_ENGINE_MASKS_H
#define QR_ENGINE_MASKS_H

#include "engine/rows.h"

struct qr_masks {
    struct qr_backend *be;               /* borrowed */
    const struct qr_model_config *model; /* borrowed */
    uint32_t *word;                      /* owned [n_max][n_words] those of the step that was made last */
    uint32_t *room;                      /* owned [threads][n_words] a mask before ids are taken out */
    struct qr_err *err;                  /* owned [n_max] why there is no mask, until the next are filled */
    struct qr_row **row;                 /* owned [n_max] what is filled, */
    int32_t *next;                       /* owned [n_max] the next of the same grammar, -1: none; */
    struct qr_mask_group *group;         /* owned [n_max] one for each grammar */
    int32_t n_words, n_max;              /* n_max: a mask for each row of logits that is drawn from */
    int32_t n;                           /* masks that the step has */
};

void qr_masks_init(struct qr_masks *m, struct qr_backend *be, const struct qr_model_config *model, int32_t n_max);
void qr_masks_release(struct qr_masks *m); /* also of a zeroed one */
int64_t qr_masks_bytes(int32_t n_vocab, int32_t n_max, int32_t n_threads);

/* A step's rows: those that need a mask get one, still to be filled; returns their number. late: a token of theirs may have been drawn that is not known. */
int32_t qr_masks_begin(struct qr_masks *m, struct qr_row *row, int32_t n, bool late);

/* One more mask of this step, the caller's to fill. */
uint32_t *qr_masks_next(struct qr_masks *m);

/* Fills those of begin, when all tokens before are known. dropped [n], or NULL: rows of these have no request any more, their masks allow everything. A row
 * without a mask, as the grammar has none, is marked (qr_row.failed). */
void qr_masks_fill(struct qr_masks *m, struct qr_row *row, int32_t n, const bool *dropped);

/* Why a row failed. */
const struct qr_err *qr_masks_error(const struct qr_masks *m, const struct qr_row *row);

#endif
