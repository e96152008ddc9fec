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
#define WIDE 852
#define NARROW 412

/* Columns of log.csv behind the step; see log.h. */
enum { TOKENS, LOSS, EVAL_LOSS, NORM, LR, TOKENS_S, SHARE, SECONDS, N_COLUMNS };

/* A column against steps. A point is the mean of those rows of a fold that have the field. */
struct curve {
    double x[POINTS_MAX], y[POINTS_MAX];
    int32_t n;
    double sum_x, sum_y; /* of the fold that is being read */
    int64_t n_summed;
    double last, least, sum; /* of all rows; NaN, or 0 for the sum, where every field was empty */
};

struct table {
    struct curve curve[N_COLUMNS];
    int64_t fold, n_read; /* rows of a fold; those that have been read of the present one */
    double last_step;
};

/* ---- reading ---- */

/* What has been summed becomes a point of each curve. */
static void end_fold(struct table *t)
{
    for (struct curve *c = t->curve; c < t->curve + N_COLUMNS; c++) {
        if (c->n_summed == 0)
            continue;
        QR_ASSERT(c->n < POINTS_MAX);
        c->x[c->n] = c->sum_x / (double)c->n_summed;
        c->y[c->n++] = c->sum_y / (double)c->n_summed;
        c->sum_x = c->sum_y = 0;
        c->n_summed = 0;
    }
    t->n_read = 0;
}

static void take_field(struct curve *c, double step, double v)
{
    c->last = v;
    c->least = fmin(c->least, v); /* of a number and a NaN: the number */
    c->sum += v;
    c->sum_x += step;
    c->sum_y += v;
    c->n_summed++;
}

/* One row; a line that is none (the header, one cut off) adds nothing. */
static void take_line(struct table *t, const char *line)
{
    char *end;
    const double step = strtod(line, &end);
    if (end == line || *end != ',' || !strchr(line, '\n'))
        return;
    t->last_step = step;
    for (int k = 0; k < N_COLUMNS; k++) {
        const char *field = *end == ',' ? end + 1 : end;
        const double v = strtod(field, &end);
        if (end != field && isfinite(v))
            take_field(&t->curve[k], step, v);
        end += strcspn(end, ",\n");
    }
    if (++t->n_read == t->fold)
        end_fold(t);
}

/* Twice over the file: to count rows, and to take them. */
static void read_rows(struct table *t, FILE *f)
{
    char *line = NULL;
    size_t cap = 0;
    int64_t n = 0;
    while (getline(&line, &cap, f) > 0)
        n++;
    t->fold = 1 + n / POINTS_MAX;
    for (int k = 0; k < N_COLUMNS; k++)
        t->curve[k].last = t->curve[k].least = NAN;
    rewind(f);
    for (int64_t i = 0; i < n && getline(&line, &cap, f) > 0; i++)
        take_line(t, line);
    end_fold(t);
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

/* ---- the page ---- */

static void put_card(struct qr_buf *out, const char *name, double v, int n_decimals)
{
    if (isfinite(v))
        qr_buf_printf(out, "<div class=\"card\"><b>%.*f</b><span>%s</span></div>\n", n_decimals, v, name);
}

static void put_cards(struct qr_buf *out, const struct table *t)
{
    const double seconds = t->curve[SECONDS].sum;
    qr_buf_put_str(out, "<div class=\"cards\">\n");
    put_card(out, "steps", t->last_step, 0);
    put_card(out, "loss now", t->curve[LOSS].last, 4);
    put_card(out, "held-out loss now", t->curve[EVAL_LOSS].last, 4);
    put_card(out, "held-out loss, least", t->curve[EVAL_LOSS].least, 4);
    put_card(out, "tokens", t->curve[TOKENS].sum, 0);
    put_card(out, "tokens/s", seconds > 0 ? t->curve[TOKENS].sum / seconds : NAN, 0);
    qr_buf_put_str(out, "</div>\n");
}

static void put_loss(struct qr_buf *out, const struct table *t, bool log_loss)
{
    const struct curve *train = &t->curve[LOSS], *eval = &t->curve[EVAL_LOSS];
    const struct qr_svg_series series[] = {
        {.name = train->n ? "training" : NULL, .x = train->x, .y = train->y, .n = train->n},
        {.name = eval->n ? "held out" : NULL, .x = eval->x, .y = eval->y, .n = eval->n, .colour = 1, .points = eval->n <= 60}};
    const struct qr_svg_chart chart = {.title = "Loss", .x_label = "step", .y_label = log_loss ? "nats per token, logarithmic" : "nats per token",
                                       .width = WIDE, .height = 400, .y_log = log_loss, .n_series = QR_COUNT(series), .series = series};
    qr_svg_put(out, &chart);
}

static void put_small(struct qr_buf *out, const struct table *t, int column, const char *title, const char *unit, bool log_y)
{
    const struct curve *c = &t->curve[column];
    const struct qr_svg_series series = {.x = c->x, .y = c->y, .n = c->n, .colour = 2};
    const struct qr_svg_chart chart = {.title = title, .x_label = "step", .y_label = unit, .width = NARROW, .height = 220, .y_log = log_y,
                                       .y_from_zero = true, .n_series = 1, .series = &series};
    qr_svg_put(out, &chart);
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
    put_small(out, t, LR, "Learning rate", "", false);
    put_small(out, t, NORM, "Norm of all gradients, before clipping", "logarithmic", true);
    put_small(out, t, TOKENS_S, "Speed", "tokens/s", false);
    put_small(out, t, SHARE, "Share of the machine's measured peak", "1 is all of it", false);
    qr_buf_put_str(out, "</div>\n</body></html>\n");
}

int qr_train_plot(const char *dir, const char *title, bool log_loss, struct qr_err *err)
{
    QR_ASSERT(dir != NULL && title != NULL);
    QR_ASSERT(err != NULL);
    struct table *t = qr_alloc(1, sizeof *t);
    struct qr_buf page = {0};
    char path[QR_PATH_MAX];
    int rc = read_table(t, dir, err);
    rc = rc ? rc : qr_path_join(path, dir, "loss.html", err);
    if (rc == 0) {
        put_page(&page, t, title, log_loss);
        rc = qr_file_replace(path, page.data, page.len, err);
    }
    qr_buf_release(&page);
    qr_free(t);
    return rc;
}
