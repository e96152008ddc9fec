/* value.h - the values of a chat template while it is rendered. Internal to tokenizer/.
 *
 * Values are immutable once another value can see them (the reference's sandbox refuses every mutating method; only
 * namespaces change), so slices and copies share memory. Everything is allocated in the rendering's arena, never freed
 * singly. A string knows which of its bytes are trusted. A value goes into a function by pointer and comes out by
 * value.
 *
 * The first error ends the rendering: qr_jfail and its kin fill the context's err and leave by longjmp to qr_jcatch,
 * so no function here returns an error. What a rendering holds therefore lies in its arena; memory of another kind is
 * released before anything that may fail.
 */
#ifndef QR_TOKENIZER_JINJA_VALUE_H
#define QR_TOKENIZER_JINJA_VALUE_H

#include <setjmp.h>
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
    jmp_buf *failed; /* where an error goes: borrowed from qr_jcatch's frame */
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
    const struct qr_jstr **walk; /* [walk_cap] what qr_jstr_walk still has to visit */
    int32_t walk_cap;
    struct qr_jval *root;   /* [n_syms] set at the top level */
    struct qr_jval *global; /* [n_syms] given by the context */
};

/* ---- context: memory, work, errors ---- */

/* Depth of C recursion over values and nodes: fits a stack of 512 KiB (gcc 12 -O3, x86-64, ulimit -s 512). */
#define QR_JNEST_MAX 1500

