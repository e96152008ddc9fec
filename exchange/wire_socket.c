#include <errno.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "exchange/wire.h"

union control { /* of one descriptor, but the system rounds up; it closes those that have no room */
    struct cmsghdr head;
    char bytes[CMSG_SPACE(sizeof(int))];
};

ssize_t qr_wire_socket_read(int fd, void *to, size_t n, int *memory)
{
    union control control = {0};
    struct iovec part = {.iov_base = to, .iov_len = n};
    struct msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
    if (memory) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
    }
    const ssize_t n_read = recvmsg(fd, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    struct cmsghdr *c = n_read >= 0 && memory ? CMSG_FIRSTHDR(&message) : NULL;
    const bool carries = c && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS;
    for (size_t at = CMSG_LEN(0); carries && at + sizeof(int) <= c->cmsg_len; at += sizeof(int)) { /* the last one is kept */
        if (*memory >= 0)
            close(*memory);
        memcpy(memory, (char *)c + at, sizeof *memory);
    }
    return n_read;
}

ssize_t qr_wire_socket_write(int fd, const struct iovec *part, int n_parts, int memory)
{
    union control control = {0};
    struct msghdr message = {.msg_iov = (struct iovec *)part, .msg_iovlen = (size_t)n_parts};
    if (memory >= 0) {
        message.msg_control = control.bytes;
        message.msg_controllen = sizeof control.bytes;
        struct cmsghdr *c = CMSG_FIRSTHDR(&message);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int));
        memcpy(CMSG_DATA(c), &memory, sizeof memory);
    }
    return sendmsg(fd, &message, MSG_DONTWAIT | MSG_NOSIGNAL);
}

int qr_wire_socket_connected(int fd)
{
    int why = 0;
    socklen_t len = sizeof why;
    return getsockopt(fd, SOL_SOCKET, SO_ERROR, &why, &len) == 0 ? why : errno;
}

void qr_wire_socket_close(int fd)
{
    close(fd);
}
