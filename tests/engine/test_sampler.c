#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "engine/sampler.h"

#define V 50

static void fill(float *x, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    for (int i = 0; i < V; i++)
        x[i] = (float)(qr_rng_next_unit(&r) * 8 - 4);
}

static int32_t draw(const float *logits, const struct qr_sampling *p, const int32_t *ids, int32_t n_ids, int32_t n_prompt)
{
    float row[V];
    memcpy(row, logits, sizeof row);
    struct qr_sampler s;
    qr_sampler_init(&s, V);
    int32_t id = qr_sample(&s, &(struct qr_logits){.x = row}, p, ids, n_ids, n_prompt, NULL, 0, 0);
    for (int i = 0; i < V; i++)
        cr_assert(s.count[i] == 0, "counts are left over");
    qr_sampler_release(&s);
    return id;
}

Test(sampler, greedy_takes_the_smallest_of_equal_ids)
{
    float x[V] = {0};
    x[7] = x[9] = 3;
    struct qr_sampling p;
    qr_sampling_init(&p);
    p.temperature = 0;
    int32_t ids[1] = {0};
    cr_assert(draw(x, &p, ids, 1, 1) == 7);
}

Test(sampler, top_k_of_one_is_greedy_at_any_temperature)
{
    float x[V];
    struct qr_sampling p;
    qr_sampling_init(&p);
    p.top_k = 1;
    p.temperature = 5;
    int32_t ids[1] = {0};
    for (uint64_t seed = 0; seed < 50; seed++) {
        fill(x, seed);
        int32_t best = 0;
        for (int32_t i = 1; i < V; i++)
            best = x[i] > x[best] ? i : best;
        p.seed = seed;
        cr_assert(draw(x, &p, ids, 1, 1) == best);
    }
}

/* The share of every id over many draws against the probability it should have. With n draws a share differs from p by more than 5
 * standard deviations (sqrt(p(1-p)/n)) less than once in 10^6 ids. */
static void check_distribution(const float *x, const struct qr_sampling *p, const double *want)
{
    enum { N = 20000 };
    int32_t count[V] = {0}, ids[1] = {0};
    struct qr_sampling q = *p;
    for (int32_t n = 0; n < N; n++) {
        q.seed = (uint64_t)n * 77 + 1;
        count[draw(x, &q, ids, 1, 1)]++;
    }
    for (int i = 0; i < V; i++) {
        double sd = sqrt(want[i] * (1 - want[i]) / N);
        cr_assert(fabs(count[i] / (double)N - want[i]) <= 5 * sd + 1e-12, "id %d: share %f, expected %f", i, count[i] / (double)N, want[i]);
    }
}

/* Probabilities after temperature, top_k, top_p and min_p, by sorting. */
static void expected(double *out, const float *x, const struct qr_sampling *p)
{
    int order[V];
    double w[V], all = 0, kept = 0;
    for (int i = 0; i < V; i++)
        order[i] = i;
    for (int i = 0; i < V; i++)
        for (int j = i + 1; j < V; j++)
            if (x[order[j]] > x[order[i]]) {
                int t = order[i];
                order[i] = order[j];
                order[j] = t;
            }
    int n = p->top_k > 0 && p->top_k < V ? p->top_k : V, n_kept = 0;
    for (int i = 0; i < n; i++)
        all += w[i] = exp((double)(x[order[i]] - x[order[0]]) / (double)p->temperature);
    for (; n_kept < n; n_kept++) {
        if (n_kept > 0 && (kept >= (double)p->top_p * all || w[n_kept] < (double)p->min_p))
            break;
        kept += w[n_kept];
    }
    for (int i = 0; i < V; i++)
        out[order[i]] = i < n_kept ? w[i] / kept : 0;
}

