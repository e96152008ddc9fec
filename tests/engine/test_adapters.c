/* Adapters of an engine: the bits that each gives alone, a prefix cache of their own, and a life that disturbs nobody. */
#include <criterion/criterion.h>

#include "base/rng.h"
#include "base/mem.h"
#include "engine/adapters.h"
#include "engine/internal.h"
#include "exchange/events.h"
#include "exchange/zmq_door.h"
#include "harness.h"
#include "loader/config/hf_config.h"
#include "tests/lora_make.h"
#include "tests/temp.h"

#define MODEL "models/stories260K"
#define NEED_DATA()                                                                                                    \
    do {                                                                                                               \
        if (!data_path(MODEL))                                                                                         \
            cr_skip_test("no conformance data (QUIRE_DATA): the engine tests need %s", MODEL);                         \
    } while (0)

#define N_ADAPTERS 3
#define N_CASES 16
#define PROMPT_MAX 100
#define SEED 8808

/* Directories a, b and c with an adapter each. */
struct place {
    char dir[64];
    struct qr_model_config c;
};

static const char *adapter_dir(const struct place *p, int32_t i)
{
    static char path[128];
    snprintf(path, sizeof path, "%s/%c", p->dir, 'a' + i);
    return path;
}

static void write_adapter(const struct place *p, int32_t i, uint64_t seed)
{
    static const char *const only[N_ADAPTERS] = {NULL, "self_attn", "mlp"};
    const struct lora_make m = {.rank = 3 + 2 * i, .alpha = 8, .seed = seed, .only = only[i], .dtype = i == 1 ? QR_BF16 : QR_F32};
    lora_make(adapter_dir(p, i), &p->c, &m);
}

static void place_make(struct place *p)
{
    struct qr_err err = {0};
    temp_dir_make(p->dir, "adapters");
    cr_assert_eq(qr_model_config_read(&p->c, data_path(MODEL), &err), 0, "%s", err.msg);
    for (int32_t i = 0; i < N_ADAPTERS; i++)
        write_adapter(p, i, (uint64_t)i + 1);
}

static void place_remove(const struct place *p)
{
    struct qr_err err = {0};
    for (int32_t i = 0; i < N_ADAPTERS; i++)
        cr_expect_eq(qr_dir_remove(adapter_dir(p, i), &err), 0, "%s", err.msg);
    rmdir(p->dir);
}

static struct setup setup_of(int32_t slots)
{
    struct setup s;
    setup_init(&s, MODEL);
    s.config.lora_slots = slots;
    s.config.lora_rank_max = 8;
    s.config.kv_tokens = 4096;
    return s;
}

static uint64_t load(struct world *w, const char *name, const char *dir)
{
    struct qr_err err = {0};
    cr_assert_eq(qr_engine_load_adapter(w->engine, &(struct qr_adapter_source){.name = name, .dir = dir}, &err), 0, "%s", err.msg);
    const uint64_t id = qr_engine_find_adapter(w->engine, name);
    cr_assert_neq(id, 0);
    return id;
}

struct kase {
    struct qr_sampling s;
    int32_t prompt[PROMPT_MAX], n_prompt, n_choices, adapter; /* adapter N_ADAPTERS: none */
};

/* Half of the prompts begin alike, with whatever adapter. */
static void make_cases(struct kase *k)
{
    struct qr_rng rng = {.seed = SEED};
    for (int c = 0; c < N_CASES; c++) {
        qr_sampling_init(&k[c].s);
        k[c].s.temperature = c % 3 == 0 ? 0 : 0.8f;
        k[c].s.seed = (uint64_t)c;
        k[c].s.max_tokens = 5 + (int32_t)qr_rng_below(&rng, 40);
        k[c].s.n_logprobs = 2;
        k[c].s.ignore_eos = true;
        k[c].n_choices = c % 5 == 4 ? 2 : 1;
        k[c].n_prompt = 20 + (int32_t)qr_rng_below(&rng, PROMPT_MAX - 20);
        k[c].adapter = c % (N_ADAPTERS + 1);
        for (int i = 0; i < k[c].n_prompt; i++)
            k[c].prompt[i] = c > 0 && c % 2 == 0 && i < 50 ? k[0].prompt[i % k[0].n_prompt] : 3 + (int32_t)qr_rng_below(&rng, 500);
    }
}

