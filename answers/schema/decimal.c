#include "answers/schema/decimal.h"

#include <string.h>

#include "base/assert.h"

#define EXPONENT_MAX 9999

/* The digits of a number's text without its exponent. False: too many. */
static bool read_digits(struct qr_decimal *out, const char *text, size_t len)
{
    bool behind_point = false;
    for (size_t i = 0; i < len; i++) {
        if (text[i] == '.') {
            behind_point = true;
            continue;
        }
        out->exp10 -= behind_point;
        if (out->n == 0 && text[i] == '0')
            continue;
        if (out->n == QR_DECIMAL_DIGITS) {
            if (text[i] != '0')
                return false;
            out->exp10++; /* a zero that does not fit counts as a power of ten */
            continue;
        }
        out->digit[out->n++] = text[i];
    }
    return true;
}

bool qr_decimal_parse(struct qr_decimal *out, const char *text, size_t len)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(text != NULL);
    *out = (struct qr_decimal){0};
    size_t at = 0, end = 0;
    if (len > 0 && text[0] == '-') {
        out->negative = true;
        at = 1;
    }
    for (end = at; end < len && text[end] != 'e' && text[end] != 'E';)
        end++;
    if (!read_digits(out, text + at, end - at))
        return false;
    if (end < len) {
        int32_t exponent = 0;
        at = end + 1;
        const bool down = at < len && text[at] == '-';
        at += at < len && (text[at] == '-' || text[at] == '+');
        for (; at < len && exponent <= EXPONENT_MAX; at++)
            exponent = exponent * 10 + (text[at] - '0');
        if (exponent > EXPONENT_MAX)
            return false;
        out->exp10 += down ? -exponent : exponent;
    }
    for (; out->n > 0 && out->digit[out->n - 1] == '0'; out->n--)
        out->exp10++;
    if (out->n == 0)
        *out = (struct qr_decimal){0};
    return true;
}

static int compare_sizes(const struct qr_decimal *a, const struct qr_decimal *b)
{
    if (a->n == 0 || b->n == 0)
        return (a->n > 0) - (b->n > 0);
    const int32_t top_a = qr_decimal_top(a), top_b = qr_decimal_top(b);
    if (top_a != top_b)
        return top_a < top_b ? -1 : 1;
    const int32_t n = a->n < b->n ? a->n : b->n;
    const int order = memcmp(a->digit, b->digit, (size_t)n);
    if (order != 0)
        return order < 0 ? -1 : 1;
    return (a->n > b->n) - (a->n < b->n);
}

int qr_decimal_compare(const struct qr_decimal *a, const struct qr_decimal *b)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(b != NULL);
    if (a->negative != b->negative)
        return a->negative ? -1 : 1;
    return a->negative ? compare_sizes(b, a) : compare_sizes(a, b);
}

bool qr_decimal_is_integer(const struct qr_decimal *d)
{
    QR_ASSERT(d != NULL);
    return d->n == 0 || d->exp10 >= 0;
}

/* v / m = (V / M) * 10^(ev - em). V and M end in no zero, so a negative power of ten leaves a fraction unless M holds what divides it away: the
 * rest of V * 10^k by M * 10^j is found digit by digit, in parts of M that fit 64 bits or else by long subtraction. */
bool qr_decimal_is_multiple(const struct qr_decimal *v, const struct qr_decimal *m)
{
    QR_ASSERT(m->n > 0 && !m->negative);
    if (v->n == 0)
        return true;
    const int32_t shift = v->exp10 - m->exp10;
    if (shift < 0)
        return false;
    if (m->n > 18)
        return compare_sizes(v, m) == 0;
    uint64_t divisor = 0, rest = 0;
    for (int32_t i = 0; i < m->n; i++)
        divisor = divisor * 10 + (uint64_t)(m->digit[i] - '0');
    for (int32_t i = 0; i < v->n; i++)
        rest = (uint64_t)(((unsigned __int128)rest * 10 + (uint64_t)(v->digit[i] - '0')) % divisor);
    for (int32_t i = 0; i < shift && rest != 0; i++)
        rest = (uint64_t)(((unsigned __int128)rest * 10) % divisor);
    return rest == 0;
}

/* The part before the point, at most 15 digits. */
static int64_t whole_part(const struct qr_decimal *d)
{
    int64_t value = 0;
    for (int32_t i = 0; i < qr_decimal_top(d); i++)
        value = value * 10 + (i < d->n ? d->digit[i] - '0' : 0);
    return value;
}

int64_t qr_decimal_integers_between(const struct qr_decimal *small, const struct qr_decimal *large)
{
    QR_ASSERT(qr_decimal_top(large) <= 15);
    QR_ASSERT(compare_sizes(small, large) <= 0);
    return whole_part(large) - (qr_decimal_is_integer(large) && large->n > 0) - whole_part(small);
}

bool qr_decimal_i64(const struct qr_decimal *d, int64_t *out)
{
    QR_ASSERT(d != NULL && out != NULL);
    if (!qr_decimal_is_integer(d) || (d->n > 0 && qr_decimal_top(d) > 15))
        return false;
    *out = d->negative ? -whole_part(d) : whole_part(d);
    return true;
}
