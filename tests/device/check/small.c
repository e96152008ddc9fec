/* Every entry of a device's tables against the reference's, on the small cases of tests/ops_cases.h: what the tests do with the emulated device, for machines
 * that have a real one and none of what the tests need. A case is a function that is called twice, for the reference and for the device; what it takes is
 * memory of the backend that computes, with the same numbers at first, and compared in the end. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/coded.h"
#include "tests/device/check/check.h"
#include "tests/device/sample_host.h"
#include "tests/ops_cases.h"

#define ARRAYS_MAX 24
#define SEED 3

enum type { PLAIN, F32, F64, BF16 }; /* PLAIN: not compared */

struct array {
    enum type type;
    void *host, *device;
    size_t n_bytes;
};

struct check {
    struct qr_backend *be, *ref, *device; /* be: whose turn it is */
    struct array array[ARRAYS_MAX];
    int32_t n, next;
    struct qr_rng rng;
    int32_t n_cases, n_bad, n_absent;
};

/* ---- memory ---- */

static size_t size_of(enum type t)
{
    return t == F64 ? 8 : t == F32 ? 4 : t == BF16 ? 2 : 1;
}

/* n numbers of a type; the reference's turn comes first. `from` NULL: random ones, -1 to 1 (PLAIN, F64: zeros). */
static void *take(struct check *c, enum type t, int64_t n, const void *from)
{
    struct array *a = &c->array[c->next++];
    QR_ASSERT(c->next <= ARRAYS_MAX);
    if (c->be != c->ref)
        return a->device;
    *a = (struct array){.type = t, .n_bytes = (size_t)n * size_of(t)};
    a->host = qr_alloc_aligned(a->n_bytes + 64, 64);
    if (from)
        memcpy(a->host, from, a->n_bytes);
    for (int64_t i = 0; !from && i < n && (t == F32 || t == BF16); i++) {
        const float x = (float)(2 * qr_rng_next_unit(&c->rng) - 1);
        if (t == F32)
            ((float *)a->host)[i] = x;
        else
            ((uint16_t *)a->host)[i] = qr_f32_to_bf16(x);
    }
    a->device = c->device->mem->alloc(a->n_bytes);
    c->device->mem->put(c->device->queue, a->device, a->host, a->n_bytes);
    c->n = c->next;
    return a->host;
}

static float *floats(struct check *c, int64_t n)
{
    return take(c, F32, n, NULL);
}

static float *zeros(struct check *c, int64_t n)
{
    float *x = qr_alloc((size_t)n + 1, sizeof *x), *taken = take(c, F32, n, x);
    qr_free(x);
    return taken;
}

static int32_t *integers(struct check *c, const int32_t *from, int64_t n)
{
    return take(c, PLAIN, 4 * n, from);
}

/* n different numbers below `most`. */
static int32_t *choices(struct check *c, int32_t n, int32_t most)
{
    int32_t *v = qr_alloc((size_t)n + 1, sizeof *v);
    for (int32_t i = 0; i < n; i++)
        v[i] = (int32_t)((int64_t)i * most / n);
    int32_t *taken = integers(c, v, n);
    qr_free(v);
    return taken;
}

static double number(const struct array *a, const void *p, size_t i)
{
    return a->type == F64 ? ((const double *)p)[i] : a->type == F32 ? (double)((const float *)p)[i] : (double)qr_bf16_to_f32(((const uint16_t *)p)[i]);
}

/* The largest difference of an array, in units of its largest number or 1. */
static double differs(struct check *c, const struct array *a)
{
    double most = 1, worst = 0;
    void *got = qr_alloc_aligned(a->n_bytes + 64, 64);
    c->device->mem->get(c->device->queue, got, a->device, a->n_bytes);
    for (size_t i = 0; a->type != PLAIN && i < a->n_bytes / size_of(a->type); i++) {
        const double want = number(a, a->host, i), d = fabs(number(a, got, i) - want);
        most = fabs(want) > most ? fabs(want) : most;
        worst = d > worst || isnan(d) ? (isnan(d) ? INFINITY : d) : worst;
    }
    qr_free_aligned(got);
    return worst / most;
}

/* Calls a case for both, and compares. It returns false where the device lacks the entry. */
static void compare(struct check *c, const char *what, bool (*body)(struct check *c, const void *arg), const void *arg, double bound)
{
    double worst = 0;
    c->n = c->next = 0;
    c->be = c->ref;
    body(c, arg);
    c->be = c->device;
    c->next = 0;
    const bool there = body(c, arg);
    for (int32_t i = 0; i < c->n; i++) {
        const double d = there ? differs(c, &c->array[i]) : 0;
        worst = d > worst ? d : worst;
        c->device->mem->free(c->array[i].device);
        qr_free_aligned(c->array[i].host);
    }
    c->n_cases += there;
    c->n_absent += !there;
    c->n_bad += there && !(worst <= bound);
    printf("%-8s %-70s %9.2e of %.1e\n", !there ? "absent" : worst <= bound ? "ok" : "WRONG", what, worst, bound);
    fflush(stdout);
}

