/* warm.c - prompts that are computed before the server is ready. A line becomes a request as a body of POST /v1/cache/pin does, by a call without a connection
 * and without an account. First all lines are prepared, so that a bad one costs no step; then as many are inside the engine as it takes. No other thread takes
 * events then. The loop thread serves /readyz meanwhile, and a signal ends the process as while the model is being opened. */
#include "server/warm.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/progress.h"
#include "base/rng.h"
#include "server/call.h"
#include "server/forms.h"
#include "server/openai_write.h"

#define FILE_BYTES_MAX ((size_t)16 << 20)
#define LINES_MAX 1000
#define TOLD_MAX 20       /* bad lines that are logged */
#define LOOK_US 100000    /* how often progress is shown */
#define LOG_US 10000000   /* where there is no terminal to draw on, a line of the log each */

struct named {
    char name[QR_KEY_NAME_MAX + 1];
    struct qr_key_digest digest;
};

struct qr_warm {
    const char *path;        /* borrowed */
    struct qr_buf text;      /* owned: the file */
    struct named *key;       /* owned [n_keys] */
    int32_t n_keys, n_lines;
    bool open;               /* no request needs a key: all have key[0] */
};

/* A line that is not empty. */
struct line {
    const char *text;
    size_t len;
    int32_t number;
};

static bool next_line(const struct qr_warm *w, size_t *at, struct line *line)
{
    while (*at < w->text.len) {
        const char *from = w->text.data + *at, *end = memchr(from, '\n', w->text.len - *at);
        size_t n = end ? (size_t)(end - from) : w->text.len - *at;
        *at += n + 1;
        line->number++;
        while (n > 0 && strchr(" \t\r", from[n - 1]))
            n--;
        line->text = from;
        line->len = n;
        if (n > 0)
            return true;
    }
    return false;
}

/* The file is wrong: the start ends as with a wrong setting. What does not fit says so itself. */
static int fail_line(const struct qr_warm *w, int32_t number, struct qr_err *err)
{
    if (err->code == QR_E_INVALID || err->code == QR_E_TOO_LARGE || err->code == QR_E_UNSUPPORTED)
        err->code = QR_E_USAGE;
    return qr_err_prefix(err, "--warm-up %s:%d: ", w->path, number);
}

static int check_line(const struct qr_warm *w, const struct line *line, struct qr_err *err)
{
    static const char *const nothing[] = {NULL};
    struct qr_json *doc = NULL;
    const int rc = w->n_lines >= LINES_MAX ? qr_err_set(err, QR_E_TOO_LARGE, "the file may have %d prompts", LINES_MAX)
                                           : qr_body_parse(&doc, line->text, line->len, nothing, err);
    qr_json_free(doc);
    return rc ? fail_line(w, line->number, err) : 0;
}

static void remember_keys(struct qr_warm *w, const struct qr_keys *keys)
{
    const struct qr_key *key;
    while (qr_keys_at(keys, w->n_keys))
        w->n_keys++;
    w->key = qr_alloc((size_t)w->n_keys, sizeof *w->key);
    w->open = qr_keys_find(keys, NULL, 0) != NULL;
    for (int32_t i = 0; (key = qr_keys_at(keys, i)) != NULL; i++) {
        w->key[i].digest = key->digest;
        snprintf(w->key[i].name, sizeof w->key[i].name, "%s", key->name);
    }
}

int qr_warm_open(struct qr_warm **out, const char *path, const struct qr_keys *keys, struct qr_err *err)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(keys != NULL && err != NULL);
    struct qr_warm *w = qr_alloc(1, sizeof *w);
    struct line line = {0};
    size_t at = 0;
    w->path = path;
    int rc = qr_file_read(&w->text, path, QR_FILE_ANY, FILE_BYTES_MAX, err);
    if (rc != 0)
        qr_err_prefix(err, "--warm-up: ");
    for (; rc == 0 && next_line(w, &at, &line); w->n_lines++)
        rc = check_line(w, &line, err);
    if (rc != 0) {
        qr_warm_free(w);
        return rc;
    }
    remember_keys(w, keys);
    *out = w;
    return 0;
}

