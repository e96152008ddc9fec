/* backward.h - what the trainer computes beside the forward pass: the gradient of every entry of kernels.h, the loss, and the step of the
 * optimizer. This file is the specification; ref/ is its plainest form and the oracle of every other filling. The contract of kernels.h holds
 * (pure functions on a queue, f32 activations, strides in elements), and for gradients
 *
 *   - Gradients are added: an entry does d += ..., because a value may have several readers. The caller zeroes them once, or says `fresh` for the first
 *     reader on the way back: then what lies there counts as 0, is not read, and every element is written. The bits are those of adding to 0.
 *   - A parameter's gradient is one chain over rows, in their order, onto what is there already: ((d + row 0) + row 1) + ... So a batch in one
 *     call and the same rows in several calls (micro-batches, chunks of the vocabulary's rows) give the same bits, and so do any number of
 *     threads: they split the outputs, never a sum. On tiles (amx, bf16) the chain's links are groups of 32 rows from the first row of the call.
 *     On cuda those of bf16 products are groups of 16, those of norms of 256 (rows, or heads of rows); where a device chose cuBLASLt for a large product
 *     (cuda/plans.h; not with `deterministic`), the call's rows are one sum, which is added to what is there.
 *   - What a row's gradient gets does not depend on other rows, but through attention.
 *   - bf16 weights mean bf16 products: both sides of a product are rounded to bf16 (nearest even) first and summed in f32, as in `linear`.
 *     The rounding itself is taken as the identity when it comes to its gradient.
 *   - No atomics, no order that depends on timing: the same call twice gives the same bits.
 *
 * Names: for a value x, `dx` is the gradient of the loss with respect to it. Shape letters as in kernels.h.
 */
#ifndef QR_KERNELS_BACKWARD_H
#define QR_KERNELS_BACKWARD_H

#include "kernels/kernels.h"

/* linear_dx - dx[n,i] += sum_o dy[n,o] w[o,i]
 *
 * Shapes    dy [N, O]   dx [N, I]   w.t [O, I] row-major (not the packed form), rows I apart.
 * Types     dy, dx f32.   w.t.data f32 or bf16.
 * Requires  dx does not overlap dy.
 * Numerics  one chain over o onto the old value; a row's result does not depend on the other rows.
 * Cost      2*N*I*O FLOP. */
struct qr_linear_dx_args {
    float *dx;
    const float *dy;
    const struct qr_weight *w;
    int64_t dx_stride, dy_stride;
    int32_t n_rows, n_in, n_out;
    bool fresh; /* dx */
};

/* linear_dw - dw[o,i] += sum_n dy[n,o] x[n,i];   dbias[o] += sum_n dy[n,o]
 *
 * Shapes    dy [N, O]   x [N, I]   dw [O, I] dense   dbias [O] or NULL.
 * Types     all f32; `product` f32 or bf16: what x and dy are rounded to before they meet (dbias sums dy unrounded).
 * Numerics  chains over n onto the old value, see above.
 * Cost      2*N*I*O FLOP. */
struct qr_linear_dw_args {
    float *dw, *dbias;
    const float *dy, *x;
    int64_t dy_stride, x_stride;
    int32_t n_rows, n_in, n_out;
    enum qr_dtype product;
    bool fresh; /* dw; dbias is added to */
};

/* rms_norm - of y[n,:] = x[n,:] r[n] w with r = 1 / sqrt(mean(x^2) + eps):
 *     dx[n,i] += r (w[i] dy[n,i] - x[n,i] r^2 mean_j(w[j] dy[n,j] x[n,j]))        dw[i] += sum_n dy[n,i] x[n,i] r
 *
 * Shapes    x, dy, dx [N, D], rows apart by their strides;   w, dw [D].
 * Requires  dx does not overlap dy.
 * Numerics  the sums over D in f32 in a fixed order; dw: chains over n.
 * Cost      reads x, dy, dx, w; writes dx: bound by bandwidth.
 * Sources   Zhang & Sennrich 2019 (arXiv:1910.07467). */
struct qr_norm_back_args {
    float *dx, *dw;
    const float *dy, *x, *w;
    int64_t dx_stride, dy_stride, x_stride;
    int32_t n_rows, n_cols;
    float eps;
};

