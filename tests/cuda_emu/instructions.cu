/* Each check computes with whole numbers, small enough to be exact in any order of additions, or compares bits; so what differs is a register, an address or
 * an order that is not where the manual puts it, and the first wrong place says which. */
#include "tests/cuda_emu/instructions.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "kernels/cuda/ptx_hopper.h"

#define K 128        /* inputs of a product of warpgroups: two panels of 64 */
#define PANEL 8192   /* bytes of 64 rows of 128 */
#ifdef QR_CUDA_EMU
#define CHAIN 5      /* kernels that may begin early */
#define PASSERS 2    /* blocks of theirs, each with a box of what its neighbour stored */
#else
#define CHAIN 20
#define PASSERS 132
#endif
#define SPIN_NS 20000

/* ---- the host's side of all of them ---- */

struct sheet {
    char *said;
    size_t room;
    int n_wrong;
};

static void differ(struct sheet *s, const char *what, int at, double got, double wanted)
{
    if (s->n_wrong++ == 0)
        snprintf(s->said, s->room, "%s %d: %.9g, expected %.9g", what, at, got, wanted);
}

static void *device(const void *from, size_t n)
{
    void *p = NULL;
    QR_CUDA_CHECK(cudaMalloc(&p, n));
    if (from)
        QR_CUDA_CHECK(cudaMemcpy(p, from, n, cudaMemcpyHostToDevice));
    else
        QR_CUDA_CHECK(cudaMemset(p, 0x7e, n));
    QR_CUDA_CHECK(cudaDeviceSynchronize());
    return p;
}

static void back(void *to, void *p, size_t n, cudaStream_t s)
{
    QR_CUDA_CHECK(cudaStreamSynchronize(s));
    if (to)
        QR_CUDA_CHECK(cudaMemcpy(to, p, n, cudaMemcpyDeviceToHost));
    QR_CUDA_CHECK(cudaFree(p));
}

static uint32_t next_random(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return *state >> 8;
}

