#include "bench/train_spy.h"

#include <stdio.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "kernels/batch.h"

static const char *const name[QR_SPY_ROWS] = {
    [QR_SPY_LINEAR] = "linear", [QR_SPY_LINEAR_HEAD] = "linear, head", [QR_SPY_ATTENTION] = "attention", [QR_SPY_NORM] = "norms",
    [QR_SPY_GLU] = "glu", [QR_SPY_ROPE] = "rope", [QR_SPY_CACHE] = "kv_write", [QR_SPY_EMBED] = "embed, gather",
    [QR_SPY_LOSS] = "cross_entropy", [QR_SPY_DX] = "dx", [QR_SPY_DX_HEAD] = "dx, head", [QR_SPY_DW] = "dw", [QR_SPY_DW_HEAD] = "dw, head",
    [QR_SPY_ATTENTION_BACK] = "attention back", [QR_SPY_NORM_BACK] = "norms back", [QR_SPY_GLU_BACK] = "glu back",
    [QR_SPY_ROPE_BACK] = "rope back", [QR_SPY_EMBED_BACK] = "embed, scatter back", [QR_SPY_SUM_SQUARES] = "sum_squares",
    [QR_SPY_ADAMW] = "adamw", [QR_SPY_PACK] = "pack", [QR_SPY_MUON] = "muon's passes", [QR_SPY_OTHER] = "residual_add",
};

static struct qr_spy *spy_of(struct qr_queue *q)
{
    return (struct qr_spy *)(void *)q;
}

static void note(struct qr_spy *s, int row, int64_t began_ns, double ops, double bytes)
{
    s->row[row].ns += qr_clock_ns() - began_ns;
    s->row[row].n_calls++;
    s->row[row].ops += ops;
    s->row[row].bytes += bytes;
}

/* Positions that all rows see, themselves included, where every sequence is whole. */
static double attended(const struct qr_batch *b)
{
    double n = 0;
    for (int32_t s = 0; s < b->n_seqs; s++)
        n += 0.5 * (double)b->ctx_len[s] * (double)(b->ctx_len[s] + 1);
    return n;
}

/* An entry that is passed on; row, ops and bytes may use a and s. */
#define PASS(table, entry, args, which, ops, bytes)                       \
    static void table##_##entry(struct qr_queue *q, const struct args *a) \
    {                                                                     \
        struct qr_spy *s = spy_of(q);                                     \
        const int64_t began_ns = qr_clock_ns();                           \
        s->real->table->entry(s->real->queue, a);                         \
        note(s, which, began_ns, ops, bytes);                             \
    }

#define PRODUCT ((double)a->n_in * a->n_out)
#define SIDES ((double)a->n_rows * (a->n_in + a->n_out))
#define AREA ((double)a->n_rows * a->n_cols)
#define HEADS ((double)a->n_rows * a->n_heads * a->head_dim)
#define HEAD_OR(row) (a->n_out == s->n_vocab ? row##_HEAD : row)

PASS(k, linear, qr_linear_args, HEAD_OR(QR_SPY_LINEAR), 2 * a->n_rows * PRODUCT, 4 * SIDES + (double)qr_dtype_bytes(a->w->t.dtype) * PRODUCT)
PASS(k, rms_norm, qr_norm_args, QR_SPY_NORM, 0, 8 * AREA)
PASS(k, head_norm, qr_head_norm_args, QR_SPY_NORM, 0, 8 * HEADS)
PASS(k, residual_add, qr_add_args, QR_SPY_OTHER, 0, 12 * AREA)
PASS(k, embed, qr_embed_args, QR_SPY_EMBED, 0, 6.0 * a->n_rows * (double)a->table->shape[1])
PASS(k, rope_table, qr_rope_table_args, QR_SPY_ROPE, 0, 4.0 * a->n_rows * a->n_rot)
PASS(k, rope, qr_rope_args, QR_SPY_ROPE, 0, 8 * HEADS + 4.0 * a->n_rows * a->n_rot)
PASS(k, kv_write, qr_kv_write_args, QR_SPY_CACHE, 0,
     2.0 * a->n_rows * a->kv->n_kv_heads * a->kv->head_dim * (4.0 + (double)qr_dtype_bytes(a->kv->dtype)))
PASS(k, attention, qr_attention_args, QR_SPY_ATTENTION, 4.0 * a->n_heads * a->kv->head_dim * attended(a->batch),
     8.0 * a->batch->n_tokens * a->n_heads * a->kv->head_dim)
PASS(k, glu, qr_glu_args, QR_SPY_GLU, 0, 12 * AREA)
PASS(k, gather_rows, qr_gather_args, QR_SPY_EMBED, 0, 8 * AREA)

PASS(b, linear_dx, qr_linear_dx_args, HEAD_OR(QR_SPY_DX), 2 * a->n_rows * PRODUCT,
     4 * SIDES + (a->fresh ? 0 : 4.0) * a->n_rows * a->n_in + (double)qr_dtype_bytes(a->w->t.dtype) * PRODUCT)
PASS(b, linear_dw, qr_linear_dw_args, HEAD_OR(QR_SPY_DW), 2 * a->n_rows * PRODUCT, 4 * SIDES + (a->fresh ? 4 : 8) * PRODUCT)
PASS(b, rms_norm, qr_norm_back_args, QR_SPY_NORM_BACK, 0, 16 * AREA)
PASS(b, head_norm, qr_head_norm_back_args, QR_SPY_NORM_BACK, 0, 16 * HEADS)
PASS(b, rope, qr_rope_args, QR_SPY_ROPE_BACK, 0, 8 * HEADS + 4.0 * a->n_rows * a->n_rot)
PASS(b, attention, qr_attention_back_args, QR_SPY_ATTENTION_BACK, 10.0 * a->n_heads * a->kv->head_dim * attended(a->batch),
     20.0 * a->batch->n_tokens * a->n_heads * a->kv->head_dim)
