/* kv_name.c - names of full blocks, the way from a name to its entry, and the ring of notes about entries (kv_name.h). The table is open-addressed with linear
 * probing and deletion by shifting back, as the pool's own. Two entries may have one name: where a block's parent was given up and computed again, the
 * child of the old one is still an entry. Their content is the same, so one stands for both, one of the first tier if there is one; notes are of that one.
 * The engine thread owns it; nothing is allocated after opening. */
#include "kvcache/kv_name.h"

#include <string.h>

#include "base/mem.h"
#include "base/sha256.h"
#include "kvcache/kv_internal.h"

_Static_assert(QR_KV_NAME_BYTES == QR_SHA256_BYTES, "a name is a digest");
_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "ids are hashed as they lie");

/* ---- names ---- */

void qr_kv_name_root(struct qr_kv_name *out, const struct qr_kv_name *domain, struct qr_hash128 salt, struct qr_hash128 adapter)
{
    QR_ASSERT(out != NULL);
    QR_ASSERT(domain != NULL);
    const uint64_t whose[4] = {salt.lo, salt.hi, adapter.lo, adapter.hi};
    qr_sha256(out->byte, domain->byte, sizeof domain->byte, whose, sizeof whose);
}

void qr_kv_name_chain(struct qr_kv_name *out, const struct qr_kv_name *parent, const int32_t *ids, int32_t n_ids)
{
    QR_ASSERT(out != NULL && parent != NULL);
    QR_ASSERT(ids != NULL && n_ids >= 1);
    qr_sha256(out->byte, parent->byte, sizeof parent->byte, ids, (size_t)n_ids * sizeof *ids);
}

void qr_kv_name_all(struct qr_kv_name *out, const struct qr_kv_name *root, const int32_t *ids, int32_t n_ids, int32_t block_tokens)
{
    QR_ASSERT(root != NULL && n_ids >= 0);
    QR_ASSERT(block_tokens >= 1);
    for (int32_t i = 0; i < n_ids / block_tokens; i++)
        qr_kv_name_chain(&out[i], i > 0 ? &out[i - 1] : root, ids + (size_t)i * (size_t)block_tokens, block_tokens);
}

/* ---- opening ---- */

static size_t note_bytes_of(int32_t block_tokens)
{
    return sizeof(struct qr_kv_note) + qr_align_up((size_t)block_tokens * sizeof(int32_t), 8);
}

size_t qr_kv_names_bytes(int32_t n_all, int32_t block_tokens, int32_t n_notes)
{
    QR_ASSERT(n_all >= 1 && block_tokens >= 1);
    QR_ASSERT(n_notes >= 16);
    return (size_t)n_all * (sizeof(struct qr_kv_name) + sizeof(int32_t)) + qr_kv_slots_for(n_all) * sizeof(int32_t) +
           (size_t)n_notes * note_bytes_of(block_tokens);
}

void qr_kv_names_open(struct qr_kv_pool *p, int32_t n_notes)
{
    QR_ASSERT(p != NULL && p->names == NULL && p->prefix_cache);
    QR_ASSERT(p->uid_last == 0 && p->twins.n == 0 && n_notes >= 16);
    struct qr_kv_names *m = qr_alloc(1, sizeof *m);
    const uint32_t n_slots = qr_kv_slots_for(qr_kv_n_all(p));
    m->of = qr_alloc((size_t)qr_kv_n_all(p), sizeof *m->of);
    m->about = qr_alloc((size_t)qr_kv_n_all(p), sizeof *m->about);
    m->slot = qr_alloc(n_slots, sizeof *m->slot);
    memset(m->slot, 0xff, n_slots * sizeof *m->slot);
    m->slot_mask = n_slots - 1;
    m->n_notes = n_notes;
    m->note_bytes = note_bytes_of(p->block_tokens);
    m->note = qr_alloc((size_t)n_notes, m->note_bytes);
    qr_mem_populate(m->note, (size_t)n_notes * m->note_bytes);
    p->names = m;
}

bool qr_kv_has_names(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    return p->names != NULL;
}

void qr_kv_names_close(struct qr_kv_names *m)
{
    if (m == NULL)
        return;
    qr_free(m->note);
    qr_free(m->slot);
    qr_free(m->about);
    qr_free(m->of);
    qr_free(m);
}

/* ---- the table ---- */

