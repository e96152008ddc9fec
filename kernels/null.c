#include "kernels/null.h"

#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/cpu/pool.h"

#define PEAKS 16

/* A step arena begins as zeros, and this is all that is ever written to it: a row of logits has some likely ids, about the same ones in every
 * step, and all others alike, so that samplers find a small nucleus as a trained model gives it. */
static void begin_stretches(const struct qr_stretches *s, int64_t r, int32_t n)
{
    for (int64_t i = 0; i * QR_LINEAR_STRETCH < n; i++) {
        const int64_t left = n - i * QR_LINEAR_STRETCH;
        s->largest[r * s->stride + i] = 0;
        if (s->sum)
            s->sum[r * s->stride + i] = (float)(left < QR_LINEAR_STRETCH ? left : QR_LINEAR_STRETCH);
    }
}

/* The sum goes on from e^0 = 1 to the peak. */
static void add_peak(const struct qr_stretches *s, int64_t r, int64_t i, float peak)
{
    const float scale = s->sum ? s->scale[r] : 0, old = s->largest[r * s->stride + i], most = peak > old ? peak : old;
    s->largest[r * s->stride + i] = most;
    if (scale > 0)
        s->sum[r * s->stride + i] = (s->sum[r * s->stride + i] - expf(-scale * old)) * expf(scale * (old - most)) + expf(scale * (peak - most));
}

struct peaks {
    float *out;
    int64_t stride;
    int32_t n;
    const struct qr_stretches *stretches;
};

static void write_row(const void *arg, int32_t r, int32_t worker)
{
    const struct peaks *p = arg;
    QR_ASSERT(r >= 0 && worker >= 0);
    if (p->stretches) { /* what it says of a row must be true: peaks of another step may lie there */
        memset(p->out + (int64_t)r * p->stride, 0, (size_t)p->n * sizeof *p->out);
        begin_stretches(p->stretches, r, p->n);
    }
    for (int32_t k = 0; k < PEAKS && k < p->n; k++) {
        const int64_t o = ((int64_t)r * 7919 + k * 131 + 97) % p->n;
        const float peak = 16.0f - 0.5f * (float)k;
        p->out[(int64_t)r * p->stride + o] = peak;
        if (p->stretches)
            add_peak(p->stretches, r, o / QR_LINEAR_STRETCH, peak);
    }
}

/* The head's rows are written by all workers, which are awake when sampling begins and have some of them in their caches, as behind a real head. */
static void write_peaks(struct qr_queue *q, float *out, int64_t stride, int32_t n_rows, int32_t n, const struct qr_stretches *stretches)
{
    const struct peaks p = {out, stride, n, stretches};
    if (stretches)
        qr_queue_run(q, write_row, &p, n_rows);
    else
        qr_queue_run_here(write_row, &p, n_rows);
}

static void null_linear(struct qr_queue *q, const struct qr_linear_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
    QR_ASSERT(a->out != NULL);
    write_peaks(q, a->out, a->out_stride, a->n_rows, a->glu ? a->n_out / 2 : a->n_out, a->stretches);
}

static void null_softcap(struct qr_queue *q, const struct qr_softcap_args *a)
{
    QR_ASSERT(q != NULL && a != NULL);
    QR_ASSERT(a->x != NULL);
    write_peaks(q, a->x, a->stride, a->n_rows, a->n_cols, a->stretches);
}

#define NOTHING(name, type)                                         \
    static void null_##name(struct qr_queue *q, const struct type *a) \
    {                                                               \
        QR_ASSERT(q != NULL);                                       \
        QR_ASSERT(a != NULL);                                       \
    }

NOTHING(rms_norm, qr_norm_args)
NOTHING(head_norm, qr_head_norm_args)
NOTHING(residual_add, qr_add_args)
NOTHING(embed, qr_embed_args)
NOTHING(rope_table, qr_rope_table_args)
NOTHING(rope, qr_rope_args)
NOTHING(kv_write, qr_kv_write_args)
NOTHING(qkv, qr_qkv_args)
NOTHING(kv_copy, qr_kv_copy_args)
NOTHING(attention, qr_attention_args)
NOTHING(glu, qr_glu_args)
NOTHING(gather_rows, qr_gather_args)
NOTHING(pick_columns, qr_pick_args)
NOTHING(adapt, qr_adapt_args)
NOTHING(route, qr_route_args)
NOTHING(experts, qr_experts_args)
NOTHING(layer_norm, qr_layer_norm_args)
NOTHING(unit, qr_unit_args)

static void null_chain(struct qr_queue *q, const struct qr_chain_args *a)
{
    QR_ASSERT(a != NULL && a->linear != NULL);
    QR_ASSERT(a->n >= 1 && a->n <= QR_CHAIN_MAX);
    for (int32_t i = 0; i < a->n; i++)
        null_linear(q, &a->linear[i]);
}

static size_t null_packed_bytes(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    QR_ASSERT(qr_dtype_multiplies(to));
    QR_ASSERT(n_out > 0 && n_in > 0);
    return 64;
}

static void null_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows,
                      enum qr_dtype from, int64_t n_rows)
{
    QR_ASSERT(q != NULL && dst != NULL && rows != NULL);
    QR_ASSERT(qr_dtype_packs(to) && qr_dtype_bytes(from) > 0);
    QR_ASSERT(row0 >= 0 && row0 + n_rows <= n_out && n_in > 0);
}

static void null_pack_coded(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const struct qr_coded_source *rows,
                            int64_t n_rows)
{
    QR_ASSERT(q != NULL && dst != NULL && rows != NULL);
    QR_ASSERT(qr_dtype_is_coded(to) && row0 >= 0 && row0 + n_rows <= n_out && n_in > 0);
}

const struct qr_kernels qr_null_kernels = {
    .name = "null",
    .linear = null_linear,
    .rms_norm = null_rms_norm,
    .head_norm = null_head_norm,
    .residual_add = null_residual_add,
    .embed = null_embed,
    .rope_table = null_rope_table,
    .rope = null_rope,
    .kv_write = null_kv_write,
    .qkv = null_qkv,
    .chain = null_chain,
    .kv_copy = null_kv_copy,
    .attention = null_attention,
    .glu = null_glu,
    .gather_rows = null_gather_rows,
    .pick_columns = null_pick_columns,
    .adapt = null_adapt,
    .route = null_route,
    .experts = null_experts,
    .layer_norm = null_layer_norm,
    .unit = null_unit,
    .softcap = null_softcap,
    .linear_packed_bytes = null_packed_bytes,
    .linear_pack = null_pack,
    .linear_pack_coded = null_pack_coded,
};
