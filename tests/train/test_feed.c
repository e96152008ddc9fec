/* The feed: every piece once an epoch, in an order that a position describes; every id but the first is a target once. */
#include "tests/train/data_rig.h"

#include "train/data/feed.h"
#include "train/data/permute.h"

#define SEED 90210

/* ---- permutation ---- */

static void check_bijection(int64_t n, uint64_t seed, uint64_t stream)
{
    bool *seen = qr_alloc((size_t)n, sizeof *seen);
    for (int64_t i = 0; i < n; i++) {
        const int64_t at = qr_permute(i, n, seed, stream);
        cr_assert(at >= 0 && at < n && !seen[at], "n %lld: %lld goes to %lld", (long long)n, (long long)i, (long long)at);
        seen[at] = true;
    }
    qr_free(seen);
}

Test(permute, is_a_bijection_for_every_small_n_and_around_powers_of_two)
{
    for (int64_t n = 1; n <= 130; n++)
        for (uint64_t key = 0; key < 5; key++)
            check_bijection(n, SEED + key, key * 3);
    static const int64_t large[] = {255, 256, 257, 1000, 1023, 1025, 4097, 20011};
    for (int i = 0; i < QR_COUNT(large); i++)
        check_bijection(large[i], SEED, (uint64_t)i);
}

Test(permute, reaches_the_whole_range_of_large_n)
{
    const int64_t n = (INT64_C(1) << 62) - 12345;
    int64_t low = n, high = 0;
    for (int64_t i = 0; i < 200; i++) {
        const int64_t at = qr_permute(n - 1 - i, n, SEED, 7);
        cr_assert(at >= 0 && at < n);
        low = at < low ? at : low;
        high = at > high ? at : high;
    }
    cr_assert_lt(low, n / 10); /* 200 uniform draws miss a tenth with probability 0.9^200 = 7e-10 */
    cr_assert_gt(high, n / 10 * 9);
}

/* Each index goes to each place about equally often over the keys: chi squared with 100 degrees of freedom per index; 101 of them together have a mean of
 * 10,100 and a deviation of sqrt(2 * 10100) = 142, and six of these are allowed. */
Test(permute, places_are_drawn_evenly_over_epochs)
{
    enum { N = 101, KEYS = 2020 };
    static int32_t count[N][N];
    memset(count, 0, sizeof count);
    for (uint64_t key = 0; key < KEYS; key++)
        for (int64_t i = 0; i < N; i++)
            count[i][qr_permute(i, N, SEED, key)]++;
    double sum = 0;
    const double mean = (double)KEYS / N;
    for (int i = 0; i < N; i++)
        for (int k = 0; k < N; k++)
            sum += (count[i][k] - mean) * (count[i][k] - mean) / mean;
    cr_assert(sum > 10100 - 6 * 142 && sum < 10100 + 6 * 142, "chi squared %.0f", sum);
}

/* ---- feed ---- */

struct bench {
    struct data_dir dir;
    struct corpus corpus;
    struct qr_shards *shards;
    struct qr_feed *feed;
    struct qr_train_batch batch;
    struct qr_feed_options o;
};

static struct bench bench_open(struct qr_feed_options o, bool masked, uint64_t seed)
{
    struct bench b = {.dir = data_dir_make(), .corpus = corpus_make(60, 500, 20, masked, seed), .o = o};
    corpus_write(&b.corpus, b.dir.path, 300);
    b.shards = data_open(b.dir.path);
    struct qr_err err = {0};
    cr_assert_eq(qr_feed_open(&b.feed, b.shards, &o, &err), 0, "%s", err.msg);
    qr_train_batch_init(&b.batch, o.micro_tokens, o.n_seqs_max < o.micro_tokens ? o.n_seqs_max : o.micro_tokens);
    return b;
}

static void bench_close(struct bench *b)
{
    qr_train_batch_release(&b->batch);
    qr_feed_close(b->feed);
    qr_shards_close(b->shards);
    corpus_drop(&b->corpus);
    data_dir_remove(&b->dir);
}

static const struct qr_feed_options shuffled = {.sequence = 16, .micro_tokens = 64, .n_seqs_max = 6, .seed = SEED, .shuffle = true};

