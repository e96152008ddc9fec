/* check.c - --fail-if: conditions on the figures of a report (see parts.h). They are read from the JSON that is written, so
 * that the keys one can name are exactly those that are reported. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "bench/load/parts.h"

#define KEYS_MAX 160
static const char by_class[] = "errors_by_class.";

static int parse_one(struct qr_load_condition *c, const char *text, struct qr_err *err)
{
    size_t n = strcspn(text, "<>"), from = n;
    char *end = NULL;
    while (from < strlen(text) && text[from] != '=' && text[from] != '<' && text[from] != '>')
        from++;
    if (text[n] != '\0') {
        c->less = text[n] == '<';
        c->or_equal = text[n + 1] == '=';
        from = n + (c->or_equal ? 2 : 1);
        c->limit = strtod(text + from, &end);
    }
    while (n > 0 && text[n - 1] == ' ')
        n--;
    if (end == NULL || end == text + from || *end != '\0' || !isfinite(c->limit) || n == 0 || n >= sizeof c->key)
        return qr_err_set(err, QR_E_USAGE, "--fail-if: '%.60s' is not of the form KEY>NUMBER (or <, >=, <=), as p99_ttft_ms>250", text);
    snprintf(c->key, sizeof c->key, "%.*s", (int)n, text);
    c->text = text;
    return 0;
}

int qr_load_conditions_parse(struct qr_load_conditions *c, const struct qr_str_list *list, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(list != NULL);
    c->n = 0;
    if (list->n > QR_LOAD_CONDITIONS_MAX)
        return qr_err_set(err, QR_E_USAGE, "--fail-if: at most %d conditions", QR_LOAD_CONDITIONS_MAX);
    for (int32_t i = 0; i < list->n; i++) {
        int rc = parse_one(&c->c[c->n++], list->item[i], err);
        if (rc != 0)
            return rc;
    }
    return 0;
}

static const struct qr_json *find(const struct qr_json *report, const char *key)
{
    bool class = strncmp(key, by_class, sizeof by_class - 1) == 0;
    return class ? qr_json_find(qr_json_find(report, "errors_by_class"), key + sizeof by_class - 1) : qr_json_find(report, key);
}

static int check_one(const struct qr_load_condition *c, const struct qr_json *report, struct qr_err *err)
{
    const struct qr_json *v = find(report, c->key);
    const char *names[KEYS_MAX];
    int32_t n = 0;
    if (strncmp(c->key, by_class, sizeof by_class - 1) == 0)
        return 0; /* a class of errors that did not occur is no member: 0 */
    if (v != NULL && qr_json_is_null(v))
        return qr_err_set(err, QR_E_USAGE, "--fail-if: '%s' has no value without an --slo", c->key);
    if (v != NULL && qr_json_type(v) == QR_JSON_T_NUMBER)
        return 0;
    for (const struct qr_json *m = qr_json_first(report); m != NULL && n < KEYS_MAX; m = qr_json_after(m))
        if (qr_json_type(m) == QR_JSON_T_NUMBER)
            names[n++] = qr_json_key(m);
    const char *near = qr_nearest(c->key, names, n);
    return qr_err_set(err, QR_E_USAGE, "--fail-if: the report has no figure '%s'%s%s%s", c->key, near != NULL ? "; did you mean '" : "",
                      near != NULL ? near : "", near != NULL ? "'?" : "; the keys are those of the --json file");
}

/* However long it became: --detailed has five numbers of every request. */
static struct qr_json *parse_report(const struct qr_buf *report)
{
    static const struct qr_json_limits none = {.bytes_max = SIZE_MAX, .values_max = INT64_MAX, .depth_max = 32, .nul_ok = true};
    struct qr_json *doc;
    struct qr_err err;
    int rc = qr_json_parse(&doc, report->data, report->len, &none, &err);
    QR_ASSERT(rc == 0); /* our own text */
    return doc;
}

int qr_load_conditions_check(const struct qr_load_conditions *c, const struct qr_buf *report, struct qr_err *err)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(report != NULL && report->len > 0);
    struct qr_json *doc = c->n > 0 ? parse_report(report) : NULL;
    int rc = 0;
    for (int32_t i = 0; i < c->n && rc == 0; i++)
        rc = check_one(&c->c[i], doc, err);
    qr_json_free(doc);
    return rc;
}

static bool holds(const struct qr_load_condition *c, double v)
{
    return (c->or_equal && v == c->limit) || (c->less ? v < c->limit : v > c->limit);
}

int32_t qr_load_conditions_held(const struct qr_load_conditions *c, const struct qr_buf *report, struct qr_buf *out)
{
    QR_ASSERT(c != NULL && out != NULL);
    QR_ASSERT(report != NULL && report->len > 0);
    struct qr_json *doc = c->n > 0 ? parse_report(report) : NULL;
    int32_t n = 0;
    for (int32_t i = 0; i < c->n; i++) {
        const struct qr_json *v = find(doc, c->c[i].key);
        bool class = strncmp(c->c[i].key, by_class, sizeof by_class - 1) == 0, number = v != NULL && qr_json_type(v) == QR_JSON_T_NUMBER;
        double x = number ? qr_json_f64(v) : 0;
        if ((number || class) && !holds(&c->c[i], x))
            continue;
        n++;
        if (number || class)
            qr_buf_printf(out, "failed: %s (%s is %g)\n", c->c[i].text, c->c[i].key, x);
        else
            qr_buf_printf(out, "failed: %s (%s has no value in this run)\n", c->c[i].text, c->c[i].key);
    }
    qr_json_free(doc);
    return n;
}
