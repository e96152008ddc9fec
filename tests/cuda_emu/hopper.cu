/* Kernels for test_hopper.c: what is right must give right results, and each mistake must be seen. */
#include "tests/cuda_emu/hopper.h"

#include "kernels/cuda/ptx_hopper.h"

#define TILE_BYTES (64 * 128 * 2)
#define STAGES 2

struct barriers {
    uint64_t full[STAGES], empty[STAGES];
};

/* Number `col` of a row of a tile of two panels of 64 columns, swizzled as the copy engine does it. */
QR_DEVICE unsigned char *in_tile(unsigned char *tile, int32_t row, int32_t col)
{
    const int32_t at = col / 64 * 8192 + row * 128 + col % 64 * 2;
    return tile + (at ^ (at >> 7 & 7) << 4);
}

template <int WHICH> QR_DEVICE void bring(unsigned char *ring, struct barriers *b, const CUtensorMap *map)
{
    qr_registers_less<40>();
    if (threadIdx.x != 128)
        return;
    for (int32_t step = 0; step < HOPPER_STEPS + (WHICH == HOPPER_COPY_LEFT); step++) {
        const int32_t s = step % STAGES;
        qr_mbar_wait(&b->empty[s], (uint32_t)(step / STAGES + 1) & 1, NULL);
        qr_mbar_expect(&b->full[s], WHICH == HOPPER_NO_BYTES ? 0 : TILE_BYTES);
        for (int32_t box = 0; box < 8; box++)
            qr_bulk_2d(ring + s * TILE_BYTES + box / 4 * 8192 + box % 4 * 2048 + (WHICH == HOPPER_COPY_ALIGNMENT ? 64 : 0), map, box / 4 * 64,
                       step * 64 + box % 4 * 16, &b->full[s]);
        if (WHICH == HOPPER_MANY_ARRIVALS)
            qr_mbar_arrive(&b->full[s]);
    }
}

template <int WHICH> QR_DEVICE void multiply(float *out, const float *a, unsigned char *tile_a, unsigned char *ring, struct barriers *b)
{
    const int32_t me = (int32_t)threadIdx.x, lane = me % 32, row = me / 32 * 16 + lane / 4;
    float scores[32], sums[64];
    uint32_t p[4][4];
    qr_registers_more<WHICH == HOPPER_REGISTERS ? 260 : 232>();
    for (int32_t i = me; i < 64 * 64; i += 128)
        *(uint32_t *)in_tile(tile_a, i / 64, i % 64 * 2) = qr_bf16x2(a[2 * i], a[2 * i + 1]);
    if (WHICH != HOPPER_NO_FENCE && WHICH != HOPPER_NO_INIT_FENCE)
        qr_fence_async();
    qr_bar_sync(1, 128);
    const uint32_t at_a = qr_shared_address(tile_a), at_ring = qr_shared_address(ring);
    for (int32_t step = 0; step < HOPPER_STEPS; step++) {
        const int32_t s = step % STAGES;
        const uint32_t tile = at_ring + (uint32_t)(s * TILE_BYTES);
        qr_mbar_wait(&b->full[s], (uint32_t)(step / STAGES) & 1, NULL);
        if (WHICH != HOPPER_NO_WGMMA_FENCE)
            qr_wgmma_fence();
        for (uint32_t k = 0; k < 8; k++)
            if (WHICH != HOPPER_WARPS_DIFFER || step != 3 || k != 2 || me >= 32)
                qr_wgmma_shared(scores, qr_tile_desc(at_a + k / 4 * 8192 + k % 4 * 32, 16), qr_tile_desc(tile + k / 4 * 8192 + k % 4 * 32, 16), k > 0);
        qr_wgmma_commit();
        if (WHICH != HOPPER_NO_WAIT)
            qr_wgmma_wait(0);
        qr_wgmma_settle(scores);
        for (int32_t i = 0; i < 16; i++)
            p[i / 4][i % 4] = qr_bf16x2(scores[2 * i], scores[2 * i + 1]);
        qr_wgmma_fence();
        for (uint32_t k = 0; k < 4; k++)
            qr_wgmma_turned(sums, p[k], qr_tile_desc(tile + k * 2048, 8192), step > 0 || k > 0);
        qr_wgmma_commit();
        if (WHICH == HOPPER_OPERAND_WRITTEN)
            p[1][1]++;
        if (WHICH == HOPPER_EARLY_RELEASE && lane == 0)
            qr_mbar_arrive(&b->empty[s]);
        if (WHICH == HOPPER_EARLY_RELEASE)
            qr_bar_sync(2, 128); /* the copy engine has time to be quick */
        if (WHICH != HOPPER_PRODUCT_LEFT || step < HOPPER_STEPS - 1)
            qr_wgmma_wait(0);
        if (WHICH != HOPPER_NO_RELEASE && WHICH != HOPPER_EARLY_RELEASE && lane == 0)
            qr_mbar_arrive(&b->empty[s]);
    }
    qr_wgmma_settle(sums);
    for (int32_t i = 0; WHICH != HOPPER_PRODUCT_LEFT && i < 64; i++)
        out[(row + i % 4 / 2 * 8) * 128 + i / 4 * 8 + lane % 4 * 2 + i % 2] = sums[i];
}

