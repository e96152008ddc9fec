/* device.h - the language of CUDA kernels in C++, for the emulated device: what the files of kernels/cuda/ use of it, and nothing more. Included by
 * include/cuda_runtime.h. Names are those of the CUDA C++ programming guide; each call that meets other threads carries its line along. */
#ifndef QR_TESTS_CUDA_EMU_DEVICE_H
#define QR_TESTS_CUDA_EMU_DEVICE_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "tests/cuda_emu/core.h"

#define __host__
#define __device__
#define __global__
#define __constant__ const
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

struct dim3 {
    unsigned int x, y, z;
    constexpr dim3(unsigned int a = 1, unsigned int b = 1, unsigned int c = 1) : x(a), y(b), z(c) {}
};

#define threadIdx (qr_emu_self->idx)
#define blockIdx (qr_emu_block_idx)
#define blockDim (qr_emu_block_dim)
#define gridDim (qr_emu_grid_dim)
#define warpSize QR_EMU_WARP

/* ---- vectors ---- */

#define QR_EMU_VECTOR(type, name, align2, align4)                                                                             \
    struct __attribute__((aligned(align2))) name##2 { type x, y; };                                                           \
    struct name##3 { type x, y, z; };                                                                                         \
    struct __attribute__((aligned(align4))) name##4 { type x, y, z, w; };                                                     \
    static inline name##2 make_##name##2(type x, type y) { return name##2{x, y}; }                                            \
    static inline name##3 make_##name##3(type x, type y, type z) { return name##3{x, y, z}; }                                 \
    static inline name##4 make_##name##4(type x, type y, type z, type w) { return name##4{x, y, z, w}; }
QR_EMU_VECTOR(float, float, 8, 16)
QR_EMU_VECTOR(int, int, 8, 16)
QR_EMU_VECTOR(unsigned int, uint, 8, 16)
QR_EMU_VECTOR(short, short, 4, 8)
QR_EMU_VECTOR(unsigned short, ushort, 4, 8)
QR_EMU_VECTOR(signed char, char, 2, 4)
QR_EMU_VECTOR(unsigned char, uchar, 2, 4)
QR_EMU_VECTOR(double, double, 16, 16)
#undef QR_EMU_VECTOR

/* ---- bits ---- */

template <class To, class From> static inline To qr_emu_bits(From from)
{
    static_assert(sizeof(To) == sizeof(From), "the same size");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}

static inline unsigned int __float_as_uint(float x) { return qr_emu_bits<unsigned int>(x); }
static inline int __float_as_int(float x) { return qr_emu_bits<int>(x); }
static inline float __uint_as_float(unsigned int x) { return qr_emu_bits<float>(x); }
static inline float __int_as_float(int x) { return qr_emu_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return qr_emu_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return qr_emu_bits<double>(x); }
static inline int __popc(unsigned int x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned int)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline unsigned int __umulhi(unsigned int a, unsigned int b) { return (unsigned int)((uint64_t)a * b >> 32); }
static inline unsigned int __brev(unsigned int x)
{
    unsigned int y = 0;
    for (int i = 0; i < 32; i++)
        y |= (x >> i & 1u) << (31 - i);
    return y;
}
static inline unsigned int __byte_perm(unsigned int x, unsigned int y, unsigned int selector)
{
    const uint64_t both = (uint64_t)y << 32 | x;
    unsigned int z = 0;
    for (int i = 0; i < 4; i++) {
        const unsigned int s = selector >> (4 * i) & 0xfu, byte = (unsigned int)(both >> (8 * (s & 7u))) & 0xffu;
        z |= (s & 8u ? (byte & 0x80u ? 0xffu : 0u) : byte) << (8 * i);
    }
    return z;
}
static inline unsigned int __funnelshift_r(unsigned int low, unsigned int high, unsigned int by)
{
    return (unsigned int)(((uint64_t)high << 32 | low) >> (by & 31u));
}
static inline int __dp4a(int a, int b, int c)
{
    for (int i = 0; i < 4; i++)
        c += (int)(int8_t)(uint8_t)((unsigned int)a >> (8 * i)) * (int)(int8_t)(uint8_t)((unsigned int)b >> (8 * i));
    return c;
}

/* ---- arithmetic: one rounding each, as the names say; the approximations are as good as the processor's ---- */

