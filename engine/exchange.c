/* exchange.c - requests that wait for blocks from elsewhere, and blocks on their way to the file tier (exchange.h).
 *
 * A request is held when it comes in, asks the file tier and then a peer for what is missing, and is let go when both are through, or when it has waited
 * longer than computing what came would have taken, and half a second. Blocks land between steps, beside running sequences no more than BESIDE_BYTES a turn,
 * so that no gap between their tokens grows by more than about 2 ms. What landed is cached and held by none: it may be evicted before the request finds it.
 * While a fetch is not over it reads the request's names and ids, so the request ends only behind it, which a stop makes soon. Where a disk stands still it
 * does not: the fetch is left with the names.
 *
 * Thread: the engine's, between steps; opening, too. Nothing is allocated once open. */
#include "engine/exchange.h"

#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mem.h"
#include "engine/exchange_parts.h"
#include "model/digest.h"

#define BLOCKS_MIN 4                            /* fewer are computed sooner */
#define BESIDE_BYTES ((int64_t)8 << 20)         /* copied in a turn beside sequences that decode: 2 ms of a slow memory */
#define GRACE_US 500000                         /* that a request may wait beyond what computing the blocks that came would have taken */
#define UNMEASURED_US 5000000                   /* what computing may take here, before any prompt was */
#define SILENCE_US 500000                       /* a peer that computes says so five times in it. It may be silent for longer by */
#define SILENCE_SHARE 0.125                     /* this part of what computing here would take: that much longer it all takes if it stands still */
#define MORE_HOPEFUL 1.1                        /* a file tier, or peers, that were too slow are tried again some time */
#define TICK_US 5000                            /* an idle engine with blocks on their way looks so often */
#define STILL_US 100000                         /* a file tier that has not ended so long after a stop stands still */
#define PARCEL_BYTES ((size_t)32 << 20)         /* of blocks on their way, in each direction */
#define SECRET_MIN 16
#define SECRET_MAX 4096

/* ---- settings ---- */

bool qr_outside_wanted(const struct qr_engine_config *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->outside.n_peers >= 0);
    return c->outside.listen || c->outside.n_peers > 0 || c->outside.file_dir;
}

bool qr_outside_named(const struct qr_engine_config *c)
{
    QR_ASSERT(c != NULL);
    return qr_outside_wanted(c) || c->outside.events;
}

/* The first flag that asks for it. */
static const char *flag_of(const struct qr_engine_outside *o)
{
    return o->listen ? "--peer-listen" : o->n_peers > 0 ? "--peer" : "--kv-file-dir";
}

/* Appended, for its owner's eyes only. */
static int read_secret(struct qr_buf *out, const char *path, struct qr_err *err)
{
    struct stat st;
    int rc = qr_file_read(out, path, QR_FILE_ANY, SECRET_MAX, err);
    if (rc != 0)
        return qr_err_prefix(err, "--peer-secret-file: ");
    while (out->len > 0 && (out->data[out->len - 1] == '\n' || out->data[out->len - 1] == '\r'))
        out->len--;
    if (stat(path, &st) == 0 && S_ISREG(st.st_mode) && (st.st_mode & (S_IRWXG | S_IRWXO)))
        return qr_err_set(err, QR_E_USAGE, "--peer-secret-file %s: others than its owner may use it (mode %04o); expected 0600", path,
                          (unsigned)st.st_mode & 07777);
    if (out->len < SECRET_MIN)
        return qr_err_set(err, QR_E_USAGE, "--peer-secret-file %s: the secret has %zu bytes, expected at least %d", path, out->len, SECRET_MIN);
    return 0;
}

/* Addresses, and the secret, which the caller releases. */
static int read_peers(struct qr_exchange_config *c, struct qr_buf *secret, const struct qr_engine_outside *o, struct qr_err *err)
{
    const int rc = o->secret_file ? read_secret(secret, o->secret_file, err) : 0;
    c->listen = o->listen;
    c->n_peers = o->n_peers;
    for (int32_t i = 0; i < o->n_peers; i++)
        c->peer[i] = o->peer[i];
    c->secret = secret->len > 0 ? secret->data : NULL;
    c->n_secret = secret->len;
    return rc;
}

