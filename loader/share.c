#include "loader/share.h"

#include "base/assert.h"

/* Where rank r's part of n begins when whole units are shared out, the first ranks getting what is left over. */
static int32_t cut(int32_t n, int32_t unit, int32_t r, int32_t size)
{
    const int64_t units = (n + unit - 1) / unit, at = units / size * r + (r < units % size ? r : units % size);
    return at * unit < n ? (int32_t)(at * unit) : n;
}

/* The largest power of two, at most `most`, that leaves every rank `per_rank` units, if there is one. */
static int32_t unit_of(int32_t n, int32_t most, int32_t per_rank, int32_t size)
{
    int32_t unit = most;
    while (unit > 1 && n / unit < per_rank * size)
        unit /= 2;
    return unit;
}

void qr_share_whole(struct qr_share *s, const struct qr_model_config *c)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(c != NULL);
    *s = (struct qr_share){.size = 1, .whole = *c, .own = *c, .whole_stretches = true};
}

/* Architectures all of whose layers are cut: attend and feed of ops.h, and nothing else. */
static bool can_cut(const struct qr_model_config *c)
{
    static const enum qr_arch known[] = {QR_ARCH_LLAMA, QR_ARCH_MISTRAL, QR_ARCH_QWEN2,   QR_ARCH_QWEN3,
                                         QR_ARCH_PHI3,  QR_ARCH_SMOLLM3, QR_ARCH_GRANITE, QR_ARCH_GEMMA};
    for (int i = 0; i < QR_COUNT(known); i++)
        if (known[i] == c->arch)
            return c->moe.n_experts == 0 && !c->layer_norm && !c->post_norms && !c->ungated && c->logits_softcap == 0;
    return false;
}

static int check(const struct qr_model_config *c, int32_t size, struct qr_err *err)
{
    if (!can_cut(c))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s is not computed by several ranks; use --tensor-parallel 1", c->arch_name);
    if (size > c->n_kv_heads)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%d ranks, but the model has %d key-value heads (num_key_value_heads), of which each rank needs one; use "
                          "--tensor-parallel %d or less", size, c->n_kv_heads, c->n_kv_heads);
    if (size > c->n_ffn || size > c->n_vocab)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%d ranks, but the model has %d columns of feed-forward and a vocabulary of %d", size, c->n_ffn, c->n_vocab);
    return 0;
}

int qr_share_make(struct qr_share *s, const struct qr_model_config *c, int32_t rank, int32_t size, struct qr_err *err)
{
    QR_ASSERT(s != NULL && c != NULL && err != NULL);
    QR_ASSERT(rank >= 0 && rank < size && c->n_heads % c->n_kv_heads == 0);
    qr_share_whole(s, c);
    if (size == 1)
        return 0;
    int rc = check(c, size, err);
    if (rc)
        return rc;
    /* Columns in vectors, tiles and units of coded weights; rows of the vocabulary in the stretches that the head's product describes (kernels.h), where there
     * are enough. */
    const int32_t ffn = unit_of(c->n_ffn, 256, 8, size), vocab = unit_of(c->n_vocab, QR_LINEAR_STRETCH, 1, size);
    s->rank = rank;
    s->size = size;
    s->whole_stretches = vocab == QR_LINEAR_STRETCH;
    s->first_kv_head = cut(c->n_kv_heads, 1, rank, size);
    s->first_ffn = cut(c->n_ffn, ffn, rank, size);
    s->first_vocab = cut(c->n_vocab, vocab, rank, size);
    s->own.n_kv_heads = cut(c->n_kv_heads, 1, rank + 1, size) - s->first_kv_head;
    s->own.n_heads = s->own.n_kv_heads * (c->n_heads / c->n_kv_heads);
    s->own.n_ffn = cut(c->n_ffn, ffn, rank + 1, size) - s->first_ffn;
    s->own.n_vocab = cut(c->n_vocab, vocab, rank + 1, size) - s->first_vocab;
    QR_ASSERT(s->own.n_kv_heads > 0 && s->own.n_ffn > 0 && s->own.n_vocab > 0);
    return 0;
}

int32_t qr_share_spans(struct qr_span out[QR_SHARE_SPANS_MAX], const struct qr_share *s, enum qr_dim dim)
{
    QR_ASSERT(out != NULL && s != NULL);
    const int64_t total = qr_dim_value(&s->whole, dim), own = qr_dim_value(&s->own, dim);
    const int64_t q = qr_dim_value(&s->whole, QR_DIM_Q), kv = qr_dim_value(&s->whole, QR_DIM_KV), f = s->whole.n_ffn;
    const int64_t group = s->whole.n_heads / s->whole.n_kv_heads, first_kv = (int64_t)s->first_kv_head * s->whole.head_dim;
    const struct qr_span heads = {first_kv * group, qr_dim_value(&s->own, QR_DIM_Q)}, keys = {q + first_kv, qr_dim_value(&s->own, QR_DIM_KV)};
    const struct qr_span gates = {s->first_ffn, s->own.n_ffn};
    int32_t n = 1;
    out[0] = (struct qr_span){0, total};
    if (own == total)
        return n;
    switch ((int)dim) {
    case QR_DIM_Q: out[0] = heads; break;
    case QR_DIM_KV: out[0] = (struct qr_span){first_kv, keys.n}; break;
    case QR_DIM_QKV: out[0] = heads, out[1] = keys, out[2] = (struct qr_span){keys.first + kv, keys.n}, n = 3; break;
    case QR_DIM_FFN: out[0] = gates; break;
    case QR_DIM_2FFN: out[0] = gates, out[1] = (struct qr_span){f + gates.first, gates.n}, n = 2; break;
    case QR_DIM_VOCAB: out[0] = (struct qr_span){s->first_vocab, s->own.n_vocab}; break;
    default: QR_ASSERT(false); /* no tensor has such rows */
    }
    return n;
}
