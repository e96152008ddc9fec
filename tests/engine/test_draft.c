/* Guesses from texts, and how many a step is worth: against texts that are known and machines with known costs. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/mem.h"
#include "base/rng.h"
#include "engine/draft/draft.h"
#include "engine/draft/history.h"
#include "engine/draft/store.h"
#include "engine/draft/worth.h"

/* ---- index ---- */

static void index_all(struct qr_history *h, const struct qr_text *t)
{
    for (uint32_t p = QR_GRAM; p < t->end; p++)
        qr_history_note(h, t, p, 7);
}

static struct qr_match find(const int32_t *ids, uint32_t n, uint32_t wall, int32_t *next, float *share, int32_t *n_next)
{
    struct qr_history h;
    const struct qr_text t = {.id = ids, .mask = UINT32_MAX, .end = n, .wall = wall};
    struct qr_match m;
    qr_history_init(&h, 64);
    index_all(&h, &t);
    qr_history_find(&h, &t, ids + n, n, 7, NULL, &m);
    *n_next = qr_history_follow(&t, &m, next, share, 8);
    qr_history_release(&h);
    return m;
}

Test(history, the_longest_match_is_followed_not_the_latest)
{
    const int32_t ids[] = {9, 1, 2, 3, 50, 51, 8, 1, 2, 3, 60, 61, 9, 1, 2, 3};
    int32_t next[8], n;
    float share[8];
    const struct qr_match m = find(ids, 16, 0, next, share, &n);
    cr_assert_eq(m.n_equal, 4);
    cr_assert_eq(m.n, 1);
    cr_assert_eq(m.at[0], 4);
    cr_assert_eq(n, 8);
    cr_assert_eq(next[0], 50);
    cr_assert_eq(next[1], 51);
}

Test(history, of_equally_long_matches_most_decide_and_the_latest_where_there_is_no_most)
{
    const int32_t ids[] = {4, 1, 2, 3, 50, 5, 1, 2, 3, 60, 70, 6, 1, 2, 3, 60, 71, 7, 1, 2, 3};
    int32_t next[8], n;
    float share[8];
    const struct qr_match m = find(ids, 21, 0, next, share, &n);
    cr_assert_eq(m.n_equal, 3);
    cr_assert_eq(m.n, 3);
    cr_assert_eq(next[0], 60);
    cr_assert_float_eq(share[0], 2.0f / 3, 1e-6);
    cr_assert_eq(next[1], 71);
    cr_assert_float_eq(share[1], 0.5f, 1e-6);
}

Test(history, two_equal_ids_are_no_match)
{
    const int32_t ids[] = {1, 2, 9, 8, 7, 1, 2};
    int32_t next[8], n;
    float share[8];
    cr_assert_eq(find(ids, 7, 0, next, share, &n).n, 0);
    cr_assert_eq(n, 0);
}

Test(history, a_text_in_circles_is_guessed_beyond_its_end)
{
    const int32_t ids[] = {9, 1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3};
    const int32_t expected[8] = {4, 1, 2, 3, 4, 1, 2, 3};
    int32_t next[8], n;
    float share[8];
    find(ids, 12, 0, next, share, &n);
    cr_assert_eq(n, 8);
    cr_assert_arr_eq(next, expected, sizeof expected);
}

Test(history, what_follows_ends_at_the_wall)
{
    const int32_t ids[] = {1, 2, 3, 4, 5, 6, 90, 91, 92, 1, 2, 3};
    int32_t next[8], n;
    float share[8];
    find(ids, 12, 6, next, share, &n);
    cr_assert_eq(n, 3);
    cr_assert_eq(next[2], 6);
}