int qr_engine_check_outside(const struct qr_engine_config *c, int32_t n_ranks, struct qr_err *err)
{
    QR_ASSERT(c != NULL && n_ranks >= 1);
    QR_ASSERT(err != NULL);
    const struct qr_engine_outside *o = &c->outside;
    struct qr_exchange_config peers = {0};
    struct qr_buf secret = {0};
    if (!qr_outside_wanted(c))
        return 0;
    if (!c->prefix_cache)
        return qr_err_set(err, QR_E_USAGE, "%s exchanges blocks of the prefix cache, which is off (--no-prefix-cache): leave one of them out", flag_of(o));
    if (n_ranks > 1)
        return qr_err_set(err, QR_E_USAGE, "%s and --tensor-parallel %d: blocks that several processes share out are not exchanged; leave one of them out",
                          flag_of(o), n_ranks);
    if (o->n_peers > QR_PEERS_MAX)
        return qr_err_set(err, QR_E_USAGE, "--peer is given %d times, expected at most %d", o->n_peers, QR_PEERS_MAX);
    int rc = read_peers(&peers, &secret, o, err);
    rc = rc ? rc : qr_exchange_check(&peers, err);
    qr_buf_release(&secret);
    return rc;
}

static int32_t n_notes_of(const struct qr_engine_config *c)
{
    return 1024 + 4 * (c->step_tokens_max / c->block_tokens);
}

static int32_t n_parcels_of(size_t block_bytes)
{
    const size_t n = PARCEL_BYTES / block_bytes;
    return n < 16 ? 16 : n > 256 ? 256 : (int32_t)n;
}

int64_t qr_engine_outside_bytes(const struct qr_engine_config *c, const struct qr_engine_limits *l, int64_t block_bytes)
{
    QR_ASSERT(c != NULL && l != NULL);
    QR_ASSERT(block_bytes > 0);
    const bool peers = c->outside.listen || c->outside.n_peers > 0;
    const int64_t stride = (int64_t)qr_align_up((size_t)block_bytes, 4096), way = n_parcels_of((size_t)block_bytes) * stride;
    if (!qr_outside_named(c))
        return 0;
    return (int64_t)qr_kv_names_bytes(l->n_blocks + l->n_host_blocks, l->block_tokens, n_notes_of(c)) + 2 * way * (peers + (c->outside.file_dir != NULL)) +
           ((int64_t)c->running_max + c->waiting_max) * (int64_t)(sizeof(struct qr_hold) + 2 * sizeof(struct qr_fetch)) + (int64_t)sizeof(struct qr_outside);
}

/* ---- opening ---- */

static void wake(void *arg)
{
    struct qr_engine *e = arg;
    qr_mailbox_poke(&e->inbox);
}

static int find_domain(struct qr_engine *e, struct qr_kv_name *out, struct qr_err *err)
{
    const int32_t block_tokens = e->limits.block_tokens;
    const int64_t started = qr_clock_us();
    uint8_t digest[QR_SHA256_BYTES];
    if (!qr_outside_wanted(&e->config)) { /* names are for routers alone, and mean nothing in another process */
        struct qr_hash_secret secret;
        qr_hash_secret_random(&secret);
        qr_sha256(out->byte, secret.bytes, sizeof secret.bytes, NULL, 0);
        return 0;
    }
    const int rc = qr_model_digest(digest, e->model, e->be, err);
    if (rc != 0)
        return rc;
    qr_sha256(out->byte, digest, sizeof digest, &block_tokens, sizeof block_tokens);
    qr_log(QR_LOG_INFO, "engine", "blocks have names domain=%02x%02x%02x%02x ms=%.1f", out->byte[0], out->byte[1], out->byte[2], out->byte[3],
           (double)(qr_clock_us() - started) * 1e-3);
    return 0;
}

