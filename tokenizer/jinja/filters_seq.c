/* filters_seq.c - filters on sequences. Where the reference gives a generator, so do these; its items are computed at
 * once. Work is charged as steps (value.c), so that a filter cannot run for ever. Errors of a rendering are values
 * (value.c), so a template can never end the process. The arena is the rendering's own; one thread at a time. */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

#define FILTER(fn) \
    static int fn(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, const struct qr_jargs *raw, \
                  struct qr_jval *out)

static int generator(struct qr_jctx *c, const char *name, const struct qr_jbag *b, struct qr_jval *out)
{
    return qr_jgen_new(c, name, b->at, b->n, out);
}

/* The keyword argument of that name, or NULL. */
static const struct qr_jval *keyword(const struct qr_jargs *a, const char *name)
{
    for (int32_t i = 0; i < a->n_kw; i++) {
        if (strcmp(a->kw[i].name, name) == 0)
            return &a->kw[i].val;
    }
    return NULL;
}

/* The positional arguments from number `used` on, with the keywords. */
static struct qr_jargs rest_of(const struct qr_jargs *a, int32_t used)
{
    struct qr_jargs rest = {NULL, a->kw, 0, a->n_kw};
    if (a->n_pos > used) {
        rest.pos = a->pos + used;
        rest.n_pos = a->n_pos - used;
    }
    return rest;
}

/* A filter or test whose name is a value of the template. */
static int by_name(struct qr_jctx *c, const struct qr_jval *name, bool test, const struct qr_jbuiltin **out)
{
    struct qr_jstr *s;
    int rc = qr_jarg_str(c, name, test ? "a test's name" : "a filter's name", &s);
    if (rc)
        return rc;
    *out = test ? qr_jtest_find(s->u.flat.data, s->len) : qr_jfilter_find(s->u.flat.data, s->len);
    if (!*out)
        return qr_jfail(c, "No %s named '%.*s'.", test ? "test" : "filter", s->len > 60 ? 60 : (int)s->len, s->u.flat.data);
    return 0;
}

/* Items of a value that the filter only looks at when it is true. */
static int items_if_true(struct qr_jctx *c, const struct qr_jval *v, struct qr_jseq *items)
{
    bool truth = false;
    *items = (struct qr_jseq){0};
    int rc = qr_jtruth(c, v, &truth);
    return rc || !truth ? rc : qr_jitems(c, v, items);
}

FILTER(f_map)
{
    struct qr_jseq items;
    struct qr_jbag b = {0};
    const struct qr_jbuiltin *filter = NULL;
    const struct qr_jval *attribute = raw->n_pos == 0 ? keyword(raw, "attribute") : NULL, *fallback = keyword(raw, "default");
    int rc = items_if_true(c, self, &items);
    if (rc == 0 && !attribute && raw->n_pos == 0)
        rc = qr_jfail(c, "map requires a filter argument");
    if (rc == 0 && !attribute)
        rc = by_name(c, &raw->pos[0], false, &filter);
    struct qr_jargs rest = rest_of(raw, 1);
    rc = rc ? rc : qr_jdown(c); /* the filter may be map again: a string's characters have characters, however long the list of names is */
    if (rc)
        return rc;
    for (int64_t i = 0; i < items.n && rc == 0; i++) {
        struct qr_jval v;
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = attribute ? qr_jattr_path(c, &items.at[i], attribute, fallback, &v)
                           : qr_jcall_builtin(c, filter, &items.at[i], &rest, &v);
        if (rc == 0)
            rc = qr_jbag_push(c, &b, v);
    }
    qr_jup(c);
    return rc ? rc : generator(c, "sync_do_map", &b, out);
}

