/* Two texts as one input: what the template for pairs puts around them, and where there is none. The ids are those that the tokenizers library gives for the
 * same files. */
#include "tok_test.h"

#include "base/assert.h"

#define MODEL "\"model\":{\"type\":\"BPE\",\"vocab\":{\"a\":0,\"b\":1,\"ab\":2},\"merges\":[\"a b\"]}"
#define ADDED "\"added_tokens\":[{\"id\":3,\"content\":\"<s>\",\"special\":true},{\"id\":4,\"content\":\"</s>\",\"special\":true}],"
#define S "{\"SpecialToken\":{\"id\":\"<s>\",\"type_id\":0}}"
#define E "{\"SpecialToken\":{\"id\":\"</s>\",\"type_id\":0}}"
#define TEXT(x) "{\"Sequence\":{\"id\":\"" x "\",\"type_id\":0}}"
#define TEMPLATE(pair) \
    "{\"type\":\"TemplateProcessing\",\"single\":[" S "," TEXT("A") "],\"pair\":[" pair "],\"special_tokens\":{\"<s>\":{\"id\":\"<s>\",\"ids\":[3]," \
    "\"tokens\":[\"<s>\"]},\"</s>\":{\"id\":\"</s>\",\"ids\":[4],\"tokens\":[\"</s>\"]}}}"
#define FILE_OF(post) "{" ADDED "\"post_processor\":" post "," MODEL "}"

static struct qr_tokenizer *parse(const char *json, const char *config)
{
    struct qr_tokenizer *t = NULL;
    struct qr_err err = {0};
    cr_assert_eq(qr_tokenizer_parse(&t, json, strlen(json), config, config ? strlen(config) : 0, &err), 0, "%s: %s", json, err.msg);
    return t;
}

Test(pair, the_template_for_pairs_stands_around_two_texts_that_are_encoded_apart)
{
    static const struct {
        const char *json, *config, *ids;
        unsigned flags;
    } t[] = {
        {FILE_OF("null"), NULL, "0 1 1", QR_ENCODE_ADD_SPECIAL},
        {FILE_OF("{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true}"), NULL, "0 1 1", QR_ENCODE_ADD_SPECIAL},
        {FILE_OF(TEMPLATE(TEXT("A") "," TEXT("B"))), NULL, "0 1 1", QR_ENCODE_ADD_SPECIAL},
        {FILE_OF(TEMPLATE(S "," TEXT("A") "," E "," S "," TEXT("B") "," E)), NULL, "3 0 4 3 1 1 4", QR_ENCODE_ADD_SPECIAL},
        {FILE_OF(TEMPLATE(S "," TEXT("A") "," E "," S "," TEXT("B") "," E)), NULL, "0 1 1", 0},
        {FILE_OF(TEMPLATE(TEXT("A") "," TEXT("B"))),
         "{\"bos_token\":\"<s>\",\"eos_token\":\"</s>\",\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":true,\"add_eos_token\":true}", "3 0 4 3 1 1 4",
         QR_ENCODE_ADD_SPECIAL},
        {FILE_OF(TEMPLATE(S "," TEXT("A") "," S "," TEXT("B"))),
         "{\"bos_token\":\"<s>\",\"tokenizer_class\":\"LlamaTokenizer\",\"add_bos_token\":false}", "0 1 1", QR_ENCODE_ADD_SPECIAL},
    };
    for (int i = 0; i < QR_COUNT(t); i++) {
        struct qr_tokenizer *tok = parse(t[i].json, t[i].config);
        struct qr_ids ids = {0};
        struct qr_buf text = {0};
        struct qr_err err = {0};
        cr_assert_eq(qr_tokenizer_encode_pair(tok, &ids, "a", 1, "bb", 2, t[i].flags, &err), 0, "%s", err.msg);
        for (int32_t k = 0; k < ids.n; k++)
            qr_buf_printf(&text, "%s%d", k ? " " : "", ids.id[k]);
        cr_expect_str_eq(text.data, t[i].ids, "%d: %s, expected %s", i, text.data, t[i].ids);
        ids.n = 0;
        cr_expect(qr_tokenizer_encode_pair(tok, &ids, "", 0, "", 0, 0, &err) == 0 && ids.n == 0);
        qr_buf_release(&text);
        qr_ids_release(&ids);
        qr_tokenizer_close(tok);
    }
}

Test(pair, a_template_of_another_order_is_refused_when_it_is_asked_for)
{
    static const char *const odd[] = {FILE_OF(TEMPLATE(TEXT("B") "," TEXT("A"))), FILE_OF(TEMPLATE(TEXT("A"))), FILE_OF(TEMPLATE("")),
                                      FILE_OF(TEMPLATE(TEXT("A") "," TEXT("B") "," TEXT("A"))),
                                      FILE_OF(TEMPLATE(TEXT("A") ",{\"SpecialToken\":{\"id\":\"<?>\"}}," TEXT("B")))};
    for (int i = 0; i < QR_COUNT(odd); i++) {
        struct qr_tokenizer *t = parse(odd[i], NULL);
        struct qr_ids ids = {0};
        struct qr_err err = {0};
        cr_expect_eq(qr_tokenizer_encode_pair(t, &ids, "a", 1, "b", 1, QR_ENCODE_ADD_SPECIAL, &err), QR_E_UNSUPPORTED, "%d", i);
        cr_expect(strstr(err.msg, "post_processor") && ids.n == 0, "%s", err.msg);
        cr_expect_eq(qr_tokenizer_encode_pair(t, &ids, "a", 1, "b", 1, 0, &err), 0);
        cr_expect(ids.n == 2 && ids.id[0] == 0 && ids.id[1] == 1);
        qr_ids_release(&ids);
        qr_tokenizer_close(t);
    }
}
