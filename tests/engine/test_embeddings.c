/* Embeddings: the same bits whatever else runs and however prompts are cut, and what each pooling is made of. */
#include <criterion/criterion.h>
#include <math.h>

#include "tests/engine/cases.h"

#define MODEL "models/stories260K"
#define WIDTH 64
#define FFN 172 /* the inputs of its widest product */
#define N_INPUTS 18
#define NEED_DATA()                                                                                                    \
    do {                                                                                                               \
        if (!data_path(MODEL))                                                                                         \
            cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);                         \
    } while (0)

struct input {
    int32_t id[PROMPT_MAX], n;
    enum qr_pooling pooling;
};

/* Some share their beginnings, for the prefix cache. */
static void make_inputs(struct input *in)
{
    static const enum qr_pooling pooling[] = {QR_POOLING_LAST, QR_POOLING_MEAN, QR_POOLING_CLS};
    struct qr_rng rng = {.seed = 99};
    for (int i = 0; i < N_INPUTS; i++) {
        in[i].n = i == 0 ? 1 : 1 + (int32_t)qr_rng_below(&rng, PROMPT_MAX - 1);
        in[i].pooling = pooling[i % 3];
        for (int32_t k = 0; k < in[i].n; k++)
            in[i].id[k] = i > 5 && k < 48 ? 7 + k : 3 + (int32_t)qr_rng_below(&rng, 500);
    }
}

static void embed(struct world *w, const int32_t *id, int32_t n, enum qr_pooling pooling, double *to)
{
    struct flight f;
    flight_embed(w, &f, pooling, id, n, to);
    flight_finish(w, &f);
    cr_assert_eq(f.answer[0].finish, QR_FINISH_LENGTH);
    cr_assert_eq(f.answer[0].n, 0);
}

static void embed_alone(double (*out)[WIDTH], const struct input *in, const char *isa, enum qr_compute compute, int32_t n_ranks)
{
    struct setup s;
    struct world w;
    setup_init(&s, MODEL);
    s.n_threads = 1;
    s.isa = isa;
    s.compute = compute;
    s.n_ranks = n_ranks;
    s.config.prefix_cache = false;
    world_open(&w, &s);
    for (int i = 0; i < N_INPUTS; i++)
        embed(&w, in[i].id, in[i].n, in[i].pooling, out[i]);
    world_close(&w);
}

/* All at once, beside sequences that decode, and some that are cancelled. Returns how often somebody was preempted. */
static int64_t embed_together(double (*out)[WIDTH], const struct input *in, const struct setup *s, const char *how)
{
    enum { N_STREAMS = 4 };
    struct flight *f = qr_alloc(N_INPUTS, sizeof *f), *streams = qr_alloc(2 * N_STREAMS, sizeof *streams), *gone = streams + N_STREAMS;
    double lost[N_STREAMS][WIDTH];
    struct qr_stats st;
    struct world w;
    struct kase *k = qr_alloc(N_CASES, sizeof *k);
    struct qr_err err = {0};
    make_cases(k);
    world_open(&w, s);
    for (int i = 0; i < N_STREAMS; i++) {
        cr_assert_eq(flight_start(&w, &streams[i], &k[i].s, k[i].prompt, k[i].n_prompt, 1, &err), 0, "%s", err.msg);
        flight_embed(&w, &gone[i], QR_POOLING_MEAN, in[5 + i].id, in[5 + i].n, lost[i]);
    }
    for (int i = 0; i < N_INPUTS; i++) {
        flight_embed(&w, &f[i], in[i].pooling, in[i].id, in[i].n, out[i]);
        if (i < N_STREAMS && !gone[i].done)
            qr_engine_cancel(w.engine, gone[i].req);
    }
    for (int i = 0; i < N_INPUTS; i++) {
        flight_finish(&w, &f[i]);
        cr_assert_eq(f[i].answer[0].finish, QR_FINISH_LENGTH, "%s: input %d", how, i);
    }
    world_settle(&w, &st);
    world_close(&w);
    qr_free(k);
    qr_free(streams);
    qr_free(f);
    return st.sched.n_preempted;
}

