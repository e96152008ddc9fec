/* pieces.h - level avx2's products of float weights with several rows, blocked for its caches. Included by linear.c only, behind
 * struct product.
 *
 * 16 registers hold the sums of 6 rows and 16 outputs, two vectors of weights and a number of x. What such a block reads must come
 * from L1 (32 KB). So an item's sums are formed a piece of k at a time, for up to TILE_ROWS_MAX rows and TILE_SLOTS panels, and
 * wait in f32, unrounded, in a tile. A panel's piece (16 KB) stays in L1 while blocks of rows pass by; the first block widens bf16
 * to floats, which the others read. A group's rows of a piece (96 KB) stay in L2 while its panels pass by.
 *
 * x lies as [piece][block][k][mr], so that blocks of a piece are one stream. Every output is one chain of fused multiply-adds in the
 * order of k, as in micro.c. */
#define PIECE_INPUTS 256
#define PIECE_ROWS_MIN 4      /* with fewer rows blocks of several panels read all of k: memory is what they wait for */
#define TILE_ROWS_MAX 96
#define TILE_SLOTS 8          /* panels of a tile; with a unit those of its ups lie behind the ones of its gates */
#define WIDEN_BLOCKS 2        /* of rows, and more of them: bf16 is left as floats for all but the first */
#define OUT_AHEAD 8           /* rows of out */
#define SHARE_AHEAD 4         /* first blocks that prefetch the next piece of weights, a share each */
#define PIECE_STEP 8          /* inputs between two prefetches: a shared core has few operations to spare beside products */

/* Inputs of a piece: all but the last have as many. */
static int32_t piece_inputs(const struct product *p)
{
    if (p->q16)
        return GEMM_INPUTS;
    const int32_t n = (p->n_in + PIECE_INPUTS - 1) / PIECE_INPUTS;
    return ((p->n_in + n - 1) / n + 15) / 16 * 16;
}

/* ---- x ---- */

/* Row `row` of x from k on, up to VF_LEN numbers, as the product takes it. */
VF_FN vf x_at(const struct product *p, int64_t row, int32_t k, vf inverse)
{
    const struct qr_linear_args *a = p->a;
    const int64_t n = vf_min_len(a->n_in - k);
    vf v = vf_load_n(a->x + row * a->x_stride + k, n);
    if (a->norm_w)
        v = vf_mul(vf_mul(v, inverse), vf_load_n(a->norm_w + k, n));
    return p->bf16 ? vf_round_bf16(v) : v;
}

/* Inputs [k0, k0 + n_k) of mr rows: [n_k][mr]. Whole vectors are stored where what is behind a column is written next. */
static void pack_piece(const struct product *p, float *dst, int64_t row, int32_t mr, int32_t k0, int32_t n_k, const vf *inverse)
{
    for (int32_t k = 0; k < n_k; k += VF_LEN) {
        const int32_t n = (int32_t)vf_min_len(n_k - k);
        vf v[VF_LEN] QR_UNINITIALIZED;
        for (int32_t r = 0; r < VF_LEN; r++)
            v[r] = r < mr ? x_at(p, row + r, k0 + k, inverse[r]) : vf_zero();
        vf_transpose(v);
        for (int32_t i = 0; i < n; i++) {
            float *to = dst + (k + i) * mr;
            if ((k + i) * mr + VF_LEN <= n_k * mr)
                vf_store(to, v[i]);
            else
                memcpy(to, &v[i], (size_t)mr * sizeof *to);
        }
    }
}

/* Few rows: row r of the chunk as integers, 32 inputs and more of these; behind all rows a single one's bytes. */
static struct q16_x *q16_row(const struct product *p, int32_t r)
{
    return (struct q16_x *)(void *)p->packed + (int64_t)r * q16_units(p->a->n_in);
}

static struct q16_bytes *q16_row_bytes(const struct product *p)
{
    return (struct q16_bytes *)(void *)q16_row(p, 1);
}

