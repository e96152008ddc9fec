/* kernels.h - what can be computed, and what each entry means. This file is the specification; ref/ is its plainest form and
 * the oracle of every other filling (cpu/ at each instruction-set level; later cuda/).
 *
 * Kernels are pure functions over pointers and shapes: no allocation, no policy. They run on a queue: for the CPU the worker
 * pool and its scratch memory, for a GPU a stream. Calls on one queue complete in order; on the CPU they have completed
 * when they return.
 *
 * Contract of every entry, on every backend
 *   - Numerics: products and sums in f32 in a fixed order per output element. What a row gets does not depend on how many
 *     other rows, sequences or threads there are, nor on where a row stands in the batch. Hence decode = prefill = batch, bit for bit,
 *     within one backend and ISA level. Across levels results agree within the bounds derived in tests/kernels/.
 *     The one exception: a device may choose a faster product for more than 16 rows whose sums run in another order, where the same bits would cost more
 *     than a tenth (cuda/plans.h). It is the same for the same rows and weights at all times, and never chosen with qr_backend_options.deterministic.
 *   - Activations are f32. A bf16 weight meets activations rounded to bf16 (nearest even) first, so that the product of two
 *     elements is exact in f32 and AVX2, AVX-512, AMX and tensor cores differ only in the order of additions.
 *   - Strides are in elements; rows are `stride` apart, a row itself is contiguous.
 *   - Errors: none. Shapes and types were checked when the model was opened (qr_backend_supports).
 *
 * Shape letters: N rows (tokens), D model width, H query heads, G kv heads, K head dim, F ffn width, V vocabulary, P tokens per block.
 */
#ifndef QR_KERNELS_KERNELS_H
#define QR_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "kernels/batch.h"
#include "kernels/dtype.h"
#include "kernels/sample.h"
#include "kernels/stored.h"
#include "kernels/tensor.h"

struct qr_queue; /* defined by each backend */

/* What a gated unit makes of a gate and its up: act(gate) * up. CLAMPED (gpt-oss) is g / (1 + e^(-alpha g)) * (u + 1) with
 * g = min(gate, limit) and u = max(-limit, min(up, limit)). */
enum qr_act { QR_ACT_SILU, QR_ACT_GELU_TANH, QR_ACT_CLAMPED };
struct qr_clamp {
    float limit, alpha; /* of QR_ACT_CLAMPED only; limit > 0 */
};

/* Row tiles of a matrix [N, D] of bf16, D % 32 == 0, as tile registers read them: groups of 16 rows, the last one of what is left, in each of them
 * [D / 32][rows][32]. A table says (row_tiles) whether its attention and products can hand rows over like this. */
#define QR_ROW_TILE 16
static inline int64_t qr_row_tile_at(int64_t n_rows, int64_t n_cols, int64_t row, int64_t col)
{
    const int64_t first = row / QR_ROW_TILE * QR_ROW_TILE, rows = n_rows - first < QR_ROW_TILE ? n_rows - first : QR_ROW_TILE;
    return first * n_cols + (col / 32 * rows + row - first) * 32 + col % 32;
}

