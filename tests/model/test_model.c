#include "base/clock.h"
#include "tests/model/rig.h"

#include "base/half.h"

/* ---- the step arena ---- */

Test(model, step_arena_takes_exactly_what_was_planned)
{
    static const enum qr_arch archs[] = {QR_ARCH_LLAMA, QR_ARCH_QWEN2, QR_ARCH_QWEN3, QR_ARCH_QWEN2_MOE};
    for (int a = 0; a < QR_COUNT(archs); a++) {
        struct qr_model_config c = qr_model_config_small(archs[a]);
        struct temp_model t = temp_model_make(&c, QR_F32);
        struct rig r;
        rig_open(&r, t.dir, (struct rig_options){.isa = "ref"});
        size_t before = 0;
        for (int32_t n = 1; n <= 100; n += 9) {
            size_t planned = qr_model_act_bytes(r.model, n, n), few = qr_model_act_bytes(r.model, n, 1);
            void *mem = r.be->mem->alloc(planned);
            struct qr_arena act;
            struct qr_rng rng = {.seed = 1};
            int32_t *ids = random_ids(&rng, n, c.n_vocab);
            struct rig_seq s = rig_seq_new(&r, 0, NULL);
            qr_arena_init_fixed(&act, mem, planned);
            r.exec.act = &act;
            qr_free(rig_step(&r, &(struct rig_item){&s, ids, n, RIG_ALL}, 1));
            cr_expect_eq(act.peak, planned, "%d rows: used %zu, planned %zu", n, act.peak, planned);
            s.n_done = 0;
            act.peak = 0;
            qr_free(rig_step(&r, &(struct rig_item){&s, ids, n, RIG_LAST}, 1));
            cr_expect_eq(act.peak, few, "%d rows, one of logits: used %zu, planned %zu", n, act.peak, few);
            s.n_done = 0;
            qr_free(rig_step(&r, &(struct rig_item){&s, ids, n, RIG_NONE}, 1));
            cr_expect(planned > before && few <= planned);
            cr_expect_eq(qr_model_act_bytes(r.model, n, n + 50), planned);
            before = planned;
            r.exec.act = &r.act;
            qr_free(ids);
            rig_seq_free(&s);
            r.be->mem->free(mem);
        }
        rig_close(&r);
        temp_model_remove(&t);
    }
}

/* Pieces of 4 KiB that are still what they were. */
static size_t untouched(const uint8_t *mem, size_t n_bytes)
{
    size_t n = 0;
    for (size_t at = 0; at + 4096 <= n_bytes; at += 4096) {
        size_t i = 0;
        while (i < 4096 && mem[at + i] == 0xa5)
            i++;
        n += i == 4096;
    }
    return n;
}

static void expect_used(const struct qr_model_config *c, const char *dir, struct rig_options o, int32_t n)
{
    struct rig r;
    rig_open(&r, dir, o);
    const size_t planned = qr_model_act_bytes(r.model, n, n / 4);
    uint8_t *mem = r.be->mem->alloc(planned);
    struct qr_arena act;
    struct qr_rng rng = {.seed = 1};
    int32_t *ids = random_ids(&rng, n, c->n_vocab);
    struct rig_seq s[2] = {rig_seq_new(&r, 0, NULL), rig_seq_new(&r, 32, NULL)};
    memset(mem, 0xa5, planned);
    qr_arena_init_fixed(&act, mem, planned);
    r.exec.act = &act;
    qr_free(rig_step(&r, (struct rig_item[]){{&s[0], ids, n / 4, RIG_ALL}, {&s[1], ids + n / 4, n - n / 4, RIG_NONE}}, 2));
    const size_t left = untouched(mem, planned);
    cr_expect_leq(left * 4096, planned / 100 + 4096, "%s, %s, quantize %d, cache %d, %d threads, %d rows: %zu of %zu pages are never touched", o.isa,
                  c->arch_name, o.quantize, o.kv_cache, o.n_threads, n, left, planned / 4096);
    r.exec.act = &r.act;
    qr_free(ids);
    rig_seq_free(&s[0]);
    rig_seq_free(&s[1]);
    r.be->mem->free(mem);
    rig_close(&r);
}

