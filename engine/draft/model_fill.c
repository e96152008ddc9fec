/* model_fill.c - guesses of a draft model: what is missing of sequences is computed, then their next tokens one after the other, all sequences together.
 *
 * A call looks back first: guesses of earlier calls whose positions have tokens now say how far the draft model can be trusted, and the rows of those that were
 * right count as known. Then a guess is made as long as the time that it may save is worth more than the time that making and checking it takes; how long its
 * own forwards take was measured. Each call that finds guesses not worth it forgets a little of why, so that a bad hour ends. Engine thread. */
#include <math.h>
#include <string.h>

#include "base/clock.h"
#include "engine/draft/model.h"
#include "engine/draft/model_internal.h"
#include "engine/sampler.h"

#define LEARN (1.0 / 32)   /* of what is known, what a guess replaces whose position has got its token */
#define FORGET (1.0 / 512) /* of what was learnt, what a call without guesses forgets */
#define FIRST_ROWS 32      /* of a forward before one was measured */
#define SAVES 0.25         /* of a step's time, what guesses may save a sequence for each of its tokens to come: for which missing rows are computed */

/* ---- what is known ---- */

/* Rows [0, n) of the sequence are there, now that those from n_done on were computed. */
static void know(struct qr_draft_model *m, struct qr_draft_track *t, const struct qr_seq *seq, int32_t n)
{
    const int32_t size = m->block_tokens;
    for (int32_t i = t->n_done / size; i * size < n; i++)
        m->have[seq->blocks[i]] = (uint16_t)(n - i * size < size ? n - i * size : size);
    t->n_done = n;
}

/* Rows that another sequence has computed, in blocks that both have. The last one is computed here, for its logits. */
static void find_done(struct qr_draft_model *m, struct qr_draft_track *t, const struct qr_seq *seq)
{
    const int32_t size = m->block_tokens;
    for (int32_t i = t->n_done / size; i < seq->n_blocks && t->n_done >= i * size && m->have[seq->blocks[i]] > t->n_done - i * size; i++)
        t->n_done = i * size + m->have[seq->blocks[i]];
    t->n_done = t->n_done < seq->n_ids ? t->n_done : seq->n_ids - 1;
}

static void learn(struct qr_draft_model *m, bool right, float p)
{
    m->stats.n_judged++;
    m->stats.n_right += right;
    m->right += ((right ? 1 : 0) - m->right) * LEARN;
    m->trust += ((right ? 1 : 0) - m->trust * (double)p) * LEARN;
    m->trust = m->trust < 0.01 ? 0.01 : m->trust;
}

static void forget(struct qr_draft_model *m)
{
    m->right += (QR_DRAFT_RIGHT - m->right) * FORGET;
    m->trust += (1 - m->trust) * FORGET;
}

/* What came of the last guesses. */
static void look_back(struct qr_draft_model *m, struct qr_draft_track *t, const struct qr_seq *seq)
{
    for (int32_t i = 0; i < t->n_guess && t->base + i < seq->n_ids; i++) {
        const bool right = seq->ids[t->base + i] == t->guess[i];
        learn(m, right, t->p[i]);
        if (!right)
            break;
        if (i < t->n_rows && t->n_done == t->base + i)
            know(m, t, seq, t->base + i + 1);
    }
    t->n_guess = 0;
}

/* ---- time ---- */

/* What a forward of so many rows is expected to take. */
static double expected_us(const struct qr_draft_model *m, int32_t n_rows)
{
    return m->stats.n_forwards > 0 ? qr_worth_us(&m->worth, n_rows) : 0;
}

/* Whether a sequence that will be right with this chance is worth a guess more, made for n_seqs of them together. */
static bool is_worth(const struct qr_draft_model *m, const struct qr_draft_price *price, double chance, int32_t n_seqs)
{
    if (price->step_us == 0)
        return chance > 0.01;
    return chance * price->step_us / price->n_seqs > expected_us(m, n_seqs) / n_seqs + price->row_us;
}

/* Rows that are missing of sequences, to be computed in one call: as many as take no longer than the step does, so that gaps between tokens stay in bounds. */
static int32_t rows_at_once(const struct qr_draft_model *m, const struct qr_draft_price *price)
{
    int32_t n = m->stats.n_forwards > 0 || m->rows_max < FIRST_ROWS ? m->rows_max : FIRST_ROWS;
    if (price->step_us == 0)
        return m->rows_max;
    while (n > 2 && expected_us(m, n) > price->step_us)
        n /= 2;
    return n;
}

static bool is_wanted(const struct qr_draft_model *m, const struct qr_draft_ask *ask)
{
    return ask->room > 0 && (ask->n == 0 || ask->p[0] < m->right);
}

/* ---- one forward ---- */

