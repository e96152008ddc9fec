/* server.c - the server's life: bind, wait for the model, serve, drain, end. It listens before the model is open and
 * answers 503 until then. The first SIGTERM begins a drain, the second ends the process; a lost rank ends it with an
 * error. All calls and connections belong to the loop thread; other threads reach it by qr_server_wake and the
 * functions that server.h says so of. */
#include "server/server.h"

#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/heap.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "server/access.h"
#include "server/call.h"
#include "server/forms.h"
#include "server/console.h"
#include "server/route.h"
#include "server/state.h"
#include "server/warm.h"

#define FRESH_US 1000000      /* of a drain: a client that has just connected has so long to ask, and be told */
#define ECHO_US 100000        /* the same signal within so long is the first one again */
#define ACCESS_LINE_BYTES 8192 /* more than the longest line of the access log takes */
#define LAST_WORDS_US 2000000 /* after the drain's time, for clients to hear of it */

uint64_t qr_server_next_id(struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    uint64_t n = ++s->n_ids;
    QR_ASSERT(n != 0);
    return (qr_hash64(&n, sizeof n, s->id_seed) & ~0xffffffffull) | (n & 0xffffffffull); /* the count keeps it unique */
}

const char *qr_server_trouble(const struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->phase != QR_PHASE_READY || s->model.engine != NULL);
    bool has_work;
    if (s->phase == QR_PHASE_FAILED)
        return "failed";
    if (s->phase == QR_PHASE_LOADING)
        return "loading";
    if (s->lost)
        return "lost";
    int64_t progress_us = qr_engine_progress_us(s->model.engine, &has_work);
    if (has_work && qr_clock_us() - progress_us > s->config.watchdog_us)
        return "stuck";
    return s->draining ? "draining" : NULL;
}

bool qr_server_unavailable(const struct qr_server *s, struct qr_api_error *e)
{
    QR_ASSERT(s != NULL && e != NULL);
    if (s->lost)
        qr_api_error_set(e, 503, "lost", "A part of the model was lost; the server has to be started again.");
    else if (s->draining)
        qr_api_error_set(e, 503, "shutting_down", "The server is shutting down; it takes no new requests.");
    else if (s->phase == QR_PHASE_FAILED)
        qr_api_error_set(e, 503, "load_failed", "The model could not be loaded; the server's log says why.");
    else if (s->phase == QR_PHASE_LOADING)
        qr_api_error_set(e, 503, "loading", "The model is being loaded; try again in a moment.");
    else
        return false;
    QR_ASSERT(e->retry_after_s > 0);
    return true;
}

/* ---- draining ---- */

static void stop_now(struct qr_server *s, int status)
{
    s->exit_status = status;
    qr_http_stop(s->http);
}

/* Ends the loop when nothing is owed to anybody. */
static void check_drained(struct qr_server *s)
{
    struct qr_conn_env *env = qr_http_env(s->http);
    if (!s->draining)
        return;
    qr_conn_close_idle(env, s->n_calls > 0 ? FRESH_US : 0);
    if (s->n_calls == 0 && env->n_conns == 0)
        stop_now(s, s->phase == QR_PHASE_FAILED || s->lost ? 1 : 0);
}

static void begin_drain(struct qr_server *s)
{
    if (s->draining)
        return;
    s->draining = true;
    s->drain_until_us = qr_clock_us() + s->config.drain_us;
    qr_http_env(s->http)->closing = true;
    if (s->phase == QR_PHASE_READY)
        qr_engine_drain(s->model.engine);
    qr_notify_say(&s->notify, "STOPPING=1");
    if (s->phase != QR_PHASE_FAILED) /* else no request was ever taken */
        qr_log(QR_LOG_INFO, "server", "draining requests=%d seconds_max=%lld", s->n_calls, (long long)(s->config.drain_us / 1000000));
    check_drained(s);
}

static void on_signal(void *user, int32_t signum)
{
    struct qr_server *s = user;
    if (signum == SIGHUP) {
        qr_server_reload(s);
        return;
    }
    if (!s->draining) {
        qr_log(QR_LOG_INFO, "server", "signal received signal=%s", signum == SIGTERM ? "SIGTERM" : "SIGINT");
        s->signal_us = qr_clock_us();
        s->signal = signum;
        begin_drain(s);
        return;
    }
    if (signum == s->signal && qr_clock_us() - s->signal_us < ECHO_US) /* coreutils' timeout sends to the process, and to its group: once again to it */
        return;
    qr_log(QR_LOG_WARN, "server", "second signal: stopping at once requests=%d", s->n_calls);
    stop_now(s, 130);
}

