/* editor.h - one message from a terminal: line editing with history, completion, bracketed paste, and Ctrl-C as an answer rather than
 * a death (the only door to libedit). From new to free the terminal stays quiet (qr_term_quiet), so what is typed ahead waits. One
 * per terminal.
 */
#ifndef QR_CLIENT_EDITOR_H
#define QR_CLIENT_EDITOR_H

#include <stdbool.h>
#include <stddef.h>

#include "base/buf.h"
#include "client/line_history.h"
#include "client/term.h"

enum qr_edit_end {
    QR_EDIT_LINE,          /* a line was entered */
    QR_EDIT_EOF,           /* Ctrl-D on an empty line, or the terminal is gone */
    QR_EDIT_CLEARED,       /* Ctrl-C dropped what was typed */
    QR_EDIT_INTERRUPTED,   /* Ctrl-C on an empty line */
    QR_EDIT_KILLED,        /* SIGTERM, SIGHUP or SIGQUIT; qr_editor_signal says which */
};

struct qr_editor;

/* Offers completions of the line typed so far (up to the cursor): `add` is called with whole replacements of its last word. */
struct qr_completer {
    void (*complete)(void *arg, const char *line, size_t n, void (*add)(void *to, const char *word), void *to);
    void *arg; /* borrowed */
};

struct qr_editor *qr_editor_new(struct qr_term *term, struct qr_line_history *history, const struct qr_completer *completer);
void qr_editor_free(struct qr_editor *e);

/* Reads one line, without its line end, into *line (replaced). The line may have line feeds inside when text was pasted. */
enum qr_edit_end qr_editor_read(struct qr_editor *e, const char *prompt, struct qr_buf *line);

/* Makes a message (perhaps of several lines) reachable with the arrow keys, and keeps it in the history's file. */
void qr_editor_remember(struct qr_editor *e, const char *message);

int qr_editor_signal(const struct qr_editor *e);

#endif
