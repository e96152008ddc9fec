/* number.c - the texts of numbers in a range, of multiples and of one value.
 *
 * A number is written plainly, with up to 20 digits before the point and behind it, or, where it is bounded in any way, with one digit that is
 * not zero before the point and an exponent, which is how json.dumps writes very large and very small ones: then the exponent alone
 * says how large it is, but for the bound's own one. Every text stays within what a double holds. Owned by one build. */
#include <stdio.h>
#include <string.h>

#include "answers/schema/normal.h"
#include "base/assert.h"

#define DIGITS 20           /* on each side of the point */
#define EXACT_DIGITS 15
#define FEW_MULTIPLES 200
#define MODULUS_MAX 100     /* of multiples whose last digits do not tell */
#define SUFFIX_DIGITS_MAX 4
#define WHOLE_EXPONENT_MAX 287 /* behind 20 digits */

/* A size, as it is written plainly: digits before the point and behind it, the latter up to the first that no text has. */
struct plain { int32_t n_whole, n_fraction; char whole[DIGITS + 2], fraction[DIGITS + 2]; bool too_long; };

static int32_t digit(struct qr_sc *sc, int first, int last)
{
    return first > last ? QR_EXPR_NONE : qr_expr_range(sc->x, (uint8_t)('0' + first), (uint8_t)('0' + last));
}

static int32_t digits(struct qr_sc *sc, int32_t min, int32_t max) { return qr_expr_repeat(sc->x, digit(sc, 0, 9), min, max); }
static int32_t zeros(struct qr_sc *sc, int32_t min, int32_t max) { return qr_expr_repeat(sc->x, digit(sc, 0, 0), min, max); }
static int32_t cat(struct qr_sc *sc, int32_t a, int32_t b) { return qr_expr_cat(sc->x, a, b); }
static int32_t either(struct qr_sc *sc, int32_t a, int32_t b) { return qr_expr_or(sc->x, a, b); }
static int32_t point(struct qr_sc *sc, int32_t e) { return cat(sc, qr_expr_text(sc->x, "."), e); }
static int32_t any_fraction(struct qr_sc *sc) { return qr_expr_maybe(sc->x, point(sc, digits(sc, 1, DIGITS))); }
static int32_t no_fraction(struct qr_sc *sc) { return qr_expr_maybe(sc->x, point(sc, zeros(sc, 1, DIGITS))); }
static int32_t any_whole(struct qr_sc *sc) { return either(sc, digit(sc, 0, 0), cat(sc, digit(sc, 1, 9), digits(sc, 0, DIGITS - 1))); }

static struct plain plain_of(const struct qr_decimal *d)
{
    struct plain p = {.n_whole = 1, .whole = "0"};
    const int32_t top = d->n > 0 ? qr_decimal_top(d) : 0;
    if (top > DIGITS) {
        p.too_long = true;
        return p;
    }
    for (int32_t i = 0; i < top; i++)
        p.whole[i] = i < d->n ? d->digit[i] : '0';
    p.n_whole = top > 0 ? top : 1;
    for (int32_t i = top; i < d->n && p.n_fraction <= DIGITS; i++)
        p.fraction[p.n_fraction++] = i < 0 ? '0' : d->digit[i];
    return p;
}

/* ---- plain numbers above and below ---- */

static int32_t whole_above(struct qr_sc *sc, const char *d, int32_t n)
{
    int32_t e = n < DIGITS ? cat(sc, digit(sc, 1, 9), digits(sc, n, DIGITS - 1)) : QR_EXPR_NONE, same = QR_EXPR_NONE;
    for (int32_t i = n - 1; i >= 0; i--) {
        const int32_t above = cat(sc, digit(sc, d[i] - '0' + 1, 9), digits(sc, n - i - 1, n - i - 1));
        same = either(sc, above, cat(sc, digit(sc, d[i] - '0', d[i] - '0'), same));
    }
    return either(sc, e, same);
}

