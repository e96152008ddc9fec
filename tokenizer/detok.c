/* detok.c - tokens to text one by one, as an answer is streamed. Text leaves only when no later token can change it:
 * incomplete UTF-8 and runs of byte tokens wait. All pieces together are the bytes of decoding the tokens at once
 * (tests/tokenizer). The state is the caller's, of fixed size; nothing is allocated. One thread per state. */
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"
#include "tokenizer/tok.h"

#define REPLACEMENT "\xEF\xBF\xBD"
#define REPLACEMENT_BYTES 3

/* Where a push writes; data NULL: the text is dropped (the context's). */
struct piece {
    char *data;
    size_t n;
};

static void put(struct piece *p, const void *s, size_t n)
{
    if (p->data && n > 0)
        memcpy(p->data + p->n, s, n);
    p->n += n;
}

static void put_replacement(struct piece *p)
{
    put(p, REPLACEMENT, REPLACEMENT_BYTES);
}

static void drop_tail(struct qr_detok *d, size_t n)
{
    QR_ASSERT(n <= (size_t)d->n_tail);
    d->n_tail -= (int32_t)n;
    memmove(d->tail, d->tail + n, (size_t)d->n_tail);
}

/* ---- byte level: broken UTF-8 becomes one U+FFFD for each maximal ill-formed part ---- */

/* One byte more; the tail is the beginning of a character and stays at most three bytes long. */
static void put_byte(struct qr_detok *d, struct piece *p, uint8_t byte)
{
    uint32_t cp;
    d->tail[d->n_tail++] = byte;
    if (qr_utf8_decode((const char *)d->tail, (size_t)d->n_tail, &cp) == d->n_tail) {
        put(p, d->tail, (size_t)d->n_tail);
        d->n_tail = 0;
        return;
    }
    if (qr_utf8_incomplete_tail((const char *)d->tail, (size_t)d->n_tail) == d->n_tail)
        return;
    put_replacement(p); /* what was held is ill-formed; the new byte begins anew, unless it was alone */
    bool alone = d->n_tail == 1;
    d->n_tail = 0;
    if (!alone)
        put_byte(d, p, byte);
}

static void push_bytes(struct qr_detok *d, struct piece *p, const struct qr_token_text *x)
{
    const char *s = d->t->decoder.blob.data + x->off;
    if (d->n_tail == 0 && x->is_whole) {
        put(p, s, x->len);
        return;
    }
    for (uint32_t i = 0; i < x->len; i++)
        put_byte(d, p, (uint8_t)s[i]);
}

/* ---- chain ---- */

/* Text of the fused string; its beginning may have to be stripped. */
static void put_fused(struct qr_detok *d, struct piece *p, const char *s, size_t n)
{
    size_t n_strip = strlen(d->t->decoder.strip);
    while (d->n_strip > 0 && n > 0) {
        bool stripped = n >= n_strip && memcmp(s, d->t->decoder.strip, n_strip) == 0;
        d->n_strip = stripped ? d->n_strip - 1 : 0;
        s += stripped ? n_strip : 0;
        n -= stripped ? n_strip : 0;
    }
    put(p, s, n);
}

static void put_fused_replacements(struct qr_detok *d, struct piece *p, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        put_fused(d, p, REPLACEMENT, REPLACEMENT_BYTES);
}

/* The run is over: valid as a whole it is text, otherwise each of its bytes is U+FFFD. */
static void end_run(struct qr_detok *d, struct piece *p)
{
    size_t n = (size_t)d->n_tail;
    d->broken = false;
    d->n_tail = 0;
    if (n == 0)
        return;
    if (qr_utf8_valid_prefix((const char *)d->tail, n) == n)
        put_fused(d, p, (const char *)d->tail, n);
    else
        put_fused_replacements(d, p, (int32_t)n);
}

