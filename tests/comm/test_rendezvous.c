/* Ranks that find each other by TCP on loopback, each a thread: their sums are the serial tree's; who does not fit is refused by name, and one that fits is
 * still let in; a rank that is gone is named. What launchers say in variables is a table. */
#include <arpa/inet.h>
#include <criterion/criterion.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/log.h"
#include "base/assert.h"
#include "comm/launch.h"
#include "comm/rendezvous.h"
#include "tests/comm/rig.h"

#define PATIENT_US 60000000 /* what takes this long never happens */

struct rank {
    struct qr_rendezvous z;
    struct qr_comm_link link[QR_COMM_RANKS_MAX];
    struct qr_err err;
    int rc;
    bool adds, dies;
    pthread_t thread;
};

/* A port that nobody is given while its socket is open: it is bound and does not listen, which a listener beside it may. */
static int hold_port(char at[32])
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t n = sizeof a;
    const int fd = socket(AF_INET, SOCK_STREAM, 0), yes = 1;
    cr_assert(fd >= 0 && setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0);
    cr_assert(bind(fd, (struct sockaddr *)&a, sizeof a) == 0 && getsockname(fd, (struct sockaddr *)&a, &n) == 0);
    snprintf(at, 32, "127.0.0.1:%d", ntohs(a.sin_port));
    qr_log_set_level(QR_LOG_ERROR); /* what is refused is logged */
    return fd;
}

static void *be_rank(void *arg)
{
    struct rank *r = arg;
    struct qr_comm c;
    r->rc = qr_rendezvous(r->link, &r->z, &r->err);
    for (int32_t i = 0; i < r->z.size && r->dies && r->rc == 0; i++)
        if (i != r->z.rank)
            close(r->link[i].fd);
    if (r->rc || r->dies)
        return NULL;
    qr_comm_open_tcp(&c, r->z.rank, r->z.size, r->link);
    if (r->adds) {
        rig_run(&c, 30 + (uint64_t)c.size, 12, 3000);
    } else {
        r->rc = qr_comm_barrier(&c, &r->err);
    }
    qr_comm_close(&c);
    return NULL;
}

static void start(struct rank *r)
{
    if (r->z.wait_us == 0)
        r->z.wait_us = PATIENT_US;
    cr_assert(pthread_create(&r->thread, NULL, be_rank, r) == 0);
}

static void join(struct rank *r)
{
    pthread_join(r->thread, NULL);
}

static struct rank rank_of(const char *at, int32_t rank, int32_t size, const char *secret)
{
    return (struct rank){.z = {.rank = rank, .size = size, .at = at, .secret = secret, .n_secret = strlen(secret)}};
}

Test(rendezvous, ranks_that_met_add_to_the_bits_of_the_serial_tree)
{
    char at[32];
    const int held = hold_port(at);
    static struct rank r[5];
    for (int32_t n = 2; n <= 5; n += 3) {
        for (int32_t i = n - 1; i >= 0; i--) { /* rank 0 last: the others try again */
            r[i] = rank_of(at, i, n, "all know it");
            r[i].adds = true;
            start(&r[i]);
        }
        for (int32_t i = 0; i < n; i++) {
            join(&r[i]);
            cr_assert(r[i].rc == 0, "rank %d of %d: %s", i, n, r[i].err.msg);
        }
    }
    close(held);
}

Test(rendezvous, one_that_does_not_fit_is_told_why_and_one_that_fits_comes_after_it)
{
    static const struct {
        int32_t rank, size;
        const char *first, *secret, *said[2];
    } wrong[] = {{1, 3, "", "", {"rank 0 (127.0.0.1:", "it says 3 ranks, rank 0 says 2"}},
                 {1, 2, "a", "b", {"rank 0 (127.0.0.1:", "has another secret than this rank 1 (--ranks-secret-file)"}},
                 {1, 2, "a", "", {"refuses this rank 1", "rank 1 has no secret, rank 0 has one"}},
                 {1, 2, "", "b", {"refuses this rank 1", "rank 1 has a secret, rank 0 has none"}}};
    char at[32];
    const int held = hold_port(at);
    static struct rank first, bad, good;
    for (int i = 0; i < QR_COUNT(wrong); i++) {
        first = rank_of(at, 0, 2, wrong[i].first);
        bad = rank_of(at, wrong[i].rank, wrong[i].size, wrong[i].secret);
        good = rank_of(at, 1, 2, wrong[i].first);
        start(&first);
        start(&bad);
        join(&bad);
        cr_assert(bad.rc == QR_E_DENIED && strstr(bad.err.msg, wrong[i].said[0]) && strstr(bad.err.msg, wrong[i].said[1]), "case %d: %d %s", i, bad.rc,
                  bad.err.msg);
        start(&good);
        join(&good);
        join(&first);
        cr_assert(good.rc == 0 && first.rc == 0, "case %d: %s %s", i, good.err.msg, first.err.msg);
    }
    close(held);
}