#define CALL(table, entry, type, ...)                                 \
    do {                                                              \
        const struct type call_ = {__VA_ARGS__};                      \
        if (!c->be->table->entry)                                     \
            return false;                                             \
        c->be->table->entry(c->be->queue, &call_);                    \
    } while (0)

/* ---- products ---- */

/* Coded rows that follow from their places. */
struct codes {
    struct qr_coded_format f;
    int64_t n_in;
};

static void fill_codes(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct codes *s = arg;
    const int64_t units = qr_coded_n_units(s->f, s->n_in), groups = qr_coded_n_groups(s->f, s->n_in);
    const int64_t n_levels = 1 << s->f.bits, least = s->f.bits == 4 ? -8 : qr_coded_least(s->f);
    for (int64_t i = 0; i < n * s->n_in; i++)
        to->level[i] = (int8_t)((first * s->n_in + i) * 37 % 113 % n_levels + least);
    for (int64_t i = 0; i < n * units; i++) {
        to->scale[i] = 0.001f * (float)(1 + (first * units + i) % 5);
        if (to->offset)
            to->offset[i] = 0.002f * (float)((first * units + i) % 3);
    }
    for (int64_t i = 0; i < n * groups; i++) {
        if (to->step)
            to->step[i] = (int8_t)(1 + (first * groups + i) % 7);
        if (to->offset_step)
            to->offset_step[i] = (int8_t)((first * groups + i) % 4);
    }
}

static struct qr_weight coded_weight(struct check *c, enum qr_dtype t, int32_t n_out, int32_t n_in)
{
    const struct codes s = {qr_dtype_coded(t), n_in};
    struct qr_coded_source source = {.fill = fill_codes, .arg = &s};
    for (int i = 0; i < 16; i++)
        source.levels[i] = (int8_t)(i - 8);
    const size_t here = c->be->k->linear_packed_bytes(t, n_out, n_in), there = c->device->k->linear_packed_bytes(t, n_out, n_in);
    struct qr_weight w = {.packed_dtype = t, .t = qr_tensor_2d(NULL, t, n_out, n_in)};
    w.packed = take(c, PLAIN, (int64_t)(here > there ? here : there), NULL);
    c->be->k->linear_pack_coded(c->be->queue, w.packed, t, n_out, n_in, 0, &source, n_out);
    return w;
}

/* Weights as this backend packs them. */
static struct qr_weight weight(struct check *c, enum qr_dtype t, int32_t n_out, int32_t n_in)
{
    const float *rows = floats(c, (int64_t)n_out * n_in);
    const size_t here = c->be->k->linear_packed_bytes(t, n_out, n_in), there = c->device->k->linear_packed_bytes(t, n_out, n_in);
    struct qr_weight w = {.packed_dtype = t, .t = qr_tensor_2d(NULL, t, n_out, n_in)};
    w.packed = take(c, PLAIN, (int64_t)(here > there ? here : there), NULL);
    c->be->k->linear_pack(c->be->queue, w.packed, t, n_out, n_in, 0, rows, QR_F32, n_out);
    return w;
}

static bool linear(struct check *c, const void *arg)
{
    const struct qr_linear_case *l = arg;
    const struct qr_weight w = qr_dtype_is_coded(l->w) ? coded_weight(c, l->w, l->n_out, l->n_in) : weight(c, l->w, l->n_out, l->n_in);
    CALL(k, linear, qr_linear_args, .out = floats(c, (int64_t)l->n_rows * l->n_out), .x = floats(c, (int64_t)l->n_rows * l->n_in), .w = &w,
         .bias = l->bias ? floats(c, l->n_out) : NULL, .norm_w = l->add ? NULL : floats(c, l->n_in), .out_stride = l->n_out, .x_stride = l->n_in,
         .n_rows = l->n_rows, .n_in = l->n_in, .n_out = l->n_out, .add = l->add, .eps = 1e-5f);
    return true;
}

