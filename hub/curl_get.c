/* curl_get.c - GETs by libcurl's multi interface (get.h). Every GET is a small machine: waiting (for its turn, for a lock, for a pause to end), on its way,
 * done. Redirects are followed here, one by one, so that each hop decides anew whether the token goes along. Guarantee: a sink gets the bytes of its answer in
 * order and none twice, whatever is cut, resumed or redirected; it is closed once for each time that it was opened. One thread, all in qr_hub_get_all. */
#include "hub/get.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "hub/curl_library.h"

#define AT_ONCE 8
#define HOPS_MAX 8
#define TRIES_MAX 7 /* without a byte of progress */
#define PAUSE_US 250000
#define PAUSE_TOLD_US 5000000
#define RETRY_AFTER_MAX_S 300
#define BUSY_US 200000
#define CONNECT_S 15L
#define STALLED_S 60L
#define ORIGIN_MAX 300
#define IGNORED_MAX 65536 /* bytes of a body that is not wanted: of an error, of a redirect */

struct qr_hub_getter {
    struct qr_curl curl;
    CURLM *multi;                /* owned */
    char *endpoint, *token;      /* owned; token may be NULL */
    void (*tick)(void *user);
    void *user;
    bool answered;
    int signal;
};

enum state { WAITING, RUNNING, DONE };

struct flight {
    struct qr_hub_getter *r;
    struct qr_hub_get *g;
    CURL *easy;                  /* owned: while RUNNING */
    struct curl_slist *head;     /* owned: while RUNNING */
    char *moved_to;              /* owned: the next hop's URL; NULL: the GET's own */
    enum state state;
    int64_t due_us, got, got_before, ignored, range_from;
    int32_t hops, tries, retry_after_s;
    bool opened, decided, wanted;
    char etag[160], etag_before[160]; /* of this answer, and of the one that sent the bytes that are there */
    char etag_origin[ORIGIN_MAX];     /* with etag_before */
    int rc;                      /* of the sink, in a callback */
    struct qr_err err;           /* with it */
};

/* ---- the getter ---- */

/* "https://hub:443" of a URL, or false. */
static bool origin_of(char out[ORIGIN_MAX], const struct qr_curl *c, const char *text)
{
    char *scheme = NULL, *host = NULL, *port = NULL;
    CURLU *u = c->url();
    const bool ok = u && c->url_set(u, CURLUPART_URL, text, 0) == CURLUE_OK && c->url_get(u, CURLUPART_SCHEME, &scheme, 0) == CURLUE_OK &&
                    c->url_get(u, CURLUPART_HOST, &host, 0) == CURLUE_OK && c->url_get(u, CURLUPART_PORT, &port, CURLU_DEFAULT_PORT) == CURLUE_OK &&
                    snprintf(out, ORIGIN_MAX, "%s://%s:%s", scheme, host, port) < ORIGIN_MAX;
    c->free(scheme);
    c->free(host);
    c->free(port);
    c->url_cleanup(u);
    return ok && (strncmp(out, "https:", 6) == 0 || strncmp(out, "http:", 5) == 0);
}

bool qr_hub_getter_is_own(const struct qr_hub_getter *r, const char *url)
{
    char own[ORIGIN_MAX], other[ORIGIN_MAX];
    QR_ASSERT(r != NULL);
    QR_ASSERT(url != NULL);
    return origin_of(own, &r->curl, r->endpoint) && origin_of(other, &r->curl, url) && strcasecmp(own, other) == 0;
}