/* select, reject, selectattr, rejectattr: keeps the items whose test answers `want`. */
static int choose(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jargs *raw, bool attr, bool want,
                  const char *name, struct qr_jval *out)
{
    struct qr_jseq items;
    struct qr_jbag b = {0};
    const struct qr_jbuiltin *test = NULL;
    int32_t used = attr;
    int rc = items_if_true(c, self, &items);
    if (rc == 0 && raw->n_pos < used)
        rc = qr_jfail(c, "Missing parameter for attribute name");
    if (rc == 0 && raw->n_pos > used)
        rc = by_name(c, &raw->pos[used++], true, &test);
    struct qr_jargs rest = rest_of(raw, used);
    for (int64_t i = 0; i < items.n && rc == 0; i++) {
        struct qr_jval v = items.at[i], answer;
        bool truth = false;
        rc = qr_jcharge(c, 1);
        if (rc == 0 && attr)
            rc = qr_jattr_path(c, &items.at[i], &raw->pos[0], NULL, &v);
        answer = v;
        if (rc == 0 && test)
            rc = qr_jcall_builtin(c, test, &v, &rest, &answer);
        if (rc == 0)
            rc = qr_jtruth(c, &answer, &truth);
        if (rc == 0 && truth == want)
            rc = qr_jbag_push(c, &b, items.at[i]);
    }
    return rc ? rc : generator(c, name, &b, out);
}

FILTER(f_select)
{
    return choose(c, self, raw, false, true, "select_or_reject", out);
}

FILTER(f_reject)
{
    return choose(c, self, raw, false, false, "select_or_reject", out);
}

FILTER(f_selectattr)
{
    return choose(c, self, raw, true, true, "select_or_reject", out);
}

FILTER(f_rejectattr)
{
    return choose(c, self, raw, true, false, "select_or_reject", out);
}

/* ---- by key ---- */

/* A string in small letters, another value as it is. */
static int fold(struct qr_jctx *c, bool case_sensitive, struct qr_jval *v)
{
    struct qr_jstr *s;
    if (case_sensitive || v->type != QR_J_STR)
        return 0;
    int rc = qr_jstr_flat(c, v->u.s);
    if (rc == 0)
        rc = qr_jcase(c, v->u.s, QR_JCASE_LOWER, &s);
    if (rc == 0)
        *v = qr_jstrv(s);
    return rc;
}

/* The keys of all items under an attribute (ABSENT: the item itself). */
static int keys_of(struct qr_jctx *c, const struct qr_jseq *items, const struct qr_jval *attribute, const struct qr_jval *fallback,
                   bool case_sensitive, struct qr_jval **out)
{
    struct qr_jval *key = qr_jalloc(c, (size_t)items->n, sizeof *key);
    int rc = key ? 0 : QR_E_TOO_LARGE;
    for (int64_t i = 0; i < items->n && rc == 0; i++) {
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jattr_path(c, &items->at[i], attribute, fallback, &key[i]);
        if (rc == 0)
            rc = fold(c, case_sensitive, &key[i]);
    }
    *out = key;
    return rc;
}

/* A copy of items in the order of their keys. */
static int sorted(struct qr_jctx *c, const struct qr_jseq *items, struct qr_jval *key, bool reverse, struct qr_jbag *out)
{
    *out = (struct qr_jbag){qr_jalloc(c, (size_t)items->n, sizeof *out->at), items->n, items->n};
    if (!out->at)
        return QR_E_TOO_LARGE;
    if (items->n > 0)
        memcpy(out->at, items->at, (size_t)items->n * sizeof *out->at);
    return qr_jsort(c, key, out->at, items->n, reverse);
}

static int flag(struct qr_jctx *c, const struct qr_jval *v, bool *out)
{
    *out = false;
    return v->type == QR_J_ABSENT ? 0 : qr_jtruth(c, v, out);
}

/* The reference compares lists of one key: equal keys of a kind that has no order are no error there. */
static int as_lists(struct qr_jctx *c, struct qr_jval *key, int64_t n)
{
    bool ordered = true;
    int rc = 0;
    for (int64_t i = 0; i < n && ordered; i++)
        ordered = key[i].type >= QR_J_BOOL && key[i].type <= QR_J_STR;
    for (int64_t i = 0; i < n && !ordered && rc == 0; i++) {
        struct qr_jval list;
        rc = qr_jseq_new(c, QR_J_LIST, 1, &list);
        if (rc == 0) {
            list.u.seq->at[0] = key[i];
            key[i] = list;
        }
    }
    return rc;
}