static void load_all(struct world *w, const struct place *p, uint64_t id[N_ADAPTERS + 1])
{
    static const char *const name[N_ADAPTERS] = {"a", "b", "c"};
    for (int32_t i = 0; i < N_ADAPTERS; i++)
        id[i] = load(w, name[i], adapter_dir(p, i));
    id[N_ADAPTERS] = 0;
}

static void run_alone(struct flight *want, const struct kase *k, const struct place *p, int32_t n_ranks)
{
    struct setup s = setup_of(N_ADAPTERS);
    struct world w;
    struct qr_err err = {0};
    uint64_t id[N_ADAPTERS + 1];
    s.config.prefix_cache = false;
    s.n_threads = 1;
    s.n_ranks = n_ranks;
    world_open(&w, &s);
    load_all(&w, p, id);
    for (int c = 0; c < N_CASES; c++) {
        cr_assert_eq(flight_start_with(&w, &want[c], &k[c].s, k[c].prompt, k[c].n_prompt, k[c].n_choices, id[k[c].adapter], &err), 0, "%s", err.msg);
        flight_finish(&w, &want[c]);
    }
    world_close(&w);
}

/* All at once, twice over, so that the second half finds the first in the cache. */
static void check_together(const struct flight *want, const struct kase *k, struct setup *s, enum guess_kind guesses, const struct place *p, const char *what)
{
    struct world w;
    struct guesser guesser = {.rng = {.seed = SEED}};
    struct qr_err err = {0};
    struct qr_stats st;
    uint64_t id[N_ADAPTERS + 1];
    struct flight *got = qr_alloc(2 * N_CASES, sizeof *got);
    guesser_set(&guesser, guesses, &s->config);
    for (int c = 0; c < N_CASES; c++)
        for (int i = 0; i < k[c].n_choices; i++)
            guesser_learn(&guesser, k[c].prompt, k[c].n_prompt, &want[c].answer[i]);
    world_open(&w, s);
    load_all(&w, p, id);
    for (int c = 0; c < 2 * N_CASES; c++) {
        const struct kase *one = &k[c % N_CASES];
        if (c == N_CASES)
            flight_finish(&w, &got[N_CASES - 1]);
        cr_assert_eq(flight_start_with(&w, &got[c], &one->s, one->prompt, one->n_prompt, one->n_choices, id[one->adapter], &err), 0, "%s", err.msg);
    }
    for (int c = 0; c < 2 * N_CASES; c++) {
        flight_finish(&w, &got[c]);
        for (int i = 0; i < k[c % N_CASES].n_choices; i++)
            cr_expect(answers_equal(&want[c % N_CASES].answer[i], &got[c].answer[i]), "%s: case %d, choice %d", what, c, i);
    }
    world_settle(&w, &st);
    printf("%s: %d preempted, %llu of %llu prompt tokens cached, %llu of %llu guesses right\n", what, (int)st.sched.n_preempted,
           (unsigned long long)st.cached_tokens, (unsigned long long)st.prompt_tokens, (unsigned long long)st.n_accepted_tokens,
           (unsigned long long)st.n_draft_tokens);
    cr_expect(!s->config.prefix_cache || st.cached_tokens > 0);
    world_close(&w);
    qr_free(got);
}

Test(adapters, answers_depend_on_the_adapter_and_on_nothing_else_in_the_batch, .timeout = 120)
{
    NEED_DATA();
    struct place p;
    struct kase *k = qr_alloc(N_CASES, sizeof *k);
    struct flight *want = qr_alloc(N_CASES, sizeof *want);
    printf("seed %d\n", SEED);
    place_make(&p);
    make_cases(k);
    run_alone(want, k, &p, 1);
    struct setup s = setup_of(N_ADAPTERS);
    check_together(want, k, &s, GUESS_RIGHT, &p, "together");
    s = setup_of(N_ADAPTERS + 2);
    s.config.chunk_tokens_max = 7;
    s.config.step_tokens_max = 24;
    s.config.running_max = 6;
    s.config.kv_tokens = 240;
    s.n_threads = 1;
    check_together(want, k, &s, GUESS_ANY, &p, "small chunks and few blocks");
    s = setup_of(N_ADAPTERS);
    s.config.prefix_cache = false;
    s.config.policy = QR_SCHED_PREFILL_FIRST;
    check_together(want, k, &s, GUESS_NONE, &p, "nothing cached");
    place_remove(&p);
    qr_free(want), qr_free(k);
}

