/* What subscribers are told, read with an own SUB socket and a decoder that shares nothing with the packer: the set of blocks that it leaves is the pool's. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "exchange/events.h"
#include "exchange/msgpack.h"
#include "exchange/zmq_door.h"
#include "kvcache/kv_internal.h"
#include "kvcache/kv_prefix.h"
#include "tests/seed.h"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TIMED 0
#else
#define TIMED 1
#include "tests/count_mallocs.h"
#endif

enum { P = 4, MAX = 64, PAYLOAD = 1 << 20, PARTS = 5 };

static const struct qr_kv_name root = {{9}};
static const struct qr_hash128 salt = {.lo = 1, .hi = 1};

/* ---- a decoder ---- */

struct reader {
    const uint8_t *at, *end;
};

static uint64_t big(struct reader *r, int n)
{
    uint64_t v = 0;
    cr_assert(r->end - r->at >= n);
    while (n-- > 0)
        v = v << 8 | *r->at++;
    return v;
}

/* The length of the array, map, text or bytes that comes; -1: nil. Or a number. */
enum is { IS_ARRAY, IS_MAP, IS_TEXT, IS_BYTES, IS_NUMBER, IS_NIL, IS_FLOAT };
static int64_t head(struct reader *r, enum is *is)
{
    const uint64_t t = big(r, 1);
    *is = t >> 4 == 9 || t == 0xdd ? IS_ARRAY : t >> 4 == 8 ? IS_MAP : t >> 5 == 5 || t == 0xda ? IS_TEXT : t == 0xc4 ? IS_BYTES : t == 0xc0 ? IS_NIL
        : t == 0xcb ? IS_FLOAT : IS_NUMBER;
    if (*is == IS_NIL)
        return -1;
    if (t < 128 || t >> 5 == 5 || t >> 5 == 4)
        return (int64_t)(t < 128 ? t : t >> 5 == 5 ? t & 31 : t & 15);
    cr_assert(t == 0xc4 || (t >= 0xcb && t <= 0xce) || t == 0xda || t == 0xdd, "%x", (unsigned)t);
    return (int64_t)big(r, t == 0xcb ? 8 : t == 0xc4 || t == 0xcc ? 1 : t == 0xcd || t == 0xda ? 2 : 4);
}

static int64_t want(struct reader *r, enum is wanted)
{
    enum is is;
    const int64_t n = head(r, &is);
    cr_assert(is == wanted, "%d", is);
    return n;
}

static void text(struct reader *r, char to[64])
{
    enum is is;
    const int64_t n = head(r, &is);
    cr_assert(is == IS_NIL || (is == IS_TEXT && n < 64 && r->end - r->at >= n));
    to[0] = 0;
    if (is == IS_NIL)
        return;
    memcpy(to, r->at, (size_t)n);
    to[n] = 0;
    r->at += n;
}

/* ---- a subscriber ---- */

struct block {
    struct qr_kv_name name;
    bool host;
};
struct subscriber {
    struct qr_zmq z;
    void *context, *sub, *dealer;
    struct block block[4 * MAX];
    int32_t n_blocks, n_stored, n_cleared, n_events, n_without_ids;
    uint64_t next;   /* sequence number */
    bool maps;
    char adapter[64];
    char *in;        /* of qr_zmq_take */
};

static struct qr_events *opened(const struct qr_events_config *c)
{
    struct qr_err err = {0};
    struct qr_zmq z;
    struct qr_events *v = NULL;
    if (qr_zmq_open(&z, &err) != 0)
        cr_skip_test("%s", err.msg);
    cr_assert_eq(qr_events_open(&v, c, &err), 0, "%s", err.msg);
    return v;
}

static struct qr_events *open_on_loopback(bool maps, bool replay, int32_t n_notes)
{
    return opened(&(struct qr_events_config){.endpoint = "tcp://127.0.0.1:*", .replay = replay ? "tcp://127.0.0.1:*" : NULL, .topic = "kv@here@tiny",
                                             .maps = maps, .block_tokens = P, .n_notes = n_notes});
}

