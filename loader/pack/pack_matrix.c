#include "loader/pack/pack_matrix.h"

#include <stdatomic.h>
#include <string.h>

#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "kernels/pack_words.h"
#include "loader/pack/coded_rows.h"
#include "loader/pack/fresh_pages.h"
#include "loader/stores/quantized_tensors.h"
#include "loader/stores/tensor_files_parts.h"
#include "loader/pack/upload.h"

#define DECODE_BYTES ((size_t)4 << 20)      /* f32 rows that are decoded for a device at a time */
#define LARGE_BYTES ((size_t)64 << 20)      /* of a matrix: threads pack far parts of it */
#define OWN_BYTES ((size_t)4 << 20)         /* of a matrix: it is worth a launch */
#define ITEM_BYTES ((size_t)128 << 10)      /* of a matrix that is none: what a thread packs at a time */
#define READ_BYTES ((size_t)128 << 10)      /* of the file that a thread reads at a time where it can: they are in its cache when it packs them */
#define DROP_BYTES ((uint64_t)8 << 20)      /* of the file's mapping that were looked at until its pages are given back */
#define AROUND_BYTES ((uint64_t)64 << 10)   /* that the system maps where one byte is looked at */
/* A panel whose rows take more is packed from where the file is mapped; of a larger matrix of words an item has a stretch of inputs. */
#define READ_MOST ((size_t)1 << 20)
#define LOOK_TIMES 4                        /* as many rows as are read at once are looked at as one item, */
#define LOOK_THREADS 64                     /* or as this has for each thread: more would leave some without an item, of what is packed at a time */
#define LOOK_ROUNDING_NS 60                 /* for a KiB of the file entered where it is mapped, at most: else its pages are small, or not in memory, and */
#define LOOK_BLOCKS_NS 25                   /* reading costs less; rounding to half bytes has time to wait for nothing, all else has little */
#define LOOK_WORDS_NS 60                    /* words that are put in order are packed twice where they are read */
#define LOOK_LATE_NS 1000000                /* that do not count */
#define LOOK_LATE_TIMES 8                   /* as long as it may take is what an item counts at most: its thread may have lost its processor for milliseconds */
#define STRETCH_INPUTS 32                   /* of which an item of words has a multiple */
#define SORTED_ROWS ((int64_t)64)           /* of an item that puts inputs in order */
#define SORTED_BYTES ((size_t)4 << 20)      /* of matrices whose inputs are put in order when all of them are there: meanwhile others are read */
#define TAKEN_BYTES ((size_t)64 << 20)      /* likewise where their words are looked at: meanwhile pages of others are entered */
#define PANEL_ROWS QR_LINEAR_PACKED_TOGETHER

/* A part of a matrix, or of a vector, that is to be packed. */
struct piece {
    struct qr_weight dst; /* or */
    float *vector;        /* not NULL: of the change below */
    struct qr_vector_change change;
    const struct qr_stored_tensor *t; /* borrowed */
    const struct qr_stored_tensor *read; /* borrowed: whose rows are read; of a quantized matrix, its codes */
    struct qr_cut cut;
    int64_t first, item_rows; /* row of dst; rows of an item, which ends where a panel does */
    int32_t first_item;
    bool read_at_once;        /* kernels read it as the file has it */
    bool held;                /* an item's rows are read to memory of its thread; else they are looked at where the file is mapped */
    int32_t look_ns;          /* 0: rows are not looked at. Else an item's may be, where the file is mapped, as long as entering a KiB costs no more */
    int64_t read_rows;        /* held, if they are not: rows, or inputs of a stretch, that are read at a time */
    bool sorts;               /* items put inputs in order, of rows that are there */
    bool taken;               /* from their words, where the file is mapped; items of words alone enter its pages */
    int64_t stretch;          /* inputs of an item, words of all outputs; one more item, the first, has all that is no code. 0: items have rows */
    bool whole;               /* held: there is one item, and all of `around` is read: codes, and what lies beside them of scales and zeros */
    struct qr_file_range around;
    size_t row_bytes;         /* of `read` */
    size_t panel_bytes;       /* of dst */
    size_t packed_bytes;      /* of all of dst, whose last panel may be no whole one */
};

struct work {
    struct piece *piece; /* owned */
    int32_t n, n_max, n_items;
};

struct qr_packer {
    struct qr_backend *be;               /* borrowed, as are files */
    const struct qr_tensor_files *files;
    const struct qr_stored_tensor *stays; /* NULL: none */
    struct qr_fresh_pages pages;
    struct work now, later;              /* waiting; later: until `now` is done */
    size_t sorted_bytes;                 /* of what will be sorted later */
    char *room;                          /* owned: room_bytes for each worker */
    char *read;                          /* owned: read_bytes for each worker, rows of the file */
    size_t room_bytes, read_bytes;
    uint64_t n_mapped;                   /* bytes of the mapping that have been looked at, or will be */
    _Atomic int64_t looked_ns, looked_kib; /* entering pages took */
    _Atomic bool reads;                  /* that was too long: rows are not looked at any more */
    _Atomic int32_t failed;              /* 1 + a file that could not be read; 0: none */
};

