/* html.h - the report of `quire bench load` as one HTML file: no script, nothing loaded, light and dark. For bench/load*.c. */
#ifndef QR_BENCH_LOAD_HTML_H
#define QR_BENCH_LOAD_HTML_H

#include "bench/load/sweep.h"

struct qr_load_page {
    const struct qr_load_options *opt;   /* all borrowed */
    const struct qr_load_target *target;
    const struct qr_load_slo *slo;
    const struct qr_load_sweep *sweep;   /* NULL: a single run */
    struct qr_load_plan *plan;           /* of the run whose distributions are shown; these three are NULL when there is none */
    struct qr_load_result *result;
    struct qr_load_figures *figures;
    const char *held;                    /* a line for each --fail-if condition that holds */
    int64_t wall_s;                      /* when, in seconds since 1970 */
};

/* Appends the page: well-formed XML, UTF-8. Whatever the server said is escaped. */
void qr_load_put_html(struct qr_buf *out, const struct qr_load_page *p);

#endif
