/* wrap.h - text for a terminal of a given width, wrapped between words, in pieces as they come.
 *
 * A word is shown when its end is known, on the next line where it would cross the right edge. A word longer than a line is cut at the
 * edge. Blanks at a line's break are dropped. Wide characters (CJK, emoji) take two columns and may be parted from their neighbours;
 * combining marks take none. Escape sequences of colours ("ESC [ ... m") take none. Where the pieces are cut does not matter, be it
 * within a character. A pure function of the text, the widths and, for wcwidth, the locale's LC_CTYPE. One owner.
 */
#ifndef QR_CLIENT_WRAP_H
#define QR_CLIENT_WRAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"

struct qr_wrap {
    int32_t columns;        /* of the terminal; 0: nothing is wrapped. May change between two calls */
    int32_t indent;         /* blanks before the lines that this makes */
    int32_t col;            /* where the cursor stands */
    struct qr_buf word;     /* owned: the word whose end is not known; the last bytes may be a part of a character */
    struct qr_buf blanks;   /* owned: between the line so far and the word */
    size_t n_whole;         /* bytes of the word that are whole characters */
    int32_t word_cols, blank_cols;
    bool cutting;           /* the word is longer than a line: its characters are shown as they come */
    bool wide, joined;      /* the word is a wide character; the next character belongs to it */
    bool escape;            /* within an escape sequence */
    bool begun;             /* the line has more than blanks */
};

void qr_wrap_init(struct qr_wrap *w, int32_t columns);
void qr_wrap_release(struct qr_wrap *w);

/* Appends to out what of text[0..n), and of what came before, can be shown. */
void qr_wrap_put(struct qr_wrap *w, struct qr_buf *out, const char *text, size_t n);

/* Appends the rest: the last word, and blanks before it. */
void qr_wrap_end(struct qr_wrap *w, struct qr_buf *out);

/* A whole text. */
void qr_wrap_text(struct qr_buf *out, const char *text, size_t n, int32_t columns);

/* A row of a table in two columns, and a line end: `head`, then text from column `left` on, wrapped there. Where that leaves too little
 * room, the text stands below its head. */
void qr_wrap_row(struct qr_buf *out, const char *head, const char *text, int32_t left, int32_t columns);

#endif