static int32_t whole_below(struct qr_sc *sc, const char *d, int32_t n)
{
    int32_t e = n > 1 ? either(sc, digit(sc, 0, 0), cat(sc, digit(sc, 1, 9), digits(sc, 0, n - 2))) : QR_EXPR_NONE, same = QR_EXPR_NONE;
    for (int32_t i = n - 1; i >= 0; i--) {
        const int32_t below = cat(sc, digit(sc, i == 0 && n > 1, d[i] - '0' - 1), digits(sc, n - i - 1, n - i - 1));
        same = either(sc, below, cat(sc, digit(sc, d[i] - '0', d[i] - '0'), same));
    }
    return either(sc, e, same);
}

/* Up to m digits, not all zero. */
static int32_t not_zero(struct qr_sc *sc, int32_t m)
{
    int32_t e = QR_EXPR_NONE;
    for (int32_t k = 1; k <= m; k++)
        e = either(sc, cat(sc, digit(sc, 1, 9), digits(sc, 0, k - 1)), cat(sc, digit(sc, 0, 0), e));
    return e;
}

/* What may stand behind the whole part, its point included. */
static int32_t fraction_above(struct qr_sc *sc, const char *d, int32_t n, bool open)
{
    if (n == 0)
        return open ? point(sc, not_zero(sc, DIGITS)) : any_fraction(sc);
    int32_t e = n > DIGITS ? QR_EXPR_NONE : open ? not_zero(sc, DIGITS - n) : digits(sc, 0, DIGITS - n);
    for (int32_t i = (n > DIGITS ? DIGITS : n) - 1; i >= 0; i--) {
        const int32_t above = cat(sc, digit(sc, d[i] - '0' + 1, 9), digits(sc, 0, DIGITS - 1 - i));
        e = either(sc, above, cat(sc, digit(sc, d[i] - '0', d[i] - '0'), e));
    }
    return point(sc, e);
}

static int32_t fraction_below(struct qr_sc *sc, const char *d, int32_t n, bool open)
{
    if (n == 0)
        return open ? QR_EXPR_NONE : no_fraction(sc);
    int32_t e = n > DIGITS ? QR_EXPR_EMPTY : open ? QR_EXPR_NONE : zeros(sc, 0, DIGITS - n);
    for (int32_t i = (n > DIGITS ? DIGITS : n) - 1; i >= 0; i--) {
        const int32_t below = cat(sc, digit(sc, 0, d[i] - '0' - 1), digits(sc, 0, DIGITS - 1 - i));
        e = either(sc, below, cat(sc, digit(sc, d[i] - '0', d[i] - '0'), e));
        if (i > 0)
            e = qr_expr_maybe(sc->x, e);
    }
    return qr_expr_maybe(sc->x, point(sc, e));
}

static int32_t whole_equal(struct qr_sc *sc, const struct plain *p) { return qr_expr_bytes(sc->x, p->whole, (size_t)p->n_whole); }

static int32_t plain_above(struct qr_sc *sc, const struct qr_decimal *low, bool open)
{
    const struct plain p = plain_of(low);
    if (p.too_long)
        return QR_EXPR_NONE;
    if (low->n == 0 && !open)
        return cat(sc, any_whole(sc), any_fraction(sc));
    return either(sc, cat(sc, whole_above(sc, p.whole, p.n_whole), any_fraction(sc)),
                  cat(sc, whole_equal(sc, &p), fraction_above(sc, p.fraction, p.n_fraction, open)));
}

static int32_t plain_below(struct qr_sc *sc, const struct qr_decimal *high, bool open)
{
    const struct plain p = plain_of(high);
    if (p.too_long)
        return cat(sc, any_whole(sc), any_fraction(sc));
    return either(sc, cat(sc, whole_below(sc, p.whole, p.n_whole), any_fraction(sc)),
                  cat(sc, whole_equal(sc, &p), fraction_below(sc, p.fraction, p.n_fraction, open)));
}

/* ---- exponents ---- */

