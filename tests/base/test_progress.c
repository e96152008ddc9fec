/* The line of progress: durations in words, and what stands on a terminal while it is drawn and afterwards. */
#include <criterion/criterion.h>
#include <fcntl.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "base/progress.h"

TestSuite(progress, .timeout = 60);

Test(progress, durations_have_two_units_at_most)
{
    static const struct {
        double seconds;
        const char *text;
    } cases[] = {{0, "0s"}, {9.4, "9s"}, {59.6, "1m00s"}, {192, "3m12s"}, {3720, "1h02m"}, {191000, "2d05h"}, {-1, "0s"}, {1e300, "11574d01h"}};
    char text[QR_DURATION_TEXT];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        cr_expect_str_eq(qr_duration_text(text, cases[i].seconds), cases[i].text);
}

/* stderr becomes a terminal of so many columns; returns its other end. */
static int take_terminal(int columns)
{
    char name[100];
    const struct winsize size = {.ws_row = 24, .ws_col = (unsigned short)columns};
    const int fd = posix_openpt(O_RDWR | O_NOCTTY | O_CLOEXEC);
    if (fd < 0)
        cr_skip_test("no pseudo-terminals here (is /dev/pts mounted?)");
    cr_assert(grantpt(fd) == 0 && unlockpt(fd) == 0 && ptsname_r(fd, name, sizeof name) == 0);
    cr_assert_eq(ioctl(fd, TIOCSWINSZ, &size), 0);
    cr_assert_eq(dup2(open(name, O_RDWR | O_NOCTTY), STDERR_FILENO), STDERR_FILENO);
    return fd;
}

static const char *seen(int fd, char text[500])
{
    struct pollfd p = {.fd = fd, .events = POLLIN};
    const ssize_t n = poll(&p, 1, 200) > 0 ? read(fd, text, 499) : 0;
    text[n > 0 ? n : 0] = '\0';
    return text;
}

Test(progress, a_terminal_shows_the_share_and_the_time_left_after_a_second_and_nothing_afterwards)
{
    char text[500];
    struct qr_progress p;
    const int fd = take_terminal(80);
    qr_progress_open(&p, "loading");
    qr_progress_show(&p, 1, 4);
    cr_expect_str_eq(seen(fd, text), "", "too early");
    p.began_us -= 10 * 1000000;
    qr_progress_show_bytes(&p, (uint64_t)1 << 30, (uint64_t)4 << 30);
    const char *at = "\r\033[Kloading 25 % of 4.0 GiB, 3";
    cr_expect(strncmp(seen(fd, text), at, strlen(at)) == 0 && strcmp(text + strlen(at) + 1, "s left") == 0, "thirty seconds and some: %s", text);
    qr_progress_show(&p, 3, 4);
    cr_expect_str_eq(seen(fd, text), "", "ten times a second are enough");
    qr_progress_end(&p);
    cr_expect_str_eq(seen(fd, text), "\r\033[K");
    qr_progress_end(&p);
    cr_expect_str_eq(seen(fd, text), "");
}

Test(progress, a_line_is_narrower_than_the_terminal)
{
    char text[500];
    struct qr_progress p;
    const int fd = take_terminal(12);
    qr_progress_open(&p, "quantizing");
    p.began_us -= 2 * 1000000;
    qr_progress_show(&p, 1, 2);
    cr_expect_str_eq(seen(fd, text), "\r\033[Kquantizing ");
}

Test(progress, a_file_gets_nothing)
{
    char text[100] = "";
    struct qr_progress p;
    int pipe_fd[2];
    cr_assert(pipe(pipe_fd) == 0 && fcntl(pipe_fd[0], F_SETFL, O_NONBLOCK) == 0 && dup2(pipe_fd[1], STDERR_FILENO) == STDERR_FILENO);
    qr_progress_open(&p, "loading");
    p.began_us -= 10 * 1000000;
    qr_progress_show(&p, 1, 2);
    qr_progress_end(&p);
    cr_expect_eq(read(pipe_fd[0], text, sizeof text), -1);
}