/* linear - y[n,o] = sum_i x[n,i] w[o,i] (+ bias[o]) (+ y[n,o] when add), with what comes before and after it done while x and y are at hand:
 *     norm_w:  x[n,:] / sqrt(mean(x[n,:]^2) + eps) * norm_w stands for x[n,:], as rms_norm has it; x itself is only read
 *     glu:     out[n,f] = act(y[n,f]) * y[n,F+f] for F = O/2, or a clamped unit of the two, as glu has it; y itself is written
 *         nowhere
 *     stretches: of out[n,256 j .. 256 j + 255], so that the sampler need not read all of a row (NaN is passed over):
 *         largest[n,j] = their maximum, -infinity where there is none (a zero's sign is not specified)
 *         sum[n,j]     = sum_o e^(scale[n] (out[n,o] - largest[n,j])), where scale[n] > 0; else it is not written
 *
 * Shapes    x [N, I]   out [N, O], with glu [N, O/2]   w: packed by linear_pack of the same table   bias [O] f32 or NULL   norm_w [I] f32 or NULL
 * Types     x, out f32.  w f32, bf16 or quantized (w->packed_dtype).  x_tiles: row tiles in place of x, without norm_w, where qr_takes_row_tiles says so of w.
 *           largest, sum [N, ceil(O/256)] f32, rows `stride` apart   scale [N] f32
 * Requires  out does not overlap x; not both add and glu, with glu an even O, neither with stretches; I <= qr_linear_inputs_max(packed_dtype).
 * Numerics  f32 sums per output in a fixed order of i (one chain; on tiles the order of cpu/amx/tile.h, where denormal numbers count as 0);
 *           bias and the old value are added last, in this order: (sum + bias) + old. The norm, the unit and the addition give the same bits as
 *           rms_norm, glu and residual_add of the same table in launches of their own.
 *           sum: within a factor 1 +- 2^-18, 0 where the largest is infinite.
 *           Quantized: w[o,i] = a[o] p[o,i] with integers p. kernels/quant.h says how numbers are rounded; the names are dtype.h's.
 *             int8       a[o] = max_i|w[o,i]| / 127, |p| <= 127
 *             int4       p = m[o, i / 32] r[o,i] with integers 1 <= m <= 15, -8 <= r <= 7; a[o] = max_i|w[o,i]| / 105
 *           x[n,i] = b[n] q[n,i] as in int8, rounded anew in every call; y = float(sum_i p q) * (b[n] * a[o]), then (+ bias) + old. The sum is
 *           of integers and exact, the rest single IEEE operations, so all levels give the same bits. A row of x with an infinity or NaN
 *           gives NaN.
 *             fp8        w[o,i] = a[o] p[o,i], x[n,i] = b[n] q[n,i] with E4M3 numbers p and q (kernels/f8.h), x rounded anew in every call;
 *           y = (sum_i p q) * (b[n] * a[o]), the sum bf16 linear's of these numbers, in its order. On GPUs, and in ref, only.
 *           Coded (linear_pack_coded; of numbers: kernels/code_numbers.h): w[o,i] = bf16(scale level + offset), one rounding of the sum to f32 and one to
 *           bf16, and the product is bf16 linear's with these weights, bit for bit. c8-e4m3: the level is an E4M3 number. avx2, avx512, but for it:
 *           integers (cpu/isa/coded/q16.h).
 * Cost      N <= ~32: I*O weight elements read once (1 byte or half of one, and 1/32 for m); more: 2*N*I*O FLOP.
 * Sources   int8 by rows and outputs: Dettmers et al. 2022 (arXiv:2208.07339), Xiao et al. 2022 (arXiv:2211.10438). Integer multiples below
 *           the output's scale: Lin et al. 2024 (arXiv:2405.04532). */
#define QR_LINEAR_PACKED_TOGETHER 16
#define QR_LINEAR_STRETCH 256           /* outputs of a stretch */
#define QR_LINEAR_INPUTS_MAX 262144
#define QR_QUANT_INPUTS_MAX 65536       /* 65,536 * 127 * 255 fits 32 bits with its sign */
#define QR_QUANT_INPUTS_MAX_WIDE 32768  /* coded: what their panels are unpacked to fits a worker's scratch */
static inline int32_t qr_linear_inputs_max(enum qr_dtype w)
{
    return qr_dtype_is_quantized(w) ? QR_QUANT_INPUTS_MAX : qr_dtype_is_coded(w) ? QR_QUANT_INPUTS_MAX_WIDE : QR_LINEAR_INPUTS_MAX;
}

/* Rows of coded weights as their source has them, I inputs each: w[i] = scale level[i] + offset, where the format says (qr_dtype_coded; U = 256 with steps,
 * else G; the last unit and group of a row may be parts)
 *     plain           scale = scale[i / U]
 *     offset          offset = offset[i / U]
 *     zero            offset = -(scale[i / U] offset_step[i / G])
 *     steps           scale = scale[i / U] step[i / G]                and with offset    offset = offset[i / U] offset_step[i / G]
 *     e4m3            plain, but level[i] is the code of the number that is meant
 * What a format does not have is NULL. All of it is one row after the other, without gaps, but for words: where they are not
 * NULL, codes of 4 bits go there and not to level. Byte t of words[i / 8 words_pitch + o] has code 8 i + t of row o in its lower
 * half, and code 8 i + 4 + t in its upper one: the place in a source's levels. */
#define QR_CODED_UNIT 256
struct qr_coded_rows {
    int8_t *level;              /* [n, I] what the codes stand for; but with 4 bits 2^bits numbers from qr_coded_least(format) on; e4m3: codes */
    float *scale, *offset;      /* [n, ceil(I/U)] */
    int8_t *step, *offset_step; /* [n, ceil(I/G)] */
    uint32_t *words;            /* [I / 8, words_pitch >= n] */
    int64_t words_pitch;
};

