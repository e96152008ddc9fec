/* map.h - byte strings to int32 values; open addressing, never shrinks, no deletion. Keys are borrowed: they must outlive
 * the map. For vocabularies, tensor names and option names, built once and then read by any thread.
 */
#ifndef QR_BASE_MAP_H
#define QR_BASE_MAP_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct qr_map_slot {
    const char *key; /* borrowed; NULL when the slot is empty */
    uint32_t len, hash;
    int32_t value;
};

struct qr_map {
    struct qr_map_slot *slot; /* owned [cap] */
    uint32_t n, cap;
    uint64_t seed; /* random: keys come from files, so that colliding ones cannot be prepared */
};

void qr_map_init(struct qr_map *m, size_t n_expected);
void qr_map_release(struct qr_map *m);

/* Adds key -> value. False (and nothing changed) when the key is already there. */
bool qr_map_add(struct qr_map *m, const char *key, size_t len, int32_t value);

/* The value, or `missing`. */
int32_t qr_map_find(const struct qr_map *m, const char *key, size_t len, int32_t missing);

#endif
