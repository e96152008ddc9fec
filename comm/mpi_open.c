/* mpi_open.c - the program's side of libquire_mpi.so: finds it when mpirun started the process, and checks that it fits. No header of MPI is read here, so this
 * file is part of every build. QUIRE_MPI_LIB names the library's file; else it is looked for beside the program (base/library.h). */
#include <dlfcn.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/library.h"
#include "comm/mpi/plugin.h"

#define LIBRARY "libquire_mpi.so"

/* A number that mpirun (of Open MPI) has put into the environment. */
static bool number(const char *name, int32_t *out)
{
    const char *s = getenv(name);
    char *rest;
    if (!s || !*s)
        return false;
    errno = 0;
    const long n = strtol(s, &rest, 10);
    *out = (int32_t)n;
    return errno == 0 && *rest == 0 && n >= 0 && n < 1 << 20;
}

bool qr_comm_in_mpirun(struct qr_comm_mpirun *m)
{
    QR_ASSERT(m != NULL);
    if (!number("OMPI_COMM_WORLD_SIZE", &m->size) || !number("OMPI_COMM_WORLD_RANK", &m->rank) || m->rank >= m->size)
        return false;
    if (!number("OMPI_COMM_WORLD_LOCAL_SIZE", &m->local_size) || !number("OMPI_COMM_WORLD_LOCAL_RANK", &m->local_rank) || m->local_rank >= m->local_size)
        m->local_rank = 0, m->local_size = 1;
    return true;
}

/* The symbols of MPI are for everybody: Open MPI opens parts of itself later, which look for them. */
static int open_library(const struct qr_comm_mpi_plugin **out, struct qr_err *err)
{
    char path[QR_PATH_MAX];
    const char *named = getenv("QUIRE_MPI_LIB");
    if (named && *named) {
        if (strlen(named) >= sizeof path)
            return qr_err_set(err, QR_E_USAGE, "QUIRE_MPI_LIB: a path of %zu bytes; at most %d", strlen(named), QR_PATH_MAX - 1);
        memcpy(path, named, strlen(named) + 1);
    } else if (!qr_library_find(path, LIBRARY)) {
        return qr_err_set(err, QR_E_UNSUPPORTED, "mpirun started this, but " LIBRARY " is neither beside the program nor in its lib directory: it is built "
                          "where CMake finds MPI (libopenmpi-dev); without it, quire train --ranks N works on one machine. QUIRE_MPI_LIB names another place");
    }
    void *library = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
    if (!library)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%.200s cannot be opened: %.220s", path, qr_library_why_not(path));
    const struct qr_comm_mpi_plugin *p = dlsym(library, QR_COMM_MPI_SYMBOL);
    if (!p)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%.300s is no library of quire's: it has no symbol " QR_COMM_MPI_SYMBOL, path);
    if (p->abi != QR_COMM_MPI_ABI || p->layout != QR_COMM_MPI_LAYOUT)
        return qr_err_set(err, QR_E_UNSUPPORTED, "%.300s was built from other sources (interface %u, this program has %u); build both from the same", path,
                          (unsigned)p->abi, QR_COMM_MPI_ABI);
    *out = p;
    return 0;
}

int qr_comm_open_mpi(struct qr_comm *c, struct qr_err *err)
{
    struct qr_comm_mpirun m;
    const struct qr_comm_mpi_plugin *p;
    QR_ASSERT(c != NULL && err != NULL);
    if (!qr_comm_in_mpirun(&m))
        return qr_err_set(err, QR_E_USAGE, "mpirun has not started this: OMPI_COMM_WORLD_SIZE and OMPI_COMM_WORLD_RANK are not in the environment");
    if (m.size > QR_COMM_RANKS_MAX)
        return qr_err_set(err, QR_E_USAGE, "mpirun started %d ranks, expected 1 to %d", m.size, QR_COMM_RANKS_MAX);
    int rc = open_library(&p, err);
    if (rc)
        return rc;
    *c = (struct qr_comm){.rank = m.rank, .size = m.size, .ops = p->ops, .impl = p->make(m.size)};
    rc = qr_comm_line_open(c, true, err);
    if (rc) {
        c->ops->close(c);
        *c = (struct qr_comm){0};
    }
    return rc;
}
