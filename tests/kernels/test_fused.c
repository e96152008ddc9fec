/* What a product does on its way in and out, and the way of q, k, v to the cache: the same bits as the kernels that do one thing each. These
 * are compared with the oracle elsewhere. */
#define QR_ISA avx512 /* for names in that header */
#include "kernels/cpu/isa/quant/quant.h"
#include "tests/kernels/product.h"
#include "tests/kernels/random_cuts.h"

#define SEED 771

static const enum qr_dtype formats[] = {QR_F32, QR_BF16, QR_Q8, QR_Q4, QR_C8_G32, QR_C4_G32, QR_C4_G32_SO, QR_C6_G16_S};

/* What a device has, of few rows: an emulated one is slow, and more are products one by one there. */
static bool has(const char *level, enum qr_dtype type, int32_t n_rows)
{
    const bool on_device = strcmp(level, "cuda") == 0;
    return !on_device || (n_rows <= 16 && type != QR_Q8 && type != QR_Q4);
}

/* Rows of n_in numbers as row tiles, or NULL where such a product does not read them. Owned by the caller. */
static uint16_t *tiles_of(const struct qr_backend *be, const struct qr_linear_args *a)
{
    static const struct qr_kv_view any = {.dtype = QR_BF16, .head_dim = 32};
    if (a->n_in % 32 || a->norm_w || a->glu || !qr_takes_row_tiles(be->k, a->w->packed_dtype, &any))
        return NULL;
    uint16_t *tiles = qr_alloc_aligned((size_t)a->n_rows * (size_t)a->n_in * sizeof *tiles, 64);
    for (int64_t r = 0; r < a->n_rows; r++)
        for (int64_t i = 0; i < a->n_in; i++)
            tiles[qr_row_tile_at(a->n_rows, a->n_in, r, i)] = tile_bf16(a->x[r * a->x_stride + i]);
    return tiles;
}

static void check_given_tiles(struct qr_backend *be, const struct data *d, struct form f, const float *want)
{
    const int64_t n = d->n_rows * d->out_stride;
    float *got = f.add ? copy_floats(d->old, n) : poisoned(n);
    struct qr_linear_args a = args_of(d, f, got);
    uint16_t *tiles = tiles_of(be, &a);
    if (tiles) {
        a.x = NULL;
        a.x_tiles = tiles;
        be->k->linear(be->queue, &a);
        cr_assert(same_bits(want, got, n), "%s, %s, %d rows, %d -> %d, bias %d add %d: differs with rows as tiles", be->k->name,
                  qr_dtype_name(d->w.packed_dtype), d->n_rows, d->n_in, d->n_out, f.bias, f.add);
    }
    qr_free_aligned(tiles);
    qr_free(got);
}

static void check_forms(struct qr_backend *be, const struct data *d)
{
    for (int bits = 0; bits < 16; bits++) {
        const struct form f = {.norm = bits & 1, .bias = bits & 2, .add = bits & 4, .glu = bits & 8,
                               .act = (enum qr_act)(bits % 8 % 3)};
        if ((f.add && f.glu) || (f.glu && d->n_out % 2))
            continue;
        const int64_t n = d->n_rows * d->out_stride;
        float *want = product_apart(be, d, f), *got = f.add ? copy_floats(d->old, n) : poisoned(n);
        const struct qr_linear_args a = args_of(d, f, got);
        be->k->linear(be->queue, &a);
        cr_assert(same_bits(want, got, n), "%s, %s, %d rows, %d -> %d, norm %d bias %d add %d glu %d: differs from one kernel for each", be->k->name,
                  qr_dtype_name(d->w.packed_dtype), d->n_rows, d->n_in, d->n_out, f.norm, f.bias, f.add, f.glu);
        check_given_tiles(be, d, f, want);
        qr_free(want);
        qr_free(got);
    }
}

