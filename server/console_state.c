/* console_state.c - the state that operators see as JSON: limits, use, requests by the ids that their clients know, a map of the cache in runs of equal cells,
 * rates and latencies of the last seconds, warnings. Numbers of the engine are its last published ones and its last look's. Loop thread. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "server/console.h"
#include "server/route.h"

#define RATE_US 10000000     /* rates are of so long, */
#define HISTOGRAM_US 60000000 /* and histograms */

static void put_real(struct qr_buf *out, const char *name, double value)
{
    qr_json_put_name(out, name);
    qr_buf_printf(out, "%.4g", value);
}

static void open_object(struct qr_buf *out, const char *name)
{
    qr_json_put_name(out, name);
    qr_buf_put_byte(out, '{');
}

static void open_array(struct qr_buf *out, const char *name)
{
    qr_json_put_name(out, name);
    qr_buf_put_byte(out, '[');
}

/* ---- what does not change, and what is counted ---- */

static void put_model(struct qr_buf *out, const struct qr_server *s, const struct qr_engine_limits *l)
{
    open_object(out, "model");
    qr_json_put_member_text(out, "name", s->n_names > 0 ? s->names[0] : "");
    qr_json_put_member_i64(out, "ctx_max", l->ctx_max);
    qr_json_put_member_text(out, "weights", qr_dtype_name(l->weight_dtype));
    qr_json_put_member_text(out, "kv", qr_dtype_name(l->kv_dtype));
    qr_json_put_member_i64(out, "ranks", l->n_ranks > 1 ? l->n_ranks : 1);
    qr_buf_put_byte(out, '}');
}

static void put_limits(struct qr_buf *out, const struct qr_server *s, const struct qr_engine_limits *l)
{
    open_object(out, "limits");
    qr_json_put_member_i64(out, "running_max", l->running_max);
    qr_json_put_member_i64(out, "waiting_max", l->waiting_max);
    qr_json_put_member_i64(out, "step_tokens_max", l->step_tokens_max);
    qr_json_put_member_i64(out, "block_tokens", l->block_tokens);
    qr_json_put_member_i64(out, "n_blocks", l->n_blocks);
    qr_json_put_member_i64(out, "n_host_blocks", l->n_host_blocks);
    qr_json_put_member_i64(out, "kv_bytes", l->kv_bytes);
    qr_json_put_member_i64(out, "weight_bytes", l->weight_bytes);
    qr_json_put_member_i64(out, "requests_bytes", s->budget.max_bytes);
    qr_json_put_member_i64(out, "connections_max", s->config.connections_max);
    qr_buf_put_byte(out, '}');
}

static void put_use(struct qr_buf *out, struct qr_server *s, const struct qr_stats *t)
{
    open_object(out, "use");
    qr_json_put_member_i64(out, "running", t->sched.n_prefill + t->sched.n_decode);
    qr_json_put_member_i64(out, "waiting", t->sched.n_waiting + t->sched.n_held);
    qr_json_put_member_i64(out, "connections", qr_http_env(s->http)->n_conns);
    qr_json_put_member_i64(out, "requests_bytes", atomic_load(&s->budget.used_bytes));
    qr_json_put_member_i64(out, "rss_bytes", qr_memory_of_process("VmRSS"));
    qr_json_put_member_i64(out, "backlog_ms", (int64_t)(t->backlog_s * 1e3));
    qr_buf_put_byte(out, '}');
}

/* ---- requests ---- */

const char *qr_console_route(const struct qr_call *call)
{
    int32_t n;
    const struct qr_route *route = qr_routes(&n);
    for (int32_t i = 0; i < n; i++)
        if (route[i].call == call->kind)
            return route[i].path;
    return "";
}

/* All pieces of a call that are in the engine, as the last look found them. */
struct sum {
    const struct qr_request *req; /* of the first */
    int64_t n_prompt, n_cached, n_done, n_output, n_blocks, first_token_us;
    enum qr_request_state state;
    uint32_t owner;
};

static struct sum sum_of(const struct qr_call *call, uint64_t look)
{
    struct sum a = {0};
    for (int32_t i = 0; i < call->n_submitted; i++) {
        const struct qr_piece *p = &call->piece[i];
        if (!p->submitted)
            continue;
        a.req = a.req ? a.req : p->req;
        a.n_prompt += p->req->n_prompt;
        if (p->look.number != look) /* it came since */
            continue;
        a.state = p->look.state > a.state ? p->look.state : a.state;
        a.n_cached += p->look.n_cached;
        a.n_done += p->look.n_done;
        a.n_output += p->look.n_output;
        a.n_blocks += p->look.n_blocks;
        a.owner = p->look.owner;
        if (p->look.first_token_us > 0 && (a.first_token_us == 0 || p->look.first_token_us < a.first_token_us))
            a.first_token_us = p->look.first_token_us;
    }
    return a;
}

