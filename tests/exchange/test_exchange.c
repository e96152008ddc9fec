#include <criterion/criterion.h>
#include <unistd.h>

#include "tests/exchange/rig.h"

/* Two sides: [0] lends, [1] asks. */
struct pair {
    sem_t bell;
    struct rig side[2];
    char listen[128], address[QR_PEER_ADDRESS_MAX];
};

static void pair_open(struct pair *p, const char *listen, int32_t n_parcels)
{
    struct qr_err err = {0};
    sem_init(&p->bell, 0, 0);
    struct qr_exchange_config config = rig_config(&p->bell);
    config.n_parcels = n_parcels;
    config.listen = listen;
    cr_assert_eq(rig_open(&p->side[0], &config, &err), 0, "%s", err.msg);
    snprintf(p->address, sizeof p->address, "%s", qr_exchange_address(p->side[0].x));
    config.listen = NULL;
    config.peer[0] = p->address;
    config.n_peers = 1;
    cr_assert_eq(rig_open(&p->side[1], &config, &err), 0, "%s", err.msg);
    cr_assert(RIG_UNTIL(&p->bell, p->side, 2, rig_stats(&p->side[1]).n_connected == 1));
}

static void pair_close(struct pair *p)
{
    for (int i = 1; i >= 0; i--)
        rig_close(&p->side[i]);
    sem_destroy(&p->bell);
}

static void all_come(const char *listen)
{
    struct pair p;
    struct rig_fetch f;
    pair_open(&p, listen, 8);
    p.side[0].n_has = 1000;
    rig_ask(&p.side[1], &f, 5, 100, 0);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
    cr_assert_eq(f.n_arrived, 100, "%d: %s", f.n_arrived, f.fetch.why);
    cr_assert_null(f.fetch.why);
    cr_assert_eq(p.side[1].n_wrong + p.side[1].n_bad_order, 0);
    pair_close(&p);
}

Test(exchange, a_fetch_over_tcp_brings_every_block)
{
    all_come("127.0.0.1:0");
}

Test(exchange, a_fetch_over_a_unix_socket_brings_every_block)
{
    char listen[128];
    snprintf(listen, sizeof listen, "unix:/tmp/quire-peer-%d", (int)getpid());
    all_come(listen);
}
