/* probe.c - the machine's limits, in loops that only load or only multiply. Each level's multiplier has a loop of
 * independent chains, so that nothing waits. Rates are the best of several rounds, measured in the same run as the
 * kernels that are compared with them. Runs on all workers of the pool; the caller is worker 0. */
#include "bench/kern/probe.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "kernels/cpu/pool.h"

#define READ_ITEMS 64
#define ITEMS_PER_THREAD 4

struct reading {
    const uint64_t *memory;
    size_t n_words;
    uint64_t *sum; /* [READ_ITEMS] */
};

static void read_item(const void *arg, int32_t item, int32_t worker)
{
    (void)worker;
    const struct reading *r = arg;
    const uint64_t *p = r->memory + r->n_words / READ_ITEMS * (size_t)item;
    uint64_t s[8] = {0};
    for (size_t i = 0; i + 8 <= r->n_words / READ_ITEMS; i += 8)
        for (int j = 0; j < 8; j++)
            s[j] += p[i + (size_t)j];
    r->sum[item] = s[0] + s[1] + s[2] + s[3] + s[4] + s[5] + s[6] + s[7];
}

void qr_probe_read(struct qr_queue *q, const void *memory, size_t n_bytes)
{
    QR_ASSERT(q != NULL);
    QR_ASSERT(memory != NULL && n_bytes >= 8);
    uint64_t sum[READ_ITEMS];
    const struct reading r = {memory, n_bytes / 8, sum};
    qr_queue_run(q, read_item, &r, READ_ITEMS);
}

#if defined(__x86_64__)

/* Twelve chains: a multiply-add takes four cycles and two start in each, so eight are enough. The registers hold zeros; what is
 * multiplied does not change the time. In assembly because the baseline that this file is compiled for has none of it. */
#define ALL(op, r, tail) \
    op r "15," r "14," r "0" tail op r "15," r "14," r "1" tail op r "15," r "14," r "2" tail op r "15," r "14," r "3" tail \
    op r "15," r "14," r "4" tail op r "15," r "14," r "5" tail op r "15," r "14," r "6" tail op r "15," r "14," r "7" tail \
    op r "15," r "14," r "8" tail op r "15," r "14," r "9" tail op r "15," r "14," r "10" tail op r "15," r "14," r "11" tail
#define CLEAR(r) "vxorps " r "," r "," r "\n\t"
#define CLEAR_ALL \
    CLEAR("%%xmm0") CLEAR("%%xmm1") CLEAR("%%xmm2") CLEAR("%%xmm3") CLEAR("%%xmm4") CLEAR("%%xmm5") CLEAR("%%xmm6") CLEAR("%%xmm7") \
    CLEAR("%%xmm8") CLEAR("%%xmm9") CLEAR("%%xmm10") CLEAR("%%xmm11") CLEAR("%%xmm14") CLEAR("%%xmm15")
#define VECTOR_LOOP(name, op, r)                                                                                                          \
    static void name(int64_t n)                                                                                                           \
    {                                                                                                                                     \
        __asm__ volatile(CLEAR_ALL "1:\n\t" ALL(op " ", r, "\n\t") "dec %0\n\tjnz 1b\n\tvzeroupper"                                        \
                         : "+r"(n)                                                                                                        \
                         :                                                                                                                \
                         : "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", "xmm11",         \
                           "xmm14", "xmm15");                                                                                             \
    }
VECTOR_LOOP(loop_avx2, "vfmadd231ps", "%%ymm")
VECTOR_LOOP(loop_avx512, "vfmadd231ps", "%%zmm")
VECTOR_LOOP(loop_vnni, "vpdpbusd", "%%zmm")

/* Four tiles of sums: a product takes 52 cycles and one starts every 16. */
#define TILE_LOOP(name, op)                                                                                                               \
    static void name(int64_t n)                                                                                                           \
    {                                                                                                                                     \
        struct {                                                                                                                          \
            uint8_t palette, start_row, reserved[14];                                                                                     \
            uint16_t row_bytes[16];                                                                                                       \
            uint8_t rows[16];                                                                                                             \
        } config = {.palette = 1};                                                                                                        \
        for (int i = 0; i < 8; i++) {                                                                                                     \
            config.row_bytes[i] = 64;                                                                                                     \
            config.rows[i] = 16;                                                                                                          \
        }                                                                                                                                 \
        __asm__ volatile("ldtilecfg %1\n\ttilezero %%tmm0\n\ttilezero %%tmm1\n\ttilezero %%tmm2\n\ttilezero %%tmm3\n\t"                     \
                         "tilezero %%tmm4\n\ttilezero %%tmm5\n\ttilezero %%tmm6\n\ttilezero %%tmm7\n\t1:\n\t" op                           \
                         " %%tmm6,%%tmm4,%%tmm0\n\t" op " %%tmm7,%%tmm4,%%tmm1\n\t" op " %%tmm6,%%tmm5,%%tmm2\n\t" op                      \
                         " %%tmm7,%%tmm5,%%tmm3\n\tdec %0\n\tjnz 1b\n\ttilerelease"                                                       \
                         : "+r"(n)                                                                                                        \
                         : "m"(config)                                                                                                    \
                         : "cc", "memory");                                                                                               \
    }
