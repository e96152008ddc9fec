/* ranks.c - one step on several ranks: rank 0 sends what it is about to compute, the others follow.
 *
 * A message is a head, the cache's copies, the batch's arrays and the scales of logits, in one or two broadcasts. Sums and
 * logits go over the comm, or on devices over their own links.
 * Guarantee: all ranks run the same steps in the same order. A lost rank is noticed by every call, and said by qr_exec_lost.
 * Thread: the one that owns the exec; it owns the comm, too. */
#include "model/ranks.h"

#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "comm/device_comm.h"
#include "loader/pack/share.h"
#include "model/lora.h"
#include "model/repeat.h"
#include "model/step_arrays.h"

#define DRAWN_LEAST 256
#define FIRST_BYTES 4096 /* of every message; what is longer than that follows in a second call. A step of some forty sequences that decode fits */

enum kind { PING, STEP, PIECE, OVER };

/* How a message begins. Blocks to copy, arrays and scales of rows of logits follow; rows that are wanted as they leave the last norm (qr_batch.hidden_row) are
 * rank 0's own business, as behind the last sum all ranks have all of them. */
struct head {
    int32_t kind;
    union {
        struct {
            int32_t n_copies, has_scale, width;
            int32_t n_tokens, n_seqs, n_prefill_seqs, n_logits, block_tokens, n_idle;
            int32_t adapted;              /* whether rows have adapters */
            int32_t names_drawn, n_drawn; /* whether ids name what was drawn before; ids that rank 0 draws behind this step */
        };
        struct qr_lora_piece piece; /* its bytes follow */
    };
};

struct copy {
    int32_t src, dst; /* blocks; when one of them is of the second tier, a move */
};

struct qr_ranks {
    struct qr_comm *comm; /* borrowed */
    struct qr_backend *be; /* borrowed */
    struct qr_device_comm *devices; /* borrowed; NULL: on the processor */
    struct qr_drawn *drawn; /* owned, kernels' memory [drawn_max]: on devices that follow, the ids that rank 0's drew last */
    int32_t drawn_max;
    uint8_t *message;     /* owned: [room], from qr_comm_alloc */
    size_t room;
    struct copy *copy;    /* owned: for the next step */
    int32_t n_copies, copies_max;
    struct qr_row_group *group; /* owned [QR_LORA_SLOTS_MAX] of ranks that follow: rows of the step by adapter, */
    int32_t *group_row;   /* owned [rows_max]: where they are. Both of the first step that has any */
    int32_t rows_max;
    int64_t sent_us;      /* when the last message was */
    int64_t logits[QR_COMM_RANKS_MAX + 1], stretches[QR_COMM_RANKS_MAX + 1]; /* where each rank's part of a row begins */
    bool lost;
    struct qr_err err;
};

/* ---- joining and leaving ---- */

/* The message will be at least so long; what is in it stays. False: there is no memory for it, and with that this rank is lost, and says so: devices wait for
 * each other. */
static bool make_room(struct qr_ranks *r, size_t n_bytes)
{
    void *p;
    if (n_bytes <= r->room)
        return true;
    if (r->lost)
        return false;
    const size_t room = 2 * n_bytes > FIRST_BYTES ? 2 * n_bytes : FIRST_BYTES;
    if (qr_comm_alloc(r->comm, &p, room, &r->err)) {
        qr_comm_abort(r->comm, r->err.msg);
        r->lost = true;
        return false;
    }
    if (r->message)
        memcpy(p, r->message, r->room);
    qr_comm_free(r->comm, r->message);
    r->message = p;
    r->room = room;
    return true;
}

