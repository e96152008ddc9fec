/* Products and attention by three threads at once, for the thread sanitizer: items of a launch share nothing but what they read, and launches
 * follow one another. The answers must equal those of one thread. Plain main(). */
#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/rng.h"
#include "kernels/backend.h"

#define ROWS 30
#define IN 200
#define OUT 300
#define HEADS 6
#define KV_HEADS 2
#define HEAD_DIM 16
#define CTX 1400
#define BLOCK 16

static float *random_floats(struct qr_rng *r, int64_t n)
{
    float *x = qr_alloc((size_t)n, sizeof *x);
    for (int64_t i = 0; i < n; i++)
        x[i] = (float)(qr_rng_next_unit(r) - 0.5);
    return x;
}

static struct qr_backend *open_backend(const char *isa, int32_t n_threads)
{
    struct qr_err err;
    struct qr_backend *be;
    struct qr_backend_options o = {.isa = isa, .n_threads = n_threads};
    if (qr_backend_open(&be, &o, &err) != 0)
        qr_panic("%s", err.msg);
    return be;
}

/* out = x w^T by packed bf16 weights. */
static void product(struct qr_backend *be, float *out, const float *x, const float *rows)
{
    struct qr_weight w = {.packed_dtype = QR_BF16};
    w.packed = qr_alloc_aligned(be->k->linear_packed_bytes(QR_BF16, OUT, IN), 64);
    be->k->linear_pack(be->queue, w.packed, QR_BF16, OUT, IN, 0, rows, QR_F32, OUT);
    struct qr_linear_args a = {.out = out, .x = x, .w = &w, .out_stride = OUT, .x_stride = IN, .n_rows = ROWS, .n_in = IN, .n_out = OUT};
    be->k->linear(be->queue, &a);
    qr_free_aligned(w.packed);
}

/* Two sequences: one long decode row, whose context is split over threads, and a chunk of a prompt. */
static void attend(struct qr_backend *be, float *out, const float *q, const float *k, const float *v)
{
    enum { N = 21, BLOCKS = (CTX + BLOCK - 1) / BLOCK };
    int32_t pos[N], slot[CTX], row_start[] = {0, 1, N}, table[2 * BLOCKS];
    struct qr_kv_view kv = {.dtype = QR_BF16, .n_blocks = BLOCKS, .n_layers = 1, .n_kv_heads = KV_HEADS, .block_tokens = BLOCK, .head_dim = HEAD_DIM};
    kv.base = qr_alloc_aligned((size_t)BLOCKS * qr_kv_block_bytes(&kv), 64);
    for (int32_t i = 0; i < CTX; i++)
        slot[i] = i;
    for (int32_t i = 0; i < 2 * BLOCKS; i++)
        table[i] = i % BLOCKS;
    for (int32_t i = 0; i < N; i++)
        pos[i] = i == 0 ? CTX - 1 : 500 + i;
    struct qr_kv_write_args w = {.kv = &kv, .k = k, .v = v, .slot = slot, .k_stride = KV_HEADS * HEAD_DIM, .v_stride = KV_HEADS * HEAD_DIM, .n_rows = CTX};
    be->k->kv_write(be->queue, &w);
    struct qr_batch batch = {.n_tokens = N, .n_seqs = 2, .block_tokens = BLOCK, .table_stride = BLOCKS, .pos = pos,
                             .row_start = row_start, .block_table = table};
    struct qr_attention_args a = {.out = out, .q = q, .batch = &batch, .kv = &kv, .out_stride = HEADS * HEAD_DIM, .q_stride = HEADS * HEAD_DIM,
                                  .n_heads = HEADS, .scale = 0.25f};
    be->k->attention(be->queue, &a);
    qr_free_aligned(kv.base);
}

int main(void)
{
    const char *names[8];
    int32_t n_levels = qr_cpu_levels(names);
    struct qr_rng r = {.seed = 5};
    int64_t start = qr_clock_us();
    float *x = random_floats(&r, ROWS * IN), *w = random_floats(&r, OUT * IN), *kv = random_floats(&r, 2 * CTX * KV_HEADS * HEAD_DIM);
    float *out[2] = {random_floats(&r, ROWS * OUT), random_floats(&r, ROWS * OUT)};
    for (int32_t l = n_levels > 1; l < n_levels; l++) { /* ref, which is slow, where there is no other */
        struct qr_backend *one = open_backend(names[l], 1), *three = open_backend(names[l], 3);
        for (int round = 0; round < 20; round++) {
            product(one, out[0], x, w);
            product(three, out[1], x, w);
            QR_ASSERT(memcmp(out[0], out[1], ROWS * OUT * sizeof(float)) == 0);
            attend(one, out[0], x, kv, kv + CTX * KV_HEADS * HEAD_DIM);
            attend(three, out[1], x, kv, kv + CTX * KV_HEADS * HEAD_DIM);
            QR_ASSERT(memcmp(out[0], out[1], 21 * HEADS * HEAD_DIM * sizeof(float)) == 0);
        }
        qr_backend_close(one);
        qr_backend_close(three);
    }
    qr_free(x), qr_free(w), qr_free(kv), qr_free(out[0]), qr_free(out[1]);
    printf("stress_kernels: %d levels, passed in %lld ms (seed 5)\n", (int)n_levels - (n_levels > 1), (long long)((qr_clock_us() - start) / 1000));
    return 0;
}
