/* term.h - what a terminal program owes its terminal: know whether there is one, change its modes and give them back, and hear
 * of signals without handlers (signalfd), so that no path leaves the terminal changed.
 * One per process, on the main thread; no other thread may have these signals unblocked while it is open.
 */
#ifndef QR_CLIENT_TERM_H
#define QR_CLIENT_TERM_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <termios.h>

#include "base/buf.h"

enum qr_colour { QR_COLOUR_AUTO, QR_COLOUR_ALWAYS, QR_COLOUR_NEVER };

struct qr_term {
    bool in_tty, out_tty, err_tty; /* of descriptors 0, 1 and 2 */
    bool colour;           /* of what goes to stdout and stderr */
    int signal_fd;         /* readable when a signal came; see qr_term_signal */
    sigset_t old_mask;
    struct termios cooked; /* as it was found; valid when in_tty */
    bool quiet;
};

/* Sets LC_CTYPE to UTF-8, looks at the three descriptors, blocks SIGINT, SIGTERM, SIGHUP, SIGQUIT (and, with a terminal, SIGTSTP and SIGWINCH) and takes them
 * through signal_fd from now on. Colour is on in AUTO when stdout is a terminal, NO_COLOR is unset or empty and TERM is not dumb. */
void qr_term_open(struct qr_term *t, enum qr_colour colour);

/* Restores modes and signal mask. */
void qr_term_close(struct qr_term *t);

/* No echo and no line editing, so that what is typed during an answer waits instead of spoiling it. Ctrl-C stays a signal. */
void qr_term_quiet(struct qr_term *t);
void qr_term_restore(struct qr_term *t);

/* The next signal that came, or 0. Never waits. */
int qr_term_signal(struct qr_term *t);

/* What SIGTSTP asks for: stops this process until it is continued. The caller has put the terminal in order before. */
void qr_term_stop_self(void);

/* The same with the terminal given back meanwhile, and made quiet again if it was. */
void qr_term_suspend(struct qr_term *t);

/* The escape sequence for a colour name ("red", "dim", "bold", "cyan", "off") when colours are on, else "". */
const char *qr_term_style(const struct qr_term *t, const char *name);

/* Columns of the terminal at fd 1 or 2; 0 when there is none, or it does not say. Asked anew: a window may have changed. */
int32_t qr_term_columns(const struct qr_term *t, int fd);

/* Writes all of it to fd; false when the other side is gone. */
bool qr_term_write(int fd, const char *s, size_t n);

#endif
