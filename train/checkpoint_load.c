/* checkpoint_load.c - a checkpoint read back. The manifest's sizes and hashes are checked before a byte is used;
 * settings that would change the result are compared, and the first difference is named. Each rank keeps its own part
 * of what it reads, so the number of ranks may differ from that of the save. Values are taken over behind all checks.
 * The trainer's thread, at start. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/files/map_file.h"
#include "base/mem.h"
#include "loader/config/hf_config.h"
#include "loader/stores/tensor_files.h"
#include "train/checkpoint.h"
#include "train/checkpoint_parts.h"
#include "train/manifest.h"

#define CONFIG_BYTES_MAX ((size_t)4 << 20)

/* One of the two files, mapped: as bytes, and as tensors. */
struct source {
    char path[QR_PATH_MAX];
    struct qr_map_file map;    /* owned */
    struct qr_tensor_files *st; /* owned */
    struct qr_part *part;      /* owned: what is to be filled */
    int32_t n_parts;
};

static void source_close(struct source *s)
{
    qr_tensor_files_close(s->st);
    qr_map_file_close(&s->map);
    qr_free(s->part);
}

static int source_open(struct source *s, const char *dir, const char *name, struct qr_err *err)
{
    int rc = qr_path_join(s->path, dir, name, err);
    rc = rc ? rc : qr_map_file_open(&s->map, s->path, SIZE_MAX, err);
    return rc ? rc : qr_safetensors_open_memory(&s->st, s->map.data, s->map.n_bytes, s->path, err);
}

static const char *dtype_name(const struct qr_st_entry *e)
{
    return e->dtype == QR_BF16 ? "BF16" : "F32";
}

static int check_part(const struct source *s, const struct qr_part *part, struct qr_err *err)
{
    const struct qr_stored_tensor *t = qr_tensor_files_find(s->st, part->name);
    const struct qr_st_entry *e = &part->entry;
    char found[160], expected[160];
    qr_shape_text(expected, sizeof expected, e->shape, e->n_dims);
    if (!t)
        return qr_err_set(err, QR_E_INVALID, "%s: tensor %s is missing, expected %s %s by this run's model and optimizer", s->path, part->name,
                          dtype_name(e), expected);
    const bool same = t->n_dims == e->n_dims && t->shape[0] == e->shape[0] && (e->n_dims == 1 || t->shape[1] == e->shape[1]);
    if (same && t->type->computable && t->type->dtype == e->dtype)
        return 0;
    return qr_err_set(err, QR_E_INVALID, "%s: tensor %s is %s %s, expected %s %s by this run's model", s->path, part->name, t->type->name,
                      qr_shape_text(found, sizeof found, t->shape, t->n_dims), dtype_name(e), expected);
}

/* Every tensor is there and fits, and there are no others. */
static int check_parts(const struct source *s, bool all, struct qr_err *err)
{
    int rc = 0;
    for (int32_t i = 0; rc == 0 && i < s->n_parts; i++)
        rc = check_part(s, &s->part[i], err);
    if (rc || !all || qr_tensor_files_count(s->st) == s->n_parts)
        return rc;
    for (int32_t i = 0; i < qr_tensor_files_count(s->st); i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_at(s->st, i);
        bool known = false;
        for (int32_t k = 0; !known && k < s->n_parts; k++)
            known = strcmp(s->part[k].name, t->name) == 0;
        if (!known)
            return qr_err_set(err, QR_E_INVALID, "%s: tensor %s is there, expected none of that name by this run's model and optimizer", s->path, t->name);
    }
    return 0;
}

static int check_hash(const struct source *s, const struct qr_manifest *m, const char *name, struct qr_err *err)
{
    const struct qr_manifest_file *f = qr_manifest_find(m, name);
    if (!f)
        return qr_err_set(err, QR_E_DAMAGED, "%s: is not listed in " QR_MANIFEST_NAME ", expected its size and hash there", s->path);
    uint64_t hash = 0;
    for (size_t at = 0, n; at < s->map.n_bytes; at += n) { /* no more than a block in memory: beside the run's own there may be no room */
        n = s->map.n_bytes - at < QR_FILE_BLOCK_BYTES ? s->map.n_bytes - at : QR_FILE_BLOCK_BYTES;
        hash = qr_file_hash_more(hash, s->map.data + at, n);
        qr_map_file_drop(&s->map, at, n);
    }
    if (hash == f->hash)
        return 0;
    return qr_err_set(err, QR_E_DAMAGED, "%s: its bytes have changed since they were written: hash %016" PRIx64 ", expected %016" PRIx64
                      " by " QR_MANIFEST_NAME "; without this directory a run resumes from the checkpoint before it", s->path, hash, f->hash);
}

/* Others' parts of what was filled are dropped again, before the next tensor comes. */
static void keep_own(const struct qr_part *part, struct qr_params *p, const struct qr_optim *o)
{
    if (o && o->comm && (part->array == o->m || part->array == o->v))
        qr_shares_drop_foreign(&o->shares, part->array, sizeof(float), part->first, part->first + part->param->n);
    else if (p->hold.filled)
        p->hold.filled(p->hold.user, p, part->param);
}