static void trim_run(void *arg)
{
    qr_heap_trim();
}

static void trim_done(void *arg)
{
    struct qr_server *s = arg;
    s->trimming = false;
}

/* What opening the model, and calls, leave free between blocks that stay goes back to the system: ten times a second at most, as the next body has to have its
 * pages again. */
static void give_back(struct qr_server *s)
{
    if (s->trimming || s->freed_bytes < QR_TRIM_BYTES)
        return;
    s->freed_bytes = 0;
    s->trimming = true;
    qr_http_work(s->trim, trim_run, trim_done, s);
}

/* The drain's time is over: what runs ends with an error, and a little later clients that have not read that yet, or
 * still send, are closed. */
static void end_drain(struct qr_server *s, int64_t now_us)
{
    if (now_us <= s->drain_until_us)
        return;
    if (s->drain_over) {
        stop_now(s, s->phase == QR_PHASE_FAILED || s->lost ? 1 : 0);
        return;
    }
    qr_log(QR_LOG_WARN, "server", "drain time is over: ending requests=%d connections=%d", s->n_calls, qr_http_env(s->http)->n_conns);
    s->drain_over = true;
    s->drain_until_us = now_us + LAST_WORDS_US;
    qr_calls_abort(s, "The server is shutting down and the time for running requests is over.");
}

/* An engine that has stood still for --watchdog-exit is not waited for: clients hear of it, and the process ends. */
static void end_stuck(struct qr_server *s, int64_t now_us)
{
    bool has_work;
    if (s->stuck_until_us > 0 && now_us > s->stuck_until_us)
        _exit(qr_err_exit_status(QR_E_INTERNAL));
    if (s->phase != QR_PHASE_READY || s->config.stuck_us == 0 || s->stuck_until_us > 0)
        return;
    const int64_t progress_us = qr_engine_progress_us(s->model.engine, &has_work);
    if (!has_work || now_us - progress_us <= s->config.stuck_us)
        return;
    qr_log(QR_LOG_ERROR, "server", "the engine has made no step for %lld ms: the server ends requests=%d", (long long)(s->config.stuck_us / 1000),
           s->n_calls);
    s->stuck_until_us = now_us + LAST_WORDS_US;
    qr_calls_abort(s, "The engine stands still; the server ends.");
}

/* What systemd hears. Its watchdog is fed while the loop turns and the engine is not stuck. */
static void notify(struct qr_server *s, int64_t now_us)
{
    char text[160];
    const char *trouble = qr_notify_due(&s->notify, now_us) ? qr_server_trouble(s) : "";
    if (!trouble || (*trouble && strcmp(trouble, "stuck") != 0))
        qr_notify_say(&s->notify, "WATCHDOG=1");
    if (s->phase != QR_PHASE_READY || !qr_notify_status_due(&s->notify, now_us))
        return;
    struct qr_stats st;
    qr_engine_stats(s->model.engine, &st);
    snprintf(text, sizeof text, "STATUS=%s: %d running, %d waiting, %d connections", s->draining ? "draining" : "serving",
             st.sched.n_prefill + st.sched.n_decode, st.sched.n_waiting, qr_http_env(s->http)->n_conns);
    qr_notify_say(&s->notify, text);
}

static void on_tick(void *user, int64_t now_us)
{
    struct qr_server *s = user;
    qr_calls_tick(s, now_us);
    qr_console_tick(s, now_us);
    give_back(s);
    end_stuck(s, now_us);
    notify(s, now_us);
    if (!s->draining)
        return;
    end_drain(s, now_us);
    check_drained(s);
}

/* ---- what other threads say ---- */

static void become_ready(struct qr_server *s)
{
    const char *version = QUIRE_VERSION;
    QR_ASSERT(s->n_names > 0);
    s->created_s = qr_clock_wall_s();
    uint64_t h = qr_hash64(version, strlen(version), qr_hash64(s->names[0], strlen(s->names[0]), 0));
    snprintf(s->fingerprint, sizeof s->fingerprint, "fp_%010llx", (unsigned long long)(h & 0xffffffffffull));
    s->phase = QR_PHASE_READY;
    s->freed_bytes = QR_TRIM_BYTES;
    qr_notify_say(&s->notify, "READY=1");
    if (s->draining)
        qr_engine_drain(s->model.engine);
}

