/* core.h - what the parts of the emulated device share. Seen by device.h (C++, in kernels) and by the runtime here; tests see emu.h. */
#ifndef QR_TESTS_CUDA_EMU_CORE_H
#define QR_TESTS_CUDA_EMU_CORE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define QR_EMU_WARP 32
#define QR_EMU_WARPGROUP 4 /* warps */
#define QR_EMU_WARPS_MAX 32
#define QR_EMU_THREADS_MAX 1024
#define QR_EMU_SHARED_MAX (227 * 1024) /* of a block, once cudaFuncSetAttribute allowed it */
#define QR_EMU_STACK_BYTES (256 * 1024)
#define QR_EMU_SHARED_PLAIN (48 * 1024)
#define QR_EMU_SHARED_ALIGN 1024 /* of the dynamic bytes, for kernels that ask for it */

struct qr_emu_dim3 {
    unsigned int x, y, z;
};

/* Where in a kernel something was called. */
struct qr_emu_site {
    const char *what, *file;
    int line;
};

enum qr_emu_state { QR_EMU_NEW, QR_EMU_READY, QR_EMU_AT_BARRIER, QR_EMU_AT_WARP, QR_EMU_ASLEEP, QR_EMU_LEFT };

#define QR_EMU_ASYNC_MAX 128
struct qr_emu_async { /* a cp.async that nobody waited for yet */
    void *to;
    const void *from;
    int32_t n, n_from, group;
    const void *pc;
};

struct qr_emu_thread {
    struct qr_emu_dim3 idx;
    int32_t id, lane, warp;
    enum qr_emu_state state;
    struct qr_emu_site site;  /* where it waits */
    uint32_t mask;            /* at a warp's meeting: who comes */
    void *mine;               /* at a warp's meeting: what it brings and takes away; on its stack */
    int32_t barrier;          /* its number */
    const void *waits_for;    /* asleep */
    void *stack;              /* borrowed from the pool while it runs */
    void *sp, *fake_stack;
    bool waited;              /* for the kernels before its own */
    bool fenced;              /* since then: its copies read what those wrote */
    int32_t n_async, async_group;
    struct qr_emu_async *async; /* [QR_EMU_ASYNC_MAX], apart from what is looked at for all threads again and again */
};

struct qr_emu_launch {
    const char *kernel;
    struct qr_emu_dim3 grid, block;
    size_t shared_bytes, shared_room; /* dynamic ones; and how many there may be of both kinds */
    void (*body)(const void *closure);
    const void *closure; /* the kernel's arguments */
    size_t closure_bytes;
    bool early;          /* it begins while those before it run */
};

/* The thread that runs now and the launch and block it belongs to; NULL outside of kernels. */
extern struct qr_emu_thread *qr_emu_self;
extern struct qr_emu_dim3 qr_emu_block_idx, qr_emu_block_dim, qr_emu_grid_dim;

