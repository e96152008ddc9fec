#include "engine/forced.h"

#include <string.h>

#include "answers/grammar/forced.h"
#include "base/assert.h"

/* How likely tokens are right that are not sure, and those that are: models write what their encoder does (tests/answers/test_forced.c). */
static const float odds[2] = {0.65f, 0.97f};

static bool allows(const struct qr_guide *g, int32_t id)
{
    struct qr_matcher copy = {0};
    if (!g->matcher.grammar)
        return true;
    qr_matcher_copy(&copy, &g->matcher);
    const bool may = qr_matcher_token(&copy, id);
    qr_matcher_release(&copy);
    return may;
}

int32_t qr_forced_id(const struct qr_request *r, struct qr_guide *g, const int32_t *output, int32_t n_output)
{
    QR_ASSERT(r != NULL && g != NULL);
    QR_ASSERT(output != NULL && n_output > 0);
    if (r->sampling.n_logprobs >= 0)
        return -1;
    const int32_t end = qr_guide_forced(g, &r->thinking, output, n_output);
    if (end >= 0 && allows(g, end))
        return end;
    return g->matcher.grammar ? qr_forced_only(&g->matcher) : -1;
}

/* How many of n guesses in a row are right, as far as is known. */
static float expected(const float *p, int32_t n)
{
    float sum = 0, all = 1;
    for (int32_t i = 0; i < n; i++)
        sum += all *= p[i];
    return sum;
}

void qr_forced_guess(struct qr_forced *f, struct qr_draft_ask *a, struct qr_guide *g)
{
    QR_ASSERT(f != NULL && a != NULL && g != NULL);
    QR_ASSERT(a->room >= 0 && a->room <= QR_DRAFT_MAX);
    int32_t id[QR_DRAFT_MAX];
    float p[QR_DRAFT_MAX];
    const struct qr_seq *seq = a->seq;
    f->n = 0;
    if (!g->matcher.grammar || a->room == 0)
        return;
    const int32_t n = qr_forced_tokens(&g->matcher, seq->ids + seq->n_prompt, seq->n_ids - seq->n_prompt, id, f->sure, a->room);
    for (int32_t i = 0; i < n; i++) {
        const float chance = odds[f->sure[i]] * qr_luck_factor(&f->luck[f->sure[i]]);
        p[i] = chance < odds[1] ? chance : odds[1];
    }
    if (expected(p, n) <= expected(a->p, a->n))
        return;
    memcpy(a->ids, id, (size_t)n * sizeof *id);
    memcpy(a->p, p, (size_t)n * sizeof *p);
    a->n = f->n = n;
}

bool qr_forced_judge(struct qr_forced *f, int32_t n_drafted, int32_t n_accepted)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(n_accepted <= n_drafted);
    const bool mine = f->n > 0;
    for (int32_t i = 0; mine && i < n_drafted && i <= n_accepted; i++)
        qr_luck_learn(&f->luck[f->sure[i]], odds[f->sure[i]], i < n_accepted);
    f->n = 0;
    return mine;
}