int qr_hub_getter_open(struct qr_hub_getter **out, const struct qr_hub_getter_options *o, struct qr_err *err)
{
    char origin[ORIGIN_MAX];
    struct qr_curl curl;
    QR_ASSERT(out != NULL && o != NULL);
    QR_ASSERT(o->endpoint != NULL && err != NULL);
    int rc = qr_curl_open(&curl, err);
    if (rc)
        return rc;
    if (!origin_of(origin, &curl, o->endpoint)) {
        qr_curl_close(&curl);
        return qr_err_set(err, QR_E_USAGE, "HF_ENDPOINT is '%.200s', expected a URL as https://huggingface.co", o->endpoint);
    }
    struct qr_hub_getter *r = qr_alloc(1, sizeof *r);
    *r = (struct qr_hub_getter){.curl = curl, .multi = curl.multi_init(), .endpoint = qr_strdup(o->endpoint), .token = o->token ? qr_strdup(o->token) : NULL,
                                .tick = o->tick, .user = o->user};
    QR_ASSERT(r->multi != NULL);
    curl.multi_setopt(r->multi, CURLMOPT_PIPELINING, (long)CURLPIPE_NOTHING); /* large files side by side: each on a connection of its own */
    *out = r;
    return 0;
}

void qr_hub_getter_close(struct qr_hub_getter *r)
{
    if (!r)
        return;
    r->curl.multi_cleanup(r->multi);
    qr_curl_close(&r->curl);
    if (r->token)
        explicit_bzero(r->token, strlen(r->token));
    qr_free(r->token);
    qr_free(r->endpoint);
    qr_free(r);
}

void qr_hub_getter_tick(struct qr_hub_getter *r, void (*tick)(void *user), void *user)
{
    QR_ASSERT(r != NULL);
    r->tick = tick;
    r->user = user;
}

bool qr_hub_getter_unreachable(const struct qr_hub_getter *r)
{
    QR_ASSERT(r != NULL);
    return !r->answered;
}

int qr_hub_getter_signal(const struct qr_hub_getter *r)
{
    QR_ASSERT(r != NULL);
    return r->signal;
}

/* ---- an answer arrives ---- */

/* The value of a header line `name: value`, in out (cut where it is too long). */
static void take_header(char *out, size_t n_out, const char *line, size_t n, const char *name)
{
    const size_t n_name = strlen(name);
    if (n <= n_name || strncasecmp(line, name, n_name) != 0 || line[n_name] != ':')
        return;
    const char *from = line + n_name + 1, *end = line + n;
    while (from < end && (*from == ' ' || *from == '\t'))
        from++;
    while (end > from && (unsigned char)end[-1] <= ' ')
        end--;
    const size_t n_value = (size_t)(end - from) < n_out ? (size_t)(end - from) : n_out - 1;
    memcpy(out, from, n_value);
    out[n_value] = 0;
}

static size_t on_header(char *line, size_t size, size_t n, void *user)
{
    struct flight *f = user;
    char retry[16] = "", range[64] = "";
    n *= size;
    f->r->answered = true;
    if (n > 5 && strncasecmp(line, "HTTP/", 5) == 0) { /* of this answer, not of an interim one */
        f->g->code[0] = f->g->message[0] = f->etag[0] = 0;
        if (f->g->link)
            f->g->link[0] = 0;
        f->retry_after_s = -1;
        f->range_from = -1;
    }
    if (f->g->link)
        take_header(f->g->link, QR_HUB_URL_MAX, line, n, "Link");
    take_header(f->g->code, sizeof f->g->code, line, n, "X-Error-Code");
    take_header(f->g->message, sizeof f->g->message, line, n, "X-Error-Message");
    take_header(f->etag, sizeof f->etag, line, n, "ETag");
    take_header(retry, sizeof retry, line, n, "Retry-After");
    take_header(range, sizeof range, line, n, "Content-Range");
    if (retry[0] >= '0' && retry[0] <= '9')
        f->retry_after_s = atoi(retry) < RETRY_AFTER_MAX_S ? atoi(retry) : RETRY_AFTER_MAX_S;
    if (strncmp(range, "bytes ", 6) == 0)
        f->range_from = strtoll(range + 6, NULL, 10);
    return n;
}

static int32_t status_of(const struct flight *f)
{
    long status = 0;
    f->r->curl.easy_getinfo(f->easy, CURLINFO_RESPONSE_CODE, &status);
    return (int32_t)status;
}

