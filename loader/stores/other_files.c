#include "loader/stores/other_files.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/json.h"
#include "base/log.h"
#include "base/files/map_file.h"

#define CONFIG_BYTES_MAX ((size_t)16 << 20)

/* The first names in order stay. */
static void keep(struct qr_other_files *o, enum qr_other kind, const char *name)
{
    int32_t n = o->n[kind] < QR_OTHER_SHOWN ? o->n[kind] : QR_OTHER_SHOWN, at = n;
    o->n[kind] += o->n[kind] < INT32_MAX;
    while (at > 0 && strcmp(name, o->name[kind][at - 1]) < 0)
        at--;
    if (at == QR_OTHER_SHOWN)
        return;
    const size_t size = sizeof o->name[kind][0];
    const int32_t n_moved = (n < QR_OTHER_SHOWN ? n : QR_OTHER_SHOWN - 1) - at;
    memmove(o->name[kind][at + 1], o->name[kind][at], (size_t)n_moved * size);
    snprintf(o->name[kind][at], size, "%.95s", name);
}

static bool has_auto_map(const char *dir)
{
    static const char *const files[] = {"config.json", "tokenizer_config.json"};
    bool has = false;
    for (int i = 0; i < QR_COUNT(files) && !has; i++) {
        char path[4096];
        struct qr_map_file f;
        struct qr_err err = {0};
        struct qr_json *root;
        if (snprintf(path, sizeof path, "%s/%s", dir, files[i]) >= (int)sizeof path || qr_map_file_open(&f, path, CONFIG_BYTES_MAX, &err) != 0)
            continue;
        if (memmem(f.data ? f.data : (const uint8_t *)"", f.n_bytes, "auto_map", 8) && qr_json_parse(&root, (const char *)f.data, f.n_bytes,
                                                                                                      &qr_json_limits_file, &err) == 0) {
            has = qr_json_type(root) == QR_JSON_T_OBJECT && !qr_json_is_null(qr_json_find(root, "auto_map"));
            qr_json_free(root);
        }
        qr_map_file_close(&f);
    }
    return has;
}

void qr_other_files_find(struct qr_other_files *out, const char *model)
{
    static const char *const pickled[] = {".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt"};
    QR_ASSERT(out != NULL && model != NULL);
    *out = (struct qr_other_files){0};
    DIR *d = opendir(model); /* a file is a model by itself: what lies beside it, in a folder of downloads, is no part of it */
    bool has_config = false;
    for (struct dirent *e; d && (e = readdir(d));) {
        if (qr_ends_with(e->d_name, ".py"))
            keep(out, QR_OTHER_CODE, e->d_name);
        if (qr_ends_with(e->d_name, ".gguf"))
            keep(out, QR_OTHER_GGUF, e->d_name);
        if (qr_ends_with(e->d_name, ".safetensors"))
            keep(out, QR_OTHER_SAFETENSORS, e->d_name);
        has_config |= strcmp(e->d_name, "config.json") == 0;
        for (int i = 0; i < QR_COUNT(pickled); i++)
            if (qr_ends_with(e->d_name, pickled[i]))
                keep(out, QR_OTHER_PICKLE, e->d_name);
    }
    if (!d)
        return;
    closedir(d);
    if (!has_config)
        out->n[QR_OTHER_GGUF] = 0;
    out->auto_map = has_auto_map(model);
}

const char *qr_other_files_text(char *text, size_t n, const struct qr_other_files *o, enum qr_other kind)
{
    QR_ASSERT(text != NULL && n > 0);
    QR_ASSERT(o != NULL && kind < QR_OTHER_COUNT);
    size_t len = 0;
    int32_t shown = 0;
    text[0] = 0;
    for (; shown < o->n[kind] && shown < 2 && len < n; shown++)
        len += (size_t)snprintf(text + len, n - len, "%s%s", shown ? ", " : "", o->name[kind][shown]);
    if (o->n[kind] > shown && len < n)
        snprintf(text + len, n - len, " and %d more", o->n[kind] - shown);
    return text;
}

void qr_other_files_log(const char *model)
{
    struct qr_other_files o;
    char text[300];
    qr_other_files_find(&o, model);
    if (o.n[QR_OTHER_PICKLE])
        qr_log(QR_LOG_INFO, "loader", "pickle is never read: %s", qr_other_files_text(text, sizeof text, &o, QR_OTHER_PICKLE));
    if (o.n[QR_OTHER_GGUF])
        qr_log(QR_LOG_INFO, "loader", "GGUF beside config.json is not read, name the file to run it: %s",
               qr_other_files_text(text, sizeof text, &o, QR_OTHER_GGUF));
    if (o.n[QR_OTHER_CODE] || o.auto_map)
        qr_log(QR_LOG_WARN, "loader", "code of a model's own is never run: %s%s", qr_other_files_text(text, sizeof text, &o, QR_OTHER_CODE),
               !o.auto_map ? "" : o.n[QR_OTHER_CODE] ? " (auto_map in config.json)" : "what auto_map names");
}