static int open_peers(struct qr_engine *e, struct qr_outside *x, struct qr_err *err)
{
    const struct qr_engine_outside *o = &e->config.outside;
    struct qr_buf secret = {0};
    struct qr_exchange_config c = {.domain = x->domain, .block_bytes = x->block_bytes, .n_parcels = n_parcels_of(x->block_bytes), .lends_max = QR_LENDS_MAX,
                                   .prompt_max = e->limits.ctx_max, .wake = wake, .wake_arg = e, .compute = qr_lends_compute, .compute_user = e,
                                   .beat_us = &e->progress_us};
    if (!o->listen && o->n_peers == 0)
        return 0;
    int rc = read_peers(&c, &secret, o, err);
    rc = rc ? rc : qr_exchange_open(&x->peers, &c, err);
    qr_buf_release(&secret);
    x->asks = o->n_peers > 0;
    x->peer_hope = 1;
    return rc;
}

static int open_files(struct qr_engine *e, struct qr_outside *x, struct qr_err *err)
{
    const struct qr_engine_outside *o = &e->config.outside;
    const struct qr_file_tier_config c = {.dir = o->file_dir, .bytes_max = o->file_bytes, .domain = x->domain, .block_bytes = x->block_bytes,
                                          .n_parcels = n_parcels_of(x->block_bytes), .wake = wake, .wake_arg = e};
    if (!o->file_dir)
        return 0;
    for (x->n_written_max = 256; x->n_written_max < (uint32_t)(2 * c.n_parcels + 2 * (e->config.step_tokens_max / e->config.block_tokens));)
        x->n_written_max *= 2;
    x->written = qr_alloc(x->n_written_max, sizeof *x->written);
    qr_mem_populate(x->written, x->n_written_max * sizeof *x->written);
    return qr_file_tier_open(&x->files, &c, err);
}

int qr_outside_open(struct qr_engine *e, struct qr_err *err)
{
    QR_ASSERT(e != NULL && err != NULL);
    QR_ASSERT(e->outside == NULL);
    if (!qr_outside_named(&e->config))
        return 0;
    if (qr_outside_wanted(&e->config) && !e->be->mem->host)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s on the device %s: blocks of the processor's memory alone are exchanged; use --device cpu",
                          flag_of(&e->config.outside), e->be->name);
    struct qr_outside *x = e->outside = qr_alloc(1, sizeof *x);
    x->block_bytes = qr_kv_block_bytes(&e->kv);
    x->hold = qr_alloc((size_t)e->n_slots, sizeof *x->hold);
    x->fetch = qr_alloc(2 * (size_t)e->n_slots, sizeof *x->fetch);
    qr_list_init(&x->fetches);
    for (int32_t i = 0; i < 2 * e->n_slots; i++)
        qr_list_push_back(&x->fetches, &x->fetch[i].link);
    qr_kv_names_open(e->pool, n_notes_of(&e->config));
    int rc = find_domain(e, &x->domain, err);
    rc = rc ? rc : open_files(e, x, err);
    return rc ? rc : open_peers(e, x, err);
}

static void drop_arrived(struct qr_hold *h)
{
    struct qr_node *node;
    while ((node = qr_list_pop_front(&h->arrived)))
        qr_parcel_give_back(QR_CONTAINER(node, struct qr_parcel, link));
}

/* Everything in flight comes back, and nothing begins any more: requests can end. */
void qr_outside_end(struct qr_engine *e)
{
    struct qr_outside *x = e->outside;
    struct qr_node arrived, over, asked, *node;
    if (!x)
        return;
    QR_ASSERT(x->hold != NULL && x->n_holds >= 0);
    for (int32_t i = 0; i < e->n_slots; i++)
        if (x->hold[i].req)
            drop_arrived(&x->hold[i]);
    qr_list_init(&arrived);
    qr_list_init(&over);
    qr_list_init(&asked);
    if (x->peers)
        qr_exchange_take(x->peers, &arrived, &over, &asked);
    if (x->files)
        qr_file_tier_take(x->files, &arrived, &over);
    while ((node = qr_list_pop_front(&arrived)))
        qr_parcel_give_back(QR_CONTAINER(node, struct qr_parcel, link));
    qr_lends_end(e);
    qr_exchange_close(x->peers);
    qr_file_tier_close(x->files);
    x->peers = NULL;
    x->asks = false;
    x->files = NULL;
    for (int32_t i = 0; i < e->n_slots; i++)
        x->hold[i].fetch = NULL;
    for (int32_t i = 0; i < 2 * e->n_slots; i++)
        if (!x->fetch[i].user)
            qr_free((void *)x->fetch[i].names);
}

