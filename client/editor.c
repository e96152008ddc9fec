/* editor.c - one message typed at a terminal, by libedit (editor.h).
 *
 * libedit knows no bracketed paste, and its own signal handling re-raises signals for the whole process group. So characters come from
 * our own reader, which also hears the signals: SIGINT becomes the character ^C, which is bound to a function; SIGTSTP puts the terminal
 * in order, stops, and redraws; the rest end the read. A paste of several lines, or a long one, stands in the line as a short marker
 * (libedit redraws long texts badly) and is put back when the line is entered.
 */
#include "client/editor.h"

#include <errno.h>
#include <histedit.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"

#define PASTE_MAX ((size_t)8 << 20)
#define PASTE_INLINE_MAX 1000
#define PASTES_MAX 64
#define ROWS_MAX 1000
#define COLUMNS_MAX 4000
#define HISTORY_RECALL_MAX 4000 /* longer messages are kept in the file, not offered at the prompt */

struct paste {
    char marker[48];
    struct qr_buf text; /* owned */
};

struct qr_editor {
    EditLine *el;                    /* owned */
    History *history;                /* owned */
    struct qr_line_history *kept;    /* borrowed */
    struct qr_term *term;            /* borrowed */
    struct qr_completer completer;
    const char *prompt;              /* borrowed during a read */
    struct paste paste[PASTES_MAX];
    int32_t n_pastes, n_pastes_ever; /* of this line; of this session */
    char in[4096];                   /* bytes read from the terminal, not yet given to libedit */
    size_t n_in, in_at;
    int signal;
    bool interrupted, was_empty, eof, brackets; /* brackets: the terminal may be told to mark pastes */
};

static void mark_pastes(const struct qr_editor *e, bool on)
{
    if (e->brackets)
        qr_term_write(1, on ? "\033[?2004h" : "\033[?2004l", 8);
}

static char *prompt_of(EditLine *el)
{
    struct qr_editor *e;
    el_get(el, EL_CLIENTDATA, (void *)&e);
    return (char *)(uintptr_t)e->prompt; /* libedit's type lacks a const; it only reads */
}

/* libedit keeps two characters for each place of the screen, and asks the terminal itself how many there are: one that says 65535 x 65535, as some do that know
 * no better, would take 34 GB and minutes. Such a terminal is told a size that a screen may have. */
static void bound_screen(void)
{
    struct winsize ws;
    if (ioctl(0, TIOCGWINSZ, &ws) != 0 || (ws.ws_row <= ROWS_MAX && ws.ws_col <= COLUMNS_MAX))
        return;
    ws.ws_row = ws.ws_row < ROWS_MAX ? ws.ws_row : ROWS_MAX;
    ws.ws_col = ws.ws_col < COLUMNS_MAX ? ws.ws_col : COLUMNS_MAX;
    ioctl(0, TIOCSWINSZ, &ws);
}

static void resize(struct qr_editor *e)
{
    bound_screen();
    el_resize(e->el);
}

/* ---- characters ---- */

static void stop_and_redraw(struct qr_editor *e)
{
    el_set(e->el, EL_PREP_TERM, 0);
    qr_term_restore(e->term);
    mark_pastes(e, false);
    qr_term_write(1, "\n", 1);
    qr_term_stop_self();
    mark_pastes(e, true);
    qr_term_quiet(e->term);
    el_set(e->el, EL_PREP_TERM, 1);
    el_set(e->el, EL_REFRESH);
}

/* True when the signal is to be seen as the character ^C. */
static bool take_signals(struct qr_editor *e)
{
    bool interrupt = false;
    for (int s; (s = qr_term_signal(e->term)) != 0;) {
        if (s == SIGINT)
            interrupt = true;
        else if (s == SIGWINCH)
            resize(e);
        else if (s == SIGTSTP)
            stop_and_redraw(e);
        else
            e->signal = s;
    }
    return interrupt;
}

/* Waits for input or a signal. 1: there are bytes; 0: end; 2: interrupted. */
static int wait_input(struct qr_editor *e)
{
    while (e->in_at == e->n_in) {
        struct pollfd p[2] = {{.fd = 0, .events = POLLIN}, {.fd = e->term->signal_fd, .events = POLLIN}};
        if (poll(p, 2, -1) < 0 && errno != EINTR)
            return 0;
        if (p[1].revents != 0 && take_signals(e))
            return 2;
        if (e->signal != 0)
            return 0;
        if (p[0].revents == 0)
            continue;
        ssize_t n = read(0, e->in, sizeof e->in);
        if (n <= 0)
            return 0;
        e->in_at = 0;
        e->n_in = (size_t)n;
    }
    return 1;
}

