/* pieces.h - many rows times panels of integers at level avx2, where no instruction adds up products of bytes. Included by quant.c for
 * that level alone, behind struct product and finish().
 *
 * An item takes two panels (or one of gates and that of its ups) at a time. A piece of k of each becomes what the products want in the
 * worker's scratch and stays in L1 while all rows pass by; sums wait in scratch as integers. The next piece is prefetched meanwhile.
 * All of it is exact, also modulo 2^32 in between, so the bits are those of any other way.
 *
 *   int8    x0 w0 + x1 w1 = (x0 + w1) (x1 + w0) - x0 x1 - w0 w1 (Winograd 1968): in 16 bits, two additions, a vpmaddwd and an addition
 *           make 32 products, with half of the multiplications of any other way. What is subtracted belongs to a row alone or to an
 *           output alone. Weights stay w + 128, rows of x hold x - 128.
 *   int4    vpmaddubsw of halves 0..15 and x is at most 15 * 127 * 2. So a group's 16 pairs are added in 16 bits, begun at -8 times the
 *           sum of x, where 8 * 16 * 127 is the most; once a group, vpmaddwd with the multiple makes 32 bits of them.
 *
 * Rows of x lie piece of k after piece; in a piece in blocks of equal height, or one less, up to MOST; in a block four of k of each row
 * side by side. So each pair of panels reads them from front to back.
 */
#ifndef QR_KERNELS_CPU_ISA_QUANT_PIECES_H
#define QR_KERNELS_CPU_ISA_QUANT_PIECES_H

#define PAIRS_MOST 4       /* rows of a block: int8 */
#define PAIRS_FEW 16       /* int8: launches of at most so many rows cost less as weights lie, a block at a time */
#define HALVES_MOST 6      /* int4 */
#define PIECE_BYTES 9216   /* a piece of one panel in scratch: with its neighbour little more than half of an L1 of 32 KiB */
#define OUT_AHEAD 8        /* rows of out */
#define PIECE_VECTORS 2    /* of a panel's outputs */
#define PIECE_GROUPS_MAX (PIECE_BYTES / QR_PANEL / QR_QUANT_GROUP)

/* A piece of one panel. */
struct piece {
    _Alignas(64) uint8_t w[PIECE_BYTES];          /* int8: [k / 4][odd, even][16][2] of 16 bits, int4: [k / 4][16][4] */
    int16_t multiple[PIECE_GROUPS_MAX][QR_PANEL * 2]; /* int4: twice each */
    int32_t own[QR_PANEL];                        /* int8: sums of w0 w1 */
};

/* What a worker has of its item. */
struct pieces_scratch {
    struct piece piece[QR_QUANT_PANELS];
    int32_t c[][C_STRIDE]; /* [n_rows] */
};

static int32_t block_most(const struct product *p)
{
    return p->format.bits == 4 ? HALVES_MOST : PAIRS_MOST;
}

static int32_t blocks_of(const struct product *p)
{
    return (p->n_rows + block_most(p) - 1) / block_most(p);
}

/* The first row of a block; that of the one behind the last is n_rows. */
static int32_t block_row(const struct product *p, int32_t block)
{
    const int32_t n = blocks_of(p), low = p->n_rows / n, more = p->n_rows % n;
    return block * low + (block < more ? block : more);
}

/* Inputs of a piece, but for the last, which has no more: whole groups. */
static int32_t piece_most(const struct product *p)
{
    const int32_t most = PIECE_BYTES / QR_PANEL / (p->format.bits == 4 ? 1 : 2), n = (p->n_k + most - 1) / most;
    return ((p->n_k + n - 1) / n + QR_QUANT_GROUP - 1) / QR_QUANT_GROUP * QR_QUANT_GROUP;
}

/* Where a block's part, its first row is `row`, of the piece of n_k inputs from k0 on begins: `size` bytes or numbers for each of k's `unit`s. */
static int64_t part_at(const struct product *p, int32_t row, int32_t k0, int32_t n_k, int32_t unit, int32_t size)
{
    return ((int64_t)p->n_rows * k0 + (int64_t)row * n_k) / unit * size;
}