/* Where coded rows come from: fill writes rows [first, first + n) of all that `to` has, n <= 16. It is called by all threads of the queue. */
struct qr_coded_source {
    void (*fill)(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n);
    const void *arg;
    int8_t levels[16];                     /* 4 bits: all that a level can be, each once */
    int32_t together;                      /* fill is faster with up to this many times 16 rows, and may get as many; 0: with 16 */
    bool words;                            /* fill can write words, and is faster so, where I is a multiple of 32 and first and n are of 8 */
};

struct qr_stretches {
    float *largest, *sum;       /* sum NULL: none */
    const float *scale;
    int64_t stride;
};
struct qr_linear_args {
    float *out;
    const float *x;
    const uint16_t *x_tiles; /* or NULL */
    const struct qr_weight *w;
    const float *bias;
    const float *norm_w;
    const struct qr_stretches *stretches; /* or NULL, as always on a device */
    int64_t out_stride, x_stride;
    int32_t n_rows, n_in, n_out; /* n_out: outputs of w, with glu twice the columns of out */
    bool add, glu;
    bool passing; /* in a chain: only its next product reads out, which is the kernel's until then and of qr_passing_bytes */
    enum qr_act act;
    struct qr_clamp clamp;
    float eps;
};

/* rms_norm - y[n,:] = x[n,:] / sqrt(mean(x[n,:]^2) + eps) * w
 *
 * Shapes    x, out [N, D]; out may equal x   w [D] f32.
 * Numerics  sum of squares in f32 in a fixed order of D.
 * Sources   Zhang & Sennrich 2019 (arXiv:1910.07467). */
struct qr_norm_args {
    float *out;
    const float *x, *w;
    int64_t out_stride, x_stride;
    int32_t n_rows, n_cols;
    float eps;
};

/* layer_norm - y[n,:] = (x[n,:] - m) / sqrt(mean((x[n,:] - m)^2) + eps) * w + bias with m = mean(x[n,:])
 *
 * Shapes    x, out [N, D]; out may equal x   w [D] f32   bias [D] f32 or NULL.
 * Numerics  both sums in f32 in a fixed order of D, that of squares over x - m.
 * Sources   Ba et al. 2016 (arXiv:1607.06450). */
struct qr_layer_norm_args {
    float *out;
    const float *x;
    const float *w, *bias;
    int64_t out_stride, x_stride;
    int32_t n_rows, n_cols;
    float eps;
};

/* head_norm - the same as rms_norm over each head's K numbers, in place: x[n,h,:] = x[n,h,:] / rms * w     (q/k norm of Qwen3)
 * Shapes    x [N, H, K], rows `stride` apart, heads K apart;  w [K]. */
struct qr_head_norm_args {
    float *x;
    const float *w;
    int64_t stride;
    int32_t n_rows, n_heads, head_dim;
    float eps;
};

/* residual_add - x += delta.   Shapes x, delta [N, D]. */
struct qr_add_args {
    float *x;
    const float *delta;
    int64_t x_stride, delta_stride;
    int32_t n_rows, n_cols;
};

/* embed - out[n,:] = scale * table[ids[n],:]
 * Types     table f32, f16 or bf16, row-major; or `packed`, what linear_pack made of such rows as table->dtype f32 or bf16, or linear_pack_coded of any: a
 *           head that is the embedding as well is in memory once. out f32.   Requires 0 <= ids[n] < V.
 * Cost      a row of a packed matrix touches all lines of its 16 rows, one after the other: 18 KiB at D = 576 and bf16, some 2 us a row. */
struct qr_embed_args {
    float *out;
    const struct qr_tensor *table; /* [V, D]; data NULL where packed is given */
    const void *packed;            /* or NULL */
    const int32_t *ids;
    const struct qr_drawn *drawn;  /* or NULL, as always on the processor: an id -1 - j stands for drawn[j].id */
    int64_t out_stride;
    int32_t n_rows;
    float scale;
};

/* rope_table - cos_sin[n][0][i] = cos(pos[n] * inv_freq[i]) * attn_factor, cos_sin[n][1][i] = sin(..) * attn_factor
 * Numerics  the angle is formed and its cosine taken in double, then rounded to f32: exact to an ulp at any position.
 * Shapes    cos_sin [N, 2, R/2]; inv_freq [R/2] double.   Once per step, shared by all layers. */
