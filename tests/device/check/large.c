/* A device's own ways beside the plain ones, at the shapes of models: attention by wgmma and the copy engine beside mma.sync, products of cuBLASLt beside
 * ours. Small cases (small.c) have one tile of work a block, caches of a few KiB and short sums; these have what is left: contexts of 16k, lists of
 * work that wrap, caches beyond 2^31 bytes and of many layers, products of 4,096 rows. The device is opened twice (backend.h, plain) and computes each case in
 * both ways; the host compares. One thread. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/rng.h"
#include "bench/kern/scene.h"
#include "tests/device/check/check.h"

#define SEED 11
#define PATTERN 1048573 /* numbers that operands are made of, again and again: a prime, so no two rows are alike */
#define MIXES 7919      /* a prime */
#define QUERY_MOST 10.0f
#define TAKEN_MAX 8
#define ROOM_BYTES ((int64_t)1 << 30) /* left for the choice among products */
#define STEP_ROWS 8192
#define PIECE ((int64_t)4 << 20) /* numbers that are fetched at once */
#define CTX_LEAST 272 /* of a scaled context: two pieces of 256 */

struct large {
    struct qr_backend *fast, *plain; /* of one device */
    FILE *json;                      /* a line for each case, or NULL */
    bool text;
    int32_t scale, n_cases, n_wrong, n_skipped, n_alone;
    uint16_t *halves, *few_halves;   /* owned patterns: bf16 from -1 to 1; -1, 0, 1, three quarters of them 0 */
    float *queries, *few_floats;     /* from -QUERY_MOST to QUERY_MOST; as few_halves */
    float *fetched[2];               /* owned [PIECE] */
    void *taken[TAKEN_MAX];
    int32_t n_taken;
};

/* What was computed in both ways: out[..][size[0]][size[1]], whose indices have names. */
struct result {
    const char *what, *by; /* by: the way beside the plain one */
    const float *fast, *plain;
    int64_t n, size[2];
    const char *name[3];
    int32_t n_names;
    double bound;
};

struct difference {
    float worst, got, want;
    int64_t at;
};

/* ---- memory ---- */

static void *take(struct large *l, size_t n_bytes)
{
    QR_ASSERT(l->n_taken < TAKEN_MAX);
    return l->taken[l->n_taken++] = l->fast->mem->alloc(n_bytes);
}

static void drop_to(struct large *l, int32_t n)
{
    while (l->n_taken > n)
        l->fast->mem->free(l->taken[--l->n_taken]);
}

/* Fills memory with a pattern of n_pattern bytes, the device copying what it has. */
static void spread(struct large *l, void *to, size_t n_bytes, const void *pattern, size_t n_pattern)
{
    const struct qr_mem_ops *mem = l->fast->mem;
    size_t n = n_bytes < n_pattern ? n_bytes : n_pattern;
    for (mem->put(l->fast->queue, to, pattern, n); n < n_bytes;) {
        const size_t more = n_bytes - n < n ? n_bytes - n : n;
        mem->copy(l->fast->queue, (char *)to + n, more, to, more, more, 1);
        n += more;
    }
}

/* An array for results that holds NaN until it is written. */
static float *take_results(struct large *l, int64_t n)
{
    uint8_t nan[4096];
    memset(nan, 0xff, sizeof nan);
    float *p = take(l, (size_t)n * sizeof *p);
    spread(l, p, (size_t)n * sizeof *p, nan, sizeof nan);
    return p;
}

/* ---- what is said of a case ---- */

