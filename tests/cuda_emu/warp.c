/* warp.c - what the lanes of a warp do together: shuffles, votes, matrix products, ldmatrix; and each thread's copies that are under way. */
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "tests/cuda_emu/core.h"

/* ---- shuffles and votes ---- */

struct shuffle {
    struct qr_emu_site site;
    uint64_t value, got;
    int32_t kind, by, width;
};

/* The lane that `lane` reads from, as the hardware clamps it to its segment of `width` lanes. */
static int32_t source_lane(const struct shuffle *s, int32_t lane)
{
    const int32_t base = lane & ~(s->width - 1), end = base + s->width;
    if (s->kind == QR_EMU_INDEX)
        return base + (s->by & (s->width - 1));
    if (s->kind == QR_EMU_UP)
        return lane - s->by >= base ? lane - s->by : lane;
    const int32_t to = s->kind == QR_EMU_DOWN ? lane + s->by : lane ^ s->by;
    return to < end ? to : lane;
}

static void shuffle_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    for (int32_t l = 0; l < QR_EMU_WARP; l++) {
        struct shuffle *s = of[l];
        if (!s)
            continue;
        const int32_t from = source_lane(s, l);
        if (!of[from])
            qr_emu_report("%s in %s:%d: lane %d reads from lane %d, which the mask %08x does not name", s->site.what, s->site.file, s->site.line, l, from,
                          mask);
        s->got = ((const struct shuffle *)of[from])->value;
    }
}

uint64_t qr_emu_shuffle(const struct qr_emu_site *site, uint32_t mask, uint64_t value, int32_t kind, int32_t by, int32_t width)
{
    QR_ASSERT(site != NULL);
    QR_ASSERT(width > 0 && width <= QR_EMU_WARP && (width & (width - 1)) == 0);
    struct shuffle s = {*site, value, 0, kind, by, width};
    qr_emu_meet(site, mask, &s, shuffle_all);
    return s.got;
}

struct vote {
    uint64_t value;
    int64_t number;
    uint32_t got;
    int32_t kind;
};

static void vote_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    uint32_t yes = 0;
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        if (of[l] && ((struct vote *)of[l])->value)
            yes |= 1u << l;
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        if (of[l])
            ((struct vote *)of[l])->got = yes;
    (void)mask;
}

uint32_t qr_emu_ballot(const struct qr_emu_site *site, uint32_t mask, int predicate)
{
    struct vote v = {.value = predicate != 0};
    qr_emu_meet(site, mask, &v, vote_all);
    return v.got;
}

static void match_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        for (int32_t o = 0; of[l] && o < QR_EMU_WARP; o++)
            if (of[o] && ((struct vote *)of[o])->value == ((struct vote *)of[l])->value)
                ((struct vote *)of[l])->got |= 1u << o;
    (void)mask;
}

uint32_t qr_emu_match(const struct qr_emu_site *site, uint32_t mask, uint64_t value)
{
    struct vote v = {.value = value};
    qr_emu_meet(site, mask, &v, match_all);
    return v.got;
}

static int64_t fold(int64_t a, int64_t b, int32_t kind)
{
    switch (kind) {
    case QR_EMU_ADD: return a + b;
    case QR_EMU_MAX: return a > b ? a : b;
    case QR_EMU_MIN: return a < b ? a : b;
    case QR_EMU_AND: return a & b;
    default: return a | b;
    }
}

static void reduce_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    int64_t sum = 0;
    bool any = false;
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        if (of[l]) {
            const struct vote *v = of[l];
            sum = any ? fold(sum, v->number, v->kind) : v->number;
            any = true;
        }
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        if (of[l])
            ((struct vote *)of[l])->number = sum;
    (void)mask;
}

int64_t qr_emu_reduce(const struct qr_emu_site *site, uint32_t mask, int64_t value, int32_t kind)
{
    struct vote v = {.number = value, .kind = kind};
    qr_emu_meet(site, mask, &v, reduce_all);
    return v.number;
}

static void join_warp(void *of[QR_EMU_WARP], uint32_t mask)
{
    (void)of, (void)mask;
    qr_emu_shadow_join(1u << qr_emu_self->warp);
}

void qr_emu_sync_warp(const struct qr_emu_site *site, uint32_t mask)
{
    qr_emu_meet(site, mask, NULL, join_warp);
}

/* ---- matrix products: where a lane's registers stand in the matrices, by the PTX manual, "Matrix fragments" ---- */

struct mma {
    void *d;
    const uint32_t *a, *b;
};

static int8_t byte_of(uint32_t word, int32_t i)
{
    return (int8_t)(uint8_t)(word >> (8 * i) & 0xffu);
}

