/* bpe_long.c - merges of long pieces in O(n log n), whatever the text. The next pair is the one of lowest rank, the
 * leftmost among equals, so ids equal those of the short form. The work space belongs to one encode call and is kept
 * for the next. */
#include "tokenizer/bpe_long.h"

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/bpe.h"

struct node {
    int32_t id, prev, next; /* next -1: the last one */
    int32_t merge;          /* of this and the next, an index of the merge table; -1: none */
};

struct qr_bpe_long {
    struct node *node; /* owned [cap_nodes] */
    size_t cap_nodes;
    uint64_t *heap;    /* owned [cap_heap] rank << 32 | position of a pair, the least first; stale when its node's rank is another */
    size_t n_heap, cap_heap;
};

struct qr_bpe_long *qr_bpe_long_new(void)
{
    return qr_alloc(1, sizeof(struct qr_bpe_long));
}

void qr_bpe_long_free(struct qr_bpe_long *l)
{
    if (!l)
        return;
    qr_free(l->node);
    qr_free(l->heap);
    qr_free(l);
}

static void push(struct qr_bpe_long *l, uint64_t v)
{
    QR_ASSERT(l->n_heap < l->cap_heap);
    size_t i = l->n_heap++;
    for (; i > 0 && l->heap[(i - 1) / 2] > v; i = (i - 1) / 2)
        l->heap[i] = l->heap[(i - 1) / 2];
    l->heap[i] = v;
}

static uint64_t pop(struct qr_bpe_long *l)
{
    QR_ASSERT(l->n_heap > 0);
    const uint64_t top = l->heap[0], v = l->heap[--l->n_heap];
    size_t i = 0;
    for (size_t child = 1; child < l->n_heap; child = 2 * i + 1) {
        if (child + 1 < l->n_heap && l->heap[child + 1] < l->heap[child])
            child++;
        if (l->heap[child] >= v)
            break;
        l->heap[i] = l->heap[child];
        i = child;
    }
    l->heap[i] = v;
    return top;
}

/* Looks up the pair that begins at node i and queues it. */
static void queue_pair(struct qr_bpe_long *l, const struct qr_bpe *b, int32_t i)
{
    struct node *at = &l->node[i];
    const struct qr_merge *m = at->next >= 0 ? qr_bpe_find(b, at->id, l->node[at->next].id) : NULL;
    at->merge = m ? (int32_t)(m - b->slot) : -1;
    if (m)
        push(l, (uint64_t)m->rank << 32 | (uint32_t)i);
}

/* Merges the pair at node i if it still has this rank. */
static void merge_pair(struct qr_bpe_long *l, const struct qr_bpe *b, int32_t i, uint32_t rank)
{
    struct node *at = &l->node[i];
    if (at->merge < 0 || b->slot[at->merge].rank != rank)
        return;
    struct node *gone = &l->node[at->next];
    at->id = b->slot[at->merge].id;
    at->next = gone->next;
    if (at->next >= 0)
        l->node[at->next].prev = i;
    gone->merge = -1;
    if (at->prev >= 0)
        queue_pair(l, b, at->prev);
    queue_pair(l, b, i);
}

static void begin(struct qr_bpe_long *l, const int32_t *sym, int32_t n)
{
    if ((size_t)n > l->cap_nodes) {
        l->cap_nodes = (size_t)n + (size_t)n / 2;
        l->cap_heap = 3 * l->cap_nodes; /* a pair for each symbol at the start, two more for each merge */
        l->node = qr_realloc(l->node, l->cap_nodes, sizeof *l->node);
        l->heap = qr_realloc(l->heap, l->cap_heap, sizeof *l->heap);
    }
    l->n_heap = 0;
    for (int32_t i = 0; i < n; i++)
        l->node[i] = (struct node){sym[i], i - 1, i + 1 < n ? i + 1 : -1, -1};
}

int32_t qr_bpe_long_merge(struct qr_bpe_long *l, const struct qr_bpe *b, int32_t *sym, int32_t n)
{
    QR_ASSERT(l != NULL && b != NULL);
    QR_ASSERT(n >= 0 && (sym != NULL || n == 0));
    begin(l, sym, n);
    for (int32_t i = 0; i < n; i++)
        queue_pair(l, b, i);
    while (l->n_heap > 0) {
        const uint64_t next = pop(l);
        merge_pair(l, b, (int32_t)(uint32_t)next, (uint32_t)(next >> 32));
    }
    int32_t n_out = 0;
    for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = l->node[i].next)
        sym[n_out++] = l->node[i].id;
    return n_out;
}
