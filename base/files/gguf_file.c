#include "base/files/gguf_file.h"

#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "base/assert.h"

#define TAIL ".gguf"
#define PART_TAIL_LEN (sizeof "-00001-of-00003.gguf" - 1)

static bool is_gguf_file(const char *path)
{
    char head[4];
    struct stat st;
    if (stat(path, &st) != 0 || !S_ISREG(st.st_mode))
        return false;
    FILE *f = fopen(path, "rb");
    const bool is = f && fread(head, 1, sizeof head, f) == sizeof head && qr_gguf_is(head, sizeof head);
    if (f)
        fclose(f);
    return is;
}

bool qr_gguf_part_path(char out[QR_GGUF_PATH_MAX], const char *path, int32_t no, int32_t n)
{
    QR_ASSERT(out != NULL && path != NULL);
    QR_ASSERT(no >= 0 && no < n);
    const size_t len = strlen(path);
    int one, of, used = 0;
    if (len <= PART_TAIL_LEN || n > 99999)
        return false;
    const char *tail = path + len - PART_TAIL_LEN;
    if (sscanf(tail, "-%5d-of-%5d.gguf%n", &one, &of, &used) != 2 || used != (int)PART_TAIL_LEN || of != n)
        return false;
    snprintf(out, QR_GGUF_PATH_MAX, "%.*s-%05d-of-%05d" TAIL, (int)(len - PART_TAIL_LEN), path, no + 1, n);
    return true;
}

bool qr_gguf_is_later_part(const char *name)
{
    QR_ASSERT(name != NULL);
    const size_t n = strlen(name);
    int one, of, used = 0;
    return n > PART_TAIL_LEN && sscanf(name + n - PART_TAIL_LEN, "-%5d-of-%5d.gguf%n", &one, &of, &used) == 2 && used == (int)PART_TAIL_LEN && one > 1;
}

/* A directory of a model, or a part of one, in the other form. */
static bool has_json(const char *model)
{
    static const char *const names[] = {"config.json", "tokenizer.json", "tokenizer_config.json"};
    char path[QR_GGUF_PATH_MAX];
    struct stat st;
    for (int i = 0; i < QR_COUNT(names); i++) {
        snprintf(path, sizeof path, "%s/%s", model, names[i]);
        if (stat(path, &st) == 0)
            return true;
    }
    return false;
}

bool qr_gguf_is_projector(const char *name)
{
    QR_ASSERT(name != NULL);
    return strncmp(name, "mmproj", 6) == 0;
}

bool qr_gguf_find_file(char path[QR_GGUF_PATH_MAX], const char *model)
{
    QR_ASSERT(path != NULL && model != NULL);
    int32_t n[2] = {0}; /* models, and what is none */
    snprintf(path, QR_GGUF_PATH_MAX, "%s", model);
    if (is_gguf_file(path))
        return true;
    DIR *d = has_json(model) ? NULL : opendir(model);
    for (struct dirent *e; d && (e = readdir(d));) {
        const size_t len = strlen(e->d_name);
        if (len <= sizeof TAIL - 1 || strcmp(e->d_name + len - (sizeof TAIL - 1), TAIL) != 0 || qr_gguf_is_later_part(e->d_name))
            continue;
        const bool aside = qr_gguf_is_projector(e->d_name);
        n[aside]++;
        if (aside && n[0] > 0)
            continue;
        snprintf(path, QR_GGUF_PATH_MAX, "%s/%s", model, e->d_name);
    }
    if (d)
        closedir(d);
    return (n[0] == 1 || (n[0] == 0 && n[1] == 1)) && is_gguf_file(path);
}

bool qr_gguf_is_adapter(const struct qr_gguf *g)
{
    QR_ASSERT(g != NULL);
    static const char adapter[] = "adapter";
    struct qr_gguf_text type = {0};
    struct qr_err err = {0};
    return qr_gguf_string(g, "general.type", &type, NULL, &err) == 0 && type.n == strlen(adapter) && memcmp(type.at, adapter, strlen(adapter)) == 0;
}

int qr_gguf_file_open(struct qr_gguf_file *f, const char *path, struct qr_err *err)
{
    QR_ASSERT(f != NULL && path != NULL);
    QR_ASSERT(err != NULL);
    *f = (struct qr_gguf_file){0};
    int rc = qr_map_file_open_to_read(&f->map, path, SIZE_MAX, err);
    if (rc)
        return rc;
    rc = qr_gguf_open(&f->g, f->map.data, f->map.n_bytes, path, err);
    if (rc)
        qr_map_file_close(&f->map);
    return rc;
}

void qr_gguf_file_close(struct qr_gguf_file *f)
{
    QR_ASSERT(f != NULL);
    qr_gguf_close(f->g);
    if (f->g)
        qr_map_file_close(&f->map);
    f->g = NULL;
}