static float from_half(uint32_t h)
{
    const uint32_t u = h << 16;
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static uint32_t to_half(float f)
{
    uint32_t u;
    memcpy(&u, &f, sizeof u);
    return f != f ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
}

/* n whole numbers from -4 to 4, as they are and as bf16. */
static void whole_numbers(float *x, uint16_t *h, int n, uint32_t seed)
{
    for (int i = 0; i < n; i++) {
        x[i] = (float)(int)(next_random(&seed) % 9) - 4;
        h[i] = (uint16_t)to_half(x[i]);
    }
}

/* out [m][n] beside a [m][k] b [n][k]^T, or b [k][n]. */
static void compare_product(struct sheet *s, const char *what, const float *out, const float *a, const float *b, int m, int n, int k, bool turned)
{
    for (int r = 0; r < m; r++)
        for (int c = 0; c < n; c++) {
            float sum = 0;
            for (int i = 0; i < k; i++)
                sum += a[r * k + i] * (turned ? b[i * n + c] : b[c * k + i]);
            if (!(out[r * n + c] == sum))
                differ(s, what, r * 1000 + c, out[r * n + c], sum);
        }
}

/* ---- ldmatrix and mma.sync ---- */

QR_KERNEL(32) product_of_warp(float *out, const uint16_t *a, const uint16_t *b, int32_t turned)
{
    QR_SHARED_ARRAY(uint16_t, sa, 256);
    QR_SHARED_ARRAY(uint16_t, sb, 128);
    const int32_t lane = (int32_t)threadIdx.x;
    for (int32_t i = lane; i < 256; i += 32)
        sa[i] = a[i];
    for (int32_t i = lane; i < 128; i += 32)
        sb[i] = b[i];
    __syncwarp();
    uint32_t x[4], w[2];
    float d[4] = {0, 0, 0, 0};
    qr_ldmatrix<4>(x, sa + lane % 16 * 16 + lane / 16 * 8);
    if (turned)
        qr_ldmatrix_trans<2>(w, sb + lane % 16 * 8);
    else
        qr_ldmatrix<2>(w, sb + lane % 8 * 16 + lane / 8 % 2 * 8);
    qr_mma_bf16(d, x, w);
    for (int32_t i = 0; i < 4; i++)
        out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = d[i];
}

static void check_warp(struct sheet *s, cudaStream_t stream)
{
    float a[256], b[128], out[128];
    uint16_t ha[256], hb[128];
    whole_numbers(a, ha, 256, 1);
    whole_numbers(b, hb, 128, 2);
    for (int turned = 0; turned < 2; turned++) {
        uint16_t *da = (uint16_t *)device(ha, sizeof ha), *db = (uint16_t *)device(hb, sizeof hb);
        float *d = (float *)device(NULL, sizeof out);
        QR_LAUNCH(product_of_warp, 1, 32, 0, stream, d, da, db, turned);
        back(out, d, sizeof out, stream), back(NULL, da, 0, stream), back(NULL, db, 0, stream);
        compare_product(s, turned ? "mma.sync, b by ldmatrix.trans, row * 1000 + column" : "mma.sync, b by ldmatrix, row * 1000 + column", out, a, b, 16, 8, 16,
                        turned);
    }
}

/* ---- cp.async ---- */

QR_KERNEL(32) copy_parts(uint8_t *out, const uint8_t *in)
{
    QR_SHARED_ARRAY(uint8_t, shared, 32 * 16 + 32 * 4);
    const int32_t lane = (int32_t)threadIdx.x;
    qr_cp_async_16(shared + lane * 16, in + lane * 16, lane % 17);
    qr_cp_async_commit();
    qr_cp_async_4(shared + 512 + lane * 4, in + lane * 4, lane % 2 * 4);
    qr_cp_async_commit();
    qr_cp_async_wait<1>();
    __syncwarp();
    for (int32_t i = 0; i < 16; i++)
        out[i * 32 + lane] = shared[i * 32 + lane];
    qr_cp_async_wait<0>();
    __syncwarp();
    for (int32_t i = 0; i < 4; i++)
        out[512 + i * 32 + lane] = shared[512 + i * 32 + lane];
}

static void check_copies(struct sheet *s, cudaStream_t stream)
{
    uint8_t in[512], out[640];
    for (int i = 0; i < 512; i++)
        in[i] = (uint8_t)(1 + i % 251);
    uint8_t *di = (uint8_t *)device(in, sizeof in), *d = (uint8_t *)device(NULL, sizeof out);
    QR_LAUNCH(copy_parts, 1, 32, 0, stream, d, di);
    back(out, d, sizeof out, stream), back(NULL, di, 0, stream);
    for (int i = 0; i < 640; i++) {
        const int wanted = i < 512 ? (i % 16 < i / 16 % 17 ? in[i] : 0) : (i - 512) / 4 % 2 ? in[i - 512] : 0;
        if (out[i] != wanted)
            differ(s, i < 512 ? "cp.async of 16, byte" : "cp.async of 4, byte 512 +", i, out[i], wanted);
    }
}

/* ---- approximations, pairs of bf16 ---- */

#define NUMBERS 4096

QR_KERNEL(256) compute_numbers(uint32_t *out, const float *x, int32_t n)
{
    const int32_t i = (int32_t)(blockIdx.x * 256 + threadIdx.x);
    if (i >= n)
        return;
    const uint32_t a = 0x43004300u + (uint32_t)(i * 5 % 128) * 0x00010001u, b = 0x43004380u ^ (uint32_t)(i & 0x80) << 16;
    out[i] = __float_as_uint(qr_exp2(x[i]));
    out[n + i] = __float_as_uint(qr_reciprocal(1.0f + fabsf(x[i])));
    out[2 * n + i] = qr_bf16x2(x[i], -3 * x[i]);
    out[3 * n + i] = qr_mul_bf16x2(qr_bf16x2(x[i], -x[i]), 0x7b807b80u);
    out[4 * n + i] = qr_sub_bf16x2(a, b);
}

/* Errors of the approximations in units of 2^-23 of the result go to `said`. */
static void check_numbers(struct sheet *s, cudaStream_t stream)
{
    static float x[NUMBERS];
    static uint32_t out[5 * NUMBERS];
    uint32_t seed = 3;
    double worst[2] = {0, 0};
    for (int i = 0; i < NUMBERS; i++)
        x[i] = i == 0 ? -INFINITY : i == 1 ? 0.0f : i == 2 ? 0x1p-133f : -(float)next_random(&seed) * 0x1p-17f;
    float *dx = (float *)device(x, sizeof x);
    uint32_t *d = (uint32_t *)device(NULL, sizeof out);
    QR_LAUNCH(compute_numbers, NUMBERS / 256, 256, 0, stream, d, dx, NUMBERS);
    back(out, d, sizeof out, stream), back(NULL, dx, 0, stream);
    for (int i = 0; i < NUMBERS; i++) {
        float got[2];
        memcpy(&got[0], &out[i], 4), memcpy(&got[1], &out[NUMBERS + i], 4);
        const double wanted[2] = {exp2((double)x[i]), (double)(1.0f / (1.0f + fabsf(x[i])))};
        for (int k = 0; k < 2; k++) {
            const double off = wanted[k] < 0x1p-126 ? (got[k] == 0 ? 0 : 99) : fabs((double)got[k] - wanted[k]) / wanted[k] * 0x1p23;
            worst[k] = off > worst[k] ? off : worst[k];
            if (!(off <= (k == 0 ? 2.5 : 2)) && !(i == 0 && got[k] == 0))
                differ(s, k == 0 ? "ex2.approx.ftz of number" : "rcp.approx.ftz of number", i, got[k], wanted[k]);
        }
        const uint32_t pair = to_half(x[i]) | to_half(-3 * x[i]) << 16;
        if (out[2 * NUMBERS + i] != pair)
            differ(s, "cvt.rn.bf16x2 of number", i, out[2 * NUMBERS + i], pair);
        const float big = from_half(0x7b80), h = from_half(to_half(x[i]));
        const uint32_t product = to_half(h * big) | to_half(-h * big) << 16;
        if (out[3 * NUMBERS + i] != product)
            differ(s, "fma.rn.bf16x2 as a product of number", i, out[3 * NUMBERS + i], product);
        const float a = from_half(0x4300u + (uint32_t)(i * 5 % 128)), b[2] = {from_half(0x4380), from_half(0x4300u ^ (uint32_t)(i & 0x80))};
        const uint32_t difference = to_half(a - b[0]) | to_half(a - b[1]) << 16;
        if (out[4 * NUMBERS + i] != difference)
            differ(s, "fma.rn.bf16x2 as a difference, number", i, out[4 * NUMBERS + i], difference);
    }
    if (s->n_wrong == 0)
        snprintf(s->said, s->room, "2^x within %.2f, 1 / x within %.2f of 2^-23", worst[0], worst[1]);
}

/* ---- the copy engine ---- */

#define BOX_ROWS 16
#define TENSOR_ROWS 96
#define TENSOR_COLS 128

typedef CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *dim, const cuuint64_t *stride,
                              const cuuint32_t *box, const cuuint32_t *element_stride, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

struct boxes {
    CUtensorMap map;
    uint16_t *out;
    uint64_t wait_ns;
};

/* Three boxes: of the second panel, to a multiple of 1024; beyond the last row; to a multiple of 512, where the pattern goes by the address. */
QR_KERNEL(32) bring_boxes(const QR_GRID_CONSTANT struct boxes a)
{
#if QR_HOPPER
    QR_SHARED_1024(unsigned char, shared);
    uint64_t *bar = (uint64_t *)(shared + 8192);
    if (threadIdx.x == 0) {
        qr_mbar_init(bar, 1);
        qr_fence_async();
        qr_mbar_expect(bar, 3 * BOX_ROWS * 128);
        qr_bulk_2d(shared, &a.map, 64, 8, bar);
        qr_bulk_2d(shared + 2048, &a.map, 0, TENSOR_ROWS - 8, bar);
        qr_bulk_2d(shared + 4096 + 512, &a.map, 0, 3, bar);
    }
    __syncwarp();
    qr_mbar_wait(bar, 0, &a.wait_ns);
    for (int32_t i = (int32_t)threadIdx.x; i < 3 * BOX_ROWS * 64; i += 32)
        a.out[i] = ((const uint16_t *)shared)[i + (i >= 2 * BOX_ROWS * 64 ? 256 : 0)];
#endif
}

/* Rows of `cols` numbers, in boxes of 64 columns and BOX_ROWS rows. */
static bool map_of(CUtensorMap *map, void *base, cuuint64_t cols, cuuint64_t rows)
{
    void *fn = NULL;
    enum cudaDriverEntryPointQueryResult found;
    const cuuint64_t dim[] = {cols, rows}, row = cols * 2;
    const cuuint32_t box[] = {64, BOX_ROWS}, ones[] = {1, 1};
    encode_tiled *encode;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &found) != cudaSuccess || !fn)
        return false;
    memcpy(&encode, &fn, sizeof encode);
    return encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, base, dim, &row, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                  CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

