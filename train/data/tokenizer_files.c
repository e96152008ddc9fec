#include "train/data/tokenizer_files.h"

#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/files/map_file.h"

#define BYTES_MAX ((size_t)4 << 30) /* weights of a stage behind an embedding model */

static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
                                    "tokenizer.model", "chat_template.jinja", "chat_template.json", "generation_config.json"};

int qr_files_of(const char *dir, const char *const *name, int32_t n, qr_file_taker *each, void *user,
                struct qr_err *err)
{
    QR_ASSERT(dir != NULL && each != NULL);
    QR_ASSERT(name != NULL && err != NULL);
    int rc = 0;
    for (int32_t i = 0; i < n && rc == 0; i++) {
        char path[QR_PATH_MAX];
        struct qr_map_file file;
        struct qr_err why;
        rc = qr_path_join(path, dir, name[i], err);
        const int opened = rc ? rc : qr_map_file_open(&file, path, BYTES_MAX, &why);
        if (rc || opened == QR_E_NOT_FOUND)
            continue;
        if (opened) {
            *err = why;
            return opened;
        }
        rc = each(user, name[i], file.data, file.n_bytes, err);
        qr_map_file_close(&file);
    }
    return rc;
}

int qr_tokenizer_files(const char *dir, qr_file_taker *each, void *user, struct qr_err *err)
{
    return qr_files_of(dir, names, QR_COUNT(names), each, user, err);
}

bool qr_tokenizer_file_known(const char *name)
{
    QR_ASSERT(name != NULL);
    bool known = false;
    for (int i = 0; i < QR_COUNT(names) && !known; i++)
        known = strcmp(name, names[i]) == 0;
    return known;
}
