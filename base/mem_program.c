/* mem_program.c - the part of mem.h that knows where the program lies. Apart from the rest, because a shared library has no such place. */
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

#include "base/mem.h"

extern const char __executable_start[], __etext[]; /* of the linker */

void qr_mem_populate_program(void)
{
    const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)__executable_start / page * page;
    madvise((void *)first, (uintptr_t)__etext - first, MADV_POPULATE_READ); /* before Linux 5.14: they come when they are used */
}
