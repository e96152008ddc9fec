/* ahead.h - what a device draws itself: what it is told, and what came of it, a step late.
 *
 * On a device that has the kernel `sample`, a step is launched before the ids of the step before it are known: they stay on the device, where the next step's
 * embedding reads them, and the host sees them while that step computes. Until then an unknown id is -1 - j among a sequence's ids: what row j of the last
 * launch draws. Two flights, then: the one that is being made or was launched last, and the one before it. Engine thread only. */
#ifndef QR_ENGINE_AHEAD_H
#define QR_ENGINE_AHEAD_H

#include "engine/lower.h"
#include "engine/masks.h"
#include "engine/predict.h"
#include "kernels/sample.h"
#include "model/model.h"

/* A step in flight. */
struct qr_flight {
    bool launched;                    /* and not landed */
    bool details;                     /* log-probabilities are among its results */
    struct qr_row *row;               /* owned [rows_max] what its rows of logits are for */
    bool *dropped;                    /* owned [rows_max] whose sequence has ended since: the result is dropped, and its request is gone */
    struct qr_drawn *drawn;           /* owned [rows_max] where results come; a device's pinned memory */
    struct qr_drawn_detail *detail;   /* owned [rows_max], pinned */
    float *hidden;                    /* owned [rows_max][n_embd], pinned: rows as they left the last norm */
    int32_t n;
    struct qr_step_size size;         /* of its plan */
    int64_t started_us;
};

struct qr_ahead {
    struct qr_backend *be;                /* borrowed; NULL: the host draws, and nothing here is used */
    const struct qr_model_config *model;  /* borrowed */
    struct qr_flight flight[QR_MARKS];    /* by its number of the device's marks */
    int32_t next;                         /* the flight that is made next; the other one is the last */
    struct qr_drawn *drawn;               /* owned, kernels' memory [rows_max] */
    struct qr_drawn_detail *detail;       /* owned, kernels' memory [rows_max] */
    struct qr_draw_row *row;              /* owned [rows_max] of the flight that is made */
    struct qr_logit_change *change;       /* owned [changes_max] of that flight; grows for a step that changes more logits than any before */
    int32_t n_changes, changes_max;
    struct qr_masks *masks;               /* borrowed: of the flight that is made, also those of rows with a list of ids */
    uint32_t *allowed;                    /* owned, kernels' memory [masks->n_max][masks->n_words] where they go */
    struct qr_tensor logits;              /* of that flight */
    int32_t *met;                         /* owned [n_vocab] 1 + where an id is among the changes of a row; all 0 between rows */
    int64_t landed_us;                    /* when the last step's results had been told */
    int64_t awaited_ns;                   /* when its wait ended */
};

/* Whether this device draws: then qr_ahead_init may be called. */
bool qr_ahead_can(const struct qr_backend *be, const struct qr_model_config *model);
void qr_ahead_init(struct qr_ahead *a, struct qr_backend *be, const struct qr_model_config *model, struct qr_masks *masks, int32_t rows_max);
void qr_ahead_release(struct qr_ahead *a); /* also of a zeroed one. Before the backend is closed */

/* The flight that is made next has rows [0, n): what its sampling is told, to go along with the batch. Draws of row i are addressed -1 - i from then on. */
void qr_ahead_tell(struct qr_ahead *a, struct qr_draws *out);

/* The forward of this flight was launched: its logits will be there. What ends from now on is dropped from it, too. */
void qr_ahead_fly(struct qr_ahead *a, const struct qr_tensor *logits);

/* Behind that forward, of x->batch, whose arrays are placed on the device, and before any other: draws, from what masks allow as they are now, and begins to
 * fetch what came of it. Other ranks get the ids, too. */
void qr_ahead_launch(struct qr_ahead *a, struct qr_exec *x);

/* Waits for a flight's results: they are there, unless a rank is lost (qr_exec_lost). */
void qr_ahead_await(struct qr_ahead *a, struct qr_flight *f);

/* Fills in the rows of a flight that was waited for as qr_rows_compute does. Those dropped are left alone. */
void qr_ahead_land(struct qr_ahead *a, struct qr_flight *f);

/* Whether a step is in flight. */
bool qr_ahead_flies(const struct qr_ahead *a);

/* The sequence at this index has ended: what is in flight for it is dropped. */
void qr_ahead_drop(struct qr_ahead *a, int32_t index);

#endif
