/* What peers that are none, or lie, or break cost: time. */
#include <criterion/criterion.h>
#include <sys/stat.h>

#include "tests/exchange/pair.h"
#include "tests/exchange/fake.h"

static void unix_address(char out[128], const char *what)
{
    snprintf(out, 128, "unix:/tmp/quire-peer-%d-%s", (int)getpid(), what);
}

/* ---- addresses ---- */

static int try_open(const char *listen, const char *peer, const char *secret, struct qr_err *err)
{
    sem_t bell;
    struct rig r;
    sem_init(&bell, 0, 0);
    struct qr_exchange_config config = rig_config(&bell);
    config.listen = listen;
    config.peer[0] = peer;
    config.n_peers = peer != NULL;
    config.secret = secret;
    config.n_secret = secret ? strlen(secret) : 0;
    const int rc = rig_open(&r, &config, err);
    if (rc == 0)
        rig_close(&r);
    return rc;
}

Test(peers, addresses_that_are_none_are_refused_by_name)
{
    static const struct {
        const char *text;
        int rc;
    } bad[] = {
        {"", QR_E_USAGE}, {"host", QR_E_USAGE}, {"host:", QR_E_USAGE}, {":7", QR_E_USAGE}, {"host:65536", QR_E_USAGE}, {"host:7x", QR_E_USAGE},
        {"host:-1", QR_E_USAGE}, {"::1:7", QR_E_USAGE}, {"[::1]7", QR_E_USAGE}, {"[::1", QR_E_USAGE}, {"[]:7", QR_E_USAGE}, {"unix:", QR_E_USAGE},
        {"127.0.0.1:1:2", QR_E_USAGE},
    };
    struct qr_err err;
    for (int i = 0; i < QR_COUNT(bad); i++) {
        cr_assert_eq(try_open(NULL, bad[i].text, "s", &err), bad[i].rc, "%s", bad[i].text);
        cr_assert(strstr(err.msg, bad[i].text), "%s", err.msg);
    }
    const int rc = try_open(NULL, "ucx:host", "s", &err);
    cr_assert(rc == QR_E_USAGE || (rc == QR_E_UNSUPPORTED && strstr(err.msg, "built without UCX")), "%s", err.msg);
    char longer[400] = "unix:";
    memset(longer + 5, 'a', 300);
    cr_assert_eq(try_open(NULL, longer, NULL, &err), QR_E_USAGE);
    longer[115] = 0; /* a socket's path has at most 107 bytes */
    cr_assert_eq(try_open(NULL, longer, NULL, &err), QR_E_USAGE);
}

Test(peers, without_a_secret_peers_are_on_this_machine)
{
    static const char *const far[] = {"0.0.0.0:0", "10.1.2.3:7", "[::]:0", "example.invalid:7", "128.0.0.1:7"};
    static const char *const near[] = {"127.0.0.1:0", "127.1.2.3:0", "localhost:0"};
    struct qr_err err;
    for (int i = 0; i < QR_COUNT(far); i++) {
        cr_assert_eq(try_open(NULL, far[i], NULL, &err), QR_E_USAGE, "%s", far[i]);
        cr_assert(strstr(err.msg, "--peer-secret-file"), "%s", err.msg);
        cr_assert_eq(try_open(far[i], NULL, NULL, &err), QR_E_USAGE);
        cr_assert_eq(try_open(NULL, far[i], "s", &err), 0, "%s", err.msg);
    }
    cr_assert_eq(try_open("0.0.0.0:0", NULL, "s", &err), 0, "%s", err.msg);
    for (int i = 0; i < QR_COUNT(near); i++)
        cr_assert_eq(try_open(near[i], near[i], NULL, &err), 0, "%s", err.msg);
}

