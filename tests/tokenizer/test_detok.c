/* Streaming equals decoding at once, whatever the ids, the context and the kind of decoder. */
#include "tok_test.h"

#include "base/assert.h"
#include "base/rng.h"
#include "base/utf8.h"
#include "tests/full.h"

struct stream {
    struct qr_buf text;
    char *piece;
};

static void stream_ids(struct stream *s, const struct qr_tokenizer *t, const int32_t *context, int32_t n_context,
                       const int32_t *ids, int32_t n, bool skip)
{
    struct qr_detok d;
    s->text.len = 0;
    qr_detok_init(&d, t, context, n_context, skip);
    for (int32_t i = 0; i <= n; i++) {
        size_t len = i < n ? qr_detok_push(&d, s->piece, ids[i]) : qr_detok_flush(&d, s->piece);
        cr_assert(len <= qr_detok_piece_max(t), "a piece of %zu bytes", len);
        cr_assert(len == 0 || qr_utf8_valid_prefix(s->piece, len) == len, "a piece ends inside a character");
        qr_buf_put(&s->text, s->piece, len);
    }
}

/* What the context shows is what a stream of it alone shows before its flush. */
static size_t context_text(struct stream *s, const struct qr_tokenizer *t, const int32_t *context, int32_t n, bool skip)
{
    struct qr_detok d;
    size_t len = 0;
    qr_detok_init(&d, t, NULL, 0, skip);
    for (int32_t i = 0; i < n; i++)
        len += qr_detok_push(&d, s->piece, context[i]);
    return len;
}

static void check_list(struct stream *s, const struct qr_tokenizer *t, const int32_t *ids, int32_t n, int32_t n_context, bool skip)
{
    struct qr_buf whole = {0};
    qr_tokenizer_decode(t, &whole, ids, n, skip);
    size_t before = context_text(s, t, ids, n_context, skip);
    stream_ids(s, t, ids, n_context, ids + n_context, n - n_context, skip);
    cr_assert(before + s->text.len == whole.len, "context %d of %d: %zu + %zu bytes, expected %zu: \"%.*s\" | \"%.*s\"", n_context, n,
              before, s->text.len, whole.len, (int)whole.len, whole.data ? whole.data : "", (int)s->text.len,
              s->text.data ? s->text.data : "");
    cr_assert(s->text.len == 0 || memcmp(s->text.data, whole.data + before, s->text.len) == 0,
              "context %d of %d: the stream is \"%.*s\", the whole is \"%.*s\"", n_context, n, (int)s->text.len, s->text.data,
              (int)whole.len, whole.data);
    qr_buf_release(&whole);
}

/* Ids that decode to single bytes of broken characters, special ids, ids outside and anything else. */
struct mix {
    struct qr_ids bytes, special;
};

static void collect(struct mix *m, const struct qr_tokenizer *t)
{
    *m = (struct mix){0};
    for (int32_t id = 0; id < qr_tokenizer_vocab_size(t); id++) {
        size_t n;
        const char *s = qr_tokenizer_token_bytes(t, id, &n);
        if (qr_tokenizer_is_special(t, id))
            qr_ids_push(&m->special, id);
        else if (n > 0 && qr_utf8_valid_prefix(s, n) != n)
            qr_ids_push(&m->bytes, id);
    }
}

static int32_t draw(struct qr_rng *rng, const struct mix *m, const struct qr_tokenizer *t, uint32_t kind)
{
    uint32_t roll = qr_rng_below(rng, 100);
    if (roll < 3)
        return (int32_t)qr_rng_below(rng, 1u << 24);
    if (roll < 10 && m->special.n > 0)
        return m->special.id[qr_rng_below(rng, (uint32_t)m->special.n)];
    if (m->bytes.n > 0 && (kind == 1 || (kind == 2 && roll < 60)))
        return m->bytes.id[qr_rng_below(rng, (uint32_t)m->bytes.n)];
    return (int32_t)qr_rng_below(rng, (uint32_t)qr_tokenizer_vocab_size(t));
}

