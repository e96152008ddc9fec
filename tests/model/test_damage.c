/* Damaged model directories: every one is refused with a message or opens and computes; none crashes (run under asan and ubsan). */
#include <fcntl.h>

#include "base/log.h"
#include "tests/full.h"
#include "tests/model/rig.h"

#define SEED 4711

struct victim {
    struct temp_model t;
    struct qr_backend *be;
    uint8_t *bytes; /* the good contents of the file under attack */
    size_t n_bytes;
    int fd;
    int32_t n_opened, n_refused;
};

/* A model as small as can be: 11 KB of weights in f16 with biases, a window and scaled rotary embedding. */
static struct victim victim_new(enum qr_arch arch, const char *file)
{
    struct victim v = {.n_opened = 0};
    struct qr_err err = {0};
    struct qr_model_config c = qr_model_config_small(arch);
    const struct qr_backend_options o = {.isa = "ref", .n_threads = 1, .step_rows_max = 8};
    char path[160];
    c.n_embd = 16;
    c.n_heads = 2;
    c.n_kv_heads = 1;
    c.head_dim = 8;
    c.n_ffn = 24;
    c.n_vocab = 32;
    c.rope.type = QR_ROPE_LLAMA3;
    c.rope.factor = 8;
    c.rope.low_freq_factor = 1;
    c.rope.high_freq_factor = 4;
    c.rope.original_ctx = 256;
    c.window = arch == QR_ARCH_LLAMA ? 0 : 64;
    v.t = temp_model_make(&c, QR_F16);
    cr_assert_eq(qr_backend_open(&v.be, &o, &err), 0, "%s", err.msg);
    snprintf(path, sizeof path, "%s/generation_config.json", v.t.dir);
    FILE *f = fopen(path, "wb");
    fputs("{\"eos_token_id\": [2, 3], \"temperature\": 0.5, \"top_k\": 7, \"top_p\": 0.9}", f);
    fclose(f);
    snprintf(path, sizeof path, "%s/%s", v.t.dir, file);
    v.fd = open(path, O_RDWR | O_CLOEXEC);
    v.n_bytes = (size_t)lseek(v.fd, 0, SEEK_END);
    v.bytes = qr_alloc(v.n_bytes, 1);
    cr_assert_eq(pread(v.fd, v.bytes, v.n_bytes, 0), (ssize_t)v.n_bytes);
    qr_log_set_level(QR_LOG_ERROR); /* tensors that a damaged configuration leaves unused are warned about */
    return v;
}

static void victim_free(struct victim *v)
{
    char path[160];
    snprintf(path, sizeof path, "%s/generation_config.json", v->t.dir);
    unlink(path);
    close(v->fd);
    qr_free(v->bytes);
    qr_backend_close(v->be);
    temp_model_remove(&v->t);
}

/* One token through a model that opened. */
static void compute(struct qr_backend *be, const struct qr_model *m)
{
    struct qr_kv_view kv = qr_model_kv_view(m, NULL, 1, 16);
    size_t n_act = qr_model_act_bytes(m, 1, 1);
    void *mem = be->mem->alloc(qr_kv_block_bytes(&kv)), *act_mem = be->mem->alloc(n_act);
    struct qr_arena act;
    struct qr_exec x;
    const int32_t zero = 0, one = 1, row_start[2] = {0, 1};
    const struct qr_batch b = {.n_tokens = 1, .n_seqs = 1, .n_logits = 1, .block_tokens = 16, .table_stride = 1, .ids = &zero, .pos = &zero,
                               .slot = &zero, .row_start = row_start, .ctx_len = &one, .block_table = &zero, .logit_row = &zero};
    kv.base = mem;
    qr_arena_init_fixed(&act, act_mem, n_act);
    qr_exec_init(&x, m, be, &act, &kv);
    qr_model_forward(&x, &b);
    be->mem->free(mem);
    be->mem->free(act_mem);
}