static void put_request(struct qr_buf *out, const struct qr_call *call, const struct sum *a, int64_t now_us)
{
    char who[QR_KEY_DIGEST_TEXT];
    qr_buf_put_comma(out);
    qr_buf_put_byte(out, '{');
    qr_json_put_member_text(out, "id", call->id);
    qr_json_put_member_text(out, "route", qr_console_route(call));
    qr_json_put_member_text(out, "who", qr_key_digest_text(who, &call->digest));
    qr_json_put_member_text(out, "state", qr_request_state_name(a->state));
    qr_json_put_member_i64(out, "prompt_tokens", a->n_prompt);
    qr_json_put_member_i64(out, "cached_tokens", a->n_cached);
    qr_json_put_member_i64(out, "done_tokens", a->n_done);
    qr_json_put_member_i64(out, "output_tokens", a->n_output);
    qr_json_put_member_i64(out, "max_tokens", a->req->sampling.max_tokens);
    qr_json_put_member_i64(out, "choices", call->n_choices);
    qr_json_put_member_i64(out, "age_ms", (now_us - call->arrived_us) / 1000);
    if (a->first_token_us > 0)
        qr_json_put_member_i64(out, "ttft_ms", (a->first_token_us - call->arrived_us) / 1000);
    else
        qr_buf_put_str(out, ",\"ttft_ms\":null");
    qr_json_put_member_i64(out, "blocks", a->n_blocks);
    qr_json_put_member_i64(out, "priority", a->req->priority);
    if (a->n_blocks > 0) {
        qr_json_put_name(out, "owner");
        qr_buf_printf(out, "\"%08x\"", a->owner);
    }
    qr_buf_put_byte(out, '}');
}

/* Those that can be cancelled. */
static void put_requests(struct qr_buf *out, const struct qr_server *s, int64_t now_us)
{
    int32_t n = 0;
    open_array(out, "requests");
    for (struct qr_node *at = s->calls.next; at != &s->calls; at = at->next) {
        const struct qr_call *call = QR_CONTAINER(at, struct qr_call, link);
        if (!call->conn || call->preparing || call->n_open == 0)
            continue;
        const struct sum a = sum_of(call, s->console->look.number);
        QR_ASSERT(a.req != NULL);
        if (n++ < QR_CONSOLE_REQUESTS)
            put_request(out, call, &a, now_us);
    }
    qr_buf_put_byte(out, ']');
    qr_json_put_member_i64(out, "requests_left_out", n > QR_CONSOLE_REQUESTS ? n - QR_CONSOLE_REQUESTS : 0);
}

/* ---- the map of blocks ---- */

/* The number of an owner among those seen so far in this state. */
static int32_t owner_index(struct qr_console *o, int32_t *n_owners, uint32_t owner)
{
    const uint32_t mask = QR_COUNT(o->place) - 1;
    _Static_assert((QR_COUNT(o->place) & (QR_COUNT(o->place) - 1)) == 0, "a power of two");
    uint32_t at = owner & mask; /* it is a hash */
    while (o->place[at] >= 0 && o->owner[o->place[at]] != owner)
        at = (at + 1) & mask;
    if (o->place[at] < 0) {
        QR_ASSERT(*n_owners < QR_LOOK_CELLS_MAX);
        o->owner[*n_owners] = owner;
        o->place[at] = (int16_t)(*n_owners)++;
    }
    return o->place[at];
}

static void put_run(struct qr_buf *out, struct qr_console *o, int32_t *n_owners, const struct qr_look_cell *cell, int32_t n)
{
    static const char letter[] = {[QR_KV_FREE] = 'f', [QR_KV_CACHED] = 'c', [QR_KV_USED] = 'u', [QR_KV_SHARED] = 's'};
    const char mark[4] = {',', '"', letter[cell->use], '"'};
    qr_buf_put_comma(out);
    qr_buf_put_byte(out, '[');
    qr_buf_put_i64(out, n);
    qr_buf_put(out, mark, sizeof mark);
    if (cell->use == QR_KV_CACHED || cell->use == QR_KV_USED) {
        qr_buf_put_byte(out, ',');
        qr_buf_put_i64(out, owner_index(o, n_owners, cell->owner));
    }
    qr_buf_put_byte(out, ']');
}

static bool same_run(const struct qr_look_cell *a, const struct qr_look_cell *b)
{
    return a->use == b->use && (a->owner == b->owner || a->use == QR_KV_FREE || a->use == QR_KV_SHARED);
}