/* Results that go from product to product in bf16 take half of what floats do: room for these would be counted and never used. */
Test(model, a_step_as_large_as_planned_uses_all_of_its_memory_at_every_level)
{
    static const enum qr_arch archs[] = {QR_ARCH_LLAMA, QR_ARCH_GEMMA2, QR_ARCH_GPT2}; /* what experts use depends on who is chosen */
    static const enum qr_quantize rounded[] = {QR_QUANTIZE_NONE, QR_QUANTIZE_INT8, QR_QUANTIZE_W4A16};
    const char *names[8];
    const int32_t n_levels = levels_above_ref(names);
    for (int a = 0; a < QR_COUNT(archs); a++) {
        const struct qr_model_config c = qr_model_config_small(archs[a]);
        struct temp_model t = temp_model_make(&c, QR_BF16);
        for (int32_t l = 1; l < n_levels; l++)
            for (int i = 0; i < QR_COUNT(rounded) * 2; i++)
                expect_used(&c, t.dir, (struct rig_options){.isa = names[l], .quantize = rounded[i / 2], .n_threads = 1 + i % 2,
                                                            .kv_cache = i == 1 ? QR_KV_CACHE_INT8 : QR_KV_CACHE_AUTO}, i % 2 ? 512 : 200);
        temp_model_remove(&t);
    }
}

Test(model, each_layer_of_a_step_is_heard_of)
{
    const struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp_model t = temp_model_make(&c, QR_F32);
    static const int32_t ids[] = {1, 2, 3};
    _Atomic int64_t beat_us = 0;
    struct rig r;
    rig_open(&r, t.dir, (struct rig_options){0});
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    const int64_t before = qr_clock_us();
    r.x->beat_us = &beat_us;
    qr_free(rig_step(&r, &(struct rig_item){&s, ids, 3, RIG_NONE}, 1));
    cr_assert(beat_us >= before && beat_us <= qr_clock_us());
    rig_seq_free(&s);
    rig_close(&r);
    temp_model_remove(&t);
}

Test(model, plan_says_what_opening_takes)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_MISTRAL);
    struct temp_model t = temp_model_make(&c, QR_BF16);
    struct rig r;
    struct qr_model_plan plan;
    struct qr_err err = {0};
    const struct qr_model_options o = {.compute = QR_COMPUTE_AUTO};
    rig_open(&r, t.dir, (struct rig_options){.isa = NULL});
    cr_assert_eq(qr_model_plan(&plan, t.dir, r.be, &o, 77, 5, &err), 0, "%s", err.msg);
    cr_expect_eq(plan.weight_dtype, QR_BF16);
    cr_expect_eq(plan.kv_dtype, QR_BF16);
    cr_expect_eq((int64_t)(plan.weight_bytes + plan.table_bytes), qr_model_weight_bytes(r.model));
    cr_expect_eq(plan.act_bytes, qr_model_act_bytes(r.model, 77, 5));
    cr_expect_eq(plan.kv_token_bytes * 16, qr_kv_block_bytes(&r.kv));
    cr_expect_eq(plan.config.ctx_max, 512);
    rig_close(&r);
    static const struct {
        enum qr_kv_cache kv_cache;
        enum qr_dtype dtype;
        size_t row_bytes; /* of a head of K numbers */
    } caches[] = {{QR_KV_CACHE_F32, QR_F32, 4}, {QR_KV_CACHE_BF16, QR_BF16, 2}, {QR_KV_CACHE_INT8, QR_I8, 1}};
    for (int i = 0; i < QR_COUNT(caches); i++) {
        const struct qr_model_options with = {.kv_cache = caches[i].kv_cache};
        rig_open(&r, t.dir, (struct rig_options){.kv_cache = caches[i].kv_cache});
        cr_assert_eq(qr_model_plan(&plan, t.dir, r.be, &with, 77, 5, &err), 0, "%s", err.msg);
        cr_expect_eq(plan.kv_dtype, caches[i].dtype);
        cr_expect_eq(qr_model_kv_dtype(r.model), caches[i].dtype);
        size_t row = caches[i].row_bytes * (size_t)c.head_dim + (caches[i].dtype == QR_I8 ? 4 : 0);
        cr_expect_eq(plan.kv_token_bytes, (size_t)(c.n_layers * 2 * c.n_kv_heads) * row);
        cr_expect_eq(plan.kv_token_bytes * 16, qr_kv_block_bytes(&r.kv));
        rig_close(&r);
    }
    temp_model_remove(&t);
}

