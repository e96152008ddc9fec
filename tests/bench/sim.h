/* sim.h - a trace through the real scheduler and the real pool in virtual time: no model, no threads, no clock.
 *
 * A step takes base_us + token_us per token planned + context_us per thousand rows of context read by its decode rows. Arrivals become
 * visible when the virtual time passes them; what the full queue refuses comes again at the next step, in order. Every sequence
 * generates exactly the trace's number of tokens. With n_keys the entries are those of so many keys in turn, and what each of them is served is
 * measured against the bound of scheduler/fair.h.
 *
 * With goals the engine's own pace, predictor and backlog decide beside it, from the virtual times, as engine/deadline.c does: what is refused or shed is lost,
 * and so is what the full queue refuses.
 */
#ifndef QR_TESTS_BENCH_SIM_H
#define QR_TESTS_BENCH_SIM_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "bench/trace.h"
#include "engine/deadline.h"
#include "kvcache/kv_pool.h"
#include "scheduler/sched.h"

struct qr_sim_cost {
    double base_us, token_us, context_us; /* per step, per planned token, per 1,000 context rows of decode */
};

enum { SIM_KEYS_MAX = 4 };

struct qr_sim_config {
    struct qr_sched_config sched; /* ctx_max: longer entries of the trace are skipped and counted */
    int32_t n_blocks, block_tokens;
    bool prefix_cache;
    struct qr_sim_cost cost;
    int32_t check_every;          /* qr_sched_check after every n-th step; 0: never */
    int32_t n_keys;               /* 0: one, and nothing is measured */
    int32_t weight[SIM_KEYS_MAX];
    bool one_client;              /* the scheduler is not told of keys: what they are served in order of arrival */
    bool paced;                   /* the rest counts: */
    int64_t itl_goal_us, ttft_goal_us; /* as of the server; 0: none */
    double good_ttft_us, good_tpot_us; /* an answer within both is good */
};

struct qr_sim_quantiles {
    double p50, p90, p99, max;
};

struct qr_sim_result {
    int32_t n_finished, n_skipped;          /* skipped: longer than ctx_max or than the pool */
    int64_t n_steps, n_rows, n_prompt_rows; /* rows computed; of them in prompt chunks */
    int64_t n_preempted, n_recomputed, n_evicted;
    int32_t preempted_most;                 /* times, of one sequence */
    int32_t running_most, waiting_most, blocks_most;
    double virtual_s, busy_s;               /* until the last token; in steps */
    double waste;                           /* slots of owned blocks that hold no row / slots of owned blocks, over steps, weighted by time */
    double waste_plain;                     /* the mean of each step's ratio, unweighted */
    double hit_rate, hit_rate_most;         /* prompt tokens found in the cache / all; the same for an endless cache of block_tokens */
    struct qr_sim_quantiles wait_ms, ttft_ms, tpot_ms; /* queue; first token from arrival; per further token */
    double served[SIM_KEYS_MAX];            /* each key, of weight 1: prompt tokens not found in the cache, and tokens drawn twice */
    double unfair_most, unfair_bound;       /* by weight: how far the services of two keys went apart while both had sequences waiting; what is promised */
    int32_t n_good, n_refused, n_shed; /* paced: refused at arrival, by the full queue, too; shed while they waited */
    double missed;                          /* paced: mean of |predicted - taken| / taken of steps */
    double plan_us_mean;                    /* real microseconds of one qr_sched_plan + qr_sched_commit; 0 without a clock */
    const char *broken;                     /* a failed check, or NULL */
};

enum { VOCAB = 128000 };

/* ---- the best any prefix cache could do ---- */

struct known {
    int32_t *id, *n_tokens; /* owned [mask + 1]; id -1: empty */
    uint32_t mask;
};

static int32_t *known_tokens(struct known *k, int32_t id)
{
    uint32_t i = (uint32_t)id * 2654435761u & k->mask;
    while (k->id[i] >= 0 && k->id[i] != id)
        i = (i + 1) & k->mask;
    k->id[i] = id;
    return &k->n_tokens[i];
}

