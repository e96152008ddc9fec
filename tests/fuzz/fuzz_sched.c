/* Bytes choose a configuration and then operations on the real scheduler and pool; the oracle is tests/scheduler/sched_world.h. */
#include "tests/scheduler/sched_world.h"

struct bytes {
    const uint8_t *at;
    size_t n;
};

/* One byte a choice; behind the end every choice is 0. */
static uint32_t draw_bytes(void *source, uint32_t n)
{
    struct bytes *b = source;
    uint32_t v = 0;
    for (uint32_t range = 1; range < n && b->n > 0; range *= 256, b->n--)
        v = v * 256 + *b->at++;
    return v % n;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static struct world w;
    struct bytes bytes = {.at = data, .n = size};
    world_init(&w, draw_bytes, &bytes);
    while (bytes.n > 0 && w.broken[0] == '\0')
        world_op(&w);
    world_drain(&w);
    if (w.broken[0] == '\0')
        world_release(&w);
    if (w.broken[0] != '\0') {
        fprintf(stderr, "broken: %s\n", w.broken);
        abort();
    }
    return 0;
}
