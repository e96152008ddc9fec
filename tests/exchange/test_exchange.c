#include <criterion/criterion.h>

#include "tests/exchange/pair.h"

static const char *const wires[] = {"127.0.0.1:0", "unix:", "localhost:0"};

static void unix_address(char out[128], const char *what)
{
    snprintf(out, 128, "unix:/tmp/quire-peer-%d-%s", (int)getpid(), what);
}

static const char *address_of(int wire, char text[128])
{
    unix_address(text, "a");
    return strcmp(wires[wire], "unix:") == 0 ? text : wires[wire];
}

Test(exchange, a_fetch_brings_every_block_in_order)
{
    for (int wire = 0; wire < QR_COUNT(wires); wire++) {
        struct pair p;
        struct rig_fetch f;
        char text[128];
        pair_open(&p, address_of(wire, text), 8, NULL);
        p.side[0].n_has = 1000;
        rig_ask(&p.side[1], &f, 5, 100, 0);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
        cr_assert_eq(f.n_arrived, 100, "%d: %s", f.n_arrived, f.fetch.why);
        cr_assert_null(f.fetch.why);
        cr_assert_eq(atomic_load(&f.fetch.n_there), 100);
        cr_assert_eq(p.side[1].n_wrong + p.side[1].n_bad_order, 0);
        const struct qr_exchange_stats out = rig_stats(&p.side[0]), in = rig_stats(&p.side[1]);
        cr_assert_eq(in.blocks_in, 100);
        cr_assert_eq(out.blocks_out, 100);
        cr_assert_eq(in.bytes_in, 100 * RIG_BLOCK_BYTES);
        cr_assert_gt(in.bytes_per_second, 0);
        pair_close(&p);
    }
}

Test(exchange, a_fetch_over_ucx_brings_every_block_and_an_end_is_noticed)
{
    struct pair p;
    struct rig_fetch f;
    struct qr_err err;
    sem_init(&p.bell, 0, 0);
    struct qr_exchange_config config = rig_config(&p.bell);
    config.listen = "ucx:127.0.0.1:0";
    const int rc = rig_open(&p.side[0], &config, &err);
    if (rc == QR_E_UNSUPPORTED)
        cr_skip_test("%s", err.msg);
    cr_assert_eq(rc, 0, "%s", err.msg);
    rig_close(&p.side[0]);
    pair_open(&p, "ucx:127.0.0.1:0", 8, NULL);
    p.side[0].n_has = 1000;
    rig_ask(&p.side[1], &f, 5, 300, 0);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
    cr_assert_eq(f.n_arrived, 300, "%d: %s", f.n_arrived, f.fetch.why);
    rig_ask(&p.side[1], &f, 5, 300, 0);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.n_arrived > 5));
    rig_close(&p.side[0]);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
    cr_assert_eq(p.side[1].n_wrong + p.side[1].n_bad_order, 0);
    pair_close(&p);
}

Test(exchange, what_the_peer_has_not_is_told_and_does_not_come)
{
    struct pair p;
    struct rig_fetch f, none;
    pair_open(&p, "127.0.0.1:0", 4, NULL);
    p.side[0].n_has = 17;
    rig_ask(&p.side[1], &f, 10, 20, 0);
    rig_ask(&p.side[1], &none, 17, 1, 0);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over && none.over));
    cr_assert_eq(f.n_arrived, 7);
    cr_assert_eq(atomic_load(&f.fetch.n_there), 7);
    cr_assert_eq(none.n_arrived, 0);
    cr_assert_str_eq(f.fetch.why, "the peer has no more of them");
    pair_close(&p);
}

Test(exchange, blocks_before_the_first_one_that_is_wanted_do_not_come)
{
    struct pair p;
    struct rig_fetch f = {.number = 0, .fetch = {.first = 9, .n = 12}};
    pair_open(&p, "127.0.0.1:0", 4, NULL);
    p.side[0].n_has = 100;
    for (int32_t i = 0; i < 12; i++)
        rig_name(&f.names[i], i);
    f.fetch.names = f.names;
    qr_exchange_fetch(p.side[1].x, &f.fetch);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
    cr_assert_eq(f.n_arrived, 3);
    cr_assert_eq(p.side[1].n_wrong + p.side[1].n_bad_order, 0);
    pair_close(&p);
}

