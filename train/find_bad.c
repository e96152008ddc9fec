#include "train/find_bad.h"

#include <math.h>
#include <stdio.h>

#include "base/assert.h"
#include "base/mem.h"

struct search {
    const struct qr_params *p;
    char *text;
    bool found;
};

static double element(const void *data, enum qr_dtype real, int64_t i)
{
    return real == QR_F64 ? ((const double *)data)[i] : (double)((const float *)data)[i];
}

/* The first of n numbers that is not finite, or -1. Where the host cannot read them a copy is made for the moment: the run has failed. */
static int64_t bad_number(const struct search *s, const void *data, enum qr_dtype real, int64_t n)
{
    const struct qr_backend *be = s->p->be;
    const size_t n_bytes = (size_t)n * qr_dtype_bytes(real);
    void *room = be->mem->host ? NULL : qr_alloc(n_bytes, 1);
    const void *x = qr_backend_read(be, room, data, n_bytes);
    int64_t bad = -1;
    for (int64_t i = 0; bad < 0 && i < n; i++)
        bad = isfinite(element(x, real, i)) ? -1 : i;
    qr_free(room);
    return bad;
}

/* The first row that is not finite, or -1. */
static int64_t bad_row(const struct search *s, const struct qr_tensor *t)
{
    const int64_t n = t->shape[0] > 0 ? qr_tensor_count(t) / t->shape[0] : 0;
    const size_t row_bytes = (size_t)t->stride[0] * qr_dtype_bytes(t->dtype);
    for (int64_t row = 0; row < t->shape[0]; row++)
        if (bad_number(s, (const char *)t->data + (size_t)row * row_bytes, t->dtype, n) >= 0)
            return row;
    return -1;
}

static void look(void *user, const struct qr_tape_op *op)
{
    struct search *s = user;
    const struct qr_tensor *made = op->out[0].data ? &op->out[0] : &op->in[0]; /* a rotation works in place, the loss has no result */
    const int64_t row = s->found || op->pass != QR_PASS_FORWARD ? -1 : bad_row(s, made);
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
        const char *first = (const char *)s->p->value + (size_t)t->first * qr_dtype_bytes(s->p->real);
        const int64_t bad = bad_number(s, first, s->p->real, t->n);
        if (bad < 0)
            continue;
        snprintf(s->text, QR_FIND_BAD_TEXT, "%s, number %lld", t->name, (long long)bad);
        return true;
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
