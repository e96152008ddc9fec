/* probe.h - what this machine can do at most, measured beside the kernels in the same run: bytes out of memory, and products in
 * the units that a level of kernels has. Loops that only load, or only multiply; no kernel can be faster. */
#ifndef QR_BENCH_KERN_PROBE_H
#define QR_BENCH_KERN_PROBE_H

#include <stddef.h>

#include "kernels/backend.h"

enum qr_probe_unit {
    QR_PROBE_F32,  /* fused multiply-adds of f32 */
    QR_PROBE_BF16, /* products of bf16: tiles, or the former where a level has nothing better */
    QR_PROBE_INT8, /* products of bytes: tiles, VNNI, or the former */
    QR_PROBE_UNITS
};

/* The unit that bounds a product with weights of this type, whose activations are rounded to fit it. */
enum qr_probe_unit qr_probe_unit_of(enum qr_dtype weights);

/* What the loop of this unit at a level executes, as "tdpbf16ps"; NULL when the level has none ("ref", "null"). */
const char *qr_probe_name(const char *isa, enum qr_probe_unit unit);

/* One reading of all of `memory` by all threads of the queue. */
void qr_probe_read(struct qr_queue *q, const void *memory, size_t n_bytes);

/* One round of products on all threads; returns the operations done, two a product. Takes about a millisecond. 0 without a loop. */
double qr_probe_multiply(struct qr_queue *q, int32_t n_threads, const char *isa, enum qr_probe_unit unit);

/* The best of `repeats` rounds: bytes a second, operations a second. */
double qr_probe_bytes_s(struct qr_queue *q, const void *memory, size_t n_bytes, int32_t repeats);
double qr_probe_ops_s(struct qr_queue *q, int32_t n_threads, const char *isa, enum qr_probe_unit unit, int32_t repeats);

/* Finite numbers of moderate size, as f32 and as bf16, in all of it: zeros would take less current, and less time. */
void qr_probe_fill(struct qr_backend *be, void *memory, size_t n_bytes);

/* ---- of a device, whose units no loop of the host reaches ---- */

/* Seconds of a call when n_calls are launched one behind the other and waited for together. */
double qr_probe_device_s(const struct qr_backend *be, void (*call)(void *arg), void *arg, int32_t n_calls);

/* Copying one half of `memory` to the other: bytes read and written a second. */
double qr_probe_device_bytes_s(struct qr_backend *be, void *memory, size_t n_bytes);

/* Operations a second of its own largest product in bf16 (4,096 rows, 8,192 by 8,192), which others can be compared with; n_bytes of memory
 * hold at least qr_probe_device_room. What is there counts as numbers. */
size_t qr_probe_device_room(const struct qr_backend *be);
double qr_probe_device_ops_s(struct qr_backend *be, void *memory, size_t n_bytes);

#endif
