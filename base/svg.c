/* svg.c - charts as text: axes, lines, marks, legends (see svg.h). Scales choose round steps from the data; values that
 * are not finite are gaps. The output needs no script and loads nothing. Appends to a buffer; pure otherwise. */
#include "base/svg.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/utf8.h"

#define LEFT 58
#define RIGHT 16
#define TOP 24
#define BOTTOM 40
#define TICKS_MAX 40

struct axis {
    double lo, hi;
    double from, to; /* pixels of lo and hi */
    bool log;
    double tick[TICKS_MAX];
    int32_t n_ticks;
};

const char qr_html_style[] =
    ":root{color-scheme:light dark;--bg:#fff;--fg:#1b1f24;--dim:#5b6570;--rule:#d9dee3;--card:#f5f7f9;--warn:#9a3b00;--s0:#1f6feb;--s1:#c2410c;"
    "--s2:#2f855a;--mark:#8250df}\n"
    "@media(prefers-color-scheme:dark){:root{--bg:#14171b;--fg:#e3e7eb;--dim:#9aa4af;--rule:#31383f;--card:#1d2228;--warn:#ffb077;--s0:#6cb0ff;"
    "--s1:#ff9b63;--s2:#6fd49b;--mark:#c8a6ff}}\n"
    "body{margin:0 auto;padding:24px;max-width:852px;background:var(--bg);color:var(--fg);font:15px/1.5 system-ui,sans-serif}\n"
    "h1{font-size:22px;margin:0}h2{font-size:17px;margin:32px 0 10px}p{margin:6px 0}.dim,dd,.note{color:var(--dim)}.note,dl{font-size:13px}\n"
    ".cards{display:grid;grid-template-columns:repeat(auto-fit,minmax(140px,1fr));gap:10px;margin:18px 0}\n"
    ".card{background:var(--card);border-radius:8px;padding:9px 11px}.card b{display:block;font-size:18px;white-space:nowrap;line-height:1.3}\n"
    ".card span{font-size:13px;color:var(--dim)}.warn{color:var(--warn)}\n"
    ".scroll{overflow-x:auto}.scroll svg{min-width:600px}table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}\n"
    "th,td{padding:4px 8px;border-bottom:1px solid var(--rule);text-align:right;white-space:nowrap}th{color:var(--dim);font-weight:500}\n"
    "th:first-child,td:first-child,.set td{text-align:left}.set td{white-space:normal;overflow-wrap:anywhere}\n"
    ".tight th,.tight td{padding:4px 5px}.tight{font-size:13px}\n"
    ".set td:first-child{color:var(--dim);width:130px}tr.knee td{background:var(--card);font-weight:600}\n"
    "figure{margin:0}figcaption{font-size:13.5px;font-weight:600;margin:14px 0 2px}svg{width:100%;height:auto;display:block}\n"
    ".three{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(250px,100%),1fr));gap:14px}.two{display:grid;grid-template-columns:"
    "repeat(auto-fit,minmax(min(380px,100%),1fr));gap:18px}\n"
    "dl{display:grid;grid-template-columns:60px 1fr;gap:2px 10px;margin:10px 0}dt{font-weight:600}dd{margin:0}\n"
    "text{font:12px system-ui,sans-serif;fill:var(--fg)}.tick,.label{fill:var(--dim);font-size:11.5px}.end{text-anchor:end}\n"
    ".mid{text-anchor:middle}.halo{paint-order:stroke;stroke:var(--bg);stroke-width:4px;fill:var(--mark)}\n"
    ".grid{stroke:var(--rule);fill:none}.axis{stroke:var(--dim);fill:none}.mark{stroke:var(--mark);stroke-dasharray:5 4;stroke-width:1.5;fill:none}\n"
    ".line{fill:none;stroke-width:2;stroke-linejoin:round}.line.s0{stroke:var(--s0)}.line.s1{stroke:var(--s1)}.line.s2{stroke:var(--s2)}\n"
    ".area{opacity:.16}.area.s0,.dot.s0{fill:var(--s0)}.area.s1,.dot.s1{fill:var(--s1)}.area.s2,.dot.s2{fill:var(--s2)}\n";

void qr_html_put(struct qr_buf *out, const char *s)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(s != NULL);
    for (size_t left = strlen(s); left > 0;) {
        uint32_t c;
        int32_t n = qr_utf8_decode(s, left, &c);
        const char *name = n == 0     ? "\xef\xbf\xbd"
                           : c == '&'  ? "&amp;"
                           : c == '<'  ? "&lt;"
                           : c == '>'  ? "&gt;"
                           : c == '"'  ? "&quot;"
                           : c == '\'' ? "&#39;"
                                       : NULL;
        n = n > 0 ? n : 1;
        if (name != NULL)
            qr_buf_put_str(out, name);
        else if (c == '\n' || c == '\t' || (c >= ' ' && (c < 0x7f || c >= 0xa0) && c != 0xfffe && c != 0xffff))
            qr_buf_put(out, s, (size_t)n);
        s += n;
        left -= (size_t)n;
    }
}

