/* Learning BPE: the merges are those of the plain algorithm that counts everything anew each time, and what is written encodes as the merges say. */
#include "tests/tokenizer/tok_test.h"

#include "base/assert.h"
#include "base/rng.h"
#include "tests/full.h"
#include "tokenizer/train/bpe_trainer.h"

#define SEED 4711
#define WORDS_MAX 2000
#define TOKENS_MAX 600

/* ---- the plain algorithm, over words cut at spaces (a space begins the word behind it) ---- */

struct naive {
    char token[TOKENS_MAX][600];  /* bytes of each token, as text: the corpora have no zero byte */
    int32_t n_tokens;
    int32_t merge[TOKENS_MAX][2];
    int32_t n_merges;
    int32_t *word[WORDS_MAX];     /* owned: ids */
    int32_t len[WORDS_MAX];
    int32_t n_words;
};

/* Ids of the 256 bytes come from a tokenizer that our code wrote; what they are is checked elsewhere. */
static void naive_words(struct naive *v, const char *text, size_t n, const int32_t byte_id[256])
{
    for (size_t i = 0; i < n;) {
        size_t end = i + 1;
        while (end < n && text[end] != ' ')
            end++;
        QR_ASSERT(v->n_words < WORDS_MAX);
        v->word[v->n_words] = qr_alloc(end - i, sizeof(int32_t));
        for (size_t k = i; k < end; k++)
            v->word[v->n_words][k - i] = byte_id[(uint8_t)text[k]];
        v->len[v->n_words++] = (int32_t)(end - i);
        i = end;
    }
}

static bool naive_best(const struct naive *v, int64_t min_count, int32_t best[2])
{
    static int64_t count[TOKENS_MAX][TOKENS_MAX];
    memset(count, 0, sizeof count);
    int64_t most = 0;
    for (int32_t w = 0; w < v->n_words; w++)
        for (int32_t i = 0; i + 1 < v->len[w]; i++)
            count[v->word[w][i]][v->word[w][i + 1]]++;
    for (int32_t l = 0; l < v->n_tokens; l++)
        for (int32_t r = 0; r < v->n_tokens; r++) {
            const size_t n = strlen(v->token[l]) + strlen(v->token[r]);
            if (count[l][r] > most && n <= QR_BPE_TRAIN_TOKEN_MAX) {
                most = count[l][r];
                best[0] = l;
                best[1] = r;
            }
        }
    return most >= min_count;
}

static void naive_merge(struct naive *v, const int32_t pair[2], int32_t id)
{
    for (int32_t w = 0; w < v->n_words; w++) {
        int32_t n = 0, *ids = v->word[w];
        for (int32_t i = 0; i < v->len[w]; n++) {
            const bool here = i + 1 < v->len[w] && ids[i] == pair[0] && ids[i + 1] == pair[1];
            ids[n] = here ? id : ids[i];
            i += here ? 2 : 1;
        }
        v->len[w] = n;
    }
}

static void naive_run(struct naive *v, int32_t vocab_size, int64_t min_count)
{
    int32_t pair[2];
    while (v->n_tokens < vocab_size && naive_best(v, min_count, pair)) {
        char made[1200];
        int32_t id = 0;
        snprintf(made, sizeof made, "%s%s", v->token[pair[0]], v->token[pair[1]]);
        while (id < v->n_tokens && (id < 2 || strcmp(v->token[id], made) != 0)) /* the first two are special */
            id++;
        if (id == v->n_tokens)
            strcpy(v->token[v->n_tokens++], made);
        bool known = false;
        for (int32_t i = 0; i < v->n_merges; i++)
            known = known || (v->merge[i][0] == pair[0] && v->merge[i][1] == pair[1]);
        if (!known) {
            QR_ASSERT(v->n_merges < TOKENS_MAX);
            memcpy(v->merge[v->n_merges++], pair, sizeof pair);
        }
        naive_merge(v, pair, id);
    }
}

/* ---- corpora ---- */

/* Words of few letters, so that pairs repeat, overlap and tie. */
static void random_text(struct qr_buf *out, struct qr_rng *rng, int32_t n_words, uint32_t n_letters, uint32_t len_max)
{
    qr_buf_clear(out);
    for (int32_t w = 0; w < n_words; w++) {
        qr_buf_put_str(out, w > 0 ? " " : "");
        for (uint32_t i = 1 + qr_rng_below(rng, len_max); i > 0; i--)
            qr_buf_put_byte(out, (char)('a' + qr_rng_below(rng, n_letters)));
    }
}

