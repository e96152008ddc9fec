/* A model whose matrices were rounded to int8 or int4 while loading, or its keys and values to int8: what that costs on a trained model, and that
 * nothing else changes. */
#include "tests/full.h"
#include "tests/model/rig.h"

#include "tests/loader/quantized_dir.h"
#include "tokenizer/tokenizer.h"

#if defined(__SANITIZE_ADDRESS__)
#define CTX 300   /* more than a piece of attention's */
#define WINDOWS 1 /* the accesses of 32; what is measured there means nothing with so few and is not judged */
#else
#define CTX 512
#define WINDOWS 32
#endif

struct format {
    const char *name;
    enum qr_compute compute;
    enum qr_quantize quantize;
    enum qr_kv_cache kv_cache;
    double rise_max; /* of perplexity over f32 */
    bool between;    /* in everything between others here: asked with QUIRE_FULL=1 */
};

/* The targets are 0.5 % and 5 %. */
static const struct format formats[] = {
    {"f32", QR_COMPUTE_F32, QR_QUANTIZE_NONE, QR_KV_CACHE_AUTO, 0, false},
    {"bf16", QR_COMPUTE_BF16, QR_QUANTIZE_NONE, QR_KV_CACHE_AUTO, 0.005, false},
    {"int8", QR_COMPUTE_AUTO, QR_QUANTIZE_INT8, QR_KV_CACHE_AUTO, 0.005, false},
    {"w8a16", QR_COMPUTE_AUTO, QR_QUANTIZE_W8A16, QR_KV_CACHE_AUTO, 0.005, false},
    {"int4", QR_COMPUTE_AUTO, QR_QUANTIZE_INT4, QR_KV_CACHE_AUTO, 0.05, false},
    {"int4-g64", QR_COMPUTE_AUTO, QR_QUANTIZE_INT4_G64, QR_KV_CACHE_AUTO, 0.05, false},
    {"int4-g128", QR_COMPUTE_AUTO, QR_QUANTIZE_INT4_G128, QR_KV_CACHE_AUTO, 0.05, false},
    {"w4a16", QR_COMPUTE_AUTO, QR_QUANTIZE_W4A16, QR_KV_CACHE_AUTO, 0.05, false},
    {"f32, int8 cache", QR_COMPUTE_F32, QR_QUANTIZE_NONE, QR_KV_CACHE_INT8, 0.005, false},
    {"bf16, int8 cache", QR_COMPUTE_BF16, QR_QUANTIZE_NONE, QR_KV_CACHE_INT8, 0.005, false},
    {"int8, int8 cache", QR_COMPUTE_AUTO, QR_QUANTIZE_INT8, QR_KV_CACHE_INT8, 0.01, false},
};

