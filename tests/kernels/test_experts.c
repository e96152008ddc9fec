/* route against the double oracle; experts against the products that it says it is, bit for bit, for every row alone. */
#include "tests/kernels/util.h"

#include "tests/kernels/oracle.h"

#define SEED 20261123
#define GAP 3 /* rows of x, out and logits do not touch */

/* Of an emulated device, which is slow, four rows are looked at. */
static int32_t step_of(const struct qr_backend *be, int32_t n_rows)
{
    return be->mem->host ? 1 : (n_rows + 3) / 4;
}

/* ---- route ---- */

struct route_case {
    int32_t n_rows, n_experts, n_used;
    bool sigmoid, normalize;
};

/* Equal numbers, what is no number, and the infinities are among the logits of some rows. */
static float *random_logits(struct qr_rng *r, const struct route_case *c, int64_t stride)
{
    float *x = random_floats(r, c->n_rows * stride);
    for (int32_t n = 0; n < c->n_rows; n++)
        for (int32_t e = 0; e < c->n_experts; e++) {
            float *v = &x[n * stride + e];
            if (n % 4 == 1)
                *v = (float)qr_rng_below(r, 3);
            if (n % 8 == 2 && e % 3 == 0)
                *v = NAN;
            if (n % 8 == 6 && e % 3 == 0)
                *v = e % 2 ? -INFINITY : -1e30f;
        }
    return x;
}

/* e^d with d = logit - most, which is rounded once: |d| u; exp 1.5 ulp: 3 u. So every term and, all being positive, any sum of them before its own E roundings
 * is within (|d| + 3) u; then a quotient. Below 2^-126 a unit in the last place is 2^-149. 1 / (1 + e^-l) has no more of these. */
static double weight_bound(double want, double d_most, int32_t n_experts)
{
    return want * gamma_n(2 * (d_most + 3) + n_experts + 2) + 0x1p-140;
}

static double largest_distance(const float *logits, const struct route_case *c)
{
    double most = 0;
    for (int32_t e = 0; e < c->n_experts; e++)
        for (int32_t k = 0; k < c->n_experts; k++)
            most = fmax(most, fmin(110, fabs((double)logits[e] - (c->sigmoid ? 0 : (double)logits[k])))); /* e^-104 is 0 */
    return most;
}

static void check_route(const char *isa, struct qr_backend *be, const struct route_case *c, struct qr_rng *rng)
{
    const int64_t stride = c->n_experts + GAP, n = (int64_t)c->n_rows * c->n_used;
    float *logits = random_logits(rng, c, stride), *weights = poisoned(n);
    int32_t *ids = qr_alloc((size_t)n, sizeof *ids), *want_ids = qr_alloc((size_t)n, sizeof *ids), *one_ids = qr_alloc((size_t)n, sizeof *ids);
    double *wide = widen(logits, c->n_rows * stride), *want = qr_alloc((size_t)n, sizeof *want);
    const struct qr_route_args a = {.ids = ids, .weights = weights, .logits = logits, .logits_stride = stride, .n_rows = c->n_rows, .n_experts = c->n_experts,
                                    .n_used = c->n_used, .sigmoid = c->sigmoid, .normalize = c->normalize};
    struct qr_route_args o = a;
    o.ids = want_ids, o.weights = (float *)want, o.logits = (const float *)wide;
    be->k->route(be->queue, &a);
    oracle->route(NULL, &o);
    for (int64_t i = 0; i < n; i++) {
        const float *row = logits + i / c->n_used * stride;
        cr_assert_eq(ids[i], want_ids[i], "%s: %d of %d, row %ld: expert %d, not %d", isa, c->n_used, c->n_experts, (long)(i / c->n_used), ids[i], want_ids[i]);
        cr_assert_eq(isnan(weights[i]), isnan(want[i]));
        cr_assert(isnan(want[i]) || fabs((double)weights[i] - want[i]) <= weight_bound(want[i], largest_distance(row, c), c->n_experts),
                  "%s: row %ld: weight %.9g, not %.9g", isa, (long)(i / c->n_used), (double)weights[i], want[i]);
    }
    for (int32_t row = 0; row < c->n_rows; row += step_of(be, c->n_rows)) {
        float one[64];
        struct qr_route_args s = a;
        s.ids = one_ids, s.weights = one, s.logits = logits + row * stride, s.n_rows = 1;
        be->k->route(be->queue, &s);
        cr_assert(same_bits(one, weights + row * c->n_used, c->n_used) && same_bits(one_ids, ids + row * c->n_used, c->n_used), "%s: row %d alone", isa, row);
    }
    qr_free(logits), qr_free(weights), qr_free(ids), qr_free(want_ids), qr_free(one_ids), qr_free(wide), qr_free(want);
}