static void check_random(const struct qr_tokenizer *t, const char *name, int rounds, uint64_t seed)
{
    struct qr_rng rng = {.seed = seed};
    struct mix m;
    struct stream s = {.piece = malloc(qr_detok_piece_max(t))};
    fprintf(stderr, "detok: %s, seed %llu\n", name, (unsigned long long)seed);
    collect(&m, t);
    for (int i = 0; i < rounds; i++) {
        int32_t ids[300], n = (int32_t)qr_rng_below(&rng, i % 10 ? 24 : 300);
        uint32_t kind = qr_rng_below(&rng, 3);
        for (int32_t k = 0; k < n; k++)
            ids[k] = draw(&rng, &m, t, kind);
        for (int32_t c = 0; c <= n; c += 1 + n / 8)
            check_list(&s, t, ids, n, c, i & 1);
    }
    qr_ids_release(&m.bytes);
    qr_ids_release(&m.special);
    qr_buf_release(&s.text);
    free(s.piece);
}

Test(detok, streams_random_ids_to_the_decoded_text, .timeout = 200)
{
    TOK_NEED_DATA();
    for (int i = 0; i < TOK_NAMES; i++) {
        struct qr_tokenizer *t = tok_open_name(tok_names[i]);
        check_random(t, tok_names[i], test_cases(1000), 7 + (uint64_t)i);
        qr_tokenizer_close(t);
    }
}

/* Encoded text that is mostly rare characters: valid byte runs of every length that is held. */
Test(detok, streams_encoded_text_back_to_itself)
{
    TOK_NEED_DATA();
    struct qr_rng rng = {.seed = 99};
    struct qr_tokenizer *t = tok_open("models/stories260K");
    struct stream s = {.piece = malloc(qr_detok_piece_max(t))};
    struct qr_ids ids = {0};
    for (int i = 0; i < 500; i++) {
        char text[400];
        size_t n = 0, chars = qr_rng_below(&rng, 60);
        for (size_t k = 0; k < chars; k++) {
            uint32_t cp = qr_rng_below(&rng, 4) ? 0x4E00 + qr_rng_below(&rng, 0x5000) : 0x1F600 + qr_rng_below(&rng, 64);
            n += (size_t)qr_utf8_encode(qr_rng_below(&rng, 9) ? cp : 'a' + cp % 26, text + n);
        }
        tok_encode(t, &ids, text, n, 0);
        for (int32_t c = 0; c <= ids.n; c += 1 + ids.n / 8)
            check_list(&s, t, ids.id, ids.n, c, true);
        stream_ids(&s, t, NULL, 0, ids.id, ids.n, true);
        cr_assert(s.text.len == n && memcmp(s.text.data ? s.text.data : "", text, n) == 0);
    }
    qr_ids_release(&ids);
    qr_buf_release(&s.text);
    free(s.piece);
    qr_tokenizer_close(t);
}

/* The one exception, by design: a valid run longer than is held is released, and a bad byte after it spoils only the rest. */
Test(detok, releases_a_long_valid_byte_run_before_it_ends)
{
    TOK_NEED_DATA();
    struct qr_tokenizer *t = tok_open("models/stories260K");
    struct qr_detok d;
    char *piece = malloc(qr_detok_piece_max(t));
    size_t sent = 0;
    static const uint8_t emoji[4] = {0xF0, 0x9F, 0x98, 0x80};
    qr_detok_init(&d, t, NULL, 0, true);
    for (int i = 0; i < 4 * 40; i++) {
        char name[8];
        snprintf(name, sizeof name, "<0x%02X>", emoji[i & 3]);
        sent += qr_detok_push(&d, piece, qr_tokenizer_token_id(t, name, 6));
    }
    cr_expect(sent >= 4 * 40 - QR_DETOK_TAIL, "%zu bytes came out of 160", sent);
    sent += qr_detok_push(&d, piece, qr_tokenizer_token_id(t, "<0xFF>", 6));
    sent += qr_detok_flush(&d, piece);
    cr_expect(sent > 160);
    free(piece);
    qr_tokenizer_close(t);
}

