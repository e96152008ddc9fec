/* Products of up to 16 rows on a device (kernels/cuda/few.cu), with what they take in, and of codes with up to 64 (linear.cu): the bits of a product with many
 * rows and of launches for each part, and how many launches there are. */
#include "tests/kernels/product.h"

#include "tests/cuda_emu/emu.h"

#define SEED 4160

enum { MANY = 20, MORE = 70 }; /* rows that another kernel multiplies */

static bool there_is_no_device(void)
{
    const char *lib = getenv("QUIRE_CUDA_EMU_LIB");
    const bool none = !lib || access(lib, R_OK) != 0;
    if (none)
        cr_skip_test("no emulated device: no C++ compiler, or not run through ctest");
    printf("seed %d\n", SEED);
    return none;
}

static int64_t launches(void)
{
    struct qr_emu_counts (*counts)(void);
    *(void **)&counts = emulated_function("qr_emu_counts");
    cr_assert_not_null(counts);
    return counts().launches;
}

/* The first rows of `many`, in every form. */
static void check_first(struct qr_backend *be, const struct data *many, int32_t n_rows, int bits)
{
    const struct form f = {.norm = bits & 1, .bias = bits & 2, .add = bits & 4, .glu = bits & 8,
                           .act = (enum qr_act)(bits % 8 % 3)};
    const int64_t n = n_rows * many->out_stride;
    if ((f.add && f.glu) || (f.glu && many->n_out % 2))
        return;
    float *want = product_apart(be, many, f), *got = f.add ? copy_floats(many->old, n) : poisoned(n);
    struct qr_linear_args a = args_of(many, f, got);
    a.n_rows = n_rows;
    be->k->linear(be->queue, &a);
    cr_assert(same_bits(want, got, n), "%s, %d rows, %d -> %d, norm %d bias %d add %d glu %d: not the first rows of many", qr_dtype_name(many->w.packed_dtype),
              n_rows, many->n_in, many->n_out, f.norm, f.bias, f.add, f.glu);
    qr_free(want);
    qr_free(got);
}

/* Rows that blocks make bf16 and rows that come so, aligned or not; a row of each number of warps that sum it; fewer tiles than blocks, and more. */
Test(cuda_few, products_of_few_rows_are_the_first_rows_of_many_with_each_step_in_a_launch_of_its_own)
{
    static const enum qr_dtype formats[] = {QR_BF16, QR_C4_G32, QR_C4_G32_SO, QR_F8, QR_C8_G32};
    static const struct {
        int32_t n_in, n_out;
    } shapes[] = {{72, 40}, {33, 31}, {576, 336}, {1100, 24}, {4100, 16}, {8200, 10}};
    static const int32_t rows[] = {1, 8, 9, 3, 16, 5};
    if (there_is_no_device())
        return;
    struct qr_rng r = {.seed = SEED};
    for (int i = 0; i < QR_COUNT(shapes) * QR_COUNT(formats); i += UTIL_STEP) {
        const int s = i % QR_COUNT(shapes);
        if (shapes[s].n_in > 576 && i >= QR_COUNT(shapes)) /* an emulated device is slow */
            continue;
        struct qr_backend *be = open_emulated(1 + i % 2, 64);
        struct data d = make(be, &r, formats[i % QR_COUNT(formats)], MANY, shapes[s].n_in, shapes[s].n_out);
        if (i % 2)
            d.x_stride = d.n_in; /* rows as float4, where their width is a multiple */
        for (int k = 0; k < 2; k++)
            check_first(be, &d, rows[(i + k) % QR_COUNT(rows)], (5 * i + 3 * k) % 16);
        drop(&d);
        qr_backend_close(be);
    }
}

/* Blocks of 128 columns and of 64; fewer inputs than are under way, and more; each pair of a form and a shape once. */
Test(cuda_few, products_of_codes_with_17_to_64_rows_are_the_first_rows_of_more)
{
    static const enum qr_dtype formats[] = {QR_C8_G32, QR_C4_G64, QR_F8, QR_C4_G32_SO, QR_C6_G16_S};
    static const struct {
        int32_t n_in, n_out;
    } shapes[] = {{64, 40}, {544, 150}, {992, 70}};
    static const int32_t rows[] = {17, 64, 32, 33};
    if (there_is_no_device())
        return;
    struct qr_rng r = {.seed = SEED + 2};
    for (int i = 0; i < QR_COUNT(shapes) * QR_COUNT(formats); i += UTIL_STEP) {
        const int s = i / QR_COUNT(formats);
        struct qr_backend *be = open_emulated(i % 2 ? 1 : 3, MORE);
        struct data d = make(be, &r, formats[i % QR_COUNT(formats)], MORE, shapes[s].n_in, shapes[s].n_out);
        for (int k = 0; k < 2; k++)
            check_first(be, &d, rows[(i + k) % QR_COUNT(rows)], (5 * i + 3 * k) % 16);
        drop(&d);
        qr_backend_close(be);
    }
}