struct qr_rope_table_args {
    float *cos_sin;
    const int32_t *pos;
    const double *inv_freq;
    int32_t n_rows, n_rot; /* R, even, <= K */
    float attn_factor;
};

/* rope - rotates the first R of each head's K numbers in place, halves against each other ("NeoX" order):
 *     x[i], x[i+R/2] = x[i] c - x[i+R/2] s,  x[i+R/2] c + x[i] s
 * Shapes    x [N, H, K] rows `stride` apart, heads K apart.
 * Sources   Su et al. 2021 (arXiv:2104.09864). */
struct qr_rope_args {
    float *x;
    const float *cos_sin;
    int64_t stride;
    int32_t n_rows, n_heads, head_dim, n_rot;
};

/* kv_write - k[n,g,:], v[n,g,:] to cache row slot[n] of one layer, rounded to the cache's type
 * Shapes    k, v [N, G, K], rows `stride` apart, heads K apart.
 * Numerics  f32: as it is. bf16: to the nearest, even on a tie, NaN stays NaN. int8: each token's head has one scale, s = m / 127 with
 *           m = max_i|x[i]|, and becomes x[i] * (127 / m) to the nearest integer, even on a tie (kernels/quant.h; single IEEE operations, the same bits
 *           at every level). m below 2^-120: zeros with scale 0. An infinity or NaN anywhere in it: zeros with scale NaN, so that all which reads
 *           this key or value becomes NaN. Otherwise the error of an element is at most s/2 and two roundings: |x[i]| <= m (1/254 + 2^-23).
 *           fp8: the same with 448 for 127 and E4M3 numbers for integers (kernels/f8.h): at most |x[i]| 2^-4 or s 2^-10, and two roundings.
 * Sources   int8 keys and values with a scale per token and head: Sheng et al. 2023, FlexGen (arXiv:2303.06865) for caches of few bits. */
struct qr_kv_write_args {
    const struct qr_kv_view *kv;
    const float *k, *v;
    const int32_t *slot;
    int64_t k_stride, v_stride;
    int32_t layer, n_rows;
};

/* qkv - what lies between the product with the fused q, k, v matrix and attention: head_norm of q and of k, rope of both, kv_write of k and v,
 * each row in one go and with the same bits. x is updated as by these, so q is where attention finds it; with q_bf16 (qr_takes_bf16_queries) q is
 * rounded to bf16, H K numbers one after the other in the first half of its place.
 * Shapes    x [N, (H + 2 G) K]: q, k, v of a row one after the other, rows `stride` apart;  q_norm, k_norm [K] or NULL;  cos_sin [N, 2, R/2]; R 0: nothing
 *           rotates. */
struct qr_qkv_args {
    float *x;
    const float *q_norm, *k_norm;
    const float *cos_sin;
    const struct qr_kv_view *kv; /* G and K are its */
    const int32_t *slot;
    int64_t stride;
    int32_t layer, n_rows, n_heads, n_rot;
    float eps;
    bool q_bf16;
};

/* chain - n products, one after the other, then qkv where there is `heads`: the bits of these calls in this order. With many rows a thread may take
 * some of them from the first product to the last, so that they stay in its caches and threads do not wait in between.
 * Requires  the same n_rows everywhere, 1 <= n <= QR_CHAIN_MAX. What a product reads of row r was there before, or was written to row r by one before it;
 *           what is read of other rows no product of the chain writes. */
#define QR_CHAIN_MAX 4
struct qr_chain_args {
    const struct qr_linear_args *linear; /* [n] */
    const struct qr_qkv_args *heads;     /* or NULL */
    int32_t n;
};

/* kv_copy - block dst becomes a copy of block src, all layers. */
struct qr_kv_copy_args {
    const struct qr_kv_view *kv;
    int32_t src, dst;
};