static int32_t min_i32(int32_t a, int32_t b)
{
    return a < b ? a : b;
}

/* The largest hit rate any prefix cache of whole blocks could reach: a prompt's blocks that an earlier prompt of the trace had, its last
 * token always left over. Needs hash_ids; 0 otherwise. */
static double qr_sim_hit_rate_most(const struct qr_trace *trace, int32_t block_tokens, int32_t ctx_max)
{
    QR_ASSERT(trace != NULL);
    QR_ASSERT(block_tokens >= 1);
    struct known known = {.mask = 15};
    while (known.mask < 2 * (uint32_t)trace->n_hashes)
        known.mask = 2 * known.mask + 1;
    known.id = qr_alloc((size_t)known.mask + 1, sizeof *known.id);
    known.n_tokens = qr_alloc((size_t)known.mask + 1, sizeof *known.n_tokens);
    memset(known.id, 0xff, ((size_t)known.mask + 1) * sizeof *known.id);
    int64_t n_all = 0, n_hit = 0;
    for (int32_t i = 0; i < trace->n; i++) {
        const struct qr_trace_entry *e = &trace->entry[i];
        if ((int64_t)e->n_prompt + e->n_new > ctx_max)
            continue;
        int32_t n_match = 0;
        bool open = true;
        for (int32_t k = 0; k < e->n_hashes && k * trace->hash_tokens < e->n_prompt; k++) {
            int32_t *seen = known_tokens(&known, trace->hashes[e->first_hash + k]);
            int32_t here = min_i32(trace->hash_tokens, e->n_prompt - k * trace->hash_tokens);
            n_match += open ? min_i32(*seen, here) : 0;
            open = open && *seen >= trace->hash_tokens;
            *seen = *seen > here ? *seen : here;
        }
        n_all += e->n_prompt;
        n_hit += min_i32(n_match, e->n_prompt - 1) / block_tokens * block_tokens;
    }
    qr_free(known.id);
    qr_free(known.n_tokens);
    return n_all > 0 ? (double)n_hit / (double)n_all : 0;
}

/* A request that is inside, by the scheduler's index. */
struct inside {
    int32_t entry; /* -1: free */
    int32_t *ids;  /* owned */
    int64_t first_token_us;
    bool begun;    /* its prompt is served */
    bool fresh;    /* it came in this turn */
};

struct sim {
    const struct qr_trace *trace;
    const struct qr_sim_config *config;
    struct qr_sim_result *out;
    struct qr_kv_pool *pool;
    struct qr_sched *sched;
    struct qr_plan plan;
    struct inside *inside; /* owned [n_slots] */
    int32_t n_slots, n_inside, cursor;
    double now_us;
    double alloc_area, unused_area, ratio_sum;
    int64_t n_ratios, plan_ns;
    double *wait_ms, *ttft_ms, *tpot_ms; /* owned [trace.n] */
    int32_t n_wait, n_tpot;
    double apart_least[SIM_KEYS_MAX][SIM_KEYS_MAX], apart_most[SIM_KEYS_MAX][SIM_KEYS_MAX]; /* services of two keys, since both wait */
    bool together[SIM_KEYS_MAX][SIM_KEYS_MAX];
    struct qr_predict predict;
    struct qr_backlog backlog;
    struct qr_pace pace;
    struct qr_step_size lately;
    double missed_sum;
    double *limit_us; /* owned [n_slots] */
    bool *late;       /* owned [n_slots] */
    bool arrived;
    double looked_us;
};

