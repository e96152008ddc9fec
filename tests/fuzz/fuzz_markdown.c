/* fuzz_markdown.c - an answer on a terminal: whole, byte by byte and in pieces of the fuzzer's choosing the screen is the same; only
 * sequences of colours steer it; no letter is lost; what is held is bounded. The first two bytes choose columns and pieces.
 */
#include <locale.h>
#include <stdint.h>
#include <string.h>

#include "base/assert.h"
#include "client/markdown.c" /* the fuzz build links no client module */
#include "client/wrap.c"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void render_pieces(struct qr_buf *out, int32_t columns, const struct qr_buf *text, uint32_t pieces)
{
    struct qr_wrap w;
    struct qr_markdown m;
    qr_wrap_init(&w, columns);
    qr_markdown_init(&m, &w);
    for (size_t at = 0; at < text->len;) {
        size_t k = pieces == 0 ? text->len : 1 + pieces % 13;
        k = k < text->len - at ? k : text->len - at;
        qr_markdown_put(&m, out, text->data + at, k);
        QR_ASSERT(m.held.len <= QR_MARKDOWN_HELD_MAX);
        at += k;
        pieces = pieces <= 1 ? pieces : pieces * 1664525u + 1013904223u;
    }
    qr_markdown_end(&m, out);
    qr_wrap_end(&w, out);
    QR_ASSERT(m.shown == 0 && m.held.len == 0);
    qr_markdown_release(&m);
    qr_wrap_release(&w);
}

/* The letters of a text; those of escape sequences, which must be known ones, apart. */
static void letters(struct qr_buf *out, const struct qr_buf *text)
{
    static const char *const known[] = {"\033[0m", "\033[1m", "\033[2m", "\033[3m", "\033[36m"};
    for (size_t i = 0; i < text->len;) {
        size_t n = 0;
        for (int k = 0; k < QR_COUNT(known); k++)
            n = strncmp(text->data + i, known[k], strlen(known[k])) == 0 ? strlen(known[k]) : n;
        const unsigned char c = (unsigned char)text->data[i];
        QR_ASSERT(n > 0 || c >= ' ' || c == '\n' || c == '\t');
        QR_ASSERT(c != 127);
        if (n == 0 && is_word((char)c))
            qr_buf_put_byte(out, (char)c);
        i += n > 0 ? n : 1;
    }
}

static void same(const struct qr_buf *a, const struct qr_buf *b)
{
    QR_ASSERT(a->len == b->len);
    QR_ASSERT(a->len == 0 || memcmp(a->data, b->data, a->len) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    if (size < 2 || size > 8192 || setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        return 0;
    struct qr_buf text = {0}, whole = {0}, got = {0}, before = {0}, after = {0};
    qr_buf_put_visible(&text, (const char *)data + 2, size - 2);
    const int32_t columns = data[0] % 90;
    const uint32_t pieces[] = {1, 2u + data[1]};
    render_pieces(&whole, columns, &text, 0);
    for (int i = 0; i < QR_COUNT(pieces); i++) {
        qr_buf_clear(&got);
        render_pieces(&got, columns, &text, pieces[i]);
        same(&whole, &got);
    }
    letters(&before, &text);
    letters(&after, &whole);
    if (text.len > 0 && strstr(text.data, "](") == NULL) /* a link's text may be its address */
        same(&before, &after);
    qr_buf_release(&text);
    qr_buf_release(&whole);
    qr_buf_release(&got);
    qr_buf_release(&before);
    qr_buf_release(&after);
    return 0;
}
