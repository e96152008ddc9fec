/* backend.h - a device opened for one rank: its kernel table, its memory, its queue.
 *
 * Devices: "cpu"; "cuda" or "cuda:1" (several ranks: "cuda", or one number for each), whose kernels are in a library of their own (cuda/plugin.h);
 * "auto", which tries CUDA and otherwise takes the processor, saying why in one line (nothing, where there is no such library). On the processor the
 * best kernel table for this machine is taken, or the one that is asked for: "ref", "avx2", "avx512", "amx", or "null", which computes nothing (null.h).
 * The environment variable QUIRE_ISA names a level too, so that tests cover every level on one machine. A level that the processor does not have is an
 * error, never a fault later.
 *
 * What kernels read and write was allocated by the device's `mem`, and is reached through it alone: only where mem->host says so may anybody else
 * dereference it. The structs that arguments consist of, and the arrays that plans are made from (qr_batch_host), are the host's everywhere.
 */
#ifndef QR_KERNELS_BACKEND_H
#define QR_KERNELS_BACKEND_H

#include <stdbool.h>

#include "base/err.h"
#include "kernels/backward.h"
#include "kernels/kernels.h"
#include "kernels/peers.h"
#include "kernels/tune.h"

#define QR_MARKS 2
#define QR_WAITED_NS 2000 /* a `wait` of less has found the device done: asking takes about half of it */

/* Memory of kernels. What takes a queue happens in order with the kernels launched on it. */
struct qr_mem_ops {
    bool host;                      /* the host may read and write it, too, between launches */
    void *(*alloc)(size_t n_bytes); /* zeroed, 64-byte aligned; aborts when there is none. On the thread that opened the device */
    void (*free)(void *p);          /* NULL is fine */
    void (*zero)(struct qr_queue *q, void *p, size_t n_bytes);
    void (*put)(struct qr_queue *q, void *to, const void *host, size_t n_bytes);   /* `host` may change when it returns */
    void (*get)(struct qr_queue *q, void *host, const void *from, size_t n_bytes); /* it is there when it returns */
    /* n_rows rows of row_bytes, to_pitch and from_pitch bytes apart; they do not overlap. */
    void (*copy)(struct qr_queue *q, void *to, size_t to_pitch, const void *from, size_t from_pitch, size_t row_bytes, int64_t n_rows);
    /* Host memory of n_bytes that the device reads fast, for what the next `put` takes from its beginning; nothing may come between the two. */
    void *(*stage)(struct qr_queue *q, size_t n_bytes);
    void (*sync)(struct qr_queue *q);    /* all that was launched is done */
    void (*start)(struct qr_queue *q);   /* what was launched begins, though nobody waits for it: before a wait for somebody who waits for this device */
    /* For who does not wait: fetch is get into memory of host_alloc, which is filled some time later; at a mark (0 .. QR_MARKS - 1, a new one in place of the
     * one before) everything asked for until now will be done, and wait returns when it is. */
    void (*fetch)(struct qr_queue *q, void *host, const void *from, size_t n_bytes);
    /* fetch the other way: memory of host_alloc, as what was asked for before leaves it, is read some time later. */
    void (*send)(struct qr_queue *q, void *to, const void *host, size_t n_bytes);
    void (*mark)(struct qr_queue *q, int32_t which);
    void (*wait)(struct qr_queue *q, int32_t which);
    /* What is launched between the two is not done, but kept to be repeated as often as one likes, with these very arguments and what the memory behind them
     * holds then. record_begin: false where that is not to be had; record_end: NULL when it cannot be. NULL, all four: a device that repeats nothing. */
    bool (*record_begin)(struct qr_queue *q);
    void *(*record_end)(struct qr_queue *q);
    void (*repeat)(struct qr_queue *q, void *record);
    void (*record_free)(void *record);
    void *(*host_alloc)(size_t n_bytes); /* zeroed host memory that `get` fills fast, 64-byte aligned */
    void (*host_free)(void *p);
    int64_t (*available)(void);          /* bytes that alloc could give now */
};

