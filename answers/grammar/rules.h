/* rules.h - named rules as GBNF and Lark write them, and the expression that one of them is. Internal to answers/grammar/.
 *
 * A rule that does not hold itself is put where it is named, as regular as its content; only what is recursive becomes a rule of the
 * pool. Terminals (Lark's) are regular and hold no rules. One thread.
 */
#ifndef QR_ANSWERS_GRAMMAR_RULES_H
#define QR_ANSWERS_GRAMMAR_RULES_H

#include "answers/grammar/reader.h"
#include "base/map.h"

enum qr_rules_kind {
    QR_RULES_LEAF,   /* an expression */
    QR_RULES_REF,    /* a rule by its number */
    QR_RULES_CAT, QR_RULES_OR, QR_RULES_AND, /* the children */
    QR_RULES_NOT,    /* any text but the child's */
    QR_RULES_REPEAT, /* the child */
    QR_RULES_FIRST,  /* the child's texts of which no beginning is one, too */
    QR_RULES_LEXEME, /* the child, and what is ignored behind it */
};

struct qr_rules_node {
    enum qr_rules_kind kind;
    int32_t child, last, next; /* numbers of nodes, 0: none; last: the last child */
    int32_t value;             /* LEAF: the expression; REF: the rule */
    int32_t min, max;
    size_t at;
};

struct qr_rule {
    const char *name; /* borrowed from the grammar */
    size_t len, at;   /* at: where it is named first */
    int32_t body;     /* 0: not defined */
    bool terminal, open, done;
    int32_t expr;     /* once done */
    int32_t rule;     /* of the pool; 0: it needs none so far */
};

struct qr_rules {
    struct qr_exprs *x;         /* borrowed */
    struct qr_reader *r;        /* borrowed */
    struct qr_map map;          /* name to number */
    struct qr_rule *rule;       /* owned */
    int32_t n, cap;
    struct qr_rules_node *node; /* owned; node 0 is none */
    int32_t n_nodes, cap_nodes;
    int32_t *later;             /* owned: rules that were named too deep to be looked into at once */
    int32_t n_later, cap_later;
    int32_t ignored;            /* expression of what may stand behind a lexeme */
};

void qr_rules_init(struct qr_rules *rs, struct qr_exprs *x, struct qr_reader *r);
void qr_rules_release(struct qr_rules *rs);

/* The number of the rule of this name, which may not be defined yet. */
int32_t qr_rules_named(struct qr_rules *rs, const char *name, size_t len, size_t at);
int32_t qr_rules_find(const struct qr_rules *rs, const char *name); /* -1: none */
int qr_rules_define(struct qr_rules *rs, int32_t rule, int32_t body, size_t at);

int32_t qr_rules_add(struct qr_rules *rs, enum qr_rules_kind kind, int32_t value, size_t at);
int32_t qr_rules_repeat(struct qr_rules *rs, int32_t child, int32_t min, int32_t max, size_t at);
void qr_rules_append(struct qr_rules *rs, int32_t parent, int32_t child);

/* The expression of the rule, after all are defined. Errors: QR_E_INVALID with the name of a rule that is not; QR_E_TOO_LARGE. */
int qr_rules_lower(struct qr_rules *rs, int32_t rule, int32_t *out);
int qr_rules_lower_node(struct qr_rules *rs, int32_t node, int32_t *out); /* of a terminal */

#endif
