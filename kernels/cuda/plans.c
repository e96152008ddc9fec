/* Choices of algorithms for dense products, and the calls of cuBLASLt. Its matrices are column-major: our out [m, n] is
 * its d [n, m], our b is its a, and our a its b. A choice is made once for each kind of product, on numbers of a probe:
 * fastest with our kernel's bits, or fastest of all. It is kept in a file and adopted by other ranks, so all processes
 * of a machine compute alike. Nothing is chosen while a graph is recorded. One thread per device. */
#include "kernels/cuda/plans.h"

#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/buf.h"
#include "base/clock.h"
#include "base/file.h"
#include "base/hash.h"
#include "kernels/backend.h"
#include "kernels/cuda/queue.h"
#include "kernels/tune.h"

#define ROWS_OWN 16             /* with no more rows the skinny kernel reads weights at the speed of memory */
#define GUESSES 8               /* of cuBLASLt's that are tried */
#define TIMES 3
#define CHOOSE_US 900000        /* all of a process' choices together; afterwards one guess is tried each */
#define INVARIANCE_COST 1.10f   /* what equal bits in any batch may cost */
#define FASTER 0.97f            /* a later guess must be this much faster, so that noise decides little */
#define PROBE_BYTES ((size_t)1 << 30)
#define ALIGNMENT 16
#define PLANS_MAX 1024
#define LT_SCALES_SINCE 120900 /* as cublasLtGetVersion counts */

struct key {
    int32_t op, n, fixed, rows; /* fixed: k, or m of dw; rows: the most of the bucket */
    int32_t bias, e4m3;
};

/* Which kernel multiplies. */
struct choice {
    bool own;
    float us;
    uint64_t workspace;
    cublasLtMatmulAlgo_t algo;
};

struct plan {
    struct key key;
    struct choice same, best;
    float own_us;
    int32_t checked; /* rows for which the algorithm in use was asked last whether it can */
    bool able, fresh; /* it can; made by this process */
};

struct qr_plans {
    struct plan plan[PLANS_MAX];
    int32_t n;
    int64_t spent_us, n_calls[2], n_own[2]; /* products of bf16 and of E4M3; those of them that own has multiplied */
    bool read, changed;
};

/* A product as cuBLASLt has it. */
struct call {
    cublasLtMatmulDescOpaque_t desc;
    cublasLtMatrixLayoutOpaque_t a, b, d;
};

