/* draft.c - guesses from texts: a sequence's own prediction, prompt and output, and finished answers (draft.h).
 *
 * There is a guess only where the last QR_GRAM ids stand elsewhere too, or near the place where a long match broke off: an edit of a word is stepped over so.
 * A match is followed further the longer it is. Each guess has its odds (odds.h), and qr_draft_cut takes those that pay (worth.h). A sequence whose guesses are
 * wrong is left alone but for a probe now and then. A step indexes at most INDEX_MAX ids, so a long prompt comes in over several. Engine thread.
 */
#include "engine/draft/draft.h"

#include "base/assert.h"
#include "base/mem.h"
#include "engine/draft/history.h"
#include "engine/draft/odds.h"
#include "engine/draft/store.h"
#include "engine/draft/worth.h"

#define WINDOW_MAX 131072   /* ids of one sequence that are indexed, its last: fewer where those of all sequences would take more than */
#define INDEXES_MAX (64 << 20)
#define INDEX_MAX 2048      /* ids that enter indexes in one step */
#define CERTAIN 12          /* ids of a match that goes on: no other is looked for */
#define OWN_IS_ENOUGH 16    /* ids of a match in the sequence itself: the store is not asked */
#define NEAR 8              /* ids that were put in, or left out, where a match broke off */
#define NEAR_FROM 8         /* ids of a match that it is worth coming back to */
#define NEAR_STEPS 16       /* for so many steps */
#define CHANCE_MIN 0.1f     /* of being used: below it there is no guess */
#define CHANCE_MAX 0.98f
#define SILENT_STEPS 32     /* a sequence with matches that are not trusted is probed after so many steps, */
#define PROBE_STEPS 8       /* one sequence in so many */

/* What is kept of a sequence inside. */
struct slot {
    int32_t n_prediction;
    struct qr_hash128 salt;
    int32_t table;                  /* -1: none */
    int64_t ahead;                  /* the match that is followed has its next id so far from the text's end: < 0 */
    int32_t n_followed, n_lost;     /* ids of that match, 0: there is none; steps since it broke off */
    struct qr_luck luck;
    int32_t n_silent;
    int32_t n_filled, n_equal;      /* of the last guesses: how many, the match before them, */
    enum qr_guess guess;            /* where they come from, */
    float odds[QR_DRAFT_MAX];       /* and their odds by that alone */
};

/* An index, lent to one sequence at a time. */
struct table {
    struct qr_history index;
    int32_t slot;                   /* -1: free */
    uint32_t n_indexed;             /* places before it are in the index */
    uint64_t seed;
    int64_t step;                   /* last used in */
};

struct qr_draft {
    struct slot *slot;              /* owned [n_slots] */
    struct table *table;            /* owned [n_tables] */
    int32_t n_slots, n_tables;
    int32_t budget;                 /* ids that may still be indexed in this step */
    int64_t step, probed;
    uint64_t seed;                  /* of the last table that was lent */
    struct qr_store store;
    struct qr_odds odds;
    struct qr_worth worth;
    int32_t *pick;                  /* owned [picks_max]: whose guess is taken next, */
    float *chance;                  /* owned [picks_max]: and how likely it is used */
    int32_t picks_max;
    struct choice {
        int32_t at, taken;          /* which ask, and how many of its guesses were taken */
        float chance;               /* of the next one */
    } *open;                        /* owned [n_tables] */
};

static uint32_t window_of(int32_t running_max, int32_t ctx_max)
{
    uint32_t window = 64;
    while (window < WINDOW_MAX && window < (uint32_t)ctx_max && running_max * qr_history_bytes(2 * window) <= INDEXES_MAX)
        window *= 2;
    return window;
}

int64_t qr_draft_bytes(int32_t n_slots, int32_t running_max, int32_t ctx_max, int64_t store_bytes)
{
    QR_ASSERT(n_slots >= running_max && running_max >= 1);
    QR_ASSERT(ctx_max >= 1);
    const int64_t pick = (int64_t)(sizeof(int32_t) + sizeof(float)) * QR_DRAFT_MAX + (int64_t)sizeof(struct choice);
    return (int64_t)sizeof(struct qr_draft) + n_slots * (int64_t)sizeof(struct slot) + qr_store_bytes(store_bytes) +
           running_max * ((int64_t)sizeof(struct table) + qr_history_bytes(window_of(running_max, ctx_max)) + pick);
}