/* q, k, v of a few rows on their way to the cache. */
struct way {
    struct data d;
    struct qr_kv_view kv;
    float *norm_w, *cos_sin;
    int32_t n_rot, slot[16];
    bool norms;
};

enum { HEADS = 3, KV_HEADS = 2, LAYER = 1 };

static struct way way_new(struct qr_backend *be, struct qr_rng *r, enum qr_dtype cache, int32_t n_rows, int32_t dim, int32_t n_rot, bool norms)
{
    struct way w = {.d = make(be, r, QR_BF16, n_rows, 80, (HEADS + 2 * KV_HEADS) * dim), .n_rot = n_rot, .norms = norms,
                    .kv = {.dtype = cache, .n_blocks = 4, .n_layers = 2, .n_kv_heads = KV_HEADS, .block_tokens = 8, .head_dim = dim}};
    w.d.x_stride = w.d.n_in; /* rows as float4: others become bf16 in a launch of their own */
    w.norm_w = random_floats(r, dim);
    w.cos_sin = random_floats(r, (int64_t)n_rows * n_rot);
    for (int32_t n = 0; n < n_rows; n++)
        w.slot[n] = n == 2 ? -1 : (n * 5 + 1) % 32; /* one is nobody's */
    return w;
}

/* x and the cache behind each other; returns launches. */
static int64_t way_run(struct qr_backend *be, struct way *w, bool chained, float **x, void **cache, size_t *cache_bytes)
{
    const struct data *d = &w->d;
    *cache_bytes = (size_t)w->kv.n_blocks * qr_kv_block_bytes(&w->kv);
    w->kv.base = *cache = qr_alloc_aligned(*cache_bytes, 64);
    *x = poisoned(d->n_rows * d->out_stride);
    const struct qr_linear_args a = args_of(d, (struct form){.norm = true, .bias = true}, *x);
    const float *norm_w = w->norms ? w->norm_w : NULL;
    const struct qr_qkv_args heads = {.x = *x, .q_norm = norm_w, .k_norm = norm_w, .cos_sin = w->cos_sin, .kv = &w->kv, .slot = w->slot,
                                      .stride = d->out_stride, .layer = LAYER, .n_rows = d->n_rows, .n_heads = HEADS, .n_rot = w->n_rot, .eps = 1e-6f};
    const struct qr_chain_args chain = {.linear = &a, .n = 1, .heads = &heads};
    const int64_t before = launches();
    if (chained) {
        be->k->chain(be->queue, &chain);
    } else {
        be->k->linear(be->queue, &a);
        be->k->qkv(be->queue, &heads);
    }
    return launches() - before;
}

Test(cuda_few, heads_leave_the_product_turned_and_in_the_cache_with_the_bits_of_a_launch_of_their_own)
{
    static const struct {
        enum qr_dtype cache;
        int32_t n_rows, dim, n_rot;
        bool norms;
        int32_t launches;
    } cases[] = {{QR_BF16, 5, 64, 64, false, 1}, {QR_F32, 3, 32, 16, false, 1}, {QR_BF16, 16, 32, 32, false, 2}, {QR_BF16, 1, 64, 0, false, 1},
                 {QR_I8, 4, 64, 64, false, 2},   {QR_BF16, 4, 64, 64, true, 2}, {QR_F32, 2, 24, 8, false, 2},    {QR_BF16, 2, 64, 40, false, 2}};
    if (there_is_no_device())
        return;
    struct qr_rng r = {.seed = SEED + 1};
    struct qr_backend *be = open_emulated(1, 64);
    for (int i = 0; i < QR_COUNT(cases); i++) {
        struct way w = way_new(be, &r, cases[i].cache, cases[i].n_rows, cases[i].dim, cases[i].n_rot, cases[i].norms);
        float *x[2];
        void *cache[2];
        size_t n;
        (void)way_run(be, &w, false, &x[0], &cache[0], &n);
        const int64_t n_launches = way_run(be, &w, true, &x[1], &cache[1], &n);
        cr_assert(same_bits(x[0], x[1], w.d.n_rows * w.d.out_stride), "case %d: q, k, v differ", i);
        cr_assert_eq(memcmp(cache[0], cache[1], n), 0, "case %d: caches differ", i);
        cr_assert_eq(n_launches, cases[i].launches, "case %d: %d launches, expected %d", i, (int)n_launches, cases[i].launches);
        for (int k = 0; k < 2; k++) {
            qr_free(x[k]);
            qr_free_aligned(cache[k]);
        }
        qr_free(w.norm_w), qr_free(w.cos_sin);
        drop(&w.d);
    }
    qr_backend_close(be);
}
