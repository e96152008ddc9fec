#include "train/manifest.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/files/map_file.h"

#define FORMAT 1
#define BYTES_MAX ((size_t)1 << 20)

void qr_manifest_add(struct qr_manifest *m, const char *name, uint64_t n_bytes, uint64_t hash)
{
    QR_ASSERT(m != NULL && name != NULL);
    QR_ASSERT(m->n_files < QR_MANIFEST_FILES_MAX && strlen(name) < QR_MANIFEST_NAME_MAX);
    struct qr_manifest_file *f = &m->file[m->n_files++];
    *f = (struct qr_manifest_file){.n_bytes = n_bytes, .hash = hash};
    snprintf(f->name, sizeof f->name, "%s", name);
}

const struct qr_manifest_file *qr_manifest_find(const struct qr_manifest *m, const char *name)
{
    QR_ASSERT(m != NULL);
    QR_ASSERT(name != NULL);
    for (int32_t i = 0; i < m->n_files; i++)
        if (strcmp(m->file[i].name, name) == 0)
            return &m->file[i];
    return NULL;
}

/* ---- writing ---- */

void qr_manifest_format(struct qr_buf *out, const struct qr_manifest *m)
{
    QR_ASSERT(out != NULL && m != NULL);
    QR_ASSERT(m->optimizer[0] != '\0');
    const struct qr_checkpoint_state *s = &m->state;
    qr_buf_printf(out, "{\n  \"format\": %d,\n  \"program\": \"quire " QUIRE_VERSION "\",\n  \"optimizer\": \"%s\",\n", FORMAT, m->optimizer);
    qr_buf_printf(out, "  \"step\": %" PRId64 ",\n  \"position\": %" PRId64 ",\n  \"n_tokens\": %" PRId64 ",\n  \"best_step\": %" PRId64 ",\n", s->step,
                  s->position, s->n_tokens, s->best_step);
    qr_buf_printf(out, "  \"leaves\": %" PRId64 ",\n  \"seed\": \"%" PRIu64 "\",\n  \"data_hash\": \"%016" PRIx64 "\",\n  \"best_loss\": ",
                  s->leaves, s->seed, s->data_hash);
    qr_json_put_f64(out, s->best_loss); /* null where there is none yet */
    qr_buf_put_str(out, ",\n  \"seconds\": ");
    qr_json_put_f64(out, s->seconds);
    qr_buf_put_str(out, ",\n  \"files\": {");
    for (int32_t i = 0; i < m->n_files; i++)
        qr_buf_printf(out, "%s\n    \"%s\": {\"bytes\": %" PRIu64 ", \"xxh3\": \"%016" PRIx64 "\"}", i ? "," : "", m->file[i].name, m->file[i].n_bytes,
                      m->file[i].hash);
    qr_buf_put_str(out, "\n  }\n}\n");
}

/* ---- reading ---- */

struct reader {
    const char *path;   /* of the file */
    const char *prefix; /* of the keys: "files.model.safetensors." */
    struct qr_err *err;
};

static int wrong(const struct reader *r, const char *key, const struct qr_json *v, const char *expected)
{
    struct qr_buf found = {0};
    if (v)
        qr_json_print(&found, v);
    const int rc = qr_err_set(r->err, QR_E_DAMAGED, "%s: %s%s is %.80s, expected %s", r->path, r->prefix, key, v ? found.data : "missing", expected);
    qr_buf_release(&found);
    return rc;
}

static int read_i64(const struct reader *r, const struct qr_json *o, const char *key, int64_t least, int64_t *out)
{
    const struct qr_json *v = qr_json_find(o, key);
    if (v && qr_json_i64(v, out) && *out >= least)
        return 0;
    return wrong(r, key, v, least == 0 ? "a whole number, 0 or more" : "a whole number, -1 or more");
}

/* A number in a string: base 10, or 16 digits in base 16. */
static int read_u64(const struct reader *r, const struct qr_json *o, const char *key, int base, uint64_t *out)
{
    const struct qr_json *v = qr_json_find(o, key);
    const char *text = v && qr_json_type(v) == QR_JSON_T_STRING ? qr_json_str(v, NULL) : "";
    char *end = NULL;
    errno = 0;
    *out = strtoull(text, &end, base);
    if (text[0] != '\0' && strspn(text, base == 10 ? "0123456789" : "0123456789abcdef") == strlen(text) && *end == '\0' && errno == 0 &&
        (base == 10 || strlen(text) == 16))
        return 0;
    return wrong(r, key, v, base == 10 ? "a string of decimal digits below 2^64" : "a string of 16 hexadecimal digits");
}

/* A number or null, which stands for NaN. */
static int read_f64(const struct reader *r, const struct qr_json *o, const char *key, double *out)
{
    const struct qr_json *v = qr_json_find(o, key);
    *out = NAN;
    if (!v || (qr_json_type(v) != QR_JSON_T_NUMBER && !qr_json_is_null(v)))
        return wrong(r, key, v, "a number or null");
    if (!qr_json_is_null(v))
        *out = qr_json_f64(v);
    return 0;
}