Test(feed, gives_every_piece_once_an_epoch_in_another_order_each_time)
{
    struct bench b = bench_open(shuffled, false, SEED);
    const int64_t n = qr_feed_n_pieces(b.feed);
    int64_t n_same = 0;
    for (int64_t e = 0; e < 4; e++) {
        int64_t n_rows = 0;
        bool *seen = qr_alloc((size_t)b.corpus.n_docs * 64, sizeof *seen);
        for (int64_t i = 0; i < n; i++) {
            const struct qr_piece p = qr_feed_piece(b.feed, e * n + i), before = qr_feed_piece(b.feed, i);
            bool *s = &seen[p.doc * 64 + p.first / 16];
            cr_assert(p.first % 16 == 0 && p.n >= 2 && p.n <= 17 && !*s);
            *s = true;
            n_rows += p.n - 1;
            n_same += e > 0 && p.doc == before.doc && p.first == before.first;
        }
        cr_assert_eq(n_rows, qr_shards_index(b.shards)->n_tokens -
                                 qr_shards_index(b.shards)->n_docs); /* so all pieces have been there */
        qr_free(seen);
    }
    cr_assert_lt(n_same, n / 4); /* three other orders: one match each is expected */
    bench_close(&b);
}

/* Finds a batch's sequence in the corpus by its piece; marks its targets. */
static void mark_targets(struct bench *b, const struct qr_piece *p, int32_t seq, int32_t *next_logit, bool *is_target[64])
{
    const struct qr_batch *x = &b->batch.b;
    const int32_t row0 = x->row_start[seq];
    cr_assert_eq(x->row_start[seq + 1] - row0, p->n - 1);
    for (int32_t i = 0; i + 1 < p->n; i++) {
        cr_assert_eq(x->ids[row0 + i], b->corpus.ids[p->doc][p->first + i]);
        if (b->corpus.counts[p->doc] && !b->corpus.counts[p->doc][p->first + i + 1])
            continue;
        cr_assert_eq(x->logit_row[*next_logit], row0 + i);
        cr_assert_eq(b->batch.target[(*next_logit)++], b->corpus.ids[p->doc][p->first + i + 1]);
        cr_assert_not(is_target[p->doc][p->first + i + 1]);
        is_target[p->doc][p->first + i + 1] = true;
    }
}

static bool piece_counts(const struct bench *b, const struct qr_piece *p)
{
    for (int64_t i = p->first + 1; i < p->first + p->n; i++)
        if (!b->corpus.counts[p->doc] || b->corpus.counts[p->doc][i])
            return true;
    return false;
}

static void check_epoch(struct qr_feed_options o, bool masked, uint64_t seed)
{
    struct bench b = bench_open(o, masked, seed);
    bool *is_target[64];
    for (int32_t d = 0; d < b.corpus.n_docs; d++)
        is_target[d] = qr_alloc((size_t)b.corpus.n[d], sizeof(bool));
    int64_t position = 0;
    while (qr_feed_next(b.feed, &position, &b.batch)) {
        int32_t next_logit = 0;
        cr_assert(b.batch.b.n_tokens <= o.micro_tokens && b.batch.b.n_seqs <= o.n_seqs_max && b.batch.b.n_logits > 0);
        int64_t from = position - 1, k = b.batch.b.n_seqs;
        for (; k > 0; from--) { /* pieces that count nothing were passed over */
            const struct qr_piece p = qr_feed_piece(b.feed, from);
            k -= piece_counts(&b, &p);
        }
        for (int32_t s = 0; s < b.batch.b.n_seqs;) {
            const struct qr_piece p = qr_feed_piece(b.feed, ++from);
            if (piece_counts(&b, &p))
                mark_targets(&b, &p, s++, &next_logit, is_target);
        }
        cr_assert_eq(next_logit, b.batch.b.n_logits);
    }
    cr_assert_eq(position, qr_feed_n_pieces(b.feed));
    for (int32_t d = 0; d < b.corpus.n_docs; d++) {
        for (int32_t i = 0; i < b.corpus.n[d]; i++)
            cr_assert_eq(is_target[d][i], i > 0 && (!b.corpus.counts[d] || b.corpus.counts[d][i]), "document %d, id %d", d, i);
        qr_free(is_target[d]);
    }
    bench_close(&b);
}

Test(feed, makes_every_id_but_the_first_a_target_exactly_once_an_epoch)
{
    static const struct qr_feed_options cases[] = {{.sequence = 16, .micro_tokens = 64, .n_seqs_max = 6}, {.sequence = 1, .micro_tokens = 1, .n_seqs_max = 1},
                                                   {.sequence = 5, .micro_tokens = 5, .n_seqs_max = 9}, {.sequence = 64, .micro_tokens = 64, .n_seqs_max = 64},
                                                   {.sequence = 1000, .micro_tokens = 1000, .n_seqs_max = 3}};
    printf("seed %d\n", SEED);
    for (int i = 0; i < QR_COUNT(cases); i++) {
        check_epoch(cases[i], false, SEED + (uint64_t)i);
        check_epoch(cases[i], true, SEED + (uint64_t)i);
    }
}

