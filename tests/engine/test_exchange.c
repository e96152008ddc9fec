/* Blocks from elsewhere change no byte: the cases of cases.h, asked of engines that fetch from a file tier or from each other, against each alone. */
#include <criterion/criterion.h>
#include <limits.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "base/file.h"
#include "engine/adapters.h"
#include "engine/exchange.h"
#include "engine/exchange_parts.h"
#include "engine/internal.h"
#include "exchange/conn.h"
#include "loader/config/hf_config.h"
#include "tests/engine/cases.h"
#include "tests/exchange/fake.h"
#include "tests/lora_make.h"
#include "tests/temp.h"

#define MODEL "models/stories260K"
#define NEEDS_DATA()                                               \
    do {                                                           \
        if (!data_path(MODEL))                                     \
            cr_skip_test("no conformance data (QUIRE_DATA)");      \
    } while (0)

static struct flight want[N_CASES], got[N_CASES];
static struct kase kase[N_CASES];

static void base_setup(struct setup *s)
{
    setup_init(s, MODEL);
    s->config.block_tokens = 4;
    s->config.step_tokens_max = 64;
    s->config.chunk_tokens_max = 32;
    s->n_threads = 1;
}

static void greedy_of(struct qr_sampling *s, int32_t max_tokens)
{
    qr_sampling_init(s);
    s->temperature = 0;
    s->max_tokens = max_tokens;
    s->n_logprobs = 2;
    s->ignore_eos = true;
}

static void find_answers(struct setup *s)
{
    base_setup(s);
    make_cases(kase);
    run_alone(want, kase, s);
}

/* Asks all cases one by one, so that w has their blocks. */
static void teach(struct world *w)
{
    for (int c = 0; c < N_CASES; c++) {
        ask_guided(w, &got[c], &kase[c].s, kase[c].prompt, kase[c].n_prompt, kase[c].n_choices, &kase[c].guided);
        for (int32_t i = 0; i < kase[c].n_choices; i++)
            cr_assert(answers_equal(&want[c].answer[i], &got[c].answer[i]), "case %d choice %d", c, i);
    }
}

/* ---- the file tier ---- */

static void remove_dir(const char *dir)
{
    struct qr_err err = {0};
    cr_assert_eq(qr_dir_remove(dir, &err), 0, "%s", err.msg);
}

Test(exchange, what_an_engine_computed_is_found_in_files_by_the_next_one)
{
    NEEDS_DATA();
    struct setup s;
    struct world w;
    struct qr_stats st;
    char dir[64];
    find_answers(&s);
    temp_dir_make(dir, "tier");
    s.config.outside = (struct qr_engine_outside){.file_dir = dir, .file_bytes = (int64_t)64 << 20};
    world_open(&w, &s);
    teach(&w);
    world_close(&w);
    world_open(&w, &s);
    int first = 0;
    while (kase[first].n_prompt < 40 || kase[first].s.n_prompt_logprobs >= 0)
        first++;
    struct flight *f = &got[0];
    ask_guided(&w, f, &kase[first].s, kase[first].prompt, kase[first].n_prompt, kase[first].n_choices, &kase[first].guided);
    cr_assert(answers_equal(&want[first].answer[0], &f->answer[0]));
    cr_assert_eq(f->n_cached, (kase[first].n_prompt - 1) / 4 * 4, "%d of %d tokens were found", f->n_cached, kase[first].n_prompt);
    world_settle(&w, &st);
    cr_assert_eq(st.n_from_file, (uint64_t)f->n_cached);
    world_close(&w);
    run_together(got, kase, &s, 17, &st);
    compare(want, got, kase, "with files");
    cr_assert_gt(st.n_from_file, 0);
    cr_assert_eq(st.n_from_peer, 0);
    remove_dir(dir);
}

/* All reads of this program by pread, as the file tier's are. */
static _Atomic bool disk_stands_still;

ssize_t pread(int fd, void *to, size_t n, off_t at)
{
    while (atomic_load(&disk_stands_still))
        usleep(1000);
    return syscall(SYS_pread64, fd, to, n, at);
}

