/* params.c - see params.h. */
#include "client/params.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/option.h"
#include "client/wrap.h"

struct row {
    const char *name;
    bool whole;
    double min, max;
    const char *help;
};

static const struct row rows[QR_PARAM_N] = {
    [QR_PARAM_TEMPERATURE] = {"temperature", false, 0, 2, "0 always takes the likeliest token"},
    [QR_PARAM_TOP_P] = {"top_p", false, 0, 1, "sample among the likeliest tokens that make up this probability"},
    [QR_PARAM_TOP_K] = {"top_k", true, -1, 1e6, "sample among this many tokens; -1 or 0: all"},
    [QR_PARAM_MIN_P] = {"min_p", false, 0, 1, "drop tokens less likely than this part of the likeliest"},
    [QR_PARAM_MAX_TOKENS] = {"max_tokens", true, 1, 2147483647, "length limit of an answer"},
    [QR_PARAM_SEED] = {"seed", true, -9007199254740991.0, 9007199254740991.0, "same seed, same answer"},
    [QR_PARAM_FREQUENCY_PENALTY] = {"frequency_penalty", false, -2, 2, "against repetition, by count"},
    [QR_PARAM_PRESENCE_PENALTY] = {"presence_penalty", false, -2, 2, "against repetition, by presence"},
};

const char *qr_param_name(int32_t i)
{
    QR_ASSERT(i >= 0);
    return i < QR_PARAM_N ? rows[i].name : i == QR_PARAM_N ? "stop" : NULL;
}

void qr_chat_params_init(struct qr_chat_params *p)
{
    QR_ASSERT(p != NULL);
    memset(p, 0, sizeof *p);
}

void qr_chat_params_release(struct qr_chat_params *p)
{
    for (int i = 0; i < p->n_stop; i++)
        qr_free(p->stop[i]);
    p->n_stop = 0;
}

static int set_stop(struct qr_chat_params *p, const char *text, struct qr_err *err)
{
    if (strcmp(text, "default") == 0)
        qr_chat_params_release(p);
    else if (text[0] == '\0')
        return qr_err_set(err, QR_E_USAGE, "a stop text cannot be empty");
    else if (p->n_stop == QR_STOPS_MAX)
        return qr_err_set(err, QR_E_USAGE, "at most %d stop texts can be set", QR_STOPS_MAX);
    else
        p->stop[p->n_stop++] = qr_strdup(text);
    return 0;
}

static bool same_name(const char *a, const char *b)
{
    for (; *a != '\0' && *b != '\0'; a++, b++)
        if (*a != *b && !(*a == '-' && *b == '_'))
            return false;
    return *a == *b;
}

static int unknown(const char *name, struct qr_err *err)
{
    const char *known[QR_PARAM_N + 1];
    for (int i = 0; i <= QR_PARAM_N; i++)
        known[i] = qr_param_name(i);
    const char *near = qr_nearest(name, known, QR_PARAM_N + 1);
    if (near != NULL)
        return qr_err_set(err, QR_E_USAGE, "unknown parameter '%.60s'. Did you mean '%s'?", name, near);
    return qr_err_set(err, QR_E_USAGE, "unknown parameter '%.60s'. /set alone lists them", name);
}

static int fail_range(const struct row *row, const char *shown, const char *text, struct qr_err *err)
{
    char low[32], high[32];
    snprintf(low, sizeof low, "%.16g", row->min);
    snprintf(high, sizeof high, "%.16g", row->max);
    return qr_err_range(err, shown, low, high, text);
}

int qr_chat_params_set(struct qr_chat_params *p, const char *name, const char *text, const char *shown, struct qr_err *err)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(name != NULL && text != NULL && shown != NULL);
    if (strcmp(name, "stop") == 0)
        return set_stop(p, text, err);
    int i = 0;
    while (i < QR_PARAM_N && !same_name(name, rows[i].name))
        i++;
    if (i == QR_PARAM_N)
        return unknown(name, err);
    if (strcmp(text, "default") == 0) {
        p->set[i] = false;
        return 0;
    }
    const struct row *row = &rows[i];
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    int64_t whole = 0;
    bool ok = end != text && *end == '\0' && isfinite(v);
    if (row->whole) {
        whole = strtoll(text, &end, 10);
        ok = ok && *end == '\0' && errno == 0;
    }
    if (!ok)
        return qr_err_set(err, QR_E_USAGE, "%s: expected a %s, found '%.60s'", shown, row->whole ? "whole number" : "number", text);
    if (v < row->min || v > row->max)
        return fail_range(row, shown, text, err);
    p->set[i] = true;
    p->value[i] = v;
    p->whole[i] = whole;
    return 0;
}

static void put_value(struct qr_buf *out, const struct qr_chat_params *p, int i)
{
    if (rows[i].whole)
        qr_buf_put_i64(out, p->whole[i]);
    else
        qr_json_put_f64(out, p->value[i]);
}

void qr_chat_params_put(struct qr_buf *out, const struct qr_chat_params *p)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(p != NULL);
    for (int i = 0; i < QR_PARAM_N; i++)
        if (p->set[i]) {
            qr_buf_printf(out, ",\"%s\":", rows[i].name);
            put_value(out, p, i);
        }
    for (int i = 0; i < p->n_stop; i++) {
        qr_buf_put_str(out, i == 0 ? ",\"stop\":[" : ",");
        qr_json_put_str(out, p->stop[i], strlen(p->stop[i]));
    }
    if (p->n_stop > 0)
        qr_buf_put_str(out, "]");
}

static void put_row(struct qr_buf *out, const char *name, const char *value, const char *help, int32_t columns)
{
    struct qr_buf head = {0};
    qr_buf_printf(&head, "  %-18s %s", name, value);
    qr_wrap_row(out, head.data, help, 32, columns);
    qr_buf_release(&head);
}

void qr_chat_params_show(struct qr_buf *out, const struct qr_chat_params *p, int32_t columns)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(p != NULL);
    struct qr_buf value = {0};
    for (int i = 0; i < QR_PARAM_N; i++) {
        qr_buf_clear(&value);
        if (p->set[i])
            put_value(&value, p, i);
        put_row(out, rows[i].name, p->set[i] ? value.data : "default", rows[i].help, columns);
    }
    for (int i = 0; i < p->n_stop || i == 0; i++) {
        qr_buf_clear(&value);
        if (p->n_stop > 0)
            qr_json_put_str(&value, p->stop[i], strlen(p->stop[i]));
        put_row(out, "stop", p->n_stop > 0 ? value.data : "none", p->n_stop > 0 ? "" : "texts that end an answer", columns);
    }
    qr_buf_release(&value);
}
