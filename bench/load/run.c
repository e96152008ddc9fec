/* run.c - sends a plan and times its answers (see parts.h).
 *
 * A request's times are taken when bytes arrive, before anything is parsed: all events of one read share its time. An answer's last token
 * arrives with the event that has the finish reason: tokens without text before it have no event of their own. A send is late when
 * the loop came to it late, not when all users were busy: that wait is the server's doing and counts as its latency.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/list.h"
#include "base/mem.h"
#include "bench/load/parts.h"
#include "client/chunk.h"
#include "client/sse_reader.h"

#define LATE_NS (5 * (int64_t)1000000)
#define AFTER_FAILURE_NS (100 * (int64_t)1000000) /* a closed loop must not hammer a server that refuses it */
#define RAW_MAX ((size_t)64 << 10)
#define SECONDS_MAX 1000000

struct load {
    struct qr_load_plan *plan;           /* borrowed */
    const struct qr_load_target *target; /* borrowed */
    struct qr_load_result *out;          /* borrowed */
    struct qr_load_request next;
    struct qr_timer *timer, *progress, *limit; /* owned */
    struct qr_watch *signals;            /* owned */
    struct flight *free;                 /* owned list */
    struct qr_node running;              /* flights, owned */
    struct qr_chunk chunk;
    struct qr_buf body;
    int64_t pause_until_ns, n_tokens;
    int32_t n_running;
    bool has_next, was_full, stopped;
};

struct flight {
    struct load *load; /* borrowed */
    struct flight *next_free;
    struct qr_node node; /* among the running ones */
    struct qr_http_request *http; /* borrowed */
    struct qr_load_request request;
    struct qr_sse_reader sse;
    struct qr_buf raw; /* owned: a body that is no stream */
    struct qr_http_head head;
    int64_t intended_ns, first_ns, last_ns, read_ns; /* first_ns, last_ns: of token events */
    int64_t end_ns;    /* of the choice's last event */
    int64_t silent_ns; /* the first event of a choice that is more than its role, with text or without; 0: none yet */
    int32_t n_events;
    struct qr_usage usage;
    bool finished, done, failed;
    char why[160];
};

/* ---- counting ---- */

static void count_error(struct qr_load_result *out, const char *name, const char *example)
{
    int32_t i = 0;
    while (i < out->n_errors && strcmp(out->error[i].name, name) != 0)
        i++;
    if (i == out->n_errors && i < QR_LOAD_ERRORS_MAX) {
        out->n_errors++;
        snprintf(out->error[i].name, sizeof out->error[i].name, "%s", name);
        snprintf(out->error[i].example, sizeof out->error[i].example, "%s", example);
    }
    if (i < QR_LOAD_ERRORS_MAX)
        out->error[i].n++;
    out->n_failed++;
}

static void count_second(struct qr_load_result *out, int64_t now_ns)
{
    int64_t s = (now_ns - out->begin_ns) / 1000000000;
    if (s < 0 || s >= SECONDS_MAX)
        return;
    if (s >= out->n_seconds) {
        int64_t n = s + 60;
        out->second = qr_realloc(out->second, (size_t)n, sizeof *out->second);
        memset(out->second + out->n_seconds, 0, (size_t)(n - out->n_seconds) * sizeof *out->second);
        out->n_seconds = n;
    }
    out->second[s]++;
}

static void record(struct flight *f, int64_t sent_ns)
{
    struct qr_load_result *out = f->load->out;
    if (out->n_records == out->cap) {
        out->cap = out->cap < 256 ? 256 : out->cap * 2;
        out->record = qr_realloc(out->record, (size_t)out->cap, sizeof *out->record);
    }
    out->usage_missing |= f->usage.n_output < 0;
    int32_t n_out = f->usage.n_output >= 0 ? (int32_t)f->usage.n_output : f->n_events;
    int32_t n_prompt = f->usage.n_prompt >= 0 ? (int32_t)f->usage.n_prompt : f->request.n_prompt;
    out->n_events += f->n_events;
    out->n_short += n_out < f->request.n_new;
    out->record[out->n_records++] = (struct qr_load_record){.intended_ns = f->intended_ns, .sent_ns = sent_ns, .first_ns = f->first_ns,
                                                            .last_ns = f->end_ns, .n_prompt = n_prompt, .n_out = n_out,
                                                            .n_cached = f->usage.n_cached > 0 ? (int32_t)f->usage.n_cached : 0};
}

/* ---- one answer ---- */

static void pump(struct load *l);

