#include "base/json_number.h"

#include <locale.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

#define EXP_CAP 1000000000 /* exponents saturate here: far beyond any double, far below overflow of the sums */

/* (-1)^negative * digits * 10^exp10, with `digits` the first up to 19 significant ones. */
struct decimal {
    uint64_t digits;
    int64_t exp10;
    bool negative, exact; /* exact: no nonzero digit was left out */
};

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static int64_t read_exponent(const char *s, const char *end)
{
    bool negative = s < end && *s == '-';
    if (s < end && (*s == '-' || *s == '+'))
        s++;
    int64_t e = 0;
    for (; s < end && is_digit(*s); s++)
        if (e < EXP_CAP)
            e = 10 * e + (*s - '0');
    return negative ? -e : e;
}

static struct decimal read_decimal(const char *text, size_t len)
{
    QR_ASSERT(text != NULL);
    QR_ASSERT(len > 0);
    const char *s = text, *end = text + len;
    struct decimal d = {.exact = true};
    d.negative = *s == '-';
    s += d.negative;
    bool fraction = false;
    for (; s < end && *s != 'e' && *s != 'E'; s++) {
        if (*s == '.') {
            fraction = true;
            continue;
        }
        if (d.digits < 1000000000000000000u) { /* 18 digits so far: one more fits 64 bits */
            d.digits = 10 * d.digits + (uint64_t)(*s - '0');
            d.exp10 -= fraction;
        } else {
            d.exact &= *s == '0';
            d.exp10 += !fraction;
        }
    }
    if (s < end)
        d.exp10 += read_exponent(s + 1, end);
    return d;
}

/* strtod on a terminated copy. A locale with another decimal point would stop it there, so the text is given that point. */
static double slow_f64(const char *text, size_t len)
{
    char small[64], *copy = len < sizeof small ? small : qr_alloc(len + 1, 1);
    memcpy(copy, text, len);
    copy[len] = 0;
    char *end, *point = strchr(copy, '.');
    double v = strtod(copy, &end);
    if (end == point) {
        *point = localeconv()->decimal_point[0];
        v = strtod(copy, &end);
    }
    if (copy != small)
        qr_free(copy);
    return v;
}

double qr_json_number_f64(const char *text, size_t len)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,  1e8,  1e9,  1e10, 1e11,
                                 1e12, 1e13, 1e14, 1e15, 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    struct decimal d = read_decimal(text, len);
    /* Both factors are exact doubles, so one rounding gives the nearest double (Clinger 1990). */
    if (!d.exact || d.digits > (uint64_t)1 << 53 || d.exp10 < -22 || d.exp10 > 22)
        return slow_f64(text, len);
    double v = (double)d.digits;
    v = d.exp10 < 0 ? v / ten[-d.exp10] : v * ten[d.exp10];
    return d.negative ? -v : v;
}

bool qr_json_number_is_finite(const char *text, size_t len)
{
    struct decimal d = read_decimal(text, len);
    if (d.digits == 0 || d.exp10 <= 308 - 19) /* digits < 10^19 */
        return true;
    return isfinite(slow_f64(text, len));
}

bool qr_json_number_i64(const char *text, size_t len, int64_t *out)
{
    QR_ASSERT(out != NULL);
    struct decimal d = read_decimal(text, len);
    if (d.digits == 0 && d.exact) {
        *out = 0;
        return true;
    }
    while (d.digits % 10 == 0) {
        d.digits /= 10;
        d.exp10++;
    }
    if (!d.exact || d.exp10 < 0 || d.exp10 > 18)
        return false;
    for (; d.exp10 > 0; d.exp10--)
        if (__builtin_mul_overflow(d.digits, (uint64_t)10, &d.digits))
            return false;
    if (d.digits > (uint64_t)INT64_MAX + d.negative)
        return false;
    *out = d.negative ? (int64_t)(0 - d.digits) : (int64_t)d.digits;
    return true;
}

bool qr_json_number_is_integer(const char *text, size_t len)
{
    QR_ASSERT(text != NULL);
    for (size_t i = 0; i < len; i++)
        if (text[i] == '.' || text[i] == 'e' || text[i] == 'E')
            return false;
    return true;
}