static void check_boxes(struct sheet *s, cudaStream_t stream)
{
    static uint16_t in[TENSOR_ROWS * TENSOR_COLS], out[3 * BOX_ROWS * 64];
    static const int x[] = {64, 0, 0}, y[] = {8, TENSOR_ROWS - 8, 3}, at[] = {0, 2048, 4096 + 512};
    __attribute__((aligned(128))) struct boxes a;
    for (int i = 0; i < TENSOR_ROWS * TENSOR_COLS; i++)
        in[i] = (uint16_t)(i + 1);
    memset(&a, 0, sizeof a);
    void *base = device(in, sizeof in);
    a.out = (uint16_t *)device(NULL, sizeof out);
    a.wait_ns = 1000000000u;
    if (!map_of(&a.map, base, TENSOR_COLS, TENSOR_ROWS)) {
        differ(s, "cuTensorMapEncodeTiled makes no map", 0, 0, 1);
        return;
    }
    QR_LAUNCH(bring_boxes, 1, 32, 8192 + 64, stream, a);
    back(out, a.out, sizeof out, stream), back(NULL, base, 0, stream);
    for (int i = 0; i < 3 * BOX_ROWS * 64; i++) {
        const int b = i / (BOX_ROWS * 64), r = i / 64 % BOX_ROWS, line = (at[b] + r * 128) / 128 % 8, col = (i / 8 % 8 ^ line) * 8 + i % 8;
        const int wanted = y[b] + r < TENSOR_ROWS ? in[(y[b] + r) * TENSOR_COLS + x[b] + col] : 0;
        if (out[i] != wanted)
            differ(s, "box * 1024 + row * 64 + place", i, out[i], wanted);
    }
}