static void subscribe(struct subscriber *s, const struct qr_events *v, bool maps, bool replay)
{
    struct qr_err err;
    *s = (struct subscriber){.maps = maps, .in = qr_alloc(PARTS, PAYLOAD)};
    cr_assert_eq(qr_zmq_open(&s->z, &err), 0);
    s->context = s->z.ctx_new();
    s->sub = s->z.socket(s->context, QR_ZMQ_SUB);
    cr_assert_eq(s->z.connect(s->sub, qr_events_endpoint(v, false)), 0);
    s->z.setsockopt(s->sub, QR_ZMQ_SUBSCRIBE, "kv@", 3);
    if (replay) {
        s->dealer = s->z.socket(s->context, QR_ZMQ_DEALER);
        cr_assert_eq(s->z.connect(s->dealer, qr_events_endpoint(v, true)), 0);
    }
}

static void leave(struct subscriber *s)
{
    const int now = 0;
    void *socket[] = {s->sub, s->dealer};
    for (int i = 0; i < 2; i++)
        if (socket[i]) {
            s->z.setsockopt(socket[i], QR_ZMQ_LINGER, &now, sizeof now);
            s->z.close(socket[i]);
        }
    s->z.ctx_term(s->context);
    qr_free(s->in);
}

static int32_t find(const struct subscriber *s, const struct qr_kv_name *name, bool host)
{
    for (int32_t i = 0; i < s->n_blocks; i++)
        if (s->block[i].host == host && memcmp(&s->block[i].name, name, sizeof *name) == 0)
            return i;
    return -1;
}

static void put(struct subscriber *s, const struct qr_kv_name *name, bool host)
{
    if (find(s, name, host) >= 0)
        return;
    cr_assert_lt(s->n_blocks, 4 * MAX);
    s->block[s->n_blocks++] = (struct block){*name, host};
}

static void take_away(struct subscriber *s, const struct qr_kv_name *name, bool host)
{
    const int32_t i = find(s, name, host);
    if (i >= 0)
        s->block[i] = s->block[--s->n_blocks];
}

static int32_t read_names(struct reader *r, struct qr_kv_name *name)
{
    const int64_t n = want(r, IS_ARRAY);
    cr_assert(n >= 1 && n <= 4 * MAX);
    for (int64_t i = 0; i < n; i++) {
        cr_assert_eq(want(r, IS_BYTES), QR_KV_NAME_BYTES);
        memcpy(&name[i], r->at, sizeof *name);
        r->at += sizeof *name;
    }
    return (int32_t)n;
}

static void expect_key(const struct subscriber *s, struct reader *r, const char *key)
{
    char found[64];
    if (!s->maps)
        return;
    text(r, found);
    cr_assert_str_eq(found, key);
}

/* A stored block's name is the chain of its parent's and its ids. */
static void read_stored(struct subscriber *s, struct reader *r)
{
    static struct qr_kv_name name[4 * MAX];
    struct qr_kv_name parent = root, chained;
    enum is is;
    char medium[64];
    int32_t ids[P];
    expect_key(s, r, "block_hashes");
    const int32_t n = read_names(r, name);
    expect_key(s, r, "parent_block_hash");
    if (head(r, &is) == QR_KV_NAME_BYTES) {
        memcpy(&parent, r->at, sizeof parent);
        r->at += sizeof parent;
    } else
        cr_assert(is == IS_NIL);
    expect_key(s, r, "token_ids");
    const int64_t n_ids = want(r, IS_ARRAY);
    cr_assert(n_ids == 0 || n_ids == n * P);
    for (int64_t i = 0; i < n_ids; i++) {
        ids[i % P] = (int32_t)want(r, IS_NUMBER);
        if (i % P < P - 1)
            continue;
        qr_kv_name_chain(&chained, &parent, ids, P);
        cr_assert_eq(memcmp(&chained, &name[i / P], sizeof chained), 0);
        parent = chained;
    }
    expect_key(s, r, "block_size");
    cr_assert_eq(want(r, IS_NUMBER), P);
    expect_key(s, r, "lora_id");
    cr_assert_eq(want(r, IS_NIL), -1);
    expect_key(s, r, "medium");
    text(r, medium);
    expect_key(s, r, "lora_name");
    text(r, s->adapter);
    cr_assert(n_ids > 0 || (strcmp(medium, "CPU") == 0 && find(s, &name[0], false) >= 0), "a place without ids is of a block that is known elsewhere");
    s->n_without_ids += n_ids == 0;
    for (int32_t i = 0; i < n; i++)
        put(s, &name[i], strcmp(medium, "CPU") == 0);
    s->n_stored += n;
}