static void say(struct large *l, const char *word, const struct result *r, const struct difference *d, const char *why)
{
    struct qr_buf text = {0};
    const int64_t inner = r->n_names > 2 ? r->size[1] : 1, at[3] = {d->at / (r->size[0] * inner), d->at / inner % r->size[0], d->at % inner};
    if (l->text) {
        printf("%-8s %-78s ", word, r->what);
        if (why)
            printf("%s\n", why);
        else
            printf("%s: %9.2e of %.1e", r->by, (double)d->worst, r->bound);
        for (int32_t i = 0; !why && d->worst > 0 && i < r->n_names; i++)
            printf("%s %s %lld", i == 0 ? "," : "", r->name[i], (long long)at[i]);
        if (!why)
            printf(d->worst > 0 ? ": %g, plain %g\n" : "\n", (double)d->got, (double)d->want);
        fflush(stdout);
    }
    if (!l->json)
        return;
    qr_buf_put_str(&text, "{\"case\":");
    qr_json_put_str(&text, r->what, strlen(r->what));
    qr_buf_printf(&text, ",\"word\":\"%s\",\"by\":\"%s\",\"worst\":", word, why ? "plain" : r->by);
    qr_json_put_f64(&text, isfinite(d->worst) ? (double)d->worst : 1e99);
    qr_buf_put_str(&text, ",\"bound\":");
    qr_json_put_f64(&text, r->bound);
    for (int32_t i = 0; i < r->n_names; i++)
        qr_buf_printf(&text, ",\"%s\":%lld", r->name[i], (long long)at[i]);
    if (why) {
        qr_buf_put_str(&text, ",\"why\":");
        qr_json_put_str(&text, why, strlen(why));
    }
    fprintf(l->json, "%.*s}\n", (int)text.len, (const char *)text.data);
    fflush(l->json);
    qr_buf_release(&text);
}

/* A case that is not compared. */
static void pass_over(struct large *l, const char *word, const char *what, const char *why)
{
    const struct result r = {.what = what, .size = {1, 1}};
    const struct difference none = {0};
    say(l, word, &r, &none, why);
}

/* The largest difference of both ways, and where it is first; infinite where either is no number. */
static struct difference difference_of(struct large *l, const struct result *r)
{
    const struct qr_mem_ops *mem = l->fast->mem;
    struct difference d = {0};
    for (int64_t at = 0; at < r->n; at += PIECE) {
        const int64_t n = r->n - at < PIECE ? r->n - at : PIECE;
        mem->get(l->fast->queue, l->fetched[0], r->fast + at, (size_t)n * sizeof(float));
        mem->get(l->fast->queue, l->fetched[1], r->plain + at, (size_t)n * sizeof(float));
        for (int64_t i = 0; i < n; i++) {
            const float by = fabsf(l->fetched[0][i] - l->fetched[1][i]), seen = isnan(by) ? INFINITY : by;
            if (seen > d.worst)
                d = (struct difference){seen, l->fetched[0][i], l->fetched[1][i], at + i};
        }
    }
    return d;
}

/* alone: the plain way computed both, which are to be the same. */
static void judge(struct large *l, const struct result *r, bool alone)
{
    const struct difference d = difference_of(l, r);
    l->n_cases++;
    l->n_alone += alone;
    const bool right = (double)d.worst <= (alone ? 0 : r->bound);
    l->n_wrong += !right;
    if (alone && right)
        pass_over(l, "alone", r->what, "the device has no other way than the plain one here: nothing to compare");
    else
        say(l, right ? "ok" : "WRONG", r, &d, NULL);
}

static bool fits(struct large *l, const char *what, int64_t n_bytes)
{
    const int64_t there = l->fast->mem->available() - ROOM_BYTES / l->scale;
    char why[120];
    if (n_bytes <= there)
        return true;
    l->n_skipped++;
    snprintf(why, sizeof why, "%lld MiB are needed, %lld are free", (long long)(n_bytes >> 20), (long long)(there >> 20));
    pass_over(l, "skipped", what, why);
    return false;
}

static int32_t scaled(const struct large *l, int32_t n, int32_t least)
{
    const int32_t small = n / l->scale, floor = n < least ? n : least;
    return small > floor ? small : floor;
}

/* ---- attention ---- */

struct attention_shape {
    int32_t n_seqs, n_rows, ctx, n_heads, n_kv_heads, head_dim, block_tokens, n_layers, window;
};