/* Ranks as threads, each with one worker. */
Test(adapters, answers_of_two_ranks_depend_on_the_adapter_and_on_nothing_else_in_the_batch, .timeout = 120)
{
    NEED_DATA();
    struct place p;
    struct kase *k = qr_alloc(N_CASES, sizeof *k);
    struct flight *want = qr_alloc(N_CASES, sizeof *want);
    place_make(&p);
    make_cases(k);
    run_alone(want, k, &p, 2);
    struct setup s = setup_of(N_ADAPTERS + 2);
    s.config.chunk_tokens_max = 7;
    s.config.step_tokens_max = 24;
    s.config.running_max = 6;
    s.config.kv_tokens = 240;
    s.n_threads = 1;
    s.n_ranks = 2;
    check_together(want, k, &s, GUESS_ANY, &p, "two ranks, small chunks and few blocks");
    place_remove(&p);
    qr_free(want), qr_free(k);
}

/* Of a long answer with adapter a, undisturbed where others is false; else b and c come and go meanwhile, and one that is refused. */
static void answer_while(struct world *w, struct flight *f, uint64_t a, const struct place *p, bool others)
{
    struct qr_sampling s;
    struct qr_err err = {0};
    const int32_t prompt[10] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    int n_rounds = 0;
    qr_sampling_init(&s);
    s.max_tokens = 400;
    s.ignore_eos = true;
    cr_assert_eq(flight_start_with(w, f, &s, prompt, 10, 1, a, &err), 0, "%s", err.msg);
    for (; others && !f->done; n_rounds++) {
        load(w, "b", adapter_dir(p, 1 + n_rounds % 2));
        cr_expect_eq(qr_engine_load_adapter(w->engine, &(struct qr_adapter_source){.name = "c", .dir = "/nowhere"}, &err), QR_E_NOT_FOUND);
        cr_expect_eq(qr_engine_unload_adapter(w->engine, "b", &err), 0, "%s", err.msg);
        world_pump(w, 1);
    }
    flight_finish(w, f);
    cr_expect(!others || n_rounds > 0);
}

Test(adapters, what_comes_and_goes_on_two_ranks_disturbs_nobody_and_a_lost_rank_ends_a_load)
{
    NEED_DATA();
    static struct flight alone, beside;
    struct place p;
    struct world w;
    struct qr_err err = {0};
    place_make(&p);
    struct setup s = setup_of(3);
    s.n_threads = 1;
    s.n_ranks = 2;
    world_open(&w, &s);
    const uint64_t a = load(&w, "a", adapter_dir(&p, 0));
    answer_while(&w, &alone, a, &p, false);
    answer_while(&w, &beside, a, &p, true);
    cr_expect(answers_equal(&alone.answer[0], &beside.answer[0]));
    qr_comm_abort(&w.comm[1], "enough");
    const struct qr_adapter_source late = {.name = "late", .dir = adapter_dir(&p, 1)};
    int rc = 0;
    for (int i = 0; i < 20 && rc == 0; i++) { /* the first may have been sent before anybody noticed */
        rc = qr_engine_load_adapter(w.engine, &late, &err);
        if (rc == 0)
            qr_engine_unload_adapter(w.engine, "late", &err);
    }
    cr_expect_eq(rc, QR_E_CLOSED, "%s", err.msg);
    cr_expect(strstr(err.msg, "one of the processes"), "%s", err.msg);
    cr_expect_eq(qr_engine_find_adapter(w.engine, "late"), 0);
    world_close(&w);
    place_remove(&p);
}

/* Prompt tokens that were found in the cache; the answer goes to *answer. */
static int32_t cached(struct world *w, uint64_t adapter, struct answer *answer)
{
    struct qr_sampling s;
    struct flight f;
    struct qr_err err = {0};
    int32_t prompt[64];
    qr_sampling_init(&s);
    s.temperature = 0;
    s.max_tokens = 8;
    s.n_logprobs = 0;
    s.ignore_eos = true;
    for (int i = 0; i < 64; i++)
        prompt[i] = 3 + i * 7 % 500;
    cr_assert_eq(flight_start_with(w, &f, &s, prompt, 64, 1, adapter, &err), 0, "%s", err.msg);
    flight_finish(w, &f);
    *answer = f.answer[0];
    return f.n_cached;
}