/* width digits that say a number from low to high. */
static int32_t of_width(struct qr_sc *sc, int32_t low, int32_t high, int32_t width)
{
    int32_t unit = 1, e = QR_EXPR_NONE;
    for (int32_t i = 1; i < width; i++)
        unit *= 10;
    if (high > unit * 10 - 1)
        high = unit * 10 - 1;
    if (low > high)
        return QR_EXPR_NONE;
    if (width == 0 || (low == 0 && high == unit * 10 - 1))
        return digits(sc, width, width);
    for (int32_t d = low / unit; d <= high / unit; d++) {
        const int32_t from = d == low / unit ? low % unit : 0, to = d == high / unit ? high % unit : unit - 1;
        e = either(sc, e, cat(sc, digit(sc, d, d), width > 1 ? of_width(sc, from, to, width - 1) : QR_EXPR_EMPTY));
    }
    return e;
}

static int32_t padded(struct qr_sc *sc, int32_t low, int32_t high)
{
    return either(sc, of_width(sc, low, high, 1), either(sc, of_width(sc, low, high, 2), of_width(sc, low, high, 3)));
}

/* "e" and an exponent from low to high. */
static int32_t exponent(struct qr_sc *sc, int32_t low, int32_t high)
{
    int32_t e = QR_EXPR_NONE;
    if (low > high)
        return e;
    if (high >= 0)
        e = cat(sc, qr_expr_maybe(sc->x, qr_expr_text(sc->x, "+")), padded(sc, low > 0 ? low : 0, high));
    if (low < 0)
        e = either(sc, e, cat(sc, qr_expr_text(sc->x, "-"), padded(sc, high < 0 ? -high : 1, -low)));
    return cat(sc, either(sc, qr_expr_text(sc->x, "e"), qr_expr_text(sc->x, "E")), e);
}

static int32_t any_mantissa(struct qr_sc *sc) { return cat(sc, digit(sc, 1, 9), any_fraction(sc)); }

static int32_t mantissa_beside(struct qr_sc *sc, const struct qr_decimal *d, bool open, bool above)
{
    const int first = d->digit[0] - '0', n = d->n - 1 > DIGITS + 1 ? DIGITS + 1 : d->n - 1;
    const int32_t same = above ? fraction_above(sc, d->digit + 1, n, open) : fraction_below(sc, d->digit + 1, n, open);
    const int32_t other = cat(sc, above ? digit(sc, first + 1, 9) : digit(sc, 1, first - 1), any_fraction(sc));
    return either(sc, other, cat(sc, digit(sc, first, first), same));
}

static const struct qr_decimal smallest = {.n = 1, .exp10 = -324, .digit = "5"};
static const struct qr_decimal largest = {.n = 17, .exp10 = 292, .digit = "17976931348623157"};

/* A size from low to high with an exponent; neither is negative. */
static int32_t with_exponent(struct qr_sc *sc, struct qr_sc_bound low, struct qr_sc_bound high)
{
    if (!low.value || qr_decimal_compare(low.value, &smallest) < 0)
        low = (struct qr_sc_bound){&smallest, false};
    if (!high.value || qr_decimal_compare(high.value, &largest) > 0)
        high = (struct qr_sc_bound){&largest, false};
    if (qr_decimal_compare(low.value, high.value) > 0)
        return QR_EXPR_NONE;
    const int32_t from = qr_decimal_top(low.value) - 1, to = qr_decimal_top(high.value) - 1;
    const int32_t above = mantissa_beside(sc, low.value, low.open, true), below = mantissa_beside(sc, high.value, high.open, false);
    if (from == to)
        return cat(sc, qr_expr_and(sc->x, above, below), exponent(sc, from, from));
    const int32_t between = cat(sc, any_mantissa(sc), exponent(sc, from + 1, to - 1));
    return either(sc, between, either(sc, cat(sc, above, exponent(sc, from, from)), cat(sc, below, exponent(sc, to, to))));
}

