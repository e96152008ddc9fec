/* file_tier.c - the file tier: a table of extents, an index of names, and one thread that reads and writes.
 *
 * Guarantee: a block that is handed out has the name that was asked for and the bytes that were written under it. All files together keep to the bound, at
 * whatever moment the process ends. The directory is this process's while it runs (flock on DIR/lock, which names it).
 *
 * Threads: after opening, extents are the tier's thread's. The engine thread looks names up under the index's short lock, and gives and takes by mailboxes.
 * Reading goes first, as a request waits for it, but for each few blocks that are read one is written. */
#include "exchange/file_tier.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/log.h"
#include "base/mailbox.h"
#include "base/mem.h"
#include "base/thread.h"
#include "exchange/extent.h"
#include "exchange/file_index.h"

enum { EXTENTS_WANTED = 32, EXTENTS_MIN = 4, READS_A_TURN = 4 };

#define EXTENT_BYTES_MIN (INT64_C(16) << 20)
#define DIR_BYTES (INT64_C(16) << 10) /* of the bound, for the directory and its lock */
#define WARN_EVERY_US INT64_C(60000000)
#define LOOK_EVERY_US 10000           /* whether a fetch that waits for a parcel is still wanted */

struct qr_file_tier {
    struct qr_extent_form form;
    char path[QR_PATH_MAX];
    int dir, lock;               /* owned */
    int64_t bytes_max;
    int32_t records_each;        /* room of a new extent */
    struct qr_extent extent[QR_FILE_EXTENTS_MAX];
    int32_t last;                /* that is appended to; -1: none */
    uint64_t number_next;
    struct qr_file_index *index; /* owned; any thread */
    struct qr_parcels to_disk, from_disk;
    struct qr_mailbox given, asked, arrived, over; /* parcels to write, fetches; parcels, fetches */
    struct qr_node writing, fetching;              /* what the thread has taken of `given` and `asked` */
    _Atomic bool closing;
    pthread_t thread;
    int64_t warned_us;
    struct qr_file_tier_stats count;               /* the thread's */
    pthread_mutex_t *count_lock;                   /* owned; of what any thread may read: */
    struct qr_file_tier_stats told;
};

/* ---- extents ---- */

static int64_t all_bytes(const struct qr_file_tier *t)
{
    int64_t n = DIR_BYTES;
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++)
        n += t->extent[i].fd >= 0 ? t->extent[i].bytes : 0;
    return n;
}

static int32_t free_place(const struct qr_file_tier *t)
{
    int32_t i = 0;
    while (i < QR_FILE_EXTENTS_MAX && t->extent[i].fd >= 0)
        i++;
    return i < QR_FILE_EXTENTS_MAX ? i : -1;
}

/* The extent that goes first: a foreign one, or the oldest; -1: there is none. */
static int32_t first_to_go(const struct qr_file_tier *t)
{
    int32_t best = -1;
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++) {
        const struct qr_extent *e = &t->extent[i], *b = best >= 0 ? &t->extent[best] : NULL;
        if (e->fd >= 0 && (!b || (e->foreign != b->foreign ? e->foreign : e->number < b->number)))
            best = i;
    }
    return best;
}

static int drop_one(struct qr_file_tier *t, struct qr_err *err)
{
    const int32_t i = first_to_go(t);
    QR_ASSERT(i >= 0);
    qr_file_index_drop(t->index, i);
    const int rc = qr_extent_remove(&t->extent[i], t->dir, err);
    t->count.n_extents_dropped += rc == 0;
    if (rc == 0 && t->last == i)
        t->last = -1;
    return rc;
}

/* Until n_bytes more keep to the bound and there is a place in the table. */
static int make_room(struct qr_file_tier *t, int64_t n_bytes, struct qr_err *err)
{
    int rc = 0;
    while (rc == 0 && first_to_go(t) >= 0 && (all_bytes(t) + n_bytes > t->bytes_max || free_place(t) < 0))
        rc = drop_one(t, err);
    return rc;
}

