/* What onlookers see of an engine (view.h): records of steps, and looks that say what the engine really holds. */
#include <criterion/criterion.h>
#include <stdio.h>

#include "base/rng.h"
#include "engine/view.h"
#include "tests/engine/harness.h"
#include "tests/levels.h"
#include "tests/seed.h"

static void note(struct qr_view *v, int64_t n)
{
    qr_view_note(v, &(struct qr_step_record){.begun_us = n, .us = (int32_t)n, .n_waiting = (int32_t)n, .part_us = {[QR_PART_OUTPUT] = (int32_t)n}});
}

Test(view, records_come_back_as_they_were_written_and_an_overtaken_reader_goes_on_with_the_oldest)
{
    struct qr_view *v = qr_view_new();
    struct qr_step_record r[QR_VIEW_STEPS + 8];
    uint64_t at = 0;
    cr_assert_eq(qr_view_steps(v, &at, r, 8), 0);
    for (int64_t i = 0; i < 10; i++)
        note(v, i);
    cr_assert_eq(qr_view_steps(v, &at, r, 8), 8);
    cr_assert_eq(at, 8);
    cr_assert_eq(qr_view_steps(v, &at, r, 8), 2);
    cr_assert(r[1].begun_us == 9 && r[1].us == 9 && r[1].n_waiting == 9 && r[1].part_us[QR_PART_OUTPUT] == 9);
    for (int64_t i = 10; i < QR_VIEW_STEPS + 15; i++)
        note(v, i);
    cr_assert_eq(qr_view_steps(v, &at, r, QR_VIEW_STEPS + 8), QR_VIEW_STEPS); /* from 15 on; 10 to 14 are gone */
    cr_assert_eq(at, QR_VIEW_STEPS + 15);
    cr_assert(r[0].begun_us == 15 && r[QR_VIEW_STEPS - 1].begun_us == QR_VIEW_STEPS + 14);
    qr_view_free(v);
}

/* Asks for a look and waits for it; events are taken meanwhile. */
static const struct qr_look *look_at(struct world *w)
{
    const int64_t until = qr_clock_us() + 20000000;
    const struct qr_look *l;
    qr_engine_look(w->engine);
    while (!(l = qr_view_take(qr_engine_view(w->engine)))) {
        cr_assert_lt(qr_clock_us(), until, "the engine answers no look");
        usleep(100);
    }
    return l;
}

/* Everything that holds of a look alone. */
static void check_look(const struct qr_look *l)
{
    int32_t n[4] = {0};
    cr_assert_eq(l->n_free + l->n_cached + l->n_used + l->n_shared, l->n_blocks);
    cr_assert_eq(l->n_cells, (l->n_blocks + l->per_cell - 1) / l->per_cell);
    for (int32_t i = 0; i < l->n_cells; i++)
        n[l->cell[i].use]++;
    if (l->per_cell == 1)
        cr_assert(n[QR_KV_FREE] == l->n_free && n[QR_KV_CACHED] == l->n_cached && n[QR_KV_USED] == l->n_used && n[QR_KV_SHARED] == l->n_shared);
}

enum { N_FLIGHTS = 12 };

/* Of a look and the flights that were not taken since: requests hold what the map shows. Returns how many requests it met. */
static int32_t check_requests(const struct qr_look *l, const struct flight *f, int32_t n_distinct)
{
    int32_t n_blocks = 0, n_met = 0;
    for (int32_t i = 0; i < N_FLIGHTS; i++) {
        const struct qr_request *r = f[i].req;
        if (!r || r->look.number != l->number)
            continue;
        const struct qr_request_look *at = &r->look;
        n_met++;
        n_blocks += at->n_blocks;
        cr_assert(at->n_done >= 0 && at->n_done <= r->n_prompt && at->n_cached <= r->n_prompt);
        cr_assert(at->n_output >= 0 && at->n_output <= r->n_choices * r->sampling.max_tokens);
        cr_assert((at->state == QR_REQUEST_WAITING && at->n_blocks == 0) || (at->state != QR_REQUEST_WAITING && at->n_blocks > 0));
        cr_assert(at->state != QR_REQUEST_DECODE || at->n_done == r->n_prompt);
        cr_assert((at->first_token_us > 0) == (at->n_output > 0));
        int32_t n_owned = 0;
        for (int32_t c = 0; c < l->n_cells; c++)
            n_owned += l->cell[c].use == QR_KV_USED && l->cell[c].owner == at->owner;
        cr_assert(n_distinct < N_FLIGHTS || n_owned == at->n_blocks, "%d blocks of %d are shown as its own", n_owned, at->n_blocks);
    }
    cr_assert_geq(n_blocks, l->n_used + l->n_shared);
    return n_met;
}

