/* ahead.c - steps on a device that samples: what it is told to draw, and what it drew, one step late. Two flights are
 * kept, the one that was launched last and the one before it. Unknown ids have the names -1 - j until their step has
 * landed. A row that was dropped meanwhile is ignored when it lands. Arrays are pinned memory, allocated at opening.
 * Engine thread. */
#include "engine/ahead.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "model/ranks.h"

_Static_assert(QR_DRAW_TOP_MAX == QR_TOP_LOGPROBS_MAX, "a device tells of as many as a request may ask for");

bool qr_ahead_can(const struct qr_backend *be, const struct qr_model_config *model)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(model != NULL);
    return be->k->sample && !be->mem->host && model->n_vocab <= QR_DRAW_STRETCHES_MAX * QR_LINEAR_STRETCH;
}

void qr_ahead_init(struct qr_ahead *a, struct qr_backend *be, const struct qr_model_config *model, struct qr_masks *masks, int32_t rows_max)
{
    QR_ASSERT(a != NULL && be != NULL && model != NULL && masks != NULL);
    QR_ASSERT(qr_ahead_can(be, model) && rows_max >= masks->n_max);
    const size_t n = (size_t)rows_max;
    *a = (struct qr_ahead){.be = be, .model = model, .masks = masks};
    for (int32_t i = 0; i < QR_MARKS; i++) {
        struct qr_flight *f = &a->flight[i];
        f->row = qr_alloc(n, sizeof *f->row);
        f->dropped = qr_alloc(n, sizeof *f->dropped);
        f->drawn = be->mem->host_alloc(n * sizeof *f->drawn);
        f->detail = be->mem->host_alloc(n * sizeof *f->detail);
        f->hidden = be->mem->host_alloc(n * (size_t)model->n_embd * sizeof *f->hidden);
    }
    a->drawn = be->mem->alloc(n * sizeof *a->drawn);
    a->detail = be->mem->alloc(n * sizeof *a->detail);
    a->row = qr_alloc(n, sizeof *a->row);
    a->changes_max = 1024;
    a->change = qr_alloc((size_t)a->changes_max, sizeof *a->change);
    a->allowed = be->mem->alloc((size_t)masks->n_max * (size_t)masks->n_words * sizeof *a->allowed);
    a->met = qr_alloc((size_t)model->n_vocab, sizeof *a->met);
}

void qr_ahead_release(struct qr_ahead *a)
{
    QR_ASSERT(a != NULL);
    if (!a->be)
        return;
    a->be->mem->sync(a->be->queue); /* what is in flight still writes */
    for (int32_t i = 0; i < QR_MARKS; i++) {
        qr_free(a->flight[i].row);
        qr_free(a->flight[i].dropped);
        a->be->mem->host_free(a->flight[i].drawn);
        a->be->mem->host_free(a->flight[i].detail);
        a->be->mem->host_free(a->flight[i].hidden);
    }
    a->be->mem->free(a->drawn);
    a->be->mem->free(a->detail);
    qr_free(a->row);
    qr_free(a->change);
    a->be->mem->free(a->allowed);
    qr_free(a->met);
    *a = (struct qr_ahead){0};
}

/* ---- what is told ---- */

static struct qr_logit_change *add_change(struct qr_ahead *a, int32_t id)
{
    if (a->n_changes == a->changes_max) {
        a->changes_max *= 2;
        a->change = qr_realloc(a->change, (size_t)a->changes_max, sizeof *a->change);
    }
    a->change[a->n_changes] = (struct qr_logit_change){.id = id};
    return &a->change[a->n_changes++];
}

/* The change of this id, counted from `first`, where the row's changes begin. */
static struct qr_logit_change *change_of(struct qr_ahead *a, int32_t first, int32_t id)
{
    QR_ASSERT(id >= 0 && id < a->model->n_vocab);
    if (a->met[id] > 0)
        return &a->change[first + a->met[id] - 1];
    a->met[id] = a->n_changes - first + 1;
    return add_change(a, id);
}

/* Forbids the last id of runs whose other ids the output ends with. The device compares the newest id where only its name is
 * known: returns whether it has to. */
static bool tell_bad_words(struct qr_ahead *a, int32_t first, const struct qr_sampling *p, const int32_t *output, int32_t n_output)
{
    const bool named = n_output > 0 && output[n_output - 1] < 0;
    bool compares = false;
    for (int32_t at = 0; at < p->n_bad; at += 1 + p->bad[at]) {
        const int32_t *run = p->bad + at, n = run[0];
        if (!named || n == 1) {
            if (qr_bad_word_ends(run, output, n_output))
                change_of(a, first, run[n])->flags |= QR_CHANGE_FORBID;
            continue;
        }
        if (n > n_output + 1 || memcmp(output + n_output - (n - 1), run + 1, (size_t)(n - 2) * sizeof *run) != 0)
            continue;
        compares = true;
        const int32_t no = (int32_t)(change_of(a, first, run[n]) - (a->change + first));
        struct qr_logit_change *after = add_change(a, run[n - 1]);
        after->flags = QR_CHANGE_AFTER;
        after->after = a->change[first + no].after;
        a->change[first + no].after = a->n_changes - first;
    }
    return compares;
}