/* An engine that computes no more: what it has is ended with errors, as a drain would see to if it were finished, and the process ends. */
static void look_for_loss(struct qr_server *s)
{
    struct qr_err err;
    if (s->lost || !qr_engine_lost(s->model.engine, &err))
        return;
    s->lost = true;
    qr_log_text(QR_LOG_ERROR, "server", "the engine is lost, the server ends", "reason", err.msg);
    begin_drain(s);
}

static void on_wake(void *user)
{
    struct qr_server *s = user;
    pthread_mutex_lock(&s->lock);
    enum qr_phase phase = s->pending.phase;
    bool stop = s->pending.stop;
    if (phase != s->phase) {
        s->model = s->pending.model;
        s->names = s->pending.names;
        s->n_names = s->pending.n_names;
        s->forms = s->pending.forms;
        s->pending.names = NULL;
        s->pending.forms = NULL;
        if (s->model.requests_bytes > 0 && s->model.requests_bytes < s->budget.max_bytes)
            s->budget.max_bytes = s->model.requests_bytes;
    }
    pthread_mutex_unlock(&s->lock);
    if (phase == QR_PHASE_READY && s->phase == QR_PHASE_LOADING)
        become_ready(s);
    if (phase == QR_PHASE_FAILED && s->phase == QR_PHASE_LOADING) {
        s->phase = QR_PHASE_FAILED;
        begin_drain(s);
    }
    if (stop)
        begin_drain(s);
    if (s->phase == QR_PHASE_READY) {
        qr_console_wake(s);
        qr_calls_take(s);
        look_for_loss(s);
    }
    check_drained(s);
}

/* A directory may have a name that is no UTF-8, which JSON and Prometheus cannot say: clients read, and then use, what is shown of it. */
static char *as_text(const char *name)
{
    const size_t n = strlen(name);
    char *text = qr_alloc(3 * n + 1, 1);
    text[qr_utf8_lossy(text, name, n)] = 0;
    return text;
}

struct qr_forms *qr_server_forms(const struct qr_server_config *config, const struct qr_server_model *model)
{
    QR_ASSERT(config != NULL);
    QR_ASSERT(model != NULL);
    const int64_t asked = config->grammars_bytes, least = model->grammars_bytes;
    return qr_forms_new(&(struct qr_forms_config){
        .tokenizer = model->tokenizer, .chat = model->chat, .model = qr_engine_model(model->engine), .vocab = qr_engine_limits(model->engine)->vocab,
        .tool_format = config->tool_format, .bytes_max = least > 0 && least < asked ? least : asked});
}

int qr_server_warm_up(struct qr_server *s, const struct qr_server_model *model, struct qr_warmed *out, struct qr_err *err)
{
    QR_ASSERT(s != NULL && model != NULL);
    QR_ASSERT(out != NULL && err != NULL);
    *out = (struct qr_warmed){0};
    return s->warm ? qr_warm_run(s->warm, &s->config, model, out, err) : 0;
}

void qr_server_set_ready(struct qr_server *s, const struct qr_server_model *model)
{
    QR_ASSERT(s != NULL && model != NULL);
    QR_ASSERT(model->engine != NULL && model->tokenizer != NULL);
    bool own = s->config.served_names.n > 0;
    const char *const *from = own ? (const char *const *)s->config.served_names.item : model->names;
    int32_t n = own ? s->config.served_names.n : model->n_names;
    QR_ASSERT(n > 0);
    const char **names = qr_alloc((size_t)n, sizeof *names);
    for (int32_t i = 0; i < n; i++)
        names[i] = as_text(from[i]);
    struct qr_forms *forms = qr_server_forms(&s->config, model);
    pthread_mutex_lock(&s->lock);
    QR_ASSERT(s->pending.phase == QR_PHASE_LOADING);
    s->pending.model = *model;
    s->pending.forms = forms;
    s->pending.model.names = NULL;
    s->pending.names = names;
    s->pending.n_names = n;
    s->pending.phase = QR_PHASE_READY;
    pthread_mutex_unlock(&s->lock);
    qr_http_wake(s->http);
}

