/* A failed assertion fails its test, with file, line and message, however it was compiled (tests/criterion_short.h): failing_asserts.c has one of each kind. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { TESTS = 25, WITH_MESSAGE = 20 + 3 + 1, WITHOUT = 2 };

static int count(const char *text, const char *what)
{
    int n = 0;
    for (const char *at = text; (at = strstr(at, what)); at++)
        n++;
    return n;
}

/* What the program beside this one says, up to 64 KiB; its status as waitpid has it. */
static char *said_by_failing_asserts(int *status)
{
    char path[4096], command[4200], *said = calloc(1, 65536);
    const ssize_t n = readlink("/proc/self/exe", path, sizeof path - 1);
    cr_assert(said && n > 0);
    path[n] = 0;
    snprintf(command, sizeof command, "env -u BXFI_MAP '%.*s/failing_asserts' 2>&1", (int)(strrchr(path, '/') - path), path);
    FILE *f = popen(command, "r");
    cr_assert_not_null(f);
    cr_assert(fread(said, 1, 65535, f) > 0 && feof(f));
    *status = pclose(f);
    return said;
}

Test(asserts, that_fail_say_where_and_what_and_fail_their_tests)
{
    static const char *const standard[] = {"The expression (1) == (2) is false", "\"here\" is not null."};
    int status, n_named = 0;
    char *said = said_by_failing_asserts(&status), wanted[128];
    for (const char *at = said; (at = strstr(at, "at line ")); at++, n_named++) {
        snprintf(wanted, sizeof wanted, "failing_asserts.c:%d: Assertion Failed", atoi(at + strlen("at line ")));
        cr_expect(strstr(said, wanted), "%s", wanted);
    }
    cr_expect_eq(n_named, WITH_MESSAGE);
    cr_expect_eq(count(said, "Assertion Failed"), WITH_MESSAGE + WITHOUT);
    for (int i = 0; i < WITHOUT; i++)
        cr_expect(strstr(said, standard[i]), "%s", standard[i]);
    cr_expect_eq(count(said, "not reached"), 0);
    snprintf(wanted, sizeof wanted, "Tested: %d | Passing: 1 | Failing: %d | Crashing: 0", TESTS, TESTS - 1);
    cr_expect(strstr(said, wanted), "%s", strstr(said, "Synthesis") ? strstr(said, "Synthesis") : said);
    cr_expect(WIFEXITED(status) && WEXITSTATUS(status) != 0);
    free(said);
}