Test(exchange, a_disk_that_stands_still_costs_time_only)
{
    NEEDS_DATA();
    struct setup s;
    struct world w;
    struct qr_sampling greedy;
    struct qr_stats st;
    struct qr_err err = {0};
    int32_t prompt[2][80];
    char dir[64];
    base_setup(&s);
    greedy_of(&greedy, 5);
    temp_dir_make(dir, "still");
    s.config.outside = (struct qr_engine_outside){.file_dir = dir, .file_bytes = (int64_t)64 << 20};
    world_open(&w, &s);
    for (int i = 0; i < 2; i++) {
        for (int k = 0; k < 80; k++)
            prompt[i][k] = 3 + (17 + 2 * i) * k % 450;
        ask_once(&w, &want[i], &greedy, prompt[i], 80, 1, NULL);
    }
    world_close(&w);
    world_open(&w, &s);
    atomic_store(&disk_stands_still, true);
    for (int i = 0; i < 2; i++)
        cr_assert_eq(flight_start(&w, &got[i], &greedy, prompt[i], 80, 1, &err), 0, "%s", err.msg);
    qr_engine_cancel(w.engine, got[1].req);
    for (int i = 0; i < 2; i++)
        flight_finish(&w, &got[i]);
    cr_assert_eq(got[1].answer[0].finish, QR_FINISH_CANCEL);
    cr_assert_eq(got[0].n_cached, 0);
    cr_assert(answers_equal(&want[0].answer[0], &got[0].answer[0]));
    cr_assert_eq(w.engine->outside->n_left, 2);
    atomic_store(&disk_stands_still, false);
    ask_once(&w, &got[1], &greedy, prompt[1], 80, 1, NULL);
    cr_assert(answers_equal(&want[1].answer[0], &got[1].answer[0]));
    world_settle(&w, &st);
    world_close(&w);
    remove_dir(dir);
}

/* ---- peers ---- */

/* p listens, d asks p. */
struct pair {
    struct setup of_p, of_d;
    struct world p, d;
    const char *peer[1];
    char dir[64], listen[96];
};

static void await_peer(const struct world *w)
{
    struct qr_exchange_stats st = {0};
    for (int i = 0; i < 3000 && st.n_connected == 0; i++) {
        usleep(1000);
        cr_assert(qr_engine_exchange_stats(w->engine, &st));
    }
    cr_assert_eq(st.n_connected, 1, "the peer was not connected within 3 s");
}

/* Over TCP, or shared memory. The setups are there already. */
static void pair_open(struct pair *pair, bool tcp)
{
    temp_dir_make(pair->dir, "peer");
    snprintf(pair->listen, sizeof pair->listen, tcp ? "127.0.0.1:0" : "unix:%s/s", pair->dir);
    pair->of_p.config.outside.listen = pair->listen;
    world_open(&pair->p, &pair->of_p);
    pair->peer[0] = qr_engine_peer_address(pair->p.engine);
    cr_assert_not_null(pair->peer[0]);
    pair->of_d.config.outside.peer = pair->peer;
    pair->of_d.config.outside.n_peers = 1;
    world_open(&pair->d, &pair->of_d);
    await_peer(&pair->d);
}

static void pair_init(struct pair *pair)
{
    find_answers(&pair->of_p);
    pair->of_d = pair->of_p;
}

/* Nothing is inside: every invariant of scheduler, pool and names holds. */
static void settle(struct world *w, struct qr_stats *st)
{
    world_settle(w, st);
    const char *broken = qr_sched_check(w->engine->sched);
    cr_assert_null(broken, "%s", broken);
    cr_assert_eq(st->sched.n_held, 0);
}

static void pair_close(struct pair *pair)
{
    world_close(&pair->d);
    world_close(&pair->p);
    remove_dir(pair->dir);
}

/* p has learned all cases; d asks it for their blocks, one by one, and then many at once. */
static void check_peer(bool tcp)
{
    static struct pair pair;
    struct qr_stats st;
    pair_init(&pair);
    pair_open(&pair, tcp);
    teach(&pair.p);
    qr_engine_set_role(pair.d.engine, QR_ROLE_DECODE);
    teach(&pair.d);
    settle(&pair.d, &st);
    cr_assert_gt(st.n_from_peer, 0);
    cr_assert_leq(st.n_from_peer, st.cached_tokens);
    cr_assert_eq(st.outside.n_given_up, 0);
    run_together(got, kase, &pair.of_d, 19, &st);
    compare(want, got, kase, "with a peer");
    settle(&pair.p, &st);
    pair_close(&pair);
}

