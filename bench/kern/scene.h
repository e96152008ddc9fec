/* scene.h - a batch for attention on a device: sequences of as many rows each at the end of as long a context. Inside bench/ only. */
#ifndef QR_BENCH_KERN_SCENE_H
#define QR_BENCH_KERN_SCENE_H

#include "kernels/backend.h"

struct qr_kern_scene {
    struct qr_batch host, device; /* the same, where the host and where kernels read it; host lives as long as device is used */
    int32_t *ints;                /* owned */
};

/* What its arrays take of the device. */
size_t qr_kern_scene_bytes(int32_t n_seqs, int32_t n_rows, int32_t ctx, int32_t block_tokens);

/* `room` holds that many of the device's. Block i of all in the tables is number i * step modulo their number: 1, or a prime that mixes them. */
void qr_kern_scene_make(struct qr_kern_scene *s, struct qr_backend *be, int32_t *room, int32_t n_seqs, int32_t n_rows, int32_t ctx, int32_t block_tokens,
                        int32_t step);
void qr_kern_scene_release(struct qr_kern_scene *s);

#endif
