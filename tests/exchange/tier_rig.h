/* tier_rig.h - a file tier in a directory of its own, and blocks of which each byte follows from the name. For Criterion's programs and plain ones. */
#ifndef QR_TESTS_TIER_RIG_H
#define QR_TESTS_TIER_RIG_H

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/rng.h"
#include "exchange/file_tier.h"

enum { BLOCK = 20000, PARCELS = 4 }; /* no whole pages */

static inline struct qr_kv_name name_of(int32_t i)
{
    struct qr_kv_name name;
    uint32_t words[8];
    qr_rng_words(words, 77, 1, (uint64_t)i);
    qr_rng_words(words + 4, 77, 2, (uint64_t)i);
    memcpy(&name, words, sizeof name);
    return name;
}

static inline void fill(uint8_t bytes[BLOCK], const struct qr_kv_name *name)
{
    uint64_t v;
    memcpy(&v, name, sizeof v);
    for (size_t i = 0; i < BLOCK; i += 8) {
        v = v * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        memcpy(bytes + i, &v, BLOCK - i < 8 ? BLOCK - i : 8);
    }
}

static inline bool is_right(const struct qr_parcel *parcel)
{
    uint8_t wanted[BLOCK];
    fill(wanted, &parcel->name);
    return memcmp(wanted, parcel->bytes, BLOCK) == 0;
}

static inline void nap(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 100000}, NULL);
}

static inline struct qr_file_tier_config tier_config(const char *dir, int64_t bytes_max, uint8_t domain)
{
    return (struct qr_file_tier_config){.dir = dir, .bytes_max = bytes_max, .domain.byte = {domain}, .block_bytes = BLOCK, .n_parcels = PARCELS};
}

static inline struct qr_file_tier *tier_open(const char *dir, int64_t bytes_max, uint8_t domain)
{
    struct qr_file_tier *t;
    struct qr_err err = {0};
    const struct qr_file_tier_config c = tier_config(dir, bytes_max, domain);
    if (qr_file_tier_open(&t, &c, &err) == 0)
        return t;
    fprintf(stderr, "not opened: %s\n", err.msg);
    QR_ASSERT(false);
    return NULL;
}

/* Gives blocks [first, end) to be written; waits for parcels, not for the disk. */
static inline void give(struct qr_file_tier *t, int32_t first, int32_t end)
{
    for (int32_t i = first; i < end; i++) {
        struct qr_parcel *p;
        while (!(p = qr_file_tier_parcel(t)))
            nap();
        p->name = name_of(i);
        fill(p->bytes, &p->name);
        qr_file_tier_write(t, p);
    }
}

/* Waits until all that was given has been written, or was not. */
static inline void settle(struct qr_file_tier *t)
{
    struct qr_parcel *p[PARCELS];
    for (int32_t n = 0; n < PARCELS;) {
        p[n] = qr_file_tier_parcel(t);
        if (p[n])
            n++;
        else
            nap();
    }
    for (int32_t n = 0; n < PARCELS; n++)
        qr_parcel_give_back(p[n]);
}

static inline int32_t count_found(const struct qr_file_tier *t, int32_t first, int32_t end)
{
    int32_t n = 0;
    for (int32_t i = first; i < end; i++) {
        const struct qr_kv_name name = name_of(i);
        n += qr_file_tier_has(t, &name);
    }
    return n;
}

/* Reads blocks [first, end) to the end of the fetch: how many came. All of them are right and came in order, or it is -1. */
static inline int32_t fetch_all(struct qr_file_tier *t, int32_t first, int32_t end, const char **why)
{
    struct qr_kv_name names[1024];
    QR_ASSERT(end - first <= 1024);
    for (int32_t i = first; i < end; i++)
        names[i - first] = name_of(i);
    struct qr_fetch f = {.names = names, .first = 0, .n = end - first};
    struct qr_node arrived, over;
    qr_list_init(&arrived);
    qr_list_init(&over);
    int32_t n = 0;
    bool good = true;
    for (qr_file_tier_fetch(t, &f); qr_list_empty(&over); nap()) {
        qr_file_tier_take(t, &arrived, &over);
        for (struct qr_node *node; (node = qr_list_pop_front(&arrived)) != NULL; n++) {
            struct qr_parcel *p = QR_CONTAINER(node, struct qr_parcel, link);
            good = good && p->fetch == &f && p->index == n && memcmp(&p->name, &names[n], sizeof p->name) == 0 && is_right(p);
            qr_parcel_give_back(p);
        }
    }
    *why = f.why;
    return good ? n : -1;
}

/* Of [first, end) how many are found and then read; each alone. -1: one of them was wrong. */
static inline int32_t read_each(struct qr_file_tier *t, int32_t first, int32_t end)
{
    int32_t n_read = 0;
    for (int32_t i = first; i < end; i++) {
        const struct qr_kv_name name = name_of(i);
        const char *why = NULL;
        const int32_t n = qr_file_tier_has(t, &name) ? fetch_all(t, i, i + 1, &why) : 0;
        if (n < 0)
            return -1;
        n_read += n;
    }
    return n_read;
}

static inline void remove_dir(const char *dir)
{
    struct qr_err err;
    qr_dir_remove(dir, &err);
}

#endif