static void push_run_byte(struct qr_detok *d, struct piece *p, uint8_t byte)
{
    if (d->broken) {
        put_fused_replacements(d, p, 1);
        return;
    }
    const char *tail = (const char *)d->tail;
    d->tail[d->n_tail++] = byte;
    size_t n = (size_t)d->n_tail, whole = qr_utf8_valid_prefix(tail, n);
    if (whole < n && qr_utf8_incomplete_tail(tail, n) != (int32_t)(n - whole)) {
        d->n_tail = 0;
        d->broken = true;
        put_fused_replacements(d, p, (int32_t)n);
    } else if (n == QR_DETOK_TAIL) {
        put_fused(d, p, tail, whole);
        drop_tail(d, whole);
    }
}

static void push_chain(struct qr_detok *d, struct piece *p, int32_t id, const struct qr_token_text *x)
{
    const char *s = d->t->decoder.blob.data + x->off;
    if (x->is_byte) {
        push_run_byte(d, p, (uint8_t)s[0]);
        return;
    }
    end_run(d, p);
    if (!d->started && d->t->decoder.drop_first)
        p->n += qr_decoder_first(d->t, id, p->data ? p->data + p->n : NULL);
    else
        put_fused(d, p, s, x->len);
}

/* ---- all kinds ---- */

static void push(struct qr_detok *d, struct piece *p, int32_t id)
{
    if (!qr_decoder_sees(&d->t->vocab, id, d->skip_special))
        return;
    const struct qr_token_text *x = &d->t->decoder.text[id];
    switch (d->t->decoder.kind) {
    case QR_DECODER_BYTES: push_bytes(d, p, x); break;
    case QR_DECODER_CHAIN: push_chain(d, p, id, x); break;
    case QR_DECODER_JOIN:
        if (d->started)
            put(p, " ", 1);
        put(p, d->t->decoder.blob.data + x->off, x->len);
        break;
    }
    d->started = true;
}

/* True when nothing is held back after this token, whatever came before it. */
static bool settles(const struct qr_detok *d, int32_t id)
{
    if (!qr_decoder_sees(&d->t->vocab, id, d->skip_special))
        return false;
    const struct qr_token_text *x = &d->t->decoder.text[id];
    return !x->is_byte && x->is_whole && x->len > 0;
}

void qr_detok_init(struct qr_detok *d, const struct qr_tokenizer *t, const int32_t *context, int32_t n_context, bool skip_special)
{
    QR_ASSERT(d != NULL && t != NULL);
    QR_ASSERT(n_context >= 0 && (context != NULL || n_context == 0));
    *d = (struct qr_detok){.t = t, .skip_special = skip_special, .n_strip = t->decoder.strip_max};
    int32_t last = n_context - 1, i = 0;
    struct piece dropped = {0};
    while (last > 0 && !settles(d, context[last]))
        last--;
    while (i < last && (!d->started || d->n_strip > 0 || dropped.n == 0)) /* the beginning of the text is dealt with */
        push(d, &dropped, context[i++]);
    for (i = i < last ? last : i; i < n_context; i++)
        push(d, &dropped, context[i]);
}

size_t qr_detok_piece_max(const struct qr_tokenizer *t)
{
    QR_ASSERT(t != NULL);
    return REPLACEMENT_BYTES * ((size_t)QR_DETOK_TAIL + t->decoder.len_max + 1);
}

size_t qr_detok_push(struct qr_detok *d, char *out, int32_t id)
{
    QR_ASSERT(d != NULL && d->t != NULL);
    QR_ASSERT(out != NULL);
    struct piece p = {.data = out};
    push(d, &p, id);
    return p.n;
}

size_t qr_detok_flush(struct qr_detok *d, char *out)
{
    QR_ASSERT(d != NULL && d->t != NULL);
    QR_ASSERT(out != NULL);
    struct piece p = {.data = out};
    if (d->t->decoder.kind == QR_DECODER_CHAIN) {
        end_run(d, &p);
    } else if (d->n_tail > 0) {
        put_replacement(&p);
        d->n_tail = 0;
    }
    return p.n;
}