/* attention - every row attends over its own sequence's paged context
 *
 *     out[r,h,:] = sum_t softmax_t(cap(scale * q[r,h,:] . k[t,g,:])) v[t,g,:]     max(0, pos-window+1) <= t <= pos = batch->pos[r],  g = h/(H/G)
 *     sinks: the softmax is over these scores and sinks[h], whose own share of it goes to no value
 *
 * Shapes    q, out [N, H, K] rows `stride` apart, heads K apart; out does not overlap q.   lse [N, H] f32 or NULL:
 *           natural log of the softmax denominator.   sinks [H] f32 or NULL.
 * Types     q, out f32; or, where the table has them (qr_takes_bf16_queries, qr_takes_row_tiles), q bf16 as qkv leaves it (q_bf16) and out row tiles of the
 *           nearest bf16 (out_tiles, in place of out): the same bits, as both are rounded so where they are read. Cache f32, bf16, int8 or fp8.
 *           With a bf16 cache q and each piece's p = e^(score - piece's maximum) are rounded to bf16 before the products; the denominator sums p unrounded;
 *           on tiles denormal numbers count as 0.
 *           int8: the integers take the place of k and v and the scales stay outside of the products: the sum over K of q times a key's integers
 *           is multiplied by (its token's key scale * scale), and what meets a value's integers is p * its token's value scale. In f32; on
 *           tiles q's head becomes integers of 16 bits by its largest number (off by at most 2^-16 of that), a piece's p * value scale
 *           likewise (2^-17 of the largest that the row sees), and their sums of products are exact.
 *           fp8: the same with E4M3 numbers, but q and p * value scale are rounded to bf16; a device does so with int8 as well.
 * Requires  H % G == 0; K <= 256, K % 8 == 0; window 0 = unbounded; softcap 0 = none, else cap(x) = softcap * tanh(x/softcap).
 * Numerics  online softmax over pieces of 256 positions aligned at multiples of 256, merged in order, so the result depends on nothing
 *           but the row's own context. No n x n matrix exists anywhere.
 *           A sink is joined behind the last piece, as one of a single position without a value.
 * Cost      decode: 2*G*K*ctx elements read per sequence, bound by bandwidth. Prefill: 4*H*K*ctx FLOP per row.
 * Sources   Milakov & Gimelshein 2018 (arXiv:1805.02867); Dao et al. 2022 (2205.14135); Kwon et al. 2023 (2309.06180);
 *           sinks: Xiao et al. 2023 (2309.17453), OpenAI 2025, gpt-oss (2508.10925). */
struct qr_attention_args {
    float *out;
    uint16_t *out_tiles; /* or NULL */
    const float *q;
    float *lse;
    const struct qr_batch *batch;
    const struct qr_kv_view *kv;
    const float *sinks; /* or NULL */
    int64_t out_stride, q_stride;
    int32_t layer, n_heads, window;
    float scale, softcap;
    bool q_bf16;
};

/* glu - out[n,f] = act(gate_up[n,f]) * gate_up[n,F+f], or what a clamped unit makes of the two (enum qr_act)
 * Shapes    gate_up [N, 2F], out [N, F].  SiLU: x / (1 + exp(-x)).
 * Sources   Shazeer 2020 (arXiv:2002.05202). */
struct qr_glu_args {
    float *out;
    const float *gate_up;
    int64_t out_stride, gate_up_stride;
    int32_t n_rows, n_cols; /* F */
    enum qr_act act;
    struct qr_clamp clamp;
};

/* unit - x[n,f] = act(x[n,f]), of a feed-forward without gates.   Shapes x [N, F].   Requires SILU or GELU_TANH. */
struct qr_unit_args {
    float *x;
    int64_t stride;
    int32_t n_rows, n_cols;
    enum qr_act act;
};

/* softcap - x[n,i] = cap tanh(x[n,i] / cap), and then what linear says of stretches of such a row.
 * Shapes    x [N, O]; stretches as linear's, or NULL.   Requires cap > 0.
 * Sources   Bello et al. 2016 (arXiv:1611.09940) for logits. */
struct qr_softcap_args {
    float *x;
    const struct qr_stretches *stretches;
    int64_t stride;
    int32_t n_rows, n_cols;
    float cap;
};

/* gather_rows - out[i,:] = x[row[i],:].   Shapes x [N, D], out [M, D]. */
struct qr_gather_args {
    float *out;
    const float *x;
    const int32_t *row;
    int64_t out_stride, x_stride;
    int32_t n_rows, n_cols;
};

/* pick_columns - out[n,i] = x[n,col[i]]: rows in the order in which a matrix has its inputs (qr_weight.inputs).
 * Shapes    x [N, D], out [N, M], col [M] of numbers below D.   Requires out and x do not overlap. */
struct qr_pick_args {
    float *out;
    const float *x;
    const int32_t *col;
    int64_t out_stride, x_stride;
    int32_t n_rows, n_cols;
};

