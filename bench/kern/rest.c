/* rest.c - cases of `quire bench kern` outside products and attention: norms, rotation, cache writing, adapters, the
 * head with its maxima, packing. Operands of successive calls are spread over memory, so that they come from there and
 * not from a cache. Rates count the bytes that the entry must touch. The caller's thread is worker 0. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "base/mem.h"
#include "bench/kern/case.h"

#define ROWS_MAX 512
#define BLOCK_TOKENS 16
#define COPY_LAYERS 28
#define HEAD_ROWS 64
#define EXPERTS 64
#define EXPERTS_USED 8
#define ADAPTERS 4
#define ADAPTED_ROWS 64
#define ADAPTER_RANK 16
#define HEAD_OUTPUTS 49152
#define NORM_AT ((size_t)8000000) /* in `out`: the weights of norms, behind everything else */

/* smollm2-135m and qwen3-0.6b: widths that no tile divides and ones that all do, heads of 64 and 128. */
static const struct shape {
    int32_t n_embd, n_heads, n_kv_heads, head_dim, n_ffn;
} shapes[] = {{576, 9, 3, 64, 1536}, {1024, 16, 8, 128, 3072}};

/* Operands of one shape with n rows. In-place kernels work on `out`, so x stays what it was. */
struct operands {
    const struct shape *s;
    const void *memory;
    const float *x;
    float *out, *second, *cos_sin, *ones; /* parts of one array */
    void *cache;
    int32_t n;
    int32_t *ids, *pos; /* [ROWS_MAX], ids below 1 << 14 */
};

#define CALL(entry)                                                    \
    static void call_##entry(struct qr_kern_case *b, int32_t copy)     \
    {                                                                  \
        (void)copy;                                                    \
        b->be->k->entry(b->be->queue, b->args);                        \
    }
CALL(rms_norm)
CALL(head_norm)
CALL(residual_add)
CALL(embed)
CALL(rope_table)
CALL(rope)
CALL(kv_write)
CALL(qkv)
CALL(kv_copy)
CALL(gather_rows)
CALL(pick_columns)
CALL(linear)
CALL(layer_norm)
CALL(unit)
CALL(softcap)
CALL(route)
CALL(adapt)

/* A matrix being packed. */
struct pack {
    const void *rows;
    void *dst;
    enum qr_dtype to;
    int32_t n_out, n_in;
};

static void call_linear_pack(struct qr_kern_case *b, int32_t copy)
{
    (void)copy;
    const struct pack *p = b->args;
    b->be->k->linear_pack(b->be->queue, p->dst, p->to, p->n_out, p->n_in, 0, p->rows, QR_BF16, p->n_out);
}

/* The case of one call with these arguments. */
static struct qr_kern_case *of(struct qr_kern_case *b, qr_kern_call *call, const void *args, double bytes)
{
    b->call = call;
    b->args = args;
    b->bytes = bytes;
    b->flop = 0;
    b->n_copies = 1;
    return b;
}

/* Kernels over the model's width; 4 bytes a number. */
static void bench_width(struct qr_kern_case *b, const struct operands *o)
{
    int32_t d = o->s->n_embd;
    double row_bytes = 4.0 * o->n * d;
    struct qr_norm_args norm = {.out = o->second, .x = o->out, .w = o->x, .out_stride = d, .x_stride = d, .n_rows = o->n, .n_cols = d, .eps = 1e-5f};
    qr_kern_report(of(b, call_rms_norm, &norm, 2 * row_bytes), "rms_norm %d x %d", o->n, d);
    struct qr_add_args add = {.x = o->out, .delta = o->x, .x_stride = d, .delta_stride = d, .n_rows = o->n, .n_cols = d};
    qr_kern_report(of(b, call_residual_add, &add, 3 * row_bytes), "residual_add %d x %d", o->n, d);
    struct qr_tensor table = qr_tensor_2d((void *)o->memory, QR_BF16, 1 << 14, d);
    struct qr_embed_args embed = {.out = o->out, .table = &table, .ids = o->ids, .out_stride = d, .n_rows = o->n, .scale = 1};
    qr_kern_report(of(b, call_embed, &embed, 1.5 * row_bytes), "embed %d x %d, bf16", o->n, d);
    struct qr_tensor none = qr_tensor_2d(NULL, QR_BF16, 1 << 14, d);
    embed.table = &none;
    embed.packed = o->memory;
    const double packed_bytes = (4.0 + 2 * QR_LINEAR_PACKED_TOGETHER) * o->n * d; /* whole lines of 16 rows */
    qr_kern_report(of(b, call_embed, &embed, packed_bytes), "embed %d x %d, packed bf16", o->n, d);
    struct qr_gather_args gather = {.out = o->out, .x = o->x, .row = o->pos, .out_stride = d, .x_stride = d, .n_rows = o->n, .n_cols = d};
    qr_kern_report(of(b, call_gather_rows, &gather, 2 * row_bytes), "gather_rows %d x %d", o->n, d);
    int32_t *col = qr_alloc((size_t)d, sizeof *col);
    for (int64_t i = 0; i < d; i++)
        col[i] = (int32_t)((i % 32 * d + i) / 32 % d); /* far from each other, as act-order leaves them */
    struct qr_pick_args pick = {.out = o->out, .x = o->x, .col = col, .out_stride = d, .x_stride = d, .n_rows = o->n, .n_cols = (int32_t)d};
    if (b->be->k->pick_columns)
        qr_kern_report(of(b, call_pick_columns, &pick, 2 * row_bytes), "pick_columns %d x %d", o->n, d);
    qr_free(col);
}

