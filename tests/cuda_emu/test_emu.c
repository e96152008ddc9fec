/* The emulated CUDA device: right kernels give right results in every order of threads, and each kind of mistake is reported. */
#include <criterion/criterion.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include <cublasLt.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/cuda_emu/emu.h"
#include "tests/cuda_emu/mistakes.h"
#include "tests/cuda_emu/util.h"

static float number(struct qr_rng *r)
{
    return (float)((int32_t)qr_rng_below(r, 2001) - 1000) / 64.0f;
}

static void sums(void)
{
    enum { BLOCKS = 5 };
    struct qr_rng r = {.seed = SEED};
    float x[BLOCKS * 256], out[BLOCKS], total;
    double want[BLOCKS] = {0}, all = 0;
    for (int i = 0; i < BLOCKS * 256; i++) { /* multiples of 1/64 below 16: every sum is exact */
        x[i] = number(&r);
        want[i / 256] += (double)x[i];
        all += (double)x[i];
    }
    const uint32_t none = 0;
    float *dx = on_device(x, sizeof x), *dout = on_device(NULL, sizeof out), *partial = on_device(NULL, sizeof out), *dtotal = on_device(NULL, sizeof total);
    uint32_t *counter = on_device(&none, sizeof none);
    right_block_sums(NULL, dout, dx, BLOCKS);
    right_last_block_sum(NULL, dtotal, partial, counter, dx, BLOCKS);
    back(out, dout, sizeof out);
    back(&total, dtotal, sizeof total);
    for (int b = 0; b < BLOCKS; b++)
        cr_assert_eq((double)out[b], want[b]);
    cr_assert_eq((double)total, all);
    cudaFree(dx), cudaFree(partial), cudaFree(counter);
}

Test(emulated_device, sums_over_blocks_are_right_in_every_order_of_threads)
{
    in_every_order(sums);
}

/* Small integers: products and sums are exact in bf16, in f32 and in tf32. */
static void products(void)
{
    struct qr_rng r = {.seed = SEED};
    uint16_t a[16 * 32], b[32 * 8];
    int8_t a8[16 * 32], b8[8 * 32];
    float at[16 * 8], bt[8 * 8], out[16 * 8], tout[16 * 8];
    int32_t out8[16 * 8];
    for (int i = 0; i < 512; i++) {
        a8[i] = (int8_t)((int32_t)qr_rng_below(&r, 201) - 100);
        a[i] = qr_f32_to_bf16((float)a8[i]);
        at[i % 128] = (float)a8[i];
    }
    for (int i = 0; i < 256; i++) {
        b8[i] = (int8_t)((int32_t)qr_rng_below(&r, 201) - 100);
        b[i % 32 * 8 + i / 32] = qr_f32_to_bf16((float)b8[i]);
        bt[i % 64] = (float)b8[i];
    }
    uint16_t *da = on_device(a, sizeof a), *db = on_device(b, sizeof b);
    int8_t *da8 = on_device(a8, sizeof a8), *db8 = on_device(b8, sizeof b8);
    float *dat = on_device(at, sizeof at), *dbt = on_device(bt, sizeof bt), *dout = on_device(NULL, sizeof out), *dtout = on_device(NULL, sizeof tout);
    int32_t *dout8 = on_device(NULL, sizeof out8);
    right_product(NULL, dout, da, db);
    right_product_s8(NULL, dout8, da8, db8);
    right_product_tf32(NULL, dtout, dat, dbt);
    back(out, dout, sizeof out);
    back(out8, dout8, sizeof out8);
    back(tout, dtout, sizeof tout);
    for (int row = 0; row < 16; row++)
        for (int col = 0; col < 8; col++) {
            int32_t want = 0;
            double twant = 0;
            for (int k = 0; k < 32; k++)
                want += a8[row * 32 + k] * b8[col * 32 + k];
            for (int k = 0; k < 8; k++)
                twant += (double)at[row * 8 + k] * (double)bt[k * 8 + col];
            cr_assert_eq(out8[row * 8 + col], want);
            cr_assert_eq(out[row * 8 + col], (float)want);
            cr_assert_eq((double)tout[row * 8 + col], twant);
        }
    cudaFree(da), cudaFree(db), cudaFree(da8), cudaFree(db8), cudaFree(dat), cudaFree(dbt);
}

Test(emulated_device, matrix_products_of_a_warp_are_right_in_every_order_of_threads)
{
    in_every_order(products);
}