template <int WHICH> QR_KERNEL(256) products(float *out, const float *a, const QR_GRID_CONSTANT CUtensorMap map)
{
#if QR_HOPPER
    QR_SHARED_1024(unsigned char, shared);
    struct barriers *b = (struct barriers *)(shared + (1 + STAGES) * TILE_BYTES);
    if (threadIdx.x == 0) {
        for (int32_t s = 0; s < STAGES && WHICH != HOPPER_NO_INIT; s++) {
            qr_mbar_init(&b->full[s], 1);
            qr_mbar_init(&b->empty[s], 4);
        }
        if (WHICH != HOPPER_NO_INIT_FENCE)
            qr_fence_async();
    }
    __syncthreads();
    if (threadIdx.x >= 128)
        bring<WHICH>(shared + TILE_BYTES, b, &map);
    else
        multiply<WHICH>(out, a, shared, shared + TILE_BYTES, b);
#endif
}

template <int WHICH> static void run(cudaStream_t s, float *out, const float *a, const CUtensorMap *map)
{
    const int32_t bytes = (1 + STAGES) * TILE_BYTES + (int32_t)sizeof(struct barriers);
    CUtensorMap used = *map;
    if (WHICH == HOPPER_OTHER_MAP)
        memset(&used, 0, sizeof used);
    QR_SHARED_ALLOW(products<WHICH>, bytes);
    QR_LAUNCH(products<WHICH>, 1, 256, bytes, s, out, a, used);
}

extern "C" void hopper_run(cudaStream_t s, enum hopper which, float *out, const float *a, const CUtensorMap *map)
{
    static void (*const table[HOPPER_COUNT])(cudaStream_t s, float *out, const float *a, const CUtensorMap *map) = {
        run<0>, run<1>, run<2>, run<3>, run<4>, run<5>, run<6>, run<7>, run<8>, run<9>, run<10>, run<11>, run<12>, run<13>, run<14>, run<15>, run<16>};
    table[which](s, out, a, map);
}

/* ---- copies alone ---- */

struct place {
    int32_t at[4];
};

QR_KERNEL(32) box(uint8_t *out, const QR_GRID_CONSTANT CUtensorMap map, int32_t n_dims, struct place p, const uint8_t *plain, int32_t n_bytes)
{
#if QR_HOPPER
    QR_SHARED_1024(unsigned char, shared);
    uint64_t *bar = (uint64_t *)(shared + 8192);
    if (threadIdx.x == 0) {
        qr_mbar_init(bar, 1);
        qr_fence_async();
        qr_mbar_expect(bar, n_bytes);
        if (plain)
            qr_bulk(shared, plain, n_bytes, bar);
        else if (n_dims == 2)
            qr_bulk_2d(shared + 128, &map, p.at[0], p.at[1], bar);
        else
            qr_emu_site_call(qr_emu_bulk_tensor, "cp.async.bulk.tensor", shared + 128, &map, p.at, n_dims, bar);
    }
    __syncwarp();
    qr_mbar_wait(bar, 0, NULL);
    for (int32_t i = (int32_t)threadIdx.x; i < n_bytes; i += 32)
        out[i] = shared[i + (plain ? 0 : 128)];
#endif
}

