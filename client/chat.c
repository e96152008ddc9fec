/* chat.c - `quire chat`: settings, one exchange with its printing, and the filter. The conversation at a terminal is in repl.c.
 *
 * In a pipe stdout carries the answer and nothing else; all other words go to stderr.
 */
#include "client/chat.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "client/chat_state.h"
#include "client/line_history.h"

#define PROMPT_MAX ((size_t)16 << 20)

void qr_talk_print(struct qr_talk *c, const char *text, size_t n)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(text != NULL || n == 0);
    struct qr_buf out = {0};
    qr_wrap_text(&out, text, n, qr_term_columns(&c->term, 2));
    qr_term_write(2, out.data, out.len);
    qr_buf_release(&out);
}

void qr_talk_complain(struct qr_talk *c, const struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    struct qr_buf line = {0};
    qr_buf_put_str(&line, c->interactive ? qr_term_style(&c->term, "red") : "");
    qr_buf_put_str(&line, "quire chat: ");
    qr_buf_put_visible(&line, err->msg, strlen(err->msg));
    qr_buf_put_str(&line, c->interactive ? qr_term_style(&c->term, "off") : "");
    qr_buf_put_byte(&line, '\n');
    qr_talk_print(c, line.data, line.len);
    qr_buf_release(&line);
}

int qr_talk_exit_status(const struct qr_talk *c, enum qr_ask_end end)
{
    QR_ASSERT(c != NULL);
    switch (end) {
    case QR_ASK_SERVER_ERROR: return 1;
    case QR_ASK_NO_CONNECT: return 3;
    case QR_ASK_NO_MODEL: return 4;
    case QR_ASK_INTERRUPTED: return 130;
    case QR_ASK_KILLED: return 128 + c->ask.signal;
    case QR_ASK_DONE: break;
    }
    const struct qr_buf *finish = &c->ask.answer.finish;
    return c->opt.fail_on_length && strcmp(qr_buf_text(finish), "length") == 0 ? 5 : 0;
}

/* ---- printing an answer ---- */

static void spin(void *arg)
{
    static const char *const frames[] = {"|", "/", "-", "\\"};
    struct qr_talk *c = arg;
    char text[16];
    int n = snprintf(text, sizeof text, "\r%s", frames[c->spinner_frame++ % QR_COUNT(frames)]);
    qr_term_write(2, text, (size_t)n);
}

static void spinner_begin(struct qr_talk *c)
{
    c->spinner_frame = 0;
    if (c->interactive && c->term.err_tty && c->term.colour) {
        c->spinner = qr_timer_new(c->loop, spin, c);
        qr_timer_every(c->spinner, 150 * 1000000);
    }
}

static void spinner_end(struct qr_talk *c)
{
    qr_timer_free(c->spinner);
    c->spinner = NULL;
    if (c->spinner_frame > 0)
        qr_term_write(2, "\r \r", 3);
    c->spinner_frame = 0;
}

static bool put(struct qr_talk *c, const char *text, size_t n)
{
    if (!c->out_closed && !qr_term_write(1, text, n)) {
        c->out_closed = true;
        c->out_errno = errno;
    }
    return !c->out_closed;
}

/* Answers are rendered where there are colours to render them with. */
static bool renders(const struct qr_talk *c)
{
    return c->opt.markdown && c->term.out_tty && c->term.colour && c->schema.len == 0;
}

/* Text for a terminal, wrapped; `rendered`: as Markdown. */
static bool put_wrapped(struct qr_talk *c, const char *text, size_t n, bool rendered)
{
    qr_buf_clear(&c->shown);
    c->wrap.columns = qr_term_columns(&c->term, 1);
    if (rendered)
        qr_markdown_put(&c->markdown, &c->shown, text, n);
    else
        qr_wrap_put(&c->wrap, &c->shown, text, n);
    if (c->shown.len > 0)
        spinner_end(c);
    return put(c, c->shown.data, c->shown.len);
}

/* ---- folded thinking ---- */