struct qr_packer *qr_packer_new(struct qr_backend *be, const struct qr_tensor_files *files, void *region, size_t n_bytes)
{
    QR_ASSERT(be != NULL && files != NULL);
    QR_ASSERT(region != NULL || n_bytes == 0);
    struct qr_packer *p = qr_alloc(1, sizeof *p);
    const bool enters = be->mem->host && n_bytes >= QR_FRESH_PAGE_BYTES; /* smaller ones are not aligned to pages */
    *p = (struct qr_packer){.be = be, .files = files, .reads = qr_packs_ahead(be->k) && !qr_tensor_files_cached(files)};
    if (enters)
        qr_fresh_pages_init(&p->pages, region, n_bytes, qr_backend_n_nodes(be) > 1 ? (size_t)be->n_threads : n_bytes);
    return p;
}

void qr_packer_stays(struct qr_packer *p, const struct qr_stored_tensor *t)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(t != NULL);
    p->stays = t;
}

void qr_packer_reads(struct qr_packer *p)
{
    QR_ASSERT(p != NULL && p->files != NULL);
    atomic_store(&p->reads, true);
}

void qr_packer_free(struct qr_packer *p)
{
    if (!p)
        return;
    qr_fresh_pages_release(&p->pages);
    qr_free(p->now.piece);
    qr_free(p->later.piece);
    qr_free(p->room);
    qr_free_aligned(p->read);
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
    return p->t->shape[!p->cut.turned];
}

/* Rows of the cut as numbers that kernels pack, one after the other. Returns their type. */
static enum qr_dtype decode_rows(const struct qr_packer *a, const struct piece *p, void *to, int64_t row, int64_t n)
{
    const struct qr_cut *cut = &p->cut;
    const int64_t width = decoded_width(p), n_in = cut->cols.n;
    float *x = to;
    QR_ASSERT(!cut->turned || !p->t->quantized);
    if (a->be->mem->host && p->dst.packed_dtype == QR_BF16 && p->t->quantized &&
        qr_quantized_halves(a->files, p->t, to, cut->rows.first + row, n, cut->cols.first, n_in))
        return QR_BF16;
    if (cut->turned)
        qr_tensor_files_decode_columns(a->files, p->t, x, cut->rows.first + row, n);
    else
        qr_tensor_files_decode(a->files, p->t, x, cut->rows.first + row, n);
    for (int64_t i = 0; n_in < width && i < n; i++)
        memmove(x + i * n_in, x + i * width + cut->cols.first, (size_t)n_in * sizeof *x);
    return QR_F32;
}

/* Rows that must be decoded, or stand in another order. */
static bool must_decode(const struct piece *p)
{
    return p->cut.turned || !qr_stored_is_plain(p->t);
}

/* ---- to a device ---- */

/* Rows of the file by way of a copy of some of them, which the device packs. */
static void upload_rows(const struct qr_packer *a, const struct piece *p)
{
    struct qr_backend *be = a->be;
    const enum qr_dtype from = p->t->type->dtype;
    const uint8_t *src = qr_tensor_files_data(a->files, p->t);
    const int64_t n_in = p->cut.cols.n, n_rows = p->cut.rows.n;
    const size_t row_bytes = (size_t)n_in * qr_dtype_bytes(from);
    const int64_t step = row_bytes < QR_UPLOAD_BYTES ? (int64_t)(QR_UPLOAD_BYTES / row_bytes) : 1;
    uint8_t *bounce = be->mem->alloc((size_t)(step < n_rows ? step : n_rows) * row_bytes);
    for (int64_t row = 0; row < n_rows; row += step) {
        const int64_t n = n_rows - row < step ? n_rows - row : step;
        if (n_in == p->t->shape[1]) {
            qr_upload(be, bounce, src + (size_t)(p->cut.rows.first + row) * row_bytes, (size_t)n * row_bytes);
        } else {
            uint8_t *staged = be->mem->stage(be->queue, (size_t)n * row_bytes);
            copy_rows(staged, src, p, row, n);
            be->mem->put(be->queue, bounce, staged, (size_t)n * row_bytes);
        }
        be->k->linear_pack(be->queue, p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], n_in, p->first + row, bounce, from, n);
    }
    be->mem->sync(be->queue);
    be->mem->free(bounce);
}

struct decoding {
    const struct qr_packer *a;
    const struct piece *p;
    char *room; /* PANEL_ROWS rows for each worker */
    float *to;
    int64_t row, n_rows;
};

static void decoding_item(const void *arg, int32_t item, int32_t worker)
{
    const struct decoding *d = arg;
    const int64_t row = (int64_t)item * PANEL_ROWS, n = d->n_rows - row < PANEL_ROWS ? d->n_rows - row : PANEL_ROWS, n_in = d->p->cut.cols.n;
    float *rows = (float *)(void *)(d->room + (size_t)worker * PANEL_ROWS * (size_t)decoded_width(d->p) * sizeof *rows);
    (void)decode_rows(d->a, d->p, rows, d->row + row, n);
    memcpy(d->to + row * n_in, rows, (size_t)(n * n_in) * sizeof *rows);
}