/* Of four different ids, so that n-grams are everywhere: places are what they are said to be, the longest of those that a look-up may see. */
Test(history, matches_of_random_texts_are_the_longest_of_the_latest_places)
{
    int32_t ids[300], next[8];
    float share[8];
    struct qr_history h;
    qr_history_init(&h, 256);
    for (uint64_t seed = 1; seed <= 200; seed++) {
        struct qr_rng r = {.seed = seed};
        const int32_t n = 3 + (int32_t)qr_rng_below(&r, 297);
        const struct qr_text t = {.id = ids, .mask = UINT32_MAX, .end = (uint32_t)n, .wall = qr_rng_below(&r, 100)};
        struct qr_match m;
        for (int32_t i = 0; i < n; i++)
            ids[i] = (int32_t)qr_rng_below(&r, 4);
        for (uint32_t p = QR_GRAM; p < t.end; p++)
            qr_history_note(&h, &t, p, seed);
        qr_history_find(&h, &t, ids + n, t.end, seed, NULL, &m);
        int32_t longest = 0, seen = 0;
        for (uint32_t p = t.end - 1; p >= QR_GRAM && seen < 12; p--) {
            const int32_t n_equal = qr_history_equal(&t, p, ids + n, t.end);
            seen += n_equal >= QR_GRAM;
            longest = n_equal >= QR_GRAM && n_equal > longest ? n_equal : longest;
        }
        cr_assert_geq(m.n_equal, longest, "seed %d", (int)seed);
        for (int32_t i = 0; i < m.n; i++)
            cr_assert_eq(qr_history_equal(&t, m.at[i], ids + n, t.end), m.n_equal, "seed %d", (int)seed);
        cr_assert_leq(qr_history_follow(&t, &m, next, share, 8), 8);
    }
    qr_history_release(&h);
}

/* ---- finished answers ---- */

static const struct qr_hash128 alice = {1, 2}, bob = {1, 3};

static void random_ids(int32_t *ids, int32_t n, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    for (int32_t i = 0; i < n; i++)
        ids[i] = (int32_t)qr_rng_below(&r, 30000);
}

Test(store, an_answer_is_found_under_its_own_salt_only)
{
    struct qr_store s;
    struct qr_match m;
    int32_t ids[100], next[32];
    float share[32];
    qr_store_init(&s, 1 << 20);
    random_ids(ids, 100, 1);
    qr_store_put(&s, ids, 100, &alice);
    cr_assert_eq(qr_store_index(&s, 50), 50);
    cr_assert_eq(qr_store_index(&s, 1000), 78); /* a block has 64 places */
    qr_store_find(&s, ids + 40, 40, &bob, &m);
    cr_assert_eq(m.n, 0);
    qr_store_find(&s, ids + 40, 40, &alice, &m);
    cr_assert_eq(m.n_equal, QR_MATCH_MAX);
    cr_assert_eq(qr_history_follow(&s.text, &m, next, share, 32), 32);
    cr_assert_arr_eq(next, ids + 40, sizeof next);
    qr_store_find(&s, ids + 95, 95, &alice, &m);
    cr_assert_eq(qr_history_follow(&s.text, &m, next, share, 32), 5, "an answer ends where it ends");
    qr_store_release(&s);
}

/* The same ids under both salts, so that only the owner tells them apart where hashes meet. */
Test(store, no_answer_of_another_salt_is_followed_however_full_the_ring_is)
{
    struct qr_store s;
    struct qr_match m;
    int32_t ids[20000], next[1];
    float share[1];
    qr_store_init(&s, 600 << 10);
    random_ids(ids, 20000, 2);
    for (int i = 0; i < 9; i++) {
        ids[10000] = i;
        qr_store_put(&s, ids, 20000, i % 2 ? &alice : &bob);
        while (qr_store_index(&s, 4096) == 4096)
            continue;
        for (int owner = 0; owner < 2 && i > 0; owner++) {
            qr_store_find(&s, ids + 10000, 1000, owner ? &alice : &bob, &m);
            if (m.n > 0) {
                qr_history_follow(&s.text, &m, next, share, 1);
                cr_assert_eq(next[0] % 2, owner);
            }
            cr_assert(m.n > 0 || owner != i % 2, "the latest is there");
        }
    }
    qr_store_release(&s);
}

