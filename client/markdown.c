/* markdown.c - light Markdown for a terminal (markdown.h). The text is taken byte by byte, so that cuts cannot matter. At a line's
 * start bytes are held until they say what the line is; within a line from a mark on, until the mark that closes it. A pure function
 * of the text. One owner. */
#include "client/markdown.h"

#include <string.h>

#include "base/assert.h"

#define DEPTH_MAX 4
#define TEXT_COLUMNS_MIN 16 /* right of an indentation */

enum { BOLD = 1, ITALIC = 2, CODE = 4, DIM = 8 };

void qr_markdown_init(struct qr_markdown *m, struct qr_wrap *wrap)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(wrap != NULL);
    *m = (struct qr_markdown){.wrap = wrap, .before = '\n'};
}

void qr_markdown_release(struct qr_markdown *m)
{
    QR_ASSERT(m != NULL);
    qr_buf_release(&m->held);
}

static size_t run_of(const char *s, size_t n, char c)
{
    size_t i = 0;
    while (i < n && s[i] == c)
        i++;
    return i;
}

/* ---- showing ---- */

static void set_style(struct qr_markdown *m, struct qr_buf *out, unsigned style)
{
    static const struct {
        unsigned style;
        const char *on;
    } table[] = {{BOLD, "\033[1m"}, {DIM, "\033[2m"}, {ITALIC, "\033[3m"}, {CODE, "\033[36m"}};
    if (style == m->shown)
        return;
    if (m->shown & ~style)
        qr_wrap_put(m->wrap, out, "\033[0m", 4);
    const unsigned on = m->shown & ~style ? 0 : m->shown;
    for (int i = 0; i < QR_COUNT(table); i++)
        if (table[i].style & style & ~on)
            qr_wrap_put(m->wrap, out, table[i].on, strlen(table[i].on));
    m->shown = style;
}

static void show(struct qr_markdown *m, struct qr_buf *out, unsigned style, const char *s, size_t n)
{
    if (n == 0)
        return;
    set_style(m, out, style);
    qr_wrap_put(m->wrap, out, s, n);
    m->before = s[n - 1];
}

/* A whole line of code, or a part of one, as it is. */
static void show_verbatim(struct qr_markdown *m, struct qr_buf *out, unsigned style)
{
    const int32_t columns = m->wrap->columns;
    const bool ends = m->held.data[m->held.len - 1] == '\n';
    m->wrap->columns = 0;
    show(m, out, style, m->held.data, m->held.len - ends);
    if (ends)
        show(m, out, 0, "\n", 1);
    m->wrap->columns = columns;
    qr_buf_clear(&m->held);
}

/* ---- within a line ---- */

static bool is_word(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t';
}

static size_t step(struct qr_markdown *m, struct qr_buf *out, const char *s, size_t n, unsigned style, bool end, int depth);

/* All of a text whose end is known. */
static void render(struct qr_markdown *m, struct qr_buf *out, const char *s, size_t n, unsigned style, int depth)
{
    for (size_t at = 0; at < n;)
        at += step(m, out, s + at, n - at, style, true, depth);
}

/* The place behind the code that begins at s; 0 where it has no end so far. */
static size_t code_end(const char *s, size_t n, bool end)
{
    const size_t mark = run_of(s, n, '`');
    for (size_t i = mark; i < n;) {
        const size_t run = run_of(s + i, n - i, '`');
        if (run == mark && (end || i + run < n))
            return i + run;
        i += run > 0 ? run : 1;
    }
    return 0;
}

static size_t step_code(struct qr_markdown *m, struct qr_buf *out, const char *s, size_t n, unsigned style, bool end)
{
    const size_t mark = run_of(s, n, '`'), all = code_end(s, n, end);
    if (all == 0) {
        show(m, out, style, s, end ? mark : 0);
        return end ? mark : 0;
    }
    size_t first = mark, last = all - mark;
    if (last - first > 2 && s[first] == ' ' && s[last - 1] == ' ') { /* they part the code's own backquotes from the mark */
        first++;
        last--;
    }
    show(m, out, style | CODE, s + first, last - first);
    m->before = '`';
    return all;
}

/* The place of the mark of `run` times s[0] that closes the one at s; 0 where there is none so far. */
static size_t closing_mark(const char *s, size_t n, size_t run, bool end)
{
    for (size_t i = run; i < n;) {
        if (s[i] == '`') {
            const size_t code = code_end(s + i, n - i, end);
            if (code == 0 && !end)
                return 0;
            i += code > 0 ? code : run_of(s + i, n - i, '`');
            continue;
        }
        const size_t found = run_of(s + i, n - i, s[0]);
        const bool whole = i + found < n || end, in_word = s[0] == '_' && i + found < n && is_word(s[i + found]);
        if (found == run && whole && !in_word && !is_blank(s[i - 1]))
            return i;
        i += found > 0 ? found : s[i] == '\\' ? 2 : 1;
    }
    return 0;
}

