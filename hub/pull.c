/* pull.c - a model of the hub becomes files of the cache: its commit, its list of files, those that are needed and not there, and last the note that a revision
 * means this commit. What is to be fetched is said before, and held against the room on the disk. Every end that leaves something to go on from says so. One
 * thread, before others exist. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/statvfs.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "hub/fetch.h"
#include "hub/find.h"
#include "hub/screen.h"

#define ANSWER_BYTES_MAX ((int64_t)32 << 20)
#define PAGES_MAX 1000
#define DISK_SPARE_BYTES ((int64_t)16 << 20) /* that stay free */

struct pull {
    const struct qr_hub_place *place;
    const struct qr_hub_name *name;
    const char *command;
    struct qr_hub_getter *getter;
    bool has_token;
    char commit[QR_HUB_HASH_MAX];
    struct qr_hub_files files;
    const struct qr_hub_file *opens;
    struct qr_hub_fetch *fetch; /* owned [n]: what the cache lacks */
    int32_t n, n_wanted;
};

/* ---- the token ---- */

/* Of the environment, else of the file where `hf auth login` keeps it. "" when there is none. */
static int read_token(struct qr_buf *out, const struct qr_hub_cache *c, struct qr_err *err)
{
    static const char *const names[] = {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"};
    const char *from = "", *s = NULL;
    char path[QR_PATH_MAX + 8];
    for (int i = 0; i < QR_COUNT(names) && !s; i++)
        s = qr_hub_variable(from = names[i]);
    if (s)
        qr_buf_put_str(out, s);
    else {
        snprintf(path, sizeof path, "%s/token", c->home);
        from = path;
        struct qr_err none;
        if (!c->home[0] || qr_file_read(out, path, QR_FILE_REGULAR, 4096, &none) != 0)
            qr_buf_clear(out);
    }
    while (out->len > 0 && (unsigned char)out->data[out->len - 1] <= ' ')
        out->data[--out->len] = 0;
    for (size_t i = 0; i < out->len; i++)
        if (out->data[i] <= ' ' || out->data[i] > '~' || out->len > 2000)
            return qr_err_set(err, QR_E_USAGE, "the token of %.200s has a space, a control character or more than 2,000 characters: expected hf_...", from);
    return 0;
}

static int open_getter(struct pull *p, struct qr_err *err)
{
    struct qr_buf token = {0};
    int rc = read_token(&token, &p->place->cache, err);
    p->has_token = token.len > 0;
    const struct qr_hub_getter_options o = {.endpoint = p->place->endpoint, .token = p->has_token ? token.data : NULL};
    rc = rc ? rc : qr_hub_getter_open(&p->getter, &o, err);
    if (token.data)
        explicit_bzero(token.data, token.cap);
    qr_buf_release(&token);
    return rc;
}

/* ---- answers of the API ---- */

static int text_open(void *user, int64_t *from, struct qr_err *err)
{
    *from = 0;
    return 0;
}

static int text_put(void *user, const void *bytes, size_t n, struct qr_err *err)
{
    qr_buf_put(user, bytes, n);
    return 0;
}

static int text_restart(void *user, struct qr_err *err)
{
    qr_buf_clear(user);
    return 0;
}

static int text_close(void *user, bool whole, struct qr_err *err)
{
    return 0;
}

static const struct qr_hub_sink text_sink = {text_open, text_put, text_restart, text_close};

/* *g is filled with what came. */
static int get_text(struct pull *p, struct qr_buf *out, struct qr_hub_get *g, const char *url, const char *what, struct qr_err *err)
{
    struct qr_hub_get *const all[] = {g};
    *g = (struct qr_hub_get){.url = url, .what = what, .n_bytes = -1, .bytes_max = ANSWER_BYTES_MAX, .sink = &text_sink, .user = out, .link = g->link};
    qr_buf_clear(out);
    qr_buf_reserve(out, 1);
    return qr_hub_get_all(p->getter, all, 1, err);
}

/* Models that are called nearly so, as the hub finds them: "; did you mean 'a/b', 'c/d'?" */
static void put_near(struct pull *p, struct qr_buf *out)
{
    struct qr_buf text = {0}, url = {0}, names = {0};
    struct qr_hub_get g = {.link = NULL};
    struct qr_err ignored;
    qr_buf_printf(&url, "%s/api/models?search=%s&limit=3", p->place->endpoint, strchr(p->name->repo, '/') + 1);
    if (get_text(p, &text, &g, url.data, "a search", &ignored) == 0)
        qr_hub_search_parse(&names, text.data, text.len);
    if (names.len > 0)
        qr_buf_printf(out, "; did you mean %s?", names.data);
    qr_buf_release(&names);
    qr_buf_release(&url);
    qr_buf_release(&text);
}

/* What a status means for a person. rc is what the GET ended with, *err says it in general. */
static int explain(struct pull *p, const struct qr_hub_get *g, int rc, struct qr_err *err)
{
    static const struct {
        int32_t status;
        const char *code;   /* X-Error-Code; NULL: any */
        int8_t token;       /* 1: there was one, 0: none, -1: either */
        const char *says;   /* behind the model's name */
        bool near;
    } table[] = {
        {401, "GatedRepo", 0, "is gated: accept its licence on its page, and set HF_TOKEN to a token of that account", false},
        {401, "GatedRepo", 1, "is gated, and the hub does not take the token: renew HF_TOKEN (hf auth login)", false},
        {403, "GatedRepo", -1, "is gated, and the account of the token has no access yet: accept its licence on its page", false},
        {401, NULL, 0, "is not a model that everyone may see: check its name, or set HF_TOKEN to a token that may", true},
        {401, NULL, 1, "cannot be seen: the hub does not take the token: renew HF_TOKEN (hf auth login)", false},
        {403, NULL, -1, "may not be read with this token", false},
        {404, "RevisionNotFound", -1, "has no such revision: check --revision", false},
        {404, NULL, -1, "is no model of the hub", true},
    };
    struct qr_buf near = {0};
    for (int i = 0; i < QR_COUNT(table); i++) {
        if (g->status != table[i].status || (table[i].code && strcmp(table[i].code, g->code) != 0) || (table[i].token >= 0 && table[i].token != p->has_token))
            continue;
        if (table[i].near)
            put_near(p, &near);
        rc = qr_err_set(err, (enum qr_code)rc, "%s %s (%.60s/%s answers %d)%s", p->name->repo, table[i].says, p->place->endpoint, p->name->repo, g->status,
                        near.data ? near.data : "");
        break;
    }
    qr_buf_release(&near);
    return rc;
}

static int read_commit(struct pull *p, struct qr_err *err)
{
    struct qr_buf url = {0}, text = {0};
    struct qr_hub_get g = {.link = NULL};
    qr_buf_printf(&url, "%s/api/models/%s/revision/", p->place->endpoint, p->name->repo);
    qr_hub_put_quoted(&url, p->place->revision, "-_.~"); /* refs/pr/1 is one part of the path */
    int rc = get_text(p, &text, &g, url.data, p->name->repo, err);
    rc = rc ? explain(p, &g, rc, err) : qr_hub_commit_parse(p->commit, text.data, text.len, err);
    qr_buf_release(&url);
    qr_buf_release(&text);
    return rc;
}

/* Page by page, as the hub links them. */
static int read_tree(struct pull *p, struct qr_err *err)
{
    struct qr_buf text = {0};
    char *url = qr_alloc(2, QR_HUB_URL_MAX), *link = url + QR_HUB_URL_MAX;
    struct qr_hub_get g = {.link = link};
    int rc = 0, page = 0;
    snprintf(url, QR_HUB_URL_MAX, "%s/api/models/%s/tree/%s?recursive=true", p->place->endpoint, p->name->repo, p->commit);
    for (bool more = true; rc == 0 && more; page++) {
        link[0] = 0;
        rc = get_text(p, &text, &g, url, "the list of files", err);
        rc = rc ? explain(p, &g, rc, err) : qr_hub_tree_parse(&p->files, text.data, text.len, err);
        more = rc == 0 && qr_hub_link_next(url, QR_HUB_URL_MAX, link);
        if (more && (page == PAGES_MAX || !qr_hub_getter_is_own(p->getter, url)))
            rc = qr_err_set(err, QR_E_DAMAGED, "the hub's list of files goes on at another host, or without an end (page %d)", page + 1);
    }
    qr_buf_release(&text);
    qr_free(url);
    return rc;
}

/* ---- what is lacking ---- */

static void list_lacking(struct pull *p)
{
    struct qr_hub_files *f = &p->files;
    p->fetch = qr_alloc((size_t)f->n, sizeof *p->fetch);
    for (int32_t i = 0; i < f->n; i++) {
        p->n_wanted += f->file[i].wanted;
        if (!f->file[i].wanted || qr_hub_cache_has(&p->place->cache, p->name, &f->file[i]))
            continue;
        struct qr_hub_fetch *e = &p->fetch[p->n++];
        *e = (struct qr_hub_fetch){.cache = &p->place->cache, .name = p->name, .commit = p->commit, .file = &f->file[i]};
        qr_hub_fetch_init(e, p->place->endpoint);
    }
}

/* Links of files whose bytes are there, of another revision perhaps. */
static int link_rest(struct pull *p, struct qr_err *err)
{
    int rc = 0;
    for (int32_t i = 0; i < p->files.n && rc == 0; i++) {
        const struct qr_hub_file *f = &p->files.file[i];
        if (f->wanted && qr_hub_cache_has(&p->place->cache, p->name, f))
            rc = qr_hub_cache_link(&p->place->cache, p->name, p->commit, f, err);
    }
    return rc;
}

static int check_disk(const struct pull *p, int64_t n_bytes, struct qr_err *err)
{
    struct statvfs disk;
    char size[2][QR_SIZE_TEXT];
    const int rc = qr_dir_make_all(p->place->cache.dir, 0777, err);
    if (rc || statvfs(p->place->cache.dir, &disk) != 0)
        return rc;
    const double free_bytes = (double)disk.f_bavail * (double)disk.f_frsize - (double)DISK_SPARE_BYTES;
    if (free_bytes >= (double)n_bytes)
        return 0;
    return qr_err_set(err, QR_E_NO_ROOM, "%s: %s are to be fetched, and the disk of %.200s has room for %s: make room ('quire list', 'quire rm') or "
                      "set HF_HOME", p->name->repo, qr_size_text(size[0], n_bytes), p->place->cache.dir,
                      qr_size_text(size[1], free_bytes > 0 ? (int64_t)free_bytes : 0));
}

/* What will happen, before it does. */
static int announce(const struct pull *p, struct qr_err *err)
{
    int64_t total = 0, kept = 0;
    char size[2][QR_SIZE_TEXT];
    for (int32_t i = 0; i < p->n; i++) {
        total += p->fetch[i].file->n_bytes;
        kept += qr_hub_fetch_cached(&p->place->cache, p->name, p->fetch[i].file);
    }
    const int rc = check_disk(p, total - kept, err);
    if (rc)
        return rc;
    fprintf(stderr, "quire %s: fetching %s (revision %s, %.8s): %d of %d file%s, %s", p->command, p->name->repo, p->place->revision, p->commit, p->n,
            p->n_wanted, p->n_wanted == 1 ? "" : "s", qr_size_text(size[0], total));
    if (kept > 0)
        fprintf(stderr, " of which %s are there", qr_size_text(size[1], kept));
    fprintf(stderr, ", to %s\n", p->place->cache.dir);
    return 0;
}

static int fetch_lacking(struct pull *p, struct qr_err *err)
{
    struct qr_hub_screen screen;
    struct qr_hub_get **get = qr_alloc((size_t)p->n, sizeof *get);
    char size[QR_SIZE_TEXT];
    const int64_t began_us = qr_clock_us();
    for (int32_t i = 0; i < p->n; i++)
        get[i] = &p->fetch[i].get;
    qr_hub_screen_open(&screen, p->command, p->fetch, p->n);
    qr_hub_getter_tick(p->getter, qr_hub_screen_tick, &screen);
    int rc = qr_hub_get_all(p->getter, get, p->n, err);
    qr_hub_getter_tick(p->getter, NULL, NULL);
    qr_hub_screen_close(&screen);
    for (int32_t i = 0; i < p->n && rc && rc != QR_E_CLOSED; i++)
        if ((get[i]->status == 401 || get[i]->status == 403) && get[i]->own && !p->fetch[i].done)
            rc = explain(p, get[i], rc, err);
    const char *got = qr_size_text(size, qr_hub_screen_got(&screen));
    if (rc == QR_E_CLOSED)
        qr_err_set(err, QR_E_CLOSED, "%s: interrupted; %s are in the cache, and the same command goes on from there", p->name->repo, got);
    if (rc == 0)
        fprintf(stderr, "quire %s: fetched %s in %.1f s\n", p->command, got, (double)(qr_clock_us() - began_us) * 1e-6);
    qr_free(get);
    return rc;
}

/* ---- all of it ---- */

static int pull(char path[QR_PATH_MAX], struct pull *p, struct qr_err *err)
{
    int rc = open_getter(p, err);
    rc = rc ? rc : read_commit(p, err);
    rc = rc ? rc : read_tree(p, err);
    if (rc)
        return rc;
    rc = qr_hub_select(&p->files, p->name, &p->opens, err);
    if (rc) {
        qr_hub_select_print(&p->files, p->name);
        return rc;
    }
    list_lacking(p);
    rc = p->n > 0 ? announce(p, err) : 0;
    rc = rc || p->n == 0 ? rc : fetch_lacking(p, err);
    rc = rc ? rc : link_rest(p, err);
    rc = rc ? rc : qr_hub_cache_refer(&p->place->cache, p->name, p->place->revision, p->commit, err);
    if (rc)
        return rc;
    if (p->n == 0)
        fprintf(stderr, "quire %s: %s (revision %s, %.8s) is in the cache\n", p->command, p->name->repo, p->place->revision, p->commit);
    qr_hub_cache_path(path, &p->place->cache, p->name, "snapshots", p->commit);
    return p->opens ? qr_hub_path_append(path, p->opens->path, err) : 0;
}

int qr_hub_fetch_model(char path[QR_PATH_MAX], const struct qr_hub_place *place, const struct qr_hub_name *name, const char *command, int *status,
                       struct qr_err *err)
{
    QR_ASSERT(path != NULL && place != NULL && name != NULL);
    QR_ASSERT(command != NULL && status != NULL && err != NULL);
    struct pull p = {.place = place, .name = name, .command = command};
    int rc = pull(path, &p, err);
    if (rc == QR_E_CLOSED)
        *status = 128 + qr_hub_getter_signal(p.getter);
    if (rc && (!p.getter || qr_hub_getter_unreachable(p.getter)) && rc != QR_E_CLOSED && rc != QR_E_USAGE)
        rc = qr_hub_say_elsewhere(place, name, err);
    for (int32_t i = 0; i < p.n; i++)
        qr_hub_fetch_release(&p.fetch[i]);
    qr_free(p.fetch);
    qr_hub_files_release(&p.files);
    qr_hub_getter_close(p.getter);
    return rc;
}
