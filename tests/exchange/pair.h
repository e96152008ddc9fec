/* pair.h - two exchanges of which [0] lends and [1] asks, connected, for Criterion. */
#ifndef QR_TESTS_EXCHANGE_PAIR_H
#define QR_TESTS_EXCHANGE_PAIR_H

#include <unistd.h>

#include "tests/exchange/rig.h"
#include "tests/soon.h"

struct pair {
    sem_t bell;
    struct rig side[2];
    char address[QR_PEER_ADDRESS_MAX];
};

/* more: what the lender computes; NULL: nothing. */
static inline void pair_open(struct pair *p, const char *listen, int32_t n_parcels, const struct qr_exchange_config *more)
{
    struct qr_err err = {0};
    sem_init(&p->bell, 0, 0);
    struct qr_exchange_config config = rig_config(&p->bell);
    config.n_parcels = n_parcels;
    config.listen = listen;
    if (more) {
        config.compute = more->compute;
        config.compute_user = more->compute_user;
    }
    cr_assert_eq(rig_open(&p->side[0], &config, &err), 0, "%s", err.msg);
    snprintf(p->address, sizeof p->address, "%s", qr_exchange_address(p->side[0].x));
    config.listen = NULL;
    config.peer[0] = p->address;
    config.n_peers = 1;
    cr_assert_eq(rig_open(&p->side[1], &config, &err), 0, "%s", err.msg);
    cr_assert(RIG_UNTIL(&p->bell, p->side, 2, rig_stats(&p->side[1]).n_connected == 1));
}

static inline void pair_close(struct pair *p)
{
    for (int i = 1; i >= 0; i--)
        if (p->side[i].x)
            rig_close(&p->side[i]);
    sem_destroy(&p->bell);
}

#endif
