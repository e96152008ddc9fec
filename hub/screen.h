/* screen.h - what a person sees of a fetch, on stderr: on a terminal one line with the time that is left, elsewhere a line for each file that has come. */
#ifndef QR_HUB_SCREEN_H
#define QR_HUB_SCREEN_H

#include "base/progress.h"
#include "hub/fetch.h"

struct qr_hub_screen {
    const char *command;              /* borrowed: begins plain lines */
    const struct qr_hub_fetch *fetch; /* borrowed [n] */
    bool *told;                       /* owned [n]: it has its line */
    int32_t n;
    int64_t total, before;            /* bytes of all, and those that were there */
    int64_t told_us;
    struct qr_progress progress;
};

void qr_hub_screen_open(struct qr_hub_screen *s, const char *command, const struct qr_hub_fetch *fetch, int32_t n);
void qr_hub_screen_tick(void *screen);
void qr_hub_screen_close(struct qr_hub_screen *s); /* the line is taken away */
int64_t qr_hub_screen_got(const struct qr_hub_screen *s);

#endif
