/* constraint.c - what a request demands of a text, in any of its languages, to a grammar; and the grammars that were compiled before.
 * The store is a list, the latest used first. Under its lock grammars are linked and unlinked, nothing else, so that a thread whose memory is missing
 * never ends with the lock. Any thread. */
#include "answers/constraint.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "answers/grammar/syntax.h"
#include "answers/schema/schema.h"
#include "base/assert.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"

#define CHOICES_MAX 65536
#define ENTRIES_MAX 4096 /* of the store: a list of so many is searched in some 10 us */

/* ---- to an expression ---- */

static int build_schema(int32_t *out, struct qr_exprs *x, const struct qr_constraint *c, struct qr_err *err)
{
    const bool any = c->kind == QR_CONSTRAINT_OBJECT;
    const struct qr_schema_options o = {.strict = c->strict, .compact = c->compact, .plain_integers = c->plain_integers, .object_only = any};
    struct qr_json *schema;
    int rc = qr_json_parse(&schema, any ? "true" : c->text, any ? 4 : c->len, &qr_json_limits_request, err);
    if (rc != 0)
        return qr_err_prefix(err, "the schema is not valid JSON: ");
    rc = qr_schema_build(out, x, schema, &o, err);
    qr_json_free(schema);
    return rc;
}

static int add_choices(int32_t *out, struct qr_exprs *x, const struct qr_json *array, struct qr_err *err)
{
    const int32_t n = qr_json_type(array) == QR_JSON_T_ARRAY ? qr_json_count(array) : 0;
    char at[32];
    if (n < 1 || n > CHOICES_MAX)
        return qr_err_at(err, QR_E_INVALID, "$", "choices must be an array of 1 to %d strings", CHOICES_MAX);
    const char **text = qr_alloc((size_t)n, sizeof *text);
    size_t *len = qr_alloc((size_t)n, sizeof *len);
    int32_t i = 0;
    for (const struct qr_json *v = qr_json_first(array); v; v = qr_json_after(v), i++) {
        text[i] = qr_json_text(v, &len[i]);
        if (text[i])
            continue;
        snprintf(at, sizeof at, "$[%d]", i);
        qr_err_at(err, QR_E_INVALID, at, "a choice must be a string, found a %s", qr_json_type_name(qr_json_type(v)));
        break;
    }
    if (i == n)
        *out = qr_expr_any_text(x, text, len, n);
    qr_free(text);
    qr_free(len);
    return i == n ? 0 : QR_E_INVALID;
}

static int build_choices(int32_t *out, struct qr_exprs *x, const struct qr_constraint *c, struct qr_err *err)
{
    struct qr_json *array;
    int rc = qr_json_parse(&array, c->text, c->len, &qr_json_limits_request, err);
    if (rc != 0)
        return qr_err_prefix(err, "choices are not valid JSON: ");
    rc = add_choices(out, x, array, err);
    qr_json_free(array);
    return rc;
}

static int build_tags(int32_t *out, struct qr_exprs *x, const struct qr_constraint *c, const struct qr_vocab *v, struct qr_err *err)
{
    struct qr_json *tags;
    int rc = qr_json_parse(&tags, c->text, c->len, &qr_json_limits_request, err);
    if (rc != 0)
        return qr_err_prefix(err, "the structural tag is not valid JSON: ");
    rc = qr_tags_build(out, x, tags, v, c->compact, err);
    qr_json_free(tags);
    return rc;
}

/* What guidance says of blanks: it reads the answer again, and where they are not free any others are no match. */
static void set_blanks(struct qr_schema_options *o, const struct qr_json *schema)
{
    const struct qr_json *x = qr_json_type(schema) == QR_JSON_T_OBJECT ? qr_json_find(schema, "x-guidance") : NULL;
    const bool said = x && qr_json_type(x) == QR_JSON_T_OBJECT;
    const struct qr_json *is_free = said ? qr_json_find(x, "whitespace_flexible") : NULL;
    const struct qr_json *comma = said ? qr_json_find(x, "item_separator") : NULL, *colon = said ? qr_json_find(x, "key_separator") : NULL;
    if (!is_free || qr_json_type(is_free) != QR_JSON_T_BOOL || qr_json_bool(is_free) || !comma || !colon)
        return;
    o->usual = qr_json_says(comma, ", ") && qr_json_says(colon, ": ");
    o->compact = qr_json_says(comma, ",") && qr_json_says(colon, ":");
}

