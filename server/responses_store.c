/* responses_store.c - stored responses: a table of chains by id, and a list from the oldest to the newest. As all live for the same time, those whose
 * time is over stand at its front. Any thread, under the store's lock; nothing is allocated or freed with it held. */
#include "server/responses_store.h"

#include <pthread.h>
#include <string.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/hash.h"
#include "base/list.h"
#include "base/mem.h"

struct entry {
    struct qr_node link;         /* of the list */
    struct entry *next;          /* borrowed: in the chain */
    struct qr_key_digest owner;
    char id[QR_RESPONSE_ID_MAX + 1];
    int64_t put_us;
    size_t n[QR_RESPONSE_PARTS]; /* bytes of each part, which stand in text one behind the other */
    int64_t n_bytes;             /* of all of it */
    char text[];
};

struct qr_responses {
    pthread_mutex_t lock;
    int64_t n_max, bytes_max, ttl_us;
    int64_t n, n_bytes;
    struct qr_node list;         /* owned entries, the oldest first */
    struct entry **chain;        /* owned [n_chains] */
    size_t n_chains;             /* a power of two */
};

struct qr_responses *qr_responses_new(int64_t n_max, int64_t bytes_max, int64_t ttl_us)
{
    QR_ASSERT(n_max >= 0 && n_max <= 1000000);
    QR_ASSERT(bytes_max >= 0 && ttl_us > 0);
    struct qr_responses *r = qr_alloc(1, sizeof *r);
    *r = (struct qr_responses){.n_max = n_max, .bytes_max = bytes_max, .ttl_us = ttl_us, .n_chains = 1};
    pthread_mutex_init(&r->lock, NULL);
    qr_list_init(&r->list);
    while (r->n_chains < (size_t)n_max)
        r->n_chains *= 2;
    r->chain = qr_alloc(r->n_chains, sizeof *r->chain);
    return r;
}

/* ---- with the lock held ---- */

static struct entry **place_of(struct qr_responses *r, const char *id)
{
    struct entry **at = &r->chain[qr_hash64(id, strlen(id), 0) & (r->n_chains - 1)];
    while (*at && strcmp((*at)->id, id) != 0)
        at = &(*at)->next;
    return at;
}

/* Takes it out, and puts it before `out`, what is to be freed without the lock. */
static void take_out(struct qr_responses *r, struct entry *e, struct entry **out)
{
    struct entry **at = place_of(r, e->id);
    QR_ASSERT(*at == e);
    *at = e->next;
    qr_list_remove(&e->link);
    r->n--;
    r->n_bytes -= e->n_bytes;
    e->next = *out;
    *out = e;
}

/* Those whose time is over, and the oldest until there is room for one more of n_bytes. */
static void make_room(struct qr_responses *r, int64_t n_more, int64_t n_bytes, struct entry **out)
{
    const int64_t now_us = qr_clock_us();
    while (!qr_list_empty(&r->list)) {
        struct entry *oldest = QR_CONTAINER(r->list.next, struct entry, link);
        if (now_us - oldest->put_us < r->ttl_us && r->n + n_more <= r->n_max && r->n_bytes + n_bytes <= r->bytes_max)
            break;
        take_out(r, oldest, out);
    }
}

static struct entry *find(struct qr_responses *r, const struct qr_key_digest *owner, const char *id, struct entry **out)
{
    make_room(r, 0, 0, out);
    struct entry *e = *place_of(r, id);
    return e && memcmp(&e->owner, owner, sizeof *owner) == 0 ? e : NULL;
}

/* ---- without it ---- */

/* The thread may be in a request's account, whose blocks these are not. */
static void free_entries(struct entry *e)
{
    struct qr_account own;
    if (!e)
        return;
    qr_account_init(&own, NULL);
    struct qr_account *before = qr_account_enter(&own);
    for (struct entry *next; e; e = next) {
        next = e->next;
        qr_free(e);
    }
    qr_account_leave(before);
}

void qr_responses_free(struct qr_responses *r)
{
    struct entry *out = NULL;
    if (!r)
        return;
    while (!qr_list_empty(&r->list))
        take_out(r, QR_CONTAINER(r->list.next, struct entry, link), &out);
    QR_ASSERT(r->n == 0 && r->n_bytes == 0);
    free_entries(out);
    pthread_mutex_destroy(&r->lock);
    qr_free(r->chain);
    qr_free(r);
}

