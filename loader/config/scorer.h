/* scorer.h - how a model's last row becomes a score of a pair of texts, for /v1/rerank and /v1/score.
 *
 * A classifier (LlamaForSequenceClassification and the like, of one label) has a row of weights in place of a head. Qwen3-Reranker is asked whether a document
 * meets a query: its score is the probability of "yes" against "no", sigmoid of the difference of two rows of its head. Both are one row of weights here.
 * What cannot be computed is a note in place of an error, as text can be served all the same. Immutable once loaded; any thread.
 */
#ifndef QR_LOADER_CONFIG_SCORER_H
#define QR_LOADER_CONFIG_SCORER_H

#include <stdbool.h>
#include <stdint.h>

#include "base/files/source.h"

enum qr_scorer_kind {
    QR_SCORER_NONE,       /* there are no scores; note may say why */
    QR_SCORER_CLASSIFIER, /* texts are taken as they are */
    QR_SCORER_YES_NO,     /* in Qwen3-Reranker's prompt */
};
/* Names for an option table: whether a model whose files do not say so answers yes or no. */
#define QR_RERANKER_CHOICES "auto|yes-no"

struct qr_scorer {
    enum qr_scorer_kind kind;
    bool joined;            /* CLASSIFIER: the pair is one text (use_sep_token false), not two */
    bool sigmoid;           /* behind the product; else there is nothing */
    int32_t pad_id;         /* CLASSIFIER: where ids end with it, the last row is the one before; -1: none */
    int32_t no_id, yes_id;  /* YES_NO: as the files say; -1: they do not */
    float *weight;          /* owned [n_embd]; NULL before it is loaded */
    int32_t n_embd;
    char note[400];         /* a sentence for log and clients */
};

/* What the model's files say; no tensor is read. yes_no: a model with a head answers yes or no whatever they say. */
void qr_scorer_find(struct qr_scorer *out, const struct qr_source *source, bool yes_no);

/* Tokens that Qwen3-Reranker is asked with, and that it answers. */
enum { QR_SCORER_NO, QR_SCORER_YES, QR_SCORER_START, QR_SCORER_END, QR_SCORER_WORDS };
extern const char *const qr_scorer_word[QR_SCORER_WORDS];

/* Reads the weights. id: of these words in the vocabulary, -1: it has none. Where that fails the scorer becomes one of no kind. */
void qr_scorer_load(struct qr_scorer *s, struct qr_source *source, const int32_t id[QR_SCORER_WORDS]);
void qr_scorer_release(struct qr_scorer *s); /* also of a zeroed one */

/* "a classifier of one label"; NULL: there are no scores. */
const char *qr_scorer_name(const struct qr_scorer *s);

/* Of row [n_embd], in double, in order. raw: without the sigmoid. */
double qr_scorer_score(const struct qr_scorer *s, const double *row, bool raw);

#endif