Test(peers, a_peer_is_found_by_its_address_however_it_is_written)
{
    sem_t bell;
    struct rig r;
    struct qr_err err;
    sem_init(&bell, 0, 0);
    struct qr_exchange_config config = rig_config(&bell);
    const char *const peers[] = {"unix:/tmp/a", "127.0.0.1:7", "Localhost:8", "[::1]:9"};
    for (int i = 0; i < 4; i++)
        config.peer[config.n_peers++] = peers[i];
    cr_assert_eq(rig_open(&r, &config, &err), 0);
    cr_assert_eq(qr_exchange_peer(r.x, "unix:/tmp/a"), 0);
    cr_assert_eq(qr_exchange_peer(r.x, "127.0.0.1:07"), 1);
    cr_assert_eq(qr_exchange_peer(r.x, "localhost:8"), 2);
    cr_assert_eq(qr_exchange_peer(r.x, "[::1]:9"), 3);
    static const char *const none[] = {"unix:/tmp/A", "127.0.0.1:8", "localhost:7", "evil:7", "", "[::1", "/tmp/a"};
    for (int i = 0; i < QR_COUNT(none); i++)
        cr_assert_eq(qr_exchange_peer(r.x, none[i]), -1, "%s", none[i]);
    cr_assert_null(qr_exchange_address(r.x));
    rig_close(&r);
}

Test(peers, a_socket_is_its_owners_and_one_that_is_left_is_replaced)
{
    char address[128];
    struct stat st;
    struct qr_err err;
    sem_t bell;
    struct rig a, b;
    unix_address(address, "s");
    sem_init(&bell, 0, 0);
    struct qr_exchange_config config = rig_config(&bell);
    config.listen = address;
    const int left = socket(AF_UNIX, SOCK_STREAM, 0); /* bound, not listening: as after a kill */
    struct fake f;
    fake_listen(&f, address);
    close(f.listener);
    cr_assert_eq(stat(address + 5, &st), 0);
    close(left);
    cr_assert_eq(rig_open(&a, &config, &err), 0, "%s", err.msg);
    cr_assert_eq(stat(address + 5, &st), 0);
    cr_assert_eq(st.st_mode & 0777, 0600);
    cr_assert_eq(rig_open(&b, &config, &err), QR_E_BIND);
    cr_assert(strstr(err.msg, "another process does"), "%s", err.msg);
    rig_close(&a);
    cr_assert_neq(stat(address + 5, &st), 0);
    FILE *file = fopen(address + 5, "w");
    fclose(file);
    cr_assert_eq(rig_open(&a, &config, &err), QR_E_BIND);
    cr_assert(strstr(err.msg, "is not a socket"), "%s", err.msg);
    unlink(address + 5);
}

Test(peers, one_that_listens_everywhere_is_found_by_the_address_that_it_tells)
{
    struct pair p;
    struct qr_err err;
    sem_init(&p.bell, 0, 0);
    struct qr_exchange_config config = rig_config(&p.bell);
    config.secret = "s";
    config.n_secret = 1;
    config.listen = "0.0.0.0:0";
    cr_assert_eq(rig_open(&p.side[0], &config, &err), 0, "%s", err.msg);
    const char *told = qr_exchange_address(p.side[0].x), *port = strrchr(told, ':');
    cr_assert(strncmp(told, "0.0.0.0", 7) != 0 && strcmp(port, ":0") != 0, "%s", told);
    snprintf(p.address, sizeof p.address, "%s%s", "localhost", port);
    config.listen = NULL;
    config.peer[0] = p.address;
    config.n_peers = 1;
    cr_assert_eq(rig_open(&p.side[1], &config, &err), 0, "%s", err.msg);
    char numeric[64];
    snprintf(numeric, sizeof numeric, "127.0.0.1%s", port);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, rig_stats(&p.side[1]).n_connected == 1));
    cr_assert_eq(qr_exchange_peer(p.side[1].x, numeric), 0);
    cr_assert_eq(qr_exchange_peer(p.side[1].x, p.address), 0);
    pair_close(&p);
}

/* ---- the hello ---- */

