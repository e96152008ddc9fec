/* events.c - from the cache's notes to subscribers (events.h). The engine thread writes slots of a ring, the events thread reads them; each owns one index.
 * A step's notes become visible together, by the flush. The thread sleeps in one poll over a wake descriptor and the replay socket; while notes come it looks
 * again every NAP_MS, so that a busy engine makes no system call. Sockets never wait: to a subscriber that is behind by SENT_MAX batches, PUB drops what comes.
 * Batches are kept for replay up to KEPT_MAX and KEPT_BYTES. */
#include "exchange/events.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/thread.h"
#include "exchange/events_pack.h"
#include "exchange/zmq_door.h"

#define NAP_MS 5
#define SENT_MAX 4096
#define KEPT_MAX 4096
#define KEPT_BYTES (32 << 20)
#define LINGER_MS 200     /* what was published goes out when all is closed */
#define REQUEST_PARTS 3   /* of a replay: who asks, nothing, the first sequence number */
#define REQUEST_BYTES 256
#define ENDPOINT_MAX 256

struct kept {
    char *payload; /* owned */
    size_t n;
};

struct qr_events {
    /* set when it is opened */
    struct qr_zmq zmq;
    void *context, *pub, *router; /* owned; router NULL: no replay */
    char *topic;                  /* owned */
    char endpoint[2][ENDPOINT_MAX];
    struct qr_event_ring ring;
    pthread_t thread;
    int wake;                     /* eventfd, owned */

    /* shared */
    _Atomic uint64_t flushed, taken; /* slots ever: written and visible; read */
    _Atomic bool asleep, closing;
    _Atomic int64_t n_batches, n_events, n_lost;

    /* the engine thread's */
    uint64_t written, taken_seen;
    bool lost;                    /* notes, since the last that had room */

    /* the events thread's */
    uint64_t sequence;
    struct qr_buf payload;
    struct kept *kept;            /* owned [KEPT_MAX], by sequence number; NULL: no replay */
    uint64_t kept_from;
    size_t kept_bytes;
};

/* ---- engine thread ---- */

/* The next slot to write, with its kind and the note's name; NULL: the ring is full. */
static struct qr_event_slot *next_slot(struct qr_events *v, enum qr_kv_note_kind kind, const struct qr_kv_note *note, bool host)
{
    if (v->written - v->taken_seen == v->ring.n)
        v->taken_seen = atomic_load_explicit(&v->taken, memory_order_acquire);
    if (v->written - v->taken_seen == v->ring.n)
        return NULL;
    struct qr_event_slot *s = qr_event_at(&v->ring, v->written++);
    s->kind = kind;
    s->n_ids = 0;
    s->host = host;
    s->first = note->first;
    s->ends = false;
    s->name = note->name;
    s->parent = note->parent;
    s->adapter[0] = 0;
    return s;
}

static bool note_stored(struct qr_events *v, const struct qr_kv_note *note, const char *adapter)
{
    struct qr_event_slot *s = next_slot(v, QR_KV_STORED, note, note->host);
    if (!s)
        return false;
    if (note->ids) {
        s->n_ids = v->ring.block_tokens;
        memcpy(s->ids, note->ids, (size_t)s->n_ids * sizeof *s->ids);
    }
    if (adapter) {
        const size_t n = strnlen(adapter, QR_EVENT_ADAPTER_MAX - 1);
        memcpy(s->adapter, adapter, n);
        s->adapter[n] = 0;
    }
    return true;
}

/* A block that changed the tier is stored there before it is removed here, so that it is never nowhere. */
static bool write_note(struct qr_events *v, const struct qr_kv_note *note, const char *adapter)
{
    if (note->kind == QR_KV_STORED)
        return note_stored(v, note, adapter);
    if (note->kind == QR_KV_MOVED)
        return note_stored(v, note, adapter) && next_slot(v, QR_KV_REMOVED, note, !note->host);
    return next_slot(v, note->kind, note, note->host) != NULL;
}

