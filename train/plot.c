/* plot.c - loss.html from log.csv: curves, cards, both themes, no script. The page is a function of the file, made anew
 * while the run goes on and put into place as a whole. Long logs are averaged as they are read, so memory is bounded. A
 * damaged line is left out. The trainer's thread. */
#include "train/plot.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/svg.h"

#define POINTS_MAX 400 /* of a curve: more are averaged, a pixel cannot show them */
#define ROWS_MAX 16384
#define WIDE 852
#define NARROW 412

/* Columns of log.csv behind the step; see log.h. */
enum { TOKENS, LOSS, EVAL_LOSS, NORM, LR, TOKENS_S, SHARE, SECONDS, N_COLUMNS };

/* The log's rows in at most ROWS_MAX entries: an entry is the mean of `fold` rows, so that a long run's plot takes no more memory than a short one's. */
struct table {
    double *step, *column[N_COLUMNS]; /* owned [rows_max]; NaN: an empty field */
    int32_t n, rows_max;
    int64_t fold;
    double last_step;
    double last[N_COLUMNS], least[N_COLUMNS], sum[N_COLUMNS]; /* of all rows; NaN, or 0 for the sum, where every field was empty */
};

/* Rows that are being averaged to an entry. */
struct folding {
    double step, sum[N_COLUMNS];
    int64_t n, of[N_COLUMNS];
};

struct curve {
    double *x, *y; /* owned [POINTS_MAX] */
    int32_t n;
};

/* ---- reading ---- */

size_t qr_train_plot_bytes(int64_t n)
{
    QR_ASSERT(n >= 0);
    const int64_t rows = n < ROWS_MAX ? n : ROWS_MAX;
    return (size_t)(rows + 1) * (1 + N_COLUMNS) * sizeof(double);
}

static void make_table(struct table *t, int64_t n_rows)
{
    *t = (struct table){.fold = 1 + (n_rows - 1) / ROWS_MAX};
    t->rows_max = (int32_t)(n_rows / t->fold) + 1;
    t->step = qr_alloc((size_t)t->rows_max, sizeof *t->step);
    for (int k = 0; k < N_COLUMNS; k++) {
        t->column[k] = qr_alloc((size_t)t->rows_max, sizeof *t->column[k]);
        t->last[k] = t->least[k] = NAN;
    }
}

static void release(struct table *t)
{
    qr_free(t->step);
    for (int k = 0; k < N_COLUMNS; k++)
        qr_free(t->column[k]);
}

/* What has been gathered becomes an entry. */
static void flush(struct table *t, struct folding *f)
{
    if (f->n == 0)
        return;
    QR_ASSERT(t->n < t->rows_max);
    t->step[t->n] = f->step / (double)f->n;
    for (int k = 0; k < N_COLUMNS; k++)
        t->column[k][t->n] = f->of[k] ? f->sum[k] / (double)f->of[k] : NAN;
    t->n++;
    *f = (struct folding){0};
}

static void take_field(struct table *t, struct folding *f, int k, double v)
{
    t->last[k] = v;
    t->least[k] = fmin(t->least[k], v); /* of a number and a NaN: the number */
    t->sum[k] += v;
    f->sum[k] += v;
    f->of[k]++;
}

/* One row; a line that is none (the header, one cut off) adds nothing. */
static void take_line(struct table *t, struct folding *f, const char *line)
{
    char *end;
    const double step = strtod(line, &end);
    if (end == line || *end != ',' || !strchr(line, '\n'))
        return;
    f->step += step;
    f->n++;
    t->last_step = step;
    for (int k = 0; k < N_COLUMNS; k++) {
        const char *field = *end == ',' ? end + 1 : end;
        const double v = strtod(field, &end);
        if (end != field && isfinite(v))
            take_field(t, f, k, v);
        end += strcspn(end, ",\n");
    }
    if (f->n == t->fold)
        flush(t, f);
}

/* Twice over the file: to count rows, and to take them. */
static void read_rows(struct table *t, FILE *f)
{
    struct folding folding = {0};
    char *line = NULL;
    size_t cap = 0;
    int64_t n = 0;
    while (getline(&line, &cap, f) > 0)
        n++;
    make_table(t, n);
    rewind(f);
    for (int64_t i = 0; i < n && getline(&line, &cap, f) > 0; i++)
        take_line(t, &folding, line);
    flush(t, &folding);
    free(line);
}

static int read_table(struct table *t, const char *dir, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    int rc = qr_path_join(path, dir, "log.csv", err);
    if (rc)
        return rc;
    FILE *f = fopen(path, "re");
    if (!f)
        return qr_err_set(err, QR_E_IO, "%s: %s", path, strerror(errno));
    read_rows(t, f);
    const bool broken = ferror(f);
    fclose(f);
    return broken ? qr_err_set(err, QR_E_IO, "%s: cannot be read", path) : 0;
}

/* ---- curves ---- */

