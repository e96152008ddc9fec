/* attention: against the double oracle within a derived bound, and the same bits alone, in any batch, as decode or as prefill, with any
 * block table, block size and number of threads. */
#include "tests/cuda_emu/emu.h"
#include "tests/full.h"
#include "tests/kernels/attn_world.h"

#include "tests/kernels/oracle.h"

#include "kernels/ref/ref_context.h"

#define SEED 777

/* The emulated device is some hundred times slower than the processor under it: it gets fewer of what is tried in many ways. */
static bool is_slow(const char *isa)
{
    return strcmp(isa, "cuda") == 0 || strcmp(isa, "hopper") == 0;
}

/* Products of warpgroups that the emulated device was asked for so far. */
static int64_t wgmma_count(void)
{
    struct qr_emu_counts (*counts)(void);
    *(void **)&counts = emulated_function("qr_emu_counts");
    return counts ? counts().wgmma : 0;
}

/* "hopper": the emulated device with its kernels for compute capability 9.0a. They take caches of bf16 without softcap; the rest is "cuda"'s. The processor
 * has no caches of fp8, but ref. */
static int32_t attention_levels(const char *names[8], enum qr_dtype kv, float softcap)
{
    int32_t n = device_levels(names);
    if (kv == QR_E4M3) {
        names[1] = names[n - 1];
        return strcmp(names[1], "cuda") == 0 ? 2 : 1;
    }
    if (n > 0 && strcmp(names[n - 1], "cuda") == 0 && kv == QR_BF16 && softcap == 0)
        names[n++] = "hopper";
    return n;
}

static void last_rows(const struct world *w, int32_t *first, int32_t *count)
{
    for (int32_t s = 0; s < w->n_seqs; s++) {
        first[s] = w->ctx[s] - w->n_rows[s];
        count[s] = w->n_rows[s];
    }
}

/* What a level makes of queries and weighted probabilities that meet a cache of 8 bits: see bound_of. With bf16 the reference is given such queries. */
enum rounding { TO_F32, TO_16_BITS, TO_15_BITS, TO_BF16, ROUNDINGS };

static enum rounding rounding_of(const char *isa, enum qr_dtype kv)
{
    if (!qr_kv_has_scales(kv))
        return TO_F32;
    return is_slow(isa) ? TO_BF16 : strcmp(isa, "amx") == 0 ? TO_16_BITS : strcmp(isa, "avx2") == 0 ? TO_15_BITS : TO_F32;
}

static double met(float q, enum rounding how)
{
    return (double)(how == TO_BF16 ? qr_bf16_to_f32(qr_f32_to_bf16(q)) : q);
}

/* What bounds the error of one query: see bound_of. */
struct query {
    double out[256]; /* not needed exactly; kept for the size of terms */
    double size[256], flips[256];
    double rel, lse_abs;
};

/* The bound for one query (row r, head h), in double.
 *
 * Score t: a chain of K products, the scale and, with a softcap, a division, a tanh within 4 ulp and a product:
 * |ds_t| <= gamma_{K+2} scale sum_i |q_i k_i|  (+ cap * 2^-21 + 2 u |s|). Subtracting the maximum adds u |s_t - max|, the exponential 2^-22 (two ulp).
 * The levels round scale / ln 2 and then f s - m, where m is the rounded maximum: u |s_t - max| each, covered by the factor 2. A probability is
 * off by rel_p = max_t(ds_t + u |s_t - max|) + 2^-22, up to a factor common to all, for which the maximum's own error counts once more.
 * Sums of a piece: gamma_256; merges: three roundings and an exp within 2 ulp for each piece, with the maxima's distance u |..| as above.
 * out = sum p v / sum p: both sums carry that, so |d out| <= 2 (2 rel_p + gamma_{256 + 8 pieces} + ...) sum p |v| / sum p.
 * bf16 cache: p is rounded to 8 bits before it meets v. Both sides round alike unless p lies within rel_p of the midpoint of two
 * neighbours; then one side may be one unit (2^-7 p at most) off: `flips` sums |v| 2^-7 p over just those.
 * Tiles add in another order, in which fewer roundings touch a term, and take denormal operands and results for 0: each costs at most 2^-126
 * times a factor below 8 here, in fewer than 2^13 operations: TILE_LOSS.
 * int8 cache: k and v are integers times their token's scale. Scores take two roundings beside the K products as well, (scale ks) and the product
 * with it; p takes one with its value's scale. Tiles round q to m/32767, m = max|q|: ds_t <= scale ks sum_i |k_i| m 2^-16 (1 + 2^-14), the last
 * factor for 32767 and the roundings on the way, and a piece's p vs to w/65535, w the largest that the row sees there: `flips` sums
 * |v| w 2^-17 (1 + 2^-15 + 2 rel_p) / vs over all positions: 65535 is not 2^16, and w is uncertain by what p is. Their integer
 * sums are exact, then come three roundings. Level avx2 does the same with p vs to w/32767: twice the distance. The device rounds q and p vs to bf16:
 * q for both sides, p vs by half a unit, 2^-8 of it: `flips`.
 * fp8 cache: the same numbers times scales, and both sides round p vs, as p with a bf16 cache.
 * A sink's term of the denominator, 2^(sink / ln 2 - m): two roundings of the exponent, and that of f, which does not cancel here;
 * the exponential 2^-22. */
