#include "engine/pins.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "engine/internal.h"

int qr_pins_check(struct qr_engine *e, const struct qr_request *r, struct qr_err *err)
{
    const struct qr_engine_limits *l = &e->limits;
    const int32_t n = r->n_prompt / l->block_tokens, n_blocks = qr_kv_pin_blocks(e->pool, n);
    if (!r->pin.wanted)
        return 0;
    QR_ASSERT(r->n_choices == 1 && r->sampling.max_tokens == 0);
    QR_ASSERT(r->pooling == QR_POOLING_NONE && r->sampling.n_prompt_logprobs < 0);
    if (!e->config.prefix_cache)
        return qr_err_set(err, QR_E_UNSUPPORTED, "the prefix cache is off (--no-prefix-cache), so nothing can be pinned in it");
    if (n == 0)
        return qr_err_at(err, QR_E_INVALID, "prompt", "the prompt has %d tokens; pins hold full blocks of %d", r->n_prompt, l->block_tokens);
    const int32_t window = qr_model_window(qr_model_config(e->model));
    if (window > 0 && r->n_prompt > window)
        return qr_err_set(err, QR_E_UNSUPPORTED, "the prompt has %d tokens; no layer of this model looks back further than %d, and blocks "
                          "behind are given back", r->n_prompt, window);
    if (n_blocks > l->n_pinned_max)
        return qr_err_set(err, QR_E_NO_ROOM, "the prompt's %d blocks of %d tokens are more than pins may hold together: %d of %d blocks, as "
                          "--kv-pinned-share is %g and a whole context needs %d; raise --kv-tokens, or lower --max-len", n_blocks, l->block_tokens,
                          l->n_pinned_max, l->n_blocks, e->config.pinned_share, l->seq_blocks);
    return 0;
}

/* All pins are in use, or their blocks are. */
static int fail_full(const struct qr_engine *e, const struct qr_request *r, struct qr_err *err)
{
    struct qr_kv_stats st;
    qr_kv_pool_stats(e->pool, &st);
    return qr_err_set(err, QR_E_NO_ROOM, "the prompt has %d blocks; %d pins of at most %d hold %d blocks of at most %d (--kv-pinned-share %g): unpin another",
                      qr_kv_pin_blocks(e->pool, r->n_prompt / e->limits.block_tokens), e->pins.n, QR_PINS_MAX, st.n_pinned, st.n_pinned_max,
                      e->config.pinned_share);
}

enum qr_finish qr_pins_end(struct qr_engine *e, int32_t index, int64_t now)
{
    struct qr_request *r = e->slot[index].req;
    const struct qr_seq *q = qr_sched_seq(e->sched, index);
    const int32_t n = r->n_prompt / e->limits.block_tokens;
    struct qr_pins *p = &e->pins;
    if (!r->pin.wanted)
        return QR_FINISH_LENGTH;
    QR_ASSERT(q->n_computed >= n * e->limits.block_tokens && q->n_blocks >= n);
    const int32_t at = qr_kv_pin(e->pool, q->blocks, n, q->ids, q->salt, &q->root, q->adapter);
    if (at < 0) {
        fail_full(e, r, &r->err);
        return QR_FINISH_ERROR;
    }
    QR_ASSERT(!p->entry[at].held);
    r->pin.n_blocks = qr_kv_pin_blocks(e->pool, n);
    const int64_t made_s = qr_clock_wall_s(), expires_us = r->pin.ttl_us > 0 ? now + r->pin.ttl_us : INT64_MAX;
    r->pin.expires_s = r->pin.ttl_us > 0 ? made_s + (r->pin.ttl_us + 999999) / 1000000 : 0;
    pthread_mutex_lock(&p->lock);
    p->entry[at] = (struct qr_pin_entry){.held = true, .expires_us = expires_us, .number = ++p->last,
        .pin = {.id = r->id, .owner = q->owner, .n_tokens = n * e->limits.block_tokens, .n_blocks = r->pin.n_blocks, .made_s = made_s,
                .expires_s = r->pin.expires_s}};
    p->n++;
    pthread_mutex_unlock(&p->lock);
    p->next_us = expires_us < p->next_us ? expires_us : p->next_us;
    return QR_FINISH_LENGTH;
}

void qr_pins_release(struct qr_engine *e, int64_t now)
{
    struct qr_pins *p = &e->pins;
    if (!atomic_load_explicit(&p->to_release, memory_order_relaxed) && now < p->next_us)
        return;
    atomic_store(&p->to_release, false);
    p->next_us = INT64_MAX;
    pthread_mutex_lock(&p->lock);
    for (int32_t i = 0; i < QR_PINS_MAX; i++) {
        struct qr_pin_entry *x = &p->entry[i];
        if (x->held && (x->leaving || now >= x->expires_us)) {
            qr_kv_unpin(e->pool, i);
            x->held = false;
            p->n--;
        }
        if (x->held && x->expires_us < p->next_us)
            p->next_us = x->expires_us;
    }
    pthread_mutex_unlock(&p->lock);
}

int64_t qr_pins_wait_us(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    const int64_t next_us = e->pins.next_us, left_us = next_us - qr_clock_us();
    QR_ASSERT(next_us > 0);
    return next_us == INT64_MAX ? -1 : left_us > 1000 ? left_us : 1000;
}

static bool is_there(const struct qr_pin_entry *x, int64_t now)
{
    return x->held && !x->leaving && now < x->expires_us;
}

int32_t qr_engine_pins(const struct qr_engine *e, struct qr_pin out[QR_PINS_MAX])
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(out != NULL);
    struct qr_pins *p = &((struct qr_engine *)(uintptr_t)e)->pins; /* a lock is no change that a reader could see */
    uint64_t number[QR_PINS_MAX];
    int32_t n = 0;
    const int64_t now = qr_clock_us();
    pthread_mutex_lock(&p->lock);
    for (int32_t i = 0; i < QR_PINS_MAX; i++) {
        const struct qr_pin_entry *x = &p->entry[i];
        int32_t at = n;
        if (!is_there(x, now))
            continue;
        for (; at > 0 && number[at - 1] > x->number; at--) {
            number[at] = number[at - 1];
            out[at] = out[at - 1];
        }
        number[at] = x->number;
        out[at] = x->pin;
        n++;
    }
    pthread_mutex_unlock(&p->lock);
    return n;
}

bool qr_engine_unpin(struct qr_engine *e, uint64_t id)
{
    QR_ASSERT(e != NULL);
    struct qr_pins *p = &e->pins;
    bool found = false;
    const int64_t now = qr_clock_us();
    pthread_mutex_lock(&p->lock);
    for (int32_t i = 0; i < QR_PINS_MAX && !found; i++) {
        found = is_there(&p->entry[i], now) && p->entry[i].pin.id == id;
        p->entry[i].leaving |= found;
    }
    pthread_mutex_unlock(&p->lock);
    if (found) {
        atomic_store(&p->to_release, true);
        qr_mailbox_poke(&e->inbox);
    }
    return found;
}
