/* plan.c - the storage of a plan. */
#include "base/assert.h"
#include "base/mem.h"
#include "scheduler/sched.h"

void qr_plan_init(struct qr_plan *p, const struct qr_sched_config *config)
{
    QR_ASSERT(p != NULL && config != NULL);
    QR_ASSERT(config->running_max >= 1);
    *p = (struct qr_plan){0};
    p->item = qr_alloc((size_t)config->running_max, sizeof *p->item);
    p->copy = qr_alloc((size_t)config->running_max * (size_t)(1 + config->n_twins), sizeof *p->copy);
}

void qr_plan_release(struct qr_plan *p)
{
    QR_ASSERT(p != NULL);
    qr_free(p->item);
    qr_free(p->copy);
    *p = (struct qr_plan){0};
}
