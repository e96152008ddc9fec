/* expr.h - expressions: languages of bytes, as they are written down and as they are matched.
 *
 * An expression is a number in a pool. Equal expressions are one number (hash-consing), so what is left of a grammar after some bytes,
 * its *derivative* (Brzozowski 1964; Antimirov 1996, partial derivatives), is such a number, too, and a matcher's state is a set
 * of them (matcher.h). Rules make languages that are not regular: a rule may be named before it has a body, and in its own body.
 * Texts are UTF-8 bytes. A special token of a vocabulary is the byte 0xFF, its id in decimal, and ';': no text contains it.
 *
 * Constructors never fail: where the pool's limit is passed, or where AND or NOT hold a rule, the pool remembers its first error, and
 * qr_exprs_finish says it. One owning thread.
 */
#ifndef QR_ANSWERS_GRAMMAR_EXPR_H
#define QR_ANSWERS_GRAMMAR_EXPR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

struct qr_exprs; /* opaque: the pool */

enum { QR_EXPR_NONE = 0, /* the empty language: nothing matches */ QR_EXPR_EMPTY = 1 /* the empty text alone */ };
#define QR_REPEAT_FOREVER INT32_MAX

/* A pool that takes at most bytes_max bytes. */
struct qr_exprs *qr_exprs_new(size_t bytes_max);
void qr_exprs_free(struct qr_exprs *x); /* NULL is fine */

struct qr_byte_set { uint64_t bits[4]; };

/* One byte of the set; these bytes in a row. */
int32_t qr_expr_set(struct qr_exprs *x, const struct qr_byte_set *set);
int32_t qr_expr_range(struct qr_exprs *x, uint8_t first, uint8_t last);
int32_t qr_expr_bytes(struct qr_exprs *x, const char *bytes, size_t len);
int32_t qr_expr_text(struct qr_exprs *x, const char *text); /* terminated */
int32_t qr_expr_token(struct qr_exprs *x, int32_t id);      /* a special token */

int32_t qr_expr_cat(struct qr_exprs *x, int32_t a, int32_t b);
int32_t qr_expr_or(struct qr_exprs *x, int32_t a, int32_t b);
int32_t qr_expr_maybe(struct qr_exprs *x, int32_t a);
int32_t qr_expr_repeat(struct qr_exprs *x, int32_t a, int32_t min, int32_t max); /* max QR_REPEAT_FOREVER: no limit */

/* Of expressions without rules. NOT is the complement among all byte texts: it makes sense under an AND. */
int32_t qr_expr_and(struct qr_exprs *x, int32_t a, int32_t b);
int32_t qr_expr_not(struct qr_exprs *x, int32_t a);
int32_t qr_expr_minus(struct qr_exprs *x, int32_t a, int32_t b); /* a AND NOT b */
bool qr_expr_is_regular(const struct qr_exprs *x, int32_t e);    /* holds no rule */

/* Any of n: as a tree by their first bytes where texts are given, so that thousands cost no more per byte than one. Parts are
 * expressions [n]; texts are borrowed. */
int32_t qr_expr_any(struct qr_exprs *x, const int32_t *part, int32_t n);
int32_t qr_expr_any_text(struct qr_exprs *x, const char *const *text, const size_t *len, int32_t n);

/* A rule, first without a body; define once. Left recursion is taken out by finish; a rule that can begin with itself only behind
 * something that may be empty is refused there by its name. name is copied, for messages. */
int32_t qr_expr_rule(struct qr_exprs *x, const char *name);
void qr_expr_define(struct qr_exprs *x, int32_t rule, int32_t body);

/* ---- characters ---- */

struct qr_rune_range { int32_t first, last; };
#define QR_RUNE_MAX 0x10FFFF

/* One character of the ranges (any order, may overlap; surrogates are left out) in UTF-8. */
int32_t qr_expr_runes(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n);

/* The same inside a JSON string: a character as it stands where JSON allows that, and every escape of it that json.dumps writes:
 * the short ones, and \u with four digits (lower or upper case, pairs of surrogates). One expression per set of ranges. */
int32_t qr_expr_json_runes(struct qr_exprs *x, const struct qr_rune_range *range, int32_t n);

/* Any character of a JSON string in one of these forms; this is what the ready masks know (vocab.h). */
int32_t qr_expr_json_char(struct qr_exprs *x);

/* The inside of a JSON string that says `text` (UTF-8, len bytes), in all forms. */
int32_t qr_expr_json_text(struct qr_exprs *x, const char *text, size_t len);

/* Any text of bytes, special tokens included; any valid UTF-8; and any text in which `stop` (an expression without rules, never
 * empty) does not occur, and with it as its end. */
int32_t qr_expr_anything(struct qr_exprs *x);
int32_t qr_expr_utf8(struct qr_exprs *x);
int32_t qr_expr_until(struct qr_exprs *x, int32_t stop);
int32_t qr_expr_without(struct qr_exprs *x, int32_t stop);

/* ---- the end of writing ---- */

/* An error of the front end or of the pool that is to stay: the first one is kept. Returns QR_EXPR_NONE. */
int32_t qr_expr_fail(struct qr_exprs *x, const struct qr_err *err);
bool qr_exprs_failed(const struct qr_exprs *x);

/* Checks that every rule has a body, takes out left recursion, finds what may be empty. From now on expressions are made by
 * derivation only. Errors: the pool's first one; QR_E_TOO_LARGE, QR_E_INVALID (with the rule's name). */
int qr_exprs_finish(struct qr_exprs *x, int32_t root, struct qr_err *err);

#endif