Test(exchange, what_a_peer_has_computed_comes_by_tcp)
{
    NEEDS_DATA();
    check_peer(true);
}

Test(exchange, what_a_peer_has_computed_comes_by_shared_memory)
{
    NEEDS_DATA();
    check_peer(false);
}

Test(exchange, a_peer_computes_the_prompts_of_a_process_that_decodes)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_stats st;
    pair_init(&pair);
    pair_open(&pair, false);
    qr_engine_set_role(pair.d.engine, QR_ROLE_DECODE);
    teach(&pair.d);
    settle(&pair.d, &st);
    const uint64_t came = st.n_from_peer;
    cr_assert_gt(came, 0);
    settle(&pair.p, &st);
    cr_assert_gt(st.outside.n_for_peers, 0);
    cr_assert_gt(st.n_steps, 0);
    cr_assert_eq(st.output_tokens, 0, "p draws nothing");
    pair_close(&pair);
}

/* Few blocks on both sides: what came is evicted before it is found, sequences are preempted, answers stay. */
Test(exchange, small_pools_lose_blocks_and_no_byte)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_stats st;
    pair_init(&pair);
    pair.of_p.config.ctx_max = pair.of_d.config.ctx_max = 192;
    pair.of_p.config.kv_tokens = pair.of_d.config.kv_tokens = 256;
    pair_open(&pair, false);
    teach(&pair.p);
    run_crowded(got, kase, &pair.of_d, 23, true, &st);
    compare(want, got, kase, "with few blocks");
    cr_assert_gt(st.sched.n_preempted, 0);
    settle(&pair.p, &st);
    pair_close(&pair);
}

/* ---- whose blocks they are ---- */

static void ask_salted(struct world *w, struct flight *f, const struct qr_sampling *s, const int32_t *prompt, int32_t n, uint64_t salt)
{
    struct qr_err err = {0};
    *f = (struct flight){.req = qr_request_new(s, prompt, n, 1)};
    f->req->user = f;
    f->req->arrived_us = qr_clock_us();
    f->req->salt = (struct qr_hash128){salt, 1};
    cr_assert_eq(qr_engine_submit(w->engine, f->req, &err), 0, "%s", err.msg);
    flight_finish(w, f);
}

Test(exchange, another_salt_finds_nothing)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_exchange_stats st;
    struct qr_sampling s;
    int32_t prompt[60];
    base_setup(&pair.of_p);
    pair.of_d = pair.of_p;
    pair_open(&pair, false);
    greedy_of(&s, 4);
    for (int i = 0; i < 60; i++)
        prompt[i] = 3 + 7 * i % 400;
    ask_salted(&pair.p, &got[0], &s, prompt, 60, 1);
    ask_salted(&pair.d, &got[1], &s, prompt, 60, 2);
    cr_assert_eq(got[1].n_cached, 0);
    cr_assert(qr_engine_exchange_stats(pair.d.engine, &st));
    cr_assert(st.n_fetches == 1 && st.blocks_in == 0, "it is asked for, as ever, and does not come");
    ask_salted(&pair.d, &got[2], &s, prompt, 60, 1);
    cr_assert_eq(got[2].n_cached, 56);
    cr_assert(answers_equal(&got[0].answer[0], &got[1].answer[0]) && answers_equal(&got[0].answer[0], &got[2].answer[0]));
    pair_close(&pair);
}

static uint64_t load_adapter(struct world *w, const char *dir)
{
    struct qr_err err = {0};
    cr_assert_eq(qr_engine_load_adapter(w->engine, &(struct qr_adapter_source){.name = "a", .dir = dir}, &err), 0, "%s", err.msg);
    return qr_engine_find_adapter(w->engine, "a");
}

