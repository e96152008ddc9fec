/* ranks.h - one step on several ranks (tensor parallel). Rank 0 gets the steps: it sends what it is about to compute to the others, all compute
 * their shares (share.h) of the same step, sum behind every matrix that was cut along its inputs, and rank 0 collects logits.
 *
 * On devices what they compute is added and collected by the devices, in order with the rest of a step (comm/device_comm.h), and ids that rank 0's device
 * draws go to the others in the same way; the comm carries what the host says alone.
 *
 * An error of the comm in the middle of a pass is kept until qr_exec_lost is called: verbs return nothing. From then on
 * nothing is sent, and a pass computes numbers without meaning. Used by the thread that owns the exec; the comm is that thread's, too.
 */
#ifndef QR_MODEL_RANKS_H
#define QR_MODEL_RANKS_H

#include "model/model.h"

/* Behind qr_exec_init, on every rank alike: x takes part. x->lora is set before it where pieces of adapters will be sent. Nothing where the model is one
 * rank's. qr_exec_release lets the others go, on rank 0. */
void qr_exec_join(struct qr_exec *x);

/* Whether a rank is lost: died, or gave up. Then *err says which, and why. */
bool qr_exec_lost(const struct qr_exec *x, struct qr_err *err);

/* Rank 0, on devices that draw: the step that was launched draws n ids into `drawn` (kernels' memory), which a later step's ids may name (qr_batch.drawn). */
void qr_exec_share_drawn(struct qr_exec *x, struct qr_drawn *drawn, int32_t n);

/* Rank 0, between steps: p->n bytes of another rank's slot for an adapter go there (lora.h, qr_lora_pack). Who follows with x->lora takes them. */
struct qr_lora_piece;
void qr_exec_send_piece(struct qr_exec *x, const struct qr_lora_piece *p, const uint8_t *bytes);

/* Rank 0, while there is nothing to compute: asks whether all are there, when nothing was sent for `idle_us`. */
void qr_exec_ping(struct qr_exec *x, int64_t idle_us);

/* The other ranks: compute what rank 0 does until it lets them go (0), or one of them is lost (its error). */
int qr_exec_follow(struct qr_exec *x, struct qr_err *err);

/* All ranks: values [n] of rank 0 become everybody's; what they must agree on before there are steps. comm NULL: nothing to do. */
int qr_ranks_agree(struct qr_comm *comm, int64_t *values, int32_t n, struct qr_err *err);

/* ---- inside model/ ---- */

void qr_ranks_send(struct qr_exec *x, const struct qr_batch *b);
void qr_ranks_note_copy(struct qr_ranks *r, int32_t src, int32_t dst); /* or a move between the cache's tiers */
void qr_ranks_release(struct qr_ranks *r); /* NULL is fine */

/* data [n] becomes the sum over ranks, on every rank. r NULL: a plan, nothing is computed. */
void qr_ranks_sum(struct qr_ranks *r, float *data, int64_t n);

/* Rows of logits [n_rows][V], or of what is known of their stretches [n_rows][ceil(V/256)]: rank 0 gets what the others have in its rows. */
void qr_ranks_collect(struct qr_ranks *r, float *logits, float *largest, float *sum, int32_t n_rows);

/* On devices: rank 0's logits [n_rows][V] get what the others have, on the way in room[n_rows * (V - its own)]; of those `room` is what they have,
 * [n_rows][own], and `logits` nothing. */
void qr_ranks_collect_packed(struct qr_ranks *r, float *logits, float *room, int32_t n_rows);

#endif
