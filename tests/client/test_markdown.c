/* Markdown for a terminal: what is shown, that cuts do not matter, and that nothing gets lost. In the expected texts <b> stands for
 * the escape sequence of bold, <i> italic, <c> code, <d> dim, <> for the end of all. */
#include <criterion/criterion.h>
#include <locale.h>
#include <stdio.h>
#include <string.h>

#include "client/markdown.h"

static void use_utf8(void)
{
    cr_assert(setlocale(LC_CTYPE, "C.UTF-8") != NULL || setlocale(LC_CTYPE, "en_US.UTF-8") != NULL);
}

TestSuite(markdown, .init = use_utf8, .timeout = 60);

struct md_case {
    int32_t columns;
    const char *text, *want;
};

static const struct md_case cases[] = {
    {80, "plain words\n\nand more", "plain words\n\nand more"},
    {80, "# Title\ntext", "<b>Title<>\ntext"},
    {80, "###### six *and* `code`\n", "<b>six <i>and<><b> <c>code<>\n"},
    {80, "#no heading\n####### seven\n#", "#no heading\n####### seven\n#"},
    {80, "a **bold** word", "a <b>bold<> word"},
    {80, "**all**", "<b>all<>"},
    {80, "an *italic* and an _italic_ one.", "an <i>italic<> and an <i>italic<> one."},
    {80, "***both***!", "<b><i>both<>!"},
    {80, "**bold *and* more**", "<b>bold <i>and<><b> more<>"},
    {80, "**use `a*b**c` here**", "<b>use <c>a*b**c<><b> here<>"},
    {80, "5*3 = 15, 2 * 3 * 4, snake_case_name, __init__, *", "5*3 = 15, 2 * 3 * 4, snake_case_name, __init__, *"},
    {80, "**never closed\nnext **line**", "**never closed\nnext <b>line<>"},
    {80, "glob **/*.c and ** alone", "glob **/*.c and ** alone"},
    {80, "日本**語**は", "日本<b>語<>は"},
    {80, "\\*stars\\* and \\_, \\(x\\)", "*stars* and _, \\(x\\)"},
    {80, "run `ls -l` now, ``a`b`` and `` ` ``", "run <c>ls -l<> now, <c>a`b<> and <c>`<>"},
    {80, "an `open one\n", "an `open one\n"},
    {80, "`a``b` and *a**b**c*, 5*3*2", "<c>a``b<> and <i>a**b**c<>, 5*3*2"},
    {80, "[the page](http://a.b/c_d_(e)) says", "the page<d> (http://a.b/c_d_(e))<> says"},
    {80, "[http://a](http://a), [1] and [x] (y), a[i]", "http://a, [1] and [x] (y), a[i]"},
    {80, "[**bold**](x", "[<b>bold<>](x"},
    {80, "- one\n* two\n+ three\n  - four\n", "• one\n• two\n• three\n  • four\n"},
    {80, "1. one\n12) two\n1.no\n2024", "1. one\n12) two\n1.no\n2024"},
    {80, "---\n-x\n", "---\n-x\n"},
    {20, "- one two three four five", "• one two three four\n  five"},
    {20, "10. one two three four", "10. one two three\n    four"},
    {20, "  goes on here and there", "  goes on here and\n  there"},
    {12, "- narrow lines have no indent", "• narrow\nlines have\nno indent"},
    {80, "```c\nint a = 2 * b * c; // **\n\n  x_y_z\n```\nafter *it*", "<d>```c<>\n<c>int a = 2 * b * c; // **<>\n\n<c>  x_y_z<>\n<d>```<>\nafter <i>it<>"},
    {80, "~~~~\n~~~\n```\n~~~~  \nx", "<d>~~~~<>\n<c>~~~<>\n<c>```<>\n<d>~~~~  <>\nx"},
    {80, "- item\n  ```sh\n  ls\n  ```\n- next", "• item\n<d>  ```sh<>\n<c>  ls<>\n<d>  ```<>\n• next"},
    {10, "```\na line that is longer than ten\n```", "<d>```<>\n<c>a line that is longer than ten<>\n<d>```<>"},
    {80, "```\ncut off", "<d>```<>\n<c>cut off<>"},
    {80, "``` one `line` ```\n", "<c>one `line`<>\n"},
    {80, "``\n~~gone~~\n", "``\n~~gone~~\n"},
    {11, "a **bold word** b", "a <b>bold word<>\nb"},
    {0, "a **b** `c`\n- d", "a <b>b<> <c>c<>\n• d"},
    {80, "| a | b |\n|---|---|\n| 1 | 2 |\n> quoted\n", "| a | b |\n|---|---|\n| 1 | 2 |\n> quoted\n"},
};

