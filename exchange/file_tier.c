/* file_tier.c - the file tier: one thread that has the files, and four mailboxes.
 *
 * Guarantee: a block that is handed out has its name and the bytes that were written under it. The engine thread looks names up under the
 * index's short lock and never waits for the disk. Reading goes first, as a request waits for it; for each few blocks that are read one is written. */
#include "exchange/file_tier.h"

#include <inttypes.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "base/thread.h"
#include "exchange/extents.h"

enum {
    READS_A_TURN = 4,
    LOOK_EVERY_US = 10000, /* whether a fetch that waits for a parcel is still wanted */
};

#define WARN_EVERY_US INT64_C(60000000)

struct told {
    pthread_mutex_t lock;
    struct qr_file_tier_stats stats;
};

struct qr_file_tier {
    struct qr_extents files;             /* the thread's, but for the index */
    struct qr_parcels to_disk, from_disk;
    struct qr_mailbox given, asked;      /* to the thread: parcels to write, fetches */
    struct qr_mailbox arrived, over;     /* from it: parcels, fetches */
    struct qr_node writing, fetching;    /* the thread's: of given and asked */
    _Atomic bool closing;
    pthread_t thread;
    int64_t warned_us;
    struct qr_file_tier_stats count;     /* the thread's */
    struct told *told;                   /* owned; the same, for any thread */
};

/* ---- the thread ---- */

static void tell(struct qr_file_tier *t)
{
    t->count.bytes = qr_extents_bytes(&t->files);
    t->count.n_extents_dropped = t->files.n_dropped;
    pthread_mutex_lock(&t->told->lock);
    t->told->stats = t->count;
    pthread_mutex_unlock(&t->told->lock);
}

static void failed(struct qr_file_tier *t, const struct qr_err *err)
{
    const int64_t now_us = qr_clock_us();
    t->count.n_full += err->code == QR_E_NO_ROOM;
    t->count.n_bad_sum += err->code == QR_E_DAMAGED;
    t->count.n_failed += err->code != QR_E_NO_ROOM && err->code != QR_E_DAMAGED;
    if (t->warned_us == 0 || now_us - t->warned_us >= WARN_EVERY_US) {
        qr_log(QR_LOG_WARN, "exchange", "file tier goes on with what it has: %s dir=%s full=%" PRId64 " failed=%" PRId64 " bad=%" PRId64, err->msg,
               t->files.path, t->count.n_full, t->count.n_failed, t->count.n_bad_sum);
        t->warned_us = now_us;
    }
}

static bool write_one(struct qr_file_tier *t)
{
    struct qr_node *node = qr_list_pop_front(&t->writing);
    if (!node)
        return false;
    struct qr_parcel *parcel = QR_CONTAINER(node, struct qr_parcel, link);
    struct qr_err err;
    if (!qr_file_index_find(t->files.index, NULL, &parcel->name)) {
        if (qr_extents_put(&t->files, parcel, &err) != 0) {
            failed(t, &err);
        } else {
            t->count.blocks_written++;
            t->count.bytes_written += (int64_t)parcel->home->block_bytes;
        }
        tell(t);
    }
    qr_parcel_give_back(parcel);
    return true;
}

static void end_fetch(struct qr_file_tier *t, struct qr_fetch *f, const char *why)
{
    qr_list_remove(&f->link);
    f->why = why;
    qr_mailbox_push_urgent(&t->over, &f->link);
}

/* Block f->next into the parcel, which is f's then. False: it did not come. */
static bool read_block(struct qr_file_tier *t, struct qr_fetch *f, struct qr_parcel *parcel)
{
    struct qr_err err;
    parcel->name = f->names[f->next];
    const int rc = qr_extents_get(&t->files, parcel, &err);
    if (rc == 0) {
        t->count.blocks_read++;
        t->count.bytes_read += (int64_t)parcel->home->block_bytes;
        parcel->fetch = f;
        parcel->index = f->next;
    } else if (rc != QR_E_NOT_FOUND) {
        failed(t, &err);
    }
    tell(t);
    return rc == 0;
}

