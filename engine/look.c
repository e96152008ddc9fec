/* What the engine thread fills a look with (view.h): its requests, the blocks of its cache. */
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/internal.h"

/* Blocks that it holds; own: that no other sequence does. */
static int32_t blocks_of(const struct qr_engine *e, const struct qr_seq *q, bool own)
{
    const uint8_t *use = qr_kv_uses(e->pool);
    const struct qr_kv_twins *twins = qr_kv_twins(e->pool);
    int32_t n = 0;
    for (int32_t part = 0; part <= twins->n; part++)
        for (int32_t i = part > 0 || twins->n == 0 ? q->n_behind : 0; i < q->n_blocks; i++)
            n += !own || use[q->blocks[part * twins->stride + i]] == QR_KV_USED;
    return n;
}

/* A choice's part of its request's. Blocks of the prompt, which choices share, count once. */
static void look_at_choice(struct qr_engine *e, uint64_t number, int32_t index, enum qr_request_state state)
{
    const struct qr_slot *s = &e->slot[index];
    const struct qr_seq *q = qr_sched_seq(e->sched, index);
    struct qr_request *r = s->req;
    struct qr_request_look *l = &r->look;
    const int32_t done = q->n_computed < q->n_prompt ? q->n_computed : q->n_prompt;
    if (l->number != number)
        *l = (struct qr_request_look){.number = number, .owner = q->owner, .first_token_us = r->first_token_us,
                                        .n_output = (int32_t)r->n_output_all};
    l->state = state; /* of the choice that has come farthest: those are met last */
    if (q->admitted_us > 0 && (l->admitted_us == 0 || q->admitted_us < l->admitted_us))
        l->admitted_us = q->admitted_us;
    l->n_output += s->out.n_output;
    l->n_done = done > l->n_done ? done : l->n_done;
    l->n_cached = q->n_cached > l->n_cached ? q->n_cached : l->n_cached;
    l->n_blocks += blocks_of(e, q, l->n_blocks > 0);
}

static void look_at_requests(struct qr_engine *e, uint64_t number)
{
    static const struct {
        enum qr_seq_state of;
        enum qr_request_state state;
    } row[] = {{QR_SEQ_HELD, QR_REQUEST_WAITING}, {QR_SEQ_WAITING, QR_REQUEST_WAITING}, {QR_SEQ_PREFILL, QR_REQUEST_PREFILL},
                 {QR_SEQ_DECODE, QR_REQUEST_DECODE}};
    for (int k = 0; k < QR_COUNT(row); k++) {
        int32_t n;
        const int32_t *index = qr_sched_list(e->sched, row[k].of, &n);
        for (int32_t i = 0; i < n; i++)
            look_at_choice(e, number, index[i], row[k].state);
    }
}

static struct qr_look_cell cell_of(const uint8_t *use, const uint32_t *owner, int32_t n)
{
    uint8_t most = 0;
    for (int32_t i = 0; i < n; i++)
        most = use[i] > most ? use[i] : most;
    int32_t first = 0;
    while (use[first] != most)
        first++;
    return (struct qr_look_cell){.use = most, .owner = most == QR_KV_FREE ? 0 : owner[first]};
}

static void look_at_blocks(struct qr_look *l, const struct qr_kv_pool *pool)
{
    struct qr_kv_stats st;
    const uint8_t *use = qr_kv_uses(pool);
    const uint32_t *owner = qr_kv_owners(pool);
    qr_kv_pool_stats(pool, &st);
    l->n_blocks = st.n_blocks;
    l->n_free = st.n_free;
    l->n_cached = st.n_cached;
    l->n_used = st.n_owned - st.n_shared;
    l->n_shared = st.n_shared;
    l->per_cell = (st.n_blocks + QR_LOOK_CELLS_MAX - 1) / QR_LOOK_CELLS_MAX;
    l->n_cells = 0;
    for (int32_t b = 0; b < st.n_blocks; b += l->per_cell) {
        const int32_t left = st.n_blocks - b;
        l->cell[l->n_cells++] = cell_of(use + b, owner + b, left < l->per_cell ? left : l->per_cell);
    }
    QR_ASSERT(l->n_cells <= QR_LOOK_CELLS_MAX);
}

void qr_look_if_asked(struct qr_engine *e)
{
    struct qr_look *l = qr_view_wanted(e->view);
    if (!l)
        return;
    l->number++;
    l->taken_us = qr_clock_us();
    look_at_requests(e, l->number);
    look_at_blocks(l, e->pool);
    qr_view_answer(e->view);
    if (e->wake)
        e->wake(e->wake_arg);
}
