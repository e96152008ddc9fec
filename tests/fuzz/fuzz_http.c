/* fuzz_http - the header gate and llhttp: whatever the bytes, and however they are cut into reads, the same requests come out.
 * The first byte seeds the cuts; the rest is what a client sends.
 */
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/hash.h"
#include "base/rng.h"
#include "server/http_parser.h"

/* What a reader saw: a running hash over requests, heads, bodies and the end. */
struct seen {
    uint64_t hash;
    int32_t n_requests, status;
};

static void mix(struct seen *s, const void *bytes, size_t n)
{
    s->hash = qr_hash64(bytes, n, s->hash + n + 1);
}

static void mix_span(struct seen *s, struct qr_span span)
{
    mix(s, span.data ? span.data : "", span.data ? span.len : 0);
}

static void mix_head(struct seen *s, const struct qr_http_head *h)
{
    struct qr_span spans[] = {h->method, h->path, h->host, h->authorization, h->content_type, h->request_id, h->origin};
    for (int i = 0; i < QR_COUNT(spans); i++)
        mix_span(s, spans[i]);
    uint8_t flags[] = {h->http10, h->keep_alive, h->expect_continue, h->expect_other, h->chunked};
    mix(s, flags, sizeof flags);
    mix(s, &h->content_length, sizeof h->content_length);
    QR_ASSERT(h->path.len > 0 && (h->path.data[0] == '/' || h->path.data[0] == '*'));
    QR_ASSERT(h->host.data != NULL || h->http10);
    QR_ASSERT(!h->chunked || !h->http10);
}

/* False: the parser refused; nothing may be fed any more. */
static bool take(struct qr_http_parser *p, struct qr_buf *in, struct seen *s)
{
    for (;;) {
        switch (qr_http_parser_feed(p, in)) {
        case QR_HTTP_MORE: return true;
        case QR_HTTP_HEAD: mix_head(s, qr_http_parser_head(p)); break;
        case QR_HTTP_DONE:
            s->n_requests++;
            mix(s, qr_http_parser_body(p)->data ? qr_http_parser_body(p)->data : "", qr_http_parser_body(p)->len);
            break;
        case QR_HTTP_BAD:
            s->status = qr_http_parser_status(p);
            QR_ASSERT(s->status >= 400 && s->status < 600 && qr_http_parser_why(p) != NULL);
            return false;
        }
    }
}

static struct seen read_all(const uint8_t *data, size_t n, uint64_t seed, uint32_t piece_max)
{
    static const struct qr_http_limits limits = {.head = {.head_bytes_max = 1024, .fields_max = 8}, .body_bytes_max = 512};
    struct qr_http_parser *p = qr_http_parser_new(&limits);
    struct seen s = {0};
    struct qr_rng rng = {.seed = seed};
    struct qr_buf in = {0};
    for (size_t at = 0; at < n;) {
        size_t piece = piece_max == 0 ? n : 1 + qr_rng_below(&rng, piece_max);
        if (piece > n - at)
            piece = n - at;
        qr_buf_put(&in, data + at, piece);
        at += piece;
        if (!take(p, &in, &s))
            break;
    }
    qr_buf_release(&in);
    qr_http_parser_free(p);
    return s;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    if (n < 1)
        return 0;
    struct seen whole = read_all(data + 1, n - 1, 0, 0);
    for (uint32_t piece_max = 1; piece_max <= 64; piece_max *= 8) {
        struct seen cut = read_all(data + 1, n - 1, data[0], piece_max);
        QR_ASSERT(cut.n_requests == whole.n_requests);
        QR_ASSERT(cut.status == whole.status);
        QR_ASSERT(cut.hash == whole.hash);
    }
    return 0;
}
