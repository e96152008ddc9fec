/* forms.c - grammars of requests: looked up by all that they are made of, or compiled and kept. What a grammar takes is no request's, so it is compiled
 * in an account of its own; its text and the key are the request's. The lock is held while the vocabulary's tree is made, as others need it as well, and
 * never when an account may end a run. Any thread. */
#include "server/forms.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/mem.h"

struct qr_forms {
    struct qr_forms_config config;
    struct qr_dialect *dialect;     /* owned; NULL: there is no template */
    bool shows_tools;
    struct qr_thinking thinking;
    pthread_mutex_t lock;           /* held while the next two are made */
    struct qr_vocab *vocab;         /* owned; NULL before the first grammar */
    struct qr_grammar_store *store; /* owned; as the vocabulary */
    atomic_bool made;               /* they are there, and stay */
};

/* ---- life ---- */

int qr_forms_check_name(const char *tool_format, struct qr_err *err)
{
    QR_ASSERT(err != NULL);
    struct qr_dialect *d = tool_format ? qr_dialect_named(tool_format) : NULL;
    const bool ok = d || !tool_format;
    const char *name;
    qr_dialect_free(d);
    if (ok)
        return 0;
    struct qr_buf names = {0};
    for (int32_t i = 0; (name = qr_dialect_name_at(i)) != NULL; i++)
        qr_buf_printf(&names, "%s%s", i ? ", " : "", name);
    qr_err_set(err, QR_E_USAGE, "--tool-format %.40s: there is none of that name; there are %s", tool_format, names.data ? names.data : "none");
    qr_buf_release(&names);
    return QR_E_USAGE;
}

/* 0: it has more ids than there is room for. */
static int32_t encode_marker(int32_t out[QR_MARKER_MAX], const struct qr_tokenizer *t, const char *marker)
{
    struct qr_ids ids = {0};
    struct qr_err err;
    const bool ok = *marker && qr_tokenizer_encode(t, &ids, marker, strlen(marker), QR_ENCODE_PARSE_SPECIAL, &err) == 0 && ids.n <= QR_MARKER_MAX;
    const int32_t n = ok ? ids.n : 0;
    for (int32_t i = 0; i < n; i++)
        out[i] = ids.id[i];
    qr_ids_release(&ids);
    return n;
}

struct qr_forms *qr_forms_new(const struct qr_forms_config *c)
{
    QR_ASSERT(c != NULL && c->tokenizer != NULL);
    QR_ASSERT(c->model != NULL && c->vocab > 0);
    struct qr_forms *f = qr_alloc(1, sizeof *f);
    f->config = *c;
    f->thinking.budget = -1;
    pthread_mutex_init(&f->lock, NULL);
    if (!c->chat)
        return f;
    struct qr_dialect *derived = qr_dialect_derive(c->chat), *named = c->tool_format ? qr_dialect_named(c->tool_format) : NULL;
    QR_ASSERT(derived != NULL && !named == !c->tool_format);
    f->shows_tools = qr_dialect_has_tools(derived);
    f->dialect = named ? named : derived;
    if (named)
        qr_dialect_free(derived);
    f->thinking.n_start = encode_marker(f->thinking.start, c->tokenizer, qr_dialect_think_start(f->dialect));
    f->thinking.n_end = encode_marker(f->thinking.end, c->tokenizer, qr_dialect_think_end(f->dialect));
    return f;
}

void qr_forms_free(struct qr_forms *f)
{
    if (!f)
        return;
    qr_grammar_store_free(f->store);
    qr_vocab_free(f->vocab);
    qr_dialect_free(f->dialect);
    pthread_mutex_destroy(&f->lock);
    qr_free(f);
}

const struct qr_dialect *qr_forms_dialect(const struct qr_forms *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(!f->config.chat == !f->dialect);
    return f->dialect;
}

bool qr_forms_shows_tools(const struct qr_forms *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->dialect != NULL);
    return f->shows_tools;
}