static const struct attention_shape attention_shapes[] = {
    {64, 1, 4096, 32, 8, 128, 16, 1, 0},     /* Llama-3.1-8B */
    {256, 1, 1024, 32, 8, 128, 64, 1, 0},
    {768, 1, 512, 32, 8, 128, 16, 1, 0},     /* more work for a block than its list holds */
    {1, 1, 16384, 32, 8, 128, 16, 1, 0},
    {1, 16384, 16384, 32, 8, 128, 64, 1, 0},
    {4, 512, 8192, 32, 8, 128, 16, 1, 0},
    {16, 1, 4096, 32, 8, 128, 16, 32, 0},    /* all layers: 8 GiB, more rows of a map than 2^24 */
    {4, 512, 8192, 32, 8, 128, 64, 32, 0},
    {4, 512, 16384, 32, 8, 128, 16, 1, 4096}, /* Mistral-7B */
    {64, 1, 4096, 32, 8, 64, 16, 1, 0},      /* Llama-3.2-1B */
    {768, 1, 512, 32, 8, 64, 16, 16, 0},
    {4, 512, 8192, 32, 8, 64, 16, 1, 0},
    {64, 1, 4096, 16, 8, 128, 16, 1, 0},     /* Qwen3-0.6B */
    {64, 1, 4096, 14, 2, 64, 16, 24, 0},     /* Qwen2.5-0.5B */
    {64, 1, 2048, 8, 4, 256, 16, 1, 1024},   /* Gemma-3-4B */
    {4, 512, 4096, 8, 4, 256, 16, 1, 0},
};

static struct attention_shape scaled_shape(const struct large *l, struct attention_shape s)
{
    const int32_t group = s.n_heads / s.n_kv_heads;
    s.n_seqs = scaled(l, s.n_seqs, 1);
    s.n_rows = scaled(l, s.n_rows, 24);
    s.ctx = scaled(l, s.ctx, CTX_LEAST);
    s.n_kv_heads = scaled(l, s.n_kv_heads, 1);
    s.n_heads = group * s.n_kv_heads;
    s.n_layers = scaled(l, s.n_layers, 3);
    s.window = scaled(l, s.window, 100);
    return s;
}

/* Both ways add a score's steps of 16 products in order, and what hardware makes of a step's 17 terms is its own: each is cut 2^-24 below the largest, which
 * is no more than the sum of K products of a query below QUERY_MOST and a key below 1. So a score moves by `score` in either way, a weight by as much of
 * itself, and it may be rounded to its other neighbour in bf16, 2^-7 away. Values are below 1. Results themselves are some 0.1 to 1 in size: scores have a
 * deviation of a third of QUERY_MOST, so a row sees few positions, and one that is missing or of another row shows. */
static double score_error(int32_t k)
{
    return k / 16.0 * 17 * 0x1p-24 * (double)QUERY_MOST * sqrt((double)k);
}

/* One layer, both ways. */
static void attend_both(struct large *l, const char *what, const struct attention_shape *s, const struct qr_attention_args *a)
{
    const int64_t n = (int64_t)s->n_seqs * s->n_rows * s->n_heads;
    const double score = score_error(s->head_dim);
    const int32_t taken = l->n_taken;
    struct qr_attention_args args[2] = {*a, *a};
    struct qr_backend *const be[] = {l->fast, l->plain};
    char lse[120];
    const int64_t before = qr_backend_ways(l->fast).by_wgmma;
    for (int i = 0; i < 2; i++)
        args[i].out = take_results(l, n * s->head_dim), args[i].lse = take_results(l, n);
    l->fast->mem->sync(l->fast->queue);
    for (int i = 0; i < 2; i++) {
        be[i]->k->attention(be[i]->queue, &args[i]);
        be[i]->mem->sync(be[i]->queue);
    }
    const bool alone = qr_backend_ways(l->fast).by_wgmma == before;
    snprintf(lse, sizeof lse, "%s, log-sums", what);
    const struct result out = {.what = what, .by = "wgmma", .fast = args[0].out, .plain = args[1].out, .n = n * s->head_dim, .size = {s->n_heads, s->head_dim},
                               .name = {"row", "head", "number"}, .n_names = 3, .bound = 0x1p-7 + 4 * score};
    const struct result sums = {.what = lse, .by = "wgmma", .fast = args[0].lse, .plain = args[1].lse, .n = n, .size = {s->n_heads}, .name = {"row", "head"},
                                .n_names = 2, .bound = 4 * score};
    judge(l, &out, alone);
    judge(l, &sums, alone);
    drop_to(l, taken);
}

