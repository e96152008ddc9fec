/* Attention over the paged cache: one family for decode, append and prompts (kernels.h, attention). Tiles for bf16 (attend_tiles.h), a plain kernel for f32,
 * and the way to the kernels of other files. */
#include "kernels/cuda/attend_tiles.h"

/* ---- bf16: scores ---- */

template <class of>
QR_DEVICE void add_scores(float s[of::MINE][of::EIGHTS][4], const struct rows<of> &w, const struct attention &a, uint16_t *queries, uint8_t *stage)
{
    (void)a;
    uint16_t *keys = (uint16_t *)stage;
#pragma unroll 1
    for (int k = 0; k < of::D / 16; k++) { /* registers are scarce here and below */
        uint32_t q[of::MINE][4];
#pragma unroll
        for (int m = 0; m < of::MINE; m++)
            qr_ldmatrix<4>(q[m], qr_chunk_at<of::D>(queries, (w.down * of::MINE + m) * 16 + w.lane % 16, 2 * k + w.lane / 16));
#pragma unroll
        for (int n = 0; n < of::EIGHTS; n += 2) {
            uint32_t key[4];
            qr_ldmatrix<4>(key, qr_chunk_at<of::D>(keys, w.beside * of::KEYS + n * 8 + w.lane / 16 * 8 + w.lane % 8, 2 * k + w.lane / 8 % 2));
#pragma unroll
            for (int m = 0; m < of::MINE; m++) {
                qr_mma_bf16(s[m][n], q[m], key);
                qr_mma_bf16(s[m][n + 1], q[m], key + 2);
            }
        }
    }
}

/* ---- infinities and NaN among values that some rows of the tile do not see: a weight of 0 would not keep them out ---- */

/* Whether the rows of a tile see different parts of what was loaded of a tile of positions. */
QR_DEVICE bool rows_differ(const struct attention &a, const struct item &it, int32_t tile)
{
    const int32_t begin = max(tile * TILE, it.begin), end = min(tile * TILE + TILE, it.end);
    return end - 1 > it.first_pos || (a.window > 0 && begin < it.last_pos - a.window + 1);
}

QR_DEVICE bool beyond_numbers(uint32_t h)
{
    return (h & 0x7f80u) == 0x7f80u;
}

/* Makes them zeros; whether there were any. All of the block call it. */
template <int D> QR_DEVICE bool take_out(uint16_t *values)
{
    bool any = false;
    for (int32_t i = (int32_t)threadIdx.x; i < TILE * D; i += THREADS)
        if (beyond_numbers(values[i])) {
            values[i] = 0;
            any = true;
        }
    return __syncthreads_or(any);
}

/* And adds them to the rows that see them: once one is in a sum, neither the order nor the other terms matter. */
template <class of>
QR_DEVICE void put_back(float out[of::MINE][of::OUT_EIGHTS][4], const struct rows<of> &w, const struct attention &a, const struct item &it,
                        uint16_t *weights, int32_t tile)
{
#pragma unroll 1
    for (int32_t t = max(tile * TILE, it.begin); t < min(tile * TILE + TILE, it.end); t++) {
        const uint16_t *value = (const uint16_t *)qr_paged_at(a.kv, it.seq, 1, (int32_t)blockIdx.y, t, 2);
#pragma unroll
        for (int i = 0; i < of::OUT_EIGHTS * 2; i++) {
            const int32_t col = w.col(i / 2, i % 2);
            const uint32_t v = col < a.kv.head_dim ? value[col] : 0;
            if (!beyond_numbers(v))
                continue;
#pragma unroll
            for (int r = 0; r < 2 * of::MINE; r++)
                if (t <= w.last[r] && (a.window == 0 || t > w.last[r] - a.window))
                    out[r / 2][i / 2][r % 2 * 2 + i % 2] += qr_from_bf16(qr_chunk_at<PIECE>(weights, w.at(r), t % PIECE / 8)[t % 8]) * qr_from_bf16(v);
        }
    }
}

/* ---- bf16: weighted values ---- */

template <class of>
QR_DEVICE void add_values(float out[of::MINE][of::OUT_EIGHTS][4], const struct rows<of> &w, const struct attention &a, const struct item &it, uint16_t *weights,
                          uint8_t *stage, int32_t tile)
{
    uint16_t *values = (uint16_t *)stage;
    const bool taken = rows_differ(a, it, tile) && take_out<of::D>(values);
#pragma unroll 2
    for (int k = 0; k < TILE / 16; k++) {
        uint32_t p[of::MINE][4];
        load_weights<of>(p, w, weights, tile, k);
#pragma unroll
        for (int n = 0; n < of::OUT_EIGHTS; n += 2) {
            uint32_t v[4];
            qr_ldmatrix_trans<4>(v, qr_chunk_at<of::D>(values, k * 16 + w.lane % 16, w.beside * of::COLS / 8 + n + w.lane / 16));
#pragma unroll
            for (int m = 0; m < of::MINE; m++) {
                qr_mma_bf16(out[m][n], p[m], v);
                qr_mma_bf16(out[m][n + 1], p[m], v + 2);
            }
        }
    }
    if (taken)
        put_back<of>(out, w, a, it, weights, tile);
}

/* ---- f32: one block a row and head, plain ---- */

QR_DEVICE float block_max(float x, float *partial)
{
    x = qr_warp_max(x);
    __syncthreads();
    if (threadIdx.x % QR_WARP == 0)
        partial[threadIdx.x / QR_WARP] = x;
    __syncthreads();
    return fmaxf(fmaxf(partial[0], partial[1]), fmaxf(partial[2], partial[3]));
}

