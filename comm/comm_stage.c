/* comm_stage.c - arrays that other ranks cannot reach, taken piece by piece through windows that they can.
 *
 * A piece has a stretch of every rank's part. In phase t, between two meetings, a rank brings what others need of piece t into its window; adds its stretch
 * of piece t - 1, from its own array and the others' windows, into its array and, when all want the sum, its window; and takes the others' stretches of
 * piece t - 2 from theirs. Copies have no second step: what was brought is taken in the next phase. A window has two halves, of even and odd pieces, and a
 * stretch of rank q lies at a place of its own in them, so that nothing is written that another rank still reads. */
#include "base/assert.h"
#include "base/mem.h"
#include "comm/comm_board.h"
#include "comm/comm_piece.h"
#include "comm/comm_tree.h"

struct stage {
    struct qr_board_seat *s;
    const struct qr_comm_call *call;
    const int64_t *part;  /* [n_parts + 1] */
    int32_t n_parts;
    bool sums;
    size_t width, place;  /* bytes of an element, and from one stretch to the next in a window's half */
    int64_t most;         /* elements of a stretch */
    char *window[QR_COMM_RANKS_MAX];
};

/* Stretch q of piece k in this rank's array. */
static char *at(const struct stage *g, int32_t q, int64_t k, size_t *n_bytes)
{
    const int64_t left = g->part[q + 1] - g->part[q] - k * g->most;
    *n_bytes = (size_t)(left < 0 ? 0 : left < g->most ? left : g->most) * g->width;
    return *n_bytes == 0 ? NULL : (char *)g->call->data + (size_t)(g->part[q] + k * g->most) * g->width;
}

/* Where it lies in a rank's window: with sums every rank has all, else only its own. */
static char *in_window(const struct stage *g, int32_t rank, int32_t q, int64_t k)
{
    return g->window[rank] + (size_t)(k & 1) * (g->s->window_bytes / 2) + (g->sums ? (size_t)q * g->place : 0);
}

static void bring(const struct stage *g, int64_t k)
{
    const int32_t me = g->s->rank;
    size_t n_bytes;
    for (int32_t q = 0; q < g->n_parts; q++) {
        const bool others_need = g->sums ? q != me : g->call->kind == QR_COMM_BROADCAST ? me == g->call->root : q == me;
        const char *own = at(g, q, k, &n_bytes);
        if (own && others_need)
            qr_copy(in_window(g, me, q, k), own, n_bytes);
    }
}

static void add(const struct stage *g, int64_t k)
{
    const int32_t me = g->s->rank, size = g->s->board->size;
    const void *in[QR_COMM_RANKS_MAX];
    size_t n_bytes;
    char *own = at(g, me, k, &n_bytes);
    void *out[2] = {own, in_window(g, me, me, k)};
    if (!own)
        return;
    for (int32_t r = 0; r < size; r++)
        in[r] = r == me ? own : in_window(g, r, me, k);
    qr_comm_tree_sum(out, g->call->kind == QR_COMM_ALL_REDUCE ? 2 : 1, in, size, g->call->dtype, (int64_t)(n_bytes / g->width), g->s->scratch);
}

static void take(const struct stage *g, int64_t k)
{
    const int32_t me = g->s->rank;
    const bool broadcast = g->call->kind == QR_COMM_BROADCAST;
    size_t n_bytes;
    for (int32_t q = 0; q < g->n_parts; q++) {
        const int32_t from = broadcast ? g->call->root : q;
        char *own = at(g, q, k, &n_bytes);
        if (own && from != me)
            qr_copy(own, in_window(g, from, q, k), n_bytes);
    }
}

/* All phases. The next call begins with a meeting, so that none is needed behind the last phase. */
static int all_phases(const struct stage *g, struct qr_err *err)
{
    const bool takes = g->call->kind != QR_COMM_REDUCE_SCATTER;
    const int64_t lag = (g->sums ? 1 : 0) + (takes ? 1 : 0);
    int64_t n_pieces = 0;
    for (int32_t q = 0; q < g->n_parts; q++) {
        const int64_t n = (g->part[q + 1] - g->part[q] + g->most - 1) / g->most;
        n_pieces = n > n_pieces ? n : n_pieces;
    }
    int rc = 0;
    for (int64_t t = 0; t < n_pieces + lag && rc == 0; t++) {
        bring(g, t);
        if (g->sums && t >= 1)
            add(g, t - 1);
        if (takes && t >= lag)
            take(g, t - lag);
        if (t < n_pieces + lag - 1)
            rc = qr_board_meet(g->s, err);
    }
    return rc;
}

int qr_board_staged(struct qr_board_seat *s, const struct qr_comm_call *call, struct qr_err *err)
{
    QR_ASSERT(s != NULL && call != NULL);
    QR_ASSERT(s->window_bytes > 0);
    const int32_t size = s->board->size;
    int64_t shares[QR_COMM_RANKS_MAX + 1] = {0, call->n};
    struct stage g = {.s = s, .call = call, .part = call->part ? call->part : shares, .n_parts = call->kind == QR_COMM_BROADCAST ? 1 : size,
                      .sums = call->kind == QR_COMM_ALL_REDUCE || call->kind == QR_COMM_REDUCE_SCATTER, .width = qr_dtype_bytes(call->dtype)};
    for (int32_t r = 0; r <= size && call->kind == QR_COMM_ALL_REDUCE; r++)
        shares[r] = qr_comm_share(call->n, r, size);
    for (int32_t r = 0; r < size; r++)
        g.window[r] = s->reach(s->user, r, s->window(s->user, r));
    g.place = s->window_bytes / 2 / (size_t)(g.sums ? size : 1) / 64 * 64;
    g.most = (int64_t)(g.place / g.width);
    return all_phases(&g, err);
}
