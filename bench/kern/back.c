/* back.c - gradients of what treats rows one by one, on arrays beyond the caches: bound by memory, so their share of its bandwidth is what counts. */
#include "base/assert.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/kern/case.h"

#define ARRAY_BYTES ((int64_t)32 << 20) /* of each operand */

/* Operands of a case: the copy-th set of n_arrays neighbours. */
struct arrays {
    char *memory;
    int32_t n_arrays;
    float *w, *dw;   /* of norms */
    float *cos_sin;
    union {
        struct qr_norm_back_args norm;
        struct qr_rope_args rope;
        struct qr_glu_back_args glu;
    } a;
};

static float *array_at(const struct arrays *s, int32_t copy, int32_t i)
{
    return (float *)(void *)(s->memory + ((int64_t)copy * s->n_arrays + i) * ARRAY_BYTES);
}

static void call_norm(struct qr_kern_case *b, int32_t copy)
{
    const struct arrays *s = b->args;
    struct qr_norm_back_args a = s->a.norm;
    a.x = array_at(s, copy, 0), a.dy = array_at(s, copy, 1), a.dx = array_at(s, copy, 2);
    b->be->b->rms_norm(b->be->queue, &a);
}

static void call_rope(struct qr_kern_case *b, int32_t copy)
{
    const struct arrays *s = b->args;
    struct qr_rope_args a = s->a.rope;
    a.x = array_at(s, copy, 0);
    b->be->b->rope(b->be->queue, &a);
}

static void call_glu(struct qr_kern_case *b, int32_t copy)
{
    const struct arrays *s = b->args;
    struct qr_glu_back_args a = s->a.glu;
    a.gate_up = array_at(s, copy, 0), a.dgate_up = array_at(s, copy, 1), a.dout = array_at(s, copy, 2);
    b->be->b->glu(b->be->queue, &a);
}

/* The case of a call on as many copies of its operands as there is room for: one at least, as the memory is 128 MiB. */
static struct qr_kern_case *of(struct qr_kern_case *b, const struct arrays *s, qr_kern_call *call, double bytes)
{
    b->call = call;
    b->args = s;
    b->bytes = bytes;
    b->flop = 0;
    b->n_copies = (int32_t)(b->memory_bytes / (s->n_arrays * ARRAY_BYTES));
    return b;
}

static void bench_norm(struct qr_kern_case *b, struct arrays *s, int32_t d)
{
    const int32_t n = (int32_t)(ARRAY_BYTES / 4 / d);
    s->a.norm = (struct qr_norm_back_args){.dw = s->dw, .w = s->w, .dx_stride = d, .dy_stride = d, .x_stride = d,
                                           .n_rows = n, .n_cols = d, .eps = 1e-5f};
    s->n_arrays = 3;
    qr_kern_report(of(b, s, call_norm, 16.0 * n * d), "rms_norm back %d x %d", n, d);
}

static void bench_rope(struct qr_kern_case *b, struct arrays *s, int32_t n_heads, int32_t k)
{
    const int32_t n = (int32_t)(ARRAY_BYTES / 4 / (n_heads * k));
    s->a.rope = (struct qr_rope_args){.cos_sin = s->cos_sin, .stride = n_heads * k, .n_rows = n, .n_heads = n_heads, .head_dim = k, .n_rot = k};
    s->n_arrays = 1;
    qr_kern_report(of(b, s, call_rope, (8.0 * n_heads + 4) * n * k), "rope back %d x %d heads of %d", n, n_heads, k);
}

static void bench_glu(struct qr_kern_case *b, struct arrays *s, int32_t f)
{
    const int32_t n = (int32_t)(ARRAY_BYTES / 4 / (2 * f));
    s->a.glu = (struct qr_glu_back_args){.gate_up_stride = 2 * f, .dgate_up_stride = 2 * f, .dout_stride = f, .n_rows = n, .n_cols = f};
    s->n_arrays = 3;
    qr_kern_report(of(b, s, call_glu, 28.0 * n * f), "glu back %d x %d", n, f);
    s->a.glu.fresh = true;
    qr_kern_report(of(b, s, call_glu, 20.0 * n * f), "glu back, fresh %d x %d", n, f);
}

void qr_kern_back(struct qr_kern_case *b, char *memory)
{
    QR_ASSERT(b != NULL && b->be != NULL);
    QR_ASSERT(memory != NULL);
    struct qr_rng rng = {.seed = 11};
    struct arrays s = {.memory = memory, .w = qr_alloc(2048, sizeof(float)), .dw = qr_alloc(2048, sizeof(float)),
                       .cos_sin = qr_alloc((size_t)(ARRAY_BYTES / 12), sizeof(float))};
    for (int64_t i = 0; i < b->memory_bytes / 4; i++)
        ((float *)(void *)memory)[i] = (float)(qr_rng_next_unit(&rng) - 0.5);
    for (int32_t i = 0; i < 2048; i++)
        s.w[i] = 1;
    for (int64_t i = 0; i < ARRAY_BYTES / 12; i++)
        s.cos_sin[i] = 0.7071f; /* rotations: values stay what size they are */
    bench_norm(b, &s, 768);
    bench_norm(b, &s, 2048);
    bench_rope(b, &s, 12, 64);
    bench_rope(b, &s, 16, 128);
    bench_glu(b, &s, 2048);
    qr_free(s.w), qr_free(s.dw), qr_free(s.cos_sin);
}
