/* filters_seq.c - filters on sequences. Where the reference gives a generator, so do these; its items are computed at
 * once. Work is charged as steps (value.c), so that a filter cannot run for ever. An error leaves the rendering
 * (value.h). One thread per rendering. */
#include <string.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

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
static const struct qr_jbuiltin *by_name(struct qr_jctx *c, const struct qr_jval *name, bool test)
{
    const struct qr_jstr *s = qr_jarg_str(c, name, test ? "a test's name" : "a filter's name");
    const struct qr_jbuiltin *b =
        test ? qr_jtest_find(s->u.flat.data, s->len) : qr_jfilter_find(s->u.flat.data, s->len);
    if (!b)
        qr_jfail(c, "No %s named '%.*s'.", test ? "test" : "filter", s->len > 60 ? 60 : (int)s->len, s->u.flat.data);
    return b;
}

/* Items of a value that the filter only looks at when it is true. */
static struct qr_jseq items_if_true(struct qr_jctx *c, const struct qr_jval *v)
{
    return qr_jtruth(v) ? qr_jitems(c, v) : (struct qr_jseq){0};
}

static QR_JBUILTIN(f_map)
{
    struct qr_jbag b = {0};
    const struct qr_jbuiltin *filter = NULL;
    const struct qr_jval *attribute = raw->n_pos == 0 ? keyword(raw, "attribute") : NULL;
    const struct qr_jval *fallback = keyword(raw, "default");
    struct qr_jseq items = items_if_true(c, self);
    if (!attribute && raw->n_pos == 0)
        qr_jfail(c, "map requires a filter argument");
    if (!attribute)
        filter = by_name(c, &raw->pos[0], false);
    struct qr_jargs rest = rest_of(raw, 1);
    qr_jdown(c); /* the filter may be map again: a string's characters have characters */
    for (int64_t i = 0; i < items.n; i++) {
        qr_jcharge(c, 1);
        qr_jbag_push(c, &b, attribute ? qr_jattr_path(c, &items.at[i], attribute, fallback)
                                      : qr_jcall_builtin(c, filter, &items.at[i], &rest));
    }
    qr_jup(c);
    return qr_jgen_new(c, "sync_do_map", b.at, b.n);
}

enum { KEEP_TRUE = 1, OF_ATTR = 2 };

/* select, reject, selectattr, rejectattr: keeps the items (OF_ATTR: those whose attribute) a test answers so. */
static QR_JBUILTIN(f_select)
{
    struct qr_jbag b = {0};
    const struct qr_jbuiltin *test = NULL;
    int32_t used = how & OF_ATTR ? 1 : 0;
    struct qr_jseq items = items_if_true(c, self);
    if (raw->n_pos < used)
        qr_jfail(c, "Missing parameter for attribute name");
    if (raw->n_pos > used)
        test = by_name(c, &raw->pos[used++], true);
    struct qr_jargs rest = rest_of(raw, used);
    for (int64_t i = 0; i < items.n; i++) {
        struct qr_jval v = items.at[i];
        qr_jcharge(c, 1);
        if (how & OF_ATTR)
            v = qr_jattr_path(c, &items.at[i], &raw->pos[0], NULL);
        if (test)
            v = qr_jcall_builtin(c, test, &v, &rest);
        if (qr_jtruth(&v) == ((how & KEEP_TRUE) != 0))
            qr_jbag_push(c, &b, items.at[i]);
    }
    return qr_jgen_new(c, "select_or_reject", b.at, b.n);
}

/* ---- by key ---- */

/* The keys of all items under an attribute (ABSENT: the item itself), strings in small letters unless case counts. */
static struct qr_jval *keys_of(struct qr_jctx *c, const struct qr_jseq *items, const struct qr_jval *attribute,
                               const struct qr_jval *fallback, bool case_sensitive)
{
    struct qr_jval *key = qr_jalloc(c, (size_t)items->n, sizeof *key);
    for (int64_t i = 0; i < items->n; i++) {
        qr_jcharge(c, 1);
        key[i] = qr_jattr_path(c, &items->at[i], attribute, fallback);
        if (!case_sensitive && key[i].type == QR_J_STR)
            key[i] = qr_jstrv(qr_jcase(c, qr_jstr_flat(c, key[i].u.s), QR_JCASE_LOWER));
    }
    return key;
}

/* A copy of items in the order of their keys. */
static struct qr_jseq sorted(struct qr_jctx *c, const struct qr_jseq *items, struct qr_jval *key, bool reverse)
{
    struct qr_jval *at = qr_jgrow(c, items->at, items->n, items->n, sizeof *at);
    qr_jsort(c, key, at, items->n, reverse);
    return (struct qr_jseq){at, items->n, false};
}

/* The reference compares lists of one key: equal keys of a kind that has no order are no error there. */
static void as_lists(struct qr_jctx *c, struct qr_jval *key, int64_t n)
{
    bool ordered = true;
    for (int64_t i = 0; i < n && ordered; i++)
        ordered = key[i].type >= QR_J_BOOL && key[i].type <= QR_J_STR;
    for (int64_t i = 0; i < n && !ordered; i++) {
        struct qr_jval list = qr_jseq_new(c, QR_J_LIST, 1);
        list.u.seq->at[0] = key[i];
        key[i] = list;
    }
}