static int sim_begin(struct sim *m, struct qr_err *err)
{
    const struct qr_sim_config *c = m->config;
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 1);
    m->pool = qr_kv_pool_new(c->n_blocks, c->block_tokens, c->prefix_cache, &secret);
    int rc = qr_sched_new(&m->sched, &c->sched, m->pool, err);
    if (rc < 0) {
        qr_kv_pool_free(m->pool);
        return rc;
    }
    qr_plan_init(&m->plan, &c->sched);
    m->n_slots = c->sched.running_max + c->sched.waiting_max;
    m->inside = qr_alloc((size_t)m->n_slots, sizeof *m->inside);
    for (int32_t i = 0; i < m->n_slots; i++)
        m->inside[i].entry = -1;
    size_t n = (size_t)m->trace->n;
    m->wait_ms = qr_alloc(n, sizeof *m->wait_ms);
    m->ttft_ms = qr_alloc(n, sizeof *m->ttft_ms);
    m->tpot_ms = qr_alloc(n, sizeof *m->tpot_ms);
    m->limit_us = qr_alloc((size_t)m->n_slots, sizeof *m->limit_us);
    m->late = qr_alloc((size_t)m->n_slots, sizeof *m->late);
    m->pace = (struct qr_pace){.goal_us = (double)c->itl_goal_us, .firm = c->ttft_goal_us > 0};
    qr_predict_init(&m->predict);
    qr_backlog_init(&m->backlog, m->n_slots);
    return 0;
}

static void sim_end(struct sim *m)
{
    for (int32_t i = 0; i < m->n_slots; i++)
        qr_free(m->inside[i].ids);
    qr_free(m->inside);
    qr_free(m->wait_ms);
    qr_free(m->ttft_ms);
    qr_free(m->tpot_ms);
    qr_free(m->limit_us);
    qr_free(m->late);
    qr_backlog_release(&m->backlog);
    qr_plan_release(&m->plan);
    qr_sched_free(m->sched);
    qr_kv_pool_free(m->pool);
}

/* Does the entry fit the context? The scheduler itself says whether it fits the pool. */
static bool fits_context(const struct sim *m, const struct qr_trace_entry *e)
{
    return (int64_t)e->n_prompt + e->n_new <= m->config->sched.ctx_max;
}

static int32_t key_of(const struct sim *m, int32_t entry)
{
    return m->config->n_keys > 0 ? entry % m->config->n_keys : 0;
}

static void arrive(struct sim *m)
{
    for (; m->cursor < m->trace->n && (m->config->paced || m->n_inside < m->n_slots); m->cursor++) {
        const struct qr_trace_entry *e = &m->trace->entry[m->cursor];
        if ((double)e->arrival_us > m->now_us)
            return;
        if (m->n_inside == m->n_slots) {
            m->out->n_refused++;
            continue;
        }
        int32_t seq = QR_E_NO_ROOM;
        if (fits_context(m, e)) {
            int32_t *ids = qr_alloc((size_t)(e->n_prompt + e->n_new), sizeof *ids);
            qr_trace_prompt(m->trace, m->cursor, ids, VOCAB);
            struct qr_sched_add add = {.id = (uint64_t)m->cursor, .ids = ids, .n_prompt = e->n_prompt, .new_max = e->n_new,
                                       .group = -1, .now_us = e->arrival_us, .new_min = e->n_new};
            if (m->config->n_keys > 0 && !m->config->one_client)
                add.client = (struct qr_client){.key = (uint64_t)key_of(m, m->cursor), .weight = m->config->weight[key_of(m, m->cursor)]};
            struct qr_err refused;
            seq = qr_sched_add(m->sched, &add, &refused);
            QR_ASSERT(seq != QR_E_BUSY);
            if (seq >= 0)
                m->inside[seq] = (struct inside){.entry = m->cursor, .ids = ids, .fresh = true};
            else
                qr_free(ids);
        }
        m->n_inside += seq >= 0;
        m->arrived |= seq >= 0;
        m->out->n_skipped += seq < 0;
    }
}

static struct qr_backlog_steps steps_of(const struct sim *m)
{
    const struct qr_sim_config *c = m->config;
    return (struct qr_backlog_steps){.predict = &m->predict, .pace = &m->pace, .lately = m->lately, .running_max = c->sched.running_max,
                                     .tokens_max = c->sched.step_tokens_max, .kv_tokens = (int64_t)c->n_blocks * c->block_tokens};
}

static void drop(struct sim *m, int32_t seq)
{
    struct inside *x = &m->inside[seq];
    *(x->fresh ? &m->out->n_refused : &m->out->n_shed) += 1;
    qr_sched_finish(m->sched, seq);
    qr_free(x->ids);
    *x = (struct inside){.entry = -1};
    m->n_inside--;
}

