/* train_sample.h - texts that a model in training writes: the serving forward over the weights as they are, the engine's sampler, the same draw for the same
 * (seed, position). One sequence at a time; on the trainer's thread.
 */
#ifndef QR_CLI_TRAIN_SAMPLE_H
#define QR_CLI_TRAIN_SAMPLE_H

#include "engine/sampler.h"
#include "model/alone.h"
#include "tokenizer/tokenizer.h"
#include "train/trainer.h"

struct qr_train_sampler {
    const struct qr_train_config *c; /* borrowed */
    struct qr_tokenizer *tokenizer;  /* owned, as everything below */
    struct qr_ids *prompt;           /* [c->sample.prompts.n] */
    int32_t ctx_max;                 /* of the longest text */
    struct qr_model *model;
    struct qr_alone alone;
    struct qr_sampler sampler;
};

/* Reads the tokenizer and the prompts, adds what texts take to the trainer's plan. Nothing when there are none to write. */
int qr_train_sampler_open(struct qr_train_sampler *s, struct qr_trainer *t, struct qr_err *err);

/* After qr_trainer_begin. */
int qr_train_sampler_begin(struct qr_train_sampler *s, const struct qr_trainer *t, struct qr_err *err);

/* What the model writes behind prompt i, appended. */
void qr_train_sampler_write(struct qr_train_sampler *s, int32_t i, struct qr_buf *text);

void qr_train_sampler_close(struct qr_train_sampler *s); /* zeroed is fine */

#endif
