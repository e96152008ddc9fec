/* backlog.c - the queue played forward (backlog.h): what decodes is a heap by the step of its last token, prompts come in their order, and steps pass in
 * stretches between two ends. It changes nothing of the scheduler, and a look allocates nothing. Engine thread, and the simulator's. */
#include "engine/backlog.h"

#include "base/assert.h"
#include "base/mem.h"

#define FULL_ANSWERS 256
#define FULL_STEPS 4096     /* of sequences */
#define FULL_LOOK_UPS 65536 /* tokens */
#define SMALL_ROWS 16       /* of a step that any engine takes */
#define LATE_MAX 32         /* found in one call: each costs a look */

static void add(struct qr_mean *m, double n, double of, double full)
{
    m->n += n;
    m->of += of;
    const double kept = m->n > full ? 0.5 : 1;
    m->n *= kept;
    m->of *= kept;
}

static double mean_of(const struct qr_mean *m, double otherwise)
{
    return m->n > 0 ? m->of / m->n : otherwise;
}

void qr_backlog_init(struct qr_backlog *b, int32_t n_slots)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(n_slots >= 1);
    *b = (struct qr_backlog){.n_slots = n_slots};
    b->end = qr_alloc((size_t)n_slots, sizeof *b->end);
    b->first_us = qr_alloc((size_t)n_slots, sizeof *b->first_us);
}

void qr_backlog_release(struct qr_backlog *b)
{
    QR_ASSERT(b != NULL);
    qr_free(b->end);
    qr_free(b->first_us);
    *b = (struct qr_backlog){0};
}

void qr_backlog_answer(struct qr_backlog *b, int32_t n_output)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(n_output >= 0);
    add(&b->answer_tokens, 1, n_output, FULL_ANSWERS);
}

void qr_backlog_said(struct qr_backlog *b, int32_t n_seqs, int32_t n_tokens)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(n_seqs >= 0 && n_tokens >= n_seqs);
    add(&b->said, n_seqs, n_tokens, FULL_STEPS);
}

void qr_backlog_cache(struct qr_backlog *b, const struct qr_kv_stats *kv)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(kv->query_tokens >= b->query_tokens && kv->hit_tokens >= b->hit_tokens);
    add(&b->found, (double)(kv->query_tokens - b->query_tokens), (double)(kv->hit_tokens - b->hit_tokens), FULL_LOOK_UPS);
    b->query_tokens = kv->query_tokens;
    b->hit_tokens = kv->hit_tokens;
}

/* ---- what decodes in the play: a heap ---- */

struct play {
    struct qr_backlog *b;
    const struct qr_backlog_steps *steps;
    double us, step;         /* since the look */
    double context;          /* of what decodes */
    double said;             /* tokens of a sequence in a step */
    int64_t prompt_tokens;   /* that wait still */
    int32_t n_decode, n_held; /* n_held: prompts that have begun, and decode later */
};

static void push(struct play *p, double step, double context)
{
    struct qr_backlog_end *heap = p->b->end;
    int32_t at = p->n_decode++;
    for (; at > 0 && heap[(at - 1) / 2].step > step; at = (at - 1) / 2)
        heap[at] = heap[(at - 1) / 2];
    heap[at] = (struct qr_backlog_end){step, context};
    p->context += context;
}

static void pop(struct play *p)
{
    struct qr_backlog_end *heap = p->b->end, last = heap[--p->n_decode];
    const int32_t n = p->n_decode;
    p->context -= heap[0].context;
    int32_t at = 0;
    for (int32_t child = 1; child < n; child = 2 * at + 1) {
        child += child + 1 < n && heap[child + 1].step < heap[child].step;
        if (last.step <= heap[child].step)
            break;
        heap[at] = heap[child];
        at = child;
    }
    heap[at] = last;
}

