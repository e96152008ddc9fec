/* A log whose reader stands still holds nobody up. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"

#define N_LINES 5000

/* What is in the pipe now. */
static void read_all(int fd, char *text, size_t size)
{
    struct pollfd at = {.fd = fd, .events = POLLIN};
    size_t n = 0;
    while (n + 1 < size && poll(&at, 1, 0) > 0) {
        const ssize_t got = read(fd, text + n, size - 1 - n);
        if (got <= 0)
            break;
        n += (size_t)got;
    }
    text[n] = 0;
}

/* Logs many lines, says so, and one more once it is told to. */
static void be_the_child(int log, int said, int told)
{
    char byte = 'x';
    alarm(60); /* who waits for the reader waits for ever */
    dup2(log, STDERR_FILENO);
    for (int i = 0; i < N_LINES; i++)
        qr_log(QR_LOG_INFO, "test", "line number=%d of many that nobody reads", i);
    const bool good = write(said, &byte, 1) == 1 && read(told, &byte, 1) == 1;
    qr_log(QR_LOG_INFO, "test", "the reader is back");
    _exit(good ? 0 : 1);
}

Test(log, who_logs_does_not_wait_for_a_reader_that_stands_still)
{
    static char text[1 << 20];
    int log[2], said[2], told[2], status, n_lines = 0;
    long n_lost = 0;
    char byte;
    cr_assert(pipe(log) == 0 && pipe(said) == 0 && pipe(told) == 0);
    const pid_t child = fork();
    if (child == 0)
        be_the_child(log[1], said[1], told[0]);
    close(said[1]);
    cr_assert_eq(read(said[0], &byte, 1), 1, "it is through without a reader");
    read_all(log[0], text, sizeof text);
    for (const char *at = text; (at = strstr(at, "line number=")) != NULL; at++)
        n_lines++;
    cr_assert(n_lines > 10 && n_lines < N_LINES, "%d lines fit", n_lines);
    cr_assert_eq(write(told[1], "x", 1), 1);
    cr_assert_eq(waitpid(child, &status, 0), child);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    read_all(log[0], text, sizeof text);
    cr_assert_eq(sscanf(text, "... %ld lines of the log are lost here", &n_lost), 1, "%.100s", text);
    cr_assert_eq(n_lost, N_LINES - n_lines, "%ld lost, %d read", n_lost, n_lines);
    cr_assert_not_null(strstr(text, "the reader is back\n"));
}
