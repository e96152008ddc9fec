/* round_rows.c - rows of a matrix in items of 16, which all threads decode and round, or measure the error of rounding.
 *
 * Sums are taken per item and added in the order of items.
 * Guarantee: results do not depend on the number of threads; a number that is not finite is found, the first row of them.
 * Thread: one owner; items run on the backend's pool, each worker with its own rows. */
#include "loader/write/round_rows.h"

#include <math.h>
#include <stdatomic.h>

#include "base/assert.h"
#include "base/half.h"
#include "base/mem.h"

#define ROWS 16          /* an item */
#define ITEMS_A_THREAD 8 /* of a piece */
#define TERMS 128        /* of a sum, side by side */

struct job {
    struct qr_round_rows *r;
    const struct qr_round_matrix *m;
    int64_t first, n_out, n_in, group;
    _Atomic int64_t bad;
};

static int64_t items_of(int64_t n_rows)
{
    return (n_rows + ROWS - 1) / ROWS;
}

static void run(const struct qr_round_rows *r, void (*fn)(const void *arg, int32_t item, int32_t worker), const void *arg, int64_t n)
{
    QR_ASSERT(n > 0 && n <= INT32_MAX);
    if (r->be)
        qr_backend_run(r->be, fn, arg, (int32_t)n);
    for (int32_t i = 0; !r->be && i < n; i++)
        fn(arg, i, 0);
}

void qr_round_rows_init(struct qr_round_rows *r, struct qr_backend *be, enum qr_rounding type, int64_t group, int64_t in_max, int64_t out_max,
                        int64_t groups_max)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT(in_max > 0 && out_max > 0 && groups_max > 0);
    const size_t n = be ? (size_t)be->n_threads : 1, in = (size_t)in_max;
    *r = (struct qr_round_rows){.be = be, .n_threads = (int32_t)n, .type = type, .group = group, .in_max = in_max, .out_max = out_max,
                                .piece = (int64_t)n * ITEMS_A_THREAD * ROWS};
    r->rows = qr_alloc(n * ROWS * in, sizeof *r->rows);
    r->largest = qr_alloc(n * in, sizeof *r->largest);
    r->work = (struct qr_rounded){.code = qr_alloc(n * in, 1), .scale = qr_alloc(n * in, sizeof(uint16_t)), .zero = qr_alloc(n * in, 1),
                                   .ops = be ? be->k->stored : NULL};
    r->error = qr_alloc((size_t)items_of(out_max), sizeof *r->error);
    r->codes = qr_alloc((size_t)r->piece * in, 1);
    r->scale = qr_alloc((size_t)groups_max, sizeof *r->scale);
    r->zero = qr_alloc((size_t)groups_max, 1);
}

void qr_round_rows_release(struct qr_round_rows *r)
{
    QR_ASSERT(r != NULL);
    QR_ASSERT((r->rows != NULL) == (r->zero != NULL));
    qr_free(r->rows);
    qr_free(r->largest);
    qr_free(r->work.code);
    qr_free(r->work.scale);
    qr_free(r->work.zero);
    qr_free(r->error);
    qr_free(r->codes);
    qr_free(r->scale);
    qr_free(r->zero);
    *r = (struct qr_round_rows){0};
}

int64_t qr_round_matrix_outputs(const struct qr_round_matrix *m)
{
    QR_ASSERT(m != NULL && m->t != NULL);
    QR_ASSERT(m->t->n_dims == 2);
    return m->t->shape[m->transposed];
}

int64_t qr_round_matrix_inputs(const struct qr_round_matrix *m)
{
    QR_ASSERT(m != NULL && m->t != NULL);
    QR_ASSERT(m->t->n_dims == 2);
    return m->t->shape[!m->transposed];
}

static struct job job_of(struct qr_round_rows *r, const struct qr_round_matrix *m, int64_t first)
{
    const int64_t n_in = qr_round_matrix_inputs(m);
    QR_ASSERT(n_in <= r->in_max && qr_round_matrix_outputs(m) <= r->out_max);
    return (struct job){.r = r, .m = m, .first = first, .n_out = qr_round_matrix_outputs(m), .n_in = n_in, .group = r->group ? r->group : n_in, .bad = -1};
}

/* The item's rows, in the worker's own memory; returns how many. */
static int64_t read_rows(const struct job *j, float **rows, int64_t first, int64_t end, int32_t worker)
{
    const int64_t n = end - first < ROWS ? end - first : ROWS;
    *rows = j->r->rows + (int64_t)worker * ROWS * j->r->in_max;
    if (j->m->transposed)
        qr_tensor_files_decode_columns(j->m->st, j->m->t, *rows, first, n);
    else
        qr_tensor_files_decode(j->m->st, j->m->t, *rows, first, n);
    return n;
}

/* ---- columns ---- */

/* fmaxf, where the first is a number: without a call. */
static inline float larger(float a, float b)
{
    return b > a ? b : a;
}

static void largest_item(const void *arg, int32_t item, int32_t worker)
{
    const struct job *j = arg;
    float *rows, *largest = j->r->largest + (int64_t)worker * j->r->in_max;
    const int64_t n = read_rows(j, &rows, (int64_t)item * ROWS, j->n_out, worker);
    for (int64_t k = 0; k < n; k++)
        for (int64_t i = 0; i < j->n_in; i++)
            largest[i] = larger(largest[i], fabsf(rows[k * j->n_in + i]));
}

