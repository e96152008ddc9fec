/* bpe_learn.c - learning BPE, second part: merges. The most frequent pair is merged first; among equals the pair of
 * smaller ids, as in Hugging Face's trainer. So the same text gives the same merges and ids. A heap of pairs is updated
 * where a merge changed counts. Memory follows the number of different words. One thread. */
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/train/bpe_trainer.h"

#define ASK_EVERY 64

/* ---- pairs by their ids ---- */

static uint32_t hash_pair(int32_t left, int32_t right, uint32_t n_slots)
{
    const uint64_t h = ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) * 0x9E3779B97F4A7C15u;
    return (uint32_t)(h >> 32) & (n_slots - 1);
}

static void rehash(struct qr_bpe_trainer *b)
{
    b->n_slots = b->n_slots ? 2 * b->n_slots : 1 << 16;
    qr_free(b->slot);
    b->slot = qr_alloc(b->n_slots, sizeof *b->slot);
    for (int32_t p = 0; p < b->n_pairs; p++) {
        uint32_t i = hash_pair(b->pair[p].left, b->pair[p].right, b->n_slots);
        while (b->slot[i])
            i = (i + 1) & (b->n_slots - 1);
        b->slot[i] = p + 1;
    }
}

/* The pair's index; a pair that is not there yet is made. */
static int32_t get_pair(struct qr_bpe_trainer *b, int32_t left, int32_t right)
{
    if (2 * (uint32_t)b->n_pairs >= b->n_slots)
        rehash(b);
    uint32_t i = hash_pair(left, right, b->n_slots);
    for (; b->slot[i]; i = (i + 1) & (b->n_slots - 1)) {
        const int32_t p = b->slot[i] - 1;
        if (b->pair[p].left == left && b->pair[p].right == right)
            return p;
    }
    b->pair = QR_GROW(b->pair, b->n_pairs, b->cap_pairs);
    b->pair[b->n_pairs] = (struct qr_bpe_pair){.left = left, .right = right};
    b->slot[i] = ++b->n_pairs;
    return b->n_pairs - 1;
}

/* The pair (left, right) now begins at symbol `at`, in `count` copies of its word. */
static void pair_came(struct qr_bpe_trainer *b, int32_t left, int32_t right, int32_t at, int64_t count)
{
    const int32_t index = get_pair(b, left, right);
    struct qr_bpe_pair *p = &b->pair[index];
    p->pos = QR_GROW(p->pos, p->n, p->cap);
    p->unsorted = p->unsorted || (p->n > 0 && p->pos[p->n - 1] > at);
    p->pos[p->n++] = at;
    p->count += count;
    if (p->touched)
        return;
    p->touched = true;
    b->touched = QR_GROW(b->touched, b->n_touched, b->cap_touched);
    b->touched[b->n_touched++] = index;
}

static void pair_went(struct qr_bpe_trainer *b, int32_t left, int32_t right, int64_t count)
{
    struct qr_bpe_pair *p = &b->pair[get_pair(b, left, right)];
    p->count -= count;
}

/* ---- the heap: most occurrences first, then the smaller ids ---- */

static bool before(const struct qr_bpe_trainer *b, const struct qr_bpe_heap_item *x, const struct qr_bpe_heap_item *y)
{
    const struct qr_bpe_pair *p = &b->pair[x->pair], *q = &b->pair[y->pair];
    if (x->count != y->count)
        return x->count > y->count;
    return p->left != q->left ? p->left < q->left : p->right < q->right;
}

static void push(struct qr_bpe_trainer *b, int32_t pair)
{
    const struct qr_bpe_heap_item item = {b->pair[pair].count, pair};
    b->heap = QR_GROW(b->heap, b->n_heap, b->cap_heap);
    int64_t i = b->n_heap++;
    for (; i > 0 && before(b, &item, &b->heap[(i - 1) / 2]); i = (i - 1) / 2)
        b->heap[i] = b->heap[(i - 1) / 2];
    b->heap[i] = item;
}

static struct qr_bpe_heap_item pop(struct qr_bpe_trainer *b)
{
    const struct qr_bpe_heap_item top = b->heap[0], last = b->heap[--b->n_heap];
    int64_t i = 0;
    for (int64_t child; (child = 2 * i + 1) < b->n_heap; i = child) {
        child += child + 1 < b->n_heap && before(b, &b->heap[child + 1], &b->heap[child]);
        if (!before(b, &b->heap[child], &last))
            break;
        b->heap[i] = b->heap[child];
    }
    b->heap[i] = last;
    return top;
}

static void push_touched(struct qr_bpe_trainer *b)
{
    for (int32_t i = 0; i < b->n_touched; i++) {
        b->pair[b->touched[i]].touched = false;
        push(b, b->touched[i]);
    }
    b->n_touched = 0;
}

/* The pair with the most occurrences, or -1. What the heap says of a pair is never less than its count now. */
static int32_t best_pair(struct qr_bpe_trainer *b)
{
    while (b->n_heap > 0) {
        const struct qr_bpe_heap_item top = pop(b);
        const int64_t count = b->pair[top.pair].count;
        if (count == top.count)
            return count >= b->o.min_count ? top.pair : -1;
        if (count > 0)
            push(b, top.pair);
    }
    return -1;
}

/* ---- merging ---- */

