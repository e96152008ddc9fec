/* write.c - goals, shapes and given values as expressions; a goal that is met again while it is being written becomes a rule. Owned by one build. */
#include "answers/schema/normal.h"

#include <string.h>

#include "base/assert.h"

#define DEPTH_MAX 400
#define INDENT_MAX 80

int32_t qr_sc_cat3(struct qr_sc *sc, int32_t a, int32_t b, int32_t c)
{
    return qr_expr_cat(sc->x, a, qr_expr_cat(sc->x, b, c));
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
    const int32_t line = sc->options.compact ? QR_EXPR_EMPTY : qr_expr_maybe(x, qr_expr_cat(x, qr_expr_text(x, "\n"), indent));
    const int32_t maybe_space = sc->options.compact ? QR_EXPR_EMPTY : qr_expr_maybe(x, space);
    w->comma = qr_expr_cat(x, qr_expr_text(x, ","), sc->options.compact ? QR_EXPR_EMPTY : qr_expr_or(x, maybe_space, line));
    w->colon = qr_expr_cat(x, qr_expr_text(x, ":"), maybe_space);
    w->open = w->close = line;
    w->quote = qr_expr_text(x, "\"");
    w->number = w->integer = w->fraction = -1;
    const int32_t inside = qr_expr_repeat(x, qr_expr_json_char(x), 0, QR_REPEAT_FOREVER);
    w->member = qr_sc_cat3(sc, w->quote, inside, qr_expr_cat(x, w->quote, w->colon));
    w->value = any_value(sc, w);
}

/* ---- given values ---- */

static int32_t list_value(struct qr_sc *sc, const struct qr_json *v, const char *open, const char *close)
{
    struct qr_exprs *x = sc->x;
    const bool is_object = open[0] == '{';
    int32_t e = QR_EXPR_EMPTY;
    for (const struct qr_json *m = qr_json_first(v); m && sc->code == 0; m = qr_json_after(m)) {
        int32_t one = qr_sc_write_value(sc, m);
        if (is_object) {
            const int32_t inside = qr_expr_json_text(x, qr_json_key(m), strlen(qr_json_key(m)));
            one = qr_expr_cat(x, qr_sc_cat3(sc, sc->words->quote, inside, qr_expr_cat(x, sc->words->quote, sc->words->colon)), one);
        }
        e = e == QR_EXPR_EMPTY ? one : qr_sc_cat3(sc, e, sc->words->comma, one);
    }
    if (e != QR_EXPR_EMPTY)
        e = qr_sc_cat3(sc, sc->words->open, e, sc->words->close);
    return qr_sc_cat3(sc, qr_expr_text(x, open), e, qr_expr_text(x, close));
}

int32_t qr_sc_write_value(struct qr_sc *sc, const struct qr_json *v)
{
    QR_ASSERT(sc != NULL && v != NULL);
    size_t len;
    switch (qr_json_type(v)) {
    case QR_JSON_T_NULL:
        return qr_expr_text(sc->x, "null");
    case QR_JSON_T_BOOL:
        return qr_expr_text(sc->x, qr_json_bool(v) ? "true" : "false");
    case QR_JSON_T_NUMBER:
        return qr_sc_write_equal(sc, v);
    case QR_JSON_T_STRING: {
        const char *text = qr_json_str(v, &len);
        return qr_sc_cat3(sc, sc->words->quote, qr_expr_json_text(sc->x, text, len), sc->words->quote);
    }
    case QR_JSON_T_ARRAY:
        return list_value(sc, v, "[", "]");
    default:
        return list_value(sc, v, "{", "}");
    }
}

static int32_t write_values(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    int32_t *part = qr_sc_alloc(sc, (size_t)s->n_values + 1, sizeof *part);
    for (int32_t i = 0; i < s->n_values && part; i++)
        part[i] = qr_sc_write_value(sc, s->value[i]);
    return part && sc->code == 0 ? qr_expr_any(sc->x, part, s->n_values) : QR_EXPR_NONE;
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

static int32_t write_shape(struct qr_sc *sc, struct qr_sc_shape *s)
{
    struct qr_exprs *x = sc->x;
    if (qr_sc_shape_dead(sc, s) || sc->code != 0)
        return QR_EXPR_NONE;
    if (s->hard) {
        qr_sc_fail(sc, QR_E_UNSUPPORTED, s->hard, "the opposite of %s cannot be enforced", qr_json_key(s->hard) ? qr_json_key(s->hard) : "this schema");
        return QR_EXPR_NONE;
    }
    if (s->n_values >= 0)
        return write_values(sc, s);
    if (s->excluded)
        check_excluded(sc, s);
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
    for (struct qr_sc_shape *s = qr_sc_shapes(sc, goal); s && qr_sc_step(sc, at, 4); s = s->next)
        e = qr_expr_or(sc->x, e, write_shape(sc, s));
    sc->depth--;
    if (g->rule >= 0)
        qr_expr_define(sc->x, g->rule, e);
    g->expr = g->rule >= 0 ? g->rule : e;
    g->writing = false;
    return g->expr;
}
