/* adapters.c - names and lives of adapters while the engine runs. A load reads files on the calling thread into a slot
 * that no batch names; the engine thread only counts uses. A name that is unloaded is gone at once; its slot is free
 * when the last request has ended. One lock guards the table; it is never held while a file is read or a step runs. Any
 * thread may call, but for the functions marked as the engine's. */
#include "engine/adapters.h"

#include <string.h>

#include "base/account.h"
#include "base/assert.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/size.h"
#include "engine/internal.h"
#include "loader/pack/share.h"
#include "model/ranks.h"

_Static_assert(QR_ADAPTERS_MAX == QR_LORA_SLOTS_MAX, "as many as there may be slots");

int64_t qr_engine_lora_bytes(const struct qr_engine_config *c, const struct qr_model_config *own, int32_t n_ranks, enum qr_dtype weights)
{
    QR_ASSERT(c != NULL && own != NULL);
    QR_ASSERT(c->lora_slots >= 0 && n_ranks >= 1);
    if (c->lora_slots == 0)
        return 0;
    return c->lora_slots * qr_lora_slot_bytes(own, weights, c->lora_rank_max) +
           qr_lora_shared_bytes(own, c->lora_slots, c->lora_rank_max, c->step_tokens_max) +
           (n_ranks > 1 ? qr_lora_stage_bytes(own, weights, c->lora_rank_max) : 0);
}

int qr_adapters_check(const struct qr_engine_config *c, const struct qr_backend *be, struct qr_err *err)
{
    QR_ASSERT(c != NULL && be != NULL);
    QR_ASSERT(err != NULL);
    if (c->lora_slots == 0)
        return 0;
    if (c->lora_slots < 0 || c->lora_slots > QR_LORA_SLOTS_MAX || c->lora_rank_max < 1 || c->lora_rank_max > QR_LORA_RANK_MAX)
        return qr_err_set(err, QR_E_USAGE, "lora-slots %d of rank %d, expected up to %d of rank 1 to %d", c->lora_slots, c->lora_rank_max,
                          QR_LORA_SLOTS_MAX, QR_LORA_RANK_MAX);
    return qr_lora_supports(be, err);
}

int32_t qr_engine_sharing(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    QR_ASSERT(e->be != NULL && e->model != NULL);
    return e->config.sharing * (e->be->mem->host ? qr_engine_local_ranks(qr_model_comm(e->model)) : 1);
}

static int check_room(const struct qr_engine *e, size_t act_bytes, struct qr_err *err)
{
    const struct qr_engine_config *c = &e->config;
    const struct qr_share *share = qr_model_share(e->model);
    const int64_t need = qr_engine_lora_bytes(c, &share->own, share->size, qr_model_weight_dtype(e->model));
    const int64_t left = e->be->mem->available() / qr_engine_sharing(e);
    char t[2][QR_SIZE_TEXT];
    if (c->lora_slots == 0 || need <= left - (int64_t)act_bytes)
        return 0;
    return qr_err_set(err, QR_E_NO_ROOM, "does not fit: %d slots for adapters of rank %d need %s, and %s of memory are free beside the "
                      "weights; expected fewer --lora-slots or a smaller --lora-rank-max", c->lora_slots, c->lora_rank_max, qr_size_text(t[0], need),
                      qr_size_text(t[1], left));
}

