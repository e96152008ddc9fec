/* tok_json.c - tokenizer.json pulled apart: the model is read on the way, the small sections are remembered by place.
 * Large sections are read by the scan without a tree, so a file of 17 MB takes its vocabulary's memory. Every id, merge
 * and token is bounded and checked; what is not supported is refused by name. Runs once, when a tokenizer is opened. */
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/tok.h"

struct reader {
    struct qr_tokenizer *t;
    struct qr_tok_file *f;
    struct qr_json_scan *scan;
    const char *text;        /* of the scan */
    size_t base;             /* offset of `text` in the whole file */
    struct qr_buf a, b;      /* unescaped strings */
    struct qr_tok_span merges; /* merges that came before the vocabulary */
    bool has_model, has_vocab, has_merges;
    int32_t last_merged;     /* the id that the last merge made */
    struct qr_err *err;
};

void qr_tok_file_release(struct qr_tok_file *f)
{
    qr_free(f->merge);
    qr_buf_release(&f->unk);
    *f = (struct qr_tok_file){0};
}

static int next(struct reader *r, struct qr_json_token *t)
{
    int rc = qr_json_next(r->scan, t, r->err);
    if (rc == QR_E_INVALID) {
        r->err->code = QR_E_DAMAGED;
        rc = QR_E_DAMAGED;
    }
    return rc;
}

static int damaged(struct reader *r, const struct qr_json_token *t, const char *what)
{
    return qr_err_set(r->err, QR_E_DAMAGED, "byte %zu: %s", r->base + t->offset, what);
}

/* The next token, which must be of one kind. */
static int expect(struct reader *r, struct qr_json_token *t, enum qr_json_event event, const char *what)
{
    int rc = next(r, t);
    return rc == 0 && t->event != event ? damaged(r, t, what) : rc;
}

/* An object of the text, member by member; each reads over its value. */
static int read_object(struct reader *r, const char *what, int (*member)(struct reader *r, const struct qr_json_token *key))
{
    struct qr_json_token t;
    int rc = expect(r, &t, QR_JSON_OBJECT_BEGIN, what);
    if (rc == 0)
        rc = next(r, &t);
    while (rc == 0 && t.event == QR_JSON_KEY) {
        rc = member(r, &t);
        if (rc == 0)
            rc = next(r, &t);
    }
    return rc;
}

/* A string token's characters; they live until `scratch` is used again or the text goes. */
static void string_of(const struct qr_json_token *t, struct qr_buf *scratch, const char **s, size_t *n)
{
    *s = t->text;
    *n = t->len;
    if (!t->escaped)
        return;
    scratch->len = 0;
    qr_buf_reserve(scratch, t->len);
    qr_json_unescape(scratch, t);
    *s = scratch->data;
    *n = scratch->len;
}

/* Reads over the value that begins next and remembers its place; null is the same as absent. */
static int remember(struct reader *r, struct qr_tok_span *span)
{
    struct qr_json_token t;
    int rc = next(r, &t);
    if (rc != 0)
        return rc;
    size_t start = t.offset;
    int32_t depth = 0;
    bool null = t.event == QR_JSON_NULL;
    for (;;) {
        if (t.event == QR_JSON_OBJECT_BEGIN || t.event == QR_JSON_ARRAY_BEGIN)
            depth++;
        if (t.event == QR_JSON_OBJECT_END || t.event == QR_JSON_ARRAY_END)
            depth--;
        if (depth == 0)
            break;
        rc = next(r, &t);
        if (rc != 0)
            return rc;
    }
    size_t end = t.offset + t.len + (t.event == QR_JSON_STRING ? 2 : 0);
    *span = (struct qr_tok_span){r->text + start, null ? 0 : end - start, r->base + start};
    return 0;
}

/* ---- vocabulary ---- */

