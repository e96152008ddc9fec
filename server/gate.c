#include "server/gate.h"

#include <string.h>
#include <strings.h>

#include "base/assert.h"

void qr_gate_init(struct qr_gate *g)
{
    QR_ASSERT(g != NULL);
    *g = (struct qr_gate){0};
}

static enum qr_gate_verdict refuse(struct qr_gate *g, int32_t status, const char *why)
{
    g->status = status;
    g->why = why;
    return QR_GATE_REFUSE;
}

static bool is_token_byte(unsigned char c)
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
        if (!is_token_byte((unsigned char)s[i]))
            return refuse(g, 400, "The request method has a byte that is not allowed there.");
    enum qr_gate_verdict v = check_version(g, sp2 + 1, n - n_method - n_target - 2);
    if (v != QR_GATE_PASS)
        return v;
    if (!is_known_method(s, n_method))
        return refuse(g, 501, "The request method is not known here.");
    bool star = n_target == 1 && target[0] == '*' && n_method == 7 && memcmp(s, "OPTIONS", 7) == 0;
    if (!star && (n_target == 0 || target[0] != '/'))
        return refuse(g, 400, "The request target must start with '/'.");
    for (size_t i = 0; i < n_target; i++)
        if ((unsigned char)target[i] <= 0x20 || (unsigned char)target[i] >= 0x7f)
            return refuse(g, 400, "The request target has a byte that must be percent-encoded.");
    return QR_GATE_PASS;
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
        for (size_t i = 0; i < n; i++)
            if (!is_host_byte((unsigned char)v[i]))
                return refuse(g, 400, "The Host field has a byte that is not allowed there.");
        if (n == 0)
            return refuse(g, 400, "The Host field is empty.");
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
    while (n_name < n && is_token_byte((unsigned char)s[n_name]))
        n_name++;
    if (n_name == 0 || n_name == n || s[n_name] != ':')
        return refuse(g, 400, "A header field must be NAME ':' VALUE, without a space before the colon.");
    const char *v = s + n_name + 1, *end = s + n;
    for (const char *p = v; p < end; p++)
        if (((unsigned char)*p < 0x20 && *p != '\t') || *p == 0x7f)
            return refuse(g, 400, "A header field's value has a control byte.");
    while (v < end && (*v == ' ' || *v == '\t'))
        v++;
    while (end > v && (end[-1] == ' ' || end[-1] == '\t'))
        end--;
    return check_known_field(g, s, n_name, v, (size_t)(end - v));
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
    if (memchr(s, '\r', n) != NULL || memchr(s, '\0', n) != NULL)
        return refuse(g, 400, "The head has a CR without LF or a NUL byte.");
    if (g->n_lines++ == 0)
        return check_request_line(g, s, n);
    if (n == 0)
        return check_end(g);
    if (++g->n_fields > limits->fields_max)
        return refuse(g, 431, "The request has too many header fields.");
    return check_field(g, s, n);
}

enum qr_gate_verdict qr_gate_scan(struct qr_gate *g, const char *bytes, size_t n, const struct qr_gate_limits *limits)
{
    QR_ASSERT(g != NULL && limits != NULL);
    QR_ASSERT(bytes != NULL || n == 0);
    QR_ASSERT(g->line <= n);
    for (;;) {
        const char *s = bytes + g->line, *lf = n > g->line ? memchr(s, '\n', n - g->line) : NULL;
        size_t end = lf ? (size_t)(lf - bytes) + 1 : n, len = end - g->line, line_stop = g->line + QR_GATE_LINE_MAX;
        bool first = g->n_lines == 0;
        if (end > line_stop && line_stop <= limits->head_bytes_max) /* the limit that is passed first speaks */
            return refuse(g, first ? 414 : 431, first ? "The request target is too long." : "A header field is too long.");
        if (end > limits->head_bytes_max)
            return refuse(g, 431, "The request's head is too large.");
        if (!lf)
            return QR_GATE_MORE;
        if (len < 2 || lf[-1] != '\r')
            return refuse(g, 400, "Lines of the head must end in CR LF.");
        enum qr_gate_verdict v = check_line(g, s, len - 2, limits);
        if (v != QR_GATE_PASS)
            return v;
        g->line = end;
        if (!first && len == 2) {
            g->head_len = end;
            return QR_GATE_PASS;
        }
    }
}