#define TILE_LOSS 0x1p-110
static struct query bound_of(const struct world *w, const struct step *st, int32_t s, int32_t r, int32_t h, enum rounding how)
{
    const struct qr_attention_case *c = &w->c;
    const bool bytes = how == TO_16_BITS || how == TO_15_BITS;
    const double half_unit = how == TO_15_BITS ? 0x1p-16 : 0x1p-17;
    struct query b = {.rel = 0};
    int32_t k = c->head_dim, pos = st->batch.pos[r], group = c->n_heads / c->n_kv_heads;
    int32_t first = c->window > 0 && pos >= c->window ? pos - c->window + 1 : 0;
    double scale = 1 / sqrt((double)k), *score = qr_alloc((size_t)pos + 1, sizeof *score), max = -INFINITY, ds = 0, far = 0, sum = 0;
    const float *q = st->q + r * st->q_stride + (int64_t)h * k;
    struct qr_attention_args a = step_args(w, st, NULL, NULL, NULL);
    struct context ctx = {&a, st->batch.block_table + (int64_t)s * st->batch.table_stride, h / group};
    double q_max = 0;
    for (int32_t i = 0; i < k; i++)
        q_max = fmax(q_max, fabs((double)q[i]));
    for (int32_t t = first; t <= pos; t++) {
        double dot = 0, size = 0, rounding = 0;
        const size_t key = cached_at(&ctx, 0, t);
        for (int32_t i = 0; i < k; i++) {
            double element = cached(&ctx, key + (size_t)i), term = qr_ref_meet(met(q[i], how), c->kv) * element;
            dot += term;
            size += fabs(term);
            rounding += bytes ? fabs(element) * q_max * 0x1p-16 * (1 + 0x1p-14) : 0;
        }
        double scaled = scale * scale_of(&ctx, 0, t);
        dot *= scaled;
        size *= scaled;
        score[t] = c->softcap > 0 ? (double)c->softcap * tanh(dot / (double)c->softcap) : dot;
        max = fmax(max, score[t]);
        ds = fmax(ds, gamma_n(k + 2) * size + rounding * scaled + (c->softcap > 0 ? (double)c->softcap * 0x1p-21 + 2 * U24 * fabs(dot) : 0));
    }
    for (int32_t t = first; t <= pos; t++)
        far = fmax(far, max - score[t]);
    double rel_p = 2 * (ds + U24 * far) + 0x1p-22;
    double piece_max = -INFINITY, most = 0;
    for (int32_t t = first; t <= pos; t++) {
        if (t == first || t % 256 == 0) { /* a piece begins */
            const int32_t end = t / 256 * 256 + 256 <= pos ? t / 256 * 256 + 256 : pos + 1;
            piece_max = -INFINITY, most = 0;
            for (int32_t u = t; u < end; u++) {
                piece_max = fmax(piece_max, score[u]);
                most = bytes ? fmax(most, exp(score[u] - max) * scale_of(&ctx, 1, u)) : 0;
            }
        }
        double p = exp(score[t] - max), value_scale = scale_of(&ctx, 1, t), e = exp(score[t] - piece_max);
        const size_t value = cached_at(&ctx, 1, t);
        int exponent;
        double unit = frexp(e * value_scale, &exponent) * 256, frac = unit - floor(unit); /* 128 <= unit < 256: bf16 keeps whole units */
        const bool alike = c->kv == QR_BF16 || c->kv == QR_E4M3, near = alike && fabs(frac - 0.5) <= rel_p * unit;
        const double flip = near ? 0x1p-7 : how == TO_BF16 && !alike ? 0x1p-8 * (1 + rel_p) : 0;
        cr_assert(!bytes || rel_p < 0.25);
        sum += p;
        for (int32_t i = 0; i < k; i++) {
            double element = fabs(cached(&ctx, value + (size_t)i)), v = element * value_scale;
            b.size[i] += p * v;
            b.flips[i] += bytes ? element * most * half_unit * (1 + 4 * half_unit + 2 * rel_p) : p * v * flip;
        }
    }
    const double sink = w->sinks ? (double)w->sinks[h] : -INFINITY;
    sum += exp(sink - max);
    for (int32_t i = 0; i < k; i++) {
        b.size[i] /= sum;
        b.flips[i] /= sum;
    }
    int32_t pieces = pos / 256 - first / 256 + 1;
    b.rel = 2 * (rel_p + gamma_n(256 + 8 * pieces) + pieces * (0x1p-22 + U24 * far)) + 4 * U24;
    b.rel += isfinite(sink) ? 4 * U24 * (fabs(sink) + fabs(max)) + 0x1p-22 : 0;
    b.lse_abs = b.rel + 2 * U24 * (fabs(max) + log(sum) + 1);
    qr_free(score);
    return b;
}

