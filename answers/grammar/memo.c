/* memo.c - states of a grammar and their transitions, made when they are first needed. A state is a set of expressions, found by its content,
 * so a text comes back to the states that it has been in. Arrays have the sizes that they got with the grammar: when one of them is
 * nearly full, an operation begins with a collection, which keeps what matchers stand in and drops the rest. What one operation may cost is
 * bounded, and passing the bound is told. One thread at a time. */
#include "answers/grammar/memo.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define WORK_MAX 400000 /* steps of derivation of one operation: some tens of milliseconds */

/* ---- memory ---- */

static void *carve(char **at, size_t n, size_t size)
{
    void *p = *at;
    *at += qr_align_up(n * size, 64);
    return p;
}

static size_t lay_out(struct qr_grammar *g, char *at)
{
    char *const from = at;
    g->state = carve(&at, (size_t)g->cap_states, sizeof *g->state);
    g->slot = carve(&at, 2 * (size_t)g->cap_states, sizeof *g->slot);
    g->id = carve(&at, (size_t)g->cap_ids, sizeof *g->id);
    g->row = carve(&at, (size_t)g->cap_rows, sizeof *g->row);
    g->word = carve(&at, (size_t)g->cap_words, sizeof *g->word);
    g->part = carve(&at, QR_PARTS_MAX, sizeof *g->part);
    g->keep = carve(&at, (size_t)g->cap_nodes, sizeof *g->keep);
    g->renumber = carve(&at, (size_t)g->cap_nodes, sizeof *g->renumber);
    return (size_t)(at - from);
}

static void clear(struct qr_grammar *g)
{
    memset(g->slot, 0, 2 * (size_t)g->cap_states * sizeof *g->slot);
    g->n_states = 1;
    g->n_ids = g->n_row = g->n_words = 0;
    g->state[QR_STATE_DEAD] = (struct qr_state){.row = -1, .mask = -1, .walk = QR_STATE_DEAD};
}

bool qr_memo_new(struct qr_grammar *g, size_t bytes)
{
    QR_ASSERT(g != NULL && g->v != NULL);
    QR_ASSERT(g->x != NULL && g->x->n_classes > 0);
    const int32_t unit = (int32_t)(bytes >> 10); /* a thousandth of it, about */
    g->cap_nodes = unit * 6;      /* 0.21 of the bytes, with the pool's own */
    g->cap_states = 1;
    while (g->cap_states * 2 <= unit * 3) /* a power of two, for the hash table: 0.07 to 0.14 */
        g->cap_states *= 2;
    g->cap_ids = unit * 16;
    g->cap_rows = unit * 64;
    g->cap_words = unit * 80;
    g->n_block = lay_out(g, NULL);
    g->block = qr_alloc_aligned(g->n_block, 64);
    if (!g->block)
        return false;
    qr_mem_small_pages(g->block, g->n_block);
    lay_out(g, g->block);
    clear(g);
    return qr_exprs_freeze(g->x, g->cap_nodes, g->v->longest);
}

/* ---- states ---- */

static void fail(struct qr_grammar *g)
{
    g->failed = true;
}

static uint32_t hash_ids(const int32_t *id, int32_t n)
{
    uint64_t h = (uint64_t)n;
    for (int32_t i = 0; i < n; i++)
        h = (h ^ (uint32_t)id[i]) * 0x9E3779B97F4A7C15u, h ^= h >> 32;
    return (uint32_t)h;
}

static const struct qr_expr_node *head_of(const struct qr_grammar *g, int32_t e)
{
    const struct qr_expr_node *d = qr_expr_at(g->x, e);
    while (d->kind == QR_EXPR_K_CAT)
        d = qr_expr_at(g->x, d->a);
    return d;
}

/* Characters of a JSON string that this expression takes before anything else; 0: it does not begin with them. */
static int32_t plain_of(const struct qr_grammar *g, int32_t e)
{
    const struct qr_expr_node *d = head_of(g, e);
    if (d->kind != QR_EXPR_K_REPEAT || d->a != g->x->json_char)
        return 0;
    return d->c >= QR_TOKEN_BYTES_MAX ? QR_PLAIN_ALL : d->c;
}

