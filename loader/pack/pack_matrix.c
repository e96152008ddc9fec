/* pack_matrix.c - the one way from a file's matrix to the panels that kernels read.
 *
 * On the processor a matrix is cut into items of whole panels. A thread reads the rows of an item into its own buffer (pread), packs them, and goes on.
 * Small matrices wait until there are items for all threads, which then pass from matrix to matrix without a barrier. Some tensors have no rows that lie
 * together: GPTQ's and AWQ's words, matrices of several tensors, transposed ones. All threads read such a tensor whole into one buffer and then pack items
 * from there, one matrix at a time, so the buffer is as large as the largest of them.
 * Guarantee: the bytes of a panel depend on the file alone, not on threads, items or time. A file that became shorter, or a disk that fails, is kept as
 * qr_packer_failed and never a signal.
 * Thread: a packer belongs to the thread that opens the model; items run on the backend's pool. */
#include "loader/pack/pack_matrix.h"

#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/mem.h"
#include "loader/pack/coded_rows.h"
#include "loader/stores/quantized_tensors.h"
#include "loader/stores/tensor_files_parts.h"

#define NODE_BYTES ((size_t)4 << 20)   /* of a matrix: with several memory nodes it has a launch of its own */
#define READ_BYTES ((size_t)128 << 10) /* of the file in an item: they are in L2 when they are packed */
#define PART_BYTES ((size_t)512 << 10) /* of a tensor that is read whole, for a thread at a time */
#define PANEL_ROWS QR_LINEAR_PACKED_TOGETHER

/* A part of a matrix, or of a vector, that is to be packed. */
struct piece {
    struct qr_weight dst; /* or */
    float *vector;        /* not NULL: of the change below */
    struct qr_vector_change change;
    const struct qr_stored_tensor *t; /* borrowed */
    struct qr_cut cut;
    int64_t first, item_rows; /* row of dst; rows of an item, which ends where a panel does */
    int32_t first_item;
    const struct qr_tensor_files *view; /* borrowed: all of t was read; NULL: an item reads its own rows */
};

struct qr_packer {
    struct qr_backend *be;               /* borrowed, as are files */
    const struct qr_tensor_files *files;
    struct piece *piece; /* owned [n_max]: n wait */
    int32_t n, n_max, n_items;
    char *read;  /* owned: read_bytes for each worker, rows of the file */
    char *rows;  /* owned: rows_bytes for each worker, rows that kernels pack */
    char *whole; /* owned: tensors that are read whole */
    size_t read_bytes, rows_bytes, whole_bytes;
    struct qr_stored_tensor held; /* the first part of what `whole` has: an expert's gate and up are of the same bytes */
    _Atomic int32_t failed; /* 1 + a file that could not be read; 0: none */
};

struct qr_packer *qr_packer_new(struct qr_backend *be, const struct qr_tensor_files *files)
{
    QR_ASSERT(be != NULL);
    QR_ASSERT(files != NULL);
    struct qr_packer *p = qr_alloc(1, sizeof *p);
    *p = (struct qr_packer){.be = be, .files = files};
    return p;
}

void qr_packer_free(struct qr_packer *p)
{
    if (!p)
        return;
    qr_free(p->piece);
    qr_free_aligned(p->read);
    qr_free_aligned(p->rows);
    qr_free_aligned(p->whole);
    qr_free(p);
}

/* ---- rows ---- */

/* Of the cut, from `row` on, one after the other. */
static void copy_rows(uint8_t *to, const uint8_t *src, const struct piece *p, int64_t row, int64_t n)
{
    const size_t width = qr_dtype_bytes(p->t->type->dtype), pitch = (size_t)p->t->shape[1] * width, own = (size_t)p->cut.cols.n * width;
    const uint8_t *from = src + (size_t)(p->cut.rows.first + row) * pitch + (size_t)p->cut.cols.first * width;
    for (int64_t i = 0; own < pitch && i < n; i++)
        qr_copy(to + (size_t)i * own, from + (size_t)i * pitch, own);
    if (own == pitch)
        qr_copy(to, from, (size_t)n * own);
}

/* Columns of the cut's tensor as they come out of it, before those that are not wanted are left out. */
static int64_t decoded_width(const struct piece *p)
{
    return p->t->shape[!p->cut.transposed];
}

