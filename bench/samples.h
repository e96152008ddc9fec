/* samples.h - a growing set of measurements and its statistics. Exact: nothing is binned. One owning thread. */
#ifndef QR_BENCH_SAMPLES_H
#define QR_BENCH_SAMPLES_H

#include <stdbool.h>
#include <stddef.h>

struct qr_samples {
    float *value; /* owned [cap] */
    size_t n, cap;
    bool sorted;
};

void qr_samples_add(struct qr_samples *s, double v);
void qr_samples_release(struct qr_samples *s);

double qr_samples_mean(const struct qr_samples *s);
double qr_samples_std(const struct qr_samples *s); /* of the population, as numpy.std */

/* The p-th percentile, 0 <= p <= 100, interpolated between neighbours as numpy.percentile does; 0 of an empty set. Sorts. */
double qr_samples_percentile(struct qr_samples *s, double p);

#endif