static void read_removed(struct subscriber *s, struct reader *r)
{
    static struct qr_kv_name name[4 * MAX];
    char medium[64];
    expect_key(s, r, "block_hashes");
    const int32_t n = read_names(r, name);
    expect_key(s, r, "medium");
    text(r, medium);
    for (int32_t i = 0; i < n; i++)
        take_away(s, &name[i], strcmp(medium, "CPU") == 0);
}

static void read_batch(struct subscriber *s, struct reader r)
{
    char tag[64];
    cr_assert_eq(want(&r, IS_ARRAY), 3);
    want(&r, IS_FLOAT);
    const int64_t n = want(&r, IS_ARRAY);
    cr_assert(n >= 1);
    for (int64_t i = 0; i < n; i++) {
        const int64_t n_fields = want(&r, s->maps ? IS_MAP : IS_ARRAY);
        expect_key(s, &r, "type");
        text(&r, tag);
        s->n_events++;
        if (strcmp(tag, "BlockStored") == 0)
            read_stored(s, &r);
        else if (strcmp(tag, "BlockRemoved") == 0)
            read_removed(s, &r);
        else {
            cr_assert_str_eq(tag, "AllBlocksCleared");
            s->n_blocks = 0;
            s->n_cleared++;
        }
        cr_assert_eq(n_fields, tag[0] == 'A' ? 1 : tag[5] == 'S' ? 8 : 3);
    }
    cr_assert_eq(want(&r, IS_NUMBER), 0);
    cr_assert_eq(r.at, r.end);
}

/* Waits for a message; the number of its parts, or 0 after wait_ms. */
static int32_t receive(struct subscriber *s, void *socket, int32_t len[PARTS], long wait_ms)
{
    struct qr_zmq_poll item = {.socket = socket, .events = QR_ZMQ_POLLIN};
    return s->z.poll(&item, 1, wait_ms) == 1 ? qr_zmq_take(&s->z, socket, s->in, len, PARTS, PAYLOAD) : 0;
}

static uint64_t sequence_at(const struct subscriber *s, int32_t part)
{
    struct reader r = {(const uint8_t *)s->in + (size_t)part * PAYLOAD, (const uint8_t *)s->in + (size_t)part * PAYLOAD + 8};
    return big(&r, 8);
}

static struct reader payload_at(const struct subscriber *s, int32_t part, int32_t n)
{
    const uint8_t *at = (const uint8_t *)s->in + (size_t)part * PAYLOAD;
    return (struct reader){at, at + n};
}

/* Asks for all from s->next on, as vllm-router does: [empty, number] there, [empty, topic, number, batch] back, -1 at the end. */
static void replay(struct subscriber *s)
{
    int32_t len[PARTS];
    uint8_t number[8];
    for (int i = 0; i < 8; i++)
        number[i] = (uint8_t)(s->next >> 8 * (7 - i));
    const struct qr_zmq_part ask[] = {{"", 0}, {number, 8}};
    cr_assert_eq(qr_zmq_send(&s->z, s->dealer, ask, 2), 0);
    for (;;) {
        cr_assert_eq(receive(s, s->dealer, len, 10000), 4);
        cr_assert(len[0] == 0 && len[2] == 8);
        if (sequence_at(s, 2) == UINT64_MAX)
            break;
        cr_assert_eq(sequence_at(s, 2), s->next++);
        read_batch(s, payload_at(s, 3, len[3]));
    }
    cr_assert(len[1] == 0 && len[3] == 0);
}

