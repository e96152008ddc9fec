/* What the emulated device knows of compute capability 9.0a: right kernels give right results in every order, each mistake is reported. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "base/rng.h"
#include "tests/cuda_emu/hopper.h"
#include "tests/cuda_emu/instructions.h"
#include "tests/cuda_emu/util.h"
#include "tests/last_words.h"

#define ROWS (HOPPER_STEPS * 64)

static CUtensorMap map_of(void *base, uint32_t rank, const uint64_t *dim, const uint32_t *box, CUtensorMapSwizzle swizzle, CUtensorMapDataType type)
{
    _Alignas(64) CUtensorMap map;
    const uint32_t ones[] = {1, 1, 1, 1};
    uint64_t stride[4] = {dim[0] * (type == CU_TENSOR_MAP_DATA_TYPE_UINT8 ? 1 : 2)};
    for (uint32_t i = 1; i < rank; i++)
        stride[i] = stride[i - 1] * dim[i];
    cr_assert_eq(cuTensorMapEncodeTiled(&map, type, rank, base, dim, stride, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                        CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE), CUDA_SUCCESS);
    return map;
}

/* Numbers -1, 0 and 1: every score is an integer up to 128, which bf16 keeps, every sum one up to 2^16. */
struct products {
    float a[64 * 128], b[ROWS * 128];
    float *da, *out;
    uint16_t *db;
    CUtensorMap map;
};

static struct products *products_new(void)
{
    struct products *p = qr_alloc(1, sizeof *p);
    uint16_t *b = qr_alloc(ROWS * 128, sizeof *b);
    struct qr_rng r = {.seed = SEED};
    for (int i = 0; i < 64 * 128; i++)
        p->a[i] = (float)qr_rng_below(&r, 3) - 1;
    for (int i = 0; i < ROWS * 128; i++)
        b[i] = qr_f32_to_bf16(p->b[i] = (float)qr_rng_below(&r, 3) - 1);
    p->da = on_device(p->a, sizeof p->a);
    p->db = on_device(b, ROWS * 128 * sizeof *b);
    p->out = on_device(NULL, 64 * 128 * sizeof(float));
    p->map = map_of(p->db, 2, (uint64_t[]){128, ROWS}, (uint32_t[]){64, 16}, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16);
    qr_free(b);
    return p;
}

static void products_drop(struct products *p)
{
    cudaFree(p->da), cudaFree(p->db), cudaFree(p->out);
    qr_free(p);
}

static void products(void)
{
    struct products *p = products_new();
    float *out = qr_alloc(64 * 128, sizeof *out);
    hopper_run(NULL, HOPPER_RIGHT, p->out, p->da, &p->map);
    cr_assert_eq(cudaMemcpy(out, p->out, 64 * 128 * sizeof *out, cudaMemcpyDeviceToHost), cudaSuccess);
    for (int row = 0; row < 64; row++) {
        float want[128] = {0};
        for (int t = 0; t < ROWS; t++) {
            float score = 0;
            for (int k = 0; k < 128; k++)
                score += p->a[row * 128 + k] * p->b[t * 128 + k];
            for (int k = 0; k < 128; k++)
                want[k] += score * p->b[t * 128 + k];
        }
        cr_assert_arr_eq(out + row * 128, want, sizeof want);
    }
    qr_free(out);
    products_drop(p);
}

Test(hopper, products_of_a_warpgroup_fed_by_the_copy_engine_are_right_in_every_order)
{
    in_every_order(products);
}

Test(hopper, operands_are_found_in_every_layout_of_the_manual)
{
    float a[64 * 16], b[64 * 16], out[64 * 64];
    struct qr_rng r = {.seed = SEED};
    for (int i = 0; i < 64 * 16; i++) {
        a[i] = (float)qr_rng_below(&r, 33) - 16;
        b[i] = (float)qr_rng_below(&r, 33) - 16;
    }
    float *da = on_device(a, sizeof a), *db = on_device(b, sizeof b);
    for (int32_t w = 0; w <= 128; w = w ? 2 * w : 32)
        for (int32_t turned = 0; turned < 2; turned++) {
            float *d = on_device(NULL, sizeof out);
            hopper_layout(NULL, d, da, db, w, turned);
            back(out, d, sizeof out);
            for (int row = 0; row < 64; row++)
                for (int col = 0; col < 64; col++) {
                    float want = 0;
                    for (int k = 0; k < 16; k++)
                        want += a[row * 16 + k] * b[col * 16 + k];
                    cr_assert_eq(out[row * 64 + col], want, "swizzle %d, turned %d, row %d, column %d", w, turned, row, col);
                }
        }
    cudaFree(da), cudaFree(db);
}