/* Integers with an exponent: no more digits behind the point than it moves. */
static int32_t whole_with_exponent(struct qr_sc *sc)
{
    int32_t e = cat(sc, digit(sc, 1, 9), exponent(sc, 0, 307));
    for (int32_t k = 1; k <= DIGITS; k++)
        e = either(sc, e, cat(sc, digit(sc, 1, 9), cat(sc, point(sc, digits(sc, k, k)), exponent(sc, k, 307))));
    return e;
}

/* ---- multiples ---- */

struct multiples { uint64_t modulus; int32_t n_behind; /* digits behind the point that count */ int32_t n_digits; /* before it, at most */ };

static bool may_stop(const struct multiples *m, uint64_t rest, int32_t n_read)
{
    for (; n_read < m->n_behind && rest != 0; n_read++)
        rest = rest * 10 % m->modulus;
    return rest == 0;
}

/* The digits behind the point after n_read of them. */
static int32_t behind(struct qr_sc *sc, const struct multiples *m, uint64_t rest, int32_t n_read)
{
    if (n_read == m->n_behind)
        return rest == 0 ? zeros(sc, n_read == 0, DIGITS - n_read) : QR_EXPR_NONE;
    int32_t e = QR_EXPR_NONE, before = -1;
    for (int d = 0; d < 10; d++) {
        const int32_t next = d > 0 && m->modulus == 1 ? before : behind(sc, m, (rest * 10 + (uint64_t)d) % m->modulus, n_read + 1);
        e = either(sc, e, cat(sc, digit(sc, d, d), next));
        before = next;
    }
    return n_read > 0 && may_stop(m, rest, n_read) ? qr_expr_maybe(sc->x, e) : e;
}

static int32_t suffix(struct qr_sc *sc, const struct multiples *m, uint64_t rest)
{
    const int32_t e = point(sc, behind(sc, m, rest, 0));
    return may_stop(m, rest, 0) ? qr_expr_maybe(sc->x, e) : e;
}

/* n digits more, any of them, with the rest so far. */
static int32_t exactly(struct qr_sc *sc, const struct multiples *m, uint64_t rest, int32_t n, int32_t end)
{
    if (n == 0)
        return rest == 0 ? end : QR_EXPR_NONE;
    int32_t e = QR_EXPR_NONE;
    for (int d = 0; d < 10; d++)
        e = either(sc, e, cat(sc, digit(sc, d, d), exactly(sc, m, (rest * 10 + (uint64_t)d) % m->modulus, n - 1, end)));
    return e;
}

/* Of a modulus that divides 10^k the last k digits tell: numbers of at most n_digits, and `end` behind them. */
static int32_t by_last_digits(struct qr_sc *sc, const struct multiples *m, int32_t k, int32_t n_digits, int32_t end)
{
    int32_t e = cat(sc, digit(sc, 0, 0), end);
    if (n_digits > k)
        e = either(sc, e, cat(sc, digit(sc, 1, 9), cat(sc, digits(sc, 0, n_digits - 1 - k), exactly(sc, m, 0, k, end))));
    for (int32_t n = 1; n <= k; n++) { /* fewer digits: the first one is not zero */
        for (int d = 1; d < 10; d++)
            e = either(sc, e, cat(sc, digit(sc, d, d), exactly(sc, m, (uint64_t)d % m->modulus, n - 1, end)));
    }
    return e;
}

