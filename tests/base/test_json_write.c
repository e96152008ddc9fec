#include <criterion/criterion.h>
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/json.h"
#include "base/rng.h"
#include "tests/full.h"

static const char *f32(struct qr_buf *b, float v)
{
    qr_buf_clear(b);
    qr_json_put_f32(b, v);
    return b->data;
}

static const char *f64(struct qr_buf *b, double v)
{
    qr_buf_clear(b);
    qr_json_put_f64(b, v);
    return b->data;
}

Test(json_write, writes_doubles_the_way_people_do)
{
    static const struct {
        double v;
        const char *text;
    } row[] = {{0, "0"}, {-0.0, "-0"}, {1, "1"}, {-1, "-1"}, {10, "10"}, {123456, "123456"}, {0.1, "0.1"}, {0.5, "0.5"}, {-2.5, "-2.5"},
               {0.30000000000000004, "0.30000000000000004"}, {1.0 / 3, "0.3333333333333333"}, {123.456, "123.456"}, {1e15, "1000000000000000"},
               {1234567890123456, "1234567890123456"}, {1e16, "1e16"}, {1e22, "1e22"}, {1e23, "1e23"}, {1.5e300, "1.5e300"}, {0.001, "0.001"}, {1e-5,
               "0.00001"},
               {1.25e-5, "0.0000125"}, {9.5e-6, "9.5e-6"}, {1e-7, "1e-7"}, {5e-324, "5e-324"}, {DBL_MAX, "1.7976931348623157e308"},
               {DBL_MIN, "2.2250738585072014e-308"}, {9007199254740993, "9007199254740992"}, {NAN, "null"}, {INFINITY, "null"}, {-INFINITY, "null"}};
    struct qr_buf b = {0};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        cr_assert_str_eq(f64(&b, row[i].v), row[i].text);
    qr_buf_release(&b);
}

Test(json_write, writes_floats_as_floats)
{
    static const struct {
        float v;
        const char *text;
    } row[] = {{0.1f, "0.1"}, {1.0f / 3, "0.33333334"}, {-0.6931472f, "-0.6931472"}, {16777216, "16777216"}, {3.4028235e38f, "3.4028235e38"},
               {1e-45f, "1e-45"}, {1.1754944e-38f, "1.1754944e-38"}, {-0.0f, "-0"}, {100, "100"}, {NAN, "null"}, {-INFINITY, "null"},
               {9.999999e-6f, "9.999999e-6"}, {5e-5f, "0.00005"}, {8388608.5f, "8388608"}, {2097152.1f, "2097152"}};
    struct qr_buf b = {0};
    for (size_t i = 0; i < sizeof row / sizeof *row; i++)
        cr_assert_str_eq(f32(&b, row[i].v), row[i].text);
    qr_buf_release(&b);
}

static int significant_digits(const char *text)
{
    int n = 0, zeros = 0;
    for (; *text && *text != 'e'; text++) {
        if (*text < '0' || *text > '9' || (n == 0 && *text == '0'))
            continue;
        zeros = *text == '0' ? zeros + 1 : 0;
        n++;
    }
    return n - zeros;
}

/* As few digits as printf needs, never more: printf with n digits is the n-digit decimal nearest to v. */
static void is_shortest(const char *text, double v, bool is_f32)
{
    char other[64];
    int n = significant_digits(text);
    if (n <= 1)
        return;
    snprintf(other, sizeof other, "%.*e", n - 2, v);
    bool reads_back = is_f32 ? strtof(other, NULL) == (float)v : strtod(other, NULL) == v;
    cr_assert(!reads_back, "%s is longer than %s", text, other);
}

Test(json_write, reads_back_as_the_same_number_in_the_fewest_digits)
{
    struct qr_buf b = {0};
    const uint64_t n = (uint64_t)test_cases(200000);
    for (uint64_t i = 0; i < n; i++) {
        uint32_t w[4];
        qr_rng_words(w, 21, 0, i);
        float f;
        double d;
        memcpy(&f, w, sizeof f);
        memcpy(&d, w, sizeof d);
        if (i % 3 == 1) { /* log-probabilities and probabilities: what is really written */
            f = -(float)(qr_rng_unit(22, 0, i) * 30);
            d = qr_rng_unit(23, 0, i);
        } else if (i % 3 == 2) { /* short decimals */
            d = (double)(w[0] % 100000) / (double)(1 + w[1] % 3 * 999);
            f = (float)d;
        }
        if (isfinite(f)) {
            cr_assert_eq(strtof(f32(&b, f), NULL), f, "%a as %s", (double)f, b.data);
            is_shortest(b.data, (double)f, true);
        }
        if (isfinite(d)) {
            cr_assert_eq(strtod(f64(&b, d), NULL), d, "%a as %s", d, b.data);
            is_shortest(b.data, d, false);
        }
    }
    qr_buf_release(&b);
}

