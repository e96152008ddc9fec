/* write.c - goals, shapes and given values as expressions; a goal that is met again while it is being written becomes a rule. Owned by one build. */
#include "answers/schema/normal.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

#define DEPTH_MAX 400
#define INDENT_MAX 80

int32_t qr_sc_cat3(struct qr_sc *sc, int32_t a, int32_t b, int32_t c)
{
    return qr_expr_cat(sc->x, a, qr_expr_cat(sc->x, b, c));
}

int32_t qr_sc_write_bytes(struct qr_sc *sc, const char *bytes, size_t len, int32_t rest)
{
    QR_ASSERT(sc != NULL && bytes != NULL);
    while (len-- > 0)
        rest = qr_expr_cat(sc->x, qr_expr_range(sc->x, (uint8_t)bytes[len], (uint8_t)bytes[len]), rest);
    return rest;
}

int32_t qr_sc_write_chars(struct qr_sc *sc, const char *text, size_t len, int32_t rest)
{
    QR_ASSERT(sc != NULL && text != NULL);
    while (len > 0) {
        const size_t n = qr_utf8_last(text, len);
        const char *c = text + len - n;
        const bool one_form = *c >= ' ' && *c != '"' && *c != '\\' && *c != 0x7F; /* less work than all forms */
        rest = qr_expr_cat(sc->x, one_form ? qr_expr_range(sc->x, (uint8_t)*c, (uint8_t)*c) : qr_expr_json_text(sc->x, c, n), rest);
        len -= n;
    }
    return rest;
}

/* Any value: a rule, as it holds itself. */
static int32_t any_value(struct qr_sc *sc, const struct qr_sc_words *w)
{
    struct qr_exprs *x = sc->x;
    const int32_t rule = qr_expr_rule(x, "value"), sides[2] = {'{', '}'}, brackets[2] = {'[', ']'};
    struct qr_sc_shape numbers;
    qr_sc_shape_init(&numbers);
    numbers.types = QR_SC_NUMBER;
    int32_t e = qr_sc_cat3(sc, w->quote, qr_expr_repeat(x, qr_expr_json_char(x), 0, QR_REPEAT_FOREVER), w->quote);
    e = qr_expr_or(x, e, qr_expr_or(x, qr_expr_text(x, "null"), qr_expr_or(x, qr_expr_text(x, "false"), qr_expr_text(x, "true"))));
    e = qr_expr_or(x, e, qr_sc_write_number(sc, &numbers));
    for (int i = 0; i < 2; i++) {
        const int32_t *pair = i == 0 ? sides : brackets;
        const int32_t one = i == 0 ? qr_expr_cat(x, w->member, rule) : rule, close = qr_expr_range(x, (uint8_t)pair[1], (uint8_t)pair[1]);
        const int32_t more = qr_expr_repeat(x, qr_expr_cat(x, w->comma, one), 0, QR_REPEAT_FOREVER);
        const int32_t some = qr_sc_cat3(sc, w->open, one, qr_sc_cat3(sc, more, w->close, close));
        e = qr_expr_or(x, e, qr_expr_cat(x, qr_expr_range(x, (uint8_t)pair[0], (uint8_t)pair[0]), qr_expr_or(x, close, some)));
    }
    qr_expr_define(x, rule, e);
    return rule;
}

void qr_sc_words_make(struct qr_sc *sc)
{
    struct qr_exprs *x = sc->x;
    struct qr_sc_words *w = qr_sc_alloc(sc, 1, sizeof *w);
    sc->words = w;
    if (!w)
        return;
    const int32_t space = qr_expr_text(x, " "), tab = qr_expr_text(x, "\t");
    const int32_t indent = qr_expr_or(x, qr_expr_repeat(x, space, 0, INDENT_MAX), qr_expr_repeat(x, tab, 1, INDENT_MAX / 4));
    const bool free = !sc->options.compact && !sc->options.usual;
    const int32_t line = free ? qr_expr_maybe(x, qr_expr_cat(x, qr_expr_text(x, "\n"), indent)) : QR_EXPR_EMPTY;
    const int32_t blank = free ? qr_expr_maybe(x, space) : sc->options.usual ? space : QR_EXPR_EMPTY;
    w->comma = qr_expr_cat(x, qr_expr_text(x, ","), free ? qr_expr_or(x, blank, line) : blank);
    w->colon = qr_expr_cat(x, qr_expr_text(x, ":"), blank);
    w->open = w->close = line;
    w->quote = qr_expr_text(x, "\"");
    w->number = w->integer = w->fraction = -1;
    const int32_t inside = qr_expr_repeat(x, qr_expr_json_char(x), 0, QR_REPEAT_FOREVER);
    w->member = qr_sc_cat3(sc, w->quote, inside, qr_expr_cat(x, w->quote, w->colon));
    w->value = any_value(sc, w);
}

