/* attention.c - the gradient of attention, 64 positions against 64 queries at a time; five products of such tiles, all on micro.c:
 *
 *     S = Q K^T    P = e^(S - lse)    dP = dO V^T    dS = P (dP - D)        dQ += dS K    dK += dS^T Q    dV += P^T dO
 *
 * An item of work is one kv head of one sequence: it owns dk and dv of that head and dq of the heads that share it. Pieces of 64 positions from the first on;
 * in each all heads of the group, in each all rows that see it, in blocks of 64. What a query does not see has probability 0. */
#include <math.h>

#include "base/assert.h"
#include "kernels/cpu/isa/backward/back.h"
#include "kernels/cpu/isa/linear/micro.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

#define T 64               /* positions of a piece, queries of a block */
#define K_MAX 256
#define PANELS(n) (((n) + QR_PANEL - 1) / QR_PANEL)

/* A worker's scratch; widths are K rounded up to panels, what is behind K is 0, and so are positions behind the piece up to a whole panel. */
struct scratch {
    float k[T * K_MAX], v[T * K_MAX], k_transposed[K_MAX * T], v_transposed[K_MAX * T]; /* of the piece */
    float dk[T * K_MAX], dv[T * K_MAX];
    float q[T * QR_X_ROW], dout[T * QR_X_ROW];                    /* of the block of queries */
    float s[T * T], dp[T * T], p[T * T], dq[T * K_MAX];
    float ds[T * QR_X_ROW], ds_transposed[T * QR_X_ROW], p_transposed[T * QR_X_ROW];
    float lse[T], weighed[T];                                     /* D */
};
_Static_assert(sizeof(struct scratch) <= QR_WORKER_SCRATCH_BYTES, "tiles of the gradient of attention");

struct back_job {
    const struct qr_attention_back_args *a;
    struct qr_queue *q;
};

/* One head of one sequence against one piece. */
struct part {
    const struct qr_attention_back_args *a;
    struct scratch *m;
    int32_t seq, group, head;
    int32_t t0, n_t;       /* the piece */
    int32_t row, n_rows;   /* the block of queries; row is that of the batch */
    int32_t width;         /* K rounded up */
    bool bf16;
};

/* c[n_c][n_cols] (+)= x[n_c][n_k] w[n_k][n_cols]; x rows QR_X_ROW apart, w rows w_row floats, c rows c_row. */
static void product(float *c, int64_t c_row, const float *x, const float *w, int64_t w_row, int32_t n_c, int32_t n_k, int32_t n_cols, bool onto)
{
    const int32_t most = QR_ISA_NAME(micro_rows_max);
    for (int32_t r = 0, mr; r < n_c; r += mr) {
        mr = n_c - r < most ? n_c - r : most;
        const struct qr_micro_args m = {.c = c + r * c_row, .x = x + r * QR_X_ROW, .w = w, .c_stride = c_row, .w_panel = QR_PANEL * sizeof(float),
                                        .w_step = (size_t)w_row * sizeof(float), .n_steps = n_k, .onto = onto};
        QR_ISA_NAME(micro)(QR_PANEL_ROWS_F32, mr, PANELS(n_cols), &m);
    }
}

/* A row of the cache as f32; what is behind K is 0. */
static void load_cached(float *dst, const struct part *p, int32_t which, int32_t t)
{
    const struct qr_kv_view *kv = p->a->kv;
    const int32_t *blocks = p->a->batch->block_table + (int64_t)p->seq * p->a->batch->table_stride;
    const size_t at = qr_kv_offset(kv, blocks[t / kv->block_tokens], p->a->layer, which, p->group) + (size_t)(t % kv->block_tokens) * (size_t)kv->head_dim;
    for (int32_t i = 0; i < p->width; i += VF_LEN) {
        const int64_t len = kv->head_dim - i > 0 ? vf_min_len(kv->head_dim - i) : 0;
        vf_store(dst + i, len ? vf_load_as_n(kv->base, kv->dtype, at + (size_t)i, len) : vf_zero());
    }
}

/* dst[c][r] = src[r][c] for whole vectors of rows and columns. */
static void transpose(float *dst, int64_t dst_row, const float *src, int64_t src_row, int32_t n_rows, int32_t n_cols)
{
    for (int32_t r = 0; r < n_rows; r += VF_LEN)
        for (int32_t c = 0; c < n_cols; c += VF_LEN) {
            vf v[VF_LEN];
            for (int i = 0; i < VF_LEN; i++)
                v[i] = vf_load(src + (r + i) * src_row + c);
            vf_transpose(v);
            for (int i = 0; i < VF_LEN; i++)
                vf_store(dst + (c + i) * dst_row + r, v[i]);
        }
}