static struct qr_tensor forward(struct qr_draft_model *m, int32_t n_prefill, int32_t n_logits)
{
    m->batch.n_tokens = m->n_rows;
    m->batch.n_seqs = m->n_entries;
    m->batch.n_prefill_seqs = n_prefill;
    m->batch.n_logits = n_logits;
    const int64_t from_us = qr_clock_us();
    const struct qr_tensor logits = qr_model_forward(&m->exec, &m->batch);
    qr_worth_note(&m->worth, m->n_rows, (double)(qr_clock_us() - from_us));
    m->stats.n_rows += m->n_rows;
    m->stats.n_forwards++;
    return logits;
}

static void put_row(struct qr_draft_model *m, int32_t entry, int32_t id, int32_t pos)
{
    const int32_t row = m->n_rows++, size = m->block_tokens;
    QR_ASSERT(row < m->rows_max);
    QR_ASSERT(pos < m->ctx_max);
    m->ids[row] = id >= 0 && id < qr_model_config(m->model)->n_vocab ? id : 0; /* a row that pads the model's vocabulary */
    m->pos[row] = pos;
    m->slot[row] = qr_draft_table_of(m, entry)[pos / size] * size + pos % size;
    m->row_start[entry + 1] = m->n_rows;
    m->ctx_len[entry] = pos + 1;
}

/* The most likely id of row `at`, and how likely; -1: the logits are no numbers, or the model does not have the id. */
static int32_t best_of(const struct qr_draft_model *m, const struct qr_tensor *logits, int32_t at, float *p)
{
    const struct qr_row_math *math = qr_row_math_best();
    const struct qr_logits row = qr_logits_at(logits->data, logits->stride[0], &m->exec.stretches, at);
    const int32_t n = qr_model_config(m->model)->n_vocab, n_stretches = (n + QR_STRETCH - 1) / QR_STRETCH;
    const float best = row.largest ? math->max(row.largest, n_stretches, -INFINITY) : math->max(row.x, n, -INFINITY);
    if (!isfinite(best))
        return -1;
    const int32_t from = row.largest ? math->first(row.largest, n_stretches, best) * QR_STRETCH : 0;
    const int32_t id = from + math->first(row.x + from, n - from, best);
    if (id >= m->n_vocab)
        return -1;
    *p = (float)exp((double)best - qr_log_sum_exp(&row, n));
    return id;
}

/* ---- which sequences ---- */

/* Rows that there is a place for: in the sequence's blocks, and behind these in blocks of this model's own. */
static int32_t n_places(const struct qr_draft_model *m, const struct qr_seq *seq)
{
    const int64_t n = (int64_t)(seq->n_blocks + m->n_tail) * m->block_tokens;
    return n < m->ctx_max ? (int32_t)n : m->ctx_max;
}

static void fill_table(struct qr_draft_model *m, int32_t entry, const struct qr_seq *seq)
{
    int32_t *table = qr_draft_table_of(m, entry);
    for (int32_t i = 0; i < seq->n_blocks; i++)
        table[i] = seq->blocks[i];
    QR_ASSERT(seq->n_blocks + m->n_tail <= m->stride);
    for (int32_t i = 0; i < m->n_tail; i++)
        table[seq->n_blocks + i] = m->n_blocks + entry * m->n_tail + i;
}

/* Its missing rows join the batch while that has less than rows_max; several of one sequence, or one. */
static void join(struct qr_draft_model *m, struct qr_draft_ask *ask, const struct qr_draft_price *price, bool several, int32_t rows_max)
{
    const struct qr_seq *seq = ask->seq;
    struct qr_draft_track *t = &m->track[ask->index];
    const int32_t size = m->block_tokens, left = seq->n_prompt + seq->new_max - seq->n_ids;
    if (t->tenure != seq->tenure || t->joined || n_places(m, seq) < seq->n_ids || m->n_entries == m->seqs_max)
        return;
    if (t->n_done < seq->n_behind * size) /* rows are missing whose blocks are others' by now */
        return;
    find_done(m, t, seq);
    const int32_t missing = seq->n_ids - t->n_done, n = missing < rows_max - m->n_rows ? missing : rows_max - m->n_rows;
    if ((missing > 1) != several || n <= 0)
        return;
    if (missing > size && price->step_us > 0 && missing * expected_us(m, m->rows_max) / m->rows_max > SAVES * left * price->step_us / price->n_seqs)
        return;
    t->joined = true;
    const int32_t entry = m->n_entries++, room = n_places(m, seq) - seq->n_ids + 1;
    m->entry[entry] = (struct qr_draft_entry){.ask = ask, .track = t, .pos = t->n_done, .n_rows = n, .guesses = n == missing,
                                              .room = ask->room < room ? ask->room : room, .chance = 1};
    fill_table(m, entry, seq);
    for (int32_t i = 0; i < n; i++)
        put_row(m, entry, seq->ids[t->n_done + i], t->n_done + i);
    const int32_t end = t->n_done + n, placed = seq->n_blocks * size;
    know(m, t, seq, end < placed ? end : placed);
}