/* head_norm - the same over each head's K numbers: of y[n,h,:] = x[n,h,:] r[n,h] w.
 * Shapes    x, dy, dx [N, H, K], rows apart by their strides, heads K apart;  w, dw [K].
 * Numerics  dw: one chain over n, and for each n over h. */
struct qr_head_norm_back_args {
    float *dx, *dw;
    const float *dy, *x, *w;
    int64_t dx_stride, dy_stride, x_stride;
    int32_t n_rows, n_heads, head_dim;
    float eps;
};

/* rope - the gradient of a rotation is the rotation back, in place: a->x holds dy and becomes dx. Arguments of kernels.h:
 *     x[i], x[i+R/2] = x[i] c + x[i+R/2] s,  x[i+R/2] c - x[i] s */

/* attention - of out = attention(q, k, v) (kernels.h), without an n x n matrix: probabilities are made again from the saved log-sum-exp.
 *
 *     p[r,h,t] = e^(s[r,h,t] - lse[r,h]),  s = cap(scale q.k)      D[r,h] = dout[r,h,:] . out[r,h,:]
 *     ds = p (dout[r,h,:] . v[t,g,:] - D[r,h]) cap'(s),  cap' = 1 - (s/softcap)^2 or 1
 *     dq[r,h,:] += scale sum_t ds k[t,g,:]      dk[t,g,:] += scale sum_{h of g, r} ds q[r,h,:]      dv[t,g,:] += sum_{h of g, r} p dout[r,h,:]
 *
 * Shapes    q, dq, out, dout [N, H, K]   dk, dv [N, G, K], rows apart by their strides, heads K apart   lse [N, H]
 *           k and v are read from the cache of `layer`, where the forward left them; position t of sequence s is row row_start[s] + t.
 * Types     f32; cache f32 or bf16. With a bf16 cache each factor of a product is rounded to bf16 first: q, dout, p, ds. D is a sum of unrounded products.
 * Requires  every sequence of the batch stands in it from position 0 on: pos[row_start[s] + i] = i. Nothing overlaps.
 * Numerics  dq: over t upwards, in pieces of 64 positions aligned at multiples of 64, each a sum from 0 that is scaled and added. dk, dv: over the
 *           heads h of a group upwards, for each over rows upwards; one sum from 0, (scaled and) added at the end.
 * Cost      10*H*K FLOP for each pair of row and position.
 * Sources   Dao 2023 (arXiv:2307.08691), algorithm 2, in a fixed order. */
struct qr_attention_back_args {
    float *dq, *dk, *dv;
    const float *dout, *out, *q, *lse;
    const struct qr_batch *batch;
    const struct qr_kv_view *kv;
    int64_t dq_stride, dk_stride, dv_stride, dout_stride, out_stride, q_stride;
    int32_t layer, n_heads, window;
    float scale, softcap;
    bool fresh; /* dq, dk and dv */
};

/* glu - of out[n,f] = act(gate[n,f]) up[n,f]:  dgate += dout up act'(gate),  dup += dout act(gate)
 * Shapes    gate_up, dgate_up [N, 2F], dout [N, F].
 * Sources   Shazeer 2020 (arXiv:2002.05202). */
struct qr_glu_back_args {
    float *dgate_up;
    const float *dout, *gate_up;
    int64_t dgate_up_stride, dout_stride, gate_up_stride;
    int32_t n_rows, n_cols; /* F */
    enum qr_act act;
    bool fresh; /* dgate_up */
};

/* embed - dtable[ids[n],:] += scale * dout[n,:], in the order of n.
 * Shapes    dout [N, D], dtable [V, D] dense.   Requires 0 <= ids[n] < V. */
struct qr_embed_back_args {
    float *dtable;
    const float *dout;
    const int32_t *ids;
    int64_t dout_stride;
    int32_t n_rows, n_cols, n_vocab;
    float scale;
};

/* scatter_rows - of out[i,:] = x[row[i],:]:  dx[row[i],:] += dout[i,:], in the order of i.   Shapes dout [M, D], dx [N, D]. */
struct qr_scatter_args {
    float *dx;
    const float *dout;
    const int32_t *row;
    int64_t dx_stride, dout_stride;
    int32_t n_rows, n_cols; /* M, D */
};