/* That of the processor. alloc gives host memory, nothing needs a queue, put and get copy. */
extern const struct qr_mem_ops qr_host_mem;

struct qr_backend {
    const char *name;            /* "cpu", "cuda" */
    const struct qr_kernels *k;
    const struct qr_backward *b; /* gradients and the optimizer, for the trainer */
    const struct qr_mem_ops *mem;
    const struct qr_peer_ops *peers; /* what lets devices of several ranks compute together; NULL: the host's memory does (comm/) */
    struct qr_queue *queue;      /* owned: what kernels are launched on */
    struct qr_queue *pool;       /* owned: threads of the host; on the processor the queue itself */
    struct qr_tune *tune;        /* owned: what was measured to be best for shapes (tune.h); empty with QR_TUNE_OFF, NULL where nothing is to be chosen */
    int32_t n_threads;           /* of the host */
    const struct qr_device *device; /* its other sides (device.h); NULL in a backend that a test put together */
    void *impl;                  /* owned by the device */
    char title[160];             /* one line: "cuda: NVIDIA H200 (sm_90, 132 multiprocessors, 139.8 GiB)" */
};

/* Whether measured tunables are used (kernels/tune.h). They never change a result. */
enum qr_tune_mode {
    QR_TUNE_OFF,
    QR_TUNE_CACHED, /* the file of this processor, where there is one */
    QR_TUNE_NOW,    /* that, and whoever opens a model measures its shapes first (qr_model_tune) */
};

struct qr_backend_options {
    const char *device;    /* "auto", "cpu", "cuda", "cuda:N" or, for several ranks, "cuda:N,M,.."; NULL: cpu */
    int32_t rank, n_ranks; /* of those on this machine: each takes a device of its own, in their order or in that of the list. 0, 0: one rank */
    const char *isa;       /* of the processor's kernels; NULL: QUIRE_ISA, or the best there is. With "auto", naming one means cpu */
    int32_t n_threads;     /* 0: one per usable core, at most what the control group allows; of a list: all of it */
    const char *cpus;      /* "0-3,8": processors for the workers; NULL: those that the process may use, cores before hyperthreads */
    bool pin;              /* pin each worker, where `cpus` is given or every usable core gets one, and no processor gets two */
    enum qr_tune_mode tune;
    int32_t step_rows_max; /* rows of the largest step: sizes the scratch memory (0: 2048) */
    bool deterministic;    /* a row's bits depend on nothing but the row, whatever that costs; on the processor always, on a device where it costs little
                            * (kernels/cuda/plans.h says how much) */
    bool plain;            /* a device computes with what every device has: no library's products, no kernels of one architecture alone. A second opinion
                            * for checks */
};

#define QR_HEAD_DIM_MAX 256
#define QR_BLOCK_TOKENS_MAX 4096

/* Call it first thing in main, before any thread or sigaltstack: it asks Linux for the AMX tile registers, which enlarge every signal
 * frame (a small alternate stack makes Linux refuse). Refused or absent is fine: levels that need tiles are then not there. */
void qr_cpu_init(void);

/* The calling thread becomes worker 0 of the pool and is the only one that may launch kernels. With `pin` it is pinned too, until the backend is
 * closed; threads that it makes meanwhile inherit that. Errors: QR_E_USAGE (unknown device or level, thread count out of range, a list of
 * processors that is none or names one that this process may not use), QR_E_UNSUPPORTED (a level that this processor does not have; a device or driver
 * that is not there, a library that does not fit), QR_E_NOT_FOUND (no library for the device). */
int qr_backend_open(struct qr_backend **out, const struct qr_backend_options *options, struct qr_err *err);
/* Memory of the queue itself, where kernels compute: scratch of a launch, and of each worker. It is touched as far as launches need it,
 * or by qr_backend_populate. */
size_t qr_backend_scratch_bytes(const struct qr_backend *be);

/* Touches all of the scratch that lies in the host's memory and returns how many bytes that is: from now on it is in use as planned. */
size_t qr_backend_populate(const struct qr_backend *be);

/* Memory nodes that its threads are on, at least 1. */
int32_t qr_backend_n_nodes(const struct qr_backend *be);

