/* derive_calls.c - takes a rendered call apart. Words that no template has (names, keys, values) are found again, and
 * the text between them is the form: what is before the first call and not before the second opens the section, what
 * is between all calls is the call's own, and so on. Pure. */
#include <ctype.h>
#include <stdio.h>

#include "answers/dialect/derive.h"

/* ---- renderings ---- */

#define CALL(id, f, args) "{\"id\":\"" id "\",\"type\":\"function\",\"function\":{\"name\":\"" f "\",\"arguments\":" args "}}"
#define ARG1 "\"" QR_PROBE_A1 "\":\"" QR_PROBE_V1 "\""

static char *render_calls(const struct qr_deriving *v, const char *content, const char *calls)
{
    char message[1024];
    snprintf(message, sizeof message, "{\"role\":\"assistant\"%s,\"tool_calls\":[%s]}", content, calls);
    return qr_probe_render(&v->p, message, NULL, false, QR_PROBE_THINK_UNSAID);
}

static const char *behind_user(const char *text)
{
    const char *user = text ? strstr(text, QR_PROBE_USER) : NULL;
    return user ? user + strlen(QR_PROBE_USER) : NULL;
}

static bool shows_call(const char *text)
{
    const char *s = behind_user(text);
    return s && strstr(s, QR_PROBE_F1) && strstr(s, QR_PROBE_A1);
}

void qr_probe_calls(struct qr_deriving *v)
{
    static const char *const content[] = {",\"content\":null", ",\"content\":\"\"", ""};
    static const char one[] = CALL(QR_PROBE_ID1, QR_PROBE_F1, "{" ARG1 "}");
    for (int i = 0; i < QR_COUNT(content); i++) {
        v->one = render_calls(v, content[i], one);
        if (shows_call(v->one)) {
            v->two = render_calls(v, content[i], CALL(QR_PROBE_ID1, QR_PROBE_F1, "{" ARG1 "}") "," CALL(QR_PROBE_ID2, QR_PROBE_F2, "{" ARG1 "}"));
            v->none = render_calls(v, content[i], CALL(QR_PROBE_ID1, QR_PROBE_F1, "{}"));
            v->pair = render_calls(v, content[i], CALL(QR_PROBE_ID1, QR_PROBE_F1, "{" ARG1 ",\"" QR_PROBE_A2 "\":\"" QR_PROBE_V2 "\"}"));
            v->number = render_calls(v, content[i], CALL(QR_PROBE_ID1, QR_PROBE_F1, "{\"" QR_PROBE_A1 "\":" QR_PROBE_NUMBER "}"));
            char *long_id = render_calls(v, content[i], CALL("call_0123456789abcdef", QR_PROBE_F1, "{" ARG1 "}"));
            v->d->short_ids = !long_id;
            qr_free(long_id);
            if (v->two && !strstr(behind_user(v->two), QR_PROBE_F2)) {
                qr_free(v->two);
                v->two = NULL;
            }
            return;
        }
        qr_free(v->one);
        v->one = NULL;
    }
}

/* ---- slices of a rendering ---- */

static struct qr_slice between(const char *from, const char *to)
{
    QR_ASSERT(from <= to);
    return (struct qr_slice){from, (size_t)(to - from)};
}

static const char *behind(const char *at, const char *word) { return at + strlen(word); }

static char *copy(struct qr_slice s)
{
    char *c = qr_alloc(s.n + 1, 1);
    memcpy(c, s.s, s.n);
    return c;
}

/* The answer's text behind `at`, without what ends a turn. */
static struct qr_slice without_turn_end(const struct qr_deriving *v, const char *at)
{
    char *tail = copy((struct qr_slice){v->tail ? v->tail : "", v->tail ? strlen(v->tail) : 0});
    const size_t n = strlen(at), same = qr_same_back(at, tail);
    struct qr_slice s = {at, n - same};
    tail[strcspn(tail, ">]") + (tail[strcspn(tail, ">]")] ? 1 : 0)] = 0; /* its first marker */
    const char *first = *tail && (*tail == '<' || *tail == '[') ? strstr(at, tail) : NULL;
    if (first && (size_t)(first - at) < s.n)
        s.n = (size_t)(first - at);
    qr_free(tail);
    return s;
}

/* What is around calls: before the first, between two, behind the last. */
struct around {
    struct qr_slice before, between, after;
    bool has_two;
};

static void trim_end(struct qr_slice *s)
{
    while (s->n && qr_is_blank(s->s[s->n - 1]))
        s->n--;
}