static void start_one(struct world *w, struct flight *f, struct qr_rng *rng, int32_t n_salts, int32_t index)
{
    struct qr_sampling s;
    struct qr_err err;
    int32_t prompt[60];
    qr_sampling_init(&s);
    s.max_tokens = 5 + (int32_t)qr_rng_below(rng, 60);
    s.ignore_eos = true;
    s.seed = rng->pos;
    const int32_t n = 20 + (int32_t)qr_rng_below(rng, 40), n_choices = n_salts < N_FLIGHTS ? 1 + (int32_t)qr_rng_below(rng, 3) : 1;
    for (int32_t i = 0; i < n; i++)
        prompt[i] = i < 18 && n_salts < N_FLIGHTS ? 5 + i : 3 + (int32_t)qr_rng_below(rng, 500); /* some begin alike */
    memset(f, 0, sizeof *f);
    f->req = qr_request_new(&s, prompt, n, n_choices);
    f->req->user = f;
    f->req->id = rng->pos;
    f->req->arrived_us = qr_clock_us();
    f->req->salt = (struct qr_hash128){.lo = 1000 + (uint64_t)(index % n_salts), .hi = 77};
    if (qr_engine_submit(w->engine, f->req, &err) != 0) {
        qr_request_free(f->req);
        f->req = NULL;
    }
}

/* Random load on a small pool with looks in the middle. n_salts as many as flights: nothing is shared, and owners tell requests apart. */
static void look_under_load(int32_t n_ranks, int32_t n_salts)
{
    struct world w;
    struct setup setup;
    struct qr_stats st;
    struct flight *f = qr_alloc(N_FLIGHTS, sizeof *f);
    struct qr_rng rng = {.seed = test_seed()};
    int32_t n_met = 0, n_shared = 0, n_cached = 0;
    setup_init(&setup, "models/stories260K");
    setup.n_ranks = n_ranks;
    setup.n_threads = 1;
    setup.config.running_max = 6;
    setup.config.waiting_max = 16;
    setup.config.kv_tokens = 512;
    setup.config.ctx_max = 128;
    world_open(&w, &setup);
    const int32_t n_looks = (int32_t)(40 * test_scale()) + 4;
    bool seen_all = false; /* what runs may have ended whenever this thread gets a processor: then it looks on */
    for (int32_t k = 0; k < n_looks || (k < 100 * n_looks && !seen_all); k++) {
        for (int32_t i = 0; i < N_FLIGHTS; i++) {
            if (!f[i].req && qr_rng_below(&rng, 2))
                start_one(&w, &f[i], &rng, n_salts, i);
            else if (f[i].req && qr_rng_below(&rng, 20) == 0)
                qr_engine_cancel(w.engine, f[i].req);
        }
        world_pump(&w, 1000);
        const struct qr_look *l = look_at(&w);
        check_look(l);
        n_met += check_requests(l, f, n_salts);
        n_shared += l->n_shared;
        n_cached += l->n_cached;
        seen_all = n_met > n_looks && n_cached > 0 && (n_salts == N_FLIGHTS || n_shared > 0);
        qr_view_done(qr_engine_view(w.engine));
    }
    world_settle(&w, &st);
    const struct qr_look *l = look_at(&w); /* of an idle engine */
    check_look(l);
    cr_assert(l->n_used == 0 && l->n_shared == 0 && l->n_free == st.kv.n_free && l->n_cached == st.kv.n_cached && l->n_blocks == st.kv.n_blocks);
    qr_view_done(qr_engine_view(w.engine));
    cr_assert(seen_all, "%d requests met, %d blocks cached, %d shared", n_met, n_cached, n_shared);
    cr_assert(n_salts < N_FLIGHTS || n_shared == 0);
    cr_assert_eq(st.backlog_s, 0);
    world_close(&w);
    qr_free(f);
}

Test(view, a_look_says_what_the_engine_holds_under_load_and_idle)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    look_under_load(1, 2);
    look_under_load(1, N_FLIGHTS);
}

Test(view, a_look_says_what_an_engine_of_two_ranks_holds)
{
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    look_under_load(2, 2);
}

Test(view, every_step_is_recorded_with_its_phases_inside_it)
{
    struct world w;
    struct setup setup;
    struct qr_stats st;
    struct flight f;
    struct qr_sampling s;
    struct qr_step_record r[200];
    const int32_t prompt[40] = {1, 9, 8};
    uint64_t at = 0;
    if (!data_path("models/stories260K"))
        cr_skip_test("no conformance data (QUIRE_DATA)");
    setup_init(&setup, "models/stories260K");
    setup.n_threads = 1;
    world_open(&w, &setup);
    qr_sampling_init(&s);
    s.max_tokens = 100;
    s.ignore_eos = true;
    ask(&w, &f, &s, prompt, 40, 1);
    world_settle(&w, &st);
    const int32_t n = qr_view_steps(qr_engine_view(w.engine), &at, r, 200);
    cr_assert_eq((uint64_t)n, st.n_steps);
    int64_t n_prompt = 0, n_decode = 0, end_us = 0;
    for (int32_t i = 0; i < n; i++) {
        int64_t parts_us = 0;
        for (int k = 0; k < QR_STEP_PARTS; k++)
            parts_us += r[i].part_us[k];
        cr_assert(r[i].begun_us >= end_us && parts_us <= r[i].us && parts_us >= r[i].us - QR_STEP_PARTS);
        end_us = r[i].begun_us + r[i].us;
        n_prompt += r[i].n_prompt;
        n_decode += r[i].n_decode;
        cr_assert_eq(r[i].n_waiting, 0);
    }
    cr_assert(n_prompt == 40 && n_decode == 99); /* the first token comes with the prompt */
    cr_assert(st.output_most.n == 1 && st.output_most.sum == 100 && st.asked_len.sum == 100 && st.choices.sum == 1);
    cr_assert(st.computed_len.sum == 40 && st.inference_time.n == 1 && st.inference_time.sum > 0);
    world_close(&w);
}
