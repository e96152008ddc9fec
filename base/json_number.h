/* json_number.h - inside base/json only: what a number's text says. The text has passed the gate (RFC 8259 number). */
#ifndef QR_BASE_JSON_NUMBER_H
#define QR_BASE_JSON_NUMBER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The nearest double; infinite when there is none. Not affected by the locale's decimal point. */
double qr_json_number_f64(const char *text, size_t len);

/* Exact: "9007199254740993", "1e3" and "2.50e1" are integers, "0.5" and 2^63 are none that fit. */
bool qr_json_number_i64(const char *text, size_t len, int64_t *out);

/* Written without fraction and exponent. */
bool qr_json_number_is_integer(const char *text, size_t len);

/* False when reading it as a double would overflow. */
bool qr_json_number_is_finite(const char *text, size_t len);

#endif
