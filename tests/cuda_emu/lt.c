/* lt.c - products of matrices for the emulated device, by the definition: d = alpha op(a) op(b) + beta c (+ bias), column-major.
 *
 * It pretends to have five algorithms, so that whoever chooses among them can choose wrongly:
 *     whole    sums in double and rounds once
 *     chain    sums like a chain of mma.sync (ptx.h): in links of 16 (of e4m3 32) from 0, each rounded to f32
 *     split    the sum in two parts, which meet in the workspace
 *     wide     only where a and b are aligned to 128 bytes
 *     rows     only where the columns of b are a multiple of 64
 * What a real one leaves to a crash or to wrong numbers is an error or a report here: an algorithm of another kind of product, too little workspace, leading
 * dimensions and addresses that are not aligned, matrices beyond their memory. How long an algorithm takes is what a test says (qr_emu_set_lt). */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/e4m3.h"
#include "base/half.h"
#include "base/mem.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/emu.h"
#include "tests/cuda_emu/include/cublasLt.h"

#define ALIGNMENT 16 /* of a, b and d: what the algorithms of a device want */
#define WIDE_ALIGNMENT 128
#define ROWS_MULTIPLE 64
#define MAGIC 0x71756972u
#define SCALE_MODES_SINCE 120900

enum { WHOLE, CHAIN, SPLIT, WIDE, ROWS, N_ALGORITHMS };

static float times_us[N_ALGORITHMS] = {5, 5.25f, 3, 2, 4};
static size_t version = 130000;

struct qr_emu_lt {
    int32_t opened;
};

struct desc {
    cublasComputeType_t compute;
    cudaDataType_t scale, bias_type;
    int32_t trans_a, trans_b, a_mode, b_mode;
    cublasLtEpilogue_t epilogue;
    const void *bias, *a_scale, *b_scale;
    int8_t fast;
};

struct layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, batch_stride;
    int32_t n_batches;
};

_Static_assert(sizeof(struct desc) <= sizeof(cublasLtMatmulDescOpaque_t) && sizeof(struct layout) <= sizeof(cublasLtMatrixLayoutOpaque_t), "they hold these");

struct qr_emu_lt_preference {
    uint64_t workspace;
    uint32_t schemes, alignment[4];
};

/* What an algorithm knows about the products that it is for. */
struct algorithm {
    uint32_t magic;
    int32_t which;
    int32_t type_a, type_d, trans_a, trans_b, epilogue, mode;
    uint64_t workspace;
};

_Static_assert(sizeof(struct algorithm) <= sizeof(cublasLtMatmulAlgo_t), "it holds this");

struct product { /* what a stream keeps of a call */
    struct desc desc;
    struct layout la, lb, lc, ld;
    const void *a, *b, *c;
    void *d, *workspace;
    double alpha, beta;
    int32_t which;
    uint64_t workspace_bytes;
};

void qr_emu_set_lt(const float us[QR_EMU_LT_ALGORITHMS])
{
    _Static_assert(N_ALGORITHMS == QR_EMU_LT_ALGORITHMS, "a time for each");
    QR_ASSERT(us != NULL);
    memcpy(times_us, us, sizeof times_us);
}

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    static const char *const words[] = {"success", "not initialized", "invalid value", "not supported", "execution failed"};
    QR_ASSERT((int)status >= 0 && (int)status < QR_COUNT(words));
    return words[status];
}

void qr_emu_set_lt_version(size_t v)
{
    version = v;
}

