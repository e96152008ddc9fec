/* refs.c - where references lead: to places in the same document, by pointer, by anchor, or by an address that a schema in it has. What lies
 * outside is refused. The document's schemas are walked once; a reference to a place that is no schema by its position (behind an unknown
 * keyword) is followed all the same. Owned by one build. */
#include <string.h>

#include "answers/schema/expand.h"
#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"

#define ADDRESS_MAX 1024
#define WALK_MAX 200000

struct qr_sc_place { const struct qr_json *json; int32_t resource; uint8_t color; };
enum { COLOR_NEW, COLOR_OPEN, COLOR_DONE };

struct qr_sc_anchor { const struct qr_json *json; const char *name; int32_t resource; bool dynamic; };

struct qr_sc_resource { const struct qr_json *json; const char *address; /* absolute or not; "" when unknown */ };

enum below { BELOW_NONE, BELOW_SCHEMA, BELOW_LIST, BELOW_MAP, BELOW_EITHER };

static enum below below_keyword(const char *name)
{
    static const struct { const char *name; enum below below; } known[] = {
        {"properties", BELOW_MAP}, {"items", BELOW_EITHER}, {"definitions", BELOW_MAP}, {"$defs", BELOW_MAP}, {"anyOf", BELOW_LIST}, {"allOf", BELOW_LIST},
        {"oneOf", BELOW_LIST}, {"not", BELOW_SCHEMA}, {"additionalProperties", BELOW_SCHEMA}, {"patternProperties", BELOW_MAP},
        {"prefixItems", BELOW_LIST}, {"additionalItems", BELOW_SCHEMA}, {"if", BELOW_SCHEMA}, {"then", BELOW_SCHEMA}, {"else", BELOW_SCHEMA},
        {"contains", BELOW_SCHEMA}, {"propertyNames", BELOW_SCHEMA}, {"dependentSchemas", BELOW_MAP}, {"dependencies", BELOW_MAP},
        {"unevaluatedItems", BELOW_SCHEMA}, {"unevaluatedProperties", BELOW_SCHEMA}, {"contentSchema", BELOW_SCHEMA},
    };
    for (int i = 0; i < QR_COUNT(known); i++) {
        if (strcmp(name, known[i].name) == 0)
            return known[i].below;
    }
    return BELOW_NONE;
}

/* ---- addresses ---- */

static bool has_scheme(const char *s)
{
    size_t n = 0;
    while ((s[n] >= 'a' && s[n] <= 'z') || (s[n] >= 'A' && s[n] <= 'Z') || (n > 0 && ((s[n] >= '0' && s[n] <= '9') || strchr("+-.", s[n]))))
        if (s[n++] == 0)
            return false;
    return n > 0 && s[n] == ':';
}

/* "." and ".." segments of out's path, from byte `from` on, are taken out. */
static void remove_dots(char *out, size_t from)
{
    char *to = out + from;
    const char *at = out + from;
    while (*at) {
        const char *end = strchr(at + 1, '/');
        const size_t n = end ? (size_t)(end - at) : strlen(at);
        const bool one = n == 2 && memcmp(at, "/.", 2) == 0, two = n == 3 && memcmp(at, "/..", 3) == 0;
        if (two) {
            while (to > out + from && *--to != '/')
                continue;
        }
        if (one || two) {
            if (!end)
                *to++ = '/';
        } else {
            memmove(to, at, n);
            to += n;
        }
        at += n;
    }
    *to = 0;
}

/* out: `ref`, which has no fragment, beside the address `base`, roughly by RFC 3986. False: too long. */
static bool address_of(char out[ADDRESS_MAX], const char *base, const char *ref, size_t ref_len)
{
    size_t keep = strlen(base);
    if (keep + ref_len + 2 > ADDRESS_MAX)
        return false;
    memcpy(out, base, keep + 1);
    if (ref_len == 0)
        return true;
    char first[ADDRESS_MAX];
    memcpy(first, ref, ref_len);
    first[ref_len] = 0;
    const char *authority = strstr(base, "://");
    const char *path = authority ? strchr(authority + 3, '/') : NULL;
    const size_t path_at = path ? (size_t)(path - base) : authority ? keep : 0;
    if (has_scheme(first)) {
        keep = 0;
    } else if (first[0] == '/') {
        keep = path_at;
    } else {
        const char *slash = strrchr(path ? path : authority ? "" : base, '/');
        keep = slash ? (size_t)(slash - base) + 1 : authority ? keep : 0;
        if (authority && !path)
            out[keep++] = '/';
    }
    memcpy(out + keep, first, ref_len + 1);
    if (keep > 0 && strchr(out + path_at, '/') && (authority || out[0] == '/'))
        remove_dots(out, path_at);
    return true;
}