PASS(b, glu, qr_glu_back_args, QR_SPY_GLU_BACK, 0, (a->fresh ? 20 : 28) * AREA)
PASS(b, embed, qr_embed_back_args, QR_SPY_EMBED_BACK, 0, 12 * AREA)
PASS(b, scatter_rows, qr_scatter_args, QR_SPY_EMBED_BACK, 0, 12 * AREA)
PASS(b, cross_entropy, qr_cross_entropy_args, QR_SPY_LOSS, 0, 8 * AREA)
PASS(b, adamw, qr_adamw_args, QR_SPY_ADAMW, 0, (28.0 + (a->leave_g ? 0 : 4) + (a->half ? 2 : 0)) * (double)a->n)
PASS(b, sum_squares, qr_sum_squares_args, QR_SPY_SUM_SQUARES, 0, 4.0 * (double)a->n)
PASS(b, momentum, qr_momentum_args, QR_SPY_MUON, 0, 24.0 * (double)a->n)
PASS(b, scale, qr_scale_args, QR_SPY_MUON, 0, (4.0 + (a->out ? 4 : 0) + (a->half ? 2 : 0)) * (double)a->n)
PASS(b, turn, qr_turn_args, QR_SPY_MUON, 0, (4.0 + (a->out ? 4 : 0) + (a->half ? 2 : 0)) * AREA)
PASS(b, move_by, qr_move_args, QR_SPY_MUON, 0, (12.0 + (a->half ? 2 : 0)) * (double)a->n)

_Static_assert(sizeof(struct qr_backward) == 17 * sizeof(void *), "an entry that is not passed on");

static void k_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows, enum qr_dtype from,
                   int64_t n_rows)
{
    struct qr_spy *s = spy_of(q);
    const int64_t began_ns = qr_clock_ns();
    s->real->k->linear_pack(s->real->queue, dst, to, n_out, n_in, row0, rows, from, n_rows);
    note(s, QR_SPY_PACK, began_ns, 0, (double)(qr_dtype_bytes(from) + qr_dtype_bytes(to)) * (double)(n_rows * n_in));
}

void qr_spy_init(struct qr_spy *s, struct qr_backend *real, int32_t n_vocab)
{
    QR_ASSERT(s != NULL && real != NULL);
    QR_ASSERT(n_vocab > 0);
    *s = (struct qr_spy){.be = *real, .real = real, .n_vocab = n_vocab};
    s->k = (struct qr_kernels){.name = real->k->name, .linear = k_linear, .rms_norm = k_rms_norm, .head_norm = k_head_norm,
                               .residual_add = k_residual_add, .embed = k_embed, .rope_table = k_rope_table, .rope = k_rope,
                               .kv_write = k_kv_write, .attention = k_attention, .glu = k_glu, .gather_rows = k_gather_rows,
                               .linear_packed_bytes = real->k->linear_packed_bytes, .linear_pack = k_pack};
    s->b = (struct qr_backward){.name = real->b->name, .linear_dx = b_linear_dx, .linear_dw = b_linear_dw, .rms_norm = b_rms_norm,
                                .head_norm = b_head_norm, .rope = b_rope, .attention = b_attention, .glu = b_glu, .embed = b_embed,
                                .scatter_rows = b_scatter_rows, .cross_entropy = b_cross_entropy, .adamw = b_adamw,
                                .sum_squares = b_sum_squares, .momentum = b_momentum, .scale = b_scale, .turn = b_turn,
                                .move_by = b_move_by};
    s->be.k = &s->k;
    s->be.b = &s->b;
    s->be.queue = (struct qr_queue *)(void *)s;
}

static void print_row(const char *what, const struct qr_spy_row *r, int64_t steps, double step_ns, double ops_s, double bytes_s)
{
    const double n = (double)steps, seconds = (double)r->ns * 1e-9;
    printf("  %-20s %6.0f calls %8.2f ms %5.1f %%  %7.0f GFLOP/s %4.0f %%  %6.1f GB/s %4.0f %%\n", what, (double)r->n_calls / n, (double)r->ns / n * 1e-6,
           100 * (double)r->ns / n / step_ns, r->ops / seconds * 1e-9, 100 * r->ops / seconds / ops_s, r->bytes / seconds * 1e-9,
           100 * r->bytes / seconds / bytes_s);
}

void qr_spy_print(const struct qr_spy *s, int64_t steps, double step_ns, double ops_s, double bytes_s)
{
    QR_ASSERT(s != NULL && steps > 0);
    QR_ASSERT(step_ns > 0 && ops_s > 0 && bytes_s > 0);
    struct qr_spy_row rest = {.n_calls = steps, .ns = (int64_t)(step_ns * (double)steps)};
    printf("  mean of %lld steps, each %.1f ms; %% of the step, of %.0f GFLOP/s (probe), of %.1f GB/s read (probe)\n", (long long)steps, step_ns * 1e-6,
           ops_s * 1e-9, bytes_s * 1e-9);
    for (int i = 0; i < QR_SPY_ROWS; i++) {
        rest.ns -= s->row[i].ns;
        if (s->row[i].n_calls)
            print_row(name[i], &s->row[i], steps, step_ns, ops_s, bytes_s);
    }
    print_row("outside kernels", &rest, steps, step_ns, ops_s, bytes_s);
}
