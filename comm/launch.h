/* launch.h - how a program becomes several ranks: by forking, or because a launcher started it (mpirun, srun, LeaderWorkerSet, a person).
 *
 * Rank 0 of forked ranks stays the process that the terminal knows; the others are its children and cannot outlive it. All are of one process group, so that
 * Ctrl-C reaches every rank. Each gets its share of the processors as those it may run on.
 */
#ifndef QR_COMM_LAUNCH_H
#define QR_COMM_LAUNCH_H

#include "base/option.h"
#include "comm/comm.h"

/* What flags say of ranks that are started one by one. */
struct qr_comm_meeting {
    int64_t rank;            /* -1: the launcher's variables say it */
    const char *at;          /* HOST or HOST:PORT; NULL: what the launcher's variables say; else loopback */
    const char *secret_file; /* or NULL */
    int64_t wait_us;
};

#define QR_COMM_MEETING_ROWS(T, m, heading)                                                                                       \
    {.name = "rank", .type = QR_OPT_INT, .offset = offsetof(T, m.rank), .builtin = "-1", .min = -1, .max = QR_COMM_RANKS_MAX - 1,    \
     .arg = "R", .group = heading,                                                                                                \
     .help = "This process is rank R of several that are started one by one, on one machine or more, and meet at --ranks-at. -1: what mpirun, srun or " \
             "LeaderWorkerSet say in their variables."},                                                                          \
    {.name = "ranks-at", .type = QR_OPT_STR, .offset = offsetof(T, m.at), .arg = "HOST[:PORT]", .group = heading,                  \
     .help = "Where rank 0 listens and the others connect, by TCP. Port 29500 unless named; not named at all: what srun or LeaderWorkerSet say, else " \
             "127.0.0.1."},                                                                                                       \
    {.name = "ranks-secret-file", .type = QR_OPT_STR, .offset = offsetof(T, m.secret_file), .arg = "FILE", .group = heading,        \
     .help = "A secret that ranks show each other that they know before they meet by TCP: the first line of FILE."},               \
    {.name = "ranks-wait", .type = QR_OPT_TIME, .offset = offsetof(T, m.wait_us), .builtin = "300s", .min = 1e3, .max = 86400e6,    \
     .arg = "TIME", .group = heading, .help = "How long ranks that meet by TCP wait for each other at the start."}

struct qr_comm_launch_options {
    int32_t n_ranks;  /* 0: as many as a launcher started, else one */
    bool share_cpus;  /* false: the caller has chosen processors */
    const struct qr_comm_meeting *meeting; /* NULL: nothing was said */
};

/* The group of ranks that a launcher made this process one of, as its variables say. */
struct qr_comm_group {
    const char *launcher; /* for messages */
    int32_t rank, size, local_rank, local_size; /* local: among the ranks on this machine */
    bool mpi;             /* MPI starts from these variables, and is there where it has to be */
    char at[300];         /* where rank 0 listens; "": not said */
};

/* False when no launcher has started this process as one of several. */
bool qr_comm_group_find(struct qr_comm_group *g);

/* Meets the others, by MPI or TCP. Errors: those of qr_comm_open_mpi, of qr_rendezvous, of reading a file; QR_E_USAGE. */
int qr_comm_group_open(struct qr_comm *c, const struct qr_comm_group *g, const struct qr_comm_meeting *m, struct qr_err *err);

struct qr_comm_crew; /* the children of rank 0 */

/* Returns on every rank, with c open. Call it before the process has threads. *crew is NULL but on a rank 0 with children.
 * Errors: QR_E_USAGE (not 1 to 64 ranks; other than the launcher's), QR_E_NO_ROOM (no memory to share, no process), those of qr_comm_group_open. */
int qr_comm_launch(struct qr_comm *c, struct qr_comm_crew **crew, const struct qr_comm_launch_options *o, struct qr_err *err);

/* Whether the other ranks have output of their own, in which why they end is to be said. */
bool qr_comm_apart(const struct qr_comm *c);

/* The last thing that rank 0 does: waits for its children (when rank 0 was not well: five seconds, then it ends them) and frees the crew; NULL: nothing.
 * well: QR_E_CLOSED when a child ended otherwise than with status 0 or `status` (that of a run that was interrupted), saying how. Not well: puts how a child
 * died behind err->msg, where that is not told there yet, and returns err->code. */
int qr_comm_crew_end(struct qr_comm_crew *crew, bool well, int status, struct qr_err *err);

/* The ranks of a command that rank 0 alone answers for: the others say nothing, and do what rank 0 asks of them until it lets them go. */
struct qr_comm_team {
    struct qr_comm comm;       /* zeroed with one rank */
    struct qr_comm_crew *crew; /* owned */
};

/* Becomes o->n_ranks ranks, or stays alone (1). Those that are not rank 0 lose their stdout, and the signals that ask to end: rank 0 hears these, too, and
 * decides. Errors: those of qr_comm_launch. */
int qr_comm_team_begin(struct qr_comm_team *t, const struct qr_comm_launch_options *o, struct qr_err *err);

/* NULL: alone. */
struct qr_comm *qr_comm_team_comm(struct qr_comm_team *t);

/* rc: how this rank did, *err why not well; then all ranks end. On rank 0, errors: *err itself with how others died behind it; QR_E_CLOSED when one of them did
 * not end well. */
int qr_comm_team_end(struct qr_comm_team *t, int rc, struct qr_err *err);

/* Keeps the calling process to its share of the processors it may run on: whole cores, neighbours together. Does nothing where there are fewer processors
 * than ranks. */
void qr_comm_share_cpus(int32_t rank, int32_t n_ranks);

#endif
