/* row.h - what norms, rotations and the products' packing do to one row, so that whoever does it gives the same bits. Inside kernels/cpu only.
 */
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

/* act(gate) * up. */
VF_FN vf row_glu(vf gate, vf up, enum qr_act act)
{
    return vf_mul(act == QR_ACT_SILU ? vf_silu(gate) : vf_gelu_tanh(gate), up);
}

#endif
