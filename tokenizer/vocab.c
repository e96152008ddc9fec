#include "tokenizer/vocab.h"

#include <string.h>

#include "base/assert.h"
#include "base/hash.h"
#include "base/mem.h"

#define SLOTS_MIN 1024u
#define IDS_MIN 1024

static void slots_new(struct qr_vocab *v, uint32_t n)
{
    v->slot = qr_alloc(n, sizeof *v->slot);
    v->n_slots = n;
    for (uint32_t i = 0; i < n; i++)
        v->slot[i].id = -1;
}

void qr_vocab_init(struct qr_vocab *v, uint64_t seed)
{
    QR_ASSERT(v != NULL);
    *v = (struct qr_vocab){.seed = seed};
    slots_new(v, SLOTS_MIN);
}

void qr_vocab_release(struct qr_vocab *v)
{
    qr_buf_release(&v->blob);
    qr_free(v->token);
    qr_free(v->slot);
    *v = (struct qr_vocab){0};
}

/* Stored hashes make growing cheap: no content is touched. */
static void slots_grow(struct qr_vocab *v)
{
    struct qr_vocab_slot *old = v->slot;
    uint32_t n_old = v->n_slots;
    slots_new(v, n_old * 2);
    for (uint32_t i = 0; i < n_old; i++) {
        if (old[i].id < 0)
            continue;
        uint32_t at = old[i].hash & (v->n_slots - 1);
        while (v->slot[at].id >= 0)
            at = (at + 1) & (v->n_slots - 1);
        v->slot[at] = old[i];
    }
    qr_free(old);
}

/* The slot that holds the content, or the empty one where it belongs. */
static struct qr_vocab_slot *probe(const struct qr_vocab *v, const char *content, size_t len, uint32_t hash)
{
    for (uint32_t i = hash & (v->n_slots - 1);; i = (i + 1) & (v->n_slots - 1)) {
        struct qr_vocab_slot *s = &v->slot[i];
        if (s->id < 0)
            return s;
        const struct qr_token *t = &v->token[s->id];
        if (s->hash == hash && t->len == len && memcmp(v->blob.data + t->off, content, len) == 0)
            return s;
    }
}

static void ids_reserve(struct qr_vocab *v, int32_t id)
{
    if (id >= v->cap_ids) {
        int32_t cap = v->cap_ids < IDS_MIN ? IDS_MIN : v->cap_ids;
        while (cap <= id)
            cap *= 2;
        struct qr_token *token = qr_alloc((size_t)cap, sizeof *token);
        if (v->n_ids > 0)
            memcpy(token, v->token, (size_t)v->n_ids * sizeof *token);
        qr_free(v->token);
        v->token = token;
        v->cap_ids = cap;
    }
    if (id >= v->n_ids)
        v->n_ids = id + 1;
}

enum qr_vocab_result qr_vocab_add(struct qr_vocab *v, const char *content, size_t len, int32_t id)
{
    QR_ASSERT(content != NULL && len <= QR_TOKEN_BYTES_MAX);
    QR_ASSERT(id >= 0 && id <= QR_TOKEN_ID_MAX);
    QR_ASSERT(v->blob.len + len < UINT32_MAX);
    if (qr_vocab_has(v, id))
        return QR_VOCAB_SAME_ID;
    if ((uint32_t)v->n_tokens + (uint32_t)v->n_tokens / 2 >= v->n_slots)
        slots_grow(v);
    uint32_t hash = (uint32_t)qr_hash64(content, len, v->seed);
    struct qr_vocab_slot *s = probe(v, content, len, hash);
    if (s->id >= 0)
        return QR_VOCAB_SAME_CONTENT;
    ids_reserve(v, id);
    v->token[id] = (struct qr_token){.off = (uint32_t)v->blob.len, .len = (uint16_t)len, .flags = QR_TOKEN_USED};
    *s = (struct qr_vocab_slot){.hash = hash, .id = id};
    qr_buf_put(&v->blob, content, len);
    v->n_tokens++;
    if (len > v->len_max)
        v->len_max = len;
    return QR_VOCAB_ADDED;
}

int32_t qr_vocab_find(const struct qr_vocab *v, const char *content, size_t len)
{
    QR_ASSERT(v->slot != NULL);
    QR_ASSERT(content != NULL || len == 0);
    if (len > v->len_max)
        return -1;
    return probe(v, content, len, (uint32_t)qr_hash64(content, len, v->seed))->id;
}

const char *qr_vocab_content(const struct qr_vocab *v, int32_t id, size_t *len)
{
    QR_ASSERT(qr_vocab_has(v, id));
    QR_ASSERT(len != NULL);
    *len = v->token[id].len;
    return v->blob.data + v->token[id].off;
}
