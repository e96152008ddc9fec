/* rows.h - a step's rows of logits become tokens and log-probabilities, on the worker pool. What a row gets is a function of that row, its
 * request and its own sequence, so neither the number of threads nor the other rows can be seen in it.
 */
#ifndef QR_ENGINE_ROWS_H
#define QR_ENGINE_ROWS_H

#include "engine/sampler.h"
#include "kernels/backend.h"

enum qr_row_kind {
    QR_ROW_DRAW,   /* the next token */
    QR_ROW_HIDDEN, /* part of an embedding: nothing to compute, at and hidden instead of logits */
    QR_ROW_PROMPT, /* the log-probability of the next prompt token */
    QR_ROW_END,    /* the prompt is complete and no token is wanted: nothing to compute */
};

struct qr_guide; /* guide.h */

struct qr_row {
    enum qr_row_kind kind;
    int32_t index, choice;                   /* slot; choice of the request */
    float scale;                             /* qr_row_scale of it */
    bool narrow;                             /* little is read of it (qr_row_narrow) */
    const struct qr_request *req;            /* borrowed */
    const struct qr_seq *seq;                /* borrowed: its ids are read, nothing is changed */
    struct qr_guide *guide;                  /* borrowed: what its choice may say */
    uint64_t tenure;                         /* of a sequence that decodes (qr_seq.tenure): while it is the same, all above stays. 0: it is not said */
    int32_t at;                              /* row of the step's logits; HIDDEN: of its hidden rows */
    int32_t pos;                             /* of the token that the logits came from */
    uint32_t *mask;                          /* borrowed from the step's masks: the ids that may be drawn; NULL: qr_sampling says which */
    int32_t only;                            /* with a mask: the only id that it allows; < 0: there are more */
    int32_t guess;                           /* DRAW: behind so many guesses; what comes of the row counts if they were right */
    bool failed;                             /* there is no mask, and no token (qr_masks_error) */
    bool first;                              /* DRAW, END, HIDDEN: the prompt has just been computed, for the first time */
    bool finite;                             /* DRAW: false when the logit of the drawn id is not finite */
    const float *hidden;                     /* borrowed from the step arena, or from where a device's came [D]: HIDDEN */
    struct qr_logits logits;                 /* borrowed from the step arena; penalties are written into it */
    struct qr_token_logprob token;           /* DRAW: all but the id only when log-probabilities are wanted, else 0 as far as n_top */
};

struct qr_rows {
    struct qr_backend *be;                   /* borrowed */
    const struct qr_model_config *model;     /* borrowed */
    struct qr_sampler *sampler;              /* owned [be->n_threads] scratch, one for each worker */
    struct qr_row *row;                      /* owned [rows_max] */
    float *scale;                            /* owned [rows_max] what the head's product sums each row of logits with (qr_batch.logit_scale) */
    int32_t n, rows_max;
};

void qr_rows_init(struct qr_rows *r, struct qr_backend *be, const struct qr_model_config *model, int32_t rows_max);
void qr_rows_release(struct qr_rows *r); /* also of a zeroed one */

/* The ids that end this request, which min_tokens forbids; returns their number. */
int32_t qr_row_end_ids(const struct qr_model_config *mc, const struct qr_sampling *p, int32_t out[QR_EOS_MAX + QR_STOP_IDS_MAX]);

/* What the head's product has to sum for this row. */
float qr_row_scale(const struct qr_rows *r, const struct qr_row *row);

/* Whether a row of this kind reads no more than one stretch or a few, as a rule: greedy and top_k, without log-probabilities, or nothing at all. */
bool qr_row_narrow(const struct qr_row *row);

/* Fills in every row[0..n): token and finite, or the entry pos + 1 of the request's prompt_logprobs. Engine thread, between forwards. */
void qr_rows_compute(struct qr_rows *r);

#endif