Test(sampler, draws_follow_the_distribution_of_temperature_top_k_top_p_and_min_p)
{
    float x[V];
    double want[V];
    fill(x, 3);
    static const struct {
        float temperature, top_p, min_p;
        int32_t top_k;
    } cases[] = {{1, 1, 0, 0}, {0.7f, 1, 0, 0}, {1.5f, 1, 0, 5}, {1, 0.8f, 0, 0}, {1, 1, 0.2f, 0}, {1.2f, 0.9f, 0.05f, 20}, {1, 0.01f, 0, 0}};
    for (size_t c = 0; c < sizeof cases / sizeof cases[0]; c++) {
        struct qr_sampling p;
        qr_sampling_init(&p);
        p.temperature = cases[c].temperature;
        p.top_p = cases[c].top_p;
        p.min_p = cases[c].min_p;
        p.top_k = cases[c].top_k;
        expected(want, x, &p);
        check_distribution(x, &p, want);
    }
}

struct by_weight {
    double w;
    int32_t id;
};

static int heavier(const void *a, const void *b)
{
    const struct by_weight *x = a, *y = b;
    return x->w != y->w ? (x->w < y->w) - (x->w > y->w) : x->id - y->id;
}

/* Inverse of the cumulative weights, best first, of the ids that make up top_p. Weights in the sampler are good to 2 ulp (2.4e-7), so sums of all
 * of them are, too: a u within 1e-6 of a step of the sum may fall on either side and is not judged (returns -1). */
static int32_t nucleus_draw(const struct by_weight *sorted, int32_t n, double top_p, double u)
{
    double all = 0, kept = 0, sum = 0;
    int32_t n_kept = 0;
    for (int32_t i = 0; i < n; i++)
        all += sorted[i].w;
    while (n_kept < n && kept < top_p * all)
        kept += sorted[n_kept++].w;
    for (int32_t i = 0; i < n_kept; i++) {
        sum += sorted[i].w;
        if (fabs(u * kept - sum) < 1e-6 * all)
            return -1;
        if (u * kept < sum)
            return sorted[i].id;
    }
    return -1;
}

Test(sampler, a_nucleus_of_thousands_is_drawn_from_as_if_it_had_been_sorted)
{
    enum { N = 5000 };
    static float x[N];
    static struct by_weight sorted[N];
    struct qr_sampler s;
    qr_sampler_init(&s, N);
    int32_t ids[1] = {0}, judged = 0;
    for (uint64_t seed = 0; seed < 200; seed++) {
        struct qr_rng r = {.seed = seed + 99};
        struct qr_sampling p;
        qr_sampling_init(&p);
        p.seed = seed;
        p.top_p = 0.05f + 0.9f * (float)qr_rng_next_unit(&r);
        double spread = seed % 2 ? 2 : 12;
        for (int32_t i = 0; i < N; i++)
            x[i] = (float)(qr_rng_next_unit(&r) * spread);
        float best = x[0];
        for (int32_t i = 0; i < N; i++)
            best = x[i] > best ? x[i] : best;
        for (int32_t i = 0; i < N; i++)
            sorted[i] = (struct by_weight){exp((double)(x[i] - best)), i};
        qsort(sorted, N, sizeof sorted[0], heavier);
        int32_t want = nucleus_draw(sorted, N, (double)p.top_p, qr_rng_unit(seed, 0, 0));
        int32_t got = qr_sample(&s, &(struct qr_logits){.x = x}, &p, ids, 1, 1, NULL, 0, 0);
        cr_assert(want < 0 || got == want, "seed %d: drew %d, sorting gives %d", (int)seed, (int)got, (int)want);
        judged += want >= 0;
    }
    cr_assert(judged > 150, "only %d of 200 draws were judged", (int)judged);
    qr_sampler_release(&s);
}