Test(adapters, what_is_cached_is_of_the_adapters_files_and_of_no_other_adapter_whatever_its_name)
{
    NEED_DATA();
    struct place p;
    struct world w;
    struct answer of_a, of_b, of_model, again;
    struct qr_err err = {0};
    place_make(&p);
    struct setup s = setup_of(2);
    world_open(&w, &s);
    const uint64_t a = load(&w, "a", adapter_dir(&p, 0)), b = load(&w, "b", adapter_dir(&p, 1));
    cr_expect_eq(cached(&w, a, &of_a), 0);
    cr_expect_eq(cached(&w, b, &of_b), 0);
    cr_expect_eq(cached(&w, 0, &of_model), 0);
    cr_expect(!answers_equal(&of_a, &of_b) && !answers_equal(&of_a, &of_model));
    cr_expect_eq(cached(&w, a, &again), 48);
    cr_expect(answers_equal(&of_a, &again));
    cr_expect_eq(cached(&w, 0, &again), 48);
    cr_expect(answers_equal(&of_model, &again));

    cr_assert_eq(qr_engine_unload_adapter(w.engine, "a", &err), 0, "%s", err.msg);
    cr_expect_eq(cached(&w, load(&w, "a", adapter_dir(&p, 0)), &again), 48, "the same files, loaded again");
    cr_expect(answers_equal(&of_a, &again));
    cr_assert_eq(qr_engine_unload_adapter(w.engine, "a", &err), 0, "%s", err.msg);
    write_adapter(&p, 0, 99);
    cr_expect_eq(cached(&w, load(&w, "a", adapter_dir(&p, 0)), &again), 0, "other files of the same name");
    cr_expect(!answers_equal(&of_a, &again));
    world_close(&w);
    place_remove(&p);
}

/* Batches of events so far with `text` in them, by the replay socket. */
static int32_t n_told(const struct qr_zmq *z, void *dealer, const char *text, size_t n_text)
{
    static char in[5][1 << 14];
    static const uint8_t first[8] = {0}, last[8] = {255, 255, 255, 255, 255, 255, 255, 255};
    const struct qr_zmq_part ask[] = {{"", 0}, {first, sizeof first}};
    int32_t len[5], n = 0;
    cr_assert_eq(qr_zmq_send(z, dealer, ask, QR_COUNT(ask)), 0);
    for (bool more = true; more;) {
        struct qr_zmq_poll item = {.socket = dealer, .events = QR_ZMQ_POLLIN};
        cr_assert_eq(z->poll(&item, 1, 20000), 1);
        cr_assert_eq(qr_zmq_take(z, dealer, in[0], len, 5, sizeof in[0]), 4);
        more = memcmp(in[2], last, sizeof last) != 0;
        n += more && memmem(in[3], (size_t)len[3], text, n_text) != NULL;
    }
    return n;
}

