/* util.h - what the tests of the emulated device share: device memory, orders of threads, mistakes that end a process. */
#ifndef QR_TESTS_CUDA_EMU_UTIL_H
#define QR_TESTS_CUDA_EMU_UTIL_H

#include <criterion/criterion.h>
#include <cuda_runtime.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/cuda_emu/emu.h"

#define SEED 4711

static inline void *on_device(const void *from, size_t n)
{
    void *p = NULL;
    cr_assert_eq(cudaMalloc(&p, n), cudaSuccess);
    if (from)
        cr_assert_eq(cudaMemcpy(p, from, n, cudaMemcpyHostToDevice), cudaSuccess);
    return p;
}

static inline void back(void *to, void *p, size_t n)
{
    cr_assert_eq(cudaMemcpy(to, p, n, cudaMemcpyDeviceToHost), cudaSuccess);
    cudaFree(p);
}

/* Every order of threads in turn. */
static inline void in_every_order(void (*body)(void))
{
    qr_emu_set_order(QR_EMU_FORWARD, 0);
    body();
    qr_emu_set_order(QR_EMU_BACKWARD, 0);
    body();
    for (uint64_t seed = SEED; seed < SEED + 3; seed++) {
        printf("seed %d\n", (int)seed);
        qr_emu_set_order(QR_EMU_SHUFFLED, seed);
        body();
    }
}

/* Runs body in a process of its own; what it wrote to stderr, and whether it ended by itself without a word. */
static inline bool is_quiet(void (*body)(int which), int which, char *said, size_t room)
{
    int end[2];
    cr_assert_eq(pipe(end), 0);
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        dup2(end[1], 2);
        close(end[0]);
        body(which);
        _exit(0);
    }
    close(end[1]);
    size_t n = 0;
    ssize_t got;
    char chunk[512];
    while ((got = read(end[0], chunk, sizeof chunk)) > 0)
        for (ssize_t i = 0; i < got; i++)
            if (n + 1 < room)
                said[n++] = chunk[i];
    said[n] = 0;
    close(end[0]);
    int status = 0;
    waitpid(child, &status, 0);
    return WIFEXITED(status) && WEXITSTATUS(status) == 0 && n == 0;
}

struct expected {
    const char *words, *under_asan; /* NULL: not looked for there */
};

#endif