/* Some rows at a time as f32, decoded by all threads. */
static void upload_decoded(const struct qr_packer *a, const struct piece *p)
{
    struct qr_backend *be = a->be;
    const int64_t n_in = p->cut.cols.n, n_rows = p->cut.rows.n;
    const size_t row_bytes = (size_t)n_in * sizeof(float);
    const int64_t step = row_bytes < DECODE_BYTES ? (int64_t)(DECODE_BYTES / row_bytes) : 1;
    char *room = qr_alloc((size_t)be->n_threads * PANEL_ROWS, (size_t)decoded_width(p) * sizeof(float));
    float *rows = be->mem->alloc((size_t)(step < n_rows ? step : n_rows) * row_bytes);
    for (int64_t row = 0; row < n_rows; row += step) {
        const int64_t n = n_rows - row < step ? n_rows - row : step;
        const struct decoding d = {.a = a, .p = p, .room = room, .to = be->mem->stage(be->queue, (size_t)n * row_bytes), .row = row, .n_rows = n};
        qr_backend_run(be, decoding_item, &d, (int32_t)((n + PANEL_ROWS - 1) / PANEL_ROWS));
        be->mem->put(be->queue, rows, d.to, (size_t)n * row_bytes);
        be->k->linear_pack(be->queue, p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], n_in, p->first + row, rows, QR_F32, n);
    }
    be->mem->sync(be->queue);
    be->mem->free(rows);
    qr_free(room);
}

/* ---- on the processor ---- */

/* Rows `row` on as a source; `files` has what is read of them. */
static struct qr_coded_source coded_source(struct qr_stored_rows *rows, const struct qr_tensor_files *files, const struct piece *p, int64_t row)
{
    *rows = (struct qr_stored_rows){.files = files, .t = p->t, .first_row = p->cut.rows.first + row, .cols = p->cut.cols};
    if (!qr_stored_code(&rows->as, p->t))
        QR_ASSERT(false);
    qr_stored_code_as(&rows->as, p->dst.packed_dtype);
    qr_stored_rows_place(rows);
    return qr_stored_source(rows);
}

/* Codes as they are; `files` has them. */
static void pack_coded(const struct qr_packer *a, const struct qr_tensor_files *files, const struct piece *p, struct qr_queue *q, int64_t row, int64_t n)
{
    struct qr_stored_rows rows;
    struct qr_coded_source source = coded_source(&rows, files, p, row);
    source.asks = p->look_ns > 0 && files == a->files && source.pitch > 0;
    a->be->k->linear_pack_coded(q, p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], p->dst.t.shape[1], p->first + row, &source, n);
}

/* Rows that kernels read as they are; `files` has them. */
static void pack_stored(const struct qr_packer *a, const struct qr_tensor_files *files, const struct piece *p, struct qr_queue *q, int64_t row, int64_t n)
{
    const enum qr_dtype from = p->t->type->dtype;
    const uint8_t *src = qr_tensor_files_data(files, p->t);
    if (p->cut.coded)
        pack_coded(a, files, p, q, row, n);
    else
        a->be->k->linear_pack(q, p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], p->dst.t.shape[1], p->first + row,
                              src + (size_t)((p->cut.rows.first + row) * p->cut.cols.n) * qr_dtype_bytes(from), from, n);
}

/* Others: by way of memory that stays in a cache. `files` has them where they are plain. */
static void pack_by_room(const struct qr_packer *a, const struct qr_tensor_files *files, const struct piece *p, struct qr_queue *q, char *room, int64_t row,
                         int64_t n)
{
    enum qr_dtype from = p->t->type->dtype;
    if (must_decode(p))
        from = decode_rows(a, p, room, row, n);
    else
        copy_rows((uint8_t *)room, qr_tensor_files_data(files, p->t), p, row, n);
    a->be->k->linear_pack(q, p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], p->cut.cols.n, p->first + row, room, from, n);
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
    int32_t least = 0, end = a->now.n;
    while (end - least > 1) {
        const int32_t middle = least + (end - least) / 2;
        if (a->now.piece[middle].first_item <= item)
            least = middle;
        else
            end = middle;
    }
    return &a->now.piece[least];
}

static bool looks(struct qr_packer *p, const struct qr_stored_tensor *t)
{
    if (qr_tensor_files_there(p->files, t))
        return true;
    atomic_store(&p->failed, 1 + t->shard);
    return false;
}

/* Likewise all parts of a quantized matrix that are not `read`, nor in `around`: they may be in other files. */
static bool looks_at_parts(struct qr_packer *p, const struct qr_stored_tensor *t, const struct qr_stored_tensor *read, const struct qr_file_range *around)
{
    int32_t seen = -1;
    for (int i = 0; i < QR_QUANTIZED_PARTS; i++) {
        const struct qr_stored_tensor *part = qr_quantized_part(t, i);
        if (!part || part == read || part->shard == seen || (around && qr_file_range_has(around, part)))
            continue;
        if (!looks(p, part))
            return false;
        seen = part->shard;
    }
    return true;
}

bool qr_packer_looks(struct qr_packer *p, const struct qr_stored_tensor *t)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(t != NULL);
    return t->quantized ? looks_at_parts(p, t, NULL, NULL) : looks(p, t);
}

