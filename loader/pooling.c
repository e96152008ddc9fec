#include "loader/pooling.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/map_file.h"

#define FILE_BYTES_MAX (1 << 20)

static int read_json(struct qr_json **out, const char *path, struct qr_err *err)
{
    struct qr_map_file file;
    int rc = qr_map_file_open(&file, path, FILE_BYTES_MAX, err);
    if (rc)
        return rc;
    rc = qr_json_parse(out, file.data ? (const char *)file.data : "", file.n_bytes, &qr_json_limits_file, err);
    qr_map_file_close(&file);
    return rc ? qr_err_prefix(err, "%s: ", path) : 0;
}

/* The one way of pooling that a Pooling module's configuration switches on. */
static int read_mode(enum qr_pooling *out, const struct qr_json *config, const char *path, struct qr_err *err)
{
    static const struct {
        const char *name;
        enum qr_pooling pooling;
    } known[] = {{"pooling_mode_cls_token", QR_POOLING_CLS}, {"pooling_mode_mean_tokens", QR_POOLING_MEAN}, {"pooling_mode_lasttoken", QR_POOLING_LAST}};
    *out = QR_POOLING_NONE;
    for (const struct qr_json *v = qr_json_first(config); v; v = qr_json_after(v)) {
        const char *name = qr_json_key(v);
        if (!name || strncmp(name, "pooling_mode_", 13) != 0 || qr_json_type(v) != QR_JSON_T_BOOL || !qr_json_bool(v))
            continue;
        enum qr_pooling found = QR_POOLING_NONE;
        for (int i = 0; i < QR_COUNT(known); i++)
            found = strcmp(name, known[i].name) == 0 ? known[i].pooling : found;
        if (found == QR_POOLING_NONE || *out != QR_POOLING_NONE)
            return qr_err_set(err, QR_E_UNSUPPORTED, "%s: %s is not computed here%s; expected one of pooling_mode_cls_token, _mean_tokens and _lasttoken "
                              "(or start with --pooling last, mean or cls)", path, name, found == QR_POOLING_NONE ? "" : " beside another");
        *out = found;
    }
    if (*out == QR_POOLING_NONE)
        return qr_err_set(err, QR_E_INVALID, "%s: no pooling_mode_... is true; expected one of pooling_mode_cls_token, _mean_tokens and _lasttoken (or start "
                          "with --pooling last, mean or cls)", path);
    return 0;
}

static int read_pooling(enum qr_pooling *out, const char *dir, const char *module, struct qr_err *err)
{
    char path[4096];
    struct qr_json *config;
    if (module[0] == '/' || strstr(module, "..") || strlen(module) > 200)
        return qr_err_set(err, QR_E_INVALID, "%s/modules.json: a module's path is '%.200s', expected a directory below the model's", dir, module);
    snprintf(path, sizeof path, "%s/%s/config.json", dir, module);
    int rc = read_json(&config, path, err);
    if (rc)
        return rc;
    rc = read_mode(out, config, path, err);
    qr_json_free(config);
    return rc;
}

static const char *text_of(const struct qr_json *module, const char *name)
{
    const struct qr_json *v = qr_json_find(module, name);
    return v && qr_json_type(v) == QR_JSON_T_STRING ? qr_json_str(v, NULL) : "";
}

static int read_modules(struct qr_pooling_config *out, const char *dir, enum qr_pooling wanted, const struct qr_json *modules, struct qr_err *err)
{
    if (qr_json_type(modules) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_INVALID, "%s/modules.json: found %s, expected an array", dir, qr_json_type_name(qr_json_type(modules)));
    out->normalize = false;
    for (const struct qr_json *m = qr_json_first(modules); m; m = qr_json_after(m)) {
        const char *type = text_of(m, "type"), *dot = strrchr(type, '.'), *name = dot ? dot + 1 : type;
        int rc = 0;
        if (strcmp(name, "Normalize") == 0)
            out->normalize = true;
        else if (strcmp(name, "Pooling") == 0 && wanted == QR_POOLING_NONE)
            rc = read_pooling(&out->pooling, dir, text_of(m, "path"), err);
        else if (strcmp(name, "Transformer") != 0 && strcmp(name, "Pooling") != 0)
            rc = qr_err_set(err, QR_E_UNSUPPORTED, "%s/modules.json: modules of type '%.100s' are not computed here; expected Transformer, Pooling and "
                            "Normalize", dir, type);
        if (rc)
            return rc;
    }
    return 0;
}

int qr_pooling_read(struct qr_pooling_config *out, const char *dir, enum qr_pooling wanted, struct qr_err *err)
{
    QR_ASSERT(out != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[4096];
    struct qr_json *modules;
    struct qr_pooling_config c = {.pooling = wanted != QR_POOLING_NONE ? wanted : QR_POOLING_LAST, .normalize = true};
    snprintf(path, sizeof path, "%s/modules.json", dir);
    if (access(path, F_OK) == 0) {
        int rc = read_json(&modules, path, err);
        if (rc)
            return rc;
        rc = read_modules(&c, dir, wanted, modules, err);
        qr_json_free(modules);
        if (rc)
            return rc;
    }
    *out = c;
    return 0;
}