void qr_events_note(struct qr_events *v, const struct qr_kv_note *note, const char *adapter)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(note != NULL && note->kind <= QR_KV_CLEARED);
    static const struct qr_kv_note clear = {.kind = QR_KV_CLEARED};
    if (v->lost)
        v->lost = !write_note(v, &clear, NULL); /* what comes behind a gap would mislead until subscribers know of it */
    if (!v->lost)
        v->lost = !write_note(v, note, adapter);
    if (v->lost)
        atomic_fetch_add_explicit(&v->n_lost, 1, memory_order_relaxed);
}

static void wake(struct qr_events *v)
{
    const uint64_t one = 1;
    const ssize_t written = write(v->wake, &one, sizeof one);
    QR_ASSERT(written == sizeof one || errno == EAGAIN);
}

void qr_events_flush(struct qr_events *v)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(v->written - v->taken_seen <= v->ring.n);
    if (v->written == atomic_load_explicit(&v->flushed, memory_order_relaxed))
        return;
    qr_event_at(&v->ring, v->written - 1)->ends = true;
    atomic_store(&v->flushed, v->written);
    if (atomic_load(&v->asleep) && atomic_exchange(&v->asleep, false))
        wake(v);
}

void qr_events_stats(const struct qr_events *v, struct qr_events_stats *out)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(out != NULL);
    *out = (struct qr_events_stats){.n_batches = atomic_load_explicit(&v->n_batches, memory_order_relaxed),
                                    .n_events = atomic_load_explicit(&v->n_events, memory_order_relaxed),
                                    .n_lost = atomic_load_explicit(&v->n_lost, memory_order_relaxed)};
}

/* ---- events thread ---- */

static void put_sequence(uint8_t to[8], uint64_t n)
{
    for (int i = 0; i < 8; i++)
        to[i] = (uint8_t)(n >> 8 * (7 - i));
}

static void drop_oldest(struct qr_events *v)
{
    struct kept *k = &v->kept[v->kept_from++ % KEPT_MAX];
    v->kept_bytes -= k->n;
    qr_free(k->payload);
    *k = (struct kept){0};
}

/* The batch that has number v->sequence. */
static void keep(struct qr_events *v)
{
    if (!v->kept)
        return;
    while (v->kept_from < v->sequence && (v->sequence - v->kept_from == KEPT_MAX || v->kept_bytes + v->payload.len > KEPT_BYTES))
        drop_oldest(v);
    struct kept *k = &v->kept[v->sequence % KEPT_MAX];
    *k = (struct kept){.payload = qr_alloc(v->payload.len, 1), .n = v->payload.len};
    memcpy(k->payload, v->payload.data, v->payload.len);
    v->kept_bytes += k->n;
}

/* Publishes what is visible. False: nothing was. */
static bool publish(struct qr_events *v)
{
    uint64_t from = atomic_load_explicit(&v->taken, memory_order_relaxed);
    const uint64_t to = atomic_load(&v->flushed);
    const bool any = from < to;
    while (from < to) {
        struct timespec now;
        uint8_t number[8];
        int32_t n_events = 0;
        clock_gettime(CLOCK_REALTIME, &now);
        qr_buf_clear(&v->payload);
        from += (uint64_t)qr_events_pack(&v->payload, &n_events, &v->ring, from, to, (double)now.tv_sec + (double)now.tv_nsec * 1e-9);
        atomic_store_explicit(&v->taken, from, memory_order_release);
        put_sequence(number, v->sequence);
        const struct qr_zmq_part part[] = {{v->topic, strlen(v->topic)}, {number, sizeof number}, {v->payload.data, v->payload.len}};
        qr_zmq_send(&v->zmq, v->pub, part, QR_COUNT(part));
        keep(v);
        v->sequence++;
        atomic_fetch_add_explicit(&v->n_batches, 1, memory_order_relaxed);
        atomic_fetch_add_explicit(&v->n_events, n_events, memory_order_relaxed);
    }
    return any;
}

