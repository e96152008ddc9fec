/* array.c - the texts of arrays: first items one by one, then items of one kind that are counted. Owned by one build. */
#include "answers/schema/normal.h"

#include "base/assert.h"

#define STATES_MAX 4096
#define UNIQUE_MAX 8

struct writing { struct qr_sc *sc; const struct qr_sc_array *a; };

static int32_t before(const struct writing *w, int32_t n) { return n == 0 ? w->sc->words->open : w->sc->words->comma; }

static int32_t end(const struct writing *w, int32_t n)
{
    const int32_t bracket = qr_expr_text(w->sc->x, "]");
    return n == 0 ? bracket : qr_expr_cat(w->sc->x, w->sc->words->close, bracket);
}

/* From the first item on that has no goal of its own. */
static int32_t rest(const struct writing *w)
{
    struct qr_sc *sc = w->sc;
    const int32_t n = w->a->n_goals, min = w->a->min > n ? w->a->min - n : 0, max = w->a->max == QR_REPEAT_FOREVER ? w->a->max : w->a->max - n;
    const int32_t item = max > 0 ? qr_sc_write(sc, w->a->rest) : QR_EXPR_NONE;
    if (max < 0)
        return QR_EXPR_NONE;
    if (item == QR_EXPR_NONE)
        return min > 0 ? QR_EXPR_NONE : end(w, n);
    const int32_t more = qr_expr_cat(sc->x, sc->words->comma, item);
    if (n > 0)
        return qr_expr_cat(sc->x, qr_expr_repeat(sc->x, more, min, max), end(w, n));
    const int32_t behind_first = qr_expr_repeat(sc->x, more, min > 0 ? min - 1 : 0, max == QR_REPEAT_FOREVER ? max : max - 1);
    const int32_t some = qr_sc_cat3(sc, qr_expr_cat(sc->x, sc->words->open, item), behind_first, end(w, 1));
    return min > 0 ? some : qr_expr_or(sc->x, end(w, 0), some);
}

static int32_t plain(const struct writing *w)
{
    struct qr_sc *sc = w->sc;
    int32_t e = w->a->n_goals <= w->a->max ? rest(w) : QR_EXPR_NONE;
    for (int32_t i = w->a->n_goals - 1; i >= 0 && sc->code == 0; i--) {
        const int32_t stop = i >= w->a->min ? end(w, i) : QR_EXPR_NONE;
        e = i < w->a->max ? qr_expr_or(sc->x, stop, qr_sc_cat3(sc, before(w, i), qr_sc_write(sc, w->a->goal[i]), e)) : stop;
    }
    return e;
}

/* ---- contains ---- */

struct counting {
    struct writing w;
    int32_t n_items, n_seen;   /* items and contained ones are counted up to here */
    int32_t yes, no;           /* literals */
    int32_t *memo;             /* [(n_items + 1) * (n_seen + 1)]; -1: not yet */
};

/* Item i as one that is contained, or one that is not; where contained ones have no upper limit, any item. */
static int32_t item(struct counting *c, int32_t i, bool contained)
{
    const struct qr_sc_array *a = c->w.a;
    const int32_t goal = i < a->n_goals ? a->goal[i] : a->rest;
    if (contained)
        return qr_sc_write(c->w.sc, qr_sc_goal_with(c->w.sc, goal, c->yes));
    return qr_sc_write(c->w.sc, a->contains_max == QR_REPEAT_FOREVER ? goal : qr_sc_goal_with(c->w.sc, goal, c->no));
}

static int32_t from(struct counting *c, int32_t i, int32_t seen)
{
    struct qr_sc *sc = c->w.sc;
    const struct qr_sc_array *a = c->w.a;
    int32_t *memo = &c->memo[i * (c->n_seen + 1) + seen];
    if (*memo >= 0 || !qr_sc_step(sc, NULL, 4))
        return *memo < 0 ? QR_EXPR_NONE : *memo;
    const bool last = i == c->n_items && a->max == QR_REPEAT_FOREVER, enough = seen >= a->contains_min;
    int32_t e = i >= a->min && enough ? end(&c->w, i) : QR_EXPR_NONE;
    const int32_t then = last ? i : i + 1;
    if (i < a->max) {
        const bool at_most = a->contains_max != QR_REPEAT_FOREVER;
        if (seen < c->n_seen)
            e = qr_expr_or(sc->x, e, qr_sc_cat3(sc, before(&c->w, i), item(c, i, true), from(c, then, seen + 1)));
        if (last && i > 0)
            e = qr_expr_cat(sc->x, qr_expr_repeat(sc->x, qr_expr_cat(sc->x, sc->words->comma, item(c, i, false)), 0, QR_REPEAT_FOREVER), e);
        else if (at_most || !last)
            e = qr_expr_or(sc->x, e, qr_sc_cat3(sc, before(&c->w, i), item(c, i, false), from(c, then, seen)));
    }
    return *memo = e;
}