/* What row `row` of x is multiplied by before the norm's weights: as the level has it that asked. */
static vf q16_inverse(const struct product *p, int64_t row)
{
    const struct qr_linear_args *a = p->a;
    return a->norm_w ? vf_set1(1.0f / sqrtf(p->q16->sum_of_squares(a->x + row * a->x_stride, a->n_in) / (float)a->n_in + a->eps)) : vf_zero();
}

static void q16_pack_rows(const struct product *p, int32_t first, int32_t n)
{
    const int32_t n_units = q16_units(p->a->n_in);
    for (int32_t r = first; r < first + n; r++) {
        const int64_t row = p->row0 + r;
        struct q16_x *to = q16_row(p, r);
        const vf inverse = q16_inverse(p, row);
        for (int32_t u = 0; u < n_units; u++) {
            vf v[4] QR_UNINITIALIZED;
#pragma GCC unroll 4
            for (int32_t i = 0; i < 4; i++) {
                const int32_t k = u * Q16_K + i * VF_LEN;
                v[i] = k < p->a->n_in ? x_at(p, row, k, inverse) : vf_zero();
            }
            q16_x_make(&to[u], v);
            if (p->n_rows == 1)
                q16_bytes_make(&q16_row_bytes(p)[u], &to[u]);
        }
    }
}

/* Where many rows' x begins from row `first` on, in the piece of n_units that begins with `unit`. */
static int32_t *gemm_rows(const struct product *p, int32_t first, int32_t unit, int32_t n_units)
{
    return (int32_t *)(void *)p->packed + ((int64_t)unit * p->n_rows + (int64_t)first * n_units) * GEMM_X;
}

/* Units of the piece that begins with `unit`. */
static int32_t gemm_units(const struct product *p, int32_t unit)
{
    const int32_t left = q16_units(p->a->n_in) - unit, most = GEMM_INPUTS / Q16_K;
    return left < most ? left : most;
}

static void gemm_pack_rows(const struct product *p, int32_t first, int32_t mr)
{
    const int32_t n_units = q16_units(p->a->n_in);
    const bool short_run = q16_run(&p->coded) < Q16_K;
    vf inverse[GEMM_ROWS];
    for (int32_t r = 0; r < mr; r++)
        inverse[r] = q16_inverse(p, p->row0 + first + r);
    for (int32_t u0 = 0, n; u0 < n_units; u0 += n) {
        n = gemm_units(p, u0);
        int32_t *to = gemm_rows(p, first, u0, n);
        for (int32_t u = u0; u < u0 + n; u++, to += GEMM_X * mr) {
            struct q16_x units[GEMM_ROWS] QR_UNINITIALIZED;
            for (int32_t r = 0; r < mr; r++) {
                vf v[4] QR_UNINITIALIZED;
#pragma GCC unroll 4
                for (int32_t i = 0; i < 4; i++) {
                    const int32_t k = u * Q16_K + i * VF_LEN;
                    v[i] = k < p->a->n_in ? x_at(p, p->row0 + first + r, k, inverse[r]) : vf_zero();
                }
                q16_x_make(&units[r], v);
            }
            gemm_x_make(to, units, mr, short_run);
        }
    }
}

static void pack_block(const void *arg, int32_t b, int32_t worker)
{
    (void)worker;
    const struct product *p = arg;
    const int32_t first = block_first(p, b), mr = block_first(p, b + 1) - first, most = piece_inputs(p);
    const int64_t row = p->row0 + first;
    if (p->q16 && p->n_rows >= Q16_ROWS_MIN) {
        gemm_pack_rows(p, first, mr);
        return;
    }
    if (p->q16) {
        q16_pack_rows(p, first, mr);
        return;
    }
    vf inverse[VF_LEN];
    for (int32_t r = 0; r < mr; r++)
        inverse[r] = p->a->norm_w ? row_inverse_rms(p->a->x + (row + r) * p->a->x_stride, p->a->n_in, p->a->eps) : vf_zero();
    for (int32_t k0 = 0, n_k; k0 < p->n_in; k0 += n_k) {
        n_k = p->n_in - k0 < most ? p->n_in - k0 : most;
        float *dst = p->packed + (int64_t)k0 * p->n_rows + (int64_t)first * n_k;
        if (mr > 1) {
            pack_piece(p, dst, row, mr, k0, n_k, inverse);
            continue;
        }
        for (int32_t k = 0; k < n_k; k += VF_LEN)
            vf_store_n(dst + k, x_at(p, row, k0 + k, inverse[0]), vf_min_len(n_k - k));
    }
}