/* The beginning of a book, as the model's own tokenizer cuts it. */
static void read_text(struct qr_ids *ids, const char *model_dir, size_t n_bytes)
{
    struct qr_map_file text;
    struct qr_tokenizer *t;
    struct qr_err err = {0};
    char path[1024];
    snprintf(path, sizeof path, "%s/text/grimm_household_tales_hunt_1884.txt", data_dir());
    cr_assert_eq(qr_map_file_open(&text, path, SIZE_MAX, &err), 0, "%s", err.msg);
    cr_assert_gt(text.n_bytes, 100000 + n_bytes);
    cr_assert_eq(qr_tokenizer_open(&t, model_dir, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_tokenizer_encode(t, ids, (const char *)text.data + 100000, n_bytes, 0, &err), 0, "%s", err.msg);
    qr_tokenizer_close(t);
    qr_map_file_close(&text);
}

/* exp of the mean negative log-probability of each window's tokens after its first. */
static double perplexity(const char *dir, const struct format *f, const char *isa, const struct qr_ids *ids, int32_t n_windows)
{
    struct rig r;
    rig_open(&r, dir, (struct rig_options){.isa = isa, .n_threads = 2, .compute = f->compute, .quantize = f->quantize,
                                          .kv_cache = f->kv_cache});
    int32_t v = rig_vocab(&r), n = 0;
    double sum = 0;
    for (int32_t w = 0; w < n_windows; w++) {
        const int32_t *id = ids->id + w * CTX;
        struct rig_seq s = rig_seq_new(&r, 0, NULL);
        float *logits = rig_prompt(&r, &s, id, CTX, CTX);
        for (int32_t i = 1; i < CTX; i++, n++)
            sum += log_sum_exp(logits + (size_t)(i - 1) * (size_t)v, v) - (double)logits[(size_t)(i - 1) * (size_t)v + (size_t)id[i]];
        qr_free(logits);
        rig_seq_free(&s);
    }
    rig_close(&r);
    return exp(sum / n);
}

Test(quantize, perplexity_of_a_trained_model_rises_by_less_than_half_a_percent_with_int8_weights_or_cache_and_five_with_int4)
{
    char dir[1024];
    struct qr_ids ids = {0};
    snprintf(dir, sizeof dir, "%s/models/stories260K", data_dir());
    read_text(&ids, dir, (size_t)CTX * WINDOWS * 4);
    cr_assert_geq(ids.n, CTX * WINDOWS);
    double ppl[QR_COUNT(formats)];
    for (int i = 0; i < QR_COUNT(formats); i++) {
        if (formats[i].between && !full_size())
            continue;
        ppl[i] = perplexity(dir, &formats[i], NULL, &ids, WINDOWS);
        printf("stories260K, %d tokens, %-16s: perplexity %.3f (%+.2f %%)\n", CTX * WINDOWS, formats[i].name, ppl[i], 100 * (ppl[i] / ppl[0] - 1));
        cr_expect(isfinite(ppl[i]));
        cr_expect(WINDOWS < 32 || ppl[i] <= ppl[0] * (1 + formats[i].rise_max), "%s", formats[i].name);
    }
    qr_ids_release(&ids);
}

static float *logits_of(struct rig *r, const int32_t *ids, int32_t n, int32_t chunk)
{
    struct rig_seq s = rig_seq_new(r, 0, NULL);
    float *all = rig_prompt(r, &s, ids, n, chunk);
    rig_seq_free(&s);
    return all;
}

Test(quantize, token_by_token_and_three_threads_give_the_bits_of_the_whole_prompt_on_every_level_for_every_format)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_QWEN3);
    struct temp_model t = temp_model_make(&c, QR_F16);
    struct qr_rng rng = {.seed = 5};
    const char *names[8];
    int32_t n_levels = levels(names), n = 45, *ids = random_ids(&rng, n, c.n_vocab);
    const int32_t n_formats = QR_QUANTIZE_COUNT - QR_QUANTIZE_INT8;
    for (int32_t i = 0; i < n_formats * n_levels; i++) {
        const char *isa = names[i / n_formats];
        struct rig r, three;
        const struct rig_options o = {.isa = isa, .n_threads = 2, .quantize = (enum qr_quantize)(QR_QUANTIZE_INT8 + i % n_formats)};
        struct rig_options o3 = o;
        o3.n_threads = 3;
        rig_open(&r, t.dir, o);
        rig_open(&three, t.dir, o3);
        const char *format = qr_dtype_name(qr_model_weight_dtype(r.model));
        float *whole = logits_of(&r, ids, n, n), *parts = logits_of(&r, ids, n, 7), *single = logits_of(&r, ids, n, 1);
        float *threads = logits_of(&three, ids, n, n);
        size_t n_bytes = (size_t)n * (size_t)c.n_vocab * sizeof *whole;
        cr_expect_eq(memcmp(whole, parts, n_bytes), 0, "%s %s: chunks of 7", isa, format);
        cr_expect_eq(memcmp(whole, single, n_bytes), 0, "%s %s: single tokens", isa, format);
        cr_expect_eq(memcmp(whole, threads, n_bytes), 0, "%s %s: three threads", isa, format);
        cr_expect(isfinite(whole[0]));
        qr_free(whole);
        qr_free(parts);
        qr_free(single);
        qr_free(threads);
        rig_close(&three);
        rig_close(&r);
    }
    qr_free(ids);
    temp_model_remove(&t);
}

/* int8, int4 and fp8 are formats of their own; other names stand for the coded type that does the same. */
Test(quantize, every_choice_of_the_option_is_a_type)
{
    static const char *const types[] = {"int8", "c8-g32", "c8-g32", "c8-g32", "int4", "c4-g64", "c4-g128", "c8-g32", "c4-g32", "c4-g64", "c4-g128", "fp8"};
    const char *name = QR_QUANTIZE_ALL_CHOICES;
    for (int i = QR_QUANTIZE_INT8; i <= QR_QUANTIZE_FP8; i++) {
        cr_assert_not_null(name = strchr(name, '|'));
        name++;
        cr_expect_str_eq(qr_dtype_name(qr_quantize_dtype((enum qr_quantize)i)), types[i - QR_QUANTIZE_INT8], "%s", name);
    }
    cr_expect_str_eq(name, "fp8");
    cr_expect_eq(QR_COUNT(types), QR_QUANTIZE_FP8);
}

