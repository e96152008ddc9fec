/* decimal.h - decimal numbers as JSON writes them, exact. Pure. */
#ifndef QR_ANSWERS_SCHEMA_DECIMAL_H
#define QR_ANSWERS_SCHEMA_DECIMAL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QR_DECIMAL_DIGITS 64

/* digit[0..n) * 10^exp10, neither first nor last digit zero; n 0: zero, then not negative. */
struct qr_decimal {
    bool negative;
    int32_t n, exp10;
    char digit[QR_DECIMAL_DIGITS]; /* '0' to '9' */
};

/* A JSON number's text. False where it has more digits than fit, or an exponent beyond +-9999. */
bool qr_decimal_parse(struct qr_decimal *out, const char *text, size_t len);
int qr_decimal_compare(const struct qr_decimal *a, const struct qr_decimal *b); /* -1, 0, 1 */
bool qr_decimal_is_integer(const struct qr_decimal *d);
bool qr_decimal_i64(const struct qr_decimal *d, int64_t *out); /* false: no integer, or of more than 15 digits */

/* Whether v is an integer times m, which is positive. */
bool qr_decimal_is_multiple(const struct qr_decimal *v, const struct qr_decimal *m);

/* How many integers are greater than small and less than large, signs left out; small is not above large, which has at most 15 digits before the point. */
int64_t qr_decimal_integers_between(const struct qr_decimal *small, const struct qr_decimal *large);

/* The power of ten of the first digit, and 1: 123 has 3, 0.05 has -1. Not of zero. */
static inline int32_t qr_decimal_top(const struct qr_decimal *d) { return d->n + d->exp10; }

#endif
