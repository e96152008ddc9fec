/* row.h - what norms, rotations and the products' packing do to one row: one source, so the same bits in each. Inside kernels/cpu only. */
#ifndef QR_KERNELS_CPU_ISA_ROW_H
#define QR_KERNELS_CPU_ISA_ROW_H

#include <math.h>

#include "kernels/cpu/isa/simd.h"

/* Sum of squares: four vectors of partial sums, element i in lane i % (4 VF_LEN), then the fixed tree. */
VF_FN float row_sum_of_squares(const float *x, int64_t n)
{
    vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int64_t i = 0; i < n; i += 4 * VF_LEN)
        for (int64_t j = 0; j < 4 && i + j * VF_LEN < n; j++) {
            vf v = vf_load_n(x + i + j * VF_LEN, vf_min_len(n - i - j * VF_LEN));
            s[j] = vf_fma(v, v, s[j]);
        }
    return vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
}

/* What a row's numbers are multiplied by before their weights. */
VF_FN vf row_inverse_rms(const float *x, int64_t n, float eps)
{
    return vf_set1(1.0f / sqrtf(row_sum_of_squares(x, n) / (float)n + eps));
}

VF_FN void row_norm(float *out, const float *x, const float *w, int64_t n, float eps)
{
    vf inverse = row_inverse_rms(x, n, eps);
    for (int64_t i = 0; i < n; i += VF_LEN) {
        int64_t len = vf_min_len(n - i);
        vf_store_n(out + i, vf_mul(vf_mul(vf_load_n(x + i, len), inverse), vf_load_n(w + i, len)), len);
    }
}

VF_FN void row_add(float *x, const float *delta, int64_t n)
{
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        vf_store_n(x + i, vf_add(vf_load_n(x + i, len), vf_load_n(delta + i, len)), len);
    }
}

