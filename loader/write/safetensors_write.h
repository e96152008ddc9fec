/* safetensors_write.h - one safetensors file, written from front to back: the header first, then every tensor's bytes in the order of the list.
 *
 * Tensors lie one behind the other without holes, the data begins at a multiple of 64, so mapped matrices are aligned as long as their sizes are.
 * Other tools expect "format": "pt" in the metadata of a model's file; it is always there. One owning thread.
 * Source: the format's README in huggingface/safetensors.
 */
#ifndef QR_LOADER_WRITE_SAFETENSORS_WRITE_H
#define QR_LOADER_WRITE_SAFETENSORS_WRITE_H

#include <stdint.h>

#include "base/err.h"
#include "base/file.h"
#include "kernels/dtype.h"

struct qr_st_entry {
    const char *name;    /* borrowed for the call */
    enum qr_dtype dtype; /* f32, f16, bf16, i8 or i32 */
    const char *type;    /* of elements of a type that nothing here computes with: "I64", "F8_E4M3". NULL: dtype's */
    int32_t type_bytes;  /* of one of these */
    int32_t n_dims;      /* 1 to 3 */
    int64_t shape[3];
};

/* One more line of metadata. */
struct qr_st_note {
    const char *key, *value; /* borrowed for the call */
};

struct qr_st_out {
    struct qr_file_out file;
    uint64_t left;       /* bytes of data that are still to come */
};

int64_t qr_st_entry_count(const struct qr_st_entry *e);  /* elements */
uint64_t qr_st_entry_bytes(const struct qr_st_entry *e);

/* Makes the file and writes its header. */
int qr_st_out_open(struct qr_st_out *o, const char *path, const struct qr_st_entry *entry, int32_t n, const struct qr_st_note *note, int32_t n_notes,
                   struct qr_err *err);

/* The next n bytes of data. */
int qr_st_out_put(struct qr_st_out *o, const void *bytes, size_t n, struct qr_err *err);

/* Requires that all data have been put. o->file.hash is the file's. */
int qr_st_out_close(struct qr_st_out *o, bool sync, struct qr_err *err);
void qr_st_out_abandon(struct qr_st_out *o); /* after an error */

#endif
