/* mpi_open.c - the program's side of libquire_mpi.so: finds it, and checks that it fits. No header of MPI is read here, so this
 * file is part of every build. QUIRE_MPI_LIB names the library's file; else it is looked for beside the program (base/library.h). */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/library.h"
#include "comm/mpi/plugin.h"

#define LIBRARY "libquire_mpi.so"

bool qr_comm_has_mpi(void)
{
    char path[QR_PATH_MAX];
    const char *named = getenv("QUIRE_MPI_LIB");
    return (named && *named) || qr_library_find(path, LIBRARY);
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

int qr_comm_open_mpi(struct qr_comm *c, int32_t rank, int32_t size, struct qr_err *err)
{
    const struct qr_comm_mpi_plugin *p;
    QR_ASSERT(c != NULL && err != NULL);
    QR_ASSERT(rank >= 0 && rank < size && size <= QR_COMM_RANKS_MAX);
    int rc = open_library(&p, err);
    if (rc)
        return rc;
    *c = (struct qr_comm){.rank = rank, .size = size, .ops = p->ops, .impl = p->make(size)};
    rc = qr_comm_line_open(c, true, err);
    if (rc) {
        c->ops->close(c);
        *c = (struct qr_comm){0};
    }
    return rc;
}
