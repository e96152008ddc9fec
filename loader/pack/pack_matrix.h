/* pack_matrix.h - matrices of files, or parts of them, into the order in which kernels read them. On the processor what is small waits until there is enough
 * for all threads, which then go from matrix to matrix without waiting for each other; a device gets one after the other. One opening's, on its thread.
 */
#ifndef QR_LOADER_PACK_PACK_MATRIX_H
#define QR_LOADER_PACK_PACK_MATRIX_H

#include "kernels/backend.h"
#include "loader/pack/share.h"
#include "loader/stores/tensor_files.h"

#define QR_UPLOAD_BYTES ((size_t)8 << 20) /* to a device at a time: what a queue stages without allocating */

struct qr_packer;

/* be and files are borrowed. */
struct qr_packer *qr_packer_new(struct qr_backend *be, const struct qr_tensor_files *files);
void qr_packer_free(struct qr_packer *p); /* what was not run is not packed */

/* A rectangle of a matrix in the file. */
struct qr_cut {
    struct qr_span rows, cols;
    bool transposed; /* they are the stored matrix's columns, and all its rows */
    bool coded;  /* codes stay as the file has them; else dst is made from numbers */
};

/* The cut becomes rows `first` on of dst, from the next run on at the latest; dst is copied. */
void qr_packer_matrix(struct qr_packer *p, const struct qr_weight *dst, int64_t first, const struct qr_stored_tensor *t, const struct qr_cut *cut);

/* From the file's numbers to those that are computed with. */
struct qr_vector_change {
    float factor, offset;
};

/* Some of a vector, or of rows, as f32 from dst on, by the next run. */
void qr_packer_vector(struct qr_packer *p, float *dst, const struct qr_stored_tensor *t, const struct qr_span *part, const struct qr_vector_change *change);

/* Packs all that waits. A file that could not be read has become shorter since it was opened, or its disk fails. */
void qr_packer_run(struct qr_packer *p);
int32_t qr_packer_failed(const struct qr_packer *p); /* the file (qr_tensor_files_shard_name); -1: none. Requires that nothing waits */

#endif
