/* wgmma.c - products of a warpgroup: wgmma.mma_async m64nNk16 of bf16 with f32 sums, their groups and fences, and setmaxnreg. What is written from: PTX
 * manual, "Asynchronous warpgroup level matrix multiply-accumulate instructions" (register fragments; shared memory matrix layout: core matrices,
 * strides, descriptors, major-ness; wgmma.fence, commit_group, wait_group), and "setmaxnreg".
 *
 * A product is done when its group is waited for: operands are read then, and until then the sums are NaN. Each warp of the group does its 16 rows; that
 * all four ask for the same products in the same order is checked. */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/emu.h"

#define ASKED_MAX 96
#define N_MAX 256
#define GROUPS (QR_EMU_WARPS_MAX / QR_EMU_WARPGROUP)
#define LOG 256
#define REGISTERS 65536

struct asked {
    struct qr_emu_site site;
    int32_t n, group;
    uint64_t a_desc, b_desc;
    bool a_registers, add, b_turned;
    float *d[QR_EMU_WARP];
    const uint32_t *a_at[QR_EMU_WARP];
    uint32_t a[QR_EMU_WARP][4];
    float *first; /* owned: [32][n / 2] what was there, of the first product under way on these sums; else NULL */
};

struct warp {
    struct asked asked[ASKED_MAX];
    int32_t n_asked, n_groups, registers;
    int64_t n_ever;
    bool fenced;
};

struct group {
    uint64_t log[LOG];
    int64_t n_logged;
};

static struct warp warps[QR_EMU_WARPS_MAX];
static struct group groups[GROUPS];
static int32_t n_used; /* warps that this file knows something of */

void qr_emu_wgmma_begin(void)
{
    for (int32_t w = 0; w < n_used; w++) {
        for (int32_t i = 0; i < warps[w].n_asked; i++)
            qr_free(warps[w].asked[i].first);
        warps[w].n_asked = warps[w].n_groups = warps[w].registers = 0;
        warps[w].n_ever = 0;
        warps[w].fenced = false;
    }
    for (int32_t g = 0; g < GROUPS; g++)
        groups[g].n_logged = 0;
    n_used = 0;
}

static struct warp *self(const struct qr_emu_site *site)
{
    QR_ASSERT(site != NULL && qr_emu_self != NULL);
    const int32_t w = qr_emu_self->warp;
    n_used = w >= n_used ? w + 1 : n_used;
    return &warps[w];
}

void qr_emu_wgmma_end(void)
{
    int32_t total = 0;
    for (int32_t w = 0; w < n_used; w++) {
        const struct warp *first = &warps[w / QR_EMU_WARPGROUP * QR_EMU_WARPGROUP];
        if (warps[w].n_asked > 0)
            qr_emu_report("warp %d leaves with %d wgmma under way, the oldest from %s:%d", w, warps[w].n_asked, warps[w].asked[0].site.file,
                          warps[w].asked[0].site.line);
        if (warps[w].n_ever != first->n_ever)
            qr_emu_report("warps of a warpgroup ask for %lld and %lld wgmma", (long long)first->n_ever, (long long)warps[w].n_ever);
        if (warps[w].registers != first->registers)
            qr_emu_report("setmaxnreg: warps of a warpgroup ask for %d and %d registers", first->registers, warps[w].registers);
    }
    for (int32_t w = 0; w < n_used; w++)
        total += QR_EMU_WARP * warps[w].registers;
    if (total > REGISTERS)
        qr_emu_report("setmaxnreg: %d registers for the block; a multiprocessor has %d", total, REGISTERS);
}

/* ---- operands in shared memory ---- */

struct operand {
    uint32_t start, leading, stride;
    int32_t swizzle_bytes;
};

static struct operand decode(const struct qr_emu_site *site, uint64_t desc)
{
    static const int32_t bytes[] = {0, 128, 64, 32};
    const struct operand o = {(uint32_t)(desc & 0x3fff) << 4, (uint32_t)(desc >> 16 & 0x3fff) << 4, (uint32_t)(desc >> 32 & 0x3fff) << 4, bytes[desc >> 62]};
    if ((desc >> 49 & 7) != 0 || (desc & UINT64_C(0x3ff1c000c000c000)) != 0)
        qr_emu_report("%s in %s:%d: descriptor %016llx: tiles begin where their pattern does here, and unused bits are 0", site->what, site->file, site->line,
                      (unsigned long long)desc);
    return o;
}