static int32_t four_bytes(const struct product *p)
{
    return p->format.bits == 4 ? 4 : 8;
}

/* ---- rows of x ---- */

/* x - 128 of a row in 16 bits, the odd ones of four k behind the even ones, `step` bytes from four to four. Returns the sum of x0 x1. */
static int32_t spread_pairs(int8_t *dst, int64_t step, const int8_t *x, int32_t n_k)
{
    const vi apart = _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15));
    vi sum = _mm256_setzero_si256();
    for (int32_t k = 0; k < n_k; k += 16, dst += 4 * step) {
        const vi v = _mm256_cvtepi8_epi16(_mm_loadu_si128((const __m128i *)(const void *)(x + k)));
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(_mm256_and_si256(v, _mm256_set1_epi32(0xffff)), _mm256_srli_epi32(v, 16)));
        int64_t four[4];
        VI_STORE(four, _mm256_shuffle_epi8(_mm256_sub_epi16(v, _mm256_set1_epi16(128)), apart));
        for (int i = 0; i < 4; i++)
            memcpy(dst + i * step, &four[i], sizeof four[i]);
    }
    int32_t lane[8], total = 0;
    VI_STORE(lane, sum);
    for (int i = 0; i < 8; i++)
        total += lane[i];
    return total;
}

static void spread_fours(int8_t *dst, int64_t step, const int8_t *x, int32_t n_k)
{
    for (int32_t k = 0; k < n_k; k += 4, dst += step)
        memcpy(dst, x + k, 4);
}

/* One row of a block of n from row `first` on, rounded, to where it lies. */
static void spread_row(const struct product *p, const int8_t *row, const int32_t *group, int32_t first, int32_t n, int32_t r)
{
    const int32_t most = piece_most(p);
    int32_t sum = 0;
    for (int32_t k0 = 0; k0 < p->n_k; k0 += most) {
        const int32_t n_k = p->n_k - k0 < most ? p->n_k - k0 : most;
        int8_t *dst = p->x + part_at(p, first, k0, n_k, 4, four_bytes(p)) + r * four_bytes(p);
        if (p->format.bits == 4)
            spread_fours(dst, n * 4, row + k0, n_k);
        else
            sum += spread_pairs(dst, n * 8, row + k0, n_k);
        for (int32_t g = 0; p->format.bits == 4 && g < n_k / QR_QUANT_GROUP; g++)
            p->group[part_at(p, first, k0, n_k, QR_QUANT_GROUP, 1) + g * n + r] = group[k0 / QR_QUANT_GROUP + g];
    }
    p->sum[first + r] = sum;
}

/* One block of rows, rounded. */
static void round_block(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    const int32_t first = block_row(p, item), n = block_row(p, item + 1) - first;
    float *scratch = (float *)(void *)qr_queue_own(p->q, worker);
    int8_t *row = (int8_t *)(scratch + p->n_k);
    int32_t *group = (int32_t *)(void *)(row + p->n_k);
    for (int32_t r = 0; r < n; r++) {
        round_to(p, first + r, row, group, scratch);
        spread_row(p, row, group, first, n, r);
    }
}

/* ---- weights ---- */

/* w + 128 in bytes, n_k of them: the odd ones of four k in 16 bits, then the even ones; and the sums of what is multiplied by a neighbour. */
static void piece_of_8(struct piece *s, const struct qr_unpack *u, int32_t k0, int32_t n_k)
{
    const vi low_byte = _mm256_set1_epi16(255), offset = _mm256_set1_epi16(128);
    const uint8_t *w = u->w + (int64_t)k0 * QR_PANEL;
    for (int j = 0; j < PIECE_VECTORS; j++) {
        vi own = _mm256_setzero_si256();
        for (int32_t k = 0; k < n_k; k += 4) {
            const vi v = VI_LOAD(w + k * QR_PANEL + j * VI_BYTES), even = _mm256_and_si256(v, low_byte), odd = _mm256_srli_epi16(v, 8);
            own = _mm256_add_epi32(own, _mm256_madd_epi16(_mm256_sub_epi16(even, offset), _mm256_sub_epi16(odd, offset)));
            VI_STORE(s->w + k * QR_PANEL * 2 + j * VI_BYTES, odd);
            VI_STORE(s->w + k * QR_PANEL * 2 + (PIECE_VECTORS + j) * VI_BYTES, even);
        }
        VI_STORE(s->own + j * 8, own);
    }
}