static uint32_t home_of(const struct qr_kv_names *m, const struct qr_kv_name *name)
{
    uint32_t tag;
    memcpy(&tag, name->byte, sizeof tag);
    return tag & m->slot_mask;
}

static bool same(const struct qr_kv_name *a, const struct qr_kv_name *b)
{
    return memcmp(a->byte, b->byte, sizeof a->byte) == 0;
}

/* The entry of this name, of the first tier if one is there; or -1. */
static int32_t find(const struct qr_kv_pool *p, const struct qr_kv_name *name)
{
    const struct qr_kv_names *m = p->names;
    int32_t found = -1;
    for (uint32_t i = home_of(m, name); m->slot[i] >= 0 && (found < 0 || found >= p->n_blocks); i = (i + 1) & m->slot_mask)
        if (same(&m->of[m->slot[i]], name))
            found = m->slot[i];
    return found;
}

/* Where block's entry is, or the empty slot that it would have. */
static uint32_t slot_of(const struct qr_kv_names *m, int32_t block)
{
    uint32_t i = home_of(m, &m->of[block]);
    while (m->slot[i] >= 0 && m->slot[i] != block)
        i = (i + 1) & m->slot_mask;
    return i;
}

int32_t qr_kv_name_find(const struct qr_kv_pool *p, const struct qr_kv_name *name)
{
    QR_ASSERT(p != NULL && p->names != NULL);
    QR_ASSERT(name != NULL);
    return find(p, name);
}

/* ---- notes ---- */

static struct qr_kv_note *note_at(const struct qr_kv_names *m, uint64_t at)
{
    return (struct qr_kv_note *)(void *)(m->note + (size_t)(at % (uint64_t)m->n_notes) * m->note_bytes);
}

static void note(struct qr_kv_pool *p, const struct qr_kv_note *what, const int32_t *ids)
{
    struct qr_kv_names *m = p->names;
    if (m->lost || m->written - m->read == (uint64_t)m->n_notes) {
        m->lost = true; /* what comes behind a gap would mislead until the reader knows of it */
        m->n_lost++;
        return;
    }
    struct qr_kv_note *to = note_at(m, m->written++);
    *to = *what;
    to->ids = NULL;
    if (ids) {
        memcpy(to + 1, ids, (size_t)p->block_tokens * sizeof *ids);
        to->ids = (const int32_t *)(to + 1);
    }
}

bool qr_kv_note_take(struct qr_kv_pool *p, struct qr_kv_note *out)
{
    QR_ASSERT(p != NULL && p->names != NULL);
    QR_ASSERT(out != NULL);
    struct qr_kv_names *m = p->names;
    if (m->read < m->written) {
        *out = *note_at(m, m->read++);
        return true;
    }
    if (!m->lost)
        return false;
    m->lost = false;
    *out = (struct qr_kv_note){.kind = QR_KV_CLEARED, .block = -1};
    return true;
}

int64_t qr_kv_notes_lost(const struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(p->names != NULL);
    return p->names->n_lost;
}

/* ---- what becomes of entries ---- */

/* The name of the entry before block b's; NULL: it is none any more, or b is a first block. */
static const struct qr_kv_name *parent_of(const struct qr_kv_pool *p, int32_t b)
{
    const struct qr_kv_block *x = qr_kv_at(p, b);
    const uint32_t tag = (uint32_t)x->parent.lo;
    for (uint32_t i = tag & p->slot_mask; x->parent_uid != 0 && p->slot[i].block >= 0; i = (i + 1) & p->slot_mask)
        if (p->slot[i].tag == tag && qr_kv_at(p, p->slot[i].block)->uid == x->parent_uid)
            return &p->names->of[p->slot[i].block];
    return NULL;
}

/* Block `was` stood for this name. What does now is noted, if it is not of the same tier. */
static void note_change(struct qr_kv_pool *p, const struct qr_kv_name *name, int32_t was)
{
    const int32_t is = find(p, name), block = is >= 0 ? is : was;
    if (is >= 0 && (is >= p->n_blocks) == (was >= p->n_blocks))
        return;
    struct qr_kv_note what = {.kind = is >= 0 ? QR_KV_MOVED : QR_KV_REMOVED, .block = block, .about = p->names->about[block], .host = block >= p->n_blocks,
                              .name = *name};
    const struct qr_kv_name *parent = is >= 0 && !what.host ? parent_of(p, is) : NULL;
    what.first = is >= 0 && qr_kv_at(p, is)->parent_uid == 0;
    if (parent)
        what.parent = *parent;
    QR_ASSERT(is < 0 || qr_kv_at(p, is)->indexed);
    note(p, &what, parent || (what.first && !what.host) ? (const int32_t *)(const void *)(qr_kv_at(p, is) + 1) : NULL);
}