/* sort(attribute="a,b"): lists of the keys under each path. */
static int keys_of_many(struct qr_jctx *c, const struct qr_jseq *items, const struct qr_jval *attribute, bool case_sensitive,
                        struct qr_jval **out)
{
    struct qr_jstr *s = attribute->type == QR_J_STR ? attribute->u.s : NULL;
    int rc = s ? qr_jstr_flat(c, s) : 0;
    if (rc)
        return rc;
    if (!s || s->len == 0 || !memchr(s->u.flat.data, ',', s->len)) {
        rc = keys_of(c, items, attribute, NULL, case_sensitive, out);
        return rc ? rc : as_lists(c, *out, items->n);
    }
    int64_t n = 1;
    for (size_t i = 0; i < s->len; i++)
        n += s->u.flat.data[i] == ',';
    struct qr_jval *key = qr_jalloc(c, (size_t)items->n, sizeof *key);
    rc = key ? 0 : QR_E_TOO_LARGE;
    for (int64_t i = 0; i < items->n && rc == 0; i++)
        rc = qr_jseq_new(c, QR_J_LIST, n, &key[i]);
    size_t from = 0;
    for (int64_t k = 0; k < n && rc == 0; k++) {
        const char *comma = memchr(s->u.flat.data + from, ',', s->len - from);
        size_t to = comma ? (size_t)(comma - s->u.flat.data) : s->len;
        struct qr_jstr *path;
        struct qr_jval *part;
        rc = qr_jstr_sub(c, s, from, to, &path);
        struct qr_jval path_val = qr_jstrv(path);
        if (rc == 0)
            rc = keys_of(c, items, &path_val, NULL, case_sensitive, &part);
        for (int64_t i = 0; i < items->n && rc == 0; i++)
            key[i].u.seq->at[k] = part[i];
        from = to + 1;
    }
    *out = key;
    return rc;
}

FILTER(f_sort)
{
    struct qr_jseq items;
    struct qr_jval *key;
    struct qr_jbag b;
    bool reverse, case_sensitive;
    int rc = qr_jitems(c, self, &items);
    if (rc == 0)
        rc = flag(c, &arg[0], &reverse);
    if (rc == 0)
        rc = flag(c, &arg[1], &case_sensitive);
    if (rc == 0)
        rc = keys_of_many(c, &items, &arg[2], case_sensitive, &key);
    if (rc == 0)
        rc = sorted(c, &items, key, reverse, &b);
    return rc ? rc : qr_jbag_list(c, &b, QR_J_LIST, out);
}

FILTER(f_dictsort)
{
    struct qr_jseq items;
    struct qr_jval *key, view = {.type = QR_J_VIEW, .view = QR_JVIEW_ITEMS, .u.d = self->u.d};
    struct qr_jbag b;
    struct qr_jstr *by = NULL;
    bool reverse, case_sensitive;
    if (self->type == QR_J_UNDEF)
        return qr_jfail_undef(c, self);
    if (self->type != QR_J_DICT)
        return qr_jfail(c, "'%s' object has no attribute 'items'", qr_jtype_name(self));
    int rc = qr_jitems(c, &view, &items);
    if (rc == 0)
        rc = flag(c, &arg[0], &case_sensitive);
    if (rc == 0 && arg[1].type != QR_J_ABSENT)
        rc = qr_jarg_str(c, &arg[1], "dictsort's by", &by);
    if (rc == 0)
        rc = flag(c, &arg[2], &reverse);
    if (rc == 0 && by && !qr_jstr_is(by, "key") && !qr_jstr_is(by, "value"))
        rc = qr_jfail(c, "You can only sort by either \"key\" or \"value\"");
    struct qr_jval index = qr_jint(by && rc == 0 && qr_jstr_is(by, "value"));
    if (rc == 0)
        rc = keys_of(c, &items, &index, NULL, case_sensitive, &key);
    if (rc == 0)
        rc = sorted(c, &items, key, reverse, &b);
    return rc ? rc : qr_jbag_list(c, &b, QR_J_LIST, out);
}

