/* The mailbox under load: messages keep each sender's order, none is lost or doubled, full and closed refuse at once, the
 * wake function is called for every burst, waiting ends on message, close and time. A plain program, so that the thread
 * sanitizer can run it. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/mailbox.h"
#include "base/rng.h"
#include "base/thread.h"

#define CHECK(cond)                                                                                        \
    do {                                                                                                   \
        if (!(cond)) {                                                                                     \
            fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond);                              \
            exit(1);                                                                                       \
        }                                                                                                  \
    } while (0)

enum { N_SENDERS = 4, N_EACH = 20000, BOX_MAX = 64 };

struct message {
    struct qr_node node;
    int sender, number;
};

struct sender {
    struct qr_mailbox *box;
    struct message *message; /* [N_EACH] */
    int id;
    long n_refused;
};

static void *send_all(void *arg)
{
    struct sender *s = arg;
    struct qr_rng r = {.seed = 60 + (uint64_t)s->id};
    for (int i = 0; i < N_EACH; i++) {
        s->message[i] = (struct message){.sender = s->id, .number = i};
        bool urgent = qr_rng_below(&r, 100) == 0;
        while (!(urgent ? qr_mailbox_push_urgent(s->box, &s->message[i].node) : qr_mailbox_push(s->box, &s->message[i].node))) {
            s->n_refused++;
            usleep(50);
        }
        if (qr_rng_below(&r, 1000) == 0)
            usleep(200);
    }
    return NULL;
}

static void count_wake(void *arg)
{
    atomic_fetch_add((atomic_long *)arg, 1);
}

static bool push_and_ring(struct qr_mailbox *box, struct qr_node *list, int32_t n)
{
    bool ring;
    const bool taken = qr_mailbox_push_list(box, list, n, &ring);
    if (ring)
        qr_mailbox_ring(box);
    return taken;
}

/* A list is taken whole, behind what came before it, with one wake; a closed box leaves it to the caller. Quietly: who pushes rings. */
static void lists(void)
{
    enum { N = 5 };
    struct qr_mailbox box;
    atomic_long n_wakes = 0;
    struct message m[1 + N];
    struct qr_node list, out;
    qr_mailbox_init(&box, 2, count_wake, &n_wakes);
    qr_list_init(&list);
    qr_list_init(&out);
    CHECK(push_and_ring(&box, &list, 0) && atomic_load(&n_wakes) == 0);
    for (int i = 0; i < 1 + N; i++)
        m[i] = (struct message){.number = i};
    CHECK(qr_mailbox_push(&box, &m[0].node));
    for (int i = 1; i < 1 + N; i++)
        qr_list_push_back(&list, &m[i].node);
    CHECK(push_and_ring(&box, &list, N) && qr_list_empty(&list) && atomic_load(&n_wakes) == 1);
    CHECK(qr_mailbox_take(&box, &out) == 1 + N);
    for (int i = 0; i < 1 + N; i++)
        CHECK(QR_CONTAINER(qr_list_pop_front(&out), struct message, node)->number == i);
    for (int i = 1; i < 1 + N; i++)
        qr_list_push_back(&list, &m[i].node);
    CHECK(push_and_ring(&box, &list, N) && atomic_load(&n_wakes) == 2);
    CHECK(qr_mailbox_take(&box, &out) == N);
    bool ring = false;
    qr_list_splice_back(&list, &out);
    CHECK(qr_mailbox_push_list(&box, &list, N, &ring) && ring && atomic_load(&n_wakes) == 2);
    CHECK(qr_mailbox_push_list(&box, &list, 0, &ring) && !ring);
    CHECK(qr_mailbox_push_urgent(&box, &m[0].node) && atomic_load(&n_wakes) == 2); /* the first ring is still to come */
    qr_mailbox_ring(&box);
    CHECK(atomic_load(&n_wakes) == 3 && qr_mailbox_take(&box, &out) == N + 1);
    qr_mailbox_close(&box);
    qr_list_splice_back(&list, &out);
    CHECK(!push_and_ring(&box, &list, N) && !qr_list_empty(&list));
    qr_mailbox_release(&box);
}