/* adapt - adds low-rank products to what a product gave, other ones for each group of rows:
 *     out[n, first + o] += scale * sum_j t[n, j] b[o, j],   t[n, j] = sum_i x[n, i] a[j, i]
 * for every row n of a group and every part (a, b, scale, first) of what its adapter adds to this matrix (q, k and v of a fused one are three).
 *
 * Shapes    x [N, I]   out [N, O]   a [r, I] row-major   b [ceil(n_out/32), r, 32]: of 32 outputs the r numbers of each j side by side (qr_adapt_b_at),
 *           what is behind the last output 0   mid: room for t, a row for every row of every group, mid_stride >= the ranks of a group's parts together
 * Types     x, out, mid f32.  a, b f32 or bf16; x is not rounded: an adapter's numbers are few, and what is read of them is what counts.
 *           row_slot [N] (a device's steps that are repeated) says what groups say, where kernels read it, and table what parts say: of slot s they are at
 *           table + s table_bytes, where kernels read them. Then no part of all this is in a launch's arguments: other rows, slots or adapters another time
 *           are other numbers in the same places.
 * Requires  out and x do not overlap; parts of one adapter add to different outputs; rank >= 1; no row in two groups.
 * Numerics  t and the sum over j: one chain each in rising order (lanes of vectors over i are summed last), whatever the other rows are; out + scale * sum
 *           at the end. A row of no group is not touched.
 * Cost      each group reads its a and b once for about every four rows, the first time from memory: 2 r (I + n_out) FLOP and, of few rows, r (I + n_out)
 *           elements.
 * Sources   Hu et al. 2021 (arXiv:2106.09685); several adapters in one batch: Chen et al. 2023 (2310.18547), Sheng et al. 2023 (2311.03285). */
#define QR_ADAPT_PARTS_MAX 3
#define QR_ADAPT_PANEL 32
struct qr_adapt_part {
    const void *a, *b;
    int32_t first, n_out, rank;
    float scale;
};
struct qr_adapt_parts {
    struct qr_adapt_part part[QR_ADAPT_PARTS_MAX];
    int32_t n; /* 0: this matrix is as it is */
};
static inline int64_t qr_adapt_b_at(int64_t rank, int64_t o, int64_t j)
{
    return (o / QR_ADAPT_PANEL * rank + j) * QR_ADAPT_PANEL + o % QR_ADAPT_PANEL;
}
static inline int64_t qr_adapt_b_elements(int64_t rank, int64_t n_out)
{
    return (n_out + QR_ADAPT_PANEL - 1) / QR_ADAPT_PANEL * QR_ADAPT_PANEL * rank;
}
struct qr_adapt_args {
    float *out;
    const float *x;
    float *mid;
    const struct qr_row_group *group;   /* [n_groups] */
    const struct qr_adapt_parts *parts; /* of this matrix, by slot */
    const int32_t *row_slot;            /* or NULL, as always on the processor */
    const struct qr_adapt_parts *table; /* of slot 0, with row_slot */
    int64_t table_bytes;
    int64_t out_stride, x_stride, mid_stride;
    int32_t n_groups, n_in;
    int32_t n_rows, n_out;              /* with row_slot: of x and out */
    enum qr_dtype dtype;
};

/* sample - rows of logits become tokens, on a device whose memory the host cannot reach: only ids, and the log-probabilities that are wanted, go to the host.
 * NULL where the host reads logits: engine/sampler.h, whose ids these are for equal bits of logits, with the one exception below.
 *
 * Shapes    logits [*, V], rows `stride` apart: changed as draws say, and where details is there changed back.  drawn [draws.n_rows]: on entry what the last
 *           call gave (row->newest), at the end this one's.  detail [draws.n_rows] or NULL: written for rows with n_top >= 0 only.
 * Numerics  weights e^((x - best) / temperature) as engine/row_math.h has them, the same bits. Without top_k, top_p and min_p sums are added in the sampler's
 *           order, so the ids are the sampler's. With them the sampler adds best first, in double; here weights are multiples of 2^-44 and their sums exact,
 *           whatever the order: an id can differ only where the draw or the end of top_p falls within V 2^-44 of a border between two ids.
 *           top_k restricts to weights > 0. Every number is a function of its row alone.
 * Requires  0 < V <= 256 QR_DRAW_STRETCHES_MAX.
 * Sources   inverse of the cumulative distribution in the sampler's order; the counter-based generator of Salmon et al. 2011. */
struct qr_sample_args {
    float *logits;
    const struct qr_draws *draws; /* the struct is the host's, its arrays are kernels' memory */
    struct qr_drawn *drawn;
    struct qr_drawn_detail *detail;
    int64_t stride;
    int32_t n_vocab;
};