static void load_piece(const struct part *p)
{
    struct scratch *m = p->m;
    const int32_t padded = PANELS(p->n_t) * QR_PANEL;
    const size_t row = (size_t)p->width * sizeof(float), n = (size_t)p->n_t * (size_t)p->width;
    for (int32_t t = 0; t < p->n_t; t++) {
        load_cached(m->k + t * p->width, p, 0, p->t0 + t);
        load_cached(m->v + t * p->width, p, 1, p->t0 + t);
    }
    memset(m->k + n, 0, (size_t)(padded - p->n_t) * row);
    memset(m->v + n, 0, (size_t)(padded - p->n_t) * row);
    memset(m->dk, 0, n * sizeof(float));
    memset(m->dv, 0, n * sizeof(float));
    transpose(m->k_transposed, T, m->k, p->width, padded, p->width);
    transpose(m->v_transposed, T, m->v, p->width, padded, p->width);
}

/* Queries and their gradients of the block, rounded where the cache is bf16; lse and D. */
static void load_queries(const struct part *p)
{
    const struct qr_attention_back_args *a = p->a;
    const int32_t k = a->kv->head_dim;
    for (int32_t r = 0; r < p->n_rows; r++) {
        const int64_t row = p->row + r;
        const float *q = a->q + row * a->q_stride + (int64_t)p->head * k, *dout = a->dout + row * a->dout_stride + (int64_t)p->head * k;
        const float *out = a->out + row * a->out_stride + (int64_t)p->head * k;
        vf sum = vf_zero();
        for (int32_t i = 0; i < p->width; i += VF_LEN) {
            const int64_t len = k - i > 0 ? vf_min_len(k - i) : 0;
            vf qv = len ? vf_load_n(q + i, len) : vf_zero(), dv = len ? vf_load_n(dout + i, len) : vf_zero();
            sum = len ? vf_fma(dv, vf_load_n(out + i, len), sum) : sum;
            vf_store(p->m->q + r * QR_X_ROW + i, p->bf16 ? vf_round_bf16(qv) : qv);
            vf_store(p->m->dout + r * QR_X_ROW + i, p->bf16 ? vf_round_bf16(dv) : dv);
        }
        p->m->weighed[r] = vf_sum(sum);
        p->m->lse[r] = a->lse[row * a->n_heads + p->head];
    }
}

/* Probabilities and gradients of scores of query r, from S and dP, where it sees the piece; 0 elsewhere. */
static void weigh(const struct part *p, int32_t r)
{
    const struct qr_attention_back_args *a = p->a;
    struct scratch *m = p->m;
    const int32_t pos = a->batch->pos[p->row + r], seen = a->window > 0 && pos >= a->window ? pos - a->window + 1 : 0;
    const int32_t first = seen > p->t0 ? seen - p->t0 : 0, end = pos - p->t0 + 1 < p->n_t ? pos - p->t0 + 1 : p->n_t;
    const vf lse = vf_set1(m->lse[r]), weighed = vf_set1(m->weighed[r]), one = vf_set1(1.0f);
    for (int32_t t = 0; t < PANELS(p->n_t) * QR_PANEL; t += VF_LEN) {
        vf s = vf_mul(vf_load(m->s + r * T + t), vf_set1(a->scale)), slope = one;
        if (a->softcap > 0) {
            vf bent = vf_tanh(vf_div(s, vf_set1(a->softcap)));
            s = vf_mul(vf_set1(a->softcap), bent);
            slope = vf_fnma(bent, bent, one);
        }
        vf e = vf_exp(vf_sub(s, lse)), ds = vf_mul(vf_mul(e, vf_sub(vf_load(m->dp + r * T + t), weighed)), slope);
        const int32_t from = first - t < 0 ? 0 : first - t > VF_LEN ? VF_LEN : first - t;
        const int32_t to = end - t < from ? from : end - t > VF_LEN ? VF_LEN : end - t;
        vf_store(m->p + r * T + t, vf_pick_range(from, to, p->bf16 ? vf_round_bf16(e) : e, vf_zero()));
        vf_store(m->ds + r * QR_X_ROW + t, vf_pick_range(from, to, p->bf16 ? vf_round_bf16(ds) : ds, vf_zero()));
    }
}

/* dst[0..k) += scale * src, for n rows. */
static void add_scaled(float *dst, int64_t stride, const float *src, int32_t src_row, int32_t n, int32_t k, float scale)
{
    for (int32_t r = 0; r < n; r++)
        for (int32_t i = 0; i < k; i += VF_LEN) {
            const int64_t len = vf_min_len(k - i);
            float *to = dst + r * stride + i;
            vf_store_n(to, vf_fma(vf_set1(scale), vf_load_n(src + r * src_row + i, len), vf_load_n(to, len)), len);
        }
}