/* Digit by digit, from the last one on: of all rests at once what may still come. */
static int32_t by_rests(struct qr_sc *sc, const struct multiples *m)
{
    int32_t now[MODULUS_MAX], next[MODULUS_MAX], end[MODULUS_MAX];
    const int32_t n = (int32_t)m->modulus;
    for (int32_t r = 0; r < n; r++) {
        end[r] = suffix(sc, m, (uint64_t)r);
        now[r] = m->n_digits <= EXACT_DIGITS ? end[r] : may_stop(m, (uint64_t)r, 0) ? QR_EXPR_EMPTY : QR_EXPR_NONE;
    }
    for (int32_t n_before = m->n_digits - 1; n_before > 0; n_before--) {
        for (int32_t r = 0; r < n; r++) {
            int32_t e = n_before <= EXACT_DIGITS ? end[r] : may_stop(m, (uint64_t)r, 0) ? QR_EXPR_EMPTY : QR_EXPR_NONE;
            for (int d = 0; d < 10; d++)
                e = either(sc, e, cat(sc, digit(sc, d, d), now[(r * 10 + d) % n]));
            next[r] = e;
        }
        memcpy(now, next, sizeof now);
    }
    int32_t e = cat(sc, digit(sc, 0, 0), end[0]);
    for (int d = 1; d < 10; d++)
        e = either(sc, e, cat(sc, digit(sc, d, d), now[d % n]));
    return e;
}

/* Multiples without a sign. With a point a number is read as a double by many, which tells integers apart up to 15 digits: those with more have none. */
static int32_t multiples_of(struct qr_sc *sc, const struct qr_sc_divisor *d, int32_t n_digits)
{
    struct multiples m = {.n_digits = n_digits, .n_behind = d->value->exp10 < 0 ? -d->value->exp10 : 0};
    const int32_t n_zeros = d->value->exp10 > 0 ? d->value->exp10 : 0, n_small = n_digits < EXACT_DIGITS ? n_digits : EXACT_DIGITS;
    if (m.n_behind > 12 || d->value->n + n_zeros > 12) {
        qr_sc_fail(sc, QR_E_UNSUPPORTED, d->at, "multipleOf with more than 12 digits on a side of the point cannot be enforced");
        return QR_EXPR_NONE;
    }
    for (int32_t i = 0; i < d->value->n + n_zeros; i++)
        m.modulus = m.modulus * 10 + (uint64_t)(i < d->value->n ? d->value->digit[i] - '0' : 0);
    uint64_t power = 1;
    for (int32_t i = 0; i < m.n_behind; i++)
        power *= 10;
    if (power % m.modulus == 0 && (m.modulus == 1 || m.n_behind <= SUFFIX_DIGITS_MAX)) { /* every integer is a multiple */
        const int32_t small = either(sc, digit(sc, 0, 0), cat(sc, digit(sc, 1, 9), digits(sc, 0, n_small - 1)));
        return either(sc, either(sc, any_whole(sc), whole_with_exponent(sc)), cat(sc, small, suffix(sc, &m, 0)));
    }
    for (int32_t k = 1; k <= SUFFIX_DIGITS_MAX && m.n_behind == 0; k++) {
        power *= 10;
        if (power % m.modulus == 0)
            return either(sc, by_last_digits(sc, &m, k, n_digits, QR_EXPR_EMPTY), by_last_digits(sc, &m, k, n_small, suffix(sc, &m, 0)));
    }
    if (m.modulus <= MODULUS_MAX && m.n_behind <= 2)
        return by_rests(sc, &m);
    qr_sc_fail(sc, QR_E_UNSUPPORTED, d->at, "this multipleOf cannot be enforced: it divides neither 10000 nor its own power of ten, and is, its point left "
               "out, above %d", MODULUS_MAX);
    return QR_EXPR_NONE;
}

/* ---- all together ---- */

static int32_t signed_by(struct qr_sc *sc, int32_t e) { return cat(sc, qr_expr_maybe(sc->x, qr_expr_text(sc->x, "-")), e); }

static int32_t sizes_between(struct qr_sc *sc, struct qr_sc_bound low, struct qr_sc_bound high, bool exponents)
{
    static const struct qr_decimal zero = {0};
    int32_t e = low.value ? plain_above(sc, low.value, low.open) : plain_above(sc, &zero, false);
    if (high.value)
        e = qr_expr_and(sc->x, e, plain_below(sc, high.value, high.open));
    return exponents ? either(sc, e, with_exponent(sc, low, high)) : e;
}