void *qr_jalloc(struct qr_jctx *c, size_t n, size_t size); /* uninitialised [n] */
void *qr_jgrow(struct qr_jctx *c, const void *at, int64_t n, int64_t cap, size_t size); /* [cap]: at[0..n) and room */
void qr_jcharge(struct qr_jctx *c, int64_t steps);
void qr_jcharge_bytes(struct qr_jctx *c, size_t n_bytes); /* 256 bytes of string work are one step */
void qr_jdown(struct qr_jctx *c);                         /* one level deeper; pair with qr_jup */
void qr_jup(struct qr_jctx *c);
/* QR_TEMPLATE_RUNTIME and QR_TEMPLATE_LIMIT. */
_Noreturn void qr_jfail(struct qr_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void qr_jlimit(struct qr_jctx *c, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
_Noreturn void qr_jfail_undef(struct qr_jctx *c, const struct qr_jval *v); /* an undefined value was used */

/* Calls fn; false: an error ended it, and the context's err and kind say which. */
bool qr_jcatch(struct qr_jctx *c, void (*fn)(struct qr_jctx *c, void *arg), void *arg);

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
static inline struct qr_jval qr_jdictv(struct qr_jdict *d)
{
    return (struct qr_jval){.type = QR_J_DICT, .u.d = d};
}
/* Whether an argument was given, and whether it was given and is not none. */
static inline bool qr_jgiven(const struct qr_jval *v)
{
    return v->type != QR_J_ABSENT;
}
static inline bool qr_jset(const struct qr_jval *v)
{
    return v->type != QR_J_ABSENT && v->type != QR_J_NONE;
}
struct qr_jval qr_jlit(struct qr_jctx *c, const char *s); /* a trusted string literal of this program */
struct qr_jval qr_jundef(struct qr_jctx *c, enum qr_jundef_why why, enum qr_jtype of, struct qr_jval name);
struct qr_jval qr_jhint(struct qr_jctx *c, const char *hint); /* an undefined value that says why */
struct qr_jval qr_jseq_new(struct qr_jctx *c, enum qr_jtype type, int64_t n); /* items are ABSENT */
struct qr_jval qr_jseq_of(struct qr_jctx *c, enum qr_jtype type, struct qr_jval *at, int64_t n); /* shares the items */
struct qr_jval qr_jgen_new(struct qr_jctx *c, const char *name, struct qr_jval *at, int64_t n);
struct qr_jval qr_jfrom_json(struct qr_jctx *c, const struct qr_json *v, bool trusted);

/* A list that grows. */
struct qr_jbag {
    struct qr_jval *at;
    int64_t n, cap;
};
void qr_jbag_push(struct qr_jctx *c, struct qr_jbag *b, struct qr_jval v);

/* ---- strings (str.c) ---- */

struct qr_jstr *qr_jstr_new(struct qr_jctx *c, const char *data, size_t n, bool trusted); /* borrows data */
struct qr_jstr *qr_jstr_cat(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b);
struct qr_jstr *qr_jstr_join(struct qr_jctx *c, struct qr_jstr *all, struct qr_jstr *s); /* all may be NULL: s */
struct qr_jstr *qr_jstr_flat(struct qr_jctx *c, struct qr_jstr *s); /* s, whose u.flat is valid from here on */
struct qr_jstr *qr_jstr_sub(struct qr_jctx *c, struct qr_jstr *s, size_t from, size_t to); /* bytes; s flat */
struct qr_jstr *qr_jstr_marked(struct qr_jctx *c, struct qr_jstr *s, bool markup); /* s, or a copy as (no) Markup */
struct qr_jstr *qr_jstr_repeat(struct qr_jctx *c, struct qr_jstr *s, int64_t n);
bool qr_jstr_eq(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b);
int qr_jstr_cmp(struct qr_jctx *c, struct qr_jstr *a, struct qr_jstr *b);
bool qr_jstr_is(const struct qr_jstr *s, const char *text);        /* s flat */
int64_t qr_jstr_chars(struct qr_jctx *c, struct qr_jstr *s);       /* flattens; code points */
bool qr_jstr_ascii(struct qr_jstr *s);                             /* s flat */
size_t qr_jstr_offset(struct qr_jstr *s, int64_t chars);           /* where code point `chars` starts; s flat */
size_t qr_jstr_next(const struct qr_jstr *s, size_t at);           /* the byte behind the code point at `at`; s flat */
/* The byte where the first, or the last, `what` of s[from..to) begins, or -1; both flat. */
int64_t qr_jstr_find(const struct qr_jstr *s, const struct qr_jstr *what, size_t from, size_t to);
int64_t qr_jstr_rfind(const struct qr_jstr *s, const struct qr_jstr *what, size_t from, size_t to);
int64_t qr_jmem_rfind(const char *hay, size_t n, const char *what, size_t m); /* the same of bytes; m > 0 */
const char *qr_jstr_name(struct qr_jctx *c, const struct qr_jstr *s); /* s terminated; s flat */

/* Visits the uniform pieces of s in order; `visit` walks no string itself. */
void qr_jstr_walk(struct qr_jctx *c, const struct qr_jstr *s,
                  void (*visit)(void *arg, const char *p, size_t n, bool trusted), void *arg);

/* Builds a flat string piece by piece. */
struct qr_jsb {
    struct qr_jctx *c;
    char *data;
    size_t len, cap;
    struct qr_jrun *run;
    int32_t n_runs, cap_runs;
};
void qr_jsb_init(struct qr_jsb *b, struct qr_jctx *c);
void qr_jsb_put(struct qr_jsb *b, const char *p, size_t n, bool trusted);
void qr_jsb_puts(struct qr_jsb *b, const char *p); /* trusted */
void qr_jsb_put_cp(struct qr_jsb *b, uint32_t cp, bool trusted);
void qr_jsb_put_range(struct qr_jsb *b, const struct qr_jstr *s, size_t from, size_t to); /* s flat; keeps provenance */
void qr_jsb_put_str(struct qr_jsb *b, struct qr_jstr *s);
/* s with an escape in place of each character that has one (true); an escape is trusted when all of s is. */
typedef bool qr_jescape_fn(uint32_t cp, const void *arg, char esc[16]);
void qr_jsb_put_escaped(struct qr_jsb *b, struct qr_jstr *s, qr_jescape_fn *escape, const void *arg);
struct qr_jstr *qr_jsb_done(struct qr_jsb *b);
struct qr_jstr *qr_jsb_done_whole(struct qr_jsb *b); /* trusted only when all of it is */

/* Output of a block that is caught: small pieces are gathered, large ones are linked. */
struct qr_jcapture {
    struct qr_jcapture *up;
    struct qr_jstr *rope; /* NULL: nothing yet */
    struct qr_jsb tail;
};
void qr_jcapture_begin(struct qr_jctx *c, struct qr_jcapture *cap);
struct qr_jval qr_jcapture_end(struct qr_jctx *c, struct qr_jcapture *cap);
void qr_jemit(struct qr_jctx *c, struct qr_jstr *s); /* to the capture or the output */

/* ---- dicts (value.c) ---- */

struct qr_jdict *qr_jdict_new(struct qr_jctx *c);
void qr_jdict_set(struct qr_jctx *c, struct qr_jdict *d, struct qr_jval key, struct qr_jval val);
void qr_jdict_set_kw(struct qr_jctx *c, struct qr_jdict *d, const struct qr_jargs *a); /* the keyword arguments */
struct qr_jval qr_jdict_get(struct qr_jctx *c, struct qr_jdict *d, struct qr_jval key); /* ABSENT when missing */
struct qr_jval qr_jdict_view(struct qr_jctx *c, struct qr_jdict *d, enum qr_jview view, int32_t i);

/* ---- what every value can do (value.c, compare.c, text.c) ---- */

const char *qr_jtype_name(const struct qr_jval *v); /* Python's: "str", "NoneType", ... */
const char *qr_jtype_repr(enum qr_jtype type);      /* as in messages: "dict object", "None" */
bool qr_jtruth(const struct qr_jval *v);
int64_t qr_jlen(struct qr_jctx *c, const struct qr_jval *v);
struct qr_jseq qr_jitems(struct qr_jctx *c, const struct qr_jval *v); /* all items; uses up a generator */
bool qr_jiterable(const struct qr_jval *v);
bool qr_jnumber(const struct qr_jval *v, double *out);   /* BOOL, INT, BIG, FLOAT */
bool qr_jinteger(const struct qr_jval *v, int64_t *out); /* BOOL, INT */
uint64_t qr_jhash(struct qr_jctx *c, const struct qr_jval *v);
bool qr_jequal(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b);
/* <0 0 >0, 2: unordered */
int qr_jorder(struct qr_jctx *c, const struct qr_jval *a, const struct qr_jval *b, const char *op);
bool qr_jcontains(struct qr_jctx *c, const struct qr_jval *in, const struct qr_jval *what);
/* Stable, by key. */
void qr_jsort(struct qr_jctx *c, struct qr_jval *key, struct qr_jval *val, int64_t n, bool reverse);

struct qr_jstr *qr_jtext(struct qr_jctx *c, const struct qr_jval *v);      /* str(v) */
struct qr_jstr *qr_jtext_flat(struct qr_jctx *c, const struct qr_jval *v); /* the same, flat */
struct qr_jstr *qr_jrepr(struct qr_jctx *c, const struct qr_jval *v);      /* repr(v) */
void qr_jfloat_text(char buf[40], double f);                               /* Python's repr of a float */

struct qr_jjson_opts {
    bool ascii, sort;
    struct qr_jstr *indent;     /* one level, flat; NULL: all on one line */
    struct qr_jstr *item, *key; /* separators; flat */
};
struct qr_jstr *qr_jjson(struct qr_jctx *c, const struct qr_jval *v, const struct qr_jjson_opts *o);

#endif