struct qr_draft *qr_draft_new(int32_t n_slots, int32_t running_max, int32_t ctx_max, int64_t store_bytes)
{
    QR_ASSERT(n_slots >= running_max && running_max >= 1);
    QR_ASSERT(ctx_max >= 1 && store_bytes >= 0);
    struct qr_draft *d = qr_alloc(1, sizeof *d);
    d->n_slots = n_slots;
    d->n_tables = running_max;
    d->picks_max = running_max * QR_DRAFT_MAX;
    d->slot = qr_alloc((size_t)n_slots, sizeof *d->slot);
    d->table = qr_alloc((size_t)running_max, sizeof *d->table);
    d->pick = qr_alloc((size_t)d->picks_max, sizeof *d->pick);
    d->chance = qr_alloc((size_t)d->picks_max, sizeof *d->chance);
    d->open = qr_alloc((size_t)running_max, sizeof *d->open);
    for (int32_t i = 0; i < running_max; i++) {
        qr_history_init(&d->table[i].index, window_of(running_max, ctx_max));
        d->table[i].slot = -1;
    }
    for (int32_t i = 0; i < n_slots; i++)
        d->slot[i].table = -1;
    qr_store_init(&d->store, store_bytes);
    qr_odds_init(&d->odds);
    return d;
}

void qr_draft_free(struct qr_draft *d)
{
    if (!d)
        return;
    for (int32_t i = 0; i < d->n_tables; i++)
        qr_history_release(&d->table[i].index);
    qr_store_release(&d->store);
    qr_free(d->table);
    qr_free(d->slot);
    qr_free(d->pick);
    qr_free(d->chance);
    qr_free(d->open);
    qr_free(d);
}

static void give_table_back(struct qr_draft *d, struct slot *s)
{
    if (s->table >= 0)
        d->table[s->table].slot = -1;
    s->table = -1;
}

void qr_draft_begin(struct qr_draft *d, int32_t index, const struct qr_request *r, int32_t choice)
{
    QR_ASSERT(d != NULL && r != NULL);
    QR_ASSERT(index >= 0 && index < d->n_slots && choice >= 0 && choice < r->n_choices);
    give_table_back(d, &d->slot[index]);
    struct slot *s = &d->slot[index];
    *s = (struct slot){.n_prediction = r->n_prediction, .salt = r->salt, .table = -1};
    if (r->n_prediction > 0) { /* it is as if its beginning had been matched */
        s->ahead = -(int64_t)r->n_prediction - r->n_prompt;
        s->n_followed = NEAR_FROM;
    }
}

void qr_draft_end(struct qr_draft *d, int32_t index, const struct qr_seq *seq, bool learn)
{
    QR_ASSERT(d != NULL && seq != NULL);
    QR_ASSERT(index >= 0 && index < d->n_slots);
    give_table_back(d, &d->slot[index]);
    int32_t n = seq->n_ids;
    while (n > seq->n_prompt && seq->ids[n - 1] < 0) /* a name only: its id never came (ahead.h) */
        n--;
    if (learn)
        qr_store_put(&d->store, seq->ids + seq->n_prompt, n - seq->n_prompt, &d->slot[index].salt);
}

/* The slot's table, or the one that was used longest ago: sequences of one step have one each. */
static struct table *table_of(struct qr_draft *d, int32_t index)
{
    struct slot *s = &d->slot[index];
    if (s->table < 0) {
        int32_t at = 0;
        for (int32_t i = 0; i < d->n_tables && d->table[at].slot >= 0; i++)
            if (d->table[i].slot < 0 || d->table[i].step < d->table[at].step)
                at = i;
        struct table *t = &d->table[at];
        if (t->slot >= 0)
            d->slot[t->slot].table = -1;
        t->slot = index;
        t->n_indexed = QR_GRAM;
        t->seed = ++d->seed * 0x9e3779b97f4a7c15u; /* what it held before is not found */
        s->table = at;
    }
    d->table[s->table].step = d->step;
    return &d->table[s->table];
}

/* The latest ids of the text enter the index, as many as the step may index. The last place has nothing behind it yet. */
static void index_text(struct qr_draft *d, struct table *t, const struct qr_text *text)
{
    if (text->end > t->index.window && t->n_indexed < text->end - t->index.window)
        t->n_indexed = text->end - t->index.window;
    for (; t->n_indexed < text->end && d->budget > 0; d->budget--)
        qr_history_note(&t->index, text, t->n_indexed++, t->seed);
}

