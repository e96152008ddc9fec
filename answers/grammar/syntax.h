/* syntax.h - the languages in which people write grammars, each to an expression. Pure; text is borrowed.
 * Errors of all: QR_E_INVALID with line and column (or the place in the pattern) and what was expected; QR_E_UNSUPPORTED with the name of
 * what cannot be enforced; QR_E_TOO_LARGE past the bounds of nesting, repetition and the pool.
 */
#ifndef QR_ANSWERS_GRAMMAR_SYNTAX_H
#define QR_ANSWERS_GRAMMAR_SYNTAX_H

#include "answers/grammar/expr.h"
#include "answers/grammar/vocab.h"

enum qr_regex_form {
    QR_REGEX_TEXT,        /* the whole text, as it is (structured_outputs.regex, Lark's terminals) */
    QR_REGEX_JSON,        /* inside a JSON string, found anywhere unless anchored (JSON Schema's pattern) */
    QR_REGEX_JSON_WHOLE,  /* inside a JSON string, the whole of it (formats) */
};
enum { QR_REGEX_CASELESS = 1, QR_REGEX_DOT_ALL = 2 }; /* flags: Lark's /.../i and /.../s */

/* The subset of ECMAScript's, Python's and Rust's regular expressions that is regular: classes, escapes, \d \w \s (of ASCII; all blanks),
 * \p{..} of general categories and of large scripts, groups (named, non-capturing), lazy and greedy repetition (the same language),
 * alternation, anchors, (?i) and (?s), look-ahead, look-behind and \b where what stands around them is known: hardly in repetitions. Back
 * references, and what is not known, are refused by name. A '.' is no line end: of ECMAScript's four in the JSON forms, \n in a text. */
int qr_regex_parse(int32_t *out, struct qr_exprs *x, const char *text, size_t len, enum qr_regex_form form, int flags, struct qr_err *err);

/* llama.cpp's GBNF; the rule `root`. v: for <special> tokens; NULL: there are none. */
int qr_gbnf_parse(int32_t *out, struct qr_exprs *x, const char *text, size_t len, const struct qr_vocab *v, struct qr_err *err);

/* llguidance's variant of Lark; the rule `start`. v: for <special> tokens; NULL: there are none. schema: compiles %json {...}. */
struct qr_json;
typedef int qr_schema_reader(int32_t *out, struct qr_exprs *x, const struct qr_json *schema, void *user, struct qr_err *err);
int qr_lark_parse(int32_t *out, struct qr_exprs *x, const char *text, size_t len, const struct qr_vocab *v, qr_schema_reader *schema, void *user,
                  struct qr_err *err);

#endif
