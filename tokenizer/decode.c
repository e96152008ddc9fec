/* decode.c - builds the decoder of a tokenizer file and decodes whole lists of ids. Each token's text is worked out
 * once, when the tokenizer is opened. Three kinds of decoder cover the files that exist (decode.h); steps that fit none
 * are refused at opening. Immutable behind that; any thread may decode. */
#include "tokenizer/decode.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/tok.h"

#define REPLACEMENT "\xEF\xBF\xBD"
#define REPLACEMENT_BYTES 3

/* ---- token texts ---- */

/* Ends early where the text is too long. */
static void replace(const struct qr_decoder_op *op, struct qr_buf *out, const char *s, size_t n)
{
    while (n > 0 && out->len <= QR_DECODER_TEXT_MAX) {
        const char *hit = memmem(s, n, op->from, op->n_from);
        size_t before = hit ? (size_t)(hit - s) : n;
        qr_buf_put(out, s, before);
        if (!hit)
            return;
        qr_buf_put(out, op->to, op->n_to);
        s = hit + op->n_from;
        n -= before + op->n_from;
    }
}

static void strip(const struct qr_decoder_op *op, struct qr_buf *out, const char *s, size_t n)
{
    for (int64_t i = 0; i < op->left && n >= op->n_from && memcmp(s, op->from, op->n_from) == 0; i++) {
        s += op->n_from;
        n -= op->n_from;
    }
    for (int64_t i = 0; i < op->right && n >= op->n_from && memcmp(s + n - op->n_from, op->from, op->n_from) == 0; i++)
        n -= op->n_from;
    qr_buf_put(out, s, n);
}