Test(embeddings, the_bits_do_not_depend_on_batch_chunks_threads_cache_or_preemption)
{
    static const struct {
        const char *name;
        int32_t n_threads, chunk, step, running, kv_tokens, logit_rows;
        bool prefix_cache;
    } ways[] = {{"as it is", 2, 256, 512, 64, 0, 64, true},     {"three threads", 3, 64, 512, 64, 0, 512, true}, {"chunks of 1", 1, 1, 64, 16, 0, 16, false},
                {"chunks of 7", 2, 7, 64, 16, 0, 16, true},     {"few rows", 2, 64, 64, 5, 0, 5, true},
                {"few blocks", 2, 4, 128, 4, 208, 4, true},     {"some blocks", 2, 8, 128, 8, 272, 8, true}};
    NEED_DATA();
    struct input *in = qr_alloc(N_INPUTS, sizeof *in);
    static double want[N_INPUTS][WIDTH], got[N_INPUTS][WIDTH];
    struct guesser guesser = {.rng = {.seed = 31}};
    int64_t n_preempted = 0;
    make_inputs(in);
    embed_alone(want, in, NULL, QR_COMPUTE_AUTO, 1);
    for (int i = 0; i < QR_COUNT(ways); i++) {
        struct setup s;
        setup_init(&s, MODEL);
        s.n_threads = ways[i].n_threads;
        s.config.chunk_tokens_max = ways[i].chunk;
        s.config.step_tokens_max = ways[i].step;
        s.config.running_max = ways[i].running;
        s.config.kv_tokens = ways[i].kv_tokens;
        s.config.logit_rows_max = ways[i].logit_rows;
        s.config.prefix_cache = ways[i].prefix_cache;
        guesser_set(&guesser, i % 2 ? GUESS_ANY : GUESS_NONE, &s.config); /* of the streams beside */
        memset(got, 0, sizeof got);
        const int64_t before = n_preempted;
        for (int tries = 0; tries < 10 && n_preempted == before && (tries == 0 || ways[i].kv_tokens > 0); tries++) /* a test that is stopped makes room */
            n_preempted += embed_together(got, in, &s, ways[i].name);
        for (int k = 0; k < N_INPUTS; k++)
            cr_assert_eq(memcmp(want[k], got[k], sizeof want[k]), 0, "%s: input %d of %d tokens, pooling %d", ways[i].name, k, in[k].n, (int)in[k].pooling);
    }
    cr_assert_gt(n_preempted, 0); /* where blocks are few: two or three times each, prompts that streams beside them push out among them */
    qr_free(in);
}

/* With a causal model the row of position p is the last one of the prompt that ends there: a mean is that of such embeddings, summed in order. */
Test(embeddings, a_mean_is_that_of_the_last_rows_of_all_beginnings_and_cls_is_the_first_of_them)
{
    NEED_DATA();
    enum { N = 23 };
    struct input *in = qr_alloc(N_INPUTS, sizeof *in);
    double last[WIDTH] = {0}, sum[WIDTH] = {0}, mean[WIDTH] = {0}, cls[WIDTH] = {0}, first[WIDTH] = {0};
    struct setup s;
    struct world w;
    make_inputs(in);
    setup_init(&s, MODEL);
    world_open(&w, &s);
    for (int32_t n = 1; n <= N; n++) {
        embed(&w, in[17].id, n, QR_POOLING_LAST, last);
        for (int i = 0; i < WIDTH; i++)
            sum[i] += last[i];
        if (n == 1)
            memcpy(first, last, sizeof first);
    }
    embed(&w, in[17].id, N, QR_POOLING_MEAN, mean);
    embed(&w, in[17].id, N, QR_POOLING_CLS, cls);
    for (int i = 0; i < WIDTH; i++) {
        cr_assert_eq(mean[i], sum[i] / N, "number %d: %.17g, %.17g", i, mean[i], sum[i] / N);
        cr_assert_eq(cls[i], first[i]);
    }
    cr_assert_neq(memcmp(last, first, sizeof first), 0);
    world_close(&w);
    qr_free(in);
}