Test(exchange, blocks_of_an_adapter_are_its_own_and_computed_for_peers_too)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_sampling s;
    struct qr_stats st;
    struct qr_err err = {0};
    struct qr_model_config c;
    int32_t prompt[50];
    char top[64], dir[100];
    base_setup(&pair.of_p);
    pair.of_p.config.lora_slots = 1;
    pair.of_d = pair.of_p;
    pair_open(&pair, true);
    temp_dir_make(top, "lora");
    snprintf(dir, sizeof dir, "%s/a", top);
    cr_assert_eq(qr_model_config_read(&c, data_path(MODEL), &err), 0, "%s", err.msg);
    lora_make(dir, &c, &(struct lora_make){.rank = 4, .alpha = 8, .seed = 5});
    const uint64_t on_p = load_adapter(&pair.p, dir), on_d = load_adapter(&pair.d, dir);
    greedy_of(&s, 8);
    for (int i = 0; i < 50; i++)
        prompt[i] = 3 + 11 * i % 450;
    ask_once(&pair.p, &got[0], &s, prompt, 50, 1, NULL);
    cr_assert_eq(flight_start_with(&pair.d, &got[1], &s, prompt, 50, 1, on_d, &err), 0, "%s", err.msg);
    flight_finish(&pair.d, &got[1]);
    cr_assert_eq(got[1].n_cached, 0, "blocks without the adapter are others");
    cr_assert_eq(flight_start_with(&pair.p, &got[2], &s, prompt, 50, 1, on_p, &err), 0, "%s", err.msg);
    flight_finish(&pair.p, &got[2]);
    cr_assert(answers_equal(&got[1].answer[0], &got[2].answer[0]) && !answers_equal(&got[0].answer[0], &got[2].answer[0]));
    prompt[0]++; /* which no one has */
    qr_engine_set_role(pair.d.engine, QR_ROLE_DECODE);
    cr_assert_eq(flight_start_with(&pair.d, &got[3], &s, prompt, 50, 1, on_d, &err), 0, "%s", err.msg);
    flight_finish(&pair.d, &got[3]);
    cr_assert_eq(got[3].n_cached, 48);
    cr_assert_eq(flight_start_with(&pair.p, &got[4], &s, prompt, 50, 1, on_p, &err), 0, "%s", err.msg);
    flight_finish(&pair.p, &got[4]);
    cr_assert_eq(got[4].n_cached, 48);
    cr_assert(answers_equal(&got[3].answer[0], &got[4].answer[0]));
    settle(&pair.p, &st);
    cr_assert_eq(st.outside.n_for_peers, 1);
    pair_close(&pair);
    remove_dir(dir);
    rmdir(top);
}

Test(exchange, embeddings_of_a_last_row_are_the_same_from_a_peers_blocks)
{
    NEEDS_DATA();
    static struct pair pair;
    static double here[512], there[512], mean[2][512];
    struct qr_sampling s;
    int32_t prompt[70];
    base_setup(&pair.of_p);
    pair.of_d = pair.of_p;
    pair_open(&pair, false);
    greedy_of(&s, 1);
    for (int i = 0; i < 70; i++)
        prompt[i] = 3 + 13 * i % 450;
    ask_once(&pair.p, &got[0], &s, prompt, 70, 1, NULL);
    const size_t bytes = (size_t)qr_engine_model(pair.p.engine)->n_embd * sizeof here[0];
    cr_assert_leq(bytes, sizeof here);
    const struct {
        struct world *w;
        enum qr_pooling pooling;
        double *to;
        int32_t n_cached;
    } row[] = {{&pair.p, QR_POOLING_LAST, here, 68}, {&pair.d, QR_POOLING_LAST, there, 68}, {&pair.p, QR_POOLING_MEAN, mean[0], 0},
               {&pair.d, QR_POOLING_MEAN, mean[1], 0}};
    for (int i = 0; i < QR_COUNT(row); i++) {
        flight_embed(row[i].w, &got[1], row[i].pooling, prompt, 70, row[i].to);
        flight_finish(row[i].w, &got[1]);
        cr_assert_eq(got[1].n_cached, row[i].n_cached, "row %d: %d tokens were found", i, got[1].n_cached);
    }
    cr_assert(memcmp(here, there, bytes) == 0 && memcmp(mean[0], mean[1], bytes) == 0);
    pair_close(&pair);
}

/* ---- peers that are slow, and go ---- */

/* p says that it computes d's prompt, and does not: the receiver of its one running sequence takes no events. d waits with all three choices: `measured`, once
 * it knows how long a prompt takes it, for half a second, which may be over here and is counted then; else for five seconds more. */
