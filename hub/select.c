/* select.c - which files of a model are needed: one table of names for a directory of safetensors, one file or its parts for GGUF. Everything else stays where
 * it is, so nothing that could run code is ever fetched: no pickle, no Python. Pure functions, but for the choices that are printed. */
#include <ctype.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/files/gguf_file.h"
#include "base/mem.h"
#include "base/size.h"
#include "hub/files.h"

#define WEIGHTS "model.safetensors"
#define PARTS "model*-of-*.safetensors"

/* What the readers of a directory open, beside its weights. '*' stands for no '/'. */
static const char *const needed[] = {
    "config.json", "generation_config.json", "quantize_config.json", "quant_config.json",
    "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json",
    "chat_template.jinja", "chat_template.json", "additional_chat_templates/*.jinja",
    "modules.json", "sentence_bert_config.json", "config_sentence_transformers.json", "[0-9]_*/config.json", "[0-9]_Dense/model.safetensors",
};

static const char *name_in(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

bool qr_hub_is_gguf(const char *path)
{
    QR_ASSERT(path != NULL);
    const char *name = name_in(path);
    return qr_ends_with(name, ".gguf") && !qr_gguf_is_later_part(name) && !qr_gguf_is_projector(name);
}

int32_t qr_hub_gguf_n_parts(const struct qr_hub_file *first)
{
    QR_ASSERT(first != NULL);
    QR_ASSERT(first->path != NULL);
    const size_t n = strlen(first->path), tail = sizeof "00001-of-00003.gguf" - 1;
    int one, of;
    return n > tail && sscanf(first->path + n - tail, "%5d-of-%5d", &one, &of) == 2 ? of : 1;
}

struct qr_hub_file *qr_hub_gguf_part(const struct qr_hub_files *f, const struct qr_hub_file *first, int32_t no)
{
    char path[QR_GGUF_PATH_MAX];
    QR_ASSERT(f != NULL && first != NULL);
    QR_ASSERT(no >= 0);
    const int32_t n = qr_hub_gguf_n_parts(first);
    if (no == 0)
        return qr_hub_files_find(f, first->path);
    return no < n && qr_gguf_part_path(path, first->path, no, n) ? qr_hub_files_find(f, path) : NULL;
}

int64_t qr_hub_gguf_bytes(const struct qr_hub_files *f, const struct qr_hub_file *first)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(first != NULL);
    int64_t n_bytes = 0;
    const struct qr_hub_file *p;
    for (int32_t i = 0; (p = qr_hub_gguf_part(f, first, i)); i++)
        n_bytes += p->n_bytes;
    return n_bytes;
}

/* `few` is somewhere in `text`, in capitals or not. */
static bool contains(const char *text, const char *few)
{
    for (const size_t n = strlen(few); *text; text++) {
        size_t i = 0;
        while (i < n && tolower((unsigned char)text[i]) == tolower((unsigned char)few[i]))
            i++;
        if (i == n)
            return true;
    }
    return false;
}

/* Whether :FILE may mean it; all do where there is none. */
static bool fits(const struct qr_hub_file *e, const struct qr_hub_name *name)
{
    return qr_hub_is_gguf(e->path) && (!name->file || contains(e->path, name->file));
}

void qr_hub_select_print(const struct qr_hub_files *f, const struct qr_hub_name *name)
{
    char size[QR_SIZE_TEXT];
    int32_t n = 0;
    QR_ASSERT(f != NULL);
    QR_ASSERT(name != NULL);
    for (int32_t i = 0; i < f->n; i++)
        n += fits(&f->file[i], name);
    for (int32_t i = 0; i < f->n; i++)
        if (n > 0 ? fits(&f->file[i], name) : qr_hub_is_gguf(f->file[i].path))
            fprintf(stderr, "  %10s  %s\n", qr_size_text(size, qr_hub_gguf_bytes(f, &f->file[i])), f->file[i].path);
}

