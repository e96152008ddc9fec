/* rows.c - rows of measured kernels as JSON, and the comparison with a baseline (rows.h). */
#include "bench/kern/rows.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define FILE_MAX ((size_t)64 << 20)

void qr_kern_rows_add(struct qr_kern_rows *r, const struct qr_kern_row *row)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(row != NULL);
    if (r->n == r->cap) {
        r->cap = r->cap < 64 ? 64 : r->cap * 2;
        r->row = qr_realloc(r->row, (size_t)r->cap, sizeof *r->row);
    }
    r->row[r->n++] = *row;
}

void qr_kern_rows_release(struct qr_kern_rows *r)
{
    qr_free(r->row);
    *r = (struct qr_kern_rows){0};
}

/* ---- JSON ---- */

static const struct {
    const char *key;
    size_t offset;
    bool needed;
} numbers[] = {
    {"median_us", offsetof(struct qr_kern_row, median_us), true},
    {"best_us", offsetof(struct qr_kern_row, best_us), true},
    {"gb_s", offsetof(struct qr_kern_row, gb_s), true},
    {"gflop_s", offsetof(struct qr_kern_row, gflop_s), true},
    {"share", offsetof(struct qr_kern_row, share), false},
};

void qr_kern_rows_put_json(struct qr_buf *out, const struct qr_kern_rows *r)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(r != NULL);
    qr_buf_put_str(out, "{\"quire_version\":\"" QUIRE_VERSION "\",\"cpu\":");
    qr_json_put_str(out, r->cpu, strlen(r->cpu));
    qr_buf_printf(out, ",\"processors\":%d,\"rows\":[", r->n_cpus);
    for (int32_t i = 0; i < r->n; i++) {
        const struct qr_kern_row *row = &r->row[i];
        qr_buf_put_str(out, i > 0 ? ",\n{\"isa\":" : "\n{\"isa\":");
        qr_json_put_str(out, row->isa, strlen(row->isa));
        qr_buf_printf(out, ",\"threads\":%d,\"case\":", row->n_threads);
        qr_json_put_str(out, row->what, strlen(row->what));
        qr_buf_put_str(out, row->probe ? ",\"probe\":true" : "");
        for (int k = 0; k < QR_COUNT(numbers); k++) {
            double v;
            memcpy(&v, (const char *)row + numbers[k].offset, sizeof v);
            qr_buf_printf(out, ",\"%s\":", numbers[k].key);
            qr_json_put_f64(out, v);
        }
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_str(out, "\n]}\n");
}

static bool copy_text(char *to, size_t cap, const struct qr_json *v)
{
    size_t n;
    if (v == NULL || qr_json_type(v) != QR_JSON_T_STRING)
        return false;
    const char *s = qr_json_str(v, &n);
    snprintf(to, cap, "%s", s);
    return n > 0 && n < cap && strlen(s) == n;
}

static bool parse_row(struct qr_kern_row *row, const struct qr_json *v)
{
    int64_t n_threads;
    const struct qr_json *threads = qr_json_find(v, "threads"), *probe = qr_json_find(v, "probe");
    *row = (struct qr_kern_row){0};
    if (!copy_text(row->isa, sizeof row->isa, qr_json_find(v, "isa")) || !copy_text(row->what, sizeof row->what, qr_json_find(v, "case")) ||
        threads == NULL || !qr_json_i64(threads, &n_threads) || n_threads < 1 || n_threads > 1 << 20)
        return false;
    row->n_threads = (int32_t)n_threads;
    row->probe = probe != NULL && qr_json_type(probe) == QR_JSON_T_BOOL && qr_json_bool(probe);
    for (int k = 0; k < QR_COUNT(numbers); k++) {
        const struct qr_json *number = qr_json_find(v, numbers[k].key);
        if (number == NULL && !numbers[k].needed)
            continue;
        if (number == NULL || qr_json_type(number) != QR_JSON_T_NUMBER || !(qr_json_f64(number) >= 0))
            return false;
        double x = qr_json_f64(number);
        memcpy((char *)row + numbers[k].offset, &x, sizeof x);
    }
    return row->best_us > 0;
}

