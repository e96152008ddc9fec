/* A device whose memory the host cannot reach, for tests on machines that have none: the processor's kernels behind the border that CUDA's are behind.
 *
 * A library as libquire_cuda.so is one (kernels/cuda/plugin.h): tests name it in QUIRE_CUDA_LIB and open the device "cuda". Its addresses lie in a range that
 * nobody may read or write: a host that dereferences one faults. What is there in truth lies OFFSET further on, and each entry of the tables translates
 * every pointer that it is given, and ends the program with entry and field when one does not come from `alloc`: host memory given to a kernel
 * would be read by these kernels, not by a device. The arrays of a batch must be those of its `host`. So a model that computes here the bits that it
 * computes on the processor has moved everything through put, get, copy and zero.
 *
 * QUIRE_DISCRETE_ISA: the level of the kernels ("ref"). QUIRE_DISCRETE_FAULT: "abi", "layout" or "open" for a library that must be refused, "attention" for
 * one that lacks an entry. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "base/assert.h"
#include "base/mem.h"
#include "kernels/cuda/plugin.h"
#include "tests/device/sample_host.h"

#define RANGE_BYTES ((size_t)1 << 36) /* of addresses; pages come when they are touched */
#define PAGE ((size_t)4096)
#define GAP (16 * PAGE)               /* between two allocations */
#define OFFSET RANGE_BYTES
#define STAGE_BYTES ((size_t)64 << 20)
#define MEMORY_BYTES ((int64_t)2 << 30) /* that the device says it has */

struct qr_queue {
    struct qr_backend *cpu; /* owned */
    uint8_t *staged;        /* owned */
    size_t n_staged;        /* given out by the last `stage`; 0: taken */
    struct qr_sampler sampler; /* of the model's vocabulary, once it is known */
    struct late {           /* what was fetched comes when it is waited for */
        void *host, *data;
        size_t n_bytes;
        int32_t mark;       /* -1: no mark is behind it yet */
    } *late;                /* owned [late_max] */
    int32_t n_late, late_max;
};

/* ---- memory ---- */

/* One range for the process: memory outlives no queue, but ops that need none must find it. Addresses are given out once only. */
static struct {
    uint8_t *base;
    size_t used;
    int64_t n_bytes; /* allocated now */
} range;

