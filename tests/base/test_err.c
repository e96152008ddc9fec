#include <criterion/criterion.h>
#include <fcntl.h>
#include <regex.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/err.h"
#include "base/log.h"
#include "base/size.h"
#include "base/thread.h"
#include "base/utf8.h"

Test(err, a_number_out_of_range_and_a_size_have_one_wording)
{
    static const struct {
        int64_t n;
        const char *text;
    } size[] = {{0, "0 B"}, {1023, "1023 B"}, {1024, "1.0 KiB"}, {40960, "40.0 KiB"}, {1 << 20, "1.0 MiB"}, {(int64_t)9536743 << 20, "9.1 TiB"},
                {INT64_MAX, "8388608.0 TiB"}};
    struct qr_err err;
    char text[QR_SIZE_TEXT];
    cr_assert_eq(qr_err_range(&err, "--port", "0", "65535", "99999"), QR_E_USAGE);
    cr_assert_str_eq(err.msg, "--port must be from 0 to 65535, found 99999");
    for (size_t i = 0; i < sizeof size / sizeof *size; i++)
        cr_expect_str_eq(qr_size_text(text, size[i].n), size[i].text);
}

Test(err, is_filled_once_and_prefixed_on_the_way_up)
{
    struct qr_err err;
    cr_assert_eq(qr_err_at(&err, QR_E_INVALID, "messages[2].content", "expected %s, found %d", "text", 5), QR_E_INVALID);
    cr_assert_str_eq(err.param, "messages[2].content");
    cr_assert_str_eq(err.msg, "expected text, found 5");
    cr_assert_eq(qr_err_prefix(&err, "%s: ", "request 7"), QR_E_INVALID);
    cr_assert_str_eq(err.msg, "request 7: expected text, found 5");
    cr_assert_str_eq(err.param, "messages[2].content", "a prefix keeps the field");
    cr_assert_eq(qr_err_set(&err, QR_E_IO, "x"), QR_E_IO);
    cr_assert_str_eq(err.param, "");
    cr_assert_eq(err.code, QR_E_IO);
}

Test(err, may_be_filled_from_its_own_text)
{
    struct qr_err err;
    qr_err_at(&err, QR_E_IO, "field", "first");
    qr_err_at(&err, QR_E_DAMAGED, err.param, "second: %s", err.msg);
    cr_assert_str_eq(err.msg, "second: first");
    cr_assert_str_eq(err.param, "field");
}

Test(err, cuts_long_messages_between_characters)
{
    char text[1200];
    for (size_t pad = 0; pad < 4; pad++) {
        struct qr_err err;
        memset(text, 'a', pad);
        for (size_t i = pad; i + 4 < sizeof text; i += 4)
            memcpy(text + i, "\xF0\x9F\x98\x80", 5);
        qr_err_at(&err, QR_E_IO, text, "%s", text);
        size_t n = strlen(err.msg);
        cr_assert(n < sizeof err.msg && n >= sizeof err.msg - 4);
        cr_assert_eq(qr_utf8_valid_prefix(err.msg, n), n);
        cr_assert_eq(qr_utf8_valid_prefix(err.param, strlen(err.param)), strlen(err.param));
        for (int i = 0; i < 600; i++)
            qr_err_prefix(&err, "%d: ", i % 10);
        n = strlen(err.msg);
        cr_assert(n < sizeof err.msg);
        cr_assert_eq(strncmp(err.msg, "9: 8: 7: ", 9), 0);
        qr_err_prefix(&err, "%s", text);
        n = strlen(err.msg);
        cr_assert_eq(qr_utf8_valid_prefix(err.msg, n), n);
    }
}