static const char *url_of(const struct flight *f)
{
    return f->moved_to ? f->moved_to : f->g->url;
}

static int restart(struct flight *f, struct qr_err *err)
{
    f->got = f->got_before = 0;
    return f->g->sink->restart(f->g->user, err);
}

/* Whether this answer's body belongs behind the bytes that are there. */
static int decide(struct flight *f)
{
    if (f->decided)
        return 0;
    f->decided = true;
    f->g->status = status_of(f);
    f->g->own = qr_hub_getter_is_own(f->r, url_of(f));
    f->wanted = f->g->status == 200 || (f->g->status == 206 && f->range_from == f->got && f->got > 0);
    if (f->wanted) {
        memcpy(f->etag_before, f->etag[0] == '"' ? f->etag : "", f->etag[0] == '"' ? sizeof f->etag : 1); /* a weak one matches nothing */
        origin_of(f->etag_origin, &f->r->curl, url_of(f));
    }
    return f->g->status == 200 && f->got > 0 ? restart(f, &f->err) : 0;
}

static size_t on_body(char *bytes, size_t size, size_t n, void *user)
{
    struct flight *f = user;
    n *= size;
    f->rc = f->rc ? f->rc : decide(f);
    if (f->rc)
        return 0;
    if (!f->wanted) {
        f->ignored += (int64_t)n;
        return f->ignored > IGNORED_MAX ? 0 : n;
    }
    const int64_t most = f->g->n_bytes >= 0 ? f->g->n_bytes : f->g->bytes_max;
    if ((int64_t)n > most - f->got)
        f->rc = qr_err_set(&f->err, QR_E_DAMAGED, "%s: the hub sends more than the %lld bytes that %s", f->g->what, (long long)most,
                           f->g->n_bytes >= 0 ? "it lists" : "an answer may have");
    f->rc = f->rc ? f->rc : f->g->sink->put(f->g->user, bytes, n, &f->err);
    if (f->rc)
        return 0;
    f->got += (int64_t)n;
    return n;
}

/* ---- one GET ---- */

static int close_sink(struct flight *f, bool whole, struct qr_err *err)
{
    QR_ASSERT(f->opened);
    f->opened = false;
    return f->g->sink->close(f->g->user, whole, err);
}

static void wait_for(struct flight *f, int64_t pause_us)
{
    f->state = WAITING;
    f->due_us = qr_clock_us() + pause_us;
}

/* All has been put. */
static int complete(struct flight *f, struct qr_err *err)
{
    const int rc = close_sink(f, true, err);
    if (rc == QR_E_BUSY) { /* begun by another program, and not what it should be */
        f->got = f->got_before = 0;
        f->hops = 0;
        wait_for(f, 0);
        return 0;
    }
    f->state = DONE;
    return rc;
}

static void set_options(struct flight *f)
{
    const struct qr_curl *c = &f->r->curl;
    CURL *h = f->easy;
    char range[32];
    c->easy_setopt(h, CURLOPT_URL, url_of(f));
    c->easy_setopt(h, CURLOPT_PRIVATE, f);
    c->easy_setopt(h, CURLOPT_WRITEFUNCTION, on_body);
    c->easy_setopt(h, CURLOPT_WRITEDATA, f);
    c->easy_setopt(h, CURLOPT_HEADERFUNCTION, on_header);
    c->easy_setopt(h, CURLOPT_HEADERDATA, f);
    c->easy_setopt(h, CURLOPT_HTTPHEADER, f->head);
    c->easy_setopt(h, CURLOPT_USERAGENT, "quire/" QUIRE_VERSION);
    c->easy_setopt(h, CURLOPT_NOSIGNAL, 1L);
    c->easy_setopt(h, CURLOPT_FOLLOWLOCATION, 0L);
    c->easy_setopt(h, CURLOPT_CONNECTTIMEOUT, CONNECT_S);
    c->easy_setopt(h, CURLOPT_LOW_SPEED_LIMIT, 1L);
    c->easy_setopt(h, CURLOPT_LOW_SPEED_TIME, STALLED_S);
    c->easy_setopt(h, CURLOPT_BUFFERSIZE, 262144L);
#if LIBCURL_VERSION_NUM >= 0x075500
    c->easy_setopt(h, CURLOPT_PROTOCOLS_STR, "http,https");
#endif
#if LIBCURL_VERSION_NUM >= 0x075700
    c->easy_setopt(h, CURLOPT_QUICK_EXIT, 1L); /* Ctrl-C does not wait for a resolver */
#endif
    if (f->got > 0) {
        snprintf(range, sizeof range, "%lld-", (long long)f->got);
        c->easy_setopt(h, CURLOPT_RANGE, range);
    }
}