static void make_range(void)
{
    if (range.base)
        return;
    range.base = mmap(NULL, RANGE_BYTES + OFFSET, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    QR_ASSERT(range.base != MAP_FAILED);
    QR_ASSERT(mprotect(range.base + OFFSET, RANGE_BYTES, PROT_READ | PROT_WRITE) == 0);
}

/* An allocation's first page, which only this file sees, holds its size. */
static size_t *size_of(void *p)
{
    return (size_t *)(void *)((uint8_t *)p + OFFSET - PAGE);
}

static void *device_alloc(size_t n_bytes)
{
    make_range();
    uint8_t *p = range.base + range.used + PAGE;
    range.used += PAGE + qr_align_up(n_bytes, PAGE) + GAP;
    QR_ASSERT(range.used <= RANGE_BYTES);
    *size_of(p) = n_bytes;
    range.n_bytes += (int64_t)n_bytes;
    return p;
}

static void device_free(void *p)
{
    if (!p)
        return;
    const size_t n = *size_of(p);
    range.n_bytes -= (int64_t)n;
    void *gone = mmap((uint8_t *)p + OFFSET, qr_align_up(n ? n : 1, PAGE), PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    QR_ASSERT(gone != MAP_FAILED);
}

/* Where the bytes of a device's address are. */
static void *real(const void *p, const char *entry, const char *field)
{
    if (!p)
        return NULL;
    if ((const uint8_t *)p < range.base || (const uint8_t *)p >= range.base + range.used)
        qr_panic("%s: %s = %p is not the device's memory", entry, field, p);
    return (uint8_t *)(uintptr_t)p + OFFSET;
}

static void device_zero(struct qr_queue *q, void *p, size_t n_bytes)
{
    (void)q;
    memset(real(p, "zero", "p"), 0, n_bytes);
}

static void *device_stage(struct qr_queue *q, size_t n_bytes)
{
    QR_ASSERT(q->n_staged == 0 && n_bytes <= STAGE_BYTES);
    q->n_staged = n_bytes;
    return q->staged;
}

static void device_put(struct qr_queue *q, void *to, const void *host, size_t n_bytes)
{
    QR_ASSERT((const uint8_t *)host < range.base || (const uint8_t *)host >= range.base + RANGE_BYTES);
    QR_ASSERT(q->n_staged == 0 || (host == q->staged && n_bytes <= q->n_staged));
    memcpy(real(to, "put", "to"), host, n_bytes);
    if (q->n_staged > 0)
        memset(q->staged, 0xee, q->n_staged); /* the next piece would be there by now */
    q->n_staged = 0;
}

static void device_get(struct qr_queue *q, void *host, const void *from, size_t n_bytes)
{
    (void)q;
    memcpy(host, real(from, "get", "from"), n_bytes);
}

static void device_fetch(struct qr_queue *q, void *host, const void *from, size_t n_bytes)
{
    if (q->n_late == q->late_max) {
        q->late_max = 2 * q->late_max + 16;
        q->late = qr_realloc(q->late, (size_t)q->late_max, sizeof *q->late);
    }
    struct late *l = &q->late[q->n_late++];
    *l = (struct late){host, memcpy(qr_alloc(n_bytes, 1), real(from, "fetch", "from"), n_bytes), n_bytes, -1};
    memset(host, 0xee, n_bytes);
}

static void device_mark(struct qr_queue *q, int32_t which)
{
    QR_ASSERT(which >= 0 && which < QR_MARKS);
    for (int32_t i = 0; i < q->n_late; i++)
        q->late[i].mark = q->late[i].mark < 0 ? which : q->late[i].mark;
}

/* Whatever lies before the mark: the queue is in order. */
static void device_wait(struct qr_queue *q, int32_t which)
{
    int32_t n = 0, kept = 0;
    for (int32_t i = 0; i < q->n_late; i++)
        n = q->late[i].mark == which ? i + 1 : n;
    for (int32_t i = 0; i < q->n_late; i++) {
        if (i >= n) {
            q->late[kept++] = q->late[i];
            continue;
        }
        memcpy(q->late[i].host, q->late[i].data, q->late[i].n_bytes);
        qr_free(q->late[i].data);
    }
    q->n_late = kept;
}

/* What is on its way to where this is read comes first, as in any queue; the host sees none of it, so it keeps looking as if it were still under way. */
static void device_send(struct qr_queue *q, void *to, const void *host, size_t n_bytes)
{
    uint8_t *there = real(to, "send", "to");
    memcpy(there, host, n_bytes);
    for (int32_t i = 0; i < q->n_late; i++) {
        const struct late *l = &q->late[i];
        const uint8_t *from = host, *at = l->host;
        for (size_t k = 0; k < l->n_bytes; k++)
            if (at + k >= from && at + k < from + n_bytes)
                there[at + k - from] = ((const uint8_t *)l->data)[k];
    }
}

static void device_copy(struct qr_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t row_bytes, int64_t n_rows)
{
    (void)q;
    for (int64_t i = 0; i < n_rows; i++)
        memcpy((uint8_t *)real(to, "copy", "to") + (size_t)i * to_pitch, (const uint8_t *)real(from, "copy", "from") + (size_t)i * from_pitch, row_bytes);
}

static void device_sync(struct qr_queue *q)
{
    QR_ASSERT(q->n_staged == 0);
}

static void *pinned_alloc(size_t n_bytes)
{
    return qr_alloc_aligned(n_bytes, 64);
}

static int64_t device_available(void)
{
    return MEMORY_BYTES - range.n_bytes;
}

static const struct qr_mem_ops device_mem = {
    .host = false, .alloc = device_alloc, .free = device_free, .zero = device_zero, .put = device_put, .get = device_get, .copy = device_copy,
    .stage = device_stage, .sync = device_sync, .fetch = device_fetch, .send = device_send, .mark = device_mark, .wait = device_wait,
    .host_alloc = pinned_alloc, .host_free = qr_free_aligned, .available = device_available};

/* ---- arguments ---- */

static struct qr_weight real_weight(const struct qr_weight *w, const char *entry)
{
    struct qr_weight r = *w;
    r.packed = real(w->packed, entry, "w->packed");
    r.t.data = real(w->t.data, entry, "w->t.data");
    r.inputs.data = real(w->inputs.data, entry, "w->inputs.data");
    return r;
}

static struct qr_kv_view real_kv(const struct qr_kv_view *kv, const char *entry)
{
    struct qr_kv_view r = *kv;
    r.base = real(kv->base, entry, "kv->base");
    return r;
}

static const int32_t *same_array(const int32_t *device, const int32_t *host, int64_t n, const char *entry, const char *field)
{
    const int32_t *r = real(device, entry, field);
    if (n > 0 && memcmp(r, host, (size_t)n * sizeof *r) != 0)
        qr_panic("%s: batch->%s differs from the host's", entry, field);
    return r;
}

static struct qr_batch real_batch(const struct qr_batch *b, const char *entry)
{
    struct qr_batch r = *b;
    const struct qr_batch *h = b->host;
    if (!h)
        qr_panic("%s: a batch without a host's side", entry);
    r.ids = same_array(b->ids, h->ids, b->n_tokens, entry, "ids");
    r.pos = same_array(b->pos, h->pos, b->n_tokens, entry, "pos");
    r.slot = same_array(b->slot, h->slot, b->n_tokens, entry, "slot");
    r.row_start = same_array(b->row_start, h->row_start, b->n_seqs + 1, entry, "row_start");
    r.ctx_len = same_array(b->ctx_len, h->ctx_len, b->n_seqs, entry, "ctx_len");
    r.logit_row = same_array(b->logit_row, h->logit_row, b->n_logits, entry, "logit_row");
    r.block_table = real(b->block_table, entry, "block_table");
    for (int32_t s = 0; s < b->n_seqs; s++)
        same_array(b->block_table + (int64_t)s * b->table_stride, h->block_table + (int64_t)s * h->table_stride,
                   (h->ctx_len[s] + h->block_tokens - 1) / h->block_tokens, entry, "block_table");
    r.host = NULL;
    return r;
}

static struct qr_linear_args real_linear(const struct qr_linear_args *given, struct qr_weight *w, const char *entry)
{
    struct qr_linear_args a = *given;
    *w = real_weight(a.w, entry);
    a.w = w;
    a.out = real(a.out, entry, "out");
    a.x = real(a.x, entry, "x");
    a.bias = real(a.bias, entry, "bias");
    a.norm_w = real(a.norm_w, entry, "norm_w");
    return a;
}

static struct qr_qkv_args real_qkv(const struct qr_qkv_args *given, struct qr_kv_view *kv, const char *entry)
{
    struct qr_qkv_args a = *given;
    *kv = real_kv(a.kv, entry);
    a.kv = kv;
    a.x = real(a.x, entry, "x");
    a.q_norm = real(a.q_norm, entry, "q_norm");
    a.k_norm = real(a.k_norm, entry, "k_norm");
    a.cos_sin = real(a.cos_sin, entry, "cos_sin");
    a.slot = real(a.slot, entry, "slot");
    return a;
}

/* ---- tables ---- */

#define P(field) a.field = real(a.field, entry, #field)
#define ENTRY(table, name, type, ...)                                             \
    static void table##_##name(struct qr_queue *q, const struct type *given)      \
    {                                                                             \
        static const char entry[] = #name;                                        \
        struct type a = *given;                                                   \
        __VA_ARGS__;                                                              \
        q->cpu->table->name(q->cpu->queue, &a);                                   \
    }
#define KV struct qr_kv_view kv = real_kv(a.kv, entry); a.kv = &kv
#define BATCH struct qr_batch batch = real_batch(a.batch, entry); a.batch = &batch
#define WEIGHT struct qr_weight w = real_weight(a.w, entry); a.w = &w

ENTRY(k, linear, qr_linear_args, struct qr_weight w; a = real_linear(given, &w, entry))
ENTRY(k, rms_norm, qr_norm_args, P(out); P(x); P(w))
ENTRY(k, head_norm, qr_head_norm_args, P(x); P(w))
ENTRY(k, residual_add, qr_add_args, P(x); P(delta))
ENTRY(k, rope_table, qr_rope_table_args, P(cos_sin); P(pos); P(inv_freq))
ENTRY(k, rope, qr_rope_args, P(x); P(cos_sin))
ENTRY(k, kv_write, qr_kv_write_args, KV; P(k); P(v); P(slot))
ENTRY(k, qkv, qr_qkv_args, struct qr_kv_view kv; a = real_qkv(given, &kv, entry))
ENTRY(k, kv_copy, qr_kv_copy_args, KV)
ENTRY(k, attention, qr_attention_args, KV; BATCH; P(out); P(q); P(lse); P(sinks))
ENTRY(k, glu, qr_glu_args, P(out); P(gate_up))
ENTRY(k, gather_rows, qr_gather_args, P(out); P(x); P(row))
ENTRY(k, layer_norm, qr_layer_norm_args, P(out); P(x); P(w); P(bias))
ENTRY(k, unit, qr_unit_args, P(x))
ENTRY(k, softcap, qr_softcap_args, P(x))

static void k_embed(struct qr_queue *q, const struct qr_embed_args *given)
{
    static const char entry[] = "embed";
    struct qr_embed_args a = *given;
    struct qr_tensor table = *a.table;
    const struct qr_drawn *drawn = real(a.drawn, entry, "drawn");
    const int32_t *from = real(a.ids, entry, "ids");
    int32_t *ids = qr_alloc((size_t)a.n_rows + 1, sizeof *ids);
    for (int32_t i = 0; i < a.n_rows; i++)
        ids[i] = from[i] < 0 && drawn ? drawn[-1 - from[i]].id : from[i];
    table.data = real(table.data, entry, "table");
    a.table = &table;
    a.ids = ids;
    a.drawn = NULL;
    P(out);
    P(packed);
    q->cpu->k->embed(q->cpu->queue, &a);
    qr_free(ids);
}

static void k_sample(struct qr_queue *q, const struct qr_sample_args *given)
{
    static const char entry[] = "sample";
    struct qr_sample_args a = *given;
    struct qr_draws draws = *a.draws;
    draws.row = real(draws.row, entry, "row");
    draws.change = real(draws.change, entry, "change");
    draws.allowed = real(draws.allowed, entry, "allowed");
    a.draws = &draws;
    P(logits);
    P(drawn);
    P(detail);
    if (q->sampler.n_vocab != a.n_vocab) {
        qr_sampler_release(&q->sampler);
        qr_sampler_init(&q->sampler, a.n_vocab);
    }
    sample_host(&q->sampler, &a);
}

static void k_chain(struct qr_queue *q, const struct qr_chain_args *given)
{
    struct qr_linear_args linear[QR_CHAIN_MAX];
    struct qr_weight w[QR_CHAIN_MAX];
    struct qr_qkv_args heads;
    struct qr_kv_view kv;
    QR_ASSERT(given->n >= 1 && given->n <= QR_CHAIN_MAX);
    for (int32_t i = 0; i < given->n; i++)
        linear[i] = real_linear(&given->linear[i], &w[i], "chain");
    if (given->heads)
        heads = real_qkv(given->heads, &kv, "chain");
    const struct qr_chain_args a = {.linear = linear, .heads = given->heads ? &heads : NULL, .n = given->n};
    q->cpu->k->chain(q->cpu->queue, &a);
}

/* Set when the library is opened: the sizes are the level's own. */
static size_t (*packed_bytes)(enum qr_dtype to, int64_t n_out, int64_t n_in);

static size_t k_packed_bytes(enum qr_dtype to, int64_t n_out, int64_t n_in)
{
    return packed_bytes(to, n_out, n_in);
}

static void k_pack(struct qr_queue *q, void *dst, enum qr_dtype to, int64_t n_out, int64_t n_in, int64_t row0, const void *rows, enum qr_dtype from,
                   int64_t n_rows)
{
    q->cpu->k->linear_pack(q->cpu->queue, real(dst, "linear_pack", "dst"), to, n_out, n_in, row0, real(rows, "linear_pack", "rows"), from, n_rows);
}

ENTRY(b, linear_dx, qr_linear_dx_args, WEIGHT; P(dx); P(dy))
ENTRY(b, linear_dw, qr_linear_dw_args, P(dw); P(dbias); P(dy); P(x))
ENTRY(b, rms_norm, qr_norm_back_args, P(dx); P(dw); P(dy); P(x); P(w))
ENTRY(b, head_norm, qr_head_norm_back_args, P(dx); P(dw); P(dy); P(x); P(w))
ENTRY(b, rope, qr_rope_args, P(x); P(cos_sin))
ENTRY(b, attention, qr_attention_back_args, KV; BATCH; P(dq); P(dk); P(dv); P(dout); P(out); P(q); P(lse))
ENTRY(b, glu, qr_glu_back_args, P(dgate_up); P(dout); P(gate_up))
ENTRY(b, embed, qr_embed_back_args, P(dtable); P(dout); P(ids))
ENTRY(b, scatter_rows, qr_scatter_args, P(dx); P(dout); P(row))
ENTRY(b, cross_entropy, qr_cross_entropy_args, P(logits); P(loss); P(target))
ENTRY(b, adamw, qr_adamw_args, P(w); P(m); P(v); P(g); P(half))
ENTRY(b, sum_squares, qr_sum_squares_args, P(sum); P(leaf); P(x))
ENTRY(b, momentum, qr_momentum_args, P(m); P(g); P(out))
ENTRY(b, scale, qr_scale_args, P(out); P(half); P(x))
ENTRY(b, turn, qr_turn_args, P(out); P(half); P(x))
ENTRY(b, move_by, qr_move_args, P(w); P(half); P(u))

static struct qr_kernels kernels = {
    .name = "discrete", .linear = k_linear, .rms_norm = k_rms_norm, .head_norm = k_head_norm, .residual_add = k_residual_add, .embed = k_embed,
    .rope_table = k_rope_table, .rope = k_rope, .kv_write = k_kv_write, .qkv = k_qkv, .chain = k_chain, .kv_copy = k_kv_copy, .attention = k_attention,
    .glu = k_glu, .gather_rows = k_gather_rows, .sample = k_sample, .layer_norm = k_layer_norm, .unit = k_unit,
    .softcap = k_softcap, .linear_packed_bytes = k_packed_bytes, .linear_pack = k_pack};

static const struct qr_backward backward = {
    .name = "discrete", .linear_dx = b_linear_dx, .linear_dw = b_linear_dw, .rms_norm = b_rms_norm, .head_norm = b_head_norm, .rope = b_rope,
    .attention = b_attention, .glu = b_glu, .embed = b_embed, .scatter_rows = b_scatter_rows, .cross_entropy = b_cross_entropy, .adamw = b_adamw,
    .sum_squares = b_sum_squares, .momentum = b_momentum, .scale = b_scale, .turn = b_turn, .move_by = b_move_by};

/* ---- the library ---- */

static bool queue_open(struct qr_queue **out, const struct qr_cuda_options *o, char message[QR_CUDA_MESSAGE])
{
    const char *isa = getenv("QUIRE_DISCRETE_ISA"), *fault = getenv("QUIRE_DISCRETE_FAULT");
    const struct qr_backend_options bo = {.isa = isa && *isa ? isa : "ref", .n_threads = 1, .step_rows_max = o->step_rows_max};
    struct qr_err err;
    if ((fault && strcmp(fault, "open") == 0) || o->index > 0) {
        snprintf(message, QR_CUDA_MESSAGE, "GPU %d was asked for, there is none", (int)o->index);
        return false;
    }
    struct qr_queue *q = qr_alloc(1, sizeof *q);
    if (qr_backend_open(&q->cpu, &bo, &err) != 0) {
        snprintf(message, QR_CUDA_MESSAGE, "%.390s", err.msg);
        qr_free(q);
        return false;
    }
    packed_bytes = q->cpu->k->linear_packed_bytes;
    q->staged = qr_alloc_aligned(STAGE_BYTES, 64);
    make_range();
    *out = q;
    return true;
}

static void queue_close(struct qr_queue *q)
{
    qr_backend_close(q->cpu);
    qr_sampler_release(&q->sampler);
    for (int32_t i = 0; i < q->n_late; i++)
        qr_free(q->late[i].data);
    qr_free(q->late);
    qr_free_aligned(q->staged);
    qr_free(q);
}

static void queue_facts(const struct qr_queue *q, struct qr_cuda_facts *out)
{
    *out = (struct qr_cuda_facts){.name = "discrete", .major = 9, .n_sms = 1, .memory_bytes = MEMORY_BYTES,
                                  .scratch_bytes = (int64_t)qr_backend_scratch_bytes(q->cpu)};
}

static bool queue_supports(struct qr_queue *q, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim, int32_t block_tokens,
                           char message[QR_CUDA_MESSAGE])
{
    struct qr_err err;
    if (qr_backend_supports(q->cpu, weights, inputs_max, kv, head_dim, block_tokens, &err) == 0)
        return true;
    snprintf(message, QR_CUDA_MESSAGE, "%.390s", err.msg);
    return false;
}

static uint64_t layout(void)
{
    return qr_cuda_layout();
}

static uint64_t other_layout(void)
{
    return qr_cuda_layout() + 1;
}

__attribute__((visibility("default"))) extern struct qr_cuda_plugin qr_cuda_plugin;
struct qr_cuda_plugin qr_cuda_plugin = {
    .abi = QR_CUDA_ABI, .layout = layout, .version = QUIRE_VERSION, .built_for = "the processor", .kernels = &kernels, .backward = &backward,
    .mem = &device_mem, .open = queue_open, .close = queue_close, .facts = queue_facts, .supports = queue_supports};

/* Before the program reads the symbol. */
__attribute__((constructor)) static void choose_fault(void)
{
    const char *fault = getenv("QUIRE_DISCRETE_FAULT");
    if (!fault)
        return;
    if (strcmp(fault, "abi") == 0)
        qr_cuda_plugin.abi = QR_CUDA_ABI + 1;
    if (strcmp(fault, "layout") == 0)
        qr_cuda_plugin.layout = other_layout;
    if (strcmp(fault, "attention") == 0)
        kernels.attention = NULL;
}
