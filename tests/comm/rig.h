/* rig.h - random calls of a comm checked bit for bit. Every rank computes everybody's arrays from (seed, call, rank) and adds them one element after the
 * other, so that threads, processes and mpirun's ranks run the same test. */
#ifndef QR_TESTS_COMM_RIG_H
#define QR_TESTS_COMM_RIG_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/clock.h"
#include "base/rng.h"
#include "comm/comm.h"

#define CHECK(cond)                                                                                        \
    do {                                                                                                   \
        if (!(cond)) {                                                                                     \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);                              \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

/* A call must work; prints the error otherwise. */
#define CHECK_OK(call)                                                                                     \
    do {                                                                                                   \
        if ((call) != 0) {                                                                                 \
            fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #call, err.msg);                         \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

#define RIG_UNDER_WAY 5

/* What must happen within two seconds may take longer here: tests run beside builds, and at a low priority. Otherwise it would never happen. */
#define SOON_US 15000000

struct rig_call {
    struct qr_comm_call call;
    int64_t part[QR_COMM_RANKS_MAX + 1];
    uint64_t seed;
    int64_t ticket;
    bool shared; /* the array came from qr_comm_alloc */
};

static inline uint64_t rig_mix(uint64_t x)
{
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
    return x ^ (x >> 31);
}

static inline uint64_t rig_bits(const struct rig_call *k, int32_t rank, int64_t i)
{
    return rig_mix(k->seed + rig_mix((uint64_t)rank * 0x9e3779b97f4a7c15u + (uint64_t)i + 1));
}

/* Sums: numbers between 2^-12 and 2^12, so that the order of additions shows. */
static inline double rig_number(const struct rig_call *k, int32_t rank, int64_t i)
{
    const uint64_t bits = rig_bits(k, rank, i);
    const double m = 1 + (double)(bits >> 12) * 0x1p-52;
    return ((bits & 1) ? -m : m) * (double)(1u << (bits >> 1 & 15)) * (1.0 / 4096) * ((bits >> 5 & 1) ? 1 : 16);
}

static inline bool rig_sums(const struct rig_call *k)
{
    return k->call.kind == QR_COMM_ALL_REDUCE || k->call.kind == QR_COMM_REDUCE_SCATTER;
}

/* What rank has at i before the call. */
static inline void rig_put(const struct rig_call *k, int32_t rank, int64_t i, void *out)
{
    const uint64_t bits = rig_bits(k, rank, i);
    const float single = (float)rig_number(k, rank, i);
    const double twice = rig_number(k, rank, i);
    memcpy(out, !rig_sums(k) ? (const void *)&bits : k->call.dtype == QR_F32 ? (const void *)&single : (const void *)&twice, qr_dtype_bytes(k->call.dtype));
}

static inline float rig_tree_f32(const struct rig_call *k, int32_t first, int32_t end, int64_t i)
{
    int32_t half = 1;
    if (end - first == 1)
        return (float)rig_number(k, first, i);
    while (half * 2 < end - first)
        half *= 2;
    return rig_tree_f32(k, first, first + half, i) + rig_tree_f32(k, first + half, end, i);
}

static inline double rig_tree_f64(const struct rig_call *k, int32_t first, int32_t end, int64_t i)
{
    int32_t half = 1;
    if (end - first == 1)
        return rig_number(k, first, i);
    while (half * 2 < end - first)
        half *= 2;
    return rig_tree_f64(k, first, first + half, i) + rig_tree_f64(k, first + half, end, i);
}

/* What must be there afterwards. */
static inline void rig_expect(const struct rig_call *k, int32_t size, int32_t owner, int64_t i, void *out)
{
    const int32_t from = k->call.kind == QR_COMM_BROADCAST ? k->call.root : owner;
    if (!rig_sums(k)) {
        rig_put(k, from, i, out);
    } else if (k->call.dtype == QR_F32) {
        const float sum = rig_tree_f32(k, 0, size, i);
        memcpy(out, &sum, sizeof sum);
    } else {
        const double sum = rig_tree_f64(k, 0, size, i);
        memcpy(out, &sum, sizeof sum);
    }
}

/* Elements in all rows. */
static inline int64_t rig_count(const struct rig_call *k)
{
    return (k->call.n_rows > 0 ? k->call.n_rows : 1) * k->call.n;
}

/* Call number i of a run, the same on every rank but for the array. n_max elements at most. */
static inline void rig_make(struct rig_call *k, struct qr_comm *c, uint64_t seed, int64_t number, int64_t n_max)
{
    static const enum qr_dtype sums[] = {QR_F32, QR_F32, QR_F64}, copies[] = {QR_F32, QR_F16, QR_BF16, QR_I8, QR_I32, QR_F64};
    struct qr_rng r = {.seed = seed + 77 * (uint64_t)number};
    struct qr_err err;
    *k = (struct rig_call){.seed = rig_mix(seed ^ (uint64_t)number)};
    k->call.kind = (enum qr_comm_kind)qr_rng_below(&r, 5 + (number % 7 == 0));
    k->call.dtype = rig_sums(k) ? sums[qr_rng_below(&r, 3)] : copies[qr_rng_below(&r, 6)];
    if (k->call.kind == QR_COMM_BARRIER)
        return;
    const int64_t bound[] = {1, 20, 5000, n_max};
    k->call.n = qr_rng_below(&r, (uint32_t)bound[qr_rng_below(&r, 4)] + 1);
    k->call.root = (int32_t)qr_rng_below(&r, (uint32_t)c->size);
    for (int32_t p = 1; p < c->size; p++) /* random, some empty */
        k->part[p] = k->part[p - 1] + (qr_rng_below(&r, 4) == 0 ? 0 : (int64_t)qr_rng_below(&r, (uint32_t)(2 * k->call.n / c->size) + 1));
    for (int32_t p = 1; p < c->size; p++)
        k->part[p] = k->part[p] < k->call.n ? k->part[p] : k->call.n;
    k->part[c->size] = k->call.n;
    if (k->call.kind == QR_COMM_REDUCE_SCATTER || k->call.kind == QR_COMM_ALL_GATHER || k->call.kind == QR_COMM_GATHER)
        k->call.part = k->part;
    if (k->call.kind == QR_COMM_GATHER)
        k->call.n_rows = 1 + (int32_t)qr_rng_below(&r, 4);
    const size_t width = qr_dtype_bytes(k->call.dtype), n_bytes = (size_t)rig_count(k) * width + 8;
    k->shared = qr_rng_below(&r, 2) == 0 || (c->rank == 1 && qr_rng_below(&r, 2) == 0); /* mostly all, sometimes one rank alone */
    if (k->shared)
        CHECK_OK(qr_comm_alloc(c, &k->call.data, n_bytes, &err));
    else
        k->call.data = malloc(n_bytes);
    for (int64_t i = 0; i < rig_count(k); i++)
        rig_put(k, c->rank, i, (char *)k->call.data + (size_t)i * width);
}

/* Row 0 of anything but a gather is all there is. */
static inline void rig_check_part(const struct rig_call *k, const struct qr_comm *c, int32_t row, int32_t p)
{
    const size_t width = qr_dtype_bytes(k->call.dtype);
    const bool whole = k->call.part == NULL;
    for (int64_t at = whole ? 0 : k->part[p]; at < (whole ? (p == 0 ? k->call.n : 0) : k->part[p + 1]); at++) {
        const int64_t i = row * k->call.n + at;
        char want[8];
        rig_expect(k, c->size, p, i, want);
        if (memcmp(want, (char *)k->call.data + (size_t)i * width, width) != 0) {
            fprintf(stderr, "rank %d of %d: kind %d, %s, element %lld of %lld differs\n", c->rank, c->size, k->call.kind, qr_dtype_name(k->call.dtype),
                    (long long)i, (long long)k->call.n);
            exit(1);
        }
    }
}

static inline void rig_check(struct rig_call *k, struct qr_comm *c)
{
    const bool one = k->call.kind == QR_COMM_REDUCE_SCATTER || (k->call.kind == QR_COMM_GATHER && c->rank != k->call.root);
    for (int32_t row = 0; k->call.n > 0 && (row == 0 || row < k->call.n_rows); row++)
        for (int32_t p = 0; p < c->size; p++)
            if (!one || p == c->rank)
                rig_check_part(k, c, row, p);
    if (k->shared)
        qr_comm_free(c, k->call.data);
    else
        free(k->call.data);
}

/* n_calls random calls, up to RIG_UNDER_WAY at the same time, waited for in random portions; and what was counted. */
static inline void rig_run(struct qr_comm *c, uint64_t seed, int64_t n_calls, int64_t n_max)
{
    struct rig_call call[RIG_UNDER_WAY];
    struct qr_rng r = {.seed = seed ^ (uint64_t)c->rank << 32};
    struct qr_err err;
    int64_t checked = 0, n_bytes = c->stats.n_bytes;
    const int64_t before = c->stats.n_calls;
    for (int64_t n = 0; n < n_calls; n++) {
        struct rig_call *k = &call[n % RIG_UNDER_WAY];
        rig_make(k, c, seed, n, n_max);
        n_bytes += rig_count(k) * (int64_t)qr_dtype_bytes(k->call.dtype);
        if (n == checked && qr_rng_below(&r, 2) == 0) { /* nothing is under way: often without the comm's thread, on some ranks and not on others */
            CHECK_OK(qr_comm_run(c, &k->call, &err));
            rig_check(k, c);
            checked++;
            continue;
        }
        CHECK_OK(qr_comm_start(c, &k->call, &k->ticket, &err));
        const int64_t keep = n == n_calls - 1 ? 0 : (int64_t)qr_rng_below(&r, RIG_UNDER_WAY);
        if (n + 1 - checked > keep)
            CHECK_OK(qr_comm_wait(c, call[(n - keep) % RIG_UNDER_WAY].ticket, &err));
        for (; n + 1 - checked > keep; checked++)
            rig_check(&call[checked % RIG_UNDER_WAY], c);
    }
    CHECK(c->stats.n_calls == before + n_calls && c->stats.n_bytes == n_bytes);
}

#endif