/* Rows of the cut as f32, one after the other. */
static void decode_rows(const struct qr_tensor_files *files, const struct piece *p, float *x, int64_t row, int64_t n)
{
    const struct qr_cut *cut = &p->cut;
    const int64_t width = decoded_width(p), n_in = cut->cols.n;
    QR_ASSERT(!cut->transposed || !p->t->quantized);
    if (cut->transposed)
        qr_tensor_files_decode_columns(files, p->t, x, cut->rows.first + row, n);
    else
        qr_tensor_files_decode(files, p->t, x, cut->rows.first + row, n);
    for (int64_t i = 0; n_in < width && i < n; i++)
        memmove(x + i * n_in, x + i * width + cut->cols.first, (size_t)n_in * sizeof *x);
}

/* Rows that must be decoded, or stand in another order. */
static bool must_decode(const struct piece *p)
{
    return p->cut.transposed || !qr_stored_is_plain(p->t);
}

/* ---- to a device ---- */

struct staging {
    const struct qr_packer *a;
    const struct piece *p;
    float *room; /* PANEL_ROWS decoded rows for each worker */
    uint8_t *to;
    size_t row_bytes;
    int64_t row, n_rows;
};

static void stage_item(const void *arg, int32_t item, int32_t worker)
{
    const struct staging *s = arg;
    const int64_t row = (int64_t)item * PANEL_ROWS, n = s->n_rows - row < PANEL_ROWS ? s->n_rows - row : PANEL_ROWS;
    float *rows = s->room + (size_t)worker * PANEL_ROWS * (size_t)decoded_width(s->p);
    uint8_t *to = s->to + (size_t)row * s->row_bytes;
    if (!must_decode(s->p)) {
        copy_rows(to, qr_tensor_files_data(s->a->files, s->p->t), s->p, s->row + row, n);
        return;
    }
    decode_rows(s->a->files, s->p, rows, s->row + row, n);
    memcpy(to, rows, (size_t)n * s->row_bytes);
}

/* Some rows at a time: all threads read or decode them, the device copies and packs them. */
static void upload_rows(const struct qr_packer *a, const struct piece *p)
{
    struct qr_backend *be = a->be;
    const bool decoded = must_decode(p);
    const enum qr_dtype from = decoded ? QR_F32 : p->t->type->dtype;
    const int64_t n_in = p->cut.cols.n, n_rows = p->cut.rows.n;
    const size_t row_bytes = (size_t)n_in * qr_dtype_bytes(from);
    const int64_t step = row_bytes < QR_UPLOAD_BYTES ? (int64_t)(QR_UPLOAD_BYTES / row_bytes) : 1;
    float *room = qr_alloc(decoded ? (size_t)be->n_threads * PANEL_ROWS : 1, (size_t)decoded_width(p) * sizeof(float));
    void *rows = be->mem->alloc((size_t)(step < n_rows ? step : n_rows) * row_bytes);
    for (int64_t row = 0; row < n_rows; row += step) {
        const int64_t n = n_rows - row < step ? n_rows - row : step;
        const struct staging s = {.a = a, .p = p, .room = room, .to = be->mem->stage(be->queue, (size_t)n * row_bytes),
                                  .row_bytes = row_bytes, .row = row, .n_rows = n};
        qr_backend_run(be, stage_item, &s, (int32_t)((n + PANEL_ROWS - 1) / PANEL_ROWS));
        be->mem->put(be->queue, rows, s.to, (size_t)n * row_bytes);
        be->k->linear_pack(be->queue, p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], n_in, p->first + row, rows, from, n);
    }
    be->mem->sync(be->queue);
    be->mem->free(rows);
    qr_free(room);
}

/* ---- on the processor ---- */

static bool read_bytes(struct qr_packer *p, const struct qr_stored_tensor *t, uint64_t at, size_t n_bytes, void *to)
{
    if (qr_tensor_files_read(p->files, t, at, n_bytes, to))
        return true;
    atomic_store(&p->failed, 1 + t->shard);
    return false;
}

static size_t row_bytes(const struct qr_stored_tensor *t)
{
    return (size_t)t->n_bytes / (size_t)t->shape[0];
}

