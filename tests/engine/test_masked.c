/* A draw among the ids of a mask is that of a row in which every other logit is -infinity. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/sampler.h"

#define N_IDS 40

struct scene {
    struct qr_sampler s;
    int32_t n;
    float *x, *masked, *largest, *sum;
    uint32_t *mask;
    int32_t ids[N_IDS];
    struct qr_rng rng;
};

static void scene_open(struct scene *t, int32_t n, uint64_t seed)
{
    *t = (struct scene){.n = n, .rng = {.seed = seed}};
    qr_sampler_init(&t->s, n);
    t->x = qr_alloc((size_t)n, sizeof *t->x);
    t->masked = qr_alloc((size_t)n, sizeof *t->masked);
    t->largest = qr_alloc((size_t)n / QR_STRETCH + 1, sizeof *t->largest);
    t->sum = qr_alloc((size_t)n / QR_STRETCH + 1, sizeof *t->sum);
    t->mask = qr_alloc((size_t)n / 32 + 1, sizeof *t->mask);
    for (int32_t i = 0; i < N_IDS; i++)
        t->ids[i] = (int32_t)qr_rng_below(&t->rng, (uint32_t)n);
}

static void scene_close(struct scene *t)
{
    qr_sampler_release(&t->s);
    qr_free(t->x);
    qr_free(t->masked);
    qr_free(t->largest);
    qr_free(t->sum);
    qr_free(t->mask);
}

static struct qr_sampling any_sampling(struct scene *t, uint64_t round, const struct qr_logit_bias *biases)
{
    struct qr_sampling p;
    const int kind = (int)(round % 7);
    qr_sampling_init(&p);
    p.seed = round;
    p.temperature = kind < 2 ? 0 : 0.2f + 2 * (float)qr_rng_next_unit(&t->rng);
    p.top_k = kind == 3 || kind == 6 ? 1 + (int32_t)qr_rng_below(&t->rng, round % 2 ? 60 : (uint32_t)t->n - 1) : 0; /* some are more than the mask has */
    p.top_p = kind == 4 || kind == 6 ? 0.02f + 0.97f * (float)qr_rng_next_unit(&t->rng) : 1;
    p.min_p = kind == 5 ? 0.02f : 0;
    p.repetition = round % 4 == 1 ? 1.3f : 1;
    p.presence = round % 4 == 2 ? 0.7f : 0;
    p.frequency = round % 8 == 2 ? 0.2f : 0;
    p.logit_bias = biases;
    p.n_logit_bias = round % 5 == 3 ? 2 : 0;
    return p;
}

/* Of two ids to nearly all, those of one stretch, those of the last words. */
static void any_mask(struct scene *t, uint64_t round)
{
    memset(t->mask, 0, ((size_t)t->n + 31) / 32 * sizeof *t->mask);
    static const uint32_t share[] = {2, 5, 30, 400, 1u << 20};
    const uint32_t n = share[round % 5];
    for (uint32_t i = 0; n < 1u << 20 && i < n; i++) {
        const int32_t from = round % 3 == 1 && t->n > QR_STRETCH ? t->n - QR_STRETCH / 2 : 0;
        const int32_t id = from + (int32_t)qr_rng_below(&t->rng, (uint32_t)(t->n - from));
        t->mask[id / 32] |= 1u << (id % 32);
    }
    for (int32_t id = 0; n == 1u << 20 && id < t->n; id++)
        if (qr_rng_below(&t->rng, 50) > 0)
            t->mask[id / 32] |= 1u << (id % 32);
}

static void know(struct scene *t)
{
    for (int32_t i = 0; i * QR_STRETCH < t->n; i++) {
        const int32_t from = i * QR_STRETCH, to = from + QR_STRETCH < t->n ? from + QR_STRETCH : t->n;
        t->largest[i] = -INFINITY;
        for (int32_t id = from; id < to; id++)
            t->largest[i] = t->x[id] > t->largest[i] ? t->x[id] : t->largest[i];
        t->sum[i] = 1; /* of a row without a mask: not to be used */
    }
}

/* The oracle: changes are made, then all others are -infinity, then a plain draw. */
static int32_t draw_plainly(struct scene *t, const struct qr_sampling *p)
{
    struct qr_sampling rest = *p;
    float *y = t->masked;
    memcpy(y, t->x, (size_t)t->n * sizeof *y);
    for (int32_t i = 0; p->repetition != 1 && i < N_IDS; i++) {
        bool met = false;
        for (int32_t k = 0; k < i; k++)
            met = met || t->ids[k] == t->ids[i];
        if (!met)
            y[t->ids[i]] = y[t->ids[i]] > 0 ? y[t->ids[i]] / p->repetition : y[t->ids[i]] * p->repetition;
    }
    for (int32_t i = N_IDS / 2; i < N_IDS && (p->presence != 0 || p->frequency != 0); i++) {
        int32_t n = 0, before = 0;
        for (int32_t k = N_IDS / 2; k < N_IDS; k++) {
            n += t->ids[k] == t->ids[i];
            before += t->ids[k] == t->ids[i] && k < i;
        }
        if (before == 0)
            y[t->ids[i]] -= p->presence + p->frequency * (float)n;
    }
    for (int32_t i = 0; i < p->n_logit_bias; i++)
        y[p->logit_bias[i].id] += p->logit_bias[i].bias;
    for (int32_t id = 0; id < t->n; id++)
        if (!(t->mask[id / 32] >> (id % 32) & 1))
            y[id] = -INFINITY;
    rest.repetition = 1, rest.presence = rest.frequency = 0, rest.n_logit_bias = 0;
    return qr_sample(&t->s, &(struct qr_logits){.x = y}, &rest, t->ids, N_IDS, N_IDS / 2, NULL, 0, 1);
}

