/* plugin.h - the border between the program and libquire_mpi.so: what the library exports, and how the two tell that they fit together.
 *
 * The program links nothing of MPI. When mpirun has started it, it opens the library, which is built where CMake finds MPI, and uses its table of verbs
 * like that of any transport. QR_COMM_MPI_ABI is raised by hand when a meaning changes; `layout` changes with what both sides read.
 */
#ifndef QR_COMM_MPI_PLUGIN_H
#define QR_COMM_MPI_PLUGIN_H

#include "comm/comm_ops.h"

#define QR_COMM_MPI_ABI 2u
#define QR_COMM_MPI_SYMBOL "qr_comm_mpi_plugin"
#define QR_COMM_MPI_LAYOUT (sizeof(struct qr_comm) * 1000003u + sizeof(struct qr_comm_call) * 1009u + sizeof(struct qr_comm_ops) * 101u + sizeof(struct qr_err))

struct qr_comm_mpi_plugin {
    uint32_t abi; /* first, and never moved */
    uint64_t layout;
    const char *version; /* QUIRE_VERSION of the build */
    const struct qr_comm_ops *ops;
    void *(*make)(int32_t n_ranks); /* impl; ops->close frees it */
};

#endif
