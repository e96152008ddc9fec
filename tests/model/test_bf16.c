/* Computing in bf16: how far from f32 it may be.
 *
 * Bound. With bf16 weights the kernels round, by specification, at these points and nowhere else: matrices, the input of each
 * product, what goes into the cache (k, v), q, and the attention probabilities. The test runs the f32 model with exactly these
 * roundings done by hand (`emulation`: matrices rounded in a copy of the file, inputs rounded in a wrapped `linear`, attention written
 * out here) and measures how far that moves the logits. The bf16 kernels do the same roundings, but of numbers that differ in the last f32
 * bits, so that a value close to a rounding boundary may fall to the other side: its error is still at most half a bf16 unit, as that of
 * the emulation was. So both are f32 plus errors of one distribution, and |bf16 - emulation| is at most the difference of two such
 * draws: |bf16 - f32| <= |emulation - f32| + |bf16 - emulation| with both terms of one size. Allowed is therefore twice what
 * the emulation moved, the largest over all prompts and positions (hundreds of draws); nothing in it comes from the kernels tested.
 *
 * With an int8 cache k and v are rounded to integers times a scale for each token and head instead, q and probabilities are not (or to 16 bits, on
 * tiles, of which the same holds with room to spare); the emulation does that, and the same argument holds.
 */
#include <stddef.h>
#include <unistd.h>

#include "base/half.h"
#include "loader/stores/tensor_files.h"
#include "tests/model/rig.h"
#include "tests/temp.h"

static float rounded(float x)
{
    return qr_bf16_to_f32(qr_f32_to_bf16(x));
}

/* ---- the emulation ---- */

struct emulation {
    struct qr_exec exec; /* first */
    struct qr_ops ops;
    struct qr_weight embed; /* the rows that are not rounded */
    bool int8_cache;
};

static struct qr_tensor emulated_embed(struct qr_exec *x, const struct qr_weight *w, float scale)
{
    struct emulation *e = (struct emulation *)(void *)x;
    cr_assert_eq(w->t.shape[0], e->embed.t.shape[0]);
    return qr_ops_serve.embed(x, &e->embed, scale);
}

static struct qr_tensor emulated_linear(struct qr_exec *x, const struct qr_tensor *in, const struct qr_weight *w,
                                        const struct qr_weight *bias)
{
    size_t n = (size_t)in->shape[0] * (size_t)in->shape[1];
    float *copy = qr_alloc(n + 1, sizeof *copy);
    for (int64_t i = 0; i < in->shape[0]; i++)
        for (int64_t j = 0; j < in->shape[1]; j++)
            copy[i * in->shape[1] + j] = rounded(((const float *)in->data)[i * in->stride[0] + j]);
    struct qr_tensor t = qr_tensor_2d(copy, QR_F32, in->shape[0], in->shape[1]);
    struct qr_tensor out = qr_ops_serve.linear(x, &t, w, bias);
    qr_free(copy);
    return out;
}

static struct qr_tensor emulated_logits(struct qr_exec *x, const struct qr_tensor *h, const struct qr_weight *w)
{
    return emulated_linear(x, h, w, NULL);
}

/* What the cache keeps of a token's head: out[i] times the returned scale. */
static double cached_as(double *out, const float *x, int64_t n, bool int8)
{
    float most = 0;
    for (int64_t i = 0; i < n; i++)
        most = fmaxf(most, fabsf(x[i]));
    for (int64_t i = 0; i < n; i++)
        out[i] = !int8 ? (double)rounded(x[i]) : most > 0 ? rint((double)(x[i] * (127 / most))) : 0;
    return int8 ? (double)(most / 127) : 1;
}

/* Keys or values of one head as the cache keeps them: row t is row[t * dim ..] times scale[t]. */
struct kept {
    double *row, *scale;
};

static struct kept keep_head(const struct qr_tensor *t, int64_t head, int64_t dim, bool int8)
{
    const int64_t n = t->shape[0];
    struct kept k = {qr_alloc((size_t)(n * dim), sizeof(double)), qr_alloc((size_t)n, sizeof(double))};
    for (int64_t i = 0; i < n; i++)
        k.scale[i] = cached_as(k.row + i * dim, (const float *)t->data + i * t->stride[0] + head * dim, dim, int8);
    return k;
}

