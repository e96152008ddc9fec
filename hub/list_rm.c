/* list_rm.c - `quire list` and `quire rm`: what the cache has, and how parts of it are removed. Guarantee: nothing outside a model's own folder and its locks
 * is ever removed, no link is followed for it, and a blob stays as long as anything else of the model uses it. One thread. */
#include <dirent.h>
#include <errno.h>
#include <fts.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/option.h"
#include "base/size.h"
#include "hub/find.h"

/* ---- directories ---- */

struct names {
    char **name; /* owned [n], sorted */
    int32_t n, cap;
};

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

static void list_names(struct names *l, const char *dir)
{
    *l = (struct names){0};
    DIR *d = opendir(dir);
    for (struct dirent *e; d && (e = readdir(d));) {
        if (e->d_name[0] == '.')
            continue;
        l->name = QR_GROW(l->name, l->n, l->cap);
        l->name[l->n++] = qr_strdup(e->d_name);
    }
    if (d)
        closedir(d);
    if (l->n)
        qsort(l->name, (size_t)l->n, sizeof *l->name, by_name);
}

static void free_names(struct names *l)
{
    for (int32_t i = 0; i < l->n; i++)
        qr_free(l->name[i]);
    qr_free(l->name);
}

/* ---- the list ---- */

struct row {
    char name[QR_HUB_NAME_MAX + 256], revision[64];
    const char *format;
    int64_t n_bytes, used_s;
};

struct rows {
    struct row *row; /* owned [n] */
    int32_t n, cap;
    const struct qr_hub_cache *c;
};

/* A branch or tag that is known to mean the commit, else its first digits. */
static void label(char out[64], const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *commit)
{
    char path[QR_PATH_MAX], means[QR_HUB_HASH_MAX];
    struct names refs;
    qr_hub_cache_path(path, c, name, "refs", NULL);
    list_names(&refs, path);
    snprintf(out, 64, "%.8s", commit);
    for (int32_t i = 0; i < refs.n; i++)
        if (qr_hub_path_ok(refs.name[i]) && qr_hub_cache_commit(means, c, name, refs.name[i]) && strcmp(means, commit) == 0)
            snprintf(out, 64, "%.60s", refs.name[i]);
    free_names(&refs);
}

static int64_t used_s(const struct qr_hub_cache *c, const struct qr_hub_name *name, const char *commit, const char *file)
{
    char path[QR_PATH_MAX];
    struct stat st;
    qr_hub_cache_path(path, c, name, "snapshots", commit);
    struct qr_err ignored;
    if (qr_hub_path_append(path, file, &ignored) != 0 || stat(path, &st) != 0)
        return 0;
    return st.st_atime > st.st_mtime ? st.st_atime : st.st_mtime;
}

static struct row *add_row(struct rows *r, const struct qr_hub_name *name, const char *file, const char *revision, const char *format)
{
    r->row = QR_GROW(r->row, r->n, r->cap);
    struct row *row = &r->row[r->n++];
    *row = (struct row){.format = format};
    snprintf(row->name, sizeof row->name, "%s%s%.250s", name->repo, file ? ":" : "", file ? file : "");
    snprintf(row->revision, sizeof row->revision, "%s", revision);
    return row;
}

/* A snapshot: a row for each GGUF, one for all else that is there. */
static void add_snapshot(struct rows *r, const struct qr_hub_name *name, const char *commit)
{
    struct qr_hub_files f = {0};
    char revision[64];
    int64_t n_bytes = 0, used = 0, t;
    const char *format = "other";
    bool any_gguf = false;
    if (!qr_hub_cache_list(&f, r->c, name, commit))
        return;
    label(revision, r->c, name, commit);
    for (int32_t i = 0; i < f.n; i++) {
        const char *path = f.file[i].path;
        t = used_s(r->c, name, commit, path);
        if (qr_hub_is_gguf(path)) {
            struct row *row = add_row(r, name, path, revision, "gguf");
            row->n_bytes = qr_hub_gguf_bytes(&f, &f.file[i]);
            row->used_s = t;
            any_gguf = true;
        } else if (!qr_ends_with(path, ".gguf")) {
            n_bytes += f.file[i].n_bytes;
            used = t > used ? t : used;
            format = qr_ends_with(path, ".safetensors") ? "safetensors" : format;
        }
    }
    if (n_bytes > 0 && (!any_gguf || strcmp(format, "other") != 0)) {
        struct row *row = add_row(r, name, NULL, revision, format);
        row->n_bytes = n_bytes;
        row->used_s = used;
    }
    qr_hub_files_release(&f);
}