/* Kernels over heads, without a cache. */
static void bench_heads(struct qr_kern_case *b, const struct operands *o)
{
    int32_t h = o->s->n_heads, k = o->s->head_dim;
    double inv_freq[QR_HEAD_DIM_MAX / 2], q_bytes = 4.0 * o->n * h * k, angle_bytes = 4.0 * o->n * k;
    for (int32_t i = 0; i < k / 2; i++)
        inv_freq[i] = 1.0 / (1 + i * i);
    struct qr_rope_table_args angles = {.cos_sin = o->cos_sin, .pos = o->pos, .inv_freq = inv_freq, .n_rows = o->n, .n_rot = k, .attn_factor = 1};
    qr_kern_report(of(b, call_rope_table, &angles, angle_bytes), "rope_table %d x %d", o->n, k);
    struct qr_rope_args rope = {.x = o->out, .cos_sin = o->cos_sin, .stride = h * k, .n_rows = o->n, .n_heads = h, .head_dim = k, .n_rot = k};
    qr_kern_report(of(b, call_rope, &rope, 2 * q_bytes + angle_bytes), "rope %d x %d heads of %d", o->n, h, k);
    struct qr_head_norm_args norm = {.x = o->out, .w = o->ones, .stride = h * k, .n_rows = o->n, .n_heads = h, .head_dim = k, .eps = 1e-6f};
    qr_kern_report(of(b, call_head_norm, &norm, 2 * q_bytes), "head_norm %d x %d heads of %d", o->n, h, k);
}

/* What only some architectures have. */
static void bench_others(struct qr_kern_case *b, const struct operands *o)
{
    const int32_t d = o->s->n_embd;
    const double row_bytes = 4.0 * o->n * d;
    const struct qr_layer_norm_args norm = {.out = o->second, .x = o->x, .w = o->x, .bias = o->x, .out_stride = d, .x_stride = d, .n_rows = o->n, .n_cols = d,
                                            .eps = 1e-5f};
    qr_kern_report(of(b, call_layer_norm, &norm, 2 * row_bytes), "layer_norm %d x %d", o->n, d);
    for (int64_t i = 0; i < (int64_t)o->n * d; i++)
        o->second[i] = 50; /* what the unit leaves as it is, however often */
    const struct qr_unit_args unit = {.x = o->second, .stride = d, .n_rows = o->n, .n_cols = d};
    qr_kern_report(of(b, call_unit, &unit, 2 * row_bytes), "unit %d x %d", o->n, d);
    const struct qr_softcap_args cap = {.x = o->second, .stride = d, .n_rows = o->n, .n_cols = d, .cap = 50};
    qr_kern_report(of(b, call_softcap, &cap, 2 * row_bytes), "softcap %d x %d", o->n, d);
    int32_t ids[ROWS_MAX * EXPERTS_USED];
    const struct qr_route_args route = {.ids = ids, .weights = o->second, .logits = o->x, .logits_stride = EXPERTS, .n_rows = o->n, .n_experts = EXPERTS,
                                        .n_used = EXPERTS_USED, .normalize = true};
    if (o->s == shapes) /* no width of the model's is in it */
        qr_kern_report(of(b, call_route, &route, o->n * (4.0 * EXPERTS + 8 * EXPERTS_USED)),
                       "route %d x %d of %d", o->n, EXPERTS_USED, EXPERTS);
}

