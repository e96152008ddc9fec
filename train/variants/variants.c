#include "train/variants/variants.h"

#include "base/assert.h"
#include "base/err.h"
#include "train/variants/distill.h"
#include "train/variants/lora.h"
#include "train/variants/prune.h"
#include "train/variants/quantize.h"

/* Which settings want each kind of training, and what makes it. */
static const struct kind {
    const char *setting;
    bool (*wanted)(const struct qr_train_config *c);
    int (*make)(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err);
} kinds[] = {
    {"teacher.model", qr_distill_wanted, qr_distill_variant},
    {"quantize.type", qr_quantize_wanted, qr_quantize_variant},
    {"prune.kind", qr_prune_wanted, qr_prune_variant},
    {"lora.rank", qr_lora_wanted, qr_lora_variant},
};

int qr_train_variant_choose(struct qr_train_variant *out, const struct qr_train_config *c, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(c->set != NULL && err != NULL);
    const struct kind *chosen = NULL;
    char at[400];
    *out = (struct qr_train_variant){0};
    for (int i = 0; i < QR_COUNT(kinds); i++) {
        if (!kinds[i].wanted(c))
            continue;
        if (chosen)
            return qr_err_set(err, QR_E_USAGE, "%s: %s is set, too; expected one kind of training at a time",
                              qr_train_config_where(c, kinds[i].setting, at), chosen->setting);
        chosen = &kinds[i];
    }
    return chosen ? chosen->make(out, c, err) : 0;
}