/* Rows that are read together: whole panels, and of rows whose heads are mixed, whole heads. */
static int64_t rows_together(const struct piece *p)
{
    const int64_t head = p->t->heads ? p->t->shape[0] / p->t->heads : 1, twos = head & -head;
    return head * (PANEL_ROWS / (twos < PANEL_ROWS ? twos : PANEL_ROWS));
}

/* Whether t has no rows that an item can read on its own. */
static bool read_whole(const struct piece *p)
{
    const int64_t head = p->t->heads ? p->t->shape[0] / p->t->heads : 1;
    const bool cuts_head = p->cut.rows.first % head != 0 || p->cut.rows.n % head != 0 || p->first % head != 0;
    return p->t->quantized || p->t->part_of || p->cut.transposed || cuts_head;
}

static void pack_coded(const struct qr_packer *a, const struct qr_tensor_files *files, const struct piece *p, struct qr_queue *q, int64_t row, int64_t n)
{
    struct qr_stored_rows rows = {.files = files, .t = p->t, .first_row = p->cut.rows.first + row, .cols = p->cut.cols};
    if (!qr_stored_code(&rows.as, p->t))
        QR_ASSERT(false);
    if (rows.as.type != p->dst.packed_dtype)
        qr_stored_code_widen(&rows.as);
    QR_ASSERT(rows.as.type == p->dst.packed_dtype);
    const struct qr_coded_source source = qr_stored_source(&rows);
    a->be->k->linear_pack_coded(q, p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], p->dst.t.shape[1], p->first + row, &source, n);
}

/* Rows of numbers: as they lie in memory, or by way of `room`. */
static void pack_numbers(const struct qr_packer *a, const struct qr_tensor_files *files, const struct piece *p, struct qr_queue *q, char *room, int64_t row,
                         int64_t n)
{
    const enum qr_dtype from = must_decode(p) ? QR_F32 : p->t->type->dtype;
    const void *rows = room;
    if (must_decode(p))
        decode_rows(files, p, (float *)(void *)room, row, n);
    else if (p->cut.cols.n < p->t->shape[1])
        copy_rows((uint8_t *)room, qr_tensor_files_data(files, p->t), p, row, n);
    else
        rows = (const uint8_t *)qr_tensor_files_data(files, p->t) + (size_t)(p->cut.rows.first + row) * row_bytes(p->t);
    a->be->k->linear_pack(q, p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], p->cut.cols.n, p->first + row, rows, from, n);
}

static int64_t columns_of(const struct qr_stored_tensor *t)
{
    return t->n_dims == 2 ? t->shape[1] : 1;
}

static void decode_vector(const struct qr_tensor_files *files, const struct piece *p, float *v)
{
    const int64_t n = p->cut.rows.n * columns_of(p->t);
    qr_tensor_files_decode(files, p->t, v, p->cut.rows.first, p->cut.rows.n);
    for (int64_t i = 0; i < n && (p->change.factor != 1 || p->change.offset != 0); i++)
        v[i] = v[i] * p->change.factor + p->change.offset;
}

/* The piece that has the item: the last one that begins no later. */
static const struct piece *piece_of(const struct qr_packer *a, int32_t item)
{
    int32_t least = 0, end = a->n;
    while (end - least > 1) {
        const int32_t middle = least + (end - least) / 2;
        if (a->piece[middle].first_item <= item)
            least = middle;
        else
            end = middle;
    }
    return &a->piece[least];
}

/* Rows of t that rows [row, row + n) of the cut are made of: all of a vector whose rows are mixed or a part's. */
static struct qr_span stored_rows(const struct piece *p, int64_t row, int64_t n)
{
    return p->vector && (p->t->heads || p->t->part_of) ? (struct qr_span){0, p->t->shape[0]} : (struct qr_span){p->cut.rows.first + row, n};
}

