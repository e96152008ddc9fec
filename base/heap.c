#include "base/heap.h"

#include <malloc.h>

void qr_heap_trim(void)
{
#ifdef M_ARENA_MAX /* glibc's */
    malloc_trim(0);
#endif
}