static void open_stalled(struct pair *pair, int32_t prompt[80], bool measured)
{
    struct qr_sampling s;
    struct qr_err err = {0};
    struct qr_stats before, st;
    base_setup(&pair->of_p);
    pair->of_d = pair->of_p;
    pair->of_p.config.running_max = 1;
    pair_open(pair, false);
    greedy_of(&s, 400);
    for (int i = 0; i < 80; i++)
        prompt[i] = 3 + 17 * i % 450;
    cr_assert_eq(flight_start(&pair->p, &got[0], &s, prompt + 70, 5, 1, &err), 0, "%s", err.msg);
    greedy_of(&s, 6);
    if (measured)
        ask_once(&pair->d, &got[1], &s, prompt + 1, 79, 1, NULL);
    settle(&pair->d, &before);
    qr_engine_set_role(pair->d.engine, QR_ROLE_DECODE);
    cr_assert_eq(flight_start(&pair->d, &got[1], &s, prompt, 80, 3, &err), 0, "%s", err.msg);
    for (int i = 0; i < 3000 && (i == 0 || (st.sched.n_held == 0 && st.outside.n_held == before.outside.n_held)); i++) {
        usleep(1000);
        qr_engine_stats(pair->d.engine, &st);
    }
    cr_assert(st.sched.n_held == 3 || (measured && st.outside.n_held == before.outside.n_held + 1), "%d are held", (int)st.sched.n_held);
}

Test(exchange, a_request_that_waits_for_a_peer_is_cancelled_at_once)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_stats st;
    int32_t prompt[80];
    open_stalled(&pair, prompt, false);
    const int64_t asked_us = qr_clock_us();
    qr_engine_cancel(pair.d.engine, got[1].req);
    flight_finish(&pair.d, &got[1]);
    for (int c = 0; c < 3; c++)
        cr_assert_eq(got[1].answer[c].finish, QR_FINISH_CANCEL);
    cr_assert_lt(qr_clock_us() - asked_us, 2000000);
    settle(&pair.d, &st);
    cr_assert_eq(st.n_cancelled, 1);
    flight_finish(&pair.p, &got[0]);
    settle(&pair.p, &st);
    cr_assert_eq(st.n_cancelled, 1, "what p would have computed for it has ended, too");
    pair_close(&pair);
}

Test(exchange, a_peer_that_says_for_ever_that_it_computes_is_waited_for_half_a_second)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_stats st;
    int32_t prompt[80];
    open_stalled(&pair, prompt, true);
    flight_finish(&pair.d, &got[1]);
    cr_assert_eq(got[1].answer[0].finish, QR_FINISH_LENGTH);
    cr_assert_eq(got[1].n_cached, 0);
    settle(&pair.d, &st);
    cr_assert_eq(st.outside.n_given_up, 1);
    flight_finish(&pair.p, &got[0]);
    pair_close(&pair);
}

/* The name is none of the prompt's, and the guest stays. */
Test(exchange, what_is_computed_for_a_peer_ends_with_the_answer)
{
    NEEDS_DATA();
    static struct pair pair;
    struct fake f;
    struct qr_frame frame;
    struct qr_stats st;
    int32_t prompt[80];
    open_stalled(&pair, prompt, true);
    const struct qr_outside *x = pair.p.engine->outside;
    cr_assert(fake_guest(&f, pair.peer[0], &(struct qr_frame_hello){.version = QR_FRAME_VERSION, .block_bytes = x->block_bytes, .domain = x->domain}, NULL));
    const struct qr_kv_name none = {{7}};
    for (uint32_t i = 0; i < 2; i++) {
        fake_say(&f, &(struct qr_frame){.kind = QR_FRAME_ASK, .id = i, .ask = {.n = 1, .names = &none, .n_ids = 80, .ids = prompt}}, -1);
        while (fake_hear(&f, &frame, 5000) && frame.kind == QR_FRAME_STATE) {
        }
        cr_assert(frame.kind == QR_FRAME_END && frame.id == i);
    }
    flight_finish(&pair.d, &got[1]);
    for (int i = 0; i < 3000 && (i == 0 || st.n_inside > 1); i++) {
        usleep(1000);
        qr_engine_stats(pair.p.engine, &st);
    }
    cr_assert_eq(st.n_inside, 1, "%d are inside, of which one is p's own", (int)st.n_inside);
    fake_close(&f);
    flight_finish(&pair.p, &got[0]);
    settle(&pair.p, &st);
    pair_close(&pair);
}