QR_KERNEL(THREADS) attend_plain(struct attention a)
{
    QR_SHARED_ARRAY(float, query, 256);
    QR_SHARED_ARRAY(float, weight, PIECE);
    QR_SHARED_ARRAY(float, partial, WARPS);
    const int32_t row = (int32_t)blockIdx.x, head = (int32_t)blockIdx.y, g = head / a.group, me = (int32_t)threadIdx.x, pos = a.pos[row];
    int32_t low = 0, high = a.n_seqs; /* row_start[low] <= row < row_start[high] */
    while (high - low > 1) {
        const int32_t middle = (low + high) / 2;
        if (a.row_start[middle] <= row)
            low = middle;
        else
            high = middle;
    }
    const int32_t begin = a.window > 0 ? max(0, pos - a.window + 1) : 0;
    for (int32_t i = me; i < a.kv.head_dim; i += THREADS)
        query[i] = a.q[row * a.q_stride + head * a.kv.head_dim + i];
    float top = -INFINITY, sum = 0, out[2] = {0, 0};
    for (int32_t piece = begin / PIECE; piece <= pos / PIECE; piece++) {
        const int32_t from = max(begin, piece * PIECE), to = min(pos + 1, piece * PIECE + PIECE);
        float s[2] = {-INFINITY, -INFINITY}, scale_old, scale_fresh;
        __syncthreads(); /* the query; the last piece's weights are used up */
        for (int j = 0; j < 2; j++) {
            const int32_t t = piece * PIECE + j * THREADS + me;
            if (t < from || t >= to)
                continue;
            const float *key = (const float *)qr_paged_at(a.kv, low, 0, g, t, 4);
            float dot = 0;
            for (int32_t i = 0; i < a.kv.head_dim; i++)
                dot = fmaf(query[i], key[i], dot);
            s[j] = a.before != 0 ? tanhf(dot * a.before) : dot;
        }
        const float piece_top = block_max(fmaxf(s[0], s[1]), partial) * a.after;
        for (int j = 0; j < 2; j++)
            weight[j * THREADS + me] = s[j] == -INFINITY ? 0.0f : qr_exp2(fmaf(s[j], a.after, -piece_top));
        __syncthreads();
        float piece_sum = 0, fresh[2] = {0, 0};
        for (int32_t t = from; t < to; t++) {
            const float *value = (const float *)qr_paged_at(a.kv, low, 1, g, t, 4);
            const float p = weight[t % PIECE];
            piece_sum += p;
            for (int j = 0; j < 2; j++)
                if (j * THREADS + me < a.kv.head_dim)
                    fresh[j] = fmaf(p, value[j * THREADS + me], fresh[j]);
        }
        join_piece(&top, &sum, piece_top, piece_sum, &scale_old, &scale_fresh);
        for (int j = 0; j < 2; j++)
            out[j] = fmaf(fresh[j], scale_fresh, out[j] * scale_old);
    }
    const float old = join_sink(a, head, &top, &sum);
    for (int j = 0; j < 2; j++)
        if (j * THREADS + me < a.kv.head_dim)
            a.out[row * a.out_stride + head * a.kv.head_dim + j * THREADS + me] = out[j] * old / sum;
    if (a.lse && me == 0)
        a.lse[(int64_t)row * a.n_heads + head] = fmaf(top, LN_2, logf(sum));
}

/* ---- the host's side ---- */

extern "C" void qr_cuda_attention(struct qr_queue *q, const struct qr_attention_args *args)
{
    QR_ASSERT(q != NULL && args != NULL && args->batch != NULL && args->kv != NULL);
    const struct qr_kv_view *kv = args->kv;
    const struct qr_batch *b = args->batch, *host = qr_batch_host(b);
    QR_ASSERT(args->n_heads % kv->n_kv_heads == 0);
    QR_ASSERT(args->scale > 0 && args->softcap >= 0 && args->window >= 0);
    if (b->n_tokens == 0)
        return;
    const bool cap = args->softcap > 0;
    const struct attention a = {
        .out = args->out, .lse = args->lse, .partial = (float *)q->scratch, .q = args->q, .sinks = args->sinks,
        .pos = b->pos, .row_start = b->row_start, .ctx_len = b->ctx_len,
        .kv = qr_paged_of(kv, b, args->layer), .out_stride = args->out_stride, .q_stride = args->q_stride, .n_seqs = b->n_seqs, .n_heads = args->n_heads,
        .group = args->n_heads / kv->n_kv_heads, .window = args->window, .run = 1, .kept = 0, .small = SMALL, .e4m3 = kv->dtype == QR_E4M3,
        .before = cap ? args->scale / args->softcap : 0.0f,
        .after = (cap ? args->softcap : args->scale) * QR_LOG2_E};
    if (kv->dtype == QR_F32) {
        QR_LAUNCH(attend_plain, dim3((unsigned int)b->n_tokens, (unsigned int)args->n_heads), THREADS, 0, q, a);
    } else if (qr_kv_has_scales(kv->dtype)) {
        attention_codes(q, &a, kv, host);
    } else if (attention_hopper(q, &a, kv, args->layer, host)) {
        return;
    } else if (kv->head_dim <= 64) {
        launch_tiles<shape<64, 1, 0>>(q, a, host);
        launch_tiles<shape<64, 4, 0>>(q, a, host);
    } else if (kv->head_dim <= 128) {
        launch_tiles<shape<128, 1, 0>>(q, a, host);
        launch_tiles<shape<128, 4, 0>>(q, a, host);
    } else {
        launch_tiles<shape<256, 1, 0>>(q, a, host);
        launch_tiles<shape<256, 2, 0>>(q, a, host);
    }
}

QR_STOPS(attention)
