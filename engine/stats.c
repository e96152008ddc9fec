#include "engine/stats.h"

#include "base/assert.h"

static const double bounds_ttft[] = {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
                                     1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
static const double bounds_itl[] = {.01, .025, .05, .075, .1, .15, .2, .3, .4, .5, .75, 1, 2.5, 5, 7.5, 10, 20, 40, 80};
static const double bounds_latency[] = {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
                                        30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
static const double bounds_fine[] = {.0001, .0002, .0005, .001, .002, .003, .005, .0075, .01, .015,
                                     .02,   .03,   .05,   .075, .1,   .2,   .5,   1,     2,   5};
static const double bounds_tokens[] = {1,    2,    5,    10,    20,    50,    100,    200,   500,
                                       1000, 2000, 5000, 10000, 20000, 50000, 100000, 200000};
static const double bounds_ratio[] = {.01, .02, .05, .1, .15, .2, .3, .5, .75, 1, 2, 5, 10};
static const double bounds_choices[] = {1, 2, 5, 10, 20};
static const double bounds_step_tokens[] = {1, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384};

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
    static const char *const name[QR_PARTS] = {"plan", "lower", "model", "wait", "mask", "sample", "output", "rest", "idle"};
    QR_ASSERT(part >= 0 && part < QR_PARTS);
    QR_ASSERT(name[part] != NULL);
    return name[part];
}

void qr_stats_init(struct qr_stats *s)
{
    QR_ASSERT(s != NULL);
    *s = (struct qr_stats){0};
#define INIT(field, bounds, name, help)                                                        \
    _Static_assert(QR_COUNT(bounds_##bounds) < QR_HIST_BUCKETS, "one more bucket is for +Inf"); \
    s->field = (struct qr_hist){.bound = bounds_##bounds, .n_bounds = QR_COUNT(bounds_##bounds)};
    QR_HISTOGRAMS(INIT)
#undef INIT
}
