/* tokenizer.c - opens a tokenizer from a directory or a GGUF file and encodes text. Opening reads tokenizer.json's
 * sections (tok_json.c and its neighbours) and refuses what is not supported, by name. Encoding is added tokens, then
 * normalizers, pre-tokenizers and merges of each piece. Special tokens count only in bytes that the caller marks as
 * trusted. An open tokenizer is immutable; any thread may encode. */
#include "tokenizer/tokenizer.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/files/map_file.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/gguf_tokens.h"
#include "tokenizer/tok.h"

#define FILE_BYTES_MAX ((size_t)256 << 20)
#define TEXT_BYTES_MAX (INT32_MAX / 8) /* that are encoded at once */

void qr_ids_release(struct qr_ids *v)
{
    qr_free(v->id);
    *v = (struct qr_ids){0};
}

void qr_ids_push(struct qr_ids *v, int32_t id)
{
    if (v->n == v->cap) {
        QR_ASSERT(v->cap <= INT32_MAX - v->cap / 2 - 64);
        v->cap += v->cap / 2 + 64;
        v->id = qr_realloc(v->id, (size_t)v->cap, sizeof *v->id);
    }
    v->id[v->n++] = id;
}

/* ---- opening ---- */

static int read_sections(struct qr_tokenizer *t, struct qr_tok_file *f, struct qr_err *err)
{
    int rc = qr_tok_read_normalizer(t, &f->normalizer, err);
    if (rc == 0)
        rc = qr_tok_read_added(t, &f->added, err);
    if (rc == 0)
        rc = qr_tok_read_pretok(t, &f->pre_tokenizer, err);
    if (rc == 0)
        rc = qr_tok_read_decoder(t, &f->decoder, err);
    if (rc == 0)
        rc = qr_tok_read_post(t, &f->post_processor, err);
    return rc;
}

static int find_unk(struct qr_tokenizer *t, const struct qr_tok_file *f, struct qr_err *err)
{
    t->bpe.unk_id = -1;
    if (f->unk.len == 0)
        return 0;
    t->bpe.unk_id = qr_vocab_find(&t->vocab, f->unk.data, f->unk.len);
    if (t->bpe.unk_id < 0)
        return qr_err_set(err, QR_E_DAMAGED, "model.unk_token \"%.64s\" is not in the vocabulary", f->unk.data);
    return 0;
}

/* Seeds for the hash tables: contents of a file must not be able to choose collisions. */
static void draw_seeds(uint64_t seed[3])
{
    struct qr_hash_secret s;
    qr_hash_secret_random(&s);
    memcpy(seed, s.bytes, 3 * sizeof seed[0]);
}

static int read_all(struct qr_tokenizer *t, struct qr_tok_file *f, const uint64_t seed[2], const char *json, size_t len,
                    struct qr_err *err)
{
    int rc = qr_tok_read_file(t, f, json, len, err);
    if (rc == 0)
        rc = read_sections(t, f, err);
    if (rc == 0)
        rc = find_unk(t, f, err);
    if (rc == 0)
        rc = qr_decoder_build(&t->decoder, &t->vocab, &t->normalized, err);
    if (rc == 0)
        qr_bpe_build(&t->bpe, &t->vocab, f->merge, f->n_merges, seed);
    return rc == 0 ? 0 : (qr_err_prefix(err, "tokenizer.json: "), rc);
}

int qr_tokenizer_parse(struct qr_tokenizer **out, const char *json, size_t len, const char *config, size_t config_len,
                       struct qr_err *err)
{
    QR_ASSERT(out != NULL && err != NULL);
    QR_ASSERT(json != NULL || len == 0);
    uint64_t seed[3];
    draw_seeds(seed);
    struct qr_tokenizer *t = qr_alloc(1, sizeof *t);
    struct qr_tok_file f = {0};
    t->bos = t->eos = -1;
    qr_vocab_init(&t->vocab, seed[2]);
    int rc = read_all(t, &f, seed, json, len, err);
    qr_tok_file_release(&f);
    if (rc == 0 && config)
        rc = qr_tok_read_config(t, config, config_len, err);
    if (rc != 0) {
        qr_tokenizer_close(t);
        return rc;
    }
    *out = t;
    return 0;
}

/* There is no tokenizer.json: what to do, where one of the older forms is there as well. */
static int fail_missing(const char *dir, struct qr_err *err)
{
    static const char *const older[] = {"tokenizer.model", "vocab.json", "vocab.txt", "tiktoken.model"};
    char path[PATH_MAX];
    for (size_t i = 0; i < sizeof older / sizeof *older; i++)
        if ((size_t)snprintf(path, sizeof path, "%s/%s", dir, older[i]) < sizeof path && access(path, F_OK) == 0)
            return qr_err_set(err, QR_E_NOT_FOUND, "%s/tokenizer.json does not exist, and %s is not read: have transformers write it (AutoTokenizer."
                              "from_pretrained(DIR).save_pretrained(DIR))", dir, older[i]);
    return qr_err_set(err, QR_E_NOT_FOUND, "%s/tokenizer.json does not exist; download it from where the model was published", dir);
}