int qr_adapters_open(struct qr_engine *e, size_t *act_bytes, struct qr_err *err)
{
    QR_ASSERT(e != NULL && act_bytes != NULL);
    QR_ASSERT(e->model != NULL && e->be != NULL);
    const struct qr_engine_config *c = &e->config;
    struct qr_adapters *a = &e->adapters;
    struct qr_comm *comm = qr_model_comm(e->model);
    struct qr_engine_agreed agreed = {.lora_slots = c->lora_slots, .lora_rank_max = c->lora_rank_max, .step_tokens = c->step_tokens_max};
    int rc = check_room(e, *act_bytes, err);
    rc = rc ? rc : qr_engine_agree(comm, &agreed, err);
    if (rc || c->lora_slots == 0)
        return rc;
    rc = qr_lora_new(&a->lora, e->model, e->be, c->lora_slots, c->lora_rank_max, c->step_tokens_max, err);
    rc = rc ? rc : comm ? qr_comm_barrier(comm, err) : 0; /* the others' slots are there as well */
    if (rc)
        return rc;
    a->n_slots = c->lora_slots;
    a->slot = qr_alloc((size_t)a->n_slots, sizeof *a->slot);
    const size_t adapted = qr_model_unfused_act_bytes(e->model, c->step_tokens_max, c->logit_rows_max);
    *act_bytes = adapted > *act_bytes ? adapted : *act_bytes;
    return 0;
}

void qr_adapters_close(struct qr_adapters *a)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->n_slots == 0 || a->slot != NULL);
    qr_lora_free(a->lora);
    qr_free(a->slot);
    a->lora = NULL;
    a->slot = NULL;
    a->n_slots = 0;
}

/* ---- under the lock ---- */

static struct qr_adapter *find_name(struct qr_adapters *a, const char *name)
{
    for (int32_t i = 0; i < a->n_slots; i++)
        if (a->slot[i].state == QR_ADAPTER_READY && strcmp(a->slot[i].name, name) == 0)
            return &a->slot[i];
    return NULL;
}

static void free_unused(struct qr_adapter *s)
{
    if (s->state == QR_ADAPTER_LEAVING && s->n_inside == 0 && !s->flying)
        s->state = QR_ADAPTER_FREE;
}

static void leave(struct qr_adapter *s)
{
    s->state = QR_ADAPTER_LEAVING;
    free_unused(s);
}

/* There is no slot, but will be one when the steps in flight have landed. */
static bool soon_free(const struct qr_adapters *a)
{
    bool soon = false;
    for (int32_t i = 0; i < a->n_slots; i++) {
        if (a->slot[i].state == QR_ADAPTER_FREE)
            return false;
        soon = soon || (a->slot[i].state == QR_ADAPTER_LEAVING && a->slot[i].n_inside == 0);
    }
    return soon && !a->over;
}

static int no_slot(const struct qr_adapters *a, struct qr_err *err)
{
    int32_t n_leaving = 0;
    for (int32_t i = 0; i < a->n_slots; i++)
        n_leaving += a->slot[i].state == QR_ADAPTER_LEAVING;
    if (n_leaving > 0)
        return qr_err_set(err, QR_E_BUSY, "all %d slots are in use, %d of them by adapters that were unloaded and whose last requests have not ended; try "
                          "again later", a->n_slots, n_leaving);
    return qr_err_set(err, QR_E_BUSY, "all %d slots are in use; unload an adapter, or start with more --lora-slots", a->n_slots);
}

/* A slot for an adapter of that name, in state LOADING; -1 and *err when there is none. */
static int32_t take_slot(struct qr_adapters *a, const struct qr_adapter_source *source, struct qr_err *err)
{
    int32_t at = -1;
    for (int32_t i = 0; i < a->n_slots; i++) {
        const struct qr_adapter *s = &a->slot[i];
        const bool same = (s->state == QR_ADAPTER_READY || s->state == QR_ADAPTER_LOADING) && strcmp(s->name, source->name) == 0;
        if (same && (s->state == QR_ADAPTER_LOADING || !source->replace)) {
            qr_err_at(err, QR_E_INVALID, "lora_name", "the adapter '%.100s' is %s; unload it first, or ask for load_inplace", source->name,
                      s->state == QR_ADAPTER_READY ? "loaded already" : "being loaded");
            return -1;
        }
        if (s->state == QR_ADAPTER_FREE && at < 0)
            at = i;
    }
    if (at < 0) {
        no_slot(a, err);
        return -1;
    }
    a->slot[at] = (struct qr_adapter){.state = QR_ADAPTER_LOADING};
    memcpy(a->slot[at].name, source->name, strlen(source->name) + 1);
    return at;
}

