/* values.c - arguments of calls, on their way to JSON: JSON as it is, JSON inside a string, text between tags by the
 * type that the tool's schema gives it, and literals of Python and of Gemma. Everything is passed on while it comes,
 * but for values whose type has to be found out. */
#include <ctype.h>
#include <stdlib.h>

#include "answers/dialect/reader.h"

/* ---- JSON ---- */

enum qr_match qr_json_skip_value(const char *s, size_t n, size_t *i)
{
    int32_t depth = 0;
    bool in_string = false, escaped = false;
    size_t k = *i;
    for (; k < n; k++) {
        const char c = s[k];
        if (in_string) {
            in_string = escaped || c != '"';
            escaped = !escaped && c == '\\';
            if (!in_string && depth == 0) {
                *i = k + 1;
                return QR_MATCH_FULL;
            }
            continue;
        }
        const bool closes = c == '}' || c == ']';
        if (depth == 0 && k > *i && (closes || c == ',' || qr_is_blank(c))) {
            *i = k;
            return QR_MATCH_FULL; /* a number or a word */
        }
        if (depth == 0 && k == *i && (closes || c == ',' || c == ':'))
            return QR_MATCH_NO;
        in_string = c == '"';
        depth += c == '{' || c == '[' ? 1 : closes ? -1 : 0;
        if (closes && depth == 0) {
            *i = k + 1;
            return QR_MATCH_FULL;
        }
    }
    return QR_MATCH_PART;
}

static int hex4(const char *s)
{
    int v = 0;
    for (int i = 0; i < 4; i++) {
        const char c = s[i];
        if (!isxdigit((unsigned char)c))
            return -1;
        v = v * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
    }
    return v;
}

static void put_rune(struct qr_buf *out, uint32_t c)
{
    if (c < 0x80)
        qr_buf_put_byte(out, (char)c);
    if (c >= 0x80 && c < 0x800)
        qr_buf_put_byte(out, (char)(0xC0 | c >> 6));
    if (c >= 0x800 && c < 0x10000)
        qr_buf_put_byte(out, (char)(0xE0 | c >> 12));
    if (c >= 0x10000) {
        qr_buf_put_byte(out, (char)(0xF0 | c >> 18));
        qr_buf_put_byte(out, (char)(0x80 | (c >> 12 & 63)));
    }
    if (c >= 0x800)
        qr_buf_put_byte(out, (char)(0x80 | (c >> 6 & 63)));
    if (c >= 0x80)
        qr_buf_put_byte(out, (char)(0x80 | (c & 63)));
}

/* An escape by number at s, perhaps a pair: bytes that it takes, 0 where it is cut off. */
static size_t put_unicode(struct qr_buf *out, const char *s, size_t n, bool end)
{
    if (n < 6 && !end)
        return 0;
    const int high = n >= 6 ? hex4(s + 2) : -1;
    if (high < 0) {
        qr_buf_put(out, s, 2);
        return 2;
    }
    if (high < 0xD800 || high > 0xDFFF) {
        put_rune(out, (uint32_t)high);
        return 6;
    }
    if (n < 12 && !end && (n < 7 || s[6] == '\\'))
        return 0;
    const int low = n >= 12 && s[6] == '\\' && s[7] == 'u' ? hex4(s + 8) : -1;
    if (high > 0xDBFF || low < 0xDC00 || low > 0xDFFF) {
        put_rune(out, 0xFFFD);
        return 6;
    }
    put_rune(out, 0x10000 + ((uint32_t)(high - 0xD800) << 10) + (uint32_t)(low - 0xDC00));
    return 12;
}

size_t qr_json_unescape_text(struct qr_buf *out, const char *s, size_t n, bool end)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    for (size_t i = 0; i < n;) {
        if (s[i] != '\\') {
            qr_buf_put_byte(out, s[i++]);
            continue;
        }
        if (n - i < 2) {
            if (!end)
                return n - i;
            break;
        }
        const char *known = strchr(from, s[i + 1]);
        size_t len = 2;
        if (s[i + 1] == 'u')
            len = put_unicode(out, s + i, n - i, end);
        else if (known && s[i + 1])
            qr_buf_put_byte(out, to[known - from]);
        else
            qr_buf_put(out, s + i, 2);
        if (len == 0)
            return n - i;
        i += len;
    }
    return 0;
}