/* cross_entropy - loss[n] = lse(logits[n,:]) - logits[n,target[n]], and logits become their gradient:
 *     logits[n,v] = scale (softmax(logits[n,:])[v] - [v = target[n]])
 *   A row with target < 0 has loss 0 and gradient 0.
 *
 * Shapes    logits [N, V], in and out;   target [N];   loss [N].
 * Types     logits f32; loss f64: maximum, terms and their sum as the backend likes, the logarithm and the difference in f64.
 * Requires  target[n] < V. */
struct qr_cross_entropy_args {
    float *logits;
    double *loss;
    const int32_t *target;
    int64_t stride;
    int32_t n_rows, n_cols; /* V */
    float scale;
};

/* adamw - one step of Adam with decoupled weight decay on n parameters; with `half` the weights that the model computes with are written too. The
 *   gradients are zeroed as they are read, unless `leave_g`: then whoever computes the next ones takes the old for 0 (`fresh`).
 *
 *     g' = g gscale      w = w - lr decay w      m = m + (1 - beta1)(g' - m)      v = beta2 v + (1 - beta2) g'^2
 *     w = w - (lr / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
 *     half = w rounded to one of its two bf16 neighbours, up with the probability of its distance to the lower one      g = 0 or g
 *
 * Shapes    w, m, v, g [n];  half [n] bf16 or NULL.
 * Units     t = step, 1 for the first.  first: index of w[0] among all parameters, so that a share of them rounds as the whole would.
 * Numerics  single IEEE operations in the order above with constants rounded from f64: the same bits at every level. The 16 random bits of
 *           parameter i are those number i % 8 of Philox(seed, step, i / 8): a function of its arguments, so a resumed run rounds the same way.
 * Cost      reads w, m, v, g, writes w, m, v, g, half: 28 bytes a parameter, 4 more for zeros, 2 for half; bound by bandwidth.
 * Sources   Loshchilov & Hutter 2017 (arXiv:1711.05101); stochastic rounding: Gupta et al. 2015 (1502.02551). */
struct qr_adamw_args {
    float *w, *m, *v, *g;
    uint16_t *half;
    int64_t n, first, step;
    double lr, beta1, beta2, eps, decay, gscale;
    uint64_t seed;
    bool leave_g;
};

/* momentum - m = mu m + g gscale;   out = g gscale + mu m;   g = 0: what Muon orthogonalizes, a look ahead along the momentum (Nesterov).
 *
 * Shapes    m, g, out [n].
 * Numerics  single IEEE operations in that order with constants rounded from f64: the same bits at every level.
 * Sources   Jordan et al. 2024, "Muon: an optimizer for hidden layers". */
struct qr_momentum_args {
    float *m, *g, *out;
    int64_t n;
    double mu, gscale;
};

/* scale - out = x scale;   half = x half_scale to the nearest bf16. Either may be NULL; out may be x.
 *
 * Shapes    x, out [n] f32;  half [n] bf16.   Both factors are rounded to f32. */
struct qr_scale_args {
    float *out;
    uint16_t *half;
    const float *x;
    int64_t n;
    double scale, half_scale;
};

/* turn - out[c,r] = x[r,c];   half[c,r] = the same to the nearest bf16. Either may be NULL; neither overlaps x.
 *
 * Shapes    x [R, C] f32;  out [C, R] f32, half [C, R] bf16, all dense. */
struct qr_turn_args {
    float *out;
    uint16_t *half;
    const float *x;
    int32_t n_rows, n_cols;
};

/* move_by - w = w keep - rate u;   half = w rounded by chance, as adamw rounds it (the meaning of first, step and seed is the same).
 *
 * Shapes    w, u [n] f32;  half [n] bf16 or NULL.   keep and rate are rounded to f32.
 * Numerics  the same bits at every level. */
struct qr_move_args {
    float *w;
    uint16_t *half;
    const float *u;
    int64_t n, first, step;
    double keep, rate;
    uint64_t seed;
};

/* sum_squares - *sum = sum_i x[i]^2, for the norm of all gradients.
 *
 * Numerics  in f64 (a square of an f32 is exact) by one fixed tree: number i of a leaf of QR_SUM_LEAF goes to chain i % 16, the 16 chains are added
 *           in halves (j and j + 8, then j + 4, ..), and so are leaves: by pairs of neighbours, then pairs of those; a lone one passes up
 *           unchanged. So the result does not depend on threads, and is the same bits at every level.
 * Shapes    x [n];  leaf [qr_sum_leaves(n)] f64, scratch. sum NULL: the leaves are left there, for whoever adds them to others. */