size_t cublasLtGetVersion(void)
{
    return version;
}

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    QR_ASSERT(out != NULL);
    *out = qr_alloc(1, sizeof **out);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t handle)
{
    qr_free(handle);
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- descriptions ---- */

static struct desc *desc_of(cublasLtMatmulDesc_t desc)
{
    QR_ASSERT(desc != NULL);
    return (struct desc *)(void *)desc->data;
}

static struct layout *layout_of(cublasLtMatrixLayout_t layout)
{
    QR_ASSERT(layout != NULL);
    return (struct layout *)(void *)layout->data;
}

cublasStatus_t cublasLtMatmulDescInit(cublasLtMatmulDesc_t desc, cublasComputeType_t compute, cudaDataType_t scale)
{
    *desc_of(desc) = (struct desc){.compute = compute, .scale = scale, .bias_type = CUDA_R_32F};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    QR_ASSERT(out != NULL);
    *out = qr_alloc(1, sizeof **out);
    return cublasLtMatmulDescInit(*out, compute, scale);
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t desc)
{
    qr_free(desc);
    return CUBLAS_STATUS_SUCCESS;
}

static cublasStatus_t set(void *field, size_t room, const void *value, size_t n)
{
    QR_ASSERT(value != NULL);
    if (n != room)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(field, value, n);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t desc, cublasLtMatmulDescAttributes_t attribute, const void *value, size_t n)
{
    struct desc *d = desc_of(desc);
    if (version < SCALE_MODES_SINCE && (attribute == CUBLASLT_MATMUL_DESC_A_SCALE_MODE || attribute == CUBLASLT_MATMUL_DESC_B_SCALE_MODE))
        return CUBLAS_STATUS_INVALID_VALUE;
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&d->trans_a, sizeof d->trans_a, value, n);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&d->trans_b, sizeof d->trans_b, value, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&d->epilogue, sizeof d->epilogue, value, n);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&d->bias, sizeof d->bias, value, n);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(&d->bias_type, sizeof d->bias_type, value, n);
    case CUBLASLT_MATMUL_DESC_A_SCALE_POINTER: return set(&d->a_scale, sizeof d->a_scale, value, n);
    case CUBLASLT_MATMUL_DESC_B_SCALE_POINTER: return set(&d->b_scale, sizeof d->b_scale, value, n);
    case CUBLASLT_MATMUL_DESC_A_SCALE_MODE: return set(&d->a_mode, sizeof d->a_mode, value, n);
    case CUBLASLT_MATMUL_DESC_B_SCALE_MODE: return set(&d->b_mode, sizeof d->b_mode, value, n);
    case CUBLASLT_MATMUL_DESC_FAST_ACCUM: return set(&d->fast, sizeof d->fast, value, n);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutInit(cublasLtMatrixLayout_t layout, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld)
{
    if (rows == 0 || cols == 0 || ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *layout_of(layout) = (struct layout){.type = type, .rows = rows, .cols = cols, .ld = ld, .n_batches = 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld)
{
    cublasLtMatrixLayoutOpaque_t l = {{0}};
    QR_ASSERT(out != NULL);
    const cublasStatus_t status = cublasLtMatrixLayoutInit(&l, type, rows, cols, ld);
    if (status != CUBLAS_STATUS_SUCCESS)
        return status;
    *out = qr_alloc(1, sizeof **out);
    **out = l;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    qr_free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t n)
{
    struct layout *l = layout_of(layout);
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return set(&l->n_batches, sizeof l->n_batches, value, n);
    return set(&l->batch_stride, sizeof l->batch_stride, value, n);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    QR_ASSERT(out != NULL);
    *out = qr_alloc(1, sizeof **out);
    **out = (struct qr_emu_lt_preference){.schemes = CUBLASLT_REDUCTION_SCHEME_MASK, .alignment = {256, 256, 256, 256}}; /* as the manual says */
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t preference)
{
    qr_free(preference);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t preference, cublasLtMatmulPreferenceAttributes_t attribute,
                                                    const void *value, size_t n)
{
    QR_ASSERT(preference != NULL);
    if (attribute == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(&preference->workspace, sizeof preference->workspace, value, n);
    if (attribute == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        return set(&preference->schemes, sizeof preference->schemes, value, n);
    return set(&preference->alignment[attribute - CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES], sizeof preference->alignment[0], value, n);
}

/* ---- algorithms ---- */

static size_t bytes_of(cudaDataType_t t)
{
    return t == CUDA_R_8I || t == CUDA_R_8F_E4M3 ? 1 : t == CUDA_R_16BF ? 2 : 4;
}

/* E4M3 is multiplied in one orientation, in multiples of 16, with a scale for each column of both sides, or for blocks of 128. */
static bool fits_e4m3(const struct desc *o, const struct layout *a, const struct layout *b, const struct layout *d)
{
    const bool outer = o->a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F && o->b_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const bool blocks = o->a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F && o->b_mode == CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
    return o->trans_a && !o->trans_b && d->type == CUDA_R_32F && (outer || blocks) && o->a_scale && o->b_scale && a->rows % 16 == 0 && a->cols % 16 == 0 &&
           b->type == CUDA_R_8F_E4M3 && (!blocks || a->rows % 128 == 0) && o->epilogue == CUBLASLT_EPILOGUE_DEFAULT;
}

/* Shapes that fit, and types that a device computes with. */
static bool fits(const struct desc *o, const struct layout *a, const struct layout *b, const struct layout *c, const struct layout *d)
{
    const uint64_t m = o->trans_a ? a->cols : a->rows, k = o->trans_a ? a->rows : a->cols;
    const uint64_t n = o->trans_b ? b->rows : b->cols, kb = o->trans_b ? b->cols : b->rows;
    if (k != kb || d->rows != m || d->cols != n || c->rows != m || c->cols != n || c->type != d->type || a->type != b->type)
        return false;
    if (a->n_batches != b->n_batches || a->n_batches != d->n_batches || a->n_batches != c->n_batches)
        return false;
    if (o->compute == CUBLAS_COMPUTE_32I)
        return a->type == CUDA_R_8I && o->trans_a && !o->trans_b && d->type == CUDA_R_32I && m % 4 == 0 && k % 4 == 0;
    if (a->type == CUDA_R_8F_E4M3)
        return fits_e4m3(o, a, b, d);
    return (a->type == CUDA_R_16BF || a->type == CUDA_R_32F) && (d->type == CUDA_R_32F || (d->type == CUDA_R_16BF && a->type == CUDA_R_16BF));
}

static struct algorithm algorithm_for(int which, const struct desc *o, const struct layout *a, const struct layout *d)
{
    return (struct algorithm){.magic = MAGIC, .which = which, .type_a = (int32_t)a->type, .type_d = (int32_t)d->type, .trans_a = o->trans_a,
                              .trans_b = o->trans_b, .epilogue = (int32_t)o->epilogue, .mode = o->a_mode,
                              .workspace = which == SPLIT ? d->rows * d->cols * 8 : 0};
}

static struct algorithm known(const cublasLtMatmulAlgo_t *algo)
{
    struct algorithm g;
    memcpy(&g, algo, sizeof g);
    return g;
}

/* Whether an algorithm is one for this kind of product and this shape. */
static cublasStatus_t check_algorithm(const struct algorithm *g, const struct desc *o, const struct layout *a, const struct layout *d)
{
    const struct algorithm like = algorithm_for(g->which, o, a, d);
    if (g->magic != MAGIC || g->which < 0 || g->which >= N_ALGORITHMS)
        return CUBLAS_STATUS_INVALID_VALUE;
    if (memcmp(g, &like, offsetof(struct algorithm, workspace)) != 0)
        return CUBLAS_STATUS_INVALID_VALUE;
    return g->which == ROWS && d->cols % ROWS_MULTIPLE != 0 ? CUBLAS_STATUS_NOT_SUPPORTED : CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t *out, int *n_out)
{
    static const int order[N_ALGORITHMS] = {WIDE, SPLIT, ROWS, WHOLE, CHAIN};
    QR_ASSERT(handle != NULL && desc != NULL && a != NULL && b != NULL && c != NULL && d != NULL && preference != NULL);
    QR_ASSERT(out != NULL && n_out != NULL && n_wanted > 0);
    *n_out = 0;
    if (!fits(desc_of(desc), layout_of(a), layout_of(b), layout_of(c), layout_of(d)))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (int i = 0; i < N_ALGORITHMS && *n_out < n_wanted; i++) {
        const struct algorithm g = algorithm_for(order[i], desc_of(desc), layout_of(a), layout_of(d));
        if (check_algorithm(&g, desc_of(desc), layout_of(a), layout_of(d)) != CUBLAS_STATUS_SUCCESS || g.workspace > preference->workspace ||
            (g.which == SPLIT && !(preference->schemes & CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE)) ||
            (g.which == WIDE && (preference->alignment[0] < WIDE_ALIGNMENT || preference->alignment[1] < WIDE_ALIGNMENT)))
            continue;
        memset(&out[*n_out], 0, sizeof *out);
        memcpy(&out[*n_out].algo, &g, sizeof g);
        out[*n_out].workspaceSize = g.workspace;
        out[*n_out].wavesCount = 1;
        ++*n_out;
    }
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoCheck(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                       cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, const cublasLtMatmulAlgo_t *algo,
                                       cublasLtMatmulHeuristicResult_t *out)
{
    QR_ASSERT(handle != NULL && algo != NULL && out != NULL);
    const struct algorithm g = known(algo);
    if (!fits(desc_of(desc), layout_of(a), layout_of(b), layout_of(c), layout_of(d)))
        return CUBLAS_STATUS_INVALID_VALUE;
    out->state = check_algorithm(&g, desc_of(desc), layout_of(a), layout_of(d));
    out->workspaceSize = algorithm_for(g.which, desc_of(desc), layout_of(a), layout_of(d)).workspace;
    return out->state;
}

cublasStatus_t cublasLtMatmulAlgoConfigGetAttribute(const cublasLtMatmulAlgo_t *algo, cublasLtMatmulAlgoConfigAttributes_t attribute, void *value, size_t n,
                                                    size_t *n_written)
{
    QR_ASSERT(algo != NULL && value != NULL && n_written != NULL);
    const bool split = known(algo).which == SPLIT;
    const int32_t is = attribute == CUBLASLT_ALGO_CONFIG_SPLITK_NUM ? (split ? 2 : 1) : split ? CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE : 0;
    if (n != sizeof is)
        return CUBLAS_STATUS_INVALID_VALUE;
    memcpy(value, &is, n);
    *n_written = n;
    return CUBLAS_STATUS_SUCCESS;
}

/* ---- multiplying ---- */

static double load(const void *p, cudaDataType_t t, int64_t i)
{
    switch (t) {
    case CUDA_R_32F: return (double)((const float *)p)[i];
    case CUDA_R_16BF: return (double)qr_bf16_to_f32(((const uint16_t *)p)[i]);
    case CUDA_R_8I: return (double)((const int8_t *)p)[i];
    case CUDA_R_8F_E4M3: return (double)qr_e4m3_to_f32(((const uint8_t *)p)[i]);
    default: return (double)((const int32_t *)p)[i];
    }
}

static void store(void *p, cudaDataType_t t, int64_t i, double x)
{
    if (t == CUDA_R_32F)
        ((float *)p)[i] = (float)x;
    else if (t == CUDA_R_16BF)
        ((uint16_t *)p)[i] = qr_f32_to_bf16((float)x);
    else
        ((int32_t *)p)[i] = (int32_t)x;
}

/* What a product of column `row` of a and column `col` of b, at k, is multiplied by. */
static double scale_at(const struct product *o, int64_t row, int64_t col, int64_t k)
{
    const float *a = o->desc.a_scale, *b = o->desc.b_scale;
    if (o->desc.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F)
        return (double)a[row] * (double)b[col];
    if (o->desc.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F) {
        const int64_t n_blocks = (int64_t)(o->la.rows + 127) / 128, n_cols = (int64_t)o->lb.cols;
        return (double)a[row / 128 * ((n_blocks + 3) / 4 * 4) + k / 128] * (double)b[k / 128 * n_cols + col];
    }
    return 1;
}

/* One element's sum, as the algorithm adds. */
static double sum_of(const struct product *o, int64_t row, int64_t col, int64_t a0, int64_t b0)
{
    const int64_t k = (int64_t)(o->desc.trans_a ? o->la.rows : o->la.cols), link = o->la.type == CUDA_R_8F_E4M3 ? 32 : 16;
    double sum = 0, part = 0;
    for (int64_t i = 0; i < k; i++) {
        const double x = load(o->a, o->la.type, a0 + (o->desc.trans_a ? row * o->la.ld + i : i * o->la.ld + row));
        part += x * load(o->b, o->lb.type, b0 + (o->desc.trans_b ? i * o->lb.ld + col : col * o->lb.ld + i)) * scale_at(o, row, col, i);
        const bool ends = i == k - 1 || (o->which == CHAIN && (i + 1) % link == 0) || (o->which == SPLIT && i == k / 2);
        if (!ends)
            continue;
        sum = o->which == CHAIN || o->which == SPLIT ? (double)(float)(sum + part) : sum + part;
        part = 0;
    }
    return sum;
}

static void multiply(const struct product *o, int64_t batch)
{
    const int64_t m = (int64_t)o->ld.rows, n = (int64_t)o->ld.cols;
    const int64_t a0 = batch * o->la.batch_stride, b0 = batch * o->lb.batch_stride, c0 = batch * o->lc.batch_stride, d0 = batch * o->ld.batch_stride;
    const bool rounds = o->which == CHAIN && o->ld.type == CUDA_R_32F;
    for (int64_t col = 0; col < n; col++)
        for (int64_t row = 0; row < m; row++) {
            double sum = o->alpha * sum_of(o, row, col, a0, b0);
            if (o->beta != 0)
                sum += o->beta * load(o->c, o->lc.type, c0 + col * o->lc.ld + row);
            sum = rounds ? (double)(float)sum : sum;
            if (o->desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
                sum += load(o->desc.bias, o->desc.bias_type, row);
            store(o->d, o->ld.type, d0 + col * o->ld.ld + row, sum);
        }
}

static void run_product(const void *closure)
{
    const struct product *o = closure;
    if (o->workspace_bytes > 0)
        memset(o->workspace, 0xff, o->workspace_bytes); /* it may hold anything afterwards */
    for (int32_t batch = 0; batch < o->la.n_batches; batch++)
        multiply(o, batch);
    if (qr_emu_is_wrong(QR_EMU_WRONG_PRODUCTS))
        store(o->d, o->ld.type, 0, load(o->d, o->ld.type, 0) + 1);
    const struct layout *const of[] = {&o->la, &o->lb, &o->ld};
    const void *const at[] = {o->a, o->b, o->d};
    for (int i = 0; i < 3; i++) /* a kernel behind it may begin while it runs */
        for (size_t col = 0; col < of[i]->cols; col++)
            qr_emu_flight_note((const uint8_t *)at[i] + (int64_t)col * of[i]->ld * (int64_t)bytes_of(of[i]->type), of[i]->rows * bytes_of(of[i]->type), i == 2);
    qr_emu_clock_add((double)times_us[o->which]);
}

static void check_bytes(const char *name, const void *p, size_t n, size_t alignment)
{
    const char *wrong = qr_emu_memory_check(p, n);
    if (wrong)
        qr_emu_report("cublasLtMatmul: matrix %s, %zu bytes at %p: %s", name, n, p, wrong);
    if (!qr_emu_memory_is_device(p) && !qr_emu_is_eager())
        qr_emu_report("cublasLtMatmul: matrix %s at %p is memory of the host", name, p);
    if ((uintptr_t)p % alignment != 0)
        qr_emu_report("cublasLtMatmul: matrix %s at %p is not aligned to %zu bytes", name, p, alignment);
}

static void check_matrix(const char *name, const void *p, const struct layout *l, size_t alignment)
{
    const size_t n = (size_t)((int64_t)(l->n_batches - 1) * l->batch_stride + (int64_t)(l->cols - 1) * l->ld + (int64_t)l->rows) * bytes_of(l->type);
    if (alignment > bytes_of(l->type) && (size_t)l->ld * bytes_of(l->type) % alignment != 0)
        qr_emu_report("cublasLtMatmul: columns of matrix %s are %zu bytes apart, which is no multiple of %zu", name, (size_t)l->ld * bytes_of(l->type),
                      alignment);
    check_bytes(name, p, n, alignment);
}

/* All that an algorithm takes for granted. */
static void check_product(const struct product *p)
{
    const size_t alignment = p->which == WIDE ? WIDE_ALIGNMENT : ALIGNMENT;
    check_matrix("a", p->a, &p->la, alignment);
    check_matrix("b", p->b, &p->lb, alignment);
    check_matrix("d", p->d, &p->ld, bytes_of(p->ld.type));
    if (p->beta != 0)
        check_matrix("c", p->c, &p->lc, bytes_of(p->lc.type));
    if (p->desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
        check_bytes("bias", p->desc.bias, p->ld.rows * bytes_of(p->desc.bias_type), bytes_of(p->desc.bias_type));
    if (p->la.type == CUDA_R_8F_E4M3) {
        const bool outer = p->desc.a_mode == CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
        const size_t steps = (p->la.rows + 127) / 128;
        check_bytes("a's scales", p->desc.a_scale, (outer ? p->la.cols : (p->la.cols + 127) / 128 * ((steps + 3) / 4 * 4)) * sizeof(float), 16);
        check_bytes("b's scales", p->desc.b_scale, (outer ? p->lb.cols : steps * p->lb.cols) * sizeof(float), 16);
    }
    if (p->workspace_bytes > 0)
        check_bytes("workspace", p->workspace, p->workspace_bytes, 256);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    QR_ASSERT(handle != NULL && desc != NULL && alpha != NULL && beta != NULL);
    QR_ASSERT(a_layout != NULL && b_layout != NULL && c_layout != NULL && d_layout != NULL);
    struct product p = {.desc = *desc_of(desc), .la = *layout_of(a_layout), .lb = *layout_of(b_layout), .lc = *layout_of(c_layout),
                        .ld = *layout_of(d_layout), .a = a, .b = b, .c = c, .d = d, .workspace = workspace};
    if (!fits(&p.desc, &p.la, &p.lb, &p.lc, &p.ld))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    const struct algorithm g = algo ? known(algo) : algorithm_for(WHOLE, &p.desc, &p.la, &p.ld);
    const cublasStatus_t able = check_algorithm(&g, &p.desc, &p.la, &p.ld);
    if (able != CUBLAS_STATUS_SUCCESS)
        return able;
    p.which = g.which;
    p.workspace_bytes = algorithm_for(g.which, &p.desc, &p.la, &p.ld).workspace;
    if (p.workspace_bytes > workspace_bytes)
        return CUBLAS_STATUS_INVALID_VALUE;
    p.alpha = p.desc.scale == CUDA_R_32F ? (double)*(const float *)alpha : (double)*(const int32_t *)alpha;
    p.beta = p.desc.scale == CUDA_R_32F ? (double)*(const float *)beta : (double)*(const int32_t *)beta;
    check_product(&p);
    qr_emu_enqueue_host(stream, &p, sizeof p, run_product);
    return CUBLAS_STATUS_SUCCESS;
}
