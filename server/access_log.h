/* access_log.h - lines to a file, written by a thread of its own. The thread that puts a line never waits: what a file, or its reader, cannot take in time is
 * lost, and a line says how many were. The file is its owner's alone (0600) where it is made here. put and reopen: one thread, the loop's.
 */
#ifndef QR_SERVER_ACCESS_LOG_H
#define QR_SERVER_ACCESS_LOG_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define QR_ACCESS_LOG_BYTES (512 << 10) /* that wait for the thread; as many are being written */
#define QR_ACCESS_TIME 40

struct qr_access_log; /* opaque */

/* "-": stdout. Errors: QR_E_IO naming the file. */
int qr_access_log_open(struct qr_access_log **out, const char *path, struct qr_err *err);

/* Writes what waits, for up to two seconds where the file does not take it. NULL is fine. */
void qr_access_log_close(struct qr_access_log *l);

void qr_access_log_put(struct qr_access_log *l, const char *line, size_t n); /* its line feed included */

/* What comes next goes to the file that has the name then, as after logrotate moved the old one. Where it cannot be opened the old one stays. */
void qr_access_log_reopen(struct qr_access_log *l);

int64_t qr_access_log_lost(struct qr_access_log *l); /* lines, ever */

/* The time now: "2026-11-29T00:12:34.567Z". */
const char *qr_access_time(char out[QR_ACCESS_TIME]);

#endif
