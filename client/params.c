/* params.c - sampling parameters as flags, /set, /show and JSON (params.h). */
#include "client/params.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "client/wrap.h"

const char *qr_param_name(int32_t i)
{
    QR_ASSERT(i >= 0);
    for (int32_t p = 0; p < QR_P_N; p++)
        if (qr_sampling_row[p].chat && i-- == 0)
            return qr_sampling_row[p].key;
    return i == 0 ? "stop" : NULL;
}

static bool is_whole(const struct qr_sampling_row *row)
{
    return row->kind != QR_SAMPLING_FLOAT;
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
    const char *known[QR_P_N + 1];
    int32_t n = 0;
    for (const char *next; (next = qr_param_name(n)) != NULL;)
        known[n++] = next;
    const char *near = qr_nearest(name, known, n);
    if (near != NULL)
        return qr_err_set(err, QR_E_USAGE, "unknown parameter '%.60s'. Did you mean '%s'?", name, near);
    return qr_err_set(err, QR_E_USAGE, "unknown parameter '%.60s'. /set alone lists them", name);
}

/* A chat's answer has a token at least. */
static double least(const struct qr_sampling_row *row)
{
    return row->kind == QR_SAMPLING_LENGTH ? 1 : row->min;
}

static int fail_range(const struct qr_sampling_row *row, const char *shown, const char *text, struct qr_err *err)
{
    char low[32], high[32];
    snprintf(low, sizeof low, "%.16g", least(row));
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
    while (i < QR_P_N && !(qr_sampling_row[i].chat && same_name(name, qr_sampling_row[i].key)))
        i++;
    if (i == QR_P_N)
        return unknown(name, err);
    if (strcmp(text, "default") == 0) {
        p->set[i] = false;
        return 0;
    }
    const struct qr_sampling_row *row = &qr_sampling_row[i];
    char *end;
    errno = 0;
    double v = strtod(text, &end);
    int64_t whole = 0;
    bool ok = end != text && *end == '\0' && isfinite(v);
    if (is_whole(row)) {
        whole = strtoll(text, &end, 10);
        ok = ok && *end == '\0' && errno == 0;
    }
    if (!ok)
        return qr_err_set(err, QR_E_USAGE, "%s: expected a %s, found '%.60s'", shown, is_whole(row) ? "whole number" : "number", text);
    if (v < least(row) || v > row->max)
        return fail_range(row, shown, text, err);
    p->set[i] = true;
    p->value[i] = v;
    p->whole[i] = whole;
    return 0;
}

static void put_value(struct qr_buf *out, const struct qr_chat_params *p, int i)
{
    if (is_whole(&qr_sampling_row[i]))
        qr_buf_put_i64(out, p->whole[i]);
    else
        qr_json_put_f64(out, p->value[i]);
}

void qr_chat_params_put(struct qr_buf *out, const struct qr_chat_params *p)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(p != NULL);
    for (int i = 0; i < QR_P_N; i++)
        if (p->set[i]) {
            qr_buf_printf(out, ",\"%s\":", qr_sampling_row[i].key);
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
    for (int i = 0; i < QR_P_N; i++) {
        if (!qr_sampling_row[i].chat)
            continue;
        qr_buf_clear(&value);
        if (p->set[i])
            put_value(&value, p, i);
        put_row(out, qr_sampling_row[i].key, p->set[i] ? value.data : "default", qr_sampling_row[i].help, columns);
    }
    for (int i = 0; i < p->n_stop || i == 0; i++) {
        qr_buf_clear(&value);
        if (p->n_stop > 0)
            qr_json_put_str(&value, p->stop[i], strlen(p->stop[i]));
        put_row(out, "stop", p->n_stop > 0 ? value.data : "none", p->n_stop > 0 ? "" : "texts that end an answer", columns);
    }
    qr_buf_release(&value);
}