/* ---- blocks ---- */

struct piece_args {
    float *c;             /* [mr][QR_PANEL]: sums; read first when `onto` */
    const float *x;       /* [n_k][mr] */
    const char *w;        /* [n_k][QR_PANEL] floats, or pairs of bf16 */
    float *wide;          /* where bf16 is left as floats */
    const char *next;     /* weights to prefetch: next_lines of 64 bytes for PIECE_STEP inputs */
    int32_t next_lines;
    int32_t n_k;
    bool onto;
};
typedef void piece_fn(const struct piece_args *m);
enum piece_kind { PIECE_F32, PIECE_BF16, PIECE_WIDEN, PIECE_KINDS };

/* sum += x w where the sum lies. Left to itself the compiler has products of 6 rows move between registers, and some of them to memory and back. */
VF_FN void piece_add(vf *sum, vf x, vf w)
{
    __asm__ volatile("vfmadd231ps %2, %1, %0" : "+x"(*sum) : "x"(x), "x"(w));
}

VF_FN void piece_step(const int mr, vf *acc, const float *x, vf w0, vf w1)
{
#pragma GCC unroll 6
    for (int r = 0; r < mr; r++) {
        const vf xv = vf_set1(x[r]);
        piece_add(&acc[2 * r], xv, w0);
        piece_add(&acc[2 * r + 1], xv, w1);
    }
}

/* Two inputs. */
VF_FN void piece_two(const enum piece_kind kind, const int mr, vf *acc, const float *x, const char *w, float *wide)
{
#pragma GCC unroll 2
    for (int second = 0; second < 2; second++) {
        if (kind == PIECE_F32) {
            const float *at = (const float *)(const void *)w + second * QR_PANEL;
            piece_step(mr, acc, x + second * mr, vf_load(at), vf_load(at + VF_LEN));
            continue;
        }
        if (second)
            __asm__ volatile("" ::: "memory"); /* pairs are read again, there is no room for them meanwhile */
        const vpairs p0 = vf_load_pairs(w), p1 = vf_load_pairs(w + VF_LEN * 4);
        const vf w0 = second ? vf_pairs_second(p0) : vf_pairs_first(p0), w1 = second ? vf_pairs_second(p1) : vf_pairs_first(p1);
        if (kind == PIECE_WIDEN) {
            vf_store(wide + second * QR_PANEL, w0);
            vf_store(wide + second * QR_PANEL + VF_LEN, w1);
        }
        piece_step(mr, acc, x + second * mr, w0, w1);
    }
}

