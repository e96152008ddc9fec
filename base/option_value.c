/* Text to values and back, one entry per option type. A range is checked here, and the message names found and
 * expected. Printing a value gives text that reads back as the same. Pure; any thread. */
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/option_set.h"

struct unit {
    const char *name;
    int64_t factor;
};

static const struct unit count_units[] = {{"gi", 1 << 30}, {"g", 1000000000}, {"mi", 1 << 20}, {"m", 1000000},
                                          {"ki", 1 << 10}, {"k", 1000},       {"", 1}};
static const struct unit byte_units[] = {{"TiB", (int64_t)1 << 40}, {"TB", 1000000000000}, {"GiB", 1 << 30}, {"GB", 1000000000},
                                         {"MiB", 1 << 20},          {"MB", 1000000},       {"KiB", 1 << 10}, {"kB", 1000},
                                         {"", 1},                   {"ti", (int64_t)1 << 40}, {"t", 1000000000000},
                                         {"gi", 1 << 30},           {"g", 1000000000},     {"mi", 1 << 20},  {"m", 1000000},
                                         {"ki", 1 << 10},           {"k", 1000},           {"b", 1}};
static const struct unit time_units[] = {{"h", 3600000000}, {"m", 60000000}, {"s", 1000000}, {"ms", 1000}, {"us", 1}, {"", 1000000}};

static const struct unit *find_unit(const struct unit *unit, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (strcasecmp(unit[i].name, name) == 0)
            return &unit[i];
    return NULL;
}

static const struct unit *units_of(enum qr_option_type type, int *n)
{
    switch (type) {
    case QR_OPT_BYTES: *n = QR_COUNT(byte_units); return byte_units;
    case QR_OPT_TIME: *n = QR_COUNT(time_units); return time_units;
    default: *n = QR_COUNT(count_units); return count_units;
    }
}

static const char *what_is_expected(enum qr_option_type type)
{
    switch (type) {
    case QR_OPT_BYTES: return "a size in bytes such as 512, 64k (64000), 64KiB (65536) or 8GiB";
    case QR_OPT_TIME: return "a time such as 250ms, 30s, 2m or 1h";
    case QR_OPT_FLOAT: return "a number";
    case QR_OPT_FLAG: return "true or false";
    default: return "a whole number such as 4096, 4k (4000) or 4ki (4096)";
    }
}

static int refuse(const struct qr_option *o, const char *text, const char *where, struct qr_err *err)
{
    return qr_err_set(err, QR_E_USAGE, "%s: expected %s, found '%.80s'", where, what_is_expected(o->type), text);
}

/* [sign] digits [. digits] unit, computed exactly: "1.5k" is 1500, "1.5" is no whole number. False when malformed. */
static bool parse_scaled(const struct qr_option *o, const char *text, int64_t *out)
{
    const char *p = text;
    bool negative = *p == '-', any = false, point = false;
    p += *p == '-' || *p == '+';
    __int128 v = 0, divisor = 1;
    for (; (*p >= '0' && *p <= '9') || (*p == '.' && !point); p++) {
        if (*p == '.') {
            point = true;
            continue;
        }
        v = 10 * v + (*p - '0');
        divisor *= point ? 10 : 1;
        any = true;
        if (v > (__int128)INT64_MAX + 1 || divisor > INT64_MAX)
            return false;
    }
    if (!any || p[-1] == '.')
        return false;
    while (*p == ' ')
        p++;
    int n;
    const struct unit *table = units_of(o->type, &n), *unit = find_unit(table, n, p);
    if (!unit)
        return false;
    v *= unit->factor;
    if (v % divisor != 0)
        return false;
    v = negative ? -(v / divisor) : v / divisor;
    if (v > INT64_MAX || v < INT64_MIN)
        return false;
    *out = (int64_t)v;
    return true;
}

static int check_range(const struct qr_option *o, long double v, const char *text, const char *where, struct qr_err *err)
{
    if ((o->min == 0 && o->max == 0) || (v >= o->min && v <= o->max))
        return 0;
    struct qr_buf low = {0}, high = {0};
    qr_option_format_bound(&low, o, o->min);
    qr_option_format_bound(&high, o, o->max);
    int rc = qr_err_range(err, where, low.data, high.data, text);
    qr_buf_release(&low);
    qr_buf_release(&high);
    return rc;
}

static int parse_int(const struct qr_option *o, const char *text, const char *where, void *field, struct qr_err *err)
{
    int64_t v;
    if (!parse_scaled(o, text, &v))
        return refuse(o, text, where, err);
    int rc = check_range(o, v, text, where, err);
    if (!rc)
        memcpy(field, &v, sizeof v);
    return rc;
}

