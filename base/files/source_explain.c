/* source_explain.c - explains a path that is no model: what it is, and what was probably meant. It opens nothing but
 * directories and the first bytes of files. The result is one error message with what was found and what to do. Runs at
 * start, when a model could not be opened; any thread. */
#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/mem.h"
#include "base/files/gguf_file.h"
#include "base/json.h"
#include "base/option.h"
#include "base/files/source.h"

#define EXPECTED "expected config.json, tokenizer.json and model.safetensors, or a *.gguf file"
#define CONFIG_BYTES_MAX ((size_t)1 << 20)

struct listing {
    char name[2][100];    /* of the first GGUF files, first parts or whole */
    char later[100];      /* a later part of one */
    char pickle[100];
    int32_t n_gguf, n_files;
    bool config, tokenizer, adapter, snapshots;
};

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
        if (qr_ends_with(name, ".bin") || qr_ends_with(name, ".pth") || qr_ends_with(name, ".pt"))
            snprintf(l->pickle, sizeof l->pickle, "%.99s", name);
        if (!qr_ends_with(name, ".gguf") || qr_gguf_is_projector(name))
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
    rc = qr_gguf_is(f.data, f.n_bytes) ? 0 : qr_err_set(err, QR_E_DAMAGED, "%s: byte 0: does not begin with \"GGUF\"; download the file again", path);
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
        return qr_err_set(err, QR_E_NOT_FOUND, "%s: holds %s, but not the first part of it: download all parts into this directory", dir, l->later);
    if (l->pickle[0])
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: there is no config.json, and %s may be pickle, which can run code and is never read: " EXPECTED, dir,
                          l->pickle);
    if (l->snapshots)
        return explain_cache(dir, err);
    return qr_err_set(err, QR_E_NOT_FOUND, "%s: %s; " EXPECTED, dir, l->n_files ? "there is no config.json" : "the directory is empty");
}

#define NAMES_MAX 1000

static int is_candidate(const struct dirent *e)
{
    return e->d_name[0] != '.' && (e->d_type != DT_REG || qr_ends_with(e->d_name, ".gguf"));
}

/* The directory or GGUF file of `dir` that is called most like `name`, in `near`. */
static bool nearest_in(char near[NAME_MAX + 1], const char *dir, const char *name)
{
    struct dirent **entry;
    const char *known[NAMES_MAX];
    const int n = scandir(dir, &entry, is_candidate, alphasort);
    for (int i = 0; i < n && i < NAMES_MAX; i++)
        known[i] = entry[i]->d_name;
    const char *found = qr_nearest(name, known, n < 0 ? 0 : n < NAMES_MAX ? n : NAMES_MAX);
    snprintf(near, NAME_MAX + 1, "%s", found ? found : "");
    for (int i = 0; i < n; i++)
        free(entry[i]);
    if (n >= 0)
        free(entry);
    return found != NULL;
}

/* A path that exists and is nearly `model`: its last name is spelt otherwise, or (deeper) the one before it. */
static bool nearest_path(char near[QR_GGUF_PATH_MAX], const char *model, bool deeper)
{
    char parent[QR_GGUF_PATH_MAX], name[NAME_MAX + 1], found[NAME_MAX + 1];
    struct stat st;
    size_t n = strlen(model), start;
    while (n > 1 && model[n - 1] == '/')
        n--;
    for (start = n; start > 0 && model[start - 1] != '/';)
        start--;
    if (n == start || n - start > NAME_MAX || n >= QR_GGUF_PATH_MAX)
        return false;
    snprintf(name, sizeof name, "%.*s", (int)(n - start), model + start);
    snprintf(parent, sizeof parent, "%.*s", (int)start, model);
    if (nearest_in(found, start ? parent : ".", name))
        return snprintf(near, QR_GGUF_PATH_MAX, "%s%s", parent, found) < QR_GGUF_PATH_MAX;
    if (!deeper || start == 0 || !nearest_path(near, parent, false))
        return false;
    n = strlen(near);
    return snprintf(near + n, QR_GGUF_PATH_MAX - n, "/%s", name) < (int)(QR_GGUF_PATH_MAX - n) && stat(near, &st) == 0;
}

/* ORG/NAME, as models are called where they are published, and no directory ORG here. */
static bool is_hub_name(const char *model)
{
    char org[128];
    struct stat st;
    static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";
    const size_t n = strspn(model, allowed), m = model[n] == '/' ? strspn(model + n + 1, allowed) : 0;
    if (n == 0 || n >= sizeof org || m == 0 || model[0] == '.' || model[n + 1 + m] != 0 || qr_ends_with(model, ".gguf"))
        return false;
    snprintf(org, sizeof org, "%.*s", (int)n, model);
    return stat(org, &st) != 0;
}

bool qr_source_near(char near[QR_GGUF_PATH_MAX], const char *model)
{
    QR_ASSERT(near != NULL);
    QR_ASSERT(model != NULL);
    return nearest_path(near, model, true);
}

int qr_source_find(const char *model, struct qr_err *err)
{
    char near[QR_GGUF_PATH_MAX], what[1200];
    struct stat st;
    QR_ASSERT(model != NULL);
    QR_ASSERT(err != NULL);
    if (stat(model, &st) == 0)
        return 0;
    const int number = errno;
    snprintf(what, sizeof what, "model not found: '%.200s' (%s)", model, strerror(number));
    if (number != ENOENT)
        return qr_err_set(err, QR_E_NOT_FOUND, "%s", what);
    if (qr_source_near(near, model))
        return qr_err_set(err, QR_E_NOT_FOUND, "%s; did you mean '%.200s'? 'quire pull ORG/NAME' fetches a model", what, near);
    if (is_hub_name(model))
        return qr_err_set(err, QR_E_NOT_FOUND, "%s; 'quire pull %.200s' fetches it, and says where it is", what, model);
    return qr_err_set(err, QR_E_NOT_FOUND, "%s; name a directory or GGUF file of this machine, or ORG/NAME of the hub ('quire pull' fetches it)", what);
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
    if (!S_ISDIR(st.st_mode) && qr_ends_with(model, ".gguf"))
        return explain_gguf(model, err);
    if (!S_ISDIR(st.st_mode) || !look(&l, model) || l.config)
        return 0;
    if (l.tokenizer && !l.adapter) /* some want no more of it */
        return 0;
    return explain_directory(model, &l, err);
}