void qr_exec_join(struct qr_exec *x)
{
    QR_ASSERT(x != NULL && x->model != NULL);
    QR_ASSERT(x->ranks == NULL && x->kv != NULL);
    const struct qr_share *mine = qr_model_share(x->model);
    struct qr_comm *comm = qr_model_comm(x->model);
    struct qr_err err;
    if (!comm)
        return;
    struct qr_ranks *r = x->ranks = qr_alloc(1, sizeof *r);
    r->comm = comm;
    r->be = x->be;
    r->devices = qr_model_device_comm(x->model);
    QR_ASSERT((r->devices != NULL) == !x->be->mem->host);
    r->sent_us = qr_clock_us();
    if (!make_room(r, FIRST_BYTES / 2))
        qr_panic("%s", r->err.msg); /* nothing was computed yet */
    if (x->lora && !make_room(r, (size_t)QR_STEP_ALIGN + (size_t)QR_LORA_PIECE_MAX))
        qr_panic("%s", r->err.msg);
    r->lost = r->devices && qr_device_comm_share_choices(r->devices, x->be, &r->err) != 0;
    for (int32_t i = 0; i < comm->size; i++) {
        struct qr_share s;
        if (qr_share_make(&s, &mine->whole, i, comm->size, &err))
            qr_panic("the share of rank %d: %s", i, err.msg); /* this rank's was made */
        r->logits[i] = s.first_vocab;
        r->stretches[i] = s.first_vocab / QR_LINEAR_STRETCH;
    }
    r->logits[comm->size] = mine->whole.n_vocab;
    r->stretches[comm->size] = (mine->whole.n_vocab + QR_LINEAR_STRETCH - 1) / QR_LINEAR_STRETCH;
}

/* ---- calls ---- */

static void run(struct qr_ranks *r, const struct qr_comm_call *call)
{
    if (!r->lost && qr_comm_run(r->comm, call, &r->err))
        r->lost = true;
}

bool qr_exec_lost(const struct qr_exec *x, struct qr_err *err)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(err != NULL);
    struct qr_ranks *r = x->ranks;
    if (!r || (!r->lost && !r->devices))
        return false;
    if (!r->lost && qr_device_comm_lost(r->devices, &r->err))
        r->lost = true;
    if (r->lost)
        *err = r->err;
    return r->lost;
}

void qr_ranks_sum(struct qr_ranks *r, float *data, int64_t n)
{
    QR_ASSERT(data != NULL || n == 0);
    QR_ASSERT(n >= 0);
    if (r && r->devices)
        r->devices->ops->sum(r->devices->peers, data, n);
    else if (r && n > 0)
        run(r, &(struct qr_comm_call){.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F32, .data = data, .n = n});
}

static void collect(struct qr_ranks *r, float *data, int32_t n_rows, const int64_t *part)
{
    run(r, &(struct qr_comm_call){.kind = QR_COMM_GATHER, .dtype = QR_F32, .data = data, .n = part[r->comm->size], .n_rows = n_rows, .part = part});
}

void qr_ranks_collect(struct qr_ranks *r, float *logits, float *largest, float *sum, int32_t n_rows)
{
    QR_ASSERT(n_rows >= 0);
    QR_ASSERT(logits != NULL || n_rows == 0);
    if (!r || n_rows == 0)
        return;
    collect(r, logits, n_rows, r->logits);
    if (largest)
        collect(r, largest, n_rows, r->stretches);
    if (sum)
        collect(r, sum, n_rows, r->stretches);
}

void qr_ranks_collect_packed(struct qr_ranks *r, float *logits, float *room, int32_t n_rows)
{
    QR_ASSERT(n_rows >= 0);
    QR_ASSERT(room != NULL || n_rows == 0);
    if (!r || n_rows == 0)
        return;
    const int32_t size = r->comm->size;
    const size_t v = (size_t)r->logits[size] * sizeof *logits;
    int64_t part[QR_COMM_RANKS_MAX + 1] = {0};
    for (int32_t i = 1; i < size; i++)
        part[i + 1] = part[i] + n_rows * (r->logits[i + 1] - r->logits[i]) * (int64_t)sizeof *logits;
    r->devices->ops->gather(r->devices->peers, room, room, part);
    for (int32_t i = 1; r->comm->rank == 0 && i < size; i++) {
        const size_t row = (size_t)(r->logits[i + 1] - r->logits[i]) * sizeof *logits;
        r->be->mem->copy(r->be->queue, logits + r->logits[i], v, (const char *)room + part[i], row, row, n_rows);
    }
}