/* Reads an item's rows, or sees whether the file still has what is looked at. Returns where they are; NULL: they cannot be read. */
static const struct qr_tensor_files *hold(struct qr_packer *a, struct qr_tensor_files *view, const struct piece *p, int64_t row, int64_t n, int32_t worker)
{
    const size_t n_bytes = p->whole ? (size_t)p->around.n_bytes : (size_t)n * p->row_bytes;
    const uint64_t at = (uint64_t)(p->cut.rows.first + row) * p->row_bytes;
    void *room = a->read + (size_t)worker * a->read_bytes;
    if (!p->held)
        return qr_packer_looks(a, p->t) ? a->files : NULL;
    QR_ASSERT(n_bytes + QR_HOLD_ROOM <= a->read_bytes);
    if (p->whole ? qr_tensor_files_hold_range(view, a->files, &p->around, room) : qr_tensor_files_hold(view, a->files, p->read, at, n_bytes, room))
        return !p->t->quantized || looks_at_parts(a, p->t, p->read, &p->around) ? view : NULL;
    atomic_store(&a->failed, 1 + p->read->shard);
    return NULL;
}

/* Enters an item's pages where its file is mapped, and sees to it that they are there: what is left is a file that becomes shorter while the item is packed.
 * False: its rows have to be read, which says what is wrong with a file whose pages the system did not enter. */
static bool look_at_rows(struct qr_packer *a, const struct piece *p, int64_t row, int64_t n)
{
    if (p->look_ns == 0 || atomic_load(&a->reads))
        return false;
    struct qr_stored_tensor part = *p->read;
    part.offset += (uint64_t)(p->cut.rows.first + row) * p->row_bytes;
    part.n_bytes = (uint64_t)n * p->row_bytes;
    const int64_t begin = qr_clock_ns();
    const bool entered = qr_tensor_files_populate(a->files, &part);
    const int64_t took = qr_clock_ns() - begin, n_kib = (int64_t)(part.n_bytes >> 10), most = LOOK_LATE_TIMES * n_kib * p->look_ns;
    const int64_t spent = took < most ? took : most;
    const int64_t all_ns = atomic_fetch_add(&a->looked_ns, spent) + spent, all_kib = atomic_fetch_add(&a->looked_kib, n_kib) + n_kib;
    if (!entered || all_ns > all_kib * p->look_ns + LOOK_LATE_NS)
        atomic_store(&a->reads, true);
    return entered && qr_tensor_files_there(a->files, p->read);
}

/* Before rows of a matrix are written. */
static void enter_rows(const struct qr_packer *a, const struct piece *p, int64_t row, int64_t n)
{
    const int64_t first = (p->first + row) / PANEL_ROWS, end = (p->first + row + n + PANEL_ROWS - 1) / PANEL_ROWS;
    const size_t from = (size_t)first * p->panel_bytes, to = (size_t)end * p->panel_bytes;
    qr_fresh_pages_enter(&a->pages, (const uint8_t *)p->dst.packed + from, (to < p->packed_bytes ? to : p->packed_bytes) - from);
}

/* Likewise all of them, by all threads; those of a large matrix are entered where they are written, as its threads are far from each other. */
static void enter_matrix(struct qr_packer *a, const struct piece *p)
{
    const size_t panels = (size_t)((p->first + p->cut.rows.n + PANEL_ROWS - 1) / PANEL_ROWS) * p->panel_bytes;
    const size_t n_bytes = panels < p->packed_bytes ? panels : p->packed_bytes;
    if (n_bytes < LARGE_BYTES)
        qr_fresh_pages_enter_by_all(&a->pages, a->be, p->dst.packed, n_bytes);
}

/* Codes of inputs [first, first + n), or with n 0 all that is no code, of which `files` has what is read. */
static void pack_inputs(struct qr_packer *a, const struct qr_tensor_files *files, const struct piece *p, int64_t first, int64_t n, int32_t worker)
{
    struct qr_stored_rows rows;
    struct qr_coded_source source = coded_source(&rows, files, p, 0);
    source.asks = files == a->files;
    if (!source.words.codes && !qr_stored_unsorted_words(&source.words, &rows))
        QR_ASSERT(false);
    enter_rows(a, p, 0, p->cut.rows.n);
    qr_pack_words_of(a->be->k)(qr_backend_alone(a->be, worker), p->dst.packed, p->dst.packed_dtype, p->dst.t.shape[0], p->cut.cols.n, p->first, &source,
                               p->cut.rows.n, first, n);
}

/* An item of a matrix whose items have inputs: their words, or all that is no code. */
static void pack_stretch(struct qr_packer *a, const struct piece *p, int32_t item, int32_t worker)
{
    const int64_t first = item > 0 ? (item - 1) * p->stretch : 0, left = p->cut.cols.n - first, n = left < p->stretch ? left : p->stretch;
    const uint64_t input_bytes = p->row_bytes;
    const struct qr_stored_tensor *zeros = qr_quantized_part(p->t, 2);
    void *room = a->read + (size_t)worker * a->read_bytes;
    struct qr_tensor_files view;
    if (item == 0) {
        QR_ASSERT(p->around.n_bytes + QR_HOLD_ROOM <= a->read_bytes);
        if (!qr_tensor_files_hold_range(&view, a->files, &p->around, room))
            atomic_store(&a->failed, 1 + p->around.shard);
        else if (!zeros || qr_file_range_has(&p->around, zeros) || qr_packer_looks(a, zeros))
            pack_inputs(a, &view, p, 0, 0, worker);
        return;
    }
    const bool looked = look_at_rows(a, p, first, n);
    if (looked && !p->taken)
        pack_inputs(a, a->files, p, first, n, worker);
    for (int64_t i = 0; !looked && !p->taken && i < n; i += p->read_rows) { /* what is taken is entered then */
        const int64_t some = n - i < p->read_rows ? n - i : p->read_rows;
        QR_ASSERT((uint64_t)some * input_bytes + QR_HOLD_ROOM <= a->read_bytes);
        if (!qr_tensor_files_hold(&view, a->files, p->read, (uint64_t)(first + i) * input_bytes, (size_t)((uint64_t)some * input_bytes), room)) {
            atomic_store(&a->failed, 1 + p->read->shard);
            return;
        }
        pack_inputs(a, &view, p, first + i, some, worker);
    }
}

