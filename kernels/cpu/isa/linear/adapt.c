/* adapt.c - low-rank additions. Two passes over tiles of up to four rows of one group: t = x a^T, where a tile takes four rows of a at a time, and
 * out += scale * t b^T, where it takes a panel of b at a time. Each number of t and of out is one chain of additions whatever the tile's rows are. */
#include "base/assert.h"
#include "kernels/cpu/isa/isa.h"
#include "kernels/cpu/isa/simd.h"
#include "kernels/cpu/pool.h"

enum {
    TILE = 4,              /* rows, and rows of a */
    ITEM_RANKS = 8,        /* rows of a that make an item of the first pass */
    ITEM_PANELS = 16,      /* panels of b, of the second */
    ALONE = 1 << 15,       /* products that the caller has done before others have noticed them */
};

/* A tile: which rows, and what is added to them. */
struct tile {
    const struct qr_adapt_parts *parts;
    const int32_t *row;    /* [n] */
    int64_t first;         /* row of mid */
    int32_t n;
};

/* Both passes are over tiles x cuts, `cuts` of the group that has most. */
struct adapt_job {
    const struct qr_adapt_args *a;
    int32_t cuts;
};

static struct tile tile_at(const struct qr_adapt_args *a, int32_t index)
{
    int64_t first = 0;
    for (int32_t g = 0; g < a->n_groups; g++) {
        const struct qr_row_group *group = &a->group[g];
        const int32_t n = (group->n_rows + TILE - 1) / TILE, at = index * TILE;
        if (index < n)
            return (struct tile){.parts = &a->parts[group->slot], .row = group->row + at, .first = first + at,
                                 .n = group->n_rows - at < TILE ? group->n_rows - at : TILE};
        index -= n;
        first += group->n_rows;
    }
    QR_ASSERT(false && "a tile beyond the last group");
    return (struct tile){0};
}

VF_FN vf load_full(const void *p, enum qr_dtype t, int64_t i)
{
    return t == QR_F32 ? vf_load((const float *)p + i) : vf_load_bf16((const uint16_t *)p + i);
}

/* t[r][j] = x[r] . a[j] for n_rows rows (1 or TILE) and n_j <= TILE rows of a; those behind the last are the last once more. */
VF_FN void dots(float *const t[TILE], const float *const x[TILE], const void *a, enum qr_dtype dtype, int64_t n_in, int32_t n_rows, int32_t n_j)
{
    QR_UNINITIALIZED vf s[TILE][TILE];
    int64_t at[TILE], i = 0;
    for (int32_t j = 0; j < TILE; j++) {
        at[j] = (j < n_j ? j : n_j - 1) * n_in;
        for (int32_t r = 0; r < n_rows; r++)
            s[r][j] = vf_zero();
    }
    for (; i + VF_LEN <= n_in; i += VF_LEN) {
        QR_UNINITIALIZED vf v[TILE];
        for (int32_t r = 0; r < n_rows; r++)
            v[r] = vf_load(x[r] + i);
        for (int32_t j = 0; j < TILE; j++) {
            const vf w = load_full(a, dtype, at[j] + i);
            for (int32_t r = 0; r < n_rows; r++)
                s[r][j] = vf_fma(v[r], w, s[r][j]);
        }
    }
    for (int32_t j = 0; j < TILE && i < n_in; j++) {
        const vf w = vf_load_as_n(a, dtype, (size_t)(at[j] + i), n_in - i);
        for (int32_t r = 0; r < n_rows; r++)
            s[r][j] = vf_fma(vf_load_n(x[r] + i, n_in - i), w, s[r][j]);
    }
    for (int32_t r = 0; r < n_rows; r++)
        for (int32_t j = 0; j < n_j; j++)
            t[r][j] = vf_sum(s[r][j]);
}

static __attribute__((noinline)) void dots_of(const struct qr_adapt_args *a, const struct tile *tile, const void *rows, int64_t to, int32_t n_j)
{
    float *t[TILE];
    const float *x[TILE];
    for (int32_t r = 0; r < tile->n; r++) {
        t[r] = a->mid + (tile->first + r) * a->mid_stride + to;
        x[r] = a->x + tile->row[r] * a->x_stride;
    }
    if (tile->n == TILE && a->dtype == QR_F32)
        dots(t, x, rows, QR_F32, a->n_in, TILE, n_j);
    else if (tile->n == TILE)
        dots(t, x, rows, QR_BF16, a->n_in, TILE, n_j);
    else
        for (int32_t r = 0; r < tile->n; r++) {
            if (a->dtype == QR_F32)
                dots(t + r, x + r, rows, QR_F32, a->n_in, 1, n_j);
            else
                dots(t + r, x + r, rows, QR_BF16, a->n_in, 1, n_j);
        }
}

/* Numbers [cut * ITEM_RANKS, + ITEM_RANKS) of the tile's rows of t, the parts' ranks one after the other. */
static void down_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct adapt_job *job = arg;
    const struct qr_adapt_args *a = job->a;
    const struct tile tile = tile_at(a, item / job->cuts);
    const int32_t begin = item % job->cuts * ITEM_RANKS, end = begin + ITEM_RANKS;
    const int64_t row_bytes = a->n_in * (int64_t)qr_dtype_bytes(a->dtype);
    int32_t before = 0;
    for (int32_t p = 0; p < tile.parts->n; p++) {
        const struct qr_adapt_part *part = &tile.parts->part[p];
        const int32_t from = begin > before ? begin - before : 0, to = end - before < part->rank ? end - before : part->rank;
        for (int32_t j = from; j < to; j += TILE)
            dots_of(a, &tile, (const char *)part->a + j * row_bytes, before + j, to - j < TILE ? to - j : TILE);
        before += part->rank;
    }
}