/* ---- products of warpgroups ---- */

/* Where number `col` of a row lies in panels of 64, rows of 128 bytes, swizzled. */
QR_DEVICE uint16_t *in_panels(unsigned char *tile, int32_t row, int32_t col, int32_t panel_bytes)
{
    return (uint16_t *)(tile + col / 64 * panel_bytes + row * 128 + ((col % 64 / 8) ^ (row & 7)) * 16 + col % 8 * 2);
}

/* out [64][N] = a [64][K] b [N][K]^T, as attention multiplies keys; turned: a [64][64] b [64][N], as it multiplies values. */
template <int N, bool TURNED> QR_KERNEL(128) product_of_group(float *out, const uint16_t *a, const uint16_t *b)
{
#if QR_HOPPER
    QR_SHARED_1024(unsigned char, shared);
    const int32_t me = (int32_t)threadIdx.x, lane = me % 32, row = me / 32 * 16 + lane / 4, cols = TURNED ? N : K, rows = TURNED ? 64 : N;
    unsigned char *tile_b = shared + 2 * PANEL;
    float d[N / 2];
    for (int32_t i = me; i < 64 * K && !TURNED; i += 128)
        *in_panels(shared, i / K, i % K, PANEL) = a[i];
    for (int32_t i = me; i < rows * cols; i += 128)
        *in_panels(tile_b, i / cols, i % cols, rows * 128) = b[i];
    qr_fence_async();
    __syncthreads();
    const uint32_t at_a = qr_shared_address(shared), at_b = qr_shared_address(tile_b);
    uint32_t p[4][4] = {};
#pragma unroll
    for (int k = 0; k < 4; k++)
#pragma unroll
        for (int i = 0; i < 4 && TURNED; i++) {
            const uint16_t *x = a + (row + i % 2 * 8) * 64 + k * 16 + i / 2 * 8 + lane % 4 * 2;
            p[k][i] = x[0] | (uint32_t)x[1] << 16;
        }
    qr_wgmma_fence();
#pragma unroll
    for (int k = 0; k < (TURNED ? 4 : K / 16); k++) {
        if (TURNED)
            qr_wgmma_turned(d, p[k % 4], qr_tile_desc(at_b + k * 2048, 64 * 128), k > 0);
        else
            qr_wgmma_shared(d, qr_tile_desc(at_a + k / 4 * PANEL + k % 4 * 32, 16), qr_tile_desc(at_b + k / 4 * (N * 128) + k % 4 * 32, 16), k > 0);
    }
    qr_wgmma_commit();
    qr_wgmma_wait(0);
    qr_wgmma_settle(d);
#pragma unroll
    for (int i = 0; i < N / 2; i++)
        out[(row + i / 2 % 2 * 8) * N + i / 4 * 8 + lane % 4 * 2 + i % 2] = d[i];
#endif
}