static int64_t sorted_rows(const struct piece *p)
{
    return p->taken ? QR_PACK_TAKEN_ROWS : SORTED_ROWS;
}

/* Some rows of a matrix whose inputs were packed as they lie in the file, or whose words are there. */
static void sort_rows(struct qr_packer *a, const struct piece *p, int32_t item, int32_t worker)
{
    const int64_t row = item * sorted_rows(p), left = p->cut.rows.n - row, n = left < sorted_rows(p) ? left : sorted_rows(p);
    struct qr_queue *q = qr_backend_alone(a->be, worker);
    const struct qr_weight *dst = &p->dst;
    const int32_t *inputs = qr_quantized_inputs(p->t);
    struct qr_coded_words words;
    if (!p->taken) {
        qr_pack_sorted_of(a->be->k)(q, dst->packed, dst->packed_dtype, dst->t.shape[0], p->cut.cols.n, p->first + row, inputs, n);
        return;
    }
    if (!looks(a, p->read) || !qr_quantized_words(&words, a->files, p->t, row, 0))
        return;
    enter_rows(a, p, row, n);
    qr_pack_taken_of(a->be->k)(q, dst->packed, dst->packed_dtype, dst->t.shape[0], p->cut.cols.n, p->first + row, &words, inputs, n);
}

static void pack_rows(const struct qr_packer *a, const struct qr_tensor_files *files, const struct piece *p, int64_t row, int64_t n, int32_t worker)
{
    struct qr_queue *q = qr_backend_alone(a->be, worker);
    enter_rows(a, p, row, n);
    if (p->read_at_once)
        pack_stored(a, files, p, q, row, n);
    else
        pack_by_room(a, files, p, q, a->room + (size_t)worker * a->room_bytes, row, n);
}

/* Rows up to `end` of an item that begins at row `begin`, or before the first one: read, as many at a time as there is memory for, and packed. */
static void read_rows(struct qr_packer *a, const struct piece *p, int64_t begin, int64_t end, int32_t worker)
{
    const int64_t step = p->look_ns ? p->read_rows : p->item_rows;
    for (int64_t i = begin; i < end; i += step) {
        const int64_t row = i < 0 ? 0 : i, n = (i + step < end ? i + step : end) - row;
        struct qr_tensor_files view;
        const struct qr_tensor_files *files = n > 0 ? hold(a, &view, p, row, n, worker) : NULL;
        if (files)
            pack_rows(a, files, p, row, n, worker);
    }
}

static void pack_item(const void *arg, int32_t item, int32_t worker)
{
    struct qr_packer *a = (struct qr_packer *)(uintptr_t)arg;
    const struct piece *p = piece_of(a, item);
    struct qr_tensor_files view;
    if (p->vector) {
        const struct qr_tensor_files *files = hold(a, &view, p, 0, p->cut.rows.n, worker);
        qr_fresh_pages_enter(&a->pages, p->vector, (size_t)(p->cut.rows.n * columns_of(p->t)) * sizeof *p->vector);
        if (files)
            decode_vector(files, p, p->vector);
        return;
    }
    if (p->sorts) {
        sort_rows(a, p, item - p->first_item, worker);
        return;
    }
    if (p->stretch) {
        pack_stretch(a, p, item - p->first_item, worker);
        return;
    }
    const int64_t begin = (p->first / p->item_rows + item - p->first_item) * p->item_rows - p->first;
    const int64_t row = begin < 0 ? 0 : begin, end = begin + p->item_rows < p->cut.rows.n ? begin + p->item_rows : p->cut.rows.n;
    if (look_at_rows(a, p, row, end - row))
        pack_rows(a, a->files, p, row, end - row, worker);
    else
        read_rows(a, p, begin, end, worker);
}

/* What waits for nothing; then what waited for that does not any more. */
static void pack_now(struct qr_packer *p)
{
    const struct work work = p->now;
    const struct piece *last = &work.piece[work.n - 1];
    if (work.n == 1 && last->read_at_once && !last->held) {
        enter_matrix(p, last);
        if (qr_packer_looks(p, last->t))
            pack_stored(p, p->files, last, p->be->queue, 0, last->cut.rows.n);
    } else {
        qr_backend_run(p->be, pack_item, p, work.n_items);
    }
    p->now = p->later;
    p->later = (struct work){.piece = work.piece, .n_max = work.n_max};
    p->sorted_bytes = 0;
}

static void drop_item(const void *arg, int32_t item, int32_t worker)
{
    const struct qr_packer *p = arg;
    (void)worker;
    qr_tensor_files_drop_piece(p->files, p->stays, item);
}

