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

/* Bytes of a file of a set. */
struct qr_file_range {
    int32_t shard;
    uint64_t offset, n_bytes;
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
    const struct qr_stored_tensor *held; /* of a thread's own view (qr_tensor_files_hold): what of it is asked for was read to memory; NULL: none */
    uintptr_t held_at;      /* where its bytes would begin */
    struct qr_file_range around; /* likewise: all tensors that lie in it were read; n_bytes 0: none */
    const uint8_t *around_at;    /* borrowed */
};

#define QR_HOLD_ROOM 64 /* bytes that `room` has more than what is read to it */

/* Reads bytes [at, at + n_bytes) of t to `room`, or QR_HOLD_ROOM bytes behind its begin where that is faster. `view` becomes st but for them: a reader of t
 * that keeps to those bytes finds them there. It is this thread's, is not closed, and lasts as long as st and `room` do. False: the file has become shorter, or
 * cannot be read. Requires qr_tensor_files_holds. */
bool qr_tensor_files_hold(struct qr_tensor_files *view, const struct qr_tensor_files *st, const struct qr_stored_tensor *t, uint64_t at, size_t n_bytes,
                          void *room);

/* The same of all tensors that lie in a range of a file. */
bool qr_tensor_files_hold_range(struct qr_tensor_files *view, const struct qr_tensor_files *st, const struct qr_file_range *range, void *room);
bool qr_tensor_files_holds(const struct qr_tensor_files *st, const struct qr_stored_tensor *t);

/* Before t is looked at where its file is mapped. False: the file has become shorter since, and a look may be a signal (SIGBUS). Where files do not stay open
 * nobody knows. */
bool qr_tensor_files_there(const struct qr_tensor_files *st, const struct qr_stored_tensor *t);

/* Whether all files are in memory, most likely. */
bool qr_tensor_files_cached(const struct qr_tensor_files *st);

/* qr_tensor_files_drop_others in pieces, which threads share. */
int32_t qr_tensor_files_n_pieces(const struct qr_tensor_files *st);
void qr_tensor_files_drop_piece(const struct qr_tensor_files *st, const struct qr_stored_tensor *kept, int32_t piece);

struct qr_tensor_files *qr_tensor_files_new(void);
void qr_tensor_files_place(struct qr_tensor_files *st, const char *path); /* of what was opened */
int32_t qr_tensor_files_add(struct qr_tensor_files *st, const char *name, size_t len); /* its index */

static inline bool qr_file_range_has(const struct qr_file_range *r, const struct qr_stored_tensor *t)
{
    return t->n_bytes > 0 && t->shard == r->shard && t->offset >= r->offset && t->n_bytes <= r->n_bytes && t->offset - r->offset <= r->n_bytes - t->n_bytes;
}

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
