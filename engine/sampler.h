/* sampler.h - from a row of logits to a token, and to log-probabilities. Pure: the draw is a function of (seed, choice, position).
 * Scratch memory is planned once, for one thread.
 */
#ifndef QR_ENGINE_SAMPLER_H
#define QR_ENGINE_SAMPLER_H

#include "engine/engine.h"
#include "engine/row_math.h"

#define QR_SAMPLER_ROOM 16 /* numbers that are worked with together */

struct qr_sampler {
    int32_t n_vocab;
    int32_t *count;               /* owned [n_vocab] occurrences while penalties are applied; all zero between calls */
    float *raw;                   /* owned [n_vocab] room for a row as the model gave it */
    struct qr_candidate {
        float logit;
        int32_t id;
    } *heap;                      /* owned [n_vocab] */
    float *logit;                 /* owned [n_vocab, in whole QR_SAMPLER_ROOM] of what may be chosen, */
    int32_t *id;                  /* as many: their ids, */
    float *weight;                /* its weights, */
    uint16_t *bucket;             /* and how far from the best they are (draw.c) */
    float *row;                   /* owned [n_vocab] the stretches of a row that hold something allowed, one behind the other, */
    int32_t *from;                /* owned [n_stretches] and which stretches they are */
    int32_t n_row, n_stretches;   /* of the row that is drawn from: n_vocab and all its stretches, or those in `row` */
    float *most;                  /* owned [n_stretches] the largest logit of each stretch */
    double *sum;                  /* owned [n_stretches] the weight of each: beside its own largest, or beside the row's */
    bool *stale, any_stale;       /* owned [n_stretches] whether these are to be found out; all false between calls */
    const struct qr_row_math *math;
};

/* A row of logits, and what the head's product said of its stretches (kernels.h, linear), where that is known. */
struct qr_logits {
    float *x;                     /* borrowed [n_vocab] */
    const float *largest, *sum;   /* borrowed [stretches], or NULL */
    float scale;                  /* of sum; 0: it is not filled in */
};

void qr_sampler_init(struct qr_sampler *s, int32_t n_vocab);
void qr_sampler_release(struct qr_sampler *s);
size_t qr_sampler_bytes(int32_t n_vocab); /* what qr_sampler_init takes */

/* Whether penalties or biases overwrite logits; and whether qr_sample does when n_output tokens have been generated: they, or forbidden ids. */
bool qr_sampling_biases_logits(const struct qr_sampling *p);
bool qr_sampling_changes_logits(const struct qr_sampling *p, int32_t n_output);

/* Whether the run's last id is forbidden behind this output, as it ends with the others. */
bool qr_bad_word_ends(const int32_t *run, const int32_t *output, int32_t n_output);

/* A row of a step's logits [n rows, stride], and what is known of its stretches. */
struct qr_logits qr_logits_at(float *logits, int64_t stride, const struct qr_stretches *known, int64_t row);

/* The log of the sum of exp(logits), what all log-probabilities are made of: from sums of stretches of scale 1 (within 2^-18: kernels.h) where the row has
 * them, else of exponentials in f32 (2 ulp), added up in double. */
double qr_log_sum_exp(const struct qr_logits *row, int32_t n_vocab);

/* What qr_sample and qr_token_logprob_fill would like sums of stretches to be of: the scale, 0: none. */
float qr_sampling_scale(const struct qr_sampling *p, int32_t n_vocab);

/* Fills *out for token `id`: log-probability, rank, and the n_top most likely tokens (ties: smaller id first). The row is the model's. */
void qr_token_logprob_fill(struct qr_token_logprob *out, const struct qr_logits *row, int32_t n_vocab, int32_t id, int32_t n_top);

/* As far as `from` is filled in. */
void qr_token_logprob_copy(struct qr_token_logprob *to, const struct qr_token_logprob *from);

/* Chooses a token. row->x is overwritten by the penalties. What is known of stretches spares reading them: greedy, top_k and draws read those that
 * can matter, others read the row. ids[0..n_ids) is prompt and output so far, the first n_prompt
 * of them the prompt; end_ids[0..n_end) may not be chosen before min_tokens. choice and n_ids - n_prompt address the draw. */
int32_t qr_sample(struct qr_sampler *s, const struct qr_logits *row, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids,
                  int32_t n_prompt, const int32_t *end_ids, int32_t n_end, int32_t choice);

/* The same among the ids of a mask, at least two: bit i of its (n_vocab + 31) / 32 words is for id i. What min_tokens, bad_words and allowed say is not asked,
 * the mask knows it. The id, where its logit is finite, is that of a row in which every other logit is -infinity; that row is not made: greedy reads
 * stretches that can hold the largest, a draw those that hold something allowed. */
int32_t qr_sample_masked(struct qr_sampler *s, const struct qr_logits *row, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids,
                         int32_t n_prompt, const uint32_t *mask, int32_t choice);

#endif