void qr_warm_free(struct qr_warm *w)
{
    if (!w)
        return;
    qr_buf_release(&w->text);
    qr_free(w->key);
    qr_free(w);
}

/* ---- lines become requests ---- */

struct run {
    const struct qr_warm *w;
    struct qr_server *server;   /* owned: no server, but what preparing a call reads of one */
    struct qr_request **req;    /* owned [n_lines], and each that is not inside */
    int32_t *number;            /* owned [n_lines]: of the line */
    int32_t n, n_submitted, n_ended;
    uint64_t id;
    struct qr_warmed *out;
    int64_t total, found, before; /* prompt tokens; those that the cache had; what the engine had computed before */
    struct qr_progress progress;
    int64_t logged_us;
};

static const struct qr_call_kind warm_kind = {.prepare = qr_call_prepare_pin};

/* Whose prompt it is: the cache is divided by keys. */
static bool find_digest(const struct qr_warm *w, struct qr_call *call)
{
    const char *name = call->pin.key;
    if (!name[0] && !w->open) {
        qr_api_error_set(&call->error, 400, "invalid_value", "key is required, as this server has keys: the name of the one whose prompts begin so");
        return false;
    }
    for (int32_t i = 0; i < w->n_keys; i++)
        if (!name[0] || strcmp(w->key[i].name, name) == 0) {
            call->digest = w->key[i].digest;
            return true;
        }
    qr_api_error_set(&call->error, 404, "not_found", "no key has the name '%.64s'", name);
    return false;
}

static void release_call(struct qr_call *call)
{
    for (int32_t i = 0; i < call->n_pieces; i++)
        qr_request_free(call->piece[i].req);
    for (int32_t i = 0; i < call->n_choices; i++)
        qr_write_release(&call->choice[i]);
    qr_free(call->piece);
    qr_free(call->choice);
    qr_params_release(&call->params);
    qr_buf_release(&call->body);
}

static int prepare(struct run *r, const struct line *line, struct qr_err *err)
{
    struct qr_call call = {.server = r->server, .kind = &warm_kind, .created_s = qr_clock_wall_s()};
    qr_buf_put(&call.body, line->text, line->len);
    qr_call_prepare_pin(&call);
    if (call.error.status == 0 && find_digest(r->w, &call)) {
        struct qr_request *req = call.piece[0].req;
        call.piece[0].req = NULL;
        req->id = r->id + (uint64_t)r->n;
        req->salt = qr_keys_salt(&call.digest, call.params.cache_salt, call.params.cache_salt_len);
        req->salted = call.params.cache_salt != NULL;
        req->adapter = call.adapter;
        r->total += req->n_prompt;
        r->number[r->n] = line->number;
        r->req[r->n++] = req;
    }
    const bool good = call.error.status == 0;
    if (!good)
        qr_err_set(err, QR_E_INVALID, "%s", call.error.message);
    release_call(&call);
    return good ? 0 : fail_line(r->w, line->number, err);
}

static int prepare_all(struct run *r, struct qr_err *err)
{
    struct line line = {0};
    struct qr_err other;
    int32_t n_bad = 0;
    for (size_t at = 0; next_line(r->w, &at, &line);) {
        if (prepare(r, &line, n_bad == 0 ? err : &other) != 0 && n_bad++ > 0 && n_bad <= TOLD_MAX)
            qr_log_text(QR_LOG_ERROR, "server", "a prompt cannot be computed", "reason", other.msg);
    }
    return n_bad > 0 ? err->code : 0;
}

/* ---- requests are computed ---- */

static int64_t computed(const struct run *r)
{
    struct qr_stats stats;
    qr_engine_stats(r->server->model.engine, &stats);
    return (int64_t)stats.step_tokens.sum;
}

static void show(struct run *r)
{
    const int64_t now = qr_clock_us(), total = r->total - r->found, done = computed(r) - r->before;
    const uint64_t shown = (uint64_t)(done < total ? done : total);
    qr_progress_show(&r->progress, shown, (uint64_t)total);
    if (r->progress.terminal || now - r->logged_us < LOG_US)
        return;
    r->logged_us = now;
    qr_log(QR_LOG_INFO, "server", "warming up prompts=%d of=%d seconds_left=%.0f", r->n_ended, r->n,
           qr_progress_left_s(&r->progress, shown, (uint64_t)total));
}