static int vocab_entry(struct reader *r, const struct qr_json_token *key)
{
    const char *s;
    size_t n;
    int64_t id;
    struct qr_json_token number;
    string_of(key, &r->a, &s, &n);
    int rc = next(r, &number);
    if (rc != 0)
        return rc;
    if (n > QR_TOKEN_BYTES_MAX)
        return qr_err_set(r->err, QR_E_DAMAGED, "byte %zu: model.vocab has a token of %zu bytes; at most %d are allowed",
                          r->base + key->offset, n, QR_TOKEN_BYTES_MAX);
    if (number.event != QR_JSON_NUMBER || !qr_json_token_i64(&number, &id) || id < 0 || id > QR_TOKEN_ID_MAX)
        return qr_err_set(r->err, QR_E_DAMAGED, "byte %zu: model.vocab: the id of \"%.*s\" is %.*s; expected an integer in 0..%d",
                          r->base + number.offset, n > 64 ? 64 : (int)n, s, number.len > 32 ? 32 : (int)number.len,
                          number.text, QR_TOKEN_ID_MAX);
    if (r->t->vocab.n_tokens >= QR_VOCAB_ENTRIES_MAX)
        return qr_err_set(r->err, QR_E_DAMAGED, "model.vocab has more than %d entries", QR_VOCAB_ENTRIES_MAX);
    if (qr_vocab_add(&r->t->vocab, s, n, (int32_t)id) != QR_VOCAB_ADDED)
        return qr_err_set(r->err, QR_E_DAMAGED, "byte %zu: model.vocab: id %d stands twice, also for \"%.*s\"",
                          r->base + number.offset, (int)id, n > 64 ? 64 : (int)n, s);
    return 0;
}

static int read_vocab(struct reader *r)
{
    r->has_vocab = true;
    return read_object(r, "model.vocab: expected an object of tokens and ids", vocab_entry);
}

/* ---- merges ---- */

static bool is_content(const struct qr_vocab *v, int32_t id, const char *s, size_t n)
{
    return qr_vocab_has(v, id) && v->token[id].len == n && memcmp(v->blob.data + v->token[id].off, s, n) == 0;
}

static int unknown_token(struct reader *r, const struct qr_json_token *at, const char *s, size_t n)
{
    return qr_err_set(r->err, QR_E_DAMAGED, "byte %zu: model.merges[%d]: \"%.*s\" is not in the vocabulary",
                      r->base + at->offset, r->f->n_merges, n > 64 ? 64 : (int)n, s);
}

/* r->b holds left and right together. Merges come in the order of the tokens they make, mostly: a guess saves a look-up. */
static int put_merge(struct reader *r, const struct qr_json_token *at, size_t n_left)
{
    const struct qr_vocab *v = &r->t->vocab;
    struct qr_tok_file *f = r->f;
    const char *s = r->b.data;
    size_t n = r->b.len;
    struct qr_merge m = {.left = n_left ? qr_vocab_find(v, s, n_left) : -1,
                         .right = n > n_left ? qr_vocab_find(v, s + n_left, n - n_left) : -1,
                         .id = r->last_merged};
    if (m.left < 0)
        return unknown_token(r, at, s, n_left);
    if (m.right < 0)
        return unknown_token(r, at, s + n_left, n - n_left);
    if (!is_content(v, m.id, s, n) && !is_content(v, ++m.id, s, n)) {
        m.id = qr_vocab_find(v, s, n);
        if (m.id < 0)
            return unknown_token(r, at, s, n);
    }
    if (f->n_merges >= QR_MERGES_MAX)
        return qr_err_set(r->err, QR_E_DAMAGED, "model.merges has more than %d entries", QR_MERGES_MAX);
    f->merge = QR_GROW(f->merge, f->n_merges, f->cap_merges);
    r->last_merged = m.id;
    f->merge[f->n_merges++] = m;
    return 0;
}

/* "left right" */
static int merge_string(struct reader *r, const struct qr_json_token *t)
{
    const char *s;
    size_t n;
    string_of(t, &r->a, &s, &n);
    if (n >= 8 && memcmp(s, "#version", 8) == 0)
        return 0;
    const char *space = memchr(s, ' ', n);
    size_t n_left = space ? (size_t)(space - s) : 0;
    if (!space || memchr(space + 1, ' ', n - n_left - 1))
        return damaged(r, t, "model.merges: expected two tokens with one space between them");
    r->b.len = 0;
    qr_buf_put(&r->b, s, n_left);
    qr_buf_put(&r->b, space + 1, n - n_left - 1);
    return put_merge(r, t, n_left);
}