static int read_char(EditLine *el, wchar_t *out)
{
    struct qr_editor *e;
    el_get(el, EL_CLIENTDATA, (void *)&e);
    char bytes[4];
    size_t n = 0;
    uint32_t cp;
    for (;;) {
        int got = wait_input(e);
        if (got == 2) {
            *out = 3;
            return 1;
        }
        if (got == 0) {
            e->eof = true;
            return 0;
        }
        bytes[n++] = e->in[e->in_at++];
        if (qr_utf8_decode(bytes, n, &cp) > 0)
            break;
        if (n == 4 || qr_utf8_incomplete_tail(bytes, n) != (int32_t)n) {
            cp = 0xfffd;
            break;
        }
    }
    *out = (wchar_t)cp;
    return 1;
}

/* ---- bound functions ---- */

static unsigned char on_interrupt(EditLine *el, int ch)
{
    struct qr_editor *e;
    el_get(el, EL_CLIENTDATA, (void *)&e);
    const LineInfo *line = el_line(el);
    e->interrupted = true;
    e->was_empty = line->lastchar == line->buffer;
    return CC_NEWLINE;
}

static const char paste_end[] = "\033[201~";

/* Everything up to ESC[201~, line ends made line feeds, other controls dropped. */
static void read_paste(struct qr_editor *e, struct qr_buf *text)
{
    size_t matched = 0;
    while (matched < 6 && wait_input(e) == 1) {
        char c = e->in[e->in_at++];
        if (c == paste_end[matched]) {
            matched++;
            continue;
        }
        matched = c == paste_end[0] ? 1 : 0;
        if (c == '\r')
            c = '\n';
        if (((unsigned char)c >= ' ' || c == '\n' || c == '\t') && c != 127 && text->len < PASTE_MAX)
            qr_buf_put_byte(text, c);
    }
}

static unsigned char insert_text(EditLine *el, const char *text)
{
    return el_insertstr(el, text) == 0 ? CC_REFRESH : CC_ERROR;
}

static unsigned char on_paste(EditLine *el, int ch)
{
    struct qr_editor *e;
    el_get(el, EL_CLIENTDATA, (void *)&e);
    struct qr_buf text = {0}, clean = {0};
    read_paste(e, &text);
    qr_buf_reserve(&clean, 3 * text.len + 1);
    clean.len = text.len > 0 ? qr_utf8_lossy(clean.data, text.data, text.len) : 0;
    clean.data[clean.len] = '\0';
    qr_buf_release(&text);
    unsigned char rc = CC_REFRESH;
    if (clean.len <= PASTE_INLINE_MAX && memchr(clean.data, '\n', clean.len) == NULL)
        rc = insert_text(el, clean.data);
    else if (e->n_pastes == PASTES_MAX)
        rc = CC_ERROR;
    else {
        struct paste *p = &e->paste[e->n_pastes++];
        int n_lines = 1;
        for (size_t i = 0; i + 1 < clean.len; i++)
            n_lines += clean.data[i] == '\n';
        snprintf(p->marker, sizeof p->marker, "[pasted %d: %d lines]", ++e->n_pastes_ever, n_lines);
        p->text = clean;
        clean = (struct qr_buf){0};
        rc = insert_text(el, p->marker);
    }
    qr_buf_release(&clean);
    return rc;
}

/* ---- completion ---- */

struct offer {
    struct qr_buf common, list;
    int32_t n;
};

static void add_word(void *to, const char *word)
{
    struct offer *o = to;
    size_t same = 0;
    while (same < o->common.len && o->common.data[same] == word[same])
        same++;
    if (o->n++ == 0)
        qr_buf_put_str(&o->common, word);
    else {
        o->common.len = same;
        o->common.data[same] = '\0';
    }
    qr_buf_printf(&o->list, "%s%s", o->n > 1 ? "  " : "", word);
}

static unsigned char on_tab(EditLine *el, int ch)
{
    struct qr_editor *e;
    el_get(el, EL_CLIENTDATA, (void *)&e);
    const LineInfo *line = el_line(el);
    size_t n = (size_t)(line->cursor - line->buffer), word = n;
    struct offer o = {0};
    while (word > 0 && line->buffer[word - 1] != ' ')
        word--;
    e->completer.complete(e->completer.arg, line->buffer, n, add_word, &o);
    unsigned char rc = CC_ERROR;
    if (o.n > 0 && o.common.len > n - word) {
        rc = insert_text(el, o.common.data + (n - word));
        if (o.n == 1 && o.common.data[o.common.len - 1] != '/')
            el_insertstr(el, " ");
    } else if (o.n > 1) {
        qr_term_write(1, "\n", 1);
        qr_term_write(1, o.list.data, o.list.len);
        qr_term_write(1, "\n", 1);
        rc = CC_REDISPLAY;
    }
    qr_buf_release(&o.common);
    qr_buf_release(&o.list);
    return rc;
}

/* ---- life ---- */

static void recall(struct qr_editor *e, const char *message)
{
    HistEvent ev;
    if (strlen(message) <= HISTORY_RECALL_MAX)
        history(e->history, &ev, H_ENTER, message);
}