static void votes(void)
{
    uint32_t out[8][32];
    uint32_t *d = on_device(NULL, sizeof out);
    right_votes(NULL, d);
    back(out, d, sizeof out);
    for (uint32_t l = 0; l < 32; l++) {
        uint32_t thirds = 0, fives = 0;
        for (uint32_t o = 0; o < 32; o++) {
            thirds |= (uint32_t)(o % 3 == 0) << o;
            fives |= (uint32_t)(o / 5 == l / 5) << o;
        }
        cr_assert_eq(out[0][l], thirds);
        cr_assert_eq(out[1][l], fives);
        cr_assert_eq(out[2][l], l / 8 * 8 + l * 7 % 8);
        cr_assert_eq(out[3][l], l < 3 ? l : l - 3);
        cr_assert_eq(out[4][l], l % 16 + 3 < 16 ? l + 3 : l);
        cr_assert_eq(out[5][l], (uint32_t)-1 + 22u);
        cr_assert_eq(out[6][l], l < 16 ? l ^ 1u : 0);
        cr_assert_eq(out[7][l], 1);
    }
}

Test(emulated_device, shuffles_and_votes_are_right_in_every_order_of_threads)
{
    in_every_order(votes);
}

static void atomics(void)
{
    int32_t out[8] = {0};
    int32_t *d = on_device(out, sizeof out);
    right_atomics(NULL, d);
    back(out, d, sizeof out);
    float f;
    memcpy(&f, &out[3], sizeof f);
    cr_assert(out[0] == 2 * 63 * 32 && out[1] == 63 && out[2] == -63 && out[4] == 1 && out[5] == 7 && out[6] == -1);
    cr_assert_eq(f, 64.0f);
}

Test(emulated_device, atomic_operations_lose_nothing)
{
    in_every_order(atomics);
}

static void halves(void)
{
    float x[128], out[128];
    for (int i = 0; i < 128; i++)
        x[i] = (float)i;
    float *dx = on_device(x, sizeof x), *d = on_device(NULL, sizeof out);
    right_named_barriers(NULL, d, dx);
    back(out, d, sizeof out);
    for (int i = 0; i < 128; i++)
        cr_assert_eq(out[i], (float)(127 - i));
    cudaFree(dx);
}

Test(emulated_device, named_barriers_hold_parts_of_a_block)
{
    in_every_order(halves);
}

/* ---- mistakes ---- */

static const struct expected expected[WRONG_COUNT] = {
    [WRONG_NO_BARRIER] = {"race in shared memory", NULL},
    [WRONG_NO_WARP_BARRIER] = {"race in shared memory", NULL},
    [WRONG_OTHER_BARRIER] = {"while other threads of the block wait at __syncthreads", "while other threads"},
    [WRONG_LEFT_BEFORE_BARRIER] = {"left", "left"},
    [WRONG_BARRIER_NOBODY_ELSE] = {"left", "left"},
    [WRONG_SHUFFLE_FULL_MASK] = {"left", "left"},
    [WRONG_SHUFFLE_NOT_NAMED] = {"does not name the calling lane", "does not name the calling lane"},
    [WRONG_SHUFFLE_FROM_OUTSIDE] = {"reads from lane", "reads from lane"},
    [WRONG_NO_WAIT_NO_BARRIER] = {"race in shared memory", NULL},
    [WRONG_SHARED_WRITE] = {"outside of the shared variables", "index 64 out of bounds"},
    [WRONG_DYNAMIC_READ] = {"outside of the shared variables", "AddressSanitizer"},
    [WRONG_GLOBAL_READ] = {"beyond the end of its allocation", "AddressSanitizer"},
    [WRONG_ALIGNMENT] = {NULL, "misaligned address"},
    [WRONG_TWO_BLOCKS] = {"race in global memory", NULL},
    [WRONG_LDMATRIX] = {"ldmatrix of a row", "ldmatrix of a row"},
    [WRONG_NAMED_BARRIER] = {"is for 128 threads; the block has 64", "is for 128 threads"},
};

static void run_wrong(int which)
{
    float x[64] = {0};
    float *dx = on_device(x, sizeof x), *out = on_device(NULL, 128 * sizeof *out);
    wrong_run(NULL, (enum wrong)which, out, dx, 64);
    cudaDeviceSynchronize();
}

Test(emulated_device, each_mistake_ends_the_program_with_a_line_that_names_it)
{
    for (int w = 0; w < WRONG_COUNT; w++) {
        char said[8000];
        const char *want = qr_emu_sees_races() ? expected[w].words : expected[w].under_asan;
        const bool quiet = is_quiet(run_wrong, w, said, sizeof said);
        if (!want)
            continue;
        cr_assert(!quiet && strstr(said, want), "mistake %d: expected \"%s\"", w, want);
        cr_assert(strstr(want, "race") == NULL || strstr(said, "mistakes.cu:"), "mistake %d: no line of the kernel in: %s", w, said);
    }
}