static int read_text(struct qr_buf *text, const char *dir, const char *name, enum qr_file_kind kind, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    const int rc = qr_path_join(path, dir, name, err);
    return rc ? rc : qr_file_read(text, path, kind, FILE_BYTES_MAX, err);
}

static int open_directory(struct qr_tokenizer **out, const char *dir, struct qr_err *err)
{
    struct qr_buf json = {0}, config = {0};
    int rc = read_text(&json, dir, "tokenizer.json", QR_FILE_REGULAR, err);
    if (rc == QR_E_NOT_FOUND)
        rc = fail_missing(dir, err);
    if (rc == 0 && qr_is_lfs_pointer(json.data, json.len))
        rc = qr_err_set(err, QR_E_DAMAGED, "%s/tokenizer.json: " QR_LFS_POINTER, dir);
    if (rc == 0)
        rc = read_text(&config, dir, "tokenizer_config.json", QR_FILE_OPTIONAL, err);
    if (rc == 0) {
        rc = qr_tokenizer_parse(out, json.data, json.len, config.data, config.len, err);
        if (rc != 0)
            qr_err_prefix(err, "%s: ", dir);
    }
    qr_buf_release(&json);
    qr_buf_release(&config);
    return rc;
}

/* What a GGUF file carries; where that is none that is known, the tokenizer.json beside it. */
static int open_gguf(struct qr_tokenizer **out, const struct qr_source *source, struct qr_err *err)
{
    struct qr_buf json = {0}, config = {0};
    const char *path = qr_source_gguf_path(source);
    int rc = qr_gguf_tokenizer_json(&json, qr_source_gguf(source), err);
    rc = rc ? rc : qr_gguf_tokenizer_config(&config, qr_source_gguf(source), err);
    rc = rc ? rc : qr_tokenizer_parse(out, json.data, json.len, config.data, config.len, err);
    qr_buf_release(&json);
    qr_buf_release(&config);
    if (rc == 0)
        return 0;
    struct qr_err other;
    const char *slash = strrchr(path, '/');
    char *dir = slash ? qr_strndup(path, (size_t)(slash - path)) : qr_strdup(".");
    const bool beside = (rc == QR_E_UNSUPPORTED || rc == QR_E_NOT_FOUND) && open_directory(out, *dir ? dir : "/", &other) == 0;
    qr_free(dir);
    return beside ? 0 : qr_source_blame(err, path);
}

int qr_tokenizer_open_from(struct qr_tokenizer **out, const struct qr_source *source, struct qr_err *err)
{
    QR_ASSERT(out != NULL && source != NULL);
    QR_ASSERT(err != NULL);
    return qr_source_gguf(source) ? open_gguf(out, source, err) : open_directory(out, qr_source_model(source), err);
}

int qr_tokenizer_open(struct qr_tokenizer **out, const char *model, struct qr_err *err)
{
    QR_ASSERT(out != NULL && model != NULL);
    struct qr_source *source;
    int rc = qr_source_open(&source, model, err);
    if (rc)
        return rc;
    rc = qr_tokenizer_open_from(out, source, err);
    qr_source_unref(source);
    return rc;
}

void qr_tokenizer_close(struct qr_tokenizer *t)
{
    if (!t)
        return;
    qr_bpe_release(&t->bpe);
    qr_decoder_release(&t->decoder);
    qr_pretok_release(&t->pretok);
    qr_normalizer_release(&t->normalizer);
    qr_added_release(&t->raw);
    qr_added_release(&t->normalized);
    qr_vocab_release(&t->vocab);
    qr_free(t);
}

/* ---- asking ---- */

int32_t qr_tokenizer_vocab_size(const struct qr_tokenizer *t)
{
    QR_ASSERT(t != NULL);
    return t->vocab.n_ids;
}

int32_t qr_tokenizer_bos(const struct qr_tokenizer *t)
{
    QR_ASSERT(t != NULL);
    return t->bos;
}

int32_t qr_tokenizer_eos(const struct qr_tokenizer *t)
{
    QR_ASSERT(t != NULL);
    return t->eos;
}

bool qr_tokenizer_is_special(const struct qr_tokenizer *t, int32_t id)
{
    QR_ASSERT(t != NULL);
    return qr_vocab_is_special(&t->vocab, id);
}

int32_t qr_tokenizer_token_id(const struct qr_tokenizer *t, const char *token, size_t len)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(token != NULL || len == 0);
    return qr_vocab_find(&t->vocab, token, len);
}

