/* POST /v1/load_lora_adapter and /v1/unload_lora_adapter, in vLLM's shapes: what a path may be, and whose names are taken. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/log.h"
#include "engine/adapters.h"
#include "server/call.h"

#define PATH_BYTES_MAX 4000

static bool has_parent_step(const char *path)
{
    for (const char *at = path; (at = strstr(at, "..")) != NULL; at += 2)
        if ((at == path || at[-1] == '/') && (at[2] == 0 || at[2] == '/'))
            return true;
    return false;
}

/* The directory that `given` names, relative to --lora-dir or below it. Nothing outside is opened; where links lead the
 * loader checks. */
static int resolve(char out[2 * PATH_BYTES_MAX], const char *root, const char *given, struct qr_err *err)
{
    if (!root)
        return qr_err_at(err, QR_E_DENIED, "lora_path", "this server loads no adapters while it runs; it has to be started with --lora-dir DIR");
    const size_t n = strlen(root), m = strlen(given);
    if (m == 0 || m >= PATH_BYTES_MAX || n >= PATH_BYTES_MAX)
        return qr_err_at(err, QR_E_INVALID, "lora_path", "lora_path has %zu bytes, expected 1 to %d", m, PATH_BYTES_MAX - 1);
    const bool below = given[0] == '/' && strncmp(given, root, n) == 0 && (given[n] == '/' || root[n - 1] == '/');
    if (has_parent_step(given) || (given[0] == '/' && !below))
        return qr_err_at(err, QR_E_DENIED, "lora_path", "lora_path leads out of the directory that adapters may come from (--lora-dir)");
    snprintf(out, 2 * PATH_BYTES_MAX, "%s%s%s", below ? "" : root, below ? "" : "/", given);
    return 0;
}

/* Where the directory of adapters lies is the server's own: a message names a file as the client did. */
static void name_as_given(struct qr_err *err, const char *dir, const char *given)
{
    const size_t n = strlen(dir);
    char text[sizeof err->msg];
    if (strncmp(err->msg, dir, n) != 0)
        return;
    snprintf(text, sizeof text, "%.200s%s", given, err->msg + n);
    snprintf(err->msg, sizeof err->msg, "%s", text);
}

static int check_free(const struct qr_server *s, const char *name, struct qr_err *err)
{
    for (int32_t i = 0; i < s->n_names; i++)
        if (strcmp(s->names[i], name) == 0)
            return qr_err_at(err, QR_E_INVALID, "lora_name", "'%.100s' is what the model itself is called", name);
    return 0;
}

/* What a body may say; NULL: it does not. */
struct fields {
    const struct qr_json *name, *path, *replace;
};

static int load(const struct qr_server *s, const struct fields *f, struct qr_err *err)
{
    char dir[2 * PATH_BYTES_MAX];
    const char *name = qr_json_str(f->name, NULL), *path = qr_json_str(f->path, NULL);
    int rc = check_free(s, name, err);
    rc = rc ? rc : resolve(dir, s->config.lora_dir, path, err);
    if (rc)
        return rc;
    const struct qr_adapter_source source = {
        .name = name, .dir = dir, .root = s->config.lora_dir, .replace = f->replace && qr_json_bool(f->replace)};
    rc = qr_engine_load_adapter(s->model.engine, &source, err);
    if (rc && err->param[0] == 0)
        snprintf(err->param, sizeof err->param, "lora_path");
    if (rc)
        name_as_given(err, dir, path);
    return rc;
}

static int unload(const struct qr_server *s, const struct fields *f, struct qr_err *err)
{
    return qr_engine_unload_adapter(s->model.engine, qr_json_str(f->name, NULL), err);
}

/* Whatever is wrong with a file is wrong with the request that names it. */
static void fail(struct qr_call *call, struct qr_err *err)
{
    if (err->code == QR_E_USAGE || err->code == QR_E_IO || err->code == QR_E_DAMAGED)
        err->code = QR_E_INVALID;
    qr_call_fail(call, err);
    qr_log_text(QR_LOG_WARN, "lora", "refused", "reason", err->msg);
}

static void prepare(struct qr_call *call, bool loads)
{
    struct fields f = {0};
    const struct qr_member members[] = {
        {"lora_name", QR_JSON_T_STRING, "a string", .value = &f.name, .required = true},
        {"lora_path", QR_JSON_T_STRING, "a string", .value = &f.path, .required = true},
        {"load_inplace", QR_JSON_T_BOOL, "true or false", .value = &f.replace},
    };
    const char *done = loads ? "loaded" : "unloaded";
    struct qr_err err = {0};
    struct qr_json *doc = NULL;
    int rc = qr_call_read(&doc, call, members, loads ? QR_COUNT(members) : 1, &err);
    rc = rc ? rc : (loads ? load : unload)(call->server, &f, &err);
    if (rc) {
        fail(call, &err);
    } else {
        const char *name = qr_json_str(f.name, NULL);
        qr_log_text(QR_LOG_INFO, "lora", done, "name", name);
        qr_buf_printf(&call->reply, "{\"status\":\"%s\",\"lora_name\":", done);
        qr_json_put_str(&call->reply, name, strlen(name));
        qr_buf_put_byte(&call->reply, '}');
    }
    qr_json_free(doc);
}

static void prepare_load(struct qr_call *call)
{
    prepare(call, true);
}

static void prepare_unload(struct qr_call *call)
{
    prepare(call, false);
}

const struct qr_call_kind qr_call_load_adapter = {.prepare = prepare_load},
                          qr_call_unload_adapter = {.prepare = prepare_unload};
