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

static int check_path(const char *dir, const char *module, struct qr_err *err)
{
    if (module[0] != '/' && !strstr(module, "..") && strlen(module) <= 200)
        return 0;
    return qr_err_set(err, QR_E_INVALID, "%s/modules.json: a module's path is '%.200s', expected a directory below the model's", dir, module);
}

static int read_pooling(enum qr_pooling *out, const char *dir, const char *module, struct qr_err *err)
{
    char path[4096];
    struct qr_json *config;
    snprintf(path, sizeof path, "%s/%s/config.json", dir, module);
    int rc = check_path(dir, module, err);
    rc = rc ? rc : read_json(&config, path, err);
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

/* A module that nothing here computes ends embeddings, unless a way of pooling is asked for: then it is left out. */
static int unknown_module(struct qr_pooling_config *out, const struct qr_json *module, const char *name, enum qr_pooling wanted, struct qr_err *err)
{
    struct qr_err said;
    qr_err_set(&said, QR_E_UNSUPPORTED, "modules.json: the stage %.60s (%.100s) is not computed here", text_of(module, "path"), name);
    if (wanted == QR_POOLING_NONE)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s; start with --pooling last, mean or cls for embeddings without it", said.msg);
    snprintf(out->note, sizeof out->note, "%.200s and is left out of embeddings", said.msg);
    return 0;
}

/* DIR/modules.json; NULL where it is not there. */
static int open_modules(struct qr_json **out, const char *dir, struct qr_err *err)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/modules.json", dir);
    *out = NULL;
    return access(path, F_OK) == 0 ? read_json(out, path, err) : 0;
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
            rc = unknown_module(out, m, name, wanted, err);
        if (rc)
            return rc;
    }
    return 0;
}

static int read_directory(struct qr_pooling_config *out, const char *dir, enum qr_pooling wanted, struct qr_err *err)
{
    struct qr_json *modules;
    int rc = open_modules(&modules, dir, err);
    if (rc || !modules)
        return rc;
    rc = read_modules(out, dir, wanted, modules, err);
    qr_json_free(modules);
    return rc;
}

/* llama.cpp's numbers. */
static int read_gguf(struct qr_pooling_config *out, const struct qr_gguf *g, enum qr_pooling wanted, struct qr_err *err)
{
    static const enum qr_pooling ways[] = {QR_POOLING_NONE, QR_POOLING_MEAN, QR_POOLING_CLS, QR_POOLING_LAST};
    struct qr_gguf_text arch = {0};
    char key[160];
    int64_t way = 0;
    bool found;
    int rc = qr_gguf_string(g, "general.architecture", &arch, &found, err);
    snprintf(key, sizeof key, "%.*s.pooling_type", (int)(arch.n < 100 ? arch.n : 100), arch.n ? arch.at : "");
    rc = rc ? rc : qr_gguf_int(g, key, 0, INT32_MAX, &way, &found, err);
    if (rc || !found || wanted != QR_POOLING_NONE)
        return rc;
    if (way == 0 || way >= QR_COUNT(ways))
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s is %lld (%s), which makes no vector of a text; expected 1 (mean), 2 (cls) or 3 (last), or start with "
                          "--pooling last, mean or cls", key, (long long)way, way == 0 ? "none" : way == 4 ? "rank" : "unknown");
    out->pooling = ways[way];
    return 0;
}

void qr_pooling_read(struct qr_pooling_config *out, const struct qr_source *source, enum qr_pooling wanted)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(source != NULL);
    const struct qr_gguf *g = qr_source_gguf(source);
    const char *dir = qr_source_model(source);
    const size_t n = strlen(dir);
    struct qr_err err = {0};
    *out = (struct qr_pooling_config){.pooling = wanted != QR_POOLING_NONE ? wanted : QR_POOLING_LAST, .normalize = true};
    if ((g ? read_gguf(out, g, wanted, &err) : read_directory(out, dir, wanted, &err)) == 0)
        return;
    out->pooling = wanted;
    snprintf(out->note, sizeof out->note, "%s", strncmp(err.msg, dir, n) == 0 && err.msg[n] == '/' ? err.msg + n + 1 : err.msg); /* clients see no paths */
}

int qr_pooling_stages(const char *dir, int (*each)(void *user, const char *path, struct qr_err *err), void *user, struct qr_err *err)
{
    struct qr_json *modules;
    QR_ASSERT(dir != NULL && each != NULL);
    QR_ASSERT(err != NULL);
    int rc = open_modules(&modules, dir, err);
    if (rc || !modules)
        return rc;
    for (const struct qr_json *m = qr_json_type(modules) == QR_JSON_T_ARRAY ? qr_json_first(modules) : NULL; m && rc == 0; m = qr_json_after(m)) {
        const char *stage = text_of(m, "path");
        rc = check_path(dir, stage, err);
        rc = rc || stage[0] == 0 || strcmp(stage, ".") == 0 ? rc : each(user, stage, err); /* the first: the model's own */
    }
    qr_json_free(modules);
    return rc;
}
