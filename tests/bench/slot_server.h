/* slot_server.h - a server that answers one request at a time, each after the same time, so that its limit is known exactly: 1/time
 * requests a second, whatever the load. A process of its own, loopback only; one connection per request. For tests/bench.
 */
#ifndef QR_TESTS_SLOT_SERVER_H
#define QR_TESTS_SLOT_SERVER_H

#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

struct slot_server {
    int32_t port;
    pid_t pid;
};

/* Reads a whole request; false when the client left before. */
static inline bool slot_read(int fd, char *in, size_t cap)
{
    size_t n = 0;
    for (;;) {
        ssize_t got = read(fd, in + n, cap - 1 - n);
        if (got <= 0)
            return false;
        n += (size_t)got;
        in[n] = '\0';
        const char *end = strstr(in, "\r\n\r\n"), *length = strcasestr(in, "\r\ncontent-length:");
        if (end != NULL && n >= (size_t)(end - in) + 4 + (length != NULL && length < end ? (size_t)atol(length + 17) : 0))
            return true;
    }
}

static inline void slot_put(int fd, const char *text)
{
    for (size_t n = strlen(text); n > 0;) {
        ssize_t put = write(fd, text, n);
        if (put <= 0)
            return;
        text += put;
        n -= (size_t)put;
    }
}

static inline void slot_answer(int fd, const char *in, int64_t service_us)
{
    const char *asked = strstr(in, "\"max_tokens\":");
    char usage[200];
    if (strncmp(in, "GET ", 4) == 0) {
        slot_put(fd, "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nConnection: close\r\n\r\n{\"object\":\"list\",\"data\":[{\"id\":"
                     "\"slot\",\"object\":\"model\"}]}");
        return;
    }
    usleep((useconds_t)service_us);
    slot_put(fd, "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n");
    int n = asked != NULL ? atoi(asked + 13) : 1;
    for (int i = 0; i < n; i++)
        slot_put(fd, "data: {\"choices\":[{\"index\":0,\"text\":\"tok\",\"finish_reason\":null}]}\n\n");
    slot_put(fd, "data: {\"choices\":[{\"index\":0,\"text\":\"\",\"finish_reason\":\"length\"}]}\n\n");
    snprintf(usage, sizeof usage, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":5,\"completion_tokens\":%d,\"total_tokens\":%d}}\n\ndata: [DONE]\n\n",
             n, n + 5);
    slot_put(fd, usage);
}

static inline struct slot_server slot_start(int64_t service_us)
{
    struct slot_server s = {0};
    struct sockaddr_in addr = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t len = sizeof addr;
    int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (listener < 0 || bind(listener, (struct sockaddr *)&addr, len) != 0 || listen(listener, 1024) != 0 ||
        getsockname(listener, (struct sockaddr *)&addr, &len) != 0)
        abort();
    s.port = ntohs(addr.sin_port);
    s.pid = fork();
    if (s.pid < 0)
        abort();
    if (s.pid == 0) {
        char *in = malloc(1 << 16);
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        signal(SIGPIPE, SIG_IGN);
        for (int fd; in != NULL && (fd = accept(listener, NULL, NULL)) >= 0; close(fd))
            if (slot_read(fd, in, 1 << 16))
                slot_answer(fd, in, service_us);
        _exit(1);
    }
    close(listener);
    return s;
}

static inline void slot_stop(struct slot_server s)
{
    kill(s.pid, SIGKILL);
    waitpid(s.pid, NULL, 0);
}

#endif
