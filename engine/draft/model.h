/* model.h - a second, smaller model that guesses what decoding sequences will say next (draft.h): --draft-model.
 *
 * Its keys and values lie in a memory of its own under the same block numbers as the model's, so that block tables, the prefix cache and preemption serve both.
 * It computes late: rows of a sequence are computed when guesses of that are wanted, with those before them that are missing, up to a number of rows a step.
 * Of each block it knows how many rows hold what the block is for; whatever writes blocks anew says so (qr_draft_model_follow). A row that is wrong in spite of
 * that costs a guess, never a byte. Guesses beyond the blocks that a sequence has lie in blocks of the draft model's own.
 * Engine thread only; on rank 0 alone; on devices whose memory is the host's. Nothing is allocated after qr_draft_model_begin.
 */
#ifndef QR_ENGINE_DRAFT_MODEL_H
#define QR_ENGINE_DRAFT_MODEL_H

#include "engine/draft/draft.h"

struct qr_draft_model; /* opaque */

/* What config->draft_model takes, without loading it. `like`: options of the model that it guesses for, whose types it takes over. Errors: those of
 * qr_model_plan; QR_E_USAGE, QR_E_UNSUPPORTED for what it cannot be combined with. */
int qr_draft_model_size(struct qr_draft_size *out, const struct qr_engine_config *config, struct qr_backend *be, const struct qr_model_options *like,
                        struct qr_err *err);

/* Records of its rows, beside that. */
int64_t qr_draft_model_table_bytes(const struct qr_engine_limits *limits);

/* Whether its vocabulary is the model's. QR_E_USAGE names the first id that differs. */
int qr_draft_model_check(const struct qr_engine_config *config, const struct qr_tokenizer *model, struct qr_err *err);

/* Loads it, checked. Errors: those of qr_model_open, too. */
int qr_draft_model_open(struct qr_draft_model **out, const struct qr_engine_config *config, struct qr_backend *be, const struct qr_model_options *like,
                        const struct qr_tokenizer *model, struct qr_err *err);

/* Takes its cache, as large as planned, for sequences at indexes below n_slots. Ids of guesses are below limits->vocab. */
void qr_draft_model_begin(struct qr_draft_model *m, const struct qr_engine_limits *limits, int32_t n_slots);
void qr_draft_model_close(struct qr_draft_model *m); /* NULL is fine. Before the backend is closed */

/* This plan is about to be computed: blocks are copied, and what it writes anew is unknown here. */
void qr_draft_model_follow(struct qr_draft_model *m, const struct qr_plan *plan, const struct qr_sched *sched);

/* What the next step is expected to take as it is, and a row that checks a guess beside it. */
struct qr_draft_price {
    double step_us; /* 0: nothing is known, and guesses are worth it */
    double row_us;
    int32_t n_seqs; /* sequences that get a token of it, >= 1 */
};

/* Guesses for those of ask[0..n) that have room, as many as are worth their time: where there are none yet, and in place of d's where the first is less likely
 * than those of the draft model are. d NULL: nothing is to be told. Sequences are as they will be planned next. */
void qr_draft_model_fill(struct qr_draft_model *m, struct qr_draft *d, struct qr_draft_ask *ask, int32_t n, const struct qr_draft_price *price);

/* For tests and onlookers: rows of its own that it has computed, in how many forwards; guesses of which is known what came, and how many were right. */
struct qr_draft_model_stats {
    int64_t n_rows, n_forwards, n_judged, n_right;
};
void qr_draft_model_stats(const struct qr_draft_model *m, struct qr_draft_model_stats *out);

#endif
