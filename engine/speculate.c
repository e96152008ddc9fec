/* speculate.c - collects guesses, cuts them to what grammars allow, hands them to the scheduler, and judges them (speculate.h). What a row's draw is worth is
 * decided where it is pushed: a guess that differs from it ends the run. Engine thread; nothing is allocated in a step. */
#include "engine/speculate.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "engine/internal.h"

#define ALONE_SHARE 0.25f /* tokens that guesses are expected to bring each sequence, for a step to be waited for that could be launched ahead */

void qr_speculate_open(struct qr_engine *e)
{
    QR_ASSERT(e != NULL && e->limits.running_max > 0);
    const struct qr_engine_config *c = &e->config;
    struct qr_speculation *sp = &e->speculation;
    QR_ASSERT(c->draft_tokens <= QR_DRAFT_MAX);
    if (c->draft_tokens == 0)
        return;
    *sp = (struct qr_speculation){.tokens_max = c->draft_tokens, .n_guides_max = c->logit_rows_max};
    sp->ask = qr_alloc((size_t)c->running_max, sizeof *sp->ask);
    sp->shadow = qr_alloc((size_t)c->running_max, sizeof *sp->shadow);
    sp->guide = qr_alloc((size_t)sp->n_guides_max, sizeof *sp->guide);
    qr_mem_populate(sp->ask, (size_t)c->running_max * sizeof *sp->ask);
    qr_mem_populate(sp->shadow, (size_t)c->running_max * sizeof *sp->shadow);
    qr_mem_populate(sp->guide, (size_t)sp->n_guides_max * sizeof *sp->guide);
    if (!c->draft_source.fill)
        sp->draft = qr_draft_new(e->n_slots, c->running_max, e->limits.ctx_max, QR_DRAFT_STORE_BYTES);
}

void qr_speculate_close(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    struct qr_speculation *sp = &e->speculation;
    QR_ASSERT(sp->n_guides == 0);
    qr_draft_free(sp->draft);
    qr_free(sp->ask);
    qr_free(sp->shadow);
    qr_free(sp->guide);
}

int64_t qr_speculate_bytes(const struct qr_engine_config *c, int32_t ctx_max)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(ctx_max > 0);
    if (c->draft_tokens == 0)
        return 0;
    const struct qr_speculation *sp = NULL;
    return (int64_t)c->running_max * (int64_t)(sizeof *sp->ask + sizeof *sp->shadow) + (int64_t)c->logit_rows_max * (int64_t)sizeof *sp->guide +
           qr_draft_bytes(c->running_max + c->waiting_max, c->running_max, ctx_max, QR_DRAFT_STORE_BYTES);
}

void qr_speculate_begin(struct qr_engine *e, int32_t index)
{
    QR_ASSERT(e != NULL && index >= 0 && index < e->n_slots);
    const struct qr_slot *s = &e->slot[index];
    QR_ASSERT(s->req != NULL);
    if (e->speculation.draft)
        qr_draft_begin(e->speculation.draft, index, s->req, s->choice);
}

void qr_speculate_end(struct qr_engine *e, int32_t index, bool learn)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(index >= 0 && index < e->n_slots);
    if (e->speculation.draft)
        qr_draft_end(e->speculation.draft, index, qr_sched_seq(e->sched, index), learn);
}

/* ---- before a plan ---- */

/* Guesses that can be computed: the last token is drawn only. */
static int32_t room_of(const struct qr_speculation *sp, const struct qr_seq *q)
{
    const int32_t room = q->n_prompt + q->new_max - 1 - q->n_ids;
    return room < 0 ? 0 : room < sp->tokens_max ? room : sp->tokens_max;
}

static void ask_for(struct qr_engine *e, int32_t index)
{
    struct qr_speculation *sp = &e->speculation;
    const struct qr_seq *q = qr_sched_seq(e->sched, index);
    struct qr_draft_ask *a = &sp->ask[sp->n];
    if (q->n_computed == q->n_ids || q->n_ids == q->n_prompt + q->new_max) /* it is about to end */
        return;
    if (q->ids[q->n_ids - 1] < 0) {
        sp->shadow[sp->n] = *q;
        sp->shadow[sp->n].n_ids--;
        q = &sp->shadow[sp->n];
    }
    a->index = index;
    a->seq = q;
    a->room = room_of(sp, q);
    a->n = 0;
    sp->n++;
}

