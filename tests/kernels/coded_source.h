/* coded_source.h - random coded rows for the kernel tests, and the numbers they stand for. */
#ifndef QR_TESTS_KERNELS_CODED_SOURCE_H
#define QR_TESTS_KERNELS_CODED_SOURCE_H

#include "kernels/coded.h"
#include "tests/kernels/util.h"

static const enum qr_dtype coded_types[] = {QR_C2_G16_SO, QR_C3_G16_S, QR_C4_G32,    QR_C4_G64,    QR_C4_G128, QR_C4_G32_Z, QR_C4_G64_Z,
                                            QR_C4_G128_Z, QR_C4_G32_O, QR_C4_G16_S,  QR_C4_G32_S,  QR_C4_G16_SO, QR_C4_G32_SO,
                                            QR_C5_G32,    QR_C5_G32_O, QR_C5_G32_SO, QR_C6_G16_S,  QR_C8_G32,  QR_C8_E4M3};

struct coded_source {
    struct qr_coded_format f;
    struct qr_coded_rows all; /* of n_rows rows */
    void *memory;
    int64_t n_in;
    struct qr_coded_source source;
};

static inline void coded_fill(const void *arg, const struct qr_coded_rows *to, int64_t first, int64_t n)
{
    const struct coded_source *s = arg;
    const struct qr_coded_rows from = qr_coded_row(&s->all, s->f, s->n_in, first);
    const size_t units = (size_t)(n * qr_coded_n_units(s->f, s->n_in)), groups = (size_t)(n * qr_coded_n_groups(s->f, s->n_in));
    cr_assert((to->offset != NULL) == s->f.offset && (to->step != NULL) == s->f.steps && n <= QR_CODED_ROWS_MAX);
    memcpy(to->level, from.level, (size_t)(n * s->n_in));
    memcpy(to->scale, from.scale, units * sizeof(float));
    if (to->offset)
        memcpy(to->offset, from.offset, units * sizeof(float));
    if (to->step)
        memcpy(to->step, from.step, groups);
    if (to->offset_step)
        memcpy(to->offset_step, from.offset_step, groups);
}

/* Scales and offsets are f16 numbers, some of them denormal, 0 or negative. What 4 bits mean: uneven, or even from a first one on. */
static inline struct coded_source *coded_source_new(struct qr_rng *r, enum qr_dtype t, int64_t n_rows, int64_t n_in)
{
    static const int8_t uneven[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
    struct coded_source *s = qr_alloc(1, sizeof *s);
    s->f = qr_dtype_coded(t);
    s->n_in = n_in;
    s->memory = qr_alloc((size_t)qr_coded_rows_bytes(s->f, n_in, n_rows), 1);
    s->all = qr_coded_rows_in(s->memory, s->f, n_in, n_rows);
    s->source = (struct qr_coded_source){.fill = coded_fill, .arg = s};
    const uint32_t kind = (uint32_t)qr_rng_next(r) % 3;
    for (int i = 0; i < 16; i++)
        s->source.levels[i] = (int8_t)(kind == 0 ? uneven[i] : kind == 1 ? i : i - 8);
    for (int64_t i = 0; i < n_rows * n_in; i++)
        s->all.level[i] = (int8_t)(s->f.bits == 4 ? s->source.levels[qr_rng_next(r) & 15]
                                                  : (int32_t)(qr_rng_next(r) & ((1u << s->f.bits) - 1)) + qr_coded_least(s->f));
    for (int64_t i = 0; s->f.e4m3 && i < n_rows * n_in; i++)
        s->all.level[i] = (int8_t)((s->all.level[i] & 0x7f) == 0x7f ? s->all.level[i] & 0x80 : s->all.level[i]); /* no NaN */
    for (int64_t i = 0; i < n_rows * qr_coded_n_units(s->f, n_in); i++) {
        const float small = qr_rng_next(r) % 16 == 0 ? 0x1p-12f : 1;
        const float scale = random_float(r) * 0.01f * small;
        s->all.scale[i] = s->f.e4m3 ? scale : qr_f16_to_f32(qr_f32_to_f16(scale));
        if (s->all.offset)
            s->all.offset[i] = qr_f16_to_f32(qr_f32_to_f16(random_float(r) * 0.03f));
    }
    for (int64_t i = 0; i < n_rows * qr_coded_n_groups(s->f, n_in); i++) {
        if (s->all.step)
            s->all.step[i] = (int8_t)(qr_rng_next(r) % 64);
        if (s->all.offset_step)
            s->all.offset_step[i] = (int8_t)(qr_rng_next(r) % 16);
    }
    return s;
}

static inline void coded_source_free(struct coded_source *s)
{
    qr_free(s->memory);
    qr_free(s);
}

#endif