/* Reads what has been published. drop: that number gets lost on its way. */
static void read_up_to(struct subscriber *s, const struct qr_events *v, uint64_t drop)
{
    const int64_t began = qr_clock_us();
    int32_t len[PARTS];
    for (;;) {
        if (receive(s, s->sub, len, 50) == 0) {
            struct qr_events_stats stats;
            qr_events_stats(v, &stats);
            if (s->next == (uint64_t)stats.n_batches)
                return;
            cr_assert_lt(qr_clock_us() - began, 20000000);
            replay(s); /* before it had subscribed; or the last was lost */
            continue;
        }
        cr_assert_eq(len[1], 8);
        cr_assert(len[0] == 12 && memcmp(s->in, "kv@here@tiny", 12) == 0);
        const uint64_t number = sequence_at(s, 1);
        const struct reader payload = payload_at(s, 2, len[2]);
        if (number == drop || number < s->next)
            continue;
        if (number > s->next)
            replay(s);
        else {
            s->next++;
            read_batch(s, payload);
        }
    }
}

/* ---- a cache ---- */

enum { N = 20, HOST = 12, DEPTH = 8, HELD = 3 };

struct cache {
    struct qr_kv_pool *p;
    struct qr_rng rng;
    int32_t tokens[HELD][DEPTH * P], blocks[HELD][DEPTH], n[HELD];
};

static struct qr_kv_pool *new_pool(int32_t n_blocks, int32_t n_host)
{
    struct qr_hash_secret secret;
    qr_hash_secret_seeded(&secret, 4);
    struct qr_kv_pool *p = qr_kv_pool_new_tiers(n_blocks, n_host, P, true, &secret);
    qr_kv_names_open(p, 256);
    return p;
}

static void end(struct cache *c, int i)
{
    while (c->n[i] > 0)
        qr_kv_unref(c->p, c->blocks[i][--c->n[i]]);
}

/* A prompt out of few, so that many begin alike: what is cached of it is found, the rest computed as far as there are blocks. */
static void begin(struct cache *c, int i)
{
    int32_t n_hashed = 0, n = 1 + (int32_t)(qr_rng_next(&c->rng) % DEPTH);
    struct qr_hash128 hashes[DEPTH];
    end(c, i);
    for (int32_t k = 0; k < n * P; k++)
        c->tokens[i][k] = 100000 * (k / P) + (k % P == 0 ? (int32_t)(qr_rng_next(&c->rng) % 2) : k);
    c->n[i] = qr_kv_prefix_find(c->p, c->blocks[i], n, c->tokens[i], n * P, salt, hashes, &n_hashed);
    for (; c->n[i] < n; c->n[i]++) {
        const int32_t b = qr_kv_alloc(c->p), before = c->n[i] > 0 ? c->blocks[i][c->n[i] - 1] : -1;
        if (b < 0)
            break;
        c->blocks[i][c->n[i]] = b;
        qr_kv_prefix_enter(c->p, b, before, salt, c->tokens[i] + c->n[i] * P);
        qr_kv_name_enter(c->p, b, before, &root, c->tokens[i] + c->n[i] * P, 0);
    }
    qr_kv_moved(c->p);
}

static void step(struct cache *c, struct qr_events *v)
{
    struct qr_kv_note note;
    const uint64_t what = qr_rng_next(&c->rng) % 64;
    const int i = (int)(qr_rng_next(&c->rng) % HELD);
    if (what == 0)
        qr_kv_prefix_clear(c->p);
    else if (what < 40)
        begin(c, i);
    else
        end(c, i);
    while (qr_kv_note_take(c->p, &note))
        qr_events_note(v, &note, NULL);
    qr_events_flush(v);
}

