/* json_keys.h - inside base/json only: has this object already had a member of this name?
 *
 * Cost is linear in the number of keys whatever their names: a few keys are compared one by one; from the ninth on an
 * object gets a hash table under a random secret, so that colliding names cannot be prepared. The table of a nesting
 * depth is used again by the next object at that depth; a generation number empties it without touching it.
 * Keys are compared by what they say, not by how they are escaped. Owned by one scan.
 */
#ifndef QR_BASE_JSON_KEYS_H
#define QR_BASE_JSON_KEYS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/buf.h"
#include "base/hash.h"
#include "base/json.h"

struct qr_json_key_entry {
    const char *text; /* borrowed from the input; NULL: at `at` in unescaped.data */
    size_t at, len;
    size_t offset; /* of the key in the input, for messages */
};

struct qr_json_key_table {
    struct qr_json_key_slot *slot; /* owned [cap] */
    uint32_t cap, generation;      /* slots of another generation are empty */
};

struct qr_json_keys {
    struct qr_json_key_entry *entry; /* owned [cap]; keys of all open objects, innermost last */
    size_t n, cap;
    struct qr_buf unescaped;
    struct qr_json_key_table table[QR_JSON_DEPTH_MAX]; /* by depth of the object */
    struct qr_hash_secret secret;
    bool has_secret;
};

/* A zeroed struct is ready to use. */
void qr_json_keys_release(struct qr_json_keys *k);

/* An object begins here: what close takes back to. */
struct qr_json_keys_mark {
    size_t n, unescaped;
};
struct qr_json_keys_mark qr_json_keys_open(const struct qr_json_keys *k);
void qr_json_keys_close(struct qr_json_keys *k, struct qr_json_keys_mark mark);

/* Adds the key to the object that began at `mark` at `depth` (0 is the outermost). True when it is new; otherwise
 * *first_offset says where the same key stood before. */
bool qr_json_keys_add(struct qr_json_keys *k, struct qr_json_keys_mark mark, int32_t depth,
                      const struct qr_json_token *key, size_t *first_offset);

#endif
