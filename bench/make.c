/* make.c - `quire bench make-model`: a model directory with random weights in a published shape, so that anyone can
 * repeat a measurement without the model itself. The tokenizer is one token per byte and filler above: text round-trips,
 * ids reach the whole vocabulary. Main thread. */
#include "bench/bench.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/json.h"
#include "base/utf8.h"
#include "bench/shapes.h"
#include "loader/write/make_model.h"
#include "train/checkpoint.h"

struct make_options {
    const char *like, *out;
    int64_t seed, layers;
};

static const struct qr_option table[] = {
    {.name = "like", .brief = true, .type = QR_OPT_STR, .offset = offsetof(struct make_options, like), .arg = "NAME",
     .help = QR_SHAPE_NAMES "."},
    {.name = "out", .brief = true, .letter = 'o', .type = QR_OPT_STR, .offset = offsetof(struct make_options, out), .arg = "DIR",
     .help = "The directory to make; it must not exist. It appears when it is complete."},
    {.name = "layers", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct make_options, layers), .builtin = "0", .min = 0, .max = QR_LAYERS_MAX,
     .arg = "N",
     .help = "So many layers instead of all: a large model's kernels in little room. 0: all."},
    {.name = "seed", .brief = true, .type = QR_OPT_INT, .offset = offsetof(struct make_options, seed), .builtin = "1", .min = 0, .max = 9e15, .arg = "N",
     .help = "Same seed, same bytes."}};

/* The character that stands for a byte in byte-level vocabularies: printable Latin-1 for itself, the rest from U+0100 on. */
static uint32_t byte_char(uint32_t byte)
{
    uint32_t n_hidden = 0;
    for (uint32_t b = 0; b <= byte; b++) {
        bool printable = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
        if (b == byte)
            return printable ? b : 0x100 + n_hidden;
        n_hidden += !printable;
    }
    return 0;
}

static void put_tokenizer(struct qr_buf *out, int32_t n_vocab)
{
    QR_ASSERT(n_vocab > 258);
    qr_buf_printf(out, "{\"version\":\"1.0\",\"added_tokens\":[{\"id\":%d,\"content\":\"<|end|>\",\"single_word\":false,\"lstrip\":false,"
                       "\"rstrip\":false,\"normalized\":false,\"special\":true}],\"normalizer\":null,\"pre_tokenizer\":{\"type\":\"ByteLevel\","
                       "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},\"post_processor\":null,\"decoder\":{\"type\":\"ByteLevel\","
                       "\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true},"
                       "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"merges\":[],\"vocab\":{",
                  n_vocab - 1);
    for (uint32_t b = 0; b < 256; b++) {
        char c[4];
        qr_json_put_str(out, c, (size_t)qr_utf8_encode(byte_char(b), c));
        qr_buf_printf(out, ":%u,", b);
    }
    for (int32_t id = 256; id < n_vocab - 1; id++)
        qr_buf_printf(out, "\"<%d>\":%d,", id, id);
    qr_buf_printf(out, "\"<|end|>\":%d}}}", n_vocab - 1);
}

static int write_file(const char *dir, const char *name, const struct qr_buf *text, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    const int rc = qr_path_join(path, dir, name, err);
    return rc ? rc : qr_file_write(path, text->data, text->len, false, err);
}

static int write_tokenizer(const char *dir, int32_t n_vocab, struct qr_err *err)
{
    struct qr_buf text = {0};
    put_tokenizer(&text, n_vocab);
    int rc = write_file(dir, "tokenizer.json", &text, err);
    qr_buf_clear(&text);
    qr_buf_put_str(&text, "{\"eos_token\":\"<|end|>\",\"chat_template\":\"{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\\n{% endfor %}\"}\n");
    if (rc == 0)
        rc = write_file(dir, "tokenizer_config.json", &text, err);
    qr_buf_release(&text);
    return rc;
}

/* ---- interrupted ---- */

static const int ends[] = {SIGHUP, SIGINT, SIGTERM};

/* Signals wait until they are polled, but for a terminal's end where that is ignored, as under nohup. There is one
 * thread. */
static void hold_signals(sigset_t *held, sigset_t *before)
{
    struct sigaction now;
    sigemptyset(held);
    for (int i = 0; i < QR_COUNT(ends); i++)
        if (ends[i] != SIGHUP || (sigaction(SIGHUP, NULL, &now) == 0 && now.sa_handler != SIG_IGN))
            sigaddset(held, ends[i]);
    sigprocmask(SIG_BLOCK, held, before);
}

static bool interrupted(void)
{
    sigset_t came;
    bool any = false;
    if (sigpending(&came) != 0)
        return false;
    for (int i = 0; i < QR_COUNT(ends); i++)
        any |= sigismember(&came, ends[i]) == 1;
    return any;
}

/* ---- the command ---- */

/* Filled under another name beside it, so that DIR is there as a whole or not at all. */
static int write_model(const struct make_options *o, const struct qr_model_config *c, struct qr_err *err)
{
    struct qr_progress progress;
    const struct qr_make_options how = {.store = QR_BF16, .seed = (uint64_t)o->seed, .progress = &progress, .stopped = interrupted};
    char path[QR_PATH_MAX], spare[QR_PATH_MAX];
    struct qr_err left;
    int rc = qr_export_paths(path, spare, o->out, false, err);
    rc = rc ? rc : qr_dir_make_fresh(spare, err);
    if (rc)
        return rc;
    qr_progress_open(&progress, "writing");
    rc = qr_model_make(spare, c, &how, err);
    qr_progress_end(&progress);
    rc = rc ? rc : write_tokenizer(spare, c->n_vocab, err);
    rc = rc ? rc : qr_dir_publish(spare, path, false, err);
    if (rc && qr_dir_remove(spare, &left) != 0)
        qr_err_prefix(err, "what was written stays: %s; ", left.msg);
    return rc;
}

static int make(struct qr_command_run *r, struct qr_err *err)
{
    const struct make_options *o = r->options;
    const struct timespec now = {0};
    sigset_t held, before;
    if (!o->like || !o->out)
        return qr_err_set(err, QR_E_USAGE, "both --like NAME and --out DIR are needed");
    struct qr_model_config c;
    int rc = qr_shape_config(&c, o->like, err);
    if (rc)
        return rc;
    c.n_layers = o->layers > 0 ? (int32_t)o->layers : c.n_layers;
    hold_signals(&held, &before);
    rc = write_model(o, &c, err);
    const int number = rc == QR_E_CLOSED ? sigtimedwait(&held, NULL, &now) : 0;
    sigprocmask(SIG_SETMASK, &before, NULL);
    r->status = number > 0 ? 128 + number : 0;
    return rc;
}

const struct qr_command qr_bench_make_command = {
    .name = "bench make-model", .purpose = "a random-weight model directory of a published shape",
    .usage = "quire bench make-model --like NAME --out DIR [flags]",
    .examples = "quire bench make-model --like smollm2-135m --out m135",
    .args = "", .table = table, .n_options = QR_COUNT(table), .options_bytes = sizeof(struct make_options), .run = make,
};