const struct qr_thinking *qr_forms_thinking(const struct qr_forms *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->thinking.budget == -1);
    return &f->thinking;
}

int64_t qr_forms_bytes(struct qr_forms *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->config.bytes_max > 0);
    return atomic_load(&f->made) ? (int64_t)(qr_vocab_bytes(f->vocab) + qr_grammar_store_bytes(f->store)) : 0;
}

/* ---- what all grammars need ---- */

static void make_vocab(void *arg)
{
    struct qr_forms *f = arg;
    const struct qr_forms_config *c = &f->config;
    const int32_t eos = qr_tokenizer_eos(c->tokenizer), n = c->model->n_eos;
    struct qr_vocab *v = qr_vocab_new(c->tokenizer, c->vocab, n > 0 ? c->model->eos_ids : &eos, n > 0 ? n : eos >= 0);
    const int64_t left = c->bytes_max - (int64_t)qr_vocab_bytes(v);
    f->store = qr_grammar_store_new(left > 0 ? (size_t)left : 0);
    f->vocab = v;
}

/* False: there is no memory for it. */
static bool need_vocab(struct qr_forms *f)
{
    struct qr_account account;
    if (atomic_load(&f->made))
        return true;
    qr_account_init(&account, NULL);
    pthread_mutex_lock(&f->lock);
    if (!atomic_load(&f->made))
        atomic_store(&f->made, qr_account_run(&account, make_vocab, f));
    pthread_mutex_unlock(&f->lock);
    qr_account_close(&account);
    return atomic_load(&f->made);
}

/* ---- one grammar ---- */

struct compiling {
    struct qr_forms *forms;
    const struct qr_form *form;
    struct qr_constraint constraint; /* kind NONE: nothing is demanded of the content */
    const char *key;                 /* borrowed */
    size_t key_len;
    struct qr_grammar *grammar;      /* counted; NULL: it was not made */
    int rc;
    struct qr_err *err;
};

static bool has_tools(const struct qr_form *form)
{
    return form->tools && form->tools->callable;
}

/* An error in the demand's own JSON ("$.a") becomes one in the request. */
static int blame_demand(const struct qr_demand *d, struct qr_err *err)
{
    char below[sizeof err->param];
    memcpy(below, err->param, sizeof below);
    snprintf(err->param, sizeof err->param, "%.60s%.60s", d->field, below[0] == '$' ? below + 1 : "");
    return qr_err_prefix(err, "%s: ", err->param);
}

/* "tools[i]" counts what may be called: the client's own numbers are others where it sent more. */
static int blame_tools(const struct qr_tool_params *t, struct qr_err *err)
{
    char below[sizeof err->param], *rest = below;
    memcpy(below, err->param, sizeof below);
    const bool numbered = strncmp(below, "tools[", 6) == 0;
    const long i = numbered ? strtol(below + 6, &rest, 10) : -1;
    if (numbered && i >= 0 && i < QR_TOOLS_MAX)
        snprintf(err->param, sizeof err->param, "tools[%d%.100s", t->place[i], rest);
    else if (!err->param[0])
        snprintf(err->param, sizeof err->param, "tools");
    return qr_err_prefix(err, "%s: ", err->param);
}

/* The whole answer as an expression. */
static int build(int32_t *root, struct compiling *c, struct qr_exprs *x)
{
    const struct qr_form *form = c->form;
    int32_t content = QR_EXPR_NONE;
    if (c->constraint.kind != QR_CONSTRAINT_NONE && qr_constraint_build(&content, x, &c->constraint, c->forms->vocab, c->err) != 0)
        return blame_demand(form->demand, c->err);
    *root = content;
    if (!has_tools(form) && !form->thinks)
        return 0;
    const struct qr_answer_shape shape = {
        .tools = has_tools(form) ? form->tools->callable : NULL, .choice = has_tools(form) ? form->tools->calls : QR_CALL_NONE,
        .parallel = has_tools(form) && form->tools->parallel, .starts_inside = form->starts_inside, .may_think = form->thinks, .content = content};
    const int rc = qr_dialect_shape(root, x, c->forms->dialect, &shape, c->forms->vocab, c->err);
    return rc && has_tools(form) ? blame_tools(form->tools, c->err) : rc;
}