Test(rendezvous, what_a_rank_says_is_held_against_what_another_knows)
{
    const struct qr_rendezvous z = {.rank = 1, .size = 4, .secret = "s", .n_secret = 1};
    const struct qr_rendezvous_hello good = {.magic = "quire-rk", .wire = 1, .rank = 2, .size = 4, .has_secret = 1, .port = 7, .version = QUIRE_VERSION};
    struct qr_rendezvous_hello h = good;
    struct qr_err err;
    cr_assert(qr_rendezvous_check(&z, &h, &err) == 0);
    h.magic[0] ^= 1;
    cr_assert(qr_rendezvous_check(&z, &h, &err) == QR_E_INVALID);
    h = good, h.wire = 9;
    cr_assert(qr_rendezvous_check(&z, &h, &err) == QR_E_DENIED && strstr(err.msg, "wire 9"));
    h = good, memset(h.version, '9', sizeof h.version);
    cr_assert(qr_rendezvous_check(&z, &h, &err) == QR_E_DENIED && strstr(err.msg, "all ranks must be of one version"));
    for (int i = 0; i < 5; i++) {
        h = good, h.rank = (int32_t[]){1, 0, -1, 4, INT32_MIN}[i];
        cr_assert(qr_rendezvous_check(&z, &h, &err) == QR_E_DENIED && strstr(err.msg, "expected 2 to 3"), "%s", err.msg);
    }
    for (int i = 0; i < 2; i++) {
        h = good, h.port = (uint32_t[]){0, 65536}[i];
        cr_assert(qr_rendezvous_check(&z, &h, &err) == QR_E_DENIED && strstr(err.msg, "listens on port"));
    }
}

/* Rank 0, to which somebody says something else first. */
Test(rendezvous, strangers_and_ranks_that_leave_before_all_are_there_cost_time_only)
{
    char at[32];
    const int held = hold_port(at);
    static struct rank r[3], early;
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}, .sin_port = htons((uint16_t)atoi(strchr(at, ':') + 1))};
    for (int32_t i = 0; i < 3; i++)
        r[i] = rank_of(at, i, 3, "");
    start(&r[0]);
    early = rank_of(at, 1, 3, "");
    early.z.wait_us = 1000000;
    start(&early);
    join(&early);
    cr_assert(early.rc == QR_E_CLOSED && strstr(early.err.msg, "not all ranks came within 1 s"), "%s", early.err.msg);
    for (int i = 0; i < 2; i++) {
        const int fd = socket(AF_INET, SOCK_STREAM, 0);
        cr_assert(connect(fd, (struct sockaddr *)&a, sizeof a) == 0);
        for (int k = 0; k < 20 && i == 0; k++)
            send(fd, "GET / HTTP/1.1\r\n\r\n", 18, MSG_NOSIGNAL);
        close(fd);
    }
    start(&r[1]);
    start(&r[2]);
    for (int32_t i = 0; i < 3; i++) {
        join(&r[i]);
        cr_assert(r[i].rc == 0, "rank %d: %s", i, r[i].err.msg);
    }
    close(held);
}

Test(rendezvous, ranks_that_do_not_come_are_named_when_the_time_is_over)
{
    char at[32];
    const int held = hold_port(at);
    static struct rank r;
    r = rank_of(at, 0, 3, "");
    r.z.wait_us = 20000;
    start(&r);
    join(&r);
    cr_assert(r.rc == QR_E_CLOSED && strstr(r.err.msg, "ranks 1, 2 of 3 did not come within 0 s"), "%s", r.err.msg);
    r = rank_of(at, 1, 3, "");
    r.z.wait_us = 20000;
    start(&r);
    join(&r);
    cr_assert(r.rc == QR_E_BIND && strstr(r.err.msg, "rank 0 was not found within 0 s: ") && strstr(r.err.msg, "refused"), "%s", r.err.msg);
    close(held);
}

