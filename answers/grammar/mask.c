/* mask.c - the tokens that are allowed in a state: both trees of the vocabulary are walked with a stack of states, and a subtree is left out
 * where the state is dead. Where any character of a JSON string may follow, plain tokens come from masks that are ready, at once or
 * for a whole subtree. A mask is kept by its state, as ids where these are few. One thread at a time. */
#include <string.h>

#include "answers/grammar/memo.h"
#include "base/assert.h"

#define FEW_IDS 512
#define WORDS_FOLLOW UINT32_MAX

static void put_token(const struct qr_vocab *v, uint32_t *mask, int32_t id)
{
    for (; id >= 0; id = v->same[id])
        qr_mask_put(mask, id);
}

static int32_t last_token(const struct qr_tree *t, const struct qr_tree_node *node)
{
    return node->end < t->n_nodes ? t->node[node->end].first : t->n_tokens;
}

/* All tokens of the subtree at this node. */
static void put_subtree(const struct qr_vocab *v, const struct qr_tree *t, const struct qr_tree_node *node, uint32_t *mask)
{
    for (int32_t i = node->first; i < last_token(t, node); i++)
        put_token(v, mask, t->token[i]);
}

static void drop_subtree(const struct qr_vocab *v, const struct qr_tree *t, const struct qr_tree_node *node, uint32_t *mask)
{
    for (int32_t i = node->first; i < last_token(t, node); i++)
        for (int32_t id = t->token[i]; id >= 0; id = v->same[id])
            mask[id >> 5] &= ~((uint32_t)1 << (id & 31));
}

static int32_t step(struct qr_grammar *g, int32_t state, uint8_t byte)
{
    const int32_t cls = g->x->cls[byte], row = g->state[state].row, next = row < 0 ? -1 : g->row[row + cls];
    return next >= 0 ? next : qr_memo_next(g, state, cls);
}

/* Any text, or any plain one, may go on from here. */
static bool is_open(const struct qr_state *s, const struct qr_tree_node *node, bool plain)
{
    return s->free || (plain && s->plain == QR_PLAIN_ALL && node->whole);
}

enum how { HOW_PUT, /* what is allowed is put into the mask */ HOW_DROP /* the mask has all, and what is not allowed leaves it */ };

/* plain: subtrees of plain tokens need no walk where a string goes on. */
static void walk(struct qr_grammar *g, const struct qr_tree *t, int32_t state, uint32_t *mask, bool plain, enum how how)
{
    int32_t stack[QR_TOKEN_BYTES_MAX + 1] = {state};
    int32_t i = 1;
    while (i < t->n_nodes && !g->failed) {
        const struct qr_tree_node *node = &t->node[i];
        const int32_t next = step(g, stack[node->depth - 1], node->byte);
        const bool dead = next == QR_STATE_DEAD, open = !dead && is_open(&g->state[next], node, plain);
        g->stats.n_nodes_walked++;
        if (dead && how == HOW_DROP)
            drop_subtree(g->v, t, node, mask);
        else if (open && how == HOW_PUT)
            put_subtree(g->v, t, node, mask);
        else if (!dead && how == HOW_PUT && node->token >= 0)
            put_token(g->v, mask, node->token);
        stack[node->depth] = next;
        i = dead || open ? node->end : i + 1;
    }
}

/* Whether behind their first byte most of the plain tokens are allowed whatever follows. */
static bool most_are_open(struct qr_grammar *g, int32_t state)
{
    const struct qr_tree *t = &g->v->plain;
    int32_t n = 0;
    for (int32_t i = 1; i < t->n_nodes && !g->failed; i = t->node[i].end) {
        const int32_t next = step(g, state, t->node[i].byte);
        if (next != QR_STATE_DEAD && is_open(&g->state[next], &t->node[i], true))
            n += last_token(t, &t->node[i]) - t->node[i].first;
    }
    return n > t->n_tokens / 2;
}

static void or_all(uint32_t *mask, const uint32_t *with, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mask[i] |= with[i];
}

static void compute(struct qr_grammar *g, int32_t state, uint32_t *mask)
{
    const struct qr_vocab *v = g->v;
    const size_t n_words = QR_MASK_WORDS(v->n_vocab);
    const struct qr_state *s = &g->state[state];
    if (s->free) {
        or_all(mask, v->all, n_words);
        return;
    }
    if (s->plain == QR_PLAIN_ALL)
        or_all(mask, v->all_plain, n_words);
    else if (s->plain > 0)
        qr_vocab_plain(v, mask, s->plain);
    else {
        const bool most = most_are_open(g, state);
        if (most)
            or_all(mask, v->all_plain, n_words);
        walk(g, &v->plain, state, mask, true, most ? HOW_DROP : HOW_PUT);
    }
    walk(g, &v->rest, state, mask, false, HOW_PUT);
}

/* ---- kept masks ---- */

static void load(const struct qr_grammar *g, int32_t at, uint32_t *mask, size_t n_words)
{
    const uint32_t n = g->word[at];
    if (n == WORDS_FOLLOW)
        memcpy(mask, g->word + at + 1, n_words * sizeof *mask);
    else
        for (uint32_t i = 0; i < n; i++)
            qr_mask_put(mask, (int32_t)g->word[at + 1 + (int32_t)i]);
}

static int32_t count(const uint32_t *mask, size_t n_words)
{
    int32_t n = 0;
    for (size_t i = 0; i < n_words; i++)
        n += __builtin_popcount(mask[i]);
    return n;
}

static int32_t keep(struct qr_grammar *g, const uint32_t *mask, size_t n_words)
{
    const int32_t n = count(mask, n_words), at = g->n_words;
    const bool few = n <= FEW_IDS;
    const int32_t needed = 1 + (few ? n : (int32_t)n_words);
    if (needed > g->cap_words - g->n_words)
        return -1;
    g->n_words += needed;
    g->stats.n_masks++;
    g->word[at] = few ? (uint32_t)n : WORDS_FOLLOW;
    if (!few)
        memcpy(g->word + at + 1, mask, n_words * sizeof *mask);
    uint32_t *id = g->word + at + 1;
    for (size_t i = 0; few && i < n_words; i++)
        for (uint32_t bits = mask[i]; bits; bits &= bits - 1)
            *id++ = (uint32_t)(i * 32) + (uint32_t)__builtin_ctz(bits);
    return at;
}

bool qr_mask_fill(struct qr_grammar *g, int32_t state, uint32_t *mask)
{
    QR_ASSERT(g != NULL && mask != NULL);
    QR_ASSERT(state >= 0 && state < g->n_states);
    const size_t n_words = QR_MASK_WORDS(g->v->n_vocab);
    memset(mask, 0, n_words * sizeof *mask);
    if (g->state[state].mask >= 0) {
        load(g, g->state[state].mask, mask, n_words);
        return true;
    }
    compute(g, state, mask);
    if (!g->failed)
        g->state[state].mask = keep(g, mask, n_words);
    return !g->failed;
}