VF_FN void piece_block(const enum piece_kind kind, const int mr, const struct piece_args *m)
{
    const int two_bytes = 2 * QR_PANEL * (kind == PIECE_F32 ? 4 : 2);
    vf acc[12];
    float *const c = m->c, *wide = m->wide;
#pragma GCC unroll 12
    for (int i = 0; i < 2 * mr; i++)
        acc[i] = m->onto ? vf_load(c + i * VF_LEN) : vf_zero();
    const float *x = m->x;
    const char *w = m->w, *next = m->next;
    for (int32_t n = m->n_k / PIECE_STEP; n > 0; n--) {
        for (int32_t i = m->next_lines; i > 0; i--, next += 64)
            _mm_prefetch(next, _MM_HINT_T0);
#pragma GCC unroll 4
        for (int i = 0; i < PIECE_STEP / 2; i++)
            piece_two(kind, mr, acc, x + i * 2 * mr, w + i * two_bytes, wide + i * 2 * QR_PANEL);
        x += PIECE_STEP * mr;
        w += PIECE_STEP / 2 * two_bytes;
        wide += PIECE_STEP * QR_PANEL;
    }
    for (int32_t n = m->n_k % PIECE_STEP / 2; n > 0; n--, x += 2 * mr, w += two_bytes, wide += 2 * QR_PANEL)
        piece_two(kind, mr, acc, x, w, wide);
    if (kind == PIECE_F32 && m->n_k % 2)
        piece_step(mr, acc, x, vf_load((const float *)(const void *)w), vf_load((const float *)(const void *)w + VF_LEN));
#pragma GCC unroll 12
    for (int i = 0; i < 2 * mr; i++)
        vf_store(c + i * VF_LEN, acc[i]);
}

