/* packed_cache.c - packed weights in a file, so that the next start maps what this one packed.
 *
 * A copy's name is made of the model's files and of what it was packed for; its header holds the whole key and a hash of all
 * bytes. It is written beside its name, under a name with the writer's process id, and moved there when it is complete.
 * Guarantee: a copy that is cut, damaged, older than its files or another program's is never used, and no failure here
 * ends a start.
 * Thread: the one that opens the model; bytes are hashed by the backend's pool. */
#include "loader/pack/packed_cache.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/build_id.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/mem.h"
#include "base/size.h"
#include "loader/config/hf_config.h"
#include "loader/stores/tensor_files_parts.h"

#define PIECE_BYTES ((size_t)4 << 20)      /* hashed by a thread at a time */
#define HEAD_BYTES ((size_t)64 << 10)      /* of a source file that identify it */
#define SAMPLES 64                         /* and stretches of it at equal distances */
#define SAMPLE_BYTES ((size_t)4 << 10)
#define MAGIC "quire packed weights 1\n"
#define TAIL ".packed"
#define NEW_TAIL ".new-"
#define PLACE_AT sizeof ((struct qr_packed_key *)0)->text /* in the header, behind the key */

_Static_assert(PLACE_AT + sizeof ((struct qr_packed_key *)0)->place + sizeof(uint64_t) <= QR_PACKED_HEADER_BYTES, "key, place and hash fit into the header");

/* ---- the key ---- */

/* All source files; and without what changes when a file is written again, for the copy's name. */
static void hash_sources(uint64_t *files, uint64_t *name, const struct qr_tensor_files *st)
{
    *files = *name = 0;
    for (int32_t i = 0; i < st->n_shards; i++) {
        const struct qr_tensor_file *f = &st->shard[i];
        const size_t n_head = f->map.n_bytes < HEAD_BYTES ? f->map.n_bytes : HEAD_BYTES;
        const uint64_t facts[2] = {f->map.n_bytes, (uint64_t)f->map.changed_ns};
        *name = qr_hash64(f->name, strlen(f->name), *name);
        *name = qr_hash64(f->map.data, n_head, *name);
        for (size_t k = 1; k < SAMPLES; k++) { /* numbers, too: a model and what was trained from it have the same header */
            const size_t at = f->map.n_bytes / SAMPLES * k, left = f->map.n_bytes - at;
            *name = qr_hash64(f->map.data + at, left < SAMPLE_BYTES ? left : SAMPLE_BYTES, *name);
        }
        *files = qr_hash64(facts, sizeof facts, *files ^ *name);
    }
}

void qr_packed_key_make(struct qr_packed_key *key, const char *dir, const struct qr_tensor_files *st, const struct qr_share *share, const char *kernels,
                        enum qr_dtype to, size_t n_bytes)
{
    QR_ASSERT(key != NULL && dir != NULL && st != NULL);
    QR_ASSERT(share != NULL && kernels != NULL);
    char build[QR_BUILD_ID_TEXT];
    struct qr_buf config = {0};
    uint64_t files, name;
    qr_hf_config_write(&config, &share->whole);
    hash_sources(&files, &name, st);
    snprintf(key->text, sizeof key->text, MAGIC "build %s\nkernels %s\ntype %s\nrank %d of %d\nconfig %016" PRIx64 "\nfiles %016" PRIx64 "\nbytes %zu\n",
             qr_build_id(build), kernels, qr_dtype_name(to), share->rank, share->size,
             qr_hash64(config.data, config.len, qr_hash64(&share->whole.quant, sizeof share->whole.quant, 0)), files, n_bytes);
    qr_buf_release(&config);
    if (snprintf(key->path, sizeof key->path, "%s/%016" PRIx64 "-%s-%s-%d-of-%d" TAIL, dir, name, kernels, qr_dtype_name(to), share->rank, share->size) >=
            (int)sizeof key->path - 32 || !build[0])
        key->path[0] = 0;
    snprintf(key->place, sizeof key->place, "%s", st->place && strlen(st->place) < sizeof key->place ? st->place : "");
    mkdir(dir, 0700); /* what is wrong with it, opening or writing says */
}

/* ---- the hash ---- */

struct hashing {
    const struct qr_map_file *map; /* NULL: memory */
    const uint8_t *at;
    size_t n_bytes;
    uint64_t *piece;
};

static void hash_item(const void *arg, int32_t item, int32_t worker)
{
    const struct hashing *h = arg;
    const size_t at = (size_t)item * PIECE_BYTES, n = h->n_bytes - at < PIECE_BYTES ? h->n_bytes - at : PIECE_BYTES;
    (void)worker;
    if (h->map)
        (void)qr_map_file_populate(h->map, QR_PACKED_HEADER_BYTES + at, n);
    h->piece[item] = qr_hash64(h->at + at, n, (uint64_t)item);
}