#define QR_SUM_LEAF 4096
struct qr_sum_squares_args {
    double *sum, *leaf;
    const float *x;
    int64_t n;
};

static inline int64_t qr_sum_leaves(int64_t n)
{
    return (n + QR_SUM_LEAF - 1) / QR_SUM_LEAF;
}

/* The upper part of that tree: adds neighbours until one is left; leaf[] is used up. 0 for none. */
double qr_sum_tree(double *leaf, int64_t n_leaves);

struct qr_backward {
    const char *name; /* that of the forward table beside it */
    void (*linear_dx)(struct qr_queue *q, const struct qr_linear_dx_args *a);
    void (*linear_dw)(struct qr_queue *q, const struct qr_linear_dw_args *a);
    void (*rms_norm)(struct qr_queue *q, const struct qr_norm_back_args *a);
    void (*head_norm)(struct qr_queue *q, const struct qr_head_norm_back_args *a);
    void (*rope)(struct qr_queue *q, const struct qr_rope_args *a);
    void (*attention)(struct qr_queue *q, const struct qr_attention_back_args *a);
    void (*glu)(struct qr_queue *q, const struct qr_glu_back_args *a);
    void (*embed)(struct qr_queue *q, const struct qr_embed_back_args *a);
    void (*scatter_rows)(struct qr_queue *q, const struct qr_scatter_args *a);
    void (*cross_entropy)(struct qr_queue *q, const struct qr_cross_entropy_args *a);
    void (*adamw)(struct qr_queue *q, const struct qr_adamw_args *a);
    void (*sum_squares)(struct qr_queue *q, const struct qr_sum_squares_args *a);
    void (*momentum)(struct qr_queue *q, const struct qr_momentum_args *a);
    void (*scale)(struct qr_queue *q, const struct qr_scale_args *a);
    void (*turn)(struct qr_queue *q, const struct qr_turn_args *a);
    void (*move_by)(struct qr_queue *q, const struct qr_move_args *a);
};

/* linear_cross_entropy - the head and the loss together, a chunk of rows at a time, so that no more than a chunk of logits is ever there:
 *     logits = linear(x, w);  loss[n], dlogits = cross_entropy(logits);  dx += linear_dx(dlogits);  dw += linear_dw(dlogits, x)
 *   A composition of entries of the two tables; the logits it sees are those that `linear` serves, bit for bit.
 *
 * Shapes    x, dx [N, D]   w [V, D]: packed for linear, t row-major for linear_dx   dw [V, D]   target, loss [N]
 *           logits [chunk_rows, V] f32, rows qr_logits_stride(V) apart: scratch.
 *           dx and dw both NULL: only the loss is computed.
 *           rows, where it is not NULL, does a chunk's part of cross_entropy in its place: logits become their gradient times scale, loss is filled.
 *           `first` is the chunk's first row.
 * Numerics  chunk_rows shows in no result, but with bf16 products on tiles, where it must be a multiple of 32.
 * Cost      6*N*D*V FLOP, chunk_rows*V*4 bytes.
 * Sources   the idea of chunking: Wijmans et al. 2024 (arXiv:2411.09009), Hsu et al. 2024 (2410.10989). */
static inline int64_t qr_logits_stride(int64_t n_vocab)
{
    return (n_vocab + 15) / 16 * 16; /* whole cache lines */
}
struct qr_linear_ce_args {
    float *dx, *dw, *logits;
    double *loss;
    const float *x;
    const struct qr_weight *w;
    const int32_t *target;
    int64_t x_stride, dx_stride;
    int32_t n_rows, n_in, n_vocab, chunk_rows;
    enum qr_dtype real; /* what the two tables compute in: f32 */
    float scale;
    void (*rows)(void *user, const struct qr_cross_entropy_args *a, int32_t first);
    void *user;
    bool fresh_dx, fresh_dw;
};
void qr_linear_cross_entropy(const struct qr_kernels *k, const struct qr_backward *b, struct qr_queue *q, const struct qr_linear_ce_args *a);

#endif