Test(adapters, blocks_of_one_are_told_to_routers_under_its_name_and_those_of_the_model_without)
{
    NEED_DATA();
    static const char of_a[] = "\xa9lora_name\xa1" "a", of_none[] = "\xa9lora_name\xc0";
    struct place p;
    struct world w;
    struct answer answer;
    struct qr_zmq z;
    struct qr_err err = {0};
    struct qr_events *v;
    if (qr_zmq_open(&z, &err) != 0)
        cr_skip_test("%s", err.msg);
    place_make(&p);
    struct setup s = setup_of(1);
    const struct qr_events_config c = {.endpoint = "tcp://127.0.0.1:*", .replay = "tcp://127.0.0.1:*", .topic = "", .maps = true,
                                       .block_tokens = s.config.block_tokens, .n_notes = 64};
    cr_assert_eq(qr_events_open(&v, &c, &err), 0, "%s", err.msg);
    s.config.outside.events = v;
    world_open(&w, &s);
    void *context = z.ctx_new(), *dealer = z.socket(context, QR_ZMQ_DEALER);
    cr_assert_eq(z.connect(dealer, qr_events_endpoint(v, true)), 0);
    cached(&w, load(&w, "a", adapter_dir(&p, 0)), &answer);
    for (int i = 0; i < 10000 && n_told(&z, dealer, of_a, sizeof of_a - 1) == 0; i++) /* the thread that publishes may not have come to it yet */
        usleep(1000);
    cr_expect(n_told(&z, dealer, of_a, sizeof of_a - 1) > 0 && n_told(&z, dealer, of_none, sizeof of_none - 1) == 0);
    cached(&w, 0, &answer);
    for (int i = 0; i < 10000 && n_told(&z, dealer, of_none, sizeof of_none - 1) == 0; i++)
        usleep(1000);
    cr_expect_gt(n_told(&z, dealer, of_none, sizeof of_none - 1), 0);
    world_close(&w);
    qr_events_close(v);
    z.close(dealer);
    z.ctx_term(context);
    place_remove(&p);
}

static void expect_busy(struct world *w, const char *name, const char *dir, const char *why)
{
    struct qr_err err = {0};
    cr_expect_eq(qr_engine_load_adapter(w->engine, &(struct qr_adapter_source){.name = name, .dir = dir}, &err), QR_E_BUSY, "%s", err.msg);
    cr_expect(strstr(err.msg, why), "'%s' does not say '%s'", err.msg, why);
}

