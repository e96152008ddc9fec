/* object.c - the texts of objects: members in their order, each once, then members of other names.
 *
 * The members of one `properties` are a *track*: they come in its order. Where several of them hold for an object (allOf, $ref, options),
 * members of different tracks may mix, as no order of theirs is the right one; a member that is only required is a track of its own, and mixes with
 * members of other names. A state says how far each track is; what may still come in it is one expression, so n optional members of one track
 * take n expressions, not 2^n. Where tracks would make too many states they are put one behind the other. Where members are counted, or some
 * member must be of a kind, there is a state for each count and each set of kinds that have been seen. Owned by one build. */
#include "answers/schema/normal.h"

#include <string.h>

#include "base/assert.h"

#define TRACKS_MAX 12
#define POSITIONS_MAX 1200  /* of all tracks together, as products; */
#define POSITIONS_ALL_MAX 4000 /* and of all objects that are alternatives of one value */
#define STATES_MAX 40000
#define OPTIONAL_MAX 1500   /* members any of which may come next: a mask looks at each */
#define COUNTED_MAX 256     /* members of other names that are counted one by one */
#define MEMBERS_PER_RULE 16 /* of long chains: unions of regular expressions are sorted lists, which a rule ends */

struct track { int32_t first, n, last_required, stride; bool loose; /* mixes with other names */ };

struct writing {
    struct qr_sc *sc;
    const struct qr_sc_object *o;
    int32_t any, some[QR_SC_SOME_MAX]; /* a member of another name: name, colon, value; the same of a kind */
    int32_t n_sets;                    /* of kinds */
    int32_t min, max, cap;             /* cap: counts from here on are one */
    struct track track[TRACKS_MAX];
    int32_t n_tracks, n_positions;
    int32_t *key, *state, *from[TRACKS_MAX]; /* by position, count and set: what may come; from: of one track */
};

static int32_t key(struct qr_sc *sc, const char *name)
{
    const int32_t behind = qr_expr_cat(sc->x, sc->words->quote, sc->words->colon);
    return qr_expr_cat(sc->x, sc->words->quote, qr_sc_write_chars(sc, name, strlen(name), behind));
}

/* Names that the shape's propertyNames allow, without quotes. */
static int32_t allowed_names(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    struct qr_sc_set set;
    set.n = 0;
    for (const struct qr_sc_literals *l = s->names; l; l = l->next)
        qr_sc_set_add(sc, &set, l->id);
    qr_sc_set_add(sc, &set, qr_sc_literal(sc, &(struct qr_sc_literal){.op = QR_SC_OP_TYPES, .number = QR_SC_STRING}));
    int32_t e = QR_EXPR_NONE;
    for (const struct qr_sc_shape *n = qr_sc_shapes(sc, qr_sc_goal_of(sc, &set)); n && sc->code == 0; n = n->next) {
        if (n->hard)
            qr_sc_fail(sc, QR_E_UNSUPPORTED, n->hard, "the opposite of %s cannot be enforced", qr_json_key(n->hard));
        for (int32_t i = 0; i < n->n_values; i++) {
            size_t len;
            const char *text = qr_json_text(n->value[i], &len);
            if (text)
                e = qr_expr_or(sc->x, e, qr_sc_write_chars(sc, text, len, QR_EXPR_EMPTY));
        }
        if (n->n_values < 0)
            e = qr_expr_or(sc->x, e, qr_sc_write_inside(sc, n));
    }
    return e;
}

/* Names of a class, without quotes. */
static int32_t class_names(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_sc_object *o, const struct qr_sc_class *c)
{
    const bool all_match = c->patterns == (1u << o->n_patterns) - 1;
    int32_t e = s->names    ? allowed_names(sc, s)
                : all_match ? qr_expr_repeat(sc->x, qr_expr_json_char(sc->x), 0, QR_REPEAT_FOREVER)
                            : qr_sc_unbroken(sc->x, true);
    for (int32_t i = 0; i < o->n_patterns && sc->code == 0; i++) {
        const char *pattern = qr_json_key(o->pattern[i]);
        const int32_t p = qr_sc_pattern_expr(sc, o->pattern[i], pattern, strlen(pattern), false);
        e = c->patterns >> i & 1 ? qr_expr_and(sc->x, e, p) : qr_expr_minus(sc->x, e, p);
    }
    int32_t *name = qr_sc_alloc(sc, (size_t)o->n_members + 1, sizeof *name);
    for (int32_t i = 0; i < o->n_members && name; i++)
        name[i] = qr_sc_write_chars(sc, o->member[i].name, strlen(o->member[i].name), QR_EXPR_EMPTY);
    return name && o->n_members > 0 ? qr_expr_minus(sc->x, e, qr_expr_any(sc->x, name, o->n_members)) : e;
}

