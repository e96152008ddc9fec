/* bpe_long.c - merges of long pieces in O(n log n), whatever the text. The next pair is the one of lowest rank, the
 * leftmost among equals, so ids equal those of the short form. The work space belongs to one encode call and is kept
 * for the next. */
#include "tokenizer/bpe_long.h"

#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "tokenizer/bpe.h"

#define BUCKETS_MIN 256u
#define INSERTION_MAX 32

struct node {
    int32_t id, prev, next; /* next -1: the last one */
    int32_t merge;          /* of this and the next, an index of the merge table; -1: none */
};

/* A queued pair; stale when its node's rank is another by now. */
struct entry {
    int32_t pos, next; /* next 0: the last of its bucket; entry 0 is not used */
};

struct bucket {
    uint32_t rank; /* + 1; 0: a free slot of the table */
    int32_t head, tail; /* 0: empty */
    bool unsorted;
};

struct heap {
    uint64_t *v; /* owned [cap] */
    size_t n, cap;
};

struct qr_bpe_long {
    struct node *node;     /* owned [cap_nodes] */
    size_t cap_nodes;
    struct entry *entry;   /* owned [cap_entries] */
    int32_t n_entries;
    int32_t unused;        /* the first of the entries that are free again; 0: none */
    size_t cap_entries;
    struct bucket *bucket; /* owned [n_slots], a hash table by rank, n_slots a power of two */
    uint32_t n_slots, n_buckets;
    struct heap ranks;     /* of the buckets that are not empty */
    struct heap urgent;    /* rank << 32 | position, for ranks up to the one being worked on */
    int32_t *sorted;       /* owned [cap_sorted] */
    size_t cap_sorted;
};

struct qr_bpe_long *qr_bpe_long_new(void)
{
    struct qr_bpe_long *l = qr_alloc(1, sizeof *l);
    l->n_slots = BUCKETS_MIN;
    l->bucket = qr_alloc(l->n_slots, sizeof *l->bucket);
    return l;
}

void qr_bpe_long_free(struct qr_bpe_long *l)
{
    if (!l)
        return;
    qr_free_aligned(l->node);
    qr_free_aligned(l->entry);
    qr_free(l->bucket);
    qr_free(l->ranks.v);
    qr_free(l->urgent.v);
    qr_free(l->sorted);
    qr_free(l);
}

/* ---- heap ---- */

static void heap_push(struct heap *h, uint64_t v)
{
    if (h->n == h->cap) {
        h->cap = h->cap ? h->cap * 2 : 64;
        h->v = qr_realloc(h->v, h->cap, sizeof *h->v);
    }
    size_t i = h->n++;
    for (; i > 0 && h->v[(i - 1) / 2] > v; i = (i - 1) / 2)
        h->v[i] = h->v[(i - 1) / 2];
    h->v[i] = v;
}

static uint64_t heap_pop(struct heap *h)
{
    QR_ASSERT(h->n > 0);
    uint64_t top = h->v[0], v = h->v[--h->n];
    size_t i = 0;
    for (size_t child = 1; child < h->n; child = 2 * i + 1) {
        if (child + 1 < h->n && h->v[child + 1] < h->v[child])
            child++;
        if (h->v[child] >= v)
            break;
        h->v[i] = h->v[child];
        i = child;
    }
    h->v[i] = v;
    return top;
}

/* ---- buckets ---- */

static struct bucket *probe(const struct qr_bpe_long *l, uint32_t rank)
{
    uint32_t i = rank * 0x9E3779B1u >> 8;
    for (;; i++) {
        struct bucket *k = &l->bucket[i & (l->n_slots - 1)];
        if (k->rank == 0 || k->rank == rank + 1)
            return k;
    }
}

static void grow_buckets(struct qr_bpe_long *l)
{
    struct bucket *old = l->bucket;
    uint32_t n_old = l->n_slots;
    l->n_slots *= 2;
    l->bucket = qr_alloc(l->n_slots, sizeof *l->bucket);
    for (uint32_t i = 0; i < n_old; i++)
        if (old[i].rank)
            *probe(l, old[i].rank - 1) = old[i];
    qr_free(old);
}

static void bucket_push(struct qr_bpe_long *l, uint32_t rank, int32_t pos)
{
    if (l->n_buckets + l->n_buckets / 2 >= l->n_slots)
        grow_buckets(l);
    struct bucket *k = probe(l, rank);
    int32_t e = l->unused ? l->unused : l->n_entries++;
    QR_ASSERT((size_t)e < l->cap_entries);
    l->unused = l->unused ? l->entry[e].next : 0;
    l->entry[e] = (struct entry){.pos = pos};
    if (!k->rank) {
        *k = (struct bucket){.rank = rank + 1};
        l->n_buckets++;
    }
    if (k->tail) {
        k->unsorted = k->unsorted || pos < l->entry[k->tail].pos;
        l->entry[k->tail].next = e;
    } else {
        k->head = e;
        heap_push(&l->ranks, rank);
    }
    k->tail = e;
}

static int by_position(const void *x, const void *y)
{
    int32_t a = *(const int32_t *)x, b = *(const int32_t *)y;
    return a < b ? -1 : a > b;
}