Test(emulated_device, an_expected_report_leaves_the_device_usable)
{
    for (int w = 0; w < WRONG_COUNT; w++) {
        if (w == WRONG_SHARED_WRITE || w == WRONG_DYNAMIC_READ || w == WRONG_GLOBAL_READ || w == WRONG_ALIGNMENT || !expected[w].under_asan)
            continue;
        qr_emu_expect_begin();
        run_wrong(w);
        cr_assert(strstr(qr_emu_expect_end(), expected[w].words), "mistake %d", w);
    }
    sums();
}

Test(emulated_device, numbers_of_a_copy_that_nobody_waited_for_are_not_there_yet)
{
    float x[32] = {0}, out[32];
    float *dx = on_device(x, sizeof x), *d = on_device(NULL, sizeof out);
    wrong_no_wait(NULL, d, dx);
    back(out, d, sizeof out);
    for (int i = 0; i < 32; i++)
        cr_assert(isnan(out[i]));
    cudaFree(dx);
}

Test(emulated_device, more_shared_memory_than_was_allowed_fails_the_launch)
{
    float *d = on_device(NULL, 128);
    wrong_too_much_shared(NULL, d);
    cr_assert_eq(cudaGetLastError(), cudaErrorInvalidValue);
    cr_assert_eq(cudaGetLastError(), cudaSuccess);
    qr_emu_expect_begin();
    wrong_shared_of_both_kinds(NULL, d);
    cudaDeviceSynchronize();
    cr_assert(strstr(qr_emu_expect_end(), "a block of this kernel has 49152"));
    cudaFree(d);
}

/* ---- kernels that begin early ---- */

Test(emulated_device, a_kernel_that_begins_early_touches_nothing_of_those_before_it_until_it_has_waited)
{
    static const char *const want[EARLY_COUNT] = {
        [EARLY_RIGHT] = "", [EARLY_APART] = "", [EARLY_BULK] = "", [EARLY_READS] = "before qr_grid_wait: a kernel that may still run writes it",
        [EARLY_READS_OF_TWO_BEFORE] = "before qr_grid_wait: a kernel that may still run writes it",
        [EARLY_COPIES] = "before qr_grid_wait: a kernel that may still run writes it",
        [EARLY_WRITES] = "before qr_grid_wait: a kernel that may still run reads it", [EARLY_LEAVES] = "a thread leaves without qr_grid_wait",
        [EARLY_BULK_UNFENCED] = "with no fence.proxy.async of all memory after qr_grid_wait"};
    float x[32], w[32], out[32];
    for (int i = 0; i < 32; i++)
        x[i] = (float)i, w[i] = 100;
    if (!qr_emu_sees_races())
        cr_skip_test("accesses are not instrumented in this build");
    for (int which = 0; which < EARLY_COUNT; which++) {
        float *dx = on_device(x, sizeof x), *dw = on_device(w, sizeof w), *y = on_device(NULL, sizeof x), *d = on_device(NULL, sizeof x);
        qr_emu_expect_begin();
        early_run(NULL, (enum early)which, d, y, dx, dw);
        cudaDeviceSynchronize();
        const char *said = qr_emu_expect_end();
        cr_assert(*want[which] ? strstr(said, want[which]) != NULL : *said == '\0', "%d: '%s'", which, said);
        if (*want[which] == '\0') {
            back(out, d, sizeof out);
            for (int i = 0; i < 32; i++)
                cr_assert_eq(out[i], 100 + 2 * (float)i);
        }
        cudaFree(dx), cudaFree(dw), cudaFree(y);
        if (*want[which] != '\0')
            cudaFree(d); /* else `back` did */
    }
}

/* ---- calls from where they may not come ---- */

static void *choose_second(void *arg)
{
    cudaSetDevice(1);
    return arg;
}