/* There is room for a record in the last extent. */
static int make_last(struct qr_file_tier *t, struct qr_err *err)
{
    if (t->last >= 0 && t->extent[t->last].n < t->extent[t->last].n_max)
        return 0;
    t->last = -1;
    int rc = make_room(t, qr_extent_bytes(t->form.block_bytes, t->records_each), err);
    const int32_t i = free_place(t);
    if (rc == 0)
        rc = qr_extent_make(&t->extent[i], t->dir, t->number_next++, &t->form, t->records_each, err);
    if (rc == 0)
        t->last = i;
    return rc;
}

/* ---- the thread ---- */

static void tell(struct qr_file_tier *t)
{
    t->count.bytes = 0;
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++) {
        const struct qr_extent *e = &t->extent[i];
        if (e->fd >= 0)
            t->count.bytes += e->foreign ? e->bytes : e->n * (int64_t)t->form.block_bytes;
    }
    pthread_mutex_lock(t->count_lock);
    t->told = t->count;
    pthread_mutex_unlock(t->count_lock);
}

static void failed(struct qr_file_tier *t, const struct qr_err *err)
{
    const int64_t now_us = qr_clock_us();
    t->count.n_full += err->code == QR_E_NO_ROOM;
    t->count.n_bad_sum += err->code == QR_E_DAMAGED;
    t->count.n_failed += err->code != QR_E_NO_ROOM && err->code != QR_E_DAMAGED;
    if (t->warned_us == 0 || now_us - t->warned_us >= WARN_EVERY_US) {
        qr_log(QR_LOG_WARN, "exchange", "file tier goes on with what it has: %s dir=%s full=%" PRId64 " failed=%" PRId64 " bad=%" PRId64, err->msg, t->path,
               t->count.n_full, t->count.n_failed, t->count.n_bad_sum);
        t->warned_us = now_us;
    }
}

static void write_block(struct qr_file_tier *t, struct qr_parcel *parcel)
{
    struct qr_err err;
    if (make_last(t, &err) != 0 || qr_extent_put(&t->extent[t->last], parcel, &err) != 0) {
        failed(t, &err);
        tell(t);
        return;
    }
    t->count.blocks_written++;
    t->count.bytes_written += (int64_t)t->form.block_bytes;
    tell(t); /* before it can be found */
    qr_file_index_add(t->index, &parcel->name, (struct qr_file_place){t->last, t->extent[t->last].n - 1});
}

