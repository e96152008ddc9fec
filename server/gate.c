/* gate.c - a state machine over the bytes of a request's head, line by line. It refuses whatever two HTTP parsers could
 * read differently, with the status that the client gets. The verdict depends on the bytes only, never on how they were
 * cut into reads (tests/fuzz/fuzz_http.c). No allocation, no I/O; the state is the connection's. Loop thread. */
#include "server/gate.h"

#include <string.h>
#include <strings.h>

#include "base/assert.h"

static enum qr_gate_verdict refuse(struct qr_gate *g, int32_t status, const char *why)
{
    g->status = status;
    g->why = why;
    return QR_GATE_REFUSE;
}

bool qr_is_token_byte(unsigned char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true;
    return c != 0 && strchr("!#$%&'*+-.^_`|~", c) != NULL;
}

static bool is_host_byte(unsigned char c)
{
    if ((c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z'))
        return true;
    return c != 0 && strchr("-._~!$&'()*+,;=%:[]", c) != NULL;
}

static bool is_known_method(const char *s, size_t n)
{
    static const char *const known[] = {"GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE", "CONNECT"};
    for (int i = 0; i < QR_COUNT(known); i++)
        if (strlen(known[i]) == n && memcmp(known[i], s, n) == 0)
            return true;
    return false;
}

static enum qr_gate_verdict check_version(struct qr_gate *g, const char *s, size_t n)
{
    if (n == 8 && memcmp(s, "HTTP/1.", 7) == 0 && (s[7] == '0' || s[7] == '1')) {
        g->http10 = s[7] == '0';
        return QR_GATE_PASS;
    }
    if (n == 8 && memcmp(s, "HTTP/", 5) == 0 && s[6] == '.')
        return refuse(g, 505, "This server speaks HTTP/1.1 and HTTP/1.0.");
    return refuse(g, 400, "The request line must be METHOD SP TARGET SP HTTP/1.1.");
}

static enum qr_gate_verdict check_host(struct qr_gate *g, const char *s, size_t n, const char *empty, const char *wrong)
{
    for (size_t i = 0; i < n; i++)
        if (!is_host_byte((unsigned char)s[i]))
            return refuse(g, 400, wrong);
    return n == 0 ? refuse(g, 400, empty) : QR_GATE_PASS;
}

size_t qr_gate_authority(const char *target, size_t n, size_t *authority_len)
{
    static const char scheme[] = "http://";
    const size_t at = sizeof scheme - 1;
    QR_ASSERT(target != NULL && authority_len != NULL);
    size_t end = at;
    *authority_len = 0;
    if (n < at || strncasecmp(target, scheme, at) != 0)
        return 0;
    while (end < n && target[end] != '/' && target[end] != '?')
        end++;
    *authority_len = end - at;
    return at;
}

static enum qr_gate_verdict check_target(struct qr_gate *g, const char *s, size_t n, bool options)
{
    size_t n_authority, at = qr_gate_authority(s, n, &n_authority);
    if (at == 0 && (n == 0 || s[0] != '/') && !(options && n == 1 && s[0] == '*'))
        return refuse(g, 400, "The request target must start with '/' or 'http://'.");
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] <= 0x20 || (unsigned char)s[i] >= 0x7f)
            return refuse(g, 400, "The request target has a byte that must be percent-encoded.");
    return at == 0 ? QR_GATE_PASS : check_host(g, s + at, n_authority, "The request target has no host.",
                                               "The request target's host has a byte that is not allowed there.");
}

static enum qr_gate_verdict check_request_line(struct qr_gate *g, const char *s, size_t n)
{
    const char *sp1 = memchr(s, ' ', n);
    if (!sp1 || sp1 == s)
        return refuse(g, 400, "The request line must be METHOD SP TARGET SP HTTP/1.1.");
    size_t n_method = (size_t)(sp1 - s);
    const char *target = sp1 + 1;
    const char *sp2 = memchr(target, ' ', n - n_method - 1);
    if (!sp2)
        return refuse(g, 400, "The request line must be METHOD SP TARGET SP HTTP/1.1.");
    size_t n_target = (size_t)(sp2 - target);
    for (size_t i = 0; i < n_method; i++)
        if (!qr_is_token_byte((unsigned char)s[i]))
            return refuse(g, 400, "The request method has a byte that is not allowed there.");
    enum qr_gate_verdict v = check_version(g, sp2 + 1, n - n_method - n_target - 2);
    if (v != QR_GATE_PASS)
        return v;
    if (!is_known_method(s, n_method))
        return refuse(g, 501, "The request method is not known here.");
    return check_target(g, target, n_target, n_method == 7 && memcmp(s, "OPTIONS", 7) == 0);
}

static bool name_is(const char *s, size_t n, const char *name)
{
    return strlen(name) == n && strncasecmp(s, name, n) == 0;
}