Test(err, has_an_exit_status_for_every_code)
{
    static const struct {
        enum qr_code code;
        int status;
    } row[] = {{QR_OK, 0},          {QR_E_USAGE, 2},   {QR_E_BIND, 3},      {QR_E_NOT_FOUND, 4}, {QR_E_DAMAGED, 4}, {QR_E_UNSUPPORTED, 4}, {QR_E_IO, 4},
               {QR_E_NO_ROOM, 5},   {QR_E_INVALID, 1}, {QR_E_TOO_LARGE, 4}, {QR_E_BUSY, 1},      {QR_E_CLOSED, 1},  {QR_E_DENIED, 1},      {QR_E_INTERNAL, 70}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        cr_assert_eq(qr_err_exit_status(row[i].code), row[i].status);
}

Test(assert, aborts_with_the_place_and_the_condition, .signal = SIGABRT)
{
    QR_ASSERT(1 + 1 == 3);
}

Test(assert, panics_by_aborting, .signal = SIGABRT)
{
    qr_panic("no %s", "more");
}

/* What qr_log writes to stderr, into out[n]; with a key qr_log_text. */
static void capture_text(char *out, size_t n, enum qr_log_level level, const char *key, const char *text)
{
    int fd[2], saved = dup(STDERR_FILENO);
    cr_assert_eq(pipe(fd), 0);
    dup2(fd[1], STDERR_FILENO);
    if (key)
        qr_log_text(level, "test", "fact", key, text);
    else
        qr_log(level, "test", "%s", text);
    dup2(saved, STDERR_FILENO);
    close(fd[1]);
    close(saved);
    size_t got = 0;
    for (ssize_t r; got < n - 1 && (r = read(fd[0], out + got, n - 1 - got)) > 0;)
        got += (size_t)r;
    out[got] = 0;
    close(fd[0]);
}

static void capture(char *out, size_t n, enum qr_log_level level, const char *text)
{
    capture_text(out, n, level, NULL, text);
}

Test(log, writes_one_line_per_fact)
{
    char line[4096], longest[3000];
    regex_t re;
    cr_assert_eq(regcomp(&re, "^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\\.[0-9]{3}Z warn test a b  c=1\n$", REG_EXTENDED | REG_NOSUB), 0);
    capture(line, sizeof line, QR_LOG_WARN, "a\nb\x1b\tc=1");
    cr_assert_eq(regexec(&re, line, 0, NULL, 0), 0, "%s", line);
    regfree(&re);
    memset(longest, 'x', sizeof longest - 1);
    longest[sizeof longest - 1] = 0;
    capture(line, sizeof line, QR_LOG_ERROR, longest);
    cr_assert_eq(strlen(line), 1024);
    cr_assert_eq(strchr(line, '\n'), line + 1023);
}

Test(log, text_from_elsewhere_stays_inside_its_quotes_however_long_it_is)
{
    char line[4096], longest[3000];
    capture_text(line, sizeof line, QR_LOG_WARN, "reason", "expected \"a\\b\"\nname=\"c");
    cr_assert_not_null(strstr(line, " warn test fact reason=\"expected \\\"a\\\\b\\\" name=\\\"c\"\n"), "%s", line);
    for (size_t first = 0; first < 2; first++) { /* a pair of bytes is never cut */
        memset(longest, '"', sizeof longest - 1);
        memset(longest, 'x', first);
        longest[sizeof longest - 1] = 0;
        capture_text(line, sizeof line, QR_LOG_WARN, "reason", longest);
        const size_t n = strlen(line);
        cr_assert(n > 500 && n < 1024 && strcmp(line + n - 4, "\\\"\"\n") == 0, "%s", line);
    }
}

Test(log, keeps_quiet_below_its_level)
{
    char line[256];
    cr_assert(!qr_log_on(QR_LOG_DEBUG));
    capture(line, sizeof line, QR_LOG_DEBUG, "quiet");
    cr_assert_str_eq(line, "");
    qr_log_set_level(QR_LOG_DEBUG);
    cr_assert(qr_log_on(QR_LOG_DEBUG));
    capture(line, sizeof line, QR_LOG_DEBUG, "loud");
    cr_assert_not_null(strstr(line, " debug test loud\n"));
    qr_log_set_level(QR_LOG_ERROR);
    cr_assert(!qr_log_on(QR_LOG_WARN) && qr_log_on(QR_LOG_ERROR));
}

Test(clock, moves_forward_in_the_units_it_names)
{
    int64_t ns = qr_clock_ns(), us = qr_clock_us();
    usleep(2000);
    cr_assert_geq(qr_clock_us() - us, 2000);
    cr_assert_geq(qr_clock_ns() - ns, 2000000);
    cr_assert_lt(qr_clock_us() - us, 60 * 1000000);
    cr_assert_gt(qr_clock_wall_s(), 1500000000);
}

Test(thread, counts_processors_and_names_and_pins_threads)
{
    cr_assert_geq(qr_cpu_count(), 1);
    qr_thread_set_name("a name that is far too long for it");
    char name[32] = "";
    int fd = open("/proc/self/comm", O_RDONLY);
    cr_assert(fd < 0 || read(fd, name, sizeof name - 1) >= 0);
    if (fd >= 0) {
        cr_assert_str_eq(name, "a name that is \n");
        close(fd);
    }
}

Test(thread, is_pinned_and_unpinned)
{
    struct qr_cpus may;
    int32_t n = qr_cpu_count();
    qr_cpus_allowed(&may);
    cr_assert_eq(may.n, n);
    void *before = qr_thread_pin_for_now(may.cpu[may.n - 1]);
    cr_assert_not_null(before);
    cr_assert_eq(qr_cpu_count(), 1, "pinned to one processor");
    qr_thread_pin(100000);
    cr_assert_eq(qr_cpu_count(), 1, "a processor that is not there changes nothing");
    qr_thread_unpin(before);
    cr_assert_eq(qr_cpu_count(), n);
}

Test(thread, returns_from_a_futex_on_change_and_on_time)
{
    _Atomic uint32_t word = 1;
    qr_futex_wait(&word, 0, -1); /* not equal: returns at once */
    int64_t start = qr_clock_us();
    qr_futex_wait(&word, 1, 3000);
    cr_assert_geq(qr_clock_us() - start, 2000);
    qr_futex_wake(&word, 1);
}