static void sort_positions(int32_t *v, size_t n)
{
    if (n > INSERTION_MAX) {
        qsort(v, n, sizeof *v, by_position);
        return;
    }
    for (size_t i = 1; i < n; i++) {
        int32_t x = v[i];
        size_t j = i;
        for (; j > 0 && v[j - 1] > x; j--)
            v[j] = v[j - 1];
        v[j] = x;
    }
}

/* Empties the bucket; returns its first entry, positions ascending. */
static int32_t take_bucket(struct qr_bpe_long *l, uint32_t rank)
{
    struct bucket *k = probe(l, rank);
    int32_t head = k->head;
    bool unsorted = k->unsorted;
    QR_ASSERT(k->rank == rank + 1 && head > 0);
    k->head = k->tail = 0;
    k->unsorted = false;
    if (!unsorted)
        return head;
    size_t n = 0;
    for (int32_t e = head; e; e = l->entry[e].next) {
        if (n == l->cap_sorted) {
            l->cap_sorted = l->cap_sorted ? l->cap_sorted * 2 : 64;
            l->sorted = qr_realloc(l->sorted, l->cap_sorted, sizeof *l->sorted);
        }
        l->sorted[n++] = l->entry[e].pos;
    }
    sort_positions(l->sorted, n);
    n = 0;
    for (int32_t e = head; e; e = l->entry[e].next)
        l->entry[e].pos = l->sorted[n++];
    return head;
}

/* ---- merging ---- */

/* Looks up the pair that begins at node i and queues it. `current`: the rank being worked on, + 1. */
static void queue_pair(struct qr_bpe_long *l, const struct qr_bpe *b, int32_t i, uint32_t current)
{
    struct node *at = &l->node[i];
    const struct qr_merge *m = at->next >= 0 ? qr_bpe_find(b, at->id, l->node[at->next].id) : NULL;
    at->merge = m ? (int32_t)(m - b->slot) : -1;
    if (!m)
        return;
    if (m->rank < current)
        heap_push(&l->urgent, (uint64_t)m->rank << 32 | (uint32_t)i);
    else
        bucket_push(l, m->rank, i);
}

/* Merges the pair at node i if it still has this rank. */
static void merge_pair(struct qr_bpe_long *l, const struct qr_bpe *b, int32_t i, uint32_t rank, uint32_t current)
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
    if (at->prev >= 0) /* first, so that positions ascend */
        queue_pair(l, b, at->prev, current);
    queue_pair(l, b, i, current);
}

/* Works through one rank, and through whatever turns up in front of it meanwhile. */
static void merge_rank(struct qr_bpe_long *l, const struct qr_bpe *b, uint32_t rank)
{
    int32_t e = take_bucket(l, rank);
    while (e || l->urgent.n > 0) {
        uint64_t next = e ? (uint64_t)rank << 32 | (uint32_t)l->entry[e].pos : UINT64_MAX;
        if (l->urgent.n > 0 && l->urgent.v[0] < next) {
            next = heap_pop(&l->urgent);
        } else {
            int32_t done = e;
            e = l->entry[done].next;
            l->entry[done].next = l->unused; /* memory that is used again is memory that is not touched */
            l->unused = done;
        }
        merge_pair(l, b, (int32_t)(uint32_t)next, (uint32_t)(next >> 32), rank + 1);
    }
}

static void begin(struct qr_bpe_long *l, const int32_t *sym, int32_t n)
{
    if ((size_t)n > l->cap_nodes) {
        l->cap_nodes = (size_t)n + (size_t)n / 2;
        l->cap_entries = 3 * l->cap_nodes + 1; /* a pair for each symbol at the start, two more for each merge */
        QR_ASSERT(l->cap_entries <= INT32_MAX);
        qr_free_aligned(l->node);
        qr_free_aligned(l->entry);
        l->node = qr_alloc_aligned(l->cap_nodes * sizeof *l->node, 64);
        l->entry = qr_alloc_aligned(l->cap_entries * sizeof *l->entry, 64);
    }
    memset(l->bucket, 0, l->n_slots * sizeof *l->bucket);
    l->n_buckets = 0;
    l->n_entries = 1;
    l->unused = 0;
    l->ranks.n = l->urgent.n = 0;
    for (int32_t i = 0; i < n; i++)
        l->node[i] = (struct node){sym[i], i - 1, i + 1 < n ? i + 1 : -1, -1};
}

int32_t qr_bpe_long_merge(struct qr_bpe_long *l, const struct qr_bpe *b, int32_t *sym, int32_t n)
{
    QR_ASSERT(l != NULL && b != NULL);
    QR_ASSERT(n >= 0 && (sym != NULL || n == 0));
    begin(l, sym, n);
    for (int32_t i = 0; i < n; i++)
        queue_pair(l, b, i, 0);
    while (l->ranks.n > 0)
        merge_rank(l, b, (uint32_t)heap_pop(&l->ranks));
    int32_t n_out = 0;
    for (int32_t i = n > 0 ? 0 : -1; i >= 0; i = l->node[i].next)
        sym[n_out++] = l->node[i].id;
    return n_out;
}