/* What one query of level `name` got; returns the largest error as a share of its bound. */
static double check_query(const char *name, const struct step *st, const float *got, const double *want, const struct query *b, int32_t r, int32_t h, int32_t k)
{
    const int64_t at = r * st->q_stride + (int64_t)h * k;
    double worst = 0;
    for (int32_t i = 0; i < k; i++) {
        double bound = b->rel * b->size[i] + b->flips[i] + TILE_LOSS, error = fabs((double)got[at + i] - want[at + i]);
        cr_assert(error <= bound, "%s: row %d (pos %d) head %d dim %d: error %g beyond %g", name, r, st->batch.pos[r], h, i, error, bound);
        worst = fmax(worst, error / bound);
    }
    return worst;
}

/* Of all levels those that meet the cache with queries as bf16 (TO_BF16), or the others (TO_F32). */
static void check_levels(const char *const *names, int32_t n_levels, const struct world *w, const struct step *st, float *const *got, double *worst,
                         enum rounding how)
{
    const struct qr_attention_case *c = &w->c;
    int64_t n_out = st->batch.n_tokens * st->q_stride;
    bool some[ROUNDINGS] = {false}; /* levels here meet the cache so */
    for (int32_t l = 0; l < n_levels; l++)
        if (got[l] && (rounding_of(names[l], c->kv) == TO_BF16) == (how == TO_BF16))
            some[rounding_of(names[l], c->kv)] = true;
    double *q = widen(st->q, n_out), *want = qr_alloc((size_t)(n_out + st->batch.n_tokens * c->n_heads), sizeof *want);
    struct qr_attention_args a = step_args(w, st, want, want + n_out, q);
    for (int64_t i = 0; i < n_out; i++)
        q[i] = met(st->q[i], how);
    oracle->attention(NULL, &a);
    for (int32_t s = 0; s < st->batch.n_seqs; s++)
        for (int32_t r = st->batch.row_start[s]; r < st->batch.row_start[s + 1]; r++)
            for (int32_t h = 0; h < c->n_heads; h++) {
                if ((r * 31 + h) % 5 != 0 && st->batch.n_tokens > 40)
                    continue; /* a fifth of the queries of large steps */
                struct query bound[ROUNDINGS];
                for (int32_t i = 0; i < ROUNDINGS; i++)
                    if (some[i])
                        bound[i] = bound_of(w, st, s, r, h, (enum rounding)i);
                const int64_t at = r * c->n_heads + h;
                for (int32_t l = 0; l < n_levels; l++) {
                    const struct query *b = &bound[rounding_of(names[l], c->kv)];
                    if (!got[l] || (rounding_of(names[l], c->kv) == TO_BF16) != (how == TO_BF16))
                        continue;
                    worst[l] = fmax(worst[l], check_query(names[l], st, got[l], want, b, r, h, c->head_dim));
                    double e = fabs((double)got[l][n_out + at] - want[n_out + at]);
                    cr_assert(e <= b->lse_abs, "%s: lse of row %d head %d is off by %g, beyond %g", names[l], r, h, e, b->lse_abs);
                }
            }
    for (int32_t l = 0; l < n_levels; l++)
        cr_assert(!got[l] || gaps_untouched(got[l], st->batch.n_tokens, c->n_heads * c->head_dim, st->q_stride));
    qr_free(q);
    qr_free(want);
}

