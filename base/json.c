/* The tree behind struct qr_json. It is built from the scan's events, so that the gate is the only parser.
 *
 * A node is a cJSON item that this file fills itself: numbers are "raw" items, which keep their text. Strings may hold
 * U+0000, so lengths are kept beside them in the two fields that such items leave unused:
 *   valueint     bytes in valuestring, or the number of children
 *   valuedouble  bytes in `string`, the member's name
 */
#include "base/json.h"

#include <cjson/cJSON.h>
#include <limits.h>
#include <string.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/json_number.h"
#include "base/mem.h"

static const cJSON *node_of(const struct qr_json *v)
{
    return (const cJSON *)(const void *)v;
}

static const struct qr_json *value_of(const cJSON *node)
{
    return (const struct qr_json *)(const void *)node;
}

/* ---- building ---- */

static void *take_memory(size_t n_bytes)
{
    return qr_realloc(NULL, n_bytes, 1);
}

/* Nodes are memory of requests, too: missing memory ends those, or a start, as everywhere. */
__attribute__((constructor)) static void use_own_memory(void)
{
    cJSON_InitHooks(&(cJSON_Hooks){.malloc_fn = take_memory, .free_fn = qr_free});
}

struct builder {
    cJSON *root, *fresh; /* owned until they are handed out, or put into the tree */
    cJSON *open[QR_JSON_DEPTH_MAX];
    int32_t depth, skipped; /* skipped: open containers of a member that is not wanted, itself among them */
    struct qr_buf key, text; /* the key read last; room for unescaping */
    bool has_key;
    const char *const *wanted; /* borrowed; NULL: all members of the root */
};

static char *copy_bytes(const char *bytes, size_t n)
{
    char *copy = qr_realloc(NULL, n + 1, 1);
    if (n)
        memcpy(copy, bytes, n);
    copy[n] = 0;
    return copy;
}

static void set_text(cJSON *node, int type, const char *bytes, size_t n)
{
    node->type = type;
    node->valuestring = copy_bytes(bytes, n);
    node->valueint = (int)n;
}

static cJSON *node_from(struct builder *b, const struct qr_json_token *t)
{
    cJSON *node = b->fresh = cJSON_CreateNull();
    QR_ASSERT(node != NULL);
    switch (t->event) {
    case QR_JSON_OBJECT_BEGIN: node->type = cJSON_Object; break;
    case QR_JSON_ARRAY_BEGIN: node->type = cJSON_Array; break;
    case QR_JSON_TRUE: node->type = cJSON_True; break;
    case QR_JSON_FALSE: node->type = cJSON_False; break;
    case QR_JSON_NUMBER: set_text(node, cJSON_Raw, t->text, t->len); break;
    case QR_JSON_STRING:
        qr_buf_clear(&b->text);
        if (t->escaped)
            qr_json_unescape(&b->text, t);
        set_text(node, cJSON_String, t->escaped ? b->text.data : t->text, t->escaped ? b->text.len : t->len);
        break;
    default: QR_ASSERT(t->event == QR_JSON_NULL);
    }
    return node;
}

/* Puts a new value where it belongs: the root, or the end of the innermost open container. */
static void place(struct builder *b, cJSON *node)
{
    if (b->has_key) {
        node->string = copy_bytes(b->key.data, b->key.len);
        node->valuedouble = (double)b->key.len;
        b->has_key = false;
    }
    if (b->depth == 0) {
        QR_ASSERT(b->root == NULL);
        b->root = node;
        return;
    }
    cJSON *parent = b->open[b->depth - 1];
    bool added = cJSON_AddItemToArray(parent, node); /* appends to objects as well, and leaves the name alone */
    QR_ASSERT(added);
    parent->valueint++;
}

static bool is_named(const char *name, size_t n, const char *const *names)
{
    for (; *names; names++)
        if (strlen(*names) == n && memcmp(*names, name, n) == 0)
            return true;
    return false;
}

/* Whether what comes belongs to a member of the root that is not wanted. It was scanned all the same: only valid text comes so far. */
static bool skip(struct builder *b, const struct qr_json_token *t)
{
    const bool begins = t->event == QR_JSON_OBJECT_BEGIN || t->event == QR_JSON_ARRAY_BEGIN;
    if (b->skipped > 0) {
        b->skipped += begins ? 1 : t->event == QR_JSON_OBJECT_END || t->event == QR_JSON_ARRAY_END ? -1 : 0;
        return true;
    }
    if (!b->wanted || b->depth != 1 || !b->has_key)
        return false;
    if (is_named(b->key.data, b->key.len, b->wanted))
        return false;
    b->has_key = false;
    b->skipped = begins;
    return true;
}