/* block.c */
void qr_emu_run(const struct qr_emu_launch *l);
void qr_emu_barrier(const struct qr_emu_site *site, int32_t number, int32_t n_threads, bool waits);
int32_t qr_emu_barrier_count(const struct qr_emu_site *site, int predicate);
void *qr_emu_shared_dynamic(size_t align);
uint32_t qr_emu_shared_address(const void *p); /* from the beginning of shared memory on, as instructions have it */
void *qr_emu_shared_at(uint32_t address);
void *qr_emu_shared_static(const void *tag, size_t n_bytes, size_t align);
bool qr_emu_is_shared(const void *p, size_t n); /* lies in a shared variable of this block */
bool qr_emu_is_between_shared(const void *p);           /* in the room of shared memory, but in no variable */
void qr_emu_report(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
void qr_emu_trap(const char *file, int line);
bool qr_emu_trapped(void); /* the device is lost */
void qr_emu_write_host(uint32_t *pinned, uint32_t x, uint32_t y);
const struct qr_emu_launch *qr_emu_launched(void);
bool qr_emu_failed(void); /* an expected report came: leave everything as it is and return */

/* Lanes `mask` of the warp meet; the last one to come calls combine with what each brought (NULL for the others). */
typedef void qr_emu_combine(void *of[QR_EMU_WARP], uint32_t mask);
void qr_emu_meet(const struct qr_emu_site *site, uint32_t mask, void *mine, qr_emu_combine *combine);

/* The calling thread waits until somebody wakes all who wait for `what`; how many there were. */
void qr_emu_sleep(const struct qr_emu_site *site, const void *what);
int32_t qr_emu_wake(const void *what);

/* warp.c */
uint64_t qr_emu_shuffle(const struct qr_emu_site *site, uint32_t mask, uint64_t value, int32_t kind, int32_t by, int32_t width);
uint32_t qr_emu_ballot(const struct qr_emu_site *site, uint32_t mask, int predicate);
uint32_t qr_emu_match(const struct qr_emu_site *site, uint32_t mask, uint64_t value);
int64_t qr_emu_reduce(const struct qr_emu_site *site, uint32_t mask, int64_t value, int32_t kind);
void qr_emu_sync_warp(const struct qr_emu_site *site, uint32_t mask);
void qr_emu_mma(int32_t kind, void *d, const uint32_t *a, const uint32_t *b);
void qr_emu_ldmatrix(uint32_t *r, int32_t n, bool transposed, const void *row);
void qr_emu_cp_async(void *to, const void *from, int32_t n, int32_t n_from);
void qr_emu_cp_async_commit(void);
void qr_emu_cp_async_wait(int32_t n_groups);
enum { QR_EMU_UP, QR_EMU_DOWN, QR_EMU_XOR, QR_EMU_INDEX };
enum { QR_EMU_ADD, QR_EMU_MAX, QR_EMU_MIN, QR_EMU_AND, QR_EMU_OR };
enum { QR_EMU_MMA_BF16, QR_EMU_MMA_S8, QR_EMU_MMA_TF32 };

/* copies.c: mbarriers, and copies by the device's copy engine */
struct CUtensorMap_st;
void qr_emu_mbarrier_init(const struct qr_emu_site *site, uint64_t *bar, int32_t count);
void qr_emu_mbarrier_arrive(const struct qr_emu_site *site, uint64_t *bar);
void qr_emu_mbarrier_expect(const struct qr_emu_site *site, uint64_t *bar, int32_t n_bytes);
void qr_emu_mbarrier_wait(const struct qr_emu_site *site, uint64_t *bar, uint32_t parity);
void qr_emu_fence_async(const struct qr_emu_site *site);
void qr_emu_bulk(const struct qr_emu_site *site, void *to, const void *from, int32_t n_bytes, uint64_t *bar);
void qr_emu_bulk_tensor(const struct qr_emu_site *site, void *to, const struct CUtensorMap_st *map, const int32_t *at, int32_t n_dims, uint64_t *bar);
void qr_emu_copies_begin(void);            /* a block begins */
bool qr_emu_copies_step(uint64_t random);  /* one copy that is under way is done; false: there is none */
bool qr_emu_copies_pending(void);
bool qr_emu_is_wrong(int what); /* enum qr_emu_wrong */
void qr_emu_copies_end(void);

/* wgmma.c: products of a warpgroup */
struct qr_emu_wgmma {
    float *d;
    int32_t n;              /* columns of d and b */
    const uint32_t *a;      /* four registers, or NULL: */
    uint64_t a_desc, b_desc;
    bool add, b_turned;
};
void qr_emu_wgmma(const struct qr_emu_site *site, const struct qr_emu_wgmma *o);
void qr_emu_wgmma_fence(const struct qr_emu_site *site);
void qr_emu_wgmma_commit(const struct qr_emu_site *site);
void qr_emu_wgmma_wait(const struct qr_emu_site *site, int32_t n_groups);
void qr_emu_registers(const struct qr_emu_site *site, int32_t n, bool more);
void qr_emu_wgmma_begin(void);
void qr_emu_wgmma_end(void);
const char *qr_emu_wgmma_holds(const void *p, size_t n); /* NULL, or what holds these bytes of the calling thread's registers */

/* atomic.c: old value back */
float qr_emu_atomic_add_f32(float *p, float v);
uint32_t qr_emu_atomic_u32(uint32_t *p, uint32_t v, int32_t kind);
int32_t qr_emu_atomic_i32(int32_t *p, int32_t v, int32_t kind);
uint64_t qr_emu_atomic_u64(uint64_t *p, uint64_t v, int32_t kind);
uint32_t qr_emu_atomic_cas(uint32_t *p, uint32_t expected, uint32_t v);
uint32_t qr_emu_atomic_exchange(uint32_t *p, uint32_t v);
void qr_emu_fence(void);

/* shadow.c: accesses of threads, for races and bounds. */
enum { QR_EMU_READ = 0, QR_EMU_WRITE = 1, QR_EMU_ATOMIC = 2, QR_EMU_COPIED = 3 };
void qr_emu_access(const void *p, size_t n, int32_t kind, const void *pc);
void qr_emu_shadow_launch(void); /* forget the launch before */
void qr_emu_shadow_block(int64_t block, int32_t n_warps);
void qr_emu_shadow_join(uint32_t warps); /* these warps know of each other's accesses so far */
void qr_emu_shadow_fence(void);
struct qr_emu_clock { /* what warps had done */
    uint32_t of[QR_EMU_WARPS_MAX];
};
void qr_emu_shadow_release(struct qr_emu_clock *c);       /* what the calling warp knows becomes known to who acquires c */
void qr_emu_shadow_acquire(const struct qr_emu_clock *c);
void qr_emu_shadow_fence_async(void);                     /* what the calling thread wrote may be read by the copy engine and by wgmma */
void qr_emu_name_place(char *out, size_t room, const void *pc); /* a line of the code */
void qr_emu_access_async(const void *p, size_t n, int32_t kind, const struct qr_emu_site *site); /* shared memory, by those */

/* Calls `note` for each 16 bytes of global memory that the last launch touched: a bit for each byte that was read, and that was written. */
void qr_emu_shadow_touched(void (*note)(uintptr_t key, uint32_t read, uint32_t written));

/* flight.c: kernels that run beside those that a stream has behind them */
void qr_emu_flight_begin(bool early); /* a kernel begins; late: nothing runs any more */
void qr_emu_flight_settled(void);     /* all that was asked for so far has ended */
void qr_emu_flight_check(const void *p, size_t n, bool writes, const void *pc); /* an access of a thread that may not have waited */
void qr_emu_flight_note(const void *p, size_t n, bool writes);                 /* of a kernel that is not emulated by blocks and threads */
void qr_emu_flight_check_copy(const struct qr_emu_site *site, const void *p, size_t n); /* what the copy engine reads for a thread that has waited */
void qr_emu_flight_fence(void);
void qr_emu_grid_wait(void);
void qr_emu_next_is_early(bool early); /* the launch that comes next */

/* memory.c */
const char *qr_emu_memory_check(const void *p, size_t n); /* NULL, or what is wrong with device memory [p, p + n); NULL for memory of the host */
bool qr_emu_memory_is_device(const void *p);
void qr_emu_memory_open(void);  /* the device works: its memory is there, */
void qr_emu_memory_close(void); /* and for the host it is not */
void qr_emu_poison(void *p, size_t n);
void qr_emu_unpoison(void *p, size_t n);

/* stream.c */
extern struct qr_emu_counts qr_emu_counted;
void qr_emu_enqueue(const char *kernel, const void *fn, struct qr_emu_dim3 grid, struct qr_emu_dim3 block, size_t shared_bytes, void *stream,
                    const void *closure, size_t closure_bytes, void (*body)(const void *closure));
void qr_emu_enqueue_host(void *stream, const void *closure, size_t closure_bytes, void (*body)(const void *closure));
/* The same with a body that may not be able to go on yet (false): it is called again when somebody asks next. */
void qr_emu_enqueue_peers(void *stream, const void *closure, size_t closure_bytes, bool (*body)(const void *closure));
void qr_emu_run_all(void);
int32_t qr_emu_shared_limit(const void *fn); /* of dynamic bytes */
void qr_emu_unsafe(const char *call);        /* reports a call that no stream may be captured beside, or of a thread that has not chosen the device */

/* properties.c */
void qr_emu_on_device(const char *call);
bool qr_emu_is_eager(void);
void qr_emu_clock_add(double us); /* so long has the device worked for what runs */

#ifdef __cplusplus
}
#endif
#endif