void qr_server_set_failed(struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    pthread_mutex_lock(&s->lock);
    QR_ASSERT(s->pending.phase == QR_PHASE_LOADING);
    s->pending.phase = QR_PHASE_FAILED;
    pthread_mutex_unlock(&s->lock);
    qr_http_wake(s->http);
}

void qr_server_wake(void *server)
{
    struct qr_server *s = server;
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->http != NULL);
    qr_http_wake(s->http);
}

void qr_server_stop(struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    pthread_mutex_lock(&s->lock);
    s->pending.stop = true;
    pthread_mutex_unlock(&s->lock);
    QR_ASSERT(s->http != NULL);
    qr_http_wake(s->http);
}

/* ---- life ---- */

static void on_gone(void *user, struct qr_conn *c)
{
    qr_console_gone(user, c);
    qr_call_gone(user, c);
}

static const struct qr_http_handler handler = {
    .conn = {.head = qr_route_head, .request = qr_route_request, .bad = qr_route_bad, .gone = on_gone, .answered = qr_access_answered},
    .wake = on_wake,
    .tick = on_tick,
    .signal = on_signal,
};

static struct qr_http_config http_config(struct qr_server *s)
{
    const struct qr_server_config *c = &s->config;
    return (struct qr_http_config){
        .budget = &s->budget,
        .trusted = &s->trusted,
        .host = c->host,
        .port = (int32_t)c->port,
        .unix_path = c->unix_socket,
        .connections_max = (int32_t)c->connections_max,
        .per_address_max = (int32_t)c->per_address_max,
        .signals = !c->ignore_signals,
        .conn = {
            .http = {.head = {.head_bytes_max = (size_t)c->header_bytes, .fields_max = (int32_t)c->header_fields},
                     .body_bytes_max = (size_t)c->body_bytes},
            .header_us = c->header_us,
            .idle_us = c->idle_us,
            .body_grace_us = c->header_us,
            .body_rate = c->body_rate,
            .stall_us = c->stall_us,
            .ping_us = c->ping_us,
            .backlog_soft = (size_t)c->stream_soft_bytes,
            .backlog_hard = (size_t)c->stream_hard_bytes,
        },
    };
}

/* Of --served-model-name, which scripts make of variables that may be empty. */
static int check_names(const struct qr_str_list *names, struct qr_err *err)
{
    for (int32_t i = 0; i < names->n; i++) {
        const char *name = names->item[i];
        if (!*name)
            return qr_err_set(err, QR_E_USAGE, "--served-model-name: a name is empty");
        for (const char *p = name; *p; p++)
            if ((unsigned char)*p < 0x20 || *p == 0x7f)
                return qr_err_set(err, QR_E_USAGE, "--served-model-name: a name has a control character at byte %td", p - name);
    }
    return 0;
}

static int open_tls(struct qr_tls **out, const struct qr_server_config *c, struct qr_err *err)
{
    if (c->tls_key && !c->tls_cert)
        return qr_err_set(err, QR_E_USAGE, "--tls-key: without --tls-cert there is no TLS");
    if (c->tls_cert && c->unix_socket)
        return qr_err_set(err, QR_E_USAGE, "--tls-cert: a Unix socket needs no TLS; leave out one of --tls-cert and --unix-socket");
    return c->tls_cert ? qr_tls_open(out, c->tls_cert, c->tls_key, err) : 0;
}

/* What the configuration names in files, but for the model, and what else may be wrong with it. The caller frees what came, whatever is returned. */
static int read_settings(struct qr_keys **keys, struct qr_tls **tls, struct qr_warm **warm, struct qr_networks *trusted, const struct qr_server_config *c,
                         struct qr_err *err)
{
    int rc = check_names(&c->served_names, err);
    rc = rc ? rc : qr_forms_check_name(c->tool_format, err);
    rc = rc ? rc : qr_networks_parse(trusted, &c->trusted_proxies, "--trusted-proxy", err);
    rc = rc ? rc : qr_reload_keys(keys, c, QR_FILE_ANY, err);
    rc = rc || !c->warm_up ? rc : qr_warm_open(warm, c->warm_up, *keys, err);
    return rc ? rc : open_tls(tls, c, err);
}

