#include "server/http_peer.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <uv.h>

#include "base/assert.h"

static struct qr_address read_address(const uv_tcp_t *tcp)
{
    struct sockaddr_storage ss;
    int len = sizeof ss;
    if (uv_tcp_getpeername(tcp, (struct sockaddr *)&ss, &len) != 0)
        return (struct qr_address){0};
    if (ss.ss_family == AF_INET)
        return qr_address_of(&((struct sockaddr_in *)&ss)->sin_addr, 4);
    return ss.ss_family == AF_INET6 ? qr_address_of(&((struct sockaddr_in6 *)&ss)->sin6_addr, 16) : (struct qr_address){0};
}

struct qr_address qr_peer_open(void *stream)
{
    uv_os_fd_t fd;
    uv_stream_t *end = stream;
    const unsigned timeout_ms = 30000;
    QR_ASSERT(end != NULL);
    if (end->type != UV_TCP)
        return (struct qr_address){0};
    uv_tcp_t *tcp = stream;
    uv_tcp_nodelay(tcp, 1);
    uv_tcp_keepalive(tcp, 1, 30);
    if (uv_fileno(stream, &fd) == 0)
        setsockopt(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms, sizeof timeout_ms);
    return read_address(tcp);
}

bool qr_peer_has_sent(const void *stream)
{
    uv_os_fd_t fd;
    int n = 0;
    QR_ASSERT(stream != NULL);
    return uv_fileno(stream, &fd) == 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0;
}