Test(exchange, many_fetches_at_once_come_whole)
{
    enum { N = 60 };
    static struct rig_fetch f[N];
    for (int wire = 0; wire < 2; wire++) {
        struct pair p;
        char text[128];
        pair_open(&p, address_of(wire, text), 8, NULL);
        p.side[0].n_has = 100000;
        int n_over = 0, n_busy = 0;
        for (int i = 0; i < N; i++)
            rig_ask(&p.side[1], &f[i], 100 * i, 1 + i % 13, 0);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, ({ n_over = 0; for (int i = 0; i < N; i++) n_over += f[i].over; n_over == N; })));
        for (int i = 0; i < N; i++) {
            n_busy += f[i].n_arrived == 0;
            cr_assert(f[i].n_arrived == 1 + i % 13 || strcmp(f[i].fetch.why, "the peer is asked by too many") == 0);
        }
        cr_assert_leq(n_busy, N - RIG_LENDS_MAX);
        cr_assert_eq(p.side[1].n_wrong + p.side[1].n_bad_order, 0);
        pair_close(&p);
    }
}

Test(exchange, blocks_of_several_fetches_come_in_turn)
{
    for (int wire = 0; wire < 2; wire++) {
        struct pair p;
        struct rig_fetch f[2];
        char text[128];
        pair_open(&p, address_of(wire, text), 8, NULL);
        p.side[0].n_has = 100000;
        for (int i = 0; i < 2; i++)
            rig_ask(&p.side[1], &f[i], 1000 * i, 200, 0);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f[0].over || f[1].over));
        cr_assert_gt(f[f[0].over].n_arrived, 66); /* the engine's turns and the parcels that are free decide on more */
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f[0].over && f[1].over));
        pair_close(&p);
    }
}

/* Of four that ask one has what is asked: more than its share of the eight parcels is on its way, and half of them are left to the others. */
Test(exchange, one_with_blocks_has_half_of_the_parcels_while_others_wait)
{
    struct pair p;
    struct rig_fetch f[4];
    char text[128];
    unix_address(text, "half");
    pair_open(&p, text, 8, NULL);
    p.side[0].n_has = 100;
    p.side[0].mute = p.side[1].holds = true;
    for (int i = 0; i < 4; i++)
        rig_ask(&p.side[1], &f[i], i == 0 ? 0 : 1000, 100, 0);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, p.side[0].n_lends == 4));
    struct qr_lend *l = QR_CONTAINER(p.side[0].lends.next, struct qr_lend, link);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, (rig_lend(&p.side[0], l), f[0].n_arrived == 8 && l->next >= 8 + 4)), "%d were copied", l->next);
    for (int i = 0; i < 4; i++) {
        rig_lend(&p.side[0], l);
        usleep(1000);
    }
    cr_assert_eq(l->next, 8 + 4);
    p.side[0].mute = p.side[1].holds = false;
    rig_release(&p.side[1]);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f[0].over && f[1].over && f[2].over && f[3].over));
    cr_assert_eq(f[0].n_arrived, 100);
    pair_close(&p);
}

Test(exchange, one_that_is_stopped_is_over_and_the_next_one_comes)
{
    for (int wire = 0; wire < 2; wire++) {
        struct pair p;
        struct rig_fetch f, next;
        char text[128];
        pair_open(&p, address_of(wire, text), 4, NULL);
        p.side[0].n_has = 100000;
        p.side[1].holds = true; /* so that it cannot come to its end */
        rig_ask(&p.side[1], &f, 0, 300, 0);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.n_arrived == 4));
        qr_exchange_stop(p.side[1].x, &f.fetch);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
        cr_assert_str_eq(f.fetch.why, "it was stopped");
        cr_assert_eq(f.n_arrived, 4);
        rig_release(&p.side[1]);
        rig_ask(&p.side[1], &next, 500, 50, 0);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, next.over && qr_list_empty(&p.side[0].lends)));
        cr_assert_eq(next.n_arrived, 50);
        cr_assert_eq(p.side[1].n_wrong + p.side[1].n_bad_order, 0);
        cr_assert_lt(p.side[0].n_order, 100); /* what was stopped was not copied */
        pair_close(&p);
    }
}

