/* Before attention_hopper.cu launches: its kernels tried once beside attention.cu, and the copy engine's map of the
 * cache. Host code only. The trial compares a small prompt and a long row both ways, and decides for all rows of the
 * process. Maps are kept per cache layout. One thread per device, outside of graphs. */
#include "kernels/cuda/hopper.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "kernels/cuda/entries.h"

typedef CUresult encode_tiled(CUtensorMap *map, CUtensorMapDataType type, cuuint32_t rank, void *base, const cuuint64_t *dim, const cuuint64_t *stride,
                              const cuuint32_t *box, const cuuint32_t *element_stride, CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                              CUtensorMapL2promotion promotion, CUtensorMapFloatOOBfill fill);

void qr_cuda_hopper_free(struct qr_queue *q)
{
    QR_ASSERT(q != NULL);
    free(q->hopper);
    q->hopper = NULL;
}

/* What the driver has under that name, as the library is not linked with it. */
static void *find_encode(void)
{
    void *fn = NULL;
    enum cudaDriverEntryPointQueryResult found;
#if defined(CUDART_VERSION) && CUDART_VERSION < 12050
    const cudaError_t rc = cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &fn, cudaEnableDefault, &found);
#else
    const cudaError_t rc = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &fn, 12000, cudaEnableDefault, &found);
#endif
    if (rc != cudaSuccess) {
        (void)cudaGetLastError();
        return NULL;
    }
    return found == cudaDriverEntryPointSuccess ? fn : NULL;
}

bool qr_cuda_hopper_map(struct qr_queue *q, const struct qr_kv_view *kv)
{
    QR_ASSERT(q != NULL && q->hopper != NULL);
    QR_ASSERT(kv != NULL && kv->dtype == QR_BF16);
    struct qr_cuda_hopper *h = q->hopper;
    encode_tiled *encode;
    if (h->kv.base == kv->base && h->kv.n_blocks == kv->n_blocks && h->kv.n_layers == kv->n_layers && h->kv.n_kv_heads == kv->n_kv_heads &&
        h->kv.head_dim == kv->head_dim && h->kv.block_tokens == kv->block_tokens)
        return true;
    const int32_t tile = QR_HOPPER_TILE(kv->head_dim);
    const cuuint64_t row = (cuuint64_t)kv->head_dim * 2, dim[] = {(cuuint64_t)kv->head_dim, (cuuint64_t)kv->n_blocks * qr_kv_block_bytes(kv) / row};
    const cuuint32_t box[] = {64, (cuuint32_t)(kv->block_tokens < tile ? kv->block_tokens : tile)}, ones[] = {1, 1};
    memcpy(&encode, &h->encode, sizeof encode);
    if (dim[1] > INT32_MAX || encode(&h->map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 2, kv->base, dim, &row, box, ones, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                     CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) != CUDA_SUCCESS)
        return false;
    h->kv = *kv;
    return true;
}

/* ---- the first time: beside attention.cu, on small contexts ---- */

/* A chunk of a prompt and a row of decode, several pieces each. A weight on the border of two bf16 numbers may go to either where scores differ in their
 * last bits: a result moves by 2^-8 of the largest value at most, which is 1; twice that is let pass. Results are about 0.06 in size, and ones of other
 * positions or columns differ by as much. */
enum {
    TRIED_GROUP = 4, TRIED_ROWS = 41, TRIED_CTX = 300, TRIED_DECODED = 530, TRIED_BLOCK = 16,
    TRIED_BLOCKS = (TRIED_CTX + TRIED_DECODED) / TRIED_BLOCK + 2, TRIED_STRIDE = TRIED_DECODED / TRIED_BLOCK + 1,
    TRIED_AT = 2 << 20 /* in scratch, behind partial results */
};
#define TRIED_BOUND 0x1p-7f

struct trial {
    struct qr_kv_view kv;
    struct qr_batch batch, host;
    const float *q;
    float *out[2];
    int32_t row_start[3], ctx[2], table[2 * TRIED_STRIDE], pos[TRIED_ROWS + 1];
};

