/* timeline.c - tokens and running requests over time in bounded memory (see parts.h). */
#include <string.h>

#include "base/assert.h"
#include "bench/load/parts.h"

#define FIRST_WIDTH_NS ((int64_t)10000000)

void qr_load_timeline_init(struct qr_load_timeline *t, int64_t begin_ns)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(begin_ns >= 0);
    *t = (struct qr_load_timeline){.begin_ns = begin_ns, .last_ns = begin_ns, .width_ns = FIRST_WIDTH_NS};
}

static void fold(struct qr_load_timeline *t)
{
    for (int32_t i = 0; i < QR_LOAD_BUCKETS / 2; i++) {
        t->n_tokens[i] = t->n_tokens[2 * i] + t->n_tokens[2 * i + 1];
        t->running_ns[i] = t->running_ns[2 * i] + t->running_ns[2 * i + 1];
    }
    memset(t->n_tokens + QR_LOAD_BUCKETS / 2, 0, sizeof t->n_tokens / 2);
    memset(t->running_ns + QR_LOAD_BUCKETS / 2, 0, sizeof t->running_ns / 2);
    t->n = (t->n + 1) / 2;
    t->width_ns *= 2;
}

/* The bucket of a moment; makes room for it. */
static int32_t bucket(struct qr_load_timeline *t, int64_t now_ns)
{
    int64_t since = now_ns > t->begin_ns ? now_ns - t->begin_ns : 0;
    while (since / t->width_ns >= QR_LOAD_BUCKETS)
        fold(t);
    int32_t i = (int32_t)(since / t->width_ns);
    t->n = i >= t->n ? i + 1 : t->n;
    return i;
}

void qr_load_timeline_token(struct qr_load_timeline *t, int64_t now_ns)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->width_ns > 0);
    t->n_tokens[bucket(t, now_ns)]++;
}

void qr_load_timeline_running(struct qr_load_timeline *t, int64_t now_ns, int32_t n_running)
{
    QR_ASSERT(t != NULL && t->width_ns > 0);
    QR_ASSERT(n_running >= 0);
    int32_t last = bucket(t, now_ns);
    for (int32_t i = bucket(t, t->last_ns); i <= last && t->last_ns < now_ns; i++) {
        int64_t end = t->begin_ns + (i + 1) * t->width_ns, until = end < now_ns ? end : now_ns;
        t->running_ns[i] += (double)(until - t->last_ns) * t->n_running;
        t->last_ns = until;
    }
    t->n_running = n_running;
}