FILTER(f_unique)
{
    struct qr_jseq items;
    struct qr_jval *key, seen;
    struct qr_jdict *set;
    struct qr_jbag b = {0};
    bool case_sensitive;
    int rc = qr_jitems(c, self, &items);
    if (rc == 0)
        rc = flag(c, &arg[0], &case_sensitive);
    if (rc == 0)
        rc = keys_of(c, &items, &arg[1], NULL, case_sensitive, &key);
    if (rc == 0)
        rc = qr_jdict_new(c, &set);
    for (int64_t i = 0; i < items.n && rc == 0; i++) {
        rc = qr_jdict_get(c, set, key[i], &seen);
        if (rc || seen.type != QR_J_ABSENT)
            continue;
        rc = qr_jdict_set(c, set, key[i], qr_jnone());
        if (rc == 0)
            rc = qr_jbag_push(c, &b, items.at[i]);
    }
    return rc ? rc : generator(c, "sync_do_unique", &b, out);
}

/* min and max: the first of the extreme items. */
static int extreme(struct qr_jctx *c, const struct qr_jval *self, const struct qr_jval *arg, int sign, struct qr_jval *out)
{
    struct qr_jseq items;
    struct qr_jval *key;
    int64_t best = 0;
    bool case_sensitive;
    int rc = qr_jitems(c, self, &items);
    if (rc == 0)
        rc = flag(c, &arg[0], &case_sensitive);
    if (rc == 0 && items.n == 0)
        return qr_jundef(c, QR_JUNDEF_HINT, QR_J_UNDEF, qr_jnone(), "No aggregated item, sequence was empty.", out);
    if (rc == 0)
        rc = keys_of(c, &items, &arg[1], NULL, case_sensitive, &key);
    for (int64_t i = 1; i < items.n && rc == 0; i++) {
        int order = 0;
        rc = qr_jorder(c, &key[i], &key[best], sign > 0 ? ">" : "<", &order);
        if (order != 2 && order * sign > 0)
            best = i;
    }
    if (rc == 0)
        *out = items.at[best];
    return rc;
}

FILTER(f_min)
{
    return extreme(c, self, arg, -1, out);
}

FILTER(f_max)
{
    return extreme(c, self, arg, 1, out);
}

FILTER(f_sum)
{
    struct qr_jseq items;
    struct qr_jval total = arg[1].type == QR_J_ABSENT ? qr_jint(0) : arg[1];
    int rc = qr_jitems(c, self, &items);
    if (rc == 0 && total.type == QR_J_STR)
        rc = qr_jfail(c, "sum() can't sum strings [use ''.join(seq) instead]");
    for (int64_t i = 0; i < items.n && rc == 0; i++) {
        struct qr_jval v, sum;
        rc = qr_jcharge(c, 1);
        if (rc == 0)
            rc = qr_jattr_path(c, &items.at[i], &arg[0], NULL, &v);
        if (rc == 0)
            rc = qr_jbinary(c, QR_JT_ADD, &total, &v, &sum);
        if (rc == 0)
            total = sum;
    }
    *out = total;
    return rc;
}

/* A groupby pair (grouper, list). */
static int group(struct qr_jctx *c, struct qr_jval key, struct qr_jval *at, int64_t n, struct qr_jval *out)
{
    struct qr_jval list;
    struct qr_jbag b = {at, n, n};
    int rc = qr_jbag_list(c, &b, QR_J_LIST, &list);
    if (rc == 0)
        rc = qr_jseq_new(c, QR_J_TUPLE, 2, out);
    if (rc == 0) {
        out->u.seq->group = true;
        out->u.seq->at[0] = key;
        out->u.seq->at[1] = list;
    }
    return rc;
}

FILTER(f_groupby)
{
    struct qr_jseq items, in_order;
    struct qr_jval *key, pair, first;
    struct qr_jbag b, groups = {0};
    bool case_sensitive;
    int rc = qr_jitems(c, self, &items);
    if (rc == 0)
        rc = flag(c, &arg[2], &case_sensitive);
    if (rc == 0)
        rc = keys_of(c, &items, &arg[0], &arg[1], case_sensitive, &key);
    if (rc == 0)
        rc = sorted(c, &items, key, false, &b);
    if (rc)
        return rc;
    in_order = (struct qr_jseq){b.at, b.n, false};
    rc = keys_of(c, &in_order, &arg[0], &arg[1], case_sensitive, &key);
    for (int64_t from = 0, to; from < b.n && rc == 0; from = to) {
        bool same = true;
        for (to = from; rc == 0 && same && to < b.n; to += same)
            rc = qr_jequal(c, &key[from], &key[to], &same);
        if (rc == 0)
            rc = qr_jattr_path(c, &b.at[from], &arg[0], &arg[1], &first);
        if (rc == 0)
            rc = group(c, first, b.at + from, to - from, &pair);
        if (rc == 0)
            rc = qr_jbag_push(c, &groups, pair);
    }
    return rc ? rc : qr_jbag_list(c, &groups, QR_J_LIST, out);
}

