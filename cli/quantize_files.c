/* quantize_files.c - the files beside the weights of a quantized model: config.json, tokenizer, sentence-transformers'
 * stages, licences. Only files of a table of names are copied, none that could be run. It also decides whether an
 * existing output may be replaced and whether a leftover of a killed run may be removed: only what this command alone
 * can have written. Main thread, offline. */
#include "cli/quantize_files.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/json.h"
#include "base/log.h"
#include "base/files/map_file.h"
#include "loader/config/hf_config.h"
#include "loader/config/pooling.h"
#include "tokenizer/gguf_tokens.h"
#include "train/data/tokenizer_files.h"

#define CONFIG_BYTES_MAX ((size_t)1 << 30)

/* Of a stage: what it is, and a Dense stage's weights, which stay as they are. */
static const char *const of_stage[] = {"config.json", "model.safetensors"};

/* Beside the tokenizer's files: how embeddings are made, how a processor is set up, terms of use. */
static const char *const others[] = {"modules.json", "config_sentence_transformers.json", "sentence_bert_config.json", "preprocessor_config.json",
                                     "processor_config.json", "LICENSE", "LICENSE.txt", "NOTICE"};

void qr_quantize_files_release(struct qr_quantize_files *f)
{
    QR_ASSERT(f != NULL);
    qr_buf_release(&f->names);
    *f = (struct qr_quantize_files){0};
}

static int write_file(void *user, const char *name, const void *bytes, size_t n, struct qr_err *err)
{
    struct qr_quantize_files *f = user;
    qr_buf_printf(&f->names, "%s%s", f->names.len ? ", " : "", name);
    return qr_dir_write(f->dir, name, bytes, n, true, err);
}

/* ---- configuration ---- */

static int write_config(struct qr_quantize_files *f, const struct qr_source *source, const struct qr_model_config *c, const struct qr_quantize_options *how,
                        struct qr_err *err)
{
    struct qr_buf told = {0}, text = {0};
    int rc = qr_hf_config_text(&told, source, err);
    if (rc)
        return rc;
    if (told.len == 0)
        qr_hf_config_write(&told, c);
    rc = qr_quantize_config(&text, told.data, told.len, c, how, err);
    rc = rc ? rc : write_file(f, "config.json", text.data, text.len, err);
    qr_buf_release(&told);
    qr_buf_release(&text);
    return rc;
}

/* ---- tokenizer ---- */

static int tell_tokenizer(struct qr_quantize_files *f, const struct qr_gguf *g, struct qr_err *err)
{
    struct qr_buf vocabulary = {0}, config = {0};
    int rc = qr_gguf_tokenizer_json(&vocabulary, g, err);
    rc = rc ? rc : qr_gguf_tokenizer_config(&config, g, err);
    if (rc == 0 && f)
        rc = write_file(f, "tokenizer.json", vocabulary.data, vocabulary.len, err);
    if (rc == 0 && f)
        rc = write_file(f, "tokenizer_config.json", config.data, config.len, err);
    qr_buf_release(&vocabulary);
    qr_buf_release(&config);
    return rc;
}

int qr_quantize_files_check(const struct qr_source *source, struct qr_err *err)
{
    QR_ASSERT(source != NULL);
    QR_ASSERT(err != NULL);
    if (!qr_source_gguf(source))
        return 0;
    const int rc = tell_tokenizer(NULL, qr_source_gguf(source), err);
    return rc ? qr_err_prefix(err, "%s: its tokenizer cannot be written as tokenizer.json: ", qr_source_gguf_path(source)) : 0;
}

/* ---- stages ---- */

struct copying {
    struct qr_quantize_files *f;
    const char *from;
};

