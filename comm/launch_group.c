#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/mem.h"
#include "comm/launch.h"
#include "comm/rendezvous.h"

#define WAIT_US 300000000
#define PORTS_FROM 61000 /* behind those that Linux gives to connections by itself */
#define N_PORTS 4000

/* ---- variables ---- */

/* The number at `text`, which ends at *rest. */
static bool number(int32_t *out, const char *text, char **rest)
{
    const long n = text && *text >= '0' && *text <= '9' ? strtol(text, rest, 10) : -1;
    *out = n >= 0 && n < 1 << 20 ? (int32_t)n : -1;
    return *out >= 0;
}

static bool variable(int32_t *out, const char *name)
{
    char *rest;
    return name && number(out, getenv(name), &rest) && *rest == 0;
}

/* Of Slurm's list "2(x3),1" the number of node `node`; a plain number is that of the first. -1: none. */
static int32_t of_node(const char *list, int32_t node)
{
    char *rest;
    for (int32_t n, times; number(&n, list, &rest); list = rest + 1, node -= times) {
        times = 1;
        if (rest[0] == '(' && rest[1] == 'x' && (!number(&times, rest + 2, &rest) || *rest++ != ')'))
            return -1;
        if (node < times)
            return n;
        if (*rest != ',')
            return -1;
    }
    return -1;
}

/* ---- launchers ---- */

/* The first of "a[03-07,11].x,b", and a port that another step of this cluster hardly has. */
static void slurm_at(char *at, size_t room)
{
    const char *nodes = getenv("SLURM_STEP_NODELIST"), *job = getenv("SLURM_JOB_ID"), *step = getenv("SLURM_STEP_ID");
    if (!nodes || !job || !step)
        return;
    char id[64];
    const int name = (int)strcspn(nodes, "[,"), number = nodes[name] == '[' ? (int)strcspn(nodes + name + 1, "-,]") : 0;
    const char *behind = nodes[name] == '[' ? strchr(nodes, ']') : NULL;
    const int tail = behind ? (int)strcspn(++behind, ",") : 0;
    snprintf(id, sizeof id, "%.30s.%.30s", job, step);
    snprintf(at, room, "%.*s%.*s%.*s:%d", name, nodes, number, nodes + name + 1, tail, behind ? behind : "",
             PORTS_FROM + (int)(qr_hash64(id, strlen(id), 0) % N_PORTS));
}

static void lws_at(char *at, size_t room)
{
    const char *leader = getenv("LWS_LEADER_ADDRESS");
    snprintf(at, room, "%s", leader ? leader : "");
}

/* A launcher is known by its variables of rank and size. Local ones not named: each rank has a machine of its own. */
static const struct launcher {
    const char *name, *rank, *size, *local_rank, *local_size, *node;
    enum { MPI, MPI_WHERE_THERE_IS_ONE, TCP } carrier;
    void (*at)(char *at, size_t room);
} launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE", NULL, MPI, NULL},
    {"srun", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", MPI_WHERE_THERE_IS_ONE, slurm_at},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID", TCP, slurm_at},
    {"a launcher with PMI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS", NULL, TCP, NULL},
    {"LeaderWorkerSet", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE", NULL, NULL, NULL, TCP, lws_at},
};

bool qr_comm_group_find(struct qr_comm_group *g)
{
    QR_ASSERT(g != NULL);
    for (int i = 0; i < QR_COUNT(launchers); i++) {
        const struct launcher *l = &launchers[i];
        int32_t node = 0;
        *g = (struct qr_comm_group){.launcher = l->name};
        if (!variable(&g->size, l->size) || g->size < 2 || !variable(&g->rank, l->rank) || g->rank >= g->size)
            continue;
        variable(&node, l->node);
        g->local_size = l->local_size ? of_node(getenv(l->local_size), node) : 1;
        if (!variable(&g->local_rank, l->local_rank) || g->local_rank >= g->local_size)
            g->local_rank = 0, g->local_size = 1;
        g->mpi = l->carrier == MPI || (l->carrier == MPI_WHERE_THERE_IS_ONE && qr_comm_has_mpi());
        if (l->at)
            l->at(g->at, sizeof g->at);
        return true;
    }
    return false;
}

/* ---- meeting ---- */

/* The first line of a file. */
static int read_secret(struct qr_buf *out, const char *path, struct qr_err *err)
{
    int rc = qr_file_read(out, path, QR_FILE_ANY, QR_RENDEZVOUS_SECRET_MAX, err);
    if (rc)
        return qr_err_prefix(err, "--ranks-secret-file: ");
    out->len = strcspn(out->data, "\r\n");
    if (out->len == 0)
        rc = qr_err_set(err, QR_E_USAGE, "--ranks-secret-file: the first line of %.300s is empty, expected a secret", path);
    return rc;
}

static int meet(struct qr_comm *c, const struct qr_comm_group *g, const struct qr_comm_meeting *m, struct qr_err *err)
{
    struct qr_comm_link link[QR_COMM_RANKS_MAX];
    struct qr_buf secret = {0};
    struct qr_rendezvous z = {.rank = g->rank, .size = g->size, .at = m && m->at ? m->at : g->at, .wait_us = m ? m->wait_us : WAIT_US};
    if (!z.at[0])
        return qr_err_set(err, QR_E_USAGE, "%s started %d ranks and does not say where rank 0 is: add --ranks-at HOST:PORT", g->launcher, g->size);
    int rc = m && m->secret_file ? read_secret(&secret, m->secret_file, err) : 0;
    z.secret = secret.data;
    z.n_secret = secret.len;
    rc = rc ? rc : qr_rendezvous(link, &z, err);
    if (rc == 0)
        qr_comm_open_tcp(c, g->rank, g->size, link);
    qr_buf_release(&secret);
    return rc;
}

bool qr_comm_apart(const struct qr_comm *c)
{
    QR_ASSERT(c != NULL);
    QR_ASSERT(c->size > 0);
    return strcmp(qr_comm_name(c), "tcp") == 0;
}

int qr_comm_group_open(struct qr_comm *c, const struct qr_comm_group *g, const struct qr_comm_meeting *m, struct qr_err *err)
{
    QR_ASSERT(c != NULL && g != NULL);
    QR_ASSERT(g->rank >= 0 && g->rank < g->size && g->size <= QR_COMM_RANKS_MAX);
    int rc = g->mpi && !(m && m->at) ? qr_comm_open_mpi(c, g->rank, g->size, err) : meet(c, g, m, err);
    if (rc == 0) {
        c->local_rank = g->local_rank;
        c->local_size = g->local_size;
    }
    return rc;
}