/* Answers one request for batches from a number on: those that are kept, then one with number -1. False: there is no request. */
static bool answer_replay(struct qr_events *v)
{
    char in[REQUEST_PARTS * REQUEST_BYTES];
    int32_t len[REQUEST_PARTS];
    uint8_t number[8];
    const int32_t n = qr_zmq_take(&v->zmq, v->router, in, len, REQUEST_PARTS, REQUEST_BYTES);
    if (n != REQUEST_PARTS || len[0] > REQUEST_BYTES || len[1] != 0 || len[2] != sizeof number)
        return n > 0;
    uint64_t from = 0;
    for (int i = 0; i < 8; i++)
        from = from << 8 | (uint8_t)in[2 * REQUEST_BYTES + i];
    for (from = from < v->kept_from ? v->kept_from : from; from < v->sequence; from++) {
        const struct kept *k = &v->kept[from % KEPT_MAX];
        put_sequence(number, from);
        const struct qr_zmq_part part[] = {{in, (size_t)len[0]}, {"", 0}, {v->topic, strlen(v->topic)}, {number, sizeof number}, {k->payload, k->n}};
        if (qr_zmq_send(&v->zmq, v->router, part, QR_COUNT(part)) != 0)
            return true;
    }
    put_sequence(number, UINT64_MAX);
    const struct qr_zmq_part end[] = {{in, (size_t)len[0]}, {"", 0}, {"", 0}, {number, sizeof number}, {"", 0}};
    qr_zmq_send(&v->zmq, v->router, end, QR_COUNT(end));
    return true;
}

static void *run(void *arg)
{
    struct qr_events *v = arg;
    qr_thread_set_name("quire-events");
    bool closing = false;
    while (!closing) {
        closing = atomic_load(&v->closing);
        const bool busy = publish(v);
        while (v->router && !closing && answer_replay(v))
            publish(v);
        atomic_store(&v->asleep, !busy);
        if (closing || atomic_load(&v->flushed) != atomic_load_explicit(&v->taken, memory_order_relaxed) || atomic_load(&v->closing))
            continue;
        struct qr_zmq_poll item[] = {{.fd = v->wake, .events = QR_ZMQ_POLLIN}, {.socket = v->router, .events = QR_ZMQ_POLLIN}};
        v->zmq.poll(item, v->router ? 2 : 1, busy ? NAP_MS : -1);
        uint64_t n;
        if (item[0].revents && read(v->wake, &n, sizeof n) < 0)
            QR_ASSERT(errno == EAGAIN);
    }
    return NULL;
}

/* ---- opening ---- */

static int check(const char *flag, const char *endpoint, struct qr_err *err)
{
    const bool tcp = strncmp(endpoint, "tcp://", 6) == 0, ipc = strncmp(endpoint, "ipc://", 6) == 0;
    if (strlen(endpoint) >= ENDPOINT_MAX || !(ipc ? endpoint[6] == '/' : tcp && strrchr(endpoint + 6, ':')))
        return qr_err_set(err, QR_E_USAGE, "%s must be tcp://HOST:PORT (HOST *: all addresses) or ipc:///PATH, found '%.100s'", flag, endpoint);
    return 0;
}

int qr_events_check(const char *endpoint, const char *replay, struct qr_err *err)
{
    QR_ASSERT(err != NULL);
    if (!endpoint)
        return replay ? qr_err_set(err, QR_E_USAGE, "--kv-events-replay needs --kv-events: there is nothing to replay without it") : 0;
    const int rc = check("--kv-events", endpoint, err);
    return rc || !replay ? rc : check("--kv-events-replay", replay, err);
}

static bool is_loopback(const char *endpoint)
{
    static const char *const own[] = {"ipc://", "tcp://127.", "tcp://localhost:", "tcp://[::1]:"};
    bool found = false;
    for (int i = 0; i < QR_COUNT(own); i++)
        found = found || strncmp(endpoint, own[i], strlen(own[i])) == 0;
    return found;
}

