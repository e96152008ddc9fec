/* comm_stage.c - arrays that other ranks cannot reach, taken piece by piece through windows that they can: copied in, added or copied there, copied out. */
#include <string.h>

#include "base/assert.h"
#include "comm/comm_board.h"
#include "comm/comm_piece.h"

static bool in_parts(const struct qr_comm_call *call)
{
    return call->kind == QR_COMM_REDUCE_SCATTER || call->kind == QR_COMM_ALL_GATHER;
}

/* Piece number k; false behind the last. */
static bool cut_piece(struct qr_comm_piece *p, const struct qr_comm_call *call, int32_t size, int64_t window, int64_t k)
{
    const int64_t whole[2] = {0, call->n};
    const int32_t n = in_parts(call) ? size : 1;
    return qr_comm_cut(p, in_parts(call) ? call->part : whole, n, window / n, k);
}

/* Whether a rank brings stretch i to its window, and whether it takes it from there. */
static bool brings(const struct qr_comm_call *call, int32_t rank, int32_t i)
{
    return call->kind == QR_COMM_ALL_GATHER ? i == rank : call->kind == QR_COMM_BROADCAST ? rank == call->root : true;
}

static bool takes(const struct qr_comm_call *call, int32_t rank, int32_t i)
{
    return call->kind == QR_COMM_ALL_REDUCE || (call->kind == QR_COMM_REDUCE_SCATTER ? i == rank : !brings(call, rank, i));
}

static void copy(const struct qr_comm_call *call, const struct qr_comm_piece *p, int32_t rank, char *window, bool in)
{
    const size_t width = qr_dtype_bytes(call->dtype);
    for (int32_t i = 0; i < p->n_stretches; i++) {
        char *own = (char *)call->data + (size_t)p->from[i] * width, *there = window + (size_t)p->to[i] * width;
        const size_t n_bytes = (size_t)(p->to[i + 1] - p->to[i]) * width;
        if (in && n_bytes && brings(call, rank, i))
            memcpy(there, own, n_bytes);
        else if (!in && n_bytes && takes(call, rank, i))
            memcpy(own, there, n_bytes);
    }
}

int qr_board_staged(struct qr_board_seat *s, const struct qr_comm_call *call, struct qr_err *err)
{
    QR_ASSERT(s != NULL && call != NULL);
    QR_ASSERT(s->window_bytes > 0);
    const int32_t size = s->board->size;
    const int64_t window = (int64_t)(s->window_bytes / qr_dtype_bytes(call->dtype));
    char *data[QR_COMM_RANKS_MAX];
    for (int32_t r = 0; r < size; r++)
        data[r] = s->reach(s->user, r, s->window(s->user, r));
    struct qr_comm_piece p;
    int rc = 0;
    for (int64_t k = 0; rc == 0 && cut_piece(&p, call, size, window, k); k++) {
        struct qr_comm_call part = *call;
        part.n = p.to[p.n_stretches];
        part.part = p.to;
        copy(call, &p, s->rank, data[s->rank], true);
        rc = qr_board_meet(s, err);
        rc = rc ? rc : qr_board_share(s, &part, data, err);
        if (rc == 0)
            copy(call, &p, s->rank, data[s->rank], false);
    }
    return rc;
}
