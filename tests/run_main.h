/* run_main.h - runs a command inside the test process, with its output caught, and reads files back. For tests. */
#ifndef QR_TESTS_RUN_MAIN_H
#define QR_TESTS_RUN_MAIN_H

#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/buf.h"
#include "base/command.h"

/* The whole of a file, zero-terminated, behind what the buffer holds. Closes fd. */
static inline void slurp(int fd, struct qr_buf *b)
{
    char block[4096];
    ssize_t n;
    lseek(fd, 0, SEEK_SET);
    while ((n = read(fd, block, sizeof block)) > 0)
        qr_buf_put(b, block, (size_t)n);
    qr_buf_put(b, "", 0);
    close(fd);
}

/* Runs a command with `words` cut at blanks, the first being the program's name; returns the exit status. Standard error is thrown away, standard output,
 * too, unless `text` is there to receive it. */
static inline int run_main(const struct qr_command *command, const char *words, struct qr_buf *text)
{
    char copy[1000], *argv[64];
    int argc = 0, null = open("/dev/null", O_RDWR | O_CLOEXEC), caught = text ? memfd_create("caught", MFD_CLOEXEC) : -1;
    snprintf(copy, sizeof copy, "%s", words);
    for (char *word = strtok(copy, " "); word != NULL && argc < 63; word = strtok(NULL, " "))
        argv[argc++] = word;
    argv[argc] = NULL;
    fflush(NULL);
    int out = dup(1), err = dup(2);
    dup2(text ? caught : null, 1);
    dup2(null, 2);
    int status = qr_command_main(command, argc, argv);
    fflush(NULL);
    dup2(out, 1);
    dup2(err, 2);
    close(null);
    close(out);
    close(err);
    if (text)
        slurp(caught, text);
    return status;
}

#endif