/* Fields that decide where the message ends and for whom it is. */
static enum qr_gate_verdict check_known_field(struct qr_gate *g, const char *name, size_t n_name, const char *v, size_t n)
{
    if (name_is(name, n_name, "host")) {
        g->n_host++;
        return check_host(g, v, n, "The Host field is empty.", "The Host field has a byte that is not allowed there.");
    } else if (name_is(name, n_name, "content-length")) {
        g->n_length++;
        for (size_t i = 0; i < n; i++)
            if (v[i] < '0' || v[i] > '9')
                return refuse(g, 400, "Content-Length must be one decimal number.");
        if (n == 0 || n > 18)
            return refuse(g, 400, "Content-Length must be one decimal number of at most 18 digits.");
        if (g->n_length > 1)
            return refuse(g, 400, "Content-Length is given twice.");
    } else if (name_is(name, n_name, "transfer-encoding")) {
        g->n_transfer++;
        if (!name_is(v, n, "chunked") || g->n_transfer > 1)
            return refuse(g, 400, "Transfer-Encoding must be 'chunked', once.");
    }
    return QR_GATE_PASS;
}

static enum qr_gate_verdict check_field(struct qr_gate *g, const char *s, size_t n)
{
    if (s[0] == ' ' || s[0] == '\t')
        return refuse(g, 400, "Header fields must not be folded over several lines.");
    size_t n_name = 0;
    while (n_name < n && qr_is_token_byte((unsigned char)s[n_name]))
        n_name++;
    if (n_name == 0 || n_name == n || s[n_name] != ':')
        return refuse(g, 400, "A header field must be NAME ':' VALUE, without a space before the colon.");
    const char *v = s + n_name + 1, *end = s + n;
    while (v < end && (*v == ' ' || *v == '\t'))
        v++;
    while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return g->trailers ? QR_GATE_PASS : check_known_field(g, s, n_name, v, (size_t)(end - v));
}

static enum qr_gate_verdict check_end(struct qr_gate *g)
{
    if (g->n_host > 1 || (g->n_host == 0 && !g->http10))
        return refuse(g, 400, "Exactly one Host field is required.");
    if (g->n_transfer > 0 && g->n_length > 0)
        return refuse(g, 400, "Content-Length and Transfer-Encoding must not both be given.");
    if (g->n_transfer > 0 && g->http10)
        return refuse(g, 400, "Transfer-Encoding does not exist in HTTP/1.0.");
    return QR_GATE_PASS;
}

/* One complete line s[0..n), its CR LF left out. PASS with head_len 0 means: go on. */
static enum qr_gate_verdict check_line(struct qr_gate *g, const char *s, size_t n, const struct qr_gate_limits *limits)
{
    if (g->n_lines++ == 0 && !g->trailers)
        return check_request_line(g, s, n);
    if (n == 0)
        return g->trailers ? QR_GATE_PASS : check_end(g);
    if (++g->n_fields > limits->fields_max)
        return refuse(g, 431, "The request has too many header fields.");
    return check_field(g, s, n);
}

/* What byte i is refused for whatever its line turns out to say. */
static enum qr_gate_verdict check_byte(struct qr_gate *g, const char *bytes, size_t i, const struct qr_gate_limits *limits)
{
    const unsigned char c = (unsigned char)bytes[i];
    const bool first = g->n_lines == 0 && !g->trailers, after_cr = i > g->line && bytes[i - 1] == '\r';
    const size_t line_stop = g->line + QR_GATE_LINE_MAX;
    if (i >= line_stop && line_stop <= limits->head_bytes_max) /* the limit that is passed first speaks */
        return refuse(g, first ? 414 : 431, first ? "The request target is too long." : "A header field is too long.");
    if (i >= limits->head_bytes_max)
        return refuse(g, 431, "The request's head is too large.");
    if (after_cr != (c == '\n'))
        return refuse(g, 400, "Lines of the head must end in CR LF.");
    if ((c < 0x20 && c != '\t' && c != '\r' && c != '\n') || c == 0x7f)
        return refuse(g, 400, "The head has a control byte.");
    return QR_GATE_PASS;
}

enum qr_gate_verdict qr_gate_scan(struct qr_gate *g, const char *bytes, size_t n, const struct qr_gate_limits *limits)
{
    QR_ASSERT(g != NULL && limits != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    QR_ASSERT(g->line <= g->seen && g->seen <= n);
    for (; g->seen < n; g->seen++) {
        enum qr_gate_verdict v = check_byte(g, bytes, g->seen, limits);
        if (v != QR_GATE_PASS)
            return v;
        if (bytes[g->seen] != '\n')
            continue;
        const char *s = bytes + g->line;
        const size_t len = g->seen - 1 - g->line;
        const bool last = len == 0 && (g->n_lines > 0 || g->trailers);
        v = check_line(g, s, len, limits);
        if (v != QR_GATE_PASS)
            return v;
        g->line = g->seen + 1;
        if (last) {
            g->head_len = g->line;
            return QR_GATE_PASS;
        }
    }
    return QR_GATE_MORE;
}