/* ---- sliding windows, against attention written out with a mask ---- */

struct masked {
    struct qr_exec exec; /* first */
    struct qr_ops ops;
    int32_t window, first_layer;
};

static struct qr_tensor masked_attention(struct qr_exec *x, const struct qr_tensor *q, const struct qr_tensor *k,
                                         const struct qr_tensor *v, const struct qr_attn_spec *spec)
{
    const struct masked *m = (const struct masked *)(const void *)x;
    const int64_t n = q->shape[0], dim = spec->head_dim;
    struct qr_tensor out = qr_tensor_2d(qr_arena_alloc(x->act, (size_t)(n * spec->n_heads * dim) * sizeof(float), 64), QR_F32, n,
                                        spec->n_heads * dim);
    double *p = qr_alloc((size_t)n, sizeof *p);
    for (int64_t row = 0; row < n; row++)
        for (int64_t h = 0; h < spec->n_heads; h++) {
            const int64_t g = h / (spec->n_heads / spec->n_kv_heads);
            double sum = 0;
            for (int64_t t = 0; t < n; t++) {
                bool hidden = t > row || (m->window && spec->layer >= m->first_layer && row - t >= m->window);
                double dot = 0;
                for (int64_t i = 0; i < dim; i++)
                    dot += (double)((const float *)q->data)[row * q->stride[0] + h * dim + i] *
                           (double)((const float *)k->data)[t * k->stride[0] + g * dim + i];
                p[t] = hidden ? 0 : exp(dot / sqrt((double)dim));
                sum += p[t];
            }
            for (int64_t i = 0; i < dim; i++) {
                double y = 0;
                for (int64_t t = 0; t < n; t++)
                    y += p[t] * (double)((const float *)v->data)[t * v->stride[0] + g * dim + i];
                ((float *)out.data)[row * out.stride[0] + h * dim + i] = (float)(y / sum);
            }
        }
    qr_free(p);
    return out;
}

/* Tolerance: two layers of f32 against the same with attention in double: a few units of 2^-24 of logits that reach some 10, amplified by
 * the layer after it: 1e-4 is 50 times 10 * 2^-24 * 3. Leaving the window out moves them by more than 0.1, which is checked too. */
static void check_window(const struct qr_model_config *c, const char *isa)
{
    const int32_t n = 290;
    struct temp_model t = temp_model_make(c, QR_F32);
    struct rig r;
    struct qr_rng rng = {.seed = 5};
    int32_t *ids = random_ids(&rng, n, c->n_vocab);
    rig_open(&r, t.dir, (struct rig_options){.isa = isa});
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *got = rig_prompt(&r, &s, ids, n, 13), *want, *unmasked;
    struct masked m = {.exec = r.exec, .ops = plain_ops(), .window = c->window, .first_layer = c->window_first_layer};
    m.ops.attention = masked_attention;
    m.exec.ops = &m.ops;
    r.x = &m.exec;
    s.n_done = 0;
    want = rig_prompt(&r, &s, ids, n, n);
    s.n_done = 0;
    m.window = 0;
    unmasked = rig_prompt(&r, &s, ids, n, n);
    double worst = 0, effect = 0;
    for (size_t i = 0; i < (size_t)n * (size_t)c->n_vocab; i++) {
        worst = fmax(worst, fabs((double)got[i] - (double)want[i]));
        effect = fmax(effect, fabs((double)unmasked[i] - (double)want[i]));
    }
    printf("%s window %d from layer %d, %s: worst %.2e, without it %.2f\n", c->arch_name, c->window, c->window_first_layer, isa, worst,
           effect);
    cr_expect_leq(worst, 1e-4);
    cr_expect_gt(effect, 0.1);
    qr_free(got);
    qr_free(want);
    qr_free(unmasked);
    qr_free(ids);
    rig_seq_free(&s);
    rig_close(&r);
    temp_model_remove(&t);
}

#if defined(__SANITIZE_ADDRESS__) /* two windows, not four */
#define WINDOW_TIMES 40
#else
#define WINDOW_TIMES 6
#endif

