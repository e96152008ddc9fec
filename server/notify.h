/* notify.h - what a service manager hears of the server: systemd's protocol of datagrams to $NOTIFY_SOCKET (sd_notify(3)). Where there is no such socket
 * nothing is said. Loop thread.
 */
#ifndef QR_SERVER_NOTIFY_H
#define QR_SERVER_NOTIFY_H

#include <stdbool.h>
#include <stdint.h>

struct qr_notify {
    const char *path;                    /* borrowed from the environment; NULL: no manager listens */
    int64_t period_us;                   /* half of what the watchdog waits; 0: there is none */
    int64_t fed_us, status_us;
};

void qr_notify_init(struct qr_notify *n); /* from NOTIFY_SOCKET, WATCHDOG_USEC and WATCHDOG_PID */

/* One or several lines NAME=VALUE. A manager that does not read is not waited for. */
void qr_notify_say(const struct qr_notify *n, const char *text);

bool qr_notify_due(struct qr_notify *n, int64_t now_us);        /* the watchdog has to be fed now */
bool qr_notify_status_due(struct qr_notify *n, int64_t now_us); /* every 10 s a status is worth saying */

#endif
