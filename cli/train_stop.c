#include "cli/train_stop.h"

#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/thread.h"

#define WAKE SIGUSR2    /* ends the thread */
#define ECHO_US 1000000 /* a signal of the same kind and sender within so long is the first one again */

static sigset_t watched(void)
{
    sigset_t set;
    struct sigaction hangup;
    sigemptyset(&set);
    if (sigaction(SIGHUP, NULL, &hangup) == 0 && hangup.sa_handler != SIG_IGN) /* a terminal that is closed, unless under nohup */
        sigaddset(&set, SIGHUP);
    sigaddset(&set, SIGINT);
    sigaddset(&set, SIGTERM);
    sigaddset(&set, WAKE);
    return set;
}

/* coreutils' timeout, among others, sends a signal to the process and then to its group, which is the same process again. That is one wish. */
static bool is_echo(const siginfo_t *now, const siginfo_t *first, int64_t first_us)
{
    return now->si_signo == first->si_signo && now->si_code == SI_USER && first->si_code == SI_USER && now->si_pid == first->si_pid &&
           qr_clock_us() - first_us < ECHO_US;
}

static void *wait_for_signals(void *arg)
{
    struct qr_train_stop *s = arg;
    const sigset_t set = watched();
    siginfo_t first = {0}, now;
    int64_t first_us = 0;
    qr_thread_set_name("signals");
    for (;;) {
        const int number = sigwaitinfo(&set, &now);
        if (atomic_load(&s->over))
            return NULL;
        if (number < 0 || number == WAKE || (first_us && is_echo(&now, &first, first_us))) /* < 0: EINTR */
            continue;
        if (atomic_exchange(&s->asked, number) != 0)
            _exit(128 + number);
        first = now;
        first_us = qr_clock_us();
        ssize_t written = write(STDERR_FILENO, s->text, strlen(s->text));
        (void)written;
    }
}

void qr_train_stop_hold(sigset_t *before)
{
    QR_ASSERT(before != NULL);
    const sigset_t set = watched();
    int rc = pthread_sigmask(SIG_BLOCK, &set, before);
    QR_ASSERT(rc == 0);
}

void qr_train_stop_open(struct qr_train_stop *s, const char *text)
{
    QR_ASSERT(s != NULL && text != NULL);
    *s = (struct qr_train_stop){.text = text};
    qr_train_stop_hold(&s->before);
    qr_thread_start(&s->thread, wait_for_signals, s, "signals");
}

int qr_train_stop_close(struct qr_train_stop *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(!atomic_load(&s->over));
    atomic_store(&s->over, true);
    pthread_kill(s->thread, WAKE);
    pthread_join(s->thread, NULL);
    pthread_sigmask(SIG_SETMASK, &s->before, NULL);
    return s->asked ? 128 + s->asked : 0;
}