static void write_others(struct writing *w, const struct qr_sc_shape *s)
{
    struct qr_sc *sc = w->sc;
    w->any = QR_EXPR_NONE;
    for (int32_t j = 0; j < QR_SC_SOME_MAX; j++)
        w->some[j] = QR_EXPR_NONE;
    for (int32_t i = 0; i < w->o->n_classes && sc->code == 0; i++) {
        const struct qr_sc_class *c = &w->o->class[i];
        const int32_t value = qr_sc_write(sc, c->goal);
        if (value == QR_EXPR_NONE)
            continue;
        const int32_t names = class_names(sc, s, w->o, c);
        if (names == QR_EXPR_NONE)
            continue;
        const int32_t name = qr_sc_cat3(sc, sc->words->quote, names, qr_expr_cat(sc->x, sc->words->quote, sc->words->colon));
        w->any = qr_expr_or(sc->x, w->any, qr_expr_cat(sc->x, name, value));
        for (int32_t j = 0; j < w->o->n_some; j++)
            w->some[j] = qr_expr_or(sc->x, w->some[j], qr_expr_cat(sc->x, name, qr_sc_write(sc, c->some[j])));
    }
}

static int32_t before(const struct writing *w, int32_t n) { return n == 0 ? w->sc->words->open : w->sc->words->comma; }

static int32_t end(const struct writing *w, int32_t n)
{
    const int32_t bracket = qr_expr_text(w->sc->x, "}");
    return n == 0 ? bracket : qr_expr_cat(w->sc->x, w->sc->words->close, bracket);
}

/* Members of other names behind n members, when all kinds have been seen. */
static int32_t others(struct writing *w, int32_t n)
{
    struct qr_sc *sc = w->sc;
    const int32_t least = w->min > n ? w->min - n : 0, most = w->max == QR_REPEAT_FOREVER ? w->max : w->max - n;
    if (most <= 0 || w->any == QR_EXPR_NONE)
        return least > 0 || most < 0 ? QR_EXPR_NONE : end(w, n);
    const int32_t more = qr_expr_cat(sc->x, sc->words->comma, w->any), close = end(w, 1);
    if (n > 0)
        return qr_expr_cat(sc->x, qr_expr_repeat(sc->x, more, least, most), close);
    const int32_t behind_first = qr_expr_repeat(sc->x, more, least > 0 ? least - 1 : 0, most == QR_REPEAT_FOREVER ? most : most - 1);
    const int32_t some = qr_sc_cat3(sc, qr_expr_cat(sc->x, sc->words->open, w->any), behind_first, close);
    return least > 0 ? some : qr_expr_or(sc->x, some, end(w, 0));
}

static int32_t as_rule(struct qr_sc *sc, int32_t e)
{
    if (e == QR_EXPR_NONE || sc->code != 0)
        return e;
    const int32_t rule = qr_expr_rule(sc->x, "members");
    qr_expr_define(sc->x, rule, e);
    return rule;
}

/* ---- tracks ---- */

/* Makes tracks of members [first, first + n); loose ones each of its own. */
static void add_track(struct writing *w, int32_t first, int32_t n, bool loose)
{
    QR_ASSERT(w->n_tracks < TRACKS_MAX);
    struct track *t = &w->track[w->n_tracks++];
    *t = (struct track){.first = first, .n = n, .last_required = -1, .loose = loose};
    for (int32_t i = 0; i < n; i++) {
        if (w->o->member[first + i].required)
            t->last_required = i;
    }
}

static bool tracks_fit(struct writing *w)
{
    int64_t n = 1;
    const int32_t n_max = POSITIONS_ALL_MAX / (w->sc->n_beside + 1);
    for (int32_t i = 0; i < w->n_tracks; i++) {
        w->track[i].stride = (int32_t)n;
        n *= w->track[i].n + 1;
        if (n > (n_max < POSITIONS_MAX ? n_max : POSITIONS_MAX) && w->n_tracks > 1)
            return false;
    }
    w->n_positions = (int32_t)n;
    return true;
}

