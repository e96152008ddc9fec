/* checkpoint.c - saves of a run, in the order that checkpoint.h gives: files, directory, rename, link, and older ones
 * removed last. A process killed anywhere in between leaves the checkpoint before in place (tests/train/test_crash.c).
 * It also finds the newest checkpoint and removes what killed saves have left. Rank 0 writes; the others bring their
 * parts. The trainer's thread. */
#include "train/checkpoint.h"

#include <dirent.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/mem.h"
#include "loader/config/hf_config.h"
#include "train/checkpoint_parts.h"
#include "train/manifest.h"
#include "train/data/tokenizer_files.h"

#define STEP_FORMAT "step-%08" PRId64
#define SAVING ".saving-"
#define REMOVING ".removing-"
#define LINKING ".latest-"

/* ---- writing a directory ---- */

struct saver {
    const struct qr_checkpoint_source *src;
    const char *dir;            /* being filled */
    struct qr_manifest *m;
    struct qr_err *err;
};

static int write_bytes(struct saver *s, const char *name, const void *bytes, size_t n)
{
    const int rc = qr_dir_write(s->dir, name, bytes, n, true, s->err);
    if (rc == 0)
        qr_manifest_add(s->m, name, n, qr_file_hash(bytes, n));
    return rc;
}

static int write_config(struct saver *s)
{
    struct qr_model_config c = s->src->params->config;
    struct qr_buf text = {0};
    c.stored = s->src->params->compute;
    int rc = qr_hf_config_write_kept(&text, &c, s->src->model_config, s->err);
    rc = rc ? rc : write_bytes(s, "config.json", text.data, text.len);
    qr_buf_release(&text);
    return rc;
}

static int put_bytes(void *user, const void *bytes, size_t n, struct qr_err *err)
{
    return qr_st_out_put(user, bytes, n, err);
}

static int write_parts(struct saver *s, const char *name, const struct qr_part *part, int32_t n)
{
    char path[QR_PATH_MAX];
    struct qr_st_out out;
    struct qr_st_entry *entry = qr_alloc((size_t)n + 1, sizeof *entry);
    for (int32_t i = 0; i < n; i++)
        entry[i] = part[i].entry;
    int rc = qr_path_join(path, s->dir, name, s->err);
    rc = rc ? rc : qr_st_out_open(&out, path, entry, n, NULL, 0, s->err);
    qr_free(entry);
    if (rc)
        return rc;
    rc = qr_parts_walk(s->src, part, n, put_bytes, &out, s->err);
    if (rc) {
        qr_st_out_abandon(&out);
        return rc;
    }
    rc = qr_st_out_close(&out, true, s->err);
    if (rc == 0)
        qr_manifest_add(s->m, name, out.file.n_bytes, out.file.hash);
    return rc;
}

/* The error is the saver's. */
static int copy_file(void *user, const char *name, const void *bytes, size_t n, struct qr_err *err)
{
    return write_bytes(user, name, bytes, n);
}

static int write_model(struct saver *s)
{
    struct qr_part *part;
    const int32_t n = qr_parts_of_model(&part, s->src->params);
    int rc = write_config(s);
    rc = rc ? rc : write_parts(s, QR_MODEL_FILE, part, n);
    qr_free(part);
    return rc == 0 && s->src->tokenizer_dir ? qr_tokenizer_files(s->src->tokenizer_dir, copy_file, s, s->err) : rc;
}

/* What makes a checkpoint of a model's directory; trainer.json last. */
static int write_run(struct saver *s)
{
    struct qr_part *part;
    const int32_t n = qr_parts_of_optim(&part, s->src->params, s->src->optim);
    int rc = write_parts(s, QR_OPTIMIZER_FILE, part, n);
    qr_free(part);
    if (rc == 0 && s->src->config_text)
        rc = write_bytes(s, "train.yaml", s->src->config_text, strlen(s->src->config_text));
    if (rc)
        return rc;
    struct qr_buf text = {0};
    qr_manifest_format(&text, s->m);
    rc = qr_dir_write(s->dir, QR_MANIFEST_NAME, text.data, text.len, true, s->err);
    qr_buf_release(&text);
    return rc;
}

/* Fills `spare` and gives it the name `path`. state NULL: an export. */
static int write_directory(const char *spare, const char *path, const struct qr_checkpoint_source *src, const struct qr_checkpoint_state *state,
                           bool replace, struct qr_err *err)
{
    struct qr_manifest m = {0};
    struct saver s = {.src = src, .dir = spare, .m = &m, .err = err};
    struct qr_err ignored;
    int rc = qr_dir_make_fresh(spare, err);
    if (rc)
        return rc;
    if (state) {
        m.state = *state;
        snprintf(m.optimizer, sizeof m.optimizer, "%s", qr_optim_kind(src->optim));
    }
    rc = write_model(&s);
    if (rc == 0 && state)
        rc = write_run(&s);
    rc = rc ? rc : qr_dir_sync(spare, err);
    rc = rc ? rc : qr_dir_publish(spare, path, replace, err);
    if (rc || access(spare, F_OK) == 0) /* unfinished, or what was replaced */
        qr_dir_remove(spare, &ignored);
    return rc;
}

