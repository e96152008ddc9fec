/* kv_name.h - names of full blocks that mean the same in every process: a chain of SHA-256 over what a block's content is a function of.
 *
 *     root = SHA-256(domain, salt, adapter)          name(block) = SHA-256(name of the block before, or the root; its ids, int32 little-endian)
 *
 * The domain is the model's: two processes whose domains are equal would compute the same bits. So a block that comes by its name from elsewhere is what this
 * process would have computed. The salt is the tenant's (server/keys.h), the adapter that of its files; who does not know both finds nothing.
 *
 * A pool keeps a name for each full block once qr_kv_names_open was called, finds entries by name, and notes what becomes of them in a ring, which the
 * engine takes after each step. A ring that is full loses notes and says so. Engine thread; nothing is allocated after opening. */
#ifndef QR_KVCACHE_KV_NAME_H
#define QR_KVCACHE_KV_NAME_H

#include "kvcache/kv_pool.h"

#define QR_KV_NAME_BYTES 32

struct qr_kv_name {
    uint8_t byte[QR_KV_NAME_BYTES];
};

void qr_kv_name_root(struct qr_kv_name *out, const struct qr_kv_name *domain, struct qr_hash128 salt, struct qr_hash128 adapter);
void qr_kv_name_chain(struct qr_kv_name *out, const struct qr_kv_name *parent, const int32_t *ids, int32_t n_ids);

/* Names of the n_ids / block_tokens full blocks of ids. Any thread. */
void qr_kv_name_all(struct qr_kv_name *out, const struct qr_kv_name *root, const int32_t *ids, int32_t n_ids, int32_t block_tokens);

/* From now on p has names; before any block was entered. The ring has room for n_notes notes (>= 16). */
void qr_kv_names_open(struct qr_kv_pool *p, int32_t n_notes);
bool qr_kv_has_names(const struct qr_kv_pool *p);
size_t qr_kv_names_bytes(int32_t n_all, int32_t block_tokens, int32_t n_notes);

/* Behind qr_kv_prefix_enter of `block`, whatever that returned: its name, chained from that of `parent` (-1: from the root). about: the caller's, for the
 * note. Without names it does nothing. */
void qr_kv_name_enter(struct qr_kv_pool *p, int32_t block, int32_t parent, const struct qr_kv_name *root, const int32_t *ids, int32_t about);

/* The entry of this name, of the second tier only where the first has none, or -1. No reference is taken: it is valid until the next call that takes a block.
 * Its content is there when the pool's moves are worked off. What finds a prefix by its ids may not find it, where an entry before it was given up. */
int32_t qr_kv_name_find(const struct qr_kv_pool *p, const struct qr_kv_name *name);

enum qr_kv_note_kind {
    QR_KV_STORED,  /* an entry came: name, parent's name, ids */
    QR_KV_REMOVED, /* its content was given up */
    QR_KV_MOVED,   /* it is of the other tier now: host says which */
    QR_KV_CLEARED, /* all of them were, or notes were lost before this one: what is known of earlier ones is void */
};

struct qr_kv_note {
    enum qr_kv_note_kind kind;
    int32_t block, about;
    bool host, first;              /* host: of the second tier now; first: parent is a root */
    struct qr_kv_name name, parent;
    const int32_t *ids;            /* [block_tokens] of STORED, and of MOVED to the first tier where its parent is an entry, or none; else NULL. Valid
                                    * until the next call of qr_kv_note_take */
};

/* The oldest note; false: there is none. */
bool qr_kv_note_take(struct qr_kv_pool *p, struct qr_kv_note *out);
int64_t qr_kv_notes_lost(const struct qr_kv_pool *p); /* ever */

#endif