template <int N, bool TURNED> static void check_group(struct sheet *s, cudaStream_t stream, const char *what)
{
    static float a[64 * K], b[N * K], out[64 * N];
    static uint16_t ha[64 * K], hb[N * K];
    const int bytes = 2 * PANEL + N * K * 2;
    whole_numbers(a, ha, 64 * (TURNED ? 64 : K), 4);
    whole_numbers(b, hb, N * (TURNED ? 64 : K), 5);
    uint16_t *da = (uint16_t *)device(ha, sizeof ha), *db = (uint16_t *)device(hb, sizeof hb);
    float *d = (float *)device(NULL, sizeof out);
    QR_SHARED_ALLOW((product_of_group<N, TURNED>), bytes);
    QR_LAUNCH((product_of_group<N, TURNED>), 1, 128, bytes, stream, d, da, db);
    back(out, d, sizeof out, stream), back(NULL, da, 0, stream), back(NULL, db, 0, stream);
    compare_product(s, what, out, a, b, 64, N, TURNED ? 64 : K, TURNED);
}

static void check_keys(struct sheet *s, cudaStream_t stream)
{
    check_group<64, false>(s, stream, "wgmma m64n64k16, both in shared memory, row * 1000 + column");
    check_group<128, false>(s, stream, "wgmma m64n128k16, both in shared memory, row * 1000 + column");
}

static void check_values(struct sheet *s, cudaStream_t stream)
{
    check_group<64, true>(s, stream, "wgmma m64n64k16, a in registers and b turned, row * 1000 + column");
    check_group<128, true>(s, stream, "wgmma m64n128k16, a in registers and b turned, row * 1000 + column");
}

/* ---- kernels that begin early ---- */

/* Stands for a queue in QR_LAUNCH_NEXT, with what its kernels hand from one to the next: cleared before each run of the chain. */
struct chain {
    cudaStream_t stream;
    bool overlaps, follows;
    void (*launch)(struct chain *c, int32_t i, int32_t spin_ns); /* kernel number i, of `memory` */
    uint8_t *memory;
    size_t n_bytes;
    CUtensorMap *map; /* of it, for kernels that have the copy engine read it */
    int32_t *wrong;   /* the device's: numbers that were not as expected, for each kernel */
};

static bool qr_queue_follows(struct chain *c)
{
    const bool early = c->overlaps && c->follows;
    c->follows = true;
    return early;
}

