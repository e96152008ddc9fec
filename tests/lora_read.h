/* lora_read.h - everything that an adapter's files hold for a model, read to the last number. */
#ifndef QR_TESTS_LORA_READ_H
#define QR_TESTS_LORA_READ_H

#include "base/assert.h"
#include "base/mem.h"
#include "loader/adapters/lora.h"

static inline void lora_read_matrix(const struct qr_lora_file *f, const struct qr_stored_tensor *t)
{
    const int64_t n = t->shape[0] * t->shape[1];
    float *x = qr_alloc((size_t)n, sizeof *x);
    qr_lora_file_decode(f, t, x, 0, t->shape[0]);
    volatile float sink = n > 0 ? x[n - 1] : 0;
    (void)sink;
    qr_free(x);
}

/* The pairs of every matrix of the layers, and that nothing is left. */
static inline int lora_read_all(struct qr_lora_file *f, const struct qr_model_config *c, struct qr_err *err)
{
    int rc = qr_lora_file_fit(f, c, c->transposed, err);
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); rc == 0 && qr_weight_walk_next(&k);) {
        char name[QR_WEIGHT_NAME_MAX];
        struct qr_lora_pair pair;
        if (k.row->kind != QR_KIND_MATRIX || !k.row->per_layer)
            continue;
        const int64_t n_out = qr_dim_value(c, k.row->n_out), n_in = qr_dim_value(c, k.row->n_in);
        rc = qr_lora_file_find(f, &pair, qr_weight_walk_name(name, &k), n_out, n_in, "a model", err);
        if (rc != 0 || !pair.a)
            continue;
        QR_ASSERT(pair.rank >= 1 && pair.rank <= qr_lora_file_rank(f));
        QR_ASSERT(pair.a->shape[0] == pair.rank && pair.a->shape[1] == n_in && pair.b->shape[0] == n_out && pair.b->shape[1] == pair.rank);
        lora_read_matrix(f, pair.a);
        lora_read_matrix(f, pair.b);
    }
    return rc ? rc : qr_lora_file_check_used(f, "a model", err);
}

#endif