void qr_outside_free(struct qr_engine *e)
{
    struct qr_outside *x = e->outside;
    if (!x)
        return;
    QR_ASSERT(x->block_bytes > 0);
    QR_ASSERT(x->hold != NULL);
    qr_exchange_close(x->peers);
    qr_file_tier_close(x->files);
    qr_free(x->written);
    qr_free(x->fetch);
    qr_free(x->hold);
    qr_free(x);
    e->outside = NULL;
}

/* ---- names ---- */

void qr_outside_name(struct qr_engine *e, struct qr_request *r)
{
    const struct qr_outside *x = e->outside;
    QR_ASSERT(r != NULL && r->n_prompt >= 1);
    if (!x)
        return;
    const struct qr_hash128 none = {0, 0};
    const int32_t n = qr_outside_wanted(&e->config) ? r->n_prompt / e->limits.block_tokens : 0;
    qr_kv_name_root(&r->root, &x->domain, r->salt, r->adapter_slot < 0 ? none : r->adapter_hash);
    qr_free(r->names);
    r->names = n > 0 ? qr_alloc((size_t)n, sizeof *r->names) : NULL;
    r->n_names = r->names ? n : 0; /* without memory for them all is computed */
    if (r->names)
        qr_kv_name_all(r->names, &r->root, r->ids[0], r->n_prompt, e->limits.block_tokens);
}

/* ---- requests that are held ---- */

bool qr_outside_enter(struct qr_engine *e, const struct qr_request *r)
{
    struct qr_outside *x = e->outside;
    QR_ASSERT(r != NULL && r->n_prompt >= 1);
    e->stats.outside.n_for_peers += r->internal;
    if (!x)
        return false;
    x->n_admitted++;
    if (!x->files && !(x->asks && !r->internal))
        return false;
    const bool all_rows = r->pooling > QR_POOLING_LAST || r->sampling.n_prompt_logprobs >= 0;
    return !all_rows && r->n_names >= BLOCKS_MIN && (r->n_prompt - 1) / e->limits.block_tokens >= BLOCKS_MIN;
}

/* Whether n blocks come sooner than they are computed. What was not measured yet is tried. */
static bool pays(const struct qr_engine *e, int32_t n, double bytes_s)
{
    const struct qr_backlog_steps steps = qr_engine_steps(e);
    const double computing = qr_backlog_alone_us(&steps, n * e->limits.block_tokens);
    return computing <= 0 || bytes_s <= 0 || (double)n * (double)e->outside->block_bytes / bytes_s * 1e6 < computing;
}

static void begin_fetch(struct qr_engine *e, struct qr_hold *h, int32_t n, int64_t now)
{
    struct qr_request *r = h->req;
    struct qr_node *node = qr_list_pop_front(&e->outside->fetches);
    QR_ASSERT(node != NULL); /* no hold has two, and none is left a second time before the first is over */
    struct qr_fetch *f = h->fetch = QR_CONTAINER(node, struct qr_fetch, link);
    *f = (struct qr_fetch){.user = h, .names = r->names, .first = h->next, .n = n, .peer = r->peer, .expected = r->expected};
    qr_list_init(&f->link);
    h->asked_us = now;
    if (h->asked_peers && qr_engine_role(e) == QR_ROLE_DECODE && !r->expected)
        f->prompt = (struct qr_exchange_prompt){.ids = r->ids[0], .n_ids = r->n_prompt, .salt = r->salt,
                                                  .adapter = r->adapter_slot < 0 ? (struct qr_hash128){0, 0} : r->adapter_hash};
    if (h->asked_peers)
        qr_exchange_fetch(e->outside->peers, f);
    else
        qr_file_tier_fetch(e->outside->files, f);
}