Test(exchange, without_a_free_parcel_blocks_wait)
{
    for (int wire = 0; wire < 2; wire++) {
        struct pair p;
        struct rig_fetch f;
        char text[128];
        pair_open(&p, address_of(wire, text), 4, NULL);
        p.side[0].n_has = 100000;
        p.side[1].holds = true;
        rig_ask(&p.side[1], &f, 0, 10, 0);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.n_arrived == 4));
        for (int i = 0; i < 20; i++) {
            rig_step(&p.side[0]);
            rig_step(&p.side[1]);
            rig_wait(&p.bell, 1000);
        }
        cr_assert_eq(f.n_arrived, 4);
        rig_release(&p.side[1]);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
        cr_assert_eq(f.n_arrived, 10);
        pair_close(&p);
    }
}

Test(exchange, a_peer_that_goes_away_ends_its_fetches)
{
    for (int wire = 0; wire < 2; wire++) {
        struct pair p;
        struct rig_fetch f;
        char text[128];
        pair_open(&p, address_of(wire, text), 4, NULL);
        p.side[0].n_has = 100000;
        rig_ask(&p.side[1], &f, 0, 500, 0);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.n_arrived > 10));
        const int64_t from_us = qr_clock_us();
        rig_close(&p.side[0]);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
        cr_assert_lt(f.over_us - from_us, TEST_SOON_US(100 * 1000));
        cr_assert_not_null(f.fetch.why);
        cr_assert_eq(rig_stats(&p.side[1]).n_lost, 1);
        cr_assert_eq(p.side[1].n_wrong + p.side[1].n_bad_order, 0);
        pair_close(&p);
    }
}

Test(exchange, one_that_asks_and_goes_away_leaves_nothing)
{
    for (int wire = 0; wire < 2; wire++) {
        struct pair p;
        struct rig_fetch f[3];
        char text[128];
        pair_open(&p, address_of(wire, text), 4, NULL);
        p.side[0].n_has = 100000;
        p.side[1].holds = true;
        for (int i = 0; i < 3; i++)
            rig_ask(&p.side[1], &f[i], 0, 500, 0);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, p.side[0].n_lends == 3 && rig_stats(&p.side[0]).blocks_out > 3));
        rig_close(&p.side[1]);
        cr_assert(RIG_UNTIL(&p.bell, p.side, 2, qr_list_empty(&p.side[0].lends)));
        pair_close(&p); /* where the pools find all parcels back */
    }
}

Test(exchange, a_peer_that_is_not_connected_costs_nothing)
{
    struct qr_err err;
    sem_t bell;
    struct rig side[2];
    struct rig_fetch f;
    char listen[128];
    unix_address(listen, "late");
    sem_init(&bell, 0, 0);
    struct qr_exchange_config config = rig_config(&bell);
    config.peer[0] = listen;
    config.peer[1] = "no-such-host.invalid:7";
    config.n_peers = 1;
    cr_assert_eq(rig_open(&side[1], &config, &err), 0);
    for (int32_t peer = -1; peer < 1; peer++) {
        rig_ask(&side[1], &f, 0, 3, peer);
        const int64_t from_us = qr_clock_us();
        cr_assert(RIG_UNTIL(&bell, &side[1], 1, f.over));
        cr_assert_lt(f.over_us - from_us, TEST_SOON_US(50 * 1000));
        cr_assert_str_eq(f.fetch.why, "the peer is not connected");
    }
    config.n_peers = 0;
    config.listen = listen;
    cr_assert_eq(rig_open(&side[0], &config, &err), 0); /* and then it is there */
    side[0].n_has = 10;
    cr_assert(RIG_UNTIL(&bell, side, 2, rig_stats(&side[1]).n_connected == 1));
    rig_ask(&side[1], &f, 0, 3, 0);
    cr_assert(RIG_UNTIL(&bell, side, 2, f.over));
    cr_assert_eq(f.n_arrived, 3);
    rig_close(&side[1]);
    rig_close(&side[0]);
}