Test(json_write, reads_back_next_to_every_power_of_two_and_ten)
{
    struct qr_buf b = {0};
    for (int e = -1074; e <= 1023; e++)
        for (int step = -1; step <= 1; step++) {
            double d = ldexp(1, e);
            d = step < 0 ? nextafter(d, 0) : step > 0 ? nextafter(d, INFINITY) : d;
            cr_assert_eq(strtod(f64(&b, d), NULL), d, "%a as %s", d, b.data);
        }
    for (int e = -149; e <= 127; e++)
        for (int step = -1; step <= 1; step++) {
            float f = ldexpf(1, e);
            f = step < 0 ? nextafterf(f, 0) : step > 0 ? nextafterf(f, INFINITY) : f;
            cr_assert_eq(strtof(f32(&b, f), NULL), f, "%a as %s", (double)f, b.data);
        }
    for (int e = -45; e <= 38; e++)
        for (int step = -1; step <= 1; step++) {
            float f = powf(10, (float)e);
            f = step < 0 ? nextafterf(f, 0) : step > 0 ? nextafterf(f, INFINITY) : f;
            cr_assert_eq(strtof(f32(&b, f), NULL), f, "%a as %s", (double)f, b.data);
            double d = pow(10, e);
            d = step < 0 ? nextafter(d, 0) : step > 0 ? nextafter(d, INFINITY) : d;
            cr_assert_eq(strtod(f64(&b, d), NULL), d, "%a as %s", d, b.data);
        }
    qr_buf_release(&b);
}

static void quoted(const char *in, size_t n, const char *want)
{
    struct qr_buf b = {0};
    qr_json_put_str(&b, in, n);
    cr_assert_str_eq(b.data, want);
    qr_buf_release(&b);
}

Test(json_write, escapes_strings)
{
    quoted(NULL, 0, "\"\"");
    quoted("plain", 5, "\"plain\"");
    quoted("\"\\/\b\f\n\r\t", 8, "\"\\\"\\\\/\\b\\f\\n\\r\\t\"");
    quoted("\0\x01\x1f\x7f", 4, "\"\\u0000\\u0001\\u001f\x7f\"");
    quoted("\xE2\x82\xAC\n\xF0\x9F\x98\x80", 8, "\"\xE2\x82\xAC\\n\xF0\x9F\x98\x80\"");
}

Test(json_write, replaces_bytes_that_are_no_utf8)
{
    quoted("a\xff" "b", 3, "\"a\xEF\xBF\xBD" "b\"");
    quoted("\xE2\x82\n\xE2\x82\xAC", 6, "\"\xEF\xBF\xBD\\n\xE2\x82\xAC\"");
    quoted("\xED\xA0\x80", 3, "\"\xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBD\"");
    quoted("\xF0\x9F\x98", 3, "\"\xEF\xBF\xBD\"");
}

/* Whatever the bytes are, what is written passes our own gate, and reading it gives them back when they were UTF-8. */
Test(json_write, always_writes_what_the_gate_accepts)
{
    struct qr_buf b = {0};
    for (uint64_t i = 0; i < 20000; i++) {
        char bytes[40];
        uint32_t w[4];
        qr_rng_words(w, 24, 0, i);
        size_t n = w[0] % sizeof bytes;
        for (size_t j = 0; j < n; j++) {
            qr_rng_words(w, 24, 1 + i, j);
            bytes[j] = (char)(w[1] % 4 ? w[0] % 128 : w[0]);
        }
        qr_buf_clear(&b);
        qr_json_put_str(&b, bytes, n);
        struct qr_json *v;
        struct qr_err err = {0};
        cr_assert_eq(qr_json_parse(&v, b.data, b.len, &qr_json_limits_file, &err), 0, "%s: %s", b.data, err.msg);
        size_t len;
        const char *s = qr_json_str(v, &len);
        if (!strstr(b.data, "\xEF\xBF\xBD"))
            cr_assert(len == n && memcmp(s, bytes, n) == 0);
        qr_json_free(v);
    }
    qr_buf_release(&b);
}

Test(json_write, members_are_parted_by_commas_and_escaped)
{
    struct qr_buf b = {0};
    qr_buf_put_byte(&b, '{');
    qr_json_put_member_i64(&b, "n", INT64_MIN);
    qr_json_put_member_text(&b, "text", "a \"b\"\n");
    qr_json_put_member_text(&b, "none", NULL);
    qr_json_put_name(&b, "inner");
    qr_buf_put_byte(&b, '{');
    qr_json_put_member_i64(&b, "first", 0);
    qr_buf_put_str(&b, "}}");
    cr_assert_str_eq(b.data, "{\"n\":-9223372036854775808,\"text\":\"a \\\"b\\\"\\n\",\"none\":null,\"inner\":{\"first\":0}}");
    qr_buf_release(&b);
}
