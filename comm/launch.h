/* launch.h - how a program becomes several ranks: by forking, or because mpirun started it.
 *
 * Rank 0 of forked ranks stays the process that the terminal knows; the others are its children and cannot outlive it. All are of one process group, so that
 * Ctrl-C reaches every rank. Each gets its share of the processors as those it may run on.
 */
#ifndef QR_COMM_LAUNCH_H
#define QR_COMM_LAUNCH_H

#include "comm/comm.h"

struct qr_comm_launch_options {
    int32_t n_ranks;  /* 0: as many as mpirun started, else one */
    bool share_cpus;  /* false: the caller has chosen processors */
};

struct qr_comm_crew; /* the children of rank 0 */

/* Returns on every rank, with c open. Call it before the process has threads. *crew is NULL but on a rank 0 with children.
 * Errors: QR_E_USAGE (not 1 to 64 ranks; other than mpirun's), QR_E_NO_ROOM (no memory to share, no process), QR_E_UNSUPPORTED (no MPI library). */
int qr_comm_launch(struct qr_comm *c, struct qr_comm_crew **crew, const struct qr_comm_launch_options *o, struct qr_err *err);

/* The last thing that rank 0 does: waits for its children (when rank 0 was not well: five seconds, then it ends them) and frees the crew; NULL: nothing.
 * well: QR_E_CLOSED when a child ended otherwise than with status 0 or `status` (that of a run that was interrupted), saying how. Not well: puts how a child
 * died behind err->msg, where that is not told there yet, and returns err->code. */
int qr_comm_crew_end(struct qr_comm_crew *crew, bool well, int status, struct qr_err *err);

/* The ranks of a command that rank 0 alone answers for: the others say nothing, and do what rank 0 asks of them until it lets them go. */
struct qr_comm_team {
    struct qr_comm comm;       /* zeroed with one rank */
    struct qr_comm_crew *crew; /* owned */
};

/* Becomes n_ranks ranks, or stays alone (1). Those that are not rank 0 lose their stdout, and the signals that ask to end: rank 0 hears these, too, and
 * decides. Errors: those of qr_comm_launch. */
int qr_comm_team_begin(struct qr_comm_team *t, int32_t n_ranks, struct qr_err *err);

/* NULL: alone. */
struct qr_comm *qr_comm_team_comm(struct qr_comm_team *t);

/* rc: how this rank did, *err why not well; then all ranks end. On rank 0, errors: *err itself with how others died behind it; QR_E_CLOSED when one of them did
 * not end well. */
int qr_comm_team_end(struct qr_comm_team *t, int rc, struct qr_err *err);

/* Keeps the calling process to its share of the processors it may run on: whole cores, neighbours together. Does nothing where there are fewer processors
 * than ranks. */
void qr_comm_share_cpus(int32_t rank, int32_t n_ranks);

#endif