static struct qr_decimal *size_of(struct qr_sc *sc, const struct qr_decimal *d)
{
    struct qr_decimal *size = qr_sc_alloc(sc, 1, sizeof *size);
    if (size) {
        *size = *d;
        size->negative = false;
    }
    return size;
}

/* Numbers in the shape's range: those without a sign, and those with one. */
static int32_t in_range(struct qr_sc *sc, const struct qr_sc_shape *s, bool exponents)
{
    const struct qr_decimal *low = s->low.value, *high = s->high.value;
    struct qr_sc_bound from = {0}, to = {0};
    int32_t e = QR_EXPR_NONE;
    if (!high || !high->negative) {
        from = low && !low->negative ? s->low : from;
        e = sizes_between(sc, from, s->high, exponents);
    }
    if (!low || low->negative || (low->n == 0 && !s->low.open)) {
        from = (struct qr_sc_bound){0};
        if (high && (high->negative || high->n == 0))
            from = (struct qr_sc_bound){size_of(sc, high), s->high.open};
        if (low)
            to = (struct qr_sc_bound){size_of(sc, low), s->low.open};
        if (sc->code == 0)
            e = either(sc, e, cat(sc, qr_expr_text(sc->x, "-"), sizes_between(sc, from, to, exponents)));
    }
    return e;
}

/* An integer has neither point nor exponent. */
static bool is_plain(const struct qr_sc *sc) { return sc->draft_4 || sc->options.plain_integers; }

static int32_t every_integer(struct qr_sc *sc)
{
    struct qr_sc_words *w = sc->words;
    if (w->integer < 0 && sc->options.plain_integers) /* nor is it -0 */
        w->integer = either(sc, any_whole(sc), cat(sc, qr_expr_text(sc->x, "-"), cat(sc, digit(sc, 1, 9), digits(sc, 0, DIGITS - 1))));
    else if (w->integer < 0)
        w->integer = signed_by(sc, sc->draft_4 ? any_whole(sc) : either(sc, cat(sc, any_whole(sc), no_fraction(sc)), whole_with_exponent(sc)));
    return w->integer;
}

static int32_t every_number(struct qr_sc *sc)
{
    struct qr_sc_words *w = sc->words;
    if (w->number < 0) {
        const int32_t small = cat(sc, cat(sc, any_whole(sc), any_fraction(sc)), qr_expr_maybe(sc->x, exponent(sc, -999, WHOLE_EXPONENT_MAX)));
        w->number = signed_by(sc, either(sc, small, with_exponent(sc, (struct qr_sc_bound){0}, (struct qr_sc_bound){0})));
    }
    return w->number;
}

/* Plain numbers with a fraction that a double can tell from none: the fewer digits before the point, the later it may begin. */
static int32_t exact_fraction(struct qr_sc *sc)
{
    static const struct { int32_t n_whole, n_zeros; } form[] = {{12, 2}, {9, 5}, {6, 8}, {3, 11}, {1, DIGITS - 1}};
    int32_t e = QR_EXPR_NONE;
    for (int i = 0; i < QR_COUNT(form); i++) {
        const int32_t whole = either(sc, digit(sc, 0, 0), cat(sc, digit(sc, 1, 9), digits(sc, 0, form[i].n_whole - 1)));
        int32_t fraction = QR_EXPR_NONE;
        for (int32_t n = form[i].n_zeros; n >= 0; n--)
            fraction = either(sc, cat(sc, digit(sc, 1, 9), digits(sc, 0, DIGITS - 1 - n)), cat(sc, digit(sc, 0, 0), fraction));
        e = either(sc, e, cat(sc, whole, point(sc, fraction)));
    }
    return e;
}

/* The same, or with an exponent below zero. */
static int32_t every_fraction(struct qr_sc *sc)
{
    struct qr_sc_words *w = sc->words;
    if (w->fraction < 0)
        w->fraction = signed_by(sc, either(sc, exact_fraction(sc), cat(sc, any_mantissa(sc), exponent(sc, -307, -1))));
    return w->fraction;
}

