/* Draws on the emulated device: the ids that the host's sampler draws from the same logits, the same ranks and sums. */
#include "tests/device/sample_host.h"
#include "tests/kernels/util.h"

enum { SEED = 5, N_ROWS = 24, CHANGES = 12, TOP = 7 };

struct step {
    struct qr_backend *be;
    struct qr_sampler sampler;
    struct qr_rng rng;
    int32_t n_vocab;
    int64_t stride;
    float *logits, *before;
    struct qr_draw_row row[N_ROWS];
    struct qr_logit_change change[N_ROWS * CHANGES];
    uint32_t *allowed;
    struct qr_draws draws;
    struct qr_drawn newest[N_ROWS], want[N_ROWS], got[N_ROWS];
    struct qr_drawn_detail want_detail[N_ROWS], got_detail[N_ROWS];
};

static void step_open(struct step *s, int32_t n_vocab)
{
    const char *lib = getenv("QUIRE_CUDA_EMU_LIB");
    if (!lib || access(lib, R_OK) != 0)
        cr_skip_test("there is no emulated device: no C++ compiler, or not run by ctest");
    s->be = open_emulated(4, 64);
    s->rng = (struct qr_rng){.seed = SEED};
    s->n_vocab = n_vocab;
    s->stride = n_vocab + 5;
    qr_sampler_init(&s->sampler, n_vocab);
    s->logits = qr_alloc((size_t)(N_ROWS * s->stride), sizeof *s->logits);
    s->before = qr_alloc((size_t)(N_ROWS * s->stride), sizeof *s->before);
    s->allowed = qr_alloc((size_t)n_vocab, sizeof *s->allowed);
    s->draws = (struct qr_draws){.row = s->row, .change = s->change, .allowed = s->allowed, .n_rows = N_ROWS, .n_changes = N_ROWS * CHANGES};
    for (int32_t r = 0; r < N_ROWS; r++)
        s->row[r] = (struct qr_draw_row){.seed = (uint64_t)r, .temperature = 0.8f, .top_p = 1, .repetition = 1, .at = N_ROWS - 1 - r, .choice = r % 3, .pos = r,
                                         .newest = -1, .first_change = r * CHANGES, .id = -1, .n_top = -1, .allowed = -1};
}

static void step_close(struct step *s)
{
    qr_free(s->logits), qr_free(s->before), qr_free(s->allowed);
    qr_sampler_release(&s->sampler);
    qr_backend_close(s->be);
}

static void fill_logits(struct step *s, float scale)
{
    for (int64_t i = 0; i < N_ROWS * s->stride; i++)
        s->logits[i] = s->before[i] = scale * random_float(&s->rng);
}

static int32_t any(struct step *s, int32_t n)
{
    return (int32_t)qr_rng_below(&s->rng, (uint32_t)n);
}

static void check_detail(const struct qr_drawn_detail *got, const struct qr_drawn_detail *want, int32_t r)
{
    cr_assert(got->sum == want->sum && got->best == want->best && got->logit == want->logit && got->rank == want->rank && got->n_top == want->n_top,
              "row %d: sum %.17g of %.17g, best %g of %g, rank %d of %d, %d of %d", r, got->sum, want->sum, (double)got->best, (double)want->best, got->rank,
              want->rank, got->n_top, want->n_top);
    for (int32_t i = 0; i < want->n_top; i++)
        cr_assert(got->top_id[i] == want->top_id[i] && got->top[i] == want->top[i], "row %d, %d: id %d of %d", r, i, got->top_id[i], want->top_id[i]);
}

/* Ids, their logits and, with details, those; logits are as they were when they are asked for. */
static void check(struct step *s, bool details)
{
    struct qr_sample_args a = {.logits = s->logits, .draws = &s->draws, .drawn = s->want, .detail = details ? s->want_detail : NULL, .stride = s->stride,
                               .n_vocab = s->n_vocab};
    memcpy(s->want, s->newest, sizeof s->want);
    memcpy(s->got, s->newest, sizeof s->got);
    sample_host(&s->sampler, &a);
    a.drawn = s->got;
    a.detail = details ? s->got_detail : NULL;
    s->be->k->sample(s->be->queue, &a);
    for (int32_t r = 0; r < N_ROWS; r++) {
        const struct qr_draw_row *p = &s->row[r];
        if (p->at < 0)
            continue;
        if (!isfinite(s->want[r].logit)) { /* such an id is nobody's: the request ends with an error */
            cr_assert(!isfinite(s->got[r].logit) && s->got[r].id >= 0 && s->got[r].id < s->n_vocab, "row %d", r);
            continue;
        }
        cr_assert(s->got[r].id == s->want[r].id, "row %d (temperature %g, top_k %d, top_p %g, min_p %g): id %d, expected %d", r, (double)p->temperature,
                  p->top_k, (double)p->top_p, (double)p->min_p, s->got[r].id, s->want[r].id);
        cr_assert(s->got[r].logit == s->want[r].logit);
        if (details && p->n_top >= 0) {
            check_detail(&s->got_detail[r], &s->want_detail[r], r);
            cr_assert(same_bits(s->logits + p->at * s->stride, s->before + p->at * s->stride, s->n_vocab), "row %d stays changed", r);
        }
    }
}