/* The first members up to n_listed are in tracks of their own numbers, of which the last n_joined become one; the others are loose, or another track. */
static bool try_tracks(struct writing *w, int32_t n_listed, int32_t n_joined, bool loose)
{
    const int32_t n = w->o->n_written;
    int32_t n_tracks = 0;
    for (int32_t i = 0; i < n_listed; i++)
        n_tracks += i == 0 || w->o->member[i].track != w->o->member[i - 1].track;
    if (n_tracks - n_joined + 1 + (loose ? n - n_listed : n > n_listed) > TRACKS_MAX)
        return false;
    w->n_tracks = 0;
    for (int32_t i = 0, end; i < n_listed; i = end) {
        for (end = i + 1; end < n_listed && (w->n_tracks >= n_tracks - n_joined || w->o->member[end].track == w->o->member[i].track);)
            end++;
        add_track(w, i, end - i, false);
    }
    for (int32_t i = n_listed; i < n && loose; i++)
        add_track(w, i, 1, true);
    if (!loose && n > n_listed)
        add_track(w, n_listed, n - n_listed, false);
    return tracks_fit(w);
}

static void make_tracks(struct writing *w, bool loose_ok)
{
    const int32_t n = w->o->n_written;
    int32_t n_listed = 0, n_different = 0;
    while (n_listed < n && w->o->member[n_listed].track >= 0) {
        n_different += n_listed == 0 || w->o->member[n_listed].track != w->o->member[n_listed - 1].track;
        n_listed++;
    }
    for (int32_t joined = 1; joined <= n_different + (n_different == 0); joined++) {
        if ((loose_ok && try_tracks(w, n_listed, joined, true)) || try_tracks(w, n_listed, joined, false))
            return;
    }
    w->n_tracks = 0;
    add_track(w, 0, n, false);
    tracks_fit(w);
}

/* ---- states ---- */

static int32_t position_in(const struct track *t, int32_t position) { return position / t->stride % (t->n + 1); }

static int32_t *slot(const struct writing *w, int32_t *of, int32_t position, int32_t n, int32_t set)
{
    return &of[(position * (w->cap + 1) + n) * w->n_sets + set];
}

/* What may come where the next member is of track t. */
static int32_t from_track(struct writing *w, int32_t t, int32_t position, int32_t n, int32_t set)
{
    struct qr_sc *sc = w->sc;
    const struct track *track = &w->track[t];
    const int32_t at = position_in(track, position), next = position + track->stride, n_then = n < w->cap ? n + 1 : n;
    if (at == track->n || n >= w->max)
        return QR_EXPR_NONE;
    const struct qr_sc_member *m = &w->o->member[track->first + at];
    int32_t value = qr_expr_cat(sc->x, qr_sc_write(sc, m->goal), *slot(w, w->state, next, n_then, set));
    for (int32_t j = 0; j < w->o->n_some; j++) {
        if (!(set >> j & 1))
            value = qr_expr_or(sc->x, value, qr_expr_cat(sc->x, qr_sc_write(sc, m->some[j]), *slot(w, w->state, next, n_then, set | 1 << j)));
    }
    const int32_t e = qr_sc_cat3(sc, before(w, n), w->key[track->first + at], value);
    return m->required ? e : qr_expr_or(sc->x, e, *slot(w, w->from[t], next, n, set));
}

/* Which tracks still ask for something, and the position behind all that are not loose. */
struct left { bool listed, loose; bool loose_any; int32_t end; };

static struct left left_at(const struct writing *w, int32_t position)
{
    struct left l = {.end = position};
    for (int32_t i = 0; i < w->n_tracks; i++) {
        const struct track *t = &w->track[i];
        const int32_t at = position_in(t, position);
        if (at <= t->last_required)
            *(t->loose ? &l.loose : &l.listed) = true;
        if (t->loose)
            l.loose_any = l.loose_any || at < t->n;
        else
            l.end += (t->n - at) * t->stride;
    }
    return l;
}

/* The end, and members of other names: behind one of these no listed member comes. */
static int32_t from_others(struct writing *w, int32_t position, int32_t n, int32_t set, int32_t e)
{
    struct qr_sc *sc = w->sc;
    const struct left left = left_at(w, position);
    const int32_t n_then = n < w->cap ? n + 1 : n;
    if (left.end == position && !left.loose_any && set == w->n_sets - 1)
        return others(w, n);
    if (!left.listed && !left.loose && set == w->n_sets - 1 && n >= w->min)
        e = qr_expr_or(sc->x, e, end(w, n));
    if (left.listed || n >= w->max)
        return e;
    for (int32_t j = 0; j < w->o->n_some; j++) {
        if (!(set >> j & 1))
            e = qr_expr_or(sc->x, e, qr_sc_cat3(sc, before(w, n), w->some[j], *slot(w, w->state, left.end, n_then, set | 1 << j)));
    }
    if (w->any == QR_EXPR_NONE)
        return e;
    if (left.end == position && n == n_then)
        return qr_expr_cat(sc->x, qr_expr_repeat(sc->x, qr_expr_cat(sc->x, sc->words->comma, w->any), 0, QR_REPEAT_FOREVER), e);
    return qr_expr_or(sc->x, e, qr_sc_cat3(sc, before(w, n), w->any, *slot(w, w->state, left.end, n_then, set)));
}