static void set_headers(struct flight *f)
{
    const struct qr_curl *c = &f->r->curl;
    char line[2200], origin[ORIGIN_MAX];
    f->head = NULL;
    if (f->r->token && qr_hub_getter_is_own(f->r, url_of(f))) {
        snprintf(line, sizeof line, "Authorization: Bearer %s", f->r->token);
        f->head = c->slist_append(f->head, line);
        explicit_bzero(line, sizeof line);
    }
    if (f->got > 0 && f->etag_before[0] && origin_of(origin, c, url_of(f)) && strcasecmp(origin, f->etag_origin) == 0) {
        snprintf(line, sizeof line, "If-Match: %s", f->etag_before);
        f->head = c->slist_append(f->head, line);
    }
}

static int start(struct flight *f, struct qr_err *err)
{
    int rc = f->opened ? 0 : f->g->sink->open(f->g->user, &f->got, err);
    if (rc == QR_E_BUSY) {
        wait_for(f, f->got < 0 ? BUSY_US : 0);
        return 0;
    }
    if (rc)
        return rc;
    f->opened = true;
    if (f->g->n_bytes >= 0 && f->got == f->g->n_bytes)
        return complete(f, err);
    f->decided = f->wanted = false;
    f->ignored = 0;
    f->retry_after_s = -1;
    f->got_before = f->got;
    f->g->status = 0;
    f->easy = f->r->curl.easy_init();
    QR_ASSERT(f->easy != NULL);
    set_headers(f);
    set_options(f);
    f->r->curl.multi_add_handle(f->r->multi, f->easy);
    f->state = RUNNING;
    return 0;
}

/* The next hop. */
static int follow(struct flight *f, struct qr_err *err)
{
    char *to = NULL, from[ORIGIN_MAX], next[ORIGIN_MAX];
    const struct qr_curl *c = &f->r->curl;
    c->easy_getinfo(f->easy, CURLINFO_REDIRECT_URL, &to);
    if (!to || strlen(to) >= QR_HUB_URL_MAX || !origin_of(from, c, url_of(f)) || !origin_of(next, c, to) || ++f->hops > HOPS_MAX)
        return qr_err_set(err, QR_E_IO, "%s: the hub redirects (%d) %s", f->g->what, f->g->status,
                          f->hops > HOPS_MAX ? "again and again" : "to what is no http(s) URL");
    if (strncmp(from, "https:", 6) == 0 && strncmp(next, "https:", 6) != 0)
        return qr_err_set(err, QR_E_IO, "%s: the hub redirects from https to http, which is not followed", f->g->what);
    to = qr_strdup(to);
    qr_free(f->moved_to);
    f->moved_to = to;
    wait_for(f, 0);
    return 0;
}

static bool is_redirect(int32_t status)
{
    return status == 301 || status == 302 || status == 303 || status == 307 || status == 308;
}