/* Asks the next source for what is missing still. False: there is none. */
static bool ask_next(struct qr_engine *e, struct qr_hold *h, int64_t now)
{
    struct qr_outside *x = e->outside;
    struct qr_exchange_stats peers = {0};
    if (!h->asked_files && !h->asked_peers && x->files && x->n_left == 0 && h->n - h->next >= BLOCKS_MIN) {
        const int32_t n = qr_file_tier_find(x->files, h->req->names, h->next, h->n);
        h->asked_files = true;
        if (n >= BLOCKS_MIN && pays(e, n, x->file_bytes_s)) {
            begin_fetch(e, h, h->next + n, now);
            return true;
        }
        if (n >= BLOCKS_MIN)
            x->file_bytes_s *= MORE_HOPEFUL;
    }
    if (h->asked_peers || !x->asks || h->req->internal || h->n - h->next < BLOCKS_MIN)
        return false;
    qr_exchange_stats(x->peers, &peers);
    if (peers.n_connected == 0)
        return false;
    if (qr_engine_role(e) != QR_ROLE_DECODE && !pays(e, h->n - h->next, peers.bytes_per_second * x->peer_hope)) {
        x->peer_hope *= MORE_HOPEFUL;
        return false;
    }
    x->peer_hope = 1;
    h->asked_peers = true;
    begin_fetch(e, h, h->n, now);
    return true;
}

static void note_came(struct qr_hold *h)
{
    struct qr_request *r = h->req;
    const int32_t n = h->next - h->first;
    if (h->asked_peers)
        r->came.n_peer = n - r->came.n_file;
    else
        r->came.n_file = n;
}

/* It waits for its turn like any other from now on. */
static void let_go(struct qr_engine *e, struct qr_hold *h, int64_t now)
{
    struct qr_request *r = h->req;
    QR_ASSERT(!h->fetch && qr_list_empty(&h->arrived));
    qr_sched_let_go(e->sched, h->index);
    for (int32_t i = 0; i < e->n_slots && r->n_choices > 1; i++)
        if (e->slot[i].req == r && i != h->index && qr_sched_seq(e->sched, i)->state == QR_SEQ_HELD)
            qr_sched_let_go(e->sched, i);
    if (h->asked_us > 0) {
        e->stats.outside.n_held++;
        e->stats.outside.held_us += (uint64_t)(now - h->since_us);
    }
    h->req = NULL;
    e->outside->n_holds--;
    if (r->n_open == r->n_choices) /* else it is being ended */
        qr_deadlines_enter(e, r, now);
}

void qr_outside_begin(struct qr_engine *e, struct qr_request *r, int32_t index, int64_t now)
{
    QR_ASSERT(e->outside != NULL && r->n_names >= BLOCKS_MIN);
    QR_ASSERT(e->outside->hold[index].req == NULL && e->slot[index].req == r);
    struct qr_hold *h = &e->outside->hold[index];
    const int32_t n = (r->n_prompt - 1) / e->limits.block_tokens;
    *h = (struct qr_hold){.req = r, .index = index, .n = n < QR_EXCHANGE_NAMES_MAX ? n : QR_EXCHANGE_NAMES_MAX, .since_us = now};
    qr_list_init(&h->arrived);
    e->outside->n_holds++;
    qr_sched_find(e->sched, index);
    h->first = h->next = r->came.first = qr_sched_seq(e->sched, index)->n_found / e->limits.block_tokens;
    if (!ask_next(e, h, now)) {
        let_go(e, h, now);
        return;
    }
    e->stats.n_sought += (uint64_t)(h->n - h->first) * (uint64_t)e->limits.block_tokens;
}

static void stop(struct qr_engine *e, struct qr_hold *h, int64_t now)
{
    h->stopped_us = now;
    if (h->fetch && h->asked_peers)
        qr_exchange_stop(e->outside->peers, h->fetch);
    else if (h->fetch)
        atomic_store(&h->fetch->stopped, true);
}

