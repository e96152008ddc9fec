/* mutate - runs a fuzz target without libFuzzer: every input of its corpus, then for some seconds inputs made of them by random changes.
 * `./dev test` does so in the sanitizer build that it has anyway; `./dev fuzz` lets libFuzzer, which sees what code an input reaches, search.
 *
 * fuzz_X SECONDS CORPUS: prints "X: N inputs". An input that ends the process, or takes ten seconds, is kept as crash-fuzz_X in the current
 * directory. QUIRE_FUZZ_SEED repeats a run as far as the clock allows; the seed is printed.
 */
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rng.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
void __sanitizer_set_death_callback(void (*callback)(void)) __attribute__((weak));
const char *__asan_default_options(void);

enum { INPUTS_MAX = 4096, SIZE_MIN_MAX = 4096, INPUT_SECONDS_MAX = 10, CHANGES_MAX = 6 };

struct input {
    uint8_t *data;
    size_t size;
};

static struct input inputs[INPUTS_MAX];
static int32_t n_inputs;
static size_t size_max = SIZE_MIN_MAX;
static struct input current; /* what the target has now */
static char crash_path[300];

/* An input that wants 64 MiB in one piece, or a GiB in all, is a finding, too. */
const char *__asan_default_options(void)
{
    return "max_allocation_size_mb=64:hard_rss_limit_mb=1024:handle_abort=0";
}

/* Called where the process ends: by a sanitizer, or by a signal. */
static void keep_input(void)
{
    if (!current.data) /* a leak, found behind the last one */
        return;
    int fd = open(crash_path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0 || write(fd, current.data, current.size) != (ssize_t)current.size)
        return;
    close(fd);
}

static void end_by_signal(int signal_)
{
    static const char slow[] = "FAIL: an input takes ten seconds\n", failed[] = "FAIL: an assertion\n";
    keep_input();
    const char *why = signal_ == SIGALRM ? slow : failed;
    if (write(STDERR_FILENO, why, strlen(why)) < 0) {
    }
    _exit(1);
}

/* The target has a copy that is exactly as long, so that a read behind it is seen. */
static void run(const uint8_t *data, size_t size)
{
    current = (struct input){.data = malloc(size), .size = size};
    QR_ASSERT(current.data || !size);
    if (size)
        memcpy(current.data, data, size);
    alarm(INPUT_SECONDS_MAX);
    LLVMFuzzerTestOneInput(current.data, size);
    alarm(0);
    free(current.data);
    current = (struct input){0};
}

static void read_input(const char *dir, const char *name)
{
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "rb");
    QR_ASSERT(f && n_inputs < INPUTS_MAX);
    fseek(f, 0, SEEK_END);
    size_t size = (size_t)ftell(f);
    rewind(f);
    uint8_t *data = malloc(size + 1);
    QR_ASSERT(data && fread(data, 1, size, f) == size);
    fclose(f);
    inputs[n_inputs++] = (struct input){.data = data, .size = size};
    if (size > size_max)
        size_max = size;
}

static int by_name(const void *a, const void *b)
{
    return strcmp(*(char *const *)a, *(char *const *)b);
}

/* In the order of names, so that a seed means the same on every file system. */
static void read_corpus(const char *dir)
{
    static char *names[INPUTS_MAX];
    size_t n = 0;
    DIR *d = opendir(dir);
    QR_ASSERT(d);
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.' && n < INPUTS_MAX)
            names[n++] = strdup(e->d_name);
    closedir(d);
    qsort(names, n, sizeof *names, by_name);
    for (size_t i = 0; i < n; i++) {
        read_input(dir, names[i]);
        free(names[i]);
    }
}

/* Replaces `cut` bytes at `at` by `n` others; what gets longer than allowed stays as it is. */
static void replace(struct input *x, size_t at, size_t cut, const void *bytes, size_t n)
{
    if (x->size - cut + n > size_max)
        return;
    memmove(x->data + at + n, x->data + at + cut, x->size - at - cut);
    memcpy(x->data + at, bytes, n);
    x->size += n - cut;
}