void qr_json_escape_text(struct qr_buf *out, const char *s, size_t n)
{
    static const char from[] = "\"\\\b\f\n\r\t", to[] = "\"\\bfnrt";
    for (size_t i = 0; i < n; i++) {
        const char *known = s[i] ? strchr(from, s[i]) : NULL;
        if (known) {
            qr_buf_put_byte(out, '\\');
            qr_buf_put_byte(out, to[known - from]);
        } else if ((unsigned char)s[i] < 0x20) {
            qr_buf_printf(out, "\\u%04x", (unsigned)s[i]);
        } else {
            qr_buf_put_byte(out, s[i]);
        }
    }
}

static void json_done(struct qr_answer_parser *p)
{
    if (p->r && p->r->form->layout == QR_CALL_JSON && !p->d->heads.start)
        p->state = QR_READ_REST;
    else
        qr_call_end(p, false);
}

/* How many bytes of s[0..n) belong to the value; *done: it is complete. */
static size_t pass_json(struct qr_json_pass *j, const char *s, size_t n, bool *done)
{
    for (size_t i = 0; i < n; i++) {
        const char c = s[i];
        if (j->in_string) {
            j->in_string = j->escaped || c != '"';
            j->escaped = !j->escaped && c == '\\';
        } else {
            j->in_string = c == '"';
            j->depth += c == '{' || c == '[' ? 1 : c == '}' || c == ']' ? -1 : 0;
            if (j->depth == 0 && (c == '}' || c == ']')) {
                *done = true;
                return i + 1;
            }
        }
    }
    return n;
}

/* Arguments that are JSON text in a string. */
static bool step_quoted(struct qr_answer_parser *p)
{
    const char *s = qr_held(p);
    const size_t n = qr_held_len(p);
    size_t k = 0;
    while (k < n && s[k] != '"')
        k += s[k] == '\\' ? 2 : 1;
    const bool done = k < n;
    k = k < n ? k : n;
    qr_buf_clear(&p->out);
    const size_t left = qr_json_unescape_text(&p->out, s, k, done || p->end);
    qr_say(p, QR_PART_ARGUMENTS, p->out.data, p->out.len);
    p->at += k - left + (done ? 1 : 0);
    if (done)
        json_done(p);
    return done;
}

bool qr_step_json(struct qr_answer_parser *p)
{
    if (p->pass.quoted)
        return step_quoted(p);
    if (p->pass.depth == 0)
        p->at += qr_blanks(qr_held(p), qr_held_len(p));
    const char *s = qr_held(p);
    const size_t n = qr_held_len(p);
    if (n == 0)
        return false;
    if (p->pass.depth == 0 && *s == '"') {
        p->pass.quoted = true;
        p->at++;
        return true;
    }
    if (p->pass.depth == 0 && *s != '{') { /* null, or none at all */
        if (n < 4 && !p->end && memcmp(s, "null", n) == 0)
            return false;
        p->at += n >= 4 && memcmp(s, "null", 4) == 0 ? 4 : 0;
        json_done(p);
        return true;
    }
    bool done = false;
    const size_t k = pass_json(&p->pass, s, n, &done);
    qr_say(p, QR_PART_ARGUMENTS, s, k);
    p->at += k;
    if (done)
        json_done(p);
    return done;
}

/* A program, to the call's end or the text's. */
bool qr_step_code(struct qr_answer_parser *p)
{
    const char *s = qr_held(p), *stop = qr_text_of(p->r ? p->r->form->call_end : NULL);
    const size_t n = qr_held_len(p), stop_len = strlen(stop);
    enum qr_match m = QR_MATCH_NO;
    size_t i = 0;
    for (; i < n && stop_len > 0; i++)
        if (s[i] == *stop && (m = qr_match_exactly(s + i, n - i, stop, stop_len)) != QR_MATCH_NO)
            break;
    i = stop_len > 0 ? i : n;
    if ((n == 0 && (!p->end || p->first)) || (i == 0 && m == QR_MATCH_PART && !p->end))
        return false;
    i = m == QR_MATCH_PART && p->end ? n : i;
    qr_buf_clear(&p->out);
    qr_buf_put_str(&p->out, p->first ? "{\"code\": \"" : "");
    qr_json_escape_text(&p->out, s, i);
    p->first = false;
    p->at += i;
    const bool done = m == QR_MATCH_FULL || p->end; /* the end token ends a program, too */
    qr_buf_put_str(&p->out, done ? "\"}" : "");
    qr_say(p, QR_PART_ARGUMENTS, p->out.data, p->out.len);
    if (done)
        qr_call_end(p, false);
    return done;
}

/* ---- types ---- */

