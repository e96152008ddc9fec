/* rig.h - an exchange with a mock engine behind it, for the tests of exchange/: block `number` has a name and bytes that are functions of its number, and a
 * side has the blocks that its test says. One thread drives all sides. */
#ifndef QR_TESTS_EXCHANGE_RIG_H
#define QR_TESTS_EXCHANGE_RIG_H

#include <semaphore.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "exchange/exchange.h"

enum { RIG_BLOCK_BYTES = 20000, RIG_LENDS_MAX = 16, RIG_FETCHES_MAX = 64, RIG_NAMES_MAX = 512 };

struct rig_fetch {
    struct qr_fetch fetch;
    struct qr_kv_name names[RIG_NAMES_MAX];
    int32_t number;     /* of its first name */
    int32_t n_arrived;
    bool over;
    int64_t over_us, arrived_us;
};

struct rig {
    struct qr_exchange *x;
    sem_t *bell;
    int32_t n_has;      /* it has blocks 0 .. n_has */
    bool holds;         /* arrived parcels are kept, not given back */
    bool mute;          /* lends are not served */
    struct qr_node lends, kept;
    int32_t n_lends, n_wrong, n_bad_order;
    int64_t order[4096];/* which lend each copied block was for */
    int32_t n_order;
};

static inline void rig_name(struct qr_kv_name *out, int32_t number)
{
    memset(out, 7, sizeof *out);
    memcpy(out->byte, &number, sizeof number);
}

static inline int32_t rig_number(const struct qr_kv_name *name)
{
    int32_t number;
    memcpy(&number, name->byte, sizeof number);
    return number;
}

static inline void rig_fill(uint8_t *bytes, int32_t number)
{
    for (int32_t i = 0; i < RIG_BLOCK_BYTES; i++)
        bytes[i] = (uint8_t)(number * 31 + i * 7 + (i >> 8));
}

static inline bool rig_is(const uint8_t *bytes, int32_t number)
{
    uint8_t right[RIG_BLOCK_BYTES];
    rig_fill(right, number);
    return memcmp(bytes, right, sizeof right) == 0;
}

static inline void rig_wake(void *arg)
{
    sem_post(arg);
}

static inline struct qr_exchange_config rig_config(sem_t *bell)
{
    struct qr_exchange_config config = {.block_bytes = RIG_BLOCK_BYTES, .n_parcels = 8, .lends_max = RIG_LENDS_MAX, .prompt_max = 1000};
    config.wake = rig_wake;
    config.wake_arg = bell;
    memset(&config.domain, 3, sizeof config.domain);
    return config;
}

static inline int rig_open(struct rig *r, const struct qr_exchange_config *config, struct qr_err *err)
{
    *r = (struct rig){.bell = config->wake_arg};
    qr_list_init(&r->lends);
    qr_list_init(&r->kept);
    return qr_exchange_open(&r->x, config, err);
}

static inline void rig_release(struct rig *r)
{
    struct qr_node *node;
    r->holds = false;
    while ((node = qr_list_pop_front(&r->kept)))
        qr_parcel_give_back(QR_CONTAINER(node, struct qr_parcel, link));
}

static inline void rig_close(struct rig *r)
{
    rig_release(r);
    while (qr_list_pop_front(&r->lends)) {
    }
    qr_exchange_close(r->x);
    r->x = NULL;
}

static inline void rig_ask(struct rig *r, struct rig_fetch *f, int32_t number, int32_t n, int32_t peer)
{
    QR_ASSERT(n <= RIG_NAMES_MAX);
    *f = (struct rig_fetch){.number = number};
    for (int32_t i = 0; i < n; i++)
        rig_name(&f->names[i], number + i);
    f->fetch.names = f->names;
    f->fetch.n = n;
    f->fetch.peer = peer;
    qr_exchange_fetch(r->x, &f->fetch);
}

