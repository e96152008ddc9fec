/* plans.h - dense products by cuBLASLt: for each kind of product one algorithm, chosen once and kept. Inside kernels/cuda/ only, C and C++.
 *
 * A kind is an operation and its shape with the number of rows rounded up to a bucket. What may compute it are the
 * kernel that the caller brings (`own`) and cuBLASLt's best guesses, all of which sum a product's terms in one sequence
 * (no split over K, no atomics), so each choice gives the same bits each time. Each is run on numbers of a probe,
 * timed, and its result compared with own's bit for bit:
 *
 *   - the fastest of those that equal own is `same`: with it what a row gets does not depend on how many rows there are, as own's never does;
 *   - it is taken when it is no more than 10 % slower than the fastest of all, and with `deterministic` always; else the fastest is.
 *
 * Ranks of one model adopt rank 0's choices (comm/device_comm.h), for all kinds that they share with it.
 *
 * Choices are kept in a file for each GPU and version of cuBLAS (beside the processor's tables, tune.h), so that a machine makes them once. They are made when
 * a model is opened (qr_plan_prepare), or when a kind is met first: that waits for the device and allocates for a moment, which a steady step never does. */
#ifndef QR_KERNELS_CUDA_PLANS_H
#define QR_KERNELS_CUDA_PLANS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

struct qr_queue;

/* out[m, n] (+)= sum_k a b (+ bias[n]), all row-major in bf16 (or E4M3), out f32:
 *     forward  a [m, k], b [n, k]         x and w
 *     dx       a [m, k], b [k, n]         dy and w
 *     dw       a [k, m], b [k, n]         dy and x: k are rows  */
enum qr_plan_op { QR_PLAN_FORWARD, QR_PLAN_DX, QR_PLAN_DW, QR_PLAN_OPS };

struct qr_plan_product {
    enum qr_plan_op op;
    float *out;
    const void *a, *b;
    const float *bias; /* forward, or NULL; with add or e4m3 our kernel multiplies: cuBLASLt would add in another order, or a bias in bf16 */
    int64_t out_stride, a_stride, b_stride;
    int32_t m, n, k;
    bool add;
    bool e4m3;                     /* forward: a and b are E4M3, rows padded with zeros to k, a multiple of 16 */
    const float *a_scale, *b_scale; /* [m], [n]: what sums of such numbers are multiplied by, a_scale * b_scale */
};

/* The kernel of this library that does it, for any shape. */
typedef void qr_plan_own(struct qr_queue *q, const struct qr_plan_product *p);

/* Finds or makes the choice for p's kind. p's operands are only read: how they lie, and b of forward and dx is what the
 * probe multiplies; a, out and bias may be NULL, which counts as aligned. */
void qr_plan_prepare(struct qr_queue *q, const struct qr_plan_product *p, qr_plan_own *own);

/* Multiplies by what was chosen; own where nothing was, or where the product is small. */
void qr_plan_multiply(struct qr_queue *q, const struct qr_plan_product *p, qr_plan_own *own);

/* Lines of text, one for each choice that was made in this process: which kernel multiplies, microseconds of it, of
 * `same` and of own. Cut at the end. */
void qr_plan_describe(const struct qr_queue *q, char *out, size_t size);

/* backend.h, qr_backend_ways: what of it is about products. */
struct qr_backend_ways;
void qr_plan_ways(const struct qr_queue *q, struct qr_backend_ways *out);

/* All choices as a text, for another process with such a device: its bytes with the final 0; written where they fit. qr_plan_adopt takes them in place of its
 * own, which it would otherwise make apart, by times of its own. */
size_t qr_plan_export(struct qr_queue *q, char *out, size_t size);
void qr_plan_adopt(struct qr_queue *q, const char *text);

void qr_plan_release(struct qr_queue *q); /* saves what is new */

/* linear.cu: n pseudo-random bf16 numbers below 1 (seed QR_PROBE_BYTES: 2 n E4M3 numbers of 2^-6 to 2); a sum over n words that any change of a bit changes,
 * into the device's *sum, zero before. */
#define QR_PROBE_BYTES 0x80000000u
void qr_cuda_probe_fill(struct qr_queue *q, uint16_t *to, int64_t n, uint32_t seed);
void qr_cuda_probe_sum(struct qr_queue *q, unsigned long long *sum, const float *of, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