/* A number in binary where one may lie, or in digits where digits lie: 0, 1, and what lies at the edges of 32 and 64 bits. */
static void change_number(struct input *x, struct qr_rng *r, size_t at)
{
    static const uint64_t edges[] = {0, 1, 1u << 7, 1u << 15, 1u << 31, 0xffffffff, 1ull << 32, 1ull << 63, UINT64_MAX, 0x7fffffffffffffff};
    static const char *const digits[] = {"0", "-1", "2147483648", "4294967296", "9223372036854775808", "18446744073709551616", "1e999", "0.5", "00", "1e-400"};
    size_t end = at;
    while (end < x->size && x->data[end] >= '0' && x->data[end] <= '9')
        end++;
    if (end > at) {
        const char *text = digits[qr_rng_below(r, QR_COUNT(digits))];
        replace(x, at, end - at, text, strlen(text));
        return;
    }
    uint64_t edge = edges[qr_rng_below(r, QR_COUNT(edges))];
    size_t n = (size_t)1 << qr_rng_below(r, 4);
    memcpy(x->data + at, &edge, n < x->size - at ? n : x->size - at);
}

static void change(struct input *x, struct qr_rng *r)
{
    size_t at = x->size ? qr_rng_below(r, (uint32_t)x->size) : 0, left = x->size - at;
    size_t n = 1 + qr_rng_below(r, 1u << (1 + qr_rng_below(r, 7)));
    const struct input *other = &inputs[qr_rng_below(r, (uint32_t)n_inputs)];
    size_t from = other->size ? qr_rng_below(r, (uint32_t)other->size) : 0;
    uint8_t bytes[257];
    for (size_t i = 0; i < sizeof bytes; i++)
        bytes[i] = (uint8_t)qr_rng_below(r, 256);
    size_t n_left = n < left ? n : left, n_other = n < other->size - from ? n : other->size - from;
    switch (qr_rng_below(r, 9)) {
    case 0: /* a bit */
        if (left)
            x->data[at] ^= (uint8_t)(1u << qr_rng_below(r, 8));
        break;
    case 1: /* a byte */
        if (left)
            x->data[at] = bytes[0];
        break;
    case 2: replace(x, at, 0, bytes, n < 8 ? n : 8); break;
    case 3: replace(x, at, n_left, "", 0); break;
    case 4: /* twice */
        memcpy(bytes, x->data + at, n_left < sizeof bytes ? n_left : sizeof bytes);
        replace(x, at, 0, bytes, n_left < sizeof bytes ? n_left : sizeof bytes);
        break;
    case 5: replace(x, at, 0, other->data + from, n_other); break;
    case 6: replace(x, at, n_left, other->data + from, n_other); break;
    case 7: /* cut short */ x->size = at; break;
    default:
        if (left)
            change_number(x, r, at);
    }
}

int main(int argc, char **argv)
{
    QR_ASSERT(argc == 3);
    const char *name = strrchr(argv[2], '/') ? strrchr(argv[2], '/') + 1 : argv[2], *seed = getenv("QUIRE_FUZZ_SEED");
    struct qr_rng r = {.seed = seed ? strtoull(seed, NULL, 10) : 20261122};
    snprintf(crash_path, sizeof crash_path, "crash-fuzz_%s", name);
    if (__sanitizer_set_death_callback)
        __sanitizer_set_death_callback(keep_input);
    signal(SIGALRM, end_by_signal);
    signal(SIGABRT, end_by_signal);
    read_corpus(argv[2]);
    printf("%s: seed %llu\n", name, (unsigned long long)r.seed);
    fflush(stdout);
    int64_t n = 0;
    for (; n < n_inputs; n++)
        run(inputs[n].data, inputs[n].size);
    struct input x = {.data = malloc(size_max + sizeof(uint64_t))};
    QR_ASSERT(n_inputs > 0 && x.data);
    for (time_t end = time(NULL) + atoi(argv[1]); time(NULL) < end; n++) {
        const struct input *start = &inputs[qr_rng_below(&r, (uint32_t)n_inputs)];
        memcpy(x.data, start->data, start->size);
        x.size = start->size;
        for (uint32_t k = 1 + qr_rng_below(&r, CHANGES_MAX); k > 0; k--)
            change(&x, &r);
        run(x.data, x.size);
    }
    printf("%s: %lld inputs\n", name, (long long)n);
    free(x.data);
    for (int32_t i = 0; i < n_inputs; i++)
        free(inputs[i].data);
    return 0;
}
