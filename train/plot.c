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
#define WIDE 852
#define NARROW 412

/* Columns of log.csv behind the step; see log.h. */
enum { TOKENS, LOSS, EVAL_LOSS, NORM, LR, TOKENS_S, SHARE, SECONDS, N_COLUMNS };

struct table {
    double *step, *column[N_COLUMNS]; /* owned [rows_max]; NaN: an empty field */
    int32_t n, rows_max;
};

struct curve {
    double *x, *y; /* owned [POINTS_MAX] */
    int32_t n;
};

/* ---- reading ---- */

static void grow(struct table *t)
{
    t->rows_max = t->rows_max ? 2 * t->rows_max : 1024;
    t->step = qr_realloc(t->step, (size_t)t->rows_max, sizeof *t->step);
    for (int k = 0; k < N_COLUMNS; k++)
        t->column[k] = qr_realloc(t->column[k], (size_t)t->rows_max, sizeof *t->column[k]);
}

static void release(struct table *t)
{
    qr_free(t->step);
    for (int k = 0; k < N_COLUMNS; k++)
        qr_free(t->column[k]);
}

/* One row; a line that is none (the header, one cut off) adds nothing. */
static void take_line(struct table *t, const char *line)
{
    char *end;
    const double step = strtod(line, &end);
    if (end == line || *end != ',' || !strchr(line, '\n'))
        return;
    if (t->n == t->rows_max)
        grow(t);
    t->step[t->n] = step;
    for (int k = 0; k < N_COLUMNS; k++) {
        const char *field = *end == ',' ? end + 1 : end;
        const double v = strtod(field, &end);
        t->column[k][t->n] = end == field ? NAN : v;
        end += strcspn(end, ",\n");
    }
    t->n++;
}

static int read_table(struct table *t, const char *dir, struct qr_err *err)
{
    char path[QR_PATH_MAX], *line = NULL;
    size_t cap = 0;
    int rc = qr_path_join(path, dir, "log.csv", err);
    if (rc)
        return rc;
    FILE *f = fopen(path, "re");
    if (!f)
        return qr_err_set(err, QR_E_IO, "%s: %s", path, strerror(errno));
    while (getline(&line, &cap, f) > 0)
        take_line(t, line);
    free(line);
    fclose(f);
    return 0;
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

static double last_of(const struct table *t, int column)
{
    for (int32_t i = t->n - 1; i >= 0; i--)
        if (isfinite(t->column[column][i]))
            return t->column[column][i];
    return NAN;
}

static double least_of(const struct table *t, int column)
{
    double least = NAN;
    for (int32_t i = 0; i < t->n; i++)
        least = fmin(least, t->column[column][i]); /* of a number and a NaN: the number */
    return least;
}

/* ---- the page ---- */

static void put_card(struct qr_buf *out, const char *name, double v, int n_decimals)
{
    if (isfinite(v))
        qr_buf_printf(out, "<div class=\"card\"><b>%.*f</b><span>%s</span></div>\n", n_decimals, v, name);
}

static void put_cards(struct qr_buf *out, const struct table *t)
{
    double tokens = 0, seconds = 0;
    for (int32_t i = 0; i < t->n; i++) {
        tokens += isfinite(t->column[TOKENS][i]) ? t->column[TOKENS][i] : 0;
        seconds += isfinite(t->column[SECONDS][i]) ? t->column[SECONDS][i] : 0;
    }
    qr_buf_put_str(out, "<div class=\"cards\">\n");
    put_card(out, "steps", t->n ? t->step[t->n - 1] : 0, 0);
    put_card(out, "loss now", last_of(t, LOSS), 4);
    put_card(out, "held-out loss now", last_of(t, EVAL_LOSS), 4);
    put_card(out, "held-out loss, least", least_of(t, EVAL_LOSS), 4);
    put_card(out, "tokens", tokens, 0);
    put_card(out, "tokens/s", seconds > 0 ? tokens / seconds : NAN, 0);
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