/* Splits what is around calls into the section's, the call's own, and the separator. */
static void split_around(struct qr_dialect *d, struct qr_call_form *f, struct around a)
{
    struct qr_slice head = a.before, tail = a.after, sep = {"", 0};
    if (a.has_two) {
        char *before = copy(a.before), *mid = copy(a.between), *after = copy(a.after);
        size_t back = qr_same_back(before, mid), front = qr_same_front(mid, after);
        head = (struct qr_slice){a.before.s + a.before.n - back, back};
        const size_t blanks = qr_blanks(head.s, head.n);
        head.s += blanks;
        head.n = f->array ? 0 : head.n - blanks;
        if (f->array || front + head.n > a.between.n)
            front = f->array ? 0 : a.between.n - head.n;
        tail = (struct qr_slice){a.after.s, front};
        trim_end(&tail);
        sep = (struct qr_slice){a.between.s + tail.n, a.between.n - tail.n - head.n};
        qr_free(before);
        qr_free(mid);
        qr_free(after);
    }
    const struct qr_slice section = {a.before.s, a.before.n - head.n};
    struct qr_slice end = {a.after.s + tail.n, a.after.n - tail.n};
    trim_end(&end);
    if (qr_slice_trim(section).n == 0)
        end.n = 0; /* what opens nothing closes nothing */
    if (head.n == 0 && !a.has_two && section.n == 0)
        tail.n = 0;
    f->section_start = qr_keep_slice(d, section);
    f->section_end = qr_keep_slice(d, end);
    f->call_start = qr_keep_slice(d, head);
    f->call_end = qr_keep_slice(d, tail);
    f->separator = qr_keep_slice(d, sep);
}

/* ---- calls that are JSON objects ---- */

/* The object around the name at `name`, not before `least`; false: it is in none. */
static bool object_around(const char *least, const char *name, struct qr_slice *out)
{
    const char *open = name;
    while (open > least && *open != '{')
        open--;
    size_t end = 0;
    if (*open != '{' || qr_json_skip_value(open, strlen(open), &end) != QR_MATCH_FULL)
        return false;
    *out = (struct qr_slice){open, end};
    return true;
}

/* Names of the call's members, from the object itself. */
static bool read_keys(struct qr_dialect *d, struct qr_call_form *f, struct qr_slice object)
{
    struct qr_json *v;
    struct qr_err err;
    bool named = false;
    if (qr_json_parse(&v, object.s, object.n, &qr_json_limits_request, &err) != 0)
        return false;
    for (const struct qr_json *m = qr_json_first(v); m; m = qr_json_after(m)) {
        const char *key = qr_json_key(m);
        const bool is_args = qr_json_type(m) == QR_JSON_T_OBJECT || (qr_json_type(m) == QR_JSON_T_STRING && strstr(qr_json_str(m, NULL), QR_PROBE_V1));
        if (qr_json_says(m, QR_PROBE_F1)) {
            f->name_key = qr_dialect_keep(d, key, strlen(key));
            named = true;
        } else if (is_args && strcmp(key, QR_PROBE_F1) == 0) {
            f->name_key = "";
            named = true;
        } else if (is_args) {
            f->args_key = qr_dialect_keep(d, key, strlen(key));
        } else if (qr_json_says(m, QR_PROBE_ID1) || strstr(key, "id")) {
            f->id_key = qr_dialect_keep(d, key, strlen(key));
            f->id_first = !named;
        }
    }
    qr_json_free(v);
    return named;
}

static bool derive_object(struct qr_deriving *v, struct qr_call_form *f)
{
    const char *text = v->two ? v->two : v->one, *least = qr_skip_thought(v->d, text + v->start, text + strlen(text));
    const char *name = strstr(least, QR_PROBE_F1), *next = v->two && name ? strstr(name, QR_PROBE_F2) : NULL;
    struct qr_slice one, two = {0};
    if (!name || !object_around(least, name, &one) || one.s + one.n < name || !read_keys(v->d, f, one))
        return false;
    const char *end = one.s + one.n;
    if (next && (!object_around(end, next, &two) || two.s < end))
        return false;
    struct around a = {.before = between(least, one.s), .has_two = next != NULL};
    a.between = next ? between(end, two.s) : (struct qr_slice){"", 0};
    a.after = without_turn_end(v, next ? two.s + two.n : end);
    const struct qr_slice before = qr_slice_trim(a.before), after = qr_slice_trim(a.after);
    f->array = before.n && before.s[before.n - 1] == '[' && after.n && *after.s == ']';
    f->layout = QR_CALL_JSON;
    f->args = QR_ARGS_JSON;
    split_around(v->d, f, a);
    return true;
}