/* One head of one token, straight from the formula; p has room for a number for each token before it. */
static void emulated_head(float *out, const float *q, const struct kept *k, const struct kept *v, double *p, int64_t n_tokens, int64_t dim, double scale,
                          bool int8)
{
    double most = -INFINITY, sum = 0, met[256], y[256] = {0};
    for (int64_t i = 0; i < dim; i++)
        met[i] = (double)(int8 ? q[i] : rounded(q[i]));
    for (int64_t t = 0; t < n_tokens; t++) {
        p[t] = 0;
        for (int64_t i = 0; i < dim; i++)
            p[t] += met[i] * k->row[t * dim + i];
        p[t] *= k->scale[t] * scale;
        most = fmax(most, p[t]);
    }
    for (int64_t t = 0; t < n_tokens; t++) {
        const double e = exp(p[t] - most);
        p[t] = int8 ? e * v->scale[t] : (double)rounded((float)e);
        sum += int8 ? e : p[t];
        for (int64_t i = 0; i < dim; i++)
            y[i] += p[t] * v->row[t * dim + i];
    }
    for (int64_t i = 0; i < dim; i++)
        out[i] = (float)(y[i] / sum);
}

/* One sequence from position 0. */
static struct qr_tensor emulated_attention(struct qr_exec *x, const struct qr_tensor *q, const struct qr_tensor *k,
                                           const struct qr_tensor *v, const struct qr_attn_spec *spec)
{
    const int64_t n = q->shape[0], dim = spec->head_dim, group = spec->n_heads / spec->n_kv_heads;
    struct qr_tensor out = qr_tensor_2d(qr_arena_alloc(x->act, (size_t)(n * spec->n_heads * dim) * sizeof(float), 64), QR_F32, n,
                                        spec->n_heads * dim);
    const bool int8 = ((const struct emulation *)(void *)x)->int8_cache;
    double *p = qr_alloc((size_t)n, sizeof *p);
    cr_assert_leq(dim, 256);
    for (int64_t g = 0; g < spec->n_kv_heads; g++) {
        struct kept keys = keep_head(k, g, dim, int8), values = keep_head(v, g, dim, int8);
        for (int64_t row = 0; row < n; row++)
            for (int64_t h = g * group; h < (g + 1) * group; h++)
                emulated_head((float *)out.data + row * out.stride[0] + h * dim, (const float *)q->data + row * q->stride[0] + h * dim, &keys, &values, p,
                              row + 1, dim, (double)spec->scale, int8);
        qr_free(keys.row), qr_free(keys.scale), qr_free(values.row), qr_free(values.scale);
    }
    qr_free(p);
    return out;
}

static void write_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f);
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

/* A copy of the model whose f32 matrices hold bf16 values. */
static void make_rounded(const char *to, const char *from)
{
    char path[1200];
    struct qr_err err = {0};
    struct qr_map_file f;
    struct qr_tensor_files *st;
    snprintf(path, sizeof path, "%s/config.json", from);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    snprintf(path, sizeof path, "%s/config.json", to);
    write_file(path, f.data, f.n_bytes);
    qr_map_file_close(&f);
    snprintf(path, sizeof path, "%s/model.safetensors", from);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_safetensors_open(&st, path, &err), 0, "%s", err.msg);
    uint8_t *copy = qr_alloc(f.n_bytes, 1);
    memcpy(copy, f.data, f.n_bytes);
    for (int32_t i = 0; i < qr_tensor_files_count(st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(st, i);
        for (uint64_t at = t->offset; t->n_dims == 2 && t->type->dtype == QR_F32 && at < t->offset + t->n_bytes; at += 4) {
            float x;
            memcpy(&x, copy + at, 4);
            x = rounded(x);
            memcpy(copy + at, &x, 4);
        }
    }
    snprintf(path, sizeof path, "%s/model.safetensors", to);
    write_file(path, copy, f.n_bytes);
    qr_free(copy);
    qr_tensor_files_close(st);
    qr_map_file_close(&f);
}