/* As many as the engine takes. */
static int submit(struct run *r, struct qr_err *err)
{
    int rc = 0;
    for (; rc == 0 && r->n_submitted < r->n; r->n_submitted += rc == 0) {
        struct qr_request *req = r->req[r->n_submitted];
        req->user = &r->number[r->n_submitted];
        req->arrived_us = qr_clock_us();
        rc = qr_engine_submit(r->server->model.engine, req, err);
    }
    if (rc == QR_E_BUSY && r->n_ended < r->n_submitted)
        return 0;
    return rc ? fail_line(r->w, r->number[r->n_submitted], err) : 0;
}

static int take(struct run *r, const struct qr_event *ev, struct qr_err *err)
{
    const struct qr_request *req = ev->req;
    const int32_t number = *(const int32_t *)req->user;
    int rc = 0;
    if (ev->finish != QR_FINISH_LENGTH) {
        *err = req->err;
        if (err->code == QR_OK)
            qr_err_set(err, QR_E_CLOSED, "the engine has ended it");
        rc = fail_line(r->w, number, err);
    }
    r->out->n_prompts++;
    r->out->n_pinned += req->pin.wanted;
    r->out->n_tokens += req->n_prompt - req->n_cached;
    r->found += req->n_cached;
    return rc;
}

static int take_all(struct run *r, struct qr_err *err)
{
    struct qr_engine *e = r->server->model.engine;
    struct qr_node events, *node;
    int rc = 0;
    qr_list_init(&events);
    qr_engine_wait(e, &events, LOOK_US);
    while ((node = qr_list_pop_front(&events)) != NULL) {
        struct qr_event *ev = QR_CONTAINER(node, struct qr_event, link);
        struct qr_err more;
        const int one = take(r, ev, rc ? &more : err);
        rc = rc ? rc : one;
        qr_request_free(ev->req);
        r->n_ended++;
        qr_engine_recycle(e, ev);
    }
    return rc;
}

/* After an error what is inside goes on to its end, unseen, when the engine is closed. */
static int compute(struct run *r, struct qr_err *err)
{
    int rc = 0;
    r->before = computed(r);
    r->logged_us = qr_clock_us();
    qr_progress_open(&r->progress, "warming up");
    while (rc == 0 && r->n_ended < r->n) {
        rc = submit(r, err);
        rc = rc ? rc : take_all(r, err);
        show(r);
    }
    qr_progress_end(&r->progress);
    return rc;
}

int qr_warm_run(const struct qr_warm *w, const struct qr_server_config *config, const struct qr_server_model *model, struct qr_warmed *out, struct qr_err *err)
{
    QR_ASSERT(w != NULL && config != NULL && model != NULL);
    QR_ASSERT(out != NULL && err != NULL);
    const bool own = config->served_names.n > 0;
    struct qr_server server = {.config = *config, .model = *model, .n_names = own ? config->served_names.n : model->n_names,
                               .names = (const char **)(uintptr_t)(own ? (const char *const *)config->served_names.item : model->names)};
    struct run r = {.w = w, .server = &server, .out = out, .id = (qr_rng_seed_random() & ~0xffffffffull) | 0x80000000u};
    const int64_t began_us = qr_clock_us();
    *out = (struct qr_warmed){0};
    server.forms = qr_server_forms(config, model);
    r.req = qr_alloc((size_t)w->n_lines, sizeof(struct qr_request *));
    r.number = qr_alloc((size_t)w->n_lines, sizeof *r.number);
    int rc = prepare_all(&r, err);
    rc = rc ? rc : compute(&r, err);
    for (int32_t i = r.n_submitted; i < r.n; i++)
        qr_request_free(r.req[i]);
    out->us = qr_clock_us() - began_us;
    qr_forms_free(server.forms);
    qr_free(r.req);
    qr_free(r.number);
    return rc;
}