/* Whether the next try may go better. */
static bool is_transient(const struct flight *f, CURLcode result)
{
    static const int32_t statuses[] = {408, 429, 500, 502, 503, 504};
    for (int i = 0; i < QR_COUNT(statuses); i++)
        if (f->g->status == statuses[i])
            return true;
    if (f->g->status >= 400)
        return false;
    return result != CURLE_PEER_FAILED_VERIFICATION && result != CURLE_SSL_CACERT_BADFILE && result != CURLE_UNSUPPORTED_PROTOCOL &&
           result != CURLE_URL_MALFORMAT && result != CURLE_OUT_OF_MEMORY;
}

static int give_up(const struct flight *f, CURLcode result, struct qr_err *err)
{
    static const struct {
        int32_t status;
        enum qr_code code;
    } codes[] = {{401, QR_E_DENIED}, {403, QR_E_DENIED}, {404, QR_E_NOT_FOUND}, {410, QR_E_NOT_FOUND}, {429, QR_E_BUSY}};
    const char *kept = f->got > 0 ? "; what has been fetched is kept, and the same command goes on from there" : "";
    if (!f->r->answered)
        return qr_err_set(err, QR_E_IO, "cannot reach %.100s: %s", f->r->endpoint, f->r->curl.easy_strerror(result));
    if (f->g->status >= 300) {
        enum qr_code code = QR_E_IO;
        for (int i = 0; i < QR_COUNT(codes); i++)
            code = codes[i].status == f->g->status ? codes[i].code : code;
        return qr_err_set(err, code, "%s: the hub answers %d%s%.150s%s%s", f->g->what, f->g->status, f->g->message[0] ? " (" : "", f->g->message,
                          f->g->message[0] ? ")" : "", kept);
    }
    return qr_err_set(err, QR_E_IO, "%s: %s%s%s", f->g->what, result ? f->r->curl.easy_strerror(result) : "the answer ends too early",
                      f->tries > 0 ? ", again and again" : "", kept);
}

static int again_or_give_up(struct flight *f, CURLcode result, struct qr_err *err)
{
    f->tries = f->got > f->got_before ? 0 : f->tries;
    if (!is_transient(f, result) || !f->r->answered || f->tries == TRIES_MAX)
        return give_up(f, result, err);
    const int64_t pause_us = f->retry_after_s >= 0 ? (int64_t)f->retry_after_s * 1000000 : (int64_t)PAUSE_US << f->tries;
    f->tries++;
    f->hops = 0;
    if (pause_us > PAUSE_TOLD_US)
        qr_log(QR_LOG_WARN, "hub", "waiting, as the hub has it: seconds=%d status=%d file=%s", (int)(pause_us / 1000000), f->g->status, f->g->what);
    wait_for(f, pause_us);
    return 0;
}

/* libcurl is done with this hop: what comes next. */
static int go_on(struct flight *f, CURLcode result, struct qr_err *err)
{
    if (!f->rc && f->r->answered)
        f->rc = decide(f);
    if (f->rc) {
        *err = f->err;
        return f->rc;
    }
    const int32_t status = f->g->status;
    if (is_redirect(status))
        return follow(f, err);
    qr_free(f->moved_to); /* another try begins at the hub, as URLs of other hosts are made for a while only */
    f->moved_to = NULL;
    if (f->wanted && result == CURLE_OK && (f->g->n_bytes < 0 || f->got == f->g->n_bytes))
        return complete(f, err);
    if (f->got > 0 && (status == 416 || status == 412 || status == 206) && !f->wanted) { /* not of the file whose beginning is here */
        f->etag_before[0] = 0;
        f->tries++;
        const int rc = f->tries > TRIES_MAX ? give_up(f, result, err) : restart(f, err);
        wait_for(f, 0);
        return rc;
    }
    if (f->g->n_bytes < 0 && f->got > 0) { /* of a length that is not known: from its begin */
        const int rc = restart(f, err);
        return rc ? rc : again_or_give_up(f, result, err);
    }
    return again_or_give_up(f, result, err);
}

