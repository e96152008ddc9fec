/* tools.c - see tools.h: the file that describes tools, and the running of a command. While a command runs this thread waits for its three
 * pipes, its end, the user's signals and the time that it may take; what it writes beyond the limits is read and dropped, so that it never
 * waits for a reader. */
#include "client/tools.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/json.h"
#include "base/mem.h"

#define FILE_BYTES_MAX ((size_t)4 << 20)
#define ERRORS_MAX ((size_t)4 << 10) /* of a command's stderr */
#define TICK_MS 20 /* how long a command's end may go unseen that has closed its pipes, or whose children keep them */

/* ---- the file ---- */

void qr_tools_release(struct qr_tools *t)
{
    for (int32_t i = 0; i < t->n; i++) {
        for (char **word = t->tool[i].argv; *word != NULL; word++)
            qr_free(*word);
        qr_free(t->tool[i].argv);
        qr_free(t->tool[i].name);
    }
    qr_free(t->tool);
    qr_buf_release(&t->request);
    *t = (struct qr_tools){0};
}

struct qr_tool *qr_tools_find(const struct qr_tools *t, const char *name)
{
    QR_ASSERT(t != NULL);
    QR_ASSERT(name != NULL);
    for (int32_t i = 0; i < t->n; i++)
        if (strcmp(t->tool[i].name, name) == 0)
            return &t->tool[i];
    return NULL;
}

/* A text without zeros inside, as a name or a word of a command is. */
static const char *plain_text(const struct qr_json *v)
{
    size_t n;
    const char *s = qr_json_text(v, &n);
    return s != NULL && n > 0 && strlen(s) == n ? s : NULL;
}

static bool is_command(const struct qr_json *v)
{
    bool good = v != NULL && qr_json_type(v) == QR_JSON_T_ARRAY && qr_json_count(v) > 0 && plain_text(qr_json_first(v)) != NULL;
    for (const struct qr_json *word = good ? qr_json_first(v) : NULL; word != NULL; word = qr_json_after(word)) {
        size_t n;
        const char *s = qr_json_text(word, &n);
        good = good && s != NULL && strlen(s) == n;
    }
    return good;
}

static int take_tool(struct qr_tools *t, const struct qr_json *v, int32_t at, struct qr_err *err)
{
    const struct qr_json *function = qr_json_find(v, "function"), *command = qr_json_find(v, "command");
    const char *name = plain_text(qr_json_find(function, "name"));
    if (name == NULL)
        return qr_err_set(err, QR_E_INVALID, "[%d].function.name: expected a text", at);
    if (qr_tools_find(t, name) != NULL)
        return qr_err_set(err, QR_E_INVALID, "[%d].function.name: '%.100s' is there twice", at, name);
    if (!is_command(command))
        return qr_err_set(err, QR_E_INVALID, "[%d].command: expected the program and its arguments, as [\"./weather.sh\", \"--json\"]", at);
    struct qr_tool *tool = &t->tool[t->n++];
    int32_t n = 0;
    tool->name = qr_strdup(name);
    tool->argv = qr_alloc((size_t)qr_json_count(command) + 1, sizeof *tool->argv);
    for (const struct qr_json *word = qr_json_first(command); word != NULL; word = qr_json_after(word))
        tool->argv[n++] = qr_strdup(qr_json_str(word, NULL));
    qr_buf_put_str(&t->request, t->n == 1 ? ",\"tools\":[" : ",");
    qr_buf_put_str(&t->request, "{\"type\":\"function\",\"function\":");
    qr_json_print(&t->request, function);
    qr_buf_put_byte(&t->request, '}');
    return 0;
}

static int take_tools(struct qr_tools *t, const struct qr_json *doc, struct qr_err *err)
{
    const int32_t n = qr_json_type(doc) == QR_JSON_T_ARRAY ? qr_json_count(doc) : 0;
    int rc = 0, at = 0;
    if (n < 1 || n > QR_TOOLS_MAX)
        return qr_err_set(err, QR_E_INVALID, "expected an array of 1 to %d tools, each {\"function\": {...}, \"command\": [...]}", QR_TOOLS_MAX);
    t->tool = qr_alloc((size_t)n, sizeof *t->tool);
    for (const struct qr_json *v = qr_json_first(doc); rc == 0 && v != NULL; v = qr_json_after(v))
        rc = take_tool(t, v, at++, err);
    qr_buf_put_byte(&t->request, ']');
    return rc;
}

