/* whole_model.h - products with coded weights by integers, as levels avx2 and avx512 have them (kernels.h, linear: Coded), number by number; and how far from
 * the exact product they may be. */
#ifndef QR_TESTS_KERNELS_WHOLE_MODEL_H
#define QR_TESTS_KERNELS_WHOLE_MODEL_H

#include "tests/kernels/coded_source.h"

/* Whether this level multiplies weights of this type so. */
static inline bool whole_multiplies(const char *level, enum qr_dtype t)
{
    return (strcmp(level, "avx2") == 0 || strcmp(level, "avx512") == 0) && qr_dtype_is_coded(t) && !qr_dtype_coded(t).e4m3;
}

/* n <= 32 numbers as integers with a unit; returns the unit. */
static inline float whole_integers(int32_t whole[32], const float *x, int64_t n)
{
    int e = -111;
    memset(whole, 0, 32 * sizeof *whole);
    for (int64_t i = 0; i < n; i++) {
        int own = 0;
        if (!isfinite(x[i]))
            return NAN;
        if (x[i] != 0)
            (void)frexpf(x[i], &own);
        e = x[i] != 0 && own > e ? own : e;
    }
    for (int64_t i = 0; i < n; i++)
        whole[i] = (int32_t)fmin(nearbyint(ldexp((double)x[i], 15 - e)), 32767);
    return ldexpf(1, e - 15);
}

/* What is kept of output o's scale and offset at input i, in f32; the zero of its levels. */
static inline void whole_scale(float *scale, float *offset, int32_t *zero, const struct qr_coded_rows *row, struct qr_coded_format f, float factor, int64_t i)
{
    const int64_t u = i / qr_coded_unit(f), g = i / f.group;
    *scale = qr_coded_kept(row->scale[u], factor) * (f.steps ? (float)row->step[g] : 1);
    *offset = f.offset ? qr_coded_kept(row->offset[u], factor) * (f.steps ? (float)row->offset_step[g] : 1) : 0;
    *zero = f.zero ? row->offset_step[g] : 0;
}

/* One output's sum. *exact is that of weights which are rounded to nothing, in double; *most how far from it the sum may be: a unit for each weight
 * (coded/q16.h), and of what is added up 2^-24 for an integer that becomes a float and for each addition. */
static inline float whole_sum(double *exact, double *most, const struct coded_source *s, int64_t o, const float *x)
{
    const struct qr_coded_format f = s->f;
    const struct qr_coded_rows row = qr_coded_row(&s->all, f, s->n_in, o);
    const float factor = qr_coded_factor(&row, f, s->n_in);
    const int32_t run = f.group == 16 ? 16 : 32;
    int32_t whole[32], n_added = 0;
    float acc = 0, unit = 0;
    double size = 0;
    *exact = *most = 0;
    for (int64_t k = 0; k < s->n_in; k += run) {
        const int64_t n = s->n_in - k < run ? s->n_in - k : run;
        float scale, offset;
        int32_t zero;
        int64_t sum = 0, all = 0;
        if (k % 32 == 0)
            unit = whole_integers(whole, x + k, s->n_in - k < 32 ? s->n_in - k : 32);
        whole_scale(&scale, &offset, &zero, &row, f, factor, k);
        for (int64_t i = 0; i < n; i++) {
            const double w = (double)scale * (row.level[k + i] - zero) + (double)offset;
            sum += (row.level[k + i] - zero) * (int64_t)whole[k % 32 + i];
            all += whole[k % 32 + i];
            *exact += w * (double)x[k + i];
            *most += fabs(w) * (double)unit;
        }
        cr_assert(sum >= INT32_MIN && sum <= INT32_MAX);
        acc = fmaf((float)sum * unit, scale, acc);
        if (f.offset)
            acc = fmaf((float)all * unit, offset, acc);
        size += fabs((double)sum * (double)unit * (double)scale) + fabs((double)all * (double)unit * (double)offset);
        n_added += 3;
    }
    *most += gamma_n(n_added) * size;
    return acc;
}

#endif