static int bind_socket(struct qr_events *v, void **out, int type, const char *flag, const char *endpoint, char bound[ENDPOINT_MAX], struct qr_err *err)
{
    const int six = strchr(endpoint, '[') != NULL, linger = LINGER_MS, sent_max = SENT_MAX + 1; /* all that is kept, and its end */
    const int64_t request_max = REQUEST_BYTES;
    size_t n = ENDPOINT_MAX;
    void *s = *out = v->zmq.socket(v->context, type);
    if (!s)
        return qr_err_set(err, QR_E_IO, "%s: no socket: %s", flag, v->zmq.strerror(v->zmq.last_errno()));
    v->zmq.setsockopt(s, QR_ZMQ_SNDHWM, &sent_max, sizeof sent_max);
    v->zmq.setsockopt(s, QR_ZMQ_LINGER, &linger, sizeof linger);
    v->zmq.setsockopt(s, QR_ZMQ_MAXMSGSIZE, &request_max, sizeof request_max);
    v->zmq.setsockopt(s, QR_ZMQ_IPV6, &six, sizeof six);
    if (v->zmq.bind(s, endpoint) != 0) {
        const int code = v->zmq.last_errno();
        return qr_err_set(err, code == EINVAL ? QR_E_USAGE : QR_E_BIND, "%s: cannot listen on '%.100s': %s", flag, endpoint, v->zmq.strerror(code));
    }
    if (!is_loopback(endpoint))
        qr_log(QR_LOG_WARN, "events", "%s %s can be reached from elsewhere: events carry token ids, which are prompts", flag, endpoint);
    return v->zmq.getsockopt(s, QR_ZMQ_LAST_ENDPOINT, bound, &n) == 0 ? 0 : qr_err_set(err, QR_E_IO, "%s: no address", flag);
}

static void make_ring(struct qr_events *v, const struct qr_events_config *c)
{
    struct qr_event_ring *r = &v->ring;
    r->block_tokens = c->block_tokens;
    r->maps = c->maps;
    r->stride = qr_align_up(sizeof(struct qr_event_slot) + (size_t)c->block_tokens * sizeof(int32_t), 8);
    for (r->n = 16; r->n < (uint32_t)c->n_notes;)
        r->n *= 2;
    r->memory = qr_alloc(r->n, r->stride);
    qr_mem_populate(r->memory, r->n * r->stride);
}

static void release(struct qr_events *v)
{
    if (v->pub)
        v->zmq.close(v->pub);
    if (v->router)
        v->zmq.close(v->router);
    if (v->context)
        while (v->zmq.ctx_term(v->context) != 0 && v->zmq.last_errno() == EINTR)
            continue;
    while (v->kept && v->kept_from < v->sequence)
        drop_oldest(v);
    if (v->wake >= 0)
        close(v->wake);
    qr_buf_release(&v->payload);
    qr_free(v->kept);
    qr_free(v->ring.memory);
    qr_free(v->topic);
    qr_free(v);
}

int qr_events_open(struct qr_events **out, const struct qr_events_config *c, struct qr_err *err)
{
    QR_ASSERT(out != NULL && c != NULL && err != NULL);
    QR_ASSERT(c->endpoint != NULL && c->topic != NULL && c->block_tokens >= 1 && c->n_notes >= 1 && c->n_notes <= 1 << 20);
    struct qr_events *v = qr_alloc(1, sizeof *v);
    v->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    int rc = qr_events_check(c->endpoint, c->replay, err);
    rc = rc ? rc : qr_zmq_open(&v->zmq, err);
    if (rc == 0 && (v->wake < 0 || !(v->context = v->zmq.ctx_new())))
        rc = qr_err_set(err, QR_E_IO, "--kv-events: the system has no descriptor left: %s", strerror(errno));
    rc = rc ? rc : bind_socket(v, &v->pub, QR_ZMQ_PUB, "--kv-events", c->endpoint, v->endpoint[0], err);
    if (rc == 0 && c->replay)
        rc = bind_socket(v, &v->router, QR_ZMQ_ROUTER, "--kv-events-replay", c->replay, v->endpoint[1], err);
    if (rc != 0) {
        release(v);
        return rc;
    }
    v->topic = qr_strdup(c->topic);
    if (c->replay)
        v->kept = qr_alloc(KEPT_MAX, sizeof *v->kept);
    make_ring(v, c);
    qr_thread_start(&v->thread, run, v, "telling KV events");
    *out = v;
    return 0;
}

void qr_events_close(struct qr_events *v)
{
    if (!v)
        return;
    QR_ASSERT(v->context != NULL);
    atomic_store(&v->closing, true);
    wake(v);
    pthread_join(v->thread, NULL);
    release(v);
}

const char *qr_events_endpoint(const struct qr_events *v, bool replay)
{
    QR_ASSERT(v != NULL);
    QR_ASSERT(!replay || v->router != NULL);
    return v->endpoint[replay];
}
