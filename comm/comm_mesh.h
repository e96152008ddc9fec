/* comm_mesh.h - calls carried out by messages between every two ranks, whatever carries these: MPI, TCP. Stays inside comm/.
 *
 * All tell all what they start. A part is summed by its owner: the others send theirs, it adds them along the tree; with
 * all_reduce what is added goes out while the next pieces come in. A rank that gives up writes a letter to all others,
 * which look for one wherever they wait.
 *
 * A transport's impl begins with a struct qr_mesh. One thread at a time calls, but for qr_mesh_tell: any thread. */
#ifndef QR_COMM_COMM_MESH_H
#define QR_COMM_COMM_MESH_H

#include <stdatomic.h>

#include "comm/comm_ops.h"

#define QR_MESH_BATCHES 4
#define QR_MESH_LETTER_BYTES sizeof(((struct qr_err *)NULL)->msg)
#define QR_MESH_PIECES_BYTES ((size_t)4 << 20) /* of all ranks together; a message is no longer */

enum qr_mesh_tag { QR_MESH_WHAT = 1, QR_MESH_SCATTER, QR_MESH_GATHER, QR_MESH_WHY };

/* What carries messages. Between two ranks they are sent in the order in which they are received. */
struct qr_mesh_ops {
    /* Begin to send and to receive; done when `finish` of the batch has returned 0. */
    int (*put)(struct qr_comm *c, int32_t batch, const void *bytes, size_t n_bytes, int32_t to, enum qr_mesh_tag tag, struct qr_err *err);
    int (*get)(struct qr_comm *c, int32_t batch, void *bytes, size_t n_bytes, int32_t from, enum qr_mesh_tag tag, struct qr_err *err);
    /* Waits; ends with an error as soon as a rank has given up (qr_mesh_given_up). */
    int (*finish)(struct qr_comm *c, int32_t batch, struct qr_err *err);
    /* Of all batches what is not done is not read or written any more. */
    void (*withdraw)(struct qr_comm *c);
    void (*read_letters)(struct qr_comm *c); /* that are here: qr_mesh_note for each */
    void (*write_letters)(struct qr_comm *c, const char letter[QR_MESH_LETTER_BYTES], int64_t until_us);
    void (*nap)(int32_t n_tries);            /* between looks */
};

struct qr_mesh {
    const struct qr_mesh_ops *ops;
    struct qr_comm_what what, others[QR_COMM_RANKS_MAX];
    char *incoming[2];          /* owned: [n_ranks][piece_bytes] */
    size_t piece_bytes;
    void *scratch;              /* owned: for sums */
    char why[QR_MESH_LETTER_BYTES]; /* of the first letter that was read or written */
    int32_t n_read, n_gone;     /* letters; ranks that went and wrote none */
    _Atomic uint32_t giving_up; /* 1: own_text is being written. 2: it is there */
    char own_text[QR_MESH_LETTER_BYTES];
    bool well, written;
};

void qr_mesh_init(struct qr_mesh *m, const struct qr_mesh_ops *ops, int32_t n_ranks);
void qr_mesh_release(struct qr_mesh *m);

/* A letter that was read. */
void qr_mesh_note(struct qr_mesh *m, const char *why);

/* Whether this rank or another gave up; then *err says why. */
int qr_mesh_given_up(struct qr_comm *c, struct qr_err *err);

/* ops->run and ops->abort. */
int qr_mesh_run(struct qr_comm *c, const struct qr_comm_call *call, struct qr_err *err);
void qr_mesh_tell(struct qr_comm *c, const char *why, bool own);

/* Leaves with all ranks: m->well says afterwards whether all went in good order. Otherwise the others have heard why, within a second. */
void qr_mesh_leave(struct qr_comm *c);

#endif