Test(quantize, plan_says_what_opening_takes)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp_model t = temp_model_make(&c, QR_BF16);
    struct qr_err err = {0};
    for (int i = QR_QUANTIZE_INT8; i < QR_QUANTIZE_COUNT; i++) {
        struct rig r;
        struct qr_model_plan plan;
        const struct qr_model_options o = {.quantize = (enum qr_quantize)i};
        rig_open(&r, t.dir, (struct rig_options){.quantize = o.quantize});
        cr_assert_eq(qr_model_plan(&plan, t.dir, r.be, &o, 77, 5, &err), 0, "%s", err.msg);
        cr_expect_eq(plan.weight_dtype, qr_quantize_dtype(o.quantize));
        cr_expect_eq(plan.kv_dtype, QR_BF16);
        cr_expect_eq(qr_model_weight_dtype(r.model), plan.weight_dtype);
        cr_expect_eq((int64_t)(plan.weight_bytes + plan.table_bytes), qr_model_weight_bytes(r.model));
        cr_expect_eq(plan.act_bytes, qr_model_act_bytes(r.model, 77, 5));
        rig_close(&r);
    }
    temp_model_remove(&t);
}

Test(quantize, refuses_matrices_whose_sums_could_leave_32_bits)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    c.n_layers = 1;
    for (int i = 0; i < 2; i++) {
        c.n_ffn = QR_QUANT_INPUTS_MAX + i;
        struct temp_model t = temp_model_make(&c, QR_BF16);
        struct qr_backend *be;
        struct qr_model_plan plan;
        struct qr_err err = {0};
        const struct qr_backend_options bo = {.n_threads = 1};
        const struct qr_model_options o = {.quantize = QR_QUANTIZE_INT8}, plain = {.quantize = QR_QUANTIZE_NONE};
        cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
        cr_expect_eq(qr_model_plan(&plan, t.dir, be, &plain, 8, 8, &err), 0, "%s", err.msg);
        int rc = qr_model_plan(&plan, t.dir, be, &o, 8, 8, &err);
        cr_expect_eq(rc, i ? QR_E_UNSUPPORTED : 0);
        cr_expect(i == 0 || strstr(err.msg, "65537 inputs, int8 ones have 65536 at most; load it without --quantize"), "%s", err.msg);
        qr_backend_close(be);
        temp_model_remove(&t);
    }
}

/* ---- written, by loader/write/quantize.h ---- */

static float *one_prompt(const char *dir, int32_t n_vocab)
{
    static const int32_t ids[] = {5, 9, 2, 77, 30, 1, 8, 8};
    struct rig r;
    rig_open(&r, dir, (struct rig_options){0});
    cr_assert_eq(rig_vocab(&r), n_vocab);
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *logits = rig_prompt(&r, &s, ids, QR_COUNT(ids), QR_COUNT(ids));
    rig_seq_free(&s);
    rig_close(&r);
    return logits;
}

Test(quantize, a_gpt2_that_was_written_rounded_says_about_what_it_said)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_GPT2);
    struct temp_model in = temp_model_make(&c, QR_BF16), out;
    struct qr_tensor_files *st;
    struct qr_quantize_report report;
    struct qr_err err = {0};
    temp_dir_make(out.dir, "model");
    cr_assert_eq(qr_tensor_files_open(&st, in.dir, NULL, &err), 0, "%s", err.msg);
    quantized_dir_write(out.dir, st, &c, &(struct qr_quantize_options){.type = QR_ROUNDING_INT8}, &report);
    qr_tensor_files_close(st);
    float *a = one_prompt(in.dir, c.n_vocab), *b = one_prompt(out.dir, c.n_vocab);
    double off = 0, all = 0;
    for (int32_t i = 0; i < 8 * c.n_vocab; i++) {
        off += (double)(a[i] - b[i]) * (double)(a[i] - b[i]);
        all += (double)a[i] * (double)a[i];
    }
    /* A weight is off by up to max / 254, about 3 / 254 / sqrt(3) = 0.7 % of a normal row's deviation, and so is a product; a dozen of them add up to some
     * per cent. Matrices read the wrong way round leave nothing alike: the ratio is then above 1. */
    cr_assert(sqrt(off / all) < 0.1, "%g", sqrt(off / all));
    qr_free(a);
    qr_free(b);
    temp_model_remove(&in);
    temp_model_remove(&out);
}
