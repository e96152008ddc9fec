/* Who multiplies on a device (kernels/cuda/plans.h), with the algorithms that tests/cuda_emu/lt.c pretends to have: that results are right whoever does, that
 * the rules of choosing hold, and that choices are kept. */
#include "tests/kernels/util.h"

#include "tests/cuda_emu/emu.h"
#include "tests/temp.h"

#define SEED 7301

enum { N_IN = 72, N_OUT = 40, ROWS = 64 };

/* Microseconds of whole, chain, split, wide, rows; a kernel of ours takes 10. */
static const float chain_is_near[] = {5, 5.25f, 3, 2, 20}, chain_is_far[] = {5, 8, 3, 2, 20}, rows_is_best[] = {5, 8, 3, 2, 4};
static const float own_is_best[] = {50, 50, 3, 2, 50};

static bool there_is_no_device(void)
{
    const char *lib = getenv("QUIRE_CUDA_EMU_LIB");
    const bool none = !lib || access(lib, R_OK) != 0;
    if (none)
        cr_skip_test("no emulated device: no C++ compiler, or not run through ctest");
    setenv("QUIRE_CUDA_LT_MIN", "1", 1); /* no product is too small */
    return none;
}

static void set_times(const float us[QR_EMU_LT_ALGORITHMS])
{
    void (*set)(const float *);
    *(void **)&set = emulated_function("qr_emu_set_lt");
    cr_assert_not_null(set);
    set(us);
}

struct world {
    struct qr_backend *be;
    float *x, *old, *bias, *w;
    uint16_t *half;
    struct qr_weight weight;
    char plans[4096];
};

static struct world world_new(const float us[QR_EMU_LT_ALGORITHMS], bool deterministic, enum qr_tune_mode tune)
{
    struct qr_rng r = {.seed = SEED};
    const struct qr_backend_options o = {.device = "cuda", .step_rows_max = 64, .deterministic = deterministic, .tune = tune};
    struct world w = {.half = qr_alloc_aligned(N_IN * N_OUT * 2, 64)};
    set_times(us);
    w.be = open_emulated_as(&o, 4);
    w.x = random_floats(&r, ROWS * N_IN), w.old = random_floats(&r, ROWS * N_IN), w.bias = qr_alloc_aligned(N_OUT * 4, 64);
    w.w = random_floats(&r, N_OUT * N_IN);
    for (int i = 0; i < N_OUT; i++)
        w.bias[i] = random_float(&r);
    for (int i = 0; i < N_IN * N_OUT; i++)
        w.half[i] = qr_f32_to_bf16(w.w[i]);
    w.weight = (struct qr_weight){.packed = w.half, .packed_dtype = QR_BF16, .t = qr_tensor_2d(w.half, QR_BF16, N_OUT, N_IN)};
    return w;
}

static void world_free(struct world *w)
{
    qr_backend_close(w->be);
    qr_free(w->x), qr_free(w->old), qr_free_aligned(w->bias), qr_free(w->w), qr_free_aligned(w->half);
}

static float *aligned_copy(const float *x, size_t n)
{
    float *y = qr_alloc_aligned(n * sizeof *y, 64);
    memcpy(y, x, n * sizeof *y);
    return y;
}

/* Rows [first, first + n) of the product; freed by qr_free_aligned. */
static float *multiplied(struct world *w, int32_t first, int32_t n, bool bias, bool add)
{
    float *out = aligned_copy(w->old, (size_t)n * N_OUT);
    memcpy(out, w->old + first * N_OUT, (size_t)n * N_OUT * sizeof *out);
    const struct qr_linear_args a = {.out = out, .x = w->x + first * N_IN, .w = &w->weight, .bias = bias ? w->bias : NULL, .out_stride = N_OUT,
                                     .x_stride = N_IN, .n_rows = n, .n_in = N_IN, .n_out = N_OUT, .add = add};
    w->be->k->linear(w->be->queue, &a);
    qr_backend_plans(w->be, w->plans, sizeof w->plans);
    return out;
}

/* n_in products and two more terms, each rounded at most once a step: Higham's gamma times the sum of absolute values (test_linear.c). */
static double worst_of(const struct world *w, const float *out, int32_t first, int32_t n, bool bias, bool add)
{
    double worst = 0;
    for (int32_t r = 0; r < n; r++)
        for (int32_t o = 0; o < N_OUT; o++) {
            double sum = 0, size = 0;
            for (int32_t i = 0; i < N_IN; i++) {
                const double t = (double)qr_bf16_to_f32(qr_f32_to_bf16(w->x[(first + r) * N_IN + i])) * (double)qr_bf16_to_f32(w->half[o * N_IN + i]);
                sum += t, size += fabs(t);
            }
            const double b = bias ? (double)w->bias[o] : 0, old = add ? (double)w->old[(first + r) * N_OUT + o] : 0;
            const double error = fabs((double)out[r * N_OUT + o] - (sum + b + old)), bound = gamma_n(N_IN + 3) * (size + fabs(b) + fabs(old));
            worst = fmax(worst, error <= bound ? error / bound : INFINITY);
        }
    return worst;
}