/* Copies out what is to be filled, and gives the pages back. */
static void fill(const struct source *s, struct qr_params *p, const struct qr_optim *o)
{
    for (int32_t i = 0; i < s->n_parts; i++) {
        const struct qr_stored_tensor *t = qr_tensor_files_find(s->st, s->part[i].name);
        p->be->mem->put(p->be->queue, s->part[i].data, qr_tensor_files_data(s->st, t), t->n_bytes);
        keep_own(&s->part[i], p, o);
        qr_map_file_drop(&s->map, t->offset, t->n_bytes);
    }
}

/* ---- the configuration ---- */

/* The first line that differs; lines end with "\n". */
static bool first_difference(const char **a, int *n_a, const char **b, int *n_b)
{
    while (**a && **b) {
        *n_a = (int)strcspn(*a, "\n");
        *n_b = (int)strcspn(*b, "\n");
        if (*n_a != *n_b || memcmp(*a, *b, (size_t)*n_a) != 0)
            return true;
        *a += *n_a + 1;
        *b += *n_b + 1;
    }
    *n_a = (int)strlen(*a);
    *n_b = (int)strlen(*b);
    return *n_a != *n_b;
}

/* Shapes alone do not tell a number of heads or a rotary base: both configurations are written down and compared line by line. */
static int compare_configs(const char *path, const struct qr_model_config *found, const struct qr_model_config *expected, struct qr_err *err)
{
    struct qr_buf x = {0}, y = {0};
    int rc = 0, n_a, n_b;
    qr_hf_config_write(&x, found);
    qr_hf_config_write(&y, expected);
    const char *a = x.data, *b = y.data;
    if (first_difference(&a, &n_a, &b, &n_b)) {
        const int indent_a = (int)strspn(a, " "), indent_b = (int)strspn(b, " ");
        rc = qr_err_set(err, QR_E_INVALID, "%s: is of another model: found %.*s expected %.*s by this run", path, n_a - indent_a, a + indent_a,
                        n_b - indent_b, b + indent_b);
    }
    qr_buf_release(&x), qr_buf_release(&y);
    return rc;
}

static int check_config(const char *dir, const struct qr_params *p, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    struct qr_map_file file;
    struct qr_model_config found, expected = p->config;
    expected.stored = p->compute;
    int rc = qr_path_join(path, dir, "config.json", err);
    if (rc || (rc = qr_map_file_open(&file, path, CONFIG_BYTES_MAX, err)) != 0)
        return rc;
    rc = qr_hf_config_parse(&found, (const char *)file.data, file.n_bytes, NULL, 0, err);
    qr_map_file_close(&file);
    if (rc)
        return qr_err_prefix(err, "%s/", dir);
    return compare_configs(path, &found, &expected, err);
}

/* ---- the whole ---- */

static int read_manifest(struct qr_manifest *m, const char *path, struct qr_err *err)
{
    int rc = qr_manifest_read(m, path, err);
    if (rc == QR_E_NOT_FOUND)
        qr_err_prefix(err, "%s is no checkpoint: ", path);
    return rc ? rc : qr_manifest_check_sizes(m, path, err);
}

int qr_checkpoint_read_state(const char *path, struct qr_checkpoint_state *state, struct qr_err *err)
{
    QR_ASSERT(path != NULL);
    QR_ASSERT(state != NULL && err != NULL);
    struct qr_manifest m;
    const int rc = read_manifest(&m, path, err);
    if (rc == 0)
        *state = m.state;
    return rc;
}

static int check_kind(const struct qr_manifest *m, const struct qr_optim *o, const char *path, struct qr_err *err)
{
    if (!o || strcmp(m->optimizer, qr_optim_kind(o)) == 0)
        return 0;
    return qr_err_set(err, QR_E_INVALID, "%s/" QR_MANIFEST_NAME ": optimizer is \"%s\", expected \"%s\" by this run", path, m->optimizer, qr_optim_kind(o));
}

static int open_both(struct source *model, struct source *moments, const char *path, struct qr_params *p, struct qr_optim *o, const struct qr_manifest *m,
                     struct qr_err *err)
{
    int rc;
    model->n_parts = qr_parts_of_model(&model->part, p);
    moments->n_parts = qr_parts_of_optim(&moments->part, p, o);
    if ((rc = source_open(model, path, QR_MODEL_FILE, err)) || (rc = source_open(moments, path, QR_OPTIMIZER_FILE, err)) ||
        (rc = check_parts(model, true, err)) || (rc = check_config(path, p, err)) || (rc = check_kind(m, o, path, err)) ||
        (rc = check_parts(moments, o != NULL, err)) || (rc = check_hash(model, m, QR_MODEL_FILE, err)))
        return rc;
    return check_hash(moments, m, QR_OPTIMIZER_FILE, err);
}

int qr_checkpoint_load(const char *path, struct qr_params *params, struct qr_optim *optim, struct qr_checkpoint_state *state, struct qr_err *err)
{
    QR_ASSERT(path != NULL && params != NULL && err != NULL);
    QR_ASSERT(!optim || optim->params == params);
    struct qr_manifest m;
    struct source model = {0}, moments = {0};
    int rc = read_manifest(&m, path, err);
    rc = rc ? rc : open_both(&model, &moments, path, params, optim, &m, err);
    if (rc == 0) {
        fill(&model, params, optim);
        fill(&moments, params, optim);
        qr_params_pack(params);
    }
    if (rc == 0 && optim)
        optim->step = m.state.step;
    if (rc == 0 && state)
        *state = m.state;
    source_close(&model);
    source_close(&moments);
    return rc;
}