void qr_kv_name_enter(struct qr_kv_pool *p, int32_t block, int32_t parent, const struct qr_kv_name *root, const int32_t *ids, int32_t about)
{
    QR_ASSERT(p != NULL && root != NULL && ids != NULL);
    QR_ASSERT(block >= 0 && block < p->n_blocks && parent >= -1 && parent < qr_kv_n_all(p));
    struct qr_kv_names *m = p->names;
    if (m == NULL || (qr_kv_at(p, block)->indexed && m->slot[slot_of(m, block)] == block))
        return; /* it has its name: it came from the second tier */
    const struct qr_kv_name before = parent >= 0 ? m->of[parent] : *root;
    qr_kv_name_chain(&m->of[block], &before, ids, p->block_tokens);
    m->about[block] = about;
    if (!qr_kv_at(p, block)->indexed)
        return;
    const int32_t was = find(p, &m->of[block]);
    m->slot[slot_of(m, block)] = block;
    if (was >= 0)
        note_change(p, &m->of[block], was);
    else
        note(p, &(struct qr_kv_note){.kind = QR_KV_STORED, .block = block, .about = about, .first = parent < 0, .name = m->of[block], .parent = before}, ids);
}

void qr_kv_name_drop(struct qr_kv_pool *p, int32_t block)
{
    QR_ASSERT(p != NULL);
    QR_ASSERT(block >= 0 && block < qr_kv_n_all(p));
    struct qr_kv_names *m = p->names;
    if (m == NULL)
        return;
    uint32_t hole = slot_of(m, block);
    if (m->slot[hole] != block)
        return;
    const int32_t was = find(p, &m->of[block]);
    for (uint32_t i = (hole + 1) & m->slot_mask; m->slot[i] >= 0; i = (i + 1) & m->slot_mask) {
        const uint32_t home = home_of(m, &m->of[m->slot[i]]);
        if (((i - home) & m->slot_mask) >= ((i - hole) & m->slot_mask)) {
            m->slot[hole] = m->slot[i];
            hole = i;
        }
    }
    m->slot[hole] = -1;
    note_change(p, &m->of[block], was);
}

void qr_kv_name_move(struct qr_kv_pool *p, int32_t from, int32_t to)
{
    QR_ASSERT(p != NULL && from != to);
    QR_ASSERT(from >= 0 && to >= 0 && from < qr_kv_n_all(p) && to < qr_kv_n_all(p));
    struct qr_kv_names *m = p->names;
    if (m == NULL || m->slot[slot_of(m, from)] != from)
        return;
    const int32_t was = find(p, &m->of[from]);
    m->slot[slot_of(m, from)] = to;
    m->of[to] = m->of[from];
    m->about[to] = m->about[from];
    note_change(p, &m->of[to], was);
}

void qr_kv_name_clear(struct qr_kv_pool *p)
{
    QR_ASSERT(p != NULL);
    struct qr_kv_names *m = p->names;
    if (m == NULL)
        return;
    QR_ASSERT(m->slot != NULL);
    memset(m->slot, 0xff, ((size_t)m->slot_mask + 1) * sizeof *m->slot);
    m->read = m->written; /* they are of no interest any more */
    m->lost = false;
    note(p, &(struct qr_kv_note){.kind = QR_KV_CLEARED, .block = -1}, NULL);
}

const char *qr_kv_names_check(const struct qr_kv_pool *p)
{
    const struct qr_kv_names *m = p->names;
    int32_t n_slots = 0, n_named = 0;
    if (m == NULL)
        return NULL;
    for (uint32_t i = 0; i <= m->slot_mask; i++)
        n_slots += m->slot[i] >= 0;
    for (int32_t b = 0; b < qr_kv_n_all(p); b++) {
        const bool named = m->slot[slot_of(m, b)] == b;
        n_named += named;
        if (named != qr_kv_at(p, b)->indexed)
            return named ? "a name leads to a block that is no entry" : "an entry has no name";
    }
    return n_slots == n_named ? NULL : "the table of names holds a block where its name does not lead";
}
