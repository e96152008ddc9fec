/* normal.h - inside answers/schema only: a schema's normal form.
 *
 * A *literal* is one demand on a value: a schema, its negation, or a piece of one ("has the member a"). A *goal* is a set of literals that a
 * value meets all at once, so that the same set met twice is one number and recursion ends. A goal becomes a list of *shapes*: any
 * of them is enough, and within a shape all fields hold. What cannot be said in a shape marks it `hard`; only if such a shape may hold a value the
 * schema is refused.
 * Everything lives in the arena of one build. The first error stays in err, and whatever is called after it does nothing.
 */
#ifndef QR_ANSWERS_SCHEMA_NORMAL_H
#define QR_ANSWERS_SCHEMA_NORMAL_H

#include "answers/schema/decimal.h"
#include "answers/schema/schema.h"
#include "base/arena.h"
#include "base/map.h"

enum {
    QR_SC_NULL = 1, QR_SC_FALSE = 2, QR_SC_TRUE = 4, QR_SC_INTEGER = 8, QR_SC_FRACTION = 16, QR_SC_STRING = 32, QR_SC_ARRAY = 64, QR_SC_OBJECT = 128,
    QR_SC_NUMBER = QR_SC_INTEGER | QR_SC_FRACTION, QR_SC_ALL = 255,
};

/* ---- literals and goals ---- */

enum { QR_SC_LIT_TRUE = 0, QR_SC_LIT_FALSE = 1, QR_SC_GOAL_TRUE = 0, QR_SC_GOAL_FALSE = 1 };

enum qr_sc_op {
    QR_SC_OP_SCHEMA,      /* value is valid by the schema `json` */
    QR_SC_OP_NOT,         /* it is not */
    QR_SC_OP_NOT_KEYWORD, /* the keyword `json` of the schema `owner` fails */
    QR_SC_OP_TYPES,       /* its type is one of the mask `number` */
    QR_SC_OP_LACKS,       /* no object with the member `name` */
    QR_SC_OP_MEMBER,      /* an object with the member `name`, which meets `inner` */
    QR_SC_OP_ITEM,        /* an array whose item `number` meets `inner` */
    QR_SC_OP_SOME,        /* an object with a member whose name matches the pattern `json` (a member of patternProperties), and whose value meets `inner` */
};

struct qr_sc_literal {
    enum qr_sc_op op;
    int32_t scope;                            /* the literal of the schema around it with an unevaluated keyword; 0: none */
    int32_t number, inner;
    const struct qr_json *json, *owner;       /* borrowed */
    const char *name;                         /* borrowed from the schema */
};

#define QR_SC_SET_MAX 256
struct qr_sc_set { int32_t n, id[QR_SC_SET_MAX]; }; /* of literals, while a goal is put together */

struct qr_sc_goal {
    const int32_t *literal; /* ascending [n] */
    int32_t n, id;
    enum { QR_SC_NEW, QR_SC_BUSY, QR_SC_DONE } state;
    struct qr_sc_shape *shape; /* a list, when done */
    bool writing;
    int32_t expr, rule;        /* -1: not yet */
};

/* ---- shapes ---- */

struct qr_sc_test { /* of a string */
    const struct qr_sc_test *next;
    const char *text;
    size_t len;
    bool is_format, negated;
    const struct qr_json *at;
};

struct qr_sc_divisor {
    const struct qr_sc_divisor *next;
    const struct qr_decimal *value;
    bool negated;
    const struct qr_json *at;
};

struct qr_sc_values { /* that the value may not be */
    const struct qr_sc_values *next;
    const struct qr_json *json;
    bool is_list;
};

struct qr_sc_name {
    const struct qr_sc_name *next;
    const char *text;
};

struct qr_sc_layer { /* demands on members by their names: a schema's three keywords at once, or one name alone */
    const struct qr_sc_layer *next;
    const struct qr_json *props, *patterns; /* NULL: none */
    const char *name;                       /* one more property; NULL: none */
    int32_t name_literal;
    int32_t rest;                           /* of members that are in neither */
    int32_t scope;
    bool has_rest, unevaluated;
};