/* <0xNN>, six bytes. The value, or -1. */
static int byte_value(const char *s, size_t n)
{
    if (n != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
        return -1;
    int hi = s[3] == '+' ? 0 : qr_hex_digit(s[3]), lo = qr_hex_digit(s[4]); /* the reference's parser takes a sign */
    return hi < 0 || lo < 0 ? -1 : hi * 16 + lo;
}

/* Leaves the text of one content in work[*last]. False: it is too long. */
static bool apply(const struct qr_decoder *d, struct qr_buf work[2], int *last, const char *s, size_t n)
{
    *last = 0;
    work[0].len = 0;
    qr_buf_put(&work[0], s, n);
    for (int32_t i = 0; i < d->n_ops; i++) {
        struct qr_buf *in = &work[*last], *out = &work[1 - *last];
        out->len = 0;
        if (d->op[i].kind == QR_DECODER_REPLACE)
            replace(&d->op[i], out, in->data, in->len);
        else
            strip(&d->op[i], out, in->data, in->len);
        *last = 1 - *last;
        if (out->len > QR_DECODER_TEXT_MAX)
            return false;
    }
    return true;
}

static void put_text(struct qr_decoder *d, int32_t id, const char *s, size_t n, bool is_byte)
{
    d->text[id] = (struct qr_token_text){.off = (uint32_t)d->blob.len,
                                         .len = (uint32_t)n,
                                         .is_byte = is_byte,
                                         .is_whole = n == 0 || qr_utf8_valid_prefix(s, n) == n};
    if (n > 0)
        qr_buf_put(&d->blob, s, n);
    if (n > d->len_max)
        d->len_max = (uint32_t)n;
}

static bool chain_text(struct qr_decoder *d, struct qr_buf work[2], int32_t id, const char *s, size_t n)
{
    int last;
    if (!apply(d, work, &last, s, n))
        return false;
    int byte = d->byte_fallback ? byte_value(work[last].data, work[last].len) : -1;
    char one = (char)byte;
    put_text(d, id, byte >= 0 ? &one : work[last].data, byte >= 0 ? 1 : work[last].len, byte >= 0);
    return true;
}

/* What one content decodes to becomes the token's text. False: it is too long. */
static bool add_text(struct qr_decoder *d, const struct qr_bytechar *bytechar, struct qr_buf work[2], int32_t id, const char *s, size_t n)
{
    work[0].len = 0;
    qr_buf_reserve(&work[0], n);
    const int32_t n_bytes = d->kind == QR_DECODER_BYTES ? qr_bytechar_decode(bytechar, work[0].data, s, n) : -1;
    if (d->kind == QR_DECODER_CHAIN)
        return chain_text(d, work, id, s, n);
    put_text(d, id, n_bytes >= 0 ? work[0].data : s, n_bytes >= 0 ? (size_t)n_bytes : n, false);
    return n <= QR_DECODER_TEXT_MAX;
}

int qr_decoder_build(struct qr_decoder *d, const struct qr_vocab *v, const struct qr_added_set *normalized, struct qr_err *err)
{
    QR_ASSERT(d != NULL && d->text == NULL);
    QR_ASSERT(v != NULL && normalized != NULL);
    struct qr_bytechar bytechar;
    struct qr_buf work[2] = {0};
    int32_t too_long = -1;
    qr_bytechar_init(&bytechar);
    qr_buf_reserve(&d->blob, v->blob.len);
    d->text = qr_alloc((size_t)v->n_ids, sizeof *d->text);
    for (int32_t id = 0; id < v->n_ids && too_long < 0 && d->blob.len <= QR_DECODER_BLOB_MAX; id++) {
        size_t n;
        const char *s = qr_vocab_has(v, id) ? qr_vocab_content(v, id, &n) : NULL;
        if (s && !add_text(d, &bytechar, work, id, s, n))
            too_long = id;
    }
    for (int32_t i = 0; i < normalized->n && too_long < 0 && d->blob.len <= QR_DECODER_BLOB_MAX; i++) {
        const struct qr_added *a = &normalized->token[i];
        if (!add_text(d, &bytechar, work, a->id, a->text, a->len))
            too_long = a->id;
    }
    qr_buf_release(&work[0]);
    qr_buf_release(&work[1]);
    if (too_long >= 0)
        return qr_err_set(err, QR_E_TOO_LARGE, "decoder: its replacements make the text of token %d longer than %zu bytes", too_long, QR_DECODER_TEXT_MAX);
    if (d->blob.len > QR_DECODER_BLOB_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "decoder: its replacements make the vocabulary larger than %zu bytes",
                          QR_DECODER_BLOB_MAX);
    return 0;
}

/* The content of a token that is there, as decoders begin with it. */
static const char *content_of(const struct qr_tokenizer *t, int32_t id, size_t *n)
{
    QR_ASSERT(qr_vocab_has(&t->vocab, id));
    for (int32_t i = 0; i < t->normalized.n && (t->vocab.token[id].flags & QR_TOKEN_ADDED); i++)
        if (t->normalized.token[i].id == id) {
            *n = t->normalized.token[i].len;
            return t->normalized.token[i].text;
        }
    return qr_vocab_content(&t->vocab, id, n);
}

size_t qr_decoder_first(const struct qr_tokenizer *t, int32_t id, char *out)
{
    QR_ASSERT(t != NULL);
    size_t n, n_out = 0, n_mark = strlen(t->decoder.mark);
    const char *s = content_of(t, id, &n);
    for (size_t i = 0; i < n;) {
        bool is_mark = n - i >= n_mark && memcmp(s + i, t->decoder.mark, n_mark) == 0;
        if (!is_mark && out)
            out[n_out] = s[i];
        n_out += !is_mark;
        i += is_mark ? n_mark : 1;
    }
    return n_out;
}

void qr_decoder_release(struct qr_decoder *d)
{
    for (int32_t i = 0; i < d->n_ops; i++) {
        qr_free(d->op[i].from);
        qr_free(d->op[i].to);
    }
    qr_buf_release(&d->blob);
    qr_free(d->text);
    *d = (struct qr_decoder){0};
}

/* ---- whole lists ---- */

/* The tokens' texts behind one another, with `between` between two. */
static void put_texts(const struct qr_tokenizer *t, struct qr_buf *out, const int32_t *ids, int32_t n, bool skip,
                      const char *between)
{
    bool first = true;
    for (int32_t i = 0; i < n; i++) {
        if (!qr_decoder_sees(&t->vocab, ids[i], skip))
            continue;
        const struct qr_token_text *x = &t->decoder.text[ids[i]];
        if (*between && !first)
            qr_buf_put_str(out, between);
        if (x->len > 0)
            qr_buf_put(out, t->decoder.blob.data + x->off, x->len);
        first = false;
    }
}

static void decode_bytes(const struct qr_tokenizer *t, struct qr_buf *out, const int32_t *ids, int32_t n, bool skip)
{
    struct qr_buf raw = {0};
    put_texts(t, &raw, ids, n, skip, "");
    if (raw.len > 0) {
        qr_buf_reserve(out, 3 * raw.len);
        out->len += qr_utf8_lossy(out->data + out->len, raw.data, raw.len);
        out->data[out->len] = 0;
    }
    qr_buf_release(&raw);
}

/* A run of byte tokens is text when all of it is valid; otherwise each of its bytes becomes U+FFFD. */
static void end_run(struct qr_buf *out, size_t run)
{
    size_t n = out->len - run;
    if (n == 0 || qr_utf8_valid_prefix(out->data + run, n) == n)
        return;
    out->len = run;
    for (size_t i = 0; i < n; i++)
        qr_buf_put(out, REPLACEMENT, REPLACEMENT_BYTES);
}

static void decode_chain(const struct qr_tokenizer *t, struct qr_buf *out, const int32_t *ids, int32_t n, bool skip)
{
    const struct qr_decoder *d = &t->decoder;
    size_t start = out->len, run = start;
    bool first = true, in_run = false;
    for (int32_t i = 0; i < n; i++) {
        if (!qr_decoder_sees(&t->vocab, ids[i], skip))
            continue;
        const struct qr_token_text *x = &d->text[ids[i]];
        if (in_run && !x->is_byte)
            end_run(out, run);
        if (x->is_byte && !in_run)
            run = out->len;
        in_run = x->is_byte;
        if (first && d->drop_first) {
            qr_buf_reserve(out, qr_decoder_first(t, ids[i], NULL));
            out->len += qr_decoder_first(t, ids[i], out->data + out->len);
            out->data[out->len] = 0;
        } else if (x->len > 0) {
            qr_buf_put(out, d->blob.data + x->off, x->len);
        }
        first = false;
    }
    if (in_run)
        end_run(out, run);
    size_t n_strip = strlen(d->strip), cut = 0;
    for (int32_t i = 0; i < d->strip_max && out->len - start - cut >= n_strip; i++) {
        if (memcmp(out->data + start + cut, d->strip, n_strip) != 0)
            break;
        cut += n_strip;
    }
    if (cut > 0) {
        memmove(out->data + start, out->data + start + cut, out->len - start - cut);
        out->len -= cut;
        out->data[out->len] = 0;
    }
}

void qr_tokenizer_decode(const struct qr_tokenizer *t, struct qr_buf *out, const int32_t *ids, int32_t n, bool skip_special)
{
    QR_ASSERT(t != NULL && out != NULL);
    QR_ASSERT(n >= 0 && (ids != NULL || n == 0));
    switch (t->decoder.kind) {
    case QR_DECODER_BYTES: decode_bytes(t, out, ids, n, skip_special); return;
    case QR_DECODER_CHAIN: decode_chain(t, out, ids, n, skip_special); return;
    case QR_DECODER_JOIN: put_texts(t, out, ids, n, skip_special, " "); return;
    }
}
