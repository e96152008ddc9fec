/* ptx.h - the instructions that have no name in CUDA C++: matrix products of warps, ldmatrix, cp.async, named barriers, approximations. The only place with
 * inline PTX; for the emulated device each has a twin (tests/cuda_emu/warp.c) that checks what the hardware takes for granted.
 *
 * Whole warps call qr_mma_* and qr_ldmatrix_*. Where a lane's registers stand in the matrices: PTX manual, "Matrix fragments for mma.m16n8k..".
 * Addresses of shared memory are ordinary pointers. All of it needs sm_80. */
#ifndef QR_KERNELS_CUDA_PTX_H
#define QR_KERNELS_CUDA_PTX_H

#include "kernels/cuda/launch.h"

#ifdef QR_CUDA_EMU

/* d[16x8] += a[16x16] b[16x8]: bf16 in pairs, sums f32. The order of a product's 16 additions is the hardware's. */
QR_DEVICE void qr_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    qr_emu_mma(QR_EMU_MMA_BF16, d, a, b);
}

/* d[16x8] += a[16x32] b[32x8]: int8 in fours, sums of 32 bits, which wrap. */
QR_DEVICE void qr_mma_s8(int32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
    qr_emu_mma(QR_EMU_MMA_S8, d, a, b);
}

/* d[16x8] += a[16x8] b[8x8]: f32 of which ten bits behind the point count. */
QR_DEVICE void qr_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    qr_emu_mma(QR_EMU_MMA_TF32, d, a, b);
}

/* N (1, 2 or 4) matrices of 8 rows of 16 bytes: lane 8 j + i brings the address of row i of matrix j, aligned to 16; lane l gets of matrix j the pair
 * l % 4 of row l / 4, transposed: numbers 2 (l % 4) and 2 (l % 4) + 1 of column l / 4. */
template <int N> QR_DEVICE void qr_ldmatrix(uint32_t *r, const void *row)
{
    qr_emu_ldmatrix(r, N, false, row);
}

template <int N> QR_DEVICE void qr_ldmatrix_trans(uint32_t *r, const void *row)
{
    qr_emu_ldmatrix(r, N, true, row);
}

/* 16 bytes of global memory to shared memory, of which the first n_read (0 to 16) are read and the others become zeros. Under way until a wait. */
QR_DEVICE void qr_cp_async_16(void *to, const void *from, int32_t n_read = 16)
{
    qr_emu_cp_async(to, from, 16, n_read);
}

/* The same of 4 bytes: for scales and rows that are not aligned. */
QR_DEVICE void qr_cp_async_4(void *to, const void *from, int32_t n_read = 4)
{
    qr_emu_cp_async(to, from, 4, n_read);
}

/* The copies that this thread issued since the last commit are a group. */
QR_DEVICE void qr_cp_async_commit()
{
    qr_emu_cp_async_commit();
}

/* All groups of this thread but the last N have arrived: for this thread; others need a barrier. */
template <int N> QR_DEVICE void qr_cp_async_wait()
{
    qr_emu_cp_async_wait(N);
}

/* Barrier 1 to 15 of the block for n_threads of it, whole warps; arrive does not wait. */
#define qr_bar_sync(number, n_threads) qr_emu_bar_here(QR_EMU_SITE("qr_bar_sync"), number, n_threads, true)
#define qr_bar_arrive(number, n_threads) qr_emu_bar_here(QR_EMU_SITE("qr_bar_arrive"), number, n_threads, false)
QR_DEVICE void qr_emu_bar_here(const qr_emu_site &site, int32_t number, int32_t n_threads, bool waits)
{
    qr_emu_barrier(&site, number, n_threads, waits);
}

/* 2^x to 2 ulp; 2^-inf = 0, denormal results are 0. */
QR_DEVICE float qr_exp2(float x)
{
    const float y = exp2f(x);
    return y < 0x1p-126f ? 0.0f : y;
}

/* 1 / x to 1 ulp; of 0 and infinities the other one, denormal numbers are 0. */
QR_DEVICE float qr_reciprocal(float x)
{
    const float y = 1.0f / (fabsf(x) < 0x1p-126f ? copysignf(0.0f, x) : x);
    return fabsf(y) < 0x1p-126f ? copysignf(0.0f, y) : y;
}

/* Two numbers rounded to bf16, nearest even, lo in the lower half. NaN becomes 0x7fff. */
QR_DEVICE uint32_t qr_bf16x2(float lo, float hi)
{
    const float x[2] = {lo, hi};
    uint32_t h[2];
    for (int i = 0; i < 2; i++) {
        const uint32_t u = __float_as_uint(x[i]);
        h[i] = x[i] != x[i] ? 0x7fffu : (u + 0x7fffu + (u >> 16 & 1u)) >> 16;
    }
    return h[0] | h[1] << 16;
}

/* The lane of this thread, read where it is written: what is computed from it is not kept in registers from before a loop on. */
QR_DEVICE int32_t qr_lane()
{
    return (int32_t)threadIdx.x % QR_WARP;
}