static void check(int32_t n_vocab, uint64_t n_rounds)
{
    struct scene t;
    int32_t n_greedy_elsewhere = 0;
    scene_open(&t, n_vocab, 99);
    for (uint64_t round = 0; round < n_rounds; round++) {
        const struct qr_logit_bias biases[] = {{t.ids[1], 30}, {(int32_t)qr_rng_below(&t.rng, (uint32_t)n_vocab), 9}};
        const struct qr_sampling p = any_sampling(&t, round, biases);
        const double spread = 1 + (double)qr_rng_below(&t.rng, 20);
        for (int32_t i = 0; i < n_vocab; i++)
            t.x[i] = round % 7 == 0 ? (float)qr_rng_below(&t.rng, 24) : (float)(qr_rng_next_unit(&t.rng) * spread); /* greedy: many are equal */
        any_mask(&t, round / 7);
        know(&t);
        const int32_t want = draw_plainly(&t, &p);
        const bool known = round % 2;
        const struct qr_logits row = {.x = t.x, .largest = known ? t.largest : NULL, .sum = known ? t.sum : NULL, .scale = known ? 1 : 0};
        const int32_t got = qr_sample_masked(&t.s, &row, &p, t.ids, N_IDS, N_IDS / 2, t.mask, 1);
        cr_assert(got == want, "round %d of %d ids (temperature %g, top_k %d, top_p %g, min_p %g): %d, expected %d", (int)round, n_vocab, (double)p.temperature,
                  p.top_k, (double)p.top_p, (double)p.min_p, got, want);
        n_greedy_elsewhere += p.temperature == 0 && got > QR_STRETCH;
        cr_assert(t.s.n_row == n_vocab && !t.s.any_stale);
        for (int32_t i = 0; i < t.s.n_stretches; i++)
            cr_assert(!t.s.stale[i]);
    }
    cr_assert(n_vocab <= 2 * QR_STRETCH || n_greedy_elsewhere > 0);
    scene_close(&t);
}

Test(masked, draws_what_a_row_with_all_others_at_minus_infinity_gives)
{
    check(50, 700);
    check(QR_STRETCH, 700);
    check(QR_STRETCH + 1, 700);
    check(6000, 1400);
    check(6017, 1400);
}

Test(masked, a_row_without_a_number_among_the_allowed_gives_an_id_whose_logit_is_none)
{
    enum { N = 700 };
    struct scene t;
    scene_open(&t, N, 5);
    for (int32_t i = 0; i < N; i++)
        t.x[i] = 1;
    t.x[300] = t.x[600] = NAN;
    t.mask[300 / 32] |= 1u << (300 % 32);
    t.mask[600 / 32] |= 1u << (600 % 32);
    for (int c = 0; c < 5; c++) {
        struct qr_sampling p;
        qr_sampling_init(&p);
        p.temperature = c == 0 ? 0 : 1;
        p.top_p = c == 2 ? 0.9f : 1;
        p.min_p = c == 3 ? 0.1f : 0;
        p.top_k = c == 4 ? 5 : 0;
        const int32_t id = qr_sample_masked(&t.s, &(struct qr_logits){.x = t.x}, &p, t.ids, 1, 1, t.mask, 0);
        cr_assert(id == 300 || id == 600, "case %d: id %d", c, id);
    }
    scene_close(&t);
}

Test(masked, every_vector_width_lays_out_what_the_bits_say)
{
    enum { N = 300 };
    const struct qr_row_math *all[2];
    const int32_t n_all = qr_row_math_all(all);
    float x[N], out[N + 1];
    uint32_t mask[N / 32 + 1];
    struct qr_rng r = {.seed = 3};
    for (int32_t i = 0; i < N; i++)
        x[i] = (float)i - 40;
    for (int32_t n = 1; n <= N; n++)
        for (int32_t k = 0; k < n_all; k++) {
            for (int32_t i = 0; i <= N / 32; i++)
                mask[i] = (uint32_t)qr_rng_below(&r, UINT32_MAX) & (uint32_t)qr_rng_below(&r, UINT32_MAX);
            out[n] = 7;
            all[k]->allow(out, x, mask, n);
            for (int32_t i = 0; i < n; i++)
                cr_assert(out[i] == (mask[i / 32] >> (i % 32) & 1 ? x[i] : -INFINITY), "%s: %d of %d", all[k]->name, i, n);
            cr_assert(out[n] == 7);
        }
}