/* %json {...} of a Lark grammar. user: the constraint. */
static int build_lark_schema(int32_t *out, struct qr_exprs *x, const struct qr_json *schema, void *user, struct qr_err *err)
{
    const struct qr_constraint *c = user;
    struct qr_schema_options o = {.compact = c->compact, .plain_integers = c->plain_integers};
    set_blanks(&o, schema);
    return qr_schema_build(out, x, schema, &o, err);
}

int qr_constraint_build(int32_t *out, struct qr_exprs *x, const struct qr_constraint *c, const struct qr_vocab *v, struct qr_err *err)
{
    QR_ASSERT(out != NULL && x != NULL && c != NULL);
    QR_ASSERT(c->text != NULL || c->len == 0);
    const char *text = c->text ? c->text : "";
    switch (c->kind) {
    case QR_CONSTRAINT_OBJECT:
    case QR_CONSTRAINT_SCHEMA: return build_schema(out, x, c, err);
    case QR_CONSTRAINT_REGEX: return qr_regex_parse(out, x, text, c->len, QR_REGEX_TEXT, 0, err);
    case QR_CONSTRAINT_CHOICE: return build_choices(out, x, c, err);
    case QR_CONSTRAINT_GBNF: return qr_gbnf_parse(out, x, text, c->len, v, err);
    case QR_CONSTRAINT_LARK: return qr_lark_parse(out, x, text, c->len, v, build_lark_schema, (void *)(uintptr_t)c, err);
    case QR_CONSTRAINT_TAGS: return build_tags(out, x, c, v, err);
    case QR_CONSTRAINT_NONE: break;
    }
    *out = qr_expr_utf8(x);
    return 0;
}

int qr_constraint_compile(struct qr_grammar **out, const struct qr_constraint *c, const struct qr_vocab *v, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(v != NULL && err != NULL);
    struct qr_exprs *x = qr_exprs_new(QR_GRAMMAR_EXPR_BYTES);
    int32_t root;
    int rc = qr_constraint_build(&root, x, c, v, err);
    if (rc == 0)
        return qr_grammar_new(out, x, root, v, 0, err);
    qr_exprs_free(x);
    return rc;
}

/* ---- GBNF or Lark ---- */

static const char *skip_space(const char *s, const char *end, char comment)
{
    while (s < end && (strchr(" \t\r\n", *s) || *s == comment || (*s == '/' && end - s > 1 && s[1] == '/'))) {
        const bool is_comment = *s == comment || *s == '/';
        s++;
        while (is_comment && s < end && *s != '\n')
            s++;
    }
    return s;
}

/* The first rule tells: `name ::=` is GBNF. */
enum qr_constraint_kind qr_constraint_guess(const char *text, size_t len)
{
    QR_ASSERT(text != NULL || len == 0);
    if (len == 0)
        return QR_CONSTRAINT_LARK;
    const char *end = text + len, *s = skip_space(text, end, '#');
    while (s < end && *s && !strchr(" \t\r\n:", *s))
        s++;
    s = s < end ? skip_space(s, end, '#') : s;
    return end - s >= 3 && memcmp(s, "::=", 3) == 0 ? QR_CONSTRAINT_GBNF : QR_CONSTRAINT_LARK;
}

/* ---- the store ---- */

struct entry {
    struct qr_node link;
    struct qr_hash128 key;
    struct qr_grammar *grammar; /* owned, counted */
    size_t bytes;
};

struct qr_grammar_store {
    pthread_mutex_t lock;         /* guards the next three */
    struct qr_node entries;       /* the latest used first */
    size_t bytes;
    int32_t n;
    size_t bytes_max;
    struct qr_hash_secret secret; /* without it a client could prepare two constraints that are one to the store */
};

struct qr_grammar_store *qr_grammar_store_new(size_t bytes_max)
{
    struct qr_grammar_store *s = qr_alloc(1, sizeof *s);
    s->bytes_max = bytes_max;
    pthread_mutex_init(&s->lock, NULL);
    qr_list_init(&s->entries);
    qr_hash_secret_random(&s->secret);
    return s;
}

