/* tree.h - the inside of a vocabulary (vocab.h), for the matcher that walks it.
 *
 * Tokens are in two trees. *Plain* ones are whole characters that stand for themselves inside a JSON string: where a string may go on, all
 * of them are allowed, and a mask of them is ready. The others are walked. Where a string may go on for ever, plain characters in front
 * of a token change nothing, and tokens that do not leave the string are in a mask of their own: a third tree has the *tails* of the
 * others, what is behind their plain characters, which many tokens share.
 */
#ifndef QR_ANSWERS_GRAMMAR_TREE_H
#define QR_ANSWERS_GRAMMAR_TREE_H

#include "answers/grammar/vocab.h"

#define QR_TOKEN_BYTES_MAX 512 /* longer tokens are in no tree: they are never allowed */

struct qr_tree_node {
    int32_t end;      /* the first node behind this one's subtree */
    int32_t token;    /* the token that ends here, -1: none; others follow by the tree's `next` */
    int32_t first;    /* tokens of the tree before this node, in its order */
    uint16_t depth;   /* bytes up to here */
    uint8_t byte;
    bool plain;       /* the bytes up to here are whole plain characters */
};

struct qr_tree {
    struct qr_tree_node *node; /* owned [n_nodes], depth first; node[0] is the root, without a byte */
    int32_t *token;            /* owned [n_tokens], in the order of the nodes */
    const int32_t *next;       /* borrowed [n_vocab]: of a token the next one that ends at the same node, -1: none */
    int32_t n_nodes, n_tokens;
    int32_t top[256];          /* the root's child with this byte, 0: none */
};

#define QR_PLAIN_STEPS 12
struct qr_vocab {
    const struct qr_tokenizer *tokenizer; /* borrowed; NULL: made of bytes */
    int32_t n_vocab, longest; /* longest: bytes of a token in a tree */
    char *text;               /* owned: all bytes */
    size_t n_text;
    uint32_t *at;             /* owned [n_vocab + 1]: token i is text[at[i]..at[i + 1]) */
    int32_t *same;            /* owned [n_vocab]: the next token with the same bytes, -1: none */
    uint8_t *is_end, *is_special; /* owned [n_vocab] */
    int32_t *same_tail;       /* owned [n_vocab]: the next token with the same tail, -1: none */
    struct qr_tree plain, rest, tails;
    uint32_t *all, *all_plain;/* owned: masks of all tokens in trees, and of plain ones, */
    uint32_t *all_inside;     /* and of those with which the inside of a JSON string may go on */
    int32_t *by_runes;        /* owned [plain.n_tokens]: plain tokens by their number of characters */
    int32_t n_by_runes;
    struct { int32_t runes, n; uint32_t *mask; } upto[QR_PLAIN_STEPS]; /* masks of the plain tokens of at most so many characters: by_runes[0..n) */
    int32_t n_upto;
    int32_t *end;             /* owned [n_end] */
    int32_t n_end;
};

/* ORs into mask the plain tokens of at most `runes` characters. */
void qr_vocab_plain(const struct qr_vocab *v, uint32_t *mask, int32_t runes);

static inline void qr_mask_put(uint32_t *mask, int32_t id) { mask[id >> 5] |= (uint32_t)1 << (id & 31); }
static inline bool qr_mask_has(const uint32_t *mask, int32_t id) { return mask[id >> 5] >> (id & 31) & 1; }

#endif