/* Large memory that every worker reads (the cache), before it is first touched: with several memory nodes its pages will come from all of them. */
void qr_backend_spread(const struct qr_backend *be, void *p, size_t n_bytes);

void qr_backend_close(struct qr_backend *be); /* NULL is fine */

/* Has fn(arg) called once, by a host's thread that is looking for work at this moment, else by the caller, here: for what takes longer than saying so, as
 * waking a thread does. Worker 0 only. It may not have begun before the next kernel or qr_backend_errand_end, which is to come before the caller waits for
 * anything; fn may be called until qr_backend_close returns. */
void qr_backend_errand(struct qr_backend *be, void (*fn)(void *), void *arg);
void qr_backend_errand_end(struct qr_backend *be);

/* Calls fn(arg, i, worker) once for every 0 <= i < n_items on the host's threads and returns when all have returned: work of the host that splits
 * into rows, such as sampling. worker < n_threads tells scratch memories apart. Called by worker 0 only, between kernels. Which worker gets
 * an item must not be visible in a result. */
void qr_backend_run(struct qr_backend *be, void (*fn)(const void *arg, int32_t item, int32_t worker), const void *arg, int32_t n_items);

/* On the processor, for such an item that launches a kernel: the queue to launch on, which has this thread only. */
struct qr_queue *qr_backend_alone(const struct qr_backend *be, int32_t worker);

/* Whether every kernel of a model with these properties is there; inputs_max: of its widest matrix. QR_E_UNSUPPORTED says what is not. */
int qr_backend_supports(const struct qr_backend *be, enum qr_dtype weights, int64_t inputs_max, enum qr_dtype kv, int32_t head_dim,
                        int32_t block_tokens, struct qr_err *err);

/* Whether gradients and optimizer steps can be computed. QR_E_UNSUPPORTED says what cannot. */
int qr_backend_trains(const struct qr_backend *be, struct qr_err *err);

/* What kernels left at `from`, for the host to read: `from` itself where it may, else a copy in room[0 .. n_bytes). */
static inline const void *qr_backend_read(const struct qr_backend *be, void *room, const void *from, size_t n_bytes)
{
    if (be->mem->host)
        return from;
    be->mem->get(be->queue, room, from, n_bytes);
    return room;
}

/* Before the first step: a device that chooses among several ways to multiply by this matrix chooses now, for all numbers of rows up to rows_max. Of `a` the
 * weights, their shape, bias and add are looked at. Waits for the device, and takes some of its memory meanwhile. */
void qr_backend_prepare(struct qr_backend *be, const struct qr_linear_args *a, int32_t rows_max);

/* What it chose, a line for each product; "" where there was no choice. Cut at the end. */
void qr_backend_plans(const struct qr_backend *be, char *out, size_t size);

/* How a device has computed so far, where it has several ways; all 0 for who has not. */
struct qr_backend_ways {
    int64_t by_library;        /* calls of products that its library for products has done; what a graph repeats is not counted again */
    int64_t fp8, fp8_own;      /* calls of FP8 products of many rows; those of them that fell back to our kernel, in bf16's time */
    int64_t by_wgmma;          /* calls of attention with the kernels of compute capability 9.0 */
    int32_t bf16, bf16_unlike; /* kinds of bf16 products that were chosen for; those where the library is faster, but not with the bits that few rows get */
};
struct qr_backend_ways qr_backend_ways(const struct qr_backend *be);

/* What it chose, for another rank's device, which adopts it in the place of its own choices: a text of so many bytes with its final 0, written where
 * they fit. */
size_t qr_backend_export_choices(struct qr_backend *be, char *out, size_t size);
void qr_backend_adopt_choices(struct qr_backend *be, const char *text);

/* One line for banners: "cpu: amx". Lives as long as the process. The number of threads is in the backend. */
const char *qr_cpu_describe(void);

/* Its level alone: "amx". */
const char *qr_cpu_level(void);

/* Names of the levels that this processor has ("ref" is always one), best last; returns their number (for tests and benches). */
int32_t qr_cpu_levels(const char *names[8]);

#endif
