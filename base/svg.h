/* svg.h - charts as inline SVG: lines over linear or logarithmic axes, marks, a legend. Needs no script and loads nothing; colours come
 * from the page's style sheet (classes s0, s1, s2 for series, and those in svg.c), so that light and dark are the page's affair.
 */
#ifndef QR_BASE_SVG_H
#define QR_BASE_SVG_H

#include <stdbool.h>
#include <stdint.h>

#include "base/buf.h"

struct qr_svg_series {
    const char *name;    /* for the legend; NULL: in none */
    const double *x, *y; /* borrowed [n], finite; on a logarithmic axis those of 0 or less are drawn at the axis' lower end */
    int32_t n;
    int32_t colour;      /* 0..2 */
    bool area, points;   /* fill down to the axis; a dot at each point */
};

struct qr_svg_mark {
    double at;
    bool vertical;     /* at an x; otherwise at a y */
    const char *label;
};

struct qr_svg_chart {
    const char *title, *x_label, *y_label;
    int32_t width, height; /* user units: pixels at full size */
    bool x_log, y_log;
    bool y_from_zero;      /* linear axes only */
    const double *x_ticks; /* borrowed; NULL: round numbers */
    int32_t n_x_ticks, n_series, n_marks;
    const struct qr_svg_series *series; /* borrowed */
    const struct qr_svg_mark *mark;     /* borrowed */
};

/* Appends s with the characters that HTML gives a meaning escaped, control characters left out, and what is no UTF-8 as U+FFFD.
 * Fit for text and quoted attributes. */
void qr_html_put(struct qr_buf *out, const char *s);

/* The style sheet of a page with charts, light and dark: colours, tables (.set), cards (.cards, .card), figures side by side (.two, .three). */
extern const char qr_html_style[];

/* Appends <figure>...</figure>, well-formed XML. Without any point the frame says so. */
void qr_svg_put(struct qr_buf *out, const struct qr_svg_chart *c);

#endif
