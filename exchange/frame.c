/* frame.c - encoding and decoding by one table of lengths. Bytes that were decoded and are encoded again are the same bytes; no length is believed that the
 * table does not allow. Pure; any thread. */
#include "exchange/frame.h"

#include <string.h>

#include "base/assert.h"

enum {
    HELLO_BYTES = 8 + 4 + 4 + 4 + 4 + 8 + 8 + QR_FRAME_NONCE_BYTES + QR_KV_NAME_BYTES,
    ASK_BYTES = 4 + 4 + 4 + 4 + 16 + 16,
    BLOCK_BYTES = 4 + 4 + QR_KV_NAME_BYTES + 16,
};
enum { ASK_EXPECTED = 1, ASK_COUNT = 2 };

static const char magic[8] = "quire kv";

/* Bytes of a body, by kind. */
static const struct bounds {
    uint32_t min, max;
} bounds[QR_FRAME_KINDS] = {
    [QR_FRAME_HELLO] = {HELLO_BYTES, HELLO_BYTES},
    [QR_FRAME_PROOF] = {QR_SHA256_BYTES, QR_SHA256_BYTES},
    [QR_FRAME_ASK] = {ASK_BYTES + QR_KV_NAME_BYTES, ASK_BYTES + QR_EXCHANGE_NAMES_MAX * QR_KV_NAME_BYTES + QR_FRAME_IDS_MAX * 4},
    [QR_FRAME_STATE] = {8, 8},
    [QR_FRAME_BLOCK] = {BLOCK_BYTES, BLOCK_BYTES},
    [QR_FRAME_END] = {4, 4},
    [QR_FRAME_STOP] = {0, 0},
    [QR_FRAME_DONE] = {4, 4},
    [QR_FRAME_PING] = {0, 0},
    [QR_FRAME_PONG] = {0, 0},
};

/* ---- bytes ---- */

static void put(struct qr_buf *b, const void *value, size_t n)
{
    qr_buf_put(b, value, n);
}

static void put_u32(struct qr_buf *b, uint32_t v)
{
    put(b, &v, sizeof v);
}

static uint32_t get_u32(const uint8_t **at)
{
    uint32_t v;
    memcpy(&v, *at, sizeof v);
    *at += sizeof v;
    return v;
}

static void get(void *to, const uint8_t **at, size_t n)
{
    memcpy(to, *at, n);
    *at += n;
}

/* ---- hello ---- */

static void put_hello(struct qr_buf *b, const struct qr_frame_hello *h)
{
    put(b, magic, sizeof magic);
    put_u32(b, h->version);
    put_u32(b, h->lends);
    put_u32(b, (uint32_t)h->n_shared);
    put_u32(b, 0);
    put(b, &h->stride, sizeof h->stride);
    put(b, &h->block_bytes, sizeof h->block_bytes);
    put(b, h->nonce, sizeof h->nonce);
    put(b, h->domain.byte, sizeof h->domain.byte);
}

static bool get_hello(struct qr_frame_hello *h, const uint8_t *at)
{
    if (memcmp(at, magic, sizeof magic) != 0)
        return false;
    at += sizeof magic;
    h->version = get_u32(&at);
    const uint32_t lends = get_u32(&at), n_shared = get_u32(&at), zero = get_u32(&at);
    h->lends = lends == 1;
    h->n_shared = (int32_t)n_shared;
    get(&h->stride, &at, sizeof h->stride);
    get(&h->block_bytes, &at, sizeof h->block_bytes);
    get(h->nonce, &at, sizeof h->nonce);
    get(h->domain.byte, &at, sizeof h->domain.byte);
    if (lends > 1 || zero != 0 || n_shared > QR_FRAME_SHARED_MAX || h->block_bytes < 1 || h->block_bytes > QR_FRAME_BLOCK_BYTES_MAX)
        return false;
    return n_shared == 0 ? h->stride == 0 : h->stride >= h->block_bytes && h->stride <= 2 * QR_FRAME_BLOCK_BYTES_MAX;
}

void qr_frame_prove(uint8_t out[QR_SHA256_BYTES], const void *secret, size_t n_secret, bool lender, const struct qr_frame_hello *asks,
                    const struct qr_frame_hello *lends)
{
    struct qr_buf text = {0};
    QR_ASSERT(out != NULL && (secret != NULL || n_secret == 0));
    QR_ASSERT(asks != NULL && lends != NULL);
    qr_buf_put_str(&text, lender ? "quire peer lends" : "quire peer asks.");
    put_hello(&text, asks);
    put_hello(&text, lends);
    qr_hmac_sha256(out, secret, n_secret, text.data, text.len);
    qr_buf_release(&text);
}

/* ---- ask ---- */

static void put_ask(struct qr_buf *b, const struct qr_frame_ask *a)
{
    QR_ASSERT(a->n >= 1 && a->n <= QR_EXCHANGE_NAMES_MAX);
    QR_ASSERT(a->n_ids >= 0 && a->n_ids <= QR_FRAME_IDS_MAX);
    put_u32(b, (uint32_t)a->n);
    put_u32(b, (uint32_t)a->n_ids);
    put_u32(b, (a->expected ? ASK_EXPECTED : 0) | (a->count ? ASK_COUNT : 0));
    put_u32(b, 0);
    put(b, &a->salt, sizeof a->salt);
    put(b, &a->adapter, sizeof a->adapter);
    put(b, a->names, (size_t)a->n * QR_KV_NAME_BYTES);
    put(b, a->ids, (size_t)a->n_ids * sizeof(int32_t));
}