int qr_server_check(const struct qr_server_config *config, struct qr_err *err)
{
    QR_ASSERT(config != NULL);
    QR_ASSERT(err != NULL);
    struct qr_keys *keys = NULL;
    struct qr_tls *tls = NULL;
    struct qr_warm *warm = NULL;
    struct qr_networks trusted = {0};
    const int rc = read_settings(&keys, &tls, &warm, &trusted, config, err);
    qr_warm_free(warm);
    qr_keys_free(keys);
    qr_tls_close(tls);
    qr_networks_release(&trusted);
    return rc;
}

static int open_access_log(struct qr_server *s, struct qr_err *err)
{
    if (!s->config.access_log)
        return 0;
    qr_buf_reserve(&s->access_line, ACCESS_LINE_BYTES);
    return qr_access_log_open(&s->access, s->config.access_log, err);
}

int qr_server_open(struct qr_server **out, const struct qr_server_config *config, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && err != NULL);
    QR_ASSERT(config->host != NULL);
    struct qr_server *s = qr_alloc(1, sizeof *s);
    s->config = *config;
    s->budget.max_bytes = config->bodies_bytes;
    s->started_s = qr_clock_wall_s();
    s->id_seed = qr_rng_seed_random();
    qr_page_init(&s->page);
    s->responses = qr_responses_new(config->responses_max, config->responses_bytes, config->responses_ttl_us);
    s->console = qr_console_new();
    pthread_mutex_init(&s->lock, NULL);
    qr_list_init(&s->calls);
    qr_notify_init(&s->notify);
    int rc = read_settings(&s->keys, &s->tls, &s->warm, &s->trusted, config, err);
    rc = rc ? rc : open_access_log(s, err);
    if (rc == 0) {
        struct qr_http_config http = http_config(s);
        http.tls = s->tls;
        rc = qr_http_open(&s->http, &http, &handler, s, err);
    }
    if (rc != 0) {
        qr_server_close(s);
        return rc;
    }
    s->trim = qr_http_job_new(s->http);
    qr_reload_open(s);
    *out = s;
    return 0;
}

static void free_names(const char **names, int32_t n)
{
    for (int32_t i = 0; names && i < n; i++)
        qr_free((void *)names[i]);
    qr_free(names);
}

void qr_server_close(struct qr_server *s)
{
    if (!s)
        return;
    qr_http_close(s->http);
    qr_http_job_free(s->trim);
    qr_reload_close(s);
    qr_tls_close(s->tls);
    qr_warm_free(s->warm);
    qr_calls_release(s);
    free_names(s->names, s->n_names);
    free_names(s->pending.names, s->pending.n_names); /* ready came after the loop had ended */
    qr_forms_free(s->forms);
    qr_forms_free(s->pending.forms);
    qr_keys_free(s->keys);
    qr_networks_release(&s->trusted);
    qr_access_log_close(s->access);
    qr_buf_release(&s->access_line);
    qr_responses_free(s->responses);
    qr_console_free(s->console);
    qr_buf_release(&s->scratch);
    pthread_mutex_destroy(&s->lock);
    qr_free(s);
}

int32_t qr_server_port(const struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->http != NULL);
    return qr_http_port(s->http);
}

const char *qr_server_address(const struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->http != NULL);
    return qr_http_address(s->http);
}

const char *qr_server_scheme(const struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->http != NULL);
    return s->config.unix_socket ? "unix" : s->tls ? "https" : "http";
}

const char *qr_server_reachable(const struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->http != NULL);
    return qr_http_reachable(s->http);
}

bool qr_server_is_open(const struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    const struct qr_server_config *c = &s->config; /* keys may be reloaded meanwhile, but where there are files there are keys */
    QR_ASSERT(s->http != NULL);
    return c->api_keys.n + c->admin_keys.n == 0 && !c->api_key_file && !c->admin_key_file && !qr_http_is_loopback(s->http);
}

int qr_server_run(struct qr_server *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(s->http != NULL);
    qr_http_run(s->http);
    qr_conn_close_all(qr_http_env(s->http)); /* after a second signal: running requests are cancelled */
    qr_http_finish_jobs(s->http);            /* jobs read the model, which the caller closes next */
    return s->exit_status;
}