/* ---- calls whose name is text ---- */

/* A call's parts: name, key and value, each where it begins. */
struct parts {
    const char *name, *key, *value;
};

static bool find_parts(struct parts *p, const char *from, const char *name)
{
    p->name = strstr(from, name);
    p->key = p->name ? strstr(p->name, QR_PROBE_A1) : NULL;
    p->value = p->key ? strstr(p->key, QR_PROBE_V1) : NULL;
    return p->value != NULL;
}

/* Whether s is ":" or "=" between a key in quotes and its value. */
static bool is_json_colon(struct qr_slice s)
{
    if (s.n < 2 || *s.s != '"')
        return false;
    s = qr_slice_trim((struct qr_slice){s.s + 1, s.n - 1});
    return s.n && *s.s == ':';
}

/* What is between the name and the arguments: an id, or the name is a part of one. */
static struct qr_slice derive_id(struct qr_dialect *d, struct qr_call_form *f, struct qr_slice gap, struct qr_slice *head)
{
    char *g = copy(gap);
    const char *id = strstr(g, QR_PROBE_ID1);
    size_t skip = 0;
    if (id) {
        f->id_start = qr_dialect_keep(d, g, (size_t)(id - g));
        skip = (size_t)(id - g) + strlen(QR_PROBE_ID1);
    } else if (*g == ':' && isdigit((unsigned char)g[1])) {
        size_t n = head->n;
        while (n > 0 && (isalpha((unsigned char)head->s[n - 1]) || head->s[n - 1] == '.'))
            n--;
        f->id_prefix = qr_dialect_keep(d, head->s + n, head->n - n);
        head->n = n;
        for (skip = 1; isdigit((unsigned char)g[skip]);)
            skip++;
    }
    qr_free(g);
    return (struct qr_slice){gap.s + skip, gap.n - skip};
}

/* JSON behind a name: what is before its brace, and behind it. */
static void derive_json_arguments(struct qr_dialect *d, struct qr_call_form *f, struct qr_slice gap, struct qr_slice *tail)
{
    size_t n = gap.n;
    while (n > 0 && gap.s[n - 1] != '{')
        n--;
    f->args = QR_ARGS_JSON;
    f->name_end = qr_keep_slice(d, (struct qr_slice){gap.s, n ? n - 1 : 0});
    const char *close = memchr(tail->s, '}', tail->n);
    const size_t skip = close ? (size_t)(close - tail->s) + 1 : 0;
    *tail = (struct qr_slice){tail->s + skip, tail->n - skip};
}

/* key=value or key:value, with a bracket around all. */
static bool derive_literals(struct qr_deriving *v, struct qr_call_form *f, struct qr_slice gap, struct qr_slice colon, struct qr_slice *tail)
{
    const char *number = v->number ? strstr(behind_user(v->number), QR_PROBE_NUMBER) : NULL;
    const struct qr_slice g = qr_slice_trim(gap);
    if (!number || g.n == 0 || colon.n == 0 || (*colon.s != '=' && *colon.s != ':'))
        return false;
    const char open = g.s[g.n - 1], close = open == '(' ? ')' : open == '{' ? '}' : 0;
    const char *end = close ? memchr(tail->s, close, tail->n) : NULL;
    if (!end || (number[-1] != '=' && number[-1] != ':' && number[-1] != ' '))
        return false;
    const struct qr_slice quote = qr_slice_trim((struct qr_slice){colon.s + 1, colon.n - 1});
    f->args = QR_ARGS_LOOSE;
    f->assign = *colon.s;
    f->args_start = qr_keep_slice(v->d, g);
    f->args_end = close == ')' ? ")" : "}";
    f->quote = quote.n > 1 ? qr_keep_slice(v->d, quote) : "";
    const size_t skip = (size_t)(end - tail->s) + 1;
    *tail = (struct qr_slice){tail->s + skip, tail->n - skip};
    return true;
}

