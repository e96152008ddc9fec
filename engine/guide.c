#include "engine/guide.h"

#include <string.h>

#include "base/assert.h"

void qr_guide_init(struct qr_guide *g, const struct qr_request *r)
{
    QR_ASSERT(g != NULL && r != NULL);
    QR_ASSERT(r->thinking.n_end <= QR_MARKER_MAX && r->thinking.n_start <= QR_MARKER_MAX);
    *g = (struct qr_guide){.thinking = r->thinking.n_end > 0 && r->thinking.begun};
    if (r->grammar)
        qr_matcher_init(&g->matcher, r->grammar);
}

void qr_guide_copy(struct qr_guide *g, const struct qr_guide *from)
{
    QR_ASSERT(g != NULL && from != NULL);
    QR_ASSERT(g->matcher.grammar == NULL);
    *g = (struct qr_guide){.n_thought = from->n_thought, .n_inside = from->n_inside, .thinking = from->thinking};
    if (from->matcher.grammar)
        qr_matcher_copy(&g->matcher, &from->matcher);
}

void qr_guide_release(struct qr_guide *g)
{
    QR_ASSERT(g != NULL);
    qr_matcher_release(&g->matcher);
    *g = (struct qr_guide){0};
}

static bool ends_with(const int32_t *output, int32_t n_output, const int32_t *marker, int32_t n)
{
    return n <= n_output && memcmp(output + n_output - n, marker, (size_t)n * sizeof *marker) == 0;
}

/* What the thinking ends with of the marker's beginning is part of the marker. */
int32_t qr_guide_forced(const struct qr_guide *g, const struct qr_thinking *t, const int32_t *output, int32_t n_output)
{
    QR_ASSERT(g != NULL && t != NULL);
    QR_ASSERT(output != NULL && n_output >= g->n_inside);
    if (!g->thinking || t->budget < 0 || g->n_inside < t->budget)
        return -1;
    int32_t n = t->n_end - 1;
    while (n > 0 && (n > g->n_inside || !ends_with(output, n_output, t->end, n)))
        n--;
    return t->end[n];
}

bool qr_guide_may_force(const struct qr_guide *g, const struct qr_thinking *t)
{
    QR_ASSERT(g != NULL);
    QR_ASSERT(t != NULL);
    return t->n_end > 0 && t->budget >= 0 && (g->thinking ? g->n_inside + 1 : 0) >= t->budget;
}

static void follow_thinking(struct qr_guide *g, const struct qr_thinking *t, const int32_t *output, int32_t n_output)
{
    if (g->thinking) {
        g->n_thought++;
        g->n_inside++;
        g->thinking = g->n_inside < t->n_end || !ends_with(output, n_output, t->end, t->n_end);
    } else if (t->n_start > 0 && ends_with(output, n_output, t->start, t->n_start)) {
        g->thinking = true;
        g->n_thought += t->n_start;
        g->n_inside = 0;
    }
}

int qr_guide_take(struct qr_guide *g, const struct qr_thinking *t, const int32_t *output, int32_t n_output, bool ends, struct qr_err *err)
{
    QR_ASSERT(g != NULL && t != NULL && err != NULL);
    QR_ASSERT(output != NULL && n_output > 0);
    if (t->n_end > 0 && !ends)
        follow_thinking(g, t, output, n_output);
    if (!g->matcher.grammar || qr_matcher_token(&g->matcher, output[n_output - 1]))
        return 0;
    return qr_err_set(err, QR_E_TOO_LARGE, "what the grammar allows behind token %d of the answer does not fit the memory that a grammar has; make it smaller",
                      n_output);
}
