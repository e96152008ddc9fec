/* fair.c - the tree of counters: root, keys, users. Every call is O(clients in the table) and allocates nothing. */
#include "scheduler/fair.h"

#include <string.h>

#include "base/assert.h"
#include "base/mem.h"

enum { ROOT = 0 };

static double larger(double a, double b)
{
    return a > b ? a : b;
}

void qr_fair_init(struct qr_fair *f, int32_t n_inside_max, int32_t n_idle_max)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(n_inside_max >= 1 && n_idle_max >= 0);
    *f = (struct qr_fair){.n = 1, .n_max = 1 + 2 * n_inside_max + n_idle_max}; /* a sequence inside keeps its user and its key */
    f->node = qr_alloc((size_t)f->n_max, sizeof *f->node);
    f->node[ROOT] = (struct qr_fair_node){.parent = -1, .last = -1, .weight = 1};
}

void qr_fair_release(struct qr_fair *f)
{
    QR_ASSERT(f != NULL);
    qr_free(f->node);
    *f = (struct qr_fair){0};
}

void qr_fair_copy(struct qr_fair *to, const struct qr_fair *from)
{
    QR_ASSERT(to != NULL && from != NULL);
    QR_ASSERT(to->n_max == from->n_max);
    memcpy(to->node, from->node, (size_t)from->n * sizeof *to->node);
    to->n = from->n;
    to->turn = from->turn;
    to->any_passed = from->any_passed;
}

/* ---- who is here ---- */

/* A place for one more node: a free one, or that of the leaf that was idle longest. */
static int32_t free_place(struct qr_fair *f, int32_t kept)
{
    int32_t oldest = -1;
    if (f->n < f->n_max)
        return f->n++;
    for (int32_t i = ROOT + 1; i < f->n; i++) {
        const struct qr_fair_node *x = &f->node[i];
        if (i != kept && x->n_inside == 0 && x->n_children == 0 && (oldest < 0 || x->used < f->node[oldest].used))
            oldest = i;
    }
    QR_ASSERT(oldest > ROOT);
    struct qr_fair_node *parent = &f->node[f->node[oldest].parent];
    parent->forgotten = larger(parent->forgotten, f->node[oldest].counter);
    parent->last = parent->last == oldest ? -1 : parent->last;
    parent->n_children--;
    return oldest;
}

/* Where a client begins that is not in the table: where the one that stopped waiting last is by now (Golestani 1994), though not above all that wait. */
static double beginning(const struct qr_fair *f, int32_t parent)
{
    const struct qr_fair_node *p = &f->node[parent];
    const double last = p->last >= 0 ? f->node[p->last].counter : 0;
    double highest = 0;
    for (int32_t i = ROOT + 1; i < f->n; i++)
        if (f->node[i].parent == parent && f->node[i].n_waiting > 0)
            highest = larger(highest, f->node[i].counter);
    return larger(p->forgotten, last < highest ? last : highest);
}

static int32_t child(struct qr_fair *f, int32_t parent, uint64_t id)
{
    for (int32_t i = ROOT + 1; i < f->n; i++)
        if (f->node[i].id == id && f->node[i].parent == parent)
            return i;
    const int32_t i = free_place(f, parent);
    f->node[i] = (struct qr_fair_node){.id = id, .counter = beginning(f, parent), .parent = parent, .last = -1, .weight = 1};
    f->node[parent].n_children++;
    return i;
}

int32_t qr_fair_join(struct qr_fair *f, const struct qr_client *client)
{
    QR_ASSERT(f != NULL && client != NULL);
    QR_ASSERT(client->weight >= 0);
    const int32_t key = child(f, ROOT, client->key), user = child(f, key, client->user);
    f->node[key].weight = client->weight > 0 ? client->weight : 1;
    f->turn++;
    for (int32_t i = user; i >= ROOT; i = f->node[i].parent) {
        f->node[i].n_inside++;
        f->node[i].used = f->turn;
    }
    return user;
}

void qr_fair_leave(struct qr_fair *f, int32_t user)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(user > ROOT && user < f->n && f->node[user].n_inside > 0);
    f->turn++;
    for (int32_t i = user; i >= ROOT; i = f->node[i].parent) {
        f->node[i].n_inside--;
        f->node[i].used = f->turn;
    }
}

/* ---- whose turn it is ---- */

static bool before(const struct qr_fair_node *a, const struct qr_fair_node *b)
{
    return a->counter != b->counter ? a->counter < b->counter : a->since < b->since;
}