static int spare_name(char out[QR_PATH_MAX], const char *dir, const char *prefix, const char *name, struct qr_err *err)
{
    char text[320];
    snprintf(text, sizeof text, "%s%.255s.%ld", prefix, name, (long)getpid());
    return qr_path_join(out, dir, text, err);
}

int qr_export_paths(char path[QR_PATH_MAX], char spare[QR_PATH_MAX], const char *dir, bool replace, struct qr_err *err)
{
    QR_ASSERT(path != NULL && spare != NULL && err != NULL);
    QR_ASSERT(dir != NULL);
    size_t n = strlen(dir);
    if (n == 0 || n >= QR_PATH_MAX)
        return qr_err_set(err, QR_E_USAGE, "a directory's name of %zu bytes, expected 1 to %d", n, QR_PATH_MAX - 1);
    while (n > 1 && dir[n - 1] == '/')
        n--;
    snprintf(path, QR_PATH_MAX, "%.*s", (int)n, dir);
    char *slash = strrchr(path, '/');
    const char *name = slash ? slash + 1 : path;
    int rc;
    if (!slash) {
        rc = spare_name(spare, ".", SAVING, name, err);
    } else {
        *slash = '\0';
        rc = spare_name(spare, slash == path ? "/" : path, SAVING, name, err);
        *slash = '/';
    }
    if (rc == 0 && !replace && access(path, F_OK) == 0)
        return qr_err_set(err, QR_E_IO, "%s already exists; name another directory", path);
    return rc;
}

int qr_model_export(const char *dir, const struct qr_checkpoint_source *src, bool replace, struct qr_err *err)
{
    QR_ASSERT(dir != NULL && src != NULL && err != NULL);
    QR_ASSERT(src->params != NULL);
    char path[QR_PATH_MAX], spare[QR_PATH_MAX];
    int rc = qr_export_paths(path, spare, dir, replace, err);
    return rc ? rc : write_directory(spare, path, src, NULL, replace, err);
}

/* ---- the run's directory ---- */

/* The step of a name of ours, or -1. */
static int64_t step_of(const char *name)
{
    char again[32];
    if (strncmp(name, "step-", 5) != 0 || strlen(name) >= sizeof again)
        return -1;
    const int64_t step = strtoll(name + 5, NULL, 10);
    snprintf(again, sizeof again, STEP_FORMAT, step);
    return step >= 0 && strcmp(name, again) == 0 ? step : -1;
}