Test(rendezvous, a_rank_that_dies_is_named_to_all)
{
    char at[32];
    const int held = hold_port(at);
    static struct rank r[4];
    for (int32_t i = 0; i < 4; i++) {
        r[i] = rank_of(at, i, 4, "");
        r[i].dies = i == 2;
        start(&r[i]);
    }
    for (int32_t i = 0; i < 4; i++) {
        join(&r[i]);
        cr_assert(i == 2 || (r[i].rc == QR_E_CLOSED && strncmp(r[i].err.msg, "rank 2 (127.0.0.1:", 18) == 0 &&
                             strstr(r[i].err.msg, ") died; the others waited for it in barrier")), "rank %d: %s", i, r[i].err.msg);
    }
    close(held);
}

Test(rendezvous, an_address_that_is_none_is_refused_at_once)
{
    static const char *const none[] = {":29500", "", "host:", "host:http", "host:123456", "[::1", "[::1]x", "a:1:2"};
    struct qr_comm_link link[QR_COMM_RANKS_MAX];
    struct qr_err err;
    for (int i = 0; i < QR_COUNT(none); i++)
        for (int32_t rank = 0; rank < 2; rank++) {
            const struct qr_rendezvous z = {.rank = rank, .size = 2, .at = none[i], .wait_us = PATIENT_US};
            cr_assert(qr_rendezvous(link, &z, &err) == QR_E_USAGE && strstr(err.msg, "is no address of rank 0"), "%s", none[i]);
        }
}

/* ---- launchers ---- */

static const char *const variables[] = {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK", "PMI_SIZE", "SLURM_PROCID",
                                        "SLURM_STEP_NUM_TASKS", "LWS_GROUP_SIZE", "LWS_WORKER_INDEX", "LWS_LEADER_ADDRESS", "SLURM_NODEID", "SLURM_LOCALID",
                                        "OMPI_COMM_WORLD_LOCAL_RANK"};

static void clear(void)
{
    for (int i = 0; i < QR_COUNT(variables); i++)
        unsetenv(variables[i]);
}

/* NAME=VALUE, separated by spaces. */
static void say(const char *text)
{
    char copy[400];
    clear();
    snprintf(copy, sizeof copy, "%s", text);
    for (char *rest, *one = strtok_r(copy, " ", &rest); one; one = strtok_r(NULL, " ", &rest)) {
        *strchr(one, '=') = 0;
        setenv(one, one + strlen(one) + 1, 1);
    }
}

#define STEP "SLURM_STEP_NUM_TASKS=6 SLURM_PROCID=4 SLURM_JOB_ID=12 SLURM_STEP_ID=0 "

Test(launchers, a_group_is_what_their_variables_say)
{
    static const struct {
        const char *said, *launcher;
        int32_t rank, size, local_rank, local_size;
        const char *at; /* up to the port */
    } cases[] = {
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_LOCAL_RANK=1 OMPI_COMM_WORLD_LOCAL_SIZE=2", "mpirun", 3, 4, 1, 2, ""},
        {"OMPI_COMM_WORLD_RANK=3 OMPI_COMM_WORLD_SIZE=4 LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1", "mpirun", 3, 4, 0, 1, ""},
        {STEP "SLURM_LOCALID=0 SLURM_STEP_TASKS_PER_NODE=2(x2),1(x2) SLURM_NODEID=2 SLURM_STEP_NODELIST=n[07-09,12],x1", "srun", 4, 6, 0, 1, "n07:"},
        {STEP "SLURM_LOCALID=1 SLURM_STEP_TASKS_PER_NODE=3(x2) SLURM_NODEID=1 SLURM_STEP_NODELIST=a,b", "srun", 4, 6, 1, 3, "a:"},
        {STEP "PMI_RANK=4 PMI_SIZE=6 SLURM_LOCALID=4 SLURM_STEP_TASKS_PER_NODE=6 SLURM_STEP_NODELIST=r[1-2].rack", "srun", 4, 6, 4, 6, "r1.rack:"},
        {STEP "SLURM_LOCALID=4 SLURM_STEP_TASKS_PER_NODE=2(xa SLURM_NODEID=0 SLURM_STEP_NODELIST=r[", "srun", 4, 6, 0, 1, "r:"},
        {"PMI_RANK=1 PMI_SIZE=2 MPI_LOCALRANKID=1 MPI_LOCALNRANKS=2", "a launcher with PMI", 1, 2, 1, 2, ""},
        {"LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1 LWS_LEADER_ADDRESS=q-0.q.default", "LeaderWorkerSet", 1, 2, 0, 1, "q-0.q.default"},
        {"LWS_GROUP_SIZE=1 LWS_WORKER_INDEX=0 LWS_LEADER_ADDRESS=q-0.q.default", NULL, 0, 0, 0, 0, NULL},
        {"LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=2", NULL, 0, 0, 0, 0, NULL},
        {"LWS_GROUP_SIZE=2x LWS_WORKER_INDEX=1", NULL, 0, 0, 0, 0, NULL},
        {"SLURM_STEP_NUM_TASKS=1 SLURM_PROCID=0", NULL, 0, 0, 0, 0, NULL},
        {"SLURM_PROCID=0 SLURM_NTASKS=4", NULL, 0, 0, 0, 0, NULL}, /* a batch script, in front of srun */
        {"", NULL, 0, 0, 0, 0, NULL}};
    struct qr_comm_group g;
    for (int i = 0; i < QR_COUNT(cases); i++) {
        say(cases[i].said);
        const bool found = qr_comm_group_find(&g);
        cr_assert(found == (cases[i].launcher != NULL), "case %d", i);
        if (!found)
            continue;
        cr_assert(strcmp(g.launcher, cases[i].launcher) == 0, "case %d: %s", i, g.launcher);
        cr_assert(g.rank == cases[i].rank && g.size == cases[i].size, "case %d: %d of %d", i, g.rank, g.size);
        cr_assert(g.local_rank == cases[i].local_rank && g.local_size == cases[i].local_size, "case %d: %d of %d", i, g.local_rank, g.local_size);
        cr_assert(strncmp(g.at, cases[i].at, strlen(cases[i].at)) == 0 && (cases[i].at[0] || !g.at[0]), "case %d: %s", i, g.at);
    }
}

