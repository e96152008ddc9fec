/* value.h - the values of a chat template while it is rendered. Internal to tokenizer/.
 *
 * Values are immutable once another value can see them (the reference's sandbox refuses every mutating method; only namespaces
 * change), so slices and copies share memory. Everything is allocated in the rendering's arena, never freed singly. A string
 * knows which of its bytes are trusted. Functions return 0, or a negative code with the context's err filled.
 */
#ifndef QR_TOKENIZER_JINJA_VALUE_H
#define QR_TOKENIZER_JINJA_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/json.h"
#include "tokenizer/template.h"

enum qr_jtype {
    QR_J_ABSENT, /* no value: an argument not given, a slot not set */
    QR_J_UNDEF, QR_J_NONE, QR_J_BOOL, QR_J_INT, QR_J_BIG, QR_J_FLOAT, QR_J_STR,
    QR_J_LIST, QR_J_TUPLE, QR_J_DICT, QR_J_VIEW, QR_J_RANGE, QR_J_GEN,
    QR_J_NS, QR_J_LOOP, QR_J_MACRO, QR_J_FUNC, QR_J_METHOD, QR_J_CYCLER, QR_J_JOINER,
    QR_J_TYPES,
};

enum qr_jview { QR_JVIEW_KEYS, QR_JVIEW_VALUES, QR_JVIEW_ITEMS };

struct qr_jval {
    uint8_t type;      /* enum qr_jtype */
    uint8_t view;      /* enum qr_jview of a VIEW */
    bool untrusted;    /* of numbers and booleans: they came from the context */
    union {
        bool b;
        int64_t i;
        double f;
        struct qr_jstr *s;       /* STR; BIG: the digits of an integer beyond 64 bits */
        struct qr_jseq *seq;     /* LIST, TUPLE */
        struct qr_jdict *d;      /* DICT, VIEW, NS */
        struct qr_jrange *range;
        struct qr_jgen *gen;
        struct qr_jundef *undef;
        struct qr_jloop *loop;
        struct qr_jmacro *macro;
        const struct qr_jbuiltin *func;
        struct qr_jbound *bound; /* METHOD */
        struct qr_jcycler *cycler;
        struct qr_jjoiner *joiner;
    } u;
};

enum qr_jtrust { QR_JTRUST_NONE, QR_JTRUST_ALL, QR_JTRUST_MIXED };

struct qr_jrun { /* bytes up to `end` share one provenance */
    size_t end;
    bool trusted;
};

/* Flat bytes, or the concatenation of two strings that were not needed flat so far. */
struct qr_jstr {
    size_t len;
    union {
        struct {
            const char *data;          /* borrowed; not terminated */
            const struct qr_jrun *run; /* only QR_JTRUST_MIXED: covers [0, len) */
        } flat;
        struct {
            struct qr_jstr *left, *right;
        } cat;
    } u;
    int32_t n_runs;
    int32_t rope_depth; /* 0: flat */
    uint8_t trust;      /* enum qr_jtrust */
    uint8_t ascii;      /* 0 unknown, 1 only ASCII, 2 other */
    bool markup;        /* the reference's Markup: `safe`, `escape` */
};

struct qr_jseq {
    struct qr_jval *at;
    int64_t n;
    bool group; /* of a tuple: a groupby pair with the attributes grouper and list */
};

struct qr_jentry {
    struct qr_jval key, val;
    uint64_t hash;
};

struct qr_jdict { /* in insertion order */
    struct qr_jentry *at;
    int32_t *index; /* open addressing, entry + 1; NULL while small */
    int32_t n, cap, index_cap;
};

struct qr_jrange {
    int64_t start, stop, step, n;
};

struct qr_jgen { /* a generator whose values are known: what is left is at[pos..n) */
    struct qr_jseq seq;
    int64_t pos;
    const char *name; /* for printing */
};