/* As engine/deadline.c: when one has come, and ten times a second. */
static void look(struct sim *m)
{
    const struct qr_backlog_steps steps = steps_of(m);
    if (m->config->ttft_goal_us == 0 || (!m->arrived && m->now_us - m->looked_us < 1e5))
        return;
    m->arrived = false;
    m->looked_us = m->now_us;
    for (int32_t i = 0; i < m->n_slots; i++) {
        const struct inside *x = &m->inside[i];
        const struct qr_seq *q = x->entry < 0 ? NULL : qr_sched_seq(m->sched, i);
        m->late[i] = false;
        m->limit_us[i] = INFINITY;
        if (q && q->state == QR_SEQ_WAITING && q->admitted_us < 0)
            m->limit_us[i] = qr_deadline_limit_us(&steps, q, (double)m->config->ttft_goal_us, m->now_us - (double)q->arrived_us, x->fresh);
    }
    (void)qr_backlog_late(&m->backlog, m->sched, &steps, m->limit_us, m->late);
    for (int32_t i = 0; i < m->n_slots; i++) {
        if (m->late[i])
            drop(m, i);
        m->inside[i].fresh = false;
    }
}

static void pace(struct sim *m)
{
    const int32_t n_decode = qr_sched_n_decode(m->sched);
    if (!m->config->paced)
        return;
    qr_sched_limit_mixed(m->sched, qr_pace_tokens(&m->pace, &m->predict, &m->lately, n_decode, qr_sched_prompt_tokens(m->sched)));
    qr_sched_limit_running(m->sched, qr_pace_running(&m->pace, &m->predict, &m->lately, m->config->sched.running_max));
}

static void learn(struct sim *m, double us)
{
    const struct qr_step_size size = qr_step_size_of(&m->plan);
    const double predicted = qr_predict_note(&m->predict, &size, us);
    m->missed_sum += predicted > us ? (predicted - us) / us : predicted > 0 ? (us - predicted) / us : 0;
    qr_step_size_note(&m->lately, &size);
}

static double step_cost(const struct sim *m)
{
    const struct qr_sim_cost *c = &m->config->cost;
    int64_t context = 0;
    for (int32_t k = m->plan.n_prefill; k < m->plan.n_prefill + m->plan.n_decode; k++)
        context += m->plan.item[k].first + 1;
    return c->base_us + c->token_us * m->plan.n_tokens + c->context_us * (double)context / 1000;
}

static void finish(struct sim *m, int32_t seq)
{
    const struct qr_seq *q = qr_sched_seq(m->sched, seq);
    struct inside *x = &m->inside[seq];
    m->wait_ms[m->n_wait] = (double)(q->admitted_us - q->arrived_us) / 1e3;
    m->ttft_ms[m->n_wait++] = (double)(x->first_token_us - q->arrived_us) / 1e3;
    const double ttft_us = (double)(x->first_token_us - q->arrived_us);
    const double tpot_us = q->new_max > 1 ? (m->now_us - (double)x->first_token_us) / (q->new_max - 1) : 0;
    m->out->n_good += ttft_us <= m->config->good_ttft_us && tpot_us <= m->config->good_tpot_us;
    qr_backlog_answer(&m->backlog, q->new_max);
    if (q->new_max > 1)
        m->tpot_ms[m->n_tpot++] = (m->now_us - (double)x->first_token_us) / 1e3 / (q->new_max - 1);
    if (q->n_preempted > m->out->preempted_most)
        m->out->preempted_most = q->n_preempted;
    qr_sched_finish(m->sched, seq);
    qr_free(x->ids);
    *x = (struct inside){.entry = -1};
    m->n_inside--;
    m->out->n_finished++;
}

static void sample(struct sim *m)
{
    for (int32_t k = 0; k < m->plan.n_prefill + m->plan.n_decode; k++) {
        int32_t seq = m->plan.item[k].seq;
        const struct qr_seq *q = qr_sched_seq(m->sched, seq);
        if (q->n_computed < q->n_ids)
            continue;
        if (q->n_ids == q->n_prompt)
            m->inside[seq].first_token_us = (int64_t)m->now_us;
        m->out->served[key_of(m, m->inside[seq].entry)] += 2;
        qr_sched_push(m->sched, seq, (int32_t)(((uint64_t)m->inside[seq].entry * 2654435761u + (uint64_t)q->n_ids) % VOCAB));
        if (q->n_ids == q->n_prompt + q->new_max)
            finish(m, seq);
    }
}

