/* comm_piece.h - how arrays are shared out to ranks and taken in pieces. Stays inside comm/. */
#ifndef QR_COMM_COMM_PIECE_H
#define QR_COMM_COMM_PIECE_H

#include <stdbool.h>
#include <stdint.h>

#include "comm/comm.h"

/* Where rank r's stretch begins when n elements are shared out; that of the rank behind it is where it ends. Whole cache lines and vectors. */
static inline int64_t qr_comm_share(int64_t n, int32_t r, int32_t n_ranks)
{
    const int64_t each = ((n + n_ranks - 1) / n_ranks + 1023) / 1024 * 1024;
    return r * each < n ? r * each : n;
}

/* A piece of an array in parts: of part i the elements [from[i], from[i] + n), which lie one part behind the other as [to[i], to[i + 1]) where they are put. */
struct qr_comm_piece {
    int32_t n_stretches;
    int64_t from[QR_COMM_RANKS_MAX], to[QR_COMM_RANKS_MAX + 1];
};

/* Piece number k, of at most `most` elements of each part; false behind the last piece, when all of it is empty. */
static inline bool qr_comm_cut(struct qr_comm_piece *p, const int64_t *part, int32_t n_parts, int64_t most, int64_t k)
{
    p->n_stretches = n_parts;
    p->to[0] = 0;
    for (int32_t i = 0; i < n_parts; i++) {
        const int64_t left = part[i + 1] - part[i] - k * most;
        p->from[i] = part[i] + k * most;
        p->to[i + 1] = p->to[i] + (left < 0 ? 0 : left < most ? left : most);
    }
    return p->to[n_parts] > 0;
}

#endif