static void release(struct flight *f)
{
    f->r->curl.slist_free_all(f->head);
    f->r->curl.easy_cleanup(f->easy);
    f->head = NULL;
    f->easy = NULL;
}

static int finish(struct flight *f, CURLcode result, struct qr_err *err)
{
    const int rc = go_on(f, result, err);
    f->r->curl.multi_remove_handle(f->r->multi, f->easy);
    release(f);
    return rc;
}

/* ---- all GETs ---- */

/* Signals that ask for an end, as far as they are not ignored. */
static sigset_t watched(void)
{
    static const int numbers[] = {SIGINT, SIGTERM};
    struct sigaction now;
    sigset_t set;
    sigemptyset(&set);
    for (int i = 0; i < QR_COUNT(numbers); i++)
        if (sigaction(numbers[i], NULL, &now) == 0 && now.sa_handler != SIG_IGN)
            sigaddset(&set, numbers[i]);
    return set;
}

static int take_signals(struct qr_hub_getter *r, const sigset_t *set, struct qr_err *err)
{
    const struct timespec none = {0};
    const int number = sigtimedwait(set, NULL, &none);
    if (number <= 0)
        return 0;
    r->signal = number;
    return qr_err_set(err, QR_E_CLOSED, "interrupted");
}

/* Starts what may start. */
static int start_some(struct flight *f, int32_t n, struct qr_err *err)
{
    int32_t running = 0;
    int rc = 0;
    for (int32_t i = 0; i < n; i++)
        running += f[i].state == RUNNING;
    for (int32_t i = 0; i < n && running < AT_ONCE && rc == 0; i++) {
        if (f[i].state != WAITING || f[i].due_us > qr_clock_us())
            continue;
        rc = start(&f[i], err);
        running += f[i].state == RUNNING;
    }
    return rc;
}

static int finish_some(struct qr_hub_getter *r, struct qr_err *err)
{
    int left, rc = 0;
    for (const CURLMsg *m; rc == 0 && (m = r->curl.multi_info_read(r->multi, &left));) {
        struct flight *f = NULL;
        const CURLcode result = m->data.result;
        r->curl.easy_getinfo(m->easy_handle, CURLINFO_PRIVATE, &f);
        rc = finish(f, result, err);
    }
    return rc;
}

static bool all_done(const struct flight *f, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (f[i].state != DONE)
            return false;
    return true;
}

/* Whatever is still on its way is left where it is. */
static void end_all(struct flight *f, int32_t n)
{
    struct qr_err ignored;
    for (int32_t i = 0; i < n; i++) {
        if (f[i].easy)
            f[i].r->curl.multi_remove_handle(f[i].r->multi, f[i].easy);
        release(&f[i]);
        qr_free(f[i].moved_to);
        if (f[i].opened)
            close_sink(&f[i], false, &ignored);
    }
    qr_free(f);
}

int qr_hub_get_all(struct qr_hub_getter *r, struct qr_hub_get *const *get, int32_t n, struct qr_err *err)
{
    QR_ASSERT(r != NULL && (get != NULL || n == 0));
    QR_ASSERT(n >= 0 && err != NULL);
    struct flight *f = qr_alloc((size_t)n, sizeof *f);
    const sigset_t set = watched();
    sigset_t before;
    int rc = 0, running;
    for (int32_t i = 0; i < n; i++)
        f[i] = (struct flight){.r = r, .g = get[i], .range_from = -1};
    pthread_sigmask(SIG_BLOCK, &set, &before);
    while (rc == 0 && !all_done(f, n)) {
        rc = start_some(f, n, err);
        r->curl.multi_perform(r->multi, &running);
        rc = rc ? rc : finish_some(r, err);
        rc = rc ? rc : take_signals(r, &set, err);
        if (r->tick)
            r->tick(r->user);
        if (rc == 0 && !all_done(f, n))
            r->curl.multi_poll(r->multi, NULL, 0, running ? 100 : 20, NULL);
    }
    end_all(f, n);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return rc;
}