/* Where the row's bits are: those of a list of ids are known. */
static void tell_allowed(struct qr_ahead *a, struct qr_draw_row *d, const struct qr_row *row)
{
    const struct qr_sampling *p = &row->req->sampling;
    uint32_t *word = row->mask;
    if (!word && p->n_allowed == 0)
        return;
    if (!word) {
        word = qr_masks_next(a->masks);
        memset(word, 0, (size_t)a->masks->n_words * sizeof *word);
        for (int32_t i = 0; i < p->n_allowed; i++)
            word[p->allowed[i] / 32] |= 1u << (p->allowed[i] % 32);
    }
    d->allowed = (int32_t)(word - a->masks->word);
}

/* What qr_sample changes before it draws, as far as ids are known. A mask knows what is forbidden. */
static void tell_changes(struct qr_ahead *a, struct qr_draw_row *d, const struct qr_row *row)
{
    const struct qr_sampling *p = &row->req->sampling;
    const struct qr_seq *seq = row->seq;
    const int32_t n_ids = row->pos + 1, n_output = n_ids - seq->n_prompt;
    const int32_t newest = seq->ids[n_ids - 1], n_known = n_ids - (newest < 0), first = a->n_changes;
    const bool often = p->presence != 0 || p->frequency != 0;
    int32_t end_ids[QR_EOS_MAX + QR_STOP_IDS_MAX];
    const int32_t n_end = !row->mask && n_output < p->min_tokens ? qr_row_end_ids(a->model, p, end_ids) : 0;
    for (int32_t i = 0; p->repetition != 1.0f && i < n_known; i++)
        change_of(a, first, seq->ids[i])->flags |= QR_CHANGE_SEEN;
    for (int32_t i = seq->n_prompt; often && i < n_known; i++)
        change_of(a, first, seq->ids[i])->n_output++;
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        change_of(a, first, p->logit_bias[i].id)->bias += p->logit_bias[i].bias;
    for (int32_t i = 0; i < n_end; i++)
        if (end_ids[i] >= 0 && end_ids[i] < a->model->n_vocab)
            change_of(a, first, end_ids[i])->flags |= QR_CHANGE_FORBID;
    const bool compares = !row->mask && tell_bad_words(a, first, p, seq->ids + seq->n_prompt, n_output);
    for (int32_t i = first; i < a->n_changes; i++)
        a->met[a->change[i].id] = 0;
    d->first_change = first;
    d->n_changes = a->n_changes - first;
    d->newest = newest < 0 && (p->repetition != 1.0f || often || compares) ? -1 - newest : -1;
}

static struct qr_draw_row tell_row(struct qr_ahead *a, const struct qr_row *row)
{
    const struct qr_sampling *p = &row->req->sampling;
    const bool drawn = row->kind != QR_ROW_END && row->kind != QR_ROW_HIDDEN;
    struct qr_draw_row d = {.at = drawn ? row->at : -1, .newest = -1, .id = -1, .n_top = -1, .allowed = -1};
    if (row->kind == QR_ROW_PROMPT) {
        d.id = row->seq->ids[row->pos + 1];
        d.n_top = p->n_prompt_logprobs;
    }
    if (row->kind != QR_ROW_DRAW)
        return d;
    d.seed = p->seed, d.choice = row->choice, d.pos = row->pos + 1 - row->seq->n_prompt;
    d.temperature = p->temperature, d.top_p = p->top_p, d.min_p = p->min_p, d.top_k = p->top_k;
    d.repetition = p->repetition, d.presence = p->presence, d.frequency = p->frequency;
    d.n_top = p->n_logprobs;
    tell_changes(a, &d, row);
    tell_allowed(a, &d, row);
    return d;
}

void qr_ahead_tell(struct qr_ahead *a, struct qr_draws *out)
{
    QR_ASSERT(a != NULL && a->be != NULL);
    QR_ASSERT(out != NULL && !a->flight[a->next].launched);
    struct qr_flight *f = &a->flight[a->next];
    a->n_changes = 0;
    f->details = false;
    for (int32_t i = 0; i < f->n; i++) {
        a->row[i] = tell_row(a, &f->row[i]);
        f->dropped[i] = false;
        f->details = f->details || a->row[i].n_top >= 0;
    }
    *out = (struct qr_draws){.row = a->row, .change = a->change, .n_rows = f->n, .n_changes = a->n_changes};
}