static void put_blocks(struct qr_buf *out, struct qr_console *o)
{
    const struct qr_look *l = &o->look;
    int32_t n_owners = 0;
    memset(o->place, -1, sizeof o->place);
    open_object(out, "blocks");
    qr_json_put_member_i64(out, "total", l->n_blocks);
    qr_json_put_member_i64(out, "free", l->n_free);
    qr_json_put_member_i64(out, "cached", l->n_cached);
    qr_json_put_member_i64(out, "used", l->n_used);
    qr_json_put_member_i64(out, "shared", l->n_shared);
    qr_json_put_member_i64(out, "per_cell", l->per_cell);
    open_array(out, "map");
    for (int32_t i = 0, n; i < l->n_cells; i += n) {
        for (n = 1; i + n < l->n_cells && same_run(&l->cell[i], &l->cell[i + n]); n++)
            ;
        put_run(out, o, &n_owners, &l->cell[i], n);
    }
    qr_buf_put_byte(out, ']');
    open_array(out, "owners");
    for (int32_t i = 0; i < n_owners; i++) {
        qr_buf_put_comma(out);
        qr_buf_printf(out, "\"%08x\"", o->owner[i]);
    }
    qr_buf_put_str(out, "]}");
}

/* ---- rates, histograms, steps ---- */

/* The youngest sample that is at least so old, else the oldest; NULL: there is none. */
static const struct qr_console_sample *sample_before(const struct qr_console *o, int64_t now_us, int64_t age_us)
{
    const uint64_t n = o->n_samples < QR_CONSOLE_SAMPLES ? o->n_samples : QR_CONSOLE_SAMPLES;
    const struct qr_console_sample *found = NULL;
    for (uint64_t i = o->n_samples - n; i < o->n_samples; i++)
        if (!found || now_us - o->sample[i % QR_CONSOLE_SAMPLES].taken_us >= age_us)
            found = &o->sample[i % QR_CONSOLE_SAMPLES];
    return found;
}

void qr_console_rates(const struct qr_console *o, const struct qr_stats *t, int64_t now_us, struct qr_console_rates *out)
{
    QR_ASSERT(o != NULL && t != NULL);
    QR_ASSERT(out != NULL);
    const struct qr_console_sample none = {.taken_us = o->started_us}, *from = sample_before(o, now_us, RATE_US);
    const uint64_t n_ended = t->n_done_stop + t->n_done_length + t->n_cancelled + t->n_failed;
    from = from ? from : &none;
    const double seconds = now_us > from->taken_us ? (double)(now_us - from->taken_us) * 1e-6 : 1;
    const int64_t n_query = t->kv.query_tokens - from->query_tokens, n_hit = t->kv.hit_tokens - from->hit_tokens;
    *out = (struct qr_console_rates){.prompt_tokens_s = (double)(t->prompt_tokens - from->prompt_tokens) / seconds,
                                     .output_tokens_s = (double)(t->output_tokens - from->output_tokens) / seconds,
                                     .requests_s = (double)(n_ended - from->n_ended) / seconds,
                                     .hit_ratio = n_query > 0 ? (double)n_hit / (double)n_query : 0};
}

static void put_rates(struct qr_buf *out, const struct qr_console *o, const struct qr_stats *t, int64_t now_us)
{
    struct qr_console_rates r;
    qr_console_rates(o, t, now_us, &r);
    open_object(out, "rates");
    put_real(out, "prompt_tokens_s", r.prompt_tokens_s);
    put_real(out, "output_tokens_s", r.output_tokens_s);
    put_real(out, "requests_s", r.requests_s);
    put_real(out, "hit_ratio", r.hit_ratio);
    qr_buf_put_byte(out, '}');
}

static void put_histogram(struct qr_buf *out, const char *name, const struct qr_hist *h, const uint64_t *before)
{
    open_object(out, name);
    open_array(out, "le");
    for (int32_t i = 0; i < h->n_bounds; i++) {
        qr_buf_put_comma(out);
        qr_buf_printf(out, "%.6g", h->bound[i] * 1e3);
    }
    qr_buf_put_byte(out, ']');
    open_array(out, "n");
    for (int32_t i = 0; i <= h->n_bounds; i++) {
        qr_buf_put_comma(out);
        qr_buf_put_i64(out, (int64_t)(h->count[i] - (before ? before[i] : 0)));
    }
    qr_buf_put_str(out, "]}");
}

