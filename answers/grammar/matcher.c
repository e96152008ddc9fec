/* matcher.c - grammars and matchers: a matcher is the number of a state of its grammar's memo (memo.c), and every operation begins by making
 * room there. The grammar knows its matchers, so that a collection can renumber their states. What an operation cannot do within
 * its bounds it refuses, and nothing has changed then. One thread at a time for all matchers of a grammar; counting is atomic. */
#include "answers/grammar/matcher.h"

#include <string.h>

#include "answers/grammar/memo.h"
#include "base/assert.h"
#include "base/mem.h"

#define MEMO_BYTES (8u << 20)
#define MEMO_BYTES_MIN (1u << 20)

static int too_costly(struct qr_err *err)
{
    return qr_err_set(err, QR_E_TOO_LARGE, "the grammar is too costly here: what may follow has too many forms");
}

/* ---- grammars ---- */

static int begin(struct qr_grammar *g, int32_t root, struct qr_err *err)
{
    qr_memo_begin(g);
    g->start = qr_memo_start(g, root);
    if (g->failed)
        return too_costly(err);
    if (g->start == QR_STATE_DEAD)
        return qr_err_set(err, QR_E_INVALID, "no text satisfies the grammar");
    struct qr_matcher m = {0};
    uint32_t *mask = qr_alloc(QR_MASK_WORDS(g->v->n_vocab), sizeof *mask);
    if (!mask)
        return qr_err_set(err, QR_E_NO_ROOM, "there is no memory for a grammar");
    qr_matcher_init(&m, g);
    const int rc = qr_matcher_mask(&m, mask, err);
    qr_matcher_release(&m);
    qr_free(mask);
    return rc;
}

int qr_grammar_new(struct qr_grammar **out, struct qr_exprs *x, int32_t root, const struct qr_vocab *v, size_t memo_bytes, struct qr_err *err)
{
    QR_ASSERT(out != NULL && x != NULL);
    QR_ASSERT(v != NULL && err != NULL);
    const size_t bytes = memo_bytes == 0 ? MEMO_BYTES : memo_bytes < MEMO_BYTES_MIN ? MEMO_BYTES_MIN : memo_bytes;
    struct qr_grammar *g = qr_alloc(1, sizeof *g);
    int rc = qr_exprs_finish(x, root, err);
    if (!g || rc != 0) {
        qr_exprs_free(x);
        qr_free(g);
        return rc ? rc : qr_err_set(err, QR_E_NO_ROOM, "there is no memory for a grammar");
    }
    g->x = x;
    g->v = v;
    atomic_init(&g->refs, 1);
    rc = qr_memo_new(g, bytes) ? begin(g, root, err) : qr_err_set(err, QR_E_NO_ROOM, "there is no memory for a grammar");
    if (rc == 0)
        *out = g;
    else
        qr_grammar_unref(g);
    return rc;
}

struct qr_grammar *qr_grammar_ref(struct qr_grammar *g)
{
    QR_ASSERT(g != NULL);
    QR_ASSERT(atomic_load(&g->refs) > 0);
    atomic_fetch_add(&g->refs, 1);
    return g;
}

void qr_grammar_unref(struct qr_grammar *g)
{
    if (!g || atomic_fetch_sub(&g->refs, 1) > 1)
        return;
    qr_exprs_free(g->x);
    if (g->block)
        qr_free_aligned(g->block);
    qr_free(g);
}

bool qr_grammar_is_shared(const struct qr_grammar *g)
{
    QR_ASSERT(g != NULL);
    QR_ASSERT(atomic_load(&g->refs) > 0);
    return atomic_load(&g->refs) > 1;
}

size_t qr_grammar_bytes(const struct qr_grammar *g)
{
    QR_ASSERT(g != NULL);
    return sizeof *g + g->n_block + (size_t)g->x->cap * sizeof *g->x->node + (size_t)g->x->n_slots * sizeof *g->x->slot +
           (size_t)g->x->cap_sets * sizeof *g->x->set + QR_DERIVED_SLOTS * sizeof *g->x->derived;
}

void qr_grammar_stats(const struct qr_grammar *g, struct qr_grammar_stats *out)
{
    QR_ASSERT(g != NULL && out != NULL);
    *out = g->stats;
    out->memo_used = (size_t)g->n_states * sizeof *g->state + (size_t)g->n_ids * sizeof *g->id + (size_t)g->n_row * sizeof *g->row +
                     (size_t)g->n_words * sizeof *g->word + (size_t)g->x->n * sizeof *g->x->node;
}

/* ---- matchers ---- */

static void enlist(struct qr_matcher *m, struct qr_grammar *g)
{
    m->grammar = qr_grammar_ref(g);
    m->next = g->matchers;
    m->at = &g->matchers;
    if (m->next)
        m->next->at = &m->next;
    g->matchers = m;
}