/* What a box holds: number x, y, z, w of it, or 0 beyond the tensor. */
static uint8_t box_byte(const uint8_t *in, uint32_t rank, const uint64_t *dim, const uint32_t *size, const int32_t *at, int32_t i)
{
    int64_t offset = 0, stride = 1;
    for (uint32_t d = 0; d < rank; d++) {
        const int64_t x = at[d] + i % (int32_t)size[d];
        if (x < 0 || x >= (int64_t)dim[d])
            return 0;
        i /= (int32_t)size[d];
        offset += x * stride;
        stride *= (int64_t)dim[d];
    }
    return in[offset];
}

Test(hopper, boxes_of_tensors_are_swizzled_by_address_and_zero_beyond_the_tensor)
{
    static const uint64_t dims[] = {96, 12, 3, 2};
    static const int32_t at[] = {48, 5, -1, 1};
    uint8_t in[96 * 12 * 3 * 2], out[8192];
    for (size_t i = 0; i < sizeof in; i++)
        in[i] = (uint8_t)(1 + i % 251);
    void *din = on_device(in, sizeof in);
    for (uint32_t rank = 2; rank <= 4; rank++)
        for (int32_t swizzle = 0; swizzle <= 3; swizzle++) {
            const uint32_t box[] = {swizzle ? 16u << swizzle : 80, 9, rank > 2 ? 2 : 1, 2};
            const int32_t n = (int32_t)(box[0] * box[1] * box[2] * (rank > 3 ? 2 : 1)), w = swizzle ? 16 << swizzle : 0;
            const CUtensorMap map = map_of(din, rank, dims, box, (CUtensorMapSwizzle)swizzle, CU_TENSOR_MAP_DATA_TYPE_UINT8);
            uint8_t *d = on_device(NULL, sizeof out);
            hopper_box(NULL, d, &map, (int32_t)rank, at, n);
            cr_assert_eq(cudaMemcpy(out, d, (size_t)n, cudaMemcpyDeviceToHost), cudaSuccess);
            for (int32_t i = 0; i < n; i++) {
                const int32_t address = 128 + i, moved = (w ? address ^ (address / 128 % (w / 16)) * 16 : address) - 128;
                if (moved < n)
                    cr_assert_eq(out[moved], box_byte(in, rank, dims, box, at, i), "rank %u, swizzle %d, byte %d", rank, w, i);
            }
            cudaFree(d);
        }
    uint8_t *d = on_device(NULL, 256);
    hopper_bulk(NULL, d, din);
    back(out, d, 256);
    cr_assert_arr_eq(out, in, 256);
    cudaFree(din);
}

Test(hopper, a_map_that_the_driver_would_refuse_is_refused)
{
    _Alignas(64) CUtensorMap map;
    const uint64_t dim[] = {64, 8}, stride[] = {128}, odd[] = {120};
    const uint32_t box[] = {64, 8}, wide[] = {128, 8}, tall[] = {64, 257}, ones[] = {1, 1};
    const struct {
        uintptr_t base;
        const uint64_t *stride;
        const uint32_t *box;
        CUresult want;
    } row[] = {{4096, stride, box, CUDA_SUCCESS}, {4104, stride, box, CUDA_ERROR_INVALID_VALUE}, {4096, odd, box, CUDA_ERROR_INVALID_VALUE},
               {4096, stride, wide, CUDA_ERROR_INVALID_VALUE}, {4096, stride, tall, CUDA_ERROR_INVALID_VALUE}};
    for (int i = 0; i < QR_COUNT(row); i++)
        cr_assert_eq(cuTensorMapEncodeTiled(&map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)row[i].base, dim, row[i].stride, row[i].box, ones,
                                            CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                            CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE), row[i].want, "map %d", i);
    _Alignas(64) char place[16 + sizeof map]; /* what calloc gives is aligned to 16 */
    cr_assert_eq(cuTensorMapEncodeTiled((CUtensorMap *)(void *)(place + 16), CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, (void *)4096, dim, stride, box, ones,
                                        CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_NONE,
                                        CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE), CUDA_ERROR_INVALID_VALUE);
}