#define FOLD_PERIOD_NS ((int64_t)100000000)
#define FOLD_COLUMNS_MIN 32 /* a line that does not fit cannot be drawn again in its place */

/* Words as blanks part them; a character of a script without blanks (U+3000 to U+9FFF) is one. */
static void count_words(struct qr_fold *f, const char *text, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        const unsigned char c = (unsigned char)text[i];
        const bool blank = c <= ' ', whole = c >= 0xe3 && c <= 0xe9;
        if ((c & 0xc0) == 0x80) /* more of a character */
            continue;
        f->n_words += whole || (!blank && !f->in_word);
        f->in_word = !blank && (f->in_word || !whole);
    }
}

static bool fold(struct qr_talk *c, const char *text, size_t n)
{
    struct qr_fold *f = &c->fold;
    const int64_t now = qr_clock_ns();
    const int32_t columns = qr_term_columns(&c->term, 1);
    count_words(f, text, n);
    if (f->n_words == 0)
        return true;
    spinner_end(c);
    if (!f->open && !c->at_line_start && !put_wrapped(c, "\n", 1, renders(c)))
        return false;
    f->open = c->at_line_start = true;
    if (!c->term.colour || columns < FOLD_COLUMNS_MIN || (f->drawn && now - f->shown_ns < FOLD_PERIOD_NS))
        return true;
    f->drawn = true;
    f->shown_ns = now;
    qr_buf_clear(&c->shown);
    qr_buf_printf(&c->shown, "\r\033[K%sthinking ... %d word%s%s", qr_term_style(&c->term, "dim"), f->n_words, f->n_words == 1 ? "" : "s",
                  qr_term_style(&c->term, "off"));
    return put(c, c->shown.data, c->shown.len);
}

static void fold_end(struct qr_talk *c)
{
    struct qr_fold *f = &c->fold;
    if (f->open) {
        qr_buf_clear(&c->shown);
        qr_buf_printf(&c->shown, "%s%s[thought %d word%s; /think shows them]%s\n", f->drawn ? "\r\033[K" : "", qr_term_style(&c->term, "dim"), f->n_words,
                      f->n_words == 1 ? "" : "s", qr_term_style(&c->term, "off"));
        put(c, c->shown.data, c->shown.len);
    }
    *f = (struct qr_fold){.ended = f->open || f->ended};
}

/* Shows what Markdown is held: what follows is none. */
static bool end_markdown(struct qr_talk *c)
{
    qr_buf_clear(&c->shown);
    c->wrap.columns = qr_term_columns(&c->term, 1);
    qr_markdown_end(&c->markdown, &c->shown);
    return put(c, c->shown.data, c->shown.len);
}

/* Thinking is dim, on lines of its own. */
static bool put_turn(struct qr_talk *c, bool reasoning)
{
    const char *const style = qr_term_style(&c->term, reasoning ? "dim" : "off");
    if (reasoning == c->in_reasoning)
        return true;
    c->in_reasoning = reasoning;
    if (reasoning)
        return end_markdown(c) && put_wrapped(c, style, strlen(style), false);
    return put_wrapped(c, style, strlen(style), false) && put_wrapped(c, "\n", 1, renders(c));
}

static bool show_text(struct qr_talk *c, const char *text, size_t n, bool reasoning, bool rendered)
{
    if ((reasoning && !c->interactive) || c->opt.json || n == 0)
        return true;
    if (!c->term.out_tty) {
        c->at_line_start = text[n - 1] == '\n';
        return put(c, text, n);
    }
    if (reasoning && !c->show_thinking)
        return fold(c, text, n);
    fold_end(c);
    for (; c->fold.ended && n > 0 && *text == '\n'; n--)
        text++;
    if (n == 0)
        return true;
    c->fold.ended = false;
    struct qr_buf seen = {0}; /* as a terminal may have it */
    qr_buf_put_visible(&seen, text, n);
    c->at_line_start = text[n - 1] == '\n';
    const bool goes_on = put_turn(c, reasoning) && put_wrapped(c, seen.data, seen.len, rendered);
    qr_buf_release(&seen);
    return goes_on;
}