static void take(struct builder *b, const struct qr_json_token *t)
{
    if (skip(b, t))
        return;
    switch (t->event) {
    case QR_JSON_KEY:
        qr_buf_clear(&b->key);
        qr_json_unescape(&b->key, t);
        b->has_key = true;
        return;
    case QR_JSON_OBJECT_END:
    case QR_JSON_ARRAY_END:
        QR_ASSERT(b->depth > 0);
        b->depth--;
        return;
    default: break;
    }
    qr_account_loose(true); /* a tree is many small blocks */
    cJSON *node = node_from(b, t);
    place(b, node);
    b->fresh = NULL;
    qr_account_loose(false);
    if (t->event == QR_JSON_OBJECT_BEGIN || t->event == QR_JSON_ARRAY_BEGIN)
        b->open[b->depth++] = node;
}

static void free_tree(void *root, size_t n)
{
    cJSON_Delete(root);
}

static void free_building(void *builder, size_t n)
{
    struct builder *b = builder;
    qr_buf_release(&b->text);
    cJSON_Delete(b->fresh);
    cJSON_Delete(b->root);
}

int qr_json_parse(struct qr_json **out, const char *text, size_t len, const struct qr_json_limits *limits, struct qr_err *err)
{
    return qr_json_parse_members(out, text, len, limits, NULL, err);
}

struct parsing {
    struct qr_json **out;
    const char *text;
    size_t len;
    const struct qr_json_limits *limits;
    const char *const *wanted;
    struct qr_err *err;
    int rc;
};

static void parse(void *arg)
{
    struct parsing *p = arg;
    struct builder b = {.wanted = p->wanted};
    struct qr_json_scan *scan = qr_json_scan_new(p->text, p->len, p->limits);
    struct qr_json_token t;
    qr_account_guard(free_building, &b, 0);
    while ((p->rc = qr_json_next(scan, &t, p->err)) == 0 && t.event != QR_JSON_DONE)
        take(&b, &t);
    qr_account_unguard(&b);
    qr_json_scan_free(scan);
    qr_buf_release(&b.key);
    qr_buf_release(&b.text);
    if (p->rc) {
        cJSON_Delete(b.root);
        return;
    }
    qr_account_guard(free_tree, b.root, 0);
    *p->out = (struct qr_json *)(void *)b.root;
}

int qr_json_parse_members(struct qr_json **out, const char *text, size_t len, const struct qr_json_limits *limits, const char *const *wanted,
                          struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(limits != NULL);
    if (len > INT_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "the text has %zu bytes, more than the limit of %d", len, INT_MAX);
    struct parsing p = {.out = out, .text = text, .len = len, .limits = limits, .wanted = wanted, .err = err};
    if (!qr_account_try(parse, &p))
        return qr_err_set(err, QR_E_NO_ROOM, "there is no memory for the values of the text");
    return p.rc;
}

int qr_json_parse_line(struct qr_json **out, const char *line, size_t len, const struct qr_json_limits *limits, struct qr_err *err)
{
    static const char own[] = "line 1, ";
    const int rc = qr_json_parse(out, line, len, limits, err);
    if (rc && strncmp(err->msg, own, sizeof own - 1) == 0)
        memmove(err->msg, err->msg + sizeof own - 1, strlen(err->msg + sizeof own - 1) + 1);
    return rc;
}

int qr_json_parse_file(struct qr_json **out, const char *text, size_t len, const struct qr_json_limits *limits, const char *file, struct qr_err *err)
{
    QR_ASSERT(text != NULL || len == 0);
    QR_ASSERT(file != NULL);
    if (qr_json_parse(out, text ? text : "", len, limits, err) == 0)
        return 0;
    err->code = QR_E_DAMAGED;
    return qr_err_prefix(err, "%s: ", file);
}

void qr_json_free(struct qr_json *root)
{
    qr_account_unguard(root);
    cJSON_Delete((cJSON *)(void *)root);
}

/* ---- reading ---- */

enum qr_json_type qr_json_type(const struct qr_json *v)
{
    QR_ASSERT(v != NULL);
    switch (node_of(v)->type & 0xFF) {
    case cJSON_True:
    case cJSON_False: return QR_JSON_T_BOOL;
    case cJSON_Raw: return QR_JSON_T_NUMBER;
    case cJSON_String: return QR_JSON_T_STRING;
    case cJSON_Array: return QR_JSON_T_ARRAY;
    case cJSON_Object: return QR_JSON_T_OBJECT;
    default: return QR_JSON_T_NULL;
    }
}

const char *qr_json_type_name(enum qr_json_type type)
{
    static const char *const name[] = {"null", "boolean", "number", "string", "array", "object"};
    QR_ASSERT((int)type >= 0 && (int)type < QR_COUNT(name));
    return name[type];
}

const struct qr_json *qr_json_find(const struct qr_json *v, const char *key)
{
    QR_ASSERT(key != NULL);
    if (!v || qr_json_type(v) != QR_JSON_T_OBJECT)
        return NULL;
    size_t len = strlen(key);
    for (const cJSON *m = node_of(v)->child; m; m = m->next)
        if ((size_t)m->valuedouble == len && memcmp(m->string, key, len) == 0)
            return value_of(m);
    return NULL;
}

