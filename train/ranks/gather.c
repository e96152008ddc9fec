/* gather.c - weights that ranks hold in parts, whole where a layer needs them. The tape says when a layer is entered
 * and left; the next layer is in flight meanwhile, and what has been used is dropped. Rounded copies travel, not packed
 * matrices; packing happens on arrival. Results do not depend on how weights are cut. The trainer's thread; transfers
 * are the comm's. */
#include "train/ranks/gather.h"


#include "base/assert.h"
#include "base/mem.h"

/* ---- what is kept ---- */

/* What the model computes with. */
static void *computed(const struct qr_params *p, enum qr_dtype *dtype)
{
    *dtype = p->half ? QR_BF16 : QR_F32;
    return p->half ? (void *)p->half : p->value;
}

static void hold_opened(void *user, struct qr_params *p)
{
    const struct qr_gather *g = user;
    if (p->half && g->shard >= QR_SHARD_OPTIMIZER)
        qr_shares_cut(g->shares, p->value, sizeof(float));
    if (g->shard >= QR_SHARD_GRADIENTS)
        qr_shares_cut(g->shares, p->grad, sizeof(float));
    if (g->shard == QR_SHARD_FULL) {
        enum qr_dtype dtype;
        void *array = computed(p, &dtype);
        qr_shares_cut(g->shares, array, qr_dtype_bytes(dtype));
    }
}

static void hold_filled(void *user, struct qr_params *p, const struct qr_param *t)
{
    const struct qr_gather *g = user;
    enum qr_dtype dtype;
    void *array = computed(p, &dtype);
    if (p->half && t->n_dims == 2)
        qr_shares_drop_foreign(g->shares, p->value, sizeof(float), t->first, t->first + t->n);
    if (g->shard == QR_SHARD_FULL && t->first >= g->shares->first[QR_UNIT_LAYER])
        qr_shares_drop_foreign(g->shares, array, qr_dtype_bytes(dtype), t->first, t->first + t->n);
}

struct qr_params_hold qr_gather_hold(struct qr_gather *g)
{
    QR_ASSERT(g != NULL && g->shares != NULL);
    QR_ASSERT(g->shard >= QR_SHARD_NONE && g->shard <= QR_SHARD_FULL);
    if (g->shard == QR_SHARD_NONE)
        return (struct qr_params_hold){0};
    return (struct qr_params_hold){.opened = hold_opened, .filled = hold_filled, .user = g, .layers_apart = g->shard == QR_SHARD_FULL};
}

/* ---- a unit ---- */

static void start(struct qr_gather *g, int32_t u)
{
    const struct qr_shares *s = g->shares;
    enum qr_dtype dtype;
    char *array = computed(g->p, &dtype);
    int64_t part[QR_COMM_RANKS_MAX + 1];
    for (int32_t r = 0; r <= s->size; r++)
        part[r] = qr_shares_begin(s, u, r) - s->first[u];
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_GATHER, .dtype = dtype, .data = array + (size_t)s->first[u] * qr_dtype_bytes(dtype),
                                      .n = s->first[u + 1] - s->first[u], .part = part};
    g->ticket[u] = qr_link_start(g->link, &call);
}

/* ---- layers ---- */

static void drop(struct qr_gather *g, int32_t layer)
{
    enum qr_dtype dtype;
    size_t n_bytes;
    void *array = computed(g->p, &dtype), *packed = qr_params_packed(g->p, layer, &n_bytes);
    const int32_t u = QR_UNIT_LAYER + layer;
    qr_shares_drop_foreign(g->shares, array, qr_dtype_bytes(dtype), g->shares->first[u], g->shares->first[u + 1]);
    qr_mem_drop(packed, n_bytes);
    g->held[layer] = g->packed[layer] = false;
}

static void arrive(struct qr_gather *g)
{
    if (g->coming < 0)
        return;
    qr_link_wait(g->link, g->ticket[QR_UNIT_LAYER + g->coming]);
    g->held[g->coming] = true;
    g->coming = -1;
}

static void send_for(struct qr_gather *g, int32_t layer)
{
    if (layer < 0 || layer >= g->shares->n_layers || g->held[layer] || g->coming == layer)
        return;
    arrive(g);
    start(g, QR_UNIT_LAYER + layer);
    g->coming = layer;
}

void qr_gather_enter(struct qr_gather *g, int32_t layer, bool back)
{
    QR_ASSERT(g != NULL && g->p != NULL);
    QR_ASSERT(layer >= 0 && layer < g->shares->n_layers);
    if (g->shard != QR_SHARD_FULL)
        return;
    for (int32_t l = 0; layer == 0 && !back && l < g->shares->n_layers; l++)
        if (l > 0 && g->held[l]) /* of a pass that did not go back */
            drop(g, l);
    send_for(g, layer);
    arrive(g);
    if (!g->packed[layer] && (!back || g->packs_again)) {
        qr_params_pack_layer(g->p, layer);
        g->packed[layer] = true;
    }
    send_for(g, back ? layer - 1 : layer + 1);
}