static bool has_the_same(const struct subscriber *s, const struct qr_kv_pool *p)
{
    int32_t n = 0;
    for (int32_t b = 0; b < qr_kv_n_all(p); b++) {
        if (!qr_kv_at(p, b)->indexed)
            continue;
        const int32_t stands = qr_kv_name_find(p, &p->names->of[b]);
        n += stands == b;
        if (find(s, &p->names->of[b], stands >= p->n_blocks) < 0)
            return false;
    }
    return n == s->n_blocks;
}

static void walk(bool maps, int32_t n_host, bool dropping)
{
    struct cache c = {.p = new_pool(N, n_host)};
    struct subscriber s;
    struct qr_events *v = open_on_loopback(maps, true, 512);
    c.rng = (struct qr_rng){.seed = test_seed()};
    subscribe(&s, v, maps, true);
    for (int round = 0; round < 8; round++) {
        for (int i = 0; i < 40; i++)
            step(&c, v);
        const uint64_t drop = dropping ? s.next + 10 : UINT64_MAX;
        const int64_t began = qr_clock_us();
        for (read_up_to(&s, v, drop); !has_the_same(&s, c.p); read_up_to(&s, v, drop)) /* the last step's may be on their way */
            cr_assert_lt(qr_clock_us() - began, 20000000);
    }
    cr_assert(s.n_stored > 200 && s.n_cleared >= 1 && (s.n_without_ids > 0) == (n_host > 0));
    struct qr_events_stats stats;
    qr_events_stats(v, &stats);
    cr_assert(stats.n_lost == 0 && stats.n_events == s.n_events && stats.n_batches == (int64_t)s.next);
    for (int i = 0; i < HELD; i++)
        end(&c, i);
    leave(&s);
    qr_events_close(v);
    qr_kv_pool_free(c.p);
}

Test(events, leave_a_subscriber_with_the_pools_blocks_as_maps)
{
    walk(true, 0, false);
}

Test(events, leave_a_subscriber_with_the_pools_blocks_as_arrays_also_of_two_tiers)
{
    walk(false, HOST, false);
}

Test(events, that_were_lost_on_their_way_come_again_from_the_replay_socket)
{
    walk(true, HOST, true);
}

/* ---- single cases ---- */

static void note_chain(struct qr_events *v, int32_t first, int32_t n, const char *adapter)
{
    struct qr_kv_note note = {.kind = QR_KV_STORED, .first = true, .parent = root};
    for (int32_t i = 0; i < n; i++) {
        const int32_t ids[P] = {first + i, 2, 3, 4};
        note.ids = ids;
        qr_kv_name_chain(&note.name, &note.parent, ids, P);
        qr_events_note(v, &note, adapter);
        note.parent = note.name;
        note.first = false;
    }
}

Test(events, of_a_chain_are_one_and_those_of_an_adapter_are_a_batch_of_their_own)
{
    struct subscriber s;
    struct qr_events *v = open_on_loopback(true, true, 64);
    struct qr_events_stats stats;
    subscribe(&s, v, true, true);
    note_chain(v, 0, 20, NULL);
    note_chain(v, 100, 3, "polite");
    note_chain(v, 200, 1, NULL);
    note_chain(v, 300, 1, NULL);
    qr_events_flush(v);
    while (qr_events_stats(v, &stats), stats.n_batches < 3)
        usleep(1000);
    read_up_to(&s, v, UINT64_MAX);
    cr_assert_eq(s.n_events, 4);
    cr_assert_eq(s.n_stored, 25);
    cr_assert_eq(stats.n_batches, 3);
    leave(&s);
    qr_events_close(v);
}

