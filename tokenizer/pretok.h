/* pretok.h - a tokenizer file's pre-tokenizers, flattened into stages; every stage cuts each piece of the one before.
 * Pieces are handed on one by one as they are found; nothing is collected.
 */
#ifndef QR_TOKENIZER_PRETOK_H
#define QR_TOKENIZER_PRETOK_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "tokenizer/bytechar.h"
#include "tokenizer/pattern.h"

enum qr_pretok_kind {
    QR_PRETOK_SPLIT,  /* cut at the matches of `pattern` */
    QR_PRETOK_SPACES, /* ByteLevel: `mark` is a space; Metaspace: spaces become `mark`. Puts a mark in front of the piece. */
    QR_PRETOK_BYTES,  /* ByteLevel with stages behind it, which see its alphabet: every byte becomes its character */
};

enum qr_split_behavior { QR_SPLIT_REMOVED, QR_SPLIT_ISOLATED, QR_SPLIT_MERGED_PREVIOUS, QR_SPLIT_MERGED_NEXT, QR_SPLIT_CONTIGUOUS };

enum qr_prepend { QR_PREPEND_NEVER, QR_PREPEND_FIRST, QR_PREPEND_ALWAYS };

struct qr_pretok_stage {
    enum qr_pretok_kind kind;
    struct qr_pattern *pattern; /* owned; SPLIT only */
    enum qr_split_behavior behavior;
    bool invert;                /* what lies between matches counts as the match */
    enum qr_prepend prepend;    /* FIRST: only where the whole text begins; never in front of a mark */
    char mark[5];               /* UTF-8, terminated */
};

#define QR_PRETOK_STAGES_MAX 16
struct qr_pretok {
    struct qr_pretok_stage stage[QR_PRETOK_STAGES_MAX];
    int32_t n;
    struct qr_bytechar bytechar; /* set where a stage is BYTES */
};

void qr_pretok_release(struct qr_pretok *p);

/* Called for every piece, never an empty one; a negative result stops and is passed on. */
typedef int qr_piece_fn(void *user, const char *piece, size_t len, struct qr_err *err);

/* Scratch space of one encode call. */
struct qr_pretok_work {
    struct qr_buf text[QR_PRETOK_STAGES_MAX];
};
void qr_pretok_work_release(struct qr_pretok_work *w);

/* Cuts text[0..len), valid UTF-8. first: the whole text begins here. */
int qr_pretok_run(const struct qr_pretok *p, struct qr_pretok_work *w, struct qr_matcher *m, const char *text, size_t len,
                  bool first, qr_piece_fn *fn, void *user, struct qr_err *err);

#endif