/* Rows and widths that fill tiles and panels, and one beyond; a gate's width that is no multiple of a panel; more rows than a chunk. */
Test(fused, products_give_the_same_bits_as_norm_product_unit_and_addition_apart)
{
    static const struct {
        int32_t n_rows, n_in, n_out;
    } shapes[] = {{1, 64, 64},   {1, 576, 96},   {2, 100, 344},  {3, 1, 2},     {4, 96, 160},  {5, 203, 1038}, {16, 64, 32},
                  {17, 65, 544}, {33, 128, 192}, {48, 577, 128}, {60, 40, 66}, {140, 70, 224}, {531, 64, 128}, {7, 33, 31},   {40, 1221, 320}};
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    struct qr_rng r = {.seed = SEED};
    printf("seed %d\n", SEED);
    for (int32_t l = 0; l < n_levels; l++)
        for (int32_t t = 1; t <= 2; t++) {
            struct qr_backend *be = open_level(names[l], t, t == 1 ? 0 : 16);
            for (int i = 0; i < QR_COUNT(shapes); i++)
                for (int f = 0; f < QR_COUNT(formats); f++) {
                    if (l == 0 && (shapes[i].n_rows > 60 || t > 1 || (i + f) % 3 != 0)) /* ref has neither chunks nor threads and takes its time */
                        continue;
                    if ((i + f + l) % (UTIL_STEP > 1 ? 17 : 1) != 0 || (qr_dtype_is_coded(formats[f]) && (i + f) % 2)) /* from unpacking on these are bf16 */
                        continue;
                    struct data d = make(be, &r, formats[f], shapes[i].n_rows, shapes[i].n_in, shapes[i].n_out);
                    check_forms(be, &d);
                    drop(&d);
                }
            qr_backend_close(be);
        }
}

/* One row of a batch alone, on one thread: what a fused product gives a row does not depend on its company either. */
Test(fused, products_give_a_row_the_same_bits_alone)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    struct qr_rng r = {.seed = SEED + 1};
    for (int32_t l = 0; l < n_levels; l++)
        for (int f = 0; f < QR_COUNT(formats); f++) {
            struct qr_backend *be = open_level(names[l], 2, 0), *one = open_level(names[l], 1, 0);
            struct data d = make(be, &r, formats[f], 37, 160, 352);
            const struct form form = {.norm = true, .bias = true, .glu = true};
            float *whole = poisoned(d.n_rows * d.out_stride), *alone = poisoned(d.out_stride);
            struct qr_linear_args a = args_of(&d, form, whole);
            be->k->linear(be->queue, &a);
            cr_assert(gaps_untouched(whole, d.n_rows, d.n_out / 2, d.out_stride));
            a.out = alone;
            a.n_rows = 1;
            for (int32_t n = 0; n < d.n_rows; n++, a.x += d.x_stride) {
                one->k->linear(one->queue, &a);
                cr_assert(same_bits(alone, whole + n * d.out_stride, d.n_out / 2), "%s, %s: row %d differs alone", names[l], qr_dtype_name(formats[f]), n);
            }
            qr_free(whole);
            qr_free(alone);
            drop(&d);
            qr_backend_close(be);
            qr_backend_close(one);
        }
}

/* Not there where a build leaves a level out (cmake/isa.cmake). */
#pragma weak qr_avx2_quant_ways
#pragma weak qr_avx2_linear_quant
#pragma weak qr_avx512_quant_norm

/* What level avx512 does on a processor without AVX512-VNNI, asked for on any that has the level: avx2's products, behind its own norm. */
Test(fused, integer_products_of_level_avx512_have_the_same_bits_with_and_without_vnni)
{
    static const enum qr_dtype integers[] = {QR_Q8, QR_Q4};
    static const int32_t n_rows[] = {1, 4, 5, 37};
    if (!has_level("avx512"))
        cr_skip_test("this processor has no avx512");
    struct qr_rng r = {.seed = SEED + 2};
    struct qr_backend *be = open_level("avx512", 2, 0);
    for (int i = 0; i < QR_COUNT(integers) * QR_COUNT(n_rows); i++) {
        const enum qr_dtype type = integers[i % QR_COUNT(integers)];
        struct data d = make(be, &r, type, n_rows[i / QR_COUNT(integers)], 203, 320);
        const int64_t n = d.n_rows * d.out_stride;
        for (int act = QR_ACT_SILU; act <= QR_ACT_CLAMPED; act++) {
            const struct form f = {.norm = true, .bias = true, .glu = true, .act = (enum qr_act)act};
            float *want = poisoned(n), *got = poisoned(n);
            const struct qr_linear_args a = args_of(&d, f, want), b = args_of(&d, f, got);
            be->k->linear(be->queue, &a);
            qr_avx2_linear_quant(be->queue, &b, qr_avx2_quant_ways(), qr_avx512_quant_norm);
            cr_assert(same_bits(want, got, n), "%s, %d rows, unit %d", qr_dtype_name(type), d.n_rows, act);
            qr_free(want);
            qr_free(got);
        }
        drop(&d);
    }
    qr_backend_close(be);
}

struct heads {
    struct qr_kv_view kv;
    float *x, *q_norm, *k_norm, *cos_sin;
    int32_t *slot;
    int32_t n_rows, n_heads, n_rot;
    int64_t stride;
};

