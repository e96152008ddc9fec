/* repl.c - `quire chat` at a terminal (repl.h). Reading a message, asking, and what Ctrl-C means in each state:
 * while an answer comes it stops the answer, which stays in the conversation; with something typed it drops the line; on an empty line it
 * says how to leave; twice within a second it leaves with status 130.
 */
#include "client/repl.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/clock.h"

#define TWICE_NS ((int64_t)1000000000)

void qr_repl_say(struct qr_repl *r, const char *fmt, ...)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(fmt != NULL);
    char text[2000];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    struct qr_buf line = {0};
    qr_buf_put_str(&line, qr_term_style(&r->talk->term, "dim"));
    qr_buf_put_visible(&line, text, strlen(text));
    qr_buf_put_str(&line, qr_term_style(&r->talk->term, "off"));
    qr_buf_put_byte(&line, '\n');
    qr_talk_print(r->talk, line.data, line.len);
    qr_buf_release(&line);
}

/* Counts a Ctrl-C; true when it was the second within a second. */
static bool interrupted_twice(struct qr_repl *r)
{
    int64_t now = qr_clock_ns();
    bool twice = r->interrupt_ns != 0 && now - r->interrupt_ns < TWICE_NS;
    r->interrupt_ns = now;
    if (twice)
        r->status = 130;
    return twice;
}

/* ---- reading ---- */

static bool ends_with(const struct qr_buf *b, const char *tail)
{
    size_t n = strlen(tail);
    return b->len >= n && memcmp(b->data + b->len - n, tail, n) == 0;
}

/* A message: one line; lines that end in a backslash and the line after them; or everything between two """ . */
static enum qr_edit_end read_message(struct qr_repl *r)
{
    struct qr_buf line = {0};
    const char *prompt = r->talk->term.colour ? "\1\033[36m\1>>> \1\033[0m\1" : ">>> ";
    qr_buf_clear(&r->message);
    enum qr_edit_end end = qr_editor_read(r->editor, prompt, &line);
    bool quoted = end == QR_EDIT_LINE && line.len >= 3 && memcmp(line.data, "\"\"\"", 3) == 0;
    if (end == QR_EDIT_LINE)
        qr_buf_put(&r->message, qr_buf_text(&line) + (quoted ? 3 : 0), line.len - (quoted ? 3 : 0));
    while (end == QR_EDIT_LINE) {
        if (quoted && ends_with(&r->message, "\"\"\"")) {
            r->message.len -= 3;
            r->message.data[r->message.len] = '\0';
            break;
        }
        if (!quoted && !ends_with(&r->message, "\\"))
            break;
        if (quoted)
            qr_buf_put_byte(&r->message, '\n');
        else
            r->message.data[r->message.len - 1] = '\n';
        end = qr_editor_read(r->editor, "... ", &line);
        if (end == QR_EDIT_LINE)
            qr_buf_put(&r->message, qr_buf_text(&line), line.len);
        else if (end == QR_EDIT_INTERRUPTED)
            end = QR_EDIT_CLEARED; /* the lines before are dropped too */
    }
    qr_buf_release(&line);
    return end;
}

/* ---- answering ---- */

/* What came before a stop or an error stays, marked; a question that got nothing is taken out again, unless it had an answer before. */
static void keep_partial(struct qr_repl *r, bool by_user)
{
    struct qr_talk *t = r->talk;
    const struct qr_buf *text = t->ask.answer.text.len > 0 ? &t->ask.answer.text : &t->ask.answer.refusal;
    if (text->len > 0) {
        qr_session_add(&t->session, QR_ROLE_ASSISTANT, text->data, text->len, true);
        qr_repl_say(r, by_user ? "[stopped] The answer so far stays in the conversation; /regen tries again, /undo drops it."
                               : "[stopped] What came before the error stays in the conversation; /regen tries again.");
    } else if (r->again) {
        struct qr_session rounds = {0}; /* of tools, before the end */
        qr_session_rewind_to_user(&t->session, &rounds);
        qr_session_release(&rounds);
        qr_session_move(&t->session, &r->before, 0);
        qr_repl_say(r, "[stopped] Nothing was answered; the answer before stays in the conversation.");
    } else {
        qr_session_undo(&t->session);
        qr_repl_say(r, "[stopped] Nothing was answered; the message is not in the conversation (arrow up brings it back).");
    }
}