/* One block of the fetch whose turn it is. False: nothing can be done for any. */
static bool read_one(struct qr_file_tier *t)
{
    if (qr_list_empty(&t->fetching))
        return false;
    struct qr_fetch *f = QR_CONTAINER(t->fetching.next, struct qr_fetch, link);
    qr_list_remove(&f->link);
    qr_list_push_back(&t->fetching, &f->link);
    if (atomic_load(&f->stopped) || atomic_load(&t->closing)) {
        end_fetch(t, f, "stopped");
        return true;
    }
    if (f->next == f->n) {
        end_fetch(t, f, NULL);
        return true;
    }
    struct qr_parcel *parcel = qr_parcels_take(&t->from_disk, 0);
    if (!parcel)
        return false;
    if (!read_block(t, f, parcel)) {
        qr_parcel_give_back(parcel);
        end_fetch(t, f, "a block is not in the files any more");
        return true;
    }
    f->next++;
    atomic_store(&f->heard_us, qr_clock_us());
    qr_mailbox_push_urgent(&t->arrived, &parcel->link);
    return true;
}

static void *run(void *arg)
{
    struct qr_file_tier *t = arg;
    qr_thread_set_name("file-tier");
    for (bool busy = false, closing = false; !closing || busy;) {
        closing = atomic_load(&t->closing); /* nothing is given from now on */
        if (busy || closing)
            qr_mailbox_take(&t->given, &t->writing);
        else
            qr_mailbox_wait(&t->given, &t->writing, qr_list_empty(&t->fetching) ? -1 : LOOK_EVERY_US);
        qr_mailbox_take(&t->asked, &t->fetching);
        busy = false;
        for (int i = 0; i < READS_A_TURN; i++)
            busy = read_one(t) || busy;
        busy = write_one(t) || busy;
    }
    return NULL;
}

static void look(void *arg)
{
    struct qr_file_tier *t = arg;
    qr_mailbox_poke(&t->given);
}

/* ---- opening and closing ---- */

static int open_parcels(struct qr_parcels *p, const struct qr_file_tier_config *c, struct qr_err *err)
{
    const int rc = qr_parcels_open(p, c->n_parcels, c->block_bytes, false, err);
    p->n = rc == 0 ? p->n : 0;
    return rc;
}

/* The thread has ended, or was never started. */
static void release(struct qr_file_tier *t)
{
    if (t->from_disk.n > 0)
        qr_parcels_close(&t->from_disk);
    if (t->to_disk.n > 0)
        qr_parcels_close(&t->to_disk);
    qr_extents_close(&t->files);
    pthread_mutex_destroy(&t->told->lock);
    qr_free(t->told);
    qr_free(t);
}

static void start(struct qr_file_tier *t, const struct qr_file_tier_config *c)
{
    t->count.n_bad_sum = t->files.n_damaged;
    tell(t);
    t->to_disk.back = c->wake;
    t->to_disk.back_arg = c->wake_arg;
    t->from_disk.back = look;
    t->from_disk.back_arg = t;
    qr_mailbox_init(&t->given, c->n_parcels, NULL, NULL);
    qr_mailbox_init(&t->asked, 1, look, t); /* their number is the engine's to bound */
    qr_mailbox_init(&t->arrived, c->n_parcels, c->wake, c->wake_arg);
    qr_mailbox_init(&t->over, 1, c->wake, c->wake_arg);
    qr_list_init(&t->writing);
    qr_list_init(&t->fetching);
    qr_thread_start(&t->thread, run, t, "the file tier");
    qr_log(QR_LOG_INFO, "exchange", "file tier open dir=%s blocks=%d bytes=%" PRId64 " bytes_max=%" PRId64, t->files.path, qr_file_index_count(t->files.index),
           t->told->stats.bytes, t->files.bytes_max);
}