int qr_tools_load(struct qr_tools *t, const char *path, struct qr_err *err)
{
    QR_ASSERT(t != NULL && t->n == 0);
    QR_ASSERT(path != NULL);
    struct qr_buf text = {0};
    struct qr_json *doc = NULL;
    int rc = qr_file_read(&text, path, QR_FILE_ANY, FILE_BYTES_MAX, err);
    if (rc == 0) {
        rc = qr_json_parse(&doc, text.data, text.len, &qr_json_limits_file, err);
        rc = rc ? rc : take_tools(t, doc, err);
        if (rc != 0)
            qr_err_prefix(err, "%s: ", path);
    }
    if (rc != 0)
        qr_tools_release(t);
    qr_json_free(doc);
    qr_buf_release(&text);
    return rc;
}

void qr_tool_put_command(struct qr_buf *out, const struct qr_tool *tool)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(tool != NULL);
    for (char **word = tool->argv; *word != NULL; word++) {
        const bool plain = (*word)[0] != '\0' && strpbrk(*word, " \t\n\"'\\") == NULL;
        qr_buf_put_str(out, word == tool->argv ? "" : " ");
        if (plain)
            qr_buf_put_str(out, *word);
        else
            qr_json_put_str(out, *word, strlen(*word));
    }
}

/* ---- a run ---- */

struct run {
    pid_t pid;
    int in, out, err;         /* our ends of its pipes; -1: closed */
    const char *arguments;    /* borrowed */
    size_t n_arguments, n_written;
    struct qr_buf output, errors; /* owned */
    size_t n_output, n_errors;    /* that came, kept or not */
    int status;
    bool ended;
};

static void close_end(int *fd)
{
    if (*fd >= 0)
        close(*fd);
    *fd = -1;
}

/* The child's part: only functions that are safe between fork and exec. */
static void become(const struct qr_tool *tool, const int pipe_of[3][2], const sigset_t *mask)
{
    static const char what[] = "the command cannot be run: ";
    char why[128];
    setsid();
    if (dup2(pipe_of[0][0], 0) == 0 && dup2(pipe_of[1][1], 1) == 1 && dup2(pipe_of[2][1], 2) == 2) {
        signal(SIGPIPE, SIG_DFL);
        sigprocmask(SIG_SETMASK, mask, NULL);
        execvp(tool->argv[0], tool->argv);
    }
    const char *reason = qr_errno_text(why, errno);
    if (write(2, what, sizeof what - 1) < 0 || write(2, reason, strlen(reason)) < 0)
        _exit(126);
    _exit(127);
}

static bool begin(struct run *r, const struct qr_tool *tool, const sigset_t *mask)
{
    int pipe_of[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};
    bool good = true;
    for (int i = 0; i < 3; i++)
        good = good && pipe2(pipe_of[i], O_CLOEXEC) == 0;
    r->pid = good ? fork() : -1;
    if (r->pid == 0)
        become(tool, pipe_of, mask);
    r->in = pipe_of[0][1];
    r->out = pipe_of[1][0];
    r->err = pipe_of[2][0];
    close_end(&pipe_of[0][0]);
    close_end(&pipe_of[1][1]);
    close_end(&pipe_of[2][1]);
    if (r->pid > 0)
        fcntl(r->in, F_SETFL, O_NONBLOCK);
    return r->pid > 0;
}

static void write_some(struct run *r)
{
    const ssize_t n = write(r->in, r->arguments + r->n_written, r->n_arguments - r->n_written);
    r->n_written += n > 0 ? (size_t)n : 0;
    if (r->n_written == r->n_arguments || (n < 0 && errno != EAGAIN && errno != EINTR))
        close_end(&r->in);
}

static void read_some(int *fd, struct qr_buf *kept, size_t *n_came, size_t max)
{
    char block[4096];
    const ssize_t n = read(*fd, block, sizeof block);
    if (n < 0 && errno == EINTR)
        return;
    if (n <= 0) {
        close_end(fd);
        return;
    }
    const size_t room = max - kept->len;
    qr_buf_put(kept, block, (size_t)n < room ? (size_t)n : room);
    *n_came += (size_t)n;
}

static bool has_more(int fd)
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    return fd >= 0 && poll(&p, 1, 0) > 0;
}