static bool attack(struct victim *v)
{
    struct qr_model *m = NULL;
    struct qr_err err = {0};
    const struct qr_model_options o = {.compute = QR_COMPUTE_AUTO};
    int rc = qr_model_open(&m, v->t.dir, v->be, &o, &err);
    if (rc) {
        cr_assert(rc < 0 && err.code == (enum qr_code)rc && err.msg[0] != 0);
        v->n_refused++;
        return false;
    }
    compute(v->be, m);
    qr_model_close(m);
    v->n_opened++;
    return true;
}

/* Flips one to three bits of the first n_target bytes, and puts them back. */
static void flip_and_attack(struct victim *v, struct qr_rng *rng, size_t n_target)
{
    size_t at[3];
    int32_t n = 1 + (int32_t)qr_rng_below(rng, 3);
    for (int32_t i = 0; i < n; i++) {
        at[i] = qr_rng_below(rng, (uint32_t)n_target);
        uint8_t b;
        cr_assert_eq(pread(v->fd, &b, 1, (off_t)at[i]), 1);
        b = (uint8_t)(b ^ 1u << qr_rng_below(rng, 8));
        cr_assert_eq(pwrite(v->fd, &b, 1, (off_t)at[i]), 1);
    }
    attack(v);
    for (int32_t i = 0; i < n; i++)
        cr_assert_eq(pwrite(v->fd, v->bytes + at[i], 1, (off_t)at[i]), 1);
}

static size_t header_end(const struct victim *v)
{
    uint64_t n;
    memcpy(&n, v->bytes, sizeof n);
    return 8 + (size_t)n;
}

Test(damage, weights_cut_at_every_header_byte_and_at_random_data_bytes_are_refused)
{
    struct victim v = victim_new(QR_ARCH_QWEN2, "model.safetensors");
    struct qr_rng rng = {.seed = SEED};
    cr_assert(attack(&v));
    size_t end = header_end(&v);
    for (size_t n = v.n_bytes - 1;; n -= n > end + 64 ? 1 + qr_rng_below(&rng, 60) : 1) {
        cr_assert_eq(ftruncate(v.fd, (off_t)n), 0);
        cr_assert(!attack(&v), "a file cut to %zu bytes opens", n);
        if (n == 0)
            break;
    }
    printf("seed %d: %zu header bytes, %d refused\n", SEED, end, v.n_refused);
    victim_free(&v);
}

Test(damage, configuration_cut_at_every_byte_is_refused)
{
    struct victim v = victim_new(QR_ARCH_LLAMA, "config.json");
    for (size_t n = v.n_bytes - 2;; n--) { /* the last byte is a line feed */
        cr_assert_eq(ftruncate(v.fd, (off_t)n), 0);
        cr_assert(!attack(&v), "a configuration cut to %zu bytes opens", n);
        if (n == 0)
            break;
    }
    victim_free(&v);
}

static void flip_many(enum qr_arch arch, const char *file, bool header_only)
{
    struct victim v = victim_new(arch, file);
    struct qr_rng rng = {.seed = SEED + (uint64_t)arch};
    cr_assert(attack(&v));
    const size_t n_target = header_only ? header_end(&v) : v.n_bytes;
    const int32_t n_flips = test_cases(10000);
    for (int32_t i = 0; i < n_flips; i++)
        flip_and_attack(&v, &rng, n_target);
    printf("%s, seed %d: %d opened, %d refused\n", file, SEED + (int)arch, v.n_opened, v.n_refused);
    cr_expect_eq(v.n_opened + v.n_refused, n_flips + 1);
    cr_expect(attack(&v), "the restored model does not open");
    victim_free(&v);
}

Test(damage, bit_flips_in_the_header_refuse_or_open)
{
    flip_many(QR_ARCH_QWEN2, "model.safetensors", true);
}

Test(damage, bit_flips_in_the_configuration_refuse_or_open)
{
    flip_many(QR_ARCH_QWEN2, "config.json", false);
    flip_many(QR_ARCH_MISTRAL, "generation_config.json", false);
}