Test(route, chooses_what_the_oracle_chooses_with_weights_within_the_bound_and_equal_logits_by_number)
{
    static const struct route_case cases[] = {{1, 8, 2, false, true},  {13, 8, 2, false, false},  {40, 60, 4, false, false}, {37, 128, 8, false, true},
                                              {9, 1, 1, true, false},  {21, 5, 5, true, true},    {18, 17, 3, false, false}, {300, 33, 1, false, true}};
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    struct qr_rng rng = {.seed = SEED};
    printf("seed %d\n", SEED);
    for (int32_t l = 0; l < n_levels; l++)
        for (int32_t n_threads = 1; n_threads <= 3; n_threads += 2) {
            struct qr_backend *be = open_level(names[l], n_threads, 0);
            for (int i = 0; i < QR_COUNT(cases) && (be->mem->host || n_threads == 1); i++)
                check_route(names[l], be, &cases[i], &rng);
            qr_backend_close(be);
        }
}

/* ---- experts ---- */

struct experts_case {
    int32_t n_rows, n_experts, n_used, n_embd, n_ffn;
};

static struct qr_weight random_stack(struct qr_backend *be, struct qr_rng *r, enum qr_dtype type, int32_t n, int32_t n_out, int32_t n_in)
{
    const size_t one = qr_align_up(be->k->linear_packed_bytes(type, n_out, n_in), 64);
    struct qr_weight w = {.t = qr_tensor_3d(NULL, type, n, n_out, n_in), .packed = qr_alloc_aligned(one * (size_t)n, 64), .packed_dtype = type,
                          .stack_bytes = one};
    float *rows = random_floats(r, (int64_t)n_out * n_in);
    for (int32_t e = 0; e < n; e++) {
        const struct qr_weight part = qr_weight_in_stack(&w, e);
        for (int64_t i = 0; i < (int64_t)n_out * n_in; i++) /* alike but for an eighth of them, which are new */
            rows[i] = i % 8 == e % 8 ? random_float(r) : rows[i];
        be->k->linear_pack(be->queue, part.packed, type, n_out, n_in, 0, rows, QR_F32, n_out);
    }
    qr_free(rows);
    return w;
}

/* What the kernel says it does to one row. */
static void expect_row(struct qr_backend *be, float *out, const struct qr_experts_args *a, int32_t row)
{
    const int32_t n_experts = (int32_t)a->down->t.shape[0], n_embd = (int32_t)a->down->t.shape[1], n_ffn = (int32_t)a->down->t.shape[2];
    const bool fused = strcmp(be->k->name, "ref") != 0;
    float *gated = poisoned(n_ffn), *y = poisoned(n_embd);
    for (int32_t e = 0; e < n_experts; e++)
        for (int32_t u = 0; u < a->n_used; u++) {
            if (a->ids[row * a->n_used + u] != e)
                continue;
            const struct qr_weight gate_up = qr_weight_in_stack(a->gate_up, e), down = qr_weight_in_stack(a->down, e);
            const struct qr_linear_args first = {.out = gated, .x = a->x + row * a->x_stride, .w = &gate_up, .n_rows = 1, .n_in = n_embd, .n_out = 2 * n_ffn,
                                                 .bias = a->gate_up_bias ? a->gate_up_bias + (int64_t)e * 2 * n_ffn : NULL, .glu = true,
                                                 .act = a->act, .clamp = a->clamp};
            const struct qr_linear_args second = {.out = y, .x = gated, .w = &down, .n_rows = 1, .n_in = n_ffn, .n_out = n_embd,
                                                  .bias = a->down_bias ? a->down_bias + (int64_t)e * n_embd : NULL};
            const float weight = a->weights[row * a->n_used + u];
            be->k->linear(be->queue, &first);
            be->k->linear(be->queue, &second);
            for (int32_t i = 0; i < n_embd; i++)
                out[i] = fused ? fmaf(weight, y[i], out[i]) : out[i] + weight * y[i];
        }
    qr_free(gated);
    qr_free(y);
}

/* Some experts are wanted by many rows and some by none. */
static void choose(struct qr_rng *r, int32_t *ids, const struct experts_case *c)
{
    for (int32_t n = 0; n < c->n_rows; n++)
        for (int32_t u = 0; u < c->n_used; u++) {
            bool there;
            do {
                const int32_t e = (int32_t)qr_rng_below(r, (uint32_t)c->n_experts);
                ids[n * c->n_used + u] = n % 3 && e + 1 < c->n_experts && e > c->n_used ? c->n_used : e;
                there = false;
                for (int32_t k = 0; k < u; k++)
                    there |= ids[n * c->n_used + k] == ids[n * c->n_used + u];
            } while (there);
        }
}

