/* source_explain.c - what somebody named who named no model. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/gguf_file.h"
#include "base/json.h"
#include "base/source.h"

#define EXPECTED "expected config.json, tokenizer.json and model.safetensors, or a *.gguf file"
#define CONFIG_BYTES_MAX ((size_t)1 << 20)

struct listing {
    char name[2][100];    /* of the first GGUF files, first parts or whole */
    char later[100];      /* a later part of one */
    char pickle[100];
    int32_t n_gguf, n_files;
    bool config, tokenizer, adapter, snapshots;
};

static bool ends_with(const char *s, const char *tail)
{
    const size_t n = strlen(s), k = strlen(tail);
    return n > k && strcmp(s + n - k, tail) == 0;
}

/* False: it is no directory that can be listed. */
static bool look(struct listing *l, const char *dir)
{
    struct dirent **entry;
    const int n = scandir(dir, &entry, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        const char *name = entry[i]->d_name;
        l->n_files += name[0] != '.';
        l->config |= strcmp(name, "config.json") == 0;
        l->tokenizer |= strcmp(name, "tokenizer.json") == 0;
        l->adapter |= strcmp(name, "adapter_config.json") == 0;
        l->snapshots |= strcmp(name, "snapshots") == 0;
        if (ends_with(name, ".bin") || ends_with(name, ".pth") || ends_with(name, ".pt"))
            snprintf(l->pickle, sizeof l->pickle, "%.99s", name);
        if (!ends_with(name, ".gguf") || qr_gguf_is_projector(name))
            continue;
        if (qr_gguf_is_later_part(name))
            snprintf(l->later, sizeof l->later, "%.99s", name);
        else if (l->n_gguf++ < 2)
            snprintf(l->name[l->n_gguf - 1], sizeof l->name[0], "%.99s", name);
    }
    for (int i = 0; i < n; i++)
        free(entry[i]);
    if (n >= 0)
        free(entry);
    return n >= 0;
}

/* A file that ought to be GGUF and does not begin so. */
static int explain_gguf(const char *path, struct qr_err *err)
{
    struct qr_map_file f;
    int rc = qr_map_file_open(&f, path, SIZE_MAX, err);
    if (rc)
        return rc;
    rc = qr_gguf_is(f.data, f.n_bytes) ? 0 : qr_err_set(err, QR_E_DAMAGED, "%s: byte 0: does not begin with \"GGUF\"; fetch the file again", path);
    qr_map_file_close(&f);
    return rc;
}

static int explain_adapter(const char *dir, struct qr_err *err)
{
    char path[QR_GGUF_PATH_MAX], base[160] = "";
    struct qr_map_file f;
    struct qr_json *root;
    struct qr_err other;
    snprintf(path, sizeof path, "%s/adapter_config.json", dir);
    if (qr_map_file_open(&f, path, CONFIG_BYTES_MAX, &other) == 0) {
        if (qr_json_parse(&root, (const char *)f.data, f.n_bytes, &qr_json_limits_request, &other) == 0) {
            const struct qr_json *v = qr_json_type(root) == QR_JSON_T_OBJECT ? qr_json_find(root, "base_model_name_or_path") : NULL;
            if (v && qr_json_type(v) == QR_JSON_T_STRING)
                snprintf(base, sizeof base, " (%.120s)", qr_json_str(v, NULL));
            qr_json_free(root);
        }
        qr_map_file_close(&f);
    }
    return qr_err_set(err, QR_E_USAGE, "%s: is an adapter (adapter_config.json), not a model: name its base model%s, and the adapter as --lora NAME=DIR", dir,
                      base);
}

/* Hugging Face's cache keeps a model as models--OWNER--NAME/snapshots/REVISION/, links to the files beside it. Names the revision when there is one only. */
static int explain_cache(const char *dir, struct qr_err *err)
{
    char path[QR_GGUF_PATH_MAX + 16], only[100] = "REVISION";
    struct dirent **entry;
    snprintf(path, sizeof path, "%s/snapshots", dir);
    const int n = scandir(path, &entry, NULL, alphasort);
    int32_t n_names = 0;
    for (int i = 0; i < n; i++) {
        if (entry[i]->d_name[0] != '.' && n_names++ == 0)
            snprintf(only, sizeof only, "%.99s", entry[i]->d_name);
        free(entry[i]);
    }
    if (n >= 0)
        free(entry);
    return qr_err_set(err, QR_E_NOT_FOUND, "%s: there is no config.json: this looks like a cache of Hugging Face's; name %s/%s", dir, path,
                      n_names == 1 ? only : "REVISION, one of those that are there");
}

static int explain_directory(const char *dir, const struct listing *l, struct qr_err *err)
{
    char path[QR_GGUF_PATH_MAX + 120];
    if (l->adapter)
        return explain_adapter(dir, err);
    if (l->n_gguf > 1)
        return qr_err_set(err, QR_E_USAGE, "%s: holds %d GGUF files (%s, %s%s): name one of them", dir, l->n_gguf, l->name[0], l->name[1],
                          l->n_gguf > 2 ? ", ..." : "");
    snprintf(path, sizeof path, "%s/%s", dir, l->name[0]);
    if (l->n_gguf == 1)
        return explain_gguf(path, err);
    if (l->later[0])
        return qr_err_set(err, QR_E_NOT_FOUND, "%s: holds %s, but not the first part of it: fetch all parts into this directory", dir, l->later);
    if (l->pickle[0])
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: there is no config.json, and %s may be pickle, which can run code and is never read: " EXPECTED, dir,
                          l->pickle);
    if (l->snapshots)
        return explain_cache(dir, err);
    return qr_err_set(err, QR_E_NOT_FOUND, "%s: %s; " EXPECTED, dir, l->n_files ? "there is no config.json" : "the directory is empty");
}

int qr_source_explain(const char *model, struct qr_err *err)
{
    char path[QR_GGUF_PATH_MAX];
    struct listing l = {.n_gguf = 0};
    struct stat st;
    QR_ASSERT(model != NULL);
    QR_ASSERT(err != NULL);
    if (stat(model, &st) == 0 && S_ISREG(st.st_mode) && qr_gguf_is_later_part(model))
        return qr_err_set(err, QR_E_USAGE, "%s: is a later part of a model that was split: name its first part, *-00001-of-*.gguf", model);
    if (qr_gguf_find_file(path, model) || stat(model, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode) && ends_with(model, ".gguf"))
        return explain_gguf(model, err);
    if (!S_ISDIR(st.st_mode) || !look(&l, model) || l.config)
        return 0;
    if (l.tokenizer && !l.adapter) /* some want no more of it */
        return 0;
    return explain_directory(model, &l, err);
}
