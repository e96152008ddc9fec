/* other_files.h - files of a model directory that are never used: weights in pickles, which can run code when they are read, and code. They are only counted
 * and named, so that one knows. */
#ifndef QR_LOADER_STORES_OTHER_FILES_H
#define QR_LOADER_STORES_OTHER_FILES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define QR_OTHER_SHOWN 8

/* GGUF: in a directory that is read for its config.json. */
enum qr_other { QR_OTHER_PICKLE, QR_OTHER_CODE, QR_OTHER_GGUF, QR_OTHER_SAFETENSORS, QR_OTHER_COUNT };

struct qr_other_files {
    int32_t n[QR_OTHER_COUNT];                       /* how many there are */
    char name[QR_OTHER_COUNT][QR_OTHER_SHOWN][96];   /* the first of them by name, cut where they are long */
    bool auto_map;                                   /* config.json names classes of code beside it */
};

/* Of a directory. What cannot be read holds none, and what lies beside a file that is a model by itself is none of its. */
void qr_other_files_find(struct qr_other_files *out, const char *model);

/* "a.bin, b.bin and 3 more" of a kind into text; "" where there are none. Returns text. */
const char *qr_other_files_text(char *text, size_t n, const struct qr_other_files *o, enum qr_other kind);

/* One line in the log for each kind that there is. */
void qr_other_files_log(const char *model);

#endif