int qr_ranks_agree(struct qr_comm *comm, int64_t *values, int32_t n, struct qr_err *err)
{
    QR_ASSERT(values != NULL);
    QR_ASSERT(n > 0 && err != NULL);
    const struct qr_comm_call call = {.kind = QR_COMM_BROADCAST, .dtype = QR_I8, .data = values, .n = n * (int64_t)sizeof *values};
    return comm ? qr_comm_run(comm, &call, err) : 0;
}

/* ---- messages ---- */

static size_t copies_bytes(int32_t n)
{
    return qr_align_up((size_t)n * sizeof(struct copy), QR_STEP_ALIGN);
}

/* Where the parts of a message begin; total: all of it. */
struct parts {
    size_t copies, arrays, scales, total;
    struct qr_step_layout layout;
};

static struct parts parts_of(const struct head *h)
{
    struct parts p = {.copies = QR_STEP_ALIGN, .total = QR_STEP_ALIGN};
    _Static_assert(sizeof(struct head) <= QR_STEP_ALIGN, "the head has room of its own");
    if (h->kind == PIECE)
        p.total += (size_t)h->piece.n;
    if (h->kind != STEP)
        return p;
    const struct qr_batch b = {.n_tokens = h->n_tokens, .n_seqs = h->n_seqs, .n_logits = h->n_logits, .n_groups = h->adapted};
    p.layout = qr_step_lay_out(&b, h->width);
    p.arrays = p.copies + copies_bytes(h->n_copies);
    p.scales = p.arrays + p.layout.total;
    p.total = p.scales + (h->has_scale ? qr_align_up((size_t)h->n_logits * sizeof(float), QR_STEP_ALIGN) : 0);
    return p;
}

/* Bytes [from, from + n) of the message from rank 0 to all. Meanwhile devices compute what they were given: others' may wait for it. */
static void spread(struct qr_ranks *r, size_t from, size_t n)
{
    if (r->devices && !r->lost)
        r->be->mem->start(r->be->queue);
    run(r, &(struct qr_comm_call){.kind = QR_COMM_BROADCAST, .dtype = QR_I8, .data = r->message + from, .n = (int64_t)n});
    r->sent_us = qr_clock_us();
}

static void send_message(struct qr_ranks *r, const struct head *h, size_t total)
{
    memcpy(r->message, h, sizeof *h);
    spread(r, 0, FIRST_BYTES);
    if (total > FIRST_BYTES)
        spread(r, FIRST_BYTES, total - FIRST_BYTES);
}

void qr_ranks_note_copy(struct qr_ranks *r, int32_t src, int32_t dst)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(src >= 0 && dst >= 0);
    if (r->comm->rank > 0)
        return;
    if (r->n_copies == r->copies_max) {
        r->copies_max = r->copies_max ? 2 * r->copies_max : 64;
        r->copy = qr_realloc(r->copy, (size_t)r->copies_max, sizeof *r->copy);
    }
    r->copy[r->n_copies++] = (struct copy){src, dst};
}