const char *qr_tokenizer_token_bytes(const struct qr_tokenizer *t, int32_t id, size_t *len)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(len != NULL);
    *len = 0;
    if (!qr_vocab_has(&t->vocab, id))
        return "";
    const struct qr_token_text *x = &t->decoder.text[id];
    *len = x->len;
    return x->len > 0 ? t->decoder.blob.data + x->off : "";
}

/* ---- encoding ---- */

struct encoder {
    const struct qr_tokenizer *t;
    struct qr_ids *out;
    struct qr_matcher *matcher;
    struct qr_norm_work norm;
    struct qr_pretok_work pretok;
    struct qr_bpe_work bpe;
    bool no_special; /* plain text must not make special tokens by merging either */
    struct qr_err *err;
};

static int put_piece(void *user, const char *piece, size_t len, struct qr_err *err)
{
    struct encoder *e = user;
    if (len > (size_t)(INT32_MAX / 2 - e->out->n))
        return qr_err_set(err, QR_E_TOO_LARGE, "the text is too long to be encoded: more than %d bytes", INT32_MAX / 2);
    qr_bpe_encode(&e->t->bpe, &e->bpe, e->out, piece, len, e->no_special);
    return 0;
}

/* Text without added tokens that are found in raw text: normalize, find the others, split, merge. */
static int encode_plain(struct encoder *e, struct qr_text raw, bool first, bool all_special, bool with_trust)
{
    struct qr_text text;
    int rc = raw.len > 0 ? qr_normalize(&e->t->normalizer, &e->norm, e->matcher, raw, &text, e->err) : 0;
    if (rc != 0 || raw.len == 0)
        return rc;
    struct qr_trust trust = {.all = all_special, .byte = with_trust ? text.trust : NULL};
    struct qr_added_match m;
    size_t at = 0;
    while (rc == 0 && qr_added_find(&e->t->normalized, text.data, text.len, at, &trust, &m)) {
        rc = qr_pretok_run(&e->t->pretok, &e->pretok, e->matcher, text.data + at, m.start - at, first && at == 0, put_piece, e,
                           e->err);
        qr_ids_push(e->out, m.id);
        at = m.end;
    }
    if (rc == 0)
        rc = qr_pretok_run(&e->t->pretok, &e->pretok, e->matcher, text.data + at, text.len - at, first && at == 0, put_piece, e,
                           e->err);
    return rc;
}

static int encode_text(struct encoder *e, const char *text, size_t len, const struct qr_trust *trust, const uint8_t *trust_byte)
{
    struct qr_added_match m;
    size_t at = 0;
    int rc = 0;
    for (;;) {
        bool found = qr_added_find(&e->t->raw, text, len, at, trust, &m);
        size_t end = found ? m.start : len;
        struct qr_text plain = {text + at, trust_byte ? trust_byte + at : NULL, end - at};
        rc = encode_plain(e, plain, at == 0, trust->all, trust_byte != NULL);
        if (rc != 0 || !found)
            return rc;
        qr_ids_push(e->out, m.id);
        at = m.end;
    }
}

static void put_ids(struct qr_ids *out, const int32_t *id, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        qr_ids_push(out, id[i]);
}

static int too_long(size_t len, struct qr_err *err)
{
    return qr_err_set(err, QR_E_TOO_LARGE, "the text has %zu bytes; at most %d can be encoded at once", len,
                      TEXT_BYTES_MAX);
}

/* text is valid UTF-8. */
static int encode_valid(const struct qr_tokenizer *t, struct qr_ids *out, const char *text, size_t len, unsigned flags,
                        const struct qr_trust *trust, const uint8_t *trust_byte, struct qr_err *err)
{
    if (len > TEXT_BYTES_MAX)
        return too_long(len, err);
    struct encoder e = {.t = t, .out = out, .matcher = qr_matcher_new(), .no_special = !trust->all, .err = err};
    int32_t n_before = out->n;
    if (flags & QR_ENCODE_ADD_SPECIAL)
        put_ids(out, t->post.prefix, t->post.n_prefix);
    int rc = encode_text(&e, text, len, trust, trust_byte);
    if (rc == 0 && (flags & QR_ENCODE_ADD_SPECIAL))
        put_ids(out, t->post.suffix, t->post.n_suffix);
    if (rc != 0)
        out->n = n_before;
    qr_matcher_free(e.matcher);
    qr_norm_work_release(&e.norm);
    qr_pretok_work_release(&e.pretok);
    qr_bpe_work_release(&e.bpe);
    return rc;
}

