/* Same request, same bytes: whatever the chunking, the pages, the neighbours and the threads. Everything here is compared bit for bit, on
 * every level, in f32 and in bf16, with caches of f32, bf16 and int8, for the four families, for experts and for windows that end inside the text.
 */
#include "tests/model/rig.h"

#define N_TEXT 270 /* crosses the 256-position pieces of attention */
#define SEED 20261121

/* The sanitizers look for bad accesses, which a third of the families show as well as all; they are ten times slower. */
#if defined(__SANITIZE_ADDRESS__)
#define STEP 3
#else
#define STEP 1
#endif

/* Nor does ref, one plain loop for each row, have much that could differ: it gets a third. */
static int32_t step_of(const char *isa)
{
    return strcmp(isa, "ref") == 0 ? 3 * STEP : STEP;
}

#define FAMILIES_MAX 15

struct family {
    const char *name;
    struct qr_model_config c;
};

static int32_t families(struct family out[FAMILIES_MAX])
{
    static const struct family named[] = {{.name = "llama with biases"}, {.name = "llama"}, {.name = "odd llama"},
                                          {.name = "mistral"},           {.name = "qwen2"}, {.name = "qwen3"},
                                          {.name = "qwen2-moe"},         {.name = "gemma2"}, {.name = "gemma3"},
                                          {.name = "stablelm"},          {.name = "gpt2"},  {.name = "olmo2"},
                                          {.name = "olmo3"},             {.name = "gpt-oss"}};
    static const enum qr_arch arch[] = {QR_ARCH_LLAMA, QR_ARCH_LLAMA, QR_ARCH_LLAMA, QR_ARCH_MISTRAL, QR_ARCH_QWEN2, QR_ARCH_QWEN3,
                                        QR_ARCH_QWEN2_MOE, QR_ARCH_GEMMA2, QR_ARCH_GEMMA3, QR_ARCH_STABLELM, QR_ARCH_GPT2,
                                        QR_ARCH_OLMO2, QR_ARCH_OLMO3, QR_ARCH_GPT_OSS};
    for (int i = 0; i < QR_COUNT(named); i++)
        out[i] = (struct family){named[i].name, qr_model_config_small(arch[i])};
    out[0].c.qkv_bias = out[0].c.out_bias = out[0].c.mlp_bias = out[0].c.tied_head = true;
    /* Widths that are no multiple of a vector or a tile, and heads wider than both. */
    out[2].c.n_layers = 1;
    out[2].c.n_embd = 203;
    out[2].c.n_heads = 3;
    out[2].c.n_kv_heads = 1;
    out[2].c.head_dim = 72;
    out[2].c.n_ffn = 519;
    out[2].c.n_vocab = 301;
    out[3].c.window = 37;
    out[4].c.window = 100;
    out[4].c.window_first_layer = 1;
    return QR_COUNT(named);
}

static void expect_same(const float *a, const float *b, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (memcmp(&a[i], &b[i], sizeof *a) != 0)
            cr_assert_fail("%s: number %zu is %.9g, alone it is %.9g", what, i, (double)b[i], (double)a[i]);
}

static void check_chunks(struct rig *r, const int32_t *ids, const float *want, struct qr_rng *rng, const char *what)
{
    static const int32_t chunks[] = {1, 23, 255};
    char label[200];
    for (int i = 0; i < QR_COUNT(chunks); i++) {
        struct rig_seq s = rig_seq_new(r, 0, rng);
        float *got = rig_prompt(r, &s, ids, N_TEXT, chunks[i]);
        snprintf(label, sizeof label, "%s: chunks of %d, shuffled pages", what, chunks[i]);
        expect_same(want, got, (size_t)N_TEXT * (size_t)rig_vocab(r), label);
        qr_free(got);
        rig_seq_free(&s);
    }
}

#define N_SEQS 6

/* Sequences that come and go at random, prompts and single tokens mixed in one step; each must get what it gets alone. */
static void check_batches(struct rig *r, const int32_t *ids, struct qr_rng *rng, const char *what)
{
    const size_t v = (size_t)rig_vocab(r);
    struct rig_seq s[N_SEQS];
    float *alone[N_SEQS];
    int32_t len[N_SEQS], n_left = N_SEQS, n_steps = 0;
    for (int32_t i = 0; i < N_SEQS; i++) {
        len[i] = 20 + (int32_t)qr_rng_below(rng, 80);
        s[i] = rig_seq_new(r, i * 8, NULL);
        alone[i] = rig_prompt(r, &s[i], ids + i * 33, len[i], len[i]);
        s[i].n_done = 0;
    }
    memset(r->kv_mem, 0xff, (size_t)r->kv.n_blocks * qr_kv_block_bytes(&r->kv));
    for (; n_left > 0; n_steps++) {
        struct rig_item item[N_SEQS];
        int32_t who[N_SEQS], n = 0;
        for (int32_t i = 0; i < N_SEQS; i++) {
            int32_t left = len[i] - s[i].n_done, chunk = qr_rng_below(rng, 2) ? 1 : 1 + (int32_t)qr_rng_below(rng, 30);
            if (left == 0 || qr_rng_below(rng, 3) == 0)
                continue;
            chunk = chunk < left ? chunk : left;
            n_left -= chunk == left;
            item[n] = (struct rig_item){&s[i], ids + i * 33 + s[i].n_done, chunk, RIG_LAST};
            who[n++] = i;
        }
        float *got = n ? rig_step(r, item, n) : NULL;
        for (int32_t j = 0; j < n; j++)
            expect_same(alone[who[j]] + (size_t)(s[who[j]].n_done - 1) * v, got + (size_t)j * v, v, what);
        qr_free(got);
    }
    cr_expect_gt(n_steps, 5);
    for (int32_t i = 0; i < N_SEQS; i++) {
        qr_free(alone[i]);
        rig_seq_free(&s[i]);
    }
}