enum qr_jundef_why { QR_JUNDEF_NAME, QR_JUNDEF_ATTR, QR_JUNDEF_HINT, QR_JUNDEF_UNSAFE };
struct qr_jundef {
    enum qr_jundef_why why;
    enum qr_jtype of;    /* ATTR, UNSAFE: what was looked into */
    struct qr_jval name; /* NAME, ATTR, UNSAFE */
    const char *hint;    /* HINT */
};

struct qr_jbound {
    const struct qr_jbuiltin *method;
    struct qr_jval self;
};

struct qr_jcycler {
    struct qr_jseq items;
    int64_t pos;
};

struct qr_jjoiner {
    struct qr_jval sep;
    bool used;
};

struct qr_jloop {
    struct qr_jseq items;
    int64_t i; /* current round, 0-based */
    int32_t depth0;
    struct qr_jval changed;         /* the tuple last given to loop.changed, or ABSENT */
    const struct qr_jnode *recurse; /* the for statement of a recursive loop, or NULL */
    struct qr_jscope *scope;        /* where that statement stood */
};

struct qr_jkw {
    const char *name;
    struct qr_jval val;
    bool untrusted; /* the name came from a value, through ** */
};

struct qr_jargs {
    struct qr_jval *pos;
    struct qr_jkw *kw;
    int32_t n_pos, n_kw;
};

/* A variable of one scope. */
struct qr_jbind {
    int32_t sym;
    struct qr_jval val;
};

struct qr_jscope {
    struct qr_jscope *up; /* NULL: above it is the root */
    struct qr_jbind *bind;
    int32_t n, cap;
};

/* One rendering. */
struct qr_jctx {
    const struct qr_template *t;
    const struct qr_template_limits *lim;
    struct qr_arena arena;
    struct qr_err *err;
    enum qr_template_kind kind;
    int64_t steps;
    int64_t bytes_left;   /* work on string bytes that has not been charged as a step yet */
    int32_t depth;        /* loops and macros */
    int32_t nest;         /* C recursion */
    int32_t line;         /* of the node being evaluated */
    int64_t now_s;
    struct qr_rendered *out;
    struct qr_jcapture *capture; /* where output goes instead of `out`, or NULL */
    struct qr_jscope *scope;
    struct qr_jval *root;   /* [n_syms] set at the top level */
    struct qr_jval *global; /* [n_syms] given by the context */
};

/* ---- context: memory, work, errors ---- */

#define QR_JNEST_MAX 1500 /* of C recursion over values and nodes: fits a stack of 512 KiB (gcc 12 -O3, x86-64, ulimit -s 512) */

void *qr_jalloc(struct qr_jctx *c, size_t n, size_t size); /* uninitialised [n]; NULL: the limit error is set */
int qr_jcharge(struct qr_jctx *c, int64_t steps);
int qr_jcharge_bytes(struct qr_jctx *c, size_t n_bytes);   /* 256 bytes of string work are one step */
int qr_jdown(struct qr_jctx *c);                           /* one level deeper; pair with qr_jup even after success only */
void qr_jup(struct qr_jctx *c);
int qr_jfail(struct qr_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));  /* QR_TEMPLATE_RUNTIME */
int qr_jlimit(struct qr_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3))); /* QR_TEMPLATE_LIMIT */
int qr_jfail_undef(struct qr_jctx *c, const struct qr_jval *v); /* the message of an undefined value that was used */

/* ---- making values ---- */