Test(store, places_may_pass_the_largest_number)
{
    struct qr_store s;
    struct qr_match m;
    int32_t ids[200], next[8];
    float share[8];
    qr_store_init(&s, 1 << 20);
    s.text.end = s.n_indexed = UINT32_MAX - QR_OWNED_IDS + 1;
    s.id[(s.text.end - 1) & s.text.mask] = -1;
    random_ids(ids, 200, 4);
    for (int i = 0; i < 2; i++) {
        ids[199] = i;
        qr_store_put(&s, ids, 200, &alice);
        qr_store_index(&s, 1000);
        for (int32_t at = 30; at < 190; at += 40) {
            qr_store_find(&s, ids + at, (uint32_t)at, &alice, &m);
            cr_assert_eq(m.n, i + 1, "answer %d at %d", i, at);
            cr_assert_eq(qr_history_follow(&s.text, &m, next, share, 8), 8);
            cr_assert_arr_eq(next, ids + at, sizeof next);
        }
    }
    qr_store_release(&s);
}

Test(store, without_room_nothing_is_kept)
{
    struct qr_store s;
    struct qr_match m;
    int32_t ids[100];
    random_ids(ids, 100, 3);
    cr_assert_eq(qr_store_bytes(1000), 0);
    cr_assert_leq(qr_store_bytes(QR_DRAFT_STORE_BYTES), QR_DRAFT_STORE_BYTES);
    cr_assert_gt(qr_store_bytes(QR_DRAFT_STORE_BYTES), QR_DRAFT_STORE_BYTES / 2);
    qr_store_init(&s, 1000);
    qr_store_put(&s, ids, 100, &alice);
    cr_assert_eq(qr_store_index(&s, 1000), 0);
    qr_store_find(&s, ids + 40, 40, &alice, &m);
    cr_assert_eq(m.n, 0);
    qr_store_release(&s);
}

/* ---- what a step is worth ---- */

struct machine {
    double base, row; /* a step takes so much, and so much a row */
};

static double cost(const struct machine *m, int32_t n_rows)
{
    return m->base + m->row * n_rows;
}

static const struct machine bandwidth = {10000, 100}, compute = {100, 1000};

static int32_t choose(const struct qr_worth *w, float chance, int32_t n, int32_t n_base)
{
    float p[128];
    for (int32_t i = 0; i < n; i++)
        p[i] = chance;
    return qr_worth_choose(w, p, n, n_base);
}

Test(worth, rows_that_are_nearly_free_are_all_taken_and_rows_at_full_price_never)
{
    struct qr_worth cheap = {0}, dear = {0};
    for (int i = 0; i < 4; i++)
        for (int32_t rows = 1; rows <= 64; rows *= 2) {
            qr_worth_note(&cheap, rows, cost(&bandwidth, rows));
            qr_worth_note(&dear, rows, cost(&compute, rows));
        }
    cr_assert_eq(choose(&cheap, 0.5f, 16, 1), 16);
    cr_assert_eq(choose(&cheap, 0.9f, 32, 32), 32);
    cr_assert_eq(choose(&dear, 0.9f, 32, 32), 0);
    cr_assert_eq(choose(&dear, 0.95f, 16, 4), 0);
    cr_assert_float_eq(qr_worth_us(&dear, 24), cost(&compute, 24), 1);
}

/* A tile of 16 rows: the 17th costs as much as the next 15 together. */
Test(worth, a_step_in_the_costs_is_climbed_where_it_pays)
{
    struct qr_worth w = {0};
    for (int i = 0; i < 4; i++)
        for (int32_t rows = 1; rows <= 32; rows++)
            qr_worth_note(&w, rows, rows <= 16 ? 1000 : 1500);
    cr_assert_eq(choose(&w, 0.9f, 15, 16), 15);
    cr_assert_eq(choose(&w, 0.9f, 5, 16), 0);
    cr_assert_eq(choose(&w, 0.2f, 15, 1), 15);
}