/* Steps with n_prompt tokens each of a prompt that has `depth` rows before them, up to n of them and the next end. Returns how many there were. */
static double play_steps(struct play *p, double n, int32_t n_prompt, double depth)
{
    const double next = p->n_decode > 0 ? p->b->end[0].step - p->step : n, k = n < next ? n : next;
    const struct qr_step_size size = {n_prompt, p->n_decode, p->n_decode, {p->context * 1e-3, n_prompt * (depth + 0.5 * n_prompt * k) * 1e-3}};
    p->us += k * qr_predict_us(p->steps->predict, &size);
    p->step += k;
    while (p->n_decode > 0 && p->b->end[0].step <= p->step)
        pop(p);
    return k;
}

static void play_end(struct play *p)
{
    play_steps(p, p->b->end[0].step - p->step, 0, 0);
}

/* Prompt tokens of a step beside what decodes. */
static int32_t tokens_beside(const struct qr_backlog_steps *steps, int32_t n_decode, int64_t waiting)
{
    const int32_t room = steps->tokens_max - n_decode, paced = qr_pace_tokens(steps->pace, steps->predict, &steps->lately, n_decode, waiting);
    const int32_t n = n_decode > 0 && paced < room ? paced : room;
    return n > 1 ? n : 1;
}

/* n tokens of a prompt behind `depth` rows, then `left` tokens that decode. */
static void play_prompt(struct play *p, double n, double depth, int32_t left)
{
    while (n > 0) {
        const int32_t many = tokens_beside(p->steps, p->n_decode, p->prompt_tokens), beside = n < many ? (int32_t)n + (n > (int32_t)n) : many;
        const double done = beside * play_steps(p, n / beside, beside, depth);
        n = n - done > 1e-6 ? n - done : 0;
        depth += done;
    }
    if (left > 0)
        push(p, p->step + left / p->said, depth);
}

/* Until the sequence may run: a place, and room in the cache. */
static void play_wait(struct play *p, int32_t running_max, int32_t n_rows)
{
    while (p->n_decode > 0 && (p->n_decode + p->n_held >= running_max || p->context + n_rows > (double)p->steps->kv_tokens))
        play_end(p);
}

static double left_of(const struct qr_backlog *b, const struct qr_seq *q)
{
    const double found = q->n_found >= 0 ? q->n_found : q->n_ids * mean_of(&b->found, 0);
    return q->state == QR_SEQ_WAITING ? q->n_ids - found : q->n_ids - q->n_computed;
}

/* Tokens that it will draw: as many as others, within its bounds, and one more at least. */
static int32_t to_draw(const struct qr_seq *q, double answer_tokens)
{
    const int32_t made = q->n_ids - q->n_prompt, usual = q->new_max < answer_tokens ? q->new_max : (int32_t)answer_tokens;
    const int32_t most = usual > q->new_min ? usual : q->new_min;
    return most > made ? most - made : made < q->new_max;
}

/* Whether its prompt is another's, who computes it. */
static bool shares(const struct qr_seq *q)
{
    return q->state == QR_SEQ_WAITING && q->group >= 0 && !q->leader && q->n_preempted == 0;
}

static void play_queue(struct play *p, struct qr_sched *s, enum qr_seq_state state, int32_t running_max, const bool *without)
{
    int32_t n;
    const double answer = mean_of(&p->b->answer_tokens, INT32_MAX);
    const int32_t *seq = state == QR_SEQ_WAITING ? qr_sched_order(s, &n) : qr_sched_list(s, state, &n);
    for (int32_t i = 0; i < n; i++) {
        const struct qr_seq *q = qr_sched_seq(s, seq[i]);
        const int32_t left = to_draw(q, answer);
        if (without && without[seq[i]])
            continue;
        if (state == QR_SEQ_DECODE) {
            if (left > 0)
                push(p, left / p->said, q->n_ids);
            continue;
        }
        const double tokens = shares(q) ? 1 : left_of(p->b, q);
        if (state == QR_SEQ_WAITING)
            play_wait(p, running_max, q->n_ids);
        p->n_held -= state == QR_SEQ_PREFILL;
        play_prompt(p, tokens, q->n_ids - tokens, left - 1);
        p->prompt_tokens -= (int64_t)tokens;
        p->b->first_us[seq[i]] = q->n_ids > q->n_prompt ? 0 : p->us;
    }
}