static const char *fragment_of(const char *ref, size_t *len)
{
    const char *hash = strchr(ref, '#');
    *len = hash ? (size_t)(hash - ref) : strlen(ref);
    return hash ? hash + 1 : "";
}

/* ---- the walk ---- */

static struct qr_sc_place *place_of(struct qr_sc *sc, const struct qr_json *json, int32_t resource)
{
    const int32_t found = qr_map_find(&sc->place, (const char *)&json, sizeof json, -1);
    if (found >= 0)
        return &sc->places[found];
    const struct qr_json **key = qr_sc_alloc(sc, 1, sizeof *key);
    if (!key)
        return NULL;
    *key = json;
    qr_map_add(&sc->place, (const char *)key, sizeof *key, sc->n_places);
    sc->places = QR_GROW(sc->places, sc->n_places, sc->places_cap);
    sc->places[sc->n_places] = (struct qr_sc_place){.json = json, .resource = resource, .color = COLOR_NEW};
    return &sc->places[sc->n_places++];
}

static void add_anchor(struct qr_sc *sc, const struct qr_json *json, const char *name, int32_t resource, bool dynamic)
{
    sc->anchor = QR_GROW(sc->anchor, sc->n_anchors, sc->anchors_cap);
    sc->anchor[sc->n_anchors++] = (struct qr_sc_anchor){.json = json, .name = name, .resource = resource, .dynamic = dynamic};
}

/* The resource that the schema is the root of, or that it lies in. */
static int32_t resource_of(struct qr_sc *sc, const struct qr_json *schema, int32_t resource)
{
    char address[ADDRESS_MAX];
    size_t len;
    const struct qr_json *id = qr_json_find(schema, "$id");
    if (!id || qr_json_type(id) != QR_JSON_T_STRING)
        id = qr_json_find(schema, "id");
    if (!id || qr_json_type(id) != QR_JSON_T_STRING || (sc->ref_alone && qr_json_find(schema, "$ref")))
        return resource;
    const char *text = qr_json_str(id, NULL), *fragment = fragment_of(text, &len);
    if (fragment[0] != 0 && fragment[0] != '/')
        add_anchor(sc, schema, fragment, resource, false);
    if (len == 0 || !address_of(address, sc->resource[resource].address, text, len))
        return resource;
    char *kept = qr_sc_alloc(sc, strlen(address) + 1, 1);
    if (!kept)
        return resource;
    memcpy(kept, address, strlen(address) + 1);
    if (schema == sc->root) {
        sc->resource[0].address = kept;
        return 0;
    }
    sc->resource = QR_GROW(sc->resource, sc->n_resources, sc->resources_cap);
    sc->resource[sc->n_resources] = (struct qr_sc_resource){.json = schema, .address = kept};
    return sc->n_resources++;
}

static void walk(struct qr_sc *sc, const struct qr_json *schema, int32_t resource);

static void walk_below(struct qr_sc *sc, const struct qr_json *m, enum below below, int32_t resource)
{
    const bool is_list = qr_json_type(m) == QR_JSON_T_ARRAY;
    if (below == BELOW_SCHEMA || (below == BELOW_EITHER && !is_list)) {
        walk(sc, m, resource);
    } else if (below != BELOW_NONE && (is_list || below == BELOW_MAP)) {
        for (const struct qr_json *v = qr_json_first(m); v; v = qr_json_after(v))
            walk(sc, v, resource);
    }
}

static void walk(struct qr_sc *sc, const struct qr_json *schema, int32_t resource)
{
    if (sc->code != 0 || qr_json_type(schema) != QR_JSON_T_OBJECT || !qr_sc_step(sc, schema, 1))
        return;
    resource = resource_of(sc, schema, resource);
    place_of(sc, schema, resource);
    for (const struct qr_json *m = qr_json_first(schema); m; m = qr_json_after(m)) {
        const char *key = qr_json_key(m);
        if (sc->draft_3 && (strcmp(key, "extends") == 0 || strcmp(key, "disallow") == 0 || strcmp(key, "divisibleBy") == 0))
            qr_sc_fail(sc, QR_E_UNSUPPORTED, m, "%s, of draft 3, cannot be enforced", key);
        if (qr_json_type(m) == QR_JSON_T_STRING && (strcmp(key, "$anchor") == 0 || strcmp(key, "$dynamicAnchor") == 0))
            add_anchor(sc, schema, qr_json_str(m, NULL), resource, key[1] == 'd');
        else if (qr_json_first(m))
            walk_below(sc, m, below_keyword(key), resource);
    }
}

