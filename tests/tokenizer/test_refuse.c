/* Files are input: what is damaged or unknown is refused by name, and a damaged file never crashes. */
#include "tok_test.h"

#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/assert.h"
#include "base/rng.h"
#include "tests/temp.h"

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"

struct refusal {
    const char *json;
    enum qr_code code;
    const char *says;
};

static void expect_refusal(const struct refusal *r)
{
    struct qr_tokenizer *t = NULL;
    struct qr_err err = {0};
    int rc = qr_tokenizer_parse(&t, r->json, strlen(r->json), NULL, 0, &err);
    cr_expect(rc == (int)r->code && strstr(err.msg, r->says), "%s: code %d, \"%s\"; expected %d, \"%s\"", r->json, rc, err.msg,
              (int)r->code, r->says);
    qr_tokenizer_close(rc == 0 ? t : NULL);
}

static const struct refusal unknown[] = {
    {"{\"model\":{\"type\":\"Unigram\",\"vocab\":[]}}", QR_E_UNSUPPORTED, "Unigram"},
    {"{\"model\":{\"type\":\"WordPiece\"}}", QR_E_UNSUPPORTED, "WordPiece"},
    {"{\"model\":{\"type\":\"BPE\",\"dropout\":0.1}}", QR_E_UNSUPPORTED, "dropout 0.1"},
    {"{\"model\":{\"type\":\"BPE\",\"end_of_word_suffix\":\"</w>\"}}", QR_E_UNSUPPORTED, "end_of_word_suffix"},
    {"{\"model\":{\"type\":\"BPE\",\"surprise\":1}}", QR_E_UNSUPPORTED, "surprise"},
    {"{\"later\":1," MODEL "}", QR_E_UNSUPPORTED, "later"},
    {"{\"normalizer\":{\"type\":\"Lowercase\"}," MODEL "}", QR_E_UNSUPPORTED, "Lowercase"},
    {"{\"normalizer\":{\"type\":\"NFC\",\"x\":1}," MODEL "}", QR_E_UNSUPPORTED, "\"x\""},
    {"{\"pre_tokenizer\":{\"type\":\"BertPreTokenizer\"}," MODEL "}", QR_E_UNSUPPORTED, "BertPreTokenizer"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"a&&\"},\"behavior\":\"Sideways\"}," MODEL "}", QR_E_UNSUPPORTED, "Sideways"},
    {"{\"post_processor\":{\"type\":\"BertProcessing\"}," MODEL "}", QR_E_UNSUPPORTED, "BertProcessing"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"Sequence\":{\"id\":\"B\"}}]}," MODEL "}", QR_E_UNSUPPORTED, "\"A\""},
    {"{\"decoder\":{\"type\":\"WordPiece\"}," MODEL "}", QR_E_UNSUPPORTED, "WordPiece"},
    {"{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Fuse\"},{\"type\":\"ByteFallback\"}]}," MODEL "}", QR_E_UNSUPPORTED,
     "ByteFallback"},
};

Test(refuse, what_is_unknown_is_refused_by_its_name)
{
    for (int i = 0; i < QR_COUNT(unknown); i++)
        expect_refusal(&unknown[i]);
}

