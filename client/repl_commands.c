/* repl_commands.c - the /commands of a conversation, as one table (see repl.h). A command is a row: name, argument,
 * help, function. Completion, /help and refusals follow from the table. Text from the server or a file is made harmless
 * before it reaches the terminal. The chat's one thread. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/file.h"
#include "base/assert.h"
#include "base/json.h"
#include "client/repl.h"

#define READ_MAX ((size_t)4 << 20)
#define QUESTION_BYTES 120 /* of a question that are shown in a list */

struct command {
    const char *name, *arg, *help;
    enum qr_repl_next (*run)(struct qr_repl *r, const char *arg); /* arg: the rest of the line, without blanks around it */
};

static enum qr_repl_next run_help(struct qr_repl *r, const char *arg);

static void print(struct qr_repl *r, const struct qr_buf *text)
{
    qr_talk_print(r->talk, text->data, text->len);
}

static int32_t columns(const struct qr_repl *r)
{
    return qr_term_columns(&r->talk->term, 2);
}

/* Rows of a table, which is wrapped already. */
static void print_rows(const struct qr_buf *rows)
{
    qr_term_write(2, qr_buf_text(rows), rows->len);
}

static enum qr_repl_next complain(struct qr_repl *r, const struct qr_err *err)
{
    qr_talk_complain(r->talk, err);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_set(struct qr_repl *r, const char *arg)
{
    struct qr_err err;
    struct qr_buf out = {0};
    if (arg[0] == '\0') {
        qr_chat_params_show(&out, &r->talk->params, columns(r));
        qr_wrap_row(&out, " ", "/set NAME VALUE changes one, /set NAME default leaves it to the server.", 2, columns(r));
        print_rows(&out);
        qr_buf_release(&out);
        return QR_REPL_PROMPT;
    }
    size_t n = strcspn(arg, " \t");
    const char *value = arg + n + strspn(arg + n, " \t");
    qr_buf_put(&out, arg, n);
    int rc = qr_chat_params_set(&r->talk->params, out.data, value, out.data, &err);
    qr_buf_release(&out);
    return rc != 0 ? complain(r, &err) : QR_REPL_PROMPT;
}

static void show_history(struct qr_repl *r)
{
    struct qr_buf out = {0};
    const struct qr_session *s = &r->talk->session;
    for (int32_t i = 0; i < s->n; i++) {
        qr_buf_printf(&out, "%s%s:%s%s ", qr_term_style(&r->talk->term, "bold"), qr_role_name(s->message[i].role),
                      qr_term_style(&r->talk->term, "off"), s->message[i].stopped ? " [stopped]" : "");
        qr_buf_put_visible(&out, s->message[i].text, s->message[i].len);
        if (s->message[i].role == QR_ROLE_ASSISTANT && s->message[i].more != NULL) {
            qr_buf_put_str(&out, s->message[i].len > 0 ? " " : "");
            qr_buf_put_visible(&out, s->message[i].more, strlen(s->message[i].more));
        }
        qr_buf_put_byte(&out, '\n');
    }
    print(r, &out);
    qr_buf_release(&out);
}

static void show_row(struct qr_buf *out, const struct qr_repl *r, const char *name, const char *text)
{
    struct qr_buf seen = {0}; /* a server may call itself, and its model, anything */
    qr_buf_put_visible(&seen, text, strlen(text));
    qr_wrap_row(out, name, qr_buf_text(&seen), 21, columns(r));
    qr_buf_release(&seen);
}

static enum qr_repl_next run_show(struct qr_repl *r, const char *arg)
{
    struct qr_talk *t = r->talk;
    struct qr_buf out = {0};
    if (strcmp(arg, "history") == 0) {
        show_history(r);
        return QR_REPL_PROMPT;
    }
    const char *system = qr_session_system(&t->session);
    char messages[64], context[80] = "-";
    snprintf(messages, sizeof messages, "%d (/show history prints them)", t->session.n);
    if (t->context_used > 0 && t->context_max > 0)
        snprintf(context, sizeof context, "%lld of %lld tokens", (long long)t->context_used, (long long)t->context_max);
    else if (t->context_used > 0 || t->context_max > 0)
        snprintf(context, sizeof context, t->context_max > 0 ? "%lld tokens" : "%lld tokens in use",
                 (long long)(t->context_max > 0 ? t->context_max : t->context_used));
    show_row(&out, r, "  server", qr_http_client_name(t->http));
    show_row(&out, r, "  model", qr_buf_text(&t->model));
    show_row(&out, r, "  system", system != NULL ? system : "-");
    show_row(&out, r, "  messages", messages);
    show_row(&out, r, "  context", context);
    show_row(&out, r, "  schema", t->schema_path.len > 0 ? t->schema_path.data : "-");
    qr_chat_params_show(&out, &t->params, columns(r));
    print_rows(&out);
    qr_buf_release(&out);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_system(struct qr_repl *r, const char *arg)
{
    if (arg[0] == '\0') {
        const char *text = qr_session_system(&r->talk->session);
        qr_repl_say(r, "%s", text != NULL ? text : "There is no system message. /system TEXT sets one, /system off removes it.");
    } else
        qr_session_set_system(&r->talk->session, strcmp(arg, "off") == 0 ? NULL : arg);
    return QR_REPL_PROMPT;
}

static void say_models(struct qr_repl *r, const struct qr_json *list)
{
    const struct qr_json *m = NULL;
    for (const char *name; (name = qr_ask_next_model(list, &m)) != NULL;)
        qr_repl_say(r, "%s %s", strcmp(name, qr_buf_text(&r->talk->model)) == 0 ? "*" : " ", name);
}

/* list: NULL where the server has none. */
static void switch_model(struct qr_repl *r, const char *to, const struct qr_json *list)
{
    struct qr_buf *model = &r->talk->model;
    const struct qr_json *m = NULL;
    const char *name = NULL;
    while (list != NULL && (name = qr_ask_next_model(list, &m)) != NULL && strcmp(name, to) != 0)
        ;
    if (list != NULL && name == NULL) {
        qr_repl_say(r, "The server has no model '%s'; the conversation goes on with '%s'. The server's models:", to, qr_buf_text(model));
        say_models(r, list);
        return;
    }
    if (list == NULL)
        qr_repl_say(r, "The server does not list its models, so '%s' is not checked.", to);
    qr_buf_clear(model);
    qr_buf_put_str(model, to);
    r->talk->context_max = name != NULL ? qr_ask_model_context(m) : 0;
}

static enum qr_repl_next run_model(struct qr_repl *r, const char *arg)
{
    struct qr_talk *t = r->talk;
    struct qr_err err;
    struct qr_json *doc = NULL;
    const struct qr_json *m = NULL, *list = NULL;
    t->ask.on_text = NULL;
    const enum qr_ask_end end = qr_ask_run(&t->ask, "GET", "/models", NULL, 0, &err);
    if (end == QR_ASK_INTERRUPTED)
        return QR_REPL_PROMPT;
    const bool no_route = t->ask.status == 404 || t->ask.status == 405;
    if (end != QR_ASK_DONE && (arg[0] == '\0' || !no_route))
        return complain(r, &err);
    if (end == QR_ASK_DONE && qr_json_parse(&doc, qr_buf_text(&t->ask.raw), t->ask.raw.len, &qr_json_limits_file, &err) != 0)
        return complain(r, &err);
    if (doc != NULL)
        list = qr_json_find(doc, "data");
    if (list != NULL && qr_ask_next_model(list, &m) == NULL)
        list = NULL;
    if (arg[0] != '\0')
        switch_model(r, arg, list);
    else if (list != NULL)
        say_models(r, list);
    else
        qr_repl_say(r, "The server lists no models.");
    qr_json_free(doc);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_clear(struct qr_repl *r, const char *arg)
{
    qr_session_clear(&r->talk->session);
    qr_kept_begin(&r->talk->kept);
    r->talk->context_used = 0;
    qr_buf_clear(&r->attached);
    qr_repl_say(r, "A new conversation begins, empty%s.", qr_session_system(&r->talk->session) != NULL ? " but for the system message" : "");
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_undo(struct qr_repl *r, const char *arg)
{
    const bool undone = qr_session_undo(&r->talk->session);
    qr_repl_say(r, undone ? "The last question and its answer are gone." : "There is nothing to undo.");
    r->talk->context_used = undone ? 0 : r->talk->context_used;
    qr_talk_keep(r->talk);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_regen(struct qr_repl *r, const char *arg)
{
    if (qr_session_rewind_to_user(&r->talk->session, &r->before))
        return QR_REPL_ASK;
    qr_repl_say(r, "There is no question to answer again.");
    return QR_REPL_PROMPT;
}

/* ---- files ---- */

static enum qr_repl_next run_read(struct qr_repl *r, const char *arg)
{
    struct qr_buf text = {0};
    struct qr_err err;
    if (qr_file_read(&text, arg, QR_FILE_ANY, READ_MAX, &err) != 0) {
        qr_buf_release(&text);
        return complain(r, &err);
    }
    qr_buf_printf(&r->attached, "%sFile %s:\n", r->attached.len > 0 ? "\n" : "", arg);
    qr_buf_put(&r->attached, text.data, text.len);
    qr_repl_say(r, "%s (%zu bytes) goes with your next message.", arg, text.len);
    qr_buf_release(&text);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_save(struct qr_repl *r, const char *arg)
{
    struct qr_err err;
    if (qr_session_save(&r->talk->session, arg, &err) != 0)
        return complain(r, &err);
    qr_repl_say(r, "%d messages written to %s.", r->talk->session.n, arg);
    return QR_REPL_PROMPT;
}

/* What a conversation is about: its last or first question, on one line. */
static void put_question(struct qr_buf *out, const struct qr_session *s, bool last)
{
    int32_t i = last ? s->n - 1 : 0;
    while (i >= 0 && i < s->n && s->message[i].role != QR_ROLE_USER)
        i += last ? -1 : 1;
    const char *text = i >= 0 && i < s->n ? s->message[i].text : "";
    size_t n = strlen(text), n_shown = n < QUESTION_BYTES ? n : QUESTION_BYTES;
    while (n_shown < n && n_shown > 0 && (text[n_shown] & 0xc0) == 0x80)
        n_shown--;
    const size_t first = out->len;
    qr_buf_put_visible(out, text, n_shown);
    for (size_t k = first; k < out->len; k++)
        out->data[k] = out->data[k] == '\n' || out->data[k] == '\t' ? ' ' : out->data[k];
    qr_buf_put_str(out, n_shown < n ? " .." : "");
}

void qr_repl_go_on(struct qr_repl *r, int64_t number)
{
    struct qr_err err;
    struct qr_buf question = {0};
    QR_ASSERT(r != NULL);
    if (qr_talk_load_kept(r->talk, number, &err) != 0) {
        qr_talk_complain(r->talk, &err);
        return;
    }
    r->talk->context_used = 0;
    put_question(&question, &r->talk->session, true);
    qr_repl_say(r, "The conversation goes on: %d messages (/show history prints them), the last question: %s", r->talk->session.n, qr_buf_text(&question));
    qr_buf_release(&question);
}

/* The newest stands last, where the eye is. */
static enum qr_repl_next run_list(struct qr_repl *r, const char *arg)
{
    struct qr_kept_list list;
    struct qr_buf out = {0}, text = {0};
    struct qr_err err;
    qr_kept_list(&list, &r->talk->kept);
    for (int32_t i = list.n - 1; i >= 0; i--) {
        struct qr_session s = {0};
        char head[64], when[24] = "";
        struct tm tm;
        qr_buf_clear(&text);
        if (qr_session_load(&s, list.file[i].path, &err) == 0)
            put_question(&text, &s, false);
        else
            qr_buf_put_visible(&text, err.msg, strlen(err.msg));
        if (localtime_r(&list.file[i].used.tv_sec, &tm) != NULL)
            strftime(when, sizeof when, "%b %d %H:%M", &tm);
        const bool here = r->talk->kept.path != NULL && strcmp(r->talk->kept.path, list.file[i].path) == 0;
        snprintf(head, sizeof head, "%c%3d  %s  %3d", here ? '*' : ' ', i + 1, when, s.n);
        qr_wrap_row(&out, head, qr_buf_text(&text), 25, columns(r));
        qr_session_release(&s);
    }
    print_rows(&out);
    if (list.n > 0)
        qr_repl_say(r, "Number, last use, messages, first question; /load NUMBER goes on with one. The files are in %s.", r->talk->kept.dir);
    else
        qr_repl_say(r, r->talk->kept.dir != NULL ? "No conversation has been kept yet." : "Conversations are not kept (--no-history, or no home directory).");
    qr_kept_list_release(&list);
    qr_buf_release(&out);
    qr_buf_release(&text);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_load(struct qr_repl *r, const char *arg)
{
    struct qr_err err;
    if (strspn(arg, "0123456789") == strlen(arg)) {
        qr_repl_go_on(r, atoll(arg));
        return QR_REPL_PROMPT;
    }
    if (qr_session_load(&r->talk->session, arg, &err) != 0)
        return complain(r, &err);
    qr_kept_begin(&r->talk->kept);
    r->talk->context_used = 0;
    qr_repl_say(r, "%d messages read from %s.", r->talk->session.n, arg);
    return QR_REPL_PROMPT;
}

/* Runs $VISUAL or $EDITOR on a file with an open signal mask, as any child of a shell has it. */
static bool run_editor(struct qr_repl *r, char *path)
{
    const char *editor = getenv("VISUAL");
    if (editor == NULL || editor[0] == '\0')
        editor = getenv("EDITOR");
    if (editor == NULL || editor[0] == '\0')
        editor = "vi";
    char shell[] = "sh", flag[] = "-c";
    struct qr_buf line = {0};
    qr_buf_printf(&line, "%s \"$0\"", editor);
    char *args[] = {shell, flag, line.data, path, NULL};
    qr_term_restore(&r->talk->term);
    pid_t pid = fork();
    if (pid == 0) {
        sigprocmask(SIG_SETMASK, &r->talk->term.old_mask, NULL);
        signal(SIGPIPE, SIG_DFL);
        execv("/bin/sh", args);
        _exit(127);
    }
    int status = -1;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
        ;
    while (qr_term_signal(&r->talk->term) != 0) /* what the editor's user typed at the editor */
        ;
    qr_term_quiet(&r->talk->term);
    qr_buf_release(&line);
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

static enum qr_repl_next run_edit(struct qr_repl *r, const char *arg)
{
    struct qr_err err = {0};
    const struct qr_message *last = qr_session_last(&r->talk->session, QR_ROLE_USER);
    const char *dir = getenv("TMPDIR");
    char path[300];
    snprintf(path, sizeof path, "%.200s/quire-message-XXXXXX", dir != NULL && dir[0] == '/' ? dir : "/tmp");
    int fd = mkstemp(path);
    if (fd < 0) {
        qr_err_set(&err, QR_E_IO, "cannot make %s: %s", path, strerror(errno));
        return complain(r, &err);
    }
    if (last != NULL)
        qr_term_write(fd, last->text, last->len);
    close(fd);
    qr_buf_clear(&r->message);
    int rc = -1;
    if (run_editor(r, path))
        rc = qr_file_read(&r->message, path, QR_FILE_ANY, READ_MAX, &err);
    else
        qr_err_set(&err, QR_E_IO, "the editor failed; set VISUAL or EDITOR to one that works. Nothing was sent");
    unlink(path);
    if (rc != 0)
        return complain(r, &err);
    while (r->message.len > 0 && r->message.data[r->message.len - 1] == '\n')
        r->message.data[--r->message.len] = '\0';
    if (r->message.len == 0) {
        qr_repl_say(r, "The message is empty; nothing was sent.");
        return QR_REPL_PROMPT;
    }
    qr_editor_remember(r->editor, r->message.data);
    return QR_REPL_SEND;
}

/* ---- the rest ---- */

static enum qr_repl_next run_stats(struct qr_repl *r, const char *arg)
{
    struct qr_talk *t = r->talk;
    if (strcmp(arg, "on") == 0 || strcmp(arg, "off") == 0) {
        t->opt.stats = strcmp(arg, "on") == 0;
        return QR_REPL_PROMPT;
    }
    struct qr_buf out = {0};
    qr_ask_stats(&out, &t->ask);
    if (t->ask.first_ns == 0)
        qr_repl_say(r, "There is no answer yet. /stats on prints a line after each.");
    else
        qr_repl_say(r, "%s", out.data);
    qr_buf_release(&out);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_think(struct qr_repl *r, const char *arg)
{
    struct qr_talk *t = r->talk;
    struct qr_buf out = {0};
    if (strcmp(arg, "on") == 0 || strcmp(arg, "off") == 0) {
        t->show_thinking = strcmp(arg, "on") == 0;
        return QR_REPL_PROMPT;
    }
    if (t->thinking.len == 0) {
        qr_repl_say(r, "The last answer came without thinking. /think on shows it as it comes, /think off folds it.");
        return QR_REPL_PROMPT;
    }
    qr_buf_put_str(&out, qr_term_style(&t->term, "dim"));
    qr_buf_put_visible(&out, t->thinking.data, t->thinking.len);
    while (out.len > 0 && out.data[out.len - 1] == '\n')
        out.len--;
    qr_buf_put_str(&out, qr_term_style(&t->term, "off"));
    qr_buf_put_byte(&out, '\n');
    print(r, &out);
    qr_buf_release(&out);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_schema(struct qr_repl *r, const char *arg)
{
    struct qr_err err;
    if (qr_talk_set_schema(r->talk, arg[0] != '\0' ? arg : NULL, &err) != 0)
        return complain(r, &err);
    if (arg[0] != '\0')
        qr_repl_say(r, "Answers are JSON that fits %s from now on; /schema alone ends that.", arg);
    else
        qr_repl_say(r, "Answers are free.");
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_tools(struct qr_repl *r, const char *arg)
{
    const struct qr_tools *tools = &r->talk->tools;
    struct qr_buf out = {0}, command = {0};
    for (int32_t i = 0; i < tools->n; i++) {
        struct qr_buf head = {0};
        qr_buf_put_str(&head, "  ");
        qr_buf_put_visible(&head, tools->tool[i].name, strlen(tools->tool[i].name));
        qr_buf_clear(&command);
        qr_tool_put_command(&command, &tools->tool[i]);
        qr_buf_put_str(&command, tools->tool[i].always || r->talk->opt.yes_run_tools ? " (runs without asking)" : "");
        show_row(&out, r, head.data, command.data);
        qr_buf_release(&head);
    }
    print_rows(&out);
    if (tools->n == 0)
        qr_repl_say(r, "There are no tools; quire chat --tools FILE gives the model some.");
    qr_buf_release(&command);
    qr_buf_release(&out);
    return QR_REPL_PROMPT;
}

static enum qr_repl_next run_exit(struct qr_repl *r, const char *arg)
{
    return QR_REPL_LEAVE;
}

static const struct command commands[] = {
    {"/help", "", "this list", run_help},
    {"/set", "[NAME VALUE]", "show or change sampling parameters", run_set},
    {"/show", "[history]", "show settings, or the conversation", run_show},
    {"/system", "[TEXT|off]", "show, set or remove the system message", run_system},
    {"/model", "[NAME]", "list the server's models, or switch to one", run_model},
    {"/clear", "", "begin a new conversation; the one before stays in /list", run_clear},
    {"/list", "", "list the conversations that are kept", run_list},
    {"/undo", "", "forget the last question and its answer", run_undo},
    {"/regen", "", "answer the last question again", run_regen},
    {"/edit", "", "write the next message in $EDITOR, beginning with your last one", run_edit},
    {"/read", "FILE", "send a file's text with the next message", run_read},
    {"/save", "FILE", "write the conversation as JSON lines", run_save},
    {"/load", "FILE|N", "read one that was saved, or go on with number N of /list", run_load},
    {"/stats", "[on|off]", "the last answer's figures, or a line after each answer", run_stats},
    {"/think", "[on|off]", "the last answer's thinking, or show it as it comes", run_think},
    {"/schema", "[FILE]", "answers fit a JSON schema from now on; alone: no more", run_schema},
    {"/tools", "", "list the tools that the model may call", run_tools},
    {"/exit", "", "leave", run_exit},
    {"/quit", "", NULL, run_exit},
    {"/bye", "", NULL, run_exit},
    {"/?", "", NULL, run_help},
};

static enum qr_repl_next run_help(struct qr_repl *r, const char *arg)
{
    static const char *const more[] = {
        "\"\"\" begins and ends a message of several lines; so does a backslash at a line's end; a paste may have many.",
        "Ctrl-C stops an answer or drops the line; twice at once, or Ctrl-D, leaves.",
        "A message that begins with a slash: put a blank before it.",
    };
    struct qr_buf out = {0};
    for (int i = 0; i < QR_COUNT(commands); i++) {
        char head[40];
        snprintf(head, sizeof head, "  %-7s %s", commands[i].name, commands[i].arg);
        if (commands[i].help != NULL)
            qr_wrap_row(&out, head, commands[i].help, 25, columns(r));
    }
    for (int i = 0; i < QR_COUNT(more); i++)
        qr_wrap_row(&out, " ", more[i], 2, columns(r));
    print_rows(&out);
    qr_buf_release(&out);
    return QR_REPL_PROMPT;
}

static bool takes_file(const struct command *c)
{
    return strstr(c->arg, "FILE") != NULL;
}

static enum qr_repl_next run_command(struct qr_repl *r, const struct command *c, const char *arg)
{
    const bool is_stdin = strcmp(arg, "-") == 0 && (c->run == run_read || c->run == run_schema);
    if (!takes_file(c) || (arg[0] == '\0' ? c->arg[0] == '[' : !is_stdin))
        return c->run(r, arg);
    qr_repl_say(r, "%s needs a file's name.", c->name);
    return QR_REPL_PROMPT;
}

enum qr_repl_next qr_repl_command(struct qr_repl *r, const char *line)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(line[0] == '/');
    char name[32], arg[4096];
    size_t n = strcspn(line, " \t");
    const char *rest = line + n + strspn(line + n, " \t");
    size_t n_rest = strlen(rest);
    while (n_rest > 0 && (rest[n_rest - 1] == ' ' || rest[n_rest - 1] == '\t'))
        n_rest--;
    snprintf(name, sizeof name, "%.*s", (int)(n < sizeof name ? n : sizeof name - 1), line);
    if (n_rest >= sizeof arg) {
        qr_repl_say(r, "A command's argument may have %zu bytes.", sizeof arg - 1);
        return QR_REPL_PROMPT;
    }
    memcpy(arg, rest, n_rest);
    arg[n_rest] = '\0';
    const char *known[QR_COUNT(commands)];
    for (int i = 0; i < QR_COUNT(commands); i++) {
        known[i] = commands[i].name;
        if (strcmp(commands[i].name, name) == 0)
            return run_command(r, &commands[i], arg);
    }
    const char *near = qr_nearest(name, known, QR_COUNT(commands));
    if (near != NULL)
        qr_repl_say(r, "There is no command '%s'. Did you mean %s? (/help lists them)", name, near);
    else
        qr_repl_say(r, "There is no command '%s'. /help lists them; to send a message that begins with a slash, put a blank before it.", name);
    return QR_REPL_PROMPT;
}

/* ---- completion ---- */

static void complete_files(const char *prefix, void (*add)(void *to, const char *word), void *to)
{
    struct qr_buf pattern = {0};
    for (const char *s = prefix; *s != '\0'; s++) {
        if (strchr("*?[\\", *s) != NULL)
            qr_buf_put_byte(&pattern, '\\');
        qr_buf_put_byte(&pattern, *s);
    }
    qr_buf_put_byte(&pattern, '*');
    glob_t found;
    if (glob(pattern.data, GLOB_MARK, NULL, &found) == 0)
        for (size_t i = 0; i < found.gl_pathc && i < 100; i++)
            add(to, found.gl_pathv[i]);
    globfree(&found);
    qr_buf_release(&pattern);
}

void qr_repl_complete(void *arg, const char *line, size_t n, void (*add)(void *to, const char *word), void *to)
{
    QR_ASSERT(line != NULL);
    QR_ASSERT(add != NULL);
    char text[1024];
    if (n >= sizeof text || n == 0 || line[0] != '/')
        return;
    memcpy(text, line, n);
    text[n] = '\0';
    char *blank = strchr(text, ' ');
    if (blank == NULL) {
        for (int i = 0; i < QR_COUNT(commands); i++)
            if (commands[i].help != NULL && strncmp(commands[i].name, text, n) == 0)
                add(to, commands[i].name);
        return;
    }
    const char *word = blank + 1;
    *blank = '\0';
    if (strchr(word, ' ') != NULL)
        return;
    for (int i = 0; i < QR_COUNT(commands); i++)
        if (takes_file(&commands[i]) && strcmp(text, commands[i].name) == 0)
            complete_files(word, add, to);
    for (int32_t i = 0; strcmp(text, "/set") == 0 && qr_param_name(i) != NULL; i++)
        if (strncmp(qr_param_name(i), word, strlen(word)) == 0)
            add(to, qr_param_name(i));
}
