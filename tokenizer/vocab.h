/* vocab.h - token contents by id and ids by content. Contents are kept as tokenizer.json writes them (after JSON's escapes);
 * what a token decodes to is decode.h's business. Filled while the file is read, immutable afterwards.
 */
#ifndef QR_TOKENIZER_VOCAB_H
#define QR_TOKENIZER_VOCAB_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

#define QR_VOCAB_ENTRIES_MAX (1 << 20)
#define QR_TOKEN_BYTES_MAX 4096
#define QR_TOKEN_ID_MAX ((1 << 24) - 1)

enum {
    QR_TOKEN_USED = 1,
    QR_TOKEN_ADDED = 2,
    QR_TOKEN_SPECIAL = 4,
};

struct qr_token {
    uint32_t off; /* of the content in `blob` */
    uint16_t len;
    uint16_t flags;
};

struct qr_vocab_slot {
    uint32_t hash;
    int32_t id; /* -1: empty */
};

struct qr_vocab {
    struct qr_buf blob;         /* all contents, back to back */
    struct qr_token *token;     /* owned [cap_ids]; rows without QR_TOKEN_USED are holes */
    int32_t n_ids, cap_ids;     /* n_ids = largest id + 1 */
    int32_t n_tokens;
    struct qr_vocab_slot *slot; /* owned [n_slots], a power of two */
    uint32_t n_slots;
    uint64_t seed;              /* keeps a crafted file from choosing collisions */
    size_t len_max;             /* of any content, bytes */
};

enum qr_vocab_result { QR_VOCAB_ADDED, QR_VOCAB_SAME_CONTENT, QR_VOCAB_SAME_ID };

void qr_vocab_init(struct qr_vocab *v, uint64_t seed);
void qr_vocab_release(struct qr_vocab *v);

/* Adds one token; len <= QR_TOKEN_BYTES_MAX, 0 <= id <= QR_TOKEN_ID_MAX. Nothing changes unless it says QR_VOCAB_ADDED. */
enum qr_vocab_result qr_vocab_add(struct qr_vocab *v, const char *content, size_t len, int32_t id);

/* The id of the token with exactly this content, or -1. */
int32_t qr_vocab_find(const struct qr_vocab *v, const char *content, size_t len);

static inline bool qr_vocab_has(const struct qr_vocab *v, int32_t id)
{
    return id >= 0 && id < v->n_ids && (v->token[id].flags & QR_TOKEN_USED);
}

static inline bool qr_vocab_is_special(const struct qr_vocab *v, int32_t id)
{
    return id >= 0 && id < v->n_ids && (v->token[id].flags & QR_TOKEN_SPECIAL);
}

/* The content of an id that exists. */
const char *qr_vocab_content(const struct qr_vocab *v, int32_t id, size_t *len);

#endif
