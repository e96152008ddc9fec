#include "engine/stats.h"

#include "base/assert.h"

const double qr_bounds_ttft_s[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560};
const double qr_bounds_itl_s[] = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
const double qr_bounds_latency_s[] = {.3, .5, .8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
const double qr_bounds_fine_s[] = {.0001, .0002, .0005, .001, .002, .003, .005, .0075, .01, .015, .02, .03, .05, .075, .1, .2, .5, 1, 2, 5};
const double qr_bounds_tokens[] = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
const double qr_bounds_step_tokens[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};
const int32_t qr_n_bounds_ttft_s = QR_COUNT(qr_bounds_ttft_s);
const int32_t qr_n_bounds_itl_s = QR_COUNT(qr_bounds_itl_s);
const int32_t qr_n_bounds_latency_s = QR_COUNT(qr_bounds_latency_s);
const int32_t qr_n_bounds_fine_s = QR_COUNT(qr_bounds_fine_s);
const int32_t qr_n_bounds_tokens = QR_COUNT(qr_bounds_tokens);
const int32_t qr_n_bounds_step_tokens = QR_COUNT(qr_bounds_step_tokens);

void qr_hist_init(struct qr_hist *h, const double *bound, int32_t n_bounds)
{
    QR_ASSERT(h != NULL && bound != NULL);
    QR_ASSERT(n_bounds > 0 && n_bounds < QR_HIST_BUCKETS);
    *h = (struct qr_hist){.bound = bound, .n_bounds = n_bounds};
}

void qr_hist_add(struct qr_hist *h, double v)
{
    QR_ASSERT(h->bound != NULL);
    int32_t i = 0;
    while (i < h->n_bounds && v > h->bound[i])
        i++;
    h->count[i]++;
    h->n++;
    h->sum += v;
}

const char *qr_step_part_name(enum qr_step_part part)
{
    static const char *const name[QR_PARTS] = {"plan", "lower", "model", "wait", "sample", "output", "rest", "idle"};
    QR_ASSERT(part >= 0 && part < QR_PARTS);
    QR_ASSERT(name[part] != NULL);
    return name[part];
}

void qr_stats_init(struct qr_stats *s)
{
    QR_ASSERT(s != NULL);
    *s = (struct qr_stats){0};
    qr_hist_init(&s->ttft, qr_bounds_ttft_s, qr_n_bounds_ttft_s);
    qr_hist_init(&s->itl, qr_bounds_itl_s, qr_n_bounds_itl_s);
    qr_hist_init(&s->tpot, qr_bounds_itl_s, qr_n_bounds_itl_s);
    struct qr_hist *latency[] = {&s->e2e, &s->queue, &s->prefill_time, &s->decode_time};
    for (int i = 0; i < QR_COUNT(latency); i++)
        qr_hist_init(latency[i], qr_bounds_latency_s, qr_n_bounds_latency_s);
    struct qr_hist *fine[] = {&s->ttft_fine, &s->itl_fine, &s->step_fine};
    for (int i = 0; i < QR_COUNT(fine); i++)
        qr_hist_init(fine[i], qr_bounds_fine_s, qr_n_bounds_fine_s);
    qr_hist_init(&s->prompt_len, qr_bounds_tokens, qr_n_bounds_tokens);
    qr_hist_init(&s->output_len, qr_bounds_tokens, qr_n_bounds_tokens);
    qr_hist_init(&s->step_tokens, qr_bounds_step_tokens, qr_n_bounds_step_tokens);
}
