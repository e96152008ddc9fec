/* markdown.h - light Markdown for a terminal, in pieces as they come: headings and **bold** bold, *italic* italic, `code` and fenced
 * code coloured, bullets as dots with their lines indented, [text](address) as text and address.
 *
 * Guarantee: what is shown depends on the text alone, not on how it was cut. What looks like Markdown and is none at the line's end,
 * or after QR_MARKDOWN_HELD_MAX bytes, is shown as it was written; so is everything that is not named above. Nothing but marks is left
 * out. Lines within fences are not wrapped. The text must have no controls but line feeds and tabs (qr_buf_put_visible). One owner.
 */
#ifndef QR_CLIENT_MARKDOWN_H
#define QR_CLIENT_MARKDOWN_H

#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "client/wrap.h"

#define QR_MARKDOWN_HELD_MAX 256

enum qr_markdown_place { QR_MD_LINE_START, QR_MD_TEXT, QR_MD_CODE_START, QR_MD_CODE };

struct qr_markdown {
    struct qr_wrap *wrap;  /* borrowed: all that is shown goes through it */
    struct qr_buf held;    /* owned: what waits for its meaning; on one line */
    enum qr_markdown_place place;
    unsigned style, shown; /* of this line; of the terminal, as far as the text is shown */
    char fence, before;    /* what the fence is made of; the last byte that was shown on this line */
    int32_t n_fence;
};

void qr_markdown_init(struct qr_markdown *m, struct qr_wrap *wrap);
void qr_markdown_release(struct qr_markdown *m);

/* Appends to out what of text[0..n), and of what came before, can be shown. */
void qr_markdown_put(struct qr_markdown *m, struct qr_buf *out, const char *text, size_t n);

/* Shows what is held, and ends colours. The wrap still holds the last word. */
void qr_markdown_end(struct qr_markdown *m, struct qr_buf *out);

#endif