static int32_t with_contains(struct writing *w, const struct qr_sc_shape *s)
{
    struct qr_sc *sc = w->sc;
    const struct qr_sc_array *a = w->a;
    struct counting c = {.w = *w, .yes = a->contains};
    const struct qr_sc_literal *l = &sc->literal[a->contains];
    c.no = a->contains == QR_SC_LIT_FALSE ? QR_SC_LIT_TRUE
                                          : qr_sc_schema_literal(sc, l->json, 0, l->op == QR_SC_OP_SCHEMA);
    c.n_items = a->max != QR_REPEAT_FOREVER ? a->max : a->min > a->n_goals ? a->min : a->n_goals;
    c.n_items = c.n_items < 1 && a->max != 0 ? 1 : c.n_items;
    c.n_seen = a->contains_max != QR_REPEAT_FOREVER ? a->contains_max : a->contains_min;
    c.n_seen = c.n_seen > c.n_items && a->max != QR_REPEAT_FOREVER ? c.n_items + 1 : c.n_seen;
    if (((int64_t)c.n_items + 1) * ((int64_t)c.n_seen + 1) > STATES_MAX) {
        qr_sc_fail(sc, QR_E_TOO_LARGE, s->contains->at, "counting what an array contains takes more than %d states", STATES_MAX);
        return QR_EXPR_NONE;
    }
    const int32_t n = (c.n_items + 1) * (c.n_seen + 1);
    c.memo = qr_sc_alloc(sc, (size_t)n, sizeof *c.memo);
    for (int32_t i = 0; i < n && c.memo; i++)
        c.memo[i] = -1;
    return c.memo ? from(&c, 0, 0) : QR_EXPR_NONE;
}

/* ---- items that differ ---- */

struct unique { struct writing w; int32_t value[UNIQUE_MAX], n; int32_t memo[1 << UNIQUE_MAX]; };

static int32_t distinct(struct unique *u, uint32_t used, int32_t n)
{
    struct qr_sc *sc = u->w.sc;
    if (u->memo[used] >= 0)
        return u->memo[used];
    int32_t e = n >= u->w.a->min ? end(&u->w, n) : QR_EXPR_NONE;
    for (int32_t i = 0; i < u->n && n < u->w.a->max; i++) {
        if (!(used >> i & 1))
            e = qr_expr_or(sc->x, e, qr_sc_cat3(sc, before(&u->w, n), u->value[i], distinct(u, used | 1u << i, n + 1)));
    }
    return u->memo[used] = e;
}

/* All values of a goal where they are few; false: they are not. */
static bool few_values(struct qr_sc *sc, int32_t goal, struct unique *u)
{
    const struct qr_json *known[UNIQUE_MAX];
    int32_t n_known = 0;
    uint32_t types = 0;
    for (struct qr_sc_shape *s = qr_sc_shapes(sc, goal); s; s = s->next) {
        if (s->n_values < 0 && (s->types & ~(uint32_t)(QR_SC_NULL | QR_SC_TRUE | QR_SC_FALSE)))
            return false;
        if (s->n_values < 0)
            types |= s->types;
        for (int32_t i = 0; i < s->n_values; i++) {
            const uint32_t type = qr_sc_type_of(sc, s->value[i]);
            bool seen = false;
            for (int32_t j = 0; j < n_known; j++)
                seen = seen || qr_sc_same(sc, known[j], s->value[i]);
            if (type <= QR_SC_TRUE)
                types |= type;
            else if (!seen && n_known == UNIQUE_MAX)
                return false;
            else if (!seen)
                known[n_known++] = s->value[i];
        }
    }
    static const char *const word[] = {"null", "false", "true"};
    for (int32_t i = 0; i < n_known; i++)
        u->value[u->n++] = qr_sc_write_value(sc, known[i], QR_EXPR_EMPTY);
    for (int32_t i = 0; i < QR_COUNT(word); i++) {
        if ((types >> i & 1) && u->n == UNIQUE_MAX)
            return false;
        if (types >> i & 1)
            u->value[u->n++] = qr_expr_text(sc->x, word[i]);
    }
    return true;
}

static int32_t write_unique(const struct writing *w, const struct qr_sc_shape *s)
{
    struct qr_sc *sc = w->sc;
    struct unique u = {.w = *w};
    for (int32_t i = 0; i < QR_COUNT(u.memo); i++)
        u.memo[i] = -1;
    if (w->a->n_goals > 0 || w->a->contains != QR_SC_LIT_TRUE || w->a->rest == QR_SC_GOAL_TRUE || !few_values(sc, w->a->rest, &u)) {
        qr_sc_fail(sc, QR_E_UNSUPPORTED, s->unique, "uniqueItems cannot be enforced but for items of at most %d values", UNIQUE_MAX);
        return QR_EXPR_NONE;
    }
    return distinct(&u, 0, 0);
}

int32_t qr_sc_write_array(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    QR_ASSERT(sc != NULL && s != NULL);
    struct writing w = {.sc = sc, .a = qr_sc_resolve_array(sc, s)};
    if (!w.a)
        return QR_EXPR_NONE;
    if (w.a->min >= 1 << 20)
        qr_sc_fail(sc, QR_E_TOO_LARGE, NULL, "minItems is more than %d", (1 << 20) - 1);
    if (w.a->min > w.a->max || sc->code != 0)
        return QR_EXPR_NONE;
    const bool short_one = w.a->max <= 1 || (w.a->n_goals <= 1 && w.a->rest == QR_SC_GOAL_FALSE);
    const int32_t e = s->unique && !short_one ? write_unique(&w, s) : w.a->contains != QR_SC_LIT_TRUE ? with_contains(&w, s) : plain(&w);
    return qr_expr_cat(sc->x, qr_expr_text(sc->x, "["), e);
}