static void attend(struct large *l, struct attention_shape s)
{
    s = scaled_shape(l, s);
    const int32_t stride = (s.ctx + s.block_tokens - 1) / s.block_tokens, n_rows = s.n_seqs * s.n_rows, width = s.n_heads * s.head_dim;
    struct qr_kv_view kv = {.dtype = QR_BF16, .n_blocks = s.n_seqs * stride, .n_layers = s.n_layers, .n_kv_heads = s.n_kv_heads,
                            .block_tokens = s.block_tokens, .head_dim = s.head_dim};
    const size_t kv_bytes = (size_t)kv.n_blocks * qr_kv_block_bytes(&kv), q_bytes = (size_t)n_rows * (size_t)width * sizeof(float);
    const size_t ints = qr_kern_scene_bytes(s.n_seqs, s.n_rows, s.ctx, s.block_tokens);
    struct qr_kern_scene scene;
    char shape[80], what[100];
    snprintf(shape, sizeof shape, "attention %d seqs x %d rows, ctx %d, %d/%d x %d, blocks of %d", (int)s.n_seqs, (int)s.n_rows, (int)s.ctx, (int)s.n_heads,
             (int)s.n_kv_heads, (int)s.head_dim, (int)s.block_tokens);
    if (!fits(l, shape, (int64_t)(kv_bytes + 3 * q_bytes + ints + 2 * q_bytes / (size_t)s.head_dim)))
        return;
    kv.base = take(l, kv_bytes);
    float *q = take(l, q_bytes);
    spread(l, kv.base, kv_bytes, l->halves, PATTERN * sizeof *l->halves);
    spread(l, q, q_bytes, l->queries, PATTERN * sizeof *l->queries);
    qr_kern_scene_make(&scene, l->fast, take(l, ints), s.n_seqs, s.n_rows, s.ctx, s.block_tokens, kv.n_blocks % MIXES != 0 ? MIXES : 1);
    const int32_t layers[] = {0, s.n_layers / 2, s.n_layers - 1};
    for (int i = 0; i < QR_COUNT(layers); i++) {
        if (i > 0 && layers[i] == layers[i - 1])
            continue;
        const struct qr_attention_args a = {.q = q, .batch = &scene.device, .kv = &kv, .out_stride = width, .q_stride = width, .layer = layers[i],
                                            .n_heads = s.n_heads, .window = s.window, .scale = (float)(1 / sqrt((double)s.head_dim))};
        snprintf(what, sizeof what, "%s%s%.0d, layer %d", shape, s.window ? ", window " : "", (int)s.window, (int)layers[i]);
        attend_both(l, what, &s, &a);
    }
    qr_kern_scene_release(&scene);
    drop_to(l, 0);
}

/* ---- products ---- */

/* Operands are -1, 0 and 1, three quarters of them 0: sums of up to 14,336 products stay below 2^8 (their deviation is a quarter of the root of that number),
 * and so exact in any order of additions, even where hardware keeps 14 bits, as Hopper does with E4M3 (DeepSeek-V3, arXiv:2412.19437, 3.3.2: 1 is 448, 448^2 is
 * 49 * 2^12). A bf16 product has the same bits in both ways; one of E4M3 is multiplied by two scales, in some order: three roundings of what is below 2^8. */
