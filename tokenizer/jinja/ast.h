/* ast.h - a compiled chat template: tokens, nodes, symbols. Internal to tokenizer/; built by lex.c and the two parser
 * files, read by the evaluator. Everything lives in the template's arena and is immutable once compiled. The first
 * error ends the compilation: it fills the parser's err and leaves by longjmp to qr_jparse, so no function here
 * returns one.
 */
#ifndef QR_TOKENIZER_JINJA_AST_H
#define QR_TOKENIZER_JINJA_AST_H

#include <setjmp.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/arena.h"
#include "base/err.h"
#include "base/map.h"
#include "tokenizer/jinja/value.h"

#define QR_JINJA_TEXT_MAX ((size_t)1 << 20)      /* bytes of template text */
#define QR_JINJA_ARENA_MAX ((size_t)512 << 20)   /* bytes of nodes; one byte of text makes at most a few hundred */
#define QR_JINJA_PARSE_DEPTH_MAX 200             /* nested parentheses, brackets, blocks */
#define QR_JINJA_HEIGHT_MAX 1000                 /* height of one expression's tree: chains such as a + b + c + ... */

/* ---- tokens ---- */

enum qr_jtok {
    QR_JT_EOF, QR_JT_DATA, QR_JT_VAR_BEGIN, QR_JT_VAR_END, QR_JT_BLOCK_BEGIN, QR_JT_BLOCK_END,
    QR_JT_NAME, QR_JT_STRING, QR_JT_INT, QR_JT_FLOAT,
    QR_JT_ADD, QR_JT_SUB, QR_JT_MUL, QR_JT_DIV, QR_JT_FLOORDIV, QR_JT_MOD, QR_JT_POW, QR_JT_TILDE,
    QR_JT_LPAREN, QR_JT_RPAREN, QR_JT_LBRACKET, QR_JT_RBRACKET, QR_JT_LBRACE, QR_JT_RBRACE,
    QR_JT_EQ, QR_JT_NE, QR_JT_LT, QR_JT_LE, QR_JT_GT, QR_JT_GE,
    QR_JT_ASSIGN, QR_JT_DOT, QR_JT_COLON, QR_JT_PIPE, QR_JT_COMMA, QR_JT_SEMICOLON,
};

struct qr_jtoken {
    enum qr_jtok type;
    int32_t line, col; /* 1-based; col in bytes */
    const char *text;  /* borrowed from the template's arena; a string's escapes are resolved */
    size_t len;
};

struct qr_jtokens {
    struct qr_jtoken *at; /* owned; qr_free */
    int32_t n, cap;
};

/* ---- nodes ---- */

enum qr_jkind {
    /* expressions */
    QR_JN_CONST,   /* value */
    QR_JN_NAME,    /* sym */
    QR_JN_LIST, QR_JN_TUPLE, /* list */
    QR_JN_DICT,    /* list: key, value, key, value ... */
    QR_JN_ATTR,    /* a . value (a string) */
    QR_JN_ITEM,    /* a [ b ] */
    QR_JN_SLICE,   /* a : b : c, each may be NULL; only as b of ITEM */
    QR_JN_CALL,    /* a ( args ) */
    QR_JN_FILTER,  /* a | filter ( args ); a is NULL in filter and set blocks; named by value */
    QR_JN_TEST,    /* a is test ( args ); named by value */
    QR_JN_NEG, QR_JN_POS, QR_JN_NOT, /* a */
    QR_JN_BINARY,  /* a op b, op an enum qr_jtok */
    QR_JN_AND, QR_JN_OR, /* a, b */
    QR_JN_CONCAT,  /* list */
    QR_JN_COMPARE, /* a op list[0] op list[1] ...: ops[] */
    QR_JN_COND,    /* a if b else c; c may be NULL */
    QR_JN_NSREF,   /* sym . value, only as a target */
    /* statements */
    QR_JN_DATA,    /* value: literal text */
    QR_JN_PRINT,   /* a */
    QR_JN_FOR,     /* for a in b if c: body, other; op: recursive */
    QR_JN_IF,      /* list: conditions; branch[i]: bodies; other */
    QR_JN_SET,     /* a = b */
    QR_JN_SETBLOCK,/* a | b: body */
    QR_JN_MACRO,   /* sym, sig, body */
    QR_JN_CALLBLOCK,/* a (a CALL), sig, body */
    QR_JN_FILTERBLOCK,/* b: body */
    QR_JN_WITH,    /* list: target, value, ...; body */
    QR_JN_SCOPE,   /* body, in a scope of its own */
    QR_JN_BREAK, QR_JN_CONTINUE,
    QR_JN_KINDS,
};

enum { QR_JOP_IN = 100, QR_JOP_NOTIN = 101 }; /* comparison operators beside the tokens */

struct qr_jnodes {
    struct qr_jnode **at; /* borrowed from the arena */
    int32_t n;
};

struct qr_jkwarg {
    const char *name; /* terminated */
    struct qr_jnode *value;
};

struct qr_jargspec {
    struct qr_jnodes pos;
    struct qr_jkwarg *kw;
    int32_t n_kw;
    struct qr_jnode *star, *starstar; /* *args, **kwargs, or NULL */
};