/* The sequences of asks: those with several rows stand first in a batch. Returns how many do. */
static int32_t gather(struct qr_draft_model *m, struct qr_draft_ask *ask, int32_t n, const struct qr_draft_price *price)
{
    int32_t n_several = 0;
    m->n_entries = m->n_rows = 0;
    m->row_start[0] = 0;
    for (int32_t several = 1; several >= 0; several--) {
        for (int32_t i = 0; i < n; i++)
            if (is_wanted(m, &ask[i]))
                join(m, &ask[i], price, several, several ? rows_at_once(m, price) : m->rows_max);
        n_several = several ? m->n_entries : n_several;
    }
    return n_several;
}

/* ---- guesses ---- */

/* Takes the guesses of a forward, row by row of its logits; then only entries that go on are left, each with one row to compute. */
static void take(struct qr_draft_model *m, const struct qr_tensor *logits, const struct qr_draft_price *price)
{
    int32_t n = 0, at = 0;
    const int32_t n_before = m->n_entries;
    for (int32_t i = 0; i < n_before; i++) {
        struct qr_draft_entry e = m->entry[i];
        struct qr_draft_ask *ask = e.ask;
        float p;
        if (!e.guesses)
            continue;
        const int32_t id = best_of(m, logits, at++, &p);
        if (id < 0)
            continue;
        const double likely = p * m->trust < 0.99 ? p * m->trust : 0.99;
        struct qr_draft_track *t = e.track;
        t->base = ask->seq->n_ids;
        t->guess[ask->n] = ask->ids[ask->n] = id;
        t->p[ask->n] = p;
        ask->p[ask->n++] = (float)likely;
        t->n_guess = ask->n;
        e.chance *= likely;
        e.pos = ask->seq->n_ids + ask->n - 1;
        e.n_rows = 1;
        if (ask->n == e.room || !is_worth(m, price, e.chance * m->right, n_before))
            continue;
        if (n != i)
            memcpy(qr_draft_table_of(m, n), qr_draft_table_of(m, i), (size_t)(ask->seq->n_blocks + m->n_tail) * sizeof *m->table);
        m->entry[n++] = e;
    }
    m->n_entries = n;
}

/* One row more of each entry: that of its last guess. */
static void put_guesses(struct qr_draft_model *m)
{
    m->n_rows = 0;
    for (int32_t i = 0; i < m->n_entries; i++) {
        const struct qr_draft_entry *e = &m->entry[i];
        const struct qr_seq *seq = e->ask->seq;
        m->logit_row[i] = i;
        put_row(m, i, e->ask->ids[e->ask->n - 1], e->pos);
        if (e->track->n_done == seq->n_ids && e->pos < seq->n_blocks * m->block_tokens)
            e->track->n_rows = e->ask->n;
    }
}

/* Entries whose guesses come now. Others keep those that they have. Returns how many there are. */
static int32_t want_logits(struct qr_draft_model *m, struct qr_draft *d)
{
    int32_t n = 0;
    for (int32_t i = 0; i < m->n_entries; i++) {
        struct qr_draft_ask *ask = m->entry[i].ask;
        if (!m->entry[i].guesses)
            continue;
        m->logit_row[n++] = m->row_start[i + 1] - 1;
        if (ask->n > 0 && d)
            qr_draft_forgo(d, ask->index);
        ask->n = 0;
    }
    return n;
}

void qr_draft_model_fill(struct qr_draft_model *m, struct qr_draft *d, struct qr_draft_ask *ask, int32_t n, const struct qr_draft_price *price)
{
    QR_ASSERT(m != NULL && m->kv_mem != NULL);
    QR_ASSERT(ask != NULL && n >= 0);
    QR_ASSERT(price != NULL && price->n_seqs >= 1);
    int32_t n_wanted = 0;
    for (int32_t i = 0; i < n; i++) {
        struct qr_draft_track *t = &m->track[ask[i].index];
        QR_ASSERT(ask[i].index < m->n_slots);
        if (t->tenure == ask[i].seq->tenure)
            look_back(m, t, ask[i].seq);
        t->n_rows = 0;
        t->joined = false;
        n_wanted += is_wanted(m, &ask[i]);
    }
    if (n_wanted == 0)
        return;
    if (!is_worth(m, price, m->right, n_wanted)) {
        forget(m);
        return;
    }
    const int32_t n_several = gather(m, ask, n, price);
    if (m->n_entries == 0)
        return;
    const int32_t n_logits = want_logits(m, d);
    for (struct qr_tensor logits = forward(m, n_several, n_logits);; logits = forward(m, 0, m->n_entries)) {
        take(m, &logits, price);
        if (m->n_entries == 0)
            return;
        put_guesses(m);
    }
}
