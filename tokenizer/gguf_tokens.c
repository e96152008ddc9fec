/* gguf_tokens.c - a GGUF file's vocabulary written as the text of tokenizer.json and tokenizer_config.json. A table
 * gives each name of tokenizer.ggml.pre its split patterns. SentencePiece merges follow from scores. The text goes
 * through the ordinary reader, so encoding has one implementation. Everything from the file is bounded; an unknown
 * model or pattern is an error. Runs once, when a model is opened. */
#include "tokenizer/gguf_tokens.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/assert.h"
#include "base/files/gguf_file.h"
#include "base/json.h"
#include "base/map.h"
#include "base/mem.h"
#include "base/utf8.h"

#define TOKENS_MAX (1 << 22)
#define TOKEN_BYTES_MAX 4096  /* a token of SentencePiece's is a few characters; a longer one has no merges worth finding */

/* tokenizer.ggml.token_type */
enum token_type { TYPE_NORMAL = 1, TYPE_UNKNOWN, TYPE_CONTROL, TYPE_USER, TYPE_UNUSED, TYPE_BYTE };

struct vocab {
    const struct qr_gguf *g;
    struct qr_gguf_text *token; /* owned [n], borrowed texts */
    int32_t n;
    const struct qr_gguf_key *type, *scores; /* NULL: not there */
    struct qr_map by_text;      /* the first token of each text */
    bool phi3;                  /* whose tokens of roles take the white space behind them along, which no key says */
    struct qr_err *err;
};

/* ---- patterns ---- */

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)"
#define WORDS_THEN(digits, then) \
    "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|" digits "| ?[^\\s\\p{L}\\p{N}]+" then \
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define WORDS(digits) WORDS_THEN(digits, "[\\r\\n]*")
#define UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED(suffix, digits) \
    "[^\\r\\n\\p{L}\\p{N}]?" UPPER "*" LOWER "+" suffix "|[^\\r\\n\\p{L}\\p{N}]?" UPPER "+" LOWER "*" suffix "|" digits \
    "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
#define SHORT_FORMS "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
#define PUNCTUATED \
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*" \
    "|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
/* Letters that have a case, of the Unicode of its day, and punctuation: DeepSeek LLM's. */
#define LETTERS \
    "[A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377" \
    "\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-" \
    "\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-" \
    "\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-" \
    "\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115" \
    "\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-" \
    "\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-" \
    "\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-" \
    "\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943]"
#define PUNCTUATION "[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]"
#define WORD_OF_BLOOM " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"