void qr_matcher_init(struct qr_matcher *m, struct qr_grammar *g)
{
    QR_ASSERT(m != NULL && g != NULL);
    enlist(m, g);
    m->state = g->start;
}

void qr_matcher_copy(struct qr_matcher *m, const struct qr_matcher *from)
{
    QR_ASSERT(m != NULL && from != NULL);
    QR_ASSERT(from->grammar != NULL);
    enlist(m, from->grammar);
    m->state = from->state;
}

void qr_matcher_release(struct qr_matcher *m)
{
    QR_ASSERT(m != NULL);
    if (!m->grammar)
        return;
    *m->at = m->next;
    if (m->next)
        m->next->at = m->at;
    qr_grammar_unref(m->grammar);
    *m = (struct qr_matcher){0};
}

bool qr_matcher_bytes(struct qr_matcher *m, const char *bytes, size_t len, size_t *n_ok)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    QR_ASSERT(bytes != NULL || len == 0);
    struct qr_grammar *g = m->grammar;
    struct qr_matcher at = {0};
    size_t i = 0;
    qr_matcher_copy(&at, m);
    for (bool good = true; i < len && good;) {
        if (i % 256 == 0) /* `at` is on the list: a collection leaves it right */
            qr_memo_begin(g);
        const int32_t next = qr_memo_next(g, at.state, g->x->cls[(uint8_t)bytes[i]]);
        good = next != QR_STATE_DEAD;
        if (good) {
            at.state = next;
            i++;
        }
    }
    if (n_ok)
        *n_ok = i;
    if (i == len)
        m->state = at.state;
    qr_matcher_release(&at);
    return i == len;
}

bool qr_matcher_token(struct qr_matcher *m, int32_t id)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    size_t len;
    if (qr_vocab_is_end(m->grammar->v, id))
        return qr_matcher_accepts(m);
    const char *text = qr_vocab_token(m->grammar->v, id, &len);
    return len > 0 && qr_matcher_bytes(m, text, len, NULL);
}

bool qr_matcher_accepts(const struct qr_matcher *m)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    QR_ASSERT(m->state < m->grammar->n_states);
    return m->grammar->state[m->state].accepts;
}

bool qr_matcher_done(const struct qr_matcher *m)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    QR_ASSERT(m->state < m->grammar->n_states);
    return m->grammar->state[m->state].done;
}

static bool is_empty(const uint32_t *mask, size_t n_words)
{
    uint32_t any = 0;
    for (size_t i = 0; i < n_words; i++)
        any |= mask[i];
    return any == 0;
}

int qr_matcher_mask(struct qr_matcher *m, uint32_t *mask, struct qr_err *err)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    QR_ASSERT(mask != NULL && err != NULL);
    struct qr_grammar *g = m->grammar;
    qr_memo_begin(g);
    const int32_t from = qr_memo_walk_from(g, m->state);
    if (g->failed || !qr_mask_fill(g, from, mask))
        return too_costly(err);
    for (int32_t i = 0; g->state[m->state].accepts && i < g->v->n_end; i++)
        qr_mask_put(mask, g->v->end[i]);
    if (is_empty(mask, QR_MASK_WORDS(g->v->n_vocab)))
        return qr_err_set(err, QR_E_INVALID, "no token of the vocabulary continues the text as the grammar demands");
    return 0;
}

/* ---- to the end ---- */

struct shorter { struct qr_exprs *x; int32_t best; };

static void take_shorter(void *user, int32_t part)
{
    struct shorter *s = user;
    if (s->best < 0 || s->x->node[part].shortest < s->x->node[s->best].shortest)
        s->best = part;
}

/* Of the least byte class, the part of e with the shortest end behind it. */
static int32_t descend(struct qr_exprs *x, int32_t e, int32_t *cls)
{
    struct shorter best = {x, -1};
    for (int32_t c = 0; c < x->n_classes; c++) {
        const int32_t before = best.best;
        qr_expr_parts(x, e, c, take_shorter, &best);
        if (best.best != before)
            *cls = c;
    }
    return best.best;
}

int32_t qr_matcher_shortest(struct qr_matcher *m, char *out, int32_t room)
{
    QR_ASSERT(m != NULL && m->grammar != NULL);
    QR_ASSERT(out != NULL || room == 0);
    struct qr_grammar *g = m->grammar;
    qr_memo_begin(g);
    const struct qr_state *s = &g->state[m->state];
    struct shorter best = {g->x, -1};
    for (int32_t i = 0; i < s->n; i++)
        take_shorter(&best, g->id[s->at + i]);
    int32_t e = best.best, n = 0, cls = 0;
    while (e >= 0 && !qr_expr_nullable(g->x, e) && n < room && !g->x->failed) {
        e = descend(g->x, e, &cls);
        out[n++] = (char)g->x->rep[cls];
    }
    return e >= 0 && !g->x->failed && qr_expr_nullable(g->x, e) ? n : -1;
}
