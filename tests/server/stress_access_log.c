/* The access log while its file is renamed and opened again, and while the reader of a pipe stands still: every line is in one of the files, whole and in
 * order, or counted as lost, and putting takes no time. A plain program, so that the thread sanitizer can run it. */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "server/access_log.h"
#include "tests/soon.h"
#include "tests/temp.h"

#define CHECK(cond)                                                            \
    do {                                                                       \
        if (!(cond)) {                                                         \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
            exit(1);                                                           \
        }                                                                      \
    } while (0)

enum { LINES = 20000, FILES = 10, FILLER = 100 };

static void put(struct qr_access_log *l, int number)
{
    char line[FILLER + 32];
    const int n = snprintf(line, sizeof line, "%d %0*d\n", number, FILLER, 0);
    qr_access_log_put(l, line, (size_t)n);
}

/* Adds what a file has of lines that were put and of those that are told as lost. *last: the number of the last line before. */
static void count(const char *path, int *last, long *n_lines, long *n_lost)
{
    struct qr_buf text = {0};
    struct qr_err err;
    CHECK(qr_file_read(&text, path, QR_FILE_REGULAR, 1 << 30, &err) == 0);
    for (const char *at = text.data, *end; at < text.data + text.len; at = end + 1) {
        end = strchr(at, '\n');
        CHECK(end != NULL);
        const char *lost = strstr(at, "\"lost_lines\":");
        if (*at == '{' && lost && lost < end) {
            *n_lost += atol(lost + 13);
            continue;
        }
        CHECK(atoi(at) > *last && end - at > FILLER);
        *last = atoi(at);
        ++*n_lines;
    }
    qr_buf_release(&text);
}

static void rotate(const char *dir)
{
    char path[100], moved[FILES][100];
    struct qr_access_log *l;
    struct qr_err err;
    struct stat st;
    int last = 0;
    long n_lines = 0, n_lost = 0;
    snprintf(path, sizeof path, "%s/log", dir);
    CHECK(qr_access_log_open(&l, path, &err) == 0);
    CHECK(stat(path, &st) == 0 && (st.st_mode & 0777) == 0600);
    for (int i = 0; i < FILES; i++) {
        for (int k = 0; k < LINES / FILES; k++)
            put(l, 1 + i * (LINES / FILES) + k);
        snprintf(moved[i], sizeof moved[i], "%s/log.%d", dir, i);
        CHECK(rename(path, moved[i]) == 0);
        qr_access_log_reopen(l);
        while (stat(path, &st) != 0)
            usleep(100);
    }
    const long counted = (long)qr_access_log_lost(l);
    qr_access_log_close(l);
    for (int i = 0; i < FILES; i++) {
        count(moved[i], &last, &n_lines, &n_lost);
        unlink(moved[i]);
    }
    count(path, &last, &n_lines, &n_lost);
    unlink(path);
    printf("%ld lines in %d files, %ld lost\n", n_lines, FILES, n_lost);
    CHECK(n_lines + n_lost == LINES && n_lost == counted);
}

static void stand_still(const char *dir)
{
    char path[100];
    struct qr_access_log *l;
    struct qr_err err;
    int64_t longest_us = 0;
    snprintf(path, sizeof path, "%s/pipe", dir);
    CHECK(mkfifo(path, 0600) == 0);
    CHECK(qr_access_log_open(&l, path, &err) == QR_E_IO); /* without a reader it would be waited for */
    const int reader = open(path, O_RDONLY | O_NONBLOCK);
    CHECK(reader >= 0 && qr_access_log_open(&l, path, &err) == 0);
    for (int i = 0; i < LINES; i++) {
        const int64_t begun_us = qr_clock_us();
        put(l, 1 + i);
        const int64_t us = qr_clock_us() - begun_us;
        longest_us = us > longest_us ? us : longest_us;
    }
    CHECK(qr_access_log_lost(l) > 0);
    const int64_t begun_us = qr_clock_us();
    qr_access_log_close(l);
    const int64_t close_us = qr_clock_us() - begun_us;
    printf("a pipe that is not read: the slowest line took %lld us, closing %lld ms\n", (long long)longest_us, (long long)close_us / 1000);
    CHECK(longest_us < TEST_SOON_US(1000000) && close_us < TEST_SOON_US(3000000));
    close(reader);
    unlink(path);
}

int main(void)
{
    char dir[64];
    signal(SIGPIPE, SIG_IGN); /* as the server does: its thread may still write when the reader is gone */
    temp_dir_make(dir, "access");
    rotate(dir);
    stand_still(dir);
    CHECK(rmdir(dir) == 0);
    return 0;
}