static float half_of(uint32_t word, int32_t i)
{
    return qr_bf16_to_f32((uint16_t)(word >> (16 * i)));
}

static float word_of(uint32_t word)
{
    word &= 0xffffe000u; /* tf32 keeps ten bits behind the point; the instruction does not look at the rest */
    float f;
    memcpy(&f, &word, sizeof f);
    return f;
}

/* Sums in double: exact enough that one rounding remains. The order in hardware is not documented, nor any more of it promised here. */
static void mma_bf16(void *of[QR_EMU_WARP], uint32_t mask)
{
    double a[16][16], b[16][8];
    for (int32_t l = 0; l < QR_EMU_WARP; l++) {
        const struct mma *o = of[l];
        const int32_t g = l / 4, t = l % 4;
        for (int32_t r = 0; r < 4; r++)
            for (int32_t i = 0; i < 2; i++)
                a[g + r % 2 * 8][t * 2 + r / 2 * 8 + i] = (double)half_of(o->a[r], i);
        for (int32_t r = 0; r < 2; r++)
            for (int32_t i = 0; i < 2; i++)
                b[t * 2 + r * 8 + i][g] = (double)half_of(o->b[r], i);
    }
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        for (int32_t c = 0; c < 4; c++) {
            float *d = (float *)((struct mma *)of[l])->d + c;
            const int32_t row = l / 4 + c / 2 * 8, col = l % 4 * 2 + c % 2;
            double sum = 0;
            for (int32_t k = 0; k < 16; k++)
                sum += a[row][k] * b[k][col];
            *d = (float)((double)*d + sum);
        }
    (void)mask;
}

static void mma_s8(void *of[QR_EMU_WARP], uint32_t mask)
{
    int32_t a[16][32], b[32][8];
    for (int32_t l = 0; l < QR_EMU_WARP; l++) {
        const struct mma *o = of[l];
        const int32_t g = l / 4, t = l % 4;
        for (int32_t r = 0; r < 4; r++)
            for (int32_t i = 0; i < 4; i++)
                a[g + r % 2 * 8][t * 4 + r / 2 * 16 + i] = byte_of(o->a[r], i);
        for (int32_t r = 0; r < 2; r++)
            for (int32_t i = 0; i < 4; i++)
                b[t * 4 + r * 16 + i][g] = byte_of(o->b[r], i);
    }
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        for (int32_t c = 0; c < 4; c++) {
            int32_t *d = (int32_t *)((struct mma *)of[l])->d + c;
            const int32_t row = l / 4 + c / 2 * 8, col = l % 4 * 2 + c % 2;
            uint32_t sum = (uint32_t)*d;
            for (int32_t k = 0; k < 32; k++)
                sum += (uint32_t)(a[row][k] * b[k][col]);
            *d = (int32_t)sum;
        }
    (void)mask;
}

static void mma_tf32(void *of[QR_EMU_WARP], uint32_t mask)
{
    double a[16][8], b[8][8];
    for (int32_t l = 0; l < QR_EMU_WARP; l++) {
        const struct mma *o = of[l];
        const int32_t g = l / 4, t = l % 4;
        for (int32_t r = 0; r < 4; r++)
            a[g + r % 2 * 8][t + r / 2 * 4] = (double)word_of(o->a[r]);
        for (int32_t r = 0; r < 2; r++)
            b[t + r * 4][g] = (double)word_of(o->b[r]);
    }
    for (int32_t l = 0; l < QR_EMU_WARP; l++)
        for (int32_t c = 0; c < 4; c++) {
            float *d = (float *)((struct mma *)of[l])->d + c;
            const int32_t row = l / 4 + c / 2 * 8, col = l % 4 * 2 + c % 2;
            double sum = 0;
            for (int32_t k = 0; k < 8; k++)
                sum += a[row][k] * b[k][col];
            *d = (float)((double)*d + sum);
        }
    (void)mask;
}

void qr_emu_mma(int32_t kind, void *d, const uint32_t *a, const uint32_t *b)
{
    static qr_emu_combine *const combine[] = {mma_bf16, mma_s8, mma_tf32};
    static const char *const name[] = {"mma bf16", "mma s8", "mma tf32"};
    QR_ASSERT(kind >= 0 && kind < QR_COUNT(combine));
    QR_ASSERT(d != NULL && a != NULL && b != NULL);
    const struct qr_emu_site site = {name[kind], "ptx.h", 0};
    struct mma mine = {d, a, b};
    qr_emu_meet(&site, 0xffffffffu, &mine, combine[kind]);
}