/* Of parent's children that wait and were not passed, or -1. */
static int32_t smallest(const struct qr_fair *f, int32_t parent)
{
    int32_t best = -1;
    for (int32_t i = ROOT + 1; i < f->n; i++) {
        const struct qr_fair_node *x = &f->node[i];
        if (x->parent == parent && x->n_waiting > 0 && !x->passed && (best < 0 || before(x, &f->node[best])))
            best = i;
    }
    return best;
}

/* What one that begins to wait has at least. Whether others were passed does not matter here. */
static double level(const struct qr_fair *f, int32_t parent)
{
    const struct qr_fair_node *p = &f->node[parent];
    double least = -1;
    if (p->n_waiting == 0)
        return p->last >= 0 ? f->node[p->last].counter : p->forgotten;
    for (int32_t i = ROOT + 1; i < f->n; i++) {
        const struct qr_fair_node *x = &f->node[i];
        if (x->parent == parent && x->n_waiting > 0 && (least < 0 || x->counter < least))
            least = x->counter;
    }
    return least;
}

void qr_fair_wait(struct qr_fair *f, int32_t user)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(user > ROOT && user < f->n && f->node[user].n_inside > 0);
    f->turn++;
    for (int32_t i = user; i > ROOT; i = f->node[i].parent) { /* a node before its parent: who waits there is not yet counted */
        struct qr_fair_node *x = &f->node[i];
        if (x->n_waiting == 0) {
            x->counter = larger(x->counter, level(f, x->parent));
            x->since = f->turn;
        }
        x->n_waiting++;
    }
    f->node[ROOT].n_waiting++;
}

void qr_fair_unwait(struct qr_fair *f, int32_t user)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(user > ROOT && user < f->n && f->node[user].n_waiting > 0);
    for (int32_t i = user; i >= ROOT; i = f->node[i].parent) {
        struct qr_fair_node *x = &f->node[i];
        if (--x->n_waiting == 0 && i != ROOT)
            f->node[x->parent].last = i;
    }
}

void qr_fair_begin(struct qr_fair *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->n >= 1);
    for (int32_t i = ROOT; i < f->n && f->any_passed; i++)
        f->node[i].passed = false;
    f->any_passed = false;
}

int32_t qr_fair_next(struct qr_fair *f)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(f->node[ROOT].n_waiting >= 0);
    for (int32_t key; (key = smallest(f, ROOT)) >= 0; f->node[key].passed = true) {
        const int32_t user = smallest(f, key);
        if (user >= 0)
            return user;
    }
    return -1;
}

void qr_fair_pass(struct qr_fair *f, int32_t user)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(user > ROOT && user < f->n);
    f->node[user].passed = f->any_passed = true;
}

void qr_fair_take(struct qr_fair *f, int32_t user)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(user > ROOT && f->node[user].n_waiting > 0);
    for (int32_t i = user; i > ROOT && f->any_passed; i = f->node[i].parent)
        for (int32_t k = ROOT + 1; k < f->n; k++)
            if (f->node[k].passed && f->node[k].parent == f->node[i].parent)
                f->node[k].counter = larger(f->node[k].counter, f->node[i].counter);
}

void qr_fair_charge(struct qr_fair *f, int32_t user, double service)
{
    QR_ASSERT(f != NULL && service >= 0);
    QR_ASSERT(user > ROOT && user < f->n);
    for (int32_t i = user; i > ROOT; i = f->node[i].parent)
        f->node[i].counter += service / f->node[i].weight;
}

const char *qr_fair_check(const struct qr_fair *f, double most)
{
    QR_ASSERT(f != NULL);
    QR_ASSERT(most >= 0);
    for (int32_t p = ROOT; p < f->n; p++) {
        const struct qr_fair_node *parent = &f->node[p];
        int32_t n_children = 0, n_inside = 0, n_waiting = 0;
        if (parent->n_children == 0)
            continue;
        for (int32_t i = ROOT + 1; i < f->n; i++) {
            const struct qr_fair_node *x = &f->node[i];
            if (x->parent != p)
                continue;
            n_children++;
            n_inside += x->n_inside;
            n_waiting += x->n_waiting;
            if (x->counter > level(f, p) + most + 1e-9 * x->counter)
                return "a client was served more than the bound allows";
        }
        if (n_children != parent->n_children || n_inside != parent->n_inside || n_waiting != parent->n_waiting)
            return "the sequences of clients do not add up";
    }
    return NULL;
}