Test(events, that_the_ring_has_no_room_for_become_a_clear)
{
    struct subscriber s;
    struct qr_events *v = open_on_loopback(true, true, 16);
    struct qr_events_stats stats;
    subscribe(&s, v, true, true);
    note_chain(v, 0, 20, NULL); /* none is visible before the flush, so 4 have no room */
    qr_events_flush(v);
    while (qr_events_stats(v, &stats), stats.n_batches < 1)
        usleep(1000);
    note_chain(v, 500, 2, NULL);
    qr_events_flush(v);
    while (qr_events_stats(v, &stats), stats.n_batches < 2)
        usleep(1000);
    read_up_to(&s, v, UINT64_MAX);
    cr_assert_eq(stats.n_lost, 4);
    cr_assert(s.n_cleared == 1 && s.n_blocks == 2 && s.n_stored == 18);
    leave(&s);
    qr_events_close(v);
}

Test(events, of_the_last_steps_are_published_when_it_is_closed)
{
    struct subscriber s;
    int32_t len[PARTS];
    struct qr_events *v = open_on_loopback(true, false, 64);
    subscribe(&s, v, true, false);
    for (int i = 0; s.n_stored == 0; i++) { /* until the subscription has come through */
        cr_assert_lt(i, 500);
        note_chain(v, i, 1, NULL);
        qr_events_flush(v);
        if (receive(&s, s.sub, len, 20) == 3)
            read_batch(&s, payload_at(&s, 2, len[2]));
    }
    note_chain(v, 1000, 7, NULL);
    qr_events_flush(v);
    qr_events_close(v);
    while (receive(&s, s.sub, len, 500) == 3)
        read_batch(&s, payload_at(&s, 2, len[2]));
    cr_assert_geq(s.n_stored, 8);
    leave(&s);
}

/* A note costs its copy, whoever reads: 0.3 us, also beside a subscriber that has stopped reading. Nothing is allocated for it. */
Test(events, cost_the_engine_a_copy_beside_a_subscriber_that_does_not_read)
{
    enum { NOTES = 4096, ROUNDS = 12 };
    struct subscriber s;
    const int one = 1;
    int64_t best_ns = INT64_MAX;
    struct qr_events *v = open_on_loopback(true, false, NOTES);
    struct qr_events_stats stats = {0};
    subscribe(&s, v, true, false);
    s.z.setsockopt(s.sub, QR_ZMQ_RCVHWM, &one, sizeof one);
    const int32_t ids[P] = {1, 2, 3, 4};
    const struct qr_kv_note note = {.kind = QR_KV_STORED, .first = true, .parent = root, .ids = ids};
    for (int r = 0; r < ROUNDS; r++) {
#if TIMED
        n_own_calls = 0; /* the publisher's thread allocates as it likes */
        counting = true;
#endif
        const int64_t began = qr_clock_ns();
        for (int i = 0; i < NOTES; i++)
            qr_events_note(v, &note, NULL);
        const int64_t ns = qr_clock_ns() - began;
#if TIMED
        counting = false;
        cr_assert_eq(n_own_calls, 0);
#endif
        best_ns = ns < best_ns ? ns : best_ns;
        qr_events_flush(v);
        while (qr_events_stats(v, &stats), stats.n_events < (int64_t)NOTES * (r + 1))
            usleep(200);
    }
    cr_assert_eq(stats.n_lost, 0);
    fprintf(stderr, "a note takes %.0f ns of the engine's time\n", (double)best_ns / NOTES);
    cr_assert(!TIMED || best_ns <= 300 * NOTES, "%lld ns a note", (long long)(best_ns / NOTES));
    leave(&s);
    qr_events_close(v);
}