TILE_LOOP(loop_tile_bf16, "tdpbf16ps")
TILE_LOOP(loop_tile_int8, "tdpbssd")

static bool has_vnni(void)
{
    return __builtin_cpu_supports("avx512vnni") != 0;
}

static bool always(void)
{
    return true;
}

static const struct loop {
    const char *isa, *name;
    enum qr_probe_unit unit;
    void (*run)(int64_t n);
    bool (*usable)(void); /* on top of what the level needs */
    int64_t n_turns;      /* of an item: a quarter of a millisecond */
    double ops;           /* of a turn */
} loops[] = {
    {"avx2", "vfmadd231ps, 8 wide", QR_PROBE_F32, loop_avx2, always, 100000, 12 * 8 * 2},
    {"avx512", "vfmadd231ps, 16 wide", QR_PROBE_F32, loop_avx512, always, 100000, 12 * 16 * 2},
    {"avx512", "vpdpbusd", QR_PROBE_INT8, loop_vnni, has_vnni, 100000, 12 * 64 * 2},
    {"amx", "vfmadd231ps, 16 wide", QR_PROBE_F32, loop_avx512, always, 100000, 12 * 16 * 2},
    {"amx", "tdpbf16ps", QR_PROBE_BF16, loop_tile_bf16, always, 10000, 4.0 * 16 * 16 * 32 * 2},
    {"amx", "tdpbssd", QR_PROBE_INT8, loop_tile_int8, always, 10000, 4.0 * 16 * 16 * 64 * 2},
};

/* The level's loop for this unit, or else the one for f32. */
static const struct loop *find_loop(const char *isa, enum qr_probe_unit unit)
{
    const struct loop *f32 = NULL;
    for (int i = 0; i < QR_COUNT(loops); i++) {
        if (strcmp(loops[i].isa, isa) != 0 || !loops[i].usable())
            continue;
        if (loops[i].unit == unit)
            return &loops[i];
        f32 = loops[i].unit == QR_PROBE_F32 ? &loops[i] : f32;
    }
    return f32;
}

#else

struct loop {
    const char *name;
    void (*run)(int64_t n);
    int64_t n_turns;
    double ops;
};

static const struct loop *find_loop(const char *isa, enum qr_probe_unit unit)
{
    (void)isa;
    (void)unit;
    return NULL;
}

#endif

enum qr_probe_unit qr_probe_unit_of(enum qr_dtype weights)
{
    QR_ASSERT(qr_dtype_multiplies(weights) || weights == QR_CODED);
    if (weights == QR_F32)
        return QR_PROBE_F32;
    return qr_dtype_is_quantized(weights) ? QR_PROBE_INT8 : QR_PROBE_BF16;
}

const char *qr_probe_name(const char *isa, enum qr_probe_unit unit)
{
    QR_ASSERT(isa != NULL);
    QR_ASSERT(unit >= 0 && unit < QR_PROBE_UNITS);
    const struct loop *l = find_loop(isa, unit);
    return l != NULL ? l->name : NULL;
}

static void multiply_item(const void *arg, int32_t item, int32_t worker)
{
    (void)item;
    (void)worker;
    const struct loop *l = arg;
    l->run(l->n_turns);
}

double qr_probe_multiply(struct qr_queue *q, int32_t n_threads, const char *isa, enum qr_probe_unit unit)
{
    QR_ASSERT(q != NULL && isa != NULL);
    QR_ASSERT(n_threads > 0);
    const struct loop *l = find_loop(isa, unit);
    if (l == NULL)
        return 0;
    qr_queue_run(q, multiply_item, l, n_threads * ITEMS_PER_THREAD);
    return (double)n_threads * ITEMS_PER_THREAD * (double)l->n_turns * l->ops;
}

double qr_probe_bytes_s(struct qr_queue *q, const void *memory, size_t n_bytes, int32_t repeats)
{
    QR_ASSERT(q != NULL && memory != NULL);
    QR_ASSERT(repeats > 0);
    double best = 0;
    for (int32_t i = 0; i < repeats; i++) {
        int64_t began = qr_clock_ns();
        qr_probe_read(q, memory, n_bytes);
        double rate = (double)n_bytes / ((double)(qr_clock_ns() - began) * 1e-9);
        best = rate > best ? rate : best;
    }
    return best;
}

double qr_probe_ops_s(struct qr_queue *q, int32_t n_threads, const char *isa, enum qr_probe_unit unit, int32_t repeats)
{
    QR_ASSERT(q != NULL && isa != NULL);
    QR_ASSERT(repeats > 0);
    double best = 0;
    for (int32_t i = 0; i < repeats; i++) {
        int64_t began = qr_clock_ns();
        double n = qr_probe_multiply(q, n_threads, isa, unit), rate = n / ((double)(qr_clock_ns() - began) * 1e-9);
        best = rate > best ? rate : best;
    }
    return best;
}