/* Slots of owned blocks, and those that no computed row fills: only a sequence's own last blocks have such. */
static void measure_waste(struct sim *m, double dt_us)
{
    struct qr_kv_stats stats;
    qr_kv_pool_stats(m->pool, &stats);
    int64_t n_unused = 0;
    for (int32_t i = 0; i < m->n_slots; i++) {
        if (m->inside[i].entry < 0)
            continue;
        const struct qr_seq *q = qr_sched_seq(m->sched, i);
        if (q->state != QR_SEQ_WAITING)
            n_unused += q->n_blocks * m->config->block_tokens - q->n_computed;
    }
    double n_slots = (double)stats.n_owned * m->config->block_tokens;
    m->alloc_area += n_slots * dt_us;
    m->unused_area += (double)n_unused * dt_us;
    m->ratio_sum += (double)n_unused / n_slots;
    m->n_ratios++;
    if (stats.n_owned > m->out->blocks_most)
        m->out->blocks_most = stats.n_owned;
}

static void measure_queues(struct sim *m)
{
    struct qr_sched_stats stats;
    qr_sched_stats(m->sched, &stats);
    int32_t n_running = stats.n_prefill + stats.n_decode;
    if (n_running > m->out->running_most)
        m->out->running_most = n_running;
    if (stats.n_waiting > m->out->waiting_most)
        m->out->waiting_most = stats.n_waiting;
}

/* A prompt is served when it is admitted, whole. Services of two keys are compared for as long as both have sequences waiting. */
static void measure_fairness(struct sim *m)
{
    int32_t n, n_waiting[SIM_KEYS_MAX] = {0};
    for (int32_t k = 0; k < m->plan.n_prefill; k++) {
        struct inside *x = &m->inside[m->plan.item[k].seq];
        const struct qr_seq *q = qr_sched_seq(m->sched, m->plan.item[k].seq);
        m->out->served[key_of(m, x->entry)] += x->begun ? 0 : q->n_prompt - q->n_cached;
        x->begun = true;
    }
    const int32_t *seq = qr_sched_list(m->sched, QR_SEQ_WAITING, &n);
    for (int32_t i = 0; i < n; i++)
        n_waiting[key_of(m, m->inside[seq[i]].entry)]++;
    for (int32_t a = 0; a < m->config->n_keys; a++) {
        for (int32_t b = 0; b < a; b++) {
            const double apart = m->out->served[a] / m->config->weight[a] - m->out->served[b] / m->config->weight[b];
            double *least = &m->apart_least[a][b], *most = &m->apart_most[a][b];
            *least = m->together[a][b] && *least < apart ? *least : apart;
            *most = m->together[a][b] && *most > apart ? *most : apart;
            m->together[a][b] = n_waiting[a] > 0 && n_waiting[b] > 0;
            if (m->together[a][b] && *most - *least > m->out->unfair_most)
                m->out->unfair_most = *most - *least;
        }
    }
}

/* One step; false when nothing can run. */
static bool step(struct sim *m, int64_t (*clock_ns)(void))
{
    int64_t began = clock_ns ? clock_ns() : 0;
    pace(m);
    bool any = qr_sched_plan(m->sched, &m->plan, (int64_t)m->now_us);
    m->plan_ns += clock_ns ? clock_ns() - began : 0;
    if (!any)
        return false;
    if (m->config->n_keys > 1)
        measure_fairness(m);
    double dt_us = step_cost(m);
    m->now_us += dt_us;
    m->out->busy_s += dt_us / 1e6;
    began = clock_ns ? clock_ns() : 0;
    qr_sched_commit(m->sched, &m->plan);
    learn(m, dt_us);
    m->plan_ns += clock_ns ? clock_ns() - began : 0;
    measure_waste(m, dt_us);
    measure_queues(m);
    for (int32_t k = 0; k < m->plan.n_prefill; k++)
        m->out->n_prompt_rows += m->plan.item[k].n_tokens;
    m->out->n_rows += m->plan.n_tokens;
    m->out->n_steps++;
    if (m->config->check_every > 0 && m->out->n_steps % m->config->check_every == 0)
        m->out->broken = qr_sched_check(m->sched);
    sample(m);
    return true;
}