#define LT(x)                                                                                                       \
    do {                                                                                                            \
        const cublasStatus_t status_ = (x);                                                                         \
        if (status_ != CUBLAS_STATUS_SUCCESS)                                                                       \
            qr_cuda_check_failed(__FILE__, __LINE__, #x, cublasLtGetStatusString(status_));                         \
    } while (0)

static const char *const op_name[QR_PLAN_OPS] = {"forward", "dx", "dw"};

static struct qr_plans *plans_of(struct qr_queue *q)
{
    if (!q->plans)
        q->plans = calloc(1, sizeof *q->plans);
    QR_ASSERT(q->plans != NULL);
    return q->plans;
}

static int32_t rows_of(const struct qr_plan_product *p)
{
    return p->op == QR_PLAN_DW ? p->k : p->m;
}

static int32_t bucket_of(int32_t n_rows)
{
    int32_t b = 32;
    while (b < n_rows && b < 1024)
        b *= 2;
    return b < n_rows ? INT32_MAX : b;
}

static struct key key_of(const struct qr_plan_product *p)
{
    return (struct key){p->op, p->n, p->op == QR_PLAN_DW ? p->m : p->k, bucket_of(rows_of(p)), p->bias != NULL, p->e4m3};
}

static bool aligned(const void *at, int64_t stride, size_t element)
{
    return (uintptr_t)at % ALIGNMENT == 0 && (size_t)stride * element % ALIGNMENT == 0;
}

/* cuBLASLt has scales of rows since CUDA 12.9: an older header has no words for them, an older library refuses these. */
#if defined(CUBLAS_VERSION) && CUBLAS_VERSION < LT_SCALES_SINCE
#define LT_KNOWS_SCALES 0
#else
#define LT_KNOWS_SCALES 1
#endif

static bool knows_scales(void)
{
    return LT_KNOWS_SCALES && cublasLtGetVersion() >= LT_SCALES_SINCE;
}

/* Whether cuBLASLt may be asked at all. */
static bool is_for_lt(const struct qr_queue *q, const struct qr_plan_product *p)
{
    const size_t element = p->e4m3 ? 1 : 2;
    if (q->lt_elements_min == 0 || rows_of(p) <= ROWS_OWN || (p->bias && (p->add || p->e4m3 || p->op != QR_PLAN_FORWARD)))
        return false;
    if (p->e4m3 && !knows_scales())
        return false;
    const int64_t elements = (int64_t)p->n * (p->op == QR_PLAN_DW ? p->m : p->k);
    return elements >= q->lt_elements_min && aligned(p->a, p->a_stride, element) && aligned(p->b, p->b_stride, element) &&
           aligned(p->out, p->out_stride, 4) && (uintptr_t)p->bias % ALIGNMENT == 0;
}

/* ---- calls ---- */

static void layout(cublasLtMatrixLayoutOpaque_t *l, cudaDataType_t type, int64_t rows, int64_t cols, int64_t ld)
{
    LT(cublasLtMatrixLayoutInit(l, type, (uint64_t)rows, (uint64_t)cols, ld));
}

static void set(struct call *c, cublasLtMatmulDescAttributes_t what, const void *value, size_t n)
{
    LT(cublasLtMatmulDescSetAttribute(&c->desc, what, value, n));
}

/* E4M3: each side's scales stand for its rows; sums are not to be rounded before they end. */
static void describe_scales(struct call *c, const struct qr_plan_product *p)
{
#if LT_KNOWS_SCALES
    const int32_t mode = CUBLASLT_MATMUL_MATRIX_SCALE_OUTER_VEC_32F;
    const int8_t fast = 0;
    set(c, CUBLASLT_MATMUL_DESC_A_SCALE_MODE, &mode, sizeof mode);
    set(c, CUBLASLT_MATMUL_DESC_B_SCALE_MODE, &mode, sizeof mode);
    set(c, CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, &p->b_scale, sizeof p->b_scale);
    set(c, CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, &p->a_scale, sizeof p->a_scale);
    set(c, CUBLASLT_MATMUL_DESC_FAST_ACCUM, &fast, sizeof fast);
#else
    (void)c, (void)p;
#endif
}

static void call_of(struct call *c, const struct qr_plan_product *p)
{
    const cudaDataType_t number = p->e4m3 ? CUDA_R_8F_E4M3 : CUDA_R_16BF;
    const int32_t a_turned = p->op == QR_PLAN_FORWARD ? CUBLAS_OP_T : CUBLAS_OP_N, b_turned = p->op == QR_PLAN_DW ? CUBLAS_OP_T : CUBLAS_OP_N;
    LT(cublasLtMatmulDescInit(&c->desc, CUBLAS_COMPUTE_32F, CUDA_R_32F));
    set(c, CUBLASLT_MATMUL_DESC_TRANSA, &a_turned, sizeof a_turned);
    set(c, CUBLASLT_MATMUL_DESC_TRANSB, &b_turned, sizeof b_turned);
    if (p->bias) {
        const cublasLtEpilogue_t epilogue = CUBLASLT_EPILOGUE_BIAS;
        const int32_t type = CUDA_R_32F;
        set(c, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue);
        set(c, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p->bias, sizeof p->bias);
        set(c, CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, &type, sizeof type);
    }
    if (p->e4m3)
        describe_scales(c, p);
    if (p->op == QR_PLAN_FORWARD)
        layout(&c->a, number, p->k, p->n, p->b_stride);
    else
        layout(&c->a, number, p->n, p->k, p->b_stride);
    if (p->op == QR_PLAN_DW)
        layout(&c->b, number, p->m, p->k, p->a_stride);
    else
        layout(&c->b, number, p->k, p->m, p->a_stride);
    layout(&c->d, CUDA_R_32F, p->n, p->m, p->out_stride);
}

static cublasStatus_t launch(struct qr_queue *q, struct call *c, const struct qr_plan_product *p, const cublasLtMatmulAlgo_t *algo)
{
    const float one = 1, old = p->add ? 1 : 0;
    return cublasLtMatmul(q->lt, &c->desc, &one, p->b, &c->a, p->a, &c->b, &old, p->out, &c->d, p->out, &c->d, algo, q->workspace, q->workspace_bytes,
                          q->stream);
}

/* ---- choosing ---- */

/* What candidates are tried on. */
struct probe {
    struct qr_plan_product p;
    uint8_t *memory; /* owned: the device's */
    uint16_t *a, *b; /* b: of dw, else the weights themselves */
    unsigned long long *sum;
    int64_t out_floats;
    cudaEvent_t begin, end;
};

/* Operands without gaps, as many rows as a piece of memory holds. False: there is no such piece. */
static bool probe_open(struct qr_queue *q, struct probe *o, const struct qr_plan_product *like)
{
    struct qr_plan_product *p = &o->p;
    int32_t rows = bucket_of(rows_of(like));
    memset(o, 0, sizeof *o);
    *p = *like;
    p->add = !p->bias;
    p->out_stride = ((int64_t)p->n + 3) / 4 * 4;
    for (rows = rows < 2048 ? rows : 2048; rows > ROWS_OWN; rows /= 2) {
        const bool dw = p->op == QR_PLAN_DW;
        *(dw ? &p->k : &p->m) = rows;
        p->a_stride = ((int64_t)(dw ? p->m : p->k) + 15) / 16 * 16;
        p->b_stride = dw ? ((int64_t)p->n + 7) / 8 * 8 : p->b_stride;
        const size_t a_bytes = (size_t)rows * (size_t)p->a_stride * 2, b_bytes = dw ? (size_t)rows * (size_t)p->b_stride * 2 : 0;
        o->out_floats = p->m * p->out_stride;
        const size_t out_bytes = ((size_t)o->out_floats * 4 + 255) / 256 * 256, scale_bytes = (size_t)rows * 4;
        const size_t n = 256 + out_bytes + (a_bytes + 255) / 256 * 256 + b_bytes + scale_bytes + 256;
        if (n > PROBE_BYTES || cudaMalloc((void **)&o->memory, n) != cudaSuccess) {
            (void)cudaGetLastError();
            continue;
        }
        o->sum = (unsigned long long *)(void *)o->memory;
        p->out = (float *)(void *)(o->memory + 256);
        o->a = (uint16_t *)(void *)(o->memory + 256 + out_bytes);
        o->b = (uint16_t *)(void *)((uint8_t *)o->a + (a_bytes + 255) / 256 * 256);
        p->a = o->a;
        if (p->e4m3) { /* the probe's bytes lack an exponent of all ones, so none is NaN */
            p->a_scale = (const float *)(const void *)((uint8_t *)o->b + (b_bytes + 255) / 256 * 256);
            qr_cuda_probe_fill(q, (uint16_t *)(uintptr_t)p->a_scale, 2 * rows, 4);
        }
        qr_cuda_probe_fill(q, o->a, (int64_t)(a_bytes / 2), p->e4m3 ? QR_PROBE_BYTES : 1);
        if (dw) {
            p->b = o->b;
            qr_cuda_probe_fill(q, o->b, (int64_t)(b_bytes / 2), 2);
        }
        QR_CUDA_CHECK(cudaEventCreate(&o->begin));
        QR_CUDA_CHECK(cudaEventCreate(&o->end));
        return true;
    }
    return false;
}

static void probe_close(struct qr_queue *q, struct probe *o)
{
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
    QR_CUDA_CHECK(cudaEventDestroy(o->begin));
    QR_CUDA_CHECK(cudaEventDestroy(o->end));
    QR_CUDA_CHECK(cudaFree(o->memory));
}

static bool run(struct qr_queue *q, struct probe *o, const cublasLtMatmulAlgo_t *algo, qr_plan_own *own)
{
    struct call c;
    if (!algo) {
        own(q, &o->p);
        return true;
    }
    call_of(&c, &o->p);
    return launch(q, &c, &o->p, algo) == CUBLAS_STATUS_SUCCESS;
}

/* Microseconds, the least of a few, and what the result's bits add up to. False: it cannot. algo NULL: own. */
static bool measure(struct qr_queue *q, struct probe *o, const cublasLtMatmulAlgo_t *algo, qr_plan_own *own, float *us, unsigned long long *sum)
{
    qr_cuda_probe_fill(q, (uint16_t *)(void *)o->p.out, 2 * o->out_floats, 3);
    QR_CUDA_CHECK(cudaMemsetAsync(o->sum, 0, sizeof *o->sum, qr_queue_apart(q)));
    if (!run(q, o, algo, own))
        return false;
    qr_cuda_probe_sum(q, o->sum, o->p.out, o->out_floats);
    QR_CUDA_CHECK(cudaMemcpyAsync(sum, o->sum, sizeof *sum, cudaMemcpyDeviceToHost, qr_queue_apart(q)));
    QR_CUDA_CHECK(cudaStreamSynchronize(q->stream));
    *us = 0;
    for (int i = 0; i < TIMES; i++) {
        float ms = 0;
        QR_CUDA_CHECK(cudaEventRecord(o->begin, q->stream));
        if (!run(q, o, algo, own))
            return false;
        QR_CUDA_CHECK(cudaEventRecord(o->end, q->stream));
        QR_CUDA_CHECK(cudaEventSynchronize(o->end));
        QR_CUDA_CHECK(cudaEventElapsedTime(&ms, o->begin, o->end));
        *us = i == 0 || ms * 1e3f < *us ? ms * 1e3f : *us;
    }
    return true;
}

/* cuBLASLt's guesses for the probe that sum in one sequence and find room in the workspace; how many. */
static int guess(struct qr_queue *q, const struct qr_plan_product *p, cublasLtMatmulHeuristicResult_t out[GUESSES], int wanted)
{
    static const cublasLtMatmulPreferenceAttributes_t alignments[] = {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                                                                      CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES};
    const uint64_t room = q->workspace_bytes;
    const uint32_t whole_sums = CUBLASLT_REDUCTION_SCHEME_NONE, alignment = ALIGNMENT;
    cublasLtMatmulPreference_t preference;
    struct call c;
    int n = 0;
    call_of(&c, p);
    LT(cublasLtMatmulPreferenceCreate(&preference));
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &room, sizeof room));
    LT(cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &whole_sums, sizeof whole_sums));
    for (size_t i = 0; i < sizeof alignments / sizeof *alignments; i++)
        LT(cublasLtMatmulPreferenceSetAttribute(preference, alignments[i], &alignment, sizeof alignment));
    if (cublasLtMatmulAlgoGetHeuristic(q->lt, &c.desc, &c.a, &c.b, &c.d, &c.d, preference, wanted, out, &n) != CUBLAS_STATUS_SUCCESS)
        n = 0; /* none for this shape */
    LT(cublasLtMatmulPreferenceDestroy(preference));
    return n;
}