static float *run_with(const char *dir, struct rig_options o, const int32_t *ids)
{
    struct rig r;
    rig_open(&r, dir, o);
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *all = rig_prompt(&r, &s, ids, N_TEXT, N_TEXT);
    rig_seq_free(&s);
    rig_close(&r);
    return all;
}

static void check_family(const struct family *f, const char *isa, const struct rig_options *options, struct qr_rng *rng)
{
    struct temp_model t = temp_model_make(&f->c, QR_F32);
    int32_t *ids = random_ids(rng, N_TEXT, f->c.n_vocab);
    const size_t n = (size_t)N_TEXT * (size_t)f->c.n_vocab;
    char what[128];
    struct rig_options o = *options;
    o.isa = isa;
    o.n_threads = 1;
    snprintf(what, sizeof what, "%s %s %s%s, quantize %d", f->name, isa, o.compute == QR_COMPUTE_F32 ? "f32" : "bf16",
             o.kv_cache == QR_KV_CACHE_INT8 ? ", int8 cache" : "", (int)o.quantize);
    float *want = run_with(t.dir, o, ids);
    struct rig r;
    o.n_threads = 2;
    rig_open(&r, t.dir, o);
    struct rig_seq s = rig_seq_new(&r, 0, NULL);
    float *got = rig_prompt(&r, &s, ids, N_TEXT, N_TEXT);
    expect_same(want, got, n, "two threads");
    check_chunks(&r, ids, want, rng, what);
    check_batches(&r, ids, rng, what);
    qr_free(got);
    rig_seq_free(&s);
    rig_close(&r);
    o.block_tokens = 64;
    o.n_blocks = 16;
    got = run_with(t.dir, o, ids);
    expect_same(want, got, n, "pages of 64 tokens");
    qr_free(got);
    qr_free(want);
    qr_free(ids);
    temp_model_remove(&t);
}

static void check_level(const char *isa)
{
    struct family f[FAMILIES_MAX];
    struct qr_rng rng = {.seed = SEED};
    printf("%s: seed %d\n", isa, SEED);
    for (int32_t j = 0, n = families(f); j < n; j += step_of(isa)) {
        const struct rig_options kinds[] = {{.compute = QR_COMPUTE_F32}, {.compute = QR_COMPUTE_BF16},
                                            {.compute = j % 2 ? QR_COMPUTE_F32 : QR_COMPUTE_BF16, .kv_cache = QR_KV_CACHE_INT8}};
        const bool later = f[j].c.arch >= QR_ARCH_GEMMA2; /* they differ from the others in few places: one kind each, and one level for the sanitizers */
        if (later && STEP > 1 && strcmp(isa, "avx2") != 0)
            continue;
        for (int i = later ? j % QR_COUNT(kinds) : j / 2 % STEP; i < QR_COUNT(kinds); i += later ? QR_COUNT(kinds) : STEP)
            check_family(&f[j], isa, &kinds[i], &rng);
    }
}

/* Each format with a family of its own, the odd widths with two of them. */
static void check_formats(const char *isa)
{
    struct family f[FAMILIES_MAX];
    struct qr_rng rng = {.seed = SEED + 1};
    const int32_t n = families(f);
    printf("%s: seed %d\n", isa, SEED + 1);
    for (int32_t i = QR_QUANTIZE_INT8; i < QR_QUANTIZE_COUNT; i += step_of(isa)) {
        const struct rig_options o = {.quantize = (enum qr_quantize)i, .kv_cache = i % 3 ? QR_KV_CACHE_AUTO : QR_KV_CACHE_INT8};
        check_family(&f[i % n], isa, &o, &rng);
    }
}

Test(equal, chunked_paged_batched_and_threaded_runs_equal_the_whole_run_on_every_level)
{
    const char *names[8];
    for (int32_t i = 0, n = levels(names); i < n; i++)
        check_level(names[i]);
}

Test(equal, so_they_do_with_every_format_of_quantized_weights)
{
    const char *names[8];
    for (int32_t i = 0, n = levels(names); i < n; i++)
        check_formats(names[i]);
}