/* Where the fetch does not end though it was stopped the request goes on without it, and its names stay behind. True: no fetch is under way. */
static bool leave(struct qr_engine *e, struct qr_hold *h, int64_t now)
{
    struct qr_request *r = h->req;
    if (!h->fetch || h->asked_peers || h->stopped_us == 0 || now - h->stopped_us < STILL_US)
        return !h->fetch;
    QR_ASSERT(h->fetch->names == r->names);
    h->fetch->user = NULL;
    h->fetch = NULL;
    r->names = NULL;
    r->n_names = 0;
    e->outside->n_left++;
    qr_log(QR_LOG_WARN, "engine", "the file tier stands still; a request goes on without it waits=%d", e->outside->n_left);
    return true;
}

bool qr_outside_keeps(struct qr_engine *e, int32_t index)
{
    struct qr_hold *h = e->outside ? &e->outside->hold[index] : NULL;
    QR_ASSERT(index >= 0 && index < e->n_slots);
    if (!h || !h->req || !h->fetch)
        return false;
    const int64_t now = qr_clock_us();
    if (h->stopped_us == 0)
        stop(e, h, now);
    return !leave(e, h, now);
}

void qr_outside_drop(struct qr_engine *e, int32_t index)
{
    struct qr_hold *h = e->outside ? &e->outside->hold[index] : NULL;
    QR_ASSERT(index >= 0 && index < e->n_slots);
    if (!h || !h->req)
        return;
    QR_ASSERT(!h->fetch);
    drop_arrived(h);
    h->req = NULL;
    e->outside->n_holds--;
}

/* ---- blocks land ---- */

uint8_t *qr_outside_block(const struct qr_engine *e, int32_t b)
{
    QR_ASSERT(e != NULL && e->outside != NULL);
    QR_ASSERT(b >= 0);
    uint8_t *kv = e->kv.base;
    return b < e->kv.n_blocks ? kv + (size_t)b * e->outside->block_bytes : e->kv_host + (size_t)(b - e->kv.n_blocks) * e->outside->block_bytes;
}

/* False: there is no place for it, nor for what follows. */
static bool land_one(struct qr_engine *e, struct qr_hold *h, const struct qr_parcel *p, int64_t *budget)
{
    const int32_t b = p->index == h->next ? qr_sched_place(e->sched, h->index, p->index) : QR_PLACE_NONE;
    if (b == QR_PLACE_NONE)
        return false;
    h->next++;
    if (b == QR_PLACE_HAS) /* another has computed it meanwhile */
        return true;
    qr_tier_move(e);
    memcpy(qr_outside_block(e, b), p->bytes, e->outside->block_bytes);
    qr_sched_land(e->sched, h->index, b);
    *budget -= (int64_t)e->outside->block_bytes;
    return true;
}

static void land(struct qr_engine *e, struct qr_hold *h, int64_t *budget, int64_t now)
{
    struct qr_node *node;
    while (*budget > 0 && (node = qr_list_pop_front(&h->arrived)) != NULL) {
        struct qr_parcel *p = QR_CONTAINER(node, struct qr_parcel, link);
        if (h->stopped_us == 0 && !land_one(e, h, p, budget))
            stop(e, h, now);
        qr_parcel_give_back(p);
    }
    note_came(h);
}

/* A peer that computes is waited for as long as blocks of it come, of whatever request, not later than all of these would be computed here. */
static bool has_waited(const struct qr_engine *e, const struct qr_hold *h, int64_t now)
{
    const struct qr_backlog_steps steps = qr_engine_steps(e);
    const double worth = qr_backlog_alone_us(&steps, h->n_arrived * e->limits.block_tokens);
    const bool patient = h->asked_peers && (h->req->expected || qr_engine_role(e) == QR_ROLE_DECODE);
    if ((double)(now - h->since_us) <= worth + GRACE_US)
        return false;
    const double alone_us = qr_backlog_alone_most_us(&steps, (h->n - h->first) * e->limits.block_tokens);
    if (!patient || !atomic_load(&h->fetch->computing) || (double)(now - atomic_load(&h->fetch->heard_us)) > SILENCE_US + SILENCE_SHARE * alone_us)
        return true;
    const int64_t moved_us = atomic_load(&h->fetch->moved_us), idle_us = now - (moved_us > h->asked_us ? moved_us : h->asked_us);
    return (double)idle_us > (alone_us > 0 ? alone_us : UNMEASURED_US) + GRACE_US;
}

