/* time.c - strftime in the C locale, whatever the process's locale is. The clock is broken down as UTC and has no zone. */
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "tokenizer/jinja/eval.h"

static const char *const days[] = {"Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday"};
static const char *const months[] = {"January", "February", "March", "April", "May", "June", "July", "August", "September",
                                     "October", "November", "December"};

static bool leap(int year)
{
    return (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
}

/* ISO 8601 week and the year it belongs to. */
static int iso_week(const struct tm *tm, int *year)
{
    int weekday = (tm->tm_wday + 6) % 7; /* Monday is 0 */
    int week = (tm->tm_yday - weekday + 10) / 7;
    *year = tm->tm_year + 1900;
    if (week < 1) {
        --*year;
        int days_before = tm->tm_yday + (leap(*year) ? 366 : 365);
        return (days_before - weekday + 10) / 7;
    }
    int left = (leap(*year) ? 366 : 365) - tm->tm_yday; /* days of the year from today on */
    if (week == 53 && left <= 3 - weekday) {
        ++*year;
        return 1;
    }
    return week;
}

struct number {
    long long value;
    int width;
    char pad;
};

/* The directives that are numbers. */
static bool number_of(char letter, const struct tm *tm, int64_t when_s, struct number *n)
{
    int iso_year, hour12 = tm->tm_hour % 12 == 0 ? 12 : tm->tm_hour % 12;
    int week = iso_week(tm, &iso_year), year = tm->tm_year + 1900;
    const struct {
        char letter;
        struct number n;
    } table[] = {
        {'Y', {year, 0, '0'}},          {'y', {year % 100, 2, '0'}},
        {'C', {year / 100, 2, '0'}},    {'m', {tm->tm_mon + 1, 2, '0'}},
        {'d', {tm->tm_mday, 2, '0'}},   {'e', {tm->tm_mday, 2, ' '}},
        {'H', {tm->tm_hour, 2, '0'}},   {'k', {tm->tm_hour, 2, ' '}},
        {'I', {hour12, 2, '0'}},        {'l', {hour12, 2, ' '}},
        {'M', {tm->tm_min, 2, '0'}},    {'S', {tm->tm_sec, 2, '0'}},
        {'j', {tm->tm_yday + 1, 3, '0'}}, {'u', {tm->tm_wday ? tm->tm_wday : 7, 1, '0'}},
        {'w', {tm->tm_wday, 1, '0'}},   {'U', {(tm->tm_yday + 7 - tm->tm_wday) / 7, 2, '0'}},
        {'W', {(tm->tm_yday + 7 - (tm->tm_wday + 6) % 7) / 7, 2, '0'}},
        {'V', {week, 2, '0'}},          {'G', {iso_year, 0, '0'}},
        {'g', {iso_year % 100, 2, '0'}}, {'s', {when_s, 0, '0'}},
        {'f', {0, 6, '0'}},
    };
    for (int i = 0; i < QR_COUNT(table); i++) {
        if (table[i].letter == letter) {
            *n = table[i].n;
            return true;
        }
    }
    return false;
}

static void put_upper(struct qr_jsb *b, const char *text, size_t n, bool upper)
{
    for (size_t i = 0; i < n; i++) {
        char ch = upper && text[i] >= 'a' && text[i] <= 'z' ? (char)(text[i] - 32) : text[i];
        qr_jsb_put(b, &ch, 1, true);
    }
}

static bool put_directive(struct qr_jsb *b, char flag, char letter, const struct tm *tm, int64_t when_s);

/* A directive that stands for several. */
static bool put_composite(struct qr_jsb *b, char letter, const struct tm *tm, int64_t when_s)
{
    static const char letters[] = "DFRTrcxX";
    static const char *const stands_for[] = {"m/d/y", "Y-m-d", "H:M", "H:M:S", "I:M:S p", "a b e H:M:S Y", "m/d/y", "H:M:S"};
    const char *at = letter ? strchr(letters, letter) : NULL;
    if (!at)
        return false;
    for (const char *p = stands_for[at - letters]; *p; p++) {
        if (!put_directive(b, 0, *p, tm, when_s))
            qr_jsb_put(b, p, 1, true);
    }
    return true;
}

static bool put_directive(struct qr_jsb *b, char flag, char letter, const struct tm *tm, int64_t when_s)
{
    struct number n;
    char text[32];
    const char *word = letter == 'A' || letter == 'a'                   ? days[tm->tm_wday]
                       : letter == 'B' || letter == 'b' || letter == 'h' ? months[tm->tm_mon]
                       : letter == 'p'                                  ? (tm->tm_hour < 12 ? "AM" : "PM")
                       : letter == 'P'                                  ? (tm->tm_hour < 12 ? "am" : "pm")
                       : letter == 'n'                                  ? "\n"
                       : letter == 't'                                  ? "\t"
                       : letter == 'z' || letter == 'Z'                 ? ""
                                                                        : NULL;
    if (word) {
        bool cut = letter == 'a' || letter == 'b' || letter == 'h';
        put_upper(b, word, cut ? 3 : strlen(word), flag == '^');
        return true;
    }
    if (!number_of(letter, tm, when_s, &n))
        return put_composite(b, letter, tm, when_s);
    if (flag == '-')
        n.width = 0;
    else if (flag == '_' || flag == '0')
        n.pad = flag == '_' ? ' ' : '0';
    int len = snprintf(text, sizeof text, n.pad == '0' ? "%0*lld" : "%*lld", n.width, n.value);
    qr_jsb_put(b, text, (size_t)len, true);
    return true;
}

struct qr_jstr *qr_jstrftime(struct qr_jctx *c, struct qr_jstr *fmt, int64_t when_s)
{
    QR_ASSERT(fmt != NULL && fmt->rope_depth == 0);
    struct tm tm;
    time_t when = (time_t)when_s;
    if (!gmtime_r(&when, &tm) || tm.tm_year < -1899 || tm.tm_year > 8099)
        qr_jfail(c, "the clock is outside of the years 1 to 9999");
    struct qr_jsb b;
    qr_jsb_init(&b, c);
    for (size_t i = 0; i < fmt->len;) {
        const char *p = fmt->u.flat.data + i;
        size_t left = fmt->len - i, n = left > 2 && p[1] && strchr("-_0^", p[1]) ? 3 : 2;
        if (p[0] == '%' && left >= 2 && p[1] == '%') {
            qr_jsb_put_range(&b, fmt, i, i + 1);
            i += 2;
        } else if (p[0] == '%' && left >= n && put_directive(&b, n == 3 ? p[1] : 0, p[n - 1], &tm, when_s)) {
            i += n;
        } else {
            qr_jsb_put_range(&b, fmt, i, i + 1);
            i++;
        }
    }
    return qr_jsb_done(&b);
}