/* NULL: there is no memory. */
static struct entry *entry_new(const struct qr_response_text part[QR_RESPONSE_PARTS], size_t n_text)
{
    struct qr_account own;
    qr_account_init(&own, NULL);
    struct qr_account *before = qr_account_enter(&own);
    struct entry *e = qr_alloc(1, sizeof *e + n_text);
    qr_account_leave(before);
    char *at = e ? e->text : NULL;
    for (int i = 0; i < QR_RESPONSE_PARTS && e; i++) {
        if (part[i].n > 0)
            memcpy(at, part[i].data, part[i].n);
        e->n[i] = part[i].n;
        at += part[i].n;
    }
    return e;
}

void qr_responses_put(struct qr_responses *r, const struct qr_key_digest *owner, const char *id, const struct qr_response_text part[QR_RESPONSE_PARTS])
{
    struct entry *out = NULL;
    size_t n_text = 0;
    QR_ASSERT(r != NULL && owner != NULL);
    QR_ASSERT(strlen(id) <= QR_RESPONSE_ID_MAX);
    for (int i = 0; i < QR_RESPONSE_PARTS; i++)
        n_text += part[i].n;
    if (r->n_max == 0 || (int64_t)(sizeof *out + n_text) > r->bytes_max)
        return;
    struct entry *e = entry_new(part, n_text);
    if (!e)
        return;
    e->owner = *owner;
    memcpy(e->id, id, strlen(id) + 1);
    e->put_us = qr_clock_us();
    e->n_bytes = (int64_t)(sizeof *e + n_text);
    pthread_mutex_lock(&r->lock);
    struct entry *same = *place_of(r, id);
    if (same)
        take_out(r, same, &out);
    make_room(r, 1, e->n_bytes, &out);
    struct entry **at = place_of(r, id);
    e->next = NULL;
    *at = e;
    qr_list_push_back(&r->list, &e->link);
    r->n++;
    r->n_bytes += e->n_bytes;
    pthread_mutex_unlock(&r->lock);
    free_entries(out);
}

/* The part is put into out as far as there is room; *n is its length. */
static bool copy(struct qr_responses *r, const struct qr_key_digest *owner, const char *id, enum qr_response_part part, struct qr_buf *out, size_t *n)
{
    struct entry *over = NULL;
    pthread_mutex_lock(&r->lock);
    const struct entry *e = find(r, owner, id, &over);
    const char *at = e ? e->text : NULL;
    for (int i = 0; i < (int)part && e; i++)
        at += e->n[i];
    *n = e ? e->n[part] : 0;
    if (out && *n > 0 && out->len + *n < out->cap) /* it allocates nothing then */
        qr_buf_put(out, at, *n);
    pthread_mutex_unlock(&r->lock);
    free_entries(over);
    return e != NULL;
}

bool qr_responses_get(struct qr_responses *r, const struct qr_key_digest *owner, const char *id, enum qr_response_part part, struct qr_buf *out)
{
    size_t n, before;
    QR_ASSERT(r != NULL && owner != NULL && id != NULL && out != NULL);
    QR_ASSERT((int)part >= 0 && part < QR_RESPONSE_PARTS);
    before = out->len;
    if (!copy(r, owner, id, part, NULL, &n))
        return false;
    if (n == 0)
        return true;
    if (!qr_buf_reserve(out, n + 1)) /* not with the lock held: it may end the request */
        return false;
    return copy(r, owner, id, part, out, &n) && out->len == before + n;
}

bool qr_responses_delete(struct qr_responses *r, const struct qr_key_digest *owner, const char *id)
{
    struct entry *out = NULL;
    QR_ASSERT(r != NULL && owner != NULL && id != NULL);
    pthread_mutex_lock(&r->lock);
    struct entry *e = find(r, owner, id, &out);
    if (e)
        take_out(r, e, &out);
    pthread_mutex_unlock(&r->lock);
    free_entries(out);
    return e != NULL;
}

int64_t qr_responses_count(struct qr_responses *r, int64_t *n_bytes)
{
    struct entry *out = NULL;
    QR_ASSERT(r != NULL);
    pthread_mutex_lock(&r->lock);
    make_room(r, 0, 0, &out);
    const int64_t n = r->n;
    if (n_bytes)
        *n_bytes = r->n_bytes;
    pthread_mutex_unlock(&r->lock);
    free_entries(out);
    return n;
}