static uint64_t hash_region(const void *region, size_t n_bytes, const struct qr_map_file *map, struct qr_backend *be)
{
    const size_t n = (n_bytes + PIECE_BYTES - 1) / PIECE_BYTES;
    QR_ASSERT(n > 0 && n < INT32_MAX);
    const struct hashing h = {.map = map, .at = region, .n_bytes = n_bytes, .piece = qr_alloc(n, sizeof *h.piece)};
    qr_backend_run(be, hash_item, &h, (int32_t)n);
    const uint64_t hash = qr_hash64(h.piece, n * sizeof *h.piece, n_bytes);
    qr_free(h.piece);
    return hash;
}

/* ---- what is out of date ---- */

/* Whether two keys have the same line "WHAT ...". */
static bool says_same(const char *a, const char *b, const char *what)
{
    const char *x = strstr(a, what), *y = strstr(b, what);
    const size_t n = x ? strcspn(x, "\n") : 0;
    return n > 0 && y && strcspn(y, "\n") == n && memcmp(x, y, n) == 0;
}

/* A name that copies have; *pid becomes that of who writes it, 0 for one that is written. */
static bool is_copy_name(const char *name, long *pid)
{
    const char *tail = strstr(name, TAIL);
    if (strspn(name, "0123456789abcdef") != 16 || name[16] != '-' || !tail)
        return false;
    tail += strlen(TAIL);
    *pid = 0;
    if (*tail == 0)
        return true;
    if (strncmp(tail, NEW_TAIL, strlen(NEW_TAIL)) != 0)
        return false;
    tail += strlen(NEW_TAIL);
    *pid = strtol(tail, NULL, 10);
    return *pid > 0 && *pid < INT32_MAX && tail[strspn(tail, "0123456789")] == 0;
}

static bool is_gone(long pid)
{
    return pid == getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH); /* our own has not begun yet */
}

static bool is_out_of_date(int fd, const char *name, long pid, const struct qr_packed_key *key)
{
    char header[QR_PACKED_HEADER_BYTES + 1] = "";
    struct stat st;
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode) || st.st_uid != geteuid() || pread(fd, header, QR_PACKED_HEADER_BYTES, 0) < 0)
        return false;
    if (memcmp(header, MAGIC, sizeof MAGIC - 1) != 0 && !(pid && st.st_size == 0))
        return false;
    if (pid)
        return is_gone(pid) && flock(fd, LOCK_EX | LOCK_NB) == 0;
    const char *own = strrchr(key->path, '/') + 1;
    header[PLACE_AT - 1] = 0;
    if (strcmp(name, own) == 0) /* read and replaced by itself */
        return false;
    if (strncmp(name, own, 16) == 0)
        return !says_same(header, key->text, "build ") || !says_same(header, key->text, "files ");
    return key->place[0] && strncmp(header + PLACE_AT, key->place, sizeof key->place) == 0;
}

void qr_packed_tidy(const struct qr_packed_key *key)
{
    QR_ASSERT(key != NULL);
    char dir[sizeof key->path];
    int32_t n = 0;
    int64_t n_bytes = 0;
    if (!key->path[0])
        return;
    snprintf(dir, sizeof dir, "%s", key->path);
    *strrchr(dir, '/') = 0;
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        long pid;
        struct stat st;
        const int fd = is_copy_name(e->d_name, &pid) ? openat(dirfd(d), e->d_name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK) : -1;
        if (fd < 0)
            continue;
        if (is_out_of_date(fd, e->d_name, pid, key) && fstat(fd, &st) == 0 && unlinkat(dirfd(d), e->d_name, 0) == 0) {
            n++;
            n_bytes += st.st_size;
        }
        close(fd);
    }
    if (d)
        closedir(d);
    if (n > 0)
        qr_log(QR_LOG_INFO, "loader", "packed copies out of date or half written removed n=%d bytes=%lld dir=%s", n, (long long)n_bytes, dir);
}

/* ---- reading ---- */

/* Why a file is no copy to be used; NULL: it is one. */
static const char *fault(const struct qr_map_file *f, const struct qr_packed_key *key, size_t n_bytes, struct qr_backend *be)
{
    const size_t n_text = strlen(key->text);
    struct stat st;
    uint64_t hash;
    if (stat(key->path, &st) != 0 || st.st_uid != geteuid() || (st.st_mode & (S_IWGRP | S_IWOTH)))
        return "others may write it";
    if (f->n_bytes < QR_PACKED_HEADER_BYTES || memcmp(f->data, MAGIC, sizeof MAGIC - 1) != 0)
        return "it is no packed copy";
    if (memcmp(f->data, key->text, n_text + 1) != 0)
        return "it is of another program, model or time";
    if (f->n_bytes != QR_PACKED_HEADER_BYTES + n_bytes)
        return "it is cut";
    memcpy(&hash, f->data + QR_PACKED_HEADER_BYTES - sizeof hash, sizeof hash);
    return hash == hash_region(f->data + QR_PACKED_HEADER_BYTES, n_bytes, f, be) ? NULL : "its bytes are not those that were written";
}

