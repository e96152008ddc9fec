#include "comm/comm_tree.h"

#include <string.h>

#include "base/assert.h"
#include "comm/comm.h"

/* Sums go block by block, so that partial sums stay in the nearest cache. */
#define BLOCK_BYTES 8192
#define LEVELS_MAX 6 /* of inner nodes: log2(QR_COMM_RANKS_MAX) */

_Static_assert(1 << LEVELS_MAX == QR_COMM_RANKS_MAX, "a level per doubling of ranks");

struct sum {
    const void *const *in; /* borrowed */
    char *scratch;         /* borrowed: [level][left, right][BLOCK_BYTES], and one more for the top */
    size_t at, n_bytes;    /* the block, in bytes */
    enum qr_dtype t;
};

size_t qr_comm_tree_scratch(void)
{
    return ((size_t)LEVELS_MAX * 2 + 1) * BLOCK_BYTES;
}

static void add(void *out, const void *a, const void *b, enum qr_dtype t, size_t n_bytes)
{
    if (t == QR_F32) {
        const float *x = a, *y = b;
        float *restrict o = out;
        for (size_t i = 0; i < n_bytes / sizeof *o; i++)
            o[i] = x[i] + y[i];
    } else {
        const double *x = a, *y = b;
        double *restrict o = out;
        for (size_t i = 0; i < n_bytes / sizeof *o; i++)
            o[i] = x[i] + y[i];
    }
}

static int32_t cut(int32_t first, int32_t end)
{
    int32_t half = 1;
    while (2 * half < end - first)
        half *= 2;
    return first + half;
}

/* Where the block's sum over ranks [first, end) is; `room` takes it when it is not there already. */
static const void *node(const struct sum *s, int32_t first, int32_t end, int32_t level, char *room)
{
    if (end - first == 1)
        return (const char *)s->in[first] + s->at;
    const int32_t mid = cut(first, end);
    char *mine = s->scratch + (size_t)level * 2 * BLOCK_BYTES;
    const void *left = node(s, first, mid, level + 1, mine);
    const void *right = node(s, mid, end, level + 1, mine + BLOCK_BYTES);
    add(room, left, right, s->t, s->n_bytes);
    return room;
}

void qr_comm_tree_sum(void *const *out, int32_t n_outs, const void *const *in, int32_t n_ranks, enum qr_dtype t, int64_t n, void *scratch)
{
    QR_ASSERT(out != NULL && in != NULL && scratch != NULL);
    QR_ASSERT(n_ranks >= 1 && n_ranks <= QR_COMM_RANKS_MAX && n_outs >= 1);
    QR_ASSERT(t == QR_F32 || t == QR_F64);
    const size_t total = (size_t)n * qr_dtype_bytes(t);
    struct sum s = {.in = in, .scratch = scratch, .t = t};
    for (s.at = 0; s.at < total; s.at += BLOCK_BYTES) {
        s.n_bytes = total - s.at < BLOCK_BYTES ? total - s.at : BLOCK_BYTES;
        const void *sum = node(&s, 0, n_ranks, 0, s.scratch + (size_t)LEVELS_MAX * 2 * BLOCK_BYTES);
        for (int32_t r = 0; r < n_outs; r++)
            memmove((char *)out[r] + s.at, sum, s.n_bytes); /* one rank: the sum is in place already */
    }
}