/* Rows [row, row + n) of the cut are read, where they are not yet, and packed. */
static void pack_rows(struct qr_packer *a, const struct piece *p, int64_t row, int64_t n, int32_t worker)
{
    char *to = a->read + (size_t)worker * a->read_bytes, *room = a->rows + (size_t)worker * a->rows_bytes;
    const struct qr_tensor_files *files = p->view;
    struct qr_tensor_files view;
    if (!files) {
        const struct qr_span stored = stored_rows(p, row, n);
        const uint64_t at = (uint64_t)stored.first * row_bytes(p->t);
        const size_t n_bytes = (size_t)stored.n * row_bytes(p->t);
        QR_ASSERT(n_bytes <= a->read_bytes);
        if (!read_bytes(a, p->t, at, n_bytes, to))
            return;
        view = *a->files;
        qr_tensor_files_hold(&view, p->t, at, to);
        files = &view;
    }
    if (p->vector)
        decode_vector(files, p, p->vector);
    else if (p->cut.coded)
        pack_coded(a, files, p, qr_backend_alone(a->be, worker), row, n);
    else
        pack_numbers(a, files, p, qr_backend_alone(a->be, worker), room, row, n);
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    struct qr_packer *a = (struct qr_packer *)(uintptr_t)arg;
    const struct piece *p = piece_of(a, item);
    const int64_t begin = p->vector ? 0 : (p->first / p->item_rows + item - p->first_item) * p->item_rows - p->first;
    const int64_t end = begin + p->item_rows < p->cut.rows.n ? begin + p->item_rows : p->cut.rows.n, row = begin < 0 ? 0 : begin;
    if (end > row)
        pack_rows(a, p, row, end - row, worker);
}

void qr_packer_run(struct qr_packer *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n >= 0 && p->n_items >= p->n);
    if (p->n > 0)
        qr_backend_run(p->be, pack_item, p, p->n_items);
    p->n = p->n_items = 0;
}

int32_t qr_packer_failed(const struct qr_packer *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->n == 0);
    return atomic_load(&p->failed) - 1;
}

/* `memory` with at least n_bytes for each worker, what it held is lost. Requires that nothing waits for what was in it: items only do while they run. */
static void make_room(char **memory, size_t *have, size_t n_bytes, int32_t n_workers)
{
    if (*have >= n_bytes)
        return;
    qr_free_aligned(*memory);
    *have = qr_align_up(n_bytes, 4096);
    *memory = qr_alloc_aligned((size_t)n_workers * *have, 4096);
}

/* A piece waits, with its items of item_rows rows. */
static void add(struct qr_packer *p, const struct piece *piece)
{
    const int64_t end = piece->first + piece->cut.rows.n;
    if (p->n == p->n_max) {
        p->n_max = p->n_max ? 2 * p->n_max : 64;
        p->piece = qr_realloc(p->piece, (size_t)p->n_max, sizeof *p->piece);
    }
    p->piece[p->n] = *piece;
    p->piece[p->n++].first_item = p->n_items;
    p->n_items += (int32_t)((end - 1) / piece->item_rows - piece->first / piece->item_rows + 1);
    if (!piece->view)
        make_room(&p->read, &p->read_bytes, (size_t)stored_rows(piece, 0, piece->item_rows).n * row_bytes(piece->t), p->be->n_threads);
}

/* ---- tensors that are read whole ---- */

struct whole {
    struct qr_packer *packer;
    const struct qr_stored_tensor *part[QR_QUANTIZED_PARTS]; /* NULL: there is none */
    size_t at[QR_QUANTIZED_PARTS];                           /* in the buffer */
    int32_t first_item[QR_QUANTIZED_PARTS + 1];
};

static void read_item(const void *arg, int32_t item, int32_t worker)
{
    const struct whole *w = arg;
    int i = 0;
    (void)worker;
    while (item >= w->first_item[i + 1])
        i++;
    const size_t at = (size_t)(item - w->first_item[i]) * PART_BYTES, left = (size_t)w->part[i]->n_bytes - at;
    (void)read_bytes(w->packer, w->part[i], at, left < PART_BYTES ? left : PART_BYTES, w->packer->whole + w->at[i] + at);
}