static void *put(struct qr_queue *q, size_t *at, const void *from, size_t n)
{
    uint8_t *to = (uint8_t *)q->scratch + *at;
    *at += (n + 255) / 256 * 256;
    QR_ASSERT(*at <= q->scratch_bytes);
    if (from)
        QR_CUDA_CHECK(cudaMemcpyAsync(to, from, n, cudaMemcpyHostToDevice, qr_queue_apart(q))); /* not pinned: read at once */
    return to;
}

/* In [-1, 1), from a linear congruence. */
static float next_number(uint32_t *state)
{
    *state = *state * 1664525u + 1013904223u;
    return (float)(*state >> 8) * 0x1p-23f - 1.0f;
}

/* x, h: room for the queries and for the cache of heads of d numbers. */
static void trial_prepare(struct qr_queue *q, struct trial *t, int32_t d, float *x, uint16_t *h)
{
    const size_t n_x = (size_t)(TRIED_ROWS + 1) * TRIED_GROUP * (size_t)d, n_h = (size_t)TRIED_BLOCKS * 2 * TRIED_BLOCK * (size_t)d;
    uint32_t seed = 1;
    size_t at = TRIED_AT;
    memset(t, 0, sizeof *t);
    for (size_t i = 0; i < n_x; i++)
        x[i] = 3 * next_number(&seed);
    for (size_t i = 0; i < n_h; i++) {
        const float f = next_number(&seed);
        uint32_t u;
        memcpy(&u, &f, sizeof u);
        h[i] = (uint16_t)(u >> 16);
    }
    for (int32_t i = 0; i < 2 * TRIED_STRIDE; i++)
        t->table[i] = (i * 7 + 3) % TRIED_BLOCKS; /* a block may be in both sequences */
    for (int32_t i = 0; i <= TRIED_ROWS; i++)
        t->pos[i] = i < TRIED_ROWS ? TRIED_CTX - TRIED_ROWS + i : TRIED_DECODED - 1;
    t->row_start[1] = TRIED_ROWS, t->row_start[2] = TRIED_ROWS + 1;
    t->ctx[0] = TRIED_CTX, t->ctx[1] = TRIED_DECODED;
    t->kv.dtype = QR_BF16, t->kv.n_blocks = TRIED_BLOCKS, t->kv.n_layers = 1, t->kv.n_kv_heads = 1, t->kv.head_dim = d, t->kv.block_tokens = TRIED_BLOCK;
    t->kv.base = put(q, &at, h, n_h * sizeof *h);
    t->q = put(q, &at, x, n_x * sizeof *x);
    for (int32_t i = 0; i < 2; i++)
        t->out[i] = put(q, &at, NULL, n_x * sizeof *x);
    t->host.n_seqs = 2, t->host.n_tokens = TRIED_ROWS + 1, t->host.block_tokens = TRIED_BLOCK, t->host.table_stride = TRIED_STRIDE;
    t->host.row_start = t->row_start, t->host.ctx_len = t->ctx, t->host.pos = t->pos, t->host.block_table = t->table;
    t->batch = t->host;
    t->batch.host = &t->host;
    t->batch.row_start = put(q, &at, t->row_start, sizeof t->row_start);
    t->batch.ctx_len = put(q, &at, t->ctx, sizeof t->ctx);
    t->batch.block_table = put(q, &at, t->table, sizeof t->table);
    t->batch.pos = put(q, &at, t->pos, sizeof t->pos);
}

/* The largest one; NaN stays. */
static float difference(const float *x, const float *y, size_t n)
{
    float worst = 0;
    for (size_t i = 0; i < n; i++) {
        const float d = fabsf(x[i] - y[i]);
        worst = d <= worst ? worst : d;
        if (d != d)
            return d;
    }
    return worst;
}