void qr_ranks_send(struct qr_exec *x, const struct qr_batch *b)
{
    QR_ASSERT(x != NULL && x->ranks != NULL);
    QR_ASSERT(b != NULL);
    struct qr_ranks *r = x->ranks;
    if (r->comm->rank > 0)
        return;
    const struct head h = {.kind = STEP, .n_copies = r->n_copies, .has_scale = b->logit_scale && b->n_logits > 0,
                           .width = qr_repeats(x, b) ? qr_repeat_width(b) : qr_step_table_width(b),
                           .n_tokens = b->n_tokens, .n_seqs = b->n_seqs, .n_prefill_seqs = b->n_prefill_seqs, .n_logits = b->n_logits,
                           .block_tokens = b->block_tokens, .n_idle = b->n_idle, .adapted = b->n_groups > 0, .names_drawn = b->drawn != NULL,
                           .n_drawn = b->draws.n_rows};
    const struct parts p = parts_of(&h);
    if (!make_room(r, p.total))
        return;
    if (r->n_copies > 0)
        memcpy(r->message + p.copies, r->copy, (size_t)r->n_copies * sizeof *r->copy);
    qr_step_fill(r->message + p.arrays, &p.layout, b);
    if (h.has_scale)
        memcpy(r->message + p.scales, b->logit_scale, (size_t)b->n_logits * sizeof(float));
    r->n_copies = 0;
    send_message(r, &h, p.total);
}

void qr_exec_send_piece(struct qr_exec *x, const struct qr_lora_piece *p, const uint8_t *bytes)
{
    QR_ASSERT(x != NULL && x->ranks != NULL && x->ranks->comm->rank == 0);
    QR_ASSERT(p != NULL && bytes != NULL && p->n <= QR_LORA_PIECE_MAX);
    struct qr_ranks *r = x->ranks;
    const struct head h = {.kind = PIECE, .piece = *p};
    const size_t total = parts_of(&h).total;
    if (!make_room(r, total))
        return;
    memcpy(r->message + QR_STEP_ALIGN, bytes, (size_t)p->n);
    send_message(r, &h, total);
}

void qr_exec_ping(struct qr_exec *x, int64_t idle_us)
{
    QR_ASSERT(x != NULL);
    QR_ASSERT(idle_us >= 0);
    struct qr_ranks *r = x->ranks;
    if (r && qr_clock_us() - r->sent_us >= idle_us)
        send_message(r, &(struct head){.kind = PING}, 0);
}

void qr_ranks_release(struct qr_ranks *r)
{
    if (!r)
        return;
    QR_ASSERT(r->comm != NULL);
    QR_ASSERT(r->message != NULL);
    if (r->comm->rank == 0)
        send_message(r, &(struct head){.kind = OVER}, 0);
    qr_comm_free(r->comm, r->message);
    if (r->drawn) {
        r->be->mem->sync(r->be->queue);
        r->be->mem->free(r->drawn);
    }
    qr_free(r->copy);
    qr_free(r->group);
    qr_free(r->group_row);
    qr_free(r);
}

void qr_exec_share_drawn(struct qr_exec *x, struct qr_drawn *drawn, int32_t n)
{
    QR_ASSERT(x != NULL && n >= 0);
    QR_ASSERT(drawn != NULL || n == 0);
    struct qr_ranks *r = x->ranks;
    if (r && r->devices)
        r->devices->ops->broadcast(r->devices->peers, drawn, (size_t)n * sizeof *drawn);
}

/* ---- following ---- */

/* Where ids that rank 0's device draws come: at a place that stays, unless more are drawn than ever. */
static void make_drawn(struct qr_exec *x, int32_t n)
{
    struct qr_ranks *r = x->ranks;
    const struct qr_mem_ops *mem = r->be->mem;
    if (n <= r->drawn_max)
        return;
    mem->sync(r->be->queue);
    qr_repeats_release(x); /* they know the old place */
    const int32_t most = 2 * n > DRAWN_LEAST ? 2 * n : DRAWN_LEAST;
    struct qr_drawn *to = mem->alloc((size_t)most * sizeof *to);
    if (r->drawn)
        mem->copy(r->be->queue, to, 0, r->drawn, 0, (size_t)r->drawn_max * sizeof *to, 1);
    mem->sync(r->be->queue);
    mem->free(r->drawn);
    r->drawn = to;
    r->drawn_max = most;
}

/* The rest of a message; false: a rank is lost. */
static bool take_rest(struct qr_ranks *r, size_t total)
{
    if (!make_room(r, total))
        return false;
    if (total > FIRST_BYTES)
        spread(r, FIRST_BYTES, total - FIRST_BYTES);
    return !r->lost;
}

