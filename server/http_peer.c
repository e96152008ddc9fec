#include "server/http_peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/ioctl.h>
#include <uv.h>

#include "base/assert.h"

static void read_address(struct qr_peer *p, const uv_tcp_t *tcp)
{
    struct sockaddr_storage ss;
    int len = sizeof ss;
    if (uv_tcp_getpeername(tcp, (struct sockaddr *)&ss, &len) != 0)
        return;
    if (ss.ss_family == AF_INET) {
        memcpy(p->address, &((struct sockaddr_in *)&ss)->sin_addr, 4);
        p->loopback = p->address[0] == 127;
    } else if (ss.ss_family == AF_INET6) {
        memcpy(p->address, &((struct sockaddr_in6 *)&ss)->sin6_addr, 16);
        p->loopback = IN6_IS_ADDR_LOOPBACK(&((struct sockaddr_in6 *)&ss)->sin6_addr);
    }
}

void qr_peer_open(struct qr_peer *p, void *stream)
{
    uv_os_fd_t fd;
    uv_stream_t *end = stream;
    const unsigned timeout_ms = 30000;
    QR_ASSERT(p != NULL);
    QR_ASSERT(end != NULL);
    *p = (struct qr_peer){.loopback = end->type == UV_NAMED_PIPE};
    if (end->type != UV_TCP)
        return;
    uv_tcp_t *tcp = stream;
    read_address(p, tcp);
    uv_tcp_nodelay(tcp, 1);
    uv_tcp_keepalive(tcp, 1, 30);
    if (uv_fileno(stream, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
}

bool qr_peer_has_sent(const void *stream)
{
    uv_os_fd_t fd;
    int n = 0;
    QR_ASSERT(stream != NULL);
    return uv_fileno(stream, &fd) == 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}
