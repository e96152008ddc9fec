/* Model files with one thing wrong, through everything that opens a model: each opens or is refused with a message, soon, in little memory, without an
 * abort. */
#include <criterion/criterion.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "loader/families/family.h"
#include "loader/check/check.h"
#include "loader/config/hf_config.h"
#include "loader/write/make_model.h"
#include "loader/write/quantize.h"
#include "model/model.h"
#include "tests/full.h"
#include "tests/gguf_make.h"
#include "tests/lora_make.h"
#include "tests/lora_read.h"
#include "tests/soon.h"
#include "tests/temp.h"
#include "tokenizer/chat.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define SLOW 5
#define SANITIZED true /* memory is the sanitizer's */
#else
#define SLOW 1
#define SANITIZED false
#endif
#define LIMIT_US (TEST_SOON_US(100000) * SLOW) /* of the processor's time for one case, the best of three tries: 55 ms is the most seen */
#define LIMIT_BYTES (64 << 20)
#define SPARSE 8 /* times fewer cases, of files that are like others */
#define SEED 20261121

/* A directory under attack. */
struct victim {
    char dir[64], path[160];  /* path: what is opened: the directory, or a file in it */
    struct qr_backend *be;
    char *bytes;              /* the good contents of the file that is damaged */
    size_t n_bytes;
    char file[160];
    int (*open)(struct victim *v, struct qr_err *err); /* everything that reads of it */
    uint32_t sparse;          /* so many times fewer cases */
    int32_t n_opened, n_refused;
    int64_t slowest_us, bytes_before;
    char slowest[160];
};

/* Of the cases every so many, drawn: all of them take two minutes (QUIRE_FULL=1). */
static uint32_t case_step(void)
{
    return full_size() ? 1 : SANITIZED ? 160 : 16;
}

static bool passed_over(struct qr_rng *rng, const struct victim *v)
{
    return qr_rng_below(rng, case_step() == 1 ? 1 : case_step() * v->sparse) != 0;
}

/* The most memory that the process had since this was asked for before; where the system does not forget, since its beginning. */
static int64_t peak_bytes(void)
{
    const int64_t bytes = qr_memory_of_process("VmHWM");
    const int fd = open("/proc/self/clear_refs", O_WRONLY | O_CLOEXEC);
    if (fd >= 0) {
        const ssize_t n = write(fd, "5", 1);
        (void)n;
        close(fd);
    }
    return bytes;
}

