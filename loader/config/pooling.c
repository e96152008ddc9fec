/* pooling.c - how rows become an embedding: modules.json and what it names, or a GGUF key, as one struct.
 *
 * A stage that is not computed here ends embeddings with a note in place of an error, because text can be served all the
 * same. A way of pooling that was chosen on the command line stands against what the files say.
 * Guarantee: no path that modules.json names leads out of the model's directory.
 * Thread: any; qr_pooling_finish only reads. */
#include "loader/config/pooling.h"

#include <math.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/files/map_file.h"
#include "base/mem.h"
#include "loader/config/hf_config.h"

#define FILE_BYTES_MAX (1 << 20)

static int read_json(struct qr_json **out, const char *path, struct qr_err *err)
{
    struct qr_map_file file;
    int rc = qr_map_file_open(&file, path, FILE_BYTES_MAX, err);
    if (rc)
        return rc;
    rc = qr_json_parse_file(out, (const char *)file.data, file.n_bytes, &qr_json_limits_file, path, err);
    qr_map_file_close(&file);
    return rc;
}

/* One more way of pooling that is switched on, by the end of its name. */
static int add_mode(enum qr_pooling *out, const char *before, const char *name, const char *path, struct qr_err *err)
{
    static const struct {
        const char *name;
        enum qr_pooling pooling;
    } known[] = {{"cls", QR_POOLING_CLS},       {"mean", QR_POOLING_MEAN},        {"lasttoken", QR_POOLING_LAST},
                 {"cls_token", QR_POOLING_CLS}, {"mean_tokens", QR_POOLING_MEAN}};
    enum qr_pooling found = QR_POOLING_NONE;
    for (int i = 0; i < QR_COUNT(known); i++)
        found = strcmp(name, known[i].name) == 0 ? known[i].pooling : found;
    if (found == QR_POOLING_NONE || *out != QR_POOLING_NONE)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%s: %s%.60s is not computed here%s; expected one of cls, mean and lasttoken", path, before, name,
                          found == QR_POOLING_NONE ? "" : " beside another");
    *out = found;
    return 0;
}

/* The one way of pooling that a Pooling module's configuration switches on: by a flag, or in later versions as "pooling_mode": a name, or a list. */
static int read_mode(enum qr_pooling *out, const struct qr_json *config, const char *path, struct qr_err *err)
{
    const struct qr_json *mode = qr_json_find(config, "pooling_mode");
    int rc = 0;
    *out = QR_POOLING_NONE;
    if (mode && qr_json_type(mode) == QR_JSON_T_STRING)
        rc = add_mode(out, "pooling_mode ", qr_json_str(mode, NULL), path, err);
    for (const struct qr_json *v = mode ? qr_json_first(mode) : NULL; v && rc == 0; v = qr_json_after(v))
        rc = add_mode(out, "pooling_mode ", qr_json_type(v) == QR_JSON_T_STRING ? qr_json_str(v, NULL) : "", path, err);
    for (const struct qr_json *v = qr_json_first(config); v && rc == 0; v = qr_json_after(v)) {
        const char *name = qr_json_key(v);
        if (name && strncmp(name, "pooling_mode_", 13) == 0 && qr_json_type(v) == QR_JSON_T_BOOL && qr_json_bool(v))
            rc = add_mode(out, "pooling_mode_", name + 13, path, err);
    }
    if (rc == 0 && *out == QR_POOLING_NONE)
        rc = qr_err_set(err, QR_E_DAMAGED, "%s: no pooling_mode is set; expected one of pooling_mode_cls_token, _mean_tokens and _lasttoken", path);
    return rc;
}

const char *qr_without_path(const char *msg, const char *dir)
{
    QR_ASSERT(msg != NULL);
    QR_ASSERT(dir != NULL);
    const size_t n = strlen(dir);
    return strncmp(msg, dir, n) == 0 && msg[n] == '/' ? msg + n + 1 : msg;
}