/* ["left", "right"] */
static int merge_pair(struct reader *r, const struct qr_json_token *begin)
{
    struct qr_json_token t;
    size_t n_left = 0, n;
    const char *s;
    r->b.len = 0;
    for (int i = 0; i < 2; i++) {
        int rc = expect(r, &t, QR_JSON_STRING, "model.merges: expected an array of two strings");
        if (rc != 0)
            return rc;
        string_of(&t, &r->a, &s, &n);
        qr_buf_put(&r->b, s, n);
        n_left = i == 0 ? n : n_left;
    }
    int rc = expect(r, &t, QR_JSON_ARRAY_END, "model.merges: expected an array of two strings");
    if (rc != 0)
        return rc;
    return put_merge(r, begin, n_left);
}

static int read_merges(struct reader *r)
{
    struct qr_json_token t;
    int rc = expect(r, &t, QR_JSON_ARRAY_BEGIN, "model.merges: expected an array");
    if (rc != 0)
        return rc;
    while ((rc = next(r, &t)) == 0 && t.event != QR_JSON_ARRAY_END) {
        if (t.event == QR_JSON_STRING)
            rc = merge_string(r, &t);
        else if (t.event == QR_JSON_ARRAY_BEGIN)
            rc = merge_pair(r, &t);
        else
            rc = damaged(r, &t, "model.merges: expected a string or an array of two strings");
        if (rc != 0)
            return rc;
    }
    return rc;
}

/* The merges came before the vocabulary: read them now, from their place. */
static int read_late_merges(struct reader *r)
{
    struct qr_json_scan *scan = r->scan;
    const char *text = r->text;
    r->text = r->merges.text;
    r->base = r->merges.offset;
    r->scan = qr_json_scan_new(r->merges.text, r->merges.n, &qr_json_limits_file);
    int rc = read_merges(r);
    qr_json_scan_free(r->scan);
    r->scan = scan;
    r->text = text;
    r->base = 0;
    return rc;
}

/* ---- the model ---- */

static int unsupported_value(struct reader *r, const char *key, const struct qr_json_token *t)
{
    return qr_tok_unsupported(r->err, "model", "%s %.*s", key, t->len > 64 ? 64 : (int)t->len, t->text);
}

static int model_bool(struct reader *r, const char *key, bool *out)
{
    struct qr_json_token t;
    int rc = next(r, &t);
    if (rc != 0)
        return rc;
    if (t.event != QR_JSON_TRUE && t.event != QR_JSON_FALSE && t.event != QR_JSON_NULL)
        return qr_err_set(r->err, QR_E_DAMAGED, "byte %zu: model.%s: expected true or false", r->base + t.offset, key);
    *out = t.event == QR_JSON_TRUE;
    return 0;
}

/* Members that must have a value that changes nothing: null, "", or the number 0. */
static int model_empty(struct reader *r, const char *key)
{
    struct qr_json_token t;
    int rc = next(r, &t);
    if (rc != 0)
        return rc;
    bool empty = t.event == QR_JSON_NULL || (t.event == QR_JSON_STRING && t.len == 0) ||
                 (t.event == QR_JSON_NUMBER && qr_json_token_f64(&t) == 0);
    return empty ? 0 : unsupported_value(r, key, &t);
}

static int model_unk(struct reader *r)
{
    struct qr_json_token t;
    int rc = next(r, &t);
    if (rc != 0)
        return rc;
    if (t.event != QR_JSON_NULL && t.event != QR_JSON_STRING)
        return damaged(r, &t, "model.unk_token: expected a string or null");
    r->f->unk.len = 0;
    if (t.event == QR_JSON_STRING)
        qr_json_unescape(&r->f->unk, &t);
    return 0;
}