static int64_t processor_us(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

/* In memory where there is such a place: hundreds of files are written. */
static void victim_dir(struct victim *v)
{
    temp_template(v->dir, access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", "bad");
    cr_assert_not_null(mkdtemp(v->dir));
}

static void put_file(const char *path, const void *bytes, size_t n)
{
    FILE *f = fopen(path, "wb");
    cr_assert_not_null(f, "%s", path);
    cr_assert_eq(fwrite(bytes, 1, n, f), n);
    fclose(f);
}

static void copy_file(const char *dir, const char *from, const char *name)
{
    struct qr_map_file f;
    struct qr_err err = {0};
    char path[400];
    snprintf(path, sizeof path, "%s/%s", from, name);
    cr_assert_eq(qr_map_file_open(&f, path, SIZE_MAX, &err), 0, "%s", err.msg);
    snprintf(path, sizeof path, "%s/%s", dir, name);
    put_file(path, f.data, f.n_bytes);
    qr_map_file_close(&f);
}

static int open_all(struct victim *v, struct qr_err *err);

static void victim_begin(struct victim *v, const char *file)
{
    v->open = v->open ? v->open : open_all;
    v->sparse = v->sparse ? v->sparse : 1;
    const struct qr_backend_options o = {.device = "cpu", .isa = "ref", .n_threads = 1, .step_rows_max = 8};
    struct qr_err err = {0};
    struct qr_map_file f;
    cr_assert_eq(qr_backend_open(&v->be, &o, &err), 0, "%s", err.msg);
    snprintf(v->file, sizeof v->file, "%.63s/%.80s", v->dir, file);
    cr_assert_eq(qr_map_file_open(&f, v->file, SIZE_MAX, &err), 0, "%s", err.msg);
    v->bytes = qr_alloc(f.n_bytes + 1, 1);
    memcpy(v->bytes, f.data, f.n_bytes);
    v->n_bytes = f.n_bytes;
    qr_map_file_close(&f);
    qr_log_set_level(QR_LOG_ERROR);
    peak_bytes();
    v->bytes_before = qr_memory_of_process("VmHWM");
}

/* Everything that reads of a model, as `quire check` and a server do. */
static int open_all(struct victim *v, struct qr_err *err)
{
    struct qr_check_options co = {0};
    struct qr_buf text = {0};
    struct qr_source *source;
    struct qr_tokenizer *tokenizer = NULL;
    struct qr_chat *chat = NULL;
    struct qr_model *m;
    const struct qr_model_options o = {.compute = QR_COMPUTE_AUTO};
    int check_rc = qr_model_check(&text, v->path, &co, err);
    cr_assert(check_rc == 0 || (err->code == (enum qr_code)check_rc && err->msg[0]));
    qr_buf_release(&text);
    int rc = qr_source_open(&source, v->path, err);
    if (rc)
        return rc;
    rc = qr_tokenizer_open_from(&tokenizer, source, err);
    rc = rc ? rc : qr_chat_open_from(&chat, source, err);
    qr_chat_close(chat);
    if (tokenizer)
        qr_tokenizer_close(tokenizer);
    qr_source_unref(source);
    struct qr_err other;
    int model_rc = qr_model_open(&m, v->path, v->be, &o, &other);
    if (model_rc == 0)
        qr_model_close(m);
    else
        *err = other;
    cr_assert((model_rc == 0) == (check_rc == 0), "check says %d, opening %d: %s", check_rc, model_rc, err->msg);
    return rc ? rc : model_rc;
}

static int attack(struct victim *v, const void *bytes, size_t n, const char *what)
{
    struct qr_err err = {0};
    put_file(v->file, bytes, n);
    int64_t began = processor_us();
    int rc = v->open(v, &err);
    int64_t us = processor_us() - began;
    for (int tries = 1; tries < 3 && us >= LIMIT_US; tries++) {
        struct qr_err again = {0};
        began = processor_us();
        cr_assert_eq(v->open(v, &again), rc, "%s", what);
        us = processor_us() - began < us ? processor_us() - began : us;
    }
    cr_assert(rc <= 0 && (rc == 0 || err.msg[0]), "%s", what);
    cr_expect_lt(us, LIMIT_US, "%s took %lld us: %s", what, (long long)us, err.msg);
    if (us > v->slowest_us) {
        v->slowest_us = us;
        snprintf(v->slowest, sizeof v->slowest, "%.150s", what);
    }
    v->n_opened += rc == 0;
    v->n_refused += rc != 0;
    return rc;
}

static void victim_end(struct victim *v, const char *what)
{
    char command[100];
    const int64_t bytes = peak_bytes() - v->bytes_before;
    printf("%s: %d refused, %d opened, slowest %.1f ms (%s), %lld KiB more at the peak\n", what, v->n_refused, v->n_opened, (double)v->slowest_us / 1e3,
           v->slowest, (long long)bytes >> 10);
    cr_expect(v->bytes_before > 0 && (SANITIZED || bytes <= LIMIT_BYTES), "%lld bytes", (long long)bytes);
    qr_free(v->bytes);
    qr_backend_close(v->be);
    snprintf(command, sizeof command, "rm -r '%s'", v->dir);
    cr_assert_eq(system(command), 0);
}

static struct qr_model_config small_config(void)
{
    struct qr_model_config c = qr_model_config_small(QR_ARCH_LLAMA);
    c.n_layers = 1;
    return c;
}

static struct victim directory(const char *file)
{
    struct victim v = {.sparse = 1};
    const struct qr_model_config c = small_config();
    const struct qr_make_options o = {.store = QR_BF16, .seed = 7};
    struct qr_err err = {0};
    char path[128];
    victim_dir(&v);
    cr_assert_eq(qr_model_make(v.dir, &c, &o, &err), 0, "%s", err.msg);
    copy_file(v.dir, QUIRE_SOURCE_DIR "/models/quire-tiny", "tokenizer.json");
    copy_file(v.dir, QUIRE_SOURCE_DIR "/models/quire-tiny", "tokenizer_config.json");
    snprintf(path, sizeof path, "%s/generation_config.json", v.dir);
    const char *generation = "{\"eos_token_id\": [2, 3], \"temperature\": 0.5, \"top_k\": 7, \"top_p\": 0.9, \"min_p\": 0.1, \"repetition_penalty\": 1.1}";
    put_file(path, generation, strlen(generation));
    snprintf(v.path, sizeof v.path, "%s", v.dir);
    victim_begin(&v, file);
    return v;
}

/* ---- JSON ---- */

/* `n` of something in place of bytes [at, at + len) of the text. */
static int attack_text(struct victim *v, const char *text, size_t text_len, size_t prefix, size_t at, size_t len, const char *with, const char *what)
{
    struct qr_buf b = {0};
    char title[160];
    uint64_t n;
    qr_buf_put(&b, text, prefix + at);
    qr_buf_put_str(&b, with);
    qr_buf_put(&b, text + prefix + at + len, text_len - prefix - at - len);
    if (prefix) { /* a safetensors file's length of the header */
        memcpy(&n, b.data, sizeof n);
        n += strlen(with);
        n -= len;
        memcpy(b.data, &n, sizeof n);
    }
    snprintf(title, sizeof title, "%s, byte %zu: %.40s in place of %.*s", what, at, with, (int)(len < 40 ? len : 40), text + prefix + at);
    int rc = attack(v, b.data, b.len, title);
    qr_buf_release(&b);
    return rc;
}

static const char *const wrong[] = {"0", "1", "-1", "2147483648", "4294967296", "9223372036854775808", "18446744073709551615", "1e308", "1e999", "0.5",
                                    "null", "true", "\"\"", "\"x\"", "[]", "[1]", "{}", "{\"a\": 1}", "[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[0]"};

/* Every `step`th value (and every scalar and key where step is 1) replaced by each of the wrong ones; JSON in bytes [prefix, prefix + len). */
static void attack_values(struct victim *v, size_t prefix, size_t len, size_t step)
{
    struct qr_json_token t;
    struct qr_err err = {0};
    struct qr_rng rng = {.seed = SEED};
    struct qr_json_scan *scan = qr_json_scan_new(v->bytes + prefix, len, &qr_json_limits_file);
    size_t n = 0;
    while (qr_json_next(scan, &t, &err) == 0 && t.event != QR_JSON_DONE) {
        const bool quoted = t.event == QR_JSON_STRING || t.event == QR_JSON_KEY;
        if (t.event <= QR_JSON_ARRAY_END || n++ % step != 0)
            continue;
        const size_t at = (size_t)(t.text - v->bytes) - prefix - quoted, n_text = t.len + 2 * quoted;
        for (int i = 0; i < QR_COUNT(wrong); i++)
            if (!passed_over(&rng, v))
                attack_text(v, v->bytes, v->n_bytes, prefix, at, n_text, wrong[i], strrchr(v->file, '/') + 1);
    }
    cr_expect_eq(err.msg[0], 0, "%s", err.msg);
    qr_json_scan_free(scan);
}

/* Cut everywhere in the first n bytes, and one bit flipped everywhere. */
static void attack_bytes(struct victim *v, size_t n, size_t step)
{
    struct qr_rng rng = {.seed = SEED};
    char what[80];
    for (size_t i = 0; i < n; i += step) {
        if (passed_over(&rng, v))
            continue;
        snprintf(what, sizeof what, "cut at byte %zu", i);
        cr_expect_lt(attack(v, v->bytes, i, what), 0, "%s", what);
        snprintf(what, sizeof what, "a bit of byte %zu", i);
        const char was = v->bytes[i];
        v->bytes[i] = (char)(was ^ (char)(1u << qr_rng_below(&rng, 8)));
        attack(v, v->bytes, v->n_bytes, what);
        v->bytes[i] = was;
    }
}

Test(bad_files, of_a_directory_every_value_of_every_json_file_is_replaced_by_wrong_ones)
{
    static const struct {
        const char *file;
        size_t step, cut; /* of values, of bytes */
    } files[] = {{"config.json", 1, 3}, {"generation_config.json", 1, 3}, {"tokenizer_config.json", 2, 41}, {"tokenizer.json", 241, 3001}};
    for (int i = 0; i < QR_COUNT(files); i++) {
        struct victim v = directory(files[i].file);
        cr_expect_eq(attack(&v, v.bytes, v.n_bytes, "whole"), 0);
        attack_values(&v, 0, v.n_bytes, files[i].step);
        attack_bytes(&v, v.n_bytes - 2, files[i].cut);
        victim_end(&v, files[i].file);
    }
}

Test(bad_files, nesting_without_end_is_refused)
{
    static const char *const files[] = {"config.json", "generation_config.json", "tokenizer_config.json", "tokenizer.json"};
    const size_t n = 100000;
    for (int i = 0; i < QR_COUNT(files); i++) {
        struct victim v = directory(files[i]);
        char *deep = qr_alloc(n + 6, 1);
        memset(deep, '[', n);
        memcpy(deep, "{\"a\":", 5);
        cr_expect_lt(attack(&v, deep, n, files[i]), 0);
        qr_free(deep);
        victim_end(&v, files[i]);
    }
}

/* ---- safetensors ---- */

/* Of a safetensors file: every value of its header, its length, cuts and bits. */
static void attack_header(struct victim *v, uint32_t sparse)
{
    static const uint64_t lengths[] = {0, 1, UINT64_C(1) << 31, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX};
    uint64_t n;
    v->sparse = sparse;
    memcpy(&n, v->bytes, sizeof n);
    cr_expect_eq(attack(v, v->bytes, v->n_bytes, "whole"), 0);
    attack_values(v, sizeof n, (size_t)n, 2);
    attack_bytes(v, sizeof n + (size_t)n, 7);
    for (int i = 0; i < QR_COUNT(lengths); i++) {
        memcpy(v->bytes, &lengths[i], sizeof n);
        cr_expect_lt(attack(v, v->bytes, v->n_bytes, "length of the header"), 0);
    }
}

Test(bad_files, of_a_safetensors_header_every_number_and_byte_is_damaged)
{
    struct victim v = directory("model.safetensors");
    attack_header(&v, 1);
    victim_end(&v, "model.safetensors");
}

static struct victim sharded(const char *file)
{
    struct victim v = {.sparse = 1};
    const struct qr_model_config c = small_config();
    const struct qr_make_options o = {.store = QR_BF16, .seed = 7, .n_shards = 2};
    struct qr_err err = {0};
    victim_dir(&v);
    cr_assert_eq(qr_model_make(v.dir, &c, &o, &err), 0, "%s", err.msg);
    copy_file(v.dir, QUIRE_SOURCE_DIR "/models/quire-tiny", "tokenizer.json");
    snprintf(v.path, sizeof v.path, "%s", v.dir);
    victim_begin(&v, file);
    return v;
}

Test(bad_files, of_an_index_and_a_file_that_it_names_every_value_is_replaced_by_wrong_ones)
{
    struct victim v = sharded("model.safetensors.index.json");
    attack_values(&v, 0, v.n_bytes, 3);
    attack_text(&v, v.bytes, v.n_bytes, 0, 0, 0, "[", "index");
    victim_end(&v, "model.safetensors.index.json");
    v = sharded("model-00002-of-00002.safetensors");
    attack_header(&v, SPARSE);
    victim_end(&v, "model-00002-of-00002.safetensors");
}

/* The small model with its matrices in groups of 4 bits, each of which is three tensors. */
static struct victim quantized(const char *file)
{
    struct victim v = {.sparse = 1};
    const struct qr_model_config c = small_config();
    const struct qr_make_options o = {.store = QR_BF16, .seed = 7};
    const struct qr_quantize_options q = {.type = QR_ROUNDING_INT4, .group = 32};
    struct qr_quantize_report report;
    struct qr_tensor_files *st;
    struct qr_buf config = {0}, with = {0};
    struct qr_err err = {0};
    char path[128];
    victim_dir(&v);
    cr_assert_eq(qr_model_make(v.dir, &c, &o, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_safetensors_open(&st, v.dir, &err), 0, "%s", err.msg);
    snprintf(path, sizeof path, "%s/model.safetensors", v.dir);
    cr_assert_eq(unlink(path), 0);
    cr_assert_eq(qr_quantize_write(path, st, &c, &q, &report, &err), 0, "%s", err.msg);
    qr_tensor_files_close(st);
    qr_hf_config_write(&config, &c);
    cr_assert_eq(qr_quantize_config(&with, config.data, config.len, &c, &q, &err), 0, "%s", err.msg);
    snprintf(path, sizeof path, "%s/config.json", v.dir);
    put_file(path, with.data, with.len);
    qr_buf_release(&config);
    qr_buf_release(&with);
    copy_file(v.dir, QUIRE_SOURCE_DIR "/models/quire-tiny", "tokenizer.json");
    snprintf(v.path, sizeof v.path, "%s", v.dir);
    victim_begin(&v, file);
    return v;
}

Test(bad_files, of_a_quantized_checkpoint_every_number_is_damaged)
{
    struct victim v = quantized("model.safetensors");
    attack_header(&v, SPARSE);
    victim_end(&v, "quantized, model.safetensors");
    v = quantized("config.json");
    v.sparse = 2;
    attack_values(&v, 0, v.n_bytes, 1);
    victim_end(&v, "quantized, config.json");
}

/* ---- adapters ---- */

/* As a server takes an adapter: all pairs of the small model are looked for, and every number of them is read. */
static int open_adapter(struct victim *v, struct qr_err *err)
{
    const struct qr_model_config c = small_config();
    struct qr_lora_file *f;
    int rc = qr_lora_file_open(&f, v->path, NULL, (size_t)1 << 30, err);
    if (rc)
        return rc;
    rc = lora_read_all(f, &c, err);
    qr_lora_file_close(f);
    return rc;
}

static struct victim adapter(const char *file)
{
    struct victim v = {.open = open_adapter};
    const struct qr_model_config c = small_config();
    victim_dir(&v);
    lora_make(v.dir, &c, &(struct lora_make){.rank = 4, .alpha = 8, .only = "self_attn",
                                             .settings = ", \"target_modules\": [\"q_proj\"], \"use_rslora\": false"});
    snprintf(v.path, sizeof v.path, "%s", v.dir);
    victim_begin(&v, file);
    return v;
}

Test(bad_files, of_an_adapter_every_number_is_damaged)
{
    struct victim v = adapter(QR_LORA_WEIGHTS);
    attack_header(&v, 1);
    victim_end(&v, QR_LORA_WEIGHTS);
    v = adapter(QR_LORA_CONFIG);
    attack_values(&v, 0, v.n_bytes, 1);
    attack_bytes(&v, v.n_bytes - 2, 1);
    victim_end(&v, QR_LORA_CONFIG);
}

/* ---- GGUF ---- */

#define EMBD 32
#define VOCAB (3 + 256 + 5)

static void put_vocab(struct qr_buf *b)
{
    static const char *const tail[] = {"\xe2\x96\x81", "a", "b", "ab", "\xe2\x96\x81" "a"};
    gguf_key_text(b, "tokenizer.ggml.model", "llama");
    gguf_key_array(b, "tokenizer.ggml.tokens", QR_GGUF_STRING, VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        char text[8];
        snprintf(text, sizeof text, i == 0 ? "<unk>" : i == 1 ? "<s>" : i == 2 ? "</s>" : "<0x%02X>", (unsigned)(i - 3));
        gguf_text(b, i < 259 ? text : tail[i - 259]);
    }
    gguf_key_array(b, "tokenizer.ggml.scores", QR_GGUF_F32, VOCAB);
    for (int i = 0; i < VOCAB; i++) {
        const float score = i < 259 ? 0.0f : (float)(258 - i);
        qr_buf_put(b, &score, sizeof score);
    }
    gguf_key_array(b, "tokenizer.ggml.token_type", QR_GGUF_I32, VOCAB);
    for (uint32_t i = 0; i < VOCAB; i++)
        gguf_u32(b, i == 0 ? 2 : i < 3 ? 3 : i < 259 ? 6 : 1);
    gguf_key_u32(b, "tokenizer.ggml.bos_token_id", 1);
    gguf_key_u32(b, "tokenizer.ggml.eos_token_id", 2);
    gguf_key_bool(b, "tokenizer.ggml.add_bos_token", 1);
}

/* Which of the forms of one model. */
struct form {
    const char *name, *file;
    uint32_t version;
    bool experts;
    int part;        /* of two, 0: the whole */
    uint32_t sparse;
};

static const struct form forms[] = {{"GGUF", "model.gguf", 3, false, 0, 1},         {"GGUF 2", "model.gguf", 2, false, 0, SPARSE},
                                    {"GGUF with experts", "model.gguf", 3, true, 0, SPARSE},
                                    {"GGUF, first part", "m-00001-of-00002.gguf", 3, false, 1, SPARSE},
                                    {"GGUF, second part", "m-00002-of-00002.gguf", 3, false, 2, 1}};

/* Between vocab_at and vocab_end are many values of one kind; end: of the header. */
struct gguf_made {
    struct qr_buf b; /* owned */
    size_t vocab_at, vocab_end, end;
};

struct made_tensor {
    const char *name;
    uint64_t dim[3];
    uint32_t type;
};

static const struct made_tensor outside[] = {{"token_embd.weight", {EMBD, VOCAB}, QR_GGUF_T_Q8_0}, {"output_norm.weight", {EMBD}, QR_GGUF_T_F32},
                                             {"blk.0.attn_norm.weight", {EMBD}, QR_GGUF_T_F32}, {"blk.0.attn_q.weight", {EMBD, EMBD}, QR_GGUF_T_Q4_0},
                                             {"blk.0.attn_k.weight", {EMBD, EMBD}, QR_GGUF_T_Q8_0}, {"blk.0.attn_v.weight", {EMBD, EMBD}, QR_GGUF_T_F16},
                                             {"blk.0.attn_output.weight", {EMBD, EMBD}, QR_GGUF_T_BF16}, {"blk.0.ffn_norm.weight", {EMBD}, QR_GGUF_T_F32}},
                                plain[] = {{"blk.0.ffn_gate.weight", {EMBD, 64}, QR_GGUF_T_Q5_1}, {"blk.0.ffn_up.weight", {EMBD, 64}, QR_GGUF_T_Q4_1},
                                           {"blk.0.ffn_down.weight", {64, EMBD}, QR_GGUF_T_IQ4_NL}},
                                experts[] = {{"blk.0.ffn_gate_inp.weight", {EMBD, 2}, QR_GGUF_T_F32},
                                             {"blk.0.ffn_gate_exps.weight", {EMBD, 64, 2}, QR_GGUF_T_Q5_1},
                                             {"blk.0.ffn_up_exps.weight", {EMBD, 64, 2}, QR_GGUF_T_Q4_1},
                                             {"blk.0.ffn_down_exps.weight", {64, EMBD, 2}, QR_GGUF_T_IQ4_NL}};

static void put_tensors(struct qr_buf *b, const struct made_tensor *t, int n, uint64_t *at)
{
    for (int i = 0; i < n; i++) {
        const struct qr_gguf_layout *l = qr_gguf_layout(t[i].type);
        const int n_dims = t[i].dim[2] ? 3 : t[i].dim[1] ? 2 : 1;
        uint64_t count = 1;
        for (int k = 0; k < n_dims; k++)
            count *= t[i].dim[k];
        gguf_tensor(b, t[i].name, n_dims, t[i].dim, t[i].type, *at);
        *at = qr_align_up((size_t)(*at + count / (uint64_t)l->elements * (uint64_t)l->bytes), 32);
    }
}

static void put_keys(struct gguf_made *m, const struct form *f)
{
    struct qr_buf *b = &m->b;
    gguf_key_text(b, "general.architecture", "llama");
    gguf_key_u32(b, "general.alignment", 32);
    gguf_key_u32(b, "split.count", f->part ? 2 : 0);
    gguf_key_u32(b, "split.no", f->part ? (uint32_t)f->part - 1 : 0);
    if (f->part)
        gguf_key_u32(b, "split.tensors.count", QR_COUNT(outside) + QR_COUNT(plain));
    if (f->part == 2)
        return;
    gguf_key_u32(b, "llama.context_length", 64);
    gguf_key_u32(b, "llama.embedding_length", EMBD);
    gguf_key_u32(b, "llama.block_count", 1);
    gguf_key_u32(b, "llama.feed_forward_length", 64);
    gguf_key_u32(b, "llama.attention.head_count", 2);
    gguf_key_u32(b, "llama.attention.head_count_kv", 2);
    gguf_key_u32(b, "llama.expert_count", f->experts ? 2 : 0);
    gguf_key_u32(b, "llama.expert_used_count", f->experts ? 1 : 0);
    gguf_key_f32(b, "llama.attention.layer_norm_rms_epsilon", 1e-5f);
    gguf_key_f32(b, "llama.rope.freq_base", 10000);
    m->vocab_at = b->len + 400;
    put_vocab(b);
    m->vocab_end = b->len - 300;
}

/* A llama of one layer with a vocabulary of bytes. */
static struct gguf_made make_gguf(const struct form *f)
{
    struct gguf_made m = {.end = 0};
    uint64_t at = 0;
    const bool first = f->part != 2, second = f->part != 1;
    const uint64_t n_layer = f->experts ? QR_COUNT(experts) : QR_COUNT(plain);
    gguf_begin(&m.b, f->version, (first ? QR_COUNT(outside) : 0) + (second ? n_layer : 0), f->part == 2 ? 5 : f->part == 1 ? 22 : 21);
    put_keys(&m, f);
    if (first)
        put_tensors(&m.b, outside, QR_COUNT(outside), &at);
    if (second)
        put_tensors(&m.b, f->experts ? experts : plain, (int)n_layer, &at);
    m.end = m.b.len;
    gguf_align(&m.b, 32);
    for (uint64_t i = 0; i < at; i++)
        qr_buf_put_byte(&m.b, 0);
    return m;
}

/* Beside a part is the other one. */
static struct victim gguf_victim(struct gguf_made *m, const struct form *f)
{
    struct victim v = {.sparse = f->sparse};
    victim_dir(&v);
    for (int i = 0; i < QR_COUNT(forms); i++)
        if (&forms[i] == f || (f->part && forms[i].part)) {
            struct gguf_made one = make_gguf(&forms[i]);
            char path[160];
            snprintf(path, sizeof path, "%s/%s", v.dir, forms[i].file);
            put_file(path, one.b.data, one.b.len);
            if (&forms[i] == f) {
                *m = one;
                snprintf(v.path, sizeof v.path, "%s", f->part ? v.dir : path);
            }
            qr_buf_release(&one.b);
        }
    victim_begin(&v, f->file);
    return v;
}

/* At every byte of the header, so at every number of it, each value in 4 and in 8 bytes. The vocabulary's inside is of three kinds of values: some of it. */
static void attack_numbers(struct victim *v, const struct gguf_made *m)
{
    static const uint64_t values[] = {0, 1, 8, 9, UINT64_C(1) << 31, UINT64_C(1) << 32, UINT64_C(1) << 63, UINT64_MAX, UINT64_MAX >> 1};
    struct qr_rng rng = {.seed = SEED};
    for (size_t at = 4; at < m->end; at += at > m->vocab_at && at < m->vocab_end ? 97 : 1) {
        for (int k = 0; k < 2 * QR_COUNT(values); k++) {
            char saved[8], what[80];
            const size_t n = k % 2 ? 8 : 4;
            if (passed_over(&rng, v) || (k % 2 == 0 && (values[k / 2] == UINT64_C(1) << 32 || values[k / 2] == UINT64_C(1) << 63))) /* 4 bytes are zeros */
                continue;
            memcpy(saved, v->bytes + at, n);
            memcpy(v->bytes + at, &values[k / 2], n);
            snprintf(what, sizeof what, "%zu bytes at %zu: %llx", n, at, (unsigned long long)values[k / 2]);
            attack(v, v->bytes, v->n_bytes, what);
            memcpy(v->bytes + at, saved, n);
        }
    }
}

Test(bad_files, of_a_gguf_header_in_every_form_every_number_is_replaced_by_wrong_ones_and_it_is_cut_and_bits_flip)
{
    for (int i = 0; i < QR_COUNT(forms); i++) {
        struct gguf_made m;
        struct victim v = gguf_victim(&m, &forms[i]);
        cr_expect_eq(attack(&v, v.bytes, v.n_bytes, "whole"), 0);
        attack_numbers(&v, &m);
        attack_bytes(&v, m.end, 3);
        victim_end(&v, forms[i].name);
    }
}

/* An adapter of the small model's in one file. */
Test(bad_files, of_an_adapter_in_a_gguf_file_every_number_is_replaced_by_wrong_ones_and_it_is_cut_and_bits_flip)
{
    struct victim v = {.open = open_adapter, .sparse = 1};
    struct gguf_made m = {.end = 0};
    const struct qr_model_config c = small_config();
    const uint64_t a[] = {(uint64_t)c.n_embd, 4}, b[] = {4, (uint64_t)c.n_heads * (uint64_t)c.head_dim}, n_bytes = (a[0] * a[1] + b[0] * b[1]) * sizeof(float);
    gguf_begin(&m.b, 3, 2, 4);
    gguf_key_text(&m.b, "general.architecture", qr_family_of(c.arch)->gguf);
    gguf_key_text(&m.b, "general.type", "adapter");
    gguf_key_text(&m.b, "adapter.type", "lora");
    gguf_key_f32(&m.b, "adapter.lora.alpha", 8);
    gguf_tensor(&m.b, "blk.0.attn_q.weight.lora_a", 2, a, QR_GGUF_T_F32, 0);
    gguf_tensor(&m.b, "blk.0.attn_q.weight.lora_b", 2, b, QR_GGUF_T_F32, a[0] * a[1] * sizeof(float));
    m.vocab_at = m.vocab_end = m.end = m.b.len;
    gguf_align(&m.b, 32);
    for (uint64_t i = 0; i < n_bytes; i++)
        qr_buf_put_byte(&m.b, 0);
    victim_dir(&v);
    snprintf(v.path, sizeof v.path, "%s/adapter.gguf", v.dir);
    put_file(v.path, m.b.data, m.b.len);
    qr_buf_release(&m.b);
    victim_begin(&v, "adapter.gguf");
    cr_expect_eq(attack(&v, v.bytes, v.n_bytes, "whole"), 0);
    attack_numbers(&v, &m);
    attack_bytes(&v, m.end, 3);
    victim_end(&v, "adapter.gguf");
}

/* What the metadata says in another form than is expected: a kind that is no number, or several where there is one. */
Test(bad_files, metadata_of_another_kind_is_refused_by_name)
{
    static const char *const keys[] = {"llama.feed_forward_length", "llama.attention.head_count", "llama.attention.head_count_kv", "llama.block_count",
                                       "general.alignment", "llama.context_length", "tokenizer.ggml.bos_token_id", "tokenizer.ggml.tokens",
                                       "tokenizer.ggml.scores", "tokenizer.ggml.token_type", "llama.rope.freq_base", "general.architecture", "split.count"};
    struct gguf_made m;
    struct victim v = gguf_victim(&m, &forms[0]);
    const size_t end = m.end;
    for (int i = 0; i < QR_COUNT(keys); i++) {
        /* The key under its own name in front, as an array of two; the one behind gets another last letter. */
        struct qr_buf b = {0};
        struct qr_err err = {0};
        uint64_t n_keys;
        char *at = memmem(v.bytes, v.n_bytes, keys[i], strlen(keys[i]));
        cr_assert_not_null(at);
        qr_buf_put(&b, v.bytes, 24);
        memcpy(&n_keys, b.data + 16, 8);
        n_keys++;
        memcpy(b.data + 16, &n_keys, 8);
        gguf_key_array(&b, keys[i], QR_GGUF_U32, 2);
        gguf_u32(&b, 64);
        gguf_u32(&b, 64);
        char *last = at + strlen(keys[i]) - 1;
        *last ^= 1;
        qr_buf_put(&b, v.bytes + 24, end - 24);
        *last ^= 1;
        gguf_align(&b, 32);
        qr_buf_put(&b, v.bytes + qr_align_up(end, 32), v.n_bytes - qr_align_up(end, 32));
        cr_expect_lt(attack(&v, b.data, b.len, keys[i]), 0, "%s as an array is taken", keys[i]);
        put_file(v.file, b.data, b.len);
        open_all(&v, &err);
        qr_buf_release(&b);
    }
    victim_end(&v, "GGUF, kinds");
}