Test(embeddings, answers_beside_embeddings_are_what_they_are_alone)
{
    NEED_DATA();
    struct kase *k = qr_alloc(N_CASES, sizeof *k);
    struct input *in = qr_alloc(N_INPUTS, sizeof *in);
    struct flight alone, beside, *f = qr_alloc(N_INPUTS, sizeof *f);
    static double to[N_INPUTS][WIDTH];
    struct qr_err err = {0};
    struct setup s;
    struct world w;
    make_cases(k);
    make_inputs(in);
    setup_init(&s, MODEL);
    s.config.prefix_cache = false;
    world_open(&w, &s);
    for (int c = 0; c < 3; c++) {
        ask(&w, &alone, &k[c].s, k[c].prompt, k[c].n_prompt, 1);
        cr_assert_eq(flight_start(&w, &beside, &k[c].s, k[c].prompt, k[c].n_prompt, 1, &err), 0, "%s", err.msg);
        for (int i = 0; i < N_INPUTS; i++)
            flight_embed(&w, &f[i], in[i].pooling, in[i].id, in[i].n, to[i]);
        for (int i = 0; i < N_INPUTS; i++)
            flight_finish(&w, &f[i]);
        flight_finish(&w, &beside);
        cr_assert(answers_equal(&alone.answer[0], &beside.answer[0]), "case %d", c);
    }
    world_close(&w);
    qr_free(f);
    qr_free(in);
    qr_free(k);
}

/* Bound: as in tests/model/test_ranks.c, of which these rows are what goes into the head: twice what instruction-set levels move them by, or, with ref alone,
 * what another order does by the distance of bf16. */
Test(embeddings, those_of_2_and_4_ranks_are_those_of_one_but_for_rounding_and_the_same_bits_in_any_batch)
{
    NEED_DATA();
    const char *levels[8];
    const int32_t n_levels = qr_cpu_levels(levels);
    const char *best = levels[n_levels - 1];
    static double one[N_INPUTS][WIDTH], other[N_INPUTS][WIDTH], some[N_INPUTS][WIDTH], together[N_INPUTS][WIDTH];
    struct input *in = qr_alloc(N_INPUTS, sizeof *in);
    make_inputs(in);
    embed_alone(one, in, best, QR_COMPUTE_AUTO, 1);
    embed_alone(other, in, "ref", n_levels > 1 ? QR_COMPUTE_AUTO : QR_COMPUTE_BF16, 1);
    for (int32_t n = 2; n <= 4; n += 2) {
        double moved = 0, found = 0;
        struct setup s;
        setup_init(&s, MODEL);
        s.n_threads = 1;
        s.n_ranks = n;
        s.config.chunk_tokens_max = 7;
        s.config.step_tokens_max = 64;
        s.config.running_max = s.config.logit_rows_max = 16;
        embed_alone(some, in, best, QR_COMPUTE_AUTO, n);
        embed_together(together, in, &s, "ranks");
        cr_assert_eq(memcmp(some, together, sizeof some), 0, "%d ranks", n);
        for (int i = 0; i < N_INPUTS; i++)
            for (int k = 0; k < WIDTH; k++) {
                moved = fmax(moved, fabs(other[i][k] - one[i][k]));
                found = fmax(found, fabs(some[i][k] - one[i][k]));
            }
        if (n_levels == 1)
            moved = order_moves(moved, FFN);
        printf("%d ranks: %.2g, order %.2g\n", n, found, moved);
        cr_expect(found > 0 && found <= 2 * moved, "%d ranks: %.3g, order moves %.3g", n, found, moved);
    }
    qr_free(in);
}
