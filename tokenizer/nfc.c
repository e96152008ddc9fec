#include "tokenizer/nfc.h"

#include <string.h>
#include <utf8proc.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/normalize.h"

#define EXPANSION_MAX 32 /* code points one character decomposes to: at most 18 (U+FDFA under NFKD) */
#define INSERTION_MAX 24 /* marks in a row up to which sorting by insertion is quickest */

static void put_point(struct qr_buf *points, int32_t cp)
{
    qr_buf_put(points, &cp, sizeof cp);
}

static int32_t class_of(int32_t cp)
{
    return utf8proc_get_property(cp)->combining_class;
}

static void decompose(struct qr_buf *points, const char *s, size_t n, utf8proc_option_t options)
{
    for (size_t i = 0; i < n;) {
        uint32_t cp;
        int32_t len = qr_utf8_decode(s + i, n - i, &cp);
        QR_ASSERT(len > 0);
        int32_t part[EXPANSION_MAX];
        int boundary = 0;
        utf8proc_ssize_t n_part = utf8proc_decompose_char((utf8proc_int32_t)cp, part, EXPANSION_MAX, options, &boundary);
        QR_ASSERT(n_part >= 0 && n_part <= EXPANSION_MAX);
        for (utf8proc_ssize_t j = 0; j < n_part; j++)
            put_point(points, part[j]);
        i += (size_t)len;
    }
}

/* A stable counting sort by combining class: linear however many marks follow each other. */
static void sort_marks(int32_t *mark, size_t n)
{
    if (n <= INSERTION_MAX) {
        for (size_t i = 1; i < n; i++) {
            int32_t v = mark[i], class = class_of(v);
            size_t j = i;
            for (; j > 0 && class_of(mark[j - 1]) > class; j--)
                mark[j] = mark[j - 1];
            mark[j] = v;
        }
        return;
    }
    size_t start[257] = {0};
    for (size_t i = 0; i < n; i++)
        start[class_of(mark[i]) + 1]++;
    for (int c = 0; c < 256; c++)
        start[c + 1] += start[c];
    int32_t *sorted = qr_alloc(n, sizeof *sorted);
    for (size_t i = 0; i < n; i++)
        sorted[start[class_of(mark[i])]++] = mark[i];
    memcpy(mark, sorted, n * sizeof *mark);
    qr_free(sorted);
}

static void reorder(int32_t *point, size_t n)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        while (end < n && class_of(point[end]) > 0)
            end++;
        if (end - i > 1)
            sort_marks(point + i, end - i);
        i = end + 1;
    }
}

void qr_unicode_form(enum qr_nf form, struct qr_buf *out, struct qr_buf *points, const char *s, size_t n)
{
    QR_ASSERT(out != NULL && points != NULL);
    QR_ASSERT(s != NULL || n == 0);
    int options = UTF8PROC_STABLE | UTF8PROC_DECOMPOSE;
    if (form == QR_NFKC || form == QR_NFKD)
        options |= UTF8PROC_COMPAT;
    points->len = 0;
    decompose(points, s, n, (utf8proc_option_t)options);
    int32_t *point = (int32_t *)(void *)points->data;
    utf8proc_ssize_t n_points = (utf8proc_ssize_t)(points->len / sizeof *point);
    if (n_points == 0)
        return;
    reorder(point, (size_t)n_points);
    if (form == QR_NFC || form == QR_NFKC)
        n_points = utf8proc_normalize_utf32(point, n_points, (utf8proc_option_t)(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
    QR_ASSERT(n_points >= 0);
    for (utf8proc_ssize_t i = 0; i < n_points; i++) {
        char utf8[4];
        int32_t len = qr_utf8_encode((uint32_t)point[i], utf8);
        qr_buf_put(out, utf8, (size_t)len);
    }
}

/* Circled and squared letters are symbols by category, but alphabetic. */
static bool is_other_alphabetic(uint32_t cp)
{
    return (cp >= 0x24B6 && cp <= 0x24E9) || (cp >= 0x1F130 && cp <= 0x1F149) || (cp >= 0x1F150 && cp <= 0x1F169) ||
           (cp >= 0x1F170 && cp <= 0x1F189);
}

bool qr_is_word(uint32_t cp)
{
    QR_ASSERT(cp <= 0x10FFFF);
    switch (utf8proc_category((utf8proc_int32_t)cp)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC: return true;
    default: return cp == 0x200C || cp == 0x200D || is_other_alphabetic(cp);
    }
}

bool qr_is_space(uint32_t cp)
{
    return (cp >= 9 && cp <= 13) || cp == 0x20 || cp == 0x85 || cp == 0xA0 || cp == 0x1680 ||
           (cp >= 0x2000 && cp <= 0x200A) || cp == 0x2028 || cp == 0x2029 || cp == 0x202F || cp == 0x205F || cp == 0x3000;
}