static inline struct qr_jval qr_jnone(void)
{
    return (struct qr_jval){.type = QR_J_NONE};
}
static inline struct qr_jval qr_jbool(bool b)
{
    return (struct qr_jval){.type = QR_J_BOOL, .u.b = b};
}
static inline struct qr_jval qr_jint(int64_t i)
{
    return (struct qr_jval){.type = QR_J_INT, .u.i = i};
}
static inline struct qr_jval qr_jfloat(double f)
{
    return (struct qr_jval){.type = QR_J_FLOAT, .u.f = f};
}
static inline struct qr_jval qr_jstrv(struct qr_jstr *s)
{
    return (struct qr_jval){.type = QR_J_STR, .u.s = s};
}
int qr_jlit(struct qr_jctx *c, const char *s, struct qr_jval *out); /* a trusted string literal of this program */
int qr_jkw_name(struct qr_jctx *c, const struct qr_jkw *kw, struct qr_jval *out); /* as a string */
int qr_jundef(struct qr_jctx *c, enum qr_jundef_why why, enum qr_jtype of, struct qr_jval name, const char *hint,
              struct qr_jval *out);
int qr_jseq_new(struct qr_jctx *c, enum qr_jtype type, int64_t n, struct qr_jval *out); /* items are ABSENT */
int qr_jgen_new(struct qr_jctx *c, const char *name, struct qr_jval *at, int64_t n, struct qr_jval *out);
int qr_jfrom_json(struct qr_jctx *c, const struct qr_json *v, bool trusted, struct qr_jval *out);

/* A list that grows. */
struct qr_jbag {
    struct qr_jval *at;
    int64_t n, cap;
};
int qr_jbag_push(struct qr_jctx *c, struct qr_jbag *b, struct qr_jval v);
int qr_jbag_list(struct qr_jctx *c, const struct qr_jbag *b, enum qr_jtype type, struct qr_jval *out);

/* ---- strings (str.c) ---- */

int qr_jstr_new(struct qr_jctx *c, const char *data, size_t n, bool trusted, struct qr_jstr **out); /* borrows data */
int qr_jstr_cat(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b, struct qr_jstr **out);
int qr_jstr_flat(struct qr_jctx *c, struct qr_jstr *s);          /* afterwards s->u.flat is valid */
int qr_jstr_sub(struct qr_jctx *c, struct qr_jstr *s, size_t from, size_t to, struct qr_jstr **out); /* bytes; s flat */
int qr_jstr_marked(struct qr_jctx *c, struct qr_jstr *s, bool markup, struct qr_jstr **out); /* s, or a copy as (no) Markup */
int qr_jstr_repeat(struct qr_jctx *c, struct qr_jstr *s, int64_t n, struct qr_jstr **out);
int qr_jstr_eq(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b, bool *out);
int qr_jstr_cmp(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b, int *out);
bool qr_jstr_is(const struct qr_jstr *s, const char *text);      /* s flat */
int qr_jstr_chars(struct qr_jctx *c, struct qr_jstr *s, int64_t *n); /* flattens; code points */
bool qr_jstr_ascii(struct qr_jstr *s);                           /* s flat */
size_t qr_jstr_offset(struct qr_jstr *s, int64_t chars);         /* the byte where code point `chars` starts; s flat */
int64_t qr_jstr_find(const struct qr_jstr *s, const struct qr_jstr *what, size_t from, size_t to); /* byte or -1; flat */
int64_t qr_jstr_rfind(const struct qr_jstr *s, const struct qr_jstr *what, size_t from, size_t to);
int64_t qr_jmem_rfind(const char *hay, size_t n, const char *what, size_t m); /* the last place of what[0..m), m > 0, or -1 */

/* Visits the uniform pieces of s in order. */
int qr_jstr_walk(struct qr_jctx *c, const struct qr_jstr *s, int (*visit)(void *arg, const char *p, size_t n, bool trusted),
                 void *arg);