/* Names of tokenizer.ggml.pre, with spaces between. Patterns split one after the other. */
static const struct pre {
    const char *names;
    const char *split[6];
    bool own, nfc, ignore_merges, bos; /* own: the pattern that ByteLevel has built in splits, too; bos: added where the file does not say */
} pres[] = {
    {"gpt-2 phi-2 jina-es jina-de jina-v2-es jina-v2-de gigachat mpt olmo jais trillion granite-docling a.x-4.0 mellum modern-bert exaone4",
     {NULL}, true, false, false, false},
    {"smollm starcoder refact command-r codeshell exaone minerva-7b mellum2", {"\\p{N}"}, true, false, false, false},
    {"default", {"[\\p{P}\\$\\+<=>\\^~\\|]+", GPT2, "\\p{N}+", "[0-9][0-9][0-9]"}, false, false, false, false},
    {"falcon", {"[\\p{P}\\$\\+<=>\\^~\\|`]+", GPT2, "[0-9][0-9][0-9]"}, false, false, false, false},
    {"llama3 llama-v3 llama-bpe falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano", {WORDS("\\p{N}{1,3}")}, false, false, true, true},
    {"dbrx smaug-bpe chatglm-bpe", {WORDS("\\p{N}{1,3}")}, false, false, false, false},
    {"glm4 glm5", {WORDS("\\p{N}{1,3}")}, false, false, true, false},
    {"qwen2 stablelm2 deepseek-r1-qwen kormo f2llmv2", {WORDS("\\p{N}")}, false, true, false, false},
    {"megrez hunyuan solar-open grok-2", {WORDS("\\p{N}")}, false, false, false, false},
    {"seed-coder", {WORDS_THEN("\\p{N}", "")}, false, false, false, false},
    {"tekken", {CASED("", "\\p{N}")}, false, false, true, true},
    {"gpt-4o llama4 kanana2 minimax-m2", {CASED(SHORT_FORMS, "\\p{N}{1,3}")}, false, false, false, false},
    {"deepseek-llm",
     {"[\\r\\n]", "\\s?" LETTERS "+", "\\s?" PUNCTUATION "+", "\\s+$", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}+"}, false, false, false, false},
    {"deepseek-coder",
     {"[\\r\\n]", "\\s?\\p{L}+", "\\s?\\p{P}+", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+", "\\p{N}"}, false, false, false, false},
    {"deepseek-v3 hunyuan-dense joyai-llm", {"\\p{N}{1,3}", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+", PUNCTUATED}, false, false, false, false},
    {"poro-chat bloom gpt3-finnish", {WORD_OF_BLOOM}, false, false, false, false},
    {"viking", {WORD_OF_BLOOM, "\\p{N}"}, false, false, false, false},
};

static bool is_word_of(const char *words, struct qr_gguf_text word)
{
    for (const char *w = words; *w; w += *w == ' ') {
        const size_t n = strcspn(w, " ");
        if (n == word.n && memcmp(w, word.at, n) == 0)
            return true;
        w += n;
    }
    return false;
}

static int find_pre(const struct pre **out, const struct vocab *v)
{
    struct qr_gguf_text name = {.at = "default", .n = 7};
    int rc = qr_gguf_string(v->g, "tokenizer.ggml.pre", &name, NULL, v->err);
    if (rc)
        return rc;
    for (int i = 0; i < QR_COUNT(pres); i++)
        if (is_word_of(pres[i].names, name)) {
            *out = &pres[i];
            return 0;
        }
    return qr_err_set(v->err, QR_E_UNSUPPORTED, "tokenizer.ggml.pre is \"%.*s\", a way to split text that this program does not know; a tokenizer.json of the "
                      "same model beside the file is taken instead", (int)(name.n < 64 ? name.n : 64), name.at);
}

/* ---- the vocabulary ---- */

static enum token_type type_of(const struct vocab *v, int32_t id)
{
    return v->type ? (enum token_type)qr_gguf_array_int(v->type, (uint64_t)id) : TYPE_NORMAL;
}

static bool is_added(const struct vocab *v, int32_t id)
{
    const enum token_type t = type_of(v, id);
    return t == TYPE_CONTROL || t == TYPE_USER || t == TYPE_UNKNOWN;
}

static bool is_text(struct qr_gguf_text t)
{
    return qr_utf8_is_valid(t.at, (size_t)t.n);
}

static int32_t id_of(const struct vocab *v, const char *text, size_t n)
{
    return qr_map_find(&v->by_text, text, n, -1);
}

/* An array beside the tokens, one number for each. */
static int read_beside(const struct qr_gguf_key **out, const struct vocab *v, const char *name, enum qr_gguf_kind of)
{
    v->err->code = QR_OK;
    *out = qr_gguf_array(v->g, name, of, v->err);
    if (!*out)
        return v->err->code;
    if ((*out)->count != (uint64_t)v->n)
        return qr_err_set(v->err, QR_E_DAMAGED, "%s has %" PRIu64 " entries, expected one for each of %d tokens", name, (*out)->count, v->n);
    return 0;
}

static int read_vocab(struct vocab *v)
{
    v->err->code = QR_OK;
    const struct qr_gguf_key *tokens = qr_gguf_array(v->g, "tokenizer.ggml.tokens", QR_GGUF_STRING, v->err);
    if (!tokens)
        return v->err->code ? (int)v->err->code : qr_err_set(v->err, QR_E_NOT_FOUND, "there is no vocabulary (tokenizer.ggml.tokens) in this file");
    if (tokens->count == 0 || tokens->count > TOKENS_MAX)
        return qr_err_set(v->err, QR_E_DAMAGED, "tokenizer.ggml.tokens has %" PRIu64 " entries, expected 1 to %d", tokens->count, TOKENS_MAX);
    const uint8_t *at = tokens->data;
    v->n = (int32_t)tokens->count;
    v->token = qr_alloc((size_t)v->n, sizeof *v->token);
    qr_map_init(&v->by_text, (size_t)v->n);
    for (int32_t i = 0; i < v->n; i++) {
        v->token[i] = qr_gguf_next_text(&at);
        if (!is_text(v->token[i]))
            return qr_err_set(v->err, QR_E_DAMAGED, "tokenizer.ggml.tokens: entry %d is no UTF-8", i);
        if (v->token[i].n <= INT32_MAX)
            qr_map_add(&v->by_text, v->token[i].at, (size_t)v->token[i].n, i);
    }
    int rc = read_beside(&v->type, v, "tokenizer.ggml.token_type", QR_GGUF_I32);
    return rc ? rc : read_beside(&v->scores, v, "tokenizer.ggml.scores", QR_GGUF_F32);
}

/* A merge: ["left","right"]. */
static void put_pair(struct qr_buf *out, bool first, const char *left, size_t n_left, const char *right, size_t n_right)
{
    qr_buf_put_str(out, first ? "[" : ",[");
    qr_json_put_str(out, left, n_left);
    qr_buf_put_byte(out, ',');
    qr_json_put_str(out, right, n_right);
    qr_buf_put_byte(out, ']');
}

static void put_token(struct qr_buf *out, const struct vocab *v, int32_t id)
{
    qr_json_put_str(out, v->token[id].at, (size_t)v->token[id].n);
}

/* Tokens with text; those written as added tokens stand there alone, but <unk>, which the model names. */
static void put_vocab(struct qr_buf *out, const struct vocab *v)
{
    bool any = false;
    qr_buf_put_str(out, "\"vocab\":{");
    for (int32_t i = 0; i < v->n; i++) {
        if ((is_added(v, i) && type_of(v, i) != TYPE_UNKNOWN) || id_of(v, v->token[i].at, (size_t)v->token[i].n) != i)
            continue;
        qr_buf_put_str(out, any ? "," : "");
        put_token(out, v, i);
        qr_buf_printf(out, ":%d", i);
        any = true;
    }
    qr_buf_put_byte(out, '}');
}

static bool takes_space(const struct vocab *v, struct qr_gguf_text t)
{
    static const char *const none[] = {"<unk>", "<s>", "<|endoftext|>"};
    for (int i = 0; i < QR_COUNT(none); i++)
        if (t.n == strlen(none[i]) && memcmp(t.at, none[i], (size_t)t.n) == 0)
            return false;
    return v->phi3;
}

static void put_added(struct qr_buf *out, const struct vocab *v)
{
    bool any = false;
    qr_buf_put_str(out, "\"added_tokens\":[");
    for (int32_t i = 0; i < v->n; i++) {
        if (!is_added(v, i) || v->token[i].n == 0 || id_of(v, v->token[i].at, (size_t)v->token[i].n) != i)
            continue;
        qr_buf_printf(out, "%s{\"id\":%d,\"content\":", any ? "," : "", i);
        put_token(out, v, i);
        qr_buf_printf(out, ",\"single_word\":false,\"lstrip\":false,\"rstrip\":%s,\"normalized\":false,\"special\":%s}",
                      takes_space(v, v->token[i]) ? "true" : "false", type_of(v, i) == TYPE_USER ? "false" : "true");
        any = true;
    }
    qr_buf_put_str(out, "],");
}

/* The id that a key names, `usual` where it is not there; -1 is none. */
static int special_id(const struct vocab *v, const char *key, int32_t usual, int32_t *id)
{
    int64_t i = usual;
    int rc = qr_gguf_int(v->g, key, INT64_MIN, INT64_MAX, &i, NULL, v->err);
    *id = !rc && i >= 0 && i < v->n ? (int32_t)i : -1;
    return rc;
}

/* Begin and end tokens around a text. */
static int put_post_processor(struct qr_buf *out, const struct vocab *v, bool bos_unsaid, bool pieces)
{
    int32_t bos, eos;
    bool add_bos = bos_unsaid, add_eos = false;
    int rc = special_id(v, "tokenizer.ggml.bos_token_id", pieces ? 1 : -1, &bos);
    rc = rc ? rc : special_id(v, "tokenizer.ggml.eos_token_id", pieces ? 2 : -1, &eos);
    rc = rc ? rc : qr_gguf_bool(v->g, "tokenizer.ggml.add_bos_token", &add_bos, NULL, v->err);
    rc = rc ? rc : qr_gguf_bool(v->g, "tokenizer.ggml.add_eos_token", &add_eos, NULL, v->err);
    if (rc)
        return rc;
    const int32_t around[2] = {add_bos ? bos : -1, add_eos ? eos : -1};
    if (around[0] < 0 && around[1] < 0) {
        qr_buf_put_str(out, "\"post_processor\":null,");
        return 0;
    }
    struct qr_buf special = {0};
    qr_buf_put_str(out, "\"post_processor\":{\"type\":\"TemplateProcessing\",\"single\":[");
    for (int i = 0; i < 2; i++) {
        if (i == 1)
            qr_buf_printf(out, "%s{\"Sequence\":{\"id\":\"A\",\"type_id\":0}}", around[0] >= 0 ? "," : "");
        if (around[i] < 0)
            continue;
        qr_buf_printf(out, "%s{\"SpecialToken\":{\"id\":", i ? "," : "");
        put_token(out, v, around[i]);
        qr_buf_put_str(out, ",\"type_id\":0}}");
        if (i == 1 && around[0] == around[1])
            continue;
        qr_buf_put_str(&special, special.len ? "," : "");
        put_token(&special, v, around[i]);
        qr_buf_put_str(&special, ":{\"id\":");
        put_token(&special, v, around[i]);
        qr_buf_printf(&special, ",\"ids\":[%d],\"tokens\":[", around[i]);
        put_token(&special, v, around[i]);
        qr_buf_put_str(&special, "]}");
    }
    qr_buf_printf(out, "],\"pair\":[{\"Sequence\":{\"id\":\"A\",\"type_id\":0}},{\"Sequence\":{\"id\":\"B\",\"type_id\":1}}],\"special_tokens\":{%s}},",
                  special.data);
    qr_buf_release(&special);
    return 0;
}

/* ---- byte-level BPE ---- */

static int put_merges(struct qr_buf *out, const struct vocab *v)
{
    v->err->code = QR_OK;
    const struct qr_gguf_key *merges = qr_gguf_array(v->g, "tokenizer.ggml.merges", QR_GGUF_STRING, v->err);
    if (!merges)
        return v->err->code ? (int)v->err->code : qr_err_set(v->err, QR_E_DAMAGED, "a tokenizer of the kind gpt2 without tokenizer.ggml.merges");
    const uint8_t *at = merges->data;
    qr_buf_put_str(out, "\"merges\":[");
    for (uint64_t i = 0; i < merges->count; i++) {
        struct qr_gguf_text t = qr_gguf_next_text(&at);
        const char *space = t.n > 1 ? memchr(t.at + 1, ' ', (size_t)t.n - 1) : NULL;
        if (!space || !is_text(t))
            return qr_err_set(v->err, QR_E_DAMAGED, "tokenizer.ggml.merges: entry %" PRIu64 " is no pair of pieces with a space between them", i);
        const size_t left = (size_t)(space - t.at);
        put_pair(out, i == 0, t.at, left, space + 1, (size_t)t.n - left - 1);
    }
    qr_buf_put_str(out, "]");
    return 0;
}

static void put_splits(struct qr_buf *out, const struct pre *pre)
{
    qr_buf_put_str(out, "\"pre_tokenizer\":{\"type\":\"Sequence\",\"pretokenizers\":[");
    for (int i = 0; i < QR_COUNT(pre->split) && pre->split[i]; i++) {
        qr_buf_put_str(out, "{\"type\":\"Split\",\"pattern\":{\"Regex\":");
        qr_json_put_str(out, pre->split[i], strlen(pre->split[i]));
        qr_buf_put_str(out, "},\"behavior\":\"Isolated\",\"invert\":false},");
    }
    qr_buf_printf(out, "{\"type\":\"ByteLevel\",\"add_prefix_space\":false,\"trim_offsets\":true,\"use_regex\":%s}]},", pre->own ? "true" : "false");
}

static int put_byte_level(struct qr_buf *out, const struct vocab *v)
{
    const struct pre *pre;
    int rc = find_pre(&pre, v);
    if (rc)
        return rc;
    qr_buf_printf(out, "\"normalizer\":%s,", pre->nfc ? "{\"type\":\"NFC\"}" : "null");
    put_splits(out, pre);
    if ((rc = put_post_processor(out, v, pre->bos, false)))
        return rc;
    qr_buf_put_str(out, "\"decoder\":{\"type\":\"ByteLevel\",\"add_prefix_space\":true,\"trim_offsets\":true,\"use_regex\":true},");
    qr_buf_printf(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,"
                  "\"fuse_unk\":false,\"byte_fallback\":false,\"ignore_merges\":%s,", pre->ignore_merges ? "true" : "false");
    put_vocab(out, v);
    qr_buf_put_byte(out, ',');
    rc = put_merges(out, v);
    qr_buf_put_byte(out, '}');
    return rc;
}

/* ---- SentencePiece's BPE ---- */

struct merge {
    float score;
    int32_t id, left, right;
};

static int by_rank(const void *a, const void *b)
{
    const struct merge *x = a, *y = b;
    if (x->score != y->score)
        return x->score > y->score ? -1 : 1;
    if (x->id != y->id)
        return x->id < y->id ? -1 : 1;
    return x->left != y->left ? (x->left < y->left ? -1 : 1) : (x->right > y->right) - (x->right < y->right);
}

/* Every way to cut a token into two tokens. */
static void add_merges(struct merge **merge, size_t *n, const struct vocab *v, int32_t id)
{
    const struct qr_gguf_text t = v->token[id];
    if (t.n > TOKEN_BYTES_MAX || (type_of(v, id) != TYPE_NORMAL && type_of(v, id) != TYPE_USER) || id_of(v, t.at, (size_t)t.n) != id)
        return;
    for (size_t cut = 1; cut < t.n; cut++) {
        if (((uint8_t)t.at[cut] & 0xc0) == 0x80)
            continue;
        const int32_t left = id_of(v, t.at, cut), right = id_of(v, t.at + cut, (size_t)t.n - cut);
        if (left < 0 || right < 0)
            continue;
        if (*n == 0 || (*n & (*n - 1)) == 0)
            *merge = qr_realloc(*merge, *n ? 2 * *n : 1, sizeof **merge);
        const float score = (float)qr_gguf_array_real(v->scores, (uint64_t)id);
        (*merge)[(*n)++] = (struct merge){.score = score == score ? score : -1e30f, .id = id, .left = left, .right = right};
    }
}

static void put_score_merges(struct qr_buf *out, const struct vocab *v)
{
    struct merge *merge = NULL;
    size_t n = 0;
    for (int32_t i = 0; i < v->n; i++)
        add_merges(&merge, &n, v, i);
    if (n > 0)
        qsort(merge, n, sizeof *merge, by_rank);
    qr_buf_put_str(out, "\"merges\":[");
    for (size_t i = 0; i < n; i++) {
        const struct qr_gguf_text left = v->token[merge[i].left], right = v->token[merge[i].right];
        put_pair(out, i == 0, left.at, (size_t)left.n, right.at, (size_t)right.n);
    }
    qr_buf_put_str(out, "]");
    qr_free(merge);
}

static int put_pieces(struct qr_buf *out, const struct vocab *v)
{
    int32_t unk;
    bool prefix = true;
    if (!v->scores)
        return qr_err_set(v->err, QR_E_DAMAGED, "a tokenizer of the kind llama without tokenizer.ggml.scores");
    int rc = special_id(v, "tokenizer.ggml.unknown_token_id", 0, &unk);
    rc = rc ? rc : qr_gguf_bool(v->g, "tokenizer.ggml.add_space_prefix", &prefix, NULL, v->err);
    if (rc)
        return rc;
    const char *replace = "{\"type\":\"Replace\",\"pattern\":{\"String\":\" \"},\"content\":\"\xe2\x96\x81\"}";
    qr_buf_printf(out, "\"normalizer\":{\"type\":\"Sequence\",\"normalizers\":[%s%s]},\"pre_tokenizer\":null,",
                  prefix ? "{\"type\":\"Prepend\",\"prepend\":\"\xe2\x96\x81\"}," : "", replace);
    if ((rc = put_post_processor(out, v, true, true)))
        return rc;
    qr_buf_printf(out, "\"decoder\":{\"type\":\"Sequence\",\"decoders\":[{\"type\":\"Replace\",\"pattern\":{\"String\":\"\xe2\x96\x81\"},\"content\":\" \"},"
                  "{\"type\":\"ByteFallback\"},{\"type\":\"Fuse\"}%s]},", prefix ? ",{\"type\":\"Strip\",\"content\":\" \",\"start\":1,\"stop\":0}" : "");
    qr_buf_put_str(out, "\"model\":{\"type\":\"BPE\",\"dropout\":null,\"unk_token\":");
    const bool has_unk = unk >= 0 && (!is_added(v, unk) || type_of(v, unk) == TYPE_UNKNOWN);
    if (has_unk)
        put_token(out, v, unk);
    qr_buf_printf(out, "%s,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":true,\"byte_fallback\":true,\"ignore_merges\":false,",
                  has_unk ? "" : "null");
    put_vocab(out, v);
    qr_buf_put_byte(out, ',');
    put_score_merges(out, v);
    qr_buf_put_byte(out, '}');
    return 0;
}

/* ---- both files ---- */

static void release(struct vocab *v)
{
    qr_map_release(&v->by_text);
    qr_free(v->token);
}

/* The reason may be that the file is no language model. */
static int fail_missing(const struct qr_gguf *g, struct qr_err *err)
{
    struct qr_gguf_text arch = {.at = "", .n = 0};
    struct qr_err other;
    if (qr_gguf_is_adapter(g))
        return qr_err_set(err, QR_E_USAGE, QR_GGUF_ADAPTER);
    qr_gguf_string(g, "general.architecture", &arch, NULL, &other);
    return qr_err_set(err, QR_E_NOT_FOUND, "there is no tokenizer (key tokenizer.ggml.model) in this file, whose general.architecture is \"%.*s\"; expected a "
                      "language model with its vocabulary", (int)(arch.n < 40 ? arch.n : 40), arch.at);
}

int qr_gguf_tokenizer_json(struct qr_buf *out, const struct qr_gguf *g, struct qr_err *err)
{
    QR_ASSERT(out != NULL && g != NULL);
    QR_ASSERT(err != NULL);
    struct vocab v = {.g = g, .err = err};
    struct qr_gguf_text model;
    bool found;
    int rc = qr_gguf_string(g, "tokenizer.ggml.model", &model, &found, err);
    if (!rc && !found)
        rc = fail_missing(g, err);
    if (rc)
        return rc;
    const bool pieces = model.n == 5 && memcmp(model.at, "llama", 5) == 0, byte_level = model.n == 4 && memcmp(model.at, "gpt2", 4) == 0;
    if (!pieces && !byte_level)
        return qr_err_set(err, QR_E_UNSUPPORTED, "tokenizer.ggml.model is \"%.*s\", expected \"gpt2\" (byte-level BPE) or \"llama\" (SentencePiece BPE)",
                          (int)(model.n < 64 ? model.n : 64), model.at);
    struct qr_gguf_text arch = {.at = "", .n = 0};
    rc = qr_gguf_string(g, "general.architecture", &arch, NULL, err);
    v.phi3 = pieces && arch.n == 4 && memcmp(arch.at, "phi3", 4) == 0;
    rc = rc ? rc : read_vocab(&v);
    if (!rc) {
        qr_buf_put_str(out, "{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,");
        put_added(out, &v);
        rc = pieces ? put_pieces(out, &v) : put_byte_level(out, &v);
        qr_buf_put_byte(out, '}');
    }
    release(&v);
    return rc;
}

/* A list of named templates, as newer tokenizer_config.json have it; nothing where there is none. */
static int put_templates(struct qr_buf *out, const struct qr_gguf *g, struct qr_err *err)
{
    static const char *const names[][2] = {{"tokenizer.chat_template", "default"}, {"tokenizer.chat_template.tool_use", "tool_use"}};
    bool any = false;
    for (int i = 0; i < QR_COUNT(names); i++) {
        struct qr_gguf_text template;
        bool found = false;
        int rc = qr_gguf_string(g, names[i][0], &template, &found, err);
        if (!rc && found && !is_text(template))
            rc = qr_err_set(err, QR_E_DAMAGED, "%s is no UTF-8", names[i][0]);
        if (rc)
            return rc;
        if (!found || (i > 0 && !any))
            continue;
        qr_buf_printf(out, "%s{\"name\":\"%s\",\"template\":", any ? "," : "\"chat_template\":[", names[i][1]);
        qr_json_put_str(out, template.at, (size_t)template.n);
        qr_buf_put_byte(out, '}');
        any = true;
    }
    qr_buf_put_str(out, any ? "]," : "");
    return 0;
}

/* The text of the token that a key names; one walk over the texts before it. found: false where there is none. */
static int named_token(struct qr_gguf_text *out, bool *found, const struct qr_gguf *g, const char *key, struct qr_err *err)
{
    int64_t id = -1;
    int rc = qr_gguf_int(g, key, INT64_MIN, INT64_MAX, &id, found, err);
    err->code = rc ? err->code : QR_OK;
    const struct qr_gguf_key *tokens = rc ? NULL : qr_gguf_array(g, "tokenizer.ggml.tokens", QR_GGUF_STRING, err);
    if (!tokens)
        return rc ? rc : err->code ? (int)err->code : qr_err_set(err, QR_E_NOT_FOUND, "there is no vocabulary (tokenizer.ggml.tokens) in this file");
    *found = *found && id >= 0 && (uint64_t)id < tokens->count;
    const uint8_t *at = tokens->data;
    for (int64_t i = 0; *found && i <= id; i++)
        *out = qr_gguf_next_text(&at);
    if (*found && !is_text(*out))
        return qr_err_set(err, QR_E_DAMAGED, "tokenizer.ggml.tokens: entry %" PRId64 " is no UTF-8", id);
    return 0;
}

int qr_gguf_tokenizer_config(struct qr_buf *out, const struct qr_gguf *g, struct qr_err *err)
{
    static const char *const names[][2] = {{"tokenizer.ggml.bos_token_id", "bos_token"}, {"tokenizer.ggml.eos_token_id", "eos_token"},
                                           {"tokenizer.ggml.unknown_token_id", "unk_token"}, {"tokenizer.ggml.padding_token_id", "pad_token"},
                                           {"tokenizer.ggml.seperator_token_id", "sep_token"}};
    QR_ASSERT(out != NULL && g != NULL);
    QR_ASSERT(err != NULL);
    int rc = 0;
    qr_buf_put_byte(out, '{');
    for (int i = 0; i < QR_COUNT(names) && !rc; i++) {
        struct qr_gguf_text token = {0};
        bool found = false;
        if ((rc = named_token(&token, &found, g, names[i][0], err)) || !found)
            continue;
        qr_buf_printf(out, "\"%s\":", names[i][1]);
        qr_json_put_str(out, token.at, (size_t)token.n);
        qr_buf_put_byte(out, ',');
    }
    rc = rc ? rc : put_templates(out, g, err);
    qr_buf_put_str(out, "\"clean_up_tokenization_spaces\":false}");
    return rc;
}