static void remove_model(const char *dir)
{
    char path[1200];
    snprintf(path, sizeof path, "%s/config.json", dir);
    unlink(path);
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    unlink(path);
    rmdir(dir);
}

/* ---- comparing ---- */

/* prompt and greedy continuation of a golden line, in one run. */
static int32_t *whole_text(const struct qr_json *v, int32_t *n)
{
    int32_t a, b;
    int32_t *prompt = json_ids(qr_json_find(v, "prompt_ids"), &a), *greedy = json_ids(qr_json_find(v, "greedy_ids"), &b);
    prompt = qr_realloc(prompt, (size_t)(a + b), sizeof *prompt);
    memcpy(prompt + a, greedy, (size_t)b * sizeof *greedy);
    qr_free(greedy);
    *n = a + b;
    return prompt;
}

static float *run_whole(struct rig *r, const int32_t *ids, int32_t n)
{
    struct rig_seq s = rig_seq_new(r, 0, NULL);
    float *all = rig_prompt(r, &s, ids, n, n);
    rig_seq_free(&s);
    return all;
}

static double max_difference(const float *a, const float *b, size_t n)
{
    double worst = 0;
    for (size_t i = 0; i < n; i++)
        worst = fmax(worst, fabs((double)a[i] - (double)b[i]));
    return worst;
}

struct texts {
    int32_t *ids[16], len[16], n;
    float *exact[16]; /* f32 logits of every position */
};

/* What the bound is derived from must not be what is tested: ref. Where only accesses are looked for, a level that is not as slow. */
#if defined(__SANITIZE_ADDRESS__)
#define EXACT_ISA NULL /* the best */
#else
#define EXACT_ISA "ref"
#endif

/* The f32 model's logits of all golden texts. */
static void texts_open(struct texts *t, const char *dir)
{
    char path[1100];
    struct golden g = {0};
    struct rig plain;
    rig_open(&plain, dir, (struct rig_options){.isa = EXACT_ISA, .compute = QR_COMPUTE_F32});
    snprintf(path, sizeof path, "%s/golden.jsonl", dir);
    for (t->n = 0; golden_next(&g, path); t->n++) {
        t->ids[t->n] = whole_text(g.v, &t->len[t->n]);
        t->exact[t->n] = run_whole(&plain, t->ids[t->n], t->len[t->n]);
    }
    rig_close(&plain);
}

static void texts_close(struct texts *t)
{
    for (int32_t i = 0; i < t->n; i++) {
        qr_free(t->ids[i]);
        qr_free(t->exact[i]);
    }
}

/* How far the emulated roundings move the logits. */
static double measure_emulation(const struct texts *t, const char *dir, const char *rounded_dir, bool int8_cache)
{
    struct rig rough;
    struct qr_tensor_files *st;
    struct qr_err err = {0};
    double moved = 0;
    rig_open(&rough, rounded_dir, (struct rig_options){.isa = EXACT_ISA, .compute = QR_COMPUTE_F32});
    cr_assert_eq(qr_safetensors_open(&st, dir, &err), 0, "%s", err.msg);
    const struct qr_stored_tensor *rows = qr_tensor_files_find(st, "model.embed_tokens.weight");
    struct emulation e = {.exec = rough.exec, .ops = plain_ops(), .int8_cache = int8_cache};
    e.embed.t = qr_tensor_2d((void *)(uintptr_t)qr_tensor_files_data(st, rows), rows->type->dtype, rows->shape[0], rows->shape[1]);
    e.ops.embed = emulated_embed;
    e.ops.linear = emulated_linear;
    e.ops.logits = emulated_logits;
    e.ops.attention = emulated_attention;
    e.exec.ops = &e.ops;
    rough.x = &e.exec;
    for (int32_t i = 0; i < t->n; i++) {
        float *all = run_whole(&rough, t->ids[i], t->len[i]);
        moved = fmax(moved, max_difference(all, t->exact[i], (size_t)t->len[i] * (size_t)rig_vocab(&rough)));
        qr_free(all);
    }
    qr_tensor_files_close(st);
    rig_close(&rough);
    return moved;
}