/* The rows with one adapter, or with four of them in turn. */
static void bench_adapt(struct qr_kern_case *b, const struct operands *o)
{
    const int32_t d = o->s->n_embd, n = o->n < ADAPTED_ROWS ? o->n : ADAPTED_ROWS, n_groups = n < ADAPTERS ? 1 : ADAPTERS, each = n / n_groups;
    const int64_t a_numbers = (int64_t)ADAPTER_RANK * d, b_numbers = qr_adapt_b_elements(ADAPTER_RANK, d);
    const uint16_t *numbers = o->memory;
    struct qr_row_group group[ADAPTERS];
    struct qr_adapt_parts parts[ADAPTERS];
    for (int32_t g = 0; g < n_groups; g++) {
        const uint16_t *at = numbers + g * (a_numbers + b_numbers);
        group[g] = (struct qr_row_group){.row = o->pos + (int64_t)g * each, .n_rows = each, .slot = g};
        parts[g] = (struct qr_adapt_parts){.n = 1, .part = {{.a = at, .b = at + a_numbers, .n_out = d, .rank = ADAPTER_RANK, .scale = 0x1p-20f}}};
    }
    const struct qr_adapt_args adapt = {.out = o->out, .x = o->x, .mid = o->second, .group = group, .parts = parts, .out_stride = d, .x_stride = d,
                                        .mid_stride = ADAPTER_RANK, .n_groups = n_groups, .n_in = d, .dtype = QR_BF16};
    qr_kern_report(of(b, call_adapt, &adapt, n_groups * 2.0 * (double)(a_numbers + b_numbers) + 12.0 * n * d),
                   "adapt %d x %d, %d of rank %d", n, d, n_groups, ADAPTER_RANK);
}

/* Kernels that write the cache, in each of its types. Row i goes to slot i. */
static void bench_cache(struct qr_kern_case *b, const struct operands *o, enum qr_dtype type)
{
    int32_t h = o->s->n_heads, g = o->s->n_kv_heads, k = o->s->head_dim, width = (h + 2 * g) * k;
    struct qr_kv_view kv = {.base = o->cache, .dtype = type, .n_blocks = ROWS_MAX / BLOCK_TOKENS, .n_layers = 1, .n_kv_heads = g,
                            .block_tokens = BLOCK_TOKENS, .head_dim = k};
    double token_bytes = (double)qr_kv_block_bytes(&kv) / BLOCK_TOKENS;
    struct qr_kv_write_args write = {.kv = &kv, .k = o->x, .v = o->x, .slot = o->pos, .k_stride = g * k, .v_stride = g * k, .n_rows = o->n};
    qr_kern_report(of(b, call_kv_write, &write, o->n * (token_bytes + 8.0 * g * k)),
                   "kv_write %d x %d heads of %d, %s", o->n, g, k, qr_dtype_name(type));
    bool norms = k == 128; /* Qwen3's */
    struct qr_qkv_args qkv = {.x = o->out, .q_norm = norms ? o->ones : NULL, .k_norm = norms ? o->ones : NULL, .cos_sin = o->cos_sin, .kv = &kv,
                              .slot = o->pos, .stride = width, .n_rows = o->n, .n_heads = h, .n_rot = k, .eps = 1e-6f};
    qr_kern_report(of(b, call_qkv, &qkv, o->n * (token_bytes + 4.0 * (2 * (h + g) + g) * k + 4.0 * k)),
                   "qkv %d x %d/%d heads of %d%s, %s", o->n, h, g, k, norms ? ", norms" : "", qr_dtype_name(type));
    if (o->n != 1)
        return;
    kv.n_blocks = 2;
    kv.n_layers = COPY_LAYERS;
    struct qr_kv_copy_args copy = {.kv = &kv, .src = 0, .dst = 1};
    qr_kern_report(of(b, call_kv_copy, &copy, 2.0 * (double)qr_kv_block_bytes(&kv)),
                   "kv_copy of %d layers, %d heads of %d, %s", COPY_LAYERS, g, k, qr_dtype_name(type));
}

