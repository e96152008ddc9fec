/* stop.h - where a kernel stopped: a launch that ends itself (QR_DEVICE_ASSERT, a wait that takes too long) first writes its place into a word of pinned
 * memory, which the line that ends the process tells. A trap says nothing by itself, and shows in some later call of the runtime.
 *
 * Each file with such kernels has a variable of its own that points to the word (QR_STOPS in launch.h; stop.c lists the files). Inside kernels/cuda/ only, C
 * and C++. */
#ifndef QR_KERNELS_CUDA_STOP_H
#define QR_KERNELS_CUDA_STOP_H

#include <stdbool.h>
#include <stdint.h>

/* The word's two halves, written together: from bit 0 on the line and the file's number, and a bit that says that there is one; the thread and the block. */
#define QR_STOP_LINE_BITS 12
#define QR_STOP_FILE_BITS 12
#define QR_STOP_SAID (1u << 31)
#define QR_STOP_THREAD_BITS 10

#ifdef __cplusplus
#define QR_STOP_FUNCTION static __host__ __device__ constexpr
extern "C" {
#else
#define QR_STOP_FUNCTION static inline
#endif

/* A number for a file, from its name behind the last slash. */
QR_STOP_FUNCTION uint32_t qr_stop_file(const char *path)
{
    uint32_t h = 2166136261u; /* FNV-1a */
    for (; *path != '\0'; path++)
        h = *path == '/' ? 2166136261u : (h ^ (uint32_t)(unsigned char)*path) * 16777619u;
    return (h ^ h >> 16) & ((1u << QR_STOP_FILE_BITS) - 1);
}

/* The files that kernels may stop in, and those whose kernels do. */
#define QR_STOP_FILES(F)                                                                                                                             \
    F("attention_hopper.cu") F("back_rows.cu") F("cache.h") F("experts.cu") F("paged.h") F("rows.cu") F("sample.cu")
#define QR_STOP_MODULES(F)                                                                                                                           \
    F(attention) F(attention_back) F(attention_codes) F(attention_hopper) F(back_rows) F(experts) F(few) F(heads) F(rows) F(sample)

/* Of the file's kernels: they write to `word`. Not 0: the runtime's error. */
#define QR_STOP_DECLARE(name) int qr_cuda_stops_of_##name(uint32_t *word);
QR_STOP_MODULES(QR_STOP_DECLARE)
#undef QR_STOP_DECLARE

/* A word for the device that the calling thread has chosen, and all its kernels know it; false: there is none, and stops are not told. Each device that is open
 * in the process closes it once. */
bool qr_cuda_stops_open(void);
void qr_cuda_stops_close(void);

/* One line to stderr where a kernel has stopped: check.h, which ends the process. */
void qr_cuda_stop_tell(void) __attribute__((weak)); /* kernels that are tested alone have none */

#ifdef __cplusplus
}
#endif
#endif