int qr_file_tier_open(struct qr_file_tier **out, const struct qr_file_tier_config *config, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && err != NULL);
    QR_ASSERT(config->dir != NULL && config->n_parcels >= 1);
    const struct qr_extent_form form = {.domain = config->domain, .block_bytes = config->block_bytes};
    struct qr_file_tier *t = qr_alloc(1, sizeof *t);
    t->told = qr_alloc(1, sizeof *t->told);
    pthread_mutex_init(&t->told->lock, NULL);
    int rc = qr_extents_open(&t->files, config->dir, config->bytes_max, &form, err);
    if (rc == 0)
        rc = open_parcels(&t->to_disk, config, err);
    if (rc == 0)
        rc = open_parcels(&t->from_disk, config, err);
    if (rc != 0) {
        release(t);
        return rc;
    }
    start(t, config);
    *out = t;
    return 0;
}

void qr_file_tier_close(struct qr_file_tier *t)
{
    if (!t)
        return;
    atomic_store(&t->closing, true);
    look(t);
    pthread_join(t->thread, NULL);
    struct qr_node left, *node;
    qr_list_init(&left);
    qr_mailbox_take(&t->arrived, &left);
    while ((node = qr_list_pop_front(&left)) != NULL)
        qr_parcel_give_back(QR_CONTAINER(node, struct qr_parcel, link));
    qr_mailbox_take(&t->over, &left);
    while (qr_list_pop_front(&left) != NULL) { /* the engine's again */
    }
    qr_mailbox_release(&t->given);
    qr_mailbox_release(&t->asked);
    qr_mailbox_release(&t->arrived);
    qr_mailbox_release(&t->over);
    release(t);
}

/* ---- the engine thread ---- */

int32_t qr_file_tier_find(const struct qr_file_tier *t, const struct qr_kv_name *names, int32_t first, int32_t n)
{
    QR_ASSERT(t != NULL && names != NULL);
    QR_ASSERT(first >= 0 && first <= n);
    int32_t i = first;
    while (i < n && qr_file_index_find(t->files.index, NULL, &names[i]))
        i++;
    return i - first;
}

bool qr_file_tier_has(const struct qr_file_tier *t, const struct qr_kv_name *name)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(name != NULL);
    return qr_file_index_find(t->files.index, NULL, name);
}

struct qr_parcel *qr_file_tier_parcel(struct qr_file_tier *t)
{
    QR_ASSERT(t != NULL);
    return qr_parcels_take(&t->to_disk, 0);
}

void qr_file_tier_write(struct qr_file_tier *t, struct qr_parcel *parcel)
{
    QR_ASSERT(t != NULL && parcel != NULL);
    QR_ASSERT(parcel->home == &t->to_disk);
    qr_mailbox_push_urgent(&t->given, &parcel->link);
}

void qr_file_tier_fetch(struct qr_file_tier *t, struct qr_fetch *f)
{
    QR_ASSERT(t != NULL && f != NULL);
    QR_ASSERT(f->names != NULL && f->first >= 0 && f->first <= f->n);
    f->next = f->first;
    atomic_store(&f->n_there, f->n - f->first);
    qr_mailbox_push_urgent(&t->asked, &f->link);
}

void qr_file_tier_take(struct qr_file_tier *t, struct qr_node *arrived, struct qr_node *over)
{
    QR_ASSERT(t != NULL && arrived != NULL);
    QR_ASSERT(over != NULL);
    qr_mailbox_take(&t->over, over); /* first: parcels of what is over have come */
    qr_mailbox_take(&t->arrived, arrived);
}

void qr_file_tier_stats(const struct qr_file_tier *t, struct qr_file_tier_stats *out)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(out != NULL);
    pthread_mutex_lock(&t->told->lock);
    *out = t->told->stats;
    pthread_mutex_unlock(&t->told->lock);
    out->n_blocks = qr_file_index_count(t->files.index);
}
