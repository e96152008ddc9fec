/* progress.h - one line on stderr that says how far a long piece of work is and how long the rest will take.
 *
 * Nothing is written where stderr is no terminal, nor in the first second. The line is drawn anew in its place at most ten
 * times a second, is never wider than the terminal, and is taken away at the end. One owning thread.
 */
#ifndef QR_BASE_PROGRESS_H
#define QR_BASE_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

struct qr_progress {
    const char *what;  /* borrowed: "loading" */
    int64_t began_us, shown_us; /* shown_us 0: nothing is on the screen */
    bool terminal;
};

void qr_progress_open(struct qr_progress *p, const char *what);
void qr_progress_end(struct qr_progress *p); /* the line is taken away */

/* "loading 41 %, 12s left". `progress` is a struct qr_progress, so that both serve as callbacks. */
void qr_progress_show(void *progress, uint64_t done, uint64_t total);
void qr_progress_show_bytes(void *progress, uint64_t done, uint64_t total); /* "loading 41 % of 3.2 GiB, 12s left" */

/* For lines of the caller's own: whether one is due, and the line itself. */
bool qr_progress_due(struct qr_progress *p);
void qr_progress_say(struct qr_progress *p, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

/* Seconds that the rest takes at the pace so far; 0 before anything is done. */
double qr_progress_left_s(const struct qr_progress *p, uint64_t done, uint64_t total);

/* "9s", "3m12s", "1h02m", "2d05h" */
#define QR_DURATION_TEXT 32
const char *qr_duration_text(char text[QR_DURATION_TEXT], double seconds);

#endif