/* Where the match that is followed goes on, or near it where it broke off. In the first step behind that the next id may be as if one had been changed. */
static struct qr_match look_ahead(const struct slot *s, const struct qr_text *text, const int32_t *last)
{
    struct qr_match m = {0};
    if (s->n_followed == 0)
        return m;
    const int64_t at = (int64_t)text->end + s->ahead;
    const int32_t reach = s->n_followed >= NEAR_FROM ? NEAR : 0;
    for (int32_t i = 0; i <= 2 * reach; i++) { /* 0, 1, -1, 2, -2 ... */
        const int64_t place = at + (i % 2 ? (i + 1) / 2 : -i / 2);
        if (place < 1 || place >= text->end)
            continue;
        const int32_t n_equal = qr_history_equal(text, (uint32_t)place, last, text->end);
        if (n_equal > m.n_equal || (i == 0 && reach > 0 && s->n_lost == 0))
            m = (struct qr_match){.n_equal = n_equal, .n = 1, .at = {(uint32_t)place}};
        if (i == 0 && n_equal >= QR_GRAM)
            break;
    }
    return m;
}

/* The match is the one that is followed from now on, unless a longer one broke off just now. */
static void follow(struct slot *s, const struct qr_match *m, const struct qr_text *text)
{
    const int64_t ahead = (int64_t)m->at[0] - text->end;
    const bool same = m->n > 0 && ahead - s->ahead <= NEAR && s->ahead - ahead <= NEAR;
    if (m->n_equal < QR_GRAM || (!same && m->n_equal < NEAR_FROM && s->n_followed > m->n_equal)) {
        s->n_followed = s->n_lost++ < NEAR_STEPS ? s->n_followed : 0;
        return;
    }
    s->n_followed = same && s->n_followed > m->n_equal ? s->n_followed : m->n_equal;
    s->n_lost = 0;
    s->ahead = ahead;
}

/* The match that the sequence's next ids are taken from; s has what is known of it. True: it is in the store. */
static bool find_match(struct qr_draft *d, struct slot *s, const struct table *t, const struct qr_text *text, struct qr_match *m)
{
    const int32_t *last = text->id + text->end;
    struct qr_match other;
    *m = look_ahead(s, text, last);
    const bool begins = m->n > 0 && text->wall > 0 && (int32_t)m->at[0] == m->n_equal; /* as the prediction does */
    s->guess = m->n_equal < CERTAIN && !begins && s->n_followed >= NEAR_FROM ? QR_GUESS_NEAR : m->at[0] < text->wall ? QR_GUESS_PREDICTION : QR_GUESS_OWN;
    if (m->n_equal < CERTAIN && !begins) {
        qr_history_find(&t->index, text, last, text->end, t->seed, NULL, &other);
        if (other.n_equal > m->n_equal) {
            *m = other;
            s->guess = m->at[0] < text->wall ? QR_GUESS_PREDICTION : QR_GUESS_OWN;
        }
    }
    follow(s, m, text);
    s->n_equal = begins && m->n_equal < NEAR_FROM ? NEAR_FROM : m->n_equal;
    if (s->n_equal >= OWN_IS_ENOUGH)
        return false;
    qr_store_find(&d->store, last, text->end - text->wall, &s->salt, &other);
    if (other.n_equal <= s->n_equal)
        return false;
    *m = other;
    s->guess = QR_GUESS_STORE;
    s->n_equal = m->n_equal;
    return true;
}

/* The first of n guesses whose chance of being used is too small, so how many are worth it. A sequence whose guesses are not has one as a probe sometimes. */
static int32_t trust(struct qr_draft *d, struct slot *s, struct qr_draft_ask *a, int32_t n)
{
    const float factor = qr_luck_factor(&s->luck);
    float chance = 1;
    int32_t kept = 0;
    for (; kept < n; kept++) {
        s->odds[kept] = qr_odds_get(&d->odds, s->guess, s->n_equal + kept);
        const float p = s->odds[kept] * a->p[kept] * factor;
        a->p[kept] = p < CHANCE_MAX ? p : CHANCE_MAX;
        chance *= a->p[kept];
        if (chance < CHANCE_MIN)
            break;
    }
    if (kept > 0 || n == 0 || s->n_silent++ < SILENT_STEPS || d->step - d->probed < PROBE_STEPS)
        return kept;
    s->n_silent = 0;
    d->probed = d->step;
    a->p[0] = 0.5f;
    return 1;
}