static void piece_of_4(struct piece *s, const struct qr_unpack *u, int32_t k0, int32_t n_k)
{
    const vi low_half = _mm256_set1_epi8(15);
    const uint8_t *w = u->w + (int64_t)k0 * QR_PANEL / 2;
    for (int32_t g = 0; g < n_k / QR_QUANT_GROUP; g++)
        for (int j = 0; j < PIECE_VECTORS; j++)
            VI_STORE(&s->multiple[g][j * 16], twice(multiples_at(u, k0 / QR_QUANT_GROUP + g, j * VI_BYTES)));
    for (int32_t i = 0; i < n_k * QR_PANEL / 2; i += VI_BYTES) {
        const int32_t at = i / 64 * 128 + i % 64;
        const vi v = VI_LOAD(w + i);
        VI_STORE(s->w + at, _mm256_and_si256(v, low_half));
        VI_STORE(s->w + at + 64, _mm256_and_si256(_mm256_srli_epi16(v, 4), low_half));
    }
}

/* ---- products ---- */

/* A block of rows and a piece of one panel. */
struct step {
    int32_t *c;           /* [mr][C_STRIDE] */
    const int8_t *x;      /* of the block, from the piece's k on */
    const int32_t *group; /* int4: [group][mr] */
    const struct piece *piece;
    int32_t n_k;
};

VF_FN vi four_at(const int8_t *x)
{
    int32_t v;
    memcpy(&v, x, sizeof v);
    return _mm256_set1_epi32(v);
}

VF_FN void pairs_block(const int mr, const struct step *s)
{
    vi acc[PAIRS_MOST][PIECE_VECTORS];
#pragma GCC unroll 4
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int j = 0; j < PIECE_VECTORS; j++)
            acc[r][j] = _mm256_sub_epi32(VI_LOAD(s->c + r * C_STRIDE + j * 8), VI_LOAD(s->piece->own + j * 8));
    const uint8_t *w = s->piece->w;
    const int8_t *x = s->x;
    for (int32_t k = 0; k < s->n_k; k += 4, w += 128, x += 8 * mr) {
        const vi odd[PIECE_VECTORS] = {VI_LOAD(w), VI_LOAD(w + 32)}, even[PIECE_VECTORS] = {VI_LOAD(w + 64), VI_LOAD(w + 96)};
#pragma GCC unroll 4
        for (int r = 0; r < mr; r++) {
            const vi x_even = four_at(x + r * 8), x_odd = four_at(x + r * 8 + 4);
#pragma GCC unroll 2
            for (int j = 0; j < PIECE_VECTORS; j++)
                add_onto_32(&acc[r][j], _mm256_madd_epi16(_mm256_add_epi16(odd[j], x_even), _mm256_add_epi16(even[j], x_odd)));
        }
    }
#pragma GCC unroll 4
    for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
        for (int j = 0; j < PIECE_VECTORS; j++)
            VI_STORE(s->c + r * C_STRIDE + j * 8, acc[r][j]);
}

/* As add_onto_16: left to itself the compiler makes all of the first products before it adds any. */
VF_FN vi halves_begin(vi begin, vi v)
{
    vi sum;
    __asm__ volatile("vpaddw %2, %1, %0" : "=x"(sum) : "x"(begin), "x"(v));
    return sum;
}

