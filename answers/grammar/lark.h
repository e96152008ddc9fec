/* lark.h - what the two halves of the reader of Lark grammars share: lark.c has statements, lark_items.c what stands in them. Internal to
 * answers/grammar/. One thread.
 */
#ifndef QR_ANSWERS_GRAMMAR_LARK_H
#define QR_ANSWERS_GRAMMAR_LARK_H

#include "answers/grammar/rules.h"
#include "answers/grammar/runes.h"
#include "answers/grammar/syntax.h"

struct qr_lark {
    struct qr_reader r;
    struct qr_rules rules;
    struct qr_exprs *x;         /* borrowed */
    const struct qr_vocab *v;   /* borrowed */
    qr_schema_reader *schema;   /* NULL: %json is refused */
    void *user;                 /* borrowed */
    struct qr_folds folds;
    int depth;
    bool terminal;              /* what is read now is a terminal's: nothing is ignored within */
    int32_t ignored;            /* node of all that %ignore named; 0: nothing */
};

void qr_lark_skip(struct qr_lark *l); /* blanks, ends of lines and comments */
size_t qr_lark_name(const struct qr_reader *r); /* length of the name here; 0: there is none */

/* Alternatives up to what cannot belong to them. */
int qr_lark_alternatives(struct qr_lark *l, int32_t *out);
int qr_lark_item(struct qr_lark *l, int32_t *out); /* one, without what repeats it */

/* The length of the JSON object here; 0: it is not closed. */
size_t qr_lark_object(const struct qr_reader *r);

/* Lark's library: the pattern of common.NAME; NULL: it has none. */
const char *qr_lark_common(const char *name, size_t len);

#endif