/* No sum is split, whatever the guess says of itself. */
static bool sums_in_one(const cublasLtMatmulAlgo_t *algo)
{
    int32_t split = 1, scheme = 0;
    size_t n = 0;
    if (cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_SPLITK_NUM, &split, sizeof split, &n) != CUBLAS_STATUS_SUCCESS ||
        cublasLtMatmulAlgoConfigGetAttribute(algo, CUBLASLT_ALGO_CONFIG_REDUCTION_SCHEME, &scheme, sizeof scheme, &n) != CUBLAS_STATUS_SUCCESS)
        return true; /* such algorithms have no such choice */
    return split <= 1 && scheme == CUBLASLT_REDUCTION_SCHEME_NONE;
}

static void choose(struct qr_queue *q, struct plan *plan, const struct qr_plan_product *p, qr_plan_own *own)
{
    struct qr_plans *all = plans_of(q);
    cublasLtMatmulHeuristicResult_t found[GUESSES];
    struct probe o;
    unsigned long long own_sum = 0;
    const int64_t began = qr_clock_us();
    plan->same = (struct choice){.own = true};
    if (probe_open(q, &o, p)) {
        const int n = guess(q, &o.p, found, all->spent_us < CHOOSE_US ? GUESSES : 1);
        if (measure(q, &o, NULL, own, &plan->own_us, &own_sum))
            plan->same.us = plan->own_us;
        plan->best = plan->same;
        for (int i = 0; i < n; i++) {
            struct choice c = {.workspace = found[i].workspaceSize, .algo = found[i].algo};
            unsigned long long sum = 0;
            if (found[i].state != CUBLAS_STATUS_SUCCESS || c.workspace > q->workspace_bytes || !sums_in_one(&c.algo) ||
                !measure(q, &o, &c.algo, own, &c.us, &sum))
                continue;
            if (c.us < FASTER * plan->best.us)
                plan->best = c;
            if (sum == own_sum && c.us < FASTER * plan->same.us)
                plan->same = c;
        }
        probe_close(q, &o);
    } else {
        plan->best = plan->same;
    }
    plan->fresh = true;
    all->changed = true;
    all->spent_us += qr_clock_us() - began;
}