/* What a kernel writes it writes late: a successor that does not wait is there before. */
QR_DEVICE void spin(int32_t ns)
{
#if !defined(QR_CUDA_EMU) && QR_HOPPER
    for (const uint64_t began = qr_nanoseconds(); qr_nanoseconds() - began < (uint64_t)ns;)
        ;
#endif
}

static void launch_chain(struct chain *c, int32_t spin_ns)
{
    c->follows = false;
    for (int32_t i = 0; i < CHAIN; i++)
        c->launch(c, i, spin_ns);
}

/* Microseconds from kernel to kernel. The memory is filled behind copies, in a graph and outside. */
static float run_chain(struct chain *c, bool overlaps, bool captured, int32_t spin_ns)
{
    cudaGraph_t graph = NULL;
    cudaGraphExec_t record = NULL;
    cudaEvent_t begin, end;
    float ms = 0;
    c->overlaps = overlaps;
    QR_CUDA_CHECK(cudaEventCreate(&begin));
    QR_CUDA_CHECK(cudaEventCreate(&end));
    QR_CUDA_CHECK(cudaMemsetAsync(c->memory, 0, c->n_bytes, c->stream));
    launch_chain(c, 0); /* loads the kernel */
    QR_CUDA_CHECK(cudaStreamSynchronize(c->stream));
    if (captured) {
        QR_CUDA_CHECK(cudaStreamBeginCapture(c->stream, cudaStreamCaptureModeThreadLocal));
        launch_chain(c, spin_ns);
        QR_CUDA_CHECK(cudaStreamEndCapture(c->stream, &graph));
        QR_CUDA_CHECK(cudaGraphInstantiate(&record, graph, 0));
    }
    for (int turn = 0; turn < 3; turn++) {
        QR_CUDA_CHECK(cudaMemsetAsync(c->memory, 0, c->n_bytes, c->stream));
        QR_CUDA_CHECK(cudaEventRecord(begin, c->stream));
        if (captured)
            QR_CUDA_CHECK(cudaGraphLaunch(record, c->stream));
        else
            launch_chain(c, spin_ns);
        QR_CUDA_CHECK(cudaEventRecord(end, c->stream));
        QR_CUDA_CHECK(cudaStreamSynchronize(c->stream));
        QR_CUDA_CHECK(cudaEventElapsedTime(&ms, begin, end));
    }
    if (captured) {
        QR_CUDA_CHECK(cudaGraphExecDestroy(record));
        QR_CUDA_CHECK(cudaGraphDestroy(graph));
    }
    QR_CUDA_CHECK(cudaEventDestroy(begin));
    QR_CUDA_CHECK(cudaEventDestroy(end));
    return ms * 1e3f / CHAIN;
}

/* A kernel that does not wait adds to what is not there yet. */
QR_KERNEL(64) follow(int32_t *x, int32_t i, int32_t spin_ns)
{
    qr_grid_next();
    qr_grid_wait();
    spin(spin_ns);
    if (threadIdx.x == 0 && blockIdx.x == 0)
        x[i + 1] = x[i] + 1;
}

static void launch_follow(struct chain *c, int32_t i, int32_t spin_ns)
{
    QR_LAUNCH_NEXT(follow, 8, 64, 0, c, (int32_t *)(void *)c->memory, i, spin_ns);
}

static float follow_chain(struct sheet *s, struct chain *c, bool overlaps, bool captured, int32_t spin_ns)
{
    int32_t out[CHAIN + 1];
    c->n_bytes = sizeof out;
    c->memory = (uint8_t *)device(NULL, sizeof out);
    const float us = run_chain(c, overlaps, captured, spin_ns);
    back(out, c->memory, sizeof out, c->stream);
    for (int i = 0; i <= CHAIN; i++)
        if (out[i] != i)
            differ(s, captured ? "kernel of a graph number" : "kernel number", i, out[i], i);
    return us;
}

