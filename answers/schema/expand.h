/* expand.h - inside answers/schema only: a shape while literals are put into it, and the choices that are still open. */
#ifndef QR_ANSWERS_SCHEMA_EXPAND_H
#define QR_ANSWERS_SCHEMA_EXPAND_H

#include "answers/schema/normal.h"

struct qr_sc_choice {
    const struct qr_sc_literals **option; /* [n]: all literals of one of them hold */
    int32_t n;
    bool exactly_one; /* every option is one literal, and no other one holds */
};

struct qr_sc_work {
    struct qr_sc_shape shape;
    const struct qr_sc_literals *seen;
    const struct qr_sc_choice **choice; /* [n_choices]; those before `next` are made */
    int32_t n_choices, choices_cap, next;
};

void qr_sc_apply(struct qr_sc *sc, struct qr_sc_work *w, int32_t literal);

/* Options are put together in an array of n; those with FALSE in them are left out when the choice is added. */
struct qr_sc_choice *qr_sc_choice_new(struct qr_sc *sc, int32_t n_max);
void qr_sc_option(struct qr_sc *sc, struct qr_sc_choice *c, int32_t a, int32_t b); /* both hold; TRUE is none */
void qr_sc_choose(struct qr_sc *sc, struct qr_sc_work *w, struct qr_sc_choice *c);

static inline void qr_sc_never(struct qr_sc_work *w) { w->shape.types = 0; }
void qr_sc_hard(struct qr_sc_work *w, const struct qr_json *at);

/* A keyword's demand, and its opposite. */
typedef void qr_sc_keyword_fn(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_json *schema, const struct qr_json *member, int32_t scope);
struct qr_sc_keyword { const char *name; qr_sc_keyword_fn *apply, *deny; };
const struct qr_sc_keyword *qr_sc_keyword_find(const char *name); /* NULL: nothing to enforce */

void qr_sc_add_layer(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_sc_layer *layer);
void qr_sc_add_items(struct qr_sc *sc, struct qr_sc_work *w, const struct qr_sc_items *items);
void qr_sc_add_required(struct qr_sc *sc, struct qr_sc_work *w, const char *name);
bool qr_sc_read_count(struct qr_sc *sc, const struct qr_json *member, int32_t *out); /* false: an error */
bool qr_sc_read_decimal(struct qr_sc *sc, const struct qr_json *member, const struct qr_decimal **out);
uint32_t qr_sc_read_types(struct qr_sc *sc, const struct qr_json *member);

/* negate.c */
extern qr_sc_keyword_fn qr_sc_deny_type, qr_sc_deny_enum, qr_sc_deny_const, qr_sc_deny_required, qr_sc_deny_properties, qr_sc_deny_patterns,
    qr_sc_deny_additional, qr_sc_deny_string_test, qr_sc_deny_low, qr_sc_deny_high, qr_sc_deny_exclusive_low, qr_sc_deny_exclusive_high,
    qr_sc_deny_multiple, qr_sc_deny_length_min, qr_sc_deny_length_max, qr_sc_deny_items_min, qr_sc_deny_items_max, qr_sc_deny_members_min,
    qr_sc_deny_members_max, qr_sc_deny_items, qr_sc_deny_prefix, qr_sc_deny_contains, qr_sc_deny_dependent, qr_sc_deny_all_of, qr_sc_deny_any_of,
    qr_sc_deny_one_of, qr_sc_deny_not, qr_sc_deny_if, qr_sc_deny_ref, qr_sc_deny_hard;

#endif