static void describe(const struct qr_grammar *g, struct qr_state *s)
{
    const int32_t *id = g->id + s->at;
    bool all_plain = true;
    for (int32_t i = 0; i < s->n; i++) {
        const int32_t plain = plain_of(g, id[i]);
        s->accepts |= qr_expr_nullable(g->x, id[i]);
        s->free |= id[i] == g->x->anything;
        s->plain = plain > s->plain ? plain : s->plain;
        all_plain &= plain > 0;
    }
    s->done = s->n == 1 && id[0] == QR_EXPR_EMPTY;
    if (!all_plain && s->plain != QR_PLAIN_ALL)
        s->plain = 0;
    const struct qr_expr_node *d = head_of(g, id[0]);
    s->loops = s->n == 1 && s->plain == QR_PLAIN_ALL && d->b == 0 && d->c == QR_REPEAT_FOREVER;
}

/* The state of part[0..n_part), sorted. */
static int32_t intern(struct qr_grammar *g)
{
    const uint32_t last = 2 * (uint32_t)g->cap_states - 1;
    uint32_t at = hash_ids(g->part, g->n_part) & last;
    if (g->n_part == 0)
        return QR_STATE_DEAD;
    for (; g->slot[at]; at = (at + 1) & last) {
        const struct qr_state *s = &g->state[g->slot[at]];
        if (s->n == g->n_part && memcmp(g->id + s->at, g->part, (size_t)s->n * sizeof *g->part) == 0)
            return g->slot[at];
    }
    if (g->n_states == g->cap_states || g->n_part > g->cap_ids - g->n_ids) {
        fail(g);
        return QR_STATE_DEAD;
    }
    struct qr_state *s = &g->state[g->n_states];
    *s = (struct qr_state){.at = g->n_ids, .n = g->n_part, .row = -1, .mask = -1, .walk = -1};
    memcpy(g->id + s->at, g->part, (size_t)s->n * sizeof *g->part);
    g->n_ids += s->n;
    describe(g, s);
    g->slot[at] = g->n_states;
    g->stats.n_states++;
    return g->n_states++;
}

static void add_part(void *user, int32_t e)
{
    struct qr_grammar *g = user;
    if (g->n_part == QR_PARTS_MAX) {
        fail(g);
        return;
    }
    for (int32_t i = g->n_part; i > 0 && i > g->n_part - 4; i--)
        if (g->part[i - 1] == e)
            return;
    g->part[g->n_part++] = e;
}

/* Shell's sort by Ciura's gaps, in place: the library's may allocate, and lists are short. */
static void sort(int32_t *id, int32_t n)
{
    static const int32_t gaps[] = {701, 301, 132, 57, 23, 10, 4, 1};
    for (int32_t g = 0; g < QR_COUNT(gaps); g++)
        for (int32_t i = gaps[g]; i < n; i++) {
            const int32_t one = id[i];
            int32_t k = i;
            for (; k >= gaps[g] && id[k - gaps[g]] > one; k -= gaps[g])
                id[k] = id[k - gaps[g]];
            id[k] = one;
        }
}

static int32_t intern_parts(struct qr_grammar *g)
{
    int32_t m = 0;
    if (g->failed || g->x->failed || g->x->work > g->x->work_end) {
        fail(g);
        return QR_STATE_DEAD;
    }
    sort(g->part, g->n_part);
    for (int32_t i = 0; i < g->n_part; i++)
        if (m == 0 || g->part[m - 1] != g->part[i])
            g->part[m++] = g->part[i];
    g->n_part = m;
    return intern(g);
}

int32_t qr_memo_start(struct qr_grammar *g, int32_t root)
{
    QR_ASSERT(g != NULL);
    g->n_part = 0;
    if (qr_expr_alive(g->x, root))
        add_part(g, root);
    return intern_parts(g);
}

/* A transition is dead where no expression of the state begins with the class, and not known yet otherwise. */
static void begin_row(struct qr_grammar *g, const struct qr_state *s)
{
    struct qr_first first = {{0}};
    for (int32_t i = 0; i < s->n; i++)
        for (int k = 0; k < QR_FIRST_BITS / 64; k++)
            first.bits[k] |= qr_expr_at(g->x, g->id[s->at + i])->first.bits[k];
    for (int32_t cls = 0; cls < g->x->n_classes; cls++)
        g->row[s->row + cls] = qr_first_has(&first, cls) ? -1 : QR_STATE_DEAD;
}