Test(sampler, the_top_list_and_the_rank_are_right_in_a_long_row_with_ties)
{
    enum { N = 5000 };
    static float x[N];
    struct qr_rng r = {.seed = 31};
    for (int32_t i = 0; i < N; i++)
        x[i] = (float)qr_rng_below(&r, 1000) * 0.01f;
    struct qr_token_logprob t;
    float largest[(N + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH];
    for (int32_t i = 0; i < N; i++)
        largest[i / QR_LINEAR_STRETCH] = i % QR_LINEAR_STRETCH == 0 || x[i] > largest[i / QR_LINEAR_STRETCH] ? x[i] : largest[i / QR_LINEAR_STRETCH];
    for (int32_t id = 0; id < N; id += 97) {
        const int32_t n_top = id % 2 ? 20 : 6; /* more and fewer than there are stretches, by turns known and not */
        qr_token_logprob_fill(&t, &(struct qr_logits){.x = x, .largest = id % 4 < 2 ? largest : NULL}, N, id, n_top);
        int32_t rank = 1;
        for (int32_t i = 0; i < N; i++)
            rank += x[i] > x[id] || (x[i] == x[id] && i < id);
        cr_assert(t.rank == rank && t.n_top == n_top);
        for (int32_t k = 0; k < n_top; k++) { /* entry k has exactly k ids before it */
            int32_t n_before = 0;
            for (int32_t i = 0; i < N; i++)
                n_before += x[i] > x[t.top_id[k]] || (x[i] == x[t.top_id[k]] && i < t.top_id[k]);
            cr_assert(n_before == k, "entry %d is number %d", (int)k, (int)n_before);
        }
    }
}

Test(sampler, greedy_finds_the_first_of_the_largest_anywhere_in_a_long_row)
{
    enum { N = 3333 };
    static float x[N];
    struct qr_sampling p;
    struct qr_sampler s;
    qr_sampling_init(&p);
    p.temperature = 0;
    qr_sampler_init(&s, N);
    int32_t ids[1] = {0};
    static const int32_t at[] = {0, 1, 15, 16, 1023, 1024, 1025, 2047, 2048, 3327, 3328, N - 1};
    for (size_t i = 0; i < sizeof at / sizeof at[0]; i++) {
        for (int32_t k = 0; k < N; k++)
            x[k] = -5 + (float)(k % 7) * 0.5f;
        x[at[i]] = 1;
        cr_assert(qr_sample(&s, &(struct qr_logits){.x = x}, &p, ids, 1, 1, NULL, 0, 0) == at[i]);
        x[N - 1] = 1; /* a tie at the very end */
        x[at[i] / 2] = NAN;
        cr_assert(at[i] < 2 || qr_sample(&s, &(struct qr_logits){.x = x}, &p, ids, 1, 1, NULL, 0, 0) == at[i], "not a number hides the largest");
    }
    qr_sampler_release(&s);
}

Test(sampler, penalties_count_as_documented)
{
    float x[V] = {0};
    x[1] = 2;
    x[2] = -2;
    x[3] = 1.9f;
    struct qr_sampling p;
    qr_sampling_init(&p);
    p.temperature = 0;
    p.repetition = 1.5f; /* prompt counts: 2/1.5 < 1.9 */
    int32_t ids[4] = {1, 2, 1, 1};
    cr_assert(draw(x, &p, ids, 2, 2) == 3);
    p.repetition = 1;
    p.presence = 0.2f; /* only output counts: 2 - 0.2 < 1.9 */
    cr_assert(draw(x, &p, ids, 2, 2) == 1);
    cr_assert(draw(x, &p, ids, 3, 2) == 3);
    p.presence = 0;
    p.frequency = 0.06f; /* twice: 2 - 0.12 < 1.9, once: 1.94 */
    cr_assert(draw(x, &p, ids, 3, 2) == 1);
    cr_assert(draw(x, &p, ids, 4, 2) == 3);
}

Test(sampler, end_ids_wait_for_min_tokens)
{
    float x[V] = {0};
    x[2] = 9;
    x[5] = 1;
    struct qr_sampling p;
    qr_sampling_init(&p);
    p.temperature = 0;
    p.min_tokens = 1;
    struct qr_sampler s;
    qr_sampler_init(&s, V);
    int32_t ids[2] = {0, 5}, end = 2;
    float row[V];
    memcpy(row, x, sizeof row);
    cr_assert(qr_sample(&s, &(struct qr_logits){.x = row}, &p, ids, 1, 1, &end, 1, 0) == 5);
    memcpy(row, x, sizeof row);
    cr_assert(qr_sample(&s, &(struct qr_logits){.x = row}, &p, ids, 2, 1, &end, 1, 0) == 2);
    qr_sampler_release(&s);
}

Test(sampler, a_draw_depends_on_seed_choice_and_position_only)
{
    float x[V], row[V];
    fill(x, 11);
    struct qr_sampling p;
    qr_sampling_init(&p);
    p.seed = 5;
    struct qr_sampler s;
    qr_sampler_init(&s, V);
    int32_t ids[8] = {0}, first[3][8], differ = 0;
    for (int round = 0; round < 2; round++)
        for (int32_t choice = 0; choice < 3; choice++)
            for (int32_t pos = 0; pos < 7; pos++) {
                memcpy(row, x, sizeof row);
                int32_t id = qr_sample(&s, &(struct qr_logits){.x = row}, &p, ids, 1 + pos, 1, NULL, 0, choice);
                if (round == 0)
                    first[choice][pos] = id;
                else
                    cr_assert(first[choice][pos] == id);
                differ += round == 1 && first[0][pos] != id;
            }
    cr_assert(differ > 0, "choices draw the same numbers");
    qr_sampler_release(&s);
}

Test(sampler, log_probabilities_and_ranks_are_those_of_the_whole_row)
{
    float x[V];
    fill(x, 23);
    double sum = 0;
    for (int i = 0; i < V; i++)
        sum += exp((double)x[i]);
    struct qr_token_logprob t;
    for (int32_t id = 0; id < V; id++) {
        qr_token_logprob_fill(&t, &(struct qr_logits){.x = x}, V, id, 5);
        int32_t rank = 1;
        for (int i = 0; i < V; i++)
            rank += x[i] > x[id];
        cr_assert(t.rank == rank && t.n_top == 5);
        /* exp in f32 is good to 1 ulp (6e-8), the sum adds less than that again: 1e-6 is loose */
        cr_assert(fabs((double)t.logprob - ((double)x[id] - log(sum))) < 1e-6);
        for (int i = 1; i < 5; i++)
            cr_assert(t.top_logprob[i - 1] >= t.top_logprob[i]);
        cr_assert(rank > 5 || t.top_id[rank - 1] == id);
    }
}

Test(sampler, what_some_reach_is_reached_by_so_many_and_hardly_more)
{
    enum { N = 700 };
    static float x[N];
    struct qr_rng r = {.seed = 88};
    for (int32_t round = 0; round < 300; round++) {
        const int32_t n = 1 + (int32_t)qr_rng_below(&r, N), k = 1 + (int32_t)qr_rng_below(&r, 50);
        const double spread = round % 3 == 0 ? 60 : 6;
        int32_t n_numbers = 0, n_above = 0, n_far_above = 0;
        float best = -INFINITY;
        for (int32_t i = 0; i < n; i++) {
            x[i] = qr_rng_below(&r, 20) == 0 ? NAN : round % 5 == 0 ? (float)qr_rng_below(&r, 4) : (float)(qr_rng_next_unit(&r) * spread);
            n_numbers += !isnan(x[i]);
            best = x[i] > best ? x[i] : best;
        }
        const float v = qr_reached_by(qr_row_math_best(), x, n, k, best);
        for (int32_t i = 0; i < n; i++) {
            n_above += x[i] > v;
            n_far_above += x[i] > v + fmaxf(best - v, 8) / 32 + 0x1p-16f; /* 8 is looked at first; rounding of numbers up to 60 */
        }
        cr_assert(n_numbers < k ? v == -INFINITY : n_above >= k, "round %d: %d are above instead of %d", (int)round, (int)n_above, (int)k);
        cr_assert(n_numbers < k || n_far_above < k, "round %d: %d are far above instead of %d", (int)round, (int)n_far_above, (int)k);
    }
    x[0] = INFINITY;
    x[1] = 0;
    cr_assert(qr_reached_by(qr_row_math_best(), x, 2, 2, INFINITY) == -INFINITY);
}

/* As find has found them, in rooms of just so many. */
static void check_gathered(const struct qr_row_math *math, const float *x, int32_t n, float v, const int32_t *at, int32_t n_found)
{
    float *got = malloc((size_t)n * sizeof *got);
    int32_t *id = malloc((size_t)n * sizeof *id);
    cr_assert(math->gather(got, id, x, n, v, 1000) == n_found, "%s: gathered of %d", math->name, (int)n);
    for (int32_t i = 0; i < n_found; i++)
        cr_assert(id[i] == 1000 + at[i] && got[i] == x[at[i]], "%s: place %d gathered of %d", math->name, (int)i, (int)n);
    free(got);
    free(id);
}

Test(sampler, every_vector_width_gives_the_same_bits)
{
    enum { N = 1000 };
    static float x[N], w[4][N];
    const struct qr_row_math *all[2];
    int32_t n = qr_row_math_all(all);
    struct qr_rng r = {.seed = 77};
    cr_assert(n >= 1 && qr_row_math_best() == all[n - 1]);
    for (int32_t len = 1; len <= N; len += len < 40 ? 1 : 83) {
        for (int32_t i = 0; i < len; i++)
            x[i] = (float)(qr_rng_next_unit(&r) * 100 - 90);
        x[len / 2] = len % 3 ? 0 : NAN;
        float most = all[0]->max(x, len, -200), best = most > 0 ? most : 0;
        double sum = all[0]->weigh(w[0], x, len, best, 0.9f);
        for (int32_t k = 0; k < n; k++) {
            cr_assert(all[k]->max(x, len, -200) == most, "%s: maximum of %d", all[k]->name, (int)len);
            cr_assert(all[k]->weigh(w[k], x, len, best, 0.9f) == sum, "%s: sum of %d", all[k]->name, (int)len);
            cr_assert(memcmp(w[k], w[0], (size_t)len * sizeof w[0][0]) == 0, "%s: weights of %d", all[k]->name, (int)len);
            cr_assert(all[k]->count_above(x, len, -20) == all[0]->count_above(x, len, -20), "%s: count of %d", all[k]->name, (int)len);
            int32_t at[N], n_found = all[k]->find(at, x, len, x[len / 3]), n_there = 0;
            for (int32_t i = 0; i < len; i++)
                if (x[i] >= x[len / 3])
                    cr_assert(n_there < n_found && at[n_there++] == i, "%s: place %d of %d", all[k]->name, (int)i, (int)len);
            cr_assert(n_there == n_found, "%s: found %d of %d", all[k]->name, (int)n_found, (int)len);
            cr_assert(all[k]->first(x, len, x[len / 3]) == (n_found > 0 ? at[0] : len), "%s: first of %d", all[k]->name, (int)len);
            check_gathered(all[k], x, len, x[len / 3], at, n_found);
        }
        for (int32_t i = 0; i < len; i++) { /* 2 ulp of exp in f32, with one rounding more in the argument: |x| 2^-24 < 1e-5 */
            double want = exp((double)((x[i] - best) * 0.9f));
            cr_assert(isnan(x[i]) ? w[0][i] == 0 : fabs((double)w[0][i] - want) <= 3e-7 * want + 1e-37);
        }
    }
    printf("widths: %d, the widest %s\n", (int)n, all[n - 1]->name);
}

Test(sampler, bad_words_forbid_their_last_token_behind_the_others)
{
    static const int32_t bad[] = {1, 4, 2, 7, 8, 3, 5, 7, 9}, ids[] = {5, 7, 5, 7}; /* 4; 7 8; 5 7 9 */
    static const struct { int32_t n_prompt, n_ids; bool no_8, no_9; } cases[] = {{4, 4, false, false}, {3, 4, true, false}, {2, 4, true, true},
                                                                                  {0, 3, false, false}, {0, 4, true, true}};
    static const float temperature[] = {0, 1};
    for (int i = 0; i < QR_COUNT(cases); i++)
        for (int k = 0; k < 2; k++) {
            struct qr_sampling p;
            float x[V] = {0};
            qr_sampling_init(&p);
            p.temperature = temperature[k];
            p.bad = bad;
            p.n_bad = QR_COUNT(bad);
            x[4] = 90, x[8] = 60, x[9] = 30;
            const int32_t want = !cases[i].no_8 ? 8 : !cases[i].no_9 ? 9 : 0, id = draw(x, &p, ids, cases[i].n_ids, cases[i].n_prompt);
            cr_assert(want ? id == want : id != 4 && id != 8 && id != 9, "case %d: %d, expected %d", i, id, want);
            cr_assert(qr_sampling_changes_logits(&p, 100));
        }
}

Test(sampler, only_allowed_ids_are_drawn_with_their_own_odds)
{
    static const int32_t allowed[] = {31, 3, 31, 49};
    float x[V];
    int32_t n[V] = {0}, ids[1] = {0};
    fill(x, 5);
    x[3] = 1, x[31] = 1, x[49] = 1 - logf(2);
    for (int restriction = 0; restriction < 3; restriction++)
        for (int i = 0; i < 4000; i++) {
            struct qr_sampling p;
            qr_sampling_init(&p);
            p.allowed = allowed;
            p.n_allowed = QR_COUNT(allowed);
            p.top_k = restriction == 1 ? 40 : 0;
            p.top_p = restriction == 2 ? 0.999f : 1;
            p.seed = (uint64_t)i;
            n[draw(x, &p, ids, 1, 1)]++;
        }
    cr_assert_eq(n[3] + n[31] + n[49], 12000);
    cr_assert(abs(n[3] - 4800) < 300 && abs(n[31] - 4800) < 300, "%d and %d of 12000", n[3], n[31]); /* six standard deviations: 6 sqrt(12000 0.4 0.6) */
    struct qr_sampling p;
    qr_sampling_init(&p);
    p.temperature = 0;
    p.allowed = allowed;
    p.n_allowed = QR_COUNT(allowed);
    cr_assert_eq(draw(x, &p, ids, 1, 1), 3);
}

Test(sampler, a_row_that_is_no_number_is_never_hidden_behind_a_finite_choice)
{
    enum { N = 600 };
    static float x[N];
    static const float bad[] = {NAN, INFINITY};
    struct qr_sampler s;
    qr_sampler_init(&s, N);
    int32_t ids[1] = {0};
    for (int kind = 0; kind < 2; kind++)
        for (int c = 0; c < 5; c++) {
            struct qr_sampling p;
            qr_sampling_init(&p);
            p.temperature = c == 0 ? 0 : 1;
            p.top_p = c == 2 ? 0.9f : 1;
            p.min_p = c == 3 ? 0.1f : 0;
            p.top_k = c == 4 ? 5 : 0;
            for (int32_t i = 0; i < N; i++)
                x[i] = kind == 0 ? bad[0] : (float)(i % 5);
            if (kind == 1)
                x[300] = bad[1];
            int32_t id = qr_sample(&s, &(struct qr_logits){.x = x}, &p, ids, 1, 1, NULL, 0, 0);
            cr_assert(id >= 0 && id < N && !isfinite(x[id]), "kind %d, case %d: id %d", kind, c, (int)id);
        }
    qr_sampler_release(&s);
}

/* A row and what a head's product would say of it. */
struct known {
    struct qr_logits row;
    float largest[32], sum[32];
};

static void know(struct known *k, float *x, int32_t n, float scale)
{
    for (int32_t i = 0; i * QR_STRETCH < n; i++) {
        const int32_t from = i * QR_STRETCH, to = from + QR_STRETCH < n ? from + QR_STRETCH : n;
        double sum = 0;
        k->largest[i] = -INFINITY;
        for (int32_t id = from; id < to; id++)
            k->largest[i] = x[id] > k->largest[i] ? x[id] : k->largest[i];
        for (int32_t id = from; id < to; id++)
            sum += exp((double)scale * (double)(x[id] - k->largest[i]));
        k->sum[i] = (float)sum;
    }
    k->row = (struct qr_logits){.x = x, .largest = k->largest, .sum = k->sum, .scale = scale};
}

/* Draws of all kinds, some with changed logits, some with sums of another scale, which are of no use. Sums
 * differ in their last bits from those that the sampler makes, so a draw within 2^-18 of a border may fall on its other side: one in some ten thousand,
 * none of these. */
Test(sampler, chooses_the_same_whether_stretches_are_known_or_not)
{
    enum { N = 6000 };
    static float x[N], y[N], z[N];
    struct qr_sampler s;
    qr_sampler_init(&s, N);
    struct qr_rng r = {.seed = 4711};
    int32_t ids[40], n_kinds[6] = {0};
    for (int32_t i = 0; i < 40; i++)
        ids[i] = (int32_t)qr_rng_below(&r, N);
    for (uint64_t round = 0; round < 300; round++) {
        struct qr_sampling p;
        struct known k;
        qr_sampling_init(&p);
        const int32_t kind = (int32_t)(round % 6);
        p.seed = round;
        p.temperature = kind == 0 ? 0 : 0.3f + (float)qr_rng_next_unit(&r);
        p.top_k = kind == 1 ? 1 + (int32_t)qr_rng_below(&r, 60) : 0;
        p.top_p = kind == 2 ? 0.3f + 0.6f * (float)qr_rng_next_unit(&r) : 1;
        p.min_p = kind == 3 ? 0.02f : 0;
        p.repetition = round % 4 == 1 ? 1.3f : 1;
        p.presence = round % 4 == 2 ? 0.7f : 0;
        const double spread = 4 + (double)qr_rng_below(&r, 20);
        for (int32_t i = 0; i < N; i++)
            x[i] = y[i] = z[i] = kind == 0 ? (float)qr_rng_below(&r, 24) : (float)(qr_rng_next_unit(&r) * spread); /* greedy: of many that are equal */
        know(&k, y, N, kind == 4 ? 0.123f : qr_sampling_scale(&p, N));
        int32_t want = qr_sample(&s, &(struct qr_logits){.x = x}, &p, ids, 40, 20, NULL, 0, 0);
        int32_t got = qr_sample(&s, &k.row, &p, ids, 40, 20, NULL, 0, 0);
        cr_assert(got == want, "round %d: %d, with known stretches %d", (int)round, (int)want, (int)got);
        cr_assert(memcmp(x, y, sizeof x) == 0);
        struct qr_token_logprob a, b;
        know(&k, z, N, 1);
        qr_token_logprob_fill(&a, &(struct qr_logits){.x = z}, N, got, 10);
        qr_token_logprob_fill(&b, &k.row, N, got, 10);
        /* log of sums that differ by a factor 1 +- 2^-18 at most, and a rounding of numbers below 32 */
        cr_assert(fabs((double)a.logprob - (double)b.logprob) < 0x1p-18 + 0x1p-19 && a.rank == b.rank && a.n_top == b.n_top);
        cr_assert(memcmp(a.top_id, b.top_id, sizeof a.top_id) == 0);
        n_kinds[kind]++;
    }
    cr_assert(n_kinds[5] > 0);
    qr_sampler_release(&s);
}