/* ---- in pieces ---- */

/* Appends items[from..to) as a list, with `fill` up to n items when it is given. */
static int push_piece(struct qr_jctx *c, struct qr_jbag *b, const struct qr_jseq *items, int64_t from, int64_t to, int64_t n,
                      const struct qr_jval *fill)
{
    struct qr_jval list;
    int64_t len = to - from;
    if (fill->type != QR_J_ABSENT && fill->type != QR_J_NONE && n > len)
        len = n;
    int rc = qr_jcharge(c, 1 + len / 16);
    if (rc == 0)
        rc = qr_jseq_new(c, QR_J_LIST, len, &list);
    for (int64_t i = 0; i < len && rc == 0; i++)
        list.u.seq->at[i] = from + i < to ? items->at[from + i] : *fill;
    return rc ? rc : qr_jbag_push(c, b, list);
}

FILTER(f_batch)
{
    struct qr_jseq items;
    struct qr_jbag b = {0};
    int64_t n;
    int rc = qr_jitems(c, self, &items);
    if (rc == 0)
        rc = qr_jarg_int(c, &arg[0], 0, &n);
    if (rc == 0 && (n < 1 || n > c->lim->range_max))
        rc = qr_jfail(c, "batch needs a size of 1 to %lld, not %lld", (long long)c->lim->range_max, (long long)n);
    for (int64_t from = 0; rc == 0 && from < items.n; from += n)
        rc = push_piece(c, &b, &items, from, from + n < items.n ? from + n : items.n, n, &arg[1]);
    return rc ? rc : generator(c, "do_batch", &b, out);
}

FILTER(f_slice)
{
    struct qr_jseq items;
    struct qr_jbag b = {0};
    int64_t n;
    int rc = qr_jitems(c, self, &items);
    if (rc == 0)
        rc = qr_jarg_int(c, &arg[0], 0, &n);
    if (rc == 0 && (n < 1 || n > c->lim->range_max))
        rc = qr_jfail(c, "slice needs a count of 1 to %lld, not %lld", (long long)c->lim->range_max, (long long)n);
    int64_t from = 0;
    for (int64_t i = 0; rc == 0 && i < n; i++) {
        int64_t len = items.n / n + (i < items.n % n);
        rc = push_piece(c, &b, &items, from, from + len, i < items.n % n ? 0 : len + 1, &arg[1]);
        from += len;
    }
    return rc ? rc : generator(c, "sync_do_slice", &b, out);
}

const struct qr_jbuiltin qr_jfilters_seq[] = {
    {.name = "map", .fn = f_map, .variadic = true},
    {.name = "select", .fn = f_select, .variadic = true},
    {.name = "reject", .fn = f_reject, .variadic = true},
    {.name = "selectattr", .fn = f_selectattr, .variadic = true},
    {.name = "rejectattr", .fn = f_rejectattr, .variadic = true},
    {.name = "sort", .fn = f_sort, .param = {"reverse", "case_sensitive", "attribute"}},
    {.name = "dictsort", .fn = f_dictsort, .param = {"case_sensitive", "by", "reverse"}},
    {.name = "unique", .fn = f_unique, .param = {"case_sensitive", "attribute"}},
    {.name = "min", .fn = f_min, .param = {"case_sensitive", "attribute"}},
    {.name = "max", .fn = f_max, .param = {"case_sensitive", "attribute"}},
    {.name = "sum", .fn = f_sum, .param = {"attribute", "start"}},
    {.name = "groupby", .fn = f_groupby, .n_required = 1, .param = {"attribute", "default", "case_sensitive"}},
    {.name = "batch", .fn = f_batch, .n_required = 1, .param = {"linecount", "fill_with"}},
    {.name = "slice", .fn = f_slice, .n_required = 1, .param = {"slices", "fill_with"}},
};
const int32_t qr_jfilters_seq_n = QR_COUNT(qr_jfilters_seq);
