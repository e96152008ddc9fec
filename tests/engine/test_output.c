#include <criterion/criterion.h>

#include "base/rng.h"
#include "engine/output.h"
#include "harness.h"

#define MODEL "models/stories260K"

static struct qr_tokenizer *open_tokenizer(void)
{
    struct qr_err err;
    struct qr_tokenizer *t = NULL;
    const char *dir = data_path(MODEL);
    if (!dir)
        cr_skip_test("no conformance data (QUIRE_DATA): the stop-string tests need %s", MODEL);
    cr_assert(qr_tokenizer_open(&t, dir, &err) == 0);
    return t;
}

/* The id of a letter. (Not a byte token: SentencePiece decodes a run of those as a whole, so they come out late.) */
static int32_t letter_id(const struct qr_tokenizer *t, char c)
{
    int32_t id = qr_tokenizer_token_id(t, &c, 1);
    cr_assert(id >= 0, "this vocabulary has no piece '%c'", c);
    return id;
}

/* Pushes text until the choice ends; collects what came out at each push. */
static enum qr_finish push_text(struct qr_output *o, const struct qr_request *r, const char *text, size_t n, struct qr_buf *out)
{
    for (size_t i = 0; i < n && o->finish == QR_FINISH_NONE; i++) {
        char piece[64];
        qr_output_push(o, r, letter_id(o->detok.t, text[i]), NULL, 0, 100000);
        int32_t got;
        while ((got = qr_output_take(o, piece, sizeof piece)) > 0)
            qr_buf_put(out, piece, (size_t)got);
    }
    return o->finish;
}

/* The stop string that is complete first (ties: the first of the list), found naively. Returns the offset behind it, or 0. */
static size_t naive_stop(const char *text, size_t n, const struct qr_sampling *s, int32_t *index)
{
    for (size_t end = 1; end <= n; end++)
        for (int32_t i = 0; i < s->n_stops; i++) {
            size_t len = strlen(s->stop[i]);
            if (len <= end && memcmp(text + end - len, s->stop[i], len) == 0) {
                *index = i;
                return end;
            }
        }
    return 0;
}

Test(output, stop_strings_cut_the_text_exactly_and_nothing_is_taken_back)
{
    struct qr_tokenizer *t = open_tokenizer();
    struct qr_rng rng = {.seed = 20261121};
    cr_log_info("seed %llu", (unsigned long long)rng.seed);
    char *mem = qr_alloc((size_t)qr_output_text_cap(t), 1);
    for (int round = 0; round < 3000; round++) {
        /* two letters only, so that stop strings overlap themselves and one another */
        char text[64], stops[4][8];
        struct qr_sampling s;
        qr_sampling_init(&s);
        s.max_tokens = 1000;
        s.include_stop = round % 2;
        for (size_t i = 0; i < sizeof text; i++)
            text[i] = (char)('a' + qr_rng_below(&rng, 2));
        s.n_stops = (int32_t)qr_rng_below(&rng, 5);
        for (int32_t i = 0; i < s.n_stops; i++) {
            uint32_t len = 1 + qr_rng_below(&rng, 7);
            for (uint32_t j = 0; j < len; j++)
                stops[i][j] = (char)('a' + qr_rng_below(&rng, 2));
            stops[i][len] = 0;
            s.stop[i] = stops[i];
        }
        struct qr_request *r = qr_request_new(&s, NULL, 0, 1);
        struct qr_output o;
        struct qr_buf out = {0};
        qr_output_init(&o, mem, r, 0, t);
        int32_t index = -1;
        size_t end = naive_stop(text, sizeof text, &s, &index), want = end ? end - (s.include_stop ? 0 : strlen(s.stop[index])) : sizeof text;
        enum qr_finish finish = push_text(&o, r, text, sizeof text, &out);
        cr_assert(finish == (end ? QR_FINISH_STOP : QR_FINISH_NONE));
        if (!end) {
            qr_output_end(&o, QR_FINISH_LENGTH);
            char rest[512];
            qr_buf_put(&out, rest, (size_t)qr_output_take(&o, rest, sizeof rest));
        } else {
            cr_assert(o.stop_index == index);
        }
        cr_assert(out.len == want && memcmp(out.data ? out.data : "", text, want) == 0, "round %d: %zu bytes, expected %zu", round, out.len, want);
        qr_buf_release(&out);
        qr_request_free(r);
    }
    qr_free(mem);
    qr_tokenizer_close(t);
}

