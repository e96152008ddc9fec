/* bpe.h - byte-pair encoding of one piece: symbols, then merges by rank, the leftmost first among equals.
 *
 * A piece of n symbols costs O(n log n): short ones scan an array that fits a few cache lines, long ones keep a linked
 * list and queues (bpe_long.h). The tables are immutable once built; the work space belongs to one encode call.
 * Source: Sennrich et al. 2016 (arXiv:1508.07909).
 */
#ifndef QR_TOKENIZER_BPE_H
#define QR_TOKENIZER_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "tokenizer/bytechar.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocab.h"

#define QR_MERGES_MAX (1 << 22)

struct qr_merge {
    int32_t left, right; /* left -1: an empty slot */
    int32_t id;          /* what the pair becomes */
    uint32_t rank;
};

struct qr_bpe {
    const struct qr_vocab *vocab; /* borrowed from the tokenizer */
    struct qr_merge *slot;        /* owned [n_slots]: hash of (left, right); n_slots is a power of two */
    uint32_t n_slots;
    uint64_t seed[2];
    bool byte_level;    /* a piece is bytes, each a symbol of the byte alphabet; otherwise a symbol is a character */
    bool byte_fallback; /* a character outside the vocabulary becomes <0xNN> tokens when all of its bytes have one */
    bool fuse_unk, ignore_merges;
    bool word_split;    /* no merge crosses the border in front of U+2581: words can be encoded one by one */
    int32_t unk_id;     /* -1: unknown characters vanish */
    int32_t byte_id[256];     /* byte level: the id of each byte's character, or -1 */
    int32_t ascii_id[128];    /* character level: the id of each ASCII character, or -1 */
    int32_t fallback_id[256]; /* <0xNN>, or -1 */
    struct qr_bytechar bytechar;
    struct qr_merge *special; /* owned [n_special], by id: merges that make a special token, so that they can be undone */
    int32_t n_special;
};

#define QR_BPE_SHORT_MAX 48 /* symbols up to which scanning an array beats a heap */

struct qr_bpe_short {
    int32_t id[QR_BPE_SHORT_MAX + 1], merged[QR_BPE_SHORT_MAX + 1];
    uint32_t rank[QR_BPE_SHORT_MAX + 1];
    int32_t n;
};

/* Pieces repeat: their ids are remembered for the rest of the call, in a table of fixed size where the last one wins. */
#define QR_BPE_MEMO_SLOTS 4096 /* a power of two */
#define QR_BPE_MEMO_BYTES 15
#define QR_BPE_MEMO_IDS 5
struct qr_bpe_memo {
    uint64_t key[2]; /* the piece's bytes, its length in the last; both 0: empty */
    int32_t n;
    int32_t id[QR_BPE_MEMO_IDS];
};

/* Scratch space of one encode call; grows to the longest piece. `no_special` must not change within a call. */
struct qr_bpe_work {
    struct qr_bpe_short small;
    char key[QR_TOKEN_BYTES_MAX + 2]; /* a piece in the byte alphabet */
    int32_t *sym;                     /* owned [cap_sym] */
    size_t cap_sym;
    struct qr_bpe_long *big;  /* owned; NULL until a long piece comes */
    struct qr_bpe_memo *memo; /* owned [QR_BPE_MEMO_SLOTS]; NULL until enough pieces came to be worth it */
    int32_t n_pieces;         /* counted until then */
};

/* Builds the tables from merges in rank order (merge[i].rank is ignored; a pair that comes twice takes its last rank).
 * The flags of *b are set by the caller beforehand; `vocab` must be complete, special flags included. No part of a merge is
 * an empty token. */
void qr_bpe_build(struct qr_bpe *b, const struct qr_vocab *vocab, const struct qr_merge *merge, int32_t n_merges,
                  const uint64_t seed[2]);
void qr_bpe_release(struct qr_bpe *b);

void qr_bpe_work_release(struct qr_bpe_work *w);

static inline uint32_t qr_bpe_slot(const struct qr_bpe *b, int32_t left, int32_t right)
{
    uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    unsigned __int128 product = (unsigned __int128)(key ^ b->seed[0]) * (b->seed[1] | 1);
    return (uint32_t)((uint64_t)product ^ (uint64_t)(product >> 64)) & (b->n_slots - 1);
}

/* The merge of a pair, or NULL. */
static inline const struct qr_merge *qr_bpe_find(const struct qr_bpe *b, int32_t left, int32_t right)
{
    for (uint32_t i = qr_bpe_slot(b, left, right);; i = (i + 1) & (b->n_slots - 1)) {
        const struct qr_merge *m = &b->slot[i];
        if (m->left == left && m->right == right)
            return m;
        if (m->left < 0)
            return NULL;
    }
}

/* Appends the ids of text[0..len), one piece of the pre-tokenizer: valid UTF-8 unless byte_level, len <= INT32_MAX - out->n.
 * no_special: a special token is never the result; a merge that made one is undone. */
void qr_bpe_encode(const struct qr_bpe *b, struct qr_bpe_work *w, struct qr_ids *out, const char *text, size_t len,
                   bool no_special);

#endif
