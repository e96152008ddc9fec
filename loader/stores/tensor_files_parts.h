/* tensor_files_parts.h - inside loader/ only: the set of tensors behind struct qr_tensor_files, whatever kind of file filled it. */
#ifndef QR_LOADER_STORES_TENSOR_FILES_PARTS_H
#define QR_LOADER_STORES_TENSOR_FILES_PARTS_H

#include "base/arena.h"
#include "base/map.h"
#include "base/files/map_file.h"
#include "loader/stores/tensor_files.h"

#define QR_TENSOR_FILES_READERS 128 /* files of a set that stay open: a process may have 1,024, and connections want some */

struct qr_stored_list {
    struct qr_stored_tensor *item; /* owned */
    int32_t n, cap;
    struct qr_arena names;         /* what item[].name points to */
};

struct qr_tensor_file {
    char *name;             /* owned; inside the directory */
    struct qr_map_file map; /* owned unless the bytes are borrowed */
};

#define QR_HELD_MAX 5 /* tensors of a view */

/* A tensor of which some bytes were read to memory. */
struct qr_held {
    const struct qr_stored_tensor *t; /* borrowed */
    uintptr_t at;                     /* where its first byte would be */
};

struct qr_tensor_files {
    struct qr_tensor_file *shard; /* owned [n_shards] */
    int32_t n_shards;
    char *place;            /* owned: the path of the file or directory that was opened, links resolved; NULL: not known */
    struct qr_source *source; /* owned reference: the first shard's bytes are its own; NULL: there is none */
    bool borrowed;          /* the one shard's bytes are the caller's */
    const struct qr_stored_ops *ops; /* borrowed: qr_tensor_files_use */
    struct qr_stored_list list;
    struct qr_map by_name;  /* name -> index */
    struct qr_stored_list made;  /* of several: found before those in files */
    struct qr_map made_by_name;
    struct qr_held held[QR_HELD_MAX]; /* of a thread's own view (qr_tensor_files_hold): n_held */
    int32_t n_held;
};

/* Reads bytes [at, at + n_bytes) of t to `to`: from its file, or from the mapping where the file does not stay open. Any thread. False: the file has become
 * shorter, or cannot be read. */
bool qr_tensor_files_read(const struct qr_tensor_files *st, const struct qr_stored_tensor *t, uint64_t at, size_t n_bytes, void *to);

/* `view`, a copy of a set that its thread makes for itself and does not close: bytes of t from `at` on are found at `bytes`. */
void qr_tensor_files_hold(struct qr_tensor_files *view, const struct qr_stored_tensor *t, uint64_t at, const void *bytes);

/* Before t is read from its file's mapping. False: the file has become shorter since, and reading may raise SIGBUS. It is not known
 * of files that do not stay open. */
bool qr_tensor_files_there(const struct qr_tensor_files *st, const struct qr_stored_tensor *t);

struct qr_tensor_files *qr_tensor_files_new(void);
void qr_tensor_files_place(struct qr_tensor_files *st, const char *path); /* of what was opened */
int32_t qr_tensor_files_add(struct qr_tensor_files *st, const char *name, size_t len); /* its index */

/* n numbers as they are stored, f32, f16 or bf16, at any address. */
void qr_stored_numbers(float *dst, const uint8_t *src, enum qr_dtype from, int64_t n);

/* Of one of the types of base/files/gguf.h. */
const struct qr_stored_type *qr_gguf_stored_type(uint32_t gguf);

/* The name in safetensors files of what a GGUF file of a family (NULL: unknown) calls `name`; "" for what has no counterpart.
 * Returns 'q' or 'k' where
 * converters mix the rows of such a tensor's heads (qr_stored_tensor.heads), else 0. */
char qr_gguf_tensor_name(char out[QR_STORED_NAME_MAX], const char *name, const struct qr_family *f);

/* One more entry, of zeros, at the end of the list. */
struct qr_stored_tensor *qr_stored_list_add(struct qr_stored_list *list);

/* A name of n bytes, with a 0 behind them, that lives as long as the list. */
char *qr_stored_list_name(struct qr_stored_list *list, const char *name, size_t n);

#endif
