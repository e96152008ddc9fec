/* find.c - what a user names as a model: a path that exists, else a name of the hub in the cache, else one to be fetched. The rules of who wins are here and
 * nowhere else. One thread, before others exist. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/files/source.h"
#include "hub/find.h"

int qr_hub_place_find(struct qr_hub_place *p, const struct qr_hub_options *o, struct qr_err *err)
{
    static const char *const yes[] = {"1", "on", "yes", "true"};
    const char *endpoint = qr_hub_variable("HF_ENDPOINT"), *offline = qr_hub_variable("HF_HUB_OFFLINE");
    QR_ASSERT(p != NULL && o != NULL);
    QR_ASSERT(err != NULL);
    *p = (struct qr_hub_place){.revision = o->revision ? o->revision : "main", .offline = o->offline};
    for (int i = 0; i < QR_COUNT(yes); i++)
        p->offline |= offline && strcasecmp(offline, yes[i]) == 0;
    endpoint = endpoint ? endpoint : "https://huggingface.co";
    size_t n = strlen(endpoint);
    while (n > 0 && endpoint[n - 1] == '/')
        n--;
    if (n >= sizeof p->endpoint)
        return qr_err_set(err, QR_E_USAGE, "HF_ENDPOINT has %zu characters, expected a URL as https://huggingface.co", n);
    snprintf(p->endpoint, sizeof p->endpoint, "%.*s", (int)n, endpoint);
    if (!qr_hub_path_ok(p->revision) || strlen(p->revision) > 250)
        return qr_err_set(err, QR_E_USAGE, "--revision '%.200s': expected a branch, a tag or a commit", p->revision);
    return qr_hub_cache_locate(&p->cache, err);
}

int qr_hub_say_elsewhere(const struct qr_hub_place *place, const struct qr_hub_name *name, struct qr_err *err)
{
    QR_ASSERT(place != NULL && name != NULL);
    QR_ASSERT(err != NULL && err->code < 0);
    struct qr_buf text = {0};
    const char *own = strchr(name->repo, '/') + 1;
    qr_buf_printf(&text, "%.150s\nwhere there is a network: hf download %s%s%s", err->msg, name->repo, strcmp(place->revision, "main") ? " --revision " : "",
                  strcmp(place->revision, "main") ? place->revision : "");
    qr_hub_select_elsewhere(&text, name);
    qr_buf_printf(&text, " --local-dir %s\nthen bring the directory %s here: quire serve ./%s", own, own, own);
    const int rc = qr_err_set(err, err->code, "%s", text.data);
    qr_buf_release(&text);
    return rc;
}

/* Whether the first part of the name, or a path that is nearly the name, is here: then a path was meant. */
static bool is_path(const char *model)
{
    char org[QR_HUB_NAME_MAX], near[QR_GGUF_PATH_MAX];
    struct stat st;
    snprintf(org, sizeof org, "%.*s", (int)strcspn(model, "/"), model);
    return stat(org, &st) == 0 || qr_source_near(near, model);
}

int qr_hub_pull(char path[QR_PATH_MAX], const char *model, const struct qr_hub_options *o, const char *command, int *status, struct qr_err *err)
{
    struct qr_hub_name name;
    struct qr_hub_place place;
    QR_ASSERT(path != NULL && model != NULL);
    QR_ASSERT(o != NULL && err != NULL);
    if (!qr_hub_name_parse(&name, model))
        return qr_err_set(err, QR_E_USAGE, "'%.200s' is no name of a model: expected ORG/NAME or ORG/NAME:FILE, as Qwen/Qwen3-0.6B", model);
    int rc = qr_hub_place_find(&place, o, err);
    if (rc)
        return rc;
    if (!place.offline)
        return qr_hub_fetch_model(path, &place, &name, command, status, err);
    rc = qr_hub_cache_find(path, &place.cache, &name, place.revision, err);
    return rc == QR_E_NOT_FOUND ? qr_hub_say_elsewhere(&place, &name, err) : rc;
}

int qr_hub_find(char path[QR_PATH_MAX], const char *model, const struct qr_hub_options *o, const char *command, int *status, struct qr_err *err)
{
    struct qr_hub_name name;
    struct qr_hub_place place;
    struct stat st;
    QR_ASSERT(path != NULL && model != NULL);
    QR_ASSERT(o != NULL && err != NULL);
    if (strlen(model) >= QR_PATH_MAX)
        return qr_err_set(err, QR_E_USAGE, "--model has %zu characters, expected a path or ORG/NAME", strlen(model));
    snprintf(path, QR_PATH_MAX, "%s", model);
    if (stat(model, &st) == 0 || !qr_hub_name_parse(&name, model))
        return 0;
    int rc = qr_hub_place_find(&place, o, err);
    rc = rc ? rc : qr_hub_cache_find(path, &place.cache, &name, place.revision, err);
    if (rc != QR_E_NOT_FOUND)
        return rc;
    snprintf(path, QR_PATH_MAX, "%s", model);
    if (is_path(model)) /* its reader says what is near */
        return 0;
    return place.offline ? qr_hub_say_elsewhere(&place, &name, err) : qr_hub_fetch_model(path, &place, &name, command, status, err);
}

int qr_hub_settle(struct qr_option_set *set, struct qr_command_run *r, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    QR_ASSERT(set != NULL && r != NULL);
    QR_ASSERT(err != NULL);
    const char *model = qr_options_text(set, "model");
    const struct qr_hub_options o = {.revision = qr_options_text(set, "revision"), .offline = qr_options_is_on(set, "offline") || qr_options_wants_check(set)};
    const int rc = model ? qr_hub_find(path, model, &o, qr_options_command(set), &r->status, err) : 0;
    if (rc == 0 && model)
        qr_options_replace(set, "model", path);
    return rc;
}

#ifndef QUIRE_SERVER
int qr_hub_fetch_model(char path[QR_PATH_MAX], const struct qr_hub_place *place, const struct qr_hub_name *name, const char *command, int *status,
                       struct qr_err *err)
{
    qr_err_set(err, QR_E_UNSUPPORTED, "%s is not in the cache, and this build fetches nothing (QUIRE_SERVER=OFF)", name->repo);
    return qr_hub_say_elsewhere(place, name, err);
}
#endif