/* A group: its sums are begun at what its rows have in common and never leave their registers. */
VF_FN void halves_group(const int mr, vi sum[][PIECE_VECTORS], const int8_t *x, const uint8_t *w, const int32_t *group)
{
#pragma GCC unroll 8
    for (int i = 0; i < QR_QUANT_GROUP / 4; i++) {
        const vi v[PIECE_VECTORS] = {VI_LOAD(w + i * 64), VI_LOAD(w + i * 64 + 32)};
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++) {
            const vi four = four_at(x + (i * mr + r) * 4);
            if (i == 0) {
                const vi begin = _mm256_set1_epi32(group[r]);
                sum[r][0] = halves_begin(begin, _mm256_maddubs_epi16(v[0], four));
                sum[r][1] = halves_begin(begin, _mm256_maddubs_epi16(v[1], four));
            } else {
                add_onto_16(&sum[r][0], _mm256_maddubs_epi16(v[0], four));
                add_onto_16(&sum[r][1], _mm256_maddubs_epi16(v[1], four));
            }
        }
    }
}

VF_FN void halves_block(const int mr, const struct step *s)
{
    const uint8_t *w = s->piece->w;
    const int8_t *x = s->x;
    const int16_t *multiple = s->piece->multiple[0];
    const int32_t *group = s->group;
    int32_t *const c = s->c;
    for (int32_t n = s->n_k / QR_QUANT_GROUP; n > 0; n--, w += QR_QUANT_GROUP * QR_PANEL, x += QR_QUANT_GROUP * mr, multiple += 2 * QR_PANEL, group += mr) {
        vi sum[HALVES_MOST][PIECE_VECTORS] QR_UNINITIALIZED;
        halves_group(mr, sum, x, w, group);
        __asm__ volatile("" ::: "memory"); /* what there is in c is read here, and not kept elsewhere in memory from group to group */
        const vi m[PIECE_VECTORS] = {VI_LOAD(multiple), VI_LOAD(multiple + 16)};
#pragma GCC unroll 6
        for (int r = 0; r < mr; r++)
#pragma GCC unroll 2
            for (int j = 0; j < PIECE_VECTORS; j++) {
                int32_t *to = c + r * C_STRIDE + j * 8;
                VI_STORE(to, _mm256_add_epi32(VI_LOAD(to), _mm256_madd_epi16(sum[r][j], m[j])));
            }
    }
}

typedef void step_fn(const struct step *s);

#define STEP(kind, mr)                                    \
    static void kind##_##mr(const struct step *s)         \
    {                                                     \
        kind##_block(mr, s);                              \
    }
STEP(pairs, 1)
STEP(pairs, 2)
STEP(pairs, 3)
STEP(pairs, 4)
STEP(halves, 1)
STEP(halves, 2)
STEP(halves, 3)
STEP(halves, 4)
STEP(halves, 5)
STEP(halves, 6)

static step_fn *step_of(const struct product *p, int32_t mr)
{
    static step_fn *const pairs[PAIRS_MOST] = {pairs_1, pairs_2, pairs_3, pairs_4};
    static step_fn *const halves[HALVES_MOST] = {halves_1, halves_2, halves_3, halves_4, halves_5, halves_6};
    QR_ASSERT(mr >= 1 && mr <= block_most(p));
    return p->format.bits == 4 ? halves[mr - 1] : pairs[mr - 1];
}

/* All rows and n pieces from k0 on, with prefetches of `ahead` [n], n_ahead bytes each. */
static void multiply_pieces(const struct product *p, struct pieces_scratch *s, int32_t n, int32_t k0, int32_t n_k, const uint8_t *const *ahead,
                            int64_t n_ahead)
{
    const int32_t n_blocks = blocks_of(p), low = p->n_rows / n_blocks, more = p->n_rows % n_blocks;
    const int64_t share = (n_ahead / n_blocks + 64) / 64 * 64, row_bytes = n_k / 4 * four_bytes(p), row_groups = n_k / QR_QUANT_GROUP;
    struct step step = {.x = p->x + part_at(p, 0, k0, n_k, 4, four_bytes(p)), .group = p->group + part_at(p, 0, k0, n_k, QR_QUANT_GROUP, 1), .n_k = n_k};
    int32_t row = 0;
    for (int32_t b = 0; b < n_blocks; b++) {
        const int32_t mr = low + (b < more);
        step_fn *fn = step_of(p, mr);
        for (int32_t j = 0; j < n; j++) {
            for (int64_t i = b * share; i < (b + 1) * share && i < n_ahead; i += 64)
                _mm_prefetch(ahead[j] + i, _MM_HINT_T0);
            step.c = s->c[row] + j * QR_PANEL;
            step.piece = &s->piece[j];
            fn(&step);
        }
        row += mr;
        step.x += mr * row_bytes;
        step.group += mr * row_groups;
    }
}

