#include <criterion/criterion.h>

#include "base/mem.h"
#include "base/rng.h"
#include "exchange/file_index.h"

enum { N_NAMES = 600, N_EXTENTS = 5, N_MAX = 300 };

/* What the index should say: where a name is, and how many entries each extent has taken. */
struct model {
    struct qr_file_place at[N_NAMES];
    bool there[N_NAMES];
    int32_t taken[N_EXTENTS], next_record, n;
};

static struct qr_kv_name name_of(int32_t i)
{
    struct qr_kv_name name = {.byte = {(uint8_t)i, (uint8_t)(i >> 8)}};
    return name;
}

static void add(struct qr_file_index *x, struct model *m, int32_t i, int32_t extent)
{
    const struct qr_kv_name name = name_of(i);
    const struct qr_file_place at = {extent, m->next_record++};
    const bool is_new = qr_file_index_add(x, &name, at);
    cr_assert_eq(is_new, !m->there[i]);
    if (is_new) {
        m->there[i] = true;
        m->at[i] = at;
        m->taken[extent]++;
        m->n++;
    }
}

static void forget(struct qr_file_index *x, struct model *m, int32_t i, bool elsewhere)
{
    const struct qr_kv_name name = name_of(i);
    struct qr_file_place at = m->at[i];
    at.record += elsewhere;
    qr_file_index_forget(x, &name, at);
    if (!elsewhere && m->there[i]) {
        m->there[i] = false;
        m->n--;
    }
}

static void drop(struct qr_file_index *x, struct model *m, int32_t extent)
{
    qr_file_index_drop(x, extent);
    m->taken[extent] = 0;
    for (int32_t i = 0; i < N_NAMES; i++)
        if (m->there[i] && m->at[i].extent == extent) {
            m->there[i] = false;
            m->n--;
        }
}

static void compare(struct qr_file_index *x, const struct model *m)
{
    cr_assert_eq(qr_file_index_count(x), m->n);
    for (int32_t i = 0; i < N_NAMES; i++) {
        const struct qr_kv_name name = name_of(i);
        struct qr_file_place at = {-1, -1};
        cr_assert_eq(qr_file_index_find(x, &at, &name), m->there[i], "name %d", i);
        cr_assert(!m->there[i] || (at.extent == m->at[i].extent && at.record == m->at[i].record), "name %d", i);
    }
}

Test(file_index, says_what_a_table_of_all_names_says_whatever_comes_and_goes)
{
    struct qr_file_index *x = qr_file_index_new(N_MAX);
    struct model *m = qr_alloc(1, sizeof *m);
    struct qr_rng r = {.seed = 30};
    for (int32_t turn = 0; turn < 20000; turn++) {
        const uint32_t what = qr_rng_below(&r, 100);
        const int32_t i = (int32_t)qr_rng_below(&r, N_NAMES), extent = (int32_t)qr_rng_below(&r, N_EXTENTS);
        int32_t taken = 0;
        for (int32_t e = 0; e < N_EXTENTS; e++)
            taken += m->taken[e];
        if (taken == N_MAX || what == 0)
            drop(x, m, extent);
        else if (what < 70)
            add(x, m, i, extent);
        else if (m->there[i])
            forget(x, m, i, what < 75);
        if (turn % 500 == 0)
            compare(x, m);
    }
    compare(x, m);
    qr_file_index_free(x);
    qr_free(m);
}

Test(file_index, has_room_for_as_many_as_it_was_made_for)
{
    struct qr_file_index *x = qr_file_index_new(N_MAX);
    for (int32_t round = 0; round < 3; round++) {
        for (int32_t i = 0; i < N_MAX; i++) {
            const struct qr_kv_name name = name_of(i);
            cr_assert(qr_file_index_add(x, &name, (struct qr_file_place){i % N_EXTENTS, i}));
        }
        cr_assert_eq(qr_file_index_count(x), N_MAX);
        for (int32_t e = 0; e < N_EXTENTS; e++)
            qr_file_index_drop(x, e);
        cr_assert_eq(qr_file_index_count(x), 0);
    }
    qr_file_index_free(x);
}
