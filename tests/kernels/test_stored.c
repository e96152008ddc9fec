/* What levels do with files' numbers (kernels/stored.h) has the bits of plain loops, at every size and beside nothing else. */
#include "tests/kernels/util.h"

#include "base/half.h"

#define SEED 20261122
#define ROOM 4096

static const uint8_t orders[2][8] = {{0, 1, 2, 3, 4, 5, 6, 7}, {0, 4, 1, 5, 2, 6, 3, 7}};
static const int32_t counts[] = {1, 7, 8, 63, 64, 65, 130};

/* From the low bits up. */
static uint8_t code_of(const uint32_t *words, int64_t word, int place)
{
    return (uint8_t)(words[word] >> 4 * place & 15);
}

Test(stored, codes_of_four_bits_are_those_of_plain_loops_and_nothing_is_written_beside_them)
{
    struct qr_rng r = {.seed = SEED};
    const char *names[8];
    uint32_t *words = qr_alloc(ROOM, sizeof *words);
    uint8_t *code = qr_alloc(ROOM, 8);
    for (int i = 0; i < ROOM; i++)
        words[i] = (uint32_t)qr_rng_next(&r);
    for (int32_t l = 0, n_levels = qr_cpu_levels(names); l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 1, 0);
        const struct qr_stored_ops *ops = be->k->stored;
        for (int i = 0; ops && ops->along && i < 3 * 5 * QR_COUNT(counts); i++) {
            const int32_t n_in = counts[i % QR_COUNT(counts)], n = i / QR_COUNT(counts) % 5 * 5 + 1, pitch = n_in + i % 3, stride = 24;
            const uint8_t *order = orders[i % 2];
            const int kind = i / 5 / QR_COUNT(counts);
            const bool across = kind == 1, picked = kind == 2;
            int32_t of[256];
            for (int32_t k = 0; k < n_in; k++)
                of[k] = picked ? (int32_t)(qr_rng_next(&r) % (uint32_t)n_in) : k;
            if (across && !ops->across)
                continue;
            memset(code, 0xee, ROOM * 8);
            if (across)
                ops->across(code, pitch, (const uint8_t *)words, 4 * stride, n, n_in, order);
            else
                ops->along(code, pitch, (const uint8_t *)words, 4 * stride, n, n_in, picked ? of : NULL);
            for (int64_t k = 0; k < (across ? 8 : 1) * n * pitch + 64; k++) {
                const int64_t o = k / pitch, in = k % pitch;
                const bool there = in < n_in && o < (across ? 8 : 1) * n;
                const int64_t word = !there ? 0 : across ? in * stride + o / 8 : of[in] / 8 * stride + o;
                const uint8_t want = there ? code_of(words, word, across ? order[o % 8] : of[in] % 8) : 0xee;
                cr_assert_eq(code[k], want, "seed %d %s: %s, %d words or outputs, %d inputs: byte %ld", SEED, names[l],
                             across ? "across" : picked ? "picked" : "along", n, n_in, (long)k);
            }
        }
        qr_backend_close(be);
    }
    qr_free(words);
    qr_free(code);
}

Test(stored, words_of_coded_rows_have_the_codes_in_the_order_of_panels)
{
    struct qr_rng r = {.seed = SEED + 2};
    const char *names[8];
    static uint32_t words[128 * 24], got[16 * 200];
    for (int32_t i = 0; i < QR_COUNT(words); i++)
        words[i] = (uint32_t)(qr_rng_next(&r) >> 16);
    for (int32_t l = 0, n_levels = qr_cpu_levels(names); l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 1, 0);
        const struct qr_stored_ops *ops = be->k->stored;
        for (int i = 0; ops && ops->along_words && i < 3 * 4 * 20; i++) {
            const int32_t n_in = 32 * (i % 4 + 1), n = i / 12 + 1, n_out = i % 3 == 1 ? 8 * n : n, pitch = n_out + i % 5;
            const bool across = i % 3 == 1, picked = i % 3 == 2;
            int32_t of[128];
            for (int32_t k = 0; k < n_in; k++)
                of[k] = picked ? (int32_t)(qr_rng_next(&r) % (uint32_t)n_in) : k;
            memset(got, 0xee, sizeof got);
            if (across)
                ops->across_words(got, pitch, (const uint8_t *)words, 4 * 24, n, n_in, orders[i % 2]);
            else
                ops->along_words(got, pitch, (const uint8_t *)words, 4 * 24, n_out, n_in, picked ? of : NULL);
            for (int32_t k = 0; k < n_in / 8 * pitch + 8; k++) {
                uint32_t want = 0;
                const int32_t o = k % pitch;
                for (int32_t t = 0; t < 8 && o < n_out && k < n_in / 8 * pitch; t++) {
                    const int32_t in = of[k / pitch * 8 + t];
                    const uint8_t code = across ? code_of(words, in * 24 + o / 8, orders[i % 2][o % 8]) : code_of(words, in / 8 * 24 + o, in % 8);
                    want |= (uint32_t)code << (t % 4 * 8 + t / 4 * 4);
                }
                want = o < n_out && k < n_in / 8 * pitch ? want : 0xeeeeeeee;
                cr_assert_eq(got[k], want, "seed %d %s: case %d, %d outputs, %d inputs: word %d", SEED + 2, names[l], i, n_out, n_in, k);
            }
        }
        qr_backend_close(be);
    }
}

Test(stored, errors_of_four_bits_are_those_of_one_way_after_the_other_or_no_less_than_an_earlier_one)
{
    struct qr_rng r = {.seed = SEED + 1};
    const char *names[8];
    for (int32_t l = 0, n_levels = qr_cpu_levels(names); l < n_levels; l++) {
        struct qr_backend *be = open_level(names[l], 1, 0);
        int n_exact = 0;
        for (int i = 0; be->k->stored && be->k->stored->int4_errors && i < 400; i++) {
            const int64_t n = i % 5 == 0 ? 4 : i % 5 * 64 - i % 3 * 4;
            const int32_t n_ways = i % 18 + 1;
            float w[256], importance[256], *by = i % 2 ? importance : NULL;
            struct qr_int4_way way[18];
            double error[18], least = INFINITY;
            for (int k = 0; k < n; k++) {
                w[k] = ((float)qr_rng_next_unit(&r) - 0.5f) * (k % 37 == 0 ? 4 : 1);
                importance[k] = (float)qr_rng_next_unit(&r);
            }
            for (int k = 0; k < n_ways; k++)
                way[k] = (struct qr_int4_way){qr_bf16_to_f32(qr_f32_to_bf16(0.02f + 0.3f * (float)qr_rng_next_unit(&r))), (float)(k % 3 * 5 - 6)};
            be->k->stored->int4_errors(error, w, by, n, way, n_ways);
            for (int k = 0; k < n_ways; k++) {
                const double want = qr_int4_error(w, by, n, &way[k]);
                const bool exact = memcmp(&error[k], &want, sizeof want) == 0;
                cr_assert(exact || (error[k] >= least && want >= least), "seed %d %s: %ld numbers, way %d: %a, not %a", SEED + 1, names[l], (long)n, k,
                          error[k], want);
                least = fmin(least, want);
                n_exact += exact;
            }
        }
        cr_assert(!be->k->stored || n_exact > 400);
        qr_backend_close(be);
    }
}