void qr_packer_run(struct qr_packer *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->now.n > 0 || p->later.n == 0);
    while (p->now.n > 0)
        pack_now(p);
    if (p->n_mapped < DROP_BYTES)
        return;
    qr_backend_run(p->be, drop_item, p, qr_tensor_files_n_pieces(p->files)); /* each of these interrupts all threads: not one for each matrix */
    p->n_mapped = 0;
}

void qr_packer_give_back(struct qr_packer *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->now.n == 0);
    if (atomic_load(&p->looked_kib) > 0)
        qr_backend_run(p->be, drop_item, p, qr_tensor_files_n_pieces(p->files));
}

int32_t qr_packer_failed(const struct qr_packer *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->now.n == 0);
    return atomic_load(&p->failed) - 1;
}

/* Of the mapping, which will be given back. */
static uint64_t mapped_bytes(const struct qr_packer *a, const struct piece *p)
{
    uint64_t n = p->held || p->t == a->stays ? 0 : p->t->n_bytes + AROUND_BYTES;
    for (int i = 0; p->t->quantized && i < QR_QUANTIZED_PARTS; i++)
        if (qr_quantized_part(p->t, i) && !(p->held && qr_quantized_part(p->t, i) == p->read) && !qr_file_range_has(&p->around, qr_quantized_part(p->t, i)))
            n += qr_quantized_part(p->t, i)->n_bytes + AROUND_BYTES;
    return n;
}

static void add_to(struct work *w, const struct piece *piece, int64_t n_items)
{
    if (w->n == w->n_max) {
        w->n_max = w->n_max ? 2 * w->n_max : 64;
        w->piece = qr_realloc(w->piece, (size_t)w->n_max, sizeof *w->piece);
    }
    w->piece[w->n] = *piece;
    w->piece[w->n++].first_item = w->n_items;
    w->n_items += (int32_t)n_items;
}

static void add(struct qr_packer *p, const struct piece *piece, int64_t n_items)
{
    add_to(&p->now, piece, n_items);
    p->n_mapped += mapped_bytes(p, piece);
}

/* All stretches of a matrix wait whose inputs have an order of their own: that comes later, together with other matrices' stretches. */
static void sort_later(struct qr_packer *p, const struct piece *piece)
{
    struct piece sorting = *piece;
    sorting.sorts = true;
    add_to(&p->later, &sorting, (piece->cut.rows.n + sorted_rows(piece) - 1) / sorted_rows(piece));
    p->sorted_bytes += piece->packed_bytes;
    if (p->sorted_bytes >= (piece->taken ? TAKEN_BYTES : SORTED_BYTES))
        pack_now(p);
}

/* How many rows a thread packs at a time: whole panels, as many as the source likes at once. */
static int64_t item_rows(const struct piece *p, size_t panel_bytes)
{
    const int64_t at_once = p->t->quantized && p->read_at_once ? qr_quantized_together(p->t) : 1;
    const int64_t n = p->read_at_once ? (int64_t)(ITEM_BYTES / panel_bytes) / at_once * at_once : 1;
    return (n > at_once ? n : at_once) * PANEL_ROWS;
}

/* What an item's rows are made of is read, n_bytes at most. Nothing is there between launches, so what waits takes the longer place as well. */
static void hold_items(struct qr_packer *a, struct piece *p, size_t n_bytes)
{
    p->held = true;
    if (a->read_bytes >= n_bytes + QR_HOLD_ROOM)
        return;
    qr_free_aligned(a->read);
    a->read_bytes = qr_align_up((n_bytes > READ_BYTES ? n_bytes : READ_BYTES) + QR_HOLD_ROOM, 4096);
    a->read = qr_alloc_aligned((size_t)a->be->n_threads * a->read_bytes, 64);
}

/* Whether rows can be read, from their first column to their last: plain ones, and blocks and FP8 codes that stay as they are. */
static bool reads_rows(const struct qr_packer *a, const struct piece *p)
{
    const bool blocks = p->t->type->blocks && !p->vector && p->cut.coded && p->cut.cols.n == p->t->shape[1];
    return p->t != a->stays && !p->cut.turned && (blocks || qr_stored_is_plain(p->t)) && qr_tensor_files_holds(a->files, p->read);
}

/* Rows that have to be read together, whole panels of them: where they are mixed, of whole heads. 0: the piece begins or ends within a head. */
static int64_t rows_together(const struct piece *p)
{
    const int64_t head = p->t->heads ? p->t->shape[0] / p->t->heads : 1, twos = head & -head;
    if (p->cut.rows.first % head != 0 || p->cut.rows.n % head != 0 || p->first % head != 0)
        return 0;
    return head * (PANEL_ROWS / (twos < PANEL_ROWS ? twos : PANEL_ROWS));
}

/* The range with t in it, too, where little else would be: not more than the system would map to look at t. */
static void reach(struct qr_file_range *r, const struct qr_stored_tensor *t)
{
    if (!t || t->shard != r->shard)
        return;
    const uint64_t end = r->offset + r->n_bytes, t_end = t->offset + t->n_bytes;
    const uint64_t first = t->offset < r->offset ? t->offset : r->offset, last = t_end > end ? t_end : end;
    if (last - first <= r->n_bytes + t->n_bytes + AROUND_BYTES && last - first <= 2 * READ_MOST)
        *r = (struct qr_file_range){r->shard, first, last - first};
}