int qr_tokenizer_encode(const struct qr_tokenizer *t, struct qr_ids *out, const char *text, size_t len, unsigned flags,
                        struct qr_err *err)
{
    QR_ASSERT(t != NULL && out != NULL);
    QR_ASSERT(text != NULL || len == 0);
    struct qr_trust trust = {.all = (flags & QR_ENCODE_PARSE_SPECIAL) != 0};
    if (len == 0 || qr_utf8_valid_prefix(text, len) == len)
        return encode_valid(t, out, len ? text : "", len, flags, &trust, NULL, err);
    if (len > TEXT_BYTES_MAX)
        return too_long(len, err);
    char *lossy = qr_realloc(NULL, len, 3);
    int rc = encode_valid(t, out, lossy, qr_utf8_lossy(lossy, text, len), flags, &trust, NULL, err);
    qr_free(lossy);
    return rc;
}

int qr_tokenizer_encode_pair(const struct qr_tokenizer *t, struct qr_ids *out, const char *first, size_t n_first, const char *second, size_t n_second,
                             unsigned flags, struct qr_err *err)
{
    QR_ASSERT(t != NULL && out != NULL);
    QR_ASSERT(err != NULL);
    const bool special = (flags & QR_ENCODE_ADD_SPECIAL) != 0;
    const unsigned rest = flags & ~(unsigned)QR_ENCODE_ADD_SPECIAL;
    const int32_t n_before = out->n;
    if (special && t->pair.other)
        return qr_err_set(err, QR_E_UNSUPPORTED, "tokenizer.json: post_processor: a template of two texts that is not \"A\", then \"B\"");
    put_ids(out, t->pair.id[0], special ? t->pair.n[0] : 0);
    int rc = qr_tokenizer_encode(t, out, first, n_first, rest, err);
    put_ids(out, t->pair.id[1], special ? t->pair.n[1] : 0);
    rc = rc ? rc : qr_tokenizer_encode(t, out, second, n_second, rest, err);
    put_ids(out, t->pair.id[2], special ? t->pair.n[2] : 0);
    out->n = rc ? n_before : out->n;
    return rc;
}

/* ---- trusted and untrusted text ---- */

/* The text made valid segment by segment, and where it is trusted. */
struct segmented {
    struct qr_buf text;
    struct qr_range *range; /* owned [n_ranges] */
    int32_t n_ranges;
};

static void add_segment(struct segmented *s, const char *text, size_t len, bool trusted, bool valid)
{
    size_t start = s->text.len;
    qr_buf_reserve(&s->text, valid ? len : 3 * len);
    if (valid && len > 0)
        memcpy(s->text.data + start, text, len);
    s->text.len += valid ? len : qr_utf8_lossy(s->text.data + start, text, len);
    if (!trusted || s->text.len == start)
        return;
    if (s->n_ranges > 0 && s->range[s->n_ranges - 1].end == start)
        s->range[s->n_ranges - 1].end = s->text.len;
    else
        s->range[s->n_ranges++] = (struct qr_range){start, s->text.len};
}

/* One byte per byte of text, for tokenizers that look for special tokens behind their normalizers. */
static uint8_t *trust_bytes(const struct segmented *s)
{
    uint8_t *byte = qr_alloc(s->text.len, 1);
    for (int32_t i = 0; i < s->n_ranges; i++)
        memset(byte + s->range[i].start, 1, s->range[i].end - s->range[i].start);
    return byte;
}

int qr_tokenizer_encode_segments(const struct qr_tokenizer *t, struct qr_ids *out, const char *text, size_t len,
                                 const struct qr_segment *segment, int32_t n_segments, unsigned flags, struct qr_err *err)
{
    QR_ASSERT(t != NULL && out != NULL && (text != NULL || len == 0));
    QR_ASSERT(n_segments >= 0 && (segment != NULL || n_segments == 0));
    if (len > TEXT_BYTES_MAX)
        return too_long(len, err);
    struct segmented s = {.range = qr_alloc((size_t)n_segments + 1, sizeof *s.range)};
    bool valid = len == 0 || qr_utf8_valid_prefix(text, len) == len, all = true;
    size_t at = 0;
    for (int32_t i = 0; i < n_segments; i++) {
        QR_ASSERT(segment[i].start == at && segment[i].len <= len - at);
        add_segment(&s, text + at, segment[i].len, segment[i].trusted, valid);
        all = all && (segment[i].trusted || segment[i].len == 0);
        at += segment[i].len;
    }
    QR_ASSERT(at == len);
    bool by_byte = !all && t->normalized.n_special > 0;
    uint8_t *byte = by_byte ? trust_bytes(&s) : NULL;
    struct qr_trust trust = {.all = all, .range = s.range, .n_ranges = s.n_ranges};
    int rc = encode_valid(t, out, s.text.len ? s.text.data : "", s.text.len, flags, &trust, byte, err);
    qr_free(byte);
    qr_free(s.range);
    qr_buf_release(&s.text);
    return rc;
}
