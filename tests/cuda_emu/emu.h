/* emu.h - an emulated CUDA device for tests: what a test may set, count and expect.
 *
 * The files of kernels/cuda/ are compiled as C++ against include/cuda_runtime.h and cublasLt.h of this folder and run on the processor: blocks one
 * after the other, the threads of a block as fibers in a shuffled order, warps of 32. What a real device would leave undefined is reported, and a
 * report ends the program, unless a test expects it. Reported are
 *
 *   barriers that not all threads of the block reach, or reach at different lines; shuffles and votes whose mask leaves out the caller, names a
 *   lane that has left or never comes, or that read from a lane which is not named; accesses of one launch to the same bytes, one of them a
 *   write, by two threads with no barrier between them (release builds: every access is instrumented); accesses outside of shared
 *   variables and of what cudaMalloc gave; vectors off their alignment (under ubsan); launches beyond the limits of the device; copies beyond an
 *   allocation; device memory that the host reads (a fault); calls that end a capture of the same thread (allocations, waits, questions about events and
 *   streams), copies in one from or to memory that is not pinned, and kernels that nobody launched before one; threads that have not chosen the process'
 *   device; of kernels that begin early (launch.h, QR_LAUNCH_NEXT; release builds) accesses that should have waited for those before, and threads that
 *   never do;
 *   of compute capability 9.0a: mbarriers that nobody made, that get too many arrivals or bytes, or complete two phases before who waits saw the first; bulk
 *   copies to or from where they cannot go; ordinary stores, of kernels before an early one too, that the copy engine or wgmma meets with no fence in between;
 *   sums and operands of a wgmma
 *   that are touched before it was waited for; warps of a warpgroup that ask for different products or registers; what is under way at a block's end.
 *
 * Not seen: the order of memory accesses within a warp without a barrier that hardware happens to keep, spinning on another block (it hangs), time.
 * One launch at a time: everything here is called by one thread.
 */
#ifndef QR_TESTS_CUDA_EMU_EMU_H
#define QR_TESTS_CUDA_EMU_EMU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum qr_emu_order { QR_EMU_SHUFFLED, QR_EMU_FORWARD, QR_EMU_BACKWARD };

/* The order in which threads get their turn between two meetings; the seed is that of the shuffles. */
void qr_emu_set_order(enum qr_emu_order order, uint64_t seed);

/* Work of streams is done when somebody waits for it (false, as at first), or in the call that asks for it (true): then a kernel's results are there when its
 * launcher returns, and launchers may be given memory of the host. */
void qr_emu_set_eager(bool eager);

/* The device that is pretended: multiprocessors (132 at first) and memory (4 GiB). For what is asked of the runtime afterwards. */
void qr_emu_set_device(int32_t n_sms, size_t memory_bytes);

/* Bytes of shared memory that a block may ask for: 227 KiB at first, as on 9.0; 163 on 8.0, 99 on 8.6, 8.9 and 12.0. */
void qr_emu_set_shared(int32_t n_bytes);

/* Whether the library has code for the device (it has, at first). */
void qr_emu_set_code(bool there);

/* Microseconds that each of lt.c's algorithms takes, in its order: whole, chain, split, wide, rows. A kernel takes QR_EMU_KERNEL_US; nothing else any. */
#define QR_EMU_LT_ALGORITHMS 5
#define QR_EMU_KERNEL_US 10
void qr_emu_set_lt(const float us[QR_EMU_LT_ALGORITHMS]);

/* What cublasLtGetVersion says: 130000 at first. Before 120900 a scale is one number. */
void qr_emu_set_lt_version(size_t version);

/* What has been asked of the runtime since the program began. */
struct qr_emu_counts {
    int64_t mallocs; /* and frees, of device and of pinned memory */
    int64_t syncs;   /* every call that waits for the device */
    int64_t launches, copies, graph_launches;
    int64_t bytes_now; /* of device memory in use */
    int64_t wgmma;     /* that a warp has asked for */
};
struct qr_emu_counts qr_emu_counts(void);

/* Whether a trap is what it is on a device, the end of its launch and of all work behind it, which calls that wait return as an error from then on; else, as
 * at first, it is reported. */
void qr_emu_set_traps(bool lose_the_device);

/* A device that computes wrong, for tests of checks: one box of 64 by the copy engine brings zeros, or each product of cuBLASLt has one wrong number. */
enum qr_emu_wrong { QR_EMU_RIGHT, QR_EMU_WRONG_BOXES, QR_EMU_WRONG_PRODUCTS };
void qr_emu_set_wrong(enum qr_emu_wrong what);

/* Between these two the first report ends the launch instead of the program; it comes back as a text, "" for none, which lives until the next begin. */
void qr_emu_expect_begin(void);
const char *qr_emu_expect_end(void);

/* Whether races between threads are looked for in this build. */
bool qr_emu_sees_races(void);

#ifdef __cplusplus
}
#endif
#endif
