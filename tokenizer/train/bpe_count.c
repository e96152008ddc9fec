/* bpe_count.c - learning BPE, first part: settings and the pieces of the text. */
#include <string.h>

#include "base/assert.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/utf8.h"
#include "tokenizer/train/bpe_trainer.h"
#include "tokenizer/tok.h"

#define BYTES_MAX ((size_t)1 << 40)
#define WORDS_MAX (1 << 28)

static const char *keep(struct qr_bpe_trainer *b, const char *bytes, size_t n)
{
    char *p = qr_arena_alloc(&b->arena, n + 1, 1);
    memcpy(p, bytes, n);
    p[n] = 0;
    return p;
}

/* ---- settings ---- */

/* The name of a byte is a token already. */
static bool names_a_byte(const struct qr_bpe_trainer *b, const char *text)
{
    for (int c = 0; c < 256; c++)
        if (strlen(text) == b->bytechar.len[c] && memcmp(text, b->bytechar.utf8[c], b->bytechar.len[c]) == 0)
            return true;
    return false;
}

static const char *find_special(const struct qr_bpe_trainer *b, const char *name, int32_t n)
{
    for (int32_t i = 0; i < n; i++)
        if (strcmp(b->token[i].bytes, name) == 0)
            return b->token[i].bytes;
    return NULL;
}

static int add_specials(struct qr_bpe_trainer *b, struct qr_err *err)
{
    for (int32_t i = 0; i < b->o.n_special; i++) {
        const char *s = b->o.special[i];
        const size_t n = strlen(s);
        if (n == 0 || n > QR_BPE_TRAIN_TOKEN_MAX || qr_utf8_valid_prefix(s, n) != n)
            return qr_err_set(err, QR_E_USAGE, "special token %d: expected 1 to %d bytes of UTF-8, found %zu", i + 1, QR_BPE_TRAIN_TOKEN_MAX, n);
        if (find_special(b, s, i))
            return qr_err_set(err, QR_E_USAGE, "special token '%s' is named twice", s);
        if (names_a_byte(b, s))
            return qr_err_set(err, QR_E_USAGE, "special token '%s' is the name of a byte in the vocabulary; choose a longer one", s);
        b->token[b->n_tokens++] = (struct qr_bpe_token){keep(b, s, n), (int32_t)n};
    }
    const char **const named[] = {&b->o.bos, &b->o.eos};
    for (int i = 0; i < QR_COUNT(named); i++) {
        if (!*named[i])
            continue;
        const char *found = find_special(b, *named[i], b->n_tokens);
        if (!found)
            return qr_err_set(err, QR_E_USAGE, "%s token '%s' is not among the special tokens", i == 0 ? "bos" : "eos", *named[i]);
        *named[i] = found;
    }
    b->o.special = NULL;
    return 0;
}

/* The bytes, in the order of the characters that stand for them. */
static void add_bytes(struct qr_bpe_trainer *b)
{
    for (uint32_t code = 0; code < QR_BYTECHAR_CODES; code++) {
        const int16_t byte = b->bytechar.byte_of[code];
        if (byte < 0)
            continue;
        const char c = (char)byte, *bytes = keep(b, &c, 1);
        qr_map_add(&b->id_of, bytes, 1, b->n_tokens);
        b->token[b->n_tokens++] = (struct qr_bpe_token){bytes, 1};
    }
}

/* A tokenizer of bytes that cuts as the new one will. */
static int open_cutter(struct qr_bpe_trainer *b, struct qr_err *err)
{
    struct qr_buf json = {0};
    qr_bpe_trainer_write(b, &json);
    const int rc = qr_tokenizer_parse(&b->cutter, json.data, json.len, NULL, 0, err);
    qr_buf_release(&json);
    return rc;
}