/* Numbers of which a double tells whether they are integers. */
static int32_t exact(struct qr_sc *sc)
{
    const int32_t small = either(sc, digit(sc, 0, 0), cat(sc, digit(sc, 1, 9), digits(sc, 0, EXACT_DIGITS - 1)));
    return either(sc, either(sc, any_whole(sc), cat(sc, small, no_fraction(sc))), exact_fraction(sc));
}

/* The integers from low to high that the divisor divides, one by one; -1: they are too many, or no integers. */
static int32_t few_multiples(struct qr_sc *sc, const struct qr_sc_shape *s, const struct qr_decimal *m)
{
    int64_t low, high, step;
    if (!s->low.value || !s->high.value || !qr_decimal_i64(m, &step) || !qr_decimal_i64(s->low.value, &low) || !qr_decimal_i64(s->high.value, &high) ||
        (high - low) / step > FEW_MULTIPLES)
        return -1;
    int32_t *part = qr_sc_alloc(sc, FEW_MULTIPLES + 3, sizeof *part), n = 0;
    low += s->low.open;
    high -= s->high.open;
    for (int64_t v = low / step * step - step; v <= high && part; v += step) {
        char text[32];
        const int len = snprintf(text, sizeof text, "%lld", (long long)v);
        if (v >= low)
            part[n++] = qr_sc_write_bytes(sc, text, (size_t)len, no_fraction(sc));
    }
    return part ? qr_expr_any(sc->x, part, n) : QR_EXPR_NONE;
}

static bool excludes_numbers(const struct qr_sc_shape *s)
{
    for (const struct qr_sc_values *x = s->excluded; x; x = x->next) {
        for (const struct qr_json *v = x->is_list ? qr_json_first(x->json) : x->json; v; v = x->is_list ? qr_json_after(v) : NULL) {
            if (qr_json_type(v) == QR_JSON_T_NUMBER)
                return true;
        }
    }
    return false;
}

static int32_t without_excluded(struct qr_sc *sc, const struct qr_sc_shape *s, int32_t e)
{
    for (const struct qr_sc_values *x = s->excluded; x; x = x->next) {
        for (const struct qr_json *v = x->is_list ? qr_json_first(x->json) : x->json; v; v = x->is_list ? qr_json_after(v) : NULL) {
            if (qr_json_type(v) == QR_JSON_T_NUMBER)
                e = qr_expr_minus(sc->x, e, qr_sc_write_value(sc, v, QR_EXPR_EMPTY));
        }
    }
    return e;
}

/* The most digits before the point that a number in the shape's range has. */
static int32_t digits_in_range(const struct qr_sc_shape *s)
{
    if (!s->low.value || !s->high.value)
        return DIGITS;
    const int32_t a = s->low.value->n > 0 ? qr_decimal_top(s->low.value) : 1, b = s->high.value->n > 0 ? qr_decimal_top(s->high.value) : 1;
    const int32_t most = a > b ? a : b;
    return most > DIGITS ? DIGITS : most < 1 ? 1 : most;
}

/* An intersection is taken only where it says more: each costs a search for texts when the grammar is finished. */
static int32_t multiples_in_range(struct qr_sc *sc, const struct qr_sc_shape *s, uint32_t types)
{
    const int32_t n_digits = digits_in_range(s);
    int32_t e = s->divisor->negated || s->divisor->next ? -1 : few_multiples(sc, s, s->divisor->value);
    if (e >= 0)
        return types == QR_SC_FRACTION ? QR_EXPR_NONE : types == QR_SC_NUMBER ? e : qr_expr_and(sc->x, e, every_integer(sc));
    if (s->low.value || s->high.value || s->divisor->negated)
        e = in_range(sc, s, !s->divisor->negated);
    for (const struct qr_sc_divisor *d = s->divisor; d && sc->code == 0; d = d->next) {
        const int32_t m = signed_by(sc, multiples_of(sc, d, d->negated ? DIGITS : n_digits));
        if (d->negated)
            e = qr_expr_and(sc->x, e, signed_by(sc, exact(sc)));
        e = e < 0 ? m : d->negated ? qr_expr_minus(sc->x, e, m) : qr_expr_and(sc->x, e, m);
    }
    const bool whole_ones = !is_plain(sc) && !s->divisor->negated && s->divisor->value->exp10 >= 0;
    if (types == QR_SC_FRACTION)
        return qr_expr_and(sc->x, e, every_fraction(sc));
    return types == QR_SC_NUMBER || whole_ones ? e : qr_expr_and(sc->x, e, every_integer(sc));
}