Test(feed, counts_the_micro_batches_of_an_epoch)
{
    struct qr_feed_options in_order = shuffled;
    in_order.shuffle = false;
    for (int masked = 0; masked < 2; masked++) {
        struct bench b = bench_open(in_order, masked, SEED + 70), mixed = bench_open(shuffled, masked, SEED + 70);
        const int64_t n_pieces = qr_feed_n_pieces(mixed.feed);
        int64_t n = 0, position = 0, before = 0;
        while (qr_feed_skip(b.feed, &position) > 0)
            n++;
        cr_assert_eq(qr_feed_n_micros(b.feed), (double)n);
        for (position = n = 0; position < n_pieces; n++) {
            before = position;
            cr_assert(qr_feed_skip(mixed.feed, &position) > 0);
        }
        const double part = (double)(n_pieces - before) / (double)(position - before); /* of the last one */
        cr_assert_float_eq(qr_feed_n_micros(mixed.feed), (double)(n - 1) + part, 1e-12);
        bench_close(&b), bench_close(&mixed);
    }
}

static bool same_batch(const struct qr_train_batch *a, const struct qr_train_batch *b)
{
    return a->b.n_tokens == b->b.n_tokens && a->b.n_seqs == b->b.n_seqs && a->b.n_logits == b->b.n_logits &&
           memcmp(a->b.ids, b->b.ids, (size_t)a->b.n_tokens * 4) == 0 && memcmp(a->target, b->target, (size_t)a->b.n_logits * 4) == 0;
}

Test(feed, goes_on_from_any_position_as_if_it_had_never_stopped_also_where_the_batches_are_anothers)
{
    struct bench b = bench_open(shuffled, true, SEED + 50), again = bench_open(shuffled, true, SEED + 50);
    int64_t position = 0, skipped = 0;
    for (int step = 0; step < 200; step++) { /* more than three epochs */
        int64_t resumed = position;
        cr_assert(qr_feed_next(b.feed, &position, &b.batch));
        cr_assert(qr_feed_next(again.feed, &resumed, &again.batch)); /* a feed that has seen nothing before, or other things */
        cr_assert(resumed == position && same_batch(&b.batch, &again.batch));
        cr_assert(qr_feed_next(again.feed, &skipped, NULL));
        cr_assert_eq(skipped, position);
        int64_t elsewhere = (position * 7919) % 1000;
        qr_feed_next(again.feed, &elsewhere, &again.batch);
    }
    cr_assert_gt(position, 3 * qr_feed_n_pieces(b.feed));
    bench_close(&b);
    bench_close(&again);
}

Test(feed, another_seed_is_another_order)
{
    struct qr_feed_options o = shuffled;
    struct bench b = bench_open(o, false, SEED);
    o.seed++;
    struct bench other = bench_open(o, false, SEED);
    int64_t n_same = 0;
    for (int64_t i = 0; i < qr_feed_n_pieces(b.feed); i++) {
        const struct qr_piece p = qr_feed_piece(b.feed, i), q = qr_feed_piece(other.feed, i);
        n_same += p.doc == q.doc && p.first == q.first;
    }
    cr_assert_lt(n_same, qr_feed_n_pieces(b.feed) / 4);
    bench_close(&b);
    bench_close(&other);
}

Test(feed, ends_behind_the_last_piece_when_it_does_not_shuffle)
{
    struct bench b = bench_open((struct qr_feed_options){.sequence = 8, .micro_tokens = 8, .n_seqs_max = 1}, false, SEED);
    int64_t position = qr_feed_n_pieces(b.feed) - 1;
    cr_assert(qr_feed_next(b.feed, &position, &b.batch));
    cr_assert_not(qr_feed_next(b.feed, &position, &b.batch));
    cr_assert_eq(b.batch.b.n_tokens, 0);
    cr_assert_eq(position, qr_feed_n_pieces(b.feed));
    bench_close(&b);
}

Test(feed, data_without_a_target_is_refused)
{
    struct data_dir dir = data_dir_make();
    struct corpus c = corpus_make(1, 10, 1, false, SEED);
    c.n[0] = 1;
    corpus_write(&c, dir.path, 0);
    struct qr_shards *s = data_open(dir.path);
    struct qr_feed *f = NULL;
    struct qr_err err = {0};
    cr_assert_eq(qr_feed_open(&f, s, &shuffled, &err), QR_E_INVALID);
    cr_assert_not_null(strstr(err.msg, "nothing to learn"), "%s", err.msg);
    qr_shards_close(s);
    corpus_drop(&c);
    data_dir_remove(&dir);
}