static size_t pieces_bytes(int64_t n_rows)
{
    return sizeof(struct pieces_scratch) + (size_t)n_rows * C_STRIDE * sizeof(int32_t);
}

/* What becomes of all rows' sums of n panels, some rows at a time with prefetches of the next ones' results. */
static void finish_panels(const struct product *p, const int32_t *c, int32_t panel, int32_t n)
{
    const struct qr_linear_args *a = p->a;
    for (int32_t row = 0, mr; row < p->n_rows; row += mr) {
        mr = p->n_rows - row < OUT_AHEAD ? p->n_rows - row : OUT_AHEAD;
        for (int32_t r = row + OUT_AHEAD; r < row + 2 * OUT_AHEAD && r < p->n_rows; r++)
            for (int32_t i = 0; i < n; i++)
                _mm_prefetch((const char *)(a->out + (p->row0 + r) * a->out_stride + (panel + i) * QR_PANEL), _MM_HINT_T0);
        for (int32_t i = 0; i < n; i++)
            finish(p, c + (int64_t)row * C_STRIDE + i * QR_PANEL, row, mr, panel + i, false);
    }
}

/* Panel `panel` and the next, n = 2, or one, or with a unit one of gates and that of its ups; panels from `next` on are prefetched at last. */
static void pieces_of_panels(const struct product *p, struct pieces_scratch *s, int32_t panel, int32_t n, int32_t next)
{
    const int64_t apart = (p->up ? p->up : 1) * p->panel_bytes;
    const uint8_t *packed = (const uint8_t *)p->a->w->packed;
    const int32_t most = piece_most(p);
    for (int32_t r = 0; r < p->n_rows; r++)
        for (int32_t j = 0; j < C_STRIDE; j += 8)
            VI_STORE(s->c[r] + j, _mm256_set1_epi32(p->format.bits == 4 ? 0 : -p->sum[r]));
    for (int32_t k0 = 0; k0 < p->n_k; k0 += most) {
        const int32_t n_k = p->n_k - k0 < most ? p->n_k - k0 : most;
        const bool last = k0 + most >= p->n_k;
        const uint8_t *ahead[QR_QUANT_PANELS];
        for (int32_t j = 0; j < n; j++) {
            const struct qr_unpack u = qr_unpack_of(packed + panel * p->panel_bytes + j * apart, p->head_bytes);
            if (p->format.bits == 4)
                piece_of_4(&s->piece[j], &u, k0, n_k);
            else
                piece_of_8(&s->piece[j], &u, k0, n_k);
            ahead[j] = last ? packed + next * p->panel_bytes + j * apart : u.w + (int64_t)(k0 + most) * QR_PANEL * p->format.bits / 8;
        }
        multiply_pieces(p, s, n, k0, n_k, ahead, (int64_t)n_k * QR_PANEL * p->format.bits / 8 + (last ? p->head_bytes : 0));
    }
    finish_panels(p, s->c[0], panel, p->up ? 1 : n);
}

static void pieces_item(const void *arg, int32_t item, int32_t worker)
{
    const struct product *p = arg;
    struct pieces_scratch *s = (struct pieces_scratch *)(void *)qr_queue_own(p->q, worker);
    const int32_t first = item * p->panels_per_item, end = first + p->panels_per_item < p->n_panels ? first + p->panels_per_item : p->n_panels;
    for (int32_t panel = first, n; panel < end; panel += n) {
        n = p->up || end - panel == 1 ? 1 : QR_QUANT_PANELS;
        pieces_of_panels(p, s, panel, p->up ? 2 : n, panel + n);
    }
    if (p->a->stretches)
        row_stretches(p->a, p->row0, p->n_rows, first * QR_PANEL, end * QR_PANEL);
}

#endif
