/* processes.h - ranks that are processes of this machine, each with an emulated device of its own: the test is rank 0. */
#ifndef QR_TESTS_DEVICE_PROCESSES_H
#define QR_TESTS_DEVICE_PROCESSES_H

#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

#include "comm/comm.h"

#define PROCESSES_MAX 4

struct processes {
    struct qr_comm comm;
    pid_t pid[PROCESSES_MAX];
    int32_t n;
};

/* The others call other(comm, arg) and end, well when that returns 0. Before the test has threads. */
static inline void processes_begin(struct processes *p, int32_t n, int (*other)(struct qr_comm *comm, void *arg), void *arg)
{
    struct qr_err err;
    struct qr_comm_shared *shared;
    char text[12];
    *p = (struct processes){.n = n};
    snprintf(text, sizeof text, "%d", (int)n);
    setenv("QUIRE_EMU_DEVICES", text, 1);
    cr_assert(n <= PROCESSES_MAX && qr_comm_shared_new(&shared, n, &err) == 0);
    for (int32_t r = 1; r < n; r++) {
        p->pid[r] = fork();
        if (p->pid[r] == 0) {
            struct qr_comm c;
            qr_comm_open_shm(&c, shared, r);
            const int rc = other(&c, arg);
            qr_comm_close(&c);
            _exit(rc == 0 ? 0 : 1);
        }
        qr_comm_shared_set_pid(shared, r, (int32_t)p->pid[r]);
    }
    qr_comm_open_shm(&p->comm, shared, 0);
}

/* Returns how many of the others did not end well. */
static inline int32_t processes_end(struct processes *p)
{
    int32_t n_bad = 0;
    qr_comm_close(&p->comm);
    for (int32_t r = 1; r < p->n; r++) {
        int status = 0;
        waitpid(p->pid[r], &status, 0);
        n_bad += status != 0;
    }
    return n_bad;
}

#endif