static bool linear_back(struct check *c, const void *arg)
{
    const struct qr_linear_case *l = arg;
    const struct qr_weight w = {.packed_dtype = l->w, .t = qr_tensor_2d(take(c, l->w == QR_F32 ? F32 : BF16, (int64_t)l->n_out * l->n_in, NULL), l->w, l->n_out,
                                                                        l->n_in)};
    const float *dy = floats(c, (int64_t)l->n_rows * l->n_out);
    CALL(b, linear_dx, qr_linear_dx_args, .dx = floats(c, (int64_t)l->n_rows * l->n_in), .dy = dy, .w = &w, .dx_stride = l->n_in, .dy_stride = l->n_out,
         .n_rows = l->n_rows, .n_in = l->n_in, .n_out = l->n_out);
    CALL(b, linear_dw, qr_linear_dw_args, .dw = floats(c, (int64_t)l->n_out * l->n_in), .dbias = floats(c, l->n_out), .dy = dy,
         .x = floats(c, (int64_t)l->n_rows * l->n_in), .dy_stride = l->n_out, .x_stride = l->n_in, .n_rows = l->n_rows, .n_in = l->n_in, .n_out = l->n_out,
         .product = l->w);
    return true;
}

/* One shape with weights of a type, where the device has it. */
static void check_product(struct check *c, struct qr_linear_case l)
{
    struct qr_err err;
    char what[96];
    if (qr_backend_supports(c->device, l.w, l.n_in, QR_BF16, 64, 16, &err) != 0)
        return;
    /* Sums of n products of numbers up to 1 in another order; behind a norm a number may be rounded to its other neighbour in bf16 (fp8: E4M3). */
    const double sums = 4.0 * (l.n_in + l.n_rows + l.n_out + 16) * 0x1p-24, turned = l.w == QR_F32 || l.add ? 0 : l.w == QR_F8 ? 0x1p-3 : 0x1p-7;
    snprintf(what, sizeof what, "linear %d x %d -> %d, %s", (int)l.n_rows, (int)l.n_in, (int)l.n_out, qr_dtype_name(l.w));
    compare(c, what, linear, &l, sums + turned);
    if (l.w != QR_F32 && l.w != QR_BF16)
        return;
    snprintf(what, sizeof what, "linear back %d x %d -> %d, %s", (int)l.n_rows, (int)l.n_in, (int)l.n_out, qr_dtype_name(l.w));
    compare(c, what, linear_back, &l, sums);
}

static void check_products(struct check *c)
{
    static const enum qr_dtype rounded[] = {QR_C8_G32, QR_C4_G32, QR_C4_G128, QR_F8};
    static const struct qr_linear_case large[] = {{96, 1024, 512, QR_BF16, true, false, 0}, {40, 520, 1024, QR_BF16, false, true, 0},
                                                  {300, 1032, 520, QR_BF16, false, false, 0}, {17, 512, 513, QR_BF16, false, true, 0}};
    for (int i = 0; i < QR_COUNT(qr_linear_cases); i++) {
        struct qr_linear_case l = qr_linear_cases[i];
        if (!(l.use & QR_CASE_CHECK))
            continue;
        check_product(c, l);
        for (int k = 0; l.w == QR_BF16 && k < QR_COUNT(rounded); k++) {
            l.w = rounded[k];
            check_product(c, l);
            l.w = QR_BF16;
        }
    }
    for (int t = QR_C2_G16_SO; c->device->k->linear_pack_coded && t < (int)QR_CODED; t++)
        for (int i = 0; i < 3 && c->device->k->linear_packed_bytes((enum qr_dtype)t, 84, 600) > 0; i++)
            check_product(c, (struct qr_linear_case){.n_rows = i == 0 ? 1 : i == 1 ? 33 : 90, .n_in = 600, .n_out = 84, .w = (enum qr_dtype)t, .bias = true});
    for (int i = 0; i < QR_COUNT(large); i++) { /* what a library for products may take over */
        struct qr_linear_case l = large[i];
        check_product(c, l);
        l.w = QR_F8;
        check_product(c, l);
    }
}

/* ---- attention ---- */

struct attend {
    const struct qr_attention_case *c;
    int32_t n_seqs, n_rows; /* of each at its end */
    bool backward;
};

/* The arrays of a batch where they are computed with, and where the host reads them. */
struct scene {
    struct qr_batch host, batch;
    struct qr_kv_view kv;
};

