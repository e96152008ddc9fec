/* bpe_write.c - a learnt vocabulary as tokenizer.json and tokenizer_config.json. */
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "tokenizer/train/bpe_trainer.h"

/* What the published tokenizers of these names cut with; only the count of digits differs between the first two. */
#define SPLIT(digits) \
    "{\"type\":\"Sequence\",\"pretokenizers\":[{\"type\":\"Split\",\"pattern\":{\"Regex\":\"" \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\\\r\\\\n\\\\p{L}\\\\p{N}]?\\\\p{L}+|" \
    "\\\\p{N}" digits "| ?[^\\\\s\\\\p{L}\\\\p{N}]+[\\\\r\\\\n]*|\\\\s*[\\\\r\\\\n]+|\\\\s+(?!\\\\S)|\\\\s+\"},\"behavior\":\"Isolated\",\"invert\":false}," \
    "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":false}]}"
#define BYTE_LEVEL "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":true}"

const char *qr_bpe_cut_json(enum qr_bpe_cut cut)
{
    static const char *const json[] = {[QR_BPE_CUT_LLAMA3] = SPLIT("{1,3}"), [QR_BPE_CUT_QWEN2] = SPLIT(""), [QR_BPE_CUT_GPT2] = BYTE_LEVEL};
    QR_ASSERT((int)cut >= 0);
    QR_ASSERT((int)cut < QR_COUNT(json));
    return json[cut];
}

void qr_bpe_put_bytes(struct qr_buf *out, const struct qr_bytechar *c, const char *bytes, int32_t n)
{
    QR_ASSERT(out != NULL && c != NULL);
    QR_ASSERT(bytes != NULL && n >= 0);
    for (int32_t i = 0; i < n; i++)
        qr_buf_put(out, c->utf8[(uint8_t)bytes[i]], c->len[(uint8_t)bytes[i]]);
}

/* A token as the file writes it. */
static void spell(const struct qr_bpe_trainer *b, struct qr_buf *out, int32_t id)
{
    const struct qr_bpe_token *t = &b->token[id];
    if (id < b->o.n_special)
        qr_buf_put(out, t->bytes, (size_t)t->len);
    else
        qr_bpe_put_bytes(out, &b->bytechar, t->bytes, t->len);
}

static void put_quoted(struct qr_buf *out, const char *s)
{
    qr_json_put_str(out, s, strlen(s));
}

static void put_special(const struct qr_bpe_trainer *b, struct qr_buf *json, int32_t id, bool with_id)
{
    qr_buf_put_str(json, "{");
    if (with_id)
        qr_buf_printf(json, "\"id\":%d,", id);
    qr_buf_put_str(json, "\"content\":");
    put_quoted(json, b->token[id].bytes);
    qr_buf_put_str(json, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":false,\"normalized\":false,\"special\":true}");
}

/* bos in front of a text, and of each of a pair of texts. */
static void put_post(const struct qr_bpe_trainer *b, struct qr_buf *json)
{
    if (!b->o.bos) {
        qr_buf_put_str(json, BYTE_LEVEL);
        return;
    }
    struct qr_buf bos = {0};
    put_quoted(&bos, b->o.bos);
    int32_t id = 0;
    while (strcmp(b->token[id].bytes, b->o.bos) != 0)
        id++;
    qr_buf_printf(json, "{\"type\":\"TemplateProcessing\","
                        "\"single\":[{\"SpecialToken\":{\"id\":%s,\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}],"
                        "\"pair\":[{\"SpecialToken\":{\"id\":%s,\"type_id\":0}},{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},"
                        "{\"SpecialToken\":{\"id\":%s,\"type_id\":1}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],"
                        "\"special_tokens\":{%s:{\"id\":%s,\"ids\":[%d],\"tokens\":[%s]}}}",
                  bos.data, bos.data, bos.data, bos.data, bos.data, id, bos.data);
    qr_buf_release(&bos);
}

static void put_vocab(const struct qr_bpe_trainer *b, struct qr_buf *json)
{
    struct qr_buf text = {0};
    for (int32_t id = 0; id < b->n_tokens; id++) {
        qr_buf_clear(&text);
        spell(b, &text, id);
        qr_buf_put_str(json, id > 0 ? ",\n" : "\n");
        qr_json_put_str(json, text.data, text.len);
        qr_buf_printf(json, ":%d", id);
    }
    qr_buf_release(&text);
}

static void put_merges(const struct qr_bpe_trainer *b, struct qr_buf *json)
{
    struct qr_buf text = {0};
    for (int32_t i = 0; i < b->n_merges; i++) {
        qr_buf_clear(&text);
        spell(b, &text, b->merge[i][0]);
        qr_buf_put_byte(&text, ' ');
        spell(b, &text, b->merge[i][1]);
        qr_buf_put_str(json, i > 0 ? ",\n" : "\n");
        qr_json_put_str(json, text.data, text.len);
    }
    qr_buf_release(&text);
}

void qr_bpe_trainer_write(const struct qr_bpe_trainer *b, struct qr_buf *json)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(json != NULL);
    qr_buf_put_str(json, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n\"added_tokens\":[");
    for (int32_t id = 0; id < b->o.n_special; id++) {
        qr_buf_put_str(json, id > 0 ? ",\n" : "\n");
        put_special(b, json, id, true);
    }
    qr_buf_printf(json, "],\n\"normalizer\":null,\n\"pre_tokenizer\":%s,\n\"post_processor\":", qr_bpe_cut_json(b->o.cut));
    put_post(b, json);
    qr_buf_put_str(json, ",\n\"decoder\":" BYTE_LEVEL ",\n\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,"
                         "\"end_of_word_suffix\":null,\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":false,\"vocab\":{");
    put_vocab(b, json);
    qr_buf_put_str(json, "},\n\"merges\":[");
    put_merges(b, json);
    qr_buf_put_str(json, "]}}\n");
}

void qr_bpe_trainer_write_config(const struct qr_bpe_trainer *b, struct qr_buf *json, const char *chat_template)
{
    QR_ASSERT(b != NULL);
    QR_ASSERT(json != NULL);
    qr_buf_put_str(json, "{\"tokenizer_class\":\"PreTrainedTokenizerFast\",\"clean_up_tokenization_spaces\":false,\n\"added_tokens_decoder\":{");
    for (int32_t id = 0; id < b->o.n_special; id++) {
        qr_buf_printf(json, "%s\n\"%d\":", id > 0 ? "," : "", id);
        put_special(b, json, id, false);
    }
    qr_buf_put_str(json, "},\n\"bos_token\":");
    if (b->o.bos)
        put_quoted(json, b->o.bos);
    else
        qr_buf_put_str(json, "null");
    qr_buf_put_str(json, ",\n\"eos_token\":");
    if (b->o.eos)
        put_quoted(json, b->o.eos);
    else
        qr_buf_put_str(json, "null");
    if (chat_template) {
        qr_buf_put_str(json, ",\n\"chat_template\":");
        put_quoted(json, chat_template);
    }
    qr_buf_put_str(json, "}\n");
}