static void block_of_queries(const struct part *p)
{
    const struct qr_attention_back_args *a = p->a;
    struct scratch *m = p->m;
    const int32_t k = a->kv->head_dim;
    load_queries(p);
    product(m->s, T, m->q, m->k_transposed, T, p->n_rows, k, p->n_t, false);
    product(m->dp, T, m->dout, m->v_transposed, T, p->n_rows, k, p->n_t, false);
    for (int32_t r = 0; r < p->n_rows; r++)
        weigh(p, r);
    transpose(m->p_transposed, QR_X_ROW, m->p, T, PANELS(p->n_rows) * QR_PANEL, PANELS(p->n_t) * QR_PANEL);
    transpose(m->ds_transposed, QR_X_ROW, m->ds, QR_X_ROW, PANELS(p->n_rows) * QR_PANEL, PANELS(p->n_t) * QR_PANEL);
    product(m->dq, p->width, m->ds, m->k, p->width, p->n_rows, p->n_t, p->width, false);
    add_scaled(a->dq + p->row * a->dq_stride + (int64_t)p->head * k, a->dq_stride, m->dq, p->width, p->n_rows, k, a->scale);
    product(m->dk, p->width, m->ds_transposed, m->q, QR_X_ROW, p->n_t, p->n_rows, p->width, true);
    product(m->dv, p->width, m->p_transposed, m->dout, QR_X_ROW, p->n_t, p->n_rows, p->width, true);
}

/* What an item owns: dk and dv of a kv head, dq of the heads that share it. */
static void zero_own(const struct qr_attention_back_args *a, int32_t group, int32_t first, int32_t end)
{
    const size_t k = (size_t)a->kv->head_dim, per = (size_t)(a->n_heads / a->kv->n_kv_heads);
    for (int64_t row = first; row < end; row++) {
        memset(a->dq + row * a->dq_stride + group * (int64_t)(per * k), 0, per * k * sizeof(float));
        memset(a->dk + row * a->dk_stride + group * (int64_t)k, 0, k * sizeof(float));
        memset(a->dv + row * a->dv_stride + group * (int64_t)k, 0, k * sizeof(float));
    }
}

static void attention_item(const void *arg, int32_t item, int32_t worker)
{
    const struct back_job *j = arg;
    const struct qr_attention_back_args *a = j->a;
    const int32_t n_groups = a->kv->n_kv_heads, per = a->n_heads / n_groups, k = a->kv->head_dim, seq = item / n_groups;
    const int32_t row0 = a->batch->row_start[seq], n = a->batch->row_start[seq + 1] - row0;
    struct part p = {.a = a, .m = qr_queue_own(j->q, worker), .seq = seq, .group = item % n_groups, .width = PANELS(k) * QR_PANEL,
                     .bf16 = a->kv->dtype == QR_BF16};
    if (a->fresh)
        zero_own(a, p.group, row0, row0 + n);
    for (p.t0 = 0; p.t0 < n; p.t0 += T) {
        /* Rows before the piece do not see it; with a window those far behind it do not either. */
        const int32_t last = a->window > 0 && p.t0 + T - 1 + a->window < n ? p.t0 + T - 1 + a->window : n;
        p.n_t = n - p.t0 < T ? n - p.t0 : T;
        load_piece(&p);
        for (p.head = p.group * per; p.head < (p.group + 1) * per; p.head++)
            for (int32_t r = p.t0; r < last; r += T) {
                p.row = row0 + r;
                p.n_rows = last - r < T ? last - r : T;
                block_of_queries(&p);
            }
        const int64_t row = row0 + p.t0, at = (int64_t)p.group * k;
        add_scaled(a->dk + row * a->dk_stride + at, a->dk_stride, p.m->dk, p.width, p.n_t, k, a->scale);
        add_scaled(a->dv + row * a->dv_stride + at, a->dv_stride, p.m->dv, p.width, p.n_t, k, 1.0f);
    }
}

void QR_ISA_NAME(attention_back)(struct qr_queue *q, const struct qr_attention_back_args *a)
{
    QR_ASSERT(a != NULL && a->batch != NULL && a->kv != NULL && a->lse != NULL && a->dq != NULL && a->dk != NULL && a->dv != NULL);
    QR_ASSERT(a->n_heads % a->kv->n_kv_heads == 0 && a->kv->head_dim <= K_MAX && (a->kv->dtype == QR_F32 || a->kv->dtype == QR_BF16));
    for (int32_t s = 0; s < a->batch->n_seqs; s++)
        QR_ASSERT(a->batch->row_start[s] == a->batch->row_start[s + 1] || a->batch->pos[a->batch->row_start[s]] == 0);
    const struct back_job j = {a, q};
    qr_queue_run(q, attention_item, &j, (int64_t)a->batch->n_seqs * a->kv->n_kv_heads);
}