void qr_console_put_steps(struct qr_buf *out, const struct qr_view *view, uint64_t *at)
{
    struct qr_step_record r[QR_CONSOLE_STEPS];
    const uint64_t end = view ? qr_view_n_steps(view) : 0;
    QR_ASSERT(out != NULL && at != NULL);
    if (end > QR_CONSOLE_STEPS && *at < end - QR_CONSOLE_STEPS)
        *at = end - QR_CONSOLE_STEPS;
    const int32_t n = view ? qr_view_steps(view, at, r, QR_CONSOLE_STEPS) : 0;
    open_array(out, "steps");
    for (int32_t i = 0; i < n; i++) {
        const int64_t value[] = {r[i].begun_us, r[i].us, r[i].n_prompt, r[i].n_decode, r[i].n_waiting};
        qr_buf_put_comma(out);
        qr_buf_put_byte(out, '[');
        for (int k = 0; k < QR_COUNT(value); k++) {
            qr_buf_put_comma(out);
            qr_buf_put_i64(out, value[k]);
        }
        qr_buf_put_byte(out, ']');
    }
    qr_buf_put_str(out, "]}");
}

/* ---- warnings ---- */

struct weighing {
    const struct qr_server *s;
    const struct qr_stats *stats;
    const struct qr_engine_limits *limits;
    const struct qr_console_sample *minute; /* the sample of a minute ago, or the oldest; NULL: none */
};

static bool is_open(const struct weighing *w)
{
    return qr_server_is_open(w->s);
}

static bool is_stuck(const struct weighing *w)
{
    const char *trouble = qr_server_trouble(w->s);
    return trouble && strcmp(trouble, "stuck") == 0;
}

static bool is_full(const struct weighing *w)
{
    return w->limits->waiting_max > 0 && w->stats->sched.n_waiting + w->stats->sched.n_held >= w->limits->waiting_max;
}

static bool preempts(const struct weighing *w)
{
    return w->minute && w->stats->sched.n_preempted > w->minute->n_preempted;
}

static bool lacks_memory(const struct weighing *w)
{
    return atomic_load(&w->s->budget.used_bytes) > w->s->budget.max_bytes / 10 * 9;
}

static bool lacks_connections(const struct weighing *w)
{
    return qr_http_env(w->s->http)->n_conns >= w->s->config.connections_max;
}

static const struct {
    const char *id, *text;
    bool (*holds)(const struct weighing *w);
} warning[] = {
    {"open", "Anyone who can reach this server can use it: set --api-key, or --host 127.0.0.1.", is_open},
    {"stuck", "There is work and no step has ended for longer than --watchdog.", is_stuck},
    {"queue_full", "The queue is full: new requests are answered 429 (--max-waiting).", is_full},
    {"preempted", "Within the last minute sequences gave their cache blocks back and were computed again: the cache is too small for what runs "
                  "(--kv-bytes, --max-running).", preempts},
    {"requests_memory", "Requests hold more than nine tenths of --max-bodies-size.", lacks_memory},
    {"connections", "All connections are in use (--max-connections).", lacks_connections},
};

static void put_warnings(struct qr_buf *out, const struct weighing *w)
{
    open_array(out, "warnings");
    for (int i = 0; i < QR_COUNT(warning); i++) {
        if (!warning[i].holds(w))
            continue;
        qr_buf_put_comma(out);
        qr_buf_put_byte(out, '{');
        qr_json_put_member_text(out, "id", warning[i].id);
        qr_json_put_member_text(out, "text", warning[i].text);
        qr_buf_put_byte(out, '}');
    }
    qr_buf_put_byte(out, ']');
}

void qr_console_put_state(struct qr_buf *out, struct qr_server *s, int64_t now_us)
{
    QR_ASSERT(out != NULL && s != NULL);
    struct qr_console *o = s->console;
    const bool ready = s->phase == QR_PHASE_READY;
    const char *trouble = qr_server_trouble(s);
    const struct qr_engine_limits none = {0}, *limits = ready ? qr_engine_limits(s->model.engine) : &none;
    const struct qr_console_sample *minute = sample_before(o, now_us, HISTOGRAM_US);
    struct qr_stats t;
    qr_stats_init(&t);
    if (ready)
        qr_engine_stats(s->model.engine, &t);
    qr_buf_put_byte(out, '{');
    qr_json_put_member_i64(out, "now_us", now_us);
    qr_json_put_member_i64(out, "started_us", o->started_us);
    qr_json_put_member_text(out, "version", QUIRE_VERSION);
    qr_json_put_member_text(out, "phase", trouble ? trouble : "ready");
    qr_json_put_member_i64(out, "look_age_ms", o->look.number > 0 ? (now_us - o->look.taken_us) / 1000 : 0);
    put_model(out, s, limits);
    put_limits(out, s, limits);
    put_use(out, s, &t);
    put_requests(out, s, now_us);
    put_blocks(out, o);
    put_rates(out, o, &t, now_us);
    put_histogram(out, "ttft_ms", &t.ttft_fine, minute ? minute->ttft : NULL);
    put_histogram(out, "itl_ms", &t.itl_fine, minute ? minute->itl : NULL);
    put_warnings(out, &(struct weighing){s, &t, limits, minute});
}