static double at(const struct axis *a, double v)
{
    double lo = a->log ? log(a->lo) : a->lo, hi = a->log ? log(a->hi) : a->hi, x = a->log ? log(v > a->lo ? v : a->lo) : v;
    return a->from + (a->to - a->from) * (x - lo) / (hi - lo);
}

static void add_tick(struct axis *a, double v)
{
    if (a->n_ticks < TICKS_MAX && v >= a->lo * (1 - 1e-9) && v <= a->hi * (1 + 1e-9))
        a->tick[a->n_ticks++] = v;
}

/* About `n` round steps: 1, 2 or 5 times a power of ten. */
static double round_step(double span, double n)
{
    double raw = span / n, unit = pow(10, floor(log10(raw))), f = raw / unit;
    return unit * (f <= 1 ? 1 : f <= 2 ? 2 : f <= 5 ? 5 : 10);
}

static void tick_linear(struct axis *a, double n)
{
    double step = round_step(a->hi - a->lo, n);
    for (int64_t i = (int64_t)ceil(a->lo / step - 1e-9); (double)i * step <= a->hi + step * 1e-6 && a->n_ticks < TICKS_MAX; i++)
        a->tick[a->n_ticks++] = (double)i * step;
}

static void tick_log(struct axis *a)
{
    static const double in_decade[] = {1, 2, 5};
    int32_t first = (int32_t)floor(log10(a->lo)), last = (int32_t)ceil(log10(a->hi)), n = last - first > 3 ? 1 : 3;
    for (int32_t d = first; d <= last; d++)
        for (int32_t k = 0; k < n; k++)
            add_tick(a, in_decade[k] * pow(10, d));
}

/* The least and the greatest of all points and marks. */
static void range(struct axis *a, const struct qr_svg_chart *c, bool is_x)
{
    a->lo = INFINITY;
    a->hi = -INFINITY;
    for (int32_t s = 0; s < c->n_series; s++)
        for (int32_t i = 0; i < c->series[s].n; i++) {
            double v = is_x ? c->series[s].x[i] : c->series[s].y[i];
            if (a->log && v <= 0)
                continue;
            a->lo = fmin(a->lo, v);
            a->hi = fmax(a->hi, v);
        }
    for (int32_t i = 0; i < c->n_marks && a->lo <= a->hi; i++)
        if (c->mark[i].vertical == is_x && (!a->log || c->mark[i].at > 0)) {
            a->lo = fmin(a->lo, c->mark[i].at);
            a->hi = fmax(a->hi, c->mark[i].at);
        }
    if (!(a->lo <= a->hi)) {
        a->lo = a->log ? 1 : 0;
        a->hi = a->log ? 10 : 1;
    }
}

static void set_x(struct axis *a, const struct qr_svg_chart *c)
{
    *a = (struct axis){.log = c->x_log, .from = LEFT, .to = c->width - RIGHT};
    range(a, c, true);
    if (!(a->hi > a->lo)) {
        a->lo = a->log ? a->lo / 2 : a->lo - 1;
        a->hi = a->log ? a->hi * 2 : a->hi + 1;
    }
    for (int32_t i = 0; i < c->n_x_ticks; i++)
        add_tick(a, c->x_ticks[i]);
    if (c->x_ticks == NULL && a->log)
        tick_log(a);
    if (a->n_ticks < 2 && c->x_ticks == NULL) {
        a->n_ticks = 0;
        tick_linear(a, fmin(10, (double)c->width / 60));
    }
}

static void set_y(struct axis *a, const struct qr_svg_chart *c)
{
    *a = (struct axis){.log = c->y_log, .from = c->height - BOTTOM, .to = TOP};
    range(a, c, false);
    if (a->log) {
        a->lo /= 1.25;
        a->hi *= 1.25;
        tick_log(a);
        if (a->n_ticks >= 2)
            return;
        a->n_ticks = 0;
        tick_linear(a, 4);
        return;
    }
    a->lo = c->y_from_zero && a->lo > 0 ? 0 : a->lo;
    if (!(a->hi > a->lo))
        a->hi = a->lo + 1;
    double step = round_step(a->hi - a->lo, 4);
    a->hi = step * ceil(a->hi / step - 1e-9);
    a->lo = step * floor(a->lo / step + 1e-9);
    tick_linear(a, 4);
}

static void put_number(struct qr_buf *out, double v)
{
    if (fabs(v) >= 1e6)
        qr_buf_printf(out, "%gM", v / 1e6);
    else if (fabs(v) >= 1e4)
        qr_buf_printf(out, "%gk", v / 1e3);
    else
        qr_buf_printf(out, "%.6g", fabs(v) < 1e-12 ? 0 : v);
}

static void put_text(struct qr_buf *out, double x, double y, const char *class, const char *text)
{
    qr_buf_printf(out, "<text x=\"%.1f\" y=\"%.1f\" class=\"%s\">", x, y, class);
    qr_html_put(out, text);
    qr_buf_put_str(out, "</text>");
}

