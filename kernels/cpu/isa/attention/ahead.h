/* ahead.h - what decode at level avx2, and at amx over bf16, asks memory for before it is read. Included by parts.h and amx/attn_lone.h only.
 *
 * Keys and values take memory all of the time, products take it in turns with softmax. So lines are asked for at the pace of the work, not of what is
 * being read: an item's keys of a piece, then its values, then what comes next, run by run, and of each run all heads of the item, which lie side by
 * side. Each part of the work asks for its share of a piece's lines; how far that is ahead of the reading is kept small, because the rows of all blocks
 * may meet in the same few sets of the caches: where a block of all layers takes a power of two of bytes, they do.
 */
#ifndef QR_KERNELS_CPU_ISA_ATTENTION_AHEAD_H
#define QR_KERNELS_CPU_ISA_ATTENTION_AHEAD_H

#include "kernels/cpu/isa/attention/int8.h"
#include "kernels/cpu/isa/attention/tile.h"

/* Sixteenths of a piece's lines that are asked for while its scores, its softmaxes and its weighted values are formed: about their shares of the time. */
#define SHARE_SCORES 9
#define SHARE_SOFTMAX 1
#define SHARE_VALUES 6
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

static int32_t run_shift(const struct tile *t)
{
    const int32_t whole = __builtin_ctz(PIECE);
    return t->block_shift < whole ? t->block_shift : whole;
}

/* Heads of the item that t is the first tile of, as far as they lie side by side. */
static int32_t heads_of(const struct tile *t)
{
    const int32_t rest = t->a->kv->n_kv_heads - t->kv_head;
    return t->plan->head_parts > 1 ? 1 : t->seq->width < rest ? t->seq->width : rest;
}

/* Asks for the scales of the run's keys, and of its values, which softmax needs before them. */
static void ask_for_run_scales(const struct ahead *h)
{
    const struct tile *t = h->t;
    const size_t in = (size_t)(h->pos & (t->a->kv->block_tokens - 1)), behind = (size_t)t->a->kv->block_tokens - in;
    const char *key = h->at + behind * t->row_bytes + in * sizeof(float), *value = key + (t->plane[1] - t->plane[0]);
    for (size_t b = 0; b * t->row_bytes < h->run_bytes * sizeof(float); b += 64) {
        _mm_prefetch(key + b, _MM_HINT_T1);
        _mm_prefetch(value + b, _MM_HINT_T1);
    }
}

static void begin_head(struct ahead *h)
{
    h->at = h->row + (size_t)h->head * h->t->plane_bytes;
    h->run_end = h->at + h->run_bytes;
    if (h->which == 0 && is_int8(h->t))
        ask_for_run_scales(h);
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

/* The next n lines, or what is known of them, to `line`; returns how many. */
static inline int32_t take_lines(struct ahead *h, const char **line, int32_t n)
{
    int32_t i = 0;
    while (i < n && h->t) {
        for (; i < n && h->at < h->run_end; h->at += 64)
            line[i++] = h->at;
        if (h->at >= h->run_end)
            next_run(h);
    }
    return i;
}

static void ask_lines(struct ahead *h, int32_t n)
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

/* For positions [begin, end) of the piece at `base`: what lies a step and a little further. What lies before it has been asked for, or is read at once. */
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