Test(sample, draws_the_ids_of_the_host_whatever_restricts_them)
{
    static const float temperature[] = {0, 0.3f, 1, 1.7f}, top_p[] = {1, 0.95f, 0.5f, 0.02f}, min_p[] = {0, 0, 0.05f, 1e-6f};
    static const int32_t top_k[] = {0, 1, 5, 40, 300, 4000};
    struct step s;
    step_open(&s, 700);
    for (int32_t round = 0; round < 4; round++) {
        fill_logits(&s, round % 3 == 0 ? 0.4f : round % 3 == 1 ? 3 : 12);
        for (int32_t r = 0; r < N_ROWS; r++) {
            s.row[r].seed = (uint64_t)(1000 * round + r);
            s.row[r].temperature = temperature[any(&s, 4)];
            s.row[r].top_p = top_p[any(&s, 4)];
            s.row[r].min_p = min_p[any(&s, 4)];
            s.row[r].top_k = top_k[any(&s, 6)];
        }
        check(&s, false);
    }
    step_close(&s);
}

Test(sample, changes_logits_as_the_host_does_and_tells_of_them_as_they_were)
{
    struct step s;
    step_open(&s, 400);
    fill_logits(&s, 2);
    for (int32_t r = 0; r < N_ROWS; r++) {
        struct qr_draw_row *p = &s.row[r];
        p->repetition = r % 2 ? 1.3f : 1;
        p->presence = r % 3 ? 0.7f : 0;
        p->frequency = r % 5 ? 0.2f : 0;
        p->top_k = r % 4 == 0 ? 20 : 0;
        p->n_changes = r % 6 == 0 ? 0 : CHANGES;
        p->n_top = r % 4 == 1 ? -1 : r % TOP;
        for (int32_t i = 0; i < CHANGES; i++)
            s.change[r * CHANGES + i] = (struct qr_logit_change){.id = (17 * r + 30 * i) % s.n_vocab, .n_output = i % 4, .bias = i % 3 == 0 ? 4 : 0,
                                                                 .flags = i % 4 ? QR_CHANGE_SEEN : i == 8 ? QR_CHANGE_FORBID : 0};
        for (int32_t i = CHANGES - 3; p->n_changes > 0 && i < CHANGES; i++) { /* a chain: change 1 forbids its id behind what change 2 or 0 names */
            s.change[r * CHANGES + i].flags = QR_CHANGE_AFTER;
            s.change[r * CHANGES + i].id = (17 * r + 30 * (i % 2 ? 2 : 7)) % s.n_vocab;
            s.change[r * CHANGES + i].after = i + 1 < CHANGES ? i + 2 : 0;
        }
        s.change[r * CHANGES + 1].after = p->n_changes > 0 ? CHANGES - 2 : 0;
        s.change[r * CHANGES + 1].bias = 9;
        s.newest[r] = (struct qr_drawn){.id = (17 * r + 30 * (r % 3)) % s.n_vocab}; /* of rows that divide by 6: no change names it */
        p->newest = p->repetition != 1 || p->presence != 0 || p->frequency != 0 ? r : -1;
    }
    s.row[3].id = 77; /* nothing is drawn */
    s.row[3].n_top = TOP;
    s.row[5].at = -1;
    check(&s, true);
    step_close(&s);
}

Test(sample, rows_of_equal_logits_masked_logits_and_no_numbers_are_as_the_hosts)
{
    struct step s;
    step_open(&s, 513);
    fill_logits(&s, 2);
    for (int32_t i = 0; i < s.n_vocab; i++) {
        s.allowed[i] = i < 17 ? 0x00400401u << (i % 3) : 0;
        s.logits[i] = s.before[i] = 1.25f;                                 /* row 0 */
        s.logits[s.stride + i] = i % 5 ? -INFINITY : (float)(i % 3);       /* row 1 */
        s.logits[2 * s.stride + i] = i % 4 ? NAN : -1;                     /* row 2 */
        s.logits[3 * s.stride + i] = -INFINITY;
        s.logits[4 * s.stride + i] = i == 300 || i == 301 ? INFINITY : 0;
        s.logits[5 * s.stride + i] = NAN;
    }
    for (int32_t r = 0; r < N_ROWS; r++) {
        struct qr_draw_row *p = &s.row[r];
        p->at = r % 6;
        p->temperature = r < 6 ? 0 : 1.1f;
        p->top_k = r >= 6 && r < 12 ? 9 : 0;
        p->top_p = r >= 12 && r < 18 ? 0.6f : 1;
    }
    check(&s, false);
    fill_logits(&s, 2);
    for (int32_t r = 0; r < N_ROWS; r++) {
        s.row[r].at = r;
        s.row[r].allowed = r % 2 ? 0 : -1;
        s.row[r].n_top = r % 3 ? 3 : -1;
    }
    check(&s, true);
    for (int32_t r = 1; r < N_ROWS; r += 2)
        cr_assert(s.allowed[s.got[r].id / 32] >> (s.got[r].id % 32) & 1, "row %d: id %d is not allowed", r, s.got[r].id);
    step_close(&s);
}

Test(sample, a_nucleus_that_is_larger_than_shared_memory_is_drawn_from_all_the_same)
{
    struct step s;
    step_open(&s, 2600);
    fill_logits(&s, 0.02f);
    for (int32_t r = 0; r < N_ROWS; r++) {
        s.row[r].at = r < 6 ? r : -1;
        s.row[r].top_p = r % 2 ? 0.97f : 1;
        s.row[r].top_k = r % 3 == 0 ? 2400 : 0;
    }
    check(&s, false);
    step_close(&s);
}
