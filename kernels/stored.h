/* stored.h - what loading and `quire quantize` do with the numbers of files and is worth an instruction set's own loops: a table for each level
 * (struct qr_kernels, `stored`), whose entries may each be NULL. Whoever calls one has plain loops beside it that give the same bits; what files are stays
 * in loader/. Pure; any thread.
 */
#ifndef QR_KERNELS_STORED_H
#define QR_KERNELS_STORED_H

#include <stdint.h>

/* A way to round to 4 bits: w = scale (code - zero), -8 <= code <= 7. */
struct qr_int4_way {
    float scale, zero; /* scale a bf16 number, zero a whole number from -8 to 7 */
};

struct qr_stored_ops {
    /* error[i] = sum of importance (w - rounded)^2 over w [n], rounded by way[i], to the bit as qr_int4_error gives it, or any number that is no less than
     * one before it where that one is not either. n is a multiple of 4; importance or NULL. */
    void (*int4_errors)(double *error, const float *w, const float *importance, int64_t n, const struct qr_int4_way *way, int32_t n_ways);

    /* Codes of 4 bits as bytes: that of output o and input i to code[o * pitch + i].
     * across   a word has eight outputs of an input, output o in place order[o], places from the low bits up; words of an input lie side by side, those of
     *          the next one words_pitch bytes further. 8 n_words outputs.
     * along    a word has eight inputs of an output from the low bits up; n_in of them, the last word may have more. Where `in`
     *          is not NULL, input i is input in[i] of the words. */
    void (*across)(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_words, int64_t n_in, const uint8_t order[8]);
    void (*along)(uint8_t *code, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_out, int64_t n_in,
                  const int32_t *in);

    /* The same as words of coded rows (struct qr_coded_rows), to[i / 8 * pitch + o]; n_in is a multiple of 32. */
    void (*across_words)(uint32_t *to, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_words, int64_t n_in,
                         const uint8_t order[8]);
    void (*along_words)(uint32_t *to, int64_t pitch, const uint8_t *words, int64_t words_pitch, int64_t n_out, int64_t n_in,
                        const int32_t *in);
};

/* The code of a number as a whole number. w finite, scale that of its group: the quotient is finite. To the nearest, ties to even: from 2^23 on f32 has no
 * fractions. */
static inline float qr_stored_integer(float w, float scale, float zero, float low, float high)
{
    const float x = w / scale + zero, y = x < low ? low : x > high ? high : x;
    return y + 0x1.8p23f - 0x1.8p23f;
}

#define QR_STORED_LANES 4 /* sums that are taken side by side, in whatever registers there are */

/* The weighted error of 4 bits. What is left of n behind a multiple of QR_STORED_LANES is added to the first sum. */
static inline double qr_int4_error(const float *w, const float *importance, int64_t n, const struct qr_int4_way *k)
{
    const float scale = k->scale, zero = k->zero;
    double sum[QR_STORED_LANES] = {0};
    int64_t i = 0;
    for (; i + QR_STORED_LANES <= n; i += QR_STORED_LANES) {
        double off[QR_STORED_LANES];
        for (int l = 0; l < QR_STORED_LANES; l++)
            off[l] = (double)w[i + l] - (double)scale * (double)(qr_stored_integer(w[i + l], scale, zero, -8, 7) - zero);
        for (int l = 0; l < QR_STORED_LANES; l++)
            sum[l] += (importance ? (double)importance[i + l] : 1) * off[l] * off[l];
    }
    for (; i < n; i++) {
        const double off = (double)w[i] - (double)scale * (double)(qr_stored_integer(w[i], scale, zero, -8, 7) - zero);
        sum[0] += (importance ? (double)importance[i] : 1) * off * off;
    }
    return (sum[0] + sum[1]) + (sum[2] + sum[3]);
}

#endif