static void retire(struct flight *f)
{
    struct load *l = f->load;
    qr_load_timeline_running(&l->out->timeline, qr_clock_ns(), --l->n_running);
    f->next_free = l->free;
    l->free = f;
    qr_list_remove(&f->node);
    pump(l);
}

static void fail(struct flight *f, const char *why)
{
    f->failed = true;
    snprintf(f->why, sizeof f->why, "%.159s", why);
    qr_sse_stop(&f->sse);
}

static void walk_away(struct flight *f)
{
    f->load->out->n_aborted++;
    qr_http_cancel(f->http);
    f->http = NULL;
}

/* A completion's event without text still stands for tokens (their text is being held back) unless it is only the end. */
static bool is_token_event(const struct flight *f, const struct qr_chunk *c)
{
    bool completions = f->load->plan->opt->endpoint % 2 == 0;
    return qr_chunk_generates(c) || (completions && c->has_choice && c->finish.len == 0);
}

/* An answer whose tokens have no text (an end of text that is not shown, a part of a character) is one all the same, where the server says how many there
 * were. It came when its choice first spoke. */
static void take_silent(struct flight *f)
{
    if (f->n_events > 0 || !f->done || f->usage.n_output <= 0)
        return;
    f->n_events = 1;
    f->first_ns = f->silent_ns;
    f->load->n_tokens++;
    count_second(f->load->out, f->first_ns);
    qr_load_timeline_token(&f->load->out->timeline, f->first_ns);
}

static void on_event(void *arg, const char *data, size_t n)
{
    struct flight *f = arg;
    struct qr_chunk *c = &f->load->chunk;
    struct qr_err err;
    if (qr_chunk_parse(c, data, n, &err) != 0) {
        fail(f, err.msg);
        return;
    }
    if (c->is_error) {
        fail(f, qr_buf_text(&c->error_message));
        return;
    }
    f->finished |= c->finish.len > 0;
    f->done |= c->done;
    if (c->has_usage)
        f->usage = c->usage;
    if (f->silent_ns == 0 && c->has_choice && (c->finish.len > 0 || c->role.len == 0))
        f->silent_ns = f->read_ns;
    if (c->has_choice)
        f->end_ns = f->read_ns;
    if (!is_token_event(f, c))
        return;
    if (f->n_events++ == 0)
        f->first_ns = f->read_ns;
    else {
        qr_samples_add(&f->load->out->itl, (double)(f->read_ns - f->last_ns) / 1e6);
        f->load->out->n_joined += f->read_ns == f->last_ns;
    }
    f->last_ns = f->read_ns;
    f->load->n_tokens++;
    count_second(f->load->out, f->read_ns);
    qr_load_timeline_token(&f->load->out->timeline, f->read_ns);
}

static void on_head(void *arg, const struct qr_http_head *head)
{
    struct flight *f = arg;
    f->head = *head;
    if (f->request.abort_after == 0 && head->status == 200) { /* what is refused is a failure, whatever was planned */
        walk_away(f);
        retire(f);
    }
}

static void on_body(void *arg, const char *bytes, size_t n)
{
    struct flight *f = arg;
    struct qr_err err;
    f->read_ns = qr_http_read_ns(f->load->target->http);
    if (!f->head.event_stream) {
        if (f->raw.len + n <= RAW_MAX)
            qr_buf_put(&f->raw, bytes, n);
        return;
    }
    if (!f->failed && qr_sse_feed(&f->sse, bytes, n, &err) != 0)
        fail(f, err.msg);
    if (f->request.abort_after > 0 && f->n_events >= f->request.abort_after && !f->failed) {
        walk_away(f);
        retire(f);
    }
}

static void refused(struct flight *f)
{
    struct qr_chunk *c = &f->load->chunk;
    struct qr_err err;
    char name[40];
    bool json = f->raw.len > 0 && qr_chunk_parse(c, f->raw.data, f->raw.len, &err) == 0 && c->is_error;
    snprintf(name, sizeof name, f->head.status == 200 ? "no event stream" : "HTTP %d", f->head.status);
    count_error(f->load->out, name, json ? qr_buf_text(&c->error_message) : qr_buf_text(&f->raw));
}

