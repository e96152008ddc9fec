#include "engine/predict.h"

#include "base/assert.h"

#define REMEMBERED 16        /* steps that a bucket's mean is of, at least */
#define SLOPE_RATE 0.02
#define SHARE_MAX 0.85       /* of a bucket's time that one kind of context may account for */
#define SMALL_SQUARED 0.0625 /* contexts that differ by less than a quarter, or a thousand rows, teach little */

struct qr_step_size qr_step_size_of(const struct qr_plan *plan)
{
    QR_ASSERT(plan != NULL);
    QR_ASSERT(plan->n_tokens >= plan->n_prompt);
    struct qr_step_size size = {.n_prompt = plan->n_prompt, .n_decode = plan->n_tokens - plan->n_prompt, .n_seqs = plan->n_checked + plan->n_decode};
    for (int32_t i = 0; i < qr_plan_items(plan); i++) {
        const struct qr_plan_item *item = &plan->item[i];
        const bool prompt = i < plan->n_prefill;
        size.context[prompt] += prompt ? item->n_tokens * (item->first + 0.5 * item->n_tokens) * 1e-3 : (item->first + item->n_tokens) * 1e-3;
    }
    return size;
}

void qr_step_size_note(struct qr_step_size *lately, const struct qr_step_size *size)
{
    QR_ASSERT(lately != NULL);
    QR_ASSERT(size != NULL);
    if (size->n_decode > 0) {
        lately->n_decode = size->n_decode;
        lately->n_seqs = size->n_seqs;
        lately->context[0] = size->context[0];
    }
    if (size->n_prompt > 0) {
        lately->n_prompt = size->n_prompt;
        lately->context[1] = size->context[1];
    }
}

void qr_predict_init(struct qr_predict *p)
{
    QR_ASSERT(p != NULL);
    *p = (struct qr_predict){0};
    QR_ASSERT(p->bucket[0].n == 0);
}

static int bucket_of(int32_t rows)
{
    const int k = 31 - __builtin_clz((unsigned)rows);
    return k < QR_PREDICT_BUCKETS ? k : QR_PREDICT_BUCKETS - 1;
}

/* The bucket's time without what contexts add: a point of the table. */
static double bare_us(const struct qr_predict *p, const struct qr_predict_bucket *b)
{
    const double us = b->us - p->slope[0] * b->context[0] - p->slope[1] * b->context[1], least = b->us * 0.125;
    return us > least ? us : least;
}

/* The line through the points of two buckets, a before b; it never falls. */
static double on_line(const struct qr_predict *p, const struct qr_predict_bucket *a, const struct qr_predict_bucket *b, double rows)
{
    const double from = bare_us(p, a), rise = (bare_us(p, b) - from) / (b->rows - a->rows);
    return from + (rise > 0 ? rise * (rows - a->rows) : 0);
}

static double table_us(const struct qr_predict *p, double rows)
{
    const struct qr_predict_bucket *before = NULL, *last = NULL;
    for (int k = 0; k < QR_PREDICT_BUCKETS; k++) {
        const struct qr_predict_bucket *b = &p->bucket[k];
        if (b->n == 0)
            continue;
        before = last;
        last = b;
        if (b->rows >= rows)
            break;
    }
    if (!last)
        return 0;
    if (before)
        return on_line(p, before, last, rows);
    return bare_us(p, last) * (rows < last->rows ? rows / last->rows : 1);
}

double qr_predict_us(const struct qr_predict *p, const struct qr_step_size *size)
{
    QR_ASSERT(p != NULL && size != NULL);
    QR_ASSERT(size->n_prompt >= 0 && size->n_decode >= 0);
    const double rows = (double)size->n_prompt + size->n_decode, us = rows > 0 ? table_us(p, rows) : 0;
    return us > 0 ? us + p->slope[0] * size->context[0] + p->slope[1] * size->context[1] : 0;
}

/* A slope learns from contexts that differ, for as many rows, from those the bucket has seen: what they have in common is in the bucket's mean. */
static void learn_slope(struct qr_predict *p, const struct qr_predict_bucket *b, const struct qr_step_size *size, double missed)
{
    const double rows = ((double)size->n_prompt + size->n_decode) / b->rows;
    for (int i = 0; i < 2; i++) {
        const double off = size->context[i] - b->context[i] * rows;
        p->slope[i] += SLOPE_RATE * missed * off / (off * off + b->context[i] * b->context[i] * SMALL_SQUARED + 1);
        p->slope[i] = p->slope[i] < 0 ? 0 : p->slope[i] * b->context[i] > b->us * SHARE_MAX ? b->us * SHARE_MAX / b->context[i] : p->slope[i];
    }
}

double qr_predict_note(struct qr_predict *p, const struct qr_step_size *size, double us)
{
    QR_ASSERT(p != NULL && size != NULL);
    QR_ASSERT(size->n_prompt >= 0 && size->n_decode >= 0);
    const int32_t rows = size->n_prompt + size->n_decode;
    if (us <= 0 || rows == 0)
        return 0;
    struct qr_predict_bucket *b = &p->bucket[bucket_of(rows)];
    const double predicted = qr_predict_us(p, size);
    if (b->n > 0) {
        us = us < predicted * 2 ? us : predicted * 2;
        learn_slope(p, b, size, us - predicted > -us ? us - predicted : -us);
    }
    b->n += b->n < REMEMBERED;
    b->rows += (rows - b->rows) / b->n;
    b->us += (us - b->us) / b->n;
    for (int i = 0; i < 2; i++)
        b->context[i] += (size->context[i] - b->context[i]) / b->n;
    return predicted;
}