/* route - which of E experts a row goes to, and with what weights
 *
 *     p[e] = softmax_e(logits[n,:]), or 1 / (1 + e^-logits[n,e]) with `sigmoid`
 *     ids[n,:] = the U experts of the largest logits, the largest first, of equal ones the lower number
 *     weights[n,u] = p[ids[n,u]], with `normalize` divided by the sum of the U
 *
 * Shapes    logits [N, E] rows `logits_stride` apart   ids, weights [N, U]
 * Requires  1 <= U <= E <= QR_EXPERTS_MAX.
 * Numerics  f32; sums in order of e, or of u. What is no number is chosen last and makes weights that are none; ids are valid and different always.
 * Sources   Shazeer et al. 2017 (arXiv:1701.06538); Jiang et al. 2024, Mixtral (2401.04088). */
#define QR_EXPERTS_MAX 1024
struct qr_route_args {
    int32_t *ids;
    float *weights;
    const float *logits;
    int64_t logits_stride;
    int32_t n_rows, n_experts, n_used;
    bool sigmoid, normalize;
};

/* experts - out[n,:] += sum_u weights[n,u] y_e[n,:] with e = ids[n,u], where y_e[n,:] = down_e(glu(gate_up_e(x[n,:]))) as linear
 * has them, with biases where there are some: every row goes through all of its experts, however many rows want the same one.
 *
 * Shapes    x, out [N, D]   ids, weights [N, U]   gate_up a stack [E, 2F, D], down a stack [E, D, F]
 *           gate_up_bias [E, 2F], down_bias [E, D] f32, each or NULL
 *           room: gathered, fresh [R, D], gated [R, F] with R = qr_experts_room_rows(N, U); order [E + 1 + N U]
 * Requires  out does not overlap x; the ids of a row differ.
 * Numerics  y_e of a row is linear's, to the bit. They are added in order of e: out = fma(weight, y_e, out), or a product and a sum in ref.
 * Cost      N U <= ~E: the weights of the experts that are wanted read once; more: 6 N U D F FLOP.
 * Sources   rows sorted by expert, then a product for each: Gale et al. 2022, MegaBlocks (arXiv:2211.15841). */
#define QR_EXPERTS_TOGETHER 256 /* pairs of a row and an expert that have room each */
static inline int64_t qr_experts_room_rows(int64_t n_rows, int64_t n_used)
{
    const int64_t pairs = n_rows * n_used, few = pairs < QR_EXPERTS_TOGETHER ? pairs : QR_EXPERTS_TOGETHER;
    return n_rows > few ? n_rows : few;
}
struct qr_experts_args {
    float *out;
    const float *x;
    const int32_t *ids;
    const float *weights;
    const struct qr_weight *gate_up, *down;
    const float *gate_up_bias, *down_bias;
    float *gathered, *gated, *fresh;
    int32_t *order;
    int64_t out_stride, x_stride;
    int32_t n_rows, n_used;
    enum qr_act act;
    struct qr_clamp clamp;
};

struct qr_kernels {
    const char *name; /* "ref", "avx2", "avx512", "amx" */
    void (*linear)(struct qr_queue *q, const struct qr_linear_args *a);
    void (*rms_norm)(struct qr_queue *q, const struct qr_norm_args *a);
    void (*head_norm)(struct qr_queue *q, const struct qr_head_norm_args *a);
    void (*residual_add)(struct qr_queue *q, const struct qr_add_args *a);
    void (*embed)(struct qr_queue *q, const struct qr_embed_args *a);
    void (*rope_table)(struct qr_queue *q, const struct qr_rope_table_args *a);
    void (*rope)(struct qr_queue *q, const struct qr_rope_args *a);
    void (*kv_write)(struct qr_queue *q, const struct qr_kv_write_args *a);
    void (*qkv)(struct qr_queue *q, const struct qr_qkv_args *a);
    void (*chain)(struct qr_queue *q, const struct qr_chain_args *a);
    void (*kv_copy)(struct qr_queue *q, const struct qr_kv_copy_args *a);
    void (*attention)(struct qr_queue *q, const struct qr_attention_args *a);
    void (*glu)(struct qr_queue *q, const struct qr_glu_args *a);
    void (*gather_rows)(struct qr_queue *q, const struct qr_gather_args *a);
    void (*adapt)(struct qr_queue *q, const struct qr_adapt_args *a); /* NULL: there are no adapters here */
    void (*sample)(struct qr_queue *q, const struct qr_sample_args *a); /* or NULL */
    void (*route)(struct qr_queue *q, const struct qr_route_args *a);     /* these two, or neither */
    void (*experts)(struct qr_queue *q, const struct qr_experts_args *a);
    /* Of a few architectures only (qr_model_open says which): NULL where a backend does not have them. */
    void (*layer_norm)(struct qr_queue *q, const struct qr_layer_norm_args *a);
    void (*unit)(struct qr_queue *q, const struct qr_unit_args *a);
    void (*softcap)(struct qr_queue *q, const struct qr_softcap_args *a);