static int by_falling_step(const void *a, const void *b)
{
    const int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

static int cannot_list(const char *dir, struct qr_err *err)
{
    const int number = errno;
    char text[128];
    return qr_err_set(err, number == ENOENT ? QR_E_NOT_FOUND : QR_E_IO, "%s: cannot be listed: %s", dir, qr_errno_text(text, number));
}

/* Steps that have a directory, the latest first; to be freed. */
static int list_steps(const char *run_dir, int64_t **out, int32_t *n, struct qr_err *err)
{
    DIR *d = opendir(run_dir);
    if (!d)
        return cannot_list(run_dir, err);
    int32_t cap = 0;
    *out = NULL;
    *n = 0;
    for (struct dirent *e; (e = readdir(d));) {
        const int64_t step = step_of(e->d_name);
        if (step < 0)
            continue;
        if (*n == cap)
            *out = qr_realloc(*out, (size_t)(cap = cap ? 2 * cap : 16), sizeof **out);
        (*out)[(*n)++] = step;
    }
    closedir(d);
    if (*n > 1)
        qsort(*out, (size_t)*n, sizeof **out, by_falling_step);
    return 0;
}

static int step_path(char path[QR_PATH_MAX], const char *run_dir, int64_t step, struct qr_err *err)
{
    char name[32];
    snprintf(name, sizeof name, STEP_FORMAT, step);
    return qr_path_join(path, run_dir, name, err);
}

/* Takes the name away first: what is half removed is no checkpoint. */
static int remove_step(const char *run_dir, int64_t step, struct qr_err *err)
{
    char path[QR_PATH_MAX], spare[QR_PATH_MAX], name[32], text[128];
    snprintf(name, sizeof name, STEP_FORMAT, step);
    int rc = step_path(path, run_dir, step, err);
    rc = rc ? rc : spare_name(spare, run_dir, REMOVING, name, err);
    if (rc)
        return rc;
    if (rename(path, spare) != 0)
        return qr_err_set(err, QR_E_IO, "%s: cannot be removed: %s", path, qr_errno_text(text, errno));
    return qr_dir_remove(spare, err);
}

static int remove_older(const char *run_dir, int64_t step, int32_t keep, struct qr_err *err)
{
    int64_t *list;
    int32_t n, seen = 0;
    int rc = keep > 0 ? list_steps(run_dir, &list, &n, err) : 0;
    if (keep == 0 || rc)
        return rc;
    for (int32_t i = 0; rc == 0 && i < n; i++)
        if (list[i] <= step && ++seen > keep)
            rc = remove_step(run_dir, list[i], err);
    qr_free(list);
    return rc;
}

static int point_latest(const char *run_dir, int64_t step, struct qr_err *err)
{
    char path[QR_PATH_MAX], spare[QR_PATH_MAX], name[32];
    snprintf(name, sizeof name, STEP_FORMAT, step);
    int rc = qr_path_join(path, run_dir, "latest", err);
    rc = rc ? rc : spare_name(spare, run_dir, LINKING, "link", err);
    return rc ? rc : qr_link_replace(path, spare, name, err);
}

int qr_checkpoint_save(const char *run_dir, const struct qr_checkpoint_source *src, const struct qr_checkpoint_state *state, int32_t keep,
                       char path[QR_PATH_MAX], struct qr_err *err)
{
    QR_ASSERT(run_dir != NULL && src != NULL && state != NULL && path != NULL);
    QR_ASSERT(src->params != NULL && src->optim != NULL && keep >= 0);
    QR_ASSERT(state->step == src->optim->step);
    char spare[QR_PATH_MAX], name[32];
    snprintf(name, sizeof name, STEP_FORMAT, state->step);
    int rc = step_path(path, run_dir, state->step, err);
    rc = rc ? rc : spare_name(spare, run_dir, SAVING, name, err);
    rc = rc ? rc : write_directory(spare, path, src, state, true, err);
    if (rc)
        return rc;
    rc = point_latest(run_dir, state->step, err);
    rc = rc ? rc : remove_older(run_dir, state->step, keep, err);
    return rc ? qr_err_prefix(err, "%s is complete, but: ", path) : 0;
}

static int let_go(void *user, const void *bytes, size_t n, struct qr_err *err)
{
    return 0;
}

int qr_checkpoint_follow(const struct qr_checkpoint_source *src, struct qr_err *err)
{
    QR_ASSERT(src != NULL && src->params != NULL);
    QR_ASSERT(err != NULL);
    struct qr_part *part;
    if (!src->bring)
        return 0;
    int32_t n = qr_parts_of_model(&part, src->params);
    int rc = qr_parts_walk(src, part, n, let_go, NULL, err);
    qr_free(part);
    if (rc || !src->optim)
        return rc;
    n = qr_parts_of_optim(&part, src->params, src->optim);
    rc = qr_parts_walk(src, part, n, let_go, NULL, err);
    qr_free(part);
    return rc;
}

int qr_checkpoint_latest(const char *run_dir, char path[QR_PATH_MAX], struct qr_err *err)
{
    return qr_checkpoint_find(run_dir, path, NULL, NULL, err);
}

int qr_checkpoint_find(const char *run_dir, char path[QR_PATH_MAX], void (*passed)(void *user, const char *why), void *user, struct qr_err *err)
{
    QR_ASSERT(run_dir != NULL && path != NULL);
    QR_ASSERT(err != NULL);
    struct qr_manifest m;
    struct qr_err why = {0};
    int64_t *list;
    int32_t n;
    bool found = false;
    int rc = list_steps(run_dir, &list, &n, err);
    for (int32_t i = 0; rc == 0 && !found && i < n; i++) {
        rc = step_path(path, run_dir, list[i], err);
        found = rc == 0 && qr_manifest_read(&m, path, &why) == 0 && qr_manifest_check_sizes(&m, path, &why) == 0;
        if (rc == 0 && !found && passed)
            passed(user, why.msg);
    }
    if (rc)
        return rc;
    qr_free(list);
    if (found)
        return 0;
    path[0] = '\0';
    return qr_err_set(err, QR_E_NOT_FOUND, "%s: holds no complete checkpoint%s%s", run_dir, why.msg[0] ? ": " : "", why.msg);
}

/* A name that only a save makes, and only for as long as it lasts: a prefix of ours, and a process number behind the last dot. */
static bool is_leftover(const char *name)
{
    static const char *const prefix[] = {SAVING, REMOVING, LINKING};
    const char *dot = strrchr(name, '.');
    bool ours = false;
    for (int i = 0; i < QR_COUNT(prefix); i++)
        ours |= strncmp(name, prefix[i], strlen(prefix[i])) == 0;
    return ours && dot[1] != '\0' && dot > name && strspn(dot + 1, "0123456789") == strlen(dot + 1);
}

int qr_checkpoint_clean(const char *run_dir, int32_t *n_removed, struct qr_err *err)
{
    QR_ASSERT(run_dir != NULL);
    QR_ASSERT(err != NULL);
    char path[QR_PATH_MAX];
    int32_t n = 0;
    int rc = 0;
    DIR *d = opendir(run_dir);
    if (!d)
        return cannot_list(run_dir, err);
    for (struct dirent *e; rc == 0 && (e = readdir(d));) {
        if (!is_leftover(e->d_name))
            continue;
        rc = qr_path_join(path, run_dir, e->d_name, err);
        if (rc == 0 && unlink(path) != 0)
            rc = qr_dir_remove(path, err);
        n++;
    }
    closedir(d);
    if (n_removed)
        *n_removed = n;
    return rc;
}