/* What was not fetched to its end. */
static void add_unfinished(struct rows *r, const struct qr_hub_name *name)
{
    char path[QR_PATH_MAX];
    struct names blobs;
    struct stat st;
    int64_t n_bytes = 0, used = 0;
    qr_hub_cache_path(path, r->c, name, "blobs", NULL);
    list_names(&blobs, path);
    for (int32_t i = 0; i < blobs.n; i++) {
        qr_hub_cache_path(path, r->c, name, "blobs", blobs.name[i]);
        if (!qr_ends_with(blobs.name[i], QR_HUB_INCOMPLETE) || lstat(path, &st) != 0)
            continue;
        n_bytes += st.st_size;
        used = st.st_mtime > used ? st.st_mtime : used;
    }
    free_names(&blobs);
    if (n_bytes > 0) {
        struct row *row = add_row(r, name, NULL, "-", "unfinished");
        row->n_bytes = n_bytes;
        row->used_s = used;
    }
}

static void print_table(const struct rows *r)
{
    int name = 4, revision = 8;
    char size[QR_SIZE_TEXT], day[16];
    for (int32_t i = 0; i < r->n; i++) {
        name = (int)strlen(r->row[i].name) > name ? (int)strlen(r->row[i].name) : name;
        revision = (int)strlen(r->row[i].revision) > revision ? (int)strlen(r->row[i].revision) : revision;
    }
    if (r->n > 0)
        printf("%-*s  %-*s  %10s  %-10s  %s\n", name, "NAME", revision, "REVISION", "SIZE", "USED", "FORMAT");
    for (int32_t i = 0; i < r->n; i++) {
        const time_t t = (time_t)r->row[i].used_s;
        struct tm local;
        strftime(day, sizeof day, "%Y-%m-%d", localtime_r(&t, &local));
        printf("%-*s  %-*s  %10s  %-10s  %s\n", name, r->row[i].name, revision, r->row[i].revision, qr_size_text(size, r->row[i].n_bytes), day,
               r->row[i].format);
    }
}

static void print_json(const struct rows *r)
{
    struct qr_buf out = {0};
    for (int32_t i = 0; i < r->n; i++) {
        const struct row *row = &r->row[i];
        qr_buf_put_byte(&out, '{');
        qr_json_put_member_text(&out, "name", row->name);
        qr_json_put_member_text(&out, "revision", row->revision);
        qr_json_put_member_i64(&out, "bytes", row->n_bytes);
        qr_json_put_member_i64(&out, "used", row->used_s);
        qr_json_put_member_text(&out, "format", row->format);
        qr_buf_put_str(&out, "}\n");
    }
    fwrite(out.data, 1, out.len, stdout);
    qr_buf_release(&out);
}

int qr_hub_list(bool json, struct qr_err *err)
{
    struct qr_hub_place place;
    struct qr_hub_name name;
    struct names folders, commits;
    char path[QR_PATH_MAX];
    QR_ASSERT(err != NULL);
    int rc = qr_hub_place_find(&place, &(struct qr_hub_options){.offline = true}, err);
    if (rc)
        return rc;
    struct rows r = {.c = &place.cache};
    list_names(&folders, place.cache.dir);
    for (int32_t i = 0; i < folders.n; i++) {
        if (!qr_hub_name_of_folder(&name, folders.name[i]))
            continue;
        qr_hub_cache_path(path, &place.cache, &name, "snapshots", NULL);
        list_names(&commits, path);
        for (int32_t k = 0; k < commits.n; k++)
            if (qr_hub_sha1_ok(commits.name[k]))
                add_snapshot(&r, &name, commits.name[k]);
        free_names(&commits);
        add_unfinished(&r, &name);
    }
    (json ? print_json : print_table)(&r);
    if (r.n == 0)
        fprintf(stderr, "no models in %s: quire pull ORG/NAME fetches one\n", place.cache.dir);
    free_names(&folders);
    qr_free(r.row);
    return 0;
}