/* Whether the two connect, or the lender refuses. */
static bool connects(const char *listen, const char *secret[2], int domain[2], size_t block_bytes[2])
{
    sem_t bell;
    struct rig side[2];
    struct rig_fetch f;
    struct qr_err err;
    char address[QR_PEER_ADDRESS_MAX];
    sem_init(&bell, 0, 0);
    for (int i = 0; i < 2; i++) {
        struct qr_exchange_config config = rig_config(&bell);
        config.secret = secret[i];
        config.n_secret = secret[i] ? strlen(secret[i]) : 0;
        memset(&config.domain, domain[i], sizeof config.domain);
        config.block_bytes = block_bytes[i];
        config.listen = i == 0 ? listen : NULL;
        config.peer[0] = address;
        config.n_peers = i;
        cr_assert_eq(rig_open(&side[i], &config, &err), 0, "%s", err.msg);
        if (i == 0)
            snprintf(address, sizeof address, "%s", qr_exchange_address(side[0].x));
    }
    cr_assert(RIG_UNTIL(&bell, side, 2, rig_stats(&side[1]).n_connected + rig_stats(&side[0]).n_refused > 0));
    const bool connected = rig_stats(&side[1]).n_connected == 1;
    rig_ask(&side[1], &f, 0, 1, 0);
    cr_assert(RIG_UNTIL(&bell, side, 2, f.over));
    cr_assert(connected || strcmp(f.fetch.why, "the peer is not connected") == 0);
    for (int i = 0; i < 2; i++)
        rig_close(&side[i]);
    return connected;
}

Test(peers, only_peers_with_the_same_secret_and_model_connect)
{
    static const struct {
        const char *secret[2];
        int domain[2];
        size_t block_bytes[2];
        bool connects;
    } c[] = {
        {{"one", "one"}, {1, 1}, {RIG_BLOCK_BYTES, RIG_BLOCK_BYTES}, true},  {{"one", "two"}, {1, 1}, {RIG_BLOCK_BYTES, RIG_BLOCK_BYTES}, false},
        {{NULL, "one"}, {1, 1}, {RIG_BLOCK_BYTES, RIG_BLOCK_BYTES}, false},  {{"one", NULL}, {1, 1}, {RIG_BLOCK_BYTES, RIG_BLOCK_BYTES}, false},
        {{"one", "one"}, {1, 2}, {RIG_BLOCK_BYTES, RIG_BLOCK_BYTES}, false}, {{"one", "one"}, {1, 1}, {RIG_BLOCK_BYTES, RIG_BLOCK_BYTES / 2}, false},
    };
    char text[128];
    unix_address(text, "h");
    for (int i = 0; i < QR_COUNT(c); i++)
        for (int wire = 0; wire < 2; wire++)
            cr_assert_eq(connects(wire ? text : "127.0.0.1:0", (const char **)c[i].secret, (int *)c[i].domain, (size_t *)c[i].block_bytes), c[i].connects,
                         "case %d", i);
}

struct asker {
    sem_t bell;
    struct rig r;
    struct fake fake;
};

/* One that asks, with a peer that the test is. */
static void asker_open(struct asker *a, const char *secret)
{
    struct qr_err err;
    char address[128];
    unix_address(address, "f");
    sem_init(&a->bell, 0, 0);
    fake_listen(&a->fake, address);
    struct qr_exchange_config config = rig_config(&a->bell);
    config.peer[0] = address;
    config.n_peers = 1;
    config.secret = secret;
    config.n_secret = secret ? strlen(secret) : 0;
    cr_assert_eq(rig_open(&a->r, &config, &err), 0, "%s", err.msg);
}

static void asker_close(struct asker *a)
{
    rig_close(&a->r);
    fake_close(&a->fake);
}

Test(peers, a_proof_that_is_sent_back_is_none)
{
    struct asker a;
    struct qr_frame frame;
    asker_open(&a, "secret");
    fake_accept(&a.fake);
    cr_assert(fake_hello(&a.fake, 0, 0));
    cr_assert(fake_hear(&a.fake, &frame, 5000));
    cr_assert_eq(frame.kind, QR_FRAME_PROOF);
    fake_say(&a.fake, &frame, -1);
    cr_assert_not(fake_hear(&a.fake, &frame, 5000));
    cr_assert_eq(rig_stats(&a.r).n_connected, 0);
    cr_assert_eq(rig_stats(&a.r).n_refused, 1);
    asker_close(&a);
}

/* ---- lenders that lie ---- */

enum lie { TRUTH, SUM, NAME, INDEX, NUMBER, FAR_NUMBER, ID, KIND, STATE, LENGTH, SILENCE, LIES };

