#include "train/variants/quantize.h"

#include "base/assert.h"
#include "loader/weights.h"
#include "model/model.h"
#include "train/batch.h"

bool qr_quantize_wanted(const struct qr_train_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->quantize.type >= (int)QR_QUANTIZE_NONE && c->quantize.type < (int)QR_QUANTIZE_COUNT);
    return c->quantize.type != (int)QR_QUANTIZE_NONE;
}

static enum qr_dtype type_of(const void *user)
{
    const struct qr_train_config *c = user;
    return qr_quantize_dtype((enum qr_quantize)c->quantize.type);
}

/* The rounded copies are planned with the parameters. */
static int plan(void *user, struct qr_params *p, struct qr_tape_options *tape, struct qr_train_plan *plan, struct qr_err *err)
{
    int rc = qr_backend_supports(p->be, type_of(user), qr_weights_inputs_max(&p->config), QR_BF16, p->config.head_dim, QR_TRAIN_BLOCK_TOKENS, err);
    if (rc)
        return qr_err_prefix(err, "quantize.type: ");
    qr_params_quantize(p, type_of(user));
    return 0;
}

static void fresh(void *user, struct qr_params *p)
{
    QR_ASSERT(user != NULL);
    QR_ASSERT(p != NULL);
    qr_params_quantize(p, type_of(user));
}

int qr_quantize_variant(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL && err != NULL);
    QR_ASSERT(qr_quantize_wanted(c));
    char at[400];
    if (c->compute.dtype == 0)
        return qr_err_set(err, QR_E_USAGE, "%s: f32, expected bf16 with quantize.type: rounded weights are served with bf16 around them",
                          qr_train_config_where(c, "compute.dtype", at));
    *out = (struct qr_train_variant){.name = "quantize", .user = (void *)(uintptr_t)c, .plan = plan, .fresh = fresh};
    return 0;
}