struct qr_editor *qr_editor_new(struct qr_term *term, struct qr_line_history *kept, const struct qr_completer *completer)
{
    QR_ASSERT(term != NULL && kept != NULL);
    QR_ASSERT(completer != NULL && completer->complete != NULL);
    struct qr_editor *e = qr_alloc(1, sizeof *e);
    HistEvent ev;
    bound_screen();
    e->term = term;
    e->kept = kept;
    e->completer = *completer;
    e->prompt = "";
    const char *kind = getenv("TERM");
    e->brackets = kind != NULL && strcmp(kind, "dumb") != 0;
    e->el = el_init("quire", stdin, stdout, stderr);
    e->history = history_init();
    if (e->el == NULL || e->history == NULL)
        qr_panic("cannot start the line editor");
    history(e->history, &ev, H_SETSIZE, QR_HISTORY_MAX);
    for (int32_t i = 0; i < kept->n; i++)
        recall(e, kept->line[i]);
    el_set(e->el, EL_CLIENTDATA, e);
    el_set(e->el, EL_SIGNAL, 0);
    el_set(e->el, EL_EDITOR, "emacs");
    el_set(e->el, EL_HIST, history, e->history);
    el_set(e->el, EL_GETCFN, read_char);
    el_set(e->el, EL_PROMPT_ESC, prompt_of, '\1');
    el_set(e->el, EL_SETTY, "-x", "-icanon", "-echo", NULL); /* between reads too: a ^D typed ahead must stay a character */
    el_source(e->el, NULL);
    el_set(e->el, EL_ADDFN, "quire-interrupt", "drop the line", on_interrupt);
    el_set(e->el, EL_ADDFN, "quire-paste", "take a bracketed paste", on_paste);
    el_set(e->el, EL_ADDFN, "quire-complete", "complete a command", on_tab);
    static const char *const binds[][2] = {{"^C", "quire-interrupt"}, {"\033[200~", "quire-paste"}, {"^I", "quire-complete"},
                                           {"^R", "em-inc-search-prev"}, {"\033[3~", "ed-delete-next-char"},
                                           {"\033[H", "ed-move-to-beg"}, {"\033[F", "ed-move-to-end"},
                                           {"\033[1;5C", "em-next-word"}, {"\033[1;5D", "ed-prev-word"}};
    for (int i = 0; i < QR_COUNT(binds); i++)
        el_set(e->el, EL_BIND, binds[i][0], binds[i][1], NULL);
    qr_term_quiet(term);
    return e;
}

static void forget_pastes(struct qr_editor *e)
{
    for (int32_t i = 0; i < e->n_pastes; i++)
        qr_buf_release(&e->paste[i].text);
    e->n_pastes = 0;
}

void qr_editor_free(struct qr_editor *e)
{
    if (e == NULL)
        return;
    forget_pastes(e);
    el_end(e->el);
    history_end(e->history);
    qr_term_restore(e->term);
    qr_free(e);
}

int qr_editor_signal(const struct qr_editor *e)
{
    QR_ASSERT(e != NULL);
    return e->signal;
}

void qr_editor_remember(struct qr_editor *e, const char *message)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(message != NULL);
    if (qr_history_add(e->kept, message))
        recall(e, message);
}

/* The line with every marker replaced by what was pasted. */
static void expand(struct qr_editor *e, struct qr_buf *out, const char *line, size_t n)
{
    while (n > 0) {
        int32_t i = 0;
        size_t len = 0;
        for (; i < e->n_pastes; i++) {
            len = strlen(e->paste[i].marker);
            if (n >= len && memcmp(line, e->paste[i].marker, len) == 0)
                break;
        }
        if (i < e->n_pastes)
            qr_buf_put(out, e->paste[i].text.data, e->paste[i].text.len);
        else
            qr_buf_put(out, line, len = 1);
        line += len;
        n -= len;
    }
}

enum qr_edit_end qr_editor_read(struct qr_editor *e, const char *prompt, struct qr_buf *line)
{
    QR_ASSERT(e != NULL && prompt != NULL);
    QR_ASSERT(line != NULL);
    qr_buf_clear(line);
    e->prompt = prompt;
    e->interrupted = e->eof = false;
    int n = 0;
    mark_pastes(e, true);
    resize(e); /* the window may have changed while an answer came */
    const char *text = el_gets(e->el, &n);
    mark_pastes(e, false);
    if (text != NULL && n > 0 && !e->interrupted)
        expand(e, line, text, (size_t)n - (text[n - 1] == '\n'));
    forget_pastes(e);
    if (e->signal != 0)
        return QR_EDIT_KILLED;
    if (e->interrupted) {
        qr_term_write(1, "\n", 1);
        return e->was_empty ? QR_EDIT_INTERRUPTED : QR_EDIT_CLEARED;
    }
    if (text == NULL || n <= 0 || e->eof) {
        qr_term_write(1, "\n", 1);
        return QR_EDIT_EOF;
    }
    return QR_EDIT_LINE;
}