/* Positions where the f32 model's first choice leads by more than the bound allows to lose: there bf16 must choose the same. */
static void check_choices(const float *exact, const float *found, int32_t n, int32_t n_vocab, double bound, int32_t *n_same)
{
    for (int32_t i = 0; i < n; i++) {
        const float *e = exact + (size_t)i * (size_t)n_vocab, *f = found + (size_t)i * (size_t)n_vocab;
        int32_t best = argmax(e, n_vocab), chosen = argmax(f, n_vocab);
        cr_expect_leq((double)e[best] - (double)e[chosen], 2 * bound, "position %d", i);
        *n_same += best == chosen;
    }
}

static void check_levels(const struct texts *t, const char *dir, const char *name, double moved, bool int8_cache)
{
    const double bound = 2 * moved;
    const char *names[8];
    int32_t n_levels = levels(names);
    cr_expect_gt(moved, 0);
    for (int32_t l = 0; l < n_levels; l++) {
        struct rig r;
        double worst = 0;
        int32_t n_same = 0, n_all = 0;
        rig_open(&r, dir, (struct rig_options){.isa = names[l], .n_threads = 2, .compute = QR_COMPUTE_BF16,
                                              .kv_cache = int8_cache ? QR_KV_CACHE_INT8 : QR_KV_CACHE_AUTO});
        cr_expect_eq(qr_model_kv_dtype(r.model), int8_cache ? QR_I8 : QR_BF16);
        for (int32_t i = 0; i < t->n; i++) {
            float *all = run_whole(&r, t->ids[i], t->len[i]);
            worst = fmax(worst, max_difference(all, t->exact[i], (size_t)t->len[i] * (size_t)rig_vocab(&r)));
            check_choices(t->exact[i], all, t->len[i], rig_vocab(&r), bound, &n_same);
            n_all += t->len[i];
            qr_free(all);
        }
        printf("%s bf16%s %s: worst difference %.3f (emulation moved %.3f), same first choice at %d of %d positions\n", name,
               int8_cache ? ", int8 cache" : "", names[l],
               worst, moved, n_same, n_all);
        cr_expect_leq(worst, bound, "%s %s", name, names[l]);
        rig_close(&r);
    }
}

/* With a bf16 and with an int8 cache. */
static void check_model(const char *name)
{
    char dir[1024], copy[64];
    struct texts t;
    snprintf(dir, sizeof dir, "%s/models/%s", data_dir(), name);
    temp_dir_make(copy, "bf16");
    make_rounded(copy, dir);
    texts_open(&t, dir);
    for (int int8_cache = 0; int8_cache <= 1; int8_cache++)
        check_levels(&t, dir, name, measure_emulation(&t, dir, copy, int8_cache), int8_cache);
    texts_close(&t);
    remove_model(copy);
}

/* Where another test shows the same accesses. */
static void skip_under_sanitizers(void)
{
#if defined(__SANITIZE_ADDRESS__)
    cr_skip_test("slow under sanitizers; qwen3 goes the same ways");
#endif
}

Test(bf16, stories260K_stays_within_twice_what_the_roundings_move_with_a_bf16_and_an_int8_cache)
{
    skip_under_sanitizers();
    check_model("stories260K");
}

Test(bf16, qwen2_stays_within_twice_what_the_roundings_move_with_a_bf16_and_an_int8_cache)
{
    skip_under_sanitizers();
    check_model("rand-qwen2");
}

Test(bf16, qwen3_stays_within_twice_what_the_roundings_move_with_a_bf16_and_an_int8_cache)
{
    check_model("rand-qwen3");
}

Test(bf16, llama31_stays_within_twice_what_the_roundings_move_with_a_bf16_and_an_int8_cache)
{
    skip_under_sanitizers();
    check_model("rand-llama31");
}
