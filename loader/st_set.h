/* st_set.h - inside loader/ only: the set of tensors behind struct qr_safetensors, whatever kind of file filled it. */
#ifndef QR_LOADER_ST_SET_H
#define QR_LOADER_ST_SET_H

#include "base/map.h"
#include "base/map_file.h"
#include "loader/st_header.h"

struct qr_st_shard {
    char *name;             /* owned; inside the directory */
    struct qr_map_file map; /* owned unless the bytes are borrowed */
};

struct qr_safetensors {
    struct qr_st_shard *shard; /* owned [n_shards] */
    int32_t n_shards;
    bool borrowed;          /* the one shard's bytes are the caller's */
    struct qr_st_list list;
    struct qr_map by_name;  /* name -> index */
};

struct qr_safetensors *qr_st_set_new(void);
int32_t qr_st_set_add_shard(struct qr_safetensors *st, const char *name, size_t len); /* its index */

/* One more entry, of zeros, at the end of the list. */
struct qr_st_tensor *qr_st_list_add(struct qr_st_list *list);

#endif