static int choose_gguf(struct qr_hub_files *f, const struct qr_hub_name *name, const struct qr_hub_file **opens, struct qr_err *err)
{
    struct qr_hub_file *chosen = name->file ? qr_hub_files_find(f, name->file) : NULL, *p;
    int32_t n = 0;
    if (chosen && qr_gguf_is_later_part(name_in(chosen->path)))
        chosen = NULL;
    if (chosen && !qr_ends_with(chosen->path, ".gguf"))
        return qr_err_set(err, QR_E_USAGE, "%s:%.200s: expected a *.gguf behind ':'; files of the other form belong together, and are fetched as %s",
                          name->repo, name->file, name->repo);
    for (int32_t i = 0; !chosen && i < f->n; i++)
        n += fits(&f->file[i], name);
    for (int32_t i = 0; n == 1 && !chosen; i++)
        chosen = fits(&f->file[i], name) ? &f->file[i] : NULL;
    if (chosen) {
        for (int32_t i = 0; (p = qr_hub_gguf_part(f, chosen, i)); i++)
            p->wanted = true;
        *opens = chosen;
        return 0;
    }
    if (n == 0)
        return qr_err_set(err, QR_E_NOT_FOUND, "%s: no GGUF file has '%.200s' in its name", name->repo, name->file);
    return qr_err_set(err, QR_E_USAGE, "%s%s%.200s: %d GGUF files fit: name one, or the part of its name that no other has, as in %s:Q4_K_M", name->repo,
                      name->file ? ":" : "", name->file ? name->file : "", n, name->repo);
}

static bool is_needed(const char *path, bool whole)
{
    for (int i = 0; i < QR_COUNT(needed); i++)
        if (fnmatch(needed[i], path, FNM_PATHNAME) == 0)
            return true;
    return whole ? strcmp(path, WEIGHTS) == 0 : strcmp(path, QR_HUB_INDEX) == 0 || fnmatch(PARTS, path, FNM_PATHNAME) == 0;
}

int qr_hub_select(struct qr_hub_files *f, const struct qr_hub_name *name, const struct qr_hub_file **opens, struct qr_err *err)
{
    QR_ASSERT(f != NULL && name != NULL);
    QR_ASSERT(opens != NULL && err != NULL);
    const bool whole = qr_hub_files_find(f, WEIGHTS) != NULL;
    const char *pickle = NULL;
    int32_t n_gguf = 0;
    for (int32_t i = 0; i < f->n; i++) {
        const char *path = f->file[i].path;
        f->file[i].wanted = false;
        n_gguf += qr_hub_is_gguf(path);
        pickle = qr_ends_with(path, ".bin") || qr_ends_with(path, ".pth") || qr_ends_with(path, ".pt") ? path : pickle;
    }
    *opens = NULL;
    if (name->file || (n_gguf > 0 && !qr_hub_files_find(f, "config.json")) || (n_gguf > 0 && !whole && !qr_hub_files_find(f, QR_HUB_INDEX)))
        return choose_gguf(f, name, opens, err);
    if (!qr_hub_files_find(f, "config.json") || (!whole && !qr_hub_files_find(f, QR_HUB_INDEX)))
        return qr_err_set(err, QR_E_NOT_FOUND, "%s: holds no model that can be read: expected config.json with " WEIGHTS " or " QR_HUB_INDEX
                          ", or a *.gguf%s%.100s%s", name->repo, pickle ? "; " : "", pickle ? pickle : "",
                          pickle ? " may be pickle, which can run code and is never fetched" : "");
    for (int32_t i = 0; i < f->n; i++)
        f->file[i].wanted = is_needed(f->file[i].path, whole);
    return 0;
}

void qr_hub_select_elsewhere(struct qr_buf *out, const struct qr_hub_name *name)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(name != NULL);
    if (name->file)
        qr_buf_printf(out, " --include '*%s*'", name->file);
    else
        qr_buf_put_str(out, " --include '*.json' --include '*.jinja' --include 'model*.safetensors'");
}