/* Microseconds from kernel to kernel go to `said`. */
static void check_early(struct sheet *s, cudaStream_t stream)
{
    struct chain c = {stream, false, false, launch_follow, NULL, 0, NULL, NULL};
    follow_chain(s, &c, true, false, SPIN_NS);
    follow_chain(s, &c, true, true, SPIN_NS);
    float us[4];
    for (int i = 0; i < 4; i++)
        us[i] = follow_chain(s, &c, i % 2 == 1, i >= 2, 0);
    if (s->n_wrong == 0)
        snprintf(s->said, s->room, "us from kernel to kernel: %.2f, early %.2f; in a graph %.2f, early %.2f", us[0], us[1], us[2], us[3]);
}

/* ---- early kernels whose copy engine reads what the one before has stored ---- */

#define BOX (BOX_ROWS * 64) /* numbers */

struct pass {
    CUtensorMap map; /* of all kernels' numbers, one behind the other */
    uint16_t *to;
    int32_t *wrong;
    uint64_t wait_ns;
    int32_t i, spin_ns;
};

/* Number `at` of those that kernel i reads: zeros stand in front of the first. */
QR_DEVICE uint16_t passed(int32_t i, int32_t at)
{
    return i == 0 ? 0 : (uint16_t)(i * 4099 + at * 7 + 1);
}

QR_KERNEL(128) pass_on(const QR_GRID_CONSTANT struct pass a)
{
#if QR_HOPPER
    QR_SHARED_1024(unsigned char, shared);
    uint64_t *bar = (uint64_t *)(shared + BOX * 2);
    const int32_t me = (int32_t)threadIdx.x, block = (int32_t)blockIdx.x, other = (block + 1) % PASSERS;
    if (me == 0) {
        qr_mbar_init(bar, 1);
        qr_fence_async();
    }
    __syncthreads();
    qr_grid_next();
    qr_grid_wait();
    if (me == 0) {
        qr_fence_async_kernels();
        qr_mbar_expect(bar, BOX * 2);
        qr_bulk_2d(shared, &a.map, 0, (a.i * PASSERS + other) * BOX_ROWS, bar);
    }
    qr_mbar_wait(bar, 0, &a.wait_ns);
    spin(a.spin_ns);
    for (int32_t k = me; k < BOX; k += 128) {
        const int32_t row = k / 64, at = row * 64 + ((k / 8 % 8) ^ (row & 7)) * 8 + k % 8;
        if (((const uint16_t *)shared)[k] != passed(a.i, other * BOX + at))
            atomicAdd(&a.wrong[a.i], 1);
        a.to[((a.i + 1) * PASSERS + block) * BOX + k] = passed(a.i + 1, block * BOX + k);
    }
#endif
}

static void launch_pass(struct chain *c, int32_t i, int32_t spin_ns)
{
    __attribute__((aligned(128))) struct pass a;
    memset(&a, 0, sizeof a);
    a.map = *c->map, a.to = (uint16_t *)(void *)c->memory, a.wrong = c->wrong, a.wait_ns = 1000000000u, a.i = i, a.spin_ns = spin_ns;
    QR_LAUNCH_NEXT(pass_on, PASSERS, 128, BOX * 2 + 64, c, a);
}

static void check_passing(struct sheet *s, cudaStream_t stream)
{
    __attribute__((aligned(128))) CUtensorMap map;
    const size_t n_bytes = (size_t)(CHAIN + 1) * PASSERS * BOX * 2;
    static const int32_t none[CHAIN] = {0};
    float us[4];
    struct chain c = {stream, false, false, launch_pass, (uint8_t *)device(NULL, n_bytes), n_bytes, &map, NULL};
    if (!map_of(&map, c.memory, 64, (CHAIN + 1) * PASSERS * BOX_ROWS)) {
        differ(s, "cuTensorMapEncodeTiled makes no map", 0, 0, 1);
        return;
    }
    for (int i = 0; i < 4; i++) {
        int32_t wrong[CHAIN];
        c.wrong = (int32_t *)device(none, sizeof none);
        run_chain(&c, true, i >= 2, i % 2 == 0 ? SPIN_NS : 0);
        us[i] = run_chain(&c, i % 2 == 1, i >= 2, 0);
        back(wrong, c.wrong, sizeof wrong, stream);
        for (int k = 0; k < CHAIN; k++)
            if (wrong[k] != 0)
                differ(s, i >= 2 ? "numbers that kernel of a graph found wrong: number" : "numbers that a kernel found wrong: number", k, wrong[k], 0);
    }
    back(NULL, c.memory, 0, stream);
    if (s->n_wrong == 0)
        snprintf(s->said, s->room, "%d boxes each; us a kernel: %.2f, early %.2f; in a graph %.2f, early %.2f", PASSERS, us[0], us[1], us[2], us[3]);
}

