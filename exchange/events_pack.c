/* Notes as vLLM's events (vllm/distributed/kv_events.py). Notes that chain are one event: blocks stored behind each other, blocks removed from one tier. A
 * field is a row, which becomes a map's pair or an array's next element. */
#include "exchange/events_pack.h"

#include <string.h>

#include "base/assert.h"
#include "exchange/msgpack.h"

#define EVENTS_MAX 1024 /* of a batch; vllm-router takes 4096 */
#define BLOCKS_MAX 4096 /* of an event, so that a batch stays below vllm-router's 16 MiB */
#define BATCH_BYTES_MAX (4 << 20)

struct run { /* slots [from, from + n) are one event */
    const struct qr_event_ring *ring;
    uint64_t from;
    int32_t n;
};

static const struct qr_event_slot *slot(const struct run *r, int32_t i)
{
    return qr_event_at(r->ring, r->from + (uint64_t)i);
}

static void put_name(struct qr_buf *b, const struct qr_kv_name *name)
{
    qr_mp_bin(b, name->byte, sizeof name->byte);
}

/* ---- fields ---- */

static void put_hashes(struct qr_buf *b, const struct run *r)
{
    qr_mp_array(b, (uint32_t)r->n);
    for (int32_t i = 0; i < r->n; i++)
        put_name(b, &slot(r, i)->name);
}

static void put_parent(struct qr_buf *b, const struct run *r)
{
    const struct qr_event_slot *s = slot(r, 0);
    if (s->first || s->n_ids == 0)
        qr_mp_nil(b);
    else
        put_name(b, &s->parent);
}

static void put_ids(struct qr_buf *b, const struct run *r)
{
    uint32_t n = 0;
    for (int32_t i = 0; i < r->n; i++)
        n += (uint32_t)slot(r, i)->n_ids;
    qr_mp_array(b, n);
    for (int32_t i = 0; i < r->n; i++)
        for (int32_t k = 0; k < slot(r, i)->n_ids; k++)
            qr_mp_uint(b, (uint32_t)slot(r, i)->ids[k]);
}

static void put_size(struct qr_buf *b, const struct run *r)
{
    qr_mp_uint(b, (uint32_t)r->ring->block_tokens);
}

static void put_no_number(struct qr_buf *b, const struct run *r)
{
    qr_mp_nil(b);
}

static void put_medium(struct qr_buf *b, const struct run *r)
{
    qr_mp_str(b, slot(r, 0)->host ? "CPU" : "GPU");
}

static void put_adapter(struct qr_buf *b, const struct run *r)
{
    qr_mp_str(b, slot(r, 0)->adapter[0] ? slot(r, 0)->adapter : NULL);
}

struct field {
    const char *name;
    void (*put)(struct qr_buf *b, const struct run *r);
};
static const struct field of_stored[] = {{"block_hashes", put_hashes}, {"parent_block_hash", put_parent}, {"token_ids", put_ids}, {"block_size", put_size},
                                         {"lora_id", put_no_number}, {"medium", put_medium}, {"lora_name", put_adapter}};
static const struct field of_removed[] = {{"block_hashes", put_hashes}, {"medium", put_medium}};
static const struct {
    const char *tag;
    const struct field *field;
    uint8_t n_fields;
} kinds[] = {[QR_KV_STORED] = {"BlockStored", of_stored, QR_COUNT(of_stored)}, [QR_KV_REMOVED] = {"BlockRemoved", of_removed, QR_COUNT(of_removed)},
             [QR_KV_CLEARED] = {"AllBlocksCleared", NULL, 0}};

static void put_event(struct qr_buf *b, const struct run *r)
{
    const enum qr_kv_note_kind kind = slot(r, 0)->kind;
    const uint8_t n = kinds[kind].n_fields;
    if (r->ring->maps) {
        qr_mp_map(b, (uint8_t)(1 + n));
        qr_mp_str(b, "type");
    } else
        qr_mp_array(b, 1u + n);
    qr_mp_str(b, kinds[kind].tag);
    for (int i = 0; i < n; i++) {
        if (r->ring->maps)
            qr_mp_str(b, kinds[kind].field[i].name);
        kinds[kind].field[i].put(b, r);
    }
}

/* ---- batches ---- */

static bool joins(const struct qr_event_slot *before, const struct qr_event_slot *s)
{
    if (before->ends || s->kind != before->kind || s->kind == QR_KV_CLEARED || s->host != before->host || s->n_ids != before->n_ids)
        return false;
    return s->kind == QR_KV_REMOVED || s->n_ids == 0 ||
           (!s->first && memcmp(&s->parent, &before->name, sizeof s->parent) == 0 && strcmp(s->adapter, before->adapter) == 0);
}

static bool is_plain(const struct qr_event_slot *s)
{
    return !s->host && !s->adapter[0];
}

int32_t qr_events_pack(struct qr_buf *out, int32_t *n_events, const struct qr_event_ring *r, uint64_t from, uint64_t to, double time_s)
{
    QR_ASSERT(out != NULL && n_events != NULL && r != NULL);
    QR_ASSERT(from < to && to - from <= r->n);
    struct run run = {.ring = r, .from = from};
    const bool plain = is_plain(qr_event_at(r, from));
    bool more = true;
    qr_mp_array(out, 3);
    qr_mp_f64(out, time_s);
    const size_t at = qr_mp_array_begin(out);
    for (*n_events = 0; more; run.from += (uint64_t)run.n) {
        const uint64_t left = to - run.from;
        for (run.n = 1; (uint64_t)run.n < left && run.n < BLOCKS_MAX && joins(slot(&run, run.n - 1), slot(&run, run.n));)
            run.n++;
        put_event(out, &run);
        ++*n_events;
        more = (uint64_t)run.n < left && !slot(&run, run.n - 1)->ends && is_plain(slot(&run, run.n)) == plain && *n_events < EVENTS_MAX &&
               out->len < BATCH_BYTES_MAX;
    }
    qr_mp_array_end(out, at, (uint32_t)*n_events);
    qr_mp_uint(out, 0); /* the rank of data parallelism: none is another's */
    return (int32_t)(run.from - from);
}