int qr_kern_rows_parse(struct qr_kern_rows *r, const char *text, size_t n, struct qr_err *err)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(text != NULL || n == 0);
    struct qr_json *doc = NULL;
    int rc = qr_json_parse(&doc, text, n, &qr_json_limits_file, err);
    *r = (struct qr_kern_rows){0};
    if (rc != 0) {
        err->code = QR_E_DAMAGED;
        return QR_E_DAMAGED;
    }
    const struct qr_json *rows = qr_json_find(doc, "rows");
    if (rows == NULL || qr_json_type(rows) != QR_JSON_T_ARRAY || !copy_text(r->cpu, sizeof r->cpu, qr_json_find(doc, "cpu")))
        rc = qr_err_set(err, QR_E_DAMAGED, "this is no file that quire bench kern --json wrote: it has no \"cpu\" and \"rows\"");
    for (const struct qr_json *v = rc == 0 ? qr_json_first(rows) : NULL; v != NULL && rc == 0; v = qr_json_after(v)) {
        struct qr_kern_row row;
        if (parse_row(&row, v))
            qr_kern_rows_add(r, &row);
        else
            rc = qr_err_set(err, QR_E_DAMAGED, "row %d lacks isa, threads, case or a time", r->n + 1);
    }
    qr_json_free(doc);
    return rc;
}

int qr_kern_rows_read(struct qr_kern_rows *r, const char *path, struct qr_err *err)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(path != NULL);
    struct qr_buf text = {0};
    *r = (struct qr_kern_rows){0};
    int rc = qr_file_read(&text, path, QR_FILE_ANY, FILE_MAX, err);
    if (rc == 0 && (rc = qr_kern_rows_parse(r, text.data, text.len, err)) != 0)
        qr_err_prefix(err, "%.200s: ", path);
    qr_buf_release(&text);
    return rc;
}

/* ---- comparing ---- */

int qr_kern_threshold_parse(double *share, const char *text, struct qr_err *err)
{
    QR_ASSERT(share != NULL);
    QR_ASSERT(text != NULL);
    char *end;
    double v = strtod(text, &end);
    if (end == text || (strcmp(end, "") != 0 && strcmp(end, "%") != 0 && strcmp(end, " %") != 0) || !(v >= 0 && v <= 1e4))
        return qr_err_set(err, QR_E_USAGE, "--threshold: expected a percentage such as 10%%, found '%.40s'", text);
    *share = v / 100;
    return 0;
}

static const struct qr_kern_row *find(const struct qr_kern_rows *r, const struct qr_kern_row *row)
{
    for (int32_t i = 0; i < r->n; i++)
        if (r->row[i].n_threads == row->n_threads && strcmp(r->row[i].isa, row->isa) == 0 && strcmp(r->row[i].what, row->what) == 0)
            return &r->row[i];
    return NULL;
}

struct qr_kern_verdict qr_kern_compare(struct qr_buf *out, const struct qr_kern_rows *now, const struct qr_kern_rows *before, double threshold)
{
    QR_ASSERT(out != NULL && now != NULL && before != NULL);
    QR_ASSERT(threshold >= 0 && isfinite(threshold));
    struct qr_kern_verdict v = {0};
    if (strcmp(now->cpu, before->cpu) != 0)
        qr_buf_printf(out, "warning: the baseline is of another machine: %s\n", before->cpu);
    for (int32_t i = 0; i < now->n; i++) {
        const struct qr_kern_row *a = &now->row[i], *b = find(before, a);
        bool slower = b != NULL && a->best_us > b->best_us * (1 + threshold), faster = b != NULL && a->best_us * (1 + threshold) < b->best_us;
        if (slower || faster)
            qr_buf_printf(out, "%-7s %-6s %2d  %-58s best %9.1f -> %9.1f us: %.2f x the time\n", a->probe ? "machine" : slower ? "slower" : "faster", a->isa,
                          a->n_threads, a->what, b->best_us, a->best_us, a->best_us / b->best_us);
        if (a->probe)
            continue;
        v.n_common += b != NULL;
        v.n_new += b == NULL;
        v.n_slower += slower;
        v.n_faster += faster;
    }
    for (int32_t i = 0; i < before->n; i++)
        v.n_missing += !before->row[i].probe && find(now, &before->row[i]) == NULL;
    qr_buf_printf(out, "baseline: %d kernels compared by their best times: %d slower and %d faster by more than %g %%; %d new, %d not measured now\n",
                  v.n_common, v.n_slower, v.n_faster, 100 * threshold, v.n_new, v.n_missing);
    return v;
}