static void many_senders_one_taker(void)
{
    struct qr_mailbox box;
    atomic_long n_wakes = 0;
    pthread_t thread[N_SENDERS];
    struct sender sender[N_SENDERS];
    int next[N_SENDERS] = {0};
    long n_bursts = 0, n_taken = 0, n_refused = 0;
    qr_mailbox_init(&box, BOX_MAX, count_wake, &n_wakes);
    for (int i = 0; i < N_SENDERS; i++) {
        sender[i] = (struct sender){.box = &box, .id = i, .message = calloc(N_EACH, sizeof(struct message))};
        CHECK(pthread_create(&thread[i], NULL, send_all, &sender[i]) == 0);
    }
    while (n_taken < (long)N_SENDERS * N_EACH) {
        struct qr_node out;
        qr_list_init(&out);
        int32_t n = n_taken % 3 ? qr_mailbox_wait(&box, &out, 1000000) : qr_mailbox_take(&box, &out);
        n_bursts += n > 0;
        for (struct qr_node *node; (node = qr_list_pop_front(&out)) != NULL; n--) {
            struct message *m = QR_CONTAINER(node, struct message, node);
            CHECK(m->number == next[m->sender]);
            next[m->sender]++;
            n_taken++;
        }
        CHECK(n == 0);
    }
    for (int i = 0; i < N_SENDERS; i++) {
        pthread_join(thread[i], NULL);
        CHECK(next[i] == N_EACH);
        n_refused += sender[i].n_refused;
        free(sender[i].message);
    }
    CHECK(atomic_load(&n_wakes) == n_bursts); /* one wake for each time the box stopped being empty */
    qr_mailbox_release(&box);
    printf("mailbox: %ld messages in %ld bursts, %ld refusals\n", n_taken, n_bursts, n_refused);
}

static void full_and_closed_refuse(void)
{
    struct qr_mailbox box;
    struct message m[4];
    struct qr_node out;
    qr_list_init(&out);
    qr_mailbox_init(&box, 2, NULL, NULL);
    CHECK(qr_mailbox_push(&box, &m[0].node));
    CHECK(qr_mailbox_push(&box, &m[1].node));
    CHECK(!qr_mailbox_push(&box, &m[2].node));
    CHECK(qr_mailbox_push_urgent(&box, &m[2].node));
    qr_mailbox_close(&box);
    CHECK(!qr_mailbox_push(&box, &m[3].node));
    CHECK(!qr_mailbox_push_urgent(&box, &m[3].node));
    CHECK(qr_mailbox_wait(&box, &out, -1) == 3); /* what was sent before the close still arrives */
    for (int i = 0; i < 3; i++)
        CHECK(qr_list_pop_front(&out) == &m[i].node);
    CHECK(qr_mailbox_wait(&box, &out, -1) == 0);
    CHECK(qr_mailbox_take(&box, &out) == 0);
    qr_mailbox_release(&box);
}

static void *close_later(void *arg)
{
    usleep(20000);
    qr_mailbox_close(arg);
    return NULL;
}

static void *poke_later(void *arg)
{
    usleep(20000);
    qr_mailbox_poke(arg);
    return NULL;
}

static void waiting_ends(void)
{
    struct qr_mailbox box;
    struct qr_node out;
    pthread_t closer;
    qr_list_init(&out);
    qr_mailbox_init(&box, 1, NULL, NULL);
    int64_t start = qr_clock_us();
    CHECK(qr_mailbox_wait(&box, &out, 0) == 0);
    CHECK(qr_mailbox_wait(&box, &out, 30000) == 0);
    CHECK(qr_clock_us() - start >= 30000);
    qr_mailbox_poke(&box);
    CHECK(qr_mailbox_wait(&box, &out, -1) == 0); /* at once, as it was poked before */
    CHECK(pthread_create(&closer, NULL, poke_later, &box) == 0);
    CHECK(qr_mailbox_wait(&box, &out, -1) == 0);
    pthread_join(closer, NULL);
    CHECK(pthread_create(&closer, NULL, close_later, &box) == 0);
    CHECK(qr_mailbox_wait(&box, &out, -1) == 0);
    pthread_join(closer, NULL);
    qr_mailbox_release(&box);
}

/* Two threads hand a turn to and fro over one futex word: no wake-up is lost. */
struct turns {
    _Atomic uint32_t word;
    int n;
};

static void *take_turns(void *arg)
{
    struct turns *t = arg;
    for (uint32_t i = 1; i < 2 * (uint32_t)t->n; i += 2) {
        for (uint32_t now; (now = atomic_load(&t->word)) != i;)
            qr_futex_wait(&t->word, now, -1);
        atomic_store(&t->word, i + 1);
        qr_futex_wake(&t->word, 1);
    }
    return NULL;
}

static void futex_hands_over(void)
{
    struct turns t = {.n = 5000};
    pthread_t other;
    CHECK(pthread_create(&other, NULL, take_turns, &t) == 0);
    for (uint32_t i = 0; i < 2 * (uint32_t)t.n; i += 2) {
        for (uint32_t now; (now = atomic_load(&t.word)) != i;)
            qr_futex_wait(&t.word, now, -1);
        atomic_store(&t.word, i + 1);
        qr_futex_wake(&t.word, 1);
    }
    pthread_join(other, NULL);
    CHECK(atomic_load(&t.word) == 2 * (uint32_t)t.n);
}

int main(void)
{
    full_and_closed_refuse();
    waiting_ends();
    futex_hands_over();
    lists();
    many_senders_one_taker();
    return 0;
}