static void put_frame(struct qr_buf *out, const struct qr_svg_chart *c, const struct axis *x, const struct axis *y)
{
    double last = -1e9;
    for (int32_t i = 0; i < y->n_ticks; i++) {
        double py = at(y, y->tick[i]);
        qr_buf_printf(out, "<path class=\"grid\" d=\"M%.1f %.1fH%.1f\"/><text class=\"tick end\" x=\"%.1f\" y=\"%.1f\">", x->from, py, x->to,
                      x->from - 6, py + 4);
        put_number(out, y->tick[i]);
        qr_buf_put_str(out, "</text>");
    }
    for (int32_t i = 0; i < x->n_ticks; i++) {
        double px = at(x, x->tick[i]);
        qr_buf_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fv4\"/>", px, y->from);
        if (px - last < 34)
            continue;
        last = px;
        qr_buf_printf(out, "<text class=\"tick mid\" x=\"%.1f\" y=\"%.1f\">", px, y->from + 16);
        put_number(out, x->tick[i]);
        qr_buf_put_str(out, "</text>");
    }
    qr_buf_printf(out, "<path class=\"axis\" d=\"M%.1f %.1fH%.1f\"/>", x->from, y->from, x->to);
    put_text(out, (x->from + x->to) / 2, c->height - 6, "label mid", c->x_label);
    put_text(out, 4, 12, "label", c->y_label);
}

static void put_series(struct qr_buf *out, const struct qr_svg_series *s, const struct axis *x, const struct axis *y)
{
    QR_ASSERT(s->colour >= 0 && s->colour < 3);
    QR_ASSERT(s->n == 0 || (s->x != NULL && s->y != NULL));
    if (s->n == 0)
        return;
    struct qr_buf path = {0};
    for (int32_t i = 0; i < s->n; i++)
        qr_buf_printf(&path, "%s%.1f %.1f", i == 0 ? "M" : "L", at(x, s->x[i]), at(y, s->y[i]));
    if (s->area)
        qr_buf_printf(out, "<path class=\"area s%d\" d=\"%sV%.1fH%.1fZ\"/>", s->colour, path.data, y->from, at(x, s->x[0]));
    qr_buf_printf(out, "<path class=\"line s%d\" d=\"%s\"/>", s->colour, path.data);
    for (int32_t i = 0; s->points && i < s->n; i++)
        qr_buf_printf(out, "<circle class=\"dot s%d\" cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\"/>", s->colour, at(x, s->x[i]), at(y, s->y[i]));
    qr_buf_release(&path);
}

static void put_mark(struct qr_buf *out, const struct qr_svg_mark *m, const struct axis *x, const struct axis *y)
{
    double p = at(m->vertical ? x : y, m->at), middle = (x->from + x->to) / 2;
    if (m->vertical) {
        qr_buf_printf(out, "<path class=\"mark\" d=\"M%.1f %.1fV%.1f\"/>", p, y->from, y->to);
        put_text(out, p > middle ? p - 5 : p + 5, y->from - 6, p > middle ? "tick halo end" : "tick halo", m->label);
    } else {
        qr_buf_printf(out, "<path class=\"mark\" d=\"M%.1f %.1fH%.1f\"/>", x->from, p, x->to);
        put_text(out, x->from + 5, p - 5, "tick halo", m->label);
    }
}

/* In the line of the y axis' name, from the right: widths are taken as 6.5 units a character. */
static void put_legend(struct qr_buf *out, const struct qr_svg_chart *c)
{
    double px = c->width - RIGHT;
    for (int32_t i = c->n_series - 1; i >= 0; i--) {
        const struct qr_svg_series *s = &c->series[i];
        if (s->name == NULL)
            continue;
        px -= 6.5 * (double)strlen(s->name);
        put_text(out, px, 12, "tick", s->name);
        qr_buf_printf(out, "<path class=\"line s%d\" d=\"M%.1f 8h14\"/>", s->colour, px - 19);
        px -= 34;
    }
}

void qr_svg_put(struct qr_buf *out, const struct qr_svg_chart *c)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(c->width > LEFT + RIGHT && c->height > TOP + BOTTOM);
    struct axis x, y;
    int64_t n = 0;
    for (int32_t i = 0; i < c->n_series; i++)
        n += c->series[i].n;
    qr_buf_put_str(out, "<figure><figcaption>");
    qr_html_put(out, c->title);
    qr_buf_printf(out, "</figcaption><svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"", c->width, c->height);
    qr_html_put(out, c->title);
    qr_buf_put_str(out, "\">");
    if (n == 0)
        put_text(out, c->width / 2.0, c->height / 2.0, "label mid", "no samples");
    else {
        set_x(&x, c);
        set_y(&y, c);
        put_frame(out, c, &x, &y);
        for (int32_t i = 0; i < c->n_series; i++)
            put_series(out, &c->series[i], &x, &y);
        for (int32_t i = 0; i < c->n_marks; i++)
            put_mark(out, &c->mark[i], &x, &y);
        put_legend(out, c);
    }
    qr_buf_put_str(out, "</svg></figure>\n");
}