static int make_symbols(struct qr_bpe_trainer *b, struct qr_err *err)
{
    int64_t n = 0;
    for (int32_t w = 0; w < b->n_words; w++)
        n += b->word[w].len;
    if (n == 0)
        return qr_err_set(err, QR_E_INVALID, "no text to learn from");
    if (n > INT32_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "the different words have %lld bytes together, expected at most %d; learn from a part of the text", (long long)n,
                          INT32_MAX);
    b->symbol = qr_alloc((size_t)n, sizeof *b->symbol);
    int32_t at = 0;
    for (int32_t w = 0; w < b->n_words; w++)
        for (int32_t i = 0; i < b->word[w].len; i++, at++)
            b->symbol[at] = (struct qr_bpe_symbol){.id = qr_map_find(&b->id_of, b->word[w].bytes + i, 1, -1), .prev = i > 0 ? at - 1 : -1,
                                                   .next = i + 1 < b->word[w].len ? at + 1 : -1, .word = w};
    for (int32_t i = 0; i < at; i++)
        if (b->symbol[i].next >= 0)
            pair_came(b, b->symbol[i].id, b->symbol[i + 1].id, i, b->word[b->symbol[i].word].count);
    push_touched(b);
    return 0;
}

/* Symbol `at` and the one behind it become one symbol `id`, if they still are the pair. */
static void merge_at(struct qr_bpe_trainer *b, int32_t at, int32_t left, int32_t right, int32_t id)
{
    struct qr_bpe_symbol *s = b->symbol, *first = &s[at];
    const int32_t second = first->next;
    if (first->id != left || second < 0 || s[second].id != right)
        return;
    const int64_t count = b->word[first->word].count;
    const int32_t prev = first->prev, next = s[second].next;
    if (prev >= 0) {
        pair_went(b, s[prev].id, left, count);
        pair_came(b, s[prev].id, id, prev, count);
    }
    if (next >= 0) {
        pair_went(b, right, s[next].id, count);
        pair_came(b, id, s[next].id, at, count);
        s[next].prev = at;
    }
    first->id = id;
    first->next = next;
    s[second].id = -1;
}

static int ascending(const void *a, const void *b)
{
    const int32_t x = *(const int32_t *)a, y = *(const int32_t *)b;
    return (x > y) - (x < y);
}

static void merge_all(struct qr_bpe_trainer *b, int32_t pair, int32_t id)
{
    struct qr_bpe_pair p = b->pair[pair]; /* the array may move */
    b->pair[pair].pos = NULL;
    b->pair[pair].n = b->pair[pair].cap = 0;
    b->pair[pair].unsorted = false;
    if (p.unsorted) /* a token that two pairs make; of overlapping pairs the left one is merged, whatever the order they came in */
        qsort(p.pos, (size_t)p.n, sizeof *p.pos, ascending);
    for (int32_t i = 0; i < p.n; i++)
        merge_at(b, p.pos[i], p.left, p.right, id);
    b->pair[pair].count = 0;
    qr_free(p.pos);
    push_touched(b);
}

static bool is_special_name(const struct qr_bpe_trainer *b, const char *bytes, int32_t n)
{
    struct qr_buf name = {0};
    bool found = false;
    qr_bpe_put_bytes(&name, &b->bytechar, bytes, n);
    for (int32_t i = 0; i < b->o.n_special && !found; i++)
        found = (size_t)b->token[i].len == name.len && memcmp(b->token[i].bytes, name.data, name.len) == 0;
    qr_buf_release(&name);
    return found;
}

/* The id of what a pair makes; -1 when it shall not be made. */
static int32_t id_for(struct qr_bpe_trainer *b, const struct qr_bpe_pair *p)
{
    const struct qr_bpe_token l = b->token[p->left], r = b->token[p->right];
    char bytes[2 * QR_BPE_TRAIN_TOKEN_MAX];
    const int32_t n = l.len + r.len;
    if (n > QR_BPE_TRAIN_TOKEN_MAX)
        return -1;
    memcpy(bytes, l.bytes, (size_t)l.len);
    memcpy(bytes + l.len, r.bytes, (size_t)r.len);
    const int32_t known = qr_map_find(&b->id_of, bytes, (size_t)n, -1);
    if (known >= 0 || is_special_name(b, bytes, n))
        return known;
    char *kept = qr_arena_alloc(&b->arena, (size_t)n, 1);
    memcpy(kept, bytes, (size_t)n);
    qr_map_add(&b->id_of, kept, (size_t)n, b->n_tokens);
    b->token[b->n_tokens] = (struct qr_bpe_token){kept, n};
    return b->n_tokens++;
}

static void note_merge(struct qr_bpe_trainer *b, int32_t pair)
{
    struct qr_bpe_pair *p = &b->pair[pair];
    if (p->merged) /* came about again, through a token that two pairs make */
        return;
    p->merged = true;
    b->merge = QR_GROW(b->merge, b->n_merges, b->cap_merges);
    b->merge[b->n_merges][0] = p->left;
    b->merge[b->n_merges++][1] = p->right;
}

int qr_bpe_trainer_run(struct qr_bpe_trainer *b, bool (*go_on)(void *user, int32_t n_tokens), void *user, struct qr_err *err)
{
    QR_ASSERT(b != NULL && err != NULL);
    QR_ASSERT(b->symbol == NULL);
    const int rc = make_symbols(b, err);
    if (rc != 0)
        return rc;
    for (int32_t pair; b->n_tokens < b->o.vocab_size && (pair = best_pair(b)) >= 0;) {
        const int32_t id = id_for(b, &b->pair[pair]);
        if (id < 0)
            continue;
        note_merge(b, pair);
        merge_all(b, pair, id);
        if (go_on && b->n_merges % ASK_EVERY == 0 && !go_on(user, b->n_tokens))
            return qr_err_set(err, QR_E_CLOSED, "stopped; nothing was written");
    }
    return 0;
}
