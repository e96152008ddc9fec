/* probe.c - renders the conversations by which a dialect is found out, and compares them. Pure but for the template,
 * which is bounded (template.h). */
#include <stdio.h>

#include "answers/dialect/probe.h"
#include "answers/dialect/reader.h"

#define PARAMETER(name) "\"" name "\":{\"type\":\"string\",\"description\":\"d\"}"
#define FUNCTION(name)                                                                                                            \
    "{\"type\":\"function\",\"function\":{\"name\":\"" name "\",\"description\":\"d\",\"parameters\":{\"type\":\"object\",\"properties\":{" \
    PARAMETER(QR_PROBE_A1) "," PARAMETER(QR_PROBE_A2) "},\"required\":[]}}}"

/* Some templates write for HTML what they quote themselves. */
static void undo_html(char *s)
{
    static const struct { const char *is, *means; } marks[] = {{"&#34;", "\""}, {"&quot;", "\""}, {"&#39;", "'"}, {"&lt;", "<"}, {"&gt;", ">"}, {"&amp;", "&"}};
    char *to = s;
    while (*s) {
        size_t len = 0;
        for (int i = 0; *s == '&' && i < QR_COUNT(marks); i++)
            if (strncmp(s, marks[i].is, strlen(marks[i].is)) == 0) {
                len = strlen(marks[i].is);
                *to++ = *marks[i].means;
                break;
            }
        if (len == 0)
            *to++ = *s++;
        s += len;
    }
    *to = 0;
}

static char *render(const struct qr_probe *p, const char *messages, bool generation_prompt, enum qr_probe_think think)
{
    static const char tools[] = "[" FUNCTION(QR_PROBE_F1) "," FUNCTION(QR_PROBE_F2) "]";
    struct qr_chat_request req = {.add_generation_prompt = generation_prompt};
    struct qr_rendered out = {0};
    struct qr_json *m = NULL, *t = NULL, *k = NULL;
    struct qr_buf kwargs = {0};
    struct qr_err err;
    enum qr_template_kind kind;
    char *text = NULL;
    qr_buf_printf(&kwargs, "{%s", p->extra);
    if (think != QR_PROBE_THINK_UNSAID)
        qr_buf_printf(&kwargs, "%s\"enable_thinking\":%s,\"thinking\":%s", *p->extra ? "," : "", think == QR_PROBE_THINK_ON ? "true" : "false",
                      think == QR_PROBE_THINK_ON ? "true" : "false");
    qr_buf_put_byte(&kwargs, '}');
    int rc = qr_json_parse(&m, messages, strlen(messages), &qr_json_limits_request, &err);
    rc = rc ? rc : qr_json_parse(&t, tools, sizeof tools - 1, &qr_json_limits_request, &err);
    rc = rc ? rc : qr_json_parse(&k, kwargs.data, kwargs.len, &qr_json_limits_request, &err);
    QR_ASSERT(rc == 0);
    req.messages = m;
    req.tools = p->tools ? t : NULL;
    req.kwargs = k;
    if (qr_chat_render(p->chat, &out, &req, &kind, &err) == 0) {
        text = qr_alloc(out.text.len + 1, 1);
        memcpy(text, out.text.data ? out.text.data : "", out.text.len);
        undo_html(text);
    }
    qr_rendered_release(&out);
    qr_json_free(m);
    qr_json_free(t);
    qr_json_free(k);
    qr_buf_release(&kwargs);
    return text;
}

char *qr_probe_render(const struct qr_probe *p, const char *message, const char *more, bool generation_prompt, enum qr_probe_think think)
{
    QR_ASSERT(p != NULL && p->chat != NULL);
    struct qr_buf b = {0};
    qr_buf_printf(&b, "[{\"role\":\"user\",\"content\":\"" QR_PROBE_USER "\"}%s%s%s%s]", message ? "," : "", message ? message : "", more ? "," : "",
                  more ? more : "");
    char *text = render(p, b.data, generation_prompt, think);
    qr_buf_release(&b);
    return text;
}

/* ---- comparing ---- */

/* Where the marker begins that is open at a[n], or n. */
static size_t open_marker(const char *a, size_t n)
{
    for (size_t i = n; i > 0 && n - i < 48; i--) {
        const char c = a[i - 1];
        if (c == '>' || c == ']' || c == '\n')
            return n;
        if (c == '<' || (c == '[' && ((a[i] >= 'A' && a[i] <= 'Z') || a[i] == '/')))
            return i - 1;
    }
    return n;
}

size_t qr_whole_front(const char *a, size_t n)
{
    n = open_marker(a, n);
    while (n > 0 && ((unsigned char)a[n] & 0xC0) == 0x80)
        n--;
    return n;
}

size_t qr_whole_from(const char *a, size_t at)
{
    if (at > 0 && open_marker(a, at) < at) {
        const size_t n = strcspn(a + at, ">]\n");
        if (a[at + n] == '>' || a[at + n] == ']')
            at += n + 1;
    }
    while (((unsigned char)a[at] & 0xC0) == 0x80)
        at++;
    return at;
}

size_t qr_same_front(const char *a, const char *b)
{
    size_t n = 0;
    while (a[n] && a[n] == b[n])
        n++;
    return a[n] || b[n] ? qr_whole_front(a, n) : n;
}

size_t qr_same_back(const char *a, const char *b)
{
    const size_t n = strlen(a), m = strlen(b);
    size_t k = 0;
    while (k < n && k < m && a[n - 1 - k] == b[m - 1 - k])
        k++;
    const size_t in_a = n - qr_whole_from(a, n - k), in_b = m - qr_whole_from(b, m - k);
    return in_a < in_b ? in_a : in_b;
}