/* The parameters of a macro or call block. */
struct qr_jsig {
    const char *name;          /* terminated; NULL for a call block */
    int32_t n;
    int32_t *sym;              /* [n] */
    struct qr_jnode **fallback;/* [n], NULL where there is no default */
    bool caller, varargs, kwargs; /* the body mentions them */
};

struct qr_jnode {
    uint8_t kind;   /* enum qr_jkind */
    uint8_t op;
    uint16_t height;
    int32_t line;
    int32_t sym;
    struct qr_jnode *a, *b, *c;
    struct qr_jnodes list, body, other;
    union {
        struct qr_jnodes *branch;        /* IF */
        uint8_t *ops;                    /* COMPARE */
        struct qr_jargspec *args;        /* CALL, FILTER, TEST */
        struct qr_jsig *sig;             /* MACRO, CALLBLOCK */
    } u;
    const struct qr_jbuiltin *fn; /* FILTER, TEST: NULL when unknown */
    struct qr_jval value;
};

struct qr_template {
    struct qr_arena arena;
    struct qr_map map;   /* name -> symbol */
    const char **name;   /* [n_syms] in the arena */
    const struct qr_jbuiltin **builtin; /* owned [n_syms]: the global function of that name, or NULL */
    int32_t n_syms;
    int32_t sym_loop, sym_caller, sym_varargs, sym_kwargs;
    struct qr_jnodes body;
    bool loops_content; /* a loop goes through the parts of a message's content (see chat.c) */
};

/* ---- parser (lex.c: tokens, node.c: tools, parse.c: expressions, stmt.c: statements) ---- */

struct qr_jmacro_scope { /* one per macro or call block being parsed */
    struct qr_jmacro_scope *up;
    struct qr_jsig *sig;
};

struct qr_jparser {
    struct qr_template *t;
    struct qr_jtokens tok;
    int32_t pos;
    int32_t depth;
    int32_t loops;   /* enclosing for bodies: break and continue need one */
    bool soft;       /* inside a condition's branch: an unknown filter is an error only when reached */
    struct qr_jmacro_scope *macro;
    struct qr_err *err;
    jmp_buf *failed; /* where an error goes: borrowed from qr_jparse's frame */
};

/* Compiles text into p->t, whose arena and map are ready. p->tok.at is the caller's to free. */
int qr_jparse(struct qr_jparser *p, const char *text, size_t len);

/* Splits text (UTF-8) into tokens; the last one is QR_JT_EOF. trim_blocks and lstrip_blocks are on, one newline at the
 * end is dropped. */
void qr_jlex(struct qr_jparser *p, const char *text, size_t len);

const struct qr_jtoken *qr_jpeek(const struct qr_jparser *p);
const struct qr_jtoken *qr_jpeek2(const struct qr_jparser *p); /* the token after it */
const struct qr_jtoken *qr_jnext(struct qr_jparser *p); /* consumes; stays at the end */
bool qr_jtoken_is(const struct qr_jtoken *t, const char *name);
bool qr_jskip(struct qr_jparser *p, enum qr_jtok type);
bool qr_jis_name(const struct qr_jparser *p, const char *name);
bool qr_jskip_name(struct qr_jparser *p, const char *name);
const struct qr_jtoken *qr_jexpect(struct qr_jparser *p, enum qr_jtok type, const char *what); /* consumes it */
_Noreturn void qr_junexpected(struct qr_jparser *p, const char *wanted);
_Noreturn void qr_jparse_fail(struct qr_jparser *p, enum qr_code code, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));
/* QR_E_INVALID with its place; col 0: the line alone. */
_Noreturn void qr_jparse_error(struct qr_jparser *p, int32_t line, int32_t col, const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
void qr_jenter(struct qr_jparser *p); /* one level deeper; pair with qr_jleave */
void qr_jleave(struct qr_jparser *p);
void *qr_jparse_alloc(struct qr_jparser *p, size_t n, size_t size); /* zeroed */
/* at[0..n), with room for one more: moved where n is 0 or a power of 2. */
void *qr_jparse_grow(struct qr_jparser *p, void *at, int32_t n, size_t size);
struct qr_jnode *qr_jnode_new(struct qr_jparser *p, enum qr_jkind kind, int32_t line);
void qr_jnodes_push(struct qr_jparser *p, struct qr_jnodes *list, struct qr_jnode *n);
int32_t qr_jsymbol(struct qr_jparser *p, const char *name, size_t len);
struct qr_jval qr_jconst_str(struct qr_jparser *p, const char *text, size_t len);
const char *qr_jtoken_name(const struct qr_jtoken *t, char buf[64]);

enum { QR_JTUPLE_SIMPLE = 1, QR_JTUPLE_NO_COND = 2, QR_JTUPLE_PARENS = 4, QR_JTUPLE_NAMESPACE = 8 };
struct qr_jnode *qr_jparse_expr(struct qr_jparser *p, bool with_cond);
struct qr_jnode *qr_jparse_tuple(struct qr_jparser *p, unsigned flags, const char *end_name);
struct qr_jnode *qr_jparse_filters(struct qr_jparser *p, struct qr_jnode *node, bool start_inline);
struct qr_jnode *qr_jparse_target(struct qr_jparser *p, bool with_namespace, const char *end_name);
struct qr_jnodes qr_jparse_root(struct qr_jparser *p);

#endif
