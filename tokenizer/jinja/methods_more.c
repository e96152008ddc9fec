/* methods_more.c - methods of strings that look at characters, and those of lists, dicts and helper objects. Names and
 * arguments are rows of methods.c's table. Errors of a rendering are values (value.c), so a template can never end the
 * process. The arena is the rendering's own; one thread at a time. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/jinja/eval.h"
#include "tokenizer/jinja/unicode.h"

#define METHOD(fn) \
    static int fn(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw, \
                  struct qr_jval *out)

static int change_case(struct qr_jctx *c, const struct qr_jval *self, enum qr_jcase how, struct qr_jval *out)
{
    struct qr_jstr *s = self->u.s;
    int rc = qr_jstr_flat(c, s);
    if (rc == 0)
        rc = qr_jcase(c, s, how, &s);
    if (rc == 0)
        rc = qr_jstr_marked(c, s, self->u.s->markup, &s);
    if (rc == 0)
        *out = qr_jstrv(s);
    return rc;
}

METHOD(m_upper)
{
    return change_case(c, self, QR_JCASE_UPPER, out);
}

METHOD(m_lower)
{
    return change_case(c, self, QR_JCASE_LOWER, out);
}

METHOD(m_title)
{
    return change_case(c, self, QR_JCASE_TITLE, out);
}

METHOD(m_capitalize)
{
    return change_case(c, self, QR_JCASE_CAPITALIZE, out);
}

METHOD(m_swapcase)
{
    return change_case(c, self, QR_JCASE_SWAP, out);
}

METHOD(m_isupper)
{
    bool is = false;
    int rc = qr_jcase_test(c, self, true, &is);
    *out = qr_jbool(is);
    return rc;
}

METHOD(m_islower)
{
    bool is = false;
    int rc = qr_jcase_test(c, self, false, &is);
    *out = qr_jbool(is);
    return rc;
}

static bool alnum(uint32_t cp)
{
    return qr_jalpha(cp) || qr_jnumeric(cp);
}

static bool ascii(uint32_t cp)
{
    return cp < 0x80;
}

/* Whether all characters are of a kind; `empty` is the answer for the empty string. */
static int all(struct qr_jctx *c, const struct qr_jval *self, bool (*is)(uint32_t cp), bool empty, struct qr_jval *out)
{
    struct qr_jstr *s = self->u.s;
    int rc = qr_jstr_flat(c, s);
    if (rc == 0)
        rc = qr_jcharge_bytes(c, s->len);
    if (rc)
        return rc;
    bool good = s->len > 0 || empty;
    for (size_t i = 0; i < s->len && good;) {
        uint32_t cp;
        i += (size_t)qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
        good = is(cp);
    }
    *out = qr_jbool(good);
    return 0;
}

METHOD(m_isdigit)
{
    return all(c, self, qr_jdigit, false, out);
}

METHOD(m_isdecimal)
{
    return all(c, self, qr_jdecimal, false, out);
}

METHOD(m_isnumeric)
{
    return all(c, self, qr_jnumeric, false, out);
}

METHOD(m_isalpha)
{
    return all(c, self, qr_jalpha, false, out);
}

METHOD(m_isalnum)
{
    return all(c, self, alnum, false, out);
}

METHOD(m_isspace)
{
    return all(c, self, qr_jspace, false, out);
}

METHOD(m_isascii)
{
    return all(c, self, ascii, true, out);
}

METHOD(m_isprintable)
{
    return all(c, self, qr_jprintable, true, out);
}

METHOD(m_isidentifier)
{
    struct qr_jstr *s = self->u.s;
    int rc = all(c, self, qr_jword, false, out);
    if (rc == 0 && out->u.b) {
        uint32_t cp;
        qr_utf8_decode(s->u.flat.data, s->len, &cp);
        *out = qr_jbool(cp == '_' || qr_jalpha(cp));
    }
    return rc;
}

METHOD(m_istitle)
{
    struct qr_jstr *s = self->u.s;
    int rc = qr_jstr_flat(c, s);
    bool inside = false, good = true, any = false;
    for (size_t i = 0; rc == 0 && i < s->len && good;) {
        uint32_t cp;
        i += (size_t)qr_utf8_decode(s->u.flat.data + i, s->len - i, &cp);
        bool up = qr_jupper(cp) || qr_jtitlecase(cp), low = qr_jlower(cp);
        good = !(up && inside) && !(low && !inside);
        inside = up || low;
        any = any || inside;
    }
    *out = qr_jbool(good && any);
    return rc;
}

const struct qr_jbuiltin qr_jmethods_str_case[] = {
    {.name = "upper", .fn = m_upper},         {.name = "lower", .fn = m_lower},
    {.name = "title", .fn = m_title},         {.name = "capitalize", .fn = m_capitalize},
    {.name = "swapcase", .fn = m_swapcase},   {.name = "casefold", .fn = m_lower},
    {.name = "isupper", .fn = m_isupper},     {.name = "islower", .fn = m_islower},
    {.name = "isdigit", .fn = m_isdigit},     {.name = "isdecimal", .fn = m_isdecimal},
    {.name = "isnumeric", .fn = m_isnumeric}, {.name = "isalpha", .fn = m_isalpha},
    {.name = "isalnum", .fn = m_isalnum},     {.name = "isspace", .fn = m_isspace},
    {.name = "isascii", .fn = m_isascii},     {.name = "isprintable", .fn = m_isprintable},
    {.name = "istitle", .fn = m_istitle},     {.name = "isidentifier", .fn = m_isidentifier},
};
const int32_t qr_jmethods_str_case_n = QR_COUNT(qr_jmethods_str_case);

/* ---- dicts ---- */

