/* Any text as config.json, up to the first NUL, and what is behind it as generation_config.json: a clean refusal, or a configuration whose every number is
 * inside of its bounds and which reads back as the same when it is written. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "loader/config/hf_config.h"
#include "loader/weight_table.h"

static void check_numbers(const struct qr_model_config *c)
{
    QR_ASSERT(c->n_layers >= 1 && c->n_layers <= QR_LAYERS_MAX && c->n_embd >= 1 && c->n_ffn >= 1 && c->n_vocab >= 1);
    QR_ASSERT(c->n_heads >= 1 && c->n_kv_heads >= 1 && c->n_heads % c->n_kv_heads == 0 && c->head_dim >= 2 && c->head_dim % 2 == 0);
    QR_ASSERT(c->ctx_max >= 1 && qr_model_ctx_limit(c) >= c->ctx_max && c->window >= 0);
    QR_ASSERT(c->n_eos >= 0 && c->n_eos <= QR_EOS_MAX && c->bos_id >= -1 && c->bos_id < c->n_vocab);
    for (int32_t i = 0; i < c->n_eos; i++)
        QR_ASSERT(c->eos_ids[i] >= 0 && c->eos_ids[i] < c->n_vocab);
    QR_ASSERT(c->rope.n_factors <= QR_ROPE_PAIRS_MAX && qr_rope_numbers(&c->rope, c->head_dim) <= c->head_dim);
    QR_ASSERT(c->moe.n_experts >= 0 && c->moe.n_experts <= QR_EXPERTS_MAX && c->moe.n_used <= c->moe.n_experts);
    QR_ASSERT(c->quant.bits >= 0 && c->quant.bits <= 16 && c->quant.group >= 0 && c->quant.block_out >= 0 && c->quant.block_in >= 0);
}

/* The names of every tensor that such a model has. */
static void walk(const struct qr_model_config *c)
{
    char name[QR_WEIGHT_NAME_MAX];
    int32_t n = 0;
    for (struct qr_weight_walk k = qr_weight_walk_begin(c); n < 1000 && qr_weight_walk_next(&k); n++)
        QR_ASSERT(qr_weight_walk_name(name, &k)[0] != 0 && qr_dim_value(c, k.row->n_out) >= 1);
    QR_ASSERT(n > 0);
}

/* Reads back what was written of c; it is the same when it is written. */
static void read_back(const struct qr_buf *text, const struct qr_model_config *c)
{
    struct qr_model_config back;
    struct qr_err err = {0};
    struct qr_buf first = {0}, second = {0};
    if (qr_hf_config_parse(&back, text->data, text->len, NULL, 0, &err) != 0)
        qr_panic("what was written is refused: %s\n%s", err.msg, text->data);
    qr_hf_config_write(&first, c);
    qr_hf_config_write(&second, &back);
    if (strcmp(first.data, second.data) != 0)
        qr_panic("what was written reads back as another:\n%s\n%s\n%s", text->data, first.data, second.data);
    qr_buf_release(&first);
    qr_buf_release(&second);
}

/* By itself, and with the rest of the file that it is of. */
static void write_and_read(const struct qr_model_config *c, const char *file, size_t n)
{
    struct qr_err err = {0};
    struct qr_buf alone = {0}, kept = {0}, source = {0};
    qr_buf_put(&source, file, n);
    qr_hf_config_write(&alone, c);
    read_back(&alone, c);
    if (qr_hf_config_write_kept(&kept, c, source.data, &err) != 0)
        qr_panic("what was read is refused: %s", err.msg);
    read_back(&kept, c);
    qr_buf_release(&alone);
    qr_buf_release(&kept);
    qr_buf_release(&source);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct qr_model_config c;
    struct qr_err err = {0};
    const uint8_t *end = size > 0 ? memchr(data, 0, size) : NULL;
    const size_t n = end ? (size_t)(end - data) : size;
    int rc = qr_hf_config_parse(&c, (const char *)data, n, end ? (const char *)end + 1 : NULL, end ? size - n - 1 : 0, &err);
    if (rc) {
        QR_ASSERT(err.msg[0] != 0 && err.code == (enum qr_code)rc);
        return 0;
    }
    check_numbers(&c);
    walk(&c);
    write_and_read(&c, (const char *)data, n);
    return 0;
}