static void entry_free(struct entry *e)
{
    qr_grammar_unref(e->grammar);
    qr_free(e);
}

void qr_grammar_store_free(struct qr_grammar_store *s)
{
    struct qr_node *node;
    if (!s)
        return;
    while ((node = qr_list_pop_front(&s->entries)) != NULL)
        entry_free(QR_CONTAINER(node, struct entry, link));
    pthread_mutex_destroy(&s->lock);
    qr_free(s);
}

size_t qr_grammar_store_bytes(struct qr_grammar_store *s)
{
    QR_ASSERT(s != NULL);
    pthread_mutex_lock(&s->lock);
    const size_t n = s->bytes;
    pthread_mutex_unlock(&s->lock);
    return n;
}

/* Under the lock: the entry, which becomes the first one. */
static struct entry *find(struct qr_grammar_store *s, const struct qr_hash128 *key)
{
    for (struct qr_node *at = s->entries.next; at != &s->entries; at = at->next) {
        struct entry *e = QR_CONTAINER(at, struct entry, link);
        if (e->key.lo != key->lo || e->key.hi != key->hi)
            continue;
        qr_list_remove(at);
        qr_list_push_front(&s->entries, at);
        return e;
    }
    return NULL;
}

struct qr_grammar *qr_grammar_store_find(struct qr_grammar_store *s, const char *key, size_t len)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(key != NULL);
    const struct qr_hash128 hash = qr_hash128_keyed(key, len, &s->secret);
    pthread_mutex_lock(&s->lock);
    struct entry *e = find(s, &hash);
    struct qr_grammar *g = e ? qr_grammar_ref(e->grammar) : NULL;
    pthread_mutex_unlock(&s->lock);
    return g;
}

/* Under the lock: entries that are in no use leave, the least recently used first, until n more bytes fit. They go to `out`. False: they do not fit. */
static bool make_room(struct qr_grammar_store *s, size_t n, struct qr_node *out)
{
    for (struct qr_node *at = s->entries.prev, *before; at != &s->entries && (s->bytes + n > s->bytes_max || s->n >= ENTRIES_MAX); at = before) {
        struct entry *e = QR_CONTAINER(at, struct entry, link);
        before = at->prev;
        if (qr_grammar_is_shared(e->grammar))
            continue;
        qr_list_remove(at);
        qr_list_push_back(out, at);
        s->bytes -= e->bytes;
        s->n--;
    }
    return s->bytes + n <= s->bytes_max && s->n < ENTRIES_MAX;
}

int qr_grammar_store_add(struct qr_grammar_store *s, const char *key, size_t len, struct qr_grammar *g, struct qr_err *err)
{
    QR_ASSERT(s != NULL && key != NULL);
    QR_ASSERT(g != NULL && err != NULL);
    const size_t n = qr_grammar_bytes(g);
    if (n > s->bytes_max)
        return qr_err_set(err, QR_E_TOO_LARGE, "the grammar takes %zu KiB, and all grammars may take %zu KiB (--grammar-cache)", n >> 10, s->bytes_max >> 10);
    struct qr_node left, *node;
    struct entry *e = qr_alloc(1, sizeof *e);
    *e = (struct entry){.key = qr_hash128_keyed(key, len, &s->secret), .bytes = n};
    qr_list_init(&left);
    pthread_mutex_lock(&s->lock);
    const bool known = find(s, &e->key) != NULL, fits = known || make_room(s, n, &left);
    if (!known && fits) {
        e->grammar = qr_grammar_ref(g);
        qr_list_push_front(&s->entries, &e->link);
        s->bytes += n;
        s->n++;
        e = NULL;
    }
    pthread_mutex_unlock(&s->lock);
    while ((node = qr_list_pop_front(&left)) != NULL)
        entry_free(QR_CONTAINER(node, struct entry, link));
    qr_free(e);
    return fits ? 0 : qr_err_set(err, QR_E_BUSY, "grammars of other requests hold the memory for grammars (--grammar-cache, %zu MiB); try again later",
                                 s->bytes_max >> 20);
}