/* Sequence s has 7 + 150 s tokens before its rows (none where gradients are wanted), its blocks lie somewhere. */
static void make_scene(struct check *c, struct scene *s, const struct attend *a)
{
    const int32_t first = a->backward ? 0 : 7, more = a->backward ? 0 : 150, p = a->c->block_tokens, n = a->n_seqs * a->n_rows;
    const int32_t stride = (a->n_rows + first + more * a->n_seqs + p - 1) / p, n_blocks = a->n_seqs * stride;
    int32_t *pos = qr_alloc((size_t)n, sizeof *pos), *slot = qr_alloc((size_t)n, sizeof *slot), *table = qr_alloc((size_t)n_blocks, sizeof *table);
    int32_t *start = qr_alloc((size_t)a->n_seqs + 1, sizeof *start), *ctx = qr_alloc((size_t)a->n_seqs, sizeof *ctx);
    for (int32_t i = 0; i < n_blocks; i++)
        table[i] = (int32_t)((int64_t)i * 7919 % n_blocks); /* a prime, so all are different */
    for (int32_t q = 0; q <= a->n_seqs; q++)
        start[q] = q * a->n_rows;
    for (int32_t i = 0; i < n; i++) {
        const int32_t q = i / a->n_rows;
        ctx[q] = a->n_rows + first + more * q;
        pos[i] = first + more * q + i % a->n_rows;
        slot[i] = table[q * stride + pos[i] / p] * p + pos[i] % p;
    }
    const int32_t at = c->next;
    s->batch = (struct qr_batch){.n_tokens = n, .n_seqs = a->n_seqs, .n_prefill_seqs = a->n_rows > 1 ? a->n_seqs : 0, .block_tokens = p,
                                  .table_stride = stride};
    s->batch.ids = s->batch.pos = integers(c, pos, n), s->batch.slot = integers(c, slot, n), s->batch.row_start = integers(c, start, a->n_seqs + 1);
    s->batch.ctx_len = integers(c, ctx, a->n_seqs), s->batch.block_table = integers(c, table, n_blocks);
    s->host = s->batch;
    s->host.ids = s->host.pos = c->array[at].host, s->host.slot = c->array[at + 1].host, s->host.row_start = c->array[at + 2].host;
    s->host.ctx_len = c->array[at + 3].host, s->host.block_table = c->array[at + 4].host;
    s->batch.host = c->be == c->ref ? NULL : &s->host;
    s->kv = (struct qr_kv_view){.dtype = a->c->kv, .n_blocks = n_blocks, .n_layers = 2, .n_kv_heads = a->c->n_kv_heads, .block_tokens = p,
                                .head_dim = a->c->head_dim};
    const int64_t kv_bytes = (int64_t)n_blocks * (int64_t)qr_kv_block_bytes(&s->kv);
    const enum type t = a->c->kv == QR_F32 ? F32 : a->c->kv == QR_BF16 ? BF16 : PLAIN;
    s->kv.base = take(c, t, kv_bytes / (int64_t)size_of(t), NULL);
    qr_free(pos), qr_free(slot), qr_free(table), qr_free(start), qr_free(ctx);
}

static bool attention(struct check *c, const void *arg)
{
    const struct attend *a = arg;
    const int32_t h = a->c->n_heads, g = a->c->n_kv_heads, k = a->c->head_dim, n = a->n_seqs * a->n_rows;
    struct scene s;
    make_scene(c, &s, a);
    float *x = floats(c, (int64_t)n * (h + 2 * g) * k), *out = floats(c, (int64_t)n * h * k), *lse = floats(c, (int64_t)n * h);
    const float scale = (float)(1 / sqrt((double)k));
    const int64_t stride = (int64_t)(h + 2 * g) * k;
    const int32_t tokens = s.kv.n_blocks * s.kv.block_tokens;
    CALL(k, kv_write, qr_kv_write_args, .kv = &s.kv, .k = floats(c, (int64_t)tokens * g * k), .v = floats(c, (int64_t)tokens * g * k),
         .slot = choices(c, tokens, tokens), .k_stride = g * k, .v_stride = g * k, .layer = 1, .n_rows = tokens);
    CALL(k, qkv, qr_qkv_args, .x = x, .q_norm = floats(c, k), .k_norm = floats(c, k), .cos_sin = floats(c, (int64_t)n * k), .kv = &s.kv, .slot = s.batch.slot,
         .stride = stride, .layer = 1, .n_rows = n, .n_heads = h, .n_rot = k, .eps = 1e-5f);
    CALL(k, attention, qr_attention_args, .out = out, .q = x, .lse = lse, .batch = &s.batch, .kv = &s.kv, .out_stride = h * k, .q_stride = stride, .layer = 1,
         .n_heads = h, .window = a->c->window, .scale = scale, .softcap = a->c->softcap);
    if (!a->backward)
        return true;
    CALL(b, attention, qr_attention_back_args, .dq = floats(c, (int64_t)n * h * k), .dk = floats(c, (int64_t)n * g * k), .dv = floats(c, (int64_t)n * g * k),
         .dout = floats(c, (int64_t)n * h * k), .out = out, .q = x, .lse = lse, .batch = &s.batch, .kv = &s.kv, .dq_stride = h * k, .dk_stride = g * k,
         .dv_stride = g * k, .dout_stride = h * k, .out_stride = h * k, .q_stride = stride, .layer = 1, .n_heads = h, .window = a->c->window, .scale = scale,
         .softcap = a->c->softcap, .fresh = true);
    return true;
}

