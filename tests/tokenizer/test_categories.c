/* test_categories.c - general categories by name, their runs, and simple case folding. */
#include <criterion/criterion.h>
#include <string.h>

#include "tokenizer/categories.h"

static uint32_t find(const char *name)
{
    return qr_category_find(name, strlen(name));
}

static bool holds(const char *name, int32_t cp)
{
    int32_t first, last;
    return qr_category_run(find(name), cp, &first, &last) && first <= cp;
}

Test(categories, names_are_short_or_long_and_loosely_compared)
{
    cr_expect(find("Lu") != 0 && find("Lu") == find("uppercase_letter") && find("lu") == find("Uppercase Letter"));
    cr_expect_eq(find("L"), find("Lu") | find("Ll") | find("Lt") | find("Lm") | find("Lo"));
    cr_expect_eq(find("L&"), find("LC"));
    cr_expect_eq(find("Any"), find("Assigned") | find("Cn"));
    cr_expect(find("Xx") == 0 && find("") == 0 && find("Letters") == 0);
    cr_expect_eq(find("a_name_that_is_longer_than_any_that_a_category_has"), 0);
}

Test(categories, characters_are_in_theirs)
{
    cr_expect(holds("Lu", 'A') && !holds("Lu", 'a') && holds("Ll", 'a') && holds("Nd", '7') && holds("Zs",
        ' ') && holds("Cc", 0));
    cr_expect(holds("Lo", 0x4E00) && holds("Lo", 0x9FA5) && holds("Lo", 0xAC00) && holds("Lo", 0x2A6D6) && holds("Lu",
        0x10400));
    cr_expect(holds("Cs", 0xD800) && holds("Cs", 0xDFFF) && holds("Co", 0xE000) && holds("Co", 0xF0000) && holds("Co",
        0x10FFFD));
    cr_expect(holds("Cn", 0x40000) && holds("Cn", 0xDFFFF) && holds("Cn", 0xFFFFE) && holds("Cn",
        0x10FFFF) && !holds("L", 0x10FFFF));
}

Test(categories, runs_of_all_categories_cover_all_code_points_once)
{
    static const char *const all[] = {"Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Mc", "Me", "Nd", "Nl", "No", "Pc", "Pd",
        "Ps", "Pe",
                                      "Pi", "Pf", "Po", "Sm", "Sc", "Sk", "So", "Zs", "Zl", "Zp", "Cc", "Cf", "Cs",
                                          "Co", "Cn"};
    int64_t n = 0;
    int32_t first, last;
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        for (int32_t at = 0; qr_category_run(find(all[i]), at, &first, &last); at = last + 1) {
            cr_expect(first >= at && last >= first);
            n += last - first + 1;
        }
    cr_expect_eq(n, 0x110000);
    cr_expect(qr_category_run(find("Any"), 5, &first, &last) && first == 5 && last == 0x10FFFF);
}

Test(categories, case_folding_joins_what_differs_in_case_alone)
{
    static const int32_t same[][2] = {{'a', 'A'}, {'k', 0x212A}, {'s', 0x17F}, {0xE4, 0xC4}, {0x3C3, 0x3C2},
        {0x3C3, 0x3A3}, {0x1C4, 0x1C5}, {0x10400, 0x10428}, {0xE5, 0x212B}};
    for (size_t i = 0; i < sizeof same / sizeof same[0]; i++)
        cr_expect_eq(qr_case_fold(same[i][0]), qr_case_fold(same[i][1]), "U+%04X, U+%04X", (unsigned)same[i][0],
            (unsigned)same[i][1]);
    cr_expect(qr_case_fold('i') != qr_case_fold(0x130) && qr_case_fold('i') != qr_case_fold(0x131) && qr_case_fold('1') == '1');
    for (int32_t c = QR_CASED_MAX + 1; c <= 0x10FFFF; c++)
        cr_assert_eq(qr_case_fold(c), c);
}