void qr_round_rows_largest(struct qr_round_rows *r, const struct qr_round_matrix *m, float *largest)
{
    QR_ASSERT(r != NULL && m != NULL);
    QR_ASSERT(largest != NULL);
    struct job j = job_of(r, m, 0);
    for (int64_t i = 0; i < r->n_threads * r->in_max; i++)
        r->largest[i] = 0;
    run(r, largest_item, &j, items_of(j.n_out));
    for (int32_t t = 0; t < r->n_threads; t++)
        for (int64_t i = 0; i < j.n_in; i++)
            largest[i] = larger(largest[i], r->largest[t * r->in_max + i]);
}

/* ---- errors ---- */

/* sum and, one after the other, the errors of numbers that share a scale. */
static double add_errors(double sum, const float *row, const int8_t *code, const float *factor, const float *importance, int64_t n, double scale, double zero,
                         enum qr_rounding type)
{
    QR_UNINITIALIZED double term[TERMS];
    for (int64_t at = 0; at < n; at += TERMS) {
        const int64_t m = n - at < TERMS ? n - at : TERMS;
        for (int64_t i = 0; type == QR_ROUNDING_FP8 && i < m; i++)
            term[i] = (double)row[at + i] - scale * ((double)qr_rounded_value(code[at + i], type) - zero);
        for (int64_t i = 0; type != QR_ROUNDING_FP8 && i < m; i++)
            term[i] = (double)row[at + i] - scale * ((double)code[at + i] - zero);
        for (int64_t i = 0; factor && i < m; i++)
            term[i] /= (double)factor[at + i];
        for (int64_t i = 0; i < m; i++)
            term[i] = (double)importance[at + i] * term[i] * term[i];
        for (int64_t i = 0; i < m; i++)
            sum += term[i];
    }
    return sum;
}

static void error_item(const void *arg, int32_t item, int32_t worker)
{
    const struct job *j = arg;
    const struct qr_round_rows *r = j->r;
    const int64_t at = (int64_t)worker * r->in_max, group = j->group;
    const struct qr_rounded work = {.code = r->work.code + at, .scale = r->work.scale + at, .zero = r->work.zero + at, .ops = r->work.ops};
    const float *factor = j->m->factor;
    float *rows;
    double sum = 0;
    const int64_t n = read_rows(j, &rows, (int64_t)item * ROWS, j->n_out, worker);
    for (int64_t k = 0; k < n; k++) {
        float *row = rows + k * j->n_in;
        for (int64_t i = 0; factor && i < j->n_in; i++)
            row[i] *= factor[i];
        if (!qr_round_row(&work, row, NULL, j->n_in, group, r->type, false))
            continue; /* writing refuses it */
        for (int64_t g = 0; g < j->n_in / group; g++)
            sum = add_errors(sum, row + g * group, work.code + g * group, factor ? factor + g * group : NULL, j->m->importance + g * group, group,
                             (double)qr_bf16_to_f32(work.scale[g]), r->type == QR_ROUNDING_INT4Z ? work.zero[g] : 0, r->type);
    }
    r->error[item] = sum;
}

double qr_round_rows_error(struct qr_round_rows *r, const struct qr_round_matrix *m)
{
    QR_ASSERT(r != NULL && m != NULL);
    QR_ASSERT(m->importance != NULL);
    struct job j = job_of(r, m, 0);
    const int64_t n = items_of(j.n_out);
    double sum = 0;
    run(r, error_item, &j, n);
    for (int64_t i = 0; i < n; i++)
        sum += r->error[i];
    return sum;
}

/* ---- rounding ---- */

static void round_item(const void *arg, int32_t item, int32_t worker)
{
    struct job *j = (struct job *)(uintptr_t)arg;
    const struct qr_round_rows *r = j->r;
    const int64_t at = (int64_t)item * ROWS, n_groups = j->n_in / j->group;
    const float *factor = j->m->factor;
    float *rows;
    const int64_t n = read_rows(j, &rows, j->first + at, j->n_out, worker);
    for (int64_t k = 0; k < n; k++) {
        float *row = rows + k * j->n_in;
        const int64_t o = j->first + at + k;
        for (int64_t i = 0; factor && i < j->n_in; i++)
            row[i] *= factor[i];
        const struct qr_rounded out = {.code = (int8_t *)r->codes + (at + k) * j->n_in, .scale = r->scale + o * n_groups, .zero = r->zero + o * n_groups,
                                       .ops = r->work.ops};
        int64_t before = atomic_load(&j->bad);
        if (!qr_round_row(&out, row, j->m->importance, j->n_in, j->group, r->type, true))
            while ((before < 0 || o < before) && !atomic_compare_exchange_weak(&j->bad, &before, o)) {
            }
    }
}

int64_t qr_round_rows_piece(struct qr_round_rows *r, const struct qr_round_matrix *m, int64_t first, int64_t n)
{
    QR_ASSERT(r != NULL && m != NULL);
    struct job j = job_of(r, m, first);
    QR_ASSERT(first >= 0 && n > 0 && n <= r->piece && n <= j.n_out - first);
    j.n_out = first + n;
    run(r, round_item, &j, items_of(n));
    return atomic_load(&j.bad);
}