/* Marks within words are none: 5*3, snake_case. Nor are __name__ and rows of stars. */
static size_t step_emphasis(struct qr_markdown *m, struct qr_buf *out, const char *s, size_t n, unsigned style, bool end, int depth)
{
    const size_t run = run_of(s, n, s[0]);
    if (run == n && !end)
        return 0;
    const bool opens = run < n && run <= (s[0] == '_' ? 1 : 3) && !is_blank(s[run]) && !is_word(m->before) && depth < DEPTH_MAX;
    const size_t close = opens ? closing_mark(s, n, run, end) : 0;
    if (close == 0) {
        const bool plain = !opens || end;
        show(m, out, style, s, plain ? run : 0);
        return plain ? run : 0;
    }
    render(m, out, s + run, close - run, style | (run & 1 ? ITALIC : 0) | (run & 2 ? BOLD : 0), depth + 1);
    m->before = s[0];
    return close + run;
}

/* The place of the bracket that closes the one at s; 0: none so far. */
static size_t closing_bracket(const char *s, size_t n, char close)
{
    int depth = 0;
    for (size_t i = 0; i < n; i++) {
        depth += s[i] == s[0] ? 1 : s[i] == close ? -1 : 0;
        if (depth == 0)
            return i;
    }
    return 0;
}

static size_t step_link(struct qr_markdown *m, struct qr_buf *out, const char *s, size_t n, unsigned style, bool end, int depth)
{
    const size_t text = closing_bracket(s, n, ']');
    const bool fails = depth == DEPTH_MAX || (text > 0 && text + 1 < n && s[text + 1] != '(');
    const size_t address = !fails && text > 0 && text + 1 < n ? closing_bracket(s + text + 1, n - text - 1, ')') : 0;
    if (address == 0) {
        show(m, out, style, s, fails || end);
        return fails || end;
    }
    const char *to = s + text + 2;
    render(m, out, s + 1, text - 1, style, depth + 1);
    if (address > 1 && (address - 1 != text - 1 || memcmp(to, s + 1, text - 1) != 0)) {
        show(m, out, style | DIM, text > 1 ? " (" : "(", text > 1 ? 2 : 1);
        show(m, out, style | DIM, to, address - 1);
        show(m, out, style | DIM, ")", 1);
    }
    m->before = ')';
    return text + 1 + address + 1;
}

/* Shows what s begins with, and returns its length; 0: more must be known. end: no more is to come. */
static size_t step(struct qr_markdown *m, struct qr_buf *out, const char *s, size_t n, unsigned style, bool end, int depth)
{
    switch (s[0]) {
    case '`': return step_code(m, out, s, n, style, end);
    case '*':
    case '_': return step_emphasis(m, out, s, n, style, end, depth);
    case '[': return step_link(m, out, s, n, style, end, depth);
    case '\\':
        if (n == 1 && !end)
            return 0;
        if (n > 1 && strchr("*_`", s[1]) != NULL && s[1] != '\0') {
            show(m, out, style, s + 1, 1);
            return 2;
        }
        break;
    default: break;
    }
    show(m, out, style, s, 1);
    return 1;
}

/* What is held, as far as its meaning is known. */
static void resolve(struct qr_markdown *m, struct qr_buf *out, bool end)
{
    size_t at = 0, used = 1;
    while (at < m->held.len && used > 0) {
        const size_t n = m->held.len - at;
        used = step(m, out, m->held.data + at, n, m->style, end || n >= QR_MARKDOWN_HELD_MAX, 0);
        at += used;
    }
    qr_buf_drop_front(&m->held, at);
}

static void take_text(struct qr_markdown *m, struct qr_buf *out, char c)
{
    if (c != '\n') {
        qr_buf_put_byte(&m->held, c);
        resolve(m, out, false);
        return;
    }
    resolve(m, out, true);
    show(m, out, 0, "\n", 1);
    m->style = 0;
    m->wrap->indent = 0;
    m->place = QR_MD_LINE_START;
}

/* ---- lines ---- */

static void indent(struct qr_markdown *m, size_t columns)
{
    m->wrap->indent = m->wrap->columns >= (int32_t)columns + TEXT_COLUMNS_MIN ? (int32_t)columns : 0;
}

/* The line goes on as text, of which what is held is the beginning. */
static void begin_text(struct qr_markdown *m, struct qr_buf *out)
{
    struct qr_buf first = m->held;
    m->held = (struct qr_buf){0};
    m->place = QR_MD_TEXT;
    indent(m, run_of(first.data, first.len, ' '));
    for (size_t i = 0; i < first.len; i++)
        take_text(m, out, first.data[i]);
    qr_buf_release(&first);
}

