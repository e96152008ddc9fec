/* wrap.c - text wrapped to the width of a terminal (wrap.h). Two stretches are held back: the blanks after the line
 * so far, and the word after them. A word's end decides whether both go on the line, or a line end takes the blanks'
 * place. */
#include "client/wrap.h"

#include <string.h>
#include <wchar.h>

#include "base/assert.h"
#include "base/utf8.h"

#define TAB_COLUMNS 8
#define TEXT_MIN 24    /* a narrower right column of a table is read worse than text below its head */
#define BELOW_INDENT 6 /* of that text */
#define ESC 0x1b
#define ZERO_WIDTH_JOINER 0x200d

void qr_wrap_init(struct qr_wrap *w, int32_t columns)
{
    QR_ASSERT(w != NULL);
    QR_ASSERT(columns >= 0);
    *w = (struct qr_wrap){.columns = columns};
}

void qr_wrap_release(struct qr_wrap *w)
{
    qr_buf_release(&w->word);
    qr_buf_release(&w->blanks);
}

static void put_spaces(struct qr_buf *out, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        qr_buf_put_byte(out, ' ');
}

static void drop_blanks(struct qr_wrap *w)
{
    qr_buf_clear(&w->blanks);
    w->blank_cols = 0;
}

/* A break between two words, or within one that is cut. */
static void break_line(struct qr_wrap *w, struct qr_buf *out)
{
    qr_buf_put_byte(out, '\n');
    put_spaces(out, w->indent);
    w->col = w->indent;
    w->begun = false;
    drop_blanks(w);
}

static void put_blanks(struct qr_wrap *w, struct qr_buf *out)
{
    qr_buf_put(out, w->blanks.data, w->blanks.len);
    w->col += w->blank_cols;
    drop_blanks(w);
}

/* The held word, on this line or the next. */
static void place_word(struct qr_wrap *w, struct qr_buf *out)
{
    if (w->word.len == 0)
        return;
    if (w->columns > 0 && w->col + w->blank_cols + w->word_cols > w->columns) {
        if (w->begun)
            break_line(w, out);
        else
            drop_blanks(w); /* an indentation that leaves no room for the word */
    }
    put_blanks(w, out);
    qr_buf_put(out, w->word.data, w->word.len);
    w->begun |= w->word_cols > 0;
    w->col += w->word_cols;
    w->word_cols = 0;
    w->wide = w->joined = false;
    qr_buf_clear(&w->word);
    w->n_whole = 0;
}

static int32_t width_of(uint32_t cp)
{
    const int n = wcwidth((wchar_t)cp);
    return n < 0 ? 1 : n;
}

/* One character of a word that is longer than a line. */
static void put_cut(struct qr_wrap *w, struct qr_buf *out, const char *s, size_t n, int32_t cols)
{
    if (w->col + cols > w->columns && w->begun)
        break_line(w, out);
    qr_buf_put(out, s, n);
    w->col += cols;
    w->begun = true;
}

static void put_blank(struct qr_wrap *w, struct qr_buf *out, char c)
{
    place_word(w, out);
    w->cutting = false;
    const int32_t at = w->col + w->blank_cols;
    w->blank_cols += c == '\t' ? TAB_COLUMNS - at % TAB_COLUMNS : 1;
    qr_buf_put_byte(&w->blanks, c);
}

static void end_line(struct qr_wrap *w, struct qr_buf *out)
{
    place_word(w, out);
    drop_blanks(w);
    qr_buf_put_byte(out, '\n');
    w->col = 0;
    w->cutting = w->begun = false;
}

static bool is_skin_tone(uint32_t cp)
{
    return cp >= 0x1f3fb && cp <= 0x1f3ff;
}

static void put_byte(struct qr_wrap *w, struct qr_buf *out, char c);

/* The held word has outgrown a line: it begins on one of its own, and all of it that came is shown. */
static void begin_cut(struct qr_wrap *w, struct qr_buf *out)
{
    struct qr_buf word = w->word;
    w->word = (struct qr_buf){0};
    w->n_whole = 0;
    w->word_cols = 0;
    if (w->begun)
        break_line(w, out);
    drop_blanks(w);
    w->cutting = true;
    for (size_t i = 0; i < word.len; i++)
        put_byte(w, out, word.data[i]);
    qr_buf_release(&word);
}