Test(output, a_stop_string_waits_for_min_tokens)
{
    struct qr_tokenizer *t = open_tokenizer();
    char *mem = qr_alloc((size_t)qr_output_text_cap(t), 1);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 100;
    s.min_tokens = 4;
    s.stop[s.n_stops++] = "ab";
    struct qr_request *r = qr_request_new(&s, NULL, 0, 1);
    struct qr_output o;
    struct qr_buf out = {0};
    qr_output_init(&o, mem, r, 0, t);
    cr_assert(push_text(&o, r, "abababab", 8, &out) == QR_FINISH_STOP);
    cr_assert(o.n_output == 4 && out.len == 2 && memcmp(out.data, "ab", 2) == 0);
    qr_buf_release(&out);
    qr_request_free(r);
    qr_free(mem);
    qr_tokenizer_close(t);
}

Test(output, text_is_held_only_while_a_stop_string_may_begin_in_it)
{
    struct qr_tokenizer *t = open_tokenizer();
    char *mem = qr_alloc((size_t)qr_output_text_cap(t), 1), piece[64];
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 100;
    s.stop[s.n_stops++] = "END";
    struct qr_request *r = qr_request_new(&s, NULL, 0, 1);
    struct qr_output o;
    qr_output_init(&o, mem, r, 0, t);
    static const struct {
        char c;
        const char *gives;
    } steps[] = {{'x', "x"}, {'E', ""}, {'N', ""}, {'E', "EN"}, {'N', ""}, {'x', "ENx"}};
    for (size_t i = 0; i < sizeof steps / sizeof steps[0]; i++) {
        qr_output_push(&o, r, letter_id(t, steps[i].c), NULL, 0, 1000);
        int32_t n = qr_output_take(&o, piece, sizeof piece);
        cr_assert(n == (int32_t)strlen(steps[i].gives) && memcmp(piece, steps[i].gives, (size_t)n) == 0, "step %zu", i);
    }
    qr_request_free(r);
    qr_free(mem);
    qr_tokenizer_close(t);
}

Test(output, ends_by_end_token_stop_id_length_and_context)
{
    struct qr_tokenizer *t = open_tokenizer();
    char *mem = qr_alloc((size_t)qr_output_text_cap(t), 1);
    struct qr_sampling s;
    qr_sampling_init(&s);
    s.max_tokens = 3;
    s.stop_ids[s.n_stop_ids++] = letter_id(t, 'q');
    struct qr_request *r = qr_request_new(&s, NULL, 0, 1);
    struct qr_output o;
    int32_t eos = 2;
    qr_output_init(&o, mem, r, 0, t);
    qr_output_push(&o, r, eos, &eos, 1, 1000);
    cr_assert(o.finish == QR_FINISH_STOP && o.stop_id == eos);
    qr_output_init(&o, mem, r, 0, t);
    qr_output_push(&o, r, letter_id(t, 'q'), &eos, 1, 1000);
    cr_assert(o.finish == QR_FINISH_STOP && o.stop_id == letter_id(t, 'q') && o.text_len == 0);
    qr_output_init(&o, mem, r, 0, t);
    for (int i = 0; i < 3; i++) {
        cr_assert(o.finish == QR_FINISH_NONE);
        qr_output_push(&o, r, letter_id(t, 'z'), &eos, 1, 1000);
    }
    cr_assert(o.finish == QR_FINISH_LENGTH && o.n_certain == 3);
    qr_output_init(&o, mem, r, 0, t);
    qr_output_push(&o, r, letter_id(t, 'z'), &eos, 1, 1);
    cr_assert(o.finish == QR_FINISH_LENGTH);
    r->sampling.ignore_eos = true;
    qr_output_init(&o, mem, r, 0, t);
    qr_output_push(&o, r, eos, &eos, 1, 1000);
    cr_assert(o.finish == QR_FINISH_NONE);
    qr_request_free(r);
    qr_free(mem);
    qr_tokenizer_close(t);
}