/* Where a level packs words in parts: an item reads a stretch of inputs of all outputs, which lie one after the other in the file and stay in its thread's
 * cache, to its places in all panels, or looks at it where the file is mapped. */
static void hold_stretches(struct qr_packer *a, struct piece *p)
{
    const struct qr_stored_tensor *codes = qr_quantized_part(p->t, 0), *scale = qr_quantized_part(p->t, 1);
    const struct qr_coded_format f = qr_dtype_coded(p->dst.packed_dtype);
    const int64_t n_in = p->cut.cols.n;
    const uint64_t input_bytes = codes->n_bytes / (uint64_t)n_in;
    if (input_bytes == 0)
        return;
    const int64_t fitting = (int64_t)(READ_BYTES / input_bytes) / STRETCH_INPUTS * STRETCH_INPUTS, stretch = fitting > 0 ? fitting : STRETCH_INPUTS;
    const size_t n_bytes = (size_t)((uint64_t)stretch * input_bytes);
    struct qr_coded_words words;
    if (!qr_pack_words_of(a->be->k) || f.bits != 4 || n_in % 64 != 0 || n_in % f.group != 0 || p->first % PANEL_ROWS != 0 || p->cut.rows.n % PANEL_ROWS != 0 ||
        n_bytes > READ_MOST || scale->n_bytes > READ_MOST || !qr_tensor_files_holds(a->files, scale))
        return;
    if ((qr_quantized_inputs(p->t) && !qr_pack_sorted_of(a->be->k)) || !qr_quantized_words(&words, a->files, p->t, 0, 0))
        return;
    p->read = codes;
    p->stretch = stretch;
    p->around = (struct qr_file_range){scale->shard, scale->offset, scale->n_bytes};
    reach(&p->around, qr_quantized_part(p->t, 2));
    hold_items(a, p, p->around.n_bytes > n_bytes ? (size_t)p->around.n_bytes : n_bytes);
    p->taken = qr_quantized_inputs(p->t) && !words.across && n_in <= QR_PACK_TAKEN_INPUTS && qr_pack_taken_of(a->be->k) && !atomic_load(&a->reads);
    p->row_bytes = (size_t)input_bytes; /* of an input */
    p->read_rows = stretch;
    if (p->taken || (!qr_quantized_inputs(p->t) && qr_packs_ahead(a->be->k) && !atomic_load(&a->reads))) {
        p->look_ns = p->taken ? LOOK_WORDS_NS : LOOK_BLOCKS_NS;
        p->stretch *= LOOK_TIMES;
    }
}

/* Of a matrix whose outputs' codes lie far apart: all of them are read at once, where they fit into a cache. */
static void hold_whole(struct qr_packer *a, struct piece *p)
{
    const struct qr_stored_tensor *codes = qr_quantized_part(p->t, 0);
    const bool all = p->cut.rows.n == p->t->shape[0] && p->cut.cols.n == p->t->shape[1];
    if (!all || !p->cut.coded || !qr_tensor_files_holds(a->files, codes))
        return;
    if (codes->n_bytes > READ_MOST || qr_quantized_inputs(p->t))
        hold_stretches(a, p);
    if (codes->n_bytes > READ_MOST || p->stretch)
        return;
    p->read = codes;
    p->around = (struct qr_file_range){codes->shard, codes->offset, codes->n_bytes};
    reach(&p->around, qr_quantized_part(p->t, 1));
    reach(&p->around, qr_quantized_part(p->t, 2));
    p->whole = true;
    p->item_rows = (p->first + p->cut.rows.n + PANEL_ROWS - 1) / PANEL_ROWS * PANEL_ROWS;
    hold_items(a, p, (size_t)p->around.n_bytes);
}

/* What it may cost to look at rows instead of reading them, where these need not be in a cache (qr_packs_ahead); 0: they do. */
static int32_t look_ns(const struct qr_packer *a, const struct piece *p)
{
    const enum qr_dtype to = p->dst.packed_dtype;
    struct qr_stored_code as;
    if (!p->read_at_once || p->t->heads || !qr_packs_ahead(a->be->k) || atomic_load(&a->reads))
        return 0; /* small items again where rows are read: threads that read far from each other spoil the system's reading ahead */
    if (qr_dtype_is_quantized(to) && qr_dtype_format(to).bits == 4)
        return LOOK_ROUNDING_NS;
    if (qr_dtype_is_quantized(to) || (to == QR_BF16 && qr_stored_is_plain(p->t) && p->t->type->dtype == QR_BF16))
        return LOOK_BLOCKS_NS;
    return p->cut.coded && p->t->type->blocks && qr_stored_code(&as, p->t) && as.type == to ? LOOK_BLOCKS_NS : 0;
}

static int32_t look_times(const struct qr_packer *a, const struct piece *p)
{
    const int32_t n = LOOK_THREADS / a->be->n_threads;
    return p->look_ns == 0 || n < 1 ? 1 : n < LOOK_TIMES ? n : LOOK_TIMES;
}

