#include "engine/view.h"

#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define WORDS ((int)(sizeof(struct qr_step_record) / sizeof(uint64_t)))
_Static_assert(sizeof(struct qr_step_record) == 56, "a record and its number are one line of memory");

/* number: of the step, plus 1; 0 while it is written. A word is stored with release behind the 0, and loaded with acquire before the number is read again: a
 * reader that has seen a word of a later step sees that its number has changed. */
struct line {
    _Alignas(64) _Atomic uint64_t number;
    _Atomic uint64_t word[WORDS];
};

enum { IDLE, ASKED, THERE }; /* whose the look is: the asker's, the engine's, the asker's */

struct qr_view {
    struct line *ring; /* owned [QR_VIEW_STEPS] */
    _Atomic uint64_t n_steps;
    _Atomic int state;
    struct qr_look look;
};

struct qr_view *qr_view_new(void)
{
    struct qr_view *v = qr_alloc(1, sizeof *v);
    v->ring = qr_alloc_aligned(QR_VIEW_STEPS * sizeof *v->ring, 64);
    qr_mem_populate(v->ring, QR_VIEW_STEPS * sizeof *v->ring);
    qr_mem_populate(&v->look, sizeof v->look);
    return v;
}

void qr_view_free(struct qr_view *v)
{
    if (!v)
        return;
    qr_free_aligned(v->ring);
    qr_free(v);
}

size_t qr_view_bytes(void)
{
    return sizeof(struct qr_view) + QR_VIEW_STEPS * sizeof(struct line);
}

void qr_view_note(struct qr_view *v, const struct qr_step_record *step)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(step != NULL);
    const uint64_t n = atomic_load_explicit(&v->n_steps, memory_order_relaxed);
    struct line *l = &v->ring[n % QR_VIEW_STEPS];
    uint64_t word[WORDS];
    memcpy(word, step, sizeof word);
    atomic_store_explicit(&l->number, 0, memory_order_relaxed);
    for (int i = 0; i < WORDS; i++)
        atomic_store_explicit(&l->word[i], word[i], memory_order_release);
    atomic_store_explicit(&l->number, n + 1, memory_order_release);
    atomic_store_explicit(&v->n_steps, n + 1, memory_order_release);
}

static bool read_step(const struct qr_view *v, uint64_t n, struct qr_step_record *out)
{
    const struct line *l = &v->ring[n % QR_VIEW_STEPS];
    uint64_t word[WORDS];
    if (atomic_load_explicit(&l->number, memory_order_acquire) != n + 1)
        return false;
    for (int i = 0; i < WORDS; i++)
        word[i] = atomic_load_explicit(&l->word[i], memory_order_acquire);
    memcpy(out, word, sizeof word);
    return atomic_load_explicit(&l->number, memory_order_relaxed) == n + 1;
}

uint64_t qr_view_n_steps(const struct qr_view *v)
{
    QR_ASSERT(v != NULL);
    return atomic_load_explicit(&v->n_steps, memory_order_acquire);
}

int32_t qr_view_steps(const struct qr_view *v, uint64_t *at, struct qr_step_record *out, int32_t n_max)
{
    QR_ASSERT(v != NULL && at != NULL);
    QR_ASSERT(out != NULL && n_max >= 0);
    const uint64_t end = qr_view_n_steps(v);
    int32_t n = 0;
    QR_ASSERT(*at <= end);
    if (end - *at > QR_VIEW_STEPS)
        *at = end - QR_VIEW_STEPS;
    for (; *at < end && n < n_max; ++*at)
        n += read_step(v, *at, &out[n]);
    return n;
}

struct qr_look *qr_view_wanted(struct qr_view *v)
{
    return atomic_load_explicit(&v->state, memory_order_acquire) == ASKED ? &v->look : NULL;
}

void qr_view_answer(struct qr_view *v)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(qr_view_wanted(v) != NULL);
    atomic_store_explicit(&v->state, THERE, memory_order_release);
}

void qr_view_ask(struct qr_view *v)
{
    QR_ASSERT(v != NULL);
    if (atomic_load_explicit(&v->state, memory_order_relaxed) == IDLE)
        atomic_store_explicit(&v->state, ASKED, memory_order_release);
}

const struct qr_look *qr_view_take(const struct qr_view *v)
{
    QR_ASSERT(v != NULL);
    return atomic_load_explicit(&v->state, memory_order_acquire) == THERE ? &v->look : NULL;
}

void qr_view_done(struct qr_view *v)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(qr_view_take(v) != NULL);
    atomic_store_explicit(&v->state, IDLE, memory_order_release);
}
