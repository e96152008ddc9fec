/* lt.c - products of matrices for the emulated device, by the definition: d = alpha op(a) op(b) + beta c (+ bias), column-major. */
#include <math.h>
#include <string.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"
#include "tests/cuda_emu/core.h"
#include "tests/cuda_emu/include/cublasLt.h"

#define ALIGNMENT 16 /* of a and b: what the algorithms of a device want of 16-bit numbers */

struct qr_emu_lt {
    int32_t opened;
};

struct qr_emu_lt_desc {
    cublasComputeType_t compute;
    cudaDataType_t scale, bias_type;
    int32_t trans_a, trans_b, epilogue;
    const void *bias;
};

struct qr_emu_lt_layout {
    cudaDataType_t type;
    uint64_t rows, cols;
    int64_t ld, batch_stride;
    int32_t n_batches;
};

struct qr_emu_lt_preference {
    uint64_t workspace;
};

struct product { /* what a stream keeps of a call */
    struct qr_emu_lt_desc desc;
    struct qr_emu_lt_layout la, lb, lc, ld;
    const void *a, *b, *c;
    void *d;
    double alpha, beta;
};

const char *cublasLtGetStatusString(cublasStatus_t status)
{
    static const char *const words[] = {"success", "not initialized", "invalid value", "not supported", "execution failed"};
    QR_ASSERT((int)status >= 0 && (int)status < QR_COUNT(words));
    return words[status];
}

size_t cublasLtGetVersion(void)
{
    return 130000;
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

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute, cudaDataType_t scale)
{
    QR_ASSERT(out != NULL);
    *out = qr_alloc(1, sizeof **out);
    **out = (struct qr_emu_lt_desc){.compute = compute, .scale = scale, .bias_type = CUDA_R_32F};
    return CUBLAS_STATUS_SUCCESS;
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
    QR_ASSERT(desc != NULL);
    switch (attribute) {
    case CUBLASLT_MATMUL_DESC_TRANSA: return set(&desc->trans_a, sizeof desc->trans_a, value, n);
    case CUBLASLT_MATMUL_DESC_TRANSB: return set(&desc->trans_b, sizeof desc->trans_b, value, n);
    case CUBLASLT_MATMUL_DESC_EPILOGUE: return set(&desc->epilogue, sizeof desc->epilogue, value, n);
    case CUBLASLT_MATMUL_DESC_BIAS_POINTER: return set(&desc->bias, sizeof desc->bias, value, n);
    case CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE: return set(&desc->bias_type, sizeof desc->bias_type, value, n);
    }
    return CUBLAS_STATUS_INVALID_VALUE;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType_t type, uint64_t rows, uint64_t cols, int64_t ld)
{
    QR_ASSERT(out != NULL);
    if (ld < (int64_t)rows)
        return CUBLAS_STATUS_INVALID_VALUE;
    *out = qr_alloc(1, sizeof **out);
    **out = (struct qr_emu_lt_layout){.type = type, .rows = rows, .cols = cols, .ld = ld, .n_batches = 1};
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t layout)
{
    qr_free(layout);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t layout, cublasLtMatrixLayoutAttribute_t attribute, const void *value, size_t n)
{
    QR_ASSERT(layout != NULL);
    if (attribute == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT)
        return set(&layout->n_batches, sizeof layout->n_batches, value, n);
    return set(&layout->batch_stride, sizeof layout->batch_stride, value, n);
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    QR_ASSERT(out != NULL);
    *out = qr_alloc(1, sizeof **out);
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
    return n == sizeof(uint32_t) ? CUBLAS_STATUS_SUCCESS : CUBLAS_STATUS_INVALID_VALUE;
}

static size_t bytes_of(cudaDataType_t t)
{
    return t == CUDA_R_8I ? 1 : t == CUDA_R_16BF ? 2 : 4;
}

/* Shapes that fit, and types that a device computes with. */
static bool fits(const struct qr_emu_lt_desc *o, const struct qr_emu_lt_layout *a, const struct qr_emu_lt_layout *b, const struct qr_emu_lt_layout *c,
                 const struct qr_emu_lt_layout *d)
{
    const uint64_t m = o->trans_a ? a->cols : a->rows, k = o->trans_a ? a->rows : a->cols;
    const uint64_t n = o->trans_b ? b->rows : b->cols, kb = o->trans_b ? b->cols : b->rows;
    if (k != kb || d->rows != m || d->cols != n || c->rows != m || c->cols != n || c->type != d->type || a->type != b->type)
        return false;
    if (a->n_batches != b->n_batches || a->n_batches != d->n_batches || a->n_batches != c->n_batches)
        return false;
    if (o->compute == CUBLAS_COMPUTE_32I)
        return a->type == CUDA_R_8I && o->trans_a && !o->trans_b && d->type == CUDA_R_32I && m % 4 == 0 && k % 4 == 0;
    return (a->type == CUDA_R_16BF || a->type == CUDA_R_32F) && (d->type == CUDA_R_32F || (d->type == CUDA_R_16BF && a->type == CUDA_R_16BF));
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t d, cublasLtMatmulPreference_t preference, int n_wanted,
                                              cublasLtMatmulHeuristicResult_t *out, int *n_out)
{
    QR_ASSERT(handle != NULL && desc != NULL && a != NULL && b != NULL && c != NULL && d != NULL && preference != NULL);
    QR_ASSERT(out != NULL && n_out != NULL && n_wanted > 0);
    *n_out = 0;
    if (!fits(desc, a, b, c, d))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    memset(&out[0], 0, sizeof out[0]);
    out[0].wavesCount = 1;
    *n_out = 1;
    return CUBLAS_STATUS_SUCCESS;
}