static struct heads make_heads(struct qr_rng *r, enum qr_dtype cache, int32_t n_heads, int32_t n_kv, int32_t dim, int32_t n_rot, int32_t n_rows)
{
    struct heads h = {.kv = {.dtype = cache, .n_blocks = 6 * ((n_rows + 47) / 48), .n_layers = 2, .n_kv_heads = n_kv, .block_tokens = 8, .head_dim = dim}};
    h.n_rows = n_rows;
    h.n_heads = n_heads;
    h.n_rot = n_rot;
    h.stride = (int64_t)(n_heads + 2 * n_kv) * dim + 7;
    h.x = random_floats(r, h.n_rows * h.stride);
    h.q_norm = random_floats(r, dim);
    h.k_norm = random_floats(r, dim);
    h.cos_sin = random_floats(r, (int64_t)h.n_rows * n_rot);
    h.slot = qr_alloc((size_t)h.n_rows, sizeof *h.slot);
    for (int32_t n = 0; n < h.n_rows; n++)
        h.slot[n] = (n * 29 + 3) % (8 * h.kv.n_blocks); /* 29 and that have no divisor in common: all different */
    return h;
}

static void drop_heads(struct heads *h)
{
    qr_free(h->x);
    qr_free(h->q_norm);
    qr_free(h->k_norm);
    qr_free(h->cos_sin);
    qr_free(h->slot);
}

static void heads_apart(struct qr_backend *be, const struct heads *h, const struct qr_kv_view *kv, float *x, bool norm)
{
    const int32_t g = kv->n_kv_heads, dim = kv->head_dim;
    float *k = x + (int64_t)h->n_heads * dim, *v = k + (int64_t)g * dim;
    struct qr_head_norm_args n = {.x = x, .w = h->q_norm, .stride = h->stride, .n_rows = h->n_rows, .n_heads = h->n_heads, .head_dim = dim, .eps = 1e-6f};
    struct qr_rope_args rope = {.x = x, .cos_sin = h->cos_sin, .stride = h->stride, .n_rows = h->n_rows, .n_heads = h->n_heads, .head_dim = dim,
                                .n_rot = h->n_rot};
    const struct qr_kv_write_args write = {.kv = kv, .k = k, .v = v, .slot = h->slot, .k_stride = h->stride, .v_stride = h->stride, .layer = 1,
                                           .n_rows = h->n_rows};
    if (norm)
        be->k->head_norm(be->queue, &n);
    be->k->rope(be->queue, &rope);
    n.x = rope.x = k;
    n.w = h->k_norm;
    n.n_heads = rope.n_heads = g;
    if (norm)
        be->k->head_norm(be->queue, &n);
    be->k->rope(be->queue, &rope);
    be->k->kv_write(be->queue, &write);
}

static void check_heads(struct qr_backend *be, const struct heads *h, bool norm)
{
    const size_t n_bytes = (size_t)h->kv.n_blocks * qr_kv_block_bytes(&h->kv);
    struct qr_kv_view apart = h->kv, fused = h->kv;
    float *x = copy_floats(h->x, h->n_rows * h->stride), *y = copy_floats(h->x, h->n_rows * h->stride);
    apart.base = qr_alloc_aligned(n_bytes, 64);
    fused.base = qr_alloc_aligned(n_bytes, 64);
    heads_apart(be, h, &apart, x, norm);
    const struct qr_qkv_args a = {.x = y, .q_norm = norm ? h->q_norm : NULL, .k_norm = norm ? h->k_norm : NULL, .cos_sin = h->cos_sin, .kv = &fused,
                                  .slot = h->slot, .stride = h->stride, .layer = 1, .n_rows = h->n_rows, .n_heads = h->n_heads, .n_rot = h->n_rot,
                                  .eps = 1e-6f};
    be->k->qkv(be->queue, &a);
    cr_assert(same_bits(x, y, h->n_rows * h->stride), "%s: q, k, v differ", be->k->name);
    cr_assert_eq(memcmp(apart.base, fused.base, n_bytes), 0, "%s: caches of %s differ", be->k->name, qr_dtype_name(h->kv.dtype));
    cr_assert_neq(memcmp(x, h->x, sizeof *x * (size_t)h->stride), 0); /* something was done */
    if (qr_takes_bf16_queries(be->k, &fused)) {
        struct qr_qkv_args rounded = a;
        memcpy(y, h->x, sizeof *y * (size_t)(h->n_rows * h->stride));
        rounded.q_bf16 = true;
        be->k->qkv(be->queue, &rounded);
        for (int64_t hk = (int64_t)h->n_heads * h->kv.head_dim, i = 0; i < h->n_rows * hk; i++) {
            const int64_t row = i / hk * h->stride;
            cr_assert_eq(((uint16_t *)(void *)(y + row))[i % hk], tile_bf16(x[row + i % hk]), "%s: number %d of q, rounded", be->k->name, (int)i);
        }
    }
    qr_free_aligned(apart.base);
    qr_free_aligned(fused.base);
    qr_free(x);
    qr_free(y);
}

