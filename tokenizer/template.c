#include "tokenizer/template.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/jinja/ast.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/render.h"

const struct qr_template_limits qr_template_limits_default = {
    .steps_max = 1000000,
    .output_max = (size_t)4 << 20,
    .depth_max = 64,
    .memory_max = (size_t)64 << 20,
    .range_max = 100000,
};

const char *qr_template_kind_name(enum qr_template_kind kind)
{
    static const char *const name[] = {"raised", "runtime", "limit"};
    QR_ASSERT((unsigned)kind < QR_COUNT(name));
    return name[kind];
}

void qr_rendered_release(struct qr_rendered *r)
{
    QR_ASSERT(r != NULL);
    qr_buf_release(&r->text);
    qr_free(r->segment);
    *r = (struct qr_rendered){0};
}

static void find_builtins(struct qr_template *t)
{
    t->builtin = qr_alloc((size_t)t->n_syms, sizeof *t->builtin);
    for (int32_t i = 0; i < t->n_syms; i++)
        t->builtin[i] = qr_jglobal_find(t->name[i], strlen(t->name[i]));
}

int qr_template_compile(struct qr_template **out, const char *text, size_t len, struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(text != NULL || len == 0);
    struct qr_template *t = qr_alloc(1, sizeof *t);
    struct qr_jparser p = {.t = t, .err = err};
    qr_arena_init(&t->arena, QR_JINJA_ARENA_MAX);
    qr_map_init(&t->map, 64);
    int rc = qr_jparse(&p, text, len);
    if (rc == 0)
        find_builtins(t);
    qr_free(p.tok.at);
    if (rc) {
        qr_template_free(t);
        t = NULL;
    }
    *out = t;
    return rc;
}

void qr_template_free(struct qr_template *t)
{
    if (!t)
        return;
    qr_map_release(&t->map);
    qr_arena_release(&t->arena);
    qr_free(t->builtin);
    qr_free(t);
}

bool qr_template_loops_content(const struct qr_template *t)
{
    QR_ASSERT(t != NULL);
    return t->loops_content;
}

/* What one rendering is called with. */
struct input {
    const struct qr_template_var *var;
    int32_t n_vars;
};

static void set_var(struct qr_jctx *c, const struct qr_template_var *v)
{
    int32_t sym = qr_map_find(&c->t->map, v->name, strlen(v->name), -1);
    if (sym < 0)
        return; /* the template never mentions it */
    struct qr_jval *slot = &c->global[sym];
    switch (v->type) {
    case QR_VAR_NONE: *slot = qr_jnone(); break;
    case QR_VAR_BOOL: *slot = qr_jbool(v->b); break;
    case QR_VAR_JSON: *slot = qr_jfrom_json(c, v->json, v->trusted); break;
    case QR_VAR_TEXT: *slot = qr_jstrv(qr_jstr_new(c, v->text, strlen(v->text), v->trusted)); break;
    }
}

static void run(struct qr_jctx *c, void *arg)
{
    const struct input *in = arg;
    const struct qr_template *t = c->t;
    c->root = qr_jalloc(c, (size_t)t->n_syms * 2, sizeof *c->root);
    memset(c->root, 0, (size_t)t->n_syms * 2 * sizeof *c->root);
    c->global = c->root + t->n_syms;
    for (int32_t i = 0; i < in->n_vars; i++)
        set_var(c, &in->var[i]);
    qr_jexec(c, &t->body);
}

int qr_template_render_vars(const struct qr_template *t, struct qr_rendered *out, const struct qr_template_var *var,
                            int32_t n_vars, int64_t now_s, const struct qr_template_limits *limits,
                            enum qr_template_kind *kind, struct qr_err *err)
{
    QR_ASSERT(t != NULL && out != NULL && limits != NULL);
    QR_ASSERT(kind != NULL && err != NULL);
    struct qr_jctx c = {.t = t, .lim = limits, .err = err, .now_s = now_s, .out = out, .line = 1};
    struct input in = {var, n_vars};
    qr_buf_clear(&out->text);
    out->n_segments = 0;
    qr_free(out->segment);
    out->segment = NULL;
    qr_arena_init(&c.arena, limits->memory_max);
    bool done = qr_jcatch(&c, run, &in);
    qr_arena_release(&c.arena);
    qr_buf_reserve(&out->text, 0); /* an empty text is a string too */
    if (done)
        return 0;
    *kind = c.kind;
    return (int)err->code;
}

static bool listed(const char *name, const char *const *names)
{
    for (int i = 0; names && names[i]; i++) {
        if (strcmp(names[i], name) == 0)
            return true;
    }
    return false;
}

int qr_template_render(const struct qr_template *t, struct qr_rendered *out, const struct qr_json *context,
                       const char *const *trusted_names, int64_t now_s, const struct qr_template_limits *limits,
                       enum qr_template_kind *kind, struct qr_err *err)
{
    QR_ASSERT(context != NULL);
    QR_ASSERT(qr_json_type(context) == QR_JSON_T_OBJECT);
    int32_t n = 0;
    struct qr_template_var *var = qr_alloc((size_t)qr_json_count(context), sizeof *var);
    for (const struct qr_json *m = qr_json_first(context); m; m = qr_json_after(m)) {
        const char *name = qr_json_key(m);
        var[n++] = (struct qr_template_var){.name = name, .type = QR_VAR_JSON, .trusted = listed(name, trusted_names), .json = m};
    }
    int rc = qr_template_render_vars(t, out, var, n, now_s, limits, kind, err);
    qr_free(var);
    return rc;
}
