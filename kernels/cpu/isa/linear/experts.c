/* experts.c - mixtures of experts. Pairs of a row and one of its experts are sorted by expert; then each expert that is wanted multiplies its rows with
 * linear, so that its weights are read once in a step and what a row gets is what it would get alone. Experts come in order of their numbers and
 * add to the rows as they come: no row's sum depends on who else is there. */
#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

/* ---- route ---- */

/* Not a number: behind all that is, and behind those before it. */
static bool comes_before(float a, float b)
{
    return a > b || (a == a && b != b);
}

static void choose(int32_t *ids, const float *logits, int32_t n_experts, int32_t n_used)
{
    QR_UNINITIALIZED uint8_t taken[QR_EXPERTS_MAX];
    memset(taken, 0, (size_t)n_experts);
    for (int32_t u = 0; u < n_used; u++) {
        int32_t best = -1;
        for (int32_t e = 0; e < n_experts; e++)
            if (!taken[e] && (best < 0 || comes_before(logits[e], logits[best])))
                best = e;
        taken[best] = 1;
        ids[u] = best;
    }
}

/* e^(x - most), or e^-x. */
static void exps(float *out, const float *x, int32_t n, float most, bool negative)
{
    for (int32_t i = 0; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        const vf v = vf_load_n(x + i, len);
        vf_store_n(out + i, vf_exp(negative ? vf_sub(vf_zero(), v) : vf_sub(v, vf_set1(most))), len);
    }
}

static void route_row(const struct qr_route_args *a, int32_t n)
{
    const float *logits = a->logits + n * a->logits_stride;
    int32_t *ids = a->ids + (int64_t)n * a->n_used;
    float *weights = a->weights + (int64_t)n * a->n_used, sum = 0;
    QR_UNINITIALIZED float p[QR_EXPERTS_MAX];
    choose(ids, logits, a->n_experts, a->n_used);
    exps(p, logits, a->n_experts, logits[ids[0]], a->sigmoid);
    for (int32_t e = 0; e < a->n_experts && !a->sigmoid && !a->normalize; e++)
        sum += p[e];
    for (int32_t u = 0; u < a->n_used; u++) {
        weights[u] = a->sigmoid ? 1.0f / (1.0f + p[ids[u]]) : p[ids[u]];
        sum += a->normalize ? weights[u] : 0;
    }
    for (int32_t u = 0; u < a->n_used && (!a->sigmoid || a->normalize); u++)
        weights[u] /= sum;
}

static void route_rows(const void *arg, int64_t first, int64_t end)
{
    for (int64_t n = first; n < end; n++)
        route_row(arg, (int32_t)n);
}

void QR_ISA_NAME(route)(struct qr_queue *q, const struct qr_route_args *a)
{
    QR_ASSERT(a != NULL && a->ids != NULL && a->weights != NULL && a->logits != NULL);
    QR_ASSERT(a->n_used >= 1 && a->n_used <= a->n_experts && a->n_experts <= QR_EXPERTS_MAX);
    qr_queue_run_rows(q, route_rows, a, a->n_rows, (int64_t)a->n_experts * (a->n_used + 2));
}

/* ---- experts ---- */

/* The pairs of one expert. Pair p is row p / U's. */
struct share {
    const struct qr_experts_args *a;
    const int32_t *pair; /* [n] */
    const float *y;      /* [n, D], where they are added */
    int32_t n, n_embd;
};

static int64_t row_of(const struct share *s, int64_t i)
{
    return s->pair[i] / s->a->n_used;
}

static void gather_pairs(const void *arg, int64_t first, int64_t end)
{
    const struct share *s = arg;
    for (int64_t i = first; i < end; i++)
        memcpy(s->a->gathered + i * s->n_embd, s->a->x + row_of(s, i) * s->a->x_stride, (size_t)s->n_embd * sizeof *s->a->x);
}

static void add_pairs(const void *arg, int64_t first, int64_t end)
{
    const struct share *s = arg;
    for (int64_t i = first; i < end; i++) {
        float *out = s->a->out + row_of(s, i) * s->a->out_stride;
        const float *y = s->y + i * s->n_embd;
        const vf weight = vf_set1(s->a->weights[s->pair[i]]);
        for (int64_t k = 0; k < s->n_embd; k += VF_LEN) {
            const int64_t len = vf_min_len(s->n_embd - k);
            vf_store_n(out + k, vf_fma(weight, vf_load_n(y + k, len), vf_load_n(out + k, len)), len);
        }
    }
}