/* Where 8 numbers side by side lie: numbers 8 u .. 8 u + 7 of row (or column) `line`. K-major: lines are rows of the m or n dimension, u counts along k.
 * Turned (mn-major): lines are steps of k, u counts along m or n. In units of 16 bytes, the manual's canonical layouts. */
static uint32_t address_of(const struct operand *o, bool turned, uint32_t line, uint32_t u)
{
    const uint32_t w = (uint32_t)o->swizzle_bytes / 16;
    uint32_t at;
    if (turned)
        at = w == 0 ? u * o->stride + line % 8 * 16 + line / 8 * o->leading
                    : u % w * 16 + u / w * o->leading + line % 8 * (uint32_t)o->swizzle_bytes + line / 8 * o->stride;
    else
        at = w == 0 ? line % 8 * 16 + line / 8 * o->stride + u * o->leading : line % 8 * (uint32_t)o->swizzle_bytes + line / 8 * o->stride + u * 16;
    at += o->start;
    return w == 0 ? at : at ^ ((at >> 7 & (w - 1)) << 4);
}

/* x[k][line] of an operand: `n` lines from `first` on, 16 steps of k. */
static void read_operand(const struct qr_emu_site *site, uint64_t desc, bool turned, uint32_t first, uint32_t n, float *x)
{
    const struct operand o = decode(site, desc);
    const uint32_t n_lines = turned ? 16 : n, n_units = turned ? n / 8 : 2;
    for (uint32_t l = 0; l < n_lines; l++)
        for (uint32_t u = 0; u < n_units; u++) {
            const uint32_t line = turned ? l : first + l, unit = turned ? first / 8 + u : u;
            const uint16_t *from = qr_emu_shared_at(address_of(&o, turned, line, unit));
            qr_emu_access_async(from, 16, QR_EMU_READ, site);
            for (uint32_t i = 0; i < 8; i++)
                x[turned ? l * n + u * 8 + i : (u * 8 + i) * n + l] = qr_bf16_to_f32(from[i]);
        }
}

/* ---- asking ---- */

static uint64_t signature(const struct qr_emu_wgmma *o)
{
    uint64_t h = o->a_desc * UINT64_C(0x9e3779b97f4a7c15) ^ o->b_desc;
    return h * UINT64_C(0x9e3779b97f4a7c15) + (uint64_t)o->n * 8 + (uint64_t)o->add * 4 + (uint64_t)o->b_turned * 2 + (o->a != NULL);
}

static void check_group(const struct qr_emu_site *site, struct warp *w, const struct qr_emu_wgmma *o)
{
    struct group *g = &groups[qr_emu_self->warp / QR_EMU_WARPGROUP];
    if (w->n_ever == g->n_logged)
        g->log[g->n_logged++ % LOG] = signature(o);
    else if (g->n_logged - w->n_ever <= LOG && g->log[w->n_ever % LOG] != signature(o))
        qr_emu_report("%s in %s:%d: warps of a warpgroup ask for different products", site->what, site->file, site->line);
    w->n_ever++;
}

/* The sums of product i become those of the first under way: what they are is kept, and they are NaN from here on. */
static void keep_sums(struct asked *o)
{
    const size_t each = (size_t)o->n / 2;
    o->first = qr_alloc(QR_EMU_WARP * each, sizeof(float));
    for (int32_t l = 0; l < QR_EMU_WARP; l++) {
        memcpy(o->first + (size_t)l * each, o->d[l], each * sizeof(float));
        memset(o->d[l], 0xff, each * sizeof(float));
    }
}

static bool on_same_sums(const struct asked *a, const struct asked *b)
{
    return a->d[0] == b->d[0];
}

struct asking {
    const struct qr_emu_site *site;
    const struct qr_emu_wgmma *o;
};