static void say_lie(struct fake *f, enum lie lie, const struct qr_frame *ask, bool shared)
{
    uint8_t bytes[RIG_BLOCK_BYTES];
    static const uint8_t none[] = {QR_FRAME_STATE, 0, 0, 0, 0, 0, 0, 0, 255, 255, 255, 255}, odd[] = {99, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0};
    struct qr_frame block = {.kind = QR_FRAME_BLOCK, .id = ask->id};
    rig_fill(bytes, 0);
    rig_name(&block.block.name, 0);
    block.block.sum = qr_hash128_plain(bytes, sizeof bytes);
    block.block.sum.lo += lie == SUM;
    block.block.name.byte[31] ^= lie == NAME;
    block.block.index = lie == INDEX;
    block.block.number = lie == NUMBER ? 2 : lie == FAR_NUMBER ? 1000000 : 0;
    block.id += lie == ID;
    if (lie == KIND || lie == LENGTH)
        fake_write(f, lie == KIND ? odd : none, sizeof none, -1);
    else if (lie == STATE)
        fake_say(f, &(struct qr_frame){.kind = QR_FRAME_STATE, .id = ask->id, .state = {.n_there = 2}}, -1);
    else if (lie != SILENCE)
        fake_say(f, &block, -1);
    if (!shared && lie != SILENCE)
        fake_write(f, bytes, sizeof bytes, -1);
}

static void lie_once(struct asker *a, enum lie lie, bool shared)
{
    enum { N_SHARED = 2, STRIDE = 20480 };
    struct qr_frame frame;
    struct rig_fetch f;
    const int memory = shared ? fake_memory(N_SHARED * STRIDE, true) : -1;
    if (shared) {
        uint8_t bytes[RIG_BLOCK_BYTES];
        rig_fill(bytes, 0);
        cr_assert_eq(pwrite(memory, bytes, sizeof bytes, 0), (ssize_t)sizeof bytes);
    }
    cr_assert(fake_lender(&a->fake, shared ? N_SHARED : 0, shared ? STRIDE : 0, memory));
    cr_assert(RIG_UNTIL(&a->bell, &a->r, 1, rig_stats(&a->r).n_connected == 1));
    rig_ask(&a->r, &f, 0, 1, 0);
    cr_assert(fake_hear(&a->fake, &frame, 5000));
    cr_assert_eq(frame.kind, QR_FRAME_ASK);
    say_lie(&a->fake, lie, &frame, shared);
    if (lie == SILENCE)
        fake_hang_up(&a->fake);
    cr_assert(RIG_UNTIL(&a->bell, &a->r, 1, f.over));
    cr_assert_eq(f.n_arrived, lie == TRUTH, "lie %d", lie);
    cr_assert_eq(f.fetch.why == NULL, lie == TRUTH);
    if (lie == TRUTH && shared)
        cr_assert(fake_hear(&a->fake, &frame, 5000) && frame.kind == QR_FRAME_DONE && frame.number == 0);
    else if (lie != TRUTH && lie != SILENCE)
        cr_assert_not(fake_hear(&a->fake, &frame, 5000), "lie %d: the connection stays", lie);
    fake_hang_up(&a->fake);
    if (memory >= 0)
        close(memory);
    cr_assert(RIG_UNTIL(&a->bell, &a->r, 1, rig_stats(&a->r).n_connected == 0));
    cr_assert_eq(a->r.n_wrong + a->r.n_bad_order, 0);
}

Test(peers, one_that_lies_is_hung_up_on_and_its_bytes_are_not_used)
{
    struct asker a;
    asker_open(&a, NULL);
    for (enum lie lie = 0; lie < LIES; lie++) {
        for (int shared = 0; shared < 2; shared++) {
            const struct qr_exchange_stats before = rig_stats(&a.r);
            lie_once(&a, lie, shared);
            const struct qr_exchange_stats after = rig_stats(&a.r);
            cr_assert_eq(after.n_bad_sum - before.n_bad_sum, lie == SUM || lie == NAME, "lie %d", lie);
            cr_assert_eq(after.n_bad_frame - before.n_bad_frame, lie >= INDEX && lie < SILENCE, "lie %d", lie);
        }
    }
    asker_close(&a);
}