static bool write_one(struct qr_file_tier *t)
{
    struct qr_node *node = qr_list_pop_front(&t->writing);
    if (!node)
        return false;
    struct qr_parcel *parcel = QR_CONTAINER(node, struct qr_parcel, link);
    if (!qr_file_index_find(t->index, NULL, &parcel->name))
        write_block(t, parcel);
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
    struct qr_file_place at;
    struct qr_err err;
    parcel->name = f->names[f->next];
    if (!qr_file_index_find(t->index, &at, &parcel->name))
        return false;
    if (qr_extent_get(&t->extent[at.extent], at.record, parcel, &err) != 0) {
        qr_file_index_forget(t->index, &parcel->name, at);
        failed(t, &err);
        tell(t);
        return false;
    }
    t->count.blocks_read++;
    t->count.bytes_read += (int64_t)t->form.block_bytes;
    tell(t);
    parcel->fetch = f;
    parcel->index = f->next;
    return true;
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
    struct qr_parcel *parcel = qr_parcels_take(&t->from_disk);
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

static int lock_dir(struct qr_file_tier *t, struct qr_err *err)
{
    char text[128], pid[24] = "";
    t->lock = openat(t->dir, "lock", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600);
    if (t->lock < 0)
        return qr_err_set(err, QR_E_IO, "%s/lock: cannot be opened: %s", t->path, qr_errno_text(text, errno));
    if (flock(t->lock, LOCK_EX | LOCK_NB) != 0) {
        const ssize_t n = pread(t->lock, pid, sizeof pid - 1, 0);
        return qr_err_set(err, QR_E_USAGE, "%s: process %ld keeps its blocks there, and one process has a directory; give another one", t->path,
                          n > 0 ? strtol(pid, NULL, 10) : 0);
    }
    const int n = snprintf(pid, sizeof pid, "%ld\n", (long)getpid());
    if (ftruncate(t->lock, 0) != 0 || pwrite(t->lock, pid, (size_t)n, 0) != n)
        return qr_err_set(err, QR_E_IO, "%s/lock: cannot be written: %s", t->path, qr_errno_text(text, errno));
    return 0;
}

/* How many records an extent has, so that there are some dozens of extents, or four where the bound is small. */
static int size_extents(struct qr_file_tier *t, const struct qr_file_tier_config *c, struct qr_err *err)
{
    const int64_t record_bytes = (int64_t)c->block_bytes + 64, all_max = record_bytes * QR_EXTENT_RECORDS_MAX, one = qr_extent_bytes(c->block_bytes, 1);
    t->bytes_max = c->bytes_max < all_max ? c->bytes_max : all_max; /* names are in memory */
    if (t->bytes_max < DIR_BYTES + EXTENTS_MIN * one)
        return qr_err_set(err, QR_E_USAGE, "%s: %" PRId64 " bytes are too few for blocks of %zu, expected at least %" PRId64, t->path, c->bytes_max,
                          c->block_bytes, DIR_BYTES + EXTENTS_MIN * one);
    const int64_t fit = t->bytes_max / EXTENT_BYTES_MIN, n = fit < EXTENTS_MIN ? EXTENTS_MIN : fit < EXTENTS_WANTED ? fit : EXTENTS_WANTED;
    const int64_t each = (t->bytes_max - DIR_BYTES) / n;
    t->records_each = (int32_t)(each / record_bytes);
    while (t->records_each > 1 && qr_extent_bytes(c->block_bytes, t->records_each) > each)
        t->records_each--; /* whole pages */
    return 0;
}

static int open_extent(struct qr_file_tier *t, uint64_t number, struct qr_err *err)
{
    if (number >= t->number_next)
        t->number_next = number + 1;
    const int rc = make_room(t, 0, err);
    const int32_t i = free_place(t);
    struct qr_err why;
    if (rc == 0 && qr_extent_open(&t->extent[i], t->dir, number, &t->form, &why) != 0)
        qr_log(QR_LOG_WARN, "exchange", "file tier: %s dir=%s", why.msg, t->path);
    return rc;
}

static int open_extents(struct qr_file_tier *t, struct qr_err *err)
{
    char text[128];
    const int fd = openat(t->dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *d = fd >= 0 ? fdopendir(fd) : NULL;
    if (!d)
        return qr_err_set(err, QR_E_IO, "%s: cannot be read: %s", t->path, qr_errno_text(text, errno));
    int rc = 0;
    uint64_t number;
    for (const struct dirent *e; rc == 0 && (e = readdir(d)) != NULL;)
        rc = qr_extent_number(e->d_name, &number) ? open_extent(t, number, err) : 0;
    closedir(d);
    return rc != 0 ? rc : make_room(t, 0, err);
}

struct found {
    struct qr_file_tier *t;
    int32_t extent;
};

static void enter(void *user, const struct qr_kv_name *name, int32_t record)
{
    const struct found *f = user;
    qr_file_index_add(f->t->index, name, (struct qr_file_place){f->extent, record});
}

static void scan_extents(struct qr_file_tier *t)
{
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++) {
        struct qr_extent *e = &t->extent[i];
        struct qr_err err;
        int32_t n_damaged;
        if (e->fd < 0 || e->foreign)
            continue;
        if (qr_extent_scan(e, enter, &(struct found){t, i}, &n_damaged, &err) != 0) {
            failed(t, &err);
            continue;
        }
        t->count.n_bad_sum += n_damaged;
        if (e->n < e->n_max && (t->last < 0 || e->number > t->extent[t->last].number))
            t->last = i;
    }
}

static int open_parcels(struct qr_parcels *p, const struct qr_file_tier_config *c, struct qr_err *err)
{
    const int rc = qr_parcels_open(p, c->n_parcels, c->block_bytes, false, err);
    p->n = rc == 0 ? p->n : 0;
    return rc;
}

static int start(struct qr_file_tier *t, const struct qr_file_tier_config *c, struct qr_err *err)
{
    char text[128];
    int rc = qr_dir_make_all(c->dir, 0700, err);
    if (rc == 0 && (t->dir = open(c->dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
        rc = qr_err_set(err, QR_E_IO, "%s: cannot be opened: %s", c->dir, qr_errno_text(text, errno));
    if (rc == 0)
        rc = size_extents(t, c, err);
    if (rc == 0)
        rc = lock_dir(t, err);
    if (rc != 0)
        return rc;
    qr_file_index_open(t->index, (int32_t)(t->bytes_max / ((int64_t)c->block_bytes + 64)) + 1);
    rc = open_extents(t, err);
    if (rc == 0)
        rc = open_parcels(&t->to_disk, c, err);
    return rc != 0 ? rc : open_parcels(&t->from_disk, c, err);
}

/* What was opened is closed; the thread has ended, or was never started. */
static void release(struct qr_file_tier *t)
{
    if (t->from_disk.n > 0)
        qr_parcels_close(&t->from_disk);
    if (t->to_disk.n > 0)
        qr_parcels_close(&t->to_disk);
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++)
        if (t->extent[i].fd >= 0)
            qr_extent_close(&t->extent[i]);
    if (t->index->n_max > 0)
        qr_file_index_close(t->index);
    if (t->lock >= 0)
        close(t->lock);
    if (t->dir >= 0)
        close(t->dir);
    pthread_mutex_destroy(t->count_lock);
    qr_free(t->count_lock);
    qr_free(t->index);
    qr_free(t);
}

int qr_file_tier_open(struct qr_file_tier **out, const struct qr_file_tier_config *config, struct qr_err *err)
{
    QR_ASSERT(out != NULL && config != NULL && err != NULL);
    QR_ASSERT(config->dir != NULL && config->n_parcels >= 1);
    struct qr_file_tier *t = qr_alloc(1, sizeof *t);
    t->form = (struct qr_extent_form){.domain = config->domain, .block_bytes = config->block_bytes};
    t->dir = t->lock = t->last = -1;
    for (int32_t i = 0; i < QR_FILE_EXTENTS_MAX; i++)
        t->extent[i].fd = -1;
    snprintf(t->path, sizeof t->path, "%s", config->dir);
    t->index = qr_alloc(1, sizeof *t->index);
    t->count_lock = qr_alloc(1, sizeof *t->count_lock);
    pthread_mutex_init(t->count_lock, NULL);
    const int rc = start(t, config, err);
    if (rc != 0) {
        release(t);
        return rc;
    }
    scan_extents(t);
    tell(t);
    t->from_disk.back = look;
    t->from_disk.back_arg = t;
    qr_mailbox_init(&t->given, config->n_parcels, NULL, NULL);
    qr_mailbox_init(&t->asked, 1, look, t); /* their number is the engine's to bound */
    qr_mailbox_init(&t->arrived, config->n_parcels, config->wake, config->wake_arg);
    qr_mailbox_init(&t->over, 1, config->wake, config->wake_arg);
    qr_list_init(&t->writing);
    qr_list_init(&t->fetching);
    qr_thread_start(&t->thread, run, t, "the file tier");
    qr_log(QR_LOG_INFO, "exchange", "file tier open dir=%s blocks=%d bytes=%" PRId64 " bytes_max=%" PRId64, t->path, qr_file_index_count(t->index), t->count.bytes,
           t->bytes_max);
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
    struct qr_node left;
    qr_list_init(&left);
    qr_mailbox_take(&t->over, &left); /* the engine's again */
    qr_list_init(&left);
    qr_mailbox_take(&t->arrived, &left);
    for (struct qr_node *node; (node = qr_list_pop_front(&left)) != NULL;)
        qr_parcel_give_back(QR_CONTAINER(node, struct qr_parcel, link));
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
    while (i < n && qr_file_index_find(t->index, NULL, &names[i]))
        i++;
    return i - first;
}

bool qr_file_tier_has(const struct qr_file_tier *t, const struct qr_kv_name *name)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(name != NULL);
    return qr_file_index_find(t->index, NULL, name);
}

struct qr_parcel *qr_file_tier_parcel(struct qr_file_tier *t)
{
    QR_ASSERT(t != NULL);
    return qr_parcels_take(&t->to_disk);
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
    pthread_mutex_lock(t->count_lock);
    *out = t->told;
    pthread_mutex_unlock(t->count_lock);
    out->n_blocks = qr_file_index_count(t->index);
}