/* b->row_slot, which says each row's adapter, becomes groups: rising slots, rising rows. */
static void group_rows(struct qr_ranks *r, struct qr_batch *b)
{
    int32_t n[QR_LORA_SLOTS_MAX] = {0}, at = 0;
    if (!r->group)
        r->group = qr_alloc(QR_LORA_SLOTS_MAX, sizeof *r->group);
    if (b->n_tokens > r->rows_max) {
        qr_free(r->group_row);
        r->rows_max = 2 * b->n_tokens;
        r->group_row = qr_alloc((size_t)r->rows_max, sizeof *r->group_row);
    }
    b->n_groups = 0;
    for (int32_t i = 0; i < b->n_tokens; i++)
        if (b->row_slot[i] >= 0)
            n[b->row_slot[i]]++;
    for (int32_t s = 0; s < QR_LORA_SLOTS_MAX; s++) {
        if (n[s] == 0)
            continue;
        r->group[b->n_groups++] = (struct qr_row_group){.row = r->group_row + at, .slot = s, .n_rows = n[s]};
        for (int32_t i = 0; i < b->n_tokens; i++)
            if (b->row_slot[i] == s)
                r->group_row[at++] = i;
    }
    b->group = r->group;
    b->row_slot = NULL;
}

static void follow_piece(struct qr_exec *x, const struct head *h)
{
    struct qr_ranks *r = x->ranks;
    QR_ASSERT(x->lora != NULL);
    QR_ASSERT(h->piece.n >= 0);
    if (take_rest(r, parts_of(h).total) && h->piece.rank == r->comm->rank)
        qr_lora_receive(x->lora, &h->piece, r->message + QR_STEP_ALIGN);
}

static void follow_step(struct qr_exec *x, const struct head *h)
{
    struct qr_ranks *r = x->ranks;
    const struct parts p = parts_of(h);
    if (!take_rest(r, p.total))
        return;
    struct qr_batch b = {.n_tokens = h->n_tokens, .n_seqs = h->n_seqs, .n_prefill_seqs = h->n_prefill_seqs, .n_logits = h->n_logits,
                         .block_tokens = h->block_tokens, .n_idle = h->n_idle, .n_groups = h->adapted};
    if (h->names_drawn)
        make_drawn(x, h->n_drawn > 0 ? h->n_drawn : 1);
    b.drawn = h->names_drawn ? r->drawn : NULL;
    qr_step_place(&b, &p.layout, r->message + p.arrays);
    if (h->adapted)
        group_rows(r, &b);
    b.logit_scale = h->has_scale ? (const float *)(const void *)(r->message + p.scales) : NULL;
    const struct copy *copy = (const struct copy *)(const void *)(r->message + p.copies);
    for (int32_t i = 0; i < h->n_copies; i++) {
        const bool moves = copy[i].src >= x->kv->n_blocks || copy[i].dst >= x->kv->n_blocks;
        (moves ? qr_model_kv_move : qr_model_kv_copy)(x, copy[i].src, copy[i].dst);
    }
    qr_model_forward(x, &b);
    qr_exec_share_drawn(x, r->drawn, h->n_drawn);
}

int qr_exec_follow(struct qr_exec *x, struct qr_err *err)
{
    QR_ASSERT(x != NULL && x->ranks != NULL);
    QR_ASSERT(x->ranks->comm->rank > 0 && err != NULL);
    for (;;) {
        struct head h;
        spread(x->ranks, 0, FIRST_BYTES);
        if (qr_exec_lost(x, err))
            return err->code;
        memcpy(&h, x->ranks->message, sizeof h);
        if (h.kind == OVER)
            return 0;
        if (h.kind == STEP)
            follow_step(x, &h);
        if (h.kind == PIECE)
            follow_piece(x, &h);
    }
}