/* ---- loading ---- */

static int check_name(const char *name, struct qr_err *err)
{
    const size_t n = strlen(name);
    if (n == 0 || n >= QR_ADAPTER_NAME_MAX)
        return qr_err_at(err, QR_E_INVALID, "lora_name", "the adapter's name has %zu bytes, expected 1 to %d", n, QR_ADAPTER_NAME_MAX - 1);
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)name[i] < 0x20 || name[i] == 0x7f)
            return qr_err_at(err, QR_E_INVALID, "lora_name", "the adapter's name has a control character at byte %zu", i);
    return 0;
}

static int over(const struct qr_engine *e, struct qr_err *err)
{
    return qr_err_set(err, QR_E_CLOSED, "%s", atomic_load(&e->lost) ? QR_ENGINE_LOST_TEXT : "the server is shutting down");
}

/* Packs each other rank's slot and has the engine thread send it. One load at a time does so. */
static int send_to_others(struct qr_engine *e, int32_t at, struct qr_lora_file *f, struct qr_err *err)
{
    struct qr_adapters *a = &e->adapters;
    pthread_mutex_lock(&a->lock);
    while (a->sending && !a->over)
        pthread_cond_wait(&a->sent, &a->lock);
    a->sending = true;
    for (int32_t rank = 1; rank < e->limits.n_ranks && !a->over; rank++) {
        pthread_mutex_unlock(&a->lock);
        const int64_t total = qr_lora_pack(a->lora, rank, f);
        pthread_mutex_lock(&a->lock);
        a->parcel = (struct qr_lora_piece){.rank = rank, .slot = at, .total = total};
        qr_mailbox_poke(&e->inbox);
        while (a->parcel.total > 0 && !a->over)
            pthread_cond_wait(&a->sent, &a->lock);
    }
    const int rc = a->over ? over(e, err) : 0;
    a->sending = false;
    pthread_mutex_unlock(&a->lock);
    pthread_cond_broadcast(&a->sent);
    return rc;
}

bool qr_adapters_send(struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    struct qr_adapters *a = &e->adapters;
    QR_ASSERT(a->n_slots == 0 || a->lora != NULL);
    if (a->n_slots == 0 || !e->exec.ranks)
        return false;
    pthread_mutex_lock(&a->lock);
    struct qr_lora_piece p = a->parcel;
    const bool none = p.total == 0 || a->over;
    pthread_mutex_unlock(&a->lock);
    if (none)
        return false;
    p.n = p.total - p.first < QR_LORA_PIECE_MAX ? p.total - p.first : QR_LORA_PIECE_MAX;
    qr_exec_send_piece(&e->exec, &p, qr_lora_packed(a->lora) + p.first);
    pthread_mutex_lock(&a->lock);
    a->parcel.first += p.n;
    if (a->parcel.first == p.total)
        a->parcel = (struct qr_lora_piece){0};
    pthread_mutex_unlock(&a->lock);
    pthread_cond_broadcast(&a->sent);
    return true;
}

void qr_adapters_end(struct qr_adapters *a)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->n_slots >= 0);
    pthread_mutex_lock(&a->lock);
    a->over = true;
    pthread_mutex_unlock(&a->lock);
    pthread_cond_broadcast(&a->sent);
}

/* Reads the files into the slot, which is this thread's meanwhile, on all ranks. */
static int read_into(struct qr_engine *e, int32_t at, const struct qr_adapter_source *source, struct qr_adapter *facts, struct qr_err *err)
{
    struct qr_adapters *a = &e->adapters;
    struct qr_lora_file *f;
    int rc = qr_lora_file_open(&f, source->dir, source->root, qr_lora_file_max(a->lora), err);
    if (rc)
        return rc;
    rc = qr_lora_fill(a->lora, at, f, err);
    if (rc == 0 && e->limits.n_ranks > 1)
        rc = send_to_others(e, at, f, err);
    facts->rank = qr_lora_file_rank(f);
    facts->hash = qr_lora_file_hash(f);
    qr_lora_file_close(f);
    return rc;
}