/* Sum of x[0..n), as row_sum_of_squares has it. */
VF_FN float row_sum(const float *x, int64_t n)
{
    vf s[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    for (int64_t i = 0; i < n; i += 4 * VF_LEN)
        for (int64_t j = 0; j < 4 && i + j * VF_LEN < n; j++)
            s[j] = vf_add(vf_load_n(x + i + j * VF_LEN, vf_min_len(n - i - j * VF_LEN)), s[j]);
    return vf_sum(vf_add(vf_add(s[0], s[1]), vf_add(s[2], s[3])));
}

/* (x - mean) / deviation * w + bias; what is left of x after its mean lies in out meanwhile. */
VF_FN void row_layer_norm(float *out, const float *x, const float *w, const float *bias, int64_t n, float eps)
{
    const vf mean = vf_set1(row_sum(x, n) / (float)n);
    for (int64_t i = 0; i < n; i += VF_LEN)
        vf_store_n(out + i, vf_sub(vf_load_n(x + i, vf_min_len(n - i)), mean), vf_min_len(n - i));
    const vf inverse = row_inverse_rms(out, n, eps);
    for (int64_t i = 0; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        const vf y = vf_mul(vf_mul(vf_load_n(out + i, len), inverse), vf_load_n(w + i, len));
        vf_store_n(out + i, bias ? vf_add(y, vf_load_n(bias + i, len)) : y, len);
    }
}

/* One head, halves against each other. */
VF_FN void row_rotate(float *x, const float *c, const float *s, int32_t half)
{
    for (int32_t i = 0; i < half; i += VF_LEN) {
        int64_t len = vf_min_len(half - i);
        vf x0 = vf_load_n(x + i, len), x1 = vf_load_n(x + half + i, len);
        vf cv = vf_load_n(c + i, len), sv = vf_load_n(s + i, len);
        vf_store_n(x + i, vf_fnma(x1, sv, vf_mul(x0, cv)), len);
        vf_store_n(x + half + i, vf_fma(x0, sv, vf_mul(x1, cv)), len);
    }
}

/* The largest number of x[0..n); -infinity where there is none. */
VF_FN float row_largest(const float *x, int64_t n)
{
    const vf none = vf_set1(-INFINITY);
    vf most[4] = {none, none, none, none};
    int64_t i = 0;
    for (; i + 4 * VF_LEN <= n; i += 4 * VF_LEN)
        for (int k = 0; k < 4; k++)
            most[k] = vf_max(vf_load(x + i + k * VF_LEN), most[k]); /* what is no number comes first and is passed over */
    for (; i < n; i += VF_LEN)
        most[0] = vf_max(vf_pick_range(0, vf_min_len(n - i), vf_load_n(x + i, vf_min_len(n - i)), none), most[0]);
    return vf_max_all(vf_max(vf_max(most[0], most[1]), vf_max(most[2], most[3])));
}

/* e^(scale (v - most)) where v is a number, else 0; scale in units of ln 2. */
VF_FN vf row_exp_beside(vf v, vf most, vf scale)
{
    return vf_exp2_of_negative(vf_max(vf_mul(vf_sub(v, most), scale), vf_set1(-160.0f))); /* what is no number comes first */
}

/* sum e^(c ln 2 (x - largest)) over the numbers of x[0..n). An exponent t errs by 3 roundings, |t| 3 2^-24 in all, which is ln 2 times that of its term: at
 * worst, with one term of 1 and 255 small ones, 2^-20 of the sum. 2^-22 of vf_exp2_of_negative, and 20 roundings of additions at most. */
VF_FN float row_sum_of_exp(const float *x, int64_t n, float largest, float c)
{
    const vf most = vf_set1(largest), scale = vf_set1(c), none = vf_set1(-INFINITY);
    vf sum[4] = {vf_zero(), vf_zero(), vf_zero(), vf_zero()};
    int64_t i = 0;
    for (; i + 4 * VF_LEN <= n; i += 4 * VF_LEN)
        for (int k = 0; k < 4; k++)
            sum[k] = vf_add(sum[k], row_exp_beside(vf_load(x + i + k * VF_LEN), most, scale));
    for (; i < n; i += VF_LEN) {
        const int64_t len = vf_min_len(n - i);
        sum[0] = vf_add(sum[0], row_exp_beside(vf_pick_range(0, len, vf_load_n(x + i, len), none), most, scale));
    }
    return vf_sum(vf_add(vf_add(sum[0], sum[1]), vf_add(sum[2], sum[3])));
}

/* What a product says of outputs [first, end), first of a stretch, of n_rows rows that it has just written. The sums, where the largest are known: */
VF_FN void row_sums(const struct qr_linear_args *a, int64_t row0, int64_t n_rows, int64_t first, int64_t end)
{
    const struct qr_stretches *s = a->stretches;
    end = end < a->n_out ? end : a->n_out;
    for (int64_t r = row0; r < row0 + n_rows; r++)
        for (int64_t o = first; o < end && s->scale[r] > 0; o += QR_LINEAR_STRETCH) {
            const int64_t n = end - o < QR_LINEAR_STRETCH ? end - o : QR_LINEAR_STRETCH, at = r * s->stride + o / QR_LINEAR_STRETCH;
            s->sum[at] = row_sum_of_exp(a->out + r * a->out_stride + o, n, s->largest[at], s->scale[r] * 0x1.715476p+0f);
        }
}

/* And both: */
VF_FN void row_stretches(const struct qr_linear_args *a, int64_t row0, int64_t n_rows, int64_t first, int64_t end)
{
    const struct qr_stretches *s = a->stretches;
    const int64_t last = end < a->n_out ? end : a->n_out;
    for (int64_t r = row0; r < row0 + n_rows; r++)
        for (int64_t o = first; o < last; o += QR_LINEAR_STRETCH)
            s->largest[r * s->stride + o / QR_LINEAR_STRETCH] =
                row_largest(a->out + r * a->out_stride + o, last - o < QR_LINEAR_STRETCH ? last - o : QR_LINEAR_STRETCH);
    if (s->sum)
        row_sums(a, row0, n_rows, first, end);
}

VF_FN vf row_act(vf x, enum qr_act act)
{
    return act == QR_ACT_SILU ? vf_silu(x) : vf_gelu_tanh(x);
}

/* A gated unit. What is no number stays that: the second operand of a minimum or maximum goes through. */
VF_FN vf row_glu(vf gate, vf up, enum qr_act act, struct qr_clamp clamp)
{
    if (act != QR_ACT_CLAMPED)
        return vf_mul(row_act(gate, act), up);
    const vf limit = vf_set1(clamp.limit), g = vf_min(limit, gate);
    const vf u = vf_max(vf_set1(-clamp.limit), vf_min(limit, up));
    const vf e = vf_exp(vf_mul(vf_set1(-clamp.alpha), g));
    return vf_mul(vf_div(g, vf_add(vf_set1(1.0f), e)), vf_add(u, vf_set1(1.0f)));
}

#endif
