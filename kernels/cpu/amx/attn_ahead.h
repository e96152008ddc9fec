/* attn_ahead.h - what decode at level amx over a bf16 cache prefetches. Included by attn_lone.h only.
 *
 * Keys and values take memory all of the time, products take it in turns with softmax. So lines are prefetched at the pace of the work:
 * an item's keys of a piece, then its values, then what comes next, run by run, and of each run all heads of the item, which lie side
 * by side. Each part of the work prefetches its share of a piece's lines. How far that is ahead of the reading is kept small, because
 * the rows of all blocks may meet in the same few sets of the caches: where a block of all layers takes a power of two of bytes, they do.
 */
#ifndef QR_KERNELS_CPU_AMX_ATTN_AHEAD_H
#define QR_KERNELS_CPU_AMX_ATTN_AHEAD_H

#include "kernels/cpu/isa/attention/tile.h"

#define FEW_STEP 32   /* positions that the heads of an item take in turns */
#define AHEAD_MIN 128 /* lines, beyond such a step */

struct ahead {
    const struct tile *t;      /* the first of an item; NULL: nothing more is known */
    const struct after *after; /* what comes behind this piece, or NULL */
    int32_t n_heads, head, which;
    int32_t pos, begin, end;   /* of the sequence */
    int32_t shift;             /* runs of 2^shift positions */
    const char *row;           /* the run's first of the first head */
    size_t run_bytes;
    const char *at, *run_end;
};

/* Heads of the item that t is the first tile of, as far as they lie side by side. */
static int32_t heads_of(const struct tile *t)
{
    const int32_t rest = t->a->kv->n_kv_heads - t->kv_head;
    return t->plan->head_parts > 1 ? 1 : t->seq->width < rest ? t->seq->width : rest;
}

static void begin_head(struct ahead *h)
{
    h->at = h->row + (size_t)h->head * h->t->plane_bytes;
    h->run_end = h->at + h->run_bytes;
}

static void begin_run(struct ahead *h)
{
    const int32_t whole = ((h->pos >> h->shift) + 1) << h->shift, n = (whole < h->end ? whole : h->end) - h->pos;
    h->row = cache_row(h->t, h->which, h->pos);
    h->run_bytes = (size_t)n * h->t->row_bytes;
    begin_head(h);
}

/* From the keys at h->begin on. */
static void begin_positions(struct ahead *h)
{
    h->which = h->head = 0;
    h->pos = h->begin;
    h->shift = run_shift(h->t);
    h->n_heads = heads_of(h->t);
    if (h->begin < h->end)
        begin_run(h);
    else
        h->t = NULL;
}

static void next_run(struct ahead *h)
{
    if (++h->head < h->n_heads) {
        begin_head(h);
        return;
    }
    h->head = 0;
    h->pos = ((h->pos >> h->shift) + 1) << h->shift;
    if (h->pos >= h->end && h->which == 0) {
        h->which = 1;
        h->pos = h->begin;
    }
    if (h->pos < h->end) {
        begin_run(h);
        return;
    }
    h->t = h->after ? h->after->t : NULL;
    if (!h->t)
        return;
    const int32_t pos = h->t->a->batch->pos[h->t->first_row], window = h->t->a->window, seen = window > 0 && pos >= window ? pos - window + 1 : 0;
    h->begin = h->after->base > seen ? h->after->base : seen;
    h->end = h->after->base + PIECE < h->t->see_max ? h->after->base + PIECE : h->t->see_max;
    h->after = NULL;
    begin_positions(h);
}

static void prefetch_lines(struct ahead *h, int32_t n)
{
    while (n > 0 && h->t) {
        for (; n > 0 && h->at < h->run_end; n--, h->at += 64)
            _mm_prefetch(h->at, _MM_HINT_T1);
        if (h->at >= h->run_end)
            next_run(h);
    }
}

/* Lines of keys and values of n positions, one head: what `share` sixteenths of them are. */
static int32_t share_of_lines(const struct tile *t, int32_t n, int32_t share)
{
    return (int32_t)((size_t)n * t->row_bytes * (size_t)share / (16 * 32));
}

/* For positions [begin, end) of the piece at `base`: what lies a step and a little further. What lies before it is prefetched already, or is read at once. */
static void begin_ahead(struct ahead *h, const struct tile *t, const struct after *after, int32_t base, int32_t begin, int32_t end)
{
    *h = (struct ahead){.t = t, .after = after, .begin = base + begin, .end = base + end};
    begin_positions(h);
    int64_t skipped = (int64_t)h->n_heads * FEW_STEP * (int64_t)t->row_bytes / 64 + AHEAD_MIN;
    while (h->t && skipped > 0) {
        const int64_t lines = (h->run_end - h->at + 63) / 64;
        if (skipped < lines) {
            h->at += skipped * 64;
            return;
        }
        skipped -= lines;
        next_run(h);
    }
}

#endif