/* The text in two pieces, the first of n bytes; 0: byte by byte. */
static void render(struct qr_buf *out, int32_t columns, const char *text, size_t len, size_t n)
{
    struct qr_wrap w;
    struct qr_markdown m;
    qr_wrap_init(&w, columns);
    qr_markdown_init(&m, &w);
    for (size_t i = 0; i < len && n == 0; i++)
        qr_markdown_put(&m, out, text + i, 1);
    if (n > 0) {
        qr_markdown_put(&m, out, text, n);
        qr_markdown_put(&m, out, text + n, len - n);
    }
    qr_markdown_end(&m, out);
    qr_wrap_end(&w, out);
    qr_markdown_release(&m);
    qr_wrap_release(&w);
}

static void put_readable(struct qr_buf *out, const char *s)
{
    static const char *const table[][2] = {{"\033[0m", "<>"}, {"\033[1m", "<b>"}, {"\033[2m", "<d>"}, {"\033[3m", "<i>"}, {"\033[36m", "<c>"}};
    while (*s != '\0') {
        size_t n = 0;
        for (int i = 0; i < 5 && n == 0; i++)
            if (strncmp(s, table[i][0], strlen(table[i][0])) == 0) {
                n = strlen(table[i][0]);
                qr_buf_put_str(out, table[i][1]);
            }
        if (n == 0)
            qr_buf_put_byte(out, *s);
        s += n > 0 ? n : 1;
    }
}

Test(markdown, each_form_is_shown_as_the_table_says_however_the_text_is_cut)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct md_case *c = &cases[i];
        const size_t len = strlen(c->text);
        for (size_t n = 0; n <= len; n++) {
            struct qr_buf out = {0}, seen = {0};
            render(&out, c->columns, c->text, len, n);
            put_readable(&seen, out.len > 0 ? out.data : "");
            cr_expect_str_eq(seen.len > 0 ? seen.data : "", c->want, "%.60s, cut after %zu: %s", c->text, n, seen.data);
            qr_buf_release(&out);
            qr_buf_release(&seen);
        }
    }
}

/* One text with all of it, in three pieces cut anywhere. */
Test(markdown, every_cut_into_three_pieces_gives_the_same_screen)
{
    static const char text[] = "# A *b*\n\n1. one `x` two\n- **t** [u](v)\n```c\na\n``` \nend **z";
    struct qr_buf whole = {0};
    const size_t len = sizeof text - 1;
    render(&whole, 12, text, len, len);
    for (size_t i = 0; i <= len; i++)
        for (size_t k = i; k <= len; k++) {
            struct qr_wrap w;
            struct qr_markdown m;
            struct qr_buf out = {0};
            qr_wrap_init(&w, 12);
            qr_markdown_init(&m, &w);
            qr_markdown_put(&m, &out, text, i);
            qr_markdown_put(&m, &out, text + i, k - i);
            qr_markdown_put(&m, &out, text + k, len - k);
            qr_markdown_end(&m, &out);
            qr_wrap_end(&w, &out);
            cr_assert(out.len == whole.len && memcmp(out.data, whole.data, out.len) == 0, "%zu, %zu", i, k);
            qr_buf_release(&out);
            qr_markdown_release(&m);
            qr_wrap_release(&w);
        }
    qr_buf_release(&whole);
}

Test(markdown, words_appear_before_their_line_ends_and_marks_are_held_for_a_while_only)
{
    struct qr_wrap w;
    struct qr_markdown m;
    struct qr_buf out = {0};
    qr_wrap_init(&w, 80);
    qr_markdown_init(&m, &w);
    qr_markdown_put(&m, &out, "one two ", 8);
    cr_expect_eq(out.len, 7, "the blank after it is the wrap's to hold");
    qr_buf_clear(&out);
    qr_markdown_put(&m, &out, "**", 2);
    for (int i = 0; i < QR_MARKDOWN_HELD_MAX; i++) {
        cr_expect_leq(m.held.len, QR_MARKDOWN_HELD_MAX);
        qr_markdown_put(&m, &out, i % 8 == 7 ? " " : "a", 1);
    }
    cr_expect(out.len > 200 && strstr(out.data, "**aaaaa") != NULL, "%zu bytes: %.40s", out.len, out.data);
    qr_buf_release(&out);
    qr_markdown_release(&m);
    qr_wrap_release(&w);
}