/* ---- the file ---- */

/* One for each GPU and version of cuBLAS, whose algorithms mean nothing to another. */
static bool path_of(const struct qr_queue *q, char *out, size_t size, char *dir, size_t dir_size)
{
    if (!q->keeps_plans || !qr_tune_dir(dir, dir_size))
        return false;
    char what[256];
    const int n = snprintf(what, sizeof what, "%s sm_%d x%d", q->name, (int)q->sm, (int)q->n_sms);
    return snprintf(out, size, "%s/cublaslt-%016" PRIx64 "-%zu.txt", dir, qr_hash64(what, (size_t)n, 0), cublasLtGetVersion()) < (int)size;
}

static void put_choice(struct qr_buf *b, const struct choice *c)
{
    qr_buf_printf(b, " %d %a %" PRIu64 " ", c->own, (double)c->us, c->workspace);
    for (size_t i = 0; i < sizeof c->algo; i++)
        qr_buf_printf(b, "%02x", ((const uint8_t *)&c->algo)[i]);
}

static const char *take_choice(struct choice *c, const char *at)
{
    int own = 0, n = 0;
    float us = 0;
    if (sscanf(at, " %d %a %" SCNu64 " %n", &own, &us, &c->workspace, &n) < 3)
        return NULL;
    c->own = own != 0;
    c->us = us;
    at += n;
    for (size_t i = 0; i < sizeof c->algo; i++, at += 2) {
        unsigned int byte;
        if (sscanf(at, "%2x", &byte) != 1)
            return NULL;
        ((uint8_t *)&c->algo)[i] = (uint8_t)byte;
    }
    return at;
}

