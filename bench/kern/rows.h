/* rows.h - the rows of `quire bench kern` as data: written as JSON, read again as a baseline, compared. Touches no kernel. */
#ifndef QR_BENCH_KERN_ROWS_H
#define QR_BENCH_KERN_ROWS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

struct qr_kern_row {
    char isa[16], what[96]; /* what: the kernel and its shape. With isa and n_threads it names the row */
    int32_t n_threads;
    bool probe;             /* a limit of the machine, not a kernel of ours */
    double median_us, best_us, gb_s, gflop_s; /* of one call; gflop_s 0 where none are counted */
    double share;           /* of the nearer limit, which probes of the same run have; 0: not known */
};

struct qr_kern_rows {
    char cpu[160];
    int32_t n_cpus;
    struct qr_kern_row *row; /* owned [cap] */
    int32_t n, cap;
};

void qr_kern_rows_add(struct qr_kern_rows *r, const struct qr_kern_row *row);
void qr_kern_rows_release(struct qr_kern_rows *r);
void qr_kern_rows_put_json(struct qr_buf *out, const struct qr_kern_rows *r);

/* Reads what put_json wrote; members that it does not know are skipped. To be released even after an error. QR_E_DAMAGED. */
int qr_kern_rows_parse(struct qr_kern_rows *r, const char *text, size_t n, struct qr_err *err);

/* The whole file. QR_E_NOT_FOUND, QR_E_IO, QR_E_DAMAGED, QR_E_NO_ROOM (64 MiB at most). */
int qr_kern_rows_read(struct qr_kern_rows *r, const char *path, struct qr_err *err);

/* "10%" or "10": 0.1. QR_E_USAGE. */
int qr_kern_threshold_parse(double *share, const char *text, struct qr_err *err);

struct qr_kern_verdict {
    int32_t n_common, n_slower, n_faster; /* kernels in both; of these the ones that moved by more than the threshold */
    int32_t n_new, n_missing;             /* measured but not in the baseline, and the other way round; no probes */
};

/* Compares best times, which the neighbours of a shared machine disturb least: slower is now > before * (1 + threshold), faster is
 * now * (1 + threshold) < before. Appends a line for each such kernel, one for a probe that moved as much, and a summary. */
struct qr_kern_verdict qr_kern_compare(struct qr_buf *out, const struct qr_kern_rows *now, const struct qr_kern_rows *before, double threshold);

#endif