static int check_path(const char *dir, const char *module, struct qr_err *err)
{
    if (module[0] != '/' && !strstr(module, "..") && strlen(module) <= 200)
        return 0;
    return qr_err_set(err, QR_E_DAMAGED, "%s/modules.json: a module's path is '%.200s', expected a directory below the model's", dir, module);
}

/* DIR/module/config.json; its path is left in `path`. */
static int read_config(struct qr_json **out, char path[4096], const char *dir, const char *module, struct qr_err *err)
{
    snprintf(path, 4096, "%s/%s/config.json", dir, module);
    const int rc = check_path(dir, module, err);
    return rc ? rc : read_json(out, path, err);
}

static int read_pooling(enum qr_pooling *out, const char *dir, const char *module, struct qr_err *err)
{
    char path[4096];
    struct qr_json *config;
    int rc = read_config(&config, path, dir, module, err);
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

void qr_pooling_release(struct qr_pooling_config *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n_dense >= 0 && p->n_dense <= QR_DENSE_MAX);
    while (p->n_dense > 0)
        qr_dense_release(&p->dense[--p->n_dense]);
}

/* One more Dense stage, which takes what the stage before it gives. */
static int read_dense(struct qr_pooling_config *out, const char *dir, const char *module, struct qr_err *err)
{
    char path[4096];
    struct qr_json *config;
    if (out->n_dense == QR_DENSE_MAX || out->normalize)
        return qr_err_set(err, QR_E_UNSUPPORTED, "modules.json: the stage %.60s (Dense) is %s, expected at most %d, before Normalize", module,
                          out->normalize ? "behind Normalize" : "one too many", QR_DENSE_MAX);
    int rc = read_config(&config, path, dir, module, err);
    if (rc)
        return rc;
    struct qr_dense *d = &out->dense[out->n_dense];
    const size_t n = strlen(path) - strlen("/config.json");
    path[n] = 0;
    rc = qr_dense_open(d, path, config, err);
    qr_json_free(config);
    if (rc)
        return rc;
    out->n_dense++;
    if (out->n_dense > 1 && d->n_in != d[-1].n_out)
        return qr_err_set(err, QR_E_DAMAGED, "%s/config.json: in_features is %d, expected %d, which the stage before it gives", path, d->n_in, d[-1].n_out);
    return 0;
}

/* The first of them fits the model, whose own files say whether they are any good. */
static int check_dense(const struct qr_pooling_config *out, const struct qr_source *source, struct qr_err *err)
{
    struct qr_model_config c;
    struct qr_err not_here;
    if (out->n_dense == 0 || qr_model_config_from(&c, source, &not_here) != 0 || out->dense[0].n_in == c.n_embd)
        return 0;
    return qr_err_set(err, QR_E_DAMAGED, "modules.json: the first stage of type Dense takes %d features, expected %d, the model's", out->dense[0].n_in,
                      c.n_embd);
}

/* An object of the directory; NULL where it is not there. */
static int open_beside(struct qr_json **out, char path[4096], const char *dir, const char *name, struct qr_err *err)
{
    snprintf(path, 4096, "%s/%s", dir, name);
    *out = NULL;
    return access(path, F_OK) == 0 ? read_json(out, path, err) : 0;
}

/* What is done to texts before the model: here nothing is. Since sentence-transformers 6 those of a model with a chat template go through it. */
static int check_texts(const char *dir, struct qr_err *err)
{
    char path[4096];
    struct qr_json *how, *prompts;
    int rc = open_beside(&how, path, dir, "sentence_bert_config.json", err);
    if (rc)
        return rc;
    const struct qr_json *lower = qr_json_find(how, "do_lower_case");
    if (!qr_json_is_null(qr_json_find(qr_json_find(how, "modality_config"), "message")))
        rc = qr_err_set(err, QR_E_UNSUPPORTED, "%s: modality_config has \"message\", which puts texts through the chat template; here they are taken as they "
                        "are", path);
    else if (lower && qr_json_type(lower) == QR_JSON_T_BOOL && qr_json_bool(lower))
        rc = qr_err_set(err, QR_E_UNSUPPORTED, "%s: do_lower_case is set; here texts are taken as they are", path);
    qr_json_free(how);
    rc = rc ? rc : open_beside(&prompts, path, dir, "config_sentence_transformers.json", err);
    if (rc)
        return rc;
    const struct qr_json *name = qr_json_find(prompts, "default_prompt_name"), *text = NULL;
    if (name && qr_json_type(name) == QR_JSON_T_STRING)
        text = qr_json_find(qr_json_find(prompts, "prompts"), qr_json_str(name, NULL));
    if (text && qr_json_type(text) == QR_JSON_T_STRING && qr_json_str(text, NULL)[0])
        rc = qr_err_set(err, QR_E_UNSUPPORTED, "%s: default_prompt_name \"%.60s\" puts a prompt before every text; here they are taken as they are", path,
                        qr_json_str(name, NULL));
    qr_json_free(prompts);
    return rc;
}