static bool is_shadow(const struct qr_speculation *sp, const struct qr_draft_ask *a)
{
    return a->seq == &sp->shadow[a - sp->ask];
}

/* Tokens that guesses are expected to bring: all of a run before a guess have to be right. That of an id in flight brings none. */
static float expected_of(const struct qr_speculation *sp, const struct qr_draft_ask *a)
{
    float all = 1, sum = 0;
    for (int32_t i = 0; i < a->n; i++) {
        all *= a->p[i];
        sum += i == 0 && is_shadow(sp, a) ? 0 : all;
    }
    return sum;
}

/* The draft model guesses where texts say less than it does. What that takes is no part of what rows of a step take. */
static void ask_model(struct qr_engine *e)
{
    struct qr_speculation *sp = &e->speculation;
    struct qr_draft_price price = {.n_seqs = sp->n};
    const int64_t from_us = qr_clock_us();
    if (sp->draft) {
        price.step_us = qr_draft_us(sp->draft, sp->n);
        price.row_us = (qr_draft_us(sp->draft, 2 * sp->n) - price.step_us) / sp->n;
    }
    qr_draft_model_fill(e->draft_model, sp->draft, sp->ask, sp->n, &price);
    sp->model_us = qr_clock_us() - from_us;
}

bool qr_speculate_ask(struct qr_engine *e)
{
    QR_ASSERT(e != NULL && e->speculation.n_guides == 0);
    struct qr_speculation *sp = &e->speculation;
    const struct qr_draft_source *source = &e->config.draft_source;
    sp->n = 0;
    sp->n_more = 0;
    sp->model_us = 0;
    if (sp->tokens_max == 0)
        return false;
    int32_t n;
    const int32_t *index = qr_sched_list(e->sched, QR_SEQ_DECODE, &n);
    for (int32_t i = 0; i < n; i++)
        ask_for(e, index[i]);
    if (sp->n == 0)
        return false;
    if (source->fill)
        source->fill(source->user, sp->ask, sp->n);
    else
        qr_draft_fill(sp->draft, sp->ask, sp->n);
    for (int32_t i = 0; i < sp->n && !source->fill; i++)
        qr_forced_guess(&e->slot[sp->ask[i].index].forced, &sp->ask[i], &e->slot[sp->ask[i].index].guide);
    if (e->draft_model)
        ask_model(e);
    float expected = 0;
    for (int32_t i = 0; i < sp->n; i++)
        expected += expected_of(sp, &sp->ask[i]);
    return expected > (e->ahead.be ? ALONE_SHARE * (float)sp->n : 0);
}

/* Of the slot's guesses of this step the first n_accepted were right; before them came the id that has landed since. */
static void judge(struct qr_engine *e, int32_t index, int32_t n_accepted)
{
    struct qr_slot *s = &e->slot[index];
    const int32_t n_all = s->n_guessed + s->n_landed, n_right = n_accepted + s->n_landed;
    if (e->speculation.draft && s->n_guessed > 0 && !qr_forced_judge(&s->forced, n_all, n_right))
        qr_draft_judge(e->speculation.draft, index, n_all, n_right);
    s->n_guessed = 0;
}

/* The id that was in flight is known: where it is the first guess, the others hold. */
static void land(struct qr_engine *e, struct qr_draft_ask *a)
{
    struct qr_slot *s = &e->slot[a->index];
    const int32_t n_known = a->seq->n_ids;
    if (!s->req) { /* its choice has ended with it */
        a->n = 0;
        return;
    }
    a->seq = qr_sched_seq(e->sched, a->index);
    QR_ASSERT(a->seq->n_ids == n_known + 1 && a->seq->ids[n_known] >= 0);
    if (a->n == 0 || a->ids[0] != a->seq->ids[n_known]) {
        s->n_guessed = a->n;
        judge(e, a->index, 0);
        a->n = 0;
        return;
    }
    s->n_landed = 1;
    a->n--;
    for (int32_t i = 0; i < a->n; i++) {
        a->ids[i] = a->ids[i + 1];
        a->p[i] = a->p[i + 1];
    }
}

static bool among(const int32_t *ids, int32_t n, int32_t id)
{
    for (int32_t i = 0; i < n; i++)
        if (ids[i] == id)
            return true;
    return false;
}

/* Behind an end there is nothing to guess. */
static bool may_follow(const struct qr_model_config *mc, const struct qr_sampling *p, int32_t id)
{
    return id >= 0 && id < mc->n_vocab && !among(mc->eos_ids, mc->n_eos, id) && !among(p->stop_ids, p->n_stop_ids, id);
}