static int copy_stage(void *user, const char *stage, struct qr_err *err)
{
    const struct copying *c = user;
    struct qr_quantize_files *f = c->f;
    char name[QR_PATH_MAX], path[QR_PATH_MAX];
    int rc = qr_path_join(name, stage, "config.json", err);
    rc = rc ? rc : qr_path_join(path, c->from, name, err);
    if (rc || access(path, F_OK) != 0) /* Normalize has none */
        return rc;
    if (strchr(stage, '/'))
        return qr_err_set(err, QR_E_UNSUPPORTED, "modules.json: stage %.100s: expected a directory beside it", stage);
    rc = qr_path_join(path, f->dir, stage, err);
    if (rc)
        return rc;
    if (mkdir(path, 0777) != 0 && errno != EEXIST)
        return qr_err_set(err, QR_E_IO, "%s: cannot be made: %s", path, strerror(errno));
    for (int i = 0; i < QR_COUNT(of_stage) && rc == 0; i++) {
        rc = qr_path_join(name, stage, of_stage[i], err);
        rc = rc ? rc : qr_files_of(c->from, (const char *const[]){name}, 1, write_file, f, err);
    }
    return rc ? rc : qr_dir_sync(path, err);
}

int qr_quantize_files_write(struct qr_quantize_files *f, const char *dir, const struct qr_source *source, const struct qr_model_config *c,
                            const struct qr_quantize_options *how, struct qr_err *err)
{
    QR_ASSERT(f != NULL && dir != NULL && source != NULL);
    QR_ASSERT(c != NULL && how != NULL && err != NULL);
    const char *from = qr_source_model(source);
    f->dir = dir;
    int rc = write_config(f, source, c, how, err);
    if (rc || qr_source_gguf(source))
        return rc ? rc : tell_tokenizer(f, qr_source_gguf(source), err);
    rc = qr_tokenizer_files(from, write_file, f, err);
    rc = rc ? rc : qr_files_of(from, others, QR_COUNT(others), write_file, f, err);
    return rc ? rc : qr_pooling_stages(from, copy_stage, &(struct copying){f, from}, err);
}

/* What copy_stage makes, and no more. Whatever stays, removing the directory around it says. */
static int remove_stage(void *user, const char *stage, struct qr_err *err)
{
    const char *dir = user;
    char path[QR_PATH_MAX], file[QR_PATH_MAX];
    struct stat st;
    if (strchr(stage, '/') || qr_path_join(path, dir, stage, err) != 0 || lstat(path, &st) != 0 || !S_ISDIR(st.st_mode))
        return 0;
    for (int i = 0; i < QR_COUNT(of_stage); i++)
        if (qr_path_join(file, path, of_stage[i], err) == 0)
            unlink(file);
    rmdir(path);
    return 0;
}

int qr_quantize_files_remove(const char *dir, struct qr_err *err)
{
    struct qr_err unread;
    QR_ASSERT(dir != NULL);
    QR_ASSERT(err != NULL);
    qr_pooling_stages(dir, remove_stage, (void *)(uintptr_t)dir, &unread);
    return qr_dir_remove(dir, err);
}

/* ---- what is there already ---- */

struct entry {
    const char *name;
    bool is_stage;
};

static int compare_stage(void *user, const char *stage, struct qr_err *err)
{
    struct entry *e = user;
    e->is_stage = e->is_stage || strcmp(stage, e->name) == 0;
    return 0;
}

/* Whether qr_quantize_files_write, or what writes the weights, makes something of this name in `dir`. */
static bool is_ours(const char *dir, const char *name)
{
    struct qr_err unread;
    struct entry e = {.name = name};
    bool ours = strcmp(name, "config.json") == 0 || strcmp(name, "model.safetensors") == 0 || qr_tokenizer_file_known(name);
    for (int i = 0; i < QR_COUNT(others) && !ours; i++)
        ours = strcmp(name, others[i]) == 0;
    if (!ours)
        qr_pooling_stages(dir, compare_stage, &e, &unread);
    return ours || e.is_stage;
}

static bool is_quantized(const char *dir)
{
    char path[QR_PATH_MAX];
    struct qr_map_file file;
    struct qr_json *root = NULL;
    struct qr_err unread;
    if (qr_path_join(path, dir, "config.json", &unread) != 0 ||
        qr_map_file_open(&file, path, CONFIG_BYTES_MAX, &unread) != 0)
        return false;
    const bool yes = qr_json_parse(&root, file.data ? (const char *)file.data : "", file.n_bytes, &qr_json_limits_request, &unread) == 0 &&
                     qr_json_type(root) == QR_JSON_T_OBJECT && qr_json_find(root, "quantization_config") != NULL;
    qr_json_free(root);
    qr_map_file_close(&file);
    return yes;
}