/* Oracle and bounds are slow, and the same for most levels: got[l], one for each, are compared at once. NULL where there is none of a level. */
static void check_against_oracle(const char *const *names, int32_t n_levels, const struct world *w, const struct step *st, float *const *got, double *worst)
{
    bool there[2] = {false, false};
    for (int32_t l = 0; l < n_levels; l++)
        if (got[l])
            there[rounding_of(names[l], w->c.kv) == TO_BF16] = true;
    if (there[false])
        check_levels(names, n_levels, w, st, got, worst, TO_F32);
    if (there[true])
        check_levels(names, n_levels, w, st, got, worst, TO_BF16);
}

/* Level l computes the step. Hopper's order of additions is that of "cuda", the level before it, and the emulation adds alike: the same bits. */
static float *run_level(const char *const *names, int32_t l, int i, const struct world *w, const struct step *st, const float *before)
{
    struct qr_backend *be = open_level(names[l], 2, 0);
    const bool hopper = strcmp(names[l], "hopper") == 0;
    const int64_t n_before = wgmma_count();
    float *out = step_run(be, w, st);
    cr_assert_eq(wgmma_count() > n_before, hopper, "case %d, %s: other kernels than the level's have run", i, names[l]);
    cr_assert(!hopper || same_bits(out, before, st->batch.n_tokens * (st->q_stride + w->c.n_heads)), "case %d: cuda and hopper differ", i);
    qr_backend_close(be);
    if (!hopper)
        return out;
    qr_free(out);
    return NULL;
}

/* Case i at the levels of the processor, of the emulated device, or both. */
static void check_case(int i, struct world w, bool fast, bool slow, double *worst)
{
    const char *names[8];
    int32_t first[WORLD_SEQS_MAX], count[WORLD_SEQS_MAX];
    const int32_t n_levels = attention_levels(names, w.c.kv, w.c.softcap);
    last_rows(&w, first, count);
    struct step st = step_new(&w, w.c.block_tokens, first, count, SEED);
    float *out[QR_COUNT(names)] = {NULL};
    for (int32_t l = 0; l < n_levels; l++)
        if (is_slow(names[l]) ? slow : fast && w.c.kv != QR_E4M3)
            out[l] = run_level(names, l, i, &w, &st, l > 0 ? out[l - 1] : NULL);
    if (UTIL_STEP == 1 || (fast && i % 9 == 0)) /* the oracle takes as long as all levels */
        check_against_oracle(names, n_levels, &w, &st, out, worst);
    for (int32_t l = 0; l < n_levels; l++)
        qr_free(out[l]);
    step_drop(&st);
    world_drop(&w);
}

/* The device has kernels for each format of the cache and class of head sizes, with a few lines for caps: of each, sanitizers ask the first case, and it is the
 * device's first with lengths of all kinds; `any_cap`: with or without one is the same. */
static bool is_first_of_kind(int i, bool any_cap)
{
    const struct qr_attention_case *c = qr_attention_cases;
    for (int j = 0; j < i; j++)
        if (c[j].kv == c[i].kv && (c[j].head_dim > 64) + (c[j].head_dim > 128) == (c[i].head_dim > 64) + (c[i].head_dim > 128) &&
            (any_cap || (c[j].softcap > 0) == (c[i].softcap > 0)))
            return false;
    return true;
}

/* For the device too, which takes rows of a cache of f32 one by one: a few of them will do. */
static struct world world_on_device(struct qr_attention_case c, uint64_t seed)
{
    enum { ROWS_F32 = 16 };
    struct world w = world_mixed(c, seed);
    for (int32_t s = 0; s < w.n_seqs && c.kv == QR_F32 && !full_size(); s++)
        w.n_rows[s] = w.n_rows[s] < ROWS_F32 ? w.n_rows[s] : ROWS_F32;
    return w;
}

Test(attention, is_within_the_bound_of_the_double_oracle_at_every_level, .timeout = 250)
{
    const char *names[8];
    double worst[8] = {0}, worst_fp8[8] = {0};
    for (int i = 0; i < QR_COUNT(qr_attention_cases); i++) {
        const struct qr_attention_case c = qr_attention_cases[i];
        double *of = c.kv == QR_E4M3 ? worst_fp8 : worst;
        if (!(c.use & QR_CASE_CHECK))
            continue;
        const bool mixed = UTIL_STEP == 1 && (full_size() || is_first_of_kind(i, true)); /* on the device; else a length of each kind */
        if (i % UTIL_STEP == 0)
            check_case(i, mixed ? world_on_device(c, SEED + (uint64_t)i) : world_mixed(c, SEED + (uint64_t)i), true, mixed, of);
        if (!mixed && (UTIL_STEP == 1 || is_first_of_kind(i, false)))
            check_case(i, world_few(c, 18, SEED + (uint64_t)i), false, true, of);
    }
    printf("attention cuda, fp8: worst error %.3f of the bound\n", worst_fp8[1]);
    const int32_t n_levels = device_levels(names);
    for (int32_t l = 0; l < n_levels; l++)
        printf("attention %s: worst error %.3f of the bound (seed %d)\n", names[l], worst[l], SEED);
}