static void guess_next(struct qr_draft *d, struct qr_draft_ask *a)
{
    struct slot *s = &d->slot[a->index];
    const struct qr_seq *seq = a->seq;
    if (seq->ids[seq->n_ids - 1] < 0) /* a name only (ahead.h) */
        return;
    const struct qr_text text = {.id = seq->ids - s->n_prediction, .mask = UINT32_MAX, .end = (uint32_t)(s->n_prediction + seq->n_ids),
                                 .wall = (uint32_t)s->n_prediction};
    struct table *t = table_of(d, a->index);
    index_text(d, t, &text);
    struct qr_match m;
    const struct qr_text *of = find_match(d, s, t, &text, &m) ? &d->store.text : &text;
    const int32_t most = 2 * s->n_equal + (s->guess == QR_GUESS_NEAR ? NEAR_FROM : 0);
    const int32_t n = qr_history_follow(of, &m, a->ids, a->p, most < a->room ? most : a->room);
    a->n = s->n_filled = trust(d, s, a, n);
}

void qr_draft_fill(struct qr_draft *d, struct qr_draft_ask *ask, int32_t n)
{
    QR_ASSERT(d != NULL && (ask != NULL || n == 0));
    QR_ASSERT(n >= 0 && n <= d->n_tables);
    d->step++;
    d->budget = INDEX_MAX;
    for (int32_t i = 0; i < n; i++) {
        QR_ASSERT(ask[i].room <= QR_DRAFT_MAX && ask[i].index < d->n_slots);
        d->slot[ask[i].index].n_filled = 0;
        if (ask[i].room > 0 && ask[i].n == 0)
            guess_next(d, &ask[i]);
    }
    (void)qr_store_index(&d->store, d->budget);
}

void qr_draft_forgo(struct qr_draft *d, int32_t index)
{
    QR_ASSERT(d != NULL);
    QR_ASSERT(index >= 0 && index < d->n_slots);
    d->slot[index].n_filled = 0;
}

/* Guesses of all sequences, those that are likeliest to be used first: pick, chance. Returns how many. */
static int32_t order(struct qr_draft *d, const struct qr_draft_ask *ask, int32_t n, int32_t n_max)
{
    struct choice *open = d->open;
    int32_t n_open = 0, n_picks = 0;
    for (int32_t i = 0; i < n; i++)
        if (ask[i].n > 0)
            open[n_open++] = (struct choice){.at = i, .chance = ask[i].p[0]};
    while (n_picks < n_max && n_open > 0) {
        struct choice *best = open;
        for (int32_t i = 1; i < n_open; i++)
            if (open[i].chance > best->chance)
                best = &open[i];
        d->pick[n_picks] = best->at;
        d->chance[n_picks++] = best->chance;
        if (++best->taken == ask[best->at].n)
            *best = open[--n_open];
        else
            best->chance *= ask[best->at].p[best->taken];
    }
    return n_picks;
}

void qr_draft_cut(struct qr_draft *d, struct qr_draft_ask *ask, int32_t n, int32_t n_base, int32_t n_spare)
{
    QR_ASSERT(d != NULL && (ask != NULL || n == 0));
    QR_ASSERT(n >= 0 && n <= d->n_tables && n_base >= 1 && n_spare >= 0);
    const int32_t n_picks = order(d, ask, n, n_spare < d->picks_max ? n_spare : d->picks_max);
    const int32_t n_rows = qr_worth_choose(&d->worth, d->chance, n_picks, n_base);
    for (int32_t i = 0; i < n; i++)
        ask[i].n = 0;
    for (int32_t i = 0; i < n_rows; i++)
        ask[d->pick[i]].n++;
}

void qr_draft_judge(struct qr_draft *d, int32_t index, int32_t n_drafted, int32_t n_accepted)
{
    QR_ASSERT(d != NULL);
    QR_ASSERT(index >= 0 && index < d->n_slots && n_accepted <= n_drafted);
    struct slot *s = &d->slot[index];
    bool right = true;
    for (int32_t i = 0; i < n_drafted && i < s->n_filled && right; i++) {
        right = i < n_accepted;
        qr_odds_learn(&d->odds, s->guess, s->n_equal + i, right);
        qr_luck_learn(&s->luck, s->odds[i], right);
    }
    s->n_filled = 0;
}

void qr_draft_step(struct qr_draft *d, int32_t n_rows, double us)
{
    QR_ASSERT(d != NULL);
    qr_worth_note(&d->worth, n_rows, us);
}

double qr_draft_us(const struct qr_draft *d, int32_t n_rows)
{
    QR_ASSERT(d != NULL);
    QR_ASSERT(n_rows >= 1);
    return d->worth.n_steps > 0 ? qr_worth_us(&d->worth, n_rows) : 0;
}
