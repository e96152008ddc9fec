#include "hub/name.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"

#define PART_MAX 96       /* of a model's name */
#define COMPONENT_MAX 255 /* of a path: file systems have no longer ones */
#define PATH_MAX_BYTES 1000
#define FOLDER "models--"

static const char allowed[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/* Of ORG or NAME: no run that the cache's folders use between the two, no end that a path could be led by. */
static bool part_ok(const char *s, size_t n)
{
    if (n == 0 || n > PART_MAX || strspn(s, allowed) < n || strchr("-.", s[0]) || strchr("-.", s[n - 1]))
        return false;
    for (size_t i = 1; i < n; i++)
        if (s[i] == s[i - 1] && (s[i] == '-' || s[i] == '.'))
            return false;
    return true;
}

static bool fill(struct qr_hub_name *out, const char *org, size_t n_org, const char *name, size_t n_name)
{
    if (!part_ok(org, n_org) || !part_ok(name, n_name))
        return false;
    snprintf(out->repo, sizeof out->repo, "%.*s/%.*s", (int)n_org, org, (int)n_name, name);
    snprintf(out->folder, sizeof out->folder, FOLDER "%.*s--%.*s", (int)n_org, org, (int)n_name, name);
    return true;
}

bool qr_hub_name_parse(struct qr_hub_name *out, const char *text)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(text != NULL);
    const size_t n_org = strcspn(text, "/");
    if (text[n_org] == 0)
        return false;
    const char *name = text + n_org + 1;
    const size_t n_name = strcspn(name, ":");
    *out = (struct qr_hub_name){.file = name[n_name] ? name + n_name + 1 : NULL};
    if (out->file && (!*out->file || strlen(out->file) > PATH_MAX_BYTES))
        return false;
    return fill(out, text, n_org, name, n_name);
}

bool qr_hub_name_of_folder(struct qr_hub_name *out, const char *folder)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(folder != NULL);
    *out = (struct qr_hub_name){.file = NULL};
    if (strncmp(folder, FOLDER, strlen(FOLDER)) != 0)
        return false;
    const char *org = folder + strlen(FOLDER), *between = strstr(org, "--");
    return between && fill(out, org, (size_t)(between - org), between + 2, strlen(between + 2));
}

bool qr_hub_path_ok(const char *path)
{
    QR_ASSERT(path != NULL);
    if (strlen(path) > PATH_MAX_BYTES)
        return false;
    for (const char *s = path; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f || (s[0] == '\xc2' && (unsigned char)s[1] < 0xa0)) /* controls, of UTF-8 too: names are shown */
            return false;
    for (const char *s = path;; s++) {
        const size_t n = strcspn(s, "/");
        if (n == 0 || n > COMPONENT_MAX || (n == 1 && s[0] == '.') || (n == 2 && s[0] == '.' && s[1] == '.'))
            return false;
        s += n;
        if (*s == 0)
            return true;
    }
}

bool qr_hub_sha1_ok(const char *hex)
{
    QR_ASSERT(hex != NULL);
    return strlen(hex) == 40 && strspn(hex, "0123456789abcdef") == 40;
}

bool qr_hub_hash_ok(const char *hex)
{
    QR_ASSERT(hex != NULL);
    return qr_hub_sha1_ok(hex) || (strlen(hex) == 64 && strspn(hex, "0123456789abcdef") == 64);
}

bool qr_hub_name_of_path(char out[QR_HUB_NAME_MAX], const char *path)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(path != NULL);
    char folder[QR_HUB_NAME_MAX];
    struct qr_hub_name name;
    for (const char *s = strstr(path, FOLDER); s; s = strstr(s + 1, FOLDER)) {
        const size_t n = strcspn(s, "/");
        if ((s != path && s[-1] != '/') || n >= sizeof folder || strncmp(s + n, "/snapshots/", strlen("/snapshots/")) != 0)
            continue;
        snprintf(folder, sizeof folder, "%.*s", (int)n, s);
        if (!qr_hub_name_of_folder(&name, folder))
            continue;
        snprintf(out, QR_HUB_NAME_MAX, "%s", name.repo);
        return true;
    }
    return false;
}
