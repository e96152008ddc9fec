/* files.h - the files of one revision of a model, as the hub lists them or as the cache has them, and which of them are needed.
 *
 * What is listed comes from the network: every name and hash has passed name.h, every size is bounded. One owner; no state of its own.
 */
#ifndef QR_HUB_FILES_H
#define QR_HUB_FILES_H

#include <stdbool.h>
#include <stdint.h>

#include "hub/name.h"

#define QR_HUB_INDEX "model.safetensors.index.json" /* names the shards of a model */
#define QR_HUB_FILES_MAX 50000
#define QR_HUB_BYTES_MAX ((int64_t)1 << 50) /* of all files */

struct qr_hub_file {
    char *path;                 /* owned: "config.json" */
    int64_t n_bytes;
    char hash[QR_HUB_HASH_MAX]; /* SHA-256 of a large file; of others git's SHA-1: the name of its blob */
    bool wanted;                /* by qr_hub_select */
};

struct qr_hub_files { /* empty when zeroed */
    struct qr_hub_file *file; /* owned [n] */
    int32_t n, cap;
    int64_t n_bytes;
};

void qr_hub_files_release(struct qr_hub_files *f);

/* Errors: QR_E_DAMAGED for a path that could lead elsewhere, a hash that is none, a size that cannot be; QR_E_TOO_LARGE. */
int qr_hub_files_add(struct qr_hub_files *f, const char *path, int64_t n_bytes, const char *hash, struct qr_err *err);

/* The file of that path, or NULL. */
struct qr_hub_file *qr_hub_files_find(const struct qr_hub_files *f, const char *path);

/* Appends what a page of the hub's tree API lists. Errors: those, and QR_E_DAMAGED for what is no such page. */
int qr_hub_tree_parse(struct qr_hub_files *f, const char *text, size_t len, struct qr_err *err);

/* The commit that an answer about a revision names. Errors: QR_E_DAMAGED. */
int qr_hub_commit_parse(char commit[QR_HUB_HASH_MAX], const char *text, size_t len, struct qr_err *err);

/* Appends names of models, in quotes, with commas: of the answer to a search; nothing of any other text. */
void qr_hub_search_parse(struct qr_buf *out, const char *text, size_t len);

/* The URL of rel="next" in a Link header, or false. */
bool qr_hub_link_next(char *out, size_t n_out, const char *header);

/* Marks what is needed to serve the model, and nothing else: never what could run code. *opens: the file that names the model, a GGUF (or its first part), or
 * NULL: their directory does. Errors: QR_E_NOT_FOUND: no model that can be read, or no such :FILE; QR_E_USAGE: several fit. */
int qr_hub_select(struct qr_hub_files *f, const struct qr_hub_name *name, const struct qr_hub_file **opens, struct qr_err *err);

/* Then: a line on stderr for each GGUF file that fits, or for all where none does, with its size. */
void qr_hub_select_print(const struct qr_hub_files *f, const struct qr_hub_name *name);

/* The same pattern in words for other programs: flags of `hf download`. */
void qr_hub_select_elsewhere(struct qr_buf *out, const struct qr_hub_name *name);

bool qr_hub_is_gguf(const char *path);        /* a model's, or the first part of one; no projector, no later part */

/* A GGUF that was split is told by its first part; one that was not has one. */
int32_t qr_hub_gguf_n_parts(const struct qr_hub_file *first);
struct qr_hub_file *qr_hub_gguf_part(const struct qr_hub_files *f, const struct qr_hub_file *first, int32_t no); /* from 0; NULL: it is not listed */
int64_t qr_hub_gguf_bytes(const struct qr_hub_files *f, const struct qr_hub_file *first); /* all parts', up to one that is not listed */

#endif