#define PIECE_BLOCK(kind, mr)                                             \
    static void piece_block_##kind##_##mr(const struct piece_args *m)     \
    {                                                                     \
        piece_block(PIECE_##kind, mr, m);                                 \
    }
#define FOR_PIECE_BLOCKS(DO, kind) DO(kind, 1) DO(kind, 2) DO(kind, 3) DO(kind, 4) DO(kind, 5) DO(kind, 6)
#define PIECE_ENTRY(kind, mr) [PIECE_##kind][mr] = piece_block_##kind##_##mr,

FOR_PIECE_BLOCKS(PIECE_BLOCK, F32)
FOR_PIECE_BLOCKS(PIECE_BLOCK, BF16)
FOR_PIECE_BLOCKS(PIECE_BLOCK, WIDEN)

static piece_fn *const piece_blocks[PIECE_KINDS][7] = {
    FOR_PIECE_BLOCKS(PIECE_ENTRY, F32) FOR_PIECE_BLOCKS(PIECE_ENTRY, BF16) FOR_PIECE_BLOCKS(PIECE_ENTRY, WIDEN)
};

/* ---- tiles ---- */

/* Some panels against some blocks of rows. */
struct piece_tile {
    const struct product *p;
    const char *w;               /* of panel first_panel */
    size_t w_up, w_next;         /* bytes from a panel to that of its ups, and to the next */
    int32_t first_panel, n_panels;
    int32_t n_slots;             /* panels, and those of their ups */
    int32_t n_blocks;
    int32_t block[TILE_ROWS_MAX / 4 + 1]; /* first row of each, and behind the last */
    _Alignas(64) float sums[TILE_SLOTS][TILE_ROWS_MAX][QR_PANEL];
    union {
        _Alignas(64) float wide[PIECE_INPUTS * QR_PANEL];
        struct gemm_piece codes; /* of coded weights */
    };
};

static const char *slot_at(const struct piece_tile *t, int32_t slot, int32_t k)
{
    const size_t at = t->p->up ? (size_t)(slot / 2) * t->w_next + (size_t)(slot % 2) * t->w_up : (size_t)slot * t->w_next;
    return t->w + at + (size_t)k * QR_PANEL * (t->p->bf16 ? 2 : 4);
}

/* Inputs [k0, k0 + n_k) of one panel and all blocks, of which the first ones prefetch the piece that comes next. */
static void multiply_piece(struct piece_tile *t, int32_t slot, int32_t k0, int32_t n_k)
{
    const struct product *p = t->p;
    const int32_t n_blocks = t->n_blocks, n_share = n_blocks < SHARE_AHEAD ? n_blocks : SHARE_AHEAD;
    const int32_t step_lines = PIECE_STEP * QR_PANEL * (p->bf16 ? 2 : 4) / 64;
    struct piece_args m = {.w = slot_at(t, slot, k0), .wide = t->wide, .n_k = n_k, .onto = k0 > 0, .next_lines = (step_lines + n_share - 1) / n_share,
                           .next = slot + 1 < t->n_slots ? slot_at(t, slot + 1, k0) : slot_at(t, 0, k0 + n_k)};
    enum piece_kind kind = !p->bf16 ? PIECE_F32 : n_blocks >= WIDEN_BLOCKS ? PIECE_WIDEN : PIECE_BF16;
    for (int32_t b = 0; b < n_blocks; b++) {
        const int32_t first = t->block[b], mr = t->block[b + 1] - first;
        m.c = t->sums[slot][first - t->block[0]];
        m.x = p->packed + (int64_t)k0 * p->n_rows + (int64_t)first * n_k;
        piece_blocks[kind][mr](&m);
        if (kind == PIECE_WIDEN) {
            kind = PIECE_F32;
            m.w = (const char *)t->wide;
        }
        m.next += (int64_t)m.next_lines * (n_k / PIECE_STEP) * 64;
        if (b + 1 == n_share)
            m.next_lines = 0;
    }
}

/* The same of coded weights. */
static void multiply_codes(struct piece_tile *t, int32_t slot, int32_t k0)
{
    const struct product *p = t->p;
    const struct qr_coded_shape *s = &p->coded;
    const int32_t unit = k0 / Q16_K, n = gemm_units(p, unit), n_share = t->n_blocks < SHARE_AHEAD ? t->n_blocks : SHARE_AHEAD;
    const bool last = slot + 1 == t->n_slots, end = last && unit + n == q16_units(p->a->n_in);
    const uint8_t *next = (const uint8_t *)(end ? t->w + (size_t)t->n_panels * t->w_next : slot_at(t, last ? 0 : slot + 1, 0));
    const int64_t bytes = ((int64_t)n * Q16_K >> s->block_shift) * s->block_bytes;
    struct gemm_args m = {.piece = &t->codes, .n_units = n, .ahead_lines = (int32_t)(bytes / 64 / (n * n_share)) + 1,
                          .ahead = (const char *)qr_coded_block(s, next, end ? 0 : last ? k0 + GEMM_INPUTS : k0)};
    gemm_fn *const *blocks = p->q16->gemm->block[q16_run(s) < Q16_K][s->f.offset];
    qr_avx2_gemm_piece(&t->codes, s, (const uint8_t *)slot_at(t, slot, 0), unit, n);
    if (k0 == 0)
        memset(t->sums[slot], 0, (size_t)(t->block[t->n_blocks] - t->block[0]) * sizeof t->sums[0][0]);
    for (int32_t b = 0; b < t->n_blocks; b++) {
        const int32_t first = t->block[b], mr = t->block[b + 1] - first;
        m.c = t->sums[slot][first - t->block[0]];
        m.x = gemm_rows(p, first, unit, n);
        blocks[mr - 1](&m);
        m.ahead += (int64_t)m.ahead_lines * n * 64;
        if (b + 1 == n_share)
            m.ahead_lines = 0;
    }
}

/* What becomes of the sums. */
static void finish_tile(const struct piece_tile *t)
{
    const struct product *p = t->p;
    const struct qr_linear_args *a = p->a;
    const int32_t row0 = t->block[0], n_rows = t->block[t->n_blocks] - row0;
    const int32_t n_out = p->up ? a->n_out / 2 : a->n_out;
    for (int32_t r = 0; r < n_rows; r++) {
        float *row = a->out + (p->row0 + row0 + r) * a->out_stride + t->first_panel * QR_PANEL;
        for (int32_t i = 0; i < t->n_panels; i++) {
            const int32_t panel = t->first_panel + i, left = n_out - panel * QR_PANEL, slot = p->up ? 2 * i : i;
            float *out = row + i * QR_PANEL;
            if (r + OUT_AHEAD < n_rows)
                _mm_prefetch((const char *)(out + OUT_AHEAD * a->out_stride), _MM_HINT_T0);
            finish_row(p, out, t->sums[slot][r], t->sums[slot + (p->up > 0)][r], panel, left < QR_PANEL ? left : QR_PANEL);
        }
    }
}

static void multiply_tile(struct piece_tile *t)
{
    const int32_t most = piece_inputs(t->p);
    for (int32_t k0 = 0, n_k; k0 < t->p->n_in; k0 += n_k) {
        n_k = t->p->n_in - k0 < most ? t->p->n_in - k0 : most;
        for (int32_t slot = 0; slot < t->n_slots; slot++)
            if (t->p->q16)
                multiply_codes(t, slot, k0);
            else
                multiply_piece(t, slot, k0, n_k);
    }
    finish_tile(t);
}

/* Panels [first, end), the first of which lies at w, with all rows. The panel of a gate's ups lies w_up behind it. */
static void multiply_pieces(const struct product *p, const void *w, size_t w_up, size_t w_next, int32_t first_panel, int32_t end_panel)
{
    struct piece_tile t QR_UNINITIALIZED;
    const int32_t per_panel = p->up ? 2 : 1, blocks_most = TILE_ROWS_MAX / ROWS_MAX, n_tiles = (p->n_blocks + blocks_most - 1) / blocks_most;
    const int32_t n_most = TILE_SLOTS / per_panel;
    t.p = p;
    t.w_up = w_up;
    t.w_next = w_next;
    for (int32_t i = 0; i < n_tiles; i++) {
        const int32_t first = (int32_t)((int64_t)p->n_blocks * i / n_tiles);
        t.n_blocks = (int32_t)((int64_t)p->n_blocks * (i + 1) / n_tiles) - first;
        for (int32_t b = 0; b <= t.n_blocks; b++)
            t.block[b] = block_first(p, first + b);
        for (int32_t panel = first_panel; panel < end_panel; panel += t.n_panels) {
            t.first_panel = panel;
            t.n_panels = end_panel - panel < n_most ? end_panel - panel : n_most;
            t.n_slots = t.n_panels * per_panel;
            t.w = (const char *)w + (size_t)(panel - first_panel) * w_next;
            multiply_tile(&t);
        }
    }
}

_Static_assert(TILE_PANELS == GEMV_PANELS, "both tiles have as many panels");

/* Panels [first, end) of coded weights with all rows, which are few. */
static void multiply_q16(const struct product *p, int32_t first, int32_t end)
{
    static void (*const ways[GEMV_ROWS])(const struct gemv_args *) = {qr_avx2_gemv_1, qr_avx2_gemv_2, qr_avx2_gemv_3, qr_avx2_gemv_4};
    const int32_t unit = p->up ? 2 : 1;
    float tile[GEMV_ROWS * TILE_PANELS * QR_PANEL];
    for (int32_t panel = first, n; panel < end; panel += n) {
        n = TILE_PANELS / unit < end - panel ? TILE_PANELS / unit : end - panel;
        struct gemv_args few = {.s = &p->coded, .bytes = q16_row_bytes(p), .sums = tile, .n_units = q16_units(p->a->n_in), .n_panels = n * unit,
                               .n_skip = n - 1};
        for (int32_t j = 0; j < n * unit; j++)
            few.panel[j] = panel_at(p, panel + j / unit + j % unit * p->up);
        for (int32_t row = 0, mr; row < p->n_rows; row += mr) {
            const int32_t left = p->n_rows - row;
            mr = left <= GEMV_ROWS ? left : left == GEMV_ROWS + 1 ? GEMV_ROWS - 1 : GEMV_ROWS; /* only a single row has bytes, so none is left alone */
            memset(tile, 0, sizeof tile);
            few.x = q16_row(p, row);
            ways[mr - 1](&few);
            for (int32_t j = 0; j < n; j += p->up ? 1 : n) {
                const int32_t n_out = p->up ? p->a->n_out / 2 : p->a->n_out, rest = n_out - (panel + j) * QR_PANEL, whole = (p->up ? 1 : n) * QR_PANEL;
                finish(p, tile + j * unit * QR_PANEL, p->row0 + row, mr, panel + j, whole < rest ? whole : rest);
            }
        }
    }
}
