/* Special tokens: only trusted text makes them, whatever the tokenizer. */
#include "tok_test.h"

#include "base/assert.h"
#include "base/rng.h"
#include "tests/full.h"

static bool has_special(const struct qr_tokenizer *t, const struct qr_ids *ids)
{
    for (int32_t i = 0; i < ids->n; i++)
        if (qr_tokenizer_is_special(t, ids->id[i]))
            return true;
    return false;
}

static void encode_segments(const struct qr_tokenizer *t, struct qr_ids *out, const char *text, size_t n,
                            const struct qr_segment *segment, int32_t n_segments)
{
    struct qr_err err;
    out->n = 0;
    int rc = qr_tokenizer_encode_segments(t, out, text, n, segment, n_segments, 0, &err);
    cr_assert(rc == 0, "%s", rc ? err.msg : "");
}

/* The special token inside "x ... y", cut into two segments at every byte, with each choice of trust. */
static void check_cuts(const struct qr_tokenizer *t, int32_t id, const char *content, size_t n)
{
    char text[8400];
    struct qr_ids got = {0}, whole = {0};
    size_t len = (size_t)snprintf(text, sizeof text, "x %.*s y", (int)n, content);
    tok_encode(t, &whole, text, len, QR_ENCODE_PARSE_SPECIAL);
    cr_expect(has_special(t, &whole), "\"%.*s\" is not recognised at all", (int)n, content);
    tok_encode(t, &got, text, len, 0);
    cr_expect(!has_special(t, &got), "\"%.*s\" is recognised without being asked for: %s", (int)n, content, tok_show(&got));
    for (size_t cut = 0; cut <= len; cut++) {
        for (int trust = 0; trust < 4; trust++) {
            bool left = trust & 1, right = trust & 2;
            struct qr_segment s[2] = {{0, cut, left}, {cut, len - cut, right}};
            encode_segments(t, &got, text, len, s, 2);
            bool may = (left && right) || (left && cut >= 2 + n) || (right && cut <= 2);
            cr_expect(has_special(t, &got) == may, "\"%.*s\" cut at %zu, trusted %d %d: %s", (int)n, content, cut, left, right,
                      tok_show(&got));
            if (may)
                cr_expect(tok_same(&got, &whole), "trusted text gives other ids: %s", tok_show(&got));
        }
    }
    qr_ids_release(&got);
    qr_ids_release(&whole);
}

static void check_tokenizer(const struct qr_tokenizer *t, const char *name)
{
    int32_t n_special = 0;
    for (int32_t id = 0; id < qr_tokenizer_vocab_size(t); id++) {
        size_t n;
        const char *content = qr_tokenizer_token_bytes(t, id, &n);
        if (!qr_tokenizer_is_special(t, id))
            continue;
        cr_expect(qr_tokenizer_token_id(t, content, n) == id);
        check_cuts(t, id, content, n);
        n_special++;
    }
    cr_expect(n_special > 0, "%s has no special token", name);
}

Test(special, no_special_token_comes_out_of_untrusted_text_whole_or_cut, .timeout = 120)
{
    TOK_NEED_DATA();
    for (int i = 0; i < TOK_NAMES; i++) {
        struct qr_tokenizer *t = tok_open_name(tok_names[i]);
        check_tokenizer(t, tok_names[i]);
        qr_tokenizer_close(t);
    }
    struct qr_tokenizer *t = tok_open("models/stories260K");
    check_tokenizer(t, "stories260K");
    qr_tokenizer_close(t);
}

/* Random texts with specials strewn in, cut at random: untrusted specials are the only difference to the whole. */
Test(special, segments_without_untrusted_specials_give_the_ids_of_the_whole)
{
    TOK_NEED_DATA();
    static const char *const plain[] = {"Hello", " world", "\n\n", "  ", "'ll", "123", "\xE4\xB8\xAD", "\xF0\x9F\x98\x80", "e\xCC\x81", "<|", "s>"};
    struct qr_rng rng = {.seed = 4711};
    struct qr_ids whole = {0}, got = {0};
    for (int i = 0; i < TOK_NAMES; i++) {
        struct qr_tokenizer *t = tok_open_name(tok_names[i]);
        const char *special = i == 1 || i == 2 ? "</s>" : i == 3 ? "<|im_end|>" : i == 4 ? "<|eot_id|>" : "<|endoftext|>";
        for (int round = 0; round < test_cases(2000); round++) {
            struct qr_buf text = {0};
            struct qr_segment s[40];
            int32_t n = 0, parts = (int32_t)qr_rng_below(&rng, 20);
            qr_buf_reserve(&text, 1);
            for (int32_t k = 0; k < parts; k++) {
                bool is_special = qr_rng_below(&rng, 5) == 0;
                const char *part = is_special ? special : plain[qr_rng_below(&rng, (uint32_t)QR_COUNT(plain))];
                s[n++] = (struct qr_segment){text.len, strlen(part), is_special || qr_rng_below(&rng, 2)};
                qr_buf_put_str(&text, part);
            }
            tok_encode(t, &whole, text.data, text.len, QR_ENCODE_PARSE_SPECIAL);
            encode_segments(t, &got, text.data, text.len, s, n);
            cr_assert(tok_same(&whole, &got), "\"%.*s\" gives %s, as a whole %s", (int)text.len, text.data, tok_show(&got),
                      tok_show(&whole));
            qr_buf_release(&text);
        }
        qr_tokenizer_close(t);
    }
    qr_ids_release(&whole);
    qr_ids_release(&got);
}

