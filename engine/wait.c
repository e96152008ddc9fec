/* How long requests may wait in the queue (start_by_us). Engine thread. */
#include "base/assert.h"
#include "engine/internal.h"

void qr_wait_find_begun(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->slot != NULL);
    for (int32_t i = 0; i < e->n_slots; i++) {
        struct qr_request *r = e->slot[i].req;
        if (r && r->start_by_us != 0 && !r->late)
            r->begun |= r->n_open < r->n_choices || qr_sched_seq(e->sched, i)->admitted_us >= 0;
    }
}

bool qr_wait_is_over(struct qr_request *r, int64_t now)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(now > 0);
    if (r->late || r->start_by_us == 0 || r->begun || now <= r->start_by_us)
        return r->late;
    r->late = true;
    if (r->err.code == QR_OK)
        qr_err_set(&r->err, QR_E_BUSY, "the request waited for %.1f s and was not begun", (double)(now - r->arrived_us) * 1e-6);
    return true;
}
