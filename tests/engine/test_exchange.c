/* Blocks from elsewhere change no byte: the cases of cases.h, asked of engines that fetch from a file tier or from each other, against each alone. */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "base/file.h"
#include "engine/exchange.h"
#include "tests/engine/cases.h"
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

/* ---- peers ---- */

static const char *address_of(const struct world *w)
{
    const char *address = qr_engine_peer_address(w->engine);
    cr_assert_not_null(address);
    return address;
}

static void await_peer(const struct world *w)
{
    struct qr_exchange_stats st = {0};
    for (int i = 0; i < 3000 && st.n_connected == 0; i++) {
        usleep(1000);
        cr_assert(qr_engine_exchange_stats(w->engine, &st));
    }
    cr_assert_eq(st.n_connected, 1, "the peer was not connected within 3 s");
}

/* p has learned all cases; d asks it for their blocks, and so do many at once in small pools. */
static void check_peer(const char *listen, int32_t kv_tokens)
{
    struct setup s, sp;
    struct world p, d;
    struct qr_stats st;
    find_answers(&s);
    sp = s;
    sp.config.outside.listen = listen;
    world_open(&p, &sp);
    teach(&p);
    const char *peer[] = {address_of(&p)};
    s.config.outside = (struct qr_engine_outside){.peer = peer, .n_peers = 1};
    s.config.kv_tokens = kv_tokens;
    world_open(&d, &s);
    await_peer(&d);
    qr_engine_set_role(d.engine, QR_ROLE_DECODE);
    teach(&d);
    world_settle(&d, &st);
    cr_assert_gt(st.n_from_peer, 0);
    cr_assert_eq(st.outside.n_given_up, 0);
    world_close(&d);
    run_together(got, kase, &s, 19, &st);
    compare(want, got, kase, "with a peer");
    world_close(&p);
}

Test(exchange, what_a_peer_has_computed_comes_by_tcp)
{
    NEEDS_DATA();
    check_peer("127.0.0.1:0", 0);
}

Test(exchange, what_a_peer_has_computed_comes_by_shared_memory)
{
    NEEDS_DATA();
    char dir[64], listen[96];
    temp_dir_make(dir, "peer");
    snprintf(listen, sizeof listen, "unix:%s/s", dir);
    check_peer(listen, 0);
    remove_dir(dir);
}