/* ---- given values ---- */

/* Not written plainly by everyone. */
static bool is_extreme(const struct qr_json *number)
{
    const double size = fabs(qr_json_f64(number));
    return size != 0 && (size < 1e-3 || size >= 1e15);
}

static int32_t list_value(struct qr_sc *sc, const struct qr_json *v, const char *open, const char *close, int32_t rest)
{
    const bool is_object = open[0] == '{';
    const int32_t n = qr_json_count(v);
    const struct qr_json **part = qr_sc_alloc(sc, (size_t)n + 1, sizeof *part);
    int32_t e = qr_sc_write_bytes(sc, close, 1, rest), i = 0;
    for (const struct qr_json *m = qr_json_first(v); m && part; m = qr_json_after(m))
        part[i++] = m;
    if (n > 0)
        e = qr_expr_cat(sc->x, sc->words->close, e);
    while (i-- > 0 && sc->code == 0) {
        e = qr_sc_write_value(sc, part[i], e);
        if (is_object) {
            e = qr_expr_cat(sc->x, sc->words->quote, qr_expr_cat(sc->x, sc->words->colon, e));
            e = qr_expr_cat(sc->x, sc->words->quote, qr_sc_write_chars(sc, qr_json_key(part[i]), strlen(qr_json_key(part[i])), e));
        }
        e = qr_expr_cat(sc->x, i > 0 ? sc->words->comma : sc->words->open, e);
    }
    return qr_sc_write_bytes(sc, open, 1, e);
}

int32_t qr_sc_write_value(struct qr_sc *sc, const struct qr_json *v, int32_t rest)
{
    QR_ASSERT(sc != NULL && v != NULL);
    size_t len;
    int32_t form[2];
    switch (qr_json_type(v)) {
    case QR_JSON_T_NULL:
        return qr_sc_write_bytes(sc, "null", 4, rest);
    case QR_JSON_T_BOOL:
        return qr_json_bool(v) ? qr_sc_write_bytes(sc, "true", 4, rest) : qr_sc_write_bytes(sc, "false", 5, rest);
    case QR_JSON_T_NUMBER: /* json.dumps writes both forms of numbers of many digits alone: two forms of each number spoil a tree */
        qr_sc_write_equal(sc, v, rest, form);
        return form[0] != QR_EXPR_NONE && rest != QR_EXPR_EMPTY && !is_extreme(v) ? form[0] : qr_expr_or(sc->x, form[0], form[1]);
    case QR_JSON_T_STRING: {
        const char *text = qr_json_str(v, &len);
        return qr_expr_cat(sc->x, sc->words->quote, qr_sc_write_chars(sc, text, len, qr_expr_cat(sc->x, sc->words->quote, rest)));
    }
    case QR_JSON_T_ARRAY:
        return list_value(sc, v, "[", "]", rest);
    default:
        return list_value(sc, v, "{", "}", rest);
    }
}

/* The values of all shapes that are lists of them, as one tree. */
static int32_t write_values(struct qr_sc *sc, struct qr_sc_shape *first)
{
    int32_t n = 0, n_parts = 0;
    for (struct qr_sc_shape *s = first; s; s = s->next)
        n += s->n_values > 0 ? s->n_values : 0;
    int32_t *part = qr_sc_alloc(sc, 2 * (size_t)n + 1, sizeof *part);
    for (struct qr_sc_shape *s = first; s && part; s = s->next) {
        for (int32_t i = 0; i < s->n_values && qr_sc_step(sc, s->value[i], 2); i++) {
            if (qr_json_type(s->value[i]) == QR_JSON_T_NUMBER) {
                qr_sc_write_equal(sc, s->value[i], QR_EXPR_EMPTY, part + n_parts);
                n_parts += 2;
            } else {
                part[n_parts++] = qr_sc_write_value(sc, s->value[i], QR_EXPR_EMPTY);
            }
        }
    }
    return part && sc->code == 0 ? qr_expr_any(sc->x, part, n_parts) : QR_EXPR_NONE;
}