Test(fused, heads_reach_the_cache_with_the_same_bits_as_by_norm_rotation_and_writing_apart)
{
    static const enum qr_dtype caches[] = {QR_F32, QR_BF16, QR_I8};
    static const int32_t shapes[][4] = {{9, 3, 64, 64}, {4, 2, 80, 20}, {2, 2, 24, 8}, {3, 1, 256, 64}, {1, 1, 8, 2}}; /* H, G, K, R */
    const char *names[8];
    int32_t n_levels = device_levels(names);
    struct qr_rng r = {.seed = SEED + 2};
    for (int32_t l = 0; l < n_levels; l++)
        for (int32_t t = 1; t <= 2; t++) {
            if (t > 1 && strcmp(names[l], "cuda") == 0) /* threads are not a device's */
                continue;
            struct qr_backend *be = open_level(names[l], t, 0);
            for (int i = 0; i < QR_COUNT(shapes) * QR_COUNT(caches); i++) {
                if ((i + i / QR_COUNT(caches)) % UTIL_STEP != 0) /* another cache for each shape */
                    continue;
                const int32_t *s = shapes[i / QR_COUNT(caches)];
                struct heads h = make_heads(&r, caches[i % QR_COUNT(caches)], s[0], s[1], s[2], s[3], 41);
                check_heads(be, &h, false);
                check_heads(be, &h, true);
                drop_heads(&h);
            }
            qr_backend_close(be);
        }
}

/* Half a layer: h += x out^T + b, gated = unit(norm(h) gate_up^T + b), h += gated down^T + b. */
struct half {
    struct data out, gate_up, down;
    struct qr_linear_args a[3];
    float *h, *gated; /* owned */
};

/* bits: biases, and which unit. */
static void make_half(struct half *l, struct qr_backend *be, struct qr_rng *r, enum qr_dtype type, const int32_t *s, int bits)
{
    l->out = make(be, r, type, s[0], s[1], s[2]);
    l->gate_up = make(be, r, type, s[0], s[2], 2 * s[3]);
    l->down = make(be, r, type, s[0], s[3], s[2]);
    l->a[0] = args_of(&l->out, (struct form){.bias = bits & 1, .add = true}, NULL);
    const struct form gated = {.norm = true, .bias = bits & 1, .glu = true, .act = (enum qr_act)(bits % 3)};
    l->a[1] = args_of(&l->gate_up, gated, NULL);
    l->a[2] = args_of(&l->down, (struct form){.bias = bits & 1, .add = true}, NULL);
    l->a[1].x_stride = l->a[2].out_stride = l->a[0].out_stride;
    l->a[2].x_stride = l->a[1].out_stride = s[3] + 7;
    l->a[1].passing = true;
}

/* A new h and room for gated: rows of floats, or what it may take in a chain where that is less. */
static void begin_half(struct half *l, const struct qr_backend *be)
{
    const int64_t n_floats = l->out.n_rows * l->a[2].x_stride, passing = be ? qr_passing_bytes(be->k, &l->a[1], l->a[2].w) : 0;
    const bool less = passing > 0 && passing < (int64_t)l->out.n_rows * l->a[2].n_in * (int64_t)sizeof(float);
    l->h = copy_floats(l->out.old, l->out.n_rows * l->out.out_stride);
    l->gated = poisoned(less ? (passing + 3) / 4 : n_floats);
    l->a[0].out = l->a[2].out = l->h;
    l->a[1].x = l->h;
    l->a[1].out = l->gated;
    l->a[2].x = l->gated;
}