static void call_from_there(int which)
{
    pthread_t other;
    void *p = NULL;
    cudaStream_t s = NULL;
    cudaEvent_t event = NULL;
    setenv("QUIRE_EMU_DEVICES", "2", 1);
    if (which < 2 && (pthread_create(&other, NULL, choose_second, NULL) != 0 || pthread_join(other, NULL) != 0))
        return;
    if (which == 0)
        cudaMalloc(&p, 16);
    if (which == 1)
        right_add(NULL, NULL, 0, 1);
    if (which == 7)
        cudaMalloc(&p, 16);
    cudaStreamCreate(&s);
    cudaEventCreate(&event);
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    if (which == 7)
        cudaMemcpyAsync(p, &which, sizeof which, cudaMemcpyHostToDevice, s);
    if (which == 2)
        cudaHostAlloc(&p, 16, cudaHostAllocDefault);
    if (which == 3)
        cudaEventQuery(event);
    if (which == 4)
        right_add(NULL, NULL, 0, 1);
    if (which == 5)
        cudaStreamQuery(s);
    if (which == 6)
        right_add(s, NULL, 0, 1);
}

Test(emulated_device, calls_of_a_thread_without_the_device_and_calls_that_end_a_capture_are_reported)
{
    static const char *const want[] = {"cudaMalloc by a thread that has device 0", "a launch by a thread that has device 0",
                                       "cudaHostAlloc while this thread captures", "cudaEventQuery while", "work for the stream 0 while",
                                       "cudaStreamQuery of a stream", "is met first while its stream is captured",
                                       "a copy is captured whose host memory is not"};
    for (int w = 0; w < QR_COUNT(want); w++) {
        char said[8000];
        cr_assert(!is_quiet(call_from_there, w, said, sizeof said) && strstr(said, want[w]), "%s: %s", want[w], said);
    }
}

/* ---- memory, streams, graphs ---- */

static void touch_device(int which)
{
    float x = 1;
    volatile float *d = on_device(&x, sizeof x);
    if (which == 0)
        _exit(d[0] == 1 ? 0 : 1);
    if (which == 1)
        cudaFree((char *)(uintptr_t)d + 4);
    if (which == 2)
        cudaMemcpy((float *)(uintptr_t)d, &(float[2]){1, 2}, 8, cudaMemcpyHostToDevice);
    if (which == 3)
        right_add(NULL, &x, 1, 1);
}

Test(emulated_device, memory_is_watched_from_both_sides)
{
    char said[8000];
    cr_assert(!is_quiet(touch_device, 0, said, sizeof said), "the host read memory of the device");
    cr_assert(!is_quiet(touch_device, 1, said, sizeof said) && strstr(said, "which cudaMalloc did not give"));
    cr_assert(!is_quiet(touch_device, 2, said, sizeof said) && strstr(said, "beyond the end"));
    if (qr_emu_sees_races())
        cr_assert(!is_quiet(touch_device, 3, said, sizeof said) && strstr(said, "memory of the host"));
    else
        printf("skipped: without instrumented kernels an access to memory of the host is not seen\n");
}

Test(emulated_device, streams_work_when_somebody_waits_and_events_order_them)
{
    cudaStream_t a, b;
    cudaEvent_t e;
    cudaStreamCreateWithFlags(&a, cudaStreamNonBlocking), cudaStreamCreateWithFlags(&b, cudaStreamNonBlocking);
    cudaEventCreateWithFlags(&e, cudaEventDisableTiming);
    float *pinned = NULL, zero[100] = {0};
    cudaMallocHost((void **)&pinned, sizeof zero);
    float *x = on_device(zero, sizeof zero);
    right_add(a, x, 1, 100);
    cudaEventRecord(e, a);
    cudaStreamWaitEvent(b, e, 0);
    cudaMemcpyAsync(pinned, x, sizeof zero, cudaMemcpyDeviceToHost, b);
    cr_assert_eq(pinned[99], 0.0f, "nobody waited yet");
    const int64_t syncs = qr_emu_counts().syncs;
    cudaStreamSynchronize(b);
    cr_assert_eq(qr_emu_counts().syncs, syncs + 1);
    cr_assert_eq(pinned[99], 1.0f);
    cudaFree(x), cudaFreeHost(pinned);
    cudaEventDestroy(e), cudaStreamDestroy(a), cudaStreamDestroy(b);
}