static bool on_text(void *arg, const char *text, size_t n, bool reasoning)
{
    struct qr_talk *c = arg;
    return show_text(c, text, n, reasoning, !reasoning && renders(c));
}

static void on_wait(void *arg, const char *why, int64_t wait_us)
{
    struct qr_talk *c = arg;
    spinner_end(c);
    qr_buf_clear(&c->shown);
    qr_buf_printf(&c->shown, "quire chat: %s; trying again in %.1f s\n", why, (double)wait_us / 1e6);
    qr_talk_print(c, c->shown.data, c->shown.len);
}

static void print_tools(struct qr_talk *c)
{
    const struct qr_tool_calls *tools = &c->ask.answer.tools;
    for (int i = 0; i < tools->n && !c->opt.json && !qr_talk_runs_tools(c); i++) {
        struct qr_buf line = {0};
        qr_buf_printf(&line, "%s(%s)", qr_buf_text(&tools->item[i].name), qr_buf_text(&tools->item[i].arguments));
        if (!c->at_line_start)
            show_text(c, "\n", 1, false, false);
        show_text(c, line.data, line.len, false, false);
        show_text(c, "\n", 1, false, false);
        qr_buf_release(&line);
    }
}

static void print_tail(struct qr_talk *c, enum qr_ask_end end)
{
    if (c->opt.json && c->ask.raw.len > 0 && end == QR_ASK_DONE) {
        put(c, c->ask.raw.data, c->ask.raw.len);
        c->at_line_start = c->ask.raw.data[c->ask.raw.len - 1] == '\n';
    }
    fold_end(c);
    end_markdown(c);
    if (!c->out_closed)
        print_tools(c);
    qr_buf_clear(&c->shown);
    qr_wrap_end(&c->wrap, &c->shown);
    qr_buf_put_str(&c->shown, c->in_reasoning ? qr_term_style(&c->term, "off") : "");
    put(c, c->shown.data, c->shown.len);
    if (!c->at_line_start)
        put(c, "\n", 1);
    if (!c->opt.stats || (end != QR_ASK_DONE && c->ask.first_ns == 0))
        return;
    qr_buf_clear(&c->shown);
    qr_buf_put_str(&c->shown, c->interactive ? qr_term_style(&c->term, "dim") : "");
    qr_ask_stats(&c->shown, &c->ask);
    qr_buf_put_str(&c->shown, c->interactive ? qr_term_style(&c->term, "off") : "");
    qr_buf_put_byte(&c->shown, '\n');
    qr_talk_print(c, c->shown.data, c->shown.len);
}

enum qr_ask_end qr_talk_ask(struct qr_talk *c, const char *more, struct qr_err *err)
{
    QR_ASSERT(c != NULL && more != NULL);
    QR_ASSERT(err != NULL);
    enum qr_ask_end end = QR_ASK_DONE;
    c->at_line_start = true;
    c->in_reasoning = false;
    c->fold = (struct qr_fold){0};
    qr_wrap_release(&c->wrap);
    qr_wrap_init(&c->wrap, 0);
    qr_markdown_release(&c->markdown);
    qr_markdown_init(&c->markdown, &c->wrap);
    if (c->model.len == 0) {
        c->ask.on_text = NULL;
        end = qr_ask_model(&c->ask, &c->model, &c->context_max, err);
    }
    if (end != QR_ASK_DONE)
        return end;
    struct qr_buf body = {0};
    bool stream = c->opt.stream && !c->opt.json;
    qr_session_body(&body, &c->session, c->model.data, &c->params, more, stream);
    c->ask.on_text = on_text;
    spinner_begin(c);
    end = qr_ask_run(&c->ask, "POST", "/chat/completions", body.data, body.len, err);
    spinner_end(c);
    qr_buf_release(&body);
    print_tail(c, end);
    return end;
}

/* ---- settings ---- */