/* Two products of bf16 numbers, each rounded to bf16; denormal ones count. */
QR_DEVICE uint32_t qr_mul_bf16x2(uint32_t a, uint32_t b)
{
    const float lo = __uint_as_float(a << 16) * __uint_as_float(b << 16);
    return qr_bf16x2(lo, __uint_as_float(a & 0xffff0000u) * __uint_as_float(b & 0xffff0000u));
}

/* Two differences of bf16 numbers, each rounded to bf16. */
QR_DEVICE uint32_t qr_sub_bf16x2(uint32_t a, uint32_t b)
{
    const float lo = __uint_as_float(a << 16) - __uint_as_float(b << 16);
    return qr_bf16x2(lo, __uint_as_float(a & 0xffff0000u) - __uint_as_float(b & 0xffff0000u));
}

/* Prefetches the line that holds p to L2. */
QR_DEVICE void qr_prefetch(const void *p)
{
    (void)p;
}

/* x, of which the compiler no longer knows that it is: what is computed from it is computed where it stands, and takes no register from loop to loop. */
QR_DEVICE int32_t qr_opaque(int32_t x)
{
    return x;
}

/* The next kernel of QR_LAUNCH_NEXT may begin, once every block has said so; it still waits for what this one writes. */
QR_DEVICE void qr_grid_next()
{
}

/* Until all kernels before this one have ended and what they wrote can be read. Every thread of a kernel of QR_LAUNCH_NEXT. */
QR_DEVICE void qr_grid_wait()
{
    qr_emu_grid_wait();
}

#else

/* Below 9.0 no kernel begins early. Files with such kernels are compiled for 9.0 apart (cmake/cuda.cmake). */
QR_DEVICE void qr_grid_next()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

QR_DEVICE void qr_grid_wait()
{
#if __CUDA_ARCH__ >= 900
    asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

QR_DEVICE uint32_t qr_shared_address(const void *p)
{
    return (uint32_t)__cvta_generic_to_shared(p);
}

QR_DEVICE void qr_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

QR_DEVICE void qr_mma_s8(int32_t d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

QR_DEVICE void qr_mma_tf32(float d[4], const uint32_t a[4], const uint32_t b[2])
{
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
                 : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}

template <int N> QR_DEVICE void qr_ldmatrix(uint32_t *r, const void *row)
{
    static_assert(N == 1 || N == 2 || N == 4, "1, 2 or 4 matrices");
    const uint32_t at = qr_shared_address(row);
    if (N == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
    else if (N == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[N > 1]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[N > 1]), "=r"(r[N > 2 ? 2 : 0]), "=r"(r[N > 2 ? 3 : 0]) : "r"(at) : "memory");
}

template <int N> QR_DEVICE void qr_ldmatrix_trans(uint32_t *r, const void *row)
{
    static_assert(N == 1 || N == 2 || N == 4, "1, 2 or 4 matrices");
    const uint32_t at = qr_shared_address(row);
    if (N == 1)
        asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];" : "=r"(r[0]) : "r"(at) : "memory");
    else if (N == 2)
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];" : "=r"(r[0]), "=r"(r[N > 1]) : "r"(at) : "memory");
    else
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
                     : "=r"(r[0]), "=r"(r[N > 1]), "=r"(r[N > 2 ? 2 : 0]), "=r"(r[N > 2 ? 3 : 0]) : "r"(at) : "memory");
}

QR_DEVICE void qr_cp_async_16(void *to, const void *from, int32_t n_read = 16)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(qr_shared_address(to)), "l"(from), "r"(n_read) : "memory");
}

QR_DEVICE void qr_cp_async_4(void *to, const void *from, int32_t n_read = 4)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(qr_shared_address(to)), "l"(from), "r"(n_read) : "memory");
}

QR_DEVICE void qr_cp_async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N> QR_DEVICE void qr_cp_async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

QR_DEVICE void qr_bar_sync(int32_t number, int32_t n_threads)
{
    asm volatile("bar.sync %0, %1;" ::"r"(number), "r"(n_threads) : "memory");
}

QR_DEVICE void qr_bar_arrive(int32_t number, int32_t n_threads)
{
    asm volatile("bar.arrive %0, %1;" ::"r"(number), "r"(n_threads) : "memory");
}

QR_DEVICE float qr_exp2(float x)
{
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

QR_DEVICE float qr_reciprocal(float x)
{
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
}

QR_DEVICE uint32_t qr_bf16x2(float lo, float hi)
{
    uint32_t y;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(hi), "f"(lo));
    return y;
}

QR_DEVICE int32_t qr_lane()
{
    int32_t lane;
    asm volatile("mov.u32 %0, %%laneid;" : "=r"(lane));
    return lane;
}

QR_DEVICE uint32_t qr_mul_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(a), "r"(b), "r"(0x80008000u)); /* plus -0: the product's own sign stays */
    return y;
}

QR_DEVICE uint32_t qr_sub_bf16x2(uint32_t a, uint32_t b)
{
    uint32_t y;
    asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(y) : "r"(b), "r"(0xbf80bf80u), "r"(a)); /* b times -1 plus a; sub.bf16x2 wants sm_90 */
    return y;
}

QR_DEVICE void qr_prefetch(const void *p)
{
    asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}

QR_DEVICE int32_t qr_opaque(int32_t x)
{
    asm volatile("" : "+r"(x));
    return x;
}

#endif
#endif