struct qr_sc_some { /* at least one member with such a name and value */
    const struct qr_sc_some *next;
    const struct qr_json *pattern;                /* a patternProperties' member; NULL: */
    const struct qr_json *props, *patterns;       /* the name is in neither of these */
    int32_t literal;
    const struct qr_json *at;
};

struct qr_sc_items { /* demands on items by their index */
    const struct qr_sc_items *next;
    const struct qr_json *prefix;  /* an array of schemas for the first ones, or NULL */
    int32_t index, index_literal;  /* one item alone; -1: none */
    int32_t from, rest;            /* from this index on */
    int32_t scope;
    bool has_rest, unevaluated;
};

struct qr_sc_contains {
    const struct qr_sc_contains *next;
    int32_t literal;
    int32_t min, max;
    int32_t scope;
    const struct qr_json *at;
};

struct qr_sc_literals {
    const struct qr_sc_literals *next;
    int32_t id;
};

struct qr_sc_bound { const struct qr_decimal *value; bool open; }; /* NULL: none */

struct qr_sc_shape {
    struct qr_sc_shape *next;
    uint32_t types;
    const struct qr_json **value; /* the only candidates [n_values]; n_values -1: any */
    int32_t n_values;
    const struct qr_sc_values *excluded;
    struct qr_sc_bound low, high;
    const struct qr_sc_divisor *divisor;
    int32_t length_min, length_max;
    const struct qr_sc_test *test;
    int32_t n_items_min, n_items_max;
    const struct qr_sc_items *items;
    const struct qr_sc_contains *contains;
    const struct qr_json *unique;  /* the keyword; NULL: none */
    int32_t n_members_min, n_members_max;
    const struct qr_sc_layer *layer;
    const struct qr_sc_name *required;
    const struct qr_sc_some *some;
    const struct qr_sc_literals *names; /* propertyNames */
    const struct qr_json *hard;    /* a keyword that a shape cannot say; NULL: none */
};

/* ---- what a shape says of objects and arrays, once worked out ---- */

#define QR_SC_SOME_MAX 6
#define QR_SC_PATTERNS_MAX 24

struct qr_sc_member {
    const char *name;
    int32_t track;     /* members of one `properties` have the same number, ascending; -1: named elsewhere only */
    bool required;
    int32_t goal;
    int32_t some[QR_SC_SOME_MAX]; /* the goal with that demand met as well; FALSE: its name is none of those */
};

struct qr_sc_class { /* names that match these patterns and no others */
    uint32_t patterns;
    int32_t goal;
    int32_t some[QR_SC_SOME_MAX];
};

struct qr_sc_object {
    struct qr_sc_member *member; /* in the order of writing [n_members] */
    int32_t n_members, n_written; /* those from n_written on must not be there */
    const struct qr_json *pattern[QR_SC_PATTERNS_MAX]; /* members of patternProperties; the pattern is the key */
    int32_t n_patterns;
    struct qr_sc_class *class;
    int32_t n_classes;
    int32_t n_some;
    int32_t min, max;
};

struct qr_sc_array {
    int32_t *goal;  /* of the first ones [n_goals] */
    int32_t n_goals;
    int32_t rest;
    int32_t min, max;
    int32_t contains;         /* a literal, TRUE: none */
    int32_t contains_min, contains_max;
};

/* ---- one build ---- */

struct qr_sc_regex; /* opaque: patterns, ready to be matched with names (text.c) */
struct qr_sc_index;