/* Said from three quarters on: what is full ends in an error. */
static void take_usage(struct qr_repl *r)
{
    struct qr_talk *t = r->talk;
    const struct qr_usage *u = &t->ask.answer.usage;
    t->context_used = u->n_prompt >= 0 && u->n_output >= 0 ? u->n_prompt + u->n_output : 0;
    if (t->context_max > 0 && t->context_used >= t->context_max - t->context_max / 4)
        qr_repl_say(r, "[context] %lld of %lld tokens are in use; /clear begins a new conversation.", (long long)t->context_used,
                    (long long)t->context_max);
}

/* False when the program is to end. */
static bool answer(struct qr_repl *r)
{
    struct qr_talk *t = r->talk;
    struct qr_err err;
    enum qr_ask_end end = qr_talk_answer(t, &err);
    const struct qr_chunk *a = &t->ask.answer;
    if (end == QR_ASK_DONE) {
        const struct qr_buf *text = a->text.len > 0 ? &a->text : &a->refusal;
        qr_session_add(&t->session, QR_ROLE_ASSISTANT, qr_buf_text(text), text->len, false);
        if (strcmp(qr_buf_text(&a->finish), "length") == 0)
            qr_repl_say(r, "[length] The answer was stopped by its length limit; /set max_tokens N changes it.");
        take_usage(r);
        qr_talk_keep(t);
        return true;
    }
    if (end == QR_ASK_KILLED) {
        r->status = qr_talk_exit_status(t, end);
        return false;
    }
    if (end != QR_ASK_INTERRUPTED)
        qr_talk_complain(t, &err);
    keep_partial(r, end == QR_ASK_INTERRUPTED);
    qr_talk_keep(t);
    return end != QR_ASK_INTERRUPTED || !interrupted_twice(r);
}

static bool is_blank(const struct qr_buf *b)
{
    return strspn(qr_buf_text(b), " \t\n") == b->len;
}

/* Sends r->message with what /read attached, which waits for the next one if this one is taken out again. */
static bool send_message(struct qr_repl *r)
{
    struct qr_session *s = &r->talk->session;
    const int32_t n_before = s->n;
    if (is_blank(&r->message) && r->attached.len == 0)
        return true;
    if (r->attached.len > 0) {
        qr_buf_put_str(&r->message, "\n\n");
        qr_buf_put(&r->message, r->attached.data, r->attached.len);
    }
    qr_session_add(s, QR_ROLE_USER, r->message.data, r->message.len, false);
    const bool goes_on = answer(r);
    if (s->n > n_before)
        qr_buf_clear(&r->attached);
    else if (r->attached.len > 0)
        qr_repl_say(r, "What /read attached goes with the next message; /clear drops it.");
    return goes_on;
}

/* /regen. */
static bool answer_again(struct qr_repl *r)
{
    r->again = r->before.n > 0;
    const bool goes_on = answer(r);
    r->again = false;
    qr_session_release(&r->before);
    return goes_on;
}

/* Whole words alone: a message that is typed too early must not allow anything. */
static bool read_word(const struct qr_buf *line, enum qr_approval *word, bool *always)
{
    static const struct {
        const char *text;
        enum qr_approval means;
        bool always;
    } words[] = {{"y", QR_APPROVAL_RUN, false},   {"yes", QR_APPROVAL_RUN, false},   {"n", QR_APPROVAL_REFUSE, false},
                 {"no", QR_APPROVAL_REFUSE, false}, {"a", QR_APPROVAL_RUN, true},    {"always", QR_APPROVAL_RUN, true}};
    const char *text = qr_buf_text(line) + strspn(qr_buf_text(line), " ");
    const size_t n = strcspn(text, " ");
    for (int i = 0; i < QR_COUNT(words); i++)
        if (n == strlen(words[i].text) && strncasecmp(text, words[i].text, n) == 0 && text[n + strspn(text + n, " ")] == '\0') {
            *word = words[i].means;
            *always = words[i].always;
            return true;
        }
    return false;
}