int qr_sc_refs_read(struct qr_sc *sc)
{
    QR_ASSERT(sc != NULL);
    QR_ASSERT(sc->root != NULL);
    const struct qr_json *dialect = qr_json_find(sc->root, "$schema");
    const char *text = dialect && qr_json_type(dialect) == QR_JSON_T_STRING ? qr_json_str(dialect, NULL) : "";
    sc->draft_3 = strstr(text, "draft-03") != NULL;
    sc->draft_4 = sc->draft_3 || strstr(text, "draft-04");
    sc->ref_alone = sc->draft_4 || strstr(text, "draft-06") || strstr(text, "draft-07");
    sc->resource = QR_GROW(sc->resource, sc->n_resources, sc->resources_cap);
    sc->resource[sc->n_resources++] = (struct qr_sc_resource){.json = sc->root, .address = ""};
    walk(sc, sc->root, 0);
    return sc->code;
}

/* ---- following ---- */

/* One segment of a pointer: "%7E" and "~1" undone. False: too long or malformed. */
static bool read_segment(char *out, size_t cap, const char **at)
{
    size_t n = 0;
    const char *s = *at;
    while (*s && *s != '/') {
        char c = *s++;
        if (c == '%') {
            const int high = *s ? qr_hex_digit(s[0]) : -1, low = high >= 0 && s[1] ? qr_hex_digit(s[1]) : -1;
            if (low < 0)
                return false;
            c = (char)(high * 16 + low);
            s += 2;
        }
        if (c == '~') {
            if (*s != '0' && *s != '1')
                return false;
            c = *s++ == '0' ? '~' : '/';
        }
        if (n + 1 >= cap)
            return false;
        out[n++] = c;
    }
    out[n] = 0;
    *at = s;
    return true;
}

static const struct qr_json *element(const struct qr_json *list, const char *digits)
{
    int64_t index = 0;
    for (const char *p = digits; *p; p++) {
        if (*p < '0' || *p > '9' || index > INT32_MAX)
            return NULL;
        index = index * 10 + (*p - '0');
    }
    const struct qr_json *v = qr_json_first(list);
    for (; v && index > 0; index--)
        v = qr_json_after(v);
    return *digits ? v : NULL;
}

/* What the pointer says of the resource; on the way other resources may begin. */
static const struct qr_json *follow_pointer(struct qr_sc *sc, int32_t *resource, const char *pointer)
{
    char name[ADDRESS_MAX];
    const struct qr_json *v = sc->resource[*resource].json;
    while (*pointer == '/' && v) {
        pointer++;
        if (!read_segment(name, sizeof name, &pointer))
            return NULL;
        if (qr_json_type(v) == QR_JSON_T_ARRAY)
            v = element(v, name);
        else
            v = qr_sc_member_find(sc, v, name);
        const int32_t known = v ? qr_map_find(&sc->place, (const char *)&v, sizeof v, -1) : -1;
        if (known >= 0)
            *resource = sc->places[known].resource;
    }
    return *pointer == 0 ? v : NULL;
}

static const struct qr_json *find_anchor(struct qr_sc *sc, int32_t resource, const char *name)
{
    for (int32_t i = 0; i < sc->n_anchors; i++) {
        if (sc->anchor[i].resource == resource && strcmp(sc->anchor[i].name, name) == 0)
            return sc->anchor[i].json;
    }
    return NULL;
}

static int32_t find_resource(struct qr_sc *sc, const char *address)
{
    for (int32_t i = 0; i < sc->n_resources; i++) {
        if (sc->resource[i].address[0] != 0 && strcmp(sc->resource[i].address, address) == 0)
            return i;
    }
    return -1;
}

/* A dynamic reference is one like any other where only one schema in the document has that dynamic anchor. */
static bool is_static(struct qr_sc *sc, const struct qr_json *ref, const char *fragment)
{
    if (strcmp(qr_json_key(ref), "$recursiveRef") == 0)
        return sc->n_resources == 1;
    int32_t n = 0;
    for (int32_t i = 0; i < sc->n_anchors; i++)
        n += sc->anchor[i].dynamic && strcmp(sc->anchor[i].name, fragment) == 0;
    return n <= 1 || strcmp(qr_json_key(ref), "$dynamicRef") != 0;
}

