/* bpe_trainer.h - the inside of struct qr_bpe_trainer, which learns a byte-pair vocabulary: counting, merging and
 * writing share it. Internal to tokenizer/. */
#ifndef QR_TOKENIZER_TRAIN_BPE_TRAINER_H
#define QR_TOKENIZER_TRAIN_BPE_TRAINER_H

#include "base/arena.h"
#include "base/map.h"
#include "tokenizer/train/bpe_train.h"
#include "tokenizer/bytechar.h"
#include "tokenizer/pretok.h"
#include "tokenizer/tokenizer.h"

/* A distinct piece of the text. */
struct qr_bpe_word {
    const char *bytes; /* in the arena */
    int32_t len;
    int64_t count;
};

/* A token's bytes; a special token's name. */
struct qr_bpe_token {
    const char *bytes; /* in the arena */
    int32_t len;
};

/* A symbol of a word while merging; all words lie behind one another. */
struct qr_bpe_symbol {
    int32_t id;         /* -1: merged into the one before */
    int32_t prev, next; /* in the word; -1: none */
    int32_t word;
};

struct qr_bpe_pair {
    int32_t left, right;
    int64_t count;
    int32_t *pos;       /* owned [cap]: symbols where the pair began when it came about; it may be gone */
    int32_t n, cap;
    bool unsorted, touched, merged;
};

struct qr_bpe_heap_item {
    int64_t count; /* of the pair when it was put here; it may have fallen since */
    int32_t pair;
};

struct qr_bpe_trainer {
    struct qr_bpe_train_options o; /* special, bos and eos are in the arena */
    struct qr_arena arena;
    struct qr_tokenizer *cutter;   /* owned: a tokenizer without merges, for its pre-tokenizer */
    struct qr_matcher *matcher;    /* owned */
    struct qr_pretok_work pretok;
    struct qr_bytechar bytechar;
    struct qr_map word_of;         /* bytes -> index */
    struct qr_bpe_word *word;      /* owned [cap_words] */
    int32_t n_words, cap_words;
    struct qr_map id_of;           /* a token's bytes -> id; special tokens are not in it */
    struct qr_bpe_token *token;    /* owned [o.vocab_size] */
    int32_t n_tokens;
    int32_t (*merge)[2];           /* owned [cap_merges] */
    int32_t n_merges, cap_merges;
    struct qr_bpe_symbol *symbol;  /* owned, while merging */
    struct qr_bpe_pair *pair;      /* owned [cap_pairs], while merging */
    int32_t n_pairs, cap_pairs;
    int32_t *slot;                 /* owned [n_slots]: pair + 1 by its ids; n_slots is a power of two */
    uint32_t n_slots;
    struct qr_bpe_heap_item *heap; /* owned [cap_heap] */
    int64_t n_heap, cap_heap;
    int32_t *touched;              /* owned [cap_touched]: pairs that grew in this merge */
    int32_t n_touched, cap_touched;
};

/* The "pre_tokenizer" section of a cut. */
const char *qr_bpe_cut_json(enum qr_bpe_cut cut);

/* Appends bytes as characters of the byte alphabet. */
void qr_bpe_put_bytes(struct qr_buf *out, const struct qr_bytechar *c, const char *bytes, int32_t n);

#endif