/* The result of (sequence s, position pos) in `got` equals what `alone` (one row) holds. */
static void check_same(const char *what, const char *isa, const struct world *w, const struct step *st, const float *got, int32_t row,
                       const struct step *one, const float *alone, int32_t one_row)
{
    int32_t hk = w->c.n_heads * w->c.head_dim;
    cr_assert(same_bits(got + row * st->q_stride, alone + one_row * one->q_stride, hk), "%s, %s: row %d (pos %d, heads %d/%d of %d) differs", isa,
              what, row, st->batch.pos[row], w->c.n_heads, w->c.n_kv_heads, w->c.head_dim);
    const float *lse = got + st->batch.n_tokens * st->q_stride, *lse1 = alone + one->batch.n_tokens * one->q_stride;
    cr_assert(same_bits(lse + row * w->c.n_heads, lse1 + one_row * w->c.n_heads, w->c.n_heads), "%s, %s: lse of row %d", isa, what, row);
}

/* Each row of the step again as a decode step of its own: one row, blocks of `block_tokens` in an order of their own (or 0: that of memory), one thread. */
static void check_rows_in_blocks(const char *isa, const struct world *w, const struct step *st, const float *got, int32_t block_tokens, uint64_t block_seed)
{
    struct qr_backend *be = open_level(isa, 1, 1);
    for (int32_t s = 0; s < w->n_seqs; s++)
        for (int32_t r = st->batch.row_start[s]; r < st->batch.row_start[s + 1]; r++) {
            if (is_slow(isa) ? r % 13 != 0 : w->n_rows[s] > 12 && r % 7 != 0)
                continue;
            int32_t first[WORLD_SEQS_MAX] = {0}, count[WORLD_SEQS_MAX] = {0};
            first[s] = st->batch.pos[r];
            count[s] = 1;
            struct step one = step_new(w, block_tokens, first, count, block_seed);
            float *alone = step_run(be, w, &one);
            check_same("alone", isa, w, st, got, r, &one, alone, 0);
            qr_free(alone);
            step_drop(&one);
        }
    qr_backend_close(be);
}

/* In blocks of another size than the step's. */
static void check_rows_alone(const char *isa, const struct world *w, const struct step *st, const float *got)
{
    check_rows_in_blocks(isa, w, st, got, 128, 0);
}

/* The step again: whole prompts cut into chunks of `chunk` rows. */
static void check_chunked(const char *isa, const struct world *w, const struct step *st, const float *got, int32_t chunk)
{
    struct qr_backend *be = open_level(isa, 2, 0);
    for (int32_t s = 0; s < w->n_seqs; s++)
        for (int32_t done = 0; done < w->n_rows[s]; done += chunk) {
            int32_t first[WORLD_SEQS_MAX] = {0}, count[WORLD_SEQS_MAX] = {0};
            first[s] = w->ctx[s] - w->n_rows[s] + done;
            count[s] = w->n_rows[s] - done < chunk ? w->n_rows[s] - done : chunk;
            struct step part = step_new(w, w->c.block_tokens, first, count, SEED + 9);
            float *out = step_run(be, w, &part);
            for (int32_t i = 0; i < count[s]; i++)
                check_same("chunked", isa, w, st, got, st->batch.row_start[s] + done + i, &part, out, i);
            qr_free(out);
            step_drop(&part);
        }
    qr_backend_close(be);
}

/* Case i in all its forms, at the levels of the processor or of the emulated device. */
static void check_forms(int i, struct world w, bool slow)
{
    const char *names[8];
    int32_t first[WORLD_SEQS_MAX], count[WORLD_SEQS_MAX];
    const int32_t n_levels = attention_levels(names, w.c.kv, w.c.softcap);
    last_rows(&w, first, count);
    struct step st = step_new(&w, w.c.block_tokens, first, count, SEED + 1), flat = step_new(&w, 16, first, count, 0);
    for (int32_t l = 1; l < n_levels; l++) { /* ref is one plain loop per query */
        if (is_slow(names[l]) != slow || (i != 4 && strcmp(names[l], "hopper") == 0))
            continue;
        struct qr_backend *be = open_level(names[l], 1, 0);
        float *out = step_run(be, &w, &st);
        for (int32_t t = 2; t <= (slow ? 2 : 3); t++) {
            struct qr_backend *more = open_level(names[l], t, 0);
            float *again = step_run(more, &w, &flat);
            for (int32_t r = 0; r < st.batch.n_tokens; r++)
                check_same("contiguous, more threads", names[l], &w, &st, out, r, &flat, again, r);
            qr_free(again);
            qr_backend_close(more);
        }
        check_rows_alone(names[l], &w, &st, out);
        check_chunked(names[l], &w, &st, out, !slow ? 5 : w.c.kv == QR_F32 ? 13 : 29);
        qr_free(out);
        qr_backend_close(be);
    }
    step_drop(&st);
    step_drop(&flat);
    world_drop(&w);
}