static void compile(void *arg)
{
    struct compiling *c = arg;
    struct qr_forms *f = c->forms;
    struct qr_grammar *g = NULL;
    struct qr_exprs *x = qr_exprs_new(QR_GRAMMAR_EXPR_BYTES);
    int32_t root;
    c->rc = build(&root, c, x);
    if (c->rc != 0) {
        qr_exprs_free(x);
        return;
    }
    c->rc = qr_grammar_new(&g, x, root, f->vocab, 0, c->err);
    if (c->rc != 0) {
        if (c->constraint.kind != QR_CONSTRAINT_NONE)
            blame_demand(c->form->demand, c->err);
        else
            blame_tools(c->form->tools, c->err);
        return;
    }
    c->rc = qr_grammar_store_add(f->store, c->key, c->key_len, g, c->err);
    if (c->rc != 0)
        qr_grammar_unref(g);
    else
        c->grammar = g;
}

static void put_key(struct qr_buf *key, const struct compiling *c)
{
    const struct qr_form *form = c->form;
    const struct qr_constraint *d = &c->constraint;
    qr_buf_printf(key, "%d %d %d %d %d %zu ", d->kind, d->strict, d->compact, form->thinks, form->starts_inside, d->len);
    qr_buf_put(key, d->text ? d->text : "", d->len);
    if (!has_tools(form))
        return;
    qr_buf_printf(key, " %d %d ", form->tools->calls, form->tools->parallel);
    qr_json_print(key, form->tools->callable);
}

/* The demand's text is the value's, or the value as JSON, which `json` holds. */
static struct qr_constraint constraint_of(const struct qr_demand *d, struct qr_buf *json)
{
    struct qr_constraint c = {.kind = d->kind, .strict = d->strict, .compact = d->compact, .plain_integers = true};
    c.text = qr_json_text(d->value, &c.len);
    if (c.text || !d->value)
        return c;
    qr_json_print(json, d->value);
    c.text = json->data;
    c.len = json->len;
    return c;
}

/* Ends the run of the thread's account as its own allocation would. */
static void miss_memory(void)
{
    qr_account_missing(true);
}

static int find_or_compile(struct compiling *c)
{
    struct qr_account account;
    c->grammar = qr_grammar_store_find(c->forms->store, c->key, c->key_len);
    if (c->grammar)
        return 0;
    qr_account_init(&account, NULL);
    const bool ok = qr_account_run(&account, compile, c);
    qr_account_close(&account);
    if (!ok)
        miss_memory();
    return c->rc;
}

int qr_forms_compile(struct qr_forms *f, struct qr_grammar **out, const struct qr_form *form, struct qr_err *err)
{
    QR_ASSERT(f != NULL && out != NULL && form != NULL && err != NULL);
    QR_ASSERT(form->demand != NULL && (!has_tools(form) || f->dialect));
    struct qr_buf json = {0}, key = {0};
    *out = NULL;
    if (form->demand->kind == QR_CONSTRAINT_NONE && (!has_tools(form) || form->tools->calls == QR_CALL_NONE))
        return 0;
    if (!need_vocab(f))
        miss_memory();
    struct compiling c = {.forms = f, .form = form, .constraint = constraint_of(form->demand, &json), .err = err};
    put_key(&key, &c);
    c.key = key.data;
    c.key_len = key.len;
    const int rc = find_or_compile(&c);
    *out = c.grammar;
    qr_buf_release(&key);
    qr_buf_release(&json);
    return rc;
}