static void on_end(void *arg, const struct qr_http_end *end)
{
    static const char *const names[] = {[QR_HTTP_NO_CONNECT] = "no connection", [QR_HTTP_CUT] = "connection cut",
                                        [QR_HTTP_TIMEOUT] = "timeout", [QR_HTTP_MALFORMED] = "malformed HTTP"};
    struct flight *f = arg;
    struct qr_load_result *out = f->load->out;
    int64_t n_failed = out->n_failed;
    f->http = NULL;
    if (end->outcome == QR_HTTP_DONE && f->finished && !f->failed)
        take_silent(f);
    if (end->outcome != QR_HTTP_DONE)
        count_error(out, names[end->outcome], end->detail);
    else if (f->head.status != 200 || !f->head.event_stream)
        refused(f);
    else if (f->failed)
        count_error(out, "error in the stream", f->why);
    else if (!f->finished)
        count_error(out, "no finish reason", "the stream ended without one");
    else if (f->n_events == 0)
        count_error(out, "no token", "the answer was empty");
    else
        record(f, end->sent_ns);
    if (out->n_failed > n_failed && !f->load->plan->open)
        f->load->pause_until_ns = qr_clock_ns() + AFTER_FAILURE_NS;
    retire(f);
}

/* ---- sending ---- */

static struct flight *take_flight(struct load *l)
{
    struct flight *f = l->free;
    if (f != NULL) {
        l->free = f->next_free;
        qr_sse_reset(&f->sse);
        qr_buf_clear(&f->raw);
    } else {
        f = qr_alloc(1, sizeof *f);
        f->load = l;
        qr_sse_init(&f->sse, (size_t)4 << 20, on_event, f);
    }
    f->head = (struct qr_http_head){0};
    f->first_ns = f->last_ns = f->read_ns = f->end_ns = f->silent_ns = 0;
    f->n_events = 0;
    f->usage = (struct qr_usage){-1, -1, -1};
    f->finished = f->done = f->failed = false;
    return f;
}

static void send_one(struct load *l, int64_t intended_ns)
{
    const struct qr_load_options *opt = l->plan->opt;
    struct flight *f = take_flight(l);
    char id[64];
    f->request = l->next;
    f->intended_ns = intended_ns;
    snprintf(id, sizeof id, "bench-%lld-%lld", (long long)opt->seed, (long long)l->next.index);
    qr_buf_clear(&l->body);
    qr_load_body(&l->body, l->plan, l->target->model, &l->next);
    struct qr_http_call call = {.method = "POST", .path = opt->endpoint % 2 == 0 ? "/completions" : "/chat/completions",
                                .api_key = l->target->api_key, .request_id = id, .body = l->body.data, .n_body = l->body.len,
                                .on_head = on_head, .on_body = on_body, .on_end = on_end, .arg = f};
    f->http = qr_http_begin(l->target->http, &call);
    qr_list_push_back(&l->running, &f->node);
    l->out->n_started++;
    if (++l->n_running > l->out->peak_running)
        l->out->peak_running = l->n_running;
    qr_load_timeline_running(&l->out->timeline, qr_clock_ns(), l->n_running);
    l->has_next = qr_load_plan_next(l->plan, &l->next);
}

static void count_late(struct load *l, int64_t late_ns)
{
    struct qr_load_result *out = l->out;
    out->n_timed++;
    out->n_late += late_ns > LATE_NS;
    if (late_ns > out->worst_late_ns)
        out->worst_late_ns = late_ns;
}

/* A closed loop's duration ends it here; an open plan ends itself. */
static bool more_to_send(struct load *l, int64_t now)
{
    int64_t duration_us = l->plan->opt->duration_us;
    if (!l->plan->open && duration_us > 0 && now - l->out->begin_ns >= duration_us * 1000)
        l->has_next = false;
    return l->has_next && !l->stopped;
}

/* Sends what is due, sets the alarm for what is not, and stops the loop when all is over. */
static void pump(struct load *l)
{
    int64_t now = qr_clock_ns();
    while (more_to_send(l, now)) {
        int64_t due = l->plan->open ? l->out->begin_ns + l->next.at_us * 1000 : l->pause_until_ns;
        if (due > now) {
            l->was_full = false;
            qr_timer_at(l->timer, due);
            break;
        }
        if (l->n_running >= l->plan->n_max_users) {
            l->was_full = true;
            break;
        }
        if (l->plan->open && !l->was_full)
            count_late(l, now - due);
        send_one(l, l->plan->open ? due : now);
        now = qr_clock_ns();
    }
    if (l->n_running == 0 && (!l->has_next || l->stopped))
        qr_loop_stop(l->target->loop);
}

static void on_timer(void *arg)
{
    pump(arg);
}

/* ---- watching ---- */

static void on_progress(void *arg)
{
    struct load *l = arg;
    const struct qr_load_result *out = l->out;
    double s = (double)(qr_clock_ns() - out->begin_ns) / 1e9;
    char line[200];
    int n = snprintf(line, sizeof line, "\r%.1f s  sent %lld  running %d  done %lld  failed %lld  %.0f events/s \033[K", s,
                     (long long)out->n_started, l->n_running, (long long)out->n_records, (long long)out->n_failed,
                     (double)l->n_tokens / s);
    qr_term_write(2, line, (size_t)n);
}