static const char *const decoder[] = {
    "null",
    "{\"type\":\"ByteLevel\"}",
    "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"prepend_scheme\":\"always\"}",
    "{\"type\":\"Metaspace\",\"replacement\":\"_\",\"add_prefix_space\":false}",
    "{\"type\":\"ByteFallback\"}",
    "{\"type\":\"Fuse\"}",
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"_\"},\"content\":\"  \"},"
    "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},{\"type\":\"Strip\",\"content\":\" \",\"start\":3,\"stop\":0}]}",
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Strip\",\"content\":\"a\",\"start\":1,\"stop\":1},{\"type\":\"ByteFallback\"}]}",
    "{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"},"
    "{\"type\":\"Strip\",\"content\":\"\xEF\xBF\xBD\",\"start\":2,\"stop\":0}]}",
};

static struct qr_tokenizer *small_tokenizer(const char *decoder_json)
{
    struct qr_buf json = {0};
    struct qr_err err;
    struct qr_tokenizer *t = NULL;
    qr_buf_printf(&json, "{\"decoder\":%s,\"added_tokens\":[{\"id\":9,\"content\":\"<s>\",\"special\":true}],\"model\":{\"vocab\":{"
                         "\"\":0,\"_\":1,\"__\":2,\"_a\":3,\"aa\":4,\"a\":5,\"\xC3\xA9\":6,\"_a_\":7,\" \":8,\"\xC4\xA0\":10,\"\xC3\x83\":11",
                  decoder_json);
    for (int i = 0; i < 256; i++)
        qr_buf_printf(&json, ",\"<0x%02X>\":%d", (unsigned)i, 20 + i);
    qr_buf_put_str(&json, "},\"merges\":[]}}");
    int rc = qr_tokenizer_parse(&t, json.data, json.len, NULL, 0, &err);
    cr_assert(rc == 0, "%s", rc ? err.msg : "");
    qr_buf_release(&json);
    return t;
}

Test(detok, streams_every_kind_of_decoder)
{
    for (int i = 0; i < QR_COUNT(decoder); i++) {
        struct qr_tokenizer *t = small_tokenizer(decoder[i]);
        check_random(t, decoder[i], 600, 1000 + (uint64_t)i);
        qr_tokenizer_close(t);
    }
}

static void expect_decode(const char *decoder_json, const int32_t *ids, int32_t n, const char *want)
{
    struct qr_tokenizer *t = small_tokenizer(decoder_json);
    struct qr_buf out = {0};
    qr_tokenizer_decode(t, &out, ids, n, false);
    cr_expect(out.len == strlen(want) && (out.len == 0 || memcmp(out.data, want, out.len) == 0), "%s gives \"%.*s\", expected \"%s\"",
              decoder_json, (int)out.len, out.data ? out.data : "", want);
    qr_buf_release(&out);
    qr_tokenizer_close(t);
}

Test(detok, decoders_do_what_their_definition_says)
{
    expect_decode(decoder[0], (int32_t[]){3, 5, 999, 4}, 4, "_a a aa");
    expect_decode(decoder[1], (int32_t[]){10, 11, 5}, 3, " \xEF\xBF\xBD" "a");
    expect_decode(decoder[2], (int32_t[]){7, 7}, 2, "a a ");
    expect_decode(decoder[3], (int32_t[]){7, 7}, 2, " a  a ");
    expect_decode(decoder[4], (int32_t[]){20 + 0xC3, 20 + 0xA9, 5, 20 + 0xC3, 5}, 5, "\xC3\xA9" "a\xEF\xBF\xBD" "a");
    expect_decode(decoder[6], (int32_t[]){1, 3}, 2, " a");
    expect_decode(decoder[7], (int32_t[]){4, 5, 3}, 3, "_");
}