static const struct refusal broken[] = {
    {"", QR_E_DAMAGED, "line 1"},
    {"[]", QR_E_DAMAGED, "expected an object"},
    {"{}", QR_E_DAMAGED, "no \"model\""},
    {"{" MODEL "} x", QR_E_DAMAGED, "column"},
    {"{\"model\":{\"type\":\"BPE\",\"merges\":[]}}", QR_E_DAMAGED, "no \"vocab\""},
    {"{\"model\":{\"type\":\"BPE\",\"vocab\":{}}}", QR_E_DAMAGED, "no \"merges\""},
    {"{\"model\":{\"vocab\":{\"a\":-1},\"merges\":[]}}", QR_E_DAMAGED, "-1"},
    {"{\"model\":{\"vocab\":{\"a\":16777216},\"merges\":[]}}", QR_E_DAMAGED, "16777216"},
    {"{\"model\":{\"vocab\":{\"a\":1.5},\"merges\":[]}}", QR_E_DAMAGED, "1.5"},
    {"{\"model\":{\"vocab\":{\"a\":1,\"b\":1},\"merges\":[]}}", QR_E_DAMAGED, "twice"},
    {"{\"model\":{\"vocab\":{\"a\":1,\"a\":2},\"merges\":[]}}", QR_E_DAMAGED, "twice"},
    {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"a b\"]}}", QR_E_DAMAGED, "\"b\" is not in the vocabulary"},
    {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"a a\"]}}", QR_E_DAMAGED, "merges[0]: \"aa\""},
    {"{\"model\":{\"merges\":[\"a a\"],\"vocab\":{\"a\":1}}}", QR_E_DAMAGED, "merges[0]: \"aa\""},
    {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[\"aa\"]}}", QR_E_DAMAGED, "one space"},
    {"{\"model\":{\"vocab\":{\"a\":1},\"merges\":[[\"a\"]]}}", QR_E_DAMAGED, "two strings"},
    {"{\"model\":{\"vocab\":{\"a\":1,\"\":2},\"merges\":[[\"\",\"a\"]]}}", QR_E_DAMAGED, "not in the vocabulary"},
    {"{\"model\":{\"unk_token\":\"u\",\"vocab\":{\"a\":1},\"merges\":[]}}", QR_E_DAMAGED, "unk_token"},
    {"{\"added_tokens\":[{\"id\":1,\"content\":\"x\"}]," MODEL "}", QR_E_DAMAGED, "belongs to \"b\""},
    {"{\"added_tokens\":[{\"id\":1}]," MODEL "}", QR_E_DAMAGED, "content"},
    {"{\"added_tokens\":{}," MODEL "}", QR_E_DAMAGED, "array"},
    {"{\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"s\"}},{\"Sequence\":{\"id\":\"A\"}}],"
     "\"special_tokens\":{\"s\":{\"id\":\"s\",\"ids\":[77]}}}," MODEL "}",
     QR_E_DAMAGED, "not in the vocabulary"},
    {"{\"pre_tokenizer\":{\"type\":\"Split\",\"pattern\":{\"Regex\":\"(\"},\"behavior\":\"Isolated\"}," MODEL "}", QR_E_DAMAGED, "parenthes"},
    {"{\"pre_tokenizer\":{\"type\":\"Metaspace\",\"replacement\":\"ab\"}," MODEL "}", QR_E_DAMAGED, "one character"},
    {"{\"pre_tokenizer\":7," MODEL "}", QR_E_DAMAGED, "expected an object"},
    {"{\"normalizer\":{\"type\":\"Sequence\"}," MODEL "}", QR_E_DAMAGED, "array"},
};

Test(refuse, what_is_damaged_is_refused_with_its_place)
{
    for (int i = 0; i < QR_COUNT(broken); i++)
        expect_refusal(&broken[i]);
}

Test(refuse, a_token_may_have_4096_bytes_and_no_more)
{
    for (size_t n = 4095; n <= 4097; n++) {
        struct qr_buf json = {0};
        struct qr_err err = {0};
        struct qr_tokenizer *t = NULL;
        qr_buf_put_str(&json, "{\"model\":{\"vocab\":{\"");
        for (size_t i = 0; i < n; i++)
            qr_buf_put_byte(&json, 'x');
        qr_buf_put_str(&json, "\":16777215},\"merges\":[]}}");
        int rc = qr_tokenizer_parse(&t, json.data, json.len, NULL, 0, &err);
        cr_expect(rc == (n <= 4096 ? 0 : QR_E_DAMAGED), "%zu bytes: %d", n, rc);
        cr_expect(rc != 0 || qr_tokenizer_vocab_size(t) == 16777216);
        qr_tokenizer_close(rc == 0 ? t : NULL);
        qr_buf_release(&json);
    }
}

Test(refuse, order_of_the_members_does_not_matter)
{
    static const char json[] = "{\"model\":{\"merges\":[[\"a\",\"b\"]],\"vocab\":{\"a\":0,\"b\":1,\"ab\":7}},\"decoder\":{\"type\":\"Fuse\"},"
                               "\"added_tokens\":[{\"id\":900,\"content\":\"<e>\",\"special\":true}],\"version\":\"1.0\"}";
    struct qr_err err;
    struct qr_tokenizer *t;
    struct qr_ids ids = {0};
    size_t n;
    cr_assert(qr_tokenizer_parse(&t, json, sizeof json - 1, "{\"eos_token\":{\"content\":\"<e>\"}}", 31, &err) == 0);
    tok_encode(t, &ids, "aab<e>", 6, QR_ENCODE_PARSE_SPECIAL);
    cr_expect(ids.n == 3 && ids.id[0] == 0 && ids.id[1] == 7 && ids.id[2] == 900, "%s", tok_show(&ids));
    cr_expect(qr_tokenizer_eos(t) == 900);
    cr_expect(qr_tokenizer_bos(t) == -1);
    cr_expect(qr_tokenizer_vocab_size(t) == 901);
    qr_tokenizer_token_bytes(t, 500, &n);
    cr_expect(n == 0, "a hole has no bytes");
    qr_tokenizer_token_bytes(t, -1, &n);
    cr_expect(n == 0);
    cr_expect(qr_tokenizer_token_id(t, "ab", 2) == 7);
    cr_expect(qr_tokenizer_token_id(t, "nothing", 7) == -1);
    qr_ids_release(&ids);
    qr_tokenizer_close(t);
}

Test(refuse, a_configuration_decides_about_bos_where_the_reference_lets_it)
{
    static const char json[] = "{\"added_tokens\":[{\"id\":5,\"content\":\"<s>\",\"special\":true},"
                               "{\"id\":6,\"content\":\"</s>\",\"special\":true}],"
                               "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}},"
                               "{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[5],\"tokens\":[\"<s>\"]}}},"
                               MODEL "}";
    static const struct {
        const char *config;
        int32_t n, first, last;
    } c[] = {
        {"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\"}", 2, 5, 0},
        {"{\"bos_token\":\"<s>\",\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":false}", 1, 0, 0},
        {"{\"bos_token\":\"<s>\",\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"add_bos_token\":false}", 2, 5, 0},
        {"{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"tokenizer_class\":\"LlamaTokenizerFast\",\"add_bos_token\":true,\"add_eos_token\":true}", 3, 5, 6},
    };
    for (int i = 0; i < QR_COUNT(c); i++) {
        struct qr_err err;
        struct qr_tokenizer *t;
        struct qr_ids ids = {0};
        cr_assert(qr_tokenizer_parse(&t, json, sizeof json - 1, c[i].config, strlen(c[i].config), &err) == 0);
        tok_encode(t, &ids, "a", 1, QR_ENCODE_ADD_SPECIAL);
        cr_expect(ids.n == c[i].n && ids.id[0] == c[i].first && ids.id[ids.n - 1] == c[i].last, "%s gives %s", c[i].config, tok_show(&ids));
        qr_ids_release(&ids);
        qr_tokenizer_close(t);
    }
    static const struct {
        const char *config, *says;
    } bad[] = {{"", "tokenizer_config.json: expected an object, found an empty file"}, {"[1]", "tokenizer_config.json: expected an object, found array"},
               {"{\"bos_token\":", "tokenizer_config.json: line 1, column 14"}};
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct qr_err err;
        struct qr_tokenizer *t;
        cr_expect_eq(qr_tokenizer_parse(&t, json, sizeof json - 1, bad[i].config, strlen(bad[i].config), &err), QR_E_DAMAGED);
        cr_expect(strstr(err.msg, bad[i].says), "%s", err.msg);
    }
}