    /* What begins at a multiple of QR_LINEAR_PACKED_TOGETHER outputs lies at linear_packed_bytes of these and is a packed matrix of its own: of vectors and
     * tiles, not ref's quantized ones.
     * linear_pack - writes w [n_out, n_in] (row-major f32, f16 or bf16) to dst in the order linear reads, as `to` (qr_dtype_packs).
     * Rows may be packed in pieces: rows [row0, row0 + n) of a fused weight, so q, k, v land in one matrix without a copy in between.
     * dst holds linear_packed_bytes(to, n_out, n_in) bytes, 64-byte aligned, zeroed. Splits over the queue's threads; rows that share one
     * place (QR_LINEAR_PACKED_TOGETHER) are, in memory of the host, packed by the calling thread, which may be any of them at work on an item. */
    size_t (*linear_packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in);
    void (*linear_pack)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                        const void *rows, enum qr_dtype from, int64_t n_rows);

    /* linear_pack_coded - packs rows [row0, row0 + n_rows) of a coded type. NULL on a device that does not have it; a type of which linear_packed_bytes
     * are 0 is not there.
     * Numerics  scales and offsets are kept as f16 times a power of two of the output's own, in [2^-60, 2^60], which brings the output's largest below 2^16:
     *           f16 numbers are kept as they are, others lose at most 2^-12 of theirs, or 2^-40 of that largest one. An output with an infinity or NaN
     *           in a scale or offset, or one above 2^75, is NaN throughout. c8-e4m3: scales are kept as they are; one below 2^-100 is 0, and a group whose
     *           scale is an infinity or above 2^75, or that has a code of NaN, is NaN.
     * Requires  every row of 16 that share their place (a multiple of QR_LINEAR_PACKED_TOGETHER on) comes with the same levels.
     * Sources   the two levels of scales: K-quants of llama.cpp; zeros: Lin et al. 2023, AWQ (arXiv:2306.00978), Frantar et al. 2022, GPTQ (2210.17323). */
    void (*linear_pack_coded)(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0,
                              const struct qr_coded_source *rows, int64_t n_rows);

    const struct qr_stored_ops *stored; /* or NULL: what a loader does with files' numbers at this level */

    bool row_tiles; /* attention, qkv and linear hand rows over in bf16, as the two functions below say */
    int64_t (*passing_bytes)(const struct qr_linear_args *a, const struct qr_weight *next); /* or NULL; see qr_passing_bytes */
    void (*pick_columns)(struct qr_queue *q, const struct qr_pick_args *a); /* NULL: matrices have their inputs in order here */
};

/* Whether attention may read q as bf16, and give row tiles, and whether products with such weights read them: what is rounded to bf16 either way. */
static inline bool qr_takes_bf16_queries(const struct qr_kernels *k, const struct qr_kv_view *kv)
{
    return k->row_tiles && kv->dtype == QR_BF16 && kv->head_dim % 32 == 0;
}
static inline bool qr_takes_row_tiles(const struct qr_kernels *k, enum qr_dtype w, const struct qr_kv_view *kv)
{
    return k->row_tiles && (kv->dtype == QR_BF16 || kv->dtype == QR_I8) && kv->head_dim % 32 == 0 && w != QR_F32 &&
           !qr_dtype_is_quantized(w);
}

/* What a gated product's results take while they pass to the next one of its chain: as rows of floats, or, whatever the number of rows, less where the table
 * has them pass as something smaller. Of a: w's type, the sizes. */
static inline int64_t qr_passing_bytes(const struct qr_kernels *k, const struct qr_linear_args *a, const struct qr_weight *next)
{
    return k->passing_bytes ? k->passing_bytes(a, next) : (int64_t)a->n_rows * (a->n_out / 2) * (int64_t)sizeof(float);
}

#endif
