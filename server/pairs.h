/* pairs.h - bodies of /v1/rerank and /v1/score: pairs of texts, and what is wanted of their scores. Fields are a table (pairs_in.c), as Jina, Cohere and vLLM
 * name them. Pure; any thread. */
#ifndef QR_SERVER_PAIRS_H
#define QR_SERVER_PAIRS_H

#include "base/err.h"
#include "base/json.h"

#define QR_PAIRS_MAX 2048 /* of one call, as inputs of embeddings */

struct qr_pairs {
    struct qr_json *doc;                       /* owned, also after an error: what the others are borrowed from */
    const struct qr_json *model, *instruction; /* borrowed from doc: strings; NULL: absent */
    const struct qr_json *timeout;             /* as it was sent; NULL: absent */
    const struct qr_json *text[2];             /* a text, or an array of texts */
    const char *name[2];                       /* static: of the fields that they came in */
    int32_t n_first, n;                        /* first texts: 1, which is paired with each second one, or n */
    int32_t top_n;                             /* at most n */
    bool documents;                            /* results have their documents */
    bool raw;                                  /* scores without the sigmoid */
};

int qr_pairs_read(struct qr_pairs *out, bool rerank, const char *body, size_t len, struct qr_err *err);

/* Of a text that was read: a string, or an object with one as "text". */
const char *qr_pairs_text(const struct qr_json *v, size_t *n);

/* The first text of one side, behind which come the others. */
const struct qr_json *qr_pairs_first(const struct qr_json *side);

#endif