/* Memory for its files was missing. */
static void abandon(void *adapters, size_t slot)
{
    struct qr_adapters *a = adapters;
    pthread_mutex_lock(&a->lock);
    a->slot[slot].state = QR_ADAPTER_FREE;
    pthread_mutex_unlock(&a->lock);
}

int qr_engine_load_adapter(struct qr_engine *e, const struct qr_adapter_source *source, struct qr_err *err)
{
    QR_ASSERT(e != NULL && source != NULL && err != NULL);
    QR_ASSERT(source->name != NULL && source->dir != NULL);
    struct qr_adapters *a = &e->adapters;
    if (a->n_slots == 0)
        return qr_err_set(err, QR_E_USAGE, "there is no room for adapters; start with --lora, --lora-dir or --lora-slots");
    int rc = check_name(source->name, err);
    if (rc)
        return rc;
    pthread_mutex_lock(&a->lock);
    while (soon_free(a))
        pthread_cond_wait(&a->sent, &a->lock);
    const int32_t at = take_slot(a, source, err);
    pthread_mutex_unlock(&a->lock);
    if (at < 0)
        return err->code;
    struct qr_adapter facts = {.loaded_s = qr_clock_wall_s()};
    qr_account_guard(abandon, a, (size_t)at);
    rc = read_into(e, at, source, &facts, err);
    qr_account_unguard(a);
    pthread_mutex_lock(&a->lock);
    struct qr_adapter *s = &a->slot[at], *old = find_name(a, source->name);
    if (rc == 0 && old)
        leave(old);
    s->state = rc == 0 ? QR_ADAPTER_READY : QR_ADAPTER_FREE;
    s->id = ++a->last_id;
    s->rank = facts.rank;
    s->hash = facts.hash;
    s->loaded_s = facts.loaded_s;
    pthread_mutex_unlock(&a->lock);
    return rc;
}

int qr_engine_unload_adapter(struct qr_engine *e, const char *name, struct qr_err *err)
{
    QR_ASSERT(e != NULL && name != NULL);
    QR_ASSERT(err != NULL);
    struct qr_adapters *a = &e->adapters;
    pthread_mutex_lock(&a->lock);
    struct qr_adapter *s = find_name(a, name);
    if (s)
        leave(s);
    pthread_mutex_unlock(&a->lock);
    return s ? 0 : qr_err_at(err, QR_E_NOT_FOUND, "lora_name", "there is no adapter '%.100s'", name);
}

/* The lock is no change that a reader could see. */
static struct qr_adapters *lockable(const struct qr_engine *e)
{
    QR_ASSERT(e != NULL);
    struct qr_adapters *a = &((struct qr_engine *)(uintptr_t)e)->adapters;
    QR_ASSERT(a->n_slots >= 0);
    return a;
}

uint64_t qr_engine_find_adapter(const struct qr_engine *e, const char *name)
{
    QR_ASSERT(name != NULL);
    struct qr_adapters *a = lockable(e);
    QR_ASSERT(a->n_slots == 0 || a->slot != NULL);
    pthread_mutex_lock(&a->lock);
    const struct qr_adapter *s = find_name(a, name);
    const uint64_t id = s ? s->id : 0;
    pthread_mutex_unlock(&a->lock);
    return id;
}

static void describe(struct qr_adapter_info *out, const struct qr_adapter *s)
{
    *out = (struct qr_adapter_info){.id = s->id, .rank = s->rank, .n_inside = (uint64_t)s->n_inside,
                                    .leaving = s->state == QR_ADAPTER_LEAVING, .loaded_s = s->loaded_s,
                                    .n_requests = s->n_requests, .prompt_tokens = s->prompt_tokens,
                                    .output_tokens = s->output_tokens};
    memcpy(out->name, s->name, sizeof out->name);
}

