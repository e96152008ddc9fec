#include "exchange/exchange.h"

#include "base/assert.h"
#include "base/mailbox.h"
#include "base/mem.h"

struct qr_exchange {
    struct qr_exchange_config config;
    struct qr_mailbox over;
};

int qr_exchange_open(struct qr_exchange **out, const struct qr_exchange_config *config, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL);
    QR_ASSERT(err != NULL);
    struct qr_exchange *x = qr_alloc(1, sizeof *x);
    x->config = *config;
    qr_mailbox_init(&x->over, 1, config->wake, config->wake_arg);
    *out = x;
    return 0;
}

void qr_exchange_close(struct qr_exchange *x)
{
    if (!x)
        return;
    struct qr_node rest;
    qr_list_init(&rest);
    qr_mailbox_take(&x->over, &rest);
    qr_mailbox_release(&x->over);
    qr_free(x);
}

int32_t qr_exchange_peer(const struct qr_exchange *x, const char *address)
{
    return -1;
}

const char *qr_exchange_address(const struct qr_exchange *x)
{
    return NULL;
}

void qr_exchange_fetch(struct qr_exchange *x, struct qr_fetch *f)
{
    QR_ASSERT(x != NULL && f != NULL);
    f->why = "the peer is not connected";
    qr_mailbox_push_urgent(&x->over, &f->link);
}

void qr_exchange_stop(struct qr_exchange *x, struct qr_fetch *f)
{
    atomic_store(&f->stopped, true);
}

void qr_exchange_take(struct qr_exchange *x, struct qr_node *arrived, struct qr_node *over, struct qr_node *asked)
{
    qr_mailbox_take(&x->over, over);
}

struct qr_parcel *qr_exchange_parcel(struct qr_exchange *x, struct qr_lend *lend)
{
    return NULL;
}

void qr_exchange_send(struct qr_exchange *x, struct qr_parcel *parcel)
{
    qr_parcel_give_back(parcel);
}

void qr_exchange_tell(struct qr_exchange *x, struct qr_lend *lend, int32_t n_there, bool computing)
{
}

void qr_exchange_answered(struct qr_exchange *x, struct qr_lend *lend)
{
}

void qr_exchange_stats(const struct qr_exchange *x, struct qr_exchange_stats *out)
{
    *out = (struct qr_exchange_stats){0};
}