/* ---- removing ---- */

struct removal {
    const struct qr_hub_place *place;
    struct qr_hub_name name;
    char commit[QR_HUB_HASH_MAX];             /* "": of all */
    struct names commits;                     /* owned: snapshots */
    struct qr_hub_files *files;               /* owned [commits.n]: `wanted` ones go */
    int64_t n_bytes;                          /* that will be free */
    int32_t n_files, n_stay;
    bool whole;
};

static int system_error(const char *path, const char *doing, struct qr_err *err)
{
    const int number = errno;
    char text[128];
    return qr_err_set(err, QR_E_IO, "%s: cannot be %s: %s", path, doing, qr_errno_text(text, number));
}

/* Removes what a directory holds and itself; links go, not what they lead to. */
static int remove_tree(const char *path, struct qr_err *err)
{
    char *const roots[] = {(char *)path, NULL};
    FTS *tree = fts_open(roots, FTS_PHYSICAL | FTS_NOCHDIR | FTS_XDEV, NULL);
    int rc = tree ? 0 : system_error(path, "read", err);
    for (FTSENT *e; rc == 0 && (e = fts_read(tree));) {
        if (e->fts_info == FTS_D || (e->fts_info == FTS_NS && e->fts_errno == ENOENT))
            continue;
        if ((e->fts_info == FTS_DP ? rmdir : unlink)(e->fts_accpath) != 0 && errno != ENOENT)
            rc = system_error(e->fts_path, "removed", err);
    }
    if (tree)
        fts_close(tree);
    return rc;
}

/* Whether a blob is used by a file that stays, or one that was counted before file `end` of snapshot `last`. */
static bool is_used(const struct removal *m, const char *hash, bool staying, int32_t last, int32_t end)
{
    for (int32_t i = 0; i <= last; i++)
        for (int32_t k = 0; k < (i == last ? end : m->files[i].n); k++)
            if (m->files[i].file[k].wanted != staying && strcmp(m->files[i].file[k].hash, hash) == 0)
                return true;
    return false;
}

static bool stays(const struct removal *m, const char *hash)
{
    const int32_t last = m->commits.n - 1;
    return is_used(m, hash, true, last, m->files[last].n);
}

/* Marks what goes, and counts it. */
static int mark(struct removal *m, struct qr_err *err)
{
    const struct qr_hub_file *opens;
    int rc = 0;
    m->files = qr_alloc((size_t)m->commits.n + 1, sizeof *m->files);
    for (int32_t i = 0; i < m->commits.n && rc == 0; i++) {
        struct qr_hub_files *f = &m->files[i];
        if (!qr_hub_sha1_ok(m->commits.name[i]) || !qr_hub_cache_list(f, &m->place->cache, &m->name, m->commits.name[i]))
            continue;
        const bool of_it = !m->commit[0] || strcmp(m->commit, m->commits.name[i]) == 0;
        if (of_it && m->name.file)
            rc = qr_hub_select(f, &m->name, &opens, err);
        if (rc == QR_E_USAGE)
            qr_hub_select_print(f, &m->name);
        if (rc == QR_E_NOT_FOUND && !m->commit[0]) /* of another revision, perhaps */
            rc = 0;
        for (int32_t k = 0; k < f->n && !m->name.file; k++)
            f->file[k].wanted = of_it;
    }
    for (int32_t i = 0; i < m->commits.n && rc == 0; i++)
        for (int32_t k = 0; k < m->files[i].n; k++) {
            const struct qr_hub_file *f = &m->files[i].file[k];
            m->n_files += f->wanted;
            m->n_stay += !f->wanted;
            if (f->wanted && !stays(m, f->hash) && !is_used(m, f->hash, false, i, k))
                m->n_bytes += f->n_bytes;
        }
    return rc;
}

/* Removes the directories above a file that hold nothing any more, up to the snapshot's own; true: that one too. */
static bool prune(char path[QR_PATH_MAX], const char *snapshot)
{
    while (strlen(path) > strlen(snapshot)) {
        *strrchr(path, '/') = 0;
        if (rmdir(path) != 0)
            return false;
    }
    return true;
}

