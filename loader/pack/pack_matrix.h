/* pack_matrix.h - matrices of files, or parts of them, into the order in which kernels read them. On the processor what is small waits until there is enough
 * for all threads, which then go from matrix to matrix without waiting for each other; a device gets one after the other. One opening's, on its thread.
 */
#ifndef QR_LOADER_PACK_PACK_MATRIX_H
#define QR_LOADER_PACK_PACK_MATRIX_H

#include "kernels/backend.h"
#include "loader/pack/share.h"
#include "loader/stores/tensor_files.h"

struct qr_packer;

/* region: where all of it goes, in this order, [n_bytes]; pages of it that nobody has entered are entered before they are written. All is borrowed. */
struct qr_packer *qr_packer_new(struct qr_backend *be, const struct qr_tensor_files *files, void *region, size_t n_bytes);
/* Pages of t, which are mapped and stay so: rows of it are packed from there. */
void qr_packer_stays(struct qr_packer *p, const struct qr_stored_tensor *t);
/* Rows are read from now on, also where it might be faster to look at them in the mapping: as when the latter has turned out to be slow. */
void qr_packer_reads(struct qr_packer *p);
void qr_packer_free(struct qr_packer *p); /* what was not run is not packed */

/* A rectangle of a matrix in the file. */
struct qr_cut {
    struct qr_span rows, cols;
    bool turned; /* they are the stored matrix's columns, and all its rows */
    bool coded;  /* codes stay as the file has them; else dst is made from numbers */
};

/* The cut becomes rows `first` on of dst, from the next run on at the latest; dst is copied. */
void qr_packer_matrix(struct qr_packer *p, const struct qr_weight *dst, int64_t first, const struct qr_stored_tensor *t, const struct qr_cut *cut);

/* From the file's numbers to those that are computed with. */
struct qr_vector_change {
    float factor, offset;
};

/* Likewise some of a vector, or of rows, as f32 from dst on. */
void qr_packer_vector(struct qr_packer *p, float *dst, const struct qr_stored_tensor *t, const struct qr_span *part, const struct qr_vector_change *change);

/* All that was asked for until now is there, unless a file could not be read: it has become shorter since it was opened, or its device fails. */
void qr_packer_run(struct qr_packer *p);
void qr_packer_give_back(struct qr_packer *p); /* then: what was looked at of the files, but for what stays. Requires that nothing waits */
int32_t qr_packer_failed(const struct qr_packer *p); /* the file (qr_tensor_files_shard_name); -1: none. Requires that nothing waits */

/* Before t is looked at where its file is mapped. False: its file has become shorter, which is kept as a file that could not be read. */
bool qr_packer_looks(struct qr_packer *p, const struct qr_stored_tensor *t);

#endif