static void check_attention(struct check *c)
{
    for (int i = 0; i < QR_COUNT(qr_attention_cases); i++) {
        const struct qr_attention_case *a = &qr_attention_cases[i];
        const struct attend decode = {a, 3, 1, false}, prompts = {a, 2, 70, false}, back = {a, 2, 21, true};
        struct qr_err err;
        char what[96];
        if (!(a->use & QR_CASE_CHECK) || qr_backend_supports(c->device, QR_BF16, 64, a->kv, a->head_dim, a->block_tokens, &err) != 0)
            continue;
        /* f32: sums of some hundred products. Others: weights and queries are rounded to 8 bits. */
        const double bound = a->kv == QR_F32 ? 0x1p-15 : 0x1p-6;
        snprintf(what, sizeof what, "attention %d/%d x %d, window %d, %s", (int)a->n_heads, (int)a->n_kv_heads, (int)a->head_dim, (int)a->window,
                 qr_dtype_name(a->kv));
        compare(c, what, attention, &decode, bound);
        compare(c, what, attention, &prompts, bound);
        if (!qr_kv_has_scales(a->kv))
            compare(c, what, attention, &back, 4 * bound);
    }
}

/* ---- rows ---- */

static bool norms(struct check *c, const void *arg)
{
    const struct qr_rows_case *r = arg;
    const int64_t n = (int64_t)r->n_rows * r->n_cols;
    float *x = floats(c, n), *w = floats(c, r->n_cols);
    CALL(k, rms_norm, qr_norm_args, .out = floats(c, n), .x = x, .w = w, .out_stride = r->n_cols, .x_stride = r->n_cols,
         .n_rows = r->n_rows, .n_cols = r->n_cols, .eps = 1e-5f);
    CALL(k, residual_add, qr_add_args, .x = x, .delta = floats(c, n), .x_stride = r->n_cols, .delta_stride = r->n_cols, .n_rows = r->n_rows,
         .n_cols = r->n_cols);
    CALL(b, rms_norm, qr_norm_back_args, .dx = floats(c, n), .dw = floats(c, r->n_cols), .dy = floats(c, n), .x = x, .w = w, .dx_stride = r->n_cols,
         .dy_stride = r->n_cols, .x_stride = r->n_cols, .n_rows = r->n_rows, .n_cols = r->n_cols, .eps = 1e-5f);
    return true;
}

static bool units(struct check *c, const void *arg)
{
    const struct qr_rows_case *r = arg;
    const int64_t n = (int64_t)r->n_rows * r->n_cols;
    for (int act = 0; act < 2; act++) {
        const float *gate_up = floats(c, 2 * n);
        CALL(k, glu, qr_glu_args, .out = floats(c, n), .gate_up = gate_up, .out_stride = r->n_cols, .gate_up_stride = 2 * r->n_cols, .n_rows = r->n_rows,
             .n_cols = r->n_cols, .act = (enum qr_act)act);
        CALL(b, glu, qr_glu_back_args, .dgate_up = floats(c, 2 * n), .dout = floats(c, n), .gate_up = gate_up, .dgate_up_stride = 2 * r->n_cols,
             .dout_stride = r->n_cols, .gate_up_stride = 2 * r->n_cols, .n_rows = r->n_rows, .n_cols = r->n_cols, .act = (enum qr_act)act);
    }
    return true;
}

/* What only some families have. */
static bool families(struct check *c, const void *arg)
{
    const struct qr_rows_case *r = arg;
    const int64_t n = (int64_t)r->n_rows * r->n_cols;
    CALL(k, layer_norm, qr_layer_norm_args, .out = floats(c, n), .x = floats(c, n), .w = floats(c, r->n_cols), .bias = floats(c, r->n_cols),
         .out_stride = r->n_cols, .x_stride = r->n_cols, .n_rows = r->n_rows, .n_cols = r->n_cols, .eps = 1e-2f);
    for (int act = 0; act < 2; act++)
        CALL(k, unit, qr_unit_args, .x = floats(c, n), .stride = r->n_cols, .n_rows = r->n_rows, .n_cols = r->n_cols, .act = (enum qr_act)act);
    CALL(k, softcap, qr_softcap_args, .x = floats(c, n), .stride = r->n_cols, .n_rows = r->n_rows, .n_cols = r->n_cols, .cap = 0.7f);
    return true;
}

/* A low-rank addition to every second row. */
static bool additions(struct check *c, const void *arg)
{
    const struct qr_rows_case *r = arg;
    enum { RANK = 6, N_OUT = 70 };
    int32_t *row = qr_alloc((size_t)r->n_rows, sizeof *row), n = 0;
    for (int32_t i = 0; i < r->n_rows; i += 2)
        row[n++] = i;
    const struct qr_row_group group = {.row = row, .n_rows = n};
    const struct qr_adapt_parts parts = {.part = {{.a = floats(c, (int64_t)RANK * r->n_cols), .b = floats(c, qr_adapt_b_elements(RANK, N_OUT)), .first = 3,
                                                   .n_out = N_OUT, .rank = RANK, .scale = 0.5f}}, .n = 1};
    const struct qr_adapt_args a = {.out = floats(c, (int64_t)r->n_rows * (N_OUT + 3)), .x = floats(c, (int64_t)r->n_rows * r->n_cols),
                                    .mid = take(c, PLAIN, 4 * (int64_t)r->n_rows * RANK, NULL), .group = &group, .parts = &parts, .out_stride = N_OUT + 3,
                                    .x_stride = r->n_cols, .mid_stride = RANK, .n_groups = 1, .n_in = r->n_cols, .dtype = QR_F32};
    const bool there = c->be->k->adapt != NULL;
    if (there)
        c->be->k->adapt(c->be->queue, &a);
    qr_free(row);
    return there;
}

