/* masks.c - masks of a step's rows: the grammar's, or one forced id, less what else is forbidden. Rows are chained by their
 * grammar, a chain is an item of the pool: a mask is a function of its choice's tokens, so who fills it cannot be seen in
 * it. Nothing is allocated once open. begin on the engine thread, fill on the pool while the engine thread waits. */
#include "engine/masks.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "engine/guide.h"

enum { NONE_LEFT = -2, MANY = -1 }; /* instead of the only id that a mask allows */

struct qr_mask_group {
    const struct qr_grammar *grammar; /* NULL: rows without one */
    int32_t first, last;
};

void qr_masks_init(struct qr_masks *m, struct qr_backend *be, const struct qr_model_config *model, int32_t n_max)
{
    QR_ASSERT(m != NULL && be != NULL && model != NULL);
    QR_ASSERT(n_max > 0);
    const size_t n = (size_t)n_max, n_words = QR_MASK_WORDS(model->n_vocab);
    *m = (struct qr_masks){.be = be, .model = model, .n_words = (int32_t)n_words, .n_max = n_max};
    m->word = qr_alloc(n * n_words, sizeof *m->word);
    m->room = qr_alloc((size_t)be->n_threads * n_words, sizeof *m->room);
    m->err = qr_alloc(n, sizeof *m->err);
    m->row = qr_alloc(n, sizeof *m->row);
    m->next = qr_alloc(n, sizeof *m->next);
    m->group = qr_alloc(n, sizeof *m->group);
    qr_mem_populate(m->word, n * n_words * sizeof *m->word);
    qr_mem_populate(m->room, (size_t)be->n_threads * n_words * sizeof *m->room);
}

void qr_masks_release(struct qr_masks *m)
{
    QR_ASSERT(m != NULL);
    void *const owned[] = {m->word, m->room, m->err, m->row, m->next, m->group};
    for (int i = 0; i < QR_COUNT(owned); i++)
        qr_free(owned[i]);
    *m = (struct qr_masks){0};
}

int64_t qr_masks_bytes(int32_t n_vocab, int32_t n_max, int32_t n_threads)
{
    QR_ASSERT(n_vocab > 0);
    QR_ASSERT(n_max > 0 && n_threads > 0);
    const struct qr_masks *m = NULL;
    const size_t row = sizeof *m->err + sizeof *m->row + sizeof *m->next + sizeof *m->group;
    return (int64_t)(QR_MASK_WORDS(n_vocab) * sizeof *m->word * (size_t)(n_max + n_threads) + row * (size_t)n_max);
}

static int32_t n_output_of(const struct qr_row *row)
{
    return row->pos + 1 - row->seq->n_prompt;
}

static int32_t forced_id(const struct qr_row *row)
{
    return qr_guide_forced(row->guide, &row->req->thinking, row->seq->ids + row->seq->n_prompt, n_output_of(row));
}

static bool needs_mask(const struct qr_row *row, bool late)
{
    if (row->kind != QR_ROW_DRAW)
        return false;
    return row->req->grammar || (late ? qr_guide_may_force(row->guide, &row->req->thinking) : forced_id(row) >= 0);
}

uint32_t *qr_masks_next(struct qr_masks *m)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(m->n < m->n_max);
    return m->word + (size_t)m->n++ * (size_t)m->n_words;
}

int32_t qr_masks_begin(struct qr_masks *m, struct qr_row *row, int32_t n, bool late)
{
    QR_ASSERT(m != NULL && n >= 0);
    QR_ASSERT(row != NULL || n == 0);
    m->n = 0;
    for (int32_t i = 0; i < n; i++) {
        row[i].mask = needs_mask(&row[i], late) ? qr_masks_next(m) : NULL;
        row[i].failed = false;
    }
    return m->n;
}

static int32_t place_of(const struct qr_masks *m, const struct qr_row *row)
{
    return (int32_t)((row->mask - m->word) / m->n_words);
}

const struct qr_err *qr_masks_error(const struct qr_masks *m, const struct qr_row *row)
{
    QR_ASSERT(m != NULL && row != NULL);
    QR_ASSERT(row->failed && row->mask != NULL);
    return &m->err[place_of(m, row)];
}

/* ---- one mask ---- */

static void allow_all(const struct qr_masks *m, uint32_t *mask)
{
    const int32_t n_last = m->model->n_vocab % 32;
    memset(mask, 0xff, (size_t)m->n_words * sizeof *mask);
    if (n_last > 0)
        mask[m->n_words - 1] = (1u << n_last) - 1;
}

static bool allows(const uint32_t *mask, int32_t id)
{
    return mask[id / 32] >> (id % 32) & 1;
}

static void forbid(const struct qr_masks *m, uint32_t *mask, int32_t id)
{
    if (id >= 0 && id < m->model->n_vocab)
        mask[id / 32] &= ~(1u << (id % 32));
}

