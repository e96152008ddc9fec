/* eval.h - the evaluator's own interfaces: nodes, calls, attributes, and the tables of filters, tests, methods and
 * functions. Internal to tokenizer/. Values go in by pointer and come out by value; an error leaves the rendering
 * (value.h).
 */
#ifndef QR_TOKENIZER_JINJA_EVAL_H
#define QR_TOKENIZER_JINJA_EVAL_H

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/value.h"

#define QR_JPARAMS 8

/* A filter, test, method or global function is a row of a table. `how` is the row's, for those that share a function.
 * `self` is the filtered or tested value, the method's object, NULL for a function. arg[i] is the value of param[i],
 * ABSENT when not given; a variadic one reads `raw` instead. Tests answer with a BOOL. */
#define QR_JBUILTIN(fn) \
    struct qr_jval fn(struct qr_jctx *c, int how, const struct qr_jval *self, const struct qr_jval *arg, \
                      const struct qr_jargs *raw)
typedef QR_JBUILTIN(qr_jbuiltin_fn);

struct qr_jbuiltin {
    const char *name;
    qr_jbuiltin_fn *fn;
    int how;
    int32_t n_required;
    bool variadic;
    const char *param[QR_JPARAMS]; /* in order; NULL ends */
};

struct qr_jtable {
    const struct qr_jbuiltin *row;
    int32_t n;
};

struct qr_jmacro {
    const struct qr_jsig *sig;
    struct qr_jnodes body;
    struct qr_jscope *scope; /* where it was defined */
};

/* Tables; NULL when there is none of that name. */
const struct qr_jbuiltin *qr_jfilter_find(const char *name, size_t len);
const char *qr_jfilter_nearest(const struct qr_jstr *name);
const struct qr_jbuiltin *qr_jtest_find(const char *name, size_t len);
const struct qr_jbuiltin *qr_jmethod_find(enum qr_jtype type, const char *name, size_t len);
const struct qr_jbuiltin *qr_jglobal_find(const char *name, size_t len);
const struct qr_jbuiltin *qr_jtable_find(const struct qr_jtable *table, const char *name, size_t len);
extern const struct qr_jtable qr_jfilters_text, qr_jfilters_seq;

/* Evaluation (eval.c) and statements (exec.c). */
struct qr_jval qr_jeval(struct qr_jctx *c, const struct qr_jnode *n);
/* With room for n_extra more keywords. */
struct qr_jargs qr_jeval_args(struct qr_jctx *c, const struct qr_jargspec *spec, int32_t n_extra);
struct qr_jkw *qr_jkw_of(struct qr_jctx *c, const struct qr_jdict *d, struct qr_jkw *kw, const char *what); /* [d->n] */
struct qr_jval qr_japply_filter(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval in); /* a block's filter */
enum qr_jflow { QR_JFLOW_NEXT, QR_JFLOW_BREAK, QR_JFLOW_CONTINUE };
enum qr_jflow qr_jexec(struct qr_jctx *c, const struct qr_jnodes *body);
struct qr_jval qr_jloop_call(struct qr_jctx *c, struct qr_jloop *loop, const struct qr_jargs *a);

/* Variables (exec.c). */
struct qr_jscope *qr_jscope_new(struct qr_jctx *c, struct qr_jscope *up);
void qr_jvar_set(struct qr_jctx *c, int32_t sym, struct qr_jval v);
struct qr_jval qr_jvar_get(struct qr_jctx *c, int32_t sym); /* UNDEF when it was never set */
void qr_jenter_block(struct qr_jctx *c); /* a loop or macro, one deeper; c->depth-- leaves */

/* Calls (call.c). */
struct qr_jval qr_jcall(struct qr_jctx *c, const struct qr_jval *callee, const struct qr_jargs *a);
struct qr_jval qr_jcall_builtin(struct qr_jctx *c, const struct qr_jbuiltin *b, const struct qr_jval *self,
                                const struct qr_jargs *a);

/* Attributes, items, slices (attr.c). */
struct qr_jval qr_jgetattr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name);
struct qr_jval qr_jgetitem(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *key);
struct qr_jval qr_jslice(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval part[3]);
/* "a.b.0" as map(attribute=) and sort(attribute=) read it. */
struct qr_jval qr_jattr_path(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *path,
                             const struct qr_jval *fallback);
/* false: step 0 or no integer */
bool qr_jindices(const struct qr_jval part[3], int64_t len, int64_t *from, int64_t *step, int64_t *n);

/* Operators (ops.c, compare.c) and formatting (format.c). */
struct qr_jval qr_jbinary(struct qr_jctx *c, enum qr_jtok op, const struct qr_jval *a, const struct qr_jval *b);
bool qr_jcompare(struct qr_jctx *c, int op, const struct qr_jval *a, const struct qr_jval *b); /* a token or QR_JOP_x */
struct qr_jval qr_jnegate(struct qr_jctx *c, const struct qr_jval *v, bool minus);
struct qr_jstr *qr_jescape(struct qr_jctx *c, struct qr_jstr *s); /* HTML; the result is Markup */
struct qr_jval qr_jpercent(struct qr_jctx *c, struct qr_jstr *fmt, const struct qr_jval *args); /* fmt % args */
struct qr_jval qr_jbraces(struct qr_jctx *c, struct qr_jstr *fmt, const struct qr_jargs *a);    /* fmt.format(...) */
struct qr_jstr *qr_jstrftime(struct qr_jctx *c, struct qr_jstr *fmt, int64_t when_s);           /* fmt flat; C locale */
double qr_jbig_f64(const struct qr_jstr *digits);

/* Arguments of filters and methods. */
struct qr_jstr *qr_jarg_str(struct qr_jctx *c, const struct qr_jval *v, const char *what); /* a string, made flat */
int64_t qr_jarg_int(struct qr_jctx *c, const struct qr_jval *v, int64_t absent);
static inline bool qr_jarg_flag(const struct qr_jval *v) /* false when it was not given */
{
    return qr_jgiven(v) && qr_jtruth(v);
}

/* String operations of filters and methods (strops.c). */
enum { QR_JLEFT = 1, QR_JRIGHT = 2, QR_JBOTH = 3 };
enum qr_jcase {
    QR_JCASE_UPPER, QR_JCASE_LOWER, QR_JCASE_SWAP, QR_JCASE_CAPITALIZE, QR_JCASE_TITLE, QR_JCASE_FILTER_TITLE,
};
/* chars NULL: white space. */
struct qr_jstr *qr_jstrip(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *chars, int sides);
struct qr_jstr *qr_jreplace(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *old, struct qr_jstr *new,
                            int64_t max);
struct qr_jbag qr_jsplit_lines(struct qr_jctx *c, struct qr_jstr *s, bool keep_ends);
/* s stands left, right, or between blanks. */
struct qr_jstr *qr_jpad(struct qr_jctx *c, struct qr_jstr *s, int64_t width, uint32_t fill, int side);
struct qr_jstr *qr_jcase(struct qr_jctx *c, struct qr_jstr *s, enum qr_jcase how);

/* Methods of strings that are filters and tests, too: of str(self) (methods.c). */
QR_JBUILTIN(qr_jb_case);    /* how: enum qr_jcase */
QR_JBUILTIN(qr_jb_is_case); /* how: QR_JCASE_UPPER or _LOWER */
QR_JBUILTIN(qr_jb_strip);   /* how: sides */
QR_JBUILTIN(qr_jb_pad);     /* how: the side on which the text stands */

#endif
