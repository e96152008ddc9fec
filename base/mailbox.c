#include "base/mailbox.h"

#include <errno.h>
#include <time.h>

#include "base/assert.h"

void qr_mailbox_init(struct qr_mailbox *m, int32_t n_max, void (*wake)(void *), void *wake_arg)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(n_max > 0);
    *m = (struct qr_mailbox){.n_max = n_max, .wake = wake, .wake_arg = wake_arg};
    qr_list_init(&m->items);
    pthread_mutex_init(&m->lock, NULL);
    pthread_condattr_t attr;
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&m->arrived, &attr);
    pthread_condattr_destroy(&attr);
}

void qr_mailbox_release(struct qr_mailbox *m)
{
    QR_ASSERT(qr_list_empty(&m->items));
    pthread_cond_destroy(&m->arrived);
    pthread_mutex_destroy(&m->lock);
}

void qr_mailbox_ring(struct qr_mailbox *m)
{
    QR_ASSERT(m != NULL);
    pthread_cond_signal(&m->arrived);
    if (m->wake)
        m->wake(m->wake_arg);
}

/* Ends a push: the waiting thread is woken when the first items have arrived. */
static bool unlock(struct qr_mailbox *m, bool taken, bool first)
{
    pthread_mutex_unlock(&m->lock);
    if (first)
        qr_mailbox_ring(m);
    return taken;
}

static bool push(struct qr_mailbox *m, struct qr_node *node, bool urgent)
{
    QR_ASSERT(node != NULL);
    pthread_mutex_lock(&m->lock);
    bool taken = !m->closed && (urgent || m->n < m->n_max);
    bool first = taken && m->n == 0;
    if (taken) {
        qr_list_push_back(&m->items, node);
        m->n++;
    }
    return unlock(m, taken, first);
}

bool qr_mailbox_push(struct qr_mailbox *m, struct qr_node *node)
{
    return push(m, node, false);
}

bool qr_mailbox_push_urgent(struct qr_mailbox *m, struct qr_node *node)
{
    return push(m, node, true);
}

bool qr_mailbox_push_list(struct qr_mailbox *m, struct qr_node *list, int32_t n, bool *ring)
{
    QR_ASSERT(list != NULL && n >= 0 && ring != NULL);
    QR_ASSERT(qr_list_empty(list) == (n == 0));
    pthread_mutex_lock(&m->lock);
    const bool taken = !m->closed;
    *ring = taken && m->n == 0 && n > 0;
    if (taken) {
        qr_list_splice_back(&m->items, list);
        m->n += n;
    }
    pthread_mutex_unlock(&m->lock);
    return taken;
}

static int32_t take_locked(struct qr_mailbox *m, struct qr_node *out)
{
    int32_t n = m->n;
    qr_list_splice_back(out, &m->items);
    m->n = 0;
    return n;
}

int32_t qr_mailbox_take(struct qr_mailbox *m, struct qr_node *out)
{
    QR_ASSERT(out != NULL);
    pthread_mutex_lock(&m->lock);
    int32_t n = take_locked(m, out);
    pthread_mutex_unlock(&m->lock);
    return n;
}

int32_t qr_mailbox_wait(struct qr_mailbox *m, struct qr_node *out, int64_t timeout_us)
{
    QR_ASSERT(out != NULL);
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    if (timeout_us > 0) {
        int64_t ns = (int64_t)until.tv_nsec + (timeout_us % 1000000) * 1000;
        until.tv_sec += (time_t)(timeout_us / 1000000 + ns / 1000000000);
        until.tv_nsec = (long)(ns % 1000000000);
    }
    pthread_mutex_lock(&m->lock);
    int rc = 0;
    while (m->n == 0 && !m->closed && !m->poked && rc != ETIMEDOUT)
        rc = timeout_us < 0 ? pthread_cond_wait(&m->arrived, &m->lock)
                            : pthread_cond_timedwait(&m->arrived, &m->lock, &until);
    m->poked = false;
    int32_t n = take_locked(m, out);
    pthread_mutex_unlock(&m->lock);
    return n;
}

void qr_mailbox_poke(struct qr_mailbox *m)
{
    QR_ASSERT(m != NULL);
    pthread_mutex_lock(&m->lock);
    m->poked = true;
    pthread_mutex_unlock(&m->lock);
    pthread_cond_signal(&m->arrived);
}

void qr_mailbox_close(struct qr_mailbox *m)
{
    pthread_mutex_lock(&m->lock);
    m->closed = true;
    pthread_mutex_unlock(&m->lock);
    pthread_cond_broadcast(&m->arrived);
}