/* Of a matrix: as many rows for an item as READ_BYTES hold, but those of a panel where they go by way of the packer's room. */
static void hold_rows(struct qr_packer *a, struct piece *p)
{
    const int64_t least = rows_together(p);
    p->read = p->t->quantized ? qr_quantized_rows(p->t) : p->t;
    if (!p->read) {
        hold_whole(a, p);
        return;
    }
    p->row_bytes = (size_t)p->read->n_bytes / (size_t)p->read->shape[0];
    if (!reads_rows(a, p) || least == 0 || (size_t)least * p->row_bytes > READ_MOST)
        return;
    const int64_t most = (int64_t)(READ_BYTES / p->row_bytes) / least * least;
    p->item_rows = p->read_at_once && most > least ? most : least;
    hold_items(a, p, (size_t)p->item_rows * p->row_bytes);
    p->look_ns = look_ns(a, p);
    p->read_rows = p->item_rows;
    p->item_rows *= look_times(a, p);
}

/* On the processor. What shares a panel with what waits goes after it. Large matrices have a launch of their own where kernels share it out in their own
 * way, and where processors are far from others' memory: each then packs what it will read. */
static void add_matrix(struct qr_packer *p, struct piece *piece)
{
    piece->panel_bytes = p->be->k->linear_packed_bytes(piece->dst.packed_dtype, PANEL_ROWS, piece->cut.cols.n);
    piece->packed_bytes = p->be->k->linear_packed_bytes(piece->dst.packed_dtype, piece->dst.t.shape[0], piece->cut.cols.n);
    const size_t n_bytes = piece->panel_bytes * (size_t)((piece->cut.rows.n + PANEL_ROWS - 1) / PANEL_ROWS);
    const size_t number = must_decode(piece) ? sizeof(float) : qr_dtype_bytes(piece->t->type->dtype);
    const size_t room = PANEL_ROWS * (size_t)decoded_width(piece) * number;
    piece->item_rows = item_rows(piece, piece->panel_bytes);
    hold_rows(p, piece);
    const bool own = n_bytes >= OWN_BYTES && (!piece->held || qr_backend_n_nodes(p->be) > 1);
    if (own || piece->first % PANEL_ROWS != 0)
        qr_packer_run(p);
    if (!piece->read_at_once && p->room_bytes < room) {
        qr_free(p->room);
        p->room_bytes = qr_align_up(room, 64);
        p->room = qr_alloc((size_t)p->be->n_threads, p->room_bytes);
    }
    const int64_t end = piece->first + piece->cut.rows.n;
    const int64_t of_rows = (end - 1) / piece->item_rows - piece->first / piece->item_rows + 1;
    add(p, piece, piece->stretch ? 1 + (piece->cut.cols.n + piece->stretch - 1) / piece->stretch : of_rows);
    if (piece->stretch && qr_quantized_inputs(piece->t))
        sort_later(p, piece);
    if (own)
        qr_packer_run(p);
}

void qr_packer_matrix(struct qr_packer *p, const struct qr_weight *dst, int64_t first, const struct qr_stored_tensor *t, const struct qr_cut *cut)
{
    QR_ASSERT(p != NULL && dst != NULL && t != NULL);
    QR_ASSERT(cut->cols.n == dst->t.shape[1] && cut->rows.first + cut->rows.n <= t->shape[cut->turned]);
    QR_ASSERT(!cut->turned || qr_stored_is_plain(t));
    struct piece piece = {.dst = *dst, .t = t, .cut = *cut, .first = first};
    if (cut->rows.n == 0)
        return;
    if (p->be->mem->host) {
        piece.read_at_once = cut->coded || (!must_decode(&piece) && cut->cols.n == t->shape[1] &&
                                       (uintptr_t)qr_tensor_files_data(p->files, t) % qr_dtype_bytes(t->type->dtype) == 0);
        add_matrix(p, &piece);
        return;
    }
    p->n_mapped += mapped_bytes(p, &piece);
    if (cut->coded) {
        pack_coded(p, p->files, &piece, p->be->queue, 0, cut->rows.n);
    } else if (must_decode(&piece)) {
        upload_decoded(p, &piece);
    } else {
        upload_rows(p, &piece);
    }
}

void qr_packer_vector(struct qr_packer *p, float *dst, const struct qr_stored_tensor *t, const struct qr_span *part, const struct qr_vector_change *change)
{
    QR_ASSERT(p != NULL && dst != NULL);
    QR_ASSERT(t != NULL && part != NULL && change != NULL);
    struct piece piece = {.vector = dst, .change = *change, .t = t, .read = t, .cut = {.rows = *part}, .row_bytes = (size_t)t->n_bytes / (size_t)t->shape[0]};
    const size_t n_bytes = (size_t)(part->n * columns_of(t)) * sizeof *dst;
    if (p->be->mem->host) {
        const size_t n_stored = (size_t)part->n * piece.row_bytes;
        if (reads_rows(p, &piece) && n_stored <= READ_BYTES)
            hold_items(p, &piece, n_stored);
        add(p, &piece, 1);
        return;
    }
    float *v = qr_alloc(n_bytes / sizeof *v, sizeof *v); /* where the host cannot write: by way of a copy */
    p->n_mapped += mapped_bytes(p, &piece);
    decode_vector(p->files, &piece, v);
    p->be->mem->put(p->be->queue, dst, v, n_bytes);
    qr_free(v);
}
