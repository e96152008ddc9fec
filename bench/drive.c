#include "bench/drive.h"

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"

#define WAIT_US 200000

int qr_drive_open(struct qr_drive *d, const char *model, const struct qr_engine_config *config, const struct qr_backend_options *backend,
                  const struct qr_model_options *options, struct qr_err *err)
{
    QR_ASSERT(d != NULL && model != NULL && err != NULL);
    QR_ASSERT(config != NULL && backend != NULL && options != NULL);
    const int rc = qr_tokenizer_open(&d->tokenizer, model, err);
    return rc ? rc : qr_engine_open(&d->engine, model, config, backend, options, d->tokenizer, NULL, NULL, err);
}

void qr_drive_close(struct qr_drive *d)
{
    QR_ASSERT(d != NULL);
    qr_engine_close(d->engine);
    qr_tokenizer_close(d->tokenizer);
    d->engine = NULL;
    d->tokenizer = NULL;
}

int qr_drive_submit(struct qr_drive *d, const struct qr_sampling *sampling, int32_t n_prompt, struct qr_err *err)
{
    QR_ASSERT(d != NULL && d->engine != NULL);
    QR_ASSERT(sampling != NULL && n_prompt > 0 && err != NULL);
    struct qr_rng rng = {.seed = (uint64_t)d->n_made + 5};
    int32_t *prompt = qr_alloc((size_t)n_prompt, sizeof *prompt);
    for (int32_t k = 0; k < n_prompt; k++)
        prompt[k] = (int32_t)qr_rng_below(&rng, (uint32_t)qr_engine_limits(d->engine)->vocab);
    struct qr_request *req = qr_request_new(sampling, prompt, n_prompt, 1);
    qr_free(prompt);
    if (!req)
        return qr_err_set(err, QR_E_NO_ROOM, "request %d: no memory for %d ids", d->n_made + 1, n_prompt + sampling->max_tokens);
    req->id = (uint64_t)d->n_made + 1;
    req->arrived_us = qr_clock_us();
    const int rc = qr_engine_submit(d->engine, req, err);
    if (rc) {
        qr_request_free(req);
        return rc;
    }
    d->n_made++;
    d->n_open++;
    return 0;
}

static void take(struct qr_drive *d, struct qr_event *ev)
{
    d->n_output += ev->n_tokens;
    if (ev->n_tokens > 0 && ev->n_output == ev->n_tokens)
        d->first_us = ev->req->first_token_us > d->first_us ? ev->req->first_token_us : d->first_us;
    if (ev->finish == QR_FINISH_ERROR && d->err.code == 0)
        d->err = ev->req->err;
    if (ev->last) {
        qr_request_free(ev->req);
        d->n_open--;
    }
    qr_engine_recycle(d->engine, ev);
}

void qr_drive_pump(struct qr_drive *d)
{
    QR_ASSERT(d != NULL);
    QR_ASSERT(d->engine != NULL);
    struct qr_node got, *node;
    qr_list_init(&got);
    qr_engine_wait(d->engine, &got, WAIT_US);
    while ((node = qr_list_pop_front(&got)) != NULL)
        take(d, QR_CONTAINER(node, struct qr_event, link));
}
