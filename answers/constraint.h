/* constraint.h - what one request demands of its answer's text, from any of the languages, to a grammar; and the store of grammars that were
 * compiled before, by content. The store is bounded in bytes, the least recently used goes first; any thread.
 */
#ifndef QR_ANSWERS_CONSTRAINT_H
#define QR_ANSWERS_CONSTRAINT_H

#include "answers/grammar/matcher.h"
#include "base/json.h"

enum qr_constraint_kind {
    QR_CONSTRAINT_NONE,
    QR_CONSTRAINT_OBJECT,  /* any JSON object */
    QR_CONSTRAINT_SCHEMA,  /* JSON Schema, as JSON text */
    QR_CONSTRAINT_REGEX,
    QR_CONSTRAINT_CHOICE,  /* a JSON array of texts */
    QR_CONSTRAINT_GBNF,
    QR_CONSTRAINT_LARK,
    QR_CONSTRAINT_TAGS,    /* structural tags, as JSON text */
};

struct qr_constraint {
    enum qr_constraint_kind kind;
    const char *text;      /* borrowed */
    size_t len;
    bool strict, compact;
    bool plain_integers;   /* as in schema.h: where a text is made, not only read */
};

/* Bytes that the expressions of one grammar may take (qr_exprs_new). */
#define QR_GRAMMAR_EXPR_BYTES ((size_t)32 << 20)

/* Into an expression: for those who put something before or behind it (dialects). Errors: those of syntax.h and schema.h; err's param is the path
 * in the constraint's JSON ("$.properties.a", "$[3]"), "$" or "" where it is no JSON. */
int qr_constraint_build(int32_t *out, struct qr_exprs *x, const struct qr_constraint *c, const struct qr_vocab *v, struct qr_err *err);

/* Into a grammar of its own. */
int qr_constraint_compile(struct qr_grammar **out, const struct qr_constraint *c, const struct qr_vocab *v, struct qr_err *err);

/* "gbnf" or "lark": what a text that vLLM's `grammar` may hold is written in. */
enum qr_constraint_kind qr_constraint_guess(const char *text, size_t len);

/* Structural tags (tags.c): xgrammar's {"type": "structural_tag", "format": ...}, and the older {"structures": [...], "triggers": [...]}. */
int qr_tags_build(int32_t *out, struct qr_exprs *x, const struct qr_json *tags, const struct qr_vocab *v, bool compact, struct qr_err *err);

/* ---- the store ---- */

/* Holds at most bytes_max of qr_grammar_bytes. A grammar that is in use elsewhere stays in it, so that what is in use is bounded, too. */
struct qr_grammar_store; /* opaque */
struct qr_grammar_store *qr_grammar_store_new(size_t bytes_max);
void qr_grammar_store_free(struct qr_grammar_store *s); /* NULL is fine */
size_t qr_grammar_store_bytes(struct qr_grammar_store *s); /* held now */
/* A counted reference, or NULL. key: all that the grammar was made of. */
struct qr_grammar *qr_grammar_store_find(struct qr_grammar_store *s, const char *key, size_t len);
/* The store takes a reference of its own. Where the key is there already that grammar stays. Errors: QR_E_TOO_LARGE where it is larger than the whole
 * store, QR_E_BUSY where grammars in use leave no room. */
int qr_grammar_store_add(struct qr_grammar_store *s, const char *key, size_t len, struct qr_grammar *g, struct qr_err *err);

#endif
