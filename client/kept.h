/* kept.h - conversations kept from one time to the next: a directory with a file for each (session.h), mode 0600.
 *
 * A conversation gets its file with its first answer, and the file is replaced as a whole after each one. The newest
 * QR_KEPT_MAX stay, of QR_KEPT_BYTES_MAX together; older ones are removed when a new one is written. Other files in
 * the directory are left alone. Two programs that continue the same conversation both write it: the later one stays.
 * One owning thread.
 */
#ifndef QR_CLIENT_KEPT_H
#define QR_CLIENT_KEPT_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#include "base/err.h"
#include "client/session.h"

#define QR_KEPT_MAX 50
#define QR_KEPT_BYTES_MAX ((int64_t)64 << 20)
#define QR_KEPT_ONE_BYTES_MAX ((int64_t)8 << 20)

struct qr_kept {
    char *dir;   /* owned; NULL: there is none, and nothing is kept */
    char *path;  /* owned: the file of the conversation at work; NULL: it has none yet */
    bool writes; /* false: conversations are read only */
};

struct qr_kept_file {
    char *path;          /* owned */
    struct timespec used; /* when it was written last */
    int64_t n_bytes;
};

struct qr_kept_list {
    struct qr_kept_file *file; /* owned [n], the newest first */
    int32_t n;
};

/* dir NULL or "": nothing is kept. */
void qr_kept_open(struct qr_kept *k, const char *dir, bool writes);
void qr_kept_close(struct qr_kept *k);

/* The conversation at work is a new one from now on. */
void qr_kept_begin(struct qr_kept *k);

/* Writes the conversation at work; one in which nothing is said (any more) has no file. Errors: QR_E_TOO_LARGE for more than QR_KEPT_ONE_BYTES_MAX; QR_E_IO. */
int qr_kept_save(struct qr_kept *k, const struct qr_session *s, struct qr_err *err);

void qr_kept_list(struct qr_kept_list *list, const struct qr_kept *k);
void qr_kept_list_release(struct qr_kept_list *list);

/* Reads the number-th newest one, from 1, into s; it is the one at work from now on. On an error nothing has changed. Errors: QR_E_NOT_FOUND
 * where there are fewer; those of qr_session_load. */
int qr_kept_load(struct qr_kept *k, struct qr_session *s, int64_t number, struct qr_err *err);

#endif