static void check_chain(struct qr_backend *be, struct qr_rng *r, enum qr_dtype type, const int32_t *s, int bits)
{
    struct half l;
    make_half(&l, be, r, type, s, bits);
    begin_half(&l, NULL);
    float *want = l.h;
    for (int i = 0; i < 3; i++)
        be->k->linear(be->queue, &l.a[i]);
    qr_free(l.gated);
    for (int tuned = 0; tuned < (be->tune ? 2 : 1); tuned++) { /* by the kernels' own choices, and by any others */
        begin_half(&l, be);
        uint16_t *tiles = tuned == 0 ? tiles_of(be, &l.a[0]) : NULL;
        l.a[0].x_tiles = tiles;
        const struct qr_chain_args chain = {.linear = l.a, .n = 3};
        if (be->tune)
            random_cuts(be->tune, tuned ? r : NULL);
        be->k->chain(be->queue, &chain);
        cr_assert(same_bits(want, l.h, l.out.n_rows * l.out.out_stride),
                  "%s, %s, %d rows, %d -> %d -> %d, form %d, %d threads, %s tunables: differs from product by product", be->k->name, qr_dtype_name(type), s[0],
                  s[1], s[2], s[3], bits, be->n_threads, tuned ? "random" : "no");
        cr_assert_neq(memcmp(want, l.out.old, sizeof *want * (size_t)s[2]), 0); /* something was done */
        qr_free(l.h);
        qr_free(l.gated);
        qr_free_aligned(tiles);
        l.a[0].x_tiles = NULL;
        if (be->tune)
            random_cuts(be->tune, NULL);
    }
    qr_free(want);
    drop(&l.out);
    drop(&l.gate_up);
    drop(&l.down);
}

/* Few rows, and so many that a thread keeps its own; gates that fill half a tile's line, and those that are no panels. Both with one item for each
 * thread and with several. */
Test(fused, a_chain_of_products_gives_the_same_bits_as_product_by_product)
{
    static const int32_t shapes[][4] = {{1, 64, 64, 96}, {11, 40, 48, 36}, {40, 64, 96, 80}, {203, 100, 72, 208}, {331, 33, 64, 40}, {1043, 64, 32, 48}};
    const char *names[8];
    int32_t n_levels = device_levels(names), best = qr_cpu_levels(names) - 1;
    struct qr_rng r = {.seed = SEED + 3};
    for (int32_t l = 0; l < n_levels; l++)
        for (int32_t t = 1; t <= 2; t++) {
            struct qr_backend *be = open_level(names[l], t, 0);
            for (int i = (t - 1) % UTIL_STEP; i < QR_COUNT(shapes) * QR_COUNT(formats); i += UTIL_STEP)
                if (has(names[l], formats[i % QR_COUNT(formats)], shapes[i / QR_COUNT(formats)][0]) &&
                    (shapes[i / QR_COUNT(formats)][0] <= 60 || l == best)) /* the best level is the one that has chains */
                    check_chain(be, &r, formats[i % QR_COUNT(formats)], shapes[i / QR_COUNT(formats)], i);
            qr_backend_close(be);
        }
}

Test(fused, a_chain_that_ends_in_heads_gives_the_same_bits_as_both_apart)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    struct qr_rng r = {.seed = SEED + 4};
    for (int32_t l = 0; l < n_levels; l++)
        for (int f = 0; f < QR_COUNT(formats); f++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            struct heads h = make_heads(&r, QR_BF16, 4, 2, 24, 16, 241);
            struct data d = make(be, &r, formats[f], h.n_rows, 80, 8 * 24);
            const size_t n_bytes = (size_t)h.kv.n_blocks * qr_kv_block_bytes(&h.kv);
            float *x[2];
            void *cache[2];
            for (int i = 0; i < 2; i++) {
                x[i] = poisoned(h.n_rows * d.out_stride);
                h.kv.base = cache[i] = qr_alloc_aligned(n_bytes, 64);
                const struct qr_linear_args a = args_of(&d, (struct form){.norm = true}, x[i]);
                const struct qr_qkv_args heads = {.x = x[i], .cos_sin = h.cos_sin, .kv = &h.kv, .slot = h.slot, .stride = d.out_stride, .layer = 1,
                                                  .n_rows = h.n_rows, .n_heads = h.n_heads, .n_rot = h.n_rot, .eps = 1e-6f};
                const struct qr_chain_args chain = {.linear = &a, .n = 1, .heads = &heads};
                if (i == 1) {
                    be->k->chain(be->queue, &chain);
                    break;
                }
                be->k->linear(be->queue, &a);
                be->k->qkv(be->queue, &heads);
            }
            cr_assert(same_bits(x[0], x[1], h.n_rows * d.out_stride), "%s, %s: q, k, v differ", names[l], qr_dtype_name(formats[f]));
            cr_assert_eq(memcmp(cache[0], cache[1], n_bytes), 0, "%s, %s: caches differ", names[l], qr_dtype_name(formats[f]));
            for (int i = 0; i < 2; i++) {
                qr_free(x[i]);
                qr_free_aligned(cache[i]);
            }
            drop(&d);
            drop_heads(&h);
            qr_backend_close(be);
        }
}
