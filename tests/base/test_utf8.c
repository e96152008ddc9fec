#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "base/rng.h"
#include "base/utf8.h"

Test(utf8, round_trips_every_scalar_value)
{
    for (uint32_t cp = 0; cp <= 0x10FFFF; cp++) {
        if (cp >= 0xD800 && cp <= 0xDFFF)
            continue;
        char s[4];
        uint32_t back = UINT32_MAX;
        int32_t n = qr_utf8_encode(cp, s);
        cr_assert_eq(n, cp < 0x80 ? 1 : cp < 0x800 ? 2 : cp < 0x10000 ? 3 : 4);
        cr_assert_eq(qr_utf8_decode(s, (size_t)n, &back), n);
        cr_assert_eq(back, cp);
        cr_assert_eq(qr_utf8_valid_prefix(s, (size_t)n), (size_t)n);
        for (int32_t cut = 1; cut < n; cut++) {
            cr_assert_eq(qr_utf8_decode(s, (size_t)cut, &back), 0);
            cr_assert_eq(qr_utf8_valid_prefix(s, (size_t)cut), 0);
            cr_assert_eq(qr_utf8_incomplete_tail(s, (size_t)cut), cut);
        }
        cr_assert_eq(qr_utf8_incomplete_tail(s, (size_t)n), 0);
        cr_assert_eq(qr_utf8_last(s, (size_t)n), (size_t)n);
    }
}

/* An independent judge: RFC 3629's grammar, spelled out. */
static size_t rfc3629(const unsigned char *s, size_t n)
{
    unsigned a = s[0], b = n > 1 ? s[1] : 0, c = n > 2 ? s[2] : 0, d = n > 3 ? s[3] : 0;
#define IN(x, lo, hi) ((x) >= (lo) && (x) <= (hi))
    if (a <= 0x7F)
        return 1;
    if (IN(a, 0xC2, 0xDF) && IN(b, 0x80, 0xBF))
        return 2;
    if (((a == 0xE0 && IN(b, 0xA0, 0xBF)) || (IN(a, 0xE1, 0xEC) && IN(b, 0x80, 0xBF)) || (a == 0xED && IN(b, 0x80, 0x9F)) ||
         (IN(a, 0xEE, 0xEF) && IN(b, 0x80, 0xBF))) && IN(c, 0x80, 0xBF))
        return 3;
    if (((a == 0xF0 && IN(b, 0x90, 0xBF)) || (IN(a, 0xF1, 0xF3) && IN(b, 0x80, 0xBF)) || (a == 0xF4 && IN(b, 0x80, 0x8F))) &&
        IN(c, 0x80, 0xBF) && IN(d, 0x80, 0xBF))
        return 4;
    return 0;
}

Test(utf8, decodes_exactly_what_the_rfc_allows)
{
    static const unsigned char edge[] = {0x00, 0x41, 0x7F, 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0,
                                         0xE1, 0xEC, 0xED, 0xEE, 0xEF, 0xF0, 0xF1, 0xF3, 0xF4, 0xF5, 0xF8, 0xFE, 0xFF};
    const int n = (int)sizeof edge;
    for (int lead = 0; lead < 256; lead++)
        for (int i = 0; i < n * n * n; i++) {
            unsigned char s[4] = {(unsigned char)lead, edge[i % n], edge[i / n % n], edge[i / n / n]};
            for (size_t len = 1; len <= 4; len++) {
                uint32_t cp;
                cr_assert_eq((size_t)qr_utf8_decode((char *)s, len, &cp), rfc3629(s, len), "%02x %02x %02x %02x, %zu bytes", s[0], s[1], s[2], s[3], len);
            }
        }
}

Test(utf8, stops_the_valid_prefix_at_the_first_wrong_byte)
{
    char text[64];
    for (size_t at = 0; at < sizeof text; at++) {
        memset(text, 'a', sizeof text);
        cr_assert_eq(qr_utf8_valid_prefix(text, at), at);
        text[at] = '\x80';
        cr_assert_eq(qr_utf8_valid_prefix(text, sizeof text), at);
    }
    cr_assert_eq(qr_utf8_valid_prefix(NULL, 0), 0);
}

static void lossy(const char *in, const char *want)
{
    size_t n = strlen(in);
    char *exact = malloc(n ? n : 1), *out = malloc(3 * n + 1); /* exact sizes, for the address sanitizer */
    memcpy(exact, in, n);
    size_t got = qr_utf8_lossy(out, exact, n);
    cr_assert_eq(got, strlen(want));
    cr_assert_eq(memcmp(out, want, got), 0, "%.*s", (int)got, out);
    free(exact);
    free(out);
}

#define R "\xEF\xBF\xBD"
/* The examples of the Unicode standard, section 3.9 (tables 3-8 to 3-11), and edges. */
Test(utf8, replaces_maximal_ill_formed_subparts)
{
    lossy("\xC0\xAF\xE0\x80\xBF\xF0\x81\x82\x41", R R R R R R R R "A");
    lossy("\xED\xA0\x80\xED\xBF\xBF\xED\xAF\x41", R R R R R R R R "A");
    lossy("\xF4\x91\x92\x93\xFF\x41\x80\xBF\x42", R R R R R "A" R R "B");
    lossy("\xE1\x80\xE2\xF0\x91\x92\xF1\xBF\x41", R R R R "A");
    lossy("a\xE2\x82", "a" R);
    lossy("\xF0\x9F\x98\x80\xF0\x9F\x98", "\xF0\x9F\x98\x80" R);
    lossy("", "");
    lossy("plain \xC3\xA9", "plain \xC3\xA9");
}

Test(utf8, never_writes_more_than_three_times_the_input_and_only_valid_text)
{
    for (uint64_t i = 0; i < 20000; i++) {
        char in[24], out[sizeof in * 3];
        uint32_t w[4];
        qr_rng_words(w, 31, 0, i);
        size_t n = w[0] % sizeof in;
        for (size_t j = 0; j < n; j++) {
            qr_rng_words(w, 31, 1 + i, j);
            in[j] = (char)(w[1] % 3 ? 0x80 | w[0] : w[0]);
        }
        size_t got = qr_utf8_lossy(out, in, n);
        cr_assert_leq(got, 3 * n);
        cr_assert_eq(qr_utf8_valid_prefix(out, got), got);
    }
}

Test(utf8, keeps_back_only_tails_that_may_still_become_characters)
{
    static const struct {
        const char *text;
        int32_t tail;
    } row[] = {{"", 0}, {"a", 0}, {"a\xC3", 1}, {"a\xC3\xA9", 0}, {"\xE2", 1}, {"\xE2\x82", 2}, {"\xE2\x82\xAC", 0}, {"\xF0\x9F\x98", 3},
               {"\xF0\x9F\x98\x80", 0},
               {"\x80", 0}, {"\x80\x80\x80\x80", 0}, {"\xC0", 0}, {"\xED\xA0", 0}, {"\xE0\x80", 0}, {"\xF4\x90", 0}, {"\xF5", 0}, {"\xC3\xA9\x80",
               0}, {"a\xF0\x9F", 2}};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        cr_assert_eq(qr_utf8_incomplete_tail(row[i].text, strlen(row[i].text)), row[i].tail, "row %zu", i);
}