static void advance(struct qr_engine *e, struct qr_hold *h, int64_t *budget, int64_t now)
{
    land(e, h, budget, now);
    if (h->fetch && h->stopped_us == 0 && has_waited(e, h, now)) {
        e->stats.outside.n_given_up++;
        stop(e, h, now);
    }
    if (!leave(e, h, now) || !qr_list_empty(&h->arrived))
        return;
    if (h->stopped_us > 0 || !ask_next(e, h, now))
        let_go(e, h, now);
}

static void take_arrived(struct qr_node *arrived)
{
    struct qr_node *node;
    while ((node = qr_list_pop_front(arrived))) {
        struct qr_parcel *p = QR_CONTAINER(node, struct qr_parcel, link);
        QR_ASSERT(p->fetch != NULL);
        struct qr_hold *h = p->fetch->user;
        if (!h) {
            qr_parcel_give_back(p);
            continue;
        }
        QR_ASSERT(h->req != NULL);
        h->n_arrived++;
        qr_list_push_back(&h->arrived, &p->link);
    }
}

static void take_over(struct qr_outside *x, struct qr_node *over, int64_t now)
{
    struct qr_node *node;
    while ((node = qr_list_pop_front(over))) {
        struct qr_fetch *f = QR_CONTAINER(node, struct qr_fetch, link);
        struct qr_hold *h = f->user;
        qr_list_push_back(&x->fetches, node);
        if (!h) {
            qr_free((void *)f->names);
            f->names = NULL;
            x->n_left--;
            continue;
        }
        QR_ASSERT(h->req != NULL && h->fetch == f);
        h->fetch = NULL;
        const double took_s = (double)(now - h->asked_us + 1) * 1e-6, bytes = (double)h->n_arrived * (double)x->block_bytes;
        if (!h->asked_peers && h->n_arrived > 0)
            x->file_bytes_s = x->file_bytes_s > 0 ? (3 * x->file_bytes_s + bytes / took_s) / 4 : bytes / took_s;
    }
}

/* ---- blocks for the file tier ---- */

void qr_exchange_note(struct qr_engine *e, const struct qr_kv_note *note)
{
    struct qr_outside *x = e->outside;
    QR_ASSERT(note != NULL);
    if (!x || !x->files || note->kind != QR_KV_STORED || qr_file_tier_has(x->files, &note->name))
        return;
    if (x->n_written == x->n_written_max) {
        e->stats.outside.n_unwritten++; /* the disk is behind */
        return;
    }
    x->written[(x->written_first + x->n_written++) & (x->n_written_max - 1)] = note->name;
}

static void write_behind(struct qr_engine *e, int64_t *budget)
{
    struct qr_outside *x = e->outside;
    while (x->n_written > 0 && *budget > 0) {
        const struct qr_kv_name *name = &x->written[x->written_first & (x->n_written_max - 1)];
        const int32_t b = qr_kv_name_find(e->pool, name);
        struct qr_parcel *p = b >= 0 ? qr_file_tier_parcel(x->files) : NULL;
        if (b >= 0 && !p)
            return;
        e->stats.outside.n_unwritten += b < 0; /* evicted before its turn came */
        if (p) {
            p->name = *name;
            memcpy(p->bytes, qr_outside_block(e, b), x->block_bytes);
            qr_file_tier_write(x->files, p);
            *budget -= (int64_t)x->block_bytes;
        }
        x->written_first++;
        x->n_written--;
    }
}

/* ---- a turn ---- */