static bool is_guided(const struct qr_request *r)
{
    return r->grammar || r->thinking.n_end > 0;
}

/* A guide that has followed one more guess, or NULL: the grammar does not allow it, or there is no place. */
static struct qr_guide *follow(struct qr_engine *e, const struct qr_request *r, const struct qr_guide *from, const int32_t *output, int32_t n_output)
{
    struct qr_speculation *sp = &e->speculation;
    struct qr_err none;
    if (sp->n_guides == sp->n_guides_max)
        return NULL;
    struct qr_guide *g = &sp->guide[sp->n_guides];
    qr_guide_copy(g, from);
    if (qr_guide_take(g, &r->thinking, output, n_output, false, &none) != 0) {
        qr_guide_release(g);
        return NULL;
    }
    sp->n_guides++;
    return g;
}

/* Leaves the guesses that may come: as far as the choice's grammar allows them. */
static void trim(struct qr_engine *e, struct qr_draft_ask *a)
{
    struct qr_slot *s = &e->slot[a->index];
    const struct qr_seq *q = a->seq;
    int32_t n = 0, *output = q->ids + q->n_prompt;
    const struct qr_guide *guide = &s->guide;
    s->first_guide = e->speculation.n_guides;
    for (; n < a->n && guide; n++) {
        const int32_t id = a->ids[n];
        if (!may_follow(e->rows.model, &s->req->sampling, id))
            break;
        output[q->n_ids - q->n_prompt + n] = id;
        if (is_guided(s->req) && !(guide = follow(e, s->req, guide, output, q->n_ids - q->n_prompt + n + 1)))
            break;
    }
    a->n = n;
}

void qr_speculate_plan(struct qr_engine *e)
{
    QR_ASSERT(e != NULL && e->speculation.n > 0);
    struct qr_speculation *sp = &e->speculation;
    const struct qr_engine_config *c = &e->config;
    const int32_t rows = c->step_tokens_max < c->logit_rows_max ? c->step_tokens_max : c->logit_rows_max;
    QR_ASSERT(sp->n_guides == 0 && sp->n <= rows);
    for (int32_t i = 0; i < sp->n; i++) {
        e->slot[sp->ask[i].index].n_landed = 0;
        if (is_shadow(sp, &sp->ask[i]))
            land(e, &sp->ask[i]);
    }
    if (sp->draft)
        qr_draft_cut(sp->draft, sp->ask, sp->n, sp->n, rows - sp->n);
    for (int32_t i = 0; i < sp->n; i++) {
        struct qr_draft_ask *a = &sp->ask[i];
        if (a->n == 0)
            continue;
        trim(e, a);
        qr_sched_draft(e->sched, a->index, a->ids, a->n);
    }
}

struct qr_guide *qr_speculate_guide(struct qr_engine *e, int32_t index, int32_t n)
{
    QR_ASSERT(e != NULL && n >= 0);
    struct qr_slot *s = &e->slot[index];
    QR_ASSERT(s->req != NULL);
    if (n == 0 || !is_guided(s->req))
        return &s->guide;
    QR_ASSERT(s->first_guide + n <= e->speculation.n_guides);
    return &e->speculation.guide[s->first_guide + n - 1];
}

/* ---- after the step ---- */

bool qr_speculate_push(struct qr_engine *e, const struct qr_row *row)
{
    QR_ASSERT(e != NULL && row != NULL);
    QR_ASSERT(row->kind == QR_ROW_DRAW);
    struct qr_slot *s = &e->slot[row->index];
    const int32_t n = row->seq->n_draft;
    if (row->guess == 0 && n > 0) {
        s->n_guessed = n;
        s->n_rejected += n;
        e->stats.n_drafts++;
        e->stats.n_draft_tokens += (uint64_t)n;
    }
    const bool right = row->finite && qr_sched_push(e->sched, row->index, row->token.id);
    if (right) {
        s->n_accepted++;
        s->n_rejected--;
        e->speculation.n_more++;
        e->stats.n_accepted_tokens++;
        e->stats.accepted_at[row->guess]++;
    } else
        judge(e, row->index, row->guess);
    return right;
}

void qr_speculate_done(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    struct qr_speculation *sp = &e->speculation;
    QR_ASSERT(sp->n_guides <= sp->n_guides_max);
    while (sp->n_guides > 0)
        qr_guide_release(&sp->guide[--sp->n_guides]);
}
