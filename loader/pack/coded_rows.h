/* coded_rows.h - what files hold in blocks or other codes, as the coded rows that kernels keep (kernels.h, linear_pack_coded): nothing is lost on the way.
 * Knows the kinds of files; kernels do not. Pure; any thread may read.
 */
#ifndef QR_LOADER_PACK_CODED_ROWS_H
#define QR_LOADER_PACK_CODED_ROWS_H

#include "kernels/kernels.h"
#include "loader/pack/share.h"
#include "loader/stores/tensor_files.h"

/* A coded type and, with 4 bits, the 16 numbers that its codes stand for. */
struct qr_stored_code {
    enum qr_dtype type;
    const int8_t *levels;  /* NULL with more or fewer bits */
    const int32_t *inputs; /* [n_in], borrowed: the order of inputs (quantized_tensors.h); NULL: their own */
    int64_t n_in;
};

/* The one that keeps a stored tensor as it is. False: it is stored as numbers. */
bool qr_stored_code(struct qr_stored_code *out, const struct qr_stored_tensor *t);

/* Whether their inputs stand in the same order. */
bool qr_stored_code_in_order(const struct qr_stored_code *a, const struct qr_stored_code *b);

/* And whether they can be rows of one matrix. */
bool qr_stored_code_equal(const struct qr_stored_code *a, const struct qr_stored_code *b);

/* For kernels that do not have codes of fewer than 4 bits: what keeps such a code with more. Others stay as they are. */
void qr_stored_code_widen(struct qr_stored_code *c);

/* Rows from `first_row` on and a stretch of columns of a tensor, as a source for linear_pack_coded; its fill's argument. `as` keeps the tensor (itself, or
 * wider); cols begin and end where the tensor's groups (or 256 inputs, with steps) do. */
struct qr_stored_rows {
    const struct qr_tensor_files *files; /* borrowed, as is t */
    const struct qr_stored_tensor *t;
    struct qr_stored_code as;
    int64_t first_row;
    struct qr_span cols;
};

struct qr_coded_source qr_stored_source(const struct qr_stored_rows *rows);

#endif