/* ---- the flight ---- */

void qr_ahead_fly(struct qr_ahead *a, const struct qr_tensor *logits)
{
    QR_ASSERT(a != NULL && a->be != NULL);
    QR_ASSERT(logits != NULL && !a->flight[a->next].launched);
    a->logits = *logits;
    a->flight[a->next].launched = true;
}

void qr_ahead_launch(struct qr_ahead *a, struct qr_exec *x)
{
    QR_ASSERT(a != NULL && a->be != NULL && x != NULL);
    const struct qr_batch *placed = x->batch;
    QR_ASSERT(placed->host != NULL && placed->draws.n_rows == a->flight[a->next].n);
    struct qr_flight *f = &a->flight[a->next];
    const struct qr_mem_ops *mem = a->be->mem;
    struct qr_draws draws = placed->draws;
    QR_ASSERT(f->launched);
    draws.allowed = a->allowed;
    if (a->masks->n > 0)
        mem->put(a->be->queue, a->allowed, a->masks->word, (size_t)a->masks->n * (size_t)a->masks->n_words * sizeof *a->allowed);
    if (f->n > 0) {
        const struct qr_sample_args s = {.logits = a->logits.data, .draws = &draws, .drawn = a->drawn, .detail = f->details ? a->detail : NULL,
                                         .stride = a->logits.stride[0], .n_vocab = a->model->n_vocab};
        a->be->k->sample(a->be->queue, &s);
        qr_exec_share_drawn(x, a->drawn, f->n);
        mem->fetch(a->be->queue, f->drawn, a->drawn, (size_t)f->n * sizeof *f->drawn);
        if (f->details)
            mem->fetch(a->be->queue, f->detail, a->detail, (size_t)f->n * sizeof *f->detail);
    }
    if (x->hidden.data)
        mem->fetch(a->be->queue, f->hidden, x->hidden.data, (size_t)qr_tensor_count(&x->hidden) * sizeof *f->hidden);
    mem->mark(a->be->queue, a->next);
    a->next = (a->next + 1) % QR_MARKS;
}

/* The numbers of qr_token_logprob_fill, whose sum the device has made. */
static void read_detail(struct qr_token_logprob *out, const struct qr_drawn_detail *d, int32_t id)
{
    const double lse = (double)d->best + log(d->sum);
    *out = (struct qr_token_logprob){.id = id, .logprob = (float)((double)d->logit - lse), .rank = d->rank, .n_top = d->n_top};
    for (int32_t i = 0; i < d->n_top; i++) {
        out->top_id[i] = d->top_id[i];
        out->top_logprob[i] = (float)((double)d->top[i] - lse);
    }
}

void qr_ahead_await(struct qr_ahead *a, struct qr_flight *f)
{
    QR_ASSERT(a != NULL && a->be != NULL);
    QR_ASSERT(f != NULL && f->launched);
    a->be->mem->wait(a->be->queue, (int32_t)(f - a->flight));
    f->launched = false;
}

void qr_ahead_land(struct qr_ahead *a, struct qr_flight *f)
{
    QR_ASSERT(a != NULL && a->be != NULL);
    QR_ASSERT(f != NULL && !f->launched);
    for (int32_t i = 0; i < f->n; i++) {
        struct qr_row *row = &f->row[i];
        const struct qr_drawn *d = &f->drawn[i];
        if (f->dropped[i] || row->kind == QR_ROW_END)
            continue;
        if (row->kind == QR_ROW_HIDDEN) {
            row->hidden = f->hidden + (int64_t)row->at * a->model->n_embd;
            continue;
        }
        QR_ASSERT(d->id >= 0 && d->id < a->model->n_vocab);
        struct qr_token_logprob *out = row->kind == QR_ROW_PROMPT ? &row->req->prompt_logprobs[row->pos + 1] : &row->token;
        row->finite = isfinite(d->logit);
        *out = (struct qr_token_logprob){.id = d->id};
        if (row->kind == QR_ROW_PROMPT || (row->finite && row->req->sampling.n_logprobs >= 0))
            read_detail(out, &f->detail[i], d->id);
    }
}

bool qr_ahead_flies(const struct qr_ahead *a)
{
    QR_ASSERT(a != NULL);
    bool flies = false;
    for (int32_t k = 0; k < QR_MARKS; k++)
        flies = flies || a->flight[k].launched;
    return flies;
}

void qr_ahead_drop(struct qr_ahead *a, int32_t index)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(index >= 0);
    for (int32_t k = 0; k < QR_MARKS; k++)
        for (int32_t i = 0; a->flight[k].launched && i < a->flight[k].n; i++)
            a->flight[k].dropped[i] = a->flight[k].dropped[i] || a->flight[k].row[i].index == index;
}