Test(exchange, the_peer_that_has_most_is_asked)
{
    enum { N = 4 };
    struct qr_err err;
    sem_t bell;
    struct rig side[N];
    char listen[N][128];
    sem_init(&bell, 0, 0);
    struct qr_exchange_config asks = rig_config(&bell);
    for (int i = 1; i < N; i++) {
        struct qr_exchange_config config = rig_config(&bell);
        snprintf(listen[i], sizeof listen[i], "unix:/tmp/quire-peer-%d-%d", (int)getpid(), i);
        config.listen = asks.peer[asks.n_peers++] = listen[i];
        cr_assert_eq(rig_open(&side[i], &config, &err), 0, "%s", err.msg);
    }
    cr_assert_eq(rig_open(&side[0], &asks, &err), 0);
    cr_assert(RIG_UNTIL(&bell, side, N, rig_stats(&side[0]).n_connected == N - 1));
    for (int best = 1; best < N; best++) {
        struct rig_fetch f;
        for (int i = 1; i < N; i++)
            side[i].n_has = i == best ? 30 : 10 + i;
        rig_ask(&side[0], &f, 0, 40, -1);
        cr_assert(RIG_UNTIL(&bell, side, N, f.over));
        cr_assert_eq(f.n_arrived, 30, "%d of peer %d: %s", f.n_arrived, best, f.fetch.why);
        for (int i = 1; i < N; i++)
            cr_assert_eq(rig_stats(&side[i]).blocks_out, i <= best ? 30 : 0);
    }
    for (int i = 1; i < N; i++)
        side[i].n_has = 0;
    struct rig_fetch f;
    rig_ask(&side[0], &f, 0, 40, -1);
    cr_assert(RIG_UNTIL(&bell, side, N, f.over));
    cr_assert_str_eq(f.fetch.why, "no peer has them");
    for (int i = 0; i < N; i++)
        rig_close(&side[i]);
}

/* ---- a prompt that is to be computed ---- */

struct computing {
    struct qr_exchange_prompt prompt;
    int32_t ids[4];
    bool expected;
    _Atomic int n;
    int answer;
};

static int on_compute(void *user, struct qr_lend *l, struct qr_err *err)
{
    struct computing *c = user;
    c->prompt = l->prompt;
    for (int32_t i = 0; i < 4 && i < l->prompt.n_ids; i++)
        c->ids[i] = l->prompt.ids[i];
    c->expected = l->expected;
    atomic_fetch_add(&c->n, 1);
    return c->answer ? qr_err_set(err, QR_E_BUSY, "no") : 0;
}

static void ask_to_compute(struct pair *p, struct rig_fetch *f, const int32_t *ids, int32_t n_ids)
{
    *f = (struct rig_fetch){.fetch = {.names = f->names, .n = 3, .expected = true, .prompt = {.ids = ids, .n_ids = n_ids, .salt = {1, 2}, .adapter = {3, 4}}}};
    for (int32_t i = 0; i < 3; i++)
        rig_name(&f->names[i], i);
    qr_exchange_fetch(p->side[1].x, &f->fetch);
    cr_assert(RIG_UNTIL(&p->bell, p->side, 2, !qr_list_empty(&p->side[0].lends)));
}

Test(exchange, a_prompt_is_asked_to_be_computed_and_told_to_be)
{
    struct pair p;
    struct rig_fetch f;
    struct computing c = {0};
    static int32_t ids[1001];
    for (int i = 0; i < QR_COUNT(ids); i++)
        ids[i] = 7 * i;
    struct qr_exchange_config more = {.compute = on_compute, .compute_user = &c};
    pair_open(&p, "127.0.0.1:0", 4, &more);
    p.side[0].mute = true;
    ask_to_compute(&p, &f, ids, 1000);
    struct qr_lend *l = QR_CONTAINER(p.side[0].lends.next, struct qr_lend, link);
    cr_assert_eq(atomic_load(&c.n), 1);
    cr_assert_eq(c.prompt.n_ids, 1000);
    cr_assert(c.expected && c.ids[3] == 21 && c.prompt.salt.hi == 2 && c.prompt.adapter.lo == 3);
    cr_assert_not_null(l->prompt.ids);
    qr_exchange_tell(p.side[0].x, l, 1, true);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, atomic_load(&f.fetch.computing)));
    cr_assert_eq(atomic_load(&f.fetch.n_there), 1);
    p.side[0].n_has = 3;
    p.side[0].mute = false;
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over && qr_list_empty(&p.side[0].lends)));
    cr_assert_eq(f.n_arrived, 3);
    c.answer = -1; /* it is refused: the lend is of what is there */
    p.side[0].mute = true;
    ask_to_compute(&p, &f, ids, 1000);
    cr_assert_null(QR_CONTAINER(p.side[0].lends.next, struct qr_lend, link)->prompt.ids);
    p.side[0].mute = false;
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over && qr_list_empty(&p.side[0].lends)));
    p.side[0].mute = true;
    ask_to_compute(&p, &f, ids, 1001); /* longer than prompt_max */
    cr_assert_eq(atomic_load(&c.n), 2);
    pair_close(&p);
}