static double load(const void *p, cudaDataType_t t, int64_t i)
{
    switch (t) {
    case CUDA_R_32F: return (double)((const float *)p)[i];
    case CUDA_R_16BF: return (double)qr_bf16_to_f32(((const uint16_t *)p)[i]);
    case CUDA_R_8I: return (double)((const int8_t *)p)[i];
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

static void multiply(const struct product *o, int64_t batch)
{
    const int64_t m = (int64_t)o->ld.rows, n = (int64_t)o->ld.cols, k = (int64_t)(o->desc.trans_a ? o->la.rows : o->la.cols);
    const int64_t a0 = batch * o->la.batch_stride, b0 = batch * o->lb.batch_stride, c0 = batch * o->lc.batch_stride, d0 = batch * o->ld.batch_stride;
    for (int64_t col = 0; col < n; col++)
        for (int64_t row = 0; row < m; row++) {
            double sum = 0;
            for (int64_t i = 0; i < k; i++)
                sum += load(o->a, o->la.type, a0 + (o->desc.trans_a ? row * o->la.ld + i : i * o->la.ld + row)) *
                       load(o->b, o->lb.type, b0 + (o->desc.trans_b ? i * o->lb.ld + col : col * o->lb.ld + i));
            sum *= o->alpha;
            if (o->desc.epilogue == CUBLASLT_EPILOGUE_BIAS)
                sum += load(o->desc.bias, o->desc.bias_type, row);
            if (o->beta != 0)
                sum += o->beta * load(o->c, o->lc.type, c0 + col * o->lc.ld + row);
            store(o->d, o->ld.type, d0 + col * o->ld.ld + row, sum);
        }
}

static void run_product(const void *closure)
{
    const struct product *o = closure;
    for (int32_t batch = 0; batch < o->la.n_batches; batch++)
        multiply(o, batch);
}

static void check_matrix(const char *name, const void *p, const struct qr_emu_lt_layout *l, size_t alignment)
{
    const size_t n = (size_t)((int64_t)(l->n_batches - 1) * l->batch_stride + (int64_t)(l->cols - 1) * l->ld + (int64_t)l->rows) * bytes_of(l->type);
    const char *wrong = qr_emu_memory_check(p, n);
    if (wrong)
        qr_emu_report("cublasLtMatmul: matrix %s, %zu bytes at %p: %s", name, n, p, wrong);
    if (!qr_emu_memory_is_device(p) && !qr_emu_is_eager())
        qr_emu_report("cublasLtMatmul: matrix %s at %p is memory of the host", name, p);
    if ((uintptr_t)p % alignment != 0)
        qr_emu_report("cublasLtMatmul: matrix %s at %p is not aligned to %zu bytes", name, p, alignment);
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t handle, cublasLtMatmulDesc_t desc, const void *alpha, const void *a, cublasLtMatrixLayout_t a_layout,
                              const void *b, cublasLtMatrixLayout_t b_layout, const void *beta, const void *c, cublasLtMatrixLayout_t c_layout, void *d,
                              cublasLtMatrixLayout_t d_layout, const cublasLtMatmulAlgo_t *algo, void *workspace, size_t workspace_bytes,
                              cudaStream_t stream)
{
    QR_ASSERT(handle != NULL && desc != NULL && alpha != NULL && beta != NULL);
    QR_ASSERT(a_layout != NULL && b_layout != NULL && c_layout != NULL && d_layout != NULL);
    (void)algo, (void)workspace, (void)workspace_bytes;
    if (!fits(desc, a_layout, b_layout, c_layout, d_layout))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    struct product p = {.desc = *desc, .la = *a_layout, .lb = *b_layout, .lc = *c_layout, .ld = *d_layout, .a = a, .b = b, .c = c, .d = d};
    p.alpha = desc->scale == CUDA_R_32F ? (double)*(const float *)alpha : (double)*(const int32_t *)alpha;
    p.beta = desc->scale == CUDA_R_32F ? (double)*(const float *)beta : (double)*(const int32_t *)beta;
    check_matrix("a", a, a_layout, ALIGNMENT);
    check_matrix("b", b, b_layout, ALIGNMENT);
    check_matrix("d", d, d_layout, bytes_of(d_layout->type));
    if (p.beta != 0)
        check_matrix("c", c, c_layout, bytes_of(c_layout->type));
    qr_emu_enqueue_host(stream, &p, sizeof p, run_product);
    return CUBLAS_STATUS_SUCCESS;
}
