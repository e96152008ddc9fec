/* derive.h - the renderings of one template, and what was found in them. Internal to answers/dialect/. */
#ifndef QR_ANSWERS_DIALECT_DERIVE_H
#define QR_ANSWERS_DIALECT_DERIVE_H

#include "answers/dialect/probe.h"
#include "answers/dialect/reader.h"

struct qr_deriving {
    struct qr_dialect *d;
    struct qr_probe p;
    char *prompt, *thinking_prompt;  /* owned, as all of these; NULL: the template fails. The prompt as it is, and with enable_thinking */
    char *answer;                    /* an answer that is text */
    char *one, *two;                 /* answers of one call with one argument, of two such */
    char *none, *pair, *number;      /* one call without arguments, with two, with one that is a number */
    size_t start;                    /* where the answer begins, in `answer` and in answers of calls; 0: not known */
    const char *tail;                /* borrowed from answer: what ends a turn */
};

struct qr_slice {
    const char *s;
    size_t n;
};
struct qr_slice qr_slice_trim(struct qr_slice s);
const char *qr_keep_slice(struct qr_dialect *d, struct qr_slice s); /* "" where it is empty */

/* Behind white space, and behind reasoning that is empty. */
const char *qr_skip_thought(const struct qr_dialect *d, const char *s, const char *end);

void qr_probe_calls(struct qr_deriving *v);  /* fills one, two, none, pair, number */
void qr_derive_calls(struct qr_deriving *v); /* fills the dialect's first form, if it can be told */

#endif