/* ---- all ---- */

static const struct {
    const char *name;
    void (*check)(struct sheet *s, cudaStream_t stream);
    bool hopper;
} checks[INSTRUCTIONS] = {{"mma.sync and ldmatrix", check_warp, false}, {"cp.async", check_copies, false},
                          {"approximations, pairs of bf16", check_numbers, false},
                          {"copies by tensor maps", check_boxes, true}, {"wgmma as for keys", check_keys, true}, {"wgmma as for values", check_values, true},
                          {"kernels that begin early", check_early, true}, {"copies of early kernels", check_passing, true}};

extern "C" const char *instructions_name(int which)
{
    QR_ASSERT(which >= 0 && which < INSTRUCTIONS);
    return checks[which].name;
}

extern "C" int instructions_check(int which, char *said, size_t room)
{
    struct sheet s = {said, room, 0};
    cudaStream_t stream;
    int major = 0, minor = 0;
    QR_ASSERT(which >= 0 && which < INSTRUCTIONS && said != NULL && room > 0);
    said[0] = '\0';
    QR_CUDA_CHECK(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, 0));
    QR_CUDA_CHECK(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, 0));
    if (checks[which].hopper && 10 * major + minor != 90)
        return -1;
    QR_CUDA_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    checks[which].check(&s, stream);
    QR_CUDA_CHECK(cudaStreamDestroy(stream));
    return s.n_wrong;
}

/* ---- a program of them ---- */

/* NULL, or why nothing can be asked of a device: the runtime, its driver or a GPU is missing. */
static const char *no_device()
{
    int n = 0;
    const cudaError_t counted = cudaGetDeviceCount(&n), begun = counted == cudaSuccess && n > 0 ? cudaFree(NULL) : counted;
    return begun != cudaSuccess ? cudaGetErrorString(begun) : n == 0 ? "the driver counts none" : NULL;
}

/* In a process of its own, as a driver that was asked is of no use to a fork. False: its line was printed. */
static bool has_device()
{
    int status = 0;
    const pid_t child = fork();
    if (child == 0) {
        alarm(60);
        const char *why = no_device();
        if (why)
            printf("no device: %s\n", why);
        fflush(stdout);
        _exit(why ? 77 : 0);
    }
    if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
        printf("no device: the process that asked the driver was ended by signal %d\n", WTERMSIG(status));
    return WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

extern "C" int instructions_main(void)
{
    int n_bad = 0;
    if (!has_device())
        return 77;
    for (int i = 0; i < INSTRUCTIONS; i++) {
        int status = 0;
        fflush(stdout);
        const pid_t child = fork();
        if (child == 0) {
            char said[300];
            alarm(20);
            const int n = instructions_check(i, said, sizeof said);
            printf("%-9s %-32s %s\n", n < 0 ? "not here" : n > 0 ? "WRONG" : "ok", instructions_name(i), said);
            if (n > 0)
                printf("          %d wrong\n", n);
            fflush(stdout);
            _exit(n > 0);
        }
        if (child < 0 || waitpid(child, &status, 0) < 0 || !WIFEXITED(status))
            printf("%-9s %-32s its process was ended by signal %d\n", "WRONG", instructions_name(i), WTERMSIG(status));
        n_bad += !WIFEXITED(status) || WEXITSTATUS(status) != 0;
    }
    return n_bad;
}

#ifdef INSTRUCTIONS_MAIN
extern "C" void qr_assert_failed(const char *file, int line, const char *what)
{
    fprintf(stderr, "%s:%d: %s\n", file, line, what);
    abort();
}

int main(void)
{
    return instructions_main();
}
#endif
