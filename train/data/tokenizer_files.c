#include "train/data/tokenizer_files.h"

#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/files/map_file.h"

#define BYTES_MAX ((size_t)1 << 30)

static const char *const names[] = {"tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json", "vocab.json", "merges.txt",
                                    "tokenizer.model", "chat_template.jinja", "chat_template.json", "generation_config.json"};

int qr_tokenizer_files(const char *dir, int (*each)(void *user, const char *name, const void *bytes, size_t n, struct qr_err *err), void *user,
                       struct qr_err *err)
{
    QR_ASSERT(dir != NULL && each != NULL);
    QR_ASSERT(err != NULL);
    int rc = 0;
    for (int i = 0; i < QR_COUNT(names) && rc == 0; i++) {
        char path[QR_PATH_MAX];
        struct qr_map_file file;
        struct qr_err why;
        rc = qr_path_join(path, dir, names[i], err);
        const int opened = rc ? rc : qr_map_file_open(&file, path, BYTES_MAX, &why);
        if (rc || opened == QR_E_NOT_FOUND)
            continue;
        if (opened) {
            *err = why;
            return opened;
        }
        rc = each(user, names[i], file.data, file.n_bytes, err);
        qr_map_file_close(&file);
    }
    return rc;
}

bool qr_tokenizer_file_known(const char *name)
{
    QR_ASSERT(name != NULL);
    bool known = false;
    for (int i = 0; i < QR_COUNT(names) && !known; i++)
        known = strcmp(name, names[i]) == 0;
    return known;
}