static void ask_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    const struct asking *lane0 = of[0];
    const struct qr_emu_site *site = lane0->site;
    struct warp *w = self(site);
    (void)mask;
    if (w->n_asked == ASKED_MAX)
        qr_emu_report("%s in %s:%d: more than %d under way", site->what, site->file, site->line, ASKED_MAX);
    if (!w->fenced)
        qr_emu_report("%s in %s:%d: no wgmma.fence since registers were the thread's own", site->what, site->file, site->line);
    check_group(site, w, lane0->o);
    struct asked *now = &w->asked[w->n_asked];
    *now = (struct asked){.site = *site, .n = lane0->o->n, .group = w->n_groups, .a_desc = lane0->o->a_desc, .b_desc = lane0->o->b_desc,
                          .a_registers = lane0->o->a != NULL, .add = lane0->o->add, .b_turned = lane0->o->b_turned};
    for (int32_t l = 0; l < QR_EMU_WARP; l++) {
        const struct qr_emu_wgmma *o = ((const struct asking *)of[l])->o;
        if (signature(o) != signature(lane0->o))
            qr_emu_report("%s in %s:%d: lanes of a warp ask for different products", site->what, site->file, site->line);
        now->d[l] = o->d;
        now->a_at[l] = o->a;
        if (o->a)
            memcpy(now->a[l], o->a, sizeof now->a[l]);
    }
    bool chained = false;
    for (int32_t i = 0; i < w->n_asked; i++) {
        chained = chained || on_same_sums(&w->asked[i], now);
        if (on_same_sums(&w->asked[i], now) && w->asked[i].n != now->n)
            qr_emu_report("%s in %s:%d: products of different shapes add to the same sums with no wait between", site->what, site->file, site->line);
    }
    if (!chained)
        keep_sums(now);
    w->n_asked++;
    qr_emu_counted.wgmma++;
}

void qr_emu_wgmma(const struct qr_emu_site *site, const struct qr_emu_wgmma *o)
{
    QR_ASSERT(site != NULL && o != NULL);
    QR_ASSERT(o->d != NULL && o->n >= 8 && o->n <= N_MAX && o->n % 8 == 0);
    struct asking mine = {site, o};
    if (qr_emu_self->warp / QR_EMU_WARPGROUP * QR_EMU_WARPGROUP * QR_EMU_WARP + QR_EMU_WARPGROUP * QR_EMU_WARP >
        (int32_t)(qr_emu_block_dim.x * qr_emu_block_dim.y * qr_emu_block_dim.z))
        qr_emu_report("%s in %s:%d: four warps from a multiple of four on are a warpgroup; this one is not whole", site->what, site->file, site->line);
    qr_emu_meet(site, 0xffffffffu, &mine, ask_all);
}

/* ---- doing ---- */

static void read_registers(const struct asked *o, float a[16][16])
{
    for (int32_t l = 0; l < QR_EMU_WARP; l++) {
        if (memcmp(o->a[l], o->a_at[l], sizeof o->a[l]) != 0)
            qr_emu_report("wgmma in %s:%d: its operand in registers was written before it was waited for", o->site.file, o->site.line);
        for (int32_t r = 0; r < 4; r++)
            for (int32_t i = 0; i < 2; i++)
                a[l % 4 * 2 + r / 2 * 8 + i][l / 4 + r % 2 * 8] = qr_bf16_to_f32((uint16_t)(o->a[l][r] >> (16 * i)));
    }
}

/* Sums in double, rounded once for 16 products, as in warp.c. */
static void do_product(struct asked *o)
{
    float a[16][16], b[16 * N_MAX]; /* [k][row], [k][column] */
    double sum[N_MAX];
    const int32_t n = o->n;
    read_operand(&o->site, o->b_desc, o->b_turned, 0, (uint32_t)n, b);
    if (o->a_registers)
        read_registers(o, a);
    else
        read_operand(&o->site, o->a_desc, false, 16 * ((uint32_t)qr_emu_self->warp % QR_EMU_WARPGROUP), 16, a[0]);
    if (qr_emu_failed())
        return;
    for (int32_t l = 0; o->first && l < QR_EMU_WARP; l++)
        memcpy(o->d[l], o->first + (size_t)l * (size_t)n / 2, (size_t)n / 2 * sizeof(float));
    qr_free(o->first);
    o->first = NULL;
    for (int32_t row = 0; row < 16; row++) {
        memset(sum, 0, (size_t)n * sizeof *sum);
        for (int32_t k = 0; k < 16; k++) {
            const double x = (double)a[k][row];
            for (int32_t i = 0; i < n; i += 8)
                for (int32_t j = 0; j < 8; j++)
                    sum[i + j] += x * (double)b[k * n + i + j];
        }
        for (int32_t col = 0; col < n; col++) {
            float *d = o->d[row % 8 * 4 + col % 8 / 2] + col / 8 * 4 + row / 8 * 2 + col % 2;
            *d = (float)((o->add ? (double)*d : 0.0) + sum[col]);
        }
    }
}