static void put_lines(struct qr_buf *body, const struct qr_plans *all)
{
    for (int32_t i = 0; i < all->n; i++) {
        const struct plan *p = &all->plan[i];
        qr_buf_printf(body, "%d %d %d %d %d %d %a", p->key.op, p->key.n, p->key.fixed, p->key.rows, p->key.bias, p->key.e4m3, (double)p->own_us);
        put_choice(body, &p->same);
        put_choice(body, &p->best);
        qr_buf_printf(body, "\n");
    }
}

/* First line: a checksum of the rest. */
static void save(const struct qr_queue *q)
{
    char path[5000], dir[4096];
    struct qr_buf body = {0}, text = {0};
    struct qr_err err;
    if (!path_of(q, path, sizeof path, dir, sizeof dir) || qr_dir_make_all(dir, 0700, &err) != 0)
        return;
    put_lines(&body, q->plans);
    qr_buf_printf(&text, "quire cublaslt 2 %016" PRIx64 "\n%.*s", qr_hash64(body.data, body.len, 0), (int)body.len, (const char *)body.data);
    (void)qr_file_replace(path, text.data, text.len, &err); /* then it is measured again next time */
    qr_buf_release(&body);
    qr_buf_release(&text);
}

static struct plan *plan_of(struct qr_plans *all, const struct key *key)
{
    for (int32_t i = 0; i < all->n; i++)
        if (memcmp(&all->plan[i].key, key, sizeof *key) == 0)
            return &all->plan[i];
    return NULL;
}