/* n steps in a row, of which each makes 64 letters of one. */
static void put_steps(struct qr_buf *out, int n)
{
    for (int i = 0; i < n; i++) {
        qr_buf_put_str(out, i ? ",{" : "{");
        qr_buf_put_str(out, "\"type\":\"Replace\",\"pattern\":{\"String\":\"a\"},\"content\":\"");
        for (int k = 0; k < 64; k++)
            qr_buf_put_byte(out, 'a');
        qr_buf_put_str(out, "\"}");
    }
}

Test(refuse, replacements_that_multiply_are_an_error_and_not_the_end_of_memory)
{
    struct qr_buf json = {0};
    struct qr_err err = {0};
    struct qr_tokenizer *t;
    struct qr_ids ids = {0};
    qr_buf_put_str(&json, "{\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[");
    put_steps(&json, 16);
    qr_buf_put_str(&json, "]}," MODEL "}");
    cr_assert_eq(qr_tokenizer_parse(&t, json.data, json.len, NULL, 0, &err), 0, "%s", err.msg);
    cr_expect_eq(qr_tokenizer_encode(t, &ids, "a", 1, 0, &err), QR_E_TOO_LARGE);
    cr_expect(strstr(err.msg, "normalizers") && ids.n == 0, "%s", err.msg);
    cr_expect_eq(qr_tokenizer_encode(t, &ids, "b", 1, 0, &err), 0);
    cr_expect(ids.n == 1 && ids.id[0] == 1);
    qr_tokenizer_close(t);
    for (int n = 2; n <= 8; n += 6) { /* 4096 bytes are a text */
        qr_buf_clear(&json);
        qr_buf_put_str(&json, "{\"decoder\":{\"type\":\"Sequence\",\"decoders\":[");
        put_steps(&json, n);
        qr_buf_put_str(&json, "]}," MODEL "}");
        const int rc = qr_tokenizer_parse(&t, json.data, json.len, NULL, 0, &err);
        cr_expect(n == 2 ? rc == 0 : rc == QR_E_TOO_LARGE && strstr(err.msg, "decoder"), "%d steps: %d, %s", n, rc, err.msg);
        qr_tokenizer_close(rc == 0 ? t : NULL);
    }
    qr_ids_release(&ids);
    qr_buf_release(&json);
}

