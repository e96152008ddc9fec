#include "kernels/cuda/stop.h"

#include <cuda_runtime.h>
#include <stdio.h>
#include <string.h>

#include "base/assert.h"

/* Of the process, as the code that ends it has no queue at hand. The device writes into *word. */
static struct {
    volatile uint32_t *word; /* owned [2]; NULL: none */
    int32_t n_open;
} stops;

static bool tell_modules(uint32_t *word)
{
#define TELL(name) qr_cuda_stops_of_##name,
    static int (*const of[])(uint32_t *word) = {QR_STOP_MODULES(TELL)};
#undef TELL
    for (int i = 0; i < QR_COUNT(of); i++)
        if (of[i](word) != 0)
            return false;
    return true;
}

bool qr_cuda_stops_open(void)
{
    void *word = NULL;
    if (stops.n_open == 0) {
        const cudaError_t rc = cudaHostAlloc(&word, 2 * sizeof *stops.word, cudaHostAllocMapped);
        if (rc == cudaSuccess && tell_modules(memset(word, 0, 2 * sizeof *stops.word))) {
            stops.word = word;
        } else {
            (void)cudaGetLastError(); /* or the next launch would be blamed for it */
            (void)cudaFreeHost(word);
            return false;
        }
    }
    stops.n_open++;
    return true;
}

void qr_cuda_stops_close(void)
{
    QR_ASSERT(stops.n_open > 0);
    QR_ASSERT(stops.word != NULL);
    if (--stops.n_open > 0)
        return;
    (void)cudaFreeHost((void *)(uintptr_t)stops.word); /* no kernel runs any more; the next to open tells them of another */
    stops.word = NULL;
}

void qr_cuda_stop_tell(void)
{
    static const char *const files[] = {
#define NAME(name) name,
        QR_STOP_FILES(NAME)
#undef NAME
    };
    const uint32_t place = stops.word ? stops.word[0] : 0, where = stops.word ? stops.word[1] : 0;
    const uint32_t number = place >> QR_STOP_LINE_BITS & ((1u << QR_STOP_FILE_BITS) - 1), line = place & ((1u << QR_STOP_LINE_BITS) - 1);
    const char *file = "a file that kernels/cuda/stop.h does not list";
    if (!(place & QR_STOP_SAID))
        return;
    for (int i = 0; i < QR_COUNT(files); i++)
        file = qr_stop_file(files[i]) == number ? files[i] : file;
    fprintf(stderr, "quire: cuda: the device stopped at %s:%u, block %u, thread %u\n", file, (unsigned)line, (unsigned)(where >> QR_STOP_THREAD_BITS),
            (unsigned)(where & ((1u << QR_STOP_THREAD_BITS) - 1)));
}