static int apply_params(struct qr_talk *c, struct qr_err *err)
{
    int rc = 0;
    for (int i = 0; rc == 0 && i < QR_P_N; i++)
        if (c->opt.param[i] != NULL) {
            char shown[40];
            snprintf(shown, sizeof shown, "--%s", qr_sampling_row[i].flag);
            rc = qr_chat_params_set(&c->params, qr_sampling_row[i].key, c->opt.param[i], shown, err);
        }
    for (int i = 0; rc == 0 && i < c->opt.stop.n; i++)
        rc = qr_chat_params_set(&c->params, "stop", c->opt.stop.item[i], "--stop", err);
    return rc;
}

/* Everything between reading flags and the first request. */
static int set_up(struct qr_talk *c, const struct qr_option_set *set, struct qr_err *err)
{
    struct qr_http_url url;
    struct qr_http_limits limits = qr_http_limits_default;
    limits.idle_timeout_us = c->opt.timeout_us;
    c->opt.url = qr_http_from_env(c->opt.url, qr_options_source(set, "url") != QR_FROM_BUILTIN, "OPENAI_BASE_URL");
    c->opt.api_key = qr_http_from_env(c->opt.api_key, c->opt.api_key != NULL, "OPENAI_API_KEY");
    int rc = apply_params(c, err);
    if (rc == 0)
        rc = qr_http_url_parse(&url, c->opt.url, err);
    if (rc == 0 && c->opt.api_key != NULL)
        rc = qr_http_key_check(c->opt.api_key, err);
    if (rc == 0 && c->opt.tools != NULL)
        rc = qr_tools_load(&c->tools, c->opt.tools, err);
    if (rc == 0 && c->opt.schema != NULL)
        rc = qr_talk_set_schema(c, c->opt.schema, err);
    if (rc == 0)
        rc = qr_http_client_new(&c->http, c->loop, &url, &limits, err);
    if (rc != 0)
        return rc;
    if (c->opt.model != NULL)
        qr_buf_put_str(&c->model, c->opt.model);
    qr_session_set_system(&c->session, c->opt.system);
    c->ask.loop = c->loop;
    c->ask.http = c->http;
    c->ask.term = &c->term;
    c->ask.api_key = c->opt.api_key;
    c->ask.retries_max = (int32_t)c->opt.retries;
    c->ask.load_wait_us = c->opt.wait_us;
    c->ask.on_wait = on_wait;
    c->ask.arg = c;
    return 0;
}

/* ---- what is kept ---- */

int qr_talk_load_kept(struct qr_talk *c, int64_t number, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(err != NULL);
    const int rc = qr_kept_load(&c->kept, &c->session, number, err);
    if (rc == 0 && c->opt.system != NULL)
        qr_session_set_system(&c->session, c->opt.system);
    return rc;
}

void qr_talk_keep(struct qr_talk *c)
{
    struct qr_err err;
    QR_ASSERT(c != NULL);
    if (qr_kept_save(&c->kept, &c->session, &err) == 0)
        return;
    c->kept.writes = false;
    qr_err_prefix(&err, "this conversation is kept no more: ");
    qr_talk_complain(c, &err);
}

/* A filter keeps what it goes on with, and nothing else. */
static void open_kept(struct qr_talk *c)
{
    struct qr_buf path = {0};
    if (c->opt.resume || (c->interactive && c->opt.history)) {
        qr_state_path(&path, "chats/");
        if (path.len > 0)
            path.data[--path.len] = '\0';
    }
    qr_kept_open(&c->kept, path.data, c->opt.history);
    qr_buf_release(&path);
}

/* ---- the filter ---- */