void qr_outside_look(struct qr_engine *e, int64_t now)
{
    struct qr_outside *x = e->outside;
    struct qr_node arrived, over, asked;
    if (!x)
        return;
    qr_notes_drain(e);
    QR_ASSERT(x->n_holds >= 0 && now > 0);
    qr_list_init(&arrived);
    qr_list_init(&over);
    qr_list_init(&asked);
    if (x->peers)
        qr_exchange_take(x->peers, &arrived, &over, &asked);
    if (x->files)
        qr_file_tier_take(x->files, &arrived, &over);
    take_arrived(&arrived);
    take_over(x, &over, now);
    qr_lends_take(e, &asked);
    int64_t budget = qr_sched_n_decode(e->sched) > 0 ? BESIDE_BYTES : INT64_MAX;
    for (int32_t i = 0, left = x->n_holds; left > 0; i++) {
        QR_ASSERT(i < e->n_slots);
        if (!x->hold[i].req)
            continue;
        left--;
        advance(e, &x->hold[i], &budget, now);
    }
    qr_lends_look(e, &budget, now);
    if (x->files)
        write_behind(e, &budget);
}

int64_t qr_outside_wait_us(const struct qr_engine *e, int64_t wait_us)
{
    const struct qr_outside *x = e->outside;
    QR_ASSERT(wait_us >= -1);
    if (!x || x->n_holds + x->n_lends + (int32_t)x->n_written == 0)
        return wait_us;
    return wait_us < 0 || wait_us > TICK_US ? TICK_US : wait_us;
}

void qr_outside_count(struct qr_engine *e, struct qr_request *r)
{
    const int32_t n_tokens = e->limits.block_tokens, found = r->n_cached / n_tokens - r->came.first;
    QR_ASSERT(r->came.n_file >= 0 && r->came.n_peer >= 0);
    const int32_t n_file = found < r->came.n_file ? found : r->came.n_file, left = found - n_file, n_peer = left < r->came.n_peer ? left : r->came.n_peer;
    r->n_from_file = n_file > 0 ? n_file * n_tokens : 0;
    r->n_from_peer = n_peer > 0 ? n_peer * n_tokens : 0;
    e->stats.n_from_file += (uint64_t)r->n_from_file;
    e->stats.n_from_peer += (uint64_t)r->n_from_peer;
}

bool qr_outside_is_fed(const struct qr_engine *e)
{
    const struct qr_outside *x = e->outside;
    struct qr_exchange_stats peers = {0};
    if (!x || !x->asks || qr_engine_role(e) != QR_ROLE_DECODE)
        return false;
    QR_ASSERT(x->peers != NULL);
    qr_exchange_stats(x->peers, &peers);
    QR_ASSERT(peers.n_connected >= 0);
    return peers.n_connected > 0;
}

/* ---- for other threads ---- */

enum qr_side qr_engine_role(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    const int role = atomic_load_explicit(&e->role, memory_order_relaxed);
    QR_ASSERT(role >= QR_ROLE_BOTH && role <= QR_ROLE_DECODE);
    return (enum qr_side)role;
}

void qr_engine_set_role(struct qr_engine *e, enum qr_side role)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT((int)role >= QR_ROLE_BOTH && role <= QR_ROLE_DECODE);
    atomic_store(&e->role, (int)role);
}

int32_t qr_engine_peer(const struct qr_engine *e, const char *address)
{
    QR_ASSERT(e != NULL && address != NULL);
    const struct qr_outside *x = e->outside;
    QR_ASSERT(x == NULL || x->hold != NULL);
    return x && x->peers ? qr_exchange_peer(x->peers, address) : -1;
}

const char *qr_engine_peer_address(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    const struct qr_outside *x = e->outside;
    QR_ASSERT(x == NULL || x->hold != NULL);
    return x && x->peers ? qr_exchange_address(x->peers) : NULL;
}

bool qr_engine_exchange_stats(const struct qr_engine *e, struct qr_exchange_stats *out)
{
    QR_ASSERT(e != NULL && out != NULL);
    const struct qr_outside *x = e->outside;
    *out = (struct qr_exchange_stats){0};
    if (!x || !x->peers)
        return false;
    qr_exchange_stats(x->peers, out);
    return true;
}

bool qr_engine_file_stats(const struct qr_engine *e, struct qr_file_tier_stats *out)
{
    QR_ASSERT(e != NULL && out != NULL);
    const struct qr_outside *x = e->outside;
    *out = (struct qr_file_tier_stats){0};
    if (!x || !x->files)
        return false;
    qr_file_tier_stats(x->files, out);
    return true;
}