Test(exchange, peers_that_were_slow_are_asked_again_some_time)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_sampling s;
    struct qr_stats st;
    int32_t prompt[24], n = 0;
    base_setup(&pair.of_p);
    pair.of_d = pair.of_p;
    pair_open(&pair, false);
    greedy_of(&s, 1);
    do {
        for (int i = 0; i < QR_COUNT(prompt); i++)
            prompt[i] = 3 + (19 * i + 7 * n) % 450;
        atomic_store(&pair.d.engine->outside->peers->bytes_per_second, 10000);
        ask_once(&pair.p, &got[0], &s, prompt, QR_COUNT(prompt), 1, NULL);
        ask_once(&pair.d, &got[1], &s, prompt, QR_COUNT(prompt), 1, NULL);
        cr_assert(answers_equal(&got[0].answer[0], &got[1].answer[0]));
        world_settle(&pair.d, &st);
    } while (++n < 300 && (n < 30 || got[1].n_cached == 0));
    cr_assert_eq(got[1].n_cached, 20, "no peer was asked in %d requests", n);
    pair_close(&pair);
}

Test(exchange, a_peer_that_ends_costs_time_only)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_sampling s;
    struct qr_stats st;
    int32_t prompt[80];
    open_stalled(&pair, prompt, false);
    world_close(&pair.p);
    flight_finish(&pair.d, &got[1]);
    cr_assert_eq(got[1].n_cached, 0);
    greedy_of(&s, 6);
    ask_once(&pair.d, &got[2], &s, prompt, 80, 3, NULL);
    for (int c = 0; c < 3; c++)
        cr_assert(answers_equal(&got[1].answer[c], &got[2].answer[c]));
    settle(&pair.d, &st);
    world_close(&pair.d);
    remove_dir(pair.dir);
}

/* A router has asked p for the same prompt, which comes to p a little later. */
Test(exchange, what_a_peer_is_expected_to_compute_is_waited_for)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_sampling s;
    struct qr_err err = {0};
    int32_t prompt[80];
    base_setup(&pair.of_p);
    pair.of_d = pair.of_p;
    pair_open(&pair, true);
    greedy_of(&s, 5);
    for (int i = 0; i < 80; i++)
        prompt[i] = 3 + 19 * i % 450;
    struct flight *f = &got[0];
    *f = (struct flight){.req = qr_request_new(&s, prompt, 80, 1)};
    f->req->user = f;
    f->req->arrived_us = qr_clock_us();
    f->req->peer = qr_engine_peer(pair.d.engine, pair.peer[0]);
    f->req->expected = true;
    cr_assert_eq(f->req->peer, 0);
    cr_assert_eq(qr_engine_submit(pair.d.engine, f->req, &err), 0, "%s", err.msg);
    usleep(50000);
    ask_once(&pair.p, &got[1], &s, prompt, 80, 1, NULL);
    flight_finish(&pair.d, f);
    cr_assert_eq(f->n_cached, 76);
    cr_assert(answers_equal(&got[0].answer[0], &got[1].answer[0]));
    pair_close(&pair);
}

/* Stops p between steps: at stage 0 until it goes on, at stage i when its one prompt has i pieces of 8 tokens. */
struct gate {
    struct world *w;
    _Atomic int at, open;
};

static void gate_fill(void *user, struct qr_draft_ask *ask, int32_t n)
{
    struct gate *g = user;
    int32_t n_prompts;
    for (int32_t i = 0; i < n; i++)
        ask[i].n = 0;
    const int32_t *seq = qr_sched_list(g->w->engine->sched, QR_SEQ_PREFILL, &n_prompts);
    const int stage = n_prompts > 0 ? qr_sched_seq(g->w->engine->sched, seq[0])->n_computed / 8 : 0;
    if (stage > 2)
        return;
    atomic_store(&g->at, stage);
    while (atomic_load(&g->open) <= stage)
        usleep(1000);
}

static void gate_opens(struct gate *g, int stage)
{
    atomic_store(&g->open, stage + 1);
    for (int i = 0; i < 3000 && atomic_load(&g->at) != stage + 1; i++)
        usleep(1000);
    cr_assert_eq(atomic_load(&g->at), stage + 1);
}

