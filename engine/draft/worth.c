#include "engine/draft/worth.h"

#include "base/assert.h"

#define ROW_SHARE 0.02    /* of a one-row step, what a row more is taken to cost where nothing is known */
#define MARGIN 1.02       /* guesses have to promise so much more than none */
#define FADE_AFTER 8      /* steps until the first measurement fades, by a part of what it is above the guess each step; */
#define TRUST_MAX 5       /* with each further one, twice as many, up to 128 */
#define EXACT 32

static int32_t node_of(int32_t n_rows)
{
    int32_t node = n_rows - 1, top = EXACT;
    if (n_rows <= EXACT)
        return node;
    for (node = EXACT; n_rows > 2 * top; node += 8)
        top *= 2;
    node += (n_rows - top - 1) * 8 / top;
    return node < QR_WORTH_NODES ? node : QR_WORTH_NODES - 1;
}

/* What is taken for granted: relative times. */
static double shape(int32_t n_rows)
{
    return 1 + ROW_SHARE * (n_rows - 1);
}

/* One of the first two measurements may have made something ready, or been interrupted: then it takes longer than more rows do. */
static void blend(struct qr_worth *w, int32_t at, double us)
{
    double *mean = &w->node[at].us;
    w->node[at].n += w->node[at].n < TRUST_MAX;
    if (w->node[at].n > 2) {
        const double least = *mean * 0.5, most = *mean * 2;
        *mean += ((us < least ? least : us > most ? most : us) - *mean) * 0.25;
        return;
    }
    for (int32_t i = at; i < QR_WORTH_NODES; i++)
        us = w->node[i].us > 0 && w->node[i].us < us ? w->node[i].us : us;
    *mean = us;
}

/* Others that contradict the new measurement follow it. Those of more rows fade, the later the more of them there are. */
static void correct(struct qr_worth *w, int32_t at)
{
    const double us = w->node[at].us;
    for (int32_t i = 0; i < at; i++)
        w->node[i].us = w->node[i].us > us ? us : w->node[i].us;
    for (int32_t i = QR_WORTH_NODES - 1, n = 0; i > at; i--) {
        double *other = &w->node[i].us;
        if (*other == 0)
            continue;
        n = n + w->node[i].n < TRUST_MAX ? n + w->node[i].n : TRUST_MAX;
        const double least = us * shape(w->node[i].rows) / shape(w->node[at].rows);
        const int32_t trusted = FADE_AFTER << (n - 1);
        if (*other < us)
            *other = us;
        else if (*other > least && w->n_steps - w->node[i].step > trusted)
            *other -= (*other - least) / (2 * trusted);
    }
}

void qr_worth_note(struct qr_worth *w, int32_t n_rows, double us)
{
    QR_ASSERT(w != NULL);
    QR_ASSERT(n_rows >= 1);
    if (us <= 0)
        return;
    const int32_t at = node_of(n_rows);
    blend(w, at, us);
    w->node[at].rows = n_rows;
    w->node[at].step = ++w->n_steps;
    correct(w, at);
}

double qr_worth_us(const struct qr_worth *w, int32_t n_rows)
{
    QR_ASSERT(w != NULL);
    QR_ASSERT(n_rows >= 1);
    int32_t at = node_of(n_rows), below = at, above = at;
    while (below >= 0 && (w->node[below].us == 0 || w->node[below].rows > n_rows))
        below--;
    while (above < QR_WORTH_NODES && (w->node[above].us == 0 || w->node[above].rows < n_rows))
        above++;
    if (below < 0 && above == QR_WORTH_NODES)
        return shape(n_rows);
    if (below < 0 || above == QR_WORTH_NODES) {
        const int32_t known = below < 0 ? above : below;
        return w->node[known].us * shape(n_rows) / shape(w->node[known].rows);
    }
    const int32_t from = w->node[below].rows, to = w->node[above].rows;
    const double us = w->node[below].us, more = w->node[above].us - us;
    return to == from ? us : us + more * (n_rows - from) / (to - from);
}

int32_t qr_worth_choose(const struct qr_worth *w, const float *chance, int32_t n, int32_t n_base)
{
    QR_ASSERT(w != NULL && (chance != NULL || n == 0));
    QR_ASSERT(n_base >= 1);
    double tokens = n_base, best = n_base / qr_worth_us(w, n_base) * MARGIN;
    int32_t n_best = 0;
    for (int32_t i = 0; i < n; i++) {
        tokens += chance[i];
        const double rate = tokens / qr_worth_us(w, n_base + i + 1);
        if (rate > best) {
            best = rate;
            n_best = i + 1;
        }
    }
    return n_best;
}