/* Two vectors of outputs of n_rows rows: out += scale * sum_j t[j] b[j]. */
VF_FN void outputs(float *const out[TILE], const float *const t[TILE], const void *b, enum qr_dtype dtype, int32_t rank, float scale, int64_t len,
                   int32_t n_rows)
{
    QR_UNINITIALIZED vf s[TILE][2];
    for (int32_t r = 0; r < n_rows; r++)
        s[r][0] = s[r][1] = vf_zero();
    for (int64_t j = 0; j < rank; j++) {
        const vf w0 = load_full(b, dtype, j * QR_ADAPT_PANEL), w1 = load_full(b, dtype, j * QR_ADAPT_PANEL + VF_LEN);
        for (int32_t r = 0; r < n_rows; r++) {
            const vf v = vf_set1(t[r][j]);
            s[r][0] = vf_fma(v, w0, s[r][0]);
            s[r][1] = vf_fma(v, w1, s[r][1]);
        }
    }
    for (int32_t r = 0; r < n_rows; r++)
        for (int k = 0; k < 2 && k * VF_LEN < len; k++) {
            float *to = out[r] + k * VF_LEN;
            const int64_t n = vf_min_len(len - k * VF_LEN);
            vf_store_n(to, vf_fma(vf_set1(scale), s[r][k], vf_load_n(to, n)), n);
        }
}

static __attribute__((noinline)) void outputs_of(const struct qr_adapt_args *a, const struct tile *tile, const struct qr_adapt_part *p, int64_t mid,
                                                 int64_t first)
{
    float *out[TILE];
    const float *t[TILE];
    const int64_t len = p->n_out - first;
    const char *b = (const char *)p->b + qr_adapt_b_at(p->rank, first, 0) * (int64_t)qr_dtype_bytes(a->dtype);
    for (int32_t r = 0; r < tile->n; r++) {
        out[r] = a->out + tile->row[r] * a->out_stride + p->first + first;
        t[r] = a->mid + (tile->first + r) * a->mid_stride + mid;
    }
    if (tile->n == TILE && a->dtype == QR_F32)
        outputs(out, t, b, QR_F32, p->rank, p->scale, len, TILE);
    else if (tile->n == TILE)
        outputs(out, t, b, QR_BF16, p->rank, p->scale, len, TILE);
    else
        for (int32_t r = 0; r < tile->n; r++) {
            if (a->dtype == QR_F32)
                outputs(out + r, t + r, b, QR_F32, p->rank, p->scale, len, 1);
            else
                outputs(out + r, t + r, b, QR_BF16, p->rank, p->scale, len, 1);
        }
}

static int32_t panels_of(const struct qr_adapt_part *p)
{
    return (p->n_out + QR_ADAPT_PANEL - 1) / QR_ADAPT_PANEL;
}

/* Panels [cut * ITEM_PANELS, + ITEM_PANELS) of the parts' one after the other. */
static void up_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct adapt_job *job = arg;
    const struct qr_adapt_args *a = job->a;
    const struct tile tile = tile_at(a, item / job->cuts);
    const int32_t begin = item % job->cuts * ITEM_PANELS, end = begin + ITEM_PANELS;
    int32_t before = 0, mid = 0;
    for (int32_t p = 0; p < tile.parts->n; p++) {
        const struct qr_adapt_part *part = &tile.parts->part[p];
        const int32_t from = begin > before ? begin - before : 0, n = panels_of(part), to = end - before < n ? end - before : n;
        for (int64_t o = (int64_t)from * QR_ADAPT_PANEL; o < part->n_out && o < (int64_t)to * QR_ADAPT_PANEL; o += 2 * VF_LEN)
            outputs_of(a, &tile, part, mid, o);
        before += n;
        mid += part->rank;
    }
}

void QR_ISA_NAME(adapt)(struct qr_queue *q, const struct qr_adapt_args *a)
{
    QR_ASSERT(a != NULL && a->out != NULL && a->x != NULL && a->mid != NULL);
    QR_ASSERT(a->dtype == QR_F32 || a->dtype == QR_BF16);
    int64_t n_tiles = 0, down = 0, up = 0;
    struct adapt_job ranks = {a, 0}, panels = {a, 0};
    for (int32_t g = 0; g < a->n_groups; g++) {
        const struct qr_adapt_parts *parts = &a->parts[a->group[g].slot];
        int32_t rank = 0, n = 0;
        for (int32_t p = 0; p < parts->n; p++) {
            rank += parts->part[p].rank;
            n += panels_of(&parts->part[p]);
            up += (int64_t)a->group[g].n_rows * parts->part[p].rank * parts->part[p].n_out;
        }
        QR_ASSERT(rank <= a->mid_stride);
        down += (int64_t)a->group[g].n_rows * rank * a->n_in;
        n_tiles += (a->group[g].n_rows + TILE - 1) / TILE;
        ranks.cuts = rank > ranks.cuts ? rank : ranks.cuts;
        panels.cuts = n > panels.cuts ? n : panels.cuts;
    }
    ranks.cuts = (ranks.cuts + ITEM_RANKS - 1) / ITEM_RANKS;
    panels.cuts = (panels.cuts + ITEM_PANELS - 1) / ITEM_PANELS;
    if (down < ALONE)
        qr_queue_run_here(down_item, &ranks, n_tiles * ranks.cuts);
    else
        qr_queue_run(q, down_item, &ranks, n_tiles * ranks.cuts);
    if (up < ALONE)
        qr_queue_run_here(up_item, &panels, n_tiles * panels.cuts);
    else
        qr_queue_run(q, up_item, &panels, n_tiles * panels.cuts);
}
