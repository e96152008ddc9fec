/* Tunables are a matter of speed: any values give the bits of the defaults, at every level and in every format. */
#include "kernels/tune.h"

#include "tests/kernels/attn_world.h"
#include "tests/kernels/product.h"
#include "tests/kernels/random_cuts.h"

#define SEED 4177

/* One product in a random form, by default and cut at random. */
static void check_product(struct qr_backend *be, const struct data *d, struct qr_rng *r)
{
    const uint32_t bits = qr_rng_below(r, 16);
    struct form f = {.norm = bits & 1, .bias = bits & 2, .add = bits & 4, .glu = bits & 8,
                     .act = (enum qr_act)(bits % 8 % 3)};
    f.glu = f.glu && !f.add && d->n_out % 2 == 0;
    const int64_t n = d->n_rows * d->out_stride;
    float *want = NULL;
    for (int i = 0; i < 5; i++) {
        float *got = f.add ? copy_floats(d->old, n) : poisoned(n);
        const struct qr_linear_args a = args_of(d, f, got);
        random_cuts(be->tune, i == 0 ? NULL : r);
        const int items = (int)qr_tune_find(be->tune, qr_tune_linear(d->w.packed_dtype, d->n_rows, d->n_in, d->n_out));
        be->k->linear(be->queue, &a);
        cr_assert(!want || same_bits(want, got, n), "%s, %s, %d rows, %d -> %d, form %u, %d threads: %d items for each changes the result", be->k->name,
                  qr_dtype_name(d->w.packed_dtype), d->n_rows, d->n_in, d->n_out, bits, be->n_threads, items);
        if (want)
            qr_free(got);
        else
            want = got;
    }
    qr_free(want);
}

/* Shapes on both sides of every border: of tiles, blocks, chunks, slices of k and panels; weights of several items. */
Test(tune, no_tunable_changes_a_product_at_any_level_in_any_format)
{
    static const struct {
        int32_t n_rows, n_in, n_out;
    } shapes[] = {{1, 576, 96}, {1, 100, 1038}, {3, 203, 344}, {4, 1221, 64}, {16, 65, 544}, {31, 640, 320}, {33, 128, 544}, {70, 1221, 32},
                  {150, 70, 96}, {531, 64, 64}, {1100, 33, 32}};
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    struct qr_rng r = {.seed = SEED};
    printf("seed %d\n", SEED);
    for (int32_t l = 1; l < n_levels; l++)
        for (int32_t threads = 1; threads <= 3; threads += 2) {
            struct qr_backend *be = open_level(names[l], threads, threads == 1 ? 16 : 0);
            for (int i = threads == 1 ? 0 : UTIL_STEP - 1; i < QR_COUNT(shapes); i += UTIL_STEP)
                for (int type = 0; type < (int)QR_DTYPE_COUNT; type++) {
                    const bool devices_only = type == QR_F8 || type == QR_C4_G16_S || type == QR_C4_G16_SO;
                    if (!qr_dtype_multiplies((enum qr_dtype)type) || devices_only || (type + i + threads) % 3)
                        continue;
                    struct data d = make(be, &r, (enum qr_dtype)type, shapes[i].n_rows, shapes[i].n_in, shapes[i].n_out);
                    check_product(be, &d, &r);
                    drop(&d);
                }
            qr_backend_close(be);
        }
}

static void check_attention(struct qr_backend *be, const struct world *w, const struct step *st, struct qr_rng *r)
{
    const int64_t n = st->batch.n_tokens * (st->q_stride + w->c.n_heads);
    float *want = NULL;
    for (int i = 0; i < 4; i++) {
        random_cuts(be->tune, i == 0 ? NULL : r);
        const int items = (int)qr_tune_find(be->tune, qr_tune_attention(w->c.kv, st->batch.n_tokens));
        float *got = step_run(be, w, st);
        cr_assert(!want || same_bits(want, got, n), "%s, %s cache, %d rows of %d sequences, %d/%d heads of %d, %d threads: %d items for each changes attention",
                  be->k->name, qr_dtype_name(w->c.kv), st->batch.n_tokens, st->batch.n_seqs, w->c.n_heads, w->c.n_kv_heads, w->c.head_dim,
                  be->n_threads, items);
        if (want)
            qr_free(got);
        else
            want = got;
    }
    qr_free(want);
}

Test(tune, no_tunable_changes_attention_at_any_level_with_any_cache)
{
    static const struct qr_attention_case cases[] = {
        {.n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .kv = QR_BF16}, {.n_heads = 9, .n_kv_heads = 3, .head_dim = 64, .kv = QR_I8},
        {.n_heads = 4, .n_kv_heads = 4, .head_dim = 24, .kv = QR_F32},  {.n_heads = 16, .n_kv_heads = 1, .head_dim = 40, .kv = QR_BF16},
        {.n_heads = 6, .n_kv_heads = 2, .head_dim = 128, .window = 300, .kv = QR_I8},
        {.n_heads = 8, .n_kv_heads = 2, .head_dim = 64, .softcap = 30, .kv = QR_BF16}};
    static const int32_t ctx[2][3] = {{1300, 300, 17}, {320, 257, 530}}, count[2][3] = {{1, 1, 1}, {70, 40, 1}};
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    struct qr_rng r = {.seed = SEED + 1};
    printf("seed %d\n", SEED + 1);
    for (int32_t l = 1; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 3, 0);
        for (int i = l % 2; i < QR_COUNT(cases); i += 2 * UTIL_STEP) {
            const int32_t *c = ctx[(i / 2 + l) % 2], *n = count[(i / 2 + l) % 2];
            struct world w = world_new(cases[i], 3, c, n, SEED + 2);
            const int32_t first[] = {c[0] - n[0], c[1] - n[1], c[2] - n[2]};
            struct step st = step_new(&w, 16, first, n, 7);
            check_attention(be, &w, &st, &r);
            step_drop(&st);
            world_drop(&w);
        }
        qr_backend_close(be);
    }
}