Test(adapters, one_that_is_unloaded_is_gone_at_once_but_for_the_requests_that_it_has)
{
    NEED_DATA();
    struct place p;
    struct world w;
    struct flight alone, f;
    struct qr_err err = {0};
    struct qr_sampling s;
    struct qr_adapter_info info[4];
    int32_t prompt[10] = {5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
    place_make(&p);
    qr_sampling_init(&s);
    s.max_tokens = 400;
    s.ignore_eos = true;
    struct setup one = setup_of(1);
    world_open(&w, &one);
    const uint64_t a = load(&w, "a", adapter_dir(&p, 0));
    cr_assert_eq(flight_start_with(&w, &alone, &s, prompt, 10, 1, a, &err), 0, "%s", err.msg);
    flight_finish(&w, &alone);
    expect_busy(&w, "b", adapter_dir(&p, 1), "all 1 slots are in use; unload an adapter");
    cr_assert_eq(flight_start_with(&w, &f, &s, prompt, 10, 1, a, &err), 0, "%s", err.msg);
    cr_expect_eq(qr_engine_unload_adapter(w.engine, "a", &err), 0, "%s", err.msg);
    cr_expect_eq(qr_engine_find_adapter(w.engine, "a"), 0);
    cr_expect_eq(qr_engine_unload_adapter(w.engine, "a", &err), QR_E_NOT_FOUND);
    cr_expect_str_eq(err.param, "lora_name");
    struct flight late;
    cr_expect_eq(flight_start_with(&w, &late, &s, prompt, 10, 1, a, &err), QR_E_NOT_FOUND);
    cr_expect_str_eq(err.param, "model");
    if (qr_engine_adapters(w.engine, info, 4) == 1) { /* else it has ended already */
        cr_expect(info[0].leaving && info[0].n_inside == 1 && info[0].n_requests == 2);
        const int rc = qr_engine_load_adapter(w.engine, &(struct qr_adapter_source){.name = "b", .dir = adapter_dir(&p, 1)}, &err);
        if (rc == 0) /* it has ended meanwhile */
            cr_expect_eq(qr_engine_unload_adapter(w.engine, "b", &err), 0, "%s", err.msg);
        else
            cr_expect(rc == QR_E_BUSY && strstr(err.msg, "1 of them by adapters that were unloaded"), "%s", err.msg);
    }
    flight_finish(&w, &f);
    cr_expect(answers_equal(&alone.answer[0], &f.answer[0]));
    cr_expect_eq(qr_engine_adapters(w.engine, info, 4), 0);
    cr_expect_neq(load(&w, "b", adapter_dir(&p, 1)), a);
    world_close(&w);
    place_remove(&p);
}

/* A device that draws has a step on its way when requests end: its slot is not written before that has landed. */
Test(adapters, a_slot_is_not_free_while_a_step_that_was_launched_may_read_it)
{
    struct qr_engine *e = qr_alloc(1, sizeof *e);
    struct qr_adapters *a = &e->adapters;
    struct qr_request r = {.adapter = 7};
    struct qr_err err = {0};
    struct qr_adapter_info info[1];
    struct qr_adapter slot;
    pthread_mutex_init(&a->lock, NULL);
    pthread_cond_init(&a->sent, NULL);
    a->slot = &slot;
    a->n_slots = 1;
    for (int i = 0; i < 4; i++) {
        const bool flying = i % 2, unloads_first = i / 2;
        slot = (struct qr_adapter){.state = QR_ADAPTER_READY, .id = 7, .name = "a"};
        cr_assert_eq(qr_adapters_take(a, &r, &err), 0, "%s", err.msg);
        if (unloads_first)
            cr_assert_eq(qr_engine_unload_adapter(e, "a", &err), 0, "%s", err.msg);
        cr_expect_eq(qr_engine_adapters(e, info, 1), 1);
        qr_adapters_give_back(a, &r, 0, 0, flying);
        if (!unloads_first)
            cr_assert_eq(qr_engine_unload_adapter(e, "a", &err), 0, "%s", err.msg);
        cr_expect_eq(slot.state, flying ? QR_ADAPTER_LEAVING : QR_ADAPTER_FREE, "%d", i);
        cr_expect_eq(qr_engine_adapters(e, info, 1), 0, "nobody sees it any more");
        qr_adapters_landed(a);
        cr_expect_eq(slot.state, QR_ADAPTER_FREE, "%d", i);
    }
    pthread_cond_destroy(&a->sent);
    pthread_mutex_destroy(&a->lock);
    qr_free(e);
}

Test(adapters, loads_that_fail_leave_everything_as_it_was_and_replacing_is_asked_for)
{
    NEED_DATA();
    struct place p;
    struct world w;
    struct answer before, after;
    struct qr_err err = {0};
    struct qr_adapter_info info[4];
    char inside[200];
    place_make(&p);
    struct setup s = setup_of(2);
    s.config.prefix_cache = false;
    world_open(&w, &s);
    const uint64_t a = load(&w, "a", adapter_dir(&p, 0));
    cached(&w, a, &before);
    snprintf(inside, sizeof inside, "%s", adapter_dir(&p, 0));
    const struct qr_adapter_source bad[] = {{.name = "a", .dir = inside}, {.name = "", .dir = inside}, {.name = "x\ny", .dir = inside},
                                            {.name = "b", .dir = "/nowhere"}, {.name = "b", .dir = inside, .root = "/usr"},
                                            {.name = "b", .dir = data_path(MODEL)}};
    static const enum qr_code code[] = {QR_E_INVALID, QR_E_INVALID, QR_E_INVALID, QR_E_NOT_FOUND, QR_E_DENIED, QR_E_NOT_FOUND};
    for (int i = 0; i < QR_COUNT(bad); i++)
        cr_expect_eq(qr_engine_load_adapter(w.engine, &bad[i], &err), (int)code[i], "%d: %s", i, err.msg);
    cached(&w, a, &after);
    cr_expect(answers_equal(&before, &after));
    cr_expect_eq(qr_engine_adapters(w.engine, info, 4), 1);
    cr_expect_eq(info[0].n_requests, 2);
    cr_expect_eq(info[0].prompt_tokens, 128);
    cr_expect_eq(info[0].output_tokens, 16);
    write_adapter(&p, 0, 5);
    cr_expect_eq(qr_engine_load_adapter(w.engine, &(struct qr_adapter_source){.name = "a", .dir = inside, .root = p.dir, .replace = true}, &err), 0, "%s",
                 err.msg);
    cr_expect_neq(qr_engine_find_adapter(w.engine, "a"), a);
    cached(&w, qr_engine_find_adapter(w.engine, "a"), &after);
    cr_expect(!answers_equal(&before, &after));
    world_close(&w);
    s.config.lora_slots = 0;
    world_open(&w, &s);
    cr_expect_eq(qr_engine_load_adapter(w.engine, &bad[3], &err), QR_E_USAGE);
    world_close(&w);
    place_remove(&p);
}