/* In the place of what was chosen for the same kind. */
static void take_lines(struct qr_plans *all, const char *at, const struct qr_queue *q)
{
    for (const char *end; (end = strchr(at, '\n')) != NULL; at = end + 1) {
        struct plan p = {0};
        int n = 0;
        if (sscanf(at, "%d %d %d %d %d %d %a%n", &p.key.op, &p.key.n, &p.key.fixed, &p.key.rows, &p.key.bias, &p.key.e4m3, &p.own_us, &n) != 7)
            return;
        const char *next = take_choice(&p.same, at + n);
        if (!next || !take_choice(&p.best, next) || p.same.workspace > q->workspace_bytes || p.best.workspace > q->workspace_bytes)
            return;
        struct plan *old = plan_of(all, &p.key);
        if (!old && all->n == PLANS_MAX)
            return;
        *(old ? old : &all->plan[all->n++]) = p;
    }
}

/* What earlier processes chose; anything that is not as it was written counts as nothing. */
static void load(struct qr_queue *q)
{
    char path[5000], dir[4096];
    struct qr_plans *all = plans_of(q);
    uint64_t hash = 0;
    int head = 0;
    if (all->read)
        return;
    all->read = true;
    if (!path_of(q, path, sizeof path, dir, sizeof dir))
        return;
    FILE *f = fopen(path, "r");
    const size_t size = (size_t)1 << 20;
    char *text = f ? calloc(1, size + 1) : NULL;
    const size_t n = text ? fread(text, 1, size, f) : 0;
    if (n > 0 && sscanf(text, "quire cublaslt 2 %" SCNx64 "\n%n", &hash, &head) == 1 && head > 0 && qr_hash64(text + head, n - (size_t)head, 0) == hash)
        take_lines(all, text + head, q);
    free(text);
    if (f)
        fclose(f);
}

/* ---- use ---- */

static struct plan *find(struct qr_queue *q, const struct qr_plan_product *p)
{
    const struct key key = key_of(p);
    return plan_of(plans_of(q), &key);
}

void qr_plan_prepare(struct qr_queue *q, const struct qr_plan_product *p, qr_plan_own *own)
{
    QR_ASSERT(q != NULL && p != NULL && own != NULL);
    QR_ASSERT(p->n > 0 && (p->b != NULL || p->op == QR_PLAN_DW));
    if (!is_for_lt(q, p))
        return;
    load(q);
    struct qr_plans *all = plans_of(q);
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    if (find(q, p) || all->n == PLANS_MAX)
        return;
    QR_CUDA_CHECK(cudaStreamIsCapturing(q->stream, &capture));
    if (capture != cudaStreamCaptureStatusNone)
        return; /* nothing can be measured now */
    struct plan *plan = &all->plan[all->n];
    *plan = (struct plan){.key = key_of(p)};
    choose(q, plan, p, own);
    all->n++;
}

static const struct choice *in_use(const struct qr_queue *q, const struct plan *plan)
{
    return q->deterministic || plan->same.us <= INVARIANCE_COST * plan->best.us ? &plan->same : &plan->best;
}

/* Whether the algorithm can do this number of rows: it was chosen for the most of a bucket. */
static bool is_able(struct qr_queue *q, struct plan *plan, const struct choice *c, struct call *call, int32_t n_rows)
{
    cublasLtMatmulHeuristicResult_t r = {0};
    if (plan->checked != n_rows)
        plan->able = cublasLtMatmulAlgoCheck(q->lt, &call->desc, &call->a, &call->b, &call->d, &call->d, &c->algo, &r) == CUBLAS_STATUS_SUCCESS &&
                     r.workspaceSize <= q->workspace_bytes;
    plan->checked = n_rows;
    return plan->able;
}