/* A character that is no blank, of so many columns. */
static void put_char(struct qr_wrap *w, struct qr_buf *out, const char *s, size_t n, uint32_t cp, int32_t cols)
{
    const bool belongs = cols == 0 || w->joined || is_skin_tone(cp);
    if (w->cutting) {
        put_cut(w, out, s, n, cols);
        return;
    }
    if ((w->wide || cols == 2) && !belongs)
        place_word(w, out);
    qr_buf_put(&w->word, s, n);
    w->n_whole = w->word.len;
    w->word_cols += cols;
    w->wide |= cols == 2;
    w->joined = cp == ZERO_WIDTH_JOINER;
    if (w->word_cols > w->columns - w->indent)
        begin_cut(w, out);
}

/* Bytes of an escape sequence travel with the word. False when c is none of them. */
static bool take_escape(struct qr_wrap *w, struct qr_buf *out, char c)
{
    if (!w->escape && c != ESC)
        return false;
    w->escape = c == ESC || c == '[' || c == ';' || (c >= '0' && c <= '9');
    qr_buf_put_byte(w->cutting ? out : &w->word, c);
    w->n_whole = w->word.len;
    return true;
}

static void put_byte(struct qr_wrap *w, struct qr_buf *out, char c)
{
    const size_t n_part = w->word.len - w->n_whole, n = n_part + 1; /* of a character whose end is awaited */
    uint32_t cp = 0;
    char s[4];
    if (n_part == 0 && take_escape(w, out, c))
        return;
    QR_ASSERT(n <= sizeof s);
    if (n_part > 0)
        memcpy(s, w->word.data + w->n_whole, n_part);
    s[n_part] = c;
    const bool whole = qr_utf8_decode(s, n, &cp) == (int32_t)n;
    if (!whole && qr_utf8_incomplete_tail(s, n) == (int32_t)n) {
        qr_buf_put_byte(&w->word, c);
        return;
    }
    w->word.len = w->n_whole;
    for (size_t i = 0; !whole && (i < n_part || i == 0); i++) /* no UTF-8: a sign for each byte */
        put_char(w, out, s + i, 1, 0xfffd, 1);
    if (!whole && n_part > 0)
        put_byte(w, out, c);
    else if (whole && c == '\n')
        end_line(w, out);
    else if (whole && (c == ' ' || c == '\t'))
        put_blank(w, out, c);
    else if (whole)
        put_char(w, out, s, n, cp, width_of(cp));
}

void qr_wrap_put(struct qr_wrap *w, struct qr_buf *out, const char *text, size_t n)
{
    QR_ASSERT(w != NULL && out != NULL);
    QR_ASSERT(text != NULL || n == 0);
    if (w->columns == 0) {
        qr_wrap_end(w, out);
        qr_buf_put(out, text, n);
        return;
    }
    for (size_t i = 0; i < n; i++)
        put_byte(w, out, text[i]);
}

void qr_wrap_end(struct qr_wrap *w, struct qr_buf *out)
{
    QR_ASSERT(w != NULL);
    QR_ASSERT(out != NULL);
    place_word(w, out);
    if (w->columns == 0 || w->col + w->blank_cols <= w->columns)
        put_blanks(w, out);
    drop_blanks(w);
}

void qr_wrap_text(struct qr_buf *out, const char *text, size_t n, int32_t columns)
{
    struct qr_wrap w;
    qr_wrap_init(&w, columns);
    qr_wrap_put(&w, out, text, n);
    qr_wrap_end(&w, out);
    qr_wrap_release(&w);
}

void qr_wrap_row(struct qr_buf *out, const char *head, const char *text, int32_t left, int32_t columns)
{
    QR_ASSERT(out != NULL && head != NULL);
    QR_ASSERT(text != NULL && left > 0);
    const bool below = columns > 0 && columns < left + TEXT_MIN;
    struct qr_wrap w;
    qr_wrap_init(&w, columns);
    qr_wrap_put(&w, out, head, strlen(head));
    qr_wrap_end(&w, out);
    w.indent = below ? BELOW_INDENT : left;
    if (columns == 0)
        put_spaces(out, left > (int32_t)strlen(head) ? left - (int32_t)strlen(head) : 1);
    else if (below || w.col >= left)
        break_line(&w, out);
    else {
        put_spaces(out, left - w.col);
        w.col = left;
        w.begun = false;
    }
    qr_wrap_put(&w, out, text, strlen(text));
    qr_wrap_end(&w, out);
    qr_buf_put_byte(out, '\n');
    qr_wrap_release(&w);
}
