/* term.c - modes of a terminal, and signals as descriptors (term.h). */
#include "client/term.h"

#include <errno.h>
#include <langinfo.h>
#include <locale.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "base/assert.h"

static bool wants_colour(enum qr_colour mode, bool out_tty)
{
    if (mode != QR_COLOUR_AUTO)
        return mode == QR_COLOUR_ALWAYS;
    const char *no = getenv("NO_COLOR"), *kind = getenv("TERM");
    return out_tty && (no == NULL || no[0] == '\0') && kind != NULL && strcmp(kind, "dumb") != 0;
}

/* How wide characters are, the C library says for this locale only. */
static void use_utf8(void)
{
    setlocale(LC_CTYPE, "");
    if (strcmp(nl_langinfo(CODESET), "UTF-8") != 0 && setlocale(LC_CTYPE, "C.UTF-8") == NULL)
        setlocale(LC_CTYPE, "en_US.UTF-8");
}

void qr_term_open(struct qr_term *t, enum qr_colour colour)
{
    QR_ASSERT(t != NULL);
    use_utf8();
    *t = (struct qr_term){.in_tty = isatty(0), .out_tty = isatty(1), .err_tty = isatty(2)};
    t->colour = wants_colour(colour, t->out_tty);
    if (t->in_tty && tcgetattr(0, &t->cooked) != 0)
        t->in_tty = false;
    sigset_t set;
    sigemptyset(&set);
    static const int always[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT}, with_tty[] = {SIGTSTP, SIGWINCH};
    for (int i = 0; i < QR_COUNT(always); i++)
        sigaddset(&set, always[i]);
    for (int i = 0; t->in_tty && i < QR_COUNT(with_tty); i++)
        sigaddset(&set, with_tty[i]);
    sigprocmask(SIG_BLOCK, &set, &t->old_mask);
    t->signal_fd = signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC);
    if (t->signal_fd < 0)
        qr_panic("cannot watch signals: %s", strerror(errno));
}

void qr_term_close(struct qr_term *t)
{
    QR_ASSERT(t != NULL);
    qr_term_restore(t);
    close(t->signal_fd);
    t->signal_fd = -1;
    sigprocmask(SIG_SETMASK, &t->old_mask, NULL);
}

void qr_term_quiet(struct qr_term *t)
{
    QR_ASSERT(t != NULL);
    if (!t->in_tty)
        return;
    struct termios quiet = t->cooked;
    quiet.c_lflag &= (tcflag_t) ~(ECHO | ICANON);
    quiet.c_cc[VMIN] = 1;
    quiet.c_cc[VTIME] = 0;
    t->quiet = tcsetattr(0, TCSADRAIN, &quiet) == 0;
}

void qr_term_restore(struct qr_term *t)
{
    QR_ASSERT(t != NULL);
    if (t->quiet)
        tcsetattr(0, TCSADRAIN, &t->cooked);
    t->quiet = false;
}

int qr_term_signal(struct qr_term *t)
{
    QR_ASSERT(t != NULL);
    struct signalfd_siginfo info;
    return read(t->signal_fd, &info, sizeof info) == sizeof info ? (int)info.ssi_signo : 0;
}

void qr_term_stop_self(void)
{
    sigset_t stop, before;
    sigemptyset(&stop);
    sigaddset(&stop, SIGTSTP);
    raise(SIGTSTP); /* pending while blocked; taken when the mask opens */
    sigprocmask(SIG_UNBLOCK, &stop, &before);
    sigprocmask(SIG_SETMASK, &before, NULL);
}

void qr_term_suspend(struct qr_term *t)
{
    QR_ASSERT(t != NULL);
    const bool quiet = t->quiet;
    qr_term_restore(t);
    qr_term_stop_self();
    if (quiet)
        qr_term_quiet(t);
}

const char *qr_term_style(const struct qr_term *t, const char *name)
{
    static const char *const table[][2] = {{"off", "\033[0m"},  {"bold", "\033[1m"}, {"dim", "\033[2m"},
                                           {"red", "\033[31m"}, {"cyan", "\033[36m"}};
    QR_ASSERT(t != NULL);
    for (int i = 0; t->colour && i < QR_COUNT(table); i++)
        if (strcmp(table[i][0], name) == 0)
            return table[i][1];
    return "";
}

int32_t qr_term_columns(const struct qr_term *t, int fd)
{
    struct winsize size;
    QR_ASSERT(t != NULL);
    QR_ASSERT(fd == 1 || fd == 2);
    return (fd == 1 ? t->out_tty : t->err_tty) && ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

bool qr_term_write(int fd, const char *s, size_t n)
{
    QR_ASSERT(s != NULL || n == 0);
    while (n > 0) {
        ssize_t k = write(fd, s, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return false;
        s += k;
        n -= (size_t)k;
    }
    return true;
}