int32_t qr_sc_write_number(struct qr_sc *sc, const struct qr_sc_shape *s)
{
    QR_ASSERT(s->types & QR_SC_NUMBER);
    const uint32_t types = s->types & QR_SC_NUMBER;
    const bool excludes = excludes_numbers(s);
    int32_t e = QR_EXPR_NONE;
    if (s->divisor) {
        e = multiples_in_range(sc, s, types);
    } else {
        e = types == QR_SC_INTEGER ? every_integer(sc) : types == QR_SC_FRACTION ? every_fraction(sc) : every_number(sc);
        if (s->low.value || s->high.value || excludes)
            e = types == QR_SC_NUMBER ? in_range(sc, s, true) : qr_expr_and(sc->x, in_range(sc, s, true), e);
    }
    return excludes ? without_excluded(sc, s, e) : e;
}

void qr_sc_write_equal(struct qr_sc *sc, const struct qr_json *number, int32_t rest, int32_t form[2])
{
    QR_ASSERT(qr_json_type(number) == QR_JSON_T_NUMBER);
    struct qr_decimal d;
    form[0] = form[1] = QR_EXPR_NONE;
    if (!qr_sc_decimal_of(sc, number, &d))
        return;
    const struct plain p = plain_of(&d);
    if (is_plain(sc) && qr_json_is_integer_text(number)) {
        struct qr_buf text = {0};
        qr_json_print(&text, number);
        form[0] = text.data ? qr_sc_write_bytes(sc, text.data, text.len, rest) : QR_EXPR_NONE;
        qr_buf_release(&text);
        return;
    }
    if (d.n == 0) {
        form[0] = signed_by(sc, cat(sc, digit(sc, 0, 0), cat(sc, no_fraction(sc), rest)));
        return;
    }
    if (!p.too_long && p.n_fraction <= DIGITS) {
        const int32_t more = cat(sc, zeros(sc, 0, DIGITS - p.n_fraction), rest);
        const int32_t behind_point = qr_sc_write_bytes(sc, p.fraction, (size_t)p.n_fraction, more);
        form[0] = qr_sc_write_bytes(sc, p.whole, (size_t)p.n_whole, p.n_fraction == 0 ? cat(sc, no_fraction(sc), rest) : point(sc, behind_point));
    }
    const int32_t top = qr_decimal_top(&d) - 1, n_more = d.n - 1;
    if (n_more <= DIGITS && top >= -323 && top <= 308) {
        const int32_t end = cat(sc, exponent(sc, top, top), rest);
        const int32_t behind_point = qr_sc_write_bytes(sc, d.digit + 1, (size_t)n_more, cat(sc, zeros(sc, 0, DIGITS - n_more), end));
        form[1] = qr_sc_write_bytes(sc, d.digit, 1, n_more == 0 ? cat(sc, no_fraction(sc), end) : point(sc, behind_point));
    }
    if (form[0] == QR_EXPR_NONE && form[1] == QR_EXPR_NONE && sc->code == 0)
        qr_sc_fail(sc, QR_E_UNSUPPORTED, number, "the number has more than %d digits", DIGITS);
    for (int i = 0; i < 2 && d.negative; i++)
        form[i] = cat(sc, qr_expr_text(sc->x, "-"), form[i]);
}