struct qr_sc {
    struct qr_exprs *x;
    const struct qr_json *root;
    struct qr_schema_options options;
    struct qr_arena arena;
    struct qr_err *err;
    int code;               /* of the first error */
    int64_t n_steps;
    int32_t depth;
    bool draft_3, draft_4;  /* and earlier; there 1.0 is no integer */
    bool ref_alone;         /* draft 7 and earlier: what stands beside $ref does not count */
    struct qr_sc_literal *literal;
    int32_t n_literals, literals_cap;
    struct qr_map literal_map;
    struct qr_sc_goal **goal;
    int32_t n_goals, goals_cap;
    struct qr_map goal_map;
    int32_t n_shapes;
    int32_t n_beside;       /* shapes of the goal that is being written: large ones must be smaller where they are many */
    struct qr_map place;    /* of schemas: their base address and their state in the search for endless references (refs.c) */
    struct qr_sc_place *places;
    int32_t n_places, places_cap;
    struct qr_sc_anchor *anchor;
    int32_t n_anchors, anchors_cap;
    struct qr_sc_resource *resource; /* [0]: the document */
    int32_t n_resources, resources_cap;
    struct qr_sc_regex **regexes;
    int32_t n_regexes, regexes_cap;
    struct qr_map regex_map, index_map;
    struct qr_sc_index **indices; /* of large objects' members */
    int32_t n_indices, indices_cap;
    struct qr_sc_words *words; /* expressions that are used often */
};