static uint32_t type_named(const struct qr_json *v)
{
    static const char *const names[] = {"string", "integer", "number", "boolean", "null", "array", "object"};
    for (int i = 0; i < QR_COUNT(names); i++)
        if (qr_json_says(v, names[i]))
            return 1u << i;
    return 0;
}

static uint32_t type_of_value(const struct qr_json *v)
{
    static const uint32_t of[] = {QR_TYPE_NULL, QR_TYPE_BOOLEAN, QR_TYPE_NUMBER | QR_TYPE_INTEGER, QR_TYPE_STRING, QR_TYPE_ARRAY, QR_TYPE_OBJECT};
    return of[qr_json_type(v)];
}

/* "#/$defs/x" in the tool's parameters. */
static const struct qr_json *follow(const struct qr_json *root, const char *ref)
{
    char name[64];
    if (ref[0] != '#')
        return NULL;
    for (ref++; root && *ref == '/'; ref += strcspn(ref, "/")) {
        const size_t n = strcspn(++ref, "/");
        if (n >= sizeof name)
            return NULL;
        memcpy(name, ref, n);
        name[n] = 0;
        root = qr_json_find(root, name);
    }
    return root;
}

static uint32_t schema_types(const struct qr_json *root, const struct qr_json *schema, int32_t depth)
{
    static const char *const unions[] = {"anyOf", "oneOf", "allOf"};
    if (depth > 8 || !schema || qr_json_type(schema) != QR_JSON_T_OBJECT)
        return 0;
    const struct qr_json *type = qr_json_find(schema, "type"), *values = qr_json_find(schema, "enum"), *one = qr_json_find(schema, "const");
    const char *ref = qr_json_text(qr_json_find(schema, "$ref"), NULL);
    uint32_t types = type ? type_named(type) : 0;
    for (const struct qr_json *t = type ? qr_json_first(type) : NULL; t; t = qr_json_after(t))
        types |= type_named(t);
    if (types)
        return types;
    for (const struct qr_json *v = values ? qr_json_first(values) : NULL; v; v = qr_json_after(v))
        types |= type_of_value(v);
    if (one)
        types |= type_of_value(one);
    if (ref)
        types |= schema_types(root, follow(root, ref), depth + 1);
    for (int i = 0; i < QR_COUNT(unions); i++)
        for (const struct qr_json *b = qr_json_find(schema, unions[i]) ? qr_json_first(qr_json_find(schema, unions[i])) : NULL; b; b = qr_json_after(b)) {
            const uint32_t branch = schema_types(root, b, depth + 1);
            if (branch == 0 && i < 2)
                return 0;
            types |= branch;
        }
    return types;
}

static const struct qr_json *function_of(const struct qr_json *tool)
{
    const struct qr_json *f = qr_json_find(tool, "function");
    return f ? f : tool;
}

static bool names_tool(const struct qr_json *f, const char *name, size_t len)
{
    size_t n;
    const char *s = qr_json_text(qr_json_find(f, "name"), &n);
    return s && n == len && memcmp(s, name, n) == 0;
}

bool qr_tool_known(const struct qr_json *tools, const char *name, size_t len)
{
    QR_ASSERT(tools != NULL);
    for (const struct qr_json *t = qr_json_first(tools); t; t = qr_json_after(t))
        if (names_tool(function_of(t), name, len))
            return true;
    return false;
}

const char *qr_tool_of_code(const struct qr_json *tools)
{
    static const char *const names[] = {"python", "code_interpreter", "ipython"};
    for (int i = 0; i < QR_COUNT(names); i++)
        if (!tools || qr_tool_known(tools, names[i], strlen(names[i])))
            return names[i];
    return NULL;
}

uint32_t qr_tool_types(const struct qr_json *tools, const char *name, const char *key, size_t key_len)
{
    QR_ASSERT(name != NULL && key != NULL);
    for (const struct qr_json *t = tools ? qr_json_first(tools) : NULL; t; t = qr_json_after(t)) {
        const struct qr_json *f = function_of(t), *root = qr_json_find(f, "parameters");
        const struct qr_json *properties = root ? qr_json_find(root, "properties") : NULL;
        if (!properties || !names_tool(f, name, strlen(name)))
            continue;
        for (const struct qr_json *v = qr_json_first(properties); v; v = qr_json_after(v))
            if (strlen(qr_json_key(v)) == key_len && memcmp(qr_json_key(v), key, key_len) == 0)
                return schema_types(root, v, 0);
    }
    return 0;
}