/* N experts' matrices, one after the other. */
static struct qr_weight stack(struct check *c, enum qr_dtype t, int32_t n, int32_t n_out, int32_t n_in)
{
    const float *rows = floats(c, (int64_t)n * n_out * n_in);
    const size_t one = qr_align_up(c->be->k->linear_packed_bytes(t, n_out, n_in), 64);
    const size_t there = qr_align_up(c->device->k->linear_packed_bytes(t, n_out, n_in), 64);
    struct qr_weight w = {.packed_dtype = t, .t = qr_tensor_3d(NULL, t, n, n_out, n_in), .stack_bytes = one};
    w.packed = take(c, PLAIN, (int64_t)((one > there ? one : there) * (size_t)n), NULL);
    for (int32_t e = 0; e < n; e++) {
        const struct qr_weight part = qr_weight_in_stack(&w, e);
        c->be->k->linear_pack(c->be->queue, part.packed, t, n_out, n_in, 0, rows + (int64_t)e * n_out * n_in, QR_F32, n_out);
    }
    return w;
}

struct mixture {
    int32_t n_rows;
    enum qr_dtype w;
};

static bool mixture(struct check *c, const void *arg)
{
    enum { E = 6, U = 2, D = 72, F = 40 };
    const struct mixture *m = arg;
    const int64_t n = m->n_rows, room = qr_experts_room_rows(n, U);
    const struct qr_weight gate_up = stack(c, m->w, E, 2 * F, D), down = stack(c, m->w, E, D, F);
    int32_t *ids = take(c, PLAIN, 4 * n * U, NULL);
    float *weights = floats(c, n * U);
    CALL(k, route, qr_route_args, .ids = ids, .weights = weights, .logits = floats(c, n * E), .logits_stride = E, .n_rows = m->n_rows, .n_experts = E,
         .n_used = U, .normalize = true);
    CALL(k, experts, qr_experts_args, .out = floats(c, n * D), .x = floats(c, n * D), .ids = ids, .weights = weights, .gate_up = &gate_up, .down = &down,
         .gathered = take(c, PLAIN, 4 * room * D, NULL), .gated = take(c, PLAIN, 4 * room * F, NULL), .fresh = take(c, PLAIN, 4 * room * D, NULL),
         .order = take(c, PLAIN, 4 * (E + 1 + n * U), NULL), .out_stride = D, .x_stride = D, .n_rows = m->n_rows, .n_used = U);
    return true;
}

static bool moves(struct check *c, const void *arg)
{
    const struct qr_rows_case *r = arg;
    enum { MOST = 50 };
    const int64_t n = (int64_t)r->n_rows * r->n_cols;
    const int32_t *row = choices(c, r->n_rows, MOST);
    const struct qr_tensor table = qr_tensor_2d(floats(c, (int64_t)MOST * r->n_cols), QR_F32, MOST, r->n_cols);
    CALL(k, embed, qr_embed_args, .out = floats(c, n), .table = &table, .ids = row, .out_stride = r->n_cols, .n_rows = r->n_rows, .scale = 1.5f);
    CALL(k, gather_rows, qr_gather_args, .out = floats(c, n), .x = table.data, .row = row, .out_stride = r->n_cols, .x_stride = r->n_cols,
         .n_rows = r->n_rows, .n_cols = r->n_cols);
    CALL(b, embed, qr_embed_back_args, .dtable = floats(c, (int64_t)MOST * r->n_cols), .dout = floats(c, n), .ids = row, .dout_stride = r->n_cols,
         .n_rows = r->n_rows, .n_cols = r->n_cols, .n_vocab = MOST, .scale = 1.5f);
    CALL(b, scatter_rows, qr_scatter_args, .dx = floats(c, (int64_t)MOST * r->n_cols), .dout = floats(c, n), .row = row, .dx_stride = r->n_cols,
         .dout_stride = r->n_cols, .n_rows = r->n_rows, .n_cols = r->n_cols);
    return true;
}