Test(model, sliding_window_equals_full_attention_under_a_mask)
{
    const char *names[8];
    for (int32_t i = 0, n = levels(names); i < n; i++) {
        struct qr_model_config c = qr_model_config_small(QR_ARCH_MISTRAL);
        for (c.window = 1; c.window < 300; c.window = c.window * WINDOW_TIMES + 1)
            check_window(&c, names[i]);
        c = qr_model_config_small(QR_ARCH_QWEN2);
        c.window = 20;
        c.window_first_layer = 1;
        check_window(&c, names[i]);
    }
}

/* ---- opening ---- */

static int try_open(const char *dir, struct qr_model_options o, struct qr_err *err, int32_t *ctx_max)
{
    struct qr_backend *be;
    struct qr_model *m;
    const struct qr_backend_options bo = {.isa = "ref", .n_threads = 1};
    cr_assert_eq(qr_backend_open(&be, &bo, err), 0, "%s", err->msg);
    int rc = qr_model_open(&m, dir, be, &o, err);
    if (!rc) {
        *ctx_max = qr_model_config(m)->ctx_max;
        qr_model_close(m);
    }
    qr_backend_close(be);
    return rc;
}

Test(model, context_is_bounded_by_what_the_rotary_embedding_is_made_for)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp_model plain = temp_model_make(&c, QR_F32);
    c.rope.type = QR_ROPE_YARN;
    c.rope.factor = 4;
    struct temp_model yarn = temp_model_make(&c, QR_F32);
    struct qr_err err = {0};
    int32_t ctx = 0;
    cr_expect_eq(try_open(plain.dir, (struct qr_model_options){.ctx_max = 0}, &err, &ctx), 0);
    cr_expect_eq(ctx, 512);
    cr_expect_eq(try_open(plain.dir, (struct qr_model_options){.ctx_max = 512}, &err, &ctx), 0);
    cr_expect_eq(try_open(plain.dir, (struct qr_model_options){.ctx_max = 513}, &err, &ctx), QR_E_USAGE);
    cr_expect(strstr(err.msg, "513") && strstr(err.msg, "1 to 512"), "%s", err.msg);
    cr_expect_eq(try_open(plain.dir, (struct qr_model_options){.ctx_max = -1}, &err, &ctx), QR_E_USAGE);
    cr_expect_eq(try_open(yarn.dir, (struct qr_model_options){.ctx_max = 0}, &err, &ctx), 0, "%s", err.msg);
    cr_expect_eq(ctx, 2048, "all that it stretches to");
    cr_expect_eq(try_open(yarn.dir, (struct qr_model_options){.ctx_max = 2048}, &err, &ctx), 0, "%s", err.msg);
    cr_expect_eq(ctx, 2048);
    cr_expect_eq(try_open(yarn.dir, (struct qr_model_options){.ctx_max = 2049}, &err, &ctx), QR_E_USAGE);
    temp_model_remove(&plain);
    temp_model_remove(&yarn);
}

Test(model, f16_is_computed_in_bf16_only_when_that_loses_nothing)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp_model t = temp_model_make(&c, QR_F16);
    struct rig r;
    rig_open(&r, t.dir, (struct rig_options){.isa = "ref"});
    cr_expect_eq(qr_model_weight_dtype(r.model), QR_F32);
    rig_close(&r);
    /* The same file with every f16 cut to bf16's seven bits of mantissa. */
    char path[128];
    struct qr_map_file f;
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", t.dir);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    uint8_t *copy = qr_alloc(f.n_bytes, 1);
    uint64_t header;
    memcpy(copy, f.data, f.n_bytes);
    memcpy(&header, copy, 8);
    for (size_t at = 8 + header; at < f.n_bytes; at += 2)
        copy[at] &= (copy[at + 1] & 0x7c) ? 0xf8 : 0; /* subnormals to zero */
    FILE *out = fopen(path, "wb");
    cr_assert_eq(fwrite(copy, 1, f.n_bytes, out), f.n_bytes);
    fclose(out);
    qr_free(copy);
    rig_open(&r, t.dir, (struct rig_options){.isa = "ref"});
    cr_expect_eq(qr_model_weight_dtype(r.model), QR_BF16);
    rig_close(&r);
    temp_model_remove(&t);
}

/* ---- files that hold the same numbers in another way ---- */

