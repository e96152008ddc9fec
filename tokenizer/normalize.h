/* normalize.h - a tokenizer file's normalizers, flattened into a list of steps (the only door to utf8proc).
 * Text may carry one trust byte per byte, so that what came from the user can be told apart after normalizing.
 */
#ifndef QR_TOKENIZER_NORMALIZE_H
#define QR_TOKENIZER_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"
#include "tokenizer/pattern.h"

enum qr_norm_kind {
    QR_NORM_NFC, QR_NORM_NFD, QR_NORM_NFKC, QR_NORM_NFKD,
    QR_NORM_PREPEND, /* `text` in front, unless there is nothing */
    QR_NORM_REPLACE, /* every match of `pattern` becomes `text` */
    QR_NORM_STRIP,   /* white space at the ends */
};

struct qr_norm_step {
    enum qr_norm_kind kind;
    char *text;                 /* owned */
    size_t n_text;
    struct qr_pattern *pattern; /* owned; REPLACE only */
    bool left, right;           /* STRIP only */
};

#define QR_NORM_STEPS_MAX 16
#define QR_NORM_BYTES_MAX ((size_t)INT32_MAX / 8) /* of what a step makes: as much as can be encoded at once. Replacements multiply, by 64 a step */
struct qr_normalizer {
    struct qr_norm_step step[QR_NORM_STEPS_MAX];
    int32_t n;
};

void qr_normalizer_release(struct qr_normalizer *z);

/* Valid UTF-8. `trust` has len bytes (1: the template's own text) or is NULL. */
struct qr_text {
    const char *data;
    const uint8_t *trust;
    size_t len;
};

/* Scratch space of one encode call; the result of qr_normalize lies in it or is the input itself. */
struct qr_norm_work {
    struct qr_buf text[2], trust[2];
    struct qr_buf points; /* int32 code points */
};
void qr_norm_work_release(struct qr_norm_work *w);

/* Errors: QR_E_TOO_LARGE when a pattern passes its step limit, or the text QR_NORM_BYTES_MAX. */
int qr_normalize(const struct qr_normalizer *z, struct qr_norm_work *w, struct qr_matcher *m, struct qr_text in,
                 struct qr_text *out, struct qr_err *err);

/* Character classes of the files' other rules: a word character and white space as Rust's regex defines \w and \s. */
bool qr_is_word(uint32_t cp);
bool qr_is_space(uint32_t cp);

#endif
