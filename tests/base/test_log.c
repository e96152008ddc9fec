/* A log whose reader stands still holds nobody up, and its lines are text. */
#include <criterion/criterion.h>
#include <poll.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/log.h"
#include "base/utf8.h"

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

/* The one line that `text` makes, in `line`; qr_log_text's, or all of it qr_log's. */
static void log_one(char line[8192], const char *text, bool quoted)
{
    int log[2];
    const int before = dup(STDERR_FILENO);
    cr_assert_eq(pipe(log), 0);
    dup2(log[1], STDERR_FILENO);
    if (quoted)
        qr_log_text(QR_LOG_WARN, "test", "fact", "key", text);
    else
        qr_log(QR_LOG_WARN, "test", "%s", text);
    dup2(before, STDERR_FILENO);
    read_all(log[0], line, 8192);
    close(log[0]);
    close(log[1]);
    close(before);
}

Test(log, lines_are_whole_characters_wherever_a_text_is_cut)
{
    char text[4000], line[8192];
    for (int quoted = 0; quoted < 2; quoted++) {
        for (size_t shift = 0; shift < 4; shift++) { /* in one of them the cut is between two characters */
            size_t n = shift;
            memset(text, 'x', shift);
            for (; n + 4 < sizeof text; n += 4)
                memcpy(text + n, "\xf0\x9f\x98\x80", 4);
            text[n] = 0;
            log_one(line, text, quoted);
            const size_t len = strlen(line);
            cr_assert(qr_utf8_is_valid(line, len), "%s", line);
            cr_assert(len > 700 && len <= 1024, "%zu", len);
            cr_assert_str_eq(line + len - (quoted ? 6 : 5), quoted ? "\xf0\x9f\x98\x80\"\n" : "\xf0\x9f\x98\x80\n");
        }
        memset(text, 0xff, sizeof text - 1);
        text[sizeof text - 1] = 0;
        log_one(line, text, quoted);
        cr_assert(qr_utf8_is_valid(line, strlen(line)));
        cr_assert(strlen(line) < 4096 && strstr(line, "\xef\xbf\xbd\xef\xbf\xbd") && line[strlen(line) - 1] == '\n');
        log_one(line, "a\xf0\x9f'b", quoted);
        cr_assert_not_null(strstr(line, "a\xef\xbf\xbd'b"), "%s", line);
    }
}
