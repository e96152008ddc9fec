/* line_history.h - the lines typed at a prompt, kept from one time to the next in $XDG_STATE_HOME/quire/history, mode 0600.
 *
 * Each line is appended with one write, so sessions side by side lose nothing and a crash loses at most the last line. Line feeds and
 * backslashes are escaped. The file is cut back to its newest part when it has grown past QR_HISTORY_MAX lines or 16 MiB.
 */
#ifndef QR_CLIENT_LINE_HISTORY_H
#define QR_CLIENT_LINE_HISTORY_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/err.h"

#define QR_HISTORY_MAX 2000

struct qr_line_history {
    char **line; /* owned [n] */
    int32_t n, cap;
    char *path;  /* owned; NULL: not kept */
};

/* $XDG_STATE_HOME/quire/NAME or ~/.local/state/quire/NAME; empty when there is no home. Makes the directories (0700) before NAME's last '/'. */
void qr_state_path(struct qr_buf *out, const char *name);

/* path NULL or "": nothing is read or kept. A file that cannot be read starts an empty history. */
void qr_history_open(struct qr_line_history *h, const char *path);
void qr_history_close(struct qr_line_history *h);

/* Adds a line unless it is empty or the same as the last one; false when it was not added. QR_E_IO goes unreported: a conversation does
 * not stop because its history cannot be kept. */
bool qr_history_add(struct qr_line_history *h, const char *line);

#endif
