/* Wrapping by words: where lines break, how wide characters are, and that it does not matter how the text came. */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "client/wrap.h"

static void use_utf8(void)
{
    cr_assert(setlocale(LC_CTYPE, "C.UTF-8") != NULL || setlocale(LC_CTYPE, "en_US.UTF-8") != NULL);
}

TestSuite(wrap, .init = use_utf8, .timeout = 60);

struct wrap_case {
    int32_t columns;
    const char *text, *want;
};

static const struct wrap_case cases[] = {
    {11, "hello world", "hello world"},                    /* a line may be full */
    {10, "hello world", "hello\nworld"},                   /* one column less */
    {10, "hello   world", "hello\nworld"},                 /* blanks go at the break */
    {12, "a  b\tc", "a  b\tc"},
    {8, "a\tbcd", "a\nbcd"},                               /* a tab goes on to column 8 */
    {20, "one\ntwo three\n", "one\ntwo three\n"},          /* line ends of the text's own */
    {5, "full\n\nx", "full\n\nx"},
    {10, "  indented by two", "  indented\nby two"},
    {6, "    indented", "indent\ned"},
    {4, "ab abcdefghij kl", "ab\nabcd\nefgh\nij\nkl"},     /* longer than a line: cut, on a line of its own */
    {4, "abcd ef", "abcd\nef"},
    {1, "a bc", "a\nb\nc"},
    {6, "日本語日本", "日本語\n日本"},                     /* two columns each; a break between any two */
    {7, "日本語日本", "日本語\n日本"},
    {6, "ab日本語", "ab日本\n語"},
    {5, "ab cd日", "ab cd\n日"},
    {4, "cafe\xcc\x81 au", "cafe\xcc\x81\nau"},            /* a combining mark takes no column */
    {4, "日\xcc\x81日日", "日\xcc\x81日\n日"},
    {5, "ab👩\xe2\x80\x8d💻 cd", "ab\n👩\xe2\x80\x8d💻\ncd"}, /* joined: one piece, counted as its parts */
    {4, "ab👍🏽", "ab\n👍🏽"},
    {7, "\033[31mone\033[0m two", "\033[31mone\033[0m two"},
    {6, "\033[31mone\033[0m two", "\033[31mone\033[0m\ntwo"},
    {3, "\033[31mabcd\033[0m", "\033[31mabc\nd\033[0m"},
    {5, "a\xff" "b\xe6\x97 cd", "a\xff" "b\xe6\x97\ncd"},  /* no UTF-8: a column for each byte */
    {3, "\xe6\x97\n\xf0\x9f", "\xe6\x97\n\xf0\x9f"},
    {0, "as it\tis \xff\n", "as it\tis \xff\n"},           /* no terminal */
};

/* The text in pieces of n bytes, 0: whole. */
static void wrap(struct qr_buf *out, const struct wrap_case *c, size_t n)
{
    struct qr_wrap w;
    const size_t len = strlen(c->text);
    qr_wrap_init(&w, c->columns);
    for (size_t at = 0; at < len; at += n > 0 ? n : len)
        qr_wrap_put(&w, out, c->text + at, n == 0 || at + n > len ? len - at : n);
    qr_wrap_end(&w, out);
    qr_wrap_release(&w);
}

Test(wrap, lines_break_between_words_wherever_the_pieces_are_cut)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        for (size_t n = 0; n < 5; n++) {
            struct qr_buf out = {0};
            wrap(&out, &cases[i], n);
            cr_expect_str_eq(out.data, cases[i].want, "case %zu in pieces of %zu: '%s', expected '%s'", i, n, out.data, cases[i].want);
            qr_buf_release(&out);
        }
}

Test(wrap, a_word_is_shown_when_its_end_is_known_and_never_moves)
{
    static const char text[] = "so it goes, nonstop. ";
    struct qr_wrap w;
    struct qr_buf out = {0};
    size_t n_shown = 0;
    qr_wrap_init(&w, 8);
    for (size_t i = 0; i < strlen(text); i++) {
        qr_wrap_put(&w, &out, text + i, 1);
        cr_expect(out.len == n_shown || text[i] == ' ', "'%.*s' shows a part of a word", (int)(i + 1), text);
        n_shown = out.len;
    }
    cr_expect_str_eq(out.data, "so it\ngoes,\nnonstop.");
    qr_wrap_release(&w);
    qr_buf_release(&out);
}

Test(wrap, a_new_width_holds_for_what_follows)
{
    struct qr_wrap w;
    struct qr_buf out = {0};
    qr_wrap_init(&w, 20);
    qr_wrap_put(&w, &out, "one two three ", 14);
    w.columns = 8;
    qr_wrap_put(&w, &out, "four five six ", 14);
    w.columns = 40;
    qr_wrap_put(&w, &out, "seven eight nine", 16);
    qr_wrap_end(&w, &out);
    cr_expect_str_eq(out.data, "one two three\nfour\nfive six seven eight nine");
    qr_wrap_release(&w);
    qr_buf_release(&out);
}

Test(wrap, rows_hang_below_their_text_and_stand_below_their_head_where_it_is_narrow)
{
    static const struct {
        int32_t columns;
        const char *head, *want;
    } rows[] = {
        {0, " name", " name     a text of several words\n"},
        {0, " a long name", " a long name a text of several words\n"},
        {36, " name", " name     a text of several words\n"},
        {34, " name", " name     a text of several words\n"},
        {34, " a long name", " a long name\n          a text of several words\n"},
        {33, " name", " name\n      a text of several words\n"},
        {20, " name", " name\n      a text of\n      several words\n"},
    };
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        struct qr_buf out = {0};
        qr_wrap_row(&out, rows[i].head, "a text of several words", 10, rows[i].columns);
        cr_expect_str_eq(out.data, rows[i].want, "%d columns:\n%s", rows[i].columns, out.data);
        qr_buf_release(&out);
    }
    struct qr_buf out = {0};
    qr_wrap_row(&out, " name", "a text of several words that goes on", 10, 36);
    cr_expect_str_eq(out.data, " name     a text of several words\n          that goes on\n");
    qr_buf_release(&out);
}
