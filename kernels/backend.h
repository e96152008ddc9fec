/* backend.h - a device opened for one rank: its kernel table, its memory, its queue.
 *
 * qr_backend_open picks the best table for this machine ("cpu"), or the one that is asked for: "ref", "avx2", "avx512", "amx", or "null", which
 * computes nothing (null.h). The environment variable QUIRE_ISA names a level too, so that tests cover every level on one machine. A level
 * that the processor does not have is an error, never a fault later.
 */
#ifndef QR_KERNELS_BACKEND_H
#define QR_KERNELS_BACKEND_H

#include <stdbool.h>

#include "base/err.h"
#include "kernels/backward.h"
#include "kernels/kernels.h"
#include "kernels/tune.h"

struct qr_mem_ops {
    void *(*alloc)(size_t n_bytes); /* zeroed, 64-byte aligned; aborts when there is none */
    void (*free)(void *p);
};

struct qr_backend {
    const char *name;            /* "cpu" */
    const struct qr_kernels *k;
    const struct qr_backward *b; /* gradients and the optimizer, for the trainer */
    const struct qr_mem_ops *mem;
    struct qr_queue *queue;      /* owned */
    struct qr_tune *tune;        /* owned: what was measured to be best for shapes (tune.h); empty with QR_TUNE_OFF */
    int32_t n_threads;
};

/* Whether measured tunables are used (kernels/tune.h). They never change a result. */
enum qr_tune_mode {
    QR_TUNE_OFF,
    QR_TUNE_CACHED, /* the file of this processor, where there is one */
    QR_TUNE_NOW,    /* that, and whoever opens a model measures its shapes first (qr_model_tune) */
};

struct qr_backend_options {
    const char *device;    /* "auto" or "cpu" */
    const char *isa;       /* NULL: QUIRE_ISA, or the best there is */
    int32_t n_threads;     /* 0: one per usable core, at most what the control group allows; of a list: all of it */
    const char *cpus;      /* "0-3,8": processors for the workers; NULL: those that the process may use, cores before hyperthreads */
    bool pin;              /* pin each worker, where `cpus` is given or every usable core gets one, and no processor gets two */
    enum qr_tune_mode tune;
    int32_t step_rows_max; /* rows of the largest step: sizes the scratch memory (0: 2048) */
};

#define QR_HEAD_DIM_MAX 256
#define QR_BLOCK_TOKENS_MAX 4096

/* Call it first thing in main, before any thread or sigaltstack: it asks Linux for the AMX tile registers, which enlarge every signal
 * frame (a small alternate stack makes Linux refuse). Refused or absent is fine: levels that need tiles are then not there. */
void qr_cpu_init(void);

/* The calling thread becomes worker 0 of the queue and is the only one that may launch kernels. With `pin` it is pinned too, until the backend is
 * closed; threads that it makes meanwhile inherit that. Errors: QR_E_USAGE (unknown device or level, thread count out of range, a list of
 * processors that is none or names one that this process may not use), QR_E_UNSUPPORTED (a level that this processor does not have). */
int qr_backend_open(struct qr_backend **out, const struct qr_backend_options *options, struct qr_err *err);
/* Scratch of the queue: of a launch, and of each worker. It is touched as far as launches need it. */
size_t qr_backend_scratch_bytes(const struct qr_backend *be);

/* Large memory that every worker reads (the cache), before it is first touched: with several memory nodes its pages will come from all of them. */
void qr_backend_spread(const struct qr_backend *be, void *p, size_t n_bytes);

void qr_backend_close(struct qr_backend *be); /* NULL is fine */

/* Calls fn(arg, i, worker) once for every 0 <= i < n_items on the queue's threads and returns when all have returned: work of the host that splits
 * into rows, such as sampling. worker < n_threads tells scratch memories apart. Called by worker 0 only, between kernels. Which worker gets
 * an item must not be visible in a result. */
void qr_backend_run(struct qr_backend *be, void (*fn)(const void *arg, int32_t item, int32_t worker), const void *arg, int32_t n_items);

/* Whether every kernel of a model with these properties is there; inputs_max: of its widest matrix. QR_E_UNSUPPORTED says what is not. */
int qr_backend_supports(const struct qr_backend *be, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim,
                        int32_t block_tokens, struct qr_err *err);

/* One line for banners: "cpu: amx". Lives as long as the process. The number of threads is in the backend. */
const char *qr_cpu_describe(void);

/* Names of the levels that this processor has ("ref" is always one), best last; returns their number (for tests and benches). */
int32_t qr_cpu_levels(const char *names[8]);

#endif