static int view(const struct qr_jval *self, enum qr_jview which, struct qr_jval *out)
{
    QR_ASSERT(self->type == QR_J_DICT);
    *out = (struct qr_jval){.type = QR_J_VIEW, .view = (uint8_t)which, .u.d = self->u.d};
    return 0;
}

METHOD(m_keys)
{
    return view(self, QR_JVIEW_KEYS, out);
}

METHOD(m_values)
{
    return view(self, QR_JVIEW_VALUES, out);
}

METHOD(m_items)
{
    return view(self, QR_JVIEW_ITEMS, out);
}

METHOD(m_get)
{
    int rc = qr_jdict_get(c, self->u.d, arg[0], out);
    if (rc == 0 && out->type == QR_J_ABSENT)
        *out = arg[1].type == QR_J_ABSENT ? qr_jnone() : arg[1];
    return rc;
}

METHOD(m_copy) /* nothing changes a value, so it is its own copy */
{
    *out = *self;
    return 0;
}

static const struct qr_jbuiltin of_dict[] = {
    {.name = "items", .fn = m_items},
    {.name = "keys", .fn = m_keys},
    {.name = "values", .fn = m_values},
    {.name = "get", .fn = m_get, .n_required = 1, .param = {"key", "default"}},
    {.name = "copy", .fn = m_copy},
};

/* ---- lists and tuples ---- */

METHOD(m_seq_count)
{
    int64_t n = 0;
    int rc = 0;
    for (int64_t i = 0; i < self->u.seq->n && rc == 0; i++) {
        bool same = false;
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jequal(c, &self->u.seq->at[i], &arg[0], &same);
        n += same;
    }
    *out = qr_jint(n);
    return rc;
}

METHOD(m_seq_index)
{
    int64_t from, step, n;
    struct qr_jval part[3] = {arg[1], arg[2], {0}};
    if (!qr_jindices(part, self->u.seq->n, &from, &step, &n))
        return qr_jfail(c, "slice indices must be integers or None");
    for (int64_t i = from; i < from + n; i++) {
        bool same;
        int rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jequal(c, &self->u.seq->at[i], &arg[0], &same);
        if (rc)
            return rc;
        if (same) {
            *out = qr_jint(i);
            return 0;
        }
    }
    return qr_jfail(c, "%s.index(x): x not in %s", qr_jtype_name(self), qr_jtype_name(self));
}

static const struct qr_jbuiltin of_list[] = {
    {.name = "count", .fn = m_seq_count, .n_required = 1, .param = {"value"}},
    {.name = "index", .fn = m_seq_index, .n_required = 1, .param = {"value", "start", "stop"}},
    {.name = "copy", .fn = m_copy},
};

/* ---- floats, loops, cyclers ---- */

METHOD(m_is_integer)
{
    *out = qr_jbool(self->u.f == floor(self->u.f) && !isinf(self->u.f));
    return 0;
}

static const struct qr_jbuiltin of_float[] = {{.name = "is_integer", .fn = m_is_integer}};

METHOD(m_cycle)
{
    if (raw->n_pos == 0)
        return qr_jfail(c, "no items for cycling given");
    *out = raw->pos[self->u.loop->i % raw->n_pos];
    return 0;
}

METHOD(m_changed)
{
    struct qr_jval now;
    bool same = false;
    struct qr_jloop *loop = self->u.loop;
    struct qr_jbag b = {raw->pos, raw->n_pos, raw->n_pos};
    int rc = qr_jbag_list(c, &b, QR_J_TUPLE, &now);
    if (rc == 0 && loop->changed.type != QR_J_ABSENT)
        rc = qr_jequal(c, &loop->changed, &now, &same);
    if (rc == 0 && !same)
        loop->changed = now;
    *out = qr_jbool(!same);
    return rc;
}

static const struct qr_jbuiltin of_loop[] = {
    {.name = "cycle", .fn = m_cycle, .variadic = true},
    {.name = "changed", .fn = m_changed, .variadic = true},
};

METHOD(m_next)
{
    struct qr_jcycler *cy = self->u.cycler;
    *out = cy->items.at[cy->pos];
    cy->pos = (cy->pos + 1) % cy->items.n;
    return 0;
}

METHOD(m_reset)
{
    self->u.cycler->pos = 0;
    *out = qr_jnone();
    return 0;
}

static const struct qr_jbuiltin of_cycler[] = {{.name = "next", .fn = m_next}, {.name = "reset", .fn = m_reset}};

const struct qr_jbuiltin *qr_jmethod_find(enum qr_jtype type, const char *name, size_t len)
{
    QR_ASSERT(name != NULL || len == 0);
    const struct qr_jbuiltin *m = NULL;
    switch (type) {
    case QR_J_STR:
        m = qr_jbuiltin_find(qr_jmethods_str, qr_jmethods_str_n, name, len);
        return m ? m : qr_jbuiltin_find(qr_jmethods_str_case, qr_jmethods_str_case_n, name, len);
    case QR_J_DICT: return qr_jbuiltin_find(of_dict, QR_COUNT(of_dict), name, len);
    case QR_J_LIST: return qr_jbuiltin_find(of_list, QR_COUNT(of_list), name, len);
    case QR_J_TUPLE: return qr_jbuiltin_find(of_list, 2, name, len);
    case QR_J_FLOAT: return qr_jbuiltin_find(of_float, QR_COUNT(of_float), name, len);
    case QR_J_LOOP: return qr_jbuiltin_find(of_loop, QR_COUNT(of_loop), name, len);
    case QR_J_CYCLER: return qr_jbuiltin_find(of_cycler, QR_COUNT(of_cycler), name, len);
    default: return NULL;
    }
}
