/* The plan of a model against what its opening takes from the allocator, byte by byte. */
#include "base/file.h"
#include "rig.h"

/* An allocator that counts what goes through it: sizes by address. */
#define LIVE_MAX 64
static struct account {
    struct {
        void *at;
        size_t n;
    } live[LIVE_MAX];
    size_t now, peak;
    void *(*alloc)(size_t n);
    void (*free)(void *p);
} account;

static void *counted_alloc(size_t n)
{
    void *p = account.alloc(n);
    for (int i = 0; i < LIVE_MAX; i++)
        if (!account.live[i].at) {
            account.live[i].at = p;
            account.live[i].n = n;
            account.now += n;
            account.peak = account.now > account.peak ? account.now : account.peak;
            return p;
        }
    cr_assert(false, "more blocks than the account has room for");
    return NULL;
}

static void counted_free(void *p)
{
    for (int i = 0; i < LIVE_MAX && p; i++)
        if (account.live[i].at == p) {
            account.now -= account.live[i].n;
            account.live[i].at = NULL;
        }
    account.free(p);
}

struct measured {
    struct qr_model_plan plan;
    size_t weights, peak, kv_block;
};

static struct measured measure(const char *dir, const struct qr_model_options *o)
{
    struct measured m;
    struct qr_backend *be;
    struct qr_model *model;
    struct qr_err err = {0};
    const struct qr_backend_options bo = {.device = "cpu", .n_threads = 2, .step_rows_max = 32};
    cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
    struct qr_mem_ops counted = *be->mem;
    account = (struct account){.alloc = be->mem->alloc, .free = be->mem->free};
    counted.alloc = counted_alloc;
    counted.free = counted_free;
    be->mem = &counted;
    cr_assert_eq(qr_model_plan(&m.plan, dir, be, o, 32, 4, &err), 0, "%s", err.msg);
    cr_expect_eq(account.peak, 0, "a plan takes no memory of the kernels");
    cr_assert_eq(qr_model_open(&model, dir, be, o, &err), 0, "%s", err.msg);
    m.weights = account.now;
    m.peak = account.peak;
    const struct qr_kv_view kv = qr_model_kv_view(model, NULL, 1, 16);
    m.kv_block = qr_kv_block_bytes(&kv);
    cr_expect_eq(m.plan.act_bytes, qr_model_act_bytes(model, 32, 4));
    cr_expect_eq((int64_t)(m.plan.weight_bytes + m.plan.table_bytes), qr_model_weight_bytes(model));
    qr_model_close(model);
    cr_expect_eq(account.now, 0, "%zu bytes are still there after closing", account.now);
    qr_backend_close(be);
    return m;
}

/* Packed weights are allocated as planned; the embedding's rows are the file's, or a copy of these (GGUF blocks, unaligned rows). What is read by way of
 * copies takes at most the 8 MiB of a piece more, for a moment. */
static void expect_as_planned(const struct measured *m, const char *what)
{
    const size_t least = m->plan.weight_bytes, most = m->plan.weight_bytes + m->plan.table_bytes;
    cr_expect(m->weights == least || m->weights == most, "%s: %zu bytes allocated, planned %zu and %zu", what, m->weights, least, m->plan.table_bytes);
    cr_expect_leq(m->peak, most + ((size_t)8 << 20), "%s", what);
    cr_expect_eq(m->kv_block, 16 * m->plan.kv_token_bytes, "%s", what);
}

Test(plan, weights_cache_and_step_of_every_type_take_what_was_planned)
{
    static const enum qr_dtype stores[] = {QR_F32, QR_BF16, QR_F16};
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    for (int s = 0; s < QR_COUNT(stores); s++) {
        struct temp_model t = temp_model_make(&c, stores[s]);
        for (int q = QR_QUANTIZE_NONE; q < QR_QUANTIZE_COUNT; q++)
            for (int kv = QR_KV_CACHE_AUTO; kv <= QR_KV_CACHE_INT8; kv++) {
                char what[80];
                const struct qr_model_options o = {.quantize = (enum qr_quantize)q, .kv_cache = (enum qr_kv_cache)kv};
                snprintf(what, sizeof what, "stored as %s, quantize %d, cache %d", qr_dtype_name(stores[s]), q, kv);
                const struct measured m = measure(t.dir, &o);
                expect_as_planned(&m, what);
            }
        temp_model_remove(&t);
    }
}

/* A tied head shares no rows with the embedding once it is rounded: what a refusal recommends is what the plan of it says. */
Test(plan, what_other_formats_would_take_is_what_their_own_plans_say)
{
    static const enum qr_quantize rounded[] = {QR_QUANTIZE_INT8, QR_QUANTIZE_INT4};
    for (int tied = 0; tied < 2; tied++) {
        struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
        c.tied_head = tied;
        struct temp_model t = temp_model_make(&c, QR_BF16);
        const struct measured m = measure(t.dir, &(struct qr_model_options){.quantize = QR_QUANTIZE_NONE});
        const size_t said[] = {m.plan.int8_bytes, m.plan.int4_bytes};
        for (int i = 0; i < QR_COUNT(rounded); i++) {
            const struct measured r = measure(t.dir, &(struct qr_model_options){.quantize = rounded[i]});
            cr_expect_eq(said[i], r.plan.weight_bytes + r.plan.table_bytes, "tied %d, format %d: %zu, its own plan says %zu and %zu", tied, i, said[i],
                         r.plan.weight_bytes, r.plan.table_bytes);
        }
        temp_model_remove(&t);
    }
}

Test(plan, a_gguf_file_takes_what_was_planned)
{
    const char *data = getenv("QUIRE_DATA");
    char path[1024];
    snprintf(path, sizeof path, "%s/models/gguf/stories260K-f32.gguf", data ? data : "");
    if (!data || access(path, R_OK) != 0)
        cr_skip_test("no QUIRE_DATA with models/gguf");
    for (int q = QR_QUANTIZE_NONE; q <= QR_QUANTIZE_INT8; q++) {
        const struct qr_model_options o = {.quantize = (enum qr_quantize)q};
        const struct measured m = measure(path, &o);
        expect_as_planned(&m, "stories260K-f32.gguf");
    }
}

static int refuse(void *user, const struct qr_model_plan *plan, struct qr_err *err)
{
    *(size_t *)user = plan->weight_bytes;
    return qr_err_set(err, QR_E_NO_ROOM, "no room");
}

Test(plan, who_is_asked_before_loading_may_refuse_and_nothing_is_loaded)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    struct temp_model t = temp_model_make(&c, QR_BF16);
    struct qr_backend *be;
    struct qr_model *m;
    struct qr_err err = {0};
    size_t asked = 0;
    const struct qr_backend_options bo = {.device = "cpu", .n_threads = 1, .step_rows_max = 8};
    const struct qr_model_options o = {.admit = refuse, .admit_user = &asked, .plan_tokens = 8, .plan_logits = 1};
    cr_assert_eq(qr_backend_open(&be, &bo, &err), 0, "%s", err.msg);
    struct qr_mem_ops counted = *be->mem;
    account = (struct account){.alloc = be->mem->alloc, .free = be->mem->free};
    counted.alloc = counted_alloc;
    counted.free = counted_free;
    be->mem = &counted;
    cr_expect_eq(qr_model_open(&m, t.dir, be, &o, &err), QR_E_NO_ROOM);
    cr_expect(strstr(err.msg, "no room") && asked > 0 && account.peak == 0, "%s, %zu bytes", err.msg, account.peak);
    qr_backend_close(be);
    temp_model_remove(&t);
}