/* A column against steps, averaged to at most POINTS_MAX points. */
static struct curve curve_of(const struct table *t, int column)
{
    struct curve c = {qr_alloc(POINTS_MAX, sizeof(double)), qr_alloc(POINTS_MAX, sizeof(double)), 0};
    int32_t n = 0, seen = 0, in_point = 0;
    for (int32_t i = 0; i < t->n; i++)
        n += isfinite(t->column[column][i]);
    for (int32_t i = 0; i < t->n; i++) {
        if (!isfinite(t->column[column][i]))
            continue;
        c.x[c.n] += t->step[i];
        c.y[c.n] += t->column[column][i];
        in_point++;
        seen++;
        if ((int64_t)seen * (n < POINTS_MAX ? n : POINTS_MAX) / n > c.n || seen == n) {
            c.x[c.n] /= in_point;
            c.y[c.n++] /= in_point;
            in_point = 0;
        }
    }
    return c;
}

static void curve_free(struct curve *c)
{
    qr_free(c->x);
    qr_free(c->y);
}

/* ---- the page ---- */

static void put_card(struct qr_buf *out, const char *name, double v, int n_decimals)
{
    if (isfinite(v))
        qr_buf_printf(out, "<div class=\"card\"><b>%.*f</b><span>%s</span></div>\n", n_decimals, v, name);
}

static void put_cards(struct qr_buf *out, const struct table *t)
{
    qr_buf_put_str(out, "<div class=\"cards\">\n");
    put_card(out, "steps", t->last_step, 0);
    put_card(out, "loss now", t->last[LOSS], 4);
    put_card(out, "held-out loss now", t->last[EVAL_LOSS], 4);
    put_card(out, "held-out loss, least", t->least[EVAL_LOSS], 4);
    put_card(out, "tokens", t->sum[TOKENS], 0);
    put_card(out, "tokens/s", t->sum[SECONDS] > 0 ? t->sum[TOKENS] / t->sum[SECONDS] : NAN, 0);
    qr_buf_put_str(out, "</div>\n");
}

static void put_loss(struct qr_buf *out, const struct table *t, bool log_loss)
{
    struct curve train = curve_of(t, LOSS), eval = curve_of(t, EVAL_LOSS);
    const struct qr_svg_series series[] = {
        {.name = train.n ? "training" : NULL, .x = train.x, .y = train.y, .n = train.n, .colour = 0},
        {.name = eval.n ? "held out" : NULL, .x = eval.x, .y = eval.y, .n = eval.n, .colour = 1, .points = eval.n <= 60}};
    const struct qr_svg_chart chart = {.title = "Loss", .x_label = "step", .y_label = log_loss ? "nats per token, logarithmic" : "nats per token",
                                       .width = WIDE, .height = 400, .y_log = log_loss, .n_series = QR_COUNT(series), .series = series};
    qr_svg_put(out, &chart);
    curve_free(&train);
    curve_free(&eval);
}

static void put_small(struct qr_buf *out, const struct table *t, int column, const char *title, const char *unit, bool log_y, int32_t colour)
{
    struct curve c = curve_of(t, column);
    const struct qr_svg_series series = {.x = c.x, .y = c.y, .n = c.n, .colour = colour};
    const struct qr_svg_chart chart = {.title = title, .x_label = "step", .y_label = unit, .width = NARROW, .height = 220, .y_log = log_y,
                                       .y_from_zero = true, .n_series = 1, .series = &series};
    qr_svg_put(out, &chart);
    curve_free(&c);
}

static void put_page(struct qr_buf *out, const struct table *t, const char *title, bool log_loss)
{
    qr_buf_put_str(out, "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\">"
                        "<meta name=\"viewport\" content=\"width=device-width,initial-scale=1\"><title>");
    qr_html_put(out, title);
    qr_buf_printf(out, "</title><style>\n%s</style></head><body>\n<h1>", qr_html_style);
    qr_html_put(out, title);
    qr_buf_put_str(out, "</h1>\n<p class=\"dim\">quire train; the numbers are in log.csv. A point of a curve is the mean of the steps that share its "
                        "place.</p>\n");
    put_cards(out, t);
    put_loss(out, t, log_loss);
    qr_buf_put_str(out, "<div class=\"two\">\n");
    put_small(out, t, LR, "Learning rate", "", false, 2);
    put_small(out, t, NORM, "Norm of all gradients, before clipping", "logarithmic", true, 2);
    put_small(out, t, TOKENS_S, "Speed", "tokens/s", false, 2);
    put_small(out, t, SHARE, "Share of the machine's measured peak", "1 is all of it", false, 2);
    qr_buf_put_str(out, "</div>\n</body></html>\n");
}

int qr_train_plot(const char *dir, const char *title, bool log_loss, struct qr_err *err)
{
    QR_ASSERT(dir != NULL && title != NULL);
    QR_ASSERT(err != NULL);
    struct table t = {0};
    struct qr_buf page = {0};
    char path[QR_PATH_MAX];
    int rc = read_table(&t, dir, err);
    rc = rc ? rc : qr_path_join(path, dir, "loss.html", err);
    if (rc == 0) {
        put_page(&page, &t, title, log_loss);
        rc = qr_file_replace(path, page.data, page.len, err);
    }
    qr_buf_release(&page);
    release(&t);
    return rc;
}