/* ---- mistakes ---- */

static const struct expected expected[HOPPER_COUNT] = {
    [HOPPER_NO_RELEASE] = {"nobody can go on", "nobody can go on"},
    [HOPPER_EARLY_RELEASE] = {"race in shared memory", NULL},
    [HOPPER_NO_BYTES] = {"race in shared memory", NULL},
    [HOPPER_NO_FENCE] = {"no fence.proxy.async since", NULL},
    [HOPPER_NO_INIT_FENCE] = {"no fence after its init", "no fence after its init"},
    [HOPPER_NO_INIT] = {"no mbarrier was made", "no mbarrier was made"},
    [HOPPER_NO_WAIT] = {"sums that the wgmma in", NULL},
    [HOPPER_NO_WGMMA_FENCE] = {"no wgmma.fence", "no wgmma.fence"},
    [HOPPER_OPERAND_WRITTEN] = {"its operand in registers was written", "its operand in registers was written"},
    [HOPPER_WARPS_DIFFER] = {"warps of a warpgroup ask for", "warps of a warpgroup ask for"},
    [HOPPER_PRODUCT_LEFT] = {"wgmma under way", "wgmma under way"},
    [HOPPER_COPY_LEFT] = {"bulk copies under way", "bulk copies under way"},
    [HOPPER_REGISTERS] = {"setmaxnreg", "setmaxnreg"},
    [HOPPER_MANY_ARRIVALS] = {"more arrivals in a phase", "more arrivals in a phase"},
    [HOPPER_OTHER_MAP] = {"is no map of a tensor", "is no map of a tensor"},
    [HOPPER_COPY_ALIGNMENT] = {"not aligned to 128 bytes", "not aligned to 128 bytes"},
};

static void run_wrong(int which)
{
    struct products *p = products_new();
    hopper_run(NULL, (enum hopper)which, p->out, p->da, &p->map);
    cudaDeviceSynchronize();
    products_drop(p);
}

Test(hopper, each_mistake_is_reported_with_its_name)
{
    qr_emu_set_order(QR_EMU_FORWARD, 0); /* no copy is done early */
    for (int w = HOPPER_RIGHT + 1; w < HOPPER_COUNT; w++) {
        const char *want = qr_emu_sees_races() ? expected[w].words : expected[w].under_asan;
        if (!want)
            continue;
        qr_emu_expect_begin();
        run_wrong(w);
        const char *said = qr_emu_expect_end();
        cr_assert(*said != 0 && strstr(said, want), "mistake %d: expected \"%s\", got \"%s\"", w, want, said);
    }
    products();
}

Test(hopper, sums_that_nobody_waited_for_are_no_numbers)
{
    char said[8000];
    if (qr_emu_sees_races())
        cr_assert(!is_quiet(run_wrong, HOPPER_NO_WAIT, said, sizeof said) && strstr(said, "hopper.cu:"), "%s", said);
}

/* What tools/gpu.sh asks a real device. */
static void instructions(void)
{
    for (int i = 0; i < INSTRUCTIONS; i++) {
        char said[300];
        const int n_wrong = instructions_check(i, said, sizeof said);
        cr_assert_eq(n_wrong, 0, "%s: %d wrong; %s", instructions_name(i), n_wrong, said);
    }
}

Test(hopper, each_instruction_alone_is_as_the_manuals_say)
{
    in_every_order(instructions);
}

static void run_instructions(const void *arg)
{
    (void)arg;
    dup2(STDERR_FILENO, STDOUT_FILENO);
    setenv("QUIRE_EMU_DEVICES", "0", 1);
    _exit(instructions_main());
}

Test(hopper, a_machine_without_a_device_is_said_so_and_skipped)
{
    char said[512];
    const int status = last_words(said, run_instructions, NULL);
    cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 77, "status %d: %s", status, said);
    cr_assert_str_eq(said, "no device: no CUDA-capable device is detected\n");
}