/* What a branch or tag means that is gone. */
static void forget(const struct removal *m, const char *commit)
{
    char path[QR_PATH_MAX], means[QR_HUB_HASH_MAX];
    struct names refs;
    qr_hub_cache_path(path, &m->place->cache, &m->name, "refs", NULL);
    list_names(&refs, path);
    for (int32_t i = 0; i < refs.n; i++) {
        if (!qr_hub_path_ok(refs.name[i]) || !qr_hub_cache_commit(means, &m->place->cache, &m->name, refs.name[i]) || strcmp(means, commit) != 0)
            continue;
        qr_hub_cache_path(path, &m->place->cache, &m->name, "refs", refs.name[i]);
        unlink(path);
    }
    free_names(&refs);
}

static int remove_marked(const struct removal *m, struct qr_err *err)
{
    char snapshot[QR_PATH_MAX], path[QR_PATH_MAX], blob[QR_PATH_MAX];
    for (int32_t i = 0; i < m->commits.n; i++) {
        qr_hub_cache_path(snapshot, &m->place->cache, &m->name, "snapshots", m->commits.name[i]);
        for (int32_t k = 0; k < m->files[i].n; k++) {
            const struct qr_hub_file *f = &m->files[i].file[k];
            if (!f->wanted)
                continue;
            snprintf(path, sizeof path, "%.*s/%s", QR_PATH_MAX - 1100, snapshot, f->path);
            qr_hub_cache_path(blob, &m->place->cache, &m->name, "blobs", f->hash);
            if (unlink(path) != 0 && errno != ENOENT)
                return system_error(path, "removed", err);
            if (!stays(m, f->hash) && unlink(blob) != 0 && errno != ENOENT)
                return system_error(blob, "removed", err);
            if (prune(path, snapshot))
                forget(m, m->commits.name[i]);
        }
    }
    return 0;
}

/* All blobs of the model, finished or not. */
static void count_blobs(struct removal *m)
{
    char path[QR_PATH_MAX];
    struct names blobs;
    struct stat st;
    m->n_bytes = m->n_files = 0;
    qr_hub_cache_path(path, &m->place->cache, &m->name, "blobs", NULL);
    list_names(&blobs, path);
    for (int32_t i = 0; i < blobs.n; i++) {
        qr_hub_cache_path(path, &m->place->cache, &m->name, "blobs", blobs.name[i]);
        m->n_files++;
        m->n_bytes += lstat(path, &st) == 0 ? st.st_size : 0;
    }
    free_names(&blobs);
}

/* Whether another process fetches something of it. */
static bool is_being_fetched(const struct removal *m)
{
    char path[QR_PATH_MAX];
    struct names blobs;
    bool busy = false;
    qr_hub_cache_path(path, &m->place->cache, &m->name, "blobs", NULL);
    list_names(&blobs, path);
    for (int32_t i = 0; i < blobs.n; i++) {
        if (!qr_ends_with(blobs.name[i], QR_HUB_INCOMPLETE))
            continue;
        *strchr(blobs.name[i], '.') = 0; /* HASH.incomplete here, HASH.RANDOM.incomplete by huggingface_hub */
        const int lock = qr_hub_hash_ok(blobs.name[i]) ? qr_hub_cache_lock(&m->place->cache, &m->name, blobs.name[i]) : 0;
        busy |= lock < 0 && errno == EWOULDBLOCK;
        if (lock > 0)
            close(lock);
    }
    free_names(&blobs);
    return busy;
}

/* "3 files, 4.9 KiB" */
static const char *amount(char text[64], const struct removal *m)
{
    char size[QR_SIZE_TEXT];
    snprintf(text, 64, "%d file%s, %s", m->n_files, m->n_files == 1 ? "" : "s", qr_size_text(size, m->n_bytes));
    return text;
}