static bool says(const struct world *w, const char *text)
{
    return strstr(w->plans, text) != NULL;
}

Test(cuda_plans, every_choice_gives_products_within_the_bound_with_bias_and_on_top_of_old_values)
{
    const struct {
        const float *us;
        const char *who;
    } turn[] = {{chain_is_near, "rows <= 32: cuBLASLt, 5.2 us"}, {chain_is_far, "rows <= 32: cuBLASLt, 5.0 us"}, {own_is_best, "rows <= 32: own, 10.0 us"}};
    if (there_is_no_device())
        return;
    for (int i = 0; i < QR_COUNT(turn); i++) {
        struct world w = world_new(turn[i].us, false, QR_TUNE_OFF);
        for (int how = 0; how < 3; how++) {
            float *out = multiplied(&w, 1, 24, how == 1, how == 2);
            cr_assert_leq(worst_of(&w, out, 1, 24, how == 1, how == 2), 1, "choice %d, %d", i, how);
            qr_free_aligned(out);
        }
        cr_assert(says(&w, turn[i].who), "%s", w.plans);
        world_free(&w);
    }
}

/* Chain alone adds as own does. */
Test(cuda_plans, who_multiplied_and_where_nobody_has_owns_bits_is_counted)
{
    static const float chain_is_slow[] = {5, 50, 3, 2, 20};
    const struct {
        const float *us;
        int32_t by_library, unlike;
    } turn[] = {{chain_is_near, 3, 0}, {chain_is_slow, 3, 1}, {own_is_best, 0, 0}};
    if (there_is_no_device())
        return;
    for (int i = 0; i < QR_COUNT(turn); i++) {
        struct world w = world_new(turn[i].us, false, QR_TUNE_OFF);
        for (int k = 0; k < 3; k++)
            qr_free_aligned(multiplied(&w, 0, 24, false, false));
        qr_free_aligned(multiplied(&w, 0, 3, false, false)); /* few rows are nobody's choice */
        const struct qr_backend_ways ways = qr_backend_ways(w.be);
        cr_assert(ways.by_library == turn[i].by_library && ways.bf16 == 1 && ways.bf16_unlike == turn[i].unlike && ways.fp8 == 0 && ways.by_wgmma == 0,
                  "choice %d: %d by cuBLASLt, %d unlike", i, (int)ways.by_library, ways.bf16_unlike);
        world_free(&w);
    }
}

Test(cuda_plans, rows_are_the_same_alone_and_together_where_that_costs_no_more_than_a_tenth_and_always_when_asked)
{
    const struct {
        const float *us;
        bool deterministic, same;
    } turn[] = {{chain_is_near, false, true}, {chain_is_far, false, false}, {chain_is_far, true, true}, {own_is_best, false, true}};
    if (there_is_no_device())
        return;
    for (int i = 0; i < QR_COUNT(turn); i++) {
        struct world w = world_new(turn[i].us, turn[i].deterministic, QR_TUNE_OFF);
        float *together = multiplied(&w, 0, 32, false, true);
        bool same = true;
        for (int32_t r = 0; r < 32; r += 5) {
            float *alone = multiplied(&w, r, 1, false, true);
            same = same && same_bits(alone, together + r * N_OUT, N_OUT);
            qr_free_aligned(alone);
        }
        cr_assert_eq(same, turn[i].same, "turn %d: %s", i, w.plans);
        qr_free_aligned(together);
        world_free(&w);
    }
}

Test(cuda_plans, an_algorithm_that_cannot_do_a_number_of_rows_of_its_bucket_is_replaced_by_our_kernel)
{
    if (there_is_no_device())
        return;
    struct world w = world_new(rows_is_best, false, QR_TUNE_OFF);
    const int32_t n[] = {64, 40, 64, 33};
    for (int i = 0; i < QR_COUNT(n); i++) {
        float *out = multiplied(&w, 0, n[i], true, false);
        cr_assert_leq(worst_of(&w, out, 0, n[i], true, false), 1);
        qr_free_aligned(out);
    }
    cr_assert(says(&w, "rows <= 64: cuBLASLt, 4.0 us"), "%s", w.plans);
    world_free(&w);
}

Test(cuda_plans, a_choice_is_made_once_and_kept_in_a_file_that_is_read_when_it_is_whole)
{
    char dir[64], command[160];
    if (there_is_no_device())
        return;
    temp_dir_make(dir, "plans");
    setenv("XDG_CACHE_HOME", dir, 1);
    for (int turn = 0; turn < 4; turn++) {
        struct world w = world_new(turn == 0 ? chain_is_near : own_is_best, false, turn == 3 ? QR_TUNE_OFF : QR_TUNE_CACHED);
        const struct qr_linear_args a = {.w = &w.weight, .n_in = N_IN, .n_out = N_OUT};
        qr_backend_prepare(w.be, &a, 30);
        qr_backend_prepare(w.be, &a, 17); /* a bucket that is known */
        qr_free_aligned(multiplied(&w, 0, 20, false, false));
        cr_assert(says(&w, "forward 72 -> 40, rows <= 32: ") && strchr(w.plans, '\n') == strrchr(w.plans, '\n'), "%s", w.plans);
        cr_assert_eq(says(&w, "cuBLASLt, 5.2 us") && says(&w, "(kept)") == (turn == 1), turn < 2, "turn %d: %s", turn, w.plans);
        world_free(&w);
        if (turn == 1) { /* one letter changed: all of it is measured again */
            snprintf(command, sizeof command, "sed -i '2s/0/1/' %s/quire/cublaslt-*.txt", dir);
            cr_assert_eq(system(command), 0);
        }
    }
    snprintf(command, sizeof command, "rm -r %s", dir);
    cr_assert_eq(system(command), 0);
}