static double bound(const struct sim *m)
{
    int32_t prompt = 0, whole = 0;
    for (int32_t i = 0; i < m->trace->n; i++) {
        const struct qr_trace_entry *e = &m->trace->entry[i];
        prompt = fits_context(m, e) && e->n_prompt > prompt ? e->n_prompt : prompt;
        whole = fits_context(m, e) && e->n_prompt + e->n_new > whole ? e->n_prompt + e->n_new : whole;
    }
    const double full = 2.0 * m->config->sched.running_max * whole;
    return 2 * (full > prompt ? full : prompt);
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static struct qr_sim_quantiles quantiles(double *v, int32_t n)
{
    if (n == 0)
        return (struct qr_sim_quantiles){0};
    qsort(v, (size_t)n, sizeof *v, by_value);
    int64_t last = n - 1;
    return (struct qr_sim_quantiles){.p50 = v[last / 2], .p90 = v[last * 9 / 10], .p99 = v[last * 99 / 100], .max = v[last]};
}

static void summarise(struct sim *m)
{
    struct qr_sim_result *out = m->out;
    struct qr_kv_stats kv;
    struct qr_sched_stats sched;
    qr_kv_pool_stats(m->pool, &kv);
    qr_sched_stats(m->sched, &sched);
    out->n_preempted = sched.n_preempted;
    out->n_recomputed = sched.n_recomputed;
    out->n_evicted = kv.n_evicted;
    out->virtual_s = m->now_us / 1e6;
    out->unfair_bound = bound(m);
    out->waste = m->alloc_area > 0 ? m->unused_area / m->alloc_area : 0;
    out->waste_plain = m->n_ratios > 0 ? m->ratio_sum / (double)m->n_ratios : 0;
    out->hit_rate = kv.query_tokens > 0 ? (double)kv.hit_tokens / (double)kv.query_tokens : 0;
    out->hit_rate_most = qr_sim_hit_rate_most(m->trace, m->config->block_tokens, m->config->sched.ctx_max);
    out->wait_ms = quantiles(m->wait_ms, m->n_wait);
    out->ttft_ms = quantiles(m->ttft_ms, m->n_wait);
    out->tpot_ms = quantiles(m->tpot_ms, m->n_tpot);
    out->missed = out->n_steps > 0 ? m->missed_sum / (double)out->n_steps : 0;
    out->plan_us_mean = out->n_steps > 0 ? (double)m->plan_ns / 1e3 / (double)out->n_steps : 0;
}

/* Runs the whole trace. clock_ns: NULL, or a clock to measure the scheduler itself with. Errors: QR_E_USAGE from qr_sched_new. */
static int qr_sim_run(struct qr_sim_result *out, const struct qr_trace *trace, const struct qr_sim_config *config,
               int64_t (*clock_ns)(void), struct qr_err *err)
{
    QR_ASSERT(out != NULL && trace != NULL && trace->n >= 1);
    QR_ASSERT(config != NULL && err != NULL);
    *out = (struct qr_sim_result){0};
    struct sim m = {.trace = trace, .config = config, .out = out};
    int rc = sim_begin(&m, err);
    if (rc < 0)
        return rc;
    while (out->broken == NULL && (m.cursor < trace->n || m.n_inside > 0)) {
        arrive(&m);
        look(&m);
        if (step(&m, clock_ns))
            continue;
        if (m.n_inside > 0)
            out->broken = "nothing is planned although a sequence is there";
        else if (m.cursor < trace->n)
            m.now_us = (double)trace->entry[m.cursor].arrival_us;
    }
    summarise(&m);
    sim_end(&m);
    return 0;
}

#endif