/* Steps until guesses are made again. */
static int silence(struct qr_worth *w)
{
    int steps = 0;
    for (; choose(w, 0.5f, 8, 1) == 0 && steps < 5000; steps++)
        qr_worth_note(w, 1, 10000);
    return steps;
}

Test(worth, a_slow_step_stops_guesses_for_some_steps_and_many_for_hundreds)
{
    struct qr_worth w = {0};
    for (int i = 0; i < 3; i++)
        qr_worth_note(&w, 1, 10000);
    qr_worth_note(&w, 9, 90000);
    const int once = silence(&w);
    cr_assert(once > 8 && once < 50, "%d steps", once);
    for (int i = 0; i < 20; i++)
        qr_worth_note(&w, 9, 90000);
    const int often = silence(&w);
    cr_assert(often > 128 && often < 1000, "%d steps", often);
    qr_worth_note(&w, 9, 11000);
    qr_worth_note(&w, 9, 11000);
    cr_assert_eq(choose(&w, 0.5f, 8, 1), 8);
}

/* ---- all of it ---- */

#define PROMPT 400
#define ANSWER 600
#define CHOICES 32

struct play {
    struct qr_draft *d;
    struct qr_request *r[CHOICES];
    struct qr_seq seq[CHOICES];
    struct qr_draft_ask ask[CHOICES];
    int32_t n, said[CHOICES][ANSWER];
    int32_t n_steps, n_rows, n_plain, n_right;
    double us, plain_us; /* time; time of the same answers without guesses */
};

static void play_begin(struct play *p, int32_t n)
{
    memset(p, 0, sizeof *p);
    p->n = n;
    p->d = qr_draft_new(CHOICES, CHOICES, 4096, 1 << 20);
}

static void play_join(struct play *p, int32_t i, const int32_t *prompt, const int32_t *prediction, int32_t n_prediction)
{
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = ANSWER;
    p->r[i] = qr_request_new_predicted(&s, prompt, PROMPT, 1, prediction, n_prediction);
    p->r[i]->salt = alice;
    p->seq[i] = (struct qr_seq){.state = QR_SEQ_DECODE, .ids = p->r[i]->ids[0], .n_ids = PROMPT + 1, .n_prompt = PROMPT};
    p->seq[i].ids[PROMPT] = p->said[i][0];
    qr_draft_begin(p->d, i, p->r[i], 0);
}

static int32_t left(const struct qr_seq *s)
{
    return PROMPT + ANSWER - s->n_ids;
}

/* Steps until every answer is said. */
static void play_run(struct play *p, const struct machine *m)
{
    for (;;) {
        int32_t n = 0, rows = 0;
        for (int32_t i = 0; i < p->n; i++)
            if (left(&p->seq[i]) > 0)
                p->ask[n++] = (struct qr_draft_ask){.index = i, .seq = &p->seq[i], .room = left(&p->seq[i]) < 17 ? left(&p->seq[i]) - 1 : 16};
        if (n == 0)
            return;
        qr_draft_fill(p->d, p->ask, n);
        qr_draft_cut(p->d, p->ask, n, n, 512 - n);
        for (int32_t i = 0; i < n; i++) {
            struct qr_seq *s = &p->seq[p->ask[i].index];
            int32_t right = 0;
            const int32_t *said = p->said[p->ask[i].index] + s->n_ids - PROMPT;
            while (right < p->ask[i].n && p->ask[i].ids[right] == said[right])
                right++;
            memcpy(s->ids + s->n_ids, said, (size_t)(right + 1) * sizeof *said);
            s->n_ids += right + 1;
            rows += 1 + p->ask[i].n;
            p->n_right += right;
            p->plain_us += (right + 1) * cost(m, n) / n;
            if (p->ask[i].n > 0)
                qr_draft_judge(p->d, p->ask[i].index, p->ask[i].n, right);
        }
        p->n_steps++;
        p->n_rows += rows;
        p->n_plain += n;
        p->us += cost(m, rows);
        qr_draft_step(p->d, rows, cost(m, rows));
    }
}