static bool get_ask(struct qr_frame_ask *a, const uint8_t *at, uint32_t n_body)
{
    const uint32_t n = get_u32(&at), n_ids = get_u32(&at), flags = get_u32(&at), zero = get_u32(&at);
    get(&a->salt, &at, sizeof a->salt);
    get(&a->adapter, &at, sizeof a->adapter);
    if (n < 1 || n > QR_EXCHANGE_NAMES_MAX || n_ids > QR_FRAME_IDS_MAX || flags > (ASK_EXPECTED | ASK_COUNT) || zero != 0)
        return false;
    a->n = (int32_t)n;
    a->n_ids = (int32_t)n_ids;
    a->expected = flags & ASK_EXPECTED;
    a->count = flags & ASK_COUNT;
    a->names = at;
    a->ids = at + (size_t)n * QR_KV_NAME_BYTES;
    return n_body == ASK_BYTES + n * QR_KV_NAME_BYTES + n_ids * sizeof(int32_t);
}

/* ---- the others ---- */

static bool get_state(struct qr_frame *f, const uint8_t *at)
{
    const uint32_t n_there = get_u32(&at), computing = get_u32(&at);
    f->state.n_there = (int32_t)n_there;
    f->state.computing = computing == 1;
    return n_there <= QR_EXCHANGE_NAMES_MAX && computing <= 1;
}

static bool get_block(struct qr_frame *f, const uint8_t *at)
{
    const uint32_t index = get_u32(&at), number = get_u32(&at);
    f->block.index = (int32_t)index;
    f->block.number = (int32_t)number;
    get(f->block.name.byte, &at, sizeof f->block.name.byte);
    get(&f->block.sum, &at, sizeof f->block.sum);
    return index < QR_EXCHANGE_NAMES_MAX && number < QR_FRAME_SHARED_MAX;
}

static bool get_body(struct qr_frame *f, const uint8_t *at, uint32_t n_body)
{
    uint32_t v;
    switch (f->kind) {
    case QR_FRAME_HELLO:
        return get_hello(&f->hello, at);
    case QR_FRAME_PROOF:
        get(f->proof, &at, sizeof f->proof);
        return true;
    case QR_FRAME_ASK:
        return get_ask(&f->ask, at, n_body);
    case QR_FRAME_STATE:
        return get_state(f, at);
    case QR_FRAME_BLOCK:
        return get_block(f, at);
    case QR_FRAME_END:
        v = get_u32(&at);
        f->why = (enum qr_frame_why)v;
        return v < QR_END_N;
    case QR_FRAME_DONE:
        v = get_u32(&at);
        f->number = (int32_t)v;
        return v < QR_FRAME_SHARED_MAX;
    default:
        return true;
    }
}

int64_t qr_frame_decode(struct qr_frame *out, const uint8_t *bytes, size_t n, uint32_t kinds)
{
    QR_ASSERT(out != NULL && (bytes != NULL || n == 0));
    QR_ASSERT(kinds < 1u << QR_FRAME_KINDS);
    if (n < QR_FRAME_HEAD_BYTES)
        return 0;
    const uint8_t *at = bytes;
    const uint32_t kind = get_u32(&at), id = get_u32(&at), n_body = get_u32(&at);
    if (kind >= QR_FRAME_KINDS || !(kinds >> kind & 1) || n_body < bounds[kind].min || n_body > bounds[kind].max)
        return -1;
    if (n - QR_FRAME_HEAD_BYTES < n_body)
        return 0;
    *out = (struct qr_frame){.kind = (enum qr_frame_kind)kind, .id = id};
    return get_body(out, at, n_body) ? (int64_t)QR_FRAME_HEAD_BYTES + n_body : -1;
}

static void put_body(struct qr_buf *b, const struct qr_frame *f)
{
    switch (f->kind) {
    case QR_FRAME_HELLO:
        put_hello(b, &f->hello);
        return;
    case QR_FRAME_PROOF:
        put(b, f->proof, sizeof f->proof);
        return;
    case QR_FRAME_ASK:
        put_ask(b, &f->ask);
        return;
    case QR_FRAME_STATE:
        put_u32(b, (uint32_t)f->state.n_there);
        put_u32(b, f->state.computing);
        return;
    case QR_FRAME_BLOCK:
        put_u32(b, (uint32_t)f->block.index);
        put_u32(b, (uint32_t)f->block.number);
        put(b, f->block.name.byte, sizeof f->block.name.byte);
        put(b, &f->block.sum, sizeof f->block.sum);
        return;
    case QR_FRAME_END:
        put_u32(b, f->why);
        return;
    case QR_FRAME_DONE:
        put_u32(b, (uint32_t)f->number);
        return;
    default:
        return;
    }
}

void qr_frame_encode(struct qr_buf *out, const struct qr_frame *f)
{
    QR_ASSERT(out != NULL && f != NULL);
    QR_ASSERT(f->kind < QR_FRAME_KINDS);
    const size_t before = out->len;
    put_u32(out, f->kind);
    put_u32(out, f->id);
    put_u32(out, 0);
    put_body(out, f);
    const uint32_t n_body = (uint32_t)(out->len - before - QR_FRAME_HEAD_BYTES);
    QR_ASSERT(n_body >= bounds[f->kind].min && n_body <= bounds[f->kind].max);
    memcpy(out->data + before + 8, &n_body, sizeof n_body);
}