/* A list's item: its mark, n_mark bytes behind n_blank blanks, and a blank. */
static void begin_item(struct qr_markdown *m, struct qr_buf *out, size_t n_blank, size_t n_mark)
{
    const char *mark = m->held.data + n_blank;
    const bool bullet = n_mark == 1;
    show(m, out, 0, m->held.data, n_blank);
    show(m, out, 0, bullet ? "•" : mark, bullet ? strlen("•") : n_mark);
    show(m, out, 0, " ", 1);
    indent(m, n_blank + n_mark + 1);
    qr_buf_clear(&m->held);
    m->place = QR_MD_TEXT;
}

/* What kind of line the held bytes begin. LATER: more must be known. */
enum kind { LATER, TEXT, HEADING, ITEM, FENCE };

/* n: bytes of the mark. */
static enum kind kind_of_fence(const char *s, size_t n_line, size_t n)
{
    if (n == n_line)
        return LATER;
    if (n < 3 || (s[0] == '`' && memchr(s + n, '`', n_line - n) != NULL))
        return TEXT;
    return s[n_line - 1] == '\n' ? FENCE : LATER;
}

/* *n: bytes of the mark. */
static enum kind kind_of(const char *s, size_t n_line, size_t *n)
{
    const char c = n_line > 0 ? s[0] : '\0';
    *n = run_of(s, n_line, c);
    if (n_line == 0)
        return LATER;
    if (c == '`' || c == '~')
        return kind_of_fence(s, n_line, *n);
    if (c == '#')
        return *n > 6 ? TEXT : *n == n_line ? LATER : s[*n] == ' ' ? HEADING : TEXT;
    if (c == '-' || c == '+' || c == '*')
        return *n > 1 ? TEXT : *n == n_line ? LATER : s[1] == ' ' ? ITEM : TEXT;
    *n = 0;
    while (*n < n_line && s[*n] >= '0' && s[*n] <= '9')
        ++*n;
    if (*n == 0 || *n > 9)
        return TEXT;
    if (*n == n_line)
        return LATER;
    if (s[*n] != '.' && s[*n] != ')')
        return TEXT;
    ++*n;
    return *n == n_line ? LATER : s[*n] == ' ' ? ITEM : TEXT;
}

static void take_line_start(struct qr_markdown *m, struct qr_buf *out)
{
    size_t n_mark;
    const char *s = m->held.data;
    const size_t n_blank = run_of(s, m->held.len, ' ');
    enum kind kind = kind_of(s + n_blank, m->held.len - n_blank, &n_mark);
    if (kind == LATER && m->held.len >= QR_MARKDOWN_HELD_MAX)
        kind = TEXT;
    switch (kind) {
    case LATER: break;
    case TEXT: begin_text(m, out); break;
    case ITEM: begin_item(m, out, n_blank, n_mark); break;
    case HEADING:
        m->style = BOLD;
        m->place = QR_MD_TEXT;
        qr_buf_clear(&m->held);
        break;
    case FENCE:
        m->fence = s[n_blank];
        m->n_fence = (int32_t)n_mark;
        show_verbatim(m, out, DIM);
        m->place = QR_MD_CODE_START;
        break;
    }
}

static void take_code_start(struct qr_markdown *m, struct qr_buf *out)
{
    const char *s = m->held.data;
    const size_t n = m->held.len, n_blank = run_of(s, n, ' '), n_mark = run_of(s + n_blank, n - n_blank, m->fence);
    size_t at = n_blank + n_mark;
    if (n_mark >= (size_t)m->n_fence)
        at += run_of(s + at, n - at, ' ');
    const bool ends = s[n - 1] == '\n', closes = ends && at == n - 1 && n_mark >= (size_t)m->n_fence;
    if (at == n && n < QR_MARKDOWN_HELD_MAX)
        return;
    m->place = closes ? QR_MD_LINE_START : ends ? QR_MD_CODE_START : QR_MD_CODE;
    show_verbatim(m, out, closes ? DIM : CODE);
}

void qr_markdown_put(struct qr_markdown *m, struct qr_buf *out, const char *text, size_t n)
{
    QR_ASSERT(m != NULL && out != NULL);
    QR_ASSERT(text != NULL || n == 0);
    for (size_t i = 0; i < n; i++) {
        if (m->place == QR_MD_TEXT) {
            take_text(m, out, text[i]);
            continue;
        }
        qr_buf_put_byte(&m->held, text[i]);
        if (m->place == QR_MD_LINE_START)
            take_line_start(m, out);
        else if (m->place == QR_MD_CODE_START)
            take_code_start(m, out);
        else {
            m->place = text[i] == '\n' ? QR_MD_CODE_START : QR_MD_CODE;
            show_verbatim(m, out, CODE);
        }
    }
}

void qr_markdown_end(struct qr_markdown *m, struct qr_buf *out)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(out != NULL);
    if (m->held.len > 0 && m->place == QR_MD_LINE_START)
        begin_text(m, out);
    if (m->held.len > 0 && m->place == QR_MD_CODE_START)
        show_verbatim(m, out, DIM); /* most likely the closing fence, without a line end */
    resolve(m, out, true);
    set_style(m, out, 0);
}