/* The last layer stays for the way back, the first one for the next pass. */
void qr_gather_leave(struct qr_gather *g, int32_t layer, bool back)
{
    QR_ASSERT(g != NULL && g->p != NULL);
    QR_ASSERT(layer >= 0 && layer < g->shares->n_layers);
    if (g->shard == QR_SHARD_FULL && layer != (back ? 0 : g->shares->n_layers - 1))
        drop(g, layer);
}

/* ---- behind the optimizer ---- */

void qr_gather_moved(struct qr_gather *g, int32_t unit)
{
    QR_ASSERT(g != NULL && g->p != NULL);
    QR_ASSERT(unit >= 0 && unit < g->shares->n_units && g->shard != QR_SHARD_NONE);
    g->ticket[unit] = -1;
    if (g->shard != QR_SHARD_FULL || unit < QR_UNIT_LAYER)
        start(g, unit);
}

/* Calls fn for what every rank has of vectors, rank by rank; `at` counts elements. */
static void each_vector(struct qr_gather *g, bool out)
{
    float *value = g->p->value;
    int64_t at = 0;
    for (int32_t r = 0; r < g->shares->size; r++) {
        for (int32_t k = 0; k < g->p->n_params; k++) {
            int64_t a = g->p->param[k].first, b = a + g->p->param[k].n;
            if (g->p->param[k].n_dims != 1 || !qr_shares_clip(g->shares, r, &a, &b))
                continue;
            if (out)
                qr_copy(value + a, g->vectors + at, (size_t)(b - a) * sizeof *value);
            else if (r == g->shares->rank)
                qr_copy(g->vectors + at, value + a, (size_t)(b - a) * sizeof *value);
            at += b - a;
        }
        g->vectors_part[r + 1] = at;
    }
}

void qr_gather_all_moved(struct qr_gather *g)
{
    QR_ASSERT(g != NULL && g->p != NULL);
    QR_ASSERT(g->shard != QR_SHARD_NONE);
    for (int32_t u = 0; u < g->shares->n_units; u++)
        qr_link_wait(g->link, g->ticket[u]);
    if (g->p->half) {
        each_vector(g, false);
        const struct qr_comm_call call = {.kind = QR_COMM_ALL_GATHER, .dtype = QR_F32, .data = g->vectors, .n = g->n_vectors, .part = g->vectors_part};
        qr_link_run(g->link, &call);
        each_vector(g, true);
    }
    arrive(g);
    for (int32_t l = 0; l < g->shares->n_layers; l++)
        if (g->held[l]) /* it has moved */
            drop(g, l);
    qr_params_pack(g->p);
}

void qr_gather_range(struct qr_link *link, const struct qr_shares *s, const void *array, enum qr_dtype dtype, int64_t a, int64_t b, void *out)
{
    QR_ASSERT(link != NULL && s != NULL && array != NULL && out != NULL);
    QR_ASSERT(a < b && s->size <= QR_COMM_RANKS_MAX);
    const size_t size = qr_dtype_bytes(dtype);
    int64_t part[QR_COMM_RANKS_MAX + 1] = {0}, x = a, y = b;
    for (int32_t r = 0; r < s->size; r++) {
        int64_t from = a, to = b;
        part[r + 1] = part[r] + (qr_shares_clip(s, r, &from, &to) ? to - from : 0);
    }
    if (qr_shares_clip(s, s->rank, &x, &y))
        qr_copy((char *)out + (size_t)(x - a) * size, (const char *)array + (size_t)x * size, (size_t)(y - x) * size);
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_GATHER, .dtype = dtype, .data = out, .n = b - a, .part = part};
    qr_link_run(link, &call);
}

/* ---- opening ---- */

void qr_gather_open(struct qr_gather *g, struct qr_params *p)
{
    QR_ASSERT(g != NULL && p != NULL && g->link != NULL && g->shares != NULL);
    QR_ASSERT(p->real == QR_F32 && !p->planned);
    g->p = p;
    g->coming = -1;
    g->ticket = qr_alloc((size_t)g->shares->n_units, sizeof *g->ticket);
    g->held = qr_alloc((size_t)g->shares->n_layers, sizeof *g->held);
    g->packed = qr_alloc((size_t)g->shares->n_layers, sizeof *g->packed);
    for (int32_t k = 0; k < p->n_params; k++)
        g->n_vectors += p->param[k].n_dims == 1 ? p->param[k].n : 0;
    g->vectors = qr_alloc((size_t)g->n_vectors, sizeof *g->vectors);
    g->vectors_part = qr_alloc((size_t)g->shares->size + 1, sizeof *g->vectors_part);
}

void qr_gather_close(struct qr_gather *g)
{
    QR_ASSERT(g != NULL);
    QR_ASSERT(!g->p || g->ticket);
    if (g->p)
        arrive(g);
    qr_free(g->ticket);
    qr_free(g->held);
    qr_free(g->packed);
    qr_free(g->vectors);
    qr_free(g->vectors_part);
    *g = (struct qr_gather){0};
}