/* The prompt from arguments and stdin, as --help says. */
static int gather_prompt(struct qr_buf *prompt, const char *const *arg, int32_t n, struct qr_err *err)
{
    bool only_stdin = n == 1 && strcmp(arg[0], "-") == 0;
    for (int32_t i = 0; i < n && !only_stdin; i++)
        qr_buf_printf(prompt, "%s%s", i > 0 ? " " : "", arg[i]);
    const bool closed = (fcntl(0, F_GETFL) & O_ACCMODE) == O_WRONLY; /* main.c opens it so where there is none */
    if (only_stdin || (!isatty(0) && !closed)) {
        struct qr_buf text = {0};
        int rc = qr_file_read(&text, "-", QR_FILE_ANY, PROMPT_MAX, err);
        while (text.len > 0 && (text.data[text.len - 1] == '\n' || text.data[text.len - 1] == '\r'))
            text.len--; /* echo's, as a shell's $(...) does: a typed message has none, and a model answers differently with them */
        if (rc == 0 && text.len > 0) {
            qr_buf_put_str(prompt, prompt->len > 0 ? "\n\n" : "");
            qr_buf_put(prompt, text.data, text.len);
        }
        qr_buf_release(&text);
        if (rc != 0)
            return rc;
    }
    size_t blank = strspn(qr_buf_text(prompt), " \t\r\n");
    if (blank == prompt->len)
        return qr_err_set(err, QR_E_USAGE, "nothing to ask: give a PROMPT or pipe text into stdin (quire chat --help)");
    return 0;
}

static int run_filter(struct qr_talk *c, const struct qr_buf *prompt)
{
    struct qr_err err;
    if (c->opt.resume && qr_talk_load_kept(c, 1, &err) != 0) {
        qr_talk_complain(c, &err);
        if (err.code != QR_E_NOT_FOUND) /* the first one begins here */
            return qr_err_exit_status(err.code);
    }
    qr_session_add(&c->session, QR_ROLE_USER, prompt->data, prompt->len, false);
    enum qr_ask_end end = qr_talk_answer(c, &err);
    if (end == QR_ASK_SERVER_ERROR || end == QR_ASK_NO_CONNECT || end == QR_ASK_NO_MODEL)
        qr_talk_complain(c, &err);
    if (c->opt.resume && end == QR_ASK_DONE) {
        qr_session_add(&c->session, QR_ROLE_ASSISTANT, qr_buf_text(&c->ask.answer.text), c->ask.answer.text.len, false);
        qr_talk_keep(c);
    }
    if (c->out_closed && c->out_errno != EPIPE) { /* a full disk, say: the reader is there and misses text */
        char why[128];
        qr_err_set(&err, QR_E_IO, "the answer cannot be written to stdout: %s", qr_errno_text(why, c->out_errno));
        qr_talk_complain(c, &err);
        return qr_err_exit_status(err.code);
    }
    return c->out_closed ? 128 + SIGPIPE : qr_talk_exit_status(c, end);
}

/* ---- main ---- */

int qr_chat_run(struct qr_command_run *r, struct qr_err *err)
{
    QR_ASSERT(r != NULL && err != NULL);
    QR_ASSERT(r->options != NULL && r->set != NULL);
    signal(SIGPIPE, SIG_IGN);
    struct qr_talk c = {.opt = *(const struct qr_chat_options *)r->options};
    struct qr_buf prompt = {0};
    c.interactive = r->n_args == 0 && isatty(0) && isatty(1);
    int rc = c.interactive ? 0 : gather_prompt(&prompt, r->args, r->n_args, err);
    c.loop = qr_loop_new();
    qr_ask_init(&c.ask);
    rc = rc ? rc : set_up(&c, r->set, err);
    if (rc == 0) {
        qr_term_open(&c.term, (enum qr_colour)c.opt.colour);
        open_kept(&c);
        r->status = c.interactive ? qr_repl_run(&c) : run_filter(&c, &prompt);
        qr_term_close(&c.term);
    }
    qr_buf_release(&prompt);
    qr_http_client_free(c.http);
    qr_loop_free(c.loop);
    qr_ask_release(&c.ask);
    qr_buf_release(&c.model);
    qr_buf_release(&c.shown);
    qr_buf_release(&c.thinking);
    qr_buf_release(&c.schema);
    qr_buf_release(&c.schema_path);
    qr_tools_release(&c.tools);
    qr_markdown_release(&c.markdown);
    qr_wrap_release(&c.wrap);
    qr_kept_close(&c.kept);
    qr_session_release(&c.session);
    qr_chat_params_release(&c.params);
    return rc;
}