Test(events, have_endpoints_that_are_refused_with_what_was_expected)
{
    static const struct {
        const char *endpoint, *replay, *says;
    } bad[] = {{"tcp://127.0.0.1", NULL, "--kv-events must be tcp://HOST:PORT"}, {"127.0.0.1:55", NULL, "ipc:///PATH, found '127.0.0.1:55'"},
               {"ipc://", NULL, "found 'ipc://'"}, {"inproc://here", NULL, "--kv-events must be"},
               {"tcp://127.0.0.1:5557", "udp://127.0.0.1:1", "--kv-events-replay must be"},
               {NULL, "tcp://127.0.0.1:1", "--kv-events-replay needs --kv-events"}};
    struct qr_err err;
    for (int i = 0; i < QR_COUNT(bad); i++) {
        cr_assert_eq(qr_events_check(bad[i].endpoint, bad[i].replay, &err), QR_E_USAGE);
        cr_assert(strstr(err.msg, bad[i].says) != NULL, "%s", err.msg);
    }
    struct qr_events *v = open_on_loopback(true, false, 16), *second = NULL;
    struct qr_events_config c = {.endpoint = qr_events_endpoint(v, false), .topic = "", .block_tokens = P, .n_notes = 16};
    cr_assert_eq(qr_events_open(&second, &c, &err), QR_E_BIND);
    cr_assert(strstr(err.msg, "--kv-events: cannot listen on 'tcp://127.0.0.1:") && strstr(err.msg, "in use"), "%s", err.msg);
    c.endpoint = "tcp://127.0.0.1:notaport";
    cr_assert_eq(qr_events_open(&second, &c, &err), QR_E_USAGE);
    qr_events_close(v);
}

/* A request for replay that is none is not answered, and the next one is. */
Test(events, survive_requests_that_are_none)
{
    struct subscriber s;
    char much[200] = "";
    struct qr_events *v = open_on_loopback(true, true, 64);
    const struct qr_zmq_part bad[][6] = {{{"x", 1}}, {{"", 0}, {"1234567", 7}}, {{"", 0}, {"123456789", 9}}, {{"", 0}, {"12345678", 8}, {"", 0}},
                                         {{"", 0}, {much, sizeof much}}, {{"a", 1}, {"b", 1}, {"c", 1}, {"d", 1}, {"e", 1}, {"f", 1}}};
    static const int32_t n[] = {1, 2, 2, 3, 2, 6};
    subscribe(&s, v, true, true);
    for (int i = 0; i < QR_COUNT(n); i++)
        cr_assert_eq(qr_zmq_send(&s.z, s.dealer, bad[i], n[i]), 0);
    note_chain(v, 0, 3, NULL);
    qr_events_flush(v);
    read_up_to(&s, v, UINT64_MAX);
    replay(&s);
    while (s.n_stored < 3)
        replay(&s);
    cr_assert_eq(s.n_blocks, 3);
    leave(&s);
    qr_events_close(v);
}

/* msgpack.packb of Python's msgpack 1.0 gives the same bytes, but for arrays of 16 to 65,535 (dc) and texts of 32 to 255 bytes (d9): both have two forms. */
Test(msgpack, packs_values_as_the_format_has_them)
{
    static const char want[] = "c0" "00" "7f" "cc80" "ccff" "cd0100" "cdffff" "ce00010000" "ce7fffffff" "cb3ff8000000000000" "a0" "a3616263" "c403010203" "90"
                               "93" "9f" "dd00000010" "82" "dd00000102";
    struct qr_buf b = {0};
    char hex[2 * 128 + 1] = "";
    static const uint32_t number[] = {0, 127, 128, 255, 256, 65535, 65536, INT32_MAX};
    qr_mp_nil(&b);
    for (int i = 0; i < QR_COUNT(number); i++)
        qr_mp_uint(&b, number[i]);
    qr_mp_f64(&b, 1.5);
    qr_mp_str(&b, "");
    qr_mp_str(&b, "abc");
    qr_mp_bin(&b, "\1\2\3", 3);
    qr_mp_array(&b, 0);
    qr_mp_array(&b, 3);
    qr_mp_array(&b, 15);
    qr_mp_array(&b, 16);
    qr_mp_map(&b, 2);
    qr_mp_array_end(&b, qr_mp_array_begin(&b), 258);
    for (size_t i = 0; i < b.len; i++)
        snprintf(hex + 2 * i, 3, "%02x", (uint8_t)b.data[i]);
    cr_assert_str_eq(hex, want);
    qr_buf_release(&b);
}