/* sort(attribute="a,b"): lists of the keys under each path. */
static struct qr_jval *keys_of_many(struct qr_jctx *c, const struct qr_jseq *items, const struct qr_jval *attribute,
                                    bool case_sensitive)
{
    struct qr_jstr *s = attribute->type == QR_J_STR ? qr_jstr_flat(c, attribute->u.s) : NULL;
    int64_t n = 1;
    for (size_t i = 0; s && i < s->len; i++)
        n += s->u.flat.data[i] == ',';
    if (n == 1) {
        struct qr_jval *one = keys_of(c, items, attribute, NULL, case_sensitive);
        as_lists(c, one, items->n);
        return one;
    }
    struct qr_jval *key = qr_jalloc(c, (size_t)items->n, sizeof *key);
    for (int64_t i = 0; i < items->n; i++)
        key[i] = qr_jseq_new(c, QR_J_LIST, n);
    size_t from = 0;
    for (int64_t k = 0; k < n; k++) {
        const char *comma = memchr(s->u.flat.data + from, ',', s->len - from);
        size_t to = comma ? (size_t)(comma - s->u.flat.data) : s->len;
        struct qr_jval path = qr_jstrv(qr_jstr_sub(c, s, from, to));
        struct qr_jval *part = keys_of(c, items, &path, NULL, case_sensitive);
        for (int64_t i = 0; i < items->n; i++)
            key[i].u.seq->at[k] = part[i];
        from = to + 1;
    }
    return key;
}

static QR_JBUILTIN(f_sort)
{
    struct qr_jseq items = qr_jitems(c, self);
    struct qr_jval *key = keys_of_many(c, &items, &arg[2], qr_jarg_flag(&arg[1]));
    items = sorted(c, &items, key, qr_jarg_flag(&arg[0]));
    return qr_jseq_of(c, QR_J_LIST, items.at, items.n);
}

static QR_JBUILTIN(f_dictsort)
{
    struct qr_jval view = {.type = QR_J_VIEW, .view = QR_JVIEW_ITEMS, .u.d = self->u.d};
    if (self->type == QR_J_UNDEF)
        qr_jfail_undef(c, self);
    if (self->type != QR_J_DICT)
        qr_jfail(c, "'%s' object has no attribute 'items'", qr_jtype_name(self));
    struct qr_jseq items = qr_jitems(c, &view);
    const struct qr_jstr *by = qr_jgiven(&arg[1]) ? qr_jarg_str(c, &arg[1], "dictsort's by") : NULL;
    bool by_value = by && qr_jstr_is(by, "value");
    if (by && !by_value && !qr_jstr_is(by, "key"))
        qr_jfail(c, "You can only sort by either \"key\" or \"value\"");
    struct qr_jval index = qr_jint(by_value), *key = keys_of(c, &items, &index, NULL, qr_jarg_flag(&arg[0]));
    items = sorted(c, &items, key, qr_jarg_flag(&arg[2]));
    return qr_jseq_of(c, QR_J_LIST, items.at, items.n);
}

static QR_JBUILTIN(f_unique)
{
    struct qr_jseq items = qr_jitems(c, self);
    struct qr_jval *key = keys_of(c, &items, &arg[1], NULL, qr_jarg_flag(&arg[0]));
    struct qr_jdict *set = qr_jdict_new(c);
    struct qr_jbag b = {0};
    for (int64_t i = 0; i < items.n; i++) {
        struct qr_jval seen = qr_jdict_get(c, set, key[i]);
        if (qr_jgiven(&seen))
            continue;
        qr_jdict_set(c, set, key[i], qr_jnone());
        qr_jbag_push(c, &b, items.at[i]);
    }
    return qr_jgen_new(c, "sync_do_unique", b.at, b.n);
}

/* min and max: the first of the extreme items. how: -1, 1. */
static QR_JBUILTIN(f_extreme)
{
    struct qr_jseq items = qr_jitems(c, self);
    int64_t best = 0;
    if (items.n == 0)
        return qr_jhint(c, "No aggregated item, sequence was empty.");
    struct qr_jval *key = keys_of(c, &items, &arg[1], NULL, qr_jarg_flag(&arg[0]));
    for (int64_t i = 1; i < items.n; i++) {
        int order = qr_jorder(c, &key[i], &key[best], how > 0 ? ">" : "<");
        if (order != 2 && order * how > 0)
            best = i;
    }
    return items.at[best];
}

static QR_JBUILTIN(f_sum)
{
    struct qr_jval total = qr_jgiven(&arg[1]) ? arg[1] : qr_jint(0);
    struct qr_jseq items = qr_jitems(c, self);
    if (total.type == QR_J_STR)
        qr_jfail(c, "sum() can't sum strings [use ''.join(seq) instead]");
    for (int64_t i = 0; i < items.n; i++) {
        qr_jcharge(c, 1);
        struct qr_jval v = qr_jattr_path(c, &items.at[i], &arg[0], NULL);
        total = qr_jbinary(c, QR_JT_ADD, &total, &v);
    }
    return total;
}