Test(peers, memory_that_could_become_shorter_or_is_none_is_refused)
{
    struct asker a;
    struct qr_frame frame;
    int pipes[2];
    cr_assert_eq(pipe(pipes), 0);
    asker_open(&a, NULL);
    const int memory[] = {-1, fake_memory(2 * 20480, false), fake_memory(2 * 20480 - 1, true), pipes[0], open("/dev/zero", O_RDONLY)};
    for (int i = 0; i < QR_COUNT(memory); i++) {
        fake_lender(&a.fake, 2, 20480, memory[i]);
        cr_assert_not(fake_hear(&a.fake, &frame, 5000), "case %d", i);
        cr_assert(RIG_UNTIL(&a.bell, &a.r, 1, rig_stats(&a.r).n_refused == i + 1));
        fake_hang_up(&a.fake);
    }
    asker_close(&a);
}

Test(peers, memory_that_is_lent_cannot_be_written_to_however_it_is_opened)
{
    struct pair p;
    char address[128], path[64];
    unix_address(address, "m");
    pair_open(&p, address, 4, NULL);
    struct fake f;
    int memory = -1;
    const struct qr_exchange_config config = rig_config(&p.bell);
    const struct qr_frame_hello hello = {.version = QR_FRAME_VERSION, .block_bytes = config.block_bytes, .domain = config.domain};
    cr_assert(fake_guest(&f, p.address, &hello, &memory));
    cr_assert_geq(memory, 0);
    snprintf(path, sizeof path, "/proc/self/fd/%d", memory);
    const int again = open(path, O_RDWR);
    cr_assert(pwrite(memory, "x", 1, 0) < 0 && (again < 0 || pwrite(again, "x", 1, 0) < 0));
    cr_assert(again < 0 || mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, again, 0) == MAP_FAILED);
    close(memory);
    close(again);
    fake_close(&f);
    pair_close(&p);
}

/* ---- guests that are none ---- */

Test(peers, guests_that_say_nothing_or_nonsense_are_bounded_and_hurt_no_other)
{
    enum { N = 80 };
    struct pair p;
    struct qr_wire_place place;
    struct qr_err err;
    struct rig_fetch f;
    int fd[N];
    const char *why;
    char nonsense[4096];
    pair_open(&p, "127.0.0.1:0", 4, NULL);
    cr_assert_eq(qr_wire_parse(&place, p.address, &err), 0);
    memset(nonsense, 'G', sizeof nonsense);
    for (int i = 0; i < N; i++) {
        fd[i] = place.wire->connect(&place, &why);
        cr_assert_geq(fd[i], 0);
        if (i % 2)
            (void)!send(fd[i], nonsense, sizeof nonsense, MSG_NOSIGNAL);
    }
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, rig_stats(&p.side[0]).n_bad_frame > 20));
    p.side[0].n_has = 100;
    rig_ask(&p.side[1], &f, 0, 50, 0);
    cr_assert(RIG_UNTIL(&p.bell, p.side, 2, f.over));
    cr_assert_eq(f.n_arrived, 50);
    const int64_t from_us = qr_clock_us();
    pair_close(&p); /* with forty that still say nothing */
    cr_assert_lt(qr_clock_us() - from_us, TEST_SOON_US(1000 * 1000));
    for (int i = 0; i < N; i++)
        close(fd[i]);
    place.wire->forget(&place);
}

Test(peers, the_end_does_not_wait_for_any_peer)
{
    struct asker a;
    asker_open(&a, NULL);
    fake_accept(&a.fake); /* and no more */
    struct rig other;
    struct qr_err err;
    struct qr_exchange_config config = rig_config(&a.bell);
    config.secret = "s";
    config.n_secret = 1;
    config.peer[0] = "192.0.2.1:7"; /* of no machine: a documentation's address */
    config.peer[1] = "no-such-host.invalid:7";
    config.n_peers = 2;
    cr_assert_eq(rig_open(&other, &config, &err), 0);
    for (int i = 0; i < 10; i++)
        rig_wait(&a.bell, 2000);
    const int64_t from_us = qr_clock_us();
    rig_close(&other);
    asker_close(&a);
    cr_assert_lt(qr_clock_us() - from_us, TEST_SOON_US(1000 * 1000));
}
