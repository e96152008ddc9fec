/* round_rows.h - inside loader/ only: the rows of a matrix through all threads: read, multiplied, rounded. What comes out does not depend on their number.
 *
 * One owning thread, the backend's worker 0. A piece is some rows: what is in memory in f32 is sixteen of them for each thread.
 */
#ifndef QR_LOADER_WRITE_ROUND_ROWS_H
#define QR_LOADER_WRITE_ROUND_ROWS_H

#include "kernels/backend.h"
#include "loader/write/rounding.h"
#include "loader/stores/tensor_files.h"

struct qr_round_rows {
    struct qr_backend *be;  /* borrowed, or NULL: the calling thread does it alone */
    int32_t n_threads;
    enum qr_rounding type;
    int64_t group;          /* 0: all of a row */
    int64_t in_max, out_max;
    int64_t piece;          /* rows at a time */
    float *rows, *largest;  /* owned, of each thread: [16 in_max], [in_max] */
    struct qr_rounded work; /* owned, of each thread: [in_max] */
    double *error;          /* owned [items of out_max rows] */
    uint8_t *codes;         /* owned [piece in_max]: what a piece became, a byte each */
    uint16_t *scale;        /* owned [groups_max]: of one matrix */
    int8_t *zero;           /* owned [groups_max]: INT4Z */
};

/* in_max, out_max: of the widest and the tallest matrix; groups_max: of the one with most of them. */
void qr_round_rows_init(struct qr_round_rows *r, struct qr_backend *be, enum qr_rounding type, int64_t group, int64_t in_max, int64_t out_max,
                        int64_t groups_max);
void qr_round_rows_release(struct qr_round_rows *r); /* also of a zeroed one */

/* A matrix [n_out, n_in] as the file has it; transposed: as [n_in, n_out]. */
struct qr_round_matrix {
    const struct qr_tensor_files *st;
    const struct qr_stored_tensor *t;
    bool transposed;
    const float *factor;     /* columns are multiplied by it; or NULL */
    const float *importance; /* of inputs as the rows are stored; or NULL */
};
int64_t qr_round_matrix_outputs(const struct qr_round_matrix *m);
int64_t qr_round_matrix_inputs(const struct qr_round_matrix *m);

/* largest[i] becomes at least the largest number of column i. */
void qr_round_rows_largest(struct qr_round_rows *r, const struct qr_round_matrix *m, float *largest);

/* Sum of importance (w - rounded)^2 for the matrix as the file has it, rounded as multiplied by `factor`, without clipping. Requires importance. */
double qr_round_rows_error(struct qr_round_rows *r, const struct qr_round_matrix *m);

/* Rows [first, first + n), n at most `piece`, into r->codes, and their scales and zeros into those of the matrix. Returns -1, or the first row with a number
 * that is not finite. */
int64_t qr_round_rows_piece(struct qr_round_rows *r, const struct qr_round_matrix *m, int64_t first, int64_t n);

#endif