/* The first name in `dir` that is not ours, or "". n: how many names there are. False: it cannot be read. */
static bool first_other(char other[NAME_MAX + 1], int32_t *n, const char *dir)
{
    DIR *d = opendir(dir);
    other[0] = 0;
    *n = 0;
    for (struct dirent *e; d && !other[0] && (e = readdir(d)) != NULL;) {
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        ++*n;
        if (!is_ours(dir, e->d_name))
            snprintf(other, NAME_MAX + 1, "%.*s", NAME_MAX, e->d_name);
    }
    if (d)
        closedir(d);
    return d != NULL;
}

int qr_quantize_files_replaceable(const char *dir, struct qr_err *err)
{
    struct stat st;
    char other[NAME_MAX + 1];
    int32_t n;
    QR_ASSERT(dir != NULL);
    QR_ASSERT(err != NULL);
    if (lstat(dir, &st) != 0)
        return 0;
    if (!S_ISDIR(st.st_mode) || !first_other(other, &n, dir))
        return qr_err_set(err, QR_E_USAGE, "'%s' exists and is not a directory that can be replaced; it is left alone", dir);
    if (other[0])
        return qr_err_set(err, QR_E_USAGE, "'%s' holds '%s', which quire quantize has not written; it is left alone", dir, other);
    if (n > 0 && !is_quantized(dir))
        return qr_err_set(err, QR_E_USAGE, "'%s' is not a quantized model (no quantization_config in its config.json); it is left alone", dir);
    return 0;
}

/* ---- what killed runs have left ---- */

int qr_quantize_files_hold(const char *dir)
{
    QR_ASSERT(dir != NULL);
    QR_ASSERT(dir[0] != 0);
    const int fd = open(dir, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
        return fd;
    if (fd >= 0)
        close(fd);
    return -1;
}

/* The head, and the number of a process that is no more. Our own number was another's: this run has made nothing yet. */
static bool is_leftover(const char *name, const char *head, size_t n_head)
{
    const char *tail = name + n_head;
    if (strncmp(name, head, n_head) != 0 || tail[0] < '1' || tail[0] > '9' || tail[strspn(tail, "0123456789")] != 0)
        return false;
    const long pid = strtol(tail, NULL, 10);
    return pid <= INT32_MAX && (pid == getpid() || (kill((pid_t)pid, 0) != 0 && errno == ESRCH));
}

static void clean(const char *dir)
{
    char other[NAME_MAX + 1];
    struct stat st;
    struct qr_err err;
    int32_t n;
    const int fd = qr_quantize_files_hold(dir); /* process numbers may mean nothing here (another container): the process that fills it holds it */
    if (fd < 0)
        return;
    if (fstat(fd, &st) != 0 || st.st_uid != geteuid() || !first_other(other, &n, dir))
        snprintf(other, sizeof other, "files of somebody else");
    if (other[0])
        qr_log(QR_LOG_WARN, "quantize", "%s: a run that was killed has left it; it stays, as it holds %s", dir, other);
    else if (qr_quantize_files_remove(dir, &err) != 0)
        qr_log(QR_LOG_WARN, "quantize", "what a run that was killed has left stays: %s", err.msg);
    else
        qr_log(QR_LOG_WARN, "quantize", "%s: a run that was killed had left it; it is removed", dir);
    close(fd);
}

void qr_quantize_files_clean(const char *spare)
{
    char parent[QR_PATH_MAX], head[QR_PATH_MAX], path[QR_PATH_MAX];
    struct qr_err err;
    QR_ASSERT(spare != NULL);
    const char *slash = strrchr(spare, '/'), *name = slash ? slash + 1 : spare, *dot = strrchr(name, '.');
    QR_ASSERT(dot != NULL && strlen(spare) < QR_PATH_MAX);
    snprintf(parent, sizeof parent, "%.*s", slash ? (int)(slash - spare) : 1, slash ? spare : ".");
    snprintf(head, sizeof head, "%.*s", (int)(dot + 1 - name), name);
    DIR *d = opendir(parent[0] ? parent : "/");
    for (struct dirent *e; d && (e = readdir(d)) != NULL;)
        if (is_leftover(e->d_name, head, strlen(head)) && qr_path_join(path, parent, e->d_name, &err) == 0)
            clean(path);
    if (d)
        closedir(d);
}
