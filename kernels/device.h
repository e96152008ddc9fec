/* device.h - what a kind of device is made of, behind backend.h. Inside kernels/ only; backend.c chooses, backend_*.c fill in. */
#ifndef QR_KERNELS_DEVICE_H
#define QR_KERNELS_DEVICE_H

#include "kernels/backend.h"

struct qr_device {
    void (*close)(struct qr_backend *be); /* also of one that was opened halfway */
    size_t (*scratch_bytes)(const struct qr_backend *be);
    int (*supports)(const struct qr_backend *be, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim, int32_t block_tokens,
                    struct qr_err *err);
    int (*trains)(const struct qr_backend *be, struct qr_err *err);
    void (*prepare)(struct qr_backend *be, const struct qr_linear_args *a, int32_t rows_max);     /* NULL: nothing to prepare */
    void (*plans)(const struct qr_backend *be, char *out, size_t size);                          /* likewise */
    size_t (*export_choices)(struct qr_backend *be, char *out, size_t size);                     /* likewise, both */
    void (*adopt_choices)(struct qr_backend *be, const char *text);
    struct qr_backend_ways (*ways)(const struct qr_backend *be);                                 /* likewise */
};

#define QR_STEP_ROWS_DEFAULT 2048

/* Fill in a zeroed backend. Errors as of qr_backend_open; the caller then closes. */
int qr_device_open_cpu(struct qr_backend *be, const struct qr_backend_options *o, struct qr_err *err);
int qr_device_open_cuda(struct qr_backend *be, const struct qr_backend_options *o, int32_t index, struct qr_err *err);

/* Threads of the host as the options ask for them, with so much scratch memory; sets be->pool and be->n_threads. */
int qr_device_open_pool(struct qr_backend *be, const struct qr_backend_options *o, size_t shared_bytes, size_t own_bytes, struct qr_err *err);

#endif