double qr_backlog_look(struct qr_backlog *b, struct qr_sched *s, const struct qr_backlog_steps *steps, const bool *without)
{
    QR_ASSERT(b != NULL && s != NULL);
    QR_ASSERT(steps != NULL && steps->running_max >= 1 && steps->tokens_max >= 1);
    struct play p = {.b = b, .steps = steps, .prompt_tokens = qr_sched_prompt_tokens(s), .said = mean_of(&b->said, 1)};
    const struct qr_step_size one = {.n_prompt = 1};
    const int32_t paced = qr_pace_running(steps->pace, steps->predict, &steps->lately, steps->running_max);
    for (int32_t i = 0; i < b->n_slots; i++)
        b->first_us[i] = without && without[i] ? b->first_us[i] : 0;
    if (qr_predict_us(steps->predict, &one) <= 0)
        return 0;
    (void)qr_sched_list(s, QR_SEQ_PREFILL, &p.n_held);
    for (enum qr_seq_state state = QR_SEQ_DECODE; state >= QR_SEQ_WAITING; state--)
        play_queue(&p, s, state, paced < steps->running_max ? paced : steps->running_max, without);
    while (p.n_decode > 0)
        play_end(&p);
    return p.us;
}

int32_t qr_backlog_late(struct qr_backlog *b, struct qr_sched *s, const struct qr_backlog_steps *steps, const double *limit_us, bool *late)
{
    int32_t n, n_late = 0;
    QR_ASSERT(b != NULL && s != NULL);
    QR_ASSERT(limit_us != NULL && late != NULL);
    const int32_t *seq = qr_sched_order(s, &n);
    for (int32_t i = 0; i < n && n_late < LATE_MAX; n_late++) {
        if (qr_backlog_look(b, s, steps, late) <= 0)
            return n_late;
        while (i < n && (late[seq[i]] || b->first_us[seq[i]] <= limit_us[seq[i]]))
            i++;
        if (i == n)
            return n_late;
        late[seq[i]] = true;
    }
    return n_late;
}

double qr_backlog_alone_us(const struct qr_backlog_steps *steps, int32_t n_tokens)
{
    QR_ASSERT(steps != NULL);
    QR_ASSERT(n_tokens >= 0);
    const int32_t n = n_tokens < steps->tokens_max ? n_tokens : steps->tokens_max;
    const struct qr_step_size size = {.n_prompt = n, .context = {0, n * 0.5e-3 * n_tokens}};
    return n > 0 ? qr_predict_us(steps->predict, &size) * n_tokens / n : 0;
}

double qr_backlog_alone_most_us(const struct qr_backlog_steps *steps, int32_t n_tokens)
{
    QR_ASSERT(steps != NULL);
    QR_ASSERT(steps->tokens_max >= 1);
    struct qr_backlog_steps small = *steps;
    small.tokens_max = small.tokens_max < SMALL_ROWS ? small.tokens_max : SMALL_ROWS;
    return qr_backlog_alone_us(&small, n_tokens);
}

double qr_backlog_prompt_token_us(const struct qr_backlog_steps *steps, const struct qr_sched *s)
{
    QR_ASSERT(steps != NULL);
    QR_ASSERT(s != NULL);
    const int32_t n_decode = qr_sched_n_decode(s), n = tokens_beside(steps, n_decode, qr_sched_prompt_tokens(s));
    const struct qr_step_size size = {n, n_decode, n_decode, {steps->lately.context[0], 0}};
    return qr_predict_us(steps->predict, &size) / n;
}