static double product_bound(enum qr_dtype t)
{
    return t == QR_F8 ? 3 * 0x1p-24 * 0x1p8 : 0;
}

static void multiply_both(struct large *l, const struct qr_weight *w, int32_t n_rows, int32_t n_in, int32_t n_out)
{
    const int64_t n = (int64_t)n_rows * n_out;
    const size_t x_bytes = (size_t)n_rows * (size_t)n_in * sizeof(float);
    const int32_t taken = l->n_taken;
    struct qr_backend *const be[] = {l->fast, l->plain};
    float *out[2];
    char what[80];
    snprintf(what, sizeof what, "linear %d x %d -> %d, %s", (int)n_rows, (int)n_in, (int)n_out, qr_dtype_name(w->packed_dtype));
    if (!fits(l, what, (int64_t)x_bytes + 2 * n * (int64_t)sizeof(float)))
        return;
    float *x = take(l, x_bytes);
    spread(l, x, x_bytes, l->few_floats, PATTERN * sizeof *l->few_floats);
    for (int i = 0; i < 2; i++)
        out[i] = take_results(l, n);
    l->fast->mem->sync(l->fast->queue);
    const int64_t before = qr_backend_ways(l->fast).by_library;
    for (int i = 0; i < 2; i++) {
        const struct qr_linear_args a = {.out = out[i], .x = x, .w = w, .out_stride = n_out, .x_stride = n_in, .n_rows = n_rows, .n_in = n_in, .n_out = n_out};
        be[i]->k->linear(be[i]->queue, &a);
        be[i]->mem->sync(be[i]->queue);
    }
    const struct result r = {.what = what, .by = "cuBLASLt", .fast = out[0], .plain = out[1], .n = n, .size = {n_out}, .name = {"row", "column"}, .n_names = 2,
                             .bound = product_bound(w->packed_dtype)};
    judge(l, &r, qr_backend_ways(l->fast).by_library == before);
    drop_to(l, taken);
}

/* All numbers of rows by one matrix. */
static void multiply(struct large *l, enum qr_dtype t, int32_t n_in, int32_t n_out)
{
    static const int32_t rows[] = {4096, 256, 17};
    const size_t row_bytes = (size_t)n_in * (size_t)n_out * sizeof(uint16_t), packed_bytes = l->fast->k->linear_packed_bytes(t, n_out, n_in);
    struct qr_weight w = {.packed_dtype = t, .t = qr_tensor_2d(NULL, t, n_out, n_in)};
    char what[80];
    snprintf(what, sizeof what, "linear %d -> %d, %s", (int)n_in, (int)n_out, qr_dtype_name(t));
    if (!fits(l, what, (int64_t)row_bytes + (t == QR_BF16 ? 0 : (int64_t)packed_bytes)))
        return;
    w.packed = take(l, packed_bytes);
    void *from = t == QR_BF16 ? w.packed : take(l, row_bytes);
    spread(l, from, row_bytes, l->few_halves, PATTERN * sizeof *l->few_halves);
    if (t != QR_BF16)
        l->fast->k->linear_pack(l->fast->queue, w.packed, t, n_out, n_in, 0, from, QR_BF16, n_out);
    for (int i = 0; i < QR_COUNT(rows); i++)
        multiply_both(l, &w, scaled(l, rows[i], 17), n_in, n_out);
    drop_to(l, 0);
}

static void multiply_all(struct large *l)
{
    /* Llama-3.1-8B: qkv, o, gate and up, down, head */
    static const int32_t shapes[][2] = {{4096, 6144}, {4096, 4096}, {4096, 28672}, {14336, 4096}, {4096, 128256}};
    for (int i = 0; i < QR_COUNT(shapes); i++) {
        const int32_t n_in = scaled(l, shapes[i][0] / 64, 2) * 64, n_out = scaled(l, shapes[i][1] / 64, 1) * 64;
        multiply(l, QR_BF16, n_in, n_out);
        if (shapes[i][1] < 100000) /* a head stays bf16 */
            multiply(l, QR_F8, n_in, n_out);
    }
}