static bool try_both(struct qr_queue *q, int32_t index)
{
    const int32_t d = 64 << index;
    struct trial t;
    const size_t n_x = (size_t)(TRIED_ROWS + 1) * TRIED_GROUP * (size_t)d, n_h = (size_t)TRIED_BLOCKS * 2 * TRIED_BLOCK * (size_t)d;
    float *x = malloc(2 * n_x * sizeof *x), worst = NAN;
    uint16_t *h = malloc(n_h * sizeof *h);
    if (x && h) {
        trial_prepare(q, &t, d, x, h);
        const bool mapped = qr_cuda_hopper_map(q, &t.kv); /* without one both runs would be attention.cu's, and alike */
        const struct qr_attention_args both = {.out = NULL, .q = t.q, .lse = NULL, .batch = &t.batch, .kv = &t.kv, .out_stride = TRIED_GROUP * d,
                                               .q_stride = TRIED_GROUP * d, .layer = 0, .n_heads = TRIED_GROUP, .window = 0, .scale = 1 / sqrtf((float)d),
                                               .softcap = 0};
        for (int32_t i = 0; i < 2; i++) {
            struct qr_attention_args args = both;
            args.out = t.out[i];
            q->hopper->state[index] = i == 0 ? QR_HOPPER_OFF : QR_HOPPER_ON;
            qr_cuda_attention(q, &args);
            QR_CUDA_CHECK(cudaMemcpyAsync(x + (size_t)i * n_x, t.out[i], n_x * sizeof *x, cudaMemcpyDeviceToHost, qr_queue_apart(q)));
        }
        const cudaError_t end = cudaStreamSynchronize(q->stream);
        if (end != cudaSuccess)
            fprintf(stderr, "quire: cuda: wgmma attention failed its first run; QUIRE_CUDA_HOPPER=0 does without it\n");
        QR_CUDA_CHECK(end);
        worst = mapped ? difference(x, x + n_x, n_x) : NAN;
        if (!mapped)
            fprintf(stderr, "quire: cuda: the driver makes no map of the cache for the copy engine\n");
    }
    free(x);
    free(h);
    if (!(worst <= TRIED_BOUND))
        fprintf(stderr, "quire: cuda: wgmma attention of heads of %d differs from mma.sync by %g: mma.sync is used\n", (int)d, (double)worst);
    return worst <= TRIED_BOUND;
}

static bool is_captured(struct qr_queue *q)
{
    enum cudaStreamCaptureStatus status;
    QR_CUDA_CHECK(cudaStreamIsCapturing(q->stream, &status));
    return status != cudaStreamCaptureStatusNone;
}

/* For good: all rows of a model are to be computed alike. The reason is a line to stderr, unless a setting switched it
 * off. */
static bool is_wanted(struct qr_queue *q, int32_t index)
{
    const char *wish = getenv("QUIRE_CUDA_HOPPER");
    if (wish && strcmp(wish, "0") == 0)
        return false;
    const char *why = !q->hopper->encode ? "the driver makes no maps for the copy engine" : is_captured(q) ? "they are first met in a graph" : NULL;
    if (why)
        fprintf(stderr, "quire: cuda: wgmma attention of heads of %d is not tried, as %s: mma.sync is used\n", 64 << index, why);
    return !why && ((wish && strcmp(wish, "1") == 0) || try_both(q, index));
}

bool qr_cuda_hopper_ready(struct qr_queue *q, int32_t head_dim)
{
    QR_ASSERT(q != NULL && head_dim > 0 && head_dim <= 256);
    if (q->sm != 90 || q->plain)
        return false;
    if (!q->hopper) {
        void *room;
        if (posix_memalign(&room, QR_HOPPER_ALIGNED, sizeof *q->hopper) != 0)
            return false;
        q->hopper = memset(room, 0, sizeof *q->hopper);
        q->hopper->encode = find_encode();
    }
    const int32_t index = head_dim <= 64 ? 0 : head_dim <= 128 ? 1 : 2;
    if (q->hopper->state[index] == QR_HOPPER_UNTRIED)
        q->hopper->state[index] = is_wanted(q, index) ? QR_HOPPER_ON : QR_HOPPER_OFF;
    return q->hopper->state[index] == QR_HOPPER_ON;
}
