/* desk.h - the chat at a real terminal (a pty) with a fake server, for tests that type and read. */
#ifndef QR_TESTS_DESK_H
#define QR_TESTS_DESK_H

#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <termios.h>
#include <unistd.h>

#include "base/clock.h"
#include "client/chat.h"
#include "client/chunk.h"
#include "fake_server.h"
#include "tests/temp.h"

struct desk {
    struct fake_server *server;
    int fd; /* the terminal's other end */
    pid_t pid;
    struct termios before;
    struct qr_buf screen; /* all bytes written so far */
    size_t seen;          /* of them, looked at */
    char state[64];
};

static inline void child(struct desk *d, const char *slave, const char *words)
{
    char name[] = "chat", url[80], copy[500], *argv[32] = {name};
    int argc = 1, tty;
    setsid(); /* refused, rightly, when a shell() leads */
    tty = open(slave, O_RDWR);
    ioctl(tty, TIOCSCTTY, 0);
    for (int i = 0; i < 3; i++)
        dup2(tty, i);
    setenv("XDG_STATE_HOME", d->state, 1);
    setenv("HOME", d->state, 1);
    setenv("TERM", "xterm", 0);
    snprintf(url, sizeof url, "--url=http://127.0.0.1:%d", d->server->port);
    snprintf(copy, sizeof copy, "%s", words);
    argv[argc++] = url;
    for (char *word = strtok(copy, " "); word != NULL; word = strtok(NULL, " "))
        argv[argc++] = word;
    fake_child_exit(qr_command_main(&qr_chat_command, argc, argv));
}

static inline struct desk *lay_out(struct fake_script script)
{
    struct desk *d = calloc(1, sizeof *d);
    struct winsize size = {.ws_row = 24, .ws_col = 80};
    char slave[100];
    d->fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (d->fd < 0) {
        free(d);
        cr_skip_test("no pseudo-terminals here (is /dev/pts mounted?)");
    }
    temp_dir_make(d->state, "repl");
    d->server = fake_start(script);
    cr_assert(d->fd >= 0 && grantpt(d->fd) == 0 && unlockpt(d->fd) == 0);
    cr_assert_eq(ptsname_r(d->fd, slave, sizeof slave), 0);
    ioctl(d->fd, TIOCSWINSZ, &size);
    int keep = open(slave, O_RDWR | O_NOCTTY | O_CLOEXEC); /* so that the settings outlive the child */
    tcgetattr(keep, &d->before);
    return d;
}

static inline struct desk *sit_down(struct fake_script script, const char *words)
{
    struct desk *d = lay_out(script);
    char slave[100];
    cr_assert_eq(ptsname_r(d->fd, slave, sizeof slave), 0);
    d->pid = fork();
    if (d->pid == 0)
        child(d, slave, words);
    return d;
}

static inline bool pump(struct desk *d, int ms)
{
    struct pollfd p = {.fd = d->fd, .events = POLLIN};
    char block[65536];
    if (poll(&p, 1, ms) <= 0)
        return false;
    ssize_t n = read(d->fd, block, sizeof block);
    if (n > 0)
        qr_buf_put(&d->screen, block, (size_t)n);
    return n > 0;
}

/* Waits for text behind what was seen before; up to 60 s, which a loaded machine may need. */
static inline void wait_for(struct desk *d, const char *text)
{
    int64_t end = qr_clock_us() + 60000000;
    for (;;) {
        const char *found = d->screen.len > d->seen ? memmem(d->screen.data + d->seen, d->screen.len - d->seen, text, strlen(text)) : NULL;
        if (found != NULL) {
            d->seen = (size_t)(found - d->screen.data) + strlen(text);
            return;
        }
        cr_assert(qr_clock_us() < end, "'%s' did not appear in:\n%s", text, qr_buf_text(&d->screen) + d->seen);
        pump(d, 100);
    }
}

static inline void type(struct desk *d, const char *keys)
{
    size_t n = strlen(keys);
    for (size_t at = 0; at < n;) {
        ssize_t k = write(d->fd, keys + at, n - at < 512 ? n - at : 512);
        cr_assert(k > 0);
        at += (size_t)k;
        pump(d, 0);
    }
}

static inline void wait_prompt(struct desk *d)
{
    wait_for(d, ">>> ");
}

/* The end of the child: its status, and the terminal's settings as they were. */
static inline int leave(struct desk *d)
{
    int status = -1;
    int64_t end = qr_clock_us() + 60000000;
    while (waitpid(d->pid, &status, WNOHANG) == 0) {
        cr_assert(qr_clock_us() < end, "it did not end:\n%s", qr_buf_text(&d->screen) + d->seen);
        pump(d, 20);
    }
    struct termios after;
    cr_assert_eq(tcgetattr(d->fd, &after), 0);
    cr_expect_eq(after.c_lflag, d->before.c_lflag, "local modes restored");
    cr_expect_eq(after.c_iflag, d->before.c_iflag, "input modes restored");
    cr_expect_eq(after.c_oflag, d->before.c_oflag, "output modes restored");
    cr_expect_eq(memcmp(after.c_cc, d->before.c_cc, sizeof after.c_cc), 0, "control characters restored");
    while (pump(d, 0))
        ;
    const char *on = NULL, *off = NULL;
    for (const char *s = qr_buf_text(&d->screen); (s = strstr(s, "\033[?2004")) != NULL; s++) {
        on = s[7] == 'h' ? s : on;
        off = s[7] == 'l' ? s : off;
    }
    cr_expect(on == NULL || off > on, "bracketed paste is off again");
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
}

/* Ctrl-C within a second of the one before leaves. On a busy machine that second may be over when the keys are read: they are pressed again, a few times. */
static inline int leave_by_ctrl_c(struct desk *d)
{
    siginfo_t ended = {0};
    for (int i = 0; i < 6 && ended.si_pid == 0; i++) {
        type(d, "\003");
        for (int k = 0; k < 40 && ended.si_pid == 0; k++) {
            pump(d, 10);
            waitid(P_PID, (id_t)d->pid, &ended, WEXITED | WNOHANG | WNOWAIT);
        }
    }
    return leave(d);
}

static inline void stand_up(struct desk *d)
{
    char command[100];
    fake_stop(d->server);
    close(d->fd);
    qr_buf_release(&d->screen);
    snprintf(command, sizeof command, "rm -r %s", d->state);
    cr_expect_eq(system(command), 0);
    free(d);
}

/* A line that is typed, and dealt with before the next. */
static inline void say(struct desk *d, const char *line)
{
    type(d, line);
    wait_prompt(d);
}

/* Ctrl-D at the prompt ends a conversation that went well. */
static inline void say_goodbye(struct desk *d)
{
    type(d, "\004");
    cr_expect_eq(leave(d), 0);
    stand_up(d);
}

static inline void wait_gone(struct desk *d, int n)
{
    for (int i = 0; i < 12000 && d->server->n_gone < n; i++)
        usleep(5000);
    cr_expect_eq(d->server->n_gone, n, "the server saw the connection close");
}

static inline bool sent(struct desk *d, const char *text)
{
    return strstr(d->server->body, text) != NULL;
}

#endif