/* Asks on a terminal. Errors: QR_E_USAGE where there is none; QR_E_CLOSED: the answer is no. */
static int confirm(const struct removal *m, bool yes, struct qr_err *err)
{
    char text[64], answer[16] = "";
    if (yes)
        return 0;
    if (!isatty(STDIN_FILENO) || !isatty(STDERR_FILENO))
        return qr_err_set(err, QR_E_USAGE, "%s: %s: say --yes to remove that, as there is no terminal to ask on", m->name.repo,
                          amount(text, m));
    fprintf(stderr, "remove %s%s%s%s%.8s from %s: %s? [y/N] ", m->name.repo, m->name.file ? ":" : "", m->name.file ? m->name.file : "",
            m->commit[0] ? ", revision " : "", m->commit, m->place->cache.dir, amount(text, m));
    if (fgets(answer, sizeof answer, stdin) && (strcasecmp(answer, "y\n") == 0 || strcasecmp(answer, "yes\n") == 0))
        return 0;
    return qr_err_set(err, QR_E_CLOSED, "nothing was removed");
}

static int remove_whole(const struct removal *m, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct stat st;
    qr_hub_cache_path(path, &m->place->cache, &m->name, "", NULL);
    const int rc = remove_tree(path, err);
    snprintf(path, sizeof path, "%.*s/.locks/%s", QR_PATH_MAX - 300, m->place->cache.dir, m->name.folder);
    return rc || lstat(path, &st) != 0 || !S_ISDIR(st.st_mode) ? rc : remove_tree(path, err);
}

static int missing(const struct removal *m, struct qr_err *err)
{
    struct names folders;
    struct qr_hub_name near;
    list_names(&folders, m->place->cache.dir);
    const char *folder = qr_nearest(m->name.folder, (const char *const *)folders.name, folders.n);
    const bool found = folder && strcmp(folder, m->name.folder) != 0 && qr_hub_name_of_folder(&near, folder);
    qr_err_set(err, QR_E_NOT_FOUND, "%s%s%.100s is not in %.200s%s%s%s; 'quire list' says what is", m->name.repo, m->name.file ? ":" : "",
               m->name.file ? m->name.file : "", m->place->cache.dir, found ? "; did you mean '" : "", found ? near.repo : "", found ? "'?" : "");
    free_names(&folders);
    return err->code;
}

static int remove_some(struct removal *m, bool yes, struct qr_err *err)
{
    char path[QR_PATH_MAX], text[64];
    struct stat st;
    qr_hub_cache_path(path, &m->place->cache, &m->name, "", NULL);
    if (lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return missing(m, err);
    qr_hub_cache_path(path, &m->place->cache, &m->name, "snapshots", NULL);
    list_names(&m->commits, path);
    int rc = mark(m, err);
    m->whole = !m->name.file && !m->commit[0];
    if (rc == 0 && m->n_files == 0 && !m->whole)
        rc = missing(m, err);
    if (rc == 0 && is_being_fetched(m))
        rc = qr_err_set(err, QR_E_BUSY, "%s is being fetched by another program: nothing was removed", m->name.repo);
    m->whole |= m->n_stay == 0;
    if (m->whole)
        count_blobs(m);
    rc = rc ? rc : confirm(m, yes, err);
    rc = rc ? rc : m->whole ? remove_whole(m, err) : remove_marked(m, err);
    if (rc == 0)
        fprintf(stderr, "quire rm: removed %s: %s\n", m->name.repo, amount(text, m));
    return rc;
}

int qr_hub_remove(const char *model, const struct qr_hub_options *o, bool yes, struct qr_err *err)
{
    struct qr_hub_place place;
    QR_ASSERT(model != NULL && o != NULL);
    QR_ASSERT(err != NULL);
    struct removal m = {.place = &place};
    if (!qr_hub_name_parse(&m.name, model))
        return qr_err_set(err, QR_E_USAGE, "'%.200s': expected ORG/NAME or ORG/NAME:FILE, as 'quire list' shows them; nothing else is removed", model);
    int rc = qr_hub_place_find(&place, o, err);
    if (rc == 0 && o->revision && !qr_hub_cache_commit(m.commit, &place.cache, &m.name, o->revision))
        rc = qr_err_set(err, QR_E_NOT_FOUND, "%s has no revision '%.100s' in %.200s", m.name.repo, o->revision, place.cache.dir);
    rc = rc ? rc : remove_some(&m, yes, err);
    for (int32_t i = 0; m.files && i < m.commits.n; i++)
        qr_hub_files_release(&m.files[i]);
    qr_free(m.files);
    free_names(&m.commits);
    return rc;
}