int32_t qr_memo_next(struct qr_grammar *g, int32_t state, int32_t cls)
{
    QR_ASSERT(g != NULL && state >= 0 && state < g->n_states);
    QR_ASSERT(cls >= 0 && cls < g->x->n_classes);
    struct qr_state *s = &g->state[state];
    if (s->row < 0 && g->n_row + g->x->n_classes <= g->cap_rows) {
        s->row = g->n_row;
        g->n_row += g->x->n_classes;
        begin_row(g, s);
    }
    if (s->row >= 0 && g->row[s->row + cls] >= 0)
        return g->row[s->row + cls];
    g->n_part = 0;
    for (int32_t i = 0; i < s->n && !g->failed; i++)
        qr_expr_parts(g->x, g->id[s->at + i], cls, add_part, g);
    const int32_t next = intern_parts(g);
    if (s->row >= 0 && !g->failed)
        g->row[s->row + cls] = next;
    return next;
}

int32_t qr_memo_walk_from(struct qr_grammar *g, int32_t state)
{
    QR_ASSERT(g != NULL);
    QR_ASSERT(state >= 0 && state < g->n_states);
    struct qr_state *s = &g->state[state];
    if (s->walk >= 0)
        return s->walk;
    g->n_part = 0;
    for (int32_t i = 0; i < s->n; i++)
        add_part(g, qr_expr_clamp(g->x, g->id[s->at + i]));
    const int32_t walk = intern_parts(g);
    if (!g->failed)
        s->walk = walk;
    return walk;
}

/* ---- collection ---- */

/* Keeps the states of matchers and the start, in their order, with their expressions renumbered. */
static void keep_states(struct qr_grammar *g)
{
    const int32_t n_states = g->n_states, base = g->x->n_base;
    int32_t *moved = g->row; /* where each state goes: rows are dropped anyway */
    QR_ASSERT(n_states <= g->cap_rows);
    clear(g);
    moved[QR_STATE_DEAD] = QR_STATE_DEAD;
    for (int32_t i = 1; i < n_states; i++) {
        const struct qr_state s = g->state[i];
        if (!s.kept)
            continue;
        g->n_part = s.n;
        for (int32_t k = 0; k < s.n; k++) {
            const int32_t e = g->id[s.at + k];
            g->part[k] = e < base ? e : g->renumber[e - base];
        }
        moved[i] = intern(g); /* goes where it was, or before: nothing is overwritten that is still needed */
        g->stats.n_states--;
    }
    for (struct qr_matcher *m = g->matchers; m; m = m->next)
        m->state = moved[m->state];
    g->start = moved[g->start];
}

static void collect(struct qr_grammar *g)
{
    const int32_t base = g->x->n_base, n = g->x->n - base;
    memset(g->keep, 0, (size_t)n);
    for (int32_t i = 0; i < g->n_states; i++)
        g->state[i].kept = false;
    g->state[g->start].kept = true;
    for (const struct qr_matcher *m = g->matchers; m; m = m->next)
        g->state[m->state].kept = true;
    for (int32_t i = 1; i < g->n_states; i++)
        for (int32_t k = 0; g->state[i].kept && k < g->state[i].n; k++)
            if (g->id[g->state[i].at + k] >= base)
                g->keep[g->id[g->state[i].at + k] - base] = 1;
    qr_exprs_collect(g->x, g->keep, g->renumber);
    keep_states(g);
    g->stats.n_collected++;
}

static bool nearly_full(int32_t n, int32_t cap)
{
    return n > cap - cap / 4;
}

void qr_memo_begin(struct qr_grammar *g)
{
    QR_ASSERT(g != NULL);
    const bool full = nearly_full(g->x->n - g->x->n_base, g->cap_nodes) || nearly_full(g->n_states, g->cap_states) ||
                      nearly_full(g->n_ids, g->cap_ids) || nearly_full(g->n_row, g->cap_rows) || nearly_full(g->n_words, g->cap_words);
    if (full || g->failed)
        collect(g);
    g->failed = g->x->failed = false;
    g->x->work_end = g->x->work + WORK_MAX;
}
