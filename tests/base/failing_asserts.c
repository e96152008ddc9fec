/* Assertions that fail, for test_asserts.c, which looks at what is said of them. A message names the line it stands in. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>

#define HERE "at line %d", __LINE__

Test(asserts, passes)
{
    cr_assert(true, HERE);
    cr_expect_str_eq("a", "a", HERE);
    cr_assert_float_eq(0.5, 0.75, 0.25, HERE);
    cr_assert_arr_eq("abc", "abd", 2, HERE);
}

#define FAILS(name, assertion)                                                                                                                   \
    Test(asserts, name)                                                                                                                          \
    {                                                                                                                                            \
        assertion;                                                                                                                               \
    }

FAILS(that, cr_assert(1 > 2, HERE))
FAILS(not, cr_assert_not(2 > 1, HERE))
FAILS(equal, cr_assert_eq(1, 2, HERE))
FAILS(unequal, cr_assert_neq(1, 1, HERE))
FAILS(less, cr_assert_lt(2, 1, HERE))
FAILS(at_most, cr_assert_leq(2, 1, HERE))
FAILS(more, cr_assert_gt(1, 2, HERE))
FAILS(at_least, cr_assert_geq(1, 2, HERE))
FAILS(nothing, cr_assert_null("", HERE))
FAILS(something, cr_assert_not_null(NULL, HERE))
FAILS(text, cr_assert_str_eq("left", "right", HERE))
FAILS(no_text, cr_assert_str_eq(NULL, "right", HERE))
FAILS(other_text, cr_assert_str_neq("same", "same", HERE))
FAILS(empty_text, cr_assert_str_not_empty("", HERE))
FAILS(near, cr_assert_float_eq(0.5, 0.76, 0.25, HERE))
FAILS(no_number, cr_assert_float_eq((double)NAN, 0.0, 1.0, HERE))
FAILS(bytes, cr_assert_arr_eq("abc", "abd", 3, HERE))
FAILS(anyway, cr_assert_fail(HERE))
FAILS(expected_that, cr_expect(1 > 2, HERE))
FAILS(expected_text, cr_expect_str_eq("left", "right", HERE))
FAILS(without_a_message, cr_assert_eq(1, 2))
FAILS(expected_without_a_message, cr_expect_null("here"))

Test(asserts, goes_on_behind_what_is_expected)
{
    cr_expect(1 > 2, HERE);
    cr_expect_eq(1, 2, HERE);
    cr_assert_eq(1, 3, HERE);
    cr_assert_eq(1, 4, "is not reached");
}

static void *in_thread(void *arg)
{
    cr_expect_eq(*(int *)arg, 3, HERE);
    return NULL;
}

Test(asserts, counts_what_a_thread_says)
{
    pthread_t thread;
    int four = 4;
    cr_assert_eq(pthread_create(&thread, NULL, in_thread, &four), 0);
    pthread_join(thread, NULL);
}