/* Cut at every byte and with random bits turned: refused or opened, never a crash (the sanitizers watch). */
Test(refuse, truncated_and_flipped_files_are_refused_or_open, .timeout = 250)
{
    TOK_NEED_DATA();
    struct qr_rng rng = {.seed = 31337};
    struct qr_buf good = {0};
    struct qr_err err;
    int32_t opened = 0;
    fprintf(stderr, "flips: seed %llu\n", (unsigned long long)rng.seed);
    tok_read_data(&good, "models/stories260K/tokenizer.json");
    for (size_t n = 0; n < good.len; n += n < 2000 ? 1 : 7) {
        struct qr_tokenizer *t;
        cr_assert(qr_tokenizer_parse(&t, good.data, n, NULL, 0, &err) != 0, "%zu bytes of %zu open", n, good.len);
    }
    for (int i = 0; i < 2000; i++) {
        struct qr_tokenizer *t;
        char *bad = malloc(good.len);
        memcpy(bad, good.data, good.len);
        for (uint32_t k = 1 + qr_rng_below(&rng, 3); k > 0; k--)
            bad[qr_rng_below(&rng, (uint32_t)good.len)] ^= (char)(1u << qr_rng_below(&rng, 8));
        if (qr_tokenizer_parse(&t, bad, good.len, NULL, 0, &err) == 0) {
            struct qr_ids ids = {0};
            tok_encode(t, &ids, "Once upon \xF0\x9F\x98\x80 <s>", 18, QR_ENCODE_PARSE_SPECIAL | QR_ENCODE_ADD_SPECIAL);
            qr_ids_release(&ids);
            qr_tokenizer_close(t);
            opened++;
        }
        free(bad);
    }
    fprintf(stderr, "flips: %d of 2000 still open\n", opened);
    qr_buf_release(&good);
}

Test(refuse, a_pipe_in_place_of_a_file_is_refused_without_waiting)
{
    static const char *const name[] = {"tokenizer.json", "tokenizer_config.json"};
    for (int i = 0; i < QR_COUNT(name); i++) {
        char dir[64], path[128];
        struct qr_tokenizer *t;
        struct qr_err err;
        temp_dir_make(dir, "refuse");
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
        FILE *f = fopen(path, "w");
        cr_assert(f && fputs("{}", f) >= 0 && fclose(f) == 0);
        snprintf(path, sizeof path, "%s/%s", dir, name[i]);
        unlink(path);
        cr_assert_eq(mkfifo(path, 0600), 0);
        cr_expect_eq(qr_tokenizer_open(&t, dir, &err), QR_E_IO);
        cr_expect(strstr(err.msg, name[i]) && strstr(err.msg, ": is a pipe or a device, expected a regular file"), "%s", err.msg);
        cr_assert(unlink(path) == 0 && mkdir(path, 0700) == 0);
        cr_expect_eq(qr_tokenizer_open(&t, dir, &err), QR_E_IO);
        cr_expect(strstr(err.msg, name[i]) && strstr(err.msg, ": is a directory, expected a regular file"), "%s", err.msg);
        rmdir(path);
        snprintf(path, sizeof path, "%s/tokenizer.json", dir);
        unlink(path);
        rmdir(dir);
    }
}

Test(refuse, a_missing_file_is_not_found)
{
    struct qr_tokenizer *t;
    struct qr_err err;
    cr_expect(qr_tokenizer_open(&t, "/nonexistent", &err) == QR_E_NOT_FOUND);
    cr_expect(strstr(err.msg, "tokenizer.json"));
}