/* "Dense" of "sentence_transformers.models.Dense". */
static const char *class_of(const struct qr_json *module)
{
    const char *type = text_of(module, "type"), *dot = strrchr(type, '.');
    return dot ? dot + 1 : type;
}

static int read_module(struct qr_pooling_config *out, const char *dir, enum qr_pooling wanted, const struct qr_json *m, struct qr_err *err)
{
    const char *name = class_of(m);
    if (strcmp(name, "Normalize") == 0)
        out->normalize = true;
    else if (strcmp(name, "Dense") == 0)
        return read_dense(out, dir, text_of(m, "path"), err);
    else if (strcmp(name, "Pooling") == 0)
        return wanted == QR_POOLING_NONE ? read_pooling(&out->pooling, dir, text_of(m, "path"), err) : 0;
    else if (strcmp(name, "Transformer") == 0)
        return check_texts(dir, err);
    else
        return qr_err_set(err, QR_E_UNSUPPORTED, "modules.json: the stage %.60s (%.100s) is not computed here", text_of(m, "path"), name);
    return 0;
}

static int read_all(struct qr_pooling_config *out, const struct qr_source *source, enum qr_pooling wanted, const struct qr_json *modules, struct qr_err *err)
{
    int rc = 0;
    for (const struct qr_json *m = qr_json_first(modules); m && rc == 0; m = qr_json_after(m))
        rc = read_module(out, qr_source_model(source), wanted, m, err);
    return rc ? rc : check_dense(out, source, err);
}

/* A stage that cannot be computed ends embeddings, unless a way of pooling was chosen: then it is left out, and so are those of type Dense. */
static int read_modules(struct qr_pooling_config *out, const struct qr_source *source, enum qr_pooling wanted, const struct qr_json *modules,
                        struct qr_err *err)
{
    const char *dir = qr_source_model(source);
    struct qr_err why;
    if (qr_json_type(modules) != QR_JSON_T_ARRAY)
        return qr_err_set(err, QR_E_DAMAGED, "%s/modules.json: found %s, expected an array", dir, qr_json_type_name(qr_json_type(modules)));
    out->normalize = false;
    const int rc = read_all(out, source, wanted, modules, &why);
    if (rc == 0)
        return 0;
    qr_pooling_release(out);
    if (wanted == QR_POOLING_NONE)
        return qr_err_set(err, rc, "%.400s; --pooling last, mean or cls makes embeddings without it", why.msg);
    for (const struct qr_json *m = qr_json_first(modules); m; m = qr_json_after(m))
        out->normalize |= strcmp(class_of(m), "Normalize") == 0;
    snprintf(out->note, sizeof out->note, "%.300s: this and what is of type Dense is left out of embeddings", qr_without_path(why.msg, dir));
    return 0;
}

static int read_directory(struct qr_pooling_config *out, const struct qr_source *source, enum qr_pooling wanted, struct qr_err *err)
{
    struct qr_json *modules;
    char path[4096];
    int rc = open_beside(&modules, path, qr_source_model(source), "modules.json", err);
    if (rc || !modules)
        return rc;
    rc = read_modules(out, source, wanted, modules, err);
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
    struct qr_err err = {0};
    *out = (struct qr_pooling_config){.pooling = wanted != QR_POOLING_NONE ? wanted : QR_POOLING_LAST, .normalize = true};
    if ((g ? read_gguf(out, g, wanted, &err) : read_directory(out, source, wanted, &err)) == 0)
        return;
    out->pooling = wanted;
    snprintf(out->note, sizeof out->note, "%s", qr_without_path(err.msg, qr_source_model(source)));
}

