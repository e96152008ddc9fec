/* Any bytes as an adapter, its settings up to the first NUL and its matrices behind it: a clean refusal, or pairs whose numbers can all be read. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "loader/lora.h"
#include "loader/make_model.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(const struct qr_lora_file *f, const struct qr_stored_tensor *t)
{
    const int64_t n = t->shape[0] * t->shape[1];
    float *x = qr_alloc((size_t)n, sizeof *x);
    qr_lora_file_decode(f, t, x, 0, t->shape[0]);
    volatile float sink = n > 0 ? x[n - 1] : 0;
    (void)sink;
    qr_free(x);
}

/* Everything that it has for a small model. */
static void try_pairs(struct qr_lora_file *f)
{
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct qr_err err = {0};
    int rc = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(&c); rc == 0 && qr_weight_walk_next(&k);) {
        char name[QR_WEIGHT_NAME_MAX];
        struct qr_lora_pair pair;
        if (k.row->kind != QR_KIND_MATRIX || !k.row->per_layer)
            continue;
        const int64_t n_out = qr_dim_value(&c, k.row->n_out), n_in = qr_dim_value(&c, k.row->n_in);
        rc = qr_lora_file_find(f, &pair, qr_weight_walk_name(name, &k), n_out, n_in, "a model", &err);
        if (rc != 0 || !pair.a)
            continue;
        QR_ASSERT(pair.rank >= 1 && pair.rank <= qr_lora_file_rank(f));
        QR_ASSERT(pair.a->shape[0] == pair.rank && pair.a->shape[1] == n_in && pair.b->shape[0] == n_out && pair.b->shape[1] == pair.rank);
        read_all(f, pair.a);
        read_all(f, pair.b);
    }
    rc = rc ? rc : qr_lora_file_check_used(f, "a model", &err);
    QR_ASSERT(rc == 0 || err.msg[0] != 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_lora_file *f;
    struct qr_err err = {0};
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t n = end ? (size_t)(end - data) : size, rest = end ? size - n - 1 : 0;
    const int rc = qr_lora_file_open_memory(&f, data, n, end ? end + 1 : NULL, rest, &err);
    if (rc) {
        QR_ASSERT(err.msg[0] != 0 && err.code == (enum qr_code)rc);
        return 0;
    }
    QR_ASSERT(qr_lora_file_rank(f) >= 1);
    try_pairs(f);
    qr_lora_file_close(f);
    return 0;
}