/* ---- all ---- */

static void make_patterns(struct large *l)
{
    struct qr_rng rng = {.seed = SEED};
    l->halves = qr_alloc(PATTERN, sizeof *l->halves), l->few_halves = qr_alloc(PATTERN, sizeof *l->few_halves);
    l->queries = qr_alloc(PATTERN, sizeof *l->queries), l->few_floats = qr_alloc(PATTERN, sizeof *l->few_floats);
    l->fetched[0] = qr_alloc(PIECE, sizeof *l->fetched[0]), l->fetched[1] = qr_alloc(PIECE, sizeof *l->fetched[1]);
    for (int32_t i = 0; i < PATTERN; i++) {
        const uint64_t x = qr_rng_next(&rng);
        l->halves[i] = qr_f32_to_bf16((float)(x & 0xff) / 128 - 1); /* below 1 when rounded, too */
        l->queries[i] = QUERY_MOST * ((float)(x >> 8 & 0xffff) / 32768 - 1);
        l->few_floats[i] = (x >> 24 & 3) != 0 ? 0 : (x >> 26 & 1) ? 1 : -1;
        l->few_halves[i] = qr_f32_to_bf16((x >> 27 & 3) != 0 ? 0.0f : (x >> 29 & 1) ? 1.0f : -1.0f);
    }
}

/* Twice the same device: with all that it has, and with what every device has. */
static int open_both(struct large *l, const char *device, struct qr_err *err)
{
    struct qr_backend_options o = {.device = device, .n_threads = 1, .step_rows_max = scaled(l, STEP_ROWS, 64)};
    int rc = qr_backend_open(&l->fast, &o, err);
    o.plain = true;
    if (rc == 0 && l->fast->mem->host)
        rc = qr_err_set(err, QR_E_USAGE, "--large: --device %.40s is the processor here, which has one way to compute", device);
    return rc ? rc : qr_backend_open(&l->plain, &o, err);
}

int check_large(const struct check_options *o, int32_t *n_wrong, int32_t *n_compared, struct qr_err *err)
{
    QR_ASSERT(o != NULL && o->device != NULL && o->scale >= 1);
    QR_ASSERT(n_wrong != NULL && n_compared != NULL && err != NULL);
    const bool to_stdout = o->json && strcmp(o->json, "-") == 0;
    struct large l = {.scale = (int32_t)o->scale, .text = !to_stdout};
    int rc = open_both(&l, o->device, err);
    if (rc == 0 && o->json && !(l.json = to_stdout ? stdout : fopen(o->json, "w")))
        rc = qr_err_set(err, QR_E_IO, "--json: %.200s cannot be written", o->json);
    if (rc == 0) {
        make_patterns(&l);
        if (l.text)
            printf("%s: its own ways beside the plain ones; largest difference\n", l.fast->title);
        for (int i = 0; i < QR_COUNT(attention_shapes) && check_wanted(o, "attention"); i++)
            attend(&l, attention_shapes[i]);
        if (check_wanted(o, "linear"))
            multiply_all(&l);
        if (l.text)
            printf("%d cases, %d wrong, %d with nothing to compare, %d skipped for want of memory\n", (int)l.n_cases, (int)l.n_wrong, (int)l.n_alone,
                   (int)l.n_skipped);
        *n_wrong = l.n_wrong;
        *n_compared = l.n_cases - l.n_alone;
    }
    if (l.json && !to_stdout)
        fclose(l.json);
    qr_free(l.halves), qr_free(l.few_halves), qr_free(l.queries), qr_free(l.few_floats);
    qr_free(l.fetched[0]), qr_free(l.fetched[1]);
    qr_backend_close(l.plain);
    qr_backend_close(l.fast);
    return rc;
}