static void check_experts(const char *isa, struct qr_backend *be, const struct experts_case *c, enum qr_dtype type, struct qr_rng *rng)
{
    const int64_t stride = c->n_embd + GAP, n = c->n_rows * stride, pairs = (int64_t)c->n_rows * c->n_used, room = qr_experts_room_rows(c->n_rows, c->n_used);
    struct qr_weight gate_up = random_stack(be, rng, type, c->n_experts, 2 * c->n_ffn, c->n_embd);
    struct qr_weight down = random_stack(be, rng, type, c->n_experts, c->n_embd, c->n_ffn);
    float *gate_up_bias = random_floats(rng, (int64_t)c->n_experts * 2 * c->n_ffn);
    float *down_bias = random_floats(rng, (int64_t)c->n_experts * c->n_embd);
    const bool biased = (c->n_rows + (int32_t)type) % 2 == 0;
    float *x = random_floats(rng, n), *out = poisoned(n), *weights = random_floats(rng, pairs), *want = qr_alloc((size_t)c->n_embd, sizeof *want);
    int32_t *ids = qr_alloc((size_t)pairs, sizeof *ids);
    choose(rng, ids, c);
    for (int32_t row = 0; row < c->n_rows; row++)
        for (int32_t i = 0; i < c->n_embd; i++)
            out[row * stride + i] = random_float(rng);
    float *old = copy_floats(out, n);
    const struct qr_experts_args a = {.out = out, .x = x, .ids = ids, .weights = weights, .gate_up = &gate_up, .down = &down,
                                      .gathered = poisoned(room * c->n_embd), .gated = poisoned(room * c->n_ffn), .fresh = poisoned(room * c->n_embd),
                                      .order = qr_alloc((size_t)(c->n_experts + 1 + pairs), sizeof(int32_t)), .out_stride = stride, .x_stride = stride,
                                      .n_rows = c->n_rows, .n_used = c->n_used, .gate_up_bias = biased ? gate_up_bias : NULL,
                                      .down_bias = biased ? down_bias : NULL, .act = biased ? QR_ACT_CLAMPED : QR_ACT_SILU,
                                      .clamp = {.limit = 0.7f, .alpha = 1.702f}};
    be->k->experts(be->queue, &a);
    for (int32_t row = 0; row < c->n_rows; row += step_of(be, c->n_rows)) {
        memcpy(want, old + row * stride, (size_t)c->n_embd * sizeof *want);
        expect_row(be, want, &a, row);
        cr_assert(same_bits(want, out + row * stride, c->n_embd), "%s %s: %d of %d experts %d x %d: row %d of %d", isa, qr_dtype_name(type), c->n_used,
                  c->n_experts, c->n_embd, c->n_ffn, row, c->n_rows);
    }
    cr_assert(gaps_untouched(out, c->n_rows, c->n_embd, stride));
    qr_free(x), qr_free(out), qr_free(weights), qr_free(want), qr_free(ids), qr_free(old), qr_free(a.gathered), qr_free(a.gated), qr_free(a.fresh);
    qr_free(a.order), qr_free_aligned(gate_up.packed), qr_free_aligned(down.packed);
    qr_free(gate_up_bias), qr_free(down_bias);
}

Test(experts, add_to_every_row_what_its_experts_products_give_it_alone_in_order_of_the_experts)
{
    static const struct experts_case cases[] = {{1, 8, 2, 64, 96},  {2, 16, 4, 96, 48}, {37, 5, 3, 203, 27}, {20, 3, 3, 96, 48},
                                                {9, 1, 1, 80, 33},  {40, 24, 8, 64, 32}, {130, 4, 1, 48, 32}, {257, 2, 2, 32, 16}};
    static const enum qr_dtype types[] = {QR_F32, QR_BF16, QR_Q8, QR_Q4, QR_C4_G64};
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    struct qr_rng rng = {.seed = SEED + 1};
    struct qr_err err;
    printf("seed %d\n", SEED + 1);
    for (int32_t l = 0; l < n_levels; l++)
        for (int i = 0; i < QR_COUNT(cases); i += UTIL_STEP) {
            struct qr_backend *be = open_level(names[l], 1 + i % 3, 0);
            for (int t = 0; t < QR_COUNT(types); t++)
                if (be->mem->host || (qr_backend_supports(be, types[t], 64, QR_BF16, 64, 16, &err) == 0 && i % 3 == t % 4 % 3)) /* emulated: a type each */
                    check_experts(names[l], be, &cases[i], types[t], &rng);
            qr_backend_close(be);
        }
}

/* More inputs than a ring has stages, more columns than a block, borders within both; tiles of up to 16 and of up to 64 rows, with fewer rows and more than
 * half. */
Test(experts, of_codes_give_a_row_what_its_products_give_it_alone)
{
    static const struct experts_case cases[] = {{3, 4, 2, 608, 96}, {38, 2, 1, 480, 96}, {90, 2, 1, 608, 96}};
    static const enum qr_dtype types[] = {QR_C8_G32, QR_C4_G128, QR_C4_G32};
    const char *names[8];
    const int32_t n_levels = device_levels(names);
    struct qr_rng rng = {.seed = SEED + 2};
    struct qr_err err;
    printf("seed %d\n", SEED + 2);
    for (int32_t l = 0; l < n_levels; l++)
        for (int i = 0; i < QR_COUNT(cases); i++) {
            struct qr_backend *be = open_level(names[l], 1, 0);
            for (int t = 0; t < QR_COUNT(types) && !be->mem->host; t++)
                if (i == t || i == 0) {
                    cr_assert_eq(qr_backend_supports(be, types[t], 64, QR_BF16, 64, 16, &err), 0, "%s", err.msg);
                    check_experts(names[l], be, &cases[i], types[t], &rng);
                }
            qr_backend_close(be);
        }
}