/* Rows that follow each other need no copy. */
static bool side_by_side(const struct share *s)
{
    return s->n == 1 || row_of(s, s->n - 1) - row_of(s, 0) == s->n - 1; /* they are in order, and none is there twice */
}

static void run_share(struct qr_queue *q, struct share *s, int32_t e, qr_linear_fn *product)
{
    const struct qr_experts_args *a = s->a;
    const struct qr_weight gate_up = qr_weight_in_stack(a->gate_up, e), down = qr_weight_in_stack(a->down, e);
    const int32_t n_ffn = (int32_t)down.t.shape[1];
    const bool copied = !side_by_side(s);
    if (copied)
        qr_queue_run_rows(q, gather_pairs, s, s->n, s->n_embd);
    const struct qr_linear_args first = {.out = a->gated, .x = copied ? a->gathered : a->x + row_of(s, 0) * a->x_stride, .w = &gate_up,
                                         .out_stride = n_ffn, .x_stride = copied ? s->n_embd : a->x_stride, .n_rows = s->n, .n_in = s->n_embd,
                                         .n_out = 2 * n_ffn, .glu = true, .act = a->act, .clamp = a->clamp,
                                         .bias = a->gate_up_bias ? a->gate_up_bias + (int64_t)e * 2 * n_ffn : NULL};
    const struct qr_linear_args second = {.out = a->fresh, .x = a->gated, .w = &down, .out_stride = s->n_embd, .x_stride = n_ffn,
                                          .n_rows = s->n, .n_in = n_ffn, .n_out = s->n_embd,
                                          .bias = a->down_bias ? a->down_bias + (int64_t)e * s->n_embd : NULL};
    product(q, &first);
    product(q, &second);
    s->y = a->fresh;
    qr_queue_run_rows(q, add_pairs, s, s->n, s->n_embd);
}

/* order: where each expert's pairs begin [E + 1], then the pairs by expert and row. */
static void sort_pairs(int32_t *order, const int32_t *ids, int32_t n_pairs, int32_t n_experts)
{
    int32_t *first = order, *pair = order + n_experts + 1;
    memset(first, 0, ((size_t)n_experts + 1) * sizeof *first);
    for (int32_t p = 0; p < n_pairs; p++) {
        QR_ASSERT(ids[p] >= 0 && ids[p] < n_experts);
        first[ids[p] + 1]++;
    }
    for (int32_t e = 0; e < n_experts; e++)
        first[e + 1] += first[e];
    for (int32_t p = 0; p < n_pairs; p++) /* a beginning moves to its end, which is the next one's beginning */
        pair[first[ids[p]]++] = p;
    memmove(first + 1, first, (size_t)n_experts * sizeof *first);
    first[0] = 0;
}

void QR_ISA_NAME(experts_by)(struct qr_queue *q, const struct qr_experts_args *a, qr_linear_fn *product)
{
    QR_ASSERT(a != NULL && a->gate_up != NULL && a->down != NULL && a->ids != NULL && a->weights != NULL);
    QR_ASSERT(a->gate_up->t.n_dims == 3 && a->down->t.n_dims == 3 && a->gate_up->t.shape[0] == a->down->t.shape[0]);
    QR_ASSERT(a->gate_up->t.shape[1] == 2 * a->down->t.shape[2] && a->gate_up->t.shape[2] == a->down->t.shape[1]);
    const int32_t n_experts = (int32_t)a->down->t.shape[0], n_embd = (int32_t)a->down->t.shape[1];
    sort_pairs(a->order, a->ids, a->n_rows * a->n_used, n_experts);
    for (int32_t e = 0; e < n_experts; e++) {
        struct share s = {.a = a, .pair = a->order + n_experts + 1 + a->order[e], .n = a->order[e + 1] - a->order[e], .n_embd = n_embd};
        if (s.n > 0)
            run_share(q, &s, e, product);
    }
}

void QR_ISA_NAME(experts)(struct qr_queue *q, const struct qr_experts_args *a)
{
    QR_ISA_NAME(experts_by)(q, a, QR_ISA_NAME(linear));
}
