#include "base/reach.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <stdio.h>

#include "base/assert.h"

static bool put(char out[QR_REACH_TEXT], const struct sockaddr *sa, int port)
{
    char ip[INET6_ADDRSTRLEN] = "";
    const bool six = sa->sa_family == AF_INET6;
    const void *at = six ? (const void *)&((const struct sockaddr_in6 *)sa)->sin6_addr : (const void *)&((const struct sockaddr_in *)sa)->sin_addr;
    out[0] = 0;
    if ((!six && sa->sa_family != AF_INET) || !inet_ntop(sa->sa_family, at, ip, sizeof ip))
        return false;
    snprintf(out, QR_REACH_TEXT, six ? "[%s]:%d" : "%s:%d", ip, port);
    return true;
}

static int port_of(const struct sockaddr *sa)
{
    return ntohs(sa->sa_family == AF_INET6 ? ((const struct sockaddr_in6 *)sa)->sin6_port : ((const struct sockaddr_in *)sa)->sin_port);
}

bool qr_reach_text(char out[QR_REACH_TEXT], const struct sockaddr *sa)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(sa != NULL);
    return put(out, sa, port_of(sa));
}

void qr_reach(char out[QR_REACH_TEXT], const struct sockaddr *bound)
{
    QR_ASSERT(out != NULL && bound != NULL);
    QR_ASSERT(bound->sa_family == AF_INET || bound->sa_family == AF_INET6);
    const bool all4 = bound->sa_family == AF_INET && ((const struct sockaddr_in *)bound)->sin_addr.s_addr == INADDR_ANY;
    const bool all6 = bound->sa_family == AF_INET6 && IN6_IS_ADDR_UNSPECIFIED(&((const struct sockaddr_in6 *)bound)->sin6_addr);
    struct ifaddrs *list = NULL;
    bool found = !all4 && !all6;
    if (found)
        qr_reach_text(out, bound);
    else
        snprintf(out, QR_REACH_TEXT, "127.0.0.1:%d", port_of(bound));
    if (found || getifaddrs(&list) != 0)
        return;
    for (struct ifaddrs *at = list; at && !found; at = at->ifa_next) {
        if (!at->ifa_addr || !(at->ifa_flags & IFF_UP) || (at->ifa_flags & IFF_LOOPBACK))
            continue;
        const bool six = all6 && at->ifa_addr->sa_family == AF_INET6 && !IN6_IS_ADDR_LINKLOCAL(&((struct sockaddr_in6 *)at->ifa_addr)->sin6_addr);
        found = (six || at->ifa_addr->sa_family == AF_INET) && put(out, at->ifa_addr, port_of(bound));
    }
    freeifaddrs(list);
}