static float *logits_of(const char *dir, enum qr_compute compute, const int32_t *ids, int32_t n)
{
    struct rig r;
    rig_open(&r, dir, (struct rig_options){.compute = compute});
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *all = rig_prompt(&r, &s, ids, n, n);
    rig_seq_free(&s);
    rig_close(&r);
    return all;
}

Test(model, shards_compute_what_one_file_computes)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN3);
    struct temp_model one = temp_model_make(&c, QR_BF16);
    char dir[64], command[100];
    struct qr_err err = {0};
    struct qr_rng rng = {.seed = 2};
    int32_t *ids = random_ids(&rng, 40, c.n_vocab);
    const struct qr_make_options o = {.store = QR_BF16, .seed = 7, .std = 0.15, .n_shards = 5};
    temp_dir_make(dir, "model");
    cr_assert_eq(qr_model_make(dir, &c, &o, &err), 0, "%s", err.msg);
    float *a = logits_of(one.dir, QR_COMPUTE_AUTO, ids, 40), *b = logits_of(dir, QR_COMPUTE_AUTO, ids, 40);
    cr_expect_eq(memcmp(a, b, 40 * (size_t)c.n_vocab * sizeof *a), 0);
    qr_free(a);
    qr_free(b);
    qr_free(ids);
    snprintf(command, sizeof command, "rm -r '%s'", dir);
    cr_expect_eq(system(command), 0);
    temp_model_remove(&one);
}

/* The header one byte longer: nothing in the file is aligned any more. */
static void misalign(const char *dir)
{
    char path[128];
    struct qr_map_file f;
    struct qr_err err = {0};
    snprintf(path, sizeof path, "%s/model.safetensors", dir);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    uint64_t n;
    memcpy(&n, f.data, 8);
    char *copy = qr_alloc(f.n_bytes + 1, 1);
    memcpy(copy, f.data, 8 + n);
    copy[8 + n] = ' ';
    memcpy(copy + 9 + n, f.data + 8 + n, f.n_bytes - 8 - n);
    n++;
    memcpy(copy, &n, 8);
    unlink(path);
    FILE *out = fopen(path, "wb");
    cr_assert_eq(fwrite(copy, 1, f.n_bytes + 1, out), f.n_bytes + 1);
    fclose(out);
    qr_free(copy);
    qr_map_file_close(&f);
}

Test(model, unaligned_files_compute_what_aligned_ones_compute)
{
    static const enum qr_dtype stores[] = {QR_F32, QR_BF16, QR_F16};
    for (int i = 0; i < QR_COUNT(stores); i++) {
        struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN2);
        c.tied_head = i == 1;
        struct temp_model t = temp_model_make(&c, stores[i]);
        struct qr_rng rng = {.seed = 2};
        int32_t *ids = random_ids(&rng, 30, c.n_vocab);
        float *a = logits_of(t.dir, QR_COMPUTE_AUTO, ids, 30);
        misalign(t.dir);
        float *b = logits_of(t.dir, QR_COMPUTE_AUTO, ids, 30);
        cr_expect_eq(memcmp(a, b, 30 * (size_t)c.n_vocab * sizeof *a), 0, "type %d", i);
        qr_free(a);
        qr_free(b);
        qr_free(ids);
        temp_model_remove(&t);
    }
}

Test(model, what_cannot_be_run_is_refused_with_the_reason)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct qr_err err = {0};
    int32_t ctx;
    const struct qr_model_options o = {.compute = QR_COMPUTE_AUTO};
    cr_expect_eq(try_open("/nowhere", o, &err, &ctx), QR_E_NOT_FOUND);
    cr_expect(strstr(err.msg, "/nowhere/config.json"), "%s", err.msg);
    c.head_dim = 12; /* even, so well formed, but no kernel has it */
    struct temp_model t = temp_model_make(&c, QR_F32);
    cr_expect_eq(try_open(t.dir, o, &err, &ctx), QR_E_UNSUPPORTED, "%s", err.msg);
    cr_expect(strstr(err.msg, t.dir) && strstr(err.msg, "12"), "%s", err.msg);
    char path[128];
    snprintf(path, sizeof path, "%s/model.safetensors", t.dir);
    unlink(path);
    cr_expect_eq(try_open(t.dir, o, &err, &ctx), QR_E_NOT_FOUND);
    cr_expect(strstr(err.msg, "has no weights"), "%s", err.msg);
    temp_model_remove(&t);
}