const struct qr_json *qr_sc_ref_target(struct qr_sc *sc, const struct qr_json *schema, const struct qr_json *ref)
{
    QR_ASSERT(schema != NULL && ref != NULL);
    char address[ADDRESS_MAX];
    size_t len;
    if (qr_json_type(ref) != QR_JSON_T_STRING) {
        qr_sc_fail(sc, QR_E_INVALID, ref, "%s must be a string", qr_json_key(ref));
        return NULL;
    }
    const char *text = qr_json_str(ref, NULL), *fragment = fragment_of(text, &len);
    const int32_t known = qr_map_find(&sc->place, (const char *)&schema, sizeof schema, -1);
    int32_t resource = known >= 0 ? sc->places[known].resource : 0;
    if (len > 0) {
        resource = address_of(address, sc->resource[resource].address, text, len) ? find_resource(sc, address) : -1;
        if (resource < 0) {
            qr_sc_fail(sc, QR_E_UNSUPPORTED, ref, "the reference \"%.200s\" leads outside the schema: put what it names under $defs", text);
            return NULL;
        }
    }
    if (!is_static(sc, ref, fragment)) {
        qr_sc_fail(sc, QR_E_UNSUPPORTED, ref, "the dynamic reference \"%.200s\" has several targets", text);
        return NULL;
    }
    const struct qr_json *target =
        fragment[0] == 0 ? sc->resource[resource].json : fragment[0] == '/' ? follow_pointer(sc, &resource, fragment) : find_anchor(sc, resource, fragment);
    if (!qr_sc_is_schema(target)) {
        qr_sc_fail(sc, QR_E_INVALID, ref, "the reference \"%.200s\" leads to no schema", text);
        return NULL;
    }
    if (qr_json_type(target) == QR_JSON_T_OBJECT)
        place_of(sc, target, resource);
    return target;
}

/* ---- references without end ---- */

static void visit(struct qr_sc *sc, const struct qr_json *schema);

static void visit_member(struct qr_sc *sc, const struct qr_json *schema, const struct qr_json *m)
{
    const char *key = qr_json_key(m);
    if (strcmp(key, "$ref") == 0 || strcmp(key, "$dynamicRef") == 0 || strcmp(key, "$recursiveRef") == 0) {
        const struct qr_json *target = qr_sc_ref_target(sc, schema, m);
        if (target)
            visit(sc, target);
    } else if (strcmp(key, "allOf") == 0 || strcmp(key, "anyOf") == 0 || strcmp(key, "oneOf") == 0 || strcmp(key, "dependentSchemas") == 0 ||
               strcmp(key, "dependencies") == 0) {
        for (const struct qr_json *v = qr_json_first(m); v && sc->code == 0; v = qr_json_after(v))
            visit(sc, v);
    } else if (strcmp(key, "not") == 0 || strcmp(key, "if") == 0 || strcmp(key, "then") == 0 || strcmp(key, "else") == 0) {
        visit(sc, m);
    }
}

/* Goes along all that is said of the same value; a schema that is met again on the way down never comes to an end. */
static void visit(struct qr_sc *sc, const struct qr_json *schema)
{
    if (sc->code != 0 || qr_json_type(schema) != QR_JSON_T_OBJECT)
        return;
    const int32_t known = qr_map_find(&sc->place, (const char *)&schema, sizeof schema, -1);
    struct qr_sc_place *p = known >= 0 ? &sc->places[known] : place_of(sc, schema, 0);
    if (!p || p->color == COLOR_DONE)
        return;
    if (p->color == COLOR_OPEN) {
        qr_sc_fail(sc, QR_E_INVALID, schema, "the schema refers to itself for the same value, without end");
        return;
    }
    const int32_t at = (int32_t)(p - sc->places);
    p->color = COLOR_OPEN;
    if (++sc->depth > 400)
        qr_sc_fail(sc, QR_E_TOO_LARGE, schema, "the schema is nested more than 400 deep when its references are followed");
    const struct qr_json *ref = sc->ref_alone ? qr_json_find(schema, "$ref") : NULL;
    if (ref)
        visit_member(sc, schema, ref);
    for (const struct qr_json *m = ref ? NULL : qr_json_first(schema); m && sc->code == 0; m = qr_json_after(m))
        visit_member(sc, schema, m);
    sc->depth--;
    sc->places[at].color = COLOR_DONE;
}

bool qr_sc_check_endless(struct qr_sc *sc, const struct qr_json *schema)
{
    QR_ASSERT(schema != NULL);
    visit(sc, schema);
    return sc->code == 0;
}

void qr_sc_refs_release(struct qr_sc *sc)
{
    qr_map_release(&sc->place);
    qr_free(sc->places);
    qr_free(sc->anchor);
    qr_free(sc->resource);
}