int32_t qr_engine_adapters(const struct qr_engine *e, struct qr_adapter_info *out, int32_t n_max)
{
    struct qr_adapters *a = lockable(e);
    QR_ASSERT(n_max >= 0);
    QR_ASSERT(out != NULL || n_max == 0);
    int32_t n = 0;
    pthread_mutex_lock(&a->lock);
    for (int32_t i = 0; i < a->n_slots && n < n_max; i++) {
        if (a->slot[i].state != QR_ADAPTER_READY && (a->slot[i].state != QR_ADAPTER_LEAVING || a->slot[i].n_inside == 0))
            continue;
        int32_t at = n++;
        for (; at > 0 && out[at - 1].id > a->slot[i].id; at--)
            out[at] = out[at - 1];
        describe(&out[at], &a->slot[i]);
    }
    pthread_mutex_unlock(&a->lock);
    return n;
}

/* ---- requests ---- */

uint64_t qr_adapters_find_hash(struct qr_adapters *a, struct qr_hash128 hash)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(hash.lo | hash.hi);
    uint64_t id = 0;
    pthread_mutex_lock(&a->lock);
    for (int32_t i = 0; i < a->n_slots; i++)
        if (a->slot[i].state == QR_ADAPTER_READY && a->slot[i].hash.lo == hash.lo && a->slot[i].hash.hi == hash.hi)
            id = a->slot[i].id;
    pthread_mutex_unlock(&a->lock);
    return id;
}

int qr_adapters_take(struct qr_adapters *a, struct qr_request *r, struct qr_err *err)
{
    QR_ASSERT(a != NULL && r != NULL);
    QR_ASSERT(err != NULL);
    r->adapter_slot = -1;
    if (r->adapter == 0)
        return 0;
    pthread_mutex_lock(&a->lock);
    for (int32_t i = 0; i < a->n_slots && r->adapter_slot < 0; i++) {
        struct qr_adapter *s = &a->slot[i];
        if (s->state != QR_ADAPTER_READY || s->id != r->adapter)
            continue;
        s->n_inside++;
        s->n_requests++;
        r->adapter_slot = i;
        r->adapter_hash = s->hash;
    }
    pthread_mutex_unlock(&a->lock);
    return r->adapter_slot >= 0 ? 0 : qr_err_at(err, QR_E_NOT_FOUND, "model", "the adapter was unloaded");
}

void qr_adapters_give_back(struct qr_adapters *a, const struct qr_request *r, uint64_t prompt_tokens, uint64_t output_tokens, bool flying)
{
    QR_ASSERT(a != NULL && r != NULL);
    QR_ASSERT(r->adapter_slot < a->n_slots);
    if (r->adapter_slot < 0)
        return;
    pthread_mutex_lock(&a->lock);
    struct qr_adapter *s = &a->slot[r->adapter_slot];
    QR_ASSERT(s->n_inside > 0 && s->id == r->adapter);
    s->prompt_tokens += prompt_tokens;
    s->output_tokens += output_tokens;
    s->n_inside--;
    if (flying)
        s->flying = a->any_flying = true;
    free_unused(s);
    pthread_mutex_unlock(&a->lock);
}

void qr_adapters_landed(struct qr_adapters *a)
{
    QR_ASSERT(a != NULL);
    QR_ASSERT(a->n_slots > 0 || !a->any_flying);
    if (!a->any_flying)
        return;
    pthread_mutex_lock(&a->lock);
    a->any_flying = false;
    for (int32_t i = 0; i < a->n_slots; i++) {
        a->slot[i].flying = false;
        free_unused(&a->slot[i]);
    }
    pthread_mutex_unlock(&a->lock);
    pthread_cond_broadcast(&a->sent);
}