Test(attention, gives_a_row_the_same_bits_alone_batched_chunked_paged_or_contiguous, .timeout = 250)
{
    printf("seed %d\n", SEED);
    for (int i = UTIL_STEP - 1; i < QR_COUNT(qr_attention_cases); i += UTIL_STEP) {
        const struct qr_attention_case c = qr_attention_cases[i];
        if (!(c.use & QR_CASE_CHECK))
            continue;
        check_forms(i, world_mixed(c, SEED + 50 + (uint64_t)i), false);
        if (UTIL_STEP == 1 && (i == 0 || i == 4 || i == 9 || i == 14)) /* sanitizers: every access is one of the test's before */
            check_forms(i, full_size() ? world_mixed(c, SEED + 50 + (uint64_t)i) : world_few(c, c.kv == QR_F32 ? 17 : 33, SEED + 50), true);
    }
}

/* Numbers from the largest that a product keeps to ones whose products, or who themselves, are denormal; some values are infinite. */
static void spread_sizes(float *x, int64_t n, bool infinities, uint64_t seed)
{
    static const int32_t exponent[] = {0, 0, 0, 0, 3, -20, -63, -70, -100, -126, -130, -133};
    struct qr_rng r = {.seed = seed};
    for (int64_t i = 0; i < n; i++)
        x[i] = infinities && qr_rng_below(&r, 500) == 0 ? INFINITY : ldexpf(x[i], exponent[qr_rng_below(&r, QR_COUNT(exponent))]);
}

/* Infinities are among the values. */
static void spread_world(struct world *w, const struct qr_attention_case *c, const int32_t *ctx, bool infinities)
{
    for (int32_t s = 0; s < w->n_seqs; s++) {
        const int64_t n = (int64_t)ctx[s] * c->head_dim;
        spread_sizes(w->q[s], n * c->n_heads, false, SEED + 1);
        spread_sizes(w->k[s], n * c->n_kv_heads, false, SEED + 2);
        spread_sizes(w->v[s], n * c->n_kv_heads, infinities, SEED + 3);
    }
}

/* A lone row with a short context, or a short last piece, beside rows of a tile. */
Test(attention, gives_lone_rows_of_short_contexts_the_same_bits_whatever_the_size_of_numbers, .timeout = 100)
{
    static const int32_t heads[][3] = {{3, 1, 64}, {8, 2, 32}, {5, 1, 128}, {2, 2, 256}, {7, 1, 96}, {17, 1, 64}};
    static const int32_t ctx[] = {36, 293}, rows[] = {36, 39};
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    for (int i = 0; i < 2 * QR_COUNT(heads); i += UTIL_STEP) {
        const struct qr_attention_case c = {.n_heads = heads[i / 2][0], .n_kv_heads = heads[i / 2][1], .head_dim = heads[i / 2][2], .block_tokens = 16,
                                            .kv = QR_BF16, .window = i % 4 == 3 ? 20 : 0, .softcap = i % 4 == 2 ? 5.0f : 0};
        struct world w = world_new(c, QR_COUNT(ctx), ctx, rows, SEED + (uint64_t)i);
        int32_t first[WORLD_SEQS_MAX], count[WORLD_SEQS_MAX];
        spread_world(&w, &c, ctx, i % 4 == 1);
        last_rows(&w, first, count);
        struct step st = step_new(&w, c.block_tokens, first, count, SEED);
        for (int32_t l = 1; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            float *out = step_run(be, &w, &st);
            check_rows_alone(names[l], &w, &st, out);
            qr_free(out);
            qr_backend_close(be);
        }
        step_drop(&st);
        world_drop(&w);
    }
}