static void play_end(struct play *p)
{
    for (int32_t i = 0; i < p->n; i++)
        qr_request_free(p->r[i]);
    qr_draft_free(p->d);
}

/* An answer that says the prompt's part from `from` on again, with another word in place of every change-th. */
static void quote(int32_t *said, const int32_t *prompt, int32_t from, int32_t n, int32_t change)
{
    for (int32_t i = 0; i < n; i++)
        said[i] = change > 0 && i % change == change - 1 ? 40000 + i : prompt[from + i % (PROMPT - from)];
}

Test(draft, an_answer_that_quotes_its_prompt_takes_a_fraction_of_the_steps)
{
    int32_t prompt[PROMPT];
    struct play p;
    random_ids(prompt, PROMPT, 4);
    play_begin(&p, 1);
    quote(p.said[0], prompt, 20, ANSWER, 0);
    play_join(&p, 0, prompt, NULL, 0);
    play_run(&p, &bandwidth);
    cr_assert_lt(p.n_steps, ANSWER / 8, "%d steps", p.n_steps);
    cr_assert_lt(p.us * 5, p.plain_us);
    play_end(&p);
}

Test(draft, a_changed_word_in_twenty_is_stepped_over)
{
    int32_t prompt[PROMPT];
    struct play p;
    random_ids(prompt, PROMPT, 5);
    play_begin(&p, 1);
    quote(p.said[0], prompt, 20, ANSWER, 20);
    play_join(&p, 0, prompt, NULL, 0);
    play_run(&p, &bandwidth);
    cr_assert_lt(p.n_steps, ANSWER / 6, "%d steps", p.n_steps);
    cr_assert_lt(p.us * 4, p.plain_us);
    play_end(&p);
}

Test(draft, a_prediction_is_guessed_from_its_beginning_and_found_again_behind_a_mismatch)
{
    int32_t prompt[PROMPT], prediction[ANSWER];
    struct play p;
    random_ids(prompt, PROMPT, 6);
    random_ids(prediction, ANSWER, 7);
    play_begin(&p, 1);
    memcpy(p.said[0], prediction, 200 * sizeof *prediction);
    random_ids(p.said[0] + 200, 50, 8); /* 50 ids are new, and 80 are left out */
    memcpy(p.said[0] + 250, prediction + 280, 320 * sizeof *prediction);
    random_ids(p.said[0] + 570, 30, 9);
    play_join(&p, 0, prompt, prediction, ANSWER);
    play_run(&p, &bandwidth);
    cr_assert_lt(p.n_steps, 50 + 30 + 60, "%d steps", p.n_steps);
    play_end(&p);
}

Test(draft, what_another_answer_said_is_guessed_for_the_same_salt_only)
{
    int32_t prompt[PROMPT];
    struct play p;
    play_begin(&p, 3);
    for (int i = 0; i < 3; i++) {
        random_ids(prompt, PROMPT, 10 + i);
        random_ids(p.said[i], ANSWER, 9);
        play_join(&p, i, prompt, NULL, 0);
    }
    qr_draft_begin(p.d, 2, (p.r[2]->salt = bob, p.r[2]), 0);
    p.n = 1;
    play_run(&p, &bandwidth);
    cr_assert_eq(p.n_rows, ANSWER - 1, "there was nothing to guess from");
    qr_draft_end(p.d, 0, &p.seq[0], true);
    p.n = 2;
    play_run(&p, &bandwidth);
    cr_assert_lt(p.n_steps, ANSWER - 1 + ANSWER / 7, "%d steps", p.n_steps);
    const int32_t steps = p.n_steps, rows = p.n_rows;
    p.n = 3;
    play_run(&p, &bandwidth);
    cr_assert_eq(p.n_steps - steps, ANSWER - 1);
    cr_assert_eq(p.n_rows - rows, ANSWER - 1);
    play_end(&p);
}

