#include "base/files/cut_file.h"

#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/err.h"

#define LINE_MAX_BYTES 1024 /* of /proc/self/maps; a longer path is cut */

/* Everything here may be called inside a signal handler. */

/* Text behind text[n]. Returns the new n. */
static size_t put(char text[LINE_MAX_BYTES + 300], size_t n, const char *more)
{
    while (*more && n < LINE_MAX_BYTES + 299)
        text[n++] = *more++;
    return n;
}

static uintptr_t read_hex(const char **at)
{
    uintptr_t v = 0;
    for (;; ++*at) {
        const char c = **at;
        const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
        if (digit < 0)
            return v;
        v = v << 4 | (uintptr_t)digit;
    }
}

/* "7f00-7f10 r--p 00000000 fe:01 42   /path": the path where `at` lies in the range and it is a file's, else NULL. */
static const char *path_in(const char *line, uintptr_t at)
{
    const uintptr_t first = read_hex(&line);
    if (*line++ != '-')
        return NULL;
    const uintptr_t end = read_hex(&line);
    return at >= first && at < end ? strchr(line, '/') : NULL;
}

/* The name of the mapped file that has the address; false: none. */
static bool find_path(char line[LINE_MAX_BYTES], const char **path, uintptr_t at)
{
    char piece[512];
    ssize_t got;
    size_t n = 0;
    *path = NULL;
    const int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    while (fd >= 0 && !*path && (got = read(fd, piece, sizeof piece)) > 0)
        for (ssize_t i = 0; i < got && !*path; i++) {
            if (piece[i] != '\n') {
                n += n + 1 < LINE_MAX_BYTES;
                line[n - 1] = piece[i];
                continue;
            }
            line[n] = 0;
            n = 0;
            *path = path_in(line, at);
        }
    if (fd >= 0)
        close(fd);
    return *path != NULL;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    char line[LINE_MAX_BYTES], said[LINE_MAX_BYTES + 300];
    const char *path;
    if (info->si_code != BUS_ADRERR || !find_path(line, &path, (uintptr_t)info->si_addr)) {
        signal(number, SIG_DFL);
        raise(number); /* as this handler returns, it ends the process as it would have */
        return;
    }
    size_t n = put(said, 0, "quire: ");
    n = put(said, n, path);
    n = put(said, n, ": became shorter while it was in use, or cannot be read any more; put the whole file in its place and start again (a new file that is "
                     "moved over an old one does no harm)\n");
    const ssize_t done = write(STDERR_FILENO, said, n); /* at once, whichever other threads have come to the same end */
    (void)done;
    _exit(qr_err_exit_status(QR_E_DAMAGED));
}

void qr_cut_file_explain(void)
{
    struct sigaction a = {.sa_sigaction = on_bus_error, .sa_flags = SA_SIGINFO};
    QR_ASSERT(a.sa_sigaction != NULL);
    sigemptyset(&a.sa_mask);
    const int rc = sigaction(SIGBUS, &a, NULL);
    QR_ASSERT(rc == 0);
}
