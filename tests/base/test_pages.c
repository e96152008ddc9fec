/* Memory that the system is asked for beforehand. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/mem.h"
#include "tests/last_words.h"

#define BYTES ((size_t)8 << 20)

static long faults(void)
{
    struct rusage u;
    cr_assert_eq(getrusage(RUSAGE_THREAD, &u), 0);
    return u.ru_minflt;
}

/* Page faults of writing to memory that was populated. */
static long faults_of_writing(void)
{
    uint8_t *p = qr_alloc_aligned(BYTES, 64);
    p[5] = 7;
    qr_mem_populate(p, BYTES);
    qr_mem_populate(p + 1, 3);
    qr_mem_populate(p, 0);
    long before = faults();
    for (size_t i = 0; i < BYTES; i += 512)
        p[i] = (uint8_t)(p[i] + 1);
    before = faults() - before;
    cr_assert_eq(p[5], 7);
    cr_assert_eq(p[512], 1);
    qr_free_aligned(p);
    return before;
}

/* The system may take a page away meanwhile (balancing nodes, huge pages), so that the best of five counts. */
Test(pages, writing_to_populated_memory_faults_no_more_and_keeps_its_content)
{
    long n = faults_of_writing();
    for (int tries = 0; tries < 4 && n > 1; tries++)
        n = faults_of_writing();
#ifdef __SANITIZE_ADDRESS__
    printf("SKIP: the sanitizer's own memory faults, too\n");
    n = 0;
#endif
    cr_assert_leq(n, 1, "%ld faults", n);
}

Test(pages, interleaving_over_the_nodes_there_are_works_or_is_refused_and_the_memory_stays_usable)
{
    uint8_t *p = qr_alloc_aligned(BYTES, 64);
    const int16_t node[] = {0}, none[] = {200};
    if (!qr_mem_interleave(p, BYTES, node, 1))
        printf("SKIP: this system has no memory policies\n");
    cr_assert(!qr_mem_interleave(p, BYTES, none, 1), "a node that is not there is refused");
    for (size_t i = 0; i < BYTES; i += 512)
        p[i] = 1;
    qr_free_aligned(p);
}

/* May have 16 MiB more of addresses and asks for small blocks until there are none; with anything but NULL for one that grows. */
static void take_all(const void *grow)
{
    const rlim_t most = (rlim_t)qr_memory_of_process("VmSize") + ((rlim_t)16 << 20);
    const struct rlimit l = {most, most};
    if (setrlimit(RLIMIT_AS, &l) != 0)
        _exit(99);
    char *p = NULL;
    for (size_t n = 1; n < 1 << 20; n++)
        p = grow ? qr_realloc(p, n, 65536) : qr_alloc(n % 3 + 1, 65536);
    _exit(p ? 98 : 97);
}

Test(pages, small_blocks_that_a_limit_forbids_end_the_process_with_status_5_and_their_size)
{
#if defined(__SANITIZE_ADDRESS__)
    cr_skip_test("the address sanitizer has an allocator of its own, and takes terabytes of addresses");
#endif
    char said[512];
    for (int grow = 0; grow < 2; grow++) {
        const int status = last_words(said, take_all, grow ? said : NULL);
        cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 5, "%x", (unsigned)status);
        cr_expect(strncmp(said, "quire: out of memory: the system gives no ", 42) == 0, "%s", said);
    }
}

/* Wherever both lie in their pages: also where copies are taken apart. */
Test(pages, copies_have_every_byte_and_no_other)
{
    static const size_t size[] = {0, 1, 31, 2047, 2048, 2049, 2111, 4096, 4097, 10000};
    enum { ROOM = 3 * 4096 + 10000 };
    uint8_t *from = qr_alloc_aligned(ROOM, 4096), *to = qr_alloc_aligned(ROOM, 4096);
    for (int32_t i = 0; i < ROOM; i++)
        from[i] = (uint8_t)(i * 7 + i / 251);
    for (size_t k = 0; k < sizeof size / sizeof *size; k++)
        for (size_t ahead = 0; ahead < 4096; ahead += ahead < 40 ? 1 : 127) {
            const size_t at = 4096 + ahead, n = size[k];
            memset(to, 0xa5, ROOM);
            qr_copy(to + at, from + 4096, n);
            cr_assert_eq(memcmp(to + at, from + 4096, n), 0, "%zu bytes, %zu ahead", n, ahead);
            cr_assert(to[at - 1] == 0xa5 && to[at + n] == 0xa5, "%zu bytes, %zu ahead: more was written", n, ahead);
        }
    cr_assert(qr_copies_slowly(4096 + 31, 4096) && qr_copies_slowly(1, 0) && qr_copies_slowly(10, 4096 + 5));
    cr_assert(!qr_copies_slowly(4096 + 32, 4096) && !qr_copies_slowly(4096, 4096) && !qr_copies_slowly(4095, 4096));
    qr_free_aligned(from);
    qr_free_aligned(to);
}
