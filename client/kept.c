#include "client/kept.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"

#define NAME_END ".jsonl"
#define FILES_MAX 10000 /* more are left alone */

void qr_kept_open(struct qr_kept *k, const char *dir, bool writes)
{
    QR_ASSERT(k != NULL);
    *k = (struct qr_kept){.writes = writes};
    if (dir != NULL && dir[0] != '\0')
        k->dir = qr_strdup(dir);
}

void qr_kept_close(struct qr_kept *k)
{
    QR_ASSERT(k != NULL);
    qr_free(k->dir);
    qr_free(k->path);
    *k = (struct qr_kept){0};
}

void qr_kept_begin(struct qr_kept *k)
{
    QR_ASSERT(k != NULL);
    qr_free(k->path);
    k->path = NULL;
}

/* ---- the directory ---- */

/* Names that this module has given: digits and '-', then ".jsonl". */
static bool is_ours(const char *name)
{
    const size_t n = strspn(name, "0123456789-");
    return n > 0 && strcmp(name + n, NAME_END) == 0;
}

static int newest_first(const void *a, const void *b)
{
    const struct qr_kept_file *x = a, *y = b;
    if (x->used.tv_sec != y->used.tv_sec)
        return x->used.tv_sec > y->used.tv_sec ? -1 : 1;
    if (x->used.tv_nsec != y->used.tv_nsec)
        return x->used.tv_nsec > y->used.tv_nsec ? -1 : 1;
    return strcmp(y->path, x->path);
}

static void add_file(struct qr_kept_list *list, const char *dir, const char *name)
{
    struct qr_buf path = {0};
    struct stat st;
    qr_buf_printf(&path, "%s/%s", dir, name);
    if (lstat(path.data, &st) == 0 && S_ISREG(st.st_mode)) {
        if ((list->n & (list->n - 1)) == 0)
            list->file = qr_realloc(list->file, (size_t)(list->n ? list->n * 2 : 1), sizeof *list->file);
        list->file[list->n++] = (struct qr_kept_file){.path = qr_strdup(path.data), .used = st.st_mtim, .n_bytes = st.st_size};
    }
    qr_buf_release(&path);
}

void qr_kept_list(struct qr_kept_list *list, const struct qr_kept *k)
{
    QR_ASSERT(list != NULL);
    QR_ASSERT(k != NULL);
    *list = (struct qr_kept_list){0};
    DIR *dir = k->dir != NULL ? opendir(k->dir) : NULL;
    if (dir == NULL)
        return;
    for (const struct dirent *e; list->n < FILES_MAX && (e = readdir(dir)) != NULL;)
        if (is_ours(e->d_name))
            add_file(list, k->dir, e->d_name);
    closedir(dir);
    if (list->n > 0)
        qsort(list->file, (size_t)list->n, sizeof *list->file, newest_first);
}

void qr_kept_list_release(struct qr_kept_list *list)
{
    QR_ASSERT(list != NULL);
    QR_ASSERT(list->n >= 0);
    for (int32_t i = 0; i < list->n; i++)
        qr_free(list->file[i].path);
    qr_free(list->file);
    *list = (struct qr_kept_list){0};
}

/* The one at work was written a moment ago; whatever the clocks say, it stays. */
static void remove_old(const struct qr_kept *k)
{
    struct qr_kept_list list;
    int64_t n_bytes = 0;
    qr_kept_list(&list, k);
    for (int32_t i = 0; i < list.n; i++) {
        n_bytes += list.file[i].n_bytes;
        if ((i >= QR_KEPT_MAX || n_bytes > QR_KEPT_BYTES_MAX) && strcmp(list.file[i].path, k->path) != 0)
            unlink(list.file[i].path);
    }
    qr_kept_list_release(&list);
}

/* ---- one conversation ---- */

/* A name that is free: the time, the process and a number. */
static char *new_path(const char *dir)
{
    char when[32];
    struct tm tm;
    const time_t now = time(NULL);
    struct qr_buf path = {0};
    localtime_r(&now, &tm);
    strftime(when, sizeof when, "%Y%m%d-%H%M%S", &tm);
    for (int32_t i = 0; i == 0 || access(path.data, F_OK) == 0; i++) {
        qr_buf_clear(&path);
        qr_buf_printf(&path, "%s/%s-%ld-%d" NAME_END, dir, when, (long)getpid(), i);
    }
    char *name = qr_strdup(path.data);
    qr_buf_release(&path);
    return name;
}

int qr_kept_save(struct qr_kept *k, const struct qr_session *s, struct qr_err *err)
{
    QR_ASSERT(k != NULL && s != NULL);
    QR_ASSERT(err != NULL);
    int64_t n_bytes = 0;
    if (k->dir == NULL || !k->writes)
        return 0;
    if (qr_session_last(s, QR_ROLE_USER) == NULL) {
        if (k->path != NULL)
            unlink(k->path);
        qr_kept_begin(k);
        return 0;
    }
    for (int32_t i = 0; i < s->n; i++)
        n_bytes += (int64_t)s->message[i].len + (s->message[i].more != NULL ? (int64_t)strlen(s->message[i].more) : 0);
    if (n_bytes > QR_KEPT_ONE_BYTES_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "a conversation of %lld bytes is not kept, expected at most %lld; /save FILE writes it",
                          (long long)n_bytes, (long long)QR_KEPT_ONE_BYTES_MAX);
    if (k->path == NULL)
        k->path = new_path(k->dir);
    const int rc = qr_session_save(s, k->path, err);
    if (rc == 0)
        remove_old(k);
    return rc;
}

int qr_kept_load(struct qr_kept *k, struct qr_session *s, int64_t number, struct qr_err *err)
{
    QR_ASSERT(k != NULL && s != NULL);
    QR_ASSERT(err != NULL);
    struct qr_kept_list list;
    qr_kept_list(&list, k);
    int rc = 0;
    if (number < 1 || number > list.n)
        rc = list.n == 0 ? qr_err_set(err, QR_E_NOT_FOUND, "no conversation has been kept yet")
                         : qr_err_set(err, QR_E_NOT_FOUND, "there is no conversation %lld, expected 1 to %d", (long long)number, list.n);
    rc = rc ? rc : qr_session_load(s, list.file[number - 1].path, err);
    if (rc == 0) {
        qr_free(k->path);
        k->path = qr_strdup(list.file[number - 1].path);
    }
    qr_kept_list_release(&list);
    return rc;
}