static bool losses(struct check *c, const void *arg)
{
    const struct qr_rows_case *r = arg;
    CALL(b, cross_entropy, qr_cross_entropy_args, .logits = floats(c, (int64_t)r->n_rows * r->n_cols), .loss = take(c, F64, r->n_rows, NULL),
         .target = choices(c, r->n_rows, r->n_cols), .stride = r->n_cols, .n_rows = r->n_rows, .n_cols = r->n_cols, .scale = 0.25f);
    return true;
}

static bool heads(struct check *c, const void *arg)
{
    enum { N = 9 };
    const struct qr_heads_case *h = arg;
    const int64_t stride = (int64_t)h->n_heads * h->head_dim, n = N * stride;
    double freq[QR_HEAD_DIM_MAX];
    for (int i = 0; i < QR_HEAD_DIM_MAX; i++)
        freq[i] = 1.0 / (1 + i);
    float *x = floats(c, n), *w = floats(c, h->head_dim), *cos_sin = floats(c, (int64_t)N * h->n_rot);
    CALL(k, rope_table, qr_rope_table_args, .cos_sin = cos_sin, .pos = choices(c, N, 5000), .inv_freq = take(c, F64, h->n_rot / 2, freq), .n_rows = N,
         .n_rot = h->n_rot, .attn_factor = 1.1f);
    CALL(b, head_norm, qr_head_norm_back_args, .dx = floats(c, n), .dw = floats(c, h->head_dim), .dy = floats(c, n), .x = x, .w = w, .dx_stride = stride,
         .dy_stride = stride, .x_stride = stride, .n_rows = N, .n_heads = h->n_heads, .head_dim = h->head_dim, .eps = 1e-5f);
    CALL(k, head_norm, qr_head_norm_args, .x = x, .w = w, .stride = stride, .n_rows = N, .n_heads = h->n_heads, .head_dim = h->head_dim, .eps = 1e-5f);
    CALL(k, rope, qr_rope_args, .x = x, .cos_sin = cos_sin, .stride = stride, .n_rows = N, .n_heads = h->n_heads, .head_dim = h->head_dim, .n_rot = h->n_rot);
    CALL(b, rope, qr_rope_args, .x = floats(c, n), .cos_sin = cos_sin, .stride = stride, .n_rows = N, .n_heads = h->n_heads, .head_dim = h->head_dim,
         .n_rot = h->n_rot);
    return true;
}

/* Rounding at random by the same counters: the same bits but where a sum's last bit decides. */
static bool optimizer(struct check *c, const void *arg)
{
    const int64_t n = *(const int64_t *)arg;
    float *w = floats(c, n), *g = floats(c, n), *m = floats(c, n);
    uint16_t *half = take(c, BF16, n, NULL);
    CALL(b, sum_squares, qr_sum_squares_args, .leaf = take(c, F64, qr_sum_leaves(n), NULL), .x = g, .n = n);
    CALL(b, momentum, qr_momentum_args, .m = m, .g = g, .out = floats(c, n), .n = n, .mu = 0.9, .gscale = 0.5);
    CALL(b, scale, qr_scale_args, .out = floats(c, n), .x = w, .n = n, .scale = 0.3, .half_scale = 1);
    CALL(b, move_by, qr_move_args, .w = w, .half = half, .u = m, .n = n, .step = 3, .keep = 0.99, .rate = 0.01, .seed = 4);
    CALL(b, adamw, qr_adamw_args, .w = w, .m = zeros(c, n), .v = zeros(c, n), .g = floats(c, n), .half = half, .n = n, .step = 1, .lr = 1e-2, .beta1 = 0.9,
         .beta2 = 0.95, .eps = 1e-8, .decay = 0.1, .gscale = 1, .seed = 9);
    return true;
}

/* ---- draws ---- */

/* The host's sampler takes the reference's turn: its kernels leave drawing to it. */
static bool draws(struct check *c, const void *arg)
{
    enum { N = 8 };
    const int32_t v = *(const int32_t *)arg;
    struct qr_draw_row row[N];
    for (int32_t i = 0; i < N; i++)
        row[i] = (struct qr_draw_row){.seed = 77 + (uint64_t)i, .temperature = i == 0 ? 0 : 0.5f, .top_p = i % 3 == 2 ? 0.9f : 1, .top_k = i % 3 == 1 ? 20 : 0,
                                      .repetition = 1, .at = i, .pos = i, .newest = -1, .id = -1, .n_top = i % 4 ? -1 : 5, .allowed = -1};
    const struct qr_draws d = {.row = take(c, PLAIN, sizeof row, row), .n_rows = N};
    float *id = zeros(c, 2 * N); /* compared as numbers: an id as the float of these bits would be 0 */
    struct qr_drawn *drawn = take(c, PLAIN, N * (int64_t)sizeof *drawn, NULL);
    struct qr_sample_args a = {.logits = floats(c, (int64_t)N * v), .draws = &d, .drawn = drawn,
                               .detail = take(c, PLAIN, N * (int64_t)sizeof(struct qr_drawn_detail), NULL), .stride = v, .n_vocab = v};
    struct qr_drawn got[N];
    if (c->be == c->ref) {
        struct qr_sampler s;
        qr_sampler_init(&s, v);
        sample_host(&s, &a);
        qr_sampler_release(&s);
    } else if (!c->be->k->sample) {
        return false;
    } else {
        c->be->k->sample(c->be->queue, &a);
    }
    c->be->mem->get(c->be->queue, got, drawn, sizeof got);
    float ids[2 * N];
    for (int32_t i = 0; i < N; i++)
        ids[i] = (float)got[i].id, ids[N + i] = got[i].logit;
    c->be->mem->put(c->be->queue, id, ids, sizeof ids);
    return true;
}