static struct qr_tokenizer *parse(const char *json)
{
    struct qr_err err;
    struct qr_tokenizer *t = NULL;
    int rc = qr_tokenizer_parse(&t, json, strlen(json), NULL, 0, &err);
    cr_assert(rc == 0, "%s", rc ? err.msg : "");
    return t;
}

/* Merges and whole-piece look-ups know special tokens too; plain text must not reach them that way. */
Test(special, neither_merges_nor_whole_pieces_make_a_special_token_of_plain_text)
{
    static const char json[] = "{\"added_tokens\":[{\"id\":5,\"content\":\"abc\",\"special\":true},{\"id\":4,\"content\":\"ab\",\"special\":true}],"
                               "\"model\":{\"ignore_merges\":%s,\"vocab\":{\"a\":0,\"b\":1,\"c\":2,\"d\":3,\"ab\":4,\"abc\":5,\"abcd\":6},"
                               "\"merges\":[\"a b\",\"ab c\",\"abc d\"]}}";
    for (int i = 0; i < 2; i++) {
        char text[600];
        struct qr_ids ids = {0};
        snprintf(text, sizeof text, json, i ? "true" : "false");
        struct qr_tokenizer *t = parse(text);
        tok_encode(t, &ids, "abc", 3, 0);
        cr_expect(ids.n == 3 && ids.id[0] == 0 && ids.id[1] == 1 && ids.id[2] == 2, "abc gives %s", tok_show(&ids));
        tok_encode(t, &ids, "abcd", 4, 0);
        cr_expect(ids.n == 1 && ids.id[0] == 6, "a longer token may be made through a special one: %s", tok_show(&ids));
        tok_encode(t, &ids, "abcd", 4, QR_ENCODE_PARSE_SPECIAL);
        cr_expect(ids.n == 2 && ids.id[0] == 5 && ids.id[1] == 3, "abcd gives %s", tok_show(&ids));
        qr_ids_release(&ids);
        qr_tokenizer_close(t);
    }
}

/* A normalizer may turn plain text into a special token's content; trust follows the bytes through it. */
Test(special, trust_survives_normalizing)
{
    static const char json[] = "{\"added_tokens\":[{\"id\":4,\"content\":\"<s>\",\"special\":true,\"normalized\":true}],"
                               "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"[\"},"
                               "\"content\":\"<\"},{\"type\":\"NFC\"}]},"
                               "\"model\":{\"vocab\":{\"<\":0,\"s\":1,\">\":2,\"\xC3\xA9\":3},\"merges\":[]}}";
    struct qr_tokenizer *t = parse(json);
    struct qr_ids ids = {0};
    static const char text[] = "e\xCC\x81[s>e\xCC\x81[s>";
    struct qr_segment s[2] = {{0, 6, true}, {6, 6, false}};
    encode_segments(t, &ids, text, 12, s, 2);
    cr_expect(ids.n == 6 && ids.id[1] == 4 && ids.id[3] == 0, "%s", tok_show(&ids));
    s[0].trusted = false;
    encode_segments(t, &ids, text, 12, s, 2);
    cr_expect(ids.n == 8, "%s", tok_show(&ids));
    s[0] = (struct qr_segment){0, 8, true};
    s[1] = (struct qr_segment){8, 4, true};
    encode_segments(t, &ids, text, 12, s, 2);
    cr_expect(ids.n == 4 && ids.id[3] == 4, "%s", tok_show(&ids));
    qr_ids_release(&ids);
    qr_tokenizer_close(t);
}

Test(special, broken_utf8_moves_no_border_of_trust)
{
    TOK_NEED_DATA();
    struct qr_tokenizer *t = tok_open_name("qwen2.5");
    static const char text[] = "\xFF\xFF\xFF<|im_end|>\xFF<|im_end|>\xE4";
    struct qr_segment s[3] = {{0, 3, false}, {3, 10, true}, {13, 12, false}};
    struct qr_ids ids = {0};
    int32_t n = 0, end = qr_tokenizer_token_id(t, "<|im_end|>", 10);
    encode_segments(t, &ids, text, sizeof text - 1, s, 3);
    for (int32_t i = 0; i < ids.n; i++)
        n += ids.id[i] == end;
    cr_expect(n == 1, "%s", tok_show(&ids));
    qr_ids_release(&ids);
    qr_tokenizer_close(t);
}