/* The first error stays. `at`: the place in the schema, NULL: none. Returns false. */
bool qr_sc_fail(struct qr_sc *sc, enum qr_code code, const struct qr_json *at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
bool qr_sc_step(struct qr_sc *sc, const struct qr_json *at, int32_t n); /* counts work; false past the bound, or after an error */
void *qr_sc_alloc(struct qr_sc *sc, size_t n, size_t size); /* zeroed; NULL past the bound: an error has been set */

/* goal.c */
int32_t qr_sc_literal(struct qr_sc *sc, const struct qr_sc_literal *l);
int32_t qr_sc_schema_literal(struct qr_sc *sc, const struct qr_json *schema, int32_t scope, bool negated);
bool qr_sc_is_schema(const struct qr_json *v);
void qr_sc_set_add(struct qr_sc *sc, struct qr_sc_set *set, int32_t literal);
int32_t qr_sc_goal_of(struct qr_sc *sc, struct qr_sc_set *set);
int32_t qr_sc_goal_one(struct qr_sc *sc, int32_t literal);
int32_t qr_sc_goal_with(struct qr_sc *sc, int32_t goal, int32_t literal);
const struct qr_json *qr_sc_member_find(struct qr_sc *sc, const struct qr_json *object, const char *name);
void qr_sc_goals_release(struct qr_sc *sc);
bool qr_sc_in_scope(const struct qr_sc *sc, int32_t scope, int32_t outer);

/* keyword.c: whether it can refuse a value at all. */
bool qr_sc_keyword_matters(const char *name);

/* refs.c */
int qr_sc_refs_read(struct qr_sc *sc);
const struct qr_json *qr_sc_ref_target(struct qr_sc *sc, const struct qr_json *schema, const struct qr_json *ref);
bool qr_sc_check_endless(struct qr_sc *sc, const struct qr_json *schema);
void qr_sc_refs_release(struct qr_sc *sc);

/* expand.c: the shapes of a goal; NULL where there is none (or an error). */
struct qr_sc_shape *qr_sc_shapes(struct qr_sc *sc, int32_t goal);
bool qr_sc_goal_empty(struct qr_sc *sc, int32_t goal); /* surely; a goal that is being worked out is none */

/* shape.c */
void qr_sc_shape_init(struct qr_sc_shape *s);
bool qr_sc_meet(struct qr_sc *sc, struct qr_sc_shape *s, const struct qr_sc_shape *with);
void qr_sc_limit_low(struct qr_sc_shape *s, const struct qr_decimal *value, bool open);
void qr_sc_limit_high(struct qr_sc_shape *s, const struct qr_decimal *value, bool open);
bool qr_sc_shape_dead(struct qr_sc *sc, struct qr_sc_shape *s); /* no value can have it; takes types away that cannot */
void qr_sc_keep_values(struct qr_sc *sc, struct qr_sc_shape *s, const struct qr_json *json, bool is_list);
int32_t qr_sc_name_goal(struct qr_sc *sc, const struct qr_sc_shape *s, const char *name);
int32_t qr_sc_item_goal(struct qr_sc *sc, const struct qr_sc_shape *s, int32_t index);
bool qr_sc_name_may_be(struct qr_sc *sc, const struct qr_sc_shape *s, const char *name); /* propertyNames */

/* check.c: whether a value meets a demand. */
bool qr_sc_shape_takes(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_json *v);
bool qr_sc_goal_takes(struct qr_sc *sc, int32_t goal, const struct qr_json *v);
bool qr_sc_same(struct qr_sc *sc, const struct qr_json *a, const struct qr_json *b);
bool qr_sc_string_takes(struct qr_sc *sc, const struct qr_sc_shape *s, const char *text, size_t len);
bool qr_sc_decimal_of(struct qr_sc *sc, const struct qr_json *v, struct qr_decimal *out); /* false: an error */
bool qr_sc_string_excluded(const struct qr_sc_shape *s, const char *text);
uint32_t qr_sc_type_of(struct qr_sc *sc, const struct qr_json *v);

/* resolve.c: what a shape says of objects and arrays; NULL after an error. */
const struct qr_sc_object *qr_sc_resolve_object(struct qr_sc *sc, const struct qr_sc_shape *s);
const struct qr_sc_array *qr_sc_resolve_array(struct qr_sc *sc, const struct qr_sc_shape *s);
bool qr_sc_is_some(struct qr_sc *sc, const struct qr_sc_some *some, const char *name);

/* text.c: patterns and formats. */
bool qr_sc_matches(struct qr_sc *sc, const struct qr_json *at, const char *pattern, size_t pattern_len, bool is_format, const char *text, size_t len);
bool qr_sc_patterns_meet(struct qr_sc *sc, const struct qr_json *a, const struct qr_json *b); /* some name matches both; true also when unknown */
int32_t qr_sc_pattern_expr(struct qr_sc *sc, const struct qr_json *at, const char *pattern, size_t len, bool is_format);
void qr_sc_texts_release(struct qr_sc *sc);
int32_t qr_sc_unbroken(struct qr_exprs *x, bool anywhere);
bool qr_sc_format_known(const char *name, size_t len);
bool qr_sc_strings_dead(struct qr_sc *sc, const struct qr_sc_shape *s); /* surely no string passes all tests; costly */

/* expressions: write.c, object.c, array.c, number.c, text.c */
int32_t qr_sc_write(struct qr_sc *sc, int32_t goal);
int32_t qr_sc_write_object(struct qr_sc *sc, const struct qr_sc_shape *s);
int32_t qr_sc_write_array(struct qr_sc *sc, const struct qr_sc_shape *s);
int32_t qr_sc_write_number(struct qr_sc *sc, const struct qr_sc_shape *s);
int32_t qr_sc_write_string(struct qr_sc *sc, const struct qr_sc_shape *s);
int32_t qr_sc_write_inside(struct qr_sc *sc, const struct qr_sc_shape *s); /* without quotes */
/* Texts of given values with `rest` behind them, letter by letter: many of them have common beginnings (qr_expr_any). */
int32_t qr_sc_write_chars(struct qr_sc *sc, const char *text, size_t len, int32_t rest); /* inside a string */
int32_t qr_sc_write_bytes(struct qr_sc *sc, const char *bytes, size_t len, int32_t rest);
int32_t qr_sc_write_value(struct qr_sc *sc, const struct qr_json *v, int32_t rest);
void qr_sc_write_equal(struct qr_sc *sc, const struct qr_json *number, int32_t rest, int32_t form[2]); /* plain, and with an exponent */
int32_t qr_sc_cat3(struct qr_sc *sc, int32_t a, int32_t b, int32_t c);

struct qr_sc_words {
    int32_t comma, colon, open, close; /* with the blanks that may stand there; behind a bracket, and before one */
    int32_t quote, member;             /* `"` alone; any string as a name, and its colon */
    int32_t value;                     /* any at all: a rule */
    int32_t number, integer, fraction; /* without limits; -1: not yet */
};
void qr_sc_words_make(struct qr_sc *sc);

/* strict.c */
int qr_sc_check_strict(struct qr_sc *sc);

#endif
