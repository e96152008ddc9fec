/* criterion_short.h - Criterion's assertions with less code: what each of some thousand does when it fails is a call here instead of its own text, which is a
 * third of what the compiler makes of a test program. Read in front of every test (-include), where the library's macro is the one that this takes the place of
 * (cmake/module.cmake). The library's count of assertions that held, which it prints nowhere, is not kept. */
#ifndef QR_TESTS_CRITERION_SHORT_H
#define QR_TESTS_CRITERION_SHORT_H

#pragma GCC system_header /* as the library's: tests compare int with size_t */

#include <criterion/criterion.h>
#include <stdarg.h>

/* As the library's macro does it: the message that the test gave, or the standard one (owned) where it gave none. `format` begins with a letter, which is not
 * shown. */
__attribute__((noinline, cold, unused, format(printf, 4, 5)))
static void cr_short_failed(const char *file, unsigned line, char *standard, const char *format, ...)
{
    char *own = NULL;
    va_list more;
    va_start(more, format);
    cr_vasprintf(&own, format, more);
    va_end(more);
    struct criterion_assert_stats failed = {.passed = false, .file = file, .line = line, .message = own && own[1] ? own + 1 : standard};
    criterion_send_assert(&failed);
    cr_asprintf_free(own);
    cr_asprintf_free(standard);
}

#undef cr_assert_impl
#define cr_assert_impl(Fail, Condition, Dummy, Message, Texts, ...)                                                                              \
    do {                                                                                                                                         \
        if (!(Condition)) {                                                                                                                      \
            cr_short_failed(__FILE__, __LINE__, cr_translate_assert_msg(Message, "" CR_TRANSLATE_DEF_MSG__(Texts)), "x" __VA_ARGS__);            \
            Fail();                                                                                                                              \
        }                                                                                                                                        \
    } while (0)

#endif
