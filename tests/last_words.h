/* last_words.h - a test of how a process ends: a child of the test does so, and what it said is looked at. */
#ifndef QR_TESTS_LAST_WORDS_H
#define QR_TESTS_LAST_WORDS_H

#include <criterion/criterion.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child calls die, which does not return, or, if it does, ends with 96. said: what it writes to stderr, up to 511 bytes. Returns its status, as
 * waitpid has it. */
static inline int last_words(char said[512], void (*die)(const void *arg), const void *arg)
{
    int ends[2], status;
    cr_assert_eq(pipe(ends), 0);
    const pid_t child = fork();
    cr_assert_neq(child, -1);
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        die(arg);
        _exit(96);
    }
    close(ends[1]);
    size_t n = 0;
    for (ssize_t got; n < 511 && (got = read(ends[0], said + n, 511 - n)) > 0; n += (size_t)got) {
    }
    said[n] = 0;
    close(ends[0]);
    cr_assert_eq(waitpid(child, &status, 0), child);
    return status;
}

#endif