bool qr_packed_map(struct qr_map_file *out, const struct qr_packed_key *key, size_t n_bytes, struct qr_backend *be)
{
    QR_ASSERT(out != NULL && key != NULL);
    QR_ASSERT(be != NULL && n_bytes > 0);
    struct qr_err err = {0};
    *out = (struct qr_map_file){0};
    if (!key->path[0])
        return false;
    int rc = qr_map_file_open(out, key->path, SIZE_MAX, &err);
    if (rc == QR_E_NOT_FOUND)
        return false;
    const char *why = rc ? err.msg : fault(out, key, n_bytes, be);
    if (!why) {
        qr_log(QR_LOG_INFO, "loader", "packed copy used path=%s bytes=%zu", key->path, n_bytes);
        return true;
    }
    qr_log(QR_LOG_WARN, "loader", "packed copy not used, %s: %s", why, key->path);
    if (!rc)
        qr_map_file_close(out);
    return false;
}

/* ---- writing ---- */

static int write_copy(const struct qr_packed_key *key, const char *path, const void *region, size_t n_bytes, struct qr_backend *be, struct qr_err *err)
{
    uint8_t header[QR_PACKED_HEADER_BYTES] = {0};
    const uint64_t hash = hash_region(region, n_bytes, NULL, be);
    struct qr_file_out f;
    memcpy(header, key->text, strlen(key->text));
    memcpy(header + PLACE_AT, key->place, strlen(key->place));
    memcpy(header + sizeof header - sizeof hash, &hash, sizeof hash);
    int rc = qr_file_out_open(&f, path, err);
    if (rc)
        return rc;
    flock(f.fd, LOCK_EX | LOCK_NB); /* a process in another container sees the lock, to which our pid means nothing */
    if ((rc = qr_file_out_put(&f, header, sizeof header, err)) || (rc = qr_file_out_put(&f, region, n_bytes, err)))
        qr_file_out_abandon(&f);
    else
        rc = qr_file_out_close(&f, false, err); /* not waited for: what a crash leaves of it, the hash finds */
    if (!rc && (chmod(path, 0600) != 0 || rename(path, key->path) != 0))
        rc = qr_err_set(err, QR_E_IO, "%s: %s", key->path, strerror(errno));
    return rc;
}

/* The file, and a 16th of it: file systems' own records take under a hundredth, and others write meanwhile. A disk that fills all the same makes writing
 * fail, and nothing is kept. */
static uint64_t room_needed(size_t n_bytes)
{
    const uint64_t file = QR_PACKED_HEADER_BYTES + (uint64_t)n_bytes;
    return file + file / 16;
}

void qr_packed_keep(const struct qr_packed_key *key, const void *region, size_t n_bytes, struct qr_backend *be)
{
    QR_ASSERT(key != NULL && region != NULL);
    QR_ASSERT(be != NULL && n_bytes > 0);
    char path[sizeof key->path + 32], dir[sizeof key->path];
    struct statvfs disk;
    struct qr_err err = {0};
    if (!key->path[0]) {
        qr_log(QR_LOG_WARN, "loader", "no packed copy is kept: the program has no build id, or the path is too long");
        return;
    }
    snprintf(dir, sizeof dir, "%s", key->path);
    *strrchr(dir, '/') = 0;
    snprintf(path, sizeof path, "%s" NEW_TAIL "%ld", key->path, (long)getpid());
    char t[2][QR_SIZE_TEXT];
    int rc = statvfs(dir, &disk) != 0 ? qr_err_set(&err, QR_E_IO, "%s: %s", dir, strerror(errno)) : 0;
    const uint64_t room = rc ? 0 : (uint64_t)disk.f_bavail * disk.f_frsize, needed = room_needed(n_bytes);
    if (!rc && room < needed)
        rc = qr_err_set(&err, QR_E_NO_ROOM, "%s has %s free, expected %s", dir, qr_size_text(t[0], (int64_t)room), qr_size_text(t[1], (int64_t)needed));
    if (!rc && (rc = write_copy(key, path, region, n_bytes, be, &err)))
        unlink(path);
    if (rc)
        qr_log(QR_LOG_WARN, "loader", "no packed copy is kept: %s", err.msg);
    else
        qr_log(QR_LOG_INFO, "loader", "packed copy kept path=%s bytes=%zu", key->path, n_bytes);
}