static void check_rows(struct check *c)
{
    char what[96];
    for (int i = 0; i < QR_COUNT(qr_rows_cases); i++) {
        const struct qr_rows_case *r = &qr_rows_cases[i];
        if (!(r->use & QR_CASE_CHECK))
            continue;
        const struct {
            const char *name;
            bool (*body)(struct check *c, const void *arg);
            double bound;
        } all[] = {{"rms_norm, residual_add, rms_norm back", norms, (r->n_cols + r->n_rows + 64) * 0x1p-22}, {"glu, glu back", units, 0x1p-19},
                   {"embed, gather_rows, embed back, scatter_rows", moves, 0x1p-20}, {"cross_entropy", losses, 0x1p-19},
                   {"layer_norm, unit, softcap", families, (r->n_cols + 64) * 0x1p-20}, {"adapt", additions, (r->n_cols + 64) * 0x1p-20}};
        for (int k = 0; k < QR_COUNT(all); k++) {
            snprintf(what, sizeof what, "%s: %d x %d", all[k].name, (int)r->n_rows, (int)r->n_cols);
            compare(c, what, all[k].body, r, all[k].bound);
        }
    }
    for (int i = 0; i < QR_COUNT(qr_heads_cases); i++) {
        const struct qr_heads_case *h = &qr_heads_cases[i];
        snprintf(what, sizeof what, "rope_table, head_norm, rope, and back: %d heads of %d", (int)h->n_heads, (int)h->head_dim);
        compare(c, what, heads, h, 0x1p-16);
    }
    static const struct mixture mixtures[] = {{1, QR_BF16}, {37, QR_F32}, {200, QR_BF16}, {50, QR_C4_G32}};
    for (int i = 0; i < QR_COUNT(mixtures); i++) {
        snprintf(what, sizeof what, "route, experts: %d rows, %s", (int)mixtures[i].n_rows, qr_dtype_name(mixtures[i].w));
        compare(c, what, mixture, &mixtures[i], 0x1p-6); /* numbers between the products are rounded to bf16, perhaps to the other neighbour */
    }
    static const int64_t sizes[] = {1, 4097, 20000};
    static const int32_t vocabularies[] = {200, 5000, 32001};
    for (int i = 0; i < 3; i++) {
        snprintf(what, sizeof what, "sum_squares, momentum, scale, move_by, adamw: %lld numbers", (long long)sizes[i]);
        compare(c, what, optimizer, &sizes[i], 0x1p-7); /* a neighbour in bf16 */
        snprintf(what, sizeof what, "sample: a vocabulary of %d", (int)vocabularies[i]);
        compare(c, what, draws, &vocabularies[i], 0);
    }
}

int check_small(const struct check_options *o, int32_t *n_wrong, int32_t *n_compared, struct qr_err *err)
{
    QR_ASSERT(o != NULL && o->device != NULL);
    QR_ASSERT(n_wrong != NULL && n_compared != NULL && err != NULL);
    struct check c = {.rng = {.seed = SEED}};
    const struct qr_backend_options plain = {.device = "cpu", .isa = "ref", .n_threads = 1}, bo = {.device = o->device, .n_threads = 1};
    int rc = qr_backend_open(&c.device, &bo, err);
    if (rc == 0)
        rc = qr_backend_open(&c.ref, &plain, err);
    if (rc == 0) {
        printf("%s beside the reference's kernels: largest difference, in units of the largest number or 1\n", c.device->title);
        if (check_wanted(o, "linear"))
            check_products(&c);
        if (check_wanted(o, "attention"))
            check_attention(&c);
        if (check_wanted(o, "rows"))
            check_rows(&c);
        printf("%d cases, %d wrong, %d of entries that are not there\n", (int)c.n_cases, (int)c.n_bad, (int)c.n_absent);
        *n_wrong = c.n_bad;
        *n_compared = c.n_cases;
    }
    qr_backend_close(c.ref);
    qr_backend_close(c.device);
    return rc;
}