void qr_json_retain(struct qr_json *v, const char *const *keys)
{
    QR_ASSERT(v != NULL && keys != NULL);
    QR_ASSERT(qr_json_type(v) == QR_JSON_T_OBJECT);
    cJSON *const object = (cJSON *)(void *)v;
    for (cJSON *m = object->child, *next; m; m = next) {
        next = m->next;
        if (is_named(m->string, (size_t)m->valuedouble, keys))
            continue;
        cJSON_Delete(cJSON_DetachItemViaPointer(object, m));
        object->valueint--;
    }
}

void qr_json_forget(struct qr_json *v, const char *key, int32_t depth)
{
    QR_ASSERT(key != NULL);
    QR_ASSERT(depth >= 0 && depth <= QR_JSON_DEPTH_MAX);
    cJSON *const of = (cJSON *)(void *)v;
    for (cJSON *m = of ? of->child : NULL, *next; m; m = next) {
        next = m->next;
        if (qr_json_type(v) == QR_JSON_T_OBJECT && strcmp(m->string, key) == 0) {
            cJSON_Delete(cJSON_DetachItemViaPointer(of, m));
            of->valueint--;
        } else if (depth > 0) {
            qr_json_forget((struct qr_json *)(void *)m, key, depth - 1);
        }
    }
}

static bool is_container(const struct qr_json *v)
{
    enum qr_json_type type = qr_json_type(v);
    return type == QR_JSON_T_ARRAY || type == QR_JSON_T_OBJECT;
}

int32_t qr_json_count(const struct qr_json *v)
{
    return is_container(v) ? (int32_t)node_of(v)->valueint : 0;
}

const struct qr_json *qr_json_first(const struct qr_json *v)
{
    return is_container(v) ? value_of(node_of(v)->child) : NULL;
}

const struct qr_json *qr_json_after(const struct qr_json *v)
{
    QR_ASSERT(v != NULL);
    return value_of(node_of(v)->next);
}

const char *qr_json_key(const struct qr_json *v)
{
    QR_ASSERT(v != NULL);
    return node_of(v)->string;
}

const char *qr_json_str(const struct qr_json *v, size_t *len)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(qr_json_type(v) == QR_JSON_T_STRING);
    if (len)
        *len = (size_t)node_of(v)->valueint;
    return node_of(v)->valuestring;
}

const char *qr_json_text(const struct qr_json *v, size_t *len)
{
    return v && qr_json_type(v) == QR_JSON_T_STRING ? qr_json_str(v, len) : NULL;
}

bool qr_json_says(const struct qr_json *v, const char *text)
{
    QR_ASSERT(text != NULL);
    size_t n;
    const char *s = qr_json_text(v, &n);
    return s && n == strlen(text) && memcmp(s, text, n) == 0;
}

bool qr_json_bool(const struct qr_json *v)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(qr_json_type(v) == QR_JSON_T_BOOL);
    return (node_of(v)->type & 0xFF) == cJSON_True;
}

double qr_json_f64(const struct qr_json *v)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(qr_json_type(v) == QR_JSON_T_NUMBER);
    return qr_json_number_f64(node_of(v)->valuestring, (size_t)node_of(v)->valueint);
}

bool qr_json_i64(const struct qr_json *v, int64_t *out)
{
    QR_ASSERT(v != NULL && out != NULL);
    return qr_json_type(v) == QR_JSON_T_NUMBER &&
           qr_json_number_i64(node_of(v)->valuestring, (size_t)node_of(v)->valueint, out);
}

bool qr_json_is_integer_text(const struct qr_json *v)
{
    QR_ASSERT(v != NULL);
    return qr_json_type(v) == QR_JSON_T_NUMBER &&
           qr_json_number_is_integer(node_of(v)->valuestring, (size_t)node_of(v)->valueint);
}

bool qr_json_is_null(const struct qr_json *v)
{
    return !v || qr_json_type(v) == QR_JSON_T_NULL;
}

static void print_scalar(struct qr_buf *out, const cJSON *node)
{
    switch (node->type & 0xFF) {
    case cJSON_True: qr_buf_put(out, "true", 4); break;
    case cJSON_False: qr_buf_put(out, "false", 5); break;
    case cJSON_Raw: qr_buf_put(out, node->valuestring, (size_t)node->valueint); break;
    case cJSON_String: qr_json_put_str(out, node->valuestring, (size_t)node->valueint); break;
    default: qr_buf_put(out, "null", 4); break;
    }
}

/* Recursion is as deep as the gate allowed: QR_JSON_DEPTH_MAX. */
void qr_json_print(struct qr_buf *out, const struct qr_json *v)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(v != NULL);
    if (!is_container(v)) {
        print_scalar(out, node_of(v));
        return;
    }
    bool is_object = qr_json_type(v) == QR_JSON_T_OBJECT;
    qr_buf_put_byte(out, is_object ? '{' : '[');
    for (const cJSON *m = node_of(v)->child; m; m = m->next) {
        if (is_object) {
            qr_json_put_str(out, m->string, (size_t)m->valuedouble);
            qr_buf_put_byte(out, ':');
        }
        qr_json_print(out, value_of(m));
        if (m->next)
            qr_buf_put_byte(out, ',');
    }
    qr_buf_put_byte(out, is_object ? '}' : ']');
}