static void on_signal(void *arg)
{
    struct load *l = arg;
    for (int s; (s = qr_term_signal(l->target->term)) != 0;) {
        if (s == SIGTSTP)
            qr_term_stop_self();
        else if (s != SIGWINCH) {
            l->out->signal = s;
            l->stopped = true;
            qr_loop_stop(l->target->loop);
        }
    }
}

static void on_limit(void *arg)
{
    struct load *l = arg;
    l->stopped = true;
    qr_loop_stop(l->target->loop);
}

static void raise_file_limit(void)
{
    struct rlimit limit;
    if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
        limit.rlim_cur = limit.rlim_max;
        setrlimit(RLIMIT_NOFILE, &limit);
    }
}

static void free_flights(struct load *l)
{
    while (!qr_list_empty(&l->running)) { /* a signal or the hard stop ended the run */
        struct flight *f = QR_CONTAINER(qr_list_pop_front(&l->running), struct flight, node);
        qr_http_cancel(f->http);
        f->next_free = l->free;
        l->free = f;
    }
    while (l->free != NULL) {
        struct flight *f = l->free;
        l->free = f->next_free;
        qr_sse_release(&f->sse);
        qr_buf_release(&f->raw);
        qr_free(f);
    }
}

void qr_load_run(struct qr_load_result *out, struct qr_load_plan *plan, const struct qr_load_target *target)
{
    QR_ASSERT(out != NULL && plan != NULL);
    QR_ASSERT(target->loop != NULL && target->http != NULL && target->term != NULL);
    struct load l = {.plan = plan, .target = target, .out = out};
    raise_file_limit();
    qr_list_init(&l.running);
    *out = (struct qr_load_result){0};
    qr_chunk_init(&l.chunk);
    l.timer = qr_timer_new(target->loop, on_timer, &l);
    l.signals = qr_watch_new(target->loop, target->term->signal_fd, on_signal, &l);
    if (plan->opt->progress && target->term->err_tty) {
        l.progress = qr_timer_new(target->loop, on_progress, &l);
        qr_timer_every(l.progress, 250 * 1000000);
    }
    const clock_t cpu = clock();
    l.has_next = qr_load_plan_next(plan, &l.next);
    out->begin_ns = qr_clock_ns();
    qr_load_timeline_init(&out->timeline, out->begin_ns);
    if (plan->hard_stop_us > 0) {
        l.limit = qr_timer_new(target->loop, on_limit, &l);
        qr_timer_at(l.limit, out->begin_ns + plan->hard_stop_us * 1000);
    }
    pump(&l);
    while (!l.stopped && (l.n_running > 0 || l.has_next))
        qr_loop_run(target->loop);
    out->end_ns = qr_clock_ns();
    out->cpu_s = (double)(clock() - cpu) / CLOCKS_PER_SEC;
    out->n_unfinished = l.n_running;
    qr_load_timeline_running(&out->timeline, out->end_ns, 0);
    if (l.progress != NULL)
        qr_term_write(2, "\r\033[K", 4);
    qr_timer_free(l.timer);
    qr_timer_free(l.progress);
    qr_timer_free(l.limit);
    qr_watch_free(l.signals);
    free_flights(&l);
    qr_chunk_release(&l.chunk);
    qr_buf_release(&l.body);
}

int qr_load_warm_up(const struct qr_load_plan *plan, const struct qr_load_target *target, int64_t n, int32_t users, double *rate)
{
    QR_ASSERT(plan != NULL && target != NULL);
    QR_ASSERT(n > 0 && users > 0);
    struct qr_load_options opt = *plan->opt;
    struct qr_load_plan p = *plan;
    struct qr_load_result ignored;
    opt.rate = 0;
    opt.seed++;
    opt.duration_us = 0;
    p.opt = &opt;
    p.trace.n = 0; /* the trace stays the other plan's */
    p.timed = p.open = false;
    p.n_max = n;
    p.n_max_users = users;
    qr_load_run(&ignored, &p, target);
    int signal = ignored.signal;
    if (rate != NULL)
        *rate = qr_load_per_second(ignored.n_records, (double)(ignored.end_ns - ignored.begin_ns) / 1e9);
    qr_load_result_release(&ignored);
    return signal;
}

void qr_load_result_release(struct qr_load_result *r)
{
    qr_free(r->record);
    qr_free(r->second);
    qr_samples_release(&r->itl);
    *r = (struct qr_load_result){0};
}
