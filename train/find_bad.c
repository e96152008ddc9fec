#include "train/find_bad.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"

struct search {
    const struct qr_params *p;
    char *text;
    bool found;
};

static double element(const void *data, enum qr_dtype real, int64_t i)
{
    return real == QR_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* The first row that is not finite, or -1. */
static int64_t bad_row(const struct qr_tensor *t)
{
    const int64_t n = t->shape[0] > 0 ? qr_tensor_count(t) / t->shape[0] : 0;
    for (int64_t row = 0; row < t->shape[0]; row++)
        for (int64_t i = 0; i < n; i++)
            if (!isfinite(element(t->data, t->dtype, row * t->stride[0] + i)))
                return row;
    return -1;
}

static void look(void *user, const struct qr_tape_op *op)
{
    struct search *s = user;
    const struct qr_tensor *made = op->out[0].data ? &op->out[0] : &op->in[0]; /* a rotation works in place, the loss has no result */
    const int64_t row = s->found || op->pass != QR_PASS_FORWARD ? -1 : bad_row(made);
    if (row < 0)
        return;
    s->found = true;
    int n = snprintf(s->text, QR_FIND_BAD_TEXT, "the output of %s", op->verb);
    if (op->w)
        n += snprintf(s->text + n, QR_FIND_BAD_TEXT - (size_t)n, " with %s", qr_params_name(s->p, op->w));
    if (op->layer >= 0)
        n += snprintf(s->text + n, QR_FIND_BAD_TEXT - (size_t)n, " in layer %d", op->layer);
    snprintf(s->text + n, QR_FIND_BAD_TEXT - (size_t)n, ", row %lld", (long long)row);
}

static bool look_at_params(struct search *s)
{
    for (int32_t k = 0; k < s->p->n_params; k++) {
        const struct qr_param *t = &s->p->param[k];
        for (int64_t i = 0; i < t->n; i++)
            if (!isfinite(element(s->p->value, s->p->real, t->first + i))) {
                snprintf(s->text, QR_FIND_BAD_TEXT, "%s, number %lld", t->name, (long long)i);
                return true;
            }
    }
    return false;
}

void qr_train_find_bad(struct qr_tape *t, const struct qr_params *p, const struct qr_train_batch *b, char text[QR_FIND_BAD_TEXT])
{
    QR_ASSERT(t != NULL && p != NULL);
    QR_ASSERT(b != NULL && text != NULL);
    struct search s = {.p = p, .text = text};
    const struct qr_tape_watch watch = {.end = look, .user = &s};
    if (look_at_params(&s))
        return;
    qr_tape_set_watch(t, &watch);
    qr_tape_evaluate(t, b, NULL);
    qr_tape_set_watch(t, NULL);
    if (!s.found)
        snprintf(text, QR_FIND_BAD_TEXT, "the loss; every tensor before it is finite");
}