/* The only id that is left, MANY or NONE_LEFT. */
static int32_t only_of(const struct qr_masks *m, const uint32_t *mask)
{
    int32_t only = NONE_LEFT;
    for (int32_t i = 0; i < m->n_words; i++) {
        if (mask[i] == 0)
            continue;
        if (only >= 0 || (mask[i] & (mask[i] - 1)) != 0)
            return MANY;
        only = i * 32 + __builtin_ctz(mask[i]);
    }
    return only;
}

static void forbid_ends(const struct qr_masks *m, const struct qr_row *row, uint32_t *mask)
{
    const struct qr_sampling *p = &row->req->sampling;
    const bool early = n_output_of(row) < p->min_tokens;
    for (int32_t i = 0; (row->req->grammar ? early || p->ignore_eos : early && !p->ignore_eos) && i < m->model->n_eos; i++)
        forbid(m, mask, m->model->eos_ids[i]);
    for (int32_t i = 0; early && i < p->n_stop_ids; i++)
        forbid(m, mask, p->stop_ids[i]);
}

/* Takes out what the request forbids; the mask stays as it was where its grammar allows nothing else. */
static int32_t narrow(const struct qr_masks *m, const struct qr_row *row, uint32_t *mask, uint32_t *room)
{
    const struct qr_sampling *p = &row->req->sampling;
    const int32_t *output = row->seq->ids + row->seq->n_prompt, n_output = n_output_of(row);
    const size_t bytes = (size_t)m->n_words * sizeof *mask;
    if (p->n_allowed == 0 && p->n_bad == 0 && n_output >= p->min_tokens && !p->ignore_eos)
        return only_of(m, mask);
    memcpy(room, mask, bytes);
    if (p->n_allowed > 0)
        memset(mask, 0, bytes);
    for (int32_t i = 0; i < p->n_allowed; i++)
        if (allows(room, p->allowed[i]))
            mask[p->allowed[i] / 32] |= 1u << (p->allowed[i] % 32);
    forbid_ends(m, row, mask);
    for (int32_t at = 0; at < p->n_bad; at += 1 + p->bad[at])
        if (qr_bad_word_ends(p->bad + at, output, n_output))
            forbid(m, mask, p->bad[at + p->bad[at]]);
    const int32_t only = only_of(m, mask);
    if (only != NONE_LEFT || !row->req->grammar)
        return only;
    memcpy(mask, room, bytes);
    return only_of(m, mask);
}

static void fail(struct qr_masks *m, struct qr_row *row)
{
    row->failed = true;
    row->only = MANY;
    allow_all(m, row->mask);
}

static void fill_row(struct qr_masks *m, struct qr_row *row, uint32_t *room)
{
    struct qr_err *err = &m->err[place_of(m, row)];
    row->only = MANY;
    if (!row->guide->matcher.grammar)
        allow_all(m, row->mask);
    else if (qr_matcher_mask(&row->guide->matcher, row->mask, err) != 0) {
        fail(m, row);
        return;
    }
    const int32_t forced = forced_id(row);
    if (forced >= 0 && allows(row->mask, forced)) {
        memset(row->mask, 0, (size_t)m->n_words * sizeof *row->mask);
        row->mask[forced / 32] = 1u << (forced % 32);
        row->only = forced;
        return;
    }
    row->only = narrow(m, row, row->mask, room);
    if (row->only != NONE_LEFT || !row->guide->matcher.grammar)
        return;
    qr_err_set(err, QR_E_INTERNAL, "the grammar allows no token behind token %d of the answer", n_output_of(row));
    fail(m, row);
}

/* ---- all of a step ---- */

/* Item: a grammar. */
static void fill_group(const void *arg, int32_t item, int32_t worker)
{
    struct qr_masks *m = (struct qr_masks *)(uintptr_t)arg; /* of which a worker changes its own part */
    for (int32_t i = m->group[item].first; i >= 0; i = m->next[i])
        fill_row(m, m->row[i], m->room + (size_t)worker * (size_t)m->n_words);
}

/* Appends row i to the chain of its grammar; returns how many chains there are. */
static int32_t chain(struct qr_masks *m, int32_t i, int32_t n_groups)
{
    const struct qr_grammar *grammar = m->row[i]->guide->matcher.grammar;
    int32_t g = 0;
    while (g < n_groups && m->group[g].grammar != grammar)
        g++;
    m->next[i] = -1;
    if (g == n_groups) {
        m->group[g] = (struct qr_mask_group){grammar, i, i};
        return n_groups + 1;
    }
    m->next[m->group[g].last] = i;
    m->group[g].last = i;
    return n_groups;
}

void qr_masks_fill(struct qr_masks *m, struct qr_row *row, int32_t n, const bool *dropped)
{
    QR_ASSERT(m != NULL && n >= 0);
    QR_ASSERT(row != NULL || n == 0);
    int32_t n_filled = 0, n_groups = 0;
    for (int32_t i = 0; i < n; i++) {
        if (!row[i].mask)
            continue;
        if (dropped && dropped[i]) {
            allow_all(m, row[i].mask);
            continue;
        }
        m->row[n_filled] = &row[i];
        n_groups = chain(m, n_filled++, n_groups);
    }
    if (n_groups > 0)
        qr_backend_run(m->be, fill_group, m, n_groups);
}
