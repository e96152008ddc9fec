/* stream_client - N concurrent chat streams read by one thread, every byte of text checked against what the mock engine says.
 *
 *     stream_client PORT STREAMS TOKENS SCRIPT
 *
 * SCRIPT must need no JSON escapes and be one token per character. Prints one JSON line; exit status 0 when every stream was
 * complete and equal to the script.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

struct stream {
    int fd;
    int matched;         /* bytes of KEY seen */
    int inside;          /* within a content string */
    int done_matched;    /* bytes of DONE seen */
    int chunk_left;      /* body bytes of the HTTP chunk still to come; -1: reading its size; -2: in the head */
    int size, head_lf;   /* size being read; LFs in a row at the head's end */
    int skip;            /* CR LF after a chunk */
    long n_text, n_events;
    int done, closed, wrong;
    double last_s, gap_s;
};

static const char KEY[] = "\"content\":\"", DONE[] = "data: [DONE]\n\n";

static double now_s(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

/* One byte of the event stream itself. */
static void on_body(struct stream *s, char c, const char *script, long n_script)
{
    s->done_matched = c == DONE[s->done_matched] ? s->done_matched + 1 : c == DONE[0];
    if (s->done_matched == (int)sizeof DONE - 1) {
        s->done++;
        s->done_matched = 0;
    }
    if (s->inside) {
        if (c == '"') {
            s->inside = 0;
            s->n_events++;
        } else if (c != script[s->n_text++ % n_script]) {
            s->wrong = 1;
        }
        return;
    }
    s->matched = c == KEY[s->matched] ? s->matched + 1 : c == KEY[0];
    if (s->matched == (int)sizeof KEY - 1) {
        s->inside = 1;
        s->matched = 0;
    }
}

/* Takes the chunk framing off. */
static void on_byte(struct stream *s, char c, const char *script, long n_script)
{
    if (s->chunk_left == -2) {
        s->head_lf = c == '\n' ? s->head_lf + 1 : c == '\r' ? s->head_lf : 0;
        if (s->head_lf == 2)
            s->chunk_left = -1;
    } else if (s->skip > 0) {
        s->skip--;
    } else if (s->chunk_left == -1) {
        if (c == '\n') {
            s->chunk_left = s->size;
            s->size = 0;
        } else if (c != '\r') {
            s->size = s->size * 16 + (c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        }
        if (s->chunk_left == 0) {
            s->closed = 1;
            s->chunk_left = -1;
        }
    } else {
        on_body(s, c, script, n_script);
        if (--s->chunk_left == 0) {
            s->chunk_left = -1;
            s->skip = 2;
        }
    }
}

static void start(struct stream *s, int port, long tokens)
{
    char body[256], request[512];
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons((unsigned short)port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    int n_body = snprintf(body, sizeof body,
                          "{\"messages\":[{\"role\":\"user\",\"content\":\"go\"}],\"stream\":true,\"max_tokens\":%ld}", tokens);
    int n = snprintf(request, sizeof request,
                     "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                     "Content-Length: %d\r\n\r\n%s", n_body, body);
    s->fd = socket(AF_INET, SOCK_STREAM, 0);
    s->chunk_left = -2;
    if (s->fd < 0 || connect(s->fd, (struct sockaddr *)&to, sizeof to) != 0 || write(s->fd, request, (size_t)n) != n) {
        fprintf(stderr, "stream_client: %s\n", strerror(errno));
        exit(1);
    }
    fcntl(s->fd, F_SETFL, O_NONBLOCK);
}

static int read_some(struct stream *s, const char *script, long n_script)
{
    static char buf[65536];
    ssize_t n = read(s->fd, buf, sizeof buf);
    if (n <= 0)
        return n < 0 && errno == EAGAIN ? 0 : -1;
    double t = now_s();
    if (s->last_s > 0 && t - s->last_s > s->gap_s)
        s->gap_s = t - s->last_s;
    s->last_s = t;
    for (ssize_t i = 0; i < n; i++)
        on_byte(s, buf[i], script, n_script);
    return s->closed ? 1 : 0;
}

int main(int argc, char **argv)
{
    if (argc != 5)
        return 2;
    int port = atoi(argv[1]), n = atoi(argv[2]), left = n, ep = epoll_create1(0);
    long tokens = atol(argv[3]), n_script = (long)strlen(argv[4]), events = 0, wrong = 0;
    struct stream *s = calloc((size_t)n, sizeof *s);
    double begun = now_s(), gap = 0;
    for (int i = 0; i < n; i++) {
        start(&s[i], port, tokens);
        struct epoll_event ev = {.events = EPOLLIN, .data.u32 = (unsigned)i};
        epoll_ctl(ep, EPOLL_CTL_ADD, s[i].fd, &ev);
    }
    while (left > 0) {
        struct epoll_event ev[256];
        int got = epoll_wait(ep, ev, 256, 30000);
        if (got <= 0)
            break;
        for (int i = 0; i < got; i++) {
            struct stream *one = &s[ev[i].data.u32];
            if (read_some(one, argv[4], n_script) != 0) {
                epoll_ctl(ep, EPOLL_CTL_DEL, one->fd, NULL);
                close(one->fd);
                left--;
            }
        }
    }
    for (int i = 0; i < n; i++) {
        events += s[i].n_events - 1; /* the first one carries the role and an empty text */
        wrong += s[i].wrong || s[i].done != 1 || !s[i].closed || s[i].n_text != tokens;
        gap = s[i].gap_s > gap ? s[i].gap_s : gap;
    }
    printf("{\"streams\":%d,\"events\":%ld,\"wrong\":%ld,\"seconds\":%.3f,\"largest_gap_ms\":%.1f}\n", n, events, wrong, now_s() - begun, gap * 1e3);
    free(s);
    return left > 0 || wrong > 0;
}