Test(launchers, steps_of_a_cluster_have_ports_of_their_own_behind_those_of_connections)
{
    struct qr_comm_group g;
    char text[200], before[300] = "";
    for (int step = 0; step < 5; step++) {
        snprintf(text, sizeof text, "SLURM_STEP_NUM_TASKS=2 SLURM_PROCID=0 SLURM_STEP_NODELIST=n SLURM_JOB_ID=4711 SLURM_STEP_ID=%d", step);
        say(text);
        cr_assert(qr_comm_group_find(&g) && strcmp(g.at, before) != 0);
        const int port = atoi(g.at + 2);
        cr_assert(port >= 61000 && port < 65000, "%s", g.at);
        snprintf(before, sizeof before, "%s", g.at);
    }
}

Test(launchers, what_contradicts_a_group_is_refused_by_name)
{
    struct qr_comm c;
    struct qr_comm_crew *crew;
    struct qr_err err;
    struct qr_comm_meeting m = {.rank = -1, .wait_us = PATIENT_US};
    struct qr_comm_launch_options o = {.n_ranks = 3, .meeting = &m};
    say("LWS_GROUP_SIZE=2 LWS_WORKER_INDEX=1 LWS_LEADER_ADDRESS=q-0");
    cr_assert(qr_comm_launch(&c, &crew, &o, &err) == QR_E_USAGE && strstr(err.msg, "3 ranks asked for, but LeaderWorkerSet started 2"), "%s", err.msg);
    say("LWS_GROUP_SIZE=65 LWS_WORKER_INDEX=1");
    o.n_ranks = 0;
    cr_assert(qr_comm_launch(&c, &crew, &o, &err) == QR_E_USAGE && strstr(err.msg, "started 65 ranks, expected 1 to 64"), "%s", err.msg);
    say("PMI_RANK=1 PMI_SIZE=2");
    cr_assert(qr_comm_launch(&c, &crew, &o, &err) == QR_E_USAGE && strstr(err.msg, "does not say where rank 0 is: add --ranks-at"), "%s", err.msg);
    m.rank = 1;
    cr_assert(qr_comm_launch(&c, &crew, &o, &err) == QR_E_USAGE && strstr(err.msg, "--rank 1, but of how many is not said"), "%s", err.msg);
    m.rank = o.n_ranks = 2;
    cr_assert(qr_comm_launch(&c, &crew, &o, &err) == QR_E_USAGE && strstr(err.msg, "--rank must be from 0 to 1"), "%s", err.msg);
    m.rank = 0;
    m.secret_file = "/dev/null";
    cr_assert(qr_comm_launch(&c, &crew, &o, &err) == QR_E_USAGE && strstr(err.msg, "--ranks-secret-file: the first line of /dev/null is empty"), "%s", err.msg);
    m.secret_file = "/nowhere";
    cr_assert(qr_comm_launch(&c, &crew, &o, &err) == QR_E_NOT_FOUND && strstr(err.msg, "/nowhere"), "%s", err.msg);
}