/* Decode has its own way at some levels: keys as they lie in their blocks, heads of an item in turns. */
static void check_lone_rows(enum qr_dtype kv)
{
    static const int32_t heads[][3] = {{3, 1, 64}, {8, 2, 32}, {16, 2, 64}, {6, 6, 128}, {9, 3, 64}, {16, 1, 96}, {4, 1, 256}, {32, 8, 64}};
    static const int32_t ctx[] = {80, 301, 530}, rows[] = {7, 17, 21}, block[] = {16, 64, 8, 32}, window[] = {0, 300, 0, 90};
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    for (int i = 0; i < 2 * QR_COUNT(heads); i += UTIL_STEP) {
        const int at = i % 4;
        const struct qr_attention_case c = {.n_heads = heads[i / 2][0], .n_kv_heads = heads[i / 2][1], .head_dim = heads[i / 2][2], .block_tokens = block[at],
                                            .kv = kv, .window = window[(i + i / 4) % 4], .softcap = i % 5 == 2 ? 5.0f : 0};
        struct world w = world_new(c, QR_COUNT(ctx), ctx, rows, SEED + (uint64_t)i);
        int32_t first[WORLD_SEQS_MAX], count[WORLD_SEQS_MAX];
        spread_world(&w, &c, ctx, i % 4 == 1);
        last_rows(&w, first, count);
        struct step st = step_new(&w, c.block_tokens, first, count, SEED);
        for (int32_t l = 1; l < n_levels; l++) {
            struct qr_backend *be = open_level(names[l], 2, 0);
            float *out = step_run(be, &w, &st);
            check_rows_in_blocks(names[l], &w, &st, out, c.block_tokens, SEED + 4);
            qr_free(out);
            qr_backend_close(be);
        }
        step_drop(&st);
        world_drop(&w);
    }
}

Test(attention, gives_lone_rows_the_same_bits_as_rows_of_a_prompt_in_bf16, .timeout = 100)
{
    check_lone_rows(QR_BF16);
}

Test(attention, gives_lone_rows_the_same_bits_as_rows_of_a_prompt_in_int8, .timeout = 100)
{
    check_lone_rows(QR_I8);
}

static void close_all(struct qr_backend *a, struct qr_backend *b, struct qr_backend *c)
{
    qr_backend_close(a);
    qr_backend_close(b);
    qr_backend_close(c);
}

static void check_split_contexts(enum qr_dtype kv)
{
    const char *names[8];
    double worst[QR_COUNT(names)] = {0};
    int32_t n_levels = attention_levels(names, kv, 0);
    static const int32_t ctx[][3] = {{5000, 30, 2777}, {2100, 30, 1800}}, rows[] = {1, 1, 20}; /* [1]: where devices are emulated */
    struct qr_attention_case c = {.n_heads = 6, .n_kv_heads = 2, .head_dim = 16, .kv = kv};
    for (int32_t k = UTIL_STEP > 1 ? 2 : 0; k < 4; k++) {
        const int32_t window = k / 2 * 1500;
        const bool slow = k % 2;
        c.window = window;
        struct world w = world_new(c, 3, ctx[slow && !full_size()], rows, SEED);
        int32_t first[WORLD_SEQS_MAX], count[WORLD_SEQS_MAX];
        last_rows(&w, first, count);
        struct step st = step_new(&w, 16, first, count, SEED);
        float *got[QR_COUNT(names)] = {NULL};
        for (int32_t l = 1; l < n_levels; l++) {
            if (is_slow(names[l]) != slow || (window == 0 && slow && (strcmp(names[l], "hopper") == 0 || kv == QR_I8))) /* fewer pieces a head will do */
                continue;
            struct qr_backend *one = open_level(names[l], 1, 0), *three = open_level(names[l], 3, 0), *small = open_level(names[l], 2, 1);
            if (UTIL_STEP > 1 && slow) { /* most parts, least room */
                qr_free(step_run(small, &w, &st));
                close_all(one, three, small);
                continue;
            }
            float *a = step_run(one, &w, &st), *b = step_run(three, &w, &st), *d = step_run(small, &w, &st);
            int64_t n = st.batch.n_tokens * (st.q_stride + c.n_heads);
            cr_assert(same_bits(a, b, n), "%s: three threads", names[l]);
            cr_assert(same_bits(a, d, n), "%s: two threads, small scratch", names[l]);
            if (strcmp(names[l], "hopper") != 0) /* its bits are those of "cuda": above */
                got[l] = a;
            else
                qr_free(a);
            qr_free(b);
            qr_free(d);
            close_all(one, three, small);
        }
        if (UTIL_STEP == 1) /* sanitizers look for bad accesses */
            check_against_oracle(names, n_levels, &w, &st, got, worst);
        for (int32_t l = 0; l < n_levels; l++)
            qr_free(got[l]);
        step_drop(&st);
        world_drop(&w);
    }
}

