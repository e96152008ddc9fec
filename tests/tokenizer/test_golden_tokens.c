/* Small tokenizers against Hugging Face's (tools/golden/tokens.py): steps behind ByteLevel, and added tokens that are found behind the normalizers. */
#include "tests/tokenizer/tok_test.h"

#include "tests/tokenizer/golden_tokens.h"
#include "tokenizer/bytechar.h"

#define GOLDENS (sizeof golden / sizeof *golden)

struct vocab_maker {
    struct qr_buf json, known; /* known: each token between line feeds */
    int32_t n;
};

static void add_token(struct vocab_maker *m, const char *s, size_t n)
{
    struct qr_buf line = {0};
    qr_buf_reserve(&m->known, 1);
    qr_buf_printf(&line, "\n%.*s\n", (int)n, s);
    if (!memmem(m->known.data, m->known.len, line.data, line.len)) {
        qr_buf_put(&m->known, line.data, line.len);
        qr_buf_put_str(&m->json, m->n ? "," : "");
        qr_json_put_str(&m->json, s, n);
        qr_buf_printf(&m->json, ":%d", m->n++);
    }
    qr_buf_release(&line);
}

static void add_symbols(struct vocab_maker *m, const char *symbols)
{
    struct qr_bytechar alphabet;
    qr_bytechar_init(&alphabet);
    for (int c = 0; c < 256 && !symbols[0]; c++)
        add_token(m, alphabet.utf8[c], alphabet.len[c]);
    for (size_t n; symbols[0]; symbols += n + (symbols[n] == ' '))
        add_token(m, symbols, n = strcspn(symbols, " "));
}

/* Each line's two tokens make a third. */
static void add_merges(struct vocab_maker *m, struct qr_buf *merges, const char *lines)
{
    for (size_t n; lines[0]; lines += n + (lines[n] == '\n')) {
        const size_t left = strcspn(lines, " ");
        char both[64];
        n = strcspn(lines, "\n");
        snprintf(both, sizeof both, "%.*s%.*s", (int)left, lines, (int)(n - left - 1), lines + left + 1);
        add_token(m, both, n - 1);
        qr_buf_put_str(merges, merges->len ? "," : "");
        qr_json_put_str(merges, lines, n);
    }
}

static struct qr_tokenizer *open_golden(const struct golden_tokens *g)
{
    struct vocab_maker m = {0};
    struct qr_buf merges = {0}, file = {0};
    struct qr_tokenizer *t = NULL;
    struct qr_err err = {0};
    add_symbols(&m, g->symbols);
    add_merges(&m, &merges, g->merges);
    qr_buf_printf(&file, "{%s,\"model\":{\"type\":\"BPE\",%s\"vocab\":{%s},\"merges\":[%s]}}", g->sections, g->model, m.json.data, merges.data);
    cr_assert_eq(qr_tokenizer_parse(&t, file.data, file.len, NULL, 0, &err), 0, "%s: %s", g->name, err.msg);
    qr_buf_release(&m.json);
    qr_buf_release(&m.known);
    qr_buf_release(&merges);
    qr_buf_release(&file);
    return t;
}

static void read_ids(struct qr_ids *out, const char *numbers)
{
    char *rest;
    for (out->n = 0; *numbers; numbers = rest)
        qr_ids_push(out, (int32_t)strtol(numbers, &rest, 10));
}

Test(golden_tokens, texts_have_the_ids_of_tokenizers)
{
    struct qr_ids want = {0}, got = {0};
    for (size_t i = 0; i < GOLDENS; i++) {
        struct qr_tokenizer *t = open_golden(&golden[i]);
        for (int k = 0; k < GOLDEN_ENCODED && golden[i].encoded[k].text; k++) {
            read_ids(&want, golden[i].encoded[k].ids);
            tok_encode(t, &got, golden[i].encoded[k].text, strlen(golden[i].encoded[k].text), QR_ENCODE_ADD_SPECIAL | QR_ENCODE_PARSE_SPECIAL);
            cr_expect(tok_same(&got, &want), "%s: \"%s\" gives %s, expected %s", golden[i].name, golden[i].encoded[k].text, tok_show(&got), tok_show(&want));
        }
        qr_tokenizer_close(t);
    }
    qr_ids_release(&want);
    qr_ids_release(&got);
}

/* The text of ids whole, and from each place on behind the ids before it. */
static void expect_text(const char *name, const struct qr_tokenizer *t, const struct qr_ids *ids, bool skip, const char *want)
{
    struct qr_buf whole = {0}, before = {0};
    char piece[1024];
    cr_assert_leq(qr_detok_piece_max(t), sizeof piece);
    qr_tokenizer_decode(t, &whole, ids->id, ids->n, skip);
    cr_expect(whole.len == strlen(want) && (!whole.len || memcmp(whole.data, want, whole.len) == 0), "%s: %s gives \"%.*s\", expected \"%s\"", name,
              tok_show(ids), (int)whole.len, whole.data ? whole.data : "", want);
    for (int32_t from = 0; from <= ids->n; from++) {
        struct qr_detok d;
        struct qr_buf streamed = {0};
        qr_detok_init(&d, t, NULL, 0, skip);
        before.len = 0;
        for (int32_t i = 0; i < from; i++)
            qr_buf_put(&before, piece, qr_detok_push(&d, piece, ids->id[i]));
        qr_detok_init(&d, t, ids->id, from, skip);
        for (int32_t i = from; i < ids->n; i++)
            qr_buf_put(&streamed, piece, qr_detok_push(&d, piece, ids->id[i]));
        qr_buf_put(&streamed, piece, qr_detok_flush(&d, piece));
        cr_expect(before.len + streamed.len == whole.len && (!streamed.len || memcmp(whole.data + before.len, streamed.data, streamed.len) == 0),
                  "%s: %s, behind %d of them \"%.*s\" and not the rest of \"%s\"", name, tok_show(ids), from, (int)streamed.len,
                  streamed.data ? streamed.data : "", want);
        qr_buf_release(&streamed);
    }
    qr_buf_release(&whole);
    qr_buf_release(&before);
}

Test(golden_tokens, added_tokens_that_are_normalized_decode_to_what_they_were_found_as_and_are_left_out_where_they_are_special)
{
    struct qr_ids ids = {0};
    int n = 0;
    for (size_t i = 0; i < GOLDENS; i++) {
        struct qr_tokenizer *t = open_golden(&golden[i]);
        for (int k = 0; k < GOLDEN_DECODED && golden[i].decoded[k].ids; k++, n++) {
            read_ids(&ids, golden[i].decoded[k].ids);
            expect_text(golden[i].name, t, &ids, false, golden[i].decoded[k].with);
            expect_text(golden[i].name, t, &ids, true, golden[i].decoded[k].without);
        }
        qr_tokenizer_close(t);
    }
    cr_expect_eq(n, 3 * GOLDEN_DECODED);
    qr_ids_release(&ids);
}
