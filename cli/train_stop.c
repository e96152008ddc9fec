#include "cli/train_stop.h"

#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/thread.h"

#define WAKE SIGUSR2 /* ends the thread */

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

static void *wait_for_signals(void *arg)
{
    struct qr_train_stop *s = arg;
    const sigset_t set = watched();
    qr_thread_set_name("signals");
    for (int number; sigwait(&set, &number) == 0 && !atomic_load(&s->over);) {
        if (number == WAKE)
            continue;
        if (atomic_exchange(&s->asked, number) != 0)
            _exit(128 + number);
        ssize_t written = write(STDERR_FILENO, s->text, strlen(s->text));
        (void)written;
    }
    return NULL;
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

void qr_train_stop_close(struct qr_train_stop *s)
{
    QR_ASSERT(s != NULL);
    QR_ASSERT(!atomic_load(&s->over));
    atomic_store(&s->over, true);
    pthread_kill(s->thread, WAKE);
    pthread_join(s->thread, NULL);
    pthread_sigmask(SIG_SETMASK, &s->before, NULL);
}
