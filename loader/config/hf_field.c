#include "loader/config/hf_field.h"

#include <stdio.h>

#include "base/assert.h"

static const struct qr_json *find(const struct qr_hf_obj *o, const char *key)
{
    QR_ASSERT(o != NULL && key != NULL);
    QR_ASSERT(o->file != NULL && o->err != NULL);
    const struct qr_json *v = qr_json_find(o->v, key);
    return qr_json_is_null(v) ? NULL : v;
}

/* The value as it was written, shortened. */
int qr_hf_wrong_type(const struct qr_hf_obj *o, const char *key, const struct qr_json *v, const char *expected)
{
    QR_ASSERT(o != NULL && key != NULL);
    QR_ASSERT(v != NULL && expected != NULL);
    struct qr_buf text = {0};
    qr_json_print(&text, v);
    int rc = qr_err_set(o->err, QR_E_DAMAGED, "%s: %s%s is %.60s%s, expected %s", o->file, o->prefix, key, text.data,
                        text.len > 60 ? "..." : "", expected);
    qr_buf_release(&text);
    return rc;
}

int qr_hf_bad_value(const struct qr_hf_obj *o, const char *key, const struct qr_json *v, const char *expected, int64_t bound)
{
    char text[100];
    snprintf(text, sizeof text, "%.60s %lld", expected, (long long)bound);
    return qr_hf_wrong_type(o, key, v, text);
}

int qr_hf_i32(const struct qr_hf_obj *o, const char *key, int32_t min, int32_t max, int32_t *out)
{
    const struct qr_json *v = find(o, key);
    int64_t i;
    if (!v)
        return 0;
    if (qr_json_i64(v, &i) && i >= min && i <= max) {
        *out = (int32_t)i;
        return 0;
    }
    char text[100];
    snprintf(text, sizeof text, "a whole number from %d to %d", min, max);
    return qr_hf_wrong_type(o, key, v, text);
}

int qr_hf_f64(const struct qr_hf_obj *o, const char *key, double min, double max, double *out)
{
    const struct qr_json *v = find(o, key);
    if (!v)
        return 0;
    if (qr_json_type(v) == QR_JSON_T_NUMBER && qr_json_f64(v) >= min && qr_json_f64(v) <= max) {
        *out = qr_json_f64(v);
        return 0;
    }
    char text[100];
    snprintf(text, sizeof text, "a number from %g to %g", min, max);
    return qr_hf_wrong_type(o, key, v, text);
}

int qr_hf_sampling(const struct qr_hf_obj *o, struct qr_sampling_default gen[QR_P_N])
{
    int rc = 0;
    for (enum qr_sampling_param i = 0; i < QR_P_N && rc == 0; i++) {
        const struct qr_sampling_row *row = &qr_sampling_row[i];
        const bool whole = row->kind == QR_SAMPLING_INT;
        int32_t i32 = 0;
        double f64 = 0;
        if (!row->config || !find(o, row->key))
            continue;
        rc = whole ? qr_hf_i32(o, row->key, (int32_t)row->min, (int32_t)row->max, &i32) : qr_hf_f64(o, row->key, row->min, row->max, &f64);
        gen[i] = (struct qr_sampling_default){.given = true, .value = whole ? i32 : f64};
    }
    return rc;
}

int qr_hf_f32(const struct qr_hf_obj *o, const char *key, double min, double max, float *out)
{
    double v = (double)*out;
    int rc = qr_hf_f64(o, key, min, max, &v);
    *out = (float)v;
    return rc;
}

int qr_hf_bool(const struct qr_hf_obj *o, const char *key, bool *out)
{
    const struct qr_json *v = find(o, key);
    if (v && qr_json_type(v) != QR_JSON_T_BOOL)
        return qr_hf_wrong_type(o, key, v, "true or false");
    if (v)
        *out = qr_json_bool(v);
    return 0;
}

int qr_hf_str(const struct qr_hf_obj *o, const char *key, const char **out)
{
    const struct qr_json *v = find(o, key);
    if (v && qr_json_type(v) != QR_JSON_T_STRING)
        return qr_hf_wrong_type(o, key, v, "a string");
    if (v)
        *out = qr_json_str(v, NULL);
    return 0;
}

static int fail_missing(const struct qr_hf_obj *o, const char *key)
{
    return qr_err_set(o->err, QR_E_DAMAGED, "%s: %s%s is missing", o->file, o->prefix, key);
}

int qr_hf_need_i32(const struct qr_hf_obj *o, const char *key, int32_t min, int32_t max, int32_t *out)
{
    return find(o, key) ? qr_hf_i32(o, key, min, max, out) : fail_missing(o, key);
}

int qr_hf_need_f64(const struct qr_hf_obj *o, const char *key, double min, double max, double *out)
{
    return find(o, key) ? qr_hf_f64(o, key, min, max, out) : fail_missing(o, key);
}

int qr_hf_refuse_if(const struct qr_hf_obj *o, const char *key, bool refused)
{
    bool on = !refused;
    int rc = qr_hf_bool(o, key, &on);
    if (!rc && on == refused)
        rc = qr_err_set(o->err, QR_E_UNSUPPORTED, "%s: %s is %s, expected %s", o->file, key, on ? "true" : "false", on
                        ? "false" : "true");
    return rc;
}

void qr_hf_write_f32(struct qr_buf *out, const char *key, float value)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(key != NULL);
    if (value == 0)
        return;
    qr_buf_printf(out, "  \"%s\": ", key);
    qr_json_put_f32(out, value);
    qr_buf_put_str(out, ",\n");
}

void qr_hf_write_f64(struct qr_buf *out, const char *key, double value)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(key != NULL);
    if (value == 0)
        return;
    qr_buf_printf(out, "  \"%s\": ", key);
    qr_json_put_f64(out, value);
    qr_buf_put_str(out, ",\n");
}

void qr_hf_write_bool(struct qr_buf *out, const char *key, bool value)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(key != NULL);
    qr_buf_printf(out, "  \"%s\": %s,\n", key, value ? "true" : "false");
}
