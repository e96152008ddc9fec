/* rope.h - the frequencies of a rotary embedding, once per opened model. Pure.
 *
 * Every position has one fixed rotation, whatever the length of the sequence it stands in: keys go into the cache already rotated, and a
 * cache page may be filled by a prompt chunk of any size or shared by sequences of different lengths. That decides what "dynamic" NTK
 * scaling means here: the reference implementation stretches the base with the current length, so that what is in its cache depends
 * on how the text came in; quire stretches it once, for the context that the model was opened with (not at all while that is within
 * the trained length). Same request, same bytes, and every pair of positions sees the distance that training saw.
 */
#ifndef QR_MODEL_ROPE_H
#define QR_MODEL_ROPE_H

#include <stdint.h>

#include "loader/model_config.h"

struct qr_rope_freqs {
    double *inv_freq;   /* owned [n_rot / 2], radians per position */
    int32_t n_rot;      /* numbers of a head that are rotated, its first ones */
    float attn_factor;  /* what cosine and sine are multiplied by */
};

/* ctx_max: the context the model is opened with.
 * Sources: Su et al. 2021 (arXiv:2104.09864); linear: Chen et al. 2023 (2306.15595); yarn: Peng et al. 2023 (2309.00071);
 * dynamic NTK and llama3: as the transformers library computes them for the same fields of config.json; longrope: Ding et al. 2024 (2402.13753), its long
 * factors where the opened context is longer than the trained one. */
void qr_rope_freqs_init(struct qr_rope_freqs *out, const struct qr_rope_config *r, int32_t head_dim, int32_t ctx_max);
void qr_rope_freqs_release(struct qr_rope_freqs *f);

#endif
