/* mask.c - the tokens that are allowed in a state: both trees of the vocabulary are walked with a stack of states, and a subtree is left out
 * where the state is dead. Where a JSON string may go on for ever, tokens that stay inside come from a mask that is ready, and only the
 * tails of the others are walked. A state that most characters lead to such a one differs from it in few tokens, and only these are
 * walked. A mask is kept by its state, as ids where these are few. One thread at a time. */
#include <string.h>

#include "answers/grammar/memo.h"
#include "base/assert.h"

#define FEW_IDS 512
#define WORDS_FOLLOW UINT32_MAX

static void put_token(const struct qr_tree *t, uint32_t *mask, int32_t id)
{
    for (; id >= 0; id = t->next[id])
        qr_mask_put(mask, id);
}

static int32_t last_token(const struct qr_tree *t, const struct qr_tree_node *node)
{
    return node->end < t->n_nodes ? t->node[node->end].first : t->n_tokens;
}

/* All tokens of the subtree at this node. */
static void put_subtree(const struct qr_tree *t, const struct qr_tree_node *node, uint32_t *mask)
{
    for (int32_t i = node->first; i < last_token(t, node); i++)
        put_token(t, mask, t->token[i]);
}

static void drop_subtree(const struct qr_tree *t, const struct qr_tree_node *node, uint32_t *mask)
{
    for (int32_t i = node->first; i < last_token(t, node); i++)
        for (int32_t id = t->token[i]; id >= 0; id = t->next[id])
            mask[id >> 5] &= ~((uint32_t)1 << (id & 31));
}

static int32_t step(struct qr_grammar *g, int32_t state, uint8_t byte)
{
    const int32_t cls = g->x->cls[byte], row = g->state[state].row, next = row < 0 ? -1 : g->row[row + cls];
    return next >= 0 ? next : qr_memo_next(g, state, cls);
}

/* How a tree is walked. base, where it is not DEAD: the mask begins as that of this state, to which plain characters lead back, so what is
 * behind plain characters that lead to it is right already; else the mask begins empty. */
struct walk {
    const struct qr_tree *tree;
    int32_t state, base;
};

static void walk(struct qr_grammar *g, const struct walk *w, uint32_t *mask)
{
    const struct qr_tree *t = w->tree;
    int32_t stack[QR_TOKEN_BYTES_MAX + 1] = {w->state};
    int32_t i = 1;
    while (i < t->n_nodes && !g->failed) {
        const struct qr_tree_node *node = &t->node[i];
        const int32_t next = step(g, stack[node->depth - 1], node->byte);
        const bool dead = next == QR_STATE_DEAD, free = g->state[next].free, same = !dead && next == w->base && node->plain;
        g->stats.n_nodes_walked++;
        if (dead && w->base != QR_STATE_DEAD && (node->depth > 1 || step(g, w->base, node->byte) != QR_STATE_DEAD))
            drop_subtree(t, node, mask);
        else if (free)
            put_subtree(t, node, mask);
        else if (!dead && !same && node->token >= 0)
            put_token(t, mask, node->token);
        stack[node->depth] = next;
        i = dead || free || same ? node->end : i + 1;
    }
}

/* The state to which most plain tokens lead by their first byte. */
static int32_t find_base(struct qr_grammar *g, int32_t state)
{
    const struct qr_tree *t = &g->v->plain;
    int32_t most = QR_STATE_DEAD, n = 0;
    for (int32_t i = 1; i < t->n_nodes && !g->failed; i = t->node[i].end) { /* a vote by Boyer and Moore */
        const int32_t next = step(g, state, t->node[i].byte), tokens = last_token(t, &t->node[i]) - t->node[i].first;
        if (next == most)
            n += tokens;
        else if (tokens > n) {
            most = next;
            n = tokens - n;
        } else
            n -= tokens;
    }
    return g->state[most].loops ? most : QR_STATE_DEAD;
}

static void or_all(uint32_t *mask, const uint32_t *with, size_t n)
{
    for (size_t i = 0; i < n; i++)
        mask[i] |= with[i];
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

/* Ids of the mask, counted until they are too many to be listed. */
static int32_t count(const uint32_t *mask, size_t n_words)
{
    int32_t n = 0;
    for (size_t i = 0; i < n_words && n <= FEW_IDS; i++)
        for (uint32_t bits = mask[i]; bits; bits &= bits - 1)
            n++;
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

static void fill(struct qr_grammar *g, int32_t state, uint32_t *mask);

/* Into an empty mask. */
static void compute(struct qr_grammar *g, int32_t state, uint32_t *mask)
{
    const struct qr_vocab *v = g->v;
    const size_t n_words = QR_MASK_WORDS(v->n_vocab);
    const struct qr_state s = g->state[state];
    if (s.free) {
        or_all(mask, v->all, n_words);
        return;
    }
    if (s.loops) {
        or_all(mask, v->all_inside, n_words);
        walk(g, &(struct walk){&v->tails, state, QR_STATE_DEAD}, mask);
        return;
    }
    const int32_t base = find_base(g, state);
    if (base != QR_STATE_DEAD)
        fill(g, base, mask);
    if (base == QR_STATE_DEAD && s.plain == QR_PLAIN_ALL)
        or_all(mask, v->all_plain, n_words);
    else if (base == QR_STATE_DEAD && s.plain > 0)
        qr_vocab_plain(v, mask, s.plain);
    else
        walk(g, &(struct walk){&v->plain, state, base}, mask);
    walk(g, &(struct walk){&v->rest, state, base}, mask);
}

static void fill(struct qr_grammar *g, int32_t state, uint32_t *mask)
{
    const size_t n_words = QR_MASK_WORDS(g->v->n_vocab);
    if (g->state[state].mask >= 0) {
        load(g, g->state[state].mask, mask, n_words);
        return;
    }
    compute(g, state, mask);
    if (!g->failed)
        g->state[state].mask = keep(g, mask, n_words);
}

bool qr_mask_fill(struct qr_grammar *g, int32_t state, uint32_t *mask)
{
    QR_ASSERT(g != NULL && mask != NULL);
    QR_ASSERT(state >= 0 && state < g->n_states);
    memset(mask, 0, QR_MASK_WORDS(g->v->n_vocab) * sizeof *mask);
    fill(g, state, mask);
    return !g->failed;
}
