/* Libraries that are opened when they are needed. */
#include <criterion/criterion.h>
#include <string.h>

#include "base/library.h"

struct functions {
    double (*floor)(double x);
    double (*none)(double x);
};

static const struct qr_library_symbol symbols[] = {{offsetof(struct functions, floor), "floor"}, {offsetof(struct functions, none), "qr_no_such_function"}};

Test(library, its_functions_are_filled_in)
{
    struct functions f = {0};
    cr_assert_null(qr_library_load(&f, "libm.so.6", symbols, 1));
    cr_assert_eq(f.floor(1.5), 1.0);
    cr_assert_null(f.none);
}

Test(library, a_function_that_is_missing_is_named)
{
    struct functions f = {0};
    const char *missing = qr_library_load(&f, "libm.so.6", symbols, 2);
    cr_assert_not_null(missing);
    cr_assert_not_null(strstr(missing, "qr_no_such_function"), "%s", missing);
}

Test(library, a_library_that_is_missing_says_why_without_its_name_in_front)
{
    struct functions f = {0};
    const char *missing = qr_library_load(&f, "libqr-none.so.1", symbols, 1);
    cr_assert_not_null(missing);
    cr_assert_eq(strncmp(missing, "cannot open", 11), 0, "%s", missing);
}