void qr_plan_multiply(struct qr_queue *q, const struct qr_plan_product *p, qr_plan_own *own)
{
    QR_ASSERT(q != NULL && p != NULL && own != NULL);
    QR_ASSERT(p->out != NULL && p->a != NULL && p->b != NULL);
    struct plan *plan = is_for_lt(q, p) ? find(q, p) : NULL;
    const struct choice *c = plan ? in_use(q, plan) : NULL;
    struct call call;
    if (c && !c->own) {
        call_of(&call, p);
        if (is_able(q, plan, c, &call, rows_of(p)) && launch(q, &call, p, &c->algo) == CUBLAS_STATUS_SUCCESS) {
            plans_of(q)->n_calls[p->e4m3]++;
            return;
        }
        plan->able = false;
    }
    plans_of(q)->n_calls[p->e4m3]++;
    plans_of(q)->n_own[p->e4m3]++;
    own(q, p);
}

size_t qr_plan_export(struct qr_queue *q, char *out, size_t size)
{
    struct qr_buf body = {0};
    QR_ASSERT(q != NULL);
    QR_ASSERT(out != NULL || size == 0);
    load(q);
    put_lines(&body, plans_of(q));
    const size_t n = body.len;
    if (n < size) {
        memcpy(out, n > 0 ? (const char *)body.data : "", n);
        out[n] = '\0';
    }
    qr_buf_release(&body);
    return n + 1;
}

void qr_plan_adopt(struct qr_queue *q, const char *text)
{
    QR_ASSERT(q != NULL);
    QR_ASSERT(text != NULL);
    load(q);
    take_lines(plans_of(q), text, q);
}

void qr_plan_describe(const struct qr_queue *q, char *out, size_t size)
{
    QR_ASSERT(q != NULL);
    QR_ASSERT(out != NULL && size > 0);
    size_t at = 0;
    out[0] = '\0';
    for (int32_t i = 0; q->plans && i < q->plans->n && at < size; i++) {
        const struct plan *p = &q->plans->plan[i];
        const struct choice *c = in_use(q, p);
        char rows[16] = "more";
        if (p->key.rows != INT32_MAX)
            snprintf(rows, sizeof rows, "<= %d", (int)p->key.rows);
        at += (size_t)snprintf(out + at, size - at, "%s%s %d -> %d%s, rows %s: %s, %.1f us; fastest %.1f, with own's bits %.1f (%s), own %.1f%s\n",
                               op_name[p->key.op], p->key.e4m3 ? " fp8" : "", (int)p->key.fixed, (int)p->key.n, p->key.bias ? " + bias" : "", rows,
                               c->own ? "own" : "cuBLASLt", (double)c->us, (double)p->best.us, (double)p->same.us, p->same.own ? "own" : "cuBLASLt",
                               (double)p->own_us, p->fresh ? "" : " (kept)");
    }
}

void qr_plan_ways(const struct qr_queue *q, struct qr_backend_ways *out)
{
    QR_ASSERT(q != NULL);
    QR_ASSERT(out != NULL);
    const struct qr_plans *all = q->plans;
    if (!all)
        return;
    out->by_library = all->n_calls[0] - all->n_own[0] + all->n_calls[1] - all->n_own[1];
    out->fp8 = all->n_calls[1];
    out->fp8_own = all->n_own[1];
    for (int32_t i = 0; i < all->n; i++) {
        const struct plan *p = &all->plan[i];
        out->bf16 += !p->key.e4m3;
        out->bf16_unlike += !p->key.e4m3 && !p->best.own && p->same.own;
    }
}

void qr_plan_release(struct qr_queue *q)
{
    QR_ASSERT(q != NULL);
    if (q->plans && q->plans->changed)
        save(q);
    free(q->plans);
    q->plans = NULL;
}