static int parse_float(const struct qr_option *o, const char *text, const char *where, void *field, struct qr_err *err)
{
    char *end;
    double v = strtod(text, &end);
    if (text[0] == 0 || text[strspn(text, "0123456789+-.eE")] != 0 || *end != 0 || !isfinite(v))
        return refuse(o, text, where, err);
    int rc = check_range(o, v, text, where, err);
    if (!rc)
        memcpy(field, &v, sizeof v);
    return rc;
}

static int parse_flag(const struct qr_option *o, const char *text, const char *where, void *field, struct qr_err *err)
{
    static const struct {
        const char *text;
        bool value;
    } word[] = {{"true", true}, {"false", false}, {"yes", true}, {"no", false},
                {"on", true},   {"off", false},   {"1", true},   {"0", false}};
    for (int i = 0; i < QR_COUNT(word); i++)
        if (strcasecmp(text, word[i].text) == 0) {
            memcpy(field, &word[i].value, sizeof(bool));
            return 0;
        }
    return refuse(o, text, where, err);
}

/* The i-th of "a|b|c", not terminated. NULL behind the last. */
static const char *choice(const char *choices, int32_t i, size_t *len)
{
    const char *p = choices;
    for (; i > 0 && p; i--) {
        p = strchr(p, '|');
        p = p ? p + 1 : NULL;
    }
    if (p)
        *len = strcspn(p, "|");
    return p;
}

static int parse_enum(const struct qr_option *o, const char *text, const char *where, void *field, struct qr_err *err)
{
    size_t len;
    const char *c;
    for (int32_t i = 0; (c = choice(o->choices, i, &len)) != NULL; i++)
        if (strlen(text) == len && strncmp(text, c, len) == 0) {
            memcpy(field, &i, sizeof i);
            return 0;
        }
    return qr_err_set(err, QR_E_USAGE, "%s: expected one of %s, found '%.80s'", where, o->choices, text);
}

int qr_option_parse(const struct qr_option *o, const char *text, const char *where, void *field, struct qr_err *err)
{
    QR_ASSERT(o != NULL && text != NULL);
    QR_ASSERT(field != NULL);
    switch (o->type) {
    case QR_OPT_FLAG: return parse_flag(o, text, where, field, err);
    case QR_OPT_INT:
    case QR_OPT_BYTES:
    case QR_OPT_TIME: return parse_int(o, text, where, field, err);
    case QR_OPT_FLOAT: return parse_float(o, text, where, field, err);
    case QR_OPT_ENUM: return parse_enum(o, text, where, field, err);
    default: break;
    }
    QR_ASSERT(o->type == QR_OPT_STR);
    memcpy(field, &text, sizeof text);
    return 0;
}

static void format_int(struct qr_buf *out, const struct qr_option *o, int64_t v)
{
    if (o->type == QR_OPT_INT || v == 0) {
        qr_buf_put_i64(out, v);
        return;
    }
    int n;
    const struct unit *table = units_of(o->type, &n), *best = NULL; /* the first of the largest that divide v */
    for (const struct unit *u = table; u < table + n; u++)
        if (v % u->factor == 0 && (!best || u->factor > best->factor))
            best = u;
    QR_ASSERT(best != NULL);
    qr_buf_put_i64(out, v / best->factor);
    qr_buf_put_str(out, best->name);
}

void qr_option_format_bound(struct qr_buf *out, const struct qr_option *o, double bound)
{
    QR_ASSERT(out != NULL && o != NULL);
    if (o->type == QR_OPT_FLOAT || fabs(bound) >= 0x1p63)
        qr_json_put_f64(out, bound);
    else
        format_int(out, o, (int64_t)bound);
}

void qr_option_format(struct qr_buf *out, const struct qr_option *o, const void *field)
{
    QR_ASSERT(out != NULL && o != NULL);
    QR_ASSERT(o->type != QR_OPT_STR && o->type != QR_OPT_LIST);
    bool flag;
    int64_t i64;
    int32_t index;
    double f64;
    size_t len = 0;
    switch (o->type) {
    case QR_OPT_FLAG:
        memcpy(&flag, field, sizeof flag);
        qr_buf_put_str(out, flag ? "true" : "false");
        return;
    case QR_OPT_FLOAT:
        memcpy(&f64, field, sizeof f64);
        qr_json_put_f64(out, f64);
        return;
    case QR_OPT_ENUM:
        memcpy(&index, field, sizeof index);
        const char *c = choice(o->choices, index, &len);
        QR_ASSERT(c != NULL);
        qr_buf_put(out, c, len);
        return;
    default:
        memcpy(&i64, field, sizeof i64);
        format_int(out, o, i64);
    }
}
