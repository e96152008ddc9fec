/* samples.c - medians and percentiles of measurements (samples.h). Values are floats (24 bits are far below the noise
 * of any clock), sums are doubles. */
#include "bench/samples.h"

#include <math.h>
#include <stdlib.h>

#include "base/assert.h"
#include "base/mem.h"

void qr_samples_add(struct qr_samples *s, double v)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(isfinite(v));
    if (s->n == s->cap) {
        s->cap = s->cap < 256 ? 256 : s->cap * 2;
        s->value = qr_realloc(s->value, s->cap, sizeof *s->value);
    }
    s->value[s->n++] = (float)v;
    s->sorted = false;
}

void qr_samples_release(struct qr_samples *s)
{
    qr_free(s->value);
    *s = (struct qr_samples){0};
}

double qr_samples_mean(const struct qr_samples *s)
{
    QR_ASSERT(s != NULL);
    double sum = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += (double)s->value[i];
    return s->n > 0 ? sum / (double)s->n : 0;
}

double qr_samples_std(const struct qr_samples *s)
{
    double mean = qr_samples_mean(s), sum = 0;
    for (size_t i = 0; i < s->n; i++)
        sum += ((double)s->value[i] - mean) * ((double)s->value[i] - mean);
    return s->n > 0 ? sqrt(sum / (double)s->n) : 0;
}

static int by_value(const void *a, const void *b)
{
    float x = *(const float *)a, y = *(const float *)b;
    return x < y ? -1 : x > y;
}

double qr_samples_percentile(struct qr_samples *s, double p)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(p >= 0 && p <= 100);
    if (s->n == 0)
        return 0;
    if (!s->sorted)
        qsort(s->value, s->n, sizeof *s->value, by_value);
    s->sorted = true;
    double at = p / 100 * (double)(s->n - 1);
    size_t i = (size_t)at, j = i + 1 < s->n ? i + 1 : i;
    return (double)s->value[i] + ((double)s->value[j] - (double)s->value[i]) * (at - (double)i);
}
