/* fuzz_ranks.c - any bytes as what another rank sends, as its hello, as what Slurm says of a step: a sum ends with the right number of bytes or with an error,
 * a hello is refused or fits, a group's numbers are in their ranges. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/assert.h"
#include "comm/launch.h"
#include "comm/rendezvous.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void as_messages(const uint8_t *data, size_t size)
{
    float sums[16] = {1};
    const struct qr_comm_call call = {.kind = QR_COMM_ALL_REDUCE, .dtype = QR_F32, .data = sums, .n = 16};
    struct qr_comm_link link[2] = {{.fd = -1}};
    struct qr_comm c;
    struct qr_err err = {0};
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0)
        return;
    link[1].fd = pair[0];
    if (send(pair[1], data, size < 60000 ? size : 60000, MSG_DONTWAIT) < 0 || shutdown(pair[1], SHUT_WR) != 0)
        size = 0;
    qr_comm_open_tcp(&c, 0, 2, link);
    int rc = qr_comm_run(&c, &call, &err);
    rc = rc ? rc : qr_comm_run(&c, &call, &err);
    QR_ASSERT(rc == 0 || ((rc == QR_E_CLOSED || rc == QR_E_INVALID) && err.msg[0]));
    qr_comm_close(&c);
    close(pair[1]);
}

static void as_hello(const uint8_t *data, size_t size)
{
    const struct qr_rendezvous z = {.rank = 1, .size = 5};
    struct qr_rendezvous_hello h = {0};
    struct qr_err err = {0};
    memcpy(&h, data, size < sizeof h ? size : sizeof h);
    if (qr_rendezvous_check(&z, &h, &err) == 0)
        QR_ASSERT(h.rank > 1 && h.rank < 5 && h.size == 5 && h.port < 65536 && strlen(h.version) < sizeof h.version);
    else
        QR_ASSERT(err.msg[0]);
}

static void as_step(const uint8_t *data, size_t size)
{
    static const char *const fixed[][2] = {{"SLURM_STEP_NUM_TASKS", "6"}, {"SLURM_PROCID", "4"}, {"SLURM_LOCALID", "1"}, {"SLURM_NODEID", "2"},
                                           {"SLURM_JOB_ID", "7"}, {"SLURM_STEP_ID", "0"}};
    char text[1000];
    struct qr_comm_group g;
    const size_t n = size < sizeof text ? size : sizeof text - 1;
    memcpy(text, data, n);
    text[n] = 0;
    for (int i = 0; i < QR_COUNT(fixed); i++)
        setenv(fixed[i][0], fixed[i][1], 1);
    setenv("SLURM_STEP_TASKS_PER_NODE", text, 1);
    setenv("SLURM_STEP_NODELIST", text, 1);
    QR_ASSERT(qr_comm_group_find(&g));
    QR_ASSERT(g.local_rank >= 0 && g.local_rank < g.local_size && strlen(g.at) < sizeof g.at);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static void (*const as[])(const uint8_t *data, size_t size) = {as_messages, as_hello, as_step};
    if (size > 0)
        as[data[0] % QR_COUNT(as)](data + 1, size - 1);
    return 0;
}
