#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include "base/assert.h"
#include "exchange/wire.h"

enum { BACKLOG = 64 };

static int parse(struct qr_wire_place *place, const char *text, struct qr_err *err)
{
    const struct sockaddr_un sa = {0};
    if (!*text || strlen(text) >= sizeof sa.sun_path)
        return qr_err_set(err, QR_E_USAGE, "'unix:%s': a path of %zu bytes; a socket's has from 1 to %zu", text, strlen(text), sizeof sa.sun_path - 1);
    memcpy(place->host, text, strlen(text));
    place->local = true;
    return 0;
}

static struct sockaddr_un address_of(const struct qr_wire_place *place)
{
    struct sockaddr_un sa = {.sun_family = AF_UNIX};
    memcpy(sa.sun_path, place->host, strlen(place->host));
    return sa;
}

/* A socket that no process answers is what a killed one has left: it goes. */
static int make_way(const struct qr_wire_place *place, struct qr_err *err)
{
    const struct sockaddr_un sa = address_of(place);
    struct stat st;
    if (lstat(place->host, &st) != 0)
        return 0;
    if (!S_ISSOCK(st.st_mode))
        return qr_err_set(err, QR_E_BIND, "cannot listen to peers on '%s': it exists and is not a socket; name another path", place->text);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    const bool dead = fd >= 0 && connect(fd, (const struct sockaddr *)&sa, sizeof sa) != 0 && errno == ECONNREFUSED;
    if (fd >= 0)
        close(fd);
    if (!dead || unlink(place->host) != 0)
        return qr_err_set(err, QR_E_BIND, "cannot listen to peers on '%s': another process does; stop it, or name another path", place->text);
    return 0;
}

static int listen_unix(struct qr_wire_place *place, struct qr_err *err)
{
    const struct sockaddr_un sa = address_of(place);
    const int rc = make_way(place, err);
    if (rc != 0)
        return rc;
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && bind(fd, (const struct sockaddr *)&sa, sizeof sa) == 0) {
        if (chmod(place->host, 0600) == 0 && listen(fd, BACKLOG) == 0) /* in this order: nothing has connected with other rights */
            return fd;
        unlink(place->host);
    }
    const int why = errno;
    if (fd >= 0)
        close(fd);
    return qr_err_set(err, QR_E_BIND, "cannot listen to peers on '%s': %s; name another path", place->text, strerror(why));
}

static void unlisten(struct qr_wire_place *place, int fd)
{
    unlink(place->host);
    close(fd);
}

static int accept_unix(int listener)
{
    return accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC);
}

static int connect_unix(struct qr_wire_place *place, const char **why)
{
    const struct sockaddr_un sa = address_of(place);
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd >= 0 && connect(fd, (const struct sockaddr *)&sa, sizeof sa) == 0)
        return fd;
    *why = errno == EACCES ? "the socket is another user's" : "nothing listens there";
    if (fd >= 0)
        close(fd);
    return -1;
}

const struct qr_wire qr_wire_unix = {
    .prefix = "unix:",
    .passes_memory = true,
    .parse = parse,
    .listen = listen_unix,
    .unlisten = unlisten,
    .accept = accept_unix,
    .connect = connect_unix,
    .connected = qr_wire_socket_connected,
    .read = qr_wire_socket_read,
    .write = qr_wire_socket_write,
    .close = qr_wire_socket_close,
};
