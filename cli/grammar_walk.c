#include "cli/grammar_walk.h"

#include <string.h>

#include "base/assert.h"
#include "base/rng.h"
#include "base/utf8.h"

#define END_BYTES_MAX 16384 /* of a shortest end */

/* Of eight draws, in every second walk one is the next byte of the shortest end, and so finishes what is open; two more are any byte that is
 * a token; the others are any token. Tokens alone would hardly ever leave a string, in which a hundred thousand of them may follow and one
 * ends it; and walks that hurry to an end are short. */
enum { DRAWS = 8, DRAWS_OF_END = 1, DRAWS_OF_BYTES = 3 };

void qr_walk_init(struct qr_walk *w, const struct qr_vocab *vocab, uint32_t *mask)
{
    QR_ASSERT(vocab);
    QR_ASSERT(mask);
    *w = (struct qr_walk){.vocab = vocab, .mask = mask};
    for (int32_t i = 0; i < 256; i++)
        w->byte_token[i] = -1;
    for (int32_t id = qr_vocab_size(vocab) - 1; id >= 0; id--) {
        size_t len;
        const char *bytes = qr_vocab_token(vocab, id, &len);
        if (len == 1)
            w->byte_token[(unsigned char)bytes[0]] = id;
    }
}

static bool allowed(const struct qr_walk *w, int32_t id)
{
    return id >= 0 && (w->mask[id / 32] >> (id % 32) & 1) != 0;
}

/* Token number `rank` of the mask's, or -1. */
static int32_t nth(const struct qr_walk *w, uint32_t rank)
{
    const size_t n_words = QR_MASK_WORDS(qr_vocab_size(w->vocab));
    for (size_t i = 0; i < n_words; i++) {
        uint32_t word = w->mask[i];
        const uint32_t n = (uint32_t)__builtin_popcount(word);
        if (rank >= n) {
            rank -= n;
            continue;
        }
        for (; rank > 0; rank--)
            word &= word - 1;
        return (int32_t)(i * 32) + __builtin_ctz(word);
    }
    return -1;
}

static int32_t any_token(const struct qr_walk *w, struct qr_rng *rng)
{
    const size_t n_words = QR_MASK_WORDS(qr_vocab_size(w->vocab));
    uint32_t n = 0;
    for (size_t i = 0; i < n_words; i++)
        n += (uint32_t)__builtin_popcount(w->mask[i]);
    return n > 0 ? nth(w, qr_rng_below(rng, n)) : -1;
}

static int32_t any_byte(const struct qr_walk *w, struct qr_rng *rng)
{
    int32_t id[256];
    uint32_t n = 0;
    for (int32_t i = 0; i < 256; i++)
        if (allowed(w, w->byte_token[i]))
            id[n++] = w->byte_token[i];
    return n > 0 ? id[qr_rng_below(rng, n)] : -1;
}

/* The first byte of the shortest end, where it is an allowed token. */
static int32_t byte_of_end(const struct qr_walk *w, struct qr_matcher *m)
{
    char end[END_BYTES_MAX];
    const int32_t n = qr_matcher_shortest(m, end, sizeof end);
    const int32_t id = n > 0 ? w->byte_token[(unsigned char)end[0]] : -1;
    return allowed(w, id) ? id : -1;
}

static int32_t draw(const struct qr_walk *w, struct qr_matcher *m, struct qr_rng *rng)
{
    const uint32_t kind = qr_rng_below(rng, DRAWS);
    const bool hurries = rng->seed % 2 == 0;
    const int32_t id = kind < DRAWS_OF_END && hurries ? byte_of_end(w, m) : kind < DRAWS_OF_BYTES ? any_byte(w, rng) : -1;
    return id >= 0 ? id : any_token(w, rng);
}

/* A token at random that the mask leaves out must be refused. */
static int try_left_out(const struct qr_walk *w, const struct qr_buf *text, struct qr_matcher *m, struct qr_rng *rng, struct qr_err *err)
{
    const int32_t id = (int32_t)qr_rng_below(rng, (uint32_t)qr_vocab_size(w->vocab));
    if (!allowed(w, id) && qr_matcher_token(m, id))
        return qr_err_set(err, QR_E_INTERNAL, "the mask behind %zu bytes leaves out token %d, which was taken: %.200s", text->len, id,
                          text->data ? text->data : "");
    return 0;
}

/* Up to n tokens; *ended: an end token was one of them. */
static int walk_tokens(struct qr_walk *w, struct qr_buf *out, struct qr_matcher *m, int32_t n, struct qr_rng *rng, bool *ended, struct qr_err *err)
{
    for (int32_t i = 0; i < n && !*ended; i++) {
        int rc = qr_matcher_mask(m, w->mask, err);
        rc = rc ? rc : try_left_out(w, out, m, rng, err);
        if (rc != 0)
            return rc;
        const int32_t id = draw(w, m, rng);
        if (id < 0)
            return qr_err_set(err, QR_E_INTERNAL, "the mask behind %zu bytes is empty: %.200s", out->len, out->data ? out->data : "");
        if (!qr_matcher_token(m, id))
            return qr_err_set(err, QR_E_INTERNAL, "token %d is in the mask behind %zu bytes and was refused: %.200s", id, out->len, out->data ? out->data : "");
        *ended = qr_vocab_is_end(w->vocab, id);
        size_t len;
        const char *bytes = qr_vocab_token(w->vocab, id, &len);
        qr_buf_put(out, bytes, *ended ? 0 : len);
    }
    return 0;
}

static int finish(struct qr_buf *out, struct qr_matcher *m, struct qr_err *err)
{
    char end[END_BYTES_MAX];
    const int32_t n = qr_matcher_shortest(m, end, sizeof end);
    if (n < 0)
        return qr_err_set(err, QR_E_TOO_LARGE, "the shortest end behind %zu bytes is longer than %d", out->len, END_BYTES_MAX);
    if (!qr_matcher_bytes(m, end, (size_t)n, NULL) || !qr_matcher_accepts(m))
        return qr_err_set(err, QR_E_INTERNAL, "the shortest end behind %zu bytes is none: %.*s", out->len, n, end);
    qr_buf_put(out, end, (size_t)n);
    return 0;
}

int qr_walk_text(struct qr_walk *w, struct qr_buf *out, struct qr_grammar *g, uint64_t seed, struct qr_err *err)
{
    QR_ASSERT(w);
    QR_ASSERT(g);
    struct qr_rng rng = {.seed = seed};
    struct qr_buf text = {0};
    struct qr_matcher m;
    bool ended = false;
    /* Most walks are short, and every length comes up. */
    const double u = qr_rng_next_unit(&rng);
    const int32_t n = 1 + (int32_t)(u * u * QR_WALK_TOKENS_MAX);
    qr_matcher_init(&m, g);
    int rc = walk_tokens(w, &text, &m, n < QR_WALK_TOKENS_MAX ? n : QR_WALK_TOKENS_MAX, &rng, &ended, err);
    if (rc == 0 && !ended)
        rc = finish(&text, &m, err);
    if (rc == 0 && !qr_utf8_is_valid(text.data ? text.data : "", text.len))
        rc = qr_err_set(err, QR_E_INTERNAL, "a text of %zu bytes is no UTF-8: %.300s", text.len, text.data);
    if (rc == 0)
        qr_buf_put(out, text.data ? text.data : "", text.len);
    else
        qr_err_prefix(err, "walk %llu: ", (unsigned long long)seed);
    qr_matcher_release(&m);
    qr_buf_release(&text);
    return rc;
}