static int model_type(struct reader *r)
{
    struct qr_json_token t;
    int rc = next(r, &t);
    if (rc != 0)
        return rc;
    if (t.event != QR_JSON_STRING || !qr_json_token_is(&t, "BPE"))
        return unsupported_value(r, "type", &t);
    return 0;
}

static int model_merges(struct reader *r)
{
    r->has_merges = true;
    if (r->has_vocab)
        return read_merges(r);
    return remember(r, &r->merges);
}

static int model_member(struct reader *r, const struct qr_json_token *key)
{
    struct qr_bpe *b = &r->t->bpe;
    if (qr_json_token_is(key, "vocab"))
        return read_vocab(r);
    if (qr_json_token_is(key, "merges"))
        return model_merges(r);
    if (qr_json_token_is(key, "type"))
        return model_type(r);
    if (qr_json_token_is(key, "unk_token"))
        return model_unk(r);
    if (qr_json_token_is(key, "fuse_unk"))
        return model_bool(r, "fuse_unk", &b->fuse_unk);
    if (qr_json_token_is(key, "byte_fallback"))
        return model_bool(r, "byte_fallback", &b->byte_fallback);
    if (qr_json_token_is(key, "ignore_merges"))
        return model_bool(r, "ignore_merges", &b->ignore_merges);
    static const char *const empty[] = {"dropout", "continuing_subword_prefix", "end_of_word_suffix"};
    for (int i = 0; i < QR_COUNT(empty); i++)
        if (qr_json_token_is(key, empty[i]))
            return model_empty(r, empty[i]);
    return qr_tok_unsupported(r->err, "model", "the member \"%.*s\"", key->len > 64 ? 64 : (int)key->len, key->text);
}

static int read_model(struct reader *r)
{
    r->has_model = true;
    int rc = read_object(r, "model: expected an object", model_member);
    if (rc != 0)
        return rc;
    if (!r->has_vocab || !r->has_merges)
        return qr_err_set(r->err, QR_E_DAMAGED, "model: there is no \"%s\"", r->has_vocab ? "merges" : "vocab");
    return r->merges.n > 0 ? read_late_merges(r) : 0;
}

/* ---- the file ---- */

static int file_member(struct reader *r, const struct qr_json_token *key)
{
    struct qr_tok_span ignored; /* truncation and padding belong to training; a version changes nothing that is known */
    const struct {
        const char *name;
        struct qr_tok_span *span;
    } section[] = {
        {"added_tokens", &r->f->added},
        {"normalizer", &r->f->normalizer},
        {"pre_tokenizer", &r->f->pre_tokenizer},
        {"post_processor", &r->f->post_processor},
        {"decoder", &r->f->decoder},
        {"version", &ignored},
        {"truncation", &ignored},
        {"padding", &ignored},
    };
    if (qr_json_token_is(key, "model"))
        return read_model(r);
    for (int i = 0; i < QR_COUNT(section); i++)
        if (qr_json_token_is(key, section[i].name))
            return remember(r, section[i].span);
    return qr_tok_unsupported(r->err, "tokenizer", "the member \"%.*s\"", key->len > 64 ? 64 : (int)key->len, key->text);
}

static int read_file(struct reader *r)
{
    struct qr_json_token end;
    int rc = read_object(r, "expected an object", file_member);
    if (rc == 0)
        rc = next(r, &end);
    if (rc == 0 && !r->has_model)
        rc = qr_err_set(r->err, QR_E_DAMAGED, "there is no \"model\"");
    return rc;
}

int qr_tok_read_file(struct qr_tokenizer *t, struct qr_tok_file *f, const char *json, size_t len, struct qr_err *err)
{
    QR_ASSERT(t != NULL && f != NULL);
    QR_ASSERT(json != NULL || len == 0);
    struct reader r = {.t = t, .f = f, .text = json, .last_merged = -1, .err = err};
    r.scan = qr_json_scan_new(json, len, &qr_json_limits_file);
    int rc = read_file(&r);
    qr_json_scan_free(r.scan);
    qr_buf_release(&r.a);
    qr_buf_release(&r.b);
    return rc;
}