/* Two devices that would choose differently, and a kind that only the second has met. */
Test(cuda_plans, choices_of_another_rank_take_the_place_of_ones_own)
{
    char text[8192];
    if (there_is_no_device())
        return;
    struct world first = world_new(chain_is_far, false, QR_TUNE_OFF);
    float *want = multiplied(&first, 0, 20, false, false);
    const size_t n = qr_backend_export_choices(first.be, text, sizeof text);
    cr_assert_eq(n, strlen(text) + 1);
    cr_assert_eq(qr_backend_export_choices(first.be, text, 1), n, "what does not fit is not written");
    struct world second = world_new(own_is_best, false, QR_TUNE_OFF);
    qr_free_aligned(multiplied(&second, 0, 20, false, false));
    qr_free_aligned(multiplied(&second, 0, 40, false, false));
    cr_assert(says(&second, "rows <= 32: own") && says(&second, "rows <= 64: own"), "%s", second.plans);
    qr_backend_adopt_choices(second.be, text);
    float *got = multiplied(&second, 0, 20, false, false);
    cr_assert(says(&second, "rows <= 32: cuBLASLt, 5.0 us") && says(&second, "rows <= 64: own"), "%s", second.plans);
    cr_assert(same_bits(want, got, 20 * N_OUT));
    qr_backend_adopt_choices(second.be, "forward");
    cr_assert(says(&second, "rows <= 32: cuBLASLt, 5.0 us"), "a text that is none changes nothing");
    qr_free_aligned(want), qr_free_aligned(got);
    world_free(&first);
    world_free(&second);
}

Test(cuda_plans, gradients_are_within_the_bound_and_add_to_what_is_there)
{
    if (there_is_no_device())
        return;
    for (int fresh = 0; fresh < 2; fresh++) {
        struct world w = world_new(chain_is_far, false, QR_TUNE_OFF);
        const int32_t n = 48;
        float *dx = aligned_copy(w.old, n * N_IN), *dw = aligned_copy(w.w, N_OUT * N_IN), *dy = w.old + 7;
        const struct qr_linear_dx_args ax = {.dx = dx, .dy = dy, .w = &w.weight, .dx_stride = N_IN, .dy_stride = N_OUT, .n_rows = n, .n_in = N_IN,
                                             .n_out = N_OUT, .fresh = fresh};
        const struct qr_linear_dw_args aw = {.dw = dw, .dy = dy, .x = w.x, .dy_stride = N_OUT, .x_stride = N_IN, .n_rows = n, .n_in = N_IN, .n_out = N_OUT,
                                             .product = QR_BF16, .fresh = fresh};
        w.be->b->linear_dx(w.be->queue, &ax);
        w.be->b->linear_dw(w.be->queue, &aw);
        for (int32_t i = 0; i < N_IN; i++) {
            for (int32_t r = 0; r < n; r++) { /* a chain of N_OUT products and the old value */
                double sum = fresh ? 0 : (double)w.old[r * N_IN + i], size = fabs(sum);
                for (int32_t o = 0; o < N_OUT; o++) {
                    const double t = (double)qr_bf16_to_f32(qr_f32_to_bf16(dy[r * N_OUT + o])) * (double)qr_bf16_to_f32(w.half[o * N_IN + i]);
                    sum += t, size += fabs(t);
                }
                cr_assert_leq(fabs((double)dx[r * N_IN + i] - sum), gamma_n(N_OUT + 2) * size);
            }
            for (int32_t o = 0; o < N_OUT; o++) {
                double sum = fresh ? 0 : (double)w.w[o * N_IN + i], size = fabs(sum);
                for (int32_t r = 0; r < n; r++) {
                    const double t = (double)qr_bf16_to_f32(qr_f32_to_bf16(dy[r * N_OUT + o])) * (double)qr_bf16_to_f32(qr_f32_to_bf16(w.x[r * N_IN + i]));
                    sum += t, size += fabs(t);
                }
                cr_assert_leq(fabs((double)dw[o * N_IN + i] - sum), gamma_n(n + 2) * size);
            }
        }
        qr_backend_plans(w.be, w.plans, sizeof w.plans);
        cr_assert(says(&w, "dx 40 -> 72, rows <= 64: cuBLASLt") && says(&w, "dw 40 -> 72, rows <= 64: cuBLASLt"), "%s", w.plans);
        qr_free_aligned(dx), qr_free_aligned(dw);
        world_free(&w);
    }
}
