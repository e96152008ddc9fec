/* The cost of texts made to hurt. */
#include "tok_test.h"

#include <time.h>

#include "base/assert.h"
#include "tests/full.h"

static double cpu_s(void)
{
    struct timespec t;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

static double encode_s(const struct qr_tokenizer *t, const char *text, size_t n, int tries)
{
    double best = 1e9;
    for (int i = 0; i < tries; i++) {
        struct qr_ids ids = {0};
        double start = cpu_s();
        tok_encode(t, &ids, text, n, QR_ENCODE_PARSE_SPECIAL);
        double took = cpu_s() - start;
        best = took < best ? took : best;
        qr_ids_release(&ids);
    }
    return best;
}

/* n log n alone makes 10^5 -> 10^6 cost 12 times as much; caches that no longer hold the work and neighbours on the machine add
 * to that (21 was seen), a quadratic step would make it 100. The best of several tries is taken, and 45 is the line between the two. */
#define RATIO_MAX 45.0

#define SIZE_MAX_BYTES ((size_t)1000000) /* a quarter of that where not all is asked for (full.h) */

static void check_cost(const struct qr_tokenizer *t, const char *name, const char *unit, char *text, double *worst)
{
    double took[3];
    const size_t most = full_size() ? SIZE_MAX_BYTES : SIZE_MAX_BYTES / 4;
    size_t n_unit = strlen(unit), size = most / 100;
    for (int i = 0; i < 3; i++, size *= 10) {
        size_t n = size / n_unit * n_unit;
        QR_ASSERT(n <= SIZE_MAX_BYTES);
        for (size_t k = 0; k < n; k++)
            text[k] = unit[k % n_unit];
        took[i] = encode_s(t, text, n, i < 2 ? 5 : 1);
    }
    for (int tries = 0; tries < 4 && took[2] > RATIO_MAX * took[1]; tries++) {
        double again = encode_s(t, text, most / n_unit * n_unit, 1);
        took[2] = again < took[2] ? again : took[2];
    }
    double ratio = took[2] / took[1];
    *worst = ratio > *worst ? ratio : *worst;
    cr_expect(took[1] <= RATIO_MAX * took[0] + 0.001 && ratio <= RATIO_MAX,
              "%s: \"%s\" repeated to %zu bytes, a tenth and a hundredth of it takes %.2f, %.2f, %.2f ms", name, unit, most, took[2] * 1e3,
              took[1] * 1e3, took[0] * 1e3);
    cr_expect(took[2] < 5, "%s: %zu bytes of \"%s\" take %.1f s", name, most, unit, took[2]);
}

Test(cost, a_long_text_of_anything_costs_ten_times_a_tenth_of_it, .timeout = 290)
{
    TOK_NEED_DATA();
#if defined(__SANITIZE_ADDRESS__)
    cr_skip_test("a sanitizer's times say nothing");
#endif
    static const char *const unit[] = {"a", " ", "\n", "_", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "\xFF", "\xCC\x81\xCC\xA3", "ab",
                                       " a", "1", "\xE2\x96\x81", "\r\n", "<|", "<s>", "<|im_start|>", "\xEA\xB0\x80", " \n", "'"};
    char *text = malloc(SIZE_MAX_BYTES + 16);
    for (int i = 0; i < TOK_NAMES; i++) {
        struct qr_tokenizer *t = tok_open_name(tok_names[i]);
        double worst = 0;
        for (int k = 0; k < QR_COUNT(unit); k++)
            check_cost(t, tok_names[i], unit[k], text, &worst);
        fprintf(stderr, "cost: %s: they take at most %.1f times as long as a tenth of them\n", tok_names[i], worst);
        qr_tokenizer_close(t);
    }
    free(text);
}