static int read_file(struct qr_manifest *m, const struct reader *r, const struct qr_json *v)
{
    const char *name = qr_json_key(v);
    char prefix[QR_MANIFEST_NAME_MAX + 8];
    const struct reader inner = {.path = r->path, .prefix = prefix, .err = r->err};
    int64_t n_bytes;
    uint64_t hash;
    int rc;
    if (m->n_files == QR_MANIFEST_FILES_MAX || strlen(name) >= QR_MANIFEST_NAME_MAX || strchr(name, '/') || name[0] == '.' || name[0] == '\0')
        return qr_err_set(r->err, QR_E_DAMAGED, "%s: files has an entry \"%.80s\", expected at most %d plain names of at most %d characters", r->path, name,
                          QR_MANIFEST_FILES_MAX, QR_MANIFEST_NAME_MAX - 1);
    snprintf(prefix, sizeof prefix, "files.%s.", name);
    if ((rc = read_i64(&inner, v, "bytes", 0, &n_bytes)) || (rc = read_u64(&inner, v, "xxh3", 16, &hash)))
        return rc;
    qr_manifest_add(m, name, (uint64_t)n_bytes, hash);
    return 0;
}

static int read_all(struct qr_manifest *m, const struct reader *r, const struct qr_json *o)
{
    struct qr_checkpoint_state *s = &m->state;
    const struct qr_json *kind = qr_json_find(o, "optimizer"), *files = qr_json_find(o, "files");
    int64_t format;
    int rc;
    if (qr_json_type(o) != QR_JSON_T_OBJECT)
        return qr_err_set(r->err, QR_E_DAMAGED, "%s: is %s, expected an object", r->path, qr_json_type_name(qr_json_type(o)));
    if ((rc = read_i64(r, o, "format", 0, &format)))
        return rc;
    if (format != FORMAT)
        return qr_err_set(r->err, QR_E_UNSUPPORTED, "%s: format is %" PRId64 ", expected %d: another version of quire wrote it", r->path, format, FORMAT);
    if (!kind || qr_json_type(kind) != QR_JSON_T_STRING || strlen(qr_json_str(kind, NULL)) >= sizeof m->optimizer)
        return wrong(r, "optimizer", kind, "the name of an optimizer");
    snprintf(m->optimizer, sizeof m->optimizer, "%s", qr_json_str(kind, NULL));
    if ((rc = read_i64(r, o, "step", 0, &s->step)) || (rc = read_i64(r, o, "position", 0, &s->position)) ||
        (rc = read_i64(r, o, "n_tokens", 0, &s->n_tokens)) || (rc = read_i64(r, o, "best_step", -1, &s->best_step)) ||
        (rc = read_u64(r, o, "seed", 10, &s->seed)) || (rc = read_u64(r, o, "data_hash", 16, &s->data_hash)) ||
        (rc = read_f64(r, o, "best_loss", &s->best_loss)) || (rc = read_f64(r, o, "seconds", &s->seconds)) ||
        (qr_json_find(o, "leaves") && (rc = read_i64(r, o, "leaves", 0, &s->leaves))))
        return rc;
    if (s->leaves & (s->leaves - 1))
        return wrong(r, "leaves", qr_json_find(o, "leaves"), "a power of two, or 0");
    if (!files || qr_json_type(files) != QR_JSON_T_OBJECT)
        return wrong(r, "files", files, "an object of file names");
    for (const struct qr_json *v = qr_json_first(files); v && rc == 0; v = qr_json_after(v))
        rc = read_file(m, r, v);
    return rc;
}

int qr_manifest_read(struct qr_manifest *m, const char *dir, struct qr_err *err)
{
    QR_ASSERT(m != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[QR_PATH_MAX];
    struct qr_map_file file;
    struct qr_json *root;
    const struct reader r = {.path = path, .prefix = "", .err = err};
    *m = (struct qr_manifest){0};
    int rc = qr_path_join(path, dir, QR_MANIFEST_NAME, err);
    if (rc || (rc = qr_map_file_open(&file, path, BYTES_MAX, err)) != 0)
        return rc;
    rc = qr_json_parse_file(&root, (const char *)file.data, file.n_bytes, &qr_json_limits_request, path, err);
    if (rc == 0) {
        rc = read_all(m, &r, root);
        qr_json_free(root);
    }
    qr_map_file_close(&file);
    return rc;
}

int qr_manifest_check_sizes(const struct qr_manifest *m, const char *dir, struct qr_err *err)
{
    QR_ASSERT(m != NULL && dir != NULL);
    QR_ASSERT(err != NULL);
    char path[QR_PATH_MAX], text[128];
    for (int32_t i = 0; i < m->n_files; i++) {
        struct stat s;
        const int rc = qr_path_join(path, dir, m->file[i].name, err);
        if (rc)
            return rc;
        if (stat(path, &s) != 0)
            return qr_err_set(err, QR_E_DAMAGED, "%s: %s, but " QR_MANIFEST_NAME " lists it with %" PRIu64 " bytes", path, qr_errno_text(text, errno),
                              m->file[i].n_bytes);
        if ((uint64_t)s.st_size != m->file[i].n_bytes)
            return qr_err_set(err, QR_E_DAMAGED, "%s: has %lld bytes, expected %" PRIu64 " by " QR_MANIFEST_NAME, path, (long long)s.st_size,
                              m->file[i].n_bytes);
    }
    return 0;
}
