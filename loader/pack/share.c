#include "loader/pack/share.h"

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

static int check(const struct qr_model_config *c, int32_t size, struct qr_err *err)
{
    const int32_t widths[] = {c->n_ffn, c->moe.n_ffn, c->moe.n_ffn_shared, c->n_vocab};
    if (c->qk_norm_rows)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s has norms over all heads of q and k, of which no rank has all; use "
                          "--tensor-parallel 1", c->arch_name);
    if (size > c->n_kv_heads)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%d ranks, but the model has %d key-value heads (num_key_value_heads), of which each rank needs one; use "
                          "--tensor-parallel %d or less", size, c->n_kv_heads, c->n_kv_heads);
    for (int i = 0; i < QR_COUNT(widths); i++)
        if (widths[i] > 0 && size > widths[i])
            return qr_err_set(err, QR_E_UNSUPPORTED, "%d ranks, but the model has %d columns of feed-forward and a vocabulary of %d", size,
                              c->moe.n_ffn > 0 ? c->moe.n_ffn : c->n_ffn, c->n_vocab);
    return 0;
}

/* A rank's part of n columns, in vectors, tiles and units of coded weights where there are enough. */
static int32_t columns(int32_t *first, int32_t n, int32_t rank, int32_t size)
{
    const int32_t unit = unit_of(n, 256, 8, size);
    *first = cut(n, unit, rank, size);
    return cut(n, unit, rank + 1, size) - *first;
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
    const int32_t vocab = unit_of(c->n_vocab, QR_LINEAR_STRETCH, 1, size); /* in the stretches that the head's product describes (kernels.h) */
    s->rank = rank;
    s->size = size;
    s->whole_stretches = vocab == QR_LINEAR_STRETCH;
    s->first_kv_head = cut(c->n_kv_heads, 1, rank, size);
    s->first_vocab = cut(c->n_vocab, vocab, rank, size);
    s->own.n_kv_heads = cut(c->n_kv_heads, 1, rank + 1, size) - s->first_kv_head;
    s->own.n_heads = s->own.n_kv_heads * (c->n_heads / c->n_kv_heads);
    s->own.n_ffn = columns(&s->first_ffn, c->n_ffn, rank, size);
    s->own.moe.n_ffn = columns(&s->first_expert_ffn, c->moe.n_ffn, rank, size);
    s->own.moe.n_ffn_shared = columns(&s->first_shared_ffn, c->moe.n_ffn_shared, rank, size);
    s->own.n_vocab = cut(c->n_vocab, vocab, rank + 1, size) - s->first_vocab;
    QR_ASSERT(s->own.n_kv_heads > 0 && (s->own.n_ffn > 0 || s->own.moe.n_ffn > 0) && s->own.n_vocab > 0);
    return 0;
}

int32_t qr_share_spans(struct qr_span out[QR_SHARE_SPANS_MAX], const struct qr_share *s, enum qr_dim dim)
{
    QR_ASSERT(out != NULL && s != NULL);
    const int64_t total = qr_dim_value(&s->whole, dim), own = qr_dim_value(&s->own, dim);
    const int64_t q = qr_dim_value(&s->whole, QR_DIM_Q), kv = qr_dim_value(&s->whole, QR_DIM_KV), f = s->whole.n_ffn;
    const int64_t group = s->whole.n_heads / s->whole.n_kv_heads, first_kv = (int64_t)s->first_kv_head * s->whole.head_dim;
    const struct qr_span heads = {first_kv * group, qr_dim_value(&s->own, QR_DIM_Q)}, keys = {q + first_kv, qr_dim_value(&s->own, QR_DIM_KV)};
    const struct qr_span gates = {s->first_ffn, s->own.n_ffn}, expert = {s->first_expert_ffn, s->own.moe.n_ffn};
    const struct qr_span shared = {s->first_shared_ffn, s->own.moe.n_ffn_shared};
    int32_t n = 1;
    out[0] = (struct qr_span){0, total};
    if (own == total)
        return n;
    switch ((int)dim) {
    case QR_DIM_HEADS: out[0] = (struct qr_span){s->first_kv_head * group, s->own.n_heads}; break;
    case QR_DIM_Q: out[0] = heads; break;
    case QR_DIM_KV: out[0] = (struct qr_span){first_kv, keys.n}; break;
    case QR_DIM_QKV: out[0] = heads, out[1] = keys, out[2] = (struct qr_span){keys.first + kv, keys.n}, n = 3; break;
    case QR_DIM_FFN: out[0] = gates; break;
    case QR_DIM_2FFN: out[0] = gates, out[1] = (struct qr_span){f + gates.first, gates.n}, n = 2; break;
    case QR_DIM_EXPERT_FFN: out[0] = expert; break;
    case QR_DIM_2EXPERT_FFN: out[0] = expert, out[1] = (struct qr_span){s->whole.moe.n_ffn + expert.first, expert.n}, n = 2; break;
    case QR_DIM_SHARED_FFN: out[0] = shared; break;
    case QR_DIM_2SHARED_FFN: out[0] = shared, out[1] = (struct qr_span){s->whole.moe.n_ffn_shared + shared.first, shared.n}, n = 2; break;
    case QR_DIM_VOCAB: out[0] = (struct qr_span){s->first_vocab, s->own.n_vocab}; break;
    default: QR_ASSERT(false); /* no tensor has such rows */
    }
    return n;
}
