#include "train/trains.h"

#include <stdbool.h>
#include <stddef.h>

#include "base/assert.h"
#include "loader/families/family.h"
#include "model/ops.h"
#include "train/record.h"

#define VERB(name) qr_ops_record.name != NULL

int qr_train_takes(const struct qr_model_config *c, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    /* The 1 of norms by 1 + w is added by the loader, or in a GGUF file: a checkpoint would have to take it off. */
    const bool added_one = c->norm_plus_one || qr_family_of(c->arch)->norm_plus_one;
    /* What a forward uses beside the verbs of every Llama, and whether the tape has it. A false stands for a flag of a verb whose backward does not know it. */
    const struct {
        bool used, backward;
        const char *what;
    } rows[] = {{c->moe.n_experts > 0, VERB(feed_experts), "a mixture of experts"},
                {c->sinks, false, "whose heads have sinks"},
                {c->layer_norm, VERB(layer_norm), "which has LayerNorms"},
                {c->n_positions > 0, VERB(add_positions), "which adds a table of positions"},
                {c->ungated, VERB(unit), "whose MLP has no gates"},
                {c->transposed, false, "whose file has transposed matrices"},
                {c->post_norms, false, "which has norms behind its halves"},
                {c->logits_softcap > 0, VERB(softcap), "which caps logits"},
                {c->local_theta > 0, false, "whose layers rotate by two tables"},
                {added_one, false, "whose norms multiply by 1 + w"}};
    for (int i = 0; i < QR_COUNT(rows); i++)
        if (rows[i].used && !rows[i].backward)
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s, %s, is served, not trained", c->arch_name, rows[i].what);
    return 0;
}
