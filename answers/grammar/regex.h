/* regex.h - a regular expression as a tree: what regex_parse.c reads and regex.c turns into an expression. Internal to answers/grammar/.
 */
#ifndef QR_ANSWERS_GRAMMAR_REGEX_H
#define QR_ANSWERS_GRAMMAR_REGEX_H

#include "answers/grammar/runes.h"
#include "answers/grammar/syntax.h"

enum qr_rx_kind {
    QR_RX_EMPTY,
    QR_RX_CHAR,   /* one character */
    QR_RX_SET,    /* one of a set */
    QR_RX_CAT,    /* the children, one after the other */
    QR_RX_ALT,    /* any of the children */
    QR_RX_REPEAT, /* the child, min to max times */
    QR_RX_BEGIN,  /* the text's begin */
    QR_RX_END,
    QR_RX_WORD,   /* \b; negated: \B */
    QR_RX_AHEAD,  /* the child stands next; negated: it does not */
    QR_RX_BEHIND, /* the child stands before */
};

struct qr_rx_node {
    enum qr_rx_kind kind;
    bool negated;
    bool left, right;         /* what it matches depends on the text before it, behind it */
    bool looks;               /* holds \b, a look-ahead or a look-behind */
    bool not_begin;           /* holds a negated look-ahead that holds '^': more may match away from the text's begin than there */
    bool null, null_at_begin; /* may be empty: anywhere, at the text's begin. Not told of what depends on the text otherwise */
    int32_t child, next;      /* numbers of nodes, 0: none; next: the parent's next child */
    int32_t min, max;         /* of REPEAT */
    int32_t value;            /* CHAR: the character; SET: the set's number */
    int32_t len_min, len_max; /* characters; QR_REPEAT_FOREVER */
    int32_t at;               /* byte of the pattern */
    int32_t expr;             /* what regex.c made of it; -1: nothing yet */
};

struct qr_rx_set { struct qr_runes runes; uint32_t hash; int32_t next, expr; /* the same */ };
#define QR_RX_BUCKETS 256

struct qr_rx {
    struct qr_rx_node *node;        /* owned; node 0 is none */
    int32_t n, cap;
    struct qr_rx_set *set;          /* owned; equal sets are one */
    int32_t n_sets, cap_sets, bucket[QR_RX_BUCKETS]; /* bucket: 1 + the number of its first set */
    int32_t root;
};

/* x is zeroed. Errors: those of qr_regex_parse. */
int qr_rx_read(struct qr_rx *rx, const char *text, size_t len, enum qr_regex_form form, int flags, struct qr_err *err);
void qr_rx_release(struct qr_rx *rx);

/* The number of the set, which is settled and becomes empty. */
int32_t qr_rx_intern(struct qr_rx *rx, struct qr_runes *runes);

/* ---- between regex_parse.c and regex_class.c ---- */

#define QR_RX_TEXT_MAX (64 << 10)
#define QR_RX_REPEAT_MAX 100000
#define QR_RX_NESTING_MAX 200

struct qr_rx_reader {
    const char *s;            /* borrowed */
    size_t n, at;
    struct qr_rx *rx;
    enum qr_regex_form form;
    int flags, depth;
    struct qr_folds folds;
    struct { uint32_t categories; int32_t set; } category[64]; /* of \p: those seen before */
    int32_t n_categories;
    struct qr_err *err;
};

/* What an escape says. */
enum qr_rx_escape { QR_RX_ONE, QR_RX_CLASS, QR_RX_ASSERTION };
struct qr_rx_escaped {
    enum qr_rx_escape kind;
    int32_t rune;             /* ONE; a half of a pair alone stays as it is, and matches nothing */
    struct qr_runes runes;    /* CLASS: owned by the reader of the escape, settled */
    bool cased;               /* CLASS: letters of one case, so that CASELESS adds the other */
    enum qr_rx_kind assertion;
    bool negated;
};

int32_t qr_rx_place(const char *text, size_t at); /* characters before byte `at`, and one */
int qr_rx_fail(struct qr_rx_reader *r, enum qr_code code, size_t at, const char *fmt, ...) __attribute__((format(printf, 4, 5)));
bool qr_rx_is(const struct qr_rx_reader *r, const char *what);
bool qr_rx_take(struct qr_rx_reader *r, const char *what);

/* r->at is at the backslash, at the bracket; the result is behind it. */
int qr_rx_read_escape(struct qr_rx_reader *r, bool in_class, struct qr_rx_escaped *out);
int qr_rx_read_class(struct qr_rx_reader *r, int32_t *set);

/* The next character. The text is valid UTF-8, and there is one. */
int32_t qr_rx_next(struct qr_rx_reader *r);

extern const struct qr_rune_range qr_rx_word[4];

#endif