Test(attention, gives_the_same_bits_when_long_contexts_are_split_over_threads, .timeout = 250)
{
    check_split_contexts(QR_BF16);
    check_split_contexts(QR_I8);
}

static void check_nan_stays_out(enum qr_dtype kv)
{
    const char *names[8];
    int32_t n_levels = attention_levels(names, kv, 0);
    static const int32_t ctx[] = {40}, rows[] = {40};
    struct qr_attention_case c = {.n_heads = 4, .n_kv_heads = 2, .head_dim = 16, .kv = kv};
    struct world w = world_new(c, 1, ctx, rows, SEED);
    int32_t first[] = {0}, count[] = {40};
    struct step clean = step_new(&w, 16, first, count, 0);
    for (int32_t i = 0; i < 2 * 16; i++)
        w.k[0][33 * 2 * 16 + i] = w.v[0][33 * 2 * 16 + i] = i % 2 ? NAN : INFINITY;
    struct step dirty = step_new(&w, 16, first, count, 0);
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 2, 0);
        float *a = step_run(be, &w, &clean), *b = step_run(be, &w, &dirty);
        for (int32_t r = 0; r < 33; r++)
            cr_assert(same_bits(a + r * clean.q_stride, b + r * clean.q_stride, 4 * 16), "%s row %d", names[l], r);
        for (int32_t r = 33; r < 40; r++)
            cr_assert(isnan(b[r * clean.q_stride]), "%s row %d", names[l], r);
        qr_free(a);
        qr_free(b);
        qr_backend_close(be);
    }
    step_drop(&clean);
    step_drop(&dirty);
    world_drop(&w);
}

Test(attention, keeps_a_nan_of_later_rows_out_of_earlier_ones)
{
    check_nan_stays_out(QR_F32);
    check_nan_stays_out(QR_BF16);
    check_nan_stays_out(QR_I8);
    check_nan_stays_out(QR_E4M3);
}

/* One position: its weight is 1, so that the result is the value, and the denominator's logarithm the score. Query h is 1 at number h and 0 elsewhere: its
 * score is number h of the key, times 1/16. All of it in fewer than eight roundings, tiles' to 16 bits included: they do not move 1. A logarithm of 1 is off by
 * 2^-22 at most. */
static void check_every_code(enum qr_dtype kv)
{
    static const int32_t one[] = {1}, first[] = {0};
    const struct qr_attention_case c = {.n_heads = 256, .n_kv_heads = 1, .head_dim = 256, .kv = kv};
    const char *names[8];
    const int32_t n_levels = attention_levels(names, kv, 0);
    struct world w = world_new(c, 1, one, one, SEED);
    for (int32_t i = 0; i < 256 * 256; i++)
        w.q[0][i] = i / 256 == i % 256;
    struct step st = step_new(&w, 16, first, one, 0);
    for (int32_t which = 0; which < 2; which++) {
        uint8_t *row = (uint8_t *)st.kv.base + qr_kv_offset(&st.kv, 0, WORLD_LAYER, which, 0);
        for (int32_t i = 0; i < 256; i++) /* 128 is no integer that is written, 127 and 255 are no numbers of E4M3 */
            row[i] = (uint8_t)((kv == QR_E4M3 ? i % 128 == 127 : i == 128) ? 1 : i);
        *qr_kv_scales(&st.kv, 0, WORLD_LAYER, which, 0) = 1;
    }
    for (int32_t l = 0; l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 1, 0);
        float *out = step_run(be, &w, &st);
        const uint8_t *code = (const uint8_t *)st.kv.base + qr_kv_offset(&st.kv, 0, WORLD_LAYER, 0, 0);
        for (int32_t i = 0; i < 256; i++) {
            const float x = kv == QR_E4M3 ? qr_e4m3_to_f32(code[i]) : (float)(int8_t)code[i], lse = out[st.q_stride + i];
            const double most = gamma_n(8) * fabs((double)x);
            for (int32_t h = 0; h < 256; h += 51)
                cr_assert(fabs((double)(out[h * 256 + i] - x)) <= most, "%s: code %d as a value: %a", names[l], code[i], (double)out[h * 256 + i]);
            cr_assert(fabs((double)(16 * lse - x)) <= most + 0x1p-18, "%s: code %d in a key: %a", names[l], code[i], (double)lse);
        }
        qr_free(out);
        qr_backend_close(be);
    }
    step_drop(&st);
    world_drop(&w);
}

Test(attention, takes_every_code_of_8_bits_for_the_number_that_it_is)
{
    check_every_code(QR_I8);
    check_every_code(QR_E4M3);
}