static inline float __fadd_rn(float a, float b) { return a + b; }
static inline float __fsub_rn(float a, float b) { return a - b; }
static inline float __fmul_rn(float a, float b) { return a * b; }
static inline float __fdiv_rn(float a, float b) { return a / b; }
static inline float __fmaf_rn(float a, float b, float c) { return fmaf(a, b, c); }
static inline float __fsqrt_rn(float a) { return sqrtf(a); }
static inline float __frcp_rn(float a) { return 1.0f / a; }
static inline float __fdividef(float a, float b) { return a / b; }
#define __expf(a) expf(a) /* glibc has functions of these names */
#define __logf(a) logf(a)
#define rsqrtf(a) qr_emu_rsqrtf(a)
static inline float qr_emu_rsqrtf(float a) { return (float)(1.0 / sqrt((double)a)); }
static inline int __float2int_rn(float a) { return a != a ? 0 : a >= 0x1p31f ? INT32_MAX : a <= -0x1p31f ? INT32_MIN : (int)nearbyintf(a); }
static inline float __int2float_rn(int a) { return (float)a; }
static inline float __uint2float_rn(unsigned int a) { return (float)a; }
static inline float __double2float_rn(double a) { return (float)a; }

static inline int min(int a, int b) { return a < b ? a : b; }
static inline int max(int a, int b) { return a > b ? a : b; }
static inline unsigned int min(unsigned int a, unsigned int b) { return a < b ? a : b; }
static inline unsigned int max(unsigned int a, unsigned int b) { return a > b ? a : b; }
static inline long min(long a, long b) { return a < b ? a : b; }
static inline long max(long a, long b) { return a > b ? a : b; }
static inline unsigned long min(unsigned long a, unsigned long b) { return a < b ? a : b; }
static inline unsigned long max(unsigned long a, unsigned long b) { return a > b ? a : b; }
static inline long long min(long long a, long long b) { return a < b ? a : b; }
static inline long long max(long long a, long long b) { return a > b ? a : b; }
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }

/* ---- memory ---- */

template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T v) { *p = v; }
template <class T> static inline void __stcg(T *p, T v) { *p = v; }
#define __threadfence() qr_emu_fence()
#define __threadfence_block() ((void)0)

static inline float atomicAdd(float *p, float v) { return qr_emu_atomic_add_f32(p, v); }
static inline int atomicAdd(int *p, int v) { return qr_emu_atomic_i32(p, v, QR_EMU_ADD); }
static inline unsigned int atomicAdd(unsigned int *p, unsigned int v) { return qr_emu_atomic_u32(p, v, QR_EMU_ADD); }
static inline unsigned long long atomicAdd(unsigned long long *p, unsigned long long v)
{
    return qr_emu_atomic_u64((uint64_t *)(void *)p, v, QR_EMU_ADD);
}
static inline int atomicMax(int *p, int v) { return qr_emu_atomic_i32(p, v, QR_EMU_MAX); }
static inline unsigned int atomicMax(unsigned int *p, unsigned int v) { return qr_emu_atomic_u32(p, v, QR_EMU_MAX); }
static inline unsigned long long atomicMax(unsigned long long *p, unsigned long long v)
{
    return qr_emu_atomic_u64((uint64_t *)(void *)p, v, QR_EMU_MAX);
}
static inline int atomicMin(int *p, int v) { return qr_emu_atomic_i32(p, v, QR_EMU_MIN); }
static inline unsigned int atomicMin(unsigned int *p, unsigned int v) { return qr_emu_atomic_u32(p, v, QR_EMU_MIN); }
static inline unsigned int atomicAnd(unsigned int *p, unsigned int v) { return qr_emu_atomic_u32(p, v, QR_EMU_AND); }
static inline unsigned int atomicOr(unsigned int *p, unsigned int v) { return qr_emu_atomic_u32(p, v, QR_EMU_OR); }
static inline unsigned int atomicCAS(unsigned int *p, unsigned int expected, unsigned int v) { return qr_emu_atomic_cas(p, expected, v); }
static inline int atomicCAS(int *p, int expected, int v)
{
    return (int)qr_emu_atomic_cas((uint32_t *)(void *)p, (uint32_t)expected, (uint32_t)v);
}
static inline unsigned int atomicExch(unsigned int *p, unsigned int v) { return qr_emu_atomic_exchange(p, v); }
static inline int atomicExch(int *p, int v) { return (int)qr_emu_atomic_exchange((uint32_t *)(void *)p, (uint32_t)v); }

/* ---- other threads ---- */