static inline void rig_arrived(struct rig *r, struct qr_parcel *p)
{
    struct rig_fetch *f = QR_CONTAINER(p->fetch, struct rig_fetch, fetch);
    const int32_t index = f->fetch.first + f->n_arrived++;
    f->arrived_us = qr_clock_us();
    r->n_bad_order += f->over || p->index != index;
    r->n_wrong += rig_number(&p->name) != f->number + p->index || !rig_is(p->bytes, f->number + p->index);
    if (r->holds)
        qr_list_push_back(&r->kept, &p->link);
    else
        qr_parcel_give_back(p);
}

/* One lend as far as parcels allow, and by four blocks. True: it is answered. */
static inline bool rig_lend(struct rig *r, struct qr_lend *l)
{
    if (l->next == 0 && !l->engine) {
        int32_t n = 0;
        while (n < l->n && rig_number(&l->names[n]) < r->n_has)
            n++;
        qr_exchange_tell(r->x, l, n, false);
        l->engine = r;
    }
    const int32_t stop = l->next + 4;
    for (; !atomic_load(&l->gone) && l->next < l->n && rig_number(&l->names[l->next]) < r->n_has; l->next++) {
        struct qr_parcel *p = qr_exchange_parcel(r->x, l);
        if (!p)
            return false;
        rig_fill(p->bytes, rig_number(&l->names[l->next]));
        if (r->n_order < QR_COUNT(r->order))
            r->order[r->n_order++] = rig_number(&l->names[0]);
        p->lend = l;
        p->index = l->next;
        p->name = l->names[l->next];
        qr_exchange_send(r->x, p);
        if (l->next + 1 == stop && stop < l->n) {
            l->next++;
            sem_post(r->bell);
            return false;
        }
    }
    qr_exchange_answered(r->x, l);
    return true;
}

static inline void rig_step(struct rig *r)
{
    struct qr_node arrived, over, asked, *node;
    if (!r->x)
        return;
    qr_list_init(&arrived);
    qr_list_init(&over);
    qr_list_init(&asked);
    qr_exchange_take(r->x, &arrived, &over, &asked);
    while ((node = qr_list_pop_front(&arrived)))
        rig_arrived(r, QR_CONTAINER(node, struct qr_parcel, link));
    while ((node = qr_list_pop_front(&over))) {
        struct rig_fetch *f = QR_CONTAINER(QR_CONTAINER(node, struct qr_fetch, link), struct rig_fetch, fetch);
        f->over = true;
        f->over_us = qr_clock_us();
    }
    while ((node = qr_list_pop_front(&asked))) {
        qr_list_push_back(&r->lends, node);
        r->n_lends++;
    }
    for (struct qr_node *at = r->lends.next, *next; at != &r->lends && !r->mute; at = next) {
        struct qr_lend *l = QR_CONTAINER(at, struct qr_lend, link);
        next = at->next;
        qr_list_remove(at);
        if (!rig_lend(r, l))
            qr_list_push_back(next, at); /* where it was */
    }
}

static inline void rig_wait(sem_t *bell, int64_t us)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += (long)us * 1000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    sem_timedwait(bell, &until);
}

/* Steps all sides until `done` or ten seconds have passed; false: they have. */
#define RIG_UNTIL(bell, side, n_sides, done)                                                    \
    ({                                                                                          \
        const int64_t rig_end_us = qr_clock_us() + 10 * 1000 * 1000;                            \
        bool rig_done = false;                                                                  \
        while (!(rig_done = (done)) && qr_clock_us() < rig_end_us) {                            \
            for (int rig_i = 0; rig_i < (n_sides); rig_i++)                                     \
                rig_step(&(side)[rig_i]);                                                       \
            if (!(done))                                                                        \
                rig_wait(bell, 5000);                                                           \
        }                                                                                       \
        rig_done;                                                                               \
    })

static inline struct qr_exchange_stats rig_stats(const struct rig *r)
{
    struct qr_exchange_stats stats;
    qr_exchange_stats(r->x, &stats);
    return stats;
}

#endif