/* ---- shapes and goals ---- */

/* An object or an array that is excluded by its value, and is not empty, cannot be told from others here. */
static void check_excluded(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    for (const struct qr_sc_values *e = s->excluded; e; e = e->next) {
        for (const struct qr_json *v = e->is_list ? qr_json_first(e->json) : e->json; v; v = e->is_list ? qr_json_after(v) : NULL) {
            if ((qr_sc_type_of(sc, v) & s->types & (QR_SC_ARRAY | QR_SC_OBJECT)) && qr_json_count(v) > 0)
                qr_sc_fail(sc, QR_E_UNSUPPORTED, v, "the opposite of a given object or array cannot be enforced");
        }
    }
}

/* Last words on a shape, now that all goals it speaks of can be worked out; false: it has no values. */
static bool settle(struct qr_sc *sc, struct qr_sc_shape *s)
{
    if (qr_sc_shape_dead(sc, s))
        s->n_values = 0;
    if (s->hard && s->n_values != 0) {
        const char *opposite = s->contains && s->hard == s->contains->at ? "" : "the opposite of ";
        qr_sc_fail(sc, QR_E_UNSUPPORTED, s->hard, "%s%s cannot be enforced here", opposite, qr_json_key(s->hard));
        return false;
    }
    if (s->excluded && s->n_values < 0)
        check_excluded(sc, s);
    return s->n_values < 0 && sc->code == 0;
}

static int32_t write_shape(struct qr_sc *sc, struct qr_sc_shape *s)
{
    struct qr_exprs *x = sc->x;
    int32_t e = QR_EXPR_NONE;
    if (s->types & QR_SC_NULL)
        e = qr_expr_text(x, "null");
    if (s->types & QR_SC_FALSE)
        e = qr_expr_or(x, e, qr_expr_text(x, "false"));
    if (s->types & QR_SC_TRUE)
        e = qr_expr_or(x, e, qr_expr_text(x, "true"));
    if (s->types & QR_SC_NUMBER)
        e = qr_expr_or(x, e, qr_sc_write_number(sc, s));
    if (s->types & QR_SC_STRING)
        e = qr_expr_or(x, e, qr_sc_write_string(sc, s));
    if (s->types & QR_SC_ARRAY)
        e = qr_expr_or(x, e, qr_sc_write_array(sc, s));
    if (s->types & QR_SC_OBJECT)
        e = qr_expr_or(x, e, qr_sc_write_object(sc, s));
    return e;
}

int32_t qr_sc_write(struct qr_sc *sc, int32_t goal)
{
    QR_ASSERT(goal >= 0 && goal < sc->n_goals);
    struct qr_sc_goal *g = sc->goal[goal];
    if (goal == QR_SC_GOAL_FALSE || sc->code != 0)
        return QR_EXPR_NONE;
    if (goal == QR_SC_GOAL_TRUE)
        return sc->words->value;
    if (g->expr >= 0)
        return g->expr;
    if (g->writing) {
        if (g->rule < 0)
            g->rule = qr_expr_rule(sc->x, "schema");
        return g->rule;
    }
    const struct qr_json *at = sc->literal[g->literal[0]].json;
    g->writing = true;
    int32_t e = QR_EXPR_NONE;
    if (++sc->depth > DEPTH_MAX)
        qr_sc_fail(sc, QR_E_TOO_LARGE, at, "the schema is nested more than %d deep when its references are followed", DEPTH_MAX);
    struct qr_sc_shape *first = qr_sc_shapes(sc, goal);
    const int32_t n_beside = sc->n_beside;
    int32_t n = 0;
    for (struct qr_sc_shape *s = first; s; s = s->next)
        n += s->n_values < 0;
    for (struct qr_sc_shape *s = first; s && qr_sc_step(sc, at, 4); s = s->next) {
        sc->n_beside = n;
        if (settle(sc, s))
            e = qr_expr_or(sc->x, e, write_shape(sc, s));
    }
    sc->n_beside = n_beside;
    e = qr_expr_or(sc->x, e, write_values(sc, first));
    sc->depth--;
    if (g->rule >= 0)
        qr_expr_define(sc->x, g->rule, e);
    g->expr = g->rule >= 0 ? g->rule : e;
    g->writing = false;
    return g->expr;
}