extern "C" void hopper_box(cudaStream_t s, uint8_t *out, const CUtensorMap *map, int32_t n_dims, const int32_t *at, int32_t n_bytes)
{
    struct place p = {{0, 0, 0, 0}};
    memcpy(p.at, at, (size_t)n_dims * sizeof *at);
    QR_LAUNCH(box, 1, 32, 8192 + 16, s, out, *map, n_dims, p, NULL, n_bytes);
}

extern "C" void hopper_bulk(cudaStream_t s, uint8_t *out, const uint8_t *in)
{
    CUtensorMap none;
    memset(&none, 0, sizeof none);
    const struct place p = {{0, 0, 0, 0}};
    QR_LAUNCH(box, 1, 32, 8192 + 16, s, out, none, 0, p, in, 256);
}

/* ---- layouts of operands ---- */

/* Number k of row n of an operand of `rows` rows and 16 columns, by the pictures of "shared memory matrix layout": core matrices of eight rows of 16
 * bytes, one after the other; without swizzling those side by side along k follow each other (leading), then those below (stride). With swizzling of w
 * bytes rows of w bytes hold w / 2 numbers, of which the first 16 are used; chunks of 16 bytes change places with the row. Turned: likewise with n and k
 * exchanged, and rows of w / 2 numbers of n. */
QR_DEVICE int32_t layout_at(int32_t n, int32_t k, int32_t w, bool turned, int32_t rows)
{
    if (w == 0)
        return turned ? n / 8 * 256 + k / 8 * 128 + k % 8 * 16 + n % 8 * 2 : n / 8 * 256 + k / 8 * 128 + n % 8 * 16 + k % 8 * 2;
    const int32_t at = turned ? n / (w / 2) * (16 * w) + k * w + n % (w / 2) * 2 : n * w + k * 2;
    return at ^ (at / 128 % (w / 16)) * 16;
}

QR_KERNEL(128) layout(float *out, const float *a, const float *b, int32_t w, int32_t turned)
{
#if QR_HOPPER
    QR_SHARED_1024(unsigned char, shared);
    const int32_t me = (int32_t)threadIdx.x, lane = me % 32;
    unsigned char *tile_b = shared + 8192;
    float d[32];
    for (int32_t i = me; i < 64 * 16; i += 128) {
        *(uint16_t *)(shared + layout_at(i / 16, i % 16, w, false, 64)) = (uint16_t)qr_bf16x2(a[i], 0);
        *(uint16_t *)(tile_b + layout_at(i / 16, i % 16, w, turned, 64)) = (uint16_t)qr_bf16x2(b[i], 0);
    }
    qr_fence_async();
    __syncthreads();
    const uint64_t type = w == 128 ? 1 : w == 64 ? 2 : w == 32 ? 3 : 0;
    const uint64_t a_leading = 128, a_stride = w == 0 ? 256 : 8 * (uint64_t)w;
    const uint64_t b_leading = !turned || w == 0 ? 128 : 16 * (uint64_t)w, b_stride = w == 0 ? 256 : 8 * (uint64_t)w;
    const uint64_t ad = qr_shared_address(shared) >> 4 | a_leading >> 4 << 16 | a_stride >> 4 << 32 | type << 62;
    const uint64_t bd = qr_shared_address(tile_b) >> 4 | b_leading >> 4 << 16 | b_stride >> 4 << 32 | type << 62;
    const qr_emu_site site = QR_EMU_SITE("wgmma");
    qr_wgmma_fence();
    qr_emu_wgmma_here(site, d, NULL, ad, bd, false, turned != 0);
    qr_wgmma_commit();
    qr_wgmma_wait(0);
    for (int32_t i = 0; i < 32; i++)
        out[(me / 32 * 16 + lane / 4 + i % 4 / 2 * 8) * 64 + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
#endif
}

extern "C" void hopper_layout(cudaStream_t s, float *out, const float *a, const float *b, int32_t swizzle_bytes, int32_t turned)
{
    QR_LAUNCH(layout, 1, 128, 16384, s, out, a, b, swizzle_bytes, turned);
}