/* Waits a little and takes what there is. */
static void step(struct run *r, int signal_fd)
{
    struct pollfd p[] = {{.fd = r->in, .events = POLLOUT}, {.fd = r->out, .events = POLLIN}, {.fd = r->err, .events = POLLIN},
                         {.fd = signal_fd, .events = POLLIN}};
    if (poll(p, QR_COUNT(p), TICK_MS) > 0) {
        if (p[0].revents != 0)
            write_some(r);
        if (p[1].revents != 0)
            read_some(&r->out, &r->output, &r->n_output, QR_TOOL_OUTPUT_MAX);
        if (p[2].revents != 0)
            read_some(&r->err, &r->errors, &r->n_errors, ERRORS_MAX);
    }
    r->ended = waitpid(r->pid, &r->status, WNOHANG) == r->pid;
    while (r->ended && has_more(r->out) && r->n_output < QR_TOOL_OUTPUT_MAX)
        read_some(&r->out, &r->output, &r->n_output, QR_TOOL_OUTPUT_MAX);
    while (r->ended && has_more(r->err) && r->n_errors < ERRORS_MAX)
        read_some(&r->err, &r->errors, &r->n_errors, ERRORS_MAX);
}

/* The user's signal that is to end the run, or 0. */
static int heard(struct qr_term *term)
{
    int found = 0;
    for (int s; (s = qr_term_signal(term)) != 0;) {
        if (s == SIGTSTP)
            qr_term_suspend(term);
        else if (s != SIGWINCH)
            found = s;
    }
    return found;
}

/* Without line ends at its end; a zero is no text. */
static void put_text(struct qr_buf *out, const struct qr_buf *text)
{
    size_t n = text->len;
    while (n > 0 && (text->data[n - 1] == '\n' || text->data[n - 1] == '\r'))
        n--;
    for (size_t i = 0; i < n; i++)
        qr_buf_put_byte(out, text->data[i] != '\0' ? text->data[i] : '?');
}

static void put_result(struct qr_buf *out, const struct run *r, int64_t timeout_us, bool late)
{
    put_text(out, &r->output);
    if (r->n_output > r->output.len)
        qr_buf_printf(out, "\n[cut here: the command wrote more than %zu bytes]", QR_TOOL_OUTPUT_MAX);
    if (!late && WIFEXITED(r->status) && WEXITSTATUS(r->status) == 0)
        return;
    qr_buf_put_str(out, out->len > 0 ? "\n" : "");
    if (late)
        qr_buf_printf(out, "[error: the command was ended after %.0f s]", (double)timeout_us * 1e-6);
    else if (WIFEXITED(r->status))
        qr_buf_printf(out, "[error: exit status %d]", WEXITSTATUS(r->status));
    else
        qr_buf_printf(out, "[error: ended by signal %d]", WTERMSIG(r->status));
    qr_buf_put_str(out, r->errors.len > 0 ? " " : "");
    put_text(out, &r->errors);
}

int qr_tool_run(struct qr_buf *result, const struct qr_tool *tool, const char *arguments, size_t n_arguments, int64_t timeout_us,
                struct qr_term *term)
{
    QR_ASSERT(result != NULL && tool != NULL && term != NULL);
    QR_ASSERT(arguments != NULL && timeout_us > 0);
    struct run r = {.in = -1, .out = -1, .err = -1, .arguments = arguments, .n_arguments = n_arguments};
    struct qr_buf text = {0};
    const int64_t end_us = qr_clock_us() + timeout_us;
    int stopped = 0;
    bool late = false;
    if (!begin(&r, tool, &term->old_mask))
        qr_buf_printf(result, "[error: the command cannot be started: %s]", strerror(errno));
    while (r.pid > 0 && !r.ended && stopped == 0 && !late) {
        step(&r, term->signal_fd);
        stopped = heard(term);
        late = !r.ended && qr_clock_us() >= end_us;
    }
    if (r.pid > 0)
        kill(-r.pid, SIGKILL);
    if (r.pid > 0 && !r.ended) {
        kill(r.pid, SIGKILL); /* it may not be a session yet */
        waitpid(r.pid, &r.status, 0);
    }
    if (r.pid > 0 && stopped == 0)
        put_result(&text, &r, timeout_us, late);
    if (text.len > 0)
        qr_buf_put(result, text.data, text.len);
    close_end(&r.in);
    close_end(&r.out);
    close_end(&r.err);
    qr_buf_release(&r.output);
    qr_buf_release(&r.errors);
    qr_buf_release(&text);
    return stopped;
}
