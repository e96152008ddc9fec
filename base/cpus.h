/* cpus.h - which processors this process may use, in which order, and how many threads that is worth.
 *
 * Everything is read below a root directory ("" is the machine itself), so that a test can lay out a machine with hyperthreads, nodes
 * of memory and quotas as files. Nothing here keeps state.
 */
#ifndef QR_BASE_CPUS_H
#define QR_BASE_CPUS_H

#include <stdbool.h>
#include <stdint.h>

#include "base/err.h"

#define QR_CPUS_MAX 1024
#define QR_NODES_MAX 8

/* A list of processors in the order in which workers take them. */
struct qr_cpus {
    int32_t n, n_cores;         /* n_cores: how many of them are the first of their core in the list */
    int32_t n_nodes;            /* memory nodes that they belong to, at least 1 */
    int16_t cpu[QR_CPUS_MAX];   /* the system's number */
    int16_t core[QR_CPUS_MAX];  /* the smallest number among a processor's hyperthreads */
    int8_t node[QR_CPUS_MAX];   /* 0 .. n_nodes-1 */
    int16_t node_id[QR_NODES_MAX]; /* the system's number of a node */
};

/* "0-3,8": processors in that order, each once. QR_E_USAGE on anything else, and for numbers from QR_CPUS_MAX on. Cores and nodes are 0. */
int qr_cpus_parse(struct qr_cpus *out, const char *text, struct qr_err *err);

/* Those that the calling thread may run on (sched_getaffinity); processor 0 where the system does not say. */
void qr_cpus_allowed(struct qr_cpus *out);

/* A list, all of which the calling thread may use. QR_E_USAGE names the first that it may not. */
int qr_cpus_parse_allowed(struct qr_cpus *out, const char *text, struct qr_err *err);

/* From now on the calling thread, and what it starts, may use only those of such a list. */
int qr_cpus_keep_to(const char *text, struct qr_err *err);

bool qr_cpus_has(const struct qr_cpus *c, int32_t cpu);

/* Fills cores and nodes from ROOT/sys. With `order`, the first processors of all cores come first, then the hyperthreads beside them; otherwise
 * the order stays. Whatever the files do not tell is a core of its own on node 0. */
void qr_cpus_examine(struct qr_cpus *c, const char *root, bool order);

/* Processors' worth of time that the control groups of this process allow (version 2 and its parents, else version 1), rounded up; 0: no limit. */
int32_t qr_cpus_quota(const char *root);

/* Threads to compute with by default: a thread per core of the list, not more than the quota, at least 1. */
int32_t qr_cpus_default_threads(const struct qr_cpus *c, int32_t quota);

#endif