/* p has begun with the prompt when it sees that it is asked for it, and its next step takes long. */
Test(exchange, a_prompt_that_a_peer_has_begun_is_waited_for)
{
    NEEDS_DATA();
    static struct pair pair;
    static struct gate gate;
    struct qr_sampling s;
    struct qr_exchange_stats asked = {0};
    struct qr_stats st;
    struct qr_err err = {0};
    int32_t prompt[80];
    base_setup(&pair.of_p);
    pair.of_d = pair.of_p;
    gate.w = &pair.p;
    pair.of_p.config.chunk_tokens_max = 8;
    pair.of_p.config.draft_tokens = 1;
    pair.of_p.config.draft_source = (struct qr_draft_source){gate_fill, &gate};
    pair_open(&pair, false);
    for (int i = 0; i < 80; i++)
        prompt[i] = 3 + 19 * i % 450;
    greedy_of(&s, 20);
    cr_assert_eq(flight_start(&pair.p, &got[0], &s, prompt + 70, 5, 1, &err), 0, "%s", err.msg);
    greedy_of(&s, 1);
    cr_assert_eq(flight_start(&pair.p, &got[1], &s, prompt, 80, 1, &err), 0, "%s", err.msg);
    gate_opens(&gate, 0);
    struct flight *f = &got[2];
    *f = (struct flight){.req = qr_request_new(&s, prompt, 80, 1)};
    f->req->user = f;
    f->req->arrived_us = qr_clock_us();
    f->req->peer = 0;
    f->req->expected = true;
    cr_assert_eq(qr_engine_submit(pair.d.engine, f->req, &err), 0, "%s", err.msg);
    for (int i = 0; i < 3000 && asked.n_lends == 0; i++) {
        usleep(1000);
        qr_engine_exchange_stats(pair.p.engine, &asked);
    }
    usleep(20000);
    gate_opens(&gate, 1);
    usleep(800000);
    atomic_store(&gate.open, 3);
    flight_finish(&pair.d, f);
    cr_assert_eq(f->n_cached, 76, "%d were found", f->n_cached);
    flight_finish(&pair.p, &got[1]);
    flight_finish(&pair.p, &got[0]);
    cr_assert(answers_equal(&got[1].answer[0], &f->answer[0]));
    settle(&pair.d, &st);
    cr_assert_eq(st.outside.n_given_up, 0);
    pair_close(&pair);
}

/* ---- which processes are peers ---- */

/* The same model but for the lowest bit of its last number. */
static void make_other_model(char dir[64])
{
    static const char *const same[] = {"config.json", "tokenizer.json"};
    char from[1200], to[128];
    struct qr_buf bytes = {0};
    struct qr_err err = {0};
    temp_dir_make(dir, "other");
    for (int i = 0; i < QR_COUNT(same); i++) {
        char real[PATH_MAX];
        snprintf(from, sizeof from, "%s/%s", data_path(MODEL), same[i]);
        snprintf(to, sizeof to, "%s/%s", dir, same[i]);
        cr_assert(realpath(from, real) != NULL && symlink(real, to) == 0);
    }
    snprintf(from, sizeof from, "%s/model.safetensors", data_path(MODEL));
    cr_assert_eq(qr_file_read(&bytes, from, QR_FILE_REGULAR, (size_t)64 << 20, &err), 0, "%s", err.msg);
    bytes.data[bytes.len - 4] ^= 1;
    cr_assert_eq(qr_dir_write(dir, "model.safetensors", bytes.data, bytes.len, false, &err), 0, "%s", err.msg);
    qr_buf_release(&bytes);
}

Test(exchange, a_model_that_differs_in_one_bit_is_no_peer)
{
    NEEDS_DATA();
    static struct pair pair;
    struct qr_exchange_stats st = {0};
    char other[64];
    make_other_model(other);
    base_setup(&pair.of_p);
    pair.of_d = pair.of_p;
    pair.of_p.dir = other;
    temp_dir_make(pair.dir, "peer");
    snprintf(pair.listen, sizeof pair.listen, "unix:%s/s", pair.dir);
    pair.of_p.config.outside.listen = pair.listen;
    world_open(&pair.p, &pair.of_p);
    pair.peer[0] = pair.listen;
    pair.of_d.config.outside.peer = pair.peer;
    pair.of_d.config.outside.n_peers = 1;
    world_open(&pair.d, &pair.of_d);
    for (int i = 0; i < 3000 && st.n_refused == 0; i++) {
        usleep(1000);
        qr_engine_exchange_stats(pair.p.engine, &st);
    }
    cr_assert_gt(st.n_refused, 0);
    qr_engine_exchange_stats(pair.d.engine, &st);
    cr_assert_eq(st.n_connected, 0);
    pair_close(&pair);
    remove_dir(other);
}
