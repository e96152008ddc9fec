/* exprs.h - the inside of a pool of expressions (expr.h), for the files that make, derive and match them.
 *
 * A node's operands have smaller numbers than the node, but for a rule, which has a number of its own. After qr_exprs_freeze the pool
 * has a fixed capacity, and what is derived is added behind n_base: qr_exprs_collect drops it.
 */
#ifndef QR_ANSWERS_GRAMMAR_EXPRS_H
#define QR_ANSWERS_GRAMMAR_EXPRS_H

#include "answers/grammar/expr.h"

enum qr_expr_kind {
    QR_EXPR_K_NONE, QR_EXPR_K_EMPTY,
    QR_EXPR_K_SET,    /* a: number of the set */
    QR_EXPR_K_CAT,    /* a, then b */
    QR_EXPR_K_OR,     /* a or b; b is the rest of the list */
    QR_EXPR_K_AND,    /* the same */
    QR_EXPR_K_NOT,    /* not a */
    QR_EXPR_K_REPEAT, /* a, b to c times */
    QR_EXPR_K_RULE,   /* a: number of the rule */
};
enum {
    QR_EXPR_NULLABLE = 1, /* the empty text is one of its texts */
    QR_EXPR_REGULAR = 2,  /* holds no rule */
    QR_EXPR_LONG = 4,     /* holds a repetition whose counts no single token can use up (qr_expr_clamp) */
};
#define QR_EXPR_DEAD INT32_MAX   /* shortest: there is no text at all */
#define QR_EXPR_DEPTH_MAX 6000   /* of operands that are followed by recursion */

/* Classes of bytes with which a text may begin; the last bit stands for all classes from there on. */
#define QR_FIRST_BITS 128
struct qr_first { uint64_t bits[QR_FIRST_BITS / 64]; };

struct qr_expr_node {
    struct qr_first first;       /* once the pool is finished */
    uint8_t kind, flags;
    uint16_t depth;
    int32_t a, b, c;
    int32_t shortest;            /* bytes of a short text, QR_EXPR_DEAD; -1: not known yet */
    int32_t seen;                /* by the search of this number */
};

struct qr_expr_rule {
    char *name; /* owned */
    struct qr_first first;
    int32_t body, shortest;
    bool defined, nullable;
};

struct qr_derived { int32_t e, cls, result; }; /* a cache of derivatives, direct mapped */
#define QR_DERIVED_SLOTS 8192

struct qr_exprs {
    struct qr_expr_node *node;   /* owned */
    int32_t n, cap, n_base;      /* n_base: what stays when derived nodes are dropped; 0 before qr_exprs_freeze */
    int32_t *slot;               /* owned [n_slots]: hash table of node numbers, 0: free */
    int32_t n_slots;
    struct qr_byte_set *set;     /* owned */
    int32_t n_sets, cap_sets, single[256];
    int32_t *set_slot;           /* owned [n_set_slots] */
    int32_t n_set_slots;
    struct qr_expr_rule *rule;   /* owned */
    int32_t n_rules, cap_rules;
    int32_t json_char, utf8, anything; /* 0: not made yet */
    uint8_t cls[256], rep[256];  /* of a byte its class, of a class one of its bytes */
    int32_t n_classes;           /* 0: not finished */
    struct qr_derived *derived;  /* owned [QR_DERIVED_SLOTS] once finished */
    int32_t *queue;              /* owned: of the search for a short text */
    int32_t n_searches;
    int32_t long_from;           /* counts above are not told apart in a walk over tokens; 0: not known yet */
    int64_t work, work_end;      /* operations of derivation so far; a search that passes work_end fails */
    int32_t level;               /* of recursion through rules */
    size_t bytes_max;
    bool failed;
    struct qr_err err;           /* the first one */
};

static inline const struct qr_expr_node *qr_expr_at(const struct qr_exprs *x, int32_t e) { return &x->node[e]; }
static inline bool qr_expr_nullable(const struct qr_exprs *x, int32_t e) { return x->node[e].flags & QR_EXPR_NULLABLE; }
static inline bool qr_set_has(const struct qr_byte_set *s, uint8_t byte) { return s->bits[byte >> 6] >> (byte & 63) & 1; }
static inline bool qr_first_has(const struct qr_first *f, int32_t cls)
{
    const int32_t bit = cls < QR_FIRST_BITS ? cls : QR_FIRST_BITS - 1;
    return f->bits[bit >> 6] >> (bit & 63) & 1;
}
static inline void qr_set_put(struct qr_byte_set *s, uint8_t byte) { s->bits[byte >> 6] |= (uint64_t)1 << (byte & 63); }

/* The node, found or made. QR_EXPR_NONE without room. */
int32_t qr_expr_make(struct qr_exprs *x, enum qr_expr_kind kind, int32_t a, int32_t b, int32_t c);

/* Fills in flags and shortest of node e from its operands (derive.c). */
void qr_expr_know(struct qr_exprs *x, int32_t e);
void qr_expr_know_long(struct qr_exprs *x, int32_t e);

/* What is left of e, which has no rule, behind a byte of class cls. */
int32_t qr_expr_derive(struct qr_exprs *x, int32_t e, int32_t cls);

/* The parts of what is left of e behind a byte of class cls, each told once or more; none of them is dead. */
typedef void qr_expr_part_fn(void *user, int32_t part);
void qr_expr_parts(struct qr_exprs *x, int32_t e, int32_t cls, qr_expr_part_fn *said, void *user);

/* Whether e has any text. Of AND and NOT this is searched for. */
bool qr_expr_alive(struct qr_exprs *x, int32_t e);

/* Fixes the pool's capacity, with room for n_derived nodes more. long_from: bytes of the longest token. False without memory. */
bool qr_exprs_freeze(struct qr_exprs *x, int32_t n_derived, int32_t long_from);

/* e with counts that no token of at most long_from bytes can use up made equal, so that states which differ by them alone are one. */
int32_t qr_expr_clamp(struct qr_exprs *x, int32_t e);

/* Keeps of the derived nodes those that are marked (keep[e - n_base]) and what they are made of; renumber[e - n_base] becomes the new
 * number of each. Both have [n - n_base]. */
void qr_exprs_collect(struct qr_exprs *x, uint8_t *keep, int32_t *renumber);

/* Left recursion (left.c): rewrites bodies. */
int qr_exprs_unrecurse(struct qr_exprs *x, struct qr_err *err);

#endif