#define QR_EMU_SITE(name) (qr_emu_site{name, __FILE__, __LINE__})
#define __syncthreads() qr_emu_barrier_here(QR_EMU_SITE("__syncthreads"))
#define __syncthreads_count(p) qr_emu_count_here(QR_EMU_SITE("__syncthreads_count"), p)
#define __syncthreads_or(p) (qr_emu_count_here(QR_EMU_SITE("__syncthreads_or"), p) > 0)
#define __syncthreads_and(p) (qr_emu_count_here(QR_EMU_SITE("__syncthreads_and"), p) == (int)(blockDim.x * blockDim.y * blockDim.z))
#define __syncwarp(...) qr_emu_warp_here(QR_EMU_SITE("__syncwarp"), ##__VA_ARGS__)
#define __shfl_sync(...) qr_emu_shuffle_here(QR_EMU_SITE("__shfl_sync"), QR_EMU_INDEX, __VA_ARGS__)
#define __shfl_up_sync(...) qr_emu_shuffle_here(QR_EMU_SITE("__shfl_up_sync"), QR_EMU_UP, __VA_ARGS__)
#define __shfl_down_sync(...) qr_emu_shuffle_here(QR_EMU_SITE("__shfl_down_sync"), QR_EMU_DOWN, __VA_ARGS__)
#define __shfl_xor_sync(...) qr_emu_shuffle_here(QR_EMU_SITE("__shfl_xor_sync"), QR_EMU_XOR, __VA_ARGS__)
#define __ballot_sync(mask, p) qr_emu_ballot_here(QR_EMU_SITE("__ballot_sync"), mask, p)
#define __any_sync(mask, p) (qr_emu_ballot_here(QR_EMU_SITE("__any_sync"), mask, p) != 0)
#define __all_sync(mask, p) (qr_emu_ballot_here(QR_EMU_SITE("__all_sync"), mask, p) == (mask))
#define __match_any_sync(mask, v) qr_emu_match_here(QR_EMU_SITE("__match_any_sync"), mask, v)
#define __reduce_add_sync(mask, v) qr_emu_reduce_here(QR_EMU_SITE("__reduce_add_sync"), mask, v, QR_EMU_ADD)
#define __reduce_max_sync(mask, v) qr_emu_reduce_here(QR_EMU_SITE("__reduce_max_sync"), mask, v, QR_EMU_MAX)
#define __reduce_min_sync(mask, v) qr_emu_reduce_here(QR_EMU_SITE("__reduce_min_sync"), mask, v, QR_EMU_MIN)
#define __trap() qr_emu_trap(__FILE__, __LINE__)

static inline void qr_emu_barrier_here(const qr_emu_site &site) { qr_emu_barrier(&site, 0, 0, true); }
static inline int qr_emu_count_here(const qr_emu_site &site, int predicate) { return qr_emu_barrier_count(&site, predicate); }
static inline void qr_emu_warp_here(const qr_emu_site &site, unsigned int mask = 0xffffffffu) { qr_emu_sync_warp(&site, mask); }
static inline unsigned int qr_emu_ballot_here(const qr_emu_site &site, unsigned int mask, int p) { return qr_emu_ballot(&site, mask, p); }

template <class T> static inline T qr_emu_shuffle_here(const qr_emu_site &site, int kind, unsigned int mask, T value, int by, int width = QR_EMU_WARP)
{
    static_assert(sizeof(T) <= 8, "a shuffle moves up to 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = qr_emu_shuffle(&site, mask, bits, kind, by, width);
    memcpy(&value, &bits, sizeof value);
    return value;
}

template <class T> static inline unsigned int qr_emu_match_here(const qr_emu_site &site, unsigned int mask, T value)
{
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    return qr_emu_match(&site, mask, bits);
}

template <class T> static inline T qr_emu_reduce_here(const qr_emu_site &site, unsigned int mask, T value, int kind)
{
    static_assert(sizeof(T) == 4, "int or unsigned int");
    return (T)qr_emu_reduce(&site, mask, (int64_t)value, kind);
}

/* ---- launches ---- */

template <class T> struct qr_emu_same {
    typedef T type;
};

/* Arguments are taken by value at the launch, as a device takes them. */
template <class... P>
static inline void qr_emu_launch_here(const char *name, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, void (*kernel)(P...),
                                      typename qr_emu_same<P>::type... args)
{
    auto call = [=]() { kernel(args...); };
    static_assert(__is_trivially_copyable(decltype(call)), "arguments of kernels are plain data");
    qr_emu_enqueue(name, (const void *)kernel, qr_emu_dim3{grid.x, grid.y, grid.z}, qr_emu_dim3{block.x, block.y, block.z}, shared_bytes, stream, &call,
                   sizeof call, [](const void *closure) { (*(const decltype(call) *)closure)(); });
}

#endif