int32_t qr_pooling_width(const struct qr_pooling_config *p, int32_t n_embd)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(n_embd > 0);
    return p->n_dense > 0 ? p->dense[p->n_dense - 1].n_out : n_embd;
}

int64_t qr_pooling_bytes(const struct qr_pooling_config *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n_dense <= QR_DENSE_MAX);
    int64_t n = 0;
    for (int32_t i = 0; i < p->n_dense; i++)
        n += (int64_t)p->dense[i].n_out * (p->dense[i].n_in + (p->dense[i].bias != NULL)) * (int64_t)sizeof(float);
    return n;
}

/* The first n numbers of `x` [..], of length 1 where that is wanted. */
static bool scale(const struct qr_pooling_config *p, float *out, int32_t n, const double *x)
{
    bool finite = true;
    double squares = 0;
    for (int32_t i = 0; i < n; i++)
        squares += x[i] * x[i];
    const double by = p->normalize && squares > 0 ? 1 / sqrt(squares) : 1;
    for (int32_t i = 0; i < n; i++) {
        out[i] = (float)(x[i] * by);
        finite &= isfinite(out[i]) != 0;
    }
    return finite;
}

bool qr_pooling_finish(const struct qr_pooling_config *p, float *out, int32_t n, const double *rows, int32_t n_embd)
{
    QR_ASSERT(p != NULL && out != NULL && rows != NULL);
    QR_ASSERT(n >= 1 && n <= qr_pooling_width(p, n_embd));
    if (p->n_dense == 0)
        return scale(p, out, n, rows);
    QR_ASSERT(p->dense[0].n_in == n_embd);
    int32_t most = n_embd;
    for (int32_t i = 0; i < p->n_dense; i++)
        most = p->dense[i].n_out > most ? p->dense[i].n_out : most;
    float *x = qr_alloc(2 * (size_t)most, sizeof *x), *y = x + most, *const both = x;
    for (int32_t i = 0; i < n_embd; i++)
        x[i] = (float)rows[i];
    for (int32_t i = 0; i < p->n_dense; i++) {
        qr_dense_apply(&p->dense[i], y, x);
        float *const next = x;
        x = y;
        y = next;
    }
    double *wide = qr_alloc((size_t)n, sizeof *wide);
    for (int32_t i = 0; i < n; i++)
        wide[i] = (double)x[i];
    const bool finite = scale(p, out, n, wide);
    qr_free(wide);
    qr_free(both);
    return finite;
}

int qr_pooling_stages(const char *dir, int (*each)(void *user, const char *path, struct qr_err *err), void *user, struct qr_err *err)
{
    struct qr_json *modules;
    char path[4096];
    QR_ASSERT(dir != NULL && each != NULL);
    QR_ASSERT(err != NULL);
    int rc = open_beside(&modules, path, dir, "modules.json", err);
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

int qr_pooling_stage_find(struct qr_json **out, const char *dir, const char *class_name, struct qr_err *err)
{
    struct qr_json *modules, *config = NULL;
    char path[4096];
    QR_ASSERT(out != NULL && dir != NULL);
    QR_ASSERT(class_name != NULL && err != NULL);
    *out = NULL;
    int rc = open_beside(&modules, path, dir, "modules.json", err);
    if (rc || !modules)
        return rc;
    const struct qr_json *m = qr_json_type(modules) == QR_JSON_T_ARRAY ? qr_json_first(modules) : NULL;
    while (m && strcmp(class_of(m), class_name) != 0)
        m = qr_json_after(m);
    rc = m ? read_config(&config, path, dir, text_of(m, "path"), err) : 0;
    qr_json_free(modules);
    *out = rc == 0 ? config : NULL;
    return rc;
}