enum qr_approval qr_repl_approve(void *repl, struct qr_tool *tool)
{
    struct qr_repl *r = repl;
    struct qr_buf line = {0};
    enum qr_approval word = QR_APPROVAL_STOP;
    enum qr_edit_end end;
    bool always = false;
    QR_ASSERT(r != NULL);
    QR_ASSERT(tool != NULL);
    tcflush(0, TCIFLUSH); /* what was typed before the question is no answer to it */
    do
        end = qr_editor_read(r->editor, "run it? [y]es, [n]o, [a]lways: ", &line);
    while (end == QR_EDIT_CLEARED || (end == QR_EDIT_LINE && !read_word(&line, &word, &always)));
    qr_buf_release(&line);
    r->talk->ask.signal = end == QR_EDIT_KILLED ? qr_editor_signal(r->editor) : 0;
    tool->always = tool->always || always;
    return word;
}

/* ---- the loop ---- */

static bool entered(struct qr_repl *r)
{
    r->interrupt_ns = 0;
    if (r->message.len == 0)
        return true;
    qr_editor_remember(r->editor, r->message.data);
    bool one_line = memchr(r->message.data, '\n', r->message.len) == NULL;
    if (r->message.data[0] != '/' || !one_line)
        return send_message(r);
    switch (qr_repl_command(r, r->message.data)) {
    case QR_REPL_ASK: return answer_again(r);
    case QR_REPL_SEND: return send_message(r);
    case QR_REPL_LEAVE: return false;
    case QR_REPL_PROMPT: break;
    }
    return true;
}

static bool turn(struct qr_repl *r)
{
    switch (read_message(r)) {
    case QR_EDIT_LINE: return entered(r);
    case QR_EDIT_EOF: return false;
    case QR_EDIT_KILLED:
        r->status = 128 + qr_editor_signal(r->editor);
        return false;
    case QR_EDIT_CLEARED:
        return !interrupted_twice(r);
    case QR_EDIT_INTERRUPTED:
        if (interrupted_twice(r))
            return false;
        qr_repl_say(r, "Ctrl-D or /exit leaves (or Ctrl-C again at once).");
        return true;
    }
    return true;
}

int qr_repl_run(struct qr_talk *t)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(t->interactive);
    struct qr_repl r = {.talk = t};
    struct qr_err err;
    const bool named = t->model.len > 0;
    const enum qr_ask_end end = qr_ask_model(&t->ask, &t->model, &t->context_max, &err);
    if (end != QR_ASK_DONE && !(named && (end == QR_ASK_SERVER_ERROR || end == QR_ASK_NO_MODEL))) { /* a server need not list what it has */
        if (end == QR_ASK_SERVER_ERROR || end == QR_ASK_NO_CONNECT || end == QR_ASK_NO_MODEL)
            qr_talk_complain(t, &err);
        return qr_talk_exit_status(t, end);
    }
    struct qr_buf path = {0};
    if (t->opt.history)
        qr_state_path(&path, "history");
    qr_history_open(&r.kept, path.data);
    qr_buf_release(&path);
    r.editor = qr_editor_new(&t->term, &r.kept, &(struct qr_completer){.complete = qr_repl_complete, .arg = &r});
    qr_repl_say(&r, "%s at %s. /help lists the commands, Ctrl-D leaves.", t->model.data, qr_http_client_name(t->http));
    if (t->opt.resume)
        qr_repl_go_on(&r, 1);
    t->approve = qr_repl_approve;
    t->approve_arg = &r;
    while (turn(&r) && !t->out_closed)
        ;
    qr_editor_free(r.editor);
    qr_history_close(&r.kept);
    qr_buf_release(&r.message);
    qr_buf_release(&r.attached);
    qr_session_release(&r.before);
    return r.status;
}
