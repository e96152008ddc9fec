/* eval.h - the evaluator's own interfaces: nodes, calls, attributes, and the tables of filters, tests, methods and functions.
 * Internal to tokenizer/. Functions return 0 or a negative code with the context's err filled.
 */
#ifndef QR_TOKENIZER_JINJA_EVAL_H
#define QR_TOKENIZER_JINJA_EVAL_H

#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/value.h"

#define QR_JPARAMS 8

/* A filter, test, method or global function. `self` is the filtered or tested value, the method's object, NULL for a function.
 * arg[i] is the value of param[i], ABSENT when not given; a variadic one reads `raw` instead. Tests answer with a BOOL. */
typedef int qr_jbuiltin_fn(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw,
                           struct qr_jval *out);
struct qr_jbuiltin {
    const char *name;
    qr_jbuiltin_fn *fn;
    int32_t n_required;
    bool variadic;
    const char *param[QR_JPARAMS]; /* in order; NULL ends */
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
const struct qr_jbuiltin *qr_jbuiltin_find(const struct qr_jbuiltin *table, int32_t n, const char *name, size_t len);
extern const struct qr_jbuiltin qr_jfilters_text[], qr_jfilters_seq[], qr_jfilters_value[];
extern const int32_t qr_jfilters_text_n, qr_jfilters_seq_n, qr_jfilters_value_n;
extern const struct qr_jbuiltin qr_jmethods_str[], qr_jmethods_str_case[];
extern const int32_t qr_jmethods_str_n, qr_jmethods_str_case_n;

/* Evaluation (eval.c) and statements (exec.c). */
int qr_jeval(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval *out);
int qr_jeval_args(struct qr_jctx *c, const struct qr_jargspec *spec, int32_t n_extra, struct qr_jargs *out); /* room for n_extra kw */
int qr_japply_filter(struct qr_jctx *c, const struct qr_jnode *n, struct qr_jval in, struct qr_jval *out); /* a block's filter */
enum { QR_JFLOW_NEXT, QR_JFLOW_BREAK, QR_JFLOW_CONTINUE }; /* or a negative code */
int qr_jexec(struct qr_jctx *c, const struct qr_jnodes *body);
int qr_jloop_call(struct qr_jctx *c, struct qr_jloop *loop, const struct qr_jargs *a, struct qr_jval *out);

/* Variables (exec.c). */
struct qr_jscope *qr_jscope_new(struct qr_jctx *c, struct qr_jscope *up); /* NULL: err is set */
int qr_jvar_set(struct qr_jctx *c, int32_t sym, struct qr_jval v);
int qr_jvar_get(struct qr_jctx *c, int32_t sym, struct qr_jval *out); /* UNDEF when it was never set */

/* Calls (call.c). */
int qr_jcall(struct qr_jctx *c, const struct qr_jval *callee, const struct qr_jargs *a, struct qr_jval *out);
int qr_jcall_builtin(struct qr_jctx *c, const struct qr_jbuiltin *b, const struct qr_jval *self, const struct qr_jargs *a,
                     struct qr_jval *out);

/* Attributes, items, slices (attr.c). */
int qr_jgetattr(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *name, struct qr_jval *out);
int qr_jgetitem(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *key, struct qr_jval *out);
int qr_jslice(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval part[3], struct qr_jval *out);
int qr_jattr_path(struct qr_jctx *c, const struct qr_jval *obj, const struct qr_jval *path, const struct qr_jval *fallback,
                  struct qr_jval *out); /* "a.b.0" as map(attribute=) and sort(attribute=) read it */
bool qr_jindices(const struct qr_jval part[3], int64_t len, int64_t *from, int64_t *step, int64_t *n); /* false: step 0 or no integer */

/* Operators (ops.c) and formatting (format.c). */
int qr_jbinary(struct qr_jctx *c, enum qr_jtok op, const struct qr_jval *a, const struct qr_jval *b, struct qr_jval *out);
int qr_jnegate(struct qr_jctx *c, const struct qr_jval *v, bool minus, struct qr_jval *out);
int qr_jescape(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr **out); /* HTML; the result is Markup */
int qr_jpercent(struct qr_jctx *c, struct qr_jstr *fmt, const struct qr_jval *args, struct qr_jval *out); /* fmt % args */
int qr_jbraces(struct qr_jctx *c, struct qr_jstr *fmt, const struct qr_jargs *a, struct qr_jval *out);    /* fmt.format(...) */
int qr_jstrftime(struct qr_jctx *c, struct qr_jstr *fmt, int64_t when_s, struct qr_jstr **out);           /* fmt flat; C locale */
double qr_jbig_f64(const struct qr_jstr *digits);

/* Helpers of filters and methods. */
int qr_jarg_str(struct qr_jctx *c, const struct qr_jval *v, const char *what, struct qr_jstr **out); /* a string, made flat */
int qr_jarg_int(struct qr_jctx *c, const struct qr_jval *v, int64_t absent, int64_t *out);
int qr_jstrip(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *chars, int sides, struct qr_jstr **out); /* 1 left, 2 right; chars may be NULL */
int qr_jreplace(struct qr_jctx *c, struct qr_jstr *s, struct qr_jstr *old, struct qr_jstr *new, int64_t max, struct qr_jstr **out);
int qr_jsplit_lines(struct qr_jctx *c, struct qr_jstr *s, bool keep_ends, struct qr_jbag *out);
int qr_jcenter(struct qr_jctx *c, struct qr_jstr *s, int64_t width, uint32_t fill, int side, struct qr_jstr **out); /* -1 ljust, 0, 1 rjust */
enum qr_jcase { QR_JCASE_UPPER, QR_JCASE_LOWER, QR_JCASE_SWAP, QR_JCASE_CAPITALIZE, QR_JCASE_TITLE, QR_JCASE_FILTER_TITLE };
int qr_jcase(struct qr_jctx *c, struct qr_jstr *s, enum qr_jcase how, struct qr_jstr **out);
int qr_jcase_test(struct qr_jctx *c, const struct qr_jval *v, bool upper, bool *out); /* str(v).isupper() / islower() */

#endif