/* Builds a flat string piece by piece; errors stick and come out of qr_jsb_done. */
struct qr_jsb {
    struct qr_jctx *c;
    char *data;
    size_t len, cap;
    struct qr_jrun *run;
    int32_t n_runs, cap_runs;
    int rc;
};
void qr_jsb_init(struct qr_jsb *b, struct qr_jctx *c);
void qr_jsb_put(struct qr_jsb *b, const char *p, size_t n, bool trusted);
void qr_jsb_puts(struct qr_jsb *b, const char *p); /* trusted */
void qr_jsb_put_cp(struct qr_jsb *b, uint32_t cp, bool trusted);
void qr_jsb_put_range(struct qr_jsb *b, const struct qr_jstr *s, size_t from, size_t to); /* s flat; keeps provenance */
void qr_jsb_put_str(struct qr_jsb *b, struct qr_jstr *s);
int qr_jsb_done(struct qr_jsb *b, struct qr_jstr **out);
int qr_jsb_done_as(struct qr_jsb *b, bool trusted, struct qr_jstr **out); /* the whole text has one provenance */

/* Output of a block that is caught: small pieces are gathered, large ones are linked. */
struct qr_jcapture {
    struct qr_jcapture *up;
    struct qr_jstr *rope; /* NULL: nothing yet */
    struct qr_jsb tail;
};
void qr_jcapture_begin(struct qr_jctx *c, struct qr_jcapture *cap);
int qr_jcapture_end(struct qr_jctx *c, struct qr_jcapture *cap, struct qr_jval *out);
int qr_jemit(struct qr_jctx *c, struct qr_jstr *s); /* to the capture or the output */

/* ---- dicts (value.c) ---- */

int qr_jdict_new(struct qr_jctx *c, struct qr_jdict **out);
int qr_jdict_set(struct qr_jctx *c, struct qr_jdict *d, struct qr_jval key, struct qr_jval val);
int qr_jdict_get(struct qr_jctx *c, struct qr_jdict *d, struct qr_jval key, struct qr_jval *out); /* ABSENT when missing */
int qr_jdict_view(struct qr_jctx *c, struct qr_jdict *d, enum qr_jview view, int32_t i, struct qr_jval *out);

/* ---- what every value can do (value.c, compare.c, text.c) ---- */

const char *qr_jtype_name(const struct qr_jval *v);       /* Python's: "str", "NoneType", ... */
const char *qr_jtype_repr(enum qr_jtype type);            /* as in messages: "dict object", "None" */
int qr_jtruth(struct qr_jctx *c, const struct qr_jval *v, bool *out);
int qr_jlen(struct qr_jctx *c, const struct qr_jval *v, int64_t *out);
int qr_jitems(struct qr_jctx *c, const struct qr_jval *v, struct qr_jseq *out); /* all items; uses up a generator */
bool qr_jiterable(const struct qr_jval *v);
bool qr_jcallable(const struct qr_jval *v);
bool qr_jnumber(const struct qr_jval *v, double *out);    /* BOOL, INT, BIG, FLOAT */
bool qr_jinteger(const struct qr_jval *v, int64_t *out);  /* BOOL, INT */
int qr_jhash(struct qr_jctx *c, const struct qr_jval *v, uint64_t *out);
int qr_jequal(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b, bool *out);
int qr_jorder(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b, const char *op, int *out); /* <0 0 >0, 2: unordered */
int qr_jcontains(struct qr_jctx *c, const struct qr_jval *in, const struct qr_jval *what, bool *out);
int qr_jsort(struct qr_jctx *c, struct qr_jval *key, struct qr_jval *val, int64_t n, bool reverse); /* stable, by key */

int qr_jtext(struct qr_jctx *c, const struct qr_jval *v, struct qr_jstr **out); /* str(v) */
int qr_jrepr(struct qr_jctx *c, const struct qr_jval *v, struct qr_jstr **out); /* repr(v) */
void qr_jfloat_text(char buf[40], double f);                                    /* Python's repr of a float */

struct qr_jjson_opts {
    bool ascii, sort;
    bool pretty;                /* an indent was given */
    const char *indent;         /* one level */
    size_t indent_len;
    struct qr_jstr *item, *key; /* separators; flat */
};
int qr_jjson(struct qr_jctx *c, const struct qr_jval *v, const struct qr_jjson_opts *o, struct qr_jstr **out);

#endif
