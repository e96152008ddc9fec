#include "server/notify.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"

#define STATUS_US 10000000

void qr_notify_init(struct qr_notify *n)
{
    QR_ASSERT(n != NULL);
    const char *path = getenv("NOTIFY_SOCKET"), *wait = getenv("WATCHDOG_USEC"), *pid = getenv("WATCHDOG_PID");
    *n = (struct qr_notify){.path = path && (path[0] == '/' || path[0] == '@') ? path : NULL};
    if (n->path && wait && (!pid || strtoll(pid, NULL, 10) == getpid()))
        n->period_us = strtoll(wait, NULL, 10) / 2;
}

void qr_notify_say(const struct qr_notify *n, const char *text)
{
    struct sockaddr_un to = {.sun_family = AF_UNIX};
    QR_ASSERT(n != NULL);
    QR_ASSERT(text != NULL);
    const size_t len = n->path ? strlen(n->path) : 0;
    if (len == 0 || len >= sizeof to.sun_path)
        return;
    memcpy(to.sun_path, n->path, len);
    if (to.sun_path[0] == '@') /* a name outside the file system */
        to.sun_path[0] = 0;
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return;
    (void)sendto(fd, text, strlen(text), MSG_DONTWAIT | MSG_NOSIGNAL, (struct sockaddr *)&to, (socklen_t)(offsetof(struct sockaddr_un, sun_path) + len));
    close(fd);
}

static bool due(int64_t *last_us, int64_t period_us, int64_t now_us)
{
    if (period_us <= 0 || now_us - *last_us < period_us)
        return false;
    *last_us = now_us;
    return true;
}

bool qr_notify_due(struct qr_notify *n, int64_t now_us)
{
    QR_ASSERT(n != NULL);
    QR_ASSERT(now_us > 0);
    return due(&n->fed_us, n->period_us, now_us);
}

bool qr_notify_status_due(struct qr_notify *n, int64_t now_us)
{
    QR_ASSERT(n != NULL);
    QR_ASSERT(now_us > 0);
    return n->path && due(&n->status_us, STATUS_US, now_us);
}