Test(emulated_device, a_graph_does_again_what_was_captured)
{
    cudaStream_t s;
    cudaGraph_t g;
    cudaGraphExec_t exec;
    float zero[70] = {0}, got[70];
    float *x = on_device(zero, sizeof zero);
    cudaStreamCreate(&s);
    right_add(s, x, 0, 70); /* a kernel is met before it is captured */
    cudaStreamBeginCapture(s, cudaStreamCaptureModeThreadLocal);
    right_add(s, x, 1, 70);
    right_add(s, x, 2, 69);
    cr_assert_eq(cudaStreamSynchronize(s), cudaErrorStreamCaptureUnsupported);
    cudaStreamEndCapture(s, &g);
    cudaGetLastError();
    cudaGraphInstantiate(&exec, g, 0);
    cudaGraphDestroy(g);
    for (int i = 0; i < 3; i++)
        cudaGraphLaunch(exec, s);
    cudaStreamSynchronize(s);
    back(got, x, sizeof got);
    cr_assert(got[0] == 9.0f && got[68] == 9.0f && got[69] == 3.0f);
    cudaGraphExecDestroy(exec);
    cudaStreamDestroy(s);
}

Test(emulated_device, memory_that_is_not_there_is_an_error_and_freed_memory_comes_back)
{
    qr_emu_set_device(16, 1 << 20);
    void *p = NULL, *q = NULL;
    struct cudaDeviceProp prop;
    cr_assert_eq(cudaGetDeviceProperties(&prop, 0), cudaSuccess);
    cr_assert(prop.multiProcessorCount == 16 && prop.totalGlobalMem == 1 << 20 && prop.warpSize == 32);
    cr_assert_eq(cudaMalloc(&p, 1 << 20), cudaSuccess);
    cr_assert_eq(cudaMalloc(&q, 1), cudaErrorMemoryAllocation);
    cudaFree(p);
    cr_assert_eq(cudaMalloc(&q, 1 << 19), cudaSuccess);
    cr_assert_eq(p, q);
    cr_assert_eq(qr_emu_counts().bytes_now, 1 << 19);
    cudaFree(q);
}

/* d [3 x 2] = a^T b + 2 c + bias with small integers, so everything is exact; k = 8 keeps columns aligned to 16 bytes. */
Test(emulated_device, a_product_of_the_library_follows_its_definition)
{
    struct qr_rng r = {.seed = SEED};
    uint16_t a[8 * 3], b[8 * 2];
    float c[6], bias[3], d[6], one = 1, two = 2;
    for (int i = 0; i < 24; i++)
        a[i] = qr_f32_to_bf16((float)qr_rng_below(&r, 9));
    for (int i = 0; i < 16; i++)
        b[i] = qr_f32_to_bf16((float)qr_rng_below(&r, 9));
    for (int i = 0; i < 6; i++)
        c[i] = (float)i, bias[i / 2] = (float)(10 * i);
    void *da = on_device(a, sizeof a), *db = on_device(b, sizeof b), *dc = on_device(c, sizeof c), *dbias = on_device(bias, sizeof bias);
    cublasLtHandle_t lt;
    cublasLtMatmulDesc_t desc;
    cublasLtMatrixLayout_t la, lb, lc;
    const cublasOperation_t t = CUBLAS_OP_T;
    const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
    cublasLtCreate(&lt);
    cublasLtMatmulDescCreate(&desc, CUBLAS_COMPUTE_32F, CUDA_R_32F);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_TRANSA, &t, sizeof t);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
    cublasLtMatmulDescSetAttribute(desc, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &dbias, sizeof dbias);
    cublasLtMatrixLayoutCreate(&la, CUDA_R_16BF, 8, 3, 8), cublasLtMatrixLayoutCreate(&lb, CUDA_R_16BF, 8, 2, 8);
    cublasLtMatrixLayoutCreate(&lc, CUDA_R_32F, 3, 2, 3);
    cr_assert_eq(cublasLtMatmul(lt, desc, &one, da, la, db, lb, &two, dc, lc, dc, lc, NULL, NULL, 0, NULL), CUBLAS_STATUS_SUCCESS);
    cr_assert_eq(cublasLtMatmul(lt, desc, &one, db, lb, da, lb, &two, dc, lc, dc, lc, NULL, NULL, 0, NULL), CUBLAS_STATUS_NOT_SUPPORTED);
    back(d, dc, sizeof d);
    for (int row = 0; row < 3; row++)
        for (int col = 0; col < 2; col++) {
            float want = 2 * c[col * 3 + row] + bias[row];
            for (int k = 0; k < 8; k++)
                want += qr_bf16_to_f32(a[row * 8 + k]) * qr_bf16_to_f32(b[col * 8 + k]);
            cr_assert_eq(d[col * 3 + row], want);
        }
    cublasLtMatrixLayoutDestroy(la), cublasLtMatrixLayoutDestroy(lb), cublasLtMatrixLayoutDestroy(lc);
    cublasLtMatmulDescDestroy(desc), cublasLtDestroy(lt);
    cudaFree(da), cudaFree(db), cudaFree(dbias);
}