/* The text repeats the prompt's n-grams, and goes on otherwise each time. */
static void mislead(int32_t *said, const int32_t *prompt, uint64_t seed)
{
    struct qr_rng r = {.seed = seed};
    for (int32_t i = 0; i < ANSWER; i += 6) {
        memcpy(said + i, prompt + qr_rng_below(&r, PROMPT - 5), 5 * sizeof *said);
        said[i + 5] = 40000 + i;
    }
}

static void assert_wrong_guesses_are_cheap(const struct machine *m, int32_t n)
{
    static struct play p;
    int32_t prompt[PROMPT];
    random_ids(prompt, PROMPT, 12);
    play_begin(&p, n);
    for (int32_t i = 0; i < n; i++) {
        for (int32_t j = 0; j < ANSWER; j++)
            p.said[i][j] = prompt[(j * 7 + i) % PROMPT]; /* no three together */
        for (int32_t j = 0; j + 4 < ANSWER; j += 4)
            memcpy(&p.said[i][j], prompt + (j * 31 + 5 * i) % (PROMPT - 3), 3 * sizeof(int32_t));
        play_join(&p, i, prompt, NULL, 0);
    }
    play_run(&p, m);
    cr_assert_lt(p.us, 1.03 * p.plain_us, "%d sequences: %.0f us, without guesses %.0f, %d rows of %d", n, p.us, p.plain_us, p.n_rows, p.n_plain);
    play_end(&p);
}

Test(draft, guesses_that_are_always_wrong_stop_and_cost_less_than_three_percent)
{
    static const int32_t n[] = {1, 4, 32};
    for (size_t i = 0; i < sizeof n / sizeof n[0]; i++) {
        assert_wrong_guesses_are_cheap(&bandwidth, n[i]);
        assert_wrong_guesses_are_cheap(&compute, n[i]);
    }
}

Test(draft, where_every_row_costs_in_full_thirty_two_sequences_make_no_guesses)
{
    static struct play p;
    int32_t prompt[PROMPT];
    play_begin(&p, 32);
    for (int32_t i = 0; i < 32; i++) {
        random_ids(prompt, PROMPT, 20 + i);
        mislead(p.said[i], prompt, i);
        play_join(&p, i, prompt, NULL, 0);
    }
    play_run(&p, &compute);
    cr_assert_lt(p.n_rows, 1.03 * p.n_plain + 512, "%d rows, %d without guesses", p.n_rows, p.n_plain);
    cr_assert_lt(p.us, 1.03 * p.plain_us);
    play_end(&p);
}

Test(draft, a_text_without_a_match_has_no_row_more)
{
    int32_t prompt[PROMPT];
    struct play p;
    random_ids(prompt, PROMPT, 50);
    play_begin(&p, 1);
    random_ids(p.said[0], ANSWER, 51);
    play_join(&p, 0, prompt, NULL, 0);
    play_run(&p, &bandwidth);
    cr_assert_eq(p.n_rows, p.n_steps);
    play_end(&p);
}

Test(draft, guesses_never_exceed_the_rows_there_are_nor_the_room_of_a_sequence)
{
    struct qr_draft_ask ask[2];
    int32_t prompt[PROMPT];
    struct play p;
    random_ids(prompt, PROMPT / 2, 60);
    memcpy(prompt + PROMPT / 2, prompt, sizeof prompt / 2);
    play_begin(&p, 2);
    for (int32_t i = 0; i < 2; i++) {
        p.said[i][0] = prompt[0];
        play_join(&p, i, prompt, NULL, 0);
        ask[i] = (struct qr_draft_ask){.index = i, .seq = &p.seq[i], .room = i ? 5 : 0};
    }
    qr_draft_fill(p.d, ask, 2);
    cr_assert_eq(ask[0].n, 0);
    cr_assert_eq(ask[1].n, 5);
    cr_assert_eq(ask[1].ids[0], prompt[1]);
    qr_draft_cut(p.d, ask, 2, 2, 3);
    cr_assert_eq(ask[1].n, 3);
    qr_draft_cut(p.d, ask, 2, 2, 0);
    cr_assert_eq(ask[1].n, 0);
    play_end(&p);
}