static QR_JBUILTIN(f_groupby)
{
    struct qr_jbag groups = {0};
    struct qr_jseq items = qr_jitems(c, self);
    bool case_sensitive = qr_jarg_flag(&arg[2]);
    struct qr_jval *key = keys_of(c, &items, &arg[0], &arg[1], case_sensitive);
    items = sorted(c, &items, key, false);
    key = keys_of(c, &items, &arg[0], &arg[1], case_sensitive);
    for (int64_t from = 0, to; from < items.n; from = to) {
        to = from + 1;
        while (to < items.n && qr_jequal(c, &key[from], &key[to]))
            to++;
        struct qr_jval grouper = qr_jattr_path(c, &items.at[from], &arg[0], &arg[1]);
        struct qr_jval pair = qr_jseq_new(c, QR_J_TUPLE, 2);
        pair.u.seq->group = true;
        pair.u.seq->at[0] = grouper;
        pair.u.seq->at[1] = qr_jseq_of(c, QR_J_LIST, items.at + from, to - from);
        qr_jbag_push(c, &groups, pair);
    }
    return qr_jseq_of(c, QR_J_LIST, groups.at, groups.n);
}

/* ---- in pieces ---- */

/* items[from..to) as a list, with `fill` up to n items when it is given. */
static struct qr_jval piece(struct qr_jctx *c, const struct qr_jseq *items, int64_t from, int64_t to, int64_t n,
                            const struct qr_jval *fill)
{
    int64_t len = to - from;
    if (qr_jset(fill) && n > len)
        len = n;
    qr_jcharge(c, 1 + len / 16);
    struct qr_jval list = qr_jseq_new(c, QR_J_LIST, len);
    for (int64_t i = 0; i < len; i++)
        list.u.seq->at[i] = from + i < to ? items->at[from + i] : *fill;
    return list;
}

static QR_JBUILTIN(f_batch)
{
    struct qr_jbag b = {0};
    struct qr_jseq items = qr_jitems(c, self);
    int64_t n = qr_jarg_int(c, &arg[0], 0);
    if (n < 1 || n > c->lim->range_max)
        qr_jfail(c, "batch needs a size of 1 to %lld, not %lld", (long long)c->lim->range_max, (long long)n);
    for (int64_t from = 0; from < items.n; from += n)
        qr_jbag_push(c, &b, piece(c, &items, from, from + n < items.n ? from + n : items.n, n, &arg[1]));
    return qr_jgen_new(c, "do_batch", b.at, b.n);
}

static QR_JBUILTIN(f_slice)
{
    struct qr_jbag b = {0};
    struct qr_jseq items = qr_jitems(c, self);
    int64_t n = qr_jarg_int(c, &arg[0], 0), from = 0;
    if (n < 1 || n > c->lim->range_max)
        qr_jfail(c, "slice needs a count of 1 to %lld, not %lld", (long long)c->lim->range_max, (long long)n);
    for (int64_t i = 0; i < n; i++) {
        bool longer = i < items.n % n;
        int64_t len = items.n / n + longer;
        qr_jbag_push(c, &b, piece(c, &items, from, from + len, longer ? 0 : len + 1, &arg[1]));
        from += len;
    }
    return qr_jgen_new(c, "sync_do_slice", b.at, b.n);
}

static const struct qr_jbuiltin rows[] = {
    {.name = "map", .fn = f_map, .variadic = true},
    {.name = "select", .fn = f_select, .how = KEEP_TRUE, .variadic = true},
    {.name = "reject", .fn = f_select, .how = 0, .variadic = true},
    {.name = "selectattr", .fn = f_select, .how = OF_ATTR | KEEP_TRUE, .variadic = true},
    {.name = "rejectattr", .fn = f_select, .how = OF_ATTR, .variadic = true},
    {.name = "sort", .fn = f_sort, .param = {"reverse", "case_sensitive", "attribute"}},
    {.name = "dictsort", .fn = f_dictsort, .param = {"case_sensitive", "by", "reverse"}},
    {.name = "unique", .fn = f_unique, .param = {"case_sensitive", "attribute"}},
    {.name = "min", .fn = f_extreme, .how = -1, .param = {"case_sensitive", "attribute"}},
    {.name = "max", .fn = f_extreme, .how = 1, .param = {"case_sensitive", "attribute"}},
    {.name = "sum", .fn = f_sum, .param = {"attribute", "start"}},
    {.name = "groupby", .fn = f_groupby, .n_required = 1, .param = {"attribute", "default", "case_sensitive"}},
    {.name = "batch", .fn = f_batch, .n_required = 1, .param = {"linecount", "fill_with"}},
    {.name = "slice", .fn = f_slice, .n_required = 1, .param = {"slices", "fill_with"}},
};
const struct qr_jtable qr_jfilters_seq = {rows, QR_COUNT(rows)};