/* Reads all parts of t; `view` finds them in the packer's buffer. False: a file could not be read. */
static bool hold_whole(struct qr_packer *p, struct qr_tensor_files *view, const struct qr_stored_tensor *t)
{
    struct whole w = {.packer = p};
    size_t n_bytes = 0;
    for (int i = 0; i < QR_QUANTIZED_PARTS; i++) {
        const struct qr_stored_tensor *part = t->quantized ? qr_quantized_part(t, i) : i == 0 ? t : NULL;
        const size_t n = part ? (size_t)part->n_bytes : 0;
        w.part[i] = part;
        w.at[i] = n_bytes;
        w.first_item[i + 1] = w.first_item[i] + (int32_t)((n + PART_BYTES - 1) / PART_BYTES);
        n_bytes += qr_align_up(n, 4096);
    }
    make_room(&p->whole, &p->whole_bytes, n_bytes, 1);
    if (p->held.shard != w.part[0]->shard || p->held.offset != w.part[0]->offset || p->held.n_bytes != w.part[0]->n_bytes)
        qr_backend_run(p->be, read_item, &w, w.first_item[QR_QUANTIZED_PARTS]);
    p->held = *w.part[0];
    *view = *p->files;
    for (int i = 0; i < QR_QUANTIZED_PARTS; i++)
        if (w.part[i])
            qr_tensor_files_hold(view, w.part[i], 0, p->whole + w.at[i]);
    return atomic_load(&p->failed) == 0;
}

/* How many rows an item has: whole panels, as many as READ_BYTES of the file hold, or as the source likes at once; one panel where rows are decoded. */
static int64_t item_rows(const struct piece *p)
{
    const int64_t least = p->view ? PANEL_ROWS : rows_together(p), most = (int64_t)(READ_BYTES / (row_bytes(p->t) + 1)) / least * least;
    const bool coded = p->cut.coded;
    if (p->view)
        return coded && p->t->quantized ? PANEL_ROWS * qr_quantized_together(p->t) : PANEL_ROWS;
    return most < least || (!coded && must_decode(p)) ? least : most;
}

/* Pieces that share a panel are packed one after the other. */
static void add_matrix(struct qr_packer *p, struct piece *piece)
{
    const bool coded = piece->cut.coded, whole = read_whole(piece);
    const size_t number = must_decode(piece) ? sizeof(float) : qr_dtype_bytes(piece->t->type->dtype);
    const bool own = whole || (qr_backend_n_nodes(p->be) > 1 && (size_t)piece->cut.rows.n * row_bytes(piece->t) >= NODE_BYTES);
    struct qr_tensor_files view;
    if (own || piece->first % PANEL_ROWS != 0)
        qr_packer_run(p);
    if (whole) {
        if (!hold_whole(p, &view, piece->t))
            return;
        piece->view = &view;
    }
    piece->item_rows = item_rows(piece);
    if (!coded)
        make_room(&p->rows, &p->rows_bytes, (size_t)piece->item_rows * (size_t)decoded_width(piece) * number, p->be->n_threads);
    add(p, piece);
    if (own)
        qr_packer_run(p);
}

void qr_packer_matrix(struct qr_packer *p, const struct qr_weight *dst, int64_t first, const struct qr_stored_tensor *t, const struct qr_cut *cut)
{
    QR_ASSERT(p != NULL && dst != NULL && t != NULL);
    QR_ASSERT(cut->cols.n == dst->t.shape[1] && cut->rows.first + cut->rows.n <= t->shape[cut->transposed]);
    QR_ASSERT(!cut->transposed || qr_stored_is_plain(t));
    struct piece piece = {.dst = *dst, .t = t, .cut = *cut, .first = first};
    if (cut->rows.n == 0)
        return;
    if (p->be->mem->host) {
        add_matrix(p, &piece);
        return;
    }
    if (cut->coded)
        pack_coded(p, p->files, &piece, p->be->queue, 0, cut->rows.n);
    else
        upload_rows(p, &piece);
    qr_tensor_files_drop(p->files, t);
}

void qr_packer_vector(struct qr_packer *p, float *dst, const struct qr_stored_tensor *t, const struct qr_span *part, const struct qr_vector_change *change)
{
    QR_ASSERT(p != NULL && dst != NULL);
    QR_ASSERT(t != NULL && part != NULL && change != NULL);
    struct piece piece = {.vector = dst, .change = *change, .t = t, .cut = {.rows = *part}, .item_rows = part->n};
    if (part->n == 0)
        return;
    if (p->be->mem->host) {
        add(p, &piece);
        return;
    }
    const size_t n_numbers = (size_t)(part->n * columns_of(t));
    float *v = qr_alloc(n_numbers, sizeof *v); /* where the host cannot write: by way of a copy */
    decode_vector(p->files, &piece, v);
    p->be->mem->put(p->be->queue, dst, v, n_numbers * sizeof *v);
    qr_free(v);
}