static const char *const specials[] = {"<|a|>", "<|b|>", "ab"}; /* the last: a name that a merge could make, too */

static struct qr_bpe_trainer *trainer(enum qr_bpe_cut cut, int32_t vocab_size, int64_t min_count)
{
    struct qr_bpe_trainer *b = NULL;
    struct qr_err err = {0};
    const struct qr_bpe_train_options o = {.cut = cut, .vocab_size = vocab_size, .min_count = min_count, .special = specials, .n_special = 2,
                                           .eos = "<|a|>"};
    cr_assert_eq(qr_bpe_trainer_new(&b, &o, &err), 0, "%s", err.msg);
    return b;
}

static struct qr_tokenizer *open_written(const struct qr_bpe_trainer *b)
{
    struct qr_buf json = {0}, config = {0};
    struct qr_tokenizer *t = NULL;
    struct qr_err err = {0};
    qr_bpe_trainer_write(b, &json);
    qr_bpe_trainer_write_config(b, &config, NULL);
    cr_assert_eq(qr_tokenizer_parse(&t, json.data, json.len, config.data, config.len, &err), 0, "%s", err.msg);
    qr_buf_release(&json);
    qr_buf_release(&config);
    return t;
}

static void check_against_naive(const struct qr_buf *text, int32_t vocab_size, int64_t min_count)
{
    struct naive *v = qr_alloc(1, sizeof *v);
    struct qr_err err = {0};
    struct qr_bpe_trainer *b = trainer(QR_BPE_CUT_GPT2, vocab_size, min_count);
    cr_assert_eq(qr_bpe_trainer_add(b, text->data, text->len, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_bpe_trainer_run(b, NULL, NULL, &err), 0, "%s", err.msg);
    struct qr_tokenizer *t = open_written(b);
    int32_t byte_id[256];
    v->n_tokens = 258;
    for (int32_t id = 2; id < 258; id++) {
        size_t n;
        const char *bytes = qr_tokenizer_token_bytes(t, id, &n);
        cr_assert_eq(n, 1);
        byte_id[(uint8_t)bytes[0]] = id;
        v->token[id][0] = bytes[0];
    }
    strcpy(v->token[0], specials[0]);
    strcpy(v->token[1], specials[1]);
    naive_words(v, text->data, text->len, byte_id);
    naive_run(v, vocab_size, min_count);
    cr_assert_eq(qr_bpe_trainer_n_merges(b), v->n_merges, "%d merges, the plain algorithm has %d", qr_bpe_trainer_n_merges(b), v->n_merges);
    cr_assert_eq(qr_bpe_trainer_n_tokens(b), v->n_tokens);
    for (int32_t i = 0; i < v->n_merges; i++) {
        const int32_t *pair = b->merge[i];
        cr_assert(pair[0] == v->merge[i][0] && pair[1] == v->merge[i][1], "merge %d: (%d, %d), the plain algorithm has (%d, %d)", i, pair[0], pair[1],
                  v->merge[i][0], v->merge[i][1]);
    }
    for (int32_t id = 258; id < v->n_tokens; id++) {
        size_t n;
        const char *bytes = qr_tokenizer_token_bytes(t, id, &n);
        cr_assert(n == strlen(v->token[id]) && memcmp(bytes, v->token[id], n) == 0, "token %d", id);
    }
    for (int32_t w = 0; w < v->n_words; w++)
        qr_free(v->word[w]);
    qr_tokenizer_close(t);
    qr_bpe_trainer_free(b);
    qr_free(v);
}

Test(bpe_train, merges_are_those_of_the_plain_algorithm)
{
    static const struct {
        int32_t n_words;
        uint32_t n_letters, len_max;
        int32_t vocab_size;
        int64_t min_count;
    } cases[] = {{40, 2, 8, 300, 1}, {60, 3, 6, 320, 2}, {15, 1, 40, 290, 1}, {20, 2, 60, 330, 1}, {300, 5, 5, 340, 2}, {8, 1, 200, 280, 1},
                 {100, 26, 9, 300, 3}};
    struct qr_rng rng = {.seed = SEED};
    struct qr_buf text = {0};
    printf("seed %d\n", SEED);
    for (int i = 0; i < QR_COUNT(cases); i++)
        for (int round = 0; round < test_cases(3); round++) {
            random_text(&text, &rng, cases[i].n_words, cases[i].n_letters, cases[i].len_max);
            check_against_naive(&text, cases[i].vocab_size, cases[i].min_count);
        }
    qr_buf_release(&text);
}

static int add_words(struct qr_bpe_trainer *b, const char *const *word, int n)
{
    struct qr_err err = {0};
    int rc = 0;
    for (int i = 0; i < n && rc == 0; i++)
        rc = qr_bpe_trainer_add(b, word[i], strlen(word[i]), &err);
    return rc ? rc : qr_bpe_trainer_run(b, NULL, NULL, &err);
}

Test(bpe_train, the_order_of_the_texts_does_not_matter)
{
    static const char *const one[] = {"low lower lowest", "new newer", "wide wider widest", "low low"}, *const two[] = {"low low", "wide wider widest",
                                                                                                             "new newer", "low lower lowest"};
    struct qr_bpe_trainer *a = trainer(QR_BPE_CUT_LLAMA3, 300, 1), *b = trainer(QR_BPE_CUT_LLAMA3, 300, 1);
    struct qr_buf x = {0}, y = {0};
    cr_assert(add_words(a, one, 4) == 0 && add_words(b, two, 4) == 0);
    qr_bpe_trainer_write(a, &x);
    qr_bpe_trainer_write(b, &y);
    cr_expect(x.len == y.len && memcmp(x.data, y.data, x.len) == 0);
    qr_buf_release(&x);
    qr_buf_release(&y);
    qr_bpe_trainer_free(a);
    qr_bpe_trainer_free(b);
}

/* ---- what is written ---- */

Test(bpe_train, what_is_written_gives_every_text_back_and_special_tokens_are_no_text)
{
    TOK_NEED_DATA();
    struct qr_buf text = {0}, back = {0};
    struct qr_ids ids = {0};
    struct qr_err err = {0};
    tok_read_data(&text, "text/tinyshakespeare.txt");
    for (int cut = QR_BPE_CUT_LLAMA3; cut <= QR_BPE_CUT_GPT2; cut++) {
        struct qr_bpe_trainer *b = trainer((enum qr_bpe_cut)cut, 1000, 2);
        cr_assert_eq(qr_bpe_trainer_add(b, text.data, 200000, &err), 0, "%s", err.msg);
        cr_assert_eq(qr_bpe_trainer_run(b, NULL, NULL, &err), 0, "%s", err.msg);
        struct qr_tokenizer *t = open_written(b);
        static const char odd[] = "\n\n  caf\xC3\xA9 \xE4\xB8\xAD\xE6\x96\x87 12345\t<|a|>don't\r\n";
        const char *texts[] = {text.data + 200000, odd};
        const size_t lens[] = {100000, sizeof odd - 1};
        for (int i = 0; i < 2; i++) {
            ids.n = 0;
            qr_buf_clear(&back);
            cr_assert_eq(qr_tokenizer_encode(t, &ids, texts[i], lens[i], 0, &err), 0);
            qr_tokenizer_decode(t, &back, ids.id, ids.n, false);
            cr_expect(back.len == lens[i] && memcmp(back.data, texts[i], back.len) == 0);
            for (int32_t k = 0; k < ids.n; k++)
                cr_expect_not(qr_tokenizer_is_special(t, ids.id[k]));
            if (i == 0)
                cr_expect_lt(ids.n, 45000); /* 2.2 bytes a token at least: something was learnt */
        }
        cr_expect(qr_tokenizer_eos(t) == 0 && qr_tokenizer_bos(t) == -1 && qr_tokenizer_vocab_size(t) == 1000);
        qr_tokenizer_close(t);
        qr_bpe_trainer_free(b);
    }
    qr_ids_release(&ids);
    qr_buf_release(&text);
    qr_buf_release(&back);
}

Test(bpe_train, a_token_that_begins_texts_is_put_in_front_of_them)
{
    struct qr_bpe_trainer *b;
    struct qr_err err = {0};
    const struct qr_bpe_train_options o = {.vocab_size = 270, .min_count = 1, .special = specials, .n_special = 2, .bos = "<|b|>", .eos = "<|a|>"};
    struct qr_ids ids = {0};
    cr_assert_eq(qr_bpe_trainer_new(&b, &o, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_bpe_trainer_add(b, "x x x", 5, &err), 0);
    cr_assert_eq(qr_bpe_trainer_run(b, NULL, NULL, &err), 0);
    struct qr_tokenizer *t = open_written(b);
    cr_assert_eq(qr_tokenizer_encode(t, &ids, "x x", 3, QR_ENCODE_ADD_SPECIAL, &err), 0);
    cr_expect(ids.n == 3 && ids.id[0] == 1 && ids.id[0] == qr_tokenizer_bos(t) && ids.id[2] == 258); /* " x" was merged */
    qr_ids_release(&ids);
    qr_tokenizer_close(t);
    qr_bpe_trainer_free(b);
}

Test(bpe_train, a_merge_never_makes_the_name_of_a_special_token)
{
    struct qr_bpe_trainer *b;
    struct qr_err err = {0};
    const struct qr_bpe_train_options o = {.vocab_size = 270, .min_count = 1, .special = specials, .n_special = 3};
    cr_assert_eq(qr_bpe_trainer_new(&b, &o, &err), 0, "%s", err.msg);
    cr_assert_eq(qr_bpe_trainer_add(b, "ababab cdcd", 11, &err), 0);
    cr_assert_eq(qr_bpe_trainer_run(b, NULL, NULL, &err), 0);
    struct qr_tokenizer *t = open_written(b);
    struct qr_ids ids = {0};
    cr_assert_eq(qr_tokenizer_encode(t, &ids, "abcd", 4, 0, &err), 0);
    for (int32_t i = 0; i < ids.n; i++)
        cr_expect_neq(ids.id[i], 2);
    qr_ids_release(&ids);
    qr_tokenizer_close(t);
    qr_bpe_trainer_free(b);
}

Test(bpe_train, settings_that_make_no_sense_are_refused)
{
    static const char *const twice[] = {"<x>", "<x>"}, *const empty[] = {""}, *const byte[] = {"\xC4\xA0"}, *const broken[] = {"\xff"};
    static const struct {
        struct qr_bpe_train_options o;
        const char *says;
    } bad[] = {{{.vocab_size = 257, .special = specials, .n_special = 2}, "a vocabulary of 257, expected 258"},
               {{.vocab_size = 1 << 21}, "a vocabulary of 2097152"},
               {{.vocab_size = 300, .special = twice, .n_special = 2}, "named twice"},
               {{.vocab_size = 300, .special = empty, .n_special = 1}, "found 0"},
               {{.vocab_size = 300, .special = broken, .n_special = 1}, "UTF-8"},
               {{.vocab_size = 300, .special = byte, .n_special = 1}, "name of a byte"},
               {{.vocab_size = 300, .special = specials, .n_special = 1, .eos = "<|b|>"}, "eos token '<|b|>' is not among"},
               {{.vocab_size = 300, .bos = "<|b|>"}, "bos token"}};
    for (int i = 0; i < QR_COUNT(bad); i++) {
        struct qr_bpe_trainer *b = NULL;
        struct qr_err err = {0};
        struct qr_bpe_train_options o = bad[i].o;
        o.min_count = 1;
        cr_expect_eq(qr_bpe_trainer_new(&b, &o, &err), QR_E_USAGE, "case %d", i);
        cr_expect_not_null(strstr(err.msg, bad[i].says), "%s", err.msg);
    }
    struct qr_bpe_trainer *b = trainer(QR_BPE_CUT_GPT2, 300, 1);
    struct qr_err err = {0};
    cr_expect_eq(qr_bpe_trainer_run(b, NULL, NULL, &err), QR_E_INVALID);
    qr_bpe_trainer_free(b);
}

static bool at_once(void *user, int32_t n_tokens)
{
    ++*(int *)user;
    return n_tokens < 400;
}

Test(bpe_train, stops_when_it_is_told_to_and_takes_a_word_of_a_million_letters)
{
    struct qr_buf text = {0};
    struct qr_rng rng = {.seed = SEED};
    struct qr_err err = {0};
    int n_asked = 0;
    for (int i = 0; i < 1000000; i++)
        qr_buf_put_byte(&text, (char)('a' + qr_rng_below(&rng, 7)));
    struct qr_bpe_trainer *b = trainer(QR_BPE_CUT_GPT2, 2000, 1);
    cr_assert_eq(qr_bpe_trainer_add(b, text.data, text.len, &err), 0, "%s", err.msg);
    cr_expect_eq(qr_bpe_trainer_run(b, at_once, &n_asked, &err), QR_E_CLOSED);
    cr_expect_gt(n_asked, 1);
    qr_bpe_trainer_free(b);
    qr_buf_release(&text);
}