/* Each argument between markers. */
static bool derive_tagged(struct qr_deriving *v, struct qr_call_form *f, struct qr_slice gap, struct qr_slice colon, struct qr_slice *tail)
{
    struct qr_dialect *d = v->d;
    const char *text = behind_user(v->pair), *v1 = text ? strstr(text, QR_PROBE_V1) : NULL, *a2 = v1 ? strstr(v1, QR_PROBE_A2) : NULL;
    const char *nothing = v->none ? strstr(behind_user(v->none), QR_PROBE_F1) : NULL;
    const char *number = v->number ? strstr(behind_user(v->number), QR_PROBE_NUMBER) : NULL;
    if (!a2 || colon.n == 0)
        return false;
    char *g = copy(gap), *middle = copy(between(behind(v1, QR_PROBE_V1), a2)), *t = copy(*tail);
    const size_t m = strlen(middle);
    size_t start = qr_same_back(g, middle), end = qr_same_front(middle, t);
    if (nothing) { /* what stands behind a name also where no argument follows is the name's */
        const size_t name_end = qr_same_front(g, behind(nothing, QR_PROBE_F1));
        start = start > gap.n - name_end ? gap.n - name_end : start;
    }
    struct qr_slice param = {gap.s + gap.n - start, start};
    const size_t blanks = qr_blanks(param.s, param.n);
    param = (struct qr_slice){param.s + blanks, param.n - blanks};
    end = end + param.n > m ? m - param.n : end;
    struct qr_slice close = {middle, end};
    trim_end(&close);
    f->args = QR_ARGS_TAGGED;
    f->value_lines = colon.s[colon.n - 1] == '\n' && *middle == '\n';
    f->name_end = qr_keep_slice(d, (struct qr_slice){gap.s, gap.n - param.n});
    f->param_start = qr_keep_slice(d, param);
    f->key_end = qr_keep_slice(d, (struct qr_slice){colon.s, colon.n - (f->value_lines ? 1 : 0)});
    f->value_end = qr_keep_slice(d, (struct qr_slice){close.s + (f->value_lines ? 1 : 0), close.n - (f->value_lines ? 1 : 0)});
    f->param_separator = qr_keep_slice(d, (struct qr_slice){middle + close.n, m - close.n - param.n});
    const char *key = number ? strstr(behind_user(v->number), QR_PROBE_A1) : NULL;
    const struct qr_slice plain = key && key < number ? between(behind(key, QR_PROBE_A1), number) : colon;
    if (plain.n != colon.n || memcmp(plain.s, colon.s, plain.n) != 0) {
        f->key_end_text = f->key_end;
        f->key_end = qr_keep_slice(d, (struct qr_slice){plain.s, plain.n - (f->value_lines ? 1 : 0)});
    }
    const bool found = param.n > 0 && *f->value_end && *f->key_end;
    *tail = (struct qr_slice){tail->s + close.n, tail->n - close.n};
    qr_free(g);
    qr_free(middle);
    qr_free(t);
    return found;
}

static bool derive_named(struct qr_deriving *v, struct qr_call_form *f)
{
    struct qr_dialect *d = v->d;
    const char *text = v->two ? v->two : v->one, *least = qr_skip_thought(d, text + v->start, text + strlen(text));
    struct parts one, two = {0};
    if (!find_parts(&one, least, QR_PROBE_F1) || (v->two && !find_parts(&two, one.value, QR_PROBE_F2)))
        return false;
    const char *end = behind(one.value, QR_PROBE_V1);
    struct around a = {.before = between(least, one.name), .has_two = v->two != NULL};
    a.between = v->two ? between(end, two.name) : (struct qr_slice){"", 0};
    a.after = without_turn_end(v, v->two ? behind(two.value, QR_PROBE_V1) : end);
    struct qr_slice head = a.before, tail = a.after;
    const struct qr_slice gap = derive_id(d, f, between(behind(one.name, QR_PROBE_F1), one.key), &head);
    const struct qr_slice colon = between(behind(one.key, QR_PROBE_A1), one.value);
    a.between.n -= v->two ? a.before.n - head.n : 0; /* a prefix of the id is before each name */
    a.before = head;
    f->layout = QR_CALL_NAMED;
    bool found = true;
    if (is_json_colon(colon))
        derive_json_arguments(d, f, gap, &tail);
    else
        found = derive_literals(v, f, gap, colon, &tail) || derive_tagged(v, f, gap, colon, &tail);
    const size_t of_value = (size_t)(tail.s - a.after.s); /* what closes the arguments is not around the call */
    if (!found || (v->two && of_value > a.between.n))
        return false;
    if (v->two)
        a.between = (struct qr_slice){a.between.s + of_value, a.between.n - of_value};
    a.after = tail;
    split_around(d, f, a);
    return true;
}

void qr_derive_calls(struct qr_deriving *v)
{
    QR_ASSERT(v != NULL && v->start > 0);
    struct qr_call_form f = {0};
    const char *text = v->two ? v->two : v->one;
    if (strlen(text) < v->start)
        return;
    const bool found = derive_object(v, &f);
    if (!found)
        f = (struct qr_call_form){0};
    if (found || derive_named(v, &f)) {
        v->d->form[0] = f;
        v->d->n_forms = 1;
        v->d->shows_tools = true;
    }
}