/* A head's product, and one that says of stretches of logits what their largest is, and their sums of exponentials. */
static void bench_head(struct qr_kern_case *b, const struct operands *o, enum qr_dtype type)
{
    static const char *const names[] = {"", ", largest", ", largest and sums"};
    const int32_t d = o->s->n_embd, n_vocab = HEAD_OUTPUTS;
    const int64_t n = (n_vocab + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH, rows = o->n;
    float *largest = o->out + rows * n_vocab, *sum = largest + rows * n;
    const struct qr_weight w = {.packed_dtype = type, .packed = (void *)o->memory};
    float scale[HEAD_ROWS];
    double squares = 0;
    for (int i = 0; i < QR_COUNT(names); i++) {
        const struct qr_stretches s = {.largest = largest, .sum = i == 2 ? sum : NULL, .scale = scale, .stride = n};
        const struct qr_linear_args a = {.out = o->out, .x = o->x, .w = &w, .stretches = i > 0 ? &s : NULL, .out_stride = n_vocab, .x_stride = d,
                                         .n_rows = (int32_t)rows, .n_in = d, .n_out = n_vocab};
        const double bytes = (double)b->be->k->linear_packed_bytes(type, n_vocab, d) + 4.0 * (double)rows * n_vocab;
        qr_kern_report(of(b, call_linear, &a, bytes), "head %d x %d -> %d, %s%s", o->n, d, n_vocab, qr_dtype_name(type),
                       names[i]);
        for (int64_t k = 0; k < n_vocab; k++)
            squares += i == 0 ? (double)o->out[k] * (double)o->out[k] : 0;
        for (int64_t r = 0; r < rows; r++)
            scale[r] = (float)(1 / sqrt(squares / n_vocab)); /* exponentials of what weights of any size give would be denormal */
    }
}

/* Matrices packed in the order that linear reads, from bf16. */
static void bench_pack(struct qr_kern_case *b, const struct operands *o, enum qr_dtype to)
{
    const int32_t d = o->s->n_embd;
    struct pack p = {.rows = o->memory, .dst = o->out, .to = to, .n_out = 2 * o->s->n_ffn, .n_in = d};
    const size_t packed_bytes = b->be->k->linear_packed_bytes(to, p.n_out, d);
    memset(o->out, 0, packed_bytes);
    qr_kern_report(of(b, call_linear_pack, &p, (double)packed_bytes + 2.0 * p.n_out * d),
                   "linear_pack %d x %d to %s", d,
                   p.n_out, qr_dtype_name(to));
}

void qr_kern_rest(struct qr_kern_case *b, const void *memory, const float *x, float *out)
{
    QR_ASSERT(b != NULL && b->be != NULL);
    QR_ASSERT(memory != NULL && x != NULL && out != NULL);
    static const enum qr_dtype caches[] = {QR_BF16, QR_I8};
    int32_t ids[ROWS_MAX], pos[ROWS_MAX];
    struct qr_rng rng = {.seed = 9};
    for (int32_t i = 0; i < ROWS_MAX; i++) {
        ids[i] = (int32_t)qr_rng_below(&rng, 1 << 14);
        pos[i] = i;
    }
    const size_t part = (size_t)2 << 20;
    for (int32_t i = 0; i < QR_HEAD_DIM_MAX; i++)
        out[NORM_AT + i] = 1; /* a kernel runs on its own results thousands of times: they must not fade to denormal numbers */
    for (int s = 0; s < QR_COUNT(shapes); s++)
        for (int32_t n = 1; n <= ROWS_MAX; n = n == 1 ? ROWS_MAX : ROWS_MAX + 1) {
            const struct operands o = {.s = &shapes[s], .memory = memory, .x = x, .out = out, .second = out + part, .cos_sin = out + 2 * part,
                                       .cache = out + 3 * part, .ones = out + NORM_AT, .n = n, .ids = ids, .pos = pos};
            memcpy(out, x, part * sizeof *out);
            bench_width(b, &o);
            bench_heads(b, &o);
            bench_others(b, &o);
            bench_adapt(b, &o);
            for (int i = 0; i < QR_COUNT(caches); i++)
                bench_cache(b, &o, caches[i]);
        }
}

void qr_kern_head(struct qr_kern_case *b, const void *memory, const float *x, float *out)
{
    static const enum qr_dtype types[] = {QR_BF16, QR_Q8, QR_Q4};
    QR_ASSERT(b != NULL && b->be != NULL);
    QR_ASSERT(memory != NULL && x != NULL && out != NULL);
    for (int i = 0; i < QR_COUNT(shapes) * QR_COUNT(types); i++) {
        struct operands o = {.s = &shapes[i / QR_COUNT(types)], .memory = memory, .x = x, .out = out, .n = 1};
        bench_head(b, &o, types[i % QR_COUNT(types)]);
        o.n = HEAD_ROWS;
        bench_head(b, &o, types[i % QR_COUNT(types)]);
        bench_pack(b, &o, types[i % QR_COUNT(types)]);
    }
}
