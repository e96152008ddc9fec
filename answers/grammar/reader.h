/* reader.h - how the languages of grammars are read: a place in a text, errors with line and column, escapes, special tokens. Internal
 * to answers/grammar/. One thread.
 */
#ifndef QR_ANSWERS_GRAMMAR_READER_H
#define QR_ANSWERS_GRAMMAR_READER_H

#include "answers/grammar/expr.h"
#include "answers/grammar/vocab.h"
#include "base/buf.h"

#define QR_GRAMMAR_TEXT_MAX ((size_t)1 << 20)
#define QR_GRAMMAR_NESTING_MAX 200
#define QR_GRAMMAR_REPEAT_MAX 100000

struct qr_reader {
    const char *text; /* borrowed; valid UTF-8 */
    size_t len, at;
    struct qr_err *err;
};

/* Errors: QR_E_TOO_LARGE, QR_E_INVALID for what is not UTF-8. */
int qr_reader_open(struct qr_reader *r, const char *text, size_t len, struct qr_err *err);

/* "line L, column C: ..." of byte `at`. Returns code. */
int qr_reader_fail(struct qr_reader *r, enum qr_code code, size_t at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
int qr_reader_expected(struct qr_reader *r, const char *what); /* here, and says what was found */
void qr_reader_place(const struct qr_reader *r, size_t at, struct qr_err *err); /* puts the place in front of err's message */

bool qr_reader_is(const struct qr_reader *r, const char *what);
bool qr_reader_take(struct qr_reader *r, const char *what);
int32_t qr_reader_rune(struct qr_reader *r); /* there is one */
bool qr_reader_count(struct qr_reader *r, int32_t *out); /* decimal digits; above QR_GRAMMAR_REPEAT_MAX: one more than that */

/* The escape at r->at: \n \t \r \b \f \v \\, quotes and other punctuation, \xHH, \uHHHH (or a pair of surrogates), \UHHHHHHHH. */
int qr_reader_escape(struct qr_reader *r, int32_t *rune);

/* The text between the quotes, the first of which is at r->at. */
int qr_reader_quoted(struct qr_reader *r, struct qr_buf *out);

/* A special token at r->at: <name>, <[id]>, <[id,id-id]>; a name is looked up as it stands, < and > included. v NULL: none are known.
 * negated: any special token but these. */
int qr_reader_token(struct qr_reader *r, struct qr_exprs *x, const struct qr_vocab *v, bool negated, int32_t *out);

/* min and max behind '{', up to and with '}'; blanks may stand between. */
int qr_reader_braces(struct qr_reader *r, int32_t *min, int32_t *max);
int qr_reader_check_counts(struct qr_reader *r, size_t at, int32_t min, int32_t max);

#endif