static void write_state(struct writing *w, int32_t position, int32_t n, int32_t set)
{
    const bool ends_chain = w->o->n_written > 2 * MEMBERS_PER_RULE && position > 0 && position % MEMBERS_PER_RULE == 0;
    int32_t e = QR_EXPR_NONE;
    for (int32_t t = 0; t < w->n_tracks; t++) {
        int32_t one = from_track(w, t, position, n, set);
        if (ends_chain)
            one = as_rule(w->sc, one);
        *slot(w, w->from[t], position, n, set) = one;
        e = qr_expr_or(w->sc->x, e, one);
    }
    e = from_others(w, position, n, set, e);
    *slot(w, w->state, position, n, set) = ends_chain ? as_rule(w->sc, e) : e;
}

static void count(struct writing *w, const struct qr_json *at)
{
    int32_t n_required = 0;
    for (int32_t i = 0; i < w->o->n_members; i++)
        n_required += w->o->member[i].required;
    if (w->o->n_written - n_required > OPTIONAL_MAX)
        qr_sc_fail(w->sc, QR_E_TOO_LARGE, at, "an object has more than %d optional members", OPTIONAL_MAX);
    w->min = w->o->min > n_required ? w->o->min : 0;
    w->max = w->any == QR_EXPR_NONE && w->o->n_written <= w->o->max ? QR_REPEAT_FOREVER : w->o->max;
    const int32_t counted = w->max != QR_REPEAT_FOREVER ? w->max : w->min;
    const bool one_by_one = counted <= COUNTED_MAX;
    if (!one_by_one && w->n_sets > 1)
        qr_sc_fail(w->sc, QR_E_TOO_LARGE, NULL, "more than %d members are counted in an object of which some member must be of a kind", COUNTED_MAX);
    make_tracks(w, one_by_one);
    const bool mixes = w->n_sets > 1 || (w->n_tracks > 0 && w->track[w->n_tracks - 1].loose);
    w->cap = counted > w->o->n_written && !mixes ? w->o->n_written : counted;
    w->cap = w->cap < 1 ? 1 : w->cap;
    if (w->min >= 1 << 20)
        qr_sc_fail(w->sc, QR_E_TOO_LARGE, NULL, "minProperties is more than %d", (1 << 20) - 1);
    if ((int64_t)w->n_positions * (w->cap + 1) * w->n_sets > STATES_MAX)
        qr_sc_fail(w->sc, QR_E_TOO_LARGE, NULL, "counting the members of an object takes more than %d states", STATES_MAX);
}

static bool make_tables(struct writing *w)
{
    const size_t n = (size_t)w->n_positions * ((size_t)w->cap + 1) * (size_t)w->n_sets;
    struct qr_sc *sc = w->sc;
    w->key = qr_sc_alloc(sc, (size_t)w->o->n_written + 1, sizeof *w->key);
    w->state = qr_sc_alloc(sc, n, sizeof *w->state);
    for (int32_t t = 0; t < w->n_tracks; t++)
        w->from[t] = qr_sc_alloc(sc, n, sizeof *w->from[t]);
    for (int32_t i = 0; i < w->o->n_written && w->key; i++)
        w->key[i] = key(sc, w->o->member[i].name);
    return sc->code == 0;
}

int32_t qr_sc_write_object(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    QR_ASSERT(sc != NULL && s != NULL);
    struct writing w = {.sc = sc, .o = qr_sc_resolve_object(sc, s)};
    if (!w.o)
        return QR_EXPR_NONE;
    w.n_sets = 1 << w.o->n_some;
    write_others(&w, s);
    if (sc->code == 0)
        count(&w, s->layer ? s->layer->props : NULL);
    if (sc->code != 0 || !make_tables(&w))
        return QR_EXPR_NONE;
    for (int32_t position = w.n_positions - 1; position >= 0; position--) {
        if (!qr_sc_step(sc, NULL, (w.cap + 1) * w.n_sets))
            return QR_EXPR_NONE;
        for (int32_t n = w.cap; n >= 0; n--) {
            for (int32_t set = w.n_sets - 1; set >= 0; set--)
                write_state(&w, position, n, set);
        }
    }
    return qr_expr_cat(sc->x, qr_expr_text(sc->x, "{"), w.state[0]);
}