int qr_bpe_trainer_new(struct qr_bpe_trainer **out, const struct qr_bpe_train_options *o, struct qr_err *err)
{
    QR_ASSERT(out != NULL && o != NULL && err != NULL);
    QR_ASSERT(o->n_special >= 0 && (o->special != NULL || o->n_special == 0) && o->min_count >= 1);
    if (o->vocab_size < 256 + o->n_special || o->vocab_size > QR_VOCAB_ENTRIES_MAX)
        return qr_err_set(err, QR_E_USAGE, "a vocabulary of %d, expected %d (256 bytes and %d special tokens) to %d", o->vocab_size, 256 + o->n_special,
                          o->n_special, QR_VOCAB_ENTRIES_MAX);
    struct qr_bpe_trainer *b = qr_alloc(1, sizeof *b);
    b->o = *o;
    qr_arena_init(&b->arena, BYTES_MAX);
    qr_bytechar_init(&b->bytechar);
    qr_map_init(&b->word_of, 1024);
    qr_map_init(&b->id_of, 1024);
    b->token = qr_alloc((size_t)o->vocab_size, sizeof *b->token);
    b->matcher = qr_matcher_new();
    int rc = add_specials(b, err);
    if (rc == 0) {
        add_bytes(b);
        rc = open_cutter(b, err);
    }
    if (rc == 0)
        *out = b;
    else
        qr_bpe_trainer_free(b);
    return rc;
}

void qr_bpe_trainer_free(struct qr_bpe_trainer *b)
{
    if (!b)
        return;
    for (int32_t i = 0; i < b->n_pairs; i++)
        qr_free(b->pair[i].pos);
    void *const owned[] = {b->word, b->token, b->merge, b->symbol, b->pair, b->slot, b->heap, b->touched};
    for (int i = 0; i < QR_COUNT(owned); i++)
        qr_free(owned[i]);
    qr_map_release(&b->word_of);
    qr_map_release(&b->id_of);
    qr_pretok_work_release(&b->pretok);
    qr_matcher_free(b->matcher);
    qr_tokenizer_close(b->cutter);
    qr_arena_release(&b->arena);
    qr_free(b);
}

/* ---- pieces ---- */

static int count_piece(void *user, const char *piece, size_t len, struct qr_err *err)
{
    struct qr_bpe_trainer *b = user;
    const int32_t known = qr_map_find(&b->word_of, piece, len, -1);
    if (known >= 0) {
        b->word[known].count++;
        return 0;
    }
    if (b->n_words == WORDS_MAX || len > INT32_MAX)
        return qr_err_set(err, QR_E_TOO_LARGE, "the text has more than %d different words, or one of more than %d bytes", WORDS_MAX, INT32_MAX);
    b->word = QR_GROW(b->word, b->n_words, b->cap_words);
    const char *bytes = keep(b, piece, len);
    qr_map_add(&b->word_of, bytes, len, b->n_words);
    b->word[b->n_words++] = (struct qr_bpe_word){.bytes = bytes, .len = (int32_t)len, .count = 1};
    return 0;
}

int qr_bpe_trainer_add(struct qr_bpe_trainer *b, const char *text, size_t len, struct qr_err *err)
{
    QR_ASSERT(b != NULL && (text != NULL || len == 0));
    QR_ASSERT(b->symbol == NULL && err != NULL);
    return len == 0 ? 0 : qr_pretok_run(&b->cutter->pretok, &b->pretok, b->matcher, text, len, true, count_piece, b, err);
}

int64_t qr_bpe_trainer_n_pieces(const struct qr_bpe_trainer *b)
{
    QR_ASSERT(b != NULL);
    return b->n_words;
}

int32_t qr_bpe_trainer_n_tokens(const struct qr_bpe_trainer *b)
{
    QR_ASSERT(b != NULL);
    return b->n_tokens;
}

int32_t qr_bpe_trainer_n_merges(const struct qr_bpe_trainer *b)
{
    QR_ASSERT(b != NULL);
    return b->n_merges;
}