/* ---- ldmatrix ---- */

struct ldmatrix {
    uint32_t *r;
    const uint16_t *row;
    int32_t n;
    bool transposed;
};

/* Lane 8 j + i brings the address of row i of matrix j; register j of a lane gets two numbers of matrix j. */
static void ldmatrix_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    for (int32_t l = 0; l < QR_EMU_WARP; l++) {
        struct ldmatrix *o = of[l];
        for (int32_t j = 0; j < o->n; j++) {
            uint16_t lo, hi;
            if (o->transposed) {
                lo = ((const struct ldmatrix *)of[8 * j + l % 4 * 2])->row[l / 4];
                hi = ((const struct ldmatrix *)of[8 * j + l % 4 * 2 + 1])->row[l / 4];
            } else {
                lo = ((const struct ldmatrix *)of[8 * j + l / 4])->row[l % 4 * 2];
                hi = ((const struct ldmatrix *)of[8 * j + l / 4])->row[l % 4 * 2 + 1];
            }
            o->r[j] = (uint32_t)lo | (uint32_t)hi << 16;
        }
    }
    (void)mask;
}

void qr_emu_ldmatrix(uint32_t *r, int32_t n, bool transposed, const void *row)
{
    QR_ASSERT(r != NULL && qr_emu_self != NULL);
    QR_ASSERT(n == 1 || n == 2 || n == 4);
    const struct qr_emu_site site = {transposed ? "ldmatrix.trans" : "ldmatrix", "ptx.h", n};
    if (qr_emu_self->lane < 8 * n) {
        if ((uintptr_t)row % 16 != 0 || !qr_emu_is_shared(row, 16))
            qr_emu_report("ldmatrix of a row at %p: not 16 bytes of a shared variable, aligned to 16", row);
        qr_emu_access(row, 16, QR_EMU_READ, __builtin_return_address(0));
    }
    struct ldmatrix mine = {r, row, n, transposed};
    qr_emu_meet(&site, 0xffffffffu, &mine, ldmatrix_all);
}

/* ---- cp.async: the copy happens when it is waited for, and until then its destination is NaN ---- */

void qr_emu_cp_async(void *to, const void *from, int32_t n, int32_t n_from)
{
    struct qr_emu_thread *t = qr_emu_self;
    QR_ASSERT(t != NULL);
    QR_ASSERT(n == 4 || n == 8 || n == 16);
    const void *pc = __builtin_return_address(0);
    if ((uintptr_t)to % (uintptr_t)n != 0 || (uintptr_t)from % (uintptr_t)n != 0) /* even if nothing is read */
        qr_emu_report("cp.async of %d bytes from %p to %p: both must be aligned to its size", n, from, to);
    if (!qr_emu_is_shared(to, (size_t)n))
        qr_emu_report("cp.async to %p: not %d bytes of a shared variable", to, n);
    if (n_from < 0 || n_from > n)
        qr_emu_report("cp.async of %d bytes, of which %d are read", n, n_from);
    if (t->n_async == QR_EMU_ASYNC_MAX)
        qr_emu_report("more than %d cp.async under way in one thread", QR_EMU_ASYNC_MAX);
    qr_emu_access(to, (size_t)n, QR_EMU_WRITE, pc);
    qr_emu_flight_check(from, (size_t)n_from, false, pc);
    memset(to, 0xff, (size_t)n);
    t->async[t->n_async++] = (struct qr_emu_async){to, from, n, n_from, t->async_group, pc};
}

void qr_emu_cp_async_commit(void)
{
    QR_ASSERT(qr_emu_self != NULL);
    qr_emu_self->async_group++;
}

/* Copies of all groups but the latest n_groups; what no commit closed belongs to a group that is still open. */
void qr_emu_cp_async_wait(int32_t n_groups)
{
    struct qr_emu_thread *t = qr_emu_self;
    QR_ASSERT(t != NULL && n_groups >= 0);
    int32_t kept = 0;
    for (int32_t i = 0; i < t->n_async; i++) {
        const struct qr_emu_async c = t->async[i];
        if (c.group >= t->async_group - n_groups) {
            t->async[kept++] = c;
            continue;
        }
        qr_emu_access(c.to, (size_t)c.n, QR_EMU_WRITE, c.pc);
        if (c.n_from > 0) {
            qr_emu_access(c.from, (size_t)c.n_from, QR_EMU_READ, c.pc);
            memcpy(c.to, c.from, (size_t)c.n_from);
        }
        memset((uint8_t *)c.to + c.n_from, 0, (size_t)(c.n - c.n_from));
    }
    t->n_async = kept;
}
