/* util.h - what the kernel tests share: backends of every level, random numbers, poison, comparison of bits. */
#ifndef QR_TESTS_KERNELS_UTIL_H
#define QR_TESTS_KERNELS_UTIL_H

#include <criterion/criterion.h>
#include <dlfcn.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"
#include "kernels/cpu/pool.h"
#include "tests/levels.h"

#define U24 0x1p-24 /* half an ulp of 1.0f: the largest relative error of one f32 rounding */

/* Higham's gamma_n: the largest relative error of n roundings on top of each other. */
static inline double gamma_n(double n)
{
    return n * U24 / (1 - n * U24);
}

/* The nearest bf16 as tiles have it: of a denormal number 0. */
static inline uint16_t tile_bf16(float x)
{
    return fabsf(x) < 0x1p-126f ? (uint16_t)(signbit(x) ? 0x8000 : 0) : qr_f32_to_bf16(x);
}

/* The levels of this processor, and "cuda" on the emulated device (tests/cuda_emu/), for entries that are there in all of them. */
static inline int32_t device_levels(const char *names[8])
{
    int32_t n = qr_cpu_levels(names);
    const char *lib = getenv("QUIRE_CUDA_EMU_LIB");
    if (n == 1)
        printf("skipped: the levels above ref, as this processor has none\n");
    if (lib && access(lib, R_OK) == 0)
        names[n++] = "cuda";
    else
        printf("skipped: the cuda level, as there is no emulated device (no C++ compiler, or not run through ctest)\n");
    return n;
}

/* A function of the emulated device (tests/cuda_emu/emu.h), or NULL where there is none. The library stays open, and with it what is set there. */
static inline void *emulated_function(const char *name)
{
    const char *path = getenv("QUIRE_CUDA_EMU_LIB");
    void *lib = path && access(path, R_OK) == 0 ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    return lib ? dlsym(lib, name) : NULL;
}

#define EMULATED_SHARED_LEAST (99 * 1024) /* what a block may have on 8.6, 8.9 and 12.0 */
static inline void emulated_set_shared(int32_t n_bytes)
{
    void (*set)(int32_t);
    *(void **)&set = emulated_function("qr_emu_set_shared");
    if (set)
        set(n_bytes);
}

/* The emulated device doing everything at once, so that kernels may be given memory of the host and have done their work when they return. What a kernel
 * splits by multiprocessors it splits differently with few of them. */
static inline struct qr_backend *open_emulated_as(const struct qr_backend_options *o, int32_t n_multiprocessors)
{
    struct qr_err err = {0};
    struct qr_backend *be = NULL;
    setenv("QUIRE_CUDA_LIB", getenv("QUIRE_CUDA_EMU_LIB"), 1);
    void *lib = dlopen(getenv("QUIRE_CUDA_LIB"), RTLD_NOW | RTLD_LOCAL);
    cr_assert_not_null(lib, "%s", dlerror());
    void (*set_eager)(bool eager), (*set_device)(int32_t n_sms, size_t memory_bytes);
    *(void **)&set_eager = dlsym(lib, "qr_emu_set_eager");
    *(void **)&set_device = dlsym(lib, "qr_emu_set_device");
    set_eager(true);
    set_device(n_multiprocessors, (size_t)4 << 30);
    cr_assert_eq(qr_backend_open(&be, o, &err), 0, "%s", err.msg);
    dlclose(lib); /* the backend holds it */
    return be;
}

static inline struct qr_backend *open_emulated(int32_t n_multiprocessors, int32_t step_rows_max)
{
    const struct qr_backend_options o = {.device = "cuda", .step_rows_max = step_rows_max};
    return open_emulated_as(&o, n_multiprocessors);
}

static inline struct qr_backend *open_level(const char *isa, int32_t n_threads, int32_t step_rows_max)
{
    if (strcmp(isa, "cuda") == 0 || strcmp(isa, "hopper") == 0) {
        setenv("QUIRE_CUDA_HOPPER", strcmp(isa, "hopper") == 0 ? "1" : "0", 1);
        return open_emulated(n_threads, step_rows_max);
    }
    struct qr_err err = {0};
    struct qr_backend *be = NULL;
    struct qr_backend_options o = {.device = "cpu", .isa = isa, .n_threads = n_threads, .step_rows_max = step_rows_max};
    cr_assert_eq(qr_backend_open(&be, &o, &err), 0, "%s", err.msg);
    /* Whatever a kernel reads from scratch it must have written itself. */
    memset(be->queue->shared, 0xff, be->queue->shared_bytes);
    memset(be->queue->own, 0xff, be->queue->own_bytes * (size_t)n_threads);
    return be;
}

/* Roughly normal, exactly representable in f32: the sum of four words of one draw. */
static inline float random_float(struct qr_rng *r)
{
    uint32_t w[4];
    qr_rng_words(w, r->seed, 0, r->pos++);
    return (float)((((double)w[0] + (double)w[1] + (double)w[2] + (double)w[3]) * 0x1p-32 - 2) * 1.7);
}

static inline float *random_floats(struct qr_rng *r, int64_t n)
{
    float *x = qr_alloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = random_float(r);
    return x;
}

/* n floats that are NaN. */
static inline float *poisoned(int64_t n)
{
    float *x = qr_alloc((size_t)n, sizeof *x);
    memset(x, 0xff, (size_t)n * sizeof *x);
    return x;
}

static inline double *widen(const float *x, int64_t n)
{
    double *y = qr_alloc((size_t)n, sizeof *y);
    for (int64_t i = 0; i < n; i++)
        y[i] = (double)x[i];
    return y;
}

static inline float *copy_floats(const float *x, int64_t n)
{
    float *y = qr_alloc((size_t)n, sizeof *y);
    memcpy(y, x, (size_t)n * sizeof *x);
    return y;
}

static inline bool same_bits(const void *a, const void *b, int64_t n_floats)
{
    return memcmp(a, b, (size_t)n_floats * sizeof(float)) == 0;
}

/* Every NaN of `poison` still there in the gaps [n_cols, stride) of n_rows rows. */
static inline bool gaps_untouched(const float *x, int32_t n_rows, int32_t n_cols, int64_t stride)
{
    for (int32_t n = 0; n < n_rows; n++)
        for (int64_t i = n_cols; i < stride; i++) {
            uint32_t u;
            memcpy(&u, &x[n * stride + i], 4);
            if (u != 0xffffffffu)
                return false;
        }
    return true;
}

/* Of what is tried in many sizes the sanitizers, ten times slower, get every UTIL_STEPth: they look for bad accesses, not for bad numbers. */
#if defined(__SANITIZE_ADDRESS__)
#define UTIL_STEP 5
#else
#define UTIL_STEP 1
#endif

#endif
