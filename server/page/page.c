#include "server/page/page.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "server/route.h"
#include "base/sha256.h"

/* QR_PAGE_FILE is CMake's name of page.html. */
__asm__(".pushsection .rodata\n"
        ".hidden qr_page_html\n"
        ".hidden qr_page_html_end\n"
        ".global qr_page_html\n"
        ".global qr_page_html_end\n"
        "qr_page_html: .incbin \"" QR_PAGE_FILE "\"\n"
        "qr_page_html_end: .byte 0\n"
        ".popsection\n");
extern const char qr_page_html[], qr_page_html_end[];

static size_t page_len(void)
{
    return (size_t)(qr_page_html_end - qr_page_html);
}

/* What is inside of the page's one element of that name, which has no attributes. */
static struct qr_span element(const char *open, const char *close)
{
    const size_t n_open = strlen(open);
    const char *from = memmem(qr_page_html, page_len(), open, n_open);
    QR_ASSERT(from != NULL);
    from += n_open;
    const char *to = memmem(from, (size_t)(qr_page_html_end - from), close, strlen(close));
    QR_ASSERT(to != NULL);
    return (struct qr_span){from, (size_t)(to - from)};
}

void qr_page_init(struct qr_page *page)
{
    char script[QR_SHA256_BASE64], style[QR_SHA256_BASE64], whole[QR_SHA256_BASE64];
    QR_ASSERT(page != NULL);
    const struct qr_span scripts = element("<script>", "</script>"), styles = element("<style>", "</style>");
    qr_sha256_base64(script, scripts.data, scripts.len);
    qr_sha256_base64(style, styles.data, styles.len);
    qr_sha256_base64(whole, qr_page_html, page_len());
    snprintf(page->etag, sizeof page->etag, "\"%.32s\"", whole);
    const int n = snprintf(page->fields, sizeof page->fields,
                           "Content-Security-Policy: default-src 'none'; script-src 'sha256-%s'; style-src 'sha256-%s'; connect-src 'self'; "
                           "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'\r\n"
                           "Referrer-Policy: no-referrer\r\nCache-Control: no-cache\r\nVary: Accept\r\nETag: %s\r\n",
                           script, style, page->etag);
    QR_ASSERT(n > 0 && (size_t)n < sizeof page->fields);
}

/* Browsers name text/html. Programs that look for a server send a star, or nothing. */
static bool wants_html(struct qr_span accept)
{
    static const char html[] = "text/html";
    const size_t n = sizeof html - 1;
    for (size_t i = 0; accept.data && i + n <= accept.len; i++) {
        const bool begins = i == 0 || strchr(", \t", accept.data[i - 1]), ends = i + n == accept.len || strchr(",; \t", accept.data[i + n]);
        if (begins && ends && strncasecmp(accept.data + i, html, n) == 0)
            return true;
    }
    return false;
}

static void reply_page(const struct qr_page *page, struct qr_conn *c, struct qr_span known)
{
    struct qr_reply reply = {.status = 200, .content_type = "text/html; charset=utf-8", .extra = page->fields, .body = qr_page_html, .len = page_len()};
    if (known.data && memmem(known.data, known.len, page->etag, strlen(page->etag)))
        reply = (struct qr_reply){.status = 304, .extra = page->fields};
    qr_conn_reply(c, &reply);
}

void qr_api_root(struct qr_server *s, struct qr_conn *c)
{
    /* ollama's clients look for a server by this line. */
    static const char probe[] = "quire is running; the API is below /v1, as /v1/models and /v1/chat/completions\n";
    struct qr_reply reply = {.status = 200, .content_type = "text/plain; charset=utf-8", .extra = "Vary: Accept\r\n", .body = probe, .len = sizeof probe - 1};
    QR_ASSERT(s != NULL && c != NULL);
    const struct qr_http_head *h = qr_conn_head(c);
    if (wants_html(h->accept))
        reply_page(&s->page, c, h->if_none_match);
    else
        qr_conn_reply(c, &reply);
}
