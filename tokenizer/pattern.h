/* pattern.h - the regular expressions of tokenizer files (the only door to PCRE2).
 *
 * The files are written for Oniguruma (Ruby syntax). What means the same to PCRE2 is passed on, what can be said otherwise is
 * translated (\s, \w, \v, \uHHHH, scripts), and what would silently mean something else is refused: set operations and
 * nested classes, possessive intervals, \b, \h, back references, inline flags other than i.
 * A pattern is immutable and shared; a matcher is one call's scratch space.
 */
#ifndef QR_TOKENIZER_PATTERN_H
#define QR_TOKENIZER_PATTERN_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "base/err.h"

struct qr_pattern; /* opaque */
struct qr_matcher; /* opaque */

/* Errors: QR_E_UNSUPPORTED for syntax as above, QR_E_DAMAGED when it is no regular expression at all. */
int qr_pattern_open(struct qr_pattern **out, const char *regex, size_t len, struct qr_err *err);

/* A pattern that is exactly this text, which is not empty. */
struct qr_pattern *qr_pattern_literal(const char *text, size_t len);
void qr_pattern_close(struct qr_pattern *p); /* NULL is fine */

struct qr_matcher *qr_matcher_new(void);
void qr_matcher_free(struct qr_matcher *m); /* NULL is fine */

/* Finds the first match at or behind `from` in text[0..len), valid UTF-8; anchors and looks see the whole text.
 * Returns 1 with [*start, *end), or 0. Errors: QR_E_TOO_LARGE when the search passes its step limit. */
int qr_pattern_find(const struct qr_pattern *p, struct qr_matcher *m, const char *text, size_t len, size_t from,
                    size_t *start, size_t *end, struct qr_err *err);

/* Appends the PCRE2 form of an Oniguruma expression (for tests; qr_pattern_open uses it). */
int qr_pattern_translate(struct qr_buf *out, const char *regex, size_t len, struct qr_err *err);

#endif