struct waiting {
    const struct qr_emu_site *site;
    int32_t n_groups;
};

static void wait_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    const struct waiting *o = of[0];
    struct warp *w = self(o->site);
    int32_t done = 0, kept = 0;
    (void)mask;
    while (done < w->n_asked && w->asked[done].group < w->n_groups - o->n_groups && !qr_emu_failed())
        do_product(&w->asked[done++]);
    for (int32_t i = done; i < w->n_asked; i++, kept++) {
        bool chained = w->asked[i].first != NULL;
        w->asked[kept] = w->asked[i];
        for (int32_t j = 0; j < kept; j++)
            chained = chained || on_same_sums(&w->asked[j], &w->asked[kept]);
        if (!chained)
            keep_sums(&w->asked[kept]);
    }
    w->n_asked = kept;
    w->fenced = w->fenced && kept > 0;
}

void qr_emu_wgmma_wait(const struct qr_emu_site *site, int32_t n_groups)
{
    QR_ASSERT(site != NULL && n_groups >= 0);
    struct waiting mine = {site, n_groups};
    qr_emu_meet(site, 0xffffffffu, &mine, wait_all);
}

static void fence_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    (void)mask;
    self(of[0])->fenced = true;
}

void qr_emu_wgmma_fence(const struct qr_emu_site *site)
{
    struct qr_emu_site mine = *site;
    qr_emu_meet(site, 0xffffffffu, &mine, fence_all);
}

static void commit_all(void *of[QR_EMU_WARP], uint32_t mask)
{
    (void)mask;
    self(of[0])->n_groups++;
}

void qr_emu_wgmma_commit(const struct qr_emu_site *site)
{
    struct qr_emu_site mine = *site;
    qr_emu_meet(site, 0xffffffffu, &mine, commit_all);
}

const char *qr_emu_wgmma_holds(const void *p, size_t n)
{
    static char text[300];
    QR_ASSERT(qr_emu_self != NULL);
    const struct warp *w = &warps[qr_emu_self->warp];
    for (int32_t i = 0; i < w->n_asked; i++) {
        const struct asked *o = &w->asked[i];
        const uint8_t *d = (const uint8_t *)o->d[qr_emu_self->lane];
        if ((const uint8_t *)p < d + (size_t)o->n / 2 * sizeof(float) && (const uint8_t *)p + n > d) {
            snprintf(text, sizeof text, "sums that the wgmma in %s:%d still has", o->site.file, o->site.line);
            return text;
        }
    }
    return NULL;
}

/* ---- registers ---- */

struct registers {
    const struct qr_emu_site *site;
    int32_t n;
    bool more;
};

static void set_registers(void *of[QR_EMU_WARP], uint32_t mask)
{
    const struct registers *o = of[0];
    struct warp *w = self(o->site);
    (void)mask;
    if (o->n < 24 || o->n > 256 || o->n % 8 != 0 || (w->registers && (o->more ? o->n < w->registers : o->n > w->registers)))
        qr_emu_report("%s in %s:%d: from %d to %d registers: multiples of 8 from 24 to 256, in the direction that is said", o->site->what, o->site->file,
                      o->site->line, w->registers, o->n);
    w->registers = o->n;
}

void qr_emu_registers(const struct qr_emu_site *site, int32_t n, bool more)
{
    struct registers mine = {site, n, more};
    qr_emu_meet(site, 0xffffffffu, &mine, set_registers);
}
